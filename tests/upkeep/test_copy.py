"""`zstore.copy`: the same bytes in another store, seen when they are whole, and nothing else."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import zstore
from zstore.engine.intents import JOB, find_unfinished
from zstore.errors import (
    ChangedError,
    ChecksumError,
    MetadataError,
    NotFoundError,
    ReadingWarning,
    StoreError,
)
from zstore.jobs.chunks import Location
from zstore.jobs.source import MADE
from zstore.jobs.upkeep import copy as copy_module
from zstore.jobs.upkeep import manifest as manifests
from zstore.jobs.upkeep import spool
from zstore.jobs.upkeep.copy import COMPARE, COPY, KEEP, Copied, CopyStep, Planner
from zstore.jobs.upkeep.manifest import Manifest, render_name
from zstore.storage.base import Entry, Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

KINDS = ["local", "zip", "memory"]


def make(kind: str, place: Path) -> Store:
    if kind == "memory":
        return MemoryStore()
    return open_store(place.with_suffix(".zip") if kind == "zip" else place)


def fill(store: Store) -> Store:
    """Groups and arrays of two formats, and what zstore knows nothing of."""
    group = zstore.create_group(store, attributes={"mine": [1, 2]})
    group.create_array("a", data=np.arange(400).reshape(20, 20), chunks=(4, 4), shards=(8, 8))
    group.create_array("in/b", data=np.arange(30.0), chunks=(3,))
    group.consolidate()
    old = MemoryStore()
    zstore.create_group(old, zarr_format=2).create_array("c", data=np.arange(9), chunks=(2,))
    for key in old.list(""):
        store.put(f"old/{key}", old.get(key) or b"")
    store.put("in/notes\n.txt", b"kept")
    store.put("in/large", bytes(range(256)) * 300)
    store.flush()
    return store


def values(store: Any) -> dict[str, bytes]:
    return {key: bytes(store.get(key) or b"") for key in store.list("") if MADE not in key}


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_arrives(kind, to, tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "PART_SIZE", 1000)
    monkeypatch.setattr(copy_module, "PART_SIZE", 1000)
    monkeypatch.setattr(copy_module, "UNIT_COUNT", 5)
    for name, count in (("PAGE_COUNT", 3), ("RUN_SIZE", 300), ("BLOCK_SIZE", 50)):
        monkeypatch.setattr(manifests if name == "PAGE_COUNT" else spool, name, count)
    source, target, seen = fill(make(kind, tmp_path / "s")), make(to, tmp_path / "t"), list[tuple[int, int]]()
    done = zstore.copy(source, target, progress=lambda *now: seen.append(now))
    expected = values(source)
    size = sum(map(len, expected.values()))
    assert values(target) == expected
    assert done == Copied(key_count=len(expected), size=size)
    assert seen[-1] == (size, size)
    # And so they do where each is read here, on one reading.
    other = make(to, tmp_path / "u")
    made = zstore.copy(source, other, check=True, manifest=tmp_path / "m", request_count=2, bandwidth=1e9)
    assert values(other) == expected
    assert made.root == zstore.manifest(source).root == zstore.manifest(other).root
    assert zstore.verify(target, manifest=tmp_path / "m").is_sound
    assert zstore.verify(target).is_sound


def test_a_part_of_a_store_goes_below_another(tmp_path):
    source, target = fill(LocalStore(tmp_path / "s")), MemoryStore()
    group = zstore.create_group(target)
    group.create_array("beside", data=np.arange(3))
    group.consolidate()
    before = values(target)
    zstore.copy(source, target, "in", target_path="there")
    found = values(target)
    assert {key.removeprefix("there/") for key in found if key.startswith("there/")} == {
        key.removeprefix("in/") for key in source.list("in")
    }
    # The group above no longer says that it has nothing there.
    assert {key for key in before if found[key] != before[key]} == {"zarr.json"}
    assert "there" in zstore.open_group(target, mode="r")
    with pytest.raises(StoreError, match="into itself"):
        zstore.copy(source, source, target_path="in/deeper")


def test_no_file_that_is_read_is_in_what_is_written(tmp_path):
    """A zip file or a database in the target would go with what is replaced or deleted there."""
    source = fill(open_store(tmp_path / "d" / "s.zip"))
    array = zstore.open_array(source, "in/b", mode="r")
    (tmp_path / "link.zip").symlink_to(tmp_path / "d" / "s.zip")
    zstore.create_group(tmp_path / "d").create_array("mine", data=np.arange(3))
    before = values(LocalStore(tmp_path / "d"))
    for act in (
        lambda: zstore.copy(source, tmp_path / "d", if_exists="overwrite", delete=True),
        lambda: zstore.copy(tmp_path / "link.zip", tmp_path / "d", if_exists="overwrite", delete=True),
        lambda: zstore.convert(source, tmp_path / "d", overwrite=True),
        lambda: zstore.convert(source, tmp_path / "link.zip", overwrite=True),
        lambda: zstore.reduce(array, "sum", out=tmp_path / "d", overwrite=True),
        lambda: zstore.copy(tmp_path / "d", tmp_path / "d" / "t.zip"),
    ):
        with pytest.raises(StoreError, match="into itself"):
            act()
        assert values(LocalStore(tmp_path / "d")) == before
    zstore.copy(source, tmp_path / "d" / "beside")
    zstore.copy(source, source, "in", target_path="within")


def test_links_that_lead_out_are_named_or_left_out(tmp_path):
    source = fill(LocalStore(tmp_path / "s"))
    zstore.create_array(tmp_path / "outside", data=np.arange(3))
    (tmp_path / "s" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "s" / "nowhere").symlink_to("/nothing/there")
    for left in ("out", "nowhere"):
        told = pytest.warns(ReadingWarning, match="is left out: .* leads out of the store")
        with told, pytest.raises(StoreError, match="leads out of the store"):
            zstore.copy(source, MemoryStore(), exclude=left)
    assert (
        zstore.copy(source, MemoryStore(), exclude=["out", "nowhere"]).key_count
        == sum(1 for _ in source.list()) - 2
    )


class Noting(MemoryStore):
    """Notes every change, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def put(self, key, value):
        self.noted.append(key)
        super().put(key, value)

    def delete(self, key):
        self.noted.append(f"-{key}")
        super().delete(key)


def test_documents_come_last_and_what_contradicts_them_goes_first(tmp_path):
    source, target = fill(MemoryStore()), Noting()
    zstore.copy(source, target)
    put = [key for key in target.noted if JOB not in key]
    documents = [key for key in put if key.rpartition("/")[2] in copy_module.DOCUMENTS]
    assert put[-len(documents) :] == documents and put[-1] == "zarr.json"
    assert documents.index("old/c/.zarray") < documents.index("old/.zgroup")
    # The array of another shape is not seen while the chunks of this one come.
    del zstore.open_group(source)["a"]
    zstore.create_array(source, "a", data=np.arange(100).reshape(10, 10), chunks=(5, 5))
    target.noted.clear()
    zstore.copy(source, target, if_exists="changed", delete=True)
    changes = [key for key in target.noted if JOB not in key]
    assert changes[:2] == ["-zarr.json", "-a/zarr.json"]
    assert changes[-2:] == ["a/zarr.json", "zarr.json"]
    assert values(target) == values(source)


def test_what_is_there_is_kept_replaced_or_refused(tmp_path):
    source, target = fill(MemoryStore()), MemoryStore()
    zstore.copy(source, target)
    with pytest.raises(StoreError, match="there already"):
        zstore.copy(source, target)
    target.put("in/notes\n.txt", b"mine")
    target.put("in/more", b"mine, too")
    count = len(values(source))
    assert zstore.copy(source, target, if_exists="skip").kept_count == count
    assert target.get("in/notes\n.txt") == b"mine"
    done = zstore.copy(source, target, if_exists="changed")
    assert (done.key_count, done.kept_count) == (1, count - 1)
    assert zstore.copy(source, target, if_exists="overwrite").key_count == count
    assert values(target) == {**values(source), "in/more": b"mine, too"}
    done = zstore.copy(source, target, if_exists="changed", delete=True, dry_run=True)
    assert (done.compared_count, done.deleted_count, "in/more" in values(target)) == (count, 1, True)
    assert zstore.copy(source, target, if_exists="changed", delete=True).deleted_count == 1
    assert values(target) == values(source)
    with pytest.raises(ValueError, match="expected one of 'error'"):
        zstore.copy(source, target, if_exists="maybe")


def test_nothing_of_another_array_shows(tmp_path):
    source, target = MemoryStore(), MemoryStore()
    zstore.create_array(source, "a", shape=(6,), chunks=(2,), dtype="i4")[:2] = 1
    zstore.create_array(target, "a", shape=(6,), chunks=(2,), dtype="i4")[...] = 7
    for if_exists in ("overwrite", "changed", "skip"):
        before = values(target)
        with pytest.raises(StoreError, match="could show as data"):
            zstore.copy(source, target, if_exists=if_exists)
        assert values(target) == before
    zstore.copy(source, target, if_exists="overwrite", delete=True)
    assert zstore.open_array(target, "a")[...].tolist() == [1, 1, 0, 0, 0, 0]
    # Nor do its chunks come under a document that says something else of them.
    other = MemoryStore()
    zstore.create_array(other, "a", shape=(6,), chunks=(2,), dtype="i8")
    with pytest.raises(StoreError, match="another document"):
        zstore.copy(source, other, if_exists="skip")


def test_deletion_stays_below_the_target_and_within_the_patterns():
    source, target = fill(MemoryStore()), MemoryStore()
    for key in ("t/x", "t/in/y", "tx/z", "u"):
        target.put(key, b"1")
    zstore.copy(source, target, target_path="t", if_exists="skip", include="in/*", delete=True)
    kept = {key for key in target.list("") if not key.startswith("t/in/")}
    assert kept == {"t/x", "tx/z", "u"}
    assert {key[2:] for key in target.list("t/in")} == set(source.list("in"))
    before = values(target)
    with pytest.raises(NotFoundError, match="nothing to copy"):
        zstore.copy(source, target, "typo", target_path="t", if_exists="changed", delete=True)
    assert values(target) == before


def test_groups_tell_nothing_of_what_is_left_out():
    source = fill(MemoryStore())
    zstore.open_group(source, "old", zarr_format=2).consolidate()
    target = MemoryStore()
    zstore.copy(source, target, exclude=["in/b/*", "old/c/*"], manifest=None)
    group = zstore.open_group(target, mode="r")
    assert "in/b" not in group and "a" in group
    assert dict(group.attrs) == {"mine": [1, 2]}
    old = zstore.open_group(target, "old", zarr_format=2, mode="r")
    assert [*old.members()] == [] and b"c/.zarray" not in bytes(target.get("old/.zmetadata"))
    assert b"in/b" not in bytes(target.get("zarr.json"))
    assert b"consolidated_metadata" in bytes(target.get("zarr.json"))


def test_a_manifest_of_the_last_copy_spares_reading(tmp_path):
    class Reading(LocalStore):
        keys: ClassVar[list[str]] = []

        def get_parts(self, requests):
            self.keys += [key for key, _ in requests]
            return super().get_parts(requests)

        def as_read_only(self):
            return self

    source, target = fill(Reading(tmp_path / "s")), LocalStore(tmp_path / "t")
    zstore.copy(source, target, manifest=tmp_path / "m")
    assert sorted(source.keys) == sorted(values(source)), "each is read once"
    source.keys.clear()
    source.put("in/large", bytes(256) * 300)
    source.put("in/new", b"what the manifest does not name")
    done = zstore.copy(source, target, if_exists="changed", manifest=tmp_path / "m")
    assert (done.key_count, {*source.keys}) == (2, {"in/large", "in/new"})
    assert done.root == zstore.manifest(source).root
    assert values(target) == values(source)


def test_unfinished_is_never_data(tmp_path):
    source = fill(LocalStore(tmp_path / "s"))
    target = MemoryStore()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zstore.copy(source, target, progress=stop)
    assert "zarr.json" not in [*target.list("")]
    [left] = find_unfinished(target, "")
    assert left.again.startswith("zstore.copy(") and left.again.endswith("resume=True)")
    with pytest.raises(StoreError, match="a copy is unfinished"):
        zstore.copy(source, target)
    with pytest.raises(StoreError, match="unfinished work in what is to be copied"):
        zstore.copy(target, MemoryStore())
    with pytest.raises(StoreError, match="unfinished work in the target"):
        above = MemoryStore("above")
        above.put(f"in/deep/{JOB}/record", b"{}")
        zstore.copy(source, above)
    with pytest.raises(MetadataError, match="other arguments"):
        zstore.copy(source, target, if_exists="skip", resume=True)
    zstore.copy(source, target, resume=True)
    assert values(target) == values(source)
    # Whoever goes on with it and is killed after another has ended it may leave a journal, of no work.
    target.put(f"{JOB}/0123456789abcdef/keys/1", b"journal")
    assert not find_unfinished(target, "")
    zstore.copy(target, again := MemoryStore())
    assert values(again) == values(source)
    zstore.copy(source, target, resume=True, if_exists="changed")
    assert values(target) == values(source)


def test_a_source_that_changes_meanwhile_is_named(monkeypatch):
    # The journal has the unit, with the bytes of before.
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)
    source, target = fill(MemoryStore()), MemoryStore()

    def write(done, total):
        source.put("in/notes\n.txt", b"anew")

    with pytest.raises(ChangedError, match="changed while it was read"):
        zstore.copy(source, target, progress=write)
    assert not [key for key in target.list("") if key.endswith("zarr.json")]
    zstore.copy(source, target, resume=True)
    assert values(target) == values(source)


def test_what_the_target_gives_back_is_checked():
    class Losing(MemoryStore):
        def put(self, key, value):
            super().put(key, bytes(value)[:-1] + b"?" if key.endswith("notes\n.txt") else value)

    source = fill(MemoryStore())
    zstore.copy(source, Losing())
    with pytest.raises(ChecksumError, match="gives back other bytes"):
        zstore.copy(source, Losing(), check=True)


def test_a_full_disk_is_found_before_the_first_byte(tmp_path, monkeypatch):
    source = fill(MemoryStore())
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    for name in ("t", "t.zip"):
        with pytest.raises(StoreError, match=r"no room for the copy: .* 1000 are free"):
            zstore.copy(source, tmp_path / "deep" / name)
    assert [*tmp_path.iterdir()] == []
    # A zip file has names and a directory, too.
    size = sum(map(len, source._values.values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, size))
    zstore.copy(source, tmp_path / "t")
    with pytest.raises(StoreError, match="no room for the copy"):
        zstore.copy(source, tmp_path / "t.zip")
    assert not (tmp_path / "t.zip").exists()
    # What is deleted makes room for what is copied, and a disk that says nothing of itself is not full.
    other = zstore.create_array(
        tmp_path / "other", data=np.ones(size, "u1"), chunks=size // 9, compressors=None
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    zstore.copy(source, tmp_path / "other", if_exists="overwrite", delete=True)
    assert not other.store.size("c/0")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 0))
    zstore.copy(source, tmp_path / "far")


def test_bandwidth_is_kept(monkeypatch):
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    pace = copy_module._Pace(1000)
    for _ in range(4):
        pace(500)
    assert waited == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("memory", [None, 1 << 20])
def test_with_memory_one_large_value_is_held_at_a_time(memory, monkeypatch):
    monkeypatch.setattr(copy_module, "PART_SIZE", 1 << 10)
    met, pairs = threading.Barrier(2), list[int]()

    class HoldingStore(MemoryStore):
        """A store that takes large values whole, in which two wait for each other."""

        def put_file(self, key: str, file: int, size: int) -> None:
            with suppress(threading.BrokenBarrierError):
                pairs.append(met.wait(20 if memory is None else 0.3))
            super().put_file(key, file, size)

    source = MemoryStore()
    zstore.create_array(source, data=np.arange(4096), chunks=2048, compressors=None)
    target = HoldingStore()
    zstore.copy(source, target, memory=memory, check=True, request_count=16)
    assert len(pairs) == (2 if memory is None else 0)
    np.testing.assert_array_equal(zstore.open_array(target)[...], np.arange(4096))


CHILD = """
import sys, zstore
from zstore.jobs import journal
from zstore.jobs.upkeep import copy
journal.WAITING_SECONDS = journal.PAUSE = -1
copy.UNIT_COUNT = 4
zstore.copy(sys.argv[1], sys.argv[2], manifest=sys.argv[3], request_count=1, bandwidth=4e6, resume=True)
"""


def test_killed_and_resumed_reads_what_was_left(tmp_path, monkeypatch):
    monkeypatch.setattr(copy_module, "UNIT_COUNT", 4)
    source, rng = LocalStore(tmp_path / "s"), random.Random(3)
    items = np.random.default_rng(0).integers(0, 255, (256, 8192), "u1")
    zstore.create_array(source, data=items, chunks=(1, 8192), compressors=None)
    words = [sys.executable, "-c", CHILD, tmp_path / "s", tmp_path / "t", tmp_path / "m"]
    child = subprocess.Popen(words)
    while len([*(tmp_path / "t" / "c").glob("*")]) < 64:
        assert child.poll() is None
        time.sleep(rng.uniform(0.001, 0.01))
    child.send_signal(signal.SIGKILL)
    child.wait()
    left = (256 - len([*(tmp_path / "t" / "c").glob("*")])) * 8192
    assert left > 0
    read = list[int]()
    parts = copy_module.read_parts

    def count(*args: Any):
        for part in parts(*args):
            read.append(len(part))
            yield part

    monkeypatch.setattr(copy_module, "read_parts", count)
    done = zstore.copy(tmp_path / "s", tmp_path / "t", manifest=tmp_path / "m", resume=True)
    assert sum(read) <= 1.1 * left + len(source.get("zarr.json"))
    assert values(LocalStore(tmp_path / "t")) == values(source)
    assert done.root == zstore.manifest(source).root


ODD = ["a", "zarr.json", ".zarray", "meta", "zarr.json2", "metadata", "n\nl", "b\\r\r", "é", "\udc80", "\1"]
VERSIONS = ["v", "é", "l\nb\\0\0\r", "\udc80", None]


class Listing(MemoryStore):
    """Lists (size, version) by key."""

    def __init__(self, listed: dict[str, Any]) -> None:
        super().__init__()
        self.listed = listed

    def entries(self, prefix: str = "") -> Any:
        keys = (key for key in self.listed if not prefix or key.startswith(f"{prefix}/"))
        return (Entry(key, *self.listed[key]) for key in keys)


@pytest.mark.parametrize("if_exists", copy_module.CHOICES)
@pytest.mark.parametrize("base", ["", "b/é"])
def test_plans_in_bulk_say_what_each_key_alone_would(if_exists, base, monkeypatch):
    monkeypatch.setattr(spool, "RUN_SIZE", 700)
    monkeypatch.setattr(spool, "BLOCK_SIZE", 120)
    monkeypatch.setattr(manifests, "PAGE_COUNT", 7)
    chance = random.Random(if_exists + base)
    for share in [0, 0, 0.1, 0.5, 0.5, 0.9]:
        names = ("/".join(chance.choices(ODD, k=chance.randint(1, 3))) for _ in range(chance.choice([3, 90])))
        mine = {name: (chance.choice([0, 7, 10**12, 1 << 70]), chance.choice(VERSIONS)) for name in names}
        stays = {name: chance.random() < 0.5 for name in mine}
        theirs = {
            name: (size if stays[name] else size + 1, None)
            for name, (size, _) in mine.items()
            if chance.random() < share
        }
        others = {f"other{number}": (1, None) for number in range(3)} if share else {}
        is_known = if_exists == "changed" and share > 0
        sums = [
            b"\0".join((render_name(name), b"%064d" % size, b"%d" % size, render_name(version or "")))
            for name, (size, version) in mine.items()
            if chance.random() < 0.5
        ]
        known = {line.split(b"\0")[0]: line.split(b"\0")[1] for line in sums if not line.endswith(b"\0")}
        expected, counts, needed, left = [], Copied(len(mine)), -len(others), 0
        for name, (size, version) in mine.items():
            there, written = theirs.get(name), render_name(name)
            digest = known.get(written, b"") if is_known else b""
            action = COPY
            if there and if_exists == "skip":
                action = KEEP
            elif there and if_exists == "changed" and there[0] == size:
                action = KEEP if digest else COMPARE
            counts.key_count -= action != COPY
            counts.kept_count += action == KEEP
            counts.compared_count += action == COMPARE
            counts.size += size if action == COPY else 0
            needed += size - (there[0] if there else 0) if action == COPY else 0
            left += size if action != KEEP else 0
            own = b"%d" % size, render_name(version or "")
            size_there = b"%d" % there[0] if there else b""
            expected.append(CopyStep(written, *own, action, size_there, digest if action == KEEP else b""))
        source = Listing({f"{base}/{name}".lstrip("/"): of for name, of in mine.items()})
        places = Location(source, base), Location(Listing(theirs | others), "")
        options = {"delete": True, "is_resumed": if_exists == "error"}
        planner = Planner(*places, lambda key: True, chance.choice([[], None]), if_exists, **options)
        plan = planner.plan(Manifest(spool.Spool(sums)) if is_known else None)
        is_document = {render_name(name): name.rpartition("/")[2] in copy_module.DOCUMENTS for name in mine}
        wanted = sorted(step for step in expected if not is_document[step.name])
        assert [CopyStep(*line.split(b"\0")) for line in plan.steps] == wanted
        assert sorted(plan.documents) == sorted(step for step in expected if is_document[step.name])
        assert {step.entry for step in wanted} <= {Entry(key, *of) for key, of in mine.items()}
        assert [*plan.deletions] == [render_name(name) for name in sorted(others)]
        counts.deleted_count = len(others)
        assert (plan.counts, plan.needed_size, plan.total_size) == (counts, needed, left)

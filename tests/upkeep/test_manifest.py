"""`zstore.manifest` and `zstore.verify(manifest=…)`: hashes of every key, and whatever is not as they say."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import zstore
from zstore._ext.engine.files import entry_lines
from zstore.errors import ChangedError, MetadataError, NotFoundError, ReadingWarning, StoreError
from zstore.jobs.chunks import Location
from zstore.jobs.upkeep import manifest as manifests
from zstore.jobs.upkeep import spool
from zstore.jobs.upkeep.manifest import Manifest
from zstore.storage.base import Entry
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

VALUES = {
    "zarr.json": b"{}",
    "a/c/0/0": b"chunk",
    "a/c/0/1": b"",
    "of two\nlines": b"1",
    "back\\slash\\n": b"2",
    "return\r": b"3",
    "ünï": b"4",
    "a b  c": b"5",
    "large": bytes(range(256)) * 40,
}


@pytest.fixture(params=["local", "zip", "memory"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryStore()
    return open_store(tmp_path / ("s.zip" if request.param == "zip" else "s"))


def fill(store: Any) -> Any:
    for key, value in VALUES.items():
        store.put(key, value)
    return store


def faults(store: Any, file: Path) -> dict[str | None, str]:
    return {damage.key: damage.kind for damage in zstore.verify(store, manifest=file).damages}


def test_every_key_has_its_hash(store, tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "PART_SIZE", 1000)
    made = zstore.manifest(fill(store), file=tmp_path / "m")
    expected = {key: hashlib.sha256(value).hexdigest() for key, value in VALUES.items()}
    assert dict(made) == dict(Manifest.read(tmp_path / "m")) == expected
    lines = [line for line in (tmp_path / "m").read_bytes().split(b"\n") if not line.startswith(b"#")]
    assert hashlib.sha256(b"\n".join(lines)).hexdigest() == made.root == Manifest.read(tmp_path / "m").root
    assert faults(store, tmp_path / "m") == {}
    assert dict(zstore.manifest(store, "a")) == {"c/0/0": expected["a/c/0/0"], "c/0/1": expected["a/c/0/1"]}


def test_what_changed_is_missing_or_new_is_named(store, tmp_path):
    zstore.manifest(fill(store), file=tmp_path / "m")
    store.put("a/c/0/0", b"chunl")
    store.delete("back\\slash\\n")
    store.put("a/c/1/0", b"more")
    found = {"a/c/0/0": "changed", "back\\slash\\n": "missing", "a/c/1/0": "new"}
    assert faults(store, tmp_path / "m") == found
    result = zstore.verify(store, manifest=tmp_path / "m")
    assert (result.is_sound, result.damage_count, result.key_count) == (False, 3, len(VALUES) + 1)


def test_sha256sum_reads_it_and_writes_it(tmp_path):
    store, program = fill(LocalStore(tmp_path / "s")), shutil.which("sha256sum")
    assert program is not None, "coreutils are part of every Linux"
    zstore.manifest(store, file=tmp_path / "m")
    words = [program, "-c", "--strict", "--quiet", tmp_path / "m"]
    subprocess.run(words, cwd=tmp_path / "s", check=True)
    (tmp_path / "s" / "of two\nlines").write_bytes(b"0")
    assert subprocess.run(words, cwd=tmp_path / "s", capture_output=True).returncode == 1
    (tmp_path / "s" / "of two\nlines").write_bytes(b"1")
    script = f"find . -type f -exec {program} {{}} + > ../other"
    subprocess.run(["sh", "-c", script], cwd=tmp_path / "s", check=True)
    assert dict(Manifest.read(tmp_path / "other")) == dict(Manifest.read(tmp_path / "m"))
    # Where Windows has changed the ends of all lines, the names are what they were; one of them is a name's.
    for name in ("m", "other"):
        (tmp_path / "windows").write_bytes((tmp_path / name).read_bytes().replace(b"\n", b"\r\n"))
        assert dict(Manifest.read(tmp_path / "windows")) == dict(Manifest.read(tmp_path / "m"))
    (tmp_path / "mixed").write_bytes(f"{GOOD}  a\n{GOOD}  b\r\n".encode())
    assert dict(Manifest.read(tmp_path / "mixed")) == {"a": GOOD, "b\r": GOOD}


def test_a_manifest_within_the_store_is_no_part_of_it(tmp_path):
    store = fill(LocalStore(tmp_path / "s"))
    without = zstore.manifest(store).root
    inside = tmp_path / "s" / "SHA256SUMS"
    assert zstore.manifest(store, file=inside).root == without
    assert zstore.manifest(store, file=inside).root == without
    assert faults(store, inside) == {}


def test_an_empty_store_and_none(tmp_path):
    made = zstore.manifest(MemoryStore(), file=tmp_path / "m")
    assert (len(made), made.root) == (0, hashlib.sha256().hexdigest())
    assert faults(MemoryStore(), tmp_path / "m") == {}
    with pytest.raises(NotFoundError, match="there is nothing"):
        zstore.manifest(tmp_path / "typo.zarr")
    with pytest.raises(NotFoundError, match="no manifest"):
        zstore.verify(MemoryStore(), manifest=tmp_path / "typo")


def test_names_that_are_no_text(tmp_path):
    name = os.fsdecode(b"\xff\xfe")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / name).write_bytes(b"1")
    zstore.manifest(tmp_path / "s", file=tmp_path / "m")
    assert list(dict(Manifest.read(tmp_path / "m"))) == [name]
    assert faults(tmp_path / "s", tmp_path / "m") == {}


def test_a_device_takes_a_manifest_and_stays(tmp_path):
    store, link = fill(LocalStore(tmp_path / "s")), tmp_path / "null"
    link.symlink_to("/dev/null")
    zstore.manifest(store, file=link)
    assert link.is_symlink() and link.is_char_device()
    other = tmp_path / "other"
    other.symlink_to(tmp_path / "m")
    zstore.manifest(store, file=other)
    assert other.is_symlink() and faults(store, tmp_path / "m") == {}


def test_keys_that_cannot_be_written_down_are_refused():
    store = MemoryStore()
    store.put("a\ud800", b"1")
    with pytest.raises(StoreError, match="cannot be written down"):
        zstore.manifest(store)


def test_what_cannot_be_read_is_named(tmp_path):
    store = fill(LocalStore(tmp_path / "s"))
    zstore.manifest(store, file=tmp_path / "m")
    (tmp_path / "s" / "large").unlink()
    (tmp_path / "s" / "large").symlink_to("/proc/self/status")
    assert faults(store, tmp_path / "m") == {"large": "unreadable"}
    with (
        pytest.warns(ReadingWarning, match="'large' is left out"),
        pytest.raises(StoreError, match="leads out of the store"),
    ):
        zstore.manifest(store, file=tmp_path / "m")
    assert faults(store, tmp_path / "m") == {"large": "new"}


def test_a_store_that_changes_meanwhile_has_no_manifest(monkeypatch):
    store = fill(MemoryStore())
    with pytest.raises(ChangedError, match="a key is new"):
        zstore.manifest(store, progress=lambda done, total: store.put("late", b"1"))
    with pytest.raises(ChangedError, match="was written"):
        zstore.manifest(store, progress=lambda done, total: store.put("zarr.json", b"[]"))
    # A value that grows while it is read in parts.
    parts = manifests.read_parts(Location(store, ""), Entry("large", len(VALUES["large"])), 1000)
    next(parts)
    store.put("large", VALUES["large"] * 2)
    with pytest.raises(ChangedError, match="changed while it was read"):
        next(parts)


GOOD = "0" * 64
HOSTILE = {
    "leaves the store": f"{GOOD}  ../../etc/passwd\n",
    "names nothing": f"{GOOD}  /etc/passwd\n",
    "line 2 .*expected a SHA-256": f"{GOOD}  a\n{GOOD[1:]}  b\n",
    "more than 262144 bytes": f"{GOOD}  {'a' * 10**6}\n",
    "has the key twice": f"{GOOD}  a\n{'1' * 64}  a\n",
    "in a name; expected": f"\\{GOOD}  a\\t\n",
    "was changed or cut off": f"# root {GOOD}\n{GOOD}  a\n",
    "expected a SHA-256": "\0\1\2",
    "line 2 of the manifest.*expected a SHA": f"{GOOD}  a\r\n{GOOD}  b\n",
}


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_manifests_are_refused(said, tmp_path):
    (tmp_path / "m").write_bytes(HOSTILE[said].encode())
    with pytest.raises(MetadataError, match=said):
        zstore.verify(MemoryStore(), manifest=tmp_path / "m")


@pytest.mark.parametrize("order", ["mixed", "sorted", "in stretches"])
def test_more_lines_than_memory_holds_are_sorted_on_disk(order, monkeypatch):
    monkeypatch.setattr(spool, "RUN_SIZE", 100)
    monkeypatch.setattr(spool, "BLOCK_SIZE", 7)
    lines = [b"%d" % (n * 7919 % 1000) for n in range(3000)]
    wanted = sorted(set(lines))
    if order == "sorted":
        lines = sorted(lines)
    elif order == "in stretches":
        lines = [*wanted[500:], *wanted[:500], *wanted[250:750]]
    found, other = spool.Spool(lines), spool.Spool()
    for begin in range(0, len(lines), 17):
        other.extend(lines[begin : begin + 17])
    for each in (found, other):
        assert [*each] == wanted
        assert [line for block in each.blocks() for line in block] == wanted
        assert len(each) == 1000
    offsets = [sum(len(line) + 1 for line in wanted[:count]) for count in (10, 20)]
    assert b"".join(found.texts(*offsets)) == b"".join(line + b"\n" for line in wanted[10:20])
    assert next(found.texts(offsets[0])).startswith(wanted[10] + b"\n")


def test_entries_are_lines_where_their_keys_can_stand_in_one():
    entries = [Entry("b/é", 0, None), Entry("b/x", 2**63 - 1, "v é"), Entry("b/", 0, "")]
    expected = ["é\0" + "0\0", f"x\0{2**63 - 1}\0v é", "\0" + "0\0"]
    assert entry_lines(entries, 2) == ([line.encode() for line in expected], 2**63 - 1)
    assert entry_lines([], 0) == ([], 0)
    for entry in (
        Entry("a", 2**63 - 1),
        Entry("a\n", 1),
        Entry("\\", 1),
        Entry("\r", 1),
        Entry("\udc80", 1),
        Entry("\0", 1),
        Entry("a", 1, "\n"),
        Entry("a", 1, "\0"),
        Entry("a", 1, "\udc80"),
        Entry("a", -1),
        Entry("a", 2**63),
    ):
        assert entry_lines([Entry("fine", 1), entry], 0) is None
    assert entry_lines([Entry("a", 1)], 2) is None
    with pytest.raises(ValueError, match="leave out -1"):
        entry_lines([Entry("a", 1)], -1)


def test_lines_of_two_spools_stand_side_by_side_by_their_names(monkeypatch):
    monkeypatch.setattr(spool, "BLOCK_SIZE", 40)
    chance = random.Random(3)
    for _ in range(30):
        pair = [{b"%d" % chance.randrange(60): b"%d" % chance.randrange(3) for _ in range(50)} for _ in "ab"]
        pair[0] = pair[0] if chance.random() < 0.9 else {}
        ours, theirs = (spool.Spool(b"\0".join(item) for item in each.items()).blocks() for each in pair)
        expected = [
            tuple(None if name not in each else name + b"\0" + each[name] for each in pair)
            for name in sorted({**pair[0], **pair[1]}, key=lambda name: name + b"\0")
        ]
        assert [*spool.match(ours, theirs)] == expected


def test_where_no_manifest_can_be_written_nothing_is_read(tmp_path, monkeypatch):
    class Unread(MemoryStore):
        def get_parts(self, requests):
            raise AssertionError

    store, usage = fill(Unread()), namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 100))
    size = len(VALUES) * 68
    with pytest.raises(StoreError, match=rf"no room for the manifest: {size} bytes at least, 100 are free"):
        zstore.manifest(store, file=tmp_path / "m")
    monkeypatch.undo()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file"):
        zstore.manifest(store, file=tmp_path / "file" / "m")
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]

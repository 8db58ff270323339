"""The same call with `resume`, night after night: what has changed is made again, and nothing else."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.engine.intents import find_unfinished
from zstore.errors import ChangedError, MetadataError, StoreError
from zstore.jobs.plan import name_job
from zstore.jobs.source import MADE, Made
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

CHUNK_SIZE = 8 * 8 * 8


class Counted(MemoryStore):
    """Counts the bytes of chunks that are read, and fails when so many more values were put.

    It deletes many keys by one request, and counts chunks that are deleted one by one.
    """

    def __init__(self) -> None:
        # A store with a name is told from others without a trial.
        super().__init__(uuid4().hex)
        self.read_size, self.left, self.alone = 0, 1 << 30, 0

    def delete(self, key: str) -> None:
        self.alone += "c" in key.split("/")
        super().delete(key)

    def delete_many(self, keys: Sequence[str]) -> bool:
        for key in keys:
            super().delete(key)
        return True

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        value = super().get(key, byte_range)
        self.read_size += len(value or b"") if "c" in key.split("/") else 0
        return value

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("the disk is on fire")
        super().put(key, value)


def make(store: Any) -> zstore.Array:
    zstore.create_group(store)
    zstore.create_array(store, "other", data=np.arange(12.0), chunks=4)
    data = np.arange(32.0 * 32).reshape(32, 32)
    return zstore.create_array(store, "a", data=data, chunks=(8, 8), compressors=None)


def check_same(source: Any, target: Any) -> None:
    one, other = (dict(zstore.open_group(store, mode="r").arrays()) for store in (source, target))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(other[name][...], array[...])


WAYS: dict[str, Callable[..., Any]] = {
    "copy": zstore.copy,
    "copied chunks": zstore.convert,
    "other codecs": lambda s, t, **how: zstore.convert(s, t, compressors="zstd", **how),
    "other chunks": lambda s, t, **how: zstore.convert(s, t, chunks=(4, 16), **how),
    "other format": lambda s, t, **how: zstore.convert(s, t, zarr_format=2, **how),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_night_what_changed_is_read_and_nothing_else(way):
    source, target, run = Counted(), Counted(), WAYS[way]
    array = make(source)
    run(source, target, resume=True)
    check_same(source, target)

    def night(most: int) -> None:
        source.read_size, puts = 0, target.left
        run(source, target, resume=True)
        # One chunk of each array is read beforehand, to see whether chunks keep their bytes.
        read, own = source.read_size, 0 if way == "copy" else CHUNK_SIZE + 32
        assert read <= most * CHUNK_SIZE + own, (read, most)
        assert (puts == target.left) == (most == 0)
        assert not target.alone
        check_same(source, target)
        assert not find_unfinished(target, "") and zstore.verify(target).is_sound

    night(0)
    array[9, 9] = -1
    night(1 if way != "other chunks" else 2)
    night(0)
    # New moments, a chunk that goes away, and one that comes back.
    array.append(np.ones((8, 32)))
    source.delete("a/c/0/0")
    night(5 if way != "other chunks" else 6)
    array[0, 0] = 5
    night(1 if way != "other chunks" else 2)
    array.resize((20, 32))
    array.attrs["title"] = "cut"
    night(4 if way != "other chunks" else 8)
    assert zstore.open_array(target, "a").attrs["title"] == "cut"
    zstore.create_array(source, "late", data=np.arange(3), chunks=2)
    night(1)


@pytest.mark.parametrize("way", WAYS)
def test_a_night_that_is_interrupted_is_made_up_for(way):
    """However far it came, and whatever is written before the next one."""
    for puts in range(12):
        source, target, run = Counted(), Counted(), WAYS[way]
        array = make(source)
        run(source, target, resume=True)
        array[0] = -1
        target.left = puts
        try:
            run(source, target, resume=True)
        except StoreError:
            target.left = 1 << 30
            assert puts < 2 or find_unfinished(target, "")
        else:
            assert puts > 4
        target.left = 1 << 30
        # Back to what it was: versions are new, or the same, where a store makes them of the content.
        array[0, :16] = np.arange(16)
        source.delete("a/c/0/3")
        run(source, target, resume=True)
        check_same(source, target)
        assert not find_unfinished(target, "")


def test_a_target_that_somebody_wrote_to_is_not_touched(tmp_path):
    for number, run in enumerate(WAYS.values()):
        source, target = tmp_path / f"s{number}", tmp_path / f"t{number}"
        array = make(source)
        run(source, target, resume=True)
        zstore.open_array(target, "a")[3, 3] = 77
        array[0, 0] = 5
        with pytest.raises(ChangedError, match=r"made was written to since.*overwrite=True"):
            run(source, target, resume=True)
        assert zstore.open_array(target, "a")[3, 3] == 77 and zstore.open_array(target, "a")[0, 0] == 0
        again = {"if_exists": "overwrite"} if run is zstore.copy else {"overwrite": True}
        run(source, target, **again)
        check_same(source, target)


def test_another_target_of_the_same_name_is_refused(tmp_path):
    make(tmp_path / "s")
    make(tmp_path / "mine")
    zstore.open_array(tmp_path / "mine", "a")[...] = 7
    for run in WAYS.values():
        with pytest.raises(StoreError, match="there already"):
            run(tmp_path / "s", tmp_path / "mine", resume=True)
    zstore.convert(tmp_path / "mine", tmp_path / "t", resume=True)
    with pytest.raises(StoreError, match="there already"):
        zstore.convert(tmp_path / "s", tmp_path / "t", resume=True)
    assert (zstore.open_array(tmp_path / "t", "a")[...] == 7).all()


def test_what_cannot_be_made_again_in_parts_is_refused(tmp_path):
    items = make(tmp_path / "s")[...]
    zstore.convert(tmp_path / "s", tmp_path / "t", resume=True)
    zstore.create_array(tmp_path / "s", "a", data=items, chunks=(16, 16), overwrite=True)
    with pytest.raises(ChangedError, match="source was written to since the target was made"):
        zstore.convert(tmp_path / "s", tmp_path / "t", resume=True)
    zstore.convert(tmp_path / "s", tmp_path / "u", resume=True)
    del zstore.open_group(tmp_path / "s")["other"]
    with pytest.raises(ChangedError, match="source was written to since the target was made"):
        zstore.convert(tmp_path / "s", tmp_path / "u", resume=True)
    assert "other" in zstore.open_group(tmp_path / "u")
    times = []
    for _ in range(2):
        made = zstore.reduce(tmp_path / "s/a", "sum", 0, out=tmp_path / "sum", resume=True)
        np.testing.assert_array_equal(made[...], items.sum(0))
        times.append(sorted(path.stat().st_mtime_ns for path in (tmp_path / "sum").rglob("*")))
    assert times[0] == times[1]
    dry = zstore.reduce(tmp_path / "s/a", "sum", 0, out=tmp_path / "sum", resume=True, dry_run=True)
    assert dry.unit_count == 0
    zstore.open_array(tmp_path / "s", "a")[0, 0] = 9
    with pytest.raises(ChangedError, match="source was written to since the target was made"):
        zstore.reduce(tmp_path / "s/a", "sum", 0, out=tmp_path / "sum", resume=True)


def test_a_fingerprint_is_of_its_own_target(tmp_path):
    """Copies, manifests and other jobs leave it alone, and a damaged one says nothing."""
    source, target = tmp_path / "s", tmp_path / "t"
    make(source)
    zstore.convert(source, target, resume=True)
    [key] = [key for key in LocalStore(target).list("") if MADE in key]
    zstore.copy(target, tmp_path / "u", manifest=tmp_path / "m")
    assert not [key for key in LocalStore(tmp_path / "u").list("") if MADE in key]
    assert zstore.verify(target, manifest=tmp_path / "m").is_sound
    assert not any(MADE in name for name in zstore.manifest(target))
    data = bytearray((target / key).read_bytes())
    data[len(data) // 2] ^= 1
    (target / key).write_bytes(data)
    with pytest.raises(StoreError, match="there already"):
        zstore.convert(source, target, resume=True)
    assert b"secret" not in data and Made.read(LocalStore(target), "", {}) is None
    with pytest.raises((StoreError, MetadataError)):
        zstore.create_group(target)


def test_fingerprints_are_expanded_no_further_than_they_say(tmp_path: Path) -> None:
    """Nothing that a store says is trusted as a size, with a right checksum either."""
    store, call = LocalStore(tmp_path), {"work": "convert"}
    for shape in ([2], [1 << 40], [-1], ["a"]):
        blob = zlib.compress(bytes(64 << 20))
        said = {"sources": {}, "target": {}, "frames": {}, "marks": [["", shape, len(blob)]]}
        data = json.dumps(said).encode() + b"\n" + blob
        store.put(f"{MADE}/{name_job(call)}", zlib.crc32(data).to_bytes(4, "little") + data)
        tracemalloc.start()
        made = Made.read(store, "", call)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        tracemalloc.stop()
        assert made is None if shape != [2] else made is not None and made.marks[""].tolist() == [0, 0]


def test_a_copy_that_goes_on_deletes_no_array_of_others_and_none_that_the_source_has_lost(tmp_path):
    source, target = tmp_path / "s", tmp_path / "t"
    group = zstore.create_group(source)
    for name in "ab":
        group.create_array(name, data=np.arange(8), chunks=2)
    zstore.create_array(target / "mine", data=np.arange(3))
    zstore.copy(source, target, resume=True)
    zstore.open_array(source, "a")[0] = 9
    assert zstore.copy(source, target, resume=True).deleted_count == 0
    assert [*zstore.open_array(target, "mine", "r")[...], zstore.open_array(target, "a", "r")[0]] == [
        0,
        1,
        2,
        9,
    ]
    shutil.rmtree(source / "b")
    with pytest.raises(ChangedError, match="lost the node 'b' since it was copied"):
        zstore.copy(source, target, resume=True)
    assert zstore.open_array(target, "b", "r")[...].tolist() == [*range(8)]
    zstore.copy(source, target, if_exists="changed", delete=True)
    assert "b" not in zstore.open_group(target, mode="r")

"""Arrays with other chunks: the same items whatever the grids, in a given memory, each chunk decoded once."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zstore
from zstore.engine.intents import JOB
from zstore.errors import MetadataError, StoreError
from zstore.jobs import chunks
from zstore.jobs.chunks import Location, StoredArray
from zstore.jobs.source import MADE, ChunkSet, StoredChunks, cells_of
from zstore.jobs.upkeep import convert as converting
from zstore.jobs.upkeep.convert import estimate_conversion
from zstore.jobs.upkeep.rechunk import Room, Side, Transfer, default_memory, plan_passes
from zstore.model.grid import RectilinearGrid, RegularGrid
from zstore.storage.base import Entry
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer

STRUCT = np.dtype([("r", ">u2"), ("g", "<f4"), ("b", "u1")])
DTYPES: tuple[Any, ...] = ("u1", "<i2", ">f4", "c16", "M8[s]", "?", "S3", "U2", STRUCT, str, bytes)
COMPRESSORS = (
    None,
    "zlib",
    "zstd",
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
)


def items_of(dtype: Any, shape: tuple[int, ...], seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 99, shape)
    if dtype is str:
        return values.astype(str).astype(np.dtypes.StringDType())
    if dtype is bytes:
        return values.astype("S2").astype(object)
    if dtype is STRUCT:
        return np.asarray(np.rec.fromarrays([values, values / 2, values], dtype=STRUCT))
    return values.astype(dtype)


@st.composite
def cuts(draw: st.DrawFn, shape: tuple[int, ...], zarr_format: int) -> dict[str, Any]:
    """Chunks and shards of an array; uneven ones, too."""
    kind = draw(st.sampled_from(["even", "even", "shards", "uneven"])) if zarr_format == 3 else "even"
    chunks = tuple(draw(st.integers(1, n + 2)) for n in shape)
    if kind == "shards":
        return {"chunks": chunks, "shards": tuple(n * draw(st.integers(1, 3)) for n in chunks)}
    if kind == "uneven":
        lines = []
        for n in shape:
            line = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
            lines.append([*line, max(1, n - sum(line))])
        return {"chunks": lines, "shards": None}
    return {"chunks": chunks, "shards": None}


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """An array, what it is to become, and how it was."""
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 13 if ndim < 4 else 6)) for _ in range(ndim))
    formats = [draw(st.sampled_from([2, 3, 3])) for _ in range(2)]
    dtype = draw(st.sampled_from(DTYPES))
    made = {
        "data": items_of(dtype, shape, draw(st.integers(0, 99))),
        "dtype": dtype,
        "zarr_format": formats[0] if dtype is not STRUCT else 2,
        "compressors": draw(st.sampled_from(COMPRESSORS)),
    }
    if made["zarr_format"] == 3 and made["compressors"] == "zlib":
        made["compressors"] = "gzip"
    if made["zarr_format"] == 3 and isinstance(made["compressors"], dict):
        made["compressors"] = "blosc"
    old = draw(cuts(shape, made["zarr_format"]))
    new = draw(cuts(shape, formats[1]))
    return {**made, **old}, {**new, "zarr_format": formats[1]}, {**old, "zarr_format": made["zarr_format"]}


class Afar(LocalStore):
    """A directory that is as far away as a bucket."""

    request_count = 8

    def local_path(self, prefix: str = "") -> None:  # type: ignore[override]
        return None


@pytest.fixture
def cheap_files(monkeypatch):
    """What lies in between pays for arrays that are small, too."""
    for name in ("FILE", "STRETCH", "UNIT", "REQUEST"):
        monkeypatch.setattr(f"zstore.jobs.upkeep.rechunk.{name}", 10.0)
    monkeypatch.setattr("zstore.jobs.upkeep.rechunk.WINDOWS_SIZE", 0)


@settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    case=cases(),
    budget=st.sampled_from(["least", "some", "much"]),
    hole=st.integers(0, 3),
    between=st.sampled_from([None, LocalStore, Afar]),
)
def test_there_and_back_is_the_same(case, budget, hole, between, tmp_path_factory, cheap_files):
    """Items, documents, stored chunks; in any memory, by way of scratch arrays here and afar, and without."""
    made, new, old = case
    place: Path = tmp_path_factory.mktemp("rechunk")
    new["scratch"] = old["scratch"] = None if between is None else between(place / "scratch")
    array = zstore.create_array(place / "a", **made)
    keys = sorted(
        key for key in LocalStore(place / "a").list("") if "zarr.json" not in key and ".z" not in key
    )
    for key in keys[:hole]:
        (place / "a" / key).unlink()
    whole = array[...]
    memory = {"least": 1, "some": 1 << 13, "much": None}[budget]
    if memory is not None:
        try:
            estimate_conversion(place / "a", place / "b", memory=memory, **new)
        except MetadataError as error:
            memory = int(error.message.split("at least ")[1].split(",")[0])
    there = zstore.convert(place / "a", place / "b", memory=memory, check=True, **new)
    np.testing.assert_array_equal(there[...], whole)
    back = zstore.convert(there, place / "c", check=True, **old)
    np.testing.assert_array_equal(back[...], whole)
    assert (back.chunks, back.shards) == (array.chunks, array.shards)
    assert not list(place.rglob(JOB)) and not list(place.glob("scratch/**/c/*"))
    if made["dtype"] is STRUCT:
        return
    assert back.model.dtype == array.model.dtype
    kept = {key for key in LocalStore(place / "c").list("") if "zarr.json" not in key and ".z" not in key}
    assert kept >= set(keys[hole:])


class Reads(LocalStore):
    """A directory that is no directory for the kernels, and notes what is read of it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.read = Counter[str]()

    def local_path(self, prefix: str = "") -> None:  # type: ignore[override]
        return None

    def get(self, key: str, byte_range: Any = None) -> Any:
        self.read[key] += key.rpartition("/")[2].isdecimal()
        return super().get(key, byte_range)

    def get_many(self, requests: Any) -> Any:
        return [self.get(key, part) for key, part in requests]

    def as_read_only(self) -> Any:
        return self


MAPS = {"shape": (40, 32, 48), "chunks": (1, 32, 48), "dtype": "u2", "compressors": "gzip"}
SERIES = {"chunks": (40, 4, 6)}


def maps(place: Any, **options: Any) -> zstore.Array:
    array = zstore.create_array(place, **{**MAPS, **options})
    array[...] = np.random.default_rng(5).integers(0, 999, array.shape)
    return array


@pytest.mark.parametrize("memory", [1 << 20, 100_000, 40_000], ids=["whole", "part", "little"])
def test_each_chunk_of_the_source_is_decoded_once(memory, tmp_path, cheap_files):
    """In one pass, or, where memory is short, by way of an array in between, which is gone afterwards."""
    array = maps(tmp_path / "a")
    store = Reads(tmp_path / "a")
    found = estimate_conversion(store, tmp_path / "b", memory=memory, **SERIES)[""]
    assert found.memory_size is not None and found.memory_size <= memory
    assert (found.scratch_size == array.nbytes) == (memory < array.nbytes)
    seen: list[tuple[int, int]] = []
    store.read.clear()
    made = zstore.convert(
        store, tmp_path / "b", memory=memory, progress=lambda *args: seen.append(args), **SERIES
    )
    # One is read beforehand, to see whether chunks keep their bytes.
    assert Counter(store.read.values()) == {1: 40}
    np.testing.assert_array_equal(made[...], array[...])
    assert seen == sorted(seen) and seen[-1][0] == seen[-1][1]
    assert not (tmp_path / "b" / JOB).exists()


@pytest.mark.parametrize("scratch", [True, False])
def test_what_was_interrupted_makes_only_what_is_left(scratch, tmp_path, cheap_files, monkeypatch):
    if not scratch:
        monkeypatch.setattr(converting, "_list_rooms", lambda *given: [])
    array, store = maps(tmp_path / "a"), Reads(tmp_path / "a")
    whole = zstore.convert(store, tmp_path / "whole", memory=40_000, **SERIES)
    every, store.read = sum(store.read.values()), Counter()

    def stop(done: int, total: int) -> None:
        # The last third of what is written is of the target.
        if done > total * 5 / 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zstore.convert(store, tmp_path / "b", memory=40_000, progress=stop, **SERIES)
    assert bool(list(tmp_path.glob(f"b/{JOB}/*/scratch"))) == scratch
    store.read.clear()
    made = zstore.convert(store, tmp_path / "b", memory=40_000, resume=True, **SERIES)
    assert sum(store.read.values()) <= (0 if scratch else every / 4)
    np.testing.assert_array_equal(made[...], array[...])
    for path in (tmp_path / "whole").rglob("c/*"):
        other = tmp_path / "b" / path.relative_to(tmp_path / "whole")
        assert path.is_dir() or path.read_bytes() == other.read_bytes()
    assert whole.nbytes == made.nbytes and not (tmp_path / "b" / JOB).exists()


def test_without_room_between_chunks_are_decoded_again(tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "_list_rooms", lambda *given: [])
    array = maps(tmp_path / "a")
    found = estimate_conversion(tmp_path / "a", tmp_path / "b", memory=40_000, **SERIES)[""]
    assert found.scratch_size == 0 and (found.read_size or 0) > 2 * array.nbytes
    made = zstore.convert(tmp_path / "a", tmp_path / "b", memory=40_000, **SERIES)
    np.testing.assert_array_equal(made[...], array[...])


def test_scratch_lies_where_it_is_asked_for_and_goes(tmp_path, cheap_files):
    array = maps(tmp_path / "a")
    seen = list[bool]()

    def progress(done: int, total: int) -> None:
        seen.append(any((tmp_path / "s").rglob("c/*")))

    made = zstore.convert(
        tmp_path / "a",
        MemoryStore(),
        memory=40_000,
        scratch=tmp_path / "s",
        progress=progress,
        **SERIES,
    )
    np.testing.assert_array_equal(made[...], array[...])
    assert any(seen) and not [path for path in (tmp_path / "s").rglob("*") if path.is_file()]


def test_what_lies_afar_is_compressed_where_that_saves_the_way(tmp_path, cheap_files, monkeypatch):
    """As far as the source tells how much is left; and on a disk that holds it in no other way."""
    array, noise = maps(tmp_path / "a"), np.random.default_rng(1).integers(0, 1 << 16, MAPS["shape"])
    maps(tmp_path / "few")[...] = noise % 16
    maps(tmp_path / "flat")[...] = 7
    maps(tmp_path / "noise")[...] = noise
    call = partial(estimate_conversion, memory=80_000, **SERIES)
    sizes = {
        name: call(tmp_path / name, Afar(tmp_path / "b"), scratch=Afar(tmp_path / "s"))[""].scratch_size
        for name in ("few", "flat", "noise")
    }
    assert sizes["noise"] == array.nbytes > sizes["few"] > sizes["flat"] > 0
    assert call(tmp_path / "flat", Afar(tmp_path / "b"))[""].scratch_size == array.nbytes, "on the disk here"
    monkeypatch.setattr(converting, "free_size", lambda directory: 10_000 if directory else 1 << 40)
    assert call(tmp_path / "flat", MemoryStore())[""].scratch_size < 10_000
    assert call(tmp_path / "noise", MemoryStore())[""].scratch_size == 0, "there is no room"
    # Of a bucket, what the disk has no room for lies beside the target.
    store, seen = Afar(tmp_path / "b"), set[str]()

    def progress(done: int, total: int) -> None:
        seen.update(key.split("/")[2] for key in store.list(JOB) if "/c/" in key)

    made = zstore.convert(tmp_path / "noise", store, memory=80_000, check=True, progress=progress, **SERIES)
    np.testing.assert_array_equal(made[...], noise)
    assert seen == {"scratch"} and not list(store.list(JOB))
    with ThreadPoolExecutor(2) as pool:
        again = partial(zstore.convert, memory=80_000, executor=pool, overwrite=True, **SERIES)
        np.testing.assert_array_equal(again(tmp_path / "a", store)[...], array[...])


def test_what_lies_between_and_is_lost_is_no_data(tmp_path, cheap_files):
    """Others that tidy up remove it, or a conversion to the same place that ended first."""
    array = maps(tmp_path / "a")

    def lose(done: int, total: int) -> None:
        if done > total / 2:
            for path in tmp_path.glob(f"b/{JOB}/*/scratch/**/c/**/*"):
                if path.is_file():
                    path.unlink()

    call = partial(zstore.convert, tmp_path / "a", tmp_path / "b", memory=40_000, **SERIES)
    with pytest.raises(StoreError, match="was removed meanwhile"):
        call(progress=lose)
    np.testing.assert_array_equal(call(resume=True)[...], array[...])


def test_each_target_has_a_place_of_its_own_for_what_lies_between(tmp_path, cheap_files):
    array, first, second = maps(tmp_path / "a"), MemoryStore(), MemoryStore()
    call = partial(zstore.convert, tmp_path / "a", memory=40_000, scratch=tmp_path / "s", **SERIES)
    seen = list[int]()

    def progress(done: int, total: int) -> None:
        if done > total / 2 and not seen:
            seen.append(done)
            call(second)

    np.testing.assert_array_equal(call(first, progress=progress)[...], array[...])
    np.testing.assert_array_equal(zstore.open_array(second)[...], array[...])
    assert seen


def test_what_is_stored_already_needs_no_room(tmp_path, monkeypatch):
    array, options = maps(tmp_path / "a"), {"compressors": None, **SERIES}

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zstore.convert(tmp_path / "a", tmp_path / "b", progress=stop, **options)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=1, free=100_000))
    made = zstore.convert(tmp_path / "a", tmp_path / "b", resume=True, **options)
    np.testing.assert_array_equal(made[...], array[...])


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    maps(tmp_path / "a")
    for memory in (1000, 0, True, "1G"):
        with pytest.raises(MetadataError, match=r"memory is .*; expected"):
            zstore.convert(tmp_path / "a", tmp_path / "b", memory=memory, **SERIES)
    # A store with latency has two units at a time, which divide the memory; told is what both take.
    for source, memory in ((tmp_path / "a", 1000), (Afar(tmp_path / "a"), 100_001)):
        with pytest.raises(MetadataError, match=rf"memory is {memory} bytes; expected at least \d+") as told:
            zstore.convert(source, tmp_path / "b", memory=memory, **SERIES)
        least = int(str(told.value).partition("at least ")[2].partition(",")[0])
        estimate = zstore.convert(source, tmp_path / "c", memory=least, dry_run=True, **SERIES)
        assert estimate.memory_size <= least
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=1, free=100_000))
    with pytest.raises(StoreError, match=r"disk of '.*/b' has 97.7 KiB free; expected 120.0 KiB at least"):
        zstore.convert(tmp_path / "a", tmp_path / "b", compressors=None, **SERIES)
    assert not (tmp_path / "b").exists()
    zstore.convert(tmp_path / "a", tmp_path / "b", **SERIES)


def test_units_run_anywhere_in_any_order_and_twice(tmp_path, cheap_files):
    array = maps(tmp_path / "a")
    ways = list[dict[str, bytes]]()
    for number in range(2):
        target = zstore.create_array(tmp_path / str(number), shape=array.shape, dtype="u2", **SERIES)
        job = Transfer.recoding(
            StoredArray(LocalStore(tmp_path / "a"), "", array.model),
            StoredArray(LocalStore(tmp_path / str(number)), "", target.model),
            40_000,
            is_firm=True,
            rooms=[Room(1 << 30)],
        )
        passes = list(
            job.plans(Location(LocalStore(tmp_path / f"s{number}"), ""), lambda count: None, keeps=False)
        )
        assert len(passes) == 2
        for plan in passes:
            units = list(plan.units())
            assert len(units) > 1
            if number:
                units = random.Random(3).sample(units * 2, 2 * len(units))
            for unit in units:
                pickle.loads(pickle.dumps(plan)).make(unit)
            assert all(plan.holds(unit, len(plan.cells_of(unit))) for unit in units)
        np.testing.assert_array_equal(zstore.open_array(tmp_path / str(number))[...], array[...])
        files = (path for path in (tmp_path / str(number)).rglob("*") if path.is_file())
        ways.append({str(path.relative_to(tmp_path / str(number))): path.read_bytes() for path in files})
    assert ways[0] == ways[1]


class Killing(BucketServer):
    """A bucket that kills who asks it, at some request of a chunk, and notes how much of it it has sent."""

    def __init__(self) -> None:
        super().__init__()
        self.has_child, self.left, self.sent = threading.Event(), 0, Counter[str]()

    def kill(self, words: list[Any], left: int) -> None:
        self.has_child.clear()
        self.left = left
        self.child = subprocess.Popen(words)
        self.has_child.set()
        assert self.child.wait() in (0, -signal.SIGKILL)
        self.left = 0

    def answer(self, request: Any, path: str, *given: Any) -> Any:
        self.left -= "/c/" in path
        if self.left == 0 and "/c/" in path:
            self.has_child.wait()
            self.child.kill()
        status, headers, data = super().answer(request, path, *given)
        if request.command == "GET" and "/c/" in path:
            self.sent[path] += len(data)
        return status, headers, data


CHILD = """
import json, sys, zstore
from zstore.jobs.upkeep import rechunk
rechunk.WINDOWS_SIZE, rechunk.COPY_COUNT = 0, 5
zstore.convert(*json.loads(sys.argv[1]), **json.loads(sys.argv[2]))
"""


def drill_bucket(kills: int, is_target: bool, options: dict[str, Any], place: Path, seed: int = 0) -> None:
    """Kill a conversion into a bucket, or out of one, so often; what is left is made, and no more is read."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    rng, shape = random.Random(f"{seed} {is_target} {options}"), (64, 32, 48)
    with Killing() as server:
        known = server.options()
        source, target = (place / "s", "s3://b/t") if is_target else ("s3://b/s", place / "t")
        reach = {"target_options": known} if is_target else {"storage_options": known}
        made = {"shape": shape, "chunks": (1, 32, 48), "dtype": "u2", "compressors": None}
        array = zstore.create_array(source, **made, storage_options=None if is_target else known)
        array[...] = np.random.default_rng(0).integers(0, 999, shape)
        given = {**options, **reach, "resume": True}
        words = [json.dumps([str(source), str(target)]), json.dumps(given)]
        of_each = options.get("chunks", [1])[0]
        total = 64 // of_each if is_target else 64
        for _ in range(kills):
            server.kill([sys.executable, "-c", CHILD, *words], rng.randrange(total // 2, total) // kills)
        store = open_store(target, storage_options=known if is_target else None)
        there = len([entry for entry in store.entries("") if entry.key.startswith("c/") and entry.size])
        left = (64 // of_each - there) * of_each
        reads = Reads(source) if is_target else None
        server.sent.clear()
        done = zstore.convert(reads or source, target, **given)
        read = sum(server.sent.values()) / 3072 if reads is None else sum(reads.read.values())
        # One is read beforehand, to see whether chunks keep their bytes.
        assert read <= 1.1 * left + 1, (read, left)
        np.testing.assert_array_equal(done[...], array[...])
        whole = zstore.convert(array, MemoryStore(), **options)
        kept = {key: bytes(whole.store.get(key)) for key in whole.store.list("")}
        assert {key: bytes(store.get(key) or b"") for key in store.list("") if MADE not in key} == kept


DIRECTIONS = pytest.mark.parametrize("is_target", [True, False], ids=["to S3", "from S3"])
WAYS = pytest.mark.parametrize(
    "options", [{}, {"chunks": [4, 32, 48], "memory": 160_000}], ids=["copied", "recoded"]
)


@DIRECTIONS
@WAYS
def test_killed_on_the_way_to_a_bucket_or_from_one(is_target, options, tmp_path, cheap_files):
    drill_bucket(1, is_target, options, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
@DIRECTIONS
@WAYS
def test_killed_often_on_the_way_to_a_bucket_or_from_one(number, is_target, options, tmp_path, cheap_files):
    drill_bucket(1 + number % 4, is_target, options, tmp_path, seed=1 + number)


@pytest.mark.parametrize("is_sparse", [False, True], ids=["a byte for each", "coordinates"])
@settings(max_examples=100)
@given(data=st.data())
def test_chunks_that_touch(is_sparse, data):
    """Against going through all chunks one by one."""
    with pytest.MonkeyPatch.context() as patch:
        if is_sparse:
            patch.setattr("zstore.jobs.source.MASK_SIZE", 0)
        check_touching(data)


def check_touching(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    grids = []
    for _ in range(2):
        lines = [data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)) for _ in shape]
        lines = [[*line, max(1, n - sum(line))] for line, n in zip(lines, shape, strict=True)]
        even = RegularGrid(tuple(line[0] for line in lines))
        grids.append(data.draw(st.sampled_from([even, RectilinearGrid.parse(lines, shape)])))
    arrays = []
    for grid in grids:
        chunks = grid.chunk_shape if isinstance(grid, RegularGrid) else grid.render()
        made = zstore.create_array(MemoryStore(), shape=shape, dtype="u1", chunks=chunks)
        arrays.append(StoredArray(made.store, "", made.model))
    every = list(itertools.product(*map(range, arrays[0].counts)))
    chosen = data.draw(st.lists(st.sampled_from(every), unique=True))
    mask = np.zeros(shape, bool)
    for cell in chosen:
        mask[arrays[0].box(cell)] = True
    spread = ChunkSet(arrays[0].counts, [chosen]).spread(*arrays)
    touched = [c for c in itertools.product(*map(range, arrays[1].counts)) if mask[arrays[1].box(c)].any()]
    assert list(spread) == touched and len(spread) == len(touched)
    counts = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    found = [
        cell for unit in spread.units(counts, spread) for cell in cells_of(unit, counts, arrays[1].counts)
    ]
    assert sorted(found) == touched
    others = data.draw(st.lists(st.sampled_from(touched), unique=True)) if touched else []
    assert list(spread - ChunkSet(spread.counts, [others])) == [
        cell for cell in touched if cell not in others
    ]


def test_a_large_job_is_planned_at_once():
    """10^7 chunks: what is kept of them is small, and ways are weighed without going through them."""
    grids = RegularGrid((1, 1000, 1000)), RegularGrid((10_000, 10, 10))
    shape = (100_000, 10_000, 10_000)
    sides = [Side(shape, grid, grid, 2, "zstd") for grid in grids]
    tracemalloc.start()
    plan = plan_passes(*sides, 8 << 30, is_firm=True, threads=2, rooms=[Room(1 << 50)])
    counts = grids[0].count(shape)
    assert prod(counts) == 10**7
    some = np.stack(np.indices((1000, 10, 10)), 3).reshape(-1, 3)
    cells = ChunkSet(counts, (np.add(some, (t, 0, 0)) for t in range(0, 100_000, 1000)))
    assert len(cells) == 10**7
    units = sum(1 for _ in cells.units(plan.steps[0].counts, cells))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 << 20 and units <= 10**7
    assert plan.decoded_size <= 2.5 * prod(shape) * 2 and plan.memory <= 8 << 30


def test_what_is_stored_is_told_from_what_was(monkeypatch):
    """Whatever the order of a list, and however much of it is dealt with at a time."""
    entries = {f"a/c/{y}/{x}": (y * x, f"v{y}{'x' * x}") for y in range(5) for x in range(4)}
    # What is no chunk of the array, or none that lies in it.
    others = {"a/zarr.json": (9, "v"), "a/c/5/0": (9, "v"), "a/c/01/0": (9, "v"), "a/c/0": (9, "v")}

    class Lists(MemoryStore):
        def entries(self, prefix=""):
            found = [Entry(key, *said) for key, said in {**entries, **others}.items()]
            chance.shuffle(found)
            return iter(found)

    store, chance, said = Lists(), random.Random(1), set[str]()
    model = zstore.create_array(store, "a", shape=(10, 8), chunks=(2, 2), dtype="u1").model

    def find() -> StoredChunks:
        found = StoredArray(store, "a", model).listing(least=1)
        assert list(found.cells) == [(y, x) for y in range(1, 5) for x in range(1, 4)]
        assert found.size == 60
        return found

    for count in (1, 3, 4096):
        monkeypatch.setattr(chunks, "PAGE_COUNT", count)
        said.add(find().version)
    assert len(said) == 1
    # Versions that change places, or one that is another, or none.
    one, two = "a/c/2/2", "a/c/4/1"
    assert entries[one][0] == entries[two][0] == 4
    entries[one], entries[two] = entries[two], entries[one]
    said.add(find().version)
    for version in ("", None, "v4x\u00e9", "v4xx"):
        entries[one] = (4, version)
        said.add(find().version)
    assert len(said) == 5


def test_the_default_memory_is_a_part_of_the_machines():
    assert 1 << 20 < default_memory() < 1 << 50


MEASURED = """
import re, sys, zstore
before = zstore.open_array(sys.argv[1], mode="r")
zstore.convert(before, sys.argv[2], memory=int(sys.argv[3]), **eval(sys.argv[4]))
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["blosc", "zstd"])
@pytest.mark.parametrize("cut", ["series", "maps", "shards", "of shards"])
@pytest.mark.parametrize("part", [1, 4, 16])
def test_memory_is_kept_to(codec, cut, part, tmp_path):
    """No more than what was given, and 64 MiB for all else that a process holds."""
    shape = (128, 512, 512)
    data = np.random.default_rng(1).integers(0, 999, shape).astype("u2")
    into = {"chunks": (128, 16, 16)}
    made: dict[str, Any] = {"chunks": (1, 512, 512)}
    if cut == "maps":
        into, made = made, into
    elif cut == "shards":
        into = {"chunks": (32, 16, 16), "shards": (128, 32, 32)}
    elif cut == "of shards":
        made = {"chunks": (1, 64, 64), "shards": (2, 512, 512)}
        into["shards"] = None
    zstore.create_array(tmp_path / "a", data=data, compressors=codec, **made)
    memory = data.nbytes // part + (2 << 20)
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "a"), str(tmp_path / "b"), str(memory)]
    done = subprocess.run([*command, repr(into)], capture_output=True, text=True, check=True)
    peak = int(done.stdout) << 10
    print(f"{codec}, {cut}, 1/{part}: {peak >> 20} MiB, given {memory >> 20}")
    assert peak <= memory + (64 << 20)
    target = zstore.open_array(tmp_path / "b", mode="r")
    assert all(np.array_equal(target[k : k + 32], data[k : k + 32]) for k in range(0, 128, 32))

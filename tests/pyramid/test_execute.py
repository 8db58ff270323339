"""How pyramids are made: in one pass, in parts, on any executor, on from where a build was interrupted."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.geo.pyramid.dataset import Mask
from zstore.geo.pyramid.passes import Budget, Recipe, Step, plan_passes, run_step
from zstore.geo.resampling.methods import downsample
from zstore.jobs.chunks import StoredArray
from zstore.jobs.runner import Runner
from zstore.jobs.source import MADE
from zstore.model.grid import RegularGrid
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

from ..jobs.test_source import Indices

ALIGNED = ("average", "sum", "rms", "mode", "med", "q1", "q3", "nearest", "max", "min")
FILTERS = ("bilinear", "cubic", "cubic_spline", "lanczos", "gauss")


def cells(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 200, shape).astype(dtype)


def make_array(path: object, data: np.ndarray, **options: object) -> zstore.Array:
    options = {"dimension_names": ("y", "x"), "chunks": 32, **options}
    if isinstance(path, MemoryStore):
        return zstore.create_group(path).create_array("data", data=data, **options)
    return zstore.create_array(path, data=data, **options)


def files_of(path: Path) -> dict[str, bytes]:
    files = (f for f in sorted(path.rglob("*")) if f.is_file() and MADE not in f.parts)
    return {str(f.relative_to(path)): f.read_bytes() for f in files}


class CountingStore(MemoryStore):
    """Remembers how often each chunk was read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()

    def get(self, key, byte_range=None):
        if "/c/" in key:
            self.reads[key] += 1
        return super().get(key, byte_range)

    def put(self, key, value):
        if "/c/" in key:
            self.writes[key] += 1
        super().put(key, value)


# One pass, whatever is made


@pytest.mark.parametrize("derive", ["base", "cascade"])
@pytest.mark.parametrize("method", ["average", "mode", "med"])
@pytest.mark.parametrize("shards", [None, (128, 64)])
def test_every_chunk_is_read_once_and_written_once(method: str, derive: str, shards: Any) -> None:
    store, target = CountingStore(), CountingStore()
    source = make_array(store, cells((500, 700)), shards=shards)
    store.reads.clear()
    options = {"levels": 4, "chunks": 32, "shards": shards, "copy_base": True, "memory": 700_000}
    zstore.build_pyramid(source, target, method=method, derive=derive, **options)
    y, x = shards or (32, 32)
    assert len(store.reads) == -(-500 // y) * -(-700 // x)
    if shards is None:
        assert set(store.reads.values()) == {1}
    written = target.writes
    sizes = [(math.ceil(500 / f), math.ceil(700 / f)) for f in (1, 2, 4, 8, 16)]
    expected = sum(math.ceil(rows / y) * math.ceil(columns / x) for rows, columns in sizes)
    assert len(written) == expected and set(written.values()) == {1}


@pytest.mark.parametrize("factors", [2, 3, 5, (1, 4)])
@pytest.mark.parametrize("method", [*ALIGNED, *FILTERS])
def test_units_of_any_size_make_the_same(method: str, factors: Any) -> None:
    data = cells((331, 270), "i2")
    data[40:90, 60:130] = 7
    steps = (factors, factors) if isinstance(factors, int) else factors
    source = make_array(MemoryStore(), data)
    options = {"levels": 3, "method": method, "factors": factors, "nodata": 7, "chunks": 32}
    small = zstore.build_pyramid(
        source, MemoryStore(), memory=None if method in FILTERS else 900_000, **options
    )
    expected = data
    for level in range(1, 4):
        if method in FILTERS:
            expected = downsample(expected, steps, method, nodata=7)
        else:
            expected = downsample(data, [step**level for step in steps], method, nodata=7)
        np.testing.assert_array_equal(small[f"{level}/data"][...], expected)


@pytest.mark.parametrize("size", [1, 16 << 10, 1 << 30])
@pytest.mark.parametrize(("method", "derive"), [("average", "base"), ("max", "cascade"), ("mode", "base")])
@pytest.mark.parametrize("with_copy", [False, True])
def test_units_are_made_of_tiles_of_any_size(
    monkeypatch: pytest.MonkeyPatch, size: int, method: str, derive: str, with_copy: bool
) -> None:
    monkeypatch.setattr("zstore.geo.pyramid.passes.TILE_SIZE", size)
    data = cells((2, 700, 500), "i2")
    data[:, 200:300, 100:180] = 7
    cut = {"dimension_names": ("t", "y", "x"), "chunks": (1, 64, 64), "shards": (1, 256, 256)}
    source = make_array(MemoryStore(), data, **cut)
    options = {"levels": 3, "method": method, "derive": derive, "nodata": 7, "copy_base": with_copy}
    made = zstore.build_pyramid(source, MemoryStore(), **options)
    for level in range(1, 4):
        expected = downsample(data, (1, 2**level, 2**level), method, nodata=7)
        np.testing.assert_array_equal(made[f"{level}/data"][...], expected)


@pytest.mark.parametrize("method", ALIGNED)
@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [("u1", 0), ("u1", 255), ("i2", -32768), ("i2", 32767), ("u4", 2**32 - 1), ("i8", -(2**63)), ("u2", 9)],
)
def test_tiles_without_nodata_are_made_as_if_there_were_some(
    monkeypatch: pytest.MonkeyPatch, method: str, dtype: str, nodata: int
) -> None:
    monkeypatch.setattr("zstore.geo.pyramid.passes.TILE_SIZE", 1)
    limits, rng = np.iinfo(dtype), np.random.default_rng(4)
    # As near to the type's ends, and so to nodata, as cells can be; holes in one tile of four.
    data = rng.integers(0, 3, (128, 128)).astype(dtype)
    data = (
        data + np.array(7, dtype) if nodata == 9 else limits.max - data if nodata > 0 else limits.min + data
    )
    data[data == nodata] = data.max() if nodata in (0, limits.min) else data.min()
    data[:64, 64:][rng.random((64, 64)) < 0.4] = nodata
    data = data.astype(dtype)
    made = zstore.build_pyramid(
        make_array(MemoryStore(), data), MemoryStore(), levels=3, method=method, nodata=nodata, chunks=32
    )
    for level in range(1, 4):
        expected = downsample(data, (2**level,) * 2, method, nodata=nodata)
        np.testing.assert_array_equal(made[f"{level}/data"][...], expected)


def test_means_are_rounded_once_unless_gdaladdos_numbers_are_asked_for() -> None:
    data = cells((256, 256))
    source = make_array(MemoryStore(), data)
    exact = zstore.build_pyramid(source, MemoryStore(), levels=3)["3/data"][...]
    means = data.reshape(32, 8, 32, 8).sum((1, 3)) / 64
    np.testing.assert_array_equal(exact, np.floor(means + 0.5))
    cascade = zstore.build_pyramid(source, MemoryStore(), levels=3, derive="cascade")["3/data"][...]
    assert (cascade != exact).any()


def test_windows_that_outgrow_memory_go_on_from_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zstore.geo.pyramid.passes.WINDOW_SIZE", 2 * 8 * 8)
    data = cells((256, 256))
    source = make_array(MemoryStore(), data)
    made = zstore.build_pyramid(source, MemoryStore(), levels=5, method="med")
    third = downsample(data, (8, 8), "med")
    np.testing.assert_array_equal(made["3/data"][...], third)
    np.testing.assert_array_equal(made["5/data"][...], downsample(third, (4, 4), "med"))
    base = zstore.build_pyramid(source, MemoryStore(), levels=5, method="med", derive="base")
    np.testing.assert_array_equal(base["5/data"][...], downsample(data, (32, 32), "med"))


def test_memory_that_holds_no_unit_is_refused() -> None:
    source = make_array(MemoryStore(), cells((512, 512)))
    target = MemoryStore()
    with pytest.raises(MetadataError, match=r"memory is 5000 bytes; expected at least \d+"):
        zstore.build_pyramid(source, target, levels=3, memory=5000)
    for memory in (0, "1GB", True):
        with pytest.raises(MetadataError, match="expected a number of bytes"):
            zstore.build_pyramid(source, target, levels=3, memory=memory)
    assert not list(target.list(""))


# Executors


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
        yield pool


@pytest.mark.parametrize("method", ["average", "mode", "cubic"])
def test_processes_make_the_same_files(tmp_path: Path, processes: ProcessPoolExecutor, method: str) -> None:
    source = make_array(tmp_path / "s" / "a", cells((700, 500)), shards=(64, 128))
    options = {"levels": 4, "method": method, "copy_base": True, "chunks": 32, "shards": (64, 128)}
    zstore.build_pyramid(source, tmp_path / "here", **options)
    zstore.build_pyramid(source, tmp_path / "there", executor=processes, memory=900_000, **options)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "there")
    region = (slice(100, 164), slice(300, 420))
    for name, executor in (("here", None), ("there", processes)):
        pyramid = zstore.open_group(tmp_path / name)
        pyramid["0/a"][region] = 3
        zstore.update_pyramid(pyramid, region, executor=executor)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "there")


def test_a_cluster_makes_the_same_files(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    source = make_array(tmp_path / "s" / "a", cells((700, 500)), shards=(64, 128))
    zstore.build_pyramid(source, tmp_path / "here", levels=4, chunks=32)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        zstore.build_pyramid(source, tmp_path / "there", levels=4, chunks=32, executor=client, memory=900_000)
        assert files_of(tmp_path / "here") == files_of(tmp_path / "there")
        chunk = next((tmp_path / "s" / "a" / "c").rglob("*/3"))
        chunk.write_bytes(b"damaged")
        with pytest.raises(zstore.errors.CodecError):
            zstore.build_pyramid(
                source, tmp_path / "bad", levels=4, chunks=32, executor=client, memory=900_000
            )


def test_stores_that_no_other_process_sees_are_refused(processes: ProcessPoolExecutor) -> None:
    source = make_array(MemoryStore(), cells((200, 200)))
    with pytest.raises(StoreError, match="memory store cannot be pickled"):
        zstore.build_pyramid(source, MemoryStore(), levels=2, executor=processes)


# Interrupted builds


SCRIPT = """
    import os, signal, sys
    import zstore
    calls = 0
    def stop(done, total):
        global calls
        calls += 1
        if calls == {calls}:
            os.kill(os.getpid(), signal.SIGKILL)
    zstore.build_pyramid("{path}/s", "{path}/killed", levels=4, chunks=32, memory=900_000, progress=stop)
"""


@pytest.mark.parametrize("calls", [1, 7])
def test_killed_and_resumed_is_as_if_never_killed(tmp_path: Path, calls: int) -> None:
    group = zstore.create_group(tmp_path / "s")
    group.create_array("a", data=cells((700, 500)), chunks=32, dimension_names=("y", "x"))
    group.create_array("b", data=cells((700, 500), seed=1), chunks=32, dimension_names=("y", "x"))
    script = textwrap.dedent(SCRIPT.format(calls=calls, path=tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not [*(tmp_path / "killed").rglob("zarr.json")]
    [unfinished] = find_unfinished(LocalStore(tmp_path / "killed"), "")
    assert unfinished.again.startswith("zstore.build_pyramid(") and "resume=True" in unfinished.again
    with pytest.raises(
        StoreError, match=r"the building of a pyramid is unfinished; go on with: zstore\.build"
    ):
        zstore.build_pyramid(tmp_path / "s", tmp_path / "killed", levels=4, chunks=32)
    with pytest.raises(
        MetadataError, match=r"other arguments was interrupted here: resampling 'average', now 'mode'"
    ):
        zstore.build_pyramid(
            tmp_path / "s", tmp_path / "killed", levels=4, chunks=32, method="mode", resume=True
        )
    options = {"levels": 4, "chunks": 32, "memory": 900_000, "resume": True}
    zstore.build_pyramid(tmp_path / "s", tmp_path / "killed", **options)
    zstore.build_pyramid(tmp_path / "s", tmp_path / "whole", **options)
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")
    made = (tmp_path / "killed" / "zarr.json").stat().st_mtime_ns
    zstore.build_pyramid(tmp_path / "s", tmp_path / "killed", **options)
    assert (tmp_path / "killed" / "zarr.json").stat().st_mtime_ns == made


class JournalStore(MemoryStore):
    """Remembers what was kept of units that are done."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def put(self, key, value):
        if "zstore-job" in key and not key.endswith("record"):
            self.kept.append(key)
        super().put(key, value)


@pytest.mark.parametrize(("setting", "value"), [("WAITING_SECONDS", -1), ("WAITING_SIZE", -1), (None, None)])
def test_units_are_kept_where_it_takes_long_to_make_them_again(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, value: int | None
) -> None:
    expected = 0
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", 3600)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)
    if setting is not None:
        expected = 4
        monkeypatch.setattr(f"zstore.jobs.journal.{setting}", value)
    source, store = make_array(MemoryStore(), cells((128, 128))), JournalStore()
    zstore.build_pyramid(source, store, levels=2, chunks=32)
    kept = [key for key in store.kept if not key.endswith("/source")]
    assert len(kept) == len(set(kept)) == expected
    assert not [key for key in store.list("") if "zstore-job" in key]


class FullStore(CountingStore):
    """Takes so many chunks, and no more until told."""

    room = 10**9

    def put(self, key, value):
        if "/c/" in key:
            self.room -= 1
            if self.room < 0:
                raise StoreError("no space left on device", key=key)
        super().put(key, value)


@pytest.mark.parametrize("room", [0, 1, 5, 30, 50])
def test_a_full_disk_leaves_the_finest_level_and_a_build_to_resume(room: int) -> None:
    store = FullStore()
    data = cells((500, 300))
    root = zstore.create_group(store)
    root.create_group("0").create_array("a", data=data, chunks=32, dimension_names=("y", "x"))
    before = {key: bytes(store.get(key) or b"") for key in store.list("0/a/c")}
    store.room = room
    options = {"levels": 4, "chunks": 32, "memory": 400_000}
    with pytest.raises(StoreError, match="no space left"):
        zstore.build_pyramid(root["0"], root, **options)
    assert before == {key: bytes(store.get(key) or b"") for key in store.list("0/a/c")}
    store.room = 10**9
    store.reads.clear()
    made = zstore.build_pyramid(root["0"], root, resume=True, **options)
    for level in range(1, 5):
        np.testing.assert_array_equal(made[f"{level}/a"][...], downsample(data, (2**level, 2**level)))
    assert not [key for key in store.list("") if "zstore-job" in key]
    if room == 50:
        # What was done before is not read again.
        read = {key for key, count in store.reads.items() if key.startswith("0/a/c/")}
        assert 0 < len(read) < 160


# Meaning kept


@pytest.mark.parametrize("method", ["average", "mode", "max", "med", "lanczos"])
@pytest.mark.parametrize(
    ("dtype", "nodata"), [("u1", None), ("u2", 9), ("f4", None), ("f8", -1), ("i4", None)]
)
def test_what_a_mask_leaves_out_counts_as_nodata(method: str, dtype: str, nodata: Any) -> None:
    rng = np.random.default_rng(1)
    data, valid = cells((2, 90, 70), dtype), (rng.random((90, 70)) < 0.6)
    valid[8:24, 8:24] = False
    if nodata is not None:
        data[data == nodata] = 10
    group = zstore.create_group(MemoryStore())
    group.create_array("a", data=data, chunks=(1, 32, 32), dimension_names=("t", "y", "x"))
    group.create_array("ok", data=valid.astype("u1") * 255, chunks=32, dimension_names=("y", "x"))
    options = {"levels": 2, "chunks": 32, "mask": {"a": "ok"}, "method": {"a": method}}
    made = zstore.build_pyramid(group, MemoryStore(), nodata={"a": nodata, "ok": None}, **options)
    np.testing.assert_array_equal(made["0/a"][...], data)
    np.testing.assert_array_equal(made["1/ok"][...], downsample(valid.astype("u1") * 255, (2, 2), "max"))
    # In wide floats, with NaN for what is left out; rounded as the type is.
    wide = np.where(valid, data, np.nan).astype("f8")
    expected = downsample(wide, (1, 4, 4) if method != "lanczos" else (1, 2, 2), method, nodata=np.nan)
    found = made["1/a" if method == "lanczos" else "2/a"][...]
    assert found.dtype == data.dtype
    empty = np.isnan(expected)
    assert empty.any()
    shown = expected[~empty]
    if dtype[0] != "f":
        limits = np.iinfo(dtype)
        shown = np.clip(np.floor(shown + 0.5), limits.min, limits.max)
        hole = 0 if nodata is None else nodata
        near = np.abs(found[~empty].astype("f8") - shown)
        # A valid cell that came out as nodata has moved by one.
        assert (near <= (found[~empty] == (hole + 1)) + 0.0).all()
        assert (found[empty] == hole).all()
    else:
        np.testing.assert_allclose(found[~empty], shown, rtol=1e-6, atol=1e-4)
        assert np.isnan(found[empty]).all() if nodata is None else (found[empty] == nodata).all()


def test_masks_that_do_not_fit() -> None:
    group = zstore.create_group(MemoryStore())
    group.create_array("a", data=cells((40, 30), "i8"), chunks=32, dimension_names=("y", "x"))
    group.create_array("ok", data=cells((40, 30), "u1"), chunks=32, dimension_names=("y", "x"))
    group.create_array("f", data=cells((40, 30), "f4"), chunks=32, dimension_names=("y", "x"))
    small = make_array(MemoryStore(), cells((20, 30), "u1"))
    for mask, kind, message in (
        ({"a": "ok"}, UnsupportedError, "int64 has no nodata to hide masked cells as"),
        ({"a": "no"}, NotFoundError, "no array 'no' to be the mask; there are a, f, ok"),
        ({"f": small}, MetadataError, r"mask of 'f' has the shape \(20, 30\)"),
        ({"f": "f2"}, NotFoundError, "no array 'f2'"),
        ({"ok": "f"}, MetadataError, "mask is of data type float32"),
    ):
        target = MemoryStore()
        with pytest.raises(kind, match=message):
            zstore.build_pyramid(group, target, levels=1, mask=mask)
        assert not list(target.list(""))


@pytest.mark.parametrize(
    ("attributes", "refused"),
    [
        ({"add_offset": 5.0}, ("sum", "rms")),
        ({"scale_factor": -1.0}, ("max", "min", "med", "q1", "q3", "rms")),
    ],
)
def test_packed_values_that_a_method_would_not_mean(
    attributes: dict[str, float], refused: tuple[str, ...]
) -> None:
    source = make_array(MemoryStore(), cells((40, 30)), attributes=attributes)
    for method in ("average", "sum", "rms", "max", "min", "med", "q1", "q3", "mode", "nearest"):
        if method in refused:
            with pytest.raises(UnsupportedError, match="is packed with"):
                zstore.build_pyramid(source, MemoryStore(), levels=1, method=method)
        else:
            made = zstore.build_pyramid(source, MemoryStore(), levels=1, method=method)
            assert made["1/data"].attrs.items() >= attributes.items()


@pytest.mark.parametrize("method", ["average", "cubic"])
def test_levels_are_made_of_any_source_and_masked_by_any(method):
    """Of functions of indices, with a mask that is one too, as of arrays that hold the same."""
    grid, shape = RegularGrid((32, 32)), (300, 200)
    data, valid = Indices(shape, grid), Indices(shape, grid, "u2")
    made, expected = MemoryStore(), MemoryStore()
    plain = make_array(expected, data.whole(), dimension_names=None)
    covered = zstore.create_array(expected, "mask", data=valid.whole() % 7 != 3, chunks=32)

    class Mask7(Indices):
        def read(self, box, out=None):
            return super().read(box) % 7 != 3

    for store, source, mask in (
        (made, data, Mask7(shape, grid, "u2")),
        (expected, StoredArray.of(plain), StoredArray.of(covered)),
    ):
        levels = [
            zstore.create_array(
                store, f"l{n}", shape=[-(-size // 2**n) for size in shape], dtype="f8", chunks=32
            )
            for n in (1, 2)
        ]
        recipe = Recipe(source, (2, 2), method, mask=Mask(mask, (0, 1)), is_chained=False)
        with Runner() as runner:
            for number, work in enumerate(plan_passes(recipe, None, levels, Budget.of(None))):
                run_step(runner, Step(work), str(number))
    for name in ("l1", "l2"):
        found, wanted = (zstore.open_array(store, name)[...] for store in (made, expected))
        np.testing.assert_array_equal(found, wanted)
        assert np.isfinite(found).any()
    assert data.boxes

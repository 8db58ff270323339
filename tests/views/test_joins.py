"""Several arrays in directories are read by one call of the kernels, each as if it were read alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore._ext.engine.select import plan_basic
from zstore._ext.engine.transfer import read_joined
from zstore.engine import chunks as engine
from zstore.errors import NotFoundError, SelectionError, StoreError, ZstoreError
from zstore.storage.base import Stretches
from zstore.storage.memory import MemoryStore

DATA = np.arange(7 * 5 * 9, dtype="i4").reshape(7, 5, 9)
Items = np.ndarray[Any, Any]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """What the kernels are given to read in one call, call by call."""
    made: list[list[Any]] = []

    def read(parts: list[Any], **options: Any) -> Any:
        made.append(parts)
        return read_joined(parts, **options)

    monkeypatch.setattr(engine, "read_joined", read)
    return made


def days(place: Path, **options: Any) -> list[zstore.Array]:
    made = [
        zstore.create_array(place / f"{n}.zarr", data=one, **{"chunks": (2, 4), **options})
        for n, one in enumerate(DATA)
    ]
    return [zstore.open_array(place / f"{n}.zarr", mode="r") for n in range(len(made))]


def both_ways(view: zstore.View) -> list[Items]:
    return [view.read(), asyncio.run(view.read_async())]


def test_one_call_reads_all_straight_into_the_result(tmp_path: Path, batches: list[Any]) -> None:
    view = zstore.stack(days(tmp_path), 1)[::-1, ::2].transpose(2, 0, 1)
    out = np.empty(view.shape, view.dtype)
    view.read(..., out)
    [parts] = batches
    assert len(parts) == 4 and all(np.shares_memory(memory, out) for _, _, _, memory, *_ in parts)
    assert len({id(plan) for plan, *_ in parts}) == 1  # made once
    np.testing.assert_array_equal(out, np.stack(DATA, 1)[::-1, ::2].transpose(2, 0, 1))


UNLIKE: list[dict[str, Any]] = [
    {},
    {"chunks": (5, 9)},
    {"compressors": "zstd"},
    {"compressors": None},
    {"chunks": (2, 3), "shards": (4, 6)},
    {"zarr_format": 2, "dtype": ">i4", "order": "F"},
    {"dtype": "<i4", "fill_value": 99, "chunks": (1, 9)},
]


def test_arrays_that_are_not_alike(tmp_path: Path, batches: list[Any]) -> None:
    arrays = [
        zstore.create_array(tmp_path / f"{n}", data=one.astype(options.get("dtype", "i4")), **options)
        for n, (one, options) in enumerate(
            (one, {"chunks": (2, 4), **options}) for one, options in zip(DATA, UNLIKE, strict=True)
        )
    ]
    stack, expected = zstore.stack(arrays), DATA
    for selection in [..., np.s_[:, 3], np.s_[::-2, 1:4, ::-3], np.s_[:, [0, 4], [8, 1]], np.s_[[5, 0, 5]]]:
        for found in both_ways(stack[selection]):
            np.testing.assert_array_equal(found, expected[selection])
    assert max(map(len, batches)) == 6  # all but the one in another byte order than that of the result
    joined = zstore.concat([*arrays[:3], arrays[4].lazy[:2], arrays[6]], 0)
    expected = np.concatenate([*DATA[:3], DATA[4, :2], DATA[6]])
    for selection in [..., np.s_[::-1], np.s_[3:18:4], np.s_[:, 8]]:
        for found in both_ways(joined[selection]):
            np.testing.assert_array_equal(found, expected[selection])


def test_large_parts_are_read_alone_and_batches_are_short(
    tmp_path: Path, batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = days(tmp_path, compressors=None)  # 9 chunks of 32 bytes
    monkeypatch.setattr(engine, "JOINED_CHUNK", 1)
    monkeypatch.setattr(engine, "JOINED_SIZE", 9 * 32 * 3)
    np.testing.assert_array_equal(zstore.stack(arrays).read(), DATA)
    assert [len(parts) for parts in batches] == [3, 3, 1]
    monkeypatch.setattr(engine, "JOINED_SIZE", 9 * 32 - 1)
    np.testing.assert_array_equal(zstore.stack(arrays).read(), DATA)
    assert len(batches) == 3
    monkeypatch.setattr(engine, "JOINED_SIZE", 9 * 1000 * 2)
    monkeypatch.setattr(engine, "JOINED_CHUNK", 1000)
    np.testing.assert_array_equal(zstore.stack(arrays).read(), DATA)
    assert [len(parts) for parts in batches[3:]] == [2, 2, 2, 1]


def test_large_parts_between_those_of_others_are_read_alone(tmp_path: Path, batches: list[Any]) -> None:
    data = np.arange(2 * 150 * 150, dtype="i4").reshape(2, 150, 150)
    arrays = [zstore.create_array(tmp_path / f"{n}", data=one, chunks=(40, 70)) for n, one in enumerate(data)]
    np.testing.assert_array_equal(zstore.stack(arrays).T.read(), data.T)
    assert not batches
    np.testing.assert_array_equal(zstore.stack(arrays)[:, :40].T.read(), data[:, :40].T)
    assert len(batches) == 1


def test_a_trace_has_each_array(tmp_path: Path, batches: list[Any]) -> None:
    with zstore.trace() as trace:
        zstore.stack(days(tmp_path)[:3]).read()
    assert trace.totals["read"].count == 3 and not batches


def test_chunks_that_are_not_there_are_filled_by_each_array(tmp_path: Path) -> None:
    arrays = [
        zstore.create_array(tmp_path / f"{n}", shape=(4,), chunks=(2,), dtype="i2", fill_value=n)
        for n in range(3)
    ]
    arrays[1][:2] = 7
    view = zstore.stack(arrays)
    for found in both_ways(view):
        assert found.tolist() == [[0] * 4, [7, 7, 1, 1], [2] * 4]
    strict = zstore.open_array(tmp_path / "1", missing="error")
    for read in (zstore.stack([arrays[0], strict]).read, lambda: view[1:].read(missing="error")):
        with pytest.raises(NotFoundError, match=r"chunk is missing .*'c/1' of .*/1'"):
            read()


def damage_size(place: Path) -> None:
    (place / "c/0/1").write_bytes(b"123")


def damage_kind(place: Path) -> None:
    (place / "c/0/1").unlink()
    os.mkfifo(place / "c/0/1")


@pytest.mark.parametrize("damage", [damage_size, damage_kind, shutil.rmtree])
def test_an_error_is_that_of_the_array_read_alone(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    arrays = days(tmp_path, compressors=None)
    view = zstore.stack(arrays)
    np.testing.assert_array_equal(view.read(), DATA)
    damage(tmp_path / "4.zarr")
    with pytest.raises(ZstoreError, match=r"4\.zarr") as alone:
        arrays[4][...]
    for read in (view.read, lambda: asyncio.run(view.read_async())):
        with pytest.raises(type(alone.value)) as found:
            read()
        assert str(found.value) == str(alone.value)
    np.testing.assert_array_equal(view[:4].read(), DATA[:4])


def test_an_array_that_is_replaced_or_resized_meanwhile(tmp_path: Path) -> None:
    arrays = days(tmp_path)
    view = zstore.stack(arrays)
    np.testing.assert_array_equal(view.read(), DATA)
    shutil.rmtree(tmp_path / "3.zarr")
    zstore.create_array(tmp_path / "3.zarr", data=-DATA[3], chunks=(2, 4))
    np.testing.assert_array_equal(view[2:5].read(), [DATA[2], -DATA[3], DATA[4]])
    zstore.open_array(tmp_path / "5.zarr").resize((3, 9))
    arrays[5].refresh()
    with pytest.raises(SelectionError, match=r"index 4 is out of bounds for axis 0 with size 3 .*5\.zarr"):
        view.read()
    np.testing.assert_array_equal(view[4:, :3].read(), DATA[4:, :3])


def test_a_cache_of_an_arrays_own(tmp_path: Path) -> None:
    arrays = days(tmp_path, chunks=(2, 3), shards=(4, 9), compressors="zstd")
    view = zstore.stack([array.cached(1 << 20) for array in arrays])
    for _ in range(3):
        np.testing.assert_array_equal(view[:, 2].read(), DATA[:, 2])
    zstore.open_array(tmp_path / "6.zarr")[...] = 1
    np.testing.assert_array_equal(view[5:, 2].read(), [DATA[5, 2], [1] * 9])


class OneFile(MemoryStore):
    """A store of an array of 1 × 2 chunks that lie in a file, which has a head of 7 bytes."""

    file: Path

    def stretches(self, prefix: str) -> Stretches:
        offset, size = np.array([7, 87], np.int64), np.full(2, 80, np.int64)
        file = (0, self.file.name, -1, -1)
        numbers = np.zeros(2, np.int32)
        return Stretches((1, 2), True, "/", None, numbers, offset, size, b"", [str(self.file.parent)], [file])


def test_arrays_that_are_stretches_of_other_files(tmp_path: Path, batches: list[Any]) -> None:
    # Each is the first file of its array: a thread that goes on to the next array must open that one's.
    data = DATA[:, :, :8]
    arrays = []
    for n, one in enumerate(data):
        store = OneFile()
        array = zstore.create_array(store, shape=(5, 8), chunks=(5, 4), dtype="i4", compressors=None)
        store.file = tmp_path / f"{n}"
        store.file.write_bytes(b"1234567" + one[:, :4].tobytes() + one[:, 4:].tobytes())
        arrays.append(array)
    view = zstore.stack(arrays)
    zstore.set_threads(1)
    try:
        np.testing.assert_array_equal(view[:, 1:4].read(), data[:, 1:4])
    finally:
        zstore.set_threads(None)
    assert [len(parts) for parts in batches] == [len(arrays)]
    (tmp_path / "2").unlink()
    with pytest.raises(StoreError, match=r"No such file.*c/0/0"):
        view.read()


def test_a_signal_ends_a_join(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path, data=np.ones(8, "u1"), chunks=1, compressors=None)
    chunks = array._chunks
    assert isinstance(chunks, engine.RegularChunks) and chunks.folder is not None
    plan = plan_basic(chunks.layout, np.s_[:])
    assert plan is not None
    memory = np.zeros((20_000, 8), "u1")
    parts = [(plan, chunks.layout, chunks.folder, row, False, None) for row in memory]

    def hear(*_: Any) -> None:
        raise TimeoutError("heard")

    before = signal.signal(signal.SIGALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(TimeoutError, match="heard"):
            read_joined(parts, threads=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not memory[-1].any()


def test_parts_that_the_kernel_refuses(tmp_path: Path) -> None:
    one, other = days(tmp_path)[0], zstore.create_array(tmp_path / "other", data=DATA[0], chunks=(2, 3))
    chunks, others = one._chunks, other._chunks
    assert isinstance(chunks, engine.RegularChunks) and isinstance(others, engine.RegularChunks)
    plan, memory = plan_basic(chunks.layout, ...), np.empty((5, 9), "i4")
    folder: Any = others.folder
    assert plan is not None
    with pytest.raises(ValueError, match="plan for chunks of another form"):
        read_joined([(plan, others.layout, folder, memory, False, None)])
    with pytest.raises(ValueError, match=r"memory of shape \(4, 9\), expected \(5, 9\)"):
        read_joined([(plan, chunks.layout, folder, memory[1:], False, None)])
    large = zstore.create_array(tmp_path / "large", shape=1 << 24, chunks=1 << 24, dtype="u1")._chunks
    assert isinstance(large, engine.RegularChunks)
    whole = plan_basic(large.layout, np.s_[:2])
    assert whole is not None
    with pytest.raises(ValueError, match="chunks of 16777216 bytes, expected fewer than 16777216"):
        read_joined([(whole, large.layout, folder, np.empty(2, "u1"), False, None)])
    nothing = plan_basic(chunks.layout, np.s_[:0])
    assert nothing is not None
    assert read_joined([]) is None
    assert read_joined([(nothing, chunks.layout, folder, memory[:0], False, None)]) is None
    shutil.rmtree(one.store.local_path("") or "")
    part = (plan, chunks.layout, chunks.folder, memory, False, "mark")
    found = read_joined([(nothing, chunks.layout, folder, memory[:0], False, None), part])  # type: ignore[list-item]
    assert found is not None and found[0][5] == "mark" and isinstance(found[1], FileNotFoundError)

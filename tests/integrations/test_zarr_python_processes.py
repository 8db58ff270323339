"""The pipeline in processes that fork, threads, pickles and event loops."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import VLenUTF8Codec
from zarr.storage import FsspecStore, LocalStore, MemoryStore

from zstore.engine.chunks import RegularChunks
from zstore.guests.zarr_python import ZstoreStore
from zstore.guests.zarr_python import arrays as zarr_python_arrays
from zstore.storage.memory import MemoryStore as Memory
from zstore.testing.sharing import run_forked

OURS = {"codec_pipeline.path": "zstore.guests.zarr_python.ZstoreCodecPipeline"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (4,)},
    "shards": {"chunks": (2,), "shards": (8,)},
    "one chunk": {"chunks": (64,)},
}


@pytest.fixture(autouse=True)
def ours() -> Iterator[None]:
    with zarr.config.set(OURS):
        yield


def make_store(kind: str, place: Path) -> Any:
    if kind == "local":
        return LocalStore(place)
    if kind == "fsspec":
        return FsspecStore.from_url(f"local://{place}/a", storage_options={"auto_mkdir": True})
    if kind == "zstore":
        return ZstoreStore(place / "a")
    if kind == "zstore-memory":
        return ZstoreStore(Memory())
    return MemoryStore()


# Children of a fork


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["local", "zstore"])
def test_children_write_side_by_side_after_their_parent_did(tmp_path, kind, layout):
    array = zarr.create_array(make_store(kind, tmp_path), shape=(64,), dtype="i4", **LAYOUTS[layout])
    array[...] = -1
    assert array[5] == -1

    def write(start: int) -> None:
        for k in range(start, 64, 4):
            array[k] = k
            assert array[k] == k

    assert run_forked([lambda k=k: write(k) for k in range(4)]) == [0] * 4  # type: ignore[misc]
    assert array[...].tolist() == [*range(64)]


def test_children_have_stores_with_loops_of_their_own(tmp_path):
    array = zarr.create_array(make_store("fsspec", tmp_path), shape=(64,), chunks=(4,), dtype="i4")
    array[...] = np.arange(64)

    def read() -> None:
        assert array[3:50].tolist() == [*range(3, 50)]
        array[8:12] = 7

    assert run_forked([read]) == [0]
    assert array[6:14].tolist() == [6, 7, 7, 7, 7, 7, 12, 13]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["local", "memory", "zstore-memory"])
def test_forks_while_threads_are_in_it(tmp_path, kind, layout):
    store = make_store(kind, tmp_path)
    array = zarr.create_array(store, name="a", shape=(64,), dtype="i4", **LAYOUTS[layout])
    strings = zarr.create_array(store, name="b", shape=(64,), chunks=(8,), dtype=str)
    array[...] = 1
    strings[...] = "x"
    is_over = threading.Event()

    def work(start: int) -> int:
        rounds = 0
        while not is_over.is_set():
            array[start::4] = array[start::4] + 1
            strings[start] = str(rounds)
            assert strings[start] == str(rounds)
            rounds += 1
        return rounds

    def child() -> None:
        assert array[40] >= 1
        array[8:20] = 3
        strings[32] = "child"
        assert strings[32] == "child"
        assert zarr.open_array(store, path="a")[...].shape == (64,)

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work, start) for start in range(4)]
        try:
            codes = [code for _ in range(6) for code in run_forked([child, child], 30)]
        finally:
            is_over.set()
        assert all(future.result(60) for future in futures)
    assert codes == [0] * 12


def test_a_fork_while_another_thread_binds_the_codecs(tmp_path, monkeypatch):
    zarr.create_array(LocalStore(tmp_path), data=np.arange(8), chunks=(4,))
    begun, may_end, bind = threading.Event(), threading.Event(), zarr_python_arrays.bind_layout

    def waiting(*arguments: Any, **named: Any) -> Any:
        if not may_end.is_set() and threading.current_thread() is not threading.main_thread():
            begun.set()
            may_end.wait(60)
        return bind(*arguments, **named)

    monkeypatch.setattr(zarr_python_arrays, "bind_layout", waiting)
    zarr_python_arrays._parse.cache_clear()

    def read() -> list[int]:
        found: list[int] = zarr.open_array(LocalStore(tmp_path), mode="r")[...].tolist()
        return found

    def child() -> None:
        may_end.set()
        assert read() == [*range(8)]

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert begun.wait(60)
        codes = run_forked([child], 20)
        may_end.set()
        assert reading.result(60) == [*range(8)]
    assert codes == [0]


# Pickles


@pytest.mark.parametrize("dumps", ["pickle", "cloudpickle"])
@pytest.mark.parametrize("kind", ["local", "fsspec", "zstore", "memory"])
def test_arrays_that_were_used_pickle(tmp_path, kind, dumps):
    array = zarr.create_array(make_store(kind, tmp_path), shape=(12,), chunks=(4,), dtype="i4")
    array[...] = np.arange(12)
    assert array[3] == 3
    dump: Callable[[Any], bytes] = pytest.importorskip(dumps, reason="the package that dask pickles by").dumps
    again = pickle.loads(dump(array))
    assert again[...].tolist() == [*range(12)]
    again[2:6] = 9
    assert again[...].tolist() == [0, 1, 9, 9, 9, 9, *range(6, 12)]
    assert pickle.loads(pickle.dumps(again.async_array.codec_pipeline)) == array.async_array.codec_pipeline


# Event loops


class _Watched:
    """Chunks whose reads and writes wait until the event loop has said a word."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_go = threading.Event(), threading.Event()
        for name in ("read", "write"):
            method = getattr(RegularChunks, name)

            def waiting(chunks: Any, *arguments: Any, _method: Any = method, **named: Any) -> None:
                self.begun.set()
                assert self.may_go.wait(20), "the event loop did nothing meanwhile"
                _method(chunks, *arguments, **named)

            monkeypatch.setattr(RegularChunks, name, waiting)

    async def reach(self) -> None:
        """Wait, on the loop, until a read or write has begun."""
        for _ in range(2000):
            if self.begun.is_set():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("nothing was read or written")


def test_the_loop_is_free_while_chunks_are_read_and_written(monkeypatch):
    async def main() -> None:
        array = await zarr.api.asynchronous.create_array(MemoryStore(), shape=(8,), chunks=(4,), dtype="i4")
        watched = _Watched(monkeypatch)
        for act in (lambda: array.setitem(slice(None), np.arange(8)), lambda: array.getitem(slice(2, 6))):
            watched.begun.clear()
            watched.may_go.clear()
            task = asyncio.ensure_future(act())
            await watched.reach()
            watched.may_go.set()
            found = await task
        assert found.tolist() == [2, 3, 4, 5]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_cancelled_reads_and_writes_leave_the_array_usable(monkeypatch):
    async def main() -> None:
        array = await zarr.api.asynchronous.create_array(MemoryStore(), shape=(8,), chunks=(4,), dtype="i4")
        await array.setitem(slice(None), np.arange(8))
        with monkeypatch.context() as patch:
            watched = _Watched(patch)
            for act in (lambda: array.getitem(slice(2, 6)), lambda: array.setitem(slice(2, 6), 7)):
                watched.begun.clear()
                watched.may_go.clear()
                task = asyncio.ensure_future(act())
                await watched.reach()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                watched.may_go.set()
        # What is cancelled on the way is done or not, chunk by chunk, and leaves no lock behind.
        await asyncio.wait_for(array.setitem(slice(0, 8), np.arange(8) * 2), 20)
        found = (await asyncio.wait_for(array.getitem(slice(None)), 20)).tolist()
        assert all(a in (2 * k, 7) for k, a in enumerate(found))
        assert found[:2] == [0, 2]
        assert found[6:] == [12, 14]

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("kind", ["local", "fsspec", "memory", "zstore-memory"])
def test_more_requests_at_once_than_there_are_threads(tmp_path, kind):
    count = 100

    async def main() -> None:
        array = await zarr.api.asynchronous.create_array(
            make_store(kind, tmp_path), shape=(count, 6), chunks=(count, 2), dtype="i4"
        )
        # All of them change the same three chunks.
        await asyncio.gather(*(array.setitem((k, slice(None)), k) for k in range(count)))
        rows = await asyncio.gather(*(array.getitem((k, slice(None))) for k in range(count)))
        assert [row.tolist() for row in rows] == [[k] * 6 for k in range(count)]

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_selections_that_overlap_are_written_whole_in_either_order():
    array = zarr.create_array(
        MemoryStore(), shape=(40, 40), chunks=(4, 4), dtype=str, serializer=VLenUTF8Codec()
    )
    numbers = zarr.create_array(MemoryStore(), shape=(40, 40), chunks=(4, 4), dtype="i4")
    rows = [*range(0, 40, 3)]

    def write(which: int) -> None:
        for _ in range(10):
            numbers.oindex[rows[:: 1 - 2 * which], which::2] = which + 1
            array[which::2, ::7] = str(which + 1)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(write, k % 2) for k in range(4)]:
            future.result(60)
    assert np.array_equal(numbers[::3, 0::2], np.full((14, 20), 1))
    assert np.array_equal(numbers[::3, 1::2], np.full((14, 20), 2))
    assert (array[0::2, ::7] == "1").all()
    assert (array[1::2, ::7] == "2").all()

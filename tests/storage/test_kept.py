"""Caches in memory, of arrays in any store: how often they ask, and that they give nothing outdated."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.storage.base import Entry, Store
from zstore.storage.cached import KeptStore
from zstore.storage.memory import MemoryStore
from zstore.testing.stores import StoreContract

from ..engine.test_remote import FarStore
from .bucket_server import BucketServer, forget_settings
from .test_cached import VersionedStore

pytest.importorskip("obstore", reason="the package behind the store")

ITEMS = np.arange(64 * 64, dtype="i4").reshape(64, 64)


class TestKept(StoreContract):
    def make_store(self, place: Path) -> Store:
        return KeptStore(VersionedStore(place), 1 << 20)


class TestKeptFresh(StoreContract):
    def make_store(self, place: Path) -> Store:
        return KeptStore(VersionedStore(place), 1 << 20, fresh_for=60)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BucketServer]:
    forget_settings(monkeypatch, tmp_path)
    with BucketServer() as server:
        yield server


def counted(server: BucketServer, act: Any) -> int:
    server.requests.clear()
    act()
    return len(server.requests)


@pytest.mark.parametrize("grid", [{"chunks": (8, 8)}, {"chunks": (8, 8), "shards": (32, 32)}], ids=str)
def test_a_cached_array_in_a_bucket_asks_as_often_as_it_is_told_to(server: BucketServer, grid: Any) -> None:
    gc.collect()  # the caches of tests before this one
    made = zstore.create_array("s3://b/x", data=ITEMS, storage_options=server.options(), **grid)
    made[56:, 56:] = 0  # chunks that are missing are remembered, too
    area = np.s_[5:61, 5:61]
    expected, all_of_them = made[...], []
    for fresh_for, last in ((0, None), (60, 0), (np.inf, 0)):
        array = zstore.open_array("s3://b/x", mode="r+", storage_options=server.options())
        array = array.cached(1 << 20, fresh_for=fresh_for)
        all_of_them.append(array)  # caches that have gone are not counted
        before = zstore.cache_info()
        counts = [counted(server, lambda array=array: array[area]) for _ in range(3)]
        assert np.array_equal(array[area], expected[area])
        assert counts[2] == (counts[1] if last is None else last) and counts[0] > 0
        info = zstore.cache_info()
        assert info.hit_count > before.hit_count and 0 < info.stored_size - before.stored_size <= 1 << 20
        # One's own changes are seen at once, and nothing of others is lost under a lock.
        made[0, 0] = made[0, 0] + 1
        array[0, 1] = 7
        expected = made[...]
        assert expected[0, 1] == 7 and np.array_equal(array[...], expected)
        if not fresh_for:
            made[9, 9] = -1
            expected[9, 9] = -1
            assert np.array_equal(array[area], expected[area])
    shared = zstore.open_array("s3://b/x", mode="r", storage_options=server.options()).cached(
        1 << 20, fresh_for=0.05
    )
    assert np.array_equal(shared[area], expected[area])
    made[9, 9] = 5
    time.sleep(0.06)
    assert shared[9, 9] == 5


def test_a_small_cache_keeps_the_last_used(server: BucketServer) -> None:
    zstore.create_array(
        "s3://b/x", data=ITEMS, chunks=(8, 8), compressors=None, storage_options=server.options()
    )
    array = zstore.open_array("s3://b/x", mode="r", storage_options=server.options())
    array = array.cached(5 * (256 + 512), fresh_for=np.inf)
    assert counted(server, lambda: array[:8, :40]) == 5
    assert counted(server, lambda: array[:8, :40]) == 0
    assert counted(server, lambda: array[:8, 40:48]) == 1
    assert counted(server, lambda: array[:8, 8:48]) == 0
    assert counted(server, lambda: array[:8, :8]) == 1
    assert counted(server, lambda: pickle.loads(pickle.dumps(array))[:8, :8]) == 1


def test_an_append_to_a_cached_array_sees_who_is_there(server: BucketServer) -> None:
    array = zstore.create_array("s3://b/x", data=[1, 2], chunks=2, storage_options=server.options())
    array = array.cached(1 << 20, fresh_for=np.inf)
    array.append([3, 4])
    server.values["/b/x/.zstore-job/record"] = b'{"work": "copy"}'
    with pytest.raises(StoreError, match="a copy is unfinished"):
        array.append([5, 6])
    assert array[...].tolist() == [1, 2, 3, 4]


def test_a_store_that_tells_no_changes_is_cached_for_ever_or_not_at_all() -> None:
    class Plain(MemoryStore):
        in_memory = False
        asked = 0

        def entry(self, key: str) -> Any:
            return Entry(key, self.size(key) or 0, None)

        def get(self, key: str, byte_range: Any = None) -> Any:
            self.asked += 1
            return super().get(key, byte_range)

    store = Plain()
    array = zstore.create_array(store, "a", data=ITEMS, chunks=(8, 8))
    with pytest.raises(StoreError, match="does not tell whether"):
        array.cached(1 << 20)
    cached = array.cached(1 << 20, fresh_for=np.inf)
    assert np.array_equal(cached[...], ITEMS)
    asked = store.asked
    assert np.array_equal(cached[3:50], ITEMS[3:50]) and store.asked == asked
    with pytest.raises(ValueError, match="fresh_for"):
        KeptStore(store, 1 << 20, fresh_for=-1)


def test_the_arrays_of_a_group_share_a_cache(server: BucketServer, tmp_path: Path) -> None:
    group = zstore.create_group("s3://b/g", storage_options=server.options())
    for name in "ab":
        group.create_array(f"in/{name}", data=ITEMS, chunks=(8, 8))
    group = zstore.open_group("s3://b/g", mode="r", storage_options=server.options()).cached(
        1 << 20, fresh_for=60
    )
    first = [counted(server, lambda name=name: group[f"in/{name}"][...]) for name in "ab"]
    assert first[0] >= 64 and counted(server, lambda: group["in/a"][3:50]) == 1  # its document
    assert group["in/a"].store is group["in/b"].store and group.cached(0).store is group.store
    near = zstore.create_group(tmp_path / "g")
    assert near.cached(1 << 20, fresh_for=60).store is near.store


class Gate:
    """Holds the first answer of a key back until it is `opened`, and counts the requests that have come."""

    def __init__(self, store: FarStore, key: str, error: Exception | None = None) -> None:
        self.arrived, self.opened = threading.Event(), threading.Event()
        self.count, self.error = 0, error
        self.key = key
        store.note = self.note  # type: ignore[method-assign]

    def note(self, verb: str, key: str, byte_range: Any = None) -> None:
        if (verb, key) == ("get", self.key):
            self.count += 1
            if self.count == 1:
                self.arrived.set()
                assert self.opened.wait(30)
                if self.error is not None:
                    raise self.error

    def open_when_waited_for(self, kept: KeptStore, count: int) -> None:
        until = time.monotonic() + 30
        while (
            sum(len(futures) for _, futures in kept._sent._waiting.values()) < count
            and time.monotonic() < until
        ):
            time.sleep(0.001)
        self.opened.set()


def far_store() -> FarStore:
    store = FarStore()
    for key, value in (("c/0", b"old"), ("c/1", b"one"), ("zarr.json", b"{}")):
        store.put(key, value)
    return store


def test_what_readers_want_at_one_time_is_asked_for_once() -> None:
    far = far_store()
    kept, gate = KeptStore(far, 1 << 20, fresh_for=60), Gate(far, "c/0")
    wanted = [("c/0", None), ("c/1", None), ("c/2", None), ("c/0", None)]

    async def awaited() -> Any:
        return await asyncio.gather(*(kept.get_many_async(wanted) for _ in range(3)))

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(kept.get_many, [("c/0", None)])
        assert gate.arrived.wait(30)
        others = [pool.submit(kept.get_many, wanted) for _ in range(3)]
        on_loop = pool.submit(asyncio.run, awaited())
        gate.open_when_waited_for(kept, 6)
        assert first.result() == [b"old"]
        for found in (*(other.result() for other in others), *on_loop.result()):
            assert found == [b"old", b"one", None, b"old"]
    assert gate.count == 1 and kept._sent._waiting == {}


def test_where_one_reader_fails_the_others_ask_for_themselves() -> None:
    far = far_store()
    kept, gate = KeptStore(far, 1 << 20, fresh_for=60), Gate(far, "c/0", StoreError("no answer"))
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(kept.get_many, [("c/0", None)])
        assert gate.arrived.wait(30)
        others = [pool.submit(kept.get_many, [("c/0", None)]) for _ in range(3)]
        gate.open_when_waited_for(kept, 3)
        with pytest.raises(StoreError, match="no answer"):
            first.result()
        assert [other.result() for other in others] == [[b"old"]] * 3
    assert 2 <= gate.count <= 4 and kept._sent._waiting == {}


def test_who_keeps_an_event_loop_busy_does_not_wait_for_it() -> None:
    far = far_store()
    kept = KeptStore(far, 1 << 20, fresh_for=60)
    begun = asyncio.Event()

    async def get_parts_async(requests: Any) -> Any:
        begun.set()
        await asyncio.sleep(0.01)
        return far.get_parts(requests)

    far.get_parts_async = get_parts_async  # type: ignore[method-assign]

    async def both() -> None:
        task = asyncio.ensure_future(kept.get_parts_async([("c/0", None)]))
        await begun.wait()
        assert kept.get("c/0") == b"old"  # without the loop going on
        (other,) = await asyncio.gather(kept.get_parts_async([("c/0", None), ("c/1", None)]))
        assert [bytes(part.data) for part in (*await task, *other)] == [b"old", b"old", b"one"]

    asyncio.run(both())
    assert kept._sent._waiting == {}


@pytest.mark.parametrize("how", ["changed", "locked", "asked each time", "document", "forked"])
def test_an_answer_is_not_shared_with_whom_it_may_be_too_old_for(how: str) -> None:
    far = far_store()
    key = "zarr.json" if how == "document" else "c/0"
    kept, gate = KeptStore(far, 1 << 20, fresh_for=0 if how == "asked each time" else 60), Gate(far, key)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(kept.get, key)
        assert gate.arrived.wait(30)
        if how == "forked":
            child = multiprocessing.get_context("fork").Process(target=kept.get, args=(key,))
            child.start()
            child.join(30)
            assert child.exitcode == 0
        elif how == "locked":
            with kept.lock("c"):
                assert kept.get(key) == b"old"
        else:
            value = b"new" if how == "changed" else b"old"
            if how == "changed":
                kept.put(key, value)
            assert kept.get(key) == (b"{}" if how == "document" else value)
        gate.opened.set()
        assert first.result() == (b"{}" if how == "document" else b"old")
    if how == "changed":
        assert kept.get(key) == b"new"

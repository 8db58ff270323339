"""Caches in memory, of arrays in any store: how often they ask, and that they give nothing outdated."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Iterator
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

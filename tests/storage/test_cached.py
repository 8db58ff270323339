"""A cache of ranges on the disk: what it spares, and that nothing of it is ever wrong."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import ByteRange, Parts, Request, Store
from zstore.storage.cached import FILE, CachedStore, clear_disk_cache, disk_cache_info
from zstore.storage.local import LocalStore
from zstore.storage.url import open_store
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract

from ..engine.test_remote import FarStore, shards


class VersionedStore(LocalStore):
    """A directory that gives versions with what is read, which are those from before."""

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        entries = [self.entry(key) for key, _ in requests]
        parts = zip(entries, super().get_parts(requests), strict=True)
        return [part and part._replace(version=entry and entry.version) for entry, part in parts]

    def as_read_only(self) -> LocalStore:
        return VersionedStore(self.root, read_only=True)


class TestCached(StoreContract):
    def make_store(self, place: Path) -> Store:
        return CachedStore(VersionedStore(place), f"{place}-cache")


@pytest.fixture
def far() -> FarStore:
    store = FarStore()
    store.put("a", bytes(range(200)))
    return store


def test_what_is_kept_is_asked_for_by_a_byte(far, tmp_path):
    store = CachedStore(far, tmp_path)
    wishes = [("a", ByteRange(10, 20)), ("a", ByteRange(-30)), ("a", ByteRange(15, 5)), ("b", None)]
    first = store.get_many(wishes)
    far.requests.clear()
    assert store.get_many(wishes[:3]) == first[:3]
    assert far.requests == [("get", "a", ByteRange(0, 1))]
    far.requests.clear()
    # With more of the same value to be read, that tells the version.
    assert store.get_many([*wishes, ("a", ByteRange(100, 5))])[:4] == first
    assert far.requests == [("get", "b", None), ("get", "a", ByteRange(100, 5))]


def test_what_has_changed_is_read_anew(far, tmp_path):
    store, other = CachedStore(far, tmp_path), CachedStore(far, tmp_path)
    assert store.get("a", ByteRange(0, 3)) == bytes([0, 1, 2])
    for value in (bytes(200), b"x", b"", bytes(range(200))):
        far.put("a", value)
        assert bytes(store.get("a", ByteRange(0, 3)) or b"") == value[:3]
        assert bytes(other.get("a") or b"") == value
        assert bytes(store.get("a") or b"") == value
    far.delete("a")
    assert store.get("a", ByteRange(0, 3)) is None
    store.put("a", b"new")
    assert store.get("a") == b"new"


def test_values_without_versions_are_not_kept(tmp_path):
    far = FarStore(has_versions=False)
    store = CachedStore(far, tmp_path)
    far.put("a", b"old")
    assert store.get("a") == b"old"
    far.put("a", b"new")
    assert store.get("a") == b"new"


def test_memory_is_not_kept(tmp_path):
    pytest.importorskip("obstore", reason="the package behind the store")
    # As in another process: the same name, the first version of a value.
    for name, value in (("one", b"old"), ("two", b"new")):
        open_store(f"obstore+memory://{name}").put("a", value)
        store = CachedStore(f"obstore+memory://{name}", tmp_path)
        store._place = "the same"
        assert bytes(store.get("a")) == value


def test_arrays_are_read_from_it(tmp_path):
    far = FarStore()
    values = shards(far)[...]
    for _ in range(3):
        array = zstore.open_array(CachedStore(far, tmp_path), "a", mode="r")
        far.requests.clear()
        np.testing.assert_array_equal(array[...], values)
        np.testing.assert_array_equal(array[3:9, 3:9], values[3:9, 3:9])
    asked = [byte_range for _, key, byte_range in far.requests if "c/" in key]
    assert set(asked) == {ByteRange(0, 1)}
    writable = zstore.open_array(CachedStore(far, tmp_path), "a")
    writable[3:5, 3:5] = 0
    values[3:5, 3:5] = 0
    np.testing.assert_array_equal(zstore.open_array(CachedStore(far, tmp_path), "a")[...], values)


def test_it_holds_no_more_than_it_may(tmp_path):
    far = FarStore()
    store = CachedStore(far, tmp_path, limit_size=1 << 20)
    for number in range(100):
        far.put(f"k{number}", os.urandom(50_000))
        store.get(f"k{number}")
    far.put("large", bytes(1 << 20))
    store.get("large")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 8 << 20
    far.requests.clear()
    assert store.get("k99") == far._values["k99"]
    assert far.requests == [("get", "k99", ByteRange(0, 1))]
    far.requests.clear()
    assert store.get("k0") == far._values["k0"]
    assert far.requests == [("get", "k0", None)]


def test_many_ranges_of_one_value_are_found_in_few_steps(far, tmp_path):
    far.put("many", bytes(60_000))
    store = CachedStore(far, tmp_path)
    wishes = [("many", ByteRange(20 * number, 10)) for number in range(3000)]
    store.get_many(wishes)
    steps: list[None] = []
    store._connection.set_progress_handler(lambda: steps.append(None), 100)
    far.requests.clear()
    store.get_many(wishes[-50:])
    store.get("many", ByteRange(15, 4))
    assert far.requests == [("get", "many", ByteRange(0, 1)), ("get", "many", ByteRange(15, 4))]
    assert len(steps) < 500
    # What lies within another range is not kept beside it.
    store.get("many")
    store.get("many", ByteRange(7, 100))
    assert store._connection.execute("SELECT first, size FROM ranges WHERE size != 4").fetchall() == [
        (0, 60_000)
    ]


def test_stores_of_one_url_are_told_apart_by_their_endpoints(far, tmp_path):
    other = FarStore()
    other.put("a", bytes(200))
    assert far.url == other.url
    other.get_parts = lambda requests: [  # type: ignore[method-assign]
        part and part._replace(version=far.get_parts([("a", None)])[0].version)
        for part in FarStore.get_parts(other, requests)
    ]
    CachedStore(far, tmp_path, name="one").get("a")
    assert CachedStore(other, tmp_path, name="other").get("a") == bytes(200)
    places = {
        CachedStore("memory://x", tmp_path, storage_options=options)._place if not options else str(options)
        for options in ({}, {"endpoint_url": "http://a"})
    }
    assert len(places) == 2


@pytest.mark.parametrize("damage", ["no file of SQLite", "other bytes", "other types", "not writable"])
def test_a_damaged_cache_is_no_data(far, tmp_path, damage):
    value = far._values["a"]
    with CachedStore(far, tmp_path) as store:
        assert store.get("a") == value
    path = tmp_path / FILE
    if damage == "no file of SQLite":
        path.write_bytes(b"nonsense" * 4096)
    elif damage == "not writable":
        path.unlink()
        path.mkdir()
    else:
        file = sqlite3.connect(path)
        new: Any = bytes(200) if damage == "other bytes" else pickle.dumps(value)[:1].decode("latin-1")
        file.execute("UPDATE ranges SET data = ?", (new,))
        file.commit()
        file.close()
    store = CachedStore(far, tmp_path)
    for _ in range(2):
        assert store.get("a") == value
    store.close()


def read_for_ever(directory: str) -> None:
    far = FarStore()
    store = CachedStore(far, directory, limit_size=1 << 20)
    for number in range(1 << 30):
        key = f"k{number % 50}"
        far.put(key, bytes([number % 50]) * 40_000)
        assert store.get(key) == far._values[key]


def test_processes_share_it_and_may_be_killed(tmp_path):
    fork = multiprocessing.get_context("fork")
    for number in range(6):
        process = fork.Process(target=read_for_ever, args=(str(tmp_path),))
        process.start()
        time.sleep(0.1 + 0.05 * number)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    far = FarStore()
    store = CachedStore(far, tmp_path)
    for number in range(50):
        far.put(f"k{number}", bytes([number]) * 40_000)
    values = [far._values[f"k{number}"] for number in range(50)]
    far.requests.clear()
    assert [store.get(f"k{number}") for number in range(50)] == values
    file = sqlite3.connect(tmp_path / FILE)
    assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()


def test_what_a_forked_child_keeps_outlives_its_parents_use(far, tmp_path):
    store, begun, closed = CachedStore(far, tmp_path), os.pipe(), os.pipe()
    store.get("a", ByteRange(0, 10))

    def read() -> None:
        store.get("a", ByteRange(20, 10))
        os.write(begun[1], b"1")
        os.read(closed[0], 1)
        store.get("a", ByteRange(40, 10))

    def close() -> None:
        os.read(begun[0], 1)
        store.close()
        os.write(closed[1], b"1")

    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(close)
        assert run_forked([read]) == [0]
        closing.result()
    assert disk_cache_info(tmp_path).range_count == 3
    for end in (*begun, *closed):
        os.close(end)


def test_a_cache_is_looked_at_and_cleared_while_it_is_used(far, tmp_path):
    with pytest.raises(NotFoundError, match="no cache"):
        disk_cache_info(tmp_path)
    store = CachedStore(far, tmp_path)
    far.put("b", bytes(50))
    store.get_many([("a", ByteRange(10, 20)), ("a", ByteRange(100, 5)), ("b", None)])
    info = disk_cache_info(tmp_path)
    assert (info.store_count, info.value_count, info.range_count) == (1, 2, 3)
    assert info.stored_size == 20 + 5 + 50 + 3 * 256 < info.file_size and abs(info.used - time.time()) < 60
    clear_disk_cache(tmp_path)
    assert disk_cache_info(tmp_path)[:1] == (0,) and disk_cache_info(tmp_path)[2:] == (0, 0, 0, None)
    far.requests.clear()
    assert store.get_many([("a", ByteRange(10, 20))]) == [bytes(range(10, 30))]
    assert far.requests == [("get", "a", ByteRange(10, 20))] and disk_cache_info(tmp_path).range_count == 1
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        clear_disk_cache(tmp_path)

"""The plugin as a third party's: the contract, maps that grow, forks, and two processes."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.extensions.registry import list_offers, stores
from zstore.storage.base import Store
from zstore.storage.url import open_store
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract

if not entry_points(group="zstore", name="lmdb"):
    pytest.skip("zstore-lmdb is not installed, so it has no entry point", allow_module_level=True)
lmdb = pytest.importorskip("lmdb")

SMALL = {"map_size": 1 << 20}


class TestLmdb(StoreContract):
    def make_store(self, place: Path) -> Store:
        return open_store(f"lmdb://{place}/a%20b%23.lmdb")


def test_the_registry_finds_it() -> None:
    assert stores.resolve("lmdb").__name__ == "LmdbStore"
    (line,) = [line for line in list_offers() if line.name == "lmdb"]
    assert (line.kind, line.package, line.state) == ("store", "zstore-lmdb", "ok")


def test_an_array(tmp_path: Path) -> None:
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    url = f"lmdb://{tmp_path}/x"
    zstore.create_array(url, "a", data=values, chunks=(10, 10), shards=(30, 40))
    assert np.array_equal(zstore.open_array(url, "a", mode="r")[5:35, 33::3], values[5:35, 33::3])


def test_the_layout_is_that_of_zarr_python_2(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a/.zarray", b"{}")
    store = open_store(f"lmdb://{tmp_path}")
    assert store.get("a/.zarray") == b"{}"
    store.put("b", b"1")
    store.close()
    with lmdb.open(str(tmp_path)) as environment, environment.begin() as transaction:
        assert transaction.get(b"b") == b"1"


def test_the_map_grows_under_many_threads(tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/x", storage_options=SMALL)
    values = {f"a/{i}": bytes([i]) * 100_000 for i in range(100)}
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for key in ("a/0", "a/50"):
                found = store.get(key)
                assert found is None or found == values[key]

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for _ in pool.map(lambda item: store.put(*item), values.items()):
            pass
        done.set()
        for reader in readers:
            reader.result()
    assert all(store.get(key) == value for key, value in values.items())


def _fill(url: str, name: str) -> None:
    store = open_store(url, storage_options=SMALL)
    for i in range(20):
        store.put(f"{name}/{i}", name.encode() * 200_000)


def test_the_map_grows_in_other_processes(tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/x", storage_options=SMALL)
    store.put("a", b"1")
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=_fill, args=(store.url, name)) for name in "xy"]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert store.get("x/19") == b"x" * 200_000
    assert len([*store.list()]) == 41
    store.put("b", bytes(5_000_000))
    assert store.size("b") == 5_000_000


def test_forking_while_threads_write(tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/x", storage_options=SMALL)
    done = threading.Event()

    def write(name: int) -> int:
        count = 0
        while not done.is_set():
            store.put(f"{name}/{count}", b"1" * 1000)
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(write, name) for name in range(2)]
        codes = [run_forked([lambda i=i: store.put(f"child/{i}", b"2")]) for i in range(5)]  # type: ignore[misc]
        done.set()
        counts = [task.result() for task in tasks]
    assert codes == [[0]] * 5
    assert len([*store.list("child")]) == 5
    assert [len([*store.list(str(name))]) for name in range(2)] == counts


def test_a_map_that_grows_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, errors = lmdb.open, [lmdb.MapResizedError("by another process")]

    def open_late(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return plain(*args, **options)

    monkeypatch.setattr(lmdb, "open", open_late)
    store = open_store(f"lmdb://{tmp_path}/x", storage_options=SMALL)
    store.put("a", b"1")
    assert (store.get("a"), errors) == (b"1", [])


def test_reading_makes_no_file(tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/x")
    assert store.get("a") is None
    assert [*store.list()] == []
    assert store.list_children() == []
    store.delete("a")
    store.delete_prefix("")
    assert [*tmp_path.iterdir()] == []


def test_keys_that_are_too_long_are_an_error(tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/x")
    with pytest.raises(StoreError, match="cannot write") as caught:
        store.put("a" * 512, b"1")
    assert caught.value.key == "a" * 512


def test_damage_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no such thing" * 1000)
    store = open_store(f"lmdb://{tmp_path}")
    with pytest.raises(StoreError, match="cannot read"):
        store.get("a")


@pytest.mark.parametrize("url", ["lmdb://", "lmdb:///", "lmdb://host/x", "lmdb:///x?a=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="expected lmdb:"):
        open_store(url)


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nonsense"):
        open_store(f"lmdb://{tmp_path}", storage_options={"nonsense": 1})

"""The plugin as a third party's: through its installed entry point, the contract, and two processes."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from zstore.errors import StoreError
from zstore.extensions.registry import list_offers, stores
from zstore.storage.base import ByteRange, Store
from zstore.storage.url import open_store
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract

if not entry_points(group="zstore", name="sqlite"):
    pytest.skip("zstore-sqlite is not installed, so it has no entry point", allow_module_level=True)


class TestSqlite(StoreContract):
    def make_store(self, place: Path) -> Store:
        return open_store(f"sqlite:///{place}/a%20b%23.db")


def test_the_registry_finds_it() -> None:
    assert stores.resolve("sqlite").__name__ == "SqliteStore"
    (line,) = [line for line in list_offers() if line.name == "sqlite"]
    assert (line.kind, line.package, line.state) == ("store", "zstore-sqlite", "ok")


def _add(url: str, key: str, count: int) -> None:
    store = open_store(url)
    for i in range(count):
        store.put(f"{key}/{i}", f"{key}{i}".encode())


def test_processes_write_side_by_side(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    store.put("a", b"1")
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=_add, args=(store.url, name, 100)) for name in "xyz"]
    for other in others:
        other.start()
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert len([*store.list()]) == 301
    assert store.get("y/99") == b"y99"
    store.close()


def test_forking_while_threads_write(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
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
    store.close()


def test_threads_that_make_a_file_together_wait_for_each_other(tmp_path: Path) -> None:
    for turn in range(40):
        store, met = open_store(f"sqlite:///{tmp_path}/{turn}.db"), threading.Barrier(6)

        def write(name: int, store: Store = store, met: threading.Barrier = met) -> None:
            met.wait(60)
            store.put(f"{name}", b"1")

        with ThreadPoolExecutor(6) as pool:
            [*pool.map(write, range(6))]
        assert len([*store.list()]) == 6
        store.close()


def test_a_folder_that_is_not_to_be_written_is_read() -> None:
    """Even while its owner changes the file, and after others have closed it."""
    with tempfile.TemporaryDirectory() as place:
        url, go, told = f"sqlite:///{place}/s.db", os.pipe(), os.pipe()
        owner = open_store(url)
        owner.put("a", b"0")
        owner.close()
        Path(place).chmod(0o555)

        def read() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may write everything
            for store in (open_store(url, read_only=True), open_store(url)):
                assert store.get("a") == b"0" and [*store.list()] == ["a"]
            with pytest.raises(StoreError, match="cannot write: attempt to write a readonly database"):
                store.put("a", b"1")
            for expected in (b"1", b"2", b"3"):
                os.write(told[1], b"1")
                os.read(go[0], 1)
                assert store.get("a") == expected

        def change() -> None:
            for value, is_closed in ((b"1", False), (b"2", True), (b"3", True)):
                os.read(told[0], 1)
                owner.put("a", value)
                if is_closed:
                    owner.close()
                os.write(go[1], b"1")

        with ThreadPoolExecutor(1) as pool:
            changing = pool.submit(change)
            codes = run_forked([read])
            os.write(told[1], b"111")  # where the reader has failed
            changing.result()
        assert codes == [0]
        Path(place).chmod(0o755)
        for end in (*go, *told):
            os.close(end)


def test_a_full_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    store.put("a", b"1")
    store.close()
    is_full, statvfs = [True], os.statvfs

    def full(place: Path) -> os.statvfs_result:
        found = statvfs(place)
        return os.statvfs_result((*found[:4], 0, *found[5:])) if is_full[0] else found

    monkeypatch.setattr(os, "statvfs", full)
    assert store.get("a") == b"1"
    assert [*tmp_path.iterdir()] == [tmp_path / "s.db"]  # SQLite would make more for readers
    is_full[0] = False
    store.delete("a")
    store.put("b", b"2")
    assert [*store.list()] == ["b"]
    store.close()


def test_listing_goes_on_after_a_page(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    keys = {f"a/{i}" for i in range(2500)}
    for key in keys:
        store.put(key, b"")
    assert {*store.list("a")} == keys
    store.close()


def test_reading_makes_no_file(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    assert store.get("a") is None
    assert [*store.list()] == []
    store.delete("a")
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"not a database" * 100)
    store = open_store(f"sqlite:///{tmp_path}/s.db", read_only=True)
    with pytest.raises(StoreError, match="not a database") as caught:
        store.get("a", ByteRange(0, 1))
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/x.db", "sqlite:///x.db?a=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="expected sqlite:"):
        open_store(url)

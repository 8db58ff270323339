"""DBM files: the contract for every kind that this Python has, who is kept out, and what a fork does."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from zstore_dbm.store import KINDS, DbmStore

import zstore
from zstore.errors import ReadOnlyError, StoreError
from zstore.extensions.registry import list_offers
from zstore.storage.base import Store
from zstore.storage.url import open_store
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract

if not entry_points(group="zstore", name="dbm"):
    pytest.skip("zstore-dbm is not installed, so it has no entry point", allow_module_level=True)


def find_gnu() -> None:
    """Debian's _gdbm, where this Python has none of its own and is of the same version."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for path in Path("/usr/lib").glob(f"python3*/lib-dynload/_gdbm{suffix}"):
        spec = importlib.util.spec_from_file_location("_gdbm", path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["_gdbm"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["_gdbm"])


if importlib.util.find_spec("_gdbm") is None:
    find_gnu()


def has_kind(kind: str) -> bool:
    try:
        importlib.import_module(f"dbm.{kind}")
    except ModuleNotFoundError:
        return False
    return True


class TestDumb(StoreContract):
    shares_processes = False  # one process at a time
    excludes_processes = False
    kind = "dumb"

    def make_store(self, place: Path) -> Store:
        return DbmStore(place / "a é%#", kind=self.kind)


class TestOpenedForEveryCall(TestDumb):
    """The way of dbm.sqlite3, which Python has from 3.13 on."""

    many = 30

    @pytest.fixture(autouse=True)
    def opening(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("zstore_dbm.store.OPENED_PER_CALL", "dbm.dumb")


if has_kind("gnu"):

    class TestGnu(TestDumb):
        kind = "gnu"


if has_kind("sqlite3"):

    class TestSqlite(TestDumb):
        kind = "sqlite3"


@pytest.mark.parametrize("kind", ["gnu", "sqlite3"])
def test_every_kind_is_held_to_the_contract(kind: str) -> None:
    if not has_kind(kind):
        pytest.skip(f"this Python has no dbm.{kind}")
    assert f"Test{ {'gnu': 'Gnu', 'sqlite3': 'Sqlite'}[kind] }" in globals()


class TestWhatThereIs(TestDumb):
    def make_store(self, place: Path) -> Store:
        return open_store(f"dbm://{place}/new/x")


def test_the_registry_finds_it() -> None:
    (line,) = [line for line in list_offers() if line.name == "dbm"]
    assert (line.kind, line.package, line.state) == ("store", "zstore-dbm", "ok")


def run(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    header = "import sys\nfrom zstore.storage.url import open_store\ns = open_store('dbm://' + sys.argv[1])\n"
    return subprocess.run([sys.executable, "-c", header + code, str(path)], capture_output=True, text=True)


def test_an_array_that_nobody_closed(tmp_path: Path) -> None:
    code = "import zstore, numpy\na = zstore.create_array(s, 'a', data=numpy.arange(100), chunks=(7,))"
    assert run(code, tmp_path / "x").stderr == ""
    array = zstore.open_array(f"dbm://{tmp_path}/x", "a", mode="r")
    assert np.array_equal(array[:], np.arange(100))


def test_other_processes_wait_for_close(tmp_path: Path) -> None:
    store = DbmStore(tmp_path / "x", kind="dumb")
    store.put("a", b"1")
    for code in ("s.get('a')", "s.put('b', b'2')"):
        store.get("a")
        if code == "s.put('b', b'2')":
            # Readers are let in together, a writer is not.
            store.close()
            reader = DbmStore(tmp_path / "x", read_only=True)
            assert reader.get("a") == b"1"
            assert run("assert s.get('a') == b'1'", tmp_path / "x").stderr == ""
        assert "another process has the database open" in run(code, tmp_path / "x").stderr
    store.close()
    assert run("s.put('b', b'2')", tmp_path / "x").stderr == ""
    assert store.get("b") == b"2"


def test_a_store_that_reads_gives_way_to_one_that_writes(tmp_path: Path) -> None:
    store = DbmStore(tmp_path / "x")
    store.put("a", b"1")
    store.close()
    reader = DbmStore(tmp_path / "x", read_only=True)
    assert reader.get("a") == b"1"
    store.put("a", b"2")
    assert reader.get("a") == b"2"
    with pytest.raises(ReadOnlyError):
        reader.put("a", b"3")


def test_parent_and_child_each_open_their_own(tmp_path: Path) -> None:
    store = DbmStore(tmp_path / "x", kind="dumb")
    store.put("a", b"1")

    def child() -> None:
        assert store.get("a") == b"1"
        store.put("b", b"2")
        store.close()

    assert run_forked([child]) == [0]
    assert store.get("b") == b"2"
    store.put("c", b"3")

    def refused() -> None:
        with pytest.raises(StoreError, match="another process has the database open"):
            store.put("d", b"4")

    reader, writer = run_parent_first(store, refused)
    assert (reader, writer) == ([0], b"3")


def run_parent_first(store: DbmStore, action: Callable[[], None]) -> tuple[list[int], object]:
    """The child's exit code, when the parent has opened the database again before it."""

    (begun, begin), (opened, open_) = os.pipe(), os.pipe()

    def late() -> None:
        os.write(begin, b"1")
        os.read(opened, 1)
        action()

    def put() -> None:
        os.read(begun, 1)
        store.put("e", b"5")
        os.write(open_, b"1")

    opening = threading.Thread(target=put)
    opening.start()
    codes = run_forked([late])
    opening.join()
    for end in (begun, begin, opened, open_):
        os.close(end)
    return codes, store.get("c")


def test_reading_makes_no_file(tmp_path: Path) -> None:
    store = open_store(f"dbm://{tmp_path}/x")
    assert store.get("a") is None
    assert [*store.list()] == []
    store.delete("a")
    store.delete_prefix("")
    assert [*tmp_path.iterdir()] == []


def test_damage_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.dat").write_bytes(b"")
    (tmp_path / "x.dir").write_text("'a', (0, what\n")
    with pytest.raises(StoreError, match="cannot read"):
        open_store(f"dbm://{tmp_path}/x").get("a")
    (tmp_path / "y").write_bytes(b"nothing that is known")
    with pytest.raises(StoreError, match="not a DBM file"):
        open_store(f"dbm://{tmp_path}/y").get("a")


def test_what_is_refused(tmp_path: Path) -> None:
    for url in ("dbm://", "dbm:///", "dbm://host/x", "dbm:///x?a=1"):
        with pytest.raises(StoreError, match="expected dbm:"):
            open_store(url)
    with pytest.raises(StoreError, match="nonsense"):
        open_store(f"dbm://{tmp_path}/x", storage_options={"nonsense": 1})
    with pytest.raises(StoreError, match="expected one of"):
        DbmStore(tmp_path / "x", kind="nonsense")
    with DbmStore(tmp_path / "x", kind="dumb") as store:
        store.put("a", b"1")
    with pytest.raises(StoreError, match=r"is dbm\.dumb, expected dbm\.gnu"):
        DbmStore(tmp_path / "x", kind="gnu").get("a")


def test_every_module_is_one_of_the_standard_library() -> None:
    assert {f"dbm.{kind}" for kind in KINDS} >= {*importlib.import_module("dbm")._names}  # type: ignore[attr-defined]

"""The plugin as a third party's: against mongod where there is one, and its logic against mongomock."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.extensions.registry import list_offers, stores
from zstore.storage.base import Store
from zstore.storage.url import open_store
from zstore.testing.stores import StoreContract

if not entry_points(group="zstore", name="mongodb"):
    pytest.skip("zstore-mongodb is not installed, so it has no entry point", allow_module_level=True)
pymongo = pytest.importorskip("pymongo")

SERVER = shutil.which("mongod")
numbers = count()


@pytest.fixture
def mocked() -> Iterator[None]:
    mongomock = pytest.importorskip("mongomock")
    with mongomock.patch(servers=(("mock.test", 27017),)):
        yield


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert SERVER is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tmp_path_factory.mktemp("mongodb")
    process = subprocess.Popen(
        [SERVER, "--port", str(port), "--bind_ip", "127.0.0.1", "--dbpath", str(place)],
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait()


if SERVER is not None:

    class TestMongodb(StoreContract):
        excludes_processes = False

        @pytest.fixture(autouse=True)
        def serving(self, address: str) -> None:
            self.address = address

        def make_store(self, place: Path) -> Store:
            return open_store(f"mongodb://{self.address}/test/c{next(numbers)}")


def test_a_real_server_is_held_to_the_contract() -> None:
    if SERVER is None:
        pytest.skip("mongod is not installed, and neither Debian nor PyPI has it")
    assert "TestMongodb" in globals()


class TestMongodbMock(StoreContract):
    excludes_processes = False
    shares_processes = False
    has_whole_puts = False  # mongomock changes documents while others read them
    many = 300  # each put looks at all documents

    @pytest.fixture(autouse=True)
    def serving(self, mocked: None) -> None:
        pass

    def make_store(self, place: Path) -> Store:
        return open_store(f"mongodb://mock.test/test/c{next(numbers)}")


def test_the_registry_finds_it() -> None:
    assert stores.resolve("mongodb").__name__ == "MongodbStore"
    (line,) = [line for line in list_offers() if line.name == "mongodb"]
    assert (line.kind, line.package, line.state) == ("store", "zstore-mongodb", "ok")


def test_an_array(mocked: None) -> None:
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    url = "mongodb://mock.test/test/array"
    zstore.create_array(url, "a", data=values, chunks=(10, 10), shards=(30, 40))
    assert np.array_equal(zstore.open_array(url, "a", mode="r")[5:35, 33::3], values[5:35, 33::3])


def test_the_layout_is_that_of_zarr_python_2(mocked: None) -> None:
    collection = pymongo.MongoClient("mock.test")["mongodb_zarr"]["zarr_collection"]
    collection.insert_one({"key": "a/.zarray", "value": b"{}"})
    store = open_store("mongodb://mock.test")
    assert store.get("a/.zarray") == b"{}"
    store.put("b", b"1")
    assert bytes(collection.find_one({"key": "b"})["value"]) == b"1"


def test_a_document_that_is_none_of_ours_is_an_error(mocked: None) -> None:
    pymongo.MongoClient("mock.test")["test"]["other"].insert_one({"key": "a"})
    with pytest.raises(StoreError, match="cannot read"):
        open_store("mongodb://mock.test/test/other").get("a")


def test_a_server_that_is_gone_is_no_missing_value() -> None:
    store = open_store(
        "mongodb://user:secret@127.0.0.1:9/x/y", storage_options={"serverSelectionTimeoutMS": 100}
    )
    acts: list[Any] = [store.get, store.size, store.list, store.delete, lambda key: store.put(key, b"")]
    for act in acts:
        with pytest.raises(StoreError, match="Connection refused") as caught:
            act("a")
        assert "secret" not in str(caught.value)
    assert store.url == "mongodb://user@127.0.0.1:9/x/y"
    store.close()


@pytest.mark.parametrize("url", ["mongodb://", "mongodb:///x", "mongodb://host/a/b/c", "mongodb://host/a#b"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="expected mongodb:"):
        open_store(url)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(StoreError, match="nonsense"):
        open_store("mongodb://127.0.0.1/x/y", storage_options={"nonsense": 1})

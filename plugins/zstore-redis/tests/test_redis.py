"""The plugin as a third party's, against a Redis server that the tests start."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.extensions.registry import list_offers, stores
from zstore.storage.base import ByteRange, Store
from zstore.storage.url import open_store
from zstore.testing.stores import StoreContract

if not entry_points(group="zstore", name="redis"):
    pytest.skip("zstore-redis is not installed, so it has no entry point", allow_module_level=True)
redis = pytest.importorskip("redis")
SERVER = shutil.which("redis-server")
if SERVER is None:
    pytest.skip("redis-server is not installed (.ci/servers installs it)", allow_module_level=True)

numbers = count()


class Server(NamedTuple):
    address: str
    process: subprocess.Popen[bytes]


def start(place: Path, *options: str) -> Server:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place))
    process = subprocess.Popen([str(SERVER), *own, *options], stdout=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return Server(f"127.0.0.1:{port}", process)
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.02)


def stop(server: Server) -> None:
    server.process.terminate()
    server.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start(tmp_path_factory.mktemp("redis"))
    yield server
    stop(server)


@pytest.fixture
def url(server: Server) -> str:
    return f"redis://{server.address}/0/test-{next(numbers)}"


class TestRedis(StoreContract):
    @pytest.fixture(autouse=True)
    def serving(self, server: Server) -> None:
        self.server = server

    def make_store(self, place: Path) -> Store:
        return open_store(f"redis://{self.server.address}/1/{next(numbers)}%20%2A%5B%2F")


def test_the_registry_finds_it() -> None:
    assert stores.resolve("redis").__name__ == "RedisStore"
    (line,) = [line for line in list_offers() if line.name == "redis"]
    assert (line.kind, line.package, line.state) == ("store", "zstore-redis", "ok")


def test_an_array(url: str) -> None:
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    zstore.create_array(url, "a", data=values, chunks=(10, 10), shards=(30, 40))
    assert np.array_equal(zstore.open_array(url, "a", mode="r")[5:35, 33::3], values[5:35, 33::3])
    assert [*zstore.open_group(url, mode="r+")] == ["a"]


def test_prefixes_are_apart(server: Server) -> None:
    one, other, more = (open_store(f"redis://{server.address}/2/{name}") for name in ("x", "x*", "xy"))
    for store in (one, other, more):
        store.put("a", store.url.encode())
    one.delete_prefix("")
    assert [*one.list()] == []
    assert other.get("a") == other.url.encode()
    assert [*more.list()] == ["a"]


def test_the_layout_is_that_of_zarr_python_2(server: Server) -> None:
    host, _, port = server.address.partition(":")
    client = redis.Redis(host, int(port), 3)
    client["zarr:a/.zarray"] = b"{}"
    store = open_store(f"redis://{server.address}/3")
    assert store.get("a/.zarray") == b"{}"
    assert [*store.list()] == ["a/.zarray"]
    store.put("b", b"1")
    assert client["zarr:b"] == b"1"
    client.close()


def test_a_lock_is_renewed_while_it_is_held(url: str) -> None:
    store = open_store(url, storage_options={"lock_timeout": 0.9})
    other = open_store(url, storage_options={"lock_timeout": 0.9})
    order: list[str] = []

    def wait() -> None:
        # Not through the same process's shortcut, but as another machine would.
        held = other._client.lock(f"zstore-lock:{other._name('a')}", timeout=0.9, sleep=0.005)  # type: ignore[attr-defined]
        held.acquire()
        order.append("other")
        held.release()

    with store.lock("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(1.2)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_a_lock_that_was_lost_is_an_error(url: str) -> None:
    store: Any = open_store(url)
    with pytest.raises(StoreError, match="cannot unlock") as caught, store.lock("a"):
        store._client.delete(f"zstore-lock:{store._name('a')}")
    assert caught.value.key == "a"


def test_what_fails_is_no_missing_value(tmp_path: Path) -> None:
    server = start(tmp_path, "--requirepass", "secret", "--maxmemory", "3mb", "--proto-max-bulk-len", "2mb")
    url = f"redis://{server.address}/0"
    try:
        with pytest.raises(StoreError, match=r"[Aa]uthenticat"):
            open_store(url).get("a")
        with pytest.raises(StoreError):
            open_store(f"redis://:wrong@{server.address}/0").get("a")
        store = open_store(f"redis://:secret@{server.address}/0")
        assert "secret" not in store.url
        assert "secret" not in repr(store)
        store.put("a", b"1")
        assert open_store(store.url, storage_options={"password": "secret"}).get("a") == b"1"
        with pytest.raises(StoreError, match="cannot write"):
            store.put("big", bytes(5_000_000))
        store._client.lpush("zarr:list", "x")  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="WRONGTYPE"):
            store.get("list")
    finally:
        stop(server)
    for act in (store.get, store.size, store.list, store.delete, lambda key: store.get(key, ByteRange(-4))):
        with pytest.raises(StoreError):
            act("a")
    store.close()


@pytest.mark.parametrize("url", ["redis://", "redis:///0", "redis://host/x", "redis://host/0/x?a=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="expected redis:"):
        open_store(url)


def test_unknown_options_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="nonsense"):
        open_store(url, storage_options={"nonsense": 1}).get("a")

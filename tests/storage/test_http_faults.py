"""HTTP servers that fail, stall, lie or never end: what is asked again, what ends, and after how much."""

from __future__ import annotations

import gzip
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.limits import current_limits
from zstore.errors import CodecError, MetadataError, NotFoundError, StoreError
from zstore.storage import remote
from zstore.storage.base import AtMost, ByteRange, Store
from zstore.storage.fsspec import FsspecStore
from zstore.storage.memory import MemoryStore
from zstore.storage.objects.store import ObjectStore

pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")

Reach = Callable[[str], Store]
MIB = 1 << 20
BOMB = gzip.compress(bytes(64 * MIB))
# Of bodies that stall: soon enough for a test, and long enough for a machine that is busy.
STALLED = 1.0


class Server:
    """Values by path; `faults` has, by path, what goes wrong with each request in turn, then nothing does."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.faults: dict[str, Iterator[str]] = {}
        self.requests: list[str] = []
        self.sent = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path[1:]
                server.requests.append(path)
                fault = next(server.faults.get(path, iter(())), "")
                try:
                    server.answer(self, path, fault)
                except OSError:
                    self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"
        self.is_closing = threading.Event()
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler, path: str, fault: str) -> None:
        value = self.values.get(path)
        if fault.isdecimal() or value is None:
            self.head(request, int(fault or 404), {"Content-Length": "0", "Retry-After": "0"})
            return
        if fault == "reset":
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.connection.close()
            request.close_connection = True  # else it stays open, as the request's files hold it
            return
        if fault in ("endless", "bomb"):
            self.head(request, 200, {"Content-Encoding": "gzip"} if fault == "bomb" else {}, closes=True)
            zeros = BOMB if fault == "bomb" else bytes(MIB)
            while not self.is_closing.is_set() and self.sent < 256 * MIB:
                request.wfile.write(zeros)
                self.sent += len(zeros)
            return
        status, headers = 200, {}
        wanted = request.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin = int(first) if first else max(0, len(value) - int(last))
            end = min(len(value), int(last) + 1) if first and last else len(value)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(value)}"
            status, value = 206, value[begin:end]
        self.head(request, status, {**headers, "Content-Length": str(len(value))})
        if fault == "cut":
            request.wfile.write(value[: len(value) // 2])
            request.close_connection = True
        elif fault == "stall":
            request.wfile.write(value[:1])
            self.is_closing.wait(30)
        elif fault == "drip":
            for byte in value:
                request.wfile.write(bytes([byte]))
                if self.is_closing.wait(0.05):
                    return
        else:
            request.wfile.write(value)

    @staticmethod
    def head(
        request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], *, closes: bool = False
    ) -> None:
        request.send_response(status)
        for name, text in headers.items():
            request.send_header(name, text)
        if closes:
            request.send_header("Connection", "close")
            request.close_connection = True
        request.end_headers()

    def close(self) -> None:
        self.is_closing.set()
        self.httpd.shutdown()
        self.thread.join()
        self.httpd.server_close()


@pytest.fixture(params=["libcurl", "obstore", "fsspec"])
def reach(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Reach:
    """How a web server is reached: by libcurl and obstore, as far as they can, or by fsspec."""
    if request.param == "fsspec":
        return FsspecStore
    monkeypatch.setenv("ZSTORE_LIBCURL", "on" if request.param == "libcurl" else "off")
    pytest.importorskip("obstore", reason="obstore is not installed")
    return ObjectStore


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    zstore.set_limits(
        read_time=None, value_size=None, document_size=None, attempt_count=None, total_time=None
    )
    server.close()


@pytest.mark.parametrize("fault", ["429", "500", "502", "503", "504", "reset", "cut", "stall", "drip"])
@pytest.mark.parametrize("wish", [None, ByteRange(100, 5000)], ids=["whole", "range"])
def test_what_may_pass_is_asked_again(
    server: Server, reach: Reach, fault: str, wish: ByteRange | None
) -> None:
    zstore.set_limits(read_time=STALLED if fault in ("stall", "drip") else None)
    value = bytes(range(256)) * 40
    server.values["a"] = value
    server.faults["a"] = iter([fault])
    begin, end = (wish or ByteRange(0)).resolve(len(value))
    assert bytes(reach(server.url).get("a", wish) or b"") == value[begin:end]
    assert server.requests == ["a", "a"]


@pytest.mark.parametrize("fault", ["503", "reset", "cut", "stall", "drip"])
def test_what_does_not_pass_ends(server: Server, reach: Reach, fault: str) -> None:
    zstore.set_limits(read_time=STALLED if fault in ("stall", "drip") else None)
    server.values["a"] = bytes(10_000)
    server.faults["a"] = itertools.repeat(fault)
    with pytest.raises(StoreError, match="cannot read") as caught:
        reach(server.url).get("a")
    assert caught.value.key == "a"
    # Each time that a connection is reset, aiohttp asks once more by itself.
    assert server.requests == ["a"] * (6 if fault == "reset" and reach is FsspecStore else 3)
    assert fault != "drip" or "limit read_time" in str(caught.value)


@pytest.mark.parametrize("fault", ["400", "401", "403", "410"])
def test_what_will_not_pass_is_asked_once(server: Server, reach: Reach, fault: str) -> None:
    server.values["a"] = b"x"
    server.faults["a"] = itertools.repeat(fault)
    with pytest.raises(StoreError):
        reach(server.url).get("a")
    assert server.requests == ["a"]


def test_the_number_of_attempts_is_a_limit(server: Server, reach: Reach) -> None:
    zstore.set_limits(attempt_count=1)
    server.values["a"] = b"x"
    server.faults["a"] = iter(["503"])
    with pytest.raises(StoreError, match="503"):
        reach(server.url).get("a")
    assert server.requests == ["a"]


def test_by_default_a_stalled_body_ends_within_90_seconds() -> None:
    zstore.set_limits(read_time=None, attempt_count=None, connect_time=None)
    limits, longest = current_limits(), remote.LAST_PAUSE
    assert limits.attempt_count * limits.read_time + (limits.attempt_count - 1) * longest < 90


@pytest.mark.parametrize("fault", ["endless", "bomb"])
def test_an_endless_body_is_read_no_further_than_the_limit(server: Server, reach: Reach, fault: str) -> None:
    zstore.set_limits(value_size=4 * MIB)
    server.values["a"] = b"x"
    server.faults["a"] = itertools.repeat(fault)
    with pytest.raises(StoreError, match="goes on after 4194304 bytes, the limit value_size"):
        reach(server.url).get("a")
    # obstore gives up where no length is said, and fsspec goes on.
    assert server.requests == ["a"] * (1 if reach is FsspecStore else 2)
    data = reach(server.url).get("a", AtMost(1000))
    assert bytes(data or b"") == bytes(1000)
    assert server.sent < 64 * MIB


def test_an_endless_document_and_an_endless_chunk_are_errors(server: Server, reach: Reach) -> None:
    store = MemoryStore()
    array = zstore.create_array(store, "a", data=np.arange(100), chunks=100)
    zstore.set_limits(document_size=MIB)
    server.values = dict(store._values)
    array = zstore.open_array(reach(server.url), "a")
    assert array[...].tolist() == [*range(100)]
    server.faults["a/c/0"] = itertools.repeat("endless")
    with pytest.raises(CodecError):
        array[...]
    server.faults["a/zarr.json"] = itertools.repeat("endless")
    with pytest.raises(MetadataError, match="more than 1048576 bytes, the limit document_size"):
        zstore.open_array(reach(server.url), "a")
    assert server.sent < 64 * MIB


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_document_that_may_not_be_read_hides_no_other(
    server: Server, reach: Reach, zarr_format: int
) -> None:
    """As object storage answers to those who may read and not list, of all that is not there."""
    store = MemoryStore()
    zstore.create_array(store, "a", data=np.arange(10), zarr_format=zarr_format)
    server.values = dict(store._values)
    for name in ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "meta", "attrs"):
        for path in (f"a/{name}", f"b/{name}"):
            if path not in server.values:
                server.values[path] = b"secret"
                server.faults[path] = itertools.repeat("403")
    assert zstore.open(reach(server.url), "a")[...].tolist() == [*range(10)]
    with pytest.raises(StoreError, match="403"):
        zstore.open(reach(server.url), "b")
    with pytest.raises(NotFoundError):
        zstore.open(reach(server.url), "c")


def test_where_no_server_is_nobody_asks_again(reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", None)  # would be an error where there is a pause
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(StoreError, match=r"ClientConnectorError|no server answers there"):
            reach(f"http://127.0.0.1:{free.getsockname()[1]}").get("a")

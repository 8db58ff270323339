"""The fsspec store against servers with latency, versions and faults; the contract is in test_contract.py."""

from __future__ import annotations

import hashlib
import multiprocessing
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import StoreError
from zstore.storage.fsspec import FsspecStore
from zstore.storage.memory import MemoryStore

pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")


class Server:
    """A loopback HTTP server that says sizes and versions, as object storage does, and can misbehave."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.delay = 0.0
        self.busy = self.most_busy = 0
        self.knows_ranges = True
        self.breaks_off = False
        self.tag = '"{}"'
        self.guard = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                with server.guard:
                    server.busy += 1
                    server.most_busy = max(server.most_busy, server.busy)
                    server.requests.append((self.path[1:], self.headers.get("Range")))
                time.sleep(server.delay)
                with server.guard:
                    server.busy -= 1
                server.answer(self, self.headers.get("Range"))

            def log_message(self, *args: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.httpd = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler, wanted: str | None) -> None:
        value = self.values.get(request.path[1:])
        status, body, headers = (404, b"", {}) if value is None else (200, value, {})
        if value is not None:
            headers["ETag"] = self.tag.format(hashlib.md5(value).hexdigest())
        if value is not None and wanted and self.knows_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(value) - int(last))
            stop = min(len(value), int(last) + 1) if first and last else len(value)
            if start < stop:
                status, body = 206, value[start:stop]
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(value)}"
            else:
                status, body = 416, b""
                headers["Content-Range"] = f"bytes */{len(value)}"
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            request.send_header(name, text)
        request.end_headers()
        if self.breaks_off and len(body) > 10:
            request.wfile.write(body[: len(body) // 2])
            request.wfile.flush()
            request.close_connection = True
            request.connection.shutdown(2)
            return
        request.wfile.write(body)

    def close(self) -> None:
        self.httpd.shutdown()
        self.thread.join()
        self.httpd.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_parts_come_with_size_and_version_in_one_request(server: Server) -> None:
    server.values["a"] = bytes(range(100))
    store = FsspecStore(server.url)
    requests = [ByteRange(-10), ByteRange(20, 5), None, ByteRange(90, 50), ByteRange(100, 5), ByteRange(500)]
    for byte_range in requests:
        server.requests.clear()
        [part] = store.get_parts([("a", byte_range)])
        begin, end = (byte_range or ByteRange(0)).resolve(100)
        assert part is not None
        assert bytes(part.data) == bytes(range(100))[begin:end]
        assert part.total_size == 100
        assert part.version == f'"{hashlib.md5(server.values["a"]).hexdigest()}"'
        assert len(server.requests) == 1
    assert store.get_parts([("b", None), ("b", ByteRange(-4))]) == [None, None]


def test_a_weak_tag_is_no_version(server: Server) -> None:
    server.tag = 'W/"{}"'
    server.values["a"] = b"0123456789"
    [part] = FsspecStore(server.url).get_parts([("a", ByteRange(0, 2))])
    assert part is not None
    assert part.version is None


def test_many_requests_are_under_way_at_once(server: Server) -> None:
    server.values.update({f"{n}": bytes([n]) * 100 for n in range(100)})
    server.delay = 0.05
    store = FsspecStore(server.url)
    found = store.get_many([(f"{n}", None) for n in range(100)])
    assert [bytes(value or b"") for value in found] == [bytes([n]) * 100 for n in range(100)]
    assert len(server.requests) == 100
    assert 32 <= server.most_busy <= 64


def test_the_same_is_asked_for_once(server: Server) -> None:
    server.values["a"] = bytes(range(100))
    assert (
        FsspecStore(server.url).get_many([("a", None)] * 3 + [("a", ByteRange(5, 5))] * 3)
        == [bytes(range(100))] * 3 + [bytes(range(5, 10))] * 3
    )
    assert sorted(server.requests, key=str) == [("a", "bytes=5-9"), ("a", None)]


def test_a_server_that_ignores_ranges_is_asked_for_the_whole_once(server: Server) -> None:
    server.knows_ranges = False
    server.values["a"] = bytes(range(100))
    store = FsspecStore(server.url)
    assert store.get("a", ByteRange(10, 5)) == bytes(range(10, 15))
    server.requests.clear()
    wanted = [ByteRange(0, 5), ByteRange(50, 5), ByteRange(-5), ByteRange(-9, 3), ByteRange(7, 0)]
    for part, byte_range in zip(store.get_parts([("a", one) for one in wanted]), wanted, strict=True):
        begin, end = byte_range.resolve(100)
        assert part is not None
        assert bytes(part.data) == bytes(range(begin, end))
        assert part.total_size == 100
    assert server.requests == [("a", None)]


@pytest.mark.parametrize("byte_range", [None, ByteRange(0, 500), ByteRange(-500)])
def test_a_body_that_breaks_off_is_an_error(server: Server, byte_range: ByteRange | None) -> None:
    server.values["a"] = bytes(1000)
    server.breaks_off = True
    with pytest.raises(StoreError) as caught:
        FsspecStore(server.url).get("a", byte_range)
    assert caught.value.key == "a"


def test_an_array_by_http_from_many_threads(server: Server) -> None:
    memory = MemoryStore()
    values = np.arange(64 * 64).reshape(64, 64)
    zstore.create_array(memory, "a", data=values, chunks=(8, 8), shards=(32, 32))
    server.values.update({key: bytes(memory.get(key) or b"") for key in memory.list()})
    array = zstore.open_array(f"{server.url}", "a", mode="r")
    server.requests.clear()
    assert array[0, 0] == 0
    assert [wanted for _, wanted in server.requests] == ["bytes=-260", server.requests[1][1]]
    assert len(server.requests) == 2
    wrong: list[Any] = []

    def read(n: int) -> None:
        for _ in range(5):
            if not np.array_equal(array[n : n + 40, n:], values[n : n + 40, n:]):
                wrong.append(n)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def _read(store: FsspecStore, answers: Any) -> None:
    answers.put(bytes(store.get("a") or b""))


def test_a_forked_process_opens_the_filesystem_again(server: Server) -> None:
    server.values["a"] = b"0123456789"
    store = FsspecStore(server.url)
    assert store.get("a") == b"0123456789"
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with warnings.catch_warnings():
        # From Python 3.12 on, forking beside other threads warns; here that is the question.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_read, args=(store, answers), daemon=True)
        process.start()
    try:
        assert answers.get(timeout=30) == b"0123456789"
    finally:
        process.join(30)
        assert process.exitcode == 0
    assert store.get("a") == b"0123456789"

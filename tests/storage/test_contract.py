"""The store contract, over every store that comes with zstore."""

from __future__ import annotations

import inspect
import random
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

import zstore
from zstore._ext.engine import files
from zstore.errors import NotFoundError, ReadOnlyError, StoreError
from zstore.storage.base import CAPABILITIES, OPENING, PRIMITIVES, BatchStore, PrefixStore, Store
from zstore.storage.fsspec import FsspecStore
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.objects.store import ObjectStore
from zstore.storage.url import open_store
from zstore.storage.zip.store import ZipStore
from zstore.testing.stores import StoreContract


class TestMemory(StoreContract):
    can_pickle = False  # another process would find it empty
    shares_processes = False
    excludes_processes = False

    def make_store(self, place: Path) -> MemoryStore:
        return MemoryStore(str(place).replace("/", "-"))


def test_memory_looks_at_no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    store, chance = MemoryStore(), random.Random(0)
    names = ["/".join(chance.choices("abc", k=chance.randrange(1, 5))) for _ in range(400)]
    known = dict[str, bytes]()
    for name in names + names:
        if chance.random() < 0.6:
            known[name] = b"1"
            store.put(name, b"1")
        else:
            known.pop(name, None)
            store.delete(name)
        at = chance.choice(["", "a", "a/b", *names])
        start = at and f"{at}/"
        below = sorted(key for key in known if key.startswith(start))
        assert sorted(store.list(at)) == below
        assert store.list_children(at) == sorted({key[len(start) :].partition("/")[0] for key in below})
    zstore.create_group(store, overwrite=True)

    def look(*_: Any) -> Any:
        raise AssertionError("all keys were looked at")

    for method in ("copy", "__iter__", "keys", "items"):
        monkeypatch.setattr(type(store._values), method, look, raising=False)
    array = zstore.create_array(store, "new/b", data=np.arange(3))
    assert array[1] == 1 and sorted(store.list("new/b")) == ["new/b/c/0", "new/b/zarr.json"]


class TestLocal(StoreContract):
    def make_store(self, place: Path) -> LocalStore:
        return LocalStore(place / "a store with % and é")


class TestDurableLocal(StoreContract):
    many = 20  # the disk confirms each

    def make_store(self, place: Path) -> LocalStore:
        return LocalStore(place / "store", durable=True)


class TestLocalWithoutOpenat2(TestLocal):
    @pytest.fixture(autouse=True)
    def old_kernel(self) -> Iterator[None]:
        files.use_openat2(False)
        yield
        files.use_openat2(True)


class TestPrefix(StoreContract):
    def make_store(self, place: Path) -> PrefixStore:
        return PrefixStore(LocalStore(place / "store"), "below/here")


class TestFsspecMemory(StoreContract):
    can_reopen = False  # "memory://" is zstore's own store
    has_whole_puts = False
    shares_processes = False
    excludes_processes = False

    def make_store(self, place: Path) -> FsspecStore:
        return FsspecStore(f"memory://{place}")


class TestFsspecLocal(StoreContract):
    can_reopen = False  # "file://" opens a LocalStore
    has_whole_puts = False
    excludes_processes = False

    def make_store(self, place: Path) -> FsspecStore:
        return FsspecStore(f"file://{place}/store")


class Server:
    """A loopback HTTP server of some values, which can be told to misbehave."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.status: int | None = None
        self.knows_ranges = True
        self.requests: list[tuple[str, str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                outer.answer(self, with_body=True)

            def do_HEAD(self) -> None:
                outer.answer(self, with_body=False)

            def log_message(self, *args: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # more than connect at once, or one waits a second to try again

        self.httpd = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.httpd.shutdown()
        self.thread.join()
        self.httpd.server_close()

    def answer(self, request: BaseHTTPRequestHandler, *, with_body: bool) -> None:
        wanted = request.headers.get("Range")
        path, _, query = request.path.partition("?")
        self.requests.append((request.command, path, wanted))
        value = self.values.get(unquote(path[1:]) + (f"?{query}" if query else ""))
        status, body = (404, b"no such thing") if value is None else (200, value)
        if self.status is not None:
            status, body = self.status, b"refused"
        elif value is not None and wanted and self.knows_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(value) - int(last))
            stop = int(last) + 1 if first and last else len(value)
            status, body = (206, value[start:stop]) if start < len(value) else (416, b"")
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        if self.knows_ranges:
            request.send_header("Accept-Ranges", "bytes")
        request.end_headers()
        if with_body:
            request.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    server = Server()
    yield server
    server.close()


class TestHttp(StoreContract):
    can_write = False
    can_list = False

    @pytest.fixture(autouse=True)
    def serving(self, server: Server) -> None:
        self.server = server

    def make_store(self, place: Path) -> FsspecStore:
        return FsspecStore(f"{self.server.url}/{place.name}.zarr")

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> FsspecStore:
        self.server.values.update({f"{place.name}.zarr/{key}": value for key, value in values.items()})
        return self.make_store(place)


class TestHttpWithoutRanges(TestHttp):
    @pytest.fixture(autouse=True)
    def ignoring(self, serving: None) -> None:
        self.server.knows_ranges = False


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_http_error_is_not_a_missing_value(server: Server, status: int) -> None:
    server.values["s/a"] = b"0123456789"
    server.status = status
    store = FsspecStore(f"{server.url}/s")
    with pytest.raises(StoreError, match=str(status)) as caught:
        store.get("a")
    assert caught.value.key == "a"
    with pytest.raises(StoreError):
        store.get_many([("a", None), ("b", None)])
    with pytest.raises(StoreError):
        store.size("a")
    server.status = None
    assert store.get("a") == b"0123456789"
    assert store.get("b") is None


def test_an_http_server_that_is_gone_is_an_error() -> None:
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    gone = Server()
    gone.close()
    with pytest.raises(StoreError, match="cannot read"):
        FsspecStore(gone.url).get("a")


def test_http_is_read_only_and_has_no_listing(server: Server) -> None:
    store = FsspecStore(server.url)
    with pytest.raises(ReadOnlyError):
        store.put("a", b"")
    with pytest.raises(StoreError, match="HTTP has no listing"):
        store.list()


def test_a_url_with_a_signature_keeps_it_behind_the_key(server: Server) -> None:
    server.values["s/a/b?sig=xy&n=1"] = b"signed"
    store = FsspecStore(f"{server.url}/s?sig=xy&n=1")
    assert store.get("a/b") == b"signed"
    below = PrefixStore(store, "a")
    assert below.url == f"{server.url}/s/a?sig=xy&n=1"
    assert open_store(below.url).get("b") == b"signed"
    with pytest.raises(NotFoundError, match=f"{server.url}/s/a/c\\?sig=...&n=1'"):
        zstore.open(below, "c")


def test_neighbouring_ranges_become_one_request(server: Server) -> None:
    from zstore.base.byterange import ByteRange

    server.values["s/a"] = bytes(range(200)) * 100
    store = FsspecStore(f"{server.url}/s")
    assert store.get("a", ByteRange(0, 4)) == bytes(range(4))
    server.requests.clear()
    found = store.get_many([("a", ByteRange(100 * i, 10)) for i in range(50)])
    assert [bytes(value or b"") for value in found] == [
        server.values["s/a"][100 * i : 100 * i + 10] for i in range(50)
    ]
    assert server.requests == [("GET", "/s/a", "bytes=0-4909")]


def test_the_page_on_plugins_has_every_method_of_a_store() -> None:
    page = Path(__file__).parents[2].joinpath("docs/plugins.md").read_text()
    primitives = re.findall(r"^\| `(\w+)[^|]*\| [^|]*\| [^|]*\|$", page, re.MULTILINE)
    assert [name for name in primitives if name in PRIMITIVES] == [*PRIMITIVES] and len(PRIMITIVES) == 12
    rows = re.findall(r"^\| (\w+) \| (`[^|]*`) \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE)
    assert {name: tuple(re.findall(r"`(\w+)`", methods)) for name, methods, _ in rows} == CAPABILITIES
    for name, _, who in rows:
        for kind in (FsspecStore, LocalStore, MemoryStore, ObjectStore, ZipStore):
            # A `BatchStore` reads many at once, and need not be named.
            is_named_together = name == "many" and issubclass(kind, BatchStore)
            has_it = any(each in vars(kind) for each in CAPABILITIES[name]) and not is_named_together
            assert (f"`{kind.__name__}`" in who) == has_it, (name, kind)
    made = {"update", "holder"}
    methods = {name for name in vars(Store) if name[0] != "_" and callable(getattr(Store, name))} | {"url"}
    assert methods == {*PRIMITIVES, *OPENING, *chain(*CAPABILITIES.values())} | made


def test_a_view_forwards_whatever_a_store_can() -> None:
    """Each method that concerns keys is asked of the store, with absolute keys and all its arguments."""
    calls: list[tuple[str, tuple[Any, ...]]] = []

    class Recording(MemoryStore):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if not callable(found) or name.startswith("_"):
                return found
            return lambda *arguments: calls.append((name, arguments))

    firsts = {"key": "k", "keys": ["k"], "prefix": "k", "prefixes": ["k"], "requests": [("k", None)]}
    absolute = {
        "key": "a/b/k",
        "keys": ["a/b/k"],
        "prefix": "a/b/k",
        "prefixes": ["a/b/k"],
        "requests": [("a/b/k", None)],
    }
    # These are made of the others: the view's own `lock` is used by them.
    own = {"update", "check_writable"}
    view = PrefixStore(Recording(), "a/b")
    count = 0
    for name, method in inspect.getmembers(Store, inspect.isfunction):
        parameters = [*inspect.signature(method).parameters]
        if name.startswith("_") or name in own or parameters[1:2] == [] or parameters[1] not in firsts:
            continue
        rest = tuple(object() for _ in parameters[2:])
        calls.clear()
        getattr(view, name)(firsts[parameters[1]], *rest)
        assert calls == [(name, (absolute[parameters[1]], *rest))], name
        count += 1
    assert count > 20

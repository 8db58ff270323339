"""A reference is a promise about a file: a source that has changed, or may not be read, is an error."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not entry_points(group="zstore", name="virtual"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.forms import open_manifest
from zstore_virtual.parquet import write_parquet

import zstore
from zstore.errors import StoreError
from zstore.storage.local import LocalStore

ITEMS = np.arange(100, dtype="<i4")


def array_document(filters: Any = None) -> str:
    document = {"zarr_format": 2, "shape": [100], "chunks": [10], "dtype": "<i4", "order": "C"}
    return json.dumps({**document, "compressor": None, "fill_value": -1, "filters": filters})


# Read by the compiled batch, and one by one through a codec in Python.
WAYS = {"batch": None, "python": [{"id": "delta", "dtype": "<i4"}]}


def stored(way: str) -> bytes:
    if WAYS[way] is None:
        return ITEMS.tobytes()
    chunks = ITEMS.reshape(10, 10)
    return np.diff(chunks, prepend=np.zeros((10, 1), "<i4")).astype("<i4").tobytes()


def refer(place: Path, address: str, way: str, *, name: str = "r.json", **facts: Any) -> str:
    """References to ten chunks that lie one after the other at an address, 8 bytes into it."""
    refs: dict[str, Any] = {str(n): [address, 8 + 40 * n, 40] for n in range(10)}
    said: dict[str, Any] = {"version": 1, "refs": {".zarray": array_document(WAYS[way]), **refs}}
    if facts:
        said["zstore"] = {"sources": {address: facts}}
    place.mkdir(exist_ok=True)
    (place / name).write_text(json.dumps(said))
    return str(place / name)


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_has_changed_is_an_error(tmp_path: Path, way: str) -> None:
    file, content = tmp_path / "a.bin", b"a header" + stored(way)
    file.write_bytes(content)
    os.utime(file, ns=(10**18, 10**18))
    path = refer(tmp_path, str(file), way, size=len(content), modified=10**18)

    def fails(message: str) -> None:
        opened = zstore.open(path)
        for array in (kept, opened):
            with pytest.raises(StoreError, match=message) as caught:
                array[...]
            assert str(file) in str(caught.value)

    kept = zstore.open(path)
    assert np.array_equal(kept[...], ITEMS)
    file.write_bytes(content[:-4])
    os.utime(file, ns=(10**18, 10**18))
    fails(r"has 404 bytes|has changed")
    file.write_bytes(content + b"more")
    os.utime(file, ns=(10**18, 10**18))
    fails("has changed")
    file.write_bytes(content[::-1])  # of the same size
    os.utime(file, ns=(10**18 + 1, 10**18 + 1))
    fails("modified at another time")
    other = tmp_path / "other"
    other.write_bytes(content[::-1])
    other.replace(file)
    fails("modified at another time")
    file.unlink()
    fails("No such file")
    file.mkdir()
    fails("Invalid argument|expected a plain file")
    file.rmdir()
    file.write_bytes(content)
    os.utime(file, ns=(10**18, 10**18))
    assert np.array_equal(kept[...], ITEMS)


@pytest.mark.parametrize("way", WAYS)
def test_a_source_of_unknown_size_must_hold_the_byte_range(tmp_path: Path, way: str) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes((b"a header" + stored(way))[:-1])
    array = zstore.open(refer(tmp_path, str(file), way))
    assert np.array_equal(array[:90], ITEMS[:90])
    for select in (slice(None), slice(99, 100), slice(90, 91)):
        with pytest.raises(StoreError, match="407 bytes; expected 408 at least"):
            array[select]
    with pytest.raises(StoreError, match="407 bytes; expected 408 at least"):
        array.vindex[[0, 99]]


@pytest.mark.parametrize("way", WAYS)
def test_local_references_lead_no_further_than_the_caller_said(tmp_path: Path, way: str) -> None:
    out, refs = tmp_path / "out", tmp_path / "refs"
    for place in (out, refs):
        place.mkdir()
        (place / "a.bin").write_bytes(b"a header" + stored(way))
    (refs / "inside").symlink_to("a.bin")
    (refs / "link").symlink_to(out / "a.bin")
    (refs / "links").symlink_to(out)
    (out / "door").symlink_to(refs)

    def read(address: str, **options: Any) -> Any:
        return zstore.open(refer(refs, address, way), storage_options=options or None)[...].tolist()

    for address in (
        f"{refs}/a.bin",
        "a.bin",
        f"file://{refs}/a.bin",
        "./inside",
        f"{refs}/../refs/a.bin",
        f"/{refs}//a.bin",
    ):
        assert read(address) == ITEMS.tolist(), address
    outside = [
        f"{out}/a.bin",
        "../out/a.bin",
        f"file://{out}/a.bin",
        f"{refs}/../out/a.bin",
        f"{refs}x/a.bin",
    ]
    outside += [f"local://{out}/a.bin", str(refs), "", "."]
    for address in outside:
        with pytest.raises(StoreError, match="outside the allowed places"):
            read(address)
    for address in (f"{refs}/link", "links/a.bin", "link"):
        with pytest.raises(StoreError, match=r"cross-device|leads out of"):
            read(address)
        with pytest.raises(StoreError, match=r"cross-device|leads out of"):
            read(address, allow=[refs, out])
    assert read(f"{out}/a.bin", allow=[out]) == ITEMS.tolist()
    assert read(f"{out}/a.bin", allow=str(tmp_path)) == ITEMS.tolist()
    assert read(f"{refs}/link", allow="/") == ITEMS.tolist()
    with pytest.raises(StoreError, match="outside the allowed places"):
        read(f"{refs}/a.bin", allow=[out])
    with pytest.raises(StoreError, match="outside the allowed places"):
        read(f"{out}/a.bin", allow=f"{tmp_path}/ou")


class Server(ThreadingHTTPServer):
    """Serves bytes by path with ranges and tags, sends on where `onward` says, and counts requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.values: dict[str, tuple[bytes, str | None]] = {}
        self.onward: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        onward = self.server.onward.get(self.path)
        if onward is not None:
            body = stored("batch") * 3
            self.send_response(302)
            self.send_header("Location", onward)
        elif self.path not in self.server.values:
            body = b""
            self.send_response(404)
        else:
            body, tag = self.server.values[self.path]
            total = len(body)
            if wanted is not None:
                first, last = wanted.removeprefix("bytes=").split("-")
                begin, end = int(first), min(int(last) + 1, total) if last else total
                body = body[begin:end]
                self.send_response(206 if body else 416)
                said = f"{begin}-{begin + len(body) - 1}" if body else "*"
                self.send_header("Content-Range", f"bytes {said}/{total}")
            else:
                self.send_response(200)
            if tag is not None:
                self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    thread = threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.fixture
def strange() -> Iterator[Server]:
    """Another server, which nobody allows."""
    served = Server()
    thread = threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    served.values["/a.bin"] = (b"a header" + stored("batch"), '"1"')
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def test_remote_references_lead_no_further_than_the_caller_said(
    tmp_path: Path, server: Server, strange: Server
) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    content = b"a header" + stored("batch")
    for path in ("/data/a.bin", "/data/b%20c.bin", "/other/a.bin", "/a.bin", "/datax/a.bin"):
        server.values[path] = (content, '"1"')

    def read(address: str, *allow: str) -> Any:
        path = refer(tmp_path, address, "batch")
        return zstore.open(path, storage_options={"allow": allow} if allow else None)[...].tolist()

    data = f"{server.url}/data"
    refused = [f"{strange.url}/a.bin", f"{server.url}/other/a.bin", f"{server.url}/a.bin"]
    refused += [f"{server.url}/datax/a.bin", f"{data}/../other/a.bin", f"{data}/%2e%2e/other/a.bin"]
    refused += [f"http://127.0.0.1:{server.server_port}@127.0.0.1:{strange.server_port}/data/a.bin"]
    refused += [f"s3://127.0.0.1:{server.server_port}/data/a.bin", f"{data}/", data]
    for address in refused:
        for allow in ((), (data,)):
            with pytest.raises(StoreError, match=r"outside the allowed places|'..'|a user"):
                read(address, *allow)
    assert server.asked == strange.asked == []
    # Arrays beside one that leads astray are read.
    good, bad = (
        json.loads(Path(refer(tmp_path, a, "batch")).read_text())["refs"] for a in ("a.bin", refused[4])
    )
    (tmp_path / "a.bin").write_bytes(content)
    refs = {
        **{f"good/{key}": value for key, value in good.items()},
        **{f"bad/{k}": v for k, v in bad.items()},
    }
    (tmp_path / "both.json").write_text(json.dumps({".zgroup": '{"zarr_format": 2}', **refs}))
    both = zstore.open(tmp_path / "both.json")
    assert both["good"][...].tolist() == ITEMS.tolist()
    with pytest.raises(StoreError, match=r"'\.\.'"):
        both["bad"][...]
    assert server.asked == strange.asked == []
    assert read(f"{data}/a.bin", data) == ITEMS.tolist()
    assert {path for path, _ in server.asked} == {"/data/a.bin"}
    # Neighbours in one file are one request.
    assert len(server.asked) <= 2
    assert read(f"{data}/b%20c.bin", data + "/") == ITEMS.tolist()
    # One that the server sends elsewhere is not followed, to wherever.
    server.asked.clear()
    for onward in (f"{strange.url}/a.bin", f"{server.url}/other/a.bin", f"{data}/a.bin"):
        server.onward["/data/moved.bin"] = onward
        with pytest.raises(StoreError, match="sends on to"):
            read(f"{data}/moved.bin", data)
    assert {path for path, _ in server.asked} == {"/data/moved.bin"}
    assert strange.asked == []


def test_references_on_a_server_lead_below_their_prefix(
    tmp_path: Path, server: Server, strange: Server
) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    server.values["/data/a.bin"] = (b"a header" + stored("batch"), None)

    def read(address: str, **options: Any) -> Any:
        path = refer(tmp_path, address, "batch")
        server.values["/data/r.json"] = (Path(path).read_bytes(), None)
        return zstore.open(f"virtual::{server.url}/data/r.json", storage_options=options or None)[
            ...
        ].tolist()

    for address in ("a.bin", f"{server.url}/data/a.bin"):
        assert read(address) == ITEMS.tolist()
    local = tmp_path / "a.bin"
    local.write_bytes(b"a header" + stored("batch"))
    server.asked.clear()
    for address in ("../a.bin", f"{server.url}/a.bin", f"{strange.url}/a.bin", str(local), f"file://{local}"):
        with pytest.raises(StoreError, match=r"outside the allowed places|'..'"):
            read(address)
    assert {path for path, _ in server.asked} == {"/data/r.json"}
    assert strange.asked == []
    assert read(str(local), allow=[tmp_path]) == ITEMS.tolist()
    # A query with which a server is asked is none of the name.
    read("a.bin")
    server.values["/data/r.json?to=a/b"] = server.values.pop("/data/r.json")
    assert zstore.open(f"virtual::{server.url}/data/r.json?to=a/b")[...].tolist() == ITEMS.tolist()


def test_parquet_on_a_server_is_loaded_as_it_is_needed(tmp_path: Path, server: Server) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    manifest = open_manifest(refer(tmp_path, "a.bin", "batch"))
    manifest.documents["x/.zarray"] = manifest.documents[".zarray"]
    manifest.documents[".zgroup"] = b'{"zarr_format": 2}'
    manifest.chunks["x"] = manifest.chunks.pop("")
    del manifest.documents[".zarray"]
    write_parquet(manifest, LocalStore(tmp_path / "r.parq"), part_size=4)
    for file in (tmp_path / "r.parq").rglob("*"):
        if file.is_file():
            server.values[f"/data/r.parq/{file.relative_to(tmp_path / 'r.parq')}"] = (file.read_bytes(), None)
    server.values["/data/a.bin"] = (b"a header" + stored("batch"), '"1"')
    group = zstore.open(f"virtual::{server.url}/data/r.parq")
    assert {path for path, _ in server.asked} == {"/data/r.parq/.zmetadata"}
    assert np.array_equal(group["x"][...], ITEMS)
    parts = {f"/data/r.parq/x/refs.{n}.parq" for n in range(3)}
    assert {path for path, _ in server.asked} == {"/data/r.parq/.zmetadata", "/data/a.bin", *parts}


def test_a_remote_source_that_has_changed_is_an_error(tmp_path: Path, server: Server) -> None:
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    content, url = b"a header" + stored("batch"), f"{server.url}/a.bin"
    server.values["/a.bin"] = (content, '"1"')
    options = {"allow": [server.url]}
    known = zstore.open(refer(tmp_path, url, "batch", size=408, tag='"1"'), storage_options=options)
    learned = zstore.open(refer(tmp_path, url, "batch", name="s.json"), storage_options=options)
    for array in (known, learned):
        assert np.array_equal(array[...], ITEMS)
    server.values["/a.bin"] = (content[::-1], '"2"')
    for array in (known, learned):
        with pytest.raises(StoreError, match=r"has changed: its entity tag is '\"2\"', expected '\"1\"'"):
            array[...]
    server.values["/a.bin"] = (content + b"more", '"1"')
    for array in (known, learned):
        with pytest.raises(StoreError, match="has changed"):
            array[...]
    server.values["/a.bin"] = (content[:-1], None)
    with pytest.raises(StoreError, match=r"has changed|expected 408 at least"):
        known[...]
    fresh = zstore.open(refer(tmp_path, url, "batch", name="s.json"), storage_options=options)
    with pytest.raises(StoreError, match="407 bytes; expected 408 at least"):
        fresh[...]
    del server.values["/a.bin"]
    for array in (known, learned, fresh):
        with pytest.raises(StoreError, match=f"{url}.*not there"):
            array[...]


def test_a_claim_of_size_takes_no_memory(tmp_path: Path) -> None:
    """Of a file with a hole of 1 TiB, references of all sizes and places, overlapping ones too."""
    file = tmp_path / "hole.bin"
    with open(file, "wb") as made:
        made.truncate(1 << 40)
    document = array_document()
    for compressor in (None, {"id": "zlib", "level": 1}, {"id": "bz2", "level": 1}):
        said = {**json.loads(document), "compressor": compressor}
        refs = {".zarray": json.dumps(said), "0": [str(file), 0, 1 << 40], "1": [str(file), 5, 1 << 39]}
        refs["2"] = [str(file)]
        refs["3"] = [str(file), (1 << 62) - 1, 1]
        (tmp_path / "r.json").write_text(json.dumps(refs))
        array = zstore.open(tmp_path / "r.json")
        for n in range(4):
            with pytest.raises((StoreError, zstore.errors.CodecError)):
                array[10 * n : 10 * n + 10]
    # Two chunks may be the same bytes.
    file.write_bytes(b"a header" + stored("batch"))
    refs = {".zarray": document, "0": [str(file), 8, 40], "1": [str(file), 8, 40], "2": [str(file), 12, 40]}
    (tmp_path / "r.json").write_text(json.dumps(refs))
    found = zstore.open(tmp_path / "r.json")[:30]
    assert found.tolist() == [*range(10), *range(10), *range(1, 11)]

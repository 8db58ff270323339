"""How many requests do the main accesses make of a bucket, and how many bytes do they bring?

Unlike times, these are exact: no run may take more than is written here, and a test holds it to that
(`tests/test_request_counts.py`). Where a change makes fewer, write the new numbers here.

    python -m benchmarks.requests       prints both, and fails where there is more
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import numpy as np

import zstore

GRID: dict[str, Any] = {"shape": (100,), "chunks": (50,), "dtype": "f4", "compressors": None}
VALUES = np.arange(1024 * 1024, dtype="u2").reshape(1024, 1024)


@dataclass
class Bucket:
    """Objects in memory, and what was asked of them."""

    objects: dict[str, bytes] = field(default_factory=dict)
    request_count: int = 0
    sent_size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Counts:
        """What was asked since the last time."""
        with self.lock:
            counts = Counts(self.request_count, self.sent_size)
            self.request_count = self.sent_size = 0
        return counts


class Counts(NamedTuple):
    """Requests of every kind, and bytes of objects (not of listings and headers) that were sent for them."""

    requests: int
    sent: int

    def is_more(self, allowed: Counts) -> bool:
        """Whether one of them is more than that."""
        return self.requests > allowed.requests or self.sent > allowed.sent


class Handler(BaseHTTPRequestHandler):
    """The part of S3 that object stores are used by: objects, ranges, conditions, listings."""

    protocol_version = "HTTP/1.1"
    # An answer must not wait until the one before it is confirmed.
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    bucket: Bucket

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def begin(self) -> tuple[str, dict[str, list[str]], bytes]:
        """The key, the query and the body."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        with self.bucket.lock:
            self.bucket.request_count += 1
        return unquote(url.path).partition("/bucket")[2].strip("/"), parse_qs(url.query), body

    def do_GET(self) -> None:
        key, query, _ = self.begin()
        if "list-type" in query:
            self.answer(200, self.listing(query), Content_Type="application/xml")
            return
        data = self.bucket.objects.get(key)
        if data is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        status, part, extra = 200, data, {}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            first = int(wanted[1]) if wanted[1] else max(0, len(data) - int(wanted[2]))
            last = min(int(wanted[2]) if wanted[1] and wanted[2] else len(data) - 1, len(data) - 1)
            if first > last:
                self.answer(416, b"<Error><Code>InvalidRange</Code></Error>")
                return
            status, part = 206, data[first : last + 1]
            extra = {"Content_Range": f"bytes {first}-{last}/{len(data)}"}
        if self.command == "GET":
            with self.bucket.lock:
                self.bucket.sent_size += len(part)
        changed = "Tue, 14 Nov 2023 22:13:20 GMT"
        self.answer(status, part, ETag=tag(data), Last_Modified=changed, **extra)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        key, _, body = self.begin()
        origin = unquote(self.headers.get("x-amz-copy-source", "")).partition("bucket/")[2]
        if origin:
            self.bucket.objects[key] = self.bucket.objects[origin]
            said = (
                f"<CopyObjectResult><ETag>{escape(tag(self.bucket.objects[key]))}</ETag></CopyObjectResult>"
            )
            self.answer(200, said.encode(), Content_Type="application/xml")
            return
        old = self.bucket.objects.get(key)
        expected = self.headers.get("If-Match")
        is_new = self.headers.get("If-None-Match") == "*"
        if (is_new and old is not None) or (expected and (old is None or tag(old) != expected)):
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self.bucket.objects[key] = body
            self.answer(200, ETag=tag(body))

    def do_DELETE(self) -> None:
        key, _, _ = self.begin()
        self.bucket.objects.pop(key, None)
        self.answer(204)

    def do_POST(self) -> None:
        _, _, body = self.begin()
        keys = [key.decode() for key in re.findall(rb"<Key>(.*?)</Key>", body)]
        for key in keys:
            self.bucket.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), Content_Type="application/xml")

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        found, above = [], {}
        for key in sorted(self.bucket.objects):
            if key.startswith(prefix):
                at = key.find(delimiter, len(prefix)) if delimiter else -1
                if at < 0:
                    found.append(key)
                else:
                    above[key[: at + 1]] = None
        time = "2023-11-14T22:13:20.000Z"
        lines = [
            *(
                f"<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>{tag(data)}</ETag>"
                f"<Size>{len(data)}</Size></Contents>"
                for key in found
                for data in [self.bucket.objects[key]]
            ),
            *(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in above),
        ]
        head = "<Name>bucket</Name><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{head}{''.join(lines)}</ListBucketResult>".encode()

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


def tag(data: bytes) -> str:
    """The version of an object."""
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    # Connections that may wait to be accepted; requests on more of them time out on a busy machine.
    request_queue_size = 256


@contextmanager
def serve() -> Iterator[tuple[str, dict[str, Any], Bucket]]:
    """The URL of a bucket, the options for opening it, and what counts."""
    bucket = Bucket()
    server = Server(("127.0.0.1", 0), type("Counted", (Handler,), {"bucket": bucket}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "key": "k",
        "secret": "s",
        "region": "us-east-1",
        "endpoint_url": f"http://127.0.0.1:{server.server_address[1]}",
    }
    try:
        yield "s3://bucket", options, bucket
    finally:
        server.shutdown()
        server.server_close()


class Rig:
    """Arrays and groups in the bucket, and how they are opened."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url, self.options = url, options
        self.make("shards", data=VALUES, chunks=(64, 64), shards=(512, 512), compressors=None)
        self.make("chunks", data=VALUES, chunks=(128, 128), compressors=None)
        self.make("v2", data=VALUES[:128], chunks=(128, 128), compressors=None, zarr_format=2)
        self.make("rows", data=VALUES[:100, 0], chunks=(50,), compressors=None)
        nodes = {"": {}, **{f"g{i}": {} for i in range(5)}}
        nodes |= {f"g{i}/a{k}": GRID for i in range(5) for k in range(8)}
        self.make("many chunks", data=VALUES.ravel()[:1600], chunks=(1,), compressors=None)
        self.make("written", data=VALUES[:256, :256], chunks=(32, 32), shards=(128, 128), compressors=None)
        self.make("deleted/a", data=np.ones(100, "f4"), chunks=(25,))
        zstore.create_group(self.place("deleted"), storage_options=options)
        for name in ("group", "consolidated"):
            self.make_many(name, nodes)
        zstore.consolidate(self.place("consolidated"), storage_options=options)

    def place(self, name: str) -> str:
        return f"{self.url}/{name}"

    def open(self, name: str, **options: Any) -> Any:
        options = {"mode": "r", **options}
        return zstore.open(self.place(name), storage_options=self.options, **options)

    def make(self, name: str, **options: Any) -> zstore.Array:
        return zstore.create_array(self.place(name), storage_options=self.options, **options)

    def make_many(self, name: str, nodes: dict[str, Any]) -> None:
        zstore.create_hierarchy(self.place(name), nodes, storage_options=self.options)

    def make_each(self, name: str, count: int, **options: Any) -> None:
        group = zstore.create_group(self.place(name), storage_options=self.options, **options)
        for i in range(count):
            group.create_array(f"a{i}", **GRID)

    def write(self, name: str, selection: Any) -> None:
        array = self.open(name, mode="r+")
        array[selection] = 7

    def delete(self, name: str, member: str) -> None:
        group = zstore.open_group(self.place(name), mode="r+", storage_options=self.options)
        del group[member]

    def copy(self, source: str, target: str) -> None:
        both = {"storage_options": self.options, "target_options": self.options}
        zstore.copy(self.place(source), self.place(target), **both)

    def open_awaited(self, name: str) -> Any:
        return asyncio.run(zstore.aio.open(self.place(name), storage_options=self.options))

    def read_awaited(self, name: str, windows: list[Any]) -> None:
        array = self.open(name)

        async def read() -> None:
            await asyncio.gather(*map(array.read_async, windows))

        asyncio.run(read())

    def convert(self, source: str, target: str, **options: Any) -> None:
        both = {"storage_options": self.options, "target_options": self.options}
        zstore.convert(self.place(source), self.place(target), **options, **both)


POINTS = tuple(np.random.default_rng(0).integers(0, 1024, (2, 100)))
WINDOWS = [np.s_[y : y + 100, x : x + 100] for y in (0, 200, 450) for x in (0, 60, 450)]
NAMES = [f"g{i}/a{k}" for i in range(5) for k in range(8)]


# What is asked, opening included, and the most requests and bytes that it takes.
ACCESSES: dict[str, tuple[Callable[[Rig], Any], Counts]] = {
    "open an array": (lambda rig: rig.open("shards"), Counts(1, 895)),
    "open an array, its format said": (lambda rig: rig.open("shards", zarr_format=3), Counts(1, 895)),
    "open an array, awaited": (lambda rig: rig.open_awaited("shards"), Counts(1, 895)),
    "open an array of v2": (lambda rig: rig.open("v2"), Counts(5, 194)),
    "open an array of v2, its format said": (lambda rig: rig.open("v2", zarr_format=2), Counts(4, 194)),
    "40 arrays by name": (lambda rig: rig.open("group").open_many(NAMES), Counts(41, 18146)),
    "40 arrays by name, consolidated": (
        lambda rig: rig.open("consolidated").open_many(NAMES),
        Counts(1, 25935),
    ),
    "open a group, consolidated": (lambda rig: rig.open("consolidated"), Counts(1, 25935)),
    "all members of 5 groups": (lambda rig: rig.open("group").members(None), Counts(52, 18476)),
    "an inner chunk": (lambda rig: rig.open("shards")[:50, :50], Counts(3, 10115)),
    "a window over 4 shards": (lambda rig: rig.open("shards")[480:600, 480:600], Counts(11, 78735)),
    "a window over 4 shards, twice": (
        lambda rig: [array[480:600, 480:600] for array in 2 * [rig.open("shards")]],
        Counts(17, 152463),
    ),
    "4 shards whole": (lambda rig: rig.open("shards")[...], Counts(5, 2102159)),
    "64 chunks whole": (lambda rig: rig.open("chunks")[...], Counts(65, 2097614)),
    "100 points": (lambda rig: rig.open("shards").vindex[POINTS], Counts(57, 668559)),
    "9 windows at once": (lambda rig: rig.open("shards").read_many(WINDOWS), Counts(21, 250767)),
    "9 windows awaited, each by itself": (
        lambda rig: rig.read_awaited("chunks", WINDOWS),
        # Mostly 21, 26 of each alone: a window that comes a turn later fetches what it needs itself.
        Counts(25, 786894),
    ),
    "write a whole chunk": (lambda rig: rig.write("chunks", np.s_[:128, :128]), Counts(2, 462)),
    "write a part of a chunk": (lambda rig: rig.write("chunks", np.s_[:5, :5]), Counts(3, 33230)),
    "write a part of an inner chunk": (lambda rig: rig.write("written", np.s_[:5, :5]), Counts(3, 33921)),
    "write parts of 4 shards": (lambda rig: rig.write("written", np.s_[100:200, 100:200]), Counts(9, 133005)),
    "append a chunk": (
        lambda rig: rig.open("rows", mode="r+").append(np.ones(50, "u2")),
        Counts(4, 449),
    ),
    # An intent has the number of its process, which is longer at times.
    "append within a chunk": (
        lambda rig: [rig.open("rows", mode="r+").append(np.ones(n, "u2")) for n in (10, 40)],
        Counts(12, 1300),
    ),
    "resize 1600 chunks to 8": (
        lambda rig: rig.open("many chunks", mode="r+").resize((8,)),
        Counts(8, 680),
    ),
    "resize to half": (lambda rig: rig.open("rows", mode="r+").resize((50,)), Counts(7, 680)),
    "set an attribute": (lambda rig: rig.open("rows", mode="r+").attrs.update(a=1), Counts(3, 898)),
    "create an array": (lambda rig: rig.make("made/a", **GRID), Counts(2, 0)),
    "create an array of 4 chunks of data": (
        lambda rig: rig.make("filled", data=np.ones(100, "f4"), chunks=(25,)),
        # One of them looks whether somebody else was first, when nobody else can begin any more, and one
        # whether nobody has taken the place over or removed it, before the document makes it an array.
        Counts(10, 300),
    ),
    "create 40 arrays at once": (
        lambda rig: rig.make_many("many", {"": {}, **{f"a{i}": GRID for i in range(40)}}),
        Counts(44, 0),
    ),
    "create a group and 40 arrays one by one": (lambda rig: rig.make_each("each", 40), Counts(82, 0)),
    "create an array below a group, of v2": (
        lambda rig: rig.make_each("each2", 1, zarr_format=2),
        Counts(9, 22),
    ),
    "delete an array of 4 chunks": (lambda rig: rig.delete("deleted", "a"), Counts(9, 697)),
    # One of them asks whether the record is still the copy's, before it is removed: about 300 bytes. One
    # lists whether somebody has made a node before the record came; and the document is read and put, not
    # copied by the server, so that it takes the place of nobody else's.
    "copy 64 chunks within the bucket": (lambda rig: rig.copy("chunks", "copied"), Counts(76, 1086)),
    "verify 64 chunks": (
        lambda rig: zstore.verify(rig.place("chunks"), storage_options=rig.options),
        Counts(68, 2098076),
    ),
    # Four of them list: what the source is, what the target has, whether it is still so when the record is
    # there, and whether the source is the same at the end. Two ask whether the place is still the job's:
    # before the document, and before the record is removed, which says who writes and which versions of the
    # source are read: about 1 KB each.
    "convert 64 chunks to 16": (
        lambda rig: rig.convert("chunks", "converted", chunks=(256, 256)),
        Counts(91, 2100100),
    ),
    "delete a group of 8 arrays": (lambda rig: rig.delete("group", "g4"), Counts(8, 198)),
}


def measure() -> dict[str, Counts]:
    """What each access takes; a journal is written by the clock, and is left to the end."""
    with serve() as (url, options, bucket), patch("zstore.jobs.journal.WAITING_SECONDS", math.inf):
        rig = Rig(url, options)
        measured = {}
        for name, (act, _) in ACCESSES.items():
            bucket.take()
            act(rig)
            while any(key.endswith("/.zstore-job/record") for key in [*bucket.objects]):
                time.sleep(0.001)  # nobody waits for the removal of the mark of what is made
            measured[name] = bucket.take()
    return measured


if __name__ == "__main__":
    grown = 0
    for name, found in measure().items():
        allowed = ACCESSES[name][1]
        grown += found.is_more(allowed)
        words = "" if found == allowed else f"   here {allowed.requests} and {allowed.sent}"
        print(f"{name:40} {found.requests:5} requests {found.sent:9} bytes{words}")
    sys.exit(grown > 0)

"""The accesses of buckets beside tensorstore and zarr-python on obstore: one table, at several latencies.

    python -m benchmarks.buckets                        all rows, 0, 30 and 100 ms a request, medians of five
    python -m benchmarks.buckets --only points --delays 0 --rounds 9
    python -m benchmarks.buckets --quick                every row once, at 0 ms, to see that it runs

The bucket is a server on loopback, in a process of its own, that sends 80 MB/s a connection; with `uvloop` it
is quicker. All engines take turns in one process, opening included. Printed are requests, ms of processor and
ms by the clock. On standard error the server's own ms of processor are given too: without latency no one
can take less. The first round is checked and not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

import numpy as np

BANDWIDTH = 80e6
PIECE = 1 << 18
Act = Callable[[], Any]


# The server

Answer = tuple[str, list[str], "bytes | memoryview[int]"]


class Objects:
    """Objects by key with their versions, what is asked of them, and how long an answer waits."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, str]] = {}
        self.numbers = itertools.count()
        self.delay = 0.0
        self.count = 0

    def answer(self, method: str, key: str, query: str, headers: dict[str, str], body: bytes) -> Answer:
        if method == "PUT":
            return self.put(key, headers, body)
        if method == "DELETE":
            self.values.pop(key, None)
            return "204 No Content", [], b""
        if "list-type=2" in query:
            return "200 OK", ["Content-Type: application/xml"], self.listing(parse_qs(query))
        if key not in self.values:
            return "404 Not Found", [], b"<Error><Code>NoSuchKey</Code></Error>"
        value, tag = self.values[key]
        said = [f"ETag: {tag}", "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT"]
        span = headers.get("range")
        if span is None:
            return "200 OK", said, value
        first, _, last = span.removeprefix("bytes=").partition("-")
        begin = int(first) if first else max(0, len(value) - int(last))
        end = min(len(value), int(last) + 1) if first and last else len(value)
        if begin >= end:
            return "416 Range Not Satisfiable", [], b"<Error><Code>InvalidRange</Code></Error>"
        said.append(f"Content-Range: bytes {begin}-{end - 1}/{len(value)}")
        return "206 Partial Content", said, memoryview(value)[begin:end]

    def put(self, key: str, headers: dict[str, str], body: bytes) -> Answer:
        _, tag = self.values.get(key, (b"", ""))
        expected = headers.get("if-match")
        if (headers.get("if-none-match") == "*" and tag) or (expected and expected != tag):
            return "412 Precondition Failed", [], b"<Error><Code>PreconditionFailed</Code></Error>"
        tag = f'"{next(self.numbers):x}"'
        self.values[key] = body, tag
        return "200 OK", [f"ETag: {tag}"], b""

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        keys = sorted(self.values)
        found, above = [], {}
        for key in itertools.takewhile(lambda key: key.startswith(prefix), keys[bisect_left(keys, prefix) :]):
            at = key.find(delimiter, len(prefix)) if delimiter else -1
            if at < 0:
                found.append(key)
            else:
                above[key[: at + 1]] = None
        lines = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
            f"<ETag>{escape(self.values[key][1])}</ETag><Size>{len(self.values[key][0])}</Size></Contents>"
            for key in found
        ] + [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in above]
        text = "<IsTruncated>false</IsTruncated>" + "".join(lines)
        return f"<ListBucketResult>{text}</ListBucketResult>".encode()


class Connection(asyncio.Protocol):
    """One connection to the server; requests come one after another."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.came = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=4 << 20)

    def data_received(self, data: bytes) -> None:
        self.came += data
        size = self.came.find(b"\r\n\r\n") + 4
        if size < 4:
            return
        first, *lines = self.came[:size].decode("latin-1").split("\r\n")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        end = size + int(headers.get("content-length") or 0)
        if len(self.came) < end:
            return
        body = bytes(self.came[size:end])
        del self.came[:end]
        method, target, _ = first.split(" ")
        if target.startswith("/_"):
            self.send(("200 OK", [], self.tell(target)), False, math.inf)
            return
        self.objects.count += 1
        path, _, query = target.partition("?")
        key = unquote(path).partition("/bucket")[2].strip("/")
        answer = self.objects.answer(method, key, query, headers, body)
        delay = self.objects.delay + len(body) / BANDWIDTH
        loop, is_head = asyncio.get_running_loop(), method == "HEAD"
        if delay > 0.0005:
            loop.call_later(delay, self.send, answer, is_head)
        else:
            self.send(answer, is_head)

    def tell(self, target: str) -> bytes:
        """What was asked since the last time, and the seconds of processor; "/_0.03" sets the latency."""
        if target[2:]:
            self.objects.delay = float(target[2:])
        used = resource.getrusage(resource.RUSAGE_SELF)
        count, self.objects.count = self.objects.count, 0
        return json.dumps([count, used.ru_utime + used.ru_stime]).encode()

    def send(self, answer: Answer, is_head: bool, speed: float = BANDWIDTH) -> None:
        status, said, body = answer
        size = [] if status.startswith("204") else [f"Content-Length: {len(body)}"]
        self.transport.write("\r\n".join([f"HTTP/1.1 {status}", *said, *size, "\r\n"]).encode())
        if body and not is_head:
            self.go_on(memoryview(body), 0, time.perf_counter(), speed)

    def go_on(self, body: memoryview[int], at: int, since: float, speed: float) -> None:
        """Send a body from there on, as quickly as a connection is."""
        while at < len(body) and not self.transport.is_closing():
            self.transport.write(body[at : at + PIECE])
            at += PIECE
            left = since + min(at, len(body)) / speed - time.perf_counter()
            if left > 0.001 and at < len(body):
                asyncio.get_running_loop().call_later(left, self.go_on, body, at, since, speed)
                return


async def serve() -> None:
    objects = Objects()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(objects), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def bucket() -> Iterator[str]:
    """The address of a server with an empty bucket."""
    command = [sys.executable, "-m", "benchmarks.buckets", "--serve"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=Path(__file__).parents[1], **pipes) as server:
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"  # type: ignore[union-attr]
        finally:
            server.terminate()


# The engines

GRID = {"shape": (100,), "chunks": (50,), "dtype": "f4", "compressors": None}
TIMES_APPENDED = 10


class Zstore:
    name = "zstore"

    def __init__(self, endpoint: str) -> None:
        import zstore

        self.zstore = zstore
        self.options = {"key": "k", "secret": "s", "region": "us-east-1", "endpoint_url": endpoint}

    def open(self, name: str, mode: str = "r") -> Any:
        return self.zstore.open(f"s3://bucket/{name}", mode=mode, storage_options=self.options)

    def read(self, name: str, selection: Any) -> Any:
        return self.open(name)[selection]

    def points(self, name: str, *at: Any) -> Any:
        return self.open(name).vindex[at]

    def windows(self, name: str, selections: list[Any]) -> Any:
        return self.open(name).read_many(selections)

    def kept(self, name: str, selection: Any) -> Act:
        array = self.open(name).cached(256 << 20, fresh_for=math.inf)
        return lambda: array[selection]

    def make(self, name: str, **options: Any) -> Any:
        return self.zstore.create_array(f"s3://bucket/{name}", storage_options=self.options, **options)

    def make_many(self, name: str, count: int) -> None:
        nodes = {"": {}, **{f"a{k}": GRID for k in range(count)}}
        self.zstore.create_hierarchy(f"s3://bucket/{name}", nodes, storage_options=self.options)

    def appends(self, name: str, items: Any, chunks: tuple[int, ...]) -> Act:
        shape = (0, *chunks[1:])
        self.make(name, shape=shape, chunks=chunks, dtype=items.dtype, compressors=None)
        array = self.open(name, "r+")
        return lambda: array.append(items)


class Tensorstore:
    name = "tensorstore"

    def __init__(self, endpoint: str) -> None:
        import tensorstore

        self.ts, self.endpoint = tensorstore, endpoint

    def spec(self, name: str) -> dict[str, Any]:
        place = {"driver": "s3", "bucket": "bucket", "path": f"{name}/", "endpoint": self.endpoint}
        place |= {"aws_region": "us-east-1", "aws_credentials": {"type": "environment"}}
        return {"driver": "zarr3", "kvstore": place}

    def open(self, name: str, **options: Any) -> Any:
        return self.ts.open(self.spec(name), read=True, **options).result()

    def read(self, name: str, selection: Any) -> Any:
        return self.open(name)[selection].read().result()

    def points(self, name: str, *at: Any) -> Any:
        return self.open(name).vindex[at].read().result()

    def windows(self, name: str, selections: list[Any]) -> Any:
        array, batch = self.open(name), self.ts.Batch()
        found = [array[selection].read(batch=batch) for selection in selections]
        batch.submit()
        return [one.result() for one in found]

    def kept(self, name: str, selection: Any) -> Act:
        context = self.ts.Context({"cache_pool": {"total_bytes_limit": 256 << 20}})
        array = self.open(name, context=context, recheck_cached_data=False)
        return lambda: array[selection].read().result()

    def start(self, name: str, shape: list[int], chunks: list[int], dtype: str) -> Any:
        grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
        metadata = {"shape": shape, "data_type": dtype, "chunk_grid": grid}
        return self.ts.open({**self.spec(name), "metadata": metadata}, create=True)

    def make_many(self, name: str, count: int) -> None:
        for one in [self.start(f"{name}/a{k}", [100], [50], "float32") for k in range(count)]:
            one.result()

    def appends(self, name: str, items: Any, chunks: tuple[int, ...]) -> Act:
        array = self.start(name, [0, *chunks[1:]], [*chunks], "uint16").result()

        def append() -> None:
            nonlocal array
            length = array.shape[0]
            ends = [length + len(items), *[None] * (items.ndim - 1)]
            array = array.resize(exclusive_max=ends).result()
            array[length:].write(items).result()

        return append


class Zarr:
    name = "zarr-python + obstore"

    def __init__(self, endpoint: str) -> None:
        import zarr
        from obstore.store import S3Store
        from zarr.storage import ObjectStore

        zarr.config.set({"async.concurrency": 64})
        self.zarr = zarr
        options = {"endpoint": endpoint, "region": "us-east-1", "client_options": {"allow_http": True}}
        self.store = lambda name: ObjectStore(S3Store("bucket", prefix=name, **options))

    def open(self, name: str) -> Any:
        return self.zarr.open_array(self.store(name), mode="r")

    def read(self, name: str, selection: Any) -> Any:
        return self.open(name)[selection]

    def points(self, name: str, *at: Any) -> Any:
        return self.open(name).vindex[at]

    def windows(self, name: str, selections: list[Any]) -> Any:
        async def read() -> Any:
            array = await self.zarr.api.asynchronous.open_array(store=self.store(name), mode="r")
            return await asyncio.gather(*map(array.getitem, selections))

        return asyncio.run(read())

    def kept(self, name: str, selection: Any) -> Act:
        array = self.open(name)  # it keeps nothing
        return lambda: array[selection]

    def make_many(self, name: str, count: int) -> None:
        from zarr.core.group import GroupMetadata

        one = self.zarr.create_array({}, **GRID).metadata
        nodes = {"": GroupMetadata(zarr_format=3), **{f"a{k}": one for k in range(count)}}
        dict(self.zarr.create_hierarchy(store=self.store(name), nodes=nodes))

    def appends(self, name: str, items: Any, chunks: tuple[int, ...]) -> Act:
        options = {"chunks": chunks, "dtype": items.dtype, "compressors": None}
        array = self.zarr.create_array(self.store(name), shape=(0, *chunks[1:]), **options)
        return lambda: array.append(items)


ENGINES = {"zstore": Zstore, "tensorstore": Tensorstore, "zarr": Zarr}


# The rows


class Rows:
    """What is asked, of arrays that zstore has made, and what is to come of it."""

    def __init__(self, maker: Zstore, size: int) -> None:
        """`size` is the side of the largest array: 8192, or less to be quick."""
        rng = np.random.default_rng(0)
        steps = rng.integers(-3, 4, size * size, dtype=np.int32)
        self.values = values = np.cumsum(steps).astype("u2").reshape(size, size)
        self.edge = edge = size // 2
        self.numbers = itertools.count()
        shards = {"chunks": (edge // 32,) * 2, "shards": (edge // 4,) * 2}
        maker.make("shards", data=values[:edge, :edge], **shards)
        narrow = np.ascontiguousarray(values[:, : size * 125 // 256])
        maker.make("small", data=narrow, chunks=(size // 32, size // 64), compressors=None)
        self.twice = np.concatenate([values, values])
        maker.make("large", data=self.twice, chunks=(size // 16, size // 8), compressors=None)
        self.tiny = np.ascontiguousarray(values[: size // 16, : size // 16])
        maker.make("tiny", data=self.tiny, chunks=(5, 5), compressors=None)
        self.at = tuple(rng.integers(0, edge, (2, 300)))
        side = edge // 16
        self.windows = [
            np.s_[y : y + side, x : x + side] for y, x in rng.integers(0, edge - side, (64, 2)).tolist()
        ]
        self.area = np.s_[size // 80 : size // 4, size // 80 : size // 8]
        self.narrow = narrow

    def place(self) -> str:
        return f"made/{next(self.numbers)}"

    def acts(self, engine: Any) -> Iterator[tuple[str, Callable[[], tuple[Act, int]], Any]]:
        """Name; what gets a row ready and gives (what is timed, its count); the expected items, if any."""
        inner = self.values[: self.edge, : self.edge]

        def just(act: Act, count: int = 1) -> Callable[[], tuple[Act, int]]:
            return lambda: (act, count)

        def kept() -> tuple[Act, int]:
            act = engine.kept("small", self.area)
            act(), act()
            return act, 1

        def appended(items: Any, chunks: tuple[int, ...]) -> Callable[[], tuple[Act, int]]:
            def ready() -> tuple[Act, int]:
                act = engine.appends(self.place(), items, chunks)
                act()
                return lambda: [act() for _ in range(TIMES_APPENDED)], TIMES_APPENDED

            return ready

        everything = np.s_[:, :]
        yield "1,024 chunks of 64 KiB", just(lambda: engine.read("small", everything)), self.narrow
        yield "256 chunks of 1 MiB", just(lambda: engine.read("large", everything)), self.twice
        yield "16 shards whole", just(lambda: engine.read("shards", everything)), inner
        yield "300 points", just(lambda: engine.points("shards", *self.at)), inner[self.at]
        yield (
            "64 windows",
            just(lambda: engine.windows("shards", self.windows)),
            [inner[w] for w in self.windows],
        )
        yield "create a group and 100 arrays", just(lambda: engine.make_many(self.place(), 100)), None
        yield "append one chunk", appended(np.ones(50, "u2"), (50,)), None
        block = np.ones((1, self.edge // 8, self.edge // 4), "u2")
        yield "append one chunk of 1 MiB", appended(block, block.shape), None
        yield "the same area a third time, cached", kept, self.narrow[self.area]
        yield (
            f"{math.prod(-(-n // 5) for n in self.tiny.shape):,} tiny chunks",
            just(lambda: engine.read("tiny", everything)),
            self.tiny,
        )


def is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(np.array_equal, found, expected))
    return expected is None or np.array_equal(found, expected)


def ask(endpoint: str, said: str = "") -> tuple[int, float]:
    with urllib.request.urlopen(f"{endpoint}/_{said}") as answer:
        count, seconds = json.loads(answer.read())
    return count, seconds


def measure(ready: Callable[[], tuple[Act, int]], endpoint: str, expected: Any) -> list[float]:
    """Requests, and ms of processor, by the clock and of the server's processor."""
    act, count = ready()
    _, server = ask(endpoint)
    used, since = time.process_time(), time.perf_counter()
    found = act()
    took, used = time.perf_counter() - since, time.process_time() - used
    requests, server_now = ask(endpoint)
    if not is_same(found, expected):
        sys.exit("other items came than are stored")
    return [requests / count, *(1000 * s / count for s in (used, took, server_now - server))]


def run(words: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print as a table: {row: {engine: {delay: [requests, processor, clock, server]}}}."""
    table: dict[str, Any] = {}
    with bucket() as endpoint:
        modules = {"tensorstore": "tensorstore", "zarr": "obstore"}
        there = [e for e in words.engines.split(",") if importlib.util.find_spec(modules.get(e, e))]
        engines = [ENGINES[name](endpoint) for name in there]
        rows = Rows(Zstore(endpoint), 512 if words.quick else 8192)
        acts = [[*rows.acts(engine)] for engine in engines]
        for delay in words.delays:
            ask(endpoint, f"{delay / 1000}")
            for at, (name, _, expected) in enumerate(acts[0]):
                if words.only not in name or ("tiny" in name and delay > words.delays[0]):
                    continue
                found: dict[str, list[list[float]]] = {engine.name: [] for engine in engines}
                for number in range(words.rounds + 1):
                    for k in range(len(engines)):
                        k = (k + number) % len(engines)
                        got = measure(acts[k][at][1], endpoint, None if number else expected)
                        if number or not words.rounds:
                            found[engines[k].name].append(got)
                said = []
                for engine, got in found.items():
                    middle = [statistics.median(one) for one in zip(*got, strict=True)]
                    table.setdefault(name, {}).setdefault(engine, {})[delay] = middle
                    said.append("{} {:.0f} / {:.1f} / {:.1f} ({:.0f})".format(engine, *middle))
                print(f"{delay:g} ms, {name}: " + "; ".join(said), file=sys.stderr, flush=True)
    show(table, words.delays)
    return table


def show(table: dict[str, Any], delays: list[float]) -> None:
    """The rows in Markdown: requests / processor at the second latency / clock at each."""
    engines = list(dict.fromkeys(engine for row in table.values() for engine in row))
    print("| access | " + " | ".join(engines) + " |\n|---|" + "--:|" * len(engines))
    for name, row in table.items():
        cells = []
        for engine in engines:
            by_delay = row[engine]
            requests, processor, *_ = by_delay.get(delays[min(1, len(delays) - 1)], by_delay[delays[0]])
            clocks = ", ".join(f"{got[2]:.{0 if got[2] >= 10 else 1}f}" for got in by_delay.values())
            cells.append(f"{requests:.0f} / {processor:.{0 if processor >= 10 else 1}f} / {clocks}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--delays", type=lambda text: [*map(float, text.split(","))], default=[0.0, 30.0, 100.0]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="zstore,tensorstore,zarr", help="those that are installed")
    parser.add_argument("--only", default="", help="rows with this in their names")
    parser.add_argument("--json", default="", help="a file for all figures")
    parser.add_argument("--quick", action="store_true", help="small arrays, once, at 0 ms")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args(argv)
    if words.serve:
        start = asyncio.run
        if importlib.util.find_spec("uvloop"):
            import uvloop

            start = uvloop.run
        start(serve())
        return {}
    if words.quick:
        words.rounds, words.delays = 0, [0.0]
    table = run(words)
    if words.json:
        with open(words.json, "w") as file:
            json.dump(table, file, indent=1)
    return table


if __name__ == "__main__":
    # Where tensorstore and obstore look for them; nobody checks them.
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    main()

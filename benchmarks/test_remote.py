"""How long do reads over a network take, beside tensorstore and zarr-python on obstore?

The network is a loopback server, in a process of its own, that lets every request wait for 20 ms. Each group
is one selection, opening included; compare the rows in it. On a busy machine read ratios from several runs.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DELAY = 0.02


async def answer(root: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection: GET and HEAD of files, with ranges, sizes and versions."""
    try:
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = lines[0].split(" ")
            headers = {
                k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)
            }
            await asyncio.sleep(DELAY)
            file = root / path.lstrip("/")
            if not file.is_file():
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            data = file.read_bytes()
            total, status, extra = len(data), "200 OK", ""
            if "range" in headers:
                first, _, last = headers["range"].removeprefix("bytes=").partition("-")
                begin = int(first) if first else max(0, total - int(last))
                end = min(total, int(last) + 1) if first and last else total
                data, status = data[begin:end], "206 Partial Content"
                extra = f"Content-Range: bytes {begin}-{end - 1}/{total}\r\n"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\nAccept-Ranges: bytes\r\n"
                f'ETag: "{file.stat().st_mtime_ns:x}"\r\n'
                f"Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n{extra}\r\n".encode()
            )
            if method == "GET":
                writer.write(data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(root: Path) -> None:
    server = await asyncio.start_server(lambda r, w: answer(root, r, w), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import zstore

    root = tmp_path_factory.mktemp("served")
    values = np.cumsum(np.random.default_rng(0).normal(size=4096 * 4096)).astype("f4").reshape(4096, 4096)
    raw = {"compressors": None}
    zstore.create_array(f"{root}/small", data=values[:1280, :1280], chunks=(128, 128), **raw)
    zstore.create_array(f"{root}/chunks", data=values, chunks=(512, 512), **raw)
    zstore.create_array(f"{root}/shards", data=values, chunks=(128, 128), shards=(1024, 1024))
    server = subprocess.Popen([sys.executable, __file__, str(root)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    server.kill()
    server.wait()
    server.stdout.close()


def read_zstore(url: str, name: str, selection: Any) -> Any:
    import zstore

    return zstore.open_array(f"{url}/{name}", mode="r", zarr_format=3)[selection]


def read_tensorstore(url: str, name: str, selection: Any) -> Any:
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": f"{url}/{name}/"}}
    return tensorstore.open(spec, read=True).result()[selection].read().result()


def read_zarr(url: str, name: str, selection: Any) -> Any:
    obstore = pytest.importorskip("obstore", reason="obstore is not installed")
    import zarr
    from zarr.storage import ObjectStore

    store = obstore.store.HTTPStore.from_url(f"{url}/{name}", client_options={"allow_http": True})
    zarr.config.set({"async.concurrency": 64})
    return zarr.open_array(ObjectStore(store, read_only=True), mode="r", zarr_format=3)[selection]


READERS: dict[str, Callable[[str, str, Any], Any]] = {
    "zstore": read_zstore,
    "tensorstore": read_tensorstore,
    "zarr-python on obstore": read_zarr,
}
SELECTIONS: dict[str, tuple[str, Any]] = {
    "one inner chunk": ("shards", np.s_[:100, :100]),
    "a window over four shards": ("shards", np.s_[900:1200, 900:1200]),
    "16 whole shards, 64 MiB": ("shards", np.s_[:, :]),
    "100 chunks of 64 KiB": ("small", np.s_[:, :]),
    "64 chunks of 1 MiB": ("chunks", np.s_[:, :]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("question", SELECTIONS)
def test_read(benchmark: Any, url: str, question: str, reader: str) -> None:
    benchmark.group = question
    name, selection = SELECTIONS[question]
    benchmark.pedantic(READERS[reader], (url, name, selection), rounds=7, warmup_rounds=1)


def test_all_read_the_same(url: str) -> None:
    for name, selection in SELECTIONS.values():
        expected = read_zstore(url, name, selection)
        np.testing.assert_array_equal(read_tensorstore(url, name, selection), expected)


# A thousand inner chunks, awaited at once: requests × latency / requests at once is the least it can take.
WINDOWS = [
    np.s_[128 * y : 128 * y + 128, 128 * x : 128 * x + 128]
    for y, x in np.random.default_rng(3).integers(0, 32, (1000, 2)).tolist()
]
Awaiting = Callable[[Any], Awaitable[Any]]


async def await_zstore(url: str) -> Awaiting:
    import zstore

    array = await zstore.aio.open_array(f"{url}/shards", mode="r", zarr_format=3)
    return array.read_async


async def await_tensorstore(url: str) -> Awaiting:
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": f"{url}/shards/"}}
    array = await tensorstore.open(spec, read=True)

    async def read(window: Any) -> Any:
        return await array[window].read()

    return read


async def await_zarr(url: str) -> Awaiting:
    obstore = pytest.importorskip("obstore", reason="obstore is not installed")
    import zarr
    from zarr.api.asynchronous import open_array
    from zarr.storage import ObjectStore

    store = obstore.store.HTTPStore.from_url(f"{url}/shards", client_options={"allow_http": True})
    zarr.config.set({"async.concurrency": 128})
    return (await open_array(store=ObjectStore(store, read_only=True), mode="r")).getitem


AWAITING = {"zstore": await_zstore, "tensorstore": await_tensorstore, "zarr-python on obstore": await_zarr}


@pytest.mark.parametrize("reader", AWAITING)
def test_await(benchmark: Any, url: str, reader: str) -> None:
    async def run() -> list[Any]:
        read = await AWAITING[reader](url)
        return await asyncio.gather(*(asyncio.ensure_future(read(window)) for window in WINDOWS))

    benchmark.group = "1,000 inner chunks, awaited"
    found = benchmark.pedantic(lambda: asyncio.run(run()), rounds=5, warmup_rounds=1)
    for items, window in [*zip(found, WINDOWS, strict=True)][::100]:
        np.testing.assert_array_equal(items, read_zstore(url, "shards", window))


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

"""Processor time of a tile beside rio-tiler, and many clients at once: `python load.py [RASTER]`.

Needs rio-tiler, and xarray with rioxarray for its reader of arrays; a raster in Landsat's size will do.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import uvicorn
from zstore_serve import router

import zstore
from zstore.conventions.crs import Crs
from zstore.conventions.tilesets.registry import load_tile_matrix_set
from zstore.integrations.rasters.raster import raster_to_zarr

RASTER = Path(__file__).parents[3] / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
CLIENTS = 200
REQUESTS = 10


def tiles_of(box: list[float], zooms: range) -> list[tuple[int, int, int]]:
    """(z, x, y) of the web's tiles over degrees."""
    web, degrees = Crs.from_user("EPSG:3857"), Crs.from_user("OGC:CRS84")
    x, y = degrees.transform(web, np.array([box[0], box[2]]), np.array([box[3], box[1]]))
    found = []
    for z in zooms:
        matrix = load_tile_matrix_set("WebMercatorQuad")[str(z)]
        columns, rows = (
            ((places - edge) * sign / (matrix.cell_size * 256)).astype(int)
            for places, edge, sign in ((x, matrix.origin[0], 1), (y, matrix.origin[1], -1))
        )
        found += [(z, c, r) for c in range(columns[0], columns[1] + 1) for r in range(rows[0], rows[1] + 1)]
    return found


def median_time(
    make: Callable[[int, int, int], bytes], tiles: list[tuple[int, int, int]]
) -> tuple[float, float]:
    """(milliseconds of processor, of the clock) that a tile takes; of each tile the median of three."""
    for tile in tiles[:5]:
        make(*tile)
    spent = []
    for tile in tiles:
        runs = []
        for _ in range(3):
            clock, processor = time.perf_counter(), time.process_time()
            make(*tile)
            runs.append((time.process_time() - processor, time.perf_counter() - clock))
        spent.append(sorted(runs)[1])
    return tuple(float(np.median(part)) * 1e3 for part in zip(*spent, strict=True))  # type: ignore[return-value]


def asked_of(application: Any, name: str, query: str) -> Callable[[int, int, int], bytes]:
    """A tile of the application, without a server between."""
    loop = asyncio.new_event_loop()

    def make(z: int, x: int, y: int) -> bytes:
        path = f"/collections/{name}/tiles/WebMercatorQuad/{z}/{x}/{y}.png"
        sent: list[Any] = []
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "headers": [], "scheme": "http", "server": ("localhost", 80),
            "http_version": "1.1",
        }  # fmt: skip

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        loop.run_until_complete(application(scope, receive, send))
        assert sent[0]["status"] == 200, sent
        return bytes(sent[1]["body"])

    return make


def rio_tiler_cog(path: Path, query: dict[str, Any]) -> Callable[[int, int, int], bytes]:
    """A tile by rio-tiler's reader of rasters."""
    from rio_tiler.io import Reader

    def make(z: int, x: int, y: int) -> bytes:
        with Reader(str(path)) as reader:
            image = reader.tile(x, y, z, resampling_method=query["resampling"])
        image.rescale([(query["low"], query["high"])])
        return image.render(img_format="PNG")

    return make


def rio_tiler_xarray(store: Path, query: dict[str, Any]) -> Callable[[int, int, int], bytes]:
    """A tile by rio-tiler's reader of arrays, of the finest level, as titiler-xarray has it."""
    import rioxarray  # noqa: F401
    import xarray
    from rio_tiler.io.xarray import XarrayReader

    from zstore.integrations.xarray import ZstoreBackendEntrypoint

    def make(z: int, x: int, y: int) -> bytes:
        array = xarray.open_dataset(str(store / "0"), engine=ZstoreBackendEntrypoint)["band_1"]
        with XarrayReader(array) as reader:
            image = reader.tile(x, y, z, reproject_method=query["resampling"])
        image.rescale([(query["low"], query["high"])])
        return image.render(img_format="PNG")

    return make


async def client(address: str, paths: list[str], spent: list[float]) -> None:
    """Ask for one path after the other over one connection, as a browser does."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for path in paths:
        begin = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 200"), head
        length = next(line for line in head.lower().splitlines() if line.startswith("content-length"))
        await reader.readexactly(int(length.partition(":")[2]))
        spent.append(time.perf_counter() - begin)
    writer.close()


def load(application: Any, paths: list[str]) -> dict[str, float]:
    """200 clients at once against uvicorn, in this process: tiles a second, median and 99th percentile."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", limit_concurrency=512))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    spent: list[float] = []

    async def all_clients() -> None:
        shares = [[paths[(k * 7 + n) % len(paths)] for n in range(REQUESTS)] for k in range(CLIENTS)]
        await asyncio.gather(*(client(address, share, spent) for share in shares))

    begin = time.perf_counter()
    asyncio.run(all_clients())
    whole = time.perf_counter() - begin
    server.should_exit = True
    thread.join()
    p50, p99 = np.percentile(spent, (50, 99)).tolist()
    return {"tiles a second": len(spent) / whole, "median ms": p50 * 1e3, "p99 ms": p99 * 1e3}


def main(raster: Path) -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as held:
        place = Path(held)
        warped, stored, cog = place / "warped.zarr", place / "stored.zarr", place / "cog.tif"
        raster_to_zarr(raster, warped, levels=None, chunks=256)
        zstore.build_tile_pyramid(
            zstore.open_group(warped / "0", mode="r"), stored, sampling="nearest", nodata=0
        )
        import rasterio.warp
        from rasterio.shutil import copy

        copy(str(raster), str(cog), driver="COG", blocksize=256, compress="DEFLATE")
        with rasterio.open(cog) as source:
            box = list(rasterio.warp.transform_bounds(source.crs, "EPSG:4326", *source.bounds))
        from rio_tiler.io import Reader

        with Reader(str(cog)) as reader:
            tiles = [tile for tile in tiles_of(box, range(9, 13)) if reader.tile_exists(*tile[1:], tile[0])]
        query = {"resampling": "nearest", "low": 5000, "high": 20000}
        words = "rescale=5000,20000"
        print(f"{len(tiles)} tiles at zooms 9 to 12 of {raster.name}, {os.cpu_count()} processors")
        print("| what | ms of processor | ms |\n|---|--:|--:|")
        for what, path, more in (
            ("zstore-serve, stored tiles", stored, ""),
            ("zstore-serve, warped, nearest", warped, ""),
            ("zstore-serve, warped, bilinear", warped, "&resampling=bilinear"),
        ):
            spent = median_time(asked_of(router(path), path.name, words + more), tiles)
            print(f"| {what} | {spent[0]:.2f} | {spent[1]:.2f} |")
        for what, make in (
            ("rio-tiler, COG, nearest", rio_tiler_cog(cog, query)),
            ("rio-tiler, COG, bilinear", rio_tiler_cog(cog, {**query, "resampling": "bilinear"})),
            ("rio-tiler, XarrayReader, nearest", rio_tiler_xarray(warped, query)),
        ):
            spent = median_time(make, tiles)
            print(f"| {what} | {spent[0]:.2f} | {spent[1]:.2f} |")
        print(f"\n{CLIENTS} clients, {REQUESTS} requests each, client and server in one process")
        print("| what | tiles a second | median ms | p99 ms |\n|---|--:|--:|--:|")
        for what, path in (("stored tiles", stored), ("warped, nearest", warped)):
            base = f"/collections/{path.name}/tiles/WebMercatorQuad"
            found = load(router(path), [f"{base}/{z}/{x}/{y}.png?{words}" for z, x, y in tiles])
            print(f"| {what} | {' | '.join(f'{value:.0f}' for value in found.values())} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RASTER)

"""Processor time of a tile beside rio-tiler, and many clients at once: `python load.py [RASTER]`.

Needs titiler.core and titiler.xarray, and rioxarray for rio-tiler's reader of arrays; a raster in
Landsat's size will do.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import uvicorn
from zstore_serve import router

import zstore
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.tilesets.registry import load_tile_matrix_set
from zstore.geo.rasters.raster import raster_to_zarr

RASTER = Path(__file__).parents[3] / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
CLIENTS = 200
REQUESTS = 4


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

    from zstore.guests.xarray import ZstoreBackendEntrypoint

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


def make_application(kind: str, place: str) -> Any:
    """What serves tiles of one kind: ours, or titiler with a reader."""
    if kind == "zstore":
        return router(place)
    import fastapi

    application = fastapi.FastAPI()
    if kind == "titiler-xarray":
        from titiler.xarray.factory import TilerFactory as XarrayFactory

        application.include_router(XarrayFactory().router)
        return application
    from titiler.core.factory import TilerFactory

    if kind == "titiler-zstore":
        from zstore_serve.rio import Reader
    else:
        from rio_tiler.io import Reader  # type: ignore[assignment]
    application.include_router(TilerFactory(reader=Reader).router)
    return application


def serve(kind: str, place: str) -> None:
    """Serve in this process until it is ended; say the port first."""
    server = uvicorn.Server(
        uvicorn.Config(make_application(kind, place), port=0, log_level="error", limit_concurrency=512)
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(512)
    print(listening.getsockname()[1], flush=True)
    server.run(sockets=[listening])


def processor_time(pid: int) -> float:
    """Seconds of processor that a process has taken."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def load(kind: str, place: Path, paths: list[str]) -> tuple[float, float, float, float]:
    """200 clients at once: tiles a second, milliseconds of processor for each, median and 99th percentile."""
    line = [sys.executable, __file__, "--serve", kind, str(place)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            spent: list[float] = []

            async def all_clients() -> None:
                shares = [[paths[(k * 7 + n) % len(paths)] for n in range(REQUESTS)] for k in range(CLIENTS)]
                await asyncio.gather(*(client(address, share, spent) for share in shares))

            asyncio.run(client(address, paths[:3], []))
            begin, before = time.perf_counter(), processor_time(process.pid)
            asyncio.run(all_clients())
            whole, after = time.perf_counter() - begin, processor_time(process.pid)
        finally:
            process.terminate()
    p50, p99 = np.percentile(spent, (50, 99)).tolist()
    return len(spent) / whole, (after - before) / len(spent) * 1e3, p50 * 1e3, p99 * 1e3


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
        print(f"\n{CLIENTS} clients at once, {REQUESTS} tiles each, servers in one process of their own")
        print(
            "| server | tiles a second | ms of processor a tile | median ms | p99 ms |\n|---|--:|--:|--:|--:|"
        )
        titiler = f"/tiles/WebMercatorQuad/{{z}}/{{x}}/{{y}}.png?tilesize=256&{words}&url="
        for what, kind, path, template in (
            ("zstore-serve, stored tiles", "zstore", stored, f"{ours(stored)}?{words}"),
            ("zstore-serve, warped, nearest", "zstore", warped, f"{ours(warped)}?{words}"),
            ("titiler, COG", "titiler-cog", cog, f"{titiler}{cog}"),
            ("titiler, `zstore_serve.rio.Reader`", "titiler-zstore", warped, f"{titiler}{warped}"),
            ("titiler-xarray", "titiler-xarray", warped, f"{titiler}{warped}&group=0&variable=band_1"),
        ):
            found = load(kind, path, [template.format(z=z, x=x, y=y) for z, x, y in tiles])
            print(
                f"| {what} | {found[0]:.0f} | {found[1]:.1f} | {found[2]:.0f} | {found[3]:.0f} |", flush=True
            )


def ours(path: Path) -> str:
    """Addresses of our tiles."""
    return f"/collections/{path.name}/tiles/WebMercatorQuad/{{z}}/{{x}}/{{y}}.png"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else RASTER)

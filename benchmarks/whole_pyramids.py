"""A whole pyramid, store to store: zstore beside its peers, each in a process of its own, in turn.

`python -m benchmarks.whole_pyramids [SIDE ...]` makes SIDE x SIDE uint16 rasters of zstd chunks of 512 x 512,
in v2 and in v3 with shards of 2048 x 2048, and five levels of averages of each; prints a table in Markdown.
Who is not installed is named and left out. GDAL's row is its overviews of a GeoTIFF of the same tiles.
Processor time is given too: on a machine that is busy with other work, it says more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CHUNK, SHARD, LEVELS, ROUNDS = 512, 2048, 5, 3


def by_zstore(source: str, out: str, zarr_format: int) -> None:
    import zstore

    zstore.build_pyramid(zstore.open_array(source, mode="r"), out, levels=LEVELS)


def by_zstore_cascade(source: str, out: str, zarr_format: int) -> None:
    import zstore

    zstore.build_pyramid(zstore.open_array(source, mode="r"), out, levels=LEVELS, derive="cascade")


def by_tensorstore(source: str, out: str, zarr_format: int) -> None:
    import tensorstore as ts

    def spec(path: str) -> dict[str, Any]:
        driver = "zarr" if zarr_format == 2 else "zarr3"
        return {"driver": driver, "kvstore": {"driver": "file", "path": path, "file_io_sync": False}}

    finer = ts.open(spec(source)).result()
    for level in range(1, LEVELS + 1):
        view = ts.downsample(finer, [2, 2], "mean")
        schema = ts.Schema(chunk_layout=finer.chunk_layout, codec=finer.codec)
        finer = ts.open(
            spec(f"{out}/{level}"), create=True, schema=schema, dtype=ts.uint16, shape=view.shape
        ).result()
        finer.write(view).result()


def open_zarr(path: str, shape: tuple[int, int] | None = None, zarr_format: int = 3) -> Any:
    import zarr

    if shape is None:
        return zarr.open_array(path, mode="r")
    extra: dict[str, Any] = {"shards": (SHARD, SHARD)} if zarr_format == 3 else {}
    codec: Any = zarr.codecs.ZstdCodec(level=3, checksum=True)
    if zarr_format == 2:
        import numcodecs

        codec = numcodecs.Zstd(level=3)
    return zarr.create_array(
        path,
        shape=shape,
        dtype="u2",
        chunks=(CHUNK, CHUNK),
        zarr_format=zarr_format,
        compressors=codec,
        fill_value=0,
        **extra,
    )


def by_zarrs_and_opencv(source: str, out: str, zarr_format: int) -> None:
    import cv2
    import zarr
    import zarrs  # noqa: F401 - offers the pipeline

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    finer = open_zarr(source)
    for level in range(1, LEVELS + 1):
        rows, columns = finer.shape[0] // 2, finer.shape[1] // 2
        coarser = open_zarr(f"{out}/{level}", (rows, columns), zarr_format)
        for row in range(0, rows, SHARD):
            band = np.asarray(finer[2 * row : 2 * (row + SHARD)])
            size = (columns, band.shape[0] // 2)
            coarser[row : row + SHARD] = cv2.resize(band, size, interpolation=cv2.INTER_AREA)
        finer = coarser


def by_xarray(source: str, out: str, zarr_format: int) -> None:
    import dask.array
    import xarray

    finer = open_zarr(source)
    for level in range(1, LEVELS + 1):
        lazy = dask.array.from_array(finer, chunks=(2 * SHARD, 2 * SHARD))
        mean = xarray.DataArray(lazy, dims=("y", "x")).coarsen(y=2, x=2).mean().astype("u2")
        coarser = open_zarr(f"{out}/{level}", mean.shape, zarr_format)
        dask.array.store(mean.data, coarser, lock=False)
        finer = coarser


def by_gdal(source: str, out: str, zarr_format: int) -> None:
    import rasterio

    with rasterio.Env(GDAL_NUM_THREADS="ALL_CPUS"), rasterio.open(f"{source}.tif", "r+") as raster:
        raster.build_overviews(
            [2**level for level in range(1, LEVELS + 1)], rasterio.enums.Resampling.average
        )


PEERS: dict[str, tuple[Callable[[str, str, int], None], tuple[str, ...]]] = {
    "zstore": (by_zstore, ("zstore.geo.pyramid.build",)),
    "zstore, derive=cascade": (by_zstore_cascade, ("zstore.geo.pyramid.build",)),
    "tensorstore": (by_tensorstore, ("tensorstore",)),
    "zarrs + OpenCV": (by_zarrs_and_opencv, ("zarrs", "cv2", "zarr")),
    "xarray + dask": (by_xarray, ("xarray", "dask", "zarr")),
    "GDAL, GeoTIFF": (by_gdal, ("rasterio",)),
}


def make_source(path: Path, side: int, zarr_format: int) -> None:
    """A scene with slopes and noise, which zstd makes about half as large."""
    import zstore

    shards = {"shards": SHARD} if zarr_format == 3 else {}
    array = zstore.create_array(
        path,
        shape=(side, side),
        dtype="u2",
        chunks=CHUNK,
        zarr_format=zarr_format,
        compressors="zstd",
        **shards,
    )
    rng = np.random.default_rng(0)
    for row in range(0, side, SHARD):
        slope = np.add.outer(np.sin(np.arange(row, row + SHARD) / 97), np.cos(np.arange(side) / 131))
        array[row : row + SHARD] = (slope * 3000 + 9000 + rng.integers(0, 40, slope.shape)).astype("u2")


def make_geotiff(path: Path, source: Path) -> None:
    import rasterio

    import zstore

    array = zstore.open_array(source, mode="r")
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "height": array.shape[0],
        "width": array.shape[1],
        "count": 1,
    }
    profile |= {
        "dtype": "uint16",
        "tiled": True,
        "blockxsize": CHUNK,
        "blockysize": CHUNK,
        "compress": "zstd",
    }
    profile |= {"transform": rasterio.Affine(10, 0, 0, 0, -10, 0), "BIGTIFF": "YES"}
    with rasterio.open(path, "w", **profile) as raster:
        for row in range(0, array.shape[0], SHARD):
            raster.write(array[row : row + SHARD], 1, window=((row, row + SHARD), (0, array.shape[1])))


def run_one(name: str, source: str, out: str, zarr_format: int) -> None:
    """One build, timed, and what its process held at most."""
    build, needed = PEERS[name]
    for module in needed:
        __import__(module)
    start, before = time.perf_counter(), os.times()
    build(source, out, zarr_format)
    taken, after = time.perf_counter() - start, os.times()
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    used = after.user + after.system - before.user - before.system
    print(json.dumps({"seconds": taken, "processor": used, "peak": peak}))


def measure(name: str, source: Path, scratch: Path, zarr_format: int) -> dict[str, float]:
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    if name.startswith("GDAL"):
        tiff, fresh = source.with_name(f"{source.name}.tif"), source.with_name(f"{source.name}.tif.whole")
        shutil.copy(fresh, tiff)
    command = [sys.executable, "-m", "benchmarks.whole_pyramids", "--run", name, str(source), str(out)]
    done = subprocess.run([*command, str(zarr_format)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(side: int, zarr_format: int, scratch: Path) -> None:
    source = scratch / f"source{side}v{zarr_format}"
    make_source(source, side, zarr_format)
    names = [n for n, (_, needed) in PEERS.items() if all(importlib.util.find_spec(m) for m in needed)]
    if "GDAL, GeoTIFF" in names:
        make_geotiff(source.with_name(f"{source.name}.tif.whole"), source)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            results[name].append(measure(name, source, scratch, zarr_format))
    ours = statistics.median(found["seconds"] for found in results["zstore"])
    layout = f"v3, shards of {SHARD}" if zarr_format == 3 else "v2"
    for name, found in results.items():
        seconds = statistics.median(f["seconds"] for f in found)
        used = statistics.median(f["processor"] for f in found)
        peak = max(f["peak"] for f in found)
        numbers = f"{seconds:.2f} | {seconds / ours:.2f} | {used:.2f} | {peak:.0f}"
        print(f"| {side}², {layout} | {name} | {numbers} |", flush=True)
    for name in PEERS:
        if name not in names:
            print(f"| {side}², {layout} | {name} | not installed | | | |")


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run_one(*sys.argv[2:5], int(sys.argv[5]))
        return
    print("| raster | who | s | zstore is ahead | s of processor | peak, MiB |\n|---|---|--:|--:|--:|--:|")
    for side in [int(word) for word in sys.argv[1:]] or [8192, 16384]:
        for zarr_format in (2, 3):
            with tempfile.TemporaryDirectory() as scratch:
                compare(side, zarr_format, Path(scratch))


if __name__ == "__main__":
    main()

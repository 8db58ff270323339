"""A Landsat band becomes a GeoZarr pyramid, in Zarr v3 with shards and in v2, and is compared with its file.

    python examples/demo.py [directory for what it makes; "demo" by default]

Exits with 1 if any comparison fails.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import rasterio
from rich.console import Console

import zstore
from zstore import quicklook, raster_to_zarr, zarr_to_raster
from zstore.plugin.pictures import encode_png

RASTER = Path(__file__).parent / "data" / "LC80030172015001LGN00_B5.tiff"
WINDOW = (slice(400, 700), slice(300, 800))
console = Console(highlight=False)
failures: list[str] = []


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what was done, and how long it took."""
    begin = time.perf_counter()
    yield
    console.print(f"[bold]{what}[/bold]: {(time.perf_counter() - begin) * 1000:.0f} ms")


def compare(what: str, is_same: bool) -> None:
    """Print whether a comparison holds, and remember it if not."""
    console.print(f"  {'[green]same[/green]' if is_same else '[red]DIFFERENT[/red]'}  {what}")
    if not is_same:
        failures.append(what)


def size_of(path: Path) -> str:
    files = [file for file in path.rglob("*") if file.is_file()]
    return f"{sum(file.stat().st_size for file in files) / 2**20:.2f} MiB in {len(files)} files"


def check_pyramid(path: Path, pixels: np.ndarray) -> None:
    """Compare the finest level and a window of it with the raster, and every level with its means."""
    pyramid = zstore.open_group(path, mode="r")
    band = pyramid["0/band_1"]
    compare(f"a window of {path.name}", np.array_equal(band[WINDOW], pixels[WINDOW]))
    compare(f"level 0 of {path.name}, cell by cell", np.array_equal(band[...], pixels))
    for number, item in enumerate(pyramid.attrs["multiscales"]["layout"][1:], start=1):
        size = 2**number
        padding = [(0, -length % size) for length in pixels.shape]
        padded = np.pad(pixels.astype(float), padding, constant_values=np.nan)
        windows = padded.reshape(padded.shape[0] // size, size, padded.shape[1] // size, size)
        means = np.floor(np.nanmean(windows, axis=(1, 3)) + 0.5).astype(pixels.dtype)
        level = pyramid[f"{item['asset']}/band_1"]
        what = f"level {item['asset']} of {path.name}: means of {size} × {size}"
        compare(what, np.array_equal(level[...], means))


def main(directory: Path) -> int:
    """Make everything below `directory`; gives the exit code."""
    for name in ("landsat.v3.zarr", "landsat.v2.zarr"):
        shutil.rmtree(directory / name, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    with rasterio.open(RASTER) as raster:
        pixels, place = raster.read(1), (raster.crs, raster.transform, raster.nodata)
    console.print(f"{RASTER.name}: {pixels.shape[0]} × {pixels.shape[1]} {pixels.dtype}, {place[0]}")

    v3, v2 = directory / "landsat.v3.zarr", directory / "landsat.v2.zarr"
    with timed("raster to a sharded Zarr v3 pyramid"):
        pyramid = raster_to_zarr(RASTER, v3, chunks=256, shards=1024, levels=None)
    with timed("raster to a Zarr v2 pyramid"):
        raster_to_zarr(RASTER, v2, zarr_format=2, chunks=256, compressors="blosc", levels=None)
    for path in (v3, v2):
        check_pyramid(path, pixels)

    tiff = directory / "landsat.tif"
    with timed("level 0 back to a GeoTIFF"):
        zarr_to_raster(v3, tiff, overwrite=True)
    with rasterio.open(tiff) as raster:
        compare("cells of the GeoTIFF", np.array_equal(raster.read(1), pixels))
        compare("its CRS, affine and nodata", (raster.crs, raster.transform, raster.nodata) == place)

    picture = directory / "quicklook.png"
    with timed("quicklook"):
        picture.write_bytes(encode_png(quicklook(v3)))
    console.print(str(pyramid.tree()), markup=False)
    for path in (RASTER, v3, v2, tiff):
        size = f"{path.stat().st_size / 2**20:.2f} MiB" if path.is_file() else size_of(path)
        console.print(f"{path.name}: {size}")
    console.print(f"picture: {picture}")
    console.print(f"on a map: zstore view {v3} (with the package plugins/zstore-serve)")
    if failures:
        console.print(f"[red]{len(failures)} comparisons failed[/red]")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo")))

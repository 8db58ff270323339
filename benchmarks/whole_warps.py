"""A scene brought to WebMercatorQuad, with all its levels: zstore beside GDAL, each in a process of its own.

`python -m benchmarks.whole_warps [SAMPLING ...]` makes an 8192 x 8192 uint16 scene in UTM, as Zarr v3 and as
a GeoTIFF of the same tiles. zstore makes a tile pyramid of the one; GDAL, through rasterio, brings the other
into a GeoTIFF on the same cells, and builds overviews. Both may be an eighth of a cell off. Prints a table in
Markdown. Last come the differences of exact reprojections, with the stretch of the kernels that zstore has.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.whole_pyramids import CHUNK, SHARD, make_geotiff, make_source

SIDE, ROUNDS, ZONE = 8192, 3, 32632
SAMPLINGS = ("nearest", "bilinear", "cubic", "average")
AFFINE = (10.0, 0.0, 600000.0, 0.0, -10.0, 5300000.0)
# How the set numbers the level whose cells are the nearest in size, and how many coarser ones are made.
FINEST, LEVELS = 12, 5


def make_scene(folder: Path, side: int) -> None:
    """The scene as Zarr, in `source`, and as `source.tif`."""
    import rasterio

    import zstore
    from zstore.geo.conventions.base import Affine, GeoModel, Variable
    from zstore.geo.conventions.crs import Crs
    from zstore.geo.conventions.write import render_geo

    variable = Variable(dtype=np.dtype("u2"), nodata=0, dimensions=("y", "x"))
    geo = GeoModel(Crs.from_user(ZONE), Affine(*AFFINE), (side, side), variables={"b": variable})
    documents = render_geo(geo, 3)[0]
    group = zstore.create_group(folder / "source", attributes=documents[""]["attributes"])
    make_source(folder / "source" / "b", side, 3)
    group["b"].attrs.update(documents["b"]["attributes"])
    make_geotiff(folder / "source.tif", folder / "source" / "b")
    with rasterio.open(folder / "source.tif", "r+") as raster:
        raster.crs, raster.transform, raster.nodata = f"EPSG:{ZONE}", rasterio.Affine(*AFFINE), 0


def by_zstore(folder: Path, sampling: str, tolerance: float = 0.125) -> Any:
    import zstore

    return zstore.build_tile_pyramid(
        folder / "source",
        folder / "out",
        nodata=0,
        sampling=sampling,
        max_zoom=FINEST,
        min_zoom=FINEST - LEVELS,
        tile_length=CHUNK,
        tiles_per_shard=SHARD // CHUNK,
        tolerance=tolerance,
    )


def by_gdal(folder: Path, sampling: str) -> None:
    import rasterio
    from rasterio.warp import reproject

    place = json.loads((folder / "place.json").read_text())
    profile = {"driver": "GTiff", "dtype": "uint16", "count": 1, "tiled": True, "compress": "zstd"}
    profile |= {"blockxsize": CHUNK, "blockysize": CHUNK, "BIGTIFF": "YES", "nodata": 0, "crs": "EPSG:3857"}
    profile |= {"height": place["shape"][0], "width": place["shape"][1], "SPARSE_OK": "TRUE"}
    profile["transform"] = rasterio.Affine(*place["affine"])
    with (
        rasterio.Env(GDAL_NUM_THREADS="ALL_CPUS"),
        rasterio.open(folder / "source.tif") as source,
        rasterio.open(folder / "out.tif", "w", **profile) as made,
    ):
        reproject(
            rasterio.band(source, 1),
            rasterio.band(made, 1),
            resampling=rasterio.enums.Resampling[sampling],
            num_threads=os.cpu_count(),
            warp_mem_limit=256,
        )
    with rasterio.Env(GDAL_NUM_THREADS="ALL_CPUS"), rasterio.open(folder / "out.tif", "r+") as made:
        factors = [2**level for level in range(1, LEVELS + 1)]
        made.build_overviews(factors, rasterio.enums.Resampling.average)


def run_one(name: str, folder: Path, sampling: str) -> None:
    """One build, timed, and what its process held at most."""
    if name == "zstore":
        import pyproj  # noqa: F401

        import zstore.geo.pyramid.build  # noqa: F401
    else:
        import rasterio.warp  # noqa: F401
    start, before = time.perf_counter(), os.times()
    (by_zstore if name == "zstore" else by_gdal)(folder, sampling)
    taken, after = time.perf_counter() - start, os.times()
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    used = after.user + after.system - before.user - before.system
    print(json.dumps({"seconds": taken, "processor": used, "peak": peak}))


def measure(name: str, folder: Path, sampling: str) -> dict[str, float]:
    shutil.rmtree(folder / "out", ignore_errors=True)
    for rest in folder.glob("out.tif*"):
        rest.unlink()
    command = [sys.executable, "-m", "benchmarks.whole_warps", "--run", name, str(folder), sampling]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def place_of(group: Any) -> tuple[tuple[slice, slice], dict[str, Any]]:
    """The cells of the finest level within its limits, and where they lie."""
    limits = group.attrs["multiscales"]["tile_matrix_limits"][str(FINEST)]
    rows = slice(limits["minTileRow"] * CHUNK, (limits["maxTileRow"] + 1) * CHUNK)
    columns = slice(limits["minTileCol"] * CHUNK, (limits["maxTileCol"] + 1) * CHUNK)
    a, b, c, d, e, f = group[str(FINEST)].attrs["spatial:transform"]
    affine = [a, b, c + a * columns.start, d, e, f + e * rows.start]
    shape = [rows.stop - rows.start, columns.stop - columns.start]
    return (rows, columns), {"affine": affine, "shape": shape}


def differences(folder: Path, sampling: str) -> str:
    """How exact reprojections differ, as a row of the table."""
    import rasterio
    from rasterio.vrt import WarpedVRT

    import zstore
    from zstore.geo.pyramid.tile_grid import TileGrid

    scales: list[tuple[float, float]] = []
    choose = TileGrid.choose.__func__  # type: ignore[attr-defined]

    def spy(*arguments: Any) -> TileGrid:
        grid: TileGrid = choose(*arguments)
        scales.append(grid.scale)
        return grid

    TileGrid.choose = classmethod(spy)  # type: ignore[assignment]
    shutil.rmtree(folder / "out", ignore_errors=True)
    window, place = place_of(by_zstore(folder, sampling, tolerance=0))
    stretch = {"XSCALE": repr(scales[-1][1]), "YSCALE": repr(scales[-1][0])}
    options: dict[str, Any] = stretch if sampling in ("bilinear", "cubic") else {}
    with (
        rasterio.open(folder / "source.tif") as source,
        WarpedVRT(
            source,
            crs="EPSG:3857",
            transform=rasterio.Affine(*place["affine"]),
            height=place["shape"][0],
            width=place["shape"][1],
            resampling=rasterio.enums.Resampling[sampling],
            nodata=0,
            # Of all that rasterio offers, only this is as exact as one asks, and it does not take 0.
            tolerance=1e-9,
            **options,
        ) as warped,
    ):
        want = warped.read(1).astype(np.int64)
    got = zstore.open_array(folder / "out" / str(FINEST) / "b", mode="r")[window].astype(np.int64)
    both, off = (got != 0) & (want != 0), np.abs(got - want)
    rim = ((got != 0) != (want != 0)).mean()
    inner = off[both]
    return f"| {sampling} | {(inner > 0).mean():.6%} | {inner.max()} | {(inner > 1).mean():.6%} | {rim:.6%} |"


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run_one(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
        return
    if sys.argv[1:2] == ["--differences"]:
        print(differences(Path(sys.argv[2]), sys.argv[3]))
        return
    chosen = sys.argv[1:] or list(SAMPLINGS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_scene(folder, SIDE)
        (folder / "place.json").write_text(json.dumps(place_of(by_zstore(folder, "nearest"))[1]))
        print(
            "| sampling | who | s | zstore is ahead | s of processor | peak, MiB |\n|---|---|--:|--:|--:|--:|"
        )
        for sampling in chosen:
            results: dict[str, list[dict[str, float]]] = {"zstore": [], "GDAL": []}
            for _ in range(ROUNDS):
                for name, found in results.items():
                    found.append(measure(name, folder, sampling))
            ours = statistics.median(found["seconds"] for found in results["zstore"])
            for name, found in results.items():
                seconds, used = (
                    statistics.median(f[what] for f in found) for what in ("seconds", "processor")
                )
                peak = max(f["peak"] for f in found)
                numbers = f"{seconds:.2f} | {seconds / ours:.2f} | {used:.2f} | {peak:.0f}"
                print(f"| {sampling} | {name} | {numbers} |", flush=True)
        print("\n| sampling | differ | by at most | by more than 1 | in one alone |\n|---|--:|--:|--:|--:|")
        for sampling in chosen:
            command = [sys.executable, "-m", "benchmarks.whole_warps", "--differences", scratch, sampling]
            print(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(), flush=True
            )


if __name__ == "__main__":
    main()

"""What do mosaics of scenes from several UTM zones cost, beside gdalwarp and odc-stac?

A hundred scenes of 1830 × 1830 uint16 (Sentinel-2's at 60 m; ten places in three zones, ten days each),
with nodata beside a swath and classes of clouds, as Zarr and as GeoTIFF of the same tiles and codec, are
brought to one grid in EPSG:3035, and the median of ten days without clouds is made. Each way runs in a
process of its own, in turn with the others; times are its processor time, children's too, the median of some
rounds. gdalwarp runs with its own tolerance, of an eighth of a cell; where cells are compared, with one of a
thousandth, or of none.

    python -m benchmarks.mosaics make DIRECTORY
    python -m benchmarks.mosaics costs|cells|median|window|describe DIRECTORY [RESAMPLING ...]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

SIDE, CELL, CHUNK, DAYS = 1830, 60.0, 512, 10
STEP = SIDE * CELL - 9000.0  # neighbouring tiles of a zone overlap, as Sentinel-2's do
PLACES = (
    *((32631, 600000.0 + n * STEP) for n in range(2)),
    *((32632, 300000.0 + n * STEP) for n in range(5)),
    *((32633, 300000.0 + n * STEP) for n in range(3)),
)
TOP = 5300040.0
METHODS = ("nearest", "bilinear", "cubic", "average", "mode")
DAYS_OF = {"mode": 1}  # as GDAL takes minutes for the ten scenes of a day
ROUNDS = 3
CLOSE = 1e-3  # of a cell: -et 0 takes ten times as long
COMPARED_DAYS = 3  # whose median is numpy's on gdalwarp's cells
WAYS = ("zstore", "zstore, GeoTIFF", "gdalwarp", "odc-stac")
CLOUDS = (3, 8, 9)  # classes that are masked: shadows, and clouds of two degrees


def make(place: Path) -> None:
    """Store scenes and classes, and the STAC items of both."""
    import rasterio

    import zstore

    items: list[dict[str, Any]] = []
    y, x = np.mgrid[:SIDE, :SIDE]
    for day in range(DAYS):
        for number, (zone, left) in enumerate(PLACES):
            rng = np.random.default_rng(day * len(PLACES) + number)
            ground = (
                3000 + 1500 * np.sin(y / 40 + number) * np.cos(x / 55) + 300 * rng.standard_normal(y.shape)
            )
            waves = np.sin(y / rng.uniform(60, 140) + day) + np.cos(x / rng.uniform(60, 140) - day)
            classes = np.where(waves > 1.2, 8, np.where(waves > 1.0, 3, 4)).astype("u1")
            cells = np.clip(np.where(classes == 8, 9000, ground), 1, 10000).astype("u2")
            is_beside = x + y * 0.2 > SIDE * rng.uniform(0.8, 1.3)
            cells[is_beside] = classes[is_beside] = 0
            affine, name = [CELL, 0.0, left, 0.0, -CELL, TOP], f"d{day}p{number}"
            said = {"proj:code": f"EPSG:{zone}", "proj:transform": affine, "proj:shape": [SIDE, SIDE]}
            assets: dict[str, Any] = {}
            for band, data in (("red", cells), ("scl", classes)):
                attributes = {"spatial:dimensions": ["y", "x"], "spatial:transform": affine, "_FillValue": 0}
                zstore.create_array(
                    place / f"{name}_{band}.zarr", data=data, chunks=(CHUNK, CHUNK), compressors="zstd:1",
                    dimension_names=("y", "x"), attributes={**attributes, "proj:code": said["proj:code"]},
                )  # fmt: skip
                profile = {
                    "driver": "GTiff",
                    "count": 1,
                    "width": SIDE,
                    "height": SIDE,
                    "dtype": data.dtype.name,
                }
                profile |= {"tiled": True, "blockxsize": CHUNK, "blockysize": CHUNK, "compress": "zstd"}
                profile |= {
                    "crs": said["proj:code"],
                    "transform": rasterio.Affine(*affine),
                    "nodata": 0,
                    "zstd_level": 1,
                }
                with rasterio.open(place / f"{name}_{band}.tif", "w", **profile) as raster:
                    raster.write(data, 1)
                value = {"data_type": data.dtype.name, "nodata": 0}
                assets[band] = {
                    **said,
                    "href": f"./{name}_{band}.zarr",
                    "roles": ["data"],
                    "raster:bands": [value],
                }
            properties = {"datetime": f"2020-05-{day + 1:02}T10:00:00Z", **said}
            geometry = {"type": "Polygon", "coordinates": [_outline(zone, left)]}
            items.append(
                {
                    "type": "Feature", "stac_version": "1.0.0", "id": name, "properties": properties,
                    "links": [], "assets": assets, "geometry": geometry, "bbox": [0, 40, 20, 50],
                }
            )  # fmt: skip
    (place / "items.json").write_text(json.dumps({"type": "FeatureCollection", "features": items}))
    grid = zstore.GeoGrid.around(
        [place / f"d0p{number}_red.zarr" for number in range(len(PLACES))], crs="EPSG:3035", resolution=CELL
    )
    (place / "grid.json").write_text(json.dumps([list(grid.affine), list(grid.shape)]))


def _outline(zone: int, left: float) -> list[list[float]]:
    from pyproj import Transformer

    change, length = Transformer.from_crs(zone, 4326, always_xy=True), SIDE * CELL
    corners = [(0, 0), (0, -length), (length, -length), (length, 0), (0, 0)]
    return [list(change.transform(left + right, TOP + up)) for right, up in corners]


def grid_of(place: Path) -> Any:
    """The grid, as zstore has it."""
    import zstore
    from zstore.geo.conventions.base import Affine
    from zstore.geo.conventions.crs import Crs

    affine, shape = json.loads((place / "grid.json").read_text())
    return zstore.GeoGrid(Crs.from_user("EPSG:3035"), Affine(*affine), tuple(shape))


def names(place: Path, band: str, ending: str, days: range = range(DAYS)) -> list[str]:
    return [str(place / f"d{day}p{number}_{band}.{ending}") for day in days for number in range(len(PLACES))]


def days_of(method: str) -> range:
    return range(DAYS_OF.get(method, DAYS))


def by_zstore(place: Path, method: str, ending: str) -> None:
    import zstore

    if method == "median":
        median_by_zstore(place, DAYS, ending)
        return
    made = zstore.mosaic(names(place, "red", ending, days_of(method)), grid_of(place), resampling=method)
    zstore.convert(made, place / "out", chunks=(CHUNK, CHUNK), compressors="zstd:1", overwrite=True)


def by_gdalwarp(
    place: Path, method: str, tolerance: float, days: range = range(DAYS), band: str = "red", more: str = ""
) -> None:
    (a, _, c, _, e, f), (rows, columns) = json.loads((place / "grid.json").read_text())
    bounds = f"{c} {f + e * rows} {c + a * columns} {f}"
    words = (
        f"-q -overwrite -t_srs EPSG:3035 -r {method.replace('nearest', 'near')} -et {tolerance} -te {bounds} "
        f"{more} -ts {columns} {rows} -srcnodata 0 -dstnodata 0 -wm 256 -co TILED=YES -co COMPRESS=ZSTD "
        f"-co ZSTD_LEVEL=1 -co BLOCKXSIZE={CHUNK} -co BLOCKYSIZE={CHUNK}"
    )
    made = str(made_by_gdal(place))
    subprocess.run(["gdalwarp", *words.split(), *names(place, band, "tif", days), made], check=True)


def made_by_gdal(place: Path) -> Path:
    return place / f"out{os.getpid()}.tif"


def items_of(place: Path, ending: str, days: range) -> list[Any]:
    """The STAC items of some days, with absolute addresses."""
    text = (place / "items.json").read_text().replace("./", f"{place}/").replace(".zarr", f".{ending}")
    items = json.loads(text)["features"]
    return [*items[days.start * len(PLACES) : days.stop * len(PLACES)]]


def median_by_zstore(place: Path, days: int, ending: str) -> Any:
    """The median of all days without clouds, stored."""
    import zstore

    words: dict[str, Any] = {"mask": "scl", "mask_values": CLOUDS, "unpack": True}
    cube = zstore.cube(items_of(place, ending, range(days)), grid_of(place), "red", **words)
    made: Any = np.nanmedian(cube, axis=0)
    return zstore.convert(made, place / "median", chunks=(CHUNK, CHUNK), compressors="zstd:1", overwrite=True)


def load_by_odc(
    place: Path, bands: list[str], method: str, length: int, group: Any, days: range = range(DAYS)
) -> Any:
    import odc.geo.geobox
    import odc.stac
    import pystac
    import rasterio

    affine, shape = json.loads((place / "grid.json").read_text())
    items = [pystac.Item.from_dict(one) for one in items_of(place, "tif", days)]
    box = odc.geo.geobox.GeoBox(shape, rasterio.Affine(*affine), "EPSG:3035")
    chunks = {"y": length, "x": length}
    return odc.stac.load(
        items, bands=bands, geobox=box, resampling=method, chunks=chunks, groupby=group, nodata=0
    )


def by_odc(place: Path, method: str) -> None:
    if method == "median":
        days = load_by_odc(place, ["red", "scl"], "nearest", 1024, lambda item, *_: item.datetime.date())
        clear = days.red.where((days.red != 0) & ~days.scl.isin(CLOUDS))
        clear.chunk(time=-1).median("time").compute()
        return
    load_by_odc(place, ["red"], method, 2048, lambda *_: 0, days_of(method)).red.data.compute()


def run_one(place: Path, way: str, method: str) -> None:
    """One way, and what its process took."""
    if way == "odc-stac":
        by_odc(place, method)
    elif way == "gdalwarp":
        by_gdalwarp(place, method, 0.125, days_of(method))
    else:
        by_zstore(place, method, "zarr" if way == "zstore" else "tif")


def measure(place: Path, way: str, method: str) -> tuple[float, float]:
    """(seconds of processor, MiB at most) of a way."""
    code = (
        "import os, resource, sys\nfrom pathlib import Path\nfrom benchmarks import mosaics\n"
        "mosaics.run_one(Path(sys.argv[1]), *sys.argv[2:]); used = os.times()\n"
        "whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN\n"
        "peak = max(resource.getrusage(who).ru_maxrss for who in whose)\n"
        "print(sum(used[:4]), peak / 1024)"
    )
    # Modules are compiled once, as those of installed packages are.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, place, way, method], capture_output=True, text=True, check=True, env=env
    )
    used, peak = map(float, done.stdout.splitlines()[-1].split())
    return used, peak


def costs(place: Path, methods: list[str]) -> None:
    """A table of what each way takes."""
    print("| resampling | " + " | ".join(WAYS) + " | peak, MiB |\n|---|" + "--:|" * (len(WAYS) + 1))
    for method in methods:
        ways = [way for way in WAYS if (way, method) != ("gdalwarp", "median")]
        found = [{way: measure(place, way, method) for way in ways} for _ in range(ROUNDS)]
        seconds = {way: statistics.median(one[way][0] for one in found) for way in ways}
        peaks = {way: max(one[way][1] for one in found) for way in ways}
        row = " | ".join(f"{seconds[way]:.1f}" if way in ways else "–" for way in WAYS)
        most = ", ".join(f"{peaks[way]:.0f}" if way in ways else "–" for way in WAYS)
        print(f"| {method} | {row} | {most} |", flush=True)


def cells(place: Path, methods: list[str]) -> None:
    """How cells of all scenes differ from gdalwarp's."""
    import rasterio

    import zstore

    print("| resampling | equal | by at most 1 | in one alone |\n|---|--:|--:|--:|")
    for method in methods:
        days = days_of(method)
        own = zstore.mosaic(names(place, "red", "zarr", days), grid_of(place), resampling=method).read()
        # Without these, it stretches kernels by the upright boxes around tilted pieces of the target.
        by_gdalwarp(place, method, CLOSE, days, more="-wo XSCALE=1 -wo YSCALE=1")
        with rasterio.open(made_by_gdal(place)) as raster:
            theirs = raster.read(1)
        both, off = (own != 0) & (theirs != 0), np.abs(own.astype(np.int64) - theirs)
        alone = np.count_nonzero((own != 0) != (theirs != 0)) / np.count_nonzero(both)
        equal, near = (np.mean(off[both] <= most) for most in (0, 1))
        print(f"| {method} | {equal:.4%} | {near:.4%} | {alone:.4%} |", flush=True)


def median(place: Path, methods: list[str]) -> None:
    """How a median of days without clouds differs from numpy's on gdalwarp's cells."""
    import rasterio

    import zstore

    median_by_zstore(place, COMPARED_DAYS, "zarr")
    [(_, stored)] = [one for one in zstore.open_group(place / "median").arrays() if one[1].ndim == 2]
    cells = []
    for day in range(COMPARED_DAYS):
        # Clouds of a later scene do not hide what is clear below them.
        for red in names(place, "red", "tif", range(day, day + 1)):
            with rasterio.open(red) as raster, rasterio.open(red.replace("red", "scl")) as classes:
                clear = np.where(np.isin(classes.read(1), CLOUDS), 0, raster.read(1)).astype("u2")
                with rasterio.open(red.replace("red", "clear"), "w", **raster.profile) as made:
                    made.write(clear, 1)
        by_gdalwarp(place, "nearest", 0, range(day, day + 1), "clear")
        with rasterio.open(made_by_gdal(place)) as raster:
            warped = raster.read(1)
        cells.append(np.where(warped == 0, np.nan, warped.astype("f4")))
    expected = np.nanmedian(np.stack(cells), axis=0)
    own = stored[...]
    same = (own == expected) | (np.isnan(own) & np.isnan(expected))
    print(f"{same.mean():.4%} of cells of {COMPARED_DAYS} days are equal")


def window(place: Path, methods: list[str]) -> None:
    """What windows of the mosaic ask of a store that takes 30 ms for an answer."""
    import threading
    import time

    import zstore
    from zstore.storage.memory import MemoryStore

    class Distant(MemoryStore):
        in_memory, request_count = False, 32

        def __init__(self) -> None:
            super().__init__()
            self.begins = list[float]()
            self.guard = threading.Lock()

        def get_many(self, requests: Any) -> Any:
            with self.guard:
                self.begins += [time.perf_counter()] * len(requests)
            time.sleep(0.03)
            return super().get_many(requests)

    store, scenes = Distant(), []
    for number, name in enumerate(names(place, "red", "zarr")):
        zstore.convert(name, store, target_path=f"{number}")
        scenes.append(zstore.open_array(store, f"{number}"))
    made = zstore.mosaic(scenes, grid_of(place))
    for row, column in ((1000, 700), (800, 5000), (900, 9000)):
        del store.begins[:]
        made[row : row + CHUNK, column : column + CHUNK].read()
        begins = sorted(store.begins)
        rounds = 1 + sum(after - before > 0.02 for before, after in pairwise(begins))
        print(f"{len(begins)} requests in {rounds} rounds", flush=True)


def describe(place: Path, methods: list[str], count: int = 100_000) -> None:
    """What it takes to describe a cube of many scenes of as many tiles as there are in a set."""
    import resource
    import time

    import zstore

    items = []
    for number in range(count):
        tile, day = number % 100, number // 100
        said = {"proj:code": f"EPSG:{32631 + tile % 3}", "proj:shape": [SIDE, SIDE]}
        said["proj:transform"] = [CELL, 0.0, 300000.0 + tile // 3 * 100000, 0.0, -CELL, TOP]
        asset = {**said, "href": f"{place}/{number}.zarr"}
        asset["raster:bands"] = [{"data_type": "uint16", "nodata": 0}]
        date = str(np.datetime64("2000-01-01") + day)
        item = {"type": "Feature", "id": f"{number}", "assets": {"red": asset}}
        items.append({**item, "properties": {"datetime": f"{date}T10:00:00Z", **said}})
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    cube = zstore.cube(items, bands="red", crs="EPSG:3035", resolution=CELL)
    used, grown = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{cube.shape}: {used:.1f} s of processor, {grown / 1024:.0f} MiB beside the items")
    del items
    begin = time.process_time()
    cube.save(place / "many.view.json")
    size = (place / "many.view.json").stat().st_size / 2**20
    print(f"saved as {size:.1f} MiB in {time.process_time() - begin:.1f} s of processor", flush=True)
    opening(place / "many.view.json")


def opening(document: Path) -> None:
    """What opening a view takes beside what another one has imported, in a process of its own."""
    import zstore

    zstore.view(np.arange(2)).save(small := document.with_name("small.view.json"))
    code = (
        "import re, sys, time, zstore\nzstore.open(sys.argv[1])\n"
        # `ru_maxrss` is at least that of the process above.
        "said = lambda: open('/proc/self/status').read()\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', said())[1]) / 1024\n"
        "before, begin = peak(), time.process_time()\n"
        "view = zstore.open(sys.argv[2])\n"
        "print(f'{view}: opened in {time.process_time() - begin:.2f} s, {peak() - before:.0f} MiB')"
    )
    subprocess.run([sys.executable, "-c", code, small, document], check=True)


def main() -> None:
    command, place, *methods = sys.argv[1], Path(sys.argv[2]).absolute(), *sys.argv[3:]
    if command == "make":
        make(place)
    else:
        commands = {"costs": costs, "cells": cells, "median": median, "window": window, "describe": describe}
        wanted = [*METHODS, "median"] if command == "costs" else [*METHODS]
        commands[command](place, methods or wanted)


if __name__ == "__main__":
    main()

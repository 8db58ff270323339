"""The service as it answers: pictures beside quicklook's and GDAL's, values, descriptions, refusals."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import cmap
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if not entry_points(group="zstore", name="serve"):
    pytest.skip("zstore-serve is not installed, so it has no entry point", allow_module_level=True)
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

from PIL import Image
from zstore_serve import Settings, router, watch
from zstore_serve.connections import ImpatientProtocol
from zstore_serve.expressions import parse_expression
from zstore_serve.service import VENDOR
from zstore_serve.vendored import read_vendored

import zstore
from zstore.errors import MetadataError, NotFoundError
from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.tilesets.registry import load_tile_matrix_set
from zstore.geo.pictures.colours import colour_map, colour_map_names
from zstore.geo.pictures.quicklook import quicklook
from zstore.storage.memory import MemoryStore
from zstore.testing.commands import CommandContract

from .applications import Answer, ask, ask_async, get, listening, write

WEB = load_tile_matrix_set("WebMercatorQuad")
MERCATOR, DEGREES = Crs.from_user("EPSG:3857"), Crs.from_user("OGC:CRS84")


class TestServe(CommandContract):
    name = "serve"


class TestView(CommandContract):
    name = "view"


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(4).integers(1, 4000, (300, 420)).astype("uint16")


@pytest.fixture(scope="module")
def utm(tmp_path_factory: pytest.TempPathFactory, noise: np.ndarray) -> Path:
    """A pyramid in UTM, of which a corner is nodata."""
    place = tmp_path_factory.mktemp("serve") / "utm.zarr"
    values = noise.copy()
    values[:50, :60] = 0
    source = write(place, values, "EPSG:32632", Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0), nodata=0)
    zstore.build_pyramid(source, place.with_name("pyramid.zarr"), levels=3)
    return place.with_name("pyramid.zarr")


def tiles_over(box: tuple[float, float, float, float], z: int) -> list[tuple[int, int]]:
    """(x, y) of the web's tiles over degrees."""
    x, y = DEGREES.transform(MERCATOR, np.array([box[0], box[2]]), np.array([box[3], box[1]]))
    matrix = WEB[str(z)]
    size, (west, north) = matrix.cell_size * 256, matrix.origin
    columns, rows = (x - west) / size, (north - y) / size
    return [
        (c, r)
        for c in range(int(columns[0]), int(columns[1]) + 1)
        for r in range(int(rows[0]), int(rows[1]) + 1)
    ]


@pytest.mark.parametrize("sampling", ["nearest", "bilinear", "cubic"])
def test_warped_tiles_are_gdals(utm: Path, tmp_path: Path, sampling: str) -> None:
    """At most 2 % of nearest cells come from beside the place (both approximate places, within 1/8
    cell); of the others' values 99 % lie within 5 % of the noise's range."""
    rasterio = pytest.importorskip(
        "rasterio", reason="GDAL's warp is asked through rasterio (extra 'raster')"
    )
    from rasterio.vrt import WarpedVRT

    application = router(utm)
    level = zstore.open_array(utm, "0/v", mode="r")[...]
    profile = {
        "driver": "GTiff", "height": 300, "width": 420, "count": 1, "dtype": "uint16", "nodata": 0,
        "crs": "EPSG:32632", "transform": rasterio.Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0),
    }  # fmt: skip
    with rasterio.open(tmp_path / "a.tif", "w", **profile) as raster:
        raster.write(level, 1)
    box = get(application, "/collections/pyramid.zarr/bounds").document["bbox"]
    matrix, compared = WEB["13"], 0
    for x, y in tiles_over(box, 13):
        a = matrix.affine
        left, top = a.at(x * 256.0, y * 256.0)
        with (
            rasterio.open(tmp_path / "a.tif") as raster,
            WarpedVRT(
                raster, crs="EPSG:3857", width=256, height=256,
                resampling=rasterio.enums.Resampling[sampling],
                transform=rasterio.Affine(a.a, 0, left, 0, a.e, top),
            ) as warped,
        ):  # fmt: skip
            theirs = warped.read(1)
        ours = get(
            application,
            f"/collections/pyramid.zarr/tiles/WebMercatorQuad/13/{x}/{y}.npy?resampling={sampling}",
        )
        values, valid = ours.cells
        both = (theirs != 0) & (valid != 0)
        assert ((theirs != 0) != (valid != 0)).mean() < 0.01
        off = np.abs(values.astype(int) - theirs.astype(int))[both]
        if off.size:
            compared += off.size
            assert (off > (0 if sampling == "nearest" else 200)).mean() < (
                0.02 if sampling == "nearest" else 0.01
            )
    assert compared > 50_000


# CRS; cell, west and north; rows and columns; zooms; places that tiles are asked for.
GROUNDS = {
    "global": ("EPSG:4326", (1, -180, 90), (180, 360), range(6), [(-60.2, 12.3), (179.9, -16)]),
    "antimeridian": ("EPSG:32601", (1e3, 1e5, 2e6), (400, 600), range(3, 9), [(179.5, 17), (-179.5, 16)]),
    "polar": ("EPSG:3031", (25e3, -3e6, 3e6), (240, 240), range(7), [(-60, -75), (179, -80)]),
    "equator": ("EPSG:32632", (1e3, 3e5, 2e5), (400, 400), range(3, 9), [(9.2, 0.3), (9.2, -0.3)]),
}


@pytest.mark.parametrize("ground", GROUNDS)
def test_tiles_are_gdals_at_every_zoom(tmp_path: Path, ground: str) -> None:
    """GDAL warps exactly, ours to 1/8 of a cell: 95 % of pixels are the same cell, the others its neighbours.

    Whether there is one, 98 % agree.
    """
    rasterio = pytest.importorskip(
        "rasterio", reason="GDAL's warp is asked through rasterio (extra 'raster')"
    )
    from rasterio.vrt import WarpedVRT

    crs, (cell, west, north), shape, zooms, places = GROUNDS[ground]
    numbers = np.arange(1, shape[0] * shape[1] + 1, dtype="i4").reshape(shape)
    store = MemoryStore()
    write(store, numbers, crs, Affine(cell, 0, west, 0, -cell, north), nodata=0)
    application, seen = router(store), 0
    profile = {
        "driver": "GTiff", "height": shape[0], "width": shape[1], "count": 1, "dtype": "int32", "nodata": 0,
        "crs": crs, "transform": rasterio.Affine(cell, 0, west, 0, -cell, north),
    }  # fmt: skip
    with rasterio.open(tmp_path / "a.tif", "w", **profile) as raster:
        raster.write(numbers, 1)
    for z in zooms:
        for x, y in {tiles_over((lon, lat, lon, lat), z)[0] for lon, lat in places}:
            whole = WEB[str(z)].affine
            left, top = whole.at(x * 256.0, y * 256.0)
            transform = rasterio.Affine(whole.a, 0, left, 0, whole.e, top)
            with (
                rasterio.open(tmp_path / "a.tif") as raster,
                WarpedVRT(
                    raster, crs="EPSG:3857", width=256, height=256, transform=transform, tolerance=1e-9
                ) as warped,
            ):
                theirs = warped.read(1)
            path = f"/collections/data/tiles/WebMercatorQuad/{z}/{x}/{y}.npy"
            values, valid = get(application, path).cells
            assert ((theirs != 0) == (valid != 0)).mean() >= 0.98, (z, x, y)
            both = (theirs != 0) & (valid != 0)
            seen += int(both.sum())
            ours, other = (np.divmod(part[both] - 1, shape[1]) for part in (values, theirs))
            off = [np.abs(one - two) for one, two in zip(ours, other, strict=True)]
            if ground == "global":
                off[1] = np.minimum(off[1], shape[1] - off[1])
            assert not both.any() or max(part.max() for part in off) <= 1, (z, x, y)
            assert not both.any() or ((off[0] == 0) & (off[1] == 0)).mean() >= 0.95, (z, x, y)
    assert seen > 100_000


def test_coarser_levels_are_drawn_far_away(utm: Path) -> None:
    application = router(utm)
    for z in (8, 10, 11, 12, 13):
        box = get(application, "/collections/pyramid.zarr/bounds").document["bbox"]
        seen = 0
        for x, y in tiles_over(box, z):
            _, valid = get(
                application, f"/collections/pyramid.zarr/tiles/WebMercatorQuad/{z}/{x}/{y}.npy"
            ).cells
            seen += int((valid != 0).sum())
        area = 300 * 420 * 0.97 * (30 / (WEB[str(z)].cell_size * np.cos(np.radians(49.6)))) ** 2
        assert seen == pytest.approx(area, rel=0.06), z


GLOBES = {
    "-180 to 180": (-180.0, -1.0),
    "0 to 360": (0.0, -1.0),
    "southwards first": (0.0, 1.0),
    "60 to 420": (60.0, -1.0),
}


@pytest.mark.parametrize("kind", GLOBES)
@pytest.mark.parametrize("sampling", ["nearest", "bilinear"])
def test_global_fields_are_right_everywhere(kind: str, sampling: str) -> None:
    """Antimeridian, poles, equator, each zoom: a value is that of a cell within one of the pixel's place."""
    west, down = GLOBES[kind]
    rows, columns = np.indices((360, 720))
    lat = (90 - 0.25 - rows * 0.5) * -down
    lon = west + 0.25 + columns * 0.5
    field = (np.cos(np.radians(lon)) * 40 + lat).astype("f4")
    affine = Affine(0.5, 0, west, 0, 0.5 * down, 90.0 * -down)
    store = MemoryStore()
    write(store, field, "OGC:CRS84", affine, ("lat", "lon"))
    application = router(store)
    (name,) = [c["id"] for c in get(application, "/collections").document["collections"]]
    for z in range(7):
        n = 2**z
        places = {
            (0, 0),
            (n - 1, 0),
            (0, n - 1),
            (n // 2, n // 2),
            (n - 1, n // 2),
            (0, n // 2),
            (max(0, n // 2 - 1), max(0, n // 2 - 1)),
        }
        for x, y in sorted(places):
            values, valid = get(
                application,
                f"/collections/{name}/tiles/WebMercatorQuad/{z}/{x}/{y}.npy?resampling={sampling}",
            ).cells
            a = WEB[str(z)].affine
            east, north = np.meshgrid(*(np.arange(256) + 0.5 + 256 * k for k in (x, y)))
            there = MERCATOR.transform(DEGREES, *a.at(east, north))
            assert (valid != 0).all(), (z, x, y)
            expected = np.cos(np.radians(there[0])) * 40 + there[1]
            assert np.abs(values - expected).max() < 0.6, (z, x, y)


@pytest.mark.parametrize(("lon", "lat"), [(10, 50), (-179.5, -30.25), (0, 90)])
def test_the_globe_is_seen_from_above_a_place(lon: float, lat: float) -> None:
    """Values are those under the pixels, none are beside the disk; areas are drawn on it."""
    rows, columns = np.indices((360, 720))
    north, east = 89.75 - rows * 0.5, columns * 0.5 + 0.25
    store, reach = MemoryStore(), 6378137.0
    field = (np.cos(np.radians(east)) * 40 + north).astype("f4")
    write(store, field, "OGC:CRS84", Affine(0.5, 0, 0, 0, -0.5, 90), ("lat", "lon"))
    application = router(store)
    base = base_of(application)
    tiles = [
        [get(application, f"{base}/tiles/globe:{lon},{lat}/1/{x}/{y}.npy").cells for x in (0, 1)]
        for y in (0, 1)
    ]
    values, valid = np.concatenate([np.concatenate(row, axis=2) for row in tiles], axis=1)
    x, y = np.meshgrid((np.arange(512) - 255.5) / 256, (255.5 - np.arange(512)) / 256)
    ahead = np.sqrt(np.maximum(0, 1 - x**2 - y**2))
    up, down = np.sin(np.radians(lat)), np.cos(np.radians(lat))
    there_lat = np.degrees(np.arcsin(ahead * up + y * down))
    there_lon = lon + np.degrees(np.arctan2(x, ahead * down - y * up))
    inside = np.hypot(x, y) < 1
    assert np.array_equal(valid > 0, inside)
    expected = np.cos(np.radians(there_lon)) * 40 + there_lat
    assert np.abs(values - expected)[inside].max() < 0.6
    corners = ",".join(
        f"{reach * x / 2:.1f},{reach * y / 2:.1f}" for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    )
    answer = get(application, f"{base}/statistics?polygon={corners}&crs=globe:{lon},{lat}").document
    phi, turn = np.radians(north), np.radians(east - lon)
    right, above = np.cos(phi) * np.sin(turn), np.sin(phi) * down - np.cos(phi) * np.cos(turn) * up
    is_near = np.sin(phi) * up + np.cos(phi) * np.cos(turn) * down > 0
    count = (is_near & (np.maximum(np.abs(right), np.abs(above)) < 0.5)).sum()
    assert answer["statistics"]["v"]["count"] == pytest.approx(count, rel=0.01)
    for wrong in ("globe:181,0", "globe:0,91", "globe:0", "globe:nan,0", "globe:1e1,0"):
        assert ask(application, f"{base}/tiles/{wrong}/0/0/0.png").status == 404


def test_tiles_of_a_stored_set_are_its_chunks(utm: Path, tmp_path: Path) -> None:
    zstore.build_tile_pyramid(
        zstore.open_group(utm / "0", mode="r"), tmp_path / "t.zarr", sampling="bilinear"
    )
    application, tiles = router(tmp_path / "t.zarr"), zstore.open_tiles(tmp_path / "t.zarr")
    box = get(application, "/collections/t.zarr/bounds").document["bbox"]
    assert 8.6 < box[0] < 8.8 < box[2] < 9.1
    for z in tiles.levels:
        for x, y in tiles_over(box, int(z)):
            cells, valid = get(
                application, f"/collections/t.zarr/tiles/WebMercatorQuad/{z}/{x}/{y}.npy?resampling=cubic"
            ).cells
            expected = tiles.read(z, x, y)
            assert np.array_equal(np.where(valid, cells, 0), expected)


def test_the_preview_is_quicklooks(utm: Path) -> None:
    """To one step of 256: where something is transparent, the least step is drawn as the next."""
    assert np.abs((colour_map("gamma") / 255) ** 2 - colour_map("grey") / 255).max() < 0.004
    for name in set(colour_map_names()) - {"grey", "gamma"}:
        found = cmap.Colormap({"ice": "cmocean:ice"}.get(name, name)).lut(256)[:, :3]
        assert np.array_equal(colour_map(name), np.rint(found * 255))
    application = router(utm)
    for size in (1024, 420, 250, 120):
        percentiles = quicklook(utm, size=size)
        level = {1024: 0, 420: 0, 250: 1, 120: 2}[size]
        seen = zstore.open_array(utm, f"{level}/v", mode="r")[...]
        low, high = np.percentile(seen[seen != 0], (2, 98))
        query = f"size={size}" if level == 0 else f"size={size}&rescale={low},{high}"
        shown = get(application, f"/collections/pyramid.zarr/preview.png?{query}").picture
        expected = np.asarray(Image.fromarray(percentiles).convert("RGBA"))
        assert shown.shape == expected.shape
        assert np.array_equal(shown[..., 3], expected[..., 3])
        kept = shown[..., 3] > 0
        assert np.abs(shown[kept].astype(int) - expected[kept].astype(int)).max() <= 1


def test_formats_show_the_same(utm: Path) -> None:
    application, path = router(utm), "/collections/pyramid.zarr/preview"
    png = get(application, f"{path}.png?rescale=0,4000&colormap=viridis")
    webp, jpg = (
        get(application, f"{path}.{kind}?rescale=0,4000&colormap=viridis") for kind in ("webp", "jpg")
    )
    assert [a.headers["content-type"] for a in (png, webp, jpg)] == ["image/png", "image/webp", "image/jpeg"]
    assert png.picture.shape == webp.picture.shape == jpg.picture.shape
    assert (jpg.picture[:40, :40, :3] > 240).mean() > 0.95 and (png.picture[:40, :40, 3] == 0).all()
    import cmap

    v = zstore.open_array(utm, "0/v", mode="r")[200, 300]
    step = int(v * (255 / 4000) + 0.5)
    expected = np.rint(cmap.Colormap("viridis").lut(256)[step] * 255)
    assert np.array_equal(png.picture[200, 300], expected)


def test_answers_are_asked_for_once(utm: Path) -> None:
    application = router(utm)
    for path in ("/collections", "/collections/pyramid.zarr/preview.png"):
        first = get(application, path)
        assert first.headers["cache-control"] == "public, max-age=60"
        again = ask(application, path, {"If-None-Match": f'"x", W/{first.headers["etag"]}'})
        assert (again.status, again.content) == (304, b"")
        assert ask(application, path, {"If-None-Match": '"x"'}).status == 200


def cube() -> MemoryStore:
    store = MemoryStore()
    group = zstore.create_group(store)
    rng = np.random.default_rng(2)
    for name in ("red", "nir"):
        group.create_array(
            name, data=rng.integers(1, 1000, (5, 2, 20, 30)).astype("i2"), chunks=(5, 1, 10, 10),
            dimension_names=("time", "depth", "y", "x"), attributes={"scale_factor": 0.1, "add_offset": 5.0},
        )  # fmt: skip
    days = {"units": "days since 2020-01-01", "standard_name": "time"}
    group.create_array("time", data=np.arange(5) * 10, dimension_names=("time",), attributes=days)
    group.create_array("depth", data=np.array([0.5, 10.0]), dimension_names=("depth",))
    return store


def test_values_series_and_statistics_are_the_arrays() -> None:
    store = cube()
    application = router(store)
    (about,) = get(application, "/collections").document["collections"]
    base, cells = f"/collections/{about['id']}", zstore.open_array(store, "nir", mode="r")[...]
    info = get(application, base).document
    assert [(axis["name"], axis["labels"]) for axis in info["dimensions"]] == [
        ("time", ["2020-01-01", "2020-01-11", "2020-01-21", "2020-01-31", "2020-02-10"]),
        ("depth", ["0.5", "10.0"]),
    ]
    meant = cells * 0.1 + 5.0
    point = get(application, f"{base}/point?x=12.5&y=7.5&bands=nir,red&time=2020-01-21&depth=9").document
    assert point["values"]["nir"] == pytest.approx(meant[2, 1, 7, 12])
    series = get(application, f"{base}/timeseries?x=12.5&y=7.5&bands=nir&depth=@1").document
    assert series["along"] == "time" and series["labels"][4] == "2020-02-10"
    assert np.allclose(series["values"], meant[:, 1, 7, 12])
    found = get(application, f"{base}/statistics?bands=nir&time=2020-02&bbox=0,0,30,20&size=30").document
    assert found["statistics"]["nir"]["mean"] == pytest.approx(meant[4, 0].mean())
    assert found["statistics"]["nir"]["max"] == pytest.approx(meant[4, 0].max())
    tile = get(application, f"{base}/tiles/pixels/0/0/0.npy?bands=nir&time=@3").cells
    assert np.allclose(tile[0, :20, :30], meant[3, 0]) and not tile[1, 20:].any()


TRIANGLE = [(482300.0, 5499100.0), (538000.0, 5486500.0), (501250.0, 5450200.0)]


@pytest.mark.parametrize("levels", [0, 1])
@pytest.mark.parametrize("kind", ["polygon", "bbox"])
def test_statistics_of_an_area_are_those_of_its_own_cells(tmp_path: Path, kind: str, levels: int) -> None:
    values = np.random.default_rng(4).normal(280, 10, (3, 60, 80)).astype("f4")
    values[:, 10:20, 10:30] = np.nan
    dimensions = ("time", "y", "x")
    place = Affine(1000.0, 0, 480000.0, 0, -1000.0, 5500000.0)
    write(tmp_path / "a.zarr", values, "EPSG:32632", place, dimensions, chunks=8)
    zstore.build_pyramid(tmp_path / "a.zarr", tmp_path / "p.zarr", levels=1, chunks=8, shards=None)
    # Where the cells in the area are too many, they are those of a coarser level.
    few = Settings(cell_count=6000) if levels else Settings()
    application = router(tmp_path / "p.zarr", settings=few)
    if kind == "polygon":
        ring, crs = [*TRIANGLE, TRIANGLE[0]], "EPSG:32632"
        named = "native" if levels else crs
        words = f"crs={named}&polygon={','.join(f'{x},{y}' for x, y in TRIANGLE)}"
    else:
        west, south, east, north = 8.75, 49.2, 9.6, 49.62
        ring = [(west, south), (east, south), (east, north), (west, north), (west, south)]
        crs, words = "OGC:CRS84", f"bbox={west},{south},{east},{north}"
    zone = {"type": "Polygon", "coordinates": [ring]}
    kinds = ("count", "mean", "min", "max", "std")
    levels_of = [zstore.open_group(tmp_path / "p.zarr", mode="r")[str(n)] for n in (0, 1)]
    single = zstore.zonal_statistics(levels_of[0], zone, kinds, crs=crs)
    answer = get(application, f"{base_of(application)}/statistics?{words}&time=@2").document
    assert answer["level"] == 0
    for name in kinds:
        assert answer["statistics"]["v"][name] == pytest.approx(single[name][2, 0], rel=1e-9), name
    series = get(application, f"{base_of(application)}/timeseries?{words}").document
    expected = zstore.zonal_statistics(levels_of[levels], zone, ("mean",), crs=crs)["mean"][:, 0]
    assert series["level"] == levels and np.allclose(series["values"], expected, rtol=1e-9)


@pytest.mark.parametrize(("crs", "middle"), [("EPSG:5041", 2e6), ("EPSG:3413", 0.0)])
def test_an_area_around_a_pole_has_the_cells_whose_centres_lie_in_it(crs: str, middle: float) -> None:
    store, reach = MemoryStore(), 3e6
    cells = np.random.default_rng(7).normal(size=(180, 360))
    write(store, cells, "OGC:CRS84", Affine(1, 0, 0, 0, -1, 90), ("lat", "lon"))
    application = router(store)
    corners = [(middle + x * reach, middle + y * reach) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    words = f"crs={crs}&polygon={','.join(f'{x},{y}' for x, y in corners)}"
    answer = get(application, f"{base_of(application)}/statistics?{words}").document
    lat, lon = np.meshgrid(89.5 - np.arange(180), 0.5 + np.arange(360), indexing="ij")
    x, y = Crs.from_user("OGC:CRS84").transform(Crs.from_user(crs), lon, lat)
    inside = (np.abs(x - middle) < reach) & (np.abs(y - middle) < reach)
    found = answer["statistics"]["v"]
    assert (answer["exact"], answer["level"], found["count"]) == (False, 0, inside.sum())
    assert found["mean"] == pytest.approx(cells[inside].mean())


EXACT_KINDS = {
    "count": "count", "mean": "mean", "min": "min", "max": "max", "std": "stdev", "median": "median",
    "percentile_2": "quantile_2", "percentile_98": "quantile_98",
}  # fmt: skip


@pytest.mark.parametrize(
    ("crs", "affine", "ring", "words"),
    [
        (
            "OGC:CRS84", Affine(0.25, 0, 5.1, 0, -0.25, 60),
            [(7.3, 50.2), (14.9, 50.2), (14.9, 55.7), (7.3, 55.7)], "bbox=7.3,50.2,14.9,55.7",
        ),
        ("OGC:CRS84", Affine(0.25, 0, 5.1, 0, -0.25, 60), [(6, 51), (15.3, 52.2), (9, 58.4)], ""),
        (
            "EPSG:32632", Affine(30, 0, 500000, 0, -30, 5500000),
            [(500111, 5499000), (501500, 5498777), (501234, 5499808), (500400, 5499300)], "",
        ),
        (None, Affine(1, 0, 0, 0, -1, 0), [(3.3, -40.1), (50.2, -36), (22.7, -4.4)], ""),
    ],
)  # fmt: skip
def test_statistics_and_series_of_areas_are_exactextracts(
    crs: str | None, affine: Affine, ring: list[tuple[float, float]], words: str
) -> None:
    """Of boxes and polygons, in degrees, metres and pixels, with cells that have no value."""
    exactextract = pytest.importorskip("exactextract", reason="the judge of the shares of cells")
    from exactextract.raster import NumPyRasterSource

    cells = np.random.default_rng(33).normal(280, 15, (3, 45, 60))
    cells[:, 10:20, 15:30:2] = np.nan
    store = MemoryStore()
    write(store, cells, crs, affine, ("time", "y", "x"))
    if not words:
        sides = [(x, y if crs else -y) for x, y in ring]
        words = f"polygon={','.join(f'{x},{y}' for x, y in sides)}" + ("&crs=native" if crs else "")
    application = router(store)
    shape = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    feature = {"type": "Feature", "properties": {}, "geometry": shape}
    (left, top), (right, bottom) = affine.at(0, 0), affine.at(60, 45)
    expected, asked = [], [*[*EXACT_KINDS.values()][:-2], "quantile(q=0.02)", "quantile(q=0.98)"]
    for plane in cells:
        raster = NumPyRasterSource(plane, left, bottom, right, top)
        (found,) = exactextract.exact_extract(raster, feature, asked)
        expected.append({name: found["properties"][theirs] for name, theirs in EXACT_KINDS.items()})
    base = base_of(application)
    for item, wanted in enumerate(expected):
        answer = get(application, f"{base}/statistics?{words}&time=@{item}").document
        assert answer["level"] == 0 and answer["exact"]
        found = {name: answer["statistics"]["v"][name] for name in EXACT_KINDS}
        assert found == pytest.approx(wanted, rel=1e-6)
    series = get(application, f"{base}/timeseries?{words}").document["values"]
    assert series == pytest.approx([wanted["mean"] for wanted in expected], rel=1e-6)
    x, y = affine.at(40.5, 30.5)
    place = f"x={x}&y={y if crs else -y}"
    assert get(application, f"{base}/timeseries?{place}").document["values"] == cells[:, 30, 40].tolist()


def test_percentiles_of_an_area_are_weighed_by_the_shares_of_its_cells() -> None:
    cells = np.array([[3.0, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9]])
    application = router(pixels_of(cells))
    found = get(application, f"{base_of(application)}/statistics?bbox=0.5,0.5,4.75,2.75").document
    # As exactextract 0.3 has them.
    assert found["statistics"]["v"] | {"histogram": None} == pytest.approx({
        "count": 9.5625, "valid": 1.0, "min": 1.0, "max": 9.0, "mean": 5.261437908496732,
        "std": 2.678335357150096, "percentile_2": 1.17, "median": 5.270833333333333,
        "percentile_98": 8.899672131147542, "histogram": None,
    })  # fmt: skip
    everything = get(application, f"{base_of(application)}/statistics?bbox=0,0,5,3").document["statistics"][
        "v"
    ]
    assert everything["median"] == np.median(cells) and everything["count"] == 15


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        ("polygon=0,0,1,1", "6 or more"),
        ("polygon=0,0,4,4,4,0,0,4", "crosses itself"),
        ("polygon=0,0,4,4,4,0,1e99,1e99", "at most"),
        ("polygon=0,0,4,4,4,0&crs=/etc/passwd", "a code"),
        ("polygon=0,0,4,4,4,0&crs=EPSG:999999", "a code"),
        ("polygon=0,0,4,4,4,0&bbox=0,0,1,1", "one of them"),
        ("polygon=" + ",".join(["1,2"] * 201), "6 or more"),
    ],
)
def test_areas_that_are_none_are_refused(words: str, detail: str) -> None:
    application = router(pixels_of(np.ones((4, 4))))
    answer = ask(application, f"{base_of(application)}/statistics?{words}")
    assert answer.status == 400 and detail in answer.document["detail"]


def test_an_area_of_too_many_cells_is_refused_and_one_beside_has_none() -> None:
    application = router(pixels_of(np.ones((8, 8))), settings=Settings(cell_count=20))
    base = base_of(application)
    answer = ask(application, f"{base}/statistics?bbox=0,0,8,8")
    assert answer.status == 422 and "64 cells" in answer.document["detail"]
    beside = get(application, f"{base}/statistics?polygon=20,20,30,20,30,30").document
    assert beside == {"statistics": {"v": {"count": 0}}, "level": None}


def test_channels_are_added_in_their_colours() -> None:
    application = router(cube())
    words = "bands=red,nir&mix=FF0000,00FF40&rescale=5,105&time=@1"
    (about,) = get(application, "/collections").document["collections"]
    base = f"/collections/{about['id']}"
    picture = get(application, f"{base}/preview.png?{words}").picture
    red, nir = (
        np.clip(
            (zstore.open_array(cube(), name, mode="r")[1, 0] * 0.1 + 5.0 - 5) * 2.55 + 0.5, 0, 255
        ).astype("u1")
        for name in ("red", "nir")
    )
    assert np.array_equal(picture[..., 0], red) and np.array_equal(picture[..., 1], nir)
    assert np.array_equal(picture[..., 2], nir.astype(int) * 0x40 // 255)
    for wrong in ("mix=FF0000", "mix=FF0000,green", "mix=FF0000,00FF00&colormap=viridis"):
        assert ask(application, f"{base}/preview.png?bands=red,nir&{wrong}").status == 400, wrong


def test_expressions_are_numpys() -> None:
    store = cube()
    application = router(store)
    (about,) = get(application, "/collections").document["collections"]
    red, nir = (zstore.open_array(store, name, mode="r")[0, 0] * 0.1 + 5.0 for name in ("red", "nir"))
    for text, expected in {
        "(nir-red)/(nir+red)": (nir - red) / (nir + red),
        "-nir**2 + 'red' * 1.5e1": -(nir**2) + red * 15,
        "where(nir > red, sqrt(nir), min(red, 7)) - b1/2": np.where(
            nir > red, np.sqrt(nir), np.minimum(red, 7)
        )
        - nir / 2,
        "2 ** 3 ** 0.5 * red": 2 ** (3**0.5) * red,
        "1 - 2 - red": -1 - red,
        "where(log(-red) > 0, 1, 2)": np.full(red.shape, np.nan),
        "log10(red) / (nir >= 50)": np.where(nir >= 50, np.log10(red), np.nan),
    }.items():
        tile = get(
            application, f"/collections/{about['id']}/tiles/pixels/0/0/0.npy?expression={quote(text)}"
        ).cells
        assert np.allclose(
            np.where(tile[1, :20, :30] > 0, tile[0, :20, :30], np.nan), expected, equal_nan=True
        ), text
    picture = get(application, f"/collections/{about['id']}/preview.png?expression=nir-red&colormap=RdYlGn")
    assert picture.picture.shape == (20, 30, 4)
    for text in (
        "",
        "1",
        "nir +",
        "nir)",
        "(nir",
        "nir nir",
        "__import__('os')",
        "nir.real",
        "f(nir)",
        "(" * 40 + "nir" + ")" * 40,
        "'nir",
        "nir @ red",
        "min(nir)",
    ):
        answer = ask(application, f"/collections/{about['id']}/preview.png?expression={quote(text)}")
        assert answer.status == 400, text


def test_heights_become_shades_and_numbers(tmp_path: Path) -> None:
    columns = np.indices((100, 100))[1]
    store = MemoryStore()
    write(store, (columns * 10.0 + 500).astype("f4"), "EPSG:32632", Affine(10.0, 0, 5e5, 0, -10.0, 5e6))
    application = router(store)
    (about,) = get(application, "/collections").document["collections"]
    base = f"/collections/{about['id']}/preview.png?algorithm="
    heights = get(application, f"{base}terrainrgb").picture.astype(int)
    assert np.allclose(
        -10000 + (heights[..., 0] * 65536 + heights[..., 1] * 256 + heights[..., 2]) * 0.1, columns * 10 + 500
    )
    # A plane that rises eastwards by 45 degrees: lit from the west at 45 it is as bright as can be.
    for azimuth, shade in ((270, 255), (90, 1), (0, 1 + 254 * 0.5)):
        lit = get(application, f"{base}hillshade&azimuth={azimuth}").picture
        assert np.abs(lit[1:-1, 1:-1, 0].astype(int) - shade).max() <= 1, azimuth
        assert (lit[1:-1, 1:-1, 3] == 255).all()
    # Elevations are lit in their colours unless others are asked for; flat ground has the legend's own.
    flat = (columns < 50) * 1000.0 + np.where(columns < 50, columns * 10.0, 0)
    said = {"standard_name": "surface_altitude", "units": "m"}
    group = write(store, flat.astype("f4"), "EPSG:32632", Affine(10.0, 0, 5e5, 0, -10.0, 5e6), **said)
    application = router(store)
    base = f"/collections/{about['id']}/preview.png?rescale=0,2000"
    lit, plain, asked = (
        get(application, f"{base}{words}").picture
        for words in ("", "&colormap=batlow", "&algorithm=relief&colormap=batlow")
    )
    assert np.array_equal(lit, asked) and np.array_equal(lit[2:-2, 60:98], plain[2:-2, 60:98])
    assert (lit[2:-2, 2:45, :3] >= plain[2:-2, 2:45, :3]).all() and lit[..., :3].sum() > plain[..., :3].sum()
    assert np.array_equal(lit[2:-2, 2:-2, :3], quicklook(group, limits=(0, 2000))[2:-2, 2:-2, :3])


def test_categories_have_the_stores_colours() -> None:
    store = MemoryStore()
    cells = np.repeat(np.array([[0, 1, 2, 7]], "u1"), 3, axis=0)
    group = write(store, cells, "EPSG:32632", Affine(10.0, 0, 5e5, 0, -10.0, 5e6), chunks=4)
    table = {"0": [0, 0, 0, 0], "1": [10, 200, 30, 255], "2": [255, 0, 0]}
    group["v"].attrs.update({"flag_values": [1, 2], "flag_meanings": "wood water", "color_table": table})
    application = router(store)
    (about,) = get(application, "/collections").document["collections"]
    shown = get(application, f"/collections/{about['id']}/preview.png").picture
    assert shown[1].tolist() == [[0, 0, 0, 0], [10, 200, 30, 255], [255, 0, 0, 255], [0, 0, 0, 0]]
    (band,) = get(application, f"/collections/{about['id']}").document["bands"]
    assert {"value": 1, "colour": [10, 200, 30, 255], "name": "wood"} in band["categories"]


def test_a_pyramid_of_pixels_is_shown_where_there_is_no_place() -> None:
    store = MemoryStore()
    cells = np.random.default_rng(3).integers(0, 255, (3, 700, 1000)).astype("u1")
    zstore.create_group(store).create_array(
        "v", data=cells, chunks=(1, 256, 256), dimension_names=("c", "y", "x")
    )
    application = router(store)
    (about,) = get(application, "/collections").document["collections"]
    base = f"/collections/{about['id']}"
    assert about["tiles"] == "pixels"
    assert [band["name"] for band in get(application, base).document["bands"]] == ["v:1", "v:2", "v:3"]
    document = get(application, f"{base}/tilejson.json?bands=2").document
    assert (document["maxzoom"], document["tiles"][0].endswith("{z}/{x}/{y}.png?bands=2")) == (2, True)
    tile = get(application, f"{base}/tiles/pixels/2/3/1.npy?bands=1,3").cells
    assert np.array_equal(tile[:2, :256, :232], cells[[0, 2], 256:512, 768:1000])
    assert not tile[2, :, 232:].any()
    half = get(application, f"{base}/tiles/pixels/1/0/0.npy?bands=2").cells
    assert np.array_equal(half[0], cells[1, 1:512:2, 1:512:2])
    found = get(application, f"{base}/statistics?bands=2&size=500").document["statistics"]["2"]
    assert found["mean"] == pytest.approx(cells[1].mean(), rel=0.01)
    assert ask(application, f"{base}/tiles/WebMercatorQuad/0/0/0.png").status == 404


def test_descriptions_say_where_tiles_are(utm: Path) -> None:
    application = router(utm)
    document = get(application, "/collections/pyramid.zarr/tilejson.json?colormap=viridis").document
    assert document["tiles"] == [
        "http://localhost/collections/pyramid.zarr/tiles/WebMercatorQuad/{z}/{x}/{y}.png?colormap=viridis"
    ]
    assert (document["minzoom"], document["maxzoom"]) == (11, 12)
    west, south, east, north = document["bounds"]
    assert 8.7 < west < east < 9 and 49.5 < south < north < 49.7
    sets = get(application, "/tileMatrixSets").document["tileMatrixSets"]
    assert "WebMercatorQuad" in [one["id"] for one in sets]
    assert get(application, "/tileMatrixSets/WorldCRS84Quad").document["tileMatrices"][0]["matrixWidth"] == 2
    for one in get(application, "/collections/pyramid.zarr/map/tiles").document["tilesets"]:
        assert one["links"][1]["href"].endswith("/{tileMatrix}/{tileRow}/{tileCol}")
    (x, y), *_ = tiles_over(tuple(document["bounds"]), 12)
    same = (f"map/tiles/WebMercatorQuad/12/{y}/{x}", f"tiles/WebMercatorQuad/12/{x}/{y}.png")
    first, second = (get(application, f"/collections/pyramid.zarr/{path}").content for path in same)
    assert first == second
    for path in ("/api", "/conformance", "/colormaps", "/colormaps/viridis", "/collections/pyramid.zarr"):
        get(application, path)


@pytest.mark.parametrize(
    ("crs", "tms"), [("EPSG:32631", "UTM31WGS84Quad"), ("EPSG:3978", "CanadianNAD83_LCC")]
)
def test_tilejson_names_the_zooms_of_the_set(noise: np.ndarray, crs: str, tms: str) -> None:
    """The first matrix of the one set is "1", those of the other are not each half of the one before."""
    store, cell = MemoryStore(), 30.0
    write(store, noise, crs, Affine(cell, 0, 480000.0, 0, -cell, 1000000.0))
    application = router(store)
    document = get(application, f"/collections/data/tilejson.json?tms={tms}").document
    matrices = {int(z): matrix for z, matrix in load_tile_matrix_set(tms).tile_matrices.items()}
    most = min(z for z, matrix in matrices.items() if matrix.cell_size <= cell * 1.1)
    least = max(z for z, m in matrices.items() if m.cell_size * 256 >= 420 * matrices[most].cell_size)
    assert (document["minzoom"], document["maxzoom"]) == (least, most)
    for z in (least, most):
        whole, seen = matrices[z].affine, 0
        left, top, right, bottom = (
            math.floor(part / 256)
            for x, y in ((480000.0, 1000000.0), (492599.0, 991001.0))
            for part in ((x - whole.c) / whole.a, (y - whole.f) / whole.e)
        )
        for x in range(left, right + 1):
            for y in range(top, bottom + 1):
                tile = document["tiles"][0].format(z=z, x=x, y=y).replace(".png", ".npy")
                seen += int((get(application, tile.removeprefix("http://localhost")).cells[-1] != 0).sum())
        assert seen == pytest.approx(noise.size * (cell / matrices[z].cell_size) ** 2, rel=0.02)


GOES = {
    "grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0, "sweep_angle_axis": "x",
    "longitude_of_projection_origin": -75.0, "latitude_of_projection_origin": 0.0,
    "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414,
}  # fmt: skip


@pytest.mark.parametrize(
    ("crs", "view"),
    [
        ("EPSG:32733", {"utm": 32733}), ("EPSG:25832", {"utm": 32632}),
        (GOES, {"geostationary": [-75.0, 35786023.0, "x", 6378137.0, 6356752.31414]}),
        ("EPSG:3035", None), ("OGC:CRS84", None),
    ],
)  # fmt: skip
def test_tiles_of_a_grid_of_its_own_are_its_cells(noise: np.ndarray, crs: Any, view: Any) -> None:
    """Levels are copied, not warped; the page is told where it can draw the ground around them."""
    store, cell = MemoryStore(), 0.001 if crs == "OGC:CRS84" else 30.0
    write(store, noise, crs, Affine(cell, 0, 17 * cell, 0, -cell, 1000 * cell))
    zstore.build_pyramid(store, levels := MemoryStore(), levels=1, chunks=64, shards=None)
    application = router(levels)
    base = base_of(application)
    about = get(application, base).document
    own = about["own"]
    assert (about["tiles"] == "native", own is not None) == (view is not None, view is not None)
    if own is not None:
        grid = {"origin": [17 * cell, 1000 * cell], "cells": [2 * cell, cell]}
        assert own == {**view, **grid}
    for z, level in ((1, 0), (0, 1)):
        cells = zstore.open_group(levels, mode="r")[f"{level}/v"][...]
        for x, y in ((0, 0), (-(-cells.shape[1] // 256) - 1, -(-cells.shape[0] // 256) - 1)):
            expected = cells[256 * y : 256 * (y + 1), 256 * x : 256 * (x + 1)]
            tile = get(application, f"{base}/tiles/native/{z}/{x}/{y}.npy").cells
            assert np.array_equal(tile[0, : expected.shape[0], : expected.shape[1]], expected)
            assert not tile[1, expected.shape[0] :].any() and not tile[1, :, expected.shape[1] :].any()
    document = get(application, f"{base}/tilejson.json?tms=native").document
    assert (document["minzoom"], document["maxzoom"]) == (0, 1)


def test_outside_of_a_collection_there_are_no_values() -> None:
    store = MemoryStore()
    write(store, np.ones((3, 4, 4), "f4"), "EPSG:32632", Affine(9, 0, 5e5, 0, -9, 5.5e6), ("time", "y", "x"))
    application = router(store)
    base = base_of(application)
    for place in ("lon=0&lat=0", "lon=-90&lat=-90", "x=1&y=1"):
        found = get(application, f"{base}/point?{place}").document
        assert found == {"values": {"v": None}, "row": None, "column": None}
        found = get(application, f"{base}/point?{place}&expression=b1*2").document
        assert found["values"] == {"expression": None}
        assert get(application, f"{base}/timeseries?{place}").document["values"] == []


def test_what_cannot_be_answered_is_a_problem_and_no_more(utm: Path, tmp_path: Path) -> None:
    application, base = router(utm), "/collections/pyramid.zarr"
    for path, status in {
        "/collections/../etc": 404, "/collections/none": 404, "/assets/..%2fservice.py": 404,
        "/assets/page.html": 404,
        f"{base}/tiles/WebMercatorQuad/12/99999/0.png": 404, f"{base}/tiles/WebMercatorQuad/99/0/0.png": 404,
        f"{base}/tiles/None/1/0/0.png": 404, f"{base}/tiles/WebMercatorQuad/1/0/0.exe": 404,
        f"{base}/tiles/WebMercatorQuad/1/0/-1.png": 404, f"{base}/preview.png?url=file:///etc/passwd": 400,
        f"{base}/preview.png?size=1&size=2": 400, f"{base}/preview.png?size=999999": 400,
        f"{base}/preview.png?rescale=1": 400, f"{base}/preview.png?rescale=nan,1": 400,
        f"{base}/preview.png?bands=v,v,w": 400,
        f"{base}/preview.png?colormap=../../etc": 400, f"{base}/preview.png?percentiles=98,2": 400,
        f"{base}/preview.png?bands={'x' * 5000}": 414, f"{base}/point": 400,
        f"{base}/statistics?bbox=1,2,0,3": 400, f"{base}/timeseries?lon=8.8&lat=49.6": 400, "/none": 404,
    }.items():  # fmt: skip
        answer = ask(application, path)
        assert answer.status == status, (path, answer.content)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.document["status"] == status
        assert b"Traceback" not in answer.content and str(tmp_path).encode() not in answer.content
        assert "frame-ancestors 'none'" in answer.headers.get(
            "content-security-policy", "frame-ancestors 'none'"
        )


def test_too_much_is_refused_with_the_word_that_helps(noise: np.ndarray) -> None:
    store = MemoryStore()
    write(store, noise, "EPSG:32632", Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0))
    application = router(store, settings=Settings(cell_count=10_000))
    (about,) = get(application, "/collections").document["collections"]
    answer = ask(application, f"/collections/{about['id']}/tiles/WebMercatorQuad/0/0/0.png?rescale=0,9")
    answer = ask(application, f"/collections/{about['id']}/tiles/WebMercatorQuad/9/268/174.npy")
    assert answer.status == 422 and "zstore pyramid" in answer.document["detail"]
    # The limits of what is seen from near are those of the middle.
    base = f"/collections/{about['id']}"
    found = get(application, f"{base}/statistics").document["statistics"]["v"]
    assert found["count"] < 10_000 < noise.size and get(application, f"{base}").document["cells"] == 10_000
    assert ask(application, f"{base}/tiles/WebMercatorQuad/13/4297/2789.png").status == 200


def test_damage_is_told_without_places(
    tmp_path: Path, noise: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.zarr", noise, None, None)
    (tmp_path / "a.zarr" / "v" / "c" / "0" / "0").write_bytes(b"damage")
    answer = ask(router(tmp_path / "a.zarr"), "/collections/a.zarr/preview.png")
    assert answer.status == 500 and str(tmp_path).encode() not in answer.content
    assert answer.document["detail"] == "stored values are damaged; the server's log says which"
    assert "failed" in caplog.text


def test_what_is_no_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        router(tmp_path / "none.zarr")
    zstore.create_group(tmp_path / "empty.zarr")
    with pytest.raises(MetadataError, match="no grid"):
        router(tmp_path / "empty.zarr")


def test_grids_below_a_group_are_served_by_name(tmp_path: Path, noise: np.ndarray) -> None:
    zstore.create_group(tmp_path / "all.zarr")
    for name in ("a", "b"):
        write(tmp_path / "all.zarr" / name, noise, None, None)
    found = get(router(tmp_path / "all.zarr"), "/collections").document["collections"]
    assert [one["id"] for one in found] == ["a", "b"]


def test_grids_with_a_place_come_first_and_are_called_by_their_path(
    tmp_path: Path, noise: np.ndarray
) -> None:
    affine = Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0)
    write(tmp_path / "all.zarr" / "angles", noise, None, None)
    write(tmp_path / "all.zarr" / "measured" / "red", noise, "EPSG:32632", affine)
    for path in ("", "measured"):
        zstore.create_group(tmp_path / "all.zarr" / path)
    found = get(router(tmp_path / "all.zarr"), "/collections").document["collections"]
    assert [(one["id"], one["title"]) for one in found] == [("red", "measured/red"), ("angles", "angles")]


@pytest.mark.parametrize(
    ("names", "dtype", "labels", "expected"),
    [
        (("Band1", "Band2", "Band3"), "u1", None, ["Band1", "Band2", "Band3"]),
        (("Band1", "Band2", "Band3"), "u2", None, []),
        (("a", "b", "c"), "u1", None, []),
        (("band",), "u1", ("", "", ""), ["band:1", "band:2", "band:3"]),
        (("v",), "f4", ("blue", "green", "red"), ["v:red", "v:green", "v:blue"]),
        (("v",), "u2", ("B02", "B03", "B04"), ["v:B04", "v:B03", "v:B02"]),
        (("v",), "u2", ("B02", "B03", "B05"), []),
    ],
)
def test_bands_that_are_named_or_three_of_bytes_are_a_picture(
    names: tuple[str, ...], dtype: str, labels: tuple[str, ...] | None, expected: list[str]
) -> None:
    store = MemoryStore()
    group = zstore.create_group(store)
    shape, dims = ((3, 8, 8), ("c", "y", "x")) if len(names) == 1 else ((8, 8), ("y", "x"))
    for name in names:
        group.create_array(name, data=np.ones(shape, dtype), dimension_names=dims)
    if labels:  # those that say nothing are no names
        group.create_array("c", data=np.array(labels), dimension_names=("c",))
    assert get(router(store), "/collections/data").document["colours"] == expected


@pytest.mark.parametrize(
    ("calendar", "hours", "labels"),
    [
        ("standard", [0, 6, 24], ["2020-02-28T00:00", "2020-02-28T06:00", "2020-02-29T00:00"]),
        ("360_day", [0, 24, 48], ["2020-02-28", "2020-02-29", "2020-02-30"]),
        ("360_day", [0, 12, 48], ["2020-02-28T00:00:00", "2020-02-28T12:00:00", "2020-02-30T00:00:00"]),
    ],
)
def test_moments_are_written_alike(calendar: str, hours: list[int], labels: list[str]) -> None:
    pytest.importorskip("cftime", reason="dates of other calendars are cftime's")
    store = MemoryStore()
    group = zstore.create_group(store)
    group.create_array("v", data=np.ones((3, 4, 4)), dimension_names=("time", "y", "x"))
    units = {"units": "hours since 2020-02-28", "calendar": calendar}
    group.create_array("time", data=np.array(hours), dimension_names=("time",), attributes=units)
    (axis,) = get(router(store), "/collections/data").document["dimensions"]
    assert axis["labels"] == labels


def test_work_ends_when_nobody_waits(monkeypatch: pytest.MonkeyPatch, utm: Path) -> None:
    from zstore_serve import pictures

    ended: list[str] = []
    begun: list[None] = []

    async def slow(*_: Any) -> Any:
        begun.append(None)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    monkeypatch.setattr(pictures, "read_band", slow)
    path = "/collections/pyramid.zarr/preview.png"

    async def call() -> None:
        async def leave() -> Any:
            while len(begun) < 2:
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        await asyncio.wait_for(ask_async(router(utm), path, receive=leave), 50)
        await asyncio.sleep(0)

    asyncio.run(call())
    # The picture's own values, and those of its limits.
    assert ended == ["cancelled"] * 2
    late = ask(router(utm, settings=Settings(time=0.05)), path)
    assert late.status == 503 and "0.05 seconds" in late.document["detail"]


def test_pictures_and_statistics_that_are_asked_for_together_share_a_reading(
    monkeypatch: pytest.MonkeyPatch, utm: Path
) -> None:
    from zstore_serve import pictures

    read, shapes = pictures.read_band, []

    async def counted(scene: Any, band: Any, chosen: Any, plan: Any, sampling: str) -> Any:
        shapes.append(plan.shape)
        return await read(scene, band, chosen, plan, sampling)

    monkeypatch.setattr(pictures, "read_band", counted)
    application, base = router(utm), "/collections/pyramid.zarr"

    async def call() -> list[Answer]:
        tiles = [f"{base}/tiles/WebMercatorQuad/11/1073/{row}.png" for row in (696, 697, 698)]
        return await asyncio.gather(
            *(ask_async(application, path) for path in [*tiles, f"{base}/statistics"])
        )

    *tiles, statistics = asyncio.run(call())
    assert [answer.status for answer in tiles] == [200] * 3
    assert shapes.count((256, 256)) < len(shapes) == shapes.count((256, 256)) + 1
    # A picture of these limits is the same.
    low, high = statistics.document["limits"][0]
    path = f"{base}/tiles/WebMercatorQuad/11/1073/697.png?rescale={low!r},{high!r}"
    assert ask(application, path).content == tiles[1].content


def test_no_more_answers_are_made_at_once_than_four_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, utm: Path
) -> None:
    from zstore_serve import pictures
    from zstore_serve.frames import Pixels

    most, busy = 4 * (os.cpu_count() or 1), 0

    async def call() -> list[Answer]:
        free = asyncio.Event()

        async def read(scene: Any, band: Any, chosen: Any, plan: Any, sampling: str) -> Pixels:
            nonlocal busy
            busy += 1
            await free.wait()
            busy -= 1
            return Pixels(np.ones(plan.shape, "u2"), np.ones(plan.shape, bool))

        monkeypatch.setattr(pictures, "read_band", read)
        application = router(utm)
        path = "/collections/pyramid.zarr/preview.npy?size=8"
        asked = [asyncio.ensure_future(ask_async(application, path)) for _ in range(3 * most)]
        while busy < most:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert busy == most
        free.set()
        return await asyncio.gather(*asked)

    assert [answer.status for answer in asyncio.run(call())] == [200] * (3 * most)


def test_what_fails_gives_up_what_was_asked_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from zstore_serve import pictures

    ended: list[str] = []

    async def read(scene: Any, band: Any, *_: Any) -> Any:
        try:
            await asyncio.sleep(0 if band.name == "a" else 60)
        except asyncio.CancelledError:
            ended.append(band.name)
            raise
        raise ValueError("a is broken")

    store = MemoryStore()
    group = zstore.create_group(store)
    for name in "abc":
        group.create_array(name, data=np.ones((4, 4), "u1"), dimension_names=("y", "x"))
    monkeypatch.setattr(pictures, "read_band", read)
    application = router(store)

    async def call() -> tuple[int, list[str]]:
        answer = await ask_async(application, "/collections/data/preview.png?bands=a,b,c&rescale=0,1")
        await asyncio.sleep(0)
        return answer.status, sorted(ended)

    assert asyncio.run(call()) == (500, ["b", "c"])


BUCKET = Path(__file__).parents[3] / "tests" / "storage" / "bucket_server.py"


@pytest.mark.parametrize("is_consolidated", [True, False])
def test_the_first_tile_of_a_bucket_takes_three_rounds_of_requests(
    utm: Path, monkeypatch: pytest.MonkeyPatch, is_consolidated: bool
) -> None:
    """The root's document and a listing; all other documents and coordinates; the chunks."""
    pytest.importorskip("obstore", reason="the package behind the store")
    spec = importlib.util.spec_from_file_location("bucket_server", BUCKET)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tile = "/collections/p.zarr/tiles/WebMercatorQuad/11/1073/697.png?rescale=0,4000"
    first = {"/b/p.zarr/zarr.json", "/b/p.zarr/"}

    def run(*rounds: set[str]) -> tuple[set[str], set[str]]:
        with module.BucketServer() as server:
            for path in utm.rglob("*"):
                if path.is_file():
                    document = json.loads(path.read_text()) if path.name == "zarr.json" else None
                    if document is not None and not is_consolidated:
                        document.pop("consolidated_metadata", None)
                    data = path.read_bytes() if document is None else json.dumps(document).encode()
                    server.values[f"/b/p.zarr/{path.relative_to(utm).as_posix()}"] = data
            server.expect(*rounds)
            application = router("s3://b/p.zarr", storage_options=server.options())
            opening = {path for _, path in server.requests}
            get(application, tile)
            asked = [path for _, path in server.requests]
            assert server.late == [] and len(set(asked)) == len(asked)
            # Seen in other colours, the same chunks are asked for no more.
            get(application, tile.replace("4000", "3000"))
            assert [path for _, path in server.requests] == asked
            return opening, set(asked) - opening

    opening, chunks = run(first)
    assert chunks and all("/v/c/" in path for path in chunks)
    assert run(first, opening - first, chunks) == (opening, chunks)


def test_the_command_listens_on_this_machine_for_this_machine(utm: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "zstore",
        "serve",
        str(utm),
        "--port",
        "0",
        "--allow-origin",
        "https://example.org",
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            assert address.startswith("http://127.0.0.1:")
            with urlopen(
                Request(f"{address}collections", headers={"Origin": "https://example.org"})
            ) as answer:
                assert json.load(answer)["collections"][0]["id"] == "pyramid.zarr"
                assert answer.headers["access-control-allow-origin"] == "https://example.org"
            with urlopen(Request(f"{address}collections", headers={"Origin": "https://other.org"})) as answer:
                assert "access-control-allow-origin" not in answer.headers
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"{address}collections", headers={"Host": "elsewhere.example"}))
            assert refused.value.code == 400
            refused.value.close()
        finally:
            process.send_signal(signal.SIGINT)
        process.wait(20)
    done = CommandContract.run("serve", str(utm.with_name("none.zarr")))
    assert done.returncode == 1 and "none.zarr" in done.stderr and "Traceback" not in done.stderr


def test_the_page_is_sent_in_less_than_200_kilobytes(utm: Path) -> None:
    if any(read_vendored(name) is None for name in VENDOR):
        pytest.skip("zstore-serve was built without OpenLayers (npm has it)")
    application, takes = router(utm), {"accept-encoding": "gzip"}
    paths = ("/", *(f"/assets/{name}" for name in VENDOR), "/collections", "/colormaps")
    answers = [ask(application, path, takes) for path in paths]
    assert {answer.status for answer in answers} == {200}
    assert sum(len(answer.content) for answer in answers) < 200_000
    plain = ask(application, "/")
    assert gzip.decompress(answers[0].content) == plain.content
    assert plain.headers["cache-control"] == answers[0].headers["cache-control"] == "no-cache"
    assert "script-src 'self' 'sha256-" in answers[0].headers["content-security-policy"]
    again = ask(application, "/", {**takes, "if-none-match": answers[0].headers["etag"]})
    assert again.status == 304 and again.headers["content-security-policy"]


def test_what_the_pages_use_of_openlayers_is_bundled() -> None:
    package = Path(__file__).parents[1]
    listed = re.findall(r"export (?:const (\w+) = )?\{(.*)\};", (package / "openlayers.js").read_text())
    bundled = {f"{part}.{name}".lstrip(".") for part, names in listed for name in re.findall(r"\w+", names)}
    for page in ("page.html", "static.html"):
        text = (package / "src" / "zstore_serve" / page).read_text()
        used = {*re.findall(r"\bol\.([A-Z]\w+|\w+\.\w+)", text)}
        assert used and used <= bundled, used - bundled


def test_without_openlayers_the_page_says_what_is_missing(utm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zstore_serve import service

    monkeypatch.setattr(service, "read_vendored", lambda name: None)
    answer = ask(router(utm), "/")
    assert answer.status == 503 and "install npm" in answer.document["detail"]


def test_it_is_mounted_below_another_application(utm: Path) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    application = Starlette(routes=[Mount("/map", router(utm))])
    document = get(application, "/map/collections/pyramid.zarr/tilejson.json").document
    assert document["tiles"][0].startswith("http://localhost/map/collections/")


WORDS = st.sampled_from([
    "bands", "expression", "resampling", "rescale", "percentiles", "colormap", "algorithm", "azimuth",
    "altitude", "size", "time", "depth", "bbox", "lon", "lat", "x", "y", "along", "f", "url", "",
])  # fmt: skip
VALUES = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "nir",
            "red,nir",
            "1,2",
            "viridis",
            "nearest",
            "hillshade",
            "@1",
            "0,0,30,20",
            "nan,inf",
            "1e999",
            "-0",
        ]
    ),
    st.floats().map(str),
    st.integers().map(str),
    st.text("nired0123456789+-*/()<>=!.,'e ", max_size=40),
)
PLACES = st.sampled_from([
    "preview.png", "preview.npy", "tiles/pixels/0/0/0.png", "point", "timeseries", "statistics",
    "tilejson.json", "window.npy", "",
])  # fmt: skip


@pytest.fixture(scope="module")
def cube_service() -> Callable[[str], Answer]:
    application = router(cube())
    (about,) = get(application, "/collections").document["collections"]
    return lambda rest: ask(application, f"/collections/{about['id']}{rest}")


@settings(max_examples=300, deadline=None)
@given(place=PLACES, pairs=st.lists(st.tuples(WORDS, VALUES), max_size=5))
def test_any_query_is_answered_or_refused(cube_service, place: str, pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{name}={quote(value, errors='replace')}" for name, value in pairs)
    answer = cube_service(f"/{place}?{query}" if place else f"?{query}")
    assert answer.status in (200, 400, 404, 414, 422), (place, query, answer.content)
    assert answer.status == 200 or answer.document["status"] == answer.status


def base_of(application: Any) -> str:
    return f"/collections/{get(application, '/collections').document['collections'][0]['id']}"


def pixels_of(values: np.ndarray, attributes: dict[str, Any] | None = None) -> MemoryStore:
    store = MemoryStore()
    zstore.create_group(store).create_array("v", data=values, dimension_names=("y", "x"))
    if attributes:
        document = json.loads(bytes(store.get("v/zarr.json")))
        store.put("v/zarr.json", json.dumps({**document, "attributes": attributes}).encode())
    return store


def test_comparisons_in_comparisons_cost_each_once() -> None:
    counted: list[int] = []

    class Counted(dict[str, np.ndarray]):
        def __getitem__(self, name: str) -> np.ndarray:
            counted.append(1)
            return super().__getitem__(name)

    deep = parse_expression("(" * 12 + "v" + "<1)" * 12)
    assert deep(Counted(v=np.zeros((2, 2)))).shape == (2, 2)
    assert len(counted) == 1
    infinite = parse_expression("(v * 1e308 * 10 > 1) + 0")
    assert infinite({"v": np.array([[1.0, np.nan]])}).tolist()[0] == pytest.approx([1.0, np.nan], nan_ok=True)


def test_half_floats_are_reckoned_with_in_full() -> None:
    application = router(pixels_of(np.full((4, 4), 300, "f2")))
    found = get(application, f"{base_of(application)}/point?x=1&y=1&expression=v*v").document
    assert found["values"]["expression"] == 90000


@pytest.mark.parametrize(
    "values",
    [
        2**60 + np.arange(16).reshape(4, 4),
        np.full((4, 4), 2**62),
        np.where(np.eye(4) > 0, 1.7e308, -1.7e308),
    ],
)
def test_statistics_of_numbers_that_have_no_bins(values: np.ndarray) -> None:
    application = router(pixels_of(values))
    found = get(application, f"{base_of(application)}/statistics").document["statistics"]["v"]
    assert (found["count"], found["min"], found["max"]) == (16, float(values.min()), float(values.max()))
    assert found["histogram"] is None


def test_windows_beyond_arithmetic_are_refused() -> None:
    application = router(pixels_of(np.ones((4, 4))))
    for box in ("-1e308,-1e308,1e308,1e308", "0,0,1e-320,1e-320", "0,0,1,1e300"):
        assert ask(application, f"{base_of(application)}/statistics?bbox={box}").status == 400, box


def test_a_coordinate_of_nothing_but_nan_is_refused_as_a_choice() -> None:
    store = MemoryStore()
    group = zstore.create_group(store)
    group.create_array("v", data=np.ones((2, 4, 4)), dimension_names=("depth", "y", "x"))
    group.create_array("depth", data=np.full(2, np.nan), dimension_names=("depth",))
    application = router(store)
    assert ask(application, f"{base_of(application)}/preview.png?depth=3").status == 400
    assert ask(application, f"{base_of(application)}/preview.png?depth=@1").status == 200


@pytest.mark.parametrize(
    "attributes",
    [
        {"units": float("nan"), "long_name": [1, float("inf")]},
        {"flag_values": [1, 2.5, float("inf")], "flag_meanings": "a b c"},
        {"flag_values": [10**30], "flag_meanings": "a"},
        {"color_table": {"1": [float("inf"), 1, 1], str(10**30): [1, 1, 1], "2": 5}},
    ],
)
def test_attributes_that_make_no_sense_stop_nothing(attributes: dict[str, Any]) -> None:
    application = router(pixels_of(np.ones((4, 4), "i2"), attributes))
    base = base_of(application)
    get(application, base)
    get(application, f"{base}/preview.png")


def test_many_categories_have_colours_of_their_own() -> None:
    flags = {"flag_values": [*range(20)], "flag_meanings": " ".join(f"kind{n}" for n in range(20))}
    application = router(pixels_of(np.arange(20, dtype="u1").reshape(4, 5), flags))
    shown = get(application, f"{base_of(application)}/preview.png").picture.reshape(20, 4)
    assert len(np.unique(shown, axis=0)) == 20 and (shown[:, 3] == 255).all()
    assert shown[:2].tolist() == [[31, 119, 180, 255], [174, 199, 232, 255]]


def test_a_map_of_few_colours_is_drawn_with_them() -> None:
    application = router(pixels_of(np.arange(256, dtype="u1").reshape(16, 16)))
    base = base_of(application)
    for name, count in {"tab20": 20, "Set1": 9, "grey": 256}.items():
        shown = get(application, f"{base}/preview.png?rescale=0,255&colormap={name}").picture
        assert len(np.unique(shown.reshape(256, 4), axis=0)) == count
        assert len(get(application, f"/colormaps/{name}").document["colours"]) == 256


@pytest.mark.parametrize(
    ("said", "colours", "limits"),
    [
        ({"standard_name": "air_temperature", "units": "K"}, "thermal", (1, 9)),
        ({"standard_name": "toa_brightness_temperature", "units": "K"}, "grey_r", (1, 9)),
        ({"long_name": "Normalized difference vegetation index"}, "YlGn", (1, 9)),
        ({"long_name": "sea surface temperature anomaly", "units": "K"}, "vik", (-9, 9)),
        ({"standard_name": "eastward_wind", "units": "m s-1"}, "balance", (-9, 9)),
        ({"standard_name": "wind_from_direction", "units": "degree"}, "phase", (0, 360)),
        ({"long_name": "price", "units": "EUR"}, "viridis", (1, 9)),
        ({"long_name": "sidereal device"}, "grey", (1, 9)),
    ],
)
def test_values_are_drawn_by_their_meaning(
    said: dict[str, Any], colours: str, limits: tuple[float, float]
) -> None:
    """As if the colour map and the limits had been asked for, on the tile and in what the page is told."""
    store = pixels_of(np.tile(np.array([1.0, 4.0, 9.0], "f4"), (3, 1)), said)
    application = router(store)
    base = base_of(application)
    (band,) = get(application, base).document["bands"]
    assert band["colormap"].rpartition(":")[2] == colours
    told = get(application, f"{base}/statistics").document["limits"]
    assert told == [pytest.approx(limits, abs=0.4)]
    asked = f"rescale={told[0][0]},{told[0][1]}&colormap={band['colormap']}"
    plain, explicit = (get(application, f"{base}/preview.png?{words}").picture for words in ("", asked))
    assert plain.tolist() == explicit.tolist()
    assert np.array_equal(plain[..., :3], np.broadcast_to(quicklook(store)[..., :3], (3, 3, 3)))


def test_equal_factors_are_equal_steps() -> None:
    application = router(pixels_of(10.0 ** np.array([[-2, -1, 0, 1, -9]]), {"long_name": "chlorophyll"}))
    base = base_of(application)
    (band,) = get(application, base).document["bands"]
    assert (band["scale"], band["colormap"]) == ("log", "algae")
    for words, expected in {"": [0, 85, 170, 255, 0], "&scale=linear": [0, 2, 25, 255, 0]}.items():
        shown = get(application, f"{base}/preview.png?rescale=0.01,10&colormap=grey{words}").picture
        assert shown[0, :, 0].tolist() == expected
    whole = router(pixels_of(np.array([[1, 10, 100]], "u1")))
    shown = get(whole, f"{base_of(whole)}/preview.png?rescale=1,100&scale=log").picture
    assert shown[0, :, 0].tolist() == [0, 128, 255]
    assert ask(application, f"{base}/preview.png?scale=cubic").status == 400


def test_steps_of_colour_begin_at_their_values() -> None:
    """Each step has one colour of the map, the first and the last those of its ends."""
    grey = np.arange(5) * 255 // 4
    values = np.array([[0, 19, 20, 39, 40, 59, 60, 79, 80, 99, 120, -5]])
    for dtype in ("i2", "f8"):
        application = router(pixels_of(values.astype(dtype)))
        base = base_of(application)
        shown = get(application, f"{base}/preview.png?rescale=0,100&steps=5").picture
        assert shown[0, :, 0].tolist() == [*np.repeat(grey, 2).tolist(), 255, 0]
    colours = get(application, "/colormaps/grey?steps=5").document["colours"]
    assert np.unique(np.array(colours)[:, 0]).tolist() == grey.tolist()
    for words in ("steps=1", "steps=65", "steps=5&bands=v,1,b1", "steps=5&bands=v&mix=FFFFFF"):
        assert ask(application, f"{base}/preview.png?{words}").status == 400


def test_what_the_page_asks_for_is_never_refused() -> None:
    """An expression is tried before tiles are asked for; files are sent compressed to who takes that."""
    application = router(pixels_of(np.ones((4, 4), "i2")))
    base = base_of(application)
    assert get(application, f"{base}/expression?expression=b1*2").document == {"bands": ["v"]}
    for wrong in ("b1+", "b9"):
        assert "problem" in get(application, f"{base}/expression?expression={quote(wrong)}").document
    if read_vendored("ol.js") is None:
        pytest.skip("zstore-serve was built without OpenLayers (npm has it)")
    answer = ask(application, "/assets/ol.js", {"accept-encoding": "gzip"})
    assert gzip.decompress(answer.content) == read_vendored("ol.js") and len(answer.content) < 120_000


def test_a_palette_lists_the_colours_that_are_defined() -> None:
    table = {str(n): [0, 0, 0, 255] for n in range(256)} | {"1": [9, 9, 9, 255], "4": [200, 0, 0, 255]}
    application = router(pixels_of(np.ones((4, 4), "u1"), {"color_table": table}))
    (band,) = get(application, base_of(application)).document["bands"]
    assert [one["value"] for one in band["categories"]] == [0, 1, 2, 3, 4]


def test_a_place_on_the_last_edge_lies_in_the_last_cell() -> None:
    store = MemoryStore()
    cells = np.arange(60 * 90).reshape(60, 90)
    write(store, cells, "OGC:CRS84", Affine(4.0, 0, -180.0, 0, -3.0, 90.0))
    application = router(store)
    found = get(application, f"{base_of(application)}/point?lon=0&lat=-90").document
    assert (found["row"], found["values"]["v"]) == (59, cells[59, 45])


def test_tilejson_of_the_west_in_degrees_east(tmp_path: Path) -> None:
    store = MemoryStore()
    write(store, np.ones((60, 90)), "OGC:CRS84", Affine(1.0, 0, 200.0, 0, -1.0, 30.0))
    application = router(store)
    document = get(application, f"{base_of(application)}/tilejson.json").document
    assert document["bounds"] == [-160, -30, -70, 30] and document["center"][:2] == [-115, 0]


def test_a_series_has_no_values_where_a_mask_leaves_them_out() -> None:
    store = MemoryStore()
    group = write(store, np.ones((60, 90)), "EPSG:32632", Affine(30.0, 0, 5e5, 0, -30.0, 5.5e6))
    placed = {"grid_mapping": group["v"].attrs["grid_mapping"]} if "grid_mapping" in group["v"].attrs else {}
    mask = np.full((60, 90), 255, "u1")
    mask[:, :45] = 0
    said = {"flag_values": [0, 255], "flag_meanings": "invalid valid", **placed}
    group.create_array("valid", data=mask, dimension_names=("y", "x"), attributes=said)
    cube = np.ones((3, 60, 90))
    group.create_array("cube", data=cube, dimension_names=("time", "y", "x"), attributes=placed)
    application = router(store)
    base = f"{base_of(application)}/timeseries?bands=cube&y=5499990&x="
    assert get(application, f"{base}500010").document["values"] == [None] * 3
    assert get(application, f"{base}502000").document["values"] == [1] * 3


def test_a_group_that_is_broken_takes_nothing_from_its_neighbours(
    tmp_path: Path, noise: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    zstore.create_group(tmp_path / "all.zarr")
    for name in ("a", "b", "c"):
        write(tmp_path / "all.zarr" / name, noise, None, None)
    (tmp_path / "all.zarr" / "b" / "v" / "zarr.json").write_text('{"bad')
    found = get(router(tmp_path / "all.zarr"), "/collections").document["collections"]
    assert [one["id"] for one in found] == ["a", "c"] and "b/v is left out" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.2", "LOCALHOST", "::1", "0:0:0:0:0:0:0:1"])
def test_every_address_of_this_machine_alone_is_told_from_others(host: str) -> None:
    from zstore_serve.commands import _is_loopback

    assert _is_loopback(host)
    assert not any(map(_is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))


def test_a_host_that_is_no_name_is_told_in_a_line(utm: Path) -> None:
    done = CommandContract.run("serve", str(utm), "--port", "0", "--host", "ü..x")
    assert done.returncode == 1 and "cannot listen at" in done.stderr


def test_the_package_is_built_where_npm_waits_in_vain(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "setup.py"
    text = source.read_text("utf-8")
    changes = {"PATIENCE = 300": "PATIENCE = 0.2", "from setuptools import setup": "", "\nsetup()": ""}
    for said, instead in changes.items():
        assert said in text
        text = text.replace(said, instead)
    (tmp_path / "setup.py").write_text(text, "utf-8")
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nexec sleep 20\n")
    npm.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "setup.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "built without them" in done.stderr


@pytest.mark.parametrize("dtype", ["u1", "i4", "u4", "f4"])
@pytest.mark.parametrize("sampling", ["bilinear", "cubic"])
def test_what_a_mask_leaves_out_is_not_mixed_into_its_neighbours(dtype: str, sampling: str) -> None:
    cells = np.full((60, 90), 100, dtype)
    cells[:, :45] = 7
    store = MemoryStore()
    group = write(store, cells, "EPSG:32632", Affine(30.0, 0, 5e5, 0, -30.0, 5.5e6))
    placed = {"grid_mapping": group["v"].attrs["grid_mapping"]} if "grid_mapping" in group["v"].attrs else {}
    said = {"flag_values": [0, 255], "flag_meanings": "invalid valid", **placed}
    mask = np.where(np.arange(90) < 45, 0, 255).astype("u1") * np.ones((60, 1), "u1")
    group.create_array("valid", data=mask, dimension_names=("y", "x"), attributes=said)
    application = router(store)
    box = get(application, f"{base_of(application)}/bounds").document["bbox"]
    seen = 0
    for x, y in tiles_over(box, 14):
        tile = get(
            application, f"{base_of(application)}/tiles/WebMercatorQuad/14/{x}/{y}.npy?resampling={sampling}"
        ).cells
        assert np.abs(tile[0][tile[1] > 0].astype(float) - 100).max(initial=0) < 1e-3
        seen += int((tile[1] > 0).sum())
    assert seen > 1000


def test_tokens_of_addresses_are_in_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from zstore_serve import scenes

    opened, place = scenes.open_levels, "https://host.example/data/scene.zarr?token=SECRET&sig=x#SECRET"
    monkeypatch.setattr(
        scenes, "open_levels", lambda node: [replace(level, place=place) for level in opened(node)]
    )
    answer = get(router(pixels_of(np.ones((4, 4)))), "/collections")
    assert answer.document["collections"][0]["title"] == "scene.zarr"
    assert b"SECRET" not in answer.content


def test_gdal_reads_the_wmts(utm: Path) -> None:
    """What its driver makes of the capabilities is what the tiles hold, at the place that they have."""
    rasterio = pytest.importorskip(
        "rasterio", reason="GDAL's warp is asked through rasterio (extra 'raster')"
    )
    application = router(utm)
    box = get(application, "/collections/pyramid.zarr/bounds").document["bbox"]
    x, y = tiles_over(box, 13)[8]
    tile = get(application, f"/wmts/1.0.0/pyramid.zarr/default/WebMercatorQuad/13/{y}/{x}.png").picture
    matrix = WEB["13"]
    west, north = matrix.affine.at(x * 256.0, y * 256.0)
    with listening(application) as address:
        place = (
            f"WMTS:{address}wmts/1.0.0/WMTSCapabilities.xml,layer=pyramid.zarr,tilematrixset=WebMercatorQuad"
        )
        with rasterio.open(f"{place},tilematrix=13") as raster:
            assert raster.crs == "EPSG:3857"
            theirs, corner = np.moveaxis(raster.read(), 0, -1), raster.transform
    # It cuts the tiles to the bounds of the layer.
    row, column = round((north - corner.f) / corner.e), round((west - corner.c) / corner.a)
    theirs = theirs[max(0, row) : row + 256, max(0, column) : column + 256]
    ours = tile[max(0, -row) :, max(0, -column) :][: theirs.shape[0], : theirs.shape[1]]
    kept = ours[..., 3] > 0
    assert kept.sum() > 5000
    assert np.array_equal(theirs[kept][:, :3], ours[kept][:, :3])


def test_wmts_is_asked_by_keys_and_values() -> None:
    library = pytest.importorskip("owslib.wmts", reason="OWSLib is not installed (PyPI has it)")
    store = MemoryStore()
    group = write(store, np.ones((60, 90)), "EPSG:32632", Affine(30.0, 0, 5e5, 0, -30.0, 5.5e6))
    placed = {"grid_mapping": group["v"].attrs["grid_mapping"]} if "grid_mapping" in group["v"].attrs else {}
    values = np.stack([np.full((60, 90), n * 50 + 10, "u1") for n in range(3)])
    del group["v"]
    group.create_array("cube", data=values, dimension_names=("time", "y", "x"), attributes=placed)
    days = {"units": "days since 2020-01-01", "standard_name": "time"}
    group.create_array("time", data=np.arange(3), dimension_names=("time",), attributes=days)
    application = router(store)
    name = base_of(application).rpartition("/")[2]
    box = get(application, f"/collections/{name}/bounds").document["bbox"]
    (x, y), *_ = tiles_over(box, 12)
    with listening(application) as address:
        client = library.WebMapTileService(f"{address}wmts")
        layer = client.contents[name]
        assert layer.boundingBoxWGS84 == pytest.approx(box)
        assert layer.dimensions["time"]["values"] == ["2020-01-01", "2020-01-02", "2020-01-03"]
        assert {"WebMercatorQuad", "WorldCRS84Quad"} <= set(client.tilematrixsets)
        corner = client.tilematrixsets["WGS1984Quad"].tilematrix["0"].topleftcorner
        assert corner == (90.0, -180.0)
        content = client.gettile(
            layer=name, tilematrixset="WebMercatorQuad", tilematrix="12", row=y, column=x, format="image/png",
            TIME="2020-01-03", rescale="0,255",
        ).read()  # fmt: skip
    shown = Answer(200, {}, content).picture
    assert set(shown[shown[..., 3] > 0][:, 0].tolist()) == {110}


def test_wmts_refuses_what_it_does_not_know(utm: Path) -> None:
    application = router(utm)
    words = "SERVICE=WMTS&REQUEST=GetTile&LAYER=pyramid.zarr&TILEMATRIXSET=WebMercatorQuad&TILEMATRIX=13"
    whole = f"{words}&TILEROW=2800&TILECOL=4295&FORMAT=image/png"
    assert ask(application, f"/wmts?{whole}").status == 200
    assert (
        ask(application, f"/wmts?{whole.lower().replace('webmercatorquad', 'WebMercatorQuad')}").status == 200
    )
    for query, status in (
        ("REQUEST=GetMap", 400), (words, 400), (f"{whole}&STYLE=red", 400), (f"{whole}&TIME=3", 400),
        (whole.replace("image/png", "image/tiff"), 400), (whole.replace("pyramid", "other"), 404),
        (whole.replace("2800", "9999999"), 404),
    ):  # fmt: skip
        assert ask(application, f"/wmts?{query}").status == status, query


def test_windows_are_geotiffs_on_their_own_grid(utm: Path) -> None:
    rasterio = pytest.importorskip(
        "rasterio", reason="GDAL's warp is asked through rasterio (extra 'raster')"
    )
    application, level = router(utm), zstore.open_array(utm, "0/v", mode="r")[...]
    west, south, east, north = get(application, "/collections/pyramid.zarr/bounds").document["bbox"]
    whole = get(application, f"/collections/pyramid.zarr/window.tif?bbox={west},{south},{east},{north}")
    assert whole.headers["content-type"] == "image/tiff"
    with rasterio.MemoryFile(whole.content) as file, file.open() as raster:
        assert raster.crs == "EPSG:32632" and raster.transform[:6] == (30.0, 0, 480000.0, 0, -30.0, 5500000.0)
        assert np.array_equal(raster.read(1), level) and raster.descriptions == ("v",)
        assert np.array_equal(raster.read_masks(1) > 0, level != 0)
    middle = (west + east) / 2, (south + north) / 2
    box = f"{middle[0]},{middle[1]},{middle[0] + 0.01},{middle[1] + 0.01}"
    part = get(application, f"/collections/pyramid.zarr/window.tif?bbox={box}")
    with rasterio.MemoryFile(part.content) as file, file.open() as raster:
        row, column = (round((e - o) / s) for e, o, s in (
            (raster.transform.f, 5500000.0, -30.0), (raster.transform.c, 480000.0, 30.0),
        ))  # fmt: skip
        height, width = raster.shape
        assert 20 < width < 60 and 30 < height < 60
        assert np.array_equal(raster.read(1), level[row : row + height, column : column + width])
    sized = get(application, f"/collections/pyramid.zarr/window.tif?bbox={box}&size=64")
    with rasterio.MemoryFile(sized.content) as file, file.open() as raster:
        assert raster.width == 64 and raster.height in (63, 64) and raster.crs.to_epsg() in (4326, None)
        assert raster.bounds == pytest.approx([*middle, middle[0] + 0.01, middle[1] + 0.01])
    png = get(application, f"/collections/pyramid.zarr/window.png?bbox={box}&rescale=0,4000").picture
    assert png.shape[:2] == (height, width)
    assert ask(application, "/collections/pyramid.zarr/window.tif").status == 400
    assert ask(application, "/collections/pyramid.zarr/window.tif?bbox=100,10,101,11").status == 404
    small = router(utm, settings=Settings(cell_count=500))
    assert ask(small, f"/collections/pyramid.zarr/window.tif?bbox={box}").status == 422


@pytest.mark.parametrize("kind", GLOBES)
def test_windows_of_globes_lie_where_they_are_asked_for(kind: str) -> None:
    west, down = GLOBES[kind]
    _, columns = np.indices((180, 360))
    affine = Affine(1.0, 0, west, 0, 1.0 * down, 90.0 * -down)
    store = MemoryStore()
    write(store, (west + 0.5 + columns).astype("f4") % 360, "OGC:CRS84", affine, ("lat", "lon"))
    application = router(store)
    for left in (-100.0, 10.0, 100.0):
        cells = get(application, f"{base_of(application)}/window.npy?bbox={left},5,{left + 20},15").cells
        assert cells.shape == (2, 10, 20) and (cells[1] == 255).all()
        assert np.array_equal(cells[0][0], (left + 0.5 + np.arange(20)) % 360)


def test_capabilities_are_xml_whatever_stores_say(tmp_path: Path) -> None:
    shape, affine = (4, 4), Affine(1.0, 0, 0.0, 0, -1.0, 4.0)
    group = write(tmp_path / "place", np.ones(shape, "u1"), "OGC:CRS84", affine)
    labels = {"none": [], "odd": ["a\x01", "b"], "plain": ["a<", "b"]}
    for name, said in labels.items():
        group.create_array(name, data=np.array(said, "<U2"), dimension_names=(name,))
        group.create_array(
            f"by_{name}", data=np.ones((len(said), *shape), "u1"), dimension_names=(name, "y", "x"),
            attributes=dict(group["v"].attrs),
        )  # fmt: skip
    del group["v"]
    for name in labels:
        group.attrs["bands"] = [f"by_{name}", *(f"by_{other}" for other in labels if other != name)]
        answer = get(router(tmp_path / "place"), "/wmts?SERVICE=WMTS&REQUEST=GetCapabilities")
        root = ElementTree.fromstring(answer.content)
        space = "{http://www.opengis.net/wmts/1.0}"
        (layer,) = root.iter(f"{space}Layer")
        values = [one.text for one in layer.iter(f"{space}Value")]
        assert values == {"none": [], "odd": ["@0", "@1"], "plain": ["a<", "b"]}[name]


@pytest.mark.parametrize("kind", ["directory", "node", "zip"])
def test_tiles_limits_and_descriptions_are_of_one_state_of_the_store(
    tmp_path: Path, noise: np.ndarray, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(watch, "TRUST_TIME", 0.0)
    affine, path = Affine(30, 0, 5e5, 0, -30, 7e6), "/collections/a.zarr/preview.png"
    place = tmp_path / "a.zarr"
    beside = tmp_path / "b.zarr"
    write(beside, noise, "EPSG:32622", affine)

    def store(values: np.ndarray) -> None:
        write(tmp_path / "a.zarr", values, "EPSG:32622", affine)
        if kind == "zip":
            zstore.copy(tmp_path / "a.zarr", tmp_path / "new.zip")
            (tmp_path / "new.zip").replace(tmp_path / "a.zip")

    store(noise)
    place = tmp_path / "a.zip" if kind == "zip" else place
    name = "a.zip" if kind == "zip" else "a.zarr"
    path = f"/collections/{name}/preview.png"
    application = router(zstore.open_group(place, mode="r") if kind == "node" else place, beside)
    first = get(application, path)
    for values in (noise[:96, :80].astype("f8") * 1000 - 7, noise[::-1].copy()):
        store(values)
        about = get(application, f"/collections/{name}").document
        assert about["size"] == list(values.shape) and about["bands"][0]["dtype"] == str(values.dtype)
        # A server that has never seen another state draws the same.
        assert get(application, path).content == get(router(place), path).content != first.content
    ids = [one["id"] for one in get(application, "/collections").document["collections"]]
    assert ids == [name, "b.zarr"]


def test_documents_are_trusted_for_a_moment(
    tmp_path: Path, noise: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.zarr", noise, "EPSG:32622", Affine(30, 0, 5e5, 0, -30, 7e6))
    found, looks = watch._find_versions, []
    monkeypatch.setattr(watch, "_find_versions", lambda scenes: looks.append(1) or found(scenes))
    application = router(tmp_path / "a.zarr")
    for _ in range(5):
        assert get(application, "/collections/a.zarr").status == 200
    assert looks == []


def test_a_store_that_is_gone_or_broken_is_said_to_be_and_comes_back(
    tmp_path: Path, noise: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, path = tmp_path / "a.zarr", "/collections/a.zarr/preview.png?size=100"
    write(place, noise, "EPSG:32622", Affine(30, 0, 5e5, 0, -30, 7e6))
    write(tmp_path / "b.zarr", noise, "EPSG:32622", Affine(30, 0, 5e5, 0, -30, 7e6))
    application = router(place, tmp_path / "b.zarr")
    drawn = get(application, path).content
    shutil.copytree(place, tmp_path / "elsewhere")
    shutil.rmtree(place)
    answer = ask(application, f"{path}1")  # a moment ago it was there
    assert answer.status == 410 and b"no longer there" in answer.content
    monkeypatch.setattr(watch, "TRUST_TIME", 0.0)
    assert ask(application, path).status == 410
    assert ask(application, "/collections/a.zarr").status == 410
    assert get(application, "/collections/b.zarr/preview.png?size=100").content == drawn
    (tmp_path / "elsewhere").rename(place)
    assert get(application, path).content == drawn
    document = (place / "zarr.json").read_bytes()
    (place / "zarr.json").write_bytes(b"{")
    assert ask(application, path).status == 503
    (place / "zarr.json").write_bytes(document)
    assert get(application, path).content == drawn


def test_more_clients_than_the_limit_are_refused_at_once(utm: Path) -> None:
    with listening(router(utm), http=ImpatientProtocol, limit_concurrency=4) as address:
        host, port = address.removeprefix("http://").rstrip("/").split(":")

        def connect() -> socket.socket:
            return socket.create_connection((host, int(port)), timeout=5)

        held = [connect() for _ in range(3)]
        for client in held:  # accepted: each is answered
            client.sendall(b"GET /conformance HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        for _ in range(20):
            with connect() as refused:
                assert refused.recv(12) == b"HTTP/1.1 503"
                while refused.recv(4096):
                    pass
        held.pop().close()
        time.sleep(0.2)
        with connect() as client:
            client.sendall(b"GET /conformance HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        for client in held:
            client.close()


def test_half_sent_requests_hold_no_connection(utm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImpatientProtocol, "head_time", 0.3)
    with listening(router(utm), http=ImpatientProtocol) as address:
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        half = [socket.create_connection((host, int(port)), timeout=5) for _ in range(20)]
        for number, client in enumerate(half):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n"[:number])
        whole = socket.create_connection((host, int(port)), timeout=5)
        for _ in range(2):  # one connection, two requests, with a pause that is shorter than keep-alive
            whole.sendall(b"GET /conformance HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert whole.recv(12) == b"HTTP/1.1 200"
            time.sleep(0.5)
            whole.recv(1 << 16)
        for client in half:
            with suppress(ConnectionError):
                assert client.recv(1) == b""
            client.close()
        whole.close()

"""Pyramids on tile matrix sets: where cells come from, what is stored, what is said of it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, SelectionError, StoreError, UnsupportedError
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.tilesets.registry import load_tile_matrix_set
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.dataset import open_dataset
from zstore.geo.pyramid.tile_grid import GridTransform
from zstore.geo.rasters.raster import raster_to_zarr
from zstore.geo.resampling.methods import downsample
from zstore.storage.base import PrefixStore, Store
from zstore.storage.memory import MemoryStore

pyproj = pytest.importorskip("pyproj")

UTM = Affine(30, 0, 600000, 0, -30, 5300000)
MERCATOR = 20037508.342789244


def put_raster(
    place: Any, data: dict[str, np.ndarray], affine: Affine, crs: Any, *, zarr_format: int = 3, **said: Any
) -> zstore.Group:
    """A group of arrays (..., y, x) on one grid; `said` is of their variables."""
    first = next(iter(data.values()))
    names = ("time", "y", "x")[-first.ndim :]
    variables = {
        name: Variable(**{"dtype": cells.dtype, "nodata": 0, "dimensions": names, **said.get(name, {})})
        for name, cells in data.items()
    }
    geo = GeoModel(Crs.from_user(crs), affine, first.shape[-2:], variables=variables)
    group = zstore.create_group(place, zarr_format=zarr_format)
    for path, document in render_geo(geo, zarr_format)[0].items():
        if path == "":
            group.attrs.update(document["attributes"])
            continue
        options = {"attributes": document["attributes"], "dimension_names": document["dimension_names"]}
        cells = document.get("data", data.get(path))
        chunks = (1, 64, 64)[-cells.ndim :] if path in data else "auto"
        group.create_array(path, data=cells, chunks=chunks, fill_value=document["fill_value"], **options)
    return group


def scene(shape: tuple[int, ...] = (300, 360), dtype: str = "u2") -> np.ndarray:
    return np.random.default_rng(0).integers(1, 5000, shape).astype(dtype)


def smooth(shape: tuple[int, int] = (500, 600)) -> np.ndarray:
    return np.add.outer(np.arange(shape[0]), np.arange(shape[1]) * 2).astype("u2") + 1


def window(group: zstore.Group, level: str, name: str = "b") -> tuple[np.ndarray, Affine]:
    """The cells of a level within its limits, and where they lie."""
    limits = group.attrs["multiscales"]["tile_matrix_limits"][level]
    array = group[f"{level}/{name}"]
    size = array.chunks[-1]
    rows = slice(limits["minTileRow"] * size, (limits["maxTileRow"] + 1) * size)
    columns = slice(limits["minTileCol"] * size, (limits["maxTileCol"] + 1) * size)
    affine = Affine.from_user(group[level].attrs["spatial:transform"])
    return array[..., rows, columns], affine._replace(
        c=affine.c + affine.a * columns.start, f=affine.f + affine.e * rows.start
    )


def exact_places(affine: Affine, shape: tuple[int, int], source: Affine, crs: Any) -> tuple[Any, Any]:
    """(column, row) in the source of cells in web mercator, by pyproj alone."""
    to_source = pyproj.Transformer.from_crs(3857, crs, always_xy=True)
    columns, rows = np.meshgrid(np.arange(shape[1]) + 0.5, np.arange(shape[0]) + 0.5)
    x, y = to_source.transform(affine.c + affine.a * columns, affine.f + affine.e * rows)
    return (x - source.c) / source.a, (y - source.f) / source.e


def pick(data: np.ndarray, columns: np.ndarray, rows: np.ndarray, nodata: Any = 0) -> np.ndarray:
    """The cells that places lie in."""
    height, width = data.shape
    with np.errstate(invalid="ignore"):
        inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    made = np.full(columns.shape, nodata, data.dtype)
    made[inside] = data[rows[inside].astype(int), columns[inside].astype(int)]
    return made


def files_of(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


# Where cells come from


def test_exact_places_give_the_very_cells(tmp_path: Path) -> None:
    data = scene()
    put_raster(tmp_path / "source", {"b": data}, UTM, 32632)
    group = zstore.build_tile_pyramid(
        tmp_path / "source", tmp_path / "made", method="nearest", tolerance=0, min_zoom=10
    )
    cells, affine = window(group, "12")
    np.testing.assert_array_equal(cells, pick(data, *exact_places(affine, cells.shape, UTM, 32632)))
    # The set's grid, to the last digit.
    matrix = load_tile_matrix_set("WebMercatorQuad")["12"]
    assert list(group["12"].attrs["spatial:transform"]) == list(matrix.affine)
    assert group["12/b"].shape == matrix.shape


def north_up(size: float, left: float, top: float) -> Affine:
    return Affine(size, 0, left, 0, -size, top)


SPHERE = "+proj=sinu +R=6371007.181 +units=m +type=crs"
GLOBE = ("OGC:CRS84", north_up(0.05, -180, 90), (3600, 7200))
DEGREES = (4326, north_up(0.05, -180, 90))
WEB = (3857, north_up(4 * MERCATOR / 1024, -2 * MERCATOR, 2 * MERCATOR))
# (CRS, affine, shape) of a source, (CRS, affine) of a target.
PAIRS = {
    "UTM and web mercator": ((32632, UTM, (600, 700)), (3857, north_up(30, 1.1e6, 6.1e6))),
    "turned": ((32632, Affine(24, 18, 6e5, 18, -24, 5.3e6), (2000, 2000)), (4326, north_up(5e-4, 10, 48))),
    "globe": (GLOBE, WEB),
    "globe from Greenwich": (("OGC:CRS84", north_up(0.05, 0, 90), (3600, 7200)), WEB),
    "zones 60 and 1": ((32660, north_up(60, 7e5, 5.3e6), (2000, 2000)), (32601, north_up(60, 0, 5.3e6))),
    "across 180 degrees": ((32601, north_up(60, 2e5, 5.3e6), (2000, 8000)), (4326, north_up(1e-3, 179, 48))),
    "to a pole": (GLOBE, (3413, north_up(25000, -6.4e6, 6.4e6))),
    "from a pole": ((3413, north_up(1000, -3e6, 3e6), (6000, 6000)), DEGREES),
    "sinusoidal": ((SPHERE, north_up(5000, -20015109, 10007554), (4000, 8000)), DEGREES),
    "Mollweide": (GLOBE, ("ESRI:54009", north_up(20000, -18e6, 9e6))),
    "interrupted": (("+proj=igh +type=crs", north_up(5000, -2e7, 8.6e6), (3440, 8000)), DEGREES),
}  # fmt: skip


@pytest.mark.parametrize("tolerance", [0.125, 1e-3])
@pytest.mark.parametrize("pair", PAIRS)
def test_approximated_places_are_within_the_bound(pair: str, tolerance: float) -> None:
    (crs, affine, shape), (target_crs, target) = PAIRS[pair]
    transform = GridTransform(Crs.from_user(crs), affine, shape, Crs.from_user(target_crs), target, tolerance)
    random = np.random.default_rng(0)
    inside = [np.ravel(random.uniform(0, size, 20)) for size in shape]
    columns, rows = transform.to_target(inside[1], inside[0])
    near = [(int(y), int(x)) for y, x in zip(rows, columns, strict=True) if np.isfinite(x) and np.isfinite(y)]
    for number, (row, column) in enumerate(near[:6]):
        size, corners = tuple(random.integers(20, 300, 2).tolist()), number % 2
        row, column = row - size[0] // 2, column - size[1] // 3
        places = transform.under_block(row, column, size, corners=bool(corners))
        y, x = (random.integers(0, length, 200) for length in places[0].shape)
        offset = 0 if corners else 0.5
        exact = transform.to_source(column + x + offset, row + y + offset)
        got = [one[y, x] for one in places]
        known = [np.isfinite(pair[0]) & np.isfinite(pair[1]) for pair in (got, exact)]
        np.testing.assert_array_equal(*known)
        off = [np.abs(one[known[0]] - other[known[0]]) for one, other in zip(got, exact, strict=True)]
        if transform.columns_around:  # both ends of the globe are one place
            off[0] = np.minimum(off[0], np.abs(off[0] - transform.columns_around))
        assert all(one.max(initial=0) <= tolerance for one in off)
    whole = replace(transform, tolerance=0).under_block(*near[0], (20, 30), corners=False)
    grid = np.meshgrid(near[0][1] + np.arange(30) + 0.5, near[0][0] + np.arange(20) + 0.5)
    np.testing.assert_array_equal(whole, transform.to_source(grid[0], grid[1]))


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("method", ["nearest", "bilinear", "cubic", "average"])
def test_numbers_are_gdals(tmp_path: Path, method: str) -> None:
    rasterio = pytest.importorskip("rasterio")
    from rasterio.warp import reproject

    # Neighbours differ by at most 2, so that places an eighth of a cell off in each of the two differ by one.
    data = smooth()
    put_raster(tmp_path / "source", {"b": data}, UTM, 32632)
    group = zstore.build_tile_pyramid(
        tmp_path / "source", tmp_path / "made", sampling=method, min_zoom=12, max_zoom=12
    )
    cells, affine = window(group, "12")
    want = np.zeros(cells.shape, "u2")
    reproject(
        data,
        want,
        src_transform=rasterio.Affine(*UTM),
        src_crs="EPSG:32632",
        src_nodata=0,
        dst_transform=rasterio.Affine(*affine),
        dst_crs="EPSG:3857",
        dst_nodata=0,
        resampling=rasterio.enums.Resampling[method],
    )
    columns, rows = exact_places(affine, cells.shape, UTM, 32632)
    inner = (columns > 3) & (columns < 597) & (rows > 3) & (rows < 497)
    assert inner.sum() > 100_000
    off = np.abs(cells.astype(int) - want.astype(int))
    if method == "nearest":
        places = np.minimum(np.abs(columns - np.round(columns)), np.abs(rows - np.round(rows)))
        assert off[inner & (places > 0.125)].max() == 0
    else:
        assert off[inner].max() <= 1
    assert (cells[(columns < -2) | (columns > 602) | (rows < -2) | (rows > 502)] == 0).all()


@pytest.mark.parametrize("dtype", ["u2", "f4"])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "cubic"])
def test_exact_places_give_gdals_very_numbers(tmp_path: Path, method: str, dtype: str) -> None:
    rasterio = pytest.importorskip("rasterio")
    from rasterio.vrt import WarpedVRT

    from zstore.geo.pyramid.tile_grid import TileGrid

    data = scene((200, 240), dtype)
    source = put_raster(tmp_path / "source", {"b": data}, UTM, 32632)
    group = zstore.build_tile_pyramid(
        source, tmp_path / "made", sampling=method, min_zoom=12, max_zoom=12, tolerance=0
    )
    cells, affine = window(group, "12")
    scale = TileGrid.choose(open_dataset(source), "WebMercatorQuad", None, 0, 12, 12).scale
    stretch = {"XSCALE": repr(scale[1]), "YSCALE": repr(scale[0])} if method != "nearest" else {}
    profile = {"driver": "GTiff", "count": 1, "dtype": data.dtype, "height": 200, "width": 240}
    place = {"crs": "EPSG:32632", "transform": rasterio.Affine(*UTM), "nodata": 0}
    with rasterio.open(tmp_path / "a.tif", "w", **profile, **place) as raster:
        raster.write(data, 1)
    options = {"crs": "EPSG:3857", "transform": rasterio.Affine(*affine), "nodata": 0, "tolerance": 1e-9}
    height, width = cells.shape
    with (
        rasterio.open(tmp_path / "a.tif") as raster,
        WarpedVRT(
            raster,
            height=height,
            width=width,
            resampling=rasterio.enums.Resampling[method],
            **options,
            **stretch,
        ) as warped,
    ):
        want = warped.read(1)
    columns, rows = exact_places(affine, cells.shape, UTM, 32632)
    inner = (columns > 0.01) & (columns < 239.99) & (rows > 0.01) & (rows < 199.99)
    assert inner.sum() > 40_000
    if dtype == "f4":
        np.testing.assert_allclose(cells[inner], want[inner], rtol=1e-6)
    else:
        # Halves may round to either side.
        off = np.abs(cells[inner].astype(int) - want[inner].astype(int))
        assert off.max() <= 1 and (off > 0).mean() < 1e-3


@pytest.mark.parametrize("west", [170.0, -190.0, 165.0])
def test_data_across_the_antimeridian_lie_on_both_sides(tmp_path: Path, west: float) -> None:
    data, grid = scene((200, 400)), Affine(0.05, 0, west, 0, -0.05, 5)
    put_raster(tmp_path / "source", {"b": data}, grid, "OGC:CRS84")
    group = zstore.build_tile_pyramid(tmp_path / "source", tmp_path / "made", method="nearest", tolerance=0)
    finest = group.attrs["multiscales"]["layout"][0]["asset"]
    array, affine = group[f"{finest}/b"], Affine.from_user(group[finest].attrs["spatial:transform"])
    size, middle = array.shape[0], array.shape[0] // 2
    rows = slice(middle - 256, middle + 256)
    cells = array[rows, :]
    place = affine._replace(f=affine.f + affine.e * rows.start)
    columns, lines = exact_places(place, cells.shape, grid, "OGC:CRS84")
    with np.errstate(invalid="ignore"):
        columns = np.where(columns >= 0, columns, columns + 7200)
        columns = np.where(columns >= 7200, columns - 7200, columns)
    np.testing.assert_array_equal(cells, pick(data, columns, lines))
    assert (cells[:, 0] > 0).any() and (cells[:, -1] > 0).any() and not cells[:, size // 2].any()
    stored = [Path(name).name for name in files_of(tmp_path / "made" / finest / "b" / "c")]
    # Only tiles near the antimeridian, though the limits, one rectangle, span the globe.
    assert all(int(c) < 8 or int(c) >= size // 256 - 8 for c in stored) and 4 <= len(stored) <= 40


def test_a_whole_globe_ends_at_the_matrix(tmp_path: Path) -> None:
    data, grid = (scene((180, 360)) % 250 + 1).astype("u1"), Affine(1, 0, -180, 0, -1, 90)
    put_raster(tmp_path / "source", {"b": data}, grid, 4326)
    group = zstore.build_tile_pyramid(tmp_path / "source", tmp_path / "made", method="nearest", tolerance=0)
    finest = group.attrs["multiscales"]["layout"][0]["asset"]
    cells, affine = window(group, finest)
    assert cells.shape == group[f"{finest}/b"].shape and (cells > 0).all()
    np.testing.assert_array_equal(cells, pick(data, *exact_places(affine, cells.shape, grid, 4326)))


def test_a_pole_in_the_middle(tmp_path: Path) -> None:
    data, grid = scene((256, 256)), Affine(25000, 0, -3200000, 0, -25000, 3200000)
    put_raster(tmp_path / "source", {"b": data}, grid, 3413)
    group = zstore.build_tile_pyramid(
        tmp_path / "source", tmp_path / "made", method="nearest", tolerance=0, max_zoom=2
    )
    cells, affine = window(group, "2")
    columns, rows = exact_places(affine, cells.shape, grid, 3413)
    want = pick(data, columns, rows)
    np.testing.assert_array_equal(cells, want)
    assert (want > 0).mean() > 0.3


def test_a_rotated_grid_and_one_that_is_south_up(tmp_path: Path) -> None:
    data = scene((300, 300))
    turned = Affine(24, 18, 600000, 18, -24, 5300000)
    put_raster(tmp_path / "turned", {"b": data}, turned, 32632)
    options = {"method": "nearest", "tolerance": 0, "min_zoom": 12, "max_zoom": 12}
    group = zstore.build_tile_pyramid(tmp_path / "turned", tmp_path / "made", **options)
    cells, affine = window(group, "12")
    back = pyproj.Transformer.from_crs(3857, 32632, always_xy=True)
    grid = np.meshgrid(np.arange(cells.shape[1]) + 0.5, np.arange(cells.shape[0]) + 0.5)
    x, y = back.transform(affine.c + affine.a * grid[0], affine.f + affine.e * grid[1])
    x, y = x - turned.c, y - turned.f
    columns, rows = (24 * x + 18 * y) / 900, (18 * x - 24 * y) / 900
    np.testing.assert_array_equal(cells, pick(data, columns, rows))
    north = zstore.build_tile_pyramid(
        put_raster(tmp_path / "north", {"b": data}, UTM, 32632), tmp_path / "n", **options
    )
    flipped = UTM._replace(e=30, f=5300000 - 9000)
    south = zstore.build_tile_pyramid(
        put_raster(tmp_path / "south", {"b": data[::-1]}, flipped, 32632), tmp_path / "s", **options
    )
    np.testing.assert_array_equal(window(north, "12")[0], window(south, "12")[0])


# What is stored


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_tiles_are_chunks_and_only_those_with_data_are_there(tmp_path: Path, zarr_format: int) -> None:
    data = scene((300, 900))
    data[:, 300:600] = 0
    put_raster(tmp_path / "source", {"b": data}, UTM, 32632, zarr_format=zarr_format)
    group = zstore.build_tile_pyramid(tmp_path / "source", tmp_path / "made", method="nearest", max_zoom=13)
    limits = group.attrs["multiscales"]["tile_matrix_limits"]
    for level in ("13", "12", "11"):
        array, found = group[f"{level}/b"], limits[level]
        assert array.chunks == (256, 256)
        folder = tmp_path / "made" / level / "b"
        keys = {name.removeprefix("c/").replace(".", "/") for name in files_of(folder)}
        stored = {tuple(map(int, key.split("/"))) for key in keys if key.replace("/", "").isdecimal()}
        rows = range(found["minTileRow"], found["maxTileRow"] + 1)
        columns = range(found["minTileCol"], found["maxTileCol"] + 1)
        full = {(r, c) for r in rows for c in columns if group.tile(level, c, r).any()}
        assert stored == full
    assert len(full) < len(rows) * len(columns) or level == "11"


def test_other_levels_are_made_of_the_finest(tmp_path: Path) -> None:
    data = scene((700, 900))
    put_raster(tmp_path / "source", {"b": data}, UTM, 32632)
    group = zstore.build_tile_pyramid(tmp_path / "source", tmp_path / "made", min_zoom=8)
    finest, _ = window(group, "12")
    limits = group.attrs["multiscales"]["tile_matrix_limits"]
    for step, level in enumerate(("11", "10", "9", "8"), 1):
        factor, size = 2**step, 256
        top, left = (limits["12"][name] * size for name in ("minTileRow", "minTileCol"))
        pad = [(top % factor, 0), (left % factor, 0)]
        below = np.pad(finest, pad)
        want = downsample(below, (factor, factor), "average", nodata=0)
        array = group[f"{level}/b"]
        rows, columns = top // factor, left // factor
        got = array[rows : rows + want.shape[0], columns : columns + want.shape[1]]
        np.testing.assert_array_equal(got, want)
        assert array[rows - 1].max() == 0 and array[:, columns - 1].max() == 0


def test_dimensions_masks_classes_and_shards(tmp_path: Path) -> None:
    data = {"b": scene((2, 300, 320), "f4"), "kind": (scene((2, 300, 320)) % 3 + 1).astype("u1")}
    mask = np.ones((300, 320), "u1")
    mask[:, :160] = 0
    flags = {"flag_values": (1, 2, 3), "flag_meanings": ("a", "b", "c")}
    source = put_raster(tmp_path / "source", data, UTM, 32632, b={"nodata": None}, kind=flags)
    masked = zstore.create_array(tmp_path / "mask", data=mask, chunks=64)
    group = zstore.build_tile_pyramid(
        source, tmp_path / "made", mask={"b": masked}, tiles_per_shard=4, tolerance=0, max_zoom=12
    )
    b, kind = group["12/b"], group["12/kind"]
    assert (b.shape[0], b.chunks, b.shards) == (2, (1, 256, 256), (1, 1024, 1024))
    assert b.dims == ("time", "y", "x") and np.isnan(b.fill_value) and kind.fill_value == 0
    cells, affine = window(group, "12", "kind")
    columns, rows = exact_places(affine, cells.shape[1:], UTM, 32632)
    np.testing.assert_array_equal(cells[1], pick(data["kind"][1], columns, rows))
    values = window(group, "12", "b")[0]
    assert np.isnan(values[:, columns < 160]).all()
    assert np.isfinite(values[0][(columns > 162) & (columns < 318) & (rows > 2) & (rows < 298)]).all()
    assert read_geo(group)[0].variables["kind"].flag_meanings == ("a", "b", "c")


@pytest.mark.filterwarnings("ignore::zstore.errors.RasterWarning")
@pytest.mark.parametrize(
    ("kind", "sampling", "zarr_format"),
    [("mask", "nearest", 2), ("mask", "average", 3), ("alpha", "bilinear", 3), ("alpha", "average", 2)],
)
def test_where_nothing_is_nodata_the_mask_says_what_is_there(
    tmp_path: Path, kind: str, sampling: str, zarr_format: Any
) -> None:
    """Zeros stay values, and no level mixes in what the mask or the alpha hides; the same as GDAL's alpha."""
    rasterio = pytest.importorskip("rasterio")
    from rasterio.vrt import WarpedVRT

    from zstore.geo.pyramid.tile_grid import TileGrid

    data = (scene((300, 360)) % 256).astype("u1")
    data[200:240, 100:200] = 0
    valid = np.add.outer(np.arange(300), np.arange(360)) > 200
    valid[100:140, 200:260] = False
    place = {"crs": "EPSG:32632", "transform": rasterio.Affine(*UTM), "driver": "GTiff", "dtype": "uint8"}
    shape = {"height": 300, "width": 360, "count": 1 if kind == "mask" else 2}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(tmp_path / "a.tif", "w", **shape, **place) as raster,
    ):
        raster.write(data, 1)
        if kind == "mask":
            raster.write_mask(valid)
        else:
            raster.write((valid * 255).astype("u1"), 2)
            raster.colorinterp = [rasterio.enums.ColorInterp.gray, rasterio.enums.ColorInterp.alpha]
    source = raster_to_zarr(tmp_path / "a.tif", tmp_path / "source", zarr_format=zarr_format, chunks=64)
    hidden, band = ("mask" if kind == "mask" else "band_2"), "band_1"
    options: dict[str, Any] = {"tolerance": 0, "max_zoom": 12, "min_zoom": 10}
    given = {"band_1": sampling} if kind == "mask" else sampling
    group = zstore.build_tile_pyramid(source, tmp_path / "made", sampling=given, **options)
    (cells, affine), shown = window(group, "12", band), window(group, "12", hidden)[0] != 0
    columns, rows = exact_places(affine, cells.shape, UTM, 32632)
    if sampling != "average":
        np.testing.assert_array_equal(shown, pick(valid, columns, rows))
    assert (cells[~shown] == 0).all() and (cells[shown] == 0).any()
    # What the same data are with a nodata that no cell has.
    wide = np.where(valid, data.astype("i2"), -1)
    plain = put_raster(tmp_path / "wide", {"b": wide}, UTM, 32632, b={"nodata": -1})
    nodata = zstore.build_tile_pyramid(plain, tmp_path / "plain", sampling=sampling, **options)
    for level in ("12", "11", "10"):
        want, found = window(nodata, level)[0], window(group, level, band)[0]
        there = want != -1
        np.testing.assert_array_equal(window(group, level, hidden)[0] != 0, there)
        np.testing.assert_array_equal(found, np.where(there, want, 0))
    height, width = cells.shape
    scale = TileGrid.choose(open_dataset(source), "WebMercatorQuad", None, 0, 12, 12).scale
    stretch = {"XSCALE": repr(scale[1]), "YSCALE": repr(scale[0])} if sampling == "bilinear" else {}
    with (
        rasterio.open(tmp_path / "a.tif") as raster,
        WarpedVRT(
            raster, height=height, width=width, crs="EPSG:3857", transform=rasterio.Affine(*affine),
            resampling=rasterio.enums.Resampling[sampling], add_alpha=kind == "mask",
            tolerance=1e-9, **stretch,
        ) as warped,
    ):  # fmt: skip
        want, alpha = warped.read(1), warped.read(2)
    inner = (columns > 2) & (columns < 358) & (rows > 2) & (rows < 298) & (alpha > 0) & shown
    assert inner.sum() > 40_000
    if sampling != "average":
        # Halves may round to either side.
        assert np.abs(cells[inner].astype(int) - want[inner]).max() <= (sampling == "bilinear")


def test_tiles_with_a_mask_are_updated_like_any_others(tmp_path: Path) -> None:
    data = {"b": (scene() % 256).astype("u1"), "a": np.full((300, 360), 255, "u1")}
    said = {"b": {"nodata": None}, "a": {"nodata": None, "attributes": {"color_interpretation": "alpha"}}}
    source = put_raster(tmp_path / "source", data, UTM, 32632, **said)
    options: dict[str, Any] = {"max_zoom": 12, "min_zoom": 8, "memory": 1 << 28}
    zstore.build_tile_pyramid(source, tmp_path / "made", **options)
    source["a"][50:120, 60:200] = 0
    source["b"][250:, :90] = 0
    zstore.update_pyramid(tmp_path / "made", source=tmp_path / "source")
    zstore.build_tile_pyramid(source, tmp_path / "anew", **options)
    found, anew = files_of(tmp_path / "made"), files_of(tmp_path / "anew")
    assert {n: v for n, v in found.items() if "/c/" in n} == {n: v for n, v in anew.items() if "/c/" in n}


def test_tiles_twice_as_long_and_other_sets(tmp_path: Path) -> None:
    data = scene((200, 200))
    source = put_raster(tmp_path / "source", {"b": data}, UTM, 32632)
    group = zstore.build_tile_pyramid(source, tmp_path / "made", tile_length=512)
    stated = group.attrs["multiscales"]["tile_matrix_set"]
    assert stated["id"] == "WebMercatorQuad_2x" and stated["tileMatrices"][-1]["tileWidth"] == 512
    finest = stated["tileMatrices"][-1]
    assert (finest["id"], group["11/b"].shape) == ("11", (2**20, 2**20))
    assert group["11/b"].chunks == (512, 512)
    geographic = zstore.build_tile_pyramid(source, tmp_path / "degrees", "WorldCRS84Quad", max_zoom=11)
    assert geographic["11/b"].shape == (2**11 * 256, 2**12 * 256)
    geo, findings = read_geo(geographic)
    assert geo.crs is not None and geo.crs.is_geographic and findings == []
    with pytest.raises(UnsupportedError, match="whole factor"):
        zstore.build_tile_pyramid(source, tmp_path / "x", "CanadianNAD83_LCC", min_zoom=0, max_zoom=3)


# What is said of it


def test_both_limits_the_set_and_the_levels_are_read_and_valid(tmp_path: Path) -> None:
    said = {"standard_name": "surface_temperature", "units": "K"}
    put_raster(tmp_path / "source", {"b": scene()}, UTM, 32632, b=said)
    group = zstore.build_tile_pyramid(tmp_path / "source", tmp_path / "made")
    stated = group.attrs["multiscales"]
    snake, camel = stated["tile_matrix_set_limits"], stated["tile_matrix_limits"]
    assert list(snake) == list(camel) == [item["asset"] for item in stated["layout"]]
    for level, limits in camel.items():
        assert limits["tileMatrix"] == level
        assert [limits[n] for n in ("minTileCol", "maxTileCol", "minTileRow", "maxTileRow")] == [
            snake[level][n] for n in ("min_tile_col", "max_tile_col", "min_tile_row", "max_tile_row")
        ]
    known = load_tile_matrix_set("WebMercatorQuad")
    for matrix in stated["tile_matrix_set"]["tileMatrices"]:
        assert matrix["matrixWidth"] == known[matrix["id"]].matrix_shape[1]
        assert matrix["cellSize"] == pytest.approx(known[matrix["id"]].cell_size, rel=1e-12)
    geo, findings = read_geo(group)
    assert findings == []
    assert [level.factors for level in geo.levels] == [(2**n, 2**n) for n in range(len(geo.levels))]
    assert geo.bounds == pytest.approx((-MERCATOR, -MERCATOR, MERCATOR, MERCATOR))
    for profile in (None, "geozarr-draft", "geozarr-mini"):
        made = zstore.build_tile_pyramid(
            tmp_path / "source", tmp_path / f"for-{profile}", profile=profile, min_zoom=11
        )
        options = {} if profile is None else {"profile": profile}
        report = zstore.validate(tmp_path / f"for-{profile}", **options)
        assert [f for f in report.findings if f.severity == "error"] == []
        assert "tile_matrix_limits" in made.attrs["multiscales"]


def test_morecantile_takes_the_set(tmp_path: Path) -> None:
    morecantile = pytest.importorskip("morecantile")
    put_raster(tmp_path / "source", {"b": scene()}, UTM, 32632)
    group = zstore.build_tile_pyramid(tmp_path / "source", tmp_path / "made")
    stated = group.attrs["multiscales"]["tile_matrix_set"]
    found = morecantile.TileMatrixSet.model_validate(json.loads(json.dumps(stated)))
    lon, lat = pyproj.Transformer.from_crs(32632, 4326, always_xy=True).transform(609000, 5292500)
    tile = found.tile(lon, lat, 12)
    assert group.tile(12, tile.x, tile.y).any()


# One tile, one chunk


class CountingStore(MemoryStore):
    """Remembers which keys of chunks were asked for, and fails when told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.puts_left = -1

    def _count(self, key: str) -> None:
        name = key.rpartition("/")[2]
        if name.isdecimal():
            self.asked[key] += 1

    def get(self, key: str, byte_range: Any = None) -> Any:
        self._count(key)
        return super().get(key, byte_range)

    def as_read_only(self) -> Store:
        # A view that comes back here with every request.
        return PrefixStore(self, "", read_only=True)

    def put(self, key: str, value: Any) -> None:
        if self.puts_left == 0:
            raise StoreError("no space left on device", key=key)
        self.puts_left -= 1
        super().put(key, value)


@pytest.mark.parametrize("shards", [None, 4])
def test_one_tile_is_one_fetch(shards: int | None) -> None:
    source, store = MemoryStore(), CountingStore()
    put_raster(source, {"b": scene()}, UTM, 32632)
    group = zstore.build_tile_pyramid(source, store, tiles_per_shard=shards)
    limits = group.attrs["multiscales"]["tile_matrix_limits"]["12"]
    x, y = limits["minTileCol"] + 1, limits["minTileRow"] + 1
    tiles = zstore.open_tiles(store)
    store.asked.clear()
    tile = tiles.read(12, x, y)
    assert tile.shape == (256, 256) and tile.any()
    # Of a shard: its index, then the inner chunk; next time the chunk alone.
    step = 1 if shards is None else shards
    key = f"12/b/c/{y // step}/{x // step}"
    assert set(store.asked) == {key} and store.asked[key] <= (1 if shards is None else 2)
    store.asked.clear()
    array = group["12/b"]
    np.testing.assert_array_equal(array.tile(12, x, y), tile)
    assert set(store.asked) == {key}
    np.testing.assert_array_equal(zstore.read_tile(store, "12", x, y, array="b"), tile)
    np.testing.assert_array_equal(group["12"].tile(12, x, y), tile)
    np.testing.assert_array_equal(tile, array[y * 256 : (y + 1) * 256, x * 256 : (x + 1) * 256])
    assert not tiles.read(12, 0, 0).any()


def test_tiles_of_a_native_pyramid(tmp_path: Path) -> None:
    data = scene((2, 300, 500))
    put_raster(tmp_path / "source", {"b": data}, UTM, 32632)
    group = zstore.build_pyramid(tmp_path / "source", tmp_path / "made", chunks=256)
    np.testing.assert_array_equal(group.tile(0, 0, 0), data[:, :256, :256])
    edge = group.tile(0, 1, 1, time=1)
    assert edge.shape == (256, 256)
    np.testing.assert_array_equal(edge[:44, :244], data[1, 256:, 256:])
    assert not edge[44:].any() and not edge[:, 244:].any()
    np.testing.assert_array_equal(group.tile(1, 0, 0, time=slice(1, None)), group["1/b"].tile(1, 0, 0)[1:])
    with pytest.raises(SelectionError, match="0 to 1"):
        group.tile(0, 2, 0)
    with pytest.raises(SelectionError, match="whole number"):
        group.tile(0, 0.5, 0)
    with pytest.raises(SelectionError, match="band"):
        group.tile(0, 0, 0, band=1)
    with pytest.raises(SelectionError, match="time is 2"):
        group.tile(0, 0, 0, time=2)
    with pytest.raises(NotFoundError, match="'7'"):
        group.tile(7, 0, 0)
    with pytest.raises(NotFoundError, match="'c'"):
        group.tile(0, 0, 0, "c")


def test_a_level_that_begins_inside_its_matrix(tmp_path: Path) -> None:
    group = put_raster(tmp_path / "source", {"b": scene((300, 300))}, UTM, 32632)
    root = zstore.build_pyramid(group, tmp_path / "made", chunks=256)
    stated = root.attrs["multiscales"]
    for matrix in stated["tile_matrix_set"]["tileMatrices"]:
        size = matrix["cellSize"]
        matrix["pointOfOrigin"] = [UTM.c - 256 * 3 * size, UTM.f + 256 * 5 * size]
        matrix["matrixWidth"] = matrix["matrixHeight"] = 16
    root.attrs["multiscales"] = stated
    root = zstore.open(tmp_path / "made")
    np.testing.assert_array_equal(root.tile(0, 3, 5), root["0/b"][:256, :256])
    assert not root.tile(0, 2, 5).any()
    shutil.copytree(tmp_path / "made", tmp_path / "cf")
    for node in (other := zstore.open(tmp_path / "cf", mode="r+"), other["0"], other["1"]):
        for name in [name for name in node.attrs if name.startswith("spatial:")]:
            del node.attrs[name]
    bare = [{n: v for n, v in item.items() if n != "spatial:transform"} for item in stated["layout"]]
    other.attrs["multiscales"] = {**stated, "layout": bare}
    # Coordinates alone say the place now.
    del other["0/spatial_ref"].attrs["GeoTransform"]
    np.testing.assert_array_equal(zstore.open(tmp_path / "cf").tile(0, 3, 5), root["0/b"][:256, :256])
    for matrix in stated["tile_matrix_set"]["tileMatrices"]:
        matrix["pointOfOrigin"][0] += matrix["cellSize"] / 2
    root.attrs["multiscales"] = stated
    with pytest.raises(MetadataError, match="does not lie on the cells"):
        root.tile(0, 3, 5)


def test_what_has_no_tiles_says_so(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path / "a", data=np.zeros((4, 4)))
    with pytest.raises(MetadataError, match="no pyramid"):
        array.tile(0, 0, 0)
    two = put_raster(tmp_path / "two", {"a": scene((80, 80)), "b": scene((80, 80))}, UTM, 32632)
    group = zstore.build_pyramid(two, tmp_path / "made", levels=1)
    with pytest.raises(MetadataError, match="a, b"):
        group.tile(0, 0, 0)
    assert group.tile(0, 0, 0, "b").any() and group["1/a"].tile(1, 0, 0).any()


# However it is made


def test_memory_executors_and_interruptions_change_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    put_raster(source, {"b": scene()}, UTM, 32632)
    options: dict[str, Any] = {"min_zoom": 9, "tiles_per_shard": 2}
    seen: list[tuple[int, int]] = []
    zstore.build_tile_pyramid(source, tmp_path / "one", progress=lambda *n: seen.append(n), **options)
    want = files_of(tmp_path / "one")
    assert seen and seen[-1][0] == seen[-1][1]
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        zstore.build_tile_pyramid(source, tmp_path / "two", executor=pool, memory=16_000_000, **options)
    assert files_of(tmp_path / "two") == want
    with pytest.raises(MetadataError, match="memory is 1000 bytes"):
        zstore.build_tile_pyramid(source, tmp_path / "three", memory=1000, **options)
    assert not (tmp_path / "three").exists()
    store = CountingStore()
    zstore.build_tile_pyramid(source, store, **options)
    put_count, store = -1 - store.puts_left, CountingStore()
    store.puts_left = put_count // 2
    with pytest.raises(StoreError, match="no space"):
        zstore.build_tile_pyramid(source, store, **options)
    store.puts_left = -1
    with pytest.raises(StoreError, match="is unfinished"):
        zstore.build_tile_pyramid(source, store, **options)
    group = zstore.build_tile_pyramid(source, store, resume=True, **options)
    made = {key: bytes(store.get(key) or b"") for key in store.list("")}
    assert {key for key in made if ".zstore-build" in key} == set()
    # The name of a fingerprint may be digits only.
    chunks, wanted = (
        {k: v for k, v in stored.items() if k.rpartition("/")[2].isdecimal() and not k.startswith(".zstore")}
        for stored in (made, want)
    )
    assert chunks == wanted and wanted
    with pytest.raises(StoreError, match="there already"):
        zstore.build_tile_pyramid(source, store, **options)
    again = zstore.build_tile_pyramid(source, store, overwrite=True, **options)
    np.testing.assert_array_equal(window(again, "12")[0], window(group, "12")[0])


def test_with_little_memory_units_wait_for_each_other_and_what_is_named_is_enough(tmp_path: Path) -> None:
    source = put_raster(tmp_path / "source", {"b": scene()}, UTM, 32632)
    options: dict[str, Any] = {"max_zoom": 12, "min_zoom": 4, "method": "med"}
    with pytest.raises(MetadataError, match="expected at least") as caught:
        zstore.build_tile_pyramid(source, tmp_path / "no", memory=1 << 16, **options)
    least = int(re.search(r"at least (\d+)", str(caught.value)).group(1))  # type: ignore[union-attr]
    while True:
        try:
            zstore.build_tile_pyramid(source, tmp_path / "little", memory=least, **options)
            break
        except MetadataError as error:
            # The finest level first, then those made of it.
            more = int(re.search(r"at least (\d+)", str(error)).group(1))  # type: ignore[union-attr]
            assert more > least
            least = more
    assert least < 20_000_000
    with pytest.raises(MetadataError, match=f"expected at least {least}"):
        zstore.build_tile_pyramid(source, tmp_path / "no", memory=least - 1, **options)
    zstore.build_tile_pyramid(source, tmp_path / "much", **options)
    little, much = (
        {name: data for name, data in files_of(tmp_path / place).items() if "/c/" in name}
        for place in ("little", "much")
    )
    assert little == much


def test_bad_input_is_named(tmp_path: Path) -> None:
    bare = zstore.create_group(tmp_path / "bare")
    bare.create_array("b", data=scene((9, 9)), dimension_names=("y", "x"))
    with pytest.raises(MetadataError, match="no CRS"):
        zstore.build_tile_pyramid(bare, tmp_path / "x")
    source = put_raster(tmp_path / "source", {"b": scene((90, 90))}, UTM, 32632, b={"nodata": None})
    with pytest.raises(MetadataError, match="no nodata"):
        zstore.build_tile_pyramid(source, tmp_path / "x")
    for options, error, words in (
        ({"tile_matrix_set": "Mercator"}, NotFoundError, "Mercator"),
        ({"max_zoom": 99}, NotFoundError, "99"),
        ({"min_zoom": 5, "max_zoom": 4}, MetadataError, "finer"),
        ({"tile_length": 300}, MetadataError, "multiple of 256"),
        ({"tiles_per_shard": 0}, MetadataError, "tiles_per_shard"),
        ({"sampling": "lanczos"}, MetadataError, "lanczos"),
        ({"tolerance": 1.5}, MetadataError, "tolerance"),
        ({"derive": "guess"}, MetadataError, "guess"),
        ({"nodata": 70000}, MetadataError, "70000"),
        ({"tile_matrix_set": "NZTM2000Quad"}, MetadataError, "outside"),
    ):
        with pytest.raises(error, match=words):
            zstore.build_tile_pyramid(source, tmp_path / "x", **{"nodata": 0, **options})
    with pytest.raises(MetadataError, match="are one"):
        zstore.build_tile_pyramid(source, tmp_path / "source", nodata=0)
    assert not (tmp_path / "x").exists()


def test_the_command(tmp_path: Path) -> None:
    testing = pytest.importorskip("click.testing")
    from zstore.cli.root import zstore as main

    put_raster(tmp_path / "source", {"b": scene((100, 100))}, UTM, 32632)
    run = testing.CliRunner().invoke
    words = ["pyramid", str(tmp_path / "source"), str(tmp_path / "made"), "--tms", "WebMercatorQuad"]
    result = run(
        main, [*words, "--max-zoom", "11", "--chunks", "512", "--shards", "1024", "--sampling", "nearest"]
    )
    assert result.exit_code == 0, result.output
    group = zstore.open(tmp_path / "made")
    assert group["11/b"].shards == (1024, 1024) and group["11/b"].chunks == (512, 512)
    for more in (["--grid", "gdal"], ["--levels", "3"], ["--chunks", "256,512"], ["--shards", "512"]):
        assert run(main, [*words, *more]).exit_code == 2
    assert run(main, [*words[:2], "--tms", "WebMercatorQuad"]).exit_code == 2
    assert run(main, [*words[:3], "--min-zoom", "3"]).exit_code == 2

"""Several values of nodata are as one: whatever is made of the cells is what one nodata makes of them."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.storage.memory import MemoryStore

PLACE = {
    "proj:code": "EPSG:32633",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 500000, 0, -30, 5000000],
}
# By name: the data type, the attributes, the values that mean nothing, and others that are none of these.
SETS = {
    "two": ("i2", {"_FillValue": -1, "missing_value": -2}, (-1, -2), ()),
    "list": ("i2", {"_FillValue": -1, "missing_value": [-2, -3]}, (-1, -2, -3), ()),
    "NaN beside a number": ("f4", {"_FillValue": "NaN", "missing_value": 1e20}, (np.nan, 1e20), ()),
    "infinity": ("f4", {"_FillValue": -1.0, "missing_value": [-2.0, "NaN"]}, (-1, -2, np.nan), ()),
    "packed": ("u1", {"_FillValue": 255, "missing_value": 254, "scale_factor": 0.5}, (255, 254), ()),
    "out of range": ("i2", {"_FillValue": -1, "valid_range": [0, 50]}, (-1,), (90,)),
}


def fields(kind):
    """(a group whose array has all values of a set, the same with the first of them in place of all)."""
    dtype, attributes, holes, others = SETS[kind]
    random = np.random.default_rng(2)
    items = random.integers(0, 100, (96, 80)).astype(dtype)
    if "valid_range" in attributes:
        items %= 50
    for value in (*holes, *others):
        items[random.random(items.shape) < 0.15] = value
    items[40:60, 20:50] = holes[-1]
    first = next(value for value in holes if value == value)
    is_hole = np.isin(items, [hole for hole in holes if hole == hole]) | (items != items)
    alone = {k: v for k, v in attributes.items() if k != "missing_value"} | {"_FillValue": first}
    made = []
    for data, said in ((items, attributes), (np.where(is_hole, first, items).astype(dtype), alone)):
        made.append(zstore.create_group(MemoryStore(), attributes=PLACE))
        options = {"chunks": 32, "dimension_names": ("y", "x"), "attributes": said}
        made[-1].create_array("a", data=data, **options)
    return made


def pyramid(group):
    made = zstore.build_pyramid(group, MemoryStore(), levels=2)
    return [made[f"{level}/a"][...] for level in (1, 2)]


def tiles(group):
    made = zstore.build_tile_pyramid(group, MemoryStore(), min_zoom=9)
    limits = made.attrs["multiscales"]["tile_matrix_limits"]
    corners = {zoom: (one["minTileCol"], one["minTileRow"]) for zoom, one in limits.items()}
    return [made.tile(zoom, *corner) for zoom, corner in corners.items()]


def updated(group):
    made = zstore.build_pyramid(group, MemoryStore(), levels=1)
    made["0/a"][:8] = made["0/a"][60:68]
    return [zstore.update_pyramid(made, {"y": slice(0, 8)})["1/a"][...]]


def picture(group):
    return [zstore.quicklook(group), zstore.quicklook(group, size=24), zstore.preview(group)]


def reduced(group):
    return [zstore.reduce(group["a"], method, unpack=True) for method in ("mean", "max", "count")]


def coarse(group):
    return [np.asarray(zstore.coarsen(group["a"], (4, 4)))]


def reprojected(group):
    grid = zstore.GeoGrid.around([group["a"]], crs="EPSG:3857", resolution=45)
    return [np.asarray(zstore.reproject(group["a"], grid, resampling=way)) for way in ("average", "cubic")]


def computed(group):
    return [np.asarray(zstore.calculate("a * 2", group))]


def zoned(group):
    square = [[500300, 4999700], [501500, 4999700], [501500, 4997900], [500300, 4997900], [500300, 4999700]]
    zone = {"type": "Polygon", "coordinates": [square]}
    made = zstore.zonal_statistics(group["a"], [zone], crs="EPSG:32633")
    return [made[name] for name in ("count", "mean", "min", "max")]


MAKERS = (pyramid, tiles, updated, picture, reduced, coarse, reprojected, computed, zoned)


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_all_values_of_nodata_are_nodata(kind, make):
    if make in (tiles, reprojected, zoned):
        pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    several, one = fields(kind)
    found, expected = make(several), make(one)
    assert expected
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
@pytest.mark.parametrize("kind", SETS)
def test_a_geotiff_has_one_nodata_for_all(kind, tmp_path):
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are written with rasterio")
    read = []
    for number, group in enumerate(fields(kind)):
        path = zstore.zarr_to_raster(group, tmp_path / f"{number}.tif")
        with rasterio.open(path) as raster:
            read.append(raster.read(1, masked=True))
    np.testing.assert_array_equal(read[0].mask, read[1].mask)
    np.testing.assert_array_equal(read[0].filled(0), read[1].filled(0))

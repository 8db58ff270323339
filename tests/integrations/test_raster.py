"""Rasters to Zarr and back: every cell, and all that a raster says of itself."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import zstore
from zstore.errors import (
    ChangedError,
    MetadataError,
    NotFoundError,
    RasterWarning,
    ReadingWarning,
    StoreError,
    UnknownExtensionError,
    UnsupportedError,
)
from zstore.geo.conventions.read import read_geo
from zstore.geo.rasters import geotiff, raster_sources, raster_to_zarr, zarr_to_raster

rasterio = pytest.importorskip("rasterio", reason="rasters are read and written with rasterio")
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

# Most rasters here have no nodata, and zeros.
pytestmark = pytest.mark.filterwarnings("ignore:.*(GDAL takes the fill value|GDAL finds no place)")

PROJECT = Path(__file__).parent.parent.parent
LANDSAT = PROJECT / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
FIXTURES = PROJECT.parent / "shared" / "fixtures" / "rasters"
NORTH_UP = (30.0, 0.0, 612825.0, 0.0, -30.0, 6852675.0)


def make_raster(path: Path, data: np.ndarray, **options: Any) -> Path:
    """A GeoTIFF of `data` (band, y, x)."""
    profile = {"driver": "GTiff", "crs": "EPSG:32622", "transform": rasterio.Affine(*NORTH_UP)}
    profile |= {"count": data.shape[0], "height": data.shape[1], "width": data.shape[2], "dtype": data.dtype}
    describe = options.pop("describe", lambda raster: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path, "w", **profile | options) as raster:
            raster.write(data)
            describe(raster)
    return path


def cells(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize(
    "name", ["landsat", "RGB.byte.tif", "float_raster_with_nodata.tif", "shade.tif", "world.byte.tif"]
)
@pytest.mark.parametrize(("zarr_format", "levels", "driver"), [(2, 0, "GTiff"), (3, None, "COG")])
@pytest.mark.filterwarnings("ignore:warning GZ-37 at /. no tile_matrix_set")
def test_real_rasters_come_back_as_they_were(
    tmp_path: Path, name: str, zarr_format: int, levels: int | None, driver: str
) -> None:
    path = LANDSAT if name == "landsat" else FIXTURES / name
    if not path.exists():
        pytest.skip(f"the raster {name} is not beside the project")
    made = raster_to_zarr(path, tmp_path / "z", zarr_format=zarr_format, levels=levels)
    assert made.zarr_format == zarr_format and ("multiscales" in made.attrs) == (levels is None)
    back = zarr_to_raster(tmp_path / "z", tmp_path / "back.tif", driver=driver)
    with rasterio.open(path) as before, rasterio.open(back) as after:
        np.testing.assert_array_equal(before.read(), after.read())
        for fact in ("crs", "transform", "nodatavals", "dtypes", "colorinterp"):
            assert getattr(before, fact) == getattr(after, fact), fact
        assert (after.tags(ns="IMAGE_STRUCTURE").get("LAYOUT") == "COG") == (driver == "COG")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8", "c16"])
def test_every_data_type_of_geotiff(tmp_path: Path, dtype: str) -> None:
    path = make_raster(tmp_path / "a.tif", cells((2, 70, 50), dtype))
    raster_to_zarr(path, tmp_path / "z", chunks=(16, 32))
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif")) as raster:
        found = raster.read()
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, cells((2, 70, 50), dtype))


def test_what_bands_say_of_themselves_comes_back(tmp_path: Path) -> None:
    def describe(raster: Any) -> None:
        raster.descriptions = ("near infrared", "red", "red")
        raster.units = ("W m-2", None, "K")
        raster.scales, raster.offsets = (0.5, 1.0, 1.0), (-3.0, 0.0, 7.0)
        raster.update_tags(mission="one")
        raster.update_tags(2, wavelength="650 nm")

    path = make_raster(tmp_path / "a.tif", cells((3, 30, 20), "u2"), nodata=9, describe=describe)
    made = raster_to_zarr(path, tmp_path / "z")
    assert made.attrs["bands"] == ["near_infrared", "red", "red_3"]
    assert made.attrs["tags"] == {"mission": "one"}
    infrared = made["near_infrared"].attrs
    assert (infrared["scale_factor"], infrared["add_offset"], infrared["units"]) == (0.5, -3.0, "W m-2")
    assert (infrared["long_name"], infrared["_FillValue"]) == ("near infrared", 9)
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif")) as raster:
        assert raster.descriptions == ("near infrared", "red", "red")
        assert (raster.scales, raster.offsets) == ((0.5, 1.0, 1.0), (-3.0, 0.0, 7.0))
        assert raster.units == ("W m-2", None, "K")
        assert raster.tags()["mission"] == "one" and raster.tags(2) == {"wavelength": "650 nm"}


def test_chosen_bands(tmp_path: Path) -> None:
    data = cells((4, 30, 20), "u1")
    path = make_raster(tmp_path / "a.tif", data)
    raster_to_zarr(path, tmp_path / "z", bands=[4, 2])
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif")) as raster:
        np.testing.assert_array_equal(raster.read(), data[[3, 1]])
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "c.tif", arrays=["band_2"])) as raster:
        np.testing.assert_array_equal(raster.read(), data[[1]])
    with pytest.raises(MetadataError, match=r"bands are \[5\]; expected different ones of 1 to 4"):
        raster_to_zarr(path, tmp_path / "y", bands=[5])
    with pytest.raises(NotFoundError, match="no array 'band_1' on the grid; there are band_2, band_4"):
        zarr_to_raster(tmp_path / "z", tmp_path / "d.tif", arrays=["band_1"])


def test_a_colour_table_comes_back(tmp_path: Path) -> None:
    table = {0: (0, 0, 0, 255), 1: (10, 20, 30, 255), 2: (255, 0, 0, 255)}
    data = cells((1, 30, 20), "u1") % 3
    path = make_raster(tmp_path / "a.tif", data, describe=lambda raster: raster.write_colormap(1, table))
    made = raster_to_zarr(path, tmp_path / "z")
    assert made["band_1"].attrs["color_table"]["2"] == [255, 0, 0, 255]
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif")) as raster:
        assert raster.colorinterp[0].name == "palette"
        assert {value: raster.colormap(1)[value] for value in table} == table


@pytest.mark.parametrize("driver", ["GTiff", "COG"])
def test_a_mask_comes_back(tmp_path: Path, driver: str) -> None:
    mask = np.zeros((300, 280), np.uint8)
    mask[3:9] = mask[250:, 100:] = 255
    data = cells((2, 300, 280), "u1")
    path = make_raster(tmp_path / "a.tif", data, describe=lambda raster: raster.write_mask(mask))
    raster_to_zarr(path, tmp_path / "z", levels=1)
    made = zarr_to_raster(tmp_path / "z", tmp_path / "b.tif", driver=driver)
    with rasterio.open(made) as raster:
        np.testing.assert_array_equal(raster.read(), data)
        np.testing.assert_array_equal(raster.dataset_mask(), mask)
        assert raster.count == 2 and "per_dataset" in {flag.name for flag in raster.mask_flag_enums[0]}
    assert sorted(p.name for p in tmp_path.glob("b.tif*")) == ["b.tif"]
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "c.tif", arrays=["mask"])) as raster:
        np.testing.assert_array_equal(raster.read(1), mask)


@pytest.mark.parametrize("driver", ["GTiff", "COG"])
def test_packed_bands_stay_packed(tmp_path: Path, driver: str) -> None:
    def describe(raster: Any) -> None:
        raster.scales, raster.offsets = (0.5, 0.25), (1.0, -3.0)

    data = cells((2, 30, 20), "i2")
    path = make_raster(tmp_path / "a.tif", data, describe=describe, nodata=-7)
    made = raster_to_zarr(path, tmp_path / "z")
    assert made["band_2"].attrs["scale_factor"] == 0.25 and made["band_2"].dtype == np.dtype("i2")
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif", driver=driver)) as raster:
        np.testing.assert_array_equal(raster.read(), data)
        assert (raster.scales, raster.offsets, raster.nodatavals) == ((0.5, 0.25), (1.0, -3.0), (-7, -7))


def test_a_mask_is_an_array(tmp_path: Path) -> None:
    mask = np.zeros((30, 20), np.uint8)
    mask[3:9] = 255
    path = make_raster(
        tmp_path / "a.tif", cells((1, 30, 20), "u1"), describe=lambda raster: raster.write_mask(mask)
    )
    made = raster_to_zarr(path, tmp_path / "z")
    np.testing.assert_array_equal(made["mask"][...], mask)
    assert made["mask"].attrs["flag_meanings"] == "invalid valid" and made.attrs["bands"] == ["band_1"]


@pytest.mark.parametrize("levels", [0, 1])
def test_a_rotated_grid_keeps_its_affine(tmp_path: Path, levels: int) -> None:
    affine = rasterio.Affine(20, 5, 100, 10, -8, 200)
    path = make_raster(tmp_path / "a.tif", cells((1, 30, 20), "u1"), transform=affine)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ReadingWarning)
        made = raster_to_zarr(path, tmp_path / "z", levels=levels)
    expected = ["warning GZ-37 at /: no tile_matrix_set: the grid of level '0' is rotated"]
    assert [str(one.message) for one in said] == (expected if levels else [])
    geo, _ = read_geo(made)
    assert geo.affine == tuple(affine)[:6] and "x" not in (made if levels == 0 else made["0"])
    with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif", level=levels)) as raster:
        assert raster.transform == (rasterio.Affine(40, 10, 100, 20, -16, 200) if levels else affine)


def test_without_a_place_there_is_a_warning_and_nothing_made_up(tmp_path: Path) -> None:
    path = make_raster(
        tmp_path / "a.tif", cells((1, 30, 20), "u1"), crs=None, transform=rasterio.Affine.identity()
    )
    with pytest.warns(RasterWarning, match="has no CRS and no affine"):
        made = raster_to_zarr(path, tmp_path / "z")
    geo, _ = read_geo(made)
    assert (geo.crs, geo.affine) == (None, None) and set(made.keys()) == {"band_1"}
    path = make_raster(tmp_path / "b.tif", cells((1, 30, 20), "u1"), crs=None)
    with pytest.warns(RasterWarning, match="has no CRS: none is written"):
        made = raster_to_zarr(path, tmp_path / "y", levels=1)
    assert read_geo(made)[0].affine == NORTH_UP


def test_placed_by_control_points_is_refused(tmp_path: Path) -> None:
    points = [
        rasterio.control.GroundControlPoint(r, c, 9.0 + c, 50.0 - r) for r, c in ((0, 0), (0, 9), (9, 0))
    ]
    path = make_raster(
        tmp_path / "a.tif",
        cells((1, 30, 20), "u1"),
        crs="EPSG:4326",
        transform=rasterio.Affine.identity(),
        gcps=points,
    )
    with rasterio.open(path) as raster:
        assert len(raster.gcps[0]) == 3
    command = rf"gdalwarp -tps -t_srs EPSG:4326 {re.escape(str(path))} warped\.tif"
    with pytest.raises(UnsupportedError, match=rf"placed by 3 ground control points; .*{command}"):
        raster_to_zarr(path, tmp_path / "z")
    assert not (tmp_path / "z").exists()


def test_a_raster_in_what_would_be_replaced_stays(tmp_path: Path) -> None:
    zstore.create_group(tmp_path / "z")
    path = make_raster(tmp_path / "z" / "a.tif", cells((1, 3, 2), "u1"))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="cannot replace what holds"):
        raster_to_zarr(path, tmp_path / "z", overwrite=True)
    assert path.read_bytes() == before


def test_what_a_geotiff_has_no_words_for_lies_beside_it(tmp_path: Path) -> None:
    """As GDAL has it; and what lay beside a file that is replaced says nothing of the new one."""
    pyproj = pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
    words = {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}
    crs = pyproj.CRS.from_cf({"grid_mapping_name": "rotated_latitude_longitude", **words}).to_wkt()
    rotated = make_raster(tmp_path / "a.tif", cells((1, 30, 20), "u1"), crs=crs)
    plain = make_raster(tmp_path / "b.tif", cells((1, 30, 20), "u1"))
    for driver in ("GTiff", "COG"):
        raster_to_zarr(rotated, tmp_path / "z", overwrite=True)
        made = zarr_to_raster(tmp_path / "z", tmp_path / "made.tif", driver=driver, overwrite=True)
        with rasterio.open(made) as raster:
            assert pyproj.CRS(raster.crs.to_wkt()).equals(pyproj.CRS(crs))
        raster_to_zarr(plain, tmp_path / "z", overwrite=True)
        zarr_to_raster(tmp_path / "z", made, driver=driver, overwrite=True)
        with rasterio.open(made) as raster, rasterio.open(plain) as source:
            assert raster.crs == source.crs
        assert not (tmp_path / "made.tif.aux.xml").exists()


def test_nodata_that_no_cell_can_have_is_left_out(tmp_path: Path) -> None:
    path = make_raster(tmp_path / "a.tif", cells((1, 30, 20), "u1"))
    vrt = tmp_path / "a.vrt"
    rasterio.shutil.copy(path, vrt, driver="VRT")
    text = vrt.read_text().replace("<ColorInterp>", "<NoDataValue>3.5</NoDataValue><ColorInterp>", 1)
    vrt.write_text(text)
    with rasterio.open(vrt) as raster:
        if raster.nodata != 3.5:
            pytest.skip(
                f"GDAL {rasterio.__gdal_version__} gives {raster.nodata} for a nodata of 3.5 in uint8"
            )
    with pytest.warns(RasterWarning, match=r"nodata is 3\.5.*it is left out"):
        made = raster_to_zarr(vrt, tmp_path / "z")
    assert "_FillValue" not in made["band_1"].attrs


def test_a_third_dimension_gives_bands(tmp_path: Path) -> None:
    data = cells((30, 20, 3), "i2")
    group = zstore.create_group(tmp_path / "z")
    group.create_array("a", data=data, dimension_names=("x", "y", "time"), chunks=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(zarr_to_raster(group, tmp_path / "b.tif")) as raster:
            np.testing.assert_array_equal(raster.read(), data.transpose(2, 1, 0))


@pytest.fixture
def cube(tmp_path: Path) -> tuple[zstore.Group, np.ndarray]:
    """Months of two years on two levels for two runs, as (time, level, run, y, x), and what has no time."""
    data = cells((24, 2, 2, 8, 9), "i2")
    group = zstore.create_group(tmp_path / "cube.zarr")
    names = ("time", "level", "run", "y", "x")
    group.create_array("t2m", data=data, dimension_names=names, chunks=(5, 1, 2, 8, 9))
    group.create_array("height", data=data[0, 0, 0], dimension_names=names[3:])
    attributes = {"units": "days since 2019-01-01", "calendar": "360_day"}
    group.create_array("time", data=np.arange(24) * 30, dimension_names=["time"], attributes=attributes)
    group.create_array("level", data=np.array([0.1, 700], "f4"), dimension_names=["level"])
    runs = group.create_array("run", shape=2, dtype="str", dimension_names=["run"])
    runs[...] = np.array(["r1", "r2"], object)
    return group, data


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    ("select", "bands"),
    [
        ({"time": "2020-06", "level": 700, "run": "r2"}, np.s_[17:18, 1, 1]),
        ({"time": "2020-02-01", "level": "0.1", "run": "r1"}, np.s_[13:14, 0, 0]),
        ({"time": "2020", "level": 0.1, "run": "r1"}, np.s_[12:24, 0, 0]),
        ({"time": "2019-12-01T00", "level": 700}, np.s_[11, 1]),
    ],
)
def test_values_of_dimensions_select_bands(tmp_path: Path, cube, select, bands) -> None:
    pytest.importorskip("cftime", reason="months of 30 days are read with cftime")
    group, data = cube
    with rasterio.open(zarr_to_raster(group, tmp_path / "b.tif", arrays=["t2m"], select=select)) as raster:
        np.testing.assert_array_equal(raster.read(), data[bands])
    with rasterio.open(zarr_to_raster(group, tmp_path / "h.tif", arrays=["height"], select=select)) as raster:
        np.testing.assert_array_equal(raster.read(1), data[0, 0, 0])


@pytest.mark.parametrize(
    ("select", "kind", "message"),
    [
        ({}, UnsupportedError, "5 dimensions, among them time, level, run; .*select a value of the others"),
        ({"time": "2020"}, UnsupportedError, "among them time, level, run"),
        ({"time": "2021"}, NotFoundError, "no item of 'time' is '2021'; there are 2019-01-01, .* 2020-12-01"),
        ({"time": "202"}, MetadataError, "time is '202'; expected a date such as 2020-06"),
        ({"level": 701}, NotFoundError, r"no item of 'level' is 701; there are 0\.1.*, 700\.0"),
        ({"level": "high"}, MetadataError, "level is 'high'; expected a number such as 0.1"),
        ({"run": "r"}, NotFoundError, "no item of 'run' is 'r'; there are r1, r2"),
        ({"plev": 700}, NotFoundError, "no dimension 'plev'; there are "),
    ],
)
def test_selections_of_nothing_say_what_there_is(tmp_path: Path, cube, select, kind, message) -> None:
    pytest.importorskip("cftime", reason="months of 30 days are read with cftime")
    with pytest.raises(kind, match=message):
        zarr_to_raster(cube[0], tmp_path / "b.tif", arrays=["t2m"], select=select)
    assert not (tmp_path / "b.tif").exists()


def test_levels_that_are_arrays_become_overviews(tmp_path: Path) -> None:
    """Those of OME-Zarr, which differ in their names."""
    data, datasets = cells((1024, 1024), "u2"), []
    group = zstore.create_group(tmp_path / "z")
    for name, step in (("0", 1), ("1", 2)):
        group.create_array(name, data=data[::step, ::step], chunks=256, dimension_names=("y", "x"))
        scale = {"type": "scale", "scale": [10.0 * step] * 2}
        centre = {"type": "translation", "translation": [5.0 * step] * 2}
        datasets.append({"path": name, "coordinateTransformations": [scale, centre]})
    axes = [{"name": name, "type": "space"} for name in "yx"]
    image = {"name": "image", "axes": axes, "datasets": datasets}
    group.attrs.put({"ome": {"version": "0.5", "multiscales": [image]}})
    made = zarr_to_raster(group, tmp_path / "made.tif", driver="COG")
    with rasterio.open(made) as raster:
        assert raster.overviews(1) == [2]
        np.testing.assert_array_equal(raster.read(1), data)
    with rasterio.open(made, overview_level=0) as overview:
        np.testing.assert_array_equal(overview.read(1), data[::2, ::2])


def test_refusals_name_what_is_wrong(tmp_path: Path) -> None:
    path = make_raster(tmp_path / "a.tif", cells((1, 30, 20), "u1"))
    (tmp_path / "text.tif").write_text("this is no raster")
    refused = [
        (tmp_path / "none.tif", {}, NotFoundError, r"no raster there, and no Zarr or NetCDF.*none\.tif"),
        (tmp_path / "text.tif", {}, StoreError, r"not a raster that GDAL can open.*text\.tif"),
        (path, {"compressors": "zsdt"}, UnknownExtensionError, "unknown codec 'zsdt'"),
        (path, {"method": "avarage", "levels": 1}, UnknownExtensionError, "unknown resampler 'avarage'"),
        (path, {"zarr_format": 2, "shards": 512}, UnsupportedError, "only v3 has sharding"),
        (path, {"zarr_format": 1}, MetadataError, "Zarr format is 1"),
    ]
    for source, options, kind, message in refused:
        with pytest.raises(kind, match=message):
            raster_to_zarr(source, tmp_path / "z", **options)
        assert not (tmp_path / "z").exists()
    group = raster_to_zarr(path, tmp_path / "z")
    with pytest.raises(StoreError, match="there"):
        raster_to_zarr(path, tmp_path / "z")
    raster_to_zarr(path, tmp_path / "z", overwrite=True)
    with pytest.raises(NotFoundError, match="no level 1; there are 1"):
        zarr_to_raster(group, tmp_path / "b.tif", level=1)
    with pytest.raises(UnsupportedError, match="driver is 'PNG'; expected one of GTiff, COG"):
        zarr_to_raster(group, tmp_path / "b.tif", driver="PNG")
    with pytest.raises(StoreError, match="a file is there already"):
        zarr_to_raster(group, path)
    with pytest.raises(StoreError, match="no directory to write a file to"):
        zarr_to_raster(group, tmp_path / "none" / "b.tif")
    with (
        mock.patch("tempfile.mkdtemp", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(StoreError, match=r"file cannot be written: Permission denied \(at .*b\.tif"),
    ):
        zarr_to_raster(group, tmp_path / "b.tif")
    group.create_array("wide", data=cells((30, 20), "f4"), dimension_names=("y", "x"))
    with (
        pytest.warns(ReadingWarning, match="MS-05 at wide: no grid_mapping"),
        pytest.raises(UnsupportedError, match=r"data types uint8 \(band_1\), float32 \(wide\)"),
    ):
        zarr_to_raster(group, tmp_path / "b.tif", arrays=["band_1", "wide"])
    assert not (tmp_path / "b.tif").exists()


def test_a_damaged_raster_leaves_no_zarr_that_says_where_it_is(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (1, 600, 600), dtype="u1")
    path = make_raster(
        tmp_path / "a.tif", noise, compress="deflate", tiled=True, blockxsize=256, blockysize=256
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"raster cannot be read: .*a\.tif"):
        raster_to_zarr(path, tmp_path / "z", chunks=256)
    assert not [*(tmp_path / "z").rglob("zarr.json")]
    with pytest.raises(StoreError, match=r"of a raster is unfinished; go on with: .*resume=True"):
        raster_to_zarr(path, tmp_path / "z", chunks=256)


def test_a_failed_write_leaves_no_raster(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (1, 600, 600), dtype="u1")
    raster_to_zarr(make_raster(tmp_path / "a.tif", noise), tmp_path / "z")
    chunk = tmp_path / "z" / "band_1" / "c" / "1" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-50])
    with pytest.raises(zstore.errors.CodecError, match="c/1/1"):
        zarr_to_raster(tmp_path / "z", tmp_path / "b.tif")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tif", "z"]


def test_rasterio_is_imported_when_called_and_named_when_missing() -> None:
    script = """
        import sys
        sys.modules["rasterio"] = None
        import zstore.geo.rasters.raster as raster
        try:
            raster.raster_to_zarr("a.tif", "b.zarr")
        except raster.UnsupportedError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True, text=True
    )
    assert "rasterio, which is not installed" in done.stdout and "zstore[raster]" in done.stdout


def test_memory_is_bounded(tmp_path: Path) -> None:
    script = """
        import os, resource, sys
        import numpy as np, rasterio
        from zstore.geo.rasters import raster_to_zarr, zarr_to_raster
        path, shape = sys.argv[1], {"width": 8192, "height": 12288, "count": 1, "dtype": "uint16"}
        with rasterio.Env(GDAL_CACHEMAX=16):
            with rasterio.open(path + "/a.tif", "w", driver="GTiff", crs="EPSG:32622", **shape) as raster:
                raster.transform = rasterio.Affine(1, 0, 5, 0, -1, 9)
                block = np.tile(np.arange(8192, dtype="u2"), (1024, 1))
                for row in range(0, 12288, 1024):
                    raster.write(block, 1, window=((row, row + 1024), (0, 8192)))
            del block
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            raster_to_zarr(path + "/a.tif", path + "/z", shards=1024)
            os.unlink(path + "/a.tif")
            zarr_to_raster(path + "/z", path + "/b.tif", compress=None)
            print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    # The raster has 192 MiB; in memory are two windows of 16 MiB, what they become, and 16 MiB of GDAL's.
    assert int(done.stdout) < 128


def test_bands_are_sources_of_jobs(tmp_path):
    """What is made of them is what is made of the arrays that they become, and they go to other processes."""
    cells = np.random.default_rng(3).integers(0, 200, (2, 70, 90), "uint8")
    make_raster(tmp_path / "a.tif", cells, nodata=0, interleave="pixel")
    bands = raster_sources(tmp_path / "a.tif")
    group = raster_to_zarr(tmp_path / "a.tif", tmp_path / "a.zarr")
    assert list(bands) == ["band_1", "band_2"] == group.attrs["bands"]
    for number, (name, band) in enumerate(bands.items()):
        assert (band.shape, band.dtype, band.fill_value) == ((70, 90), np.dtype("u1"), 0)
        box = (slice(11, 47), slice(80, 90))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(band)).read(box), cells[number][box])
        out = np.empty((36, 10), "u1")
        assert band.read(box, out) is out and (out == cells[number][box]).all()
        made = zstore.convert(band, tmp_path / f"{name}.zarr", chunks=(16, 16), check=True)
        np.testing.assert_array_equal(made[...], cells[number])
        np.testing.assert_array_equal(
            zstore.reduce(band, "max", axis=0), zstore.reduce(group[name], "max", axis=0)
        )
    with pytest.raises(MetadataError, match="expected different ones of 1 to 2"):
        raster_sources(tmp_path / "a.tif", bands=[3])
    version = bands["band_1"].version()
    os.utime(tmp_path / "a.tif", ns=(0, 1))
    assert bands["band_1"].version() != version
    with pytest.raises(ChangedError, match="was written while it was read"):
        bands["band_1"].read((slice(0, 1), slice(0, 1)))


def test_an_array_that_is_written_while_it_is_read_makes_no_raster(tmp_path, monkeypatch):
    make_raster(tmp_path / "b.tif", np.ones((1, 8, 8), "u1"))
    group = raster_to_zarr(tmp_path / "b.tif", tmp_path / "a.zarr")
    array, real = group["band_1"], geotiff._Band.read

    def read(self: Any, *given: Any) -> Any:
        cells = real(self, *given)
        array[0, 0] = 9
        return cells

    with monkeypatch.context() as late:
        late.setattr(geotiff._Band, "read", read)
        with pytest.raises(ChangedError, match="the source changed while it was read"):
            zarr_to_raster(group, tmp_path / "a.tif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "b.tif"]
    assert rasterio.open(zarr_to_raster(group, tmp_path / "a.tif")).read(1)[0, 0] == 9


@pytest.mark.parametrize("driver", ["GTiff", "COG"])
def test_windows_are_read_by_any_executor_and_written_in_order(tmp_path: Path, driver: str) -> None:
    # Each row is as the one before, which is soon packed, and more than one window.
    rows = cells((2, 375, 3000), "uint8").repeat(8, axis=1)
    make_raster(tmp_path / "a.tif", rows, nodata=0)
    raster_to_zarr(tmp_path / "a.tif", tmp_path / "a.zarr", levels=2)
    for number, words in enumerate([{}, {"memory": 40 << 20}]):
        zarr_to_raster(tmp_path / "a.zarr", tmp_path / f"{number}.tif", driver=driver, **words)
    with ProcessPoolExecutor(2, get_context("forkserver")) as pool:
        zarr_to_raster(tmp_path / "a.zarr", tmp_path / "2.tif", driver=driver, executor=pool)
    files = [(tmp_path / f"{number}.tif").read_bytes() for number in range(3)]
    assert files[0] == files[1] == files[2]
    estimate: Any = zarr_to_raster(tmp_path / "a.zarr", tmp_path / "3.tif", driver=driver, dry_run=True)
    assert estimate.unit_count > 1 and estimate.memory_size > 1 << 20
    with rasterio.open(tmp_path / "a.tif") as before, rasterio.open(tmp_path / "2.tif") as after:
        np.testing.assert_array_equal(before.read(), after.read())


@pytest.mark.parametrize("url", ["s3://bucket/x.tif", "gs://bucket/x.tif", "az://box/x.tif"])
def test_storage_options_that_gdal_does_not_take_are_refused(url, tmp_path):
    with pytest.raises(UnsupportedError, match="by settings of its own, not by storage options"):
        zstore.raster_to_zarr(url, tmp_path / "t", storage_options={"anonymous": True})
    assert not (tmp_path / "t").exists()

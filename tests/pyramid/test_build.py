"""Pyramids: the numbers, the places, what goes along, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, ReadingWarning, StoreError, UnknownExtensionError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.geo.conventions.read import read_geo
from zstore.geo.pyramid.build import build_pyramid
from zstore.geo.resampling.methods import downsample
from zstore.geo.validation.fixing.fix import plan_fix
from zstore.storage.memory import MemoryStore

RASTER = Path(__file__).parents[2] / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
METHODS = ("average", "nearest", "mode")


def cells(shape: tuple[int, ...], dtype: str = "u2") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(1, 200, shape).astype(dtype)


def make_array(path: object, data: np.ndarray, **options: object) -> zstore.Array:
    options = {"dimension_names": ("y", "x"), "chunks": 64, **options}
    return zstore.create_array(path, data=data, **options)


def make_dataset(path: object, data: dict[str, np.ndarray], **options: object) -> zstore.Group:
    """Arrays with coordinates at (y, x) steps of -10 and 10 from the corner (300000, 5000000)."""
    group = zstore.create_group(path, zarr_format=options.pop("zarr_format", 3))
    attributes = options.pop("attributes", {})
    for name, values in data.items():
        group.create_array(
            name,
            data=values,
            chunks=64,
            dimension_names=("y", "x"),
            attributes=attributes.get(name, {}),
            **options,
        )
    rows, columns = next(iter(data.values())).shape
    for name, centres in (
        ("y", 5000000 - 10 * (np.arange(rows) + 0.5)),
        ("x", 300000 + 10 * (np.arange(columns) + 0.5)),
    ):
        group.create_array(name, data=centres, dimension_names=(name,), fill_value=float("nan"))
    return group


# The numbers


def gdal_levels(path: Path, pixels: np.ndarray, method: str, factors: list[int], nodata: int | None) -> list:
    rasterio = pytest.importorskip("rasterio", reason="compares with GDAL through rasterio")
    height, width = pixels.shape
    profile = {"driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": pixels.dtype.name}
    profile |= {"crs": "EPSG:32622", "transform": rasterio.Affine(30, 0, 612825, 0, -30, 6852675)}
    with rasterio.open(path, "w", nodata=nodata, **profile) as raster:
        raster.write(pixels, 1)
    with rasterio.open(path, "r+") as raster:
        raster.build_overviews(factors, rasterio.enums.Resampling[method])
    found = []
    for level in range(len(factors)):
        with rasterio.open(path, overview_level=level) as raster:
            found.append(raster.read(1))
    return found


@pytest.fixture(scope="module")
def landsat() -> np.ndarray:
    rasterio = pytest.importorskip("rasterio", reason="reads the example raster")
    with rasterio.open(RASTER) as raster:
        pixels: np.ndarray = raster.read(1)
    return pixels


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_levels_are_gdals_overviews_where_the_factors_divide_the_size(
    tmp_path: Path, landsat: np.ndarray, method: str, zarr_format: int
) -> None:
    pixels = landsat[:1088, :1304]
    source = make_array(tmp_path / "band", pixels, chunks=256, zarr_format=zarr_format, fill_value=None)
    made = build_pyramid(source, tmp_path / "out", levels=3, method=method, derive="cascade")
    overviews = gdal_levels(tmp_path / "raster.tif", pixels, method, [2, 4, 8], None)
    for number, overview in enumerate(overviews, 1):
        np.testing.assert_array_equal(made[f"{number}/band"][...], overview)


@pytest.mark.parametrize("method", METHODS)
def test_levels_of_any_size_are_gdals_of_the_raster_padded_with_nodata(
    tmp_path: Path, landsat: np.ndarray, method: str
) -> None:
    assert not (landsat == 0).any()
    padded = np.pad(landsat, ((0, -landsat.shape[0] % 8), (0, -landsat.shape[1] % 8)))
    assert padded.shape != landsat.shape
    source = make_array(tmp_path / "band", landsat, chunks=256, attributes={"_FillValue": 0})
    made = build_pyramid(source, tmp_path / "out", levels=3, method=method, derive="cascade")
    overviews = gdal_levels(tmp_path / "raster.tif", padded, method, [2, 4, 8], 0)
    for number, overview in enumerate(overviews, 1):
        level = made[f"{number}/band"][...]
        assert level.shape == tuple(-(-n // 2**number) for n in landsat.shape)
        np.testing.assert_array_equal(level, overview[: level.shape[0], : level.shape[1]])


@pytest.mark.parametrize("method", [*METHODS, "rms", "gauss", "bilinear", "cubic", "cubic_spline", "lanczos"])
def test_levels_on_gdals_grid_are_gdals_overviews_of_any_size(
    tmp_path: Path, landsat: np.ndarray, method: str
) -> None:
    source = make_array(tmp_path / "band", landsat, chunks=256)
    made = build_pyramid(source, tmp_path / "out", levels=3, method=method, grid="gdal")
    overviews = gdal_levels(tmp_path / "raster.tif", landsat, method, [2, 4, 8], None)
    for number, overview in enumerate(overviews, 1):
        np.testing.assert_array_equal(made[f"{number}/band"][...], overview)


@pytest.mark.parametrize("method", ["gauss", "bilinear", "lanczos", "sum", "median"])
@pytest.mark.parametrize("grid", ["aligned", "gdal"])
def test_blocks_of_any_method_leave_no_seams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, grid: str
) -> None:
    data = cells((301, 467), "f4")
    monkeypatch.setattr("zstore.geo.pyramid.passes.THREAD_SIZE", 1)
    source = make_array(tmp_path / "a", data, chunks=32)
    options = {"levels": 2, "method": method, "grid": grid, "chunks": 32, "nodata": 7}
    cascade = build_pyramid(source, tmp_path / "c", derive="cascade", **options)
    base = build_pyramid(source, tmp_path / "b", derive="base", **options)
    once = downsample(data, (2, 2), method, nodata=7, grid=grid)
    np.testing.assert_array_equal(cascade["1/a"][...], once)
    np.testing.assert_array_equal(base["1/a"][...], once)
    np.testing.assert_array_equal(cascade["2/a"][...], downsample(once, (2, 2), method, nodata=7, grid=grid))
    np.testing.assert_array_equal(base["2/a"][...], downsample(data, (4, 4), method, nodata=7, grid=grid))
    if method == "median":
        assert cascade.attrs["multiscales"]["resampling_method"] == "med"


def test_gdals_grid_covers_the_extent(tmp_path: Path) -> None:
    source = make_dataset(tmp_path / "s", {"a": cells((101, 30))})
    made = build_pyramid(source, tmp_path / "p", levels=2, grid="gdal", nodata=None)
    geo, findings = read_geo(made)
    assert findings == []
    assert [level.shape for level in geo.levels] == [(101, 30), (51, 15), (26, 8)]
    for level in geo.levels:
        assert level.affine.bounds(level.shape) == pytest.approx((300000, 5000000 - 1010, 300300, 5000000))
        assert level.factors == pytest.approx((101 / level.shape[0], 30 / level.shape[1]))


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
@pytest.mark.parametrize("factors", [2, 3, (1, 2), (5, 2)])
def test_each_level_follows_from_the_one_before(tmp_path: Path, dtype: str, factors: object) -> None:
    data = cells((301, 467), dtype)
    made = build_pyramid(
        make_array(tmp_path / "a", data), tmp_path / "out", levels=3, factors=factors, derive="cascade"
    )
    expected = data
    for number in range(1, 4):
        expected = downsample(expected, (factors, factors) if isinstance(factors, int) else factors)
        np.testing.assert_array_equal(made[f"{number}/a"][...], expected)
        assert made[f"{number}/a"].dtype == data.dtype


@pytest.mark.parametrize("factors", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_derived_from_the_base_each_level_follows_from_the_finest(
    tmp_path: Path, method: str, factors: int
) -> None:
    data = cells((301, 467)) % 5
    source = make_array(tmp_path / "a", data)
    made = build_pyramid(source, tmp_path / "out", levels=3, factors=factors, method=method, derive="base")
    for number in range(1, 4):
        expected = downsample(data, (factors**number,) * 2, method)
        np.testing.assert_array_equal(made[f"{number}/a"][...], expected)


def test_small_blocks_make_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = cells((1000, 777))
    source = make_array(tmp_path / "a", data, chunks=(32, 32), shards=(96, 64))
    whole = build_pyramid(source, tmp_path / "whole", levels=4, factors=3, chunks=32, derive="cascade")
    monkeypatch.setattr("zstore.geo.pyramid.passes.THREAD_SIZE", 1)
    for derive in ("cascade", "base"):
        method = "average" if derive == "cascade" else "nearest"
        parts = build_pyramid(
            source,
            tmp_path / derive,
            levels=4,
            factors=3,
            chunks=32,
            shards=(64, 96),
            derive=derive,
            method=method,
        )
        for number in range(1, 5):
            expected = whole[f"{number}/a"][...]
            if derive == "base":
                expected = data[:: 3**number, :: 3**number]
            np.testing.assert_array_equal(parts[f"{number}/a"][...], expected)


@pytest.mark.parametrize(
    ("dims", "factors"),
    [(("time", "y", "x"), (1, 2, 2)), (("y", "x", "band"), (2, 2, 1)), (("x", "band", "y"), (2, 1, 2))],
)
def test_the_spatial_dimensions_may_stand_anywhere(
    tmp_path: Path, dims: tuple[str, ...], factors: tuple[int, ...]
) -> None:
    data = cells((67, 81, 5) if dims[2] == "band" else (5, 67, 81) if dims[0] == "time" else (81, 5, 67))
    group = zstore.create_group(tmp_path / "g")
    group.create_array("a", data=data, dimension_names=dims, chunks=(32,) * 3)
    made = build_pyramid(group, tmp_path / "out", levels=2, chunks=(64, 32))
    np.testing.assert_array_equal(made["0/a"][...], data)
    expected = data
    for number in (1, 2):
        expected = downsample(data, [factor**number for factor in factors])
        np.testing.assert_array_equal(made[f"{number}/a"][...], expected)
        assert made[f"{number}/a"].dims == dims
        lengths = dict(zip(dims, made[f"{number}/a"].chunks, strict=True))
        assert (lengths.pop("y"), lengths.pop("x"), *lengths.values()) == (64, 32, 32)


# As asked for by name


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_plain_array_gives_levels_from_one(tmp_path: Path, zarr_format: int) -> None:
    data = cells((256, 256))
    zstore.create_group(tmp_path / "src", zarr_format=zarr_format)
    zstore.create_array(tmp_path / "src" / "band", data=data, chunks=64, zarr_format=zarr_format)
    made = build_pyramid(str(tmp_path / "src" / "band"), str(tmp_path / "out"), levels=3, method="average")
    assert list(made.keys()) == ["1", "2", "3"]
    assert made.zarr_format == zarr_format
    expected = data
    for number in range(1, 4):
        level = zstore.open_group(tmp_path / "out" / str(number), mode="r", zarr_format=zarr_format)
        expected = downsample(data, (2**number, 2**number))
        np.testing.assert_array_equal(level["band"][...], expected)
    geo, _ = read_geo(made)
    assert [(level.path, level.factors) for level in geo.levels] == [
        ("1", (1, 1)),
        ("2", (2, 2)),
        ("3", (4, 4)),
    ]
    assert geo.crs is None and geo.affine is None


def test_a_copy_of_the_array_can_be_had(tmp_path: Path) -> None:
    data = cells((130, 70))
    made = build_pyramid(make_array(tmp_path / "a", data), tmp_path / "out", copy_base=True)
    assert list(made.keys()) == ["0", "1", "2"]
    np.testing.assert_array_equal(made["0/a"][...], data)


def test_levels_end_where_one_tile_holds_the_coarsest(tmp_path: Path) -> None:
    for size, count in ((64, 0), (65, 1), (128, 1), (129, 2), (300, 3)):
        source = make_dataset(tmp_path / f"s{size}", {"a": cells((size, 20))})
        made = build_pyramid(source, tmp_path / f"p{size}")
        assert [level.path for level in read_geo(made)[0].levels] == [str(n) for n in range(count + 1)]


# The place on the ground, and what goes along


@pytest.mark.parametrize("source_format", [2, 3])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_geography_and_packing_of_every_level(tmp_path: Path, source_format: int, zarr_format: int) -> None:
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    data = cells((131, 90))
    data[:9, :9] = 0
    attributes = {"_FillValue": 0, "scale_factor": 0.5, "add_offset": -2.0, "units": "K", "note": "kept"}
    attributes["grid_mapping"] = "crs"
    source = make_dataset(
        tmp_path / "s", {"t": data}, zarr_format=source_format, attributes={"t": attributes}
    )
    source.create_array("crs", data=np.int32(0), attributes={"spatial_ref": "EPSG:32632"})
    source.attrs["title"] = "a title"
    source.attrs["zarr_conventions"] = [{"uuid": "of-somebody-else", "name": "other"}]
    made = build_pyramid(source, tmp_path / "p", levels=2, zarr_format=zarr_format)
    assert made.zarr_format == zarr_format and made.attrs["title"] == "a title"
    assert {"uuid": "of-somebody-else", "name": "other"} in made.attrs["zarr_conventions"]
    geo, findings = read_geo(zstore.open_group(tmp_path / "p", mode="r"))
    assert findings == []
    assert geo.crs is not None and geo.crs.code == "EPSG:32632"
    expected = data
    for number, level in enumerate(geo.levels):
        assert level.affine == (10.0 * 2**number, 0, 300000, 0, -10.0 * 2**number, 5000000)
        array = made[f"{number}/t"]
        np.testing.assert_array_equal(array[...], expected)
        held = array.attrs
        assert (held["scale_factor"], held["add_offset"], held["units"], held["note"]) == (
            0.5,
            -2.0,
            "K",
            "kept",
        )
        assert held["_FillValue"] == 0 and array.dtype == data.dtype and array.fill_value == 0
        step = 10 * 2**number
        np.testing.assert_array_equal(
            made[f"{number}/x"][...], 300000 + step * (np.arange(level.shape[1]) + 0.5)
        )
        np.testing.assert_array_equal(
            made[f"{number}/y"][...], 5000000 - step * (np.arange(level.shape[0]) + 0.5)
        )
        expected = downsample(data, (2 ** (number + 1),) * 2, nodata=0)
    assert (made["2/t"][...] == 0).any()


def test_flags_take_the_mode_and_names_their_own_method(tmp_path: Path) -> None:
    data = cells((64, 64), "u1") % 3
    flags = {"flag_values": [0, 1, 2], "flag_meanings": "land water ice"}
    source = make_dataset(
        tmp_path / "s", {"mean": data, "class": data, "first": data}, attributes={"class": flags}
    )
    made = build_pyramid(source, tmp_path / "p", levels=1, method={"first": "nearest"})
    np.testing.assert_array_equal(made["1/class"][...], downsample(data, (2, 2), "mode"))
    np.testing.assert_array_equal(made["1/first"][...], data[::2, ::2])
    np.testing.assert_array_equal(made["1/mean"][...], downsample(data, (2, 2)))
    asked = build_pyramid(source, tmp_path / "q", levels=1, method="nearest")
    np.testing.assert_array_equal(asked["1/class"][...], data[::2, ::2])
    assert asked.attrs["multiscales"]["resampling_method"] == "nearest"


@pytest.mark.parametrize(
    "said",
    [
        {"standard_name": "wind_from_direction", "units": "degree"},
        {"units": "radian", "valid_range": [0, 6.2832]},
        {"standard_name": "solar_azimuth_angle"},
    ],
)
def test_directions_are_averaged_as_circles(tmp_path: Path, said) -> None:
    turn = 2 * np.pi if said.get("units") == "radian" else 360.0
    data = (np.random.default_rng(5).normal(0, 0.1, (64, 64)) % 1 * turn).astype("f4")
    data[:2, 2:4] = np.nan
    data[:2, 4:6] = [[0, turn / 2], [turn / 4, turn * 3 / 4]]
    near = {"standard_name": "wind_speed_from_direction_at_sea", "units": "m s-1"}
    source = make_dataset(
        tmp_path / "s", {"wdir": data, "speed": data}, attributes={"wdir": said, "speed": near}
    )
    made = build_pyramid(source, tmp_path / "p", levels=1)
    windows = data.astype("f8").reshape(32, 2, 32, 2).swapaxes(1, 2).reshape(32, 32, 4)
    # As scipy.stats.circmean has it.
    sides = [np.nansum(side(windows * 2 * np.pi / turn), -1) for side in (np.sin, np.cos)]
    means = np.arctan2(*sides) * turn / 2 / np.pi
    found = made["1/wdir"][...]
    assert np.isnan(found[0, 1:3]).all() and np.isnan(found).sum() == 2
    np.testing.assert_allclose(np.sin((found - means) / turn * 2 * np.pi)[~np.isnan(found)], 0, atol=1e-6)
    assert (np.nan_to_num(found) < np.float32(turn)).all()
    assert [one for one in zstore.validate(tmp_path / "p").findings if "average" in one.message] == []
    np.testing.assert_array_equal(made["1/speed"][...], downsample(data, (2, 2)))
    asked = build_pyramid(source, tmp_path / "q", levels=1, method={"wdir": "average"})
    np.testing.assert_array_equal(asked["1/wdir"][...], downsample(data, (2, 2)))


@pytest.mark.parametrize("nodata", [None, "beside", "within"])
@pytest.mark.parametrize(
    ("dtype", "first", "said"),
    [
        ("i2", 0, {}),
        ("u1", 0, {"scale_factor": 360 / 256}),
        ("i1", -90, {"scale_factor": 2.0}),
        ("i2", 0, {"scale_factor": 0.7}),
        ("i2", -180, {"valid_range": [-180, 180]}),
        ("i2", -180, {"add_offset": 180.0}),
        ("f4", 0, {}),
    ],
)
def test_directions_beside_nodata_and_in_integers(tmp_path: Path, dtype, first, said, nodata) -> None:
    scale, offset = said.get("scale_factor", 1.0), said.get("add_offset", 0.0)
    turn, rng = 360 / scale, np.random.default_rng(7)
    data = (rng.normal(first, turn / 20, (32, 32)) - first) % turn // 1 % turn + first
    data = data.astype(dtype)
    hole = None if nodata is None else int(first if nodata == "within" or dtype == "u1" else first - 1)
    if hole is not None:
        data[rng.random(data.shape) < 0.3] = hole
        data[:2, :2] = hole
    attributes = {"standard_name": "wind_from_direction", "units": "degree", "_FillValue": hole, **said}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    found = build_pyramid(
        make_dataset(tmp_path / "s", {"a": data}, attributes={"a": attributes}), tmp_path / "p", levels=1
    )["1/a"][...]
    windows = data.reshape(16, 2, 16, 2).swapaxes(1, 2).reshape(16, 16, 4)
    angles = np.radians(windows * scale + offset)
    held = np.ones(windows.shape, bool) if hole is None else windows != hole
    sums = np.sum(np.exp(1j * angles), -1, where=held)
    is_missing = np.abs(sums) < 1e-9
    assert is_missing.any() == (hole is not None)
    if hole is not None:
        np.testing.assert_array_equal(found == hole, is_missing)
    off = np.degrees(np.angle(np.exp(1j * np.radians(found * scale + offset)) * sums.conj())) / scale
    # Half a step is rounded; another one is beside what stands for nodata.
    assert np.abs(off[~is_missing]).max() <= (1.5 if hole == first else 0.5) + 1e-3


@pytest.mark.parametrize(
    "fills", [{"_FillValue": "NaN", "missing_value": 1e20}, {"missing_value": [1e20, "NaN"]}]
)
def test_a_missing_value_beside_nan_is_not_averaged(tmp_path: Path, fills) -> None:
    data = cells((64, 64)).astype("f4")
    data[::2] = np.float32(1e20)
    source = make_dataset(tmp_path / "s", {"a": data}, attributes={"a": fills})
    made = build_pyramid(source, tmp_path / "p", levels=1)
    np.testing.assert_array_equal(
        made["1/a"][...], data[1::2].reshape(32, 32, 2).mean(2, dtype="f8").astype("f4")
    )
    assert made["1/a"].attrs["missing_value"] == np.float32(1e20)


def test_every_nodata_is_left_out_and_levels_have_the_first(tmp_path: Path) -> None:
    data = cells((64, 64)) % 12
    said = {"_FillValue": 0, "missing_value": [0, 7, 8]}
    source = make_dataset(tmp_path / "s", {"a": data}, attributes={"a": said})
    with pytest.warns(ReadingWarning, match="differ; both are nodata"):
        made = build_pyramid(source, tmp_path / "p", levels=2)
    one = np.where(np.isin(data, (7, 8)), 0, data)
    for level, factor in (("1", 2), ("2", 4)):
        np.testing.assert_array_equal(made[f"{level}/a"][...], downsample(one, (factor, factor), nodata=0))
        assert "missing_value" not in made[f"{level}/a"].attrs and made[f"{level}/a"].attrs["_FillValue"] == 0
    np.testing.assert_array_equal(made["0/a"][...], data)
    assert made["0/a"].attrs["missing_value"] == [7, 8]
    made["0/a"][:8, :8] = data[:8, :8] = 8
    with pytest.warns(ReadingWarning):
        zstore.update_pyramid(made)
    assert (made["1/a"][:4, :4] == 0).all()
    source["a"][...] = data
    for asked, expected in ((7, np.where(data == 7, 0, 1)), ([7, 3], np.where(np.isin(data, (3, 7)), 0, 1))):
        with pytest.warns(ReadingWarning):
            again = build_pyramid(source, tmp_path / f"of-{np.size(asked)}", levels=1, nodata=asked)
        hidden = np.where(expected == 0, 7, data)
        np.testing.assert_array_equal(again["1/a"][...], downsample(hidden, (2, 2), nodata=7))


def test_longitudes_that_wrap_run_on_and_others_out_of_order_are_refused(tmp_path: Path) -> None:
    source = zstore.create_group(tmp_path / "s")
    source.create_array("a", data=np.ones((8, 8), "f4"), chunks=(4, 4), dimension_names=["lat", "lon"])
    source.create_array(
        "lat", data=np.arange(8.0)[::-1], dimension_names=["lat"], attributes={"units": "degrees_north"}
    )
    longitudes = (np.arange(176.0, 184.0) + 180) % 360 - 180
    lon = source.create_array(
        "lon", data=longitudes, dimension_names=["lon"], attributes={"units": "degrees_east"}
    )
    geo, findings = read_geo(source)
    assert geo.affine is not None and (geo.affine.c, geo.affine.a) == (175.5, 1.0)
    assert [f.severity for f in findings if f.rule == "GZ-29"] == ["note"]
    assert not [key for key in plan_fix(source).changes if key.startswith("lon/c")]
    with pytest.warns(ReadingWarning, match="CRS84"):
        made = build_pyramid(source, tmp_path / "p", levels=1)
    np.testing.assert_array_equal(made["1/lon"][...], [176.5, 178.5, 180.5, 182.5])
    lon[...] = [1, 2, 3, 4, 5, 6, 1.5, 2.5]
    with pytest.warns(ReadingWarning), pytest.raises(MetadataError, match="'lon' is not in order"):
        build_pyramid(source, tmp_path / "q", levels=1)


@pytest.mark.parametrize("is_regular", [True, False])
def test_longitudes_that_wrap_run_on_with_their_bounds(tmp_path: Path, is_regular: bool) -> None:
    edges = np.arange(176.0, 185.0) if is_regular else np.cumsum([176, *np.linspace(0.7, 1.4, 8)])
    running = np.stack([edges[:-1], edges[1:]], axis=1)
    around = (running + 180) % 360 - 180
    source = zstore.create_group(tmp_path / "s", attributes={"Conventions": "CF-1.11"})
    source.create_array("a", data=np.ones((8, 8), "f4"), chunks=(4, 4), dimension_names=["lat", "lon"])
    said = {"units": "degrees_north", "standard_name": "latitude"}
    source.create_array("lat", data=np.arange(8.0), dimension_names=["lat"], attributes=said)
    said = {"units": "degrees_east", "standard_name": "longitude", "bounds": "lon_bnds"}
    centres = (running.mean(1) + 180) % 360 - 180
    source.create_array("lon", data=centres, dimension_names=["lon"], attributes=said)
    source.create_array("lon_bnds", data=around, dimension_names=["lon", "bnds"])
    assert [str(one) for one in zstore.validate(source).findings if one.severity == "error"] == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadingWarning)
        made = build_pyramid(source, tmp_path / "p", levels=1)
    np.testing.assert_allclose(made["1/lon"][...], running.mean(1).reshape(4, 2).mean(1))
    np.testing.assert_allclose(made["1/lon_bnds"][...], np.stack([edges[:-1:2], edges[2::2]], axis=1))
    if is_regular:
        np.testing.assert_allclose(made["0/lon_bnds"][...], running)
    assert [str(one) for one in zstore.validate(made).findings if one.severity == "error"] == []


def test_nodata_can_be_said_and_be_denied(tmp_path: Path) -> None:
    data = cells((64, 64))
    data[::2] = 7
    source = make_dataset(tmp_path / "s", {"a": data})
    said = build_pyramid(source, tmp_path / "p", levels=1, nodata=7)
    np.testing.assert_array_equal(said["1/a"][...], downsample(data, (2, 2), nodata=7))
    assert said["1/a"].attrs["_FillValue"] == 7
    marked = make_dataset(tmp_path / "m", {"a": data}, attributes={"a": {"_FillValue": 7}})
    denied = build_pyramid(marked, tmp_path / "q", levels=1, nodata={"a": None})
    np.testing.assert_array_equal(denied["1/a"][...], downsample(data, (2, 2)))
    with pytest.raises(MetadataError, match=r"nodata is 70000.*uint16"):
        build_pyramid(source, tmp_path / "r", nodata=70000)


def test_what_lies_beside_the_data_goes_along(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "s")
    group.create_array("a", data=cells((3, 40, 30)), dimension_names=("time", "lat", "lon"))
    group.create_array(
        "time", data=np.arange(3.0), dimension_names=("time",), attributes={"units": "days since 2000-01-01"}
    )
    latitudes = np.sin(np.arange(40) / 30) * 80
    group.create_array(
        "lat", data=latitudes, dimension_names=("lat",), attributes={"standard_name": "latitude"}
    )
    group.create_array("coarse", data=cells((7, 5)), dimension_names=("lat2", "lon2"))
    group.create_array("table", data=np.array([4, 5]), dimension_names=("name",))
    with pytest.warns(ReadingWarning, match="GZ-29 at lat: coordinate 'lat' is not regularly spaced"):
        made = build_pyramid(group, tmp_path / "p", levels=1, chunks=64)
    np.testing.assert_array_equal(made["0/lat"][...], latitudes)
    np.testing.assert_allclose(made["1/lat"][...], latitudes.reshape(20, 2).mean(1))
    for level in ("0", "1"):
        np.testing.assert_array_equal(made[f"{level}/time"][...], [0, 1, 2])
        assert made[f"{level}/time"].attrs["units"] == "days since 2000-01-01"
        assert list(made[f"{level}/table"][...]) == [4, 5]
    np.testing.assert_array_equal(made["0/coarse"][...], group["coarse"][...])


def test_chunks_shards_and_codecs(tmp_path: Path) -> None:
    source = make_array(
        tmp_path / "a", cells((300, 300)), chunks=(64, 64), shards=(128, 128), compressors="gzip"
    )
    kept = build_pyramid(source, tmp_path / "kept", levels=1)["1/a"]
    assert (kept.chunks, kept.shards, kept.model.codecs) == (
        source.chunks,
        source.shards,
        source.model.codecs,
    )
    other = build_pyramid(
        source, tmp_path / "other", levels=1, chunks=(32, 64), shards=128, compressors="zstd"
    )
    assert (other["1/a"].chunks, other["1/a"].shards) == ((32, 64), (128, 128))
    plain = build_pyramid(source, tmp_path / "plain", levels=1, shards=None, zarr_format=2)["1/a"]
    assert (plain.chunks, plain.shards, plain.zarr_format) == ((64, 64), None, 2)
    flat = make_array(
        tmp_path / "b", cells((50, 900)), chunks=(3, 900), zarr_format=2, order="F", compressors="zlib"
    )
    made = build_pyramid(flat, tmp_path / "flat", levels=1)["1/b"]
    assert (made.chunks, made.model.codecs) == ((512, 512), flat.model.codecs)


# In place, anew, interrupted


def test_levels_beside_the_finest(tmp_path: Path) -> None:
    data = cells((200, 200))
    root = zstore.create_group(tmp_path / "p")
    make_dataset(tmp_path / "p" / "0", {"a": data})
    made = build_pyramid(root["0"], root, levels=3, chunks=32)
    assert list(made.keys()) == ["0", "1", "2", "3"]
    assert (made["0/a"].chunks, made["1/a"].chunks) == ((64, 64), (32, 32))
    with pytest.raises(StoreError, match="levels 1, 2 are there already"):
        build_pyramid(tmp_path / "p", levels=2)
    again = build_pyramid(tmp_path / "p", levels=2, method="nearest", overwrite=True)
    assert list(again.keys()) == ["0", "1", "2"]
    np.testing.assert_array_equal(again["0/a"][...], data)
    np.testing.assert_array_equal(again["2/a"][...], data[::4, ::4])
    by_path = build_pyramid(str(tmp_path / "p" / "0"), str(tmp_path / "p"), levels=1, overwrite=True)
    assert list(by_path.keys()) == ["0", "1"]


class Breaking:
    """A resampler that fails at its third block."""

    calls = 0

    def __call__(self, array, factors, *, nodata=None, out=None):
        type(self).calls += 1
        if self.calls > 3:
            raise OSError("the disk is full")
        return downsample(array, factors, nodata=nodata, out=out)


def test_an_interrupted_build_claims_no_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_dataset(tmp_path / "s", {"a": cells((600, 600))})
    build_pyramid(source, tmp_path / "p", levels=2)
    monkeypatch.setattr("zstore.geo.pyramid.passes.THREAD_SIZE", 1)
    monkeypatch.setitem(resamplers._classes, "breaking", Breaking)
    with pytest.raises(OSError, match="the disk is full"):
        build_pyramid(source, tmp_path / "p", levels=2, method="breaking", overwrite=True)
    assert "multiscales" not in zstore.open_group(tmp_path / "p", mode="r").attrs
    made = build_pyramid(source, tmp_path / "p", levels=2, overwrite=True)
    np.testing.assert_array_equal(made["1/a"][...], downsample(source["a"][...], (2, 2)))
    assert [item["asset"] for item in made.attrs["multiscales"]["layout"]] == ["0", "1", "2"]


# How it is done


class CountingStore(MemoryStore):
    """Remembers how often each key was read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()

    def get(self, key, byte_range=None):
        self.reads[key] += 1
        return super().get(key, byte_range)

    def put(self, key, value):
        self.writes[key] += 1
        super().put(key, value)

    def swap(self, changes):
        self.writes.update(key for key, (_, new) in changes.items() if new is not ...)
        return super().swap(changes)


def test_blocks_are_read_once_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zstore.geo.pyramid.passes.THREAD_SIZE", 1)
    store, target = CountingStore(), CountingStore()
    source = make_array(store, cells((500, 700)))
    store.reads.clear()
    build_pyramid(source, target, levels=3, copy_base=True)
    chunks = {key: count for key, count in store.reads.items() if key.startswith("c/")}
    assert len(chunks) == 8 * 11 and set(chunks.values()) == {1}
    written = {key: count for key, count in target.writes.items() if "/c/" in key}
    assert len(written) == 8 * 11 + 4 * 6 + 2 * 3 + 1 * 2
    assert set(written.values()) == {1}
    # Chunks that end outside their level are looked for first: somebody might have appended to it.
    ends = {"0": (7, 10), "1": (3, 5), "2": (1, 2), "3": (0, 1)}
    for key in (key for key in target.reads if "/c/" in key):
        level, row, column = key.split("/")[0], *map(int, key.split("/")[-2:])
        assert row == ends[level][0] or column == ends[level][1], key


def test_progress_ends_at_its_total(tmp_path: Path) -> None:
    source = make_dataset(tmp_path / "s", {"a": cells((300, 300)), "b": cells((300, 300))})
    for derive, rounds in (("cascade", 1), ("base", 1)):
        heard: list[tuple[int, int]] = []

        def hear(done: int, total: int, into: list[tuple[int, int]] = heard) -> None:
            into.append((done, total))

        build_pyramid(source, tmp_path / derive, levels=2, derive=derive, progress=hear)
        assert heard == sorted(heard) and heard[-1] == (rounds * 180000, rounds * 180000)


def test_memory_is_bounded() -> None:
    script = """
        import numpy as np, resource, sys, tempfile
        import zstore
        from zstore.storage.memory import MemoryStore
        rows = 24576
        with tempfile.TemporaryDirectory() as path:
            source = zstore.create_array(path + "/a", shape=(rows, 8192), dtype="u2", chunks=512)
            block = np.tile(np.arange(8192, dtype="u2"), (1024, 1))
            for row in range(0, rows, 1024):
                source[row : row + 1024] = block
            del block
            zstore.build_pyramid(source, path + "/warm", levels=1, method="nearest", factors=1024)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            zstore.build_pyramid(source, path + "/out", levels=5, copy_base=True)
            print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, source.nbytes >> 20)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    grown, size = map(int, done.stdout.split())
    # Blocks of 16 MiB, one per level and each a quarter of the pyramid's share at most, beside the codecs'.
    assert size == 384 and grown < 96


# What is refused


def test_refusals_come_before_anything_is_written(tmp_path: Path) -> None:
    source = make_dataset(tmp_path / "s", {"a": cells((100, 100))})
    waves = zstore.create_array(tmp_path / "w", data=np.zeros((9, 9), "c8"), dimension_names=("y", "x"))
    line = zstore.create_array(tmp_path / "l", data=np.zeros(9))
    target = tmp_path / "p"
    refused = [
        (source, {"method": "avarage"}, UnknownExtensionError, "unknown resampler 'avarage'.*'average'"),
        (source, {"levels": -1}, MetadataError, "levels is -1"),
        (source, {"levels": 1.5}, MetadataError, r"levels is 1\.5"),
        (source, {"factors": (2, 2, 2)}, MetadataError, r"factors is \(2, 2, 2\)"),
        (source, {"factors": 0}, MetadataError, "factors is 0"),
        (source, {"chunks": "big"}, MetadataError, "chunks is 'big'"),
        (
            source,
            {"derive": "cascades"},
            MetadataError,
            "derive is 'cascades'; expected 'auto', 'base', 'cascade'",
        ),
        (source, {"grid": "exact"}, MetadataError, "grid is 'exact'; expected 'aligned', 'gdal'"),
        (source, {"shards": 100, "chunks": 64}, MetadataError, r"shards .*100.* not a multiple"),
        (source, {"compressors": "zsdt"}, UnknownExtensionError, "unknown codec 'zsdt'"),
        (source, {"shards": 128, "zarr_format": 2}, UnsupportedError, "only v3 has sharding"),
        (source, {"zarr_format": 1}, MetadataError, "Zarr format is 1"),
        (waves, {"method": "mode", "levels": 1}, UnsupportedError, "cannot make levels of 'w'.*complex64"),
        (line, {"levels": 1}, MetadataError, "expected a grid of two or more"),
    ]
    for what, options, kind, message in refused:
        with pytest.raises(kind, match=message):
            build_pyramid(what, target, **options)
        assert not target.exists()
    with pytest.raises(MetadataError, match="no level of a pyramid; expected a target"):
        build_pyramid(source)
    with pytest.raises(MetadataError, match="source and target are one"):
        build_pyramid(source, tmp_path / "s")
    (tmp_path / "a link").symlink_to(tmp_path / "s")
    for build in (build_pyramid, zstore.build_tile_pyramid):
        for way in (tmp_path / "a link", zstore.open_group(tmp_path / "a link")):
            with pytest.raises(MetadataError, match="source and target are one"):
                build(source, way)
            with pytest.raises(MetadataError, match="source and target are one"):
                build(zstore.open_group(tmp_path / "a link"), tmp_path / "s")
    with pytest.raises(MetadataError, match="expected 2, the target's own"):
        build_pyramid(source, zstore.create_group(tmp_path / "two", zarr_format=2), zarr_format=3)


def test_levels_are_apart_from_what_they_are_made_of(tmp_path: Path) -> None:
    cells = np.arange(64.0 * 64).reshape(64, 64)
    layout = {"data": cells, "chunks": (16, 16), "dimension_names": ["y", "x"]}
    zstore.create_group(tmp_path / "g")
    for path in ("1/a", "c/a"):
        zstore.create_array(tmp_path / "g", path, **layout)
    (tmp_path / "a link").symlink_to(tmp_path / "g")
    root = zstore.open_group(tmp_path / "g")
    held = zstore.create_array(MemoryStore(), "1/a", **layout)
    for source, target in (
        (root["1/a"], root),
        (root["1/a"], tmp_path / "a link"),
        (root["c/a"], tmp_path / "g/c/a/c"),
        (tmp_path / "a link/c/a", tmp_path / "g/c/a/new"),
        (held, zstore.open_group(held.store)),
    ):
        for words in ({}, {"overwrite": True}, {"resume": True}, {"dry_run": True}):
            with pytest.raises(StoreError, match=r"level '1' and the array .* not apart"):
                build_pyramid(source, target, levels=2, **words)
    for array in (root["1/a"], root["c/a"], held):
        np.testing.assert_array_equal(array[...], cells)
    assert not (tmp_path / "g/c/a/new").exists()
    # Beside the levels, and in another store in memory, a source is out of the way.
    build_pyramid(root["c/a"], root["c"], levels=2)
    build_pyramid(held, zstore.create_group(MemoryStore()), levels=2)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_numbers_among_attributes_that_json_lacks_are_spelled(zarr_format):
    """xarray writes NaN as it is; what is made of its stores is JSON."""
    store, document = MemoryStore(), {2: ".zattrs", 3: "zarr.json"}[zarr_format]
    make_dataset(store, {"v": cells((128, 128))}, zarr_format=zarr_format)
    for path in ("", "v/", "x/"):
        held = json.loads(bytes(store.get(f"{path}{document}") or b"{}"))
        odd = {"odd": [float("nan"), {"a": float("-inf")}]}
        said = {**held, **odd} if zarr_format == 2 else {**held, "attributes": {**held["attributes"], **odd}}
        store.put(f"{path}{document}", json.dumps(said).encode())
    made = build_pyramid(store, MemoryStore(), levels=1)
    made["0/v"][0, 0] = 7
    zstore.update_pyramid(made, (slice(0, 1), slice(0, 1)))
    reduced = zstore.reduce(store, "mean", "y", out=MemoryStore())
    for node in (made["0"], made["0/v"], made["1/v"], reduced, reduced["x"]):
        assert node.attrs["odd"] == ["NaN", {"a": "-Infinity"}], node
    for key in made.store.list():
        if key.endswith("zarr.json"):
            json.loads(bytes(made.store.get(key)), parse_constant=pytest.fail)

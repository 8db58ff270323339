"""Coordinates are decoded before they are believed: what xarray, GDAL and PROJ make of them, so do we."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zstore
from zstore.geo.conventions.content import angle_of, length_of
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo
from zstore.geo.rasters import zarr_to_raster
from zstore.model.packing import decode, encode

from .nodes import FakeArray, FakeGroup

pyproj = pytest.importorskip("pyproj", reason="CRSs are parsed with pyproj (extra 'geo')")
xr = pytest.importorskip("xarray", reason="what coordinates are to be is xarray's word (extra 'xarray')")
QUICK = settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
NUMBERS = st.integers(-(2**40), 2**40)


@st.composite
def packed(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, object]]:
    """Numbers as somebody stores them, and what the attributes say of them."""
    # `_Unsigned` in native order only: else xarray 2026 looks for missing values before it swaps bytes.
    dtype = np.dtype(draw(st.sampled_from(["i1", "u1", "i2", ">i2", "u2", "i4", "u4", "f4", "f8"])))
    raw = np.array(draw(st.lists(NUMBERS, min_size=1, max_size=6)), "i8").astype(dtype)
    attrs: dict[str, object] = {}
    if draw(st.booleans()):
        attrs["scale_factor"] = draw(st.sampled_from([0.01, 2.0, -0.5, 56e-6, 1e3]))
    if draw(st.booleans()):
        attrs["add_offset"] = draw(st.sampled_from([0.0, 40.5, -273.15, -0.151844]))
    for name in ("_FillValue", "missing_value"):
        if draw(st.booleans()):
            attrs[name] = dtype.type(draw(st.sampled_from([raw[0], *raw[:2] * 0])))
    if dtype.kind in "iu" and dtype.itemsize < 4 and dtype.isnative and draw(st.booleans()):
        attrs["_Unsigned"] = draw(st.sampled_from(["true", "false"]))
    return raw, attrs


@QUICK
@given(packed())
def test_numbers_are_what_xarray_decodes(stored: tuple[np.ndarray, dict[str, object]]) -> None:
    raw, attrs = stored
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # It tells of two values that stand for missing ones.
        warnings.simplefilter("ignore", xr.SerializationWarning)
        dataset = xr.Dataset({"v": ("n", raw, attrs)})
        want = xr.decode_cf(dataset, decode_times=False)["v"].values
    plain = {name: v.item() if isinstance(v, np.generic) else v for name, v in attrs.items()}
    found = decode(raw, plain)
    # Where xarray unpacks to float32, it rounds.
    close = 1e-6 if want.dtype == np.float32 else 1e-12
    largest = np.nanmax(np.abs(np.append(found.astype("f8"), 300)))
    np.testing.assert_allclose(found, want.astype("f8"), rtol=close, atol=close * largest)
    if not np.isnan(found.astype("f8")).any() and raw.dtype.kind in "iu":
        np.testing.assert_array_equal(encode(found.astype("f8"), plain, raw.dtype), raw)


@QUICK
@given(
    st.lists(st.integers(-400, 20000), min_size=1, max_size=4),
    st.sampled_from(["standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian"]),
    st.sampled_from(
        ["days since 2000-02-28", "hours since 1999-12-30 06:00", "seconds since 1970-01-01T00:00:00Z"]
    ),
    st.sampled_from([{}, {"scale_factor": 0.25}, {"scale_factor": 0.5, "add_offset": 12.0}]),
    st.booleans(),
)
def test_moments_are_what_xarray_decodes(counts, calendar, units, packing, has_missing) -> None:
    pytest.importorskip("cftime", reason="these calendars are cftime's (extra 'time')")
    # xarray reads no missing ones in calendars that are cftime's.
    calendar = "proleptic_gregorian" if has_missing else calendar
    attrs = {"units": units, "calendar": calendar, **packing}
    raw = np.array(counts, "i4")
    if has_missing:
        raw, attrs = np.append(raw, np.int32(-999)), attrs | {"_FillValue": -999}
    coder = xr.coders.CFDatetimeCoder(use_cftime=not has_missing, time_unit="us")
    want = xr.decode_cf(xr.Dataset({"when": ("time", raw, attrs)}), decode_times=coder)["when"].values
    children = {
        "v": FakeArray("v", np.zeros((len(raw), 2, 2)), ("time", "y", "x")),
        "time": FakeArray("time", raw, ("time",), attrs | {"standard_name": "time"}),
    }
    geo, _ = read_geo(FakeGroup("", children=children))
    assert geo.time is not None
    assert [_text(date) for date in geo.time.dates()] == [_text(date) for date in want]


def _text(date: Any) -> str:
    if isinstance(date, np.datetime64):
        date = date.astype("M8[us]").item()
    return "NaT" if date is None else str(date.isoformat())


def test_months_have_a_length_where_a_year_has_360_days() -> None:
    pytest.importorskip("cftime", reason="these calendars are cftime's (extra 'time')")
    attrs = {"units": "months since 2000-01-01", "calendar": "360_day", "standard_name": "time"}
    want = xr.decode_cf(xr.Dataset({"t": ("t", [0, 14], attrs)}))["t"].values
    children = {
        "v": FakeArray("v", np.zeros((2, 3, 3)), ("t", "y", "x")),
        "t": FakeArray("t", np.array([0, 14]), ("t",), attrs),
    }
    geo, _ = read_geo(FakeGroup("", children=children))
    assert geo.time is not None
    assert (
        geo.time.extent()
        == (want[0].isoformat(), want[1].isoformat())
        == (
            "2000-01-01T00:00:00",
            "2001-03-01T00:00:00",
        )
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_packed_coordinates_lie_where_xarray_and_gdal_have_them(tmp_path, zarr_format) -> None:
    """Written by xarray, which packs them; the way back through a GeoTIFF and a tile pyramid."""
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are read with rasterio (extra 'raster')")
    lat, lon = 45.12 - 0.25 * np.arange(40), -90.12 + 0.25 * np.arange(30)
    data = xr.Dataset(
        {"v": (("lat", "lon"), np.arange(1200, dtype="f4").reshape(40, 30), {"grid_mapping": "crs"})},
        {
            "lat": ("lat", lat, {"standard_name": "latitude", "units": "degrees_north"}),
            "lon": ("lon", lon, {"standard_name": "longitude", "units": "degrees_east"}),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude", "crs_wkt": "EPSG:4326"}),
        },
    )
    data["crs"].attrs["crs_wkt"] = pyproj.CRS(4326).to_wkt()
    pack = {"dtype": "i2", "scale_factor": 0.01, "add_offset": -20.0, "_FillValue": -32768}
    data.to_zarr(
        tmp_path / "packed", encoding={"lat": pack, "lon": pack}, zarr_format=zarr_format, consolidated=False
    )
    assert zstore.open_array(tmp_path / "packed/lat", mode="r").dtype == np.int16
    geo, findings = read_geo(zstore.open_group(tmp_path / "packed", mode="r"))
    assert not [finding for finding in findings if finding.severity == "error"]
    opened = xr.open_zarr(tmp_path / "packed", consolidated=False)
    west, north = float(opened.lon[0]) - 0.125, float(opened.lat[0]) + 0.125
    np.testing.assert_allclose(geo.affine, (0.25, 0, west, 0, -0.25, north), atol=1e-5)
    zarr_to_raster(tmp_path / "packed", tmp_path / "made.tif")
    with rasterio.open(tmp_path / "made.tif") as raster:
        np.testing.assert_allclose(raster.bounds, (-90.245, 35.245, -82.745, 45.245), atol=1e-5)
    made = zstore.build_tile_pyramid(tmp_path / "packed", tmp_path / "tiles")
    finest = made.attrs["multiscales"]["layout"][0]["asset"]
    filled = np.argwhere(np.isfinite(made[f"{finest}/v"][...]))
    affine = rasterio.Affine(*made[finest].attrs["spatial:transform"])
    corners = [affine @ tuple(place[::-1]) for place in (filled.min(0), filled.max(0) + 1)]
    to_degrees = pyproj.Transformer.from_crs(3857, 4326, always_xy=True)
    (left, top), (right, bottom) = (to_degrees.transform(*corner) for corner in corners)
    np.testing.assert_allclose((left, bottom, right, top), (-90.245, 35.245, -82.745, 45.245), atol=0.2)


def geostationary(sweep: str, **attrs: object) -> FakeGroup:
    """A view of the whole disk in 24 by 24 cells; `attrs` is what its coordinates say."""
    mapping = {
        "grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0,
        "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414,
        "latitude_of_projection_origin": 0.0, "longitude_of_projection_origin": -75.0,
        "sweep_angle_axis": sweep,
    }  # fmt: skip
    angles = (np.arange(24) - 11.5) * 0.0126
    scale = attrs.pop("radians", 1.0)
    stored, pack = angles / scale, dict[str, object]()
    if attrs.pop("is_packed", False):
        pack = {"scale_factor": 0.0126 / scale, "add_offset": -11.5 * 0.0126 / scale, "_FillValue": -1}
        stored = np.arange(24, dtype="i2")
    children = {
        "v": FakeArray("v", np.zeros((24, 24), "f4"), ("y", "x"), {"grid_mapping": "view"}),
        "view": FakeArray("view", np.int32(0), (), mapping),
    }
    for name, values in (("y", stored if not pack else stored[::-1]), ("x", stored)):
        said = {"standard_name": f"projection_{name}_coordinate", "axis": name.upper(), **attrs, **pack}
        children[name] = FakeArray(name, values if pack or name == "x" else values[::-1], (name,), said)
    return FakeGroup("", children=children)


@pytest.mark.parametrize("sweep", ["x", "y"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    ("units", "radians"),
    [
        ("rad", 1.0),
        ("radian", 1.0),
        ("radians", 1.0),
        ("microradian", 1e-6),
        ("µrad", 1e-6),
        ("1", 1.0),
        ("degrees", np.pi / 180),
        ("m", 1 / 35786023.0),
        ("km", 1 / 35786.023),
    ],
)
def test_geostationary_views_lie_where_proj_has_them(sweep, is_packed, units, radians) -> None:
    geo, findings = read_geo(geostationary(sweep, units=units, radians=radians, is_packed=is_packed))
    assert geo.affine is not None
    assert geo.crs is not None
    assert not [finding for finding in findings if finding.severity == "error"]
    proj = pyproj.Proj(proj="geos", h=35786023.0, lon_0=-75, sweep=sweep, a=6378137.0, b=6356752.31414)
    for column, row in ((12, 12), (4, 9), (17, 2)):
        # By PROJ's own definition: scan angle times height.
        x, y = (column - 11.5) * 0.0126 * 35786023.0, (11.5 - row) * 0.0126 * 35786023.0
        np.testing.assert_allclose(geo.affine.at(column + 0.5, row + 0.5), (x, y), rtol=1e-9, atol=1e-3)
        found = pyproj.Transformer.from_crs(geo.crs.wkt, 4326, always_xy=True).transform(x, y)
        np.testing.assert_allclose(found, proj(x, y, inverse=True), atol=1e-6)


def projected(units: object, code: int = 32633) -> FakeGroup:
    said = {"units": units} if units is not None else {}
    children = {
        "v": FakeArray("v", np.zeros((4, 5), "f4"), ("y", "x"), {"grid_mapping": "crs"}),
        "crs": FakeArray("crs", np.int32(0), (), {"crs_wkt": pyproj.CRS(code).to_wkt()}),
        "y": FakeArray("y", 5000.0 - np.arange(4), ("y",), said),
        "x": FakeArray("x", 500.0 + np.arange(5), ("x",), dict(said)),
    }
    return FakeGroup("", children=children)


@pytest.mark.parametrize(
    ("units", "code", "metres"),
    [
        ("m", 32633, 1.0), ("km", 32633, 1000.0), ("kilometers", 32633, 1000.0), ("1000 m", 32633, 1000.0),
        ("cm", 32633, 0.01), ("ft", 32633, 0.3048), ("US survey feet", 32633, 1200 / 3937),
        ("US_survey_foot", 2263, 1200 / 3937), ("m", 2263, 1.0), (None, 2263, 1200 / 3937), ("", 32633, 1.0),
        ("0.3048006096012192 m", 2263, 1200 / 3937),
    ],
)  # fmt: skip
def test_lengths_become_the_crss(units, code, metres) -> None:
    geo, _ = read_geo(projected(units, code))
    own = pyproj.CRS(code).axis_info[0].unit_conversion_factor
    assert geo.affine is not None
    np.testing.assert_allclose(geo.affine.a * own, metres, rtol=1e-9)
    np.testing.assert_allclose(geo.affine.c * own, 499.5 * metres, rtol=1e-9)


@pytest.mark.parametrize("units", ["degrees_east", "rad", "K", "1", "furlong", "days since 2000-01-01"])
def test_units_that_are_none_of_the_crs_place_nothing(units) -> None:
    geo, findings = read_geo(projected(units))
    assert geo.affine is None
    assert {("MS-08", "error")} <= {(finding.rule, finding.severity) for finding in findings}


def test_degrees_under_a_crs_of_degrees_may_be_written_as_radians() -> None:
    group = projected("radian", 4326)
    for name in ("x", "y"):
        group.children[name].values = np.radians(10.0 + np.arange(len(group.children[name].values)))
    geo, _ = read_geo(group)
    assert geo.affine is not None
    np.testing.assert_allclose(geo.affine, (1, 0, 9.5, 0, 1, 9.5), atol=1e-12)


def test_units_are_as_udunits_has_them() -> None:
    known = {"m": 1, "km": 1e3, "Mm": None, "mm": 1e-3, "micrometer": 1e-6, "nautical mile": 1852, "s": None}
    known |= {"ft": 0.3048, "gigametre": 1e9, "ms": None, "mS": None}
    assert {units: length_of(units) for units in known} == known
    assert angle_of("arcminutes") == pytest.approx(np.pi / 180 / 60)
    assert angle_of("degrees_north") == angle_of("degree_E") == angle_of("°") == np.pi / 180
    assert angle_of("mrad") == 1e-3
    assert angle_of("m") is None


@pytest.mark.parametrize(
    "mapping",
    [
        {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [38.5],
         "longitude_of_central_meridian": [-97.5], "latitude_of_projection_origin": "38.5",
         "earth_radius": [6371229.0]},
        {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": 38.5,
         "longitude_of_central_meridian": -97.5, "latitude_of_projection_origin": 38.5,
         "earth_radius": "6371229"},
    ],
)  # fmt: skip
def test_parameters_may_be_text_or_lists_of_one(mapping) -> None:
    group = projected("m")
    group.children["crs"].attrs = mapping
    geo, findings = read_geo(group)
    want = pyproj.CRS("+proj=lcc +lat_1=38.5 +lat_0=38.5 +lon_0=-97.5 +R=6371229")
    found = pyproj.Transformer.from_crs(geo.crs.wkt, want.geodetic_crs, always_xy=True).transform(1e6, 2e6)
    expected = pyproj.Proj(want)(1e6, 2e6, inverse=True)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert not [finding for finding in findings if finding.severity == "error"]


MERCATOR = {
    "grid_mapping_name": "transverse_mercator", "longitude_of_central_meridian": 9.0,
    "latitude_of_projection_origin": 10.0, "scale_factor_at_central_meridian": 0.9996,
    "semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563,
}  # fmt: skip


def test_the_height_of_a_satellite_is_in_metres_whatever_the_axes_are_in():
    for unit in ("km", "m"):
        cf = Crs.from_user(f"+proj=geos +h=35785831 +x_0=1000 +units={unit}").cf
        assert cf["perspective_point_height"] == pytest.approx(35785831)


@pytest.mark.parametrize(
    ("units", "metres"), [("km", 1e3), ("m", 1.0), ("US_survey_foot", 1200 / 3937), ("100 m", 1e2)]
)
def test_a_false_origin_is_in_the_units_of_the_coordinates(units, metres) -> None:
    group = projected(units)
    false = {"false_easting": 500000 / metres, "false_northing": -2000 / metres}
    group.children["crs"].attrs = MERCATOR | false
    geo, findings = read_geo(group)
    # PROJ's own false origin is in metres, whatever the units of what it gives.
    words = f"+proj=tmerc +lon_0=9 +lat_0=10 +k=0.9996 +x_0=500000 +y_0=-2000 +to_meter={metres!r}"
    proj = pyproj.Proj(f"{words} +ellps=WGS84")
    found = geo.crs.transform(Crs.from_user("OGC:CRS84"), *geo.affine.at(2.5, 1.5))
    np.testing.assert_allclose(found, proj(502.0, 4999.0, inverse=True), atol=1e-9)
    assert not [finding for finding in findings if finding.severity == "error"]
    # What is written of a CRS with such units says the same without its WKT.
    crs = Crs.from_user(f"{words} +ellps=WGS84")
    for name, value in false.items():
        assert crs.cf[name] == pytest.approx(value, rel=1e-9)


def test_what_pyproj_writes_of_a_false_origin_in_metres_is_told_and_the_wkt_counts() -> None:
    source = pyproj.CRS("+proj=utm +zone=33 +units=km +datum=WGS84")
    group = projected("km")
    group.children["crs"].attrs = source.to_cf()
    geo, findings = read_geo(group)
    assert geo.crs.is_same(Crs.from_user(source))
    assert (geo.affine.a, geo.crs.cf["false_easting"]) == (1.0, 500.0)
    assert [(f.rule, f.severity) for f in findings] == [("OC-05", "warning")]


@pytest.mark.parametrize(("units", "false"), [("km", 2825000.0), ("radian", 1000.0)])
def test_a_false_origin_that_cannot_be_is_refused(units, false) -> None:
    """A climate model's files have it in metres and the coordinates in km; GDAL and pyproj do not notice."""
    group = projected(units)
    group.children["crs"].attrs = MERCATOR | {"false_easting": false}
    geo, findings = read_geo(group)
    assert geo.crs is None
    assert [
        f.message for f in findings if (f.rule, f.severity) == ("OC-05", "error") and repr(units) in f.message
    ]


def test_ellipsoids_that_netcdf_rounds_are_no_error() -> None:
    """netCDF-C writes the numbers of NCZarr's attributes with six digits."""
    group = projected("m")
    mapping = pyproj.CRS(32633).to_cf()
    rounded = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in mapping.items()}
    group.children["crs"].attrs = rounded
    _, findings = read_geo(group)
    assert {(f.rule, f.severity) for f in findings} == {("OC-05", "warning")}
    group.children["crs"].attrs = rounded | {"inverse_flattening": 298.3}
    _, findings = read_geo(group)
    assert ("OC-05", "error") in {(f.rule, f.severity) for f in findings}


def test_a_packing_that_is_none_places_nothing() -> None:
    group = projected("m")
    group.children["x"].attrs["scale_factor"] = "a tenth"
    geo, findings = read_geo(group)
    assert geo.affine is None
    assert ("GZ-29", "error") in {(finding.rule, finding.severity) for finding in findings}


def test_values_outside_the_valid_range_are_told_and_count() -> None:
    group = projected("m")
    group.children["x"].attrs["valid_max"] = 502.0
    geo, findings = read_geo(group)
    assert geo.affine is not None
    assert [f.message for f in findings if f.rule == "GZ-16"] == [
        "2 values of coordinate 'x' are outside its valid range; they count"
    ]


def axis(letter: str, units: str, packing: tuple[float, float] | None = None) -> dict[str, Any]:
    pack = {} if packing is None else {"scale_factor": packing[0], "add_offset": packing[1]}
    words = {"degrees_north": "latitude", "degrees_east": "longitude"}
    name = words.get(units, f"projection_{letter}_coordinate")
    return {"standard_name": name, "units": units, "axis": letter.upper(), **pack}


VIEW = {
    "grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0,
    "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414, "sweep_angle_axis": "x",
    "latitude_of_projection_origin": 0.0, "longitude_of_projection_origin": -75.0,
}  # fmt: skip
LAMBERT = {
    "grid_mapping_name": "lambert_conformal_conic", "standard_parallel": 25.0, "earth_radius": 6371229.0,
    "longitude_of_central_meridian": 265.0, "latitude_of_projection_origin": 25.0,
}  # fmt: skip
SPHERE = {"grid_mapping_name": "latitude_longitude", "earth_radius": 6371229.0}
DOWN, RIGHT = -np.arange(20.0), np.arange(30.0)
# (grid mapping, y, x, and what is said of both); packed ones are stored as int16.
FOREIGN = {
    "GOES": (VIEW, DOWN, RIGHT, axis("y", "rad", (0.0056, 0.1)), axis("x", "rad", (0.0056, -0.05))),
    "Himawari": (
        VIEW | {"sweep_angle_axis": "y", "longitude_of_projection_origin": 140.7},
        0.1 + 0.0056 * DOWN, -0.05 + 0.0056 * RIGHT, axis("y", "rad"), axis("x", "rad"),
    ),
    "Meteosat": (
        VIEW, 1e5 + 5600 * DOWN, -5e4 + 5600 * RIGHT, axis("y", "microradian"), axis("x", "microradian")
    ),
    "kilometres": (LAMBERT, 2000 + 3 * DOWN, 3 * RIGHT - 1000, axis("y", "km"), axis("x", "km")),
    "packed degrees": (
        SPHERE, DOWN * 25, RIGHT * 25, axis("y", "degrees_north", (0.01, 45.0)),
        axis("x", "degrees_east", (0.01, 10.0)),
    ),
    "0 to 360": (None, 88 + 9 * DOWN, 12 * RIGHT, axis("y", "degrees_north"), axis("x", "degrees_east")),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign_files_lie_where_gdals_netcdf_driver_has_them(tmp_path, case) -> None:
    netcdf = pytest.importorskip("netCDF4", reason="NetCDF is written with netCDF4 (extra 'netcdf')")
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are read with rasterio (extra 'raster')")
    mapping, y, x, *said = FOREIGN[case]
    with netcdf.Dataset(tmp_path / "a.nc", "w") as file:
        file.set_auto_maskandscale(False)
        for name, values, attributes in zip("yx", (y, x), said, strict=True):
            file.createDimension(name, len(values))
            made = file.createVariable(name, "i2" if "scale_factor" in attributes else "f8", (name,))
            made.set_auto_maskandscale(False)
            made.setncatts(attributes)
            made[:] = values
        data = file.createVariable("v", "f4", ("y", "x"))
        data[:] = np.arange(600).reshape(20, 30)
        if mapping is not None:
            file.createVariable("crs", "i4", ()).setncatts(mapping)
            data.grid_mapping = "crs"
    with xr.open_dataset(tmp_path / "a.nc", engine="netcdf4", decode_cf=False) as opened:
        opened.to_zarr(tmp_path / "a.zarr", consolidated=False, zarr_format=2)
    geo, findings = read_geo(zstore.open_group(tmp_path / "a.zarr", mode="r"))
    assert not [finding for finding in findings if finding.severity == "error"]
    with rasterio.open(f"netcdf:{tmp_path / 'a.nc'}:v") as raster:
        np.testing.assert_allclose(geo.affine, raster.transform[:6], rtol=1e-9, atol=1e-6)
        assert geo.crs is not None
        places = [
            pyproj.Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True).transform(*raster.xy(9, 12))
            for crs in (
                pyproj.CRS(geo.crs.wkt),
                pyproj.CRS(geo.crs.wkt if raster.crs is None else raster.crs.to_wkt()),
            )
        ]
        np.testing.assert_allclose(*places, atol=1e-6)

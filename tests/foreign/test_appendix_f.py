"""Every grid mapping of CF's appendix F is the CRS that PROJ makes of it, and lies where its numbers say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.read import read_geo

pyproj = pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
xarray = pytest.importorskip("xarray", reason="xarray is the writer")
pytest.importorskip("zarr", reason="zarr-python writes for xarray")

WGS84 = {"semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563}
FALSE = {"false_easting": 100000.0, "false_northing": -50000.0}
SPHERE = {"earth_radius": 6371229.0}
# Names of the appendix, in its order; more than one where it gives a choice of parameters.
MAPPINGS: dict[str, dict[str, Any]] = {
    "albers_conical_equal_area": {
        "standard_parallel": [29.5, 45.5],
        "longitude_of_central_meridian": -96.0,
        "latitude_of_projection_origin": 23.0,
        **FALSE,
    },
    "albers_conical_equal_area, one parallel": {
        "standard_parallel": 40.0,
        "longitude_of_central_meridian": -96.0,
        "latitude_of_projection_origin": 23.0,
        **FALSE,
    },
    "azimuthal_equidistant": {
        "longitude_of_projection_origin": 15.0,
        "latitude_of_projection_origin": 40.0,
        **FALSE,
    },
    "geostationary": {
        "latitude_of_projection_origin": 0.0,
        "longitude_of_projection_origin": 140.7,
        "perspective_point_height": 35785863.0,
        "sweep_angle_axis": "y",
        "false_easting": 0.0,
        "false_northing": 0.0,
    },
    "geostationary, fixed angle": {
        "latitude_of_projection_origin": 0.0,
        "longitude_of_projection_origin": -75.0,
        "perspective_point_height": 35786023.0,
        "fixed_angle_axis": "y",
    },
    "lambert_azimuthal_equal_area": {
        "longitude_of_projection_origin": 10.0,
        "latitude_of_projection_origin": 52.0,
        **FALSE,
    },
    "lambert_conformal_conic": {
        "standard_parallel": [33.0, 45.0],
        "longitude_of_central_meridian": -97.0,
        "latitude_of_projection_origin": 38.5,
        **FALSE,
    },
    "lambert_conformal_conic, one parallel": {
        "standard_parallel": 25.0,
        "longitude_of_central_meridian": -95.0,
        "latitude_of_projection_origin": 25.0,
        **FALSE,
    },
    "lambert_cylindrical_equal_area": {
        "longitude_of_central_meridian": 0.0,
        "standard_parallel": 30.0,
        **FALSE,
    },
    "latitude_longitude": {},
    "latitude_longitude, Paris": {"longitude_of_prime_meridian": 2.33722917},
    "mercator": {"longitude_of_projection_origin": 0.0, "standard_parallel": 15.0, **FALSE},
    "mercator, scaled": {
        "longitude_of_projection_origin": 110.0,
        "scale_factor_at_projection_origin": 0.997,
        **FALSE,
    },
    "oblique_mercator": {
        "azimuth_of_central_line": 53.3,
        "latitude_of_projection_origin": 4.0,
        "longitude_of_projection_origin": 115.0,
        "scale_factor_at_projection_origin": 0.99984,
        **FALSE,
    },
    "orthographic": {"longitude_of_projection_origin": 5.0, "latitude_of_projection_origin": 45.0, **FALSE},
    "polar_stereographic": {
        "straight_vertical_longitude_from_pole": -45.0,
        "latitude_of_projection_origin": 90.0,
        "standard_parallel": 70.0,
        **FALSE,
    },
    "polar_stereographic, scaled": {
        "straight_vertical_longitude_from_pole": 0.0,
        "latitude_of_projection_origin": -90.0,
        "scale_factor_at_projection_origin": 0.994,
        **FALSE,
    },
    "polar_stereographic, south": {
        "straight_vertical_longitude_from_pole": 0.0,
        "latitude_of_projection_origin": -90.0,
        "standard_parallel": -71.0,
        **FALSE,
    },
    "rotated_latitude_longitude": {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0},
    "rotated_latitude_longitude, turned": {
        "grid_north_pole_latitude": 30.0,
        "grid_north_pole_longitude": 10.0,
        "north_pole_grid_longitude": 20.0,
    },
    "sinusoidal": {"longitude_of_projection_origin": 0.0, **FALSE},
    "stereographic": {
        "longitude_of_projection_origin": 5.0,
        "latitude_of_projection_origin": 52.0,
        "scale_factor_at_projection_origin": 0.9999,
        **FALSE,
    },
    "transverse_mercator": {
        "longitude_of_central_meridian": -2.0,
        "latitude_of_projection_origin": 49.0,
        "scale_factor_at_central_meridian": 0.9996012717,
        **FALSE,
    },
    "vertical_perspective": {
        "longitude_of_projection_origin": 10.0,
        "latitude_of_projection_origin": 40.0,
        "perspective_point_height": 5000000.0,
        **FALSE,
    },
}
# Degrees of a grid of degrees, else the metres of one in the projection's middle.
GRIDS = {True: ((0.25, -4.0), (-0.5, 6.0)), False: ((12000.0, -240000.0), (-9000.0, 300000.0))}


def attributes_of(name: str) -> dict[str, Any]:
    """On an ellipsoid; the second form of a mapping on a sphere."""
    kind, _, variant = name.partition(",")
    return {"grid_mapping_name": kind, **MAPPINGS[name], **(SPHERE if variant else WGS84)}


def described(kind: str) -> tuple[dict[str, str], dict[str, str]]:
    if kind == "latitude_longitude":
        return (
            {"standard_name": "latitude", "units": "degrees_north"},
            {"standard_name": "longitude", "units": "degrees_east"},
        )
    if kind == "rotated_latitude_longitude":
        return (
            {"standard_name": "grid_latitude", "units": "degrees"},
            {"standard_name": "grid_longitude", "units": "degrees"},
        )
    y, x = ({"standard_name": f"projection_{axis}_coordinate", "units": "m"} for axis in "yx")
    return y, x


def write(path: Path, mapping: dict[str, Any], reference: str = "crs") -> tuple[np.ndarray, np.ndarray]:
    kind = mapping["grid_mapping_name"]
    (step_x, left), (step_y, top) = GRIDS["latitude_longitude" in kind]
    y, x = top + step_y * (np.arange(30) + 0.5), left + step_x * (np.arange(40) + 0.5)
    of_y, of_x = described(kind)
    opened = xarray.Dataset(
        {"dn": (("y", "x"), np.ones((30, 40), "u1"), {"grid_mapping": reference}), "crs": ((), 0, mapping)},
        {"y": ("y", y, of_y), "x": ("x", x, of_x)},
        {"Conventions": "CF-1.11"},
    )
    opened.to_zarr(path, zarr_format=3, consolidated=False)
    return y, x


def check(path: Path, truth: Any, y: np.ndarray, x: np.ndarray) -> None:
    """The ground under every cell is PROJ's, by the CRS that `mapping` is to it."""
    geo, findings = read_geo(zstore.open_group(path, mode="r"))
    assert [finding for finding in findings if finding.severity == "error"] == []
    found = pyproj.CRS.from_wkt(geo.crs.wkt)
    assert found.ellipsoid.semi_major_metre == truth.ellipsoid.semi_major_metre
    assert found.prime_meridian.longitude == truth.prime_meridian.longitude
    columns, rows = np.meshgrid(np.arange(x.size) + 0.5, np.arange(y.size) + 0.5)
    mine = pyproj.Transformer.from_crs(found, found.geodetic_crs, always_xy=True)
    theirs = pyproj.Transformer.from_crs(truth, truth.geodetic_crs, always_xy=True)
    expected = theirs.transform(*np.meshgrid(x, y))
    assert np.isfinite(expected).any()
    np.testing.assert_allclose(mine.transform(*geo.affine.at(columns, rows)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MAPPINGS)
def test_a_grid_mapping(name, tmp_path) -> None:
    mapping = attributes_of(name)
    check(tmp_path / "f.zarr", pyproj.CRS.from_cf(mapping), *write(tmp_path / "f.zarr", mapping))


def test_a_grid_mapping_with_its_coordinates_named(tmp_path) -> None:
    """CF 5.6's longer form, `mapping: coordinates`."""
    mapping = attributes_of("lambert_conformal_conic")
    y, x = write(tmp_path / "f.zarr", mapping, "crs: x y")
    check(tmp_path / "f.zarr", pyproj.CRS.from_cf(mapping), y, x)


def test_no_grid_mapping_is_left_out() -> None:
    """The appendix's names, as of CF 1.11."""
    assert len({name.partition(",")[0] for name in MAPPINGS}) == 16

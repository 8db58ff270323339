"""Hard cases of CF and of grids, as xarray writes them, and what they mean by PROJ and by construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .written import DATES, SHAPE, UNSAID, UTM, Six, Truth, centres, days, values

pyproj = pytest.importorskip("pyproj", reason="pyproj gives the CRSs")
xarray = pytest.importorskip("xarray", reason="xarray is the writer")

GOES = {
    "grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0,
    "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414, "latitude_of_projection_origin": 0.0,
    "longitude_of_projection_origin": -75.0, "sweep_angle_axis": "x",
}  # fmt: skip
# ABI's fixed grid of the Mesoscale kind: steps of 56 µrad.
STEP = 56e-6
SCANNED: Six = (STEP, 0.0, -0.04, 0.0, -STEP, 0.1)
ROTATED_POLE = {
    "grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0, "north_pole_grid_longitude": 0.0,
}  # fmt: skip
DEGREES: Six = (0.5, 0.0, 5.0, 0.0, -0.5, 60.0)


def with_mapping(
    affine: Six, mapping: Mapping[str, Any] | None, attributes: tuple[Mapping[str, Any], Mapping[str, Any]],
    names: tuple[str, str] = ("y", "x"),
) -> Any:  # fmt: skip
    """A dataset whose coordinates are named and described so, with a grid mapping beside."""
    y, x = centres(affine, SHAPE)
    coordinates = {names[0]: (names[0], y, dict(attributes[0])), names[1]: (names[1], x, dict(attributes[1]))}
    opened = xarray.Dataset({"dn": (names, values())}, coordinates, {"Conventions": "CF-1.11"})
    if mapping is not None:
        opened["crs"] = ((), 0, dict(mapping))
        opened["dn"].attrs["grid_mapping"] = "crs"
    return opened


def projected(units: str) -> tuple[dict[str, str], dict[str, str]]:
    y, x = (
        {"standard_name": f"projection_{axis}_coordinate", "units": units, "axis": axis.upper()}
        for axis in "yx"
    )
    return y, x


def geographic() -> tuple[dict[str, str], dict[str, str]]:
    return (
        {"standard_name": "latitude", "units": "degrees_north"},
        {"standard_name": "longitude", "units": "degrees_east"},
    )


def pack(opened: Any, affine: Six) -> None:
    """int16 coordinates, as many agencies store them."""
    for name, step, corner in (("y", affine[4], affine[5]), ("x", affine[0], affine[2])):
        opened[name].encoding = {"dtype": "int16", "scale_factor": step, "add_offset": corner + step / 2}


def utm() -> dict[str, Any]:
    return dict(pyproj.CRS(32632).to_cf())


Made = tuple[Any, dict[str, Any]]


def packed() -> Made:
    opened = with_mapping(UTM, utm(), projected("m"))
    pack(opened, UTM)
    return opened, {"crs": "EPSG:32632", "affine": UTM}


def goes_in_packed_radians() -> Made:
    opened = with_mapping(SCANNED, GOES, projected("rad"))
    pack(opened, SCANNED)
    height = GOES["perspective_point_height"]
    return opened, {"crs": pyproj.CRS.from_cf(GOES).to_wkt(), "affine": tuple(height * n for n in SCANNED)}


def goes_in_microradians() -> Made:
    opened = with_mapping(tuple(1e6 * n for n in SCANNED), GOES, projected("microradian"))
    height = GOES["perspective_point_height"]
    return opened, {"crs": pyproj.CRS.from_cf(GOES).to_wkt(), "affine": tuple(height * n for n in SCANNED)}


def goes_in_metres() -> Made:
    metres: Six = tuple(GOES["perspective_point_height"] * n for n in SCANNED)
    opened = with_mapping(metres, GOES, projected("m"))
    return opened, {"crs": pyproj.CRS.from_cf(GOES).to_wkt(), "affine": metres}


def from_0_to_360() -> Made:
    affine = (360 / SHAPE[1], 0.0, 0.0, 0.0, -180 / SHAPE[0], 90.0)
    opened = with_mapping(affine, None, geographic(), ("lat", "lon"))
    return opened, {"crs": "OGC:CRS84", "affine": affine}


def gaussian() -> Made:
    opened = with_mapping(DEGREES, None, geographic(), ("lat", "lon"))
    sines, _ = np.polynomial.legendre.leggauss(SHAPE[0])
    latitudes = np.degrees(np.arcsin(sines))[::-1]
    return opened.assign_coords(lat=("lat", latitudes, opened["lat"].attrs)), {
        "crs": "OGC:CRS84", "affine": None,
    }  # fmt: skip


def swath() -> Made:
    y, x = centres(DEGREES, SHAPE)
    columns, rows = np.meshgrid(x, y)
    attributes = geographic()
    coordinates = {
        "lat": (("line", "pixel"), rows + columns / 10, attributes[0]),
        "lon": (("line", "pixel"), columns - rows / 10, attributes[1]),
    }
    opened = xarray.Dataset({"dn": (("line", "pixel"), values())}, coordinates)
    return opened, {"crs": UNSAID, "affine": None}


def south_up() -> Made:
    affine = (10.0, 0.0, 300000.0, 0.0, 10.0, 4990000.0)
    return with_mapping(affine, utm(), projected("m")), {"crs": "EPSG:32632", "affine": affine}


def kilometres() -> Made:
    """As OSI SAF's sea ice: a polar stereographic grid whose coordinates are in km."""
    mapping = {
        "grid_mapping_name": "polar_stereographic", "straight_vertical_longitude_from_pole": -45.0,
        "latitude_of_projection_origin": 90.0, "standard_parallel": 70.0, "semi_major_axis": 6378273.0,
        "semi_minor_axis": 6356889.44891, "false_easting": 0.0, "false_northing": 0.0,
    }  # fmt: skip
    affine = (10.0, 0.0, -3850.0, 0.0, -10.0, 5850.0)
    opened = with_mapping(affine, mapping, projected("km"), ("yc", "xc"))
    return opened, {"crs": pyproj.CRS.from_cf(mapping).to_wkt(), "affine": tuple(1000 * n for n in affine)}


def rotated_pole() -> Made:
    affine = (0.11, 0.0, -5.0, 0.0, 0.11, -4.0)
    attributes = tuple(
        {"standard_name": f"grid_{name}", "units": "degrees"} for name in ("latitude", "longitude")
    )
    opened = with_mapping(affine, ROTATED_POLE, attributes, ("rlat", "rlon"))  # type: ignore[arg-type]
    return opened, {"crs": pyproj.CRS.from_cf(ROTATED_POLE).to_wkt(), "affine": affine}


def transposed() -> Made:
    opened = with_mapping(UTM, utm(), projected("m")).transpose("x", "y")
    return opened, {"crs": "EPSG:32632", "affine": UTM}


def days_of_360() -> Made:
    cftime = pytest.importorskip("cftime", reason="cftime has the calendar")
    dates = [cftime.Datetime360Day(2024, 2, day) for day in (28, 29, 30)]
    opened = with_mapping(UTM, utm(), projected("m")).expand_dims(time=dates)
    return opened, {"crs": "EPSG:32632", "affine": UTM, "times": ("2024-02-28", "2024-02-29", "2024-02-30")}


def still_moment() -> Made:
    opened = with_mapping(UTM, utm(), projected("m")).assign_coords(time=DATES[0])
    return opened, {"crs": "EPSG:32632", "affine": UTM, "times": days(DATES[:1])}


CASES: Mapping[str, Callable[[], Made]] = {
    "packed coordinates": packed,
    "GOES, packed radians": goes_in_packed_radians,
    "GOES, µrad": goes_in_microradians,
    "GOES, metres": goes_in_metres,
    "0–360": from_0_to_360,
    "Gaussian": gaussian,
    "swath": swath,
    "south-up": south_up,
    "km": kilometres,
    "rotated pole": rotated_pole,
    "transposed": transposed,
    "360_day": days_of_360,
    "one moment": still_moment,
}


def write(name: str, place: Path, zarr_format: int) -> Iterator[Truth]:
    opened, truth = CASES[name]()
    path = place / "hard.zarr"
    opened.to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
    yield Truth(path, **truth)

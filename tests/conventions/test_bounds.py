"""Bounds of coordinates say where the cells are; what they say otherwise than the centres do is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Finding, GeoModel
from zstore.geo.conventions.read import read_geo
from zstore.geo.rasters import zarr_to_raster

pytest.importorskip("pyproj", reason="CRSs are parsed with pyproj (extra 'geo')")
xr = pytest.importorskip("xarray", reason="xarray writes bounds, and says what packed ones are")
pytest.importorskip("zarr", reason="zarr-python writes for xarray")

LON, LAT = 10 + 0.5 * np.arange(8), 60 - 0.25 * np.arange(6)


def around(centres: np.ndarray, before: float = 0.5) -> np.ndarray:
    """The edges of cells as far apart as their centres, of which a part lies before each."""
    step = centres[1] - centres[0]
    return np.stack([centres - before * step, centres + (1 - before) * step], axis=1)


def write(
    place: Path,
    lat: np.ndarray,
    lon: np.ndarray,
    bounds: dict[str, Any],
    zarr_format: Any = 3,
    pack: Any = None,
) -> tuple[GeoModel, list[Finding]]:
    """What is read of a dataset that xarray writes, with those bounds."""
    words = {"lat": ("latitude", "degrees_north"), "lon": ("longitude", "degrees_east")}
    dataset = xr.Dataset(
        {"v": (("lat", "lon"), np.zeros((len(lat), len(lon)), "f4"), {"grid_mapping": "crs"})}
    )
    dataset["crs"] = ((), 0, {"grid_mapping_name": "latitude_longitude", "earth_radius": 6371229.0})
    for name, values in (("lat", lat), ("lon", lon)):
        said = {"standard_name": words[name][0], "units": words[name][1]}
        if name in bounds:
            dataset[f"{name}_bnds"] = ((name, "nv"), bounds[name])
            said["bounds"] = f"{name}_bnds"
        dataset[name] = ((name,), values, said)
    encoding = {f"{name}_bnds": pack for name in bounds} if pack else {}
    dataset.to_zarr(place, zarr_format=zarr_format, consolidated=False, encoding=encoding)
    return read_geo(zstore.open_group(place, mode="r"))


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in findings]


def edges_of(place: Path) -> tuple[float, float, float, float]:
    """West, south, east and north of what xarray decodes."""
    opened = xr.open_zarr(place, consolidated=False)
    lon, lat = opened["lon_bnds"].values, opened["lat_bnds"].values
    return float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max())


def test_half_way_bounds_say_nothing_new(tmp_path: Path) -> None:
    plain, _ = write(tmp_path / "plain", LAT, LON, {})
    for number, edges in enumerate((around(LAT), around(LAT)[:, ::-1])):
        geo, findings = write(tmp_path / f"{number}", LAT, LON, {"lat": edges, "lon": around(LON)})
        assert (geo.affine, told(findings)) == (plain.affine, [])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "pack", [None, {"dtype": "int16", "scale_factor": 0.0625, "add_offset": 40.0, "_FillValue": -9}]
)
@pytest.mark.parametrize("before", [0.0, 1.0, 0.25])
def test_the_extent_is_that_of_the_bounds(tmp_path: Path, before: float, pack: Any, zarr_format: Any) -> None:
    """Values may be any place of a cell, such as its corner; packed bounds are unpacked as xarray does."""
    bounds = {"lat": around(LAT, before), "lon": around(LON, before)}
    geo, findings = write(tmp_path / "z", LAT, LON, bounds, zarr_format, pack)
    np.testing.assert_allclose(geo.bounds, edges_of(tmp_path / "z"), atol=1e-9)
    np.testing.assert_allclose(geo.affine[4], -0.25, atol=1e-9)
    assert told(findings) == [("GZ-29", "warning")] * 2


def test_one_row_and_irregular_values_are_placed_by_their_bounds(tmp_path: Path) -> None:
    one = np.array([[51.0, 50.0]])
    geo, findings = write(tmp_path / "a", np.array([50.5]), LON, {"lat": one, "lon": around(LON)})
    np.testing.assert_allclose(geo.affine, (0.5, 0, 9.75, 0, -1, 51))
    assert told(findings) == []
    uneven = LON + np.array([0.1, -0.1] * 4)
    geo, findings = write(tmp_path / "b", LAT, uneven, {"lat": around(LAT), "lon": around(LON)})
    np.testing.assert_allclose(geo.bounds, edges_of(tmp_path / "b"), atol=1e-9)
    assert told(findings) == [("GZ-29", "warning")]


def spoilt(how: str) -> tuple[dict[str, np.ndarray], tuple[str, str]]:
    lat, lon = around(LAT), around(LON)
    if how == "outside":
        lon = lon + 3.0
    elif how == "gaps":
        lon = np.stack([LON - 0.1, LON + 0.1], axis=1)
    elif how == "cut at the end":
        lat[0, 0] = 60.0
    elif how == "missing":
        lon[2, 1] = np.nan
    elif how == "empty":
        lon[2] = 3.0
    elif how == "three":
        lat, lon = (np.concatenate([edges, edges[:, :1]], axis=1) for edges in (lat, lon))
    severity = {"gaps": "warning", "cut at the end": "note"}.get(how, "error")
    return {"lat": lat, "lon": lon}, ("GZ-29", severity)


@pytest.mark.parametrize("how", ["outside", "gaps", "cut at the end", "missing", "empty", "three"])
def test_bounds_that_contradict_are_told_and_the_values_count(tmp_path: Path, how: str) -> None:
    bounds, finding = spoilt(how)
    geo, findings = write(tmp_path / "z", LAT, LON, bounds)
    np.testing.assert_allclose(geo.affine, (0.5, 0, 9.75, 0, -0.25, 60.125))
    assert told(findings) == [finding] * (2 if how == "three" else 1)


def test_bounds_that_are_not_there_and_units_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "z", LAT, LON, {"lon": around(LON, 0)})
    group = zstore.open_group(tmp_path / "z")
    for units, wanted in (("degree_east", "warning"), ("radians", "error"), (7, "error")):
        group["lon_bnds"].attrs["units"] = units
        geo, findings = read_geo(zstore.open_group(tmp_path / "z", mode="r"))
        assert told(findings) == [("GZ-29", wanted)]
        assert geo.affine.c == (10.0 if wanted == "warning" else 9.75)
    del group["lon_bnds"]
    assert told(read_geo(zstore.open_group(tmp_path / "z", mode="r"))[1]) == [("GZ-29", "note")]


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
def test_levels_and_rasters_lie_where_the_bounds_are(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasters are written with rasterio")
    write(tmp_path / "z", LAT, LON, {"lat": around(LAT, 0), "lon": around(LON, 0)})
    zarr_to_raster(tmp_path / "z", tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as raster:
        np.testing.assert_allclose(raster.bounds, edges_of(tmp_path / "z"), atol=1e-9)
    made = zstore.build_pyramid(tmp_path / "z", tmp_path / "p", levels=1)
    for level in read_geo(made)[0].levels:
        np.testing.assert_allclose(level.affine.bounds(level.shape), edges_of(tmp_path / "z"), atol=1e-9)


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["regular", "cut at the poles", "uneven"])
def test_every_level_has_bounds(tmp_path: Path, kind: str, zarr_format: Any) -> None:
    """As CMIP's files have them; the last level's cells reach beyond the last row."""
    lat, lon = -87.5 + 5 * np.arange(36), 2.5 + 5.0 * np.arange(70)
    if kind == "cut at the poles":
        lat = -90 + 5 * np.arange(37.0)
    edges = np.clip(around(lat), -90, 90)
    if kind == "uneven":
        ends = np.sin(np.linspace(-1.5, 1.5, 37)) * 90
        edges = np.stack([ends[:-1], ends[1:]], axis=1)
        lat = edges.mean(1)
    write(tmp_path / "z", lat, lon, {"lat": edges, "lon": around(lon)}, zarr_format)
    group = zstore.open_group(tmp_path / "z")
    made = zstore.build_pyramid(group, tmp_path / "p", levels=2)
    for level in ("0", "1", "2"):
        for name, of in (("lat", edges), ("lon", around(lon))):
            coordinate, bounds = made[f"{level}/{name}"], made[f"{level}/{name}_bnds"]
            assert coordinate.attrs["bounds"] == f"{name}_bnds"
            assert bounds.shape == (*coordinate.shape, 2) and bounds.dims == (name, "nv")
            stored, size = bounds[...], 2 ** int(level)
            whole = len(of) // size
            np.testing.assert_allclose(stored[:whole, 0], of[: whole * size : size, 0], atol=1e-9)
            np.testing.assert_allclose(stored[:whole, 1], of[size - 1 : whole * size : size, 1], atol=1e-9)
    verdict = zstore.validate(tmp_path / "p")
    assert {(f.severity, f.rule) for f in verdict.findings if f.severity != "note"} <= {("warning", "GZ-29")}

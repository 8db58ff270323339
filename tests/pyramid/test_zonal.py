"""Zonal statistics and clips: shares of cells as of polygons clipped by each cell, and GDAL's centres."""

from __future__ import annotations

import csv
import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio.features
from click.testing import CliRunner
from rasterio.transform import Affine

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import CodecError, MetadataError, NotFoundError, UnsupportedError
from zstore.geo.pyramid import zonal, zones

UTM = "EPSG:32632"
# Rows downwards, upwards, and turned.
AFFINES = [(10, 0, 600000, 0, -10, 5300000), (10, 0, 600000, 0, 10, 5300000), (8, 3, 600000, 2, -9, 5300000)]


def _array(path: Any, data: Any, affine: Any = AFFINES[0], code: str = UTM, **said: Any) -> Any:
    names = ("time", "y", "x")[-np.ndim(data) :]
    place = {"proj:code": code, "spatial:dimensions": ["y", "x"], "spatial:transform": [*affine]}
    return zstore.create_array(
        path,
        data=data,
        chunks=(1, 8, 8)[-np.ndim(data) :],
        dimension_names=names,
        attributes={**place, **said},
    )


def _polygon(*rings: Any, affine: Any = AFFINES[0]) -> dict[str, Any]:
    """A polygon of rings in cells from the corner of a grid, on the ground."""
    a, b, c, d, e, f = affine
    placed = [[[a * x + b * y + c, d * x + e * y + f] for x, y in [*ring, ring[0]]] for ring in rings]
    return {"type": "Polygon", "coordinates": placed}


def _star(rng: Any, size: float, *, hole: bool) -> list[Any]:
    x, y, radius = *rng.uniform(-2, size + 2, 2), rng.uniform(0.3, size / 2)
    rings = []
    for low, high in ((0.5, 1.0), (0.1, 0.3))[: 1 + hole]:
        angles = np.linspace(0, 2 * np.pi, rng.integers(9, 30), endpoint=False)
        lengths = radius * rng.uniform(low, high, len(angles))
        rings.append([*zip(x + lengths * np.cos(angles), y + lengths * np.sin(angles), strict=True)])
    # Either way round.
    return [ring[:: rng.choice([-1, 1])] for ring in rings]


def _clipped_area(ring: Any, column: int, row: int) -> float:
    """The area of a ring in one cell: Sutherland and Hodgman's clipping by each side, one after the other."""
    points = [*ring]
    for axis, limit, sign in ((0, column, 1), (0, column + 1, -1), (1, row, 1), (1, row + 1, -1)):
        kept = []
        for one, two in zip(points, [*points[1:], *points[:1]], strict=True):
            a, b = sign * (one[axis] - limit), sign * (two[axis] - limit)
            kept += [one] * bool(a >= 0)
            if (a >= 0) != (b >= 0):
                kept.append(tuple(p + a / (a - b) * (q - p) for p, q in zip(one, two, strict=True)))
        points = kept
    ends = zip(points, [*points[1:], *points[:1]], strict=True)
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in ends)) / 2


def _shares(rings: Any, height: int, width: int) -> Any:
    cells = np.ndindex(height, width)
    made = [_clipped_area(rings[0], x, y) - sum(_clipped_area(r, x, y) for r in rings[1:]) for y, x in cells]
    return np.reshape(made, (height, width))


def _expected(values: Any, share: Any) -> dict[str, Any]:
    """The statistics by numpy, of the last two axes."""
    share = np.where(np.isnan(values) | (share < 1e-9), 0, share)
    with np.errstate(invalid="ignore", divide="ignore"):
        count, total = share.sum((-2, -1)), (share * np.nan_to_num(values)).sum((-2, -1))
        square = share * np.nan_to_num(values - (total / count)[..., None, None]) ** 2
        variance = square.sum((-2, -1)) / count
    masked = np.ma.masked_array(values, share == 0)
    least, greatest = (np.ma.filled(f((-2, -1)), np.nan) for f in (masked.min, masked.max))
    return {
        "count": count, "sum": total, "mean": total / np.where(count, count, np.nan), "min": least,
        "max": greatest, "var": variance, "std": np.sqrt(variance),
    }  # fmt: skip


@pytest.mark.parametrize(("affine", "batch"), [(AFFINES[0], 40), (AFFINES[1], 1 << 18), (AFFINES[2], 1000)])
def test_shares_are_those_of_polygons_clipped_by_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, affine: Any, batch: int
) -> None:
    for module in (zones, zonal):
        monkeypatch.setattr(module, "BATCH_SIZE", batch)
    monkeypatch.setattr(zonal, "KEPT_COUNT", batch)
    monkeypatch.setattr("zstore.base.boxes.BLOCK_SIZE", 8 * 8 * 8 * 2)
    rng = np.random.default_rng(batch)
    data = rng.integers(-50, 50, (3, 21, 19)).astype("i2")
    data[rng.random(data.shape) < 0.1] = -99
    array = _array(tmp_path / "a", data, affine, _FillValue=-99, scale_factor=0.5, add_offset=3.0)
    values = np.where(data == -99, np.nan, data * 0.5 + 3)
    rings = [_star(rng, 20, hole=bool(n % 2)) for n in range(8)]
    made = zstore.zonal_statistics(
        array, [_polygon(*one, affine=affine) for one in rings], zonal.STATISTICS, crs=UTM
    )
    assert {name: items.shape for name, items in made.items()} == dict.fromkeys(zonal.STATISTICS, (3, 8))
    for number, one in enumerate(rings):
        for name, expected in _expected(values, _shares(one, 21, 19)).items():
            np.testing.assert_allclose(made[name][:, number], expected, rtol=1e-9, atol=1e-9, err_msg=name)


def test_centres_are_those_of_gdal(tmp_path: Path) -> None:
    rng, affine = np.random.default_rng(5), AFFINES[0]
    array = _array(tmp_path / "a", np.ones((50, 60), "f4"))
    shapes = [_polygon(*_star(rng, 50, hole=bool(n % 2))) for n in range(40)]
    made = zstore.zonal_statistics(array, shapes, ["count"], cells="centre", crs=UTM)["count"]
    for shape, count in zip(shapes, made, strict=True):
        burnt = rasterio.features.rasterize([shape], (50, 60), transform=Affine(*affine))
        assert burnt.sum() == count


def test_shared_borders_divide_every_cell(tmp_path: Path) -> None:
    """Of zones without gaps each cell's shares come to one, and each centre is in one, on borders, too."""
    cuts, array = [0, 2, 2.5, 4.5, 9], _array(tmp_path / "a", np.arange(72.0).reshape(8, 9))
    strips = [_polygon([(a, 0), (b, 0), (b, 8), (a, 8)]) for a, b in pairwise(cuts)]
    for cells in zones.CELLS:
        made = zstore.zonal_statistics(array, strips, ["sum", "count"], cells=cells, crs=UTM)
        assert (made["sum"].sum(), made["count"].sum()) == (72 * 71 / 2, 72)
    both = {"type": "MultiPolygon", "coordinates": [strips[0]["coordinates"], strips[3]["coordinates"]]}
    several = {"type": "GeometryCollection", "geometries": [both, strips[1]]}
    found = zstore.zonal_statistics(array, [several, strips[2]], ["count"], crs=UTM)
    assert found["count"].tolist() == [(2 + 4.5 + 0.5) * 8, 2 * 8]


def test_edges_are_straight_in_the_crs_of_the_zones(tmp_path: Path) -> None:
    """A parallel of two degrees bends by kilometres in UTM; shares are those of very many short edges."""
    rows = np.repeat(np.arange(40.0), 40).reshape(40, 40)
    array = _array(tmp_path / "a", rows, (5000, 0, 400000, 0, -5000, 5400000))
    corners = [(7.7, 47.2), (9.9, 47.2), (9.9, 48.3), (7.7, 48.3)]
    sides = zip(corners, [*corners[1:], corners[0]], strict=True)
    points = np.concatenate([np.linspace(a, b, 2000, endpoint=False) for a, b in sides])
    x, y = pyproj.Transformer.from_crs("OGC:CRS84", UTM, always_xy=True).transform(*points.T)
    named = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32632"}}

    def mean(ring: Any, **said: Any) -> float:
        shape = {"type": "Polygon", "coordinates": [np.asarray(ring).tolist()], **said}
        return float(zstore.zonal_statistics(array, shape)["mean"][0])

    exact, crude = mean(np.c_[x, y], crs=named), mean(np.c_[x, y][::2000], crs=named)
    assert mean(corners) == pytest.approx(exact, abs=2e-3)
    assert abs(crude - exact) > 0.03


@pytest.mark.parametrize("first", [-180, 0, -170.5])
def test_longitudes_count_from_any_meridian(tmp_path: Path, first: float) -> None:
    array = _array(tmp_path / "a", np.ones((18, 36)), (10, 0, first, 0, -10, 90), "EPSG:4326")
    boxes = [(-15, 5, 25, 15), (165, -5, 200, 5), (-195, -5, -160, 5), (350, 0, 370, 10)]
    shapes = [
        {"type": "Polygon", "coordinates": [[(w, s), (e, s), (e, n), (w, n), (w, s)]]} for w, s, e, n in boxes
    ]
    made = zstore.zonal_statistics(array, shapes, ["count"])["count"]
    np.testing.assert_allclose(made, [4, 3.5, 3.5, 2])


@pytest.mark.parametrize("cells", ["exact", "centre"])
def test_both_halves_of_an_outline_that_crosses_itself_count(tmp_path: Path, cells: str) -> None:
    array = _array(tmp_path / "a", np.arange(64.0).reshape(8, 8))
    crossed = _polygon([(0, 0), (8, 8), (8, 0), (0, 8)])
    halves = [_polygon([(0, 0), (4, 4), (0, 8)]), _polygon([(8, 8), (8, 0), (4, 4)])]
    made, apart = (
        zstore.zonal_statistics(array, zones, ("count", "sum"), cells=cells, crs=UTM)
        for zones in (crossed, halves)
    )
    for name in ("count", "sum"):
        np.testing.assert_allclose(made[name], apart[name].sum())


def test_zones_that_cover_nothing(tmp_path: Path) -> None:
    array = _array(tmp_path / "a", np.full((8, 8), np.nan))
    far = {"type": "Feature", "geometry": _polygon([(99, 99), (100, 99), (100, 100)]), "properties": None}
    inside = {"type": "Feature", "geometry": _polygon([(1, 1), (5, 1), (5, 5)]), "properties": {}}
    empty = {"type": "Feature", "geometry": None, "properties": {}}
    document = {"type": "FeatureCollection", "features": [far, inside, empty]}
    made = zstore.zonal_statistics(array, document, zonal.STATISTICS, crs=UTM)
    for name, items in made.items():
        np.testing.assert_array_equal(items, np.zeros(3) if name in ("count", "sum") else np.full(3, np.nan))
    assert zstore.zonal_statistics(array, [], crs=UTM)["mean"].shape == (0,)
    world = {
        "type": "Polygon",
        "coordinates": [[(-180, -90), (180, -90), (180, 90), (-180, 90), (-180, -90)]],
    }
    polar = _array(tmp_path / "p", np.ones((8, 8)), (1e6, 0, -4e6, 0, -1e6, 4e6), "EPSG:3031")
    with pytest.raises(MetadataError, match="zone 0 reaches beyond where EPSG:3031 is defined"):
        zstore.zonal_statistics(polar, world)


@pytest.mark.parametrize(
    ("shape", "options", "error", "match"),
    [
        ({"type": "Point"}, {}, UnsupportedError, "zone 0 is 'Point'; expected a polygon"),
        ({"type": "Polygon", "coordinates": [[(0, 0), (np.inf, 1)]]}, {}, MetadataError, "not finite"),
        ({"type": "Polygon", "coordinates": 5}, {}, MetadataError, "zone 0 has no coordinates of a polygon"),
        ({"type": "FeatureCollection", "features": [{}]}, {}, MetadataError, "feature 0 of the zones"),
        ("{", {}, MetadataError, "no GeoJSON"),
        ("[" * 100_000, {}, MetadataError, "no GeoJSON"),
        ({"type": "GeometryCollection", "geometries": 5}, {}, MetadataError, "geometries 5; expected a list"),
        ("nothing.geojson", {}, NotFoundError, "no file of zones"),
        (7, {}, MetadataError, "zones are 7"),
        ([], {"cells": "touched"}, UnsupportedError, "cells is 'touched'; expected one of exact, centre"),
        ([], {"statistics": ["median"]}, UnsupportedError, "statistic 'median'; expected some of count"),
    ],
)  # fmt: skip
def test_what_is_no_zone_is_refused(tmp_path: Path, shape: Any, options: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        zstore.zonal_statistics(_array(tmp_path / "a", np.ones((8, 8))), shape, crs=UTM, **options)
    with pytest.raises(MetadataError, match="has no CRS"):
        zstore.zonal_statistics(zstore.create_array(tmp_path / "b", data=np.ones((4, 4))), [])


def test_only_chunks_under_zones_are_read(tmp_path: Path) -> None:
    array = _array(tmp_path / "a", np.ones((32, 32)))
    (tmp_path / "a" / "c" / "3" / "3").write_bytes(b"damaged")
    made = zstore.zonal_statistics(array, _polygon([(0, 0), (24, 0), (24, 32), (0, 32)]), ["sum"], crs=UTM)
    assert made["sum"].tolist() == [24 * 32]
    seen = list[Any]()
    with pytest.raises(CodecError):
        around = _polygon([(0, 0), (25, 0), (25, 32), (0, 32)])
        zstore.zonal_statistics(array, around, crs=UTM, progress=lambda *said: seen.append(said))


def test_clipped_views_have_nodata_beside_zones(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 9, (2, 40, 50)).astype("u1")
    array, ring = _array(tmp_path / "a", data), [(8.4, 6.2), (30.7, 11.1), (12.4, 33.9)]
    made = zstore.clip(array, _polygon(ring), nodata=255, crs=UTM)
    burnt = rasterio.features.rasterize([_polygon(ring)], (40, 50), transform=Affine(*AFFINES[0]))
    window = np.s_[:, 6:34, 8:31]
    expected = np.where(burnt, data, 255)[window]
    np.testing.assert_array_equal(made.read(), expected)
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again[1, 3:20:2, ::-1].read(), expected[1, 3:20:2, ::-1])
    stored: Any = zstore.convert(made, tmp_path / "b", resume=True)
    assert zstore.GeoGrid.of(stored).affine[2::3] == (600080, 5299940)
    assert stored["a"].fill_value == 255
    shares = _shares([ring], 40, 50)[6:34, 8:31]
    touched = zstore.clip(array, _polygon(ring), nodata=255, cells="exact", crs=UTM).read()
    np.testing.assert_array_equal(touched != 255, np.broadcast_to(shares > 1e-9, touched.shape))
    with pytest.raises(MetadataError, match="no nodata for cells beside zones"):
        zstore.clip(array, _polygon(ring), crs=UTM)
    with pytest.raises(MetadataError, match="no zone lies on a cell"):
        zstore.clip(array, _polygon([(99, 99), (100, 99), (100, 100)]), nodata=255, crs=UTM)
    with pytest.raises(ValueError, match="256"):
        zstore.clip(array, _polygon(ring), nodata=256, crs=UTM)


def test_rows_have_the_values_of_coordinates(tmp_path: Path) -> None:
    pytest.importorskip("cftime", reason="dates of such calendars are read with cftime")
    group = zstore.create_group(tmp_path / "g")
    place = {"proj:code": UTM, "spatial:dimensions": ["y", "x"], "spatial:transform": [*AFFINES[0]]}
    names = ("time", "level", "station", "y", "x")
    group.create_array("t", data=np.ones((2, 2, 2, 4, 4)), dimension_names=names, attributes=place)
    coordinates: dict[str, Any] = {
        "level": (np.array([1, 7], "i2"), {"scale_factor": 100.0, "add_offset": 0.5}),
        "station": (np.array([b"a", "ä".encode()]), {}),
        "time": (np.array([1, -9]), {"units": "days since 2021-02-28", "_FillValue": -9}),
    }
    for name, (items, said) in coordinates.items():
        group.create_array(name, data=items, dimension_names=(name,), attributes=said)
    square = _polygon([(0, 0), (4, 0), (4, 4), (0, 4)])
    expected = {"level": [100.5, 700.5], "station": ["a", "ä"]}
    times: list[Any] = ["2021-03-01", None]
    assert zstore.zonal_statistics(group, square, crs=UTM).labels == {"time": times, **expected}
    group["time"].update_attributes({"units": "days since 2021-02-29", "calendar": "all_leap"})
    times[0] += "T00:00:00"
    assert zstore.zonal_statistics(group["t"], square, crs=UTM).labels == {"time": times, **expected}


def test_the_command_writes_tables(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "g")
    place = {"proj:code": UTM, "spatial:dimensions": ["y", "x"], "spatial:transform": [*AFFINES[0]]}
    data = np.arange(32.0).reshape(2, 4, 4)
    group.create_array("t", data=data, dimension_names=("time", "y", "x"), attributes=place)
    said = {"units": "days since 2020-01-30"}
    group.create_array("time", data=np.array([0, 31]), dimension_names=("time",), attributes=said)
    square = _polygon([(0, 0), (4, 0), (4, 4), (0, 4)])
    features: list[Any] = [
        {"type": "Feature", "id": "ä", "properties": {"mean": 7, "crop": "rye"}, "geometry": square},
        {"type": "Feature", "properties": {}, "geometry": None},
    ]
    named = {"type": "name", "properties": {"name": UTM}}
    path = tmp_path / "z.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "crs": named, "features": features}))

    def run(*words: str) -> Any:
        return CliRunner().invoke(command, ["zonal", str(tmp_path / "g"), str(path), *words])

    table = tmp_path / "t.csv"
    made = run(str(table), "--statistics", "mean,count")
    assert made.exit_code == 0, made.output
    with table.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    said = {"zone": "ä", "zone.mean": "7", "crop": "rye", "time": "2020-01-30"}
    assert rows[0] == {**said, "mean": "7.5", "count": "16.0"}
    assert [row["time"] for row in rows] == ["2020-01-30", "2020-03-01"] * 2 and rows[3]["zone"] == "1"
    shown = json.loads(run("--json", "--statistics", "mean", "--select", "time=2020-03").output)
    assert [row["mean"] for row in shown["rows"]] == [23.5, "NaN"]
    assert "23.5" in run().output and run("t.txt").exit_code == 2

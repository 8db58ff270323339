"""STAC items of stores: what they say, and that cubes are made of them."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.base import Affine, GeoModel
from zstore.geo.conventions.crs import Crs
from zstore.geo.report.stac import outline, stac_item
from zstore.storage.memory import MemoryStore

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
UTM = [10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0]
ON_EARTH = {"proj:code": "EPSG:32632", "spatial:transform": UTM, "spatial:dimensions": ["y", "x"]}


def scene(store: Any, **attributes: Any) -> zstore.Group:
    """A raster of two bands."""
    group = zstore.create_group(store, attributes=ON_EARTH | attributes)
    said: dict[str, Any] = {"_FillValue": 0, "scale_factor": 1e-4, "units": "1", "long_name": "red"}
    said["bands"] = [{"name": "B4", "eo:common_name": "red"}]
    red = np.arange(1, 2401, dtype="u2").reshape(40, 60)
    group.create_array("b4", data=red, dimension_names=["y", "x"], attributes=said, fill_value=0)
    group.create_array("b5", data=red.astype("f4"), dimension_names=["y", "x"], fill_value=np.nan)
    return group


def test_the_items_of_scenes_make_a_cube(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for day in (1, 2):
        scene(f"in/s{day}.zarr")
        zstore.build_pyramid(f"in/s{day}.zarr", f"s{day}.zarr", levels=2, method="average")
        line = ["stac", f"s{day}.zarr", f"s{day}.json", "--datetime", f"2020-05-0{day}T12:00+02:00"]
        assert CliRunner().invoke(command, line).output == f"s{day}.json: the item 's{day}'\n"
    item = json.loads((tmp_path / "s1.json").read_text())
    assert item["properties"]["datetime"] == "2020-05-01T10:00:00Z"
    assert {name: asset["href"] for name, asset in item["assets"].items()} == {
        "store": "s1.zarr", "b4": "s1.zarr/0/b4", "b5": "s1.zarr/0/b5",
    }  # fmt: skip
    line = ["cube", "s1.json", "s2.json", "cube.zarr", "--bands", "b4"]
    assert CliRunner().invoke(command, line).exit_code == 0
    made = zstore.open_group("cube.zarr", mode="r")
    assert made["b4"].shape == (2, 40, 60) and (made["b4"][1] == zstore.open_array("s2.zarr/0/b4")[...]).all()
    said = stac_item("cube.zarr")
    assert said == stac_item(made)
    assert said["properties"]["start_datetime"] == "2020-05-01T00:00:00Z"
    assert said["properties"]["cube:dimensions"]["time"]["values"][1] == "2020-05-02T00:00:00Z"
    assert said["properties"]["cube:variables"]["b4"]["dimensions"] == ["time", "y", "x"]


def test_what_is_said_of_values_and_axes() -> None:
    item = stac_item(scene(MemoryStore()), href="s3://bucket/scene.zarr", datetime=datetime.date(2020, 5, 1))
    names = [url.split("/")[3] for url in item["stac_extensions"]]
    assert item["id"] == "scene" and names == ["projection", "datacube", "zarr", "raster", "eo"]
    said, red = item["properties"], item["assets"]["b4"]
    assert said["datetime"] == "2020-05-01T00:00:00Z" and said["proj:shape"] == [40, 60]
    assert said["proj:transform"] == UTM and said["proj:bbox"] == [300000.0, 4999640.0, 300600.0, 5000040.0]
    assert said["cube:dimensions"] == {
        "y": {"type": "spatial", "axis": "y", "extent": [4999640.0, 5000040.0], "step": 10.0,
              "reference_system": 32632},
        "x": {"type": "spatial", "axis": "x", "extent": [300000.0, 300600.0], "step": 10.0,
              "reference_system": 32632},
    }  # fmt: skip
    assert said["cube:variables"]["b5"] == {
        "dimensions": ["y", "x"], "type": "data", "data_type": "float32", "nodata": "nan",
    }  # fmt: skip
    assert (red["nodata"], red["raster:scale"], red["unit"]) == (0, 1e-4, "1")
    assert red["bands"][0]["eo:common_name"] == "red" and red["zarr:node_type"] == "array"
    json.dumps(item, allow_nan=False)


def test_grids_beside_each_other_are_all_in_it() -> None:
    group = scene(MemoryStore())
    half = {"spatial:transform": [20.0, 0.0, 300000.0, 0.0, -20.0, 5000040.0]}
    data = np.ones((20, 30), "u2")
    group.create_array("b8", data=data, dimension_names=["y", "x"], attributes=half)
    group.create_array("b9", data=data, dimension_names=["yy", "xx"],
                       attributes={**half, "spatial:dimensions": ["yy", "xx"]})  # fmt: skip
    item = stac_item(group, href="s.zarr", datetime="2020-01-01")
    assert {*item["assets"]} == {"store", "b4", "b5", "b8", "b9"}
    assert item["assets"]["b8"]["proj:shape"] == [20, 30] and item["properties"]["proj:shape"] == [40, 60]
    axes = item["properties"]["cube:dimensions"]
    assert (
        axes["xx"]["step"] == 20 and axes["xx"]["extent"] == axes["x"]["extent"] and "step" not in axes["x"]
    )


def test_the_stores_own_item_is_kept() -> None:
    own = {
        "type": "Feature", "stac_version": "1.0.0", "id": "own", "stac_extensions": ["https://x/y.json"],
        "geometry": None, "properties": {"datetime": "2019-01-01T00:00:00Z", "platform": "p"},
        "links": [{"rel": "license", "href": "https://x/l"}],
        "assets": {"view": {"href": "./view.png"}, "page": {"href": "https://x/p"}},
    }  # fmt: skip
    group = scene(MemoryStore(), **{"stac:item": own, "stac:encoding": "attribute"})
    item = stac_item(group, href="a/b.zarr/")
    assert item["id"] == "own" and item["links"] == own["links"] and item["stac_version"] == "1.1.0"
    assert item["properties"]["platform"] == "p" and item["properties"]["datetime"] == "2019-01-01T00:00:00Z"
    assert item["stac_extensions"][0] == "https://x/y.json" and item["geometry"]["type"] == "Polygon"
    hrefs = {name: asset["href"] for name, asset in item["assets"].items()}
    assert (hrefs["view"], hrefs["page"], hrefs["b5"]) == ("a/b.zarr/view.png", "https://x/p", "a/b.zarr/b5")
    assert (
        stac_item(group, id="mine", datetime="2021-02-03")["properties"]["datetime"] == "2021-02-03T00:00:00Z"
    )


def test_dimensions_beside_the_grids_are_listed_or_have_ends() -> None:
    group = zstore.create_group(MemoryStore(), attributes=ON_EARTH)
    dims = ["member", "level", "step", "when", "y", "x"]
    group.create_array("t", shape=(2, 3, 1200, 2, 4, 6), dtype="f4", dimension_names=dims)
    for name, values, said in (
        ("member", np.array(["a", "b"]), {}),
        ("level", np.array([1000.0, 850.0, 500.0]), {"units": "hPa", "positive": "down"}),
        ("step", np.arange(1200), {}),
        (
            "when",
            np.array([0, 1]),
            {"units": "days since 2000-01-01", "standard_name": "forecast_reference_time"},
        ),
    ):
        group.create_array(name, data=values, dimension_names=[name], attributes=said)
    axes = stac_item(group, datetime="2020-01-01")["properties"]["cube:dimensions"]
    assert axes["member"] == {"type": "member", "values": ["a", "b"]}
    assert axes["level"] == {"type": "spatial", "axis": "z", "values": [1000, 850, 500], "unit": "hPa"}
    assert axes["step"] == {"type": "step", "extent": [0, 1199]}
    assert axes["when"]["values"] == ["2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z"]


@pytest.mark.parametrize(
    ("code", "numbers", "shape", "kind", "box"),
    [
        ("OGC:CRS84", (2.5, 0, -1.25, 0, -2.5, 91.25), (73, 144), "Polygon", [-180, -90, 180, 90]),
        ("OGC:CRS84", (1, 0, 169.5, 0, -1, -19.5), (20, 20), "MultiPolygon", [169.5, -39.5, -170.5, -19.5]),
        ("OGC:CRS84", (1, 0, 200, 0, -1, 10), (5, 6), "Polygon", [-160, 5, -154, 10]),
        (
            "EPSG:32701",
            (1000, 0, 100000, 0, -1000, 8100000),
            (300, 300),
            "MultiPolygon",
            [179.18, -19.89, -177.94, -17.15],
        ),
        (
            "EPSG:3413",
            (25000, 0, -3850000, 0, -25000, 5850000),
            (448, 304),
            "Polygon",
            [-180, 30.98, 180, 90],
        ),
        (
            "EPSG:3031",
            (25000, 0, -3950000, 0, -25000, 4350000),
            (332, 316),
            "Polygon",
            [-180, -90, 180, -39.36],
        ),
        ("EPSG:32632", (8, 6, 300000, 6, -8, 5000000), (50, 60), "Polygon", [6.457, 45.122, 6.467, 45.129]),
    ],
)
def test_outlines_in_degrees(code, numbers, shape, kind, box) -> None:
    made, geometry = outline(GeoModel(Crs.from_user(code), Affine(*map(float, numbers)), shape))
    np.testing.assert_allclose(made, box, atol=0.006)
    assert geometry["type"] == kind
    parts = geometry["coordinates"]
    for ring in parts if kind == "Polygon" else [part[0] for part in parts]:
        lon, lat = np.array(ring).T
        assert ring[0] == ring[-1] and (np.abs(lon) <= 180).all() and (np.abs(lat) <= 90).all()
        assert np.sum(lon[:-1] * lat[1:] - lon[1:] * lat[:-1]) > 0
    assert outline(GeoModel(None, Affine(*UTM), shape)) == (None, None)


@pytest.mark.parametrize(
    ("make", "options", "kind", "text"),
    [
        (lambda: scene(MemoryStore()), {}, MetadataError, "expected datetime"),
        (lambda: scene(MemoryStore()), {"datetime": "soon"}, MetadataError, "'soon'; expected a date"),
        (
            lambda: scene(MemoryStore()),
            {"datetime": "2000-02-30"},
            UnsupportedError,
            "no date of STAC's calendar",
        ),
        (lambda: zstore.create_group(MemoryStore()), {"datetime": "2020-01-01"}, MetadataError, "no raster"),
    ],
)
def test_what_has_no_item_is_refused(make, options, kind, text) -> None:
    with pytest.raises(kind, match=text):
        stac_item(make(), **options)


def test_a_file_of_another_format_has_no_item(tmp_path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are written by rasterio (extra 'raster')")
    kinds = {"driver": "GTiff", "width": 6, "height": 4, "count": 1, "dtype": "uint8", "crs": "EPSG:32632"}
    with rasterio.open(tmp_path / "a.tif", "w", **kinds, transform=rasterio.Affine(*UTM)) as raster:
        raster.write(np.ones((1, 4, 6), "u1"))
    with pytest.raises(UnsupportedError, match="expected a Zarr store"):
        stac_item(zstore.open(tmp_path / "a.tif"), datetime="2020-01-01")

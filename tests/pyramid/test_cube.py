"""Cubes of STAC items: cells as of each scene reprojected, sorted into days, opened when they are read."""

from __future__ import annotations

import json
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import zstore
from zstore.errors import ChangedError, MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.geo.rasters.files import FileArray
from zstore.storage.url import use_storage_options

# (zone, easting, date, band of 20 m half a cell beside) of each scene: two zones on one day, one scene twice.
SCENES = [
    (32, 700000, "2020-05-02T10:00:00Z"),
    (33, 254000, "2020-05-02T12:20:00+02:00"),
    (32, 700300, "2020-05-01T10:00:00Z"),
]
ORBIT = {"time": "orbit", "bands": "B04"}


@pytest.fixture
def items(tmp_path: Path) -> dict[str, Any]:
    """A collection of items whose assets are arrays in a directory beside it."""
    made = []
    for number, (zone, east, moment) in enumerate(SCENES):
        assets: dict[str, Any] = {}
        for band, size, common, shift in (("B04", 10, "red", 0), ("B05", 20, "rededge", 5)):
            length = 600 // size
            data = np.random.default_rng(number).integers(1, 100, (length, length)).astype("u2")
            data[: length // 3] = 0
            place = {
                "proj:code": f"EPSG:326{zone}",
                "proj:transform": [size, 0, east + shift, 0, -size, 5300000],
            }
            said = {
                "spatial:transform": place["proj:transform"],
                "spatial:dimensions": ["y", "x"],
                "_FillValue": 0,
            }
            name = f"s{number}_{band}.zarr"
            zstore.create_array(
                tmp_path / name, data=data, chunks=(16, 16), dimension_names=("y", "x"),
                attributes={**said, "proj:code": place["proj:code"]},
            )  # fmt: skip
            value = {"data_type": "uint16", "nodata": 0, "scale": 0.01, "offset": -0.1, "unit": "1"}
            assets[band] = {
                **place, "href": f"./{name}", "type": "application/vnd+zarr", "roles": ["data"],
                "proj:shape": [length, length], "raster:bands": [value],
                "eo:bands": [{"name": band, "common_name": common}],
            }  # fmt: skip
        assets["thumbnail"] = {"href": "t.jpg", "type": "image/jpeg", "roles": ["thumbnail"]}
        properties = {"datetime": moment, "platform": "a", "sat:absolute_orbit": number // 2}
        made.append({"type": "Feature", "id": f"s{number}", "properties": properties, "assets": assets})
    document = {"type": "FeatureCollection", "features": made}
    (tmp_path / "items.json").write_text(json.dumps(document))
    return document


def _expected(folder: Path, grid: Any, numbers: Any, band: str = "B04", how: str = "nearest") -> Any:
    paths = [folder / f"s{number}_{band}.zarr" for number in numbers]
    return zstore.mosaic(paths, grid, resampling=how).read()


def test_days_are_mosaics_of_their_scenes(items: Any, tmp_path: Path) -> None:
    grid = zstore.GeoGrid.around([tmp_path / "s0_B04.zarr", tmp_path / "s1_B04.zarr"], resolution=10)
    for item in items["features"]:
        (tmp_path / item["assets"]["B05"]["href"] / "c").rename(tmp_path / f"hidden{item['id']}")
    made = zstore.cube(tmp_path / "items.json", grid, "B04")
    # Scenes are sorted by time; the second one's local hour is before the first one's.
    expected = np.stack([_expected(tmp_path, grid, one) for one in ([2], [0, 1])])
    assert made.shape == (2, *grid.shape) and made.dtype == "u2"
    np.testing.assert_array_equal(made.read(), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(made))[1, 20:40].read(), expected[1, 20:40])
    with pytest.raises(StoreError, match=r"cannot replace what holds '.*s0_B04\.zarr'"):
        zstore.convert(made, tmp_path / "s0_B04.zarr", overwrite=True)
    each = zstore.cube(str(tmp_path / "items.json"), grid, "red", time="item")
    np.testing.assert_array_equal(each[1].read(), _expected(tmp_path, grid, [0]))
    orbits = zstore.cube(tmp_path / "items.json", grid, "B04", time="orbit")
    np.testing.assert_array_equal(orbits.read(), expected)
    items["features"][2]["properties"]["datetime"] = "2020-05-02"
    (tmp_path / "one_day.json").write_text(json.dumps(items))
    last, first = (zstore.cube(tmp_path / "one_day.json", grid, "B04", first=one)[0].read() for one in (0, 1))
    np.testing.assert_array_equal(last, _expected(tmp_path, grid, [2, 0, 1]))
    assert (last != first).any() and (last[first == 0] == 0).all()


def test_bands_of_other_resolutions_come_with_time_names_and_packing(items: Any, tmp_path: Path) -> None:
    shown = zstore.cube(
        tmp_path / "items.json", None, ["B04", "rededge"], resolution=10, resampling="bilinear"
    )
    grid = zstore.GeoGrid.of(shown)
    assert grid.crs.code == "EPSG:32632" and shown.shape == (2, 2, *grid.shape)
    for number, band in enumerate(("B04", "B05")):
        wanted = _expected(tmp_path, grid, [0, 1], band, "bilinear")
        np.testing.assert_array_equal(shown[1, number].read(), wanted)
    stored: Any = zstore.convert(shown, tmp_path / "cube.zarr")
    assert stored["data"].dims == ("time", "band", "y", "x") and stored["data"].fill_value == 0
    with xarray.open_dataset(tmp_path / "cube.zarr", engine="zstore") as dataset:
        assert dataset.time.values.astype("datetime64[D]").astype(str).tolist() == [
            "2020-05-01",
            "2020-05-02",
        ]
        cells = np.where(stored["data"][...] == 0, np.nan, stored["data"][...] * 0.01 - 0.1)
        np.testing.assert_allclose(dataset["data"].values, cells)


def test_what_items_do_not_state_is_read_of_their_rasters(items: Any, tmp_path: Path) -> None:
    bare = json.loads(json.dumps(items["features"][:2]))
    for item in bare:
        item["assets"] = {"B04": {"href": str(tmp_path / f"{item['id']}_B04.zarr"), "type": "image/tiff"}}
    made = zstore.cube(bare, time="day")
    grid = zstore.GeoGrid.of(made)
    np.testing.assert_array_equal(made[0].read(), _expected(tmp_path, grid, [0, 1]))
    links = [{"rel": "item", "href": f"{item['id']}.json"} for item in items["features"]]
    for item in items["features"]:
        (tmp_path / f"{item['id']}.json").write_text(json.dumps(item))
    (tmp_path / "collection.json").write_text(json.dumps({"type": "Collection", "links": links}))
    again = zstore.cube(tmp_path / "collection.json", grid, "B04")
    np.testing.assert_array_equal(again[1].read(), made[0].read())


def test_rasters_are_closed_when_their_pyramid_is_made(
    items: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for item in items["features"]:
        asset, name = item["assets"]["B04"], f"{item['id']}.tif"
        zstore.zarr_to_raster(tmp_path / asset["href"], tmp_path / name)
        asset["href"] = str(tmp_path / name)
    expected = zstore.cube(items, None, "B04", resolution=10).read()
    made, closed = zstore.cube(items, None, "B04", resolution=10), list[str]()
    close = FileArray.close
    monkeypatch.setattr(FileArray, "close", lambda file: [closed.append(file.url), close(file)])
    made.close()
    assert closed == [], "what nothing is read of is not opened"
    group = zstore.build_pyramid(made[1], tmp_path / "pyramid.zarr")
    np.testing.assert_array_equal(group["0/B04"][...], expected[1])
    assert {url.rpartition("/")[2] for url in closed} >= {"s0.tif", "s1.tif"}
    leaf = made.sources[0].source
    out = np.zeros((1, 9, 7), "u2")
    box = slice(0, 1), slice(20, 29), slice(3, 10)
    assert leaf.read(box, out) is out
    np.testing.assert_array_equal(out[0], zstore.open_array(tmp_path / "s2_B04.zarr")[box[1:]])


def _cells(folder: Path, grid: Any, number: int, hidden: Any) -> np.ndarray[Any, Any]:
    """Physical numbers of a scene on the grid, without the cells that are hidden."""
    array = zstore.open_array(folder / f"s{number}_B04.zarr")
    data = np.where(
        hidden(zstore.open_array(folder / f"s{number}_Q.zarr")[...]).repeat(2, 0).repeat(2, 1), 0, array[...]
    )
    kept = zstore.create_array(
        folder / "kept", data=data.astype("u2"), attributes=dict(array.attrs), dimension_names=("y", "x"),
        overwrite=True,
    )  # fmt: skip
    stored = zstore.reproject(kept, grid).read().astype("f4")
    return np.where(stored == 0, np.nan, stored * np.float32(0.01 * (number + 1)) - np.float32(0.1))


@pytest.fixture
def quality(items: Any, tmp_path: Path) -> Any:
    """The items, each with another scale, and with flags at 20 m: all scenes are of one day."""
    for number, item in enumerate(items["features"]):
        band = item["assets"]["B04"]
        left = SCENES[number][1]
        flags = np.random.default_rng(number).integers(0, 12, (30, 30)).astype("u1")
        zstore.create_array(tmp_path / f"s{number}_Q.zarr", data=flags, dimension_names=("y", "x"))
        place = {"proj:transform": [20, 0, left, 0, -20, 5300000], "proj:shape": [30, 30]}
        value = {"data_type": "uint8"}
        item["assets"]["Q"] = {
            **band,
            **place,
            "href": f"./s{number}_Q.zarr",
            "raster:bands": [value],
            "eo:bands": [],
        }
        band["raster:bands"][0]["scale"] = 0.01 * (number + 1)
        item["properties"]["datetime"] = f"2020-05-02T1{number}:00:00Z"
    (tmp_path / "items.json").write_text(json.dumps(items))
    return zstore.GeoGrid.around([tmp_path / f"s{n}_B04.zarr" for n in range(3)], resolution=10)


@pytest.mark.parametrize(
    ("merge", "words", "hidden"),
    [
        (None, {"mask_values": [3, 8]}, lambda q: np.isin(q, [3, 8])),
        ("median", {"mask_bits": [2]}, lambda q: q & 4 != 0),
        ("mean", {"mask_bits": [0, 3], "mask_values": [4]}, lambda q: (q & 9 != 0) | (q == 4)),
        ("min", {"mask_values": [0]}, lambda q: q == 0),
        ("max", {"mask_values": [1]}, lambda q: q == 1),
    ],
)
@pytest.mark.filterwarnings("ignore:(All-NaN|Mean of empty):RuntimeWarning")
def test_clouds_are_left_out_and_scenes_of_other_scales_merged(
    quality: Any, tmp_path: Path, merge: Any, words: Any, hidden: Any
) -> None:
    scenes = np.stack([_cells(tmp_path, quality, number, hidden) for number in range(3)])
    last = np.where(np.isnan(scenes[2]), np.where(np.isnan(scenes[1]), scenes[0], scenes[1]), scenes[2])
    expected = last if merge is None else getattr(np, f"nan{merge}")(scenes, axis=0)
    made = zstore.cube(tmp_path / "items.json", quality, "B04", unpack=True, merge=merge, mask="Q", **words)
    assert made.dtype == "f4" and made.shape == (1, *quality.shape)
    np.testing.assert_allclose(made[0].read(), expected, rtol=1e-5, atol=1e-6)
    made.save(tmp_path / "c.view.json")
    again = zstore.open(tmp_path / "c.view.json")
    np.testing.assert_array_equal(again.read(), made.read())
    stored: Any = zstore.convert(again, tmp_path / "c.zarr")
    assert np.isnan(stored["B04"].fill_value) and "scale_factor" not in stored["B04"].attrs
    assert stored["B04"].attrs["bands"] == [{"name": "B04", "eo:common_name": "red"}]


def test_a_composite_of_moments(quality: Any, tmp_path: Path) -> None:
    each = zstore.cube(tmp_path / "items.json", quality, "B04", unpack=True, time="item")
    together = zstore.cube(tmp_path / "items.json", quality, "B04", unpack=True, merge="median")
    composite = np.nanmedian(each, axis=0)
    np.testing.assert_array_equal(composite.read(), together[0].read())
    assert zstore.GeoGrid.of(composite) == quality


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
def test_a_composite_without_clouds_is_numpys_on_gdals_warps(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    warp = pytest.importorskip("rasterio.warp").reproject
    clouds, items, clear = (3, 8, 9), list[Any](), list[Any]()
    places = ((32, 700000), (33, 254000), (32, 700300))
    for number, (day, (zone, east)) in enumerate(product(range(1, 6), places)):
        rng, assets = np.random.default_rng(number), dict[str, Any]()
        red, classes = rng.integers(1, 9999, (60, 60), "u2"), rng.integers(0, 12, (30, 30), "u1")
        red[:, : 7 * day] = 0
        for band, size, cells in (("red", 10, red), ("scl", 20, classes)):
            said = {"proj:code": f"EPSG:326{zone}", "proj:shape": [*cells.shape]}
            said["proj:transform"] = [size, 0, east, 0, -size, 5300000]
            value = {"data_type": cells.dtype.name, "nodata": 0}
            assets[band] = {**said, "href": f"./s{number}_{band}.zarr", "raster:bands": [value]}
            zstore.create_array(tmp_path / f"s{number}_{band}.zarr", data=cells, dimension_names=("y", "x"))
        properties = {"datetime": f"2020-05-{day:02}T{10 + number % 3}:00:00Z"}
        items.append({"type": "Feature", "id": f"s{number}", "properties": properties, "assets": assets})
        clear.append(np.where(np.isin(classes, clouds).repeat(2, 0).repeat(2, 1), 0, red))
    (tmp_path / "items.json").write_text(json.dumps({"type": "FeatureCollection", "features": items}))
    cube = zstore.cube(
        tmp_path / "items.json", None, "red", crs="EPSG:3035", resolution=9, mask="scl", mask_values=clouds,
        unpack=True,
    )  # fmt: skip
    grid = zstore.GeoGrid.of(cube)
    days = np.zeros((5, *grid.shape), "u2")
    for number, cells in enumerate(clear):
        zone, east = places[number % 3]
        # What is clear of a later scene of the day lies over the earlier ones.
        warp(
            cells, days[number // 3], src_crs=f"EPSG:326{zone}", dst_crs="EPSG:3035", tolerance=0,
            src_transform=rasterio.Affine(10, 0, east, 0, -10, 5300000), init_dest_nodata=False,
            dst_transform=rasterio.Affine(*grid.affine), src_nodata=0, dst_nodata=0,
        )  # fmt: skip
    expected = np.nanmedian(np.where(days == 0, np.nan, days.astype("f4")), axis=0)
    assert np.isfinite(expected).sum() > 9000 and (expected % 1 == 0.5).any()
    stored: Any = zstore.convert(np.nanmedian(cube, axis=0), tmp_path / "median.zarr", chunks=(32, 32))
    np.testing.assert_array_equal(stored["red"][...], expected)


def test_what_does_not_go_together(quality: Any, tmp_path: Path) -> None:
    for words, error, match in (
        ({}, MetadataError, "scale_factor is"),
        ({"time": "item"}, MetadataError, "scale_factor is"),
        ({"merge": "mean"}, UnsupportedError, "merge is 'mean', unpack False"),
        ({"merge": "sum", "unpack": True}, UnsupportedError, "expected one of mean, median, min, max"),
        ({"mask": "Q"}, UnsupportedError, "mask is 'Q', mask_values"),
        ({"mask_bits": [1]}, UnsupportedError, "mask is None"),
        ({"mask": "Q", "mask_bits": [64]}, UnsupportedError, "expected numbers from 0 to 63"),
        ({"mask": "Q", "mask_bits": [8]}, MetadataError, "uint8; expected integers with the bits"),
        ({"mask": "B99", "mask_bits": [1]}, NotFoundError, "no asset or band 'B99'"),
    ):
        with pytest.raises(error, match=match):
            zstore.cube(tmp_path / "items.json", quality, "B04", **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["cube", "convert"])
def test_the_command_stores_the_cube(items: Any, tmp_path: Path, word: str) -> None:
    pytest.importorskip("click", reason="the command line needs click (extra 'cli')")
    from click.testing import CliRunner

    from zstore.cli.root import zstore as command

    words = [word, str(tmp_path / "items.json"), str(tmp_path / "c.zarr"), "--bands", "B05", "--json"]
    made = CliRunner().invoke(command, words, catch_exceptions=False)
    assert made.exit_code == 0, made.output
    shown = zstore.cube(tmp_path / "items.json", bands="B05")
    assert json.loads(made.output) == {
        "path": f"{tmp_path}/c.zarr/B05",
        "shape": [*shown.shape],
        "dtype": "uint16",
    }
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "c.zarr" / "B05")[...], shown.read())
    masked = [
        "cube",
        *words[1:2],
        str(tmp_path / "m.zarr"),
        "--bands",
        "B05",
        "--mask",
        "B05",
        "--mask-values",
    ]
    assert CliRunner().invoke(command, [*masked, "3, 8"], catch_exceptions=False).exit_code == 0
    hidden = zstore.cube(tmp_path / "items.json", bands="B05", mask="B05", mask_values=[3, 8]).read()
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "m.zarr" / "B05")[...], hidden)
    for wrong in ("3,,8", "a", "3.5"):
        refused = CliRunner().invoke(command, [*masked, wrong])
        assert refused.exit_code == 2 and f"{wrong!r} is no list of whole numbers" in refused.output


def test_documents_lead_to_no_other_places(items: Any, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    for item in items["features"]:
        for asset in item["assets"].values():
            asset["href"] = f"{tmp_path}/{asset['href'].removeprefix('./')}"
    (away / "items.json").write_text(json.dumps(items))
    with pytest.raises(
        StoreError, match="out of the place of its document; expected the storage option 'allow'"
    ):
        zstore.cube(away / "items.json", bands="B04")
    allowed = zstore.cube(away / "items.json", bands="B04", storage_options={"allow": str(tmp_path)})
    assert allowed.read().any()
    with use_storage_options({"allow": [str(tmp_path)]}):  # as every command has them
        assert zstore.cube(away / "items.json", bands="B04").shape == allowed.shape


def _with(item: Any, name: str, value: Any) -> Any:
    """The item, whose band states something else."""
    asset = {**item["assets"]["B04"], name: value}
    return {**item, "assets": {**item["assets"], "B04": asset}}


def _value(item: Any, name: str, value: Any) -> Any:
    return _with(item, "raster:bands", [{**item["assets"]["B04"]["raster:bands"][0], name: value}])


def test_documents_that_lead_round_or_away(items: Any, tmp_path: Path) -> None:
    linking = {"type": "Collection", "links": [{"rel": "item", "href": "c.json"}]}
    for document, match in (
        (linking, "type is 'Collection'; expected an item"),
        ([str(tmp_path / "items.json")], "expected items of STAC"),
        ({"type": "FeatureCollection", "features": ["items.json"]}, "expected a list of objects"),
    ):
        (tmp_path / "c.json").write_text(json.dumps(document))
        with pytest.raises(MetadataError, match=match):
            zstore.cube(tmp_path / "c.json", bands="B04")
    (tmp_path / "c.json").write_text("[" * 100_000)
    with pytest.raises(MetadataError, match="no JSON"):
        zstore.cube(tmp_path / "c.json")


def test_items_that_are_none_are_refused(items: Any, tmp_path: Path) -> None:
    one = items["features"][0]
    other = {**one, "assets": {**one["assets"], "B04": {**one["assets"]["B04"], "raster:bands": []}}}
    on_grid = {"bands": "B04", "grid": zstore.GeoGrid.of(tmp_path / "s0_B04.zarr")}
    for wrong, options, error, match in (
        ([], {}, MetadataError, "there are no items"),
        ({"type": "Point"}, {}, MetadataError, "type is 'Point'; expected an item"),
        (5, {}, MetadataError, "items are 5"),
        (items, {}, MetadataError, "the items have the rasters B04, B05; expected bands"),
        (items, {"bands": "B99"}, NotFoundError, "item 's2' has no asset or band 'B99'"),
        (items, {"time": "month"}, UnsupportedError, "time is 'month'; expected one of day, item, orbit"),
        ({**items, "links": [{"rel": "next"}]}, {}, UnsupportedError, "one page of several"),
        ({**one, "properties": {"datetime": None}}, {}, MetadataError, "has the datetime None; expected"),
        ({**one, "properties": {"datetime": "2020-01-01"}}, ORBIT, MetadataError, "no sat:absolute_orbit"),
        (tmp_path / "nothing.json", {}, NotFoundError, "no items there"),
        ({**one, "properties": 5}, {}, MetadataError, "the properties 5; expected an object"),
        ({**one, "links": 5}, {}, MetadataError, "links are 5; expected a list of objects"),
        ({**items, "features": ["a.json"]}, {}, MetadataError, "features are .*; expected a list of objects"),
        (_with(one, "raster:bands", ["x"]), {"bands": "B04"}, MetadataError, "raster:bands are"),
        (_with(one, "proj:shape", [60, -60]), {"bands": "B04"}, MetadataError, "lengths from 0 to"),
        (_with(one, "proj:transform", [2**70, 0, 0, 0, -10, 0]), on_grid, MetadataError, "cells per cell of"),
        (_value(one, "nodata", "none"), {"bands": "B04"}, MetadataError, "nodata 'none'; expected a number"),
        (_value(one, "scale", [1]), {"bands": "B04"}, MetadataError, r"the scale \[1\]; expected a number"),
        (_value(one, "unit", 5), {"bands": "B04"}, MetadataError, "the unit 5; expected a text"),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            zstore.cube(wrong, **options)  # type: ignore[arg-type]
    del other["assets"]["B04"]["proj:shape"]
    one["assets"]["B04"]["href"] = str(tmp_path / "s0_B05.zarr")
    with pytest.raises(
        ChangedError, match=r"\(30, 30\) uint16 is there; expected \(60, 60\) uint16, as the item"
    ):
        zstore.cube(one, bands="B04").read()

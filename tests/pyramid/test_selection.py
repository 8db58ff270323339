"""Parts of groups by values of their coordinates: xarray's selections, places on the ground, commands."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.storage.memory import MemoryStore

GROUND = {
    "proj:code": "EPSG:32633",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 500000, 0, -30, 3000000],
    "spatial:shape": [40, 60],
    "title": "a cube",
}
DATA = np.arange(24 * 3 * 40 * 60, dtype="f4").reshape(24, 3, 40, 60)


def cube(store: Any = None, **more: Any) -> zstore.Group:
    """Half months, levels, rows and columns; with labels and a height that has neither time nor level."""
    group = zstore.create_group(
        MemoryStore() if store is None else store, attributes={**GROUND, "bands": ["t", "u"]}
    )
    along = ("time", "level", "y", "x")
    for name in ("t", "u"):
        attributes = {"units": "K", "coordinates": "label"} if name == "t" else {}
        group.create_array(
            name, data=DATA, chunks=(5, 2, 16, 25), dimension_names=along, attributes=attributes, **more
        )
    group.create_array("height", data=DATA[0, 0], dimension_names=along[2:])
    days = {"units": "days since 2000-01-01", "calendar": "360_day"}
    group.create_array("time", data=np.arange(24) * 15, dimension_names=["time"], attributes=days)
    group.create_array("level", data=np.array([500.0, 700.1, 850.0], "f4"), dimension_names=["level"])
    group.create_array("label", data=np.array(["a", "b", "c"]), dimension_names=["level"])
    return group


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, np.s_[:, :]),
        ({"time": "2000-02"}, np.s_[2:4, :]),
        ({"time": "2000-02-16", "level": 700.1}, np.s_[3:4, 1:2]),
        ({"time": "2000-02-16", "level": "700.1"}, np.s_[3:4, 1:2]),
        ({"time": "2000-02/2000-03-01"}, np.s_[2:5, :]),
        ({"time": slice("2000-12", None)}, np.s_[22:24, :]),
        ({"time": "../2000-01-01"}, np.s_[0:1, :]),
        ({"level": slice(600, 850)}, np.s_[:, 1:3]),
        ({"level": [500, 850]}, np.s_[:, [0, 2]]),
        ({"level": np.array([850, 500])}, np.s_[:, [0, 2]]),
        ({"time": ["2000-01-01", "2000-06"]}, np.s_[[0, 10, 11], :]),
    ],
)
def test_values_of_coordinates_select_items(values: dict[str, Any], expected: Any) -> None:
    pytest.importorskip("cftime", reason="months of 30 days are read with cftime")
    part = zstore.select(cube(), values)
    assert isinstance(part, zstore.Group)
    np.testing.assert_array_equal(part["t"][...], DATA[expected])
    np.testing.assert_array_equal(part["u"][...], DATA[expected])
    np.testing.assert_array_equal(part["height"][...], DATA[0, 0])
    np.testing.assert_array_equal(part["time"][...], (np.arange(24) * 15)[expected[0]])
    np.testing.assert_array_equal(part["label"][...], np.array(["a", "b", "c"])[expected[1]])
    assert dict(part.attrs) == {**GROUND, "bands": ["t", "u"]}
    assert dict(part["t"].attrs) == {"units": "K", "coordinates": "label"}


def test_views_of_parts_are_saved_as_views_of_what_is_stored(tmp_path: Path) -> None:
    part = zstore.select(cube(tmp_path / "cube.zarr"), {"level": 700.1})
    made = np.maximum(zstore.view(part["t"]), part["t"])[5:9]  # type: ignore[index]
    made.save(tmp_path / "a.view.json")
    again = zstore.open(tmp_path / "a.view.json")
    np.testing.assert_array_equal(again[...], made.read())
    assert again.dimension_names == made.dimension_names
    with pytest.raises(UnsupportedError, match="in memory has no document"):
        zstore.view(zstore.select(cube(), {"level": 700.1})["t"]).save(tmp_path / "b.view.json")  # type: ignore[index]


def test_a_part_is_what_xarray_selects(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray", reason="compared with xarray's selections")
    pytest.importorskip("cftime", reason="months of 30 days are read with cftime")
    cube(tmp_path / "c.zarr")
    part = zstore.select(
        tmp_path / "c.zarr", {"time": "2000-05/2000-07", "level": slice(600, 900)}, arrays=["t"]
    )
    zstore.convert(part, tmp_path / "p.zarr")
    with (
        xr.open_dataset(tmp_path / "c.zarr", engine="zstore") as whole,
        xr.open_dataset(tmp_path / "p.zarr", engine="zstore") as found,
    ):
        expected = whole[["t"]].sel(time=slice("2000-05", "2000-07"), level=slice(600, 900))
        expected.attrs["bands"] = ["t"]
        xr.testing.assert_identical(found.load(), expected.load())


@pytest.mark.parametrize("stored", ["affine", "coordinates"])
def test_places_on_the_ground_move_the_grid(stored: str) -> None:
    group = cube()
    if stored == "coordinates":
        for name in ("proj:code", "spatial:dimensions", "spatial:transform", "spatial:shape"):
            del group.attrs[name]
        group.create_array("y", data=3000000 - 15 - 30.0 * np.arange(40), dimension_names=["y"])
        group.create_array("x", data=500000 + 15 + 30.0 * np.arange(60), dimension_names=["x"])
    for part in (
        zstore.select(group, bbox=(500100, 2999500, 500210, 2999820)),
        zstore.select(group, {"y": slice(2999500, 2999820), "x": "500105/500200"}),
        zstore.select(group, {"y": slice(2999500, 2999820)}, bbox=(500100, 0, 500210, 9e6)),
    ):
        np.testing.assert_array_equal(part["t"][...], DATA[..., 6:17, 3:7])
        np.testing.assert_array_equal(part["height"][...], DATA[0, 0, 6:17, 3:7])
        geo = zstore.describe(part).geo
        assert geo is not None and geo.affine is not None and geo.shape == (11, 4)
        assert geo.affine[:6] == (30, 0, 500090, 0, -30, 2999820)
        assert part.attrs["title"] == "a cube"
    array = zstore.select(group["t"], bbox=(500100, 2999500, 500210, 2999820))
    np.testing.assert_array_equal(array[...], DATA[..., 6:17, 3:7])


@pytest.mark.parametrize("first", [0.5, -179.5])
def test_a_box_of_degrees_is_found_whole_turns_away(first: float) -> None:
    lon, lat = first + np.arange(360.0), 89.5 - np.arange(180.0)
    group = zstore.create_group(MemoryStore(), attributes={"proj:code": "OGC:CRS84"})
    for name, values, units in (("lat", lat, "degrees_north"), ("lon", lon, "degrees_east")):
        group.create_array(name, data=values, dimension_names=[name], attributes={"units": units})
    group.create_array("t", data=np.add.outer(lat * 1000, lon), dimension_names=["lat", "lon"])
    for box in ((-30, 0, -20, 10), (330, 0, 340, 10), (690, 0, 700, 10), (-390, 0, -380, 10)):
        part = zstore.select(group, bbox=box)
        assert (np.mod(part["lon"][...], 360) == np.arange(330.5, 340)).all(), box
        assert part["t"].shape == (10, 10)
    assert zstore.select(group, bbox=(-180, 0, 180, 10))["t"].shape == (10, 360)
    seam = (170, 0, -170, 10) if first < 0 else (-10, 0, 10, 10)
    there = zstore.select(group, bbox=(-10, 0, 10, 10) if first < 0 else (170, 0, -170, 10))
    assert there["t"].shape == (10, 20)
    with pytest.raises(UnsupportedError, match="crosses the meridian") as said:
        zstore.select(group, bbox=seam)
    texts = re.findall(r"[-\d.]+(?:,[-\d.]+){3}", str(said.value))
    parts = [zstore.select(group, bbox=[*map(float, text.split(","))])["lon"][...] for text in texts]
    assert [len(part) for part in parts] == [10, 10]
    assert (np.mod(np.concatenate(parts), 360) == np.mod(seam[0] + 0.5 + np.arange(20), 360)).all()


def test_pyramids_are_selected_at_all_levels_and_on_the_ground_at_the_finest(tmp_path: Path) -> None:
    group = cube()
    pyramid = zstore.build_pyramid(group, MemoryStore(), levels=1, method="nearest")
    part = zstore.select(pyramid, {"level": 500})
    assert [part[f"{level}/t"].shape for level in (0, 1)] == [(24, 1, 40, 60), (24, 1, 20, 30)]
    np.testing.assert_array_equal(part["1/t"][...], pyramid["1/t"][:, :1])
    finest = zstore.select(pyramid, bbox=(500100, 2999500, 500210, 2999820))
    np.testing.assert_array_equal(finest["t"][...], DATA[..., 6:17, 3:7])


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ({"values": {"tim": 3}}, NotFoundError, "no dimension 'tim'; there are "),
        ({"values": {"time": "2001"}}, NotFoundError, "no item of 'time' is '2001'; there are 2000-01-01, "),
        ({"values": {"time": "2001/.."}}, NotFoundError, "no item of .time. lies in 2001"),
        ({"values": {"time": "June"}}, MetadataError, "time is 'June'; expected a date such as 2020-06"),
        ({"values": {"level": "high"}}, MetadataError, "level is 'high'; expected a number such as 500"),
        ({"values": {"level": ""}}, MetadataError, "level is ''; expected a number such as 500"),
        ({"values": {"level": 600}}, NotFoundError, "no item of 'level' is 600; there are 500"),
        ({"values": {"level": slice(850, 600)}}, NotFoundError, r"lies in 850/600 \(some lie in 600/850\)"),
        ({"values": {"level": slice(500, 850, 2)}}, MetadataError, "level has a range with step 2; expected"),
        ({"values": {"level": []}}, NotFoundError, r"no item of 'level' is in \[\]"),
        (
            {"values": {"y": [2999985, 2999925]}},
            MetadataError,
            "y selects items 0, 2, between which others lie",
        ),
        (
            {"bbox": (0, 0, 1, 1)},
            NotFoundError,
            r"bbox is 0, 0, 1, 1, where there is no cell; there are 500000",
        ),
        ({"bbox": (1, 0, 0, 1)}, MetadataError, "expected .xmin, ymin, xmax, ymax"),
        ({"arrays": ["v"]}, NotFoundError, "no array 'v'; there are"),
        (
            {"values": {"y": 2999985}, "bbox": (500100, 2999500, 500210, 2999820)},
            NotFoundError,
            "is in bbox too",
        ),
    ],
)
def test_a_part_of_nothing_says_what_there_is(words: dict[str, Any], kind: Any, message: str) -> None:
    pytest.importorskip("cftime", reason="months of 30 days are read with cftime")
    with pytest.raises(kind, match=message):
        zstore.select(cube(), **words)


def test_what_lies_nowhere_on_the_ground_is_selected_by_any_items() -> None:
    group = zstore.create_group(MemoryStore())
    group.create_array("rain", data=np.arange(15).reshape(5, 3), dimension_names=["day", "station"])
    group.create_array("day", data=np.arange(5), dimension_names=["day"])
    group.create_array("station", data=np.array(["a", "b", "c"]), dimension_names=["station"])
    # Nor does it warn that it takes stations for columns, and days for no times.
    part = zstore.select(group, {"day": [4, 0], "station": ["a", "c"]})
    assert isinstance(part, zstore.Group)
    assert part["rain"][...].tolist() == [[0, 2], [12, 14]]
    assert part["day"][...].tolist() == [0, 4] and part["station"][...].tolist() == ["a", "c"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (slice("c", "b"), ["c", "", "b"]),
        (slice("", None), ["", "b", "a/c"]),
        (slice(None, ""), ["c", ""]),
        (slice(None, None), ["c", "", "b", "a/c"]),
        ("", [""]),
        ("a/c", ["a/c"]),
        ([slice("b", "b"), "c"], ["c", "b"]),
        (slice("b", "c"), r"no item of 'station' lies in b/c \(some lie in c/b\)"),
        (slice("c", "d"), "station is 'd'; expected one of c, , b, a/c"),
    ],
)
def test_names_are_selected_in_the_order_in_which_they_lie(wanted: Any, expected: Any) -> None:
    group = zstore.create_group(MemoryStore())
    group.create_array("rain", data=np.arange(4), dimension_names=["station"])
    group.create_array("station", data=np.array(["c", "", "b", "a/c"]), dimension_names=["station"])
    if isinstance(expected, list):
        part: Any = zstore.select(group, {"station": wanted})
        assert part["station"][...].tolist() == expected
    else:
        with pytest.raises((MetadataError, NotFoundError), match=expected):
            zstore.select(group, {"station": wanted})


def test_arrays_without_coordinates_say_so() -> None:
    alone = zstore.create_array(MemoryStore(), data=np.arange(3), dimension_names=["time"])
    with pytest.raises(MetadataError, match="an array alone has no coordinates"):
        zstore.select(alone, {"time": 1})
    group = zstore.create_group(MemoryStore())
    group.create_array("v", data=np.arange(3), dimension_names=["time"])
    with pytest.raises(MetadataError, match="dimension 'time' has no coordinate; expected an array 'time'"):
        zstore.select(group, {"time": 1})


def test_jobs_and_commands_take_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line is made with click")
    pytest.importorskip("cftime", reason="months of 30 days are read with cftime")
    pytest.importorskip("h5netcdf", reason="NetCDF is written with h5netcdf")
    from zstore.cli.root import zstore as command

    monkeypatch.chdir(tmp_path)
    cube("c.zarr", shards=(10, 2, 32, 50))

    def run(line: str, code: int = 0) -> str:
        result = testing.CliRunner().invoke(command, line.split())
        assert result.exit_code == code, result.output
        return str(result.output)

    part, place = "--select time=2000-02,level=500", "--bbox 500100,2999500,500210,2999820"
    wanted = DATA[2:4, :1]
    run(f"convert c.zarr a.zarr {part} --bands t")
    found = zstore.open("a.zarr")
    assert sorted(found) == ["label", "level", "t", "time"] and found["t"].shards == (10, 2, 32, 50)
    np.testing.assert_array_equal(found["t"][...], wanted)
    run(f"convert c.zarr b.nc {part}")
    run(f"convert b.nc b.zarr {place}")
    found = zstore.open("b.zarr")
    np.testing.assert_array_equal(found["t"][...], wanted[..., 6:17, 3:7])
    assert found["t"].compressors
    assert float(run(f"reduce c.zarr/t {part} --method max")) == wanted.max()
    run(f"reduce c.zarr/t r.zarr {part} --axis time")
    np.testing.assert_allclose(zstore.open("r.zarr")[...], wanted.mean(0))
    if find_spec("rasterio") is not None:
        import rasterio

        run(f"convert c.zarr a.tif {part} --bands t")
        with rasterio.open("a.tif") as raster:
            assert raster.descriptions == ("t 2000-02-01 500.0", "t 2000-02-16 500.0")
            np.testing.assert_array_equal(raster.read(), wanted[:, 0])
    run(f"quicklook c.zarr -o q.png {part} {place} --bands t")
    assert "--plan does not go" in run(f"convert c.zarr d.zarr {part} --plan p.json", 2)
    assert "--select and --bbox do not go with --metadata-only" in run(
        f"convert c.zarr --metadata-only {part}", 2
    )
    assert "is no box, like" in run("convert c.zarr d.zarr --bbox 1,2,3", 2)
    other = zstore.select("c.zarr", {"time": "2000-03", "level": 500})
    with pytest.raises(UnsupportedError, match="argument source is a part that no address opens"):
        zstore.plan_units("p.json", zstore.convert, other, "d.zarr")
    assert not Path("d.zarr").exists()
    with pytest.raises(StoreError):  # another part of the same shape is another job
        zstore.convert(other, "a.zarr", resume=True)

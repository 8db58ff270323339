"""Meaning that views carry through every step: georeference, nodata, units, bands, coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError

AFFINE = (10.0, 0.0, 600000.0, 0.0, -10.0, 5300000.0)
HOLE = -1


def _cube(
    path: Path, affine: Any = AFFINE, epoch: str = "2020-01-01", times: Any = (0, 1, 2), **attributes: Any
) -> Any:
    """A group with int16 "t" (time, y, x) of 4 by 6 cells, its time, and its place."""
    group = zstore.create_group(path)
    data = np.arange(len(times) * 24, dtype="i2").reshape(len(times), 4, 6)
    said: dict[str, Any] = {"proj:code": "EPSG:32632", "spatial:transform": list(affine), "units": "K"}
    said |= {"spatial:dimensions": ["y", "x"], "_FillValue": HOLE, "long_name": "heat", **attributes}
    group.create_array("t", data=data, chunks=(1, 2, 3), dimension_names=("time", "y", "x"), attributes=said)
    said = {"units": f"days since {epoch}", "standard_name": "time", "calendar": "proleptic_gregorian"}
    group.create_array("time", data=np.array(times), dimension_names=("time",), attributes=said)
    return group["t"]


def _stored(view: Any, path: Path) -> Any:
    """The view, stored, with all that is said of it."""
    return zstore.convert(view, path)


def _grid(group: Any) -> tuple[float, ...]:
    return tuple(zstore.GeoGrid.of(group).affine)


SELECTIONS: list[tuple[Any, tuple[float, ...]]] = [
    (np.s_[:], AFFINE),
    (np.s_[:, 1:3, 2:], (10, 0, 600020, 0, -10, 5299990)),
    (np.s_[:, ::-1], (10, 0, 600000, 0, 10, 5299960)),
    (np.s_[1], AFFINE),
    (np.s_[None, ..., ::2], (20, 0, 599995, 0, -10, 5300000)),
    (np.s_[[2, 0], :, 5:6], (10, 0, 600050, 0, -10, 5300000)),
]


@pytest.mark.parametrize(("selection", "affine"), SELECTIONS)
def test_a_selection_keeps_its_place_and_time(
    tmp_path: Path, selection: Any, affine: tuple[float, ...]
) -> None:
    array = _cube(tmp_path / "a")
    group = _stored(array.lazy[selection], tmp_path / "b")
    made = group["t"]
    np.testing.assert_array_equal(made[...], array[:][selection])
    assert _grid(group) == affine and zstore.GeoGrid.of(group).crs.code == "EPSG:32632"
    assert (made.attrs["units"], made.attrs["long_name"], made.fill_value) == ("K", "heat", HOLE)
    wanted = selection if not isinstance(selection, tuple) else next(s for s in selection if s is not None)
    wanted = slice(None) if wanted is Ellipsis else wanted
    assert group["time"][...].tolist() == np.arange(3)[wanted].tolist()
    assert group["x"].shape == made.shape[-1:]


def test_cells_on_no_grid_keep_their_coordinates(tmp_path: Path) -> None:
    array = _cube(tmp_path / "a")
    group = _stored(array.lazy.oindex[0, [0, 3, 1], 2], tmp_path / "b")
    made = group["t"]
    assert made.dims == ("y",) and made[...].tolist() == array[0, [0, 3, 1], 2].tolist()
    assert group["y"][...].tolist() == [5299995, 5299965, 5299985]
    assert group["x"][...] == 600025 and group["time"][...] == 0
    assert {*made.attrs["coordinates"].split()} == {"x", "time"}
    points = array.lazy.vindex[[0, 1], [0, 3], [5, 2]]
    group = _stored(points, tmp_path / "c")
    assert group["t"].dims == ("dim_0",) and group["x"][...].tolist() == [600055, 600025]


def test_concatenated_cubes_have_all_times_and_one_place(tmp_path: Path) -> None:
    one = _cube(tmp_path / "a")
    later = _cube(tmp_path / "b", epoch="2020-01-11")
    hours = _cube(tmp_path / "c", times=(1,))
    group = _stored(zstore.concat([one, later, hours], axis="time"), tmp_path / "d")
    assert group["time"][...].tolist() == [0, 1, 2, 10, 11, 12, 1]
    assert _grid(group) == AFFINE and group["t"].attrs["units"] == "K"
    below = _cube(tmp_path / "e", affine=(10.0, 0.0, 600000.0, 0.0, -10.0, 5299960.0))
    group = _stored(zstore.concat([one, below], axis=1), tmp_path / "f")
    assert _grid(group) == AFFINE and group["t"].shape == (3, 8, 6)
    assert group["time"][...].tolist() == [0, 1, 2]
    # With a gap there is no grid, and rows have coordinates.
    group = _stored(zstore.concat([below, one], axis=1), tmp_path / "g")
    assert group["y"][...].tolist() == [*range(5299955, 5299915, -10), *range(5299995, 5299955, -10)]
    with pytest.raises(MetadataError, match="no CRS"):
        zstore.GeoGrid.of(_stored(zstore.concat([one, below.lazy[:, :, ::-1]], axis=1), tmp_path / "h"))


def _of_calendar(path: Path, calendar: str, units: str, times: Any) -> Any:
    group = zstore.create_group(path)
    group.create_array("t", data=np.ones((len(times), 2)), dimension_names=("time", "x"))
    said = {"units": units, "calendar": calendar}
    group.create_array("time", data=np.array(times), dimension_names=("time",), attributes=said)
    return group["t"]


FEBRUARY = "days since 2021-02-27"


@pytest.mark.parametrize(
    ("calendars", "units", "times", "expected"),
    [
        (("noleap", "noleap"), ("days since 2020-02-27", FEBRUARY), ([1, 2], [0, 1]), [1, 2, 365, 366]),
        # Half days, which whole days do not count.
        (("noleap",) * 2, ("days since 2020-02-27", "hours since 2020-02-27"), ([1], [36]), [1, 1.5]),
        (("360_day",) * 2, ("days since 2020-02-30", "hours since 2020-02-29"), ([0], [36]), [0, 0.5]),
        (("standard", "proleptic_gregorian"), (FEBRUARY,) * 2, ([1, 2], [0]), [18686, 18687, 18685]),
        (("standard", "proleptic_gregorian"), ("days since 1500-01-01",) * 2, ([1], [0]), None),
        (("standard", "noleap"), (FEBRUARY,) * 2, ([1, 2], [0]), None),
        (("julian", "standard"), (FEBRUARY,) * 2, ([1, 2], [0]), None),
        (("360_day", "noleap"), (FEBRUARY,) * 2, ([2, 3], [0]), None),
    ],
)
def test_times_of_one_calendar_are_joined_in_it(
    tmp_path: Path, calendars: Any, units: Any, times: Any, expected: Any
) -> None:
    pytest.importorskip("cftime", reason="dates of such calendars are read with cftime")
    parts = [
        _of_calendar(tmp_path / str(n), *one)
        for n, one in enumerate(zip(calendars, units, times, strict=True))
    ]
    made = zstore.concat(parts, axis="time")
    time = made.carried.coordinates.get("time")  # type: ignore[attr-defined]
    if expected is None:
        assert time is None
        return
    is_one = len({*calendars}) == 1
    assert time.items.read().tolist() == expected
    assert time.attributes["calendar"] == (calendars[0] if is_one else "proleptic_gregorian")
    assert time.attributes["units"] == (units[0] if is_one else "days since 1970-01-01")


def test_numbers_that_do_not_mean_the_same_are_not_joined(tmp_path: Path) -> None:
    one = _cube(tmp_path / "a")
    for number, (said, match) in enumerate(
        [
            ({"units": "degC"}, "units is 'degC'; expected 'K'"),
            ({"scale_factor": 0.5}, "scale_factor is 0.5; expected None"),
            ({"_FillValue": 0}, "nodata is 0; expected -1"),
        ]
    ):
        other = _cube(tmp_path / f"b{number}", **said)
        with pytest.raises(MetadataError, match=match):
            zstore.convert(zstore.concat([one, other]), tmp_path / "c")
    assert zstore.concat([one, np.zeros((1, 4, 6), "i2")]).attributes["units"] == "K"


def test_an_overlay_lies_where_its_sources_do(tmp_path: Path) -> None:
    one = _cube(tmp_path / "a")
    east = _cube(tmp_path / "b", affine=(10.0, 0.0, 600060.0, 0.0, -10.0, 5299980.0))
    made = zstore.overlay([one, east], [(0, 1, 0), (0, 3, 6)], nodata=HOLE)
    group = _stored(made, tmp_path / "c")
    assert _grid(group) == (10, 0, 600000, 0, -10, 5300010)
    assert group["t"].attrs["_FillValue"] == HOLE and group["time"][...].tolist() == [0, 1, 2]
    wrong = zstore.overlay([one, east], [(0, 0, 0), (0, 1, 6)], nodata=HOLE)
    assert wrong.carried.model() is None  # type: ignore[attr-defined]


def test_computations_keep_place_time_and_what_still_holds(tmp_path: Path) -> None:
    one, other = _cube(tmp_path / "a"), _cube(tmp_path / "b", long_name="other heat")
    ratio = (one.lazy - other) / (one.lazy + other + 1)
    group = _stored(ratio, tmp_path / "c")
    assert _grid(group) == AFFINE and group["time"][...].tolist() == [0, 1, 2]
    assert not {"units", "_FillValue", "long_name"} & {*group["t"].attrs}
    said = (one.lazy - other).attributes
    assert said["units"] == "K" and "_FillValue" not in said
    chosen = np.where(one.lazy > 5, one, HOLE).astype("f4").attributes
    assert (chosen["units"], chosen["long_name"]) == ("K", "heat") and chosen["_FillValue"] is not None
    assert "_FillValue" not in one.lazy.astype("?").attributes
    assert one.lazy.astype("u2").fill_value == 65535
    packed = _cube(tmp_path / "d", scale_factor=0.5)
    physical = zstore.unpack(packed)
    assert physical.attributes["units"] == "K" and "scale_factor" not in physical.attributes
    assert "units" not in (packed.lazy - one).attributes
    # Of inputs on different grids, neither says where the result lies.
    shifted = one.lazy[:, 1:] - one.lazy[:, :-1]
    assert shifted.carried.model() is None and [*shifted.carried.coordinates] == ["time", "x"]  # type: ignore[attr-defined]


def test_bands_go_along(tmp_path: Path) -> None:
    bands = [{"name": f"B{n}", "eo:common_name": c} for n, c in ((2, "blue"), (3, "green"), (4, "red"))]
    array = _cube(tmp_path / "a", bands=bands)
    two = _stored(array.lazy[::-2], tmp_path / "b")
    assert [band["name"] for band in two["t"].attrs["bands"]] == ["B4", "B2"]
    assert [band["name"] for band in array.lazy[1].attributes["bands"]] == ["B3"]
    joined = zstore.concat([array.lazy[2:], array.lazy[:1]]).attributes["bands"]
    assert [band["name"] for band in joined] == ["B4", "B2"]
    assert "bands" not in (array.lazy * 2).attributes


def test_jobs_and_guests_read_views_with_their_meaning(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    array = _cube(tmp_path / "a")
    view = zstore.concat([array, _cube(tmp_path / "b", epoch="2020-01-11")]) * 2
    dataset = xr.open_dataset(view, engine="zstore", chunks=None)
    assert dataset["t"].dims == ("time", "y", "x")
    assert str(dataset["time"].values[3])[:10] == "2020-01-11"
    assert dataset["t"].attrs["grid_mapping"] == "spatial_ref" and "spatial_ref" in dataset.coords
    np.testing.assert_array_equal(dataset["t"][4, 1:, ::2], view[4, 1:, ::2])
    np.testing.assert_array_equal(dataset["t"].sel(x=[600015, 600055]), view.oindex[:, :, [1, 5]])
    np.testing.assert_array_equal(
        dataset["t"].sel(time=np.datetime64("2020-01-12"), x=xr.DataArray([600015, 600025], dims="p")),
        view.oindex[4, :, [1, 2]],
    )
    made = zstore.build_pyramid(view[0], tmp_path / "p.zarr", copy_base=True)
    assert _grid(made["0"]) == AFFINE and made["0/t"].dims == ("y", "x")
    np.testing.assert_array_equal(view.reduce("max", axis="time"), view.read().max(0))
    again = zstore.reproject(array, zstore.GeoGrid.around([array], crs="EPSG:32633", resolution=10.0))
    assert _stored(again, tmp_path / "r")["time"][...].tolist() == [0, 1, 2]


def test_what_nothing_describes_is_an_array_alone(tmp_path: Path) -> None:
    bare = zstore.create_array(tmp_path / "a", data=np.zeros((3, 4)))
    made = zstore.convert(zstore.stack([bare, bare]), tmp_path / "b")
    assert isinstance(made, zstore.Array) and made.dims is None and not made.attrs
    named = zstore.create_array(
        tmp_path / "c", data=np.zeros((3, 4)), dimension_names=("p", "q"), attributes={"units": "m"}
    )
    assert named.lazy.T.dimension_names == ["q", "p"] and named.lazy.T.attributes == {"units": "m"}


@pytest.mark.parametrize(
    ("method", "said", "dtype"),
    [
        ("mean", {"units": "K", "cell_methods": "time: mean"}, "f8"),
        ("max", {"units": "K", "cell_methods": "time: maximum"}, "i2"),
        ("var", {"cell_methods": "time: variance"}, "f8"),
        ("count", {}, "i8"),
    ],
)
def test_a_reduction_keeps_its_place_and_says_what_was_done(
    tmp_path: Path, method: str, said: dict[str, str], dtype: str
) -> None:
    array = _cube(tmp_path / "a")
    for source in (array, array.lazy[:, 1:]):
        made = zstore.reduce(source, method, "time", out=tmp_path / f"{len(source.shape)}{id(source)}")
        grid = zstore.GeoGrid.of(made)
        assert grid.crs.code == "EPSG:32632" and tuple(grid.affine)[:3] == AFFINE[:3]
        assert grid.affine.f == (5300000 if source is array else 5299990)
        assert {key: made.attrs.get(key) for key in ("units", "cell_methods") if key in made.attrs} == said
        assert made.dims == ("y", "x") and made.dtype == dtype
    whole = zstore.reduce(array, method, ("y", "x"), out=tmp_path / "w", keepdims=True)
    assert not [key for key in whole.attrs if key.startswith(("proj:", "spatial:"))]
    # The mean of packed numbers is packed as these are; their sum is not.
    packed = _cube(tmp_path / "p", scale_factor=0.5, add_offset=3.0)
    mean = zstore.reduce(packed, "mean", 0, out=tmp_path / "m")
    assert (mean.attrs["scale_factor"], mean.attrs["units"]) == (0.5, "K")
    assert not {"scale_factor", "units"} & {*zstore.reduce(packed, "sum", 0, out=tmp_path / "s").attrs}
    unpacked = zstore.reduce(packed, "mean", 0, out=tmp_path / "u", unpack=True)
    assert unpacked.attrs["units"] == "K" and "scale_factor" not in unpacked.attrs


def test_a_path_is_reduced_with_what_is_above_it_if_asked(tmp_path: Path) -> None:
    array = _cube(tmp_path / "a")
    del array.attrs["proj:code"]
    zstore.open_group(tmp_path / "a").attrs["proj:code"] = "EPSG:32632"
    for above in (True, False):
        made = zstore.reduce(tmp_path / "a" / "t", "mean", 0, out=tmp_path / f"{above}", above=above)
        assert made.attrs.get("proj:code") == ("EPSG:32632" if above else None)

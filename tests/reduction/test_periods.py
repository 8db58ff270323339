"""Reductions by periods of time and with weights, beside xarray's resample, groupby and weighted."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.storage.memory import MemoryStore

xr = pytest.importorskip("xarray")
pytest.importorskip("cftime")

CALENDARS = ("standard", "proleptic_gregorian", "360_day", "noleap", "all_leap", "julian")
EVERY = {
    "month": "MS", "season": "QS-DEC", "year": "YS", "day": "D", "10D": "10D", "6h": "6h",
    "3 months": "3MS",
}  # fmt: skip
BY = ("month", "season", "dayofyear", "hour")


def make_cube(store, moments, units, calendar="standard", chunks=(7, 2, 3), packed=False, seed=0, **arrays):
    """A group of a cube of `t` with holes along (time, lat, lon), and of all that belongs to it."""
    rng = np.random.default_rng(seed)
    group = zstore.create_group(store, attributes={"Conventions": "CF-1.11", "title": "a cube"})
    values = rng.normal(280, 10, (len(moments), 3, 4))
    values[rng.random(values.shape) < 0.2] = np.nan
    said = {"units": "K", "grid_mapping": "crs", "cell_methods": "time: maximum", "ancillary_variables": "no"}
    if packed:
        said |= {"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32767}
        values = np.where(np.isnan(values), -32767, np.rint((values - 280) * 100)).astype("i2")
    options = {"data": values, "chunks": chunks, "dimension_names": ["time", "lat", "lon"]}
    group.create_array("t", attributes=said, **options)
    group.create_array("crs", data=0, attributes={"grid_mapping_name": "latitude_longitude"})
    attributes = {"units": units, "calendar": calendar, "long_name": "moment", "bounds": "time_bnds"}
    group.create_array("time", data=moments, attributes=attributes, dimension_names=["time"])
    pairs = np.stack([moments, moments], 1)
    group.create_array("time_bnds", data=pairs, dimension_names=["time", "bnds"])
    lat = {"units": "degrees_north", "standard_name": "latitude"}
    group.create_array("lat", data=[-60.0, 0.0, 60.0], attributes=lat, dimension_names=["lat"])
    lon = {"units": "degrees_east", "standard_name": "longitude"}
    group.create_array("lon", data=[0.0, 90, 180, 270], attributes=lon, dimension_names=["lon"])
    for name, (dims, data) in arrays.items():
        group.create_array(name, data=data, dimension_names=dims)
    return group


def decoded(store) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_dataset(
            store, engine="zstore", decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)
        )


@settings(max_examples=4)
@given(st.data())
def test_periods_are_those_of_xarray(data):
    compare_periods(data)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_many_periods_are_those_of_xarray(data):
    compare_periods(data)


def compare_periods(data):
    calendar = data.draw(st.sampled_from(CALENDARS))
    units = data.draw(
        st.sampled_from(["days since 2001-05-20 06:00", "hours since 1582-10-02", "d since 2000-1-1"])
    )
    count = data.draw(st.integers(1, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    steps = rng.choice([0.25, 1, 1, 1, 30], count) * (24 if units[0] == "h" else 1)
    moments = np.cumsum(steps)
    order = rng.permutation(count) if data.draw(st.booleans()) else np.arange(count)
    packed = data.draw(st.booleans())
    chunks = (data.draw(st.integers(1, 40)), 2, 3)
    store = MemoryStore()
    group = make_cube(store, moments[order], units, calendar, chunks, packed)
    cube = decoded(store).t.sortby("time")
    method = data.draw(st.sampled_from(["mean", "sum", "max", "std", "count"]))
    every = data.draw(st.sampled_from([*EVERY]))
    made = MemoryStore()
    zstore.reduce(group, method, every=every, out=made)
    mine = decoded(made)
    wanted = getattr(cube.resample(time=EVERY[every]), method)()
    has = cube.notnull().any(["lat", "lon"]).resample(time=EVERY[every]).count() > 0
    wanted = wanted.sel(time=has.time[has])
    assert list(mine.time.values) == list(wanted.time.values)
    np.testing.assert_allclose(mine.t.values, wanted.transpose("time", "lat", "lon").values, rtol=1e-6)
    by = data.draw(st.sampled_from(BY))
    made = MemoryStore()
    zstore.reduce(group, method, by=by, out=made)
    mine = decoded(made).swap_dims(time=by)
    wanted = getattr(cube.groupby(f"time.{by}"), method)()
    mine = mine.sel({by: wanted[by].values})
    np.testing.assert_allclose(mine.t.values, wanted.transpose(by, "lat", "lon").values, rtol=1e-6)


def test_the_year_without_ten_days_has_the_seasons_and_days_of_xarray():
    for first in (0, 24 * 20):  # of the Julian calendar, and behind the reform
        store, begin, made = MemoryStore(), "hours since 1582-10-02", MemoryStore()
        group = make_cube(store, first + 24 * np.arange(70), begin, "standard", (7, 2, 3), False)
        cube = decoded(store).t
        zstore.reduce(group, "mean", every="season", out=made)
        wanted = cube.resample(time=EVERY["season"]).mean()
        assert list(decoded(made).time.values) == list(wanted.time.values)
        zstore.reduce(group, "mean", by="dayofyear", out=(made := MemoryStore()))
        np.testing.assert_array_equal(decoded(made).dayofyear, cube.time.dt.dayofyear)


def test_a_group_of_months_says_all_that_cf_wants(tmp_path: Path):
    moments = np.arange(70, dtype="i4")
    extra = {"area": (["lat", "lon"], np.ones((3, 4))), "wind": (["time"], np.ones(70, "f4"))}
    make_cube(tmp_path / "s", moments, "days since 2001-11-20", "noleap", **extra)
    made = zstore.reduce(tmp_path / "s", "mean", every="month", out=tmp_path / "m")
    assert sorted(name for name, _ in made.members()) == [
        "area", "crs", "lat", "lon", "t", "time", "time_bnds", "wind",
    ]  # fmt: skip
    assert made.attrs["title"] == "a cube" and made["t"].dims == ("time", "lat", "lon")
    said = dict(made["t"].attrs)
    assert said["cell_methods"] == "time: maximum time: mean (interval: 1 day)"
    assert said["grid_mapping"] == "crs" and said["units"] == "K" and "ancillary_variables" not in said
    time = made["time"]
    assert time.attrs["bounds"] == "time_bnds" and time.attrs["long_name"] == "moment"
    assert time.attrs["units"] == "days since 2001-11-20" and time.attrs["calendar"] == "noleap"
    np.testing.assert_array_equal(time[...], [-19, 11, 42])
    np.testing.assert_array_equal(made["time_bnds"][...], [[-19, 11], [11, 42], [42, 73]])
    np.testing.assert_array_equal(made["area"][...], np.ones((3, 4)))
    months = zstore.reduce(tmp_path / "s", "max", by="month", out=tmp_path / "c")
    assert months["time"].attrs["climatology"] == "climatology_bnds"
    words = "time: maximum time: maximum within years time: maximum over years"
    assert months["t"].attrs["cell_methods"] == words and months["t"].attrs["coordinates"] == "month"
    np.testing.assert_array_equal(months["month"][...], [11, 12, 1])
    array = zstore.open_array(tmp_path / "s/t", above=True)
    np.testing.assert_array_equal(array.reduce("mean", every="month"), made["t"][...])
    one = zstore.reduce(tmp_path / "s/t", "mean", every="month", out=tmp_path / "one")
    assert sorted(name for name, _ in one.members()) == ["crs", "lat", "lon", "t", "time", "time_bnds"]
    findings = [f for f in zstore.validate(tmp_path / "m").findings if f.severity == "error"]
    assert not findings


def test_missing_moments_and_dates_of_numpy_belong_where_they_are(tmp_path: Path):
    group = zstore.create_group(MemoryStore())
    dates = np.array(["2001-01-31", "NaT", "2001-02-01", "2001-01-01"], "M8[s]")
    group.create_array("time", data=dates, dimension_names=["time"])
    group.create_array("v", data=np.array([1.0, 2, 3, 5]), dimension_names=["time"])
    made = zstore.reduce(group, "sum", every="month", out=MemoryStore())
    np.testing.assert_array_equal(made["v"][...], [6, 3])
    assert decoded(made.store).time.dt.month.values.tolist() == [1, 2]
    hours = np.array([0, 3.5, np.nan, -99], "f4")
    group = zstore.create_group(MemoryStore())
    said = {"units": "hours since 1999-12-31 23:00", "_FillValue": -99.0}
    group.create_array("time", data=hours, dimension_names=["time"], attributes=said)
    group.create_array("v", data=np.array([1, 2, 4, 8]), dimension_names=["time"])
    np.testing.assert_array_equal(group["v"].reduce("sum", every="year"), [1, 2])


def test_several_dimensions_are_reduced_with_time_and_weights():
    store = MemoryStore()
    group = make_cube(store, np.arange(90.0), "days since 2001-01-01", chunks=(20, 3, 4))
    cube = decoded(store).t
    wanted = cube.weighted(np.cos(np.radians(cube.lat))).mean(["lat", "lon"])
    mine = zstore.reduce(group["t"], "mean", ["lat", "lon"], weights="latitude")
    np.testing.assert_allclose(mine, wanted, rtol=1e-12)
    weights = np.cos(np.radians([-60.0, 0, 60]))[:, None]
    np.testing.assert_array_equal(group["t"].reduce("mean", ["lat", "lon"], weights=weights), mine)
    total = cube.weighted(np.cos(np.radians(cube.lat))).sum(["lat", "lon"])
    np.testing.assert_allclose(group["t"].reduce("sum", [1, 2], weights="latitude"), total, rtol=1e-12)
    made = zstore.reduce(
        group, "mean", ["time", "lat", "lon"], every="month", weights="area", out=MemoryStore()
    )
    areas = [np.sin(np.radians(-30)) + 1, 2 * np.sin(np.radians(30)), 1 - np.sin(np.radians(30))]
    known = cube.notnull() * xr.DataArray(areas, dims="lat")
    wanted = (cube.fillna(0) * known).groupby("time.month").sum(...) / known.groupby("time.month").sum(...)
    np.testing.assert_allclose(made["t"][...], wanted, rtol=1e-12)
    assert made["t"].dims == ("time",)
    assert made["t"].attrs["cell_methods"].endswith("lat: lon: mean time: mean (interval: 1 day)")
    assert "grid_mapping" not in made["t"].attrs and "lat" not in made and "crs" not in made
    group.create_array("w", data=np.arange(12.0).reshape(4, 3), dimension_names=["lon", "lat"])
    wanted = cube.weighted(decoded(store).w).mean(["lat", "lon"])
    np.testing.assert_allclose(group["t"].reduce("mean", ["lon", "lat"], weights="w"), wanted, rtol=1e-12)
    row = cube.weighted(decoded(store).w).mean("lon")
    np.testing.assert_allclose(group["t"].reduce("mean", "lon", weights="w"), row, rtol=1e-12)


@settings(max_examples=15)
@given(st.sampled_from(["f4", "f8", "i2", "u8", "?"]), st.sampled_from([None, 3]), st.integers(0, 9))
def test_weighted_means_are_those_of_numpy(dtype, nodata, seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.integers(0, 9, (11, 5)).astype(dtype), rng.random(11)
    nodata = None if dtype == "?" else nodata
    array = zstore.create_array(MemoryStore(), data=values, chunks=(4, 3))
    hole = np.zeros(values.shape, bool) if nodata is None else values == nodata
    total = np.where(hole, 0, weights[:, None] * values).sum(0)
    mine = array.reduce("sum", 0, weights=weights[:, None][:, 0], nodata=nodata)
    np.testing.assert_allclose(mine, total, rtol=1e-6)
    mean = total / np.where(hole, 0, weights[:, None]).sum(0)
    np.testing.assert_allclose(array.reduce("mean", 0, weights=weights, nodata=nodata), mean, rtol=1e-6)


def test_each_chunk_is_read_once_however_many_months(tmp_path: Path):
    """Also where months begin within chunks, and all months at once need more memory than there is."""
    from unittest import mock

    from zstore.jobs.reduction import reduce

    group = make_cube(MemoryStore(), np.arange(3000.0), "days since 2001-01-01", chunks=(31, 3, 4))
    every = group["t"].reduce("mean", every="month")
    with mock.patch.multiple("zstore.jobs.reduction.plan", PATCH_LIMIT=5000, BOX_SIZE=2000, UNIT_SIZE=9000):
        outline = reduce.higher.outline(group, group, None, every="month", by=None, weights=None)
        planned = reduce.plan_reduction(group["t"], "mean", [0], groups=outline.labels("t"))
        boxes = [box for unit in planned.units() for box in planned.boxes(unit)]
        assert len(planned.course.group_spans) == 5
        read = sum(box[0].stop - box[0].start for box in boxes)
        assert 3000 <= read < 3000 * 1.1
        np.testing.assert_allclose(group["t"].reduce("mean", every="month"), every, rtol=1e-14)


def test_what_cannot_be_is_refused(tmp_path: Path):
    group = make_cube(tmp_path / "s", np.arange(9.0), "days since 2001-01-01")
    array = group["t"]
    for words, said in {
        ("every", "fortnight"): "every is 'fortnight'; expected one of month, season, year, day",
        ("every", "0D"): "every is '0D'",
        ("by", "week"): "by is 'week'; expected one of month, season, dayofyear, hour",
    }.items():
        with pytest.raises(MetadataError, match=said):
            array.reduce("mean", **dict([words]))
    with pytest.raises(MetadataError, match="0 coordinates of time along lat"):
        array.reduce("mean", "lat", every="month")
    with pytest.raises(MetadataError, match="expected one of them"):
        array.reduce("mean", every="month", by="month")
    with pytest.raises(
        ValueError, match="expected a target for the new group, or an array, such as 't' in it"
    ):
        zstore.reduce(group, "mean", every="month")
    with pytest.raises(UnsupportedError, match="max of weighted float64"):
        array.reduce("max", ["lat", "lon"], weights="latitude")
    with pytest.raises(MetadataError, match="weights are 'depth'"):
        array.reduce("mean", weights="depth")
    with pytest.raises(ValueError, match="a weight is nan; expected finite"):
        array.reduce("mean", "lon", weights=[1, np.nan, 1, 1])
    with pytest.raises(ValueError, match=r"weights have the shape \(5,\)"):
        array.reduce("mean", "lon", weights=np.ones(5))
    with pytest.raises(MetadataError, match="axis 'depth'"):
        zstore.reduce(group, "mean", "depth", out=MemoryStore())
    alone = zstore.create_array(MemoryStore(), data=np.ones(3), dimension_names=["time"])
    with pytest.raises(MetadataError, match="an array opened alone has no coordinates"):
        alone.reduce("mean", every="month")
    with pytest.raises(NotFoundError):
        zstore.reduce(tmp_path / "none", "mean", every="month")


def test_dimensions_of_a_group_are_reduced_without_periods():
    store = MemoryStore()
    group = make_cube(store, np.arange(9.0), "days since 2001-01-01", packed=True)
    made = zstore.reduce(group, "mean", "lon", out=MemoryStore())
    cube = decoded(store).t
    np.testing.assert_allclose(made["t"][...], cube.mean("lon"), rtol=1e-6)
    assert sorted(name for name, _ in made.members()) == ["lat", "t", "time", "time_bnds"]
    assert "scale_factor" not in made["t"].attrs
    every = zstore.reduce(group, "max", out=MemoryStore())
    np.testing.assert_allclose(every["t"][...], cube.max(), rtol=1e-6)


@pytest.mark.parametrize("calendar", ["standard", "360_day"])
@pytest.mark.parametrize(
    "words", [{"every": "month"}, {"every": "10D"}, {"by": "season"}, {"by": "dayofyear"}]
)
def test_no_moment_makes_no_period(calendar, words):
    for moments in (np.zeros(0), np.full(2, np.nan)):
        group = make_cube(MemoryStore(), moments, "days since 2001-01-01", calendar)
        made = zstore.reduce(group, "mean", out=MemoryStore(), **words)
        assert made["t"].shape == (0, 3, 4) and made["time"].shape == (0,)


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
def test_times_are_counted_in_units_of_one_length():
    for units, moments, said, begins in [
        ("months since 2001-01-01", [0, 14, 25], "days since 1970-01-01", [11323, 11688, 12053]),
        ("day as %Y%m%d.%f", [20010105, 20020105.5], "days since 1970-01-01", [11323, 11688]),
        ("hours since 2001-01-01 00:30", [0.5, 9000.0], "hours since 2001-01-01 00:30", [-0.5, 8759.5]),
    ]:
        group = make_cube(MemoryStore(), np.array(moments), units)
        made = zstore.reduce(group, "mean", every="year", out=MemoryStore())
        assert made["time"].attrs["units"] == said
        np.testing.assert_array_equal(made["time"][...], begins)
    group = make_cube(MemoryStore(), np.arange(3.0), "days since 0001-01-01")
    with pytest.raises(
        MetadataError, match="begins or ends in the year 0, which the calendar 'standard' does not"
    ):
        zstore.reduce(group, "mean", every="season", out=MemoryStore())

"""When data are of: dates out of numbers in any calendar, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zstore.errors import MetadataError
from zstore.geo.conventions.base import GeoModel, Variable
from zstore.geo.conventions.content import Time
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.timeaxis import TimeAxis, parse_units

from .nodes import FakeArray, FakeGroup

DAY = 86_400_000_000


def axis(values, units, calendar="standard", **attributes) -> TimeAxis:
    return TimeAxis("time", np.asarray(values), units, calendar, attributes)


@pytest.mark.parametrize(
    ("values", "units", "calendar", "dates"),
    [
        ([0, 59, 60], "days since 2020-01-01", "standard", ["2020-01-01", "2020-02-29", "2020-03-01"]),
        ([0.5], "days since 2020-01-01T06:00:00Z", "gregorian", ["2020-01-01T18:00"]),
        ([36], "h since 1970-01-01 00:00:00", "proleptic_gregorian", ["1970-01-02T12:00"]),
        ([1.5], "seconds since 2000-1-1 0:0:0.25", "standard", ["2000-01-01T00:00:01.75"]),
        ([0], "minutes since 2000-01-01 12:00 +05:30", "standard", ["2000-01-01T06:30"]),
        ([0], "minutes since 2000-01-01 12:00 -0230", "standard", ["2000-01-01T14:30"]),
        ([2], "weeks since 2000-01-01", "standard", ["2000-01-15"]),
        ([-1], "days since 0001-01-01", "proleptic_gregorian", ["0000-12-31"]),
        (np.array([3], ">i2"), "ms since 1970-01-01", "standard", ["1970-01-01T00:00:00.003"]),
        ([], "days since 2000-01-01", "standard", []),
    ],
)
def test_dates(values, units, calendar, dates) -> None:
    found = axis(values, units, calendar).dates()
    np.testing.assert_array_equal(found, np.array(dates, "datetime64[us]"))


@pytest.mark.parametrize(
    ("values", "units", "calendar", "first", "last"),
    [
        ([0, 58, 59], "days since 2020-01-01", "noleap", "2020-01-01T00:00:00", "2020-03-01T00:00:00"),
        ([0, 59], "days since 2020-01-01", "360_day", "2020-01-01T00:00:00", "2020-02-30T00:00:00"),
        ([0, 1], "days since 2020-02-30", "360_day", "2020-02-30T00:00:00", "2020-03-01T00:00:00"),
        # Ten days were left out in 1582.
        ([0, 1], "days since 1582-10-04", "standard", "1582-10-04T00:00:00", "1582-10-15T00:00:00"),
        ([730_487], "days since 0001-01-01", "standard", "2001-01-01", "2001-01-01"),
    ],
)
def test_calendars_that_are_not_numpys(values, units, calendar, first, last) -> None:
    pytest.importorskip("cftime", reason="these calendars are cftime's (extra 'time')")
    assert axis(values, units, calendar).extent() == (first, last)
    dates = axis(values, units, calendar).dates()
    if dates.dtype.kind == "O":
        with pytest.raises(MetadataError, match=f"dates of 'time' are of the calendar {calendar}; expected"):
            TimeAxis.from_dates(dates)


@pytest.mark.filterwarnings("ignore:Unable to decode time axis into full numpy")
@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        *((f"{unit} since 2000-02-27 06:00:00", calendar)
          for unit in ("milliseconds", "seconds", "minutes", "hours", "days")
          for calendar in ("standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian")),
        ("nanoseconds since 2000-02-27", "standard"),
        ("nanoseconds since 1999-12-31T23:59:59.5Z", "proleptic_gregorian"),
        ("minutes since 1500-02-28", "standard"),
        ("months since 2000-01-30", "360_day"),
        ("days since 2000", "standard"),
        ("days since 2000-3", "standard"),
    ],
)  # fmt: skip
def test_dates_are_those_of_xarray(units, calendar, dtype) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("cftime", reason="these calendars are cftime's (extra 'time')")
    values = np.array([0, 1, 2, 59, 400], dtype)
    expected = xr.conventions.decode_cf_variable(
        "time", xr.Variable("time", values, {"units": units, "calendar": calendar})
    ).values
    found = axis(values, units, calendar).dates()
    is_numpys = calendar in ("standard", "proleptic_gregorian") and "1500" not in units
    assert (found.dtype.kind == "M") == is_numpys
    np.testing.assert_array_equal(found, expected)


def test_nanoseconds_stay() -> None:
    dates = np.array(["2020-01-01T00:00:00.000000001", "2020-01-01"], "M8[ns]")
    np.testing.assert_array_equal(TimeAxis("time", dates).dates(), dates)
    counted = TimeAxis.from_dates(dates)
    assert counted.units == "nanoseconds since 1970-01-01"
    np.testing.assert_array_equal(counted.dates(), dates)
    # Where numpy has no nanoseconds, whole microseconds are dates and parts of one are an error.
    assert axis([2000], "ns since 2500-01-01").extent() == ("2500-01-01T00:00:00.000002",) * 2
    with pytest.raises(MetadataError, match="parts of a microsecond"):
        axis([2001], "ns since 2500-01-01").dates()


@pytest.mark.parametrize(
    ("units", "calendar", "last"),
    [
        # UDUNITS: a year is 365.242198781 days, a month its twelfth.
        ("years since 2000-01-01", "standard", "2000-12-31T05:48:45.974700"),
        ("months since 2000-01-01", "standard", "2000-01-31T10:29:03.831225"),
        ("months since 2001-01-01", "noleap", "2001-01-31T10:29:03.831225"),
        ("common_years since 2001-01-01", "noleap", "2002-01-01T00:00:00"),
    ],
)
def test_months_and_years_are_those_of_udunits_and_a_finding_says_so(units, calendar, last) -> None:
    if calendar != "standard":
        pytest.importorskip("cftime", reason="these calendars are cftime's (extra 'time')")
    geo, findings = read_geo(cube(coordinate(units=units, calendar=calendar)))
    assert geo.time.extent()[1] == last
    told = [(f.severity, "UDUNITS" in f.message) for f in findings if f.rule == "MS-09"]
    assert told == ([] if units.startswith("common") else [("warning", True)])


@pytest.mark.parametrize(
    ("values", "calendar", "dates"),
    [
        ([20200131.25, 20200229.0], "proleptic_gregorian", ["2020-01-31T06:00:00", "2020-02-29T00:00:00"]),
        (np.array([19991231, 20000101], "i4"), "standard", ["1999-12-31T00:00:00", "2000-01-01T00:00:00"]),
        ([20200230.5, 20200101.0], "360_day", ["2020-02-30T12:00:00", "2020-01-01T00:00:00"]),
        ([15821004.0, 15821015.0], "standard", ["1582-10-04T00:00:00", "1582-10-15T00:00:00"]),
    ],
)
def test_dates_are_read_by_their_digits_with_a_finding(values, calendar, dates) -> None:
    pytest.importorskip("cftime", reason="these calendars are cftime's (extra 'time')")
    geo, findings = read_geo(cube(coordinate(values, units="day as %Y%m%d.%f", calendar=calendar)))
    found = [str(d) if isinstance(d, np.datetime64) else d.isoformat() for d in geo.time.dates()]
    assert [date.partition(".")[0] for date in found] == dates
    assert [f.severity for f in findings if f.rule == "MS-09"] == ["warning"]
    for wrong in (20200230.0, 20201301.0, 20200100.0):
        with pytest.raises(MetadataError, match="no date"):
            axis([wrong], "day as %Y%m%d.%f", "proleptic_gregorian").dates()
    missing = axis([20200101.0, np.nan], "day as %Y%m%d.%f").dates()
    assert np.isnat(missing).tolist() == [False, True]


@pytest.mark.parametrize("calendar", ["none", "utc", "tai"])
def test_calendars_without_dates_are_named_by_a_finding(calendar) -> None:
    geo, findings = read_geo(cube(coordinate(calendar=calendar)))
    assert geo.time is None
    [found] = [finding for finding in findings if finding.rule == "MS-09"]
    assert found.severity == "warning"
    assert f"calendar {calendar!r}" in found.message


def test_missing_dates_are_no_dates() -> None:
    found = axis([0.0, np.nan, -999.0], "days since 2000-01-01", _FillValue=-999.0).dates()
    np.testing.assert_array_equal(np.isnat(found), [False, True, True])
    assert axis([np.nan], "days since 2000-01-01").extent() is None
    dates = TimeAxis("t", np.array(["2001-02-03", "NaT"], "M8[D]"))
    assert dates.extent() == ("2001-02-03", "2001-02-03")


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (None, "a count"),
        ("days", "a count"),
        (7, "a count"),
        ("jiffies since 2000-01-01", "a unit of one length"),
        ("days since yesterday", "a date"),
        ("days since 2000-13-01", "no such date"),
        ("days since 2000-01-01 99:00", "no such date"),
    ],
)
def test_what_is_no_count_of_time(units, expected) -> None:
    with pytest.raises(MetadataError, match=expected):
        parse_units(units)


def test_numbers_that_no_date_can_hold() -> None:
    with pytest.raises(MetadataError, match="too large"):
        axis([2**60], "days since 2000-01-01").dates()
    with pytest.raises(MetadataError, match="expected numbers"):
        axis(["a"], "days since 2000-01-01")
    with pytest.raises(MetadataError, match="calendar"):
        axis([1], "days since 2000-01-01", "lunar")
    with pytest.raises(MetadataError, match="calendar"):
        axis([1], "days since 2000-01-01", ["standard"])
    with pytest.raises(MetadataError, match="NaT"):
        TimeAxis.from_dates(["2000-01-01", "NaT"])
    with pytest.raises(MetadataError, match="no dates"):
        TimeAxis.from_dates(["yesterday"])


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**55), 2**55).map(lambda n: n - n % 1000), min_size=1, max_size=5))
def test_dates_come_back(counts) -> None:
    dates = np.array(counts, "datetime64[us]")
    found = TimeAxis.from_dates(dates)
    np.testing.assert_array_equal(found.dates(), dates)
    whole_days = all(count % DAY == 0 for count in counts)
    assert found.units.startswith("days") is whole_days


def cube(coordinate: FakeArray | None, dims=("time", "y", "x"), **others) -> FakeGroup:
    children = {"data": FakeArray("data", np.zeros((2, 4, 5)), dims), **others}
    if coordinate is not None:
        children[coordinate.path] = coordinate
    return FakeGroup(children=children)


def coordinate(values=(0, 1), name="time", dims=("time",), **attributes) -> FakeArray:
    attributes = {"units": "days since 2000-01-01", **attributes}
    return FakeArray(name, np.asarray(values), dims, {k: v for k, v in attributes.items() if v is not None})


def test_a_time_coordinate_is_told_by_units_name_or_axis() -> None:
    geo, _ = read_geo(cube(coordinate(calendar="NoLeap", long_name="when", bounds="time_bnds")))
    assert (geo.time.name, geo.time.calendar) == ("time", "noleap")
    assert geo.time.attributes == {"long_name": "when", "bounds": "time_bnds"}
    geo, _ = read_geo(cube(coordinate(name="when", dims=("when",), axis="T"), ("when", "y", "x")))
    assert geo.time.name == "when"
    geo, _ = read_geo(cube(coordinate(np.array([1, 2], "M8[s]"), units=None)))
    assert geo.time.extent() == ("1970-01-01T00:00:01", "1970-01-01T00:00:02")
    reference = coordinate(name="run", dims=("run",), standard_name="forecast_reference_time")
    assert read_geo(cube(reference, ("run", "y", "x")))[0].time is None
    assert read_geo(cube(coordinate(units="m", name="z", dims=("z",)), ("z", "y", "x")))[0].time is None
    assert read_geo(cube(None))[0].time is None


def test_a_single_moment_beside_the_data() -> None:
    group = cube(coordinate(7, dims=()), ("band", "y", "x"))
    geo, _ = read_geo(group)
    assert geo.time.extent() == ("2000-01-08", "2000-01-08")
    documents = Time().render(geo, 3)
    assert documents["time"]["dimension_names"] == () and documents["time"]["data"].shape == ()


def test_an_axis_before_a_moment_and_the_others_are_told() -> None:
    group = cube(coordinate())
    group.children["b"] = FakeArray("b", np.zeros((3, 4, 5)), ("month", "y", "x"))
    group.children["month"] = coordinate([0, 31, 60], name="month", dims=("month",))
    geo, findings = read_geo(group)
    assert geo.time.name in ("time", "month")
    assert [f.severity for f in findings if f.rule == "MS-09"] == ["note"]


def test_a_broken_time_coordinate_is_told_and_left_out() -> None:
    geo, findings = read_geo(cube(coordinate(units="fathoms since 2000-01-01")))
    assert geo.time is None
    (found,) = [finding for finding in findings if finding.rule == "MS-09"]
    assert (found.severity, found.path) == ("error", "time") and "fathoms" in found.message


def test_check_wants_the_standard_name() -> None:
    group = cube(coordinate())
    geo, _ = read_geo(group)
    data = group.children["data"]
    assert [f.expected for f in Time().check(data, geo, group)] == ["time"]
    other = GeoModel(
        None, None, (4, 5), variables={"data": Variable()}, time=TimeAxis.from_dates(["2000-01-01"])
    )
    assert "GZ-33" in {finding.rule for finding in Time().check(data, other, group)}

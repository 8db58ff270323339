"""Time coordinates: numbers counted from a moment in a calendar, and their dates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import MetadataError
from zstore.extensions.extras import optional
from zstore.model.packing import FILLS

Values = np.ndarray[Any, Any]

# fmt: off
CALENDARS = frozenset((
    "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "all_leap", "366_day", "360_day",
    "julian",
))
MICROSECONDS: Mapping[str, int | Fraction] = {
    name: size
    for names, size in (
        ("ns nsec nsecs nanosecond nanoseconds", Fraction(1, 1000)),
        ("us usec usecs microsecond microseconds", 1),
        ("ms msec msecs millisecond milliseconds", 1000),
        ("s sec secs second seconds", 1_000_000),
        ("min mins minute minutes", 60_000_000),
        ("h hr hrs hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
        ("week weeks", 604_800_000_000),
        ("common_year common_years", 365 * 86_400_000_000),
        ("leap_year leap_years", 366 * 86_400_000_000),
        ("month months", 2_629_743_831_225),
        ("year years yr yrs", 31_556_925_974_700),
    )
    for name in names.split()
}
# fmt: on
# Units that have UDUNITS' one length, which is that of no month or year in any calendar.
UNEVEN = frozenset(("month", "months", "year", "years", "yr", "yrs"))
# In the calendar "360_day", where every month has 30 days.
MONTH = 30 * 86_400_000_000
GREGORIAN = frozenset(("standard", "gregorian", "proleptic_gregorian"))
# In which the year 1 follows the year -1.
WITHOUT_ZERO = frozenset(("standard", "gregorian", "julian"))
# The first day of the Gregorian calendar: "standard" means the Julian one before it, numpy does not.
REFORM, REFORMED = np.datetime64("1582-10-15", "us"), 15821015
# The moment that ticks are counted from, which all calendars have.
SINCE = "microseconds since 1970-01-01"
# Years that numpy counts in microseconds without overflow, with room to spare.
LARGEST = 2.0**62
COUNT = re.compile(r"\s*(\w+)\s+since\s+(.+?)\s*", re.IGNORECASE)
# What GrADS, CDO and CMIP write in place of a count: the digits of the date, and a part of the day.
DATED = re.compile(r"\s*days?\s+as\s+%Y%m%d(?:\.%f)?\s*", re.IGNORECASE)
MOMENT = re.compile(
    r"(-?\d{1,5})(?:-(\d{1,2})(?:-(\d{1,2}))?)?"
    r"(?:(?:T|\s+)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(\.\d*)?)?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """The moments of the items along a dimension, or one moment for all of the data.

    values      as stored: numbers counted in `units`, or datetime64, which has no units
    units       "hours since 2020-01-01" and the like, or "day as %Y%m%d.%f"
    attributes  the coordinate's others, kept as they are

    Shapes
        values (n) along the dimension `name`, or ().
    """

    name: str
    values: Values
    units: str | None = None
    calendar: str = "standard"
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = np.array(self.values)
        if values.ndim > 1 or values.dtype.kind not in "iufM":
            raise MetadataError(
                f"time {self.name!r} is {values.dtype} of shape {values.shape}; "
                "expected numbers or datetime64 along one dimension"
            )
        if values.dtype.kind != "M" and not is_dated(self.units):
            parse_units(self.units, self.calendar)
        if not isinstance(self.calendar, str) or self.calendar not in CALENDARS:
            known = ", ".join(sorted(CALENDARS))
            raise MetadataError(f"calendar of {self.name!r} is {self.calendar!r}; expected one of {known}")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @classmethod
    def stored(cls, name: str, values: Any, attributes: Mapping[str, Any]) -> TimeAxis:
        """The axis of the values of a coordinate, by its attributes.

        Raises
            MetadataError: they are no dates.
        """
        is_count = values.dtype.kind != "M"
        others = {key: said for key, said in attributes.items() if key not in ("units", "calendar")}
        calendar = str(attributes.get("calendar", "standard")).lower() if is_count else "standard"
        return cls(name, values, attributes.get("units") if is_count else None, calendar, others)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimeAxis):
            return NotImplemented
        mine, theirs = self.values, other.values
        same_values = mine.dtype == theirs.dtype and mine.shape == theirs.shape
        return (
            same_values
            and mine.tobytes() == theirs.tobytes()
            and (self.name, self.units, self.calendar, self.attributes)
            == (other.name, other.units, other.calendar, other.attributes)
        )

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_dates(cls, dates: Any, name: str = "time") -> TimeAxis:
        """The axis of these dates: datetime64, `datetime`s, or text that numpy reads as such.

        Counted from 1970 in the largest of days, hours, minutes, seconds, microseconds and nanoseconds that
        makes whole numbers of them.

        Raises
            MetadataError: they are no dates, or are of another calendar, or one is missing (NaT).
        """
        given = np.asarray(dates)
        if given.dtype.kind == "O" and (odd := {one.calendar for one in given.flat if not _is_numpys(one)}):
            said = f"dates of {name!r} are of the calendar {', '.join(sorted(odd))}"
            raise MetadataError(f"{said}; expected dates of the calendar that numpy has, proleptic_gregorian")
        try:
            found = given.astype("datetime64[us]")
        except (TypeError, ValueError) as error:
            raise MetadataError(f"dates of {name!r} are no dates: {error}") from error
        if np.isnat(found).any():
            raise MetadataError(f"a date of {name!r} is missing (NaT); expected a date for every item")
        if given.dtype.kind == "M" and (found != given).any():
            counts = given.astype("datetime64[ns]").astype(np.int64)
            return cls(name, counts, "nanoseconds since 1970-01-01", "proleptic_gregorian")
        counts = found.astype(np.int64)
        for unit in ("days", "hours", "minutes", "seconds", "microseconds"):
            size = int(MICROSECONDS[unit])
            if not (counts % size).any():
                break
        return cls(name, counts // size, f"{unit} since 1970-01-01", "proleptic_gregorian")

    @property
    def caution(self) -> str | None:
        """A sentence for who reads dates of units that CF has not or advises against; None for all others."""
        if self.values.dtype.kind == "M":
            return None
        if is_dated(self.units):
            return f"units are {self.units!r}, which CF has not: digits are read as dates"
        unit = str(self.units).split()[0].lower()
        if unit not in UNEVEN or (self.calendar == "360_day" and unit in ("month", "months")):
            return None
        days = MICROSECONDS[unit] / 86_400_000_000
        return (
            f"units are {self.units!r}: each is {float(days):.9g} days, as UDUNITS and CF 4.4 have it, "
            f"and not a {unit.removesuffix('s')} of the calendar"
        )

    def dates(self) -> Values:
        """The dates, NaT for missing values; cftime's objects in calendars that numpy does not have.

        Shapes
            as `values`; datetime64[us], of nanoseconds datetime64[ns], or object.
        Raises
            UnsupportedError: cftime is not installed, and the calendar needs it.
            MetadataError: numbers that are no dates, or too large.
        """
        if self.values.dtype.kind == "M":
            is_fine = np.datetime_data(self.values.dtype)[0] in ("ns", "ps", "fs", "as")
            return self.values.astype("datetime64[ns]" if is_fine else "datetime64[us]")
        missing = self._missing()
        values = np.where(missing, np.zeros((), self.values.dtype), self.values)
        if is_dated(self.units):
            return self._written_dates(values, missing)
        size, moment, _ = parse_units(self.units, self.calendar)
        longest = float(np.abs(values.astype(np.float64)).max(initial=0)) * float(size)
        if not longest <= LARGEST:
            raise MetadataError(f"time {self.name!r} holds numbers too large for {self.units!r}")
        if self.calendar not in GREGORIAN or moment is None:
            return self._cftime_dates(values, missing)
        if size < 1 and abs(int(moment.astype(np.int64))) + longest < LARGEST / 1000:
            ticks = values if values.dtype.kind in "iu" else np.rint(values)
            dates: Values = moment.astype("datetime64[ns]") + ticks.astype(np.int64).astype("timedelta64[ns]")
        else:
            dates = moment + self._microseconds(values, size).astype("timedelta64[us]")
        if self.calendar != "proleptic_gregorian" and (
            moment < REFORM or bool((dates.astype("datetime64[us]") < REFORM).any())
        ):
            return self._cftime_dates(values, missing)
        return np.where(missing, np.array("NaT", dates.dtype), dates)

    def _microseconds(self, values: Values, size: int | Fraction) -> Values:
        """Numbers of a unit of `size` as whole numbers of microseconds."""
        if size >= 1:
            if values.dtype.kind in "iu":
                return values.astype(np.int64) * int(size)
            return np.rint(values * np.float64(int(size))).astype(np.int64)
        ticks = np.rint(values).astype(np.int64)
        if (ticks % size.denominator).any():
            raise MetadataError(
                f"time {self.name!r} has parts of a microsecond, in {self.units!r} of the calendar "
                f"{self.calendar!r}; expected whole ones, or dates of the standard calendar around 1970"
            )
        return ticks // size.denominator

    def _written_dates(self, values: Values, missing: Values) -> Values:
        """The dates whose digits the numbers are: 20200131.25 is six o'clock on 31 January."""
        digits = np.floor(values).astype(np.int64)
        # The last digit of a float64 is a third of a millisecond.
        parts = np.rint((values - digits) * 86_400_000).astype("timedelta64[ms]")
        years, months, days = digits // 10_000, digits // 100 % 100, digits % 100
        is_reformed = digits[~missing].min(initial=REFORMED) >= REFORMED
        if self.calendar == "proleptic_gregorian" or (self.calendar in GREGORIAN and is_reformed):
            begins = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
            dates = begins.astype("datetime64[D]") + (days - 1)
            wrong = ~missing & ((months < 1) | (months > 12) | (dates.astype("datetime64[M]") != begins))
            if wrong.any():
                raise MetadataError(f"time {self.name!r} has {digits[wrong][0]}, which is no date")
            return np.where(missing, np.datetime64("NaT", "us"), dates.astype("datetime64[us]") + parts)
        cftime = _import_cftime()
        found = np.full(values.shape, None, object)
        for at in np.argwhere(~missing):
            year, month, day = (int(part[*at]) for part in (years, months, days))
            try:
                found[*at] = cftime.datetime(year, month, day, calendar=self.calendar) + parts[*at].item()
            except ValueError as error:
                number = digits[*at]
                raise MetadataError(f"time {self.name!r} has {number}, which is no date: {error}") from error
        return found

    def extent(self) -> tuple[str, str] | None:
        """The earliest and the latest date as text (ISO 8601); None without any date.

        Raises
            as `dates`.
        """
        dates = np.atleast_1d(self.dates())
        if dates.dtype.kind == "M":
            dates = dates[~np.isnat(dates)]
            texts = (
                [str(np.datetime_as_string(d, unit="auto")) for d in (dates.min(), dates.max())]
                if dates.size
                else []
            )
        else:
            known = [date for date in dates if date is not None]
            texts = [date.isoformat() for date in (min(known), max(known))] if known else []
        return (texts[0], texts[1]) if texts else None

    @property
    def is_mixed(self) -> bool:
        """Whether dates before 15 October 1582 are in the Julian calendar."""
        return self.values.dtype.kind != "M" and self.calendar in ("standard", "gregorian")

    def ticks(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
        """(whole microseconds from 1970-01-01 to each date in the axis's calendar, which dates are missing).

        Shapes
            both as `values`; missing dates have 0 ticks.
        Raises
            as `dates`.
        """
        dates = self.dates()
        if dates.dtype.kind == "M":
            missing = np.isnat(dates)
            return np.where(missing, 0, dates.astype("datetime64[us]").astype(np.int64)), missing
        missing = dates == None  # noqa: E711 - item by item
        made = np.zeros(dates.shape, np.int64)
        made[~missing] = self._ticks_of(dates[~missing])
        return made, missing

    def months(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The months from January of the year 0 to each date; 0 for missing dates.

        Raises
            as `dates`.
        """
        dates = self.dates()
        if dates.dtype.kind == "M":
            counts = dates.astype("datetime64[M]").astype(np.int64) + 1970 * 12
            return np.where(np.isnat(dates), 0, counts)
        months = [0 if date is None else date.year * 12 + date.month - 1 for date in dates.flat]
        return np.array(months, np.int64).reshape(dates.shape)

    def ticks_of_months(self, months: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The ticks of the first moment of months that are counted as by `months`.

        Raises
            MetadataError: the calendar has no such year.
        """
        if self.dates().dtype.kind == "M":
            begins = (np.asarray(months) - 1970 * 12).astype("datetime64[M]").astype("datetime64[us]")
            if not self.is_mixed or (begins >= REFORM).all():
                return begins.astype(np.int64)
        cftime = _import_cftime()
        pairs = [divmod(int(n), 12) for n in months]
        if self.calendar in WITHOUT_ZERO and any(year == 0 for year, _ in pairs):
            said = f"a period of time {self.name!r} begins or ends in the year 0"
            raise MetadataError(f"{said}, which the calendar {self.calendar!r} does not have")
        dates = [cftime.datetime(year, month + 1, 1, calendar=self.calendar) for year, month in pairs]
        return self._ticks_of(np.array(dates, object))

    def _ticks_of(self, dates: Values) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The ticks of cftime's dates."""
        if not dates.size:
            return np.zeros(dates.shape, np.int64)
        return np.asarray(_import_cftime().date2num(dates, SINCE, self.calendar), np.int64)

    def counted(self, ticks: Any) -> tuple[Values, str, str]:
        """(numbers, their units, their calendar) of moments given by their ticks.

        The units are the axis's where they have one length, else the largest that makes whole numbers. Whole
        numbers are integers, others float64.
        """
        ticks = np.asarray(ticks, np.int64)
        if self.values.dtype.kind == "M" or is_dated(self.units):
            size, begin, units = None, 0, ""
        else:
            size, _, _ = parse_units(self.units, self.calendar)
            units = str(self.units)
            is_even = units.split()[0].lower() not in UNEVEN or self.calendar == "360_day"
            size = size if is_even else None
            begin = int(replace(self, values=np.zeros((), np.int64), attributes={}).ticks()[0])
        calendar = self.calendar if self.values.dtype.kind != "M" else "proleptic_gregorian"
        if size is None:
            names = ("days", "hours", "minutes", "seconds", "microseconds")
            unit = next(name for name in names if not (ticks % int(MICROSECONDS[name])).any())
            size, begin, units = MICROSECONDS[unit], 0, f"{unit} since 1970-01-01"
        whole = [(int(tick) - begin) / Fraction(size) for tick in ticks.flat]
        kind = np.int64 if all(one.denominator == 1 for one in whole) else np.float64
        return np.array([*map(kind, whole)], kind).reshape(ticks.shape), units, calendar

    def _missing(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        missing = np.zeros(self.values.shape, bool)
        if self.values.dtype.kind == "f":
            missing |= np.isnan(self.values)
        for member in FILLS:
            fill = self.attributes.get(member)
            if isinstance(fill, (int, float)):
                missing |= self.values == fill
        return missing

    def _cftime_dates(self, values: Values, missing: Values) -> Values:
        cftime = _import_cftime()
        size, _, since = parse_units(self.units, self.calendar)
        counts, units = self._microseconds(values, size), f"microseconds since {since}"
        try:
            found = cftime.num2date(counts, units, self.calendar, only_use_cftime_datetimes=True)
        except (ValueError, OverflowError) as error:
            raise MetadataError(f"time {self.name!r} is no date in {self.units!r}: {error}") from error
        dates = np.array(found, dtype=object)
        if (
            self.calendar in GREGORIAN
            and dates.size
            and all(d.isoformat() >= "1582-10-15" for d in dates.flat)
        ):
            texts = [date.isoformat() for date in dates.flat]
            plain = np.array(texts, "datetime64[us]").reshape(dates.shape)
            return np.where(missing, np.datetime64("NaT", "us"), plain)
        dates[missing] = None
        return dates

    def recount(self, units: str) -> Values:
        """The stored numbers counted in other units of the same calendar.

        Raises
            UnsupportedError: cftime is not installed, and the calendar needs it.
            MetadataError: units that are no count, a moment that the calendar does not have, or integers that
                the units do not divide.
        """
        expected = f"{self.name!r} cannot be counted in {units!r}"
        if is_dated(self.units):
            raise MetadataError(f"{expected}: it has the digits of dates, {self.units!r}")
        own_step, own_begin, own_since = parse_units(self.units, self.calendar)
        step, begin, since = parse_units(units, self.calendar)
        if self.calendar in GREGORIAN and begin is not None and own_begin is not None:
            shift = int((own_begin - begin).astype("timedelta64[us]").astype(np.int64))
        elif own_since == since:
            shift = 0
        else:
            cftime = _import_cftime()
            try:
                moments = [
                    cftime.num2date(0, f"days since {one}", self.calendar) for one in (own_since, since)
                ]
            except ValueError as error:
                said = f"{self.units!r} of the calendar {self.calendar!r}"
                raise MetadataError(f"{expected}: {said}: {error}") from error
            shift = (moments[0] - moments[1]) // timedelta(microseconds=1)
        if self.values.dtype.kind == "f":
            counted = (self.values.astype(np.float64) * float(own_step) + shift) / float(step)
            return counted.astype(self.values.dtype)
        counts = [int(value) * own_step + shift for value in self.values.ravel().tolist()]
        if any(count % step for count in counts):
            raise MetadataError(f"{expected} without loss, from {self.units!r}")
        whole = [int(count // step) for count in counts]
        return np.array(whole, self.values.dtype).reshape(self.values.shape)


class Count(NamedTuple):
    """A unit of time, and the moment from which it is counted.

    size    microseconds in the unit
    moment  None where numpy has no such date, as February 30
    since   the moment as text: year, month, day, and what follows
    """

    size: int | Fraction
    moment: np.datetime64 | None
    since: str


def _is_numpys(date: Any) -> bool:
    """Whether a date is one of numpy's calendar; of the mixed one, those after its reform are."""
    calendar = getattr(date, "calendar", "proleptic_gregorian")
    return calendar == "proleptic_gregorian" or (calendar in GREGORIAN and date.isoformat() >= "1582-10-15")


def is_dated(units: Any) -> bool:
    """Whether units say that numbers are dates by their digits, as "day as %Y%m%d.%f"."""
    return isinstance(units, str) and DATED.fullmatch(units) is not None


def is_of_time(units: Any) -> bool:
    """Whether units are those of dates: a count since a moment, or digits."""
    return isinstance(units, str) and (" since " in units or is_dated(units))


def parse_units(units: Any, calendar: Any = "standard") -> Count:
    """The unit and the moment of a count such as "hours since 2020-01-01".

    Raises
        MetadataError: it is not "<unit> since <date>", or counts in years of the calendar "360_day".
    """
    found = COUNT.fullmatch(units) if isinstance(units, str) else None
    if found is None:
        raise MetadataError(f"units are {units!r}; expected a count such as 'days since 2000-01-01'")
    unit = found[1].lower()
    size = MICROSECONDS.get(unit)
    if calendar == "360_day" and unit in UNEVEN:
        size = MONTH if unit.startswith("month") else None
    if size is None:
        raise MetadataError(f"units are {units!r}; expected a unit of one length, such as days or seconds")
    parts = MOMENT.fullmatch(found[2])
    if parts is None:
        raise MetadataError(f"units are {units!r}; expected a date such as 2000-01-01 after 'since'")
    year, month, day = (int(part or 1) for part in parts.groups()[:3])
    hour, minute, second = (int(part or 0) for part in parts.groups()[3:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 25 and minute < 60 and second < 61):
        raise MetadataError(f"units are {units!r}; there is no such date")
    date = f"{year:04d}-{month:02d}-{day:02d}"
    since = f"{date}{found[2][parts.end(3 if parts[3] else 2 if parts[2] else 1) :]}"
    try:
        days = np.datetime64(date, "us")
    except ValueError:
        # February 30 is a date of some calendars.
        return Count(size, None, since)
    fraction = round(float(f"0{parts[7]}") * 1e6) if parts[7] and parts[7] != "." else 0
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    return Count(size, days + np.timedelta64(microseconds - _zone(parts[8]), "us"), since)


def _zone(text: str | None) -> int:
    if text is None or text.upper() in ("Z", "UTC", "GMT"):
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    return (-1 if text[0] == "-" else 1) * (hours * 60 + minutes) * 60_000_000


def _import_cftime() -> ModuleType:
    with optional("dates of this calendar can be read only with cftime", "time"):
        import cftime
    return cftime  # type: ignore[no-any-return,unused-ignore]

"""Time coordinates: numbers counted from a moment in a calendar, and their dates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.extensions.extras import optional

Values = np.ndarray[Any, Any]

# fmt: off
CALENDARS = frozenset((
    "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "all_leap", "366_day", "360_day",
    "julian",
))
MICROSECONDS = {
    name: size
    for names, size in (
        ("us usec usecs microsecond microseconds", 1),
        ("ms msec msecs millisecond milliseconds", 1000),
        ("s sec secs second seconds", 1_000_000),
        ("min mins minute minutes", 60_000_000),
        ("h hr hrs hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
        ("week weeks", 604_800_000_000),
    )
    for name in names.split()
}
# fmt: on
# In the calendar "360_day", where every month has 30 days.
MONTH = 30 * MICROSECONDS["day"]
GREGORIAN = frozenset(("standard", "gregorian", "proleptic_gregorian"))
# The first day of the Gregorian calendar: "standard" means the Julian one before it, numpy does not.
REFORM = np.datetime64("1582-10-15", "us")
# Years that numpy counts in microseconds without overflow, with room to spare.
LARGEST = 2.0**62
COUNT = re.compile(r"\s*(\w+)\s+since\s+(.+?)\s*", re.IGNORECASE)
MOMENT = re.compile(
    r"(-?\d{1,5})-(\d{1,2})-(\d{1,2})"
    r"(?:(?:T|\s+)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(\.\d*)?)?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """The moments of the items along a dimension, or one moment for all of the data.

    values      as stored: numbers counted in `units`, or datetime64, which has no units
    units       "hours since 2020-01-01" and the like
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
        if values.dtype.kind != "M":
            parse_units(self.units, self.calendar)
        if not isinstance(self.calendar, str) or self.calendar not in CALENDARS:
            known = ", ".join(sorted(CALENDARS))
            raise MetadataError(f"calendar of {self.name!r} is {self.calendar!r}; expected one of {known}")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

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

        Counted from 1970 in the largest of days, hours, minutes, seconds and microseconds that makes whole
        numbers of them.

        Raises
            MetadataError: they are no dates, or one is missing (NaT).
        """
        try:
            found = np.asarray(dates).astype("datetime64[us]")
        except (TypeError, ValueError) as error:
            raise MetadataError(f"dates of {name!r} are no dates: {error}") from error
        if np.isnat(found).any():
            raise MetadataError(f"a date of {name!r} is missing (NaT); expected a date for every item")
        counts = found.astype(np.int64)
        for unit in ("days", "hours", "minutes", "seconds", "microseconds"):
            size = MICROSECONDS[unit]
            if not (counts % size).any():
                break
        return cls(name, counts // size, f"{unit} since 1970-01-01", "proleptic_gregorian")

    def dates(self) -> Values:
        """The dates, NaT for missing values; cftime's objects in calendars that numpy does not have.

        Shapes
            as `values`; datetime64[us], or object.
        Raises
            UnsupportedError: cftime is not installed, and the calendar needs it.
            MetadataError: numbers that are no dates, or too large.
        """
        if self.values.dtype.kind == "M":
            return self.values.astype("datetime64[us]")
        size, moment = parse_units(self.units, self.calendar)
        missing = self._missing()
        values = np.where(missing, np.zeros((), self.values.dtype), self.values)
        if self.calendar not in GREGORIAN or not isinstance(moment, np.datetime64):
            return self._cftime_dates(values, missing)
        if values.size and float(np.abs(values.astype(np.float64)).max()) * size > LARGEST:
            raise MetadataError(f"time {self.name!r} holds numbers too large for {self.units!r}")
        counts = (
            values.astype(np.int64) * size
            if values.dtype.kind in "iu"
            else np.rint(values * np.float64(size)).astype(np.int64)
        )
        dates: Values = moment + counts.astype("timedelta64[us]")
        if self.calendar != "proleptic_gregorian" and (
            moment < REFORM or (dates.size and bool((dates < REFORM).any()))
        ):
            return self._cftime_dates(values, missing)
        return np.where(missing, np.datetime64("NaT", "us"), dates)

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

    def _missing(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        missing = np.zeros(self.values.shape, bool)
        if self.values.dtype.kind == "f":
            missing |= np.isnan(self.values)
        for member in ("_FillValue", "missing_value"):
            fill = self.attributes.get(member)
            if isinstance(fill, (int, float)):
                missing |= self.values == fill
        return missing

    def _cftime_dates(self, values: Values, missing: Values) -> Values:
        cftime = _import_cftime()
        try:
            found = cftime.num2date(values, self.units, self.calendar, only_use_cftime_datetimes=True)
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
            MetadataError: units that are no count, a calendar or dates that numpy does not have, or integers
                that the units do not divide.
        """
        own_step, own_begin = parse_units(self.units, self.calendar)
        step, begin = parse_units(units, self.calendar)
        expected = f"{self.name!r} cannot be counted in {units!r}"
        if self.calendar not in GREGORIAN or isinstance(begin, str) or isinstance(own_begin, str):
            raise MetadataError(f"{expected}: {self.units!r} of the calendar {self.calendar!r}")
        first, own = (int(one.astype("datetime64[us]").astype(np.int64)) for one in (begin, own_begin))
        shift = own - first
        if self.values.dtype.kind == "f":
            return ((self.values.astype(np.float64) * own_step + shift) / step).astype(self.values.dtype)
        counts = [int(value) * own_step + shift for value in self.values.ravel().tolist()]
        if any(count % step for count in counts):
            raise MetadataError(f"{expected} without loss, from {self.units!r}")
        return np.array([count // step for count in counts], self.values.dtype).reshape(self.values.shape)


def parse_units(units: Any, calendar: Any = "standard") -> tuple[int, np.datetime64 | str]:
    """(microseconds in the unit, moment of the count; text if numpy has no such date).

    Raises
        MetadataError: it is not "<unit> since <date>", or counts in months or years, which differ in length
            (but for months of the calendar "360_day").
    """
    found = COUNT.fullmatch(units) if isinstance(units, str) else None
    if found is None:
        raise MetadataError(f"units are {units!r}; expected a count such as 'days since 2000-01-01'")
    unit = found[1].lower()
    size = MONTH if calendar == "360_day" and unit in ("month", "months") else MICROSECONDS.get(unit)
    if size is None:
        raise MetadataError(f"units are {units!r}; expected a unit of one length, such as days or seconds")
    parts = MOMENT.fullmatch(found[2])
    if parts is None:
        raise MetadataError(f"units are {units!r}; expected a date such as 2000-01-01 after 'since'")
    year, month, day, hour, minute, second = (int(part or 0) for part in parts.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 25 and minute < 60 and second < 61):
        raise MetadataError(f"units are {units!r}; there is no such date")
    try:
        days = np.datetime64(f"{year:04d}-{month:02d}-{day:02d}", "us")
    except ValueError:
        # February 30 is a date of some calendars.
        return size, found[2]
    fraction = round(float(f"0{parts[7]}") * 1e6) if parts[7] and parts[7] != "." else 0
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    return size, days + np.timedelta64(microseconds - _zone(parts[8]), "us")


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

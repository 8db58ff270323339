"""Periods of time that moments lie in: months, seasons, days and the like, of each year or of all years."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.timeaxis import MICROSECONDS, REFORM, TimeAxis

Numbers = np.ndarray[Any, np.dtype[np.int64]]

DAY, HOUR = 86_400_000_000, 3_600_000_000
# Units of periods by their names: months in one, or ticks in one.
MONTHS = {"month": 1, "season": 3, "year": 12}
TICKS = {name: int(MICROSECONDS[name]) for name in ("day", "hour", "minute", "second")}
LETTERS = {"Y": "year", "M": "month", "D": "day", "h": "hour", "min": "minute", "s": "second"}
EVERY = re.compile(r"(\d*) *([A-Za-z]+)")
SEASONS = ("DJF", "MAM", "JJA", "SON")
# For each `by`: the periods that are put together, and CF's words for where they lie and what they repeat in.
BY = {
    "month": ("month", "years"),
    "season": ("season", "years"),
    "dayofyear": ("day", "years"),
    "hour": ("hour", "days"),
}


@dataclass(frozen=True)
class Periods:
    """The periods in which there are moments, in their order.

    codes     the number of the period of each moment, -1 for a missing moment
    bounds    the ticks at which each period begins and ends; of a climatology, at which its first period
              begins and its last one ends
    axis      the moments
    by        the repeated period of a climatology
    labels    of a climatology: the months (1 to 12), seasons, days of the year (from 1) or hours (from 0)

    Shapes
        codes (n), int32; bounds (k, 2); labels (k).
    """

    codes: np.ndarray[Any, np.dtype[np.int32]]
    bounds: Numbers
    axis: TimeAxis
    by: str | None = None
    labels: np.ndarray[Any, Any] | None = None

    def method(self, word: str) -> str:
        """The words of `cell_methods` for a method of this name in CF, without the dimension before them."""
        name = self.axis.name
        if self.by is None:
            return word if (step := interval_of(self.axis)) is None else f"{word} (interval: {step})"
        if word in ("standard_deviation", "variance"):
            return f"{word} (comment: of all moments of each {self.by} together)"
        cycle = BY[self.by][1]
        return f"{word} within {cycle} {name}: {word} over {cycle}"


def interval_of(axis: TimeAxis) -> str | None:
    """The time from each moment to the next in words; None where it differs."""
    ticks, missing = axis.ticks()
    [*steps] = {*np.diff(np.unique(ticks[~missing])).tolist()}
    if len(steps) != 1:
        return None
    unit = next((name for name, size in TICKS.items() if steps[0] % size == 0), None)
    return None if unit is None else f"{steps[0] // TICKS[unit]} {unit}{'s' * (steps[0] != TICKS[unit])}"


def periods_of(axis: TimeAxis, every: str | None, by: str | None) -> Periods:
    """The periods of a time axis, in any order of its moments: one after the other, or those of all years.

    every  "month", "season" (from December on), "year", "day", "hour", "minute", or several: "10D", "6h",
           "3 months". Several begin with the first moment's year or month, or at its midnight
    by     "month", "season", "dayofyear" or "hour": equal ones are one period. They come in the order in
           which they first begin

    Periods without a moment are left out.

    Raises
        MetadataError: no such period, or moments that are no dates.
        UnsupportedError: cftime is not installed, and the calendar needs it.
    """
    ticks, missing = axis.ticks()
    if ticks.ndim != 1:
        raise MetadataError(f"time {axis.name!r} is a single moment; expected one for each item")
    if by is not None and by not in BY:
        raise MetadataError(f"by is {by!r}; expected one of {', '.join(BY)}")
    numbers, begin_of = _numbered(axis, ticks, missing, BY[by][0] if by is not None else str(every))
    kept, first, places = np.unique(numbers[~missing], return_index=True, return_inverse=True)
    bounds = np.stack([begin_of(kept), begin_of(kept + 1)], axis=1)
    codes = np.full(ticks.shape, -1, np.int32)
    codes[~missing] = places.reshape(-1)
    if by is None:
        return Periods(codes, bounds, axis)
    keys = _keys(axis, by, kept, bounds[:, 0], axis.months()[~missing][first])
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    joined = np.argsort(order)[same.reshape(-1)]
    codes[~missing] = joined[places.reshape(-1)]
    ends = np.zeros(len(order), np.int64)
    # The last period of each is the last one that is put there.
    ends[joined] = bounds[:, 1]
    labels = keys[first[order]]
    return Periods(
        codes,
        np.stack([bounds[first[order], 0], ends], axis=1),
        axis,
        by,
        np.array(SEASONS)[labels] if by == "season" else labels,
    )


def _numbered(
    axis: TimeAxis, ticks: Numbers, missing: np.ndarray[Any, np.dtype[np.bool_]], every: str
) -> tuple[Numbers, Callable[[Numbers], Numbers]]:
    """(the number of the period of each moment, a function that gives the first ticks of numbers)."""
    found = EVERY.fullmatch(every.strip())
    unit, count = "", 0
    if found is not None:
        word, count = found[2], int(found[1] or 1)
        unit = LETTERS.get(word, word.lower().removesuffix("s"))
    if count < 1 or unit not in {*MONTHS, *TICKS} or (unit == "season" and count > 1):
        names = ", ".join((*MONTHS, *TICKS))
        raise MetadataError(f"every is {every!r}; expected one of {names}, or several, such as 10D or 6h")
    if unit in TICKS:
        size = count * TICKS[unit]
        origin = int(ticks[~missing].min(initial=ticks.max(initial=0))) // DAY * DAY
        return (ticks - origin) // size, lambda numbers: numbers * size + origin
    months, size = axis.months(), count * MONTHS[unit]
    # Winter begins in December of the year before.
    shift = 1 if unit == "season" else 0
    if count > 1 or unit == "year":
        first = int(months[~missing].min(initial=months.max(initial=0)))
        shift = -(first // 12 * 12 if unit == "year" else first)
    return (months + shift) // size, lambda numbers: axis.ticks_of_months(numbers * size - shift)


def _keys(axis: TimeAxis, by: str, numbers: Numbers, begins: Numbers, months: Numbers) -> Numbers:
    """The month, season, day of the year or hour of each period, by its number, first tick and month."""
    if by == "month":
        return numbers % 12 + 1
    if by == "season":
        return numbers % len(SEASONS)
    if by == "hour":
        return begins % DAY // HOUR
    days = (begins - axis.ticks_of_months(months // 12 * 12)) // DAY + 1
    if axis.is_mixed:  # 31 December is day 365 in 1582, too, as cftime has it
        days += np.where((months // 12 == 1582) & (begins >= REFORM.astype(np.int64)), 10, 0)
    return days

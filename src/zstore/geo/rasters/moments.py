"""The time of a raster: by its name, by one of its tags, or as the caller says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from zstore.errors import MetadataError

Times: TypeAlias = str | Sequence[Any] | None

# What strptime's directives stand for in a name.
DIRECTIVES = {
    "Y": r"(?P<Y>\d{4})",
    "m": r"(?P<m>\d{2})",
    "d": r"(?P<d>\d{2})",
    "j": r"(?P<j>\d{3})",
    "H": r"(?P<H>\d{2})",
    "M": r"(?P<M>\d{2})",
    "S": r"(?P<S>\d{2})",
}
# Dates as they stand in names where nobody says how: 20150117, 2015-01-17, 20150117T013442, 2015017, and in
# Landsat's older scene identifiers.
CLOCK = r"(?:[T_-]?(?P<H>\d{2})[-_:]?(?P<M>\d{2})(?:[-_:]?(?P<S>\d{2}))?)?"
USUAL = (
    re.compile(rf"(?<!\d)(?P<Y>(?:19|20)\d{{2}})(?P<m>\d{{2}})(?P<d>\d{{2}}){CLOCK}(?!\d)"),
    re.compile(rf"(?<!\d)(?P<Y>(?:19|20)\d{{2}})[-_.](?P<m>\d{{2}})[-_.](?P<d>\d{{2}}){CLOCK}(?!\d)"),
    re.compile(r"(?<!\d)(?P<Y>(?:19|20)\d{2})-?(?P<j>\d{3})(?!\d)"),
    re.compile(r"L[A-Z]\d\d{6}(?P<Y>(?:19|20)\d{2})(?P<j>\d{3})[A-Z]{3}\d{2}"),
)
# As TIFF writes them: "2015:01:17 10:20:30".
TIFF_DATE = re.compile(r"\s*(\d{4}):(\d{2}):(\d{2})(?: (\d{2}:\d{2}:\d{2}))?\s*")


def read_moments(
    names: Sequence[str], tags: Sequence[Mapping[str, str]], times: Times
) -> np.ndarray[Any, np.dtype[np.datetime64]]:
    """The moment of each raster, from its file's name, its tags or `times`.

    times   None: the one date in each name; with "%": a pattern of each name, in which %Y %m %d %j %H %M %S
            stand for parts of the date, "*" for anything and "?" for one character; other text: the name of a
            tag; a sequence: a date for each raster

    Shapes
        (number of names), datetime64[us].
    Raises
        MetadataError: a name or a tag that says no date, or several; not as many dates as rasters; one twice.
    """
    if isinstance(times, str):
        pattern = _pattern(times) if "%" in times else None
        found = [
            _by_tag(name, held, times) if pattern is None else _by_name(name, (pattern,), times)
            for name, held in zip(names, tags, strict=True)
        ]
    elif times is None:
        found = [_by_name(name, USUAL, None) for name in names]
    else:
        if len(times) != len(names):
            raise MetadataError(f"{len(times)} times are given; expected {len(names)}, one for each raster")
        found = [_by_value(value, f"time {value!r}") for value in times]
    first: dict[Any, str] = {}
    for moment, name in zip(found, names, strict=True):
        if first.setdefault(moment, name) != name:
            raise MetadataError(
                f"rasters {first[moment]!r} and {name!r} are of one time, {moment}; expected different ones"
            )
    return np.array(found, "datetime64[us]")


def _pattern(text: str) -> re.Pattern[str]:
    """The regular expression of a pattern with strptime's directives, "*" and "?"."""
    made, at = "", 0
    while at < len(text):
        character = text[at]
        if character == "%":
            at += 1
            directive = text[at : at + 1]
            if directive not in DIRECTIVES or f"(?P<{directive}>" in made:
                known = ", ".join(f"%{name}" for name in DIRECTIVES)
                raise MetadataError(f"times are {text!r}; expected each of {known} once at most")
            made += DIRECTIVES[directive]
        else:
            made += {"*": ".*?", "?": "."}.get(character, re.escape(character))
        at += 1
    if "(?P<Y>" not in made:
        raise MetadataError(f"times are {text!r}; expected %Y for the year at least")
    return re.compile(made)


def _by_name(name: str, patterns: Sequence[re.Pattern[str]], stated: str | None) -> np.datetime64:
    """The one date in a name; `stated` is the pattern as the caller wrote it, for the message."""
    found: dict[np.datetime64, str] = {}
    for pattern in patterns:
        for match in pattern.finditer(name):
            moment = _moment(match.groupdict())
            if moment is not None:
                found[moment] = match[0]
    if len(found) == 1:
        return next(iter(found))
    what = f"several dates ({', '.join(found.values())})" if found else "no date"
    by = "" if stated is None else f" by the pattern {stated!r}"
    expected = (
        "expected one: say where it stands by a pattern such as 'S2A_*_%Y%m%dT%H%M%S_*', or give the times"
    )
    raise MetadataError(f"the name {name!r} has {what}{by}; {expected}")


def _moment(parts: Mapping[str, str | None]) -> np.datetime64 | None:
    """The moment of these parts of a date; None where there is no such day or time."""
    number = {name: int(text) for name, text in parts.items() if text is not None}
    clock = (number.get("H", 0), number.get("M", 0), number.get("S", 0))
    try:
        if "j" in number:
            day = datetime(number["Y"], 1, 1, *clock) + timedelta(days=number["j"] - 1)
            return np.datetime64(day, "us") if day.year == number["Y"] else None
        return np.datetime64(datetime(number["Y"], number.get("m", 1), number.get("d", 1), *clock), "us")
    except ValueError:
        return None


def _by_tag(name: str, tags: Mapping[str, str], tag: str) -> np.datetime64:
    """The date that a tag of the raster states."""
    if tag not in tags:
        known = ", ".join(sorted(tags)) or "none"
        raise MetadataError(f"raster {name!r} has no tag {tag!r}; it has {known}")
    return _by_value(tags[tag], f"tag {tag!r} of raster {name!r}: {tags[tag]!r}")


def _by_value(value: Any, what: str) -> np.datetime64:
    """The date that a value is; `what` names it in the message."""
    if isinstance(value, str) and (match := TIFF_DATE.fullmatch(value)):
        value = f"{match[1]}-{match[2]}-{match[3]}T{match[4] or '00:00:00'}"
    elif isinstance(value, str):
        value = value.strip().removesuffix("Z")
    try:
        moments = np.array([value], "datetime64[us]")
    except (TypeError, ValueError):
        moments = np.array(["NaT"], "datetime64[us]")
    if np.isnat(moments[0]):
        raise MetadataError(f"{what} is no date; expected one such as 2015-01-17 or 2015-01-17T10:20:30")
    moment: np.datetime64 = moments[0]
    return moment

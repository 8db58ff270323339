"""Values of coordinates as CF's attributes describe them: packing, nodata, units, and their bounds.

Packed numbers are never taken for positions or dates.
Spec: CF 1.11 §2.5.1 (missing data), §3.1 (units), §7.1 (cell boundaries), §8.1 (packed data); NetCDF Users
Guide, attribute conventions.
Example: {"_FillValue": 0, "scale_factor": 0.0001, "add_offset": 0.0, "units": "1"}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import ZstoreError
from zstore.geo.conventions.base import ArrayNode, Finding
from zstore.model.packing import decode, parse_packing, quantum

METRES = {
    "m": 1.0, "metre": 1.0, "meter": 1.0,
    "ft": 0.3048, "foot": 0.3048, "feet": 0.3048, "international_foot": 0.3048, "international_feet": 0.3048,
    "us_survey_foot": 1200 / 3937, "us_survey_feet": 1200 / 3937, "survey_foot": 1200 / 3937,
    "survey_feet": 1200 / 3937, "ftus": 1200 / 3937,
    "micron": 1e-6, "yard": 0.9144, "mile": 1609.344, "international_mile": 1609.344, "nautical_mile": 1852.0,
}  # fmt: skip
RADIANS = {
    "rad": 1.0, "radian": 1.0, "1": 1.0,
    "degree": math.radians(1), "deg": math.radians(1), "arcdeg": math.radians(1), "°": math.radians(1),
    "degree_east": math.radians(1), "degree_north": math.radians(1), "degree_e": math.radians(1),
    "degree_n": math.radians(1), "degreee": math.radians(1), "degreen": math.radians(1),
    "arcdegree": math.radians(1), "degree_true": math.radians(1),
    "arcminute": math.radians(1 / 60), "arcmin": math.radians(1 / 60), "arc_minute": math.radians(1 / 60),
    "arcsecond": math.radians(1 / 3600), "arcsec": math.radians(1 / 3600),
    "arc_second": math.radians(1 / 3600),
    "grad": math.pi / 200, "grade": math.pi / 200, "gon": math.pi / 200,
}  # fmt: skip
SYMBOLS = {"k": 1e3, "h": 1e2, "d": 1e-1, "c": 1e-2, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
PREFIXES = {
    "mega": 1e6, "kilo": 1e3, "hecto": 1e2, "deca": 1e1, "deci": 1e-1, "centi": 1e-2, "milli": 1e-3,
    "micro": 1e-6, "nano": 1e-9, "pico": 1e-12, "giga": 1e9,
}  # fmt: skip
# What may bear a symbol as its prefix: nobody writes "kfoot".
SHORT = ("m", "rad")
COMPOUND = re.compile(r"^(us|international|nautical|arc)\s+(survey\s+)?", re.IGNORECASE)
TERM = re.compile(r"(?:([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*[ *·]\s*)?(\S+)")


def length_of(units: str) -> float | None:
    """The metres in a unit; None where it is no unit of length."""
    return _measure(units, METRES)


def angle_of(units: str) -> float | None:
    """The radians in a unit; None where it is no unit of angle."""
    return _measure(units, RADIANS)


def _measure(units: str, known: dict[str, float]) -> float | None:
    found = TERM.fullmatch(COMPOUND.sub(lambda words: f"{'_'.join(words[0].split())}_", units.strip()))
    if found is None:
        return None
    one = _word(found[2], known)
    return None if one is None else one * float(found[1] or 1)


def _word(word: str, known: dict[str, float]) -> float | None:
    name = word.lower().replace("degrees", "degree")
    # "ms" are milliseconds, and no metres.
    for candidate in (name, name.removesuffix("s") if len(name) > 2 else name):
        if candidate in known:
            return known[candidate]
        for prefix, times in PREFIXES.items():
            if candidate.startswith(prefix) and candidate.removeprefix(prefix) in known:
                return times * known[candidate.removeprefix(prefix)]
    # In symbols, capitals count.
    if word[:1] in SYMBOLS and word[1:] in SHORT and word[1:] in known:
        return SYMBOLS[word[0]] * known[word[1:]]
    return None


def rounding_of(coordinate: ArrayNode, values: np.ndarray[Any, Any]) -> float:
    """The error of a coordinate's values from the rounding of floats; 0 for integers."""
    dtype = np.dtype(coordinate.dtype)
    return float(np.finfo(dtype).eps * np.abs(values).max(initial=0.0) * 4) if dtype.kind == "f" else 0.0


def read_values(coordinate: ArrayNode, findings: list[Finding]) -> np.ndarray[Any, Any] | None:
    """All values of a coordinate, decoded; None, with a finding, where they are damaged, gone or too many."""
    name, attributes = coordinate.path.rpartition("/")[2], coordinate.attrs
    try:
        values = decode(np.asarray(coordinate[...]), attributes)
    except ZstoreError as error:
        message = f"coordinate {name!r} cannot be read, and is not used: {error}"
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None
    limits = _limits(attributes, np.dtype(coordinate.dtype))
    if limits is not None and values.dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            outside = int(np.count_nonzero((values < limits[0]) | (values > limits[1])))
        if outside:
            # Everybody else takes these for places, too: hiding them would leave the data without one.
            message = f"{outside} values of coordinate {name!r} are outside its valid range; they count"
            findings.append(Finding("GZ-16", "warning", coordinate.path, message, list(limits)))
    return values


def _limits(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[float, float] | None:
    """The least and the greatest valid number, decoded; None where nothing states them.

    Integers are packed as the values are; floats beside packed integers are decoded already.
    """
    stated = attributes.get("valid_range", [attributes.get("valid_min"), attributes.get("valid_max")])
    if not isinstance(stated, (list, tuple)) or len(stated) != 2 or stated == [None, None]:
        return None
    low, high = (
        default if number is None else number
        for number, default in zip(stated, (-math.inf, math.inf), strict=True)
    )
    if any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in (low, high)):
        return None
    is_packed = dtype.kind in "iu" and all(isinstance(n, int) for n in stated if n is not None)
    if not (is_packed or dtype.kind == "f"):
        return low, high
    scale, offset = parse_packing(attributes)
    try:
        ends = [n * (1.0 if scale is None else scale) + (offset or 0.0) for n in (low, high)]
    except OverflowError:  # integers beyond float64: no limits of such items
        return None
    return min(ends), max(ends)


Numbers = np.ndarray[Any, np.dtype[np.float64]]
# How far an edge may be from where it should be, and how far a centre from the middle, in cells.
TOLERANCE = 1e-3
OFF_CENTRE = 1e-2
# The most that rounding packed numbers may move an edge, in cells.
MOST_ROUNDING = 0.1


def read_bounds(
    coordinate: ArrayNode, siblings: Mapping[str, Any], findings: list[Finding]
) -> tuple[Numbers, float] | None:
    """The decoded edges of every cell of a coordinate, in the order stored, and how far they may be off.

    None where the coordinate has no bounds; with a finding, where it has some that cannot be used.

    Shapes
        edges (n, 2) for a coordinate (n).
    Units
        those of the coordinate.
    """
    name = coordinate.attrs.get("bounds")
    if not isinstance(name, str) or not name.strip():
        return None
    found = siblings.get(name)
    if found is None:
        message = f"bounds name {name!r}, which is not beside the coordinate"
        findings.append(Finding("GZ-29", "note", coordinate.path, message, sorted(siblings), name))
        return None
    wrong = _misfit(coordinate, found)
    if wrong is not None:
        message = f"bounds {name!r} {wrong}; they are not used"
        findings.append(Finding("GZ-29", "error", found.path, message))
        return None
    values = read_values(found, findings)
    if values is None:
        return None
    edges = values.astype(np.float64)
    if not np.isfinite(edges).all() or (edges[:, 0] == edges[:, 1]).any():
        message = f"bounds {name!r} are not finite, or leave a cell no room; they are not used"
        findings.append(Finding("GZ-29", "error", found.path, message))
        return None
    packed = quantum(found.attrs, np.dtype(found.dtype)) / 2
    widest = float(np.abs(edges[:, 1] - edges[:, 0]).max())
    return edges, rounding_of(found, values) + min(packed, MOST_ROUNDING * widest)


def _misfit(coordinate: ArrayNode, bounds: ArrayNode) -> str | None:
    """Why an array cannot hold the bounds of a coordinate; None where it can."""
    if bounds.shape != (*coordinate.shape, 2) or np.dtype(bounds.dtype).kind not in "iuf":
        return f"are {bounds.dtype} of the shape {bounds.shape}; expected numbers of {(*coordinate.shape, 2)}"
    stated, own = bounds.attrs.get("units"), coordinate.attrs.get("units")
    if stated in (None, "", own):
        return None
    measures = [
        None if not isinstance(units, str) else (length_of(units), angle_of(units)) for units in (stated, own)
    ]
    is_same = measures[0] == measures[1] not in (None, (None, None))
    return None if is_same else f"have the units {stated!r}; expected the coordinate's, {own!r}"


def check_bounds(
    coordinate: ArrayNode,
    centres: Numbers,
    bounds: tuple[Numbers, float],
    is_regular: bool,
    findings: list[Finding],
) -> tuple[float, float] | None:
    """The middle of the first cell and the step by the bounds, where those differ from the centres.

    None where both agree, where the cells are not of one size, and where the two contradict each other: the
    centres count then, and a finding says so.
    """
    name, edges, size = coordinate.path.rpartition("/")[2], bounds[0], len(centres)
    # Either edge may come first, whichever way the centres run.
    falls = centres[-1] < centres[0] if size > 1 else edges[0, 1] < edges[0, 0]
    edges = np.sort(edges, axis=1)[:, ::-1] if falls else np.sort(edges, axis=1)
    begins, ends = edges[:, 0], edges[:, 1]
    step = float(ends[-1] - begins[0]) / size
    close = TOLERANCE * abs(step) + bounds[1] + rounding_of(coordinate, centres)
    outside = np.abs(centres - (begins + ends) / 2) > np.abs(ends - begins) / 2 + close
    if outside.any():
        message = (
            f"{outside.sum()} of {size} values of {name!r} lie outside of their bounds; the values count"
        )
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None
    places = begins[0] + step * np.arange(size + 1)
    off = np.abs(np.append(begins, ends[-1]) - places)
    gap = np.abs(ends[:-1] - begins[1:]).max(initial=0.0)
    if max(off.max(), gap) > close:
        if is_regular:
            _report_uneven(coordinate, centres, edges, close, findings)
        return None
    first = float(begins[0]) + step / 2
    shift = max(abs(first - centres[0]), abs(first + step * (size - 1) - centres[-1]))
    is_middle = is_regular and shift <= OFF_CENTRE * abs(step) + close
    if is_middle and size > 1:
        return None
    if not is_middle:
        message = f"values of {name!r} are not the middles of its cells, which are regular; the bounds count"
        findings.append(Finding("GZ-29", "warning", coordinate.path, message, first, float(centres[0])))
    return first, step


def _report_uneven(
    coordinate: ArrayNode, centres: Numbers, edges: Numbers, close: float, findings: list[Finding]
) -> None:
    """Find that cells do not reach half way to their neighbours' centres; a grid may stop at the pole."""
    half, name = (centres[-1] - centres[0]) / (len(centres) - 1) / 2, coordinate.path.rpartition("/")[2]
    off = np.abs(edges - np.stack([centres - half, centres + half], axis=1)) > close
    is_cut = not off[1:-1].any() and not off[0, 1] and not off[-1, 0]
    what = "cells at the ends of" if is_cut else "cells of"
    message = (
        f"{what} {name!r} are not half way around its values, and no affine can say it; the values count"
    )
    findings.append(Finding("GZ-29", "note" if is_cut else "warning", coordinate.path, message))

"""Rules about coordinate variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from zstore.conventions.cf import coordinate_attributes
from zstore.conventions.levels import Grid
from zstore.conventions.meaning import words
from zstore.validation.rule import Found, rule
from zstore.validation.view import ArrayView, Hierarchy, coordinate_of

__all__ = ["is_time"]

TIME_UNITS = re.compile(
    r"\s*(?:common_year|month|year|week|day|hour|hr|h|d|minute|min|second|sec|s|"
    r"millisecond|msec|ms|microsecond|us|nanosecond|ns)s?\s+since\s+[-+]?\d{1,9}(?:-\d{1,2}){0,2}.*",
    re.IGNORECASE,
)
CALENDARS = {
    "standard", "gregorian", "proleptic_gregorian", "utc", "tai", "noleap", "365_day", "all_leap",
    "366_day", "360_day", "julian", "none",
}  # fmt: skip
SYNONYMS = {
    "m": ("m", "metre", "meter", "metres", "meters"),
    "degrees_east": ("degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"),
    "degrees_north": ("degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"),
    "US_survey_foot": ("US_survey_foot", "US_survey_feet", "survey_foot", "survey_feet", "ftUS"),
    "international_foot": ("international_foot", "international_feet", "foot", "feet", "ft"),
    "degrees": ("degrees", "degree"),
}


@rule("GZ-13", "error", "core", "draft 8.1.3",
      "An array named like a dimension is its 1-D coordinate variable.",
      "make the array 1-D over its own dimension, or rename it")  # fmt: skip
def check_shape(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        for name, array in hierarchy.roles(group).coordinates.items():
            if (
                array.shape == ()
                or len(array.shape) > 1
                or (array.dims is not None and array.dims != (name,))
            ):
                message = f"{name!r} is a dimension; the array of that name is {array.dims!r} {array.shape}"
                yield Found(array, message, (name,), array.dims)


@rule("MS-11", "error", "core", "mini spec, Dataset, members; draft 8.1.3",
      "For every dimension of data there is a coordinate variable of the same length in the group.",
      "write the coordinates (zstore fix does, where the affine is known)")  # fmt: skip
def check_presence(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = hierarchy.roles(group)
        sought: dict[str, tuple[ArrayView, int]] = {}
        for array in found.data.values():
            for dimension, length in zip(array.dims or (), array.shape, strict=False):
                if dimension is not None and not dimension.startswith("/"):
                    sought.setdefault(dimension, (array, length))
        for dimension, (array, length) in sought.items():
            coordinate = found.coordinates.get(dimension)
            if coordinate is None:
                severity = _missing_severity(hierarchy, array, dimension)
                yield Found(array, f"dimension {dimension!r} has no coordinates", dimension, None, severity)
            elif len(coordinate.shape) == 1 and coordinate.shape != (length,):
                message = f"coordinates {dimension!r} are {coordinate.shape[0]} long, the dimension {length}"
                yield Found(coordinate, message, length, coordinate.shape[0])


def _missing_severity(hierarchy: Hierarchy, array: ArrayView, dimension: str) -> Any:
    if hierarchy.wants_all:
        return None
    grid = hierarchy.grids.get(array.path)
    is_placed = grid is not None and dimension in grid.dimensions and bool(grid.stated_affines)
    return "warning" if grid is not None and not is_placed else "note"


def is_time(array: ArrayView) -> bool:
    """Whether a coordinate variable is of time."""
    attributes = array.attrs
    units = attributes.get("units")
    return (
        attributes.get("standard_name") in ("time", "forecast_reference_time")
        or attributes.get("axis") == "T"
        or (isinstance(units, str) and " since " in units)
        or array.name.lower() == "time"
    )


def _spatial(hierarchy: Hierarchy) -> Iterator[tuple[Grid, str, ArrayView]]:
    """(a grid, "Y" or "X", the coordinate variable) of every spatial coordinate variable, once."""
    seen = set()
    for grid in hierarchy.grids.values():
        for axis, dimension in zip(("Y", "X"), grid.dimensions, strict=True):
            coordinate = coordinate_of(grid.node, dimension)
            if coordinate is not None and coordinate.path not in seen:
                seen.add(coordinate.path)
                yield grid, axis, coordinate


@rule("GZ-14", "warning", "core", "draft 8.1.3",
      "Coordinates of space and time say standard_name, units and axis.", "add the attributes")  # fmt: skip
def check_description(hierarchy: Hierarchy) -> Iterator[Found]:
    described = [coordinate for _, _, coordinate in _spatial(hierarchy)]
    coordinates = [c for group in hierarchy.groups for c in hierarchy.roles(group).coordinates.values()]
    described += [coordinate for coordinate in coordinates if is_time(coordinate)]
    for coordinate in described:
        wanted = ("standard_name", "units", "axis")
        is_date = coordinate.dtype.kind in "Mm"
        missing = [n for n in wanted if n not in coordinate.attrs and not (is_date and n == "units")]
        if missing:
            yield Found(coordinate, f"there is no {', '.join(missing)}", wanted, sorted(coordinate.attrs))


@rule("MS-07", "error", "crs", "mini spec, Dataset, CF compliance; CF 4, 5.6",
      "Coordinates have the standard names of their CRS: projected ones, or longitude and latitude.",
      "correct standard_name")  # fmt: skip
def check_names(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid, axis, coordinate in _spatial(hierarchy):
        expected = coordinate_attributes(grid.crs, axis).get("standard_name")
        found = coordinate.attrs.get("standard_name")
        if expected is None or found in (expected, expected.replace("_coordinate", "_angular_coordinate")):
            continue
        if found is None and not hierarchy.wants_all:
            continue
        message = f"standard_name is {found!r} under this CRS"
        yield Found(coordinate, message, expected, found)


@rule("MS-08", "error", "crs", "mini spec, Dataset, CF compliance; CF 4",
      "Coordinates have the units of their CRS.", "correct units")  # fmt: skip
def check_units(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid, axis, coordinate in _spatial(hierarchy):
        expected = coordinate_attributes(grid.crs, axis).get("units")
        found = coordinate.attrs.get("units")
        if expected is None or found in SYNONYMS.get(expected, (expected,)):
            continue
        if found is None and not hierarchy.wants_all:
            continue
        yield Found(coordinate, f"units are {found!r} under this CRS", expected, found)


@rule("MS-09", "error", "time", "mini spec, Dataset, CF compliance; CF 4.4",
      "Coordinates of time say standard_name time, units as \"days since 2000-01-01\", and a calendar.",
      "add the attributes")  # fmt: skip
def check_time(hierarchy: Hierarchy) -> Iterator[Found]:
    spatial = {coordinate.path for _, _, coordinate in _spatial(hierarchy)}
    for group in hierarchy.groups:
        for coordinate in hierarchy.roles(group).coordinates.values():
            if is_time(coordinate):
                yield from _check_time(hierarchy, coordinate)
            elif hierarchy.wants_all and not (
                coordinate.path in spatial or isinstance(coordinate.attrs.get("standard_name"), str)
            ):
                yield Found(coordinate, "there is no standard_name", "a name of CF's table")


def _check_time(hierarchy: Hierarchy, coordinate: ArrayView) -> Iterator[Found]:
    attributes = coordinate.attrs
    mildest: Any = None if hierarchy.wants_all else "warning"
    if attributes.get("standard_name") not in ("time", "forecast_reference_time"):
        found = attributes.get("standard_name")
        yield Found(coordinate, f"standard_name is {found!r}", "time", found, mildest)
    units = attributes.get("units")
    if coordinate.dtype.kind != "M" and not (isinstance(units, str) and TIME_UNITS.fullmatch(units)):
        yield Found(coordinate, f"units are {units!r}", "such as days since 2000-01-01", units)
    calendar = attributes.get("calendar")
    if calendar is None and coordinate.dtype.kind != "M":
        yield Found(coordinate, "there is no calendar", "standard", None, mildest)
    elif calendar is not None and str(calendar).lower() not in CALENDARS:
        yield Found(coordinate, f"calendar is {calendar!r}", sorted(CALENDARS), calendar)


@rule("GZ-26", "error", "core", "draft 8.1.7",
      "Arrays of a group that share a dimension share its coordinates.",
      "give the other axis a dimension of its own", general="warning")  # fmt: skip
def check_one_axis(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = hierarchy.roles(group)
        for array in found.data.values():
            for name in words(array.attrs.get("coordinates")):
                other = group.arrays.get(name)
                dims = other.dims if other is not None else None
                if other is None or dims is None or len(dims) != 1 or dims[0] in (name, None):
                    continue
                own = found.coordinates.get(str(dims[0]))
                if own is not None and dims[0] in (array.dims or ()) and _is_one_axis(own, other):
                    message = (
                        f"dimension {dims[0]!r} has the coordinates {name!r} here, {own.name!r} elsewhere"
                    )
                    yield Found(array, message, own.name, name)


def _is_one_axis(one: ArrayView, other: ArrayView) -> bool:
    stated = [
        {name: view.attrs[name] for name in ("axis", "standard_name") if name in view.attrs}
        for view in (one, other)
    ]
    return not stated[1] or any(stated[0].get(name) == value for name, value in stated[1].items())

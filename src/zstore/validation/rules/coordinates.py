"""Rules about coordinate variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from zstore.validation.places import Grid, coordinate_of, grids, roles, words
from zstore.validation.rule import Complaint, rule
from zstore.validation.view import ArrayView, Hierarchy

__all__ = ["axis_attributes", "is_time"]

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
def check_shape(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for group in hierarchy.groups:
        for name, array in roles(group).coordinates.items():
            if (
                array.shape == ()
                or len(array.shape) > 1
                or (array.dims is not None and array.dims != (name,))
            ):
                message = f"{name!r} is a dimension; the array of that name is {array.dims!r} {array.shape}"
                yield Complaint(array, message, (name,), array.dims)


@rule("MS-11", "error", "core", "mini spec, Dataset, members; draft 8.1.3",
      "For every dimension of data there is a coordinate variable of the same length in the group.",
      "write the coordinates (zstore fix does, where the affine is known)")  # fmt: skip
def check_presence(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for group in hierarchy.groups:
        found = roles(group)
        sought: dict[str, tuple[ArrayView, int]] = {}
        for array in found.data.values():
            for dimension, length in zip(array.dims or (), array.shape, strict=False):
                if dimension is not None and not dimension.startswith("/"):
                    sought.setdefault(dimension, (array, length))
        for dimension, (array, length) in sought.items():
            coordinate = found.coordinates.get(dimension)
            if coordinate is None:
                severity = _missing_severity(hierarchy, array, dimension)
                yield Complaint(
                    array, f"dimension {dimension!r} has no coordinates", dimension, None, severity
                )
            elif len(coordinate.shape) == 1 and coordinate.shape != (length,):
                message = f"coordinates {dimension!r} are {coordinate.shape[0]} long, the dimension {length}"
                yield Complaint(coordinate, message, length, coordinate.shape[0])


def _missing_severity(hierarchy: Hierarchy, array: ArrayView, dimension: str) -> Any:
    if hierarchy.profile == "geozarr-mini":
        return None
    grid = grids(hierarchy).get(array.path)
    is_placed = grid is not None and dimension in grid.dimensions and grid.geozarr.affines
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
    for grid in grids(hierarchy).values():
        for axis, dimension in zip(("Y", "X"), grid.dimensions, strict=True):
            coordinate = coordinate_of(grid.view, dimension)
            if coordinate is not None and coordinate.path not in seen:
                seen.add(coordinate.path)
                yield grid, axis, coordinate


@rule("GZ-14", "warning", "core", "draft 8.1.3",
      "Coordinates of space and time say standard_name, units and axis.", "add the attributes")  # fmt: skip
def check_description(hierarchy: Hierarchy) -> Iterator[Complaint]:
    described = [coordinate for _, _, coordinate in _spatial(hierarchy)]
    described += [a for group in hierarchy.groups for a in roles(group).coordinates.values() if is_time(a)]
    for coordinate in described:
        wanted = ("standard_name", "units", "axis")
        is_date = coordinate.dtype.kind in "Mm"
        missing = [n for n in wanted if n not in coordinate.attrs and not (is_date and n == "units")]
        if missing:
            yield Complaint(coordinate, f"there is no {', '.join(missing)}", wanted, sorted(coordinate.attrs))


def axis_attributes(grid: Grid, axis: str) -> tuple[str, str] | None:
    """(standard_name, units) of a grid's coordinates under its CRS; None where the CRS is unknown."""
    crs, is_x = grid.crs, axis == "X"
    if crs is None:
        return None
    if crs.cf.get("grid_mapping_name") == "rotated_latitude_longitude":
        return ("grid_longitude" if is_x else "grid_latitude", "degrees")
    if crs.is_geographic:
        if crs.unit_name != "degree":
            return ("longitude" if is_x else "latitude", crs.units)
        return ("longitude", "degrees_east") if is_x else ("latitude", "degrees_north")
    return (f"projection_{axis.lower()}_coordinate", crs.units)


@rule("MS-07", "error", "crs", "mini spec, Dataset, CF compliance; CF 4, 5.6",
      "Coordinates have the standard names of their CRS: projected ones, or longitude and latitude.",
      "correct standard_name")  # fmt: skip
def check_names(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for grid, axis, coordinate in _spatial(hierarchy):
        expected = axis_attributes(grid, axis)
        found = coordinate.attrs.get("standard_name")
        if expected is None or found in (
            expected[0],
            expected[0].replace("_coordinate", "_angular_coordinate"),
        ):
            continue
        if found is None and hierarchy.profile != "geozarr-mini":
            continue
        message = f"standard_name is {found!r} under this CRS"
        yield Complaint(coordinate, message, expected[0], found)


@rule("MS-08", "error", "crs", "mini spec, Dataset, CF compliance; CF 4",
      "Coordinates have the units of their CRS.", "correct units")  # fmt: skip
def check_units(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for grid, axis, coordinate in _spatial(hierarchy):
        expected = axis_attributes(grid, axis)
        found = coordinate.attrs.get("units")
        if expected is None or found in SYNONYMS.get(expected[1], (expected[1],)):
            continue
        if found is None and hierarchy.profile != "geozarr-mini":
            continue
        yield Complaint(coordinate, f"units are {found!r} under this CRS", expected[1], found)


@rule("MS-09", "error", "time", "mini spec, Dataset, CF compliance; CF 4.4",
      "Coordinates of time say standard_name time, units as \"days since 2000-01-01\", and a calendar.",
      "add the attributes")  # fmt: skip
def check_time(hierarchy: Hierarchy) -> Iterator[Complaint]:
    spatial = {coordinate.path for _, _, coordinate in _spatial(hierarchy)}
    for group in hierarchy.groups:
        for coordinate in roles(group).coordinates.values():
            if is_time(coordinate):
                yield from _check_time(hierarchy, coordinate)
            elif hierarchy.profile == "geozarr-mini" and not (
                coordinate.path in spatial or isinstance(coordinate.attrs.get("standard_name"), str)
            ):
                yield Complaint(coordinate, "there is no standard_name", "a name of CF's table")


def _check_time(hierarchy: Hierarchy, coordinate: ArrayView) -> Iterator[Complaint]:
    attributes = coordinate.attrs
    mildest: Any = None if hierarchy.profile == "geozarr-mini" else "warning"
    if attributes.get("standard_name") not in ("time", "forecast_reference_time"):
        found = attributes.get("standard_name")
        yield Complaint(coordinate, f"standard_name is {found!r}", "time", found, mildest)
    units = attributes.get("units")
    if coordinate.dtype.kind != "M" and not (isinstance(units, str) and TIME_UNITS.fullmatch(units)):
        yield Complaint(coordinate, f"units are {units!r}", "such as days since 2000-01-01", units)
    calendar = attributes.get("calendar")
    if calendar is None and coordinate.dtype.kind != "M":
        yield Complaint(coordinate, "there is no calendar", "standard", None, mildest)
    elif calendar is not None and str(calendar).lower() not in CALENDARS:
        yield Complaint(coordinate, f"calendar is {calendar!r}", sorted(CALENDARS), calendar)


@rule("GZ-26", "error", "core", "draft 8.1.7",
      "Arrays of a group that share a dimension share its coordinates.",
      "give the other axis a dimension of its own", general="warning")  # fmt: skip
def check_one_axis(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for group in hierarchy.groups:
        found = roles(group)
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
                    yield Complaint(array, message, own.name, name)


def _is_one_axis(one: ArrayView, other: ArrayView) -> bool:
    stated = [
        {name: view.attrs[name] for name in ("axis", "standard_name") if name in view.attrs}
        for view in (one, other)
    ]
    return not stated[1] or any(stated[0].get(name) == value for name, value in stated[1].items())

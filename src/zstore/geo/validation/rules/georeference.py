"""Rules about the georeference: CRS, affine, coordinates, and properties that levels of a pyramid share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zstore.geo.conventions.base import Mend
from zstore.geo.conventions.cf import (
    CELLS,
    DEGREES,
    coordinate_attributes,
    is_longitude_latitude,
    stand_in,
    unwrap,
)
from zstore.geo.conventions.content import angle_of, fit_line, length_of
from zstore.geo.conventions.levels import TOLERANCE, Grid, LevelPlace, Line, is_image, whole_factor
from zstore.geo.conventions.meaning import Pyramid, words
from zstore.geo.conventions.timeaxis import CALENDARS as KNOWN_CALENDARS
from zstore.geo.conventions.timeaxis import is_dated, is_of_time
from zstore.geo.conventions.write import ARRAYS, DRAFT, GDAL, MINI
from zstore.geo.validation.view import ArrayView, Found, GroupView, Hierarchy, Rule, coordinate_of, mapping_of

Rule("GZ-28", "error", "geotransform", "draft 8.1.8",
     "GeoTransform is six numbers in GDAL's order, AREA_OR_POINT Area or Point, spatial_ref a CRS.",
     "write c a b f d e: x of the corner, width, 0, y of the corner, 0, minus the height "
     "(zstore fix does)")  # fmt: skip
Rule("GZ-29", "error", "geotransform", "draft 8.1.8",
     "Coordinates are the centres of the cells that the transform gives, regularly spaced.",
     "write the centres (zstore fix does)")  # fmt: skip
Rule("MS-28", "error", "overviews", "mini spec, derived",
     "Origin, cell size, GeoTransform and coordinates of every level agree.",
     "write the transform of each level's own grid (zstore fix does)")  # fmt: skip
Rule("OC-05", "error", "crs", "OGC Zarr 2.0 4.4.1; CF 5.6",
     "crs_wkt of the grid mapping variable is a CRS, and its parameters say the same.",
     "write the parameters of the CRS that crs_wkt is (zstore fix does)")  # fmt: skip


@Rule("OC-06", "error", "crs", "OGC Zarr 2.0 4.4.2",
      "_CRS is an object with url, wkt or projjson, on the array.",
      'write {"url": ..., "wkt": ..., "projjson": ...} (zstore fix does)')  # fmt: skip
def check_gdals_crs(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        grids = hierarchy.meaning.grids(group)
        bare = sorted(n for n, g in grids.items() if g.crs is not None and "_CRS" not in g.node.attrs)
        if bare:
            yield Found(group, f"arrays {bare} have no _CRS, which is GDAL's own", "_CRS", None, "note")


Rule("OC-07", "error", "crs", "OGC Zarr 2.0 4.4.2",
     "Every member of _CRS is a CRS: readers try url, then wkt, then projjson.",
     "correct the member, or leave it out (zstore fix does)")  # fmt: skip


Rule("OC-08", "error", "crs", "OGC Zarr 2.0 4.4",
     "Everything that states a CRS for an array states the same.",
     "decide which is right, and write it everywhere (zstore fix --crs does)")  # fmt: skip
Rule("OC-09", "note", "crs", "OGC Zarr 2.0 4.4",
     "Data by longitude and latitude without a CRS are common, and taken for OGC:CRS84.",
     "state the CRS")  # fmt: skip


def _has_mapping(hierarchy: Hierarchy, group: GroupView) -> bool:
    named = [mapping_of(array)[1] for array in hierarchy.meaning.roles(group).data.values()]
    return any(mapping is not None and _carries_crs(mapping.attrs) for mapping in named)


def _carries_crs(attributes: Mapping[str, Any]) -> bool:
    return any(name in attributes for name in ("crs_wkt", "spatial_ref", "grid_mapping_name"))


@Rule("MS-04", "error", "crs", "mini spec, Dataset, attributes",
      "A group of grids has an array with the CRS, which grid_mapping names.",
      "add spatial_ref, and grid_mapping to the data (zstore fix does, where a CRS is stated anywhere)",
      general="warning", profiles=(DRAFT, MINI, ARRAYS, GDAL))  # fmt: skip
def check_has_crs(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        held = hierarchy.meaning.grids(group)
        if not held or _has_mapping(hierarchy, group) or is_image(group):
            continue
        if hierarchy.wants_all:
            yield Found(group, "no grid_mapping of its arrays leads to a CRS", "spatial_ref")
        else:
            is_stated = any(g.crs is not None or is_longitude_latitude(g) for g in held.values())
            is_above = any("proj:" in name for node in group.ancestors() for name in node.attrs)
            if not is_stated and not is_above:
                yield Found(group, "nothing says the CRS of its arrays", "a CRS")


@Rule("MS-05", "error", "crs", "mini spec, Dataset, CF compliance",
      "Every array of data names its grid mapping, which carries a CRS.",
      "add grid_mapping (zstore fix does, where a CRS is stated anywhere)", general="warning",
      profiles=(MINI, DRAFT))  # fmt: skip
def check_data_mapping(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid in hierarchy.grids.values():
        parent = grid.node.parent
        name, mapping = mapping_of(grid.node)
        if name is None:
            if hierarchy.profile is None and stand_in(grid.node, parent) is not None:
                # Reading says so.
                continue
            if grid.crs is not None or (parent is not None and _has_mapping(hierarchy, parent)):
                message = "there is no grid_mapping"
                if grid.crs is not None and "_CRS" not in grid.node.attrs:
                    message += ", and no _CRS: rioxarray and GDAL know no CRS"
                yield Found(grid.node, message, "the name of the array with the CRS")
        elif mapping is not None and not _carries_crs(mapping.attrs):
            yield Found(grid.node, f"grid_mapping is {name!r}, which carries no CRS", "crs_wkt", name)
        elif mapping is not None and mapping.parent is parent:
            listed = words(grid.node.attrs.get("coordinates"))
            if name not in listed:
                message = f"coordinates do not list {name!r}: xarray reads it as data, and rioxarray no CRS"
                yield Found(grid.node, message, [*listed, name], listed, "note")


TIME_UNITS = re.compile(
    r"\s*(?:common_year|month|year|week|day|hour|hr|h|d|minute|min|second|sec|s|"
    r"millisecond|msec|ms|microsecond|us|nanosecond|ns)s?\s+since\s+[-+]?\d{1,9}(?:-\d{1,2}){0,2}.*",
    re.IGNORECASE,
)
CALENDARS = KNOWN_CALENDARS | {"utc", "tai", "none"}
SYNONYMS = {
    "m": ("m", "metre", "meter", "metres", "meters"),
    "degrees_east": DEGREES["X"],
    "degrees_north": DEGREES["Y"],
    "US_survey_foot": ("US_survey_foot", "US_survey_feet", "survey_foot", "survey_feet", "ftUS"),
    "international_foot": ("international_foot", "international_feet", "foot", "feet", "ft"),
    "degrees": ("degrees", "degree"),
    "projection_x_coordinate": ("projection_x_coordinate", "projection_x_angular_coordinate"),
    "projection_y_coordinate": ("projection_y_coordinate", "projection_y_angular_coordinate"),
}


def is_synonym(found: Any, wanted: Any) -> bool:
    """Whether units, or a standard name, are the wanted ones in any of the forms in use."""
    return found in SYNONYMS.get(wanted, (wanted,))


@Rule("GZ-13", "error", "core", "draft 8.1.3",
      "An array named like a dimension is its 1-D coordinate variable.",
      "make the array 1-D over its own dimension, or rename it")  # fmt: skip
def check_shape(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        for name, array in hierarchy.meaning.roles(group).coordinates.items():
            if (
                array.shape == ()
                or len(array.shape) > 1
                or (array.dims is not None and array.dims != (name,))
            ):
                message = f"{name!r} is a dimension; the array of that name is {array.dims!r} {array.shape}"
                yield Found(array, message, (name,), array.dims)


@Rule("MS-11", "error", "core", "mini spec, Dataset, members; draft 8.1.3",
      "For every dimension of data there is a coordinate variable of the same length in the group.",
      "write the coordinates (zstore fix does, where the affine is known)")  # fmt: skip
def check_presence(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = hierarchy.meaning.roles(group)
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
            elif hierarchy.is_read("MS-11", coordinate.path, "error"):
                continue
            elif len(coordinate.shape) == 1 and coordinate.shape != (length,):
                message = f"coordinates {dimension!r} are {coordinate.shape[0]} long, the dimension {length}"
                yield Found(coordinate, message, length, coordinate.shape[0])


def _missing_severity(hierarchy: Hierarchy, array: ArrayView, dimension: str) -> Any:
    if hierarchy.wants_all:
        return None
    if array.parent is not None and is_image(array.parent):
        # Its axes and transformations say the places.
        return "note"
    grid = hierarchy.grids.get(array.path)
    is_placed = grid is not None and dimension in grid.dimensions and bool(grid.stated_affines)
    return "warning" if grid is not None and not is_placed else "note"


def is_time(array: ArrayView) -> bool:
    """Whether a coordinate variable is of time."""
    attributes = array.attrs
    return (
        attributes.get("standard_name") in ("time", "forecast_reference_time")
        or attributes.get("axis") == "T"
        or is_of_time(attributes.get("units"))
        or array.name.lower() == "time"
    )


def _is_time_units(units: Any) -> bool:
    return isinstance(units, str) and TIME_UNITS.fullmatch(units) is not None


def _spatial(hierarchy: Hierarchy) -> Iterator[tuple[Grid, str, ArrayView]]:
    """(a grid, "Y" or "X", the coordinate variable) of every spatial coordinate variable, once."""
    seen = set()
    for grid in hierarchy.grids.values():
        for axis, dimension in zip(("Y", "X"), grid.dimensions, strict=True):
            coordinate = coordinate_of(grid.node, dimension)
            if coordinate is not None and coordinate.path not in seen:
                seen.add(coordinate.path)
                yield grid, axis, coordinate


@Rule("GZ-14", "warning", "core", "draft 8.1.3",
      "Coordinates of space and time say standard_name, units and axis.",
      "add the attributes (zstore fix does, of places)")  # fmt: skip
def check_description(hierarchy: Hierarchy) -> Iterator[Found]:
    described = [coordinate for _, _, coordinate in _spatial(hierarchy)]
    coordinates = [
        c for group in hierarchy.groups for c in hierarchy.meaning.roles(group).coordinates.values()
    ]
    described += [coordinate for coordinate in coordinates if is_time(coordinate)]
    for coordinate in described:
        wanted = ("standard_name", "units", "axis")
        is_date = coordinate.dtype.kind in "Mm"
        missing = [n for n in wanted if n not in coordinate.attrs and not (is_date and n == "units")]
        if missing:
            is_known = is_time(coordinate) and _is_time_units(coordinate.attrs.get("units"))
            mend = Mend("axis added", {"axis": "T"}) if is_known and "axis" in missing else None
            message = f"there is no {', '.join(missing)}"
            # CF leaves axis out where standard_name or units tell it.
            mildest: Any = "note" if missing == ["axis"] and hierarchy.profile is None else None
            yield Found(coordinate, message, wanted, sorted(coordinate.attrs), mildest, mend)


@Rule("MS-07", "error", "crs", "mini spec, Dataset, CF compliance; CF 4, 5.6",
      "Coordinates have their axis, and the standard names of their CRS: projected ones, or longitude and "
      "latitude.",
      "correct standard_name and axis (zstore fix does)")  # fmt: skip
def check_names(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid, axis, coordinate in _spatial(hierarchy):
        expected = coordinate_attributes(grid.crs, axis).get("standard_name")
        found = coordinate.attrs.get("standard_name")
        if expected is None or is_synonym(found, expected):
            continue
        if found is None and not hierarchy.wants_all:
            continue
        message = f"standard_name is {found!r} under this CRS"
        yield Found(coordinate, message, expected, found)
    for _, axis, coordinate in _spatial(hierarchy):
        found = coordinate.attrs.get("axis")
        if found in ("X", "Y", "Z", "T") and found != axis:
            yield Found(coordinate, f"axis is {found!r} of the dimension along {axis}", axis, found)


@Rule("MS-08", "error", "crs", "mini spec, Dataset, CF compliance; CF 4",
      "Coordinates have the units of their CRS, or others of length, which readers convert.",
      "correct units (zstore fix does, where the numbers are confirmed)")  # fmt: skip
def check_units(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid, axis, coordinate in _spatial(hierarchy):
        expected = coordinate_attributes(grid.crs, axis).get("units")
        found = coordinate.attrs.get("units")
        if expected is None or is_synonym(found, expected):
            continue
        if not hierarchy.wants_all and (found is None or is_length(found, expected)):
            continue
        if hierarchy.is_read("MS-08", coordinate.path, "error"):
            continue
        is_view = grid.crs is not None and grid.crs.cf.get("grid_mapping_name") == "geostationary"
        if is_view and isinstance(found, str) and angle_of(found) is not None:
            # CF has scan angles there.
            continue
        if found in CELLS and grid.stated_affines:
            # An affine says the place, which coordinates of a rotated grid cannot.
            continue
        yield Found(coordinate, f"units are {found!r} under this CRS", expected, found)


def is_length(units: Any, other: str) -> bool:
    """Whether units can be converted into the others: both are known units of length."""
    return isinstance(units, str) and length_of(units) is not None and length_of(other) is not None


@Rule("MS-09", "error", "time", "mini spec, Dataset, CF compliance; CF 4.4",
      "Coordinates of time say standard_name time, units as \"days since 2000-01-01\", and a calendar.",
      "add the attributes (zstore fix does, where the units are those of time)")  # fmt: skip
def check_time(hierarchy: Hierarchy) -> Iterator[Found]:
    spatial = {coordinate.path for _, _, coordinate in _spatial(hierarchy)}
    for group in hierarchy.groups:
        for coordinate in hierarchy.meaning.roles(group).coordinates.values():
            if is_time(coordinate):
                yield from _check_time(hierarchy, coordinate)
            elif hierarchy.wants_all and not (
                coordinate.path in spatial or isinstance(coordinate.attrs.get("standard_name"), str)
            ):
                yield Found(coordinate, "there is no standard_name", "a name of CF's table")


def _check_time(hierarchy: Hierarchy, coordinate: ArrayView) -> Iterator[Found]:
    attributes = coordinate.attrs
    mildest: Any = None if hierarchy.wants_all else "warning"
    is_known = _is_time_units(attributes.get("units"))
    is_named = attributes.get("standard_name") in ("time", "forecast_reference_time")
    if not is_named and not hierarchy.is_read("MS-09", coordinate.path, "warning"):
        found = attributes.get("standard_name")
        mend = Mend("standard_name added", {"standard_name": "time"}) if found is None and is_known else None
        yield Found(coordinate, f"standard_name is {found!r}", "time", found, mildest, mend)
    calendar = attributes.get("calendar")
    if calendar is None and coordinate.dtype.kind != "M":
        # Without a calendar, CF has it for the standard one.
        mend = Mend("calendar added", {"calendar": "standard"}) if is_known else None
        yield Found(coordinate, "there is no calendar", "standard", None, mildest, mend)
    if hierarchy.is_read("MS-09", coordinate.path, "error"):
        return
    units = attributes.get("units")
    if coordinate.dtype.kind != "M" and not (
        _is_time_units(units) or (is_dated(units) and not hierarchy.wants_all)
    ):
        yield Found(coordinate, f"units are {units!r}", "such as days since 2000-01-01", units)
    if calendar is not None and str(calendar).lower() not in CALENDARS:
        yield Found(coordinate, f"calendar is {calendar!r}", sorted(CALENDARS), calendar)


@Rule("GZ-26", "error", "core", "draft 8.1.7",
      "Arrays of a group that share a dimension share its coordinates.",
      "give the other axis a dimension of its own", general="warning")  # fmt: skip
def check_one_axis(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = hierarchy.meaning.roles(group)
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


LARGEST_CHUNK = 100 * 1000 * 1000


def _twins(base: LevelPlace, level: LevelPlace) -> Iterator[tuple[Grid, Grid]]:
    """The grids of the same name at two levels."""
    for name, grid in level.grids.items():
        if name in base.grids:
            yield base.grids[name], grid


Rule("GZ-22", "error", "overviews", "draft 8.1.6",
     "A variable has the same units, packing, fill value and flags at every level.",
     "copy the attributes of the finest level (zstore fix does, where the cells confirm it)")  # fmt: skip
Rule("GZ-32", "error", "overviews", "draft 8.2.1", "Every level holds all variables.",
     "make the variable at that level too", profiles=(DRAFT,))  # fmt: skip
Rule("GZ-33", "error", "overviews", "draft 8.2.1",
     "A variable has the same type and dimensions at every level, and beside y and x the same lengths, or "
     "(but for times and bands) lengths that are shorter by a whole factor.",
     "write the level anew")  # fmt: skip


@Rule("MS-13", "warning", "overviews", "mini spec, Implementation Approach",
      "Every level is a whole number of times smaller than the one before.",
      "make the level with a whole factor", each="pyramids")  # fmt: skip
def check_factors(pyramid: Pyramid) -> Iterator[Found]:
    for finer, coarser in zip(pyramid.levels, pyramid.levels[1:], strict=False):
        for one, other in _twins(finer, coarser):
            for n, m in zip(one.shape, other.shape, strict=True):
                if whole_factor(n, m) is None:
                    message = f"{other.shape} is no whole part of {one.shape} at level {finer.path!r}"
                    yield Found(other.node, message, [n // 2, -(-n // 2)], m)
                    break


def coordinate_lines(grid: Grid) -> tuple[Line, Line] | None:
    """The lines of rows and of columns by a grid's coordinates; None without both."""
    held = (coordinate_of(grid.node, dimension) for dimension in grid.dimensions)
    y, x = (None if coordinate is None else fit_line(coordinate) for coordinate in held)
    return None if y is None or x is None else (y, x)


def _numbers(coordinate: ArrayView) -> np.ndarray[Any, Any] | None:
    return coordinate.numbers() if len(coordinate.shape) == 1 else None


@Rule("MS-14", "error", "overviews", "mini spec, Multiscale Dataset",
      "Every level has its own coordinates, in order, from the same corner as the finest.",
      "write the centres of the level's own cells (zstore fix does)", each="pyramids")  # fmt: skip
def check_coordinates(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        for coordinate in _coordinates(level):
            values = _numbers(coordinate)
            if values is not None and len(values) > 1:
                steps = np.diff(unwrap(coordinate, values))
                if not (np.all(steps > 0) or np.all(steps < 0)):
                    yield Found(coordinate, "the coordinates are not in order")
    for level in pyramid.levels[1:]:
        for one, other in list(_twins(pyramid.levels[0], level))[:1]:
            yield from _check_corner(one, other)


def _coordinates(level: LevelPlace) -> list[ArrayView]:
    found = {}
    for grid in level.grids.values():
        for dimension in grid.dimensions:
            coordinate = coordinate_of(grid.node, dimension)
            if coordinate is not None:
                found[coordinate.path] = coordinate
    return list(found.values())


def _check_corner(one: Grid, other: Grid) -> Iterator[Found]:
    if other.stated_affines:
        # Where a transform is stated too, GZ-29 and MS-28 compare the two.
        return
    finest, own = coordinate_lines(one), coordinate_lines(other)
    if finest is None or own is None:
        return
    for dimension, base, level in zip(other.dimensions, finest, own, strict=True):
        shift = (level.first - base.first) / level.step
        if abs(shift) > TOLERANCE or level.step / base.step < 1:
            message = f"coordinates begin {shift:.3g} cells off the finest level's corner"
            yield Found(coordinate_of(other.node, dimension), message, base.first, level.first)


@Rule("MS-19", "error", "overviews", "mini spec, Multiscale Dataset, members",
      "All levels have exactly the same members.", "make the member at that level too", general="warning",
      profiles=(MINI,))  # fmt: skip
def check_members(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        places = [(level, level.node) for level in pyramid.levels if isinstance(level.node, GroupView)]
        members = []
        for _, node in places:
            data = {} if hierarchy.wants_all else hierarchy.meaning.roles(node).data
            members.append(set(node.arrays) - set(data))
        wanted = set().union(*members) if members else set()
        for (level, node), names in zip(places, members, strict=True):
            if names != wanted:
                message = f"level {level.path!r} lacks {sorted(wanted - names)}"
                yield Found(node, message, sorted(wanted), sorted(names))


@Rule("MS-22", "warning", "overviews", "mini spec, Chunking Requirements",
      "Variables of a level are cut alike, into less than 100 MB, and the cuts of all levels meet.",
      "write the level anew, in chunks of one size", general="note", each="pyramids")  # fmt: skip
def check_cuts(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        held = list(level.grids.values())
        for grid in held:
            if grid.tile != held[0].tile:
                message = f"chunks are {grid.tile}, those of {held[0].node.name!r} {held[0].tile}"
                yield Found(grid.node, message, held[0].tile, grid.tile)
            size = int(np.prod(grid.node.chunks, dtype=float)) * grid.node.dtype.itemsize
            if size > LARGEST_CHUNK:
                yield Found(grid.node, f"a chunk is {size} bytes", LARGEST_CHUNK, size)
    for finer, coarser in zip(pyramid.levels, pyramid.levels[1:], strict=False):
        for one, other in _twins(finer, coarser):
            reach = [
                (a * f, b * g)
                for a, f, b, g in zip(one.tile, finer.factors, other.tile, coarser.factors, strict=True)
            ]
            if not all(_is_multiple(a, b) for a, b in reach):
                message = f"chunks {other.tile} do not meet those of level {finer.path!r}, {one.tile}"
                yield Found(other.node, message, one.tile, other.tile)


def _is_multiple(one: float, other: float) -> bool:
    """Whether the larger of two lengths is a whole number of times the smaller."""
    small, large = sorted((one, other))
    return small > 0 and abs(large / small - round(large / small)) < 1e-6

"""Rules about arrays: their dimensions, the meaning of their values, the arrays that they refer to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from zstore.geo.conventions.lists import is_ome
from zstore.geo.conventions.profiles import ARRAYS, DRAFT, GDAL, MINI, OME, OME_06
from zstore.geo.conventions.variables import parse_variable
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.standard_names import MODIFIERS, load_standard_names
from zstore.geo.validation.view import ArrayView, Hierarchy, mapping_of

DIMENSIONS = "_ARRAY_DIMENSIONS"


def dimension_trouble(array: ArrayView) -> tuple[str, Any] | None:
    """(what is wrong with the names of the dimensions, what is written there)."""
    if array.zarr_format == 3:
        found, place = array.document.get("dimension_names"), "dimension_names"
    else:
        found, place = array.stored.get(DIMENSIONS), DIMENSIONS
    if found is None:
        instead = f"; only {DIMENSIONS} is" if array.zarr_format == 3 and DIMENSIONS in array.stored else ""
        return (f"{place} is not there{instead}", None) if array.shape else None
    if not isinstance(found, list) or len(found) != len(array.shape):
        return f"{place} is {found!r}; expected {len(array.shape)} names", found
    if not all(isinstance(name, str) and name for name in found):
        return f"{place} is {found!r}; expected a name for every dimension", found
    return None


def _check_dimensions(hierarchy: Hierarchy, zarr_format: int | None) -> Iterator[Found]:
    # The axes of an image of OME-Zarr have names, and Zarr v2 no place for them but those.
    named_elsewhere = _images_of_v2(hierarchy)
    for array in hierarchy.arrays:
        trouble = dimension_trouble(array)
        # A scalar as netCDF writes it in Zarr v2: of one cell, without dimensions.
        is_scalar = array.shape == (1,) and array.stored.get(DIMENSIONS) == []
        if trouble is not None and (array.path in named_elsewhere or is_scalar):
            continue
        if trouble is not None and zarr_format in (None, array.zarr_format):
            # An array that nothing describes is plain Zarr, which needs no names.
            is_plain = hierarchy.profile is None and trouble[1] is None and _is_plain(array)
            yield Found(array, trouble[0], len(array.shape), trouble[1], "note" if is_plain else None)


def _images_of_v2(hierarchy: Hierarchy) -> set[str]:
    """The paths of the arrays of Zarr v2 that are levels of an image of OME-Zarr."""
    images = [p for p in hierarchy.pyramids if is_ome(p.group.attrs.get("multiscales"))]
    nodes = [level.node for image in images for level in image.levels]
    return {node.path for node in nodes if isinstance(node, ArrayView) and node.zarr_format == 2}


def _is_plain(array: ArrayView) -> bool:
    neighbours = array.parent.arrays.values() if array.parent is not None else [array]
    return not any(node.attrs or getattr(node, "dims", None) for node in [*neighbours, *array.ancestors()])


Rule("GZ-10", "error", "core", "draft 8.1.2, table 3",
     "Every dimension has a name: in dimension_names (v3), in _ARRAY_DIMENSIONS (v2).",
     "name the dimensions (zstore fix does, where levels, neighbours or lengths tell)",
     profiles=(DRAFT, OME, OME_06))(partial(_check_dimensions, zarr_format=None))  # fmt: skip
Rule("MS-01", "error", "core", "mini spec, DataArray, Zarr V2",
     "Arrays of Zarr v2 have _ARRAY_DIMENSIONS, one string per dimension.", "name the dimensions",
     profiles=(MINI,), same_as="GZ-10")(partial(_check_dimensions, zarr_format=2))  # fmt: skip
Rule("OC-01", "warning", "core", "OGC Zarr 2.0 4.1", "Arrays of Zarr v2 have _ARRAY_DIMENSIONS.",
     "name the dimensions", profiles=(ARRAYS, GDAL),
     same_as="GZ-10")(partial(_check_dimensions, zarr_format=2))  # fmt: skip


@Rule("MS-12", "error", "core", "mini spec, Dataset, CF compliance",
      "Arrays of Zarr v2 have _ARRAY_DIMENSIONS; those of v3 need none.", "name the dimensions",
      profiles=(MINI,), same_as="GZ-10", each="arrays")  # fmt: skip
def check_mini_compatibility(array: ArrayView) -> Iterator[Found]:
    stated = array.stored.get(DIMENSIONS)
    if array.zarr_format == 2 and stated is None and array.shape:
        yield Found(array, f"{DIMENSIONS} is not there", len(array.shape))
    elif array.zarr_format == 3 and stated is not None and stated != list(array.dims or ()):
        yield Found(array, f"{DIMENSIONS} is not what dimension_names is", list(array.dims or ()), stated)


@Rule("MS-03", "error", "core", "mini spec, DataArray, Zarr V3",
      "dimension_names of Zarr v3 are set, strings, and unique.", "name every dimension differently",
      profiles=(MINI,), same_as="GZ-10")  # fmt: skip
def check_mini_v3_dimensions(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _check_dimensions(hierarchy, 3)
    for array in hierarchy.arrays:
        names = array.dims or ()
        if array.zarr_format == 3 and len(set(names)) != len(names) and None not in names:
            yield Found(array, f"dimension_names are {list(names)}, one of them twice", None, list(names))


@Rule("GZ-11", "error", "core", "draft 8.1.2",
      "Within a group, a dimension's name means one length, and an array has it once.",
      "give dimensions of other lengths other names")  # fmt: skip
def check_lengths(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        names = [name for name in array.dims or () if name is not None]
        if len(set(names)) != len(names):
            yield Found(array, f"dimensions are {names}, one of them twice", None, names)
    # Levels that are arrays of one group differ in their lengths, and in nothing else.
    coarser = {id(level.node) for pyramid in hierarchy.pyramids for level in pyramid.levels[1:]}
    for group in hierarchy.groups:
        found = hierarchy.meaning.roles(group)
        first: dict[str, tuple[int, str]] = {}
        for name, array in {**found.data, **found.auxiliary}.items():
            if id(array) in coarser:
                continue
            for dimension, length in zip(array.dims or (), array.shape, strict=False):
                known = first.setdefault(str(dimension), (length, name))
                if dimension is not None and known[0] != length:
                    message = f"dimension {dimension!r} is {length} long, in {known[1]!r} {known[0]}"
                    yield Found(array, message, known[0], length)


@Rule("GZ-12", "error", "core", "draft 8.1.2",
      "A dimension's name that begins with / is that of a 1-D array of its length in a group above.",
      "use plain names: no tool follows the others", each="arrays")  # fmt: skip
def check_outer_dimensions(array: ArrayView) -> Iterator[Found]:
    for dimension, length in zip(array.dims or (), array.shape, strict=False):
        if dimension is None or not dimension.startswith("/"):
            continue
        above = (group.arrays.get(dimension[1:]) for group in array.ancestors())
        found = next((coordinate for coordinate in above if coordinate is not None), None)
        if found is None or found.shape != (length,):
            shape = "nowhere" if found is None else f"of the shape {found.shape}"
            yield Found(array, f"dimension {dimension!r}: {dimension[1:]!r} is {shape}", (length,))
        else:
            message = f"dimension {dimension!r} is one that no tool follows"
            yield Found(array, message, dimension[1:], dimension, "note")


@Rule("GZ-15", "error", "crs", "draft 8.1.3", "grid_mapping names an array beside it, or in a group above.",
      "name the array that carries the CRS, or make it", each="arrays")  # fmt: skip
def check_mapping(array: ArrayView) -> Iterator[Found]:
    stated = array.attrs.get("grid_mapping")
    name, mapping = mapping_of(array)
    if stated is not None and mapping is None:
        yield Found(array, f"grid_mapping is {stated!r}; there is no array {name!r}", None, stated)


@Rule("GZ-16", "error", "core", "draft 8.1.4",
      "scale_factor, add_offset, _FillValue, flags and names have the types that CF gives them.",
      "write numbers as numbers, and a fill value that the type holds", each="arrays")  # fmt: skip
def check_values_meaning(array: ArrayView) -> Iterator[Found]:
    _, findings = parse_variable(array, None)
    for finding in findings:
        if finding.rule == "GZ-16":
            yield Found(array, finding.message, finding.expected, finding.found, finding.severity)
    if is_unreadable_fill(array):
        message = (
            f"_FillValue is {array.attrs['_FillValue']!r}, which xarray refuses on a Zarr v3 float array"
        )
        yield Found(array, message, "base64 of the little-endian float64", None, "warning")


def is_unreadable_fill(array: ArrayView) -> bool:
    """Whether `_FillValue` is a plain number where xarray wants base64."""
    found: Any = array.attrs.get("_FillValue")
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return is_number and array.zarr_format == 3 and array.dtype.kind == "f" and bool(np.isfinite(found))


def has_no_fill(array: ArrayView) -> bool:
    """Whether `fill_value` is null in Zarr v3."""
    return array.zarr_format == 3 and array.document.get("fill_value", 0) is None


@Rule("ZS-08", "error", "core", "Zarr v3, fill_value", "A Zarr v3 array has a fill value.",
      "write one (zstore fix --fill-value does); GDAL takes it for nodata", general="warning",
      each="arrays")  # fmt: skip
def check_fill_is_there(array: ArrayView) -> Iterator[Found]:
    if has_no_fill(array):
        message = "fill_value is null, for which zarr-python refuses the array; GDAL writes it"
        yield Found(array, message, "a value of the array's type", None)


@Rule("MS-02", "error", "core", "mini spec, DataArray",
      "Arrays have a dimension, but for those that grid_mapping or coordinates name.",
      "give the value a dimension, or make it an attribute", general="note", profiles=(MINI,))  # fmt: skip
def check_scalars(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        if array.shape == () and _is_data(hierarchy, array):
            yield Found(array, "the array has no dimension, and nothing refers to it", 1, 0)


@Rule("MS-06", "error", "core", "mini spec, Dataset, CF compliance",
      "Data variables have a standard_name that CF's table has.",
      "take a name from cfconventions.org; leave it out where there is none", general="warning",
      profiles=(MINI,))  # fmt: skip
def check_standard_names(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        found = array.attrs.get("standard_name")
        if isinstance(found, str):
            yield from _check_name(array, found)
        elif found is None and hierarchy.profile is not None and array.shape and _is_data(hierarchy, array):
            yield Found(array, "there is no standard_name", "a name of CF's table")


def _is_data(hierarchy: Hierarchy, array: ArrayView) -> bool:
    return array.parent is not None and array.name in hierarchy.meaning.roles(array.parent).data


def _check_name(array: ArrayView, found: str) -> Iterator[Found]:
    table = load_standard_names()
    name, _, modifier = found.partition(" ")
    if modifier and modifier not in MODIFIERS:
        message = f"standard_name is {found!r}; {modifier!r} is no modifier"
        yield Found(array, message, sorted(MODIFIERS), modifier)
    if name in table.aliases:
        now = " or ".join(table.aliases[name])
        yield Found(array, f"standard_name {name!r} is an old name of {now!r}", now, name, "warning")
    elif name not in table.units:
        yield Found(array, f"standard_name {name!r} is not in the {table.version}", None, name)

"""Conversion of many rasters into one group: along time, band beside band, or as a mosaic on one grid."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Variable
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.geo.pyramid.dataset import MASK_MEANINGS, MASK_VALUES, PlaceLike
from zstore.geo.rasters.files import FileArray
from zstore.geo.rasters.raster import (
    TILE_LENGTH,
    Description,
    PlacedRaster,
    RasterJob,
    RasterPath,
    WriteOptions,
    choose_names,
    describe_raster,
    open_raster,
)
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.model.array import ZarrFormat
from zstore.model.codec_packing import Packing
from zstore.nodes.group import Group
from zstore.storage.memory import MemoryStore
from zstore.storage.url import with_storage_options

Stack: TypeAlias = Literal["time", "bands", "mosaic"]
STACKS = ("time", "bands", "mosaic")

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
# Dates in names, where no pattern is passed: 20150117, 2015-01-17, 20150117T013442, 2015017, and in
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

# Cells of two rasters are the same cells if they are no further apart than this part of one.
ALIGNMENT = 1e-3


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def rasters_to_zarr(
    sources: Sequence[RasterPath],
    target: Group | PlaceLike,
    *,
    stack: Stack,
    times: Times = None,
    zarr_format: ZarrFormat = 3,
    chunks: int | tuple[int, int] = TILE_LENGTH,
    shards: int | tuple[int, int] | None = None,
    compressors: Any = "auto",
    bands: Sequence[int] | None = None,
    levels: int | None = 0,
    method: str = "average",
    profile: str | None = None,
    packing: Packing = "attributes",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Group:
    """The group at `target`, with the arrays of all these rasters.

    Parameters that are not named here are those of `raster_to_zarr`.

    stack   "time": rasters of one grid and the same bands, each a moment of arrays (time, y, x), in order of
            time; "bands": rasters of one grid, each with bands of its own; "mosaic": rasters of the same
            bands beside each other, whose cells are those of one grid. Where rasters of a mosaic meet, valid
            cells of later ones lie on top; what none of them covers is nodata, or masked.
    times   by default the date in each file's name; a pattern of the names, the name of a tag, or a date for
            each raster (`read_moments`)

    What all rasters say alike goes along; tags that only some of them have are left out.

    Raises
        MetadataError: rasters of different grids, bands, data types, nodata or packing; a raster without a
            date, or two of one.
        As `raster_to_zarr`.
    """
    how = How(**words)
    described = describe_stack(sources, stack, times, bands)
    return RasterJob(described, target, WriteOptions.among(locals())).carry_out()


def stack_sources(
    sources: Sequence[RasterPath], stack: Stack, times: Times = None, bands: Sequence[int] | None = None
) -> Mapping[str, FileArray]:
    """The arrays that `rasters_to_zarr` makes of rasters as sources of jobs, by their names.

    Raises, warns
        as `rasters_to_zarr`.
    """
    return RasterJob(describe_stack(sources, stack, times, bands), MemoryStore(), WriteOptions()).file_arrays


def describe_stack(
    sources: Sequence[RasterPath], stack: Stack, times: Times, bands: Sequence[int] | None
) -> Description:
    """The description of rasters as one group.

    Raises, warns
        as `rasters_to_zarr`.
    """
    if stack not in STACKS:
        raise MetadataError(f"stack is {stack!r}; expected one of {', '.join(STACKS)}")
    if times is not None and stack != "time":
        raise MetadataError(f"times are for stack='time', and stack is {stack!r}")
    if not sources:
        raise MetadataError("no rasters are given; expected one at least")
    found, tags = [], []
    for source in sources:
        with open_raster(source) as raster:
            found.append(describe_raster(raster, os.fspath(source), bands))
            tags.append(raster.tags())
    if stack == "time":
        return _along_time(found, tags, times)
    return _beside(found) if stack == "bands" else _mosaic(found)


def _along_time(found: Sequence[Description], tags: Sequence[Mapping[str, str]], times: Times) -> Description:
    first = found[0]
    for other in found[1:]:
        _check_place(first, other)
        _check_bands(first, other)
    moments = read_moments([PurePath(part.path).name for part in _rasters(found)], tags, times)
    order = np.argsort(moments)
    axis = TimeAxis.from_dates(moments[order])
    parts = _rasters(found)
    placed = tuple(replace(parts[old], place=(new,)) for new, old in enumerate(order))
    dimensions = (axis.name, *first.geo.dimensions)
    variables = {name: replace(v, dimensions=dimensions) for name, v in _common_variables(found).items()}
    return Description(replace(first.geo, variables=variables, time=axis), placed, _common_attributes(found))


def _beside(found: Sequence[Description]) -> Description:
    first = found[0]
    variables: dict[str, Variable] = {}
    parts: list[PlacedRaster] = []
    for index, described in enumerate(found):
        _check_place(first, described)
        (part,) = described.rasters
        stem = PurePath(part.path).stem
        named = [described.geo.variables[name].long_name or "" for _, name in part.bands]
        own = [
            name if long else stem if len(part.bands) == 1 else f"{stem}_{name}"
            for (_, name), long in zip(part.bands, named, strict=True)
        ]
        names = choose_names([*variables, *own], [0] * len(variables) + [index + 1] * len(own))[
            len(variables) :
        ]
        renamed = zip(part.bands, names, strict=True)
        parts.append(replace(part, bands=tuple((band, new) for (band, _), new in renamed)))
        variables |= {
            new: described.geo.variables[old] for (_, old), new in zip(part.bands, names, strict=True)
        }
    attributes = {
        **_common_attributes(found),
        "bands": [n for part in parts for band, n in part.bands if band],
    }
    return Description(replace(first.geo, variables=variables), tuple(parts), attributes)


def _mosaic(found: Sequence[Description]) -> Description:
    first = found[0]
    corners = []
    for described in found:
        _check_bands(first, described)
        corners.append(_corner(first, described))
    top, left = (min(corner[axis] for corner in corners) for axis in (0, 1))
    parts = tuple(
        replace(part, corner=(row - top, column - left))
        for part, (row, column) in zip(_rasters(found), corners, strict=True)
    )
    shape = tuple(max(p.corner[axis] + p.shape[axis] for p in parts) for axis in (0, 1))
    affine = None if first.geo.affine is None else first.geo.affine.moved(left, top)
    variables = _common_variables(found)
    has_mask = any(band == 0 for band, _ in first.rasters[0].bands)
    if not has_mask and any(v.nodata is None for v in variables.values()) and not _covers(parts, shape):
        # Without a nodata value, a mask says which cells no raster covers.
        (name,) = choose_names([*variables, "mask"], [0] * len(variables) + [1])[len(variables) :]
        variables[name] = Variable(np.dtype("u1"), flag_values=MASK_VALUES, flag_meanings=MASK_MEANINGS)
        parts = tuple(replace(part, bands=(*part.bands, (0, name))) for part in parts)
    geo = replace(first.geo, affine=affine, shape=(shape[0], shape[1]), variables=variables)
    return Description(geo, parts, _common_attributes(found))


def _rasters(found: Sequence[Description]) -> list[PlacedRaster]:
    return [raster for described in found for raster in described.rasters]


def _corner(first: Description, other: Description) -> tuple[int, int]:
    """(row, column) of the first raster at which another one begins."""
    a, b = first.geo.affine, other.geo.affine
    if first.geo.crs != other.geo.crs:
        raise _differ(first, other, "CRSs", first.geo.crs, other.geo.crs)
    if a is None or b is None:
        raise MetadataError(
            "a raster without an affine has no place in a mosaic",
            path=(first if a is None else other).rasters[0].path,
        )
    column, row = a.cell_at(b.c, b.f)
    # The opposite corner as well: cells of nearly the same size drift apart.
    height, width = other.geo.shape
    far_column, far_row = a.cell_at(*b.at(width, height))
    whole = (round(row), round(column))
    drift = max(
        abs(row - whole[0]),
        abs(column - whole[1]),
        abs(far_row - whole[0] - height),
        abs(far_column - whole[1] - width),
    )
    if drift > ALIGNMENT:
        raise MetadataError(
            f"cells of the raster are {drift:.4g} of a cell away from those of {first.rasters[0].path!r}; "
            "expected one grid (gdalwarp -tap -tr gives rasters one)",
            path=other.rasters[0].path,
        )
    return whole


def _covers(parts: Sequence[PlacedRaster], shape: Sequence[int]) -> bool:
    """Whether the rasters cover all cells; tested once for every rectangle between their edges."""
    edges = [
        sorted(
            {
                0,
                shape[axis],
                *(p.corner[axis] for p in parts),
                *(p.corner[axis] + p.shape[axis] for p in parts),
            }
        )
        for axis in (0, 1)
    ]
    covered = np.zeros((len(edges[0]) - 1, len(edges[1]) - 1), bool)
    for part in parts:
        y, x = (
            slice(
                edges[axis].index(part.corner[axis]), edges[axis].index(part.corner[axis] + part.shape[axis])
            )
            for axis in (0, 1)
        )
        covered[y, x] = True
    return bool(covered.all())


def _check_place(first: Description, other: Description) -> None:
    """Refuse a raster whose cells are not those of the first one."""
    if first.geo.shape != other.geo.shape:
        raise _differ(first, other, "shapes", first.geo.shape, other.geo.shape)
    if first.geo.crs != other.geo.crs:
        raise _differ(first, other, "CRSs", first.geo.crs, other.geo.crs)
    if (first.geo.affine is None) != (other.geo.affine is None):
        raise _differ(first, other, "affines", first.geo.affine, other.geo.affine)
    if first.geo.affine is not None and _corner(first, other) != (0, 0):
        raise _differ(first, other, "affines", tuple(first.geo.affine), other.geo.affine)


def _check_bands(first: Description, other: Description) -> None:
    """Refuse a raster whose bands are not those of the first."""
    if first.rasters[0].bands != other.rasters[0].bands:
        names = [[name for _, name in described.rasters[0].bands] for described in (first, other)]
        raise _differ(first, other, "bands", *names)
    for name, mine in first.geo.variables.items():
        theirs = other.geo.variables[name]
        for what in ("dtype", "nodata", "scale_factor", "add_offset", "units"):
            a, b = getattr(mine, what), getattr(theirs, what)
            if a != b and not (a != a and b != b):
                raise _differ(first, other, f"{what.replace('_', ' ')}s of {name!r}", a, b)


def _differ(first: Description, other: Description, what: str, a: Any, b: Any) -> MetadataError:
    return MetadataError(
        f"rasters have different {what}: {b} here, {a} in {first.rasters[0].path!r}; expected the same",
        path=other.rasters[0].path,
    )


def _common_variables(found: Sequence[Description]) -> dict[str, Variable]:
    """The first raster's variables, with the attributes that all rasters share."""
    first, *others = [described.geo.variables for described in found]
    return {
        name: replace(
            variable,
            attributes=_common(variable.attributes, [other[name].attributes for other in others]),
        )
        for name, variable in first.items()
    }


def _common_attributes(found: Sequence[Description]) -> dict[str, Any]:
    first, *others = [described.attributes for described in found]
    return _common(first, others)


def _common(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The members with the same value in all mappings; `tags` are compared one by one."""
    kept = {}
    for name, value in first.items():
        if name == "tags":
            value = _common(value, [other.get("tags", {}) for other in others])
            if value:
                kept[name] = value
        elif all(name in other and other[name] == value for other in others):
            kept[name] = value
    return kept


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
        MetadataError: a name or a tag with no date or several; more or fewer dates than rasters; one twice.
    """
    if isinstance(times, str):
        pattern = _compile_times(times) if "%" in times else None
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


def _compile_times(text: str) -> re.Pattern[str]:
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


def _by_name(name: str, patterns: Sequence[re.Pattern[str]], written: str | None) -> np.datetime64:
    """The one date in a name; `written` is the pattern of the caller, for the message."""
    found: dict[np.datetime64, str] = {}
    for pattern in patterns:
        for match in pattern.finditer(name):
            moment = _moment(match.groupdict())
            if moment is not None:
                found[moment] = match[0]
    if len(found) == 1:
        return next(iter(found))
    what = f"several dates ({', '.join(found.values())})" if found else "no date"
    by = "" if written is None else f" by the pattern {written!r}"
    expected = (
        "expected one: say where it stands by a pattern such as 'S2A_*_%Y%m%dT%H%M%S_*', or give the times"
    )
    raise MetadataError(f"the name {name!r} has {what}{by}; {expected}")


def _moment(parts: Mapping[str, str | None]) -> np.datetime64 | None:
    """The moment of the numbers of a date; None if there is no such day or time."""
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
    """The date in a tag of the raster."""
    if tag not in tags:
        known = ", ".join(sorted(tags)) or "none"
        raise MetadataError(f"raster {name!r} has no tag {tag!r}; it has {known}")
    return _by_value(tags[tag], f"tag {tag!r} of raster {name!r}: {tags[tag]!r}")


def _by_value(value: Any, what: str) -> np.datetime64:
    """The date of a value; `what` names it in the message."""
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

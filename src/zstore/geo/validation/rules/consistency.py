"""Rules about what the levels of a pyramid have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zstore.geo.conventions.affines import TOLERANCE
from zstore.geo.conventions.levels import Grid, LevelPlace
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.profiles import DRAFT, MINI
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.view import ArrayView, GroupView, Hierarchy, coordinate_of

LARGEST_CHUNK = 100 * 1000 * 1000


def _twins(base: LevelPlace, level: LevelPlace) -> Iterator[tuple[Grid, Grid]]:
    """The grids of the same name at two levels."""
    for name, grid in level.grids.items():
        if name in base.grids:
            yield base.grids[name], grid


Rule("GZ-22", "error", "overviews", "draft 8.1.6",
     "A variable has the same units, packing, fill value and flags at every level.",
     "copy the attributes of the finest level", is_read=True)  # fmt: skip
Rule("GZ-32", "error", "overviews", "draft 8.2.1", "Every level holds all variables.",
     "make the variable at that level too", profiles=(DRAFT,), is_read=True)  # fmt: skip
Rule("GZ-33", "error", "overviews", "draft 8.2.1",
     "A variable has the same type and dimensions at every level, but for y and x the same lengths.",
     "write the level anew", is_read=True)  # fmt: skip


@Rule("MS-13", "warning", "overviews", "mini spec, Implementation Approach",
      "Every level is a whole number of times smaller than the one before.",
      "make the level with a whole factor", each="pyramids")  # fmt: skip
def check_factors(pyramid: Pyramid) -> Iterator[Found]:
    for finer, coarser in zip(pyramid.levels, pyramid.levels[1:], strict=False):
        for one, other in _twins(finer, coarser):
            for n, m in zip(one.shape, other.shape, strict=True):
                factor = round(n / m) if m else 0
                if factor < 1 or not n / factor - 1 <= m <= n / factor + 1:
                    message = f"{other.shape} is no whole part of {one.shape} at level {finer.path!r}"
                    yield Found(other.node, message, [n // 2, -(-n // 2)], m)
                    break


def coordinate_corner(grid: Grid) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """((y, x) of the outer corner, (y, x) steps) by a grid's coordinates; None where they tell none."""
    corners, steps = [], []
    for dimension in grid.dimensions:
        coordinate = coordinate_of(grid.node, dimension)
        values = None if coordinate is None else _numbers(coordinate)
        if values is None or len(values) < 2:
            return None
        step = float(values[-1] - values[0]) / (len(values) - 1)
        corners.append(float(values[0]) - step / 2)
        steps.append(step)
    return (corners[0], corners[1]), (steps[0], steps[1])


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
                steps = np.diff(values)
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
    base, level = coordinate_corner(one), coordinate_corner(other)
    if base is None or level is None:
        return
    for axis, dimension in enumerate(other.dimensions):
        factor = level[1][axis] / base[1][axis] if base[1][axis] else 0.0
        shift = (level[0][axis] - base[0][axis]) / level[1][axis] if level[1][axis] else 0.0
        coordinate = coordinate_of(other.node, dimension)
        if coordinate is not None and (abs(shift) > TOLERANCE or factor < 1):
            message = f"coordinates begin {shift:.3g} cells off the finest level's corner"
            yield Found(coordinate, message, base[0][axis], level[0][axis])


@Rule("MS-19", "error", "overviews", "mini spec, Multiscale Dataset, members",
      "All levels have exactly the same members.", "make the member at that level too", general="warning",
      profiles=(MINI,), is_read=True)  # fmt: skip
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

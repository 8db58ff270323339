"""Rules that need a list of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from zstore.conventions.geozarr import LIMITS, Limits, parse_limits
from zstore.conventions.levels import Grid
from zstore.validation.rule import Found, rule
from zstore.validation.view import ArrayView, Hierarchy

__all__ = ["stored_chunks"]

MOST_KEYS = 200_000


def stored_chunks(array: ArrayView) -> Iterator[tuple[int, ...]]:
    """The place in the grid of every chunk (or shard) that is stored."""
    keys = array.node.model.keys
    inside = f"{array.path}/" if array.path else ""
    for key in islice(array.store.list(array.path), MOST_KEYS):
        place = keys.cell(key.removeprefix(inside), len(array.shape))
        if place is not None:
            yield place


@rule("ZS-05", "error", "overviews", "draft 8.2.5",
      "Chunks are stored within the limits of their level only.",
      "widen the limits (zstore fix does), or delete the chunks", is_deep=True)  # fmt: skip
def check_stored_within(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        for level in pyramid.levels:
            stated = (parse_limits(pyramid.stated, member, level.path) for member in LIMITS)
            found = next((limits for limits in stated if limits is not None), None)
            for grid in level.grids.values() if found is not None else ():
                outside = sorted(set(_outside(grid, found or (0, 0, 0, 0))))
                if outside:
                    message = f"{len(outside)} chunks are outside the limits {found}, such as {outside[0]}"
                    yield Found(grid.node, message, found, outside[:10])


def _outside(grid: Grid, limits: Limits) -> Iterator[tuple[int, ...]]:
    # A shard holds several tiles: it is outside where none of them can be inside.
    cut = grid.node.node.model.grid
    for place in stored_chunks(grid.node):
        for axis, low, high in ((grid.y, limits[0], limits[1]), (grid.x, limits[2], limits[3])):
            tile = grid.node.chunks[axis]
            if place[axis] >= cut.count(grid.node.shape)[axis]:
                # Beyond the array altogether, which is another rule's.
                break
            first = cut.start(axis, place[axis]) // tile
            last = (cut.start(axis, place[axis] + 1) - 1) // tile
            if last < low or first > high:
                yield place
                break


@rule("ZS-06", "error", "core", "Zarr v2, v3", "Chunks are stored within the array's shape only.",
      "delete the chunks: no reader sees them", general="warning", is_deep=True)  # fmt: skip
def check_stored_in_shape(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        counts = array.node.model.grid.count(array.shape)
        outside = [p for p in stored_chunks(array) if any(i >= n for i, n in zip(p, counts, strict=True))]
        if outside:
            message = f"{len(outside)} chunks are beyond {counts} chunks, such as {min(outside)}"
            yield Found(array, message, counts, sorted(outside)[:10])

"""Rules that need a list of what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from zstore.validation.places import Grid, pyramids
from zstore.validation.rule import Complaint, rule
from zstore.validation.rules.tiles import CAMEL, SNAKE, ranges_of
from zstore.validation.view import ArrayView, Hierarchy

__all__ = ["stored_chunks"]

MOST_KEYS = 200_000


def stored_chunks(array: ArrayView) -> Iterator[tuple[int, ...]]:
    """The place in the grid of every chunk (or shard) that is stored."""
    keys = array.array.model.keys
    inside = f"{array.path}/" if array.path else ""
    for key in islice(array.store.list(array.path), MOST_KEYS):
        place = keys.cell(key.removeprefix(inside), len(array.shape))
        if place is not None:
            yield place


@rule("ZS-05", "error", "overviews", "draft 8.2.5",
      "Chunks are stored within the limits of their level only.",
      "widen the limits (zstore fix does), or delete the chunks", is_deep=True)  # fmt: skip
def check_stored_within(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for pyramid in pyramids(hierarchy):
        for level in pyramid.levels:
            found = None
            for member, names in (("tile_matrix_set_limits", SNAKE), ("tile_matrix_limits", CAMEL)):
                limits = pyramid.stated.get(member) if isinstance(pyramid.stated, Mapping) else None
                stated = limits.get(level.path) if isinstance(limits, Mapping) else None
                found = found or ranges_of(stated, names)
            for grid in level.grids.values() if found is not None else ():
                outside = sorted(set(_outside(grid, found or [])))
                if outside:
                    message = f"{len(outside)} chunks are outside the limits {found}, such as {outside[0]}"
                    yield Complaint(grid.view, message, found, outside[:10])


def _outside(grid: Grid, limits: list[int]) -> Iterator[tuple[int, ...]]:
    # A shard holds several tiles: it is outside where none of them can be inside.
    cut = grid.view.array.model.grid
    for place in stored_chunks(grid.view):
        for axis, low, high in ((grid.x, limits[0], limits[1]), (grid.y, limits[2], limits[3])):
            tile = grid.view.array.chunks[axis]
            if place[axis] >= cut.count(grid.view.shape)[axis]:
                # Beyond the array altogether, which is another rule's.
                break
            first = cut.start(axis, place[axis]) // tile
            last = (cut.start(axis, place[axis] + 1) - 1) // tile
            if last < low or first > high:
                yield place
                break


@rule("ZS-06", "error", "core", "Zarr v2, v3", "Chunks are stored within the array's shape only.",
      "delete the chunks: no reader sees them", general="warning", is_deep=True)  # fmt: skip
def check_stored_in_shape(hierarchy: Hierarchy) -> Iterator[Complaint]:
    for array in hierarchy.arrays:
        counts = array.array.model.grid.count(array.shape)
        outside = [p for p in stored_chunks(array) if any(i >= n for i, n in zip(p, counts, strict=True))]
        if outside:
            message = f"{len(outside)} chunks are beyond {counts} chunks, such as {min(outside)}"
            yield Complaint(array, message, counts, sorted(outside)[:10])

"""Plans for arrays whose chunks differ in shape (rectilinear grids), made in Python.

They take the place of the kernels' layouts and plans; `zstore.indexing.select` decides for both what a
selection means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import SelectionError
from zstore.model.grid import RectilinearGrid

Index = np.ndarray[Any, np.dtype[np.int64]]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class RectilinearLayout:
    """The shape of an array and its chunk grid, which plans are made against."""

    shape: Shape
    grid: RectilinearGrid


class ChunkPart(NamedTuple):
    """The part of one chunk that a plan takes: `chunk[inner]` corresponds to `memory[outer]`.

    is_whole  it is every item of the chunk, even those beyond the end of the array
    is_rest   it is every item of the chunk within the array
    """

    cell: Shape
    shape: Shape
    inner: Any
    outer: Any
    is_whole: bool
    is_rest: bool


class Stretch(NamedTuple):
    """Along one dimension, the part that a plan takes of the chunks with one index."""

    place: int
    inner: slice | Index
    outer: slice | Index
    size: int  # distinct positions


@dataclass(frozen=True)
class RectilinearPlan:
    """The chunks that a selection touches, and the part that it takes of each.

    shape      of the memory that is read into or written from
    stretches  for each dimension of the array, the parts of the chunks along it; None for a plan of points
    dims       for each dimension of the array, the dimension of the memory that it becomes, -1 for none
    points     else the coordinates of all points for each dimension
    """

    layout: RectilinearLayout
    shape: Shape
    stretches: tuple[list[Stretch], ...] | None
    dims: tuple[int, ...] = ()
    points: tuple[Index, ...] = ()

    def parts(self) -> Iterator[ChunkPart]:
        """The part of each chunk that the selection touches."""
        return self._point_parts() if self.stretches is None else self._box_parts(self.stretches)

    def _box_parts(self, stretches: tuple[list[Stretch], ...]) -> Iterator[ChunkPart]:
        layout = self.layout
        kept = [dim for dim in self.dims if dim >= 0]
        in_order = kept == sorted(kept)
        for chosen in product(*stretches):
            cell = tuple(stretch.place for stretch in chosen)
            shape = tuple(edge.length(place) for edge, place in zip(layout.grid.edges, cell, strict=True))
            counts = tuple(stretch.size for stretch in chosen)
            is_box = in_order and all(isinstance(stretch.inner, slice) for stretch in chosen)
            make = self._slices if is_box else self._open_mesh
            yield ChunkPart(
                cell, shape, *make(chosen), counts == shape, counts == _shape_within(layout, cell, shape)
            )

    def _slices(self, chosen: Sequence[Stretch]) -> tuple[Any, Any]:
        inner: list[Any] = []
        outer: list[Any] = [0] * len(self.shape)
        for stretch, dim in zip(chosen, self.dims, strict=True):
            assert isinstance(stretch.inner, slice)
            inner.append(stretch.inner.start if dim < 0 else stretch.inner)
            if dim >= 0:
                outer[dim] = stretch.outer
        return tuple(inner), tuple(outer)

    def _open_mesh(self, chosen: Sequence[Stretch]) -> tuple[Any, Any]:
        kept = [d for d, dim in enumerate(self.dims) if dim >= 0]
        inner: list[Any] = [0] * len(chosen)
        outer: list[Any] = [0] * len(self.shape)
        for d, stretch in enumerate(chosen):
            wide = [1] * len(kept)
            inside = _as_index(stretch.inner)
            if self.dims[d] < 0:
                inner[d] = inside[0]
                continue
            wide[kept.index(d)] = -1
            inner[d] = inside.reshape(wide)
            outer[self.dims[d]] = _as_index(stretch.outer).reshape(wide)
        return tuple(inner), tuple(outer)

    def _point_parts(self) -> Iterator[ChunkPart]:
        layout = self.layout
        located = [edge.locate(index) for edge, index in zip(layout.grid.edges, self.points, strict=True)]
        places = np.stack([place for place, _ in located])
        order = np.lexsort(places[::-1])
        ordered = places[:, order]
        borders = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
        for group in np.split(order, borders) if order.size else ():
            cell = tuple(int(place) for place in places[:, group[0]])
            shape = tuple(edge.length(place) for edge, place in zip(layout.grid.edges, cell, strict=True))
            yield ChunkPart(cell, shape, tuple(inside[group] for _, inside in located), group, False, False)


def _shape_within(layout: RectilinearLayout, cell: Shape, shape: Shape) -> Shape:
    """The shape of the part of a chunk that lies within the array."""
    grid = layout.grid
    return tuple(min(length, layout.shape[d] - grid.start(d, cell[d])) for d, length in enumerate(shape))


def _as_index(part: slice | Index) -> Index:
    if not isinstance(part, slice):
        return part
    stop = -1 if part.stop is None else part.stop
    return np.arange(part.start, stop, part.step or 1, dtype=np.int64)


def plan_basic(layout: RectilinearLayout, selection: Any) -> RectilinearPlan | None:
    """Plan a selection of integers, slices, ellipsis and new axes; None for any other.

    Raises
        IndexError: an index is out of range, or there are too many.
    """
    items = selection if isinstance(selection, tuple) else (selection,)
    if not all(item is None or item is Ellipsis or _is_plain(item) for item in items):
        return None
    entries, _ = fill_ellipsis(items, [int(item is not None) for item in items], len(layout.shape))
    axes: list[Any] = []
    dims: list[int] = []
    shape: list[int] = []
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        length = layout.shape[len(axes)]
        if isinstance(entry, slice):
            start, stop, step = entry.indices(length)
            axes.append((start, len(range(start, stop, step)), step))
            dims.append(len(shape))
            shape.append(axes[-1][1])
            continue
        position = int(entry)
        if not -length <= position < length:
            raise SelectionError(f"index {position} is out of bounds for axis {len(axes)} with size {length}")
        axes.append((position % length, 1, 1))
        dims.append(-1)
    return plan_orthogonal(layout, axes, dims, tuple(shape))


def fill_ellipsis(items: Sequence[Any], widths: Sequence[int], ndim: int) -> tuple[list[Any], int]:
    """The items with full slices in place of an ellipsis and of omitted dimensions.

    `widths` has the number of dimensions that each item selects from. Also gives the index of these slices.

    Raises
        SelectionError: several ellipses, or too many indices.
    """
    places = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    used = sum(widths) - sum(widths[k] for k in places)
    if used > ndim:
        raise SelectionError(f"too many indices: array has {ndim} dimensions, but {used} were indexed")
    place = places[0] if places else len(items)
    return [*items[:place], *[slice(None)] * (ndim - used), *items[place + 1 :]], place


def _is_plain(item: Any) -> bool:
    return isinstance(item, slice) or (isinstance(item, int | np.integer) and not isinstance(item, bool))


def plan_orthogonal(
    layout: RectilinearLayout, axes: Sequence[tuple[int, int, int] | Index], dims: Sequence[int], shape: Shape
) -> RectilinearPlan:
    """Plan a selection of independent dimensions; as `zstore.indexing.select.plan_orthogonal`."""
    stretches = tuple(
        _runs(edge, *axis) if isinstance(axis, tuple) else _groups(edge, axis)
        for edge, axis in zip(layout.grid.edges, axes, strict=True)
    )
    return RectilinearPlan(layout, shape, stretches, tuple(dims))


def plan_points(layout: RectilinearLayout, indices: Sequence[Index], shape: Shape) -> RectilinearPlan:
    """Plan a selection of points; as `zstore.indexing.select.plan_points`.

    Raises
        IndexError: an index is out of range.
    """
    points = []
    for d, (index, length) in enumerate(zip(indices, layout.shape, strict=True)):
        if index.size and not -length <= int(index.min()) <= int(index.max()) < length:
            bad = int(index.min()) if int(index.min()) < -length else int(index.max())
            raise SelectionError(f"index {bad} is out of bounds for axis {d} with size {length}")
        points.append(np.where(index < 0, index + length, index))
    return RectilinearPlan(layout, shape, None, points=tuple(points))


def _runs(edge: Any, start: int, count: int, step: int) -> list[Stretch]:
    """For each chunk along a dimension, the part that contains some of evenly spaced positions."""
    stretches: list[Stretch] = []
    done = 0
    while done < count:
        position = start + done * step
        place = int(edge.locate(np.array([position], np.int64))[0][0])
        begin, length = edge.start(place), edge.length(place)
        left = (begin + length - 1 - position) // step if step > 0 else (position - begin) // -step
        size = min(left + 1, count - done)
        last = position - begin + (size - 1) * step
        stop = last + 1 if step > 0 else (last - 1 if last else None)
        stretches.append(Stretch(place, slice(position - begin, stop, step), slice(done, done + size), size))
        done += size
    return stretches


def _groups(edge: Any, positions: Index) -> list[Stretch]:
    """For each chunk along a dimension, the positions within it."""
    if not positions.size:
        return []
    places, inside = edge.locate(positions)
    order = np.argsort(places, kind="stable")
    borders = np.flatnonzero(np.diff(places[order])) + 1
    return [
        Stretch(int(places[group[0]]), inside[group], group, len(np.unique(inside[group])))
        for group in np.split(order, borders)
    ]

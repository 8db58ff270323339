"""Turning selections in any of numpy's forms into plans.

The kernels plan integers, slices, ellipsis and new axes by themselves. All else, index arrays, masks and
combinations, becomes an index transform (`zstore.indexing.transform`), of which a plan is made here. Points
along some dimensions with slices of the others are read as boxes (docs/design/0013-points-with-slices.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from zstore._ext.engine import select as kernels
from zstore._ext.engine.select import Layout
from zstore.errors import SelectionError
from zstore.indexing import rectilinear
from zstore.indexing.rectilinear import Index, RectilinearLayout
from zstore.indexing.transform import (
    IndexTransform,
    expand,
    parse,
    parse_orthogonal,
    parse_points,
    position,
    spread,
)
from zstore.model.grid import Grid

__all__ = ["Selected", "is_basic", "select", "select_blocks", "select_orthogonal", "select_points"]


# What a text selects of items without fields, as errors say it.
NO_FIELDS = "no fields; zstore.select(array, {dimension: value}) selects by coordinates"


# Plans against a layout

AnyLayout = Layout | RectilinearLayout


class SelectionPlan(Protocol):
    """The part of each chunk that a selection takes; made for a layout, carried out by its engine."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the memory that is read into or written from."""


@overload
def plan_basic(layout: AnyLayout, selection: tuple[slice, ...]) -> SelectionPlan: ...
@overload
def plan_basic(layout: AnyLayout, selection: Any) -> SelectionPlan | None: ...
def plan_basic(layout: AnyLayout, selection: Any) -> SelectionPlan | None:
    """Plan a selection of integers, slices, ellipsis and new axes; None for any other.

    Raises
        IndexError: an index is out of range, or there are too many.
    """
    if isinstance(layout, Layout):
        plan: SelectionPlan | None = kernels.plan_basic(layout, selection)
        return plan
    return rectilinear.plan_basic(layout, selection)


def plan_orthogonal(
    layout: AnyLayout,
    axes: list[tuple[int, int, int] | Index],
    result_dims: list[int],
    shape: tuple[int, ...],
) -> SelectionPlan:
    """Plan a selection of independent dimensions.

    axes         for each dimension of the array, (start, count, step) or an array of positions
    result_dims  for each of them the dimension of the result that it becomes, -1 for none
    shape        the shape of the result
    """
    if isinstance(layout, Layout):
        return kernels.plan_orthogonal(layout, axes, result_dims, shape)
    return rectilinear.plan_orthogonal(layout, axes, result_dims, shape)


def plan_points(layout: AnyLayout, indices: Sequence[Index], shape: tuple[int, ...]) -> SelectionPlan:
    """Plan a selection of points: `indices` has the coordinates of all points for each dimension.

    Raises
        IndexError: an index is out of range.
    """
    if isinstance(layout, Layout):
        return kernels.plan_points(layout, list(indices), shape)
    return rectilinear.plan_points(layout, indices, shape)


# Points with slices, as boxes

Axis = tuple[int, int, int] | Index

# Planning one more point takes about as long as moving this many bytes that are not wanted.
POINT_SIZE = 16 << 10


class PointShare(NamedTuple):
    """One box to read, and the rows of memory for its items: `memory[rows] = box[places]`.

    `places` index the box's dimensions of points, taken as one; None if the box is the single row `rows`.
    """

    plan: SelectionPlan
    rows: Any
    places: Index | None


class Runs:
    """A plan for points combined with slices.

    axes   for each dimension, a slice (start, count, step) or the checked positions of all points along it
    shape  the number of points, then the counts of the slices
    """

    def __init__(self, layout: AnyLayout, axes: Sequence[Axis], shape: tuple[int, ...]) -> None:
        self.layout = layout
        self.shape = shape
        self._axes = list(axes)
        self._pointed = {d: axis for d, axis in enumerate(axes) if not isinstance(axis, tuple)}

    def by_items(self) -> SelectionPlan:
        """The plan that takes each item as a separate point, into flat memory."""
        count, lengths = self.shape[0], self.shape[1:]
        indices: list[Index] = []
        k = 0
        for axis in self._axes:
            wide = [1] * len(self.shape)
            if isinstance(axis, tuple):
                start, length, step = axis
                k += 1
                wide[k] = length
                index = (start + step * np.arange(length, dtype=np.int64)).reshape(wide)
            else:
                wide[0] = count
                index = axis.reshape(wide)
            indices.append(np.ascontiguousarray(np.broadcast_to(index, self.shape)).reshape(-1))
        return plan_points(self.layout, indices, (count * prod(lengths),))

    def shares(self, chunk_shape: tuple[int, ...], item_size: int) -> Iterator[PointShare]:
        """The boxes to read; along the dimensions of the points, each lies within one chunk."""
        order, borders = self._grouped(chunk_shape)
        points = [index[order] for index in self._pointed.values()]
        row_size = prod(self.shape[1:]) * item_size
        begin = 0
        for end in borders:
            rows = order[begin:end]
            here = [index[begin:end] for index in points]
            begin = end
            if len(rows) > 1:
                axes = [np.unique(index, return_inverse=True) for index in here]
                sizes = tuple(len(kept) for kept, _ in axes)
                if (prod(sizes) - len(rows)) * row_size <= len(rows) * POINT_SIZE:
                    places = np.ravel_multi_index([place for _, place in axes], sizes)
                    yield PointShare(self._box([kept for kept, _ in axes], sizes), rows, places)
                    continue
            yield from self._singles(rows, here)

    def _singles(self, rows: Index, points: list[Index]) -> Iterator[PointShare]:
        for row, *point in zip(rows.tolist(), *(index.tolist() for index in points), strict=True):
            yield PointShare(self._box([(at, 1, 1) for at in point], ()), row, None)

    def _box(self, points: Sequence[Axis], sizes: tuple[int, ...]) -> SelectionPlan:
        """The plan of a box; its memory has the dimensions `sizes` (none for one point), then the slices'."""
        axes = list(self._axes)
        dims = [0] * len(axes)
        for k, (d, axis) in enumerate(zip(self._pointed, points, strict=True)):
            axes[d] = axis
            dims[d] = k if sizes else -1
        after = len(sizes)
        for d, axis in enumerate(self._axes):
            if isinstance(axis, tuple):
                dims[d] = after
                after += 1
        return plan_orthogonal(self.layout, axes, dims, (*sizes, *self.shape[1:]))

    def _grouped(self, chunk_shape: tuple[int, ...]) -> tuple[Index, list[int]]:
        """An order of the points in which those of one chunk are neighbours, and the end of each chunk."""
        count = self.shape[0]
        # Points without any dimension (`array[True]`) are at most one.
        cells = np.array([index // chunk_shape[d] for d, index in self._pointed.items()]).reshape(-1, count)
        if (cells[:, 1:] >= cells[:, :-1]).all():
            order = np.arange(count)
        else:
            order = np.lexsort(cells[::-1])
            cells = cells[:, order]
        borders = np.flatnonzero((cells[:, 1:] != cells[:, :-1]).any(axis=0)) + 1
        return order, [*borders.tolist(), count]


# Index arrays

View = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


class Selected(NamedTuple):
    """A plan, and the shape of numpy's result for the same selection.

    If the plan's own shape differs, `to_plan` turns memory of the result's shape into memory of the plan's (a
    view, or a copy if strides do not allow one), and `from_plan` does the reverse.
    """

    plan: SelectionPlan
    shape: tuple[int, ...]
    to_plan: View | None = None
    from_plan: View | None = None


def select_transform(layout: AnyLayout, shape: tuple[int, ...], transform: IndexTransform) -> Selected:
    """Plan the selection of an index transform, along whose unused axes there is one item, or none.

    Raises
        SelectionError: a position is out of bounds, as where the array has been resized since.
    """
    entries: list[Axis] = []
    dims: list[int] = []
    for d, (own, place, length) in enumerate(zip(transform.axes, transform.positions, shape, strict=True)):
        end = 0  # of an array, whose positions the plan checks
        if isinstance(place, range):
            start, count, step = place.start, len(place), place.step
            end = max(start, start + (count - 1) * step) + 1 if count else 0
            entries.append((start, count, step))
        elif isinstance(place, int):
            end = place + 1
            entries.append((place, 1, 1))
        else:
            entries.append(place)
        if end > length:
            raise SelectionError(f"index {end - 1} is out of bounds for axis {d} with size {length}")
        dims += own or (-1,)
    axes = [axis for axis in dims if axis >= 0]
    if len(dims) == len(entries) and len({*axes}) == len(axes):
        return _independent(layout, transform, entries, dims)
    # Axes of several dimensions, and those that such a dimension has beside them.
    tied = {
        axis for own in transform.axes if len(own) > 1 or (own and axes.count(own[0]) > 1) for axis in own
    }
    # Arrays of their own become points as well: what is left of the dimensions are integers and slices.
    tied |= {
        axis
        for own, place in zip(transform.axes, transform.positions, strict=True)
        if isinstance(place, np.ndarray)
        for axis in own
    }
    return _points(layout, transform, sorted(tied | {*transform.unused}))


def _independent(
    layout: AnyLayout, transform: IndexTransform, entries: list[Axis], dims: list[int]
) -> Selected:
    """Plan a selection in which every axis is one of one dimension."""
    shape = transform.shape
    if 0 in shape:
        kept = [axis for axis in range(len(shape)) if axis in transform.used]
        dims = [kept.index(axis) if axis >= 0 else -1 for axis in dims]
        shape = tuple(shape[axis] for axis in kept)
    return _reshaped(plan_orthogonal(layout, entries, dims, shape), transform.shape)


def _points(layout: AnyLayout, transform: IndexTransform, tied: list[int]) -> Selected:
    """Plan a selection of points along the axes `tied`, and of integers and slices along the others."""
    shape = transform.shape
    together = tuple(shape[axis] for axis in tied)
    count = prod(together)
    axes: list[Axis] = []
    free: list[int] = []
    for d, (own, place) in enumerate(zip(transform.axes, transform.positions, strict=True)):
        if isinstance(place, range) and own[0] not in tied:
            axes.append((place.start, len(place), place.step))
            free.append(own[0])
        else:
            index = np.broadcast_to(spread(transform, d, tied), together)
            axes.append(np.ascontiguousarray(index, np.int64).reshape(-1))
    lengths = tuple(shape[axis] for axis in free)
    plan: SelectionPlan
    if free:
        plan = Runs(layout, axes, (count, *lengths))
    else:
        plan = plan_points(layout, [index for index in axes if not isinstance(index, tuple)], (count,))
    order = [*tied, *free]
    if order == list(range(len(shape))):
        return _reshaped(plan, shape)
    back = np.argsort(order)
    return Selected(
        plan,
        shape,
        lambda memory: memory.transpose(order).reshape(count, *lengths),
        lambda memory: memory.reshape(*together, *lengths).transpose(back),
    )


def _reshaped(plan: SelectionPlan, final: tuple[int, ...]) -> Selected:
    """A selection whose result has the plan's items, in their order, in the shape `final`."""
    inner = plan.shape
    if inner == final:
        return Selected(plan, final)
    if 0 in final and 0 not in inner:  # `array[False]`
        return Selected(
            plan,
            final,
            lambda memory: np.empty(inner, memory.dtype),
            lambda memory: np.empty(final, memory.dtype),
        )
    return Selected(plan, final, lambda memory: memory.reshape(inner), lambda memory: memory.reshape(final))


# Fields of structured arrays

# One name selects the field itself, several select items of these fields, and None whole items.
Fields = str | tuple[str, ...] | None


def split_fields(selection: Any, dtype: np.dtype[Any]) -> tuple[Fields, Any]:
    """Split a selection into the fields that it names and the rest.

    Names can stand alone or among the other entries, singly or in a list.

    Raises
        SelectionError: items have no such field, or it is named twice.
    """
    entries = selection if isinstance(selection, tuple) else (selection,)
    named = [entry for entry in entries if _is_named(entry)]
    if not named:
        return None, selection
    names = [name for entry in named for name in ([entry] if isinstance(entry, str) else entry)]
    fields = dtype.names or ()
    for name in names:
        if name not in fields:
            has = f"the fields {', '.join(map(repr, fields))}" if fields else NO_FIELDS
            raise SelectionError(f"field {name!r} is not there; items of {dtype} have {has}")
    if len(set(names)) < len(names):
        raise SelectionError(f"fields {names} name one twice")
    rest = tuple(entry for entry in entries if not _is_named(entry))
    return (names[0] if named == [names[0]] else tuple(names)), (rest if rest else Ellipsis)


def _is_named(entry: Any) -> bool:
    if isinstance(entry, list):
        return bool(entry) and all(isinstance(name, str) for name in entry)
    return isinstance(entry, str)


def _packed(dtype: np.dtype[Any], fields: Fields) -> np.dtype[Any]:
    assert fields is not None and dtype.fields is not None
    names = (fields,) if isinstance(fields, str) else fields
    return np.dtype([(name, dtype.fields[name][0]) for name in names])


def take_fields(items: np.ndarray[Any, Any], fields: Fields) -> np.ndarray[Any, Any]:
    """Copy the fields out of structured items."""
    if fields is None:
        return items
    if isinstance(fields, str):
        return items[fields].copy()
    taken: np.ndarray[Any, Any] = np.empty(items.shape, _packed(items.dtype, fields))
    for name in fields:
        taken[name] = items[name]
    return taken


def pack_fields(
    value: Any, dtype: np.dtype[Any], fields: Fields, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """A value for some fields, as structured items that have only these, of shape `shape`.

    Raises
        ValueError: it cannot be broadcast to `shape`, or converted to such items.
    """
    packed: np.ndarray[Any, Any] = np.empty(shape, _packed(dtype, fields))
    if isinstance(fields, str):
        packed[fields] = value
    else:
        is_array = isinstance(value, np.ndarray | np.generic)
        packed[...] = value if is_array else np.asarray(value, packed.dtype)
    return packed


# Selections


def select(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array[selection]`, as numpy understands it.

    Raises
        SelectionError: it does not fit the array.
    """
    with _refused:
        plan = plan_basic(layout, selection)
        if plan is not None:
            return Selected(plan, plan.shape)
        return select_transform(layout, shape, parse(shape, selection))


def select_orthogonal(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array.oindex[selection]`: each dimension independently, by integer, slice, list or 1-d mask.

    Raises
        SelectionError: it does not fit the array.
    """
    with _refused:
        return select_transform(layout, shape, parse_orthogonal(shape, selection))


def select_points(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array.vindex[selection]`: points, with the index arrays broadcast against each other.

    Dimensions given as slices come last in the result. A mask of the array's shape selects where it is true.

    Raises
        SelectionError: it does not fit the array.
    """
    with _refused:
        return select_transform(layout, shape, parse_points(shape, selection))


class _Refused:
    """A context that raises errors of numpy's indexing as SelectionError."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IndexError | OverflowError):
            raise SelectionError(str(error)) from None


_refused = _Refused()


def select_blocks(grid: Grid, layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array.blocks[selection]`: whole chunks, by their index in the grid.

    Raises
        SelectionError: it does not fit the grid; a slice has another step than 1.
    """
    regions = []
    for d, (entry, count) in enumerate(zip(expand(selection, shape), grid.count(shape), strict=True)):
        if isinstance(entry, slice):
            start, stop, step = entry.indices(count)
            if step != 1:
                raise SelectionError(f"block selection of axis {d} has step {step}, expected 1")
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            start = position(int(entry), count, d)
            stop = start + 1
        else:
            raise SelectionError(f"block selection of axis {d} is {entry!r}, expected an integer or a slice")
        regions.append(slice(grid.start(d, start), grid.start(d, max(start, stop))))
    return select(layout, shape, tuple(regions))


def is_basic(selection: Any) -> bool:
    """Whether a selection consists of integers, slices, ellipsis and new axes."""
    items = selection if isinstance(selection, tuple) else (selection,)
    return all(item is None or isinstance(item, int | slice | EllipsisType) for item in items)

"""Turning selections in any of numpy's forms into plans.

The kernels plan integers, slices, ellipsis and new axes by themselves. This module handles the rest: index
arrays, masks, fields and combinations, by numpy's rules for the shape of the result. Points along some
dimensions with slices of the others are read as boxes (docs/design/0013-points-with-slices.md).
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
from zstore.indexing.rectilinear import Index, RectilinearLayout, fill_ellipsis
from zstore.model.grid import Grid

__all__ = ["Selected", "is_basic", "select", "select_blocks", "select_orthogonal", "select_points"]


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


def mask_positions(mask: Any, axis: int, shape: tuple[int, ...]) -> list[Index]:
    """The positions at which a mask is true, an array for each of its dimensions, which begin at `axis`."""
    for d, (length, wanted) in enumerate(zip(mask.shape, shape[axis:], strict=False), axis):
        if length != wanted:
            raise SelectionError(
                f"boolean index did not match the array along axis {d}; "
                f"size of axis is {wanted} but size of boolean axis is {length}"
            )
    return [np.ascontiguousarray(index, np.int64) for index in mask.nonzero()]


def index_array(entry: Any, axis: int, length: int) -> Index:
    """An index array, list or 1-d mask as int64 positions, which may still be negative."""
    array = np.asarray(entry)
    if array.size == 0 and not isinstance(entry, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype == np.bool_ and array.ndim == 1:
        return mask_positions(array, axis, (0,) * axis + (length,))[0]
    if array.dtype.kind not in "iu":
        raise SelectionError(
            f"index {entry!r} of axis {axis} is not an integer, slice, ellipsis, new axis, "
            "integer array or boolean array"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise SelectionError(f"index {array.max()} is out of bounds for axis {axis} with size {length}")
    return array.astype(np.int64, copy=False)


def positions(index: Index, length: int, axis: int) -> Index:
    """Check positions against a dimension's length; returns them counted from its start, and contiguous."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -length or high >= length:
            bad = low if low < -length else high
            raise SelectionError(f"index {bad} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            index = np.where(index < 0, index + length, index)
    # Not `ascontiguousarray`, which turns 0-d arrays into 1-d ones.
    return np.asarray(index, order="C")


def position(index: int, length: int, axis: int) -> int:
    """Check one position against a dimension's length; returns it counted from the start."""
    if not -length <= index < length:
        raise SelectionError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length if length else 0


def slice_axis(entry: slice, length: int) -> tuple[int, int, int]:
    """(start, count, step) of a slice along a dimension of `length`."""
    start, stop, step = entry.indices(length)
    return start, len(range(start, stop, step)), step


def select_arrays(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Any], extra: Sequence[Index] = ()
) -> Selected:
    """Plan a selection of one slice or index array per dimension.

    In the result the broadcast dimensions of the arrays come first, then those of the slices. `extra` are
    arrays that take part in the broadcasting and index no dimension.
    """
    arrays = {d: index_array(e, d, shape[d]) for d, e in enumerate(entries) if not isinstance(e, slice)}
    together = _broadcast_shape([*arrays.values(), *extra])
    wide = [d for d, index in arrays.items() if index.ndim]
    if len(wide) == 1 and not extra:
        return _one_array(layout, shape, entries, _checked(arrays, shape), wide[0])
    is_everywhere = len(arrays) == len(shape)
    if not extra and not (is_everywhere and len(together) == 1) and _is_mesh([*arrays.values()]):
        return _mesh(layout, shape, entries, _checked(arrays, shape), together)
    if is_everywhere:
        return _items(layout, shape, list(arrays.values()), together)
    axes: list[Any] = []
    lengths: list[int] = []
    for d, entry in enumerate(entries):
        if d in arrays:
            index = positions(arrays[d], shape[d], d)
            axes.append(np.ascontiguousarray(np.broadcast_to(index, together)).reshape(-1))
        else:
            axes.append(slice_axis(entry, shape[d]))
            lengths.append(axes[-1][1])
    count = int(np.prod(together, dtype=np.int64))
    return _reshaped(Runs(layout, axes, (count, *lengths)), (*together, *lengths))


def _checked(arrays: dict[int, Index], shape: tuple[int, ...]) -> dict[int, Index]:
    return {d: positions(index, shape[d], d) for d, index in arrays.items()}


def _reshaped(plan: SelectionPlan, final: tuple[int, ...]) -> Selected:
    """A selection whose result has the plan's items, in their order, in the shape `final`."""
    inner = plan.shape
    if inner == final:
        return Selected(plan, final)
    return Selected(plan, final, lambda memory: memory.reshape(inner), lambda memory: memory.reshape(final))


def _broadcast_shape(arrays: Sequence[Index]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(index.shape for index in arrays))
    except ValueError:
        shapes = " ".join(str(index.shape) for index in arrays)
        raise SelectionError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None


def _long_axes(index: Index, ndim: int) -> list[int]:
    """Of `ndim` broadcast axes, those along which an array is longer than 1."""
    return [axis for axis, length in enumerate(index.shape, ndim - index.ndim) if length != 1]


def _is_mesh(arrays: Sequence[Index]) -> bool:
    """Whether each array varies along an axis of its own, as the arrays of `numpy.ix_` do."""
    ndim = max((index.ndim for index in arrays), default=0)
    long = [_long_axes(index, ndim) for index in arrays]
    axes = [axis for varying in long for axis in varying]
    return all(len(varying) <= 1 for varying in long) and len(set(axes)) == len(axes)


def _mesh(
    layout: AnyLayout,
    shape: tuple[int, ...],
    entries: Sequence[Any],
    arrays: dict[int, Index],
    together: tuple[int, ...],
) -> Selected:
    """Plan a selection by index arrays with an axis each (an open mesh): its dimensions are independent."""
    lengths = [length for length in together if length != 1]
    places = {axis: place for place, axis in enumerate(a for a, n in enumerate(together) if n != 1)}
    axes: list[Any] = []
    dims: list[int] = []
    for d, entry in enumerate(entries):
        if d not in arrays:
            axes.append(slice_axis(entry, shape[d]))
            dims.append(len(lengths))
            lengths.append(axes[-1][1])
        elif varying := _long_axes(arrays[d], len(together)):
            axes.append(arrays[d].reshape(-1))
            dims.append(places[varying[0]])
        else:
            axes.append((int(arrays[d].reshape(())), 1, 1))
            dims.append(-1)
    plan = plan_orthogonal(layout, axes, dims, tuple(lengths))
    return _reshaped(plan, (*together, *lengths[len(places) :]))


def _one_array(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Any], arrays: dict[int, Index], wide: int
) -> Selected:
    """Plan a selection by one index array with slices and integers: its dimensions are independent."""
    axes: list[Any] = []
    dims: list[int] = []
    lengths: list[int] = []
    for d, entry in enumerate(entries):
        if d in arrays and d != wide:
            axes.append((int(arrays[d]), 1, 1))
            dims.append(-1)
            continue
        axes.append(arrays[d].reshape(-1) if d == wide else slice_axis(entry, shape[d]))
        dims.append(len(lengths))
        lengths.append(arrays[d].size if d == wide else axes[-1][1])
    plan = plan_orthogonal(layout, axes, dims, tuple(lengths))
    place, together, size = dims[wide], arrays[wide].shape, arrays[wide].size
    rest = lengths[:place] + lengths[place + 1 :]
    final = (*together, *rest)
    if place == 0 and len(together) == 1:
        return Selected(plan, final)
    return Selected(
        plan,
        final,
        lambda memory: np.moveaxis(memory.reshape((size, *rest)), 0, place),
        lambda memory: np.moveaxis(memory, place, 0).reshape(final),
    )


def _items(
    layout: AnyLayout, shape: tuple[int, ...], arrays: list[Index], together: tuple[int, ...]
) -> Selected:
    """Plan a selection of single items: index arrays for all dimensions, broadcast together."""
    if not arrays:
        return _no_dimension(layout, together)
    flat: list[Index] = []
    for d, index in enumerate(arrays):
        if index.shape != together:  # else the plan checks every position by itself
            index = np.broadcast_to(positions(index, shape[d], d), together)
        flat.append(np.ascontiguousarray(index).reshape(-1))
    return _reshaped(plan_points(layout, flat, (int(np.prod(together, dtype=np.int64)),)), together)


def _no_dimension(layout: AnyLayout, together: tuple[int, ...]) -> Selected:
    """Plan a selection of a 0-d array by True or False: its item, or nothing."""
    is_there = 0 not in together
    return Selected(
        plan_basic(layout, ()),
        together,
        lambda memory: memory.reshape(()) if is_there else np.empty((), memory.dtype),
        lambda memory: memory.reshape(together) if is_there else np.empty(together, memory.dtype),
    )


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
            has = f"the fields {', '.join(map(repr, fields))}" if fields else "no fields"
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

Entry = slice | int | Index | None


def select(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array[selection]`, as numpy understands it.

    Raises
        SelectionError: it does not fit the array.
    """
    try:
        plan = plan_basic(layout, selection)
        if plan is not None:
            return Selected(plan, plan.shape)
        return _select_advanced(layout, shape, selection)
    except (IndexError, OverflowError) as error:
        raise SelectionError(str(error)) from None


def select_orthogonal(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array.oindex[selection]`: each dimension independently, by integer, slice, list or 1-d mask.

    Raises
        SelectionError: it does not fit the array.
    """
    entries = _expand(selection, shape, count_masks=False)
    axes: list[Any] = []
    dims: list[int] = []
    result: list[int] = []
    for d, entry in enumerate(entries):
        axis: Any
        length: int | None
        if isinstance(entry, slice):
            axis = slice_axis(entry, shape[d])
            length = axis[1]
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            axis, length = (position(int(entry), shape[d], d), 1, 1), None
        else:
            axis = positions(index_array(entry, d, shape[d]), shape[d], d)
            if axis.ndim != 1:
                raise SelectionError(f"orthogonal index of axis {d} has {axis.ndim} dimensions, expected 1")
            length = len(axis)
        axes.append(axis)
        dims.append(-1 if length is None else len(result))
        result.extend([] if length is None else [length])
    return Selected(plan_orthogonal(layout, axes, dims, tuple(result)), tuple(result))


def select_points(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan `array.vindex[selection]`: points, with the index arrays broadcast against each other.

    Dimensions given as slices come last in the result. A mask of the array's shape selects where it is true.

    Raises
        SelectionError: it does not fit the array.
    """
    try:
        return select_arrays(layout, shape, _expand(selection, shape))
    except (IndexError, OverflowError) as error:
        raise SelectionError(str(error)) from None


def select_blocks(layout: AnyLayout, shape: tuple[int, ...], grid: Grid, selection: Any) -> Selected:
    """Plan `array.blocks[selection]`: whole chunks, by their index in the grid.

    Raises
        SelectionError: it does not fit the grid; a slice has another step than 1.
    """
    entries = _expand(selection, shape)
    regions = []
    for d, (entry, count) in enumerate(zip(entries, grid.count(shape), strict=True)):
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


def _expand(selection: Any, shape: tuple[int, ...], *, count_masks: bool = True) -> list[Any]:
    """One entry for each dimension: ellipsis and omissions filled in, masks replaced by their positions."""
    items = list(selection) if isinstance(selection, tuple) else [selection]
    if any(item is None for item in items):
        raise SelectionError("new axes are not part of this kind of selection")
    widths = [np.ndim(item) if count_masks and _is_mask(item) else 1 for item in items]
    entries: list[Any] = []
    for item in fill_ellipsis(items, widths, len(shape))[0]:
        if count_masks and _is_mask(item) and np.ndim(item) > 1:
            entries.extend(mask_positions(np.asarray(item), len(entries), shape))
        else:
            entries.append(item)
    return entries


def _select_advanced(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """Plan a selection by numpy's advanced indexing."""
    entries: list[Entry] = []
    phantom: list[Index] = []  # True and False, which index no dimension
    items = selection if isinstance(selection, tuple) else (selection,)
    filled, place = fill_ellipsis(items, [_width(item) for item in items], len(shape))
    ellipsis = axis = 0
    for k, item in enumerate(filled):
        if k == place:
            ellipsis = len(entries)
        width = _width(item)
        if item is None or isinstance(item, slice):
            entries.append(item)
        elif not width:
            phantom.append(np.zeros(int(bool(item)), np.int64))
            entries.append(phantom[-1])
        elif _is_mask(item):
            entries.extend(mask_positions(np.asarray(item), axis, shape))
        else:
            entries.append(index_array(item, axis, shape[axis]))
        axis += width
    return _numpy_plan(layout, shape, entries, phantom, ellipsis)


def _width(item: Any) -> int:
    """The number of dimensions that an entry selects from; 0 for new axes, True and False."""
    if item is None or isinstance(item, bool | np.bool_):
        return 0
    return int(np.ndim(item)) if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    if isinstance(item, list):
        return bool(np.asarray(item).dtype == np.bool_)
    return not isinstance(item, slice) and getattr(item, "dtype", None) == np.bool_


def _numpy_plan(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Entry], phantom: list[Index], ellipsis: int
) -> Selected:
    """Plan entries of slices, new axes and index arrays.

    By numpy's rule, the dimensions of the arrays replace the first array in the result if the arrays are
    neighbours, else they come first. An ellipsis (before entry `ellipsis`) separates arrays even if it stands
    for no dimension.
    """
    places = [k for k, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    is_front = places[-1] - places[0] + 1 != len(places) or places[0] < ellipsis <= places[-1]
    new_axes = [k for k, entry in enumerate(entries) if entry is None]
    real = [entry for entry in entries if entry is not None and not any(entry is p for p in phantom)]
    selected = select_arrays(layout, shape, real, phantom)
    arrays_ndim = len(selected.shape) - sum(isinstance(entry, slice) for entry in real)
    # `selected` has the dimensions of the arrays first, then those of the slices: insert the new axes among
    # the slices, then move the arrays' dimensions to their place.
    rest: list[int | None] = []
    dim = arrays_ndim
    for entry in entries:
        if entry is None:
            rest.append(None)
        elif isinstance(entry, slice):
            rest.append(dim)
            dim += 1
    front: list[int | None] = list(range(arrays_ndim))
    at = 0 if is_front else places[0]
    order = rest[:at] + front + rest[at:]
    final = tuple(1 if d is None else selected.shape[d] for d in order)
    if not new_axes and order == list(range(len(selected.shape))):
        return selected
    kept = [d for d in order if d is not None]
    added = tuple(k for k, d in enumerate(order) if d is None)

    def to_plan(memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        memory = memory.squeeze(added).transpose(np.argsort(kept))
        return memory if selected.to_plan is None else selected.to_plan(memory)

    def from_plan(memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        memory = memory if selected.from_plan is None else selected.from_plan(memory)
        return np.expand_dims(memory.transpose(kept), added)

    return Selected(selected.plan, final, to_plan, from_plan)


def is_basic(selection: Any) -> bool:
    """Whether a selection consists of integers, slices, ellipsis and new axes."""
    items = selection if isinstance(selection, tuple) else (selection,)
    return all(item is None or isinstance(item, int | slice | EllipsisType) for item in items)

"""Plans for selections by index arrays: single items, independent dimensions, or points with slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import SelectionError
from zstore.indexing.plans import AnyLayout, Plan, plan_basic, plan_orthogonal, plan_points
from zstore.indexing.rectilinear import Index
from zstore.indexing.runs import Runs

View = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


class Selected(NamedTuple):
    """A plan, and the shape of numpy's result for the same selection.

    If the plan's own shape differs, `to_plan` turns memory of the result's shape into memory of the plan's (a
    view, or a copy if strides do not allow one), and `from_plan` does the reverse.
    """

    plan: Plan
    shape: tuple[int, ...]
    to_plan: View | None = None
    from_plan: View | None = None


def mask_positions(mask: Any, axis: int, shape: tuple[int, ...]) -> list[Index]:
    """The positions at which a mask is true, one array for each of its dimensions; the first is `axis`."""
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
    """Check positions against a dimension's length; gives them counted from its start, and contiguous."""
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
    """Check one position against a dimension's length; gives it counted from the start."""
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


def _reshaped(plan: Plan, final: tuple[int, ...]) -> Selected:
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
    """The axes, of `ndim` broadcast ones, along which an array's length is not 1."""
    return [axis for axis, length in enumerate(index.shape, ndim - index.ndim) if length != 1]


def _is_mesh(arrays: Sequence[Index]) -> bool:
    """Whether each array varies along an axis of its own, as the arrays of `numpy.ix_` do."""
    ndim = max((index.ndim for index in arrays), default=0)
    long = [_long_axes(index, ndim) for index in arrays]
    axes = [axis for found in long for axis in found]
    return all(len(found) <= 1 for found in long) and len(set(axes)) == len(axes)


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
        elif found := _long_axes(arrays[d], len(together)):
            axes.append(arrays[d].reshape(-1))
            dims.append(places[found[0]])
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

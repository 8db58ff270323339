"""Index arrays → a plan: item by item, dimension by dimension, or points with a slice each."""

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
    """A plan, and the shape of the result that numpy would give.

    Where the plan's own shape is another: `to_plan` turns memory of shape `shape` into memory of the plan's
    (a copy where strides leave no choice), `from_plan` the other way round.
    """

    plan: Plan
    shape: tuple[int, ...]
    to_plan: View | None = None
    from_plan: View | None = None


def mask_positions(mask: Any, axis: int, shape: tuple[int, ...]) -> list[Index]:
    """Where `mask`, which indexes dimensions from `axis` on, is true."""
    for d, (length, wanted) in enumerate(zip(mask.shape, shape[axis:], strict=False), axis):
        if length != wanted:
            raise SelectionError(
                f"boolean index did not match the array along axis {d}; "
                f"size of axis is {wanted} but size of boolean axis is {length}"
            )
    return [np.ascontiguousarray(index, np.int64) for index in mask.nonzero()]


def index_array(entry: Any, axis: int, length: int) -> Index:
    """Any index array or 1-d mask as int64 positions (still possibly negative)."""
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
    """Positions counted from the start, contiguous in memory, all within the dimension."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -length or high >= length:
            bad = low if low < -length else high
            raise SelectionError(f"index {bad} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            index = np.where(index < 0, index + length, index)
    # Not ascontiguousarray, which makes 1-d arrays of 0-d ones.
    return np.asarray(index, order="C")


def position(index: int, length: int, axis: int) -> int:
    """One position counted from the start, within the dimension."""
    if not -length <= index < length:
        raise SelectionError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length if length else 0


def slice_axis(entry: slice, length: int) -> tuple[tuple[int, int, int], int]:
    """(start, count, step) of a slice, and its count."""
    start, stop, step = entry.indices(length)
    count = len(range(start, stop, step))
    return (start, count, step), count


def select_arrays(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Any], extra: Sequence[Index] = ()
) -> Selected:
    """Slices and index arrays, one entry per dimension; the arrays' broadcast dimensions come first."""
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
            axis, count = slice_axis(entry, shape[d])
            axes.append(axis)
            lengths.append(count)
    count = int(np.prod(together, dtype=np.int64))
    return _reshaped(Runs(layout, axes, (count, *lengths)), (*together, *lengths))


def _checked(arrays: dict[int, Index], shape: tuple[int, ...]) -> dict[int, Index]:
    return {d: positions(index, shape[d], d) for d, index in arrays.items()}


def _reshaped(plan: Plan, final: tuple[int, ...]) -> Selected:
    """A selection whose result has another shape, with its items in the plan's order."""
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
    """The axes of `ndim` along which an array is not repeated as a whole."""
    return [axis for axis, length in enumerate(index.shape, ndim - index.ndim) if length != 1]


def _is_mesh(arrays: Sequence[Index]) -> bool:
    """Whether every array has an axis to itself, as those of `numpy.ix_` have."""
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
    """A selection by index arrays of which each has an axis to itself: it takes every dimension by itself."""
    lengths = [length for length in together if length != 1]
    places = {axis: place for place, axis in enumerate(a for a, n in enumerate(together) if n != 1)}
    axes: list[Any] = []
    dims: list[int] = []
    for d, entry in enumerate(entries):
        if d not in arrays:
            axis, count = slice_axis(entry, shape[d])
            axes.append(axis)
            dims.append(len(lengths))
            lengths.append(count)
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
    """A selection by one index array beside slices and integers, which takes every dimension by itself."""
    axes: list[Any] = []
    dims: list[int] = []
    lengths: list[int] = []
    for d, entry in enumerate(entries):
        if d == wide:
            axis: Any = arrays[d].reshape(-1)
            count = arrays[d].size
        elif d in arrays:
            axes.append((int(arrays[d]), 1, 1))
            dims.append(-1)
            continue
        else:
            axis, count = slice_axis(entry, shape[d])
        axes.append(axis)
        dims.append(len(lengths))
        lengths.append(count)
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
    """A selection item by item: index arrays for every dimension, broadcast together."""
    if not arrays:
        return _no_dimension(layout, together)
    flat: list[Index] = []
    for d, index in enumerate(arrays):
        if index.shape != together:  # else the plan looks at all of it
            index = np.broadcast_to(positions(index, shape[d], d), together)
        flat.append(np.ascontiguousarray(index).reshape(-1))
    return _reshaped(plan_points(layout, flat, (int(np.prod(together, dtype=np.int64)),)), together)


def _no_dimension(layout: AnyLayout, together: tuple[int, ...]) -> Selected:
    """A selection of a 0-d array by true or false: its item, or nothing."""
    is_there = 0 not in together
    return Selected(
        plan_basic(layout, ()),
        together,
        lambda memory: memory.reshape(()) if is_there else np.empty((), memory.dtype),
        lambda memory: memory.reshape(together) if is_there else np.empty(together, memory.dtype),
    )

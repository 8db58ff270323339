"""A selection in any of numpy's forms → a plan: which chunks, which part of each, where it lands.

Integers, slices, ellipsis and new axes are planned by the kernel itself; what is here understands the rest:
index arrays, masks and their combinations, with numpy's rules for what the result looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import SelectionError
from zstore.indexing_plans import AnyLayout, AnyPlan, plan_basic, plan_orthogonal, plan_points
from zstore.model.grid import Grid

__all__ = ["Selected", "select", "select_blocks", "select_orthogonal", "select_points"]

Index = np.ndarray[Any, np.dtype[np.int64]]
Entry = slice | int | Index | None


View = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


class Selected(NamedTuple):
    """A plan, and the shape of the result that numpy would give.

    Where the plan's own shape is another: `to_plan` turns memory of shape `shape` into memory of the plan's
    (a copy where strides leave no choice), `from_plan` the other way round.
    """

    plan: AnyPlan
    shape: tuple[int, ...]
    to_plan: View | None = None
    from_plan: View | None = None


def select(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """What `array[selection]` selects, as numpy understands it.

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
    """What `array.oindex[selection]` selects: every dimension by itself, by integer, slice, list or 1-d mask.

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
            axis, length = _slice(entry, shape[d])
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            axis, length = (_position(int(entry), shape[d], d), 1, 1), None
        else:
            axis = _positions(_index_array(entry, d, shape[d]), shape[d], d)
            if axis.ndim != 1:
                raise SelectionError(f"orthogonal index of axis {d} has {axis.ndim} dimensions, expected 1")
            length = len(axis)
        axes.append(axis)
        dims.append(-1 if length is None else len(result))
        result.extend([] if length is None else [length])
    return Selected(plan_orthogonal(layout, axes, dims, tuple(result)), tuple(result))


def select_points(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """What `array.vindex[selection]` selects: point by point, the index arrays broadcast against each other.

    Dimensions given as slices come last in the result. A mask of the array's shape selects where it is true.

    Raises
        SelectionError: it does not fit the array.
    """
    entries = _expand(selection, shape)
    arrays = [entry for entry in entries if not isinstance(entry, slice)]
    if len(arrays) != len(entries):
        return _advanced(layout, shape, entries)
    return _points(layout, shape, entries)


def select_blocks(layout: AnyLayout, shape: tuple[int, ...], grid: Grid, selection: Any) -> Selected:
    """What `array.blocks[selection]` selects: whole chunks, by their place in the grid.

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
            start = _position(int(entry), count, d)
            stop = start + 1
        else:
            raise SelectionError(f"block selection of axis {d} is {entry!r}, expected an integer or a slice")
        regions.append(slice(grid.start(d, start), grid.start(d, max(start, stop))))
    return select(layout, shape, tuple(regions))


def _expand(selection: Any, shape: tuple[int, ...], *, count_masks: bool = True) -> list[Any]:
    """One entry per dimension (k of them for a mask of k dimensions), ellipsis and omissions filled in."""
    items = list(selection) if isinstance(selection, tuple) else [selection]
    if any(item is None for item in items):
        raise SelectionError("new axes are not part of this kind of selection")
    widths = [
        np.ndim(item) if count_masks and _is_mask(item) else int(item is not Ellipsis) for item in items
    ]
    places = [k for k, item in enumerate(items) if item is Ellipsis]
    left = len(shape) - sum(widths)
    if len(places) > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    if left < 0:
        raise SelectionError(
            f"too many indices: array has {len(shape)} dimensions, but {sum(widths)} were indexed"
        )
    entries: list[Any] = []
    for item, width in zip([*items, *([] if places else [Ellipsis])], [*widths, 0], strict=False):
        if item is Ellipsis:
            entries.extend([slice(None)] * left)
        elif width > 1:
            entries.extend(_mask_positions(np.asarray(item), len(entries), shape))
        else:
            entries.append(item)
    return entries


def _mask_positions(mask: Any, axis: int, shape: tuple[int, ...]) -> list[Index]:
    """Where `mask`, which indexes dimensions from `axis` on, is true."""
    for d, (length, wanted) in enumerate(zip(mask.shape, shape[axis:], strict=False), axis):
        if length != wanted:
            raise SelectionError(
                f"boolean index did not match the array along axis {d}; "
                f"size of axis is {wanted} but size of boolean axis is {length}"
            )
    return [np.ascontiguousarray(index, np.int64) for index in mask.nonzero()]


def _index_array(entry: Any, axis: int, length: int) -> Index:
    """Any index array or 1-d mask as int64 positions (still possibly negative)."""
    array = np.asarray(entry)
    if array.size == 0 and not isinstance(entry, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype == np.bool_ and array.ndim == 1:
        return _mask_positions(array, axis, (0,) * axis + (length,))[0]
    if array.dtype.kind not in "iu":
        raise SelectionError(
            f"index {entry!r} of axis {axis} is not an integer, slice, ellipsis, new axis, "
            "integer array or boolean array"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise SelectionError(f"index {array.max()} is out of bounds for axis {axis} with size {length}")
    return array.astype(np.int64, copy=False)


def _positions(index: Index, length: int, axis: int) -> Index:
    """Non-negative, contiguous, checked."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -length or high >= length:
            bad = low if low < -length else high
            raise SelectionError(f"index {bad} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            index = np.where(index < 0, index + length, index)
    # Not ascontiguousarray, which makes 1-d arrays of 0-d ones.
    return np.asarray(index, order="C")


def _position(index: int, length: int, axis: int) -> int:
    if not -length <= index < length:
        raise SelectionError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length if length else 0


def _slice(entry: slice, length: int) -> tuple[tuple[int, int, int], int]:
    start, stop, step = entry.indices(length)
    count = len(range(start, stop, step))
    return (start, count, step), count


def _select_advanced(layout: AnyLayout, shape: tuple[int, ...], selection: Any) -> Selected:
    """numpy's advanced indexing: entries in the order given, masks as the positions they are true at."""
    entries: list[Entry] = []
    phantom: list[Index] = []  # true and false, which index no dimension
    places = []
    axis = 0
    items = selection if isinstance(selection, tuple) else (selection,)
    consumed = sum(_consumes(item) for item in items)
    if consumed > len(shape):
        raise SelectionError(
            f"too many indices: array has {len(shape)} dimensions, but {consumed} were indexed"
        )
    for item in items:
        if item is Ellipsis:
            places.append(len(entries))
            entries.extend([slice(None)] * (len(shape) - consumed))
            axis += len(shape) - consumed
        elif item is None or isinstance(item, slice):
            entries.append(item)
            axis += item is not None
        elif isinstance(item, bool | np.bool_) or (_is_mask(item) and np.ndim(item) == 0):
            phantom.append(np.zeros(int(bool(item)), np.int64))
            entries.append(phantom[-1])
        elif _is_mask(item):
            mask = np.asarray(item)
            found = _mask_positions(mask, axis, shape)
            entries.extend(found)
            axis += mask.ndim
        else:
            entries.append(_index_array(item, axis, shape[axis]))
            axis += 1
    if len(places) > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    entries.extend([slice(None)] * (len(shape) - axis))
    return _numpy_plan(layout, shape, entries, phantom, places[0] if places else 0)


def _consumes(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool | np.bool_):
        return 0
    return int(np.ndim(item)) if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    if isinstance(item, list):
        return bool(np.asarray(item).dtype == np.bool_)
    return not isinstance(item, slice) and getattr(item, "dtype", None) == np.bool_


def _numpy_plan(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Entry], phantom: list[Index], ellipsis: int
) -> Selected:
    """A plan for entries of slices, new axes and index arrays.

    Where the arrays go in the result is numpy's rule: to the first one's place where they are neighbours,
    else to the front. An ellipsis (at entry `ellipsis`) parts them even where it stands for no dimension.
    """
    places = [k for k, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    is_front = places[-1] - places[0] + 1 != len(places) or places[0] < ellipsis <= places[-1]
    new_axes = [k for k, entry in enumerate(entries) if entry is None]
    real = [entry for entry in entries if entry is not None and not any(entry is p for p in phantom)]
    selected = _advanced(layout, shape, real, phantom)
    arrays_ndim = len(selected.shape) - sum(isinstance(entry, slice) for entry in real)
    # `selected` has the arrays' dimensions first, then the slices'. Put new axes among the slices, then the
    # arrays' dimensions where they belong.
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


def _advanced(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Any], extra: Sequence[Index] = ()
) -> Selected:
    """Slices and index arrays, one entry per dimension; the arrays' broadcast dimensions come first."""
    arrays = {
        d: _positions(_index_array(entry, d, shape[d]), shape[d], d)
        for d, entry in enumerate(entries)
        if not isinstance(entry, slice)
    }
    together = _broadcast_shape([*arrays.values(), *extra])
    wide = [d for d, index in arrays.items() if index.ndim]
    if len(wide) == 1 and not extra:
        return _one_array(layout, shape, entries, arrays, wide[0])
    if len(arrays) == len(shape):
        return _points(layout, shape, [arrays[d] for d in range(len(shape))], together)
    # Several arrays beside slices: every item as a point.
    slices = [d for d in range(len(shape)) if d not in arrays]
    lengths = []
    indices: list[Any] = [None] * len(shape)
    for d, index in arrays.items():
        indices[d] = np.broadcast_to(index, together).reshape(together + (1,) * len(slices))
    for k, d in enumerate(slices):
        (start, count, step), _ = _slice(entries[d], shape[d])
        lengths.append(count)
        positions = start + step * np.arange(count, dtype=np.int64)
        indices[d] = positions.reshape((1,) * (len(together) + k) + (count,) + (1,) * (len(slices) - k - 1))
    return _points(layout, shape, indices, together + tuple(lengths))


def _broadcast_shape(arrays: Sequence[Index]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(index.shape for index in arrays))
    except ValueError:
        shapes = " ".join(str(index.shape) for index in arrays)
        raise SelectionError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None


def _one_array(
    layout: AnyLayout, shape: tuple[int, ...], entries: list[Any], arrays: dict[int, Index], wide: int
) -> Selected:
    """A single index array beside slices and integers: every dimension by itself."""
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
            axis, count = _slice(entry, shape[d])
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


def _points(
    layout: AnyLayout, shape: tuple[int, ...], entries: Sequence[Any], together: tuple[int, ...] | None = None
) -> Selected:
    """Index arrays for every dimension, broadcast together."""
    arrays = [_index_array(entry, d, shape[d]) for d, entry in enumerate(entries)]
    if together is None:
        together = _broadcast_shape(arrays)
    count = int(np.prod(together, dtype=np.int64))
    flat = [np.ascontiguousarray(np.broadcast_to(index, together)).reshape(-1) for index in arrays]
    if not flat:
        return _no_dimension(layout, together)
    try:
        plan = plan_points(layout, flat, (count,))
    except (IndexError, OverflowError) as error:
        raise SelectionError(str(error)) from None
    if len(together) == 1:
        return Selected(plan, together)
    return Selected(
        plan, together, lambda memory: memory.reshape(count), lambda memory: memory.reshape(together)
    )


def _no_dimension(layout: AnyLayout, together: tuple[int, ...]) -> Selected:
    """True and false as the index of a 0-d array: its item, or none."""
    is_there = 0 not in together
    return Selected(
        plan_basic(layout, ()),
        together,
        lambda memory: memory.reshape(()) if is_there else np.empty((), memory.dtype),
        lambda memory: memory.reshape(together) if is_there else np.empty(together, memory.dtype),
    )

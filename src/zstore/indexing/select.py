"""Turning selections in any of numpy's forms into plans.

The kernels plan integers, slices, ellipsis and new axes by themselves. This module handles the rest: index
arrays, masks and combinations, by numpy's rules for the shape of the result.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np

from zstore.errors import SelectionError
from zstore.indexing.arrays import (
    Selected,
    index_array,
    mask_positions,
    position,
    positions,
    select_arrays,
    slice_axis,
)
from zstore.indexing.plans import AnyLayout, plan_basic, plan_orthogonal
from zstore.indexing.rectilinear import Index, fill_ellipsis
from zstore.model.grid import Grid

__all__ = ["Selected", "is_basic", "select", "select_blocks", "select_orthogonal", "select_points"]

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
    """Plan `array.blocks[selection]`: whole chunks, by their place in the grid.

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

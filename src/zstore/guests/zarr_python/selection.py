"""Recovering the selection from the list of chunks that zarr-python passes to a pipeline.

The list has one entry per chunk: the selected part of the chunk, and its place in the result. All entries
together are either a selection per dimension (basic, orthogonal and block selections) or points (coordinates
and masks), which the kernels plan as a whole. Other lists are left to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zstore._ext.engine.select import Layout, Plan, plan_orthogonal, plan_points

Index = np.ndarray[Any, np.dtype[np.int64]]
Axis = tuple[int, int, int] | Index  # (start, count, step), or positions
# (getter or setter, spec, part of the chunk, place in the result, is complete), one per chunk.
Batch = Sequence[tuple[Any, Any, Any, Any, bool]]


@dataclass(frozen=True)
class Recovered:
    """A selection: an axis per dimension with its dimension in the result (-1: none), or points.

    shape       of the result
    needed      the smallest shape of an array that has everything selected
    ends        per dimension, whether `needed` is known to be the array's length there
    """

    axes: list[Any]
    result_dims: list[int] | None
    shape: tuple[int, ...]
    needed: tuple[int, ...]
    ends: tuple[bool, ...]

    def plan(self, layout: Layout) -> Plan:
        """The plan of this selection."""
        if self.result_dims is None:
            return plan_points(layout, self.axes, self.shape)
        return plan_orthogonal(layout, self.axes, self.result_dims, self.shape)

    def whole_shape(self, known: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The smallest shape in whole chunks that has the selection and an array of the `known` shape."""
        return tuple(
            [-(-max(n, k) // c) * c for n, k, c in zip(self.needed, known, chunk_shape, strict=True)]
        )

    def array_shape(self, known: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array for a write; `known` is that of its metadata, which may be outdated.

        Entries of complete chunks tell where the array ends. Where there are none, the array is taken to end
        with a whole chunk, so that a chunk is never replaced that may hold more.
        """
        whole = self.whole_shape(known, chunk_shape)
        return tuple([n if is_end else w for n, w, is_end in zip(self.needed, whole, self.ends, strict=True)])


def recover(
    batch: Batch, cells: Sequence[tuple[int, ...]], chunk_shape: tuple[int, ...], drop_axes: tuple[int, ...]
) -> Recovered | None:
    """The selection of a batch whose chunks have these grid coordinates; None if it cannot be recovered."""
    if isinstance(batch[0][3], tuple):
        return _recover_axes(batch, cells, chunk_shape, drop_axes)
    return _recover_points(batch, cells, chunk_shape)


def _recover_axes(
    batch: Batch, cells: Sequence[tuple[int, ...]], chunk_shape: tuple[int, ...], drop_axes: tuple[int, ...]
) -> Recovered | None:
    """The selection per dimension of a batch; None for other selections."""
    ndim = len(chunk_shape)
    first = batch[0][2]
    if len(first) != ndim:
        return None
    dims: list[int] = []
    for d in range(ndim):
        is_kept = d not in drop_axes and not isinstance(first[d], int | np.integer)
        dims.append(sum(r >= 0 for r in dims) if is_kept else -1)
    tables = _tables(batch, cells, dims)
    if tables is None or len(set(cells)) != len(cells) or len(cells) != prod(map(len, tables)):
        return None
    axes: list[Axis] = []
    shape: list[int] = []
    needed: list[int] = []
    ends: list[bool] = []
    for d, table in enumerate(tables):
        axis = _axis(table, chunk_shape[d], is_kept=dims[d] >= 0)
        if axis is None:
            return None
        axes.append(axis)
        if isinstance(axis, tuple):
            start, count, step = axis
            end, is_stretch = start + (count - 1) * step + 1, step == 1
        else:
            count, end, is_stretch = len(axis), int(axis.max()) + 1, False
        if dims[d] >= 0:
            shape.append(count)
        needed.append(end)
        last = max(table)
        ends.append(
            is_stretch
            and end % chunk_shape[d] != 0
            and any(item[4] for item, cell in zip(batch, cells, strict=True) if cell[d] == last)
        )
    return Recovered(axes, dims, tuple(shape), tuple(needed), tuple(ends))


def _tables(
    batch: Batch, cells: Sequence[tuple[int, ...]], dims: Sequence[int]
) -> list[dict[int, tuple[Any, Any]]] | None:
    """Per dimension and grid coordinate, (selected part of the chunks, its range in the result)."""
    kept = sum(r >= 0 for r in dims)
    tables: list[dict[int, tuple[Any, Any]]] = [{} for _ in dims]
    columns = [*zip(tables, dims, range(len(dims)), strict=True)]
    for (_, _, inside, outside, _), cell in zip(batch, cells, strict=True):
        if len(outside) != kept or len(inside) != len(dims):
            return None
        for table, r, d in columns:
            known = table.get(cell[d])
            place = outside[r] if r >= 0 else None
            if known is None:
                table[cell[d]] = inside[d], place
            elif not (_is_same(known[0], inside[d]) and _is_same(known[1], place)):
                return None
    return tables


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)


def _axis(table: dict[int, tuple[Any, Any]], chunk: int, *, is_kept: bool) -> Axis | None:
    """The selection along one dimension: (start, count, step) or positions; None for any other."""
    if not is_kept:
        (cell, (inside, _)), *more = table.items()
        position = np.asarray(inside).reshape(-1)
        if more or position.size != 1 or not 0 <= position[0] < chunk:
            return None
        return cell * chunk + int(position[0]), 1, 1
    if all(isinstance(i, slice) and isinstance(o, slice) for i, o in table.values()):
        stretch = _stretch(table, chunk)
        if stretch is not None:
            return stretch
    return _positions(table, chunk)


def _stretch(table: dict[int, tuple[Any, Any]], chunk: int) -> tuple[int, int, int] | None:
    """(start, count, step) of the slice that the parts of all chunks form; None if they form none."""
    start: int | None = None
    at, step = 0, 1
    for cell, (inside, outside) in table.items():
        part = range(*inside.indices(chunk))
        if start is None:
            start, step = cell * chunk + part.start, part.step
        if (
            not part
            or step < 1
            or part.step != step
            or (outside.start, outside.stop, outside.step or 1) != (at, at + len(part), 1)
            or cell * chunk + part.start != start + at * step
        ):
            return None
        at += len(part)
    return None if start is None else (start, at, step)


def _positions(table: dict[int, tuple[Any, Any]], chunk: int) -> Index | None:
    """The positions in the array, from each chunk's part and its range in the result."""
    parts = []
    for cell, (inside, outside) in table.items():
        index = np.arange(chunk)[inside] if isinstance(inside, slice) else np.asarray(inside).reshape(-1)
        if index.dtype == bool and len(index) == chunk:
            index = np.flatnonzero(index)  # zarr-python 3.4 passes a mask of one dimension so
        if index.dtype.kind not in "iu" or (index.size and not 0 <= index.min() <= index.max() < chunk):
            return None
        parts.append((index.astype(np.int64) + cell * chunk, outside))
    return _spread(parts)


def _spread(parts: Sequence[tuple[Index, Any]]) -> Index | None:
    """The parts in the order of the result; None unless they cover it once."""
    count = sum(len(index) for index, _ in parts)
    positions = np.full(count, -1, np.int64)
    for index, outside in parts:
        place = outside if isinstance(outside, slice) else np.asarray(outside).reshape(-1)
        try:
            if positions[place].shape != index.shape:
                return None
            positions[place] = index
        except IndexError:
            return None
    return positions if count and positions.min() >= 0 else None


def _recover_points(
    batch: Batch, cells: Sequence[tuple[int, ...]], chunk_shape: tuple[int, ...]
) -> Recovered | None:
    """The points of a batch; None for other selections."""
    counts = []
    for _, _, inside, outside, _ in batch:
        if (
            isinstance(outside, tuple)
            or len(inside) != len(chunk_shape)
            or not all(isinstance(index, np.ndarray) and index.ndim == 1 for index in inside)
            or len({len(index) for index in inside}) != 1
        ):
            return None
        counts.append(len(inside[0]))
    axes: list[Index] = []
    needed = []
    for d, chunk in enumerate(chunk_shape):
        index = np.concatenate([item[2][d] for item in batch])
        if not index.size or index.dtype.kind not in "iu" or not 0 <= index.min() <= index.max() < chunk:
            return None
        index = index.astype(np.int64) + np.repeat([cell[d] * chunk for cell in cells], counts)
        positions = _place_points(index, [item[3] for item in batch], counts)
        if positions is None:
            return None
        axes.append(positions)
        needed.append(int(positions.max()) + 1)
    return Recovered(axes, None, (len(index),), tuple(needed), (False,) * len(axes))


def _place_points(index: Index, places: Sequence[Any], counts: Sequence[int]) -> Index | None:
    """The positions in the order of the result; None unless they cover it once."""
    at, is_in_order = 0, True
    for place, count in zip(places, counts, strict=True):
        is_in_order &= isinstance(place, slice) and (place.start, place.stop) == (at, at + count)
        at += count
    if is_in_order:
        return index
    stops = np.cumsum(counts).tolist()
    starts = [0, *stops[:-1]]
    return _spread([(index[a:b], place) for a, b, place in zip(starts, stops, places, strict=True)])

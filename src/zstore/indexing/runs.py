"""Plans for points along some dimensions with slices of the others, read as boxes rather than item by item.

The reasons, and where the limits come from: docs/design/0013-points-with-slices.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.indexing.plans import AnyLayout, Plan, plan_orthogonal, plan_points
from zstore.indexing.rectilinear import Index

Axis = tuple[int, int, int] | Index

# Planning one more point takes about as long as moving this many bytes that are not wanted.
POINT_SIZE = 16 << 10


class Share(NamedTuple):
    """One box to read, and where its items go: `memory[rows] = box[places]`.

    `places` index the box's dimensions of points, taken as one; None if the box is the single row `rows`.
    """

    plan: Plan
    rows: Any
    places: Index | None


class Runs:
    """A plan of points with slices.

    axes   for each dimension, a slice (start, count, step) or the checked positions of all points along it
    shape  the number of points, then the counts of the slices
    """

    def __init__(self, layout: AnyLayout, axes: Sequence[Axis], shape: tuple[int, ...]) -> None:
        self.layout = layout
        self.shape = shape
        self._axes = list(axes)
        self._pointed = {d: axis for d, axis in enumerate(axes) if not isinstance(axis, tuple)}

    def by_items(self) -> Plan:
        """The plan that takes each item as a point of its own, into flat memory."""
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

    def shares(self, chunk_shape: tuple[int, ...], item_size: int) -> Iterator[Share]:
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
                found = [np.unique(index, return_inverse=True) for index in here]
                sizes = tuple(len(kept) for kept, _ in found)
                if (prod(sizes) - len(rows)) * row_size <= len(rows) * POINT_SIZE:
                    places = np.ravel_multi_index([place for _, place in found], sizes)
                    yield Share(self._box([kept for kept, _ in found], sizes), rows, places)
                    continue
            yield from self._singles(rows, here)

    def _singles(self, rows: Index, points: list[Index]) -> Iterator[Share]:
        for row, *point in zip(rows.tolist(), *(index.tolist() for index in points), strict=True):
            yield Share(self._box([(at, 1, 1) for at in point], ()), row, None)

    def _box(self, points: Sequence[Axis], sizes: tuple[int, ...]) -> Plan:
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
        """An order of the points in which those of one chunk are neighbours, and where each chunk ends."""
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

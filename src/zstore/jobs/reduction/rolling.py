"""Rolling windows: what each item of an array makes with those before it, or around it, along one dimension.

The cells of a method are made for single items and joined to those of windows, as the cells of units are
joined: first of 2 items, of 4, of 8, and of these the ones that a window consists of. Nothing is taken from a
running sum, so an infinite or a large item shows in its own windows only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zstore.base.boxes import Box
from zstore.errors import UnsupportedError
from zstore.jobs.reduction.methods import NONE, CellStates, Items, Method

# Methods whose results of a window have a meaning.
OF_WINDOWS = ("sum", "mean", "min", "max", "count", "std", "var")
# Bytes of cells that are joined at a time.
CELLS_SIZE = 2 << 20


@dataclass(frozen=True)
class Rolling:
    """Windows along a dimension, one for each item.

    dim     name or number of the dimension
    length  of a window, in items
    least   how many of them must be valid; the result of fewer is NaN
    ahead   how many follow the item that the window is for
    """

    dim: str | int
    length: int
    least: int
    ahead: int

    @classmethod
    def parse(cls, rolling: Any, min_periods: int | None, center: bool) -> Rolling:
        """The windows that `reduce` is asked for.

        Raises
            ValueError: it is not one dimension and a length, or the numbers do not fit.
        """
        if not isinstance(rolling, Mapping) or len(rolling) != 1:
            raise ValueError(f"rolling is {rolling!r}; expected a dimension and a length, as {{'time': 30}}")
        [(dim, length)] = rolling.items()
        if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
            said = "expected a number of items, 1 at least"
            raise ValueError(f"rolling is {rolling!r}: a window of {length!r}; {said}")
        least = length if min_periods is None else min_periods
        if isinstance(least, bool) or not isinstance(least, int | np.integer) or not 1 <= least <= length:
            raise ValueError(f"min_periods is {min_periods!r}; expected 1 to {length}, the window's length")
        return cls(dim, int(length), int(least), (int(length) - 1) // 2 if center else 0)

    def spans(self, size: int) -> tuple[Items, Items]:
        """(the first item of each window, the one after its last), cut at the ends of `size` items."""
        last = np.arange(size) + self.ahead + 1
        return np.maximum(last - self.length, 0), np.minimum(last, size)

    def words(self, dim: str, method: str, interval: str | None) -> str:
        """The words of `cell_methods` for a method of this name in CF.

        interval  the distance between items, where it is known
        """
        known = "" if interval is None else f"interval: {interval} "
        return f"{dim}: {method} ({known}comment: rolling window of {self.length})"


@dataclass(frozen=True)
class RollingWindows:
    """The windows along a dimension of an array.

    axis      the number of the dimension
    counting  counts the valid items of each
    """

    rolling: Rolling
    axis: int
    counting: Method

    def around(self, box: Box, size: int) -> Box:
        """The box of all items of the windows of a box, in an array of `size` items along the dimension."""
        span, rolling = box[self.axis], self.rolling
        first = max(0, span.start + rolling.ahead + 1 - rolling.length)
        side = slice(first, min(size, span.stop + rolling.ahead))
        return (*box[: self.axis], side, *box[self.axis + 1 :])

    def make(self, method: Method, items: Items, around: Box, box: Box, where: str) -> Items:
        """The results of a method for the windows of a box, in its shape.

        items  of the box `around`
        where  the array, for errors
        """
        count = box[self.axis].stop - box[self.axis].start
        lead = around[self.axis].start - (box[self.axis].start + self.rolling.ahead + 1 - self.rolling.length)
        moved = np.moveaxis(items, self.axis, 0)
        rest = moved.shape[1:]
        rows = moved.reshape(len(moved), -1)
        made = np.empty((count, rows.shape[1]), method.result)
        total = count + self.rolling.length - 1
        # A cell of each item, and of the window that it begins.
        step = max(1, CELLS_SIZE // (2 * total * (method.cell_size + self.counting.cell_size)))
        for first in range(0, rows.shape[1], step):
            part = np.ascontiguousarray(rows[:, first : first + step])
            made[:, first : first + step] = self._make(method, part, lead, count, where)
        return np.moveaxis(made.reshape(count, *rest), 0, self.axis)

    def _make(self, method: Method, items: Items, lead: int, count: int, where: str) -> Items:
        """The results of `count` windows; the first one begins `lead` rows before the items."""
        cells = self._joined(method, items, lead, count)
        counted = self._counted(cells, method.lanes, items, lead, count)
        made = np.empty(count * items.shape[1], method.result)
        method.finish(cells, counted.astype(np.int64), where, made)
        made[counted < self.rolling.least] = np.nan
        return made.reshape(count, -1)

    def _counted(self, cells: CellStates, lanes: int, items: Items, lead: int, count: int) -> Items:
        """The number of valid items in each window: as its cells have it, else counted."""
        if cells.count is not None:
            return cells.count[::lanes]
        if self.counting.skip != NONE:
            counted = self._joined(self.counting, items, lead, count).count
            assert counted is not None, "what skips items counts the others"
            return counted
        begins, ends = (
            np.clip(np.arange(count) + more, lead, lead + len(items)) for more in (0, self.rolling.length)
        )
        return np.repeat(ends - begins, items.shape[1])

    def _joined(self, method: Method, items: Items, lead: int, count: int) -> CellStates:
        """The cells of windows, from those of their items."""
        length, width = self.rolling.length, items.shape[1]
        rows, step = count + length - 1, width * method.lanes
        cells = method.make(rows * width)
        there = cells.part(slice(lead * step, None))
        none = (0, 0)
        method.put(there, items, (width, 1), None, none, none, groups=1, group_step=0, first_number=0)

        def from_row(first: int, of: int) -> CellStates:
            return cells.part(slice(first * step, (first + of) * step))

        made, at, size = None, 0, 1
        while True:
            if length & size:
                part = from_row(at, count)
                if made is None:
                    made = part.copy()
                else:
                    method.join(made, part)
                at += size
            if size * 2 > length:
                assert made is not None, "a length has a highest bit"
                return made
            rows -= size
            method.join(from_row(0, rows), from_row(size, rows))
            size *= 2


def check_windows(method: Method, *, is_asked: bool) -> Method:
    """A method of rolling windows, whose results can be NaN.

    is_asked  whether the caller wants the method's data type; else what is no float becomes float64

    Raises
        UnsupportedError: the results would have no meaning, or could not be NaN.
    """
    if method.name not in OF_WINDOWS or method.dtype.kind not in "biuf":
        said = f"expected {', '.join(OF_WINDOWS)} of numbers"
        raise UnsupportedError(f"{method.name} of rolling windows of {method.dtype}; {said}")
    if method.result.kind == "f":
        return method
    if is_asked:
        said = f"results of rolling windows as {method.result}; expected floats, which can be NaN"
        raise UnsupportedError(said)
    return replace(method, result=np.dtype(np.float64))

"""The windows of a resampling along one dimension: their places, and the weights of their cells.

There are two grids. On "aligned", a cell of the result covers `factor` cells, and the last one those that are
left. On "gdal", the result covers the extent of the input, so that a cell covers size / result size cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

GRIDS = ("aligned", "gdal")

Array = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Span(NamedTuple):
    """One dimension: `size` cells made smaller by `factor`; of the result, `begin` to `end` are wanted."""

    size: int
    factor: int
    grid: str
    begin: int
    end: int

    @property
    def result_size(self) -> int:
        """The number of cells of the whole result."""
        return -(-self.size // self.factor)

    @property
    def ratio(self) -> float:
        """The number of cells that make one of the result."""
        return self.size / self.result_size if self.grid == "gdal" else float(self.factor)

    @property
    def outputs(self) -> Array:
        """The wanted cells' indices."""
        return np.arange(self.begin, self.end)


class Weights(NamedTuple):
    """Windows with weights, as the kernels take them: one item per wanted output.

    Between `alike_begin` and `alike_end` windows have equal weights and lie `step` cells apart.
    """

    starts: Array
    lengths: Array
    reach: Array
    weights: Floats
    total: Floats
    taps: int
    alike_begin: int
    alike_end: int
    step: int


def _bilinear(x: Floats) -> Floats:
    return np.where(np.abs(x) < 1, 1 - np.abs(x), 0)


def _cubic(x: Floats) -> Floats:
    x = np.abs(x)
    near, far = x * x * (1.5 * x - 2.5) + 1, x * (x * (2.5 - 0.5 * x) - 4) + 2
    return np.where(x <= 1, near, np.where(x <= 2, far, 0))


def _cubic_spline(x: Floats) -> Floats:
    x = np.abs(x)
    # What rounding leaves at the rim is no weight: it would make a window of holes a valid one.
    near, far = 2 / 3 + x * x * (0.5 * x - 1), np.where(x < 2 - 1e-5, (2 - x) ** 3 / 6, 0)
    return np.where(x <= 1, near, far)


def _lanczos(x: Floats) -> Floats:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


# Each filter as a function of the distance in cells of the result, and the distance at which it ends.
FILTERS: dict[str, tuple[Callable[[Floats], Floats], int]] = {
    "bilinear": (_bilinear, 1),
    "cubic": (_cubic, 2),
    "cubic_spline": (_cubic_spline, 2),
    "lanczos": (_lanczos, 3),
}
# No window reaches further from its cell of the result than this, in cells of the result.
MARGIN = 8
# Methods whose windows have weights even where a window is a whole number of cells.
WEIGHTED = (*FILTERS, "gauss")


def gauss_size(ratio: float) -> int:
    """The length of the binomial kernel, in cells."""
    rounded = int(0.5 + ratio)
    return 3 if rounded <= 2 else 5 if rounded <= 4 else 7


def source_slice(span: Span, method: str, gauss: int) -> slice:
    """The cells that the wanted part of the result is made of."""
    if span.begin >= span.end or span.size == 0:
        return slice(0, 0)
    if span.factor == 1:
        return slice(span.begin, span.end)
    first, last = (
        _extent(span._replace(begin=i, end=i + 1), method, gauss) for i in (span.begin, span.end - 1)
    )
    return slice(int(first[0][0]), int(last[1][0]))


def result_slice(span: Span, method: str, gauss: int, begin: int, end: int) -> slice:
    """The cells of the result whose windows hold any of the cells from `begin` to `end`."""
    if begin >= end:
        return slice(0, 0)
    if span.factor == 1:
        return slice(begin, end)
    # Windows follow one another: only those around the two ends need be looked at, however many there are.
    near, far = (_around(span, cell) for cell in (begin, end))
    touched = np.flatnonzero(_extent(near, method, gauss)[1] > begin) + near.begin
    reached = np.flatnonzero(_extent(far, method, gauss)[0] < end) + far.begin
    if not touched.size or not reached.size or touched[0] > reached[-1]:
        return slice(0, 0)
    return slice(int(touched[0]), int(reached[-1]) + 1)


def _around(span: Span, cell: int) -> Span:
    """The wanted outputs whose windows may begin or end near a cell."""
    middle = int(cell / span.ratio)
    begin = max(0, min(middle, span.result_size - 1) - MARGIN)
    return span._replace(begin=begin, end=min(middle + MARGIN, span.result_size))


def _extent(span: Span, method: str, gauss: int) -> tuple[Array, Array]:
    """(first cell, cell after the last) per wanted output."""
    outputs, ratio, size = span.outputs, span.ratio, span.size
    if method in FILTERS:
        return _filter_extent(span, FILTERS[method][1])[:2]
    if method == "gauss":
        return _gauss_extent(span, gauss)[:2]
    if span.grid == "aligned":
        begin = outputs * min(span.factor, size)
        return begin, np.minimum(begin + min(span.factor, size), size)
    if method == "nearest":
        begin = np.minimum((0.5 + outputs * ratio).astype(np.int64), size - 1)
        return begin, begin + 1
    begin = (outputs * ratio + 1e-8).astype(np.int64)
    end = np.ceil((outputs + 1) * ratio - 1e-8).astype(np.int64)
    return begin, np.minimum(np.maximum(end, begin + 1), size)


def place_windows(span: Span, method: str, offset: int) -> tuple[Array, Array]:
    """(first cell, cell count) of every wanted window, cells counted from `offset`."""
    begin, end = _extent(span, method, 0)
    return begin - offset, end - begin


def _filter_extent(span: Span, radius: int) -> tuple[Array, Array, Array]:
    """Begin and end of the windows, and how many cells long they would be in an input of whole windows."""
    # A division by the scale, not a product with the ratio: as in GDAL, where the last bit may add a cell.
    centre, reach = (span.outputs + 0.5) * span.ratio, radius / (1 / span.ratio)
    begin = np.maximum(np.floor(centre - reach + 0.5), 0)
    end = np.floor(centre + reach + 0.5)
    padded = float(span.result_size * span.factor if span.grid == "aligned" else span.size)
    asked = np.minimum(np.minimum(end, padded) - begin, 2.0**62)
    return begin.astype(np.int64), np.minimum(end, span.size).astype(np.int64), asked.astype(np.int64)


def weigh_filter(span: Span, method: str, offset: int) -> Weights:
    """Windows of a filter that is stretched by the ratio, cut at the edges and made to sum to one."""
    kernel, radius = FILTERS[method]
    begin, end, asked = _filter_extent(span, radius)
    count, centre = end - begin, (span.outputs + 0.5) * span.ratio
    cells = begin[:, None] + np.arange(int(count.max()))
    weights = kernel((cells - centre[:, None] + 0.5) * (1 / span.ratio))
    weights[cells >= end[:, None]] = 0
    weights /= weights.sum(1, keepdims=True)
    reach = radius * span.ratio
    whole = (centre - reach >= -0.5) & (np.floor(centre + reach + 0.5) <= span.size)
    return _weights(span, begin - offset, count, asked, weights, whole)


def _gauss_extent(span: Span, length: int) -> tuple[Array, Array, Array]:
    """Begin and end of the windows, and where in the binomial kernel they begin."""
    begin = np.floor(0.5 + span.outputs * span.ratio)
    size = np.floor(0.5 + (span.outputs + 1) * span.ratio) + 1 - begin
    begin += np.floor(size / 2) - length // 2
    shift = np.maximum(-begin, 0)
    # A narrow window at the far edge may end before the kernel begins: then its last cell stands for it.
    late = begin >= span.size
    begin = np.where(late, span.size - 1, np.maximum(begin, 0)).astype(np.int64)
    end = np.minimum(begin + length - shift.astype(np.int64), span.size)
    return begin, end, np.where(late, 0, shift).astype(np.int64)


def weigh_gauss(span: Span, length: int, offset: int) -> Weights:
    """Windows of a binomial kernel; its weights stay whole numbers."""
    binomial = np.array({3: [1, 2, 1], 5: [1, 4, 6, 4, 1], 7: [1, 6, 15, 20, 15, 6, 1]}[length], float)
    begin, end, shift = _gauss_extent(span, length)
    count, taps = end - begin, np.arange(length)
    weights = np.where(taps < count[:, None], binomial[np.minimum(shift[:, None] + taps, length - 1)], 0)
    return _weights(span, begin - offset, count, count, weights, count == length)


def weigh_fractions(span: Span, offset: int) -> Weights:
    """Windows of size / result size cells: the first and last cell weigh what lies inside."""
    begin, end = _extent(span, "average", 0)
    count, ratio = end - begin, span.ratio
    left = np.where(count == 1, 1.0, 1 - (span.outputs * ratio - begin))
    right = 1 - (end - (span.outputs + 1) * ratio)
    taps = np.arange(int(count.max()))
    weights = (taps < count[:, None]).astype(float)
    weights[:, 0] = left
    last = np.flatnonzero(count > 1)
    weights[last, count[last] - 1] = right[last]
    # In this order, for the same last bit as GDAL's.
    total = np.where(count > 1, (left + (count - 2)) + right, left)
    return _weights(span, begin - offset, count, count, weights, np.ones(len(begin), bool))._replace(
        total=total
    )


def _weights(span: Span, first: Array, count: Array, reach: Array, weights: Floats, whole: Array) -> Weights:
    ratio, alike = span.ratio, np.flatnonzero(whole)
    is_regular = ratio.is_integer() and len(alike) > 0 and bool((count[alike] == count[alike[0]]).all())
    return Weights(
        np.ascontiguousarray(first, np.int64),
        np.ascontiguousarray(count, np.int64),
        np.ascontiguousarray(reach, np.int64),
        np.ascontiguousarray(weights),
        weights.sum(1),
        weights.shape[1],
        int(alike[0]) if is_regular else 0,
        int(alike[-1]) + 1 if is_regular else 0,
        int(ratio) if is_regular else 1,
    )


def are_pairs(weights: Sequence[Weights]) -> bool:
    """Whether all windows along the last dimension are two cells side by side."""
    last = weights[-1]
    return bool((last.lengths == 2).all()) and bool((np.diff(last.starts) == 2).all())

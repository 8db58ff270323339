"""An array and the smaller versions of it, streamed block by block from one reading of the array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import lcm, prod
from typing import Any, TypeAlias

import numpy as np

from zstore.array import Array
from zstore.resampling.methods import Resampler, plan_part

__all__ = ["Resample", "stream", "windows"]

# What one block should come to: enough chunks for every thread, and little beside the memory of a machine.
BLOCK_SIZE = 16 << 20

Items = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]


# What is offered as a resampler: (array, factors, *, nodata=None, out=None) gives the array made smaller,
# each cell of it from its own window alone. Built-in methods that look further say so through `plan_part`.
Resample: TypeAlias = Callable[..., Items]


def stream(
    source: Array,
    copy: Array | None,
    levels: Sequence[Array],
    factors: Shape,
    resample: Resample,
    nodata: Any = None,
    *,
    grid: str = "aligned",
    tick: Callable[[int], None] = lambda cells: None,
) -> None:
    """Fill `levels`, each from the one before by `factors`, and `copy` with the source itself.

    Every chunk or shard is written once and whole. Where windows lie side by side, every block of the source
    is read once, and in memory is one block per level; where they overlap, or the grid is "gdal", levels are
    read again for the next one, and neighbouring blocks share cells. A block is BLOCK_SIZE, or one shard of a
    level or one chunk of the source where that is more. `tick` hears how many cells of the source have been
    dealt with since it was last called.

    Shapes
        source (*n); copy the same; level i ceil(n / factors ** i).
    """
    if all(n % f ** len(levels) == 0 for n, f in zip(source.shape, factors, strict=True)):
        # Both grids are the same then, and blocks lie side by side on this one.
        grid = "aligned"
    if levels and not _is_local(resample, factors, grid):
        if copy is not None:
            stream(source, copy, [], factors, resample)
        _stream_parts(source, levels, factors, resample, nodata, grid, tick)
    elif copy is not None or levels:
        _Cascade(source, copy, levels, factors, resample, nodata, tick).run()


def _is_local(resample: Resample, factors: Shape, grid: str) -> bool:
    """Whether a cell depends on its own `factors` cells only, so that blocks of windows can be made alone."""
    if grid != "aligned" or not isinstance(resample, Resampler):
        return grid == "aligned"
    part = plan_part([9 * f for f in factors], factors, resample.method, [slice(4, 5)] * len(factors))
    return part.source == tuple(slice(4 * f, 5 * f) for f in factors)


def _stream_parts(
    source: Array,
    levels: Sequence[Array],
    factors: Shape,
    resample: Any,
    nodata: Any,
    grid: str,
    tick: Callable[[int], None],
) -> None:
    finer = source
    for level in levels:
        block = _block_shape(finer, [level], None, BLOCK_SIZE // prod(factors))
        for origin in _origins((0,) * level.ndim, level.shape, block):
            ends = tuple(min(n, o + b) for n, o, b in zip(level.shape, origin, block, strict=True))
            region = tuple(map(slice, origin, ends))
            part = plan_part(finer.shape, factors, resample.method, region, grid=grid)
            level[region] = resample(finer[part.source], factors, nodata=nodata, grid=grid, part=part)
            if finer is source:
                sides = zip(region, factors, finer.shape, strict=True)
                tick(prod(min(s.stop * f, n) - min(s.start * f, n) for s, f, n in sides))
        finer = level


class _Cascade:
    def __init__(
        self,
        source: Array,
        copy: Array | None,
        levels: Sequence[Array],
        factors: Shape,
        resample: Resample,
        nodata: Any,
        tick: Callable[[int], None],
    ) -> None:
        self._source = source
        self._arrays = [copy, *levels]
        self._shapes = [source.shape, *(level.shape for level in levels)]
        self._factors = factors
        self._resample = resample
        self._nodata = nodata
        self._tick = tick
        written = [array for array in self._arrays if array is not None]
        self._block = _block_shape(source, written, factors if len(levels) > 1 or copy is not None else None)
        self._leaf = self._block if copy is not None else _leaf_shape(self._block, factors)

    def run(self) -> None:
        top = len(self._arrays) - 1
        for origin in _origins((0,) * self._source.ndim, self._shapes[top], self._blocks(top)):
            self._build(top, origin)

    def _blocks(self, level: int) -> Shape:
        return self._block if level else self._leaf

    def _build(self, level: int, origin: Shape) -> Items:
        """The block of `level` that begins at `origin`, written where it belongs."""
        shape = self._shapes[level]
        ends = tuple(map(min, shape, (o + b for o, b in zip(origin, self._blocks(level), strict=True))))
        region = tuple(map(slice, origin, ends))
        array = self._arrays[level]
        if level == 0:
            block: Items = self._source[region]
            self._tick(block.size)
        else:
            block = np.empty([s.stop - s.start for s in region], self._source.dtype)
            self._fill(level, region, block)
        if array is not None:
            array[region] = block
        return block

    def _fill(self, level: int, region: tuple[slice, ...], block: Items) -> None:
        finer = self._shapes[level - 1]
        begins = tuple(s.start * f for s, f in zip(region, self._factors, strict=True))
        ends = tuple(min(s.stop * f, n) for s, f, n in zip(region, self._factors, finer, strict=True))
        for origin in _origins(begins, ends, self._blocks(level - 1)):
            child = self._build(level - 1, origin)
            window = tuple(
                slice((o - b) // f, (o - b) // f - (-n // f))
                for o, b, f, n in zip(origin, begins, self._factors, child.shape, strict=True)
            )
            self._resample(child, self._factors, nodata=self._nodata, out=block[window])


def _origins(begins: Shape, ends: Shape, steps: Shape) -> Iterator[Shape]:
    return product(*map(range, begins, ends, steps))


def _block_shape(
    source: Array, written: Sequence[Array], factors: Shape | None, size: int | None = None
) -> Shape:
    """Whole shards or chunks of everything written; whole windows too, where levels follow from levels."""
    units = [array.shards or array.chunks for array in written]
    steps = [lcm(*lengths) for lengths in zip(*units, *([factors] if factors else []), strict=True)]
    read = [min(c, n) for c, n in zip(source.chunks, source.shape, strict=True)]
    lengths = [-(-max(r, 1) // s) * s for r, s in zip(read, steps, strict=True)]
    while prod(lengths) * 2 * source.dtype.itemsize <= (BLOCK_SIZE if size is None else size):
        short = [d for d, n in enumerate(source.shape) if lengths[d] < n]
        if not short:
            break
        # The dimensions that shrink come first: their blocks feed the next level.
        shrinking = [d for d in short if factors is not None and factors[d] > 1] or short
        lengths[min(shrinking, key=lengths.__getitem__)] *= 2
    return tuple(lengths)


def _leaf_shape(block: Shape, factors: Shape) -> Shape:
    """Whole windows, as many as tile what a block is made from, and not more cells than a block has."""
    return tuple(
        f * max(q for q in range(1, max(1, b // f) + 1) if b % q == 0)
        for b, f in zip(block, factors, strict=True)
    )


def windows(shape: tuple[int, int], unit: tuple[int, int], item_size: int) -> Iterator[tuple[slice, slice]]:
    """(y, x) windows of whole units that come to BLOCK_SIZE; wide before high, as rasters lie in files."""
    height, width = unit
    while width < shape[1] and height * width * 2 * item_size <= BLOCK_SIZE:
        width += unit[1]
    while height < shape[0] and (height + unit[0]) * width * item_size <= BLOCK_SIZE:
        height += unit[0]
    for row in range(0, shape[0], height):
        for column in range(0, shape[1], width):
            yield (
                slice(row, min(row + height, shape[0])),
                slice(column, min(column + width, shape[1])),
            )

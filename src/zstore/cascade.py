"""An array and the smaller versions of it, streamed block by block from one reading of the array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import lcm, prod
from typing import Any, Protocol

import numpy as np

from zstore.array import Array

__all__ = ["BLOCK_SIZE", "Resampler", "stream"]

# What one block should come to: enough chunks for every thread, and little beside the memory of a machine.
BLOCK_SIZE = 16 << 20

Items = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]


class Resampler(Protocol):
    """A way to make a coarser level from a finer one, for blocks that begin where a window begins."""

    def __call__(
        self, array: Items, factors: Sequence[int], *, nodata: Any = None, out: Items | None = None
    ) -> Items:
        """`array` made smaller by `factors`, into `out` where that is given."""
        ...


def stream(
    source: Array,
    copy: Array | None,
    levels: Sequence[Array],
    factors: Shape,
    resample: Resampler,
    nodata: Any = None,
    tick: Callable[[int], None] = lambda cells: None,
) -> None:
    """Fill `levels`, each from the one before by `factors`, and `copy` with the source itself.

    Every block of the source is read once, every chunk or shard written once and whole. In memory is one
    block per level; a block is BLOCK_SIZE, or one shard of a level or one chunk of the source if that is more.
    `tick` hears how many cells of the source have been dealt with since it was last called.

    Shapes
        source (*n); copy the same; level i ceil(n / factors ** i).
    """
    _Cascade(source, copy, levels, factors, resample, nodata, tick).run()


class _Cascade:
    def __init__(
        self,
        source: Array,
        copy: Array | None,
        levels: Sequence[Array],
        factors: Shape,
        resample: Resampler,
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


def _block_shape(source: Array, written: Sequence[Array], factors: Shape | None) -> Shape:
    """Whole shards or chunks of everything written; whole windows too, where levels follow from levels."""
    units = [array.shards or array.chunks for array in written]
    steps = [lcm(*lengths) for lengths in zip(*units, *([factors] if factors else []), strict=True)]
    read = [min(c, n) for c, n in zip(source.chunks, source.shape, strict=True)]
    lengths = [-(-max(r, 1) // s) * s for r, s in zip(read, steps, strict=True)]
    while prod(lengths) * 2 * source.dtype.itemsize <= BLOCK_SIZE:
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

"""Sets of chunks of an array: those that are stored, that overlap others, that a unit of a plan has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.jobs.plan import Unit
from zstore.jobs.upkeep.chunks import Cell, Page, StoredArray
from zstore.jobs.upkeep.rechunk_plan import Shape, edges

# Up to this many chunks in a grid, a set has a byte for each of them; beyond, it holds their places.
MASK_SIZE = 1 << 27
PLACES_COUNT = 1 << 16
# An odd number with irregular bits, as hash functions multiply by.
MIXING = np.uint64(0x9E3779B97F4A7C15)

Places = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Cells:
    """A set of chunks of an array: those whose places are given, many at a time, or all of them (None)."""

    def __init__(self, counts: Shape, cells: Iterable[Sequence[Cell] | Places] | None) -> None:
        self.counts = counts
        self._is_all = cells is None
        self._mask: Mask | None = None
        self._set = set[Cell]()
        if cells is not None and prod(counts) > MASK_SIZE:
            self._set.update(*(map(tuple, np.asarray(some).tolist()) for some in cells))
        elif cells is not None:
            self._mask = np.zeros(counts, bool)
            for some in filter(len, cells):
                self._mask[tuple(np.asarray(some).T)] = True
            if self._mask.all():
                self._is_all, self._mask = True, None

    def __iter__(self) -> Iterator[Cell]:
        if self._is_all:
            yield from product(*map(range, self.counts))
        elif self._mask is None:
            yield from sorted(self._set)
        else:
            yield from _places(self._mask)

    def __len__(self) -> int:
        if self._is_all:
            return prod(self.counts)
        return len(self._set) if self._mask is None else int(np.count_nonzero(self._mask))

    def __or__(self, other: Cells) -> Cells:
        if self._is_all or other._is_all:
            return Cells(self.counts, None)
        made = Cells(self.counts, ())
        made._set = self._set | other._set
        if self._mask is not None and other._mask is not None:
            made._mask = self._mask | other._mask
        return made

    def __sub__(self, other: Cells) -> Cells:
        made = Cells(self.counts, ())
        if made._mask is None:
            made._set = set() if other._is_all else {cell for cell in self if cell not in other._set}
        elif not other._is_all:
            mine = np.ones(self.counts, bool) if self._mask is None else self._mask
            made._mask = mine & ~other._mask  # type: ignore[operator]
        return made

    def spread(self, array: StoredArray, other: StoredArray) -> Cells:
        """The chunks of another array that overlap these chunks of `array`."""
        if array.model.grid == other.model.grid:
            return self
        if self._is_all:
            return Cells(other.counts, None)
        made = Cells(other.counts, ())
        if self._mask is None or made._mask is None:
            return Cells(other.counts, (list(other.cells(array.box(cell))) for cell in self))
        mask = self._mask
        for axis in range(mask.ndim):
            mask = _reduce(mask, axis, _spans(array, other, axis))
        made._mask = mask
        return made

    def units(self, counts: Shape, left: Cells) -> Iterator[Unit]:
        """The units, of `counts` chunks along each axis, that have some of these chunks, in order.

        The last number of each unit has a bit for each of its chunks that is in `left`, for `cells_of`;
        -1: all are.
        """
        for place in self._places(counts):
            yield *place, left._bits(place, counts)

    def _places(self, counts: Shape) -> Iterator[Cell]:
        if self._is_all:
            yield from product(*(range(-(-most // n)) for most, n in zip(self.counts, counts, strict=True)))
        elif self._mask is None:
            yield from sorted({tuple(p // n for p, n in zip(cell, counts, strict=True)) for cell in self})
        else:
            mask = self._mask
            for axis, count in enumerate(counts):
                if mask.size:
                    mask = np.logical_or.reduceat(mask, np.arange(0, mask.shape[axis], count), axis=axis)
            yield from _places(mask)

    def _bits(self, place: Cell, counts: Shape) -> int:
        if self._is_all:
            return -1
        sides = _sides(place, counts, self.counts)
        if self._mask is None:
            mask = np.array([cell in self._set for cell in product(*sides)])
        else:
            mask = self._mask[tuple(slice(side.start, side.stop) for side in sides)].reshape(-1)
        return -1 if mask.all() else int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _sides(place: Cell, counts: Shape, most: Shape) -> list[range]:
    """The chunks of a unit, as a range along each axis."""
    return [range(p * n, min(p * n + n, end)) for p, n, end in zip(place, counts, most, strict=True)]


def cells_of(unit: Unit, counts: Shape, most: Shape) -> list[Cell]:
    """The chunks that are left of a unit of `counts` chunks along each axis, on a grid of `most`."""
    *place, bits = unit
    sides = _sides(tuple(place), counts, most)
    every, length = product(*sides), prod(map(len, sides))
    if bits < 0:
        return list(every)
    packed = np.frombuffer(bits.to_bytes(-(-length // 8), "little"), np.uint8)
    return list(compress(every, np.unpackbits(packed, count=length, bitorder="little").tolist()))


class Stored(NamedTuple):
    """The stored chunks of an array.

    cells    which they are; all, where the store cannot list
    size     their bytes
    version  a hash of the chunks' places, sizes and versions; "" where the store cannot list
    """

    cells: Cells
    size: int
    version: str

    @classmethod
    def find(cls, array: StoredArray, *, least: int = 0) -> Stored:
        """The stored chunks, by one listing; those with fewer bytes than `least` do not count."""
        pages = array.pages()
        if pages is None:
            return cls(Cells(array.counts, None), 0, "")
        size = marks = 0

        def found() -> Iterator[Places]:
            nonlocal size, marks
            for page in pages:
                page = page.where(page.sizes >= least)
                # A sum does not depend on the order in which a store lists.
                marks += int(_mark(page).sum(dtype=np.uint64))
                size += int(page.sizes.sum())
                yield page.cells

        cells = Cells(array.counts, found())
        return cls(cells, size, f"{marks % (1 << 64):016x}")


def _mark(page: Page) -> Any:
    """A hash (uint64) of each chunk's place, size and version."""
    width = page.versions.itemsize // 4
    letters = page.versions.view(np.uint32).reshape(len(page.sizes), width).astype(np.uint64)
    # Padding counts nothing, so a hash does not depend on the length of other versions.
    factors = np.multiply.accumulate(np.full(width, MIXING, np.uint64))
    found = letters @ factors
    for column in (page.sizes, *page.cells.T):
        found = (found ^ (found >> np.uint64(32)) ^ column.astype(np.uint64)) * MIXING
    return found ^ (found >> np.uint64(29))


def _places(mask: Mask) -> Iterator[Cell]:
    """The places where a mask is true, in order."""
    found = np.argwhere(mask)
    for first in range(0, len(found), PLACES_COUNT):
        yield from map(tuple, found[first : first + PLACES_COUNT].tolist())


def _spans(array: StoredArray, other: StoredArray, axis: int) -> Any:
    """(first, last + 1) of the chunks of `array` that each chunk of `other` overlaps along an axis."""
    length = array.model.shape[axis]
    old, new = (edges(one.model.grid, axis, length) for one in (array, other))
    first = np.searchsorted(old, new[:-1], side="right") - 1
    return np.stack([first, np.searchsorted(old, new[1:], side="left")], 1)


def _reduce(mask: Mask, axis: int, spans: Any) -> Mask:
    """Whether a mask is true anywhere in each of the spans along an axis."""
    if not mask.size or not len(spans):
        return np.zeros((*mask.shape[:axis], len(spans), *mask.shape[axis + 1 :]), bool)
    # reduceat takes the stretch from each place to the next, of which every second is a span. A span may end
    # past the last chunk, so there is one more.
    room = np.zeros((*mask.shape[:axis], 1, *mask.shape[axis + 1 :]), bool)
    padded = np.concatenate([mask, room], axis)
    made = np.logical_or.reduceat(padded, spans.reshape(-1), axis=axis)
    return made[(slice(None),) * axis + (slice(None, None, 2),)]

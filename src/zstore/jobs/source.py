"""Sources of jobs: items that are read by boxes, and sets of chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.base.once import once
from zstore.jobs.plan import Unit
from zstore.jobs.versions import Marks
from zstore.model.grid import Grid, RegularGrid

# The assumed size, in bytes, of an item of any length.
OBJECT_SIZE = 64
# Up to this many chunks in a grid, a set has a byte for each of them; beyond, it holds their coordinates.
MASK_SIZE = 1 << 27
ROWS_COUNT = 1 << 16

Shape = tuple[int, ...]
Cell = tuple[int, ...]
Box = tuple[slice, ...]
Rows = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Source(ABC):
    """Items that are read by boxes: a stored array, windows of a raster, a view of other sources.

    Jobs ask no more than this of what they read. It goes to the workers of executors, so it can be pickled.
    `shape`, `dtype`, `grid`, `url`, `version` and `read` are its author's. All else has defaults that hold
    for any source; a source that knows better overrides them.
    """

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The length of each dimension."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the items in memory."""

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid of chunks; boxes of whole chunks cost least to read."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The address, for messages and for telling one source from another."""

    @abstractmethod
    def version(self) -> str:
        """A text that changes whenever an item is written; "" if that is unknown.

        One that ends in "?" may stay although an item was written.
        """

    @abstractmethod
    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The items of a box, in `out` (C-contiguous, of the box's shape) or in new memory."""

    @property
    def data_type(self) -> Any:
        """The data type, in a form for `create_array`."""
        return self.dtype

    @property
    def fill_value(self) -> Any:
        """The value of items in chunks that `listing` leaves out; None if it leaves out none."""
        return None

    @property
    def request_count(self) -> int:
        """The number of boxes worth reading at once; more than 1 if each waits for a server."""
        return 1

    @property
    def piece_shape(self) -> Shape | None:
        """The shape of the parts of a chunk that can be read alone at no cost for others; None: unknown."""
        return None

    @property
    def codecs(self) -> tuple[str, ...] | None:
        """The names of the codecs that kernels decode piece by piece (`piece_shape`); None for Python's."""
        return None

    def listing(self, *, keeps_marks: bool = False) -> StoredChunks:
        """The stored chunks, and their version.

        keeps_marks  whether a mark of each chunk is given too, where there are marks
        """
        return StoredChunks(ChunkSet(self.counts, None), 0, self.version())

    @once
    def counts(self) -> Shape:
        """The number of chunks along each dimension."""
        return self.grid.count(self.shape)

    @property
    def item_size(self) -> int:
        """The bytes of an item in memory; for items of variable length, an estimate."""
        return OBJECT_SIZE if self.dtype.kind in "OT" else self.dtype.itemsize

    @property
    def chunk_size(self) -> int:
        """Decoded bytes of the largest chunk, at least 1."""
        return max(1, prod(self.grid.chunk_shape) * self.item_size)

    def box(self, cell: Cell) -> Box:
        """The box of a chunk's items, cut at the end of the shape."""
        grid, shape = self.grid, self.shape
        return tuple(
            slice(grid.start(d, at), min(grid.start(d, at + 1), shape[d])) for d, at in enumerate(cell)
        )

    def cells(self, box: Box) -> Iterator[Cell]:
        """The chunks that overlap a box, in order."""
        return product(*(self._overlap(axis, side) for axis, side in enumerate(box)))

    def count(self, box: Box) -> int:
        """The number of chunks that overlap a box."""
        return prod(len(self._overlap(axis, side)) for axis, side in enumerate(box))

    def _overlap(self, axis: int, side: slice) -> range:
        """The coordinates along an axis of the chunks that overlap a side of a box."""
        every, start = range(self.counts[axis]), self.grid.start
        first = bisect_right(every, side.start, key=lambda number: start(axis, number)) - 1
        return range(first, bisect_left(every, side.stop, key=lambda number: start(axis, number)))


class StoredChunks(NamedTuple):
    """The stored chunks of a source, from one listing.

    cells      the chunks; all, where they cannot be listed
    size       their stored bytes
    version    as of `Source.version`
    marks      a number for each chunk of the grid that changes with the chunk; 0 where none is stored
    is_listed  whether they were listed, so that each of them is there
    """

    cells: ChunkSet
    size: int
    version: str
    marks: Marks | None = None
    is_listed: bool = False


def edges(grid: Grid, axis: int, length: int) -> Any:
    """The edges of chunks along an axis of a length: the start of each, and the end of the last one."""
    count = grid.count((length,) * len(grid.chunk_shape))[axis]
    if isinstance(grid, RegularGrid):
        ends = np.arange(count + 1, dtype=np.int64) * grid.chunk_shape[axis]
    else:
        runs = [(step, min(n, count)) for step, n in grid.edges[axis].runs]
        lengths = np.repeat(*np.array(runs, np.int64).T)[:count]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.minimum(ends, length)


class ChunkSet:
    """A set of chunks of an array, by their coordinates, in many pages; None: all chunks."""

    def __init__(self, counts: Shape, cells: Iterable[Sequence[Cell] | Rows] | None) -> None:
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
            yield from _rows(self._mask)

    def __len__(self) -> int:
        if self._is_all:
            return prod(self.counts)
        return len(self._set) if self._mask is None else int(np.count_nonzero(self._mask))

    def __or__(self, other: ChunkSet) -> ChunkSet:
        if self._is_all or other._is_all:
            return ChunkSet(self.counts, None)
        made = ChunkSet(self.counts, ())
        made._set = self._set | other._set
        if self._mask is not None and other._mask is not None:
            made._mask = self._mask | other._mask
        return made

    def __sub__(self, other: ChunkSet) -> ChunkSet:
        made = ChunkSet(self.counts, ())
        if made._mask is None:
            made._set = set() if other._is_all else {cell for cell in self if cell not in other._set}
        elif not other._is_all:
            mine = np.ones(self.counts, bool) if self._mask is None else self._mask
            made._mask = mine & ~other._mask  # type: ignore[operator]
        return made

    def spread(self, array: Source, other: Source) -> ChunkSet:
        """The chunks of another source that overlap these chunks of `array`."""
        if array.grid == other.grid:
            return self
        if self._is_all:
            return ChunkSet(other.counts, None)
        made = ChunkSet(other.counts, ())
        if self._mask is None or made._mask is None:
            return ChunkSet(other.counts, (list(other.cells(array.box(cell))) for cell in self))
        mask = self._mask
        for axis in range(mask.ndim):
            mask = _reduce(mask, axis, _spans(array, other, axis))
        made._mask = mask
        return made

    def units(self, counts: Shape, left: ChunkSet) -> Iterator[Unit]:
        """The units, of `counts` chunks along each axis, that have some of these chunks, in order.

        The last number of each unit has a bit for each of its chunks that is in `left`, for `cells_of`;
        -1: all are.
        """
        for at in self._units(counts):
            yield *at, left._bits(at, counts)

    def _units(self, counts: Shape) -> Iterator[Cell]:
        if self._is_all:
            yield from product(*(range(-(-most // n)) for most, n in zip(self.counts, counts, strict=True)))
        elif self._mask is None:
            yield from sorted({tuple(p // n for p, n in zip(cell, counts, strict=True)) for cell in self})
        else:
            mask = self._mask
            for axis, count in enumerate(counts):
                if mask.size:
                    mask = np.logical_or.reduceat(mask, np.arange(0, mask.shape[axis], count), axis=axis)
            yield from _rows(mask)

    def _bits(self, at: Cell, counts: Shape) -> int:
        if self._is_all:
            return -1
        sides = _sides(at, counts, self.counts)
        if self._mask is None:
            mask = np.array([cell in self._set for cell in product(*sides)])
        else:
            mask = self._mask[tuple(slice(side.start, side.stop) for side in sides)].reshape(-1)
        return -1 if mask.all() else int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _sides(at: Cell, counts: Shape, most: Shape) -> list[range]:
    """The chunks of a unit, as a range along each axis."""
    return [range(p * n, min(p * n + n, end)) for p, n, end in zip(at, counts, most, strict=True)]


def cells_of(unit: Unit, counts: Shape, most: Shape) -> list[Cell]:
    """The remaining chunks of a unit of `counts` chunks along each axis, on a grid of `most`."""
    *at, bits = unit
    sides = _sides(tuple(at), counts, most)
    every, length = product(*sides), prod(map(len, sides))
    if bits < 0:
        return list(every)
    packed = np.frombuffer(bits.to_bytes(-(-length // 8), "little"), np.uint8)
    return list(compress(every, np.unpackbits(packed, count=length, bitorder="little").tolist()))


def _rows(mask: Mask) -> Iterator[Cell]:
    """The coordinates at which a mask is true, in order."""
    rows = np.argwhere(mask)
    for first in range(0, len(rows), ROWS_COUNT):
        yield from map(tuple, rows[first : first + ROWS_COUNT].tolist())


def _spans(array: Source, other: Source, axis: int) -> Any:
    """(first, last + 1) of the chunks of `array` that each chunk of `other` overlaps along an axis."""
    length = array.shape[axis]
    old, new = (edges(one.grid, axis, length) for one in (array, other))
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

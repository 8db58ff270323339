"""An array and the smaller versions of it, made unit by unit from one reading of the array."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore.base.once import once
from zstore.engine.pool import thread_count
from zstore.extensions.registry import resamplers
from zstore.nodes.array import Array
from zstore.pyramid.masks import Mask, Veil
from zstore.resampling.grid import WEIGHTED
from zstore.resampling.methods import Part, Resampler, plan_part

__all__ = [
    "Box",
    "Pass",
    "Piece",
    "Resample",
    "Shape",
    "is_built_in",
    "make_unit",
    "outer_chunks",
    "volume",
    "windows",
]

# What a window of `windows` should come to: enough for every thread, and little beside a machine's memory.
BLOCK_SIZE = 16 << 20

# What these make lies between the least and the greatest cell, rounded as it may be.
BETWEEN = frozenset(("average", "mode", "med", "q1", "q3", "max", "min"))
# The most that a thread keeps to read its next tile into.
KEPT_SIZE = 8 << 20
_memory = threading.local()

Items = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Box: TypeAlias = tuple[slice, ...]

# What is offered as a resampler: (array, factors, *, nodata=None, out=None) gives the array made smaller,
# each cell of it from its own window alone. Built-in methods that look further say so through `plan_part`.
Resample: TypeAlias = Callable[..., Items]


class Piece(NamedTuple):
    """Some cells of a level, and where they belong."""

    level: int
    box: Box
    cells: Items


@dataclass(frozen=True)
class Pass:
    """What one reading of `source` makes: a copy of it, and levels.

    The source is cut into units. A unit owns a part of every level, the cells whose place times the factors
    lies in it; so every cell has one owner. It reads what those cells are made of, beyond its own cells too
    where windows reach further, and thus can be made without any other, anywhere, and again.

    copy        an array to copy the source to
    levels      arrays ceil(n / factors ** i) long, i = 1, 2, ...
    is_chained  whether a level is made from the one before; else from the source
    mask        where the source is valid, in the source's cells
    unit        cells of the source, per dimension
    tile        as many of them as are read, and made into cells of every level, at a time
    boxes       what is to be written of the copy and of each level
    run         a name that no other run has, so that no executor takes one for the other
    """

    source: Array
    copy: Array | None
    levels: tuple[Array, ...]
    factors: Shape
    method: str
    nodata: Any
    grid: str
    is_chained: bool
    mask: Mask | None
    unit: Shape
    tile: Shape
    boxes: tuple[Box, ...]
    run: str = ""

    def shape(self, level: int) -> Shape:
        """Of the source (level 0) or of a level."""
        return self.levels[level - 1].shape if level else self.source.shape

    def targets(self) -> list[tuple[int, Array]]:
        """The arrays to write, with their levels."""
        made = list(enumerate(self.levels, 1))
        return made if self.copy is None else [(0, self.copy), *made]

    def scale(self, level: int) -> Shape:
        """How many cells of the source make one of that level."""
        return tuple(factor**level for factor in self.factors)

    def own(self, origin: Shape, level: int) -> Box:
        """What the unit at `origin` owns of a level, as far as it is to be written."""
        sides = []
        whole = zip(
            origin,
            self.unit,
            self.source.shape,
            self.scale(level),
            self.shape(level),
            self.boxes[level],
            strict=True,
        )
        for begin, length, size, factor, cells, box in whole:
            first = max(-(-begin // factor), box.start)
            last = cells if begin + length >= size else -(-(begin + length) // factor)
            sides.append(slice(first, max(first, min(last, box.stop))))
        return tuple(sides)

    def origins(self) -> list[Shape]:
        """The units that own something, in an order in which few shared chunks are unfinished at a time."""
        ranges = []
        for axis, (size, length) in enumerate(zip(self.source.shape, self.unit, strict=True)):
            sides = [(self.boxes[level][axis], self.scale(level)[axis]) for level, _ in self.targets()]
            begin = min((side.start * factor for side, factor in sides), default=0) // length * length
            end = min(size, max((side.stop * factor for side, factor in sides), default=0))
            ranges.append(range(begin, end, length))
        found = [
            o for o in product(*ranges) if any(volume(self.own(o, level)) for level, _ in self.targets())
        ]
        return sorted(found, key=self._nest)

    def _nest(self, origin: Shape) -> tuple[Shape, ...]:
        """The shared chunks that a unit lies in, the largest on the ground first."""
        places = []
        for level in range(len(self.levels), self.whole_count, -1):
            steps = zip(origin, self.scale(level), outer_chunks(self.levels[level - 1]), strict=True)
            places.append(tuple(begin // factor // length for begin, factor, length in steps))
        return (*places, origin)

    def tiles(self, origin: Shape) -> Iterator[Shape]:
        """The tiles of a unit."""
        sides = zip(origin, self.unit, self.source.shape, self.tile, strict=True)
        return product(*(range(o, min(o + u, n), length) for o, u, n, length in sides))

    @once
    def unit_count(self) -> int:
        """How many units the source comes to."""
        return prod(-(-n // u) for n, u in zip(self.source.shape, self.unit, strict=True))

    @once
    def is_apart(self) -> bool:
        """Whether windows lie side by side, as those of plugins' methods all do."""
        if not is_built_in(self.method):
            return True
        # The method may be named by an alias.
        return self.grid == "aligned" and resamplers.resolve(self.method).method not in WEIGHTED

    @once
    def whole_count(self) -> int:
        """How many levels, from the first on, have no chunk (or shard) that two units own parts of."""
        count = 0
        for level, array in enumerate(self.levels, 1):
            sides = zip(self.unit, self.source.shape, self.scale(level), outer_chunks(array), strict=True)
            if any(length < size and length % (factor * chunk) for length, size, factor, chunk in sides):
                break
            count = level
        return count

    def needs(self, origin: Shape) -> list[Box]:
        """What is read of the source, and made of each level, so that the unit has all it owns."""
        boxes = [self.own(origin, level) for level in range(len(self.levels) + 1)]
        if self.copy is None:
            boxes[0] = tuple(slice(0, 0) for _ in origin)
        for level in range(len(self.levels), 0, -1):
            below = level - 1 if self.is_chained else 0
            boxes[below] = _hull(boxes[below], self.part(boxes[level], level).source)
        return boxes

    def part(self, box: Box, level: int) -> Part:
        """What the box of a level is made of: cells of the level before, or of the source."""
        shape = self.shape(level - 1 if self.is_chained else 0)
        steps = self.factors if self.is_chained else self.scale(level)
        if not self.is_apart:
            return plan_part(shape, steps, self.method, box, grid=self.grid)
        sides = zip(box, steps, shape, strict=True)
        return Part(shape, tuple(slice(min(s.start * f, n), min(s.stop * f, n)) for s, f, n in sides), box)


def is_built_in(method: str) -> bool:
    """Whether a method is no plugin's."""
    found = resamplers.resolve(method)
    return isinstance(found, type) and issubclass(found, Resampler)


def make_unit(work: Pass, origin: Shape) -> list[Piece]:
    """Make the unit's part of everything: chunks that it owns whole are written, the rest is given back.

    Tile by tile, so that what is read is still in the processor's caches when levels are made of it.
    """
    copied: tuple[Box, Items] | None = None
    if work.copy is not None:
        held, box = work.needs(origin)[0], work.own(origin, 0)
        copied = held, work.source[held]
        if volume(box):
            work.copy[box] = copied[1][_inside(box, held)]
    owned = [work.own(origin, level) for level in range(1, len(work.levels) + 1)]
    dtype = work.source.dtype.newbyteorder("=") if work.source.dtype.kind in "iufcmM" else work.source.dtype
    made = [np.empty(_lengths(box), dtype) for box in owned]
    resample: Resample = resamplers.resolve(work.method)()
    if is_built_in(work.method) and work.unit_count >= thread_count():
        # Units run side by side; only where they are too few for that, the kernels share their work out.
        resample = partial(resample, threads=1)
    part = replace(work, unit=work.tile)
    for place in work.tiles(origin):
        needs = part.needs(place)
        if not any(volume(box) for box in needs[1:]):
            continue
        if copied is None:
            cells = _read(work.source, needs[0])
        else:
            cells = copied[1][_inside(needs[0], copied[0])]
        _make_tile(part, resample, place, needs, cells, owned, made)
    return _put(work, owned, made)


def _read(source: Array, box: Box) -> Items:
    """A box of the source, in memory that the thread reads the next one into."""
    size = volume(box) * source.dtype.itemsize
    if source.dtype.kind not in "iufcb" or size > KEPT_SIZE:
        cells: Items = source[box]
        return cells
    if not hasattr(_memory, "held"):
        _memory.held = np.empty(KEPT_SIZE, np.uint8)
    into = _memory.held[:size].view(source.dtype).reshape(_lengths(box))
    source.read(box, out=into)
    return into  # type: ignore[no-any-return]


def _make_tile(
    work: Pass,
    resample: Resample,
    place: Shape,
    needs: list[Box],
    cells: Items,
    owned: list[Box],
    made: list[Items],
) -> None:
    """Put the cells of every level that the unit at `place` owns into `made`, which are the boxes `owned`.

    `cells` are what it `needs` of the source.
    """
    is_plain = work.mask is None and is_built_in(work.method)
    veil = Veil(work.source.dtype, work.nodata) if work.mask is None else work.mask.veil(work.nodata)
    if work.mask is not None:
        cells = veil.hide(cells, work.mask.read(needs[0]))
    nodata = None if is_plain and _is_whole(work, cells) else veil.nodata
    for level in range(1, len(work.levels) + 1):
        if not volume(needs[level]):
            continue
        part = work.part(needs[level], level)
        held = needs[level - 1 if work.is_chained else 0]
        window, box = cells[_inside(part.source, held)], work.own(place, level)
        into = made[level - 1][_inside(box, owned[level - 1])]
        is_direct = is_plain and box == needs[level]
        options: dict[str, Any] = {} if work.is_apart else {"grid": work.grid, "part": part}
        if is_direct:
            options["out"] = into
        steps = work.factors if work.is_chained else work.scale(level)
        result = resample(window, steps, nodata=nodata, **options)
        if not is_direct and volume(box):
            into[...] = veil.lift(result[_inside(box, needs[level])])
        if work.is_chained:
            cells = result


def _is_whole(work: Pass, cells: Items) -> bool:
    """Whether no cell is nodata and nothing made of them can be: one look spares the kernels theirs."""
    dtype = work.source.dtype
    if work.nodata is None or work.method not in BETWEEN or dtype.kind not in "iu" or dtype.itemsize > 4:
        return False
    limits = np.iinfo(dtype)
    if work.nodata == limits.min:
        return bool(cells.size) and cells.min() != limits.min
    return bool(cells.size) and work.nodata == limits.max and cells.max() != limits.max


def _put(work: Pass, owned: list[Box], made: list[Items]) -> list[Piece]:
    """Write the levels' chunks that a unit owns whole; the rest of what it made."""
    pieces = []
    for level, (array, box, cells) in enumerate(zip(work.levels, owned, made, strict=True), 1):
        if volume(box) and level <= work.whole_count:
            array[box] = cells
        elif volume(box):
            pieces.append(Piece(level, box, cells))
    return pieces


def volume(box: Box) -> int:
    """How many cells a box has."""
    return prod(side.stop - side.start for side in box)


def outer_chunks(array: Array) -> Shape:
    """The shape of what is put into a store as one value."""
    return array.shards or array.chunks


def _lengths(box: Box) -> Shape:
    return tuple(side.stop - side.start for side in box)


def _inside(box: Box, outer: Box) -> Box:
    """`box`, counted from where `outer` begins."""
    return tuple(slice(s.start - o.start, s.stop - o.start) for s, o in zip(box, outer, strict=True))


def _hull(one: Box, other: Box) -> Box:
    """The least box that holds both; empty ones hold nothing."""
    if not volume(one) or not volume(other):
        return one if volume(one) else other
    return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(one, other, strict=True))


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

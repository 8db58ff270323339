"""An array and the smaller versions of it, made unit by unit from one reading of the array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore.array import Array
from zstore.extensions.registry import resamplers
from zstore.pyramid.masks import Mask, Veil
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

    @cached_property
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
        if is_built_in(self.method):
            return plan_part(shape, steps, self.method, box, grid=self.grid)
        # A plugin's windows lie side by side.
        sides = zip(box, steps, shape, strict=True)
        return Part(shape, tuple(slice(min(s.start * f, n), min(s.stop * f, n)) for s, f, n in sides), box)


def is_built_in(method: str) -> bool:
    """Whether a method is no plugin's."""
    found = resamplers.resolve(method)
    return isinstance(found, type) and issubclass(found, Resampler)


def make_unit(work: Pass, origin: Shape) -> list[Piece]:
    """Make the unit's part of everything: chunks that it owns whole are written, the rest is given back."""
    needs = work.needs(origin)
    cells: Items = work.source[needs[0]]
    if work.copy is not None:
        box = work.own(origin, 0)
        if volume(box):
            work.copy[box] = cells[_inside(box, needs[0])]
    veil = Veil(work.source.dtype, work.nodata) if work.mask is None else work.mask.veil(work.nodata)
    if work.mask is not None:
        cells = veil.hide(cells, work.mask.read(needs[0]))
    pieces = []
    for level, array in enumerate(work.levels, 1):
        if not volume(needs[level]):
            continue
        below = needs[level - 1 if work.is_chained else 0]
        made = _resample(work, level, needs[level], cells, below, veil.nodata)
        box = work.own(origin, level)
        if volume(box):
            result = veil.lift(made[_inside(box, needs[level])])
            if level <= work.whole_count:
                array[box] = result
            else:
                pieces.append(Piece(level, box, result))
        if work.is_chained:
            cells = made
    return pieces


def _resample(work: Pass, level: int, box: Box, cells: Items, held: Box, nodata: Any) -> Items:
    """The cells `box` of a level, out of `cells`, which are the box `held` of what it is made from."""
    part = work.part(box, level)
    steps = work.factors if work.is_chained else work.scale(level)
    window = cells[_inside(part.source, held)]
    resample = resamplers.resolve(work.method)()
    if is_built_in(work.method):
        made: Items = resample(window, steps, nodata=nodata, grid=work.grid, part=part)
    else:
        made = resample(window, steps, nodata=nodata)
    return made


def volume(box: Box) -> int:
    """How many cells a box has."""
    return prod(side.stop - side.start for side in box)


def outer_chunks(array: Array) -> Shape:
    """The shape of what is put into a store as one value."""
    return array.shards or array.chunks


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

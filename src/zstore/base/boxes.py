"""Boxes of cells: their shape and volume, intersections, hulls, and windows to read rasters by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np

# Bytes of a window of `windows`: enough for every thread, and little beside a machine's memory.
BLOCK_SIZE = 16 << 20

Items = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Box = tuple[slice, ...]
T = TypeVar("T")


def whole(shape: Shape) -> Box:
    """The box of a whole array."""
    return tuple(slice(0, length) for length in shape)


def lengths(box: Box) -> Shape:
    """The shape of a box's cells."""
    return tuple(side.stop - side.start for side in box)


def volume(box: Box) -> int:
    """The number of cells in a box."""
    return prod(lengths(box))


def with_sides(sides: Iterable[T], axes: Sequence[int], others: Iterable[T]) -> tuple[T, ...]:
    """The sides of a box or a shape, with `others` along `axes`."""
    made = list(sides)
    for axis, other in zip(axes, others, strict=True):
        made[axis] = other
    return tuple(made)


def inside(box: Box, outer: Box) -> Box:
    """`box`, counted from the beginning of `outer`."""
    return tuple(slice(s.start - o.start, s.stop - o.start) for s, o in zip(box, outer, strict=True))


def meet(one: Box, other: Box) -> Box:
    """The box that two boxes share; they have to overlap."""
    return tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True))


def hull(boxes: Sequence[Box]) -> Box:
    """The smallest box around some; empty ones are ignored unless all are."""
    sides = zip(*([box for box in boxes if volume(box)] or boxes[-1:]), strict=True)
    return tuple(slice(min(s.start for s in each), max(s.stop for s in each)) for each in sides)


def cut(box: Box, steps: Sequence[int]) -> Iterator[Box]:
    """The boxes of at most `steps` items along each axis that a box is cut into, the last axis fastest."""
    sides = zip(box, steps, strict=True)
    return product(*([slice(n, min(n + k, s.stop)) for n in range(s.start, s.stop, k)] for s, k in sides))


def windows(shape: tuple[int, int], unit: tuple[int, int], item_size: int) -> Iterator[Box]:
    """(y, x) windows of whole units of about BLOCK_SIZE bytes; wide before high, as rasters lie in files."""
    height, width = unit
    while width < shape[1] and height * width * 2 * item_size <= BLOCK_SIZE:
        width += unit[1]
    while height < shape[0] and (height + unit[0]) * width * item_size <= BLOCK_SIZE:
        height += unit[0]
    return cut(whole(shape), (height, width))

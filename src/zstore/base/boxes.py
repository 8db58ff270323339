"""Boxes of cells: their shape and volume, intersections, hulls, and windows to read rasters by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from operator import index
from typing import Any, TypeVar

import numpy as np

# Bytes of a window of `windows`: enough for every thread, and little beside a machine's memory.
BLOCK_SIZE = 16 << 20

# An axis of more is gone along without a list of its places.
LISTED_COUNT = 1 << 16

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
    """The smallest box that contains all of these boxes; empty ones do not count unless all are empty."""
    sides = zip(*([box for box in boxes if volume(box)] or boxes[-1:]), strict=True)
    return tuple(slice(min(s.start for s in each), max(s.stop for s in each)) for each in sides)


def cut(box: Box, steps: Sequence[int]) -> Iterator[Box]:
    """The boxes of at most `steps` items along each axis that a box is cut into, the last axis fastest."""
    sides = zip(box, steps, strict=True)
    return product(*([slice(n, min(n + k, s.stop)) for n in range(s.start, s.stop, k)] for s, k in sides))


def places(counts: Shape) -> Iterator[Shape]:
    """The coordinates on a grid of `counts`, in order, whatever a document claims of its size."""
    if max(counts, default=0) <= LISTED_COUNT:
        return product(*map(range, counts))
    return ((at, *rest) for at in range(counts[0]) for rest in places(counts[1:]))


def windows(shape: tuple[int, int], unit: tuple[int, int], item_size: int) -> Iterator[Box]:
    """(y, x) windows of whole units of about BLOCK_SIZE bytes; wide before high, as rasters lie in files."""
    height, width = unit
    while width < shape[1] and height * width * 2 * item_size <= BLOCK_SIZE:
        width += unit[1]
    while height < shape[0] and (height + unit[0]) * width * item_size <= BLOCK_SIZE:
        height += unit[0]
    return cut(whole(shape), (height, width))


def axes_of(axis: Any, ndim: int, names: Sequence[str | None] | None = None) -> tuple[int, ...]:
    """Axes counted from the first one, of a number or a name, or of several.

    names  of all axes; None: no axis has one

    Raises
        AxisError: there is none of that number.
        ValueError: none has the name, or several have; or one is there twice.
        TypeError: it is neither; several sources, for example, which are not in a list.
    """

    def number(one: Any) -> int:
        if not isinstance(one, str):
            return index(one)
        if names is None:
            raise ValueError(f"axis {one!r}, expected a number: the array's dimensions have no names")
        if [*names].count(one) != 1:
            raise ValueError(f"axis {one!r}, expected one of the dimensions {tuple(names)}, or a number")
        return [*names].index(one)

    is_one = isinstance(axis, str) or not isinstance(axis, Iterable)
    try:
        made = [*map(number, (axis,) if is_one else axis)]
    except TypeError as error:
        said = f"axis is {axis!r}; expected a whole number, and several sources in one list"
        raise TypeError(said) from error
    for one in made:
        if not -ndim <= one < ndim:
            raise np.exceptions.AxisError(f"axis {one}, expected one of {ndim} dimensions")
    counted = tuple(one % ndim for one in made)
    if len({*counted}) != len(counted):
        raise ValueError(f"axis {axis!r} names a dimension twice")
    return counted

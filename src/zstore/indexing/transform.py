"""Index transforms: where in a source each item of a selection lies.

Selections in any of numpy's forms are parsed into a transform, and one of another is composed into one again,
so that there is one form of which plans are made. The term is TensorStore's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from zstore.base.once import once
from zstore.errors import SelectionError
from zstore.indexing.rectilinear import Index, fill_ellipsis

Shape = tuple[int, ...]
# Of one dimension of a source: a single position, evenly spaced ones along an axis, or any along some axes.
Positions = int | range | Index


@dataclass(frozen=True, eq=False)
class IndexTransform:
    """For each item of a result, its position along each dimension of a source.

    shape      the lengths of the axes of the result
    axes       for each dimension of the source, the axes of the result that its positions vary along
    positions  for each dimension of the source, the positions: an integer without axes, a range along one
               axis, or an array with a dimension for each of the axes

    The items do not vary along an axis that no dimension has, and repeat there.
    """

    shape: Shape
    axes: tuple[tuple[int, ...], ...]
    positions: tuple[Positions, ...]

    @classmethod
    def identity(cls, shape: Shape) -> IndexTransform:
        """The transform that selects everything."""
        return cls(shape, tuple((axis,) for axis in range(len(shape))), tuple(map(range, shape)))

    @once
    def key(self) -> tuple[Any, ...]:
        """A hashable value, equal for transforms that select the same."""
        held = tuple(
            (place.shape, place.tobytes()) if isinstance(place, np.ndarray) else place
            for place in self.positions
        )
        return self.shape, self.axes, held

    @property
    def size(self) -> int:
        """The number of items of the result."""
        return prod(self.shape)

    @once
    def used(self) -> frozenset[int]:
        """The axes of the result that the items vary along."""
        return frozenset(chain.from_iterable(self.axes))

    @once
    def unused(self) -> tuple[int, ...]:
        """The axes of the result along which the items repeat."""
        used, count = self.used, len(self.shape)
        return () if len(used) == count else tuple(axis for axis in range(count) if axis not in used)

    @once
    def repeats(self) -> bool:
        """Whether an item is there more than once along an axis without dimension."""
        return any(self.shape[axis] > 1 for axis in self.unused)

    def of(self, other: IndexTransform) -> IndexTransform:
        """The transform that first applies `other`, whose source is the result of this one."""
        pairs = [_composed(axes, place, other) for axes, place in zip(self.axes, self.positions, strict=True)]
        return (
            IndexTransform(other.shape, *zip(*pairs, strict=True))
            if pairs
            else IndexTransform(other.shape, (), ())
        )

    def permuted(self, order: Sequence[int]) -> IndexTransform:
        """The transform with the axes of its result in another order; those that are not in it are dropped.

        A dropped axis must be unused.
        """
        place = {axis: number for number, axis in enumerate(order)}
        axes = tuple(tuple(place[axis] for axis in axes) for axes in self.axes)
        return IndexTransform(tuple(self.shape[axis] for axis in order), axes, self.positions)

    def within(
        self, dimension: int, start: int, stop: int
    ) -> Iterator[tuple[IndexTransform, tuple[slice, ...] | Points]]:
        """The items whose positions along a dimension of the source lie from `start` to before `stop`.

        Gives none where there are none, else a transform whose positions count from `start`, and where in the
        result its items lie: slices of it, or points.
        """
        axes, place = self.axes[dimension], self.positions[dimension]
        if isinstance(place, int):
            if start <= place < stop:
                yield self.moved(dimension, start), ()
            return
        if isinstance(place, range):
            first, last = _overlap(place, start, stop)
            is_run = True
        else:
            inside = ((place >= start) & (place < stop)).nonzero()
            count = len(inside[0])
            if count == place.size:
                first, last, is_run = 0, self.shape[axes[0]], True
            else:
                first, last = (int(inside[0][0]), int(inside[0][-1]) + 1) if count else (0, 0)
                is_run = len(axes) == 1 and last - first == count
        if first >= last:
            return
        if not is_run:
            points = Points(axes, inside)
            yield self.of(points.transform(self.shape)).moved(dimension, start), points
        elif last - first == self.shape[axes[0]]:
            yield self.moved(dimension, start), ()
        else:
            yield (
                self.cut(axes[0], first, last).moved(dimension, start),
                (
                    *(slice(None),) * axes[0],
                    slice(first, last),
                ),
            )

    def divided(
        self, dimension: int, borders: Sequence[int]
    ) -> Iterator[tuple[int, IndexTransform, tuple[slice, ...] | Points]]:
        """The items between each two of some borders along a dimension of the source, as `within` gives them.

        They come with the number of the border before them. Transforms that are equal are mostly one.
        """
        axes, place = self.axes[dimension], self.positions[dimension]
        begin, end = self.bounds(dimension)
        numbers = range(max(bisect_right(borders, begin) - 1, 0), bisect_left(borders, end))
        if not isinstance(place, range) or sum(axes[0] in own for own in self.axes) > 1:
            for number in numbers:
                for inner, where in self.within(dimension, borders[number], borders[number + 1]):
                    yield number, inner, where
            return
        [axis] = axes
        made: dict[tuple[int, int], IndexTransform] = {}
        before = (slice(None),) * axis
        begin, step, first, last = place.start, place.step, 0, 0
        for number in numbers:
            start = borders[number]
            if step > 0:
                first, last = last, min((borders[number + 1] - begin - 1) // step + 1, len(place))
            else:
                first, last = _overlap(place, start, borders[number + 1])
            if first < last:
                form = begin + first * step - start, last - first
                if form not in made:
                    made[form] = self.cut(axis, first, last).moved(dimension, start)
                yield number, made[form], (*before, slice(first, last))

    def cut(self, axis: int, first: int, last: int) -> IndexTransform:
        """The part of the result from `first` to before `last` along an axis."""
        places = tuple(
            place[(*(slice(None),) * axes.index(axis), slice(first, last))]
            if isinstance(place, np.ndarray) and axis in axes
            else place[first:last]
            if isinstance(place, range) and axis in axes
            else place
            for axes, place in zip(self.axes, self.positions, strict=True)
        )
        return IndexTransform((*self.shape[:axis], last - first, *self.shape[axis + 1 :]), self.axes, places)

    def moved(self, dimension: int, start: int) -> IndexTransform:
        """The transform whose positions along a dimension of the source count from `start`."""
        if not start:
            return self
        place: Any = self.positions[dimension]
        if isinstance(place, range):
            place = range(place.start - start, place.stop - start, place.step)
        else:
            place = place - start
        places = (*self.positions[:dimension], place, *self.positions[dimension + 1 :])
        return IndexTransform(self.shape, self.axes, places)

    def bounds(self, dimension: int) -> tuple[int, int]:
        """The first position along a dimension of the source, and one past the last; (0, 0) for none."""
        place = self.positions[dimension]
        if isinstance(place, int):
            return place, place + 1
        if isinstance(place, range):
            return (min(place[0], place[-1]), max(place[0], place[-1]) + 1) if place else (0, 0)
        return (int(place.min()), int(place.max()) + 1) if place.size else (0, 0)


@dataclass(frozen=True, eq=False)
class Points:
    """Some of the items along some axes of a result, in any order: the positions along each of the axes."""

    axes: tuple[int, ...]
    positions: tuple[Index, ...]

    def transform(self, shape: Shape) -> IndexTransform:
        """The transform from a result of one axis of points, before all others, to one of `shape`."""
        left = [axis for axis in range(len(shape)) if axis not in self.axes]
        place: dict[int, tuple[tuple[int, ...], Positions]] = {
            axis: ((number,), range(shape[axis])) for number, axis in enumerate(left, 1)
        }
        place |= {axis: ((0,), index) for axis, index in zip(self.axes, self.positions, strict=True)}
        pairs = [place[axis] for axis in range(len(shape))]
        lengths = (len(self.positions[0]), *(shape[axis] for axis in left))
        return IndexTransform(lengths, tuple(axes for axes, _ in pairs), tuple(p for _, p in pairs))

    def view(self, items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The items of a whole result with the axes of the points first: to be indexed by `positions`."""
        left = [axis for axis in range(items.ndim) if axis not in self.axes]
        return items.transpose([*self.axes, *left])


def _overlap(place: range, start: int, stop: int) -> tuple[int, int]:
    """(first, last + 1) of the numbers of a range that lie from `start` to before `stop`."""
    if not place:
        return 0, 0
    if place.step > 0:
        first, last = -(-(start - place.start) // place.step), -(-(stop - place.start) // place.step)
    else:
        first, last = -((stop - 1 - place.start) // -place.step), (place.start - start) // -place.step + 1
    return max(first, 0), min(last, len(place))


def _composed(
    axes: tuple[int, ...], place: Positions, other: IndexTransform
) -> tuple[tuple[int, ...], Positions]:
    if isinstance(place, int):
        return (), place
    if isinstance(place, range):
        inner = other.positions[axes[0]]
        if isinstance(inner, int):
            return (), place[inner]
        if isinstance(inner, range):
            start, step = place.start + place.step * inner.start, place.step * inner.step
            return other.axes[axes[0]], range(start, start + step * len(inner), step)
        return other.axes[axes[0]], place.start + place.step * inner
    together = tuple(sorted({one for axis in axes for one in other.axes[axis]}))
    index = tuple(_spread(other.positions[axis], other.axes[axis], together) for axis in axes)
    chosen = place[index]
    return together, chosen if together else int(chosen)


def _spread(place: Positions, axes: tuple[int, ...], together: tuple[int, ...]) -> Any:
    """Positions as an array that broadcasts over the axes `together`."""
    if isinstance(place, int):
        return place
    items = (
        np.arange(place.start, place.stop, place.step, dtype=np.int64) if isinstance(place, range) else place
    )
    # An array's dimensions are in the order of its axes.
    order = sorted(range(len(axes)), key=axes.__getitem__)
    lengths = dict(zip(axes, items.shape, strict=True))
    return items.transpose(order).reshape([lengths.get(axis, 1) for axis in together])


def spread(transform: IndexTransform, dimension: int, together: Sequence[int]) -> Any:
    """The positions along a dimension of the source as an array that broadcasts over some axes."""
    return _spread(transform.positions[dimension], transform.axes[dimension], tuple(together))


# Selections


def parse(shape: Shape, selection: Any) -> IndexTransform:
    """The transform of `array[selection]`, as numpy understands it.

    Raises
        SelectionError: it does not fit an array of that shape.
    """
    items = selection if isinstance(selection, tuple) else (selection,)
    filled, place = fill_ellipsis(items, [_width(item) for item in items], len(shape))
    is_basic = not any(is_array(item) for item in filled if item is not None)
    entries: list[Any] = []
    phantom: list[Index] = []  # True and False, which index no dimension
    ellipsis = axis = 0
    for number, item in enumerate(filled):
        if number == place:
            ellipsis = len(entries)
        width = _width(item)
        if item is None or isinstance(item, slice):
            entries.append(item)
        elif not width:
            phantom.append(np.zeros(int(bool(item)), np.int64))
            entries.append(phantom[-1])
        elif is_mask(item):
            entries.extend(mask_positions(np.asarray(item), axis, shape))
        elif is_basic:
            entries.append(position(int(item), shape[axis], axis))
        else:
            entries.append(positions(index_array(item, axis, shape[axis]), shape[axis], axis))
        axis += width
    places = [number for number, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    # By numpy's rule, the axes of the arrays replace the first array if the arrays are neighbours, else they
    # come first. An ellipsis separates arrays even if it stands for no dimension.
    is_front = places and (places[-1] - places[0] + 1 != len(places) or places[0] < ellipsis <= places[-1])
    before = 0 if is_front or not places else places[0]
    return _transform(shape, entries, phantom, before)


def parse_orthogonal(shape: Shape, selection: Any) -> IndexTransform:
    """The transform of `array.oindex[selection]`: each dimension by integer, slice, list or 1-d mask.

    Raises
        SelectionError: it does not fit an array of that shape.
    """
    lengths: list[int] = []
    axes: list[tuple[int, ...]] = []
    places: list[Positions] = []
    for axis, entry in enumerate(expand(selection, shape, count_masks=False)):
        if isinstance(entry, slice):
            places.append(range(*entry.indices(shape[axis])))
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            places.append(position(int(entry), shape[axis], axis))
            axes.append(())
            continue
        else:
            index = positions(index_array(entry, axis, shape[axis]), shape[axis], axis)
            if index.ndim != 1:
                raise SelectionError(
                    f"orthogonal index of axis {axis} has {index.ndim} dimensions, expected 1"
                )
            places.append(index)
        axes.append((len(lengths),))
        lengths.append(len(places[-1]))  # type: ignore[arg-type]
    return IndexTransform(tuple(lengths), tuple(axes), tuple(places))


def parse_points(shape: Shape, selection: Any) -> IndexTransform:
    """The transform of `array.vindex[selection]`: points, index arrays broadcast against each other.

    Dimensions given as slices come last in the result. A mask of the array's shape selects where it is true.

    Raises
        SelectionError: it does not fit an array of that shape.
    """
    entries = [
        entry if isinstance(entry, slice) else positions(index_array(entry, axis, length), length, axis)
        for axis, (entry, length) in enumerate(zip(expand(selection, shape), shape, strict=True))
    ]
    return _transform(shape, entries, (), 0)


def _transform(shape: Shape, entries: Sequence[Any], phantom: Sequence[Index], before: int) -> IndexTransform:
    """The transform of a slice, a checked position, an index array or a new axis (None) for each entry.

    The axes of the arrays, broadcast together, come behind `before` axes. `phantom` are those of the arrays
    that index no dimension.
    """
    arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
    together = _broadcast(arrays) if arrays else ()
    lengths: list[int] = []
    axes: list[tuple[int, ...]] = []
    places: list[Positions] = []
    for entry in entries:
        # Axes before the arrays' keep their number, those behind make room for theirs.
        axis = len(lengths) + (len(together) if len(lengths) >= before else 0)
        if entry is None:
            lengths.append(1)
        elif isinstance(entry, slice):
            places.append(range(*entry.indices(shape[len(places)])))
            axes.append((axis,))
            lengths.append(len(places[-1]))  # type: ignore[arg-type]
        elif not isinstance(entry, np.ndarray):
            places.append(entry)
            axes.append(())
        elif not any(entry is one for one in phantom):
            first = before + len(together) - entry.ndim
            long = [axis for axis, length in enumerate(entry.shape) if length != 1]
            axes.append(tuple(first + axis for axis in long))
            if not long:
                places.append(entry.item())
            elif len(long) == entry.ndim:
                places.append(entry)
            else:
                places.append(entry.reshape([entry.shape[axis] for axis in long]))
    return IndexTransform((*lengths[:before], *together, *lengths[before:]), tuple(axes), tuple(places))


def _broadcast(arrays: Sequence[Index]) -> Shape:
    """The shape of index arrays that are broadcast together."""
    try:
        return np.broadcast_shapes(*{index.shape for index in arrays})
    except ValueError:
        shapes = " ".join(str(index.shape) for index in arrays)
        raise SelectionError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None


def is_array(item: Any) -> bool:
    """Whether an entry of a selection is one of numpy's advanced ones: an array, a list, True or False."""
    if isinstance(item, slice):
        return False
    return isinstance(item, bool) or not (isinstance(item, int | np.integer) or _is_index(item))


def _is_index(item: Any) -> bool:
    return hasattr(item, "__index__") and not np.ndim(item) and not isinstance(item, np.ndarray | np.bool_)


def _width(item: Any) -> int:
    """The number of dimensions that an entry selects from; 0 for new axes, True and False."""
    if item is None or isinstance(item, bool | np.bool_):
        return 0
    return int(np.ndim(item)) if is_mask(item) else 1


def is_mask(item: Any) -> bool:
    """Whether an entry of a selection is a boolean array, or a list of booleans."""
    if isinstance(item, list):
        return bool(np.asarray(item).dtype == np.bool_)
    return not isinstance(item, slice) and getattr(item, "dtype", None) == np.bool_


def expand(selection: Any, shape: Shape, *, count_masks: bool = True) -> list[Any]:
    """One entry for each dimension: ellipsis and omissions filled in, masks replaced by their positions."""
    items = list(selection) if isinstance(selection, tuple) else [selection]
    if any(item is None for item in items):
        raise SelectionError("new axes are not part of this kind of selection")
    widths = [int(np.ndim(item)) if count_masks and is_mask(item) else 1 for item in items]
    entries: list[Any] = []
    for item in fill_ellipsis(items, widths, len(shape))[0]:
        if count_masks and is_mask(item) and np.ndim(item) > 1:
            entries.extend(mask_positions(np.asarray(item), len(entries), shape))
        else:
            entries.append(item)
    return entries


def mask_positions(mask: Any, axis: int, shape: Shape) -> list[Index]:
    """The positions at which a mask is true, an array for each of its dimensions, which begin at `axis`."""
    for d, (length, wanted) in enumerate(zip(mask.shape, shape[axis:], strict=False), axis):
        if length != wanted:
            raise SelectionError(
                f"boolean index did not match the array along axis {d}; "
                f"size of axis is {wanted} but size of boolean axis is {length}"
            )
    return [np.ascontiguousarray(index, np.int64) for index in mask.nonzero()]


def index_array(entry: Any, axis: int, length: int) -> Index:
    """An index array, list or 1-d mask as int64 positions, which may still be negative."""
    array = np.asarray(entry)
    if array.size == 0 and not isinstance(entry, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype == np.bool_ and array.ndim == 1:
        return mask_positions(array, axis, (0,) * axis + (length,))[0]
    if array.dtype.kind not in "iu":
        raise SelectionError(
            f"index {entry!r} of axis {axis} is not an integer, slice, ellipsis, new axis, "
            "integer array or boolean array"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise SelectionError(f"index {array.max()} is out of bounds for axis {axis} with size {length}")
    return array.astype(np.int64, copy=False)


def positions(index: Index, length: int, axis: int) -> Index:
    """Check positions against a dimension's length; returns them counted from its start, and contiguous."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -length or high >= length:
            bad = low if low < -length else high
            raise SelectionError(f"index {bad} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            index = np.where(index < 0, index + length, index)
    # Not `ascontiguousarray`, which turns 0-d arrays into 1-d ones.
    return np.asarray(index, order="C")


def position(index: int, length: int, axis: int) -> int:
    """Check one position against a dimension's length; returns it counted from the start."""
    if not -length <= index < length:
        raise SelectionError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length if length else 0

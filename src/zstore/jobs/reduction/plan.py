"""The order in which a reduction reads an array: boxes of whole chunks, patch by patch of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product, repeat
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.base.boxes import Box
from zstore.base.once import once
from zstore.model.grid import Grid, RegularGrid

Items = np.ndarray[Any, Any]
Unit = tuple[int, ...]

# Decoded bytes that are read at once. BOX_SIZE fits the L2 cache of a core; a larger chunk is read whole up
# to BOX_LIMIT, else in parts. Where the cells take much memory, boxes of up to BOX_BESIDE go through them
# less often.
BOX_SIZE = 2 << 20
BOX_BESIDE = 4 << 20
BOX_LIMIT = 16 << 20
# Bytes for the cells of a patch: about so many where chunks leave a choice, and the most.
PATCH_SIZE = 4 << 20
PATCH_LIMIT = 24 << 20
# The share of boxes that may be read for several patches, so that a box can have several chunks.
TWICE = 1.05
# Decoded bytes of a unit: so many that joining its cells with others takes little time in comparison.
UNIT_SIZE = 16 << 20


@dataclass(frozen=True)
class Groups:
    """The group of every item along the reduced dimensions.

    names   the labels, sorted
    codes   int32: index of the label, -1 for none; it has all dimensions of the array, but of length 1 those
            that the label does not depend on
    sizes   how many items along the reduced dimensions belong to each group
    """

    names: Items
    codes: Items
    sizes: Items

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.names)

    @once
    def axis(self) -> int | None:
        """The only dimension that the label depends on; None where there are several or none."""
        [*labelled] = (d for d, n in enumerate(self.codes.shape) if n > 1)
        return labelled[0] if len(labelled) == 1 else None

    def holders(self, starts: Items, at_once: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether the stretch from each start to the next one along `axis` has items of a patch.

        Shapes
            (patches of `at_once` groups each, stretches)
        """
        codes = self.codes.reshape(-1)
        patches = codes[codes >= 0] // at_once
        stretches = np.searchsorted(starts, np.flatnonzero(codes >= 0), side="right") - 1
        held = np.zeros((-(-self.count // at_once), len(starts)), bool)
        held[patches, stretches] = True
        return held

    def of(self, box: Box) -> tuple[Items, tuple[int, ...]]:
        """(the codes of a box, contiguous; their stride, in items, along each dimension of the array)."""
        part = np.ascontiguousarray(part_of(self.codes, box))
        steps = (step // 4 if n > 1 else 0 for n, step in zip(self.codes.shape, part.strides, strict=True))
        return part, tuple(steps)


def part_of(items: Items, box: Box) -> Items:
    """The items of a box; dimensions of length 1 stand for any length."""
    return items[tuple(slice(0, 1) if n == 1 else span for n, span in zip(items.shape, box, strict=True))]


def spread(items: Items, shape: tuple[int, ...], order: Sequence[int], what: str, kind: str) -> Items:
    """Items along the dimensions `order` of an array, with all of its dimensions, the others of length 1.

    Raises
        ValueError: they do not broadcast to these dimensions.
    """
    lengths = tuple(shape[axis] for axis in order)
    fits = items.ndim <= len(order) and all(
        n in (1, length) for n, length in zip(items.shape[::-1], lengths[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"{what} have the shape {items.shape}, expected {kind} for axes {tuple(order)} of shape {lengths}"
        )
    axes = sorted(order)
    whole = items.reshape((1,) * (len(order) - items.ndim) + items.shape)
    whole = whole.transpose([list(order).index(axis) for axis in axes])
    full = [1] * len(shape)
    for axis, n in zip(axes, whole.shape, strict=True):
        full[axis] = n
    return np.ascontiguousarray(whole.reshape(full))


def make_groups(labels: Any, shape: tuple[int, ...], axes: tuple[int, ...], order: Sequence[int]) -> Groups:
    """The groups of `labels`, whose dimensions are the reduced `axes`, in the order `order`.

    Labels that are NaN, NaT or masked belong to no group.

    Raises
        ValueError: the labels do not fit the axes, or cannot be sorted.
    """
    mask = np.ma.getmaskarray(labels) if isinstance(labels, np.ma.MaskedArray) else None
    items = np.asarray(labels)
    codes: np.ndarray[Any, np.dtype[np.int32]] = np.full(items.shape, -1, np.int32)
    try:
        is_known = np.asarray(items == items, bool)  # NaN and NaT equal nothing
        if mask is not None:
            is_known &= ~mask
        names, numbers = np.unique(items[is_known], return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups of data type {items.dtype} cannot be put in order: {error}") from error
    codes[is_known] = numbers.reshape(-1)
    codes = spread(codes, shape, order, "groups", "labels")
    sizes = np.bincount(codes[codes >= 0].reshape(-1), minlength=len(names)).astype(np.int64)
    sizes *= prod(shape[axis] for axis in axes if codes.shape[axis] == 1)
    return Groups(names, codes, sizes)


@dataclass(frozen=True)
class Even(Sequence[slice]):
    """A length cut into spans of `step`, the last one shorter; a sequence that is not kept in memory."""

    size: int
    step: int

    def __len__(self) -> int:
        return -(-self.size // self.step)

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return slice(number * self.step, min((number + 1) * self.step, self.size))


class Patch(NamedTuple):
    """A part of the result whose cells are in memory together.

    kept     its slices along the dimensions that are not reduced
    groups   its slice of the groups
    """

    kept: Box
    groups: slice

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """The lengths along the dimensions that are not reduced."""
        return tuple(span.stop - span.start for span in self.kept)


@dataclass(frozen=True)
class Course:
    """The patches of a result, and for each the boxes of the array to read.

    shape        of the array
    axes         that are reduced, sorted
    spans        of the boxes, per dimension
    item_size    bytes of an item
    cell_size    bytes that are kept for a cell of the result
    group_spans  of the groups, for the patches
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    spans: tuple[Sequence[slice], ...]
    item_size: int
    cell_size: int
    groups: Groups | None
    group_spans: tuple[slice, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions that are not reduced."""
        return tuple(d for d in range(len(self.shape)) if d not in self.axes)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The greatest length of a box along each dimension."""
        return tuple(
            min(spans.step, spans.size)
            if isinstance(spans, Even)
            else max((s.stop - s.start for s in spans), default=0)
            for spans in self.spans
        )

    @property
    def box_size(self) -> int:
        """The decoded bytes of the largest box."""
        return prod(self.lengths) * self.item_size

    @property
    def patch_size(self) -> int:
        """Bytes for the cells of the largest patch."""
        groups = max((s.stop - s.start for s in self.group_spans), default=0)
        return groups * prod(self.lengths[d] for d in self.kept) * self.cell_size

    @property
    def patch_count(self) -> int:
        """The number of patches; every cell of the result is in one of them."""
        return len(self.group_spans) * prod(len(self.spans[d]) for d in self.kept)

    @property
    def box_count(self) -> int:
        """The number of boxes of a patch, including those without items of its groups."""
        return prod(len(self.spans[axis]) for axis in self.axes)

    def patch(self, number: int) -> Patch:
        """The patch with this number."""
        of_groups, rest = divmod(number, prod(len(self.spans[d]) for d in self.kept))
        return Patch(self._spans(self.kept, rest), self.group_spans[of_groups])

    def units(self) -> Iterator[Unit]:
        """The boxes that a thread reads at a time: (number of the patch, first box, the one after the last).

        Together, the units of a patch have all of its boxes in order, including those without items of its
        groups.
        """
        return chain.from_iterable(map(self.units_of, range(self.patch_count)))

    def units_of(self, number: int) -> Iterator[Unit]:
        """The units of a patch."""
        return ((number, first, last) for first, last in self._stretches(self.patch(number)))

    def _stretches(self, patch: Patch) -> Iterator[tuple[int, int]]:
        most, cells = max(UNIT_SIZE, 8 * self.patch_size), prod(patch.kept_shape)
        first = size = 0
        for number, reduced in enumerate(self._reduced_counts()):
            if not self._has_items(patch, number):
                continue
            boxed = reduced * cells * self.item_size
            if size and size + boxed > most:
                yield first, number
                first, size = number, 0
            size += boxed
        yield first, self.box_count

    def _reduced_counts(self) -> Iterator[int]:
        """The number of items along the reduced dimensions in each box, in order."""
        if not self.axes:
            yield 1
            return
        outer, *inner = (_lengths(self.spans[axis]) for axis in self.axes)
        # The outer dimension, which may have millions of spans, is not kept in memory.
        counts = [prod(sides) for sides in product(*inner)]
        for length in outer:
            for count in counts:
                yield length * count

    def boxes(self, patch: Patch, first: int, last: int) -> Iterator[Box]:
        """The boxes from `first` to `last` that have items of the patch."""
        for number in range(first, last):
            if self._has_items(patch, number):
                yield self._box(patch, number)

    def _spans(self, axes: tuple[int, ...], number: int) -> Box:
        """The spans of some axes in combination `number`, counted with the last axis fastest."""
        spans = []
        for axis in reversed(axes):
            number, at = divmod(number, len(self.spans[axis]))
            spans.append(self.spans[axis][at])
        return tuple(reversed(spans))

    def _box(self, patch: Patch, number: int) -> Box:
        box = [slice(0, 0)] * len(self.shape)
        spans = zip(self.axes, self._spans(self.axes, number), strict=True)
        for axis, span in (*zip(self.kept, patch.kept, strict=True), *spans):
            box[axis] = span
        return tuple(box)

    @once
    def _holders(self) -> list[bytes]:
        """For each patch of groups, whether each span along the labelled dimension has items of it."""
        assert self.groups is not None and self.groups.axis is not None, "labels along one dimension are cut"
        starts = np.array([span.start for span in self.spans[self.groups.axis]])
        first = self.group_spans[0]
        return [row.tobytes() for row in self.groups.holders(starts, first.stop - first.start)]

    def _has_items(self, patch: Patch, number: int) -> bool:
        """Whether a box has items of the patch."""
        if len(self.group_spans) == 1 or self.groups is None:
            return True
        axis, first = self.groups.axis, self.group_spans[0]
        inner = prod(len(self.spans[other]) for other in self.axes if axis is not None and other > axis)
        held = self._holders[patch.groups.start // (first.stop - first.start)]
        return bool(held[number // inner % len(held)])


def make_course(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    grid: Grid,
    item_size: int,
    cell_size: int,
    groups: Groups | None = None,
) -> Course:
    """The course through an array with a grid of chunks.

    A patch has the cells of one or several chunks, and each chunk is read once, as long as these cells fit
    `PATCH_LIMIT`. Where there are too many groups for that, a patch has some of the groups, and only chunks
    with items of these are read for it, or chunks are read in parts: whichever reads fewer chunks.
    """
    kept = [d for d in range(len(shape)) if d not in axes]
    lengths = [_longest(grid, d, size) for d, size in enumerate(shape)]
    count = 1 if groups is None else groups.count
    at_once = count

    def patch_size() -> int:
        return at_once * prod(lengths[d] for d in kept) * cell_size

    def box_size() -> int:
        return prod(lengths) * item_size

    labelled = None if groups is None else groups.axis
    if patch_size() > PATCH_LIMIT and groups is not None and labelled is not None:
        fewer = max(1, PATCH_LIMIT * count // patch_size())
        starts = grid.borders(labelled, shape[labelled])[:-1]
        if groups.holders(starts, fewer).sum() <= len(starts) * (patch_size() / PATCH_LIMIT):
            at_once = fewer
    for d in kept:  # the first dimension first, so that the parts of a chunk are contiguous
        if patch_size() > PATCH_LIMIT:
            lengths[d] = max(1, lengths[d] * PATCH_LIMIT // patch_size())
    for d in range(len(shape)):
        if box_size() > BOX_LIMIT:
            lengths[d] = max(1, lengths[d] * BOX_LIMIT // box_size())
    for d in (*reversed(kept), *reversed(axes)):
        if d in kept:
            room = min(BOX_SIZE // box_size(), PATCH_SIZE // max(1, patch_size()))
        else:
            left = BOX_BESIDE if at_once < count else PATCH_LIMIT - patch_size()
            room = max(BOX_SIZE, min(BOX_BESIDE, patch_size(), left)) // box_size()
        room = max(1, min(room, shape[d] // lengths[d] + 1))
        while room > 1 and at_once < count and groups is not None and d == labelled:
            # Chunks that no group of a patch needs are read with others.
            starts = np.array([span.start for span in _cut(grid, d, shape[d], lengths[d] * room)])
            if groups.holders(starts, at_once).sum() <= len(starts) * TWICE:
                break
            room //= 2
        lengths[d] *= room
    spans = tuple(_cut(grid, d, *side) for d, side in enumerate(zip(shape, lengths, strict=True)))
    group_spans = tuple(slice(g, min(g + at_once, count)) for g in range(0, count, max(1, at_once)))
    return Course(shape, axes, spans, item_size, cell_size, groups, group_spans)


def make_rolling_course(
    shape: tuple[int, ...],
    grid: Grid,
    item_size: int,
    cell_size: int,
    axis: int,
    window: int,
) -> Course:
    """The course through an array of which every item has a result, made of `window` items along `axis`.

    A box of results needs up to `window` - 1 more items, which are read again for its neighbours. Along the
    axis boxes are as long, and chunks cut across into as many parts, as makes the fewest items decoded.
    """
    lengths = [_longest(grid, d, size) for d, size in enumerate(shape)]
    chunk, size, margin = lengths[axis], shape[axis], window - 1
    across = max(1, prod(lengths) // chunk)
    best = (float("inf"), 1, 1)
    for parts in (1 << bit for bit in range(across.bit_length())):
        room = BOX_LIMIT // max(1, item_size * -(-across // parts))
        length = min(room - margin, size)
        if size <= room:
            length = size
        elif length > chunk:
            length -= length % chunk
        if length > 0:
            again = 0 if length >= size else margin + chunk - 1
            best = min(best, (parts * (1 + again / length), parts, length))
    _, parts, lengths[axis] = best
    others = [d for d in range(len(shape)) if d != axis]
    for d in others:
        fewer = min(parts, lengths[d])
        lengths[d], parts = -(-lengths[d] // fewer), -(-parts // fewer)
    for d in reversed(others):
        room = BOX_SIZE // max(1, item_size * (prod(lengths) // lengths[axis]) * (lengths[axis] + margin))
        lengths[d] *= max(1, min(room, shape[d] // lengths[d] + 1))
    spans = tuple(_cut(grid, d, *side) for d, side in enumerate(zip(shape, lengths, strict=True)))
    return Course(shape, (), spans, item_size, cell_size, None, (slice(0, 1),))


def _lengths(spans: Sequence[slice]) -> Iterator[int]:
    if isinstance(spans, Even) and spans.size:
        yield from repeat(spans.step, len(spans) - 1)
        yield spans.size - spans.step * (len(spans) - 1)
        return
    yield from (span.stop - span.start for span in spans)


def _longest(grid: Grid, axis: int, size: int) -> int:
    """The length of the longest chunk along a dimension of that size."""
    if isinstance(grid, RegularGrid):
        return max(1, min(grid.chunk_shape[axis], size))
    return int(np.diff(grid.borders(axis, size)).max(initial=1))


def _cut(grid: Grid, axis: int, size: int, most: int) -> Sequence[slice]:
    """Spans of whole chunks, at most `most` items long; longer chunks are cut."""
    chunk = grid.chunk_shape[axis]
    if isinstance(grid, RegularGrid) and (most % chunk == 0 or chunk % most == 0):
        return Even(size, most)
    spans: list[slice] = []
    for first, last in pairwise(grid.borders(axis, size).tolist()):
        if spans and last - spans[-1].start <= most:
            spans[-1] = slice(spans[-1].start, last)
        else:
            spans += [slice(at, min(at + most, last)) for at in range(first, last, most)]
    return tuple(spans)

"""The order in which a reduction reads an array: boxes of whole chunks, patch by patch of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, product, repeat
from math import prod
from typing import Any, NamedTuple

import numpy as np

Box = tuple[slice, ...]
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

    def of(self, box: Box) -> tuple[Items, tuple[int, ...]]:
        """(the codes of a box, contiguous; their stride, in items, along each dimension of the array)."""
        lengths = self.codes.shape
        part = np.ascontiguousarray(
            self.codes[tuple(slice(0, 1) if n == 1 else span for n, span in zip(lengths, box, strict=True))]
        )
        steps = (step // 4 if n > 1 else 0 for n, step in zip(lengths, part.strides, strict=True))
        return part, tuple(steps)


def make_groups(labels: Any, shape: tuple[int, ...], axes: tuple[int, ...], order: Sequence[int]) -> Groups:
    """The groups of `labels`, whose dimensions are the reduced `axes`, in the order `order`.

    Labels that are NaN, NaT or masked belong to no group.

    Raises
        ValueError: the labels do not fit the axes, or cannot be sorted.
    """
    mask = np.ma.getmaskarray(labels) if isinstance(labels, np.ma.MaskedArray) else None
    items = np.asarray(labels)
    lengths = tuple(shape[axis] for axis in order)
    fits = items.ndim <= len(order) and all(
        n in (1, length) for n, length in zip(items.shape[::-1], lengths[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"groups have the shape {items.shape}, expected labels for axes {tuple(order)} of shape {lengths}"
        )
    codes: np.ndarray[Any, np.dtype[np.int32]] = np.full(items.shape, -1, np.int32)
    try:
        is_known = np.asarray(items == items, bool)  # NaN and NaT equal nothing
        if mask is not None:
            is_known &= ~mask
        names, numbers = np.unique(items[is_known], return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups of data type {items.dtype} cannot be put in order: {error}") from error
    codes[is_known] = numbers.reshape(-1)
    codes = codes.reshape((1,) * (len(order) - codes.ndim) + codes.shape)
    sizes = np.bincount(codes[codes >= 0].reshape(-1), minlength=len(names)).astype(np.int64)
    sizes *= prod(length for n, length in zip(codes.shape, lengths, strict=True) if n == 1)
    codes = codes.transpose([list(order).index(axis) for axis in axes])
    full = [1] * len(shape)
    for axis, n in zip(axes, codes.shape, strict=True):
        full[axis] = n
    return Groups(names, np.ascontiguousarray(codes.reshape(full)), sizes)


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
            if len(self.group_spans) > 1 and not self._has_items(self._box(patch, number), patch.groups):
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
            box = self._box(patch, number)
            if len(self.group_spans) == 1 or self._has_items(box, patch.groups):
                yield box

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

    def _has_items(self, box: Box, groups: slice) -> bool:
        codes, _ = self.groups.of(box) if self.groups is not None else (np.zeros(1, np.int32), ())
        return bool(((codes >= groups.start) & (codes < groups.stop)).any())


def make_course(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    chunks: Sequence[Sequence[int] | int],
    item_size: int,
    cell_size: int,
    groups: Groups | None = None,
) -> Course:
    """The course through an array; `chunks` has one length, or those of all chunks, for each dimension.

    A patch has the cells of one or several chunks, and each chunk is read once, as long as these cells fit
    `PATCH_LIMIT`. Where there are too many groups for that, a patch has some of the groups, and only chunks
    with items of these are read for it; else chunks are read in parts.
    """
    kept = [d for d in range(len(shape)) if d not in axes]
    lengths = [_longest(row, size) for row, size in zip(chunks, shape, strict=True)]
    count = 1 if groups is None else groups.count
    at_once = count

    def patch_size() -> int:
        return at_once * prod(lengths[d] for d in kept) * cell_size

    def box_size() -> int:
        return prod(lengths) * item_size

    if patch_size() > PATCH_LIMIT and groups is not None and _is_cut_by(groups, chunks, shape):
        at_once = max(1, PATCH_LIMIT // (patch_size() // at_once))
    for d in kept:  # the first dimension first, so that the parts of a chunk are contiguous
        if patch_size() > PATCH_LIMIT:
            lengths[d] = max(1, lengths[d] * PATCH_LIMIT // patch_size())
    for d in range(len(shape)):
        if box_size() > BOX_LIMIT:
            lengths[d] = max(1, lengths[d] * BOX_LIMIT // box_size())
    for d in (*reversed(kept), *reversed(axes)):
        if at_once < count and groups is not None and groups.codes.shape[d] > 1:
            continue  # else chunks that no group of a patch needs would be read with others
        if d in kept:
            room = min(BOX_SIZE // box_size(), PATCH_SIZE // max(1, patch_size()))
        else:
            room = max(BOX_SIZE, min(BOX_BESIDE, patch_size(), PATCH_LIMIT - patch_size())) // box_size()
        lengths[d] *= max(1, min(room, shape[d] // lengths[d] + 1))
    spans = tuple(_cut(*side) for side in zip(chunks, shape, lengths, strict=True))
    group_spans = tuple(slice(g, min(g + at_once, count)) for g in range(0, count, max(1, at_once)))
    return Course(shape, axes, spans, item_size, cell_size, groups, group_spans)


def _lengths(spans: Sequence[slice]) -> Iterator[int]:
    if isinstance(spans, Even) and spans.size:
        yield from repeat(spans.step, len(spans) - 1)
        yield spans.size - spans.step * (len(spans) - 1)
        return
    yield from (span.stop - span.start for span in spans)


def _longest(chunks: Sequence[int] | int, size: int) -> int:
    """The length of the longest chunk along a dimension of that size."""
    return max(1, min(chunks, size) if isinstance(chunks, int) else max(chunks, default=1))


def _edges(chunks: Sequence[int] | int, size: int) -> Sequence[int]:
    """The edges of chunks along a dimension of that size, from 0 to the end."""
    return (*range(0, size, chunks), size) if isinstance(chunks, int) else (0, *accumulate(chunks))


def _is_cut_by(groups: Groups, chunks: Sequence[Sequence[int] | int], shape: tuple[int, ...]) -> bool:
    """Whether few chunks have items of several groups; only tested for labels along one dimension."""
    [*labelled] = (d for d, n in enumerate(groups.codes.shape) if n > 1)
    if len(labelled) != 1:
        return False
    codes, pairs = groups.codes.reshape(-1), list(pairwise(_edges(chunks[labelled[0]], shape[labelled[0]])))
    return sum(len(np.unique(codes[a:b])) for a, b in pairs) <= 2 * len(pairs)


def _cut(chunks: Sequence[int] | int, size: int, most: int) -> Sequence[slice]:
    """Spans of whole chunks, at most `most` items long; longer chunks are cut."""
    if isinstance(chunks, int) and (most % chunks == 0 or chunks % most == 0):
        return Even(size, most)
    spans: list[slice] = []
    for first, last in pairwise(_edges(chunks, size)):
        if spans and last - spans[-1].start <= most:
            spans[-1] = slice(spans[-1].start, last)
        else:
            spans += [slice(at, min(at + most, last)) for at in range(first, last, most)]
    return tuple(spans)

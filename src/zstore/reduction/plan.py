"""How an array is gone through: boxes of whole chunks, and which part of the result each concerns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

Box = tuple[slice, ...]
Items = np.ndarray[Any, Any]
Unit = tuple[int, ...]

# Decoded bytes that are read at once: as much as the next cache beside a core holds; more where a chunk is
# larger, or where as much is kept for the cells, which then are gone through less often. Chunks larger than
# the last of these are read in parts.
BOX_SIZE = 2 << 20
BOX_BESIDE = 8 << 20
BOX_LIMIT = 16 << 20
# What is kept for the cells of a patch: so much where chunks leave a choice, and so much at most.
PATCH_SIZE = 4 << 20
PATCH_LIMIT = 24 << 20
# Decoded bytes of a unit: enough that joining its cells to those of others is little beside.
UNIT_SIZE = 16 << 20


@dataclass(frozen=True)
class Groups:
    """Which group every item along the reduced dimensions belongs to.

    names   the labels, in order
    codes   the number of a label, -1 for none; as many dimensions as the array, of length 1 where it does not
            depend on them
    sizes   how many items of the reduced dimensions belong to each
    """

    names: Items
    codes: Items
    sizes: Items

    @property
    def count(self) -> int:
        """How many groups."""
        return len(self.names)

    def of(self, box: Box) -> tuple[Items, tuple[int, ...]]:
        """The codes of a box, contiguous, and how far a step along each dimension moves in them."""
        lengths = self.codes.shape
        part = np.ascontiguousarray(
            self.codes[tuple(slice(0, 1) if n == 1 else span for n, span in zip(lengths, box, strict=True))]
        )
        steps = (step // 4 if n > 1 else 0 for n, step in zip(lengths, part.strides, strict=True))
        return part, tuple(steps)


def make_groups(labels: Any, shape: tuple[int, ...], axes: tuple[int, ...], order: Sequence[int]) -> Groups:
    """Groups of labels for the reduced `axes`; `order` is that in which the labels have them.

    Labels that are NaN, NaT or masked make no group.

    Raises
        ValueError: the labels do not fit the axes, or cannot be put in order.
    """
    mask = np.ma.getmaskarray(labels) if isinstance(labels, np.ma.MaskedArray) else None
    given = np.asarray(labels)
    lengths = tuple(shape[axis] for axis in order)
    fits = given.ndim <= len(order) and all(
        n in (1, length) for n, length in zip(given.shape[::-1], lengths[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"groups have the shape {given.shape}, expected labels for axes {tuple(order)} of shape {lengths}"
        )
    codes: np.ndarray[Any, np.dtype[np.int32]] = np.full(given.shape, -1, np.int32)
    try:
        is_known = np.asarray(given == given, bool)  # as nothing that is NaN or NaT
        if mask is not None:
            is_known &= ~mask
        names, found = np.unique(given[is_known], return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups of data type {given.dtype} cannot be put in order: {error}") from error
    codes[is_known] = found.reshape(-1)
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
    """A length cut into spans of `step`, the last as long as is left; however many, they take no memory."""

    size: int
    step: int

    def __len__(self) -> int:
        return -(-self.size // self.step)

    def __getitem__(self, place: Any) -> Any:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return slice(place * self.step, min((place + 1) * self.step, self.size))


class Patch(NamedTuple):
    """A part of the result that is made at once.

    kept     its spans along the dimensions that are not reduced
    groups   those that are in it
    """

    kept: Box
    groups: slice

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """How long it is along the dimensions that are not reduced."""
        return tuple(span.stop - span.start for span in self.kept)


@dataclass(frozen=True)
class Course:
    """The patches of a result, and how the array is cut along each dimension.

    shape    of the array
    axes     that are reduced, in order
    spans    of the boxes, per dimension
    group_spans  the groups of the patches
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
        """The longest box."""
        return tuple(
            min(spans.step, spans.size)
            if isinstance(spans, Even)
            else max((s.stop - s.start for s in spans), default=0)
            for spans in self.spans
        )

    @property
    def box_size(self) -> int:
        """Decoded bytes of the largest box."""
        return prod(self.lengths) * self.item_size

    @property
    def patch_size(self) -> int:
        """Bytes that are kept for the cells of the largest patch."""
        groups = max((s.stop - s.start for s in self.group_spans), default=0)
        return groups * prod(self.lengths[d] for d in self.kept) * self.cell_size

    @property
    def patch_count(self) -> int:
        """How many patches; together they have every cell of the result once."""
        return len(self.group_spans) * prod(len(self.spans[d]) for d in self.kept)

    @property
    def box_count(self) -> int:
        """How many boxes a patch reads, where all concern it."""
        return prod(len(self.spans[axis]) for axis in self.axes)

    def patch(self, number: int) -> Patch:
        """A patch by its number."""
        of_groups, place = divmod(number, prod(len(self.spans[d]) for d in self.kept))
        return Patch(self._spans(self.kept, place), self.group_spans[of_groups])

    def units(self) -> Iterator[Unit]:
        """What one thread reads at a time: (number of the patch, the first of its boxes, behind the last).

        All boxes of a patch follow one another, those that do not concern it, too.
        """
        for number in range(self.patch_count):
            yield from ((number, first, last) for first, last in self._stretches(self.patch(number)))

    def _stretches(self, patch: Patch) -> Iterator[tuple[int, int]]:
        most, cells = max(UNIT_SIZE, 8 * self.patch_size), prod(patch.kept_shape)
        lengths = [[span.stop - span.start for span in self.spans[axis]] for axis in self.axes]
        first = size = 0
        for number, sides in enumerate(product(*lengths)):
            if len(self.group_spans) > 1 and not self._concerns(self._box(patch, number), patch.groups):
                continue
            boxed = prod(sides) * cells * self.item_size
            if size and size + boxed > most:
                yield first, number
                first, size = number, 0
            size += boxed
        yield first, self.box_count

    def boxes(self, patch: Patch, first: int, last: int) -> Iterator[Box]:
        """Those of some boxes that concern a patch."""
        for number in range(first, last):
            box = self._box(patch, number)
            if len(self.group_spans) == 1 or self._concerns(box, patch.groups):
                yield box

    def _spans(self, axes: tuple[int, ...], number: int) -> Box:
        """The spans along some axes that make the combination of that number, the last axis first."""
        found = []
        for axis in reversed(axes):
            number, place = divmod(number, len(self.spans[axis]))
            found.append(self.spans[axis][place])
        return tuple(reversed(found))

    def _box(self, patch: Patch, number: int) -> Box:
        box = [slice(0, 0)] * len(self.shape)
        spans = zip(self.axes, self._spans(self.axes, number), strict=True)
        for axis, span in (*zip(self.kept, patch.kept, strict=True), *spans):
            box[axis] = span
        return tuple(box)

    def _concerns(self, box: Box, groups: slice) -> bool:
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
    """The course through an array cut into chunks of those lengths, per dimension: one for all, or each.

    A patch has the cells of one chunk or of several, and each chunk is read once, as long as what is kept for
    its cells fits `PATCH_LIMIT`. Where there are too many groups for that, a patch has some of them, and the
    chunks that have none of those are not read for it; else chunks are read in parts.
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
    for d in kept:  # the outermost first: what is left of a chunk then lies together
        if patch_size() > PATCH_LIMIT:
            lengths[d] = max(1, lengths[d] * PATCH_LIMIT // patch_size())
    for d in range(len(shape)):
        if box_size() > BOX_LIMIT:
            lengths[d] = max(1, lengths[d] * BOX_LIMIT // box_size())
    for d in (*reversed(kept), *reversed(axes)):
        if at_once < count and groups is not None and groups.codes.shape[d] > 1:
            continue  # chunks that no group of a patch needs are not to be read along with others
        if d in kept:
            room = min(BOX_SIZE // box_size(), PATCH_SIZE // max(1, patch_size()))
        else:
            room = max(BOX_SIZE, min(BOX_BESIDE, patch_size(), PATCH_LIMIT - patch_size())) // box_size()
        lengths[d] *= max(1, min(room, shape[d] // lengths[d] + 1))
    spans = tuple(_cut(*side) for side in zip(chunks, shape, lengths, strict=True))
    group_spans = tuple(slice(g, min(g + at_once, count)) for g in range(0, count, max(1, at_once)))
    return Course(shape, axes, spans, item_size, cell_size, groups, group_spans)


def _longest(chunks: Sequence[int] | int, size: int) -> int:
    """The longest chunk along a dimension of that size."""
    return max(1, min(chunks, size) if isinstance(chunks, int) else max(chunks, default=1))


def _edges(chunks: Sequence[int] | int, size: int) -> Sequence[int]:
    """Where chunks begin along a dimension of that size, and where the last one ends."""
    return (*range(0, size, chunks), size) if isinstance(chunks, int) else (0, *accumulate(chunks))


def _is_cut_by(groups: Groups, chunks: Sequence[Sequence[int] | int], shape: tuple[int, ...]) -> bool:
    """Whether hardly any chunk has items of several groups: labels along one dimension only."""
    [*labelled] = (d for d, n in enumerate(groups.codes.shape) if n > 1)
    if len(labelled) != 1:
        return False
    codes, pairs = groups.codes.reshape(-1), list(pairwise(_edges(chunks[labelled[0]], shape[labelled[0]])))
    return sum(len(np.unique(codes[a:b])) for a, b in pairs) <= 2 * len(pairs)


def _cut(chunks: Sequence[int] | int, size: int, most: int) -> Sequence[slice]:
    """Spans of whole chunks, of `most` items at most; parts of a chunk that is longer."""
    if isinstance(chunks, int) and (most % chunks == 0 or chunks % most == 0):
        return Even(size, most)
    spans: list[slice] = []
    for first, last in pairwise(_edges(chunks, size)):
        if spans and last - spans[-1].start <= most:
            spans[-1] = slice(spans[-1].start, last)
        else:
            spans += [slice(at, min(at + most, last)) for at in range(first, last, most)]
    return tuple(spans)

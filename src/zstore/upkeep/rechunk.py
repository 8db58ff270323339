"""An array written anew with other chunks or codecs, in units that memory holds, and compared afterwards.

A unit owns the chunks that it writes. It can be made without any other, in any order, and twice: it comes out
the same. A chunk is there as a whole, or not at all, so that what is stored is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.engine.pool import map_threads, thread_count
from zstore.errors import CodecError, NotFoundError, StoreError, UnsupportedError
from zstore.jobs.plan import Estimate, Plan, Unit
from zstore.jobs.runner import Runner
from zstore.model.grid import RegularGrid
from zstore.nodes.request import ArrayRequest
from zstore.storage.base import Store, join_key
from zstore.upkeep.chunks import REQUEST_COUNT, Box, Cell, StoredArray, overlap, same_items
from zstore.upkeep.rechunk_plan import Passes, Shape, Side, edges, plan_passes

# Which chunks there are is kept as a byte for each, where a grid has no more of them than this.
MASK_SIZE = 1 << 27
PLACES_COUNT = 1 << 16

# Takes how many more chunks are done.
Done = Callable[[int], None]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Cells:
    """Some chunks of an array: those of a grid that are given, or all of them (None)."""

    def __init__(self, counts: Shape, cells: Iterable[Cell] | None) -> None:
        self.counts = counts
        self._is_all = cells is None
        self._mask: Mask | None = None
        self._set = set[Cell]()
        if cells is not None and prod(counts) > MASK_SIZE:
            self._set = set(cells)
        elif cells is not None:
            self._mask = np.zeros(counts, bool)
            for cell in cells:
                self._mask[cell] = True

    @classmethod
    def stored(cls, array: StoredArray) -> Cells:
        """The stored chunks that lie in the array; all, where the store cannot list."""
        stored = array.stored()
        return cls(array.counts, None if stored is None else filter(array.holds, stored))

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

    def spread(self, array: StoredArray, other: StoredArray) -> Cells:
        """The chunks of the other array that hold something of these, which are chunks of the first."""
        if array.model.grid == other.model.grid:
            return self
        if self._is_all:
            return Cells(other.counts, None)
        made = Cells(other.counts, ())
        if self._mask is None or made._mask is None:
            boxes = map(array.box, self)
            touched = (product(*(overlap(other, d, part) for d, part in enumerate(box))) for box in boxes)
            return Cells(other.counts, (cell for cells in touched for cell in cells))
        mask = self._mask
        for axis in range(mask.ndim):
            mask = _reduce(mask, axis, _spans(array, other, axis))
        made._mask = mask
        return made

    def units(self, counts: Shape) -> Iterator[Unit]:
        """The units of so many chunks along each axis in which some of these lie, in order."""
        if self._is_all:
            return product(*(range(-(-most // n)) for most, n in zip(self.counts, counts, strict=True)))
        if self._mask is None:
            units = {tuple(p // n for p, n in zip(cell, counts, strict=True)) for cell in self._set}
            return iter(sorted(units))
        mask = self._mask
        for axis, count in enumerate(counts):
            if mask.size:
                mask = np.logical_or.reduceat(mask, np.arange(0, mask.shape[axis], count), axis=axis)
        return _places(mask)

    def within(self, unit: Unit, counts: Shape) -> list[Cell]:
        """Those of these chunks that lie in a unit of so many along each axis."""
        first = [place * count for place, count in zip(unit, counts, strict=True)]
        sides = [range(a, min(a + n, most)) for a, n, most in zip(first, counts, self.counts, strict=True)]
        if self._mask is None:
            return [cell for cell in product(*sides) if self._is_all or cell in self._set]
        part = self._mask[tuple(slice(side.start, side.stop) for side in sides)]
        return [tuple(cell) for cell in (np.argwhere(part) + np.array(first, int)).tolist()]


def _places(mask: Mask) -> Iterator[Cell]:
    """Where a mask holds, in order."""
    found = np.argwhere(mask)
    for first in range(0, len(found), PLACES_COUNT):
        yield from map(tuple, found[first : first + PLACES_COUNT].tolist())


def _spans(array: StoredArray, other: StoredArray, axis: int) -> Any:
    """(first, last + 1) of the chunks of an array that each chunk of the other touches along an axis."""
    length = array.model.shape[axis]
    old, new = (edges(one.model.grid, axis, length) for one in (array, other))
    first = np.searchsorted(old, new[:-1], side="right") - 1
    return np.stack([first, np.searchsorted(old, new[1:], side="left")], 1)


def _reduce(mask: Mask, axis: int, spans: Any) -> Mask:
    """Whether there is anything in each of the spans along an axis."""
    if not mask.size or not len(spans):
        return np.zeros((*mask.shape[:axis], len(spans), *mask.shape[axis + 1 :]), bool)
    # Of pairs of places, the stretch from the first to the second is wanted; one may lie past the end.
    room = np.zeros((*mask.shape[:axis], 1, *mask.shape[axis + 1 :]), bool)
    padded = np.concatenate([mask, room], axis)
    made = np.logical_or.reduceat(padded, spans.reshape(-1), axis=axis)
    return made[(slice(None),) * axis + (slice(None, None, 2),)]


# What is to be done


class Rechunking(NamedTuple):
    """An array that gets other chunks or codecs: from, to, which chunks will be there, and how."""

    source: StoredArray
    target: StoredArray
    touched: Cells
    passes: Passes

    def arrays(self, store: Store, path: str) -> list[StoredArray]:
        """The source, the scratch arrays below a place, and the target: each is made of the one before."""
        between = [
            _scratch(self.source, shape, store, join_key(path, "x".join(map(str, shape))))
            for shape in self.passes.scratches
        ]
        return [self.source, *between, self.target]

    @property
    def chunk_count(self) -> int:
        """How many chunks will be written, those of scratch arrays too."""
        between = self.arrays(self.source.store, "")[1:]
        return sum(len(self.touched.spread(self.target, array)) for array in between)

    @property
    def raw_size(self) -> int:
        """Bytes that are stored as they are, here and between; what codecs leave of others is not known."""
        codecs = self.target.codecs
        size = 0 if codecs is None or _compressing(codecs) else len(self.touched) * self.target.chunk_size
        return size + self.passes.scratch_size

    def estimate(self) -> Estimate:
        """What it takes."""
        steps, target = self.passes.steps, self.target
        share = len(self.touched) / max(1, prod(target.counts))
        whole = prod(target.model.shape) * target.item_size
        return Estimate(
            unit_count=sum(step.unit_count for step in steps),
            read_size=self.passes.decoded_size,
            write_size=round(share * whole) + self.passes.scratch_size,
            request_count=sum(step.read_count + step.write_count for step in steps),
            memory_size=self.passes.memory * _at_once(self.source, target),
            scratch_size=self.passes.scratch_size,
        )


def plan_rechunk(
    source: StoredArray, target: StoredArray, memory: int, *, is_firm: bool, scratch_size: int
) -> Rechunking:
    """What is to be done for an array to become another.

    is_firm       whether more memory is refused rather than taken, where less than a chunk fits
    scratch_size  bytes that there is room for between source and target

    Raises
        MetadataError: `memory` is firm, and holds no chunk.
    """
    room = 0 if source.model.data_type.is_object else scratch_size
    try:
        if room:
            _scratch(source, source.model.shape, source.store, "")
    except UnsupportedError:
        room = 0
    passes = plan_passes(
        _side(source),
        _side(target),
        memory // _at_once(source, target),
        is_firm=is_firm,
        threads=thread_count(),
        scratch_size=room,
        copies=1 if _same_dtype(source, target) else 2,
    )
    return Rechunking(source, target, Cells.stored(source).spread(source, target), passes)


def _side(array: StoredArray) -> Side:
    """An array as far as its cost goes."""
    model, pieces, codecs = array.model, array.piece_shape, array.codecs
    return Side(
        shape=model.shape,
        grid=model.grid,
        pieces=model.grid if pieces is None else RegularGrid(pieces),
        item_size=array.item_size,
        codec="python" if codecs is None else " ".join(_compressing(codecs)),
        is_near=array.store.request_count == 1,
        is_native=codecs is not None,
    )


def _compressing(codecs: tuple[str, ...]) -> list[str]:
    return [name for name in codecs if name not in ("bytes", "crc32c")]


def _same_dtype(source: StoredArray, target: StoredArray) -> bool:
    return source.model.dtype.kind in "OT" or source.model.dtype == target.model.dtype


def _at_once(source: StoredArray, target: StoredArray) -> int:
    """How many units are made at a time: where one waits for a store, the other keeps the threads busy."""
    return 1 if max(source.store.request_count, target.store.request_count) == 1 else 2


def _scratch(source: StoredArray, shape: Shape, store: Store, path: str) -> StoredArray:
    """An array of the same items in chunks of that shape, as they are in memory; not made yet."""
    model = ArrayRequest(
        shape=source.model.shape,
        dtype=source.model.data_type,
        chunks=tuple(max(1, n) for n in shape),
        compressors=None,
        zarr_format=3,
    ).model()
    return StoredArray(store, path, replace(model, fill_value=source.model.effective_fill_value))


# Doing it


def rechunk(
    job: Rechunking, place: tuple[Store, str] | None, runner: Runner, name: str, done: Done, *, keeps: bool
) -> None:
    """Write the chunks of the target that hold something that is stored; `keeps` leaves those there are.

    place  of scratch arrays; None where the plan has none
    name   of the array's plans in the runner's journal

    Raises
        CodecError: a chunk of the source is damaged, or one cannot be encoded.
        StoreError: one of the stores failed, or lost what lies between source and target.
    """
    store, path = place or (job.source.store, "")
    path = join_key(path, name)
    arrays = job.arrays(store, path)
    plans = [
        Recoding(
            old,
            new,
            job.touched.spread(job.target, new),
            step.counts,
            step.length,
            keeps=keeps,
            is_scratch=old is not job.source,
        )
        for old, new, step in zip(arrays, arrays[1:], job.passes.steps, strict=False)
    ]
    for number, plan in enumerate(plans):
        # What nothing is left to be made of is not made again.
        wanted = plans[-1].left().spread(job.target, plan.target) if keeps and len(plans) > 1 else None
        runner.run(
            plan,
            f"{name}-{number}",
            lambda _, count: done(count),
            known=partial(plan.known, wanted),
            most=_at_once(plan.source, plan.target),
        )
    if job.passes.scratches:
        store.delete_prefix(path)


class _Memory:
    """The memory of units that are done, for the next ones; it does not travel."""

    def __init__(self) -> None:
        self.spare: list[np.ndarray[Any, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _Memory, ()


@dataclass(frozen=True)
class _Units(Plan[int]):
    """The units of one reading of an array: boxes of chunks of another, of which only some are wanted.

    counts  chunks of a unit along each axis
    """

    source: StoredArray
    target: StoredArray
    cells: Cells
    counts: Shape

    def units(self) -> Iterator[Unit]:
        """Those in which chunks are wanted."""
        return self.cells.units(self.counts)

    def count(self, unit: Unit) -> int:
        """How many chunks of a unit are wanted: what it gives back."""
        return len(self.cells.within(unit, self.counts))

    def pack(self, result: int) -> bytes:
        return b""

    def unpack(self, unit: Unit, data: bytes) -> int:
        return self.count(unit)


@dataclass(frozen=True)
class Recoding(_Units):
    """One pass: units are read from an array and written into the other, whose chunks are not there yet.

    length  items of the largest unit
    keeps   whether chunks may be there that an interrupted pass has left, which stay
    is_scratch  whether the array that is read is one that the pass before has written
    """

    length: int
    keeps: bool
    is_scratch: bool = False
    memory: _Memory = field(default_factory=_Memory, compare=False)

    def holds(self, unit: Unit) -> bool:
        """Whether all chunks of a unit are stored."""
        return not self._left(unit)

    def known(self, wanted: Cells | None, unit: Unit) -> int | None:
        """What a unit gives back of which none of the wanted chunks lies in it; None for the others."""
        return None if wanted is None or wanted.within(unit, self.counts) else self.count(unit)

    def left(self) -> Cells:
        """The chunks that are not stored."""
        return Cells(self.cells.counts, (cell for unit in self.units() for cell in self._left(unit)))

    def make(self, unit: Unit) -> int:
        """Write the chunks of a unit."""
        source, target = self.source, self.target
        cells = self._left(unit) if self.keeps else self.cells.within(unit, self.counts)
        if not cells:
            return self.count(unit)
        whole, parts = _around(target, cells)
        shape = [part.stop - part.start for part in whole]
        if source.model.dtype.kind in "OT":
            memory = np.empty(prod(shape), source.model.dtype)
        else:
            spare = self.memory.spare
            memory = spare.pop() if spare else np.empty(max(self.length, prod(shape)), source.model.dtype)
        items = self._read(whole, cells, memory[: prod(shape)].reshape(shape))
        if not _same_dtype(source, target):
            items = items.astype(target.model.dtype)
        if len(cells) == prod(len(overlap(target, d, part)) for d, part in enumerate(whole)):
            target.write(whole, items)
        else:
            for cell, part in zip(cells, parts, strict=True):
                target.write(target.box(cell), items[part])
        if source.model.dtype.kind not in "OT":
            self.memory.spare.append(memory)
        return self.count(unit)

    def _read(self, whole: Box, cells: list[Cell], out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The items of a box around chunks; of a scratch array, no chunk that they need may be missing."""
        source, target = self.source, self.target
        if not self.is_scratch:
            return source.read_once(whole, out)
        try:
            return source.read_once(whole, out, missing_is_fault=True)
        except NotFoundError:
            boxes = [target.box(cell) for cell in cells]
            needed = {
                cell
                for box in boxes
                for cell in product(*(overlap(source, d, part) for d, part in enumerate(box)))
            }
            lost = next((key for key in map(source.key, sorted(needed)) if not source.store.size(key)), None)
            if lost is not None:
                raise StoreError(
                    "what lies between source and target was removed meanwhile; resume makes it again",
                    path=source.store.url,
                    key=lost,
                ) from None
        # What is missing lies between the chunks that are wanted.
        return source.read_once(whole, out)

    def _left(self, unit: Unit) -> list[Cell]:
        """The chunks of a unit that are not stored; a file that is empty is what a power cut left of one."""
        size, key = self.target.store.size, self.target.key
        cells = self.cells.within(unit, self.counts)
        sizes = map_threads(lambda cell: size(key(cell)), cells, waiting_count=self._requests())
        return [cell for cell, stored in zip(cells, sizes, strict=True) if not stored]

    def _requests(self) -> int | None:
        count = min(REQUEST_COUNT, self.target.store.request_count)
        return count if count > 1 else 1


def _around(target: StoredArray, cells: list[Cell]) -> tuple[Box, list[Box]]:
    """The box around these chunks, and where in it each of them lies."""
    boxes = [target.box(cell) for cell in cells]
    whole = tuple(
        slice(min(part.start for part in parts), max(part.stop for part in parts))
        for parts in zip(*boxes, strict=True)
    )
    inside = [
        tuple(slice(p.start - w.start, p.stop - w.start) for p, w in zip(box, whole, strict=True))
        for box in boxes
    ]
    return whole, inside


# Comparing


class _Comparing(_Units):
    """Units of two arrays that are read and compared."""

    def make(self, unit: Unit) -> int:
        """Raise where an item of a unit differs."""
        source, target = self.source, self.target
        cells = self.cells.within(unit, self.counts)
        whole, parts = _around(target, cells)
        old, new = source.read_once(whole), target.read_once(whole)
        for cell, part in zip(cells, parts, strict=True):
            if not same_items(old[part], new[part]):
                raise CodecError(
                    f"chunk differs from {join_key(source.store.url, source.path)!r}, which it was made from",
                    path=target.store.url,
                    key=target.key(cell),
                )
        return len(cells)


def compare(source: StoredArray, target: StoredArray, memory: int, done: Done) -> None:
    """Read both and raise where an item differs, bit for bit.

    Raises
        CodecError: a chunk of the target says something else than the source.
    """
    at_once = _at_once(source, target)
    sides = _side(source), _side(target)
    passes = plan_passes(*sides, memory // at_once, is_firm=False, threads=thread_count(), copies=2)
    # Chunks that are stored on one side only must read as the other side's fill value.
    cells = Cells.stored(source).spread(source, target) | Cells.stored(target)
    plan = _Comparing(source, target, cells, passes.steps[0].counts)
    with Runner(most=at_once) as runner:
        runner.run(plan, "compare", lambda _, count: done(count))

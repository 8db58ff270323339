"""An array written anew with other chunks, codecs or keys, in units that memory holds; and compared.

A unit owns the chunks that it writes. It can be made without any other, in any order, in any process, and
twice: it comes out the same. A chunk is there as a whole, or not at all: who goes on makes of each unit what
one listing of the target does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.engine.pool import map_threads, thread_count
from zstore.errors import ChangedError, CodecError, NotFoundError, StoreError, UnsupportedError
from zstore.jobs.parts import current_part
from zstore.jobs.plan import Estimate, Plan, Unit
from zstore.jobs.runner import Executor, Runner
from zstore.model.grid import RegularGrid
from zstore.nodes.request import ArrayRequest
from zstore.storage.base import Store, join_key
from zstore.upkeep.cells import Cells, Stored, cells_of
from zstore.upkeep.chunks import MEMORY_SIZE, REQUEST_COUNT, Box, Cell, StoredArray, same_items
from zstore.upkeep.rechunk_plan import Passes, Room, Shape, Side, plan_passes

# Chunks that keep their bytes are copied by so many, or so many bytes of them; and so many units at a time.
COPY_COUNT = 256
COPY_SIZE = 32 << 20
COPIES_AT_ONCE = 2
# What lies between arrays is compressed like this, where room or distance make that worth it.
QUICK = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "blocksize": 0},
}

# Takes how many more chunks are done.
Done = Callable[[int], None]


# What is to be done


class Copying(NamedTuple):
    """An array whose chunks keep their bytes: from, to, what there is, and how many units at a time."""

    source: StoredArray
    target: StoredArray
    stored: Stored
    most: int | None

    @property
    def chunk_count(self) -> int:
        """How many chunks will be written, where all are stored that may be."""
        return len(self.stored.cells)

    @property
    def raw_size(self) -> int:
        """Bytes that are stored as they are."""
        return self.stored.size

    @property
    def whole_size(self) -> int:
        """Bytes that are written, before they are encoded."""
        return self.raw_size

    def plan(self, left: Cells) -> CopyPlan:
        """The chunks in units of about as many bytes, of which some are left."""
        size = self.stored.size // max(1, self.chunk_count) or self.source.chunk_size
        room, counts = max(1, min(COPY_COUNT, COPY_SIZE // size)), list[int]()
        for most in reversed(self.source.counts):
            counts.insert(0, max(1, min(room, most)))
            room //= counts[0]
        is_listed = bool(self.stored.version)
        return CopyPlan(self.source, self.target, self.stored.cells, left, tuple(counts), is_listed)

    def estimate(self) -> Estimate:
        """What it takes; nothing is decoded."""
        return Estimate(
            unit_count=sum(1 for _ in self.plan(self.stored.cells).units()),
            read_size=0,
            write_size=self.stored.size,
            request_count=2 * self.chunk_count,
        )


class Rechunking(NamedTuple):
    """An array that gets other chunks or codecs: from, to, which chunks will be there, and how.

    most  how many units are made at a time, each with an equal part of the memory; None: each with all of it,
          by an executor
    """

    source: StoredArray
    target: StoredArray
    stored: Stored
    touched: Cells
    passes: Passes
    most: int | None

    def arrays(self, store: Store, path: str) -> list[StoredArray]:
        """The source, the scratch arrays below a place, and the target: each is made of the one before."""
        between = [
            _scratch(self.source, shape, store, join_key(path, "x".join(map(str, shape))), self.passes.codec)
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
        """Bytes that are stored as they are in the target; what codecs leave of others is not known."""
        codecs = self.target.codecs
        return 0 if codecs is None or _compressing(codecs) else self.whole_size

    @property
    def whole_size(self) -> int:
        """Bytes that are written, before they are encoded."""
        return len(self.touched) * self.target.chunk_size

    def chunk_by_chunk(self, target: StoredArray) -> Recoding:
        """A plan with a unit for each chunk, which are stored as those of another array."""
        model = target.model
        counts = (1,) * model.ndim
        return Recoding(self.source, target, self.touched, self.touched, counts, prod(model.grid.chunk_shape))

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
            memory_size=self.passes.memory * (self.most or 1),
            scratch_size=self.passes.scratch_size,
        )


def plan_rechunk(
    source: StoredArray,
    target: StoredArray,
    memory: int,
    *,
    is_firm: bool,
    rooms: Sequence[Room] = (),
    is_shared: bool = False,
) -> Rechunking:
    """What is to be done for an array to become another.

    is_firm    whether more memory is refused rather than taken, where less than a chunk fits
    rooms      where a scratch array may lie between source and target, the first that has room for it
    is_shared  whether an executor makes the units, each in that memory; parts of a job are cut alike
                without one

    Raises
        MetadataError: `memory` is firm, and holds no chunk.
    """
    if source.model.data_type.is_object:
        rooms = ()
    try:
        _scratch(source, source.model.shape, source.store, "")
    except UnsupportedError:
        rooms = ()
    stored = Stored.find(source)
    at_once = _at_once(source, target)
    passes = plan_passes(
        _side(source),
        _side(target),
        memory if is_shared and current_part() is None else memory // at_once,
        is_firm=is_firm,
        threads=thread_count(),
        rooms=rooms,
        ratio=stored.size / max(1, len(stored.cells) * source.chunk_size),
        copies=1 if _same_dtype(source, target) else 2,
    )
    most = None if is_shared else at_once
    return Rechunking(source, target, stored, stored.cells.spread(source, target), passes, most)


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


def _scratch(source: StoredArray, shape: Shape, store: Store, path: str, codec: str = "") -> StoredArray:
    """An array of the same items in chunks of that shape, as they are in memory or quickly compressed."""
    model = ArrayRequest(
        shape=source.model.shape,
        dtype=source.model.data_type,
        chunks=tuple(max(1, n) for n in shape),
        compressors=QUICK if codec else None,
        zarr_format=3,
    ).model()
    return StoredArray(store, path, replace(model, fill_value=source.model.effective_fill_value))


# Doing it


def carry_out(
    work: Copying | Rechunking,
    place: tuple[Store, str],
    runner: Runner,
    name: str,
    done: Done,
    *,
    keeps: bool,
) -> None:
    """Write the chunks of the target that hold something that is stored; `keeps` leaves those there are.

    place  of scratch arrays, where there are any
    name   of the array's plans in the runner's journal

    Raises
        ChangedError: a chunk was removed from the source.
        CodecError: a chunk of the source is damaged, or one cannot be encoded.
        StoreError: one of the stores failed, or lost what lies between source and target.
    """
    for number, plan in enumerate(plans(work, place, done, keeps=keeps)):
        # Units of other sizes have other numbers.
        own = f"{name}-{number}-{'x'.join(map(str, plan.counts))}"
        runner.run(plan, own, lambda _, count: done(count), known=plan.known, most=work.most)
    if isinstance(work, Rechunking) and work.passes.scratches and not runner.is_part:
        place[0].delete_prefix(place[1])


def plans(
    work: Copying | Rechunking, place: tuple[Store, str], done: Done, *, keeps: bool
) -> Iterator[_Units]:
    """The passes, each to be made before the next is asked for; `done` takes what is not made again."""

    def left(cells: Cells, of: Cells, array: StoredArray) -> Cells:
        # A file that is empty is what a power cut left of one.
        found = cells - Stored.find(array, least=1).cells if keeps else cells
        done(len(of) - len(found))
        return found

    target = work.target
    if isinstance(work, Copying):
        yield work.plan(left(work.stored.cells, work.stored.cells, target))
        return
    arrays, ends = work.arrays(*place), work.touched
    if keeps and work.passes.scratches:
        ends = ends - Stored.find(target, least=1).cells
    for old, new, step in zip(arrays, arrays[1:], work.passes.steps, strict=False):
        cells = work.touched.spread(target, new)
        # What nothing is left to be made of is not made again.
        rest = left(ends.spread(target, new), cells, new)
        yield Recoding(old, new, cells, rest, step.counts, step.length, is_scratch=old is not work.source)


class _Memory:
    """The memory of units that are done, for the next ones; it does not travel."""

    def __init__(self) -> None:
        self.spare: list[np.ndarray[Any, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _Memory, ()


@dataclass(frozen=True)
class _Units(Plan[int]):
    """The units of one reading of an array: boxes of chunks of another, of which each names those left.

    cells   all that are wanted; like those of them that are `left`, they do not travel
    counts  chunks of a unit along each axis
    """

    source: StoredArray
    target: StoredArray
    cells: Cells
    left: Cells
    counts: Shape

    def __getstate__(self) -> dict[str, Any]:
        none = Cells((), ())
        return {**self.__dict__, "cells": none, "left": none}

    def units(self) -> Iterator[Unit]:
        """Those in which chunks are wanted, whatever is left: they keep their numbers."""
        return self.cells.units(self.counts, self.left)

    def known(self, unit: Unit) -> int | None:
        """What a unit gives back that has nothing left."""
        return None if unit[-1] else 0

    def unpack(self, unit: Unit, data: bytes) -> int:
        return len(self.cells_of(unit))

    def cells_of(self, unit: Unit) -> list[Cell]:
        """The chunks that are left of a unit."""
        return cells_of(unit, self.counts, self.target.counts)

    def holds(self, unit: Unit, result: int) -> bool:
        """Whether the chunks that were left of a unit are stored."""
        return all(self.target.store.size(self.target.key(cell)) for cell in self.cells_of(unit))


@dataclass(frozen=True)
class CopyPlan(_Units):
    """Chunks that are put under their keys of another array, byte for byte.

    is_listed  whether the source has said that each of them is there
    """

    is_listed: bool = True

    def make(self, unit: Unit) -> int:
        """Put the chunks of a unit; gives how many."""
        source, target = self.source, self.target

        def copy(cell: Cell) -> None:
            key = source.key(cell)
            if target.store.copy_from(target.key(cell), source.store, key):
                return
            data = source.store.get(key)
            if data is not None:
                target.store.put(target.key(cell), data)
            elif self.is_listed:
                raise ChangedError("the chunk was removed meanwhile", path=source.store.url, key=key)

        cells = self.cells_of(unit)
        remote = max(min(REQUEST_COUNT, one.store.request_count) for one in (source, target))
        most = min(max(thread_count(), remote), MEMORY_SIZE // source.chunk_size) // COPIES_AT_ONCE
        map_threads(copy, cells, waiting_count=max(1, most))
        return len(cells)


@dataclass(frozen=True)
class Recoding(_Units):
    """One pass: units are read from an array and written into the other, whose chunks are not there yet.

    length  items of the largest unit
    is_scratch  whether the array that is read is one that the pass before has written
    """

    length: int
    is_scratch: bool = False
    memory: _Memory = field(default_factory=_Memory, compare=False)

    def make(self, unit: Unit) -> int:
        """Write the chunks of a unit; gives how many."""
        source, target = self.source, self.target
        cells = self.cells_of(unit)
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
        if len(cells) == target.count(whole):
            target.write(whole, items)
        else:
            for cell, part in zip(cells, parts, strict=True):
                target.write(target.box(cell), items[part])
        if source.model.dtype.kind not in "OT":
            self.memory.spare.append(memory)
        return len(cells)

    def _read(self, whole: Box, cells: list[Cell], out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The items of a box around chunks; of a scratch array, no chunk that they need may be missing."""
        source, target = self.source, self.target
        if not self.is_scratch:
            return source.read_once(whole, out)
        try:
            return source.read_once(whole, out, missing_is_fault=True)
        except NotFoundError:
            boxes = [target.box(cell) for cell in cells]
            needed = {cell for box in boxes for cell in source.cells(box)}
            lost = next((key for key in map(source.key, sorted(needed)) if not source.store.size(key)), None)
            if lost is not None:
                raise StoreError(
                    "what lies between source and target was removed meanwhile; resume makes it again",
                    path=source.store.url,
                    key=lost,
                ) from None
        # What is missing lies between the chunks that are wanted.
        return source.read_once(whole, out)


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
        cells = self.cells_of(unit)
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


def compare(
    source: StoredArray, target: StoredArray, memory: int, executor: Executor | None, done: Done
) -> None:
    """Read both and raise where an item differs, bit for bit.

    Raises
        CodecError: a chunk of the target says something else than the source.
    """
    most = None if executor is not None else _at_once(source, target)
    sides = _side(source), _side(target)
    passes = plan_passes(*sides, memory // (most or 1), is_firm=False, threads=thread_count(), copies=2)
    # Chunks that are stored on one side only must read as the other side's fill value.
    cells = Stored.find(source).cells.spread(source, target) | Stored.find(target).cells
    plan = _Comparing(source, target, cells, cells, passes.steps[0].counts)
    with Runner(executor, most=most) as runner:
        runner.run(plan, "", lambda _, count: done(count))

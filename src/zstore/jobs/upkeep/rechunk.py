"""Rechunking: an array written anew with other chunks, codecs or keys, in units that memory holds.

Each unit writes chunks of its own, so units can be made in any order, in any process, and twice. A chunk is
stored as a whole or not at all: what a listing of the target does not have is what an interruption left.
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
from zstore.jobs.upkeep.cells import Cells, Stored, cells_of
from zstore.jobs.upkeep.chunks import MEMORY_SIZE, REQUEST_COUNT, Box, Cell, StoredArray, same_items
from zstore.jobs.upkeep.rechunk_plan import Passes, Room, Shape, Side, plan_passes
from zstore.model.grid import RegularGrid
from zstore.nodes.request import ArrayRequest
from zstore.storage.base import Store, join_key

# Of chunks that keep their bytes, a unit has so many, or so many bytes; and so many units are made at a time.
COPY_COUNT = 256
COPY_SIZE = 32 << 20
COPIES_AT_ONCE = 2
# How scratch arrays are compressed, where they would not fit otherwise or lie in a bucket.
QUICK = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "blocksize": 0},
}

# Called with how many more chunks are done.
Done = Callable[[int], None]


# What is to be done


class Copying(NamedTuple):
    """The work on an array whose chunks keep their bytes; `most` is how many units are made at a time."""

    source: StoredArray
    target: StoredArray
    stored: Stored
    most: int | None

    @property
    def chunk_count(self) -> int:
        """How many chunks are copied; where the source cannot list, all of the grid count."""
        return len(self.stored.cells)

    @property
    def raw_size(self) -> int:
        """The bytes of the chunks, which are stored unchanged."""
        return self.stored.size

    @property
    def whole_size(self) -> int:
        """Bytes that are written, before they are encoded."""
        return self.raw_size

    def plan(self, left: Cells) -> CopyPlan:
        """The plan, in units of about equal bytes; `left` are the chunks that are not yet in the target."""
        size = self.stored.size // max(1, self.chunk_count) or self.source.chunk_size
        room, counts = max(1, min(COPY_COUNT, COPY_SIZE // size)), list[int]()
        for most in reversed(self.source.counts):
            counts.insert(0, max(1, min(room, most)))
            room //= counts[0]
        is_listed = bool(self.stored.version)
        return CopyPlan(self.source, self.target, self.stored.cells, left, tuple(counts), is_listed)

    def estimate(self) -> Estimate:
        """The estimate of the work; nothing is decoded."""
        return Estimate(
            unit_count=sum(1 for _ in self.plan(self.stored.cells).units()),
            read_size=0,
            write_size=self.stored.size,
            request_count=2 * self.chunk_count,
        )


class Rechunking(NamedTuple):
    """The work on an array that gets other chunks or codecs.

    touched  the chunks of the target that will be stored
    passes   how they are made
    most     how many units are made at a time, each with an equal part of the memory; None: an executor
             makes them, each with all of it
    """

    source: StoredArray
    target: StoredArray
    stored: Stored
    touched: Cells
    passes: Passes
    most: int | None

    def arrays(self, store: Store, path: str) -> list[StoredArray]:
        """The source, the scratch arrays below a path, and the target; each is made of the one before it."""
        between = [
            _scratch(self.source, shape, store, join_key(path, "x".join(map(str, shape))), self.passes.codec)
            for shape in self.passes.scratches
        ]
        return [self.source, *between, self.target]

    @property
    def chunk_count(self) -> int:
        """How many chunks are written, scratch arrays included."""
        between = self.arrays(self.source.store, "")[1:]
        return sum(len(self.touched.spread(self.target, array)) for array in between)

    @property
    def raw_size(self) -> int:
        """The bytes of the target's chunks where they are not compressed; else 0: the size is not known."""
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
        """The estimate of the work."""
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
    """The work that makes the target array of the source array.

    is_firm    whether `memory` that does not hold one chunk is an error, rather than exceeded
    rooms      where a scratch array may lie; the first with enough room is taken
    is_shared  whether an executor makes the units, each with all of the memory; parts of a job get the same
               units without one

    Raises
        MetadataError: `is_firm`, and the memory holds no chunk.
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
    """What the cost of reading or writing an array depends on."""
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
    """How many units are made at a time: two with a remote store, so that one works while the other waits."""
    return 1 if max(source.store.request_count, target.store.request_count) == 1 else 2


def _scratch(source: StoredArray, shape: Shape, store: Store, path: str, codec: str = "") -> StoredArray:
    """A scratch array for the items of the source in chunks of a shape, uncompressed or fast to compress."""
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
    """Write the target's chunks, as far as the source has chunks there.

    place  where scratch arrays lie, if there are any
    name   the name of the array's plans in the runner's journal
    keeps  whether chunks that the target has are kept, not written again

    Raises
        ChangedError: a chunk was removed from the source.
        CodecError: a chunk of the source is damaged, or one cannot be encoded.
        StoreError: one of the stores failed, or lost a scratch array.
    """
    for number, plan in enumerate(plans(work, place, done, keeps=keeps)):
        # Plans with units of other sizes have other names.
        own = f"{name}-{number}-{'x'.join(map(str, plan.counts))}"
        runner.run(plan, own, lambda _, count: done(count), known=plan.known, most=work.most)
    if isinstance(work, Rechunking) and work.passes.scratches and not runner.is_part:
        place[0].delete_prefix(place[1])


def plans(
    work: Copying | Rechunking, place: tuple[Store, str], done: Done, *, keeps: bool
) -> Iterator[_Units]:
    """The plan of each pass, to be carried out before the next; `done` is told of chunks that are kept."""

    def left(cells: Cells, of: Cells, array: StoredArray) -> Cells:
        # An empty file is what a power cut leaves of a chunk.
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
        # Scratch chunks are made only where chunks of the target are left to be made of them.
        rest = left(ends.spread(target, new), cells, new)
        yield Recoding(old, new, cells, rest, step.counts, step.length, is_scratch=old is not work.source)


class _Memory:
    """Buffers of finished units, for the next ones; they are not sent to other processes."""

    def __init__(self) -> None:
        self.spare: list[np.ndarray[Any, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _Memory, ()


@dataclass(frozen=True)
class _Units(Plan[int]):
    """The units of one pass: boxes of chunks of the target, each of which names the chunks that are left.

    cells   the chunks that are wanted; these and `left` are not sent to other processes
    left    those of them that are still to be made
    counts  how many chunks a unit has along each axis
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
        """All units with wanted chunks, whether any is left or not: so the numbers of units stay the same."""
        return self.cells.units(self.counts, self.left)

    def known(self, unit: Unit) -> int | None:
        """0, the result of a unit of which nothing is left; None of others."""
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
    """The plan of a copy of chunks, byte for byte, to the keys that another array has for them.

    is_listed  whether the chunks were listed, so that each of them must be there
    """

    is_listed: bool = True

    def make(self, unit: Unit) -> int:
        """Copy the chunks of a unit; gives how many."""
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
    """The plan of a pass that decodes one array and encodes another.

    length      how many items the largest unit has
    is_scratch  whether the array that is read is a scratch array
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
        """The items of a box around chunks; the chunks of a scratch array that these need must be there."""
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
        # Only parts of the box between the chunks are missing.
        return source.read_once(whole, out)


def _around(target: StoredArray, cells: list[Cell]) -> tuple[Box, list[Box]]:
    """(the box around some chunks, the part of it that each chunk is)."""
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
    """The plan of a comparison of two arrays."""

    def make(self, unit: Unit) -> int:
        """Raise CodecError where an item of a unit differs."""
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
    """Read both arrays and compare their items, bit for bit.

    Raises
        CodecError: a chunk of the target differs from the source.
    """
    most = None if executor is not None else _at_once(source, target)
    sides = _side(source), _side(target)
    passes = plan_passes(*sides, memory // (most or 1), is_firm=False, threads=thread_count(), copies=2)
    # Chunks that only one array has must hold the other's fill value.
    cells = Stored.find(source).cells.spread(source, target) | Stored.find(target).cells
    plan = _Comparing(source, target, cells, cells, passes.steps[0].counts)
    with Runner(executor, most=most) as runner:
        runner.run(plan, "", lambda _, count: done(count))

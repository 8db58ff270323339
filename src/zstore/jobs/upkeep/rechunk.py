"""Arrays made from others: their chunks copied, or written with other chunks, codecs or keys.

A pass reads one array and writes another. Its units are boxes of whole chunks of the array that is written,
so no two units write the same chunk, and units can be made in any order, in any process, and twice. Where a
unit's box ends within a chunk of the array that is read, its neighbour decodes that chunk again. One pass
will do where few chunks are cut so, or codecs can decode parts. Otherwise all chunks are decoded once into a
scratch array with other chunks, uncompressed, of which parts are read cheaply; a second pass makes the target
of it.

A chunk is stored as a whole or not at all: chunks that a listing of the target lacks are still to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil, lcm, prod
from typing import Any, NamedTuple

import numpy as np

from zstore.base.boxes import Box, Shape, hull, inside, lengths
from zstore.base.system import memory_size
from zstore.engine.schedulers import map_threads, thread_count
from zstore.errors import ChangedError, CodecError, MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.jobs.chunks import Location, StoredArray, same_items, thread_count_for
from zstore.jobs.plan import Estimate, Plan, Unit, current_part, expect_size
from zstore.jobs.runner import Executor, Runner
from zstore.jobs.source import (
    UNKNOWN,
    Cell,
    ChunkSet,
    Marks,
    Source,
    StoredChunks,
    cells_of,
    held_marks,
)
from zstore.model.grid import Grid, RegularGrid
from zstore.nodes.create import ArrayRequest
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

# Of chunks that keep their bytes, a unit has so many, or so many bytes; and so many units are made at a time.
COPY_COUNT = 256
COPY_SIZE = 32 << 20
COPIES_AT_ONCE = 2
# A chunk that is made of more chunks of the source than this is not made to learn its encoded size.
SAMPLED_COUNT = 64
# How scratch arrays are compressed, where they would not fit otherwise or lie in a bucket.
QUICK = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "blocksize": 0},
}

# Assumed costs in nanoseconds. Decoding a byte, by codec; OTHER_DECODING for all others.
DECODING = {"": 0.15, "blosc": 0.6, "lz4": 0.5, "numcodecs.blosc": 0.6, "numcodecs.lz4": 0.5, "zstd": 1.2}
DECODING |= {"numcodecs.zstd": 1.2}
OTHER_DECODING = 4.0
# Writing a byte of a scratch array, a byte of new memory; reading a stretch of a file, opening a file.
SCRATCH_WRITING = 0.6
NEW_MEMORY = 2.0
STRETCH = 2_000.0
FILE = 30_000.0
# A stored byte from a store with latency, and a request to one.
DISTANCE = 10.0
REQUEST = 3_000_000.0
# Compressing a byte with lz4 for a scratch array; and how much larger it gets than with the source's codecs.
QUICK_ENCODING = 1.5
QUICK_RATIO = 1.5
# A unit in addition to its bytes, and encoding a byte.
UNIT = 500_000.0
ENCODING = 2.0
# The most ways to cut an array into units, and the most scratch arrays, that are compared.
WAYS = 200_000
SCRATCHES = 24
# The assumed stored size of a chunk, as a share of its decoded size.
STORED = 0.5
# Bytes that a unit holds beside its items where a store has latency: windows of encoded chunks.
WINDOWS_SIZE = 24 << 20


# Called with how many more chunks are done.
Done = Callable[[int], None]


# Copying or recoding one array


class Room(NamedTuple):
    """A store for scratch arrays.

    size       the bytes that fit there
    is_near    whether it is a disk of this machine
    store      None: it is planned for only
    is_target  whether it is the target's own store
    is_own     whether it is this user's directory for temporary files
    """

    size: float
    is_near: bool = True
    store: Store | None = None
    is_target: bool = False
    is_own: bool = False


class Transfer(NamedTuple):
    """The work that makes one array of another.

    stored  the chunks of the source; all, where it cannot list
    wanted  the chunks of the target that will be stored
    passes  how they are made; None: by copying the source's chunks, which keep their bytes
    most    how many units are made at a time, each with an equal share of the memory; None: an executor
            makes them, each with all of it
    """

    source: Source
    target: StoredArray
    stored: StoredChunks
    wanted: ChunkSet
    passes: Passes | None
    most: int | None

    @classmethod
    def copying(
        cls, source: Source, target: StoredArray, *, is_shared: bool = False, keeps_marks: bool = False
    ) -> Transfer:
        """The copy of all chunks, byte for byte; `is_shared`: an executor makes the units."""
        stored = source.listing(keeps_marks=keeps_marks)
        return cls(source, target, stored, stored.cells, None, None if is_shared else COPIES_AT_ONCE)

    @classmethod
    def recoding(
        cls,
        source: Source,
        target: StoredArray,
        memory: int,
        *,
        is_firm: bool,
        rooms: Sequence[Room] = (),
        is_shared: bool = False,
        keeps_marks: bool = False,
    ) -> Transfer:
        """The decoding of the source and encoding of the target, in boxes.

        is_firm    whether `memory` that does not hold one chunk is an error, rather than exceeded
        rooms      where a scratch array may lie; the first with enough room is taken
        is_shared  whether an executor makes the units, each with all of the memory; parts of a job get the
                   same units without one

        Raises
            MetadataError: `is_firm`, and the memory holds no chunk.
        """
        try:
            _scratch(source, source.shape, Location(target.store, ""))
        except UnsupportedError:
            rooms = ()
        if target.data_type.is_object:
            rooms = ()
        stored = source.listing(keeps_marks=keeps_marks)
        at_once = _at_once(source, target)
        passes = plan_passes(
            Side.of(source),
            Side.of(target),
            memory,
            shares=1 if is_shared and current_part() is None else at_once,
            is_firm=is_firm,
            threads=thread_count(),
            rooms=rooms,
            ratio=stored.size / max(1, len(stored.cells) * source.chunk_size),
            copies=1 if _same_dtype(source, target) else 2,
        )
        wanted = stored.cells.spread(source, target)
        return cls(source, target, stored, wanted, passes, None if is_shared else at_once)

    def of_changed(self, before: Marks) -> tuple[Transfer, Marks, ChunkSet]:
        """(the work for chunks whose marks have changed, the marks meanwhile, chunks that the target loses).

        before  the marks of the source's chunks when the target was made of them

        Raises
            ValueError: the source has no marks of chunks.
        """
        now, source, target = self.stored.marks, self.source, self.target
        if now is None:
            raise ValueError("no marks of chunks")
        held = held_marks(before, now)
        changed = ChunkSet(source.counts, [np.argwhere(held != now)]).spread(source, target)
        lost = changed - self.stored.cells.spread(source, target)
        return self._replace(wanted=changed - lost), np.where(held != now, UNKNOWN, held), lost

    @property
    def scratches(self) -> tuple[Shape, ...]:
        """The chunk shapes of the scratch arrays between source and target."""
        return () if self.passes is None else self.passes.scratches

    def arrays(self, scratch: Location) -> list[StoredArray]:
        """The scratch arrays below a path, in order, and the target; each is made from the one before it."""
        between = (
            _scratch(self.source, shape, scratch, self.passes.codec if self.passes else "")
            for shape in self.scratches
        )
        return [*between, self.target]

    @property
    def chunk_count(self) -> int:
        """The number of chunks that are written, those of scratch arrays included."""
        made = self.arrays(Location(self.target.store, ""))
        return sum(len(self.wanted.spread(self.target, array)) for array in made)

    @property
    def whole_size(self) -> int:
        """The bytes written to the target, before they are encoded."""
        return self.stored.size if self.passes is None else len(self.wanted) * self.target.chunk_size

    def least_size(self) -> float:
        """The least encoded bytes of the target's chunks; 0 if learning that would take long."""
        target = self.target
        if self.passes is None or (target.codecs is not None and not _compressing(target.codecs)):
            return self.whole_size
        if self.source.count(target.box((0,) * len(target.shape))) > SAMPLED_COUNT:
            return 0
        store, counts = MemoryStore(), (1,) * len(target.shape)
        length = prod(target.grid.chunk_shape)
        plan = Recoding(self.source, target.elsewhere(store), self.wanted, self.wanted, counts, length)
        return expect_size(plan, store)

    def estimate(self) -> Estimate:
        """The estimate of the work; nothing is decoded."""
        if self.passes is None:
            return Estimate(
                unit_count=sum(1 for _ in self._copy(self.wanted).units()),
                read_size=0,
                write_size=self.stored.size,
                request_count=2 * self.chunk_count,
            )
        steps, target = self.passes.steps, self.target
        share = len(self.wanted) / max(1, prod(target.counts))
        whole = prod(target.shape) * target.item_size
        return Estimate(
            unit_count=sum(step.unit_count for step in steps),
            read_size=self.passes.decoded_size,
            write_size=round(share * whole) + self.passes.scratch_size,
            request_count=sum(step.read_count + step.write_count for step in steps),
            memory_size=self.passes.memory * (self.most or 1),
            scratch_size=self.passes.scratch_size,
        )

    def plans(self, scratch: Location, done: Done, *, keeps: bool) -> Iterator[_Units]:
        """The plan of each pass, to be carried out before the next one is asked for.

        keeps  whether chunks that the target has are kept, not made again; `done` is told of them
        """

        def left(cells: ChunkSet, of: ChunkSet, array: StoredArray) -> ChunkSet:
            # An empty file is what a power cut leaves of a chunk.
            rest = cells - array.listing(least=1).cells if keeps else cells
            done(len(of) - len(rest))
            return rest

        target = self.target
        if self.passes is None:
            yield self._copy(left(self.wanted, self.wanted, target))
            return
        ends, old = self.wanted, self.source
        if keeps and self.scratches:
            ends = ends - target.listing(least=1).cells
        for new, step in zip(self.arrays(scratch), self.passes.steps, strict=True):
            cells = self.wanted.spread(target, new)
            # Scratch chunks are made only where chunks of the target are left to be made of them.
            rest = left(ends.spread(target, new), cells, new)
            yield Recoding(old, new, cells, rest, step.counts, step.length)
            old = new

    def _copy(self, left: ChunkSet) -> CopyChunks:
        """The plan of copying the chunks that are `left`, in units of about equal bytes."""
        size = self.stored.size // max(1, len(self.wanted)) or self.source.chunk_size
        room, counts = max(1, min(COPY_COUNT, COPY_SIZE // size)), list[int]()
        for most in reversed(self.source.counts):
            counts.insert(0, max(1, min(room, most)))
            room //= counts[0]
        assert isinstance(self.source, StoredArray), "chunks have bytes where they are stored only"
        return CopyChunks(self.source, self.target, self.wanted, left, tuple(counts), self.stored.is_listed)

    def run(self, runner: Runner, name: str, scratch: Location, done: Done, *, keeps: bool) -> None:
        """Write the target's chunks for which the source has chunks.

        name     the name of the array's plans in the runner's journal
        scratch  where scratch arrays lie, if there are any
        keeps    whether chunks that the target has are kept, not made again

        Raises
            ChangedError: a chunk was removed from the source.
            CodecError: a chunk of the source is damaged, or one cannot be encoded.
            StoreError: one of the stores failed, or lost a scratch array.
        """
        for number, plan in enumerate(self.plans(scratch, done, keeps=keeps)):
            # Plans with units of other sizes have other names.
            own = f"{name}-{number}-{'x'.join(map(str, plan.counts))}"
            runner.run(plan, own, lambda _, count: done(count), known=plan.known, most=self.most)
        if self.scratches and not runner.is_part:
            scratch.store.delete_prefix(scratch.path)

    def compare(self, memory: int, executor: Executor | None, done: Done) -> None:
        """Read both arrays and compare their items, bit for bit.

        Raises
            CodecError: a chunk of the target differs from the source.
        """
        source, target = self.source, self.target
        most = None if executor is not None else _at_once(source, target)
        sides = Side.of(source), Side.of(target)
        passes = plan_passes(
            *sides, memory, shares=most or 1, is_firm=False, threads=thread_count(), copies=2
        )
        # Chunks that only one array has must hold the other's fill value.
        cells = source.listing().cells.spread(source, target) | target.listing().cells
        plan = _Comparison(source, target, cells, cells, passes.steps[0].counts)
        with Runner(executor, most=most) as runner:
            runner.run(plan, "", lambda _, count: done(count))


def _compressing(codecs: tuple[str, ...]) -> list[str]:
    return [name for name in codecs if name not in ("bytes", "crc32c")]


def _same_dtype(source: Source, target: Source) -> bool:
    return source.dtype.kind in "OT" or source.dtype == target.dtype


def _at_once(source: Source, target: Source) -> int:
    """The number of units at a time: two with a remote store, so that one works while the other waits."""
    return 1 if max(source.request_count, target.request_count) == 1 else 2


def _scratch(source: Source, shape: Shape, scratch: Location, codec: str = "") -> StoredArray:
    """A scratch array for the items of the source in chunks of a shape, uncompressed or fast to compress."""
    model = ArrayRequest(
        shape=source.shape,
        dtype=source.data_type,
        chunks=tuple(max(1, n) for n in shape),
        compressors=QUICK if codec else None,
        zarr_format=3,
    ).model()
    path, fill = scratch.key("x".join(map(str, shape))), source.fill_value
    model = model if fill is None else replace(model, fill_value=fill)
    return StoredArray(scratch.store, path, model, caches=False, missing_is_fault=True)


class _Buffers:
    """Buffers of finished units, for the next ones; they are not sent to other processes."""

    def __init__(self) -> None:
        self.spare: list[np.ndarray[Any, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _Buffers, ()


@dataclass(frozen=True)
class _Units(Plan[int]):
    """The units of one pass: boxes of the target's chunks, each with the chunks in it that are not done.

    cells   the chunks that are wanted; these and `left` are not sent to other processes
    left    those of them that are still to be made
    counts  how many chunks a unit has along each axis
    """

    source: Source
    target: StoredArray
    cells: ChunkSet
    left: ChunkSet
    counts: Shape

    def __getstate__(self) -> dict[str, Any]:
        none = ChunkSet((), ())
        return {**self.__dict__, "cells": none, "left": none}

    def units(self) -> Iterator[Unit]:
        """All units with wanted chunks, done or not, so that the numbers of units stay the same."""
        return self.cells.units(self.counts, self.left)

    def known(self, unit: Unit) -> int | None:
        """0, the result of a unit without remaining chunks; None for others."""
        return None if unit[-1] else 0

    def unpack(self, unit: Unit, data: bytes) -> int:
        return len(self.cells_of(unit))

    def cells_of(self, unit: Unit) -> list[Cell]:
        """The chunks of a unit that are not done."""
        return cells_of(unit, self.counts, self.target.counts)

    def holds(self, unit: Unit, result: int) -> bool:
        """Whether the chunks of a unit that were to be made are stored."""
        return all(self.target.store.size(self.target.key(cell)) for cell in self.cells_of(unit))


@dataclass(frozen=True)
class CopyChunks(_Units):
    """The plan of a copy of chunks, byte for byte, to the keys that another array has for them.

    source     an array whose chunks can be listed or asked for
    is_listed  whether the chunks were listed, so that each of them must be there
    """

    source: StoredArray
    is_listed: bool = True

    def make(self, unit: Unit) -> int:
        """Copy the chunks of a unit; returns their number."""
        source, target = self.source, self.target

        def copy(cell: Cell) -> None:
            key = source.key(cell)
            # Where the chunk is gone, there is nothing to get either.
            with suppress(NotFoundError):
                if target.store.copy_from(target.key(cell), source.store, key):
                    return
            data = source.store.get(key)
            if data is not None:
                target.store.put(target.key(cell), data)
            elif self.is_listed:
                raise ChangedError("the chunk was removed meanwhile", path=source.store.url, key=key)

        cells = self.cells_of(unit)
        most = thread_count_for(source.chunk_size, 1, source.store, target.store) // COPIES_AT_ONCE
        map_threads(copy, cells, waiting_count=max(1, most))
        return len(cells)


@dataclass(frozen=True)
class Recoding(_Units):
    """The plan of a pass that decodes one array and encodes another.

    length  how many items the largest unit has
    """

    length: int
    memory: _Buffers = field(default_factory=_Buffers, compare=False)

    def make(self, unit: Unit) -> int:
        """Write the chunks of a unit; returns their number."""
        source, target = self.source, self.target
        cells = self.cells_of(unit)
        whole, inner = _around(target, cells)
        shape = lengths(whole)
        if source.dtype.kind in "OT":
            memory = np.empty(prod(shape), source.dtype)
        else:
            spare = self.memory.spare
            memory = spare.pop() if spare else np.empty(max(self.length, prod(shape)), source.dtype)
        items = self._read(whole, cells, memory[: prod(shape)].reshape(shape))
        if not _same_dtype(source, target):
            items = items.astype(target.dtype)
        if len(cells) == target.count(whole):
            target.write(whole, items)
        else:
            for cell, box in zip(cells, inner, strict=True):
                target.write(target.box(cell), items[box])
        if source.dtype.kind not in "OT":
            self.memory.spare.append(memory)
        return len(cells)

    def _read(self, whole: Box, cells: list[Cell], out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The items of a box around chunks; the chunks of a scratch array that these need must exist."""
        source, target = self.source, self.target
        try:
            return source.read(whole, out)
        except NotFoundError:
            if not isinstance(source, StoredArray) or not source.missing_is_fault:
                raise
            boxes = [target.box(cell) for cell in cells]
            needed = {cell for box in boxes for cell in source.cells(box)}
            lost = next((key for key in map(source.key, sorted(needed)) if not source.store.size(key)), None)
            if lost is not None:
                raise StoreError(
                    "a chunk of a scratch array was removed meanwhile; resume makes it again",
                    path=source.store.url,
                    key=lost,
                ) from None
            # Only parts of the box between the chunks are missing.
            return source.filled.read(whole, out)


def _around(target: Source, cells: list[Cell]) -> tuple[Box, list[Box]]:
    """(the box around some chunks, the box of each chunk within it)."""
    boxes = [target.box(cell) for cell in cells]
    whole = hull(boxes)
    return whole, [inside(box, whole) for box in boxes]


class _Comparison(_Units):
    """The plan of a comparison of two arrays."""

    def make(self, unit: Unit) -> int:
        """Raise CodecError if an item of a unit differs."""
        source, target = self.source, self.target
        cells = self.cells_of(unit)
        whole, inner = _around(target, cells)
        old, new = source.read(whole), target.read(whole)
        for cell, box in zip(cells, inner, strict=True):
            if not same_items(old[box], new[box]):
                raise CodecError(
                    f"chunk differs from {source.url!r}, which it was made from",
                    path=target.store.url,
                    key=target.key(cell),
                )
        return len(cells)


# Planning the passes within the memory


class Side(NamedTuple):
    """The properties of an array on which the cost of reading or writing it depends.

    grid      the grid of its chunks, or of its shards
    pieces    the grid of what is decoded at once: chunks or inner chunks
    codec     the name of its compressing codecs; "" where chunks are not compressed
    is_near   whether its chunks are files, or in memory
    is_native whether kernels decode and encode its chunks, without memory of their own
    ratio     stored bytes for each decoded byte
    """

    shape: Shape
    grid: Grid
    pieces: Grid
    item_size: int
    codec: str = ""
    is_near: bool = True
    is_native: bool = True
    ratio: float = STORED

    @classmethod
    def of(cls, source: Source) -> Side:
        """The side for a source, or for an array that is written."""
        codecs = source.codecs
        return cls(
            shape=source.shape,
            grid=source.grid,
            pieces=source.pieces,
            item_size=source.item_size,
            codec="python" if codecs is None else " ".join(_compressing(codecs)),
            is_near=source.request_count == 1,
            is_native=codecs is not None,
        )

    @property
    def counts(self) -> Shape:
        """The number of chunks along each axis."""
        return self.grid.count(self.shape)

    @property
    def chunk_size(self) -> int:
        """The decoded bytes of the largest chunk, cut at the array's edge."""
        return _size(self.grid, self.shape) * self.item_size

    @property
    def piece_size(self) -> int:
        """The decoded bytes of the largest piece."""
        return prod(self.pieces.chunk_shape) * self.item_size


@dataclass(frozen=True)
class RechunkPass:
    """A pass: all of one array is read, and all of another written.

    counts      how many chunks a unit writes along each axis
    length      how many items the largest unit has
    unit_count  how many units there are
    memory      bytes that one unit holds
    decoded_size  bytes that all units decode
    read_count, write_count  how many pieces all units read, and how many chunks they write
    cost        the estimated cost, in nanoseconds
    """

    counts: Shape
    length: int
    unit_count: int
    memory: int
    decoded_size: int
    read_count: int
    write_count: int
    cost: float


@dataclass(frozen=True)
class Passes:
    """The passes that make one array of another.

    steps         the passes, in order
    scratches     the chunk shapes of the scratch arrays between them
    scratch_size  bytes of the scratch arrays; estimated where they are compressed
    room          the number of the room that they lie in
    codec         "lz4" where they are compressed, else ""
    """

    steps: tuple[RechunkPass, ...]
    scratches: tuple[Shape, ...] = ()
    scratch_size: int = 0
    room: int = 0
    codec: str = ""

    @property
    def memory(self) -> int:
        """The bytes of one unit of the largest pass."""
        return max(step.memory for step in self.steps)

    @property
    def decoded_size(self) -> int:
        """Bytes that all passes decode."""
        return sum(step.decoded_size for step in self.steps)


def default_memory() -> int:
    """An eighth of the memory of the machine, or of the control group that this process is in."""
    return memory_size() // 8


def plan_passes(
    source: Side,
    target: Side,
    memory: int,
    *,
    is_firm: bool,
    threads: int,
    shares: int = 1,
    rooms: Sequence[Room] = (),
    ratio: float = 1.0,
    copies: int = 1,
) -> Passes:
    """The cheapest way to write the items of one array into another.

    shares        how many units divide the memory among them
    is_firm       whether `memory` that does not hold one chunk is an error, rather than exceeded
    rooms         where a scratch array may lie; the first with enough room is taken
    ratio         stored bytes for each decoded byte of the source
    copies        how many times the items of a unit are held in memory

    Raises
        MetadataError: `is_firm`, and one chunk of the target with one of the source takes more memory.
    """
    whole, given = prod(target.shape) * target.item_size, memory
    memory //= shares
    direct = _choose(source, target, memory, threads, copies)
    if direct.memory > memory and is_firm:
        raise MetadataError(
            f"memory is {given} bytes; expected at least {direct.memory * shares}, which chunks of "
            f"{target.grid.chunk_shape} made of chunks of {source.pieces.chunk_shape} take"
        )
    best, cost = Passes((direct,)), direct.cost
    chosen = _choose_room(rooms, whole, min(1.0, QUICK_RATIO * ratio))
    if chosen is None or direct.read_count <= prod(source.grid.count(source.shape)):
        return best
    room, codec, left = chosen
    is_near, kept = rooms[room].is_near, ceil(whole * left)
    # The cost of writing a byte there; uncompressed files are written straight from memory.
    writing = SCRATCH_WRITING if is_near else left * DISTANCE
    writing += QUICK_ENCODING if codec else 0
    for shape in _scratches(source, target, memory):
        grid = RegularGrid(shape)
        share = left if codec or not is_near else STORED
        between = Side(source.shape, grid, grid, source.item_size, codec, is_near, ratio=share)
        steps = (
            _choose(source, between, memory, threads, copies),
            _choose(between, target, memory, threads, copies),
        )
        total = sum(step.cost for step in steps) + whole * writing
        total += steps[0].write_count * (FILE if is_near else REQUEST)
        if total < cost and all(step.memory <= max(memory, direct.memory) for step in steps):
            best, cost = Passes(steps, (shape,), kept, room, codec and "lz4"), total
    return best


def _choose_room(rooms: Sequence[Room], whole: int, ratio: float) -> tuple[int, str, float] | None:
    """(number of the first room with space for `whole` bytes, codec there, stored share of the bytes).

    A disk gets a compressed array only if it would not fit otherwise; a bucket, if that saves time.
    """
    for number, room in enumerate(rooms):
        saved = 0.0 if room.is_near else 2 * (1 - ratio) * DISTANCE
        is_worth = saved > QUICK_ENCODING + DECODING["blosc"]
        if 0 < whole <= room.size and not is_worth:
            return number, "", 1.0
        if 0 < whole * ratio <= room.size and ratio < 1:
            return number, "blosc", ratio
    return None


def _size(grid: Grid, shape: Shape) -> int:
    """The items of the largest chunk, cut at the array's edge."""
    return prod(min(c, n) for c, n in zip(grid.chunk_shape, shape, strict=True)) if all(shape) else 0


def _extent(grid: Grid, axis: int, length: int, count: int) -> int:
    """The most items that `count` neighbouring chunks have along an axis."""
    if isinstance(grid, RegularGrid):
        return min(grid.chunk_shape[axis] * count, length)
    ends = grid.borders(axis, length)
    return int(np.diff(np.append(ends[:-1:count], ends[-1])).max(initial=0))


def _visits(pieces: Grid, grid: Grid, axis: int, length: int, count: int) -> float:
    """The average number of units of `count` chunks that read the same piece along an axis."""
    if not length:
        return 1.0
    if isinstance(pieces, RegularGrid) and isinstance(grid, RegularGrid):
        piece, unit = pieces.chunk_shape[axis], grid.chunk_shape[axis] * count
        cut = (length - 1) // unit - (length - 1) // lcm(piece, unit)
        return 1 + cut / ceil(length / piece)
    old, new = pieces.borders(axis, length), grid.borders(axis, length)
    ends = new[count:-1:count]
    return 1 + (len(ends) - int(np.isin(ends, old).sum())) / (len(old) - 1)


def _counts(pieces: Grid, grid: Grid, axis: int, length: int, most: int) -> list[int]:
    """The numbers of chunks per unit along an axis to compare: most of the small ones, few large ones."""
    count = grid.count((length,) * len(grid.chunk_shape))[axis] if length else 1
    numbers, n = {1, count}, 1.0
    step = max(1.1, count ** (1 / max(1, most - 2))) if count > 1 else 2.0
    while n < count:
        numbers.add(int(n))
        n = max(n + 1, n * step)
    if isinstance(pieces, RegularGrid) and isinstance(grid, RegularGrid):
        unit = lcm(pieces.chunk_shape[axis], grid.chunk_shape[axis]) // grid.chunk_shape[axis]
        while unit < count:
            numbers.add(unit)
            unit *= 2
    return sorted(numbers)


def _choose(source: Side, target: Side, memory: int, threads: int, copies: int) -> RechunkPass:
    """The cheapest pass whose units fit into memory; if none do, the one that takes the least memory."""
    shape, ndim = source.shape, len(source.shape)
    free = [d for d in range(ndim) if target.counts[d] > 1]
    most = max(3, int(WAYS ** (1 / max(1, len(free)))) // 2)
    ways = [_counts(source.pieces, target.grid, d, shape[d], most) for d in range(ndim)]
    extents, visits = [], []
    for d, counts in enumerate(ways):
        line = [1] * ndim
        line[d] = len(counts)
        extents.append(np.array([_extent(target.grid, d, shape[d], n) for n in counts], float).reshape(line))
        visits.append(
            np.array([_visits(source.pieces, target.grid, d, shape[d], n) for n in counts]).reshape(line)
        )
    size = _product(extents) * target.item_size
    cells = _product([np.array(n, float).reshape(e.shape) for n, e in zip(ways, extents, strict=True)])
    decoded = _decoded(source, visits) * float(prod(shape) * source.item_size)
    touches = _product(visits) * float(prod(source.pieces.count(shape)))
    units = _product(
        [
            np.array([ceil(c / n) for n in w]).reshape(e.shape)
            for c, w, e in zip(target.counts, ways, extents, strict=True)
        ]
    )
    piece, chunk = source.piece_size, target.chunk_size
    held = size * (copies if source.is_near and target.is_near else copies + 2)
    held = held * (1 if source.is_native and target.is_native else 2) + 2 * threads * piece
    held = held + 2 * np.minimum(cells, threads) * chunk
    held = held + (0 if source.is_near and target.is_near else WINDOWS_SIZE)
    cost = decoded * DECODING.get(source.codec, OTHER_DECODING) + units * UNIT + size * NEW_MEMORY
    cost = cost + touches * piece * source.ratio * (0.1 if source.is_near else DISTANCE)
    cost = (
        cost
        + touches * (FILE if source.is_near else REQUEST)
        + (0 if source.codec else _stretches(source, visits))
    )
    idle = np.maximum(0, 1 - cells / threads) if target.pieces == target.grid else 0
    cost = cost + idle * prod(shape) * target.item_size * ENCODING
    fits = held <= memory
    ranked = np.where(fits, cost, np.inf) if fits.any() else held + 0 * cost
    best = np.unravel_index(int(np.argmin(np.broadcast_to(ranked, cost.shape))), cost.shape)

    def at(values: Any) -> Any:
        return np.broadcast_to(values, cost.shape)[best]

    return RechunkPass(
        counts=tuple(w[p] for w, p in zip(ways, best, strict=True)),
        length=int(at(size)) // target.item_size,
        unit_count=int(at(units)),
        memory=int(at(held)),
        decoded_size=int(at(decoded)),
        read_count=round(float(at(_product(visits))) * prod(source.pieces.count(shape))),
        write_count=prod(target.counts),
        cost=float(at(cost)),
    )


def _product(factors: Sequence[Any]) -> Any:
    return prod(factors, start=np.ones((1,) * len(factors)))


def _decoded(source: Side, visits: Sequence[Any]) -> Any:
    """The average number of times that a byte of the source is decoded."""
    long = [d for d, n in enumerate(source.pieces.chunk_shape) if n > 1]
    # A part along the longest strides is one stretch of a piece. Blosc decodes only the blocks of a stretch;
    # of uncompressed pieces, parts along a second axis are read alone as well.
    spared = {"": long[:2], "blosc": long[:1], "numcodecs.blosc": long[:1]}.get(source.codec, [])
    if not source.is_native:
        spared = []
    return _product([v * 0 + 1 if d in spared else v for d, v in enumerate(visits)])


def _stretches(source: Side, visits: Sequence[Any]) -> Any:
    """The cost of reading parts of uncompressed chunks, each of them several byte ranges."""
    runs: Any = _product([v * 0 + 1 for v in visits])
    outer: Any = runs
    for n, v in zip(source.pieces.chunk_shape, visits, strict=True):
        runs = np.where(v > 1, outer, runs)
        outer = outer * np.maximum(1, n / v)
    touches = _product(visits) * float(prod(source.pieces.count(source.shape)))
    return touches * runs * STRETCH


def _scratches(source: Side, target: Side, memory: int) -> Iterator[Shape]:
    """The different chunk shapes of scratch arrays to compare."""
    old = tuple(min(c, n) for c, n in zip(source.pieces.chunk_shape, source.shape, strict=True))
    new = tuple(min(c, n) for c, n in zip(target.grid.chunk_shape, target.shape, strict=True))
    seen = set[Shape]()
    for share in (2, 4, 8, 16, 32):
        most = max(1, memory // share // source.item_size)
        read, written = _grown(old, new, source.shape, most), _grown(new, old, source.shape, most)
        shared = tuple(map(min, read, written))
        for shape in (read, shared, _grown(old, new, source.shape, max(1, most // 8))):
            if shape not in seen and len(seen) < SCRATCHES:
                seen.add(shape)
                yield shape


def _grown(shape: Shape, towards: Shape, limits: Shape, most: int) -> Shape:
    """A box of whole chunks, doubled along axes where other chunks are longer, of at most `most` items."""
    grown = list(shape)
    while True:
        order = sorted(range(len(grown)), key=lambda d: grown[d] / max(1, towards[d]))
        for d in order:
            longer = min(2 * grown[d], limits[d])
            if grown[d] < towards[d] and longer > grown[d] and prod(grown) // grown[d] * longer <= most:
                grown[d] = longer
                break
        else:
            return tuple(grown)

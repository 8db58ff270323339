"""From stored chunks to batches of samples: blocks in memory, and threads that read and copy.

Each thread takes the most urgent work that can be done: to copy samples whose blocks are in memory into their
batch, to read a block, or to plan what comes next. What is planned fits into memory, so a slow consumer holds
up reading, and no thread waits for room that another one has.
"""

from __future__ import annotations

import heapq
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count, islice
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from zstore._ext.engine import gather as kernels
from zstore.base.boxes import Box, lengths, volume
from zstore.engine.schedulers import enter_worker, thread_count
from zstore.errors import ZstoreError, printable
from zstore.training.order import Order
from zstore.training.samples import (
    BlockPlan,
    Blocks,
    Index,
    Items,
    SampleArray,
    SampleRun,
    Samples,
)

log = logging.getLogger("zstore")

# Pieces that have their blocks in memory, or on the way there, at most; and those that are planned in one go.
PLANNED_COUNT = 512
AT_ONCE_COUNT = 16
# Samples that one thread copies in one go, in bytes and in rounds: long enough to be worth a turn, short
# enough to be shared, and of no more rounds than have their blocks in memory together.
PORTION_SIZE = 4 << 20
ROUND_COUNT = 2
# Batches smaller than this, in bytes, are made together.
LOT_SIZE = 2 << 20
# Crops that are tried before a sample is left out, because `accept` has refused them all.
TRIED_COUNT = 16

OnError = Literal["raise", "skip"]
# The epoch (0 where all have the same blocks), the source, and its block: a number, and a cell for each
# sampled axis.
Key = tuple[int, int, int]
Arrays = list[Items]


class SizedBox(NamedTuple):
    """A box of a source, and the bytes of its items."""

    box: Box
    size: int


Boxes = dict[Key, SizedBox]


class Place(NamedTuple):
    """A place in the order of samples: after `offset` samples of a round, and `done` of its epoch."""

    epoch: int = 0
    round: int = 0
    offset: int = 0
    done: int = 0


@dataclass
class Counts:
    """The numbers of blocks and samples that were read so far, or left out.

    block_count     blocks that were read, of each source
    read_size       their decoded bytes
    sample_count    samples in batches
    direct_count    samples that were read by themselves, because their blocks do not fit into memory
    skipped_count   samples left out because of errors
    refused_count   samples left out because `accept` refused all crops tried
    """

    block_count: int = 0
    read_size: int = 0
    sample_count: int = 0
    direct_count: int = 0
    skipped_count: int = 0
    refused_count: int = 0


@dataclass(frozen=True)
class Making:
    """The samples, the memory and the options that batches are made by.

    count       of the samples of an epoch
    order       gives the order of an epoch
    portion_memory  the most bytes of blocks for samples that are copied in one go
    arrange     gives the value that users get, of the arrays of a batch
    dtypes      of the arrays
    scales      for each array (mean, deviation), with which items are normalized, or None
    accept      tells from the arrays of a sample whether a crop is wanted
    allocate    gives memory for an array of a batch
    """

    samples: Samples
    plan: BlockPlan
    count: int
    order: Callable[[int, Blocks], Order]
    batch_size: int
    drop_last: bool
    memory: int
    portion_memory: int
    dtypes: Sequence[np.dtype[Any]]
    scales: Sequence[tuple[Items, Items] | None]
    arrange: Callable[[Arrays], Any]
    accept: Callable[[Arrays], bool] | None
    on_error: OnError
    ahead: int
    allocate: Callable[[tuple[int, ...], np.dtype[Any]], Items]


class Block:
    """A block of a source in memory, or on its way there."""

    __slots__ = ("box", "error", "is_read", "items", "memory", "pin_count", "size", "source", "waiting")

    def __init__(self, source: int, box: Box, size: int, memory: Items | None) -> None:
        self.source, self.box, self.size = source, box, size
        self.memory = memory  # bytes, used again for another block
        self.items: Items | None = None
        self.error: Exception | None = None
        self.is_read = False
        self.pin_count = 0
        self.waiting: list[Portion] = []


class Lot:
    """Batches that are made together, in the same memory: several small ones, or one.

    count   the number of its samples
    left    how many of them are still to be copied
    places  where the order goes on after each of its batches
    values  the batches as users get them, once they are made, that were not taken yet; those before an error
    error   that of the batch after them
    end     the row at which it came; without one, the end of the samples
    """

    def __init__(self, samples: int) -> None:
        self.count = self.left = self.end = samples
        self.arrays: Arrays | None = None
        self.places: list[Place] = []
        self.left_out: list[int] = []
        self.error: Exception | None = None
        self.values: deque[Any] | None = None

    def fail(self, row: int, error: Exception) -> None:
        """Note the error of a sample, unless there is one of a sample before it."""
        if row < self.end:
            self.end, self.error = row, error


@dataclass(order=True)
class Portion:
    """Samples that are copied into a lot of batches in one go.

    number  in the order of portions
    row     of its first sample in the lot
    boxes   of the blocks that it needs, in their sources
    held    the blocks themselves, once it is planned; None: its samples are read by themselves
    """

    number: int
    lot: Lot = field(compare=False)
    lot_number: int = field(compare=False)
    row: int = field(compare=False)
    blocks: Blocks = field(compare=False)
    samples: Index = field(compare=False)
    starts: Index = field(compare=False)
    boxes: Boxes = field(compare=False)
    held: dict[Key, Block] | None = field(compare=False, default=None)
    waits_for: int = field(compare=False, default=0)

    @property
    def epoch(self) -> int:
        """The number in keys of blocks: of the epoch, where each has other blocks."""
        return self.blocks.epoch


class Spare:
    """Memory for one of the arrays of batches, used again when nobody has an array in it any more."""

    def __init__(self, allocate: Callable[[tuple[int, ...], np.dtype[Any]], Items]) -> None:
        self._allocate = allocate
        self._free = deque[Items]()
        self._used = dict[int, tuple[weakref.ref[Items], Items]]()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Items:
        """An array of a shape; that of the first call is the largest."""
        if dtype.hasobject or not prod(shape):
            return self._allocate(shape, dtype)
        size = prod(shape) * dtype.itemsize
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = self._allocate(shape, dtype).reshape(-1).view(np.uint8)
        if len(memory) < size:  # of a shorter batch
            memory = self._allocate(shape, dtype).reshape(-1).view(np.uint8)
        # Arrays made of this one refer to it, because its memory is no array; so it goes when all of them
        # have gone.
        owner: Items = np.frombuffer(memory.data[:size], dtype)
        number = id(memory)
        self._used[number] = weakref.ref(owner, lambda _: self._give_back(number)), memory
        return owner.reshape(shape)

    def _give_back(self, number: int) -> None:
        # Called wherever an array goes, perhaps on a thread that has taken a lock: it takes none.
        self._free.append(self._used.pop(number)[1])


class Feed:
    """Batches, made by threads ahead of the loop that takes them."""

    def __init__(self, making: Making, place: Place, last_epoch: int | None, counts: Counts) -> None:
        """Begin at a place, and end before the epoch `last_epoch`."""
        self._making = making
        self._last_epoch = last_epoch
        self.counts = counts
        self._lock = threading.Lock()
        self._can_work = threading.Condition(self._lock)
        self._can_take = threading.Condition(self._lock)
        self._portions = self._plan(place)
        self._coming: deque[Portion] = deque()
        self._is_planning = self._is_planned = self._is_closed = False
        self._pool: dict[Key, Block] = {}
        self._pool_size = 0
        self._reads: deque[Block] = deque()
        self._ready: list[Portion] = []
        self._planned_count = 0
        self._lots: dict[int, Lot] = {}
        self._taken = 0
        self._spare = [Spare(making.allocate) for _ in making.samples.parts]
        self._failure: BaseException | None = None
        samples = making.samples
        self._axes = [[d for d in member.axes if d >= 0] for member in samples.members]
        self._extents = np.asarray([one.extent for one in samples.dimensions], np.int64)
        self._sample_size = max(1, samples.size)
        self._box = lru_cache(PLANNED_COUNT)(self._make_box)
        self._threads = [
            threading.Thread(target=self._work, name="zstore-batches", daemon=True)
            for _ in range(
                thread_count() if not samples.is_far else max(thread_count(), making.plan.ahead + 1)
            )
        ]
        for thread in self._threads:
            thread.start()

    # For the loop

    def take(self) -> tuple[Any, Place] | None:
        """The next batch, and the place after it; None at the end."""
        with self._lock:
            self._can_take.wait_for(self._has_next)
            if self._failure is not None:
                raise self._failure
            lot = self._lots.get(self._taken)
            if lot is None or self._is_closed:
                return None
            assert lot.values is not None
            if not lot.values and lot.error is not None:
                raise lot.error
            value, place = lot.values.popleft(), lot.places.pop(0)
            if not lot.values and lot.error is None:
                del self._lots[self._taken]
                self._taken += 1
                self._can_work.notify()
        return value, place

    def _has_next(self) -> bool:
        if self._failure is not None or self._is_closed:
            return True
        lot = self._lots.get(self._taken)
        if lot is None:
            return self._is_planned
        return lot.values is not None

    def close(self, *, wait: bool = True) -> None:
        """End the threads; `wait` until they have, each after the chunk that it reads."""
        with self._lock:
            self._is_closed = True
            self._can_work.notify_all()
            self._can_take.notify_all()
        if wait:
            for thread in self._threads:
                thread.join()
        self._pool.clear()

    # On the threads

    def _work(self) -> None:
        enter_worker()
        try:
            while (act := self._wait_for_act()) is not None:
                act()
        except BaseException as error:
            with self._lock:
                self._failure = error
                self._is_closed = True
                self._can_work.notify_all()
                self._can_take.notify_all()

    def _wait_for_act(self) -> Callable[[], None] | None:
        """The next work for a thread, once there is some; None at the end.

        What a thread has done may let it go on itself. So it is woken by one that has got work, as there may
        be more, or by the loop.
        """
        with self._lock:
            while (act := self._next_act()) is None and not (self._is_closed or self._is_finished()):
                self._can_work.wait()
            self._can_work.notify()
            return None if self._is_closed else act

    def _is_finished(self) -> bool:
        return self._is_planned and not (self._coming or self._planned_count)

    def _next_act(self) -> Callable[[], None] | None:
        """The most urgent work that can be done; None where there is none now."""
        if self._is_closed:
            return None
        while True:
            if self._ready and self._ready[0].lot_number < self._taken + self._making.ahead:
                return partial(self._copy, heapq.heappop(self._ready))
            if self._reads:
                return partial(self._read, self._reads.popleft())
            if self._planned_count >= PLANNED_COUNT:
                return None
            if not self._coming:
                break
            portion = self._coming[0]
            if not self._take_blocks(portion):
                return None
            self._coming.popleft()
            self._planned_count += 1
            if not portion.waits_for:
                heapq.heappush(self._ready, portion)
        if self._is_planning or self._is_planned:
            return None
        self._is_planning = True
        return self._plan_some

    def _plan_some(self) -> None:
        """Plan a few portions more, one thread at a time."""
        portions = [*islice(self._portions, AT_ONCE_COUNT)]
        with self._lock:
            self._coming += portions
            self._is_planning, self._is_planned = False, not portions
            if self._is_planned:
                self._can_take.notify_all()

    def _take_blocks(self, portion: Portion) -> bool:
        """Pin the blocks of a portion, and have those read that are missing; False: there is no room."""
        pool, memory, boxes = self._pool, self._making.memory, portion.boxes
        if self._making.plan.is_direct or sum(size for _, size in boxes.values()) > memory:
            return True
        needed = sum(size for key, (_, size) in boxes.items() if key not in pool)
        spare: dict[int, list[Items]] = {}
        if self._pool_size + needed > memory:
            # The oldest block is the first that is no longer needed. As long as it is in use, this portion
            # waits: so the order alone, and no thread's pace, decides which blocks are read again.
            left: list[Key] = []
            room = memory - self._pool_size
            for key, block in pool.items():
                if room >= needed or (block.pin_count and key not in boxes):
                    break
                if key not in boxes:
                    left.append(key)
                    room += block.size
            if room < needed:
                return False
            for key in left:
                block = pool.pop(key)
                self._pool_size -= block.size
                if block.memory is not None:
                    spare.setdefault(block.size, []).append(block.memory)
        portion.held = {}
        for key, (box, size) in boxes.items():
            held = pool.get(key)
            if held is None:
                kept = spare.get(size)
                held = pool[key] = Block(key[1], box, size, kept.pop() if kept else None)
                self._pool_size += held.size
                self._reads.append(held)
            portion.held[key] = held
            held.pin_count += 1
            if not held.is_read:
                held.waiting.append(portion)
                portion.waits_for += 1
        return True

    def _read(self, block: Block) -> None:
        """Read a block into memory."""
        member = self._making.samples.members[block.source]
        shape = lengths(block.box)
        try:
            if member.dtype.hasobject:
                block.items = member.source.read(block.box)
            else:
                if block.memory is None:
                    block.memory = np.empty(block.size, np.uint8)
                out = block.memory.view(member.dtype).reshape(shape)
                block.items = member.source.read(block.box, out=out)
        except (ZstoreError, OSError) as error:
            block.error = error
        with self._lock:
            block.is_read = True
            self.counts.block_count += 1
            self.counts.read_size += block.size
            for portion in block.waiting:
                portion.waits_for -= 1
                if not portion.waits_for:
                    heapq.heappush(self._ready, portion)
            block.waiting.clear()

    # What comes next

    def _plan(self, place: Place) -> Iterator[Portion]:
        """All portions, in order, from a place on."""
        making = self._making
        most = max(1, PORTION_SIZE // self._sample_size)
        lot_count = max(1, LOT_SIZE // (self._sample_size * making.batch_size)) * making.batch_size
        numbers, lots = count(), count()
        blocks: Blocks | None = None
        for epoch in count(place.epoch):
            if epoch == self._last_epoch:
                return
            if blocks is None or blocks.samples.random:
                blocks = making.plan.blocks(epoch)
            done, left = place.done, making.count - place.done
            if making.drop_last:
                left -= making.count % making.batch_size
            lot: Lot | None = None
            gathered: list[Index] = []
            for number, samples in making.order(epoch, blocks).rounds(place.round) if left else ():
                offset = place.offset if number == place.round else 0
                while offset < len(samples) and left:
                    if lot is None:
                        lot, row = Lot(min(left, lot_count)), 0
                        lot_number = next(lots)
                        self._lots[lot_number] = lot
                    if not gathered:
                        first, begun = row, number
                    chosen = samples[offset : offset + min(first + most, lot.count) - row]
                    gathered.append(chosen)
                    before, row = row, row + len(chosen)
                    for end in range(before // making.batch_size + 1, row // making.batch_size + 1):
                        step = end * making.batch_size - before
                        lot.places.append(Place(epoch, number, offset + step, done + step))
                    offset, done, left = offset + len(chosen), done + len(chosen), left - len(chosen)
                    if not left:
                        lot.places[(row - 1) // making.batch_size :] = [Place(epoch + 1)]
                    is_whole, owner = row == lot.count, lot
                    if is_whole:
                        lot = None
                    if is_whole or row == first + most or number >= begun + ROUND_COUNT - 1:
                        chosen = np.concatenate(gathered)
                        gathered.clear()
                        for begin, stop, starts, boxes in self._divide(blocks, chosen):
                            part = chosen[begin:stop]
                            yield Portion(
                                next(numbers), owner, lot_number, first + begin, blocks, part, starts, boxes
                            )
            place = Place(epoch + 1)

    def _divide(self, blocks: Blocks, samples: Index) -> Iterator[tuple[int, int, Index, Boxes]]:
        """Parts of some samples whose blocks fit into memory together, or that are single samples."""
        making = self._making
        starts = blocks.starts(samples)
        if making.plan.is_direct:
            yield 0, len(samples), starts, {}
            return
        left = [(0, len(samples))]
        while left:
            begin, end = left.pop()
            boxes = self._boxes(blocks, starts[begin:end])
            size = sum(size for _, size in boxes.values())
            if size > making.portion_memory and end - begin > 1:
                middle = (begin + end) // 2
                left += [(middle, end), (begin, middle)]
            else:
                yield begin, end, starts[begin:end], boxes

    def _boxes(self, blocks: Blocks, starts: Index) -> Boxes:
        """The blocks that samples lie in, each with its box of the source."""
        first, last = blocks.cells(starts), blocks.cells(starts + self._extents - 1)
        boxes: Boxes = {}
        for source, dims in enumerate(self._axes):
            shape = [blocks.shape[d] for d in dims]
            one, other = (number_cells(cells[:, dims], shape) for cells in (first, last))
            numbers = {*one.tolist()}
            for n in np.flatnonzero(one != other).tolist():
                numbers.update(_between(one.item(n), other.item(n), shape))
            for number in sorted(numbers):
                boxes[blocks.epoch, source, number] = self._box(blocks, source, number)
        return boxes

    def _make_box(self, blocks: Blocks, source: int, number: int) -> SizedBox:
        member, cells = self._making.samples.members[source], dict[int, int]()
        for d in reversed(self._axes[source]):
            number, cells[d] = divmod(number, blocks.shape[d])
        box = member.box(blocks, cells)
        return SizedBox(box, volume(box) * member.item_size)

    # Copying

    def _copy(self, portion: Portion) -> None:
        """Copy samples into their lot, and finish its batches with the last of them."""
        making, lot = self._making, portion.lot
        with self._lock:
            if lot.arrays is None:
                arrays = zip(self._spare, making.samples.parts, making.dtypes, strict=True)
                lot.arrays = [spare.take((lot.count, *part.shape), dtype) for spare, part, dtype in arrays]
        left_out = self._fill(portion, lot.arrays)
        rows = slice(portion.row, portion.row + len(portion.samples))
        for array, scale in zip(lot.arrays, making.scales, strict=True):
            if scale is not None:
                np.subtract(array[rows], scale[0], out=array[rows])
                np.divide(array[rows], scale[1], out=array[rows])
        with self._lock:
            lot.left_out += left_out
            lot.left -= len(portion.samples)
            self._planned_count -= 1
            self.counts.sample_count += len(portion.samples) - len(left_out)
            for block in (portion.held or {}).values():
                block.pin_count -= 1
            is_last = not lot.left
        if is_last:
            values = deque[Any]()
            try:
                values.extend(map(making.arrange, self._cut(lot)))
            except Exception as failure:
                lot.error = failure
            with self._lock:
                lot.arrays, lot.values = None, values
                self._can_take.notify_all()

    def _cut(self, lot: Lot) -> Iterator[Arrays]:
        """The arrays of each batch of a lot, without the samples that are left out, up to an error."""
        assert lot.arrays is not None
        size = self._making.batch_size
        for begin in range(0, lot.count if lot.error is None else lot.end // size * size, size):
            end = min(begin + size, lot.count)
            arrays = [array[begin:end] for array in lot.arrays]
            if left_out := [row - begin for row in lot.left_out if begin <= row < end]:
                kept = np.setdiff1d(np.arange(end - begin), left_out)
                arrays = [array[kept] for array in arrays]
            yield arrays

    def _fill(self, portion: Portion, arrays: Arrays) -> list[int]:
        """Copy the samples of a portion; returns the rows of those that are left out.

        Where an error is to be raised, these are the row of the first one and all after it.
        """
        is_alone = portion.held is None or any(block.error is not None for block in portion.held.values())
        rows = range(portion.row, portion.row + len(portion.samples))
        if not is_alone:
            self._fill_rows(portion, arrays, portion.row, portion.starts)
            if self._making.accept is None:
                return []
        left_out: list[int] = []
        for place, row in enumerate(rows):
            is_there = not is_alone or self._fill_alone(portion, arrays, row, portion.starts[place])
            if is_there and self._making.accept is not None:
                is_there = self._try_crops(portion, arrays, place, is_alone)
            if not is_there:
                left_out.append(row)
                if portion.lot.end <= row:
                    return [*left_out, *rows[place + 1 :]]
        return left_out

    def _try_crops(self, portion: Portion, arrays: Arrays, place: int, is_alone: bool) -> bool:
        """Whether a sample is accepted, or another crop that is then in its place."""
        making, row = self._making, portion.row + place
        assert making.accept is not None
        for attempt in range(1, TRIED_COUNT + 1):
            if making.accept([array[row] for array in arrays]):
                return True
            if attempt == TRIED_COUNT:
                break
            start = portion.blocks.starts(portion.samples[place : place + 1], attempt)
            if not is_alone:
                self._fill_rows(portion, arrays, row, start)
            elif not self._fill_alone(portion, arrays, row, start[0]):
                return False
        with self._lock:
            self.counts.refused_count += 1
        return False

    def _fill_alone(self, portion: Portion, arrays: Arrays, row: int, start: Index) -> bool:
        """Read one sample by itself; False where it cannot be read."""
        making = self._making
        with self._lock:
            self.counts.direct_count += 1
        try:
            for array, part in zip(arrays, making.samples.parts, strict=True):
                member = making.samples.members[part.source]
                for run in part.runs:
                    out = array[row][_at(part, run)]
                    box = tuple(
                        slice(begin, begin + length)
                        for begin, length in zip(
                            self._begins(part, run, start).tolist(), out.shape, strict=True
                        )
                    )
                    if out.dtype == member.dtype and out.flags.c_contiguous and not out.dtype.hasobject:
                        member.source.read(box, out=out)
                    else:
                        out[...] = member.source.read(box)
        except (ZstoreError, OSError) as error:
            with self._lock:
                if making.on_error == "raise":
                    portion.lot.fail(row, error)
                    return False
                self.counts.skipped_count += 1
            log.warning("sample at %s is skipped: %s", start.tolist(), printable(str(error)))
            return False
        return True

    def _begins(self, part: SampleArray, run: SampleRun, starts: Index) -> Index:
        """The first position of a run of samples, along each axis of its source."""
        axes = self._making.samples.members[part.source].axes
        begins = np.zeros((*starts.shape[:-1], len(axes)), np.int64)
        for axis, d in enumerate(axes):
            if d >= 0:
                begins[..., axis] = starts[..., d]
            if axis == part.axis:
                begins[..., axis] += run.begin
        return begins

    def _fill_rows(self, portion: Portion, arrays: Arrays, row: int, starts: Index) -> None:
        """Copy samples out of blocks, to rows from `row` on."""
        assert portion.held is not None
        rows = slice(row, row + len(starts))
        for array, part in zip(arrays, self._making.samples.parts, strict=True):
            held = sorted((key[2], block) for key, block in portion.held.items() if key[1] == part.source)
            dtype = self._making.samples.members[part.source].dtype
            borders = self._borders(portion.blocks, part.source)
            for run in part.runs:
                out = array[(rows, *_at(part, run))]
                begins = self._begins(part, run, starts)
                if dtype.hasobject:
                    gather_objects(held, borders, begins, out)
                elif out.dtype == dtype:
                    gather_items(held, borders, begins, out)
                else:
                    items = np.empty(out.shape, dtype)
                    gather_items(held, borders, begins, items)
                    out[...] = items

    def _borders(self, blocks: Blocks, source: int) -> tuple[Index, ...]:
        """The borders of blocks along each axis of a source."""
        member = self._making.samples.members[source]
        return tuple(
            blocks.borders[d] if d >= 0 else np.array([0, length], np.int64)
            for length, d in zip(member.shape, member.axes, strict=True)
        )


def _between(one: int, other: int, shape: Sequence[int]) -> Iterable[int]:
    """The numbers of the cells in the box from one cell of a grid to another."""
    if one == other or len(shape) == 1:
        return range(one, other + 1)
    ends = np.unravel_index([one, other], shape)
    sides = np.ix_(*(np.arange(cells[0], cells[1] + 1) for cells in ends))
    return np.ravel_multi_index(sides, shape).reshape(-1).tolist()


def number_cells(cells: Index, shape: Sequence[int]) -> Index:
    """The number of each cell of a grid, in the order of numpy's items."""
    numbers = np.zeros(len(cells), np.int64)
    for along, length in zip(cells.T, shape, strict=True):
        numbers = numbers * length + along
    return numbers


def _at(part: SampleArray, run: SampleRun) -> tuple[slice, ...]:
    """The place of a run in its array."""
    return tuple(
        slice(run.at, run.at + run.length) if axis == part.axis else slice(None)
        for axis in range(len(part.shape))
    )


def gather_items(
    held: Sequence[tuple[int, Block]], borders: tuple[Index, ...], begins: Index, out: Items
) -> None:
    """Copy the windows that begin at `begins` to `out`, out of numbered blocks."""
    numbers = np.array([number for number, _ in held], np.int64)
    kernels.gather(
        [block.memory for _, block in held], numbers, borders, begins, out.view(f"V{out.itemsize}")
    )


def gather_objects(
    held: Sequence[tuple[int, Block]], borders: tuple[Index, ...], begins: Index, out: Items
) -> None:
    """Copy the windows as `gather_items` does, for items that are objects, or strings of any length."""
    blocks, shape = dict(held), [len(one) - 1 for one in borders]
    lasts = begins + np.asarray(out.shape[1:], np.int64) - 1
    ends = [
        np.stack([one.searchsorted(at, "right") - 1 for one, at in zip(borders, places.T, strict=True)], -1)
        for places in (begins, lasts)
    ]
    numbers = [number_cells(cells, shape).tolist() for cells in ends]
    for row, (one, other) in enumerate(zip(*numbers, strict=True)):
        for number in _between(one, other, shape):
            _copy_overlap(blocks[number], begins[row].tolist(), (lasts[row] + 1).tolist(), out[row])


def _copy_overlap(block: Block, begin: Sequence[int], end: Sequence[int], out: Items) -> None:
    """Copy the items of a window that lie in a block."""
    lows = [max(a, side.start) for a, side in zip(begin, block.box, strict=True)]
    highs = [min(b, side.stop) for b, side in zip(end, block.box, strict=True)]
    inner = tuple(
        slice(a - side.start, b - side.start) for a, b, side in zip(lows, highs, block.box, strict=True)
    )
    outer = tuple(slice(a - first, b - first) for a, b, first in zip(lows, highs, begin, strict=True))
    assert block.items is not None
    out[outer] = block.items[inner]

"""Reading and writing the stored chunks of one array: the part that is the same for every chunk grid."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from math import prod
from typing import Any, TypeVar

import numpy as np

from zstore.engine.fetch import WINDOW_COUNT, WINDOW_SIZE, WINDOWS_AT_ONCE
from zstore.engine.pool import thread_count
from zstore.engine.schedulers import BLOCKING, Scheduler, drive
from zstore.indexing.plans import AnyLayout, Plan
from zstore.indexing.runs import Runs
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key

T = TypeVar("T")
Cell = tuple[int, ...]
Items = np.ndarray[Any, Any]

# Chunks that are written at the same time to a store with latency, so that its latency is hidden, and the
# most decoded bytes that they may have together (unless the engine's threads alone have more).
WRITTEN_COUNT = 32
WRITTEN_SIZE = 256 << 20

# The most bytes that selections read at the same time from such a store have fetched and not yet decoded.
READ_SIZE = 256 << 20


class Chunks(ABC):
    """The chunks of one array in its store; made anew when the array is resized.

    plan            plans a selection of integers, slices, ellipsis and new axes; None for any other
    layout          the layout that plans for reading are made against
    write_layout    the layout that plans for writing are made against
    field_layout    the layout that plans for writing some fields of structured items are made against
    is_published    whether the array's metadata document exists: chunks are locked through it. Until it does,
                    only the job that makes the array writes to it, and writes each chunk once
    """

    is_published = True

    plan: Callable[[Any], Any]
    layout: AnyLayout
    write_layout: AnyLayout

    def __init__(self, store: Store, path: str, model: ArrayModel, *, skip_empty: bool = True) -> None:
        self.store = store
        self.path = path
        self.model = model
        self.dtype = model.dtype
        self.fill_value = model.effective_fill_value
        self.skip_empty = skip_empty
        self.chunk_size = max(1, prod(model.grid.chunk_shape) * model.dtype.itemsize)

    @property
    def field_layout(self) -> AnyLayout:
        return self.write_layout

    def key(self, cell: Cell) -> str:
        """The store key of the chunk (or shard) at a cell of the grid."""
        return join_key(self.path, self.model.keys.key(cell))

    def read(self, plan: Plan, out: Items, *, missing_is_fault: bool = False) -> None:
        """Fill `out` with what the plan selects.

        Raises
            CodecError: a chunk is damaged.
            NotFoundError: a chunk is missing and `missing_is_fault` is true.
            StoreError: the store failed.
        """
        drive(self.read_with(BLOCKING, plan, out, missing_is_fault))

    async def read_with(self, scheduler: Scheduler, plan: Plan, out: Items, missing_is_fault: bool) -> None:
        """Do what `read` does, with any scheduler."""
        if isinstance(plan, Runs):
            await self._read_runs(scheduler, plan, out, missing_is_fault)
        else:
            await self._read_box(scheduler, plan, out, missing_is_fault)

    async def read_many_with(
        self, scheduler: Scheduler, plans: Sequence[Plan], outs: Sequence[Items], missing_is_fault: bool
    ) -> None:
        """Fill each of `outs` with what its plan selects, as `read` does."""
        pairs = list(zip(plans, outs, strict=True))
        boxes = [pair for pair in pairs if not isinstance(pair[0], Runs)]
        await self._read_many(
            scheduler, [plan for plan, _ in boxes], [out for _, out in boxes], missing_is_fault
        )
        for plan, out in pairs:
            if isinstance(plan, Runs):
                await self._read_runs(scheduler, plan, out, missing_is_fault)

    def write(self, plan: Plan, value: Items, *, has_fields: bool = False) -> None:
        """Store `value` in the items that the plan (made against `write_layout`) selects.

        With `has_fields`, `value` has some of the items' fields, the plan is made against `field_layout`,
        and the other fields stay as they are.

        Each chunk is replaced as a whole: whatever interrupts the write, readers find its old or its new
        content. Writers of other parts of the same chunk wait for each other.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        drive(self.write_with(BLOCKING, plan, value, has_fields))

    async def write_with(self, scheduler: Scheduler, plan: Plan, value: Items, has_fields: bool) -> None:
        """Do what `write` does, with any scheduler."""
        self.store.check_writable(self.path)
        if isinstance(plan, Runs):
            plan, value = plan.by_items(), value.reshape(-1)
        await self._write(scheduler, plan, value, has_fields)

    def read_box(self, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """Do what `read` does for a plan made by `plan`, with less overhead: for small windows."""
        drive(self._read_box(BLOCKING, plan, out, missing_is_fault))

    @abstractmethod
    async def _read_box(self, scheduler: Scheduler, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """Do what `read_with` does for a plan made against `layout`."""

    @abstractmethod
    async def _write(self, scheduler: Scheduler, plan: Any, value: Items, has_fields: bool) -> None:
        """Do what `write_with` does for a plan made against `write_layout` or `field_layout`."""

    async def _read_many(
        self, scheduler: Scheduler, plans: list[Any], outs: list[Items], missing_is_fault: bool
    ) -> None:
        """Do what `read_many_with` does for plans made against `layout`: one concurrent read for each."""
        pairs = list(zip(plans, outs, strict=True))

        async def read_one(pair: tuple[Any, Items]) -> None:
            await self._read_box(scheduler, *pair, missing_is_fault)

        if self.store.request_count > 1:
            most = max(1, READ_SIZE // max([1, *map(self._fetched_size, plans)]))
            await scheduler.each(read_one, pairs, min(scheduler.read_count, self.store.request_count, most))
        else:
            at_once = thread_count() if len(pairs) >= thread_count() else 1
            await scheduler.each(read_one, pairs, at_once, waits=False)

    def _fetched_size(self, plan: Any) -> int:
        """The most bytes of fetched chunks that reading a plan holds at once."""
        return WINDOWS_AT_ONCE * WINDOW_SIZE

    async def _read_runs(self, scheduler: Scheduler, runs: Runs, out: Items, missing_is_fault: bool) -> None:
        """Read a plan of points item by item: read as boxes, its chunks would be decoded several times."""
        memory = out.reshape(-1)
        await self._read_box(scheduler, runs.by_items(), memory, missing_is_fault)
        if not np.may_share_memory(memory, out):
            out[...] = memory.reshape(out.shape)

    async def _change_each(
        self,
        scheduler: Scheduler,
        pieces: Iterable[T],
        cell: Callable[[T], Cell],
        act: Callable[[T, threading.Semaphore], None],
    ) -> None:
        """Call `act` for every piece of a write, under the lock of the chunk at the piece's cell.

        `act` gets a semaphore to hold while it encodes: more requests than threads may run at the same time,
        but no more encoders.
        """
        threads, waiting_count = thread_count(), None
        if self.store.request_count > 1:
            under_way = min(WRITTEN_COUNT, self.store.request_count, WRITTEN_SIZE // self.chunk_size)
            waiting_count = max(under_way, threads)
        turn = threading.Semaphore(threads)

        def change_one(piece: T) -> None:
            if self.is_published:
                self.store.update(self.key(cell(piece)), partial(act, piece, turn))
            else:
                act(piece, turn)

        left = iter(pieces)
        while window := list(islice(left, WINDOW_COUNT)):
            await scheduler.map(change_one, window, waiting_count=waiting_count)

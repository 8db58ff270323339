"""The stored chunks of one array: what arrays ask of them, and what goes the same way for every grid."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from math import prod
from typing import Any, TypeVar

import numpy as np

from zstore.engine.doors import CALLING, Door, drive
from zstore.engine.fetch import WINDOW_COUNT, WINDOW_SIZE, WINDOWS_AT_ONCE
from zstore.engine.pool import thread_count
from zstore.indexing.plans import AnyLayout, Plan
from zstore.indexing.runs import Runs
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key

T = TypeVar("T")
Cell = tuple[int, ...]
Items = np.ndarray[Any, Any]

# Writing to a store that takes its time, as many chunks are under way as hide that, and no more decoded
# bytes than this, unless the engine's threads alone have more.
WRITTEN_COUNT = 32
WRITTEN_SIZE = 256 << 20

# Of selections that are read side by side from such a store, so many bytes that they have fetched.
READ_SIZE = 256 << 20


class Chunks(ABC):
    """What the engine keeps of one array; made anew when the array is resized.

    plan            a plan for integers, slices, ellipsis and new axes; None where there is something else
    layout          what plans for reading are made against
    write_layout    what plans for writing are made against
    field_layout    what plans for writing some of the items' fields are made against
    is_published    whether the array's document is there, on which chunks are locked; while it is not, nobody
                    but the job that makes the array writes to it, each chunk once
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
        """The store key of a chunk (shard, where there are)."""
        return join_key(self.path, self.model.keys.key(cell))

    def read(self, plan: Plan, out: Items, *, missing_is_fault: bool = False) -> None:
        """Fill `out` with what the plan selects.

        Raises
            CodecError: a chunk is damaged.
            NotFoundError: a chunk is missing, where the caller said that this is a fault.
            StoreError: the store failed.
        """
        drive(self.read_by(CALLING, plan, out, missing_is_fault))

    async def read_by(self, door: Door, plan: Plan, out: Items, missing_is_fault: bool) -> None:
        """`read`, through a door."""
        if isinstance(plan, Runs):
            await self._read_runs(door, plan, out, missing_is_fault)
        else:
            await self._read_box(door, plan, out, missing_is_fault)

    async def read_many_by(
        self, door: Door, plans: Sequence[Plan], outs: Sequence[Items], missing_is_fault: bool
    ) -> None:
        """Fill each of `outs` with what its plan selects.

        Raises what `read` raises.
        """
        pairs = list(zip(plans, outs, strict=True))
        boxes = [pair for pair in pairs if not isinstance(pair[0], Runs)]
        await self._read_many(door, [plan for plan, _ in boxes], [out for _, out in boxes], missing_is_fault)
        for plan, out in pairs:
            if isinstance(plan, Runs):
                await self._read_runs(door, plan, out, missing_is_fault)

    def write(self, plan: Plan, value: Items, *, has_fields: bool = False) -> None:
        """Store `value` where the plan (made against `write_layout`) selects.

        With `has_fields`, `value` has some of the items' fields, the plan is made against `field_layout`,
        and the other fields stay as they are.

        Every chunk is either as it was or as it is to be, whatever interrupts; other writers of other parts
        of a chunk are waited for.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        drive(self.write_by(CALLING, plan, value, has_fields))

    async def write_by(self, door: Door, plan: Plan, value: Items, has_fields: bool) -> None:
        """`write`, through a door."""
        self.store.check_writable(self.path)
        if isinstance(plan, Runs):
            plan, value = plan.by_items(), value.reshape(-1)
        await self._write(door, plan, value, has_fields)

    def read_box(self, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """`read`, of a plan that `layout` made, as `plan` does: a shorter way for a small window."""
        drive(self._read_box(CALLING, plan, out, missing_is_fault))

    @abstractmethod
    async def _read_box(self, door: Door, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """`read_by`, of a plan that `layout` made."""

    @abstractmethod
    async def _write(self, door: Door, plan: Any, value: Items, has_fields: bool) -> None:
        """`write_by`, of a plan that `write_layout` or `field_layout` made."""

    async def _read_many(
        self, door: Door, plans: list[Any], outs: list[Items], missing_is_fault: bool
    ) -> None:
        """`read_many_by`, of plans that `layout` made: one read for each, side by side."""
        pairs = list(zip(plans, outs, strict=True))

        async def read_one(pair: tuple[Any, Items]) -> None:
            await self._read_box(door, *pair, missing_is_fault)

        if self.store.request_count > 1:
            most = max(1, READ_SIZE // max([1, *map(self._fetched_size, plans)]))
            await door.each(read_one, pairs, min(door.read_count, self.store.request_count, most))
        else:
            at_once = thread_count() if len(pairs) >= thread_count() else 1
            await door.each(read_one, pairs, at_once, waits=False)

    def _fetched_size(self, plan: Any) -> int:
        """The most bytes of fetched chunks that reading a plan holds at once."""
        return WINDOWS_AT_ONCE * WINDOW_SIZE

    async def _read_runs(self, door: Door, runs: Runs, out: Items, missing_is_fault: bool) -> None:
        """Read a plan of points item by item: as boxes, its chunks would be decoded several times."""
        memory = out.reshape(-1)
        await self._read_box(door, runs.by_items(), memory, missing_is_fault)
        if not np.may_share_memory(memory, out):
            out[...] = memory.reshape(out.shape)

    async def _change_each(
        self,
        door: Door,
        pieces: Iterable[T],
        cell: Callable[[T], Cell],
        act: Callable[[T, threading.Semaphore], None],
    ) -> None:
        """Call `act` for every piece, under the lock of the chunk at its cell.

        Encoding is to wait for its turn, the second argument, so that only requests exceed the threads.
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
            await door.map(change_one, window, waiting_count=waiting_count)

"""Reading and writing the stored chunks of one array, by the fastest way for its grid, store and codecs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from errno import ESTALE
from functools import lru_cache, partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from zstore._ext.engine.select import Layout, plan_basic
from zstore._ext.engine.select import Plan as KernelPlan
from zstore._ext.engine.transfer import (
    WRITE,
    Bundle,
    Folder,
    NearSpan,
    Stretches,
    brief_counts,
    covers_outer,
    read,
    read_joined,
    read_many,
    write,
)
from zstore.base import tracing
from zstore.base.byterange import AtMost
from zstore.base.once import once
from zstore.base.tracing import NOTHING, AnySpan, note_near, note_span, span
from zstore.base.waits import check_waits
from zstore.codecs.base import Chain, ChunkSpec
from zstore.codecs.sharding import is_filled
from zstore.engine.documents import ARRAY_KEYS, parse_node
from zstore.engine.fault import Fault, fault_error
from zstore.engine.fetch import (
    STREAM_COUNT,
    STREAMED_SIZE,
    STREAMED_SUM,
    WINDOW_COUNT,
    WINDOW_SIZE,
    WINDOWS_AT_ONCE,
    ShardFetch,
    ShardSource,
    Window,
    stored_size,
    windows,
    windows_at_once,
)
from zstore.engine.layout import BoundLayout, bind_handles, bind_layout, other_chunks
from zstore.engine.objects import HANDLE, FieldTable, Table, single, table_to_read, table_to_write
from zstore.engine.schedulers import (
    BLOCKING,
    SHORT_SIZE,
    JoinedItem,
    Joining,
    Scheduler,
    as_they_come,
    proven,
    thread_count,
)
from zstore.errors import ChangedError, CodecError, NotFoundError, ZstoreError, located, without_secrets
from zstore.indexing.rectilinear import ChunkPart, RectilinearLayout, RectilinearPlan
from zstore.indexing.rectilinear import plan_basic as plan_rectilinear
from zstore.indexing.select import AnyLayout, PointShare, Runs, SelectionPlan, select_transform
from zstore.indexing.transform import IndexTransform
from zstore.model.array import ArrayModel
from zstore.model.grid import RectilinearGrid
from zstore.storage.base import ATTEMPTS, Changes, Part, Store, drive, join_key, join_url
from zstore.storage.local import make_directory

tracing.brief_counts = brief_counts

# What is the same for every chunk grid

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
    is_guarded      whether writes are refused where the document is that of an array whose chunks are others,
                    or gone, as far as it takes no request to look at it
    """

    is_published = True
    is_guarded = False

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

    def emptied(self) -> Self:
        """The same chunks, of which none is kept decoded yet."""
        made = copy(self)
        made.__dict__.pop("folder", None)
        return made

    def key(self, cell: Cell) -> str:
        """The store key of the chunk (or shard) at a cell of the grid."""
        return join_key(self.path, self.model.keys.key(cell))

    def read(self, plan: SelectionPlan, out: Items, *, missing_is_fault: bool = False) -> None:
        """Fill `out` with the items of the plan.

        Raises
            CodecError: a chunk is damaged.
            NotFoundError: a chunk is missing and `missing_is_fault` is true.
            StoreError: the store failed.
        """
        drive(self.read_with(BLOCKING, plan, out, missing_is_fault))

    async def read_with(
        self, scheduler: Scheduler, plan: SelectionPlan, out: Items, missing_is_fault: bool
    ) -> None:
        """`read`, with any scheduler."""
        with self.span("read", [plan], [out]):
            if isinstance(plan, Runs):
                await self._read_runs(scheduler, plan, out, missing_is_fault)
            else:
                await self._read_box(scheduler, plan, out, missing_is_fault)

    async def read_many_with(
        self,
        scheduler: Scheduler,
        plans: Sequence[SelectionPlan],
        outs: Sequence[Items],
        missing_is_fault: bool,
    ) -> None:
        """Fill each of `outs` with the items of its plan, as `read` does."""
        pairs = list(zip(plans, outs, strict=True))
        boxes = [pair for pair in pairs if not isinstance(pair[0], Runs)]
        with self.span("read", plans, outs):
            await self._read_many(
                scheduler, [plan for plan, _ in boxes], [out for _, out in boxes], missing_is_fault
            )
            for plan, out in pairs:
                if isinstance(plan, Runs):
                    await self._read_runs(scheduler, plan, out, missing_is_fault)

    def write(self, plan: SelectionPlan, value: Items, *, has_fields: bool = False) -> None:
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

    async def write_with(
        self, scheduler: Scheduler, plan: SelectionPlan, value: Items, has_fields: bool
    ) -> None:
        """`write`, with any scheduler."""
        self.store.check_writable(self.path)
        if isinstance(plan, Runs):
            plan, value = plan.by_items(), value.reshape(-1)
        with self._span_of_write(plan, value) if tracing.is_on else NOTHING:
            await self._write(scheduler, plan, value, has_fields)

    # The document as it was last read, that of an array with chunks like these.
    _document: bytes | None = None

    @once
    def _swaps(self) -> bool:
        """Whether chunks are replaced only while they are those that were read, and the array is there."""
        return self.is_guarded and self.store.request_count == 1 and self.store.swap({}) is not None

    @once
    def _document_key(self) -> str:
        return join_key(self.path, ARRAY_KEYS[self.model.zarr_format])

    def check_document(self) -> bool:
        """Whether the array's document is as it was when it was last read, or else read it.

        Raises
            NotFoundError: it is gone.
            ChangedError: it is that of an array whose chunks are others.
        """
        data = self.store.get(self._document_key)
        if data is None:
            raise NotFoundError("array is gone", path=self._address)
        if data == self._document:
            return True
        found = parse_node({ARRAY_KEYS[self.model.zarr_format]: data}, self._address)
        other = "a group" if not isinstance(found, ArrayModel) else other_chunks(self.model, found)
        if other:
            message = f"cannot write: somebody else has replaced the array, which is now {other}"
            raise ChangedError(f"{message}; open it again, or call refresh()", path=self._address)
        self._document = bytes(data)
        return False

    def _swap(self, changes: Changes) -> bool:
        """Replace chunks in one step, as `Store.swap`, while the array is there; False: others changed them.

        Raises
            as `check_document`; nothing is changed then.
        """
        if self._document is None:
            self.check_document()
        while not self.store.swap({self._document_key: (self._document, ...), **changes}):
            if self.check_document():
                return False
        return True

    def _keep(self, key: str, old: Any, new: Any) -> bool:
        """Keep an encoded chunk in place of `old` (...: of any); False if others have changed it meanwhile.

        new  None for no change, False where all its items are the fill value
        """
        if self._swaps:
            return self._swap({key: (old, _to_swap(new))})
        if new is False:
            self.store.delete(key)
        elif new is not None:
            self.store.put(key, new)
        return True

    def read_box(self, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """`read` of a plan made by `plan`, with less overhead: for small windows. Notes no span."""
        drive(self._read_box(BLOCKING, plan, out, missing_is_fault))

    def read_traced(self, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """`read_box` while a trace is open."""
        with self.span("read", [plan], [out]):
            self.read_box(plan, out, missing_is_fault)

    def span(self, name: str, plans: Sequence[Any], items: Sequence[Items]) -> AnySpan:
        """The span of a read or write, with the chunks that the plans visit."""
        return span(name, **self._noted(plans, items)) if tracing.is_on else NOTHING

    def _span_of_write(self, plan: Any, value: Items) -> AnySpan | NearSpan:
        if not self._is_near:
            return self.span("write", [plan], [value])
        noted = NearSpan(WRITE, tracing.brief, note_near, getattr(plan, "task_count", 0), value.nbytes)
        noted.note_later(self._noted, [plan], [value])
        return noted

    @once
    def _is_near(self) -> bool:
        """Whether the chunks are files or in memory, so that nobody is asked for them."""
        return self.store.in_memory or self.store.local_path(self.path) is not None

    def _noted(self, plans: Sequence[Any], items: Sequence[Items]) -> dict[str, Any]:
        visits = sum([getattr(plan, "task_count", 0) for plan in plans])
        return {"array": self._address, "chunks": visits, "bytes": sum([one.nbytes for one in items])}

    @once
    def _address(self) -> str:
        return without_secrets(join_url(self.store.url, self.path))

    @abstractmethod
    async def _read_box(self, scheduler: Scheduler, plan: Any, out: Items, missing_is_fault: bool) -> None:
        """`read_with`, for a plan made against `layout`."""

    @abstractmethod
    async def _write(self, scheduler: Scheduler, plan: Any, value: Items, has_fields: bool) -> None:
        """`write_with`, for a plan made against `write_layout` or `field_layout`."""

    async def _read_many(
        self, scheduler: Scheduler, plans: list[Any], outs: list[Items], missing_is_fault: bool
    ) -> None:
        """`read_many_with`, for plans made against `layout`: one concurrent read for each."""
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

    @property
    def _under_way(self) -> int:
        """Chunks that are written at the same time to a store with latency, unless there are more threads."""
        return min(WRITTEN_COUNT, self.store.request_count, WRITTEN_SIZE // self.chunk_size)

    async def _change_each(
        self,
        scheduler: Scheduler,
        pieces: Iterable[T],
        cell: Callable[[T], Cell],
        act: Callable[[T, threading.Semaphore], bool],
    ) -> None:
        """Call `act` for every piece of a write, under the lock of the chunk at the piece's cell.

        It is called again where others have changed the chunk meanwhile, for which it gives False. `act` gets
        a semaphore to hold while it encodes: more requests than threads may run at the same time, but no more
        encoders.
        """
        threads, waiting_count = thread_count(), None
        if self.store.request_count > 1:
            waiting_count = max(self._under_way, threads)
        turn = threading.Semaphore(threads)

        def change_one(piece: T) -> None:
            if self._swaps:
                with self.store.lock(self.key(cell(piece))):
                    self._change(partial(act, piece, turn))
            elif self.is_published:
                self.store.update(self.key(cell(piece)), partial(act, piece, turn))
            else:
                act(piece, turn)

        left = iter(pieces)
        while window := list(islice(left, WINDOW_COUNT)):
            await scheduler.map(change_one, window, waiting_count=waiting_count)

    def _change(self, act: Callable[[], bool]) -> None:
        """Call `act` until it is true, under the chunk's lock: only who replaces the array comes between."""
        for _ in range(ATTEMPTS):
            if self._proves(act):
                return
        message = "cannot write: others changed the chunk during every attempt"
        raise ChangedError(message, path=self._address)

    def _proves(self, act: Callable[[], bool]) -> bool:
        """Whether `act` is true, which may find chunks that the codecs of another array have encoded."""
        try:
            return act()
        except CodecError:
            if self.check_document():
                raise
            return False


def _is_stale(fault: Fault | None) -> bool:
    """Whether the kernel has found another document than the one that is known."""
    return fault is not None and fault[:2] == ("store", ESTALE)


def _to_swap(new: Any) -> Any:
    """The value that `Store.swap` puts for an encoded chunk; None: no change, False: all fill value."""
    return ... if new is None else None if new is False else new


# Chunks of one shape

# Outer chunks that are encoded in one kernel call and put at once: so many, and of so many decoded bytes
# where the store has latency, unless one has more.
TOGETHER_COUNT = 128
TOGETHER_SIZE = 4 << 20

# Selections are read together up to this many chunks, counted once per selection that touches them.
VISIT_COUNT = 1 << 20

# The most boxes, and bytes, of points with slices that are read together: more are slower, because their
# memory is always new.
BOX_COUNT = 1 << 13
BOX_SIZE = 16 << 20
# Up to this many outer chunks are planned in microseconds.
PLANNED_COUNT = 16


class ReadRequest(NamedTuple):
    """A read's request: a plan, and the memory for its items."""

    plan: KernelPlan
    out: Items


class RegularChunks(Chunks):
    """The stored chunks of an array on a regular grid."""

    def __init__(
        self,
        store: Store,
        path: str,
        model: ArrayModel,
        *,
        skip_empty: bool = True,
        cache_size: int = 0,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__(store, path, model, skip_empty=skip_empty)
        self.bound: BoundLayout = bind_layout(model, allow_pickle=allow_pickle)
        self.layout: Layout = self.bound.layout
        self.plan = partial(plan_basic, self.layout)
        limit = self.bound.chain.stored_limit
        # Stored values may be of any size: one byte more than a chunk can have shows that one is too long.
        self._whole = None if store.is_bounded or limit is None else AtMost(limit + 1)
        self._cache_size = cache_size
        self._is_object = model.data_type.is_object
        self._writes_natively = self.bound.is_native and len(self.bound.shards) <= 1
        self.write_layout: Layout = self.layout if self._writes_natively else self.bound.outer

    @once
    def folder(self) -> Folder | None:
        """The array's directory, if the kernels can open its chunks as files (or as stretches of files)."""
        directory = self.store.local_path(self.path) if self.bound.is_native else None
        if directory is None:
            return self._stretches() if self.bound.is_native else None
        if not self.is_published:
            # Before the document is written there may be no directory yet.
            self._in_folder(partial(make_directory, str(directory), durable=self.store.durable))
        # An array with a cache of its own keeps every chunk; the others share the memory of the process.
        size = self._cache_size
        return Folder(
            str(directory),
            self.path,
            cache_size=size,
            keeps_chunks=size > 0,
            allowed=self.store.links_into,
        )

    def _stretches(self) -> Folder | None:
        found, keys = self.store.stretches(self.path), self.model.keys
        if found is None or len(found.grid) != len(self.model.shape):
            return None
        if found.has_c != bool(keys.prefix) or (found.grid and found.separator != keys.separator):
            return None  # the stretches are indexed by another chunk-key encoding
        _, _, _, number, file, offset, size, data, places, files = found
        make = partial(Stretches, found.grid, number, file, offset, size, data, places, files)
        stretches = self._in_folder(make)
        return Folder("", cache_size=self._cache_size, keeps_chunks=self._cache_size > 0, stretches=stretches)

    @once
    def _source(self) -> ShardSource:
        return ShardSource(self.store, self.model, self.bound, self.key)

    @once
    def _joining(self) -> tuple[Joining[ReadRequest], Joining[ReadRequest]]:
        """The queue in which reads join: one for those that fill missing chunks, one for those that raise."""
        return {}, {}

    @once
    def field_layout(self) -> Layout:
        return bind_handles(self.model, self.bound.chain)

    def read_box(self, plan: KernelPlan, out: Items, missing_is_fault: bool) -> None:
        folder = self.folder
        if folder is None:
            super().read_box(plan, out, missing_is_fault)
            return
        try:
            fault = read(plan, out, folder=folder, threads=thread_count(), missing_is_fault=missing_is_fault)
        except OSError as error:
            raise self.gone(error) from error
        if fault is not None:
            self.check(fault)

    def read_traced(self, plan: KernelPlan, out: Items, missing_is_fault: bool) -> None:
        folder, brief = self.folder, tracing.brief
        if folder is None or not brief:
            super().read_traced(plan, out, missing_is_fault)
            return
        try:
            found = read(
                plan,
                out,
                folder=folder,
                threads=thread_count(),
                missing_is_fault=missing_is_fault,
                brief=brief,
            )
        except OSError as error:
            with self.span("read", [plan], [out]):
                raise self.gone(error) from error
        if type(found) is int:
            note_span("read", found / 1e9, **self._noted([plan], [out]))
        elif found is not None:
            with self.span("read", [plan], [out]):
                self.check(found)

    async def _read_box(
        self, scheduler: Scheduler, plan: KernelPlan, out: Items, missing_is_fault: bool
    ) -> None:
        if scheduler is BLOCKING and self.folder is not None:
            self.read_box(plan, out, missing_is_fault)
            return
        batch = partial(read, plan, out, threads=thread_count(), missing_is_fault=missing_is_fault)
        if self.folder is not None:
            await self._run_files(scheduler, partial(batch, folder=self.folder), plan.outer_count)
        elif self.store.in_memory and self.bound.is_native:
            outer = [self.store.get(self.key(cell)) for cell in plan.outer_cells()]
            self.check(await scheduler.run(partial(batch, outer=outer), self._decoded_size(len(outer))))
        elif not self._is_object:
            await self._read_values(scheduler, plan, out, missing_is_fault, None)
        else:
            table = table_to_read(self.bound.inner)
            handles = np.empty(plan.shape, HANDLE)
            await self._read_values(scheduler, plan, handles, missing_is_fault, table)
            await scheduler.run(partial(table.put, handles, out))

    async def _read_values(
        self, scheduler: Scheduler, plan: KernelPlan, out: Items, missing_is_fault: bool, table: Table | None
    ) -> None:
        if self.bound.shards:
            read_shards = partial(
                self._read_shards, scheduler, missing_is_fault=missing_is_fault, table=table
            )

            async def alone(wanted: ReadRequest) -> None:
                await read_shards([wanted.plan], [partial(read, *wanted)])

            async def together(members: Sequence[JoinedItem[ReadRequest]]) -> None:
                wanted = [member.item for member in members]
                batches = [partial(read, *one) for one in wanted]
                await read_shards([plan for plan, _ in wanted], batches, members=members)

            # Of more, decoding takes most of the time, which those who join do one after the other.
            is_small = table is None and self.bound.is_native and plan.outer_count > 0
            is_small = is_small and self._decoded_size(0, plan.task_count) <= SHORT_SIZE
            joins = is_small and self.store.request_count > 1
            joining = self._joining[missing_is_fault]
            await scheduler.join(joining, ReadRequest(plan, out), alone, together if joins else None)
            return
        batch = partial(read, plan, out, threads=thread_count(), missing_is_fault=missing_is_fault)
        await self._run_windows(scheduler, batch, plan.outer_cells(), table)

    async def _read_shards(
        self,
        scheduler: Scheduler,
        plans: Sequence[KernelPlan | Bundle],
        batches: Sequence[Callable[..., Fault | None]],
        missing_is_fault: bool,
        table: Table | None = None,
        members: Sequence[JoinedItem[ReadRequest]] | None = None,
    ) -> None:
        """Read what several plans need from shards, with their requests joined.

        batches  for each plan, the kernel that takes its chunks
        members  those who have joined for it: each is told when its own items are there, or its own error
        """
        outer_count = sum(plan.outer_count for plan in plans)
        is_awaited = None if members is None else lambda number: members[number].is_awaited
        make = partial(ShardFetch, scheduler, self._source, plans, is_awaited)
        # Planning 1,000 outer chunks takes about as long as decoding 64 KiB.
        fetch = make() if outer_count <= PLANNED_COUNT else await scheduler.run(make, 64 * outer_count)
        threads = thread_count()

        async def scatter(window: Window) -> None:
            inner, first, last = window.inner, window.first, window.last
            run = partial(batches[window.plan], threads=threads, missing_is_fault=missing_is_fault)
            size = self._decoded_size(last - first, None if inner is None else len(inner))
            with span("decode", chunks=last - first if inner is None else len(inner), bytes=size):
                if inner is not None and not self.bound.is_native:
                    inner = await self._decode_all(scheduler, inner, window.names or [], table)
                work = partial(run, outer=window.outer, inner=inner, window=(first, last))
                if members is not None:  # who goes away must not find a thread at work in his memory
                    size = min(size, SHORT_SIZE)
                self.check(await scheduler.run(work, size))

        async def use(window: Window) -> None:
            try:
                await scatter(window)
            except CodecError:
                if window.is_certain:
                    raise
                # A shard may have been replaced between reading its index and its chunks.
                await scatter(await fetch.again(window))

        if members is None:
            await fetch.each_window(use)
            return
        left = [plan.outer_count for plan in plans]

        async def use_of(window: Window) -> None:
            member = members[window.plan]
            if not member.is_awaited:
                return
            try:
                await use(window)
            except Exception as error:
                member.end(error)
            left[window.plan] -= window.last - window.first
            if not left[window.plan]:
                member.end()

        await fetch.each_window(use_of)

    def _reads_together(self) -> bool:
        """Whether a chunk that several plans touch can be fetched and decoded once."""
        is_near = self.bound.is_native and (self.folder is not None or self.store.in_memory)
        return not self._is_object and (is_near or not self.bound.shards)

    def _has_far_shards(self) -> bool:
        """Whether it is inner chunks that are fetched, many at a time."""
        is_far = self.folder is None and self.store.request_count > 1
        return bool(self.bound.shards) and is_far and not self._is_object

    async def _read_many(
        self, scheduler: Scheduler, plans: list[KernelPlan], outs: list[Items], missing_is_fault: bool
    ) -> None:
        if not self._reads_together() and not self._has_far_shards():
            await super()._read_many(scheduler, plans, outs, missing_is_fault)
            return
        first = visits = 0
        for k, plan in enumerate(plans):
            if visits and visits + plan.task_count > VISIT_COUNT:
                await self._read_together(scheduler, plans[first:k], outs[first:k], missing_is_fault)
                first, visits = k, 0
            visits += plan.task_count
        if visits:
            await self._read_together(scheduler, plans[first:], outs[first:], missing_is_fault)

    def _fetched_size(self, plan: KernelPlan) -> int:
        return min(self.chunk_size * plan.outer_count, super()._fetched_size(plan))

    async def _read_together(
        self, scheduler: Scheduler, plans: list[KernelPlan], outs: list[Items], missing_is_fault: bool
    ) -> None:
        try:
            bundle = await scheduler.run(partial(Bundle, plans))
        except OverflowError:  # they lie too far from each other
            await super()._read_many(scheduler, plans, outs, missing_is_fault)
            return
        if self._has_far_shards():
            await self._read_shards(scheduler, [bundle], [partial(read_many, bundle, outs)], missing_is_fault)
            return
        batch = partial(read_many, bundle, outs, threads=thread_count(), missing_is_fault=missing_is_fault)
        if self.folder is not None:
            await self._run_files(scheduler, partial(batch, folder=self.folder), bundle.outer_count)
            return
        await self._run_windows(scheduler, batch, bundle.outer_cells(), None)

    async def _run_files(
        self, scheduler: Scheduler, batch: Callable[..., Fault | None], outer_count: int
    ) -> None:
        """Run a kernel on the array's directory, span by span of the outer chunks."""
        count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // self.chunk_size))
        for window in scheduler.spans(outer_count, count):
            self.check(await scheduler.run(partial(self._in_folder, partial(batch, window=window))))

    async def _read_runs(self, scheduler: Scheduler, runs: Runs, out: Items, missing_is_fault: bool) -> None:
        """Read the boxes of a plan of points, up to BOX_COUNT and BOX_SIZE at once."""
        if not out.size:
            return
        if not self._reads_together():
            await super()._read_runs(scheduler, runs, out, missing_is_fault)
            return
        pending: list[tuple[PointShare, Items]] = []
        size = 0
        for share in runs.shares(self.bound.inner.spec.shape, out.dtype.itemsize):
            if share.places is None:
                memory = out[share.rows]
            else:
                memory = np.empty(share.plan.shape, out.dtype)
                size += memory.nbytes
            pending.append((share, memory))
            if size > BOX_SIZE or len(pending) == BOX_COUNT:
                await self._read_shares(scheduler, pending, out, missing_is_fault)
                pending, size = [], 0
        await self._read_shares(scheduler, pending, out, missing_is_fault)

    async def _read_shares(
        self, scheduler: Scheduler, shares: list[tuple[PointShare, Items]], out: Items, missing_is_fault: bool
    ) -> None:
        plans: list[Any] = [share.plan for share, _ in shares]
        await self._read_many(scheduler, plans, [memory for _, memory in shares], missing_is_fault)
        for share, memory in shares:
            if share.places is not None:
                out[share.rows] = memory.reshape(-1, *out.shape[1:])[share.places]

    async def _run_windows(
        self, scheduler: Scheduler, batch: Callable[..., Fault | None], cells: list[Cell], table: Table | None
    ) -> None:
        """Run a kernel on whole outer chunks, window by window; codecs in Python decode them first."""
        count, at_once = windows(self.store, len(cells), self.chunk_size)
        is_much = self.chunk_size >= STREAMED_SIZE and self.chunk_size * len(cells) >= STREAMED_SUM
        is_streamed = (is_much or len(cells) > count) and at_once >= WINDOWS_AT_ONCE and self.bound.is_native
        if is_streamed and scheduler is BLOCKING and await self._run_each(scheduler, batch, cells):
            return

        async def run(first: int) -> None:
            keys = [self.key(cell) for cell in cells[first : first + count]]
            with await scheduler.reserve(self.chunk_size * len(keys)):
                with span("fetch", chunks=len(keys)) as noted:
                    asked = [(key, self._whole) for key in keys]
                    values: list[Any] = await scheduler.get_many(self.store, asked)
                    noted.note(bytes=stored_size(values))
                size = self._decoded_size(len(keys))
                with span("decode", chunks=len(keys), bytes=size):
                    if not self.bound.is_native:
                        values = await self._decode_all(scheduler, values, keys, table)
                    work = partial(batch, outer=list(values), window=(first, first + len(keys)))
                    self.check(await scheduler.run(work, size))

        await scheduler.each(run, range(0, len(cells), count), at_once)

    async def _run_each(
        self, scheduler: Scheduler, batch: Callable[..., Fault | None], cells: list[Cell]
    ) -> bool:
        """Run a batch of chunks, each decoded where it is received; False if the store cannot."""
        count = min(thread_count(), STREAM_COUNT, len(cells))
        requests = [(self.key(cell), self._whole) for cell in cells]
        asked = [self.store.get_each(requests[k::count], self.chunk_size, count) for k in range(count)]
        streams = [stream for stream in asked if stream is not None]
        if len(streams) < count:
            return False
        has_failed = threading.Event()

        def scatter(parts: Sequence[tuple[int, Part | None]]) -> None:
            values = [part and part.data for _, part in parts]
            proven(self.store, [requests[at] for at, _ in parts], values)
            with span("decode", chunks=len(parts), bytes=self.chunk_size * len(parts)):
                for (at, _), value in zip(parts, values, strict=True):
                    self.check(batch(outer=[value], window=(at, at + 1)))

        async def run(k: int) -> None:
            found = as_they_come(streams[k])
            while not has_failed.is_set():
                with span("fetch") as noted:
                    some = next(found, None)
                    sizes = [len(part.data) for _, part in some or () if part is not None]
                    noted.note(chunks=len(some or ()), bytes=sum(sizes))
                if some is None:
                    return
                scatter([(k + number * count, part) for number, part in some])
                del some  # so that no chunks are held while others are waited for

        async def run_or_end(k: int) -> None:
            try:
                await run(k)
            except BaseException:
                has_failed.set()
                raise

        await scheduler.each(run_or_end, range(count), count)
        return True

    def _decoded_size(self, outer_count: int, inner_count: int | None = None) -> int:
        """The decoded bytes of this many inner chunks, or of this many outer ones."""
        if inner_count is None:
            return self.chunk_size * outer_count
        spec = self.bound.inner.spec
        return inner_count * prod(spec.shape) * spec.dtype.itemsize

    async def _decode_all(
        self, scheduler: Scheduler, values: list[Any], keys: list[str], table: Table | None
    ) -> list[Any]:
        pieces = zip(values, keys, strict=True)
        return await scheduler.map(partial(self._decode, table), pieces, may_leave=True)

    def _decode(self, table: Table | None, piece: tuple[Any, str]) -> Any:
        data, key = piece
        return None if data is None else self._plain(self.bound.inner, data, key, table)

    def _plain(self, chain: Chain, data: Any, key: str, table: Table | None) -> Any:
        """The bytes of a decoded chunk's items, or of handles for items that are Python objects."""
        with located(self.store.url, key):
            chain.check_stored_size(data)
            items = chain.decode(data) if table is None else table.decode(chain, data)
        return np.ascontiguousarray(items).reshape(-1).view(np.uint8)

    async def _write(self, scheduler: Scheduler, plan: KernelPlan, value: Items, has_fields: bool) -> None:
        table: Table | None = None
        if has_fields:
            table = FieldTable(self.bound.chain.spec, value)
            value = table.handles()
        elif self._is_object:
            table = table_to_write(self.bound.chain)
            value = await scheduler.run(partial(table.take_in_broadcast, value))
        elif self.folder is not None and self._writes_natively:
            await self._write_files(scheduler, plan, value, self.folder)
            return
        elif self._writes_natively and self._puts_together(plan.outer_count):
            await self._write_together(scheduler, plan, value)
            return
        await self._write_each(scheduler, plan, value, range(plan.outer_count), table)

    def _puts_together(self, outer_count: int) -> bool:
        """Whether so many outer chunks are put at once, or in memory, where that takes no time."""
        return self.store.in_memory or (outer_count > 1 and self.store.put_many([], []) is not None)

    async def _write_each(
        self,
        scheduler: Scheduler,
        plan: KernelPlan,
        value: Items,
        outers: Sequence[int],
        table: Table | None = None,
    ) -> None:
        """Write outer chunks one by one, each under its lock."""
        cells = plan.outer_cells()
        threads = thread_count() if len(outers) == 1 else 1

        def write_outer(outer: int, turn: threading.Semaphore) -> bool:
            return self._write_outer(plan, value, outer, cells[outer], turn, threads, table)

        await self._change_each(scheduler, outers, cells.__getitem__, write_outer)

    async def _write_files(
        self, scheduler: Scheduler, plan: KernelPlan, value: Items, folder: Folder
    ) -> None:
        batch = partial(
            write,
            plan,
            value,
            folder=folder,
            document=ARRAY_KEYS[self.model.zarr_format] if self.is_published else "",
            durable=self.store.durable,
            skip_empty=self.skip_empty,
            threads=thread_count(),
        )

        def run(window: tuple[int, int]) -> Fault | None:
            try:
                if self.is_guarded and not folder.knows_document:
                    self._know_document(folder)
                fault: Fault | None = batch(window=window, is_known=self.is_guarded)[0]
                if _is_stale(fault):
                    # Its shape or attributes may have changed: what is written now again is the same.
                    each = (run_one((outer, outer + 1)) for outer in range(*window))
                    fault = next((fault for fault in each if fault is not None), None)
            except FileNotFoundError:
                if self.is_guarded:
                    self.check_document()
                raise
            return fault

        def run_one(window: tuple[int, int]) -> Fault | None:
            fault: Fault | None = None
            for _ in range(ATTEMPTS):
                self._know_document(folder)
                fault = batch(window=window, is_known=True)[0]
                if not _is_stale(fault):
                    break
            return fault

        await self._run_files(scheduler, run, plan.outer_count)

    def _know_document(self, folder: Folder) -> None:
        """Have the folder keep the document's state, if it is that of an array with chunks like these."""
        seen = folder.look(ARRAY_KEYS[self.model.zarr_format])
        self.check_document()
        if seen is not None:
            folder.know(seen)

    async def _write_together(self, scheduler: Scheduler, plan: KernelPlan, value: Items) -> None:
        """Write outer chunks by windows, each of which is encoded by one kernel call and put at once."""
        cells, threads = plan.outer_cells(), thread_count()
        is_far = self.store.request_count > 1
        most = TOGETHER_SIZE if is_far else WRITTEN_SIZE
        count = max(1, min(TOGETHER_COUNT, most // self.chunk_size))
        firsts = range(0, len(cells), count)
        # So many windows are encoded at the same time: what has few chunks leaves threads to others.
        encoding = max(1, min(threads // count, len(firsts)))
        turn = threading.Semaphore(encoding)
        left: list[int] = []

        def write_some(first: int) -> None:
            part = cells[first : first + count]
            left.extend(self._write_window(plan, value, first, part, turn, threads // encoding))

        if is_far:
            # Two at least, so that one is encoded while the other is under way.
            at_once = max(2, encoding, self._under_way // count)
            await scheduler.map(write_some, firsts, waiting_count=at_once)
        else:
            for first in firsts:
                await scheduler.run(partial(write_some, first))
        if left:
            await self._write_each(scheduler, plan, value, left)

    def _write_window(
        self,
        plan: KernelPlan,
        value: Items,
        first: int,
        cells: Sequence[Cell],
        turn: threading.Semaphore,
        threads: int,
    ) -> Sequence[int]:
        """Write the outer chunks at `cells`; the numbers of those that others have changed meanwhile."""
        keys = [self.key(cell) for cell in cells]
        parts = {key for key, cell in zip(keys, cells, strict=True) if covers_outer(plan, cell) != 2}
        # Whoever writes a part of a chunk notices where others replace all of it, or is kept away.
        shared = parts if self.store.notices_changes else keys
        with ExitStack() as held:
            if self.is_published:
                for key in sorted(shared):  # always in this order, so that two writers cannot deadlock
                    held.enter_context(self.store.lock(key))
            old: dict[str, Any] = {}
            if parts:
                asked = [(key, None) for key in keys if key in parts]
                old = {key: one for (key, _), one in zip(asked, self.store.get_many(asked), strict=True)}
            made = list[Any]()

            def encode() -> bool:
                with turn:
                    check_waits()
                    made[:] = self._encode(plan, value, first, [old.get(key) for key in keys], threads)
                return True

            if self._swaps:
                is_kept = self._proves(encode) and self._swap(
                    {
                        key: (old.get(key) if key in parts else ..., _to_swap(one))
                        for key, one in zip(keys, made, strict=True)
                    }
                )
                for key in keys:
                    self._source.indexes.drop(key)
                return [] if is_kept else range(first, first + len(keys))
            encode()
            new = {key: one for key, one in zip(keys, made, strict=True) if one is not None}
            return [first + keys.index(key) for key in self._keep_all(new, parts)]

    def _keep_all(self, new: Mapping[str, Any], parts: Container[str]) -> list[str]:
        """Keep encoded chunks, as `_keep`, all at once; the keys of those that others have changed meanwhile.

        parts  the keys of chunks that are not replaced as a whole, whose locks are held
        """
        put = {key: one for key, one in new.items() if one is not False}
        found = self.store.put_many([*put], [*put.values()])
        if found is None:
            for key, one in put.items():
                self.store.put(key, one)
        changed = [key for key, one in zip(put, found or (), strict=False) if isinstance(one, ChangedError)]
        gone = [key for key in new if new[key] is False and key not in parts]
        each = [key for key in new if new[key] is False and key in parts]
        if gone and not self.store.delete_many(gone):
            each += gone
        for key in each:
            try:
                self.store.delete(key)
            except ChangedError:
                changed.append(key)
        for key in new:
            self._source.indexes.drop(key)
        return changed

    def _write_outer(
        self,
        plan: KernelPlan,
        value: Items,
        outer: int,
        cell: Cell,
        turn: threading.Semaphore,
        threads: int,
        table: Table | None,
    ) -> bool:
        """Write one outer chunk, as `_keep`; `turn` limits how many threads encode at the same time."""
        key = self.key(cell)
        table = table and table.fork()
        is_plain = table is not None or not self._writes_natively
        covers = 0 if table is not None and table.keeps_old else covers_outer(plan, cell)
        old = None if covers == 2 else self.store.get(key)
        seen = ... if covers == 2 else old
        with turn:
            check_waits()
            if old is not None and is_plain:
                try:
                    old = self._plain(self.bound.chain, old, key, table)
                except ZstoreError:
                    # A damaged chunk may be replaced, as far as the array reaches.
                    if covers != 1:
                        raise
                    old = None
            [new] = self._encode(plan, value, outer, [old], threads)
            if new and is_plain:
                new = self._encode_outer(new, key, table)
        is_kept = self._keep(key, seen, new)
        self._source.indexes.drop(key)
        return is_kept

    def _encode(self, plan: KernelPlan, value: Items, first: int, old: list[Any], threads: int) -> list[Any]:
        """The new content of outer chunks: bytes to store, None for no change, False for one to delete.

        Without native codecs, the bytes are plain items or handles, which are still to be encoded.
        """
        window = (first, first + len(old))
        fault, results = write(
            plan, value, outer=old, window=window, skip_empty=self.skip_empty, threads=threads
        )
        self.check(fault)
        return results or [None] * len(old)

    def _encode_outer(self, new: bytes, key: str, table: Table | None) -> Any:
        """Encode an outer chunk's plain items or handles; False for a chunk that is to be deleted."""
        chain, spec = self.bound.chain, self.bound.chain.spec
        with located(self.store.url, key):
            if table is None:
                return chain.encode(np.frombuffer(new, spec.dtype).reshape(spec.shape))
            items = table.items(np.frombuffer(new, HANDLE).reshape(spec.shape))
            is_empty = self.skip_empty and table.keeps_old and is_filled(items, spec.fill_value)
            return not is_empty and chain.encode(items)

    def check(self, fault: Fault | None) -> None:
        """Raise the fault that the kernels report, as an error with the names of the chunk and the array."""
        if fault is not None:
            key, codecs = self.key(fault[5]), self.bound.step_names
            origin = self.store.origin(key)
            raise fault_error(fault, path=self.store.url, key=key, codecs=codecs, origin=origin)

    def _in_folder(self, batch: Callable[[], T]) -> T:
        """Call a kernel on the array's directory; its OSError becomes a StoreError."""
        try:
            return batch()
        except ZstoreError:
            raise
        except OSError as error:
            raise self.gone(error) from error

    def gone(self, error: OSError) -> BaseException:
        """The error for an array whose directory cannot be opened."""
        if error.errno is None:  # raised by a signal handler, not by a system call
            raise error
        fault: Fault = ("store", error.errno, 0, 0, 0, (), None)
        return fault_error(fault, path=self.store.url, key=self.path, codecs=[])


# Selections of several arrays, in one batch

# A batch ends with the selection that brings it to so many decoded bytes, where a chunk is at least so many.
# Selections of more are read alone, by all threads: what a call costs is nothing beside them.
JOINED_SIZE = 8 << 20
JOINED_CHUNK = 8 << 10

# A plan, the layout and the folder of its array, the memory for its items, whether missing chunks are faults,
# and the array's chunks.
JoinedPart = tuple[KernelPlan, Layout, Folder, Items, bool, RegularChunks]


class SharedPlan(NamedTuple):
    """A plan for arrays of one form, how memory looks to it, and the bytes of a batch that it takes."""

    plan: KernelPlan
    to_plan: Callable[[Items], Items] | None
    size: int


class Join:
    """Selections of several arrays, which the kernels read together."""

    def __init__(self) -> None:
        # By the form of chunks and the transform; None: they are read alone.
        self._plans: dict[tuple[Any, IndexTransform], SharedPlan | None] = {}
        self._batches: list[list[JoinedPart]] = []
        self._room = 0

    def add(self, chunks: Chunks, transform: IndexTransform, out: Items, missing_is_fault: bool) -> bool:
        """Whether a selection is read into memory with the others; else it must be read alone.

        Raises
            SelectionError: a position is out of bounds.
        """
        if not isinstance(chunks, RegularChunks) or chunks.folder is None or out.dtype != chunks.dtype:
            return False
        layout = chunks.layout
        form = layout.form, transform
        if form not in self._plans:
            self._plans[form] = _shared_plan(chunks, transform)
        made = self._plans[form]
        if made is None:
            return False
        plan, to_plan, size = made
        memory = out
        if to_plan is not None:
            memory = to_plan(out)
            if not np.may_share_memory(memory, out):
                return False
        if lies_between(out):
            return False
        if self._room <= 0:
            self._batches.append([])
            self._room = JOINED_SIZE
        self._room -= size
        self._batches[-1].append((plan, layout, chunks.folder, memory, missing_is_fault, chunks))
        return True

    async def read(self, scheduler: Scheduler) -> None:
        """Fill the memory of all selections with their items; raises what `Chunks.read` raises."""
        for batch in self._batches:
            found = await scheduler.run(partial(read_joined, batch, threads=thread_count()))
            if found is not None:
                (*_, chunks), fault = found
                if isinstance(fault, OSError):
                    raise chunks.gone(fault) from fault
                chunks.check(fault)


def lies_between(out: Items) -> bool:
    """Whether much memory may lie, item by item, between that of other arrays.

    Threads that read both at the same time would write to the same lines of the processor's cache.
    """
    return out.nbytes > SHORT_SIZE and out.itemsize not in out.squeeze().strides


def _shared_plan(chunks: RegularChunks, transform: IndexTransform) -> SharedPlan | None:
    """The plan of a selection; None where it is not one for the kernels, or too large to share a batch."""
    plan, _, to_plan, _ = select_transform(chunks.layout, chunks.model.shape, transform)
    if not isinstance(plan, KernelPlan):
        return None
    size = max(plan.decoded_size, plan.task_count * JOINED_CHUNK)
    return SharedPlan(plan, to_plan, size) if size <= JOINED_SIZE else None


# Chunks that differ in shape, one by one in Python


def open_chunks(
    store: Store, path: str, model: ArrayModel, *, cache_size: int = 0, allow_pickle: bool = False
) -> Chunks:
    """The stored chunks of one array, with the reader and writer for its grid.

    Raises
        UnknownExtensionError: a codec that nobody offers.
        MetadataError: codecs that do not fit together or the chunks.
        UnsupportedError: chunks are pickled, and the caller does not allow that.
    """
    if isinstance(model.grid, RectilinearGrid) and not model.grid.is_even:
        return RectilinearChunks(store, path, model, model.grid, allow_pickle=allow_pickle)
    return RegularChunks(store, path, model, cache_size=cache_size, allow_pickle=allow_pickle)


class RectilinearChunks(Chunks):
    """The stored chunks of an array whose chunks differ in shape."""

    def __init__(
        self, store: Store, path: str, model: ArrayModel, grid: RectilinearGrid, *, allow_pickle: bool
    ) -> None:
        super().__init__(store, path, model)
        self.layout = self.write_layout = RectilinearLayout(model.shape, grid)
        self.plan = partial(plan_rectilinear, self.layout)
        self._allow_pickle = allow_pickle
        self._fill_item = single(self.fill_value, self.dtype)
        self._chain = lru_cache(256)(self._bind)
        self._chain(grid.chunk_shape)

    def _bind(self, shape: tuple[int, ...]) -> Chain:
        return Chain.bind(
            self.model.codecs, ChunkSpec(shape, self.dtype, self.fill_value, self._allow_pickle)
        )

    async def _read_box(
        self, scheduler: Scheduler, plan: RectilinearPlan, out: Items, missing_is_fault: bool
    ) -> None:
        def scatter(piece: tuple[ChunkPart, Any]) -> None:
            part, data = piece
            key = self.key(part.cell)
            if not is_remote:
                [data] = proven(self.store, [(key, None)], [self.store.get(key)])
            if data is None and missing_is_fault:
                raise NotFoundError("chunk is missing", path=self.store.url, key=key)
            if data is None:
                out[part.outer] = self._fill_item
            else:
                out[part.outer] = self._decode(part, data, key)[part.inner]

        async def read(window: list[ChunkPart]) -> None:
            values: list[Any] = [None] * len(window)
            size, decoding = sum(map(self._part_size, window)), NOTHING
            with await scheduler.reserve(size):
                if is_remote:
                    with span("fetch", chunks=len(window)) as noted:
                        asked = [(self.key(part.cell), None) for part in window]
                        values = list(await scheduler.get_many(self.store, asked))
                        noted.note(bytes=stored_size(values))
                    decoding = span("decode", chunks=len(window), bytes=size)
                with decoding:
                    await scheduler.map(scatter, zip(window, values, strict=True))

        is_remote = self.store.request_count > 1
        count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // self.chunk_size)) if is_remote else WINDOW_COUNT
        parts = plan.parts()
        windows = iter(lambda: list(islice(parts, count)), [])
        await scheduler.each(read, windows, windows_at_once(self.store, None, self.chunk_size))

    def _part_size(self, part: ChunkPart) -> int:
        return prod(part.shape) * self.dtype.itemsize

    def _decode(self, part: ChunkPart, data: Any, key: str) -> Items:
        with located(self.store.url, key):
            return self._chain(part.shape).decode(data)

    async def _write(
        self, scheduler: Scheduler, plan: RectilinearPlan, value: Items, has_fields: bool
    ) -> None:
        def write_part(part: ChunkPart, turn: threading.Semaphore) -> bool:
            key = self.key(part.cell)
            if has_fields:
                part = part._replace(is_whole=False, is_rest=False)
            old = None if part.is_whole else self.store.get(key)
            with turn, located(self.store.url, key):
                check_waits()
                chunk = self._gather(part, value, old, key)
                is_empty = self.skip_empty and is_filled(chunk, self.fill_value)
                data = not is_empty and self._chain(part.shape).encode(chunk)
            return self._keep(key, ... if part.is_whole else old, data)

        await self._change_each(scheduler, plan.parts(), lambda part: part.cell, write_part)

    def _gather(self, part: ChunkPart, value: Items, old: Any, key: str) -> Items:
        """The decoded chunk after the write: its stored items, with the new ones in place."""
        chunk = np.empty(part.shape, self.dtype)
        if not part.is_whole:
            chunk[...] = self._fill_item
        if old is not None:
            try:
                chunk[...] = self._decode(part, old, key)
            except ZstoreError:
                # A damaged chunk may be replaced, as far as the array reaches.
                if not part.is_rest:
                    raise
        if value.dtype == chunk.dtype:
            chunk[part.inner] = value[part.outer]
            return chunk
        for name in value.dtype.names or ():
            chunk[name][part.inner] = value[name][part.outer]
        return chunk

"""The stored chunks of one array: reads and writes of a plan, by the shortest way of store and codecs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from zstore._ext.select import Layout, Plan
from zstore._ext.transfer import Bundle, Folder, covers_outer, read, read_many, write
from zstore.base.once import once
from zstore.codecs.sharding import is_filled
from zstore.engine.cache import open_folder
from zstore.engine.documents import ARRAY_KEYS
from zstore.engine.fault import Fault, fault_error
from zstore.engine.fetch import WINDOW_COUNT, WINDOW_SIZE, Fetch, Source, Window
from zstore.engine.fields import FieldTable
from zstore.engine.layout import BoundLayout, bind_handles, bind_layout
from zstore.engine.many import read_apart
from zstore.engine.objects import HANDLE, Table, table_to_read, table_to_write
from zstore.engine.pool import ahead, map_threads, thread_count
from zstore.errors import CodecError, ZstoreError
from zstore.indexing.plans import planner
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key

__all__ = ["Chunks"]

# Writing to a store that takes its time, as many outer chunks are under way as hide that, and no more decoded
# bytes than this, unless the engine's threads alone have more.
WRITTEN_COUNT = 32
WRITTEN_SIZE = 256 << 20

# Outer chunks in memory are made together, as many in one call.
TOGETHER_COUNT = 256

# Many selections are read together as long as they touch no more chunks than this, each counted by itself.
VISIT_COUNT = 1 << 20


class Chunks:
    """What the engine keeps of one array; made anew when the array is resized."""

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
        self.store = store
        self.path = path
        self.model = model
        self.skip_empty = skip_empty
        self.cache_size = cache_size
        self.document = ARRAY_KEYS[model.zarr_format]
        self.bound: BoundLayout = bind_layout(model, allow_pickle=allow_pickle)
        self.layout: Layout = self.bound.layout
        self.plan = planner(self.layout)
        self.dtype = model.dtype
        self.is_object = model.data_type.is_object

    @once
    def folder(self) -> Folder | None:
        """The array's directory, where chunks are files that the kernels can open by themselves."""
        directory = self.store.local_path(self.path) if self.bound.is_native else None
        if directory is None:
            return None
        return open_folder(str(directory), self.cache_size)

    @once
    def _source(self) -> Source:
        return Source(self.store, self.model, self.bound, self.key)

    @property
    def write_layout(self) -> Layout:
        """What plans for writing are made against."""
        return self.layout if self._writes_natively else self.bound.outer

    @property
    def fill_value(self) -> Any:
        """What items are where nothing was written."""
        return self.bound.chain.spec.fill_value

    @once
    def handle_layout(self) -> Layout:
        """What plans for writing fields are made against."""
        return bind_handles(self.model, self.bound.chain)

    @once
    def _writes_natively(self) -> bool:
        return self.bound.is_native and len(self.bound.shards) <= 1

    def key(self, cell: tuple[int, ...]) -> str:
        """The store key of an outer chunk."""
        return join_key(self.path, self.model.keys.key(cell))

    def read(self, plan: Plan, out: np.ndarray[Any, Any], *, missing_is_fault: bool = False) -> None:
        """Fill `out` with what the plan selects.

        Raises
            CodecError: a chunk is damaged.
            NotFoundError: a chunk is missing, where the caller said that this is a fault.
            StoreError: the store failed.
        """
        folder = self.folder
        if folder is not None:
            try:
                fault = read(
                    plan, out, folder=folder, threads=thread_count(), missing_is_fault=missing_is_fault
                )
            except OSError as error:
                raise self._gone(error) from error
            if fault is not None:
                raise self._error(fault)
            return
        if not self.is_object:
            self._read(plan, out, missing_is_fault, None)
            return
        table = table_to_read(self.bound.inner)
        handles = np.empty(plan.shape, HANDLE)
        self._read(plan, handles, missing_is_fault, table)
        table.put(handles, out)

    def _read(
        self, plan: Plan, out: np.ndarray[Any, Any], missing_is_fault: bool, table: Table | None
    ) -> None:
        if self.store.in_memory and self.bound.is_native:
            outer = [self.store.get(self.key(cell)) for cell in plan.outer_cells()]
            fault = read(plan, out, outer=outer, threads=thread_count(), missing_is_fault=missing_is_fault)
            if fault is not None:
                raise self._error(fault)
            return
        fetch = Fetch(self._source, plan)
        windows = fetch.windows()
        for window in ahead(windows) if self.store.request_count > 1 < plan.outer_count else windows:
            try:
                self._scatter(plan, window, out, missing_is_fault, table)
            except CodecError:
                if window.is_certain:
                    raise
                # A shard may have been replaced between reading its index and its chunks.
                self._scatter(plan, fetch.again(window), out, missing_is_fault, table)

    @property
    def reads_together(self) -> bool:
        """Whether `read_many` fetches and decodes a chunk once that several plans touch."""
        is_near = self.bound.is_native and (self.folder is not None or self.store.in_memory)
        return not self.is_object and (is_near or not self.bound.shards)

    def read_many(
        self, plans: list[Plan], outs: list[np.ndarray[Any, Any]], *, missing_is_fault: bool = False
    ) -> None:
        """Fill each of `outs` with what its plan selects; a chunk that several touch is decoded once.

        Raises what `read` raises.
        """
        if not self.reads_together:
            self._read_apart(plans, outs, missing_is_fault)
            return
        first = visits = 0
        for k, plan in enumerate(plans):
            if visits and visits + plan.task_count > VISIT_COUNT:
                self._read_together(plans[first:k], outs[first:k], missing_is_fault)
                first, visits = k, 0
            visits += plan.task_count
        if visits:
            self._read_together(plans[first:], outs[first:], missing_is_fault)

    def _read_apart(
        self, plans: list[Plan], outs: list[np.ndarray[Any, Any]], missing_is_fault: bool
    ) -> None:
        size = self._source.outer_size * max((plan.outer_count for plan in plans), default=0)
        read_apart(self.store, partial(self.read, missing_is_fault=missing_is_fault), plans, outs, size)

    def _read_together(
        self, plans: list[Plan], outs: list[np.ndarray[Any, Any]], missing_is_fault: bool
    ) -> None:
        try:
            bundle = Bundle(plans)
        except OverflowError:  # they lie too far from each other
            self._read_apart(plans, outs, missing_is_fault)
            return
        batch = partial(read_many, bundle, outs, threads=thread_count(), missing_is_fault=missing_is_fault)
        if self.folder is not None:
            try:
                fault = batch(folder=self.folder)
            except OSError as error:
                raise self._gone(error) from error
            if fault is not None:
                raise self._error(fault)
            return
        windows = self._whole_windows(bundle.outer_cells())
        for first, values in ahead(windows) if self.store.request_count > 1 else windows:
            fault = batch(outer=values, window=(first, first + len(values)))
            if fault is not None:
                raise self._error(fault)

    def _whole_windows(self, cells: list[tuple[int, ...]]) -> Iterator[tuple[int, list[Any]]]:
        """The bytes of these outer chunks (plain ones where codecs are not native), portion by portion."""
        count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // self._source.outer_size))
        for first in range(0, len(cells), count):
            keys = [self.key(cell) for cell in cells[first : first + count]]
            values: list[Any] = list(self.store.get_many([(key, None) for key in keys]))
            if not self.bound.is_native:
                values = map_threads(partial(self._decode, None), zip(values, keys, strict=True))
            yield first, values

    def _scatter(
        self,
        plan: Plan,
        window: Window,
        out: np.ndarray[Any, Any],
        missing_is_fault: bool,
        table: Table | None,
    ) -> None:
        inner = window.inner
        if inner is not None and not self.bound.is_native:
            inner = map_threads(partial(self._decode, table), zip(inner, window.names or (), strict=True))
        fault = read(
            plan,
            out,
            outer=window.outer,
            inner=inner,
            window=(window.first, window.last),
            threads=thread_count(),
            missing_is_fault=missing_is_fault,
        )
        if fault is not None:
            raise self._error(fault)

    def _decode(self, table: Table | None, piece: tuple[Any, str]) -> Any:
        data, key = piece
        if data is None:
            return None
        inner = self.bound.inner
        try:
            return _flat_bytes(inner.decode(data) if table is None else table.decode(inner, data))
        except ZstoreError as error:
            raise error.locate(path=self.store.url, key=key) from error

    def write(self, plan: Plan, value: np.ndarray[Any, Any], *, has_fields: bool = False) -> None:
        """Store `value` where the plan (made against `write_layout`) selects.

        With `has_fields`, `value` has some of the items' fields, the plan is made against `handle_layout`,
        and the other fields stay as they are.

        Every chunk is either as it was or as it is to be, whatever interrupts; other writers of other parts
        of a chunk are waited for.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        self.store.check_writable(self.path)
        table: Table | None = None
        if has_fields:
            table = FieldTable(self.bound.chain.spec, value)
            value = table.handles()
        elif self.is_object:
            table = table_to_write(self.bound.chain)
            value = table.take_in_broadcast(value)
        elif self._writes_natively and self.folder is not None:
            self._write_files(plan, value, self.folder)
            return
        elif self._writes_natively and self.store.in_memory:
            self._write_together(plan, value)
            return
        cells = plan.outer_cells()
        threads, waiting_count = thread_count(), None
        if self.store.request_count > 1:
            under_way = min(WRITTEN_COUNT, self.store.request_count, WRITTEN_SIZE // self._source.outer_size)
            waiting_count = max(under_way, threads)
        turn = threading.Semaphore(threads)
        each = threads if len(cells) == 1 else 1

        def write_one(o: int) -> None:
            act = partial(self._write_outer, plan, value, o, cells[o], turn, each, table)
            self.store.update(self.key(cells[o]), act)

        map_threads(write_one, range(len(cells)), waiting_count=waiting_count)

    def _write_files(self, plan: Plan, value: np.ndarray[Any, Any], folder: Folder) -> None:
        durable = getattr(self.store, "durable", False)
        try:
            fault, _ = write(
                plan,
                value,
                folder=folder,
                document=self.document,
                durable=durable,
                skip_empty=self.skip_empty,
                threads=thread_count(),
            )
        except OSError as error:
            raise self._gone(error) from error
        if fault is not None:
            raise self._error(fault)

    def _write_together(self, plan: Plan, value: np.ndarray[Any, Any]) -> None:
        """Store outer chunks in memory, as many in one call as may be."""
        cells = plan.outer_cells()
        count = max(1, min(TOGETHER_COUNT, WRITTEN_SIZE // self._source.outer_size))
        for first in range(0, len(cells), count):
            part = cells[first : first + count]
            keys = [self.key(cell) for cell in part]
            with ExitStack() as held:
                for key in sorted(keys):  # in the same order everywhere, so that no two wait for each other
                    held.enter_context(self.store.lock(key))
                old = [None if covers_outer(plan, c) == 2 else self.store.get(self.key(c)) for c in part]
                for key, new in zip(keys, self._encode(plan, value, first, old, thread_count()), strict=True):
                    self._keep(key, new)

    def _write_outer(
        self,
        plan: Plan,
        value: np.ndarray[Any, Any],
        outer: int,
        cell: tuple[int, ...],
        turn: threading.Semaphore,
        threads: int,
        table: Table | None,
    ) -> None:
        """Store one outer chunk; encoding waits for its `turn`, so that only requests exceed the threads."""
        key = self.key(cell)
        table = table and table.fork()
        covers = 0 if table is not None and table.keeps_old else covers_outer(plan, cell)
        old = None if covers == 2 else self.store.get(key)
        with turn:
            if old is not None and (table is not None or not self._writes_natively):
                old = self._decode_outer(old, key, table, is_replaced=covers == 1)
            [new] = self._encode(plan, value, outer, [old], threads)
            if new and (table is not None or not self._writes_natively):
                new = self._encode_outer(new, key, table)
        self._keep(key, new)

    def _keep(self, key: str, new: Any) -> None:
        """Store what `_encode` gave."""
        if new is False:
            self.store.delete(key)
        elif new is not None:
            self.store.put(key, new)
        self._source.indexes.drop(key)

    def _encode(
        self, plan: Plan, value: np.ndarray[Any, Any], first: int, old: list[Any], threads: int
    ) -> list[Any]:
        """The new bytes of outer chunks, plain items or handles where not native; None: stay, False: go."""
        window = (first, first + len(old))
        fault, results = write(
            plan, value, outer=old, window=window, skip_empty=self.skip_empty, threads=threads
        )
        if fault is not None:
            raise self._error(fault)
        return results or [None] * len(old)

    def _decode_outer(self, data: Any, key: str, table: Table | None, *, is_replaced: bool) -> Any:
        """The plain items of an outer chunk, or their handles.

        None where it is damaged and is replaced as far as is known.
        """
        chain = self.bound.chain
        try:
            return _flat_bytes(chain.decode(data) if table is None else table.decode(chain, data))
        except ZstoreError as error:
            if is_replaced:
                return None
            raise error.locate(path=self.store.url, key=key) from error

    def _encode_outer(self, new: bytes, key: str, table: Table | None) -> Any:
        """The stored bytes of an outer chunk, False where it is to be removed."""
        chain, spec = self.bound.chain, self.bound.chain.spec
        try:
            if table is None:
                return chain.encode(np.frombuffer(new, spec.dtype).reshape(spec.shape))
            items = table.items(np.frombuffer(new, HANDLE).reshape(spec.shape))
            is_empty = self.skip_empty and table.keeps_old and is_filled(items, spec.fill_value)
            return not is_empty and chain.encode(items)
        except ZstoreError as error:
            raise error.locate(path=self.store.url, key=key) from error

    def _error(self, fault: Fault) -> BaseException:
        return fault_error(fault, path=self.store.url, key=self.key(fault[5]), codecs=self.bound.step_names)

    def _gone(self, error: OSError) -> BaseException:
        """The array's directory cannot be opened."""
        gone: Fault = ("store", error.errno or 0, 0, 0, 0, (), None)
        return fault_error(gone, path=self.store.url, key=self.path, codecs=[])


def _flat_bytes(items: np.ndarray[Any, Any]) -> Any:
    return np.ascontiguousarray(items).reshape(-1).view(np.uint8)

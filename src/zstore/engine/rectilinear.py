"""Reading and writing arrays whose chunks differ in shape (rectilinear grids), chunk by chunk, in Python."""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import Chunks, Items
from zstore.engine.fetch import WINDOW_COUNT, WINDOW_SIZE, windows_at_once
from zstore.engine.objects import single
from zstore.engine.regular import RegularChunks
from zstore.engine.schedulers import Scheduler
from zstore.errors import NotFoundError, ZstoreError, located
from zstore.indexing.rectilinear import Part, RectilinearLayout, RectilinearPlan, plan_basic
from zstore.model.array import ArrayModel
from zstore.model.grid import RectilinearGrid
from zstore.storage.base import Store


def open_chunks(
    store: Store, path: str, model: ArrayModel, *, cache_size: int = 0, allow_pickle: bool = False
) -> Chunks:
    """The stored chunks of one array, by the reader and writer for its grid.

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
        self.plan = partial(plan_basic, self.layout)
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
        def scatter(piece: tuple[Part, Any]) -> None:
            part, data = piece
            key = self.key(part.cell)
            if not is_remote:
                data = self.store.get(key)
            if data is None and missing_is_fault:
                raise NotFoundError("chunk is missing", path=self.store.url, key=key)
            if data is None:
                out[part.outer] = self._fill_item
            else:
                out[part.outer] = self._decode(part, data, key)[part.inner]

        async def read(window: list[Part]) -> None:
            values: list[Any] = [None] * len(window)
            with await scheduler.reserve(sum(map(self._part_size, window))):
                if is_remote:
                    values = list(
                        await scheduler.get_many(self.store, [(self.key(part.cell), None) for part in window])
                    )
                await scheduler.map(scatter, zip(window, values, strict=True))

        is_remote = self.store.request_count > 1
        count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // self.chunk_size)) if is_remote else WINDOW_COUNT
        parts = plan.parts()
        windows = iter(lambda: list(islice(parts, count)), [])
        await scheduler.each(read, windows, windows_at_once(self.store, None, self.chunk_size))

    def _part_size(self, part: Part) -> int:
        return prod(part.shape) * self.dtype.itemsize

    def _decode(self, part: Part, data: Any, key: str) -> Items:
        with located(self.store.url, key):
            return self._chain(part.shape).decode(data)

    async def _write(
        self, scheduler: Scheduler, plan: RectilinearPlan, value: Items, has_fields: bool
    ) -> None:
        def write_part(part: Part, turn: threading.Semaphore) -> None:
            key = self.key(part.cell)
            if has_fields:
                part = part._replace(is_whole=False, is_rest=False)
            old = None if part.is_whole else self.store.get(key)
            with turn, located(self.store.url, key):
                chunk = self._gather(part, value, old, key)
                is_empty = self.skip_empty and is_filled(chunk, self.fill_value)
                data = None if is_empty else self._chain(part.shape).encode(chunk)
            if data is None:
                self.store.delete(key)
            else:
                self.store.put(key, data)

        await self._change_each(scheduler, plan.parts(), lambda part: part.cell, write_part)

    def _gather(self, part: Part, value: Items, old: Any, key: str) -> Items:
        """The decoded chunk after the write: its stored items, with the new ones put in."""
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

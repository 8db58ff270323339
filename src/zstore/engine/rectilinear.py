"""Arrays whose chunks differ in shape: the four verbs carried out in Python, chunk by chunk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import WRITTEN_COUNT, WRITTEN_SIZE, Chunks
from zstore.engine.fetch import WINDOW_COUNT, WINDOW_SIZE
from zstore.engine.many import read_apart
from zstore.engine.objects import single
from zstore.engine.pool import ahead, map_threads, thread_count
from zstore.errors import NotFoundError, ZstoreError
from zstore.indexing.plans import planner
from zstore.indexing.rectilinear import Part, RectilinearLayout, RectilinearPlan
from zstore.model.array import ArrayModel
from zstore.model.grid import RectilinearGrid
from zstore.storage.base import Store, join_key

__all__ = ["RectilinearChunks", "open_chunks"]


def open_chunks(
    store: Store,
    path: str,
    model: ArrayModel,
    *,
    skip_empty: bool = True,
    cache_size: int = 0,
    allow_pickle: bool = False,
) -> Chunks | RectilinearChunks:
    """The stored chunks of one array, whatever its grid.

    Raises
        UnknownExtensionError: a codec that nobody offers.
        MetadataError: codecs that do not fit together or the chunks.
        UnsupportedError: chunks are pickled, and the caller does not allow that.
    """
    if isinstance(model.grid, RectilinearGrid) and not model.grid.is_even:
        return RectilinearChunks(store, path, model, skip_empty=skip_empty, allow_pickle=allow_pickle)
    return Chunks(store, path, model, skip_empty=skip_empty, cache_size=cache_size, allow_pickle=allow_pickle)


class RectilinearChunks:
    """What the engine keeps of one such array; has the methods of `Chunks` that arrays call."""

    def __init__(
        self,
        store: Store,
        path: str,
        model: ArrayModel,
        *,
        skip_empty: bool = True,
        allow_pickle: bool = False,
    ) -> None:
        assert isinstance(model.grid, RectilinearGrid)
        self.store = store
        self.path = path
        self.model = model
        self.skip_empty = skip_empty
        self.layout = RectilinearLayout(model.shape, model.grid)
        self.write_layout = self.handle_layout = self.layout
        self.plan = planner(self.layout)
        self.dtype = model.dtype
        fill = model.fill_value
        self.fill_value: Any = model.data_type.default_fill() if fill is None else fill
        self._allow_pickle = allow_pickle
        self._largest_size = max(1, prod(model.grid.chunk_shape) * model.dtype.itemsize)
        self._chain = lru_cache(256)(self._bind)
        self._chain(model.grid.chunk_shape)

    def _bind(self, shape: tuple[int, ...]) -> Chain:
        return Chain.bind(
            self.model.codecs, ChunkSpec(shape, self.model.dtype, self.fill_value, self._allow_pickle)
        )

    @property
    def _fill_item(self) -> np.ndarray[Any, Any]:
        return single(self.fill_value, self.model.dtype)

    def key(self, cell: tuple[int, ...]) -> str:
        """The store key of a chunk."""
        return join_key(self.path, self.model.keys.key(cell))

    def read(
        self, plan: RectilinearPlan, out: np.ndarray[Any, Any], *, missing_is_fault: bool = False
    ) -> None:
        """Fill `out` with what the plan selects.

        Raises
            CodecError: a chunk is damaged.
            NotFoundError: a chunk is missing, where the caller said that this is a fault.
            StoreError: the store failed.
        """

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

        is_remote = self.store.request_count > 1
        windows = self._windows(plan, is_remote=is_remote)
        for window in ahead(windows) if is_remote else windows:
            map_threads(scatter, window)

    def read_many(
        self,
        plans: list[RectilinearPlan],
        outs: list[np.ndarray[Any, Any]],
        *,
        missing_is_fault: bool = False,
    ) -> None:
        """Fill each of `outs` with what its plan selects; raises what `read` raises."""
        read = partial(self.read, missing_is_fault=missing_is_fault)
        read_apart(self.store, read, plans, outs, 2 * WINDOW_SIZE)

    def _windows(self, plan: RectilinearPlan, *, is_remote: bool) -> Iterator[list[tuple[Part, Any]]]:
        count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // self._largest_size)) if is_remote else WINDOW_COUNT
        parts = plan.parts()
        while window := list(islice(parts, count)):
            values: list[Any] = [None] * len(window)
            if is_remote:
                values = list(self.store.get_many([(self.key(part.cell), None) for part in window]))
            yield list(zip(window, values, strict=True))

    def _decode(self, part: Part, data: Any, key: str) -> np.ndarray[Any, Any]:
        try:
            return self._chain(part.shape).decode(data)
        except ZstoreError as error:
            raise error.locate(path=self.store.url, key=key) from error

    def write(self, plan: RectilinearPlan, value: np.ndarray[Any, Any], *, has_fields: bool = False) -> None:
        """Store `value` where the plan selects; chunks, fields and other writers fare as in `Chunks.write`.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        self.store.check_writable(self.path)
        threads, waiting_count = thread_count(), None
        if self.store.request_count > 1:
            under_way = min(WRITTEN_COUNT, self.store.request_count, WRITTEN_SIZE // self._largest_size)
            waiting_count = max(under_way, threads)
        turn = threading.Semaphore(threads)
        parts = plan.parts()
        while window := list(islice(parts, WINDOW_COUNT)):
            map_threads(
                lambda part: self.store.update(
                    self.key(part.cell), partial(self._write_part, part, value, turn, has_fields)
                ),
                window,
                waiting_count=waiting_count,
            )

    def _write_part(
        self, part: Part, value: np.ndarray[Any, Any], turn: threading.Semaphore, has_fields: bool
    ) -> None:
        key = self.key(part.cell)
        if has_fields:
            part = part._replace(is_whole=False, is_rest=False)
        old = None if part.is_whole else self.store.get(key)
        with turn:
            chunk = self._gather(part, value, old, key)
            is_empty = self.skip_empty and is_filled(chunk, self.fill_value)
            data = None if is_empty else self._encode(part, chunk, key)
        if data is None:
            self.store.delete(key)
        else:
            self.store.put(key, data)

    def _gather(self, part: Part, value: np.ndarray[Any, Any], old: Any, key: str) -> np.ndarray[Any, Any]:
        """The chunk as it is to be."""
        chunk = np.empty(part.shape, self.model.dtype)
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

    def _encode(self, part: Part, chunk: np.ndarray[Any, Any], key: str) -> bytes | memoryview:
        try:
            return self._chain(part.shape).encode(chunk)
        except ZstoreError as error:
            raise error.locate(path=self.store.url, key=key) from error

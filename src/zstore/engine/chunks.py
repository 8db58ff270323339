"""The stored chunks of one array: reads and writes of a plan, by the shortest way that store and codecs allow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from zstore._ext.select import Layout, Plan
from zstore._ext.transfer import Folder, covers_outer, read, write
from zstore.byterange import ByteRange
from zstore.engine.fault import Fault, fault_error
from zstore.engine.layout import BoundLayout, bind_layout
from zstore.engine.locate import locate_pieces
from zstore.engine.pool import map_threads, thread_count
from zstore.errors import ZstoreError
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key

__all__ = ["Chunks"]

# Outer chunks fetched together from a store that is not a directory: enough to hide its latency.
WINDOW = 64


class Chunks:
    """What the engine keeps of one array; made anew when the array is resized."""

    def __init__(
        self, store: Store, path: str, model: ArrayModel, *, skip_empty: bool = True, cache_size: int = 0
    ) -> None:
        self.store = store
        self.path = path
        self.model = model
        self.skip_empty = skip_empty
        self.cache_size = cache_size
        self.document = "zarr.json" if model.zarr_format == 3 else ".zarray"
        self.bound: BoundLayout = bind_layout(model)
        self.layout: Layout = self.bound.layout

    @cached_property
    def folder(self) -> Folder | None:
        """The array's directory, where chunks are files that the kernels can open by themselves."""
        directory = self.store.local_path(self.path) if self.bound.is_native else None
        if directory is None:
            return None
        if not self.cache_size:
            return Folder(str(directory))
        return Folder(str(directory), cache_size=self.cache_size, keeps_chunks=True)

    @property
    def write_layout(self) -> Layout:
        """What plans for writing are made against."""
        return self.layout if self._writes_natively else self.bound.outer

    @cached_property
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
        for window, pieces in self._fetch(plan):
            fault = read(
                plan,
                out,
                inner=pieces,
                window=window,
                threads=thread_count(),
                missing_is_fault=missing_is_fault,
            )
            if fault is not None:
                raise self._error(fault)

    def _fetch(self, plan: Plan) -> Iterator[tuple[tuple[int, int], list[Any]]]:
        """Some outer chunks of the plan after another, and the bytes of their inner chunks."""
        cells, starts = plan.outer_cells(), plan.outer_tasks()
        for first in range(0, len(cells), WINDOW):
            last = min(first + WINDOW, len(cells))
            requests: list[tuple[str, ByteRange | None]]
            keys = [self.key(cell) for cell in cells[first:last]]
            if self.bound.shards:
                inner = [
                    [plan.inner_cell(t) for t in range(a, b)] for a, b in pairwise(starts[first : last + 1])
                ]
                requests = locate_pieces(self.store, self.bound.shards, keys, inner, path=self.store.url)
            else:
                requests = [(key, None) for key in keys]
            values = iter(self.store.get_many([request for request in requests if request is not None]))
            pieces = [None if request is None else next(values) for request in requests]
            if not self.bound.is_native:
                named = [("" if request is None else request[0]) for request in requests]
                pieces = map_threads(self._decode, zip(pieces, named, strict=True))
            yield (first, last), pieces

    def _decode(self, piece: tuple[Any, str]) -> Any:
        data, key = piece
        if data is None:
            return None
        try:
            return np.ascontiguousarray(self.bound.inner.decode(data)).reshape(-1).view(np.uint8)
        except ZstoreError as error:
            raise error.locate(path=self.store.url, key=key) from error

    def write(self, plan: Plan, value: np.ndarray[Any, Any]) -> None:
        """Store `value` where the plan (made against `write_layout`) selects.

        Every chunk is either as it was or as it is to be, whatever interrupts; other writers of other parts of a
        chunk are waited for.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        self.store.check_writable(self.path)
        if self._writes_natively and self.folder is not None:
            self._write_files(plan, value, self.folder)
            return
        cells = plan.outer_cells()
        map_threads(
            lambda o: self._write_outer(plan, value, o, cells[o], 1 if len(cells) > 1 else thread_count()),
            range(len(cells)),
        )

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

    def _write_outer(
        self, plan: Plan, value: np.ndarray[Any, Any], outer: int, cell: tuple[int, ...], threads: int
    ) -> None:
        key = self.key(cell)
        with self.store.lock(key):
            old = None if covers_outer(plan, cell) else self.store.get(key)
            if old is not None and not self._writes_natively:
                old = self._decode_outer(old, key)
            fault, results = write(
                plan,
                value,
                outer=[old],
                window=(outer, outer + 1),
                skip_empty=self.skip_empty,
                threads=threads,
            )
            if fault is not None:
                raise self._error(fault)
            for new in results:
                if new is False:
                    self.store.delete(key)
                elif new is not None:
                    self.store.put(key, new if self._writes_natively else self._encode_outer(new))

    def _decode_outer(self, data: Any, key: str) -> Any:
        try:
            return np.ascontiguousarray(self.bound.chain.decode(data)).reshape(-1).view(np.uint8)
        except ZstoreError as error:
            raise error.locate(path=self.store.url, key=key) from error

    def _encode_outer(self, items: bytes) -> bytes | memoryview:
        spec = self.bound.chain.spec
        return self.bound.chain.encode(np.frombuffer(items, spec.dtype).reshape(spec.shape))

    def _error(self, fault: Fault) -> BaseException:
        codecs = [codec.name for codec in self.bound.inner.bytes_codecs]
        return fault_error(fault, path=self.store.url, key=self.key(fault[5]), codecs=codecs)

    def _gone(self, error: OSError) -> BaseException:
        """The array's directory cannot be opened."""
        return fault_error(
            ("store", error.errno or 0, 0, 0, 0, (), None), path=self.store.url, key=self.path, codecs=[]
        )

"""Engines for zarr-python's `engine=`: selections reach zstore's arrays as they were typed, and whole.

    array = zarr.open_array(store, engine=ZstoreEngine.open(store))

Released versions of zarr-python have no such argument; its pull request 4064 has, whose protocols may
change. What zstore does not know goes through the engine that zarr-python has by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
import zarr
from zarr.abc import store as abc
from zarr.core.buffer import NDBuffer, cpu

from zstore.errors import CodecError, SelectionError, StoreError
from zstore.guests.zarr_python import REFUSING
from zstore.guests.zarr_python.arrays import ArrayBinding
from zstore.guests.zarr_python.stores import CODING, ZarrStore, adopt
from zstore.nodes.array import Array
from zstore.nodes.node import Access

__all__ = ["ZstoreAsyncEngine", "ZstoreAsyncHierarchyEngine", "ZstoreEngine", "ZstoreHierarchyEngine"]

Loop = asyncio.AbstractEventLoop


class ZstoreEngine:
    """The data path of one array, from selections to items, without an event loop.

    metadata, config  zarr-python's of the array
    """

    def __init__(
        self, store: abc.Store, path: str, metadata: Any, config: Any = None, loop: Loop | None = None
    ) -> None:
        self._store, self._path, self._metadata = store, path.strip("/"), metadata
        self._config, self._loop = config, loop
        order = metadata.order if metadata.zarr_format == 2 else getattr(config, "order", "C")
        self._is_fortran = order == "F"
        binding = ArrayBinding(metadata)
        self._has_own_order = binding.has_own_order
        access = Access(
            store.read_only,
            missing="fill" if getattr(config, "read_missing_chunks", True) else "error",
            keeps_empty=getattr(config, "write_empty_chunks", False),
        )
        model = binding.model
        self._array = None if model is None else Array(adopt(store, loop=loop), self._path, model, access)

    @classmethod
    def open(cls, store: abc.Store, path: str = "") -> Self:
        """The engine of the array at a path of a store.

        Raises
            zarr.errors.ArrayNotFoundError: there is none.
        """
        array: Any = zarr.open_array(store, path=path, mode="r")
        return cls(array.store, array.path, array.metadata)

    def with_metadata(self, metadata: Any) -> Self:
        """The engine of the same array with other metadata."""
        return type(self)(self._store, self._path, metadata, self._config, self._loop)

    def read_selection(self, request: Any, *, prototype: Any, out: Any = None, fields: Any = None) -> Any:
        """The items of a selection, those of coordinates and masks in one dimension.

        Raises
            CodecError: a chunk is damaged.
        """
        if not (out is None or isinstance(out, NDBuffer)):
            raise TypeError(f"out is a {type(out).__name__}; expected an NDBuffer")

        def read(array: Array) -> Any:
            items = getattr(array, f"get_{request.kind}_selection")(_flat(request), fields=fields or None)
            if out is not None:
                memory: Any = out.as_ndarray_like()
                if memory.shape != np.shape(items):
                    raise ValueError(f"shape of out argument is {memory.shape}; expected {np.shape(items)}")
                memory[...] = items
                return memory
            dtype = items.dtype if fields else self._dtype(items)
            items = items.astype(dtype) if items.dtype != dtype else items
            return np.asfortranarray(items) if self._is_fortran and items.ndim > 1 else items

        options = {"prototype": prototype, "out": out, "fields": fields}
        array = self._for(prototype)
        return self._done(request, array, read, lambda plain: plain.read_selection(request, **options))

    def _for(self, prototype: Any) -> Array | None:
        """The array, if zstore has all of its parts, and the memory is numpy's."""
        return self._array if prototype.nd_buffer is cpu.NDBuffer else None

    def write_selection(self, request: Any, value: Any, *, prototype: Any, fields: Any = None) -> None:
        """Store a value, or one for each item of a selection.

        Raises
            CodecError: a chunk that is covered in part is damaged.
        """
        is_typed = fields or hasattr(value, "dtype")
        items = np.asarray(value) if is_typed else np.asarray(value, self._metadata.dtype.to_native_dtype())

        def write(array: Array) -> None:
            getattr(array, f"set_{request.kind}_selection")(_flat(request), items, fields=fields or None)

        options = {"prototype": prototype, "fields": fields}
        # A store that is read only is refused by zarr-python, with its own error.
        is_plain = self._has_own_order or self._store.read_only
        array = None if is_plain else self._for(prototype)
        self._done(request, array, write, lambda plain: plain.write_selection(request, value, **options))

    def _done(
        self, request: Any, array: Array | None, work: Callable[[Array], Any], other: Callable[[Any], Any]
    ) -> Any:
        """The result of zstore's work, or of zarr-python's own engine where zstore lacks something."""
        try:
            if array is not None:
                with _checked(request):
                    return work(array)
        except CodecError as error:
            if error.codec not in REFUSING:
                raise
        except StoreError as error:
            if array is None or error.__cause__ is None or not isinstance(array.store, ZarrStore):
                raise
            raise error.__cause__ from None  # as zarr-python's store raised it
        from zarr.core.engine import DefaultHierarchyEngine  # type: ignore[import-not-found,unused-ignore]

        return other(
            DefaultHierarchyEngine(self._store).array_engine(self._path, self._metadata, self._config)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._store, self._path, self._metadata, self._config)

    def _dtype(self, items: Any) -> np.dtype[Any]:
        native: np.dtype[Any] = self._metadata.dtype.to_native_dtype()
        return items.dtype if native.kind in "OT" else native


class ZstoreAsyncEngine:
    """The data path of one array for event loops, whose threads do the work."""

    def __init__(self, store: abc.Store, path: str, metadata: Any, config: Any = None) -> None:
        self._arguments = store, path, metadata, config
        self._engine: tuple[Loop, ZstoreEngine] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def with_metadata(self, metadata: Any) -> Self:
        """The engine of the same array with other metadata."""
        store, path, _, config = self._arguments
        return type(self)(store, path, metadata, config)

    async def read_selection(self, request: Any, **options: Any) -> Any:
        """As `ZstoreEngine.read_selection`."""
        engine = await self._bound()
        return await CODING.run(partial(engine.read_selection, request, **options), finishes=False)

    async def write_selection(self, request: Any, value: Any, **options: Any) -> None:
        """As `ZstoreEngine.write_selection`."""
        engine = await self._bound()
        await CODING.run(partial(engine.write_selection, request, value, **options), finishes=False)

    async def _bound(self) -> ZstoreEngine:
        """The engine whose store works on the running loop."""
        loop, store = asyncio.get_running_loop(), self._arguments[0]
        if not store._is_open:
            await store._ensure_open()
        if self._engine is None or self._engine[0] is not loop:
            self._engine = loop, ZstoreEngine(*self._arguments, loop=loop)
        return self._engine[1]


class ZstoreHierarchyEngine:
    """The engines of the arrays in a store."""

    def __init__(self, store: abc.Store) -> None:
        self._store = store

    def array_engine(self, path: str, metadata: Any, config: Any = None) -> ZstoreEngine:
        """The engine of an array."""
        return ZstoreEngine(self._store, path, metadata, config)


class ZstoreAsyncHierarchyEngine:
    """The engines for event loops of the arrays in a store."""

    def __init__(self, store: abc.Store) -> None:
        self._store = store

    def array_engine(self, path: str, metadata: Any, config: Any = None) -> ZstoreAsyncEngine:
        """The engine of an array."""
        return ZstoreAsyncEngine(self._store, path, metadata, config)


@contextmanager
def _checked(request: Any) -> Iterator[None]:
    """Context in which selections that zarr-python refuses are refused with its own errors."""
    if request.kind != "coordinate":  # of points, zstore refuses the same
        request.indexer  # noqa: B018 - made when it is asked for
    try:
        yield
    except SelectionError:
        request.indexer  # noqa: B018
        raise


def _flat(request: Any) -> Any:
    """The selection; of coordinates, the points in one dimension."""
    if request.kind != "coordinate":
        return request.selection
    selection = request.selection if isinstance(request.selection, tuple) else (request.selection,)
    return tuple(one.reshape(-1) for one in np.broadcast_arrays(*selection))

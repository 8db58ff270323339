"""Adapters that make stores of zarr-python usable in zstore, and stores of zstore in zarr-python."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from zarr.abc import store as abc
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.config import config
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, ZipStore

from zstore.base.byterange import ByteRange
from zstore.engine.awaiting import LazyPool
from zstore.errors import StoreError
from zstore.storage import local
from zstore.storage.base import Names, Part, Parts, Request, Store, Values, check_key, check_prefix, hold_name
from zstore.storage.url import open_store
from zstore.storage.zarr_methods import StoreMethods, range_of

T = TypeVar("T")

# Each thread mostly waits for others, or runs kernels, which have threads of their own.
THREADS = 32
# Chunks are decoded on the first pool, whose threads may wait for stores, which work on the second.
CODING = LazyPool("zstore-coding", lambda: THREADS)
STORING = LazyPool("zstore-storing", lambda: THREADS)


def adopt(
    store: abc.Store, *, read_only: bool = False, loop: asyncio.AbstractEventLoop | None = None
) -> Store:
    """A store of zstore with the same values: the equivalent store if there is one, else a `ZarrStore`.

    `loop` is the running event loop of the store; None: zarr-python's own.
    """
    if type(store) is ZstoreStore:
        return store.store.as_read_only() if read_only or store.read_only else store.store
    if type(store) is LocalStore:
        return local.LocalStore(store.root, read_only=read_only or store.read_only)
    return ZarrStore(store, read_only=read_only, loop=loop)


class ZarrStore(Store):
    """A store of zarr-python as one of zstore; closing it leaves zarr-python's store open."""

    def __init__(
        self, store: abc.Store, *, read_only: bool = False, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.store: Any = store
        self.read_only = read_only or store.read_only
        # Subclasses and wrappers may override only the asynchronous methods.
        self.in_memory = type(store) is MemoryStore
        is_near = isinstance(store, MemoryStore | LocalStore | ZipStore)
        self.request_count = 1 if is_near else max(1, config.get("async.concurrency"))
        self._loop = loop
        # Keys that recent reads did not find, from which the pipeline tells the status of chunks.
        self.absent: set[str] = set()

    @classmethod
    def from_object(cls, store: Any, *, read_only: bool = False) -> Store:
        """The store that `zstore.open` uses for a store of zarr-python."""
        return adopt(store, read_only=read_only)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loop": None, "absent": set()}

    @property
    def url(self) -> str:
        """The store as text, which often is a URL."""
        return str(self.store)

    def get(self, key: str, byte_range: ByteRange | None = None) -> memoryview | None:
        check_key(key)
        if not self.in_memory:
            return self._note(key, self._run(self._get(key, byte_range), "read", key))
        value = _view(self._call(lambda: self.store.get_sync(key), "read", key))
        if value is not None and byte_range is not None:
            begin, end = byte_range.resolve(len(value))
            value = value[begin:end]
        return self._note(key, value)

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` for many keys; zarr-python's `async.concurrency` limits how many run at once."""
        for key, _ in requests:
            check_key(key)
        if self.in_memory:
            return super().get_many(requests)
        values = self._run(self._gather([self._get(*request) for request in requests]), "read", requests)
        return [self._note(key, value) for (key, _), value in zip(requests, values, strict=True)]

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        keys = [check_key(key) for key in dict(requests)]
        if self.in_memory:
            return super().get_parts(requests)
        wanted = [*map(self._size, keys), *(self._get(*request) for request in requests)]
        found = self._run(self._gather(wanted), "read", requests)
        sizes = dict(zip(keys, found, strict=False))
        parts: Parts = []
        for (key, _), value in zip(requests, found[len(keys) :], strict=True):
            size = sizes[key]
            parts.append(None if value is None or size is None else Part(value, size))
            self._note(key, value)
        return parts

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.check_writable(check_key(key))
        buffer = default_buffer_prototype().buffer.from_bytes(bytes(value))
        if self.in_memory:
            self._call(lambda: self.store.set_sync(key, buffer), "write", key)
        else:
            self._run(self.store.set(key, buffer), "write", key)

    def delete(self, key: str) -> None:
        self.check_writable(check_key(key))
        self._run(self.store.delete(key), "delete", key)

    def list(self, prefix: str = "") -> Iterator[str]:
        start = f"{prefix}/" if check_prefix(prefix) else ""

        async def collect() -> Names:
            return [key async for key in self.store.list_prefix(start) if key.startswith(start)]

        return iter(self._run(collect(), "list", prefix))

    def list_children(self, prefix: str = "") -> Names:
        check_prefix(prefix)

        async def collect() -> Names:
            return [name async for name in self.store.list_dir(prefix)]

        return sorted({name.rstrip("/") for name in self._run(collect(), "list", prefix)} - {""})

    def delete_prefix(self, prefix: str) -> None:
        self.check_writable(check_prefix(prefix))
        # Not `delete_dir`, which in some stores removes a key of that name, or raises.
        self._run(self._gather([self.store.delete(key) for key in self.list(prefix)]), "delete", prefix)

    def size(self, key: str) -> int | None:
        return self._run(self._size(check_key(key)), "read", key)

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude other threads of this process that lock the same key of a store with the same URL."""
        self.check_writable(key)
        return hold_name((type(self.store), self.url, check_key(key)))

    def as_read_only(self) -> ZarrStore:
        return self._with(read_only=True, absent=set())

    def _note(self, key: str, value: memoryview | None) -> memoryview | None:
        if value is None:
            self.absent.add(key)
        elif self.absent:
            self.absent.discard(key)
        return value

    async def _get(self, key: str, byte_range: ByteRange | None) -> memoryview | None:
        prototype = default_buffer_prototype()
        if byte_range is None:
            return _view(await self.store.get(key, prototype))
        if byte_range.size == 0:
            return memoryview(b"") if await self.store.exists(key) else None
        try:
            found = await self.store.get(key, prototype, byte_range=_request(byte_range))
        except Exception:
            # Many stores refuse a range that begins or ends after the end of the value.
            size = await self._size(key)
            if size is None:
                return None
            begin, end = byte_range.resolve(size)
            if begin >= end:
                return memoryview(b"")
            if byte_range == (begin, end - begin):
                raise
            found = await self.store.get(key, prototype, byte_range=abc.RangeByteRequest(begin, end))
        value = _view(found)
        if value is not None and byte_range.start < 0 and len(value) < -byte_range.start:
            # Some stores give too few bytes for a suffix longer than the value.
            value = _view(await self.store.get(key, prototype))
            begin, end = byte_range.resolve(0 if value is None else len(value))
            return None if value is None else value[begin:end]
        # Requests for a suffix reach to the end of the value, which may be more than the range.
        return value if value is None or byte_range.size is None else value[: byte_range.size]

    async def _size(self, key: str) -> int | None:
        try:
            # In zarr-python's LocalStore, directories have a size, too.
            if self.request_count == 1 and not await self.store.exists(key):
                return None
            size: int = await self.store.getsize(key)
        except FileNotFoundError:
            return None
        return size

    async def _gather(self, wanted: Sequence[Coroutine[Any, Any, Any]]) -> Any:
        turn = asyncio.Semaphore(max(1, config.get("async.concurrency")))

        async def one(coroutine: Coroutine[Any, Any, Any]) -> Any:
            async with turn:
                return await coroutine

        return await asyncio.gather(*map(one, wanted))

    def _run(self, coroutine: Coroutine[Any, Any, T], action: str, key: Any) -> T:
        """The result of a coroutine, run on the event loop of the store."""

        async def opened() -> T:
            if not self.store._is_open:
                await self.store._ensure_open()
            return await coroutine

        try:
            loop = self._loop
            if loop is None:
                return self._call(lambda: sync(opened()), action, key)
            return self._call(asyncio.run_coroutine_threadsafe(opened(), loop).result, action, key)
        except Exception:
            coroutine.close()  # it may not have been started
            raise

    def _call(self, function: Callable[[], T], action: str, key: Any) -> T:
        try:
            return function()
        except StoreError:
            raise
        except Exception as error:
            shown = key if isinstance(key, str) else None
            raise StoreError(
                f"store failed to {action}: {type(error).__name__}: {error}", path=self.url, key=shown
            ) from error


def _request(byte_range: ByteRange) -> abc.ByteRequest:
    if byte_range.start < 0:
        return abc.SuffixByteRequest(-byte_range.start)
    if byte_range.size is None:
        return abc.OffsetByteRequest(byte_range.start)
    return abc.RangeByteRequest(byte_range.start, byte_range.start + byte_range.size)


def _view(buffer: Any) -> memoryview | None:
    return None if buffer is None else memoryview(buffer.as_numpy_array()).cast("B").toreadonly()


class ZstoreStore(StoreMethods, abc.Store):
    """A store of zstore (SQLite, LMDB, zip, Redis, ...), passed or opened by path or URL, for zarr-python.

        ZstoreStore("sqlite:///a.db")

    Asynchronous methods run in other threads than the event loop's, synchronous ones in the calling thread. A
    store that was opened here is closed with this; one that was given is not.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, store: Store | str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._is_own = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, read_only=read_only)
        self.held = self.store
        super().__init__(read_only=read_only or self.store.read_only)

    def with_read_only(self, read_only: bool = False) -> ZstoreStore:
        """The same values, refusing or accepting writes.

        Raises
            ReadOnlyError: from the first write, where the store below takes none.
        """
        if self._is_own and not read_only and self.store.read_only:
            return type(self)(self.store.url)
        return type(self)(self.store, read_only=read_only)

    def __str__(self) -> str:
        return self.store.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.url!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        assert isinstance(other, ZstoreStore)
        is_same = self.store is other.store or self.store.url == other.store.url != "memory://"
        return is_same and self.read_only == other.read_only

    __hash__ = None  # type: ignore[assignment]

    def close(self) -> None:
        """Close this, and zstore's store if it was opened here."""
        if self._is_own:
            self.store.close()
        super().close()

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: abc.ByteRequest | None = None
    ) -> Buffer | None:
        self._is_open = True
        found = self.store.get(key, range_of(byte_range))
        if found is None:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(found)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._is_open = True
        if not isinstance(value, Buffer):
            raise TypeError(f"{type(self).__name__}.set takes a Buffer, got {type(value).__name__}")
        self.store.put(key, value.to_bytes())

    def delete_sync(self, key: str) -> None:
        self._check_writable()
        self._is_open = True
        self.store.delete(key)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: abc.ByteRequest | None = None
    ) -> Buffer | None:
        return await self._run(lambda: self.get_sync(key, prototype=prototype, byte_range=byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, abc.ByteRequest | None]]
    ) -> list[Buffer | None]:
        requests = [(key, range_of(byte_range)) for key, byte_range in key_ranges]
        found = await self._run(lambda: self.store.get_many(requests))
        return [None if value is None else prototype.buffer.from_bytes(value) for value in found]

    async def set(self, key: str, value: Buffer) -> None:
        await self._run(lambda: self.set_sync(key, value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Store `value` unless there is one already, under the key's lock."""
        self._check_writable()

        def put() -> None:
            with self.store.lock(key):
                if self.store.size(key) is None:
                    self.set_sync(key, value)

        await self._run(put)

    async def delete(self, key: str) -> None:
        await self._run(lambda: self.delete_sync(key))

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        await super().delete_dir(prefix)

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        self._is_open = True
        return await STORING.run(partial(function, *args), finishes=False)

"""A store of zarr-python's (icechunk's, obstore's, a logger around another) as a store of zstore's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from zarr.abc import store as abc
from zarr.core.buffer import default_buffer_prototype
from zarr.core.config import config
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, ZipStore

from zstore.base.byterange import ByteRange
from zstore.errors import StoreError
from zstore.storage import local
from zstore.storage.base import Names, Part, Parts, Store, Values, check_key, check_prefix
from zstore.storage.locking import hold_name

__all__ = ["ZarrStore", "adopt"]

T = TypeVar("T")
Request = tuple[str, ByteRange | None]


def adopt(
    store: abc.Store, *, read_only: bool = False, loop: asyncio.AbstractEventLoop | None = None
) -> Store:
    """zstore's own store for the same values where there is one, else the given store behind a `ZarrStore`.

    `loop` is the running event loop that the store belongs to; None: zarr-python's own.
    """
    from zstore.integrations.zarr_python.store import ZstoreStore

    if type(store) is ZstoreStore:
        return store.store.as_read_only() if read_only or store.read_only else store.store
    if type(store) is LocalStore:
        return local.LocalStore(store.root, read_only=read_only or store.read_only)
    return ZarrStore(store, read_only=read_only, loop=loop)


class ZarrStore(Store):
    """What a zarr-python store holds. It stays open when this is closed: it belongs to whoever made it."""

    def __init__(
        self, store: abc.Store, *, read_only: bool = False, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.store = store
        self.read_only = read_only or store.read_only
        self.in_memory = type(store) is MemoryStore
        # Whoever wraps or derives from these may look at what goes over the loop only.
        self._is_sync = type(store) in (MemoryStore, LocalStore)
        is_near = isinstance(store, MemoryStore | LocalStore | ZipStore)
        self.request_count = 1 if is_near else max(1, config.get("async.concurrency"))
        self._loop = loop
        # Keys that were looked for last and were not there, for those who ask about a read afterwards.
        self.absent: set[str] = set()

    @classmethod
    def from_object(cls, store: Any, *, read_only: bool = False) -> Store:
        """What `zstore.open` makes of a zarr-python store."""
        return adopt(store, read_only=read_only)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loop": None, "absent": set()}

    @property
    def url(self) -> str:
        """What the store calls itself, which often is a URL."""
        return str(self.store)

    def get(self, key: str, byte_range: ByteRange | None = None) -> memoryview | None:
        """The value, or those bytes of it; None when there is no such key."""
        check_key(key)
        if not self._is_sync:
            return self._note(key, self._run(self._get(key, byte_range), "read", key))
        store: Any = self.store
        return self._note(key, self._call(lambda: self._cut(key, byte_range, store.get_sync), "read", key))

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` of all of them, as many at once as zarr-python's `async.concurrency` says."""
        for key, _ in requests:
            check_key(key)
        if self._is_sync:
            return [self.get(key, byte_range) for key, byte_range in requests]
        values = self._run(self._gather([self._get(*request) for request in requests]), "read", requests)
        return [self._note(key, value) for (key, _), value in zip(requests, values, strict=True)]

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """The values and their sizes, asked for at the same time."""
        keys = [check_key(key) for key in dict(requests)]
        if self._is_sync:
            sizes = {key: self.size(key) for key in keys}
            values = [self.get(*request) for request in requests]
        else:
            wanted = [*map(self._size, keys), *(self._get(*request) for request in requests)]
            answers = self._run(self._gather(wanted), "read", requests)
            sizes, values = dict(zip(keys, answers, strict=False)), answers[len(keys) :]
        parts: Parts = []
        for (key, _), value in zip(requests, values, strict=True):
            size = sizes[key]
            parts.append(None if value is None or size is None else Part(value, size))
            self._note(key, value)
        return parts

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`."""
        self.check_writable(check_key(key))
        buffer = default_buffer_prototype().buffer.from_bytes(bytes(value))
        if self._is_sync:
            store: Any = self.store
            self._call(lambda: store.set_sync(key, buffer), "write", key)
        else:
            self._run(self.store.set(key, buffer), "write", key)

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        self.check_writable(check_key(key))
        self._run(self.store.delete(key), "delete", key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`."""
        start = f"{prefix}/" if check_prefix(prefix) else ""

        async def collect() -> Names:
            return [key async for key in self.store.list_prefix(start) if key.startswith(start)]

        return iter(self._run(collect(), "list", prefix))

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        check_prefix(prefix)

        async def collect() -> Names:
            return [name async for name in self.store.list_dir(prefix)]

        return sorted({name.rstrip("/") for name in self._run(collect(), "list", prefix)} - {""})

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`; "" empties the store."""
        self.check_writable(check_prefix(prefix))
        # Not their delete_dir, which in some stores removes a key of that very name, or refuses.
        self._run(self._gather([self.store.delete(key) for key in self.list(prefix)]), "delete", prefix)

    def size(self, key: str) -> int | None:
        """How many bytes the value has; None when there is no such key."""
        return self._run(self._size(check_key(key)), "read", key)

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude the other threads of this process that lock the same key of a store of the same name."""
        self.check_writable(key)
        return hold_name((type(self.store), self.url, check_key(key)))

    def as_read_only(self) -> ZarrStore:
        """The same values, refusing writes."""
        return ZarrStore(self.store, read_only=True, loop=self._loop)

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
            # Many stores refuse a range that begins behind the end, or reaches there.
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
            # Shorter than asked for: some stores count from the end of what is not there.
            value = _view(await self.store.get(key, prototype))
            begin, end = byte_range.resolve(0 if value is None else len(value))
            return None if value is None else value[begin:end]
        return _first(value, byte_range)

    def _cut(self, key: str, byte_range: ByteRange | None, get: Callable[..., Any]) -> memoryview | None:
        if byte_range is None:
            return _view(get(key))
        if self.in_memory:
            value = _view(get(key))
            begin, end = byte_range.resolve(0 if value is None else len(value))
            return None if value is None else memoryview(value)[begin:end]
        if byte_range.size == 0:
            return None if get(key) is None else memoryview(b"")
        value = _view(get(key, byte_range=_request(byte_range)))
        if value is not None and byte_range.start < 0 and len(value) < -byte_range.start:
            value = _view(get(key))
            begin, end = byte_range.resolve(0 if value is None else len(value))
            return None if value is None else value[begin:end]
        return _first(value, byte_range)

    async def _size(self, key: str) -> int | None:
        try:
            # A directory has a size too, to zarr-python's LocalStore.
            if self.request_count == 1 and not await self.store.exists(key):
                return None
            return await self.store.getsize(key)
        except FileNotFoundError:
            return None

    async def _gather(self, wanted: Sequence[Coroutine[Any, Any, Any]]) -> Any:
        turn = asyncio.Semaphore(max(1, config.get("async.concurrency")))

        async def one(coroutine: Coroutine[Any, Any, Any]) -> Any:
            async with turn:
                return await coroutine

        return await asyncio.gather(*map(one, wanted))

    def _run(self, coroutine: Coroutine[Any, Any, T], action: str, key: Any) -> T:
        """What the coroutine gives, on the loop that the store belongs to."""

        async def opened() -> T:
            if not self.store._is_open:
                await self.store._ensure_open()
            return await coroutine

        loop = self._loop
        if loop is None:
            return self._call(lambda: sync(opened()), action, key)
        return self._call(asyncio.run_coroutine_threadsafe(opened(), loop).result, action, key)

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


def _first(found: memoryview | None, byte_range: ByteRange) -> memoryview | None:
    """A suffix is asked for as a whole; this is the part of it that was wanted."""
    if found is None or byte_range.size is None:
        return found
    return found[: byte_range.size]


def _view(buffer: Any) -> memoryview | None:
    return None if buffer is None else memoryview(buffer.as_numpy_array()).cast("B").toreadonly()

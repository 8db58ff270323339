"""Any store of zstore's (SQLite, LMDB, zip, Redis, …) as a store of zarr-python's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self, TypeVar

from zarr.abc import store as abc
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from zstore.base.byterange import ByteRange
from zstore.integrations.zarr_python.threads import STORING
from zstore.storage.base import Store
from zstore.storage.url import open_store

__all__ = ["ZstoreStore"]

T = TypeVar("T")


class ZstoreStore(abc.Store):
    """What a store of zstore's holds, or the one at a path or URL: `ZstoreStore("sqlite:///a.db")`.

    Requests run beside the event loop, or on the calling thread where zarr-python asks without a loop. A
    store opened here by its URL is closed with this; one that was given is not.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, store: Store | str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._is_own = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, read_only=read_only)
        super().__init__(read_only=read_only or self.store.read_only)

    def with_read_only(self, read_only: bool = False) -> ZstoreStore:
        """The same values, refusing writes or taking them.

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
        """Close the store, and the one below where it was opened here."""
        if self._is_own:
            self.store.close()
        super().close()

    # On the calling thread

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: abc.ByteRequest | None = None,
    ) -> Buffer | None:
        """The value, or those bytes of it; None when there is no such key."""
        self._is_open = True
        found = self.store.get(key, _range(byte_range))
        if found is None:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(found)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Keep a copy of `value` under `key`."""
        self._check_writable()
        self._is_open = True
        if not isinstance(value, Buffer):
            raise TypeError(f"{type(self).__name__}.set takes a Buffer, got {type(value).__name__}")
        self.store.put(key, value.to_bytes())

    def delete_sync(self, key: str) -> None:
        """Remove the key, if it is there."""
        self._check_writable()
        self._is_open = True
        self.store.delete(key)

    # On an event loop

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: abc.ByteRequest | None = None
    ) -> Buffer | None:
        """The value, or those bytes of it; None when there is no such key."""
        return await self._run(lambda: self.get_sync(key, prototype=prototype, byte_range=byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, abc.ByteRequest | None]]
    ) -> list[Buffer | None]:
        """`get` of several, asked for together."""
        requests = [(key, _range(byte_range)) for key, byte_range in key_ranges]
        found = await self._run(lambda: self.store.get_many(requests))
        return [None if value is None else prototype.buffer.from_bytes(value) for value in found]

    async def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        return await self._run(lambda: self.store.size(key)) is not None

    async def getsize(self, key: str) -> int:
        """How many bytes the value has.

        Raises
            FileNotFoundError: there is no such key.
        """
        size = await self._run(lambda: self.store.size(key))
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def set(self, key: str, value: Buffer) -> None:
        """Keep a copy of `value` under `key`."""
        await self._run(lambda: self.set_sync(key, value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Keep `value` unless there is one already, which no other writer can do meanwhile."""
        self._check_writable()

        def put() -> None:
            with self.store.lock(key):
                if self.store.size(key) is None:
                    self.set_sync(key, value)

        await self._run(put)

    async def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        await self._run(lambda: self.delete_sync(key))

    async def delete_dir(self, prefix: str) -> None:
        """Remove every key below `prefix`."""
        self._check_writable()
        await self._run(lambda: self.store.delete_prefix(prefix.strip("/")))

    async def clear(self) -> None:
        """Remove every key."""
        await self.delete_dir("")

    async def is_empty(self, prefix: str) -> bool:
        """Whether nothing lies below `prefix`."""
        return await self._run(lambda: next(iter(self.store.list(prefix.strip("/"))), None)) is None

    async def list(self) -> AsyncIterator[str]:
        """Every key."""
        for key in await self._run(lambda: [*self.store.list()]):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key that begins with `prefix`, which may end in the middle of a name."""
        directory = prefix.rpartition("/")[0]
        for key in await self._run(lambda: [*self.store.list(directory)]):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names right below `prefix`."""
        for name in await self._run(lambda: self.store.list_children(prefix.strip("/"))):
            yield name

    async def _run(self, function: Callable[[], T]) -> T:
        self._is_open = True
        return await STORING.run(function)

    def __enter__(self) -> Self:
        return self


def _range(request: abc.ByteRequest | None) -> ByteRange | None:
    if request is None:
        return None
    if isinstance(request, abc.RangeByteRequest):
        return ByteRange(request.start, request.end - request.start)
    if isinstance(request, abc.OffsetByteRequest):
        return ByteRange(request.offset)
    if isinstance(request, abc.SuffixByteRequest):
        return ByteRange(-request.suffix) if request.suffix else ByteRange(0, 0)
    raise TypeError(f"Unexpected byte_range, got {request}.")

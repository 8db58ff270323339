"""Stores that show another store: for reading only, or only what lies below a prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from zstore.base.byterange import ByteRange
from zstore.storage.base import Names, Parts, Store, Values, check_key, check_prefix, join_key

__all__ = ["PrefixStore", "ReadOnlyStore"]


class PrefixStore(Store):
    """What lies below `prefix` of another store, by keys relative to it. Closing it leaves the other open."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = check_prefix(prefix)
        self.read_only = store.read_only
        self.request_count = store.request_count
        self.in_memory = store.in_memory

    @property
    def url(self) -> str:
        """The other store's URL with the prefix at its end."""
        return join_key(self.store.url, self.prefix)

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it; None when there is no such key."""
        return self.store.get(self._key(key), byte_range)

    def get_many(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """As the other store's."""
        return self.store.get_many([(self._key(key), byte_range) for key, byte_range in requests])

    def get_parts(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Parts:
        """As the other store's."""
        return self.store.get_parts([(self._key(key), byte_range) for key, byte_range in requests])

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`."""
        self.check_writable(key)
        self.store.put(self._key(key), value)

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        self.check_writable(key)
        self.store.delete(self._key(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, relative to this store."""
        skip = len(self.prefix) + 1 if self.prefix else 0
        return (key[skip:] for key in self.store.list(self._prefix(prefix)))

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        return self.store.list_children(self._prefix(prefix))

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`."""
        self.check_writable(prefix)
        self.store.delete_prefix(self._prefix(prefix))

    def size(self, key: str) -> int | None:
        """How many bytes the value has."""
        return self.store.size(self._key(key))

    def local_path(self, prefix: str = "") -> Path | None:
        """As the other store's."""
        return self.store.local_path(self._prefix(prefix))

    def lock(self, key: str) -> AbstractContextManager[None]:
        """As the other store's."""
        self.check_writable(key)
        return self.store.lock(self._key(key))

    def flush(self) -> None:
        """As the other store's."""
        if not self.read_only:
            self.store.flush()

    def close(self) -> None:
        """Flush; the other store stays open."""
        self.flush()

    def as_read_only(self) -> Store:
        """The same part of the other store, refusing writes."""
        return PrefixStore(self.store.as_read_only(), self.prefix)

    def _key(self, key: str) -> str:
        return join_key(self.prefix, check_key(key))

    def _prefix(self, prefix: str) -> str:
        return join_key(self.prefix, check_prefix(prefix))


class ReadOnlyStore(PrefixStore):
    """Another store, refusing writes."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "")
        self.read_only = True

    def as_read_only(self) -> Store:
        """This store."""
        return self

"""A store in this process's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn
from urllib.parse import unquote

from zstore.base.byterange import ByteRange
from zstore.errors import StoreError
from zstore.storage.base import Entry, PrefixStore, Store, check_key, check_prefix
from zstore.storage.locking import hold_name

__all__ = ["MemoryStore"]

_named: dict[str, dict[str, bytes]] = {}


class MemoryStore(Store):
    """Values in a dictionary. Stores opened with the same `name` share one, for as long as the process lives.

    A value that is put is copied, and what `get` gives cannot be written to, so neither side can change the
    other's bytes.
    """

    in_memory = True

    def __init__(self, name: str = "", *, read_only: bool = False) -> None:
        self.name = name
        self.read_only = read_only
        self._values: dict[str, bytes] = {}
        if name:
            # In one step, whoever else makes the same name.
            self._values = _named.setdefault(name, self._values)

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store named by "memory://name", or what lies below a path of it ("memory://name/a/b")."""
        if storage_options:
            raise StoreError(f"memory takes no storage options, got {sorted(storage_options)}", path=url)
        name, _, prefix = unquote(url.partition("://")[2]).strip("/").partition("/")
        store = cls(name, read_only=read_only)
        return PrefixStore(store, prefix) if prefix else store

    @property
    def url(self) -> str:
        """ "memory://name"; a store without a name cannot be opened again."""
        return f"memory://{self.name}"

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value itself, or a view of those bytes of it; None when there is no such key."""
        value = self._values.get(check_key(key))
        if value is None or byte_range is None:
            return value
        begin, end = byte_range.resolve(len(value))
        return memoryview(value)[begin:end]

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`."""
        check_key(key)
        self.check_writable(key)
        self._values[key] = bytes(value)

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        check_key(key)
        self.check_writable(key)
        self._values.pop(key, None)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, as they were when this was called."""
        start = check_prefix(prefix) and f"{prefix}/"
        return iter([key for key in self._values.copy() if key.startswith(start)])

    def size(self, key: str) -> int | None:
        """How many bytes the value has."""
        value = self._values.get(check_key(key))
        return None if value is None else len(value)

    def entry(self, key: str) -> Entry | None:
        """How many bytes the value has; their hash, which Python keeps, tells the version in this process."""
        value = self._values.get(check_key(key))
        return None if value is None else Entry(key, len(value), f"{hash(value):x}")

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude other threads that lock the same key; no other process can reach this store."""
        self.check_writable(key)
        return hold_name((id(self._values), check_key(key)))

    def as_read_only(self) -> MemoryStore:
        """The same values, refusing writes."""
        view = MemoryStore(self.name, read_only=True)
        view._values = self._values
        return view

    def __reduce__(self) -> NoReturn:
        raise StoreError(
            "a memory store cannot be pickled: another process would find it empty", path=self.url
        )

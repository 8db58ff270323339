"""A store in the memory of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn
from urllib.parse import unquote

from zstore.base.byterange import ByteRange
from zstore.base.locks import Lock
from zstore.base.once import look_up
from zstore.errors import StoreError
from zstore.storage.base import (
    Changes,
    Entry,
    Names,
    PrefixStore,
    Store,
    check_key,
    check_prefix,
    hold_name,
    join_key,
)


class _Values(dict[str, bytes]):
    """Values by key, and the names directly below each prefix, so that listing one reads no other keys."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, dict[str, None]] = {"": {}}
        self._guard = Lock()
        # Held by who puts a new value.
        self.making = Lock()

    def put(self, key: str, value: bytes) -> None:
        """Keep a value."""
        with self._guard:
            self._put(key, value)

    def _put(self, key: str, value: bytes) -> None:
        is_known = key in self
        self[key] = value
        while key and not is_known:
            above, _, name = key.rpartition("/")
            is_known = above in self._names
            self._names.setdefault(above, {})[name] = None
            key = above

    def remove(self, key: str) -> None:
        """Remove a key, and prefixes that become empty."""
        with self._guard:
            self._remove(key)

    def _remove(self, key: str) -> None:
        if self.pop(key, None) is None:
            return
        while key and key not in self and key not in self._names:
            above, _, name = key.rpartition("/")
            self._names[above].pop(name, None)
            if above and not self._names[above]:
                del self._names[above]
            key = above

    def swap(self, changes: Changes) -> bool:
        """As `Store.swap`."""
        with self._guard:
            for key, (old, _) in changes.items():
                found = look_up(self, key)
                if found is not old and old is not ... and found != old:
                    return False
            for key, (_, new) in changes.items():
                if new is None:
                    self._remove(key)
                elif new is not ...:
                    self._put(key, bytes(new))
            return True

    def children(self, prefix: str) -> list[str]:
        """The names directly below a prefix."""
        with self._guard:
            return [*self._names.get(prefix, ())]

    def below(self, prefix: str) -> Iterator[str]:
        """The keys below a prefix."""
        for name in self.children(prefix):
            key = join_key(prefix, name)
            if key in self:
                yield key
            yield from self.below(key)


_named: dict[str, _Values] = {}


class MemoryStore(Store):
    """Values in a dictionary. Stores opened with the same `name` share one, for as long as the process lives.

    `put` copies a value, and what `get` gives is read-only, so that stored bytes change by `put` alone.
    """

    in_memory = True

    def __init__(self, name: str = "", *, read_only: bool = False) -> None:
        self.name = name
        self.read_only = read_only
        self._values = _Values()
        if name:
            # In one step, as other threads may make the same name.
            self._values = _named.setdefault(name, self._values)

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store named by "memory://name", or its keys below a path ("memory://name/a/b")."""
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
        """The value itself, or a view of those bytes; None if there is no such key."""
        value = look_up(self._values, check_key(key))
        if value is None or byte_range is None:
            return value
        begin, end = byte_range.resolve(len(value))
        return memoryview(value)[begin:end]

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        check_key(key)
        self.check_writable(key)
        self._values.put(key, bytes(value))

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """As `Store.put_new`, one at a time: a lock of each key takes longer."""
        with self._values.making:
            if key in self._values:
                raise self._taken(key)
            self.put(key, value)

    def delete(self, key: str) -> None:
        check_key(key)
        self.check_writable(key)
        self._values.remove(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix` at the moment of the call."""
        if not check_prefix(prefix):
            return iter([*self._values.copy()])
        return iter([*self._values.below(prefix)])

    def list_children(self, prefix: str = "") -> Names:
        return sorted(self._values.children(check_prefix(prefix)))

    def size(self, key: str) -> int | None:
        value = look_up(self._values, check_key(key))
        return None if value is None else len(value)

    def entry(self, key: str) -> Entry | None:
        """The value's size and, as its version, Python's hash of it, which only holds in this process."""
        value = look_up(self._values, check_key(key))
        return None if value is None else Entry(key, len(value), f"{hash(value):x}")

    def swap(self, changes: Changes) -> bool:
        for key in changes:
            check_key(key)
            self.check_writable(key)
        return self._values.swap(changes)

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude other threads that lock the same key; no other process can reach this store."""
        self.check_writable(key)
        return hold_name((id(self._values), check_key(key)))

    def as_read_only(self) -> MemoryStore:
        return self._with(read_only=True)

    def __reduce__(self) -> NoReturn:
        raise StoreError(
            "a memory store cannot be pickled: another process would find it empty", path=self.url
        )

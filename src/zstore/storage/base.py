"""What a store is: bytes by key. Keys are "/"-separated names; the root is "" and is not a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Self

from zstore.base.byterange import ByteRange
from zstore.errors import ReadOnlyError, StoreError

__all__ = ["Found", "Names", "Part", "Parts", "Store", "Values", "check_key", "check_prefix", "join_key"]

# Within a store, `list` is the method.
Names = list[str]
Values = list[bytes | memoryview | None]
Found = list[dict[str, bytes | memoryview]]


class Part(NamedTuple):
    """Some bytes of a value, how many the whole value has, and which version of it they are from.

    Two parts of one key with the same `version` are from the same value; None where the store cannot tell.
    """

    data: bytes | memoryview
    total_size: int
    version: str | None = None


Parts = list[Part | None]


def check_key(key: str) -> str:
    """`key`, if it names something inside a store.

    Raises
        StoreError: empty, absolute, with an empty, "." or ".." part, or a NUL.
    """
    if key and "\0" not in key and not {"", ".", ".."}.intersection(key.split("/")):
        return key
    raise StoreError("key leaves the store or names nothing; expected names joined by '/'", key=key)


def check_prefix(prefix: str) -> str:
    """`prefix`, if it is the root or names something inside a store.

    Raises
        StoreError: as `check_key`; a prefix is written without a "/" at its end.
    """
    return prefix and check_key(prefix)


def join_key(*parts: str) -> str:
    """The parts joined by "/", empty ones (the root) left out."""
    return "/".join(part for part in parts if part)


class Store(ABC):
    """Bytes by key. Methods are safe to call from many threads at once.

    Only "there is nothing under that key" is a missing value (`get` gives None); every other trouble raises
    StoreError. A store that can, makes `put` whole or absent: no reader ever sees half a value.
    """

    read_only: bool = False
    request_count: int = 1
    """How many requests at once are worth making: 1 where a request takes no time to speak of."""
    in_memory: bool = False
    """Whether `get` of a whole value neither takes time nor memory."""

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at `url`; a class that is offered for a URL scheme is opened through this."""
        raise StoreError(f"{cls.__name__} cannot be opened by URL", path=url)

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> Store:
        """The store around another library's store object, for a class offered under that class's name."""
        raise StoreError(f"{cls.__name__} is not made around a {type(target).__name__}")

    @property
    @abstractmethod
    def url(self) -> str:
        """How to name this store, for messages and for opening it again."""

    @abstractmethod
    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it; None when there is no such key.

        A range that reaches past the end gives what is there (possibly nothing).
        """

    def get_many(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """`get` for many keys, in the order asked; a store with latency overrides this to overlap them."""
        return [self.get(key, byte_range) for key, byte_range in requests]

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """Per prefix, what is there of the first of `choices` whose first name is there, by name.

        The names are plain ones, right below the prefix. One request for all of them; a store where a
        request takes no time overrides this to make no more than it takes.
        """
        names = [*dict.fromkeys(name for choice in choices for name in choice)]
        keys = [f"{prefix}/{name}" if prefix else name for prefix in prefixes for name in names]
        values = self.get_many([(key, None) for key in keys])
        found: Found = []
        for at in range(0, len(values), len(names)):
            here = dict(zip(names, values[at : at + len(names)], strict=True))
            choice = next((choice for choice in choices if here[choice[0]] is not None), ())
            found.append({name: value for name in choice if (value := here[name]) is not None})
        return found

    def get_parts(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Parts:
        """`get_many`, with every value's size and version as they were when its bytes were read.

        A store that learns them from the same answer overrides this; others ask for the sizes and give no
        version.
        """
        sizes = {key: self.size(key) for key in dict(requests)}
        values = self.get_many(requests)
        parts: Parts = []
        for (key, _), value in zip(requests, values, strict=True):
            size = sizes[key]
            parts.append(None if value is None or size is None else Part(value, size))
        return parts

    @abstractmethod
    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`, replacing what was there."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the key; nothing happens when there is none."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below the directory-like `prefix` ("a/b" lists "a/b/c", never "a/bc"), in no order."""

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`, of keys and of prefixes alike."""
        skip = len(prefix) + 1 if prefix else 0
        return sorted({key[skip:].partition("/")[0] for key in self.list(prefix)})

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`; "" empties the store."""
        for key in [*self.list(prefix)]:
            self.delete(key)

    def size(self, key: str) -> int | None:
        """How many bytes the value has; None when there is no such key."""
        value = self.get(key)
        return None if value is None else len(value)

    def local_path(self, prefix: str = "") -> Path | None:
        """The directory below which every key lies as a plain file of that name, where there is one.

        A store that has one lets the engine read and write its chunks without calling the store.
        """
        return None

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Keep other processes from changing `key` between a read and the write that follows from it.

        A store that cannot keep them from it may let the write raise ChangedError where they did: whoever
        changes part of a chunk does it again then.
        """
        return nullcontext()

    def purge(self, prefix: str) -> None:  # noqa: B027 - most stores have nothing to remove
        """Remove what writers that died left in the directory `prefix`, where a store leaves anything."""

    def as_read_only(self) -> Store:
        """The same store, refusing writes."""
        from zstore.storage.wrappers import ReadOnlyStore

        return ReadOnlyStore(self)

    def check_writable(self, key: str) -> None:
        """Raise ReadOnlyError when this store was opened for reading."""
        if self.read_only:
            raise ReadOnlyError("store is open for reading only", path=self.url, key=key)

    def flush(self) -> None:  # noqa: B027 - most stores keep nothing back
        """Make what was put so far visible to everybody, where a store waits with that."""

    def close(self) -> None:  # noqa: B027 - most stores have nothing to let go of
        """Flush, and let go of files and connections; to use it again is an error only where it must be."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}{', read_only=True' if self.read_only else ''})"

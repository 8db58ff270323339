"""What a store is: bytes by key. Keys are "/"-separated names; the root is "" and is not a key.

Here is all that the author of a store needs: the class to inherit from, the types and checks of its methods,
the locks of `zstore.storage.locking`, and `merge_requests` for stores that ask a server.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from zstore._ext.engine.files import pread
from zstore.base.byterange import AtMost, ByteRange
from zstore.base.limits import current_limits
from zstore.errors import ChangedError, ReadOnlyError, StoreError, UnsupportedError, without_secrets
from zstore.storage.locking import hold_bytes, hold_file, hold_name, key_offset
from zstore.storage.requests import (
    Entry,
    Fetch,
    Part,
    Parts,
    Stretches,
    check_key,
    check_prefix,
    join_key,
    merge_requests,
)

__all__ = [
    "AtMost",
    "ByteRange",
    "Entry",
    "Fetch",
    "Found",
    "Names",
    "Part",
    "Parts",
    "PrefixStore",
    "Request",
    "Store",
    "Stretches",
    "Values",
    "check_key",
    "check_prefix",
    "choose_documents",
    "document_keys",
    "document_range",
    "get_documents",
    "hold_bytes",
    "hold_file",
    "hold_name",
    "in_thread",
    "join_key",
    "key_offset",
    "merge_requests",
]

# Of all who update a value at the same time one gets through, so this many writers do in the worst case. They
# wait at random, at most twice as long after each attempt (seconds).
ATTEMPTS = 32
FIRST_PAUSE = 0.01
LAST_PAUSE = 1.0

P = ParamSpec("P")
T = TypeVar("T")

# Within a store, `list` is the method.
Names = list[str]
Values = list[bytes | memoryview | None]
Found = list[dict[str, bytes | memoryview]]
Request = tuple[str, ByteRange | None]


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
    is_bounded: bool = True
    """Whether `get` takes no more memory than is stored: servers may lie, files inflate or have holes."""
    zarr_format: int | None = None
    """The only Zarr format whose documents count here, where whoever opened the store said one."""
    durable: bool = False
    """Whether the disk has confirmed a change when the call that makes it returns."""
    lists_versions: bool = False
    """Whether lists say versions, the same as answers to `get_parts` and `put_new` do."""
    removes_whole: bool = False
    """Whether `delete_prefix` of all but the root removes everything or nothing, whatever interrupts it."""

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at `url`; a class that is offered for a URL scheme is opened through this."""
        raise StoreError(f"{cls.__name__} cannot be opened by URL", path=url)

    @classmethod
    def from_adapter(
        cls,
        root: str,
        given: str,
        *,
        read_only: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Store:
        """The store that a URL pipeline "ROOT|NAME:GIVEN" leads to, for a class offered under that name."""
        raise UnsupportedError(f"a {cls.__name__} is no adapter of URL pipelines", path=root)

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
        """For each prefix, the values of the first of `choices` whose first name exists there, by name.

        The names are plain ones, right below the prefix; those that do not exist are left out. All are asked
        for at once; a store where a request takes no time overrides this to ask for no more than is needed.
        Where some of them may not be read, as servers say it of what is not there to those who may not list,
        the others count. Of a value that is longer than a document may be, one byte more is given than that.

        Raises
            StoreError: the store failed, or nothing is found below a prefix where something may not be read.
        """
        values, denied = get_documents(self, document_keys(prefixes, choices))
        return choose_documents(prefixes, choices, values, denied)

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

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> str | None:
        """`put` of what was just seen not to be there; gives the version, where the store knows it.

        A store that can find out in the same request that somebody else was first overrides this.

        Raises
            ChangedError: somebody else has put a value there, which stays.
        """
        self.put(key, value)
        return None

    async def get_many_async(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """`get_many`, in a thread; a store that has an event loop's way of asking overrides this."""
        return await in_thread(self.get_many, requests)

    async def get_parts_async(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Parts:
        """`get_parts`, in a thread unless the store has a better way."""
        return await in_thread(self.get_parts, requests)

    async def get_first_async(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """`get_first`, in a thread unless the store has a better way."""
        return await in_thread(self.get_first, prefixes, choices)

    async def put_async(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """`put`, in a thread unless the store has a better way."""
        await in_thread(self.put, key, value)

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

    def entry(self, key: str) -> Entry | None:
        """How large the value is and which version of it is there; None when there is no such key."""
        [part] = self.get_parts([(key, ByteRange(0, 1))])
        return None if part is None else Entry(key, part.total_size, part.version)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all keys below `prefix`, in no order; stores whose lists have them override this."""
        return (entry for key in self.list(prefix) if (entry := self.entry(key)) is not None)

    def few_entries(self, prefix: str, most: int) -> Sequence[Entry] | None:
        """The `entries`, if one request tells them all; None where they are more than `most`, or unknown."""
        return None

    def holder(self, key: str) -> tuple[Store, str]:
        """The store that holds the value, and its key there, where this one shows a part of another."""
        return self, key

    def put_file(self, key: str, file: int, size: int) -> None:
        """Keep the first `size` bytes of an open file, given by its descriptor."""
        self.put(key, pread(file, 0, size))

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        """Have a value of another store copied without its bytes coming here; False where that cannot be."""
        return False

    def local_path(self, prefix: str = "") -> Path | None:
        """The directory below which every key lies as a plain file of that name, where there is one.

        A store that has one lets the engine read and write its chunks without calling the store.
        """
        return None

    def stretches(self, prefix: str) -> Stretches | None:
        """Where the chunks of the array at `prefix` lie in local files, where the store knows that of all.

        The engine reads them there without calling the store, and takes a file that is gone, is too short,
        or is not what it was for an error.
        """
        return None

    def origin(self, key: str) -> str | None:
        """What the value of `key` is a part of, for messages, where it is a part of something."""
        return None

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Keep other processes from changing `key` between a read and the write that follows from it.

        A store that cannot keep them from it may let the write raise ChangedError where they did: `update`
        does it again then.
        """
        return nullcontext()

    def hold(self, key: str) -> AbstractContextManager[None]:
        """As `lock`, for as long as it takes to change much: nothing done meanwhile has to be done again.

        A store whose `lock` lets writes raise ChangedError overrides this (`zstore.storage.claims`).
        """
        return self.lock(key)

    def update(self, key: str, act: Callable[[], None]) -> None:
        """Call `act`, which reads the value of `key` and puts what it makes of it, under the key's lock.

        It is called again, after a pause, where others wrote the value meanwhile.

        Raises
            ChangedError: others wrote it during every attempt; nothing of theirs was overwritten.
        """
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.lock(key):
                    act()
                    return
            except ChangedError:
                if attempt == ATTEMPTS:
                    raise
            time.sleep(random.uniform(0, pause))
            pause = min(2 * pause, LAST_PAUSE)

    def purge(self, prefix: str) -> None:  # noqa: B027 - most stores have nothing to remove
        """Remove what writers that died left in the directory `prefix`, where a store leaves anything."""

    def as_read_only(self) -> Store:
        """The same store, refusing writes."""
        return PrefixStore(self, "", read_only=True)

    def as_durable(self) -> Store:
        """The same store, whose changes survive a power cut from the moment that the call returns.

        Raises
            StoreError: this store cannot promise that.
        """
        if self.durable:
            return self
        raise StoreError(f"a {type(self).__name__} cannot be durable; expected durable=False", path=self.url)

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
        ending = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}({without_secrets(self.url)!r}{ending})"


async def in_thread(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """`asyncio.to_thread`, imported when it is asked for: it takes longer than the rest of this package."""
    from asyncio import to_thread

    return await to_thread(function, *args, **options)


def document_range() -> AtMost:
    """What to ask for of a document: a byte more than it may have tells one that has too many."""
    return AtMost(current_limits().document_size + 1)


def document_keys(prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> list[str]:
    """What `get_first` asks for: every name of the choices, below each prefix."""
    names = [*dict.fromkeys(name for choice in choices for name in choice)]
    return [join_key(prefix, name) for prefix in prefixes for name in names]


def choose_documents(
    prefixes: Sequence[str],
    choices: Sequence[Sequence[str]],
    values: Values,
    denied: Mapping[str, StoreError],
) -> Found:
    """What `get_first` gives, of the values of all of `document_keys`.

    Raises
        StoreError: nothing is found below a prefix where something may not be read.
    """
    names = [*dict.fromkeys(name for choice in choices for name in choice)]
    found: Found = []
    for at, prefix in enumerate(prefixes):
        here = dict(zip(names, values[at * len(names) : (at + 1) * len(names)], strict=True))
        choice = next((choice for choice in choices if here[choice[0]] is not None), ())
        found.append({name: value for name in choice if (value := here[name]) is not None})
        refused = [key for name in names if (key := join_key(prefix, name)) in denied]
        if refused and not found[-1]:
            raise denied[refused[0]]
    return found


def get_documents(store: Store, keys: Sequence[str]) -> tuple[Values, dict[str, StoreError]]:
    """The values of these keys as far as they may be read, and the errors of those that may not."""
    wish = document_range()
    try:
        return store.get_many([(key, wish) for key in keys]), {}
    except StoreError as error:
        if not error.is_denied:
            raise
    values: Values = []
    denied = {}
    for key in keys:
        try:
            values.append(store.get(key, wish))
        except StoreError as error:
            if not error.is_denied:
                raise
            denied[key] = error
            values.append(None)
    return values, denied


class PrefixStore(Store):
    """What lies below `prefix` of another store, by keys relative to it; with `read_only` it refuses writes.

    With `zarr_format`, documents of other formats do not count. Closing it leaves the other store open.
    """

    def __init__(
        self, store: Store, prefix: str, *, read_only: bool = False, zarr_format: int | None = None
    ) -> None:
        self.store = store
        self.prefix = check_prefix(prefix)
        self.zarr_format = zarr_format or store.zarr_format
        self.read_only = read_only or store.read_only
        self.request_count = store.request_count
        self.in_memory = store.in_memory
        self.is_bounded = store.is_bounded
        self.lists_versions = store.lists_versions
        self.removes_whole = store.removes_whole
        self.durable = store.durable

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

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As the other store's."""
        return self.store.get_first([*map(self._prefix, prefixes)], choices)

    async def get_many_async(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """As the other store's."""
        return await self.store.get_many_async([(self._key(key), wish) for key, wish in requests])

    async def get_parts_async(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Parts:
        """As the other store's."""
        return await self.store.get_parts_async([(self._key(key), wish) for key, wish in requests])

    async def get_first_async(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As the other store's."""
        return await self.store.get_first_async([*map(self._prefix, prefixes)], choices)

    async def put_async(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """As the other store's."""
        self.check_writable(key)
        await self.store.put_async(self._key(key), value)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`."""
        self.check_writable(key)
        self.store.put(self._key(key), value)

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> str | None:
        """As the other store's."""
        self.check_writable(key)
        return self.store.put_new(self._key(key), value)

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

    def entry(self, key: str) -> Entry | None:
        """How large the value is, and its version."""
        found = self.store.entry(self._key(key))
        return found and found._replace(key=key)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all keys below `prefix`, relative to this store."""
        return self._below(self.store.entries(self._prefix(prefix)))

    def few_entries(self, prefix: str, most: int) -> Sequence[Entry] | None:
        """As the other store's, relative to this store."""
        found = self.store.few_entries(self._prefix(prefix), most)
        return None if found is None else [*self._below(found)]

    def _below(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        skip = len(self.prefix) + 1 if self.prefix else 0
        return (entry._replace(key=entry.key[skip:]) for entry in entries)

    def holder(self, key: str) -> tuple[Store, str]:
        """Where the other store has it."""
        return self.store.holder(self._key(key))

    def put_file(self, key: str, file: int, size: int) -> None:
        """As the other store's."""
        self.check_writable(key)
        self.store.put_file(self._key(key), file, size)

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        """As the other store's."""
        self.check_writable(key)
        return self.store.copy_from(self._key(key), source, source_key)

    def local_path(self, prefix: str = "") -> Path | None:
        """As the other store's."""
        return self.store.local_path(self._prefix(prefix))

    def stretches(self, prefix: str) -> Stretches | None:
        """As the other store's."""
        return self.store.stretches(self._prefix(prefix))

    def origin(self, key: str) -> str | None:
        """As the other store's."""
        return self.store.origin(self._key(key))

    def lock(self, key: str) -> AbstractContextManager[None]:
        """As the other store's."""
        self.check_writable(key)
        return self.store.lock(self._key(key))

    def hold(self, key: str) -> AbstractContextManager[None]:
        """As the other store's."""
        self.check_writable(key)
        return self.store.hold(self._key(key))

    def purge(self, prefix: str) -> None:
        """As the other store's."""
        self.store.purge(self._prefix(prefix))

    def flush(self) -> None:
        """As the other store's."""
        if not self.read_only:
            self.store.flush()

    def close(self) -> None:
        """Flush; the other store stays open."""
        self.flush()

    def as_read_only(self) -> Store:
        """The same part of the other store, refusing writes."""
        return PrefixStore(self.store, self.prefix, read_only=True, zarr_format=self.zarr_format)

    def as_durable(self) -> Store:
        """The same part of the other store, if that can be durable."""
        store = self.store.as_durable()
        return PrefixStore(store, self.prefix, read_only=self.read_only, zarr_format=self.zarr_format)

    def _key(self, key: str) -> str:
        return join_key(self.prefix, check_key(key))

    def _prefix(self, prefix: str) -> str:
        return join_key(self.prefix, check_prefix(prefix))

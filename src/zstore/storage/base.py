"""The interface of stores, which keep bytes by key. A key is names joined by "/"; the root, "", is no key.

This module has all that the author of a store needs: the base class, the types and checks of its methods, the
locks of `zstore.storage.locking`, and `merge_requests` for stores that send requests to a server.
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
    Request,
    Stretches,
    check_key,
    check_prefix,
    join_key,
    join_url,
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
    "join_url",
    "key_offset",
    "merge_requests",
]

# How often `update` tries. Each time one at least of several writers succeeds, so that this many of them do
# in the worst case. The pauses between are random; their limit (seconds) doubles each time.
ATTEMPTS = 32
FIRST_PAUSE = 0.01
LAST_PAUSE = 1.0

P = ParamSpec("P")
T = TypeVar("T")

# Within a store, `list` is the method.
Names = list[str]
Values = list[bytes | memoryview | None]
Found = list[dict[str, bytes | memoryview]]


class Store(ABC):
    """Bytes by key. Methods are safe to call from many threads at once.

    Where there is nothing under a key, `get` gives None; everything else that goes wrong raises StoreError. A
    store replaces values atomically if it can: then no reader ever sees half of one.
    """

    read_only: bool = False
    request_count: int = 1
    """How many requests to make at once: 1 where a request takes hardly any time."""
    in_memory: bool = False
    """Whether `get` of a whole value takes neither time nor memory."""
    is_bounded: bool = True
    """Whether `get` takes no more memory than is stored; servers may send more, packed values grow."""
    zarr_format: int | None = None
    """The only Zarr format whose documents count, where the store was opened for one; None: every format."""
    durable: bool = False
    """Whether a change is on the disk when the call that makes it returns."""
    lists_versions: bool = False
    """Whether `entries` gives versions, and the same ones as `get_parts` and `put_new`."""
    removes_whole: bool = False
    """Whether `delete_prefix` below the root removes everything or nothing, even when it is interrupted."""

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at `url`; for a class that is offered under the URL's scheme."""
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
        """The store at a URL pipeline "ROOT|NAME:GIVEN"; for a class that is offered under that name."""
        raise UnsupportedError(f"a {cls.__name__} is no adapter of URL pipelines", path=root)

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> Store:
        """A store around another library's object; for a class offered under that object's class."""
        raise StoreError(f"{cls.__name__} is not made around a {type(target).__name__}")

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of this store, for messages and for opening it again."""

    @abstractmethod
    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it; None when there is no such key.

        A range that reaches past the end gives the bytes that there are, possibly none.
        """

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` for many keys, in the order of `requests`; concurrently, where a store has latency."""
        return [self.get(key, byte_range) for key, byte_range in requests]

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """Below each prefix, the values of the first of `choices` whose first name exists there, by name.

        A choice is a list of names directly below the prefix; names that do not exist are left out. All are
        requested at once; a store whose requests take hardly any time makes only those that are needed.
        Values that may not be read are passed over where others are found: a server may answer "forbidden"
        for what does not exist. Of a value longer than a document may be, that many bytes and one more are
        given.

        Raises
            StoreError: the store failed, or nothing is found below a prefix where a value may not be read.
        """
        values, denied = get_documents(self, document_keys(prefixes, choices))
        return choose_documents(prefixes, choices, values, denied)

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the size and version that each value had when its bytes were read.

        A store that learns both from the response overrides this; here the sizes are requested apart, and
        there are no versions.
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
        """`put` under a key that was just seen to be free; gives the new version, where the store knows it.

        A store with latency that can have the server refuse what is there already overrides this; others look
        under the key's lock.

        Raises
            ChangedError: another writer has put a value there meanwhile, which stays.
        """
        if self.request_count > 1:
            self.put(key, value)
            return None
        with self.lock(key):
            if self.size(key) is not None:
                raise self._taken(key)
            self.put(key, value)
        return None

    def _taken(self, key: str) -> ChangedError:
        message = "somebody else has just put a value there; nothing was overwritten"
        return ChangedError(message, path=self.url, key=key)

    async def get_many_async(self, requests: Sequence[Request]) -> Values:
        """`get_many`, in a thread; a store whose requests are asynchronous overrides this."""
        return await in_thread(self.get_many, requests)

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        """`get_parts`, as `get_many_async`."""
        return await in_thread(self.get_parts, requests)

    async def get_first_async(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """`get_first`, as `get_many_async`."""
        return await in_thread(self.get_first, prefixes, choices)

    async def put_async(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """`put`, as `get_many_async`."""
        await in_thread(self.put, key, value)

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the key; nothing happens when there is none."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below the directory-like `prefix` ("a/b" lists "a/b/c", never "a/bc"), in no order."""

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names directly below `prefix`, of keys and of prefixes."""
        skip = len(prefix) + 1 if prefix else 0
        return sorted({key[skip:].partition("/")[0] for key in self.list(prefix)})

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`; "" empties the store."""
        for key in [*self.list(prefix)]:
            self.delete(key)

    def delete_many(self, keys: Sequence[str]) -> bool:
        """Remove these keys, many by one request; False where that cannot be, and nothing is done."""
        return False

    def size(self, key: str) -> int | None:
        """How many bytes the value has; None when there is no such key."""
        value = self.get(key)
        return None if value is None else len(value)

    def entry(self, key: str) -> Entry | None:
        """The size of the value and its version; None when there is no such key."""
        [part] = self.get_parts([(key, ByteRange(0, 1))])
        return None if part is None else Entry(key, part.total_size, part.version)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all keys below `prefix`, in no order; overridden where lists have them."""
        return (entry for key in self.list(prefix) if (entry := self.entry(key)) is not None)

    def few_entries(self, prefix: str, most: int) -> Sequence[Entry] | None:
        """The `entries`, where one request gives them all; None: more than `most`, or not known."""
        return None

    def holder(self, key: str) -> tuple[Store, str]:
        """The store that keeps the value, and its key there; another store where this is a view of it."""
        return self, key

    def put_file(self, key: str, file: int, size: int) -> None:
        """Keep the first `size` bytes of an open file, given by its descriptor."""
        self.put(key, pread(file, 0, size))

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        """Copy a value of another store without reading it into this process; False: not possible."""
        return False

    def local_path(self, prefix: str = "") -> Path | None:
        """The directory below which every value is a plain file named by its key; None where there is none.

        The engine reads and writes chunks in this directory without calling the store.
        """
        return None

    def stretches(self, prefix: str) -> Stretches | None:
        """Where all chunks of the array at `prefix` lie in local files; None where the store does not know.

        The engine reads the files without calling the store. A file that is gone, too short or changed is an
        error.
        """
        return None

    def origin(self, key: str) -> str | None:
        """The file that the value is a part of, for messages; None where it is stored by itself."""
        return None

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Keep other writers from changing `key` between a read and the write that depends on it.

        A store that cannot do so may raise ChangedError from the write when the value has changed; `update`
        then tries again.
        """
        return nullcontext()

    def hold(self, key: str) -> AbstractContextManager[None]:
        """As `lock`, for long changes: none of what is done under it has to be repeated.

        A store whose writes may raise ChangedError overrides this (`zstore.storage.claims`).
        """
        return self.lock(key)

    def update(self, key: str, act: Callable[[], None]) -> None:
        """Call `act`, which reads the value of `key` and replaces it, under the key's lock.

        It is called again, after a pause, where others have changed the value meanwhile.

        Raises
            ChangedError: others changed it during every attempt; nothing of theirs was overwritten.
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

    def purge(self, prefix: str) -> None:  # noqa: B027 - most stores have no such files
        """Remove the temporary files that dead writers have left in the directory `prefix`."""

    def as_read_only(self) -> Store:
        """The same store, refusing writes."""
        return PrefixStore(self, "", read_only=True)

    def _with(self, **attributes: Any) -> Self:
        """A store of this class that shares everything with this one but those attributes."""
        view = type(self).__new__(type(self))
        view.__dict__.update(self.__dict__, **attributes)
        return view

    def as_durable(self) -> Store:
        """The same store, whose changes survive a power cut as soon as the call that makes them returns.

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

    def flush(self) -> None:  # noqa: B027 - most stores delay nothing
        """Make what was put so far visible to everybody, where the store delays that."""

    def close(self) -> None:  # noqa: B027 - most stores have nothing to close
        """Flush, and close files and connections. A store that can opens them again when it is used."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ending = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}({without_secrets(self.url)!r}{ending})"


async def in_thread(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """`asyncio.to_thread`; asyncio is imported on first use, as its import takes longer than zstore's."""
    from asyncio import to_thread

    return await to_thread(function, *args, **options)


def document_range() -> AtMost:
    """The range to request of a document, with one byte beyond the limit, which shows that it is too long."""
    return AtMost(current_limits().document_size + 1)


def document_keys(prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> list[str]:
    """The keys that `get_first` requests: every name of the choices, below each prefix."""
    names = [*dict.fromkeys(name for choice in choices for name in choice)]
    return [join_key(prefix, name) for prefix in prefixes for name in names]


def choose_documents(
    prefixes: Sequence[str],
    choices: Sequence[Sequence[str]],
    values: Values,
    denied: Mapping[str, StoreError],
) -> Found:
    """The result of `get_first`, from the values of all `document_keys`; `denied` has errors by key.

    Raises
        StoreError: nothing is found below a prefix where a value may not be read.
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
    """(values of the keys, errors by key of those that may not be read, whose values are None)."""
    byte_range = document_range()
    try:
        return store.get_many([(key, byte_range) for key in keys]), {}
    except StoreError as error:
        if not error.is_denied:
            raise
    values: Values = []
    denied = {}
    for key in keys:
        try:
            values.append(store.get(key, byte_range))
        except StoreError as error:
            if not error.is_denied:
                raise
            denied[key] = error
            values.append(None)
    return values, denied


class PrefixStore(Store):
    """The part of another store below `prefix`, with keys relative to it; `read_only` refuses writes.

    Every method is that of the other store, which stays open when this is closed. With `zarr_format`,
    documents of other formats do not count.
    """

    def __init__(
        self, store: Store, prefix: str, *, read_only: bool = False, zarr_format: int | None = None
    ) -> None:
        self.store = store
        self.prefix = check_prefix(prefix)
        self._skip = len(prefix) + 1 if prefix else 0
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
        return join_url(self.store.url, self.prefix)

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        return self.store.get(self._key(key), byte_range)

    def get_many(self, requests: Sequence[Request]) -> Values:
        return self.store.get_many(self._absolute(requests))

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        return self.store.get_parts(self._absolute(requests))

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        return self.store.get_first([*map(self._prefix, prefixes)], choices)

    async def get_many_async(self, requests: Sequence[Request]) -> Values:
        return await self.store.get_many_async(self._absolute(requests))

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        return await self.store.get_parts_async(self._absolute(requests))

    async def get_first_async(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        return await self.store.get_first_async([*map(self._prefix, prefixes)], choices)

    async def put_async(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.check_writable(key)
        await self.store.put_async(self._key(key), value)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.check_writable(key)
        self.store.put(self._key(key), value)

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> str | None:
        self.check_writable(key)
        return self.store.put_new(self._key(key), value)

    def delete(self, key: str) -> None:
        self.check_writable(key)
        self.store.delete(self._key(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        return (key[self._skip :] for key in self.store.list(self._prefix(prefix)))

    def list_children(self, prefix: str = "") -> Names:
        return self.store.list_children(self._prefix(prefix))

    def delete_prefix(self, prefix: str) -> None:
        self.check_writable(prefix)
        self.store.delete_prefix(self._prefix(prefix))

    def delete_many(self, keys: Sequence[str]) -> bool:
        """As the other store's."""
        self.check_writable(self.prefix)
        return self.store.delete_many([*map(self._key, keys)])

    def size(self, key: str) -> int | None:
        return self.store.size(self._key(key))

    def entry(self, key: str) -> Entry | None:
        found = self.store.entry(self._key(key))
        return found and found._replace(key=key)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        return self._below(self.store.entries(self._prefix(prefix)))

    def few_entries(self, prefix: str, most: int) -> Sequence[Entry] | None:
        found = self.store.few_entries(self._prefix(prefix), most)
        return None if found is None else [*self._below(found)]

    def _below(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        return (entry._replace(key=entry.key[self._skip :]) for entry in entries)

    def holder(self, key: str) -> tuple[Store, str]:
        return self.store.holder(self._key(key))

    def put_file(self, key: str, file: int, size: int) -> None:
        self.check_writable(key)
        self.store.put_file(self._key(key), file, size)

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        self.check_writable(key)
        return self.store.copy_from(self._key(key), source, source_key)

    def local_path(self, prefix: str = "") -> Path | None:
        return self.store.local_path(self._prefix(prefix))

    def stretches(self, prefix: str) -> Stretches | None:
        return self.store.stretches(self._prefix(prefix))

    def origin(self, key: str) -> str | None:
        return self.store.origin(self._key(key))

    def lock(self, key: str) -> AbstractContextManager[None]:
        self.check_writable(key)
        return self.store.lock(self._key(key))

    def hold(self, key: str) -> AbstractContextManager[None]:
        self.check_writable(key)
        return self.store.hold(self._key(key))

    def purge(self, prefix: str) -> None:
        self.store.purge(self._prefix(prefix))

    def flush(self) -> None:
        if not self.read_only:
            self.store.flush()

    def close(self) -> None:
        self.flush()

    def as_read_only(self) -> Store:
        return PrefixStore(self.store, self.prefix, read_only=True, zarr_format=self.zarr_format)

    def as_durable(self) -> Store:
        store = self.store.as_durable()
        return PrefixStore(store, self.prefix, read_only=self.read_only, zarr_format=self.zarr_format)

    def _absolute(self, requests: Sequence[Request]) -> Sequence[Request]:
        return [(self._key(key), byte_range) for key, byte_range in requests]

    def _key(self, key: str) -> str:
        return join_key(self.prefix, check_key(key))

    def _prefix(self, prefix: str) -> str:
        return join_key(self.prefix, check_prefix(prefix))

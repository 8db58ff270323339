"""The interface of stores, which keep bytes by key. A key is names joined by "/"; the root, "", is no key.

This module has all that the author of a store needs: the base class, the types and checks of its methods, the
locks, and `merge_requests` for stores that send requests to a server.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, cast
from weakref import WeakValueDictionary

from zstore._ext.engine.files import WAIT_FOR_LOCK, lock_offset, lock_range, pread
from zstore.base.byterange import AtMost, ByteRange, choose_gap, merge_ranges
from zstore.base.limits import current_limits
from zstore.base.locks import Lock
from zstore.errors import (
    ChangedError,
    ReadOnlyError,
    StoreError,
    UnsupportedError,
    ZstoreError,
    say_no_memory,
    without_secrets,
)

# The errors of file systems that have no locks.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}

# The metadata documents that a lock is taken on, in the order they are looked for.
DOCUMENTS = ("zarr.json", ".zarray", "meta")

# The lock of an array's shape, as a name below the array's. Whoever changes the shape holds it while storing
# chunks and replacing the document.
SHAPE_LOCK = ".zstore-shape"


_thread = threading.local()
_guard = Lock()
# An entry lasts as long as somebody holds the lock or waits for it.
_names: WeakValueDictionary[Hashable, Lock] = WeakValueDictionary()


@contextmanager
def hold_name(name: Hashable) -> Iterator[None]:
    """Exclude all other threads of this process that use the same name."""
    with _guard:
        try:
            lock = _names.setdefault(name, Lock())
        except RuntimeError as error:
            say_no_memory(error)
            raise
    with lock:
        yield


def key_offset(key: str) -> int:
    """The offset of a key's lock in its lock file: the low 62 bits of the FNV-1a hash of its UTF-8 bytes."""
    return lock_offset(key.encode("utf-8", "surrogateescape"))


@contextmanager
def hold_file(key: str, open_file: Callable[[str, int], int]) -> Iterator[bool]:
    """Exclude every other thread and process that locks `key` in the same directory tree.

    The context says whether the key is that of a document which is there.

    The protocol, for whoever wants to take part in it from another language:

    1. The lock file is the nearest metadata document above the key: for each directory from the key's own up
       to the store's root, `zarr.json`, then `.zarray`, then `meta`. It is opened for reading and writing.
    2. On it, an open-file-description write lock (F_OFD_SETLKW) on one byte, whose offset is `key_offset` of
       the key relative to the document's directory (so stores opened at different levels agree). Where the
       key is that very document, the lock covers the whole file instead (start 0, length 0): replacing a
       document waits for everyone who holds a chunk below it.
    3. Where there is no document at all, flock(LOCK_EX) on the root directory.
    4. Once the lock is held, step 1 is repeated. If it now finds another file (a document was replaced by
       renaming, or a nearer one was made), the lock is let go and everything starts again.

    Locks of this kind belong to the open file, so they exclude the threads of one process too, and end with
    the process. A document's lock is taken before, never while, a key below it is held, but for one: whoever
    holds SHAPE_LOCK beside the document widens that lock to the whole file, and back again. Where there is no
    document, one lock is all that a thread can hold. A thread that breaks this rule gets EDEADLK.

    `open_file(path, flags)` opens a path relative to the root ("" is the root itself); -1: there is none.
    """
    while True:
        descriptor, offset, length = _open_nearest(key, open_file)
        try:
            mine = _shape_lock(descriptor) if length == 0 else None
            held = _locked(descriptor, offset, length) if mine is None else _document_locked(mine)
            with held:
                if _is_nearest(descriptor, key, open_file):
                    yield length == 0
                    return
        finally:
            os.close(descriptor)


@contextmanager
def _locked(descriptor: int, offset: int, length: int | None) -> Iterator[None]:
    """Lock those bytes; EDEADLK if this thread would wait for itself, which the system does not notice."""
    status = os.fstat(descriptor)
    mine = _thread_locks()
    for _, device, inode, held_offset, held_length in mine:
        is_same_file = (device, inode) == (status.st_dev, status.st_ino)
        if is_same_file and (held_offset == offset or not length or not held_length):
            raise OSError(errno.EDEADLK, "this thread holds a lock already that excludes this one")
    note = (descriptor, status.st_dev, status.st_ino, offset, length)
    mine.append(note)
    try:
        with hold_bytes(descriptor, offset, length):
            yield
    finally:
        mine.remove(note)


def _thread_locks() -> list[tuple[int, int, int, int, int | None]]:
    """The locks of this thread: descriptor, device, inode, offset and length of each."""
    held: list[tuple[int, int, int, int, int | None]] = _thread.__dict__.setdefault("held", [])
    return held


def _shape_lock(document: int) -> int | None:
    """The descriptor by which this thread holds the lock of the array's shape on that document."""
    status, offset = os.fstat(document), key_offset(SHAPE_LOCK)
    for descriptor, device, inode, held_offset, length in _thread_locks():
        if (device, inode, held_offset, length) == (status.st_dev, status.st_ino, offset, 1):
            return descriptor
    return None


@contextmanager
def _document_locked(descriptor: int) -> Iterator[None]:
    """Lock the whole of a document on which this thread has the lock of the array's shape."""
    offset = key_offset(SHAPE_LOCK)
    # No deadlock: whoever has the lock of a chunk waits for no other, and nobody else has this one.
    _set_lock(descriptor, True, 0, 0)
    try:
        yield
    finally:
        _set_lock(descriptor, False, 0, offset)
        _set_lock(descriptor, False, offset + 1, 0)


@contextmanager
def hold_key(path: str | os.PathLike[str], key: str) -> Iterator[None]:
    """Lock a key against whoever locks it by the same file, in other threads and processes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with hold_bytes(descriptor, key_offset(key), 1):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def hold_bytes(descriptor: int, offset: int, length: int | None) -> Iterator[None]:
    """Lock `length` bytes of an open file against whoever opened it elsewhere; None: all of it, by flock."""
    if length is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    else:
        _set_lock(descriptor, True, offset, length)
    try:
        yield
    finally:
        # Closing alone would leave the lock to a child process that was forked meanwhile.
        if length is None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            _set_lock(descriptor, False, offset, length)


def _set_lock(descriptor: int, is_held: bool, offset: int, length: int) -> None:
    if WAIT_FOR_LOCK < 0:
        raise OSError(errno.ENOLCK, "this system has no locks that belong to an open file")
    fcntl.fcntl(descriptor, WAIT_FOR_LOCK, lock_range(is_held, offset, length))


def _open_nearest(
    key: str, open_file: Callable[[str, int], int], flags: int = os.O_RDWR
) -> tuple[int, int, int | None]:
    """The open lock file, and the offset and length to lock in it; no length for the root directory."""
    directory = key
    while directory:
        directory = directory.rpartition("/")[0]
        below = key[len(directory) + 1 :] if directory else key
        for document in DOCUMENTS:
            path = f"{directory}/{document}" if directory else document
            try:
                descriptor = open_file(path, flags)
            except IsADirectoryError:
                continue
            if descriptor < 0:
                continue
            return (descriptor, 0, 0) if below == document else (descriptor, key_offset(below), 1)
    return open_file("", os.O_RDONLY | os.O_DIRECTORY), 0, None


def _is_nearest(descriptor: int, key: str, open_file: Callable[[str, int], int]) -> bool:
    other, _, _ = _open_nearest(key, open_file, os.O_RDONLY)
    try:
        return os.path.samestat(os.fstat(descriptor), os.fstat(other))
    finally:
        os.close(other)


def failure(
    action: str, url: str, key: str | None, error: BaseException, reason: str | None = None
) -> StoreError:
    """The error for an exception of the system, or of a library that a store uses; with its `errno`."""
    reason = reason or getattr(error, "strerror", None) or str(error) or type(error).__name__
    made = StoreError(f"cannot {action}: {reason}", path=url, key=key or None)
    made.errno = getattr(error, "errno", None)
    return made


@contextmanager
def failing(
    action: str,
    url: str,
    key: str | None = None,
    kinds: type[Exception] | tuple[type[Exception], ...] = OSError,
    make: Callable[[str, str | None, Any], StoreError] | None = None,
) -> Iterator[None]:
    """A context that raises StoreError for exceptions of some kinds, and adds the path to zstore's own.

    make  the error for an exception; otherwise that of `failure`
    """
    try:
        yield
    except ZstoreError as error:
        error.locate(path=url, key=key or None)
        raise
    except kinds as error:
        made = failure(action, url, key, error) if make is None else make(action, key, error)
        raise made from error


# The URLs in which a "?" begins a query, by any library ("fsspec+https").
WEB = re.compile(r"(?:[a-z0-9.-]+\+)?https?://", re.IGNORECASE)


class Part(NamedTuple):
    """Some bytes of a value, the size of the whole value, and its version.

    Two parts of one key with the same `version` are from the same value; None: the store knows no versions.
    """

    data: bytes | memoryview
    total_size: int
    version: str | None = None


Parts = list[Part | None]
# What `swap` expects under each key, and puts there.
Changes = Mapping[str, tuple[Any, Any]]
# A key and which bytes of its value are wanted, None for all of them.
Request = tuple[str, ByteRange | None]


class Entry(NamedTuple):
    """A key, the size of its value in bytes, and the value's version; None: the store knows no versions."""

    key: str
    size: int
    version: str | None = None


class Stretches(NamedTuple):
    """The stretches of local files, which have other content too, that are the chunks of one array.

    grid       how many chunks are described along each dimension; chunks beyond are not stored
    has_c      whether keys begin with "c"
    separator  between the numbers of a key
    number     int64, ascending: the chunk of each row below, counted in C order through the grid; None: all
    file       int32 per row: an index into `files`; -1: no such chunk is stored; -2: its bytes are in `data`
    offset     int64 per row: where in the file, or in `data`, the chunk begins
    size       int64 per row: how many bytes it has; -1: all bytes from the offset on
    data       bytes of chunks that are in no file
    places     directories that files must lie in, after symbolic links are followed
    files      per file: index into `places`, name below that directory, and the size and modification time
               (nanoseconds) that it must have; -1: any
    """

    grid: tuple[int, ...]
    has_c: bool
    separator: str
    number: Any
    file: Any
    offset: Any
    size: Any
    data: bytes
    places: list[str]
    files: list[tuple[int, str, int, int]]


# Parts of a key that name nothing, or a directory above.
NO_NAMES = frozenset(("", ".", ".."))


def check_key(key: str) -> str:
    """`key` itself, if it is valid.

    Raises
        StoreError: empty, absolute, with an empty, "." or ".." part, or a NUL.
    """
    if key and "\0" not in key and NO_NAMES.isdisjoint(key.split("/")):
        return key
    raise StoreError("key leaves the store or names nothing; expected names joined by '/'", key=key)


def check_prefix(prefix: str) -> str:
    """`prefix` itself, if it is valid: the root, or a key.

    Raises
        StoreError: as `check_key`; a prefix is written without a "/" at its end.
    """
    return prefix and check_key(prefix)


def join_key(*parts: str) -> str:
    """The parts joined by "/", without empty ones (the root)."""
    return "/".join(filter(None, parts))


def key_below(prefix: str, key: str) -> str:
    """The key as it is called below a prefix that it begins with; the key itself below the root."""
    return key[len(prefix) + 1 :] if prefix else key


def join_url(url: str, path: str) -> str:
    """The URL of `path` below another URL; in a signed link, `path` goes before the query."""
    start, mark, query = url.partition("?") if WEB.match(url) else (url, "", "")
    return f"{join_key(start.rstrip('/') if mark else start, path)}{mark}{query}" if path else url


class Fetch(NamedTuple):
    """One request: bytes `start` to `end` of a value; a negative start counts back from the end.

    Where `start` is None, the whole value is requested; an `end` is then the most bytes that are needed of
    it. `members` are the positions of the merged requests that this one serves.
    """

    key: str
    start: int | None
    end: int | None
    members: tuple[int, ...]

    @property
    def limit(self) -> int | None:
        """The most bytes that are needed of a whole value; None: all."""
        return self.end if self.start is None else None

    @property
    def span(self) -> str | None:
        """The bytes that are requested of a value, as HTTP writes them; None: all."""
        if self.start is None:
            return None
        last = "" if self.end is None else self.end - 1
        return f"{self.start}" if self.start < 0 else f"{self.start}-{last}"


def each_request(requests: Sequence[Request]) -> Iterator[Fetch]:
    """One request for each of these, in their order."""
    for index, (key, byte_range) in enumerate(requests):
        start, size = byte_range or (0, None)
        first: int | None = start
        last = None if size is None or start < 0 else start + max(1, size)
        if isinstance(byte_range, AtMost):
            first, last = None, size or 0
        elif start == 0 and size is None:
            first = None
        yield Fetch(check_key(key), first, last, (index,))


def merge_requests(requests: Sequence[Request], *, has_ranges: bool = True) -> list[Fetch]:
    """Fewer requests that serve all of these; without `has_ranges`, requests for whole values."""
    ranges: dict[str, list[int]] = {}
    others: dict[tuple[str, int | None], list[int]] = {}
    limits: dict[str, list[int]] = {}
    for index, (key, byte_range) in enumerate(requests):
        check_key(key)
        if isinstance(byte_range, AtMost):
            others.setdefault((key, None), []).append(index)
            limits.setdefault(key, []).append(byte_range.size or 0)
        elif byte_range is None or tuple(byte_range) == (0, None) or not has_ranges:
            others.setdefault((key, None), []).append(index)
        elif byte_range.start < 0 or byte_range.size is None:
            others.setdefault((key, byte_range.start), []).append(index)
        else:
            ranges.setdefault(key, []).append(index)
    fetches = []
    for (key, start), members in others.items():
        limited = limits.get(key, []) if start is None else []
        end = max(limited) if limited and len(limited) == len(members) else None
        fetches.append(Fetch(key, start, end, tuple(members)))
    stretches = {
        key: [(start, size or 0) for start, size in ((requests[index][1] or (0, 0))[:2] for index in indexes)]
        for key, indexes in ranges.items()
    }
    gap_size = choose_gap(stretches.values())
    for key, indexes in ranges.items():
        for merged in merge_ranges(stretches[key], gap_size=gap_size):
            served = tuple(indexes[member] for member in merged.members)
            # No server takes a request for 0 bytes; one byte also tells whether there is a value.
            fetches.append(Fetch(key, merged.start, merged.start + max(1, merged.size), served))
    return fetches


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

    A key is here, missing or out of reach: where it is proven that nothing was written under it, `get` gives
    None; everything else raises StoreError. A store replaces values atomically if it can: then no reader ever
    sees half of one.

    A store defines the `PRIMITIVES`, of which `url`, `get`, `put`, `delete` and `list` have no default. What
    else there is, is made of them once, here. Where measurements justify another way, a store defines one of
    the `CAPABILITIES`.
    """

    read_only: bool = False
    request_count: int = 1
    """How many requests to make at once: 1 where a request takes hardly any time."""
    under_way_size: int = 32 << 20
    """How many bytes of large values to request at once."""
    in_memory: bool = False
    """Whether `get` of a whole value takes neither time nor memory."""
    is_bounded: bool = True
    """Whether `get` takes no more memory than is stored; servers may send more, packed values grow."""
    links_into: bytes | None = None
    """Directories elsewhere that links below `local_path` may lead into, each with a NUL at its end."""
    zarr_format: int | None = None
    """The only Zarr format whose documents count, where the store was opened for one; None: every format."""
    durable: bool = False
    """Whether a change is on the disk when the call that makes it returns."""
    lists_versions: bool = False
    """Whether `entries` gives versions, and the same ones as `get_parts` and `put_new`."""
    removes_whole: bool = False
    """Whether `delete_prefix` below the root removes everything or nothing, even when it is interrupted."""
    locks_below: bool = False
    """Whether `lock` of an array's document excludes who locks a key below the array, its shape's too."""
    notices_changes: bool = False
    """Whether `lock` lets other processes write, and the write under it then raises ChangedError."""

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
        """The value, or those bytes of it; None if there is no such key.

        A range that reaches past the end gives the bytes that there are, possibly none.
        """

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` for many keys, in the order of `requests`; concurrently, if the store has latency."""
        return [self.get(key, byte_range) for key, byte_range in requests]

    def get_each(
        self, requests: Sequence[Request], value_size: int, share: int
    ) -> Iterator[Sequence[tuple[int, Part | None]]] | None:
        """The parts of requests as they come, some at a time, with their numbers; None: not in this store.

        Each is asked for by itself, so that those for neighbours are to be merged before.

        value_size  the bytes that a value has, about
        share       of how many such calls this is one, which together hold no more values than one would
        """
        return None

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
        if self.request_count == 1:
            most = document_range()
            return [first_below(self.get, prefix, choices, most) for prefix in prefixes]
        return _first_of_all(self, prefixes, choices)

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
        """Keep a copy of `value` under `key`; a value that the key has is replaced."""

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> str | None:
        """`put` under a key that was just seen to be free; returns the new version, if the store knows it.

        A store that can refuse what is there already, or have its server do so, overrides this; others look
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

    def seen(self, key: str, *, again: bool = False) -> Part | None:
        """A document as this process last read or wrote it, with the version that `put_over` takes.

        With `again` it is read now. None: there is none, or the store does not replace on condition.
        """
        return None

    def swap(self, changes: Changes) -> bool | None:
        """Replace values in one step, if all are as expected; False if not, with nothing done.

        None if the store cannot in next to no time, which it says of no changes too, and nothing is done.
        Where only its locks keep others out, the caller holds those of the keys that change.

        changes  by key: the value that must be there (None: no value; ...: any), and the one that takes its
                 place (None: it is removed; ...: it stays)
        """
        return None

    def put_over(self, key: str, value: bytes | bytearray | memoryview, version: str | None) -> str | None:
        """`put` over the value of that version (None: where there is no value); returns the new version.

        Raises
            ChangedError: another value is there, which stays.
        """
        if version is None and self.request_count == 1:
            return self.put_new(key, value)
        with self.lock(key):
            self.check_version(key, version)
            self.put(key, value)
        return None

    def delete_over(self, key: str, version: str | None) -> None:
        """`delete` the value of that version.

        Raises
            ChangedError: another value is there, or none.
        """
        with self.lock(key):
            self.check_version(key, version)
            self.delete(key)

    def check_version(self, key: str, version: str | None) -> None:
        """Check that the value has that version (None: that there is no value).

        Raises
            ChangedError: another value is there, or none.
        """
        found = self.entry(key)
        if (found if found is None else found.version) != version:
            raise self._taken(key)

    def _taken(self, key: str) -> ChangedError:
        message = "somebody else has just put a value there; nothing was overwritten"
        return ChangedError(message, path=self.url, key=key)

    async def get_many_async(self, requests: Sequence[Request]) -> Values:
        """`get_many`, in a thread; a store whose requests are asynchronous overrides this."""
        return await in_thread(self.get_many, requests)

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        """`get_parts`, as `get_many_async`."""
        return await in_thread(self.get_parts, requests)

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the key; a missing key is no error."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below the directory-like `prefix` ("a/b" lists "a/b/c", never "a/bc"), in no order."""

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names directly below `prefix`, of keys and of prefixes."""
        return sorted({key_below(prefix, key).partition("/")[0] for key in self.list(prefix)})

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`; "" empties the store."""
        for key in [*self.list(prefix)]:
            self.delete(key)

    def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[bytes | bytearray | memoryview],
        versions: Sequence[str | None] | None = None,
    ) -> Sequence[str | ChangedError | None] | None:
        """`put` values at once, or with `versions` `put_over` those: each one's new version or ChangedError.

        All are tried. None if the store cannot, which it says of no keys too, and nothing is done.
        """
        return None

    def put_new_many(
        self, keys: Sequence[str], values: Sequence[bytes]
    ) -> Sequence[str | ChangedError | None] | None:
        """Put values under new keys at once, and return `put_new`'s version of each, or its ChangedError.

        None if the store cannot, and nothing is done.
        """
        return None

    def delete_soon(self, key: str) -> None:
        """Remove the value, without a wait where that takes long; later values of the key come after it.

        It may stay where the store refuses, or the process ends.
        """
        self.delete(key)

    def delete_many(self, keys: Sequence[str]) -> bool:
        """Remove these keys, many by one request; False if the store cannot, and nothing is done."""
        return False

    def size(self, key: str) -> int | None:
        """The number of bytes of the value; None if there is no such key."""
        value = self.get(key)
        return None if value is None else len(value)

    def entry(self, key: str) -> Entry | None:
        """The size of the value and its version; None if it is proven that there is no such key.

        Raises
            StoreError: a value may be there, which the store cannot give.
        """
        [part] = self.get_parts([(key, ByteRange(0, 1))])
        return None if part is None else Entry(key, part.total_size, part.version)

    def check_missing(self, keys: Sequence[str]) -> None:  # noqa: B027 - in most stores no key hides another
        """Check that nothing was ever written under keys without values.

        Raises
            StoreError: a value may be there, which cannot be reached.
        """

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all keys below `prefix`, in no order; overridden if listings have sizes."""
        return (entry for key in self.list(prefix) if (entry := self.entry(key)) is not None)

    def few_entries(self, prefix: str, most: int) -> Sequence[Entry] | None:
        """The `entries`, if one request gives them all; None: more than `most`, or unknown."""
        return None

    def holder(self, key: str) -> tuple[Store, str]:
        """The store that keeps the value, and its key there: another store if this is a view of it."""
        return self, key

    def put_file(self, key: str, file: int, size: int) -> None:
        """Keep the first `size` bytes of an open file, given by its descriptor."""
        self.put(key, pread(file, 0, size))

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        """Copy a value of another store without reading it into this process; False: not possible."""
        return False

    def local_path(self, prefix: str = "") -> Path | None:
        """The directory below which every value is a plain file named by its key; None if there is none.

        The engine reads and writes chunks in this directory without calling the store.
        """
        return None

    def stretches(self, prefix: str) -> Stretches | None:
        """The stretches of all chunks of the array at `prefix` in local files; None if the store has none.

        The engine reads the files without calling the store. A file that is gone, too short or changed is an
        error.
        """
        return None

    def origin(self, key: str) -> str | None:
        """The file that contains the value, for messages; None if the value is stored by itself."""
        return None

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Keep other writers from changing `key` between a read and the write that depends on it.

        A store that cannot do so may raise ChangedError from the write when the value has changed; `update`
        then tries again.
        """
        return nullcontext()

    def held_open(self) -> AbstractContextManager[None]:
        """A context for several calls by one thread; a store that opens something for each opens it once."""
        return nullcontext()

    def update(self, key: str, act: Callable[[], object]) -> None:
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
        """Raise ReadOnlyError if this store was opened for reading."""
        if self.read_only:
            said = "store is open for reading only"
            if getattr(type(self), "read_only", None) is not True:
                said += "; expected it opened with mode='r+'"
            if self.url.partition("://")[0] in ("http", "https"):
                said = (
                    "a web server is for reading only; expected a directory, or a bucket as s3://BUCKET/NAME"
                )
            raise ReadOnlyError(said, path=self.url, key=key)

    def flush(self) -> None:  # noqa: B027 - most stores delay nothing
        """Make all values put so far visible to everybody, if the store delays that."""

    def close(self) -> None:  # noqa: B027 - most stores have nothing to close
        """Flush, and close files and connections. A store that can opens them again when it is used."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ending = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}({without_secrets(self.url)!r}{ending})"


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits nothing that suspends, on the calling thread; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    except (SystemError, RuntimeError, ValueError) as error:
        say_no_memory(error)
        raise
    coroutine.close()
    raise AssertionError("the coroutine awaited something that has to be waited for")


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


def first_below(
    get: Callable[[str, ByteRange], bytes | memoryview | None],
    prefix: str,
    choices: Sequence[Sequence[str]],
    most: ByteRange,
) -> dict[str, bytes | memoryview]:
    """The result of `get_first` below one prefix, of values that are asked for one after the other."""
    start = prefix and f"{prefix}/"
    found: dict[str, bytes | memoryview] = {}
    for choice in choices:
        for name in choice:
            value = get(start + name, most)
            if value is not None:
                found[name] = value
            elif not found:
                break
        if found:
            break
    return found


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


def _first_of_all(store: Store, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
    """The result of `get_first`, of all values that it may need, which are requested at once."""
    values, denied = get_documents(store, document_keys(prefixes, choices))
    return choose_documents(prefixes, choices, values, denied)


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


class BatchStore(Store):
    """A store that reads many ranges at once: its primitive is `get_parts`, on which all reads are built.

    A store that can ask asynchronously overrides `get_parts_async` too.
    """

    @abstractmethod
    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """The requested bytes, in the order of `requests`, with the size and version of each value."""

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        return self.get_many([(key, byte_range)])[0]

    def get_many(self, requests: Sequence[Request]) -> Values:
        return [None if part is None else part.data for part in self.get_parts(requests)]

    async def get_many_async(self, requests: Sequence[Request]) -> Values:
        return [None if part is None else part.data for part in await self.get_parts_async(requests)]

    def size(self, key: str) -> int | None:
        found = self.entry(key)
        return None if found is None else found.size

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        return _first_of_all(self, prefixes, choices)

    # Named here, so that a class that is a view too reads by its own `get_parts`.
    get_each = Store.get_each
    get_parts_async = Store.get_parts_async


# What stores define. Prefixes, many keys, documents, sizes, updates and views are made of these.
PRIMITIVES = (
    *("url", "get", "put", "put_new", "delete", "delete_prefix"),
    *("list", "list_children", "size", "lock", "flush", "close"),
)
# Other ways that a store may define, by the names of what they are for, with their methods.
CAPABILITIES = {
    "many": ("get_parts", "get_many", "get_each", "get_parts_async", "get_many_async", "put_many"),
    "documents": ("get_first",),
    "entries": ("entry", "entries", "few_entries"),
    "removal": ("delete_many", "delete_soon"),
    "conditions": ("put_new_many", "seen", "put_over", "delete_over", "check_version", "swap"),
    "copies": ("copy_from", "put_file"),
    "files": ("local_path", "purge", "check_missing", "held_open"),
    "stretches": ("stretches", "origin"),
}
# How a store is opened, and what it is opened for.
OPENING = (
    *("from_url", "from_adapter", "from_object"),
    *("as_read_only", "as_durable", "check_writable"),
)

# Methods whose first parameter has one of these names concern keys; a view forwards them.
_MAPPED = {
    "key": "_key",
    "keys": "_keys",
    "prefix": "_prefix",
    "prefixes": "_prefixes",
    "requests": "_requests",
    "changes": "_changes",
}
_OWN = {"update", "check_writable"}
# The attributes that a view has of its store.
_TRAITS = tuple(Store.__annotations__.keys() - {"read_only", "zarr_format"})
# The methods that change values.
CHANGES = (
    *("put", "put_many", "put_new", "put_new_many", "put_over", "put_file", "copy_from"),
    *("delete", "delete_soon", "delete_over", "delete_many", "delete_prefix", "swap"),
)
_GIVING_KEYS = {"list", "entry", "entries", "few_entries"}
F = TypeVar("F", bound=Callable[..., Any])


def _forwarding(function: F) -> F:
    """A view's form of a method of `Store`: the same one of its store, with absolute keys."""
    name, parameter = function.__name__, function.__code__.co_varnames[1]
    mapping, gives_keys = _MAPPED[parameter], name in _GIVING_KEYS
    is_changing = name == "lock" or name in CHANGES

    @wraps(function)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        first, *rest = args or (options.pop(parameter, ""),)
        if is_changing:
            self.check_writable(first if isinstance(first, str) else self.prefix)
        result = getattr(self.store, name)(getattr(self, mapping)(first), *rest, **options)
        return self._relative(result) if gives_keys else result

    method.__dict__.pop("__isabstractmethod__", None)
    return cast("F", method)


class PrefixStore(Store):
    """The values of another store below `prefix`, with keys relative to it; `read_only` refuses writes.

    Every method is that of the other store, which stays open when this is closed (`_forwarding`). With
    `zarr_format`, documents of other formats do not count.
    """

    def __init__(
        self, store: Store, prefix: str, *, read_only: bool = False, zarr_format: int | None = None
    ) -> None:
        self.store = store
        self.prefix = check_prefix(prefix)
        for name in _TRAITS:
            setattr(self, name, getattr(store, name))
        self.zarr_format = zarr_format or store.zarr_format
        self.read_only = read_only or store.read_only

    @property
    def url(self) -> str:
        return join_url(self.store.url, self.prefix)

    get = _forwarding(Store.get)
    put = _forwarding(Store.put)
    delete = _forwarding(Store.delete)
    list = _forwarding(Store.list)

    def held_open(self) -> AbstractContextManager[None]:
        return self.store.held_open()

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

    def _key(self, key: str) -> str:
        return join_key(self.prefix, check_key(key))

    def _prefix(self, prefix: str = "") -> str:
        return join_key(self.prefix, check_prefix(prefix))

    def _keys(self, keys: Sequence[str]) -> Sequence[str]:
        return [*map(self._key, keys)]

    def _prefixes(self, prefixes: Sequence[str]) -> Sequence[str]:
        return [*map(self._prefix, prefixes)]

    def _requests(self, requests: Sequence[Request]) -> Sequence[Request]:
        return [(self._key(key), byte_range) for key, byte_range in requests]

    def _changes(self, changes: Changes) -> Changes:
        return {self._key(key): change for key, change in changes.items()}

    def _relative(self, result: Any) -> Any:
        """A key, an entry or several of them, with keys relative to the prefix."""
        if isinstance(result, Entry):
            return result._replace(key=self._relative(result.key))
        if isinstance(result, str):
            return key_below(self.prefix, result)
        if isinstance(result, Sequence):
            return [*map(self._relative, result)]
        return None if result is None else map(self._relative, result)


for _name, _function in vars(Store).items():
    _code = getattr(_function, "__code__", None)
    if _name[0] != "_" and _name not in _OWN and _code and {*_code.co_varnames[1:2]} & {*_MAPPED}:
        setattr(PrefixStore, _name, _forwarding(_function))

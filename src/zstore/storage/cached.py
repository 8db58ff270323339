"""Caches for the values of a store with latency, in memory and on the local disk."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial, wraps
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

from zstore._ext.engine.transfer import kept_counts, kept_size
from zstore.base.byterange import ByteRange
from zstore.base.locks import Lock
from zstore.base.once import look_up
from zstore.base.waits import wait_for_result
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import (
    CHANGES,
    BatchStore,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    check_key,
    drive,
)
from zstore.storage.url import open_store

FILE = "zstore-ranges-1.sqlite3"
# Bytes that a range takes besides its data; how much of a full cache is kept.
ROW_SIZE = 256
LEFT_SHARE = 0.9
# A range that takes more than this share of the cache is not kept.
LARGEST_SHARE = 0.25
# Bytes that a range takes in memory besides its data, and the most values whose versions are believed.
RANGE_SIZE = 512
DOCUMENT_NAMES = ("zarr.json", "meta", "attributes")
TOLD_COUNT = 1 << 16
# How exactly the time of use is recorded (seconds); else every hit would change the file.
USED_TIME = 60
# How long to wait for another process that changes the file (seconds).
WAITING_TIME = 5.0
# Storage options and environment variables that name the server; URLs of buckets do not.
ENDPOINTS = ("endpoint", "account", "host", "base_url")
VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME")

# An object is one version of a value. Every version is a row of its own, whose id is never used again: what
# is found by the id is of that version, even if other processes change the file meanwhile.
SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY AUTOINCREMENT, place TEXT NOT NULL, key TEXT NOT NULL,
    version TEXT NOT NULL, total INTEGER NOT NULL, UNIQUE (place, key, version, total)
);
CREATE TABLE IF NOT EXISTS ranges (
    object INTEGER NOT NULL, first INTEGER NOT NULL, size INTEGER NOT NULL, sum INTEGER NOT NULL,
    used INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (object, first, size)
);
CREATE INDEX IF NOT EXISTS ranges_by_use ON ranges (used);
CREATE TABLE IF NOT EXISTS held (size INTEGER NOT NULL);
INSERT INTO held SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM held);
CREATE TRIGGER IF NOT EXISTS range_comes AFTER INSERT ON ranges
    BEGIN UPDATE held SET size = size + new.size + 256; END;
CREATE TRIGGER IF NOT EXISTS range_goes AFTER DELETE ON ranges
    BEGIN UPDATE held SET size = size - old.size - 256; END;
"""
# The only range of an object that can contain one that begins at the given byte: none lies within another.
AROUND = "SELECT rowid FROM ranges WHERE object = ? AND first <= ? ORDER BY first DESC, size DESC LIMIT 1"


class _CachedVersion(NamedTuple):
    """A version of a value, with its cached ranges."""

    number: int
    version: str | None
    total_size: int


_Answers: TypeAlias = dict[Request, Part | None]


class _Blocking:
    """Asks a store, and waits, on the calling thread: a coroutine that awaits this only never suspends."""

    @staticmethod
    def loop() -> Any:
        """The event loop without which what has been asked for is not answered; None: a thread is enough."""
        return None

    @staticmethod
    async def get_parts(store: Store, requests: Sequence[Request]) -> Parts:
        return store.get_parts(requests)

    @staticmethod
    async def wait(future: Future[_Answers]) -> _Answers:
        return wait_for_result(future)


class _Awaiting(_Blocking):
    """Asks a store, and waits, on an event loop."""

    @staticmethod
    def loop() -> Any:
        from asyncio import get_running_loop

        return get_running_loop()

    @staticmethod
    async def get_parts(store: Store, requests: Sequence[Request]) -> Parts:
        return await store.get_parts_async(requests)

    @staticmethod
    async def wait(future: Future[_Answers]) -> _Answers:
        from asyncio import wrap_future

        return await wrap_future(future)


class _Sent:
    """Requests that readers have sent to a store, and the futures of others that wait for the same.

    Who waits for an event loop may keep it from going on, or wait for one that has stopped: only readers on
    the same loop wait for what was asked for there.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # By request, the loop of the reader that sent it, and the futures.
        self._waiting: dict[Request, tuple[Any, list[Future[_Answers]]]] = {}
        self._process = os.getpid()

    async def get_parts(self, ask: type[_Blocking], store: Store, requests: Sequence[Request]) -> Parts:
        """The store's answers; what another reader is asking for comes from there, unless that one fails."""
        own, theirs = self._join(requests, ask.loop())
        answers: _Answers = {}
        try:
            answers.update(zip(own, await ask.get_parts(store, [*own]) if own else (), strict=True))
        finally:
            self._answer(own, answers)
        for future in theirs.values():
            answers.update(await ask.wait(future))
        left = [request for request in theirs if request not in answers]
        answers.update(zip(left, await ask.get_parts(store, left) if left else (), strict=True))
        return [answers[request] for request in requests]

    def _join(
        self, requests: Sequence[Request], loop: Any
    ) -> tuple[dict[Request, bool], dict[Request, Future[_Answers]]]:
        """(requests of this reader's own, each with whether others may wait for it; those of others)."""
        with self._lock:
            if self._process != os.getpid():  # a forked child has none of the threads
                self._waiting, self._process = {}, os.getpid()
            own, theirs = dict[Request, bool](), dict[Request, Future[_Answers]]()
            for request in dict.fromkeys(requests):
                their_loop, futures = self._waiting.get(request, (None, None))
                if futures is not None and their_loop in (None, loop):
                    futures.append(theirs.setdefault(request, Future()))
                else:
                    own[request] = futures is None and not _is_kept_out(request[0])
            self._waiting.update((request, (loop, [])) for request, is_shared in own.items() if is_shared)
        return own, theirs

    def _answer(self, own: Mapping[Request, bool], answers: _Answers) -> None:
        """Give these answers to all who wait for them; those without one ask for themselves."""
        with self._lock:
            shared = [request for request, is_shared in own.items() if is_shared]
            waiting = {request: self._waiting.pop(request)[1] for request in shared}
        for request, futures in waiting.items():
            for future in filter(Future.set_running_or_notify_cancel, futures):
                future.set_result({request: answers[request]} if request in answers else {})


class Caching(BatchStore, PrefixStore):
    """A view of a store with a cache of ranges that were read from it, for values that have not changed.

    Every read asks the store for one byte of a kept value, which tells its version: data of that version only
    is taken from the cache. For `fresh_for` seconds after its version was told, a chunk is not asked for;
    inf: never again. Threads that want the same of a chunk at one time ask for it once then. Documents and
    intents, and whatever is read under a lock, are always asked for, and chunks after any change by this
    view.
    """

    def __init__(
        self, store: Store, *, fresh_for: float = 0, read_only: bool = False, zarr_format: int | None = None
    ) -> None:
        super().__init__(store, "", read_only=read_only, zarr_format=zarr_format)
        if not fresh_for >= 0:
            raise ValueError(f"fresh_for is {fresh_for!r}; expected seconds, 0 or more")
        self.fresh_for = fresh_for
        self._forget()

    def _forget(self) -> None:
        # When a value was last told, by key, and its size and version; None for a missing one.
        self._told: dict[str, tuple[float, Part | None]] = {}
        self._sent = _Sent()
        self._change_count = 0
        self._held = threading.local()

    def _look_up(
        self, requests: Sequence[Request]
    ) -> tuple[dict[str, _CachedVersion], dict[int, memoryview]]:
        """(the cached version of each key, the cached data by position of its request)."""
        raise NotImplementedError

    def _keep(self, responses: Sequence[tuple[Request, Part | None]]) -> None:
        """Keep these ranges, and drop those of other versions of the same values."""
        raise NotImplementedError

    @property
    def _believes(self) -> bool:
        """Whether versions from a moment ago are good enough for the calling thread."""
        return self.fresh_for > 0 and not self._held.__dict__.get("count")

    def _fresh(self, keys: Iterable[str]) -> dict[str, Part | None]:
        """Sizes and versions of values that need not be asked for, by key; None for missing values."""
        if not self._believes:
            return {}
        since = time.monotonic() - self.fresh_for
        told = ((key, self._told.get(key)) for key in keys if not _is_kept_out(key))
        return {key: each[1] for key, each in told if each is not None and each[0] > since}

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with sizes and versions; one round of requests at most if nothing has changed."""
        return drive(self._get_parts(requests, _Blocking))

    async def _get_parts(self, requests: Sequence[Request], ask: type[_Blocking]) -> Parts:
        for key, _ in requests:
            check_key(key)
        change_count = self._change_count
        known, kept = self._look_up(requests)
        now = self._fresh(key for key, _ in requests)
        missing = {key for key, part in now.items() if part is None}
        asked = [n for n, (key, _) in enumerate(requests) if n not in kept and key not in missing]
        requested = {requests[index][0] for index in asked}
        # Where nothing else of a value is requested, one byte tells its version.
        probed = [
            key
            for key in dict.fromkeys(requests[index][0] for index in kept)
            if key not in requested and key not in now
        ]
        wanted = [*(requests[index] for index in asked), *((key, ByteRange(0, 1)) for key in probed)]
        get_parts = partial(self._sent.get_parts, ask) if self._believes else ask.get_parts
        responses = await get_parts(self.store, wanted) if wanted else []
        parts: Parts = [None] * len(requests)
        told: dict[str, Part | None] = dict(zip(probed, responses[len(asked) :], strict=True))
        for index, part in zip(asked, responses, strict=False):
            parts[index] = part
            told[requests[index][0]] = part
        now.update(told)
        changed = []
        for index, data in kept.items():
            key = requests[index][0]
            part = now[key]
            if part is not None and (part.version, part.total_size) == known[key][1:]:
                parts[index] = Part(data, part.total_size, part.version)
            elif part is not None:
                changed.append(index)
        again = await ask.get_parts(self.store, [requests[index] for index in changed]) if changed else []
        for index, part in zip(changed, again, strict=True):
            parts[index] = part
            told[requests[index][0]] = part
        self._keep([(requests[index], parts[index]) for index in (*asked, *changed)])
        if self.fresh_for and change_count == self._change_count:
            at = time.monotonic()
            if len(self._told) > TOLD_COUNT:
                self._told.clear()
            self._told.update((key, (at, part and part._replace(data=b""))) for key, part in told.items())
        return parts

    # That of PrefixStore would read past the cache.
    as_read_only = Store.as_read_only
    # Sizes are not cached.
    size = PrefixStore.size

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """The store's lock; while it is held, reads ask the store, not the cache."""
        with self.store.lock(key):
            self._held.__dict__["count"] = self._held.__dict__.get("count", 0) + 1
            try:
                yield
            finally:
                self._held.__dict__["count"] -= 1


def _is_kept_out(key: str) -> bool:
    """Whether a key is that of a document or an intent rather than a chunk's."""
    name = key.rpartition("/")[2]
    return name[0] == "." or name in DOCUMENT_NAMES or ".zstore-" in key


def _changing(function: Any) -> Any:
    """A method of a view that changes values, with versions forgotten at its end."""

    @wraps(function)
    def method(self: Caching, *args: Any, **options: Any) -> Any:
        try:
            return function(self, *args, **options)
        finally:
            self._change_count += 1
            self._told.clear()
            self._sent = _Sent()

    return method


for _name in CHANGES:
    setattr(Caching, _name, _changing(getattr(PrefixStore, _name)))


class CacheInfo(NamedTuple):
    """The caches in memory that are in use in this process, all of them together.

    decoded_size        bytes of decoded chunks
    stored_size         bytes of stored values, of arrays that are `cached`
    hit_count           ranges of stored values that were taken from memory
    miss_count          ranges that were read from their stores
    decoded_hit_count   decoded chunks that were taken from memory
    decoded_miss_count  chunks read in part that were not in memory
    evicted_count       decoded chunks that left it for others
    thrash_count        chunks that were decoded again while there was no room: more than hits say that
                        `set_cache_size` is too small for a loop that reads the same chunks
    """

    decoded_size: int
    stored_size: int
    hit_count: int
    miss_count: int
    decoded_hit_count: int
    decoded_miss_count: int
    evicted_count: int
    thrash_count: int


class KeptStore(Caching):
    """Another store, with the ranges that were read from it kept in memory, the last used ones."""

    def __init__(self, store: Store, limit_size: int, *, fresh_for: float = 0) -> None:
        super().__init__(store, fresh_for=fresh_for)
        self.limit_size = limit_size

    def _forget(self) -> None:
        super()._forget()
        self._lock = Lock()
        self._ranges: OrderedDict[Request, Part] = OrderedDict()
        self.stored_size = self.hit_count = self.miss_count = 0
        _kept.add(self)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_told", "_sent", "_held", "_lock", "_ranges")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def as_durable(self) -> Store:
        view = KeptStore(self.store.as_durable(), self.limit_size, fresh_for=self.fresh_for)
        view.read_only = self.read_only
        return view

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        return await self._get_parts(requests, _Awaiting)

    def _look_up(
        self, requests: Sequence[Request]
    ) -> tuple[dict[str, _CachedVersion], dict[int, memoryview]]:
        known: dict[str, _CachedVersion] = {}
        kept: dict[int, memoryview] = {}
        with self._lock:
            for index, request in enumerate(requests):
                key, wish = request
                for name in dict.fromkeys((request, (key, None))):
                    part = look_up(self._ranges, name)
                    if part is None:
                        continue
                    version = known.setdefault(key, _CachedVersion(0, part.version, part.total_size))
                    if version[1:] != (part.version, part.total_size):
                        continue
                    self._ranges.move_to_end(name)
                    begin, end = (wish or ByteRange(0)).resolve(part.total_size)
                    data = memoryview(part.data)
                    kept[index] = data[begin:end] if name != request else data
                    break
            self.hit_count += len(kept)
            self.miss_count += len(requests) - len(kept)
        return known, kept

    def _keep(self, responses: Sequence[tuple[Request, Part | None]]) -> None:
        with self._lock:
            for request, part in responses:
                old = self._ranges.pop(request, None)
                self.stored_size -= 0 if old is None else len(old.data) + RANGE_SIZE
                if part is None or (part.version is None and self.fresh_for != inf):
                    continue
                size = len(part.data) + RANGE_SIZE
                if size <= self.limit_size * LARGEST_SHARE:
                    self._ranges[request] = part._replace(data=bytes(part.data))
                    self.stored_size += size
            while self.stored_size > self.limit_size:
                _, old = self._ranges.popitem(last=False)
                self.stored_size -= len(old.data) + RANGE_SIZE


_kept: WeakSet[KeptStore] = WeakSet()


def cache_info() -> CacheInfo:
    """The sizes of the caches in memory that are in use, and the numbers of hits and misses."""
    stores = [*_kept]
    return CacheInfo(
        kept_size(),
        sum(store.stored_size for store in stores),
        sum(store.hit_count for store in stores),
        sum(store.miss_count for store in stores),
        *kept_counts(),
    )


class CachedStore(Caching):
    """Another store, with the ranges that were read from it cached on the local disk.

    Every read requests one byte of a cached value from the store, which tells its version, and takes data of
    that version only from the disk: outdated data is never given, unless `fresh_for` says for how many
    seconds the version of a chunk is believed (inf: chunks never change). Values of stores without versions
    are not cached. Processes may share one `directory`. It holds at most `limit_size` bytes of values; the
    least recently used are removed. Killing a process does no harm. If the disk fails, the store is read
    without the cache.

    `name` tells the store from others with the same URL; by default, endpoints in the storage options do.

    >>> import tempfile
    >>> store = CachedStore("memory://", tempfile.mkdtemp())
    >>> store.get("nothing") is None
    True

    Raises
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store,
        directory: str | os.PathLike[str],
        *,
        limit_size: int = 1 << 30,
        name: str | None = None,
        fresh_for: float = 0,
        read_only: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(limit_size, str) or not limit_size >= 0:
            raise ValueError(f"limit_size is {limit_size!r}; expected bytes, 0 or more")
        opened = open_store(store, read_only=read_only, storage_options=storage_options)
        super().__init__(opened, fresh_for=fresh_for, read_only=read_only)
        identity = name if name is not None else repr(sorted(_endpoints(storage_options or {})))
        self.directory = Path(directory).expanduser().absolute()
        self.limit_size = limit_size
        # obstore's versions of values in memory begin anew in every process.
        self._has_versions = not opened.url.startswith("obstore+memory:")
        self._place = sha256(f"{opened.url}\n{identity}".encode()).hexdigest()
        self._set_up()

    def _set_up(self) -> None:
        self._forget()
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._has_failed = False
        with _guard:
            _stores.add(self)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_told", "_sent", "_held", "_lock", "_connection", "_has_failed")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()

    def as_durable(self) -> Store:
        view = CachedStore.__new__(CachedStore)
        view.__setstate__({**self.__getstate__(), "store": self.store.as_durable(), "durable": True})
        return view

    def close(self) -> None:
        """Flush the store and close the cache's file, which is opened again when it is used."""
        with self._closed():
            pass
        super().close()

    def __del__(self) -> None:
        with suppress(Exception):
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """A context in which the cache's file is closed; the next use opens it again."""
        with self._lock:
            self._disconnect()
            yield

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection | None]:
        """The cache's file, in a transaction; None if it is unusable, which is no error."""
        with self._lock:
            connection = self._connect()
            if connection is None:
                yield None
                return
            try:
                with connection:
                    yield connection
            except sqlite3.OperationalError:
                # The file is locked for long, or the disk is full, which may be over the next time.
                pass
            except sqlite3.Error:
                self._has_failed = True
                self._disconnect()

    def _connect(self) -> sqlite3.Connection | None:
        if self._connection is not None or self._has_failed or not self._has_versions:
            return self._connection
        connection = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.directory / FILE
            connection = sqlite3.connect(path, timeout=WAITING_TIME, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(SCHEMA)
        except (sqlite3.Error, OSError):
            self._has_failed = True
            if connection is not None:
                connection.close()
            return None
        self._connection = connection
        return connection

    def _look_up(
        self, requests: Sequence[Request]
    ) -> tuple[dict[str, _CachedVersion], dict[int, memoryview]]:
        known: dict[str, _CachedVersion] = {}
        kept: dict[int, memoryview] = {}
        with self._opened() as file:
            if file is None:
                return known, kept
            for key in dict.fromkeys(key for key, _ in requests):
                row = file.execute(
                    "SELECT id, version, total FROM objects WHERE place = ? AND key = ? ORDER BY id DESC",
                    (self._place, key),
                ).fetchone()
                if row is not None:
                    known[key] = _CachedVersion(*row)
            now = int(time.time())
            used = []
            for index, (key, byte_range) in enumerate(requests):
                if key not in known:
                    continue
                number, _, total_size = known[key]
                begin, end = (byte_range or ByteRange(0)).resolve(total_size)
                row = file.execute(
                    f"SELECT first, size, sum, used, data FROM ranges WHERE rowid = ({AROUND})"
                    " AND first + size >= ?",
                    (number, begin, end),
                ).fetchone()
                if begin >= end or row is None:
                    continue
                first, size, checksum, used_at, data = row
                if type(data) is not bytes or len(data) != size or zlib.crc32(data) != checksum:
                    file.execute("DELETE FROM ranges WHERE object = ? AND first = ?", (number, first))
                    continue
                kept[index] = memoryview(data)[begin - first : end - first]
                if used_at + USED_TIME < now:
                    used.append((now, number, first, size))
            file.executemany("UPDATE ranges SET used = ? WHERE object = ? AND first = ? AND size = ?", used)
        return known, kept

    def _keep(self, responses: Sequence[tuple[Request, Part | None]]) -> None:
        wanted = [
            (key, byte_range, part)
            for (key, byte_range), part in responses
            if part is not None
            and part.version is not None
            and 0 < len(part.data) <= self.limit_size * LARGEST_SHARE
        ]
        if not wanted:
            return
        now = int(time.time())
        with self._opened() as file:
            if file is None:
                return
            for key, byte_range, part in wanted:
                whole = (self._place, key, part.version, part.total_size)
                others = "place = ? AND key = ? AND NOT (version = ? AND total = ?)"
                file.execute(
                    f"DELETE FROM ranges WHERE object IN (SELECT id FROM objects WHERE {others})", whole
                )
                file.execute(f"DELETE FROM objects WHERE {others}", whole)
                file.execute(
                    "INSERT OR IGNORE INTO objects (place, key, version, total) VALUES (?, ?, ?, ?)", whole
                )
                begin, end = (byte_range or ByteRange(0)).resolve(part.total_size)
                data = bytes(part.data)
                if len(data) != end - begin:
                    continue
                [number] = file.execute(
                    "SELECT id FROM objects WHERE place = ? AND key = ? AND version = ? AND total = ?", whole
                ).fetchone()
                around = f"SELECT 1 FROM ranges WHERE rowid = ({AROUND}) AND first + size >= ?"
                if file.execute(around, (number, begin, end)).fetchone() is None:
                    file.execute(
                        "DELETE FROM ranges WHERE object = ? AND first BETWEEN ? AND ? AND first + size <= ?",
                        (number, begin, end, end),
                    )
                    file.execute(
                        "INSERT INTO ranges VALUES (?, ?, ?, ?, ?, ?)",
                        (number, begin, len(data), zlib.crc32(data), now, data),
                    )
            self._make_room(file)

    def _make_room(self, file: sqlite3.Connection) -> None:
        """Remove the least recently used ranges of a cache that is full."""
        [held] = file.execute("SELECT size FROM held").fetchone()
        if held <= self.limit_size:
            return
        with closing(file.execute("SELECT rowid, size FROM ranges ORDER BY used, rowid")) as rows:
            going = []
            for row, size in rows:
                if held <= self.limit_size * LEFT_SHARE:
                    break
                going.append((row,))
                held -= size + ROW_SIZE
        file.executemany("DELETE FROM ranges WHERE rowid = ?", going)
        file.execute("DELETE FROM objects WHERE id NOT IN (SELECT object FROM ranges)")


_stores: WeakSet[CachedStore] = WeakSet()
_guard = Lock()
_forking = ExitStack()


def _before_fork() -> None:
    # SQLite notes in the process what its connections have locked, and a child would take that for its own.
    _forking.enter_context(_guard)
    for store in [*_stores]:
        _forking.enter_context(store._closed())


os.register_at_fork(before=_before_fork, after_in_parent=_forking.close, after_in_child=_forking.close)


class DiskCacheInfo(NamedTuple):
    """The content of a directory that a `CachedStore` caches in.

    stored_size  bytes of the cached values, which `limit_size` bounds
    file_size    bytes of the files on the disk
    store_count  how many stores are cached
    value_count  how many of their values
    range_count  how many ranges of these
    used         when a range was last used, in seconds since 1970; None: there is none
    """

    stored_size: int
    file_size: int
    store_count: int
    value_count: int
    range_count: int
    used: int | None


@contextmanager
def _disk_cache(directory: Path) -> Iterator[sqlite3.Connection]:
    """The file of a directory, which is there.

    Raises
        NotFoundError: the directory has no cache.
        StoreError: the file is damaged, or another process holds it.
    """
    path = directory / FILE
    if not path.is_file():
        raise NotFoundError(f"no cache of zstore's there; expected a file {FILE!r}", path=str(directory))
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=WAITING_TIME, uri=True)) as file:
            yield file
    except sqlite3.Error as error:
        raise StoreError(f"cache {str(path)!r} cannot be used: {error}") from error


def disk_cache_info(directory: str | os.PathLike[str]) -> DiskCacheInfo:
    """The sizes and counts of the values that a `CachedStore` has cached in a directory.

    Raises
        NotFoundError: the directory has no cache.
        StoreError: the file is damaged, or another process holds it.
    """
    place = Path(directory).expanduser().absolute()
    with _disk_cache(place) as file:
        [stored_size] = file.execute("SELECT size FROM held").fetchone()
        stores, values = file.execute("SELECT COUNT(DISTINCT place), COUNT(*) FROM objects").fetchone()
        ranges, used = file.execute("SELECT COUNT(*), MAX(used) FROM ranges").fetchone()
        file_size = sum(path.stat().st_size for path in place.glob(f"{FILE}*"))
    return DiskCacheInfo(stored_size, file_size, stores, values, ranges, used)


def clear_disk_cache(directory: str | os.PathLike[str]) -> None:
    """Remove all values that are cached in a directory; processes that use the cache go on.

    Raises
        NotFoundError: the directory has no cache.
        StoreError: the file is damaged, or another process holds it.
    """
    with _disk_cache(Path(directory).expanduser().absolute()) as file:
        with file:
            file.execute("DELETE FROM ranges")
            file.execute("DELETE FROM objects")
        file.execute("VACUUM")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _endpoints(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The storage options and environment variables by which one URL can lead to different servers."""
    for variable in VARIABLES:
        if os.environ.get(variable):
            yield variable, os.environ[variable]
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _endpoints(value)
        elif isinstance(value, str) and any(word in name.lower() for word in ENDPOINTS):
            yield name, value

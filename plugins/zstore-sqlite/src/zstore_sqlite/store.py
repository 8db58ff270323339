"""A store in one SQLite file: a table of keys and values."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from zstore.errors import StoreError
from zstore.plugin.stores import (
    ByteRange,
    Changes,
    Store,
    check_key,
    check_prefix,
    failing,
    hold_key,
    is_durable,
    make_directory,
)

__all__ = ["SqliteStore"]

TABLE = "CREATE TABLE IF NOT EXISTS zstore (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
# "0" is the character after "/": the keys below "a/b" are those from "a/b/" up to "a/b0", in the order of
# their bytes, which is SQLite's.
BELOW = "key >= :prefix || '/' AND key < :prefix || '0'"
PUT = "REPLACE INTO zstore VALUES (?, ?)"
DELETE = "DELETE FROM zstore WHERE key = ?"
IS_VALUE = "SELECT 1 FROM zstore WHERE key = ? AND value = ?"
PAGE = 1000
CHANGES = ("write", "delete")
# Seconds before a file that others open or close is asked for again.
PAUSE = 0.01
# What SQLite's file for readers takes beside a database.
ROOM = 32 << 10
FAILURES = (sqlite3.Error, OverflowError, UnicodeEncodeError, OSError)
T = TypeVar("T")
Act = Callable[[sqlite3.Connection], T]


class SqliteStore(Store):
    """A store in the SQLite file `path`, with a connection for each thread of each process.

    The first `put` makes a file that does not exist; reading never makes one. With `durable`, every `put` and
    `delete` survives a power cut; without, a power cut may undo the last ones, but never damages the file.
    Where nothing may be written beside the file, it can be read all the same.
    """

    removes_whole = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        timeout: float = 60.0,
        durable: bool | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self.read_only = read_only
        self.timeout = timeout
        self.durable = is_durable() if durable is None else durable
        self._connections = _Connections()

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> SqliteStore:
        """The store at "sqlite:////absolute/path.db" or "sqlite:///relative/path.db"."""
        parts = urlsplit(url)
        options = dict(storage_options or {})
        unknown = sorted(set(options) - {"timeout", "durable"})
        if unknown:
            raise StoreError(f"unknown storage options {unknown}; expected 'timeout', 'durable'", path=url)
        if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
            raise StoreError("expected sqlite:////absolute/path.db or sqlite:///relative/path.db", path=url)
        return cls(unquote(parts.path[1:]), read_only=read_only, **options)

    @property
    def url(self) -> str:
        """ "sqlite:////absolute/path.db"."""
        return f"sqlite:///{quote(str(self.path))}"

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """The value, or those bytes of it; None when there is no such key."""
        check_key(key)
        if byte_range is None:
            row = self._row("SELECT value FROM zstore WHERE key = ?", (key,), key)
        else:
            start, size = byte_range
            # The last -start bytes of a value that is shorter are all of it.
            begin = ":start" if start >= 0 else "max(0, length(value) + :start)"
            count = "length(value)" if size is None else ":size"
            # substr of an empty BLOB is NULL.
            part = f"coalesce(substr(value, {begin} + 1, {count}), x'')"
            query = f"SELECT {part} FROM zstore WHERE key = :key"
            row = self._row(query, {"key": key, "start": start, "size": size}, key)
        return None if row is None else bytes(row[0])

    def size(self, key: str) -> int | None:
        """How many bytes the value has; None when there is no such key."""
        row = self._row("SELECT length(value) FROM zstore WHERE key = ?", (check_key(key),), key)
        return None if row is None else int(row[0])

    def swap(self, changes: Changes) -> bool:
        for key in changes:
            check_key(key)
            self.check_writable(key)
        if not changes:
            return True

        def act(connection: sqlite3.Connection) -> bool:
            connection.execute("BEGIN IMMEDIATE")
            try:
                is_done = all(self._is(connection, key, old) for key, (old, _) in changes.items())
                for key, (_, new) in changes.items() if is_done else ():
                    if new is None:
                        connection.execute(DELETE, (key,))
                    elif new is not ...:
                        connection.execute(PUT, (key, bytes(new)))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return is_done

        return self._run("write", next(iter(changes)), act) is True

    @staticmethod
    def _is(connection: sqlite3.Connection, key: str, old: Any) -> bool:
        """Whether a value is that one (None: no value; ...: any)."""
        if old is ...:
            return True
        if old is None:
            return connection.execute("SELECT 1 FROM zstore WHERE key = ?", (key,)).fetchone() is None
        return connection.execute(IS_VALUE, (key, old)).fetchone() is not None

    def check_missing(self, keys: Sequence[str]) -> None:
        """As `Store.check_missing`: the file is there."""
        if not self.path.exists():
            raise StoreError(
                "the database is gone; expected its file, on a disk that is mounted",
                path=self.url,
                key=keys[0],
            )

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`, in one transaction."""
        self._insert("REPLACE", key, value)

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """As `Store.put_new`, in one transaction: no lock is needed."""
        if not self._insert("INSERT OR IGNORE", key, value):
            raise self._taken(key)

    def _insert(self, verb: str, key: str, value: bytes | bytearray | memoryview) -> int:
        check_key(key)
        self.check_writable(key)
        query = f"{verb} INTO zstore VALUES (?, ?)"

        def insert(connection: sqlite3.Connection) -> int:
            return connection.execute(query, (key, bytes(value))).rowcount

        return self._run("write", key, insert) or 0

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        check_key(key)
        self.check_writable(key)
        self._run("delete", key, lambda connection: connection.execute(DELETE, (key,)))

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`, in one transaction."""
        check_prefix(prefix)
        self.check_writable(prefix)
        query = f"DELETE FROM zstore WHERE {BELOW}" if prefix else "DELETE FROM zstore"
        values = {"prefix": prefix} if prefix else {}
        self._run("delete", prefix, lambda connection: connection.execute(query, values))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, read page by page in order of keys."""
        check_prefix(prefix)
        return self._pages(prefix)

    def _pages(self, prefix: str) -> Iterator[str]:
        where = f"{BELOW} AND" if prefix else ""
        query = f"SELECT key FROM zstore WHERE {where} key > :last ORDER BY key LIMIT {PAGE}"
        values = {"prefix": prefix, "last": ""} if prefix else {"last": ""}

        def page(connection: sqlite3.Connection) -> list[str]:
            return [row[0] for row in connection.execute(query, values)]

        while keys := self._run("list", prefix, page):
            yield from keys
            if len(keys) < PAGE:
                return
            values["last"] = keys[-1]

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        with self._connections.closed():
            pass

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connections": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connections = _Connections()

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude every thread and process that locks the same key, by a lock on `path` with "-lock" added.

        A lock on the database itself would not do: closing its descriptor would release SQLite's own locks.
        """
        check_key(key)
        self.check_writable(key)
        with ExitStack() as stack:
            with failing("lock", self.url, key, FAILURES):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(hold_key(f"{self.path}-lock", key))
            yield

    def as_read_only(self) -> SqliteStore:
        """The same file, refusing writes."""
        return SqliteStore(self.path, read_only=True, timeout=self.timeout, durable=self.durable)

    def as_durable(self) -> SqliteStore:
        """The same file, whose transactions the disk confirms (`PRAGMA synchronous = FULL`)."""
        return SqliteStore(self.path, read_only=self.read_only, timeout=self.timeout, durable=True)

    def _row(self, query: str, values: Any, key: str) -> tuple[Any, ...] | None:
        def fetch(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
            row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
            return row

        return self._run("read", key, fetch)

    def _run(self, action: str, key: str, act: Act[T]) -> T | None:
        """The result of `act` on this thread's connection; None where there is no file, and none is made."""
        with failing(action, self.url, key, FAILURES), self._connections.own() as own:
            while True:
                if action in CHANGES and not own.is_writable:
                    own.close()
                if own.connection is None:
                    if action != "write" and not self.path.exists():
                        return None
                    self._connect(own, action)
                assert own.connection is not None
                if own.state is None:
                    return act(own.connection)
                try:
                    result = act(own.connection)
                    if own.state == self._state():
                        return result
                except sqlite3.DatabaseError:
                    if own.state == self._state():
                        raise
                own.close()  # it was read while others wrote it

    def _state(self) -> tuple[object, ...] | None:
        """What tells a file that nobody may be writing from itself after a change; None if somebody may."""
        # Where SQLite keeps what it has not put into the file yet.
        with suppress(FileNotFoundError):
            if self.path.with_name(f"{self.path.name}-wal").stat().st_size:
                return None
        status = self.path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _takes_files(self) -> bool:
        """Whether the file's folder may be written, and has room."""
        place = self.path.parent
        if not os.access(place, os.W_OK):
            return False
        found = os.statvfs(place)
        return found.f_bavail * found.f_frsize >= ROOM

    def _connect(self, own: _Own, action: str) -> None:
        if action == "write":
            make_directory(str(self.path.parent), durable=self.durable)
        # SQLite makes files beside its own for readers, too, unless it is told that nobody writes.
        is_open = action in CHANGES or self._takes_files()
        own.is_writable = is_open and not self.read_only
        own.state = None if is_open else self._state()
        mode = "ro" if not own.is_writable else "rwc" if action == "write" else "rw"
        immutable = "" if own.state is None else "&immutable=1"
        own.connection = connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}{immutable}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,  # so that close() can close connections of other threads
        )
        if not own.is_writable:
            return
        try:
            self._begin_log(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'NORMAL'}")
            connection.execute(TABLE)
        except BaseException:
            own.close()
            raise

    def _begin_log(self, connection: sqlite3.Connection) -> None:
        """Have changes logged, for which SQLite itself does not wait while others open or close the file."""
        last = time.monotonic() + self.timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                    raise
            time.sleep(PAUSE)


class _Own:
    """The connection of one thread, if it has one; `lock` is held while it is used.

    state  of a file that is read as if nobody writes it
    """

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.is_writable = False
        self.state: tuple[object, ...] | None = None
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None

    def close(self) -> None:
        connection, self.connection, self.state = self.connection, None, None
        if connection is not None:
            connection.close()


class _Connections:
    """The connections of one store, one for each thread.

    None is open while the process forks. SQLite notes in the process what its connections have locked, and a
    child would take that for its own: a parent that closes the last one would remove what the child writes.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._local = threading.local()
        self._all: list[_Own] = []
        with _guard:
            _stores.add(self)

    def __del__(self) -> None:
        for own in self._all:
            own.close()

    @contextmanager
    def own(self) -> Iterator[_Own]:
        """This thread's connection, while it is used."""
        own: _Own | None = getattr(self._local, "own", None)
        if own is None:
            own = _Own()
            with self._guard:
                # Threads that have ended leave their connections behind.
                for old in [old for old in self._all if not old.thread.is_alive()]:
                    self._all.remove(old)
                    old.close()
                self._all.append(own)
            self._local.own = own
        with own.lock:
            yield own

    @contextmanager
    def closed(self) -> Iterator[None]:
        """A context in which none is open; afterwards the next use opens new ones."""
        with self._guard, ExitStack() as held:
            for own in self._all:
                held.enter_context(own.lock)
                own.close()
            yield


_stores: weakref.WeakSet[_Connections] = weakref.WeakSet()
_guard = threading.Lock()
_forking = ExitStack()


def _before_fork() -> None:
    _forking.enter_context(_guard)
    for connections in [*_stores]:
        _forking.enter_context(connections.closed())


os.register_at_fork(before=_before_fork, after_in_parent=_forking.close, after_in_child=_forking.close)

"""A store in one SQLite file: a table of keys and values."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
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
FAILURES = (sqlite3.Error, OverflowError, UnicodeEncodeError, OSError)


class SqliteStore(Store):
    """A store in the SQLite file `path`, with a connection for each thread of each process.

    The first `put` makes a file that does not exist; reading never makes one. With `durable`, every `put` and
    `delete` survives a power cut; without, a power cut may undo the last ones, but never damages the file.
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
        with failing("write", self.url, next(iter(changes)), FAILURES):
            connection = self._connection(make=True)
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
        with failing("write", self.url, key, FAILURES):
            query = f"{verb} INTO zstore VALUES (?, ?)"
            return self._connection(make=True).execute(query, (key, bytes(value))).rowcount

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        check_key(key)
        self.check_writable(key)
        if self._exists():
            with failing("delete", self.url, key, FAILURES):
                self._connection().execute(DELETE, (key,))

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`, in one transaction."""
        check_prefix(prefix)
        self.check_writable(prefix)
        if self._exists():
            where = f"WHERE {BELOW}" if prefix else ""
            with failing("delete", self.url, prefix, FAILURES):
                self._connection().execute(
                    f"DELETE FROM zstore {where}", {"prefix": prefix} if prefix else {}
                )

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, read page by page in order of keys."""
        check_prefix(prefix)
        return self._pages(prefix)

    def _pages(self, prefix: str) -> Iterator[str]:
        where = f"{BELOW} AND" if prefix else ""
        query = f"SELECT key FROM zstore WHERE {where} key > :last ORDER BY key LIMIT {PAGE}"
        last = ""
        while self._exists():
            values = {"prefix": prefix, "last": last} if prefix else {"last": last}
            with failing("list", self.url, prefix, FAILURES):
                keys = [row[0] for row in self._connection().execute(query, values)]
            yield from keys
            if len(keys) < PAGE:
                return
            last = keys[-1]

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        self._connections.close()

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
        if not self._exists():
            return None
        with failing("read", self.url, key, FAILURES):
            row: tuple[Any, ...] | None = self._connection().execute(query, values).fetchone()
            return row

    def _exists(self) -> bool:
        return self._connections.has_own() or self.path.exists()

    def _connection(self, *, make: bool = False) -> sqlite3.Connection:
        return self._connections.own(lambda: self._connect(make))

    def _connect(self, make: bool) -> sqlite3.Connection:
        if make:
            make_directory(str(self.path.parent), durable=self.durable)
        mode = "ro" if self.read_only else "rwc" if make else "rw"
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,  # so that close() can close connections of other threads
        )
        if not self.read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'NORMAL'}")
            connection.execute(TABLE)
        return connection


class _Connections:
    """The connections of one store, one for each thread; a forked child opens its own, as SQLite demands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._local = threading.local()
        self._all: dict[sqlite3.Connection, threading.Thread] = {}
        # The parent process's connections, kept but not used: closing them would release the parent's locks.
        self._foreign: list[object] = []

    def __del__(self) -> None:
        # A child must not close its parent's connections.
        if self._process == os.getpid():
            for connection in self._all:
                connection.close()

    def has_own(self) -> bool:
        return self._process == os.getpid() and hasattr(self._local, "connection")

    def own(self, connect: Any) -> sqlite3.Connection:
        if not self.has_own():
            self._forget_parent()
            connection = connect()
            with self._lock:
                # Threads that have ended leave their connections behind.
                for old, thread in [*self._all.items()]:
                    if not thread.is_alive():
                        self._all.pop(old).join()
                        old.close()
                self._all[connection] = threading.current_thread()
            self._local.connection = connection
        found: sqlite3.Connection = self._local.connection
        return found

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            self._foreign.append((self._all, self._local))
            self._lock, self._local, self._all = threading.Lock(), threading.local(), {}
            self._process = os.getpid()

    def close(self) -> None:
        self._forget_parent()
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()
            self._local = threading.local()

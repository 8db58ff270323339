"""A store in a DBM file, through the `dbm` modules of the standard library."""

from __future__ import annotations

import atexit
import dbm
import errno
import fcntl
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from zstore.errors import StoreError
from zstore.plugin.stores import ByteRange, Store, check_key, check_prefix, failing, hold_name

__all__ = ["DbmStore"]

T = TypeVar("T")
KINDS = ("gnu", "ndbm", "sqlite3", "dumb")
# What the names of a database's files end in.
SUFFIXES = ("", ".db", ".pag", ".dat")
# Connections of this kind belong to the thread that made them, so the database is opened for every call.
OPENED_PER_CALL = "dbm.sqlite3"
FAILURES = (*dbm.error, OSError, ValueError, SyntaxError)


class DbmStore(Store):
    """A store in the DBM file at `path`, of the kind that the file has; a new one is of the kind `kind`.

    DBM files are not made for several users. Threads take turns; of processes, one may write, or several
    may read. The first use locks the file `path` with ".lock" added, for writing or for reading, until
    `close`: other processes get StoreError meanwhile. dbm.dumb keeps its index in memory until `flush` or
    `close`: a process that is killed before that leaves the database as it was, or damaged. The other kinds
    are changed in place, without a journal: a power cut may damage them.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, kind: str | None = None
    ) -> None:
        if kind is not None and kind not in KINDS:
            raise StoreError(f"unknown kind {kind!r} of DBM; expected one of {KINDS}", path=os.fspath(path))
        self.path = Path(path).absolute()
        self.read_only = read_only
        self.kind = kind
        self._database = _Database.shared(self)

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> DbmStore:
        """The store at "dbm:///path"; the only storage option is `kind`."""
        parts = urlsplit(url)
        options = dict(storage_options or {})
        if unknown := sorted(set(options) - {"kind"}):
            raise StoreError(f"unknown storage options {unknown}; expected 'kind'", path=url)
        if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
            raise StoreError("expected dbm:///path, with '?' and '#' written as %3F and %23", path=url)
        return cls(os.fsdecode(unquote_to_bytes(parts.path)), read_only=read_only, **options)

    @property
    def url(self) -> str:
        """ "dbm:///path"."""
        return "dbm" + self.path.as_uri().removeprefix("file")

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it, for which all of it is read; None when there is no such key."""
        name = self._name(key)
        value: bytes | None = self._act("read", key, lambda database: database.get(name))
        if value is None or byte_range is None:
            return value
        begin, end = byte_range.resolve(len(value))
        return memoryview(value)[begin:end]

    def check_missing(self, keys: Sequence[str]) -> None:
        """As `Store.check_missing`: the database is there."""
        if self._act("read", keys[0], lambda _: True) is None:
            raise StoreError(
                "the database is gone; expected its file, on a disk that is mounted",
                path=self.url,
                key=keys[0],
            )

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`."""
        name, data = self._name(key), bytes(value)
        self.check_writable(key)
        self._act("write", key, lambda database: database.__setitem__(name, data), write=True, make=True)

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        name = self._name(key)
        self.check_writable(key)

        def remove(database: Any) -> None:
            with suppress(KeyError):
                del database[name]

        self._act("delete", key, remove, write=True)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, for which all keys of the database are read."""
        start = self._name(prefix) + b"/" if check_prefix(prefix) else b""
        keys = self._act("list", prefix, lambda database: [*database.keys()]) or []
        with failing("list", self.url, prefix, FAILURES):
            return iter([key.decode() for key in keys if key.startswith(start)])

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude the other threads that lock the same key, and every other process altogether."""
        check_key(key)
        self.check_writable(key)
        self._act("lock", key, lambda database: None, write=True, make=True)
        return hold_name((str(self.path), key))

    def flush(self) -> None:
        """Write the index that dbm.dumb keeps in memory."""
        self.close()

    def close(self) -> None:
        """Close the database and release its lock; the next use opens it again."""
        with failing("close", self.url, "", FAILURES):
            self._database.close()

    def as_durable(self) -> DbmStore:
        """Raises StoreError: DBM files are changed in place, and a power cut may damage a whole file."""
        raise StoreError(
            "a DBM file cannot be durable: it is changed in place; expected a directory, SQLite or LMDB",
            path=self.url,
        )

    def as_read_only(self) -> DbmStore:
        """The same database, refusing writes."""
        return DbmStore(self.path, read_only=True, kind=self.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that unpickles the store needs the file to be written and unlocked.
        self.close()
        return _reopen, (self.path, self.read_only, self.kind)

    def _name(self, key: str) -> bytes:
        check_key(key)
        with failing("name", self.url, key, FAILURES):
            return key.encode()

    def _act(
        self, action: str, key: str, act: Callable[[Any], T], *, write: bool = False, make: bool = False
    ) -> T | None:
        """The result of `act` on the open database; None where there is no database and `make` is false."""
        with failing(action, self.url, key, FAILURES):
            return self._database.act(act, self.kind, write=write, make=make)


class _Database:
    """A database as all stores of this process share it: open or closed, locked against other processes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.guard = threading.RLock()
        self._open: Any = None
        self._lock: int | None = None
        self._is_writer = False

    @staticmethod
    def shared(store: DbmStore) -> _Database:
        """The database at a store's path."""
        path = os.path.realpath(store.path)
        with _databases_guard:
            found = _databases.get(path)
            if found is None:
                found = _databases[path] = _Database(path)
            return found

    def act(self, act: Callable[[Any], T], kind: str | None, *, write: bool, make: bool) -> T | None:
        """The result of `act` on the database; see `DbmStore._act`."""
        with self.guard:
            if write and not self._is_writer:
                self.close()
            module = self._kind(kind, make) if self._open is None else None
            if self._open is None:
                if module is None:
                    return None
                self._take_lock(write)
                opened = importlib.import_module(module).open(self.path, "c" if write else "r", 0o666)
                if module == OPENED_PER_CALL:
                    with opened:
                        return act(opened)
                self._open = opened
            return act(self._open)

    def _kind(self, kind: str | None, make: bool) -> str | None:
        found = dbm.whichdb(self.path)
        wanted = f"dbm.{kind}" if kind else None
        if found == "":
            raise StoreError("cannot open: not a DBM file of a known kind")
        if found is not None and wanted is not None and found != wanted:
            raise StoreError(f"cannot open: the database is {found}, expected {wanted}")
        if found is None:
            self._check_missing()
        if found is not None or not make:
            return found
        os.makedirs(os.path.dirname(self.path), exist_ok=True)  # noqa: PTH103, PTH120
        return wanted or _first_kind()

    def _check_missing(self) -> None:
        """Raise OSError where a file exists but cannot be opened: `whichdb` takes it for missing."""
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.close(os.open(f"{self.path}{suffix}", os.O_RDONLY | os.O_CLOEXEC))

    def _take_lock(self, write: bool) -> None:
        if self._lock is not None:
            return  # held already: a writer's lock, or a reader's for another read
        try:
            flags = os.O_RDWR if write else os.O_RDONLY
            descriptor = os.open(f"{self.path}.lock", flags | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if write or error.errno not in (errno.EACCES, errno.EROFS):
                raise
            return  # reading from a directory that this process cannot write to
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if write else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StoreError(
                "cannot open: another process has the database open; expected one writer, or only readers"
            ) from error
        self._lock, self._is_writer = descriptor, write

    def close(self) -> None:
        """Close the database and release its lock."""
        with self.guard:
            database, self._open = self._open, None
            descriptor, self._lock = self._lock, None
            self._is_writer = False
            try:
                if database is not None:
                    database.close()
            finally:
                if descriptor is not None:
                    os.close(descriptor)

    def __del__(self) -> None:
        self.close()


_databases: weakref.WeakValueDictionary[str, _Database] = weakref.WeakValueDictionary()
_databases_guard = threading.Lock()
_forking: list[_Database] = []


def _first_kind() -> str:
    for kind in KINDS:
        with suppress(ImportError):
            importlib.import_module(f"dbm.{kind}")
            return f"dbm.{kind}"
    raise AssertionError("dbm.dumb is always there")


def _reopen(path: Path, read_only: bool, kind: str | None) -> DbmStore:
    return DbmStore(path, read_only=read_only, kind=kind)


def _close_all() -> None:
    with ExitStack() as stack:
        for database in [*_databases.values()]:
            stack.callback(database.close)


def _before_fork() -> None:
    # Both processes would share an open database; so each opens its own, and the second one is refused.
    _databases_guard.acquire()
    _forking[:] = _databases.values()
    for database in _forking:
        database.guard.acquire()
        database.close()


def _after_fork() -> None:
    for database in _forking:
        database.guard.release()
    _forking.clear()
    _databases_guard.release()


atexit.register(_close_all)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

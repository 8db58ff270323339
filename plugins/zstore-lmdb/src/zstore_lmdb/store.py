"""A store in an LMDB environment: a memory-mapped tree of keys and values in one directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import lmdb

from zstore.errors import StoreError
from zstore.plugin.stores import (
    BatchStore,
    Changes,
    Names,
    Part,
    Parts,
    Request,
    check_key,
    check_prefix,
    failing,
    hold_key,
    is_durable,
    make_directory,
)
from zstore_lmdb.environment import Environment, open_environment

__all__ = ["LmdbStore"]

T = TypeVar("T")
PAGE = 1000
OPTIONS = {"map_size", "durable"}
DATA = "data.mdb"
LOCKS = "zstore-lock"
FAILURES = (lmdb.Error, OSError, UnicodeError, OverflowError)


class LmdbStore(BatchStore):
    """A store in the LMDB environment in the directory `path`, with the layout of zarr-python 2.

    Every `put` and `delete` is a transaction, which survives a crash of the process; `durable=True` has the
    disk confirm each, to survive a power cut too. `map_size` is where the map begins; it doubles when it is
    full. A directory that does not exist is made by the first `put`.
    """

    removes_whole = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        map_size: int = 1 << 30,
        durable: bool | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self.read_only = read_only
        self.map_size = map_size
        self.durable = is_durable() if durable is None else durable
        self._environment: Environment | None = None

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> LmdbStore:
        """The store at "lmdb:///path"; storage options are `map_size` and `durable`."""
        parts = urlsplit(url)
        options = dict(storage_options or {})
        if unknown := sorted(set(options) - OPTIONS):
            raise StoreError(f"unknown storage options {unknown}; expected {sorted(OPTIONS)}", path=url)
        if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
            raise StoreError("expected lmdb:///path, with '?' and '#' written as %3F and %23", path=url)
        return cls(os.fsdecode(unquote_to_bytes(parts.path)), read_only=read_only, **options)

    @property
    def url(self) -> str:
        """ "lmdb:///path"."""
        return "lmdb" + self.path.as_uri().removeprefix("file")

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the values' sizes."""
        names = [self._name(key) for key, _ in requests]

        def read(transaction: lmdb.Transaction) -> Parts:
            parts: Parts = []
            for name, (_, byte_range) in zip(names, requests, strict=True):
                value = transaction.get(name)
                if value is None:
                    parts.append(None)
                    continue
                begin, end = byte_range.resolve(len(value)) if byte_range else (0, len(value))
                # The map may change as soon as the transaction has ended.
                parts.append(Part(bytes(value[begin:end]), len(value)))
            return parts

        found = self._run("read", requests[0][0] if requests else "", read)
        return [None] * len(requests) if found is None else found

    def swap(self, changes: Changes) -> bool:
        """As `Store.swap`, in one transaction."""
        named = [(self._name(key), old, new) for key, (old, new) in changes.items()]
        for key in changes:
            self.check_writable(key)
        if not changes:
            return True

        def act(transaction: lmdb.Transaction) -> bool:
            if not all(old is ... or transaction.get(name) == old for name, old, _ in named):
                return False
            for name, _, new in named:
                if new is None:
                    transaction.delete(name)
                elif new is not ...:
                    transaction.put(name, new)
            return True

        return bool(self._run("write", next(iter(changes)), act, write=True, make=True))

    def check_missing(self, keys: Sequence[str]) -> None:
        """As `Store.check_missing`: the environment's file is there."""
        if not (self.path / DATA).exists():
            raise StoreError(
                "the database is gone; expected its file, on a disk that is mounted",
                path=self.url,
                key=keys[0],
            )

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` under `key`, in one transaction; LMDB takes keys of 511 bytes at most."""
        self._put(key, value)

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """As `Store.put_new`, in one transaction: no lock is needed."""
        if not self._put(key, value, overwrite=False):
            raise self._taken(key)

    def _put(self, key: str, value: bytes | bytearray | memoryview, *, overwrite: bool = True) -> bool | None:
        name, data = self._name(key), bytes(value)
        self.check_writable(key)

        def put(transaction: lmdb.Transaction) -> bool:
            return transaction.put(name, data, overwrite=overwrite)

        return self._run("write", key, put, write=True, make=True)

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        name = self._name(key)
        self.check_writable(key)
        self._run("delete", key, lambda transaction: transaction.delete(name), write=True)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`, in one transaction."""
        start = self._start(prefix)
        self.check_writable(prefix)

        def remove(transaction: lmdb.Transaction) -> None:
            with transaction.cursor() as cursor:
                more = cursor.set_range(start) if start else cursor.first()
                while more and bytes(cursor.key()).startswith(start):
                    more = cursor.delete()

        self._run("delete", prefix, remove, write=True)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, read page by page in order of keys."""
        return self._pages(self._start(prefix), prefix)

    def _pages(self, start: bytes, prefix: str) -> Iterator[str]:
        place = start

        def page(transaction: lmdb.Transaction) -> list[bytes]:
            found: list[bytes] = []
            with transaction.cursor() as cursor:
                more = cursor.set_range(place) if place else cursor.first()
                while more and len(found) < PAGE and (name := bytes(cursor.key())).startswith(start):
                    found.append(name)
                    more = cursor.next()
            return found

        while names := self._run("list", prefix, page):
            yield from map(bytes.decode, names)
            place = names[-1] + b"\0"

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`, found without looking at what lies below them."""
        start = self._start(prefix)

        def step(transaction: lmdb.Transaction) -> set[bytes]:
            found: set[bytes] = set()
            with transaction.cursor() as cursor:
                more = cursor.set_range(start) if start else cursor.first()
                while more and (name := bytes(cursor.key())).startswith(start):
                    child, slash, _ = name[len(start) :].partition(b"/")
                    found.add(child)
                    # "0" is the byte after "/".
                    more = cursor.set_range(start + child + b"0") if slash else cursor.next()
            return found

        return sorted(map(bytes.decode, self._run("list", prefix, step) or ()))

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude every thread and process that locks the same key, by a file of its own in the directory."""
        check_key(key)
        self.check_writable(key)
        with ExitStack() as stack:
            with failing("lock", self.url, key, FAILURES):
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(hold_key(self.path / LOCKS, key))
            yield

    def close(self) -> None:
        """Release the environment, which closes when no store of this process uses it any more."""
        self._environment = None

    def as_read_only(self) -> LmdbStore:
        """The same environment, refusing writes."""
        return LmdbStore(self.path, read_only=True, map_size=self.map_size, durable=self.durable)

    def as_durable(self) -> LmdbStore:
        """The same environment, whose transactions the disk confirms."""
        return LmdbStore(self.path, read_only=self.read_only, map_size=self.map_size, durable=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environment": None}

    def _run(
        self,
        action: str,
        key: str,
        act: Callable[[lmdb.Transaction], T],
        *,
        write: bool = False,
        make: bool = False,
    ) -> T | None:
        """The result of `act` in a transaction; None where there is no environment and `make` is false."""
        with failing(action, self.url, key, FAILURES):
            environment = self._environment
            if environment is None or environment.is_lost:
                if make:
                    make_directory(str(self.path), durable=self.durable)
                elif not (self.path / DATA).exists():
                    return None
                environment = open_environment(str(self.path), map_size=self.map_size, durable=self.durable)
                self._environment = environment
            return environment.run(act, write=write, durable=self.durable)

    def _name(self, key: str) -> bytes:
        check_key(key)
        with failing("name", self.url, key, FAILURES):
            return key.encode()

    def _start(self, prefix: str) -> bytes:
        return self._name(prefix) + b"/" if check_prefix(prefix) else b""

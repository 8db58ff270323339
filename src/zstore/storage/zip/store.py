"""A store in a zip file: each value is the member of that name."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from zstore.base.byterange import ByteRange
from zstore.base.limits import is_durable
from zstore.base.once import look_up
from zstore.errors import StoreError
from zstore.storage.base import (
    BatchStore,
    Changes,
    Entry,
    Names,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    check_key,
    check_prefix,
    hold_name,
)
from zstore.storage.url import SCHEME, open_store
from zstore.storage.zip.archive import Archive, open_archive
from zstore.storage.zip.members import MAX16, Directory, read_members
from zstore.storage.zip.sources import FileSource, ObjectSource, StoreSource, ZipSource

OPTIONS = {"deflate", "durable"}


class ZipStore(BatchStore):
    """The members of the zip file at `path`, which the first flush creates.

    Instead of a path, an open file can be given, or a value of another store (`ZipStore.within`): both are
    read-only, and read by ranges.

    Values are appended to a file beside the zip file, and all stores of this process see them. That file
    replaces the zip file when `flush` or `close` is called, the last store is collected, or the process ends;
    until then, and after a crash, others see the zip file as it was. Only one process can write at a time;
    others get an error. Members that were replaced or deleted take no space.

    Values are not compressed unless `deflate` is set: codecs have compressed chunks already, and ranges of an
    uncompressed member can be read alone. Both kinds are read. The checksum of a member that is read whole is
    verified.
    """

    is_bounded = False
    removes_whole = True

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO | ZipSource,
        *,
        read_only: bool = False,
        deflate: bool = False,
        durable: bool | None = None,
    ) -> None:
        self.deflate = deflate
        self.durable = is_durable() if durable is None else durable
        self.read_only = read_only
        self._source: ZipSource | None = None
        if isinstance(path, (str, os.PathLike)):
            self._path = os.path.abspath(path)  # noqa: PTH100
            self._opened = open_archive(self._path, durable=self.durable)
            self._directory: Directory = self._opened.archive
            return
        if isinstance(path, (io.FileIO, io.BufferedReader, io.BufferedRandom)):
            name = path.name if isinstance(path.name, str) else f"file {path.name}"
            self._source = FileSource(os.dup(path.fileno()), f"zip::{name}")
        else:
            self._source = path if isinstance(path, ZipSource) else ObjectSource(path)
        self.read_only = True
        self._path = self._source.url
        self._directory = Directory(self._source)
        self.request_count = self._source.request_count

    @classmethod
    def within(cls, store: Store, key: str) -> ZipStore:
        """The store in a zip file that is a value of another store, read-only; parts are fetched when needed.

        Raises
            NotFoundError: there is no such value.
        """
        return cls(StoreSource(store, check_key(key)))

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at "zip:///path/x.zip", or at "zip::" followed by the path or URL of a zip file.

        "zip://a/b::" and a path or URL is the part of it below "a/b". Storage options are `deflate` and
        `durable` for a zip file on disk, and those of the other store for one within a store.
        """
        inner, chained, target = url.partition("::")
        prefix = unquote(inner.partition("://")[2]).strip("/")
        options = dict(storage_options or {})
        if not chained:
            parts = urlsplit(url)
            if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
                raise StoreError("expected zip:///path/x.zip or zip::TARGET", path=url)
            return cls._at(unquote(parts.path), read_only, options)
        match = SCHEME.match(target)
        scheme = match[1].lower() if match else ""
        if scheme in ("", "file", "local"):
            path = unquote(urlsplit(target).path) if scheme else target
            if not path:
                raise StoreError("expected the path or URL of a zip file after '::'", path=url)
            store = cls._at(path, read_only, options)
        else:
            address, mark, query = target.partition("?")
            place, _, key = address.rstrip("/").rpartition("/")
            if not place.strip("/:"):
                raise StoreError("expected the URL of a zip file after '::'", path=url)
            other = open_store(f"{place}{mark}{query}", read_only=True, storage_options=options or None)
            store = cls.within(other, unquote(key) if scheme in ("http", "https") else key)
        return PrefixStore(store, prefix) if prefix else store

    @classmethod
    def _at(cls, path: str, read_only: bool, options: dict[str, Any]) -> ZipStore:
        if unknown := sorted(set(options) - OPTIONS):
            raise StoreError(f"unknown storage options {unknown}; expected {sorted(OPTIONS)}", path=path)
        return cls(path, read_only=read_only, **options)

    @property
    def url(self) -> str:
        """ "zip:///path/x.zip", or "zip::" and the path or URL of the zip file."""
        return self._path if self._source else "zip" + Path(self._path).as_uri().removeprefix("file")

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        member = look_up(self._directory.members, check_key(key))
        return None if member is None else read_members([(member, byte_range)])[0]

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with sizes and versions from the zip file's directory."""
        members = [look_up(self._directory.members, check_key(key)) for key, _ in requests]
        pairs = zip(members, (byte_range for _, byte_range in requests), strict=True)
        found = iter(
            read_members([(member, byte_range) for member, byte_range in pairs if member is not None])
        )
        return [
            None if member is None else Part(next(found), member.size, member.version) for member in members
        ]

    def entry(self, key: str) -> Entry | None:
        """The value's size and, as its version, its checksum and sizes."""
        member = look_up(self._directory.members, check_key(key))
        return None if member is None else Entry(key, member.size, member.version)

    def check_missing(self, keys: Sequence[str]) -> None:
        """As `Store.check_missing`: no directory above was archived as a link, without its files."""
        members = self._directory.members
        for key in keys:
            for place, letter in enumerate(key):
                link = look_up(members, key[:place]) if letter == "/" else None
                if link is not None and link.is_link:
                    reason = f"a symbolic link was archived in the place of the directory {key[:place]!r}"
                    raise StoreError(f"cannot read: {reason}; expected its files", path=self.url, key=key)

    def swap(self, changes: Changes) -> bool:
        for key, (_, new) in changes.items():
            if new is ...:
                check_key(key)
            else:
                self._check(key)
        return not changes or self._archive().swap(changes, deflate=self.deflate)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Append `value` to the file beside the zip file, which replaces that at the next flush."""
        self._check(key)
        self._archive().put(key, value, deflate=self.deflate)

    def _check(self, key: str) -> None:
        """Check that a value can be put under a key."""
        check_key(key)
        self.check_writable(key)
        try:
            name_size = len(key.encode())
        except UnicodeEncodeError as error:
            raise StoreError(f"key cannot be a member's name: {error}", path=self.url, key=key) from error
        if name_size > MAX16:
            raise StoreError(f"key has {name_size} bytes, expected at most {MAX16}", path=self.url, key=key)

    def delete(self, key: str) -> None:
        check_key(key)
        self.check_writable(key)
        self._archive().delete([key])

    def delete_prefix(self, prefix: str) -> None:
        check_prefix(prefix)
        self.check_writable(prefix)
        self._archive().delete_below(prefix)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix` at this moment."""
        return iter(self._directory.names_below(check_prefix(prefix)))

    def list_children(self, prefix: str = "") -> Names:
        return self._directory.children(check_prefix(prefix))

    def _archive(self) -> Archive:
        assert isinstance(self._directory, Archive), "others are for reading only"
        return self._directory

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude other threads that lock the same key, and all other processes from writing."""
        check_key(key)
        self.check_writable(key)
        archive = self._archive()
        archive.begin()
        return hold_name((archive.path, key))

    def flush(self) -> None:
        """Replace the zip file by one with all changes so far."""
        if isinstance(self._directory, Archive):
            self._directory.flush()

    def close(self) -> None:
        """Flush; the store can still be used, and a file object from the caller stays open."""
        if not self.read_only:
            self.flush()

    def as_read_only(self) -> ZipStore:
        return self._with(read_only=True)

    def as_durable(self) -> ZipStore:
        """The same store, whose changes survive a power cut as soon as `flush` or `close` returns."""
        if isinstance(self._directory, Archive):
            self._directory.durable = True
        return self._with(durable=True)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._source, StoreSource):
            return ZipStore.within, (self._source.store, self._source.key)
        if self._source is not None:
            raise StoreError("a zip file that was given as an open file cannot be pickled", path=self.url)
        # So that the unpickled store has what was put.
        self.flush()
        make = partial(ZipStore, read_only=self.read_only, deflate=self.deflate, durable=self.durable)
        return make, (self._path,)

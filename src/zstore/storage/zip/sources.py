"""Where the bytes of a zip file come from: a file, an object with `read` and `seek`, a value of a store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import quote

from zstore.base.byterange import ByteRange
from zstore.base.locks import Lock
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import Part, Store

__all__ = ["FileSource", "ObjectSource", "Source", "StoreSource"]

Bytes = bytes | memoryview


class Source(ABC):
    """Some bytes that can be read from anywhere in them, by many threads at once."""

    url: str
    size: int
    request_count: int = 1
    """How many requests at once are worth making, as a store says it."""

    @abstractmethod
    def read(self, begin: int, size: int) -> Bytes:
        """Exactly `size` bytes from `begin`; StoreError where they are not there."""

    def read_many(self, wishes: Sequence[tuple[int, int]]) -> list[Bytes]:
        """`read` for many (begin, size); less where a wish reaches past the end."""
        return [self.read(begin, max(0, min(size, self.size - begin))) for begin, size in wishes]

    def read_tail(self, size: int) -> Bytes:
        """The last bytes, at most `size` of them; the source knows its own size after this."""
        size = min(size, self.size)
        return self.read(self.size - size, size)

    def _short(self, begin: int, size: int, found: int) -> StoreError:
        return StoreError(
            f"cannot read the zip file: expected {size} bytes from {begin} on, got {found}", path=self.url
        )


class FileSource(Source):
    """An open file, read with pread: without a position that threads or forked processes would share.

    The descriptor is closed when nobody refers to the source any more.
    """

    def __init__(self, descriptor: int, url: str) -> None:
        self.descriptor = descriptor
        self.url = url
        self.size = os.fstat(descriptor).st_size

    def read(self, begin: int, size: int) -> bytes:
        """Exactly `size` bytes from `begin`."""
        parts: list[bytes] = []
        found = 0
        while found < size:
            try:
                data = os.pread(self.descriptor, size - found, begin + found)
            except OSError as error:
                raise StoreError(f"cannot read the zip file: {error}", path=self.url) from error
            if not data:
                raise self._short(begin, size, found)
            parts.append(data)
            found += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __del__(self) -> None:
        os.close(self.descriptor)


class ObjectSource(Source):
    """A file-like object that can seek. It has one position, so reads take turns; it is never closed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.url = f"zip::{getattr(file, 'name', None) or type(file).__name__}"
        self._turn = Lock()
        with self._telling():
            self.size = file.seek(0, os.SEEK_END)

    def read(self, begin: int, size: int) -> bytes:
        """Exactly `size` bytes from `begin`."""
        parts: list[bytes] = []
        found = 0
        with self._turn, self._telling():
            self.file.seek(begin)
            while found < size:
                data = self.file.read(size - found)
                if not data:
                    raise self._short(begin, size, found)
                parts.append(data)
                found += len(data)
        return b"".join(parts)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except (OSError, ValueError) as error:  # ValueError is what a closed file raises
            raise StoreError(f"cannot read the zip file: {error}", path=self.url) from error


def _below(url: str, key: str) -> str:
    if not url.startswith(("http://", "https://")):
        return f"{url.rstrip('/')}/{key}"
    address, mark, query = url.partition("?")
    return f"{address.rstrip('/')}/{quote(key)}{mark}{query}"


class StoreSource(Source):
    """One value of a store, read by ranges, and compared by version where the store has any."""

    def __init__(self, store: Store, key: str) -> None:
        self.store = store
        self.key = key
        self.url = f"zip::{_below(store.url, key)}"
        self.request_count = store.request_count
        self.size = -1
        self.version: str | None = None

    def read(self, begin: int, size: int) -> Bytes:
        """Exactly `size` bytes from `begin`."""
        data = self.read_many([(begin, size)])[0]
        if len(data) != size:
            raise self._short(begin, size, len(data))
        return data

    def read_many(self, wishes: Sequence[tuple[int, int]]) -> list[Bytes]:
        """The ranges, asked for at once."""
        parts = self.store.get_parts([(self.key, ByteRange(begin, size)) for begin, size in wishes])
        found: list[Bytes] = []
        for (begin, size), part in zip(wishes, parts, strict=True):
            part = self._checked(part)
            if len(part.data) != max(0, min(size, self.size - begin)):
                raise self._short(begin, size, len(part.data))
            found.append(part.data)
        return found

    def read_tail(self, size: int) -> Bytes:
        """The last bytes, the size and the version, by one request."""
        [part] = self.store.get_parts([(self.key, ByteRange(-size))])
        if part is None:
            raise NotFoundError("there is no zip file", path=self.store.url, key=self.key)
        self.size, self.version = part.total_size, part.version
        return part.data

    def _checked(self, part: Part | None) -> Part:
        if part is None or part.total_size != self.size or part.version != self.version:
            raise StoreError(
                "the zip file was replaced or removed since it was opened; open it again", path=self.url
            )
        return part

"""Sources of a zip file's bytes: an open file, a file-like object, or a value of another store."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import BinaryIO
from urllib.parse import quote

from zstore._ext.engine.files import pread
from zstore.base.byterange import ByteRange
from zstore.base.locks import Lock
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import Store

Bytes = bytes | memoryview


class ZipSource(ABC):
    """Bytes with random access, which many threads may read at once."""

    request_count: int = 1
    """How many requests to make at once, as `Store.request_count`."""

    def __init__(self, url: str, size: int) -> None:
        self.url = url
        self.size = size
        # Where the data of a member begins, by the offset of its header; for headers that were read.
        self.begins: dict[int, int] = {}

    def read(self, begin: int, size: int) -> Bytes:
        """Exactly `size` bytes from `begin`; fewer are a StoreError."""
        try:
            data = self._read(begin, size)
        except StoreError:
            raise
        except (OSError, ValueError) as error:  # ValueError is what a closed file raises
            raise StoreError(f"cannot read the zip file: {error}", path=self.url) from error
        if len(data) != size:
            raise self._short(begin, size, len(data))
        return data

    @abstractmethod
    def _read(self, begin: int, size: int) -> Bytes:
        """The bytes of a range, fewer at the end of the source."""

    def read_tail(self, size: int) -> Bytes:
        """The last bytes, at most `size` of them; `self.size` is known after this."""
        size = min(size, self.size)
        return self.read(self.size - size, size)

    def _short(self, begin: int, size: int, found: int) -> StoreError:
        return StoreError(
            f"cannot read the zip file: expected {size} bytes from {begin} on, got {found}", path=self.url
        )


class FileSource(ZipSource):
    """An open file, read at offsets and so without a shared position; closed when the source is collected."""

    def __init__(self, descriptor: int, url: str) -> None:
        self.descriptor = descriptor
        super().__init__(url, os.fstat(descriptor).st_size)

    def _read(self, begin: int, size: int) -> bytes:
        return pread(self.descriptor, begin, size)

    def append(self, *parts: Bytes) -> None:
        """Write the parts at the end; `self.size` grows once all of them are written."""
        end, views = self.size, [memoryview(part) for part in parts if len(part)]
        while views:
            count = os.pwritev(self.descriptor, views, end)
            if not count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            end += count
            while views and count >= views[0].nbytes:
                count -= views.pop(0).nbytes
            if views:
                views[0] = views[0][count:]
        self.size = end

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)  # by a name of its own, as modules may be gone when the interpreter ends


class ObjectSource(ZipSource):
    """A file-like object that can seek; it has one position, so reads take turns. It is not closed."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(f"zip::{getattr(file, 'name', None) or type(file).__name__}", 0)
        self.file = file
        self._turn = Lock()
        try:
            self.size = file.seek(0, os.SEEK_END)
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read the zip file: {error}", path=self.url) from error

    def _read(self, begin: int, size: int) -> bytes:
        found = bytearray()
        with self._turn:
            self.file.seek(begin)
            while len(found) < size and (data := self.file.read(size - len(found))):
                if len(data) == size:
                    return data
                found += data
        return bytes(found)


class StoreSource(ZipSource):
    """One value of a store, read by ranges; an error if its size or version changes."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__(f"zip::{_below(store.url, key)}", -1)
        self.store = store
        self.key = key
        self.request_count = store.request_count
        self.version: str | None = None

    def _read(self, begin: int, size: int) -> Bytes:
        return self.read_many([(begin, size)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[Bytes]:
        """Several ranges, requested at once."""
        parts = self.store.get_parts([(self.key, ByteRange(begin, size)) for begin, size in ranges])
        found: list[Bytes] = []
        for (begin, size), part in zip(ranges, parts, strict=True):
            if part is None or part.total_size != self.size or part.version != self.version:
                raise StoreError(
                    "the zip file was replaced or removed since it was opened; open it again", path=self.url
                )
            if len(part.data) != max(0, min(size, self.size - begin)):
                raise self._short(begin, size, len(part.data))
            found.append(part.data)
        return found

    def read_tail(self, size: int) -> Bytes:
        """The last bytes; the same request tells the size and the version."""
        [part] = self.store.get_parts([(self.key, ByteRange(-size))])
        if part is None:
            raise NotFoundError("there is no zip file", path=self.store.url, key=self.key)
        self.size, self.version = part.total_size, part.version
        return part.data


def _below(url: str, key: str) -> str:
    if not url.startswith(("http://", "https://")):
        return f"{url.rstrip('/')}/{key}"
    address, mark, query = url.partition("?")
    return f"{address.rstrip('/')}/{quote(key)}{mark}{query}"

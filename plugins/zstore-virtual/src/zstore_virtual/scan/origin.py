"""The files that are scanned: local ones, and remote ones, which are read by byte ranges."""

from __future__ import annotations

import io
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import Any

from zstore.errors import NotFoundError, StoreError
from zstore.plugin.stores import ByteRange, Store
from zstore_virtual.places import Places, folder_of, open_place, settle_address

__all__ = [
    "Origin",
    "RangeFile",
    "Ranges",
    "find_addresses",
    "is_remote",
    "open_folder",
    "open_origin",
    "place_of",
]

# The first request is for this many bytes, enough for most headers and small indices; others are for blocks.
FIRST_SIZE = 512 << 10
BLOCK_SIZE = 256 << 10
# Sequential reads fetch ahead, twice as far each time, up to this many bytes.
AHEAD_SIZE = 4 << 20
# How much is held of one value, at most.
HELD_SIZE = 64 << 20


@dataclass
class Origin:
    """One file that is scanned.

    address   its absolute path or its URL
    size      in bytes
    modified  when a local file was last changed, in nanoseconds since 1970
    tag       the entity tag of a remote file, where there is one
    ranges    reads a remote file; None for a local one
    """

    address: str
    size: int
    modified: int | None = None
    tag: str | None = None
    ranges: Ranges | None = None

    def open(self) -> RangeFile | None:
        """The remote file as a file object; None for a local file."""
        return None if self.ranges is None else RangeFile(self.ranges)

    def read(self, begin: int, size: int) -> bytes:
        """`size` bytes from `begin` on, fewer where the file ends before."""
        if self.ranges is not None:
            return self.ranges.read(begin, size)
        try:
            with Path(self.address).open("rb") as file:
                file.seek(begin)
                return file.read(size)
        except OSError as error:
            raise _unreadable(self.address, error) from error


def is_remote(address: str) -> bool:
    """Whether an address is a URL, and so not a path."""
    return "://" in address


def place_of(path: str | os.PathLike[str]) -> str:
    """The URL in its settled form, or the absolute path; before a ".." is taken away, links are followed."""
    if is_remote(text := os.fspath(path)):
        return settle_address(text)
    place = Path(path).absolute()
    return str(place.parent.resolve() / place.name if ".." in place.parts else place)


@contextmanager
def open_origin(address: str, options: Mapping[str, Any] | None = None) -> Iterator[Origin]:
    """The file at an address; `options` are storage options for a URL.

    Raises
        NotFoundError: there is no such file.
        StoreError: it cannot be read, or it changes while it is scanned.
    """
    if not is_remote(address):
        place = Path(place_of(address))
        try:
            found = place.stat()
        except FileNotFoundError:
            raise NotFoundError("nothing there to scan", path=address) from None
        except (OSError, ValueError) as error:
            raise _unreadable(address, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise StoreError("cannot read: expected a plain file or a directory", path=address)
        yield Origin(str(place), found.st_size, found.st_mtime_ns)
        return
    address = settle_address(address)
    place, name = Places([folder_of(address)], None).find(address)
    with open_place(place, options) as store:
        ranges = Ranges(store, name, address)
        try:
            yield Origin(address, ranges.size, None, ranges.tag, ranges)
        except Exception as error:
            # HDF5 and GDAL do not pass on why a read failed.
            if ranges.failure is not None and ranges.failure is not error:
                raise ranges.failure from error
            raise
        if ranges.failure is not None:
            raise ranges.failure


def _unreadable(address: str, error: OSError | ValueError) -> Exception:
    """The error for a file that the system cannot read."""
    if isinstance(error, OSError) and error.errno is None:  # raised by a signal handler, not by the system
        return error
    return StoreError(f"cannot read: {getattr(error, 'strerror', error)}", path=address)


@contextmanager
def open_folder(address: str, options: Mapping[str, Any] | None = None) -> Iterator[Store]:
    """The store of everything below a URL."""
    plain, mark, query = address.partition("?")
    place, _ = Places([plain], None).find(f"{plain.rstrip('/')}/x{mark}{query}")
    with open_place(place, options) as store:
        yield store


class Ranges:
    """Reads a value in a store by blocks, which are fetched when they are needed, and held.

    size     of the value
    tag      its entity tag, where there is one
    failure  the first error that a read met

    Raises
        NotFoundError: there is no such value.
        StoreError: it cannot be read, or has changed since the first read.
    """

    def __init__(self, store: Store, name: str, address: str) -> None:
        self._store, self._name, self._address = store, name, address
        self.failure: Exception | None = None
        self._end, self._ahead = FIRST_SIZE, BLOCK_SIZE
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self.size = -1
        self.tag: str | None = None
        self._fetch([(0, FIRST_SIZE)])

    def read(self, begin: int, size: int) -> bytes:
        """`size` bytes from `begin` on, fewer where the value ends before."""
        with self._lock:
            return self._read(begin, size)

    def held(self, begin: int, size: int) -> bytes | None:
        """Bytes that were fetched before; None where they would have to be fetched."""
        with self._lock:
            numbers = range(begin // BLOCK_SIZE, (begin + size - 1) // BLOCK_SIZE + 1)
            is_held = begin + size <= self.size and all(number in self._blocks for number in numbers)
            return self._read(begin, size) if is_held else None

    def _read(self, begin: int, size: int) -> bytes:
        try:
            end = min(begin + size, self.size)
            if end <= begin:
                return b""
            first, last = begin // BLOCK_SIZE, (end - 1) // BLOCK_SIZE
            missing = [n for n in range(first, last + 1) if n not in self._blocks]
            if missing:
                self._fetch(self._runs(missing))
            for number in range(first, last + 1):
                self._blocks.move_to_end(number)
            data = b"".join(self._blocks[n] for n in range(first, last + 1))
            self._drop(last + 1 - first)
            return data[begin - first * BLOCK_SIZE : end - first * BLOCK_SIZE]
        except Exception as error:
            self.failure = self.failure or error
            raise

    def _runs(self, missing: list[int]) -> list[tuple[int, int]]:
        """The byte ranges to fetch: one per run of neighbouring blocks, the last one longer to read ahead."""
        runs = [[missing[0], missing[0] + 1]]
        for number in missing[1:]:
            if number == runs[-1][1]:
                runs[-1][1] += 1
            else:
                runs.append([number, number + 1])
        spans = [(begin * BLOCK_SIZE, end * BLOCK_SIZE) for begin, end in runs]
        is_next = spans[0][0] == self._end
        self._ahead = min(2 * self._ahead, AHEAD_SIZE) if is_next else BLOCK_SIZE
        begin, end = spans[-1]
        if is_next:
            end = max(end, begin + self._ahead)
        self._end = end
        return [*spans[:-1], (begin, end)]

    def _fetch(self, spans: list[tuple[int, int]]) -> None:
        parts = self._store.get_parts([(self._name, ByteRange(begin, end - begin)) for begin, end in spans])
        for (begin, end), part in zip(spans, parts, strict=True):
            if part is None:
                raise NotFoundError("nothing there to scan", path=self._address)
            if self.size < 0:
                self.size, self.tag = part.total_size, part.version
            if (part.total_size, part.version) != (self.size, self.tag):
                raise StoreError(
                    f"it has changed while it was scanned: it has {part.total_size} bytes and the entity tag "
                    f"{part.version!r}, expected {self.size} and {self.tag!r}",
                    path=self._address,
                )
            data = memoryview(part.data)
            if len(data) != max(0, min(end, self.size) - begin):
                raise StoreError(
                    f"asked for bytes {begin} to {end} of {self.size}, got {len(data)}", path=self._address
                )
            for at in range(0, len(data), BLOCK_SIZE):
                self._blocks[(begin + at) // BLOCK_SIZE] = bytes(data[at : at + BLOCK_SIZE])

    def _drop(self, kept: int) -> None:
        """Forget the blocks that were used longest ago; `kept` of them stay in any case."""
        while len(self._blocks) > max(HELD_SIZE // BLOCK_SIZE, kept):
            self._blocks.popitem(last=False)


class RangeFile(io.RawIOBase):
    """A file object for reading what `Ranges` reads."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__()
        self._ranges, self._at = ranges, 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next `read` begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Have the next `read` begin elsewhere."""
        self._at = max(
            0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._ranges.size}[whence]
        )
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, or as much of it as there are bytes before the end."""
        view = memoryview(buffer).cast("B")
        data = self._ranges.read(self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def find_addresses(pattern: str, options: Mapping[str, Any] | None = None) -> list[str]:
    """The URLs in a bucket that match a pattern, sorted; a URL without a pattern is given as it is.

    Addresses on web servers have no patterns: servers do not list, and a "?" begins a query.
    """
    if pattern.lower().startswith(("http://", "https://")) or not has_magic(pattern):
        return [pattern]
    address = settle_address(pattern)
    scheme, _, path = address.partition("://")
    parts = path.split("/")
    fixed = next(n for n, part in enumerate(parts) if has_magic(part))
    if not fixed or "**" in parts:
        raise StoreError(
            "the pattern names no bucket, or has '**'; expected patterns for names in a bucket", path=pattern
        )
    top = f"{scheme}://{'/'.join(parts[:fixed])}"
    patterns = parts[fixed:]
    with open_folder(top, options) as store:
        keys = sorted(key for key in store.list("") if _matches(key.split("/"), patterns))
    if not keys:
        raise NotFoundError("no file matches", path=pattern)
    return [f"{top}/{key}" for key in keys]


def _matches(names: list[str], patterns: list[str]) -> bool:
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))

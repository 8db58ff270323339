"""Keys, and the types of requests to stores and of their results; requests merged into fewer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from zstore.base.byterange import AtMost, ByteRange, choose_gap, merge_ranges
from zstore.errors import StoreError

# The URLs in which a "?" begins a query, by any library ("fsspec+https").
WEB = re.compile(r"(?:[a-z0-9.-]+\+)?https?://", re.IGNORECASE)


class Part(NamedTuple):
    """Some bytes of a value, the size of the whole value, and the version that they are from.

    Two parts of one key with the same `version` are from the same value; None: the store knows no versions.
    """

    data: bytes | memoryview
    total_size: int
    version: str | None = None


Parts = list[Part | None]
# A key and which bytes of its value are wanted, None for all of them.
Request = tuple[str, ByteRange | None]


class Entry(NamedTuple):
    """A key, the size of its value in bytes, and the value's version; None: the store knows no versions."""

    key: str
    size: int
    version: str | None = None


class Stretches(NamedTuple):
    """Where the chunks of one array lie in local files that hold other things, too.

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


def check_key(key: str) -> str:
    """`key`, where it is valid.

    Raises
        StoreError: empty, absolute, with an empty, "." or ".." part, or a NUL.
    """
    if key and "\0" not in key and not {"", ".", ".."}.intersection(key.split("/")):
        return key
    raise StoreError("key leaves the store or names nothing; expected names joined by '/'", key=key)


def check_prefix(prefix: str) -> str:
    """`prefix`, where it is valid: the root, or as a key.

    Raises
        StoreError: as `check_key`; a prefix is written without a "/" at its end.
    """
    return prefix and check_key(prefix)


def join_key(*parts: str) -> str:
    """The parts joined by "/", empty ones (the root) left out."""
    return "/".join(filter(None, parts))


def join_url(url: str, path: str) -> str:
    """The URL of what lies at `path` below another one: of a signed link, before the query."""
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


def merge_requests(requests: Sequence[Request], *, has_ranges: bool = True) -> list[Fetch]:
    """Fewer requests that serve all the given ones; without `has_ranges`, requests for whole values."""
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

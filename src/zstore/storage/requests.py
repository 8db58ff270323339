"""What is asked of a store and what it answers: keys, parts of values, stretches of files, merged ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zstore.base.byterange import AtMost, ByteRange, choose_gap, merge_ranges
from zstore.errors import StoreError


class Part(NamedTuple):
    """Some bytes of a value, how many the whole value has, and which version of it they are from.

    Two parts of one key with the same `version` are from the same value; None where the store cannot tell.
    """

    data: bytes | memoryview
    total_size: int
    version: str | None = None


Parts = list[Part | None]


class Entry(NamedTuple):
    """A key, how many bytes its value has, and which version of it that is; None where nothing tells."""

    key: str
    size: int
    version: str | None = None


class Stretches(NamedTuple):
    """Where the chunks of one array lie in local files that hold much else.

    grid       how many chunks are told of along each dimension; what lies beyond is not there
    has_c      whether keys begin with "c"
    separator  what stands between the numbers of a key
    number     int64, ascending: the places in the grid, in order C, that the rows below are about; None: all
    file       int32 per row: which of `files`; -1: there is no such chunk; -2: its bytes are in `data`
    offset     int64 per row: where in the file, or in `data`, the chunk begins
    size       int64 per row: how many bytes it has; -1: all from the offset on
    data       bytes of chunks that are in no file
    places     directories out of which nothing is opened, symbolic links included
    files      for each its place, its name below that, and the size and the time of its last change
               (nanoseconds) that it must have; -1: not known
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
    """`key`, if it names something inside a store.

    Raises
        StoreError: empty, absolute, with an empty, "." or ".." part, or a NUL.
    """
    if key and "\0" not in key and not {"", ".", ".."}.intersection(key.split("/")):
        return key
    raise StoreError("key leaves the store or names nothing; expected names joined by '/'", key=key)


def check_prefix(prefix: str) -> str:
    """`prefix`, if it is the root or names something inside a store.

    Raises
        StoreError: as `check_key`; a prefix is written without a "/" at its end.
    """
    return prefix and check_key(prefix)


def join_key(*parts: str) -> str:
    """The parts joined by "/", empty ones (the root) left out."""
    return "/".join(filter(None, parts))


class Fetch(NamedTuple):
    """One request: bytes `start` to `end` of a value, of which `members` want parts.

    Where `start` is None, all of it; where there is an `end` then, no more bytes than that are wanted.
    """

    key: str
    start: int | None
    end: int | None
    members: tuple[int, ...]


def merge_requests(
    requests: Sequence[tuple[str, ByteRange | None]], *, has_ranges: bool = True
) -> list[Fetch]:
    """What to ask for, so that every request is a part of some answer; whole values without `has_ranges`."""
    wishes: dict[str, list[int]] = {}
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
            wishes.setdefault(key, []).append(index)
    fetches = []
    for (key, start), members in others.items():
        limited = limits.get(key, []) if start is None else []
        end = max(limited) if limited and len(limited) == len(members) else None
        fetches.append(Fetch(key, start, end, tuple(members)))
    stretches = {
        key: [(start, size or 0) for start, size in ((requests[index][1] or (0, 0))[:2] for index in indexes)]
        for key, indexes in wishes.items()
    }
    gap_size = choose_gap(stretches.values())
    for key, indexes in wishes.items():
        for merged in merge_ranges(stretches[key], gap_size=gap_size):
            wanted = tuple(indexes[member] for member in merged.members)
            # Nothing cannot be asked for; a byte more says as well whether there is a value.
            fetches.append(Fetch(key, merged.start, merged.start + max(1, merged.size), wanted))
    return fetches

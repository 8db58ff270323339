"""Byte ranges of stored values, and how neighbouring ranges are merged into fewer requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

from zstore.base.limits import current_limits

# Gaps between two ranges that are fetched along with them. Up to GAP_SIZE always: that takes no longer than
# the headers of a request (or a millisecond at 4 MB/s). Up to WIDE_GAP_SIZE where that saves requests: a
# connection of 33 MB/s transfers as much in the 30 ms that a request waits.
GAP_SIZE = 4 << 10
WIDE_GAP_SIZE = 1 << 20
# The most bytes of one merged request, so that several connections share a long range.
LIMIT_SIZE = 16 << 20
# Up to this many requests (four rounds of 64), no wide gaps are bridged to have fewer.
REQUEST_COUNT = 256
# The most bytes of gaps that are fetched to have fewer requests, unless more than that is wanted.
SPARE_SIZE = 16 << 20


class ByteRange(NamedTuple):
    """`size` bytes from `start`; `size=None` reads to the end; a negative `start` counts back from the end.

    >>> ByteRange(100, 16).resolve(1000)
    (100, 116)
    >>> ByteRange(-16).resolve(1000)
    (984, 1000)
    """

    start: int
    size: int | None = None

    def resolve(self, total_size: int) -> tuple[int, int]:
        """(begin, end) within a value of `total_size` bytes; a range that reaches beyond it is cut."""
        begin = max(0, total_size + self.start) if self.start < 0 else min(self.start, total_size)
        end = total_size if self.size is None else min(begin + self.size, total_size)
        return begin, end


class AtMost(ByteRange):
    """The first `size` bytes of a value: all of it, if it has no more than that.

    To most stores this is a range like any other. A store that asks a server, or decompresses, may request
    the whole value and stop reading there.

    >>> AtMost(100)
    AtMost(start=0, size=100)
    """

    __slots__ = ()

    def __new__(cls, size: int) -> Self:
        return super().__new__(cls, 0, size)

    def __getnewargs__(self) -> tuple[int]:
        return (self.size or 0,)


class MergedRange(NamedTuple):
    """One request for several ranges; `members` are their positions in the caller's list."""

    start: int
    size: int
    members: tuple[int, ...]


def merge_ranges(ranges: Sequence[tuple[int, int]], *, gap_size: int = GAP_SIZE) -> list[MergedRange]:
    """Merge (start, size) ranges at most `gap_size` bytes apart into requests of at most LIMIT_SIZE bytes.

    A single range larger than that stays one request. Units: bytes.
    """
    merged: list[MergedRange] = []
    members: list[int] = []
    begin = end = 0
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, size = ranges[index]
        if members and start - end <= gap_size and max(end, start + size) - begin <= LIMIT_SIZE:
            end = max(end, start + size)
            members.append(index)
            continue
        if members:
            merged.append(MergedRange(begin, end - begin, tuple(members)))
        begin, end, members = start, start + size, [index]
    if members:
        merged.append(MergedRange(begin, end - begin, tuple(members)))
    return merged


def choose_gap(wanted: Iterable[Sequence[tuple[int, int]]]) -> int:
    """The `gap_size` for merging (start, size) ranges of several values that are requested together.

    Concurrent requests take no more time than one, so gaps are fetched only up to GAP_SIZE. But more than
    REQUEST_COUNT requests wait for each other: then the narrowest gaps are bridged until that many are left,
    or until the gaps come to more bytes than are wanted and than SPARE_SIZE. Units: bytes.
    """
    given = current_limits().gap_size
    if given is not None:
        return given
    gaps: list[int] = []
    count = wanted_size = 0
    for ranges in wanted:
        end = None
        for start, size in sorted(ranges):
            wanted_size += size
            if end is None or start - end > GAP_SIZE:
                count += 1
                if end is not None and start - end <= WIDE_GAP_SIZE:
                    gaps.append(start - end)
            end = max(end or 0, start + size)
    if count <= REQUEST_COUNT or not gaps:
        return GAP_SIZE
    gaps.sort()
    most = bisect_right([*accumulate(gaps)], max(SPARE_SIZE, wanted_size))
    if most >= min(count - REQUEST_COUNT, len(gaps)):
        return gaps[min(count - REQUEST_COUNT, len(gaps)) - 1]
    return max(GAP_SIZE, gaps[most] - 1)

"""Which bytes of an object are wanted, and how neighbouring wishes are merged into fewer requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

from zstore.base.limits import current_limits

# Gaps between two wishes that are fetched with them: always, what is less than a request and its answer take
# (and a millisecond of 4 MB/s); at most, what a connection of 33 MB/s brings while a request waits for 30 ms.
GAP_SIZE = 4 << 10
WIDE_GAP_SIZE = 1 << 20
# A single request brings no more, so that several connections share what is long.
LIMIT_SIZE = 16 << 20
# Requests that are made at once without gaps being bridged to have fewer: four rounds of 64.
REQUEST_COUNT = 256
# What is fetched in vain at most to have fewer, where no more than that is wanted.
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
        """(begin, end) within an object of `total_size` bytes; a range outside it is cut to what is there."""
        begin = max(0, total_size + self.start) if self.start < 0 else min(self.start, total_size)
        end = total_size if self.size is None else min(begin + self.size, total_size)
        return begin, end


class AtMost(ByteRange):
    """The whole object, as long as it has no more than `size` bytes: else the first `size` of them.

    To most stores that is a range like any other. One that asks a server, or inflates, need not say a range
    but stops there.

    >>> AtMost(100)
    AtMost(start=0, size=100)
    """

    __slots__ = ()

    def __new__(cls, size: int) -> Self:
        return super().__new__(cls, 0, size)

    def __getnewargs__(self) -> tuple[int]:
        return (self.size or 0,)


class MergedRange(NamedTuple):
    """One request that serves several wishes; `members` are their positions in the list given."""

    start: int
    size: int
    members: tuple[int, ...]


def merge_ranges(
    ranges: Sequence[tuple[int, int]], *, gap_size: int = GAP_SIZE, limit_size: int = LIMIT_SIZE
) -> list[MergedRange]:
    """Merge (start, size) wishes at most `gap_size` bytes apart into requests of at most `limit_size` bytes.

    A single wish larger than `limit_size` stays one request. Units: bytes.
    """
    merged: list[MergedRange] = []
    members: list[int] = []
    begin = end = 0
    for index in sorted(range(len(ranges)), key=lambda index: ranges[index]):
        start, size = ranges[index]
        if members and start - end <= gap_size and max(end, start + size) - begin <= limit_size:
            end = max(end, start + size)
            members.append(index)
            continue
        if members:
            merged.append(MergedRange(begin, end - begin, tuple(members)))
        begin, end, members = start, start + size, [index]
    if members:
        merged.append(MergedRange(begin, end - begin, tuple(members)))
    return merged


def choose_gap(wishes: Iterable[Sequence[tuple[int, int]]]) -> int:
    """The `gap_size` for wishes of several objects that are asked for together.

    As many requests as are under way at once take no more time than one, so what lies between two wishes is
    fetched in vain only where it is less than a request takes by itself. More requests than a few rounds of
    those wait for each other: the narrowest gaps are bridged then, until so many are left, or they would come
    to more than what is wanted and than SPARE_SIZE. Units: bytes.
    """
    given = current_limits().gap_size
    if given is not None:
        return given
    gaps: list[int] = []
    count = wanted_size = 0
    for ranges in wishes:
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

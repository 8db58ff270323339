"""Which bytes of an object are wanted, and how neighbouring wishes are merged into fewer requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

__all__ = ["AtMost", "ByteRange", "merge_ranges"]


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
    ranges: Sequence[tuple[int, int]], *, gap_size: int = 1 << 20, limit_size: int = 16 << 20
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

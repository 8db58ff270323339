"""Which requests answer many wishes for parts of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zstore.base.byterange import ByteRange, merge_ranges
from zstore.storage.base import check_key

__all__ = ["Fetch", "merge_requests"]


class Fetch(NamedTuple):
    """One request: bytes `start` to `end` of a value (all of it: None), of which `members` want parts."""

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
    for index, (key, byte_range) in enumerate(requests):
        check_key(key)
        if byte_range is None or tuple(byte_range) == (0, None) or not has_ranges:
            others.setdefault((key, None), []).append(index)
        elif byte_range.start < 0 or byte_range.size is None:
            others.setdefault((key, byte_range.start), []).append(index)
        else:
            wishes.setdefault(key, []).append(index)
    fetches = [Fetch(key, start, None, tuple(members)) for (key, start), members in others.items()]
    for key, indexes in wishes.items():
        ranges = [(requests[index][1] or (0, 0))[:2] for index in indexes]
        for merged in merge_ranges([(start, size or 0) for start, size in ranges]):
            members = tuple(indexes[member] for member in merged.members)
            # Nothing cannot be asked for; a byte more says as well whether there is a value.
            fetches.append(Fetch(key, merged.start, merged.start + max(1, merged.size), members))
    return fetches

"""What several dialects say of the same levels, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from zstore.conventions.base import LevelEntry

__all__ = ["join_levels"]


def join_levels(tried: Iterable[Sequence[LevelEntry]]) -> tuple[LevelEntry, ...]:
    """The levels of the first dialect that names any; of each, what it leaves out as a later one says it."""
    found = [entries for entries in tried if entries]
    if not found:
        return ()
    joined = []
    for entry in found[0]:
        stated: dict[str, Any] = {}
        for other in (other for entries in found[1:] for other in entries if other.path == entry.path):
            for member in fields(LevelEntry):
                value = getattr(other, member.name)
                if getattr(entry, member.name) is None and value is not None:
                    stated.setdefault(member.name, value)
        joined.append(replace(entry, **stated))
    return tuple(joined)

"""A cache of results by the exact content of the JSON value that they were made of."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Larger values (bytes) are rare, and not worth the memory; a full cache is emptied.
SIZE_LIMIT = 4096
COUNT_LIMIT = 1024


class ByContent(Generic[T]):
    """Results by the JSON values that they were made of: documents of one hierarchy share most of theirs.

    Values are compared by their serialized bytes: true differs from 1 and 1.0, and -0.0 from 0.0. Values that
    the serialization does not give back unchanged (NaN, numpy's scalars) are never cached.
    """

    def __init__(self) -> None:
        self._made: dict[bytes, T] = {}

    def get(self, value: Any, make: Callable[[Any], T], keeps: Callable[[T], bool] | None = None) -> T:
        """The result of `make(value)`, cached unless `keeps` returns false for it; errors are not cached."""
        try:
            # Version 2 has no references, so that equal values have equal bytes.
            content = marshal.dumps(value, 2)
        except ValueError:  # the value holds something that JSON does not have
            return make(value)
        found = self._made.get(content)
        if found is None:
            copy = marshal.loads(content) if len(content) <= SIZE_LIMIT else None
            if copy != value:
                return make(value)
            # Made of the copy, which no caller can change.
            found = make(copy)
            if keeps is None or keeps(found):
                if len(self._made) >= COUNT_LIMIT:
                    self._made.clear()
                self._made[content] = found
        return found

"""What was made of JSON's values before, by their exact content."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Larger values are rare, and not to be kept.
SIZE_LIMIT = 4096
COUNT_LIMIT = 1024


class ByContent(Generic[T]):
    """Results by the values they were made of, which documents of one hierarchy share most of.

    Values are compared by their bytes: true is not 1, nor 1.0, nor is -0.0 the same as 0.0. What comes back
    from its bytes as something else (NaN, numpy's scalars) could be taken for another thing, and is not kept.
    """

    def __init__(self) -> None:
        self._made: dict[bytes, T] = {}

    def get(self, value: Any, make: Callable[[Any], T], keeps: Callable[[T], bool] | None = None) -> T:
        """`make(value)`, or what that gave before; kept unless `keeps` says no. What raises is not kept."""
        try:
            # Version 2 has no references, so that equal values have equal bytes.
            content = marshal.dumps(value, 2)
        except ValueError:  # of something that JSON does not have
            return make(value)
        found = self._made.get(content)
        if found is None:
            copy = marshal.loads(content) if len(content) <= SIZE_LIMIT else None
            if copy != value:
                return make(value)
            # Of the copy, which nobody else can change.
            found = make(copy)
            if keeps is None or keeps(found):
                if len(self._made) >= COUNT_LIMIT:
                    self._made.clear()
                self._made[content] = found
        return found

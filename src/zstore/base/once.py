"""Values computed once: properties, and results cached by the content or identity of their arguments."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")


class once(Generic[T]):
    """A `functools.cached_property` without a lock: concurrent threads may each compute the value.

    In Python 3.11 that one holds a lock, shared by all objects: if another thread held it when the process
    forked, the child would wait for ever.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        # The first value that was stored stays, so that all threads see the same object.
        kept: T = instance.__dict__.setdefault(self._name, self._function(instance))
        return kept


def look_up(items: Mapping[K, T], key: K) -> T | None:
    """The item of a key, None if there is none: `items.get(key)`, of a dictionary that threads share.

    Where CPython 3.13 has no lock, `dict.get` of what another thread has put there takes the dictionary's own
    lock twice, and waits for itself: 20 µs in which other threads get the processor forty times.
    """
    try:
        return items[key]
    except KeyError:
        return None


# Larger values (bytes) are rare, and not worth the memory; a full cache is emptied.
SIZE_LIMIT = 4096
COUNT_LIMIT = 1024


class ByContent(Generic[T]):
    """A cache of results by JSON values: documents of one hierarchy share most of theirs.

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
        kept = look_up(self._made, content)
        if kept is None:
            copy = marshal.loads(content) if len(content) <= SIZE_LIMIT else None
            if copy != value:
                return make(value)
            # Made of the copy, which no caller can change.
            kept = make(copy)
            if keeps is None or keeps(kept):
                if len(self._made) >= COUNT_LIMIT:
                    self._made.clear()
                self._made[content] = kept
        return kept


class ByIdentity(Generic[K, T]):
    """A cache of results by objects that nobody changes: by the object itself, not by its content."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[K, T]] = {}

    def get(self, value: K, make: Callable[[K], T]) -> T:
        """The result of `make(value)`; errors are not cached."""
        kept = look_up(self._made, id(value))
        if kept is None:
            if len(self._made) >= COUNT_LIMIT:
                self._made.clear()
            kept = self._made[id(value)] = value, make(value)
        return kept[1]

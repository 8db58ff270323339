"""Properties that are computed once, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


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

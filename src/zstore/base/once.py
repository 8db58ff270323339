"""Values made when they are first asked for, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """As `functools.cached_property`; threads that ask at the same time may each make the value.

    That one holds a lock in Python 3.11, one for all objects: where another thread held it when a process
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
        # The first one that was kept stays, so that everybody sees the same object.
        kept: T = instance.__dict__.setdefault(self._name, self._function(instance))
        return kept

"""How a read or a write waits: on the calling thread, or on the event loop of whoever awaits it.

The engine's reads and writes are coroutines that wait for a `Door` only. Through `CALLING` nothing ever
suspends, so that `drive` runs them to their end without an event loop; `zstore.engine.awaiting` has the other
door.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from zstore.engine.pool import map_threads
from zstore.storage.base import Parts, Request, Store, Values

T = TypeVar("T")
R = TypeVar("R")
Act = Callable[[T], Coroutine[Any, Any, None]]
# What reads are asking for now, by their loop and its name, and what ends when they have the answer.
Asked = dict[tuple[Any, str], Any]

# Of selections that cannot be read together, so many are read side by side from a store with latency.
READ_COUNT = 32

_END: Any = object()
_NOTHING: AbstractContextManager[None] = nullcontext()


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that goes through `CALLING`, and so never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    coroutine.close()
    raise AssertionError("it waited for something else than the door")


class Door(ABC):
    """What reads and writes wait for."""

    read_count: int = READ_COUNT
    """How many selections are read side by side at most, from a store with latency."""

    @abstractmethod
    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """`store.get_many`."""

    @abstractmethod
    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """`store.get_parts`."""

    @abstractmethod
    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """What a function gives that computes, or works on files.

        With `size` it does no more than to decode so many bytes by native codecs.
        """

    @abstractmethod
    async def map(
        self, function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
    ) -> list[R]:
        """`map_threads`."""

    @abstractmethod
    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Await `act` of every item, `at_once` at a time; the first error stops the rest.

        Without `waits`, they compute: there are never more of them than the engine has threads.
        """

    @abstractmethod
    async def hold(self, size: int) -> AbstractContextManager[None]:
        """Room for a window of so many bytes, until the context ends."""

    @abstractmethod
    async def ask_once(self, asked: Asked, unknown: Callable[[], set[str]]) -> AbstractContextManager[None]:
        """Let one of several reads at a time ask for the same, until the context ends.

        `unknown` says what is to be asked for. Where others ask for some of that, this waits until they have
        it.
        """

    @abstractmethod
    def spans(self, total: int, count: int) -> Iterable[tuple[int, int]]:
        """What is `total` long in spans, each one call of a kernel; those that may be given up are short.

        Each has `count` at most then.
        """


class Calling(Door):
    """Everything on the calling thread, and on threads that it waits for."""

    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """`store.get_many`."""
        return store.get_many(requests)

    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """`store.get_parts`."""
        return store.get_parts(requests)

    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """Call it."""
        return function()

    async def map(
        self, function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
    ) -> list[R]:
        """`map_threads`."""
        return map_threads(function, items, waiting_count=waiting_count)

    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Await `act` of every item, on as many threads."""
        if isinstance(items, Sequence):
            at_once = min(at_once, len(items))
        if at_once <= 1:
            for item in items:
                await act(item)
            return
        left, turn = iter(items), threading.Lock()

        def work(_: int) -> None:
            nonlocal left
            try:
                while True:
                    with turn:
                        item = next(left, _END)
                    if item is _END:
                        return
                    drive(act(item))
            except BaseException:
                left = iter(())
                raise

        map_threads(work, range(at_once), waiting_count=at_once if waits else None)

    async def hold(self, size: int) -> AbstractContextManager[None]:
        """Nothing: who calls waits, and so bounds what is held."""
        return _NOTHING

    async def ask_once(self, asked: Asked, unknown: Callable[[], set[str]]) -> AbstractContextManager[None]:
        """Nothing: threads do not wait for each other."""
        return _NOTHING

    def spans(self, total: int, count: int) -> Iterable[tuple[int, int]]:
        """One span."""
        return [(0, total)]


CALLING = Calling()

"""Merging the requests that several readers make in the same iteration of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from zstore.storage.base import Fetch, Request, check_key, merge_requests
from zstore.storage.objects.library import ask_all, is_direct

T = TypeVar("T")


class Shared(Generic[T]):
    """A request of several readers, which is cancelled when the last of them leaves."""

    def __init__(self, fetch: Fetch, readers: Iterable[Wish]) -> None:
        self.fetch = fetch
        self._readers = set(readers)
        self._task: asyncio.Task[T] | None = None

    async def answer(self, ask: Callable[[Fetch], Coroutine[Any, Any, T]]) -> T:
        """The result of `ask`, which is called once for all readers."""
        if self._task is None:
            self._task = asyncio.ensure_future(ask(self.fetch))
        await asyncio.wait([self._task])
        return self._task.result()

    def leave(self, reader: Wish) -> None:
        """Leave the request to the other readers; if there are none, it is cancelled."""
        self._readers.discard(reader)
        if self._task is not None and not self._readers:
            self._task.cancel()


class Wish:
    """The ranges that one reader wants; `fetches` are the requests that serve them."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.fetches: list[tuple[Fetch, Shared[Any] | None]] | None = None

    def leave(self) -> None:
        """Leave all shared requests, after the reader failed or was cancelled."""
        for _, shared in self.fetches or ():
            if shared is not None:
                shared.leave(self)


class Together(Generic[T]):
    """Merges the requests that readers make in one iteration of an event loop, as if they were one reader.

    No reader gets the response to a request that was sent before it asked, as that may be of an older value.
    """

    def __init__(self, ask: Callable[[Fetch], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._wishes: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Wish]] = WeakKeyDictionary()

    async def ask(self, requests: Sequence[Request], *, has_ranges: bool) -> list[tuple[Fetch, T]]:
        """The merged requests that serve these ranges, with their results."""
        for key, _ in requests:
            check_key(key)
        wish = Wish(requests)
        try:
            if is_direct():
                _divide([wish], has_ranges)
            else:
                await self._gather(wish, has_ranges)
            assert wish.fetches is not None
            answers = await ask_all(partial(_answer, self._ask), wish.fetches)
        except BaseException:
            wish.leave()
            raise
        return [(fetch, answer) for (fetch, _), answer in zip(wish.fetches, answers, strict=True)]

    async def _gather(self, wish: Wish, has_ranges: bool) -> None:
        """Wait for the other readers of this iteration; the first one to continue merges all requests."""
        loop = asyncio.get_running_loop()
        wishes = self._wishes.setdefault(loop, [])
        wishes.append(wish)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if wish in wishes:
                wishes.remove(wish)
            raise
        if wish.fetches is None:
            if self._wishes.get(loop) is wishes:
                del self._wishes[loop]
            _divide(wishes, has_ranges)


async def _answer(ask: Callable[[Fetch], Coroutine[Any, Any, T]], piece: tuple[Fetch, Shared[T] | None]) -> T:
    fetch, shared = piece
    return await (ask(fetch) if shared is None else shared.answer(ask))


def _divide(wishes: Sequence[Wish], has_ranges: bool) -> None:
    """Merge the ranges of all readers, and return to each reader the requests that serve its own."""
    owners = [(wish, place) for wish in wishes for place in range(len(wish.requests))]
    fetches = merge_requests([request for wish in wishes for request in wish.requests], has_ranges=has_ranges)
    for wish in wishes:
        wish.fetches = []
    for fetch in fetches:
        members: dict[Wish, list[int]] = {}
        for number in fetch.members:
            wish, place = owners[number]
            members.setdefault(wish, []).append(place)
        shared = Shared[Any](fetch, members) if len(members) > 1 else None
        for wish, places in members.items():
            assert wish.fetches is not None
            wish.fetches.append((fetch._replace(members=tuple(places)), shared))

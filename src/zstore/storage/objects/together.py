"""What several readers ask of one place in the same turn of a loop, asked for together."""

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
    """A request of several readers, called off when the last of them goes away."""

    def __init__(self, fetch: Fetch, readers: Iterable[Wish]) -> None:
        self.fetch = fetch
        self._readers = set(readers)
        self._task: asyncio.Task[T] | None = None

    async def answer(self, ask: Callable[[Fetch], Coroutine[Any, Any, T]]) -> T:
        """What `ask` gives, to all of them."""
        if self._task is None:
            self._task = asyncio.ensure_future(ask(self.fetch))
        await asyncio.wait([self._task])
        return self._task.result()

    def leave(self, reader: Wish) -> None:
        """Let the others wait, if there are any."""
        self._readers.discard(reader)
        if self._task is not None and not self._readers:
            self._task.cancel()


class Wish:
    """What one reader asks for; `fetches` are its requests, each with the places that it wants parts for."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.fetches: list[tuple[Fetch, Shared[Any] | None]] | None = None

    def leave(self) -> None:
        """Wait for nothing any more, wherever the reader was when it failed or was cancelled."""
        for _, shared in self.fetches or ():
            if shared is not None:
                shared.leave(self)


class Together(Generic[T]):
    """Merges the wishes of readers who ask in the same turn of a loop, as if one had asked for all of it.

    Nobody is given the answer to a request that was made before he asked: it may be of an older value.
    """

    def __init__(self, ask: Callable[[Fetch], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._wishes: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Wish]] = WeakKeyDictionary()

    async def ask(self, requests: Sequence[Request], *, has_ranges: bool) -> list[tuple[Fetch, T]]:
        """Requests for these, with their answers."""
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
        """Let the others of this turn ask; the first who goes on divides all that was asked."""
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
    """Tell each who wishes its requests."""
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

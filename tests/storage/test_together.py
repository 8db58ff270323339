"""Wishes of several readers of one turn of a loop, asked for together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from zstore.errors import StoreError
from zstore.storage.base import ByteRange, Fetch, Request

Together: Any = pytest.importorskip("zstore.storage.objects.together").Together


class Place:
    """Answers with what it was asked; notes what was asked, and what was called off."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int | None, int | None]] = []
        self.called_off: list[str] = []
        self.go = asyncio.Event()
        self.together = Together(self.ask)

    async def ask(self, fetch: Fetch) -> str:
        self.asked.append(fetch[:3])
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.called_off.append(fetch.key)
            raise
        if fetch.key == "bad":
            raise StoreError("no", path="x", key="bad")
        return f"{fetch.key} {fetch.start}"

    async def read(self, requests: Sequence[Request]) -> list[tuple[str, tuple[int, ...]]]:
        pairs = await self.together.ask(requests, has_ranges=True)
        return [(answer, fetch.members) for fetch, answer in pairs]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_several_want_is_asked_for_once() -> None:
    async def run() -> None:
        place = Place()
        wishes: list[list[Request]] = [
            [("a", ByteRange(0, 10)), ("b", None)],
            [("a", ByteRange(10, 10))],
            [("c", None), ("b", None), ("a", ByteRange(5, 10))],
        ]
        place.go.set()
        found = await asyncio.gather(*map(place.read, wishes))
        assert sorted(place.asked, key=str) == [("a", 0, 20), ("b", None, None), ("c", None, None)]
        assert [sorted(one) for one in found] == [
            [("a 0", (0,)), ("b None", (1,))],
            [("a 0", (0,))],
            [("a 0", (2,)), ("b None", (1,)), ("c None", (0,))],
        ]

    asyncio.run(run())


def test_nobody_is_given_the_answer_to_an_earlier_request() -> None:
    async def run() -> None:
        place = Place()
        first = asyncio.ensure_future(place.read([("a", None)]))
        await settle()
        assert len(place.asked) == 1
        second = asyncio.ensure_future(place.read([("a", None)]))
        await settle()
        assert len(place.asked) == 2
        place.go.set()
        assert await first == await second == [("a None", (0,))]

    asyncio.run(run())


def test_what_fails_fails_for_those_who_asked_for_it() -> None:
    async def run() -> None:
        place = Place()
        place.go.set()
        wishes: list[list[Request]] = [[("bad", None)], [("a", None)], [("bad", None), ("a", None)]]
        found = await asyncio.gather(*map(place.read, wishes), return_exceptions=True)
        assert [type(one) for one in found] == [StoreError, list, StoreError]
        names_nothing = place.read([("..", None)])
        found = await asyncio.gather(names_nothing, place.read([("a", None)]), return_exceptions=True)
        assert [type(one) for one in found] == [StoreError, list]

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(4))
def test_a_request_is_called_off_when_the_last_of_its_readers_goes(turns: int) -> None:
    async def run() -> None:
        place = Place()
        both = [asyncio.ensure_future(place.read([("a", None)])) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        both[0].cancel()
        await settle()
        assert both[0].cancelled()
        assert not place.called_off
        place.go.set()
        assert await both[1] == [("a None", (0,))]
        place.go.clear()
        both = [asyncio.ensure_future(place.read([("b", None)])) for _ in range(2)]
        await settle()
        for task in both:
            task.cancel()
        await settle()
        assert place.called_off == ["b"]

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(6))
def test_whoever_goes_is_not_waited_for_wherever_he_was(turns: int) -> None:
    async def run() -> None:
        place = Place()
        wish: list[Request] = [("a", None), ("b", None)]
        both = [asyncio.ensure_future(place.read(wish)) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        both[0].cancel()
        await settle()
        assert not place.called_off
        both[1].cancel()
        await settle()
        assert place.called_off == ["a", "b"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())

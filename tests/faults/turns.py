"""Two calls on one store in memory, one step of which follows the other in an order that a test chooses."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, islice
from typing import Any

from zstore.errors import ZstoreError
from zstore.storage.memory import MemoryStore

Call = Callable[[MemoryStore], Any]


class TurnStore(MemoryStore):
    """Each request of two threads waits for its turn; whoever waits for a lock lets the other one go on.

    order  whose turn it is: 0 or 1 for each request
    """

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []
        self.count = 0
        self._changed, self._mine, self._waiting = threading.Condition(), threading.local(), set[int]()

    @contextmanager
    def step(self) -> Iterator[None]:
        who, is_within = self._who, getattr(self._mine, "is_within", False)
        if who is None or is_within:
            yield
            return
        with self._changed:
            assert self._changed.wait_for(lambda: self._may_go(who), 60)
            if who in self.order:
                self.order.remove(who)
            self.count += 1
            self._changed.notify_all()
        self._mine.is_within = True
        try:
            yield
        finally:
            self._mine.is_within = False

    @property
    def _who(self) -> int | None:
        return getattr(self._mine, "who", None)

    def _may_go(self, who: int) -> bool:
        return not self.order or self.order[0] == who or self.order[0] in self._waiting

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        who = self._who
        if who is not None:
            self._note(self._waiting.add, who)
        with super().lock(key):
            if who is not None:
                self._note(self._waiting.discard, who)
            yield

    def _note(self, act: Callable[[int], None], who: int) -> None:
        with self._changed:
            act(who)
            self._changed.notify_all()

    def call(self, who: int, call: Call) -> Any:
        """What a call returns, or the error that refuses it."""
        self._mine.who = who
        try:
            return call(self)
        except ZstoreError as error:
            return error
        finally:
            self._mine.who = None
            with self._changed:
                self.order[:] = [other for other in self.order if other != who]
                self._changed.notify_all()

    def run(self, order: Sequence[int], *calls: Call) -> list[Any]:
        """What two calls end with whose requests come in this order; further ones come as they may."""
        self.order[:] = order
        ends: list[Any] = [None, None]

        def run(who: int) -> None:
            ends[who] = self.call(who, calls[who])

        threads = [threading.Thread(target=run, args=(who,)) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ends


def _in_turn(name: str) -> Any:
    def method(self: TurnStore, *args: Any, **options: Any) -> Any:
        with self.step():
            return getattr(MemoryStore, name)(self, *args, **options)

    return method


for name in (
    *("get", "get_many", "get_parts", "get_first", "size", "entry", "list_children"),
    *("put", "put_new", "put_over", "delete", "delete_prefix", "delete_many"),
):
    setattr(TurnStore, name, _in_turn(name))


def request_counts(make: Callable[[], TurnStore], calls: Sequence[Call]) -> list[int]:
    """How many requests each call takes when it is alone."""
    counts = []
    for call in calls:
        store = make()
        store.call(0, call)
        counts.append(store.count)
    return counts


def all_orders(counts: Sequence[int], each: int) -> Iterator[list[int]]:
    """Every order of so many requests of two calls, or each so-manieth of them."""
    first, total = counts[0], sum(counts)
    for places in islice(combinations(range(total), first), 0, None, each):
        yield [int(number not in places) for number in range(total)]


def some_orders(counts: Sequence[int], count: int, seed: int = 0) -> Iterator[list[int]]:
    """Orders by chance, in which each call makes up to 50 requests before it is the other's turn."""
    chance = random.Random(seed)
    for _ in range(count):
        left, order = [*counts], list[int]()
        while any(left):
            [who] = chance.choices((0, 1), left)
            run = min(left[who], chance.choice((1, 1, 2, 3, 8, 20, 50)))
            order += [who] * run
            left[who] -= run
        yield order

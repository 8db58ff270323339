"""Two calls on one store, one request of which follows the other in an order that a test chooses."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import combinations, islice
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import zstore
from zstore.base.system import start_of
from zstore.engine import intents
from zstore.engine.schedulers import thread_count
from zstore.errors import ZstoreError
from zstore.storage.base import Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.objects.store import ObjectStore
from zstore.storage.zip.store import ZipStore

Call = Callable[[Any], Any]

# What a store is asked for in one step; what it asks itself for within is a part of that.
STEPS = (
    *("get", "get_many", "get_parts", "get_first", "size", "entry", "list_children"),
    *(
        "put",
        "put_many",
        "put_new",
        "put_over",
        "swap",
        "delete",
        "delete_over",
        "delete_prefix",
        "delete_many",
    ),
)


class Turns:
    """Whose turn it is: of two callers one is at work, until its next request; there it waits for its turn.

    Who waits for a lock of the other's lets that one go on.

    stores  what each of two callers opens, of the same values
    order   0 or 1 for each request to come; empty: whoever has waited longest is next
    """

    def __init__(self, *stores: Any) -> None:
        self.stores = stores
        self.order: list[int] = []
        self.count = 0
        self._changed, self._mine, self._waiting = threading.Condition(), threading.local(), set[int]()
        self._at_work: int | None = None
        self._held: list[tuple[str, int]] = []
        self._asking: list[int] = []
        for store in stores:
            store.turns = self

    @property
    def store(self) -> Store:
        """The store for whoever takes no turns."""
        return self.stores[0]

    @property
    def _who(self) -> int | None:
        return getattr(self._mine, "who", None)

    @contextmanager
    def step(self) -> Iterator[None]:
        """One request, when it is its caller's turn."""
        who = self._who
        if who is None or getattr(self._mine, "is_within", False):
            yield
            return
        with self._changed:
            self._leave(who)
            self._asking.append(who)
            may_go = self._changed.wait_for(lambda: self._at_work is None and self._may_go(who), 60)
            self._asking.remove(who)
            assert may_go
            self._at_work = who
            if who in self.order:
                self.order.remove(who)
            self.count += 1
        self._mine.is_within = True
        try:
            yield
        finally:
            self._mine.is_within = False

    def _leave(self, who: int) -> None:
        if self._at_work == who:
            self._at_work = None
        self._changed.notify_all()

    def _may_go(self, who: int) -> bool:
        if not self.order:
            # Else who looks again and again whether the other has ended would never let him.
            return self._asking[0] == who
        return self.order[0] == who or self.order[0] in self._waiting

    @contextmanager
    def lock(self, name: str, lock: Any) -> Iterator[None]:
        """A lock, for which the caller does not wait in the other's turn; others of the name wait, too."""
        who = self._who
        if who is None:
            with lock:
                yield
            return
        with self._changed:
            if self._is_held(name, who):
                self._leave(who)
                self._waiting.add(who)
                free = self._changed.wait_for(
                    lambda: self._at_work is None and not self._is_held(name, who), 60
                )
                self._waiting.discard(who)
                assert free
                self._at_work = who
            self._held.append((name, who))
        try:
            with lock:
                yield
        finally:
            with self._changed:
                self._held.remove((name, who))
                self._changed.notify_all()

    def _is_held(self, name: str, who: int) -> bool:
        return (name, 1 - who) in self._held

    def call(self, who: int, call: Call) -> Any:
        """What a caller's call returns, or the error that refuses it."""
        self._mine.who = who
        try:
            return call(self.stores[who])
        except ZstoreError as error:
            return error
        finally:
            self._mine.who = None
            with self._changed:
                self._leave(who)
                self.order[:] = [other for other in self.order if other != who]
                self._changed.notify_all()

    def run(self, order: Sequence[int], *calls: Call) -> list[Any]:
        """What one or two calls end with whose requests come in this order; further ones come as they may.

        Each is on one thread, and to look whether the other's writer is alive is a request, too.
        """
        self.order[:] = order
        ends: list[Any] = [None for _ in calls]

        def look(process: int) -> str | None:
            with self.step():
                return start_of(process)

        def run(who: int) -> None:
            ends[who] = self.call(who, calls[who])

        threads = [threading.Thread(target=run, args=(who,)) for who in range(len(calls))]
        count = thread_count()
        zstore.set_threads(1)
        try:
            with mock.patch.object(intents, "start_of", look):
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        finally:
            zstore.set_threads(count)
        return ends


def _in_turn(name: str) -> Any:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        asks = args[0] not in ([], {})  # of no keys a store says what it can, without a request
        with self.turns.step() if asks else nullcontext():
            return getattr(super(type(self), self), name)(*args, **options)

    return method


class TurnMemory(MemoryStore):
    turns: Turns

    def lock(self, key: str) -> Any:
        return self.turns.lock(key, super().lock(key))


class TurnZip(ZipStore):
    turns: Turns

    def lock(self, key: str) -> Any:
        return self.turns.lock(key, super().lock(key))


class TurnDirectory(LocalStore):
    turns: Turns

    def lock(self, key: str) -> Any:
        # The lock of a document is that of all that lies below it.
        return self.turns.lock("", super().lock(key))

    def local_path(self, prefix: str = "") -> Any:
        return None  # so that chunks are put by the store, too


class TurnBucket(ObjectStore):
    turns: Turns


for kind in (TurnMemory, TurnZip, TurnDirectory, TurnBucket):
    for name in STEPS:
        setattr(kind, name, _in_turn(name))


def in_memory() -> Turns:
    """Two threads that share one store."""
    store = TurnMemory()
    return Turns(store, store)


def in_directory(place: Path) -> Turns:
    """Two who have opened one new directory below a place."""
    path = place / uuid4().hex
    return Turns(TurnDirectory(path), TurnDirectory(path))


def in_zip(place: Path) -> Turns:
    """Two threads that have opened one new zip file in a directory."""
    path = place / f"{uuid4().hex}.zip"
    return Turns(TurnZip(path), TurnZip(path))


def in_bucket() -> Turns:
    """Two who know nothing of each other, as two processes would, and a server that keeps conditions."""
    from obstore.store import MemoryStore as Objects

    objects = Objects()
    stores = [TurnBucket("obstore+memory://turns", target=objects) for _ in range(2)]
    for number, store in enumerate(stores):
        store._url += f"/{number}"  # another name is another lock within this process
    return Turns(*stores)


def request_counts(make: Callable[[], Turns], calls: Sequence[Call]) -> list[int]:
    """How many requests each call takes when it is alone."""
    counts = []
    for call in calls:
        turns = make()
        turns.run([], call)
        counts.append(turns.count)
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

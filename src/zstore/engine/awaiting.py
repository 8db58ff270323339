"""The door for event loops: nothing blocks the loop, on any loop of any thread, beside those who call.

What stores are asked is awaited; what computes runs on the engine's threads, what is written on threads that
wait. When a task is cancelled, what has not begun does not begin, and what a thread is at ends first: a
window of a read, a chunk of a write.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from zstore.engine.doors import Act, Asked, Door
from zstore.engine.pool import enter_worker, thread_count
from zstore.storage.base import Parts, Request, Store, Values

T = TypeVar("T")
R = TypeVar("R")

# What all reads that are awaited hold at most in this process, fetched and not decoded yet: so many windows
# (of at most WINDOW_SIZE bytes, or a single chunk), and so many bytes unless a single one has more.
AWAITED_COUNT = 1024
AWAITED_SIZE = 256 << 20

# How often who waits for room looks for loops that were closed amid their reads (seconds).
LOOK_TIME = 1.0

# Threads that wait for stores, all together: each writes a chunk, opens or makes a node.
WAITING_COUNT = 32

# So many bytes are decoded by native codecs (50 µs or so, without the GIL) in less time than it takes to hand
# the work to a thread and to take its result.
SHORT_SIZE = 64 << 10

# How many pieces each thread gets of a long computation, so that it can be given up between them.
PIECES = 4


class Aside:
    """Threads beside event loops, made when first needed and again in a process that was forked.

    Not a loop's own executor: other libraries do their work there, and whoever waits for them in the same
    threads may wait for ever.
    """

    def __init__(self, name: str, count: Callable[[], int], enter: Callable[[], None] | None = None) -> None:
        self._name = name
        self._count = count
        self._enter = enter
        self._made: tuple[int, ThreadPoolExecutor] | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._made = None  # its threads stayed with the parent

    def _pool(self) -> ThreadPoolExecutor:
        count, made = self._count(), self._made
        if made is not None and made[0] == count:
            return made[1]
        pool = ThreadPoolExecutor(count, self._name, initializer=self._enter)
        self._made = count, pool
        if made is not None:
            made[1].shutdown(wait=False)
        return pool

    async def run(self, function: Callable[[], T], *, finishes: bool = True) -> T:
        """What the function gives, called on another thread.

        If the task is cancelled meanwhile, a call that has begun is waited for, unless `finishes` is false.
        """
        pool = self._pool()
        try:
            called = pool.submit(function)
        except RuntimeError:
            if (other := self._pool()) is pool:
                raise
            called = other.submit(function)  # somebody has just chosen another number of threads
        waiting = asyncio.wrap_future(called)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not called.cancel() and finishes:
                await asyncio.wait([waiting])
            raise


COMPUTING = Aside("zstore-computing", lambda: thread_count(), enter_worker)
WAITING = Aside("zstore-waiting", lambda: WAITING_COUNT)


class Hold:
    """Room in a budget, until the context ends or its loop is closed."""

    def __init__(self, budget: Budget, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self._budget = budget
        self.size = size
        self.loop = loop

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._budget.give_back(self)


class Waiter:
    """Who waits for room: a future of its own loop, and the room once there is some."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.hold: Hold | None = None

    def wake(self) -> None:
        """Say that there is room, or give that back where the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            assert self.hold is not None
            self.hold.__exit__()

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Budget:
    """Room for so many windows of so many bytes, for tasks of all loops; who comes first is served first."""

    def __init__(self, count: int, size: int) -> None:
        self._most_count = count
        self._most_size = size
        self._start()
        os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        self.count = self.size = 0
        self._waiters: deque[Waiter] = deque()
        self._holds: set[Hold] = set()
        self._returned: deque[Hold] = deque()
        self._lock = threading.Lock()

    async def hold(self, size: int) -> AbstractContextManager[None]:
        """Room for a window; one that is larger than all the room waits until there is no other."""
        size, loop = min(size, self._most_size), asyncio.get_running_loop()
        waiter = taken = None
        with self._lock:
            if not self._waiters and self._has_room(size):
                taken = self._take(size, loop)
            else:
                waiter = Waiter(size)
                self._waiters.append(waiter)
        self._settle()
        if waiter is None:
            assert taken is not None
            return taken
        try:
            while not waiter.future.done():
                self._give_back_of_closed()
                await asyncio.wait([waiter.future], timeout=LOOK_TIME)
        except BaseException:
            with self._lock:
                if waiter.hold is None:
                    self._waiters.remove(waiter)
            if waiter.hold is not None:
                waiter.hold.__exit__()
            self._settle()
            raise
        assert waiter.hold is not None
        return waiter.hold

    def give_back(self, hold: Hold) -> None:
        """Leave the room to the next; a second time is none."""
        self._returned.append(hold)
        self._settle()

    def _give_back_of_closed(self) -> None:
        """Give back what is held by tasks that will never go on."""
        with self._lock:
            self._returned.extend(hold for hold in self._holds if hold.loop.is_closed())
        self._settle()

    def _has_room(self, size: int) -> bool:
        return self.count < self._most_count and self.size + size <= self._most_size

    def _take(self, size: int, loop: asyncio.AbstractEventLoop) -> Hold:
        hold = Hold(self, size, loop)
        self._holds.add(hold)
        self.count += 1
        self.size += size
        return hold

    def _settle(self) -> None:
        """Count what was given back, and let in who has room now.

        A finalizer can give something back amid any of this, so that nobody waits for the lock here: whoever
        holds it settles when done.
        """
        while self._lock.acquire(blocking=False):
            let_in = []
            try:
                while self._returned:
                    hold = self._returned.popleft()
                    if hold in self._holds:
                        self._holds.remove(hold)
                        self.size -= hold.size
                        self.count -= 1
                while self._waiters and self._has_room(self._waiters[0].size):
                    waiter = self._waiters.popleft()
                    waiter.hold = self._take(waiter.size, waiter.loop)
                    let_in.append(waiter)
            finally:
                self._lock.release()
            for waiter in let_in:
                waiter.wake()
            if not self._returned:
                return


class Asking:
    """That a read asks for something, until the context ends."""

    def __init__(self, asked: Asked, loop: asyncio.AbstractEventLoop, names: set[str]) -> None:
        self._asked = asked
        self._names = [(loop, name) for name in names]
        self._end = loop.create_future()
        for name in self._names:
            asked[name] = self._end

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for name in self._names:
            del self._asked[name]
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
            self._end.set_result(None)


BUDGET = Budget(AWAITED_COUNT, AWAITED_SIZE)


class Awaited(Door):
    """Everything that waits is awaited, everything else is on threads beside the loop."""

    read_count = AWAITED_COUNT

    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """`store.get_many_async`."""
        if store.in_memory or not requests:
            return store.get_many(requests)
        return await store.get_many_async(requests)

    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """`store.get_parts_async`."""
        if store.in_memory or not requests:
            return store.get_parts(requests)
        return await store.get_parts_async(requests)

    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """Call it on one of the engine's threads, unless that takes longer than the work."""
        if size is not None and size <= SHORT_SIZE:
            found = function()
            await asyncio.sleep(0)  # others first, before the next of many
            return found
        return await COMPUTING.run(function)

    async def wait(self, function: Callable[[], T], *, finishes: bool = True) -> T:
        """Call on another thread what waits for a store."""
        return await WAITING.run(function, finishes=finishes)

    async def map(
        self, function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
    ) -> list[R]:
        """`function` of every item, in order, on the engine's threads or those that wait."""
        work = list(items)
        found: list[Any] = [None] * len(work)
        aside, at_once, length = WAITING, waiting_count or 1, 1
        if waiting_count is None:
            aside, at_once = COMPUTING, thread_count()
            length = max(1, len(work) // (PIECES * at_once))

        async def run(span: tuple[int, int]) -> None:
            piece = slice(*span)
            found[piece] = await aside.run(lambda: [function(item) for item in work[piece]])

        await self.each(run, [*self.spans(len(work), length)], at_once)
        return found

    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Await `act` of every item, in as many tasks."""
        if isinstance(items, Sequence):
            at_once = min(at_once, len(items))
        left = iter(items)

        async def work() -> None:
            for item in left:
                await act(item)

        if at_once <= 1:
            await work()
            return
        tasks = [asyncio.ensure_future(work()) for _ in range(at_once)]
        try:
            await asyncio.gather(*tasks)
        except (Exception, asyncio.CancelledError):
            for task in tasks:
                if not task.cancelling():  # a second time would be not to wait for what has begun
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def hold(self, size: int) -> AbstractContextManager[None]:
        """Room in what all reads of the process may hold."""
        return await BUDGET.hold(size)

    async def ask_once(self, asked: Asked, unknown: Callable[[], set[str]]) -> AbstractContextManager[None]:
        """Wait for the reads of this loop that ask for some of that."""
        loop, wanted = asyncio.get_running_loop(), unknown()
        if not wanted:
            return nullcontext()
        if others := {asked[loop, name] for name in wanted if (loop, name) in asked}:
            # Once: of what is not there, nothing is known afterwards either.
            await asyncio.wait(others)
            return nullcontext()
        return Asking(asked, loop, wanted)

    def spans(self, total: int, count: int) -> Iterator[tuple[int, int]]:
        """Spans of `count`."""
        for first in range(0, total, count):
            yield first, min(first + count, total)


AWAITED = Awaited()

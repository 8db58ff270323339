"""The scheduler for asyncio: reads and writes that never block an event loop.

Any number of event loops, in any threads, can use it at once, next to blocking calls. Requests to stores are
awaited, computation runs on the engine's threads, and writes run on threads of their own. When a task is
cancelled, no new step starts; the step that a thread is working on (one window of a read, one chunk of a
write) is finished first.
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

from zstore.base.locks import Lock
from zstore.base.waits import Waits
from zstore.engine.schedulers import (
    SHORT_SIZE,
    Act,
    ActTogether,
    InFlight,
    JoinedItem,
    Joining,
    Scheduler,
    enter_worker,
    proven,
    thread_count,
)
from zstore.storage.base import Parts, Request, Store, Values, in_thread

T = TypeVar("T")
R = TypeVar("R")

# The most that all awaited reads of this process have fetched and not decoded yet: windows (of at most
# WINDOW_SIZE bytes, or a single chunk) and bytes (unless a single window has more).
AWAITED_COUNT = 1024
AWAITED_SIZE = 256 << 20

# Seconds after which a task that waits for room looks for event loops that were closed during their reads.
LOOK_TIME = 1.0

# Threads for work that waits for stores, in the whole process: each writes a chunk, or opens or makes a node.
WAITING_COUNT = 32

# Pieces per thread that a long computation is cut into, so that it can be cancelled between them.
PIECES = 4


class LazyPool:
    """A thread pool for coroutines, made at its first use, and again in a forked child.

    An event loop's default executor is not used: other libraries run their work there, and waiting for them
    on the same threads can deadlock.
    """

    def __init__(self, name: str, count: Callable[[], int], enter: Callable[[], None] | None = None) -> None:
        self._name = name
        self._count = count
        self._enter = enter
        self._made: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = Lock()
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

    async def run(self, function: Callable[[], T], *, finishes: bool = True, waits: Waits | None = None) -> T:
        """Call the function on a thread of the pool and return its result.

        If the task is cancelled meanwhile, a call that has begun is waited for, unless `finishes` is false;
        the answers that it waits for are cancelled, where they are those of `waits`.
        """
        with self._lock:  # another thread may just change the number of threads, and end this pool
            called = self._pool().submit(function)
        waiting = asyncio.wrap_future(called)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(_take_error)  # asyncio complains of errors that nobody has looked at
            if waits is not None:
                waits.end()
            if not called.cancel() and finishes:
                await asyncio.wait([waiting])
            raise


def _take_error(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


COMPUTING = LazyPool("zstore-computing", lambda: thread_count(), enter_worker)
WAITING = LazyPool("zstore-waiting", lambda: WAITING_COUNT)


class Reservation:
    """A share of a `WindowBudget`, held until the context ends or its event loop is closed."""

    def __init__(self, budget: WindowBudget, size: int) -> None:
        self._budget = budget
        self.size = size
        self.loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[None] = self.loop.create_future()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._budget.give_back(self)

    def wake(self) -> None:
        """Tell the task that waits for it that it is granted."""
        if not self.granted.done():
            self.granted.set_result(None)


class WindowBudget:
    """A limit on windows and bytes in memory, shared by the tasks of all loops; first come, first served."""

    def __init__(self, count: int, size: int) -> None:
        self._most_count = count
        self._most_size = size
        self._start()
        os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        self.count = self.size = 0
        self._waiting: deque[Reservation] = deque()
        self._held: set[Reservation] = set()
        self._returned: deque[Reservation] = deque()
        self._lock = threading.Lock()

    async def reserve(self, size: int) -> AbstractContextManager[None]:
        """Reserve room for a window of `size` bytes; one above the limit waits until it is the only one."""
        mine = Reservation(self, min(size, self._most_size))
        with self._lock:
            if is_granted := not self._waiting and self._has_room(mine.size):
                self._take(mine)
            else:
                self._waiting.append(mine)
        self._settle()
        try:
            while not (is_granted or mine.granted.done()):
                self._give_back_of_closed()
                await asyncio.wait([mine.granted], timeout=LOOK_TIME)
        except BaseException:
            self.give_back(mine)
            raise
        return mine

    def give_back(self, reservation: Reservation) -> None:
        """Return a reservation, granted or not, to the budget; returning it again does nothing."""
        self._returned.append(reservation)
        self._settle()

    def _give_back_of_closed(self) -> None:
        """Return the reservations of tasks whose event loop was closed: those never run again."""
        with self._lock:
            self._returned.extend(held for held in self._held if held.loop.is_closed())
        self._settle()

    def _has_room(self, size: int) -> bool:
        return self.count < self._most_count and self.size + size <= self._most_size

    def _take(self, reservation: Reservation) -> None:
        self._held.add(reservation)
        self.count += 1
        self.size += reservation.size

    def _settle(self) -> None:
        """Take back returned reservations, and grant those that are waited for and fit now.

        A finalizer can return a reservation at any point in here, so nothing blocks on the lock: the thread
        that holds it runs the loop again for the others.
        """
        while self._lock.acquire(blocking=False):
            granted = []
            try:
                while self._returned:
                    reservation = self._returned.popleft()
                    if reservation in self._held:
                        self._held.remove(reservation)
                        self.size -= reservation.size
                        self.count -= 1
                    elif reservation in self._waiting:
                        self._waiting.remove(reservation)
                while self._waiting and self._has_room(self._waiting[0].size):
                    granted.append(self._waiting.popleft())
                    self._take(granted[-1])
            finally:
                self._lock.release()
            for reservation in granted:
                try:
                    reservation.loop.call_soon_threadsafe(reservation.wake)
                except RuntimeError:  # its loop is closed
                    self._returned.append(reservation)
            if not self._returned:
                return


class Flight:
    """The names that one read is requesting, marked as in flight until the context ends."""

    def __init__(self, in_flight: InFlight, loop: asyncio.AbstractEventLoop, names: set[str]) -> None:
        self._in_flight = in_flight
        self._names = [(loop, name) for name in names]
        self._end = loop.create_future()
        for name in self._names:
            in_flight[name] = self._end

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for name in self._names:
            del self._in_flight[name]
        with suppress(RuntimeError):  # the loop is closed, so no task waits for this
            self._end.set_result(None)


BUDGET = WindowBudget(AWAITED_COUNT, AWAITED_SIZE)


class AsyncScheduler(Scheduler):
    """Requests are awaited; computation and blocking calls run on threads, never on the event loop."""

    read_count = AWAITED_COUNT

    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """Await `store.get_many_async`."""
        if store.in_memory or not requests:
            return store.get_many(requests)
        values = await store.get_many_async(requests)
        return await in_thread(proven, store, requests, values) if None in values else values

    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """Await `store.get_parts_async`."""
        if store.in_memory or not requests:
            return store.get_parts(requests)
        parts = await store.get_parts_async(requests)
        return await in_thread(proven, store, requests, parts) if None in parts else parts

    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """Call the function on a thread of the engine, or here if switching threads would take longer."""
        if size is not None and size <= SHORT_SIZE:
            found = function()
            await asyncio.sleep(0)  # lets other tasks run between many short calls
            return found
        return await COMPUTING.run(function)

    async def wait(self, function: Callable[[], T], *, finishes: bool = True) -> T:
        """Call a function that blocks on a store, on a thread of its own."""
        return await WAITING.run(function, finishes=finishes)

    async def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        waiting_count: int | None = None,
        may_leave: bool = False,
    ) -> list[R]:
        """`function` of every item, in order, on the engine's threads or on those that wait for stores."""
        work = list(items)
        found: list[Any] = [None] * len(work)
        pool, at_once, length = WAITING, waiting_count or 1, 1
        if waiting_count is None:
            pool, at_once = COMPUTING, thread_count()
            length = max(1, len(work) // (PIECES * at_once))

        async def run(span: tuple[int, int]) -> None:
            piece, waits = slice(*span), Waits()

            def act() -> list[R]:
                with waits.entered():
                    return [function(item) for item in work[piece]]

            found[piece] = await pool.run(act, waits=waits)

        await self.each(run, [*self.spans(len(work), length)], at_once)
        return found

    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Await `act` of every item, in at most `at_once` tasks."""
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
                if not task.cancelling():  # cancelling twice would not wait for a call that has begun
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def join(
        self, joining: Joining[T], item: T, act: Act[T], act_together: ActTogether[T] | None
    ) -> None:
        """Handle together the items that tasks of one loop await in the same turn."""
        if act_together is None:
            await act(item)
            return
        loop = asyncio.get_running_loop()
        members = joining.setdefault(loop, [])
        member = JoinedItem(item, loop.create_future())
        members.append(member)
        try:
            await asyncio.sleep(0)  # lets the others of this turn join
        except asyncio.CancelledError:
            member.ended.cancel()
            raise
        if joining.get(loop) is members:
            del joining[loop]
            members[:] = [each for each in members if each.is_awaited]
            if len(members) > 1:
                members[0].task = asyncio.ensure_future(_act_together(members, act_together))
        if len(members) == 1:
            await act(item)
            return
        try:
            is_done = await member.ended
        except asyncio.CancelledError:
            if member.ended.done() and not member.ended.cancelled():
                member.ended.exception()  # asyncio complains of errors that nobody has looked at
            if not any(each.is_awaited for each in members):
                task = members[0].task
                task.cancel()
                await asyncio.wait([task])
            raise
        if not is_done:
            await act(item)

    async def reserve(self, size: int) -> AbstractContextManager[None]:
        """Reserve room in the budget of all awaited reads of the process."""
        return await BUDGET.reserve(size)

    async def single_flight(
        self, in_flight: InFlight, unknown: Callable[[], set[str]]
    ) -> AbstractContextManager[None]:
        """Wait for the reads of this loop that are requesting some of the same names."""
        loop, wanted = asyncio.get_running_loop(), unknown()
        if not wanted:
            return nullcontext()
        if others := {in_flight[loop, name] for name in wanted if (loop, name) in in_flight}:
            # Waiting once is enough: a name that does not exist is still unknown afterwards.
            await asyncio.wait(others)
            return nullcontext()
        return Flight(in_flight, loop, wanted)

    def spans(self, total: int, count: int) -> Iterator[tuple[int, int]]:
        """Spans of at most `count`, so that a cancelled task ends after a short one."""
        for first in range(0, total, count):
            yield first, min(first + count, total)


async def _act_together(members: Sequence[JoinedItem[T]], act: ActTogether[T]) -> None:
    try:
        await act(members)
    except asyncio.CancelledError:
        for member in members:
            member.ended.cancel()
        raise
    except Exception:
        pass  # each finds out by itself whose it is
    for member in members:
        if member.is_awaited:
            member.ended.set_result(False)


ASYNC = AsyncScheduler()

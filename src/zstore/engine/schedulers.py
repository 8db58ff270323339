"""The engine's threads, and the steps of a read or a write on them: blocking, or awaited on an event loop.

The engine's reads and writes are written once, as coroutines that await methods of a `Scheduler` and nothing
else. With the `BLOCKING` scheduler such a coroutine never suspends, so `drive` runs it to its end without an
event loop; `zstore.engine.awaiting` has the scheduler for asyncio.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from zstore._ext.engine.transfer import hint_at_thrash, limit_chunks
from zstore.base.limits import read_count
from zstore.base.system import memory_size, processor_count
from zstore.base.waits import HEARING, LeftError, Waits, current_waits
from zstore.storage.base import Parts, Request, Store, Values, drive

# Threads, and memory for decoded chunks: settings of the process

T = TypeVar("T")
R = TypeVar("R")

# The cache of decoded chunks has the n-th part of the memory, between two sizes in bytes.
CACHE_PART = 32
CACHE_SIZES = 128 << 20, 512 << 20
# The log has a hint once so many chunks were decoded again for want of room.
THRASH_COUNT = 1000

log = logging.getLogger("zstore")

_chosen: int | None = None
_inside = threading.local()


def thread_count() -> int:
    """The most threads that one read or write uses: by `set_threads`, ZSTORE_THREADS, or one for each CPU.

    Raises
        ValueError: ZSTORE_THREADS is no whole number of 1 or more.
    """
    global _chosen
    if _chosen is None:
        _chosen = read_count("ZSTORE_THREADS", processor_count(), least=1)
    return _chosen


def set_threads(count: int | None) -> None:
    """Use at most `count` threads per read or write from now on; None goes back to the default.

    Raises
        ValueError: fewer than one.
    """
    global _chosen
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ValueError(f"thread count {count!r}, expected 1 or more")
    _chosen = count


_END: Any = object()


class Crew(Generic[T]):
    """Threads that call `act` for items, in their order, until there are none left or one has failed.

    A caller who is interrupted (by Ctrl-C) has what the threads wait for cancelled, and waits until none is
    working. With `may_leave`, those that wait in `ask` for what nobody can cancel are left behind: they do
    nothing more with the answer.
    """

    def __init__(
        self, act: Callable[[T], object], items: Iterable[T], *, may_leave: bool, may_block: bool
    ) -> None:
        self._act = act
        self._items = enumerate(items)
        self._may_leave = may_leave
        outer = current_waits()
        self._waits = outer or Waits(may_block=may_block)
        self._is_outermost = outer is None
        self._changed = threading.Condition()
        # Threads that have an item: those that work on it, and those that wait for an answer about it.
        self._working = self._waiting = 0
        self._ends = self._is_left = False
        # The number of the first item that failed, and its error.
        self._failure: tuple[int, BaseException] | None = None
        self._above: Crew[Any] | None = getattr(_inside, "crew", None)
        self._below: set[Crew[Any]] = set()

    def run(self, count: int, meanwhile: Callable[[], R]) -> R:
        """Do all items on `count` threads and `meanwhile` on the calling one, whose result it returns.

        Raises
            Exception: what `meanwhile` raised, which leaves the threads; else the first item that failed.
        """
        threads = [
            threading.Thread(target=copy_context().run, args=(self._work,), name="zstore-working")
            for _ in range(count)
        ]
        if self._above is not None:
            self._above._below.add(self)
        self._waits.thread_count = max(count, self._waits.thread_count)
        try:
            for thread in threads:
                thread.start()
            found = meanwhile()
            with self._changed:
                while not self._changed.wait_for(
                    lambda: self._is_left or (self._ends and not (self._working or self._waiting)), HEARING
                ):
                    pass
        except BaseException:
            self._leave()
            raise
        finally:
            if self._above is not None:
                self._above._below.discard(self)
        if self._is_left:
            raise LeftError
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure[1]
        return found

    def _leave(self) -> None:
        """Cancel all answers, and wait until no thread is working."""
        if self._is_outermost:
            self._waits.end()
        with self._changed:
            self._ends = True
            self._is_left = self._may_leave
        for crew in [*self._below]:
            crew._leave()
        with self._changed:
            self._changed.wait_for(lambda: not self._working and (self._is_left or not self._waiting))

    def _work(self) -> None:
        enter_worker()
        self._waits.enter()
        _inside.crew = self if self._may_leave else None
        number, item = 0, _END
        with self._changed:
            self._working += 1
        try:
            while True:
                with self._changed:
                    number, item = (0, _END) if self._ends else next(self._items, (0, _END))
                if item is _END:
                    break
                self._act(item)
        except BaseException as error:
            with self._changed:
                if self._failure is None or number < self._failure[0]:
                    self._failure = number, error
        finally:
            with self._changed:
                self._working -= 1
                self._ends = True
                self._changed.notify_all()

    def ask(self, request: Callable[[], R]) -> R:
        """The answer to a request; a caller who is interrupted meanwhile does not wait for this thread."""
        with self._changed:
            self._working -= 1
            self._waiting += 1
            if self._ends:
                self._changed.notify_all()
        try:
            return request()
        finally:
            with self._changed:
                self._waiting -= 1
                self._working += 1
                if self._is_left:
                    raise LeftError


def _run_each(
    act: Callable[[T], object],
    items: Iterable[T],
    waiting_count: int | None,
    *,
    may_leave: bool,
    may_block: bool = False,
) -> None:
    """Call `act` for every item, on `waiting_count` threads, or on those that the engine may use here."""
    count = thread_count() if waiting_count is None else waiting_count
    if isinstance(items, Sequence):
        count = min(count, len(items))
    if count <= 1 or (waiting_count is None and getattr(_inside, "is_worker", False)):
        for item in items:
            act(item)
    else:
        Crew(act, items, may_leave=may_leave, may_block=may_block).run(count, _nothing)


def map_threads(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    waiting_count: int | None = None,
    only_asks: bool = False,
) -> list[R]:
    """`function` of every item, in order, on `thread_count()` threads; the first error stops the rest.

    On a thread of such a crew it runs without further threads, so that nested calls do not multiply them.
    Work that mostly waits gets `waiting_count` threads, even there. With `only_asks`, the calls change
    nothing, so that a caller who is interrupted does not wait for their answers.
    """
    work = list(items)
    found: list[Any] = [None] * len(work)

    def one(number: int) -> None:
        call = partial(function, work[number])
        found[number] = _answer(call) if only_asks else call()

    _run_each(one, range(len(work)), waiting_count, may_leave=only_asks)
    return found


def beside(ask: Callable[[], R], act: Callable[[], T]) -> tuple[R, T]:
    """The answer that `ask` gets on a thread of its own, and what `act` does meanwhile on the calling one.

    `ask` changes nothing: where `act` fails, or its caller is interrupted, nobody waits for the answer.
    """
    found: list[R] = []
    crew = Crew(lambda call: found.append(_answer(call)), [ask], may_leave=True, may_block=False)
    done = crew.run(1, act)
    return found[0], done


def _nothing() -> None:
    """Do nothing."""


def enter_worker() -> None:
    """Mark the calling thread as one of a crew, on which `map_threads` starts no further threads."""
    _inside.is_worker = True


def default_cache_size() -> int:
    """Bytes for the cache of decoded chunks, where nobody has set them."""
    least, most = CACHE_SIZES
    return min(max(least, memory_size() // CACHE_PART), most)


def set_cache_size(size: int | None) -> None:
    """Keep at most `size` bytes of decoded chunks, of all arrays of this process together; None: the default.

    Chunks in a directory, of native codecs, are kept when they are read in part for the second time (or the
    first, if all of one had to be decoded for a narrow box and there is room), and are used again only while
    their file is the same (device, inode, size and times). Chunks make room for others that are read again
    sooner, and all of an array's go with the array. The default is ZSTORE_CACHE_SIZE, else a 32nd of the
    memory, from 128 to 512 MiB; 0 keeps none.

    Raises
        ValueError: a negative size, or ZSTORE_CACHE_SIZE is no whole number.
    """
    if size is None:
        size = read_count("ZSTORE_CACHE_SIZE", default_cache_size(), least=0)
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"cache size {size!r}, expected 0 or more bytes")
    limit_chunks(size)


def _say_thrash() -> None:
    log.warning(
        "chunks are decoded again and again, because the cache of decoded chunks has no room for all that "
        "are read in part; zstore.set_cache_size(bytes) gives it more, zstore.batches reads samples without"
    )


set_cache_size(None)
hint_at_thrash(THRASH_COUNT, _say_thrash)


# Schedulers

Act = Callable[[T], Coroutine[Any, Any, None]]
# (event loop, name) that some read is requesting now -> a future that ends once the answer is there.
InFlight = dict[tuple[Any, str], Any]


@dataclass
class JoinedItem(Generic[T]):
    """An item that is done together with others.

    ended  the future of who awaits it
    task   of the first member, the task that does all of them
    """

    item: T
    ended: Any
    task: Any = None

    @property
    def is_awaited(self) -> bool:
        """Whether anybody still waits for it."""
        return not self.ended.done()

    def end(self, error: Exception | None = None) -> None:
        """Mark the item as done, or as failed by itself."""
        if self.is_awaited and error is None:
            self.ended.set_result(True)
        elif self.is_awaited:
            self.ended.set_exception(error)


ActTogether = Callable[[Sequence[JoinedItem[T]]], Coroutine[Any, Any, None]]
# Event loop -> those who have joined in its present turn.
Joining = dict[Any, list[JoinedItem[T]]]

# The selections that are read at the same time from a store with latency, where they cannot share requests.
READ_COUNT = 32

# Native codecs decode this many bytes (in about 50 µs, without the GIL) in less time than it takes to hand
# the work to a thread and to take its result.
SHORT_SIZE = 64 << 10

_NOTHING: AbstractContextManager[None] = nullcontext()


def proven(store: Store, requests: Sequence[Request], values: list[T]) -> list[T]:
    """A store's values for some requests, after those that it does not have are proven to be missing."""
    missing = [key for (key, _), value in zip(requests, values, strict=True) if value is None]
    if missing:
        store.check_missing(missing)
    return values


class Scheduler:
    """Runs the steps of reads and writes, on the calling thread and on threads that it waits for."""

    read_count: int = READ_COUNT
    """The most selections that are read at the same time from a store with latency."""

    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """The result of `store.get_many`, with missing chunks proven to be missing."""
        return _answer(lambda: proven(store, requests, store.get_many(requests)))

    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """The result of `store.get_parts`, with missing chunks proven to be missing."""
        return _answer(lambda: proven(store, requests, store.get_parts(requests)))

    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """The result of a function that computes, or works on files.

        `size` says that all it does is to decode that many bytes with native codecs.
        """
        return function()

    async def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        waiting_count: int | None = None,
        may_leave: bool = False,
    ) -> list[R]:
        """`function` of every item, in order, as by `map_threads`.

        `may_leave` says that the calls change nothing but what they return.
        """
        return map_threads(function, items, waiting_count=waiting_count, only_asks=may_leave)

    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Await `act` of every item of a read, `at_once` at a time; the first error stops the rest.

        `waits=False` says that they compute rather than wait: then no more of them run at the same time than
        the engine has threads.
        """
        if at_once <= 1 or (isinstance(items, Sequence) and len(items) <= 1):
            for item in items:
                await act(item)
            return
        waiting_count = at_once if waits else None
        _run_each(lambda item: drive(act(item)), items, waiting_count, may_leave=True, may_block=True)

    async def join(
        self, joining: Joining[T], item: T, act: Act[T], act_together: ActTogether[T] | None
    ) -> None:
        """Await `act` of the item, or `act_together` of all that join in the same turn of an event loop.

        `act_together` ends each member that is still awaited. Of those that it does not end, and of all that
        are left when it raises, `act` is awaited one by one, so that nobody gets the error of another.
        """
        await act(item)  # a thread has no turns

    async def reserve(self, size: int) -> AbstractContextManager[None]:
        """Reserve memory for a window of `size` bytes, until the context ends."""
        return _NOTHING  # a blocking caller has no more than a few windows

    async def single_flight(
        self, in_flight: InFlight, unknown: Callable[[], set[str]]
    ) -> AbstractContextManager[None]:
        """Let only one of several concurrent reads request the same names, until the context ends.

        `unknown` gives the names to request. If other reads are requesting some of them, this waits until
        those have their answer; threads that read the same each make their requests.
        """
        return _NOTHING

    def spans(self, total: int, count: int) -> Iterable[tuple[int, int]]:
        """(begin, end) of the spans of `total` items to give to one kernel call each.

        A scheduler whose tasks can be cancelled gives spans of at most `count` items.
        """
        return [(0, total)]


def as_they_come(values: Iterator[T]) -> Iterator[T]:
    """The values of an iterator that waits for a store; a caller who is interrupted meanwhile leaves it."""
    while True:
        found = _answer(lambda: next(values, _END))
        if found is _END:
            return
        yield found
        del found  # while the next one is waited for, nobody holds it


def _answer(request: Callable[[], T]) -> T:
    crew: Crew[Any] | None = getattr(_inside, "crew", None)
    return request() if crew is None else crew.ask(request)


BLOCKING = Scheduler()

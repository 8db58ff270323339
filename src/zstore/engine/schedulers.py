"""The engine's threads, and the steps of a read or a write on them: blocking, or awaited on an event loop.

The engine's reads and writes are written once, as coroutines that await methods of a `Scheduler` and nothing
else. With the `BLOCKING` scheduler such a coroutine never suspends, so `drive` runs it to its end without an
event loop; `zstore.engine.awaiting` has the scheduler for asyncio.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from zstore._ext.engine.transfer import limit_chunks
from zstore.base.limits import processor_count, read_count
from zstore.errors import say_no_memory
from zstore.storage.base import Parts, Request, Store, Values

# Threads, and memory for decoded chunks: settings of the process

T = TypeVar("T")
R = TypeVar("R")

CACHE_SIZE = 128 << 20

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


def map_threads(
    function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
) -> list[R]:
    """`function` of every item, in order, on `thread_count()` threads; the first error stops the rest.

    On a thread of such a pool it runs without further threads, so that nested calls do not multiply them.
    Work that mostly waits gets `waiting_count` threads, even there.
    """
    work = list(items)
    is_waiting = waiting_count is not None
    threads = min(thread_count() if waiting_count is None else waiting_count, len(work))
    if threads <= 1 or (getattr(_inside, "is_worker", False) and not is_waiting):
        return [function(item) for item in work]
    # Imported here: reads and writes by native codecs never need it.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads, initializer=enter_worker) as pool:
        futures = [pool.submit(function, item) for item in work]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def enter_worker() -> None:
    """Mark the calling thread as one of a pool, on which `map_threads` starts no further threads."""
    _inside.is_worker = True


def set_cache_size(size: int | None) -> None:
    """Keep at most `size` bytes of decoded chunks, of all arrays of this process together; None: the default.

    Chunks in a directory, of native codecs, are kept when they are read in part for the second time, and are
    used again only while their file is the same (device, inode, size and times). Chunks that are used less
    make room for others, and all of an array's go with the array. The default is ZSTORE_CACHE_SIZE, else
    128 MiB; 0 keeps none.

    Raises
        ValueError: a negative size, or ZSTORE_CACHE_SIZE is no whole number.
    """
    if size is None:
        size = read_count("ZSTORE_CACHE_SIZE", CACHE_SIZE, least=0)
    if size < 0:
        raise ValueError(f"cache size {size}, expected 0 or more bytes")
    limit_chunks(size)


set_cache_size(None)


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

_END: Any = object()
_NOTHING: AbstractContextManager[None] = nullcontext()


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits the `BLOCKING` scheduler only, and so never suspends; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    except (SystemError, RuntimeError, ValueError) as error:
        say_no_memory(error)
        raise
    coroutine.close()
    raise AssertionError("the coroutine awaited something other than the blocking scheduler")


def proven(store: Store, requests: Sequence[Request], values: list[T]) -> list[T]:
    """A store's values for some requests, after those that it does not have are proven to be missing."""
    missing = [key for (key, _), value in zip(requests, values, strict=True) if value is None]
    if missing:
        store.check_missing(missing)
    return values


class Scheduler(ABC):
    """Runs the steps of reads and writes: requests to stores, computation, and work on files."""

    read_count: int = READ_COUNT
    """The most selections that are read at the same time from a store with latency."""

    @abstractmethod
    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """The result of `store.get_many`."""

    @abstractmethod
    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """The result of `store.get_parts`."""

    @abstractmethod
    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """The result of a function that computes, or works on files.

        `size` says that all it does is to decode that many bytes with native codecs.
        """

    @abstractmethod
    async def map(
        self, function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
    ) -> list[R]:
        """`function` of every item, in order; the same as `zstore.engine.schedulers.map_threads`."""

    @abstractmethod
    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Await `act` of every item, `at_once` at a time; the first error stops the rest.

        `waits=False` says that they compute rather than wait: then no more of them run at the same time than
        the engine has threads.
        """

    @abstractmethod
    async def join(
        self, joining: Joining[T], item: T, act: Act[T], act_together: ActTogether[T] | None
    ) -> None:
        """Await `act` of the item, or `act_together` of all that join in the same turn of an event loop.

        `act_together` ends each member that is still awaited. Of those that it does not end, and of all that
        are left when it raises, `act` is awaited one by one, so that nobody gets the error of another.
        """

    @abstractmethod
    async def reserve(self, size: int) -> AbstractContextManager[None]:
        """Reserve memory for a window of `size` bytes, until the context ends."""

    @abstractmethod
    async def single_flight(
        self, in_flight: InFlight, unknown: Callable[[], set[str]]
    ) -> AbstractContextManager[None]:
        """Let only one of several concurrent reads request the same names, until the context ends.

        `unknown` gives the names to request. If other reads are requesting some of them, this waits until
        those have their answer.
        """

    @abstractmethod
    def spans(self, total: int, count: int) -> Iterable[tuple[int, int]]:
        """(begin, end) of the spans of `total` items to give to one kernel call each.

        A scheduler whose tasks can be cancelled gives spans of at most `count` items.
        """


class BlockingScheduler(Scheduler):
    """Runs everything on the calling thread, and on threads that it waits for."""

    async def get_many(self, store: Store, requests: Sequence[Request]) -> Values:
        """The result of `store.get_many`."""
        return proven(store, requests, store.get_many(requests))

    async def get_parts(self, store: Store, requests: Sequence[Request]) -> Parts:
        """The result of `store.get_parts`."""
        return proven(store, requests, store.get_parts(requests))

    async def run(self, function: Callable[[], T], size: int | None = None) -> T:
        """Call the function."""
        return function()

    async def map(
        self, function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
    ) -> list[R]:
        """`function` of every item, in order, by `map_threads`."""
        return map_threads(function, items, waiting_count=waiting_count)

    async def each(self, act: Act[T], items: Iterable[T], at_once: int, *, waits: bool = True) -> None:
        """Drive `act` of every item, on `at_once` threads."""
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

    async def join(
        self, joining: Joining[T], item: T, act: Act[T], act_together: ActTogether[T] | None
    ) -> None:
        """`act` of the item: a thread has no turns that others could join in."""
        await act(item)

    async def reserve(self, size: int) -> AbstractContextManager[None]:
        """No reservation: a blocking caller holds no more than a few windows."""
        return _NOTHING

    async def single_flight(
        self, in_flight: InFlight, unknown: Callable[[], set[str]]
    ) -> AbstractContextManager[None]:
        """No waiting: threads that read the same each make their requests."""
        return _NOTHING

    def spans(self, total: int, count: int) -> Iterable[tuple[int, int]]:
        """One span of everything."""
        return [(0, total)]


BLOCKING = BlockingScheduler()

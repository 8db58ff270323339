"""How much of the machine the engine uses: its threads, and the memory for chunks that are kept decoded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

from zstore._ext.engine.transfer import limit_chunks
from zstore.base.settings import processor_count, read_count

T = TypeVar("T")
R = TypeVar("R")

CACHE_SIZE = 128 << 20

_chosen: int | None = None
_inside = threading.local()


def thread_count() -> int:
    """The most threads that one read or write uses: `set_threads`, else ZSTORE_THREADS, else the CPUs.

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
    _chosen = None if count is None else _checked(count)


def _checked(count: int) -> int:
    if count < 1:
        raise ValueError(f"thread count {count}, expected 1 or more")
    return count


def map_threads(
    function: Callable[[T], R], items: Iterable[T], *, waiting_count: int | None = None
) -> list[R]:
    """`function` of every item, in order, on the engine's number of threads; the first error stops the rest.

    Inside a call that is already one of many, it runs on the calling thread: threads never multiply. Work
    that mostly waits gets `waiting_count` threads instead, wherever it runs.
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
    """Say that the calling thread is one of many: what it maps, it does by itself."""
    _inside.is_worker = True


_END: Any = object()


def ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """The items, each being made on another thread while the one before it is used."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield item


def set_cache_size(size: int | None) -> None:
    """Keep at most `size` bytes of decoded chunks, of all arrays of this process together; None: the default.

    A chunk is kept when it was read in part for the second time, for native codecs and chunks in a
    directory, and used again only while its file is the same (device, inode, size and times). What is kept
    goes when others are used more, and with its array. The default is ZSTORE_CACHE_SIZE, else 128 MiB; 0
    keeps none.

    Raises
        ValueError: fewer than none, or ZSTORE_CACHE_SIZE is no whole number.
    """
    if size is None:
        size = read_count("ZSTORE_CACHE_SIZE", CACHE_SIZE, least=0)
    if size < 0:
        raise ValueError(f"cache size {size}, expected 0 or more bytes")
    limit_chunks(size)


set_cache_size(None)

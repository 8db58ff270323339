"""The engine's threads, and its memory for decoded chunks: settings of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from zstore._ext.engine.transfer import limit_chunks
from zstore.base.settings import processor_count, read_count

T = TypeVar("T")
R = TypeVar("R")

CACHE_SIZE = 128 << 20

_chosen: int | None = None
_inside = threading.local()


def thread_count() -> int:
    """The most threads that one read or write uses: as `set_threads` or ZSTORE_THREADS says, else the CPUs.

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
    """Mark the calling thread as one of a pool: what it maps, it runs without further threads."""
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

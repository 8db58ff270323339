"""Work that an event loop waits for without doing it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

__all__ = ["CODING", "STORING", "Aside"]

P = ParamSpec("P")
T = TypeVar("T")

# Each waits for another thread most of the time, or runs kernels, which have threads of their own.
THREADS = 32


class Aside:
    """Threads beside a loop, made when first needed and again in a process that was forked.

    Not the loop's own executor: zarr-python's stores do their work there, and whoever waits for them in the
    same threads may wait for ever.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._pool = None  # its threads stayed with the parent

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function gives, called on another thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=self._name)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *args, **kwargs))


# Chunks are decoded on the one, which may wait for a store that works on the other.
CODING = Aside("zstore-coding")
STORING = Aside("zstore-storing")

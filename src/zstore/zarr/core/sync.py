"""`zarr.core.sync`: blocking calls of coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["collect_aiterator", "sync"]

T = TypeVar("T")


def sync(coro: Coroutine[Any, Any, T], loop: Any = None, timeout: float | None = None) -> T:
    """The result of a coroutine, run to its end on a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coro).result(timeout)


async def _collect(data: AsyncIterator[T]) -> tuple[T, ...]:
    return tuple([item async for item in data])


def collect_aiterator(data: AsyncIterator[T]) -> tuple[T, ...]:
    """All items of an iterator that is awaited."""
    return sync(_collect(data))

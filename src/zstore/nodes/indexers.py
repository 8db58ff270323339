"""The other kinds of selections of an array: `oindex`, `vindex` and `blocks`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import numpy.typing as npt

from zstore.engine.schedulers import BLOCKING, Scheduler
from zstore.storage.base import drive

Items: TypeAlias = npt.NDArray[Any]


def async_scheduler() -> Scheduler:
    """The scheduler for event loops."""
    # Imported here because blocking calls never need asyncio.
    from zstore.engine.awaiting import ASYNC

    return ASYNC


class Indexer:
    """Reads and writes an array by another kind of selection than numpy's own."""

    __slots__ = ("_read", "_write")

    def __init__(
        self,
        read: Callable[..., Coroutine[Any, Any, Items]],
        write: Callable[[Scheduler, Any, Any], Coroutine[Any, Any, None]],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, selection: Any) -> Items:
        return drive(self._read(BLOCKING, selection))

    def read(self, selection: Any, *, out: Items | None = None) -> Items:
        """Read the selected items, into `out` if it is not None; see `Array.read`."""
        return drive(self._read(BLOCKING, selection, out=out))

    def __setitem__(self, selection: Any, value: Any) -> None:
        drive(self._write(BLOCKING, selection, value))

    async def read_async(self, selection: Any) -> Items:
        """Read the selected items without blocking the event loop; see `Array.read_async`."""
        return await self._read(async_scheduler(), selection)

    async def write_async(self, selection: Any, value: Any) -> None:
        """Store `value` in the selected items without blocking the event loop; see `Array.write_async`."""
        await self._write(async_scheduler(), selection, value)

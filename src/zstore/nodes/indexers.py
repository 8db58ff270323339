"""Other ways to select from an array than numpy's, and the door of those who await."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import numpy.typing as npt

from zstore.engine.doors import CALLING, Door, drive

Items: TypeAlias = npt.NDArray[Any]


def awaited_door() -> Door:
    """The door for event loops."""
    # Imported here: who calls needs no event loop.
    from zstore.engine.awaiting import AWAITED

    return AWAITED


class Indexer:
    """Another way to select from an array: reading and writing by it."""

    __slots__ = ("_read", "_write")

    def __init__(
        self,
        read: Callable[..., Coroutine[Any, Any, Items]],
        write: Callable[[Door, Any, Any], Coroutine[Any, Any, None]],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, selection: Any) -> Items:
        return drive(self._read(CALLING, selection))

    def read(self, selection: Any, *, out: Items | None = None) -> Items:
        """What is selected, into `out` where that is given; see `Array.read`."""
        return drive(self._read(CALLING, selection, out=out))

    def __setitem__(self, selection: Any, value: Any) -> None:
        drive(self._write(CALLING, selection, value))

    async def read_async(self, selection: Any) -> Items:
        """What is selected; see `Array.read_async`."""
        return await self._read(awaited_door(), selection)

    async def write_async(self, selection: Any, value: Any) -> None:
        """Store `value` where is selected; see `Array.write_async`."""
        await self._write(awaited_door(), selection, value)

"""Stores in memory that are asked on the event loop, as those of buckets are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from zstore.base.byterange import ByteRange
from zstore.storage.base import Part, Parts, Request, Values
from zstore.storage.memory import MemoryStore

__all__ = ["AwaitedStore"]


class AwaitedStore(MemoryStore):
    """Counts requests, those under way, and how many rounds of them each task has waited for."""

    in_memory = False
    request_count = 64

    def __init__(self, *, has_versions: bool = True, pause: float = 0) -> None:
        super().__init__()
        self.has_versions = has_versions
        self.pause = pause
        self.count = self.busy = self.most_busy = 0
        self.rounds: dict[str, int] = {}
        self.on_ask: Callable[[], None] | None = None

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        parts: Parts = []
        for key, byte_range in requests:
            value = self._values.get(key)
            begin, end = (byte_range or ByteRange(0)).resolve(len(value or b""))
            version = str(id(value)) if self.has_versions else None
            parts.append(None if value is None else Part(memoryview(value)[begin:end], len(value), version))
        return parts

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        if self.on_ask is not None:
            self.on_ask()
        task = asyncio.current_task()
        assert task is not None
        self.rounds[task.get_name()] = self.rounds.get(task.get_name(), 0) + 1
        self.count += len(requests)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            await asyncio.sleep(self.pause)
            return self.get_parts(requests)
        finally:
            self.busy -= 1

    async def get_many_async(self, requests: Sequence[Request]) -> Values:
        return [None if part is None else part.data for part in await self.get_parts_async(requests)]

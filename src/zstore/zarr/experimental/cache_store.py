"""`zarr.experimental.cache_store`: a store whose values are kept in another store, too."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from zstore.base.byterange import AtMost, ByteRange
from zstore.base.locks import Lock
from zstore.storage.base import Entry
from zstore.storage.base import Store as Held
from zstore.zarr.storage import Store

__all__ = ["CacheStore"]


class KeptInStore(Held):
    """A store whose whole values are kept in another, the last used ones; parts are always asked for.

    fresh_for   seconds for which a kept value is believed
    limit_size  bytes of kept values
    keeps_put   whether values that are written are kept, too
    """

    def __init__(
        self, source: Held, kept: Held, fresh_for: float, limit_size: float, keeps_put: bool
    ) -> None:
        self.source, self.kept = source, kept
        self.fresh_for, self.limit_size, self.keeps_put = fresh_for, limit_size, keeps_put
        self.read_only, self.request_count = source.read_only, source.request_count
        # When each kept value was read or written, and its size.
        self.held: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._guard = Lock()

    @property
    def url(self) -> str:
        """The URL of the store behind it."""
        return self.source.url

    @property
    def kept_size(self) -> int:
        """The bytes of kept values."""
        return sum(size for _, size in self.held.values())

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        is_whole = byte_range is None or isinstance(byte_range, AtMost)
        with self._guard:
            since, _ = self.held.get(key, (-inf, 0))
            value = self.kept.get(key) if since + self.fresh_for > time.monotonic() else None
        if value is None:
            value = self.source.get(key, byte_range)
            limit = inf if byte_range is None else byte_range.size or 0
            if is_whole and value is not None and len(value) < limit:
                self._keep(key, value)
            return value
        begin, end = (0, len(value)) if byte_range is None else byte_range.resolve(len(value))
        return memoryview(value)[begin:end]

    def _keep(self, key: str, value: bytes | bytearray | memoryview) -> None:
        with self._guard:
            self.held.pop(key, None)
            if len(value) > self.limit_size:
                self.kept.delete(key)
                return
            self.kept.put(key, value)
            self.held[key] = time.monotonic(), len(value)
            while self.kept_size > self.limit_size:
                self.kept.delete(self.held.popitem(last=False)[0])

    def _forget(self, key: str) -> None:
        with self._guard:
            self.held.pop(key, None)
            self.kept.delete(key)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self._forget(key)
        self.source.put(key, value)
        if self.keeps_put:
            self._keep(key, value)

    def delete(self, key: str) -> None:
        self._forget(key)
        self.source.delete(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        return self.source.list(prefix)

    def entry(self, key: str) -> Entry | None:
        return self.source.entry(key)

    def lock(self, key: str) -> AbstractContextManager[None]:
        return self.source.lock(key)


class CacheStore(Store):
    """A store whose values are kept in another store of this process; see `zstore.CachedStore` for the disk.

    Raises
        ValueError: an age that is no number and not "infinity".
    """

    def __init__(
        self,
        store: Store,
        *,
        cache_store: Store,
        max_age_seconds: int | str = "infinity",
        max_size: int | None = None,
        cache_set_data: bool = True,
    ) -> None:
        if isinstance(max_age_seconds, str) and max_age_seconds != "infinity":
            raise ValueError(f"max_age_seconds is {max_age_seconds!r}; expected seconds, or 'infinity'")
        self.cache_store, self.max_age_seconds, self.max_size = cache_store, max_age_seconds, max_size
        fresh_for = inf if isinstance(max_age_seconds, str) else max_age_seconds
        limit = inf if max_size is None else max_size
        self._kept = KeptInStore(store.held, cache_store.held, fresh_for, limit, cache_set_data)
        super().__init__(self._kept)

    def cache_info(self) -> dict[str, Any]:
        """The settings, and the number and bytes of kept values."""
        return {
            "cache_store_type": type(self.cache_store).__name__,
            "max_age_seconds": self.max_age_seconds,
            "max_size": self.max_size,
            "current_size": self._kept.kept_size,
            "cache_set_data": self._kept.keeps_put,
            "tracked_keys": len(self._kept.held),
            "cached_keys": len(self._kept.held),
        }

    async def clear_cache(self) -> None:
        """Remove all that is kept."""
        await self.cache_store.clear()
        self._kept.held.clear()

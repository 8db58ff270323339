"""Which units of a job are done, with what they gave back, kept in a store until the job ends."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from time import monotonic
from typing import Any

import numpy as np

from zstore.storage.base import Store, join_key

__all__ = ["Journal"]

# What is held back before it is written.
WAITING_SECONDS = 0.5
WAITING_SIZE = 16 << 20

Items = np.ndarray[Any, np.dtype[Any]]


class Journal:
    """The units that are done, below a prefix of a store; each job there has a name.

    They are written now and then: a job that takes no longer than to make a few of them again has none.
    """

    def __init__(self, store: Store, prefix: str, job: str) -> None:
        self._store = store
        self._all = prefix
        self._prefix = join_key(prefix, job)
        self._is_new = not any(True for _ in store.list(self._prefix))
        self._waiting: dict[str, Sequence[Items]] = {}
        self._waiting_size = 0
        self._written = monotonic()

    def put(self, unit: str, parts: Sequence[Items]) -> None:
        """Keep what a unit gave back, before long."""
        self._waiting[unit] = parts
        self._waiting_size += sum(part.nbytes for part in parts)
        if self._waiting_size > WAITING_SIZE or monotonic() - self._written > WAITING_SECONDS:
            self.write()

    def write(self) -> None:
        """Keep what waits now."""
        while self._waiting:
            unit = next(iter(self._waiting))
            parts = [np.ascontiguousarray(part).tobytes() for part in self._waiting[unit]]
            self._store.put(join_key(self._prefix, unit), b"".join([b"\n", *parts]))
            del self._waiting[unit]
        self._waiting_size, self._written = 0, monotonic()

    def get(self, unit: str, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> list[Items] | None:
        """What a unit gave back; None where it is not known to be done."""
        value = None if self._is_new else self._store.get(join_key(self._prefix, unit))
        counts = [prod(shape) for shape in shapes]
        if value is None or len(value) != 1 + sum(counts) * dtype.itemsize:
            return None
        items = np.frombuffer(bytes(value), dtype, offset=1)
        parts = np.split(items, np.cumsum(counts)[:-1]) if counts else []
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def drop(self) -> None:
        """Forget this job, and every other one below the prefix that was given up."""
        self._waiting.clear()
        self._store.delete_prefix(self._all)

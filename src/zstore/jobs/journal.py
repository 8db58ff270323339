"""Which units of a job are done, with what they came to, kept in a store until the job ends."""

from __future__ import annotations

from time import monotonic

from zstore.storage.base import Store, join_key

# What is held back before it is written.
WAITING_SECONDS = 0.5
WAITING_SIZE = 16 << 20


class Journal:
    """The units that are done, below a prefix of a store.

    They are written now and then: a job that takes no longer than to make a few of them again has none.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._is_new = not any(True for _ in store.list(self._prefix))
        self._waiting: dict[str, bytes] = {}
        self._waiting_size = 0
        self._written = monotonic()

    def put(self, unit: str, data: bytes) -> None:
        """Keep that a unit is done, and what it came to, before long."""
        self._waiting[unit] = data
        self._waiting_size += len(data)
        if self._waiting_size > WAITING_SIZE or monotonic() - self._written > WAITING_SECONDS:
            self.write()

    def write(self) -> None:
        """Keep what waits now."""
        while self._waiting:
            unit, data = next(iter(self._waiting.items()))
            # No value is empty: some stores do not know those from none.
            self._store.put(join_key(self._prefix, unit), b"\n" + data)
            del self._waiting[unit]
        self._waiting_size, self._written = 0, monotonic()

    def get(self, unit: str) -> bytes | None:
        """What a unit came to; None where it is not known to be done."""
        value = None if self._is_new else self._store.get(join_key(self._prefix, unit))
        return None if value is None else bytes(value[1:])

"""Locks for processes that fork.

A fork copies a lock as it is, but only the thread that forks: what another thread held would be held in the
child for ever. What a lock guards may then be half changed; whoever uses one sees to it that this is no harm.
"""

from __future__ import annotations

import os
import threading
import weakref


class Lock:
    """As `threading.Lock`, and free in a forked child, unless the thread that forked holds it itself."""

    __slots__ = ("__weakref__", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        _locks.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._owner = None
        self._lock.release()

    def _after_fork(self) -> None:
        # Between taking it and saying so, too, it belongs to a thread that is not there any more.
        if not self.is_mine:
            self._lock = threading.Lock()
            self._owner = None


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _free_locks() -> None:
    for lock in [*_locks]:
        lock._after_fork()


os.register_at_fork(after_in_child=_free_locks)

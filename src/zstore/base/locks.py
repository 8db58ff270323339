"""Locks that are safe in processes that fork.

A fork copies every lock, but only the thread that forks: a lock that another thread holds would stay locked
in the child for ever. The locks here are released there. What they guard may then be half changed; whoever
uses one makes sure that this does no harm.
"""

from __future__ import annotations

import os
import threading
import weakref


class Lock:
    """A `threading.Lock` that is free in a forked child, unless the forking thread itself holds it."""

    __slots__ = ("__weakref__", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        _locks.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._owner = None
        self._lock.release()

    def _after_fork(self) -> None:
        # Even without an owner it may have just been acquired, by a thread that the child does not have.
        if not self.is_mine:
            self._lock = threading.Lock()
            self._owner = None


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _free_locks() -> None:
    for lock in [*_locks]:
        lock._after_fork()


os.register_at_fork(after_in_child=_free_locks)

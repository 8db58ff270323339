"""LMDB environments, one for each directory in a process: their maps grow, and they survive forks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import lmdb

__all__ = ["Environment", "open_environment"]

READERS = 1024
T = TypeVar("T")


class Environment:
    """An open environment, which closes when nothing refers to it any more.

    A process may open a directory only once. No transaction may run while the map is resized, nor while the
    process forks; so all transactions go through `run`, which `hold_up` keeps waiting.
    """

    def __init__(self, path: str, *, map_size: int, durable: bool) -> None:
        self.path = path
        self.is_lost = False
        self._is_durable = durable
        self._turn = threading.Condition()
        self._running = 0
        self._is_held_up = False
        self._open = _open(path, map_size, durable=durable)

    def run(self, act: Callable[[lmdb.Transaction], T], *, write: bool = False, durable: bool = False) -> T:
        """The result of `act` in a transaction, which is repeated with a larger map where the map was full.

        With `durable`, the disk confirms the transaction, however the environment was opened.
        """
        while True:
            with self._turn:
                while self._is_held_up:
                    self._turn.wait()
                self._running += 1
            try:
                with self._open.begin(write=write, buffers=True) as transaction:
                    result = act(transaction)
                if write and durable and not self._is_durable:
                    self._open.sync(True)
                return result
            except lmdb.MapFullError:
                factor = 2
            except lmdb.MapResizedError:
                factor = 1  # another process made it larger
            finally:
                with self._turn:
                    self._running -= 1
                    if self._is_held_up:  # somebody waits until no transaction runs
                        self._turn.notify_all()
            self._resize(factor)

    def hold_up(self) -> None:
        """Wait until no transaction runs, and let none begin."""
        with self._turn:
            self._turn.wait_for(lambda: not self._is_held_up)
            self._is_held_up = True
            self._turn.wait_for(lambda: not self._running)

    def go_on(self) -> None:
        """Let transactions begin again."""
        with self._turn:
            self._is_held_up = False
            self._turn.notify_all()

    def _resize(self, factor: int) -> None:
        self.hold_up()
        try:
            self._open.set_mapsize(0)  # as large as others have made it
            if factor > 1:
                self._open.set_mapsize(factor * self._open.info()["map_size"])
        finally:
            self.go_on()

    def lose(self) -> None:
        """In a forked child: close the parent's environment, which has no transaction at that time."""
        self.is_lost = True
        self._turn = threading.Condition()
        self._open.close()


def _open(path: str, map_size: int, *, durable: bool) -> lmdb.Environment:
    while True:
        # Without metasync, a power cut may take the last transactions, but leaves the others whole.
        with suppress(lmdb.MapResizedError):  # another process made it larger just then
            return lmdb.open(
                path,
                map_size=map_size,
                readonly=not os.access(path, os.W_OK),
                max_readers=READERS,
                readahead=False,
                metasync=durable,
            )


_environments: weakref.WeakValueDictionary[str, Environment] = weakref.WeakValueDictionary()
_guard = threading.Lock()
_held_up: list[Environment] = []


def open_environment(path: str, *, map_size: int, durable: bool) -> Environment:
    """The environment in the directory `path`: the one that this process has open, or else a new one."""
    place = os.path.realpath(path)
    with _guard:
        found = _environments.get(place)
        if found is None:
            found = _environments[place] = Environment(place, map_size=map_size, durable=durable)
        return found


def _before_fork() -> None:
    _guard.acquire()
    _held_up[:] = _environments.values()
    for environment in _held_up:
        environment.hold_up()


def _after_fork_in_parent() -> None:
    for environment in _held_up:
        environment.go_on()
    _held_up.clear()
    _guard.release()


def _after_fork_in_child() -> None:
    for environment in _held_up:
        environment.lose()
    _held_up.clear()
    _environments.clear()
    _guard.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)

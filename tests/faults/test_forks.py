"""Forks while another thread holds a lock: the child does not have that thread, and must not wait for it."""

from __future__ import annotations

import io
import os
import signal
import threading
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.locks import Lock
from zstore.engine.fetch import Shard, ShardIndexes
from zstore.engine.objects import ObjectTable
from zstore.extensions import plugins
from zstore.storage import base as locking
from zstore.storage.base import Changes
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.sources import ObjectSource


@contextmanager
def held(lock: AbstractContextManager[Any]) -> Iterator[None]:
    """Another thread holds the lock."""
    has, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def in_child(act: Callable[[], Any]) -> None:
    """Fork, and let the child do it, within ten seconds."""
    with warnings.catch_warnings():
        # Python warns of what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if not process:
        status = 1
        try:
            signal.alarm(10)
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_lock_itself():
    lock = Lock()

    def use() -> None:
        assert not lock.is_mine
        with lock:
            assert lock.is_mine

    with held(lock):
        in_child(use)
        in_child(lambda: in_child(use))
        assert not lock.is_mine
    use()


def test_who_holds_it_and_forks_holds_it_in_the_child():
    lock = Lock()

    def let_go() -> None:
        assert lock.is_mine
        waiting = held(lock)
        thread = threading.Thread(target=waiting.__enter__, daemon=True)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        lock.__exit__()
        thread.join()

    with lock:
        in_child(let_go)
        assert lock.is_mine
    assert not lock.is_mine


def test_names():
    def use() -> None:
        with locking.hold_name("a"), locking.hold_name("b"):
            pass

    with held(locking.hold_name("a")):
        in_child(use)
    with held(locking._guard):
        in_child(use)
    assert not [name for name in locking._names if name in ("a", "b")]


def test_loading_plugins(monkeypatch):
    monkeypatch.setattr(plugins, "_loaded", None)
    with held(plugins._lock):
        in_child(plugins.plugins)


def test_shard_indexes():
    indexes = ShardIndexes()
    shard = Shard(100, "1")

    def use() -> None:
        indexes.keep("a", shard)
        assert indexes.get("a") is shard
        indexes.drop("a")
        assert indexes.get("a") is None

    with held(indexes._lock):
        in_child(use)


def test_objects():
    table = ObjectTable("")
    with held(table._lock):
        in_child(lambda: table.take_in(np.array(["x"], object)))


def test_a_zip_file_that_is_an_object():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"1")
    source = ObjectSource(file)
    with held(source._turn):
        in_child(lambda: source.read(0, source.size))


class Slow(MemoryStore):
    """A store whose writers wait once."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waiting, self.may_go_on = threading.Event(), threading.Event()

    def put(self, key: str, value: Any) -> None:
        self._wait()
        super().put(key, value)

    def swap(self, changes: Changes) -> bool:
        if changes:
            self._wait()
        return super().swap(changes)

    def _wait(self) -> None:
        if not self.is_waiting.is_set():
            self.is_waiting.set()
            self.may_go_on.wait()


@pytest.mark.parametrize("change", ["resize", "append", "attributes"])
def test_an_array_that_is_being_resized(change):
    store = Slow()
    store.is_waiting.set()
    array = zstore.create_array(store, shape=4, dtype="i1", chunks=2)
    store.is_waiting.clear()
    thread = threading.Thread(target=array.resize, args=(6,))
    thread.start()
    store.is_waiting.wait()

    def use() -> None:
        if change == "resize":
            array.resize(8)
            assert array.shape == (8,)
        elif change == "append":
            assert array.append([1, 2]) == (6,)
            assert array[...].tolist() == [0, 0, 0, 0, 1, 2]
        else:
            array.attrs["a"] = 1

    try:
        in_child(use)
    finally:
        store.may_go_on.set()
        thread.join()
    assert array.shape == (6,)

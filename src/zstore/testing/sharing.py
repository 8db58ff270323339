"""The part of the store contract for many threads and many processes at once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from zstore.base.byterange import ByteRange
from zstore.errors import ChangedError
from zstore.testing.contract import Contract, needs

__all__ = ["StoreSharing", "run_forked"]


class StoreSharing(Contract):
    """The tests of concurrent use; see `zstore.testing.stores.StoreContract`."""

    can_list: bool
    many: int

    # Many threads

    @needs("can_write")
    def test_threads_write_side_by_side(self, filled: Any) -> None:
        store = filled()
        values = {
            f"a/{i % 5}/{i}": random.Random(i).randbytes(500 + i) for i in range(min(160, 2 * self.many))
        }
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(lambda item: store.put(*item), values.items()):
                pass
            found = pool.map(store.get, values)
            assert [bytes(value) for value in found] == [*values.values()]
            for _ in pool.map(store.delete, values):
                pass
        assert all(store.get(key) is None for key in values)
        if self.can_list:
            assert [*store.list()] == []

    @needs("can_write", "has_whole_puts")
    def test_put_is_whole_or_absent(self, filled: Any) -> None:
        choices = [bytes([i]) * (200_000 + 1000 * i) for i in range(4)]
        store = filled({"a/b": choices[0]})
        done = threading.Event()

        def write() -> None:
            for i in range(40):
                store.put("a/b", choices[i % 4])
            done.set()

        def read() -> int:
            count = 0
            while not done.is_set():
                assert bytes(store.get("a/b")) in choices
                count += 1
            return count

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            pool.submit(write).result()
            assert all(reader.result() >= 0 for reader in readers)

    @needs("can_write", "excludes_threads")
    def test_put_new_is_of_the_first_where_the_store_is_near(self, filled: Any) -> None:
        store = filled({"there": b"1"})
        values = [bytes([i]) * 300 for i in range(8)]

        def is_first(value: bytes) -> bool:
            try:
                if value[0] % 2:
                    store.put_new("a/b", value)
                else:
                    store.put_over("a/b", value, None)
            except ChangedError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            done = [*pool.map(is_first, values)]
        # Servers may have no way to tell: there the last one counts.
        if store.request_count == 1:
            assert done.count(True) == 1
            with pytest.raises(ChangedError):
                store.put_new("there", b"2")
            assert bytes(store.get("there")) == b"1"
        assert bytes(store.get("a/b")) in [value for value, first in zip(values, done, strict=True) if first]

    @needs("can_write", "excludes_threads")
    def test_lock_keeps_other_threads_waiting(self, filled: Any) -> None:
        store = filled({"n": b"0"})

        def add_one(_: int) -> None:
            with store.lock("n"):
                store.put("n", str(int(bytes(store.get("n"))) + 1).encode())

        with ThreadPoolExecutor(8) as pool:
            count = sum(1 for _ in pool.map(add_one, range(min(100, 2 * self.many))))
        assert bytes(store.get("n")) == str(count).encode()

    @needs("can_write")
    def test_locks_of_different_keys_are_apart(self, filled: Any) -> None:
        store = filled({"zarr.json": b"{}", "a/zarr.json": b"{}"})
        with store.lock("a/c/0"), store.lock("a/c/1"):
            store.put("a/c/0", b"1")
        assert bytes(store.get("a/c/0")) == b"1"

    # Many processes

    def test_a_forked_child_reads(self, filled: Any) -> None:
        store = filled({"a/b": b"1" * 5000, "a/c": b"2"})
        assert bytes(store.get("a/c")) == b"2"

        def read() -> None:
            assert bytes(store.get("a/b")) == b"1" * 5000
            assert store.get("a/x") is None
            if self.can_list:
                assert sorted(store.list("a")) == ["a/b", "a/c"]

        assert run_forked([read]) == [0]
        assert bytes(store.get("a/b", ByteRange(4999))) == b"1"

    @needs("can_write", "shares_processes")
    def test_forked_children_write_side_by_side(self, filled: Any) -> None:
        store = filled({"a/b": b"1"})
        begun, closed = os.pipe(), os.pipe()

        def write(name: str) -> None:
            try:
                first = bytes(store.get("a/b"))
            finally:
                os.write(begun[1], b"1")
            os.read(closed[0], 1)
            for i in range(5):
                store.put(f"{name}/{i}", first + name.encode())

        def close() -> None:
            """The parent ends its own use while the children are at work."""
            for _ in "xy":
                os.read(begun[0], 1)
            store.close()
            os.write(closed[1], b"xy")

        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(close)
            assert run_forked([lambda: write("x"), lambda: write("y")]) == [0, 0]
            closing.result()
        for end in (*begun, *closed):
            os.close(end)
        for name in "xy":
            assert [bytes(store.get(f"{name}/{i}")) for i in range(5)] == [b"1" + name.encode()] * 5

    @needs("can_write", "excludes_processes")
    def test_lock_keeps_other_processes_waiting(self, filled: Any) -> None:
        store = filled({"n": b"0"})

        def add() -> None:
            for _ in range(20):
                with store.lock("n"):
                    count = int(bytes(store.get("n")))
                    time.sleep(0.001)
                    store.put("n", str(count + 1).encode())

        assert run_forked([add] * 3) == [0, 0, 0]
        assert bytes(store.get("n")) == b"60"


def run_forked(actions: list[Callable[[], None]], seconds: float = 60.0) -> list[int]:
    """Run each action in a forked child; returns their exit codes, 0 for those that raised nothing."""
    children = []
    for action in actions:
        with warnings.catch_warnings():
            # Python 3.12 and later warn of forking a process with threads, which is what is tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            code = 1
            try:
                action()
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    end = time.monotonic() + seconds
    codes = []
    for child in children:
        while not (found := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        codes.append(os.waitstatus_to_exitcode(found[1]))
    return codes

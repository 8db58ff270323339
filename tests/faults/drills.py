"""Programs of `writers.py`, started together; stores that fail or wait when told."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

from zstore.errors import StoreError
from zstore.storage.base import PrefixStore

from . import writers

# Programs are forked of a process that has loaded them (`conftest.LOADED`): a Python for each takes longer.
PROCESSES = get_context("forkserver")


class Program:
    """A program of `writers.py` in a process of its own, with what `subprocess.Popen` has."""

    def __init__(self, name: str, *arguments: str) -> None:
        (given, into), (out, said), (errors, failed) = (PROCESSES.Pipe(duplex=False) for _ in range(3))
        ends = (given, said, failed)
        self._process: Any = PROCESSES.Process(
            target=writers.carry_out, args=(name, arguments, dict(os.environ), *ends)
        )
        self._process.start()
        for end in ends:
            end.close()
        self.stdin = os.fdopen(os.dup(into.fileno()), "w")
        self.stdout, self.stderr = (os.fdopen(os.dup(end.fileno())) for end in (out, errors))
        for end in (into, out, errors):
            end.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """What it still says on both its streams, after its end; it says less than fills a pipe."""
        self.stdin.write(text)
        self.stdin.flush()
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        with self.stdin, self.stdout, self.stderr:
            return self.stdout.read(), self.stderr.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.join()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


def start(name: str, *arguments: object) -> Program:
    """A process that has begun: it has said "ready" where it says so."""
    return Program(name, *map(str, arguments))


def together(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` … `work(count - 1)` at the same time; errors are raised here."""
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(run, number) for number in range(count)]:
            future.result()


def run_together(path: Path, *programs: tuple[object, ...]) -> None:
    """Run programs that `wait_for` the starting file; all of them must succeed."""
    go = path.with_suffix(".go")
    go.unlink(missing_ok=True)
    wait_together(go, [start(*map(str, program)) for program in programs])


def wait_together(go: Path, processes: list[Program]) -> None:
    """Let processes that wait for the file `go` begin; all of them must succeed."""
    for process in processes:
        line = process.stdout.readline()
        assert line == "ready\n", process.communicate(timeout=60)
    go.touch()
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, (out, errors)


class PausingStore(PrefixStore):
    """Waits at its n-th change until it may `go` on; `is_there` when it waits."""

    def __init__(self, store, number):
        super().__init__(store, "")
        self.left, self.is_there, self.go = number, threading.Event(), threading.Event()

    def _count(self):
        self.left -= 1
        if self.left == -1:
            self.is_there.set()
            assert self.go.wait(60)

    def put(self, key, value):
        self._count()
        super().put(key, value)

    def put_many(self, keys, values, versions=None):
        for _ in keys:
            self._count()
        return super().put_many(keys, values, versions)

    def put_new(self, key, value):
        self._count()
        return super().put_new(key, value)

    def swap(self, changes):
        if changes:
            self._count()
        return super().swap(changes)

    def delete(self, key):
        self._count()
        super().delete(key)

    def delete_prefix(self, prefix):
        self._count()
        super().delete_prefix(prefix)

    def local_path(self, prefix=""):
        return None  # so that chunks are put by the store, too


class FailingStore(PrefixStore):
    """Fails at the n-th change, and at the next ones too, as many as `times`."""

    left = 1 << 30
    times = 1

    def _count(self, key: str) -> None:
        self.left -= 1
        if -self.times <= self.left < 0:
            raise StoreError("the store is gone", path=self.url, key=key)

    def put(self, key, value):
        self._count(key)
        super().put(key, value)

    def put_many(self, keys, values, versions=None):
        """One after the other, so that those before the one that fails are there."""
        found = super().put_many([], [])
        if found is None:
            return None
        found = [*found]
        for key, value, version in zip(keys, values, versions or [None] * len(keys), strict=True):
            self._count(key)
            found += super().put_many([key], [value], None if versions is None else [version])
        return found

    def put_new(self, key, value):
        self._count(key)
        return super().put_new(key, value)

    def swap(self, changes):
        for key in [*changes][-1:]:
            self._count(key)
        return super().swap(changes)

    def delete(self, key):
        self._count(key)
        super().delete(key)

    def delete_prefix(self, prefix):
        if self.removes_whole:
            self._count(prefix)
            super().delete_prefix(prefix)
            return
        for key in [*self.list(prefix)]:
            self.delete(key)

    def local_path(self, prefix=""):
        return None  # so that chunks are put by the store, too

"""Programs of `writers.py`, started together; stores that fail or wait when told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from zstore.errors import StoreError
from zstore.storage.base import PrefixStore

SCRIPT = Path(__file__).with_name("writers.py")


def start(name: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that has begun: it has said "ready" where it says so."""
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), name, *map(str, arguments)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_together(path: Path, *programs: tuple[object, ...]) -> None:
    """Run programs that `wait_for` the starting file; all of them must succeed."""
    go = path.with_suffix(".go")
    go.unlink(missing_ok=True)
    wait_together(go, [start(*map(str, program)) for program in programs])


def wait_together(go: Path, processes: list[subprocess.Popen[str]]) -> None:
    """Let processes that wait for the file `go` begin; all of them must succeed."""
    for process in processes:
        assert process.stdout is not None
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

    def put_new(self, key, value):
        self._count()
        return super().put_new(key, value)

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

    def put_new(self, key, value):
        self._count(key)
        return super().put_new(key, value)

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

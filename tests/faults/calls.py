"""System calls counted, written down and failing one by one, in a program that is started for it.

`run_counted` starts a program with `calls.c` loaded before everything else; in there, `Calls` says which
calls on files below a directory fail.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
OPEN, MAKE, WRITE, SYNC, NAME, REMOVE, MKDIR, LOCK, READ = (1 << bit for bit in range(9))
ALL = (1 << 9) - 1
# Memory: what the thread that began asks for (and the kernels), what the kernels ask for on any thread.
MEMORY, KERNELS = 1 << 9, 1 << 10
NEVER = 1 << 40
SHORT = -1


def build(place: Path) -> Path:
    """The compiled library."""
    library = place / "calls.so"
    words = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "calls.c")]
    subprocess.run([*words, "-fno-optimize-sibling-calls", "-ldl"], check=True)
    return library


def run_counted(library: Path, *arguments: object, **environment: str) -> str:
    """What the program (a file beside this one, and its arguments) prints; it must succeed."""
    source = str(HERE.parents[1] / "src")
    loaded = " ".join([os.environ.get("LD_PRELOAD", ""), str(library)]).strip()  # a sanitizer comes first
    paths = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / str(arguments[0])), *map(str, arguments[1:])],
        env={**os.environ, "PYTHONPATH": paths, "LD_PRELOAD": loaded, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


class Calls:
    """The calls of this process on files below `place`, in a program that `run_counted` started."""

    def __init__(self, place: Path) -> None:
        self._library = ctypes.CDLL(None)
        self._place = os.fsencode(place)
        self.count = 0
        self.log: list[str] = []

    @contextmanager
    def failing(self, kinds: int, number: int, error: int, times: int = 1) -> Iterator[None]:
        """Let call `number` of these kinds fail, and the next, `times` in all; `count` says how many came."""
        begin, end = self._library.calls_begin, self._library.calls_end
        end.restype = ctypes.c_long
        begin(self._place, kinds, ctypes.c_long(number), ctypes.c_long(times), error, -1)
        try:
            yield
        finally:
            self.count = end()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Write down what is done: "fsync a/c/0"; `log` has it afterwards."""
        log = os.memfd_create("calls")
        self._library.calls_begin(self._place, 0, ctypes.c_long(NEVER), ctypes.c_long(0), 0, log)
        try:
            yield
        finally:
            self._library.calls_end()
            with os.fdopen(log, "r+") as file:
                file.seek(0)
                self.log = file.read().splitlines()


def check_order(log: list[str]) -> None:
    """Bytes are confirmed before they get a name, and directories after names were put into them."""
    steps = [line.removesuffix(" (deleted)").split(" ", 1) for line in log]
    unconfirmed: set[str] = set()
    for at, (what, path) in enumerate(steps):
        above = path.rpartition("/")[0] or "."
        if what == "write":
            unconfirmed.add(path)
        elif what == "fsync":
            unconfirmed.discard(path)
        elif ".zstore-tmp" not in path.rpartition("/")[2] and what == "name" and ".zstore-tmp/" not in path:
            assert not unconfirmed, f"{path} gets a name before its bytes are confirmed"
            following = [step for step in steps[at + 1 :] if step[0] in ("name", "write", "fsync")]
            assert following[0] == ["fsync", above], f"the name {path} is not confirmed"
        elif what == "mkdir" and ".zstore-tmp" not in path:
            assert ["fsync", above] in steps, f"the directory {path} is not confirmed"
    assert not unconfirmed


def check_durability(logs: dict[str, list[str]]) -> None:
    """Durable changes confirm their bytes in order; others confirm none but those of a whole zip file."""
    for name, log in logs.items():
        if name.startswith("durable"):
            assert any(line.startswith("fsync") for line in log), name
            check_order(log)
        else:
            assert sum(line.startswith("fsync") for line in log) == (name == "plain: zip"), name

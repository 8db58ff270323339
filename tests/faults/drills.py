"""Starting the programs of `writers.py`, together, and waiting for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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

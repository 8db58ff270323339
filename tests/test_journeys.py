"""Everyday calls go through few files of the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools" / "journeys.py"
MAKING = "engine/making.py"
MOST = {"read": 3, "write": 6, "open": 13, "create": 17, "pyramid": 54, "validate and fix": 40}


def test_everyday_calls_go_through_few_files() -> None:
    """In a process of its own: CPython 3.13.0 may end where threads of others run while calls are watched."""
    done = subprocess.run([sys.executable, TOOL, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout.splitlines()[-1])
    assert {name: len(gone) for name, gone in files.items() if len(gone) > MOST[name]} == {}
    assert {*files} == {*MOST} and files["create"][MAKING] <= 3

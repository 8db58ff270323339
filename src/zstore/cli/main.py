"""The entry point of the command `zstore`, which tells which extra to install if a package is missing."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper

NEEDED = ("click", "rich")


def main() -> None:
    """Run the command line."""
    try:
        from zstore.cli.root import zstore
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print(
            f"zstore: the command line needs {error.name}, which is not installed; "
            "expected the extra 'cli': pip install zstore[cli]",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    if isinstance(sys.stdout, TextIOWrapper):
        # Where an encoding lacks a character of a name, as that of a pipe on Windows may, the name is told.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        zstore(prog_name="zstore")
    except SystemExit:
        if zstore.is_interrupted:
            _end_by_interrupt()
        raise


def _end_by_interrupt() -> None:
    """End the process by the signal of Ctrl-C, as shells expect it, and wait for no thread of a library."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)

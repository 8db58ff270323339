"""The entry point of the command `zstore`, which tells which extra to install if a package is missing."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

from zstore.errors import StoreError

NEEDED = ("click", "rich")


class _Output(FileIO):
    """Standard output; that it cannot be written to is an error that says so, once."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            # What is still buffered goes nowhere, rather than to the same error when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise StoreError(f"cannot write to standard output: {error.strerror}") from error


def main() -> None:
    """Run the command line."""
    _open_closed()
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
        sys.stdout = TextIOWrapper(
            BufferedWriter(_Output(sys.stdout.fileno(), "wb", closefd=False)),
            sys.stdout.encoding,
            "backslashreplace",
            line_buffering=sys.stdout.line_buffering,
        )
    try:
        zstore(prog_name="zstore")
    except StoreError as error:
        # Of what is shown before a command runs, as its help.
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except SystemExit:
        if zstore.is_interrupted:
            _end_by_interrupt()
        raise


def _open_closed() -> None:
    """Open the null device for each standard stream that is closed.

    The first file of a store to be opened would have the stream's number, and what libraries print in it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: SIM115
            setattr(sys, name, null)
            setattr(sys, f"__{name}__", null)


def _end_by_interrupt() -> None:
    """End the process by the signal of Ctrl-C, as shells expect it, and wait for no thread of a library."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)

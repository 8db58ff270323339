"""Identifying the writer of unfinished work, and telling whether it has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

_under_way: set[str] = set()


@contextmanager
def writing() -> Iterator[dict[str, Any]]:
    """A context that yields a JSON description of its writer: machine, process and an id of the work."""
    work = uuid4().hex
    _under_way.add(work)
    try:
        process = os.getpid()
        yield {"machine": _machine(), "process": process, "begun": _begun(process), "work": work}
    finally:
        _under_way.discard(work)


def has_ended(writer: Any) -> bool:
    """Whether the work that a description of `writing` identifies has certainly ended, finished or not.

    False for other machines and containers, of which nothing is known, and for malformed descriptions.
    """
    return _is_alive(writer) is False


def is_under_way(writer: Any) -> bool:
    """Whether a process of this machine is, as far as can be seen, still doing that work."""
    return _is_alive(writer) is True


def _is_alive(writer: Any) -> bool | None:
    """Whether the work goes on; None if unknown."""
    if not isinstance(writer, Mapping) or type(writer.get("process")) is not int:
        return None
    if not writer.get("machine") or writer["machine"] != _machine():
        return None
    begun = _begun(writer["process"])
    if begun is None and _is_hidden(writer["process"]):
        return None
    if begun is None or begun != writer.get("begun"):
        return False
    return writer["process"] != os.getpid() or str(writer.get("work")) in _under_way


def _machine() -> str | None:
    """The id of this machine's boot and of the namespace of its process ids; None if the system has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return None


def _begun(process: int) -> str | None:
    """The time at which a process started, in clock ticks since the boot; None if no process has that id."""
    try:
        # The process's name, in brackets, may contain anything; the start time is the 20th field after it.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        # One that was killed keeps its number until its parent asks how it ended.
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def _is_hidden(process: int) -> bool:
    """Whether a process exists but belongs to another user, whose processes the system hides (`hidepid`)."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False

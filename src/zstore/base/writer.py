"""Who writes something, and whether that is known to have ended."""

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
    """What tells the work done meanwhile from all other, as JSON has it: a process, and a work of it."""
    work = uuid4().hex
    _under_way.add(work)
    try:
        process = os.getpid()
        yield {"machine": _machine(), "process": process, "begun": _begun(process), "work": work}
    finally:
        _under_way.discard(work)


def has_ended(writer: Any) -> bool:
    """Whether the work that `writing` described there is over for certain, done or not.

    Of that of other machines and containers this cannot be said, nor of what describes none.
    """
    if not isinstance(writer, Mapping) or type(writer.get("process")) is not int:
        return False
    if not writer.get("machine") or writer["machine"] != _machine():
        return False
    begun = _begun(writer["process"])
    if begun is None or begun != writer.get("begun"):
        return True
    return writer["process"] == os.getpid() and writer.get("work") not in _under_way


def _machine() -> str | None:
    """This run of this machine, and the namespace of its process numbers; None where nothing tells."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return None


def _begun(process: int) -> str | None:
    """When a process began, in ticks since the machine did; None where there is none of that number."""
    try:
        # The name, in brackets, may hold anything; the time is the 20th word behind it.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None

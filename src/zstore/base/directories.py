"""Making directories that a power cut leaves there."""

from __future__ import annotations

import os

from zstore.base.steady import steady


def make_directory(path: str, *, durable: bool) -> None:
    """Make a directory and those above it, as far as they are missing; `durable` has the disk confirm it."""
    above = os.path.dirname(path)  # noqa: PTH120 - stores keep strings
    try:
        steady(os.mkdir, path)
    except FileNotFoundError:
        # Some file systems say so of a directory in which none can be made, "/proc" among them.
        if os.path.isdir(above):  # noqa: PTH112
            raise
        make_directory(above, durable=durable)
        make_directory(path, durable=durable)
        return
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
        return
    if durable:
        confirm_directory(above)


def confirm_directory(path: str) -> None:
    """Have the disk confirm which names are in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

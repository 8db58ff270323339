"""Making directories that a power cut leaves there."""

from __future__ import annotations

import os

from zstore.base.steady import steady


def make_directory(path: str, *, durable: bool) -> None:
    """Make a directory and those above it, as far as they are missing; `durable` has the disk confirm it."""
    above = os.path.dirname(path)  # noqa: PTH120 - stores keep strings
    try:
        is_new = _make(path)
    except FileNotFoundError:
        # The one above is missing; or somebody made it since, or none can be made in it, as in "/proc".
        if not os.path.isdir(above):  # noqa: PTH112
            make_directory(above, durable=durable)
        is_new = _make(path)
    if is_new and durable:
        confirm_directory(above)


def _make(path: str) -> bool:
    """Make one directory; False where it is there already."""
    try:
        steady(os.mkdir, path)
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
        return False
    return True


def confirm_directory(path: str) -> None:
    """Have the disk confirm which names are in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

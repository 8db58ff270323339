"""Making directories, and waiting until changes are on the disk, so that they survive a power cut."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def steady(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, again as often as a signal interrupts it; for `os.rename` and the like."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue


def make_directory(path: str, *, durable: bool) -> None:
    """Make a directory and its missing parents; `durable` waits until they are on the disk (fsync)."""
    try:
        is_new = _make(path)
    except FileNotFoundError:
        # The parent is missing; or another process has made it since, or it takes none, like "/proc".
        above = os.path.dirname(path)  # noqa: PTH120 - stores keep strings
        if not os.path.isdir(above):  # noqa: PTH112
            make_directory(above, durable=durable)
        is_new = _make(path)
    if is_new and durable:
        confirm_directory(os.path.dirname(path))  # noqa: PTH120


def _make(path: str) -> bool:
    """Make one directory; False if it existed already."""
    try:
        steady(os.mkdir, path)
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
        return False
    return True


def confirm_directory(path: str) -> None:
    """Wait until the names in a directory are on the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def confirm_files(path: str) -> None:
    """Wait until a file, or all files below a directory, and their names are on the disk (fsync)."""
    for folder, _, names in os.walk(path):
        for name in names:
            confirm_files(f"{folder}/{name}")
        confirm_directory(folder)
    if not os.path.isdir(path):  # noqa: PTH112
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

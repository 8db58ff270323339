"""Shared by all contracts: flags that switch tests off, and ways to make calls fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from unittest.mock import patch

__all__ = ["Contract", "broken_attributes", "broken_calls", "broken_files", "needs"]

T = TypeVar("T", bound=Callable[..., Any])

# Without the socket's `send`, which threads use to wake event loops.
CALLS = (
    (builtins, ("open",)),
    (io, ("open",)),
    (os, ("open", "read", "pread", "stat", "lstat", "listdir", "scandir", "write", "pwrite")),
    (os, ("replace", "rename", "unlink", "remove", "link")),
    (socket.socket, ("connect", "sendall", "recv", "recv_into")),
)
PLAIN = (str, bytes, int, float, bool, type(None), Path)


def needs(*capabilities: str) -> Callable[[T], T]:
    """A decorator of tests that run only in classes where all of these flags are true."""

    def mark(test: T) -> T:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


class Contract:
    """The base of contracts; a class that sets a flag to false leaves out the tests that need it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        tests: dict[str, Any] = {}
        for kind in reversed(cls.__mro__):
            tests.update({name: test for name, test in vars(kind).items() if callable(test)})
        for name, test in tests.items():
            wanted = getattr(test, "needs", ())
            if wanted and name not in vars(cls):
                setattr(cls, name, test if all(getattr(cls, flag) for flag in wanted) else None)


@contextmanager
def broken_files(place: Path) -> Iterator[None]:
    """A context in which files below `place` cannot be opened, by any call of any user.

    Each is replaced by a link to itself: not a missing file, and unreadable even to root.
    """
    moved = []
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in files:
        backup = path.with_name(path.name + ".backup")
        path.rename(backup)
        path.symlink_to(path.name)
        moved.append((path, backup))
    try:
        yield
    finally:
        for path, backup in moved:
            path.unlink(missing_ok=True)
            backup.rename(path)


@contextmanager
def broken_calls() -> Iterator[None]:
    """A context in which this thread's calls for files and sockets through Python fail."""
    thread = threading.get_ident()

    def failing(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() == thread:
                _fail()
            return real(*arguments, **options)

        return call

    with ExitStack() as stack:
        for home, names in CALLS:
            for name in names:
                stack.enter_context(patch.object(home, name, failing(getattr(home, name))))
        yield


@contextmanager
def broken_attributes(target: Any) -> Iterator[None]:
    """A context in which objects in the attributes of `target` fail when used, but not plain values."""
    kept = {name: value for name, value in getattr(target, "__dict__", {}).items() if not _is_plain(value)}
    try:
        for name in kept:
            object.__setattr__(target, name, _Broken())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # operations that were begun are never finished
            yield
    finally:
        for name, value in kept.items():
            object.__setattr__(target, name, value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _fail(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.EIO, "planted by the contract")


class _Broken:
    """An object whose every use raises OSError."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Broken()

    __call__ = __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _fail
    __enter__ = __exit__ = __bool__ = _fail

"""What all contracts share: promises that can be switched off by name, and ways to make calls fail."""

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

# Not the socket's `send`: by that threads wake event loops.
CALLS = (
    (builtins, ("open",)),
    (io, ("open",)),
    (os, ("open", "read", "pread", "stat", "lstat", "listdir", "scandir", "write", "pwrite")),
    (os, ("replace", "rename", "unlink", "remove", "link")),
    (socket.socket, ("connect", "sendall", "recv", "recv_into")),
)
PLAIN = (str, bytes, int, float, bool, type(None), Path)


def needs(*capabilities: str) -> Callable[[T], T]:
    """Mark a test as one that runs only where the class has all of these flags switched on."""

    def mark(test: T) -> T:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


class Contract:
    """A class of tests to inherit from; where it switches a flag off, tests that `needs` it are left out."""

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
    """While this is held, files below `place` cannot be opened, by whatever call and whoever asks.

    A link to itself takes the place of each: that is no missing file, and no right to read makes up for it.
    """
    moved = []
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in files:
        aside = path.with_name(path.name + ".aside")
        path.rename(aside)
        path.symlink_to(path.name)
        moved.append((path, aside))
    try:
        yield
    finally:
        for path, aside in moved:
            path.unlink(missing_ok=True)
            aside.rename(path)


@contextmanager
def broken_calls() -> Iterator[None]:
    """While this is held, what this thread asks of files and sockets through Python fails."""
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
    """While this is held, everything that `target` keeps fails when it is used, but for names and numbers."""
    kept = {name: value for name, value in getattr(target, "__dict__", {}).items() if not _is_plain(value)}
    try:
        for name in kept:
            object.__setattr__(target, name, _Broken())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what was begun is never finished
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
    """Fails at whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Broken()

    __call__ = __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _fail
    __enter__ = __exit__ = __bool__ = _fail

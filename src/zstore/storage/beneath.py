"""Opening files below a directory, and never outside it, whatever symbolic links say."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

__all__ = ["OutsideError", "open_beneath"]

# The number is the same on every architecture of Linux.
OPENAT2 = 437
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
# openat2 gives up with EAGAIN when a directory was renamed while it followed a "..".
ATTEMPTS = 128


class OutsideError(OSError):
    """A symbolic link leads out of the directory."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    function.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(_OpenHow),
        ctypes.c_size_t,
    )
    return function


HOW_SIZE = ctypes.sizeof(_OpenHow)

_call = _syscall()
_hows: dict[int, object] = {}


def open_beneath(root: int, root_path: str, path: str, flags: int) -> int:
    """A descriptor of `path` below the open directory `root`; links are followed while they stay below it.

    `root_path` is where `root` was opened; "." is the directory itself. `flags` never create a file.

    Raises
        OutsideError: a link leads out of `root`.
        OSError: as os.open.
    """
    global _call
    if _call is None:
        return _open_checked(root_path, path, flags)
    how = _hows.get(flags)
    if how is None:
        how = _hows[flags] = ctypes.byref(
            _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        )
    encoded = os.fsencode(path)
    for _ in range(ATTEMPTS):
        descriptor: int = _call(OPENAT2, root, encoded, how, HOW_SIZE)
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    if code == errno.ENOSYS:
        _call = None
    if code in (errno.ENOSYS, errno.EPERM, errno.EXDEV):
        # An old kernel, a sandbox that forbids the call, or a link that is absolute and may yet lead inside.
        return _open_checked(root_path, path, flags)
    raise OSError(code, os.strerror(code), path)


def _open_checked(root_path: str, path: str, flags: int) -> int:
    """The same by looking first where the path leads; a link that is changed right then can deceive it."""
    top = os.path.realpath(root_path)
    place = os.path.realpath(f"{top}/{path}")
    if place != top and not place.startswith(top.rstrip("/") + "/"):
        raise OutsideError(errno.EXDEV, f"a symbolic link leads out of the store, to {place!r}", path)
    return os.open(place, flags | os.O_NOFOLLOW | os.O_CLOEXEC)

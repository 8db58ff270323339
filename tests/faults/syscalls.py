"""System calls that fail as a full disk, another file system or an old kernel makes them, for one process."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable

import pytest

from zstore.testing.sharing import run_forked

# Linux's numbers. Where there is no plain renameat, the C library takes the second.
NUMBERS: dict[str, dict[str, tuple[int, ...]]] = {
    "x86_64": {
        "writev": (20,),
        "flock": (73,),
        "fsync": (74,),
        "openat": (257,),
        "renameat": (264, 316),
        "linkat": (265,),
        "openat2": (437,),
    },
    "aarch64": {
        "flock": (32,),
        "linkat": (37,),
        "renameat": (38, 276),
        "openat": (56,),
        "writev": (66,),
        "fsync": (82,),
        "openat2": (437,),
    },
}

# Instructions of the classic Berkeley Packet Filter, which seccomp runs on a call's number and arguments.
LOAD, TO_X, IF_EQUAL, IF_EQUAL_X, IF_SET, RETURN = 0x20, 0x07, 0x15, 0x1D, 0x45, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
AT_EMPTY_PATH = 0x1000
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2


def _argument(number: int) -> tuple[int, int, int, int]:
    return (LOAD, 0, 0, 16 + 8 * number)


def _refuse(call: str, error_number: int) -> None:
    """Let every call of that name fail from now on; there is no way back."""
    condition: list[tuple[int, int, int, int]] = []
    if call == "O_TMPFILE":
        call = "openat"
        condition = [_argument(2), (IF_SET, 0, 1, os.O_TMPFILE & ~os.O_DIRECTORY)]
    elif call == "AT_EMPTY_PATH":
        call = "linkat"
        condition = [_argument(4), (IF_SET, 0, 1, AT_EMPTY_PATH)]
    elif call == "renameat elsewhere":
        call = "renameat"
        condition = [_argument(0), (TO_X, 0, 0, 0), _argument(2), (IF_EQUAL_X, 1, 0, 0)]
    program: list[tuple[int, int, int, int]] = []
    for number in NUMBERS[platform.machine()][call]:
        program += [(LOAD, 0, 0, 0), (IF_EQUAL, 0, len(condition) + 1, number), *condition]
        program.append((RETURN, 0, 0, FAIL | error_number))
    program.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SECCOMP, FILTER, header, 0, 0)):
        if library.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "cannot filter system calls")


def while_failing(call: str, error_number: int, act: Callable[[], None]) -> None:
    """Run `act` in a forked process in which such system calls fail; what it raises fails the test.

    "O_TMPFILE" is making a file without a name, "AT_EMPTY_PATH" linking it by its descriptor, and
    "renameat elsewhere" renaming into another directory.
    """
    if platform.machine() not in NUMBERS:
        pytest.skip(f"the numbers of Linux's system calls on {platform.machine()} are not known here")

    def run() -> None:
        _refuse(call, error_number)
        act()

    assert run_forked([run]) == [0]

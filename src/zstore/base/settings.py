"""Settings of the process, from the environment or chosen by calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import index
from typing import Any, TypeVar

N = TypeVar("N", int, float)

WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}

_durable: bool | None = None


def processor_count() -> int:
    """The number of processors that this process may use."""
    # macOS has no such restriction.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_count(variable: str, default: int, *, least: int) -> int:
    """The whole number in an environment variable; `default` if the variable is not set, or empty.

    Raises
        ValueError: it is no whole number, or below `least`.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    expected = f"a whole number of {least} or more"
    return check_number(variable, text, int, lambda number: number >= least, expected)


def check_number(what: str, value: Any, kind: type[N], is_right: Callable[[N], bool], expected: str) -> N:
    """The value of a setting as a number, given as a number or as text.

    Raises
        ValueError: it is no such number, or `is_right` refuses it; the message names `what` and `expected`.
    """
    number: Any = None
    try:
        if kind is float:
            number = float(value)
        elif not isinstance(value, str):
            number = index(value)  # refuses fractions
        elif value.isascii() and value.isdecimal():
            number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not is_right(number):
        raise ValueError(f"{what} is {value!r}; expected {expected}")
    found: N = number
    return found


def is_durable() -> bool:
    """Whether stores are opened as durable by default: as `set_durable` says, else ZSTORE_DURABLE, else not.

    Raises
        ValueError: ZSTORE_DURABLE is neither a yes nor a no.
    """
    if _durable is not None:
        return _durable
    text = os.environ.get("ZSTORE_DURABLE", "").strip().lower() or "no"
    if text in WORDS:
        return WORDS[text]
    raise ValueError(f"ZSTORE_DURABLE is {text!r}; expected one of {', '.join(WORDS)}")


def set_durable(durable: bool | None) -> None:
    """Make stores that are opened from now on confirm every change on the disk, to survive a power cut.

    Directories, zip files, SQLite and LMDB can do that (docs/reliability.md, "Power cuts"); others ignore it.
    None restores the default: ZSTORE_DURABLE, else no.
    """
    global _durable
    _durable = None if durable is None else bool(durable)

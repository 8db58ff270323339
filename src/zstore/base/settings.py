"""Settings of the process: what the environment says, and what was chosen instead."""

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
    """How many processors this process may use."""
    # macOS has them all used.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_count(variable: str, default: int, *, least: int) -> int:
    """The whole number that an environment variable holds; `default` where it is not set, or empty.

    Raises
        ValueError: it holds something else.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    expected = f"a whole number of {least} or more"
    return check_number(variable, text, int, lambda number: number >= least, expected)


def check_number(what: str, value: Any, kind: type[N], is_right: Callable[[N], bool], expected: str) -> N:
    """The number that a setting is, given as one or as text.

    Raises
        ValueError: it is something else; `what` and `expected` say so.
    """
    number: Any = None
    try:
        if kind is float:
            number = float(value)
        elif not isinstance(value, str):
            number = index(value)  # a fraction is no whole number
        elif value.isascii() and value.isdecimal():
            number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not is_right(number):
        raise ValueError(f"{what} is {value!r}; expected {expected}")
    found: N = number
    return found


def is_durable() -> bool:
    """Whether stores that can be durable are, where they are not told: `set_durable`, else ZSTORE_DURABLE.

    Raises
        ValueError: ZSTORE_DURABLE says neither yes nor no.
    """
    if _durable is not None:
        return _durable
    text = os.environ.get("ZSTORE_DURABLE", "").strip().lower() or "no"
    if text in WORDS:
        return WORDS[text]
    raise ValueError(f"ZSTORE_DURABLE is {text!r}; expected one of {', '.join(WORDS)}")


def set_durable(durable: bool | None) -> None:
    """Have stores that are opened from now on confirm every change on the disk, to survive a power cut.

    Directories, zip files, SQLite and LMDB can (docs/reliability.md, "Power cuts"); others stay as they are.
    None goes back to the default: ZSTORE_DURABLE, else no.
    """
    global _durable
    _durable = None if durable is None else bool(durable)

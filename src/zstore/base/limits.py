"""Limits on the memory and time that reading may take: settings of the process.

The author of a store, and the server that answers for one, may be hostile; the reader decides what to spend.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any, TypedDict, TypeVar, Unpack

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
    """Whether stores are opened as durable by default: set by `set_durable`, else by ZSTORE_DURABLE.

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


PREFIX = "ZSTORE_LIMIT_"


@dataclass(frozen=True)
class Limits:
    """Limits on reading; initially those of the environment (ZSTORE_LIMIT_*), changed by `set_limits`.

    document_size  bytes of one metadata document; parsed, it may take eight times as much memory
    chunk_size     decoded bytes of a chunk whose items have any length; None: 64 bytes for each item, or, if
                   that is more, 64 for each stored byte, at least 64 MiB and at most 1 GiB
    value_size     bytes of a value that is decompressed from a zip file, or that a server sends without
                   announcing its size
    connect_time   seconds for connecting to an HTTP server
    read_time      seconds in which `progress_size` bytes of a response, or its end, must arrive
    progress_size  bytes of an HTTP response
    total_time     seconds for one HTTP request with its response
    attempt_count  attempts at an HTTP request that fails for a temporary reason
    request_count  HTTP requests at the same time
    bucket_attempt_count, bucket_request_count  the same for S3, Google and Azure
    gap_size       bytes between two wanted ranges of a value that are fetched along with them, in one
                   request; None: 4 KiB, and up to 1 MiB if there would be more than 256 requests
    """

    document_size: int = 32 << 20
    chunk_size: int | None = None
    value_size: int = 1 << 30
    connect_time: float = 10.0
    read_time: float = 20.0
    progress_size: int = 16 << 10
    total_time: float = 900.0
    attempt_count: int = 3
    request_count: int = 64
    bucket_attempt_count: int = 10
    bucket_request_count: int = 128
    gap_size: int | None = None

    def body_time(self, size: int) -> float:
        """The seconds within which more than `size` bytes of an HTTP body, or its end, must arrive."""
        return self.read_time * (1 + size // self.progress_size)

    def decoded_size(self, stored_size: int, plain_size: int) -> int:
        """The most bytes that a chunk may decode to, if its shape and dtype do not determine it.

        stored_size  its stored bytes
        plain_size   the decoded bytes of an ordinary chunk of such items
        """
        if self.chunk_size is not None:
            return self.chunk_size
        return max(plain_size, min(1 << 30, max(64 << 20, 64 * stored_size)))


class Changes(TypedDict, total=False):
    """Keyword arguments of `set_limits`: the limits by name, None for the default."""

    document_size: int | None
    chunk_size: int | None
    value_size: int | None
    connect_time: float | None
    read_time: float | None
    progress_size: int | None
    total_time: float | None
    attempt_count: int | None
    request_count: int | None
    bucket_attempt_count: int | None
    bucket_request_count: int | None
    gap_size: int | None


_current: Limits | None = None


def current_limits() -> Limits:
    """The limits of this process.

    Raises
        ValueError: a ZSTORE_LIMIT_* of the environment is no positive number, or names no limit.
    """
    global _current
    if _current is None:
        _current = _default_limits()
    return _current


def set_limits(**changes: Unpack[Changes]) -> None:
    """Change limits on the memory and time that reading may take; None restores a default.

    The limits are those of `zstore.base.limits.Limits`: `document_size`, `chunk_size`, `value_size`,
    `progress_size` and `gap_size` in bytes, `connect_time`, `read_time` and `total_time` of HTTP in seconds,
    the attempts at a request (`attempt_count`, `bucket_attempt_count`), and the requests at the same time
    (`request_count`, `bucket_request_count`). The defaults are those of the environment (ZSTORE_LIMIT_*).

    Raises
        ValueError: a value is no positive number.
        TypeError: there is no limit of that name.
    """
    global _current
    default, values = _default_limits(), {}
    for name, value in changes.items():
        if name not in _kinds():
            raise TypeError(f"no limit {name!r}; expected {', '.join(_kinds())}")
        values[name] = getattr(default, name) if value is None else _checked(f"limit {name}", name, value)
    _current = replace(current_limits(), **values)


def _kinds() -> Mapping[str, Any]:
    return {field.name: float if field.name.endswith("_time") else int for field in fields(Limits)}


def _default_limits() -> Limits:
    values = {}
    for variable, text in os.environ.items():
        if variable.startswith(PREFIX) and text:
            name = variable.removeprefix(PREFIX).lower()
            if name not in _kinds():
                expected = ", ".join(PREFIX + name.upper() for name in _kinds())
                raise ValueError(f"no limit {variable!r} (in the environment); expected {expected}")
            values[name] = _checked(variable, name, text)
    return Limits(**values)


def _checked(what: str, name: str, value: Any) -> Any:
    kind = _kinds()[name]
    unit = "a number of seconds" if kind is float else "a whole number"
    return check_number(what, value, kind, lambda number: 0 < number < math.inf, f"{unit} above 0")

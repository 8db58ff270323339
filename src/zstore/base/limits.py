"""What reading takes at most, in bytes and in time: settings of the process.

Whoever writes a store, or answers for one, may be hostile; what a reader spends on it is the reader's to say.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict, Unpack

from zstore.base.settings import check_number

PREFIX = "ZSTORE_LIMIT_"


@dataclass(frozen=True)
class Limits:
    """What reading takes at most; `set_limits` changes it, the environment's ZSTORE_LIMIT_* begins with it.

    document_size  bytes of one metadata document; its lists, objects and items take eight times that at most
    chunk_size     decoded bytes of a chunk whose items are of any length; None: 64 bytes for each item, or,
                   where that is more, 64 for each stored byte, at least 64 MiB and at most 1 GiB
    value_size     bytes of a value that is inflated out of a zip file, or that a server sends without saying
                   how many there are
    connect_time   seconds until an HTTP server is reached
    read_time      seconds in which a KiB of an HTTP answer, or its end, must come
    total_time     seconds for one HTTP request with its answer
    attempt_count  how often an HTTP request is made that fails in a way that may pass
    request_count  HTTP requests that are under way at once
    bucket_attempt_count, bucket_request_count  the same of S3, Google and Azure
    gap_size       bytes between two wanted stretches of an object that are fetched with them, in one request;
                   None: 4 KiB, and up to 1 MiB where there would be more than 256 requests
    """

    document_size: int = 32 << 20
    chunk_size: int | None = None
    value_size: int = 1 << 30
    connect_time: float = 10.0
    read_time: float = 20.0
    total_time: float = 900.0
    attempt_count: int = 3
    request_count: int = 64
    bucket_attempt_count: int = 10
    bucket_request_count: int = 128
    gap_size: int | None = None

    def decoded_size(self, stored_size: int, plain_size: int) -> int:
        """The most bytes that stored ones may decode to, where only the values say how many.

        `plain_size` is what a chunk of such items comes to where nothing about it is unusual.
        """
        if self.chunk_size is not None:
            return self.chunk_size
        return max(plain_size, min(1 << 30, max(64 << 20, 64 * stored_size)))


class Changes(TypedDict, total=False):
    """The limits by name; None is the default."""

    document_size: int | None
    chunk_size: int | None
    value_size: int | None
    connect_time: float | None
    read_time: float | None
    total_time: float | None
    attempt_count: int | None
    request_count: int | None
    bucket_attempt_count: int | None
    bucket_request_count: int | None
    gap_size: int | None


_current: Limits | None = None


def current_limits() -> Limits:
    """The limits that hold now.

    Raises
        ValueError: a ZSTORE_LIMIT_* of the environment is no positive number, or there is no such limit.
    """
    global _current
    if _current is None:
        _current = _default_limits()
    return _current


def set_limits(**changes: Unpack[Changes]) -> None:
    """Change what reading takes at most, from now on; None goes back to the default of the environment.

    The limits are those of `zstore.base.limits.Limits`: `document_size`, `chunk_size`, `value_size` and
    `gap_size` in bytes, `connect_time`, `read_time` and `total_time` of HTTP in seconds, how often and how
    many at once requests are made (`attempt_count`, `bucket_attempt_count`, `request_count`).

    Raises
        ValueError: no positive number.
        TypeError: there is no limit of that name.
    """
    global _current
    default, given = _default_limits(), {}
    for name, value in changes.items():
        if name not in _kinds():
            raise TypeError(f"no limit {name!r}; expected {', '.join(_kinds())}")
        given[name] = getattr(default, name) if value is None else _checked(f"limit {name}", name, value)
    _current = replace(current_limits(), **given)


def _kinds() -> Mapping[str, Any]:
    return {field.name: float if field.name.endswith("_time") else int for field in fields(Limits)}


def _default_limits() -> Limits:
    given = {}
    for variable, text in os.environ.items():
        if variable.startswith(PREFIX) and text:
            name = variable.removeprefix(PREFIX).lower()
            if name not in _kinds():
                expected = ", ".join(PREFIX + name.upper() for name in _kinds())
                raise ValueError(f"no limit {variable!r} (in the environment); expected {expected}")
            given[name] = _checked(variable, name, text)
    return Limits(**given)


def _checked(what: str, name: str, value: Any) -> Any:
    kind = _kinds()[name]
    unit = "a number of seconds" if kind is float else "a whole number"
    return check_number(what, value, kind, lambda number: 0 < number < math.inf, f"{unit} above 0")

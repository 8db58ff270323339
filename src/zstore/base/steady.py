"""System calls made again when a signal interrupts them, where Python does not do so itself (PEP 475)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def steady(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, again for as long as a signal interrupts it; for `os.rename` and its like."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue

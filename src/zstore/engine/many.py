"""Many selections at once where their chunks cannot be read together: one read for each, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from zstore.engine.fetch import WINDOW_SIZE
from zstore.engine.pool import map_threads, thread_count
from zstore.storage.base import Store

__all__ = ["read_apart"]

P = TypeVar("P")

# So many reads are under way against a store that takes its time, and so many bytes that they have fetched.
READ_COUNT = 32
READ_SIZE = 256 << 20


def read_apart(
    store: Store,
    read: Callable[[P, np.ndarray[Any, Any]], None],
    plans: Sequence[P],
    outs: Sequence[np.ndarray[Any, Any]],
    size: int,
) -> None:
    """Call `read` for every plan and its memory, each of which holds `size` bytes or two windows."""
    pairs = list(zip(plans, outs, strict=True))

    def read_one(pair: tuple[P, np.ndarray[Any, Any]]) -> None:
        read(*pair)

    if store.request_count > 1:
        most = max(1, READ_SIZE // max(1, min(size, 2 * WINDOW_SIZE)))
        map_threads(read_one, pairs, waiting_count=min(READ_COUNT, store.request_count, most))
    elif len(pairs) >= thread_count():
        map_threads(read_one, pairs)
    else:
        for pair in pairs:
            read_one(pair)

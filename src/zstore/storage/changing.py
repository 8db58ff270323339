"""Changing a value that others change too, in stores that notice each other instead of waiting."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from zstore.errors import ChangedError
from zstore.storage.base import Store

__all__ = ["change"]

# Of all who change a value at the same time one gets through, so this many writers do in the worst case. They
# wait at random, at most twice as long after each attempt (seconds).
ATTEMPTS = 32
FIRST_PAUSE = 0.01
LAST_PAUSE = 1.0


def change(store: Store, key: str, act: Callable[[], None]) -> None:
    """Call `act`, which reads the value of `key` and puts what it makes of it, under the key's lock.

    Again and again where others wrote the value meanwhile.

    Raises
        ChangedError: others wrote it during every attempt; nothing of theirs was overwritten.
    """
    pause = FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with store.lock(key):
                act()
                return
        except ChangedError:
            if attempt == ATTEMPTS:
                raise
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, LAST_PAUSE)

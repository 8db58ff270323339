"""Keeping others out for as long as it takes, where a store has no locks but writes on condition."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from zstore.base.writer import has_ended, writing
from zstore.errors import ChangedError, StoreError
from zstore.storage.base import Store

# How long the claim of somebody who may be dead is waited for, and the pauses between two looks (seconds).
PATIENCE = 600.0
FIRST_PAUSE = 0.02
LAST_PAUSE = 2.0


@contextmanager
def hold_claim(store: Store, key: str) -> Iterator[None]:
    """Exclude everybody who claims `key`, by a value there that says who does; it goes at the end.

    `store.lock` has to see to it that what was read under it is written only if it is still the same. A
    claim whose writer is known to have ended is taken over.

    Raises
        StoreError: somebody else's claim stays, and nothing tells whether its writer is alive.
    """
    with writing() as writer:
        claim = json.dumps({"writer": writer}).encode()
        pause, seen, since = FIRST_PAUSE, b"", time.monotonic()
        while (found := _claim(store, key, claim)) is not None:
            now = time.monotonic()
            if found != seen:
                seen, since = found, now
            elif now - since > PATIENCE:
                raise StoreError(
                    f"somebody else's claim has been there for {PATIENCE:.0f} s; expected it to go, or to be "
                    "deleted if its writer is dead",
                    path=store.url,
                    key=key,
                )
            time.sleep(random.uniform(0, pause))
            pause = min(2 * pause, LAST_PAUSE)
        try:
            yield
        finally:
            _give_up(store, key, claim)


def _claim(store: Store, key: str, claim: bytes) -> bytes | None:
    """Put the claim; or give that of somebody else, who may be alive."""
    try:
        with store.lock(key):
            found = store.get(key)
            if found is not None and not has_ended(_writer(bytes(found))):
                return bytes(found)
            store.put(key, claim)
            return None
    except ChangedError:
        return b""


def _give_up(store: Store, key: str, claim: bytes) -> None:
    """Remove the claim, unless somebody has taken it over meanwhile."""
    with suppress(ChangedError), store.lock(key):
        found = store.get(key)
        if found is not None and bytes(found) == claim:
            store.delete(key)


def _writer(claim: bytes) -> Any:
    try:
        said = json.loads(claim)
    except ValueError:
        return None
    return said.get("writer") if isinstance(said, dict) else None

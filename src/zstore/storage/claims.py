"""Claims: locks for long changes in stores that have no locks, but conditional writes."""

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

# How long to wait for a claim whose writer may be dead, and the pauses between two looks at it (seconds).
PATIENCE = 600.0
FIRST_PAUSE = 0.02
LAST_PAUSE = 2.0


@contextmanager
def hold_claim(store: Store, key: str) -> Iterator[None]:
    """Exclude all others who claim `key`, by a value there that names its writer; removed at the end.

    Writes under `store.lock` must fail where the value that was read has changed. A claim whose writer is
    known to have ended is taken over.

    Raises
        StoreError: another claim stays, and it is not known whether its writer is alive.
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
            _remove(store, key, claim)


def _claim(store: Store, key: str, claim: bytes) -> bytes | None:
    """Put the claim and return None, or return the claim of another writer who may be alive."""
    try:
        with store.lock(key):
            found = store.get(key)
            if found is not None and not has_ended(_writer(bytes(found))):
                return bytes(found)
            store.put(key, claim)
            return None
    except ChangedError:
        return b""


def _remove(store: Store, key: str, claim: bytes) -> None:
    """Remove the claim, unless another writer has taken it over meanwhile."""
    found = store.get(key)
    if found is not None and bytes(found) == claim:
        with suppress(ChangedError):
            store.delete(key)


def _writer(claim: bytes) -> Any:
    try:
        content = json.loads(claim)
    except ValueError:
        return None
    return content.get("writer") if isinstance(content, dict) else None

"""Marks: keys that say that the nodes at and below a path are being made or removed, and by whom.

Whoever holds a mark is alone there: others are refused for as long as its writer may be seen to be alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import ENOTSUP
from typing import Any

from zstore.base.writer import is_under_way, writing
from zstore.engine.documents import place
from zstore.errors import ChangedError, MetadataError, StoreError
from zstore.model.document import parse_json, render_json
from zstore.storage.base import Store, join_key

# The key of a mark: what lies beside it belongs to the operation that put it there.
UNFINISHED = ".zstore-unfinished"
REPLACE = "expected nothing; pass overwrite=True to replace it"


class Mark:
    """A mark that this process has put."""

    def __init__(self, store: Store, path: str, data: bytes) -> None:
        self.key = join_key(path, UNFINISHED)
        self._store, self._data = store, data

    def is_held(self) -> bool:
        """Whether it is still there: nobody has removed it, or put another one in its place."""
        found = self._store.get(self.key)
        return found is not None and bytes(found) == self._data

    def remove(self) -> None:
        """Remove it, which leaves what is there to everybody."""
        self._store.delete(self.key)


def is_unfinished(store: Store, path: str) -> bool:
    """Whether a node at `path` is being made or removed, or was when that was interrupted."""
    return store.get(join_key(path, UNFINISHED)) is not None


def unfinished(where: str, what: str, expected: str) -> StoreError:
    """The error for a mark, put by somebody who may be at work, on a place or above it."""
    return StoreError(
        f"cannot create: {what} is being made or removed, or that was interrupted; {expected}",
        path=where,
        key=UNFINISHED,
    )


def read_mark(mark: bytes | memoryview) -> dict[str, Any]:
    """The content of a mark; empty if it cannot be read."""
    try:
        return parse_json(mark, path="", key=UNFINISHED)
    except MetadataError:
        return {}


@contextmanager
def marked(
    store: Store,
    path: str,
    made: Mapping[str, Any] | None = None,
    *,
    is_new: bool = False,
    seen: bytes | memoryview | None = None,
) -> Iterator[Mark]:
    """Mark the place of a node that is being removed or `made`; whoever leaves the block removes the mark.

    A mark that is there is an error where the place `is_new`; else it is replaced, unless its writer is known
    to be at work. Of `seen`, the mark as it was read, no other one is replaced.

    Raises
        StoreError: somebody else holds the place, as far as the store can tell.
    """
    with writing() as writer:
        mark = Mark(store, path, render_json({"writer": writer, "made": made}))
        try:
            if seen is not None:
                _take_over(store, path, mark._data, seen)
            else:
                store.put_new(mark.key, mark._data)
        except ChangedError as error:
            if is_new or seen is not None:
                raise unfinished(place(store, path), "a node", REPLACE) from error
            _take_over(store, path, mark._data, None)
        yield mark


def _take_over(store: Store, path: str, data: bytes, seen: bytes | memoryview | None) -> None:
    """Replace a mark, unless it is another one than was `seen`, or its writer is at work."""
    key = join_key(path, UNFINISHED)
    try:
        with store.lock(key):
            found = store.get(key)
            if found is not None and is_under_way(read_mark(found).get("writer")):
                raise StoreError(
                    "somebody else is just making or removing a node there; expected that to end first",
                    path=place(store, path),
                    key=UNFINISHED,
                )
            if seen is not None and (found is None or bytes(found) != bytes(seen)):
                raise ChangedError("somebody else has just replaced the mark", path=store.url, key=key)
            store.put(key, data)
    except StoreError as error:
        # A server that keeps no conditions lets the later one win.
        if error.errno != ENOTSUP:
            raise
        store.put(key, data)

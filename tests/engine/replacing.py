"""Calls that make, replace or delete nodes, each in a store that fails at every change in turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import zstore
from zstore.engine.intents import INTENT
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import Store
from zstore.storage.fsspec import FsspecStore
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.store import ZipStore

from ..faults.drills import FailingStore

STORES = ("memory", "fsspec", "local", "zip")


def make_store(kind: str, place: Path) -> Store:
    """An empty store of one of `STORES`, in `place` where it has files."""
    if kind == "memory":
        return MemoryStore()
    if kind == "fsspec":
        # Its lists go through whatever there is, that of stores before this one too.
        MemoryFileSystem.store.clear()
        return FsspecStore.from_url(f"memory://{uuid4().hex}")
    return LocalStore(place) if kind == "local" else ZipStore(f"{place}.zip")


def fill(store: Store, zarr_format: int) -> None:
    root = zstore.create_group(store, zarr_format=zarr_format)
    for path in ("a", "g/a", "other"):
        array = root.create_array(path, shape=(8,), chunks=(4,), dtype="i2", attributes={"was": path})
        array[...] = 1
    for key in ("g/notes.txt", "new/a/notes.txt"):
        store.put(key, b"somebody's")


def seen(store: Store) -> dict[str, Any]:
    """What a reader finds: arrays with their items and attributes, groups."""
    found: dict[str, Any] = {}
    try:
        nodes = [("", zstore.open(store, mode="r"))]
    except NotFoundError:
        nodes = []
    for path, node in nodes:
        if isinstance(node, zstore.Array):
            found[path] = (node.attrs.asdict(), node[...].tolist())
        else:
            found[path] = node.attrs.asdict()
            nodes += [(f"{path}/{name}".strip("/"), member) for name, member in node.items()]
    return found


def check_again(
    make: Callable[[int], Store], act: Callable[[Store, int], Any], zarr_format: int, *, deletes: bool = False
) -> None:
    """Whatever change of `act` fails: readers see old or new, and the same call again succeeds."""
    whole = MemoryStore()
    fill(whole, zarr_format)
    old, stored = seen(whole), {key: bytes(whole.get(key)) for key in whole.list()}
    act(whole, zarr_format)
    new, keys = seen(whole), sorted(whole.list())
    for number in range(200):
        for times in (1, 1 << 30):
            inner = make(2 * number + (times > 1))
            for key, value in stored.items():
                inner.put(key, value)
            store = FailingStore(inner, "")
            store.left, store.times = number, times
            try:
                act(store, zarr_format)
            except StoreError:
                store.left = 1 << 30
                now = seen(store)
                # Of what is replaced, a part may be gone; of what is made, nothing is seen too early.
                for path, found in now.items():
                    assert found in (old.get(path), new.get(path)) or path in ("", "g", "new"), path
                with suppress(NotFoundError) if deletes else nullcontext():
                    act(store, zarr_format)
            assert seen(store) == new
            # The mark's own removal may fail, which the next change of that node makes good.
            left = [key for key in sorted(store.list()) if not key.endswith(INTENT)]
            assert left == [key for key in keys if not key.endswith(INTENT)]
            is_done = store.left > 0 and store.left < (1 << 29)
            store.close()
        if is_done:
            return
    pytest.fail("the call never came to an end")

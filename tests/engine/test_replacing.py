"""Nodes made, replaced and deleted while the store fails: old, new, or the same call again makes it so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.system import start_of
from zstore.engine.intents import INTENT
from zstore.errors import StoreError, ZstoreError
from zstore.storage.base import Store

from ..faults.drills import PausingStore
from .replacing import STORES, check_again, make_store

NEW = {"shape": (6,), "chunks": (3,), "dtype": "i2"}
CALLS: dict[str, Callable[[Store, int], Any]] = {
    "array": lambda store, f: zstore.create_array(store, "a", zarr_format=f, overwrite=True, **NEW),
    "mode w": lambda store, f: zstore.open_array(store, "a", "w", f, **NEW),
    "array with data": lambda store, f: zstore.create_array(
        store, "a", data=np.arange(6, dtype="i2") + 1, chunks=(3,), zarr_format=f, overwrite=True
    ),
    "new with data": lambda store, f: zstore.create_array(
        store, "new/a", data=np.arange(6, dtype="i2") + 1, chunks=(3,), zarr_format=f
    ),
    "array over group": lambda store, f: zstore.create_array(
        store, "g", zarr_format=f, overwrite=True, **NEW
    ),
    "group": lambda store, f: zstore.create_group(store, "g", zarr_format=f, overwrite=True),
    "root": lambda store, f: zstore.create_group(store, zarr_format=f, overwrite=True),
    "root array": lambda store, f: zstore.create_array(store, zarr_format=f, overwrite=True, **NEW),
    "hierarchy": lambda store, f: zstore.create_hierarchy(
        store, {"g": {"attributes": {"is": "new"}}, "g/a": NEW, "g/b/c": NEW}, zarr_format=f, overwrite=True
    ),
    "new hierarchy": lambda store, f: zstore.create_hierarchy(
        store, {"fresh": {}, "fresh/a": NEW, "fresh/b/c": NEW}, zarr_format=f
    ),
    "delete": lambda store, f: zstore.open_group(store, mode="r+").__delitem__("g"),
}


class AtDocument(PausingStore):
    """Waits before the first document of a new node, when its mark and chunks are there."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, 1 << 30)

    def put_new(self, key, value):
        if not key.endswith(INTENT) and not self.is_there.is_set():
            self.left = 0
        return super().put_new(key, value)


@pytest.fixture(params=STORES)
def make(request, tmp_path) -> Callable[[int], Store]:
    return lambda number: make_store(request.param, tmp_path / str(number))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("call", CALLS)
def test_what_fails_can_be_done_again(make, call: str, zarr_format: int) -> None:
    check_again(make, CALLS[call], zarr_format, deletes=call == "delete")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("leaves", [False, True], ids=["removed", "left"])
def test_whoever_ends_while_another_looks_has_made_a_whole_array(
    make, monkeypatch, leaves: bool, zarr_format: int
) -> None:
    """Nor is it half removed where its mark could not be removed, and outlives it."""
    store = make(0)
    zstore.create_group(store, zarr_format=zarr_format)
    maker = AtDocument(store)

    def remove(key: str) -> None:
        if leaves:
            raise StoreError("the store is gone", key=key)
        store.delete(key)

    monkeypatch.setattr(maker, "delete", remove)
    with ThreadPoolExecutor(1) as pool:
        new = {"data": np.full(4, 1), "chunks": 4, "zarr_format": zarr_format}
        making = pool.submit(zstore.create_array, maker, "a", **new)
        assert maker.is_there.wait(60)

        def look(process: int) -> str | None:
            maker.go.set()
            making.result(60)
            return start_of(process)

        monkeypatch.setattr("zstore.engine.intents.start_of", look)
        with nullcontext() if leaves else pytest.raises(StoreError, match="somebody else has just"):
            zstore.create_array(
                store, "a", data=np.full(4, 2), chunks=2, overwrite=True, zarr_format=zarr_format
            )
    found = zstore.open_array(store, "a", mode="r")
    assert found.chunks == ((2,) if leaves else (4,))
    assert (found[...] == 1 + leaves).all()
    assert not [key for key in store.list() if ".zstore" in key]


def test_an_array_whose_group_is_replaced_before_its_document_comes_is_refused(make) -> None:
    """What would be there has lost its chunks."""
    store = make(0)
    zstore.create_group(store).create_group("g")
    maker = AtDocument(store)
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(zstore.create_array, maker, "g/a", data=np.full(4, 1), chunks=4)
        assert maker.is_there.wait(60)
        zstore.create_group(store, "g", overwrite=True)
        maker.go.set()
        with pytest.raises(StoreError, match="somebody else has just removed or replaced"):
            making.result(60)
    assert not [*zstore.open_group(store, "g")]
    assert sorted(store.list()) == ["g/zarr.json", "zarr.json"]


def test_items_are_not_appended_to_an_array_of_another_dtype(make) -> None:
    store = make(0)
    array = zstore.create_array(store, "a", data=np.arange(4, dtype="i4"), chunks=2)
    zstore.create_array(store, "a", data=np.arange(4, dtype="f4"), chunks=2, overwrite=True)
    with pytest.raises(StoreError, match="replaced the array by one of float32; expected int32"):
        array.append(np.array([4, 5], "i4"))
    assert zstore.open_array(store, "a")[...].tolist() == [0, 1, 2, 3]


def test_chunks_without_a_node_are_nobodys_to_remove(make) -> None:
    store = make(0)
    store.put("a/c/0", b"somebody's")
    with pytest.raises(StoreError, match="chunks of the new array"):
        CALLS["array"](store, 3)
    assert bytes(store.get("a/c/0") or b"") == b"somebody's"


def test_what_somebody_else_makes_is_left_alone(make) -> None:
    store = make(0)
    store.put(f"a/{INTENT}", b'{"writer": {"machine": "another", "process": 1, "begun": "1"}}')
    store.put("a/c/0", b"somebody's")
    for path in ("a", "a/b"):
        with pytest.raises(StoreError, match="being made or removed"):
            zstore.create_array(store, path, **NEW)
    assert bytes(store.get("a/c/0") or b"") == b"somebody's"
    zstore.create_array(store, "a", overwrite=True, **NEW)
    assert sorted(store.list("a")) == ["a/zarr.json"]
    for keys in (b'["default", "/", 1e999]', b'["v2", "", 1]', b"{}"):
        store.put(f"b/{INTENT}", b'{"made": {"keys": %s}}' % keys)
        with pytest.raises(StoreError, match="cannot tell what was being made"):
            zstore.create_array(store, "b", overwrite=True, **NEW)


def test_data_that_cannot_be_stored_leaves_nothing(make) -> None:
    store = make(0)
    zstore.create_group(store)
    store.put("a/notes.txt", b"somebody's")
    with pytest.raises((ZstoreError, ValueError)):
        zstore.create_array(store, "a", data=np.array(["x", 7], object), dtype=str)
    assert sorted(store.list()) == ["a/notes.txt", "zarr.json"]

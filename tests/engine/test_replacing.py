"""Nodes made, replaced and deleted while the store fails: old, new, or the same call again makes it so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import product
from typing import Any

import numpy as np
import pytest

import zstore
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


@pytest.fixture(params=STORES)
def make(request, tmp_path) -> Callable[[int], Store]:
    return lambda number: make_store(request.param, tmp_path / str(number))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("call", CALLS)
def test_what_fails_can_be_done_again(make, call: str, zarr_format: int) -> None:
    check_again(make, CALLS[call], zarr_format, deletes=call == "delete")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_of_two_who_replace_one_array_the_chunks_never_mix(make, zarr_format: int) -> None:
    """One stops at its n-th change, the other at its m-th; then both go on, one after the other."""
    number = 0
    for first, second in product(range(0, 13, 2 if zarr_format == 2 else 1), range(1, 13, 2)):
        store = make(number := number + 1)
        zstore.create_group(store, zarr_format=zarr_format)
        zstore.create_array(
            store, "a", data=np.full(40, 9), chunks=(9,), attributes={"who": 9}, zarr_format=zarr_format
        )
        makers = [PausingStore(store, first), PausingStore(store, second)]

        def replace(who: int, makers: list[PausingStore] = makers) -> bool:
            # One chunk fewer each: whatever the other one left would be seen.
            made = {"chunks": (4 * (who + 1),), "attributes": {"who": who}, "zarr_format": zarr_format}
            try:
                zstore.create_array(makers[who], "a", data=np.full(40, who + 1), overwrite=True, **made)
            except StoreError as error:
                assert "somebody else" in str(error) or "being made or removed" in str(error)
                return False
            finally:
                makers[who].is_there.set()
            return True

        with ThreadPoolExecutor(2) as pool:
            ends = []
            for who, maker in enumerate(makers):
                ends.append(pool.submit(replace, who))
                # Not so, where it waits for a lock that the first one holds.
                maker.is_there.wait(60 if who == 0 else 0.2)
            for who in (number % 2, 1 - number % 2):
                makers[who].go.set()
                wait([ends[who]], timeout=60 if makers[who].is_there.is_set() else 0.2)
            succeeded = [who for who, end in enumerate(ends) if end.result(60)]
        array = zstore.open_array(store, "a", mode="r")
        who = array.attrs["who"]
        assert who in succeeded, (first, second)
        assert array.chunks == (4 * (who + 1),)
        assert (array[...] == who + 1).all(), (first, second, array[...])
        assert len([*store.list("a")]) == (1 if zarr_format == 3 else 2) + (10, 5)[who]
        store.close()


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

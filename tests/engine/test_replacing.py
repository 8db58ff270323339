"""Nodes made, replaced and deleted while the store fails: old, new, or the same call again makes it so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from itertools import product
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import zstore
from zstore.engine.making import INTENT
from zstore.errors import NotFoundError, StoreError, ZstoreError
from zstore.storage.base import Store
from zstore.storage.fsspec import FsspecStore
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.store import ZipStore

from ..faults.drills import FailingStore, PausingStore


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


def source() -> Store:
    store = MemoryStore()
    zstore.create_array(store, data=np.arange(6, dtype="i2") + 1, chunks=(3,))
    return store


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
    "convert": lambda store, f: zstore.convert(
        source(), store, target_path="a", zarr_format=f, chunks=(4,), overwrite=True
    ),
    "convert a group": lambda store, f: zstore.convert(
        source(), store, target_path="g", zarr_format=f, overwrite=True
    ),
    "delete": lambda store, f: zstore.open_group(store, mode="r+").__delitem__("g"),
}


@pytest.fixture(params=["memory", "fsspec", "local", "zip"])
def make(request, tmp_path) -> Callable[[int], Store]:
    def make_one(number: int) -> Store:
        if request.param == "memory":
            return MemoryStore()
        if request.param == "fsspec":
            return FsspecStore.from_url(f"memory://{uuid4().hex}")
        place = tmp_path / str(number)
        return LocalStore(place) if request.param == "local" else ZipStore(f"{place}.zip")

    return make_one


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("call", CALLS)
def test_what_fails_can_be_done_again(make, call: str, zarr_format: int) -> None:
    act = CALLS[call]
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
                with nullcontext() if call != "delete" else suppress(NotFoundError):
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


@pytest.mark.wings
def test_what_was_left_unfinished_can_be_converted_over(make) -> None:
    store = make(0)
    zstore.create_group(store)
    store.put(f"a/{INTENT}", b'{"writer": null, "made": null}')
    store.put("a/c/0", b"left over")
    with pytest.raises(StoreError, match="overwrite=True"):
        zstore.convert(source(), store, target_path="a")
    zstore.convert(source(), store, target_path="a", overwrite=True)
    assert zstore.open_array(store, "a", "r")[...].tolist() == [1, 2, 3, 4, 5, 6]
    assert sorted(store.list("a")) == ["a/c/0", "a/c/1", "a/zarr.json"]

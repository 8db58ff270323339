"""Nodes made, replaced and deleted while the store fails: old, new, or the same call again makes it so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from typing import Any

import numcodecs
import numpy as np
import pytest

import zstore
from zstore.base.system import start_of
from zstore.engine.chunks import RegularChunks
from zstore.engine.intents import INTENT
from zstore.errors import ChangedError, NotFoundError, StoreError, ZstoreError
from zstore.storage.base import Changes, Store
from zstore.storage.memory import MemoryStore

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


# What an array has otherwise that replaces another.
OTHERS = (
    *({"dtype": "f4"}, {"chunks": (4,)}, {"compressors": None}, {"fill_value": 7}),
    {"shape": (8, 8), "chunks": (8, 8)},
)


@pytest.fixture(params=sorted({*STORES} - {"fsspec"}))
def guarded(request, tmp_path) -> Callable[[int], Store]:
    """Stores that say at once whether a document is another one."""
    return lambda number: make_store(request.param, tmp_path / str(number))


@pytest.mark.parametrize("form", ["native", "python", "text"])
@pytest.mark.parametrize("path", ["a", ""])
def test_nothing_is_written_to_an_array_of_other_chunks(guarded, path: str, form: str) -> None:
    """Whoever has an array open writes no whole chunk of its former form into the one that replaced it."""
    forms = {"native": {}, "python": {"compressors": numcodecs.BZ2()}, "text": {"dtype": str}}
    made = {"shape": (16,), "dtype": "i4", "chunks": (8,), "zarr_format": 2} | forms[form]
    for number, other in enumerate(OTHERS):
        store = guarded(number)
        array = zstore.create_array(store, path, **made)
        items = np.arange(1, 9).astype("U1" if form == "text" else "i4")
        array[:8] = items
        new = {**made, **other}
        if form == "text" and "fill_value" in other:
            new |= {"dtype": "i4"}
        zstore.create_array(store, path, overwrite=True, **new)
        with pytest.raises(ChangedError, match=r"somebody else has replaced the array, which .* expected"):
            array[:8] = items
        assert not [key for key in store.list() if "/.z" not in f"/{key}"]
        array.refresh()
        array[...] = items.astype(array.dtype)[0]
        assert (zstore.open_array(store, path)[...] == array[...]).all()


@pytest.mark.parametrize("shards", [None, (16,)])
def test_a_document_that_has_been_there_for_long_is_known_by_its_state(tmp_path, shards) -> None:
    array = zstore.create_array(tmp_path, shape=(32,), dtype="i4", chunks=(8,), shards=shards)
    time.sleep(0.15)  # of one that was written just now, the times do not show another change
    array[:] = 1
    assert array._chunks.folder.knows_document
    other = zstore.open_array(tmp_path, mode="r+")
    other.attrs["a"] = 1
    other.resize(48)
    array[16:32] = 2
    assert zstore.open_array(tmp_path)[...].tolist() == [1] * 16 + [2] * 16 + [0] * 16
    time.sleep(0.15)
    array[16:32] = 2
    zstore.create_array(tmp_path, shape=(32,), dtype="i4", chunks=(4,), overwrite=True)
    with pytest.raises(ChangedError, match=r"now one in chunks \(4,\), expected \((8|16),\)"):
        array[16:32] = 2
    assert not zstore.open_array(tmp_path)[...].any()


def test_others_may_resize_an_array_in_chunks_of_several_shapes_meanwhile(guarded) -> None:
    store = guarded(0)
    array = zstore.create_array(store, shape=(12,), dtype="i4", chunks=[[4, 8]])
    array[:] = 1
    zstore.open_array(store, mode="r+").resize(20)
    array[:4] = 2
    assert zstore.open_array(store)[...].tolist() == [2] * 4 + [1] * 8 + [0] * 8
    zstore.create_array(store, shape=(12,), dtype="i4", chunks=[[8, 4]], overwrite=True)
    with pytest.raises(ChangedError, match="replaced"):
        array[:4] = 2


def test_an_array_viewed_as_another_type_can_be_written(make) -> None:
    array = zstore.create_array(make(0), shape=(8,), dtype="i4", chunks=(4,), compressors=None)
    array.viewed_as("u4")[:4] = 2**32 - 1
    assert array[...].tolist() == [-1] * 4 + [0] * 4


@pytest.mark.parametrize("path", ["g", "g/a"])
def test_who_writes_a_part_of_a_chunk_while_it_is_removed_is_told(guarded, monkeypatch, path: str) -> None:
    store = guarded(0)
    encode, removing = RegularChunks._encode, []

    def encode_late(*args: Any) -> list[Any]:
        removing.append(pool.submit(zstore.open_group(store, mode="r+").__delitem__, path))
        wait(removing[-1:], 0.2)  # in a directory, an array is removed when the write has ended
        return encode(*args)

    # The kernels write by themselves into the directory that they have open, where there is one.
    forms = (numcodecs.BZ2(), *(("auto",) if store.local_path() is None else ()))
    for compressors in forms:
        group = zstore.create_group(store, overwrite=True)
        array = group.create_array("g/a", data=np.arange(8), chunks=4, compressors=compressors)
        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool, suppress(NotFoundError):
            patch.setattr(RegularChunks, "_encode", encode_late)
            array[1:3] = 7
        assert removing[-1].result() is None
        assert not [key for key in store.list() if key.startswith("g/a")]
    assert len(removing) == len(forms)


@pytest.mark.parametrize("form", ["native", "python", "text", "several"])
@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("kind", ["memory", "zip"])
def test_who_writes_a_part_of_a_chunk_while_the_array_is_replaced_puts_nothing_back(
    tmp_path, monkeypatch, kind: str, is_filled: bool, form: str
) -> None:
    """However equal the new array is: whoever is late has written to that one."""
    forms: dict[str, dict[str, Any]] = {"native": {}, "python": {"compressors": numcodecs.BZ2()}}
    forms |= {"text": {"dtype": str}, "several": {"chunks": [[4, 2]], "zarr_format": 3}}
    new = {"chunks": (4,), "dtype": "i4", "zarr_format": 2, **forms[form]}
    store, items = make_store(kind, tmp_path / "a"), np.arange(1, 7).astype(new["dtype"])
    array = zstore.create_array(store, "a", data=items, **new)
    expected = np.full(6, items[4]) if is_filled else np.zeros(6, items.dtype)
    read = type(store).get_many, type(store).get
    left = [1]

    def replace() -> None:
        if left and left.pop():
            data = {"data": expected} if is_filled else {"shape": 6}
            zstore.create_array(store, "a", overwrite=True, **new, **data)

    def get_many(self: Store, asked: Any) -> Any:
        found = read[0](self, asked)
        if next(iter(asked))[0] in ("a/0", "a/c/0"):
            replace()
        return found

    def get(self: Store, key: str, *args: Any) -> Any:
        found = read[1](self, key, *args)
        if key in ("a/0", "a/c/0"):
            replace()
        return found

    monkeypatch.setattr(type(store), "get_many", get_many)
    monkeypatch.setattr(type(store), "get", get)
    array[1:3] = items[:2]
    assert not left
    expected[1:3] = items[:2]
    assert zstore.open_array(store, "a")[...].tolist() == expected.tolist()


@pytest.mark.parametrize("change", ["append", "resize", "attributes"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["memory", "zip"])
def test_a_document_that_is_changed_while_it_is_removed_does_not_come_back(
    tmp_path, monkeypatch, kind: str, zarr_format: int, change: str
) -> None:
    store, left = make_store(kind, tmp_path / "a"), [1]
    root = zstore.create_group(store, zarr_format=zarr_format)
    array = root.create_group("g").create_array("a", data=np.arange(5), chunks=4)
    swap = type(store).swap

    def swap_late(self: Store, changes: Changes) -> Any:
        if any(".z" in key or "zarr.json" in key for key, one in changes.items() if one[1] is not ...):
            while left and left.pop():
                del root["g"]
        return swap(self, changes)

    monkeypatch.setattr(type(store), "swap", swap_late)
    calls: dict[str, Callable[[], Any]] = {
        "append": lambda: array.append(np.arange(5)),
        "resize": lambda: array.resize(7),
        "attributes": lambda: array.attrs.update(a=1),
    }
    with pytest.raises(NotFoundError, match="gone"):
        calls[change]()
    assert not left
    assert not [*store.list("g")]


def test_a_late_write_takes_nothing_from_an_array_that_is_made_meanwhile() -> None:
    begun, go = threading.Event(), threading.Event()

    class Halting(MemoryStore):
        """The new array's document waits until the writer has come to put what it has encoded."""

        is_late = is_replaced = False

        def swap(self, changes: Changes) -> bool:
            if changes and self.is_late:
                self.is_late, self.is_replaced = False, True
                making.append(pool.submit(zstore.create_array, self, "a", data=new, chunks=2, overwrite=True))
                assert begun.wait(60)
            return super().swap(changes)

        def put_new(self, key: str, value: Any) -> Any:
            if self.is_replaced and key == "a/zarr.json":
                begun.set()
                assert go.wait(60)
            return super().put_new(key, value)

    new, making = np.arange(101, 107), list[Any]()
    store = Halting()
    array = zstore.create_group(store).create_array("a", data=np.arange(6), chunks=2)
    with ThreadPoolExecutor(1) as pool:
        store.is_late = True
        try:
            with pytest.raises(NotFoundError, match="array is gone"):
                array[:4] = 50
            assert sorted(store.list("a")) == sorted([f"a/{INTENT}", *(f"a/c/{n}" for n in range(3))])
        finally:
            go.set()
        assert making[0].result()[...].tolist() == new.tolist()


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


def test_documents_that_say_the_same_otherwise_are_no_others(tmp_path) -> None:
    """Other tools write documents anew, with what is usual left out or added."""
    inner = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 1}},
    ]
    array = zstore.create_array(tmp_path, shape=8, chunks=4, shards=8, dtype="f4", fill_value=np.nan)
    array[:] = 1
    path = tmp_path / "zarr.json"
    document = json.loads(path.read_text())
    sharding = document["codecs"][0]["configuration"]
    assert sharding["codecs"] != inner
    sharding["codecs"] = inner
    sharding.pop("index_location", None)
    document["fill_value"] = "0xffc00001"
    path.write_text(json.dumps(document))
    array[:] = 2
    assert zstore.open_array(tmp_path)[...].tolist() == [2] * 8
    sharding["codecs"][0]["configuration"]["endian"] = "big"
    path.write_text(json.dumps(document))
    with pytest.raises(ChangedError, match=r"codecs .*'big'.* expected .*'little'"):
        array[:] = 3

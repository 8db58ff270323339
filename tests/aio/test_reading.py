"""What is awaited is what a call gives: every kind of array, selection, store and error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zstore
from zstore.engine.awaiting import BUDGET
from zstore.errors import CodecError, NotFoundError, ReadOnlyError, SelectionError, ZstoreError
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

from ..properties.recipes import assert_same, recipes
from ..properties.selections import numpy_selections, orthogonal, points
from ..properties.test_arrays import QUICK, SEEDS, filled, has_repeats, values_for, without_leading
from .stores import AwaitedStore

ITEMS = np.arange(1, 257, dtype="u2").reshape(16, 16)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert (BUDGET.count, BUDGET.size) == (0, 0)


def through(store: Store, array: zstore.Array) -> zstore.Array:
    """The same array in an awaited store that has the same values."""
    for key in array.store.list():
        store.put(key, bytes(array.store.get(key) or b""))
    return zstore.open_array(store, array.path)


@QUICK
@given(st.data(), SEEDS)
def test_reads_and_writes_equal_calls(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes())
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, seed)
        if data.draw(st.booleans()):
            array = through(AwaitedStore(has_versions=data.draw(st.booleans())), array)
        selections = [data.draw(numpy_selections(recipe.shape)) for _ in range(3)]
        selections = [one for one in selections if is_within(items, one)]
        rows, spots = data.draw(orthogonal(recipe.shape)), data.draw(points(recipe.shape))

        async def read() -> list[Any]:
            return await asyncio.gather(
                array.read_async(),
                array.read_many_async(selections),
                array.oindex.read_async(rows),
                array.vindex.read_async(spots),
                *map(array.read_async, selections),
            )

        whole, many, outer, spread, *single = asyncio.run(read())
        assert_same(whole, items)
        for got, one, selection in zip(many, single, selections, strict=True):
            assert_same(got, array[selection])
            assert_same(one, array.read(selection))
        assert_same(outer, array.oindex[rows])
        assert_same(spread, array.vindex[spots])
        for selection in selections:
            shape = np.shape(items[selection])
            value = values_for(data, shape, items.dtype, seed)
            if has_repeats(selection, recipe.shape):
                value = value.ravel()[:1].reshape(()) if value.size else value
            items[selection] = without_leading(value, shape)
            asyncio.run(array.write_async(selection, value))
        assert_same(array[...], items)


def is_within(items: np.ndarray[Any, Any], selection: Any) -> bool:
    try:
        items[selection]
    except IndexError:
        return False
    return True


TEXT = np.array([f"{n} {'ä' * (n % 7)}" for n in range(30)], object).reshape(5, 6)
FIELDS = np.zeros((5, 6), [("a", "i2"), ("b", "f4")])
FIELDS["a"] = np.arange(30).reshape(5, 6)
KINDS: dict[str, Callable[[Store], tuple[zstore.Array, Any]]] = {
    "text": lambda store: (zstore.create_array(store, "a", data=TEXT, dtype=str, chunks=(2, 3)), TEXT),
    "text in shards": lambda store: (
        zstore.create_array(store, "a", data=TEXT, dtype=str, chunks=(1, 2), shards=(2, 4)),
        TEXT,
    ),
    "objects": lambda store: (
        zstore.create_array(
            store, "a", data=TEXT, dtype=object, chunks=(2, 3), zarr_format=2, filters=[{"id": "json2"}]
        ),
        TEXT,
    ),
    "uneven": lambda store: (
        zstore.create_array(store, "a", data=FIELDS["a"], chunks=[[1, 3, 1], [4, 2]]),
        FIELDS["a"],
    ),
    "fields": lambda store: (zstore.create_array(store, "a", data=FIELDS, chunks=(2, 3)), FIELDS),
    "far": lambda store: (
        zstore.create_array(store, "a", data=FIELDS["a"], chunks=(1, 1), shards=(2, 2)),
        FIELDS["a"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [MemoryStore, AwaitedStore, None])
def test_kinds_of_items_and_grids(tmp_path: Path, kind: str, make: Any) -> None:
    array, items = KINDS[kind](make() if make else zstore.storage.local.LocalStore(tmp_path))
    items = items.copy()
    wanted = [np.s_[1:4, 2:], np.s_[:], np.s_[-1], np.s_[[3, 0], 1:], np.s_[2, 2]]

    async def run() -> list[Any]:
        await array.write_async(np.s_[1:3, 1], items[0, 0])
        if kind == "fields":
            await array.write_async(("b", np.s_[:2]), np.float32(7))
        return await array.read_many_async(wanted)

    found = asyncio.run(run())
    items[1:3, 1] = items[0, 0]
    if kind == "fields":
        items["b"][:2] = 7
        np.testing.assert_array_equal(asyncio.run(array.read_async(("b", np.s_[1:]))), items["b"][1:])
    for got, selection in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, items[selection])
    memory = np.empty(items[1:4, 2:].shape, array.dtype)
    assert asyncio.run(array.read_async(np.s_[1:4, 2:], out=memory)) is memory
    np.testing.assert_array_equal(memory, items[1:4, 2:])


def test_nodes_are_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        group = await zstore.aio.create_group(tmp_path / "a.zarr", attributes={"n": 1})
        array = await zstore.aio.create_array(tmp_path / "a.zarr", "b", data=ITEMS, chunks=(4, 4))
        assert await zstore.aio.open(tmp_path / "a.zarr", "b") == array
        assert await zstore.aio.open_array(tmp_path / "a.zarr", "b", "r") == array
        assert (await zstore.aio.open_group(tmp_path / "a.zarr")).attrs == group.attrs
        with pytest.raises(NotFoundError, match="looked for"):
            await zstore.aio.open(tmp_path / "a.zarr", "nothing")

    asyncio.run(run())


def damaged(store: Store) -> zstore.Array:
    array = zstore.create_array(store, "a", data=ITEMS, chunks=(4, 4))
    store.put("a/c/1/1", bytes(5))
    store.delete("a/c/0/1")
    return array


WRONG: dict[str, tuple[type[Exception], Callable[[zstore.Array], Any], Callable[[zstore.Array], Any]]] = {
    "damage": (CodecError, lambda a: a[...], lambda a: a.read_async()),
    "a part": (
        CodecError,
        lambda a: a.__setitem__(np.s_[4:5, 4:5], 1),
        lambda a: a.write_async(np.s_[4:5, 4:5], 1),
    ),
    "outside": (SelectionError, lambda a: a[99], lambda a: a.read_async(99)),
    "many": (SelectionError, lambda a: a.read_many([0, [99]]), lambda a: a.read_many_async([0, [99]])),
    "missing": (
        NotFoundError,
        lambda a: a.read(np.s_[0], missing="error"),
        lambda a: a.read_async(np.s_[0], missing="error"),
    ),
    "memory": (
        ValueError,
        lambda a: a.read(np.s_[0], out=np.empty(3)),
        lambda a: a.read_async(np.s_[0], out=np.empty(3)),
    ),
    "value": (
        SelectionError,
        lambda a: a.__setitem__(np.s_[:2], np.ones(5)),
        lambda a: a.write_async(np.s_[:2], np.ones(5)),
    ),
    "read-only": (
        ReadOnlyError,
        lambda a: zstore.open_array(a.store, "a", "r").__setitem__(..., 1),
        lambda a: zstore.open_array(a.store, "a", "r").write_async(..., 1),
    ),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("make", [MemoryStore, AwaitedStore, None])
def test_errors_are_those_of_calls(tmp_path: Path, what: str, make: Any) -> None:
    array = damaged(make() if make else zstore.storage.local.LocalStore(tmp_path))
    kind, call, wait = WRONG[what]
    with pytest.raises(kind) as called:
        call(array)

    async def run() -> None:
        await wait(array)

    with pytest.raises(kind) as awaited:
        asyncio.run(run())
    assert type(awaited.value) is type(called.value)
    assert str(awaited.value) == str(called.value)
    if isinstance(called.value, ZstoreError):
        assert vars(awaited.value) == vars(called.value)


def test_the_loop_goes_on_while_chunks_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    from zstore.codecs.base import Chain

    array = zstore.create_array(
        AwaitedStore(), "a", data=ITEMS, chunks=(8, 8), filters=None, compressors=[{"name": "numcodecs.bz2"}]
    )
    here, real, told = threading.get_ident(), Chain.decode, threading.Event()

    def decode(self: Chain, data: Any) -> Any:
        assert threading.get_ident() != here
        assert told.wait(60), "the loop stood still"
        return real(self, data)

    monkeypatch.setattr(Chain, "decode", decode)

    async def run() -> Any:
        reading = asyncio.ensure_future(array.read_async())
        for _ in range(50):
            await asyncio.sleep(0)
        told.set()
        return await reading

    np.testing.assert_array_equal(asyncio.run(run()), ITEMS)

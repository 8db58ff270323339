"""Changes of shape that fail at every point where they can, and readers that look at every moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.storage.memory import MemoryStore

KINDS: dict[str, dict[str, Any]] = {
    "v1": {"zarr_format": 1, "chunks": (4, 4)},
    "v2": {"zarr_format": 2, "chunks": (4, 4)},
    "v3": {"chunks": (4, 4)},
    "shards": {"chunks": (2, 4), "shards": (4, 8)},
    "python": {"chunks": (4, 4), "compressors": ["numcodecs.bz2"]},
    "rectilinear": {"chunks": [[3, 5, 4, 7], [2, 6, 9]]},
    "text": {"chunks": (4, 4), "dtype": str, "fill_value": "0"},
}
OLD = (13, 14)


class WatchedStore(MemoryStore):
    """Calls `watch` after every change; fails at the n-th change, and at every one after it."""

    left = 1 << 30
    watch: Callable[[], None] | None = None

    def _count(self, key: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("the store is gone", path=self.url, key=key)

    def put(self, key, value):
        self._count(key)
        super().put(key, value)
        if self.watch:
            self.watch()

    def swap(self, changes):
        changed = [key for key, (_, new) in changes.items() if new is not ...]
        for key in changed:
            self._count(key)
        is_done = super().swap(changes)
        if self.watch and changed:
            self.watch()
        return is_done

    def delete(self, key):
        self._count(key)
        super().delete(key)
        if self.watch:
            self.watch()


def items(shape: tuple[int, ...], like: zstore.Array) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)).reshape(shape) + 1).astype(like.dtype)


def same(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and bool((np.asarray(one) == np.asarray(other)).all())


def resized(old: np.ndarray[Any, Any], shape: tuple[int, ...], fill: Any) -> np.ndarray[Any, Any]:
    new = np.full(shape, fill, old.dtype)
    part = tuple(slice(0, min(a, b)) for a, b in zip(old.shape, shape, strict=True))
    new[part] = old[part]
    return new


CHANGES: dict[str, tuple[Callable[[zstore.Array], Any], Callable[[Any, zstore.Array], Any]]] = {
    **{
        str(shape): (lambda a, s=shape: a.resize(s), lambda old, a, s=shape: resized(old, s, a.fill_value))
        for shape in ((5, 7), (16, 20), (13, 20), (20, 3), (13, 8), (0, 14), (14, 15))
    },
    "append 0": (
        lambda a: a.append(items((6, 14), a)),
        lambda old, a: np.concatenate([old, items((6, 14), a)]),
    ),
    "append 1": (
        lambda a: a.append(items((13, 3), a), axis=1),
        lambda old, a: np.concatenate([old, items((13, 3), a)], 1),
    ),
}


def left_by_others(store: MemoryStore, array: zstore.Array) -> None:
    """What tools leave that cut an array's shape and nothing else."""
    larger = array.model.with_shape(array.model.grid.beyond((24, 24)))
    tall = zstore.Array(store, array.path, larger)
    old = array[...]
    tall[...] = items(larger.shape, array)
    tall[: OLD[0], : OLD[1]] = old


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_array_is_old_or_new_at_every_moment(kind: str, change: str) -> None:
    act, expect = CHANGES[change]
    options = {"dtype": "i2", "fill_value": 0, **KINDS[kind]}
    for changes in (*range(6), *range(6, 200, 9)):
        store = WatchedStore()
        if kind != "v1":
            zstore.create_group(store, zarr_format=options.get("zarr_format", 3))
        array = zstore.create_array(store, "a", shape=OLD, **options)
        old = items(OLD, array)
        array[...] = old
        if kind != "rectilinear":
            left_by_others(store, array)
        new = expect(old, array)

        def look(store=store, old=old, new=new, options=options) -> None:
            seen = zstore.open_array(store, "a", "r", options.get("zarr_format"))[...]
            assert same(seen, old) or same(seen, new)

        store.watch, store.left = look, changes
        try:
            act(array)
        except StoreError:
            store.left = 1 << 30
            look()
            again = zstore.open_array(store, "a", "r+")
            if not ("append" in change and again.shape == new.shape):
                act(again)
        else:
            store.left = 1 << 30
        done = zstore.open_array(store, "a", "r+")
        assert same(done[...], new)
        if store.left == 1 << 30 and array.shape == new.shape:
            assert same(array[...], new)
        # Whatever was cut stays away.
        store.watch = None
        done.resize((24, 24))
        assert same(done[...], resized(new, (24, 24), array.fill_value))
        if changes > 3 and array.shape == new.shape:
            return
    pytest.fail("the change never came to an end")


def test_growing_looks_at_the_new_chunks_only() -> None:
    class CountingStore(MemoryStore):
        asked = 0
        may_list = True

        def get(self, key, byte_range=None):
            self.asked += 1
            return super().get(key, byte_range)

        def list(self, prefix=""):
            assert self.may_list, "nothing is listed"
            return super().list(prefix)

    store = CountingStore()
    array = zstore.create_array(store, "a", shape=(0, 8), chunks=(4, 4), dtype="i2")
    store.may_list = False
    for _ in range(50):
        array.append(np.ones((4, 8), "i2"))
    store.asked = 0
    array.resize((204, 8))
    few = store.asked
    assert few < 12
    array.append(np.ones((4, 8), "i2"))
    assert store.asked - few < 12


def test_growing_far_lists_what_is_there() -> None:
    store = MemoryStore()
    array = zstore.create_array(store, "a", shape=(10,), chunks=(4,), dtype="i2")
    array[...] = 1
    store.put("a/c/900000", b"left by somebody")
    array.resize(1 << 40)
    assert sorted(store.list("a/c")) == ["a/c/0", "a/c/1", "a/c/2"]
    assert (array[8:20] == [1, 1] + 10 * [0]).all()


def test_a_change_of_the_shape_by_others_meanwhile_is_seen() -> None:
    store = WatchedStore()
    array = zstore.create_array(store, "a", shape=(4,), chunks=(4,), dtype="i2")
    array[...] = 1
    document = store.get("a/zarr.json")

    def cut_in() -> None:
        store.watch = None
        store.put("a/zarr.json", bytes(document).replace(b"4", b"8", 1))

    store.watch = cut_in
    assert array.append(np.full(4, 2, "i2")) == (12,)
    assert array[8:].tolist() == [2] * 4

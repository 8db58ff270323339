"""Any array, any selection: what zstore reads and writes is what numpy does with the same items in memory."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import SelectionError

from .recipes import Recipe, assert_same, random_items, recipes
from .selections import numpy_selections, orthogonal, orthogonal_to_numpy, points

# More examples than the usual ones: ZSTORE_EXAMPLES=5000, each time other ones.
MORE = int(os.environ.get("ZSTORE_EXAMPLES", "0"))
QUICK = settings(
    max_examples=MORE or 100,
    derandomize=not MORE,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SEEDS = st.integers(0, 999)


def filled(recipe: Recipe, directory: str, seed: int) -> tuple[zstore.Array, np.ndarray[Any, Any]]:
    """A new array with items in it, and the same items in memory."""
    array = recipe.make(Path(directory))
    items = random_items(np.random.default_rng(seed), recipe.shape, recipe.numpy)
    items.flat[::3] = recipe.fill
    array[...] = items
    return array, items


def values_for(
    data: st.DataObject, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int
) -> np.ndarray[Any, Any]:
    """Something that numpy broadcasts to `shape`, with strides of any kind."""
    cut = data.draw(st.integers(0, len(shape)))
    narrow = [1 if data.draw(st.integers(0, 4)) == 0 else n for n in shape[cut:]]
    value = random_items(np.random.default_rng(seed), tuple(narrow), dtype)
    form = data.draw(st.sampled_from(["plain", "fortran", "reversed", "leading", "swapped", "fill"]))
    if form == "fortran":
        return np.asarray(value, order="F")
    if form == "reversed":
        back = (..., *(slice(None, None, -1) for _ in value.shape))
        return value[back].copy()[back]
    if form == "leading" and shape and cut == 0:
        return value[None, None]
    if form == "swapped":
        return value.astype(dtype.newbyteorder())
    return value


@QUICK
@given(st.data(), SEEDS)
def test_reads_equal_numpy(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes())
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, seed)
        assert_same(array[...], items)
        again = zstore.open_array(array.store, "a", "r")
        assert_same(again[...], items)
        for _ in range(6):
            selection = data.draw(numpy_selections(recipe.shape))
            try:
                expected = items[selection]
            except IndexError:
                with pytest.raises(SelectionError):
                    array[selection]
                continue
            got = array[selection]
            assert_same(got, expected)
            assert isinstance(got, np.generic) == isinstance(expected, np.generic)


@QUICK
@given(st.data(), SEEDS)
def test_reads_into_given_memory(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes(max_ndim=3))
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, seed)
        for _ in range(4):
            selection = data.draw(numpy_selections(recipe.shape))
            try:
                # A single item of numpy's has the machine's byte order, whatever the array's is.
                expected = np.asarray(items[selection], recipe.numpy)
            except IndexError:
                continue
            shape = np.shape(expected)
            around = random_items(
                np.random.default_rng(seed + 1), tuple(2 * n + 3 for n in shape), recipe.numpy
            )
            before = around.copy()
            step = data.draw(st.sampled_from([1, 2, -1, -2]))
            start = 1 if step > 0 else -2
            inside = (*(slice(start, None, step) for _ in shape), ...)
            within = (*(slice(0, n) for n in shape), ...)
            view = around[inside][within]
            assert array.read(selection, out=view) is view
            assert_same(view, expected)
            view[...] = before[inside][within]  # nothing beside it was touched
            assert_same(around, before)


@QUICK
@given(st.data(), SEEDS)
def test_writes_equal_numpy(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes())
    with TemporaryDirectory() as directory:
        array = recipe.make(Path(directory))
        items = np.full(recipe.shape, recipe.fill)
        for number in range(data.draw(st.integers(1, 4))):
            basic = data.draw(st.booleans())
            selection = data.draw(
                numpy_selections(recipe.shape, basic=basic, unique=data.draw(st.booleans()))
            )
            try:
                shape = np.shape(items[selection])
            except IndexError:
                with pytest.raises(SelectionError):
                    array[selection] = 0
                continue
            value = values_for(data, shape, recipe.numpy, seed + number)
            if has_repeats(selection, recipe.shape):
                value = value.ravel()[:1].reshape(()) if value.size else value
            # numpy drops leading dimensions of one item too, but not beside a mask.
            items[selection] = without_leading(value, shape)
            array[selection] = value
            assert_same(array[...], items)
        assert_same(zstore.open_array(array.store, "a", "r")[...], items)


def without_leading(value: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """`value` with no more dimensions than `shape`."""
    return value.reshape(value.shape[max(0, value.ndim - len(shape)) :])


def has_repeats(selection: Any, shape: tuple[int, ...]) -> bool:
    """Whether index arrays of several dimensions select some item twice."""
    entries = selection if isinstance(selection, tuple) else (selection,)
    if sum(np.ndim(entry) > 0 for entry in entries if not isinstance(entry, slice)) < 2 and not any(
        np.ndim(entry) > 1 for entry in entries if not isinstance(entry, slice)
    ):
        return False
    places = np.arange(int(np.prod(shape))).reshape(shape)[selection]
    return np.unique(places).size != np.size(places)


@QUICK
@given(st.data(), SEEDS)
def test_orthogonal_points_and_blocks(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes(max_ndim=4))
    shape = recipe.shape
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, seed)
        selection = data.draw(orthogonal(shape, unique=True))
        places, result = orthogonal_to_numpy(selection, shape)
        if shape:
            assert_same(array.oindex[selection], items[places].reshape(result))
            value = values_for(data, result, recipe.numpy, seed + 1)
            items[places] = np.broadcast_to(without_leading(value, result), result).reshape(
                items[places].shape
            )
            array.oindex[selection] = value
            assert_same(array[...], items)
            where = data.draw(points(shape))
            assert_same(array.vindex[where], np.asarray(items[where], recipe.numpy))
            mask = random_items(np.random.default_rng(seed), shape, np.dtype(bool))
            assert_same(array.vindex[mask], items[mask])
            value = random_items(np.random.default_rng(seed + 2), (int(mask.sum()),), recipe.numpy)
            array.vindex[mask] = value
            items[mask] = value
            assert_same(array[...], items)
        outer = array.shards or array.chunks
        cell = tuple(
            data.draw(st.integers(0, -(-n // c) - 1)) if n else slice(None)
            for n, c in zip(shape, outer, strict=True)
        )
        region = tuple(
            slice(None) if isinstance(i, slice) else slice(i * c, (i + 1) * c)
            for i, c in zip(cell, outer, strict=True)
        )
        assert_same(array.blocks[cell], items[(*region, ...)])
        array.blocks[cell] = 1
        items[region] = 1
        assert_same(array[...], items)


@QUICK
@given(st.data(), SEEDS)
def test_resizing_equals_numpy(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes(max_ndim=3))
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, seed)
        for number in range(data.draw(st.integers(1, 4))):
            shape = tuple(max(0, n + data.draw(st.integers(-7, 7))) for n in array.shape)
            resized = np.full(shape, recipe.fill, recipe.numpy)
            common = tuple(slice(0, min(a, b)) for a, b in zip(shape, items.shape, strict=True))
            resized[common] = items[common]
            items = resized
            array.resize(shape)
            assert array.shape == shape
            assert_same(array[...], items)
            if shape:
                axis = data.draw(st.integers(0, len(shape) - 1))
                more = random_items(
                    np.random.default_rng(seed + number), (*shape[:axis], 2, *shape[axis + 1 :]), recipe.numpy
                )
                assert array.append(more, axis) == (*shape[:axis], shape[axis] + 2, *shape[axis + 1 :])
                items = np.concatenate([items, more], axis).astype(recipe.numpy)
                assert_same(array[...], items)

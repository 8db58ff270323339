"""Selections one by one: the forms that numpy has, and the errors it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import SelectionError
from zstore.storage.memory import MemoryStore

ITEMS = np.arange(7 * 5 * 6).reshape(7, 5, 6)


@pytest.fixture(scope="module", params=[None, (6, 4, 6)], ids=["chunks", "shards"])
def array(request) -> zstore.Array:
    array = zstore.create_array(
        MemoryStore(), shape=ITEMS.shape, dtype="i8", chunks=(3, 2, 6), shards=request.param
    )
    array[...] = ITEMS
    return array


MASK = ITEMS % 3 == 0
# numpy's rules for where the dimensions of index arrays go.
FORMS: dict[str, Any] = {
    "nothing": (),
    "ellipsis": ...,
    "a list": [6, 0, 0],
    "a tuple in a tuple": ((1, 2), (0, 1)),
    "ints": (1, -1, 2),
    "numpy ints": (np.uint8(1), np.int64(-1)),
    "0-d array": np.array(2),
    "0-d array and slice": (slice(None), np.array(2)),
    "0-d array and list": (np.array(2), slice(None), [0, 1]),
    "int beside list": (0, slice(None), [0, 1]),
    "list, slice, int": ([0, 1], slice(None), 0),
    "slice, list, int": (slice(None), [0, 1], 0),
    "slice, int, list": (slice(None), 0, [0, 1]),
    "lists apart": ([0, 1], slice(None), [0, 1]),
    "lists together": (slice(None), [0, 1], [0, 1]),
    "lists apart by an ellipsis of nothing": (None, [0, 1], ..., [0, 1], [1, 2]),
    "lists apart by a new axis": ([0, 1], None, [0, 1]),
    "2-d array": np.array([[0, 1], [5, -7]]),
    "2-d array in the middle": (slice(1, 3), np.array([[0, 1], [4, -5]])),
    "arrays that broadcast": (np.array([[0], [1]]), np.array([0, 1, 2])),
    "mask": MASK,
    "mask of two dimensions": MASK[:, :, 0],
    "mask of the last two": (slice(None), MASK[0]),
    "mask and int": (MASK[:, 0, 0], 1),
    "mask and list": (MASK[:, 0, 0], [1, 2, 3, 4, 0, 1, 2][: int(MASK[:, 0, 0].sum())]),
    "list of booleans": [True, False] * 3 + [True],
    "no item of a mask": np.zeros(7, bool),
    "true": True,
    "false": False,
    "true and a list": ([0, 1], True),
    "an empty list": [],
    "an empty array": np.zeros((0, 2), int),
    "negative steps": (slice(None, None, -2), slice(4, 0, -1), slice(-1, None, -3)),
    "beyond the ends": (slice(-99, 99), slice(3, 99)),
    "an empty slice": slice(5, 2),
    "new axes": (None, 1, None, ..., None),
    "new axes and lists": (None, [1, 2], slice(None), None, [0, 3]),
    "huge slices": slice(-(2**70), 2**70),
    "unsigned": np.array([1, 2], np.uint64),
    "small ints": np.array([-1, -7], np.int8),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(array, name):
    expected = ITEMS[FORMS[name]]
    got = array[FORMS[name]]
    assert isinstance(got, np.generic) == isinstance(expected, np.generic)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_writes(array, name):
    selection = FORMS[name]
    expected, value = (
        ITEMS.copy(),
        -1 - np.arange(np.size(ITEMS[selection])).reshape(np.shape(ITEMS[selection])),
    )
    expected[selection] = value
    array[selection] = value
    np.testing.assert_array_equal(array[...], expected)
    array[...] = ITEMS


WRONG: dict[str, Any] = {
    "too many": (0, 0, 0, 0),
    "too many lists": ([0], [0], [0], [0]),
    "out of bounds": 7,
    "out of bounds below": (0, 0, -7),
    "out of bounds in a list": [0, 7],
    "out of bounds below in a list": (0, [-6]),
    "out of bounds with nothing selected": (slice(0, 0), [5]),
    "two ellipses": (..., 0, ...),
    "two ellipses and a list": (..., [0], ...),
    "float": 1.0,
    "floats": [0.5],
    "empty floats": np.zeros(0),
    "word": "x",
    "object": np.array([1], object),
    "mask of another length": np.ones(6, bool),
    "mask of another shape": np.ones((7, 6), bool),
    "mask of too many dimensions": np.ones((7, 5, 6, 1), bool),
    "mask that is too long": [True] * 8,
    "lists that do not broadcast": ([0, 1], [0, 1, 2]),
    "huge": 2**70,
    "huge in a list": [2**63],
    "complex": 1j,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_selections_raise_and_change_nothing(array, name):
    with pytest.raises(IndexError):
        ITEMS[WRONG[name]]
    with pytest.raises(SelectionError) as caught:
        array[WRONG[name]]
    assert caught.value.path == array.store.url + (array.path and "/" + array.path) or caught.value.path
    with pytest.raises(SelectionError):
        array[WRONG[name]] = 1
    with pytest.raises(SelectionError):
        array.read(WRONG[name])
    np.testing.assert_array_equal(array[...], ITEMS)


def test_a_step_of_zero_is_an_error_as_in_numpy(array):
    for wrong in (slice(None, None, 0), (0, slice(1, 2, 0), [0])):
        with pytest.raises(ValueError, match="zero"):
            ITEMS[wrong]
        with pytest.raises(ValueError, match="zero"):
            array[wrong]


def test_0_d_arrays():
    array = zstore.create_array(MemoryStore(), shape=(), dtype="f4")
    items = np.array(0, "f4")
    array[...] = items[...] = 2.5
    for selection in ((), ..., None, (..., None), True, False, (True, None), np.array(True)):
        expected, got = items[selection], array[selection]
        np.testing.assert_array_equal(got, expected, strict=True)
        assert isinstance(got, np.generic) == isinstance(expected, np.generic)
    for wrong in (0, slice(None), [0], [True]):
        with pytest.raises(SelectionError):
            array[wrong]
    array[False] = 9
    assert array[()] == 2.5
    array[True] = 9
    assert array[()] == 9


def test_orthogonal(array):
    rows, columns = [5, 0, 0], np.array([True, False, True, False, True])
    np.testing.assert_array_equal(array.oindex[rows, columns, 1], ITEMS[np.ix_(rows, columns, [1])][..., 0])
    np.testing.assert_array_equal(array.oindex[rows], ITEMS[rows])
    np.testing.assert_array_equal(array.oindex[..., [1, 2]], ITEMS[..., [1, 2]])
    np.testing.assert_array_equal(array.oindex[-1, ::-2, [-1]], ITEMS[-1, ::-2, [-1]].T)
    for wrong in (
        (0, 0, 0, 0),
        7,
        [7],
        np.ones(6, bool),
        np.ones((2, 2), int),
        None,
        True,
        (..., ...),
        MASK,
        "x",
    ):
        with pytest.raises(SelectionError):
            array.oindex[wrong]


def test_points(array):
    np.testing.assert_array_equal(array.vindex[[0, 6], [1, -1], [2, 3]], ITEMS[[0, 6], [1, -1], [2, 3]])
    np.testing.assert_array_equal(array.vindex[MASK], ITEMS[MASK])
    np.testing.assert_array_equal(array.vindex[[[0], [1]], [1, 2], 3], ITEMS[[[0], [1]], [1, 2], 3])
    # Dimensions given as slices come last.
    np.testing.assert_array_equal(array.vindex[:, [0, 1], [0, 1]], ITEMS[:, [0, 1], [0, 1]].T)
    np.testing.assert_array_equal(array.vindex[[0, 1], :, [0, 1]], ITEMS[[0, 1], :, [0, 1]])
    np.testing.assert_array_equal(array.vindex[..., [0, 1]], np.moveaxis(ITEMS[..., [0, 1]], -1, 0))
    for wrong in (
        ([0], [0], [0], [0]),
        ([7], [0], [0]),
        ([0, 1], [0, 1, 2], 0),
        np.ones((7, 5, 5), bool),
        None,
        MASK[:5],
    ):
        with pytest.raises(SelectionError):
            array.vindex[wrong]


def test_blocks(array):
    outer = array.shards or array.chunks
    np.testing.assert_array_equal(array.blocks[0, 0], ITEMS[: outer[0], : outer[1]])
    np.testing.assert_array_equal(array.blocks[-1], ITEMS[(7 - 1) // outer[0] * outer[0] :])
    np.testing.assert_array_equal(array.blocks[0:9, 1:, 0], ITEMS[:, outer[1] :])
    np.testing.assert_array_equal(array.blocks[1:1], ITEMS[:0])
    for wrong in (9, (0, 0, 1), slice(None, None, 2), [0], (0, 0, 0, 0), -9):
        with pytest.raises(SelectionError):
            array.blocks[wrong]


def test_very_long_arrays():
    length = 2**62
    array = zstore.create_array(MemoryStore(), shape=(length, 3), dtype="u1", chunks=(1000, 2), fill_value=7)
    array[length - 5 :, 1] = [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(array[length - 6 :, 1], [7, 1, 2, 3, 4, 5])
    assert array[-1, 1] == 5
    np.testing.assert_array_equal(array[:: 2**60, 0], np.full(4, 7))
    np.testing.assert_array_equal(array[length - 1 : length - 7 : -2, 1], [5, 3, 1])
    np.testing.assert_array_equal(array[[0, length - 1, -5], 1], [7, 5, 1])
    np.testing.assert_array_equal(array.oindex[[length - 3, 1], :], [[7, 3, 7], [7, 7, 7]])
    array.resize((length - 2, 3))
    array.resize((length, 3))
    np.testing.assert_array_equal(array[length - 6 :, 1], [7, 1, 2, 3, 7, 7])
    longest = zstore.zeros((2**63 - 1,), dtype="u1", chunks=(2**62 + 1,))
    np.testing.assert_array_equal(longest[:: 2**62], [0, 0])
    for shape in ((length, length), (2**16,) * 4):
        with pytest.raises(MemoryError, match="more chunks than there is memory to plan for"):
            zstore.zeros(shape, dtype="u1", chunks=1)[...] = 1


@pytest.mark.parametrize("ndim", [6, 20, 32])
def test_many_dimensions(ndim):
    shape = (2,) * 6 + (1,) * (ndim - 6)
    items = np.arange(64).reshape(shape)
    array = zstore.create_array(MemoryStore(), shape=shape, dtype="i8", chunks=(1, 2) * (ndim // 2))
    array[...] = items
    np.testing.assert_array_equal(array[...], items)
    np.testing.assert_array_equal(array[0, ..., 0], items[0, ..., 0])
    where = tuple([1, 0] if n == 2 else [0, 0] for n in shape)
    np.testing.assert_array_equal(array[where], items[where])

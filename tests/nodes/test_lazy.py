"""`array.lazy`: views that are composed of selections and mean what numpy's views mean."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import zstore
from zstore.errors import SelectionError
from zstore.storage.memory import MemoryStore

DATA = np.arange(7 * 5 * 9).reshape(7, 5, 9)


@pytest.fixture
def array(tmp_path) -> zstore.Array:
    return zstore.create_array(tmp_path / "a.zarr", data=DATA, chunks=(3, 2, 4))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_selections_compose_as_in_numpy(data):
    array = zstore.create_array(MemoryStore(), data=DATA, chunks=(3, 2, 4))
    view, expected = array.lazy, DATA
    for _ in range(data.draw(st.integers(1, 4))):
        selection = data.draw(hnp.basic_indices(expected.shape, allow_newaxis=False))
        view, expected = view[selection], expected[selection]
        assert view.shape == np.shape(expected)
    place = data.draw(st.integers(0, np.ndim(expected)))
    view = view[(slice(None),) * place + (None,)][(slice(None),) * place + (slice(None, None, -1),)]
    expected = np.expand_dims(expected, place)
    np.testing.assert_array_equal(np.asarray(view), expected)
    assert view.ndim == np.ndim(expected) and view.size == np.size(expected)


def test_nothing_is_read_until_it_is_wanted(array, monkeypatch):
    view = array.lazy[1:6][:, ::-1, 2:]
    reads: list[Any] = []
    real = zstore.Array.read
    monkeypatch.setattr(zstore.Array, "read", lambda self, *a, **k: reads.append(a) or real(self, *a, **k))
    narrower = view[2, :, 1:3]
    assert reads == [] and narrower.shape == (5, 2)
    np.testing.assert_array_equal(np.asarray(narrower), DATA[1:6][:, ::-1, 2:][2, :, 1:3])
    assert len(reads) == 1
    assert narrower.selection == (3, slice(4, None, -1), slice(3, 5, 1))


def test_new_axes(array):
    view = array.lazy[None, 2, ..., None]
    assert view.shape == (1, 5, 9, 1)
    assert view[0, ..., 0].shape == (5, 9)
    np.testing.assert_array_equal(np.asarray(view[:, 1:3]), DATA[None, 2, ..., None][:, 1:3])
    with pytest.raises(SelectionError, match="empties a new axis"):
        view[:0]
    with pytest.raises(SelectionError, match="out of bounds"):
        view[1]


def test_writing_through_a_view(array):
    view = array.lazy[1:6][:, ::-1]
    view[0, 1:3, ::4] = -5
    view[-1] = np.arange(5 * 9).reshape(5, 9)
    expected = DATA.copy()
    expected[1:6][:, ::-1][0, 1:3, ::4] = -5
    expected[1:6][:, ::-1][-1] = np.arange(5 * 9).reshape(5, 9)
    np.testing.assert_array_equal(array[...], expected)


def test_into_memory_that_is_there(array):
    out = np.empty((2, 5, 9), DATA.dtype)
    assert array.lazy[2:4].read(out=out) is out
    np.testing.assert_array_equal(out, DATA[2:4])


@pytest.mark.parametrize(
    "selection", [[0, 1], np.array([0]), DATA[:, 0, 0] > 3, True, 1.5, "x", (0, 0, 0, 0), 7]
)
def test_what_is_no_basic_selection_or_out_of_bounds(array, selection):
    with pytest.raises(SelectionError, match="lazy selection"):
        array.lazy[selection]
    with pytest.raises(SelectionError, match="does not fit"):
        array.lazy[..., 0, ...]


def test_views_are_arrays_to_others(array):
    view = array.lazy[2:4, 0]
    assert len(view) == 2 and view.dtype == array.dtype and view.nbytes == 2 * 9 * 8
    assert np.asarray(view, "f4").dtype == np.dtype("f4")
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(view, copy=False)
    np.testing.assert_array_equal(np.add(view, 1), DATA[2:4, 0] + 1)
    again = pickle.loads(pickle.dumps(view))
    np.testing.assert_array_equal(np.asarray(again), DATA[2:4, 0])
    assert "shape=(2, 9)" in repr(view) and view.array == array
    with pytest.raises(TypeError, match="0-d"):
        len(array.lazy[0, 0, 0])
    assert np.asarray(array.lazy[0, 0, 1]) == DATA[0, 0, 1]


def test_what_is_read_is_anybodys_buffer(array):
    items = array[2:4]
    assert memoryview(items).nbytes == items.nbytes
    np.testing.assert_array_equal(np.from_dlpack(items), DATA[2:4])
    assert np.asarray(array).shape == array.shape
    assert np.asarray(array, copy=True) is not np.asarray(array)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, copy=False)


def test_arrays_in_memory_do_not_pickle_and_say_why():
    with pytest.raises(zstore.errors.StoreError, match="cannot be pickled"):
        pickle.dumps(zstore.create_array(MemoryStore(), data=DATA))

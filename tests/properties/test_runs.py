"""Index arrays of several dimensions beside slices: the same as numpy's, however the boxes are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.engine import chunks
from zstore.errors import NotFoundError, SelectionError
from zstore.indexing import select as indexing_runs
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

from .selections import positions, slices

SHAPE = (9, 7, 8, 6)
ITEMS = np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE)


class Far(MemoryStore):
    """A store that takes its time, as far as the engine knows."""

    in_memory = False
    request_count = 8


ARRAYS = {
    "files": {"chunks": (4, 3, 5, 6)},
    "files uncompressed": {"chunks": (2, 7, 3, 4), "compressors": None},
    "shards": {"chunks": (2, 3, 4, 3), "shards": (4, 6, 8, 3)},
    "far": {"chunks": (4, 3, 5, 6)},
    "far shards": {"chunks": (2, 3, 4, 3), "shards": (4, 6, 8, 3)},
    "a codec in Python": {"chunks": (4, 3, 5, 6), "compressors": "numcodecs.bz2"},
    "uneven": {"chunks": [[4, 5], [7], [3, 5], [1, 2, 3]]},
}


@pytest.fixture(scope="module", params=ARRAYS)
def array(request, tmp_path_factory) -> zstore.Array:
    store = Far() if request.param.startswith("far") else LocalStore(tmp_path_factory.mktemp("store"))
    made = zstore.create_array(store, shape=SHAPE, dtype="i4", **ARRAYS[request.param])
    made[...] = ITEMS
    return made


@pytest.fixture(params=["boxes", "points", "few at once"])
def cutting(request, monkeypatch) -> None:
    """All points of a chunk in one box, or each by itself, or as is best; memory for one box at a time."""
    limits = {"boxes": 1 << 40, "points": -(1 << 40)}
    monkeypatch.setattr(indexing_runs, "POINT_SIZE", limits.get(request.param, indexing_runs.POINT_SIZE))
    if request.param == "few at once":
        monkeypatch.setattr(chunks, "BOX_COUNT", 2)
        monkeypatch.setattr(chunks, "BOX_SIZE", 100)


ROWS = np.array([8, 0, 3, 3, 5, -9, 8])
COLUMNS = np.array([0, 6, 2, -5, 2, 1, 0])
FORMS: dict[str, Any] = {
    "first two": (ROWS, COLUMNS),
    "last two": (..., COLUMNS, ROWS % 6),
    "middle two": (slice(None), COLUMNS, COLUMNS, slice(1, 5)),
    "apart": (ROWS, slice(None), COLUMNS),
    "apart, all steps": (slice(None, None, -2), COLUMNS, slice(6, 0, -3), COLUMNS % 6),
    "three of four": (ROWS, COLUMNS, slice(5, None, -1), COLUMNS % 6),
    "with an integer": (ROWS, 3, COLUMNS),
    "with new axes": (None, ROWS, slice(None), None, COLUMNS),
    "two-dimensional": (ROWS.reshape(7, 1)[:6].reshape(3, 2), slice(None), COLUMNS[:6].reshape(3, 2)),
    "broadcast": (ROWS[:, None, None], COLUMNS[None, :2], slice(2, 3)),
    "a mask of two dimensions": (slice(1, 9, 3), ITEMS[0, :, :, 0] % 3 == 0),
    "a mask beside a list": (ITEMS[:, 0, 0, 0] % 96 == 0, slice(None), [0, 1, 2, 5, 6]),
    "one point": ([2], [3]),
    "no point": ([], []),
    "an empty slice": (ROWS, COLUMNS, slice(3, 3)),
    "a mesh": np.ix_(ROWS, COLUMNS),
    "a mesh apart": (ROWS[:, None], slice(None, None, -1), COLUMNS[None]),
    "a mesh the other way round": (ROWS[None], slice(None), COLUMNS[:, None]),
    "a mesh of all": np.ix_(ROWS, COLUMNS, COLUMNS, ROWS % 6),
    "a mesh with places of one": (ROWS[:, None, None], 2, np.array([[[1]]]), COLUMNS[None, None, :] % 6),
    "a mesh of nothing": (np.zeros((0, 1), int), slice(None), COLUMNS[None]),
    "true": True,
    "false": False,
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("cutting")
def test_forms(array, name):
    selection = FORMS[name]
    expected = ITEMS[selection]
    np.testing.assert_array_equal(array[selection], expected, strict=True)
    out = np.zeros((*expected.shape, 2), np.int32)[..., 1]
    assert array.read(selection, out=out) is out
    np.testing.assert_array_equal(out, expected)
    for got in array.read_many([selection, (0,), selection])[::2]:
        np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("name", FORMS)
def test_writing(name):
    selection = FORMS[name]
    array = zstore.create_array(MemoryStore(), shape=SHAPE, dtype="i4", chunks=(4, 3, 5, 6))
    array[...] = expected = ITEMS.copy()
    # The same value for the same place, as numpy says nothing of which one stays.
    value = -ITEMS[selection]
    expected[selection] = value
    array[selection] = value
    np.testing.assert_array_equal(array[...], expected)


@settings(max_examples=60)
@given(st.data())
def test_any(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(*[st.integers(1, 6)] * data.draw(st.integers(2, 4))))
    chunks = data.draw(st.tuples(*[st.integers(1, 6)] * len(shape)))
    items = np.arange(np.prod(shape)).reshape(shape)
    array = zstore.create_array(MemoryStore(), data=items, chunks=chunks)
    pointed = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    wide = data.draw(st.sampled_from([(0,), (1,), (5,), (2, 3), (1, 4)]))
    entries = tuple(
        data.draw(positions(length, wide) if d in pointed else slices(length))
        for d, length in enumerate(shape)
    )
    np.testing.assert_array_equal(array[entries], items[entries], strict=True)
    # Points come first in `vindex`, wherever they stand.
    ndim = len(wide)
    first = min(pointed) if max(pointed) - min(pointed) + 1 == len(pointed) else 0
    expected = np.moveaxis(items[entries], range(first, first + ndim), range(ndim))
    np.testing.assert_array_equal(array.vindex[entries], expected, strict=True)


def test_fields_and_objects(tmp_path):
    dtype = np.dtype([("a", "i2"), ("b", "f8")])
    items = np.zeros((4, 5, 6), dtype)
    items["a"], items["b"] = np.arange(120).reshape(4, 5, 6), np.arange(120).reshape(4, 5, 6) / 7
    array = zstore.create_array(tmp_path / "s", data=items, chunks=(2, 3, 4))
    np.testing.assert_array_equal(array["b", [0, 3], [1, 4]], items[[0, 3], [1, 4]]["b"])
    array["a", [0, 3], [1, 4]] = -1
    items["a"][[0, 3], [1, 4]] = -1
    np.testing.assert_array_equal(array[...], items)
    words = np.array([f"w{n}" for n in range(120)], object).reshape(4, 5, 6)
    array = zstore.create_array(tmp_path / "w", shape=words.shape, dtype=str, chunks=(2, 3, 4))
    array[...] = words
    assert array.vindex[[0, 3], :, [1, 4]].tolist() == words[[0, 3], :, [1, 4]].tolist()


@pytest.mark.usefixtures("cutting")
def test_only_chunks_that_hold_a_point_are_missed(tmp_path):
    array = zstore.create_array(tmp_path, shape=(8, 8, 4), dtype="i1", chunks=(2, 2, 4), compressors=None)
    array[0:2, 6:8] = 1
    array[6:8, 0:2] = 2
    assert array.read(([0, 7, 1], [7, 0, 6]), missing="error").tolist() == [[1] * 4, [2] * 4, [1] * 4]
    with pytest.raises(NotFoundError, match="c/0/0/0"):
        array.read(([0, 7, 0], [7, 0, 1]), missing="error")


def test_points_outside_are_refused(array):
    for selection in (([0, 9], [0, 0]), ([0, 0], slice(None), [0, -9])):
        with pytest.raises(SelectionError, match="out of bounds"):
            array[selection]
        with pytest.raises(SelectionError, match="out of bounds"):
            array.vindex[selection]

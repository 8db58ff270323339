"""What an array does besides selecting: values assigned, memory given, resizing, appending."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import (
    ExistsError,
    MetadataError,
    NotFoundError,
    SelectionError,
    StoreError,
    UnknownExtensionError,
)
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    return LocalStore(tmp_path / "store") if request.param == "local" else MemoryStore()


def make(store, dtype="i2", **options) -> zstore.Array:
    return zstore.create_array(store, "a", dtype=dtype, **{"shape": (6, 4), "chunks": (4, 3), **options})


def test_what_an_array_says_about_itself(store):
    array = make(store, shards=(8, 6), fill_value=3, dimension_names=["y", None], attributes={"a": 1})
    assert (array.shape, array.chunks, array.shards) == ((6, 4), (4, 3), (8, 6))
    assert (array.ndim, array.size, array.nbytes, len(array)) == (2, 24, 48, 6)
    assert (array.dtype, array.fill_value, array.dims) == (np.dtype("i2"), 3, ("y", None))
    assert (array.path, array.name, array.basename, array.store) == ("a", "/a", "a", store)
    assert (array.zarr_format, array.read_only, dict(array.attrs)) == (3, False, {"a": 1})
    assert array == zstore.open_array(store, "a")
    assert array != zstore.create_array(store, "b", shape=3, dtype="i2")
    for word in ("/a", "int16", "(6, 4)", "(8, 6)", "sharding_indexed", store.url):
        assert word in array.info
    assert "shape=(6, 4)" in repr(array)
    with pytest.raises(TypeError):
        len(zstore.create_array(store, "c", shape=(), dtype="i2"))
    with pytest.raises(TypeError, match="iteration over a 0-d array"):
        iter(zstore.open_array(store, "c"))
    assert [row.tolist() for row in array] == array[...].tolist()


VALUES = [
    7,
    3.99,
    True,
    np.float32(2.5),
    np.int8(-1),
    [1, 2, 3, 4],
    [[1], [2], [3], [4], [5], [6]],
    np.arange(24).reshape(6, 4),
    np.arange(24).reshape(1, 1, 6, 4),
    np.arange(24, dtype=">f8").reshape(4, 6).T,
    np.arange(4)[::-1],
    range(4),
    ((1, 2, 3, 4),) * 6,
    np.array(5),
    np.arange(48).reshape(6, 8)[:, ::2],
    memoryview(bytearray(b"abcd")),
]


@pytest.mark.parametrize("value", VALUES, ids=[str(number) for number in range(len(VALUES))])
@pytest.mark.parametrize("dtype", ["i2", "f4", "u1", "?", "c8"])
def test_values_are_assigned_as_numpy_assigns_them(store, value, dtype):
    array, items = make(store, dtype), np.zeros((6, 4), dtype)
    with np.errstate(all="ignore"):
        try:
            items[...] = value
        except (OverflowError, TypeError) as error:
            with pytest.raises(type(error)):
                array[...] = value
            assert not array[...].any()
            return
        array[...] = value
    np.testing.assert_array_equal(array[...], items, strict=True)


@pytest.mark.parametrize(
    "value", [np.arange(3), np.zeros((6, 5)), np.zeros((2, 6, 4)), [], np.zeros((3, 1)), [[1, 2]]]
)
@pytest.mark.parametrize(
    "selection", [..., slice(0, 6), ([0, 1, 2, 3, 4, 5], slice(None)), np.ones((6, 4), bool)]
)
def test_values_of_wrong_shapes_raise_and_change_nothing(store, value, selection):
    array = make(store)
    array[...] = 5
    with pytest.raises((ValueError, TypeError)):
        np.zeros((6, 4))[selection] = value
    with pytest.raises(SelectionError, match="broadcast"):
        array[selection] = value
    assert (array[...] == 5).all()


@pytest.mark.parametrize(
    "value", [40000, [40000, 1, 1, 1], -(2**70), "x", None, object(), [[1, 2, 3, 4], [1]]]
)
def test_values_that_are_none_raise_and_change_nothing(store, value):
    array, items = make(store), np.zeros((6, 4), "i2")
    array[...] = 5
    with pytest.raises((OverflowError, TypeError, ValueError)) as expected:
        items[...] = value
    with pytest.raises(expected.type):
        array[...] = value
    assert (array[...] == 5).all()


def test_arrays_can_be_assigned_from_arrays(store):
    array = make(store)
    array[...] = np.arange(24).reshape(6, 4)
    other = zstore.create_array(store, "b", shape=(6, 4), dtype="f8", data=None)
    other[...] = array
    np.testing.assert_array_equal(other[...], array[...])
    array[1:] = array[:-1]
    np.testing.assert_array_equal(array[...], np.arange(24).reshape(6, 4)[[0, 0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(np.asarray(array), array[...])
    assert np.asarray(array, "f4").dtype == np.dtype("f4")
    with pytest.raises(ValueError, match="copy"):
        np.array(array, copy=False)


def test_chunks_of_the_fill_value_are_not_stored(store):
    for fill in (0.0, -0.0, np.nan, 1.5):
        array = make(store, "f4", fill_value=fill, overwrite=True)
        array[...] = 7
        array[...] = fill
        assert [key for key in store.list("a") if "/c/" in key] == []
        # A fill value is a fill value bit by bit: 0.0 is not -0.0.
        array[0, 0] = -fill
        assert [key for key in store.list("a") if "/c/" in key] == ["a/c/0/0"]
        assert np.float32(-fill).tobytes() == array[0, 0].tobytes()
        array[0, 0] = fill
        assert [key for key in store.list("a") if "/c/" in key] == []


def test_null_fill_values_read_as_zeros(store):
    array = make(store, zarr_format=2, fill_value=None)
    assert array.fill_value is None
    assert not array[...].any()
    array[0, 0] = 1
    assert array[...].sum() == 1


@pytest.mark.parametrize(
    "wrong", [np.zeros((6, 5), "i2"), np.zeros((6, 4), "i4"), np.zeros((6, 4), ">u2"), np.zeros(24, "i2")]
)
def test_memory_of_another_shape_or_dtype_is_refused(store, wrong):
    array = make(store)
    with pytest.raises(ValueError, match="out has shape"):
        array.read(out=wrong)


def test_memory_in_the_other_byte_order_is_converted(store):
    array = make(store)
    array[...] = items = np.arange(24, dtype="i2").reshape(6, 4)
    out = np.zeros((4, 6), ">i2").T
    assert array.read(out=out) is out
    assert np.array_equal(out, items)
    (part,) = array.read_many([np.s_[1:3, ::2]], out=[np.zeros((2, 2), ">i2")])
    assert np.array_equal(part, items[1:3, ::2])


FIELDS = np.dtype([("a", ">i4"), ("b", "<f8"), ("c", "S2")])


@pytest.mark.parametrize(
    ("zarr_format", "dtype"),
    [
        *((n, dtype) for n in (1, 2, 3) for dtype in (">f8", "<u2", ">U3", ">M8[s]", ">c16")),
        (2, FIELDS),
        (2, FIELDS.newbyteorder(">")),
    ],
)
def test_the_dtype_is_the_stored_one_before_zarr_3(dtype, zarr_format):
    """As zarr-python has it; so it makes another array of the same kind."""
    stored = np.dtype(dtype)
    native = stored.newbyteorder("=")
    items = np.arange(12).reshape(3, 4).astype(native)
    array = zstore.create_array(MemoryStore(), data=items, dtype=stored, zarr_format=zarr_format)
    again = zstore.create_array(MemoryStore(), shape=(3, 4), dtype=array.dtype, zarr_format=zarr_format)
    again[...] = array[...]
    for one in (array, again):
        expected = native if zarr_format == 3 else stored
        assert one.dtype == one[...].dtype == one[1:, ::2].dtype == one.oindex[[1], [2]].dtype == expected
        assert np.array_equal(one[...], items)
        assert one[1, 2] == items[1, 2]
        one.resize((5, 4))
        one[2:4] = items[:2]
        assert np.array_equal(one[2:4], items[:2])
    if zarr_format == 2:
        assert again.model.codecs == array.model.codecs


def test_memory_that_cannot_be_written_is_refused(store):
    array = make(store)
    array[...] = 3
    out = np.zeros((6, 4), "i2")
    out.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        array.read(out=out)
    with pytest.raises((ValueError, BufferError)):
        array.read([0, 5], out=out[:2])
    assert not out.any()


def test_a_word_for_missing_must_be_known(store):
    with pytest.raises(ValueError, match="missing='zero'"):
        make(store).read(missing="zero")


def test_missing_inner_chunks_are_told(store):
    array = make(store, shards=(8, 6))
    array[0, 0] = 1
    assert array.read((0, 0), missing="error") == 1
    with pytest.raises(NotFoundError, match=r"inner chunk \(0, 1\)"):
        array.read((0, 3), missing="error")


def test_resizing(store):
    array = make(store)
    array[...] = 1
    array.resize((2, 9))
    assert array.shape == zstore.open_array(store, "a").shape == (2, 9)
    np.testing.assert_array_equal(array[...], [[1, 1, 1, 1, 0, 0, 0, 0, 0]] * 2)
    assert sorted(key for key in store.list("a") if "/c/" in key) == ["a/c/0/0", "a/c/0/1"]
    for wrong in ((1,), (1, 2, 3), (-1, 2), (), (1 << 63, 2), (None, 2)):
        with pytest.raises(ValueError, match="cannot resize"):
            array.resize(wrong)
    for wrong in ((1.5, 9), "29", None, (True, 9)):
        with pytest.raises(MetadataError, match=r"shape is .*expected an integer or a sequence of integers"):
            array.resize(wrong)
    assert array.shape == (2, 9)
    line = zstore.create_array(store, "line", shape=3, dtype="i1")
    line.resize(5)
    assert line.shape == (5,)


def test_appending(store):
    array = make(store)
    array[...] = 1
    assert array.append(np.full((3, 4), 2)) == (9, 4)
    assert array.append([[3]] * 9, axis=1) == (9, 5)
    np.testing.assert_array_equal(array[6:], [[2, 2, 2, 2, 3]] * 3)
    assert array.append(np.zeros((0, 5))) == (9, 5)
    for data, axis in (
        (np.zeros((3, 4)), 0),
        (np.zeros(5), 0),
        (4, 0),
    ):
        with pytest.raises(ValueError, match="cannot append"):
            array.append(data, axis)
    assert array.refresh().shape == (9, 5)
    # A chunk is as long as a length can be: no memory holds it, and nothing is changed.
    longest = zstore.create_array(store, "longest", shape=0, chunks=2**63 - 1, dtype="u1")
    with pytest.raises(MemoryError, match="no memory for chunk"):
        longest.append([1, 2])
    assert longest.refresh().shape == (0,)


def test_both_formats_in_one_place_are_kept_apart(store):
    two = zstore.create_array(store, "a", shape=4, dtype="i2", zarr_format=2, chunks=2)
    text = bytes(store.get("a/.zarray"))
    three = zstore.create_array(MemoryStore(), shape=8, dtype="i4", chunks=2)
    store.put("a/zarr.json", bytes(three.store.get("zarr.json")))
    opened = zstore.open_array(store, "a", zarr_format=2)
    assert (opened.zarr_format, opened.shape, two.shape) == (2, (4,), (4,))
    opened.resize(6)
    assert bytes(store.get("a/.zarray")) != text
    assert opened.zarr_format == 2
    assert opened.shape == zstore.open_array(store, "a", zarr_format=2).shape == (6,)
    assert zstore.open_array(store, "a", zarr_format=3).shape == (8,)


def test_metadata_opens_where_codecs_are_unknown(store):
    array = make(store, compressors=None)
    text = bytes(store.get("a/zarr.json")).replace(b'"bytes"', b'"bytez"')
    store.put("a/zarr.json", text)
    again = zstore.open_array(store, "a", "r")
    assert again.shape == array.shape
    with pytest.raises((UnknownExtensionError, MetadataError), match="bytez"):
        again[...]


def test_cached_arrays_see_what_is_written(store):
    array = make(store, "i4", chunks=(2, 2))
    cached = array.cached(1 << 20)
    for value in range(1, 60):
        array[...] = value
        assert (cached[...] == value).all()
        array[0, 0] = -value
        assert cached[0, 0] == -value
        assert cached[0, 1] == value
        cached[3, 3] = value + 1
        assert array[3, 3] == cached[3, 3] == value + 1


def test_what_belongs_to_an_array_is_pickled(tmp_path) -> None:
    array = zstore.create_array(tmp_path / "a", data=np.arange(6), chunks=(2,), attributes={"units": "K"})
    attributes, blocks, points = pickle.loads(pickle.dumps([array.attrs, array.blocks, array.vindex]))
    attributes["units"] = "m"
    assert zstore.open_array(tmp_path / "a").attrs["units"] == "m"
    assert blocks[1].tolist() == [2, 3] and points[[5, 0],].tolist() == [5, 0]


def test_errors_of_wrong_arguments_say_the_value_and_what_was_expected(tmp_path) -> None:
    like: dict[str, Any] = {"shape": (4, 4), "chunks": 2, "dtype": "f4"}
    array = zstore.create_array(tmp_path / "a.zarr", **like)
    named = zstore.create_array(tmp_path / "b.zarr", dimension_names=("y", "x"), **like)
    old = tmp_path / "c.zarr"
    zstore.create_array(old, zarr_format=2, **like)
    assert named.append(named[:, :1], axis="x") == named.append(named[:0], axis=-2) == (4, 5)
    calls: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, "axis 'y', expected a number", lambda: array.append(array[:], axis="y")),
        (ValueError, "axis 'z', expected one of", lambda: named.append(array[:], axis="z")),
        (ValueError, "axis 2, expected one of 2 dim", lambda: array.append(array[:], axis=2)),
        (ValueError, "axis -3, expected one of 2 dim", lambda: array.append(array[:], axis=-3)),
        (TypeError, "expected a whole number", lambda: array.append(array[:], axis=None)),  # type: ignore[arg-type]
        (TypeError, "out is a list, expected an array of", lambda: array.read(out=[1])),  # type: ignore[arg-type]
        (ExistsError, "an array is there already", lambda: zstore.create_array(old, **like)),
        (ValueError, "size is '1GB'; expected bytes", lambda: array.cached("1GB")),
        (ValueError, "size is -1; expected bytes", lambda: array.cached(-1)),
        (ValueError, "limit_size is -1", lambda: zstore.CachedStore(tmp_path, tmp_path, limit_size=-1)),
        (ValueError, "viewed as f8; expected a dtype of 4 bytes", lambda: array.viewed_as("f8")),
        (StoreError, "storage_options is 'x'; expected", lambda: zstore.open(tmp_path, storage_options="x")),
    ]
    for kind, words, call in calls:
        with pytest.raises(kind, match=words):
            call()

"""Codecs of Python objects, beside numcodecs' own; and what damage does."""

from __future__ import annotations

import json
import pickle

import numcodecs
import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.categorize import Categorize, CategorizeObjects
from zstore.codecs.objects import Json, Msgpack
from zstore.codecs.pickled import Pickle
from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.testing.chunk_codecs import ArrayCodecContract, SerializerContract

OBJECT = np.dtype(object)
ITEMS = ["a", None, 1.5, [1, [2]], {"k": "é"}, True]


def objects(*items: object, shape: tuple[int, ...] | None = None) -> np.ndarray:
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made.reshape(shape or (len(items),))


def bound(codec, shape: tuple[int, ...], **options: object):
    return codec.bind(ChunkSpec(shape, OBJECT, None, **options))


class TestJson(SerializerContract):
    specs = (ChunkSpec((6,), OBJECT, None), ChunkSpec((2, 3), OBJECT, None, allow_pickle=True))

    def make(self):
        return Json.from_configuration({})

    def chunks(self, spec):
        yield objects(*ITEMS, shape=spec.shape)
        yield objects(*[""] * 6, shape=spec.shape)


class TestMsgpack(TestJson):
    def make(self):
        pytest.importorskip("msgpack")
        return Msgpack.from_configuration({})


class TestPickle(TestJson):
    specs = TestJson.specs[1:]
    damage_count = 0  # reading damaged pickles runs whatever they say

    def make(self):
        return Pickle(4)


class TestCategorizeObjects(TestJson):
    def make(self):
        return Categorize.from_configuration({"labels": ["land", "sea"], "dtype": "|O", "astype": ">u2"})

    def chunks(self, spec):
        yield objects("land", "", "sea", "sea", "", "land", shape=spec.shape)


class TestCategorize(ArrayCodecContract):
    specs = (ChunkSpec((6,), np.dtype("U4"), None), ChunkSpec((2, 3), np.dtype("U4"), None))

    def make(self):
        return Categorize.from_configuration({"labels": ["land", "sea"], "dtype": "<U4", "astype": "|u1"})

    def chunks(self, spec):
        yield np.array(["land", "", "sea", "sea", "", "land"], "U4").reshape(spec.shape)


JSONS = [
    {},
    {"indent": 1},
    {"sort_keys": False, "ensure_ascii": False},
    {"encoding": "utf-16", "separators": [",", ":"]},
]
CODECS = [
    *((Json, numcodecs.JSON, options) for options in JSONS),
    (Msgpack, getattr(numcodecs, "MsgPack", None), {}),
    (Msgpack, getattr(numcodecs, "MsgPack", None), {"use_single_float": True}),
]


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize(("kind", "theirs", "options"), CODECS)
def test_documents_are_those_of_numcodecs(kind, theirs, options, shape):
    if kind is Msgpack:
        pytest.importorskip("msgpack")
    chunk = objects(*ITEMS, shape=shape)
    codec = bound(kind.from_configuration(options), shape)
    encoded = codec.encode(chunk)
    assert encoded == theirs(**options).encode(chunk)
    decoded = codec.decode(memoryview(encoded))
    assert decoded.shape == shape
    assert decoded.tolist() == chunk.tolist()
    known = theirs(**options).get_config()
    assert json.loads(json.dumps(codec.to_configuration())) == json.loads(
        json.dumps({name: value for name, value in known.items() if name != "id"})
    )


def test_lists_of_one_length_stay_items():
    codec = bound(Json({}), (2,))
    decoded = codec.decode(memoryview(codec.encode(objects([1, 2], [3, 4]))))
    assert decoded.tolist() == [[1, 2], [3, 4]]
    assert decoded.shape == (2,)


def test_no_dimension():
    for codec in (Json({}), Msgpack({})):
        if isinstance(codec, Msgpack):
            pytest.importorskip("msgpack")
        decoded = bound(codec, ()).decode(memoryview(bound(codec, ()).encode(objects([1, 2]).reshape(()))))
        assert decoded.shape == ()
        assert decoded[()] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "failed"),
        ("[1,2", "failed"),
        ("{}", "expected a list"),
        ('["|O"]', "expected a list"),
        ('[1,2,"|O",[3]]', r"shape \[3\], expected \[2\]"),
        ('[1,2,"|O",[1,2]]', "shape"),
        ('[1,"|O",[2]]', "1 items along one dimension, expected 2"),
        ('[1,2,3,"|O",[2]]', "3 items"),
        ("[" * 100_000, "failed"),
        ('["\ud800"', "failed"),
    ],
)
def test_damaged_json_is_named(text, message):
    with pytest.raises(CodecError, match=message):
        bound(Json({}), (2,)).decode(memoryview(text.encode("utf-8", "surrogatepass")))


def test_damaged_msgpack_is_named():
    pytest.importorskip("msgpack")
    codec = bound(Msgpack({}), (2,))
    encoded = codec.encode(objects("a", 2))
    for size in range(len(encoded)):
        with pytest.raises(CodecError):
            codec.decode(memoryview(encoded[:size]))
    with pytest.raises(CodecError):
        codec.decode(memoryview(encoded + b"\0"))
    # An array of 2**32 - 1 items that are not there.
    with pytest.raises(CodecError):
        codec.decode(memoryview(b"\xdd\xff\xff\xff\xff"))


@pytest.mark.parametrize("item", [{1, 2}, b"bytes", np.int64(3), object()])
def test_what_json_cannot_say_is_named(item):
    with pytest.raises(CodecError, match=r"item \(1,\) cannot be said"):
        bound(Json({}), (2,)).encode(objects(1, item))


@pytest.mark.parametrize(
    ("kind", "configuration"),
    [
        (Json, {"x": 1}),
        (Json, {"encoding": "nothing"}),
        (Json, {"separators": [1]}),
        (Msgpack, {"raw": "yes"}),
        (Msgpack, {"x": 1}),
        (Pickle, {"protocol": 99}),
        (Pickle, {"x": 1}),
        (CategorizeObjects, {"labels": "ab"}),
        (CategorizeObjects, {"labels": ["a"], "astype": "f4"}),
        (CategorizeObjects, {"labels": ["a"] * 300, "astype": "u1"}),
        (CategorizeObjects, {"labels": ["a"], "x": 1}),
    ],
)
def test_malformed_options_are_refused(kind, configuration):
    with pytest.raises(MetadataError, match="numcodecs"):
        kind.from_configuration(configuration)


@pytest.mark.parametrize(
    "codec", [Json({}), Msgpack({}), Pickle(), CategorizeObjects(("a",), "|O", np.dtype("u1"))]
)
def test_items_that_are_no_objects_are_refused(codec):
    with pytest.raises(MetadataError, match="items that are objects"):
        codec.bind(ChunkSpec((2,), np.dtype("i4"), np.int32(0), True))


class Bomb:
    """Does something where it is unpickled."""

    gone_off = False

    def __reduce__(self):
        return (setattr, (Bomb, "gone_off", True))


def test_nothing_is_unpickled_unless_it_is_allowed():
    with pytest.raises(UnsupportedError, match="allow_pickle=True"):
        bound(Pickle(), (2,))
    codec = bound(Pickle.from_configuration({"protocol": 4}), (2,), allow_pickle=True)
    chunk = objects({1}, len)
    assert codec.decode(memoryview(codec.encode(chunk))).tolist() == [{1}, len]
    assert codec.encode(chunk) == bytes(numcodecs.Pickle(protocol=4).encode(chunk))
    assert not Bomb.gone_off


def test_pickles_of_something_else_are_refused():
    codec = bound(Pickle(), (2,), allow_pickle=True)
    for wrong in (objects(1), np.zeros(2), [1, 2]):
        with pytest.raises(CodecError, match="expected objects of shape"):
            codec.decode(memoryview(pickle.dumps(wrong)))
    with pytest.raises(CodecError, match="failed"):
        codec.decode(memoryview(codec.encode(objects(1, 2))[:-5]))
    with pytest.raises(CodecError, match="failed"):
        codec.encode(objects(1, lambda: None))


def test_pickles_of_zarr_python_2_in_order_f():
    """They hold the chunk as it was, and that its first dimension is the fastest."""
    codec = bound(Pickle(), (3, 2), allow_pickle=True)
    logical = objects(*range(6), shape=(2, 3))
    assert codec.decode(memoryview(pickle.dumps(np.asfortranarray(logical)))).tolist() == logical.T.tolist()
    assert not pickle.loads(codec.encode(logical.T)).flags.fnc


CATEGORIES = {"labels": ["ä", "b"], "dtype": "|O", "astype": "|u1"}


def test_categories_of_objects_are_those_of_numcodecs():
    codec = bound(Categorize.from_configuration(CATEGORIES), (2, 2))
    assert codec.to_configuration() == CATEGORIES
    chunk = objects("b", "", "ä", "b", shape=(2, 2))
    theirs = numcodecs.Categorize(**{**CATEGORIES, "dtype": object})
    encoded = codec.encode(chunk)
    assert encoded == theirs.encode(chunk).tobytes()
    assert codec.decode(memoryview(encoded)).tolist() == chunk.tolist()


@pytest.mark.parametrize("item", ["c", 5, b"b"])
def test_what_is_no_category_is_named(item):
    with pytest.raises(CodecError, match=r"item \(1,\) is .*expected one of the labels"):
        bound(Categorize.from_configuration(CATEGORIES), (2,)).encode(objects("b", item))


def test_damaged_categories_are_named():
    codec = bound(Categorize.from_configuration(CATEGORIES), (2,))
    with pytest.raises(CodecError, match="has 3 bytes, expected 2"):
        codec.decode(memoryview(b"\0\1\2"))
    with pytest.raises(CodecError, match="has the code 3, expected 0 to 2"):
        codec.decode(memoryview(b"\0\3"))


def test_categories_of_fixed_strings_are_a_filter():
    codec = Categorize.from_configuration({"labels": ["a", "b"], "dtype": "<U1", "astype": "|u1"})
    filtered = codec.bind(ChunkSpec((3,), np.dtype("<U1"), np.str_("")))
    items = np.array(["b", "a", ""], "<U1")
    assert filtered.decode(filtered.encode(items)).tolist() == items.tolist()

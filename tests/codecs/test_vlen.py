"""Items of any length as bytes, beside numcodecs' own codecs; and what damage does."""

from __future__ import annotations

import pickle
import struct

import numcodecs
import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.vlen import NumcodecsVlenBytes, NumcodecsVlenUtf8, VlenBytes, VlenUtf8
from zstore.codecs.vlen_array import VlenArray
from zstore.errors import CodecError, MetadataError
from zstore.extensions.registry import codecs
from zstore.testing.chunk_codecs import SerializerContract

TEXT = getattr(np.dtypes, "StringDType", lambda: np.dtype(object))()
OBJECT = np.dtype(object)


def objects(*items: object, shape: tuple[int, ...] | None = None) -> np.ndarray:
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made.reshape(shape or (len(items),))


class TestVlenUtf8(SerializerContract):
    specs = tuple(
        ChunkSpec(shape, dtype, "") for dtype in (TEXT, OBJECT) for shape in ((), (0,), (6,), (2, 3))
    )

    def make(self):
        return VlenUtf8()

    def chunks(self, spec):
        for texts in (["", "a", "é😀", "x\0", "longer than what fits into the item", ""], [""] * 6):
            yield objects(*texts[: int(np.prod(spec.shape))]).reshape(spec.shape).astype(spec.dtype)


class TestNumcodecsVlenUtf8(TestVlenUtf8):
    def make(self):
        return NumcodecsVlenUtf8()


class TestVlenBytes(SerializerContract):
    specs = tuple(ChunkSpec(shape, OBJECT, b"") for shape in ((), (0,), (6,), (2, 3)))

    def make(self):
        return VlenBytes()

    def chunks(self, spec):
        for items in ([b"", b"\xff\0", b"a" * 300, b"", b"x", b"y"], [b""] * 6):
            yield objects(*items[: int(np.prod(spec.shape))]).reshape(spec.shape)


class TestNumcodecsVlenBytes(TestVlenBytes):
    def make(self):
        return NumcodecsVlenBytes()


class TestVlenArray(SerializerContract):
    specs = (ChunkSpec((4,), OBJECT, None), ChunkSpec((2, 2), OBJECT, None))

    def make(self):
        return VlenArray.from_configuration({"dtype": ">i4"})

    def chunks(self, spec):
        yield objects(*(np.arange(n, dtype="i4") for n in (3, 0, 1, 9)), shape=spec.shape)


def utf8(shape: tuple[int, ...], dtype: np.dtype = TEXT, fill: str = "") -> VlenUtf8:
    return VlenUtf8.from_configuration({}).bind(ChunkSpec(shape, dtype, fill))


def raw(shape: tuple[int, ...], fill: bytes = b"") -> VlenBytes:
    return VlenBytes.from_configuration({}).bind(ChunkSpec(shape, OBJECT, fill))


def ragged(shape: tuple[int, ...], dtype: str = "<i4", fill: object = None) -> VlenArray:
    return VlenArray.from_configuration({"dtype": dtype}).bind(ChunkSpec(shape, OBJECT, fill))


@pytest.mark.parametrize("dtype", [TEXT, OBJECT])
@pytest.mark.parametrize("shape", [(), (0,), (6,), (2, 3), (1, 6)])
def test_strings_are_encoded_as_numcodecs_does(shape, dtype):
    texts = objects("", "a", "é😀", "x\0", "longer than what fits into the item", "", shape=(6,))
    chunk = texts[: int(np.prod(shape))].reshape(shape).astype(dtype)
    codec = utf8(shape, dtype)
    encoded = codec.encode(chunk)
    assert encoded == bytes(numcodecs.VLenUTF8().encode(chunk.astype(object)))
    decoded = codec.decode(memoryview(encoded))
    assert decoded.dtype == dtype
    assert decoded.shape == shape
    assert decoded.tolist() == chunk.tolist()


def test_bytes_are_encoded_as_numcodecs_does():
    chunk = objects(b"", b"\xff\0", b"a" * 300, b"", shape=(2, 2))
    encoded = raw((2, 2)).encode(chunk)
    assert encoded == bytes(numcodecs.VLenBytes().encode(chunk))
    assert raw((2, 2)).decode(memoryview(encoded)).tolist() == chunk.tolist()


@pytest.mark.parametrize("order", ["F", "strided"])
def test_chunks_of_any_strides(order):
    chunk = np.arange(12).reshape(3, 4).astype(str).astype(TEXT)
    given = np.asfortranarray(chunk) if order == "F" else np.repeat(chunk, 2, 1)[:, ::2]
    assert utf8((3, 4)).encode(given) == utf8((3, 4)).encode(chunk)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes and a count of None, expected at least 12 bytes and a count of 2"),
        (struct.pack("<I", 2**32 - 1), "4 bytes and a count of 4294967295, expected at least 12 bytes"),
        (struct.pack("<III", 3, 0, 0), "count of 3, expected 2"),
        (struct.pack("<III", 2, 0, 1), "item 1 has a size of 1, which is more than is left"),
        (struct.pack("<III", 2, 2**32 - 1, 0), "item 0 has a size of 4294967295"),
        (struct.pack("<III", 2, 0, 0) + b"x", "1 bytes follow the last item"),
        (struct.pack("<III", 2, 0, 1) + b"\xff", "item 1, of 1 bytes, is not UTF-8"),
    ],
)
def test_damage_is_named(data, message):
    with pytest.raises(CodecError, match=message) as caught:
        utf8((2,)).decode(memoryview(data))
    assert caught.value.codec == "vlen-utf8"


def test_a_chunk_of_many_items_that_are_not_there_allocates_nothing():
    with pytest.raises(CodecError, match="expected at least"):
        utf8((1 << 20, 1 << 20)).decode(memoryview(struct.pack("<I", 0)))


@pytest.mark.parametrize(
    ("codec", "chunk", "message"),
    [
        (utf8((1, 2), OBJECT), objects("a", None, shape=(1, 2)), r"item \(0, 1\) is None, expected a string"),
        (utf8((2,), OBJECT), objects("a", 5), r"item \(1,\) is 5"),
        (
            utf8((2,), OBJECT),
            objects("a", "\ud800"),
            r"item \(1,\) is '\\ud800', expected a string that UTF-8",
        ),
        (raw((2,)), objects(b"a", "b"), r"item \(1,\) is 'b', expected bytes"),
        (raw((2,)), objects(b"a", None), r"item \(1,\) is None"),
    ],
)
def test_what_is_no_such_item_is_named(codec, chunk, message):
    with pytest.raises(CodecError, match=message):
        codec.encode(chunk)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (VlenUtf8, ChunkSpec((2,), np.dtype("i4"), np.int32(0))),
        (VlenUtf8, ChunkSpec((2,), OBJECT, b"")),
        (VlenBytes, ChunkSpec((2,), OBJECT, "")),
        (VlenBytes, ChunkSpec((2,), TEXT, "")),
        (VlenUtf8, ChunkSpec((2,), OBJECT, None)),
    ],
)
def test_arrays_of_other_items_are_refused(kind, spec):
    if spec.dtype == OBJECT == TEXT and spec.fill_value == "":
        pytest.skip("without StringDType strings are objects")
    with pytest.raises(MetadataError, match=r"is for items that are"):
        kind().bind(spec)


@pytest.mark.parametrize("kind", [VlenUtf8, VlenBytes, NumcodecsVlenUtf8, NumcodecsVlenBytes])
def test_there_are_no_options(kind):
    assert codecs.resolve(kind.name) is kind
    assert kind.from_configuration({}).to_configuration() == {}
    with pytest.raises(MetadataError, match="unknown options"):
        kind.from_configuration({"level": 1})


def test_bound_codecs_can_be_pickled():
    codec = pickle.loads(pickle.dumps(utf8((1,), fill="x")))
    assert codec.decode(memoryview(codec.encode(np.array(["é"], TEXT)))).tolist() == ["é"]


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<f8", "|u1", "<M8[s]", "|b1"])
def test_ragged_arrays_are_encoded_as_numcodecs_does(dtype):
    native = np.dtype(dtype).newbyteorder("=")
    items = [np.array(values).astype(native) for values in ([1, 0], [], [1], [0, 1, 1])]
    chunk = objects(*items, shape=(2, 2))
    codec = ragged((2, 2), dtype)
    encoded = codec.encode(chunk)
    # numcodecs has a platform's byte order for what it gives back, and writes as it is told.
    if dtype[0] != ">" and np.dtype(dtype).kind != "M":
        assert encoded == bytes(numcodecs.VLenArray(dtype).encode(chunk))
    decoded = codec.decode(memoryview(encoded))
    assert decoded.shape == (2, 2)
    for got, expected in zip(decoded.flat, items, strict=True):
        assert got.dtype == native
        assert got.tolist() == expected.tolist()
        assert got.flags.writeable


def test_ragged_items_from_lists_and_where_nothing_was_written():
    codec = ragged((4,), "<i2")
    decoded = codec.decode(memoryview(codec.encode(objects([1, 2], (), None, np.array([3], "i8")))))
    assert [item.tolist() for item in decoded] == [[1, 2], [], [], [3]]


@pytest.mark.parametrize(
    "item",
    [
        [1.5],
        [2**40],
        np.array([[1]]),
        np.array([1.5]),
        5,
        "abc",
        ["a"],
        [[1], [2, 3]],
        np.array(["x"]),
        b"ab",
    ],
)
def test_ragged_items_that_do_not_fit_are_named(item):
    with pytest.raises(CodecError, match=r"item \(1,\) is .*expected an array of one dimension"):
        ragged((2,), "<i4").encode(objects([1], item))


def test_damaged_ragged_chunks_are_named():
    with pytest.raises(CodecError, match="item 0 has 3 bytes, expected a multiple of 4"):
        ragged((1,)).decode(memoryview(struct.pack("<II", 1, 3) + b"abc"))
    with pytest.raises(CodecError, match="follow the last item"):
        ragged((1,)).decode(memoryview(struct.pack("<II", 1, 4) + b"abcde"))


@pytest.mark.parametrize(
    "configuration", [{}, {"dtype": "|O"}, {"dtype": 5}, {"dtype": "nothing"}, {"dtype": "<i4", "x": 1}]
)
def test_ragged_arrays_need_a_dtype(configuration):
    with pytest.raises(MetadataError, match="vlen-array"):
        VlenArray.from_configuration(configuration)

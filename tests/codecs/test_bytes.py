"""The codec "bytes": byte orders, sizes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.bytes import Bytes, BytesByField
from zstore.errors import CodecError, MetadataError
from zstore.model.dtype import unit_size
from zstore.testing.chunk_codecs import SerializerContract

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


class TestBytes(SerializerContract):
    specs = tuple(
        ChunkSpec(shape, np.dtype(name), None) for name in DTYPES for shape in ((), (0, 3), (7,), (3, 4))
    )

    def make(self):
        return Bytes("big")


class TestBytesByField(SerializerContract):
    specs = (ChunkSpec((3, 4), np.dtype([("a", "i4"), ("b", "u2"), ("c", "u1")]), None),)

    def make(self):
        return BytesByField(["little", "big", None])


def bound(dtype: str, endian: str | None, shape: tuple[int, ...] = (3, 4)) -> Bytes:
    return Bytes(endian).bind(ChunkSpec(shape, np.dtype(dtype), np.zeros((), dtype)[()]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_bytes_are_numpys_of_that_order(dtype, endian):
    chunk = np.arange(12).reshape(3, 4).astype(dtype)
    expected = chunk.astype(np.dtype(dtype).newbyteorder("<" if endian == "little" else ">")).tobytes()
    for shown in (chunk, np.asfortranarray(chunk), chunk[::-1][::-1]):
        codec = bound(dtype, endian)
        assert bytes(codec.encode(shown)) == expected
        np.testing.assert_array_equal(codec.decode(memoryview(expected)), chunk, strict=True)
    assert codec.encoded_size(codec.spec) == len(expected)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1"])
def test_items_of_one_byte_need_no_order(dtype):
    chunk = np.ones((2, 2), dtype)
    codec = bound(dtype, None, (2, 2))
    assert bytes(codec.encode(chunk)) == b"\1\1\1\1"
    np.testing.assert_array_equal(codec.decode(memoryview(b"\1\1\1\1")), chunk, strict=True)
    assert codec.to_configuration() == {}


@pytest.mark.parametrize("dtype", ["i2", "c8", "f8"])
def test_items_of_several_bytes_need_an_order(dtype):
    with pytest.raises(MetadataError, match="endian"):
        bound(dtype, None)


@pytest.mark.parametrize("size", [0, 1, 95, 97, 192])
def test_another_length_is_refused(size):
    with pytest.raises(CodecError, match=f"{size} bytes, expected 96"):
        bound("f8", "big").decode(memoryview(bytes(size)))


def test_0_d_and_empty_chunks():
    codec = bound("i4", "big", ())
    assert bytes(codec.encode(np.array(1, "i4"))) == b"\0\0\0\1"
    np.testing.assert_array_equal(codec.decode(memoryview(b"\0\0\0\1")), np.array(1, "i4"), strict=True)


@pytest.mark.parametrize(
    "configuration", [{"endian": "middle"}, {"endian": 1}, {"endian": "little", "x": 1}, {"Endian": "big"}]
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="bytes"):
        Bytes.from_configuration(configuration)


@pytest.mark.parametrize("configuration", [{}, {"endian": "little"}, {"endian": "big"}])
def test_configurations_come_back(configuration):
    assert Bytes.from_configuration(configuration).to_configuration() == configuration


def test_objects_are_refused():
    with pytest.raises(MetadataError, match="object"):
        Bytes("little").bind(ChunkSpec((2,), np.dtype(object), None))


def test_units():
    assert [unit_size(np.dtype(name)) for name in ("c16", "c8", "f8", "i2", "?", "U3", "S5", "V7")] == [
        8,
        4,
        8,
        2,
        1,
        4,
        1,
        1,
    ]

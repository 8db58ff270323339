"""The codec "packbits"."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.packbits import Packbits
from zstore.errors import CodecError, MetadataError
from zstore.testing.chunk_codecs import SerializerContract

DTYPES = ("?", "i1", "u2", "i4", "f4", "f8", "c8", "c16", "M8[s]")


def spec_of(dtype, shape=(3, 5)) -> ChunkSpec:
    return ChunkSpec(shape, np.dtype(dtype), None)


class TestWhole(SerializerContract):
    specs = tuple(map(spec_of, DTYPES))

    def make(self):
        return Packbits("first_byte")


class TestRange(SerializerContract):
    specs = (spec_of("i1"), spec_of("u4"), spec_of("i8", (7,)), spec_of("u2", ()))

    def make(self):
        return Packbits("last_byte", 0, 7)


def test_bits_are_filled_from_the_lowest():
    chunk = np.array([1, 0, 0, 1, 1, 0, 0, 0, 0, 1], bool)
    packed = {}
    for padding in ("none", "first_byte", "last_byte"):
        codec = Packbits.from_configuration({"padding_encoding": padding})
        packed[padding] = codec.bind(spec_of("?", (10,))).encode(chunk)
    assert packed == {"none": b"\x19\x02", "first_byte": b"\x06\x19\x02", "last_byte": b"\x19\x02\x06"}
    values = np.array([0x123, 0xABC], "u2")
    assert Packbits(last_bit=11).bind(spec_of("u2", (2,))).encode(values) == bytes([0x23, 0xC1, 0xAB])


def test_signs_are_extended_and_low_bits_are_zero():
    values = np.array([-1, -8, 7, 0, 6], "i2")
    codec = Packbits(last_bit=3).bind(spec_of("i2", (5,)))
    assert codec.decode(memoryview(codec.encode(values))).tolist() == values.tolist()
    codec = Packbits(first_bit=1, last_bit=3).bind(spec_of("i2", (5,)))
    assert codec.decode(memoryview(codec.encode(values))).tolist() == [-2, -8, 6, 0, 6]
    codec = Packbits(last_bit=3).bind(spec_of("u2", (5,)))
    assert codec.decode(memoryview(codec.encode(values.view("u2")))).tolist() == [15, 8, 7, 0, 6]


@pytest.mark.parametrize(
    ("name", "bits"), [("int2", 2), ("uint4", 4), ("int4", 4), ("float4_e2m1fn", 4), ("float6_e3m2fn", 6)]
)
def test_types_smaller_than_a_byte(name, bits):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes", reason="has the small types"), name))
    chunk = np.arange(min(16, 1 << bits), dtype=np.uint8).view(dtype)
    codec = Packbits().bind(ChunkSpec(chunk.shape, dtype, None))
    encoded = codec.encode(chunk)
    assert len(encoded) == codec.encoded_size(codec.spec) == -(-chunk.size * bits // 8)
    assert codec.decode(memoryview(encoded)).tobytes() == chunk.tobytes()
    chunk = np.asarray(["1", "0"], "f4").astype(dtype)
    again = codec.bind(ChunkSpec((2,), dtype, None))
    assert again.decode(memoryview(again.encode(chunk))).astype("f4").tolist() == [1, 0]


def test_parts_of_complex_items_are_cut_by_themselves():
    chunk = np.array([1 + 2j, -3.5 + 0.25j], "c8")
    codec = Packbits(first_bit=16, last_bit=31).bind(spec_of("c8", (2,)))
    encoded = codec.encode(chunk)
    assert len(encoded) == 8
    assert codec.decode(memoryview(encoded)).tolist() == chunk.tolist()


def test_padding_that_contradicts_the_chunk():
    codec = Packbits("first_byte").bind(spec_of("?", (10,)))
    with pytest.raises(CodecError, match="5 bits of padding, expected 6"):
        codec.decode(memoryview(b"\x05\x19\x02"))
    with pytest.raises(CodecError, match="has 4 bytes, expected 3"):
        codec.decode(memoryview(b"\x06\x19\x02\x00"))


@pytest.mark.parametrize(
    "configuration",
    [
        {"padding_encoding": "start_byte"},
        {"first_bit": -1},
        {"first_bit": 3, "last_bit": 2},
        {"first_bit": True},
    ],
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="codec 'packbits'"):
        Packbits.from_configuration(configuration)


def test_null_is_as_good_as_nothing():
    codec = Packbits.from_configuration({"first_bit": None, "last_bit": None, "padding_encoding": "none"})
    assert codec.to_configuration() == {}


@pytest.mark.parametrize(
    ("codec", "dtype"), [(Packbits(last_bit=8), "u1"), (Packbits(9), "S3"), (Packbits(), "O")]
)
def test_chunks_that_cannot_be_packed(codec, dtype):
    with pytest.raises(MetadataError, match="codec 'packbits'"):
        codec.bind(ChunkSpec((2,), np.dtype(dtype), None))

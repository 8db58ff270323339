"""The codec "scale_offset"."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.scale_offset import ScaleOffset
from zstore.errors import CodecError, MetadataError
from zstore.testing.chunk_codecs import ArrayCodecContract


def bound(dtype, fill_value=None, **configuration) -> ScaleOffset:
    spec = ChunkSpec((4,), np.dtype(dtype), fill_value)
    codec = ScaleOffset.from_configuration(configuration).bind(spec)
    codec.encoded_spec(spec)
    return codec


class TestIntegers(ArrayCodecContract):
    specs = tuple(ChunkSpec((3, 4), np.dtype(name), np.ones(1, name)[0]) for name in ("i4", "i8", "u8", "i2"))

    def make(self):
        return ScaleOffset.from_configuration({"offset": 0, "scale": 3})


class TestFloats(ArrayCodecContract):
    is_lossless = False
    specs = tuple(ChunkSpec((3, 4), np.dtype(name), np.ones(1, name)[0]) for name in ("f4", "f8"))

    def make(self):
        return ScaleOffset.from_configuration({"offset": 5, "scale": 0.5})


class TestNothing(ArrayCodecContract):
    specs = (ChunkSpec((3, 4), np.dtype("f4"), np.float32("nan")), ChunkSpec((), np.dtype("u1"), np.uint8(1)))

    def make(self):
        return ScaleOffset.from_configuration({})


def test_arithmetic_is_that_of_the_type():
    codec = bound("f4", offset=5, scale=0.1)
    given = np.array([0, 1, 7.5], "f4")
    np.testing.assert_array_equal(codec.encode(given), (given - np.float32(5)) * np.float32(0.1), strict=True)
    np.testing.assert_array_equal(codec.decode(given), given / np.float32(0.1) + np.float32(5), strict=True)


def test_complex_items():
    codec = bound("c16", offset=[1, 1], scale=[0, 2])
    assert codec.encode(np.array([2 + 1j])).tolist() == [2j]
    assert codec.decode(np.array([2j])).tolist() == [2 + 1j]


def test_a_range_of_integers_moves():
    codec = bound("u2", np.uint16(1000), offset=1000)
    assert codec.encode(np.array([1000, 1255], "u2")).tolist() == [0, 255]
    assert codec.decode(np.array([0, 255], "u2")).tolist() == [1000, 1255]


@pytest.mark.parametrize(
    ("dtype", "configuration", "given"),
    [
        ("u2", {"offset": 1000}, 999),
        ("i1", {"scale": 2}, 64),
        ("i1", {"offset": -1}, 127),
        ("u8", {"scale": 2}, 2**63),
        ("i8", {"scale": -1}, -(2**63)),
        ("u1", {"offset": 10, "scale": 0}, 3),
        ("f4", {"scale": 10}, 3e38),
        ("f2", {"offset": -60000}, 60000),
    ],
)
def test_results_that_the_type_does_not_have(dtype, configuration, given):
    with pytest.raises((CodecError, MetadataError), match="codec 'scale_offset'"):
        bound(dtype, **configuration).encode(np.array([given], dtype))


@pytest.mark.parametrize(
    ("dtype", "configuration", "stored"),
    [
        ("i4", {"scale": 2}, 3),
        ("u1", {"offset": 200}, 100),
        ("i8", {"scale": -1}, -(2**63)),
        ("f4", {"scale": 1e-30}, 1e10),
    ],
)
def test_stored_values_that_cannot_be_turned_back(dtype, configuration, stored):
    with pytest.raises(CodecError, match="codec 'scale_offset' failed"):
        bound(dtype, **configuration).decode(np.array([stored], dtype))


def test_what_is_no_number_passes():
    odd = np.array([np.nan, np.inf, -np.inf])
    codec = bound("f8", offset=1, scale=-2)
    np.testing.assert_array_equal(codec.encode(odd), [np.nan, -np.inf, np.inf])
    np.testing.assert_array_equal(codec.decode(codec.encode(odd)), odd)


@pytest.mark.parametrize(
    ("dtype", "configuration"),
    [
        ("i4", {"scale": 0.5}),
        ("u1", {"offset": 256}),
        ("f4", {"scale": "NaN"}),
        ("f4", {"scale": 0}),
        ("f4", {"offset": None}),
        ("?", {}),
        ("M8[s]", {}),
        ("S2", {"offset": 1}),
    ],
)
def test_configurations_and_chunks_that_do_not_go_together(dtype, configuration):
    with pytest.raises(MetadataError, match="codec 'scale_offset'"):
        bound(dtype, **configuration)


def test_a_fill_value_without_a_place():
    with pytest.raises(MetadataError, match="cannot convert the fill value 0"):
        bound("u2", np.uint16(0), offset=1000)

"""The codec "bitround"."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.bitround import Bitround
from zstore.errors import MetadataError
from zstore.testing.chunk_codecs import ArrayCodecContract


class TestBitround(ArrayCodecContract):
    is_lossless = False
    specs = tuple(
        ChunkSpec((3, 4), np.dtype(name), np.ones(1, name)[0])
        for name in ("f2", "f4", "f8", "c8", "i4", "u1")
    )

    def make(self):
        return Bitround(3)


def test_the_examples_of_the_specification():
    integers = np.array([0, 1, 10, 11, 100, 123, 200, 208, 209, 255], "u1")
    assert Bitround(3).encode(integers).tolist() == [0, 1, 10, 12, 96, 128, 192, 192, 224, 224]
    floats = np.array([0, 0.1, 1.2, 12.3, 123.4, 1234.5, np.nan, np.inf, -np.inf], "f4")
    expected = np.array([0, 0.1015625, 1.25, 12, 120, 1280, np.nan, np.inf, -np.inf], "f4")
    np.testing.assert_array_equal(Bitround(3).encode(floats), expected)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_floats_are_rounded_as_numcodecs_rounds_them(dtype):
    values = (np.random.default_rng(0).normal(size=500) * 100).astype(dtype)
    for keepbits in range(1, np.finfo(dtype).nmant + 1):
        expected = numcodecs.BitRound(keepbits).encode(values)
        assert Bitround(keepbits).encode(values).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_integers_keep_their_leading_bits(dtype):
    limits = np.iinfo(dtype)
    random = np.random.default_rng(1).integers(limits.min, limits.max, 60, dtype=dtype, endpoint=True)
    ends = np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], dtype)
    values = np.concatenate([random, ends, random >> (random.dtype.itemsize * 4)])
    for keepbits in range(1, 8 * values.dtype.itemsize + 1):
        rounded = Bitround(keepbits).encode(values)
        for value, got in zip(values.tolist(), rounded.tolist(), strict=True):
            assert got == rounded_integer(value, keepbits, limits), (keepbits, value)


def rounded_integer(value: int, keepbits: int, limits: np.iinfo) -> int:
    quantum = 1 << max(0, abs(value).bit_length() - keepbits)
    down, rest = abs(value) // quantum * quantum, abs(value) % quantum
    is_up = 2 * rest > quantum or (2 * rest == quantum and down // quantum % 2 == 1)
    result = (down + quantum if is_up and rest else down) * (-1 if value < 0 else 1)
    return result if limits.min <= result <= limits.max else down * (-1 if value < 0 else 1)


def test_values_that_are_no_numbers_stay_and_finite_ones_stay_finite():
    bits = np.array([0x7F7FFFFF, 0xFF7FFFFF, 0x7FFFFFFF, 0x7F800001], "u4")
    rounded = Bitround(3).encode(bits.view("f4"))
    assert np.isfinite(rounded[:2]).all()
    assert rounded[2:].tobytes() == bits[2:].tobytes()
    times = np.array(["NaT", "2001-02-03", "1901-02-03"], "M8[s]")
    assert np.isnat(Bitround(3).encode(times)).tolist() == [True, False, False]


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 is a type of ml_dtypes")
    values = np.array([1.2, 100.5, -3.3]).astype(ml_dtypes.bfloat16)
    codec = Bitround(2).bind(ChunkSpec((3,), values.dtype, values[0]))
    assert codec.encode(values).astype("f4").tolist() == [1.25, 96, -3.5]


@pytest.mark.parametrize(
    ("keepbits", "dtype"), [(24, "f4"), (0, "i4"), (33, "i4"), (3, "?"), (3, "S4"), (3, "V2")]
)
def test_chunks_that_cannot_be_rounded(keepbits, dtype):
    with pytest.raises(MetadataError, match="codec 'bitround'"):
        Bitround(keepbits).bind(ChunkSpec((2,), np.dtype(dtype), None))


@pytest.mark.parametrize("configuration", [{}, {"keepbits": -1}, {"keepbits": "3"}, {"keepbits": True}])
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="keepbits"):
        Bitround.from_configuration(configuration)

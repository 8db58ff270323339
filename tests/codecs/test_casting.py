"""Numbers from type to type, held against exact fractions."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from zstore.codecs.casting import ROUNDINGS, cast
from zstore.errors import CodecError

ml_dtypes = pytest.importorskip("ml_dtypes", reason="has the small float types")
SMALL = sorted(
    name for name in dir(ml_dtypes) if name.startswith(("bfloat16", "float4_", "float6_", "float8_"))
)
UNUSED_BITS = {"float4_e2m1fn": 16, "float6_e2m3fn": 64, "float6_e3m2fn": 64}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def whole(value: Fraction, rounding: str) -> int:
    if rounding == "nearest-away":
        return math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    choices = {
        "nearest-even": round,
        "towards-zero": math.trunc,
        "towards-positive": math.ceil,
        "towards-negative": math.floor,
    }
    return choices[rounding](value)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["float16", *SMALL])
def test_floats_are_rounded_to_the_right_neighbour(name, rounding):
    dtype = dtype_of(name)
    words = np.arange(UNUSED_BITS.get(name, 1 << 8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = words.view(dtype).astype("f8")
    is_number = np.isfinite(values)
    bits = dict(zip(values[is_number].tolist(), words[is_number].tolist(), strict=True))
    known = sorted(bits)
    middles = np.array([(a + b) / 2 for a, b in pairwise(known)])[:: max(1, len(known) // 150)]
    given = np.concatenate(
        [middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), known[::37]]
    )
    for value, got in zip(
        given.tolist(), cast(given, dtype, rounding, None).astype("f8").tolist(), strict=True
    ):
        above = known[bisect_left(known, value)]
        below = value if above == value else known[bisect_left(known, value) - 1]
        low, high = Fraction(value) - Fraction(below), Fraction(above) - Fraction(value)
        if rounding in ("nearest-even", "nearest-away") and low != high:
            assert got == (below if low < high else above), value
        elif rounding == "nearest-even":
            # A type of powers of two has no even neighbour.
            assert got in (below, above) if name == "float8_e8m0fnu" else bits[got] % 2 == 0 or low == 0, (
                value
            )
        else:
            is_up = {"towards-positive": True, "towards-negative": False, "towards-zero": value < 0}
            assert got == (above if is_up.get(rounding, value > 0) else below), value


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("name", "precision"), [("float32", 24), ("float64", 53), ("bfloat16", 8)])
@pytest.mark.parametrize("source", ["i8", "u8", "i4"])
def test_large_integers_are_rounded_once(source, name, precision, rounding):
    limits = np.iinfo(source)
    drawn = np.random.default_rng(0).integers(limits.min, limits.max, 100, dtype=source, endpoint=True)
    given = np.concatenate([drawn, np.array([limits.min, limits.max, limits.max - 1, 0, 1], source)])
    got = cast(given, dtype_of(name), rounding, None).astype("f8")
    for value, result in zip(given.tolist(), got.tolist(), strict=True):
        quantum = 1 << max(0, abs(value).bit_length() - precision)
        assert int(result) == whole(Fraction(value, quantum), rounding) * quantum, value


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("target", ["i1", "u1", "i2", "u4", "i8", "u8", "int4", "uint2"])
@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
def test_floats_to_integers(source, target, rounding):
    random = np.random.default_rng(0)
    given = np.concatenate(
        [random.normal(size=60) * 200, [0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 127.5, -128.5, 7.5]]
    )
    if source != "f2":
        given = np.concatenate(
            [given, random.normal(size=20) * 1e20, [0.49999999999999994, 2.0**63, -(2.0**64)]]
        )
    given = given.astype(source)
    low, high = range_of(target)
    expected = [whole(Fraction(value), rounding) for value in given.tolist()]
    clamped = cast(given, dtype_of(target), rounding, "clamp")
    assert integers(clamped) == [min(max(value, low), high) for value in expected]
    wrapped = cast(given, dtype_of(target), rounding, "wrap")
    assert integers(wrapped) == [(value - low) % (high - low + 1) + low for value in expected]
    inside = np.array([low <= value <= high for value in expected])
    assert integers(cast(given[inside], dtype_of(target), rounding, None)) == integers(clamped[inside])
    for value in given[~inside][:5]:
        with pytest.raises(CodecError, match="out of range"):
            cast(np.array([value]), dtype_of(target), rounding, None)


@pytest.mark.parametrize("source", ["i1", "u1", "i2", "i4", "u8", "i8", "int4"])
@pytest.mark.parametrize("target", ["i1", "u1", "i2", "u4", "i8", "u8", "int4", "uint2"])
def test_integers_to_integers(source, target):
    least, most = range_of(source)
    values = sorted(value for value in {least, most, 0, 1, 3, 7, 8, 127, 128} if least <= value <= most)
    given = np.array([[dtype_of(source).type(value)] for value in values])
    low, high = range_of(target)
    clamped = cast(given, dtype_of(target), "nearest-even", "clamp")
    assert integers(clamped.ravel()) == [min(max(value, low), high) for value in values]
    wrapped = cast(given, dtype_of(target), "nearest-even", "wrap")
    assert integers(wrapped.ravel()) == [(value - low) % (high - low + 1) + low for value in values]
    if low <= least and most <= high:
        assert integers(cast(given, dtype_of(target), "nearest-even", None).ravel()) == values
    else:
        with pytest.raises(CodecError, match="out of range"):
            cast(given, dtype_of(target), "nearest-even", None)


def range_of(name: str) -> tuple[int, int]:
    limits = ml_dtypes.iinfo(dtype_of(name))
    return int(limits.min), int(limits.max)


def integers(values: np.ndarray) -> list[int]:
    return [int(value) for value in values]


def test_what_is_no_number():
    odd = np.array([np.nan, np.inf, -np.inf, -0.0])
    single = cast(odd, np.dtype("f4"), "nearest-even", None)
    np.testing.assert_array_equal(single, odd.astype("f4"))
    assert np.signbit(single[3])
    for target, refused in (("i4", 3), ("float8_e4m3fn", 2), ("float4_e2m1fn", 3)):
        for value in odd[:3][3 - refused :]:
            with pytest.raises(CodecError, match="is no value of"):
                cast(np.array([value]), dtype_of(target), "nearest-even", "clamp")


def test_floats_out_of_range():
    given = np.array([1e300, -1e300, 65519.0, 65520.0])
    with pytest.raises(CodecError, match=r"1e\+300 of float64 is out of range for float16"):
        cast(given, np.dtype("f2"), "nearest-even", None)
    assert cast(given, np.dtype("f2"), "nearest-even", "clamp").tolist() == [np.inf, -np.inf, 65504, np.inf]
    assert cast(given[2:], np.dtype("f2"), "towards-zero", None).tolist() == [65504, 65504]
    small = cast(given, dtype_of("float4_e2m1fn"), "nearest-even", "clamp")
    assert small.astype("f4").tolist() == [6, -6, 6, 6]

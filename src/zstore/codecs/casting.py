"""Conversion of numbers between data types by value, with five rounding modes and checks of the range.

Every result is exact: a value is rounded once, in a type that represents both the value and the result
(float64, or the 80-bit long double between 64-bit integers and floats), and then converted.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from zstore.codecs.base import failure
from zstore.errors import CodecError, UnsupportedError

ROUNDINGS = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
INTEGERS = {"int2": (2, True), "uint2": (2, False), "int4": (4, True), "uint4": (4, False)}

Numbers = np.ndarray[Any, Any]


class FloatType(NamedTuple):
    """The range and precision of a float type."""

    precision: int  # bits of the mantissa, including the hidden one
    low_exponent: int  # of the smallest difference between two values
    low: float
    high: float
    has_infinity: bool
    has_nan: bool


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether items are integers, those of ml_dtypes included."""
    return dtype.kind in "iu" or dtype.name in INTEGERS


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether items are integers or real floats, those of ml_dtypes included."""
    named = dtype.name in ("bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
    return is_integer(dtype) or dtype.kind == "f" or named or dtype.name.startswith("float8_")


def cast(values: Numbers, dtype: np.dtype[Any], rounding: str, out_of_range: str | None) -> Numbers:
    """Convert values to `dtype`; `out_of_range` is "clamp", "wrap", or None for an error.

    Raises
        CodecError: NaN or infinity that `dtype` does not have, or a value out of its range.
    """
    if values.dtype == dtype:
        return values
    # Signalling NaNs set the flag, but are handled like other NaNs.
    with np.errstate(invalid="ignore"):
        if not is_integer(dtype):
            return _to_floats(values, dtype, rounding, out_of_range)
        if is_integer(values.dtype):
            return _integers_to_integers(values, dtype, out_of_range)
        return _floats_to_integers(values, dtype, rounding, out_of_range)


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    count, is_signed = INTEGERS.get(dtype.name, (8 * dtype.itemsize, dtype.kind == "i"))
    return (-(1 << (count - 1)), (1 << (count - 1)) - 1) if is_signed else (0, (1 << count) - 1)


def _refuse(values: Numbers, bad: Numbers, dtype: np.dtype[Any], what: str) -> CodecError:
    value = np.atleast_1d(values)[np.atleast_1d(bad)][0]
    return failure("cast_value", f"{value} of {values.dtype.name} is {what} {dtype.name}")


def _wrapped(words: Numbers, dtype: np.dtype[Any]) -> Numbers:
    """The lowest bits of 64-bit words as integers of `dtype`."""
    if dtype.name in INTEGERS:
        count, _ = INTEGERS[dtype.name]
        return (words & np.uint64((1 << count) - 1)).astype(np.uint8).view(dtype)
    return words.astype(f"u{dtype.itemsize}").view(dtype)


def _integers_to_integers(values: Numbers, dtype: np.dtype[Any], out_of_range: str | None) -> Numbers:
    if values.dtype.name in INTEGERS:
        values = values.astype(np.int8 if INTEGERS[values.dtype.name][1] else np.uint8)
    (low, high), (least, most) = _limits(dtype), _limits(values.dtype)
    if low <= least and most <= high:
        return values.astype(dtype)
    if out_of_range != "wrap" and values.size:
        low, high = max(low, least), min(high, most)
        if out_of_range == "clamp":
            values = np.clip(values, low, high)
        elif int(values.min()) < low or int(values.max()) > high:
            raise _refuse(values, (values < low) | (values > high), dtype, "out of range for")
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)
    return _wrapped(wide, dtype) if dtype.name in INTEGERS else values.astype(dtype)


def _floats_to_integers(
    values: Numbers, dtype: np.dtype[Any], rounding: str, out_of_range: str | None
) -> Numbers:
    wide = values if values.dtype.type in (np.float32, np.float64) else values.astype(np.float64)
    is_finite = np.isfinite(wide)
    if not is_finite.all():
        raise _refuse(values, ~is_finite, dtype, "no value of")
    whole = _round(wide, rounding)
    low, high = _limits(dtype)
    # A float cannot represent 2**63 - 1, but it can 2**63.
    below, above = whole < float(low), whole >= float(high + 1)
    if below.any() or above.any():
        if out_of_range is None:
            raise _refuse(values, below | above, dtype, "out of range for")
        if out_of_range == "clamp":
            inside = _wrapped(_words(np.where(below | above, 0.0, whole)), dtype)
            least, most = (np.array([limit]).astype(dtype)[0] for limit in (low, high))
            return np.where(below, least, np.where(above, most, inside))
    elif dtype.name not in INTEGERS:
        return whole.astype(dtype)
    return _wrapped(_words(whole), dtype)


def _words(whole: Numbers) -> Numbers:
    """Whole numbers in floats as 64-bit words, exact modulo 2**64."""
    rest = np.fmod(whole.astype(np.float64, copy=False), 2.0**64)
    magnitude = np.abs(rest).astype(np.uint64)
    return np.where(rest < 0, ~magnitude + np.uint64(1), magnitude)


def _round(values: Numbers, rounding: str) -> Numbers:
    result: Numbers
    if rounding == "nearest-even":
        result = np.rint(values)
    elif rounding == "towards-zero":
        result = np.trunc(values)
    elif rounding == "towards-positive":
        result = np.ceil(values)
    elif rounding == "towards-negative":
        result = np.floor(values)
    else:
        # Not by adding 0.5, which would round 0.49999999999999994 up.
        whole = np.trunc(values)
        result = whole + np.where(np.abs(values - whole) >= 0.5, np.copysign(1.0, values), 0.0)
        result = np.copysign(result, values)
    return result


@cache
def _float_type(dtype: np.dtype[Any]) -> FloatType:
    if dtype.type in (np.float16, np.float32, np.float64):
        info: Any = np.finfo(dtype)
    else:
        import ml_dtypes

        info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        special = np.array([np.inf, np.nan]).astype(dtype).astype(np.float64)
    high, least = float(info.max), float(info.smallest_subnormal)
    low = float(info.min)
    if dtype.name == "float8_e8m0fnu":  # powers of two only: no sign, no zero
        low = least = float(info.tiny)
    step = round(np.log2(least))
    return FloatType(
        int(info.nmant) + 1, step, low, high, bool(np.isinf(special[0])), bool(np.isnan(special[1]))
    )


def _to_floats(values: Numbers, dtype: np.dtype[Any], rounding: str, out_of_range: str | None) -> Numbers:
    source = values.dtype
    target = _float_type(dtype)
    # numpy calls int64 to float64 "safe", but it rounds.
    is_whole = source.kind in "iu" and target.precision >= 8 * source.itemsize
    if (is_whole or source.kind == "f") and dtype.kind == "f" and np.can_cast(source, dtype, "safe"):
        return values.astype(dtype)
    exact = _exact(values)
    is_finite = np.isfinite(exact)
    if not is_finite.all():
        is_nan = np.isnan(exact)
        lacking = (is_nan & (not target.has_nan)) | (~is_nan & ~is_finite & (not target.has_infinity))
        if lacking.any():
            raise _refuse(values, lacking, dtype, "no value of")
    finite = np.where(is_finite, exact, exact.dtype.type(0))
    _, exponents = np.frexp(finite)
    steps = np.maximum(exponents - target.precision, target.low_exponent)
    rounded = np.ldexp(_round(np.ldexp(finite, -steps), rounding), steps)
    below, above = rounded < target.low, rounded > target.high
    if (below | above).any():
        if out_of_range is None:
            raise _refuse(values, is_finite & (below | above), dtype, "out of range for")
        ends = (-np.inf, np.inf) if target.has_infinity else (target.low, target.high)
        rounded = np.where(below, ends[0], np.where(above, ends[1], rounded))
    with np.errstate(over="ignore"):
        return np.where(is_finite, rounded, exact).astype(dtype)


def _exact(values: Numbers) -> Numbers:
    """The values in a float type that represents each of them and leaves room for rounding."""
    if not (values.dtype.kind in "iu" and values.dtype.itemsize == 8):
        return values.astype(np.float64)
    if np.finfo(np.longdouble).nmant < 63:
        raise UnsupportedError("64-bit integers as floats need a long double of 64 bits, which is not here")
    return values.astype(np.longdouble)

"""Small numbers, which numpy has through ml_dtypes: bfloat16, float4 to float8, int2 and int4.

In memory, and before the "bytes" codec, every item takes whole bytes; the unused high bits are ignored. The
codec "packbits" leaves them out.

Spec
    zarr-extensions, data types bfloat16, float4_*, float6_*, float8_*, int2, int4, uint2, uint4, complex_*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zstore.errors import UnsupportedError
from zstore.extensions.builtin import SMALL_NUMBERS
from zstore.extensions.extras import optional
from zstore.model.dtype import (
    HEX,
    SPECIAL,
    ComplexFill,
    DataType,
    FloatFill,
    IntegerFill,
    refuse,
    refuse_configuration,
)

# ml_dtypes' names of complex types, the types of their parts, and other names of core types.
COMPLEX = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}
COMPLEX_PARTS = {"complex32": "float16", "bcomplex32": "bfloat16"}
CORE = {"complex_float32": "complex64", "complex_float64": "complex128"}
# The bits of "NaN", for types that have several NaNs: as the extension specifies.
NAN_BITS = {
    "bfloat16": 0x7FC0, "float8_e3m4": 0x78, "float8_e4m3": 0x7C, "float8_e4m3fn": 0x7F,
    "float8_e4m3b11fnuz": 0x80, "float8_e4m3fnuz": 0x80, "float8_e5m2": 0x7E, "float8_e5m2fnuz": 0x80,
    "float8_e8m0fnu": 0xFF,
}  # fmt: skip


def _ml_dtypes(name: str) -> Any:
    with optional(f"data type {name!r} needs ml_dtypes", "ml-dtypes"):
        import ml_dtypes
    return ml_dtypes


class SmallFloatFill(FloatFill):
    """Small floats: a number, "NaN" and infinities if the type has them, or the bits as a hex string."""

    def _parse_number(self, value: int | float, dtype: np.dtype[Any]) -> Any:
        if value != value or value in (np.inf, -np.inf):
            return self._parse_text("NaN" if value != value else f"{'-' * (value < 0)}Infinity", dtype, 3)
        limits = _ml_dtypes(dtype.name).finfo(dtype)
        low, high = float(limits.min), float(limits.max)
        if not low <= value <= high:
            raise refuse(value, dtype, f"a number from {low} to {high}")
        # As a float, because ml_dtypes takes no integer of more than 64 bits.
        return dtype.type(float(value))

    def _parse_text(self, text: str, dtype: np.dtype[Any], zarr_format: int) -> Any:
        digit_count = 2 * dtype.itemsize
        if HEX.fullmatch(text) and len(text) == 2 + digit_count:
            return _from_bits(int(text, 16) & ((1 << _ml_dtypes(dtype.name).finfo(dtype).bits) - 1), dtype)
        if text == "NaN" and dtype.name in NAN_BITS:
            return _from_bits(NAN_BITS[dtype.name], dtype)
        if text in SPECIAL:
            scalar = dtype.type(float(SPECIAL[text]))
            # For a type without infinities or NaN, this is another number, or NaN.
            if str(float(scalar)) == SPECIAL[text]:
                return scalar
        raise refuse(text, dtype, f'a value of the type, or "0x" and {digit_count} hex digits')

    def _render_nan(self, value: Any, dtype: np.dtype[Any], zarr_format: int) -> str:
        bits = int(np.asarray(value, dtype).reshape(1).view(f"u{dtype.itemsize}")[0])
        return "NaN" if bits == NAN_BITS.get(dtype.name) else f"0x{bits:0{2 * dtype.itemsize}x}"


class SmallIntegerFill(IntegerFill):
    """Small integers: a JSON integer in range."""

    def _limits(self, dtype: np.dtype[Any]) -> Any:
        return _ml_dtypes(dtype.name).iinfo(dtype)


def _from_bits(bits: int, dtype: np.dtype[Any]) -> Any:
    return np.array([bits], f"u{dtype.itemsize}").view(dtype)[0]


class SmallNumber:
    """Makes the data types of small numbers by name, as far as the installed ml_dtypes has them."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        refuse_configuration(name, configuration)
        if name in CORE:
            return replace(DataType.from_name(CORE[name]), written=name)
        held = COMPLEX.get(name, name)
        scalar = getattr(_ml_dtypes(name), held, None)
        if scalar is None:
            raise UnsupportedError(f"data type {name!r} is not supported; ml_dtypes has nothing to hold it")
        dtype = np.dtype(scalar)
        if held in COMPLEX_PARTS:
            return cls._complex(name, dtype)
        fill = SmallIntegerFill() if "int" in name else SmallFloatFill()
        return DataType(name, {}, dtype, fill, formats=(3,))

    @classmethod
    def _complex(cls, name: str, dtype: np.dtype[Any]) -> DataType:
        part = DataType.from_name(COMPLEX_PARTS[dtype.name])
        return DataType(name, {}, dtype, ComplexFill(part.fill, part.numpy), formats=(3,))

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        if dtype.type.__module__ != "ml_dtypes":
            return None
        names = {held: name for name, held in COMPLEX.items()}
        name = names.get(dtype.name, dtype.name)
        return cls.from_name(name, {}) if name in SMALL_NUMBERS else None

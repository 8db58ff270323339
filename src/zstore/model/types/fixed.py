"""Data types of a fixed number of bytes or characters, and numpy's long floats.

Spec
    Zarr v3 core, "r*"; zarr-extensions, "fixed_length_utf32"; zarr-python's "null_terminated_bytes" and
    "raw_bytes"; Zarr v2, kinds "S", "U" and "V", and "f16", "c32" where numpy has them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.dtype import (
    ComplexFill,
    DataType,
    FloatFill,
    Order,
    check_item_size,
    parse_bytes,
    refuse,
    refuse_configuration,
)


class TextFill:
    """Strings: a JSON string that is not too long; in Zarr v2, also 0 for the empty string."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        text = "" if zarr_format == 2 and _is_zero(value) else value
        length = dtype.itemsize // 4
        if not isinstance(text, str) or len(text) > length:
            raise refuse(value, dtype, f"a string of at most {length} characters")
        return np.array([text], dtype)[0]

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return str(value)


class BytesFill:
    """Bytes in Base64, or (v3) as a list of integers; in Zarr v2, also 0 for zero bytes.

    `is_exact` says that trailing zero bytes must not be left out.
    """

    def __init__(self, *, is_exact: bool) -> None:
        self._is_exact = is_exact

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        size = dtype.itemsize
        if zarr_format == 2 and _is_zero(value):
            return np.zeros(1, dtype)[0]
        raw = parse_bytes(value, dtype)
        if len(raw) > size or (self._is_exact and len(raw) != size):
            raise refuse(value, dtype, f"{size} bytes" if self._is_exact else f"at most {size} bytes")
        return np.frombuffer(raw.ljust(size, b"\0"), dtype)[0]

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        raw = value.tobytes() if self._is_exact else bytes(value)
        return base64.b64encode(raw).decode()


class BitsFill(BytesFill):
    """Raw bits: written as a list of integers in v3, as the specification of "r*" says; Base64 in v2."""

    def __init__(self) -> None:
        super().__init__(is_exact=True)

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return list(value.tobytes()) if zarr_format == 3 else super().render(value, dtype, zarr_format, order)


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _parse_size(name: str, configuration: Mapping[str, Any], unit: int = 1) -> int:
    size = configuration.get("length_bytes")
    if configuration.keys() != {"length_bytes"} or type(size) is not int:
        raise MetadataError(
            f"configuration of data type {name!r} is {dict(configuration)!r}; expected length_bytes only"
        )
    if size <= 0 or size % unit:
        expected = f"a multiple of {unit}, at least {unit}" if unit > 1 else "at least 1"
        raise MetadataError(f"length_bytes of data type {name!r} is {size}; expected {expected}")
    return check_item_size(size, name)


class NullTerminatedBytes:
    """Bytes padded with zero bytes: numpy's "S"."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        return cls._make(_parse_size(name, configuration))

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        return cls._make(check_item_size(dtype.itemsize, dtype.str)) if dtype.kind == "S" else None

    @classmethod
    def _make(cls, size: int) -> DataType:
        dtype = np.dtype(f"S{size}")
        return DataType("null_terminated_bytes", {"length_bytes": size}, dtype, BytesFill(is_exact=False))


class FixedLengthUtf32:
    """Characters of four bytes each, padded with zeros: numpy's "U"."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        return cls._make(_parse_size(name, configuration, 4))

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        return cls._make(check_item_size(dtype.itemsize, dtype.str)) if dtype.kind == "U" else None

    @classmethod
    def _make(cls, size: int) -> DataType:
        return DataType("fixed_length_utf32", {"length_bytes": size}, np.dtype(f"U{size // 4}"), TextFill())


class RawBytes:
    """Uninterpreted bytes, numpy's "V": "r<bits>", and zarr-python's "raw_bytes"."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        if name == "raw_bytes":
            size = _parse_size(name, configuration)
            fill = BytesFill(is_exact=True)
            return DataType(name, {"length_bytes": size}, np.dtype(f"V{size}"), fill)
        refuse_configuration(name, configuration)
        bits = int(name[1:16])
        if bits % 8:
            raise MetadataError(f"data type is {name!r}; expected a multiple of 8 bits")
        size = check_item_size(bits // 8, name)
        return DataType(name, {}, np.dtype(f"V{size}"), BitsFill())

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        if dtype.type is not np.void or dtype.names is not None:
            return None
        return cls.from_name(f"r{8 * check_item_size(dtype.itemsize, dtype.str)}", {})


class LongFloatFill(FloatFill):
    """Long floats: a number that a double can represent, because JSON readers have no longer floats."""

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if value != value:
            return "NaN"
        if dtype.type(float(value)) != value:
            raise UnsupportedError(f"fill_value is {value!r}; expected a number that float64 can hold")
        return super().render(value, dtype, zarr_format, order)


class LongDouble:
    """numpy's long floats and long complex numbers, which depend on the platform, and which only v2 has."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        refuse_configuration(name, configuration)
        if name == "numpy.longdouble":
            return DataType(name, {}, np.dtype(np.longdouble), LongFloatFill(), formats=(2,))
        dtype = np.dtype(np.clongdouble)
        return DataType(name, {}, dtype, ComplexFill(LongFloatFill()), formats=(2,))

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        if dtype.type is np.longdouble:
            return cls.from_name("numpy.longdouble", {})
        return cls.from_name("numpy.clongdouble", {}) if dtype.type is np.clongdouble else None

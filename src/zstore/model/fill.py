"""Fill values: rules, one for each kind of data type, that parse them from JSON and render them to it.

Every bit is preserved: NaN payloads are written as hex strings, integers are never converted to floats, and a
float is written as the double that it equals.

Spec
    Zarr v3 core, "Permitted fill values"; Zarr v2, "Fill value encoding".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.order import Order, stored_dtype

HEX = re.compile("0x[0-9a-fA-F]+")
SPECIAL = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


class FillRule(Protocol):
    """The rule for the fill values of one kind of data type."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        """Parse a JSON value to a scalar of `dtype`; `order` is the byte order of raw bytes.

        Raises
            MetadataError: not a value of this type, or out of its range.
        """

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        """Render a scalar as the JSON value that `parse` turns into the same bits.

        Raises
            UnsupportedError: that format cannot represent it.
        """


def in_words(value: Any, write: Callable[[Any], str] = repr) -> str:
    """A value as text, by numpy; its bits, if numpy cannot write it (as with some very distant times)."""
    try:
        return write(value)
    except OverflowError:
        return f"0x{np.asarray(value).tobytes().hex()} of {np.asarray(value).dtype}"


def refuse(value: Any, dtype: np.dtype[Any] | str, expected: str) -> MetadataError:
    """The error for a fill value that is not of the data type, which is given as a dtype or by name."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return MetadataError(f"fill_value is {in_words(value)}; expected {expected} for data type {name}")


def parse_bytes(value: Any, dtype: np.dtype[Any] | str) -> bytes:
    """Parse bytes from Base64 or from a list of integers.

    Raises
        MetadataError: neither of the two.
    """
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise refuse(value, dtype, "Base64 or a list of integers from 0 to 255") from None
    if isinstance(value, list) and all(type(item) is int and 0 <= item <= 255 for item in value):
        return bytes(value)
    raise refuse(value, dtype, "Base64 or a list of integers from 0 to 255")


class BoolFill:
    """Booleans: true and false; 0 and 1 are read as these, as other readers do."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if isinstance(value, bool):
            return np.bool_(value)
        if isinstance(value, int | float) and value in (0, 1):
            return np.bool_(value)
        raise refuse(value, dtype, "true or false")

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return bool(value)


class IntegerFill:
    """Integers: a JSON integer in range; 1.0 is read as 1, as other readers do."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        limits = self._limits(dtype)
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if type(number) is int and limits.min <= number <= limits.max:
            return dtype.type(number)
        raise refuse(value, dtype, f"an integer from {limits.min} to {limits.max}")

    def _limits(self, dtype: np.dtype[Any]) -> Any:
        return np.iinfo(dtype)

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return int(value)


class FloatFill:
    """Floats: a number, "NaN", "Infinity", "-Infinity", or (v3) the bits as a hex string."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if isinstance(value, str):
            return self._parse_text(value, dtype, zarr_format)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refuse(value, dtype, "a number")
        return self._parse_number(value, dtype)

    def _parse_number(self, value: int | float, dtype: np.dtype[Any]) -> Any:
        if not value:
            return dtype.type(value)
        try:
            with np.errstate(over="ignore"):
                scalar = dtype.type(value)
        except OverflowError:
            raise refuse("an integer of that size", dtype, "a number in range") from None
        if np.isinf(scalar) and value not in (np.inf, -np.inf):
            raise refuse(value, dtype, f"a number in range, at most {np.finfo(dtype).max}")
        return scalar

    def _parse_text(self, text: str, dtype: np.dtype[Any], zarr_format: int) -> Any:
        if text in SPECIAL:
            return dtype.type(SPECIAL[text])
        digit_count = 2 * dtype.itemsize
        if zarr_format == 3 and HEX.fullmatch(text) and len(text) == 2 + digit_count:
            raw = int(text, 16).to_bytes(dtype.itemsize, "little")
            return np.frombuffer(raw, dtype.newbyteorder("<"))[0]
        expected = 'a number, "NaN", "Infinity" or "-Infinity"'
        if zarr_format == 3:
            expected += f' or "0x" and {digit_count} hex digits'
        raise refuse(text, dtype, expected)

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        number = float(value)
        if number != number:
            return self._render_nan(value, dtype, zarr_format)
        if number in (np.inf, -np.inf):
            return "Infinity" if number > 0 else "-Infinity"
        return number

    def _render_nan(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int) -> str:
        raw = value.tobytes()
        if raw == dtype.type("nan").tobytes():
            return "NaN"
        digits = f"0x{int(np.frombuffer(raw, f'u{dtype.itemsize}')[0]):0{2 * dtype.itemsize}x}"
        if zarr_format == 3:
            return digits
        raise UnsupportedError(
            f"fill_value is a NaN with the bits {digits}; Zarr v{zarr_format} can say the plain NaN only"
        )


class ComplexFill:
    """Complex numbers: [real, imaginary], each as a float; in Zarr v2, also the raw bytes in Base64."""

    def __init__(self, part: FillRule | None = None, dtype: np.dtype[Any] | None = None) -> None:
        self._part: FillRule = FloatFill() if part is None else part
        self._part_dtype = dtype

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if zarr_format == 2 and isinstance(value, str):
            return self._parse_base64(value, dtype, order)
        if not isinstance(value, list) or len(value) != 2:
            raise refuse(value, dtype, "a list of two numbers, [real, imaginary]")
        part = self._part_dtype or np.dtype(f"f{dtype.itemsize // 2}")
        raw = b"".join(self._part.parse(item, part, zarr_format, order).tobytes() for item in value)
        return np.frombuffer(raw, dtype)[0]

    def _parse_base64(self, text: str, dtype: np.dtype[Any], order: Order) -> Any:
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise refuse(text, dtype, "[real, imaginary] or Base64") from None
        if len(raw) != dtype.itemsize:
            raise refuse(text, dtype, f"{dtype.itemsize} bytes in Base64")
        return np.frombuffer(raw, stored_dtype(dtype, order or "little")).astype(dtype)[0]

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        part = self._part_dtype or np.dtype(f"f{dtype.itemsize // 2}")
        return [
            self._part.render(item, part, zarr_format, order) for item in np.frombuffer(value.tobytes(), part)
        ]

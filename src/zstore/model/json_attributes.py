"""Attributes of other formats as JSON: numpy items, bytes, numbers that JSON does not have, `_FillValue`.

Spec
    xarray, "Zarr Encoding Specification": in Zarr v3 an attribute `_FillValue` holds floats as the base64 of
    their little-endian float64.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError

BASE64_SIZE = 12  # of eight bytes


class AttributeWarning(UserWarning):
    """An attribute is written in another form than it had, because JSON cannot hold it."""


def render_attributes(attributes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The attributes as JSON values; NaN and infinities become the strings of Zarr's fill values.

    Raises
        MetadataError: bytes that are no UTF-8.
    Warns
        AttributeWarning: a number became a string.
    """
    return {str(name): _render(value, f"{where}: attribute {name!r}") for name, value in attributes.items()}


def _render(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise MetadataError(f"{where} is {value!r}; expected text in UTF-8") from None
    if isinstance(value, Mapping):
        return {str(name): _render(item, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_render(item, where) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        warnings.warn(AttributeWarning(f"{where} is {value}; written as the string {word!r}"), stacklevel=2)
        return word
    return value


def parse_fill(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """The value of the attribute `_FillValue` of a Zarr v3 array.

    In the form that xarray writes, and as a plain number or "NaN", which other writers leave.

    Raises
        MetadataError: it is no value of the dtype.
    """
    try:
        if dtype.kind == "f":
            return _parse_float(value)
        if dtype.kind == "c":
            return complex(_parse_float(value[0]), _parse_float(value[1]))
        if dtype.kind == "b":
            return bool(value)
        if dtype.kind in "iu" and not isinstance(value, str):
            return int(value)
        if dtype.kind in "UT" and isinstance(value, str):
            return value
        if dtype.kind in "SO" and isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, IndexError, binascii.Error, struct.error) as error:
        raise MetadataError(f"_FillValue is {value!r}; expected a {dtype}: {error}", path=where) from None
    raise MetadataError(f"_FillValue is {value!r}; expected a {dtype}", path=where)


def _parse_float(value: Any) -> float:
    if isinstance(value, str) and len(value) == BASE64_SIZE:
        return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    return float(value)


def render_fill(value: Any, dtype: np.dtype[Any], name: str) -> Any:
    """The inverse of `parse_fill`, as xarray writes it.

    Raises
        MetadataError: it is no value of the dtype, or xarray has no word for the dtype's.
    """
    try:
        if dtype.kind == "f":
            return _render_float(value)
        if dtype.kind == "c":
            return [_render_float(value.real), _render_float(value.imag)]
        if dtype.kind == "b":
            return bool(value)
        if dtype.kind in "iu":
            return int(value)
        if dtype.kind in "UT" and isinstance(value, str):
            return str(value)
        if dtype.kind in "SO" and isinstance(value, bytes):
            return base64.standard_b64encode(value).decode("ascii")
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"_FillValue of {name!r} is {value!r}; expected a {dtype}: {error}") from None
    raise MetadataError(f"_FillValue of {name!r} is {value!r}; expected a {dtype}")


def _render_float(value: Any) -> str:
    return base64.standard_b64encode(struct.pack("<d", float(value))).decode("ascii")

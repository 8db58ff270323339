"""Data types whose items are Python objects: strings and bytes of any length, and Zarr v2's "|O".

Spec
    zarr-extensions, data types "string" and "bytes" ("variable_length_bytes" is zarr-python's name for the
    latter); Zarr v2, "|O" with an object codec among the filters.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.model.dtype import DataType, Order, parse_bytes, refuse, refuse_configuration


class StringFill:
    """Strings: a JSON string; in Zarr v2 also an integer, which all readers take as its digits."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> str:
        if zarr_format == 2 and type(value) is int:
            return str(value)
        if not isinstance(value, str):
            raise refuse(value, "string", "a string")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise refuse(value, "string", "a string that UTF-8 can hold") from None
        return str(value)

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> str:
        return str(value)


class VariableBytesFill:
    """Bytes: Base64, or (v3) a list of integers; in Zarr v2, also 0 for no bytes."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> bytes:
        if zarr_format == 2 and value == 0 and not isinstance(value, bool):
            return b""
        return parse_bytes(value, "bytes")

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> str:
        return base64.b64encode(value).decode()


class ObjectFill:
    """Objects: any JSON value, unchanged."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return value

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return value


def _string_dtype() -> np.dtype[Any]:
    """The dtype of strings of any length: numpy 2's StringDType, objects with numpy 1."""
    made = getattr(np.dtypes, "StringDType", None)
    return np.dtype("O") if made is None else made()


STRING = DataType("string", {}, _string_dtype(), StringFill(), is_object=True, default="")
BYTES = DataType("bytes", {}, np.dtype("O"), VariableBytesFill(), is_object=True, default=b"")
OBJECT = DataType("object", {}, np.dtype("O"), ObjectFill(), is_object=True, formats=(2,))


class String:
    """Strings: numpy's StringDType, or objects with numpy 1."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        refuse_configuration(name, configuration)
        return STRING

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        if dtype.kind != "T":
            return None
        if hasattr(dtype, "na_object"):
            raise MetadataError(f"dtype {dtype!r} has a value for missing strings, which Zarr has not")
        return STRING


class VariableBytes:
    """Bytes of any length: objects of type `bytes`."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        refuse_configuration(name, configuration)
        return BYTES if name == BYTES.name else replace(BYTES, written=name)

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        return None  # an object dtype does not say what its items are


class Object:
    """Any objects that one of Zarr v2's object codecs decodes: lists, dicts, arrays, numbers."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        refuse_configuration(name, configuration)
        return OBJECT

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        return None

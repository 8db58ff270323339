"""The `dtype` members of Zarr v2, typestrs and lists of fields, to numpy dtypes and back.

Spec
    Zarr v2, "Data type encoding".
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError

# Zarr v2's object codecs, and the data types of their items.
OBJECT_CODECS = {
    "vlen-utf8": "string",
    "vlen-bytes": "bytes",
    "vlen-array": "object",
    "json2": "object",
    "msgpack2": "object",
    "pickle": "object",
    "categorize": "object",
}
EXPECTED = "expected a typestr such as '<f8', '>i4' or '|u1', or a list of fields"
TYPESTR = re.compile(r"[<>|]([biufcSUV])([0-9]{1,10})|[<>|]([mM])8(\[([1-9][0-9]{0,9})?[a-zA-Z]{1,2}\])?")
DEPTH_LIMIT = 32


def parse_typestr(value: Any) -> np.dtype[Any]:
    """Parse a `dtype` member to a dtype in its stored byte order.

    Raises
        MetadataError: malformed, or a typestr that lacks a byte order.
        UnsupportedError: a dtype that numpy does not have here, objects within fields, or items of no bytes.
    """
    if isinstance(value, list):
        return _parse_fields(value, 0)
    return _parse_plain(value)


def _parse_plain(value: Any) -> np.dtype[Any]:
    if not isinstance(value, str) or value[:1] not in ("<", ">", "|") or len(value) < 2:
        raise MetadataError(f"dtype is {value!r}; {EXPECTED}")
    if not TYPESTR.fullmatch(value):
        raise UnsupportedError(f"dtype {value!r} is not supported; {EXPECTED}")
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedError(f"dtype {value!r} is not supported: {error}") from None
    if not dtype.itemsize:
        raise UnsupportedError(f"dtype {value!r} is not supported; expected items of at least one byte")
    if value[0] == "|" and dtype.itemsize > 1 and dtype.kind not in "SV":
        raise MetadataError(f"dtype {value!r} has no byte order; expected '<' or '>' before {value[1:]!r}")
    return dtype


def _parse_fields(value: list[Any], depth: int) -> np.dtype[Any]:
    if depth == DEPTH_LIMIT:
        raise MetadataError(f"dtype has fields nested more than {DEPTH_LIMIT} deep")
    if not value:
        raise MetadataError(f"dtype is {value!r}; expected at least one field")
    fields = [_parse_field(item, depth) for item in value]
    try:
        return np.dtype(fields)
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"dtype is {value!r}: {error}") from None


def _parse_field(value: Any, depth: int) -> Any:
    if not isinstance(value, list) or len(value) not in (2, 3) or not isinstance(value[0], str):
        raise MetadataError(f"dtype has the field {value!r}; expected [name, dtype] or [name, dtype, shape]")
    if value[1] == "|O":
        raise UnsupportedError(f"dtype has the field {value!r}; objects within fields are not supported")
    dtype = _parse_fields(value[1], depth + 1) if isinstance(value[1], list) else _parse_plain(value[1])
    if len(value) == 2:
        return value[0], dtype
    shape = value[2] if isinstance(value[2], list) else [value[2]]
    if not all(type(length) is int and 0 < length < 1 << 31 for length in shape):
        raise MetadataError(f"dtype has the field {value!r}; expected a shape of integers of at least 1")
    return (value[0], dtype, tuple(shape)) if shape else (value[0], dtype)


def render_typestr(dtype: np.dtype[Any]) -> Any:
    """Render a dtype in its stored byte order as a `dtype` member: the inverse of `parse_typestr`."""
    if dtype.names is None:
        return dtype.str
    assert dtype.fields is not None
    fields: list[Any] = []
    for name in dtype.names:
        inner = dtype.fields[name][0]
        if inner.subdtype is None:
            fields.append([name, render_typestr(inner)])
        else:
            base, shape = inner.subdtype
            fields.append([name, render_typestr(base), list(shape)])
    return fields

"""Items, data types and numbers in JSON documents of views."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.views.steps import Items

# Items in memory of more bytes are to be stored as an array, and not in a document.
ITEMS_SIZE = 64 << 10

Json = dict[str, Any]


def render_dtype(dtype: np.dtype[Any]) -> Any:
    """A data type as its text.

    Raises
        UnsupportedError: its items are objects or have fields.
    """
    if dtype.hasobject or dtype.kind not in "biufcmMSUV" or dtype.names or dtype.subdtype:
        raise UnsupportedError(
            f"a view of {dtype} has no document; expected numbers, times, or strings of one length"
        )
    return dtype.str


def render_items(items: Items, most: float = ITEMS_SIZE) -> Json:
    """Items as an object of their data type, shape and bytes.

    Raises
        UnsupportedError: they have more than `most` bytes, or such a data type.
    """
    dtype = render_dtype(items.dtype)
    if items.nbytes > most:
        raise UnsupportedError(
            f"a view of {items.nbytes:,} bytes in memory has no document; expected {most:,} at most, "
            "or a stored array"
        )
    text = base64.standard_b64encode(np.ascontiguousarray(items).tobytes()).decode()
    return {"dtype": dtype, "shape": list(items.shape), "base64": text}


def parse_number(value: Any, count: int) -> int:
    """A number from 0 to before `count`."""
    if type(value) is not int or not 0 <= value < count:
        raise MetadataError(f"{value!r} is no number from 0 to before {count}")
    return value


def parse_lengths(value: Any) -> tuple[int, ...]:
    """Lengths, or positions, of axes."""
    return tuple(parse_number(length, 1 << 63) for length in value)


def parse_dtype(value: Any) -> np.dtype[Any]:
    """The inverse of `render_dtype`."""
    if not isinstance(value, str):
        raise MetadataError(f"dtype is {value!r}; expected a string, as '<f4'")
    dtype = np.dtype(value)
    if dtype.str != value:
        raise MetadataError(f"dtype is {value!r}; expected {dtype.str!r}")
    render_dtype(dtype)
    return dtype


def parse_items(member: Json) -> Items:
    """The inverse of `render_items`."""
    data = base64.b64decode(member["base64"], validate=True)
    return np.frombuffer(data, parse_dtype(member["dtype"])).reshape(parse_lengths(member["shape"])).copy()

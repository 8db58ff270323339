"""The byte order of stored items, or of each field of structured ones.

An order is "little", "big", None if no part has more than one byte, or, in Zarr v2, a list of orders, one for
each field.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

# type of the order -> the codec that has it: one order for all, none, or one for each field.
ORDER_CODECS = {str: "bytes", type(None): "bytes", list: "zstore.bytes_by_field"}
Order = Any  # str | None | list[Order]; what a `bytes` codec's configuration holds


def unit_size(dtype: np.dtype[Any]) -> int:
    """The number of bytes that a byte order applies to: an item, a part of a complex one, or a character."""
    if dtype.kind == "U":
        return 4
    if dtype.kind == "S" or dtype.type is np.void:
        return 1
    # "W" is the kind of ml_dtypes' complex items.
    return dtype.itemsize // 2 if dtype.kind in "cW" else dtype.itemsize


def order_of(dtype: np.dtype[Any]) -> Order:
    """The byte order of a numpy dtype."""
    if dtype.subdtype is not None:
        return order_of(dtype.subdtype[0])
    if dtype.names is None:
        if unit_size(dtype) < 2:
            return None
        return {"<": "little", ">": "big"}.get(dtype.byteorder, sys.byteorder)
    assert dtype.fields is not None
    orders = [order_of(dtype.fields[name][0]) for name in dtype.names]
    known = [order for order in orders if order is not None]
    if not known:
        return None
    return known[0] if isinstance(known[0], str) and all(order == known[0] for order in known) else orders


def stored_dtype(dtype: np.dtype[Any], order: Order) -> np.dtype[Any]:
    """The dtype of the same items in that byte order."""
    if order is None:
        return dtype
    if isinstance(order, str):
        return dtype.newbyteorder("<" if order == "little" else ">")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((stored_dtype(base, order), shape))
    assert dtype.names is not None and dtype.fields is not None, "an order per field, but no fields"
    fields = [
        stored_dtype(dtype.fields[name][0], part) for name, part in zip(dtype.names, order, strict=True)
    ]
    offsets = [dtype.fields[name][1] for name in dtype.names]
    return np.dtype(
        {"names": list(dtype.names), "formats": fields, "offsets": offsets, "itemsize": dtype.itemsize}
    )


def is_same_type(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether two dtypes are the same except for their byte order."""
    if one == other:
        return True
    # Strings of any length have no byte order.
    return "T" not in (one.kind, other.kind) and one.newbyteorder("=") == other.newbyteorder("=")


def split_swaps(dtype: np.dtype[Any], order: Order) -> list[tuple[int, int, int]]:
    """(offset, unit, count) of the parts of an item whose byte order differs from that of `dtype`.

    Neighbouring parts with the same unit are joined; empty if all bytes are in the same order.
    """
    found: list[tuple[int, int, int]] = []
    for offset, unit, count in _swaps(dtype, order, 0):
        if found and found[-1][1] == unit and found[-1][0] + found[-1][2] * unit == offset:
            offset, _, before = found.pop()
            count += before
        found.append((offset, unit, count))
    return found


def _swaps(dtype: np.dtype[Any], order: Order, offset: int) -> list[tuple[int, int, int]]:
    if order is None:
        return []
    if dtype.subdtype is not None:
        base, size = dtype.subdtype[0], dtype.itemsize
        if base.names is None:
            unit = unit_size(base)
            return [(offset, unit, size // unit)] if order_of(base) not in (None, order) else []
        return [
            part for at in range(offset, offset + size, base.itemsize) for part in _swaps(base, order, at)
        ]
    if dtype.names is None:
        unit = unit_size(dtype)
        return [(offset, unit, dtype.itemsize // unit)] if order_of(dtype) not in (None, order) else []
    assert dtype.fields is not None
    orders = [order] * len(dtype.names) if isinstance(order, str) else order
    return [
        part
        for name, inner in zip(dtype.names, orders, strict=True)
        for part in _swaps(dtype.fields[name][0], inner, offset + dtype.fields[name][1])
    ]

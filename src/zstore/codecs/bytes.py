"""The bytes of a chunk's items, in C order and a given byte order.

Spec     Zarr v3 codec "bytes" 1.0; Zarr v2, the byte order of `dtype`
v3 name  bytes
v2 id    none (follows from the dtype)
Example  {"name": "bytes", "configuration": {"endian": "little"}}

In Zarr v2 each field of a structured item can have a byte order of its own. In the model of such an array the
codec is "zstore.bytes_by_field", a name that is in no document.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import UNBOUND, ChunkSpec, Option, Serializer, choice
from zstore.model.dtype import Order, order_of, split_swaps, unit_size


@dataclass(frozen=True)
class Bytes(Serializer):
    """The serializer of plain items; `endian` is "little", "big", or None for items of one byte.

    swaps  (offset, unit, count) of the parts of an item whose bytes are stored in reverse order
    """

    name: ClassVar[str] = "bytes"
    options: ClassVar[tuple[Option, ...]] = (choice("endian", ("little", "big"), None, may_be_null=True),)

    endian: Order = "little"
    spec: ChunkSpec = UNBOUND
    swaps: tuple[tuple[int, int, int], ...] = ()

    def bind(self, spec: ChunkSpec) -> Self:
        order = self.endian
        if spec.dtype.hasobject or spec.dtype.kind == "T":
            raise self.refuse(f"cannot hold items of type {spec.dtype}")
        if order is None and spec.dtype.names is not None:
            order = "little"  # what older structured arrays mean, which leave it out
        if order is None and unit_size(spec.dtype) > 1:
            raise self.refuse(f"lacks 'endian', which {spec.dtype} needs")
        if isinstance(order, str) and order_of(spec.dtype) is None:
            order = None
        return type(self)(order, spec, tuple(split_swaps(spec.dtype, order)))

    @property
    def swap_unit(self) -> int | None:
        """The unit whose bytes are reversed throughout every item, 0 for none; None if only parts are."""
        if not self.swaps:
            return 0
        _, unit, count = self.swaps[0]
        return unit if unit in (2, 4, 8) and unit * count == self.spec.dtype.itemsize else None

    def swap_capsule(self) -> Any:
        """A capsule of the native codec that reverses parts of items; None if there are too many parts."""
        from zstore._ext.codecs import native

        if len(self.swaps) > native.PART_LIMIT:
            return None
        return native.swap_parts(self.spec.dtype.itemsize, self.swaps)

    def encoded_size(self, spec: ChunkSpec) -> int:
        return prod(spec.shape) * spec.dtype.itemsize

    def encode(self, chunk: np.ndarray[Any, Any]) -> memoryview:
        flat: Any = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
        return memoryview(_swap(flat, chunk.dtype.itemsize, self.swaps) if self.swaps else flat)

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        expected = self.encoded_size(self.spec)
        if len(data) != expected:
            raise self.fail(f"chunk has {len(data)} bytes, expected {expected}")
        flat: Any = np.frombuffer(data, np.uint8)
        if self.swaps:
            flat = _swap(flat, self.spec.dtype.itemsize, self.swaps)
        items: np.ndarray[Any, Any] = flat.view(self.spec.dtype).reshape(self.spec.shape)
        return items


def _parse_orders(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(value)
    return [part if part in ("little", "big", None) else _parse_orders(part) for part in value]


@dataclass(frozen=True)
class BytesByField(Bytes):
    """The serializer of items whose fields differ in byte order: `endian` is a list, nested as they are."""

    name: ClassVar[str] = "zstore.bytes_by_field"
    options: ClassVar[tuple[Option, ...]] = (Option("endian", "an order for each field", _parse_orders),)

    def bind(self, spec: ChunkSpec) -> Self:
        if not _fits(self.endian, spec.dtype):
            raise self.refuse(f"has the orders {self.endian!r}, which do not fit {spec.dtype}")
        return super().bind(spec)


def _fits(order: Order, dtype: np.dtype[Any]) -> bool:
    """Whether the orders fit the fields of the dtype, nested ones included."""
    if dtype.subdtype is not None:
        dtype = dtype.subdtype[0]
    if not isinstance(order, list):
        return order is not None or unit_size(dtype) == 1
    if dtype.names is None or len(dtype.names) != len(order):
        return False
    assert dtype.fields is not None
    return all(_fits(part, dtype.fields[name][0]) for name, part in zip(dtype.names, order, strict=True))


def _swap(flat: Any, item_size: int, swaps: tuple[tuple[int, int, int], ...]) -> Any:
    """Copy items' bytes, reversing the bytes of these parts."""
    items = flat.reshape(-1, item_size).copy()
    for offset, unit, count in swaps:
        part = items[:, offset : offset + unit * count]
        if unit <= 8:
            part.view(f"u{unit}").byteswap(inplace=True)
        else:
            halves = part.reshape(-1, count, unit)
            part[...] = halves[:, :, ::-1].reshape(part.shape)
    return items.reshape(-1)

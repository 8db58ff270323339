"""Bit packing: stores each item in as few bits as it needs (bool in 1, int4 in 4), or a chosen range of bits.

Spec     zarr-extensions codec "packbits"
v3 name  packbits
v2 id    none (numcodecs' packbits fills bytes from the other end; see `zstore.codecs.numcodecs`)
Example  {"name": "packbits", "configuration": {"padding_encoding": "first_byte"}}

Bits that `first_bit` and `last_bit` leave out are not stored; they decode to zero, or above the range to
copies of the sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import UNBOUND, ChunkSpec, Option, Serializer, integer, refuse_option
from zstore.model.dtype import unit_size

# dtypes that use fewer bits than their bytes have.
BIT_COUNTS = {
    "bool": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}  # fmt: skip
SIGNED = {"int2", "int4"}


def _parse_padding(value: Any) -> str | None:
    if value not in ("none", "first_byte", "last_byte"):
        raise ValueError(value)
    return None if value == "none" else str(value)


@dataclass(frozen=True)
class Packbits(Serializer):
    """The serializer of bits `first_bit` to `last_bit` of every item (of complex ones, of each part)."""

    name: ClassVar[str] = "packbits"
    options: ClassVar[tuple[Option, ...]] = (
        Option("padding_encoding", "'none', 'first_byte' or 'last_byte'", _parse_padding, None),
        integer("first_bit", 0, 127, None, may_be_null=True),
        integer("last_bit", 0, 127, None, may_be_null=True),
    )

    padding_encoding: str | None = None
    first_bit: int | None = None
    last_bit: int | None = None
    spec: ChunkSpec = UNBOUND

    def __post_init__(self) -> None:
        if self.last_bit is not None and self.last_bit < (self.first_bit or 0):
            expected = f"at least first_bit {self.first_bit or 0}"
            raise refuse_option(self.name, "last_bit", self.last_bit, expected)

    def bind(self, spec: ChunkSpec) -> Self:
        dtype = spec.dtype
        is_named = dtype.name in BIT_COUNTS or dtype.name == "bfloat16"
        if dtype.kind not in "biufcmM" and not (is_named or dtype.name.startswith("float8_")):
            raise self.refuse(f"cannot hold items of type {dtype}")
        bit_count = _part_bits(dtype)
        last = bit_count - 1 if self.last_bit is None else self.last_bit
        if not (self.first_bit or 0) <= last < bit_count:
            raise self.refuse(f"takes bits {self.first_bit or 0} to {last}, {dtype} has {bit_count}")
        return type(self)(self.padding_encoding, self.first_bit, self.last_bit, spec)

    def _bits(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """The first stored bit of an item, and the number of stored bits."""
        first = self.first_bit or 0
        last = _part_bits(dtype) - 1 if self.last_bit is None else self.last_bit
        return first, last - first + 1

    def _sizes(self, spec: ChunkSpec) -> tuple[int, int]:
        """The number of bytes for the bits of all items, and of padding bits in the last byte."""
        bits = prod(spec.shape) * (2 if spec.dtype.kind == "c" else 1) * self._bits(spec.dtype)[1]
        return -(-bits // 8), -bits % 8

    def encoded_size(self, spec: ChunkSpec) -> int:
        return self._sizes(spec)[0] + (self.padding_encoding is not None)

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        first, count = self._bits(chunk.dtype)
        part_size = unit_size(chunk.dtype)
        items = np.ascontiguousarray(chunk).reshape(-1)
        if count == 8 * part_size:
            packed = _little(items, part_size).tobytes()
        else:
            parts = _little(items, part_size).view(np.uint8).reshape(-1, part_size)
            bits = np.unpackbits(parts, axis=1, bitorder="little")[:, first : first + count]
            packed = np.packbits(bits, bitorder="little").tobytes()
        padding = bytes([self._sizes(self.spec)[1]])
        if not self.padding_encoding:
            return packed
        return padding + packed if self.padding_encoding == "first_byte" else packed + padding

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        expected = self.encoded_size(self.spec)
        if len(data) != expected:
            raise self.fail(f"chunk has {len(data)} bytes, expected {expected}")
        size, padding = self._sizes(self.spec)
        start = 0
        if self.padding_encoding:
            start = int(self.padding_encoding == "first_byte")
            said = data[0] if start else data[-1]
            if said != padding:
                raise self.fail(f"chunk says {said} bits of padding, expected {padding}")
        return self._unpack(np.frombuffer(data[start : start + size], np.uint8))

    def _unpack(self, packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        dtype = self.spec.dtype
        first, count = self._bits(dtype)
        part_size = unit_size(dtype)
        part_count = prod(self.spec.shape) * (2 if dtype.kind == "c" else 1)
        if count == 8 * part_size:
            parts = packed.copy()
        else:
            bits = np.unpackbits(packed, count=part_count * count, bitorder="little").reshape(-1, count)
            whole = np.zeros((part_count, 8 * part_size), np.uint8)
            whole[:, first : first + count] = bits
            if (dtype.kind in "imM" or dtype.name in SIGNED) and first + count < _part_bits(dtype):
                whole[:, first + count : _part_bits(dtype)] = bits[:, -1:]
            parts = np.packbits(whole, axis=1, bitorder="little").reshape(-1)
        word = np.dtype(f"<u{part_size}")
        return (
            parts.view(word).astype(word.newbyteorder("="), copy=False).view(dtype).reshape(self.spec.shape)
        )


def _part_bits(dtype: np.dtype[Any]) -> int:
    return BIT_COUNTS.get(dtype.name, 8 * unit_size(dtype))


def _little(items: np.ndarray[Any, Any], part_size: int) -> np.ndarray[Any, Any]:
    return items.view(f"u{part_size}").astype(f"<u{part_size}", copy=False)

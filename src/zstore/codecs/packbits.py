"""Lay items out as bits, as many as each needs: flags in one bit, int4 in four, or a chosen range of bits.

Spec     zarr-extensions codec "packbits"
v3 name  packbits
v2 id    none (numcodecs' packbits fills bytes from the other end; see `zstore.codecs.numcodecs`)
Example  {"name": "packbits", "configuration": {"padding_encoding": "first_byte"}}

Bits that `first_bit` and `last_bit` leave out are not stored; they decode to zero, or above the range to
copies of the sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ChunkSpec, Serializer
from zstore.codecs.native import Options
from zstore.errors import CodecError, MetadataError

__all__ = ["Packbits"]

# Types of fewer bits than their bytes have.
BIT_COUNTS = {
    "bool": 1,
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
SIGNED = {"int2", "int4"}


@dataclass(frozen=True)
class Packbits(Serializer):
    """`padding` is "none", "first_byte" or "last_byte"; the bits are those of one part of an item."""

    name: ClassVar[str] = "packbits"

    padding: str = "none"
    first_bit: int | None = None
    last_bit: int | None = None
    spec: ChunkSpec | None = None

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        options = Options(cls.name, configuration)
        padding = options.choice("padding_encoding", ("none", "first_byte", "last_byte"), "none")
        first, last = (
            None if configuration.get(option) is None else options.integer(option, 0, 127)
            for option in ("first_bit", "last_bit")
        )
        for option in ("first_bit", "last_bit"):
            options.take(option, None)
        options.end()
        if last is not None and last < (first or 0):
            raise MetadataError(
                f"codec 'packbits' has last_bit {last}, expected at least first_bit {first or 0}",
                codec=cls.name,
            )
        return cls(padding, first, last)

    def to_configuration(self) -> dict[str, Any]:
        options = {
            "padding_encoding": None if self.padding == "none" else self.padding,
            "first_bit": self.first_bit,
            "last_bit": self.last_bit,
        }
        return {option: value for option, value in options.items() if value is not None}

    def bind(self, spec: ChunkSpec) -> Self:
        dtype = spec.dtype
        is_named = dtype.name in BIT_COUNTS or dtype.name == "bfloat16"
        if dtype.kind not in "biufcmM" and not (is_named or dtype.name.startswith("float8_")):
            raise MetadataError(f"codec 'packbits' cannot hold items of type {dtype}", codec=self.name)
        bit_count = _part_bits(dtype)
        last = bit_count - 1 if self.last_bit is None else self.last_bit
        if not (self.first_bit or 0) <= last < bit_count:
            raise MetadataError(
                f"codec 'packbits' takes bits {self.first_bit or 0} to {last}, {dtype} has {bit_count}",
                codec=self.name,
            )
        return type(self)(self.padding, self.first_bit, self.last_bit, spec)

    def _bits(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """The first bit and how many."""
        first = self.first_bit or 0
        last = _part_bits(dtype) - 1 if self.last_bit is None else self.last_bit
        return first, last - first + 1

    def _sizes(self, spec: ChunkSpec) -> tuple[int, int]:
        """Bytes of the bits of all items, and the bits that pad the last of them."""
        bits = prod(spec.shape) * (2 if spec.dtype.kind == "c" else 1) * self._bits(spec.dtype)[1]
        return -(-bits // 8), -bits % 8

    def encoded_size(self, spec: ChunkSpec) -> int:
        return self._sizes(spec)[0] + (self.padding != "none")

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        assert self.spec is not None, "bound before use"
        first, count = self._bits(chunk.dtype)
        part_size = _part_size(chunk.dtype)
        items = np.ascontiguousarray(chunk).reshape(-1)
        if count == 8 * part_size:
            packed = _little(items, part_size).tobytes()
        else:
            parts = _little(items, part_size).view(np.uint8).reshape(-1, part_size)
            bits = np.unpackbits(parts, axis=1, bitorder="little")[:, first : first + count]
            packed = np.packbits(bits, bitorder="little").tobytes()
        padding = bytes([self._sizes(self.spec)[1]])
        if self.padding == "none":
            return packed
        return padding + packed if self.padding == "first_byte" else packed + padding

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        assert self.spec is not None, "bound before use"
        expected = self.encoded_size(self.spec)
        if len(data) != expected:
            raise CodecError(
                f"codec 'packbits' failed: chunk has {len(data)} bytes, expected {expected}", codec=self.name
            )
        size, padding = self._sizes(self.spec)
        start = 0
        if self.padding != "none":
            start = int(self.padding == "first_byte")
            said = data[0] if start else data[-1]
            if said != padding:
                raise CodecError(
                    f"codec 'packbits' failed: chunk says {said} bits of padding, expected {padding}",
                    codec=self.name,
                )
        return self._unpack(np.frombuffer(data[start : start + size], np.uint8))

    def _unpack(self, packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert self.spec is not None, "bound before use"
        dtype = self.spec.dtype
        first, count = self._bits(dtype)
        part_size = _part_size(dtype)
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


def _part_size(dtype: np.dtype[Any]) -> int:
    """Bytes of an item, or of one part of a complex item."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def _part_bits(dtype: np.dtype[Any]) -> int:
    return BIT_COUNTS.get(dtype.name, 8 * _part_size(dtype))


def _little(items: np.ndarray[Any, Any], part_size: int) -> np.ndarray[Any, Any]:
    return items.view(f"u{part_size}").astype(f"<u{part_size}", copy=False)

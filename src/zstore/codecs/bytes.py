"""Lay the items of a chunk out as bytes, in C order and a given byte order.

Spec     Zarr v3 codec "bytes" 1.0; Zarr v2, the byte order of `dtype`
v3 name  bytes
v2 id    none (follows from the dtype)
Example  {"name": "bytes", "configuration": {"endian": "little"}}
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ChunkSpec, Serializer
from zstore.errors import CodecError, MetadataError

__all__ = ["Bytes"]


def unit_size(dtype: np.dtype[Any]) -> int:
    """The bytes whose order counts: an item, or one part of a complex item, or one character."""
    if dtype.kind == "c":
        return dtype.itemsize // 2
    if dtype.kind == "U":
        return 4
    return 1 if dtype.kind in "SV" else dtype.itemsize


@dataclass(frozen=True)
class Bytes(Serializer):
    """`endian` is "little", "big", or None for items of one byte."""

    name: ClassVar[str] = "bytes"

    endian: str | None = "little"
    spec: ChunkSpec | None = None

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        unknown = set(configuration) - {"endian"}
        if unknown:
            raise MetadataError(f"codec 'bytes' has unknown options {sorted(unknown)}", codec="bytes")
        endian = configuration.get("endian")
        if endian not in ("little", "big", None):
            raise MetadataError(
                f"codec 'bytes': endian {endian!r}, expected 'little' or 'big'", codec="bytes"
            )
        return cls(endian)

    def to_configuration(self) -> dict[str, Any]:
        return {} if self.endian is None else {"endian": self.endian}

    def bind(self, spec: ChunkSpec) -> Self:
        if self.endian is None and unit_size(spec.dtype) > 1:
            raise MetadataError(f"codec 'bytes' lacks 'endian', which {spec.dtype} needs", codec="bytes")
        if spec.dtype.hasobject:
            raise MetadataError(f"codec 'bytes' cannot hold items of type {spec.dtype}", codec="bytes")
        return type(self)(self.endian, spec)

    @property
    def is_native(self) -> bool:
        """Whether the stored byte order is this machine's."""
        return self.endian in (None, sys.byteorder)

    def encoded_size(self, spec: ChunkSpec) -> int:
        return int(np.prod(spec.shape, dtype=object)) * spec.dtype.itemsize

    def encode(self, chunk: np.ndarray[Any, Any]) -> memoryview:
        stored = chunk if self.is_native else chunk.astype(chunk.dtype.newbyteorder())
        flat: Any = np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
        return memoryview(flat)

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        assert self.spec is not None, "bound before use"
        expected = self.encoded_size(self.spec)
        if len(data) != expected:
            raise CodecError(
                f"codec 'bytes' failed: chunk has {len(data)} bytes, expected {expected}", codec="bytes"
            )
        dtype = self.spec.dtype if self.is_native else self.spec.dtype.newbyteorder()
        chunk = np.frombuffer(data, dtype).reshape(self.spec.shape)
        return chunk if self.is_native else chunk.astype(self.spec.dtype)

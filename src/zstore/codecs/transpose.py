"""Permute the dimensions of a chunk.

Spec     Zarr v3 codec "transpose" 1.0; Zarr v2 `order: "F"` (which is the reversing permutation)
v3 name  transpose
v2 id    none (follows from `order`)
Example  {"name": "transpose", "configuration": {"order": [1, 0]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ArrayCodec, ChunkSpec
from zstore.errors import MetadataError

__all__ = ["Transpose"]


@dataclass(frozen=True)
class Transpose(ArrayCodec):
    """Dimension i of the encoded chunk is dimension `order[i]` of the chunk."""

    name: ClassVar[str] = "transpose"

    order: tuple[int, ...]

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        order = configuration.get("order")
        if (
            set(configuration) != {"order"}
            or not isinstance(order, list | tuple)
            or not all(type(axis) is int for axis in order)
            or sorted(order) != list(range(len(order)))
        ):
            raise MetadataError(
                f"codec 'transpose' has configuration {dict(configuration)!r}, "
                "expected {'order': a permutation of the dimensions}",
                codec="transpose",
            )
        return cls(tuple(order))

    def to_configuration(self) -> dict[str, Any]:
        return {"order": list(self.order)}

    def bind(self, spec: ChunkSpec) -> Self:
        if len(self.order) != len(spec.shape):
            raise MetadataError(
                f"codec 'transpose' orders {len(self.order)} dimensions, the chunk has {len(spec.shape)}",
                codec="transpose",
            )
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return spec._replace(shape=tuple(spec.shape[i] for i in self.order))

    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return chunk.transpose(self.order)

    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return chunk.transpose(np.argsort(self.order))

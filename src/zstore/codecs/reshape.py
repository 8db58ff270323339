"""Reshaping: gives a chunk another shape, its items in the same C order, e.g. 2-d for an image codec.

Spec     zarr-extensions codec "reshape"
v3 name  reshape
v2 id    none
Example  {"name": "reshape", "configuration": {"shape": [[0, 1], [2], 3]}}

Each entry of `shape` is a length, a list of dimensions of the chunk to merge into one, or -1 (at most once)
for the remaining items.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import UNBOUND, ArrayCodec, ChunkSpec, Option

Shape = tuple[int | tuple[int, ...], ...]


def _parse_shape(value: Any) -> Shape:
    entries = tuple(tuple(entry) if isinstance(entry, list | tuple) else entry for entry in value)
    for entry in entries:
        lengths, low = (entry, 0) if isinstance(entry, tuple) else ((entry,), 1)
        if not all(type(n) is int and (n >= low or entry == -1) for n in lengths):
            raise ValueError(value)
    dimensions = [d for entry in entries if isinstance(entry, tuple) for d in entry]
    if entries.count(-1) > 1 or any(a >= b for a, b in pairwise(dimensions)):
        raise ValueError(value)
    return entries


def _render_shape(shape: Shape) -> list[Any]:
    return [list(entry) if isinstance(entry, tuple) else entry for entry in shape]


@dataclass(frozen=True)
class Reshape(ArrayCodec):
    """The codec: `shape` is as configured; after `bind`, `decoded` and `encoded` are the chunk's shapes."""

    name: ClassVar[str] = "reshape"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "shape",
            "a list of lengths of at least 1, lists of dimensions, each once and in ascending order, and -1"
            " at most once",
            _parse_shape,
            render=_render_shape,
        ),
    )

    shape: Shape
    decoded: tuple[int, ...] = UNBOUND
    encoded: tuple[int, ...] = UNBOUND

    def bind(self, spec: ChunkSpec) -> Self:
        return type(self)(self.shape, spec.shape, self._encoded_shape(spec.shape))

    def _encoded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        configured = _render_shape(self.shape)
        dimensions = [d for entry in self.shape if isinstance(entry, tuple) for d in entry]
        if dimensions and dimensions[-1] >= len(shape):
            raise self.refuse(f"has shape {configured}, the chunk has {len(shape)} dimensions")
        result = [
            prod(shape[d] for d in entry) if isinstance(entry, tuple) else entry for entry in self.shape
        ]
        if -1 in result:
            others = -prod(result)
            result[result.index(-1)] = prod(shape) // others if others else 0
        if prod(result) != prod(shape):
            raise self.refuse(
                f"has shape {configured}, which has {prod(result)} items for a chunk of {shape}"
            )
        for i, entry in enumerate(self.shape):
            if isinstance(entry, tuple) and entry:
                before, after = prod(shape[: entry[0]]), prod(shape[entry[-1] + 1 :])
                if prod(result[:i]) != before or prod(result[i + 1 :]) != after:
                    raise self.refuse(
                        f"has shape {configured}, where dimensions {list(entry)} of a chunk of {shape} do not"
                        f" come to lie in place {i} of {result}"
                    )
        return tuple(result)

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return spec._replace(shape=self._encoded_shape(spec.shape))

    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return chunk.reshape(self.encoded)

    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return chunk.reshape(self.decoded)

"""Sharding: many inner chunks in one stored object (a shard), with an index of where each lies.

Spec     Zarr v3 codec "sharding_indexed" 1.0
v3 name  sharding_indexed
v2 id    none
Example  {"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 32],
          "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
          "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
          "index_location": "end"}}

The engine reads and writes shards inner chunk by inner chunk; the class here encodes and decodes whole
shards, for chains that the engine cannot handle by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.base.once import once
from zstore.codecs.base import UNBOUND, Chain, ChunkSpec, Option, Serializer, choice, codec_list
from zstore.model.array import CodecModel

EMPTY = 2**64 - 1
# As many as an index of 16 bytes each has within 2^63 bytes.
MOST_CHUNKS = 1 << 58
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


@dataclass(frozen=True)
class ShardIndex:
    """A shard's index: `entries` has the shape (count, 2), offset and size of each inner chunk, or EMPTY."""

    entries: np.ndarray[Any, np.dtype[np.uint64]]

    def get(self, slot: int) -> tuple[int, int] | None:
        """(offset, size) of an inner chunk, None if the shard does not have it."""
        offset, size = self.entries[slot].tolist()
        return None if offset == EMPTY and size == EMPTY else (offset, size)


def _parse_shape(value: Any) -> tuple[int, ...]:
    if not all(type(length) is int and length > 0 for length in value):
        raise ValueError(value)
    return tuple(value)


@dataclass(frozen=True)
class ShardingIndexed(Serializer):
    """The serializer of shards; after `bind`, `inner` and `index` are the chains for these two parts."""

    name: ClassVar[str] = "sharding_indexed"
    options: ClassVar[tuple[Option, ...]] = (
        Option("chunk_shape", "positive integers", _parse_shape, render=list),
        codec_list("codecs", usual=[LITTLE]),
        codec_list("index_codecs", usual=[LITTLE, "crc32c"]),
        choice("index_location", ("start", "end"), "end"),
    )

    chunk_shape: tuple[int, ...]
    codecs: tuple[CodecModel, ...]
    index_codecs: tuple[CodecModel, ...]
    index_location: str = "end"
    spec: ChunkSpec = UNBOUND
    inner: Chain = UNBOUND
    index: Chain = UNBOUND

    def bind(self, spec: ChunkSpec) -> Self:
        if len(spec.shape) != len(self.chunk_shape) or any(
            outer % inner for outer, inner in zip(spec.shape, self.chunk_shape, strict=True)
        ):
            raise self.refuse(f"cannot cut shards of shape {spec.shape} into chunks of {self.chunk_shape}")
        counts = tuple(o // i for o, i in zip(spec.shape, self.chunk_shape, strict=True))
        if prod(counts) > MOST_CHUNKS:
            raise self.refuse(f"cannot number the {prod(counts)} chunks of a shard; expected at most 2^58")
        index_spec = ChunkSpec((*counts, 2), np.dtype(np.uint64), np.uint64(EMPTY))
        inner = Chain.bind(self.codecs, spec._replace(shape=self.chunk_shape))
        index = Chain.bind(self.index_codecs, index_spec)
        if index.encoded_size() is None:
            raise self.refuse("has index_codecs that give no fixed size")
        return replace(self, spec=spec, inner=inner, index=index)

    @once
    def counts(self) -> tuple[int, ...]:
        """The number of inner chunks along each dimension."""
        return tuple(o // i for o, i in zip(self.spec.shape, self.chunk_shape, strict=True))

    @once
    def index_size(self) -> int:
        """The number of bytes of the encoded index."""
        size = self.index.encoded_size()
        assert size is not None
        return size

    def decode_index(self, data: bytes | memoryview, shard_size: int) -> ShardIndex:
        """Decode the index of a shard of `shard_size` bytes, and check all of its entries.

        Raises
            CodecError: damaged, or an entry lies outside the shard or overlaps the index.
        """
        entries = np.ascontiguousarray(self.index.decode(data)).reshape(-1, 2)
        low = self.index_size if self.index_location == "start" else 0
        high = shard_size - (self.index_size - low)
        offsets, sizes = entries[:, 0], entries[:, 1]
        present = ~((offsets == EMPTY) & (sizes == EMPTY))
        bad = present & (
            (offsets < low) | (offsets > high) | (sizes > np.uint64(high) - np.minimum(offsets, high))
        )
        if bad.any():
            slot = int(np.argmax(bad))
            raise self.fail(
                f"shard index places inner chunk {slot} at offset {offsets[slot]}, size {sizes[slot]}; "
                f"the shard has {shard_size} bytes, {self.index_size} of them index"
            )
        return ShardIndex(entries)

    def _regions(self) -> Iterator[tuple[slice, ...]]:
        for cell in product(*map(range, self.counts)):
            yield tuple(slice(i * n, (i + 1) * n) for i, n in zip(cell, self.chunk_shape, strict=True))

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        if len(data) < self.index_size:
            raise self.fail(f"shard has {len(data)} bytes, its index alone takes {self.index_size}")
        at_start = self.index_location == "start"
        raw = data[: self.index_size] if at_start else data[len(data) - self.index_size :]
        index = self.decode_index(raw, len(data))
        shard, fill = np.empty(self.spec.shape, self.spec.dtype), self.spec.fill_value
        if fill is None:
            fill = np.zeros((), self.spec.dtype)[()]
        for slot, region in enumerate(self._regions()):
            where = index.get(slot)
            if where is None:
                shard[region] = fill
            else:
                shard[region] = self.inner.decode(data[where[0] : where[0] + where[1]])
        return shard

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        entries = np.full((int(np.prod(self.counts, dtype=np.int64)), 2), EMPTY, np.uint64)
        offset = self.index_size if self.index_location == "start" else 0
        pieces = []
        for slot, region in enumerate(self._regions()):
            box: Any = (*region, ...)  # without the ellipsis a chunk of no dimension gives its item
            inner = np.asarray(chunk[box], order="C")
            if is_filled(inner, self.spec.fill_value):
                continue
            piece = self.inner.encode(inner)
            entries[slot] = offset, len(piece)
            offset += len(piece)
            pieces.append(piece)
        index = self.index.encode(entries.reshape(*self.counts, 2))
        return b"".join([index, *pieces] if self.index_location == "start" else [*pieces, index])


def is_filled(chunk: np.ndarray[Any, Any], fill_value: np.generic | None) -> bool:
    """Whether every item is the fill value, bit for bit: -0.0 and other NaNs differ from 0.0 and NaN."""
    if fill_value is None:
        return False
    if chunk.dtype.hasobject:
        return bool(np.all(chunk == fill_value))
    fill = np.asarray(fill_value, chunk.dtype).reshape(1).view(np.uint8)
    return bool((np.ascontiguousarray(chunk).reshape(-1, 1).view(np.uint8) == fill).all())

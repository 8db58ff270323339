"""N5's blocks in "default" mode: a header with the block's shape, then the items, encoded by other codecs.

Spec     zarr-extensions codec "n5_default"; N5 4.0.0, "default" blocks
v3 name  n5_default
v2 id    none
Example  {"name": "n5_default", "configuration": {"codecs": [
          {"name": "transpose", "configuration": {"order": [1, 0]}},
          {"name": "bytes", "configuration": {"endian": "big"}},
          {"name": "zstd", "configuration": {"level": 0, "checksum": false}}]}}

A block that is smaller than the chunk, as N5's are at the far edges, is completed with the fill value; of a
larger one only the part within the chunk is used. Blocks are always written in the chunk's shape.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import UNBOUND, Chain, ChunkSpec, Option, Serializer, codec_list
from zstore.codecs.bytes import Bytes
from zstore.codecs.transpose import Transpose
from zstore.model.array import CodecModel

HEAD = struct.Struct(">HH")
# The most decoded bytes of a block whose header has another shape than the chunk (unless the chunk has more).
LARGEST_SIZE = 64 << 20


@dataclass(frozen=True)
class N5Default(Serializer):
    """The serializer of N5's blocks; after `bind`, `chain` encodes blocks of the chunk's shape."""

    name: ClassVar[str] = "n5_default"
    options: ClassVar[tuple[Option, ...]] = (codec_list("codecs"),)

    codecs: tuple[CodecModel, ...]
    spec: ChunkSpec = UNBOUND
    chain: Chain = UNBOUND

    def bind(self, spec: ChunkSpec) -> Self:
        ndim = len(spec.shape)
        is_float = spec.dtype.type in (np.float32, np.float64)
        if spec.dtype.kind not in "iu" and not is_float:
            raise self.refuse(
                f"holds integers and floats of 32 or 64 bits, the chunk's items are {spec.dtype}"
            )
        if ndim >= 1 << 16 or any(length >= 1 << 32 for length in spec.shape):
            raise self.refuse(f"cannot say the shape {spec.shape} in its header")
        chain = Chain.bind(self.codecs, spec)
        reverse = tuple(range(ndim - 1, -1, -1))
        is_reversed = [isinstance(codec, Transpose) and codec.order for codec in chain.array_codecs] == [
            reverse
        ]
        serializer = chain.serializer
        is_big = isinstance(serializer, Bytes) and (spec.dtype.itemsize == 1 or serializer.endian == "big")
        if not is_reversed or not is_big or len(chain.bytes_codecs) > 1:
            names = [model.name for model in self.codecs]
            raise self.refuse(
                f"has codecs {names}, expected 'transpose' to {list(reverse)}, 'bytes' in big-endian order"
                " and at most one codec of bytes"
            )
        return type(self)(self.codecs, spec, chain)

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        head = HEAD.pack(0, chunk.ndim) + struct.pack(f">{chunk.ndim}I", *chunk.shape)
        return b"".join([head, self.chain.encode(chunk)])

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        ndim = len(self.spec.shape)
        start = HEAD.size + 4 * ndim
        if len(data) < start:
            raise self.fail(f"block has {len(data)} bytes, its header takes {start}")
        mode, count = HEAD.unpack_from(data)
        if mode != 0:
            raise self.fail(f"block has mode {mode}, expected 0, the default")
        if count != ndim:
            raise self.fail(f"block has {count} dimensions, expected {ndim}")
        shape = struct.unpack_from(f">{ndim}I", data, HEAD.size)
        if shape == self.spec.shape:
            return self.chain.decode(data[start:])
        size = prod(shape) * self.spec.dtype.itemsize
        if size > max(LARGEST_SIZE, prod(self.spec.shape) * self.spec.dtype.itemsize):
            raise self.fail(f"block has shape {shape}, expected about {self.spec.shape}")
        block = Chain.bind(self.codecs, self.spec._replace(shape=shape)).decode(data[start:])
        within = tuple(slice(min(a, b)) for a, b in zip(shape, self.spec.shape, strict=True))
        fill = self.spec.fill_value
        chunk = np.full(self.spec.shape, 0 if fill is None else fill, self.spec.dtype)
        chunk[within] = block[within]
        return chunk

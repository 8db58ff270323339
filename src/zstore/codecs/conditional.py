"""Conditional compression: skips codecs that do not make a chunk smaller, and records it in a header.

Spec     zarr-extensions codec "conditional"
v3 name  conditional
v2 id    none
Example  {"name": "conditional", "configuration": {"header_bits": 8,
          "codecs": [{"name": "zstd", "configuration": {"level": 3}}]}}

Chunks are written with all of the codecs applied, or with none if that does not save bytes; chunks with any
of them applied are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from zstore.base.limits import current_limits
from zstore.codecs.base import BytesCodec, ChunkSpec, Option, codec_list, integer, make_codec, refuse_option
from zstore.model.array import CodecModel


@dataclass(frozen=True)
class Conditional(BytesCodec):
    """Applies `codecs` where they save bytes; after `bind`, `bound` has the codecs themselves."""

    name: ClassVar[str] = "conditional"

    options: ClassVar[tuple[Option, ...]] = (codec_list("codecs"), integer("header_bits", 8, 1 << 16, None))

    codecs: tuple[CodecModel, ...]
    header_bits: int | None = None
    bound: tuple[BytesCodec, ...] = ()

    def __post_init__(self) -> None:
        bits, count = self.header_bits, len(self.codecs)
        if bits is not None and (bits % 8 or bits < count):
            raise refuse_option(self.name, "header_bits", bits, f"a multiple of 8, at least {count}")

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        made = super().from_configuration(configuration)
        bound = []
        for codec in map(make_codec, made.codecs):
            if not isinstance(codec, BytesCodec):
                raise cls.refuse(f"holds {codec.name!r}, which does not work on bytes")
            bound.append(codec)
        return replace(made, bound=tuple(bound))

    def bind(self, spec: ChunkSpec) -> Self:
        return replace(self, bound=tuple(codec.bind(spec) for codec in self.bound))

    @property
    def _header_size(self) -> int:
        return -(-len(self.codecs) // 8) if self.header_bits is None else self.header_bits // 8

    def encode(self, data: memoryview) -> bytes:
        encoded: bytes | memoryview = data
        for codec in self.bound:
            encoded = codec.encode(memoryview(encoded))
        mask = (1 << len(self.bound)) - 1
        if memoryview(encoded).nbytes >= memoryview(data).nbytes:
            encoded, mask = data, 0
        return b"".join([mask.to_bytes(self._header_size, "little"), encoded])

    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        if len(data) < self._header_size:
            raise self.fail(f"chunk has {len(data)} bytes, its header takes {self._header_size}")
        mask = int.from_bytes(data[: self._header_size], "little")
        if mask >> len(self.bound):
            raise self.fail(f"header {mask:#x} names more than {len(self.bound)} codecs")
        applied = [codec for i, codec in enumerate(self.bound) if mask >> i & 1]
        limits = [size_limit]
        for codec in applied:
            limits.append(_bound(codec, limits[-1]))
        decoded: bytes | memoryview = data[self._header_size :]
        for codec, limit in zip(reversed(applied), reversed(limits[:-1]), strict=True):
            decoded = codec.decode(memoryview(decoded), limit)
        if memoryview(decoded).nbytes > size_limit:
            raise self.fail(f"decodes to {memoryview(decoded).nbytes} bytes, at most {size_limit} allowed")
        return decoded

    def encoded_bound(self, size: int) -> int | None:
        largest = size
        for codec in self.bound:
            bound = codec.encoded_bound(largest)
            if bound is None:
                return None
            # Other writers may have skipped this codec.
            largest = max(largest, bound)
        return self._header_size + largest


def _bound(codec: BytesCodec, size: int) -> int:
    bound = codec.encoded_bound(size)
    return current_limits().decoded_size(0, 4 * size) if bound is None else max(bound, size)

"""Leave other codecs out for chunks that do not get smaller by them; a few bits before each chunk say which.

Spec     zarr-extensions codec "conditional"
v3 name  conditional
v2 id    none
Example  {"name": "conditional", "configuration": {"header_bits": 8,
          "codecs": [{"name": "zstd", "configuration": {"level": 3}}]}}

What is written has all of the codecs applied, or none where the bytes would not become fewer; whatever others
chose is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from zstore.codecs.base import BytesCodec, ChunkSpec
from zstore.codecs.chain import UNKNOWN_SIZE_LIMIT, make_codec
from zstore.codecs.native import Options
from zstore.codecs.sharding import parse_models, render_models
from zstore.errors import CodecError, MetadataError
from zstore.model.array import CodecModel

__all__ = ["Conditional"]


@dataclass(frozen=True)
class Conditional(BytesCodec):
    """`models` are the codecs by name; `codecs` the codecs themselves, bound to the chunk by `bind`."""

    name: ClassVar[str] = "conditional"

    models: tuple[CodecModel, ...]
    header_bits: int | None = None
    codecs: tuple[BytesCodec, ...] = ()

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        options = Options(cls.name, configuration)
        models = parse_models(configuration, "codecs", cls.name)
        options.take("codecs")
        bits = options.integer("header_bits", 8, 1 << 16) if "header_bits" in configuration else None
        options.end()
        if bits is not None and (bits % 8 or bits < len(models)):
            raise MetadataError(
                f"codec 'conditional' has header_bits {bits}, expected a multiple of 8,"
                f" at least {len(models)}",
                codec=cls.name,
            )
        codecs = tuple(map(make_codec, models))
        for codec in codecs:
            if not isinstance(codec, BytesCodec):
                raise MetadataError(
                    f"codec 'conditional' holds {codec.name!r}, which does not work on bytes", codec=cls.name
                )
        return cls(models, bits, tuple(codec for codec in codecs if isinstance(codec, BytesCodec)))

    def to_configuration(self) -> dict[str, Any]:
        configuration: dict[str, Any] = {"codecs": render_models(self.models)}
        if self.header_bits is not None:
            configuration["header_bits"] = self.header_bits
        return configuration

    def bind(self, spec: ChunkSpec) -> Self:
        return type(self)(self.models, self.header_bits, tuple(codec.bind(spec) for codec in self.codecs))

    @property
    def _header_size(self) -> int:
        return -(-len(self.models) // 8) if self.header_bits is None else self.header_bits // 8

    def encode(self, data: memoryview) -> bytes:
        encoded: bytes | memoryview = data
        for codec in self.codecs:
            encoded = codec.encode(memoryview(encoded))
        mask = (1 << len(self.codecs)) - 1
        if memoryview(encoded).nbytes >= memoryview(data).nbytes:
            encoded, mask = data, 0
        return b"".join([mask.to_bytes(self._header_size, "little"), encoded])

    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        if len(data) < self._header_size:
            raise CodecError(
                f"codec 'conditional' failed: chunk has {len(data)} bytes,"
                f" its header takes {self._header_size}",
                codec=self.name,
            )
        mask = int.from_bytes(data[: self._header_size], "little")
        if mask >> len(self.codecs):
            raise CodecError(
                f"codec 'conditional' failed: header {mask:#x} names more than {len(self.codecs)} codecs",
                codec=self.name,
            )
        applied = [codec for i, codec in enumerate(self.codecs) if mask >> i & 1]
        limits = [size_limit]
        for codec in applied:
            limits.append(_bound(codec, limits[-1]))
        decoded: bytes | memoryview = data[self._header_size :]
        for codec, limit in zip(reversed(applied), reversed(limits[:-1]), strict=True):
            decoded = codec.decode(memoryview(decoded), limit)
        if memoryview(decoded).nbytes > size_limit:
            raise CodecError(
                f"codec 'conditional' failed: decodes to {memoryview(decoded).nbytes} bytes,"
                f" at most {size_limit} allowed",
                codec=self.name,
            )
        return decoded

    def encoded_bound(self, size: int) -> int | None:
        largest = size
        for codec in self.codecs:
            bound = codec.encoded_bound(largest)
            if bound is None:
                return None
            # Others may have left this one out.
            largest = max(largest, bound)
        return self._header_size + largest


def _bound(codec: BytesCodec, size: int) -> int:
    bound = codec.encoded_bound(size)
    return UNKNOWN_SIZE_LIMIT if bound is None else max(bound, size)

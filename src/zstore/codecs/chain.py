"""The codecs of an array in order: array codecs, one serializer, bytes codecs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.codecs.base import ArrayCodec, BytesCodec, ChunkSpec, Codec, Serializer
from zstore.errors import CodecError, MetadataError
from zstore.extensions.registry import codecs as registry
from zstore.model.array import CodecModel

__all__ = ["Chain"]

# What a chunk of unknown encoded size may decode to.
UNKNOWN_SIZE_LIMIT = 1 << 32


@dataclass(frozen=True)
class Chain:
    """A chain bound to one chunk shape, dtype and fill value."""

    spec: ChunkSpec
    array_codecs: tuple[ArrayCodec, ...]
    serializer: Serializer
    bytes_codecs: tuple[BytesCodec, ...]
    size_limits: tuple[int, ...]  # the most bytes before each bytes codec

    @classmethod
    def bind(cls, models: Iterable[CodecModel], spec: ChunkSpec) -> Chain:
        """The chain that the models name, bound to chunks like `spec`.

        Raises
            UnknownExtensionError: nobody offers a codec of that name.
            MetadataError: codecs in an impossible order, or a configuration that does not fit.
        """
        codecs: list[Codec] = [
            registry.resolve(model.name).from_configuration(model.configuration) for model in models
        ]
        serializers = [index for index, codec in enumerate(codecs) if isinstance(codec, Serializer)]
        names = [codec.name for codec in codecs]
        if len(serializers) != 1:
            raise MetadataError(
                f"codecs {names} hold {len(serializers)} that turn arrays into bytes, expected 1"
            )
        middle = serializers[0]
        array_codecs: list[ArrayCodec] = []
        encoded = spec
        for codec in codecs[:middle]:
            if not isinstance(codec, ArrayCodec):
                raise MetadataError(f"codec {codec.name!r} stands before the serializer in {names}")
            codec = codec.bind(encoded)
            array_codecs.append(codec)
            encoded = codec.encoded_spec(encoded)
        serializer = codecs[middle].bind(encoded)
        assert isinstance(serializer, Serializer)
        size = serializer.encoded_size(encoded)
        if getattr(serializer, "endian", None) not in (None, sys.byteorder):
            # What follows sees the items in the stored byte order.
            encoded = encoded._replace(dtype=encoded.dtype.newbyteorder())
        bytes_codecs: list[BytesCodec] = []
        limits: list[int] = []
        for codec in codecs[middle + 1 :]:
            if not isinstance(codec, BytesCodec):
                raise MetadataError(f"codec {codec.name!r} stands after the serializer in {names}")
            codec = codec.bind(encoded)
            bytes_codecs.append(codec)
            if isinstance(codec, ArrayCodec):  # a filter that works on typed items, wherever it stands
                encoded = codec.encoded_spec(encoded)
            limits.append(UNKNOWN_SIZE_LIMIT if size is None else size)
            size = None if size is None else codec.encoded_bound(size)
        return cls(spec, tuple(array_codecs), serializer, tuple(bytes_codecs), tuple(limits))

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes | memoryview:
        """The bytes of one chunk, of the shape and dtype bound to."""
        for array_codec in self.array_codecs:
            chunk = array_codec.encode(chunk)
        data = self.serializer.encode(chunk)
        for codec in self.bytes_codecs:
            data = codec.encode(memoryview(data))
        return data

    def decode(self, data: bytes | memoryview) -> np.ndarray[Any, Any]:
        """One chunk from its bytes; may be read-only.

        Raises
            CodecError: the bytes are not those of one such chunk.
        """
        for codec, limit in zip(reversed(self.bytes_codecs), reversed(self.size_limits), strict=True):
            data = codec.decode(memoryview(data), limit)
        chunk = self.serializer.decode(memoryview(data))
        for array_codec in reversed(self.array_codecs):
            chunk = array_codec.decode(chunk)
        if chunk.shape != self.spec.shape or chunk.dtype != self.spec.dtype:
            raise CodecError(
                f"chunk decodes to {chunk.dtype} of shape {chunk.shape}, "
                f"expected {self.spec.dtype} of shape {self.spec.shape}"
            )
        return chunk

    def encoded_size(self) -> int | None:
        """How many bytes every chunk becomes; None where that depends on the values."""
        if any(codec.name != "crc32c" for codec in self.bytes_codecs):
            return None
        encoded = self.spec
        for codec in self.array_codecs:
            encoded = codec.encoded_spec(encoded)
        size = self.serializer.encoded_size(encoded)
        return None if size is None else size + 4 * len(self.bytes_codecs)

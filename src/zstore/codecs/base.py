"""What a codec is. A chain holds any number of array codecs, one serializer, then any number of bytes codecs.

A codec is made from its configuration (`from_configuration`), bound once to the chunks it will see (`bind`),
and then called per chunk. Calls come from many threads at once: a bound codec never changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from zstore.codecs.options import Option, parse_options, render_options
from zstore.errors import CodecError, MetadataError

__all__ = ["ArrayCodec", "BytesCodec", "ChunkSpec", "Codec", "Serializer"]


class ChunkSpec(NamedTuple):
    """What a codec is told about the chunks it will see (C order; of v1 and v2, in the stored byte order).

    `allow_pickle` says that the caller trusts the store enough to run code that its chunks hold.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    allow_pickle: bool = False


class Codec(ABC):
    """A codec of any of the three kinds below."""

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes: made with its `options` as keywords.

        Raises
            MetadataError: an option is unknown, missing, of the wrong type or out of range.
        """
        return cls(**parse_options(cls.name, cls.options, configuration))

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document, from the attributes that `options` name."""
        return render_options(self, self.options)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec, ready for chunks like `spec` (options that follow from the chunk are filled in)."""
        return self

    @classmethod
    def refuse(cls, what: str) -> MetadataError:
        """The error to raise for a configuration, or for chunks, that the codec does not take."""
        return MetadataError(f"codec {cls.name!r} {what}", codec=cls.name)

    @classmethod
    def fail(cls, what: str) -> CodecError:
        """The error to raise for a chunk that cannot be encoded or decoded."""
        return CodecError(f"codec {cls.name!r} failed: {what}", codec=cls.name)


class ArrayCodec(Codec):
    """Array to array, e.g. transpose."""

    @abstractmethod
    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """What the next codec sees of chunks like `spec`."""

    @abstractmethod
    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The chunk as the next codec sees it."""

    @abstractmethod
    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The chunk as it was before `encode`."""


class Serializer(Codec):
    """Array to bytes, e.g. bytes, sharding_indexed, vlen-utf8. `bind` is always called first."""

    @abstractmethod
    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes | memoryview:
        """The chunk's bytes."""

    @abstractmethod
    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        """The chunk, of the shape and dtype it was bound to.

        Raises
            CodecError: the bytes are not those of one such chunk.
        """

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """How many bytes every chunk like `spec` becomes; None where that depends on the values."""
        return None


class BytesCodec(Codec):
    """Bytes to bytes, e.g. zstd, crc32c. May offer `__zstore_codec__()`, see `include/zstore_codec.h`."""

    @abstractmethod
    def encode(self, data: memoryview) -> bytes | memoryview:
        """The encoded bytes."""

    @abstractmethod
    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        """The bytes as they were before `encode`, never more than `size_limit` of them.

        Raises
            CodecError: damaged, or decodes to more than `size_limit` bytes (nothing larger is allocated).
        """

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes become; None where nobody knows."""
        return None

"""The base classes of codecs: array codecs, serializers and bytes codecs, in this order in a chain.

A chain has any number of array codecs, one serializer, then any number of bytes codecs. A codec is made from
its configuration (`from_configuration`), bound once to the kind of chunks it will get (`bind`), and then
called for each chunk, by many threads at once: a bound codec never changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from zstore.codecs.options import Option, parse_options, render_options
from zstore.errors import CodecError, MetadataError

__all__ = ["UNBOUND", "ArrayCodec", "BytesCodec", "ChunkSpec", "Codec", "Serializer"]

# What stands in a codec that is not bound for all that `bind` fills in, and only bound codecs use.
UNBOUND: Any = None


class ChunkSpec(NamedTuple):
    """The chunks that a codec is bound to: arrays in C order (in Zarr v1 and v2, in the stored byte order).

    `allow_pickle` says that the caller trusts the store enough to run code that its chunks contain.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    allow_pickle: bool = False


def failure(codec: str, what: object, to: str = "", kind: type[CodecError] = CodecError) -> CodecError:
    """The error for a chunk that the codec of that name failed `to` do something with."""
    return kind(f"codec {codec!r} failed{to and f' to {to}'}: {what}", codec=codec)


class Codec(ABC):
    """The base class of the three kinds of codecs below."""

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """Make the codec that a metadata document describes, with its `options` as keyword arguments.

        Raises
            MetadataError: an option is unknown, missing, of the wrong type or out of range.
        """
        return cls(**parse_options(cls.name, cls.options, configuration))

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document, from the attributes that `options` name."""
        return render_options(self, self.options)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`, with options that follow from the chunk filled in."""
        return self

    @classmethod
    def refuse(cls, what: str) -> MetadataError:
        """The error to raise for a configuration or a kind of chunk that the codec does not support."""
        return MetadataError(f"codec {cls.name!r} {what}", codec=cls.name)

    @classmethod
    def fail(cls, what: object, to: str = "") -> CodecError:
        """The error to raise for a chunk that cannot be encoded or decoded; `to` is what was being done."""
        return failure(cls.name, what, to)


class ArrayCodec(Codec):
    """A codec from arrays to arrays, e.g. transpose."""

    @abstractmethod
    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """The kind of chunks that the next codec gets for chunks like `spec`."""

    @abstractmethod
    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The encoded chunk, for the next codec."""

    @abstractmethod
    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The chunk as it was before `encode`."""


class Serializer(Codec):
    """A codec from arrays to bytes, e.g. bytes, sharding_indexed, vlen-utf8; it is bound before use."""

    @abstractmethod
    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes | memoryview:
        """The bytes of the chunk."""

    @abstractmethod
    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        """The chunk, of the shape and dtype that the codec was bound to.

        Raises
            CodecError: the bytes are not those of one such chunk.
        """

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """The number of bytes of every encoded chunk like `spec`; None if it depends on the values."""
        return None


class BytesCodec(Codec):
    """A codec from bytes to bytes, e.g. zstd, crc32c; native ones offer a capsule (`zstore_codec.h`)."""

    @abstractmethod
    def encode(self, data: memoryview) -> bytes | memoryview:
        """The encoded bytes."""

    @abstractmethod
    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        """The bytes as they were before `encode`, never more than `size_limit` of them.

        Raises
            CodecError: damaged, or more than `size_limit` bytes when decoded (nothing larger is allocated).
        """

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes can become when encoded; None if that is not known."""
        return None


class ConfiguredCodec(Codec):
    """A codec that is made, and made again when it is bound, from its configuration as documents have it."""

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec = UNBOUND) -> None:
        self._configuration = dict(configuration)
        self._spec = spec

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes; it keeps the configuration as it is written there."""
        parse_options(cls.name, cls.options, configuration)
        return cls(configuration)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return dict(self._configuration)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`."""
        return type(self)(self._configuration, spec)


class SerializerOrBytesCodec(ConfiguredCodec, Serializer, BytesCodec):
    """A serializer that may also be (as in Zarr v2) a bytes codec after another serializer."""

    def encode(self, data: Any) -> bytes:
        """The encoded bytes of a chunk, given as an array or as its bytes."""
        if self._spec is None:
            raise self.fail("it was not bound to a chunk's shape and dtype")
        items = data if isinstance(data, np.ndarray) else np.frombuffer(data, self._spec.dtype)
        return self._encode_items(np.ascontiguousarray(items))

    @abstractmethod
    def _encode_items(self, items: np.ndarray[Any, Any]) -> bytes:
        """The encoded bytes of contiguous items of the chunk's dtype."""

    @abstractmethod
    def decode(self, data: Any, size_limit: int | None = None) -> Any:
        """The decoded chunk; with `size_limit`, its bytes, never more than that many.

        Raises
            CodecError: damaged, cut short, or not of the chunk's type and number of items.
        """

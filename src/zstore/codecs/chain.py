"""Chains: the codecs of an array in encoding order, bound to its chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zstore.base.limits import current_limits
from zstore.codecs.base import ArrayCodec, BytesCodec, ChunkSpec, Codec, Serializer
from zstore.errors import CodecError, MetadataError
from zstore.extensions.registry import codecs as registry
from zstore.model.array import CodecModel
from zstore.model.dtype import stored_dtype

# Codecs that store a checksum, of what they decode to or of their own bytes; zstd does where it is told to.
CHECKED = frozenset(
    ("adler32", "bz2", "crc32", "crc32c", "fletcher32", "gzip", "jenkins_lookup3", "lzma", "zlib")
)


def has_checksum(codecs: Iterable[CodecModel]) -> bool:
    """Whether one of these codecs stores a checksum, so that a changed byte is an error and never an item."""
    named = ((codec.name.removeprefix("numcodecs."), codec.configuration) for codec in codecs)
    return any(name in CHECKED or (name == "zstd" and options.get("checksum")) for name, options in named)


def make_codec(model: CodecModel) -> Codec:
    """Make the codec that a model names, not bound yet.

    Raises
        UnknownExtensionError: there is no codec of that name.
        MetadataError: the codec does not take that configuration.
    """
    codec: Codec = registry.resolve(model.name).from_configuration(model.configuration)
    return codec


def _serializers(codecs: list[Codec]) -> list[int]:
    """The positions of the serializers in a chain.

    Some codecs of numcodecs' are both serializers and bytes codecs: after a serializer (as in Zarr v2) they
    work on its bytes.
    """
    places: list[int] = []
    for place, codec in enumerate(codecs):
        if isinstance(codec, Serializer) and not (places and isinstance(codec, BytesCodec)):
            places.append(place)
    return places


def _plain_size(spec: ChunkSpec) -> int:
    """A generous estimate of the decoded bytes of a chunk whose items have variable length."""
    return 4 * prod(spec.shape) * max(16, spec.dtype.itemsize)


def _most_stored(spec: ChunkSpec, size: int | None, *, may_have_holes: bool) -> int | None:
    """A limit on the bytes of a stored chunk, from `size`, the most that our encoder makes (None: unknown).

    It is generous because other writers' frames may be longer. There is none (None) for shards of unknown
    size, which may have unused bytes between their inner chunks.
    """
    if size is not None:
        return 4 * (size + (1 << 18))
    return None if may_have_holes else 4 * (_plain_size(spec) + (1 << 28))


@contextmanager
def _naming_the_limit(limit: int) -> Iterator[None]:
    try:
        yield
    except CodecError as error:
        if isinstance(error.__cause__, BufferError) or f"{limit} bytes" in error.message:
            error.message += "; zstore.set_limits(chunk_size=...) allows more"
        raise


@dataclass(frozen=True)
class Chain:
    """The codecs of an array, bound to one chunk shape, dtype and fill value."""

    spec: ChunkSpec
    array_codecs: tuple[ArrayCodec, ...]
    serializer: Serializer
    bytes_codecs: tuple[BytesCodec, ...]
    # The most bytes that each bytes codec gets to encode; None if it depends on the values.
    size_limits: tuple[int | None, ...]

    # A stored chunk with more bytes than this is refused; None for no limit.
    stored_limit: int | None = None

    @classmethod
    def bind(cls, models: Iterable[CodecModel], spec: ChunkSpec) -> Chain:
        """Make the codecs that the models name, and bind them to chunks like `spec`.

        Raises
            UnknownExtensionError: there is no codec of that name.
            MetadataError: codecs in an impossible order, or a configuration that does not fit.
        """
        codecs = [make_codec(model) for model in models]
        serializers = _serializers(codecs)
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
        # The codecs that follow get the items in the stored byte order.
        order = getattr(serializer, "endian", None)
        is_object = encoded.dtype.kind in "OT"
        encoded = encoded._replace(dtype=np.dtype("u1") if is_object else stored_dtype(encoded.dtype, order))
        bytes_codecs: list[BytesCodec] = []
        limits: list[int | None] = []
        for codec in codecs[middle + 1 :]:
            if not isinstance(codec, BytesCodec):
                raise MetadataError(f"codec {codec.name!r} stands after the serializer in {names}")
            codec = codec.bind(encoded)
            bytes_codecs.append(codec)
            if isinstance(codec, ArrayCodec):  # a filter of v2's, which works on typed items
                encoded = codec.encoded_spec(encoded)
            limits.append(size)
            size = None if size is None else codec.encoded_bound(size)
        most = _most_stored(spec, size, may_have_holes=serializer.name == "sharding_indexed")
        return cls(spec, tuple(array_codecs), serializer, tuple(bytes_codecs), tuple(limits), most)

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes | memoryview:
        """The bytes of one chunk of the bound shape and dtype."""
        for array_codec in self.array_codecs:
            chunk = array_codec.encode(chunk)
        data = self.serializer.encode(chunk)
        for codec in self.bytes_codecs:
            data = codec.encode(memoryview(data))
        return data

    def decode(self, data: bytes | memoryview) -> np.ndarray[Any, Any]:
        """One chunk from its bytes; the array may be read-only.

        Raises
            CodecError: the bytes are not those of one such chunk.
        """
        chunk = self.serializer.decode(memoryview(self.decode_bytes(data)))
        for array_codec in reversed(self.array_codecs):
            chunk = array_codec.decode(chunk)
        if chunk.shape != self.spec.shape or chunk.dtype != self.spec.dtype:
            raise CodecError(
                f"chunk decodes to {chunk.dtype} of shape {chunk.shape}, "
                f"expected {self.spec.dtype} of shape {self.spec.shape}"
            )
        return chunk

    def check_stored_size(self, data: bytes | memoryview) -> None:
        """Check that a stored chunk is not unreasonably large, before it is decoded.

        Raises
            CodecError: it has more than `stored_limit` bytes.
        """
        size = memoryview(data).nbytes
        if self.stored_limit is not None and size > self.stored_limit:
            raise CodecError(
                f"stored chunk has {size} bytes or more; none that decodes to this array's has more than "
                f"{self.stored_limit}"
            )

    def decode_bytes(self, data: bytes | memoryview) -> bytes | memoryview:
        """Undo the bytes codecs: the bytes that the serializer made of a chunk.

        Raises
            CodecError: damaged, or more bytes than such a chunk can have (if that is not known, than the
                limit `chunk_size` allows).
        """
        for codec, limit in zip(reversed(self.bytes_codecs), reversed(self.size_limits), strict=True):
            view = memoryview(data)
            if limit is not None:
                data = codec.decode(view, limit)
                continue
            limit = current_limits().decoded_size(view.nbytes, _plain_size(self.spec))
            with _naming_the_limit(limit):
                data = codec.decode(view, limit)
        return data

    def encoded_size(self) -> int | None:
        """The number of bytes of every encoded chunk; None if it depends on the values."""
        if any(codec.name != "crc32c" for codec in self.bytes_codecs):
            return None
        encoded = self.spec
        for codec in self.array_codecs:
            encoded = codec.encoded_spec(encoded)
        size = self.serializer.encoded_size(encoded)
        return None if size is None else size + 4 * len(self.bytes_codecs)

"""The codecs of an array in order: array codecs, one serializer, bytes codecs."""

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
from zstore.model.order import stored_dtype


def make_codec(model: CodecModel) -> Codec:
    """The codec that a model names, not bound yet.

    Raises
        UnknownExtensionError: nobody offers a codec of that name.
        MetadataError: it does not take that configuration.
    """
    codec: Codec = registry.resolve(model.name).from_configuration(model.configuration)
    return codec


def _serializers(codecs: list[Codec]) -> list[int]:
    """The places of the codecs that turn arrays into bytes.

    Some of numcodecs' do that, and behind another serializer, where Zarr v2 has them, they take its bytes.
    """
    places: list[int] = []
    for place, codec in enumerate(codecs):
        if isinstance(codec, Serializer) and not (places and isinstance(codec, BytesCodec)):
            places.append(place)
    return places


def _plain_size(spec: ChunkSpec) -> int:
    """What a chunk of items of any length comes to where nothing about it is unusual, in bytes."""
    return 4 * prod(spec.shape) * max(16, spec.dtype.itemsize)


def _most_stored(spec: ChunkSpec, size: int | None, *, may_have_holes: bool) -> int | None:
    """More bytes than one stored chunk can sensibly have, of which `size` is the most that ours have.

    None where the values decide (`size` is None) and there may be holes between them. Writers differ:
    another one's frames may be somewhat longer than ours.
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
    """A chain bound to one chunk shape, dtype and fill value."""

    spec: ChunkSpec
    array_codecs: tuple[ArrayCodec, ...]
    serializer: Serializer
    bytes_codecs: tuple[BytesCodec, ...]
    # The most bytes before each bytes codec; None where the values decide.
    size_limits: tuple[int | None, ...]

    # More bytes than one stored chunk can sensibly have; None where the values decide.
    stored_limit: int | None = None

    @classmethod
    def bind(cls, models: Iterable[CodecModel], spec: ChunkSpec) -> Chain:
        """The chain that the models name, bound to chunks like `spec`.

        Raises
            UnknownExtensionError: nobody offers a codec of that name.
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
        # What follows sees the items in the stored byte order.
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
            if isinstance(codec, ArrayCodec):  # a filter that works on typed items, wherever it stands
                encoded = codec.encoded_spec(encoded)
            limits.append(size)
            size = None if size is None else codec.encoded_bound(size)
        most = _most_stored(spec, size, may_have_holes=serializer.name == "sharding_indexed")
        return cls(spec, tuple(array_codecs), serializer, tuple(bytes_codecs), tuple(limits), most)

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
        """Refuse more bytes than one stored chunk can sensibly have.

        Raises
            CodecError: there are more.
        """
        size = memoryview(data).nbytes
        if self.stored_limit is not None and size > self.stored_limit:
            raise CodecError(
                f"stored chunk has {size} bytes or more; none that decodes to this array's has more than "
                f"{self.stored_limit}"
            )

    def decode_bytes(self, data: bytes | memoryview) -> bytes | memoryview:
        """What the serializer made of a chunk, from the chunk's bytes.

        Raises
            CodecError: damaged, more than such a chunk can have, or, where that is not known, more than
                `chunk_size` of the limits.
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
        """How many bytes every chunk becomes; None where that depends on the values."""
        if any(codec.name != "crc32c" for codec in self.bytes_codecs):
            return None
        encoded = self.spec
        for codec in self.array_codecs:
            encoded = codec.encoded_spec(encoded)
        size = self.serializer.encoded_size(encoded)
        return None if size is None else size + 4 * len(self.bytes_codecs)

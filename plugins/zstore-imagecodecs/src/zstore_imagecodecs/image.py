"""Chunks as image files: the base class of the codecs of all formats.

In Zarr v3 such a codec is the serializer and takes chunks; in v2 it is the compressor and takes their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Self

import imagecodecs.numcodecs
import numpy as np

from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.plugin.codecs import BytesCodec, ChunkSpec, Serializer

__all__ = ["ImageCodec"]

# The errors that imagecodecs raises; each format's own error is a RuntimeError.
FAILURES = (RuntimeError, ValueError, TypeError, IndexError, OverflowError, MemoryError)


class ImageCodec(Serializer, BytesCodec):
    """A codec of imagecodecs; a subclass for each format says which chunks it takes.

    peer         the name of imagecodecs' own codec for numcodecs
    items        the data types that the format holds
    samples      how many samples the last of three dimensions may hold; None: any number
    has_gray     whether chunks may have two dimensions
    own_options  the options that imagecodecs' own codec lacks
    """

    peer: ClassVar[str]
    items: ClassVar[tuple[str, ...]]
    samples: ClassVar[tuple[int, ...] | None] = None
    has_gray: ClassVar[bool] = True
    own_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec | None = None) -> None:
        self._configuration = dict(configuration)
        self._spec = spec
        try:
            kind = getattr(imagecodecs.numcodecs, self.peer)
            self._codec = kind.from_config(
                {name: value for name, value in configuration.items() if name not in self.own_options}
            )
        except (TypeError, AttributeError) as error:
            raise MetadataError(
                f"codec {self.name!r} does not take configuration {dict(configuration)!r}: {error}",
                codec=self.name,
            ) from error
        except ValueError as error:
            # A build of imagecodecs may lack formats.
            raise UnsupportedError(
                f"codec {self.name!r} is not in this build of imagecodecs: {error}", codec=self.name
            ) from error

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec with these options, which are those of imagecodecs' own codec for numcodecs."""
        if "id" in configuration:
            raise MetadataError(f"codec {cls.name!r} has unknown options: 'id'", codec=cls.name)
        if configuration.get("squeeze") is not None:
            raise UnsupportedError(
                f"codec {cls.name!r} with squeeze {configuration['squeeze']!r}; expected none", codec=cls.name
            )
        return cls(configuration)

    def to_configuration(self) -> dict[str, Any]:
        """The options as they were given."""
        return dict(self._configuration)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`.

        Raises
            MetadataError: the format holds no such items, or no chunks of such a shape.
        """
        shape, dtype = self.image_shape(spec.shape), spec.dtype
        if dtype.name not in self.item_names() or not dtype.isnative:
            raise MetadataError(
                f"codec {self.name!r} takes items of {', '.join(self.item_names())} in native byte order,"
                f" the chunk's are {dtype.str}",
                codec=self.name,
            )
        is_gray = len(shape) == 2
        has_samples = len(shape) == 3 and (self.samples is None or shape[2] in self.samples)
        if not prod(shape) or not (has_samples or (is_gray and self.has_gray)):
            kinds = ["rows and columns"] if self.has_gray else []
            count = "any number of" if self.samples is None else " or ".join(map(str, self.samples))
            kinds.append(f"rows, columns and {count} samples")
            raise MetadataError(
                f"codec {self.name!r} takes chunks of {' or of '.join(kinds)}, dimensions of length 1 left"
                f" out; this one has shape {spec.shape}",
                codec=self.name,
            )
        return type(self)(self._configuration, spec)

    def item_names(self) -> tuple[str, ...]:
        """The data types that the format holds with these options."""
        return self.items

    def encode(self, data: Any) -> bytes:
        """The image file of a chunk, or of its bytes."""
        spec = self._bound()
        items = data if isinstance(data, np.ndarray) else np.frombuffer(data, spec.dtype)
        image = np.ascontiguousarray(items).reshape(self.image_shape(spec.shape))
        fault = self.find_loss(image)
        if fault:
            raise CodecError(f"codec {self.name!r} failed: {fault}", codec=self.name)
        _check_round_trip(
            type(self), json.dumps(self._configuration, sort_keys=True), image.shape, image.dtype
        )
        return self._encode(image)

    def _encode(self, image: np.ndarray[Any, Any]) -> bytes:
        try:
            return bytes(self._codec.encode(image))
        except FAILURES as error:
            raise CodecError(
                f"codec {self.name!r} failed to encode {image.dtype} of shape {image.shape}: {error}",
                codec=self.name,
            ) from error

    def decode(self, data: Any, size_limit: int | None = None) -> Any:
        """The chunk; with a `size_limit` its bytes, of which there may be no more than that."""
        spec = self._bound()
        size = prod(spec.shape) * spec.dtype.itemsize
        if size_limit is not None and size > size_limit:
            raise CodecError(
                f"codec {self.name!r} failed: decodes to {size} bytes, at most {size_limit} allowed",
                codec=self.name,
            )
        image = self._decode(bytes(data), self.image_shape(spec.shape), spec.dtype)
        return image.reshape(spec.shape) if size_limit is None else image.reshape(-1).view(np.uint8).data

    def _decode(self, data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        fault = self.find_fault(data, shape)
        if fault:
            raise CodecError(f"codec {self.name!r} failed: {fault}", codec=self.name)
        # imagecodecs compares shape and type of `out` with the file's before it decodes.
        image = np.zeros(shape, dtype)
        try:
            found = self.read_image(data, image)
        except FAILURES as error:
            raise CodecError(
                f"codec {self.name!r} failed to decode {len(data)} bytes: {error}; expected {dtype} of shape"
                f" {shape}",
                codec=self.name,
            ) from error
        if found is not image and (found.shape != shape or found.dtype != dtype):
            raise CodecError(
                f"codec {self.name!r} failed: holds {found.dtype} of shape {found.shape},"
                f" expected {dtype} of shape {shape}",
                codec=self.name,
            )
        return np.ascontiguousarray(found)

    def read_image(self, data: bytes, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The image of a file: `image`, into which it is decoded, or another one."""
        decoded: np.ndarray[Any, Any] = self._codec.decode(data, out=image)
        return decoded

    def image_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a chunk's image: without dimensions of length 1, but of two dimensions at least."""
        kept = tuple(length for length in shape if length != 1)
        return (1,) * (2 - len(kept)) + kept

    def find_loss(self, image: np.ndarray[Any, Any]) -> str:
        """What the library would lose without an error, in words; "" where it loses nothing."""
        return ""

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A fault of a file that the library finds too late or never, in words; "" where there is none."""
        return ""

    def _bound(self) -> ChunkSpec:
        if self._spec is None:
            raise CodecError(
                f"codec {self.name!r} was not bound to a chunk's shape and dtype", codec=self.name
            )
        return self._spec

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._configuration, self._spec))

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._configuration.items())
        return f"{type(self).__name__}({options})"


@lru_cache(maxsize=256)
def _check_round_trip(
    kind: type[ImageCodec], options: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Encode and decode an empty chunk, once for each kind of chunk: some shapes come back as others.

    Raises
        CodecError: the format does not give back a chunk of this shape and type.
    """
    codec = kind.from_configuration(json.loads(options))
    codec._decode(codec._encode(np.zeros(shape, dtype)), shape, dtype)

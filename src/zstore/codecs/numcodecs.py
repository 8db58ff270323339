"""Adapters for all codecs of numcodecs, under the names "numcodecs.<id>" and with numcodecs' configurations.

Codecs with a file of their own in this room come from there; the others run numcodecs' code (bz2 and lzma the
standard library's, whose output can be limited). Filters of typed items (delta, astype, fixedscaleoffset,
quantize, bitround, packbits, categorize) can come before the serializer, where they work on arrays, or after
it, as in Zarr v2, where they work on bytes.

Spec     Zarr v2 "filters" and "compressor"; numcodecs' documentation
v3 name  numcodecs.<id>
v2 id    <id>
Example  {"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}
"""

from __future__ import annotations

import binascii
import bz2
import inspect
import lzma
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore._ext.codecs import native
from zstore.base.once import once
from zstore.codecs.base import (
    UNBOUND,
    ArrayCodec,
    BytesCodec,
    ChunkSpec,
    Codec,
    ConfiguredCodec,
    failure,
    refuse_unknown,
)
from zstore.errors import ChecksumError, CodecError, MetadataError, UnknownExtensionError, UnsupportedError
from zstore.model.translate import TYPED_FILTERS

_CHECKSUMS = frozenset({"adler32", "crc32", "fletcher32", "jenkins_lookup3"})
# codec -> the option that follows from the chunk if a Zarr v3 document leaves it out.
_FROM_CHUNK = {
    "astype": "decode_dtype",
    "fixedscaleoffset": "dtype",
    "quantize": "dtype",
    "shuffle": "elementsize",
}


_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor


@cache
def adapter(codec_id: str) -> type[Codec]:
    """The class that runs numcodecs' code as the codec "numcodecs.<codec_id>", if zstore has none of its own.

    Raises
        UnknownExtensionError: numcodecs has no such codec.
    """
    from numcodecs import registry

    name = f"numcodecs.{codec_id}"
    if codec_id not in registry.codec_registry and codec_id not in registry.entries:
        raise UnknownExtensionError(
            f"numcodecs knows no codec {codec_id!r} here (some need a package of their own)", codec=name
        )
    base = NumcodecsFilter if name in TYPED_FILTERS else NumcodecsCodec
    if codec_id == "shuffle":
        base = _NumcodecsShuffle
    title = "".join(part.capitalize() for part in codec_id.replace("-", "_").split("_"))
    members = {"__doc__": f'The codec "{codec_id}" of numcodecs.', "name": name, "codec_id": codec_id}
    return type(f"Numcodecs{title}", (base,), members)


def _make(codec_id: str, configuration: Mapping[str, Any]) -> Any:
    """Make numcodecs' own codec object."""
    import numcodecs

    name = f"numcodecs.{codec_id}"
    try:
        return numcodecs.get_codec({"id": codec_id, **configuration})
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise MetadataError(
            f"codec {name!r} does not take configuration {dict(configuration)!r}: {error}", codec=name
        ) from error
    except ImportError as error:
        raise UnsupportedError(f"codec {name!r} needs a package: {error}", codec=name) from error


def numcodecs_object(configuration: Mapping[str, Any]) -> Any:
    """numcodecs' own codec object of a v2 document's entry, {"id": …}.

    Raises
        MetadataError: numcodecs does not take the configuration.
        UnsupportedError: the codec needs a package.
    """
    return _make(configuration["id"], {name: item for name, item in configuration.items() if name != "id"})


@cache
def _option_names(codec_id: str) -> tuple[str, ...] | None:
    """The names of the options of numcodecs' codec; None if it takes any."""
    from numcodecs import registry

    kind: Any = registry.codec_registry.get(codec_id) or registry.entries[codec_id].load()
    if kind.__init__ is object.__init__:
        return ()
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return tuple(parameter.name for parameter in parameters)


def stated_by_numcodecs(codec_id: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with all the options that numcodecs writes into v2 documents.

    Raises
        MetadataError: numcodecs does not take the configuration.
        UnsupportedError: the codec needs a package.
    """
    from numcodecs import registry

    if codec_id not in registry.codec_registry and codec_id not in registry.entries:
        return dict(configuration)
    return {
        name: value for name, value in _make(codec_id, configuration).get_config().items() if name != "id"
    }


def _rebuild(codec_id: str, configuration: dict[str, Any], spec: ChunkSpec | None) -> Codec:
    codec = adapter(codec_id).from_configuration(configuration)
    return codec if spec is None else codec.bind(spec)


def _as_bytes(result: Any) -> memoryview:
    if isinstance(result, np.ndarray):
        return np.ascontiguousarray(result).reshape(-1).view(np.uint8).data
    return memoryview(result).cast("B")


class NumcodecsCodec(ConfiguredCodec, BytesCodec):
    """A bytes codec of numcodecs'; `bind` fills in the options that follow from the chunk."""

    codec_id: ClassVar[str]

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec = UNBOUND) -> None:
        super().__init__(configuration, spec)
        missing = _FROM_CHUNK.get(self.codec_id)
        if missing is not None and self._configuration.get(missing) is None and spec is not None:
            # Dtypes are written as zarr-python writes them.
            named = spec.dtype.str if spec.dtype.names else str(spec.dtype)
            self._configuration[missing] = spec.dtype.itemsize if missing == "elementsize" else named
        is_complete = missing in (None, "elementsize") or self._configuration.get(missing) is not None
        self._codec = self._make() if is_complete else None

    def _make(self) -> Any:
        return _make(self.codec_id, self._configuration)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec of a metadata document's entry."""
        options = _option_names(cls.codec_id)
        if options is not None:
            refuse_unknown(cls.name, configuration, options)
        return cls(configuration)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.codec_id, self._configuration, self._spec))

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._configuration.items())
        return f"{type(self).__name__}({options})"

    @contextmanager
    def _failures(self, verb: str, size: int) -> Iterator[Any]:
        """A context that yields the codec to call, and turns every error into a CodecError."""
        if self._codec is None:
            raise self.fail("it was not bound to a chunk's dtype")
        try:
            # numpy only warns when a value does not fit the encoded type, and loses it.
            with np.errstate(invalid="raise", over="raise"):
                yield self._codec
        except (MemoryError, CodecError):
            raise
        except Exception as error:
            is_checksum = self.codec_id in _CHECKSUMS and isinstance(error, RuntimeError)
            kind = ChecksumError if is_checksum else CodecError
            what = f"{type(error).__name__}: {error}"
            raise failure(self.name, what, f"{verb} {size} bytes", kind) from error

    def encode(self, data: Any) -> Any:
        """The encoded bytes."""
        source = np.frombuffer(data, np.uint8)
        with self._failures("encode", source.nbytes) as codec:
            return _as_bytes(self._compress(source) if self._compress is not None else codec.encode(source))

    def decode(self, data: Any, size_limit: int = 0) -> Any:
        """The bytes as they were before `encode`, never more than `size_limit` of them.

        Raises
            CodecError: damaged or too many; only bz2 and lzma stop before they allocate more.
        """
        source = np.frombuffer(data, np.uint8)
        with self._failures("decode", source.nbytes) as codec:
            if self._decompressor is not None:
                return memoryview(self._decompress(self._decompressor, source.tobytes(), size_limit))
            if self.codec_id == "base64":
                # numcodecs ignores characters that are not Base64.
                return self._limited(
                    memoryview(binascii.a2b_base64(source.data, strict_mode=True)), size_limit
                )
            return self._limited(_as_bytes(codec.decode(source)), size_limit)

    def _limited(self, decoded: memoryview, size_limit: int) -> memoryview:
        if decoded.nbytes > size_limit:
            raise self.fail(f"decodes to {decoded.nbytes} bytes, at most {size_limit} allowed")
        return decoded

    # In a CPython without a lock, `get` of a dictionary that threads share may wait for the dictionary's own,
    # which a fork can copy as held by nobody: what chunks need is looked up once, and numcodecs, which has
    # such a dictionary, is not asked for what the standard library has.

    @once
    def _compress(self) -> Callable[[Any], bytes] | None:
        codec: Any = self._codec
        if self.codec_id == "bz2":
            return partial(bz2.compress, compresslevel=codec.level)
        if self.codec_id == "lzma":
            options = {"format": codec.format, "check": codec.check, "preset": codec.preset}
            return partial(lzma.compress, **options, filters=codec.filters)
        return None

    @once
    def _is_raw(self) -> bool:
        return self.codec_id == "lzma" and self._configuration.get("format") == lzma.FORMAT_RAW

    @once
    def _decompressor(self) -> Callable[[], _Decompressor] | None:
        if self.codec_id == "bz2":
            return bz2.BZ2Decompressor
        if self.codec_id == "lzma":
            # numcodecs decodes with the configured format and filters, not those in the data's header.
            stream_format = self._configuration.get("format", lzma.FORMAT_XZ)
            filters = self._configuration.get("filters")
            return lambda: lzma.LZMADecompressor(format=stream_format, filters=filters)
        return None

    def _decompress(self, make: Callable[[], _Decompressor], data: bytes, size_limit: int) -> bytes:
        """Decode all streams in `data`, one after the other."""
        parts: list[bytes] = []
        room = size_limit
        while data or not parts:
            stream = make()
            part = stream.decompress(data, room + 1)
            if len(part) > room:
                raise self.fail(f"decodes to more than the {size_limit} bytes allowed")
            if not stream.eof and not self._is_raw:
                # The limit is one byte too large on purpose, so a complete stream has reached its end by now.
                raise self.fail(f"the stream ends after {len(part)} decoded bytes without its end mark")
            parts.append(part)
            room -= len(part)
            data = stream.unused_data
        return b"".join(parts)

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes can become when encoded; None if unknown."""
        if self.codec_id in _CHECKSUMS:
            return size + 4
        if self.codec_id == "base64":
            return (size + 2) // 3 * 4
        if self.codec_id == "bz2":
            return size + size // 100 + 600
        return size if self.codec_id == "shuffle" else None


class _NumcodecsShuffle(NumcodecsCodec):
    """numcodecs' shuffle, which the kernels can also run."""

    @property
    def __zstore_codec__(self) -> Callable[[], object] | None:
        size = self._configuration.get("elementsize")
        if type(size) is not int or size >> 31:  # numcodecs refuses items longer than any chunk
            return None
        return partial(native.shuffle, max(size, 1))


class NumcodecsFilter(NumcodecsCodec, ArrayCodec):
    """A filter of numcodecs': from arrays to arrays before the serializer, from bytes to bytes after it.

    After the serializer, the `spec` of `bind` must have the dtype of the bytes there, byte order included.
    """

    def _make(self) -> Any:
        codec = super()._make()
        if any(getattr(codec, option, np.dtype("u1")) == np.dtype(object) for option in ("dtype", "astype")):
            raise UnsupportedError(f"codec {self.name!r} on Python objects", codec=self.name)
        return codec

    @property
    def _dtypes(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The dtypes of decoded and encoded items."""
        codec: Any = self._codec
        if self.codec_id == "astype":
            return codec.decode_dtype, codec.encode_dtype
        if self.codec_id == "packbits":
            return np.dtype(bool), np.dtype("u1")
        if self.codec_id == "bitround":
            if self._spec is None:
                raise self.fail("it was not bound to a chunk's dtype")
            return self._spec.dtype, self._spec.dtype
        return codec.dtype, codec.astype

    def _check_items(self, dtype: np.dtype[Any], decoded: np.dtype[Any]) -> None:
        """Check that the chunk's items have the configured dtype; another would misread them."""
        if dtype.itemsize != decoded.itemsize or not decoded.isnative:
            raise self.fail(f"it is configured for items of type {decoded.str}, the chunk's are {dtype.str}")

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """The kind of chunks that the next codec gets for chunks like `spec`."""
        shape, encoded = spec.shape, self.bind(spec)._dtypes[1]
        if self.codec_id == "packbits":
            shape = (1 + -(-prod(shape) // 8),)
        return ChunkSpec(shape, encoded, None)

    def encode(self, data: Any) -> Any:
        """The encoded chunk, or the encoded bytes."""
        chunk = np.ascontiguousarray(data) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        with self._failures("encode", chunk.nbytes) as codec:
            decoded, stored = self._dtypes
            if isinstance(data, np.ndarray):
                self._check_items(data.dtype, decoded)
            encoded = codec.encode(chunk.reshape(-1).view(decoded))
            if not isinstance(data, np.ndarray):
                return _as_bytes(encoded)
            encoded = encoded.view(stored)
            return encoded if self.codec_id == "packbits" else encoded.reshape(data.shape)

    def decode(self, data: Any, size_limit: int = 0) -> Any:
        """The chunk as it was before `encode`, or its bytes, at most `size_limit` of them."""
        is_array = isinstance(data, np.ndarray)
        source = np.ascontiguousarray(data) if is_array else np.frombuffer(data, np.uint8)
        with self._failures("decode", source.nbytes) as codec:
            if self.codec_id == "bitround":
                # Decoding does nothing, whatever the dtype.
                decoded = source
            else:
                decoded = codec.decode(source.reshape(-1).view(np.uint8))
            if not is_array:
                return self._limited(_as_bytes(decoded), size_limit)
            self._check_items(self._spec.dtype, self._dtypes[0])
            return decoded.reshape(-1).view(self._spec.dtype).reshape(self._spec.shape)

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes can become when encoded; None if unknown."""
        if self.codec_id == "packbits":
            return 1 + -(-size // 8)
        if self._codec is None:
            return None
        if self.codec_id == "bitround":
            return size
        decoded, encoded = self._dtypes
        return size // decoded.itemsize * encoded.itemsize

"""zstore's native codecs as codecs of numcodecs, with the same ids, options and bytes.

    from zstore.guests.numcodecs import Zstd, register

`register()` makes `numcodecs.get_codec` give them, and so whatever is built on it; before, nothing changes.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Self

import numcodecs
import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray
from numcodecs.registry import codec_registry, register_codec

from zstore.codecs.base import ChunkSpec, NativeCodec
from zstore.codecs.blosc import NumcodecsBlosc
from zstore.codecs.crc32c import NumcodecsCrc32c
from zstore.codecs.gzip import NumcodecsGzip, NumcodecsZlib
from zstore.codecs.lz4 import NumcodecsLz4
from zstore.codecs.zstd import NumcodecsZstd
from zstore.errors import CodecError


class _Native(Codec):  # type: ignore[misc]
    """A codec of zstore's under the id of numcodecs' codec, with the same options.

    Raises
        TypeError: an option is unknown.
        ValueError: an option is out of range.
    """

    _kind: ClassVar[type[NativeCodec]]

    def __init__(self, *options: Any, **named: Any) -> None:
        given = self._kind(*options, **named)
        self._codec = self._kind.from_configuration(given.to_configuration())

    def encode(self, buf: Any) -> bytes | memoryview:
        """The encoded bytes of any contiguous buffer."""
        items = ensure_contiguous_ndarray(buf)
        spec = ChunkSpec(items.shape, items.dtype, None)
        return self._codec.bind(spec).encode(memoryview(items.view(np.uint8)))

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The bytes as they were, or `out` filled with them.

        Raises
            ChecksumError: the bytes do not match their checksum.
            CodecError: they are damaged, or are not as many as `out` has room for.
        """
        data = memoryview(ensure_contiguous_ndarray(buf).view(np.uint8))
        if out is None:
            return self._codec.decode(data, sys.maxsize)
        room = ensure_contiguous_ndarray(out).view(np.uint8)
        decoded = self._codec.decode(data, room.nbytes)
        if len(decoded) != room.nbytes:
            raise CodecError(
                f"codec {self.codec_id!r} failed: decodes to {len(decoded)} bytes, expected {room.nbytes}",
                codec=self.codec_id,
            )
        room[...] = np.frombuffer(decoded, np.uint8)
        return out

    def get_config(self) -> dict[str, Any]:
        """The configuration in the form of a Zarr v2 document."""
        return {"id": self.codec_id, **self._codec.to_configuration()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The codec with that configuration, `id` left out."""
        return cls(**config)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._codec.to_configuration().items())
        return f"{type(self).__name__}({options})"


class Zstd(_Native):
    """Zstandard frames: `level`, `checksum`."""

    codec_id = "zstd"
    _kind = NumcodecsZstd

    def get_config(self) -> dict[str, Any]:
        """The configuration with both options, as numcodecs gives it and zarr-python looks for it."""
        return {"checksum": False, **super().get_config()}


def _named(name: str, kind: type[NativeCodec], what: str) -> type[_Native]:
    members = {"codec_id": name.lower(), "_kind": kind, "__doc__": what, "__module__": __name__}
    return type(name, (_Native,), members)


Blosc = _named(
    "Blosc",
    NumcodecsBlosc,
    "Blosc frames: `cname`, `clevel`, `shuffle`, `blocksize`; the items' size is the buffer's.",
)
GZip = _named("GZip", NumcodecsGzip, "Gzip members: `level`.")
Zlib = _named("Zlib", NumcodecsZlib, "Zlib streams: `level`.")
LZ4 = _named("LZ4", NumcodecsLz4, "LZ4 blocks: `acceleration`.")
CRC32C = _named("CRC32C", NumcodecsCrc32c, 'A CRC-32C checksum: `location`, "start" or "end".')

KINDS = (Zstd, Blosc, GZip, Zlib, LZ4, CRC32C)
_replaced: dict[str, Any] = {}


def register() -> None:
    """Make `numcodecs.get_codec` return zstore's codecs instead of its own, until `unregister`."""
    for kind in KINDS:
        known = codec_registry.get(kind.codec_id)
        if known is not kind:
            _replaced[kind.codec_id] = known or type(numcodecs.get_codec({"id": kind.codec_id}))
            register_codec(kind)


def unregister() -> None:
    """Make `numcodecs.get_codec` return its own codecs again."""
    while _replaced:
        register_codec(_replaced.popitem()[1])

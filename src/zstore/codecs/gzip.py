"""Deflate compression in gzip members (without a time stamp) or zlib streams.

Spec     Zarr v3 codec "gzip" 1.0; gzip, RFC 1952 (several members in a row decode too); zlib, RFC 1950
v3 name  gzip
v2 id    gzip, zlib
Example  {"name": "gzip", "configuration": {"level": 5}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zstore._ext.codecs import native
from zstore.codecs.base import NativeCodec, Option, integer


@dataclass(frozen=True)
class Gzip(NativeCodec):
    """gzip with the configuration of Zarr v3."""

    name: ClassVar[str] = "gzip"
    options: ClassVar[tuple[Option, ...]] = (integer("level", 0, 9, usual=5),)

    level: int = 5

    def _make_capsule(self) -> object:
        return native.gzip(self.level)


@dataclass(frozen=True)
class NumcodecsGzip(Gzip):
    """gzip with the configuration of numcodecs (level -1 is zlib's default)."""

    name: ClassVar[str] = "numcodecs.gzip"
    options: ClassVar[tuple[Option, ...]] = (integer("level", -1, 9, 1),)

    level: int = 1


@dataclass(frozen=True)
class NumcodecsZlib(NumcodecsGzip):
    """zlib with the configuration of numcodecs (level -1 is zlib's default)."""

    name: ClassVar[str] = "numcodecs.zlib"

    def _make_capsule(self) -> object:
        return native.zlib(self.level)

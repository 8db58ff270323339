"""Deflate compression, as gzip members (without a time stamp) or as zlib streams.

Spec     Zarr v3 codec "gzip" 1.0; gzip, RFC 1952 (several members in a row decode too); zlib, RFC 1950
v3 name  gzip
v2 id    gzip, zlib
Example  {"name": "gzip", "configuration": {"level": 5}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from zstore._ext.codecs import native
from zstore.codecs.native import NativeCodec, Options

__all__ = ["Gzip", "NumcodecsGzip", "NumcodecsZlib"]


class Gzip(NativeCodec):
    """gzip members, as Zarr v3 configures them."""

    name: ClassVar[str] = "gzip"

    def __init__(self, level: int = 5) -> None:
        self.level = level
        super().__init__()

    def _make_capsule(self) -> object:
        return native.gzip(self.level)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        level = options.integer("level", 0, 9)
        options.end()
        return cls(level)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return {"level": self.level}


class NumcodecsGzip(Gzip):
    """gzip members, as numcodecs configures them (level -1 is zlib's default)."""

    name: ClassVar[str] = "numcodecs.gzip"

    def __init__(self, level: int = 1) -> None:
        super().__init__(level)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        level = options.integer("level", -1, 9, 1)
        options.end()
        return cls(level)


class NumcodecsZlib(NumcodecsGzip):
    """zlib streams, as numcodecs configures them (level -1 is zlib's default)."""

    name: ClassVar[str] = "numcodecs.zlib"

    def _make_capsule(self) -> object:
        return native.zlib(self.level)

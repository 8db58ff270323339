"""A CRC-32C checksum beside the bytes, checked when they are read.

Spec     Zarr v3 codec "crc32c" 1.0; CRC-32C, RFC 3720 (12.1), stored as 4 little-endian bytes
v3 name  crc32c
v2 id    crc32c
Example  {"name": "crc32c", "configuration": {}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from zstore._ext.codecs import native
from zstore.codecs.native import NativeCodec, Options

__all__ = ["Crc32c", "NumcodecsCrc32c"]


class Crc32c(NativeCodec):
    """The checksum behind the bytes, as Zarr v3 has it."""

    name: ClassVar[str] = "crc32c"

    def _make_capsule(self) -> object:
        return native.crc32c()

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes; it has no options."""
        Options(cls.name, configuration).end()
        return cls()

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return {}


class NumcodecsCrc32c(NativeCodec):
    """The checksum at either end, as numcodecs configures it; behind the bytes by default."""

    name: ClassVar[str] = "numcodecs.crc32c"

    def __init__(self, location: str | None = None) -> None:
        self.location = location
        super().__init__()

    def _make_capsule(self) -> object:
        return native.crc32c(at_start=self.location == "start")

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        location = options.choice("location", ("start", "end")) if "location" in configuration else None
        options.end()
        return cls(location)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return {} if self.location is None else {"location": self.location}

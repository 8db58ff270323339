"""A CRC-32C checksum next to the bytes, verified when they are read.

Spec     Zarr v3 codec "crc32c" 1.0; CRC-32C, RFC 3720 (12.1), stored as 4 little-endian bytes
v3 name  crc32c
v2 id    crc32c
Example  {"name": "crc32c", "configuration": {}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zstore._ext.codecs import native
from zstore.codecs.base import NativeCodec, Option, choice


@dataclass(frozen=True)
class Crc32c(NativeCodec):
    """The checksum after the bytes, as in Zarr v3; it has no options."""

    name: ClassVar[str] = "crc32c"

    def _make_capsule(self) -> object:
        return native.crc32c()


@dataclass(frozen=True)
class NumcodecsCrc32c(NativeCodec):
    """The checksum before or after the bytes, with the configuration of numcodecs; after them by default."""

    name: ClassVar[str] = "numcodecs.crc32c"
    options: ClassVar[tuple[Option, ...]] = (choice("location", ("start", "end"), None),)

    location: str | None = None

    def _make_capsule(self) -> object:
        return native.crc32c(at_start=self.location == "start")

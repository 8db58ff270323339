"""LZ4 compression in numcodecs' format: the decoded size in 4 little-endian bytes, then one raw LZ4 block.

Spec     numcodecs "lz4"; LZ4 block format
v3 name  numcodecs.lz4
v2 id    lz4
Example  {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zstore._ext.codecs import native
from zstore.codecs.base import NativeCodec, Option, integer


@dataclass(frozen=True)
class NumcodecsLz4(NativeCodec):
    """LZ4; a higher `acceleration` is faster and compresses less."""

    name: ClassVar[str] = "numcodecs.lz4"
    options: ClassVar[tuple[Option, ...]] = (integer("acceleration", -(2**31), 2**31 - 1, 1),)

    acceleration: int = 1

    def _make_capsule(self) -> object:
        return native.lz4(self.acceleration)

"""LZ4 compression as numcodecs wraps it: the decoded size as 4 little-endian bytes, then one raw LZ4 block.

Spec     numcodecs "lz4"; LZ4 block format
v3 name  numcodecs.lz4
v2 id    lz4
Example  {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from zstore._ext.codecs import native
from zstore.codecs.native import NativeCodec, Options

__all__ = ["NumcodecsLz4"]


class NumcodecsLz4(NativeCodec):
    """LZ4 blocks; a higher `acceleration` is faster and compresses less."""

    name: ClassVar[str] = "numcodecs.lz4"

    def __init__(self, acceleration: int = 1) -> None:
        self.acceleration = acceleration
        super().__init__()

    def _make_capsule(self) -> object:
        return native.lz4(self.acceleration)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        acceleration = options.integer("acceleration", -(2**31), 2**31 - 1, 1)
        options.end()
        return cls(acceleration)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return {"acceleration": self.acceleration}

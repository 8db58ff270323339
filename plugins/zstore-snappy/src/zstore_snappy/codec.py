"""Snappy compression, raw blocks.

Spec     github.com/google/snappy, format_description.txt
v3 name  numcodecs.imagecodecs_snappy
v2 id    imagecodecs_snappy
Example  {"name": "numcodecs.imagecodecs_snappy", "configuration": {}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from zstore.codecs.native import NativeCodec, Options
from zstore_snappy import native

__all__ = ["Snappy"]


class Snappy(NativeCodec):
    """Fast compression of bytes; blocks of at most 2³² - 1 bytes."""

    name: ClassVar[str] = "numcodecs.imagecodecs_snappy"

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec; there is nothing to configure."""
        Options(cls.name, configuration).end()
        return cls()

    def to_configuration(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def _make_capsule(self) -> object:
        return native.snappy()

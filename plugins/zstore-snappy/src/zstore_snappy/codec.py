"""Snappy compression, raw blocks; without options.

Spec     github.com/google/snappy, format_description.txt
v3 name  numcodecs.imagecodecs_snappy
v2 id    imagecodecs_snappy
Example  {"name": "numcodecs.imagecodecs_snappy", "configuration": {}}
"""

from __future__ import annotations

from typing import ClassVar

from zstore.codecs.native import NativeCodec
from zstore_snappy import native

__all__ = ["Snappy"]


class Snappy(NativeCodec):
    """Fast compression of bytes; blocks of at most 2³² - 1 bytes."""

    name: ClassVar[str] = "numcodecs.imagecodecs_snappy"

    def _make_capsule(self) -> object:
        return native.snappy()

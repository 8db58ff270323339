"""Snappy compression, raw blocks.

Spec     github.com/google/snappy, format_description.txt
v3 name  numcodecs.imagecodecs_snappy
v2 id    imagecodecs_snappy
Example  {"name": "numcodecs.imagecodecs_snappy", "configuration": {}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zstore.plugin.codecs import NativeCodec, Option, integer
from zstore_snappy import native

__all__ = ["Snappy"]


@dataclass(frozen=True)
class Snappy(NativeCodec):
    """Snappy compression of chunks of at most 2³² - 1 bytes.

    `level` has no effect; imagecodecs writes it since 2026.10, mostly as null, so it is kept in documents.
    """

    name: ClassVar[str] = "numcodecs.imagecodecs_snappy"
    options: ClassVar[tuple[Option, ...]] = (integer("level", -(2**31), 2**31 - 1, None, may_be_null=True),)

    level: int | None = None

    def _make_capsule(self) -> object:
        return native.snappy()

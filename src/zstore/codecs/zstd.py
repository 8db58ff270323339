"""Zstandard compression.

Spec     zarr-extensions codec "zstd"; Zstandard frames, RFC 8878 (several in a row decode too)
v3 name  zstd
v2 id    zstd
Example  {"name": "zstd", "configuration": {"level": 3, "checksum": false}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zstore._ext.codecs import native
from zstore.codecs.base import NativeCodec, Option, flag, integer

_LOWEST, _HIGHEST = -131072, 22


@dataclass(frozen=True)
class Zstd(NativeCodec):
    """Zstandard with the configuration of Zarr v3; `level` 0 is zstd's default (3)."""

    name: ClassVar[str] = "zstd"
    # Both have defaults because writers before the specification left them out.
    options: ClassVar[tuple[Option, ...]] = (integer("level", _LOWEST, _HIGHEST, 0), flag("checksum", False))

    level: int = 0
    checksum: bool | None = False

    def _make_capsule(self) -> object:
        return native.zstd(min(max(self.level, _LOWEST), _HIGHEST), bool(self.checksum))


@dataclass(frozen=True)
class NumcodecsZstd(Zstd):
    """Zstandard with the configuration of numcodecs.

    A level out of zstd's range means the nearest one. `checksum` is written only if it was given: older
    releases of numcodecs do not know it.
    """

    name: ClassVar[str] = "numcodecs.zstd"
    options: ClassVar[tuple[Option, ...]] = (integer("level", -(2**31), 2**31 - 1, 0), flag("checksum", None))

    checksum: bool | None = None

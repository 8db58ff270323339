"""Zstandard compression.

Spec     zarr-extensions codec "zstd"; Zstandard frames, RFC 8878 (several in a row decode too)
v3 name  zstd
v2 id    zstd
Example  {"name": "zstd", "configuration": {"level": 3, "checksum": false}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from zstore._ext.codecs import native
from zstore.codecs.native import NativeCodec, Options

__all__ = ["NumcodecsZstd", "Zstd"]

_LOWEST, _HIGHEST = -131072, 22


class Zstd(NativeCodec):
    """Zstandard frames, as Zarr v3 configures them."""

    name: ClassVar[str] = "zstd"

    def __init__(self, level: int = 0, checksum: bool = False) -> None:
        self.level = level
        self.checksum = checksum
        super().__init__()

    def _make_capsule(self) -> object:
        return native.zstd(min(max(self.level, _LOWEST), _HIGHEST), self.checksum)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes; `level` 0 is zstd's default (3)."""
        options = Options(cls.name, configuration)
        # Writers before the codec was specified left these two out.
        level = options.integer("level", _LOWEST, _HIGHEST, 0)
        checksum = options.flag("checksum", False)
        options.end()
        return cls(level, checksum)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return {"level": self.level, "checksum": self.checksum}


class NumcodecsZstd(Zstd):
    """Zstandard frames, as numcodecs configures them.

    A level out of zstd's range means the nearest in it. `checksum` is written back only where it was given:
    older numcodecs do not know it.
    """

    name: ClassVar[str] = "numcodecs.zstd"

    def __init__(self, level: int = 0, checksum: bool | None = None) -> None:
        self._is_checksum_given = checksum is not None
        super().__init__(level, bool(checksum))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        level = options.integer("level", -(2**31), 2**31 - 1, 0)
        checksum = options.flag("checksum") if "checksum" in configuration else None
        options.end()
        return cls(level, checksum)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        checksum = {"checksum": self.checksum} if self._is_checksum_given else {}
        return {"level": self.level, **checksum}

"""Chunk-key encodings: the store keys of chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """A chunk-key encoding: `default` has keys like "c/1/2" ("c" for 0-d), `v2` like "1.2" ("0" for 0-d).

    Spec
        Zarr v3 core, "Chunk key encoding"; Zarr v2, "Arrays" and `dimension_separator`.
    """

    name: str = "default"
    separator: str = "/"

    @property
    def prefix(self) -> str:
        """The first part of every key: "c", or "" for the encoding `v2`."""
        return "c" if self.name == "default" else ""

    def key(self, coordinates: Iterable[int]) -> str:
        """The key of the chunk at `coordinates`, relative to the array."""
        parts = [str(coordinate) for coordinate in coordinates]
        if self.name == "default":
            return self.separator.join(["c", *parts])
        return self.separator.join(parts) or "0"

    def cell(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """The coordinates of the chunk under a key in a grid of `ndim` dimensions; None if it is no chunk."""
        parts = key.split(self.separator)
        if self.name == "default" and parts.pop(0) != "c":
            return None
        if ndim == 0:
            return () if key == self.key(()) else None
        # Keys that `key` would not make ("01", "+1", "²") are not chunks.
        if len(parts) != ndim or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        cell = tuple(int(part) for part in parts)
        return cell if self.key(cell) == key else None

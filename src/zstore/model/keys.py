"""The store key of a chunk, from its place in the grid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ChunkKeys"]


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """A chunk-key encoding: `default` gives "c/1/2" (and "c" for 0-d), `v2` gives "1.2" (and "0" for 0-d).

    Spec
        Zarr v3 core, "Chunk key encoding"; Zarr v2, "Arrays" and `dimension_separator`.
    """

    name: str = "default"
    separator: str = "/"

    @property
    def prefix(self) -> str:
        """What stands before the first coordinate (with its separator), or all of it for a 0-d array."""
        return "c" if self.name == "default" else ""

    def key(self, coordinates: Iterable[int]) -> str:
        """The key of the chunk at `coordinates`, relative to the array."""
        parts = [str(coordinate) for coordinate in coordinates]
        if self.name == "default":
            return self.separator.join(["c", *parts])
        return self.separator.join(parts) or "0"

"""How an array is cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RegularGrid"]


@dataclass(frozen=True, slots=True)
class RegularGrid:
    """Every chunk has the same shape; chunks at the far edges may stick out of the array.

    Spec
        Zarr v3 core, "Regular grids"; Zarr v2 `chunks`.
    """

    chunk_shape: tuple[int, ...]

    def count(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many chunks an array of `shape` has, per dimension."""
        return tuple(-(-length // chunk) for length, chunk in zip(shape, self.chunk_shape, strict=True))

"""The grids of a pyramid's levels, and the steps that make their cells: by whole factors of the source's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Documents
from zstore.geo.conventions.model import GeoModel, Level
from zstore.geo.pyramid.boxes import Box
from zstore.geo.pyramid.budget import Budget, plan_passes
from zstore.geo.pyramid.layers import Layer
from zstore.geo.pyramid.passes import Step
from zstore.nodes.array import Array

# The source's chunks are kept as tiles where they have such lengths; others are cut anew.
TILE_LENGTHS = range(64, 2049)
TILE_LENGTH = 512


@dataclass(frozen=True)
class Wanted:
    """A request for cells of a layer's levels, to be made within a budget.

    arrays  the arrays of the levels, the finest first
    masks   those of the layer's mask, where it is in the pyramid
    box     the box of the layer's source on which the cells depend; None: all
    """

    layer: Layer
    arrays: Sequence[Array]
    masks: Sequence[Array]
    budget: Budget
    box: Box | None


@dataclass(frozen=True, kw_only=True)
class LevelGrid:
    """The grid of a pyramid's levels, of one kind or another; building is the same for all kinds.

    names      of the levels, the finest first
    factors    (y, x) cells of a level that make one of the next
    tile       (y, x) cells of a tile
    kind       how the levels' windows lie: "aligned" or "gdal"
    is_copied  whether the finest level is made too; else it is there already, or not wanted
    is_absent  whether there is no finest level in the pyramid
    has_moved  whether the source lies elsewhere than it did, so that all cells are to be made
    """

    names: Sequence[str]
    factors: tuple[int, int]
    tile: tuple[int, int]
    kind: str = "aligned"
    is_copied: bool = True
    is_absent: bool = False
    has_moved: bool = False

    def place(self, geo: GeoModel) -> GeoModel:
        """The model of a source with the levels there will be."""
        raise NotImplementedError

    def steps(self, wanted: Wanted) -> list[Step]:
        """The steps that make the wanted cells, in order; progress counts the cells of the first step.

        Raises
            MetadataError: the budget does not hold one unit.
        """
        raise NotImplementedError

    def describe(self, geo: GeoModel, documents: Documents, profile: str | None) -> None:
        """Complete the rendered documents by what only this kind of grid knows."""

    def record(self) -> dict[str, Any]:
        """The members of the pyramid's record that only this kind of grid has."""
        return {}

    def pending(self) -> dict[str, Any]:
        """The members that the job's record of an update has, beside its boxes."""
        return {}


@dataclass(frozen=True, kw_only=True)
class FactorGrid(LevelGrid):
    """Levels whose cells are whole factors as large as those of the level before.

    own_tile  of the finest level, where it is in the pyramid already
    """

    own_tile: tuple[int, int] | None = None

    @classmethod
    def choose(
        cls,
        shape: tuple[int, int],
        own_tile: tuple[int, int],
        *,
        factors: tuple[int, int],
        kind: str,
        chunks: Any,
        count: Any,
        finest: str,
        is_copied: bool,
    ) -> FactorGrid:
        """The grid of the levels of a source of that shape, whose own tiles are `own_tile`.

        chunks     the tiles; None: the source's own, where they suit
        count      how many coarser levels; None: until one tile holds the coarsest
        finest     the source's name in the pyramid; "" where it is elsewhere
        is_copied  whether it is to be copied, then

        Raises
            MetadataError: what is asked for makes no levels.
        """
        tile = own_tile if all(length in TILE_LENGTHS for length in own_tile) else (TILE_LENGTH, TILE_LENGTH)
        tile = tile if chunks is None else pair_of(chunks, "chunks")
        count = _count_levels(shape, factors, tile) if count is None else count
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise MetadataError(f"levels is {count!r}; expected a whole number, or None")
        coarser = list(map(str, range(1, count + 1)))
        if finest in coarser:
            raise MetadataError(
                f"the finest level is named {finest!r}, as one of {count} coarser ones would be"
            )
        if not (count or finest or is_copied):
            raise MetadataError("there is no level to make: the array fits a tile, and is not to be copied")
        return cls(
            names=[finest or "0", *coarser],
            factors=factors,
            tile=tile,
            kind=kind,
            is_copied=is_copied and not finest,
            is_absent=not (is_copied or finest),
            own_tile=own_tile if finest else None,
        )

    def place(self, geo: GeoModel) -> GeoModel:
        names = self.names
        if self.is_absent:
            # The first level that is made stands for the finest, and cells are counted in its cells.
            first = self._level(geo, names[1], 1)
            geo, names = replace(geo, shape=first.shape, affine=first.affine), names[1:]
        levels = [self._level(geo, name, step) for step, name in enumerate(names)]
        if self.own_tile is not None:
            levels[0] = replace(levels[0], tile_shape=self.own_tile)
        return replace(geo, levels=tuple(levels))

    def _level(self, geo: GeoModel, name: str, step: int) -> Level:
        y, x = self.factors
        level = geo.plan_level(name, (y**step, x**step), self.tile)
        if self.kind == "aligned":
            return level
        ratios = (geo.shape[0] / level.shape[0], geo.shape[1] / level.shape[1])
        affine = None if geo.affine is None else geo.affine.scaled(ratios)
        return replace(level, factors=ratios, affine=affine)

    def steps(self, wanted: Wanted) -> list[Step]:
        """The passes that make a copy of the source, where it is wanted, and the levels."""
        arrays = wanted.arrays
        copy, levels = (arrays[0], arrays[1:]) if self.is_copied else (None, arrays)
        masks = wanted.masks[len(arrays) - len(levels) :]
        passes = plan_passes(wanted.layer.recipe, copy, levels, wanted.budget, wanted.box, masks)
        return [Step(work) for work in passes]


def pair_of(value: Any, name: str) -> tuple[int, int]:
    """(y, x) of a number that a caller gives for both, or of a pair.

    Raises
        MetadataError: it is no such number, or pair.
    """
    numbers = (value, value) if isinstance(value, int) else value
    if isinstance(numbers, Sequence) and len(numbers) == 2:
        y, x = numbers
        if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (y, x)):
            return y, x
    raise MetadataError(f"{name} is {value!r}; expected a whole number of at least 1, or two (y, x)")


def _count_levels(shape: tuple[int, int], factors: tuple[int, int], tile: tuple[int, int]) -> int:
    """The number of levels until the coarsest fits into a tile."""
    (rows, columns), (y, x), count = shape, factors, 0
    while (rows > tile[0] and y > 1) or (columns > tile[1] and x > 1):
        rows, columns, count = -(-rows // y), -(-columns // x), count + 1
    return count

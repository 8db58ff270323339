"""Levels on the grids of a tile matrix set: which matrices and tiles, and the steps that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.base import Documents
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import enlarge_tiles, name_set
from zstore.geo.conventions.model import Affine, GeoModel, Level
from zstore.geo.conventions.profiles import load_profile
from zstore.geo.conventions.tilesets.registry import TileMatrix, TileMatrixSet, load_tile_matrix_set
from zstore.geo.pyramid.boxes import Box, Shape, whole, with_sides
from zstore.geo.pyramid.budget import direct_depth, plan_passes
from zstore.geo.pyramid.coverage import (
    Tiles,
    choose_matrix,
    cover,
    limits_of,
    rectangles,
    split_at_gap,
    tile_finder,
    tiles_by_level,
)
from zstore.geo.pyramid.dataset import Dataset
from zstore.geo.pyramid.grids import LevelGrid, Wanted
from zstore.geo.pyramid.passes import Pass, Step
from zstore.geo.pyramid.reproject import Reprojection, window_cells
from zstore.geo.pyramid.transform import GridTransform
from zstore.nodes.array import Array

# Coordinates of a whole tile matrix soon outgrow the few tiles that are stored; the affine says the same.
TILE_COORDINATE_LIMIT = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TileGrid(LevelGrid):
    """Tile matrices as levels, the finest first, and which tiles of each the data show in.

    known      the tile matrix set; `times` is how often its tiles are enlarged
    transform  from the finest matrix to the source
    scale      (y, x) cells of the finest per cell of the source
    tiles      level by level, those that the source may show in
    sources    grids that the source has, and had when tiles were made of it: (affine, rows, columns) each
    every      level by level, the tiles that it may show in on any of these grids
    """

    known: TileMatrixSet
    times: int
    matrices: Sequence[TileMatrix]
    transform: GridTransform
    scale: tuple[float, float]
    tiles: Sequence[Tiles]
    sources: Sequence[Sequence[float]]
    every: Sequence[Tiles]

    @classmethod
    def choose(
        cls,
        dataset: Dataset,
        tile_matrix_set: str,
        tile_length: int | None,
        tolerance: float,
        first: Any,
        last: Any,
    ) -> TileGrid:
        """The tile matrices from `first` to `last`, or those that suit the data.

        Raises
            NotFoundError: there is no such set or tile matrix.
            MetadataError: the data have no CRS or affine, or lie outside the set; an unfit tile length.
            UnsupportedError: the matrices do not lie in one another by one whole factor.
        """
        known = load_tile_matrix_set(tile_matrix_set)
        times = _count_times(known, tile_length)
        matrices = [enlarge_tiles(matrix, times) for matrix in known.tile_matrices.values()]
        transform = _transform(dataset, known, matrices[-1], tolerance)
        finest = choose_matrix(transform, matrices) if last is None else _named(matrices, last, known)
        transform = replace(transform, target_affine=finest.affine)
        covered = cover(transform, finest)
        if not len(covered):
            raise MetadataError(
                f"the data lie outside {known.id}, {finest.bounds}; expected some within", path=dataset.place
            )
        end = matrices.index(finest)
        begin = 0 if first is None else matrices.index(_named(matrices, first, known))
        if begin > end:
            raise MetadataError(f"min_zoom is {first!r}, finer than max_zoom, {finest.id!r}")
        chosen = matrices[begin : end + 1][::-1]
        factor = _factor(known, chosen)
        tiles = tiles_by_level([covered], factor, len(chosen))
        if first is None:
            # Beyond the first level that is one tile, all are.
            count = next((n for n, found in enumerate(tiles, 1) if len(found) == 1), len(tiles))
            chosen, tiles = chosen[:count], tiles[:count]
        middle = covered[len(covered) // 2] + 0.5
        place = (float(middle[0] * finest.tile_shape[0]), float(middle[1] * finest.tile_shape[1]))
        return cls(
            names=[matrix.id for matrix in chosen],
            factors=(factor, factor),
            tile=finest.tile_shape,
            known=known,
            times=times,
            matrices=chosen,
            transform=transform,
            scale=transform.scale(*place),
            tiles=tiles,
            sources=[[*transform.source_affine, *transform.source_shape]],
            every=tiles,
        )

    def after(self, grids: Sequence[Sequence[float]]) -> TileGrid:
        """The same grid for a source that lay on those grids, too, when tiles were made of it."""
        sources, covered = list(self.sources), [self.tiles[0]]
        for grid in grids:
            if list(grid) not in sources:
                sources.append(list(grid))
                *affine, rows, columns = grid
                shape = (int(rows), int(columns))
                former = replace(self.transform, source_affine=Affine(*affine), source_shape=shape)
                covered.append(cover(former, self.matrices[0]))
        every = tiles_by_level(covered, self.factors[0], len(self.tiles))
        return replace(self, sources=sources, every=every, has_moved=len(sources) > 1)

    def place(self, geo: GeoModel) -> GeoModel:
        """The model of a source with the levels there will be, each spanning its matrix."""
        finest, levels = self.matrices[0], []
        for step, matrix in enumerate(self.matrices):
            factors = (self.factors[0] ** step, self.factors[1] ** step)
            affine = finest.affine.scaled(factors)
            levels.append(Level(matrix.id, matrix.shape, affine, factors, matrix.tile_shape))
        crs = self.transform.target_crs
        return replace(geo, crs=crs, affine=finest.affine, shape=finest.shape, levels=tuple(levels))

    def describe(self, geo: GeoModel, documents: Documents, profile: str | None) -> None:
        """Put the set's name and the limits into the rendered documents, and leave long coordinates out."""
        for level in () if load_profile(profile).wants_all else geo.levels:
            for name in geo.dimensions if max(level.shape) > TILE_COORDINATE_LIMIT else ():
                documents.pop(f"{level.path}/{name}", None)
        attributes = documents[""]["attributes"]
        stated = attributes.get("multiscales")
        if isinstance(stated, Mapping) and "tile_matrix_set" in stated:
            limits = {m.id: limits_of(found) for m, found in zip(self.matrices, self.tiles, strict=True)}
            attributes["multiscales"] = name_set(stated, self.known, self.times, limits)

    def record(self) -> dict[str, Any]:
        tolerance = self.transform.tolerance
        return {"tile_matrix_set": self.known.id, "tile": list(self.tile), "tolerance": tolerance}

    def pending(self) -> dict[str, Any]:
        return {"grids": [list(grid) for grid in self.sources]}

    def steps(self, wanted: Wanted) -> list[Step]:
        """The step that samples the finest level from the source, then the passes that make the others."""
        layer, arrays, masks, box = wanted.layer, wanted.arrays, wanted.masks, wanted.box
        budget = wanted.budget
        axes, recipe, finest, mask = layer.axes, layer.recipe, arrays[0], layer.recipe.mask
        assert layer.sampling is not None
        work = Reprojection(
            recipe.source,
            finest,
            axes,
            self.transform,
            layer.sampling,
            0 if recipe.nodata is None and layer.is_mask else recipe.nodata,
            mask,
            self.scale,
            *window_cells(finest, axes, budget),
            whole(recipe.source.shape) if box is None else box,
            clears=self.has_moved,
            tiles=self.every[0],
        )
        is_whole = box is None or all(box[axis] == slice(0, recipe.source.shape[axis]) for axis in axes)
        if not is_whole and box is not None:
            work = replace(work, tiles=work.tiles_of(self.matrices[0], box))
        steps = [Step(work)]
        if not len(work.tiles) or len(arrays) == 1:
            return steps
        # However small the source is, tile matrices are as large as the ground: as many levels are made at a
        # time as windows fit in memory.
        depth = min(recipe.depth, direct_depth(finest, recipe.factors))
        # What has nodata has it where the mask left cells out.
        of_mask = replace(mask, array=masks[0]) if mask is not None and recipe.nodata is None else None
        of_finest = replace(recipe, source=finest, mask=of_mask, depth=depth)
        # Where all is made, what reads no tile is left out, unit by unit.
        for rectangle in map(limits_of, split_at_gap(work.tiles)) if is_whole else rectangles(work.tiles):
            within = self._box(work.within, axes, rectangle)
            passes = plan_passes(of_finest, None, arrays[1:], budget, within, masks[1:])
            steps += [
                Step(found, self._blanks(arrays, found, axes) if is_whole else None) for found in passes
            ]
        return steps

    def _box(self, within: Box, axes: tuple[int, int], tiles: tuple[int, int, int, int]) -> Box:
        """The box of an array on the finest matrix that a rectangle of tiles covers."""
        (height, width), (top, bottom, left, right) = self.tile, tiles
        sides = slice(top * height, (bottom + 1) * height), slice(left * width, (right + 1) * width)
        return with_sides(within, axes, sides)

    def _blanks(self, arrays: Sequence[Array], work: Pass, axes: tuple[int, int]) -> Callable[[Shape], bool]:
        """A function that tells whether a unit reads only tiles that nothing is stored of."""
        tiles = self.every[next(n for n, array in enumerate(arrays) if array is work.source)]
        shows = tile_finder(tiles, axes, self.tile)
        return lambda unit: not shows(work.needs(unit)[0])


def _transform(dataset: Dataset, known: TileMatrixSet, matrix: TileMatrix, tolerance: float) -> GridTransform:
    """From a matrix of the set to the source."""
    geo = dataset.geo
    if geo.crs is None or geo.affine is None:
        what = "CRS" if geo.crs is None else "affine"
        raise MetadataError(f"the data have no {what}; expected one, to reproject them", path=dataset.place)
    return GridTransform(geo.crs, geo.affine, geo.shape, Crs.from_user(known.crs), matrix.affine, tolerance)


def _count_times(known: TileMatrixSet, length: int | None) -> int:
    """The length of the tiles that are asked for, in lengths of the set's own."""
    height, width = next(iter(known.tile_matrices.values())).tile_shape
    if length is None:
        return 1
    is_whole = isinstance(length, int) and not isinstance(length, bool) and length > 0
    if not is_whole or length % height or length % width:
        raise MetadataError(
            f"tile_length is {length!r}; expected a multiple of {max(height, width)}, as {known.id} has it"
        )
    if height != width:
        raise UnsupportedError(f"tiles of {known.id} are {height} by {width}; expected as wide as high")
    return length // height


def _named(matrices: Sequence[TileMatrix], name: Any, known: TileMatrixSet) -> TileMatrix:
    wanted = known[str(name)]
    return next(matrix for matrix in matrices if matrix.id == wanted.id)


def _factor(known: TileMatrixSet, matrices: Sequence[TileMatrix]) -> int:
    """The factor from each matrix to the next coarser one, which all of them share.

    Raises
        UnsupportedError: it is not, or rows of tiles are of different lengths.
    """
    factors = {2} if len(matrices) == 1 else set()
    for finer, next_one in pairwise(matrices):
        ratio = next_one.cell_size / finer.cell_size
        factor = round(ratio)
        fits = abs(ratio - factor) <= 1e-9 * ratio and finer.origin == next_one.origin
        fits = fits and finer.tile_shape == next_one.tile_shape
        fits = fits and all(-(-n // factor) == m for n, m in zip(finer.shape, next_one.shape, strict=True))
        factors.add(factor if fits and factor > 1 else 0)
    if len(factors) != 1 or 0 in factors or any(matrix.coalesced for matrix in matrices):
        span = f"{matrices[-1].id} to {matrices[0].id}"
        raise UnsupportedError(
            f"tile matrices {span} of {known.id} do not lie in one another by one whole factor; expected "
            "a set like WebMercatorQuad, or other zoom levels"
        )
    return factors.pop()

"""Where on the grids of a tile matrix set a raster comes to lie: which matrices, which of their tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from zstore.conventions.crs import Crs
from zstore.conventions.model import Level
from zstore.conventions.tilesets.naming import Limits, enlarge_tiles
from zstore.conventions.tilesets.registry import TileMatrix, TileMatrixSet
from zstore.errors import MetadataError, UnsupportedError
from zstore.pyramid.cascade import Box
from zstore.pyramid.dataset import Dataset
from zstore.pyramid.tiling.cover import Tiles, choose_matrix, coarser, cover, limits_of
from zstore.pyramid.tiling.places import Trace

__all__ = ["Ground", "count_times"]


def count_times(known: TileMatrixSet, length: int | None) -> int:
    """How many times as long as the set's own tiles are those asked for."""
    height, width = next(iter(known.tile_matrices.values())).tile_shape
    if length is None:
        return 1
    if (
        isinstance(length, bool)
        or not isinstance(length, int)
        or length < 1
        or length % height
        or length % width
    ):
        raise MetadataError(
            f"tile_length is {length!r}; expected a multiple of {max(height, width)}, as {known.id} has it"
        )
    if height != width:
        raise UnsupportedError(f"tiles of {known.id} are {height} by {width}; expected as wide as high")
    return length // height


@dataclass(frozen=True)
class Ground:
    """Which tile matrices are made, the finest first, and which tiles of each the data show in.

    trace   to the finest
    factor  how many cells of one make one of the next
    scale   (y, x) cells of the finest per cell of the source
    """

    known: TileMatrixSet
    times: int
    crs: Crs
    trace: Trace
    matrices: Sequence[TileMatrix]
    tiles: Sequence[Tiles]
    factor: int
    scale: tuple[float, float]

    @classmethod
    def choose(
        cls, dataset: Dataset, known: TileMatrixSet, times: int, tolerance: float, first: Any, last: Any
    ) -> Ground:
        """The tile matrices from `first` to `last`, or those that suit the data."""
        geo = dataset.geo
        if geo.crs is None or geo.affine is None:
            what = "CRS" if geo.crs is None else "affine"
            raise MetadataError(
                f"the data have no {what}; expected one, to reproject them", path=dataset.place
            )
        crs = Crs.from_user(known.crs)
        every = [enlarge_tiles(matrix, times) for matrix in known.tile_matrices.values()]
        trace = Trace(geo.crs, geo.affine, geo.shape, crs, every[-1].affine, tolerance)
        finest = choose_matrix(trace, every) if last is None else _named(every, last, known)
        trace = replace(trace, target_affine=finest.affine)
        tiles = [cover(trace, finest)]
        if not len(tiles[0]):
            raise MetadataError(
                f"the data lie outside {known.id}, {finest.bounds}; expected some within", path=dataset.place
            )
        end = every.index(finest)
        begin = 0 if first is None else every.index(_named(every, first, known))
        if begin > end:
            raise MetadataError(f"min_zoom is {first!r}, finer than max_zoom, {finest.id!r}")
        matrices = every[begin : end + 1][::-1]
        factor = _factor(known, matrices)
        for _ in matrices[1:]:
            tiles.append(coarser(tiles[-1], factor))
        if first is None:
            # Beyond the first level that is one tile, all are.
            count = next((n for n, found in enumerate(tiles, 1) if len(found) == 1), len(tiles))
            matrices, tiles = matrices[:count], tiles[:count]
        middle = tiles[0][len(tiles[0]) // 2] + 0.5
        place = (float(middle[0] * finest.tile_shape[0]), float(middle[1] * finest.tile_shape[1]))
        return cls(known, times, crs, trace, matrices, tiles, factor, trace.scale(*place))

    @property
    def limits(self) -> dict[str, Limits]:
        """By level: the tiles that may hold data."""
        return {m.id: limits_of(found) for m, found in zip(self.matrices, self.tiles, strict=True)}

    def levels(self) -> tuple[Level, ...]:
        """The levels, each spanning its matrix."""
        finest, made = self.matrices[0], []
        for step, matrix in enumerate(self.matrices):
            factors = (self.factor**step, self.factor**step)
            made.append(
                Level(matrix.id, matrix.shape, finest.affine.scaled(factors), factors, matrix.tile_shape)
            )
        return tuple(made)

    def box(self, shape: tuple[int, ...], axes: tuple[int, int]) -> Box:
        """Of an array of that shape on the finest matrix, what its tiles within the limits hold."""
        top, bottom, left, right = limits_of(self.tiles[0])
        height, width = self.matrices[0].tile_shape
        box = [slice(0, size) for size in shape]
        box[axes[0]] = slice(top * height, (bottom + 1) * height)
        box[axes[1]] = slice(left * width, (right + 1) * width)
        return tuple(box)


def _named(matrices: Sequence[TileMatrix], name: Any, known: TileMatrixSet) -> TileMatrix:
    wanted = known[str(name)]
    return next(matrix for matrix in matrices if matrix.id == wanted.id)


def _factor(known: TileMatrixSet, matrices: Sequence[TileMatrix]) -> int:
    """How many cells of a matrix make one of the next coarser, which is the same all the way.

    Raises
        UnsupportedError: it is not, or rows of tiles are of different lengths.
    """
    factors = {2} if len(matrices) == 1 else set()
    for finer, next_one in pairwise(matrices):
        ratio = next_one.cell_size / finer.cell_size
        whole = round(ratio)
        fits = abs(ratio - whole) <= 1e-9 * ratio and finer.origin == next_one.origin
        fits = fits and finer.tile_shape == next_one.tile_shape
        fits = fits and all(-(-n // whole) == m for n, m in zip(finer.shape, next_one.shape, strict=True))
        factors.add(whole if fits and whole > 1 else 0)
    if len(factors) != 1 or 0 in factors or any(matrix.coalesced for matrix in matrices):
        span = f"{matrices[-1].id} to {matrices[0].id}"
        raise UnsupportedError(
            f"tile matrices {span} of {known.id} do not lie in one another by one whole factor; expected "
            "a set like WebMercatorQuad, or other zoom levels"
        )
    return factors.pop()

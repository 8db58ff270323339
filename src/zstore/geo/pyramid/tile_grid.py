"""Levels on the tile matrices of a set: the tiles that a raster covers, and the sampling of the finest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from zstore.base.boxes import Box, Items, Shape, hull, inside, lengths, volume, whole, with_sides
from zstore.base.once import once
from zstore.engine.documents import place
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.base import Affine, Documents, GeoModel, Level
from zstore.geo.conventions.crs import METRES_PER_RADIAN, Crs
from zstore.geo.conventions.geozarr import enlarge_tiles, name_set
from zstore.geo.conventions.tilesets.registry import TileMatrix, TileMatrixSet, load_tile_matrix_set
from zstore.geo.conventions.write import load_profile
from zstore.geo.pyramid.dataset import Dataset, Mask, read_window
from zstore.geo.pyramid.levels import LevelGrid, Wanted
from zstore.geo.pyramid.passes import Budget, LevelPlan, Pass, Step, direct_depth, outer_chunks, plan_passes
from zstore.geo.resampling.sample import AREAS, reach_of, sample
from zstore.jobs.chunks import StoredArray
from zstore.jobs.runner import units_at_once
from zstore.jobs.source import Source
from zstore.model.packing import with_one_nodata
from zstore.nodes.array import Array

# Transforms between grids in different CRSs

Floats = np.ndarray[Any, np.dtype[np.float64]]

# In cells of the source: how far an approximated place may be off, as for gdalwarp.
TOLERANCE = 0.125
# Positions along each side of a block whose places are transformed; all others are those of a polynomial.
KNOT_COUNT = 5
# Blocks with a side of so few cells are transformed cell by cell.
LEAST_LENGTH = 16
# Rows whose places are interpolated at a time: products of matrices this small stay on their thread.
ROW_COUNT = 64


@dataclass(frozen=True)
class GridTransform:
    """A transform from positions on a target grid to those on a source grid, in cells from the corner.

    source_shape  (rows, columns) of the source; longitudes are taken once round the globe to meet it
    tolerance     how many cells of the source a place may be off; 0: none is approximated
    """

    source_crs: Crs
    source_affine: Affine
    source_shape: tuple[int, int]
    target_crs: Crs
    target_affine: Affine
    tolerance: float = TOLERANCE

    def to_source(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(columns, rows) of the source at those of the target; not finite if undefined."""
        x, y = self._project(columns, rows)
        return self._turned(*_cells_at(self.source_affine, x, y))

    def to_target(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(columns, rows) of the target at those of the source."""
        x, y = self.source_affine.at(columns, rows)
        return _cells_at(self.target_affine, *self.source_crs.transform(self.target_crs, x, y))

    def crop(self, rows: slice, columns: slice) -> GridTransform:
        """The transform to those cells of the source alone."""
        return replace(
            self,
            source_affine=self.source_affine.moved(columns.start, rows.start),
            source_shape=(rows.stop - rows.start, columns.stop - columns.start),
        )

    def under_block(
        self, row: int, column: int, shape: tuple[int, int], *, corners: bool
    ) -> tuple[Floats, Floats]:
        """(columns, rows) of the source under the cells of a block that begins at (row, column).

        Places are those of the cells' centres, or of their corners. What they come to depends on the block,
        but on nothing beyond it.
        """
        count, offset = (1, 0.0) if corners else (0, 0.5)
        rows, columns = (
            at + offset + np.arange(size + count, dtype=np.float64)
            for at, size in zip((row, column), shape, strict=True)
        )
        places = np.empty((2, len(rows), len(columns)))
        self._fill(rows, columns, places)
        return places[0], places[1]

    def scale(self, row: float, column: float) -> tuple[float, float]:
        """(y, x) cells of the target per cell of the source, around a position of the target."""
        columns, rows = self.to_source(
            np.array([column - 0.5, column + 0.5, column, column]), np.array([row, row, row - 0.5, row + 0.5])
        )
        spans = [math.hypot(part[1] - part[0], part[3] - part[2]) for part in (rows, columns)]
        y, x = (1 / span if math.isfinite(span) and span > 0 else 1.0 for span in spans)
        return y, x

    def across_cut(self, columns: Floats, rows: Floats) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Whether each cell has corners on both sides of the source's first meridian; None if none has.

        `columns` and `rows` are the places of the corners, (H + 1, W + 1); the result is (H, W).
        """
        if not self.source_crs.is_geographic:
            return None
        right, down = self._turn()
        places, most = (columns, abs(right) / 2) if abs(right) >= abs(down) else (rows, abs(down) / 2)
        corners = (places[:-1, :-1], places[:-1, 1:], places[1:, :-1], places[1:, 1:])
        with np.errstate(invalid="ignore"):
            span = np.maximum.reduce(corners) - np.minimum.reduce(corners)
            crosses = (span > most) & np.isfinite(span)
        return crosses if crosses.any() else None

    def beside_cut(self, columns: Floats, rows: Floats) -> list[tuple[Floats, Floats]]:
        """The positions twice: moved to one side of the meridian that cuts the source, and to the other."""
        right, down = self._turn()
        places = columns * right + rows * down
        with np.errstate(invalid="ignore"):
            finite = places[np.isfinite(places)]
            is_far = places > (finite.min() + finite.max()) / 2
        return [
            (columns - right * is_far, rows - down * is_far),
            (columns + right * ~is_far, rows + down * ~is_far),
        ]

    def _turn(self) -> tuple[float, float]:
        """(columns, rows) of the source that one turn round the globe eastwards comes to."""
        right, down = self.source_affine._replace(c=0, f=0).cell_at(self._circle(), 0.0)
        return right, down

    @property
    def columns_around(self) -> float:
        """The columns of the source once round the globe; 0 of a rotated one, or one that has no degrees."""
        is_plain = self.source_crs.is_geographic and not self.source_affine.is_rotated
        return abs(self._turn()[0]) if is_plain else 0.0

    def _circle(self) -> float:
        """The length of the equator, in the source's unit."""
        return 2 * math.pi * METRES_PER_RADIAN / self.source_crs.metres_per_unit

    def _project(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(x, y) in the source's CRS."""
        return self.target_crs.transform(self.source_crs, *self.target_affine.at(columns, rows))

    def _turned(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """The same positions, turned round the globe until they meet the source."""
        if not self.source_crs.is_geographic:
            return columns, rows
        # A grid may begin at any meridian; degrees are for counting round the globe.
        affine = self.source_affine
        edge = affine.bounds(self.source_shape)[0] - affine.c
        right, down = self._turn()
        with np.errstate(invalid="ignore"):
            east = affine.a * columns - edge
            turns = np.floor((east + affine.b * rows if affine.is_rotated else east) / self._circle())
            if turns.any():
                columns = np.where(turns == 0, columns, columns - right * turns)
                rows = np.where(turns == 0, rows, rows - down * turns) if affine.is_rotated else rows
        return columns, rows

    def _fill(self, rows: Floats, columns: Floats, places: Floats) -> None:
        """Fill `places` (2, y, x) with (columns, rows) of the source at rows and columns of the target."""
        if self.tolerance == 0 or min(len(rows), len(columns)) <= LEAST_LENGTH:
            places[:] = self.to_source(*np.meshgrid(columns, rows))
        elif not self._approximate(rows, columns, places):
            y, x = len(rows) // 2, len(columns) // 2
            for top, left in product((slice(y), slice(y, None)), (slice(x), slice(x, None))):
                self._fill(rows[top], columns[left], places[:, top, left])

    def _approximate(self, rows: Floats, columns: Floats, places: Floats) -> bool:
        """Fill `places` by a polynomial through those of a few positions; False where that is too inexact."""
        sides = [(line[0], line[-1] - line[0], _knots(len(line))) for line in (rows, columns)]
        grids = [
            np.meshgrid(*(start + getattr(knots, name) * length for start, length, knots in reversed(sides)))
            for name in ("knots", "between")
        ]
        exact = self._project(*(np.concatenate([grid[axis].ravel() for grid in grids]) for axis in (0, 1)))
        if not all(np.isfinite(part).all() for part in exact):
            return False
        y, x = sides[0][2], sides[1][2]
        coarse = list[tuple[Floats, float]]()
        # Cells are regular, so that interpolating them is the same as interpolating coordinates.
        for part in _cells_at(self.source_affine, *exact):
            knots, origin = part[: KNOT_COUNT**2].reshape(KNOT_COUNT, KNOT_COUNT), part[0]
            knots = knots - origin  # small numbers keep their last digits
            made = y.at_between @ knots @ x.at_between.T + origin
            # Half of what is allowed: beside the positions that were looked at, it may be a little more.
            if not np.abs(made.ravel() - part[KNOT_COUNT**2 :]).max() <= self.tolerance / 2:
                return False
            coarse.append((knots @ x.at_cells.T, origin))
        for (wide, origin), made in zip(coarse, places, strict=True):
            for begin in range(0, len(rows), ROW_COUNT):
                lines = slice(begin, begin + ROW_COUNT)
                np.add(y.at_cells[lines] @ wide, origin, out=made[lines])
        if self.source_crs.is_geographic:
            places[0], places[1] = self._turned(places[0], places[1])
        return True


class _Knots(NamedTuple):
    """Positions along a side from 0 to 1, and the weights of the knots' values elsewhere: polynomials.

    knots     Chebyshev's points, from which polynomials stray least
    between   the positions, ends included, where they stray most
    at_between, at_cells  the weights at these, and at evenly spaced cells: a row for each
    """

    knots: Floats
    between: Floats
    at_between: Floats
    at_cells: Floats


@lru_cache(64)
def _knots(count: int) -> _Knots:
    """The knots of a side of `count` cells."""
    knots = (1 - np.cos(np.pi * (np.arange(KNOT_COUNT) + 0.5) / KNOT_COUNT)) / 2
    between = (1 - np.cos(np.pi * np.arange(KNOT_COUNT + 1) / KNOT_COUNT)) / 2

    def weights(at: Floats) -> Floats:
        made = [
            np.prod((at[:, None] - others) / (knot - others), axis=1)
            for n, knot in enumerate(knots)
            for others in [np.delete(knots, n)]
        ]
        return np.ascontiguousarray(np.stack(made, axis=1))

    return _Knots(knots, between, weights(between), weights(np.linspace(0, 1, count)))


def _cells_at(affine: Affine, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """(columns, rows) of positions, some of which may be undefined."""
    with np.errstate(invalid="ignore", over="ignore"):
        return affine.cell_at(x, y)


# The tiles that a raster covers

# (row, column) of tiles, one pair per line, in order.
Tiles = np.ndarray[Any, np.dtype[np.int64]]

FIRST_COUNT = 33
# Beyond that, places are no longer laid out more densely: what lies between is looked at more widely.
LAST_COUNT = 2049
SIDE = 5


def cover(transform: GridTransform, matrix: TileMatrix) -> Tiles:
    """The tiles in which the source may lie, without those that it certainly does not touch.

    Places of the source are laid out so densely that neighbours are at most a tile apart in the target. Their
    tiles, and the tiles around, are all that can hold anything; of those, tiles that lie beside the source
    are left out.
    """
    counts = [FIRST_COUNT, FIRST_COUNT]
    while True:
        places = [np.linspace(0, size, n) for size, n in zip(transform.source_shape, counts, strict=True)]
        rows, columns = _tile_places(transform, matrix, places[0], places[1])
        jumps = [_jump(rows, columns, axis, matrix) for axis in (0, 1)]
        dense = [n >= LAST_COUNT or jump <= 1 for n, jump in zip(counts, jumps, strict=True)]
        if all(dense):
            break
        counts = [n if done else 2 * n - 1 for n, done in zip(counts, dense, strict=True)]
    near = math.ceil(max(1.0, *jumps))
    is_defined = np.isfinite(rows) & np.isfinite(columns)
    candidates = _around(np.floor(rows[is_defined]), np.floor(columns[is_defined]), near, matrix)
    kept: Tiles = candidates[_is_near(transform, matrix, candidates)]
    return kept


def _tile_places(
    transform: GridTransform, matrix: TileMatrix, rows: Floats, columns: Floats
) -> tuple[Floats, Floats]:
    """(row, column) in tiles of positions of the source; NaN for those beyond the matrix's sides."""
    grid = np.meshgrid(columns, rows)
    x, y = transform.to_target(grid[0], grid[1])
    with np.errstate(invalid="ignore"):
        down, right = y / matrix.tile_shape[0], x / matrix.tile_shape[1]
        # A little more than the matrix, so that what crosses its edge still has neighbours.
        down, right = (
            np.clip(place, -1, size + 1)
            for place, size in zip((down, right), matrix.matrix_shape, strict=True)
        )
    lost = ~(np.isfinite(x) & np.isfinite(y))
    down[lost] = right[lost] = np.nan
    return down, right


def _jump(rows: Floats, columns: Floats, axis: int, matrix: TileMatrix) -> float:
    """The greatest distance of neighbours along an axis, in tiles.

    Those on two sides of the antimeridian do not count, nor those beyond the same edge of the matrix: around
    a pole they are as far apart as the matrix is wide.
    """
    steps = np.stack([np.abs(np.diff(rows, axis=axis)), np.abs(np.diff(columns, axis=axis))])
    steps[1][steps[1] > matrix.matrix_shape[1] / 2] = 0
    for beyond in (rows < -0.5, rows > matrix.matrix_shape[0] + 0.5):
        pairs = np.moveaxis(beyond, axis, 0)
        steps[:, np.moveaxis(pairs[1:] & pairs[:-1], 0, axis)] = 0
    return float(np.nanmax(steps, initial=0.0))


def _around(rows: Floats, columns: Floats, near: int, matrix: TileMatrix) -> Tiles:
    """The tiles at these positions and up to `near` tiles around them."""
    height, width = matrix.matrix_shape
    codes = np.unique((rows.astype(np.int64) + near) * (width + 4 * near) + columns.astype(np.int64) + near)
    tiles = np.stack(np.divmod(codes, width + 4 * near), axis=-1) - near
    steps = np.arange(-near, near + 1)
    offsets = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    spread = (tiles[:, None, :] + offsets).reshape(-1, 2)
    inside = ((spread >= 0) & (spread < (height, width))).all(axis=1)
    return np.unique(spread[inside], axis=0)


def _is_near(
    transform: GridTransform, matrix: TileMatrix, tiles: Tiles
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each tile, whether the hull of its positions in the source, and a margin, overlaps the source."""
    steps = np.linspace(0, 1, SIDE)
    rows = (tiles[:, 0, None, None] + steps[:, None]) * matrix.tile_shape[0]
    columns = (tiles[:, 1, None, None] + steps) * matrix.tile_shape[1]
    full = np.broadcast_arrays(columns, rows)
    places = transform.to_source(np.ascontiguousarray(full[0]), np.ascontiguousarray(full[1]))
    lost = ~(np.isfinite(places[0]) & np.isfinite(places[1]))
    meets, turn = np.asarray(~lost.all(axis=(1, 2))), transform.columns_around
    if turn:
        # Beside the meridian where the source begins, neighbours are a turn apart.
        whole_tiles = ~lost.any(axis=(1, 2))
        running = np.unwrap(np.unwrap(places[0][whole_tiles], period=turn, axis=2), period=turn, axis=1)
        running -= np.floor((running.max(axis=(1, 2), keepdims=True) + 1) / turn) * turn
        places[0][whole_tiles] = running
    for part, size in zip(places, transform.source_shape[::-1], strict=True):
        low = np.where(lost, np.inf, part).min(axis=(1, 2))
        high = np.where(lost, -np.inf, part).max(axis=(1, 2))
        with np.errstate(invalid="ignore"):
            more = (high - low) / SIDE + 1
            meets &= (high + more > 0) & (low - more < size)
    return meets


def tiles_by_level(finest: Sequence[Tiles], factor: int, count: int) -> list[Tiles]:
    """The tiles of each level: the finest's, then those around them with cells `factor` times as large."""
    levels = [np.unique(np.concatenate(finest), axis=0)]
    while len(levels) < count:
        levels.append(np.unique(levels[-1] // factor, axis=0))
    return levels


def limits_of(tiles: Tiles) -> tuple[int, int, int, int]:
    """(first row, last row, first column, last column) of tiles."""
    (top, left), (bottom, right) = tiles.min(axis=0).tolist(), tiles.max(axis=0).tolist()
    return top, bottom, left, right


def tile_finder(
    tiles: Tiles, axes: tuple[int, int], tile: tuple[int, int]
) -> Callable[[Sequence[slice]], bool]:
    """A function that tells whether a box of cells, whose y and x are `axes`, overlaps any of the tiles.

    Its cost is that of the rows of tiles in the box, however many tiles there are.
    """
    width = 2 + int(tiles[:, 1].max(initial=0))
    codes = np.unique(tiles @ [width, 1])

    def shows(box: Sequence[slice]) -> bool:
        (top, bottom), (left, right) = (
            (box[axis].start // length, -(-box[axis].stop // length))
            for axis, length in zip(axes, tile, strict=True)
        )
        rows = np.arange(max(top, 0), bottom) * width
        begin, end = (np.searchsorted(codes, rows + min(side, width - 1)) for side in (left, right))
        return bool((end > begin).any())

    return shows


def split_at_gap(tiles: Tiles) -> list[Tiles]:
    """The tiles in two parts, if most of the columns between them are empty: across the antimeridian."""
    columns = np.unique(tiles[:, 1])
    gaps = np.diff(columns)
    if not gaps.size or gaps.max() * 2 <= columns[-1] - columns[0]:
        return [tiles]
    is_left = tiles[:, 1] <= columns[gaps.argmax()]
    return [tiles[is_left], tiles[~is_left]]


def choose_matrix(transform: GridTransform, matrices: Sequence[TileMatrix]) -> TileMatrix:
    """The tile matrix whose cells are nearest in size to the source's; `transform` is from the last matrix.

    Raises
        MetadataError: the source lies nowhere in the set.
    """
    last, scales = matrices[-1], list[tuple[float, float]]()
    # Where little of the source lies in the set, it takes more places to find one.
    for count in (7, 65, 513):
        places = [np.linspace(0, size, count)[1:-1] for size in transform.source_shape]
        grid = np.meshgrid(places[1], places[0])
        columns, rows = transform.to_target(grid[0], grid[1])
        with np.errstate(invalid="ignore"):
            inside = (rows >= 0) & (rows < last.shape[0]) & (columns >= 0) & (columns < last.shape[1])
        step = 1 + np.count_nonzero(inside) // 64
        pairs = zip(rows[inside].tolist()[::step], columns[inside].tolist()[::step], strict=True)
        scales = [transform.scale(y, x) for y, x in pairs]
        if scales:
            break
    if not scales:
        raise MetadataError(
            f"the data lie outside the tile matrix set, {last.bounds} in its CRS; expected some within"
        )
    wanted = last.cell_size * math.exp(float(np.median([math.log(y * x) / 2 for y, x in scales])))
    return min(matrices, key=lambda matrix: abs(math.log(matrix.cell_size / wanted)))


def common_tiles(one: Tiles, other: Tiles) -> Tiles:
    """The tiles that two sets share."""
    if not len(one) or not len(other):
        return one[:0]
    width = 1 + max(int(one[:, 1].max()), int(other[:, 1].max()))
    return one[np.isin(one @ [width, 1], other @ [width, 1])]


def rectangles(tiles: Tiles) -> Iterator[tuple[int, int, int, int]]:
    """(first row, last row, first column, last column) of rectangles that make up the tiles exactly."""
    open_runs: dict[tuple[int, int], int] = {}
    last = -1
    for row in np.unique(tiles[:, 0]).tolist():
        runs = _runs(tiles[tiles[:, 0] == row, 1])
        for run in [run for run in open_runs if row != last + 1 or run not in runs]:
            yield open_runs.pop(run), last, *run
        for run in runs:
            open_runs.setdefault(run, row)
        last = row
    for run, first in open_runs.items():
        yield first, last, *run


def _runs(columns: Tiles) -> list[tuple[int, int]]:
    """(first, last) of columns in order, without a gap."""
    gaps = np.flatnonzero(np.diff(columns) != 1)
    firsts, lasts = np.concatenate([[0], gaps + 1]), np.concatenate([gaps, [len(columns) - 1]])
    return list(zip(columns[firsts].tolist(), columns[lasts].tolist(), strict=True))


# The finest level, tile by tile

# Bytes that a cell of a tile takes beside the result (places, flags, sums), one of a window beside its item.
TILE_CELL_SIZE = 64
WINDOW_CELL_SIZE = 10
# The fewest cells of the source that one reading should be able to hold.
LEAST_WINDOW = 1 << 14


@dataclass(frozen=True, eq=False)
class Places:
    """(columns, rows) of a source for cells of a grid: under their centres, or under their corners."""

    columns: Floats
    rows: Floats
    source_shape: tuple[int, int]
    has_corners: bool

    @once
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The (least, greatest) row and column; None if none of the source lies there."""
        shape, places = self.source_shape, (self.rows, self.columns)
        y, x = ((float(one.min()), float(one.max())) for one in places)
        if not all(low >= 0 and high <= size for (low, high), size in zip((y, x), shape, strict=True)):
            with np.errstate(invalid="ignore"):
                among = np.isfinite(self.columns) & np.isfinite(self.rows)
                if not self.has_corners:
                    for one, size in zip(places, shape, strict=True):
                        among &= (one >= 0) & (one <= size)
            if not among.any():
                return None
            y, x = (
                (float(one.min(initial=np.inf, where=among)), float(one.max(initial=-np.inf, where=among)))
                for one in places
            )
        is_beside = any(high < 0 or low > size for (low, high), size in zip((y, x), shape, strict=True))
        return None if is_beside else (y, x)

    def part(self, rows: slice, columns: slice) -> Places:
        """The places for some of the cells."""
        more = int(self.has_corners)
        sides = tuple(slice(side.start, side.stop + more) for side in (rows, columns))
        across, down = (np.ascontiguousarray(one[sides]) for one in (self.columns, self.rows))
        return replace(self, columns=across, rows=down)


def places_under(
    transform: GridTransform, row: int, column: int, shape: tuple[int, int], *, corners: bool
) -> Places:
    """The places of a transform's source for the cells of a block at (row, column)."""
    columns, rows = transform.under_block(row, column, shape, corners=corners)
    for one in (columns, rows):
        one.flags.writeable = False
    return Places(columns, rows, transform.source_shape, corners)


class PlacedCells(NamedTuple):
    """Cells (..., y, x) to fill, and the places of the source for them."""

    places: Places
    cells: Items


@dataclass(frozen=True, kw_only=True)
class Warp:
    """The sampling of an array for the cells of a grid in any CRS.

    source  the array that is sampled; `axes` are its y and x
    nodata  the value that sampling leaves out; None: only what the mask leaves out
    others  further values of nodata in the source, which results have `nodata` for
    scale   (y, x) cells of the grid per cell of the source
    window  how many cells of the source are read at a time
    """

    source: Source
    axes: tuple[int, int]
    transform: GridTransform
    sampling: str
    nodata: Any
    others: tuple[int | float, ...] = ()
    mask: Mask | None
    scale: tuple[float, float]
    window: int

    @property
    def empty(self) -> Any:
        """The value of cells outside the data: nodata, or 0 with a mask."""
        return 0 if self.nodata is None else self.nodata

    def places(self, row: int, column: int, shape: tuple[int, int]) -> Places:
        """The places that the sampling takes for the cells of a block at (row, column)."""
        return places_under(self.transform, row, column, shape, corners=self.has_corners)

    @property
    def has_corners(self) -> bool:
        """Whether places are those of cells' corners, and not of their centres."""
        return self.sampling in AREAS

    def fill(self, box: Box, blocks: Sequence[PlacedCells]) -> bool:
        """Fill the cells of blocks; returns whether any of the source lies in them.

        box  the cells of the blocks' dimensions beside y and x; its y and x do not count
        """
        is_seen = self._fill(box, blocks)
        for block in blocks if is_seen and self.has_corners else ():
            places, tile = block
            across = self.transform.across_cut(places.columns, places.rows)
            if across is None:
                continue
            # Cells whose corners lie on both sides of where the globe is cut open are made anew, of one side.
            tile[..., across] = self.empty
            for columns, rows in self.transform.beside_cut(places.columns, places.rows):
                side, held = np.full(tile.shape, self.empty, tile.dtype), tile[..., across]
                self._fill(box, [PlacedCells(replace(places, columns=columns, rows=rows), side)])
                is_missing = np.isnan(held) if self.empty != self.empty else held == self.empty
                tile[..., across] = np.where(is_missing, side[..., across], held)
        return is_seen

    def _fill(self, box: Box, blocks: Sequence[PlacedCells]) -> bool:
        """Sample the source into blocks, of which one window has all that they need; False outside of it."""
        windows = [self._window(block.places) for block in blocks]
        seen = [(block, window) for block, window in zip(blocks, windows, strict=True) if window is not None]
        if not seen:
            return False
        around = hull([window for _, window in seen])
        read = with_sides(box, self.axes, around)
        parts = self._parts([block for block, _ in seen])
        is_apart = volume(around) > 2 * sum(volume(window) for _, window in seen)
        if parts and (is_apart or volume(read) > self.window):
            filled = [self._fill(box, part) for part in parts]
            return any(filled)
        cells = with_one_nodata(read_window(self.source, read), self.nodata, self.others)
        source = np.moveaxis(cells, self.axes, (-2, -1))
        valid = None if self.mask is None else np.moveaxis(self.mask.read(read), self.axes, (-2, -1))
        for block, window in seen:
            own: Any = (..., *inside(window, around))
            block.cells[...] = sample(
                source[own],
                block.places.columns,
                block.places.rows,
                self.sampling,
                nodata=self.nodata,
                valid=None if valid is None else valid[own],
                scale=self.scale,
                corner=(window[0].start, window[1].start),
            )
        return True

    def _parts(self, blocks: Sequence[PlacedCells]) -> list[Sequence[PlacedCells]]:
        """Half of the blocks, and the others; of a single block its halves; none of a single cell."""
        if len(blocks) > 1:
            return [blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]]
        places, cells = blocks[0]
        axis = -2 if cells.shape[-2] >= cells.shape[-1] else -1
        size, made = cells.shape[axis], list[Sequence[PlacedCells]]()
        for begin, end in ((0, size // 2), (size // 2, size)) if size > 1 else ():
            part = [slice(0, length) for length in cells.shape[-2:]]
            part[axis] = slice(begin, end)
            within: Any = (..., *part)
            made.append([PlacedCells(places.part(*part), cells[within])])
        return made

    def _window(self, places: Places) -> Box | None:
        """The (y, x) window of the source for cells at these places; None if none of it lies there."""
        if places.bounds is None:
            return None
        sides = []
        for (low, high), size, scale in zip(
            places.bounds, self.transform.source_shape, self.scale, strict=True
        ):
            reach = reach_of(self.sampling, scale)
            begin, end = max(0.0, low), min(float(size), high)
            sides.append(slice(max(0, int(begin) - reach), min(size, int(end) + 1 + reach)))
        return sides[0], sides[1]


@dataclass(frozen=True, kw_only=True)
class Reprojection(Warp, LevelPlan):
    """The plan of a tile pyramid's finest level: a unit for each chunk, or shard, that the data may lie in.

    most    how many units memory holds at a time; None: as many as keep the threads busy
    within  the box of the dimensions beside y and x that is made
    clears  whether units without any of the source are written too: they may hold cells that once had some
    tiles   the tiles to make; they are not pickled with the plan
    """

    target: Array
    most: int | None
    within: Box
    clears: bool = False
    tiles: Tiles = field(default_factory=lambda: np.empty((0, 2), np.int64), repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tiles": self.tiles[:0]}

    @property
    def unit(self) -> Shape:
        """The lengths of a unit, in cells of the level."""
        return outer_chunks(self.target)

    def own(self, unit: Shape) -> Box:
        """The box of the level that the unit beginning at `unit` makes."""
        sides = zip(unit, self.unit, self.target.shape, strict=True)
        return tuple(slice(begin, min(begin + length, size)) for begin, length, size in sides)

    def units(self) -> list[Shape]:
        """The first cells of the units, row by row."""
        steps = [self.unit[axis] for axis in self.axes]
        tile = [self.target.chunks[axis] for axis in self.axes]
        ranges: list[Sequence[int]] = [
            range(side.start // length * length, side.stop, length)
            for side, length in zip(self.within, self.unit, strict=True)
        ]
        places = (np.unique(self.tiles * tile // steps, axis=0) * steps).tolist()
        return [unit for y, x in places for unit in product(*with_sides(ranges, self.axes, ([y], [x])))]

    def cell_count(self, unit: Shape) -> int:
        """The number of cells of the level that a unit makes."""
        return volume(self.own(unit))

    @property
    def arrays(self) -> Sequence[Array]:
        return [self.target]

    def written(self, unit: Shape) -> list[tuple[Array, Box]]:
        return [(self.target, self.own(unit))]

    def make(self, unit: Shape) -> list[Items]:
        """Make a unit, and write it if any of the source lies in it; nothing is returned."""
        box = self.own(unit)
        made = np.full(lengths(box), self.empty, self.target.dtype)
        rows, columns = box[self.axes[0]], box[self.axes[1]]
        height, width = (self.target.chunks[axis] for axis in self.axes)
        on_top, is_seen = np.moveaxis(made, self.axes, (-2, -1)), False
        for row in range(rows.start, rows.stop, height):
            for column in range(columns.start, columns.stop, width):
                y, x = row - rows.start, column - columns.start
                tile = on_top[..., y : y + height, x : x + width]
                is_seen |= self.fill(box, [PlacedCells(self.places(row, column, tile.shape[-2:]), tile)])
        if is_seen or self.clears:
            self.target[box] = made
        return []

    def tiles_of(self, matrix: TileMatrix, box: Box) -> Tiles:
        """The tiles, as (row, column), that depend on a box of the source.

        Tiles near the box are found as those of a whole source are; of them, those are kept whose cells are
        sampled from the box, by the same places that the sampling uses.
        """
        region, sides = (box[self.axes[0]], box[self.axes[1]]), []
        for side, size, scale in zip(region, self.transform.source_shape, self.scale, strict=True):
            # What the sampling looks at around a place, how far a place may be off, and a cell for rounding.
            reach = reach_of(self.sampling, scale) + math.ceil(self.transform.tolerance) + 1
            sides.append(slice(max(0, side.start - reach), min(size, side.stop + reach)))
        near = common_tiles(cover(self.transform.crop(sides[0], sides[1]), matrix), self.tiles)
        kept = [tile for tile in near.tolist() if self._depends(matrix, tile, region)]
        return np.array(kept, np.int64).reshape(-1, 2)

    def _depends(self, matrix: TileMatrix, tile: list[int], region: tuple[slice, slice]) -> bool:
        """Whether cells of a tile are sampled from a (y, x) region of the source."""
        row, column = (place * length for place, length in zip(tile, matrix.tile_shape, strict=True))
        window = self._window(self.places(row, column, matrix.tile_shape))
        return window is not None and all(
            side.start < other.stop and side.stop > other.start
            for side, other in zip(window, region, strict=True)
        )


def window_cells(target: Array, axes: tuple[int, int], budget: Budget) -> tuple[int, int | None]:
    """(cells of the source that a unit may read at a time, units that memory holds; None: enough).

    Raises
        MetadataError: the caller's memory does not hold one unit.
    """
    tile = target.chunks[axes[0]] * target.chunks[axes[1]]
    item_size = target.dtype.itemsize
    own = item_size * math.prod(outer_chunks(target)) + TILE_CELL_SIZE * tile
    cell = item_size + WINDOW_CELL_SIZE
    usual = units_at_once()
    for count in range(usual, 0, -1):
        window = (budget.limit // count - own) // cell
        if window >= LEAST_WINDOW:
            return window, None if count == usual else count
    if budget.is_firm:
        least = own + LEAST_WINDOW * cell
        raise MetadataError(f"memory is {budget.limit} bytes; expected at least {least}, for whole chunks")
    return LEAST_WINDOW, None


# Grids of tile matrices

# Coordinates of a whole tile matrix soon outgrow the few tiles that are stored; the affine says the same.
TILE_COORDINATE_LIMIT = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TileGrid(LevelGrid):
    """Tile matrices as levels, the finest first, and the tiles of each with data.

    matrix_set  the tile matrix set; `times` is how often its tiles are enlarged
    transform  from the finest matrix to the source
    scale      (y, x) cells of the finest per cell of the source
    tiles      level by level, those that the source may show in
    sources    grids that the source has, and had when tiles were made of it: (affine, rows, columns) each
    every      level by level, the tiles that it may show in on any of these grids
    """

    matrix_set: TileMatrixSet
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
        matrix_set = load_tile_matrix_set(tile_matrix_set)
        times = _count_times(matrix_set, tile_length)
        matrices = [enlarge_tiles(matrix, times) for matrix in matrix_set.tile_matrices.values()]
        transform = _transform(dataset, matrix_set, matrices[-1], tolerance)
        finest = choose_matrix(transform, matrices) if last is None else _named(matrices, last, matrix_set)
        transform = replace(transform, target_affine=finest.affine)
        covered = cover(transform, finest)
        if not len(covered):
            raise MetadataError(
                f"the data lie outside {matrix_set.id}, {finest.bounds}; expected some within",
                path=dataset.place,
            )
        end = matrices.index(finest)
        begin = 0 if first is None else matrices.index(_named(matrices, first, matrix_set))
        if begin > end:
            raise MetadataError(f"min_zoom is {first!r}, finer than max_zoom, {finest.id!r}")
        chosen = matrices[begin : end + 1][::-1]
        factor = _factor(matrix_set, chosen)
        tiles = tiles_by_level([covered], factor, len(chosen))
        if first is None:
            # Beyond the first level that is one tile, all are.
            count = next((n for n, held in enumerate(tiles, 1) if len(held) == 1), len(tiles))
            chosen, tiles = chosen[:count], tiles[:count]
        middle = covered[len(covered) // 2] + 0.5
        place = (float(middle[0] * finest.tile_shape[0]), float(middle[1] * finest.tile_shape[1]))
        return cls(
            names=[matrix.id for matrix in chosen],
            factors=(factor, factor),
            tile=finest.tile_shape,
            matrix_set=matrix_set,
            times=times,
            matrices=chosen,
            transform=transform,
            scale=transform.scale(*place),
            tiles=tiles,
            sources=[[*transform.source_affine, *transform.source_shape]],
            every=tiles,
        )

    def after(self, grids: Sequence[Sequence[float]]) -> TileGrid:
        """The same grid, with the tiles that were made when the source lay on those former grids."""
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
        """The model of a source with its future levels, each spanning its matrix."""
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
        multiscales = attributes.get("multiscales")
        if isinstance(multiscales, Mapping) and "tile_matrix_set" in multiscales:
            limits = {m.id: limits_of(covered) for m, covered in zip(self.matrices, self.tiles, strict=True)}
            attributes["multiscales"] = name_set(multiscales, self.matrix_set, self.times, limits)

    def record(self) -> dict[str, Any]:
        tolerance = self.transform.tolerance
        return {"tile_matrix_set": self.matrix_set.id, "tile": list(self.tile), "tolerance": tolerance}

    def pending(self) -> dict[str, Any]:
        return {"grids": [list(grid) for grid in self.sources]}

    def steps(self, wanted: Wanted) -> list[Step]:
        """The step that samples the finest level from the source, then the passes that make the others."""
        layer, arrays, masks, box = wanted.layer, wanted.arrays, wanted.masks, wanted.box
        budget = wanted.budget
        axes, recipe, finest, mask = layer.axes, layer.recipe, arrays[0], layer.recipe.mask
        assert layer.sampling is not None
        window, most = window_cells(finest, axes, budget)
        work = Reprojection(
            source=recipe.source,
            target=finest,
            axes=axes,
            transform=self.transform,
            sampling=layer.sampling,
            nodata=0 if recipe.nodata is None and layer.is_mask else recipe.nodata,
            others=recipe.others,
            mask=mask,
            scale=self.scale,
            window=window,
            most=most,
            within=whole(recipe.source.shape) if box is None else box,
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
        made = StoredArray.of(finest)
        depth = min(recipe.depth, direct_depth(made, recipe.factors))
        # What has nodata has it where the mask left cells out.
        of_mask = None
        if mask is not None and recipe.nodata is None:
            of_mask = replace(mask, array=StoredArray.of(masks[0]))
        of_finest = replace(recipe, source=made, others=(), mask=of_mask, depth=depth)
        # Where all is made, what reads no tile is left out, unit by unit.
        for rectangle in map(limits_of, split_at_gap(work.tiles)) if is_whole else rectangles(work.tiles):
            within = self._box(work.within, axes, rectangle)
            passes = plan_passes(of_finest, None, arrays[1:], budget, within, masks[1:])
            steps += [Step(plan, self._blanks(arrays, plan, axes) if is_whole else None) for plan in passes]
        return steps

    def _box(self, within: Box, axes: tuple[int, int], tiles: tuple[int, int, int, int]) -> Box:
        """The box of an array on the finest matrix that a rectangle of tiles covers."""
        (height, width), (top, bottom, left, right) = self.tile, tiles
        sides = slice(top * height, (bottom + 1) * height), slice(left * width, (right + 1) * width)
        return with_sides(within, axes, sides)

    def _blanks(self, arrays: Sequence[Array], work: Pass, axes: tuple[int, int]) -> Callable[[Shape], bool]:
        """A function that tells whether a unit reads only tiles without stored chunks."""
        urls = [place(array.store, array.path) for array in arrays]
        tiles = self.every[urls.index(work.source.url)]
        shows = tile_finder(tiles, axes, self.tile)
        return lambda unit: not shows(work.needs(unit)[0])


def _transform(
    dataset: Dataset, matrix_set: TileMatrixSet, matrix: TileMatrix, tolerance: float
) -> GridTransform:
    """The transform from a matrix of the set to the source."""
    geo = dataset.geo
    if geo.crs is None or geo.affine is None:
        what = "CRS" if geo.crs is None else "affine"
        raise MetadataError(f"the data have no {what}; expected one, to reproject them", path=dataset.place)
    return GridTransform(
        geo.crs, geo.affine, geo.shape, Crs.from_user(matrix_set.crs), matrix.affine, tolerance
    )


def _count_times(matrix_set: TileMatrixSet, length: int | None) -> int:
    """The length of the requested tiles, in lengths of the set's own."""
    height, width = next(iter(matrix_set.tile_matrices.values())).tile_shape
    if length is None:
        return 1
    is_whole = isinstance(length, int) and not isinstance(length, bool) and length > 0
    if not is_whole or length % height or length % width:
        raise MetadataError(
            f"tile_length is {length!r}; expected a multiple of {max(height, width)}, "
            f"as {matrix_set.id} has it"
        )
    if height != width:
        raise UnsupportedError(f"tiles of {matrix_set.id} are {height} by {width}; expected as wide as high")
    return length // height


def _named(matrices: Sequence[TileMatrix], name: Any, matrix_set: TileMatrixSet) -> TileMatrix:
    wanted = matrix_set[str(name)]
    return next(matrix for matrix in matrices if matrix.id == wanted.id)


def _factor(matrix_set: TileMatrixSet, matrices: Sequence[TileMatrix]) -> int:
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
            f"tile matrices {span} of {matrix_set.id} do not lie in one another by one whole factor; "
            "expected a set like WebMercatorQuad, or other zoom levels"
        )
    return factors.pop()

"""The tiles of a tile matrix that a raster covers, and the tile matrix whose cells suit its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.tilesets.registry import TileMatrix
from zstore.geo.pyramid.transform import Floats, GridTransform

# (row, column) of tiles, one pair per line, in order.
Tiles = np.ndarray[Any, np.dtype[np.int64]]

FIRST_COUNT = 33
# Beyond that, places are no longer laid out more densely: what lies between is looked at more widely.
LAST_COUNT = 2049
SIDE = 5


def cover(transform: GridTransform, matrix: TileMatrix) -> Tiles:
    """The tiles that the source may lie in, without those that it certainly does not.

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
    found = np.isfinite(rows) & np.isfinite(columns)
    candidates = _around(np.floor(rows[found]), np.floor(columns[found]), near, matrix)
    kept: Tiles = candidates[_is_near(transform, matrix, candidates)]
    return kept


def _tile_places(
    transform: GridTransform, matrix: TileMatrix, rows: Floats, columns: Floats
) -> tuple[Floats, Floats]:
    """(row, column) in tiles of places of the source; NaN for those beyond the matrix's sides."""
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
    """The tiles at these places and up to `near` tiles around them."""
    height, width = matrix.matrix_shape
    codes = np.unique((rows.astype(np.int64) + near) * (width + 4 * near) + columns.astype(np.int64) + near)
    found = np.stack(np.divmod(codes, width + 4 * near), axis=-1) - near
    steps = np.arange(-near, near + 1)
    offsets = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    spread = (found[:, None, :] + offsets).reshape(-1, 2)
    inside = ((spread >= 0) & (spread < (height, width))).all(axis=1)
    return np.unique(spread[inside], axis=0)


def _is_near(
    transform: GridTransform, matrix: TileMatrix, tiles: Tiles
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each tile, whether the hull of its places in the source, and a margin, overlaps the source."""
    steps = np.linspace(0, 1, SIDE)
    rows = (tiles[:, 0, None, None] + steps[:, None]) * matrix.tile_shape[0]
    columns = (tiles[:, 1, None, None] + steps) * matrix.tile_shape[1]
    full = np.broadcast_arrays(columns, rows)
    found = transform.to_source(np.ascontiguousarray(full[0]), np.ascontiguousarray(full[1]))
    lost = ~(np.isfinite(found[0]) & np.isfinite(found[1]))
    meets = np.asarray(~lost.all(axis=(1, 2)))
    for part, size in zip(found, transform.source_shape[::-1], strict=True):
        low = np.where(lost, np.inf, part).min(axis=(1, 2))
        high = np.where(lost, -np.inf, part).max(axis=(1, 2))
        with np.errstate(invalid="ignore"):
            more = (high - low) / SIDE + 1
            meets &= (high + more > 0) & (low - more < size)
    return meets


def tiles_by_level(finest: Sequence[Tiles], factor: int, count: int) -> list[Tiles]:
    """The tiles of each level: those of the finest, then those that hold them at `factor` times the size."""
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
    """The tiles in two parts, where most of the columns between them are empty: across the antimeridian."""
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
        found = zip(rows[inside].tolist()[::step], columns[inside].tolist()[::step], strict=True)
        scales = [transform.scale(y, x) for y, x in found]
        if scales:
            break
    if not scales:
        raise MetadataError(
            f"the data lie outside the tile matrix set, {last.bounds} in its CRS; expected some within"
        )
    wanted = last.cell_size * math.exp(float(np.median([math.log(y * x) / 2 for y, x in scales])))
    return min(matrices, key=lambda matrix: abs(math.log(matrix.cell_size / wanted)))


def common_tiles(one: Tiles, other: Tiles) -> Tiles:
    """The tiles that are in both."""
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

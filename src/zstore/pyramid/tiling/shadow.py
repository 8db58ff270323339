"""Which tiles of a tile matrix cells of the source show in, so that no others are made again."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from zstore.conventions.tilesets.registry import TileMatrix
from zstore.pyramid.cascade import Box
from zstore.pyramid.tiling.cover import Tiles, cover
from zstore.pyramid.tiling.warp import Warp, window_of
from zstore.resampling.sample import reach_of

__all__ = ["join_tiles", "rectangles", "shadow"]


def shadow(work: Warp, matrix: TileMatrix, box: Box) -> Tiles:
    """Those of the work's tiles that a box of the data shows in.

    Tiles near the box are found as those of a whole source are; of them, those are kept whose cells are made
    of cells of the box, as the very places that the sampling uses have it.
    """
    sides = []
    for axis, size, scale in zip(work.axes, work.trace.source_shape, work.scale, strict=True):
        # What the sampling looks at around a place, how far a place may be off, and a cell for rounding.
        reach = reach_of(work.sampling, scale) + math.ceil(work.trace.tolerance) + 1
        sides.append(slice(max(0, box[axis].start - reach), min(size, box[axis].stop + reach)))
    near = _common(cover(work.trace.part(sides[0], sides[1]), matrix), work.tiles)
    kept = [
        tile for tile in near.tolist() if _sees(work, matrix, tile, (box[work.axes[0]], box[work.axes[1]]))
    ]
    return np.array(kept, np.int64).reshape(-1, 2)


def _sees(work: Warp, matrix: TileMatrix, tile: list[int], box: tuple[slice, slice]) -> bool:
    row, column = (place * length for place, length in zip(tile, matrix.tile_shape, strict=True))
    places = work.trace.tile(row, column, matrix.tile_shape, corners=work.sampling == "average")
    window = window_of(work, *places)
    return window is not None and all(
        side.start < other.stop and side.stop > other.start for side, other in zip(window, box, strict=True)
    )


def join_tiles(one: Tiles, other: Tiles) -> Tiles:
    """The tiles that are in either, in order."""
    return np.unique(np.concatenate([one, other]), axis=0)


def _common(one: Tiles, other: Tiles) -> Tiles:
    if not len(one) or not len(other):
        return one[:0]
    width = 1 + max(int(one[:, 1].max()), int(other[:, 1].max()))
    return one[np.isin(one @ [width, 1], other @ [width, 1])]


def rectangles(tiles: Tiles) -> Iterator[tuple[int, int, int, int]]:
    """(first row, last row, first column, last column) of rectangles that come to just those tiles."""
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


def _runs(columns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[tuple[int, int]]:
    """(first, last) of columns in order, without a gap."""
    gaps = np.flatnonzero(np.diff(columns) != 1)
    firsts, lasts = np.concatenate([[0], gaps + 1]), np.concatenate([gaps, [len(columns) - 1]])
    return list(zip(columns[firsts].tolist(), columns[lasts].tolist(), strict=True))

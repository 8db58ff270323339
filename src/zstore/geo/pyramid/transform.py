"""Transforms between two grids in different CRSs: exact, or within a bound of cells."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from zstore.geo.conventions.crs import METRES_PER_RADIAN, Crs
from zstore.geo.conventions.model import Affine

Floats = np.ndarray[Any, np.dtype[np.float64]]

# In cells of the source: how far an approximated place may be off, as for gdalwarp.
TOLERANCE = 0.125
# Places of a tile that are transformed exactly at first, in cells from each other.
FIRST_STEP = 64


@dataclass(frozen=True)
class GridTransform:
    """From places on a target grid to places on a source grid, each in cells from the corner of the first.

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
        """(columns, rows) of the source at those of the target; not finite where there are none."""
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
        count = 1 if corners else 0
        offset = 0.0 if corners else 0.5
        rows, columns = (np.arange(size + count, dtype=np.float64) + offset for size in shape)
        step = FIRST_STEP
        while self.tolerance > 0 and step > 1:
            found = self._approximate(row, column, shape, step, rows, columns)
            if found is not None:
                return found
            step //= 2
        grid = np.meshgrid(column + columns, row + rows)
        return self.to_source(grid[0], grid[1])

    def scale(self, row: float, column: float) -> tuple[float, float]:
        """(y, x) cells of the target per cell of the source, around a place of the target."""
        columns, rows = self.to_source(
            np.array([column - 0.5, column + 0.5, column, column]), np.array([row, row, row - 0.5, row + 0.5])
        )
        spans = [math.hypot(part[1] - part[0], part[3] - part[2]) for part in (rows, columns)]
        y, x = (1 / span if math.isfinite(span) and span > 0 else 1.0 for span in spans)
        return y, x

    def across_cut(self, columns: Floats, rows: Floats) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Whether each cell has corners on both sides of the source's first meridian; None where none has.

        `columns` and `rows` are the places of the corners, (H + 1, W + 1); the result is (H, W).
        """
        if not self.source_crs.is_geographic:
            return None
        right, down = self._turn()
        places, most = (columns, abs(right) / 2) if abs(right) >= abs(down) else (rows, abs(down) / 2)
        corners = (places[:-1, :-1], places[:-1, 1:], places[1:, :-1], places[1:, 1:])
        with np.errstate(invalid="ignore"):
            span = np.maximum.reduce(corners) - np.minimum.reduce(corners)
            found = (span > most) & np.isfinite(span)
        return found if found.any() else None

    def beside_cut(self, columns: Floats, rows: Floats) -> list[tuple[Floats, Floats]]:
        """The same places twice, all on one side of that meridian and all on the other."""
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
        """(columns, rows) of the source once round the globe eastwards."""
        right, down = self.source_affine._replace(c=0, f=0).cell_at(self._circle(), 0.0)
        return right, down

    def _circle(self) -> float:
        """Once round the globe along the equator, in the source's unit."""
        return 2 * math.pi * METRES_PER_RADIAN / self.source_crs.metres_per_unit

    def _project(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(x, y) in the source's CRS."""
        return self.target_crs.transform(self.source_crs, *self.target_affine.at(columns, rows))

    def _turned(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """The same places, turned round the globe until they meet the source."""
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

    def _approximate(
        self, row: int, column: int, shape: tuple[int, int], step: int, rows: Floats, columns: Floats
    ) -> tuple[Floats, Floats] | None:
        """(columns, rows) interpolated between places `step` cells apart; None where that is too inexact."""
        knots = [np.arange(-(-size // step) * 2 + 1) * (step / 2) for size in shape]
        grid = np.meshgrid(column + knots[1], row + knots[0])
        exact = self._project(grid[0], grid[1])
        if not all(np.isfinite(part).all() for part in exact):
            return None
        # Cells are regular, so that interpolating them is the same as interpolating coordinates.
        exact = _cells_at(self.source_affine, *exact)
        coarse = [part[::2, ::2] for part in exact]
        between = [_interpolate(part, knots[0] / step, knots[1] / step) for part in coarse]
        off = max(float(np.abs(one - other).max()) for one, other in zip(between, exact, strict=True))
        # Half of what is allowed: between the places that were looked at, it may be a little more.
        if off > self.tolerance / 2:
            return None
        found = [_interpolate(part, rows / step, columns / step) for part in coarse]
        return self._turned(found[0], found[1])


def _interpolate(knots: Floats, rows: Floats, columns: Floats) -> Floats:
    """Values between knots one apart, linear both ways; `rows` and `columns` run upwards."""
    x = np.minimum(columns.astype(np.int64), knots.shape[1] - 2)
    right = columns - x
    wide = knots[:, x] * (1 - right) + knots[:, x + 1] * right
    made: Floats = np.empty((len(rows), len(columns)))
    y = np.minimum(rows.astype(np.int64), len(knots) - 2)
    ends = np.searchsorted(y, np.arange(len(knots)))
    for knot, (begin, end) in enumerate(pairwise(ends.tolist())):
        block, down = made[begin:end], (rows[begin:end] - knot)[:, None]
        np.multiply(down, wide[knot + 1] - wide[knot], out=block)
        block += wide[knot]
    return made


def _cells_at(affine: Affine, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """(columns, rows) of places, some of which may be nowhere."""
    with np.errstate(invalid="ignore", over="ignore"):
        return affine.cell_at(x, y)

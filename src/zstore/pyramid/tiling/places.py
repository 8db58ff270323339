"""Where the cells of one grid lie in another one, in another CRS: exactly, or within a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine

__all__ = ["TOLERANCE", "Trace"]

Floats = np.ndarray[Any, np.dtype[np.float64]]

# In cells of the source: how far an approximated place may be off, as for gdalwarp.
TOLERANCE = 0.125
# Tiles are transformed at places so many cells apart at first.
FIRST_STEP = 64
RADIUS = 6378137.0


@dataclass(frozen=True)
class Trace:
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

    def at(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(columns, rows) of the source at those of the target; not finite where there are none."""
        return self._cells(*self._project(columns, rows))

    def back(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(columns, rows) of the target at those of the source."""
        x, y = _apply(self.source_affine, columns, rows)
        return _invert(self.target_affine, *self.source_crs.transform(self.target_crs, x, y))

    def tile(self, row: int, column: int, shape: tuple[int, int], *, corners: bool) -> tuple[Floats, Floats]:
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
                return self._cells(*found)
            step //= 2
        grid = np.meshgrid(column + columns, row + rows)
        return self._cells(*self._project(grid[0], grid[1]))

    def scale(self, row: float, column: float) -> tuple[float, float]:
        """(y, x) cells of the target per cell of the source, around a place of the target."""
        columns, rows = self.at(
            np.array([column - 0.5, column + 0.5, column, column]), np.array([row, row, row - 0.5, row + 0.5])
        )
        spans = [math.hypot(part[1] - part[0], part[3] - part[2]) for part in (rows, columns)]
        y, x = (1 / span if math.isfinite(span) and span > 0 else 1.0 for span in spans)
        return y, x

    def _project(self, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """(x, y) in the source's CRS."""
        return self.target_crs.transform(self.source_crs, *_apply(self.target_affine, columns, rows))

    def _cells(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        if self.source_crs.is_geographic and not self.source_affine.is_rotated:
            # A grid may begin at any meridian; degrees are for counting round the globe.
            turn = 2 * math.pi * RADIUS / self.source_crs.metres_per_unit
            west = self.source_affine.bounds(self.source_shape)[0]
            with np.errstate(invalid="ignore"):
                turns = np.floor((x - west) / turn)
                x = np.where(turns == 0, x, x - turns * turn)
        return _invert(self.source_affine, x, y)

    def _approximate(
        self, row: int, column: int, shape: tuple[int, int], step: int, rows: Floats, columns: Floats
    ) -> tuple[Floats, Floats] | None:
        """(x, y) between places `step` cells apart; None where that is too far off half-way."""
        knots = [np.arange(-(-size // step) * 2 + 1) * (step / 2) for size in shape]
        grid = np.meshgrid(column + knots[1], row + knots[0])
        exact = self._project(grid[0], grid[1])
        if not all(np.isfinite(part).all() for part in exact):
            return None
        coarse = [part[::2, ::2] for part in exact]
        between = [_interpolate(part, knots[0] / step, knots[1] / step) for part in coarse]
        y_cell, x_cell = self.source_affine.cell
        off = max(
            float(np.abs(between[0] - exact[0]).max()) / x_cell,
            float(np.abs(between[1] - exact[1]).max()) / y_cell,
        )
        # Half of what is allowed: between the places that were looked at, it may be a little more.
        if off > self.tolerance / 2:
            return None
        found = [_interpolate(part, rows / step, columns / step) for part in coarse]
        return found[0], found[1]


def _interpolate(knots: Floats, rows: Floats, columns: Floats) -> Floats:
    """Values between knots one apart, linear both ways."""
    y = np.minimum(rows.astype(np.int64), len(knots) - 2)
    x = np.minimum(columns.astype(np.int64), knots.shape[1] - 2)
    right, down = columns - x, (rows - y)[:, None]
    wide = knots[:, x] * (1 - right) + knots[:, x + 1] * right
    made: Floats = wide[y] * (1 - down) + wide[y + 1] * down
    return made


def _apply(affine: Affine, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
    return (
        affine.a * columns + affine.b * rows + affine.c,
        affine.d * columns + affine.e * rows + affine.f,
    )


def _invert(affine: Affine, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    east, north = x - affine.c, y - affine.f
    size = affine.a * affine.e - affine.b * affine.d
    with np.errstate(invalid="ignore", over="ignore"):
        columns = east / affine.a if not affine.is_rotated else (affine.e * east - affine.b * north) / size
        rows = north / affine.e if not affine.is_rotated else (affine.a * north - affine.d * east) / size
    return columns, rows

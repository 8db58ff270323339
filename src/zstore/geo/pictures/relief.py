"""Shaded relief: how the sun lights a grid of heights, and colours lit by it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs

Cells = np.ndarray[Any, np.dtype[Any]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# The radius of the sphere that Web Mercator is of, in metres.
RADIUS = 6378137.0
# Light falls from the upper left, as eyes expect it on maps.
AZIMUTH, ALTITUDE = 315.0, 45.0
# How bright flat ground is, of `hillshade`, and how much of the light colours take.
FLAT = 1 + 254 * math.sin(math.radians(ALTITUDE))
STRENGTH = 0.7
# Cells longer than this, in metres, lose their slopes: heights count for more there.
STEEP_CELL = 30.0


def hillshade(
    values: Cells,
    valid: Cells,
    cell: tuple[float, float],
    azimuth: float = AZIMUTH,
    altitude: float = ALTITUDE,
) -> Cells:
    """The brightness of each cell of a grid of heights, 1 to 255, by Horn's slopes, as gdaldem has it.

    cell  (height, width) of a cell in units of the heights; negative where rows go north, columns west

    Shapes
        values (rows + 2, columns + 2); result (rows, columns), NaN beside cells that are not valid.
    """
    z = np.where(valid, values, np.nan).astype(np.float64)
    a, b, c = z[:-2, :-2], z[:-2, 1:-1], z[:-2, 2:]
    d, f = z[1:-1, :-2], z[1:-1, 2:]
    g, h, i = z[2:, :-2], z[2:, 1:-1], z[2:, 2:]
    x = ((a + 2 * d + g) - (c + 2 * f + i)) / (8 * cell[1])
    y = ((g + 2 * h + i) - (a + 2 * b + c)) / (8 * cell[0])
    steep = np.hypot(x, y)
    towards, up = math.radians(azimuth), math.radians(altitude)
    lit = math.sin(up) + math.cos(up) * (x * math.sin(towards) + y * math.cos(towards))
    shade: Cells = 1 + 254 * np.maximum(0, lit / np.sqrt(1 + steep * steep))
    return shade


def light(colours: Bytes, values: Cells, valid: Cells, cell: tuple[float, float]) -> Bytes:
    """Colours shaded by the slopes of heights; those of flat ground and of unknown slopes stay.

    Heights are raised where cells are so long that slopes would not show.

    Shapes
        colours (rows, columns, 3), values and valid (rows + 2, columns + 2).
    """
    raised = max(1.0, math.sqrt(math.sqrt(abs(cell[0] * cell[1])) / STEEP_CELL))
    shade = hillshade(values, valid, (cell[0] / raised, cell[1] / raised))
    strength = np.nan_to_num(1 + STRENGTH * (shade / FLAT - 1), nan=1.0)
    lit: Bytes = np.clip(colours * strength[..., None] + 0.5, 0, 255).astype(np.uint8)
    return lit


def ground_cell(affine: Affine, shape: tuple[int, int], crs: Crs | None) -> tuple[float, float]:
    """(height, width) on the ground of the cell in the middle of a grid, in metres, or the grid's own."""
    y, x = affine.cell
    if crs is None:
        return y, x
    unit = crs.metres_per_unit
    _, middle = affine.at(shape[1] / 2, shape[0] / 2)
    if crs.is_geographic:
        return y * unit, x * unit * max(0.01, math.cos(middle * crs.radians_per_unit))
    shrunk = 1 / math.cosh(middle / RADIUS) if crs.code == "EPSG:3857" else 1.0
    return y * unit * shrunk, x * unit * shrunk

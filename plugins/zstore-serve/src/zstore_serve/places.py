"""The frames and cells that a request's coordinates name."""

from __future__ import annotations

import math

import numpy as np

from zstore.plugin.conventions import Affine
from zstore_serve.frames import Frame
from zstore_serve.problems import Problem
from zstore_serve.queries import Parameters
from zstore_serve.scenes import CRS84, Scene, full_turn

__all__ = ["bbox_frame", "find_cell", "parse_box", "snap_to_cells"]

# Beyond these, coordinates and the sides of windows are too large or too small for arithmetic in float64.
FARTHEST = 1e12
NARROWEST = 1e-9


def parse_box(scene: Scene, parameters: Parameters) -> tuple[float, float, float, float]:
    """(left, bottom, right, top) of the parameter `bbox`, upwards also where it is in pixels."""
    left, bottom, right, top = parameters.numbers("bbox", (4,))
    if scene.crs is None:
        bottom, top = -max(bottom, top), -min(bottom, top)
    if not (left < right and bottom < top) or max(map(abs, (left, bottom, right, top))) > FARTHEST:
        raise Problem(400, f"bbox is {parameters.text('bbox')[:80]!r}; expected west, south, east, north")
    if min(right - left, top - bottom) < NARROWEST:
        raise Problem(400, f"bbox is {parameters.text('bbox')[:80]!r}; expected {NARROWEST:g} or more a side")
    return left, bottom, right, top


def bbox_frame(scene: Scene, parameters: Parameters, size: int) -> Frame:
    """The frame of the parameter `bbox`, at most `size` pixels a side.

    `bbox` is in degrees; of a scene without a place on the ground in pixels, y downwards.
    """
    left, bottom, right, top = parse_box(scene, parameters)
    ratio = (top - bottom) / (right - left)
    height, width = (size, max(1, int(size / ratio))) if ratio > 1 else (max(1, int(size * ratio)), size)
    affine = Affine((right - left) / width, 0.0, left, 0.0, (bottom - top) / height, top)
    return Frame(None if scene.crs is None else CRS84, affine, (height, width))


def snap_to_cells(scene: Scene, frame: Frame, most: int) -> Frame:
    """The frame whose pixels are the cells of the finest level that another frame touches.

    Raises
        Problem: there are no such cells, or more than `most`.
    """
    own, (height, width) = scene.affine(0), scene.shape
    if own.is_rotated:
        raise Problem(400, "size is missing; a rotated grid has no window of its own cells in degrees")
    x, y = frame.affine.at(*np.meshgrid(*(np.linspace(0, n, 33) for n in reversed(frame.shape))))
    if scene.crs is not None and frame.crs is not None:
        if scene.crs.is_geographic:
            # A longitude means the same meridian when 360 degrees are added; the scene's own are wanted.
            (west, _, east, _), turn = own.bounds(scene.shape), full_turn(scene.crs)
            _, y = frame.crs.transform(scene.crs, np.clip(x - x.min(), 0, 360), y)
            first = frame.crs.transform(scene.crs, np.array([x.min()]), np.array([0.0]))[0][0]
            begin = west + (first - west) % turn
            x = (begin if begin < east else begin - turn) + (x - x.min()) * (turn / 360)
        else:
            x, y = frame.crs.transform(scene.crs, x, y)
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        raise Problem(404, "the window lies where the collection's CRS is not defined")
    sides = []
    columns, rows = own.cell_at(x, y)
    for places, size in ((rows, height), (columns, width)):
        low, high = places[known].min(), places[known].max()
        begin, end = max(0, math.floor(low + 1e-6)), min(size, math.ceil(high - 1e-6))
        if begin >= end:
            raise Problem(404, "the window lies outside of the collection")
        sides.append((begin, end))
    (top, bottom), (left, right) = sides
    if (bottom - top) * (right - left) > most:
        raise Problem(
            422, f"the window has {bottom - top} × {right - left} cells; expected at most {most}, or size"
        )
    return Frame(scene.crs, own.moved(left, top), (bottom - top, right - left))


def find_cell(scene: Scene, parameters: Parameters) -> tuple[int, int] | None:
    """(row, column) in the finest level of the place that `lon`, `lat` or `x`, `y` give; None outside.

    Raises
        Problem: no place is given.
    """
    own = scene.affine(0)
    if scene.crs is not None and "lon" in parameters:
        lon, lat = parameters.number("lon", -360, 360), parameters.number("lat", -90, 90)
        x, y = CRS84.transform(scene.crs, np.array([lon]), np.array([lat]))
        east, north = float(x[0]), float(y[0])
        if scene.crs.is_geographic:
            west = own.bounds(scene.shape)[0]
            east = west + (east - west) % full_turn(scene.crs)
    elif "x" in parameters:
        east, north = parameters.number("x", -FARTHEST, FARTHEST), parameters.number("y", -FARTHEST, FARTHEST)
        north = -north if scene.crs is None else north
    else:
        raise Problem(400, "no place is given; expected lon and lat, or x and y in the collection's own CRS")
    if not (math.isfinite(east) and math.isfinite(north)):
        return None
    column, row = own.cell_at(east, north)
    if not (0 <= row <= scene.shape[0] and 0 <= column <= scene.shape[1]):
        return None
    # A place on the last edge, which may be a pole, is in the last cell.
    return min(int(row), scene.shape[0] - 1), min(int(column), scene.shape[1] - 1)

"""How scenes are cut: the tile matrix sets, and the frames of tiles, of windows and of whole scenes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine
from zstore.conventions.tilesets.registry import TileMatrix, list_tile_matrix_sets, load_tile_matrix_set
from zstore_serve.frames import Frame, pixel_matrices
from zstore_serve.problems import Problem
from zstore_serve.scenes import Scene

__all__ = [
    "PIXELS",
    "WEB",
    "crs_of",
    "describe_tiles",
    "matrices_of",
    "own_set",
    "set_names",
    "tile_frame",
    "tile_ranges",
    "tile_set",
    "whole_frame",
    "zooms",
]

WEB = "WebMercatorQuad"
# The one set of a scene that has no place on the ground.
PIXELS = "pixels"
# At so many places along each side a scene is asked where it lies.
PROBES = 64


def matrices_of(scene: Scene, name: str) -> Mapping[str, TileMatrix]:
    """The tile matrices in which a scene is cut by the set of that name.

    Raises
        Problem: it is not cut so.
    """
    if name == PIXELS and scene.crs is None:
        return pixel_matrices(scene.shape)
    if scene.crs is None:
        raise Problem(404, f"this collection has no place on the ground; its tiles come in {PIXELS!r}")
    found: Mapping[str, TileMatrix] = tile_set(name).tile_matrices
    return found


def own_set(scene: Scene) -> str:
    """The set in which a scene comes where nobody asks for another."""
    return WEB if scene.longitudes() else PIXELS


@lru_cache(1)
def set_names() -> list[str]:
    """The tile matrix sets that tiles come in."""
    names = list_tile_matrix_sets()
    # Rows of fewer tiles towards the poles are another way to count columns.
    return [n for n in names if not any(m.coalesced for m in load_tile_matrix_set(n).tile_matrices.values())]


def tile_set(name: str) -> Any:
    """The set of that name.

    Raises
        Problem: there is none.
    """
    if name not in set_names():
        raise Problem(404, f"no tile matrix set {name[:80]!r}; there are {', '.join(set_names())}")
    return load_tile_matrix_set(name)


@lru_cache(64)
def crs_of(name: str) -> Crs:
    """The CRS of a set."""
    return Crs.from_user(load_tile_matrix_set(name).crs)


def tile_frame(scene: Scene, tms: str, matrix: TileMatrix, row: int, column: int, size: int) -> Frame:
    """A tile of a set, `size` pixels wide."""
    height, width = matrix.tile_shape
    whole = matrix.affine
    x, y = whole.at(float(column * width), float(row * height))
    rows = max(1, round(height * size / width))
    affine = Affine(whole.a * width / size, 0.0, x, 0.0, whole.e * height / rows, y)
    return Frame(None if scene.crs is None else crs_of(tms), affine, (rows, size))


def whole_frame(scene: Scene, size: int) -> Frame:
    """All that a scene holds, north up where it has a place: of the level that fits, or the coarsest."""
    windows = []
    for (down, right), level in zip(scene.factors, scene.levels, strict=True):
        (top, bottom), (left, end) = ((side.start, side.stop) for side in scene.window)
        rows = (math.floor(top / down), min(level.geo.shape[0], math.ceil(bottom / down)))
        windows.append((rows, (math.floor(left / right), min(level.geo.shape[1], math.ceil(end / right)))))
    lengths = [max(rows[1] - rows[0], columns[1] - columns[0]) for rows, columns in windows]
    number = next((n for n, length in enumerate(lengths) if length <= size), len(lengths) - 1)
    own, (rows, columns) = scene.affine(number), windows[number]
    height, width, step = rows[1] - rows[0], columns[1] - columns[0], max(1, -(-lengths[number] // size))
    shape = (-(-height // step), -(-width // step))
    x, y = own.at(float(columns[0]), float(rows[0]))
    held = own._replace(c=x, f=y)
    if own.is_rotated:
        return Frame(scene.crs, held.scaled((step, step)), shape)
    left_edge, _, _, upper = held.bounds((height, width))
    return Frame(scene.crs, Affine(abs(own.a) * step, 0.0, left_edge, 0.0, -abs(own.e) * step, upper), shape)


def zooms(scene: Scene, name: str) -> tuple[int, int]:
    """The tile matrices of a set in which the scene is about one tile, and its finest cells are pixels."""
    matrices = matrices_of(scene, name)
    numbers = [int(z) for z in matrices]
    if scene.crs is None:
        return numbers[0], numbers[-1]
    cells = [matrix.cell_size for matrix in matrices.values()]
    finest = _cell_in(scene, crs_of(name)) * 1.1
    most = next((n for n, cell in enumerate(cells) if cell <= finest), len(cells) - 1)
    wide = max(scene.shape) * cells[most] * (1 - 1e-9)
    least = [
        n for n, m in enumerate(matrices.values()) if n <= most and m.cell_size * m.tile_shape[1] >= wide
    ]
    return numbers[max(least, default=0)], numbers[most]


def _cell_in(scene: Scene, crs: Crs) -> float:
    """The side of a finest cell amid the scene, in units of a CRS; 0 where that has no place there."""
    assert scene.crs is not None
    # Several places: one of them may lie where the globe is cut open, or nowhere.
    rows, columns = (np.array([1, 3, 5]) * (side.stop - side.start) / 6 + side.start for side in scene.window)
    right, down = (part.ravel() for part in np.meshgrid(columns, rows))
    sides = []
    for east, south in ((0.5, 0.0), (0.0, 0.5)):
        ends = (scene.affine(0).at(right + sign * east, down + sign * south) for sign in (-1, 1))
        (x, y), (other_x, other_y) = (scene.crs.transform(crs, *end) for end in ends)
        sides.append(np.hypot(other_x - x, other_y - y))
    found = np.sqrt(sides[0] * sides[1])
    found = found[np.isfinite(found)]
    return float(np.median(found)) if found.size else 0.0


def describe_tiles(scene: Scene, name: str, url: str) -> dict[str, Any]:
    """TileJSON of a scene's tiles in a set, at addresses of the given form."""
    least, most = zooms(scene, name)
    document: dict[str, Any] = {
        "tilejson": "3.0.0", "name": scene.title, "tiles": [url], "minzoom": least, "maxzoom": most,
        "scheme": "xyz",
    }  # fmt: skip
    box = scene.longitudes()
    if box:
        turns = math.floor((box[0] + 180) / 360) * 360.0
        box = (box[0] - turns, box[1], box[2] - turns, box[3])
        west, east = (box[0], box[2]) if box[2] <= 180 else (-180.0, 180.0)
        document["bounds"] = [west, max(box[1], -85.0511287798066), east, min(box[3], 85.0511287798066)]
        middle = (box[0] + box[2]) / 2
        document["center"] = [middle - 360 if middle > 180 else middle, (box[1] + box[3]) / 2, least]
    return document


def tile_ranges(scene: Scene, name: str, matrix: TileMatrix) -> tuple[range, range]:
    """(rows, columns) of the tiles of a matrix that may show something of a scene."""
    rows, columns = matrix.matrix_shape
    if scene.crs is None:
        return range(rows), range(columns)
    places = (np.linspace(side.start, side.stop, PROBES + 1) for side in scene.window)
    down, right = np.meshgrid(*places, indexing="ij")
    x, y = scene.crs.transform(crs_of(name), *scene.affine(0).at(right, down))
    found = []
    known, whole = np.isfinite(x) & np.isfinite(y), matrix.affine
    if not known.any():
        return range(0), range(0)
    sides = (
        (y, whole.f, whole.e * matrix.tile_shape[0], rows),
        (x, whole.c, whole.a * matrix.tile_shape[1], columns),
    )
    for at, corner, length, count in sides:
        low, high = sorted((at[known].min(), at[known].max()))
        # Between two places that were looked at, the edge may bulge.
        slack = (high - low) / PROBES
        ends = sorted((end - corner) / length for end in (low - slack, high + slack))
        found.append(range(max(0, math.floor(ends[0])), min(count, math.ceil(ends[1]))))
    return found[0], found[1]

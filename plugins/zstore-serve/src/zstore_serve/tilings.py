"""How scenes are cut into tiles: tile matrix sets, and the frames of tiles and of whole scenes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from zstore.plugin.conventions import Affine, Crs, TileMatrix, list_tile_matrix_sets, load_tile_matrix_set
from zstore_serve.frames import TILE_SIZE, Frame, own_matrices
from zstore_serve.problems import Problem
from zstore_serve.scenes import Scene

__all__ = [
    "NATIVE",
    "PIXELS",
    "WEB",
    "default_set",
    "globe_crs",
    "load_set",
    "native_view",
    "render_tilejson",
    "set_names",
    "tile_frame",
    "tile_matrices",
    "tile_ranges",
    "view_set",
    "whole_frame",
    "zoom_range",
]

WEB = "WebMercatorQuad"
# The tile matrix sets of a scene's own grid: of one without a place on the ground, and of all others.
PIXELS, NATIVE = "pixels", "native"
# The latitudes that all of a grid in degrees is beyond, and that another reaches, to be shown around a pole.
FAR_LATITUDE, POLE = 50.0, 85.0
# What the zones of UTM have in common, in CF's words.
UTM = {
    "latitude_of_projection_origin": 0.0, "false_easting": 5e5, "scale_factor_at_central_meridian": 0.9996,
    "semi_major_axis": 6378137.0,
}  # fmt: skip
# Of WGS 84, in metres to a millimetre; GRS 80's is the same.
POLAR_RADIUS = 6356752.314
# The globe from far above a place in degrees, as "globe:9.5,-20": an orthographic projection of a sphere.
GLOBE = re.compile(r"globe:(-?\d{1,3}(?:\.\d{1,6})?),(-?\d{1,2}(?:\.\d{1,6})?)")
GLOBE_RADIUS, GLOBE_DEPTH = 6378137.0, 20
# How many places along each side of a scene tell which tiles it touches.
PROBES = 64


def tile_matrices(scene: Scene, name: str) -> Mapping[str, TileMatrix]:
    """The tile matrices of the set `name`, by their ids, as far as a scene has tiles in that set.

    Raises
        Problem: there is no such set, or the scene has no tiles in it.
    """
    if name == (PIXELS if scene.crs is None else NATIVE):
        return own_matrices(scene)
    if scene.crs is None:
        raise Problem(404, f"this collection has no place on the ground; its tiles come in {PIXELS!r}")
    if globe_crs(name) is not None:
        return globe_matrices()
    found: Mapping[str, TileMatrix] = load_set(name).tile_matrices
    return found


@lru_cache(64)
def globe_crs(name: str) -> Crs | None:
    """The CRS of the globe that "globe:LON,LAT" names; None of any other name."""
    named = GLOBE.fullmatch(name)
    lon, lat = map(float, named.groups()) if named else (math.inf, math.inf)
    if abs(lon) > 180 or abs(lat) > 90:
        return None
    return Crs.from_user(f"+proj=ortho +lon_0={lon} +lat_0={lat} +R={GLOBE_RADIUS} +units=m +no_defs")


@lru_cache(1)
def globe_matrices() -> Mapping[str, TileMatrix]:
    """The tile matrices of any globe: its disk is in one tile of the first, in four of the next."""
    made = {}
    for z in range(GLOBE_DEPTH + 1):
        cell, count = 2 * GLOBE_RADIUS / TILE_SIZE / 2**z, 2**z
        corner = -GLOBE_RADIUS, GLOBE_RADIUS
        made[str(z)] = TileMatrix(
            str(z), cell / 0.00028, cell, corner, (TILE_SIZE, TILE_SIZE), (count, count)
        )
    return made


def default_set(scene: Scene) -> str:
    """The name of the tile matrix set of a scene's tiles where none is asked for."""
    return WEB if scene.geographic_bounds() else PIXELS


def view_set(scene: Scene) -> str:
    """The name of the tile matrix set in which the page shows a scene at first.

    Around a pole, of that pole; of UTM's zones and of what satellites see from their places, the scene's own.
    """
    name, box = default_set(scene), scene.geographic_bounds()
    if scene.crs is None or box is None:
        return name
    if native_view(scene):
        return NATIVE
    if scene.crs.is_geographic:
        is_arctic, is_antarctic = box[1] >= FAR_LATITUDE, box[3] <= -FAR_LATITUDE
    else:
        is_whole = box[2] - box[0] >= 359
        is_arctic, is_antarctic = is_whole and box[3] >= POLE, is_whole and box[1] <= -POLE
    return "UPSArcticWGS84Quad" if is_arctic else "UPSAntarcticWGS84Quad" if is_antarctic else name


@lru_cache(1)
def set_names() -> list[str]:
    """The names of the tile matrix sets that scenes can be cut by."""
    names = list_tile_matrix_sets()
    # Sets with fewer tiles in rows near the poles count their columns otherwise.
    return [n for n in names if not any(m.coalesced for m in load_tile_matrix_set(n).tile_matrices.values())]


def load_set(name: str) -> Any:
    """The tile matrix set of that name.

    Raises
        Problem: there is no such set.
    """
    if name not in set_names():
        raise Problem(404, f"no tile matrix set {name[:80]!r}; there are {', '.join(set_names())}")
    return load_tile_matrix_set(name)


def native_view(scene: Scene) -> dict[str, Any] | None:
    """The projection of a scene's own grid, where the page can draw the ground in it; else None.

    {"utm": EPSG's number of the zone of WGS 84}, or {"geostationary": CF's parameters}
    """
    stated = {} if scene.crs is None else scene.crs.cf
    if stated.get("grid_mapping_name") == "geostationary":
        names = ("longitude_of_projection_origin", "perspective_point_height", "sweep_angle_axis")
        return {"geostationary": [stated[n] for n in (*names, "semi_major_axis", "semi_minor_axis")]}
    if stated.get("grid_mapping_name") != "transverse_mercator":
        return None
    zone, north = (stated["longitude_of_central_meridian"] + 183) / 6, stated["false_northing"]
    is_utm = all(stated.get(name) == value for name, value in UTM.items())
    is_utm &= round(stated["semi_minor_axis"], 3) == POLAR_RADIUS and zone % 1 == 0 and north in (0, 1e7)
    return {"utm": round(zone) + (32700 if north else 32600)} if is_utm else None


@lru_cache(64)
def _set_crs(name: str) -> Crs:
    return globe_crs(name) or Crs.from_user(load_tile_matrix_set(name).crs)


def tile_crs(scene: Scene, name: str) -> Crs | None:
    """The CRS of a scene's tiles in the tile matrix set of that name."""
    return scene.crs if scene.crs is None or name == NATIVE else _set_crs(name)


def tile_frame(scene: Scene, tms: str, matrix: TileMatrix, row: int, column: int, size: int) -> Frame:
    """The frame of a tile, `size` pixels wide."""
    height, width = matrix.tile_shape
    rows = max(1, round(height * size / width))
    affine = matrix.affine.moved(column * width, row * height).scaled((height / rows, width / size))
    return Frame(tile_crs(scene, tms), affine, (rows, size))


def whole_frame(scene: Scene, size: int) -> Frame:
    """The frame of a whole scene, at most `size` pixels a side; north up unless the grid is rotated.

    Pixels are cells of the finest level that fits, or several cells of the coarsest a side.
    """
    windows = [
        [
            (math.floor(side.start / factor), min(length, math.ceil(side.stop / factor)))
            for side, factor, length in zip(scene.window, factors, level.geo.shape, strict=True)
        ]
        for factors, level in zip(scene.factors, scene.levels, strict=True)
    ]
    lengths = [max(end - begin for begin, end in window) for window in windows]
    number = next((n for n, length in enumerate(lengths) if length <= size), len(lengths) - 1)
    (top, bottom), (left, right) = windows[number]
    height, width, step = bottom - top, right - left, max(1, -(-lengths[number] // size))
    own = scene.affine(number).moved(left, top)
    if not own.is_rotated:
        west, _, _, north = own.bounds((height, width))
        own = Affine(abs(own.a), 0.0, west, 0.0, -abs(own.e), north)
    return Frame(scene.crs, own.scaled((step, step)), (-(-height // step), -(-width // step)))


def zoom_range(scene: Scene, name: str) -> tuple[int, int]:
    """The zooms at which a scene is about one tile, and at which cells of its finest level are pixels."""
    matrices = tile_matrices(scene, name)
    numbers = [int(z) for z in matrices]
    crs = tile_crs(scene, name)
    if crs is None or name == NATIVE:
        return numbers[0], numbers[-1]
    cells = [matrix.cell_size for matrix in matrices.values()]
    finest = _cell_size_in(scene, crs) * 1.1
    most = next((n for n, cell in enumerate(cells) if cell <= finest), len(cells) - 1)
    wide = max(scene.shape) * cells[most] * (1 - 1e-9)
    least = [
        n for n, m in enumerate(matrices.values()) if n <= most and m.cell_size * m.tile_shape[1] >= wide
    ]
    return numbers[max(least, default=0)], numbers[most]


def _cell_size_in(scene: Scene, crs: Crs) -> float:
    """The side of a cell in the middle of a scene, in units of a CRS; 0 outside of that CRS's domain."""
    assert scene.crs is not None
    # Several places, for some may lie at the antimeridian or outside of the CRS's domain.
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


def render_tilejson(scene: Scene, name: str, url: str) -> dict[str, Any]:
    """The TileJSON of a scene's tiles in a tile matrix set; `url` is the template of their addresses."""
    least, most = zoom_range(scene, name)
    document: dict[str, Any] = {
        "tilejson": "3.0.0", "name": scene.title, "tiles": [url], "minzoom": least, "maxzoom": most,
        "scheme": "xyz",
    }  # fmt: skip
    box = scene.geographic_bounds()
    if box:
        turns = math.floor((box[0] + 180) / 360) * 360.0
        box = (box[0] - turns, box[1], box[2] - turns, box[3])
        west, east = (box[0], box[2]) if box[2] <= 180 else (-180.0, 180.0)
        document["bounds"] = [west, max(box[1], -85.0511287798066), east, min(box[3], 85.0511287798066)]
        middle = (box[0] + box[2]) / 2
        document["center"] = [middle - 360 if middle > 180 else middle, (box[1] + box[3]) / 2, least]
    return document


def tile_ranges(scene: Scene, name: str, matrix: TileMatrix) -> tuple[range, range]:
    """The (rows, columns) of a tile matrix whose tiles a scene may touch."""
    rows, columns = matrix.matrix_shape
    crs = tile_crs(scene, name)
    if crs is None or scene.crs is None or name == NATIVE:
        return range(rows), range(columns)
    places = (np.linspace(side.start, side.stop, PROBES + 1) for side in scene.window)
    down, right = np.meshgrid(*places, indexing="ij")
    x, y = scene.crs.transform(crs, *scene.affine(0).at(right, down))
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        return range(0), range(0)
    whole, (height, width), found = matrix.affine, matrix.tile_shape, []
    for at, corner, length, count in (
        (y[known], whole.f, whole.e * height, rows),
        (x[known], whole.c, whole.a * width, columns),
    ):
        low, high = at.min(), at.max()
        # Between two of the places, the edge may bulge.
        slack = (high - low) / PROBES
        ends = sorted((end - corner) / length for end in (low - slack, high + slack))
        found.append(range(max(0, math.floor(ends[0])), min(count, math.ceil(ends[1]))))
    return found[0], found[1]

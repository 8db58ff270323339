"""Areas of scenes: the cells that a box or a polygon covers, and statistics of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.plugin.conventions import Crs
from zstore.plugin.pyramids import GeoGrid, Zones, hull_of
from zstore_serve.frames import Floats, FramePart, FramePlan, Items, Mask
from zstore_serve.places import FARTHEST, parse_box
from zstore_serve.problems import Problem
from zstore_serve.queries import Parameters
from zstore_serve.scenes import CRS84, Scene
from zstore_serve.tilings import NATIVE, globe_crs

__all__ = ["AREA_PARAMETERS", "Area", "find_area", "means", "statistics", "weighed_percentiles"]

AREA_PARAMETERS = frozenset(("bbox", "polygon", "crs"))
MOST_CORNERS = 200
BINS = 32
# The most cells whose centres are looked for in an outline.
MOST_CENTRES = 1 << 20
# Of cells without a place on the ground: no place is ever transformed, so any projected CRS will do.
ANY_PLANE = "EPSG:3857"


@dataclass(frozen=True)
class Area:
    """Cells of one level of a scene.

    window    (y, x), of the level
    share     (rows, columns): how much of each cell's area belongs to it, from 0 to 1
    is_exact  whether that is measured; else cells belong to it as a whole, by their centres
    """

    level: int
    window: tuple[slice, slice]
    share: Floats
    is_exact: bool = True

    @classmethod
    def of_cell(cls, row: int, column: int) -> Area:
        """One cell of the finest level."""
        return cls(0, (slice(row, row + 1), slice(column, column + 1)), np.ones((1, 1)))

    @property
    def plan(self) -> FramePlan:
        """The plan of a frame that has the cells of the window as its pixels."""
        return FramePlan(self.level, self.share.shape, (FramePart(self.window, None, None),))


def find_area(scene: Scene, parameters: Parameters, most: int) -> Area | None:
    """The cells in `bbox` or `polygon`; None where there are none.

    They are of the finest level that has at most `most` cells in a box around them.

    Raises
        Problem: there is no such level, or the parameters give no area.
    """
    ring, crs = _ring(scene, parameters)
    for level, dataset in enumerate(scene.levels):
        shape = dataset.geo.shape
        grid = GeoGrid(scene.crs or crs, scene.affine(level), shape)
        try:
            zones = Zones.on(grid, {"type": "Polygon", "coordinates": [ring]}, crs)
        except UnsupportedError as error:
            raise Problem(400, str(error)) from None
        except MetadataError:
            return _area_of_centres(scene, ring, crs, min(most, MOST_CENTRES))
        window = hull_of(zones.within((slice(0, shape[0]), slice(0, shape[1]))))
        lengths = window[0].stop - window[0].start, window[1].stop - window[1].start
        if math.prod(lengths) <= most:
            break
    else:
        raise Problem(
            422,
            f"{math.prod(lengths)} cells of the coarsest level lie around this area; expected {most} at "
            "most: a smaller area, or coarser levels, which `zstore pyramid` makes",
        )
    if not math.prod(lengths):
        return None
    share = np.zeros(lengths)
    for shares in zones.shares(window):
        for part, covered in shares:
            share[part] += covered
    return Area(level, window, share)


def _area_of_centres(scene: Scene, ring: Sequence[tuple[float, float]], crs: Crs, most: int) -> Area | None:
    """The cells whose centres lie in an outline that leads around a pole, or beyond the grid's CRS."""
    shapes = [level.geo.shape for level in scene.levels]
    level = next((n for n, shape in enumerate(shapes) if math.prod(shape) <= most), None)
    if level is None or scene.crs is None:
        what = f"the outline leads beyond the collection's CRS; of its levels none has {most} cells or fewer"
        raise Problem(422, f"{what}: `zstore pyramid` makes coarser ones")
    height, width = shapes[level]
    x, y = scene.affine(level).at(*np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5))
    x, y = scene.crs.transform(crs, x, y)
    inside = np.zeros(x.shape, bool)
    with np.errstate(invalid="ignore"):  # what the outline's CRS does not show is at no place
        for (left, low), (right, high) in pairwise(ring):
            if low != high:
                edge = left + (y - low) * ((right - left) / (high - low))
                inside ^= ((low > y) != (high > y)) & (x < edge)
    if not inside.any():
        return None
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    window = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
    return Area(level, window, inside[window].astype(np.float64), is_exact=False)


def _ring(scene: Scene, parameters: Parameters) -> tuple[list[tuple[float, float]], Crs]:
    """(the corners of the area's outline, the first one again at the end; the CRS of their coordinates)."""
    crs = CRS84 if scene.crs is not None else Crs.from_user(ANY_PLANE)
    if "bbox" in parameters and "polygon" in parameters:
        raise Problem(400, "bbox and polygon are both given; expected one of them")
    if "bbox" in parameters:
        west, south, east, north = parse_box(scene, parameters)
        return [(west, south), (east, south), (east, north), (west, north), (west, south)], crs
    numbers = parameters.numbers("polygon", range(6, 2 * MOST_CORNERS + 1, 2), "6 or more")
    if max(map(abs, numbers)) > FARTHEST:
        raise Problem(400, f"polygon reaches {max(map(abs, numbers)):g}; expected {FARTHEST:g} at most")
    if "crs" in parameters:
        named = parameters.text("crs")
        crs = scene.crs if named == NATIVE and scene.crs is not None else _named_crs(named)
    corners = list(zip(numbers[::2], numbers[1::2], strict=True))
    if scene.crs is None:
        corners = [(x, -y) for x, y in corners]
    if crosses_itself(corners):
        raise Problem(400, "the outline of polygon crosses itself; expected one that does not")
    return [*corners, corners[0]], crs


def _named_crs(code: str) -> Crs:
    globe = globe_crs(code)
    if globe is not None:
        return globe
    try:
        if re.fullmatch(r"[A-Z]+:[A-Za-z0-9]{1,12}", code):
            return Crs.from_user(code)
    except (MetadataError, UnsupportedError):
        pass
    raise Problem(400, f"crs is {code[:80]!r}; expected a code, as EPSG:3857, or {NATIVE!r}")


def crosses_itself(corners: Sequence[tuple[float, float]]) -> bool:
    """Whether two sides of a closed outline cross in their inside."""
    first = np.array(corners, np.float64)
    second = np.roll(first, -1, axis=0)

    def turns(place: Any) -> Floats:
        """On which side of each side of the outline (rows) each place (columns) lies."""
        along, off = (second - first)[:, None], place[None] - first[:, None]
        side: Floats = np.sign(along[..., 0] * off[..., 1] - along[..., 1] * off[..., 0])
        return side

    apart = turns(first) * turns(second) < 0
    return bool((apart & apart.T).any())


def statistics(values: Items, valid: Mask, share: Floats | None = None) -> dict[str, Any]:
    """Statistics of the valid values, each weighed by its cell's share; None: all count alike.

    `count` is the sum of their shares, `valid` that part of all; the standard deviation is the population's.
    """
    held = valid if share is None else valid & (share > 0)
    seen = values[held].astype(np.float64)
    if not seen.size:
        return {"count": 0}
    weight = None if share is None else share[held]
    count, whole = (seen.size, valid.size) if weight is None else (weight.sum(), share.sum())
    low, median, high = weighed_percentiles(seen, weight, (2, 50, 98))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(seen, weights=weight)
        std = np.sqrt(np.average((seen - mean) ** 2, weights=weight))
    return {
        "count": count, "valid": count / whole, "min": seen.min(), "max": seen.max(),
        "mean": mean, "std": std, "percentile_2": low, "median": median, "percentile_98": high,
        "histogram": _histogram(seen, weight),
    }  # fmt: skip


def weighed_percentiles(seen: Floats, weight: Floats | None, wanted: Sequence[float]) -> list[float]:
    """Percentiles of values: without weights numpy's.

    With weights they are exactextract's, which takes equal values as one.
    """
    if weight is None:
        return [float(one) for one in np.percentile(seen, wanted)]
    seen, which = np.unique(seen, return_inverse=True)
    weight, last = np.bincount(which, weight), len(seen) - 1
    before = np.cumsum(weight) - weight
    place = np.arange(len(seen)) * weight + last * before
    found = np.interp(np.array(wanted) / 100 * last * weight.sum(), place, seen)
    return [float(one) for one in found]


def _histogram(seen: Floats, weight: Floats | None) -> list[list[Any]] | None:
    """[counts, edges of the bins]; None where the values are too close or too far apart for bins."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(seen, BINS, weights=weight)
    except ValueError:
        return None
    return [counts.tolist(), edges.tolist()]


def means(values: Items, valid: Mask, share: Floats) -> tuple[Floats, Mask]:
    """(the mean of each plane's valid values, weighed by their shares; which planes have any).

    Shapes
        values and valid (planes, rows, columns), share (rows, columns); results (planes).
    """
    weight = np.where(valid, share, 0.0)
    count = weight.sum(axis=(1, 2))
    total = (weight * np.where(valid, values, 0)).sum(axis=(1, 2))
    return total / np.where(count > 0, count, 1), count > 0

"""Polygons on the cells of a grid: the share of each cell that a zone covers, exactly or by its centre.

An edge of a polygon adds its height, in rows, to the share of every cell to its right, and of the cell that
it crosses as much of it as lies to the right. The sum over a closed ring is the covered area of each cell,
whatever the polygon's form; no cell inside is looked at by itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from zstore.base.once import once
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.geo.conventions.crs import Crs
from zstore.geo.pyramid.warp import GeoGrid

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
# The names of the ways by which cells are counted to a zone.
CELLS = ("exact", "centre")
# GeoJSON without a CRS has longitudes and latitudes.
LON_LAT = "OGC:CRS84"
# In cells: how far an edge that another CRS bends may be off.
BEND = 1e-3
# An edge is halved as often at most: 65,536 pieces.
HALVINGS = 16
# In cells: places beyond are as far away as this.
FAR = 1 << 40
# The cells of zones that are weighed at a time, few enough for a processor's cache.
BATCH_SIZE = 1 << 18
# Shares closer to 0 or 1 are rounding's.
SLACK = 1e-9
# GeoJSON as a mapping, a path of it, an object of shapely's or geopandas', or several of these.
ZonesLike: TypeAlias = Any


@dataclass(frozen=True)
class Shares:
    """The shares of cells that zones cover, in boxes of rows and columns, one behind the other.

    zone    the number of each box's zone
    boxes   (first row, first column, rows, columns) of each box, counted from the corner of the window
    starts  the place of each box in `share`, in which every row has one item more, which is no cell
    share   from 0 to 1
    """

    zone: Counts
    boxes: Counts
    starts: Counts
    share: Numbers

    def __iter__(self) -> Iterator[tuple[tuple[slice, slice], Numbers]]:
        """(rows and columns, their shares) of each box."""
        for (row, column, height, width), start in zip(
            self.boxes.tolist(), self.starts.tolist(), strict=True
        ):
            lines = self.share[start : start + height * (width + 1)].reshape(height, width + 1)
            yield (slice(row, row + height), slice(column, column + width)), lines[:, :width]


@dataclass(frozen=True)
class Zones:
    """The edges of polygons on a grid, in cells from its corner, ordered by zone.

    count      of zones, with those that have no edge
    zone       the number of each edge's zone
    ends       (column, row) of each edge's first and second end, an array (4, edges)
    direction  1 or -1, which makes the area inside positive
    """

    count: int
    zone: Counts
    ends: Numbers
    direction: Numbers

    @classmethod
    def on(cls, grid: GeoGrid, zones: ZonesLike, crs: Any = None) -> Zones:
        """The zones of GeoJSON on a grid, one for each feature, or each geometry without features.

        crs  of the coordinates; None: the one that the document names, else longitudes and latitudes

        Raises
            UnsupportedError: a geometry is no polygon.
            MetadataError: the document is no GeoJSON, or a zone on the grid is not defined in its CRS.
        """
        geometries, named = read_geometries(zones)
        own = Crs.from_user(crs or named or LON_LAT)
        owners, rings, signs = list[int](), list[Numbers](), list[float]()
        for number, geometry in enumerate(geometries):
            for ring, sign in _rings(geometry, number):
                owners.append(number)
                rings.append(ring)
                signs.append(sign)
        if not rings:
            return cls(len(geometries), np.empty(0, np.int64), np.empty((4, 0)), np.empty(0))
        sizes = np.array([len(ring) for ring in rings])
        first = np.concatenate(rings).T
        second = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings]).T
        # Which way a ring goes is its own affair: the outer one adds, those in it take away.
        areas = np.add.reduceat(first[0] * second[1] - second[0] * first[1], np.r_[0, np.cumsum(sizes)[:-1]])
        edges = cls(
            len(geometries),
            np.repeat(np.array(owners, np.int64), sizes),
            np.concatenate([first, second]),
            np.repeat(np.array(signs) * np.where(areas < 0, -1, 1), sizes),
        )
        edges._check_latitudes(own)
        return edges._placed(grid, own)

    def _check_latitudes(self, own: Crs) -> None:
        """Raise MetadataError if coordinates that should be latitudes are metres."""
        is_far = own.is_geographic & (np.abs(self.ends[1]) > pi / own.radians_per_unit)
        if is_far.any():
            at = int(is_far.argmax())
            y = self.ends[1, at]
            raise MetadataError(f"zone {self.zone[at]} has the latitude {y:g}; expected degrees, or crs=...")

    def _placed(self, grid: GeoGrid, own: Crs) -> Zones:
        """The edges, projected from their CRS onto a grid."""
        affine, is_same = grid.affine, own.is_same(grid.crs)

        def place(points: Numbers, turn: float = 0.0) -> Numbers:
            x, y = points if is_same else own.transform(grid.crs, points[0], points[1])
            return np.array(affine.cell_at(x + turn, y))

        edges = self if is_same else self._bent(place)
        # A mirror image has its rings the other way round; rows mostly run downwards.
        direction = edges.direction * -np.sign(affine.a * affine.e - affine.b * affine.d)
        full = 2 * pi / grid.crs.radians_per_unit if grid.crs.is_geographic else 0.0
        made = list[Zones]()
        for turn in (0.0, -full, full) if full else (0.0,):
            ends = np.concatenate([place(edges.ends[:2], turn), place(edges.ends[2:], turn)])
            made.append(Zones(self.count, edges.zone, ends, direction)._near(grid, own, self))
        return _together(made)

    def _bent(self, place: Callable[[Numbers], Numbers]) -> Zones:
        """The edges, cut into pieces that are nearly straight on the grid."""
        done, left = list[Zones](), self
        for _ in range(HALVINGS):
            ends = left.ends
            middle = (ends[:2] + ends[2:]) / 2
            with np.errstate(invalid="ignore"):
                off = place(middle) - (place(ends[:2]) + place(ends[2:])) / 2
                is_bent = (np.abs(off) > BEND).any(axis=0)
            done.append(left._of(~is_bent))
            left, between = left._of(is_bent), middle[:, is_bent]
            first, second = np.vstack([left.ends[:2], between]), np.vstack([between, left.ends[2:]])
            left = Zones(
                self.count, np.tile(left.zone, 2), np.hstack([first, second]), np.tile(left.direction, 2)
            )
            if not len(left.zone):
                break
        # An edge that nothing makes straight leads to where the grid's CRS has no end.
        return _together([*done, replace(left, ends=np.full_like(left.ends, np.nan))])

    def _of(self, chosen: Any) -> Zones:
        return Zones(self.count, self.zone[chosen], self.ends[:, chosen], self.direction[chosen])

    def _near(self, grid: GeoGrid, own: Crs, stated: Zones) -> Zones:
        """The zones that may cover a cell of the grid.

        stated  the edges in the zones' own CRS
        """
        if not len(self.zone):
            return self
        is_finite = np.isfinite(self.ends).all(axis=0)
        undefined = np.unique(self.zone[~is_finite])
        if len(undefined):
            x, y = grid.affine.at(
                *np.meshgrid(*(np.linspace(0, length, 65) for length in reversed(grid.shape)))
            )
            outline = np.array(grid.crs.transform(own, x.ravel(), y.ravel()))
            low, high = np.nanmin(outline, axis=1), np.nanmax(outline, axis=1)
            for number in undefined.tolist():
                points = stated.ends[:, stated.zone == number].reshape(2, 2, -1)
                if (points.min(axis=(0, 2)) <= high).all() and (points.max(axis=(0, 2)) >= low).all():
                    raise MetadataError(
                        f"zone {number} reaches beyond where {grid.crs.label} is defined; expected one within"
                    )
        ends = np.where(is_finite, self.ends, np.inf)
        starts = np.flatnonzero(np.r_[True, self.zone[1:] != self.zone[:-1]])
        low = np.minimum.reduceat(np.minimum(ends[:2], ends[2:]), starts, axis=1)
        high = np.maximum.reduceat(np.maximum(ends[:2], ends[2:]), starts, axis=1)
        limits = np.array([[grid.shape[1]], [grid.shape[0]]])
        is_near = ((high > 0) & (low < limits) & np.isfinite(high)).all(axis=0)
        return self._of(np.repeat(is_near, np.diff(np.r_[starts, len(self.zone)])))

    @once
    def boxes(self) -> Counts:
        """(number, first edge, last edge + 1, first column, last + 1, first row, last + 1) of each zone.

        Shape (zones with edges, 7).
        """
        first = np.flatnonzero(np.r_[True, self.zone[1:] != self.zone[:-1]][: len(self.zone)])
        if not len(first):
            return np.empty((0, 7), np.int64)
        low = np.floor(np.minimum.reduceat(np.minimum(self.ends[:2], self.ends[2:]), first, axis=1))
        high = np.ceil(np.maximum.reduceat(np.maximum(self.ends[:2], self.ends[2:]), first, axis=1))
        sides = np.clip([low[0], high[0], low[1], high[1]], -FAR, FAR).astype(np.int64)
        made: Counts = np.c_[self.zone[first], first, np.r_[first[1:], len(self.zone)], sides.T]
        return made

    def within(self, window: tuple[slice, slice]) -> Counts:
        """The `boxes` of the zones that have cells in a window, as far as they are in it."""
        rows, columns = window
        made = self.boxes.copy()
        np.clip(made[:, 3:5], columns.start, columns.stop, out=made[:, 3:5])
        np.clip(made[:, 5:], rows.start, rows.stop, out=made[:, 5:])
        here: Counts = made[(made[:, 3] < made[:, 4]) & (made[:, 5] < made[:, 6])]
        return here

    def shares(self, window: tuple[slice, slice], cells: str = "exact") -> Iterator[Shares]:
        """The cells of a window that zones cover, some at a time, and of each zone a box at a time."""
        held, room = list[tuple[int, ...]](), BATCH_SIZE
        for number, first, last, left, right, top, bottom in self.within(window).tolist():
            width = right - left
            step = max(1, BATCH_SIZE // (width + 1))
            for row in range(top, bottom, step):
                height = min(step, bottom - row)
                if held and (held[-1][0] == number or height * (width + 1) > room):
                    yield self._shares(window, held, cells)
                    held, room = [], BATCH_SIZE
                held.append((number, first, last, row, left, height, width))
                room -= height * (width + 1)
        if held:
            yield self._shares(window, held, cells)

    def _shares(self, window: tuple[slice, slice], held: Sequence[tuple[int, ...]], cells: str) -> Shares:
        """The shares in boxes: (zone, first edge, last edge + 1, first row, first column, rows, columns)."""
        listed = np.array(held)
        zone, first, last = listed[:, :3].T
        corner, (height, width) = listed[:, 3:5], listed[:, 5:].T
        owner = np.repeat(np.arange(len(listed)), last - first)
        index = np.arange(len(owner)) + np.repeat(
            first - np.cumsum(last - first) + last - first, last - first
        )
        ends = self.ends[:, index] - np.tile(corner[owner, ::-1], 2).T
        is_here = (np.minimum(ends[1], ends[3]) < height[owner]) & (np.maximum(ends[1], ends[3]) > 0)
        owner, index, ends = owner[is_here], index[is_here], ends[:, is_here]
        sizes = height * (width + 1)
        starts = np.cumsum(sizes) - sizes
        changes = _exact_changes if cells == "exact" else _centre_changes
        about = self.direction[index], height[owner], width[owner], starts[owner], int(sizes.sum())
        share = np.cumsum(changes(ends, *about))
        # Of an outline that crosses itself, some of what it goes round is negative.
        share = np.abs(share)
        if cells == "exact":
            share[share < SLACK] = 0
            share[share > 1 - SLACK] = 1
        else:
            share = (share > 0.5).astype(np.float64)
        corner = corner - [window[0].start, window[1].start]
        return Shares(zone, np.c_[corner, height, width], starts, share)


def _together(several: Sequence[Zones]) -> Zones:
    """The edges of several `Zones`, ordered by zone."""
    zone = np.concatenate([one.zone for one in several])
    ends = np.concatenate([one.ends for one in several], axis=1)
    direction = np.concatenate([one.direction for one in several])
    order = np.argsort(zone, kind="stable")
    return Zones(several[0].count, zone[order], ends[:, order], direction[order])


def hull_of(boxes: Counts) -> tuple[slice, slice]:
    """The smallest window around `Zones.boxes`, of which there may be none."""
    if not len(boxes):
        return slice(0, 0), slice(0, 0)
    low, high = boxes.min(axis=0).tolist(), boxes.max(axis=0).tolist()
    return slice(low[5], high[6]), slice(low[3], high[4])


def _split(ends: Numbers, axis: int, length: Counts) -> tuple[Counts, Numbers]:
    """The edges cut at the whole numbers from 0 to `length` along an axis: (edge, ends) of each piece."""
    p, q = ends[axis], ends[axis + 2]
    low = np.maximum(np.floor(np.minimum(p, q)) + 1, 0)
    high = np.minimum(np.ceil(np.maximum(p, q)) - 1, length)
    count = np.maximum(high - low + 1, 0).astype(np.int64)
    index = np.repeat(np.arange(len(p)), count + 1)
    last = np.cumsum(count + 1)
    made = ends[:, index]
    # All pieces but the first begin, and all but the last end, at such a number.
    is_cut = np.ones(len(index), bool)
    is_cut[last - 1] = False
    cut = np.flatnonzero(is_cut)
    edge = index[cut]
    number = cut - (last - count - 1)[edge]
    line = np.where(q[edge] > p[edge], low[edge] + number, high[edge] - number)
    other = 1 - axis
    a, b = ends[other][edge], ends[other + 2][edge]
    at = a + (line - p[edge]) / (q[edge] - p[edge]) * (b - a)
    made[axis + 2, cut] = made[axis, cut + 1] = line
    made[other + 2, cut] = made[other, cut + 1] = at
    return index, made


# Both give the changes of the share from one cell to the next in its row, for all `size` cells of some boxes,
# of which each edge tells its own: height, width, and the place of the first cell.


def _exact_changes(
    ends: Numbers, direction: Numbers, height: Counts, width: Counts, start: Counts, size: int
) -> Numbers:
    """The changes of the covered area."""
    index, pieces = _split(ends, 1, height)
    middle = (pieces[1] + pieces[3]) / 2
    is_here = (middle > 0) & (middle < height[index]) & (pieces[1] != pieces[3])
    index, pieces = index[is_here], pieces[:, is_here]
    again, pieces = _split(pieces, 0, width[index])
    index = index[again]
    width = width[index]
    middle = np.clip((pieces[0] + pieces[2]) / 2, 0, width)
    row = np.minimum(((pieces[1] + pieces[3]) / 2).astype(np.int64), height[index] - 1)
    column = middle.astype(np.int64)
    place = start[index] + row * (width + 1) + column
    rise = (pieces[3] - pieces[1]) * direction[index]
    left = rise * (middle - column)
    places, changes = np.concatenate([place, place + 1]), np.concatenate([rise - left, left])
    made: Any = np.bincount(places, changes, size + 1)
    return made[:size]  # type: ignore[no-any-return]


def _centre_changes(
    ends: Numbers, direction: Numbers, height: Counts, width: Counts, start: Counts, size: int
) -> Numbers:
    """The changes of whether the centre is inside."""
    low, high = np.minimum(ends[1], ends[3]), np.maximum(ends[1], ends[3])
    first = np.clip(np.ceil(low - 0.5), 0, height).astype(np.int64)
    count = np.clip(np.ceil(high - 0.5), 0, height).astype(np.int64) - first
    index = np.repeat(np.arange(len(low)), count)
    row = first[index] + np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    x, y, u, v = ends[:, index]
    at = x + (row + 0.5 - y) / (v - y) * (u - x)
    column = np.clip(np.ceil(at - 0.5), 0, width[index]).astype(np.int64)
    place = start[index] + row * (width[index] + 1) + column
    made: Any = np.bincount(place, np.sign(v - y) * direction[index], size)
    return made  # type: ignore[no-any-return]


def read_features(zones: ZonesLike) -> tuple[list[Mapping[str, Any]], Any]:
    """(the features of GeoJSON, the CRS that it names), as `read_geometries` reads it.

    Each geometry without a feature becomes one without properties.
    """
    if isinstance(zones, str | os.PathLike):
        text, place = os.fspath(zones), None
        try:
            if not text.lstrip().startswith(("{", "[")):
                place, text = text, Path(text).read_text(encoding="utf-8-sig")
            zones = json.loads(text)
        except FileNotFoundError as error:
            raise NotFoundError("no file of zones; expected GeoJSON", path=place) from error
        except (ValueError, RecursionError) as error:
            raise MetadataError(f"the zones are no GeoJSON: {error}", path=place) from error
    if not isinstance(zones, Mapping) and hasattr(zones, "__geo_interface__"):
        zones = zones.__geo_interface__
    if not isinstance(zones, Mapping):
        if not isinstance(zones, Iterable) or isinstance(zones, bytes):
            raise MetadataError(f"zones are {zones!r}; expected GeoJSON, or objects with __geo_interface__")
        several = [read_features(one) for one in zones]
        named = {json.dumps(crs) for _, crs in several if crs is not None}
        if len(named) > 1:
            raise MetadataError(f"zones name the CRS {' and '.join(sorted(named))}; expected one")
        crs = json.loads(named.pop()) if named else None
        return [feature for features, _ in several for feature in features], crs
    crs, kind = zones.get("crs"), zones.get("type")
    if isinstance(crs, Mapping) and isinstance(crs.get("properties"), Mapping):
        crs = crs["properties"].get("name", crs)
    if kind == "FeatureCollection" and isinstance(zones.get("features"), Sequence):
        return list(zones["features"]), crs
    return [zones if kind == "Feature" else {"type": "Feature", "geometry": zones, "properties": {}}], crs


def read_geometries(zones: ZonesLike) -> tuple[list[Any], Any]:
    """(the geometry of each feature of GeoJSON, the CRS that it names).

    zones  a mapping, a text or a path of it, an object with `__geo_interface__`, or several of these

    Raises
        MetadataError: it is none of these.
    """
    features, crs = read_features(zones)
    for number, feature in enumerate(features):
        if not isinstance(feature, Mapping) or "geometry" not in feature:
            raise MetadataError(f"feature {number} of the zones has no geometry; expected one, or null")
    return [feature["geometry"] for feature in features], crs


def _rings(geometry: Any, number: int) -> Iterator[tuple[Numbers, float]]:
    """The (x, y) of the ends of each ring's edges, with 1 for an outer ring and -1 for a hole."""
    if geometry is None:
        return
    kind = geometry.get("type") if isinstance(geometry, Mapping) else None
    if kind == "GeometryCollection":
        held = geometry.get("geometries", ())
        if not isinstance(held, Sequence):
            raise MetadataError(f"zone {number} has the geometries {held!r}; expected a list")
        for one in held:
            yield from _rings(one, number)
        return
    if kind not in ("Polygon", "MultiPolygon"):
        raise UnsupportedError(f"zone {number} is {kind or geometry!r}; expected a polygon or a multipolygon")
    parts = geometry.get("coordinates")
    try:
        for polygon in [parts] if kind == "Polygon" else parts:
            for at, ring in enumerate(polygon):
                points = np.array([point[:2] for point in ring], np.float64).reshape(-1, 2)
                if len(points) and not np.isfinite(points).all():
                    raise ValueError("a coordinate is not finite")
                if len(points) > 1 and (points[0] == points[-1]).all():
                    points = points[:-1]
                if len(points) > 2:
                    yield points, -1.0 if at else 1.0
    except (TypeError, ValueError, IndexError) as error:
        raise MetadataError(f"zone {number} has no coordinates of a {kind.lower()}: {error}") from error

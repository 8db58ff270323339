"""Statistics of an array's cells in polygons, and arrays clipped to polygons."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from zstore.base.boxes import Box, Items, Shape, cut, inside, lengths, volume, whole, windows, with_sides
from zstore.base.once import once
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.pyramid.calculate import physical
from zstore.geo.pyramid.carried import Ground, Meant, carried_of
from zstore.geo.pyramid.dataset import PlaceLike, open_only_array
from zstore.geo.pyramid.warp import GeoGrid
from zstore.geo.pyramid.zones import (
    BATCH_SIZE,
    CELLS,
    Numbers,
    Shares,
    Zones,
    ZonesLike,
    hull_of,
    read_features,
)
from zstore.jobs.chunks import as_array, source_of
from zstore.jobs.plan import name_job
from zstore.jobs.source import Source
from zstore.model.grid import Grid
from zstore.model.packing import fit_nodata
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.views.made import MadeBy, MadeSource, origin_of
from zstore.views.view import View, view

STATISTICS = ("count", "sum", "mean", "min", "max", "std", "var")
# Of the shares of a window's cells that are kept from one item of other dimensions to the next: 64 MiB.
KEPT_COUNT = 8 << 20
# A divisor where there is nothing to divide.
TINY = 1e-300


def zonal_statistics(
    source: Array | Group | Source | PlaceLike,
    zones: ZonesLike,
    statistics: Sequence[str] = ("count", "mean", "min", "max", "std"),
    *,
    cells: str = "exact",
    crs: Any = None,
    above: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> ZonalStatistics:
    """The statistics of an array's cells in each of some polygons: arrays of float64 by name, or rows.

    Cells count by their physical numbers (unpacked), those without data do not. Only chunks under the zones
    are read, once each, and a few at a time, however large the zones are.

    source      an array, a group of one array, a view, or an address of one; with any other dimensions
    zones       GeoJSON: a mapping, a text, or a path of it; an object with `__geo_interface__`, as of shapely
                or geopandas; or several of these. A feature is a zone; zones may lie on each other. Of an
                outline that crosses itself, all that it goes round counts
    statistics  count (the cells with data, by their shares), sum, mean, min, max, std and var (of the cells
                as a population); all but min and max are weighed by the shares
    cells       "exact": a cell counts by the share of its area that the zone covers; "centre": it counts
                whole where its centre is in the zone
    crs         of the zones' coordinates; None: the one that GeoJSON names, else longitude and latitude
    above       whether groups above the address of an array are read, whose georeference the array has
    progress    called as `progress(done, total)` with counts of cells

    Shapes
        those of the source, with the zones in the place of the first of its rows and columns.
    Raises
        UnsupportedError: a zone is no polygon; the items are no numbers; there is no such statistic; the
            group has a mask.
        MetadataError: the source has no CRS or affine; the zones are no GeoJSON, or not defined in its CRS.
    """
    for name in statistics:
        if name not in STATISTICS:
            raise UnsupportedError(f"statistic {name!r}; expected some of {', '.join(STATISTICS)}")
    shown = physical(view(open_only_array(source, "zonal_statistics", above=above)), np.dtype("f8"))
    meant = carried_of(shown)
    laid = _Laid.of(meant, zones, cells, crs)
    others = [n for axis, n in enumerate(shown.shape) if axis not in laid.axes]
    numbers = np.arange(prod(others)).reshape(others)
    sums = _Sums((numbers.size, laid.zones.count), statistics)
    for box, items, several in laid.blocks(shown, progress):
        planes, held = np.ravel(numbers[box]), items.reshape(-1, *items.shape[-2:])
        for shares in several:
            sums.add(planes, held, shares)
    names = [name or f"dim_{axis}" for axis, name in enumerate(meant.dimensions)]
    other = [axis for axis in range(shown.ndim) if axis not in laid.axes]
    place = sum(axis < min(laid.axes) for axis in other)
    return ZonalStatistics(
        read_features(zones)[0],
        {names[axis]: meant.labels(axis) for axis in other},
        {
            name: np.moveaxis(sums.result(name).reshape(*others, laid.zones.count), -1, place)
            for name in statistics
        },
        place,
    )


@dataclass(frozen=True)
class ZonalStatistics(Mapping[str, Numbers]):
    """Arrays of numbers by the names of statistics: zones along one dimension, and those of the source.

    features  the features of GeoJSON that are the zones
    labels    of the source's other dimensions, by name: dates, numbers, or the numbers of the items
    arrays    the numbers
    axis      the dimension of zones
    """

    features: Sequence[Mapping[str, Any]]
    labels: Mapping[str, Sequence[Any]]
    arrays: Mapping[str, Numbers]
    axis: int

    def __getitem__(self, name: str) -> Numbers:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of a table: of each zone its id or number, its properties, labels, and the statistics.

        A property with the name of another column has "zone." before it.
        """
        columns = {"zone", *self.labels, *self.arrays}
        moved = {name: np.moveaxis(items, self.axis, 0) for name, items in self.arrays.items()}
        for number, feature in enumerate(self.features):
            said = feature.get("properties") or {}
            own = {f"zone.{name}" if name in columns else name: value for name, value in said.items()}
            for place in np.ndindex(*(len(one) for one in self.labels.values())):
                labels = {n: one[at] for (n, one), at in zip(self.labels.items(), place, strict=True)}
                made = {name: float(items[(number, *place)]) for name, items in moved.items()}
                yield {"zone": feature.get("id", number), **own, **labels, **made}


def clip(
    source: Array | Group | Source | PlaceLike,
    zones: ZonesLike,
    *,
    cells: str = "centre",
    nodata: Any = None,
    crs: Any = None,
    above: bool = False,
) -> View:
    """A view of the part of an array in polygons, with nodata around them; no item is read.

    The view has the rows and columns under the polygons; reading a box of it reads the items in them.

    source  as for `zonal_statistics`
    zones   as for `zonal_statistics`; all of them together
    cells   "centre": cells whose centre is in a zone; "exact": cells of which a zone covers any share
    nodata  of a source without it: the value of cells beside the zones; None: of floats NaN
    crs     of the zones' coordinates; None: the one that GeoJSON names, else longitude and latitude
    above   whether groups above the address of an array are read, whose georeference the array has

    Raises
        UnsupportedError: a zone is no polygon, or the group has a mask.
        MetadataError: the source has no CRS, no affine or no nodata; the zones are no GeoJSON, or lie beside
            the source.
        ValueError: nodata that the data type cannot hold.
    """
    array = open_only_array(source, "clip", above=above)
    meant = carried_of(array)
    laid = _Laid.of(meant, zones, cells, crs)
    hole = meant.variable.nodata if nodata is None else fit_nodata(nodata, array.dtype)
    if hole is None and array.dtype.kind == "f":
        hole = float("nan")
    if hole is None:
        raise MetadataError(
            f"{meant.name!r} of data type {array.dtype} has no nodata for cells beside zones; expected nodata"
        )
    hull = laid.hull
    if not volume(hull):
        raise MetadataError(f"no zone lies on a cell of {meant.name!r}; expected zones that do")
    made = view(Clipped(source_of(array), laid, hole, array, meant))
    return made[with_sides([slice(None)] * array.ndim, laid.axes, hull)]


def make_clipped(source: Any, zones: Any, cells: str, axes: Any, nodata: Any) -> Clipped:
    """The source of views that a document describes."""
    shown = as_array(view(source))
    (y, x), numbers = map(int, axes), (zones["zone"], zones["ends"], zones["direction"])
    zone, ends, direction = numbers[0].astype(np.int64), *(one.astype(np.float64) for one in numbers[1:])
    if cells not in CELLS or not 0 <= y < shown.ndim or not 0 <= x < shown.ndim or x == y:
        raise ValueError(f"cells {cells!r} along axes {y}, {x}")
    if ends.shape != (4, len(zone)) or direction.shape != zone.shape or (np.diff(zone) < 0).any():
        raise ValueError("edges of zones do not go together")
    laid = _Laid(
        Zones(int(zones["count"]), zone, ends, direction), (y, x), (shown.shape[y], shown.shape[x]), cells
    )
    return Clipped(source_of(shown), laid, fit_nodata(nodata, shown.dtype), shown, carried_of(shown))


@dataclass(frozen=True)
class _Laid:
    """Zones on the grid of an array.

    axes   its y and its x dimension
    shape  of its rows and columns
    """

    zones: Zones
    axes: tuple[int, int]
    shape: tuple[int, int]
    cells: str

    @classmethod
    def of(cls, meant: Meant, zones: ZonesLike, cells: str, crs: Any) -> _Laid:
        if cells not in CELLS:
            raise UnsupportedError(f"cells is {cells!r}; expected one of {', '.join(CELLS)}")
        ground: Ground | None = meant.ground
        if ground is None or ground.crs is None or ground.affine is None:
            what = "affine" if ground is not None and ground.crs is not None else "CRS"
            expected = "expected one, to lay zones on its cells, or above=True, if groups above it have one"
            raise MetadataError(f"{meant.name!r} has no {what}; {expected}")
        rows, columns = (meant.shape[axis] for axis in ground.axes)
        grid = GeoGrid(ground.crs, ground.affine, (rows, columns))
        return cls(Zones.on(grid, zones, crs), ground.axes, (rows, columns), cells)

    @once
    def hull(self) -> tuple[slice, slice]:
        """The smallest window around all zones."""
        found = self.zones.within((slice(0, self.shape[0]), slice(0, self.shape[1])))
        return hull_of(found)

    def blocks(
        self, shown: View, progress: Callable[[int, int], object] | None
    ) -> Iterator[tuple[Box, Items, Iterable[Shares]]]:
        """(box along other dimensions, items (…, rows, columns), shares of their cells) of each block.

        Blocks are windows of whole chunks, and as deep as chunks are.
        """
        axes, chunk = self.axes, shown.grid.chunk_shape
        others = [axis for axis in range(shown.ndim) if axis not in axes]
        sizes, deep = [shown.shape[axis] for axis in others], [max(1, chunk[axis]) for axis in others]
        height, width = (max(1, chunk[axis]) for axis in axes)
        rows, columns = self.hull
        top, left = rows.start // height * height, columns.start // width * width
        reach = rows.stop - top, columns.stop - left
        done, item_size = 0, 8 * prod(map(min, deep, sizes))
        for y, x in windows(reach, (height, width), item_size):
            placed = slice(y.start + top, y.stop + top), slice(x.start + left, x.stop + left)
            found = self.zones.within(placed)
            if len(found) and 0 not in sizes:
                window = hull_of(found)
                keeps = (
                    int(((found[:, 4] - found[:, 3] + 1) * (found[:, 6] - found[:, 5])).sum()) <= KEPT_COUNT
                )
                shares = [*self.zones.shares(window, self.cells)] if keeps else None
                for box in cut(whole(tuple(sizes)), deep):
                    every = with_sides([slice(None)] * shown.ndim, others, box)
                    items = shown.read(with_sides(every, axes, window))
                    yield (
                        box,
                        np.moveaxis(items, axes, (-2, -1)),
                        shares or self.zones.shares(window, self.cells),
                    )
            done += volume((y, x))
            if progress is not None:
                progress(done, prod(reach))


class _Sums:
    """The weighed sums, squares and extremes of zones, arrays (planes, zones), that statistics come from."""

    def __init__(self, shape: Shape, statistics: Sequence[str]) -> None:
        self._count, self._total = np.zeros(shape), np.zeros(shape)
        self._has_extremes = not {"min", "max"}.isdisjoint(statistics)
        self._has_spread = not {"std", "var"}.isdisjoint(statistics)
        self._least, self._greatest = np.full(shape, np.inf), np.full(shape, -np.inf)
        self._squares = np.zeros(shape)

    def add(self, planes: Items, items: Items, shares: Shares) -> None:
        """Add the cells of a block to the zones that have shares of them.

        planes  the numbers of the block's planes
        items   (planes, rows, columns), NaN for cells without data
        """
        step = max(1, BATCH_SIZE // len(shares.share))
        for first in range(0, len(planes), step):
            with np.errstate(invalid="ignore", over="ignore"):
                self._add(
                    np.ix_(planes[first : first + step], shares.zone), items[first : first + step], shares
                )

    def _add(self, at: Any, items: Items, shares: Shares) -> None:
        starts, size = shares.starts, len(shares.share)
        held = np.full((len(items), size), np.nan)
        for start, (window, lines) in zip(starts.tolist(), shares, strict=True):
            height, width = lines.shape
            box = held[:, start : start + height * (width + 1)].reshape(len(items), height, width + 1)
            box[..., :width] = items[:, *window]
        is_valid = ~np.isnan(held)
        is_valid &= shares.share > 0
        weight = np.where(is_valid, shares.share, 0.0)
        if self._has_extremes:
            for made, extreme, beyond in (
                (self._least, np.minimum, np.inf),
                (self._greatest, np.maximum, -np.inf),
            ):
                found = extreme.reduceat(np.where(is_valid, held, beyond), starts, axis=1)
                made[at] = extreme(made[at], found)
        np.copyto(held, 0.0, where=~is_valid)
        count = np.add.reduceat(weight, starts, axis=1)
        total = np.add.reduceat(weight * held, starts, axis=1)
        if self._has_spread:
            # Deviations from the mean of a block, which are joined as Chan, Golub and LeVeque do.
            mean = total / np.maximum(count, TINY)
            held -= np.repeat(mean, np.diff(np.r_[starts, size]), axis=1)
            held *= held
            squares = np.add.reduceat(weight * held, starts, axis=1)
            before = self._count[at]
            off = mean - self._total[at] / np.maximum(before, TINY)
            self._squares[at] += squares + off * off * (before * count / np.maximum(before + count, TINY))
        self._count[at] += count
        self._total[at] += total

    def result(self, name: str) -> Numbers:
        """A statistic; NaN where a zone has no cells with data, apart from count and sum, which are 0."""
        if name in ("count", "sum"):
            return self._count if name == "count" else self._total
        made = {"mean": self._total, "min": self._least, "max": self._greatest}.get(name, self._squares)
        with np.errstate(invalid="ignore", divide="ignore"):
            if name not in ("min", "max"):
                made = made / self._count
            made = np.sqrt(made) if name == "std" else made
        return np.where(self._count > 0, made, np.nan)


@dataclass(frozen=True, repr=False)
class Clipped(MadeSource):
    """An array whose cells beside zones are nodata.

    array   the source, as `carried_of` describes it; `origin` is its meaning
    """

    source: Source
    laid: _Laid = field(compare=False, repr=False)
    nodata: Any
    array: Any = field(compare=False, repr=False)
    origin: Meant = field(compare=False, repr=False)

    def making(self) -> MadeBy:
        zones = self.laid.zones
        edges = {"count": zones.count, "zone": zones.zone, "ends": zones.ends, "direction": zones.direction}
        options = {"zones": edges, "cells": self.laid.cells, "axes": self.laid.axes, "nodata": self.nodata}
        return MadeBy("clip", options, (origin_of(self.array),))

    @property
    def shape(self) -> Shape:
        return self.source.shape

    @property
    def grid(self) -> Grid:
        return self.source.grid

    @property
    def url(self) -> str:
        return f"clipped:{self.source.url}#{name_job(self.describe())}"

    def describe(self) -> dict[str, str]:
        zones = self.laid.zones
        edges = hashlib.sha256(zones.ends.tobytes() + zones.direction.tobytes()).hexdigest()
        said = [edges, self.laid.cells, *self.laid.axes, repr(self.nodata)]
        return {**self.source.describe(), "clip": repr(said)}

    @once
    def meant(self) -> Meant:
        """The meaning of the array, with nodata."""
        variable = replace(self.origin.variable, nodata=self.nodata, dtype=self.dtype)
        return replace(self.origin, variable=variable)

    def read(self, box: Box, out: Items | None = None) -> Items:
        """The items of a box, of which those under no zone are not read."""
        made = np.empty(lengths(box), self.dtype) if out is None else out
        made[...] = self.nodata
        axes = self.laid.axes
        window = box[axes[0]], box[axes[1]]
        found = self.laid.zones.within(window)
        if not made.size or not len(found):
            return made
        inner = hull_of(found)
        is_inside = np.zeros(lengths(inner), bool)
        for shares in self.laid.zones.shares(inner, self.laid.cells):
            for part, share in shares:
                is_inside[part] |= share > 0
        place = with_sides([slice(None)] * made.ndim, axes, inside(inner, window))
        items = self.source.read(with_sides(box, axes, inner))
        np.copyto(
            np.moveaxis(made[place], axes, (-2, -1)), np.moveaxis(items, axes, (-2, -1)), where=is_inside
        )
        return made

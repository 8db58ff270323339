"""Views of arrays on other grids of the Earth: one array reprojected, or many as a mosaic."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from zstore.base.boxes import Box, Items, Shape, inside, lengths, whole, with_sides
from zstore.base.once import once
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.base import Affine, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.tilesets.registry import TileMatrix
from zstore.geo.pyramid.carried import Ground, Meant, carried_of, check_alike
from zstore.geo.pyramid.dataset import Dataset, Mask, PlaceLike, find_mask, make_mask, open_dataset
from zstore.geo.pyramid.tile_grid import (
    GridTransform,
    PlacedCells,
    Places,
    Warp,
    cover,
    limits_of,
    places_under,
)
from zstore.geo.resampling.sample import SAMPLINGS
from zstore.indexing.transform import IndexTransform, parse
from zstore.jobs.chunks import source_of
from zstore.jobs.plan import name_job
from zstore.jobs.source import Source
from zstore.model.grid import RegularGrid
from zstore.model.packing import fit_nodata
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.base import Store
from zstore.views.made import MadeBy, MadeSource, origin_of
from zstore.views.view import View, overlay, view

__all__ = ["GeoGrid", "mosaic", "reproject"]

# The code of a CRS, in the place of a grid.
CODE = re.compile(r"[A-Za-z]{3,}:[A-Za-z0-9]+")
# Rows and columns of the blocks that are sampled at a time; places depend on a block, and on no selection.
BLOCK_LENGTH = 512
# Rows and columns under which the source is read at a time: some blocks.
READ_LENGTH = 1024
# The parts of blocks whose places are kept for the next source: of 4 MiB each, a few for every thread.
KEPT_COUNT = 8
# The places of scenes whose scales are kept for the next scenes there.
TILE_COUNT = 1024
# In cells of the source: how far an approximated place may be off.
TOLERANCE = 1e-3
# The cells of the source that are read at a time.
WINDOW = 1 << 22
# Sides of a lattice of places that shows how far a source reaches in another CRS.
LATTICE = 65
# The same of a source that is laid over others; where lines between its places bend less than this share of
# the whole, they say how far the source reaches.
COARSE_LATTICE, BEND = 17, 1 / 32
# Rows and columns of a grid are fewer, as GDAL's.
MOST_CELLS = 1 << 31
# Cells of a grid per cell of what is sampled on it are between these, as the kernel takes them.
SCALES = (1e-6, 1e12)
# Differences between cells and corners below this, in cells, are those of rounding.
SLACK = 1e-6

# What has a grid of its own: an array, a group of one array, a raster, a view, or an address of one.
Placed = Array | Group | Source | PlaceLike


@dataclass(frozen=True)
class GeoGrid:
    """The cells of a raster on Earth: a CRS, an affine, and (rows, columns).

    A CRS may be given as `around` takes it, an affine as six numbers (a, b, c, d, e, f).

    Raises
        MetadataError: there is no such CRS or affine; a length is negative, or 2^31 or more.
    """

    crs: Crs
    affine: Affine
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        if not all(0 <= length < MOST_CELLS for length in self.shape):
            raise MetadataError(f"a grid has the shape {self.shape}; expected lengths from 0 to 2^31 - 1")
        object.__setattr__(self, "crs", Crs.from_user(self.crs))
        if not isinstance(self.affine, Affine):
            object.__setattr__(self, "affine", Affine.from_user(self.affine))

    @classmethod
    def of(cls, source: Placed) -> GeoGrid:
        """The grid of an array, a group, a raster or a view.

        Raises
            MetadataError: it has no CRS, or no affine.
        """
        return grid_of(open_dataset(source))

    @classmethod
    def from_json(cls, said: Any) -> GeoGrid:
        """The grid that `to_json` says.

        Raises
            MetadataError: no CRS or affine.
        """
        rows, columns = map(int, said["shape"])
        return cls(said["crs"], said["affine"], (rows, columns))

    def to_json(self) -> dict[str, Any]:
        """The grid as a document has it: the CRS by its code, or as WKT."""
        crs = self.crs.code if self.crs.code and Crs.from_user(self.crs.code) == self.crs else self.crs.wkt
        return {"crs": crs, "affine": [*self.affine], "shape": [*self.shape]}

    @classmethod
    def around(
        cls,
        sources: Iterable[Placed],
        *,
        crs: Any = None,
        resolution: float | tuple[float, float] | None = None,
    ) -> GeoGrid:
        """The smallest grid around sources.

        crs         a code, WKT, PROJJSON or a CRS of pyproj; None: the one that most sources have
        resolution  of cells, or of their (y, x), in the CRS's unit; corners are multiples of it. None: cells
                    of the size and corners that most sources of this CRS have; where there are none, squares
                    as large as the smallest cells of a source are in this CRS, at the median of all places

        Raises
            MetadataError: a source has no CRS or affine, or none of them is defined in the CRS.
        """
        return grid_around([grid_of(open_dataset(source)) for source in sources], crs, resolution)


def reproject(
    source: Placed,
    grid: GeoGrid | Placed,
    *,
    resampling: str = "nearest",
    nodata: Any = None,
) -> View:
    """A view of a raster on another grid of the Earth, in any CRS; no item is read.

    Reading a box of it reads the cells of the source under the box, and no others. Cells are sampled with
    gdalwarp's arithmetic at places that are off by at most a thousandth of a cell of the source.

    source      an array, a group or a raster with one array, a level of a pyramid, or an address of one
    grid        a `GeoGrid`, or something that has one
    resampling  "nearest", "bilinear", "cubic", "average" or "mode"
    nodata      of a source without it: the value that is left out, and that cells beside it have; None: the
                source's own, of floats without one NaN

    Shapes
        those of the source, y and x as the grid has them.
    Raises
        MetadataError: the source has no CRS or affine, several arrays, or no nodata for cells beside it, or
            another one than `nodata`.
        UnsupportedError: no such resampling, or it does not take the data type.
    """
    dataset = open_dataset(source)
    return view(_warp(dataset, as_grid(grid), resampling, nodata))


def mosaic(
    sources: Iterable[Placed],
    grid: GeoGrid | Placed | None = None,
    *,
    resampling: str = "nearest",
    nodata: Any = None,
    first: bool = False,
) -> View:
    """A view of rasters of any CRS, resolution and offset on one grid; of valid cells, the last one's count.

    Reading a box of it reads the sources that it lies in, and no others.

    sources     as for `reproject`
    grid        a `GeoGrid`, or something that has one; None: that of `GeoGrid.around`
    resampling  "nearest", "bilinear", "cubic", "average" or "mode"
    nodata      of sources without it; None: the sources' own, which has to be the same
    first       whether of valid cells the first source's count

    Raises
        ValueError: no sources.
        MetadataError: as for `reproject`; sources that differ in nodata, scale, offset or units,
            or in their other dimensions.
        UnsupportedError: no such resampling, or it does not take the data type.
    """
    datasets = [open_dataset(source) for source in sources]
    if not datasets:
        raise ValueError("no sources; expected one or more")
    wanted = grid_around([*map(grid_of, datasets)], None, None) if grid is None else as_grid(grid)
    warps = [_warp(dataset, wanted, resampling, nodata) for dataset in datasets]
    return overlay_warped(warps, first=first)


def overlay_warped(warps: Sequence[Warped], *, first: bool, boxes: dict[Any, Box] | None = None) -> View:
    """A view of arrays on one grid, laid over each other where they lie.

    boxes  of the grid that arrays cover, from one call to the next: scenes of one tile lie alike

    Raises
        MetadataError: they differ in nodata, scale, offset or units, or in their other dimensions.
    """
    for warped in warps:
        check_alike(warps[0].variable, warped.variable, warped.place)
    places = place_warped(warps, {} if boxes is None else boxes)
    views = [view_within(warped, box) for warped, box in zip(warps, places, strict=True)]
    holes = [warped.warp.nodata for warped in warps]
    return overlay(views, starts_of(places), shape=warps[0].shape, nodata=holes, first=first)


def place_warped(warps: Sequence[Warped], boxes: dict[Any, Box]) -> list[Box]:
    """The box of the grid that each array covers; `boxes` as for `overlay_warped`.

    Raises
        MetadataError: they differ in their other dimensions.
    """
    places, shape = list[Box](), warps[0].shape
    for warped in warps:
        if warped.shape != shape:
            raise MetadataError(
                f"a source has the shape {warped.shape} on the grid; expected {shape}, as the first has",
                path=warped.place,
            )
        place = warped.warp.transform, shape
        boxes[place] = boxes.get(place) or warped.covered()
        places.append(boxes[place])
    return places


def view_within(warped: Warped, box: Box) -> View:
    """A view of an array within a box."""
    return view(warped).selected(_box_selection(warped.shape, tuple((side.start, side.stop) for side in box)))


@lru_cache(TILE_COUNT)
def _box_selection(shape: Shape, bounds: tuple[tuple[int, int], ...]) -> IndexTransform:
    """The selection of a box, which scenes of one tile share."""
    return parse(shape, tuple(slice(*side) for side in bounds))


def starts_of(boxes: Sequence[Box]) -> list[list[int]]:
    """The positions at which boxes begin."""
    return [[side.start for side in box] for box in boxes]


@dataclass(frozen=True, repr=False)
class Warped(MadeSource):
    """An array as it is on another grid, sampled when a box is read.

    array     the source, with its names, attributes and coordinates; any that `carried_of` describes
    variable  the meaning of the cells
    """

    warp: Warp
    target: GeoGrid
    array: Any = field(compare=False, repr=False)
    variable: Variable = field(compare=False, repr=False)
    place: str = field(compare=False)

    @once
    def meant(self) -> Meant:
        """The meaning of the array on the target's grid, without coordinates along rows and columns."""
        origin = carried_of(self.array)
        ground = Ground(self.target.crs, self.target.affine, self.axes)
        coordinates = {k: one for k, one in origin.coordinates.items() if not {*one.axes} & {*self.axes}}
        return replace(
            origin, shape=self.shape, variable=self.variable, ground=ground, coordinates=coordinates,
            dimensions=self.variable.dimensions,
        )  # fmt: skip

    def making(self) -> MadeBy:
        mask, of = self.warp.mask, origin_of(self.array)
        options = {"grid": self.target.to_json(), "resampling": self.warp.sampling}
        options["nodata"] = self.warp.nodata
        if mask is None:
            return MadeBy("reproject", options, (of,))
        return MadeBy("reproject", {**options, "mask_axes": mask.axes}, (of, mask.origin))

    def masked(self, mask: Mask) -> Warped:
        """The same, without the cells of the source that a mask hides."""
        return replace(self, warp=replace(self.warp, mask=mask))

    @property
    def source(self) -> Source:
        """The array, whose cells are sampled."""
        return self.warp.source

    @property
    def axes(self) -> tuple[int, int]:
        """The y and the x dimension."""
        return self.warp.axes

    @property
    def shape(self) -> Shape:
        return with_sides(self.source.shape, self.axes, self.target.shape)

    @property
    def grid(self) -> RegularGrid:
        chunks = [max(1, length) for length in self.source.grid.chunk_shape]
        return RegularGrid(with_sides(chunks, self.axes, (BLOCK_LENGTH, BLOCK_LENGTH)))

    @property
    def url(self) -> str:
        return f"warp:{self.place}#{name_job(self.describe())}"

    def describe(self) -> dict[str, str]:
        warp, mask = self.warp, self.warp.mask
        transform = warp.transform
        said = {
            "from": [transform.source_crs.wkt, [*transform.source_affine]],
            "to": [self.target.crs.wkt, [*self.target.affine], [*self.target.shape]],
            "sampling": [warp.sampling, repr((warp.nodata, *warp.others) if warp.others else warp.nodata)],
            "mask": None if mask is None else mask.array.describe(),
        }
        return {**self.source.describe(), "warp": repr(said)}

    def check_apart(self, target: Store, base: str, work: str) -> None:
        super().check_apart(target, base, work)
        if self.warp.mask is not None:
            self.warp.mask.array.check_apart(target, base, work)

    def version(self) -> str:
        mask = self.warp.mask
        versions = [self.source.version(), *([] if mask is None else [mask.array.version()])]
        if not all(versions):
            return ""
        return name_job(versions) + ("?" if any(one.endswith("?") for one in versions) else "")

    def read(self, box: Box, out: Items | None = None) -> Items:
        """The items of a box, block by block; the source is read for some of them at a time."""
        made = np.empty(lengths(box), self.dtype) if out is None else out
        made[...] = self.warp.empty
        if not made.size:
            return made
        on_top = np.moveaxis(made, self.axes, (-2, -1))
        window = tuple(box[axis] for axis in self.axes)
        for part in _blocks(window, READ_LENGTH):
            blocks = list[PlacedCells]()
            for block in _blocks(part, BLOCK_LENGTH):
                cells: Any = (..., *inside(block, window))
                blocks.append(PlacedCells(self._places(block), on_top[cells]))
            self.warp.fill(box, blocks)
        return made

    def _places(self, window: Box) -> Places:
        """The places of the source for cells of one block of the grid."""
        begins = [side.start // BLOCK_LENGTH * BLOCK_LENGTH for side in window]
        height, width = (
            min(BLOCK_LENGTH, size - begin) for begin, size in zip(begins, self.target.shape, strict=True)
        )
        top, bottom, left, right = (
            at - begin for side, begin in zip(window, begins, strict=True) for at in (side.start, side.stop)
        )
        block = (self.warp.transform, *begins, (height, width), self.warp.has_corners)
        return _part_places(block, top, bottom, left, right)

    def covered(self) -> Box:
        """The box in which cells of the source may lie."""
        rows, columns = self.target.shape
        left, _, right, _ = self.target.affine.bounds(self.target.shape)
        crs = self.target.crs
        half = math.pi / crs.radians_per_unit * (1 + SLACK) if crs.is_geographic else math.inf
        sides = slice(0, rows), slice(0, columns)
        # Places of the source are told between the antimeridians: what lies beyond shows nowhere.
        if -half <= left and right <= half:
            sides = self._covered_plainly() or self._covered_blocks()
        return with_sides(whole(self.shape), self.axes, sides)

    def _covered_plainly(self) -> tuple[slice, slice] | None:
        """The (y, x) window around a lattice of the source's places; None where lines between them bend."""
        height, width = self.warp.transform.source_shape
        lattice = np.meshgrid(np.linspace(0, width, COARSE_LATTICE), np.linspace(0, height, COARSE_LATTICE))
        sides = list[slice]()
        for places, size in zip(
            self.warp.transform.to_target(*lattice), self.target.shape[::-1], strict=True
        ):
            if not np.isfinite(places).all():
                return None
            low, high = float(places.min()), float(places.max())
            bends = (
                places[1:-1] * 2 - places[:-2] - places[2:],
                places.T[1:-1] * 2 - places.T[:-2] - places.T[2:],
            )
            # Between the places themselves it is an eighth of that, and there are two directions.
            bend = max(float(np.abs(one).max()) for one in bends)
            if bend > BEND * (high - low):
                return None
            begin, end = (min(max(place, 0), size) for place in (low - bend - 1, high + bend + 1))
            sides.append(slice(math.floor(begin), math.ceil(end)))
        return sides[1], sides[0]

    def _covered_blocks(self) -> tuple[slice, slice]:
        """The (y, x) window around all blocks that the source may touch, wherever it lies."""
        rows, columns = self.target.shape
        count = (-(-rows // BLOCK_LENGTH), -(-columns // BLOCK_LENGTH))
        blocks = TileMatrix("", 1.0, 1.0, (0.0, 0.0), (BLOCK_LENGTH, BLOCK_LENGTH), count)
        tiles = cover(self.warp.transform, blocks)
        if not len(tiles):
            return slice(0, 0), slice(0, 0)
        top, bottom, west, east = (n * BLOCK_LENGTH for n in limits_of(tiles))
        return (
            slice(top, min(bottom + BLOCK_LENGTH, rows)),
            slice(west, min(east + BLOCK_LENGTH, columns)),
        )


def make_warped(
    source: Any, mask: Any = None, *, grid: Any, resampling: str, nodata: Any, mask_axes: Any = ()
) -> Warped:
    """The source of views that a document describes."""
    warped = _warp(open_dataset(view(source)), GeoGrid.from_json(grid), resampling, nodata)
    if mask is None:
        return warped
    hiding = Mask.of(view(mask), tuple(map(int, mask_axes)))
    lengths_of_axes = [warped.warp.source.shape[axis] for axis in hiding.axes]
    if [*hiding.array.shape] != lengths_of_axes:
        raise ValueError(f"a mask of shape {hiding.array.shape}; expected {lengths_of_axes}")
    return warped.masked(hiding)


@lru_cache(KEPT_COUNT)
def _part_places(block: Any, top: int, bottom: int, left: int, right: int) -> Places:
    """The places for a part of a block of the grid, which scenes of one tile share."""
    made, shape = _block_places(*block), block[3]
    is_whole = (top, bottom, left, right) == (0, shape[0], 0, shape[1])
    return made if is_whole else made.part(slice(top, bottom), slice(left, right))


@lru_cache(KEPT_COUNT // 2)
def _block_places(
    transform: GridTransform, row: int, column: int, shape: tuple[int, int], corners: bool
) -> Places:
    """The places for a block of the grid, of which small windows take part after part."""
    return places_under(transform, row, column, shape, corners=corners)


def _blocks(window: Box, length: int) -> Iterator[Box]:
    """Whole blocks of the grid, up to `length` cells, as far as they lie in a (y, x) window, row by row."""
    firsts = (side.start // BLOCK_LENGTH * BLOCK_LENGTH + length for side in window)
    cuts = [
        [side.start, *range(first, side.stop, length), side.stop]
        for side, first in zip(window, firsts, strict=True)
    ]
    for sides in product(*map(pairwise, cuts)):
        yield tuple(slice(*side) for side in sides)


def _warp(dataset: Dataset, grid: GeoGrid, resampling: str, nodata: Any) -> Warped:
    """The only array of a dataset on another grid."""
    mask_name, name = find_mask(dataset), dataset.only_name
    array, axes = dataset.arrays[name], dataset.axes(name)
    variable = replace(dataset.geo.variables[name], dimensions=dataset.dimensions(name))
    warped = warp_array(
        source_of(array), array, grid_of(dataset), axes, variable, grid, resampling, nodata, dataset.place
    )
    if mask_name is None or mask_name == name:
        return warped
    hole = warped.warp.nodata
    mask = make_mask(dataset.arrays[mask_name], array, axes, hole, dataset.place)
    return warped.masked(mask)


def warp_array(
    source: Source, array: Any, own: GeoGrid, axes: tuple[int, int], variable: Variable,
    grid: GeoGrid, resampling: str, nodata: Any, place: str,
) -> Warped:  # fmt: skip
    """An array on another grid.

    source    its items; `own` is their grid along `axes`
    array     the same, as `carried_of` describes it
    variable  the meaning of its cells, with the names of all dimensions

    Raises
        UnsupportedError: no such resampling.
        MetadataError: no nodata for cells beside the array, or another one than its own.
    """
    if resampling not in SAMPLINGS:
        raise UnsupportedError(f"resampling is {resampling!r}; expected one of {', '.join(SAMPLINGS)}")
    hole = variable.nodata if nodata is None else nodata
    if hole is None and source.dtype.kind == "f":
        hole = float("nan")
    if hole is None:
        raise MetadataError(
            f"an array of {source.dtype} has no nodata for cells beside it; expected nodata=N", path=place
        )
    hole = fit_nodata(hole, source.dtype)
    if variable.nodata is not None and hole != variable.nodata and hole == hole:
        raise MetadataError(f"nodata is {hole!r}; expected {variable.nodata!r}, the array's own", path=place)
    transform, scale = _transform(own, grid)
    warp = Warp(
        source=source,
        axes=axes,
        transform=transform,
        sampling=resampling,
        nodata=hole,
        others=variable.other_nodata,
        mask=None,
        scale=scale,
        window=WINDOW,
    )
    dtype = source.dtype.newbyteorder("=")
    is_same = type(hole) is type(variable.nodata) and hole == variable.nodata
    if not is_same or variable.other_nodata or variable.dtype != dtype:
        variable = replace(variable, nodata=hole, other_nodata=(), dtype=dtype)
    return Warped(warp, grid, array, variable, place)


@lru_cache(TILE_COUNT)
def _transform(own: GeoGrid, grid: GeoGrid) -> tuple[GridTransform, tuple[float, float]]:
    """The way from one grid to another, and its scale."""
    transform = GridTransform(own.crs, own.affine, own.shape, grid.crs, grid.affine, TOLERANCE)
    return transform, _scale(transform, grid)


def _scale(transform: GridTransform, grid: GeoGrid) -> tuple[float, float]:
    """(y, x) cells of the grid per cell of the source, in the source's middle if that lies in the grid."""
    rows, columns = transform.source_shape
    x, y = transform.to_target(np.array([columns / 2]), np.array([rows / 2]))
    at = (float(y[0]), float(x[0]))
    if not all(np.isfinite(place) and 0 <= place <= n for place, n in zip(at, grid.shape, strict=True)):
        at = (grid.shape[0] / 2, grid.shape[1] / 2)
    scale = transform.scale(*at)
    if any(one <= SCALES[0] or one >= SCALES[1] for one in scale):
        raise MetadataError(
            f"the grid has {scale} cells per cell of the source; expected {SCALES[0]} to {SCALES[1]}"
        )
    return scale


def as_grid(grid: GeoGrid | Placed) -> GeoGrid:
    if isinstance(grid, int | np.integer) or (isinstance(grid, str) and CODE.fullmatch(grid)):
        said = (
            f"grid is {grid!r}, a CRS; expected a grid in it: zstore.GeoGrid.around([source], crs={grid!r})"
        )
        raise MetadataError(said)
    return grid if isinstance(grid, GeoGrid) else GeoGrid.of(grid)


def grid_of(dataset: Dataset) -> GeoGrid:
    geo = dataset.geo
    if geo.crs is None or geo.affine is None:
        what = "CRS" if geo.crs is None else "affine"
        raise MetadataError(f"the data have no {what}; expected one, to reproject them", path=dataset.place)
    return GeoGrid(geo.crs, geo.affine, geo.shape)


def grid_around(
    grids: Sequence[GeoGrid], crs: Any, resolution: float | tuple[float, float] | None
) -> GeoGrid:
    """The smallest grid around others."""
    if not grids:
        raise ValueError("no sources; expected one or more")
    wanted = Counter(grid.crs for grid in grids).most_common(1)[0][0] if crs is None else Crs.from_user(crs)
    lattices = [lattice for grid in grids if np.isfinite((lattice := _lattice(grid, wanted))[2]).any()]
    if not lattices:
        raise MetadataError(f"no source is defined in the CRS {wanted.label}; expected one that is")
    alike = [grid.affine for grid in grids if grid.crs.is_same(wanted)]
    if resolution is None and not alike:
        resolution = min(map(_side_of_cells, lattices))
    if resolution is None:
        common = Counter(_cells(affine) for affine in alike).most_common(1)[0][0]
        affine = next(affine for affine in alike if _cells(affine) == common)
    else:
        try:
            height, width = np.broadcast_to(np.asarray(resolution, np.float64), 2).tolist()
        except (TypeError, ValueError):
            height, width = math.nan, math.nan
        if not (height > 0 and width > 0):
            raise MetadataError(
                f"resolution is {resolution!r}; expected a positive number, or two for (y, x)"
            )
        affine = Affine.from_user((width, 0, 0, 0, -height, 0))
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for _, _, x, y in lattices:
        cells = affine.cell_at(x, y)
        low = np.minimum(low, [np.nanmin(cells[1]), np.nanmin(cells[0])])
        high = np.maximum(high, [np.nanmax(cells[1]), np.nanmax(cells[0])])
    top, left = (math.floor(place + SLACK) for place in low.tolist())
    bottom, right = (math.ceil(place - SLACK) for place in high.tolist())
    return GeoGrid(wanted, affine.moved(left, top), (max(1, bottom - top), max(1, right - left)))


def _lattice(grid: GeoGrid, wanted: Crs) -> Items:
    """(columns, rows, x, y) of places on a grid, x and y in a CRS: NaN where it defines no such place."""
    columns, rows = np.meshgrid(
        np.linspace(0, grid.shape[1], LATTICE), np.linspace(0, grid.shape[0], LATTICE)
    )
    x, y = grid.affine.at(columns, rows)
    if not grid.crs.is_same(wanted):
        x, y = grid.crs.transform(wanted, x, y)
    is_defined = np.isfinite(x) & np.isfinite(y)
    return np.stack([columns, rows, np.where(is_defined, x, np.nan), np.where(is_defined, y, np.nan)])


def _side_of_cells(lattice: Items) -> float:
    """The side of a square as large as a grid's cells in the lattice's CRS, at the median of all places."""
    along, down = np.diff(lattice, axis=2)[:, 1:], np.diff(lattice, axis=1)[:, :, 1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        area = np.abs(along[2] * down[3] - along[3] * down[2]) / (along[0] * down[1])
    area = area[np.isfinite(area) & (area > 0)]
    return math.sqrt(float(np.median(area))) if area.size else math.nan


def _cells(affine: Affine) -> tuple[float, ...]:
    """A value that is equal for grids whose cells coincide."""
    column, row = affine._replace(c=0.0, f=0.0).cell_at(affine.c, affine.f)
    phase = [round(place % 1, 4) % 1 for place in (column, row)]
    return (affine.a, affine.b, affine.d, affine.e, *phase)

"""The finest level of a tile pyramid, sampled tile by tile from a raster in another CRS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.tilesets.registry import TileMatrix
from zstore.geo.pyramid.boxes import Box, Items, Shape, lengths, volume, with_sides
from zstore.geo.pyramid.budget import Budget
from zstore.geo.pyramid.coverage import Tiles, common_tiles, cover
from zstore.geo.pyramid.masks import Mask
from zstore.geo.pyramid.passes import Share, outer_chunks
from zstore.geo.pyramid.transform import Floats, GridTransform
from zstore.geo.resampling.sample import reach_of, sample
from zstore.jobs.runner import units_at_once
from zstore.jobs.target import is_stored
from zstore.nodes.array import Array

# Bytes that a cell of a tile takes beside the result (places, flags, sums), one of a window beside its item.
TILE_CELL_SIZE = 64
WINDOW_CELL_SIZE = 10
# The fewest cells of the source that one reading should be able to hold.
LEAST_WINDOW = 1 << 14


@dataclass(frozen=True)
class Reprojection:
    """The plan of a tile pyramid's finest level: a unit for each chunk, or shard, that the data may lie in.

    A `LevelPlan` whose units share nothing.

    source  the array that is sampled; `axes` are its y and x
    nodata  the value that sampling leaves out; None: only what the mask leaves out
    scale   (y, x) cells of the level per cell of the source
    window  how many cells of the source are read at a time
    most    how many units memory holds at a time; None: as many as keep the threads busy
    within  the box of the dimensions beside y and x that is made
    clears  whether units without any of the source are written too: they may hold cells that once had some
    tiles   the tiles to make; they are not pickled with the plan
    """

    source: Array
    target: Array
    axes: tuple[int, int]
    transform: GridTransform
    sampling: str
    nodata: Any
    mask: Mask | None
    scale: tuple[float, float]
    window: int
    most: int | None
    within: Box
    clears: bool = False
    tiles: Tiles = field(default_factory=lambda: np.empty((0, 2), np.int64), repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tiles": self.tiles[:0]}

    @property
    def empty(self) -> Any:
        """The value of cells outside the data: nodata, or 0 where a mask tells them."""
        return 0 if self.nodata is None else self.nodata

    @property
    def unit(self) -> Shape:
        """The lengths of a unit, in cells of the level."""
        return outer_chunks(self.target)

    def own(self, unit: Shape) -> Box:
        """The box of the level that the unit which begins at `unit` makes."""
        sides = zip(unit, self.unit, self.target.shape, strict=True)
        return tuple(slice(begin, min(begin + length, size)) for begin, length, size in sides)

    def units(self) -> list[Shape]:
        """Where the units begin, row by row."""
        steps = [self.unit[axis] for axis in self.axes]
        tile = [self.target.chunks[axis] for axis in self.axes]
        ranges: list[Sequence[int]] = [
            range(side.start // length * length, side.stop, length)
            for side, length in zip(self.within, self.unit, strict=True)
        ]
        places = (np.unique(self.tiles * tile // steps, axis=0) * steps).tolist()
        return [unit for y, x in places for unit in product(*with_sides(ranges, self.axes, ([y], [x])))]

    def cell_count(self, unit: Shape) -> int:
        """The number of cells of the level that a unit makes."""
        return volume(self.own(unit))

    def total_count(self) -> int:
        """The number of cells of the level that all units make."""
        return sum(map(self.cell_count, self.units()))

    def shared(self, unit: Shape) -> list[Share]:
        """No shares, because every unit is a whole chunk."""
        return []

    def pack(self, parts: list[Items]) -> bytes:
        """No bytes, because units give nothing back."""
        return b""

    def unpack(self, unit: Shape, data: bytes) -> list[Items]:
        """No parts."""
        if data:
            raise ValueError(f"unit {unit} gives back nothing; found {len(data)} bytes")
        return []

    def holds(self, unit: Shape, result: list[Items]) -> bool:
        """Whether the unit's chunk is stored."""
        target = self.target
        return is_stored(target.store, target.path, target.model, self.own(unit))

    @property
    def arrays(self) -> list[Array]:
        """The one array to write."""
        return [self.target]

    def written(self, unit: Shape) -> list[tuple[Array, Box]]:
        """The level, and the box of it that the unit writes."""
        return [(self.target, self.own(unit))]

    def make(self, unit: Shape) -> list[Items]:
        """Make a unit, and write it if any of the source lies in it; nothing is given back."""
        box = self.own(unit)
        made = np.full(lengths(box), self.empty, self.target.dtype)
        rows, columns = box[self.axes[0]], box[self.axes[1]]
        height, width = (self.target.chunks[axis] for axis in self.axes)
        on_top, is_seen = np.moveaxis(made, self.axes, (-2, -1)), False
        for row in range(rows.start, rows.stop, height):
            for column in range(columns.start, columns.stop, width):
                y, x = row - rows.start, column - columns.start
                is_seen |= self._fill_tile(box, row, column, on_top[..., y : y + height, x : x + width])
        if is_seen or self.clears:
            self.target[box] = made
        return []

    def _fill_tile(self, box: Box, row: int, column: int, tile: Items) -> bool:
        """Fill `tile`, a tile of the unit `box`; gives whether any of the source lies in it."""
        is_average, shape = self.sampling == "average", (tile.shape[-2], tile.shape[-1])
        places = self.transform.under_block(row, column, shape, corners=is_average)
        is_seen = self._fill(box, *places, tile)
        across = self.transform.across_cut(*places) if is_seen and is_average else None
        if across is not None:
            # Cells whose corners lie on both sides of where the globe is cut open are made anew, of one side.
            tile[..., across] = self.empty
            for columns, rows in self.transform.beside_cut(*places):
                side, held = np.full(tile.shape, self.empty, tile.dtype), tile[..., across]
                self._fill(box, columns, rows, side)
                is_missing = np.isnan(held) if self.empty != self.empty else held == self.empty
                tile[..., across] = np.where(is_missing, side[..., across], held)
        return is_seen

    def _fill(self, box: Box, columns: Floats, rows: Floats, cells: Items) -> bool:
        """Sample the source at these places into `cells` (..., y, x); gives whether any of it lies there."""
        window = self._window(columns, rows)
        if window is None:
            return False
        read, more = with_sides(box, self.axes, window), 1 if self.sampling == "average" else 0
        height, width = cells.shape[-2:]
        if volume(read) > self.window and max(height, width) > 1:
            axis, is_seen = -2 if height >= width else -1, False
            half, size = cells.shape[axis] // 2, cells.shape[axis]
            for begin, end in ((0, half), (half, size)):
                part, at = [slice(None)] * 2, [slice(None)] * 2
                part[axis], at[axis] = slice(begin, end), slice(begin, end + more)
                is_seen |= self._fill(box, columns[tuple(at)], rows[tuple(at)], cells[..., part[0], part[1]])
            return is_seen
        source = np.moveaxis(self.source[read], self.axes, (-2, -1))
        valid = None if self.mask is None else np.moveaxis(self.mask.read(read), self.axes, (-2, -1))
        cells[...] = sample(
            source,
            columns - window[1].start,
            rows - window[0].start,
            self.sampling,
            nodata=self.nodata,
            valid=valid,
            scale=self.scale,
        )
        return True

    def _window(self, columns: Floats, rows: Floats) -> tuple[slice, slice] | None:
        """The (y, x) window of the source for cells at these places; None where none of it lies there."""
        height, width = self.transform.source_shape
        with np.errstate(invalid="ignore"):
            inside = np.isfinite(columns) & np.isfinite(rows)
            if self.sampling != "average":
                inside &= (columns >= 0) & (columns <= width) & (rows >= 0) & (rows <= height)
        if not inside.any():
            return None
        sides = []
        for places, size, scale in ((rows, height, self.scale[0]), (columns, width, self.scale[1])):
            low, high = float(places[inside].min()), float(places[inside].max())
            if high < 0 or low > size:
                return None
            reach = reach_of(self.sampling, scale)
            begin, end = max(0.0, low), min(float(size), high)
            sides.append(slice(max(0, int(begin) - reach), min(size, int(end) + 1 + reach)))
        return sides[0], sides[1]

    def tiles_of(self, matrix: TileMatrix, box: Box) -> Tiles:
        """The tiles, as (row, column), that depend on a box of the source.

        Tiles near the box are found as those of a whole source are; of them, those are kept whose cells are
        sampled from the box, by the same places that the sampling uses.
        """
        region, sides = (box[self.axes[0]], box[self.axes[1]]), []
        for side, size, scale in zip(region, self.transform.source_shape, self.scale, strict=True):
            # What the sampling looks at around a place, how far a place may be off, and a cell for rounding.
            reach = reach_of(self.sampling, scale) + math.ceil(self.transform.tolerance) + 1
            sides.append(slice(max(0, side.start - reach), min(size, side.stop + reach)))
        near = common_tiles(cover(self.transform.crop(sides[0], sides[1]), matrix), self.tiles)
        kept = [tile for tile in near.tolist() if self._depends(matrix, tile, region)]
        return np.array(kept, np.int64).reshape(-1, 2)

    def _depends(self, matrix: TileMatrix, tile: list[int], region: tuple[slice, slice]) -> bool:
        """Whether cells of a tile are sampled from a (y, x) region of the source."""
        row, column = (place * length for place, length in zip(tile, matrix.tile_shape, strict=True))
        corners = self.sampling == "average"
        window = self._window(*self.transform.under_block(row, column, matrix.tile_shape, corners=corners))
        return window is not None and all(
            side.start < other.stop and side.stop > other.start
            for side, other in zip(window, region, strict=True)
        )


def window_cells(target: Array, axes: tuple[int, int], budget: Budget) -> tuple[int, int | None]:
    """(cells of the source that a unit may read at a time, units that memory holds; None: enough).

    Raises
        MetadataError: the caller's memory does not hold one unit.
    """
    tile = target.chunks[axes[0]] * target.chunks[axes[1]]
    item_size = target.dtype.itemsize
    own = item_size * math.prod(outer_chunks(target)) + TILE_CELL_SIZE * tile
    cell = item_size + WINDOW_CELL_SIZE
    usual = units_at_once()
    for count in range(usual, 0, -1):
        window = (budget.limit // count - own) // cell
        if window >= LEAST_WINDOW:
            return window, None if count == usual else count
    if budget.is_firm:
        least = own + LEAST_WINDOW * cell
        raise MetadataError(f"memory is {budget.limit} bytes; expected at least {least}, for whole chunks")
    return LEAST_WINDOW, None

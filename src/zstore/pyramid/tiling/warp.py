"""The finest level of a pyramid on a tile matrix set, sampled tile by tile from a raster in another CRS."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.nodes.array import Array
from zstore.pyramid.cascade import Box, Items, Piece, Shape, outer_chunks, volume
from zstore.pyramid.masks import Mask
from zstore.pyramid.sizes import Budget, units_at_once
from zstore.pyramid.tiling.cover import Tiles
from zstore.pyramid.tiling.places import Floats, Trace
from zstore.resampling.sample import reach_of, sample

__all__ = ["Warp", "make_tiles", "window_cells", "window_of"]

# What a cell of a tile takes beside the result (places, flags, sums), and one of a window beside its item.
TILE_CELL_SIZE = 64
WINDOW_CELL_SIZE = 10
# The fewest cells of the source that one reading should be able to hold.
LEAST_WINDOW = 1 << 14


@dataclass(frozen=True)
class Warp:
    """What makes the finest level: one unit for each of its chunks, or shards, that the data may show in.

    It stands where a `Pass` does; like one, it can be made unit by unit, anywhere, and again.

    data    what is sampled; `axes` are its y and x
    scale   (y, x) cells of the level per cell of the data
    window  how many cells of the data are read at a time
    tiles   those to make; they stay at home when a unit travels
    within  what of the dimensions beside y and x is to be made; None: all
    clears  whether units that nothing of the data lies in are written, too: they may hold what did
    """

    data: Array
    target: Array
    axes: tuple[int, int]
    trace: Trace
    sampling: str
    nodata: Any
    mask: Mask | None
    scale: tuple[float, float]
    window: int
    tiles: Tiles = field(repr=False, compare=False)
    within: Box | None = None
    clears: bool = False
    run: str = ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tiles": self.tiles[:0]}

    @property
    def source(self) -> Array:
        """The grid that units are cut from, and their cells are counted in."""
        return self.target

    @property
    def levels(self) -> tuple[Array, ...]:
        """What is made."""
        return (self.target,)

    @property
    def unit(self) -> Shape:
        """Cells of the level, per dimension."""
        return outer_chunks(self.target)

    @property
    def whole_count(self) -> int:
        """How many levels have no chunk that two units own parts of."""
        return 1

    def own(self, origin: Shape, level: int) -> Box:
        """What the unit at `origin` makes."""
        sides = zip(origin, self.unit, self.target.shape, strict=True)
        return tuple(slice(begin, min(begin + length, size)) for begin, length, size in sides)

    def origins(self) -> list[Shape]:
        """The units, row by row."""
        steps = [self.unit[axis] for axis in self.axes]
        tile = [self.target.chunks[axis] for axis in self.axes]
        places = np.unique(self.tiles * tile // steps, axis=0) * steps
        within = self.within or tuple(slice(0, size) for size in self.target.shape)
        others = [
            [0] if axis in self.axes else range(side.start // length * length, side.stop, length)
            for axis, (side, length) in enumerate(zip(within, self.unit, strict=True))
        ]
        found = []
        for place in places.tolist():
            for other in product(*others):
                origin = list(other)
                for axis, begin in zip(self.axes, place, strict=True):
                    origin[axis] = begin
                found.append(tuple(origin))
        return found

    def cell_count(self) -> int:
        """How many cells the units come to."""
        return sum(volume(self.own(origin, 1)) for origin in self.origins())


def window_cells(target: Array, axes: tuple[int, int], budget: Budget) -> int:
    """How many cells of the source a unit may read at a time.

    Raises
        MetadataError: the caller's memory does not hold one unit.
    """
    tile = target.chunks[axes[0]] * target.chunks[axes[1]]
    item_size = target.dtype.itemsize
    own = item_size * int(np.prod(outer_chunks(target))) + TILE_CELL_SIZE * tile
    window = (budget.limit // units_at_once() - own) // (item_size + WINDOW_CELL_SIZE)
    if window < LEAST_WINDOW and budget.is_firm:
        least = units_at_once() * (own + LEAST_WINDOW * (item_size + WINDOW_CELL_SIZE))
        raise MetadataError(f"memory is {budget.limit} bytes; expected at least {least}, for whole chunks")
    return max(window, LEAST_WINDOW)


def make_tiles(work: Warp, origin: Shape) -> list[Piece]:
    """Make a unit and write it, where anything shows in it; nothing is given back."""
    box = work.own(origin, 1)
    y, x = work.axes
    made: Items | None = None
    for row in range(box[y].start, box[y].stop, work.target.chunks[y]):
        for column in range(box[x].start, box[x].stop, work.target.chunks[x]):
            shape = (
                min(work.target.chunks[y], box[y].stop - row),
                min(work.target.chunks[x], box[x].stop - column),
            )
            places = work.trace.tile(row, column, shape, corners=work.sampling == "average")
            cells = _fill(work, box, *places)
            torn = work.trace.torn(*places) if work.sampling == "average" else None
            if cells is not None and torn is not None:
                _fill_torn(work, box, places, torn, cells)
            if cells is None:
                continue
            if made is None:
                made = np.full([side.stop - side.start for side in box], work.nodata, work.target.dtype)
            rows, columns = row - box[y].start, column - box[x].start
            on_top = np.moveaxis(made, work.axes, (-2, -1))
            on_top[..., rows : rows + shape[0], columns : columns + shape[1]] = cells
    if made is not None:
        work.target[box] = made
    elif work.clears:
        work.target[box] = work.nodata
    return []


def _fill(work: Warp, box: Box, columns: Floats, rows: Floats) -> Items | None:
    """Cells (..., y, x) at those places; None where nothing of the data lies."""
    window = window_of(work, columns, rows)
    if window is None:
        return None
    y, x = work.axes
    read = list(box)
    read[y], read[x] = window
    more = 1 if work.sampling == "average" else 0
    height, width = rows.shape[0] - more, rows.shape[1] - more
    if volume(tuple(read)) > work.window and max(height, width) > 1:
        return _fill_halves(work, box, columns, rows, (height, width), more)
    source = np.moveaxis(work.data[tuple(read)], work.axes, (-2, -1))
    valid = None
    if work.mask is not None:
        valid = np.moveaxis(work.mask.read(tuple(read)), work.axes, (-2, -1))
    return sample(
        source,
        columns - window[1].start,
        rows - window[0].start,
        work.sampling,
        nodata=work.nodata,
        valid=valid,
        scale=work.scale,
    )


def _fill_torn(
    work: Warp, box: Box, places: tuple[Floats, Floats], torn: np.ndarray[Any, Any], cells: Items
) -> None:
    """Make those cells anew whose corners lie on both sides of where the globe is cut open, of one side."""
    cells[..., torn] = work.nodata
    for columns, rows in work.trace.mended(*places):
        side = _fill(work, box, columns, rows)
        if side is not None:
            held = cells[..., torn]
            is_missing = np.isnan(held) if work.nodata != work.nodata else held == work.nodata
            cells[..., torn] = np.where(is_missing, side[..., torn], held)


def _fill_halves(
    work: Warp, box: Box, columns: Floats, rows: Floats, shape: tuple[int, int], more: int
) -> Items | None:
    axis = 0 if shape[0] >= shape[1] else 1
    half, size = shape[axis] // 2, shape[axis]
    parts = []
    for begin, end in ((0, half), (half, size)):
        cut = [slice(None), slice(None)]
        cut[axis] = slice(begin, end + more)
        parts.append(_fill(work, box, columns[tuple(cut)], rows[tuple(cut)]))
    if parts[0] is None and parts[1] is None:
        return None
    whole: list[Items] = []
    for part, other, length in zip(parts, parts[::-1], (half, size - half), strict=True):
        if part is None:
            assert other is not None
            lengths = [*other.shape[:-2], *shape]
            lengths[axis - 2] = length
            part = np.full(lengths, work.nodata, work.target.dtype)
        whole.append(part)
    return np.concatenate(whole, axis=axis - 2)


def window_of(work: Warp, columns: Floats, rows: Floats) -> tuple[slice, slice] | None:
    """(y, x) of the data that the cells at those places are made of; None where nothing of the data lies."""
    height, width = work.trace.source_shape
    with np.errstate(invalid="ignore"):
        inside = np.isfinite(columns) & np.isfinite(rows)
        if work.sampling != "average":
            inside &= (columns >= 0) & (columns <= width) & (rows >= 0) & (rows <= height)
    if not inside.any():
        return None
    sides = []
    for places, size, scale in ((rows, height, work.scale[0]), (columns, width, work.scale[1])):
        low, high = float(places[inside].min()), float(places[inside].max())
        if high < 0 or low > size:
            return None
        reach = reach_of(work.sampling, scale)
        begin, end = max(0.0, low), min(float(size), high)
        sides.append(slice(max(0, int(begin) - reach), min(size, int(end) + 1 + reach)))
    return sides[0], sides[1]

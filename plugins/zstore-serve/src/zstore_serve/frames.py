"""Values for the pixels of a frame: copied or warped from the level of a scene that fits the frame."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import numpy as np

from zstore.plugin.conventions import Affine, Crs, TileMatrix
from zstore.plugin.pyramids import Dataset, GridTransform, Masking
from zstore.plugin.resamplers import reach_of, sample
from zstore_serve.problems import Problem
from zstore_serve.scenes import PictureBand, Scene, full_turn

__all__ = [
    "SAMPLINGS",
    "TILE_SIZE",
    "Frame",
    "FramePart",
    "FramePlan",
    "Pixels",
    "await_all",
    "own_matrices",
    "plan_frame",
    "read_band",
]

T = TypeVar("T")

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Items = np.ndarray[Any, np.dtype[Any]]

SAMPLINGS = ("nearest", "bilinear", "cubic")
# A level is fine enough where its cells have at most so many pixels a side; GDAL chooses overviews so.
FINE_ENOUGH = 1.2
# Where grids differ by less they are the same: in the size of a cell, and in where it begins, in cells.
SAME_SIZE, SAME_PLACE = 1e-9, 1e-3
TILE_SIZE = 256


@dataclass(frozen=True)
class Frame:
    """A grid of pixels on the ground; with `crs` None, over the cells of a scene without a place."""

    crs: Crs | None
    affine: Affine
    shape: tuple[int, int]

    def padded(self, count: int) -> Frame:
        """The frame with `count` pixels more on each side."""
        height, width = self.shape
        return Frame(self.crs, self.affine.moved(-count, -count), (height + 2 * count, width + 2 * count))

    def middle(self, share: float) -> Frame:
        """The middle of the frame, that share of each side."""
        height, width = (max(1, math.floor(length * share)) for length in self.shape)
        corner = (self.shape[1] - width) // 2, (self.shape[0] - height) // 2
        return Frame(self.crs, self.affine.moved(*corner), (height, width))


@dataclass(frozen=True)
class FramePart:
    """A window of a level, and which of the frame's pixels are made of it.

    columns, rows  where in the window the centre of each pixel lies; None: cells are pixels, and are copied
    corner         the (row, column) of the frame that the window is copied to
    inside         which pixels lie on the level; None: all
    """

    window: tuple[slice, slice]
    columns: Floats | None
    rows: Floats | None
    corner: tuple[int, int] = (0, 0)
    inside: Mask | None = None


@dataclass(frozen=True)
class FramePlan:
    """Which windows of which level a frame is made of; `scale` is (y, x) pixels per cell of that level."""

    level: int
    shape: tuple[int, int]
    parts: Sequence[FramePart]
    scale: tuple[float, float] = (1.0, 1.0)

    @property
    def cell_count(self) -> int:
        """How many cells of one band are read."""
        return sum(math.prod(side.stop - side.start for side in part.window) for part in self.parts)


@dataclass(frozen=True)
class Pixels:
    """Values as they are stored, (rows, columns), and which of them are valid."""

    values: Items
    valid: Mask


def own_matrices(scene: Scene) -> dict[str, TileMatrix]:
    """The tile matrices of a scene on its own grid: from all of it in one tile, to one pixel per cell."""
    bounds, corner, finest, metres = (0, -scene.shape[0], scene.shape[1], 0), (0.0, 0.0), 1.0, 1.0
    if scene.crs is not None:
        bounds, finest, metres = scene.bounds(), min(scene.affine(0).cell), scene.crs.metres_per_unit
        corner = bounds[0], bounds[3]
    # What is a cell too much only by rounding is none.
    shape = [(high - low) / finest - 1e-6 for low, high in ((bounds[1], bounds[3]), (bounds[0], bounds[2]))]
    depth = max(0, math.ceil(math.log2(max(shape) / TILE_SIZE)))
    found = {}
    for z in range(depth + 1):
        times = 2.0 ** (depth - z)
        rows, columns = (max(1, math.ceil(size / times / TILE_SIZE)) for size in shape)
        found[str(z)] = TileMatrix(
            str(z), finest * times * metres / 0.00028, finest * times, corner, (TILE_SIZE, TILE_SIZE),
            (rows, columns),
        )  # fmt: skip
    return found


def plan_frame(scene: Scene, frame: Frame, sampling: str) -> FramePlan:
    """What is to be read of a scene for a frame; no parts where the scene does not reach into the frame."""
    finest = _pixels_per_cell(scene, frame)
    chosen = _choose_level(scene, finest)
    affine, shape = scene.affine(chosen), scene.levels[chosen].geo.shape
    is_same = scene.crs is None or (frame.crs is not None and frame.crs.is_same(scene.crs))
    straight = _aligned_corner(affine, frame.affine) if is_same else None
    if straight is not None:
        corner, sides = straight, []
        for begin, length, size in zip(corner, frame.shape, shape, strict=True):
            low, high = max(0, begin), min(size, begin + length)
            if low >= high:
                return FramePlan(chosen, frame.shape, ())
            sides.append(slice(low, high))
        at = (sides[0].start - corner[0], sides[1].start - corner[1])
        return FramePlan(chosen, frame.shape, (FramePart((sides[0], sides[1]), None, None, at),))
    transform = _grid_transform(scene, frame, chosen)
    columns, rows = _places_under(scene, frame, chosen, transform)
    scale = (finest[0] * scene.factors[chosen][0], finest[1] * scene.factors[chosen][1])
    parts = []
    for ours in _split_at_seam(transform, columns):
        x, y = (columns, rows) if ours is None else (np.where(ours, columns, np.nan), rows)
        inside = _inside(x, y, shape)
        if inside is None or inside.any():
            window = _window_for(x, y, inside, shape, sampling, scale)
            parts.append(FramePart(window, x - window[1].start, y - window[0].start, inside=inside))
    return FramePlan(chosen, frame.shape, parts, scale)


def _choose_level(scene: Scene, finest: tuple[float, float]) -> int:
    """The coarsest level that is fine enough, where a cell of the finest has `finest` (y, x) pixels."""
    pixels = math.sqrt(finest[0] * finest[1])
    fitting = [
        n for n, (down, right) in enumerate(scene.factors) if pixels * math.sqrt(down * right) <= FINE_ENOUGH
    ]
    return max(fitting, key=lambda n: scene.factors[n], default=0)


def _pixels_per_cell(scene: Scene, frame: Frame) -> tuple[float, float]:
    """(y, x) pixels of the frame for a cell of the finest level, in the middle of the frame."""
    if scene.crs is None:
        cell, pixel = scene.affine(0).cell, frame.affine.cell
        return cell[0] / pixel[0], cell[1] / pixel[1]
    transform = _grid_transform(scene, frame, 0)
    assert transform is not None
    # Several places, for some may lie at the antimeridian or outside of the CRS's domain.
    rows, columns = (np.array([1, 3, 5]) * size / 6 for size in frame.shape)
    x, y = (part.ravel() for part in np.meshgrid(columns, rows))
    ends = [(x - 0.5, y), (x + 0.5, y), (x, y - 0.5), (x, y + 0.5)]
    right, down = transform.to_source(*(np.concatenate(parts) for parts in zip(*ends, strict=True)))
    right, down = right.reshape(4, -1), down.reshape(4, -1)
    with np.errstate(all="ignore"):
        spans = [np.hypot(right[n + 1] - right[n], down[n + 1] - down[n]) for n in (2, 0)]
    y, x = ([span for span in part.tolist() if 0 < span < math.inf] for part in spans)
    return 1 / median(y) if y else 1.0, 1 / median(x) if x else 1.0


def _grid_transform(scene: Scene, frame: Frame, level: int) -> GridTransform | None:
    if scene.crs is None or frame.crs is None:
        return None
    return GridTransform(
        scene.crs, scene.affine(level), scene.levels[level].geo.shape, frame.crs, frame.affine
    )


def _places_under(
    scene: Scene, frame: Frame, level: int, transform: GridTransform | None
) -> tuple[Floats, Floats]:
    """(columns, rows) of a level under the centres of the frame's pixels."""
    if transform is not None:
        return transform.under_block(0, 0, frame.shape, corners=False)
    height, width = frame.shape
    x, y = frame.affine.at(*np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5))
    return scene.affine(level).cell_at(x, y)


def _split_at_seam(transform: GridTransform | None, columns: Floats) -> list[Mask | None]:
    """The pixels on each side of the meridian where a global grid is cut; [None] where all are on one."""
    if transform is None or not transform.source_crs.is_geographic or transform.source_affine.is_rotated:
        return [None]
    turn = full_turn(transform.source_crs) / abs(transform.source_affine.a)
    finite = columns[np.isfinite(columns)]
    if not finite.size or finite.max() - finite.min() <= turn / 2:
        return [None]
    middle = (finite.max() + finite.min()) / 2
    inside = finite[(finite >= 0) & (finite <= transform.source_shape[1])]
    # A frame that shows the whole globe needs all columns in any case.
    if not inside.size or np.histogram(inside, 8, (0.0, float(transform.source_shape[1])))[0].all():
        return [None]
    with np.errstate(invalid="ignore"):
        return [columns < middle, columns >= middle]


def _aligned_corner(own: Affine, wanted: Affine) -> tuple[int, int] | None:
    """(row, column) of a level at the corner of a frame whose pixels are its cells; None of other frames."""
    pairs = ((wanted.a, own.a), (wanted.e, own.e))
    if own.is_rotated or any(abs(theirs - ours) > SAME_SIZE * abs(ours) for theirs, ours in pairs):
        return None
    column, row = own.cell_at(wanted.c, wanted.f)
    if max(abs(row - round(row)), abs(column - round(column))) > SAME_PLACE:
        return None
    return round(row), round(column)


def _inside(columns: Floats, rows: Floats, shape: tuple[int, int]) -> Mask | None:
    """Which places lie on a level of that shape; None where all do."""
    height, width = shape
    # With a NaN among them, the least and the greatest are NaN, and no comparison holds.
    if columns.min() >= 0 and columns.max() < width and rows.min() >= 0 and rows.max() < height:
        return None
    with np.errstate(invalid="ignore"):
        return (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)


def _window_for(
    columns: Floats,
    rows: Floats,
    inside: Mask | None,
    shape: tuple[int, int],
    sampling: str,
    scale: tuple[float, float],
) -> tuple[slice, slice]:
    """The (y, x) window of a level that is read for pixels at these places."""
    sides = []
    for places, size, ratio in ((rows, shape[0], scale[0]), (columns, shape[1], scale[1])):
        found = places if inside is None else places[inside]
        reach = 0 if sampling == "nearest" else reach_of(sampling, ratio)
        sides.append(slice(max(0, int(found.min()) - reach), min(size, int(found.max()) + 1 + reach)))
    return sides[0], sides[1]


async def await_all(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of coroutines that run at the same time; where one fails, the others are cancelled."""
    if len(asked) == 1:
        return [await asked[0]]
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def read_band(
    scene: Scene, band: PictureBand, indices: Mapping[str, int], plan: FramePlan, sampling: str
) -> Pixels:
    """The values of a band for a plan's frame; what nodata or a mask leaves out is not valid.

    indices  the item of each dimension beside y and x
    """
    dataset = scene.levels[plan.level]
    if band.array not in dataset.arrays:
        raise Problem(404, f"level {plan.level} holds no {band.name!r}")
    variable = dataset.geo.variables[band.array]
    nodata = variable.nodata
    dtype = dataset.arrays[band.array].dtype.newbyteorder("=")
    is_masked = scene.mask is not None and scene.mask != band.array and scene.mask in dataset.arrays
    read = [_read_window(scene, dataset, band, indices, part.window) for part in plan.parts]
    if is_masked:
        mask = PictureBand(str(scene.mask), str(scene.mask))
        read += [_read_window(scene, dataset, mask, {}, part.window) for part in plan.parts]
    held = await await_all(read)
    made = np.zeros(plan.shape, dtype)
    valid = np.zeros(plan.shape, bool)
    for number, part in enumerate(plan.parts):
        cells, shown = held[number], held[len(plan.parts) + number] != 0 if is_masked else None
        if part.columns is None or part.rows is None:
            rows, columns = (
                slice(at, at + length) for at, length in zip(part.corner, cells.shape, strict=True)
            )
            made[rows, columns] = cells
            valid[rows, columns] = True if shown is None else shown
            continue
        places = part.columns, part.rows
        if shown is None or sampling == "nearest" or cells.dtype.kind == "b":
            found = _sample(cells, *places, sampling, nodata, plan.scale)
        else:
            found = _sample_masked(cells, shown, *places, sampling, nodata, plan.scale)
        inside = np.ones(plan.shape, bool) if part.inside is None else part.inside.copy()
        if len(plan.parts) == 1:
            made = found
        else:
            np.copyto(made, found, where=inside)
        if shown is not None:
            inside &= _sample(shown, *places, "nearest", None, plan.scale)
        valid |= inside
    if made.dtype.kind == "f":
        valid &= np.isfinite(made)
    if nodata is not None and nodata == nodata:
        valid &= made != nodata
    return Pixels(made, valid)


def _sample(
    cells: Items, columns: Floats, rows: Floats, sampling: str, nodata: Any, scale: tuple[float, float]
) -> Items:
    if cells.dtype.kind == "b" and sampling != "nearest":
        return _sample(cells.view("u1"), columns, rows, "nearest", nodata, scale).view("?")
    return sample(cells, columns, rows, sampling, nodata=nodata, scale=scale)


def _sample_masked(
    cells: Items, shown: Mask, columns: Floats, rows: Floats, sampling: str, nodata: Any,
    scale: tuple[float, float],
) -> Items:  # fmt: skip
    """Samples in which cells that a mask leaves out have no weight."""
    if not Masking.is_possible(cells.dtype, nodata):
        return _sample(cells, columns, rows, sampling, nodata, scale)
    masking = Masking(cells.dtype, nodata, is_needed=True)
    hidden = masking.hide(cells, shown)
    made = sample(hidden, columns, rows, sampling, nodata=masking.nodata, scale=scale)
    return masking.reveal(masking.bound(made))


async def _read_window(
    scene: Scene, dataset: Dataset, band: PictureBand, indices: Mapping[str, int], window: tuple[slice, slice]
) -> Items:
    array, (y, x) = dataset.arrays[band.array], dataset.axes(band.array)
    items = {**indices, **band.fixed}
    names = scene.dimension_names(band.array)
    region: list[Any] = [dataset.item(name, items.get(name, 0)) for name in names]
    region[y], region[x] = window
    if any(isinstance(item, int) and item >= size for item, size in zip(region, array.shape, strict=True)):
        raise Problem(404, f"level {dataset.level or '0'} has no such item of {band.name!r}")
    values: Items = dataset.geo.variables[band.array].with_one_nodata(await array.read_async(tuple(region)))
    return values if y < x else values.T

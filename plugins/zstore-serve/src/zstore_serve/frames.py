"""Pixels of a frame on any grid of the ground, out of the level of a scene that fits: sliced, or warped."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import numpy as np

from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine
from zstore.conventions.tilesets.registry import TileMatrix
from zstore.pyramid.dataset import Dataset
from zstore.pyramid.masks import WIDENED, Masking
from zstore.pyramid.transform import GridTransform
from zstore.resampling.sample import reach_of, sample
from zstore_serve.problems import Problem
from zstore_serve.scenes import Band, Scene

__all__ = [
    "SAMPLINGS",
    "Frame",
    "Part",
    "Pixels",
    "Plan",
    "one_cell",
    "pixel_matrices",
    "plan_frame",
    "read_band",
    "together",
]

T = TypeVar("T")

Items = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

SAMPLINGS = ("nearest", "bilinear", "cubic")
# As GDAL has it: a level is fine enough as long as its cells are not more than so many pixels.
FINE_ENOUGH = 1.2
# Cells that differ by less, in cells, are the same.
ALIKE = 1e-6
TILE = 256


@dataclass(frozen=True)
class Frame:
    """Pixels that are asked for; `crs` None: those of a scene without a place."""

    crs: Crs | None
    affine: Affine
    shape: tuple[int, int]

    def padded(self, count: int) -> Frame:
        """The frame with so many pixels more on each side."""
        x, y = self.affine.at(-count, -count)
        height, width = self.shape
        return Frame(self.crs, self.affine._replace(c=x, f=y), (height + 2 * count, width + 2 * count))


@dataclass(frozen=True)
class Part:
    """A window of a level, and where in it the frame's pixels lie; None: pixel by pixel, from a corner.

    inside  the pixels that lie on the level; None: all
    """

    window: tuple[slice, slice]
    columns: Floats | None
    rows: Floats | None
    corner: tuple[int, int] = (0, 0)
    inside: Mask | None = None


@dataclass(frozen=True)
class Plan:
    """How a frame is made: of which level, and out of which windows of it."""

    level: int
    shape: tuple[int, int]
    parts: Sequence[Part]
    scale: tuple[float, float] = (1.0, 1.0)

    @property
    def cell_count(self) -> int:
        """How many cells are read."""
        return sum(math.prod(side.stop - side.start for side in part.window) for part in self.parts)


@dataclass(frozen=True)
class Pixels:
    """Values as stored, (rows, columns), and which of them there are."""

    values: Items
    valid: Mask


def pixel_matrices(shape: tuple[int, int]) -> dict[str, TileMatrix]:
    """The tiles of a scene without a place: from all of it in one, to a pixel for a cell."""
    depth = max(0, math.ceil(math.log2(max(shape) / TILE)))
    found = {}
    for z in range(depth + 1):
        cell = 2.0 ** (depth - z)
        rows, columns = (max(1, math.ceil(size / cell / TILE)) for size in shape)
        found[str(z)] = TileMatrix(str(z), cell / 0.00028, cell, (0.0, 0.0), (TILE, TILE), (rows, columns))
    return found


def plan_frame(scene: Scene, frame: Frame, sampling: str, *, level: int | None = None) -> Plan:
    """How `frame` is made of the scene; no part where nothing of it lies there."""
    finest = _scale(scene, frame)
    chosen = _choose(scene, finest) if level is None else level
    affine, shape = scene.affine(chosen), scene.levels[chosen].geo.shape
    is_same = scene.crs is None or (frame.crs is not None and frame.crs.is_same(scene.crs))
    straight = _aligned(affine, frame.affine) if is_same else None
    if straight is not None:
        corner, sides = straight, []
        for begin, length, size in zip(corner, frame.shape, shape, strict=True):
            low, high = max(0, begin), min(size, begin + length)
            if low >= high:
                return Plan(chosen, frame.shape, ())
            sides.append(slice(low, high))
        at = (sides[0].start - corner[0], sides[1].start - corner[1])
        return Plan(chosen, frame.shape, (Part((sides[0], sides[1]), None, None, at),))
    transform = _transform(scene, frame, chosen)
    columns, rows = _places(scene, frame, chosen, transform)
    scale = (finest[0] * scene.factors[chosen][0], finest[1] * scene.factors[chosen][1])
    parts = []
    for ours in _sides(transform, columns):
        x, y = (columns, rows) if ours is None else (np.where(ours, columns, np.nan), rows)
        inside = _inside(x, y, shape)
        if inside is None or inside.any():
            window = _window(x, y, inside, shape, sampling, scale)
            parts.append(Part(window, x - window[1].start, y - window[0].start, inside=inside))
    return Plan(chosen, frame.shape, parts, scale)


def one_cell(row: int, column: int) -> Plan:
    """How a single cell of the finest level is made."""
    return Plan(0, (1, 1), (Part((slice(row, row + 1), slice(column, column + 1)), None, None),))


def _choose(scene: Scene, finest: tuple[float, float]) -> int:
    """The coarsest level whose cells are hardly larger than pixels, of which a finest cell is so many."""
    pixels = math.sqrt(finest[0] * finest[1])
    fitting = [
        n for n, (down, right) in enumerate(scene.factors) if pixels * math.sqrt(down * right) <= FINE_ENOUGH
    ]
    return max(fitting, key=lambda n: scene.factors[n], default=0)


def _scale(scene: Scene, frame: Frame) -> tuple[float, float]:
    """(y, x) pixels of the frame per cell of the finest level, around the frame's middle."""
    if scene.crs is None:
        cell, pixel = scene.affine(0).cell, frame.affine.cell
        return cell[0] / pixel[0], cell[1] / pixel[1]
    transform = _transform(scene, frame, 0)
    assert transform is not None
    # Several places: one of them may lie where the globe is cut open, or nowhere.
    rows, columns = (np.array([1, 3, 5]) * size / 6 for size in frame.shape)
    x, y = (part.ravel() for part in np.meshgrid(columns, rows))
    ends = [(x - 0.5, y), (x + 0.5, y), (x, y - 0.5), (x, y + 0.5)]
    right, down = transform.to_source(*(np.concatenate(parts) for parts in zip(*ends, strict=True)))
    (west, east, up, below), (left, other, over, under) = right.reshape(4, -1), down.reshape(4, -1)
    with np.errstate(all="ignore"):
        spans = (np.hypot(below - up, under - over), np.hypot(east - west, other - left))
    y, x = ([span for span in part.tolist() if 0 < span < math.inf] for part in spans)
    return 1 / median(y) if y else 1.0, 1 / median(x) if x else 1.0


def _transform(scene: Scene, frame: Frame, level: int) -> GridTransform | None:
    if scene.crs is None or frame.crs is None:
        return None
    return GridTransform(
        scene.crs, scene.affine(level), scene.levels[level].geo.shape, frame.crs, frame.affine
    )


def _places(scene: Scene, frame: Frame, level: int, transform: GridTransform | None) -> tuple[Floats, Floats]:
    """(columns, rows) of the level under the middles of the frame's pixels."""
    if transform is not None:
        return transform.under_block(0, 0, frame.shape, corners=False)
    own = scene.affine(level)
    height, width = frame.shape
    x, y = frame.affine.at(*np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5))
    columns, rows = (x - own.c) / own.a, (y - own.f) / own.e
    return columns, rows


def _sides(transform: GridTransform | None, columns: Floats) -> list[Mask | None]:
    """The pixels on either side of where the globe is cut open; [None] where all are on one."""
    if transform is None or not transform.source_crs.is_geographic or transform.source_affine.is_rotated:
        return [None]
    turn = 2 * math.pi * 6378137.0 / transform.source_crs.metres_per_unit / abs(transform.source_affine.a)
    finite = columns[np.isfinite(columns)]
    if not finite.size or finite.max() - finite.min() <= turn / 2:
        return [None]
    middle = (finite.max() + finite.min()) / 2
    inside = finite[(finite >= 0) & (finite <= transform.source_shape[1])]
    # A frame that shows the whole globe needs all columns anyway.
    if not inside.size or np.histogram(inside, 8, (0.0, float(transform.source_shape[1])))[0].all():
        return [None]
    with np.errstate(invalid="ignore"):
        return [columns < middle, columns >= middle]


def _aligned(own: Affine, wanted: Affine) -> tuple[int, int] | None:
    """(row, column) of the level at the frame's corner, where its cells are the frame's pixels."""
    if (
        own.is_rotated
        or abs(wanted.a - own.a) > ALIKE * abs(own.a) / 1e3
        or abs(wanted.e - own.e) > ALIKE * abs(own.e) / 1e3
    ):
        return None
    row, column = (wanted.f - own.f) / own.e, (wanted.c - own.c) / own.a
    if abs(row - round(row)) > 1e-3 or abs(column - round(column)) > 1e-3:
        return None
    return round(row), round(column)


def _inside(columns: Floats, rows: Floats, shape: tuple[int, int]) -> Mask | None:
    """The places that lie on a level of that shape; None where all do."""
    height, width = shape
    # Where one is NaN, so are these, and less than nothing.
    if columns.min() >= 0 and columns.max() < width and rows.min() >= 0 and rows.max() < height:
        return None
    with np.errstate(invalid="ignore"):
        return (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)


def _window(
    columns: Floats,
    rows: Floats,
    inside: Mask | None,
    shape: tuple[int, int],
    sampling: str,
    scale: tuple[float, float],
) -> tuple[slice, slice]:
    """(y, x) of the level that pixels at those places are made of."""
    sides = []
    for places, size, ratio in ((rows, shape[0], scale[0]), (columns, shape[1], scale[1])):
        found = places if inside is None else places[inside]
        reach = 0 if sampling == "nearest" else reach_of(sampling, ratio)
        sides.append(slice(max(0, int(found.min()) - reach), min(size, int(found.max()) + 1 + reach)))
    return sides[0], sides[1]


async def together(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers to all, awaited at once; where one fails, the others are given up."""
    if len(asked) == 1:
        return [await asked[0]]
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def read_band(scene: Scene, band: Band, chosen: Mapping[str, int], plan: Plan, sampling: str) -> Pixels:
    """The pixels of a band at the chosen items of other dimensions; what a mask leaves out is not valid."""
    dataset = scene.levels[plan.level]
    if band.array not in dataset.arrays:
        raise Problem(404, f"level {plan.level} holds no {band.name!r}")
    variable = dataset.geo.variables[band.array]
    nodata = variable.nodata
    dtype = dataset.arrays[band.array].dtype.newbyteorder("=")
    is_masked = scene.mask is not None and scene.mask != band.array and scene.mask in dataset.arrays
    read = [_read(scene, dataset, band, chosen, part.window) for part in plan.parts]
    if is_masked:
        mask = Band(str(scene.mask), str(scene.mask))
        read += [_read(scene, dataset, mask, {}, part.window) for part in plan.parts]
    held = await together(read)
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
            found = _sample_shown(cells, shown, *places, sampling, nodata, plan.scale)
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


def _sample_shown(
    cells: Items, shown: Mask, columns: Floats, rows: Floats, sampling: str, nodata: Any,
    scale: tuple[float, float],
) -> Items:  # fmt: skip
    """Samples to which cells that a mask leaves out add nothing."""
    if nodata is None and cells.dtype.kind != "f" and cells.dtype.name not in WIDENED:
        # Integers of 64 bits without nodata have nothing that hidden cells could be.
        return _sample(cells, columns, rows, sampling, nodata, scale)
    masking = Masking(cells.dtype, nodata, is_needed=True)
    hidden = masking.hide(cells, shown)
    made = sample(hidden, columns, rows, sampling, nodata=masking.nodata, scale=scale)
    return masking.reveal(masking.bound(made))


async def _read(
    scene: Scene, dataset: Dataset, band: Band, chosen: Mapping[str, int], window: tuple[slice, slice]
) -> Items:
    array, (y, x) = dataset.arrays[band.array], dataset.axes(band.array)
    items = {**chosen, **band.fixed}
    region: list[Any] = [items.get(name, 0) for name in scene.dimensions(band.array)]
    region[y], region[x] = window
    if any(isinstance(item, int) and item >= size for item, size in zip(region, array.shape, strict=True)):
        raise Problem(404, f"level {dataset.level or '0'} is shorter than what was chosen of {band.name!r}")
    values: Items = await array.read_async(tuple(region))
    return values if y < x else values.T

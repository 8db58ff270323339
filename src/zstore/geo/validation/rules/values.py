"""Rules that need values or a list of stored chunks: the making of levels, units, chunks outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError, ZstoreError
from zstore.geo.conventions.content import circle_of
from zstore.geo.conventions.geozarr import LIMITS, Limits, is_number, layout_items, name_method, parse_limits
from zstore.geo.conventions.levels import Grid, LevelPlace
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.resampling.methods import downsample, on_circle, plan_part
from zstore.geo.validation.standard_names import MODIFIERS, load_standard_names
from zstore.geo.validation.units import dimension_of
from zstore.geo.validation.view import ArrayView, Found, Hierarchy, Rule

# Cells a side of a sample, and of what it is made of.
SAMPLE_SIDE = 128
SOURCE_SIDE = 2048
# Where nothing says the method.
LIKELY = ("average", "nearest", "mode")


@Rule("GZ-49", "error", "overviews", "draft 8.2.6, derived",
      "Levels hold what their resampling method makes of the finer ones.",
      "make the levels anew (zstore pyramid)",
      is_deep=True, each="pyramids")  # fmt: skip
def check_levels(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels[1:]:
        for name, grid in level.grids.items():
            yield from _check_level(pyramid, level, name, grid)


def _check_level(pyramid: Pyramid, level: LevelPlace, name: str, grid: Grid) -> Iterator[Found]:
    methods = _methods(pyramid, level, grid)
    if not methods or grid.node.dtype.kind not in "biufc":
        return
    nodata, finer = grid.variable.nodata, _finer(pyramid, level, name)
    refused = dict[str, None]()
    try:
        shares = [
            _try(source, grid, steps, method, nodata, refused)
            for source, steps in finer
            for method in methods
        ]
        found = [share for share in shares if share is not None]
        if not found:
            message = f"{'; '.join(refused) or 'no whole factor leads here'}: values were not compared"
            yield Found(grid.node, message, severity="note")
        elif min(found) > 0:
            message = (
                f"{min(found):.2%} of the sampled cells are not what {' or '.join(methods)} makes of them"
            )
            if nodata is not None or grid.node.dtype.kind == "f":
                again = [_try(source, grid, steps, methods[0], "none") for source, steps in finer]
                message += "; they are, where nodata and NaN count as values" if 0.0 in again else ""
            yield Found(grid.node, message, 0.0, min(found))
    except ZstoreError as error:
        yield Found(grid.node, f"values cannot be compared: {error}")


def _try(
    source: Grid,
    grid: Grid,
    steps: Sequence[int],
    method: str,
    nodata: Any,
    refused: dict[str, None] | None = None,
) -> float | None:
    """As `_compare_level`; None for a method that does not take this type: `refused` gets its error."""
    try:
        return _compare_level(source, grid, steps, method, nodata)
    except (TypeError, ValueError, UnsupportedError) as error:
        if isinstance(error, MetadataError):
            raise
        # It was not how the level was made.
        if refused is not None:
            refused[str(error)] = None
        return None


def _finer(pyramid: Pyramid, level: LevelPlace, name: str) -> list[tuple[Grid, list[int]]]:
    """(grid, whole factors per axis) of the levels that may be the source: the next finer, the finest."""
    place = pyramid.levels.index(level)
    sources = {id(p): p for p in (pyramid.levels[place - 1], pyramid.levels[0]) if name in p.grids}
    return [
        (p.grids[name], _steps(p, level, name, pair))
        for p in sources.values()
        for pair in _factors(p, level, name)
    ]


def _steps(source: LevelPlace, level: LevelPlace, name: str, pair: tuple[int, int]) -> list[int]:
    """The whole factor along each axis from a level to a coarser one; `pair` has those along y and x."""
    grid = source.grids[name]
    dims = grid.node.dims or (None,) * len(grid.node.shape)
    steps = [level.others.get(dim or "", 1) // source.others.get(dim or "", 1) for dim in dims]
    steps[grid.y], steps[grid.x] = pair
    return steps


def _factors(source: LevelPlace, level: LevelPlace, name: str) -> list[tuple[int, int]]:
    """(y, x) whole factors that may lead from one level to another, by their cells and by their shapes."""
    finer, coarser = source.grids[name].shape, level.grids[name].shape
    ratios = [
        tuple(b / a for a, b in zip(source.factors, level.factors, strict=True)),
        tuple(n / m if m else 0.0 for n, m in zip(finer, coarser, strict=True)),
    ]
    found = {(round(y), round(x)): None for y, x in ratios if y >= 1 and x >= 1}
    return [pair for pair in found if max(pair) * SAMPLE_SIDE <= SOURCE_SIDE * 8]


def _methods(pyramid: Pyramid, level: LevelPlace, grid: Grid) -> list[str]:
    """The methods that may have made a level: the named one; for classes, those in place of an average."""
    stated = pyramid.stated if isinstance(pyramid.stated, Mapping) else {}
    item = next((i for i in layout_items(stated) if i.get("asset") == level.path), {})
    name = "resampling_method"
    own = name_method(grid.node.attrs.get(name, item.get(name, stated.get(name))))
    methods = [] if own is None else [own]
    if any(name in grid.node.attrs for name in ("flag_values", "flag_masks", "flag_meanings")):
        methods += [method for method in ("mode", "nearest") if method not in methods]
    return methods


def _compare_level(source: Grid, level: Grid, steps: Sequence[int], method: str, nodata: Any) -> float | None:
    """The share of sampled cells of `level` that `method` makes differently; None if it cannot tell.

    Both placements of cells are tried: cells of whole factors, and cells that share the finer level's extent.
    """
    if source.node.dims != level.node.dims:
        return None
    shares = []
    if tuple(-(-n // f) for n, f in zip(source.node.shape, steps, strict=True)) == level.node.shape:
        shares = [_share(source, level, steps, method, nodata, grid) for grid in ("aligned", "gdal")]
    elif all(m == n // f for n, m, f in zip(source.node.shape, level.node.shape, steps, strict=True)):
        # The level has only the cells that are whole.
        shares = [_share(source, level, steps, method, nodata, "aligned")]
    return min(shares, default=None)


def is_made_of_finer(pyramid: Pyramid, level: LevelPlace, name: str, nodata: Any) -> bool:
    """Whether the stored cells of a level are a finer level's, resampled by the named method."""
    grid = level.grids[name]
    methods = _methods(pyramid, level, grid) or list(LIKELY)
    try:
        return any(
            _try(source, grid, steps, method, nodata) == 0.0
            for source, steps in _finer(pyramid, level, name)
            for method in methods
        )
    except ZstoreError:
        return False


class _Turned:
    """An array with its y, its x, or both reversed."""

    def __init__(self, node: Any, axes: Sequence[int]) -> None:
        self.node, self.axes = node, axes
        self.shape, self.dtype, self.dims = node.shape, node.dtype, node.dims

    def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray[Any, Any]:
        found = list(box)
        for axis in self.axes:
            length = self.shape[axis]
            found[axis] = slice(length - box[axis].stop, length - box[axis].start)
        return np.asarray(np.flip(np.asarray(self.node[tuple(found)]), tuple(self.axes)))


def compare_pixels(
    pyramid: Pyramid, level: LevelPlace, base: LevelPlace, factors: tuple[float, float]
) -> tuple[bool, bool] | None:
    """Whether the rows, and the columns, of a level are stored in the other order than the finest level's.

    None where the cells do not tell: they are alike in several orders, or in none of them what a method makes
    of the finest level.
    """
    whole = (round(factors[0]), round(factors[1]))
    if max(abs(f - w) for f, w in zip(factors, whole, strict=True)) > 1e-6 or max(whole) > SOURCE_SIDE:
        return None
    for name in [name for name in level.grids if name in base.grids]:
        source, grid = base.grids[name], level.grids[name]
        if grid.node.dtype.kind not in "biufc" or source.shape != base.shape or grid.shape != level.shape:
            continue
        methods = _methods(pyramid, level, grid) or list(LIKELY)
        fits, steps = [], _steps(base, level, name, whole)
        for turned in ((False, False), (True, False), (False, True), (True, True)):
            axes = [axis for axis, is_turned in zip((grid.y, grid.x), turned, strict=True) if is_turned]
            seen = replace(grid, node=_Turned(grid.node, axes))
            try:
                nodata = source.variable.nodata
                shares = [_try(source, seen, steps, method, nodata) for method in methods]
            except ZstoreError:
                break
            if 0.0 in shares:
                fits.append(turned)
        if len(fits) == 1:
            return fits[0]
    return None


def _share(source: Grid, level: Grid, factors: Sequence[int], method: str, nodata: Any, grid: str) -> float:
    wrong = cells = 0
    for box in _boxes(level, factors):
        part = plan_part(source.node.shape, factors, method, box, grid=grid)
        finer = source.variable.with_one_nodata(np.asarray(source.node[part.source]))
        if finer.dtype != level.node.dtype:
            finer = finer.astype(level.node.dtype)
        found, rounding = np.asarray(level.node[box]), _rounding_of(level.node)
        resample: Any = partial(downsample, method=method)
        circle = circle_of(source.variable) if method == "average" else None
        ways = [resample] if circle is None else [partial(on_circle, resample, circle), resample]
        made = [way(finer, factors, nodata=nodata, part=part, grid=grid) for way in ways]
        wrong += min(int(np.count_nonzero(_differs(one, found, rounding))) for one in made)
        cells += found.size
    return wrong / cells if cells else 0.0


def _rounding_of(node: Any) -> float:
    """The error of floats that codecs pack into integers; 0 without such codecs."""
    chain = getattr(getattr(getattr(node, "node", None), "model", None), "codecs", ())
    names = [codec.name for codec in chain]
    if "cast_value" not in names:
        return 0.0
    scales = [codec.configuration.get("scale", 1) for codec in chain if codec.name == "scale_offset"]
    return 1.01 / abs(float(scales[0])) if scales and is_number(scales[0]) else 1.0


def _differs(
    expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], rounding: float
) -> np.ndarray[Any, Any]:
    if found.dtype.kind in "iu":
        # One up or down is a matter of how halves are rounded, and how often.
        return np.asarray(np.maximum(expected, found) - np.minimum(expected, found) > 1)
    if found.dtype.kind == "b":
        return np.asarray(expected != found)
    return np.asarray(~np.isclose(found, expected, rtol=1e-5, atol=1e-6 + rounding, equal_nan=True))


def _boxes(level: Grid, factors: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Samples of a level: at its first and last corner, and in its middle."""
    side = min(SAMPLE_SIDE, max(1, SOURCE_SIDE // max(factors)))
    for position in (0.0, 0.5, 1.0):
        box = [slice(0, 1)] * len(level.node.shape)
        for axis in (level.y, level.x):
            length = level.node.shape[axis]
            start = int((length - min(side, length)) * position)
            box[axis] = slice(start, start + min(side, length))
        if all(level.node.shape):
            yield tuple(box)


@Rule("ZS-07", "error", "core", "CF 3.1, standard name table",
      "Units are of the kind that the table has for the standard name.", "correct units or standard_name",
      general="warning", is_deep=True)  # fmt: skip
def check_units(hierarchy: Hierarchy) -> Iterator[Found]:
    table = load_standard_names()
    for array in hierarchy.arrays:
        stated, units = array.attrs.get("standard_name"), array.attrs.get("units")
        if not isinstance(stated, str) or not isinstance(units, str):
            continue
        name, _, modifier = stated.partition(" ")
        canonical = MODIFIERS.get(modifier) if modifier else None
        canonical = table.units.get(name) if canonical is None else canonical
        found = dimension_of(units)
        if found is None:
            yield Found(array, f"units {units!r} are none that zstore knows", canonical, units, "note")
        elif canonical and dimension_of(canonical) != found and " since " not in units:
            yield Found(array, f"units are {units!r} of {name!r}", canonical, units)


MOST_KEYS = 200_000


def _stored_chunks(array: ArrayView) -> Iterator[tuple[int, ...]]:
    """The grid coordinates of every stored chunk, or shard."""
    keys = array.node.model.keys
    inside = f"{array.path}/" if array.path else ""
    for key in islice(array.store.list(array.path), MOST_KEYS):
        place = keys.cell(key.removeprefix(inside), len(array.shape))
        if place is not None:
            yield place


@Rule("ZS-05", "error", "overviews", "draft 8.2.5",
      "Chunks are stored within the limits of their level only.",
      "widen the limits (zstore fix does), or delete the chunks", is_deep=True, each="pyramids")  # fmt: skip
def check_stored_within(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        stated = (parse_limits(pyramid.stated, member, level.path) for member in LIMITS)
        found = next((limits for limits in stated if limits is not None), None)
        for grid in level.grids.values() if found is not None else ():
            outside = sorted(set(_outside(grid, found or (0, 0, 0, 0))))
            if outside:
                message = f"{len(outside)} chunks are outside the limits {found}, such as {outside[0]}"
                yield Found(grid.node, message, found, outside[:10])


def _outside(grid: Grid, limits: Limits) -> Iterator[tuple[int, ...]]:
    # A shard holds several tiles: it is outside where none of them can be inside.
    cut = grid.node.node.model.grid
    for place in _stored_chunks(grid.node):
        for axis, low, high in ((grid.y, limits[0], limits[1]), (grid.x, limits[2], limits[3])):
            tile = grid.node.chunks[axis]
            if place[axis] >= cut.count(grid.node.shape)[axis]:
                # Beyond the array altogether, which is another rule's.
                break
            first = cut.start(axis, place[axis]) // tile
            last = (cut.start(axis, place[axis] + 1) - 1) // tile
            if last < low or first > high:
                yield place
                break


@Rule("ZS-06", "error", "core", "Zarr v2, v3", "Chunks are stored within the array's shape only.",
      "delete the chunks: no reader sees them", general="warning", is_deep=True, each="arrays")  # fmt: skip
def check_stored_in_shape(array: ArrayView) -> Iterator[Found]:
    counts = array.node.model.grid.count(array.shape)
    outside = [p for p in _stored_chunks(array) if any(i >= n for i, n in zip(p, counts, strict=True))]
    if outside:
        message = f"{len(outside)} chunks are beyond {counts} chunks, such as {min(outside)}"
        yield Found(array, message, counts, sorted(outside)[:10])

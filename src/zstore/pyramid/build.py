"""Pyramids: a dataset and smaller and smaller versions of it, each with its place on the ground."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from zstore.array import Array
from zstore.conventions.model import RESAMPLING_METHODS, GeoModel, Level, Variable
from zstore.conventions.variables import fit_nodata
from zstore.conventions.write import render_geo
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.group import Group
from zstore.opening import open_group
from zstore.pyramid.cascade import Resample, stream
from zstore.pyramid.dataset import Dataset, PlaceLike, join_attributes, open_dataset, place_of
from zstore.pyramid.levels import Cut, Job, create_level, plan_array, prepare_root, rehearse
from zstore.resampling.methods import plan_part

__all__ = ["build_pyramid"]

Lengths: TypeAlias = int | Sequence[int]
Progress: TypeAlias = Callable[[int, int], None]

# The source's chunks are kept as tiles where they have such lengths; others are cut anew.
TILE_LENGTHS = range(64, 2049)
TILE_LENGTH = 512


def build_pyramid(
    source: Array | Group | PlaceLike,
    target: Group | PlaceLike | None = None,
    *,
    levels: int | None = None,
    method: str | Mapping[str, str] = "average",
    nodata: Any = "auto",
    factors: Lengths = 2,
    chunks: Lengths | None = None,
    shards: Lengths | str | None = "auto",
    compressors: Any = "auto",
    zarr_format: int | None = None,
    derive: str = "cascade",
    grid: str = "aligned",
    copy_base: bool | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Group:
    """The group at `target`, with the levels of `source` as groups: "0" as it is, "1", "2", ... coarser.

    `source` is an array, a group of arrays on one grid, or a pyramid, whose finest level counts. Where it is
    a level of `target`, or there is no `target`, the levels are made beside it. A single array gives the
    coarser levels only, unless `copy_base`.

    levels       how many coarser ones; None: until one tile holds the coarsest
    method       any that `downsample` takes; or by the arrays' names, "" for all others. "average" means
                 "mode" for flags (`flag_values`, `flag_masks`, `flag_meanings`) and bool
    nodata       "auto": what the arrays say; a value, None for "there is none", or either by name
    factors      how many cells of a level make one of the next; one number or (y, x)
    chunks       tiles, one length or (y, x); None: the source's where they are 64 to 2048 long, else 512
    shards       one length or (y, x); None: no shards; "auto": the source's where the chunks are the source's
    compressors  as for `create_array`; "auto": the source's codecs where the format is the same
    derive       "cascade": each level from the one before, which gives the numbers of `gdaladdo`; "base":
                 each from the finest, for means rounded once and modes of all cells; read once per level
    grid         "aligned": cells whole multiples of the finest's, in size and place; the last window of a row
                 or column is made of the cells there are, as GDAL would make it of a raster padded with
                 nodata. "gdal": the cells of a level cover the extent evenly, so that they are a little less
                 than `factors` as large where these do not divide the size; with that, and "cascade", levels
                 are `gdaladdo`'s. No tile matrix set can say such levels
    progress     called with (cells read, cells to read)

    Packed values stay packed, and coordinates come from the affine. Memory holds a block (16 MiB, or a shard)
    per level, whatever the size of the source. `multiscales` is written last, so that an interrupted build
    claims no levels; `overwrite` makes those anew that are there already.

    Raises
        MetadataError: arguments or geography that contradict each other.
        StoreError: a level is there already (unless `overwrite`).
        UnsupportedError: the method does not take the data type, or the format has no such layout.
        UnknownExtensionError: nobody offers the method.
    """
    dataset = open_dataset(source)
    if target is None and dataset.root is not None and not isinstance(source, Array | Group):
        target = place_of(dataset.root)
    root, level, overall = _target(dataset, target, zarr_format)
    dataset = replace(dataset, level=level)
    if grid not in ("aligned", "gdal"):
        raise MetadataError(f"grid is {grid!r}; expected 'aligned' or 'gdal'")
    pair, tile, stored = _pair(factors, "factors"), _tile(dataset, chunks), _shards(shards)
    cut = Cut(pair, grid, tile, stored, compressors, overall)
    has_copy = not level and (dataset.is_group if copy_base is None else copy_base)
    has_base = bool(level) or has_copy
    names = _names(level or "0", _count(dataset.geo.shape, cut) if levels is None else levels, has_base)
    if derive not in ("cascade", "base"):
        raise MetadataError(f"derive is {derive!r}; expected 'cascade' or 'base'")
    jobs = [_job(dataset, name, method, nodata, cut) for name in dataset.geo.variables]
    geo = _plan(dataset, jobs, method, cut, names, has_base=has_base)
    documents, _ = render_geo(geo, cut.zarr_format)
    made = names if has_copy else names[1:]
    for job in jobs:
        rehearse(cut.zarr_format, plan_array(dataset, geo.levels[-1], documents, job, cut))
    group = prepare_root(root, made, level, cut.zarr_format, overwrite=overwrite)
    for planned in geo.levels:
        create_level(group, dataset, planned, documents, jobs, cut)
    _fill(group, jobs, made, has_copy, derive, cut.grid, progress)
    held = group.attrs if level else {**dataset.attributes, **group.attrs}
    group.attrs.put(join_attributes(held, documents[""]["attributes"]))
    return group.consolidate()


def _pair(value: Any, name: str) -> tuple[int, int]:
    numbers = (value, value) if isinstance(value, int) else value
    if isinstance(numbers, Sequence) and len(numbers) == 2:
        y, x = numbers
        if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (y, x)):
            return y, x
    raise MetadataError(f"{name} is {value!r}; expected a whole number of at least 1, or two (y, x)")


def _tile(dataset: Dataset, chunks: Any) -> tuple[int, int]:
    if not dataset.arrays:
        raise MetadataError("there are no arrays of data to make levels of", path=dataset.place)
    if chunks is not None:
        return _pair(chunks, "chunks")
    y, x = _own_tile(dataset)
    return (y, x) if y in TILE_LENGTHS and x in TILE_LENGTHS else (TILE_LENGTH, TILE_LENGTH)


def _own_tile(dataset: Dataset) -> tuple[int, int]:
    name, array = next(iter(dataset.arrays.items()))
    y, x = dataset.axes(name)
    return array.chunks[y], array.chunks[x]


def _shards(shards: Any) -> tuple[int, int] | str | None:
    return shards if shards is None or shards == "auto" else _pair(shards, "shards")


def _count(shape: tuple[int, int], cut: Cut) -> int:
    """How many times the grid is made smaller until it fits into a tile."""
    (rows, columns), (y, x), count = shape, cut.factors, 0
    while (rows > cut.tile[0] and y > 1) or (columns > cut.tile[1] and x > 1):
        rows, columns, count = -(-rows // y), -(-columns // x), count + 1
    return count


def _names(base: str, count: Any, has_base: bool) -> list[str]:
    """The levels' names, the finest first."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise MetadataError(f"levels is {count!r}; expected a whole number, or None")
    names = [base, *map(str, range(1, count + 1))]
    if len(set(names)) != len(names):
        raise MetadataError(f"the finest level is named {base!r}, as one of {count} coarser ones would be")
    if not count and not has_base:
        raise MetadataError("there is no level to make: the array fits a tile, and is not to be copied")
    return names


def _target(
    dataset: Dataset, target: Group | PlaceLike | None, zarr_format: int | None
) -> tuple[Group | PlaceLike, str, int]:
    """(where the levels go, the dataset's own name where it is one of them, the format)."""
    own = next(iter(dataset.arrays.values())).zarr_format if dataset.arrays else 3
    root_place = None if dataset.root is None else place_of(dataset.root)
    if target is None:
        if dataset.root is None:
            raise MetadataError("source is no level of a pyramid; expected a target", path=dataset.place)
        target = dataset.root
    place = place_of(target)
    if place == dataset.place:
        raise MetadataError("source and target are one; expected another target", path=place)
    level = dataset.level if place == root_place else ""
    if not level and dataset.is_group and place == dataset.place.rpartition("/")[0]:
        level = dataset.place.rpartition("/")[2]
    if not isinstance(target, Group):
        try:
            target = open_group(target, mode="r+")
        except NotFoundError:
            return target, level, zarr_format or own
    if zarr_format not in (None, target.zarr_format):
        expected = f"expected {target.zarr_format}, the target's own"
        raise MetadataError(f"zarr_format is {zarr_format!r}; {expected}", path=place)
    return target, level, target.zarr_format


def _job(dataset: Dataset, name: str, method: Any, nodata: Any, cut: Cut) -> Job:
    """How the levels of one array are made, tried on one cell so that nothing fails half-way."""
    array, variable = dataset.arrays[name], dataset.geo.variables[name]
    chosen = _method(name, variable, method)
    factors = [1] * array.ndim
    for axis, factor in zip(dataset.axes(name), cut.factors, strict=True):
        factors[axis] = factor
    given = nodata.get(name, "auto") if isinstance(nodata, Mapping) else nodata
    is_auto = isinstance(given, str) and given == "auto"
    hole = variable.nodata if is_auto else None if given is None else fit_nodata(given, variable.dtype)
    stated = variable.nodata if hole is None else hole
    resample: Resample = resamplers.resolve(chosen)()
    try:
        resample(np.zeros(factors, array.dtype), factors, nodata=hole)
        if cut.grid != "aligned":
            plan_part(array.shape, factors, chosen, [slice(0, 0)] * array.ndim, grid=cut.grid)
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"cannot make levels of {name!r}: {error}", path=dataset.place) from error
    variable = replace(variable, nodata=stated, dimensions=dataset.dimensions(name))
    # GDAL's spellings are aliases; what is written is GeoZarr's.
    chosen = getattr(resample, "method", chosen)
    return Job(name, array, chosen, resample, tuple(factors), hole, variable)


def _method(name: str, variable: Variable, method: Any) -> str:
    if isinstance(method, Mapping):
        if name in method:
            return str(method[name])
        method = method.get("", "average")
    flags = (variable.flag_values, variable.flag_masks, variable.flag_meanings)
    is_class = any(flags) or (variable.dtype is not None and variable.dtype.kind == "b")
    return "mode" if is_class and method == "average" else str(method)


def _plan(
    dataset: Dataset,
    jobs: Sequence[Job],
    method: Any,
    cut: Cut,
    names: Sequence[str],
    *,
    has_base: bool,
) -> GeoModel:
    """What will be there, level by level."""
    used = {job.method for job in jobs}
    general = method.get("", "average") if isinstance(method, Mapping) else method
    named = used.pop() if len(used) == 1 else general
    geo = replace(
        dataset.geo,
        levels=(),
        resampling=named if named in RESAMPLING_METHODS else None,
        variables={job.name: job.variable for job in jobs},
    )
    if not has_base:
        # The first level that is made stands for the finest, and cells are counted in its cells.
        first = _plan_level(geo, names[1], cut, 1)
        geo, names = replace(geo, shape=first.shape, affine=first.affine), names[1:]
    levels = [_plan_level(geo, name, cut, step) for step, name in enumerate(names)]
    if names[0] == dataset.level:
        # That level is there already, cut as it is.
        levels[0] = replace(levels[0], tile_shape=_own_tile(dataset))
    return replace(geo, levels=tuple(levels))


def _plan_level(geo: GeoModel, name: str, cut: Cut, step: int) -> Level:
    y, x = cut.factors
    level = geo.plan_level(name, (y**step, x**step), cut.tile)
    if cut.grid == "aligned":
        return level
    ratios = (geo.shape[0] / level.shape[0], geo.shape[1] / level.shape[1])
    return replace(level, factors=ratios, affine=None if geo.affine is None else geo.affine.scaled(ratios))


def _fill(
    group: Group,
    jobs: Sequence[Job],
    made: Sequence[str],
    has_copy: bool,
    derive: str,
    grid: str,
    progress: Progress | None,
) -> None:
    rounds = 1 if derive == "cascade" else len(made)
    total, done = rounds * sum(job.source.size for job in jobs), 0

    def tick(cells: int) -> None:
        nonlocal done
        done += cells
        if progress is not None:
            progress(done, total)

    for job in jobs:
        arrays = [_array(group, f"{name}/{job.name}") for name in made]
        copy, levels = (arrays[0], arrays[1:]) if has_copy else (None, arrays)
        if derive == "cascade":
            stream(job.source, copy, levels, job.factors, job.resample, job.nodata, grid=grid, tick=tick)
            continue
        stream(job.source, copy, [], job.factors, job.resample, tick=tick)
        for power, array in enumerate(levels, 1):
            factors = tuple(factor**power for factor in job.factors)
            stream(job.source, None, [array], factors, job.resample, job.nodata, grid=grid, tick=tick)


def _array(group: Group, path: str) -> Array:
    found = group[path]
    assert isinstance(found, Array)
    return found

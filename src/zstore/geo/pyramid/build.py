"""Pyramids: a dataset and smaller and smaller versions of it, on its own grid or on tile matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.pyramid.builder import RunOptions, build, open_target
from zstore.geo.pyramid.dataset import Dataset, PlaceLike, free_extras, open_dataset, place_of
from zstore.geo.pyramid.grids import FactorGrid, pair_of
from zstore.geo.pyramid.layers import CellOptions, Layer, make_layer, name_resampling
from zstore.geo.pyramid.levels import Encoding, PyramidPlan
from zstore.geo.pyramid.tile_grid import TileGrid
from zstore.geo.pyramid.transform import TOLERANCE
from zstore.geo.resampling.grid import GRIDS
from zstore.geo.resampling.sample import SAMPLINGS
from zstore.jobs.plan import Progress
from zstore.jobs.record import resumable
from zstore.jobs.runner import Executor
from zstore.model.array import ZarrFormat
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.base import Store
from zstore.storage.url import with_storage_options

Lengths: TypeAlias = int | Sequence[int]

# Methods that pick a cell's value: sampling must not mix such values.
UNMIXED = frozenset(("nearest", "mode", "max", "min", "med", "q1", "q3"))


@resumable
@with_storage_options
def build_pyramid(
    source: Array | Group | PlaceLike,
    target: Group | PlaceLike | None = None,
    *,
    levels: int | None = None,
    method: str | Mapping[str, str] = "average",
    nodata: Any = "auto",
    mask: str | Array | Mapping[str, str | Array] | None = "auto",
    factors: Lengths = 2,
    chunks: Lengths | None = None,
    shards: Lengths | str | None = "auto",
    compressors: Any = "auto",
    zarr_format: ZarrFormat | None = None,
    derive: str = "auto",
    grid: str = "aligned",
    copy_base: bool | None = None,
    profile: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    durable: bool = False,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """The group at `target`, with the levels of `source` as groups: "0" as it is, "1", "2", ... coarser.

    `source` is an array, a group of arrays on one grid, or a pyramid, whose finest level counts. Where it is
    a level of `target`, or there is no `target`, the levels are made beside it. A single array gives the
    coarser levels only, unless `copy_base`.

    levels       how many coarser ones; None: until one tile holds the coarsest
    method       any that `downsample` takes; or by the arrays' names, "" for all others. "average" means
                 "mode" for classes: flags (`flag_values`, `flag_masks`, `flag_meanings`), bool, what has a
                 colour table or categories; and "max" for a mask
    nodata       "auto": what the arrays say; a value, None for "there is none" (but NaN), or either by name
    mask         an array whose cells are 0 where the data is not valid, or its name in the source; or either
                 by the arrays' names. What it leaves out counts as nodata. "auto": the mask or the alpha that
                 the data came with; None: none
    chunks       tiles, one length or (y, x); None: the source's where they are 64 to 2048 long, else 512
    factors      how many cells of a level make one of the next; one number or (y, x)
    shards       one length or (y, x); None: no shards; "auto": the source's where the chunks are the source's
    compressors  as for `create_array`; "auto": the source's codecs where the format is the same
    derive       "base": each level from the finest, so that nothing is rounded twice and a mode is that of
                 all cells; "cascade": each from the one before, which gives the numbers of `gdaladdo`;
                 "auto": "base" on the aligned grid for average, rms, sum, mode, med, q1, q3 and nearest (as
                 long as a window is not more than 64 MiB, and on from there), "cascade" for all else
    grid         "aligned": cells whole multiples of the finest's, in size and place; the last window of a row
                 or column is made of the cells there are, as GDAL would make it of a raster padded with
                 nodata. "gdal": the cells of a level cover the extent evenly, so that they are a little less
                 than `factors` as large where these do not divide the size; with that, and "cascade", levels
                 are `gdaladdo`'s. No tile matrix set can say such levels
    profile      which of `zstore.geo.conventions.profiles.PROFILES` the geography is written for
    overwrite    make those levels anew that are there already
    resume       go on with a build of the same arguments that was interrupted, or begin it
    durable      the levels survive a power cut from the moment that this returns; refused where they cannot
    memory       bytes to hold at once, about; with an executor, in each of its workers
    executor     what makes the units, e.g. a process pool or a `dask.distributed.Client`; None: threads here
    progress     called with (cells read, cells to read)
    storage_options  how to reach buckets and web servers that are named by URL

    The source is read once, and all levels are made of that: reading, resampling and writing go on side by
    side. Every chunk or shard is written once and whole. (Where windows overlap, neighbouring units read
    some cells twice; `derive="base"` reads what windows reach, however large.) Packed values stay packed, and
    coordinates come from the affine. Documents are written last, so that nobody sees levels before they are
    whole; what was interrupted is named by `zstore info`, `validate` and `verify`.

    Raises
        MetadataError: arguments or geography that contradict each other.
        StoreError: a level is there already, or unfinished work (unless `overwrite`, or `resume` of it).
        UnsupportedError: the method does not take the data type, or the format has no such layout.
        UnknownExtensionError: nobody offers the method.
    """
    dataset = _open(source)
    if target is None and dataset.root is not None and not isinstance(source, Array | Group):
        target = source if isinstance(source, Store) else place_of(dataset.root)
    root, level, overall = _target(dataset, target, zarr_format)
    dataset = replace(dataset, level=level)
    run = RunOptions(memory, executor, progress, durable)
    if grid not in GRIDS:
        raise MetadataError(f"grid is {grid!r}; expected {', '.join(map(repr, GRIDS))}")
    steps = pair_of(factors, "factors")
    options = CellOptions(method, nodata, derive, mask)
    layers = [make_layer(dataset, name, options, steps, grid) for name in dataset.geo.variables]
    levels_grid = FactorGrid.choose(
        dataset.geo.shape,
        layers[0].tile_of(layers[0].recipe.source),
        factors=steps,
        kind=grid,
        chunks=chunks,
        count=levels,
        finest=level,
        is_copied=dataset.is_group if copy_base is None else copy_base,
    )
    stored = shards if shards is None or shards == "auto" else pair_of(shards, "shards")
    encoding = Encoding(stored, compressors, overall)
    pyramid = PyramidPlan.make(
        dataset, levels_grid, layers, encoding, profile, name_resampling(layers, method)
    )
    return build(pyramid, root, run, overwrite=overwrite, resume=resume)


@resumable
@with_storage_options
def build_tile_pyramid(
    source: Array | Group | PlaceLike,
    target: Group | PlaceLike,
    tile_matrix_set: str = "WebMercatorQuad",
    *,
    min_zoom: int | str | None = None,
    max_zoom: int | str | None = None,
    sampling: str | Mapping[str, str] = "auto",
    method: str | Mapping[str, str] = "average",
    nodata: Any = "auto",
    mask: str | Array | Mapping[str, str | Array] | None = "auto",
    tile_length: int | None = None,
    tiles_per_shard: int | None = None,
    compressors: Any = "auto",
    zarr_format: ZarrFormat | None = None,
    derive: str = "auto",
    tolerance: float = TOLERANCE,
    profile: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    durable: bool = False,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """The group at `target`, with `source` on the grids of a tile matrix set: one group for each zoom level.

    Levels are named as the set's tile matrices, and each array spans all of its matrix: the chunk (of a
    sharded array the inner chunk) at (row, column) is the tile at (row, column). Only tiles that the data
    show in are stored. The finest level is sampled from the source, the others are made of the finest as
    `build_pyramid` makes them.

    tile_matrix_set  one of `list_tile_matrix_sets`, with square cells that grow by one whole factor
    min_zoom         the coarsest tile matrix; None: the finest whose one tile holds all, else the set's first
    max_zoom         the finest; None: the one whose cells are nearest in size to the source's
    sampling         how cells of the finest level come about: "nearest", "bilinear", "cubic", "average";
                     "auto": nearest for classes and where `method` picks a cell, cubic for cubic, else
                     bilinear. Or by the arrays' names
    nodata           as for `build_pyramid`; arrays of floats without any get NaN, all others must have one,
                     or a mask among the arrays, since there are always cells outside the data
    tile_length      256, 512, ...: a multiple of the set's own; None: the set's own
    tiles_per_shard  how many tiles a shard is wide and high; None: no shards
    tolerance        how many cells of the source the place of a cell may be off; 0: exact everywhere
    method, mask, compressors, zarr_format, derive, profile, overwrite, resume, durable, memory, executor,
    progress, storage_options
                     as for `build_pyramid`; progress counts cells of the finest level's tiles, and
                     windows are 64 MiB at most with "base", too

    Raises
        NotFoundError: there is no such set or tile matrix.
        MetadataError: the source has no CRS or affine, or lies outside the set; integers without nodata
            and without a mask among the arrays.
        UnsupportedError: the set's matrices do not lie in one another; the method does not take the type.
        StoreError: a level is there already, or unfinished work (unless `overwrite`, or `resume` of it).
    """
    dataset = _open(source)
    if place_of(target) in (dataset.place, None if dataset.root is None else place_of(dataset.root)):
        raise MetadataError("source and target are one; expected another target", path=dataset.place)
    dataset = replace(dataset, root=None, level="", extras=free_extras(dataset))
    if not 0 <= tolerance < 1:
        raise MetadataError(f"tolerance is {tolerance!r}; expected a part of a cell, from 0 to below 1")
    if tiles_per_shard is not None and (isinstance(tiles_per_shard, bool) or tiles_per_shard < 1):
        raise MetadataError(f"tiles_per_shard is {tiles_per_shard!r}; expected a whole number, or None")
    grid = TileGrid.choose(dataset, tile_matrix_set, tile_length, tolerance, min_zoom, max_zoom)
    options = CellOptions(method, _nodata(dataset, nodata), derive, mask)
    root, overall = open_target(target, zarr_format, 3 if _own_format(dataset) == 3 else 2)
    (height, width), times = grid.tile, tiles_per_shard
    shards = None if times is None else (height * times, width * times)
    encoding = Encoding(shards, compressors, overall)
    layers = []
    for name in dataset.geo.variables:
        layer = make_layer(dataset, name, options, grid.factors)
        layers.append(replace(layer, sampling=_sampling(layer, sampling)))
    _check_empty(layers, dataset.place)
    pyramid = PyramidPlan.make(dataset, grid, layers, encoding, profile, name_resampling(layers, method))
    return build(
        pyramid, root, RunOptions(memory, executor, progress, durable), overwrite=overwrite, resume=resume
    )


def _target(
    dataset: Dataset, target: Group | PlaceLike | None, zarr_format: ZarrFormat | None
) -> tuple[Group | PlaceLike, str, ZarrFormat]:
    """(where the levels go, the dataset's own name where it is one of them, the format)."""
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
    opened, overall = open_target(target, zarr_format, _own_format(dataset))
    return opened, level, overall


def _open(source: Array | Group | PlaceLike) -> Dataset:
    dataset = open_dataset(source)
    if not dataset.arrays:
        raise MetadataError("there are no arrays of data to make levels of", path=dataset.place)
    return dataset


def _own_format(dataset: Dataset) -> ZarrFormat:
    return next(iter(dataset.arrays.values())).zarr_format


def _nodata(dataset: Dataset, given: Any) -> dict[str, Any]:
    """By name: what stands for "nothing here"."""
    chosen = {}
    for name, variable in dataset.geo.variables.items():
        mine = given.get(name, "auto") if isinstance(given, Mapping) else given
        if isinstance(mine, str) and mine == "auto":
            mine = variable.nodata
        if mine is None and dataset.arrays[name].dtype.kind == "f":
            mine = np.nan
        chosen[name] = mine
    return chosen


def _check_empty(layers: Sequence[Layer], place: str) -> None:
    """See that every layer, or its mask among them, can say that cells lie outside the data."""
    masks = {layer.name for layer in layers if layer.is_mask}
    for layer in layers:
        if layer.recipe.nodata is None and not layer.is_mask and layer.mask_name not in masks:
            raise MetadataError(
                f"{layer.name!r} of data type {layer.recipe.source.dtype} has no nodata and no mask; "
                "expected one, for the cells of tiles that lie outside the data",
                path=place,
            )


def _sampling(layer: Layer, wanted: str | Mapping[str, str]) -> str:
    method, dtype = layer.recipe.method, layer.recipe.source.dtype
    chosen = wanted.get(layer.name, wanted.get("", "auto")) if isinstance(wanted, Mapping) else wanted
    if layer.is_mask and chosen == "auto" and isinstance(wanted, Mapping) and "average" in wanted.values():
        # A mask shows where what it masks does: that reaches further.
        chosen = "average"
    elif chosen == "auto" and method in UNMIXED:
        chosen = "nearest"
    elif chosen == "auto":
        chosen = "cubic" if method == "cubic" else "bilinear"
    if chosen not in SAMPLINGS:
        names = ", ".join(map(repr, SAMPLINGS))
        raise MetadataError(f"sampling of {layer.name!r} is {chosen!r}; expected 'auto', {names}")
    if chosen != "nearest" and dtype.kind not in "iuf":
        raise UnsupportedError(
            f"sampling {chosen!r} does not take {layer.name!r} of data type {dtype}; expected 'nearest'"
        )
    return chosen

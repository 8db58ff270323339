"""Pyramids on the grids of a well-known tile matrix set, whatever CRS the data are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zstore.conventions.tilesets.registry import load_tile_matrix_set
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.pyramid.build import Progress
from zstore.pyramid.dataset import (
    Dataset,
    PlaceLike,
    free_extras,
    join_attributes,
    open_dataset,
    place_of,
)
from zstore.pyramid.execute import Executor
from zstore.pyramid.jobs import DERIVATIONS, Cut, Job, Wishes, make_job
from zstore.pyramid.levels import prepare_root
from zstore.pyramid.record import MEMBER, Journal, join_member, mark_levels
from zstore.pyramid.sizes import Budget
from zstore.pyramid.tiling.building import Building
from zstore.pyramid.tiling.ground import Ground, count_times
from zstore.pyramid.tiling.places import TOLERANCE
from zstore.resampling.sample import SAMPLINGS

__all__ = ["build_tile_pyramid"]

# What a class, or the least or greatest of some cells, is not between two of them.
UNMIXED = frozenset(("nearest", "mode", "max", "min", "med", "q1", "q3"))


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
    mask: str | Array | Mapping[str, str | Array] | None = None,
    tile_length: int | None = None,
    tiles_per_shard: int | None = None,
    compressors: Any = "auto",
    zarr_format: int | None = None,
    derive: str = "auto",
    tolerance: float = TOLERANCE,
    profile: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
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
                     since there are always cells outside the data
    tile_length      256, 512, ...: a multiple of the set's own; None: the set's own
    tiles_per_shard  how many tiles a shard is wide and high; None: no shards
    tolerance        how many cells of the source the place of a cell may be off; 0: exact everywhere
    method, mask, compressors, zarr_format, derive, profile, overwrite, resume, memory, executor, progress
                     as for `build_pyramid`; progress counts cells of the finest level's tiles

    Raises
        NotFoundError: there is no such set or tile matrix.
        MetadataError: the source has no CRS or affine, or lies outside the set; integers without nodata.
        UnsupportedError: the set's matrices do not lie in one another; the method does not take the type.
        StoreError: a level is there already (unless `overwrite`, or `resume` of its build).
    """
    dataset = open_dataset(source)
    if place_of(target) in (dataset.place, None if dataset.root is None else place_of(dataset.root)):
        raise MetadataError("source and target are one; expected another target", path=dataset.place)
    dataset = replace(dataset, root=None, level="", extras=free_extras(dataset))
    if derive not in DERIVATIONS:
        raise MetadataError(f"derive is {derive!r}; expected {', '.join(map(repr, DERIVATIONS))}")
    if not 0 <= tolerance < 1:
        raise MetadataError(f"tolerance is {tolerance!r}; expected a part of a cell, from 0 to below 1")
    known = load_tile_matrix_set(tile_matrix_set)
    times = count_times(known, tile_length)
    if tiles_per_shard is not None and (isinstance(tiles_per_shard, bool) or tiles_per_shard < 1):
        raise MetadataError(f"tiles_per_shard is {tiles_per_shard!r}; expected a whole number, or None")
    ground = Ground.choose(dataset, known, times, tolerance, min_zoom, max_zoom)
    root, overall = _target(target, dataset, zarr_format)
    tile = ground.matrices[0].tile_shape
    stored = None if tiles_per_shard is None else (tile[0] * tiles_per_shard, tile[1] * tiles_per_shard)
    cut = Cut((ground.factor, ground.factor), "aligned", tile, stored, compressors, overall)
    wishes = Wishes(method, _nodata(dataset, nodata), derive, mask)
    jobs = [make_job(dataset, name, wishes, cut) for name in dataset.geo.variables]
    if not jobs:
        raise MetadataError("there are no arrays of data to make levels of", path=dataset.place)
    samplings = {job.name: _sampling(job, sampling) for job in jobs}
    building = Building(dataset, ground, jobs, samplings, cut, method, profile)
    budget = Budget.of(memory)
    building.rehearse(budget)
    plan = building.record()
    start = prepare_root(root, plan, "", cut.zarr_format, overwrite=overwrite, resume=resume)
    group = start.group
    if start.is_done:
        return group
    building.create(group, start.build)
    journal = Journal(group.store, group.path, start.build)
    building.fill(group, journal, budget, executor, progress)
    names = [matrix.id for matrix in ground.matrices]
    mark_levels(group, names, start.build, None)
    joined = join_attributes({**dataset.attributes, **group.attrs}, building.documents[""]["attributes"])
    record = {**plan, "build": start.build}
    group.attrs.put({**joined, MEMBER: join_member(group.attrs.get(MEMBER), {"pyramid": record})})
    journal.drop()
    return group.consolidate()


def _target(
    target: Group | PlaceLike, dataset: Dataset, zarr_format: int | None
) -> tuple[Group | PlaceLike, int]:
    if not isinstance(target, Group):
        try:
            target = open_group(target, mode="r+")
        except NotFoundError:
            own = next(iter(dataset.arrays.values())).zarr_format if dataset.arrays else 3
            return target, zarr_format or max(own, 2)
    if zarr_format not in (None, target.zarr_format):
        expected = f"expected {target.zarr_format}, the target's own"
        raise MetadataError(f"zarr_format is {zarr_format!r}; {expected}", path=place_of(target))
    return target, target.zarr_format


def _nodata(dataset: Dataset, given: Any) -> dict[str, Any]:
    """By name: what stands for "nothing here"."""
    chosen = {}
    for name, variable in dataset.geo.variables.items():
        mine = given.get(name, "auto") if isinstance(given, Mapping) else given
        if isinstance(mine, str) and mine == "auto":
            mine = variable.nodata
        if mine is None and dataset.arrays[name].dtype.kind == "f":
            mine = np.nan
        if mine is None:
            raise MetadataError(
                f"{name!r} of data type {dataset.arrays[name].dtype} has no nodata; expected one, for the "
                "cells of tiles that lie outside the data",
                path=dataset.place,
            )
        chosen[name] = mine
    return chosen


def _sampling(job: Job, wanted: str | Mapping[str, str]) -> str:
    chosen = wanted.get(job.name, wanted.get("", "auto")) if isinstance(wanted, Mapping) else wanted
    if chosen == "auto":
        chosen = "nearest" if job.method in UNMIXED else "cubic" if job.method == "cubic" else "bilinear"
    if chosen not in SAMPLINGS:
        names = ", ".join(map(repr, SAMPLINGS))
        raise MetadataError(f"sampling of {job.name!r} is {chosen!r}; expected 'auto', {names}")
    if chosen != "nearest" and job.source.dtype.kind not in "iuf":
        raise UnsupportedError(
            f"sampling {chosen!r} does not take {job.name!r} of data type {job.source.dtype}; "
            "expected 'nearest'"
        )
    return chosen

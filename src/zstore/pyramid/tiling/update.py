"""A pyramid on a tile matrix set brought up to date: the tiles that changed cells show in, level by level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zstore.conventions.model import Affine
from zstore.conventions.tilesets.registry import load_tile_matrix_set
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.pyramid.cascade import Box, Pass
from zstore.pyramid.dataset import Dataset, PlaceLike, free_extras, join_attributes, open_dataset
from zstore.pyramid.execute import Executor, counter, run_passes
from zstore.pyramid.jobs import Cut, Job, Wishes, make_job
from zstore.pyramid.levels import create_level
from zstore.pyramid.record import (
    MEMBER,
    Record,
    join_member,
    mark_levels,
    name_build,
    number_from,
    write_record,
)
from zstore.pyramid.regions import (
    Boxes,
    Region,
    changed_boxes,
    check_arrays,
    check_dimensions,
    former_shape,
    plain_boxes,
)
from zstore.pyramid.sizes import Budget
from zstore.pyramid.tiling.building import Building
from zstore.pyramid.tiling.cover import Tiles, coarser, cover, limits_of
from zstore.pyramid.tiling.ground import Ground, count_times
from zstore.pyramid.tiling.shadow import join_tiles, rectangles, shadow
from zstore.pyramid.tiling.warp import Warp, make_tiles

__all__ = ["update_tile_pyramid"]

Progress = Callable[[int, int], None]


def update_tile_pyramid(
    group: Group,
    record: Record,
    region: Region,
    *,
    arrays: Sequence[str] | None,
    source: Array | Group | PlaceLike | None,
    memory: int | None,
    executor: Executor | None,
    progress: Progress | None,
) -> Group:
    """The pyramid that `build_tile_pyramid` made, after its source was written to or has grown."""
    dataset = open_dataset(record["source"] if source is None else source)
    check_arrays(record, dataset, arrays)
    update = _prepare(record, dataset, group.zarr_format)
    jobs, budget = update.building.jobs, Budget.of(memory)
    boxes = {job.name: update.boxes(job, region, arrays) for job in jobs}
    check_dimensions(region, jobs, dataset)
    for job in jobs:
        update.building.check(job, update.building.arrays(group, job), budget)
    names, plan = [record["finest"], *record["levels"]], update.building.record()
    build = name_build([plan, plain_boxes(boxes)], record["build"])
    under_way = {"state": "updating", "pending": plain_boxes(boxes), "grids": update.grids}
    write_record(group, {**record, **under_way})
    mark_levels(group, names, build, "updating")
    update.reshape(group, build)
    update.fill(group, boxes, budget, executor, progress)
    mark_levels(group, names, build, None)
    attributes = dict(group.attrs)
    if update.has_new_shapes or update.is_moved:
        attributes = join_attributes(attributes, update.building.documents[""]["attributes"])
    finished = join_member(attributes.get(MEMBER), {"pyramid": {**plan, "build": build}})
    group.attrs.put({**attributes, MEMBER: finished})
    return group.consolidate()


@dataclass(frozen=True)
class _Update:
    """A pyramid to be brought up to date: how it was built, and what its source is like now.

    grids  (affine, rows, columns) of the source, now and whenever tiles were made of it that may be there
    tiles  level by level, those that data on any of these grids may show in
    """

    record: Record
    building: Building
    grids: list[list[float]]
    tiles: Sequence[Tiles]

    @property
    def is_moved(self) -> bool:
        """Whether the source covers other ground than it did, so that all tiles are to be made."""
        return len(self.grids) > 1

    @property
    def has_new_shapes(self) -> bool:
        """Whether an array has grown or shrunk since."""
        return any(former_shape(job, self.record) != job.source.shape for job in self.building.jobs)

    def boxes(self, job: Job, region: Region, arrays: Sequence[str] | None) -> list[Box]:
        """What has changed of the source of a job, or may have."""
        found = changed_boxes(
            job,
            self.building.dataset,
            self.record,
            region,
            is_asked=arrays is None or job.name in arrays,
            has_new_shapes=self.has_new_shapes or self.is_moved,
        )
        return [tuple(slice(0, n) for n in job.source.shape)] if self.is_moved else found

    def reshape(self, group: Group, build: str) -> None:
        """Levels as long as their source in the dimensions beside y and x, with what lies along those."""
        if not self.has_new_shapes:
            return
        building = self.building
        for job in building.jobs:
            for level, array in zip(building.geo.levels, building.arrays(group, job), strict=True):
                shape = list(job.source.shape)
                for axis, length in zip(building.dataset.axes(job.name), level.shape, strict=True):
                    shape[axis] = length
                if array.shape != tuple(shape):
                    array.resize(tuple(shape))
        marker = {MEMBER: {"build": build, "state": "updating"}}
        for level in building.geo.levels:
            create_level(
                group, building.dataset, level, building.documents, building.jobs, building.cut, marker
            )

    def fill(
        self, group: Group, boxes: Boxes, budget: Budget, executor: Executor | None, progress: Progress | None
    ) -> None:
        """The cells that depend on the boxes."""
        works = []
        for job in self.building.jobs:
            arrays = self.building.arrays(group, job)
            warp = self.building.warp(job, arrays[0], budget)
            works += [(job, arrays, self._work(warp, box)) for box in boxes[job.name]]
        tick = counter(sum(warp.cell_count() for _, _, warp in works), progress)
        for job, arrays, warp in works:
            run_passes([warp], make=make_tiles, executor=executor, tick=tick)
            for passes in self._coarser(job, arrays, warp, budget):
                is_blank = self.building.blanks(arrays, warp.axes, self.tiles) if self.is_moved else None
                run_passes(passes, is_blank=is_blank, executor=executor)

    def _work(self, warp: Warp, box: Box) -> Warp:
        """What makes the tiles that a box of the source shows in."""
        if self.is_moved:
            return replace(warp, tiles=self.tiles[0], clears=True)
        tiles = shadow(warp, self.building.ground.matrices[0], box)
        within = tuple(
            slice(0, size) if axis in warp.axes else side
            for axis, (side, size) in enumerate(zip(box, warp.target.shape, strict=True))
        )
        return replace(warp, tiles=tiles, within=within)

    def _coarser(self, job: Job, arrays: Sequence[Array], warp: Warp, budget: Budget) -> list[list[Pass]]:
        """The passes that make of the other levels what depends on the tiles, rectangle by rectangle."""
        if not len(warp.tiles) or len(arrays) == 1:
            return []
        # Where all is made, what reads no tile is left out, unit by unit.
        spans = [limits_of(warp.tiles)] if self.is_moved else list(rectangles(warp.tiles))
        height, width = self.building.cut.tile
        found = []
        for top, bottom, left, right in spans:
            box = list(warp.within or (slice(0, size) for size in warp.target.shape))
            box[warp.axes[0]] = slice(top * height, (bottom + 1) * height)
            box[warp.axes[1]] = slice(left * width, (right + 1) * width)
            found.append(self.building.coarser(job, arrays, budget, tuple(box)))
        return found


def _prepare(record: Record, dataset: Dataset, zarr_format: int) -> _Update:
    said: Mapping[str, Any] = record["variables"]
    geo = replace(dataset.geo, variables={name: dataset.geo.variables[name] for name in said})
    dataset = replace(dataset, root=None, level="", geo=geo)
    dataset = replace(dataset, extras=free_extras(dataset))
    known = load_tile_matrix_set(record["tile_matrix_set"])
    names = [record["finest"], *record["levels"]]
    times = count_times(known, record["tile"][0])
    ground = Ground.choose(dataset, known, times, record["tolerance"], names[-1], names[0])
    cut = Cut(
        (ground.factor, ground.factor), "aligned", ground.matrices[0].tile_shape, None, "auto", zarr_format
    )
    jobs, samplings = [], {}
    for name, entry in said.items():
        nodata, mask = {name: number_from(entry["nodata"])}, {name: entry.get("mask")}
        job = make_job(dataset, name, Wishes({name: entry["method"]}, nodata, "base", mask), cut)
        jobs.append(replace(job, is_chained=entry["derive"] == "cascade", depth=entry["depth"]))
        samplings[name] = entry["sampling"]
    # Where arrays differ in their methods, the one that the pyramid names is kept.
    named = {"": record["resampling"] or "", **{job.name: job.method for job in jobs}}
    building = Building(dataset, ground, jobs, samplings, cut, named, record["profile"])
    now = [*ground.trace.source_affine, *ground.trace.source_shape]
    first = jobs[0]
    former = [former_shape(first, record)[axis] for axis in dataset.axes(first.name)]
    grids: list[list[float]] = []
    for grid in (now, [*(record["affine"] or ground.trace.source_affine), *former], *record.get("grids", ())):
        if list(grid) not in grids:
            grids.append(list(grid))
    return _Update(record, building, grids, _all_tiles(ground, grids[1:]))


def _all_tiles(ground: Ground, others: Sequence[Sequence[float]]) -> list[Tiles]:
    """Level by level: the tiles of the ground, and those of a source on other grids."""
    finest = ground.tiles[0]
    for *affine, rows, columns in others:
        trace = replace(ground.trace, source_affine=Affine(*affine), source_shape=(int(rows), int(columns)))
        finest = join_tiles(finest, cover(trace, ground.matrices[0]))
    tiles = [finest]
    for _ in ground.matrices[1:]:
        tiles.append(coarser(tiles[-1], ground.factor))
    return tiles

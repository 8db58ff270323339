"""A pyramid on a tile matrix set that is being made: what is to be there, what is said of it, its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zstore.conventions.base import Documents
from zstore.conventions.model import RESAMPLING_METHODS, GeoModel
from zstore.conventions.tilesets.naming import name_set
from zstore.conventions.write import render_geo
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.pyramid.cascade import Box, Pass, Shape
from zstore.pyramid.dataset import Dataset
from zstore.pyramid.execute import Executor, counter, run_passes
from zstore.pyramid.jobs import Cut, Job
from zstore.pyramid.levels import create_level, plan_array, rehearse
from zstore.pyramid.record import MEMBER, Journal, Record
from zstore.pyramid.sizes import Budget, trace_levels
from zstore.pyramid.tiling.cover import Tiles, meets
from zstore.pyramid.tiling.ground import Ground
from zstore.pyramid.tiling.warp import Warp, make_tiles, window_cells

__all__ = ["Building"]

# Coordinates of a whole tile matrix soon outgrow the few tiles that are stored; the affine says the same.
COORDINATE_LIMIT = 1 << 16


class Building:
    """A pyramid that is being built: all that was settled before anything was written."""

    def __init__(
        self,
        dataset: Dataset,
        ground: Ground,
        jobs: Sequence[Job],
        samplings: Mapping[str, str],
        cut: Cut,
        method: Any,
        profile: str | None,
    ) -> None:
        self.ground, self.jobs, self.samplings, self.cut, self.profile = ground, jobs, samplings, cut, profile
        levels, used = ground.levels(), {job.method for job in jobs}
        general = method.get("", "average") if isinstance(method, Mapping) else method
        named = used.pop() if len(used) == 1 else general
        self.geo: GeoModel = replace(
            dataset.geo,
            crs=ground.crs,
            affine=levels[0].affine,
            shape=levels[0].shape,
            levels=levels,
            resampling=named if named in RESAMPLING_METHODS else None,
            variables={job.name: job.variable for job in jobs},
        )
        self.dataset = dataset
        self.documents: Documents = render_geo(self.geo, cut.zarr_format, profile=profile)[0]
        # The mini spec asks for coordinates, however long.
        if profile != "geozarr-mini":
            for level in levels:
                if max(level.shape) > COORDINATE_LIMIT:
                    for name in self.geo.dimensions:
                        self.documents.pop(f"{level.path}/{name}", None)
        attributes = self.documents[""]["attributes"]
        if (
            isinstance(attributes.get("multiscales"), Mapping)
            and "tile_matrix_set" in attributes["multiscales"]
        ):
            attributes["multiscales"] = name_set(
                attributes["multiscales"], ground.known, ground.times, ground.limits
            )

    def record(self) -> Record:
        """What the pyramid says of how it was made."""
        names, trace = [matrix.id for matrix in self.ground.matrices], self.ground.trace
        described = {job.name: {**job.describe(), "sampling": self.samplings[job.name]} for job in self.jobs}
        return {
            "source": self.dataset.place,
            "finest": names[0],
            "levels": names[1:],
            "copied": True,
            "tile_matrix_set": self.ground.known.id,
            "tile": list(self.cut.tile),
            "tolerance": trace.tolerance,
            "factors": list(self.cut.factors),
            "grid": self.cut.grid,
            "profile": self.profile,
            "resampling": self.geo.resampling,
            "affine": list(trace.source_affine),
            "variables": described,
        }

    def rehearse(self, budget: Budget) -> None:
        """Make what nobody keeps, so that nothing fails half-way that could have failed before."""
        for job in self.jobs:
            arrays = [
                rehearse(self.cut.zarr_format, plan_array(self.dataset, level, self.documents, job, self.cut))
                for level in self.geo.levels
            ]
            self.check(job, arrays, budget)

    def check(self, job: Job, arrays: Sequence[Array], budget: Budget) -> None:
        """See that the budget holds units of a job.

        Raises
            MetadataError: the caller's memory does not hold one.
        """
        axes = self.dataset.axes(job.name)
        window_cells(arrays[0], axes, budget)
        self.coarser(job, arrays, budget, self.ground.box(arrays[0].shape, axes))

    def create(self, group: Group, build: str) -> None:
        """The levels' groups and arrays, which say that they are being built."""
        marker = {MEMBER: {"build": build, "state": "building"}}
        for level in self.geo.levels:
            create_level(group, self.dataset, level, self.documents, self.jobs, self.cut, marker)

    def fill(
        self,
        group: Group,
        journal: Journal,
        budget: Budget,
        executor: Executor | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """The levels' cells."""
        works = []
        for job in self.jobs:
            arrays = self.arrays(group, job)
            works.append((job, arrays, self.warp(job, arrays[0], budget)))
        tick = counter(sum(warp.cell_count() for _, _, warp in works), progress)
        for job, arrays, warp in works:
            label = f"{job.name}-tiles"
            run_passes([warp], make=make_tiles, executor=executor, journal=journal, label=label, tick=tick)
            passes = self.coarser(job, arrays, budget, self.ground.box(arrays[0].shape, warp.axes))
            run_passes(
                passes,
                is_blank=self.blanks(arrays, warp.axes, self.ground.tiles),
                executor=executor,
                journal=journal,
                label=job.name,
            )

    def arrays(self, group: Group, job: Job) -> list[Array]:
        """The levels of a job, the finest first."""
        found = []
        for level in self.geo.levels:
            array = group[f"{level.path}/{job.name}"]
            assert isinstance(array, Array)
            found.append(array)
        return found

    def warp(self, job: Job, finest: Array, budget: Budget) -> Warp:
        """What makes the finest level of a job."""
        axes = self.dataset.axes(job.name)
        return Warp(
            job.source,
            finest,
            axes,
            self.ground.trace,
            self.samplings[job.name],
            job.nodata,
            job.mask,
            self.ground.scale,
            window_cells(finest, axes, budget),
            self.ground.tiles[0],
        )

    def blanks(
        self, arrays: Sequence[Array], axes: tuple[int, int], tiles: Sequence[Tiles]
    ) -> Callable[[Pass, Shape], bool]:
        """Whether a unit reads none of the tiles, given level by level, outside which nothing is stored."""

        def is_blank(work: Pass, origin: Shape) -> bool:
            level = next(number for number, array in enumerate(arrays) if array is work.source)
            return not meets(tiles[level], work.needs(origin)[0], axes, self.cut.tile)

        return is_blank

    def coarser(self, job: Job, arrays: Sequence[Array], budget: Budget, box: Box) -> list[Pass]:
        """The passes that make of the other levels what depends on a box of the finest."""
        finest = replace(job, source=arrays[0], mask=None)
        boxes = trace_levels(
            arrays[0].shape,
            arrays[1:],
            job.factors,
            job.method,
            box,
            job.grid,
            job.is_chained,
            job.depth,
        )
        return finest.passes(None, arrays[1:], budget, boxes=boxes)

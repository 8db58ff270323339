"""A pyramid brought up to date: what depends on cells that have changed is made again, at every level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from zstore.conventions.base import Documents
from zstore.conventions.model import Affine, GeoModel
from zstore.conventions.write import render_geo
from zstore.errors import MetadataError, StoreError
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.pyramid.cascade import Box, volume
from zstore.pyramid.dataset import Dataset, PlaceLike, join_attributes, open_dataset, place_of
from zstore.pyramid.execute import Executor, run_passes
from zstore.pyramid.jobs import Cut, Job, Wishes, make_job, plan_geo
from zstore.pyramid.levels import create_level
from zstore.pyramid.record import (
    MEMBER,
    Record,
    join_member,
    mark_levels,
    name_build,
    number_from,
    read_record,
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
from zstore.pyramid.sizes import Budget, trace_levels
from zstore.pyramid.tiling.update import update_tile_pyramid

__all__ = ["update_pyramid"]


def update_pyramid(
    pyramid: Group | PlaceLike,
    region: Region = None,
    *,
    arrays: Sequence[str] | None = None,
    source: Array | Group | PlaceLike | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Group:
    """The pyramid that `build_pyramid` or `build_tile_pyramid` made, after its data have changed or grown.

    Only the chunks that depend on the region are made again, at every level, and come out as if all had been
    built anew. Levels grow and shrink with the finest, coordinates and all. Levels on a tile matrix set are
    made of its source, in whose cells the region is; where that has another extent now, all tiles are made
    again, on the same tile matrices.

    region   what has changed, by dimension: {"time": 7, "y": slice(0, 512)}, whole where nothing is said; or
             a slice per dimension. None: what the arrays have grown by; all, where they have not
    arrays   the names of those that have changed; None: all
    source   where the finest level is, if not in the pyramid; a copy of it there is brought up to date too
    memory, executor, progress   as for `build_pyramid`

    Until it ends, the levels' attribute `zstore` has a `state`. An update that was interrupted is made up for
    by the next one, whatever its region.

    Raises
        MetadataError: nothing says how the pyramid was built, or an array is missing.
        SelectionError: the region does not fit the arrays.
        StoreError: the pyramid is half built; go on with what builds it, and `resume=True`.
    """
    group = pyramid if isinstance(pyramid, Group) else open_group(pyramid, mode="r+")
    record = _checked(group)
    if "tile_matrix_set" in record:
        return update_tile_pyramid(
            group,
            record,
            region,
            arrays=arrays,
            source=source,
            memory=memory,
            executor=executor,
            progress=progress,
        )
    dataset = _dataset(group, record, source)
    update = _prepare(group, record, dataset, arrays)
    boxes = {job.name: update.boxes(job, region, arrays) for job in update.jobs}
    check_dimensions(region, update.jobs, dataset)
    plan = {name: value for name, value in record.items() if name not in ("build", "state", "pending")}
    shapes = {
        job.name: {**record["variables"][job.name], "shape": list(job.source.shape)} for job in update.jobs
    }
    plan["variables"] = shapes
    build = name_build([plan, plain_boxes(boxes)], record["build"])
    made = update.made(with_copy=source is not None)
    write_record(group, {**record, "state": "updating", "pending": plain_boxes(boxes)})
    mark_levels(group, made, build, "updating")
    if update.has_new_shapes:
        update.reshape(group, build)
    update.fill(group, boxes, Budget.of(memory), executor, progress, with_copy=source is not None)
    mark_levels(group, made, build, None)
    attributes = dict(group.attrs)
    if update.has_new_shapes:
        attributes = join_attributes(attributes, update.documents[""]["attributes"])
    finished = join_member(attributes.get(MEMBER), {"pyramid": {**plan, "build": build}})
    group.attrs.put({**attributes, MEMBER: finished})
    return group.consolidate()


def _checked(group: Group) -> Record:
    record = read_record(group)
    if record is None:
        raise MetadataError(
            "nothing says how this pyramid was built; expected one that build_pyramid made",
            path=place_of(group),
        )
    if record.get("state") == "building":
        maker = "build_tile_pyramid" if "tile_matrix_set" in record else "build_pyramid"
        raise StoreError(
            f"the pyramid is half built; expected {maker}(..., resume=True) first", path=place_of(group)
        )
    return record


def _dataset(group: Group, record: Record, source: Array | Group | PlaceLike | None) -> Dataset:
    if source is not None:
        return replace(open_dataset(source), level="")
    if record["finest"] is None:
        return replace(open_dataset(record["source"]), level="")
    return replace(open_dataset(group[record["finest"]]), root=group, level=record["finest"])


@dataclass(frozen=True)
class _Update:
    """A pyramid to be brought up to date: how it was built, and what its source is like now."""

    record: Record
    dataset: Dataset
    geo: GeoModel
    documents: Documents
    jobs: Sequence[Job]
    cut: Cut

    @property
    def has_new_shapes(self) -> bool:
        """Whether an array has grown or shrunk since."""
        return any(former_shape(job, self.record) != job.source.shape for job in self.jobs)

    def made(self, *, with_copy: bool) -> list[str]:
        """The names of the levels to write."""
        copied = self.record["copied"] and with_copy
        return [*([self.record["finest"]] if copied else []), *self.record["levels"]]

    def boxes(self, job: Job, region: Region, arrays: Sequence[str] | None) -> list[Box]:
        """What has changed of the source of a job, or may have."""
        # A grid that is not aligned is stretched anew where it grows.
        is_stretched = self.cut.grid != "aligned"
        return changed_boxes(
            job,
            self.dataset,
            self.record,
            region,
            is_asked=arrays is None or job.name in arrays,
            has_new_shapes=self.has_new_shapes,
            stretched=[axis for axis, factor in enumerate(job.factors) if is_stretched and factor > 1],
        )

    def reshape(self, group: Group, build: str) -> None:
        """Levels as long as their source now asks for, with coordinates and attributes to match."""
        for planned in self.geo.levels:
            level = group[planned.path]
            assert isinstance(level, Group)
            for job in self.jobs:
                if planned.path == self.dataset.level:
                    break
                shape = list(job.source.shape)
                for axis, length in zip(self.dataset.axes(job.name), planned.shape, strict=True):
                    shape[axis] = length
                array = _array(level, job.name)
                if array.shape != tuple(shape):
                    array.resize(tuple(shape))
            for name in self.geo.dimensions:
                held, document = level.get(name), self.documents.get(f"{planned.path}/{name}", {})
                if isinstance(held, Array) and "data" in document and held.shape != document["data"].shape:
                    del level[name]
            is_made = planned.path in self.record["levels"] or self.record["copied"]
            marker = {MEMBER: {"build": build, "state": "updating"}} if is_made else {}
            create_level(group, self.dataset, planned, self.documents, self.jobs, self.cut, marker)

    def fill(
        self,
        group: Group,
        boxes: Boxes,
        budget: Budget,
        executor: Executor | None,
        progress: Callable[[int, int], None] | None,
        *,
        with_copy: bool,
    ) -> None:
        """The cells that depend on the boxes."""
        total, done = sum(volume(box) for found in boxes.values() for box in found), 0
        for job in self.jobs:
            arrays = [_array(group, f"{name}/{job.name}") for name in self.made(with_copy=with_copy)]
            is_copied = len(arrays) > len(self.record["levels"])
            copy, levels = (arrays[0], arrays[1:]) if is_copied else (None, arrays)
            for box in boxes[job.name]:
                steps = (job.is_chained, job.depth)
                traced = trace_levels(
                    job.source.shape, levels, job.factors, job.method, box, job.grid, *steps
                )
                run_passes(job.passes(copy, levels, budget, traced), executor=executor)
                done += volume(box)
                if progress is not None:
                    progress(done, total)


def _prepare(group: Group, record: Record, dataset: Dataset, arrays: Sequence[str] | None) -> _Update:
    check_arrays(record, dataset, arrays)
    said = record["variables"]
    dataset = _placed(dataset, record)
    y, x = record["factors"]
    first = next(iter(said))
    tile = (1, 1)
    if record["levels"]:
        chunks = _array(group, f"{record['levels'][0]}/{first}").chunks
        tile = (chunks[dataset.axes(first)[0]], chunks[dataset.axes(first)[1]])
    cut = Cut((y, x), record["grid"], tile, "auto", "auto", group.zarr_format)
    jobs = []
    for name, entry in said.items():
        wishes = Wishes(
            {name: entry["method"]}, {name: number_from(entry["nodata"])}, "base", {name: entry.get("mask")}
        )
        job = make_job(dataset, name, wishes, cut)
        jobs.append(replace(job, is_chained=entry["derive"] == "cascade", depth=entry["depth"]))
    has_base = record["finest"] is not None
    names = [record["finest"] if has_base else "0", *record["levels"]]
    geo = plan_geo(dataset, jobs, "", cut, names, has_base=has_base)
    geo = replace(geo, resampling=record["resampling"])
    documents, _ = render_geo(geo, group.zarr_format, profile=record["profile"])
    return _Update(record, dataset, geo, documents, jobs, cut)


def _placed(dataset: Dataset, record: Record) -> Dataset:
    """The dataset with the pyramid's arrays, and where it was, if its coordinates have not grown with it."""
    geo = replace(dataset.geo, variables={name: dataset.geo.variables[name] for name in record["variables"]})
    extras = dict(dataset.extras)
    if geo.affine is None and record["affine"] is not None:
        geo = replace(geo, affine=Affine(*record["affine"]))
        for name in geo.dimensions:
            extras.pop(name, None)
    for name, size in zip(geo.dimensions, geo.shape, strict=True):
        if name in extras and extras[name].shape != (size,):
            raise MetadataError(
                f"coordinate {name!r} has the shape {extras[name].shape}; expected {(size,)}, as the arrays",
                path=dataset.place,
            )
    return replace(dataset, geo=geo, extras=extras)


def _array(group: Group, path: str) -> Array:
    found = group[path]
    assert isinstance(found, Array)
    return found

"""Building and updating pyramids of either kind: one sequence of steps, whatever units they consist of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

from zstore.engine.documents import render_node
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.geo.pyramid.boxes import Box
from zstore.geo.pyramid.budget import Budget
from zstore.geo.pyramid.dataset import PlaceLike, join_attributes, place_of
from zstore.geo.pyramid.levels import PyramidPlan
from zstore.geo.pyramid.passes import run_step
from zstore.geo.pyramid.record import MEMBER, Record, join_member, mark_levels, name_build, read_record
from zstore.jobs.plan import Progress
from zstore.jobs.record import Job, begin, check_begun, name_job
from zstore.jobs.record import Record as JobRecord
from zstore.jobs.record import read_record as recorded
from zstore.jobs.room import check_room, expect_size
from zstore.jobs.runner import Executor, counter
from zstore.model.array import ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import open_group
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

# A level's or an array's name that is no path.
PLAIN = re.compile(r"\w[\w.-]*")

# The boxes of the source that have changed, by the arrays' names; None: all is to be made.
Boxes: TypeAlias = Mapping[str, Sequence[Box | None]]


@dataclass(frozen=True)
class RunOptions:
    """The caller's options for running a build: memory in bytes, executor, progress, durability."""

    memory: int | None
    executor: Executor | None
    progress: Progress | None
    durable: bool = False


def open_target(
    target: Group | PlaceLike, zarr_format: ZarrFormat | None, own: ZarrFormat
) -> tuple[Group | PlaceLike, ZarrFormat]:
    """The target, opened where it is there, and its format: its own, the one asked for, else the source's.

    Raises
        MetadataError: it has another format than the one asked for.
    """
    if not isinstance(target, Group):
        try:
            target = open_group(target, mode="r+")
        except NotFoundError:
            return target, zarr_format or own
    if zarr_format not in (None, target.zarr_format):
        expected = f"expected {target.zarr_format}, the target's own"
        raise MetadataError(f"zarr_format is {zarr_format!r}; {expected}", path=place_of(target))
    return target, target.zarr_format


def build(
    pyramid: PyramidPlan, target: Group | PlaceLike, options: RunOptions, *, overwrite: bool, resume: bool
) -> Group:
    """The group at `target` with the pyramid's levels.

    With `overwrite`, levels of a pyramid that was there go, but for the finest where it is the source. With
    `resume`, what a build of the same pyramid has left stays. Nobody sees the levels until all their cells
    are there.

    Raises
        StoreError: a level is there, or unfinished work (unless `overwrite`), or the store fails.
        MetadataError: memory that holds no unit; `resume`, where another pyramid's build was interrupted.
    """
    pyramid.rehearse(Budget.of(options.memory))
    group, is_new = _target(target, pyramid.encoding.zarr_format)
    group = group.as_durable() if options.durable else group
    record, former = _record(pyramid), read_record(group)
    work = "build_tile_pyramid" if "tile_matrix_set" in record else "build_pyramid"
    left = recorded(group.store, group.path)
    taken = [] if resume and left is not None else [name for name in pyramid.made if name in group]
    is_same = former is not None and {**former, "build": None} == {**record, "build": None}
    if resume and left is None and len(taken) == len(pyramid.made) and is_same:
        return group
    check_begun(group.store, group.path, work)
    if taken and not overwrite:
        expected = "expected none, or overwrite"
        raise StoreError(f"levels {', '.join(taken)} are there already; {expected}", path=place_of(group))
    _check_fits(pyramid, group, options)
    name = name_build(record, "" if former is None else str(former.get("build")))
    job = begin(
        group.store,
        group.path,
        work,
        record,
        name=name,
        resume=resume,
        replace=overwrite and not resume,
        is_ready=False,
    )
    if job.is_resumed and former is not None and former.get("build") == job.name:
        # It was interrupted when all was said.
        group.consolidate()
        job.end()
        return group
    if not job.is_resumed:
        taken = [name for name in pyramid.made if name in group]
        job.clear(lambda: _clear(pyramid, group, taken, left))
    nodes = NewNodes(group.store, group.path, group.zarr_format)
    arrays = pyramid.draft(group, nodes, job.name)
    if job.is_resumed:
        nodes.check_own()
    _fill(pyramid, arrays, {layer.name: [None] for layer in pyramid.layers}, job, options)
    job.check_held()
    nodes.publish()
    pyramid.settle(group, nodes)
    held = group.attrs if pyramid.dataset.level else {**pyramid.dataset.attributes, **group.attrs}
    attributes = join_attributes(held, pyramid.documents[""]["attributes"])
    group = _finish(group, {**record, "build": job.name}, attributes, is_new=is_new)
    job.end()
    return group


def update(
    pyramid: PyramidPlan,
    group: Group,
    former: Record,
    boxes: Mapping[str, Sequence[Box]],
    options: RunOptions,
    *,
    is_reshaped: bool,
    resume: bool,
) -> Group:
    """The pyramid's group, after what depends on the boxes was made again.

    Each chunk of the levels is the old one or the new one meanwhile; levels grow when their new cells are
    there.

    former       the pyramid's record
    is_reshaped  whether levels have other lengths or tiles now
    resume       go on by the journal of an update of the same boxes that was interrupted; of others, all that
                 was to be made is made again

    Raises
        MetadataError: memory that holds no unit.
        ChangedError: `resume`, and an array that is read is not described as it was.
        StoreError: the store fails, or other work is unfinished there.
    """
    group = group.as_durable() if options.durable else group
    pyramid.rehearse(Budget.of(options.memory), group)
    record = _updated_record(pyramid, former)
    plain = {name: [[[s.start, s.stop] for s in box] for box in found] for name, found in boxes.items()}
    read = _read_arrays(pyramid)
    source = name_job([place_of(array) for array in read.values()])
    shapes = {layer.name: list(layer.recipe.source.shape) for layer in pyramid.layers}
    pending = {"pending": plain, "shapes": shapes, "source": source, **pyramid.grid.pending()}
    left = recorded(group.store, group.path)
    is_same = resume and left is not None and left.plan == pending
    name = name_build([record, plain], former["build"])
    job = begin(
        group.store, group.path, "update_pyramid", pending, name=name, resume=is_same, replace=not is_same
    )
    if job.name == former["build"]:
        # It was interrupted when all was said.
        group.consolidate()
        job.end()
        return group
    # What attributes say of cells is in the pyramid's record, and ends of updates write them.
    versions = {name: name_job(render_node(array.model.with_attributes({}))) for name, array in read.items()}
    job.check_versions(versions, lambda name: place_of(read[name]))
    name = job.name
    mark_levels(group, pyramid.made, name, "updating")
    if is_reshaped:
        pyramid.shrink(group)
    _fill(pyramid, pyramid.held(group), boxes, job, options, is_replacing=not group.store.durable)
    attributes: Mapping[str, Any] = dict(group.attrs)
    if is_reshaped:
        pyramid.replace_beside(group)
        pyramid.settle(group, NewNodes(group.store, group.path, group.zarr_format))
        attributes = join_attributes(group.attrs, pyramid.documents[""]["attributes"])
    mark_levels(group, pyramid.made, name, None)
    group = _finish(group, {**record, "build": name}, attributes, is_new=False)
    job.end()
    return group


def _check_fits(pyramid: PyramidPlan, group: Group, options: RunOptions) -> None:
    """Refuse a disk that is too full for the levels, as far as the first step of each layer tells.

    Raises
        StoreError: it is.
    """

    def expect() -> float:
        store, budget = MemoryStore(), Budget.of(options.memory)
        held = Group(store, "", GroupModel(group.zarr_format))
        arrays = pyramid.draft(held, NewNodes(store, "", group.zarr_format), "")
        store.delete_prefix("")
        steps = [pyramid.steps(layer, arrays, budget, None)[:1] for layer in pyramid.layers]
        return sum(expect_size(step.plan, store, step.is_blank) for first in steps for step in first)

    check_room(group.store, group.path, pyramid.size, expect, "levels")


def _target(target: Group | PlaceLike, zarr_format: ZarrFormat) -> tuple[Group, bool]:
    """The target's group, and whether it is new, so that nothing of it is stored yet."""
    if isinstance(target, Group):
        return target, False
    return Group(open_store(target), "", GroupModel(zarr_format)), True


def _record(pyramid: PyramidPlan) -> Record:
    """The record that the pyramid will hold of how it was made."""
    grid, affine = pyramid.grid, pyramid.dataset.geo.affine
    return {
        "source": pyramid.dataset.place,
        "finest": None if grid.is_absent else grid.names[0],
        "levels": list(grid.names[1:]),
        "copied": grid.is_copied,
        "factors": list(grid.factors),
        "grid": grid.kind,
        "profile": pyramid.profile,
        "resampling": pyramid.geo.resampling,
        "affine": None if affine is None else list(affine),
        "variables": {layer.name: layer.describe() for layer in pyramid.layers},
        **grid.record(),
    }


def _read_arrays(pyramid: PyramidPlan) -> dict[str, Array]:
    """The arrays that all is made of, and their masks."""
    arrays = {layer.name: layer.recipe.source for layer in pyramid.layers}
    for layer in pyramid.layers:
        if layer.recipe.mask is not None:
            arrays[f"{layer.name}, mask"] = layer.recipe.mask.array
    return arrays


def _updated_record(pyramid: PyramidPlan, former: Record) -> Record:
    """The former record with the shapes, the place and the affine that its source has now."""
    now, said = _record(pyramid), former["variables"]
    kept = {key: value for key, value in former.items() if key != "build"}
    if not pyramid.dataset.level:
        kept |= {"source": now["source"], "affine": now["affine"]}
    shapes = {name: {**said[name], "shape": entry["shape"]} for name, entry in now["variables"].items()}
    return {**kept, "variables": shapes}


def _clear(pyramid: PyramidPlan, group: Group, taken: Sequence[str], left: JobRecord | None) -> None:
    """Remove the levels `taken` and all others that the group lists, and chunks that no document describes.

    Those are where levels are to be made, and where an interrupted build that is given up was to make some.
    The group says no word of a pyramid then.
    """
    _remove_levels(group, taken, pyramid.dataset.level)
    places = {f"{level}/{layer.name}" for level in pyramid.made for layer in pyramid.layers}
    plan = left.plan if left is not None and isinstance(left.plan, dict) else {}
    levels, names = plan.get("levels"), plan.get("variables")
    if isinstance(levels, list) and isinstance(names, dict):
        parts = [part for part in (plan.get("finest"), *levels, *names) if part is not None]
        if all(isinstance(part, str) and PLAIN.fullmatch(part) for part in parts):
            places |= {
                f"{level}/{name}" for level in (plan.get("finest"), *levels) if level for name in names
            }
    for place in sorted(places):
        if place not in group and place.partition("/")[0] not in group:
            group.store.delete_prefix(join_key(group.path, place))


def _remove_levels(group: Group, taken: Sequence[str], finest: str) -> None:
    """Remove those levels, all others that the group lists but for `finest`, and what it says of them."""
    gone, layout = list(taken), group.attrs.get("multiscales")
    if layout is not None:
        listed = layout.get("layout", ()) if isinstance(layout, dict) else ()
        former = {str(item["asset"]) for item in listed if isinstance(item, dict) and item.get("asset")}
        gone += [name for name in former - {*gone, finest} if name in group]
    held = group.attrs.asdict()
    if held.pop("multiscales", None) is not None or (gone and read_record(group) is not None):
        own = held.pop(MEMBER, None)
        others = {k: v for k, v in own.items() if k != "pyramid"} if isinstance(own, Mapping) else {}
        group.attrs.put({**held, **({MEMBER: others} if others else {})})
    for name in gone:
        del group[name]


def _fill(
    pyramid: PyramidPlan,
    arrays: Mapping[str, Sequence[Array]],
    boxes: Boxes,
    job: Job,
    options: RunOptions,
    *,
    is_replacing: bool = False,
) -> None:
    """Make the cells that depend on the boxes; `is_replacing` as for `run_step`."""
    budget, planned = Budget.of(options.memory), []
    for layer in sorted(pyramid.layers, key=lambda layer: not layer.is_mask):
        planned += [
            (layer, f"{layer.name}-{place}", pyramid.steps(layer, arrays, budget, box))
            for place, box in enumerate(boxes[layer.name])
        ]
    first = [steps[0].plan for _, _, steps in planned if steps]
    tick = counter(sum(plan.total_count() for plan in first) if options.progress else 0, options.progress)
    with job.runner(options.executor) as runner:
        for layer, label, steps in planned:
            # What all others may be masked by is made before them.
            with nullcontext() if layer.is_mask else runner.apart():
                for number, step in enumerate(steps):
                    taken = tick if number == 0 else None
                    run_step(runner, step, f"{label}-{number}", taken, is_replacing=is_replacing)


def _finish(group: Group, record: Record, attributes: Mapping[str, Any], *, is_new: bool) -> Group:
    """Write the group's own document, now that its levels are there."""
    member = join_member(group.attrs.get(MEMBER), {"pyramid": record})
    attributes = {**attributes, MEMBER: member}
    if is_new:
        nodes = NewNodes(group.store, group.path, group.zarr_format)
        nodes.add_group("", attributes)
        nodes.publish()
        group = Group(group.store, group.path, GroupModel(group.zarr_format, attributes), Access())
    else:
        group.attrs.put(attributes)
    return group.consolidate()

"""What builds a pyramid and brings it up to date, of either kind: one way, with other units to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.jobs.journal import Journal
from zstore.jobs.runner import Executor, Progress, Runner, counter
from zstore.model.array import ZarrFormat
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.pyramid.boxes import Box
from zstore.pyramid.budget import Budget
from zstore.pyramid.dataset import PlaceLike, join_attributes, place_of
from zstore.pyramid.levels import Pyramid
from zstore.pyramid.passes import run_step
from zstore.pyramid.record import (
    MEMBER,
    Record,
    join_member,
    mark_levels,
    name_build,
    read_record,
    write_record,
)
from zstore.storage.base import join_key

__all__ = ["Boxes", "RunOptions", "build", "open_target", "update"]

# Where a build keeps which of its units are done.
JOURNAL = ".zstore-build"

# What a record holds beside how the pyramid was made.
UNDER_WAY = frozenset(("build", "state", "pending", "grids"))

# By the arrays' names, what of the source has changed; None: all is to be made.
Boxes: TypeAlias = Mapping[str, Sequence[Box | None]]


@dataclass(frozen=True)
class RunOptions:
    """How the caller wants cells made: within how many bytes, by what, told to whom."""

    memory: int | None
    executor: Executor | None
    progress: Progress | None


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
    pyramid: Pyramid, target: Group | PlaceLike, options: RunOptions, *, overwrite: bool, resume: bool
) -> Group:
    """The group at `target` with the pyramid's levels.

    With `overwrite`, levels of a pyramid that was there go, but for the finest where it is the source. With
    `resume`, what a build of the same pyramid has left stays.

    Raises
        StoreError: a level is there (unless `overwrite`), or the store fails.
        MetadataError: memory that holds no unit; `resume`, where another pyramid's build was interrupted.
    """
    pyramid.rehearse(Budget.of(options.memory))
    zarr_format = pyramid.encoding.zarr_format
    group = target if isinstance(target, Group) else open_group(target, mode="a", zarr_format=zarr_format)
    record = _record(pyramid)
    name, is_done = _begin(pyramid, group, record, overwrite=overwrite, resume=resume)
    if is_done:
        return group
    pyramid.create(group, {MEMBER: {"build": name, "state": "building"}})
    journal = Journal(group.store, join_key(group.path, JOURNAL), name)
    _fill(pyramid, group, {layer.name: [None] for layer in pyramid.layers}, journal, options)
    held = group.attrs if pyramid.dataset.level else {**pyramid.dataset.attributes, **group.attrs}
    attributes = join_attributes(held, pyramid.documents[""]["attributes"])
    _finish(pyramid, group, {**record, "build": name}, attributes)
    journal.drop()
    return group.consolidate()


def update(
    pyramid: Pyramid,
    group: Group,
    former: Record,
    boxes: Mapping[str, Sequence[Box]],
    options: RunOptions,
    *,
    is_reshaped: bool,
) -> Group:
    """The pyramid's group, with what depends on the boxes made again.

    former       what it says of how it was made
    is_reshaped  whether levels have other lengths or tiles now

    Raises
        MetadataError: memory that holds no unit.
        StoreError: the store fails.
    """
    pyramid.rehearse(Budget.of(options.memory), group)
    record = _updated_record(pyramid, former)
    plain = {name: [[[s.start, s.stop] for s in box] for box in found] for name, found in boxes.items()}
    name = name_build([record, plain], former["build"])
    under_way = {"state": "updating", "pending": plain, **pyramid.grid.pending()}
    write_record(group, {**former, **under_way})
    mark_levels(group, pyramid.made, name, "updating")
    attributes: Mapping[str, Any] = dict(group.attrs)
    if is_reshaped:
        pyramid.resize(group)
        pyramid.create(group, {MEMBER: {"build": name, "state": "updating"}})
        attributes = join_attributes(attributes, pyramid.documents[""]["attributes"])
    _fill(pyramid, group, boxes, None, options)
    _finish(pyramid, group, {**record, "build": name}, attributes)
    return group.consolidate()


def _record(pyramid: Pyramid) -> Record:
    """What the pyramid will say of how it was made."""
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


def _updated_record(pyramid: Pyramid, former: Record) -> Record:
    """What the pyramid said of how it was made, of its source as it is now."""
    now, said = _record(pyramid), former["variables"]
    kept = {key: value for key, value in former.items() if key not in UNDER_WAY}
    if not pyramid.dataset.level:
        kept |= {"source": now["source"], "affine": now["affine"]}
    shapes = {name: {**said[name], "shape": entry["shape"]} for name, entry in now["variables"].items()}
    return {**kept, "variables": shapes}


def _begin(
    pyramid: Pyramid, group: Group, record: Record, *, overwrite: bool, resume: bool
) -> tuple[str, bool]:
    """(the build's name, whether it is done already); what is in its way is removed.

    The group says no word of a pyramid then, but of one being built.
    """
    former, taken = read_record(group), [name for name in pyramid.made if name in group]
    name, state = ("", None) if former is None else (str(former.get("build")), former.get("state"))
    if resume and former is not None:
        is_same = {key: value for key, value in former.items() if key not in ("build", "state")} == record
        if is_same and (state == "building" or (state is None and len(taken) == len(pyramid.made))):
            return name, state is None
        if state is not None:
            raise MetadataError(
                f"a build with other arguments was interrupted here, {former}; "
                f"expected {record}, or overwrite",
                path=place_of(group),
            )
    if taken and not overwrite:
        is_left = state == "building"
        what = "left of a build that was interrupted" if is_left else "there already"
        expected = "resume or overwrite" if is_left else "none, or overwrite"
        raise StoreError(f"levels {', '.join(taken)} are {what}; expected {expected}", path=place_of(group))
    _remove_levels(group, taken, pyramid.dataset.level)
    name = name_build(record, name)
    write_record(group, {**record, "build": name, "state": "building"})
    return name, False


def _remove_levels(group: Group, taken: Sequence[str], finest: str) -> None:
    """Remove those levels, and all others that the group lists but for `finest`."""
    gone = list(taken)
    layout = group.attrs.get("multiscales")
    if layout is not None:
        listed = layout.get("layout", ()) if isinstance(layout, dict) else ()
        former = {str(item["asset"]) for item in listed if isinstance(item, dict) and item.get("asset")}
        gone += [name for name in former - {*gone, finest} if name in group]
        del group.attrs["multiscales"]
    for name in gone:
        del group[name]


def _fill(pyramid: Pyramid, group: Group, boxes: Boxes, journal: Journal | None, options: RunOptions) -> None:
    """Make the cells that depend on the boxes."""
    budget, planned = Budget.of(options.memory), []
    for layer in pyramid.layers:
        arrays = pyramid.arrays(group, layer)
        planned += [(layer.name, pyramid.grid.steps(layer, arrays, budget, box)) for box in boxes[layer.name]]
    first = [steps[0].plan for _, steps in planned if steps]
    tick = counter(sum(plan.cell_count(unit) for plan in first for unit in plan.units()), options.progress)
    with Runner(options.executor, journal) as runner:
        for name, steps in planned:
            for number, step in enumerate(steps):
                run_step(runner, step, f"{name}-{number}", tick if number == 0 else None)


def _finish(pyramid: Pyramid, group: Group, record: Record, attributes: Mapping[str, Any]) -> None:
    """Say that all levels are of one build, then what the group is."""
    mark_levels(group, pyramid.made, record["build"], None)
    member = join_member(group.attrs.get(MEMBER), {"pyramid": record})
    group.attrs.put({**attributes, MEMBER: member})

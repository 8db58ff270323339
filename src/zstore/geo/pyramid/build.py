"""Pyramids, on the dataset's own grid or on tile matrices: built, and brought up to date."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, product
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np

from zstore.base.boxes import Box, Shape, hull, volume, whole
from zstore.base.once import once
from zstore.engine.documents import read_node, render_node
from zstore.engine.intents import find_unfinished, read_intent
from zstore.errors import (
    ChangedError,
    MetadataError,
    NotFoundError,
    SelectionError,
    StoreError,
    UnsupportedError,
    ZstoreError,
    is_loss,
)
from zstore.geo.conventions.base import Affine
from zstore.geo.pyramid.dataset import (
    MEMBER,
    Dataset,
    PlaceLike,
    Record,
    free_extras,
    join_attributes,
    join_member,
    mark_levels,
    name_build,
    node_within,
    open_dataset,
    place_of,
    read_record,
    real_place,
)
from zstore.geo.pyramid.levels import (
    CellOptions,
    Encoding,
    FactorGrid,
    Layer,
    PyramidPlan,
    factors_of,
    make_layer,
    name_resampling,
    pair_of,
    recorded_layer,
)
from zstore.geo.pyramid.passes import Budget, Step, run_step, store_shares
from zstore.geo.pyramid.tile_grid import TOLERANCE, TileGrid
from zstore.geo.resampling.methods import GRIDS
from zstore.geo.resampling.sample import AREAS, SAMPLINGS
from zstore.jobs.chunks import Location, StoredArray, source_of
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.jobs.plan import Estimate, expect_size, name_job
from zstore.jobs.record import BegunJob, begin, check_begun
from zstore.jobs.runner import counter
from zstore.jobs.source import Lost, Made, Marks, Source, Sources, Versions
from zstore.jobs.task import Task
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import open_group
from zstore.storage.base import Store, join_key, join_url
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store, with_storage_options

# One sequence of steps for every build and update

# A level's or an array's name that is no path.
PLAIN = re.compile(r"\w[\w.-]*")
# As many changed chunks of a source are boxes of their own.
MOST_BOXES = 16

# The boxes of the source that have changed, by the arrays' names; None: all is to be made.
Boxes: TypeAlias = Mapping[str, Sequence[Box | None]]


def open_target(
    target: Group | PlaceLike, zarr_format: ZarrFormat | None, own: ZarrFormat
) -> tuple[Group | PlaceLike, ZarrFormat]:
    """The target, opened if it exists, and its format: its own, the requested one, else the source's.

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


class _LayerSteps(NamedTuple):
    """The steps that make the cells of a layer that depend on one box, and their name in the journal."""

    layer: Layer
    label: str
    steps: list[Step]


class _PyramidJob(Task[Group]):
    """A job that makes cells of levels: all that depend on some boxes of the arrays they are made of.

    group   where the levels are
    before  the record of the pyramid that is there
    record  the record of how the pyramid is made, once the job has ended
    marks   of the chunks of the arrays, from before they are read, if the job keeps a fingerprint
    lost    the errors of arrays that cannot be read, by name
    """

    is_replacing = False

    def __init__(self, group: Group, before: Record | None, pyramid: PyramidPlan, record: Record, how: How):
        super().__init__(Location(group.store, group.path), how)
        self.group = group.as_durable() if how.durable else group
        self.there = Location(self.group.store, group.path)
        self.before, self.pyramid, self.record = before, pyramid, record
        self.marks = dict[str, Marks]()
        self.lost: Mapping[str, ZstoreError] = {}

    @abstractmethod
    def arrays(self) -> Mapping[str, Sequence[Array]]:
        """The arrays of the levels of every layer, the finest first."""

    @abstractmethod
    def boxes(self) -> Boxes:
        """The boxes on which the cells depend."""

    @once
    def steps(self) -> list[_LayerSteps]:
        """The steps that make the cells, those of masks first.

        Raises
            MetadataError: the caller's memory does not hold one unit.
        """
        budget, arrays, boxes = Budget.of(self.how.memory), self.arrays(), self.boxes()
        return [
            _LayerSteps(layer, f"{layer.name}-{place}", self.pyramid.steps(layer, arrays, budget, box))
            for layer in sorted(self.pyramid.layers, key=lambda layer: not layer.is_mask)
            for place, box in enumerate(boxes[layer.name])
        ]

    def estimate(self) -> Estimate:
        unit_count, read_size, write_size = 0, 0, 0
        for layer, _, steps in self.steps:
            item_size = layer.recipe.source.dtype.itemsize
            for number, step in enumerate(steps):
                units = [*step.plan.units()]
                written = (cells for unit in units for _, cells in step.plan.written(unit))
                unit_count += len(units)
                read_size += 0 if number else step.plan.total_count() * item_size
                write_size += sum(map(volume, written)) * item_size
        memory_size = Budget.of(self.how.memory).size
        return Estimate(
            unit_count=unit_count, read_size=read_size, write_size=write_size, memory_size=memory_size
        )

    def sources(self) -> Sources:
        """The arrays that are read, and the masks, by name.

        What is copied beside the levels is among them, and, where these are elsewhere, the coordinates that
        the affine comes from; beside the finest level the work itself writes those.

        Their versions are of the chunks, and of the documents without attributes: what these say of cells is
        in the pyramid's record, and the ends of builds and updates write them.
        """
        layers, dataset = self.pyramid.layers, self.pyramid.dataset
        arrays = {layer.name: layer.recipe.source for layer in layers}
        if self.keeps:
            listed = {name: array.listing(keeps_marks=True).marks for name, array in arrays.items()}
            self.marks = {name: marks for name, marks in listed.items() if marks is not None}
        beside = {**dataset.extras, **({} if dataset.level else dataset.places)}
        arrays |= {f"{name}, beside": source_of(array) for name, array in beside.items()}
        for layer in layers:
            if layer.recipe.mask is not None:
                arrays[f"{layer.name}, mask"] = layer.recipe.mask.array
        return Sources(
            lambda: {name: _version(array) for name, array in arrays.items()}, lambda name: arrays[name].url
        )

    def check_room(self) -> None:
        _ = self.steps  # memory that holds no unit is refused

    def has_ended(self, job: BegunJob) -> bool:
        has_ended = self.before is not None and self.before.get("build") == job.name
        if has_ended:
            self.group = self.group.consolidate()
        return has_ended

    def make(self, job: BegunJob) -> None:
        """Make the cells of all arrays that can be read.

        It is an error if a mask cannot be read, or if no array is left.
        """
        how, self.job = self.how, job
        self.lost = lost = Lost(layer.name for layer, _, _ in self.steps if not layer.is_mask)
        first = [steps[0].plan for _, _, steps in self.steps if steps]
        tick = counter(sum(plan.total_count() for plan in first) if how.progress else 0, how.progress)
        try:
            with job.runner(how.executor) as runner:
                for layer, label, steps in self.steps:
                    # What all others may be masked by is made before them.
                    sources = [] if layer.is_mask else [layer.recipe.source]
                    with lost.apart(layer.name, *sources), nullcontext() if layer.is_mask else runner.apart():
                        for number, step in enumerate(steps):
                            taken = tick if number == 0 else None
                            run_step(runner, step, f"{label}-{number}", taken, is_replacing=self.is_replacing)
        except OSError:
            # Whoever has taken the place over removes what is written there.
            job.check_held()
            raise
        finally:
            for layer, _, _ in self.steps:
                layer.recipe.source.close()

    def versions(self) -> Versions | None:
        paths = [f"{level}/{layer.name}" for level in self.pyramid.made for layer in self.pyramid.layers]
        return None if self.lost else self.there.versions(paths, has_attributes=False)

    def fingerprint(self, sources: Sources, versions: Versions) -> Made:
        return Made.of(_call(self.record), sources, versions, marks=self.marks)

    def is_current(self, made: Made, sources: Sources) -> bool:
        # An update may have been interrupted whose boxes were made of other cells.
        return self.former is None and made.is_current(sources)

    def result(self) -> Group:
        return self.group


class _Build(_PyramidJob):
    """The building of a pyramid, whose levels nobody sees until all their cells are there.

    To overwrite removes levels of a pyramid that was there, but for the finest where it is among them. To
    resume keeps what a build of the same pyramid has left.

    is_new  whether no group was there

    Raises
        StoreError: a level is there (unless `overwrite`), or the store fails.
        MetadataError: memory that holds no unit.
    """

    def __init__(self, pyramid: PyramidPlan, target: Group | PlaceLike, how: How) -> None:
        self.is_new, group = not isinstance(target, Group), target
        if not isinstance(group, Group):
            group = Group(open_store(group), "", GroupModel(pyramid.encoding.zarr_format))
        super().__init__(group, read_record(group), pyramid, _record(pyramid), how)
        self.work = "build_tile_pyramid" if "tile_matrix_set" in self.record else "build_pyramid"
        self.nodes = NewNodes(*self.there, group.zarr_format)
        self.drafted = pyramid.draft(self.nodes)
        if self.left is None:
            check_begun(*self.there, self.work)
            _check_apart(pyramid, group)
            if not (how.overwrite or (how.resume and self.former is not None)):
                self._check_free()

    def _check_free(self, act: Callable[[], object] = lambda: None) -> None:
        """Refuse levels that are there, after `act`."""
        if taken := [name for name in self.pyramid.made if name in self.group]:
            act()
            message = f"levels {', '.join(taken)} are there already; expected none, or overwrite"
            raise StoreError(message, path=place_of(self.group))

    def arrays(self) -> Mapping[str, Sequence[Array]]:
        return self.drafted

    def boxes(self) -> Boxes:
        return {layer.name: [None] for layer in self.pyramid.layers}

    def describe(self) -> Any:
        return self.record

    def call(self) -> Any:
        return _call(self.record)

    @once
    def left(self) -> Made | None:
        if not self.keeps or self.before is None or _call(self.before) != self.call():
            return None
        # A refresh is an update, which may have been interrupted.
        is_built = self.former is None or self.former.work == "update_pyramid"
        is_whole = is_built and all(name in self.group for name in self.pyramid.made)
        return Made.read(*self.there, self.call()) if is_whole else None

    def refreshed(self, made: Made, sources: Sources) -> Task[Group]:
        masked = (layer.recipe.mask.array for layer in self.pyramid.layers if layer.recipe.mask is not None)
        masks = [Array(one.store, one.path, one.model) for one in masked if isinstance(one, StoredArray)]
        record, left = _checked(self.group)
        dataset = _checked_source(self.group, record, self.pyramid.dataset)
        update = _Update(self.group, record, left, dataset, self.how, masks[0] if masks else None)
        update.marks = self.marks
        return update.refreshed(made, sources)

    def check_room(self) -> None:
        """Refuse a disk that is too full for the levels, as far as the first step of each layer tells."""

        def expect() -> float:
            store, budget = MemoryStore(), Budget.of(self.how.memory)
            arrays = self.pyramid.draft(NewNodes(store, "", self.group.zarr_format))
            steps = [self.pyramid.steps(layer, arrays, budget, None)[:1] for layer in self.pyramid.layers]
            expected = 0.0
            for step in chain.from_iterable(steps):
                try:
                    expected += expect_size(step.plan, store, step.is_blank, store_shares(step.plan))
                except ZstoreError as error:
                    # An array that cannot be read is left out when its levels are made.
                    if not is_loss(error):
                        raise
            return expected

        super().check_room()
        self.there.check_room(self.pyramid.size, expect, "levels")

    def begin(self, sources: Sources) -> BegunJob:
        how, name = self.how, name_build(self.record)
        where, replaces = (*self.there, self.work, self.record), how.overwrite and not how.resume
        return begin(*where, name=name, resume=how.resume, replace=replaces, is_ready=False, sources=sources)

    def make(self, job: BegunJob) -> None:
        # In a group that is there, makers are kept away from each level.
        held = ("",) if self.is_new else self.pyramid.made
        if job.is_resumed:
            job.hold(held)
        else:
            # A part of other work makes levels anew; else another call has just made those that are there.
            if not self.how.overwrite and (self.former is None or self.former.work == self.work):
                self._check_free(job.end)
            job.clear(lambda: self._clear(lambda: job.hold(held)))
        self.pyramid.draft_groups(self.group, self.nodes, job.name)
        if job.is_resumed:
            self.nodes.check_own()
        super().make(job)

    def _clear(self, hold: Callable[[], None]) -> None:
        """Remove the levels that are there and listed, and chunks that no document describes.

        Those are where levels are to be made, and where an interrupted build that is given up was to make
        some. The group says no word of a pyramid then.

        hold  keeps makers away once the levels are gone: what they make is not removed
        """
        group, made = self.group, self.pyramid.made
        taken = [name for name in made if name in group]
        if self.is_new:
            # A group that is there by now is another call's, and keeps its levels.
            hold()
        _remove_levels(group, taken, self.pyramid.dataset.level)
        if not self.is_new:
            hold()
        places = {f"{level}/{layer.name}" for level in made for layer in self.pyramid.layers}
        plan = self.former.plan if self.former is not None and isinstance(self.former.plan, dict) else {}
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

    def publish(self) -> None:
        group = self.group
        if self.lost:
            # Of layers that are left out, there are chunks but no documents.
            self.pyramid = self.pyramid.without(self.lost)
            self.record = _record(self.pyramid)
            for path in [path for path in self.nodes.models if path.rpartition("/")[2] in self.lost]:
                del self.nodes.models[path]
                group.store.delete_prefix(join_key(group.path, path))
        self.nodes.publish()
        self.pyramid.settle(group, self.nodes)
        dataset = self.pyramid.dataset
        own = group.attrs if dataset.level else {**dataset.attributes, **group.attrs}
        attributes = join_attributes(own, self.pyramid.documents[""]["attributes"])
        self.group = _finish(group, {**self.record, "build": self.job.name}, attributes, is_new=self.is_new)


class _Update(_PyramidJob):
    """The bringing up to date of all cells that depend on boxes of the arrays that have changed.

    Each chunk of the levels is the old one or the new one meanwhile; levels grow when their new cells are
    there. To resume goes on by the journal of an update of the same boxes that was interrupted; of others,
    all that was to be made is made again. Where an array cannot be read, the chunks of all others are made,
    and the update stays unfinished: levels share their coordinates, so that they grow together.

    unfinished     the work of an interrupted update
    region, names  the arguments `region` and `arrays` of `update_pyramid`
    changed        boxes that have changed, by the arrays' names, in the place of a region; None: not known
    is_beside      whether a mask, or what is beside the levels, has changed

    Raises
        MetadataError: memory that holds no unit.
        ChangedError: an array that is read was written to meanwhile; with `resume`, since the update began.
        StoreError: the store fails, or other work is unfinished there.
        The error of an array that cannot be read.
    """

    work = "update_pyramid"
    changed: Mapping[str, Sequence[Box]] | None = None
    is_beside = False

    def __init__(
        self,
        group: Group,
        before: Record,
        unfinished: _Left,
        dataset: Dataset,
        how: How,
        mask: Array | str | None = None,
        region: Region = None,
        names: Sequence[str] | None = None,
    ) -> None:
        plan = _plan_on_tiles if "tile_matrix_set" in before else _plan_on_factors
        variables = _with_masks(group, before, dataset, mask)
        pyramid = plan(group, {**before, "variables": variables}, dataset, unfinished.grids)
        super().__init__(group, before, pyramid, _updated_record(pyramid, before), how)
        self.was, self.unfinished, self.region, self.names = before, unfinished, region, names
        self.is_replacing = not self.there.store.durable
        dims = {name for layer in pyramid.layers for name in layer.variable.dimensions}
        if isinstance(region, Mapping) and not set(region) <= dims:
            unknown, expected = (", ".join(sorted(map(str, names))) for names in (set(region) - dims, dims))
            raise SelectionError(f"region names {unknown}; the dimensions are {expected}", path=dataset.place)

    @property
    def keeps(self) -> bool:
        return super().keeps and self.region is None and self.names is None

    @property
    def has_new_shapes(self) -> bool:
        """Whether arrays have other shapes than when the pyramid was built."""
        return any(_former_shape(self.was, a.name) != a.recipe.source.shape for a in self.pyramid.layers)

    @property
    def is_reshaped(self) -> bool:
        """Whether levels have other lengths, tiles or coordinates now."""
        if self.has_new_shapes or self.pyramid.grid.has_moved or self.is_beside:
            return True
        pairs = ((one.recipe.source.shape, self.unfinished.former_shapes(one)) for one in self.pyramid.layers)
        return any(shape != former for shape, shapes in pairs for former in shapes)

    @property
    def unread(self) -> Collection[str]:
        """The arrays to be brought up to date that cannot be read."""
        is_asked = self.names is None or self.is_reshaped
        return self.pyramid.dataset.unreadable & self.was["variables"].keys() if is_asked else ()

    def arrays(self) -> Mapping[str, Sequence[Array]]:
        return self.pyramid.held(self.group)

    def boxes(self) -> dict[str, list[Box]]:
        pyramid, left = self.pyramid, self.unfinished
        is_all = self.is_beside or not (self.has_new_shapes or (self.how.resume and any(left.boxes.values())))
        boxes = {}
        for layer in pyramid.layers:
            asked: Sequence[Box] = ()
            if self.changed is not None:
                asked = self.changed[layer.name]
            elif self.names is None or layer.name in self.names:
                asked = _asked_boxes(self.region, layer, pyramid.dataset.place, is_all=is_all)
            boxes[layer.name] = _changed_boxes(layer, self.was, left, asked, is_all=pyramid.grid.has_moved)
        return boxes

    def describe(self) -> Any:
        boxes = self.boxes().items()
        plain = {name: [[[s.start, s.stop] for s in box] for box in asked] for name, asked in boxes}
        plain |= {name: [[[0, n] for n in _former_shape(self.was, name)]] for name in self.unread}
        shapes = {layer.name: list(layer.recipe.source.shape) for layer in self.pyramid.layers}
        return {"pending": plain, "shapes": shapes, **self.pyramid.grid.pending()}

    def call(self) -> Any:
        return _call(self.was)

    def refreshed(self, made: Made, sources: Sources) -> Task[Group]:
        layers = self.pyramid.layers
        if {layer.name for layer in layers}.issuperset(made.changed_sources(sources)):
            self.changed = {layer.name: _changed_chunks(made, self.marks, layer) for layer in layers}
        else:
            # A mask, or what is beside the levels: whatever depends on that is made again.
            self.is_beside = True
        return self

    def begin(self, sources: Sources) -> BegunJob:
        former, addresses = self.former, [sources.place(name) for name in sources.versions]
        pending = {**self.describe(), "source": name_job(addresses)}
        goes_on = self.how.resume and former is not None and former.plan == pending
        if goes_on and self.keeps and former is not None and former.name == self.was["build"]:
            # It was interrupted when all was said; unless the fingerprint says so, all is made again.
            goes_on = self.left is not None and self.left.is_current(sources)
        name = name_build([self.record, pending["pending"]], self.was["build"])

        def start(*, goes_on: bool) -> BegunJob:
            where = (*self.there, self.work, pending)
            begun = begin(*where, name=name, resume=goes_on, replace=not goes_on, sources=sources)
            begun.watch(sources)
            return begun

        try:
            return start(goes_on=goes_on)
        except ChangedError:
            # A refresh makes again whatever has changed by now.
            if not (goes_on and self.keeps):
                raise
            return start(goes_on=False)

    def make(self, job: BegunJob) -> None:
        mark_levels(self.group, self.pyramid.made, job.name, "updating")
        if self.is_reshaped:
            self.pyramid.shrink(self.group)
        super().make(job)

    def publish(self) -> None:
        pyramid, group = self.pyramid, self.group
        for error in self.lost.values():
            raise error
        if self.unread:
            names = ", ".join(sorted(self.unread))
            expected = "all others are up to date, and the update is unfinished until these are"
            raise MetadataError(f"arrays {names} cannot be read; {expected}", path=pyramid.dataset.place)
        attributes: Mapping[str, Any] = dict(group.attrs)
        if self.is_reshaped:
            pyramid.replace_beside(group)
            pyramid.settle(group, NewNodes(*self.there, group.zarr_format))
            attributes = join_attributes(group.attrs, pyramid.documents[""]["attributes"])
        mark_levels(group, pyramid.made, self.job.name, None)
        self.group = _finish(group, {**self.record, "build": self.job.name}, attributes, is_new=False)
        if not self.keeps and (made := Made.read(*self.there, self.call())) is not None:
            # Where other boxes were made, what has changed since the last time may still be more.
            self.job.keep(replace(made, target=self.versions() or {}))


def _check_apart(pyramid: PyramidPlan, group: Group) -> None:
    """Refuse levels that would replace an array that is read, or lie inside it.

    Raises
        StoreError: a level and such an array are not apart.
    """
    recipes = [layer.recipe for layer in pyramid.layers]
    read = [*(one.source for one in recipes), *(one.mask.array for one in recipes if one.mask is not None)]
    for array in read:
        if not isinstance(array, StoredArray):
            for name in pyramid.made:
                array.check_apart(group.store, join_key(group.path, name), "pyramid")
            continue
        here = real_place(join_url(place_of(array.store), array.path))
        for name in pyramid.made:
            level = real_place(f"{place_of(group)}/{name}")
            if f"{here}/".startswith(f"{level}/") or f"{level}/".startswith(f"{here}/"):
                raise StoreError(
                    f"level {name!r} and the array {here!r}, which is read, are not apart; "
                    "expected a target elsewhere",
                    path=place_of(group),
                )


def _record(pyramid: PyramidPlan) -> Record:
    """The record for the pyramid of how it was made."""
    grid, affine = pyramid.grid, pyramid.dataset.geo.affine
    return {
        "source": pyramid.dataset.place,
        "finest": None if grid.is_absent else grid.names[0],
        "levels": list(grid.names[1:]),
        "copied": grid.is_copied,
        "factors": list(grid.factors),
        **({"other_factors": dict(grid.others)} if grid.others else {}),
        "grid": grid.kind,
        "profile": pyramid.profile,
        "resampling": pyramid.geo.resampling,
        "affine": None if affine is None else list(affine),
        "variables": {layer.name: layer.describe() for layer in pyramid.layers},
        **grid.record(),
    }


def _version(array: Source) -> str:
    if not isinstance(array, StoredArray):
        return array.version() or "?"
    model = read_node(array.store, array.path, array.model.zarr_format)
    if not isinstance(model, ArrayModel):
        return ""
    chunks = StoredArray(array.store, array.path, model).listing(has_documents=False)
    return f"{name_job(render_node(model.with_attributes({})))} {chunks.version or '?'}"


def _call(record: Record) -> Any:
    """The source and the options that tell a pyramid from others, whatever its shape and levels."""
    names = ("source", "copied", "grid", "tile_matrix_set", "profile", "resampling")
    ways = {
        name: {key: value for key, value in entry.items() if key != "shape"}
        for name, entry in record["variables"].items()
    }
    return {"work": "build_pyramid", **{name: record.get(name) for name in names}, "variables": ways}


def _changed_chunks(made: Made, marks: Mapping[str, Marks], layer: Layer) -> list[Box]:
    """The boxes of the chunks of a layer's source that have changed since the levels were made."""
    array = layer.recipe.source
    changed = made.changed(layer.name, marks.get(layer.name))
    if changed is None:
        return [whole(array.shape)]
    return _few([array.box(tuple(cell)) for cell in np.argwhere(changed).tolist()])


def _few(boxes: Sequence[Box]) -> list[Box]:
    """The boxes, or one around them where there are more than `MOST_BOXES`."""
    return [*boxes] if len(boxes) <= MOST_BOXES else [hull(boxes)]


def _updated_record(pyramid: PyramidPlan, former: Record) -> Record:
    """The former record with the present shapes, position and affine of its source."""
    now, variables = _record(pyramid), former["variables"]
    kept = {key: value for key, value in former.items() if key != "build"}
    if not pyramid.dataset.level:
        kept |= {"source": now["source"], "affine": now["affine"]}
    shapes = {name: {**variables[name], "shape": entry["shape"]} for name, entry in now["variables"].items()}
    return {**kept, "variables": {**variables, **shapes}}


def _remove_levels(group: Group, taken: Sequence[str], finest: str) -> None:
    """Remove these levels, and all but `finest` that the group lists, and their entries in its documents."""
    gone, layout = list(taken), group.attrs.get("multiscales")
    if layout is not None:
        listed = layout.get("layout", ()) if isinstance(layout, dict) else ()
        former = {str(item["asset"]) for item in listed if isinstance(item, dict) and item.get("asset")}
        gone += [name for name in former - {*gone, finest} if name in group]
    held = group.attrs.asdict()
    if held.pop("multiscales", None) is not None or read_record(group) is not None:
        own = held.pop(MEMBER, None)
        others = {k: v for k, v in own.items() if k != "pyramid"} if isinstance(own, Mapping) else {}
        group.attrs.put({**held, **({MEMBER: others} if others else {})})
    for name in gone:
        del group[name]


def _finish(group: Group, record: Record, attributes: Mapping[str, Any], *, is_new: bool) -> Group:
    """Write the group's own document, once its levels exist."""
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


# Building

Lengths: TypeAlias = int | Sequence[int]

# Methods that pick a cell's value: sampling must not mix such values.
UNMIXED = frozenset(("nearest", "mode", "max", "min", "med", "q1", "q3"))


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def build_pyramid(
    source: Array | Group | Source | PlaceLike,
    target: Group | PlaceLike | None = None,
    *,
    levels: int | None = None,
    method: str | Mapping[str, str] = "average",
    nodata: Any = "auto",
    mask: str | Array | Mapping[str, str | Array] | None = "auto",
    factors: Lengths | Mapping[str, int] = 2,
    chunks: Lengths | None = None,
    shards: Lengths | str | None = "auto",
    compressors: Any = "auto",
    zarr_format: ZarrFormat | None = None,
    derive: str = "auto",
    grid: str = "aligned",
    copy_base: bool | None = None,
    profile: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Group:
    """The group at `target`, with the levels of `source` as groups: "0" as it is, "1", "2", ... coarser.

    `source` is an array, a group of arrays on one grid, or a pyramid, whose finest level counts. Where it is
    a level of `target`, or there is no `target`, the levels are made beside it. A single array gives the
    coarser levels only, unless `copy_base`. It may be a file that opens as one of these (a raster, NetCDF,
    HDF5), or any `Source` of `zstore.plugin.jobs`, whose `name`, `dimension_names` and `attributes` say what
    an array's do.

    levels       how many coarser ones; None: until one tile holds the coarsest
    method       any that `downsample` takes; or by the arrays' names, "" for all others. "average" means
                 "mode" for classes: flags (`flag_values`, `flag_masks`, `flag_meanings`), bool, what has a
                 colour table or categories; "circular", the mean of unit vectors, for directions and phases
                 (angles along a whole circle by standard name or `valid_range`); and "max" for a mask
    nodata       "auto": what the arrays say; a value; a list of several, of which levels have the first; None
                 for "there is none" (but NaN); or any of these by name
    mask         an array whose cells are 0 where the data is not valid, or its name in the source; or either
                 by the arrays' names. What it leaves out counts as nodata. "auto": the mask or the alpha that
                 the data came with; None: none
    chunks       tiles, one length or (y, x); None: the source's where they are 64 to 2048 long, else 512
    factors      how many cells of a level make one of the next; one number or (y, x); more of them are for
                 the last dimensions, as (z, y, x); or by the names of dimensions. Times and bands stay
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
    profile      which of `zstore.geo.conventions.write.PROFILES` the geography is written for
    storage_options  how to reach buckets and web servers that are named by URL

    The source is read once, and all levels are made of that: reading, resampling and writing go on side by
    side. Every chunk or shard is written once and whole. (Where windows overlap, neighbouring units read
    some cells twice; `derive="base"` reads what windows reach, however large.) Packed values stay packed, and
    coordinates come from the affine. Documents are written last, so that nobody sees levels before they are
    whole; what was interrupted is named by `zstore info`, `validate` and `verify`.

    Raises
        MetadataError: arguments or geography that contradict each other.
        StoreError: a level is there already, or unfinished work (unless `overwrite`, or `resume` of it).
        ChangedError: the source was written to since the work began; no document was written.
        UnsupportedError: the method does not take the data type, or the format has no such layout.
        UnknownExtensionError: nobody offers the method.
    """
    how = How(**words)
    dataset = _open(source)
    if target is None and dataset.root is not None and not isinstance(source, Array | Group | Source):
        target = source if isinstance(source, Store) else place_of(dataset.root)
    root, level, overall = _choose_target(dataset, target, zarr_format)
    dataset = replace(dataset, level=level)
    if grid not in GRIDS:
        raise MetadataError(f"grid is {grid!r}; expected {', '.join(map(repr, GRIDS))}")
    steps, others = factors_of(dataset, factors)
    options = CellOptions(method, nodata, derive, mask)
    layers = [make_layer(dataset, name, options, steps, grid, others) for name in dataset.geo.variables]
    levels_grid = FactorGrid.choose(
        dataset.geo.shape,
        layers[0].tile_of(layers[0].array),
        factors=steps,
        others=others,
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
    return _Build(pyramid, root, how).carry_out()


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def build_tile_pyramid(
    source: Array | Group | Source | PlaceLike,
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
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Group:
    """The group at `target`, with `source` on the grids of a tile matrix set: one group for each zoom level.

    Levels are named as the set's tile matrices, and each array spans all of its matrix: the chunk (of a
    sharded array the inner chunk) at (row, column) is the tile at (row, column). Only tiles that the data
    show in are stored. The finest level is sampled from the source, the others are made of the finest as
    `build_pyramid` makes them.

    tile_matrix_set  one of `list_tile_matrix_sets`, with square cells that grow by one whole factor
    min_zoom         the coarsest tile matrix; None: the finest whose one tile holds all, else the set's first
    max_zoom         the finest; None: the one whose cells are nearest in size to the source's
    sampling         how cells of the finest level come about: "nearest", "bilinear", "cubic", "average",
                     "mode"; "auto": nearest for classes and where `method` picks a cell, cubic for cubic,
                     else bilinear. Or by the arrays' names
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
        ChangedError: the source was written to since the work began; no document was written.
    """
    how = How(**words)
    dataset = _open(source)
    sources = (dataset.place, *(() if dataset.root is None else (place_of(dataset.root),)))
    if real_place(place_of(target)) in map(real_place, sources):
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
    return _Build(pyramid, root, how).carry_out()


def _choose_target(
    dataset: Dataset, target: Group | PlaceLike | None, zarr_format: ZarrFormat | None
) -> tuple[Group | PlaceLike, str, ZarrFormat]:
    """(the group for the levels, the dataset's own name if it is one of them, the format)."""
    if target is None:
        if dataset.root is None:
            raise MetadataError("source is no level of a pyramid; expected a target", path=dataset.place)
        target = dataset.root
    place, source = real_place(place_of(target)), real_place(dataset.place)
    if place == source:
        raise MetadataError("source and target are one; expected another target", path=place_of(target))
    is_root = dataset.root is not None and place == real_place(place_of(dataset.root))
    level = dataset.level if is_root else ""
    if not level and dataset.is_group and place == source.rpartition("/")[0]:
        level = dataset.place.rpartition("/")[2]
    opened, overall = open_target(target, zarr_format, _own_format(dataset))
    return opened, level, overall


def _open(source: Array | Group | Source | PlaceLike) -> Dataset:
    dataset = open_dataset(source)
    if not dataset.arrays:
        raise MetadataError("there are no arrays of data to make levels of", path=dataset.place)
    return dataset


def _own_format(dataset: Dataset) -> ZarrFormat:
    return next(iter(dataset.arrays.values())).zarr_format


def _nodata(dataset: Dataset, choice: Any) -> dict[str, Any]:
    """The nodata of each array, by name."""
    chosen = {}
    for name, variable in dataset.geo.variables.items():
        value = choice.get(name, "auto") if isinstance(choice, Mapping) else choice
        if isinstance(value, str) and value == "auto":
            value = [variable.nodata, *variable.other_nodata] if variable.other_nodata else variable.nodata
        if value is None and dataset.arrays[name].dtype.kind == "f":
            value = np.nan
        chosen[name] = value
    return chosen


def _check_empty(layers: Sequence[Layer], place: str) -> None:
    """Check that every layer, or its mask, can mark cells outside the data."""
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
    if layer.is_mask and chosen == "auto" and isinstance(wanted, Mapping) and {*AREAS} & {*wanted.values()}:
        # A mask shows where what it masks does: that reaches further.
        chosen = "average"
    elif chosen == "auto" and (method in UNMIXED or layer.recipe.circle is not None):
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


# Updating

Region: TypeAlias = Mapping[str, Any] | Sequence[Any] | None


@long_call(overwrite="it changes the levels that are there", if_exists="it changes the levels that are there")
@with_storage_options
def update_pyramid(
    pyramid: Group | PlaceLike,
    region: Region = None,
    *,
    arrays: Sequence[str] | None = None,
    source: Array | Group | Source | PlaceLike | None = None,
    mask: Array | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Group:
    """The pyramid that `build_pyramid` or `build_tile_pyramid` made, after its data have changed or grown.

    Only the chunks that depend on the region are made again, at every level, and come out as if all had been
    built anew. Levels grow and shrink with the finest, coordinates and all. Levels on a tile matrix set are
    made of its source, in whose cells the region is; where that has another extent now, all tiles are made
    again, on the same tile matrices.

    region   what has changed, by dimension: {"time": 7, "y": slice(0, 512)}, whole where nothing is said; or
             a slice per dimension. None: what the arrays have grown by; all, where they have not
    arrays   the names of those that have changed; None: all
    source   what the pyramid was built of, if that is not in its store; a copy of the finest level in the
             pyramid is brought up to date too
    mask     the array, or its address, that was the mask, if that is neither in the pyramid's store nor in
             the source's
    durable, memory, executor, progress, storage_options   as for `build_pyramid`

    Levels stay readable meanwhile: each chunk is the old one or the new one, and levels grow when their new
    cells are there. Until it ends, the levels' attribute `zstore` has a `state`, and `zstore info`,
    `validate` and `verify` name it. An update that was interrupted is made up for by the next one, whatever
    its region: it makes again all that the two were to make, or with `resume` only what was not made yet.

    Raises
        ChangedError: an array that the levels are made of was written to meanwhile; with `resume`, since the
            update began.
        MetadataError: nothing says how the pyramid was built, or an array is missing; or it was built of what
            lies outside its store, and `source` or `mask` does not name that.
        SelectionError: the region does not fit the arrays.
        StoreError: other work is unfinished there, such as the building of the pyramid.
    """
    group = pyramid if isinstance(pyramid, Group) else open_group(pyramid, mode="r+")
    record, left = _checked(group)
    dataset = _find_source(group, record, source, arrays)
    return _Update(group, record, left, dataset, How(**words), mask, region, arrays).carry_out()


def update_levels(group: Group, boxes: Mapping[str, Sequence[Box]], how: How) -> None:
    """Bring a pyramid up to date with the boxes of its own finest level that a job there has made again.

    boxes  by the arrays' names; those that an interrupted job has made again are among them

    Raises
        MetadataError: nothing says how the pyramid was built.
        ChangedError, StoreError: as `_Update`.
    """
    record = _recorded(group)
    dataset = _find_source(group, record, None, [*record["variables"]])
    update = _Update(group, record, _Left({}, ()), dataset, replace(how, resume=False))
    # Coordinates beside the levels may have changed where shapes have not.
    update.is_beside, update.changed = True, {name: _few(some) for name, some in boxes.items()}
    update.carry_out()


class _Left(NamedTuple):
    """The unfinished work of an interrupted update.

    boxes   that were to be made, by the arrays' names
    grids   of the source
    shapes  of the arrays then, by their names; None where no update was interrupted
    """

    boxes: Mapping[str, Sequence[Any]]
    grids: Sequence[Sequence[float]]
    shapes: Mapping[str, Sequence[int]] | None = None

    def former_shapes(self, layer: Layer) -> list[Shape]:
        """The shape that a layer's source had in the interrupted update, if there is one.

        It is empty where that is not known: then all has grown.
        """
        shape = layer.recipe.source.shape
        former = () if self.shapes is None else tuple(self.shapes.get(layer.name, ()))
        return [] if self.shapes is None else [former if len(former) == len(shape) else (0,) * len(shape)]


def _recorded(group: Group) -> Record:
    record = read_record(group)
    if record is None:
        raise MetadataError(
            "nothing says how this pyramid was built; expected one that build_pyramid made",
            path=place_of(group),
        )
    return record


def _checked(group: Group) -> tuple[Record, _Left]:
    job = read_intent(group.store, group.path)
    if job is not None and job.work != "update_pyramid":
        [unfinished, *_] = find_unfinished(group.store, group.path)
        raise StoreError(f"the pyramid cannot be updated: {unfinished}", path=place_of(group))
    record = _recorded(group)
    if job is None:
        return record, _Left({}, ())
    plan = job.plan if isinstance(job.plan, dict) else {}
    left = _Left(plan.get("pending", {}), plan.get("grids", ()), plan.get("shapes", {}))
    if _is_sound(left):
        return record, left
    raise MetadataError(
        f"an update was interrupted here, and what it was to make cannot be read: {job.plan!r}; "
        "expected a new build, with overwrite",
        path=place_of(group),
    )


def _is_sound(left: _Left) -> bool:
    """Whether the unfinished work consists of lists of numbers, as an update writes it."""
    boxes, grids, shapes = left
    if not isinstance(boxes, dict) or not isinstance(grids, list | tuple) or not isinstance(shapes, dict):
        return False
    sides = [side for found in boxes.values() for box in (found if isinstance(found, list) else [None])
             for side in (box if isinstance(box, list) else [None])]  # fmt: skip
    is_grids = all(
        isinstance(grid, list) and len(grid) == 8 and all(type(n) in (int, float) for n in grid)
        for grid in grids
    )
    lists = [*sides, *shapes.values()]
    is_counts = all(isinstance(n, list) and all(type(i) is int and i >= 0 for i in n) for n in lists)
    return is_grids and is_counts and all(isinstance(side, list) and len(side) == 2 for side in sides)


def _find_source(
    group: Group,
    record: Record,
    source: Array | Group | Source | PlaceLike | None,
    arrays: Sequence[str] | None,
) -> Dataset:
    """The dataset from which the levels are made now.

    Raises
        MetadataError: an array that is named, or that the pyramid was built of, is not there, or is another.
    """
    finest = record["finest"]
    if source is None and finest is not None and "tile_matrix_set" not in record:
        # Coordinates that have not grown with their arrays are made again.
        opened = open_dataset(group[finest], expected=("MS-11",))
        dataset = replace(opened, root=group, level=finest)
    else:
        opened = open_dataset(_recorded_node(group, record["source"], "source") if source is None else source)
        dataset = replace(opened, root=None, level="")
    return _checked_source(group, record, dataset, arrays or ())


def _checked_source(group: Group, record: Record, dataset: Dataset, arrays: Sequence[str] = ()) -> Dataset:
    """The dataset, with the arrays that the pyramid was built of, as far as they can be read.

    Raises
        MetadataError: an array that is named, or that the pyramid was built of, is not there, or is another.
    """
    finest, entries = record["finest"], record["variables"]
    left = dataset.unreadable.difference(arrays)
    entries = {name: entry for name, entry in entries.items() if name not in left} or entries
    missing = [name for name in {*entries, *arrays} if name not in dataset.arrays or name not in entries]
    if missing:
        raise MetadataError(
            f"arrays {', '.join(sorted(missing))} are not both in the finest level and in the pyramid; "
            f"it was built of {', '.join(entries)}",
            path=dataset.place,
        )
    for level, name in product([*record["levels"], finest][:1], entries):
        array, held = dataset.arrays[name], None if level is None else group.get(f"{level}/{name}")
        kinds = [(one.ndim, one.dtype.newbyteorder("=")) for one in (array, held) if isinstance(one, Array)]
        if kinds[0] != kinds[-1]:
            raise MetadataError(
                f"array {name!r} has {kinds[0][0]} dimensions and the data type {kinds[0][1]}; expected "
                f"{kinds[1][0]} and {kinds[1][1]}, as the levels have, or a new build",
                path=dataset.place,
            )
    variables = {name: dataset.geo.variables[name] for name in entries}
    return replace(dataset, geo=replace(dataset.geo, variables=variables))


def _recorded_node(group: Group, address: Any, argument: str, *others: Store) -> Array | Group:
    """The node at an address in the record, if that lies in the pyramid's store or in another.

    Raises
        MetadataError: it lies elsewhere, and nobody but the record says that it is to be read.
    """
    for store in (group.store, *others):
        node = node_within(store, str(address))
        if node is not None:
            return node
    raise MetadataError(
        f"the pyramid was built of {address!r}, which is not in its store; expected {argument}= to name it",
        path=place_of(group),
    )


def _with_masks(
    group: Group, record: Record, dataset: Dataset, mask: Array | str | None
) -> dict[str, dict[str, Any]]:
    """The record's entries of the dataset's arrays, with the masks outside of the dataset opened."""
    entries = {}
    for name in dataset.geo.variables:
        entry = record["variables"][name]
        address = entry.get("mask")
        if isinstance(address, str) and "://" in address:
            own = dataset.arrays[name].store
            node = _recorded_node(group, address, "mask", own) if mask is None else mask
            entry = {**entry, "mask": node}
        entries[name] = entry
    return entries


def _plan_on_factors(group: Group, record: Record, dataset: Dataset, _: Any) -> PyramidPlan:
    dataset, (y, x), entries = _placed(dataset, record), record["factors"], record["variables"].items()
    others = record.get("other_factors", {})
    layers = [recorded_layer(dataset, name, entry, (y, x), record["grid"], others) for name, entry in entries]
    tile, own, first = (1, 1), None, layers[0]
    if record["levels"]:
        level = group[f"{record['levels'][0]}/{first.name}"]
        assert isinstance(level, Array)
        tile = first.tile_of(level)
    if dataset.level:
        own = first.tile_of(first.array)
    grid = FactorGrid(
        names=[record["finest"] or "0", *record["levels"]],
        factors=(y, x),
        others=others,
        tile=tile,
        kind=record["grid"],
        is_copied=record["copied"] and not dataset.level,
        is_absent=record["finest"] is None,
        own_tile=own,
    )
    encoding = Encoding("auto", "auto", group.zarr_format)
    return PyramidPlan.make(dataset, grid, layers, encoding, record["profile"], record["resampling"])


def _placed(dataset: Dataset, record: Record) -> Dataset:
    """The dataset, with the affine of the record if its coordinates have not grown with it."""
    geo, extras = dataset.geo, dict(dataset.extras)
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


def _plan_on_tiles(
    group: Group, record: Record, dataset: Dataset, left: Sequence[Sequence[float]]
) -> PyramidPlan:
    dataset, entries = replace(dataset, extras=free_extras(dataset)), record["variables"]
    levels, length = [record["finest"], *record["levels"]], record["tile"][0]
    grid = TileGrid.choose(
        dataset, record["tile_matrix_set"], length, record["tolerance"], levels[-1], levels[0]
    )
    # Where else the source lay, at the last build or in an update that was interrupted.
    name = next(iter(entries))
    former = [_former_shape(record, name)[axis] for axis in dataset.axes(name)]
    places = [[*record["affine"], *former]] if record["affine"] is not None else []
    grid = grid.after([*places, *left])
    layers = [recorded_layer(dataset, name, entry, grid.factors) for name, entry in entries.items()]
    encoding = Encoding(None, "auto", group.zarr_format)
    return PyramidPlan.make(dataset, grid, layers, encoding, record["profile"], record["resampling"])


# What has changed


def _former_shape(record: Record, name: str) -> Shape:
    """The shape of an array when the pyramid was built."""
    return tuple(record["variables"][name]["shape"])


def _changed_boxes(
    layer: Layer, record: Record, left: _Left, asked: Sequence[Box], *, is_all: bool
) -> list[Box]:
    """The changed boxes of a layer's source: the requested ones, its growth, and those left undone.

    What an interrupted update made was of the shape then, which may be another than before and than now.
    """
    recipe, shape = layer.recipe, layer.recipe.source.shape
    grown = [
        (axis, slice(min(old, max(new - 1, 0)), new))
        for former in (_former_shape(record, layer.name), *left.former_shapes(layer))
        for axis, (old, new) in enumerate(zip(former, shape, strict=True))
        if old != new
    ]
    # A grid that is not aligned is stretched anew where it grows.
    is_stretched = recipe.grid != "aligned" and any(recipe.factors[axis] > 1 for axis, _ in grown)
    if is_all or is_stretched:
        return [whole(shape)]
    pending = [box for box in left.boxes.get(layer.name, ()) if len(box) == len(shape)]
    changed = [
        *(tuple(side if i == axis else s for i, s in enumerate(whole(shape))) for axis, side in grown),
        *(tuple(slice(min(a, n), min(b, n)) for (a, b), n in zip(p, shape, strict=True)) for p in pending),
        *asked,
    ]
    return [box for number, box in enumerate(changed) if volume(box) and box not in changed[:number]]


def _asked_boxes(region: Region, layer: Layer, place: str, *, is_all: bool) -> list[Box]:
    """The boxes of one array that a region means; [] if it names none of the array's dimensions.

    is_all  whether no region means everything; else nothing
    """
    shape, names = layer.recipe.source.shape, layer.variable.dimensions
    if region is None:
        return [whole(shape)] if is_all else []
    if isinstance(region, Mapping):
        if not set(region) & set(names):
            return []
        sides = [region.get(name, slice(None)) for name in names]
    else:
        sides = list(region)
    if len(sides) != len(shape):
        raise SelectionError(
            f"region has {len(sides)} slices; expected {len(shape)}, for {names}", path=place
        )
    return [tuple(_side(side, size, name) for side, size, name in zip(sides, shape, names, strict=True))]


def _side(side: Any, size: int, name: str) -> slice:
    if isinstance(side, int) and not isinstance(side, bool):
        index = side + size if side < 0 else side
        if 0 <= index < size:
            return slice(index, index + 1)
    elif isinstance(side, slice) and side.step in (None, 1):
        begin, end, _ = side.indices(size)
        return slice(begin, max(begin, end))
    raise SelectionError(f"region has {side!r} for {name!r}; expected an index or a slice in {size} cells")

"""Reductions into new nodes: an array, or a group of arrays with their coordinates and other members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any, Protocol

from zstore.base.boxes import cut, whole
from zstore.base.once import once
from zstore.engine.documents import Model
from zstore.jobs.chunks import Location, StoredArray, source_of
from zstore.jobs.how import How
from zstore.jobs.plan import Estimate, expect_size, name_job
from zstore.jobs.record import BegunJob
from zstore.jobs.reduction.methods import Items
from zstore.jobs.reduction.plan import Patch
from zstore.jobs.reduction.run import Patches, Reduction, most_units, run_reduction
from zstore.jobs.source import Lost, Sources, Versions
from zstore.jobs.task import Task
from zstore.nodes import above as higher
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import open as open_node
from zstore.storage.memory import MemoryStore

# What a reduction's description says of the source's shape and documents, which may change.
OF_SHAPES = ("version", "shape", "units")


class Outline(Protocol):
    """A group whose arrays are reduced, with its other members and the coordinates of the result.

    url         of the group
    attributes  of the new group
    arrays      that are reduced, by name
    kept        arrays that stay as they are, by name
    new         coordinates of the result by name: what `create_array` takes
    """

    url: str
    attributes: Mapping[str, Any]
    arrays: dict[str, Array]
    kept: Mapping[str, Array]
    new: Mapping[str, Mapping[str, Any]]

    def axes(self, name: str) -> Sequence[int]:
        """The dimensions of an array that are reduced; of labels, the labelled one first."""

    def labels(self, name: str) -> Items | None:
        """The group of every item along the reduced dimensions of an array; masked ones have none."""

    def weights(self, name: str) -> Items | None:
        """The weights of an array's items, with all of its dimensions, or of length 1."""

    def attributes_of(self, name: str, *, is_kept: bool, **facts: Any) -> Mapping[str, Any]:
        """The attributes of an array that is kept, or of a result, by the arguments of `Carried.reduced`."""


class StoredReduction(Task["Array | Group"]):
    """Reductions of arrays into new ones, whose documents are written last.

    planned  the plans by the paths of the results: "" is a single array
    arrays   that are reduced
    outline  of the new group; None for a single array
    lost     the results of a group that are left out, as chunks of their arrays cannot be read
    """

    work = "reduce"

    def __init__(
        self,
        planned: Mapping[str, Reduction],
        there: Location,
        how: How,
        arrays: Mapping[str, Array],
        outline: Outline | None = None,
    ) -> None:
        super().__init__(there, how)
        self.planned, self.arrays, self.outline = planned, arrays, outline
        is_old = outline is None and any(_is_old(one) for one in planned.values())
        self.zarr_format = 2 if is_old else 3
        self.nodes, self.outs = self._drafted(self.there)
        self.lost = Lost(planned)

    def _drafted(self, there: Location) -> tuple[NewNodes, dict[str, Array]]:
        """(the nodes of the result in a store, without documents; the arrays of results by their paths)."""
        nodes, outline = NewNodes(*there, self.zarr_format or 3), self.outline
        if outline is not None:
            nodes.add_group("", outline.attributes)
        outs = {}
        for path, planned in self.planned.items():
            cut: dict[str, Any] = {} if 0 in planned.shape else {"chunks": _chunks(planned)}
            outs[path] = nodes.add_array(
                path,
                shape=planned.shape,
                dtype=planned.dtype,
                attributes=self.attributes[path],
                dimension_names=planned.dims if self.zarr_format == 3 else None,
                **cut,
            )
        return nodes, outs

    @once
    def attributes(self) -> dict[str, Mapping[str, Any]]:
        """For each result, the attributes of its source that hold, its georeference among them."""
        return {path: self._attributes_of(path) for path in self.planned}

    def _attributes_of(self, path: str) -> Mapping[str, Any]:
        planned, array = self.planned[path], self.arrays[path]
        method, course = planned.method, planned.course
        hole = method.fill if method.fill is not None else method.nodata if method.skip != "none" else None
        left = course.kept if len(planned.shape) < array.ndim else range(array.ndim)
        facts: dict[str, Any] = {
            "nodata": None if hole is None else hole.item(),
            "is_unpacked": (method.scale, method.offset) != (1.0, 0.0),
            "windows": planned.windows,
        }
        if self.outline is not None:
            return self.outline.attributes_of(
                path, is_kept=False, left=left, method=method.name, dtype=planned.dtype, **facts
            )
        kept: Mapping[str, Any] = higher.carried_of(array).reduced(
            course.axes, left, method.name, planned.dtype, **facts
        )
        if planned.labels is None:
            return kept
        # Times as strings, as `tolist` makes those of nanoseconds plain numbers.
        is_time = planned.labels.dtype.kind in "mM"
        labels = planned.labels.astype(str) if is_time else planned.labels
        return {**kept, "groups": [_word(label) for label in labels.tolist()]}

    @once
    def said(self) -> dict[str, Any]:
        """The description of the reduction, with a hash of all groups."""
        if self.outline is None:
            return self.planned[""].describe()
        arrays = {path: one.describe() for path, one in self.planned.items()}
        around = [self.outline.attributes, list(self.outline.kept), *map(repr, self.outline.new.items())]
        return {"source": self.outline.url, "arrays": arrays, "around": name_job(around)}

    def describe(self) -> Any:
        return self.said

    def call(self) -> Any:
        arrays = self.said.get("arrays", {})
        lasting = {
            path: {name: value for name, value in said.items() if name not in OF_SHAPES}
            for path, said in arrays.items()
        }
        own = {name: value for name, value in self.said.items() if name not in OF_SHAPES}
        return {**own, "arrays": lasting} if arrays else own

    def sources(self) -> Sources:
        if self.outline is None:
            return self.planned[""].source.watched()
        sources = {path: one.source for path, one in self.planned.items()}
        return Sources(
            lambda: {path: one.version() or "?" for path, one in sources.items()},
            lambda path: sources[path].url,
        )

    def estimate(self) -> Estimate:
        if self.outline is None:
            return self.planned[""].estimate()
        return Estimate.of({path: one.estimate() for path, one in self.planned.items()})

    def check_room(self) -> None:
        def expect() -> float:
            if not all(Patches.is_small(one.course) for one in self.planned.values()):
                return 0
            held = MemoryStore()
            outs = self._drafted(Location(held, ""))[1]
            return sum(expect_size(Patches(one, outs[path]), held) for path, one in self.planned.items())

        size = sum(prod(one.shape) * one.dtype.itemsize for one in self.planned.values())
        self.there.check_room(size, expect, "the result")

    def make(self, job: BegunJob) -> None:
        most = min(filter(None, (most_units(one, self.how) for one in self.planned.values())), default=None)
        with job.runner(self.how.executor, most) as runner:
            for path, planned in self.planned.items():
                name = f"units-{path}" if path else "units"
                with self.lost.apart(path, planned.source), runner.apart():
                    run_reduction(runner, planned, self.outs[path], self.how.progress, name)
        if self.outline is not None:
            self._surround(self.outline)
        for path in self.lost:
            self.nodes.models.pop(path, None)
            self.there.store.delete_prefix(self.there.key(path))

    def _surround(self, outline: Outline) -> None:
        """Store the coordinates of the result, and the arrays that stay as they are."""
        for name, options in outline.new.items():
            self.nodes.add_array(name, **options)
        for name, array in outline.kept.items():
            source, dims = array, array.dims
            made = self.nodes.add_array(
                name,
                shape=source.shape,
                dtype=source.dtype,
                chunks=source.chunks,
                fill_value=source.fill_value,
                attributes=outline.attributes_of(name, is_kept=True),
                dimension_names=dims,
            )
            with self.lost.apart(name, source_of(array)):
                for box in cut(whole(source.shape), source.chunks):
                    made[box] = source[box]

    def versions(self) -> Versions | None:
        return None if self.lost else super().versions()

    def models(self) -> dict[str, Model]:
        return {**self.nodes.models}

    def result(self) -> Array | Group:
        made = self.published(Access())
        return open_node(self.there.store) if made is None else made


def _is_old(planned: Reduction) -> bool:
    source = planned.source
    return isinstance(source, StoredArray) and source.model.zarr_format != 3


def _word(label: Any) -> Any:
    is_word = isinstance(label, str | int) or (isinstance(label, float) and isfinite(label))
    return label if is_word else str(label)


def _chunks(planned: Reduction) -> tuple[int, ...]:
    """The chunk shape of the result, in whole patches, so that no chunk is written twice."""
    course = planned.course
    groups = max((s.stop - s.start for s in course.group_spans), default=1)
    longest = Patch(tuple(slice(0, course.lengths[d]) for d in course.kept), slice(0, groups))
    return tuple(max(1, span.stop) for span in planned.box(longest))

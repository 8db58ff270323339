"""The plan of a reduction, and the joining of the results of its units."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from zstore.base.boxes import Box, lengths, volume
from zstore.engine.schedulers import thread_count
from zstore.engine.walk import is_stored
from zstore.errors import StoreError
from zstore.jobs.chunks import StoredArray
from zstore.jobs.how import How
from zstore.jobs.plan import Estimate, Plan, Progress, name_job, without_defaults
from zstore.jobs.reduction import plan as plans
from zstore.jobs.reduction.methods import CellStates, Items, Method, make_method
from zstore.jobs.reduction.plan import Course, Patch, Unit, part_of
from zstore.jobs.reduction.rolling import RollingWindows
from zstore.jobs.runner import UNITS_AHEAD, Runner, counter
from zstore.jobs.source import Source
from zstore.model.packing import with_one_nodata
from zstore.nodes.array import Array

# Bytes in memory besides the result: at most on this machine, and of cells that workers elsewhere sent back.
MEMORY_SIZE = 64 << 20
SENT_SIZE = 256 << 20
# Boxes that are read at once from a store with latency.
REQUEST_COUNT = 8
# A patch of more units is not made to learn what it takes.
SAMPLED_COUNT = 8
# Members of a method that earlier records do not have, each with its default.
ADDED = {"circle": "None", "fill": "None", "is_weighted": "False"}
_memory = threading.local()


@dataclass(frozen=True)
class Reduction(Plan[CellStates]):
    """The plan of a reduction: a unit makes the cells of some boxes of the source.

    source    of the items
    method    how items are reduced
    course    in which order the array is read
    shape     of the result
    dims      names of the result's dimensions; None where the array has no names
    labels    of the groups, in the order of the result; None where there are no groups
    weights   of the items, with all dimensions of the array, those of length 1 that they do not depend on;
              None where all weigh the same
    others    values of the source that are left out, beside the method's nodata
    windows   of which each item of the result is made; None where whole dimensions are reduced
    """

    source: Source
    method: Method
    course: Course
    shape: tuple[int, ...]
    dims: tuple[str | None, ...] | None
    labels: Items | None
    weights: Items | None = None
    others: tuple[int | float, ...] = ()
    windows: RollingWindows | None = None

    @property
    def joined(self) -> Method:
        """The method by which the cells of units are joined; results of windows are joined as they are."""
        return self.method if self.windows is None else make_method("max", self.method.result, 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the result."""
        return self.method.result

    @property
    def box_memory(self) -> int:
        """Bytes in memory for a box that is reduced: its items, and the weighted ones."""
        items = self.course.box_size // max(1, self.source.dtype.itemsize)
        if self.windows is not None:
            length = self.course.lengths[self.windows.axis]
            around = length + min(self.windows.rolling.length - 1, self.course.shape[self.windows.axis])
            # What is read, in both orders of its dimensions, and the results.
            return items // max(1, length) * (2 * around * self.source.dtype.itemsize + 8 * length)
        return self.course.box_size + (8 * self.method.lanes * items if self.method.is_weighted else 0)

    @property
    def worker_count(self) -> int:
        """The number of units that run at a time on this machine."""
        course, wanted = self.course, thread_count()
        if self.source.request_count > 1:
            wanted = max(wanted, min(REQUEST_COUNT, self.source.request_count))
        each = max(1, self.box_memory + course.patch_size)
        return max(1, min(wanted, max(2, (MEMORY_SIZE - course.patch_size) // each)))

    def estimate(self) -> Estimate:
        """The estimated cost."""
        count = read = 0
        for unit in self.units():
            count, read = count + 1, read + self.item_count(unit)
        size = self.course.patch_size
        return Estimate(
            unit_count=count,
            read_size=read * self.source.dtype.itemsize,
            write_size=prod(self.shape) * self.dtype.itemsize,
            memory_size=self.worker_count * (self.box_memory + size) + size,
            scratch_size=size,
            about={"shape": self.shape, "dtype": str(self.dtype)},
        )

    def box(self, patch: Patch) -> Box:
        """The box of the result that a patch makes."""
        whole, course = slice(0, 1), self.course
        kept = dict(zip(course.kept, patch.kept, strict=True))
        first = course.axes[0] if course.axes else None
        keeps_all = len(self.shape) == len(course.shape)
        spans = []
        for d in range(len(course.shape)):
            if d in kept:
                spans.append(kept[d])
            elif d == first and self.labels is not None:
                spans.append(patch.groups)
            elif keeps_all:
                spans.append(whole)
        return tuple(spans)

    def describe(self) -> dict[str, Any]:
        """The source, method and other arguments that identify this reduction, in JSON."""
        course, method, source = self.course, self.method, self.source
        groups = None
        if course.groups is not None:
            names = course.groups.names
            text = f"{names.dtype} {names.tolist()!r}".encode() + course.groups.codes.tobytes()
            groups = hashlib.sha256(text).hexdigest()[:16]
        fill = None if method.fill is None else method.fill.tobytes().hex()
        fixed = vars(method) | {"nodata": method.nodata.tobytes().hex(), "fill": fill}
        is_fault = isinstance(source, StoredArray) and source.missing_is_fault
        return {
            **source.describe(),
            **without_defaults({name: str(value) for name, value in fixed.items()}, ADDED),
            "missing": "error" if is_fault else "None",
            "axes": list(course.axes),
            "shape": list(self.shape),
            **({"others": list(self.others)} if self.others else {}),
            "groups": groups,
            **({} if self.weights is None else {"weights": name_job(self.weights.tolist())}),
            **({} if self.windows is None else {"windows": repr((self.windows.axis, self.windows.rolling))}),
            "units": name_job([repr(course.spans), repr(course.group_spans), plans.UNIT_SIZE]),
        }

    def units(self) -> Iterator[Unit]:
        return self.course.units()

    def boxes(self, unit: Unit) -> Iterator[Box]:
        """The boxes that are read for a unit."""
        number, first, last = unit
        return self.course.boxes(self.course.patch(number), first, last)

    def item_count(self, unit: Unit) -> int:
        """The number of items that are read for a unit."""
        return sum(volume(self._around(box)) for box in self.boxes(unit))

    def _around(self, box: Box) -> Box:
        """The items that the results of a box are made of."""
        windows = self.windows
        return box if windows is None else windows.around(box, self.course.shape[windows.axis])

    def make(self, unit: Unit) -> CellStates:
        """The cells of a unit's boxes."""
        course, boxes = self.course, list(self.boxes(unit))
        if self.windows is not None:
            [box] = boxes
            around = self._around(box)
            made = self.windows.make(self.method, self._read(around), around, box, repr(self.source.url))
            return CellStates(made.reshape(-1).astype(self.joined.folded, copy=False), None, None)
        patch = course.patch(unit[0])
        kept = patch.kept_shape
        group_step, groups = prod(kept), patch.groups.stop - patch.groups.start
        most = sum(prod(box[axis].stop - box[axis].start for axis in course.axes) for box in boxes)
        method = self.method.narrow(most)
        cells = method.make(groups * group_step)
        for box in boxes:
            items = self._read(box)
            labels, label_steps = None, (0,) * items.ndim
            if course.groups is not None:
                labels, label_steps = course.groups.of(box)
                if patch.groups.start:
                    labels = labels - np.int32(patch.groups.start)
            numbers, first = self._numbers(box)
            steps = dict(zip(course.kept, _steps(kept), strict=True))
            method.put(
                cells,
                items,
                tuple(steps.get(d, 0) for d in range(items.ndim)),
                labels,
                label_steps,
                numbers,
                weights=None if self.weights is None else part_of(self.weights, box),
                groups=groups,
                group_step=group_step,
                first_number=first,
            )
        return cells

    def _read(self, box: Box) -> Items:
        """The items of a box, in memory that each thread reuses."""
        dtype, shape = self.method.dtype, lengths(box)
        size = prod(shape) * dtype.itemsize
        if len(getattr(_memory, "held", b"")) < size:
            _memory.held = np.empty(max(size, self.course.box_size), np.uint8)
        items: Items = _memory.held[:size].view(dtype).reshape(shape)
        if dtype == self.source.dtype:
            items = self.source.read(box, items)
        else:
            items[...] = self.source.read(box)
        return with_one_nodata(items, self.method.nodata[()], self.others) if self.others else items

    def _numbers(self, box: Box) -> tuple[tuple[int, ...], int]:
        """(stride of each dimension among the items of a cell, number of the first item), for argmin."""
        course = self.course
        if not self.method.has_numbers:
            return (0,) * len(box), 0
        steps = dict(zip(course.axes, _steps(tuple(course.shape[axis] for axis in course.axes)), strict=True))
        first = sum(step * box[axis].start for axis, step in steps.items())
        return tuple(steps.get(d, 0) for d in range(len(box))), first


def most_units(planned: Reduction, how: How) -> int | None:
    """The number of units that run, or wait to be joined in order, at a time."""
    course, most = planned.course, planned.worker_count
    if how.executor is not None:
        most = max(4, min(UNITS_AHEAD, SENT_SIZE // max(1, course.patch_size)))
    return how.at_once(planned.box_memory + 2 * course.patch_size, most)


def run_reduction(
    runner: Runner, planned: Reduction, out: Any, progress: Progress | None, name: str = "units"
) -> None:
    """Make every patch of the result and write it to `out`, an array of numpy or in a store.

    name  of the plan in the journal
    """
    total = prod(planned.course.shape)
    # Boxes that are read for several patches count each time.
    tick = counter(total, None if progress is None else lambda done, _: progress(done, max(done, total)))
    runner.fold(planned, name, Result(planned, out, tick))


def _steps(lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(lengths[d + 1 :]) for d in range(len(lengths)))


@dataclass(frozen=True)
class Patches(Plan[None]):
    """The plan with a unit for each patch of the result, made to learn the bytes of all."""

    planned: Reduction
    out: Array

    @staticmethod
    def is_small(course: Course) -> bool:
        """Whether a patch needs few items."""
        return (
            course.patch_count > 0
            and sum(1 for _ in islice(course.units_of(0), SAMPLED_COUNT + 1)) <= SAMPLED_COUNT
        )

    def units(self) -> Iterator[tuple[int]]:
        return ((number,) for number in range(self.planned.course.patch_count))

    def make(self, unit: tuple[int, ...]) -> None:
        result = Result(self.planned, self.out, lambda _: None)
        for each in self.planned.course.units_of(*unit):
            result.take(each, self.planned.make(each))


@dataclass
class Result:
    """Joins the cells of units in order, and writes each complete patch to `out`.

    patches  incomplete patches, by number
    begun    patches that were incomplete when the job was interrupted; of others, all units are made or none
    """

    planned: Reduction
    out: Any
    tick: Callable[[int], None]
    patches: dict[int, CellStates] = field(default_factory=dict)
    begun: frozenset[int] = frozenset()

    def take(self, unit: Unit, cells: CellStates) -> None:
        number, first, last = unit
        method = self.planned.joined
        if first == 0:
            self.patches[number] = method.begin(cells)
        elif number not in self.patches:
            raise StoreError(f"the journal lacks what was made of patch {number}; expected overwrite")
        else:
            method.join(self.patches[number], cells)
        if last == self.planned.course.box_count:
            self._finish(self.planned.course.patch(number), self.patches.pop(number))
        self.tick(self.planned.item_count(unit))

    def holds(self, unit: Unit) -> bool:
        """Whether the unit's patch is stored in whole chunks, or is not complete yet."""
        planned = self.planned
        box = planned.box(planned.course.patch(unit[0]))
        sides = zip(box, self.out.chunks, self.out.shape, strict=True)
        is_whole = all(s.start % n == 0 and s.stop == min(s.start + n, size) for s, n, size in sides)
        is_held = unit[0] in self.begun or (
            is_whole and is_stored(self.out.store, self.out.path, self.out.model, box)
        )
        if is_held:
            self.tick(self.planned.item_count(unit))
        return is_held

    def group(self, unit: Unit) -> tuple[int, bool]:
        return unit[0], unit[2] == self.planned.course.box_count

    def _finish(self, patch: Patch, cells: CellStates) -> None:
        planned, out = self.planned, self.out
        course, method, kept = planned.course, planned.joined, patch.kept_shape
        sizes = course.groups.sizes if course.groups is not None else None
        reduced = prod(course.shape[axis] for axis in course.axes)
        counts = np.array([reduced], np.int64) if sizes is None else sizes[patch.groups]
        where = repr(planned.source.url)
        box: tuple[Any, ...] = planned.box(patch)
        there: Any = out[(*box, ...)] if isinstance(out, np.ndarray) and sizes is None else None
        if there is not None and there.flags.c_contiguous and there.dtype == method.result:
            method.finish(cells, counts, where, there.reshape(-1))
            return
        made = np.empty(len(counts) * prod(kept), method.result)
        method.finish(cells, counts, where, made)
        if sizes is not None:
            made = np.moveaxis(made.reshape(-1, *kept), 0, sum(d < course.axes[0] for d in course.kept))
        out[box] = made.reshape(lengths(box))

    def pack(self) -> bytes:
        """The incomplete patches as bytes: the number and the planes of each."""
        parts = list[bytes]()
        for number, cells in self.patches.items():
            parts.append(number.to_bytes(8, "little"))
            parts += [plane.tobytes() for plane in cells.planes]
        return b"".join(parts)

    def unpack(self, data: bytes) -> None:
        course, method, patches = self.planned.course, self.planned.joined, dict[int, CellStates]()
        while data:
            number, data = int.from_bytes(data[:8], "little"), data[8:]
            if number >= course.patch_count:
                raise ValueError(f"patch {number}; expected one of {course.patch_count}")
            patch = course.patch(number)
            made = prod(patch.kept_shape) * (patch.groups.stop - patch.groups.start)
            cells = method.begin(method.make(made))
            for plane in cells.planes:
                if len(data) < plane.nbytes:
                    raise ValueError(f"cells of {len(data)} bytes; expected {plane.nbytes}")
                plane[...] = np.frombuffer(data[: plane.nbytes], plane.dtype)
                data = data[plane.nbytes :]
            patches[number] = cells
        self.patches, self.begun = patches, frozenset(patches)

"""Reductions of a stored array (sum, mean, ...) along dimensions: one pass over the chunks, on all cores."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isfinite, prod
from operator import index
from typing import Any, Unpack

import numpy as np

from zstore.base.once import once
from zstore.engine.documents import Model
from zstore.engine.schedulers import thread_count
from zstore.engine.walk import is_stored
from zstore.errors import MetadataError, StoreError, UnsupportedError
from zstore.jobs.chunks import Location, StoredArray, as_array, source_of
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.jobs.plan import Estimate, Plan, Progress, check_room, current_part, expect_size, name_job
from zstore.jobs.record import BegunJob
from zstore.jobs.reduction import plan as plans
from zstore.jobs.reduction.methods import CellStates, Items, Method, make_method
from zstore.jobs.reduction.plan import Box, Course, Patch, Unit, make_course, make_groups
from zstore.jobs.runner import UNITS_AHEAD, Runner, counter
from zstore.jobs.source import Source, Sources
from zstore.jobs.target import check_apart
from zstore.jobs.task import Task
from zstore.model.grid import RegularGrid
from zstore.model.packing import Packing
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.node import Access, Missing
from zstore.nodes.open import StoreLike, open_array
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store, with_storage_options

# Bytes in memory besides the result: at most on this machine, and of cells that workers elsewhere sent back.
MEMORY_SIZE = 64 << 20
SENT_SIZE = 256 << 20
# Boxes that are read at once from a store with latency.
REQUEST_COUNT = 8
# A patch of more units is not made to learn what it takes.
SAMPLED_COUNT = 8
# What a reduction's description says of the source's shape and documents, which may change.
OF_SHAPES = ("version", "shape", "units")
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
    """

    source: Source
    method: Method
    course: Course
    shape: tuple[int, ...]
    dims: tuple[str | None, ...] | None
    labels: Items | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the result."""
        return self.method.result

    @property
    def worker_count(self) -> int:
        """The number of units that run at a time on this machine."""
        course, wanted = self.course, thread_count()
        if self.source.request_count > 1:
            wanted = max(wanted, min(REQUEST_COUNT, self.source.request_count))
        each = max(1, course.box_size + course.patch_size)
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
            memory_size=self.worker_count * (self.course.box_size + size) + size,
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
        fixed = {**vars(method), "nodata": method.nodata.tobytes().hex(), "fill": fill}
        said = source.describe()
        if isinstance(source, StoredArray):
            said["missing"] = "error" if source.missing_is_fault else "fill"
        return {
            **said,
            **{name: str(value) for name, value in fixed.items()},
            "axes": list(course.axes),
            "shape": list(self.shape),
            "groups": groups,
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
        return sum(prod(span.stop - span.start for span in box) for box in self.boxes(unit))

    def make(self, unit: Unit) -> CellStates:
        """The cells of a unit's boxes."""
        course, boxes = self.course, list(self.boxes(unit))
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
                groups=groups,
                group_step=group_step,
                first_number=first,
            )
        return cells

    def _read(self, box: Box) -> Items:
        """The items of a box, in memory that each thread reuses."""
        dtype, shape = self.method.dtype, tuple(span.stop - span.start for span in box)
        size = prod(shape) * dtype.itemsize
        if len(getattr(_memory, "held", b"")) < size:
            _memory.held = np.empty(max(size, self.course.box_size), np.uint8)
        items: Items = _memory.held[:size].view(dtype).reshape(shape)
        if dtype == self.source.dtype:
            return self.source.read(box, items)
        items[...] = self.source.read(box)
        return items

    def _numbers(self, box: Box) -> tuple[tuple[int, ...], int]:
        """(stride of each dimension among the items of a cell, number of the first item), for argmin."""
        course = self.course
        if not self.method.has_numbers:
            return (0,) * len(box), 0
        steps = dict(zip(course.axes, _steps(tuple(course.shape[axis] for axis in course.axes)), strict=True))
        first = sum(step * box[axis].start for axis, step in steps.items())
        return tuple(steps.get(d, 0) for d in range(len(box))), first


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def reduce(
    source: Array | Source | StoreLike,
    method: str,
    axis: Any = None,
    *,
    groups: Any = None,
    nodata: Any = None,
    unpack: bool = False,
    keepdims: bool = False,
    dtype: Any = None,
    ddof: int = 0,
    out: Any = None,
    missing: Missing | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Any:
    """The sum, mean, minimum, ... of an array's items along `axis`, without the whole array in memory.

    source    an array, its path or URL, or any other `Source`
    method    sum, mean, min, max, count (of valid items), std, var, any, all, argmin or argmax
    axis      a dimension by its number or name, or several; None: all
    groups    labels of the items along `axis`: an array that broadcasts to those dimensions. The result has
              a dimension of the distinct labels, sorted as by `numpy.unique`, where the first of these
              was; items whose label is NaN, NaT or masked are left out
    nodata    the value that is left out. None: NaN of floats, NaT of times, else none. "none": every item
              counts, and the result is NaN where an item is; so it is where another value than NaN is nodata.
              Cells of the result without a valid item are NaN; nodata for `min` and `max`, -1 for `argmin`
              and `argmax`, 0 for sums and counts
    unpack    apply `scale_factor` and `add_offset` to stored values, and leave out nodata of the attributes
              and NaN, as xarray does
    dtype     of the result; None: numpy's for the method, and float64 (complex128) for scaled values
    ddof      `var` and `std` divide by the number of items less this
    out       an array of numpy or in a store to write to, or the path or URL of a new one; None: it is
              returned
    missing   whether a chunk that is not stored is an error; None: as the array was opened
    storage_options   how to reach buckets and web servers that `source` and `out` name by URL

    Integers are summed exactly. Floats are summed in float64 with compensation, in the order of the chunks,
    so that the result does not depend on the number of threads.

    Raises
        UnsupportedError: the method has no meaning for the data type.
        OverflowError: a sum that the result's type cannot hold.
        ValueError: unfit axes, groups, nodata or `out`; the minimum or maximum of no items.
        StoreError: something is at `out` already, or unfinished work (unless `overwrite`, or `resume` of it).
        MetadataError: `resume`, and what was interrupted there is something else.
        ChangedError: the source was written to since the reduction into a new array began.
        CodecError, NotFoundError, StoreError: a chunk cannot be read.
    """
    how = How(**words)
    if isinstance(source, Source):
        array = as_array(source)
    elif isinstance(source, Array):
        array = source
    else:
        array = open_array(source, mode="r", storage_options=storage_options)
    planned = plan_reduction(
        array, method, axis, groups=groups, nodata=nodata, unpack=unpack, keepdims=keepdims, dtype=dtype,
        ddof=ddof, missing=missing,
    )  # fmt: skip
    if out is not None and not isinstance(out, np.ndarray | Array):
        target = open_store(out)
        if isinstance(planned.source, StoredArray):
            check_apart(planned.source.store, planned.source.path, target, "", "reduce")
        return StoredReduction(planned, Location(target, ""), how).carry_out()
    if current_part() is not None:
        raise UnsupportedError("reduce would store nothing; expected out to be the place of a new array")
    for word in ("resume", "overwrite", "durable"):
        if getattr(how, word):
            raise ValueError(f"{word} without a place of a new array; expected out to be one")
    how.stop_if_dry(planned.estimate)
    made: Any = np.empty(planned.shape, planned.dtype) if out is None else out
    if made.shape != planned.shape or not np.can_cast(planned.dtype, made.dtype, "same_kind"):
        raise ValueError(
            f"out has shape {made.shape} and data type {made.dtype}, expected {planned.shape} and "
            f"{planned.dtype}"
        )
    # Sums are checked against the data type of `out`.
    fitting = replace(planned, method=replace(planned.method, result=made.dtype))
    with Runner(how.executor, None, _most(planned, how)) as runner:
        _run(runner, fitting, made, how.progress)
    return made if out is not None or planned.shape else made[()]


def plan_reduction(
    array: Array,
    method: str,
    axis: Any = None,
    *,
    groups: Any = None,
    nodata: Any = None,
    unpack: bool = False,
    keepdims: bool = False,
    dtype: Any = None,
    ddof: int = 0,
    missing: Missing | None = None,
) -> Reduction:
    """The plan of a reduction, by the arguments of `reduce`; raises what `reduce` raises before it reads."""
    order = _axes(array.ndim, array.dims, axis)
    axes = tuple(sorted(order))
    labelled = None if groups is None else make_groups(groups, array.shape, axes, order)
    if labelled is not None and not axes:
        raise ValueError("groups of an array without dimensions to reduce; expected an axis")
    packing = _packing(array, nodata) if unpack else {"nodata": nodata}
    dims = array.dims
    most = prod(array.shape[axis] for axis in axes)
    made = make_method(method, array.dtype, most, result=dtype, ddof=ddof, **packing)
    source = source_of(array, missing)
    grid, chunks = source.grid, source.piece_shape
    if chunks is None and isinstance(grid, RegularGrid):
        chunks = grid.chunk_shape
    lengths = chunks or [grid.lengths(d, length) for d, length in enumerate(source.shape)]
    item_size = max(1, array.dtype.itemsize)
    course = make_course(array.shape, axes, lengths, item_size, made.cell_size, labelled)
    shape, kept = [], []
    for d, length in enumerate(array.shape):
        is_first = bool(axes) and d == axes[0] and labelled is not None
        if d not in axes or is_first or keepdims:
            of_groups = labelled.count if is_first and labelled is not None else 1
            shape.append(length if d not in axes else of_groups)
            kept.append(None if dims is None else dims[d])
    names = None if dims is None else tuple(kept)
    labels = None if labelled is None else labelled.names
    return Reduction(source, made, course, tuple(shape), names, labels)


def _axes(ndim: int, dims: Sequence[str | None] | None, axis: Any) -> tuple[int, ...]:
    """The numbers of the dimensions that are reduced, in the order of the argument."""
    if axis is None:
        return tuple(range(ndim))
    numbers = list[int]()
    for one in (axis,) if isinstance(axis, int | np.integer | str) else tuple(axis):
        if isinstance(one, str):
            if dims is None:
                raise ValueError(f"axis {one!r}, expected a number: the array's dimensions have no names")
            if one not in dims:
                raise ValueError(f"axis {one!r}, expected one of the dimensions {dims}")
            numbers.append(dims.index(one))
        else:
            if not -ndim <= one < ndim:
                raise ValueError(f"axis {one}, expected one of the {ndim} dimensions of the array")
            numbers.append(index(one) % ndim)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"axis {axis!r} names a dimension twice")
    return tuple(numbers)


def _packing(array: Array, nodata: Any) -> dict[str, Any]:
    """nodata, scale and offset of the array's attributes, as arguments of `make_method`."""
    if "_Unsigned" in array.attrs:
        raise UnsupportedError("attribute _Unsigned cannot be undone while reducing; expected unpack=False")
    try:
        packing = Packing.parse(array.attrs, array.dtype, array.fill_value, array.zarr_format)
    except MetadataError as error:
        raise MetadataError(f"cannot unpack: {error.message}", path=array.store.url) from error
    if nodata is not None:
        return {**packing._asdict(), "nodata": nodata}
    return {**packing._asdict(), "skip_nan": True}


class StoredReduction(Task[Array]):
    """A reduction into a new array, whose document is written last."""

    work = "reduce"

    def __init__(self, planned: Reduction, there: Location, how: How) -> None:
        super().__init__(there, how)
        self.planned, source = planned, planned.source
        is_old = isinstance(source, StoredArray) and source.model.zarr_format != 3
        self.zarr_format = 2 if is_old else 3
        self.out = self._array(self.there.store)

    def _array(self, store: Store) -> Array:
        """The array of the result in a store, without its document."""
        planned, attributes = self.planned, dict[str, Any]()
        if planned.labels is not None:
            # Times as strings, as `tolist` makes those of nanoseconds plain numbers.
            is_time = planned.labels.dtype.kind in "mM"
            labels = planned.labels.astype(str) if is_time else planned.labels
            attributes["groups"] = [_word(label) for label in labels.tolist()]
        cut: dict[str, Any] = {} if 0 in planned.shape else {"chunks": _chunks(planned)}
        return NewNodes(store, "", self.zarr_format or 3).add_array(
            "",
            shape=planned.shape,
            dtype=planned.dtype,
            attributes=attributes,
            dimension_names=planned.dims if self.zarr_format == 3 else None,
            **cut,
        )

    @once
    def said(self) -> dict[str, Any]:
        """The description of the reduction, which takes a hash of all groups."""
        return self.planned.describe()

    def describe(self) -> Any:
        return self.said

    def call(self) -> Any:
        return {name: value for name, value in self.said.items() if name not in OF_SHAPES}

    def sources(self) -> Sources:
        return self.planned.source.watched()

    def estimate(self) -> Estimate:
        return self.planned.estimate()

    def check_room(self) -> None:
        planned = self.planned

        def expect() -> float:
            if not _Patches.is_small(planned.course):
                return 0
            held = MemoryStore()
            return expect_size(_Patches(planned, self._array(held)), held)

        size = prod(planned.shape) * planned.dtype.itemsize
        check_room(*self.there, size, expect, "the result")

    def make(self, job: BegunJob) -> None:
        with job.runner(self.how.executor, _most(self.planned, self.how)) as runner:
            _run(runner, self.planned, self.out, self.how.progress)

    def models(self) -> dict[str, Model]:
        return {"": self.out.model}

    def result(self) -> Array:
        made = self.published(Access())
        return open_array(self.there.store) if made is None else made


def _word(label: Any) -> Any:
    is_word = isinstance(label, str | int) or (isinstance(label, float) and isfinite(label))
    return label if is_word else str(label)


def _chunks(planned: Reduction) -> tuple[int, ...]:
    """The chunk shape of the result, in whole patches, so that no chunk is written twice."""
    course = planned.course
    groups = max((s.stop - s.start for s in course.group_spans), default=1)
    longest = Patch(tuple(slice(0, course.lengths[d]) for d in course.kept), slice(0, groups))
    return tuple(max(1, span.stop) for span in planned.box(longest))


def _most(planned: Reduction, how: How) -> int | None:
    """The number of units that run, or wait to be joined in order, at a time."""
    course, most = planned.course, planned.worker_count
    if how.executor is not None:
        most = max(4, min(UNITS_AHEAD, SENT_SIZE // max(1, course.patch_size)))
    return how.at_once(course.box_size + 2 * course.patch_size, most)


def _run(runner: Runner, planned: Reduction, out: Any, progress: Progress | None) -> None:
    """Make every patch of the result and write it to `out`, an array of numpy or in a store."""
    total = prod(planned.course.shape)
    # Boxes that are read for several patches count each time.
    tick = counter(total, None if progress is None else lambda done, _: progress(done, max(done, total)))
    runner.fold(planned, "units", _Result(planned, out, tick))


def _steps(lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(lengths[d + 1 :]) for d in range(len(lengths)))


@dataclass(frozen=True)
class _Patches(Plan[None]):
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
        result = _Result(self.planned, self.out, lambda _: None)
        for each in self.planned.course.units_of(*unit):
            result.take(each, self.planned.make(each))


@dataclass
class _Result:
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
        method = self.planned.method
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
        course, method, kept = planned.course, planned.method, patch.kept_shape
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
        out[box] = made.reshape(tuple(span.stop - span.start for span in box))

    def pack(self) -> bytes:
        """The incomplete patches: the number and the planes of each."""
        parts = list[bytes]()
        for number, cells in self.patches.items():
            parts.append(number.to_bytes(8, "little"))
            parts += [plane.tobytes() for plane in cells.planes]
        return b"".join(parts)

    def unpack(self, data: bytes) -> None:
        course, method, patches = self.planned.course, self.planned.method, dict[int, CellStates]()
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

"""Reducing a stored array along some of its dimensions: one pass over the chunks, on all cores."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zstore.conventions.variables import parse_variable
from zstore.engine.documents import place as node_place
from zstore.engine.pool import thread_count
from zstore.errors import MetadataError, StoreError, UnsupportedError
from zstore.jobs.record import begin_new
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.node import Missing
from zstore.nodes.open import StoreLike, open_array
from zstore.reduction.methods import Cells, Items, Method, make_method
from zstore.reduction.plan import Box, Patch, Plan, make_groups, make_plan
from zstore.storage.base import Store
from zstore.storage.url import open_store

R = TypeVar("R")
Progress = Callable[[int, int], None]

# What a reduction holds beside its result.
MEMORY_SIZE = 64 << 20
# Boxes that are read at once from a store that takes its time.
REQUEST_COUNT = 8


class Reduction(NamedTuple):
    """What a reduction does, before it does it.

    array     that is read
    method    by which
    plan      in which order
    shape     of the result
    dims      names of the result's dimensions, where the array has names
    labels    of the groups, in the order of the result; None where there are none
    """

    array: Array
    method: Method
    plan: Plan
    shape: tuple[int, ...]
    dims: tuple[str | None, ...] | None
    labels: Items | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the result."""
        return self.method.result

    @property
    def memory_size(self) -> int:
        """Bytes that are held at once beside the result, about."""
        workers = _worker_count(self)
        return workers * (self.plan.box_size + self.plan.patch_size) + self.plan.patch_size

    def place(self, patch: Patch) -> Box:
        """Where a patch is in the result."""
        whole = slice(0, 1)
        kept = dict(zip(self.plan.kept, patch.kept, strict=True))
        first = self.plan.axes[0] if self.plan.axes else None
        keeps_all = len(self.shape) == len(self.plan.shape)
        spans = []
        for d in range(len(self.plan.shape)):
            if d in kept:
                spans.append(kept[d])
            elif d == first and self.labels is not None:
                spans.append(patch.groups)
            elif keeps_all:
                spans.append(whole)
        return tuple(spans)


def reduce(
    source: Array | StoreLike,
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
    overwrite: bool = False,
    missing: Missing | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """The sum, mean, least, ... of an array's items along `axis`, without the whole array in memory.

    method    sum, mean, min, max, count (of valid items), std, var, any, all, argmin or argmax
    axis      a dimension by its number or name, or several; None: all
    groups    labels of the items along `axis`: an array that broadcasts to those dimensions. The result has a
              dimension of the labels in order, as `numpy.unique` gives them, in the place of the first of
              them; items whose label is NaN, NaT or masked are left out
    nodata    the value that is left out. None: of floats NaN, of times NaT, else none. "none": every item
              counts, and NaN wins. It also wins where another value is nodata. Cells of the result without a
              valid item are NaN; of `min` and `max` nodata, of `argmin` and `argmax` -1, of sums and counts 0
    unpack    reduce what stored values mean by `scale_factor` and `add_offset`, and leave out what the
              attributes say is nodata
    dtype     of the result; None is numpy's for the method, and float64 (complex128) of scaled values
    ddof      `var` and `std` divide by the number of items less this
    out       an array to write to, of numpy or in a store, or the place of a new one; None: it is returned
    missing   whether a chunk that is not stored is an error; None: as the array was opened

    Integers are summed exactly. Sums of floats are compensated float64 in the order of the chunks: the same
    whatever the number of threads.

    Raises
        UnsupportedError: the method has no meaning for the data type.
        OverflowError: a sum that the result's type cannot hold.
        ValueError: unfit axes, groups, nodata or `out`; the least or greatest of no items.
        CodecError, NotFoundError, StoreError: a chunk cannot be read.
    """
    planned = plan_reduction(
        source,
        method,
        axis,
        groups=groups,
        nodata=nodata,
        unpack=unpack,
        keepdims=keepdims,
        dtype=dtype,
        ddof=ddof,
        storage_options=storage_options,
    )
    if out is None:
        made: Any = np.empty(planned.shape, planned.dtype)
        _run(planned, made, missing, progress)
        return made if planned.shape else made[()]
    if isinstance(out, np.ndarray | Array):
        if out.shape != planned.shape or not np.can_cast(planned.dtype, out.dtype, "same_kind"):
            raise ValueError(
                f"out has shape {out.shape} and data type {out.dtype}, expected {planned.shape} and "
                f"{planned.dtype}"
            )
        # What `out` cannot hold is no result.
        _run(planned._replace(method=replace(planned.method, result=out.dtype)), out, missing, progress)
        return out
    return _store(planned, out, overwrite, missing, progress)


def plan_reduction(
    source: Array | StoreLike,
    method: str,
    axis: Any = None,
    *,
    groups: Any = None,
    nodata: Any = None,
    unpack: bool = False,
    keepdims: bool = False,
    dtype: Any = None,
    ddof: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Reduction:
    """What `reduce` would do with those arguments; raises what it raises before it reads anything."""
    if not isinstance(source, Array):
        source = open_array(source, mode="r", storage_options=storage_options)
    array = source
    order = _axes(array, axis)
    axes = tuple(sorted(order))
    labelled = None if groups is None else make_groups(groups, array.shape, axes, order)
    if labelled is not None and not axes:
        raise ValueError("groups of an array without dimensions to reduce; expected an axis")
    packing = _packing(array, nodata) if unpack else {"nodata": nodata}
    chosen = make_method(
        method,
        array.dtype,
        prod(array.shape[axis] for axis in axes),
        result=dtype,
        ddof=ddof,
        **packing,
    )
    plan = make_plan(
        array.shape, axes, array.read_chunk_sizes, max(1, array.dtype.itemsize), chosen.cell_size, labelled
    )
    shape, dims = [], []
    for d, length in enumerate(array.shape):
        is_first = bool(axes) and d == axes[0] and labelled is not None
        if d not in axes or is_first or keepdims:
            of_groups = labelled.count if is_first and labelled is not None else 1
            shape.append(length if d not in axes else of_groups)
            dims.append(None if array.dims is None else array.dims[d])
    names = None if labelled is None else labelled.names
    return Reduction(array, chosen, plan, tuple(shape), None if array.dims is None else tuple(dims), names)


def _axes(array: Array, axis: Any) -> tuple[int, ...]:
    """The dimensions that are reduced, in the order they are given."""
    if axis is None:
        return tuple(range(array.ndim))
    given = (axis,) if isinstance(axis, int | np.integer | str) else tuple(axis)
    found = []
    for one in given:
        if isinstance(one, str):
            if array.dims is None or one not in array.dims:
                raise ValueError(f"axis {one!r}, expected one of the dimensions {array.dims}")
            found.append(array.dims.index(one))
        else:
            if not -array.ndim <= one < array.ndim:
                raise ValueError(f"axis {one}, expected one of the {array.ndim} dimensions of the array")
            found.append(int(one) % array.ndim)
    if len(set(found)) < len(found):
        raise ValueError(f"axis {axis!r} names a dimension twice")
    return tuple(found)


def _packing(array: Array, nodata: Any) -> dict[str, Any]:
    """What the array's attributes say of its values, as `make_method` takes it."""
    if "_Unsigned" in array.attrs:
        raise UnsupportedError("attribute _Unsigned cannot be undone while reducing; expected unpack=False")
    variable, findings = parse_variable(array, None)
    for finding in findings:
        if finding.rule == "GZ-16":
            raise MetadataError(f"cannot unpack: {finding.message}", path=array.store.url)
    return {
        "nodata": variable.nodata if nodata is None else nodata,
        "scale": 1.0 if variable.scale_factor is None else float(variable.scale_factor),
        "offset": 0.0 if variable.add_offset is None else float(variable.add_offset),
    }


def _store(
    planned: Reduction, target: StoreLike, overwrite: bool, missing: Missing | None, progress: Progress | None
) -> Array:
    """The result in a new array; its document is written last."""
    store = open_store(target)
    _check_apart(planned.array, store)
    array, attributes = planned.array, dict[str, Any]()
    source = node_place(array.store, array.path)
    said = {"source": source, "method": planned.method.name, "shape": planned.shape}
    if planned.labels is not None:
        # Times become words as numpy has them: as objects, those of nanoseconds are bare numbers.
        is_time = planned.labels.dtype.kind in "mM"
        labels = planned.labels.astype(str) if is_time else planned.labels
        attributes["groups"] = [_word(label) for label in labels.tolist()]
    zarr_format = 3 if array.zarr_format == 3 else 2
    job = begin_new(store, "", zarr_format, "reduce", said, overwrite=overwrite)
    new = NewNodes(store, "", zarr_format)  # type: ignore[arg-type]
    cut: dict[str, Any] = {} if 0 in planned.shape else {"chunks": _chunks(planned)}
    made = new.add_array(
        "",
        shape=planned.shape,
        dtype=planned.dtype,
        attributes=attributes,
        dimension_names=planned.dims if zarr_format == 3 else None,
        **cut,
    )
    _run(planned, made, missing, progress)
    new.publish()
    job.end()
    return open_array(store)


def _check_apart(array: Array, target: Store) -> None:
    """Refuse to replace what is read, or what holds it."""
    here, there = array.store.local_path(array.path), target.local_path("")
    if here is not None and there is not None:
        is_within = here.resolve().is_relative_to(there.resolve()) or there.resolve().is_relative_to(
            here.resolve()
        )
    elif array.store.in_memory or target.in_memory:
        is_within = array.store is target
    else:
        held, place = node_place(array.store, array.path), node_place(target, "")
        is_within = f"{held}/".startswith(f"{place.rstrip('/')}/") or f"{place}/".startswith(f"{held}/")
    if is_within:
        raise StoreError(
            "cannot reduce an array into itself; expected a target elsewhere", path=node_place(target, "")
        )


def _word(label: Any) -> Any:
    is_word = isinstance(label, str | int) or (isinstance(label, float) and isfinite(label))
    return label if is_word else str(label)


def _chunks(planned: Reduction) -> tuple[int, ...]:
    """Chunks that hold whole patches, so that none is written twice."""
    plan = planned.plan
    groups = max((s.stop - s.start for s in plan.group_spans), default=1)
    longest = Patch(tuple(slice(0, plan.lengths[d]) for d in plan.kept), slice(0, groups), [])
    return tuple(max(1, span.stop) for span in planned.place(longest))


def _worker_count(planned: Reduction) -> int:
    plan = planned.plan
    wanted = thread_count()
    if planned.array.store.request_count > 1:
        wanted = max(wanted, min(REQUEST_COUNT, planned.array.store.request_count))
    each = max(1, plan.box_size + plan.patch_size)
    return max(1, min(wanted, max(2, (MEMORY_SIZE - plan.patch_size) // each)))


@dataclass
class _Work:
    """What makes units, on any thread."""

    planned: Reduction
    missing: Missing | None

    def __post_init__(self) -> None:
        self._own = threading.local()

    def make(self, patch: Patch, unit: list[Box]) -> Cells:
        """What is kept of the boxes of a unit."""
        plan, method = self.planned.plan, self.planned.method
        kept = tuple(span.stop - span.start for span in patch.kept)
        group_step, groups = prod(kept), patch.groups.stop - patch.groups.start
        cells = method.make(groups * group_step)
        for box in unit:
            items = self._read(box)
            labels, label_steps = None, (0,) * items.ndim
            if plan.groups is not None:
                labels, label_steps = plan.groups.of(box)
                if patch.groups.start:
                    labels = labels - np.int32(patch.groups.start)
            numbers, first = self._numbers(box)
            steps = dict(zip(plan.kept, _steps(kept), strict=True))
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
        """The items of a box, in memory that the thread uses again."""
        dtype, shape = self.planned.method.dtype, tuple(span.stop - span.start for span in box)
        memory = getattr(self._own, "memory", None)
        if memory is None:
            memory = self._own.memory = np.empty(prod(self.planned.plan.lengths), dtype)
        items: Items = memory[: prod(shape)].reshape(shape)
        self.planned.array.read(box, out=items, missing=self.missing)
        return items

    def _numbers(self, box: Box) -> tuple[tuple[int, ...], int]:
        """How far a step along each dimension moves among the items of a cell, and where the first one is."""
        plan = self.planned.plan
        if not self.planned.method.has_numbers:
            return (0,) * len(box), 0
        steps = dict(zip(plan.axes, _steps(tuple(plan.shape[axis] for axis in plan.axes)), strict=True))
        first = sum(step * box[axis].start for axis, step in steps.items())
        return tuple(steps.get(d, 0) for d in range(len(box))), first


def _steps(lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(lengths[d + 1 :]) for d in range(len(lengths)))


def _run(planned: Reduction, out: Any, missing: Missing | None, progress: Progress | None) -> None:
    """Make every patch of the result and put it into `out`, an array of numpy or of a store."""
    plan, method, array = planned.plan, planned.method, planned.array
    work = _Work(planned, missing)
    sizes = plan.groups.sizes if plan.groups is not None else None
    reduced = prod(plan.shape[axis] for axis in plan.axes)
    done, total = 0, prod(plan.shape)
    where = repr(array.path or array.store.url)

    def finish(patch: Patch, cells: Cells) -> None:
        kept = tuple(span.stop - span.start for span in patch.kept)
        counts = np.array([reduced], np.int64) if sizes is None else sizes[patch.groups]
        place: tuple[Any, ...] = planned.place(patch)
        there: Any = out[(*place, ...)] if isinstance(out, np.ndarray) and sizes is None else None
        if there is not None and there.flags.c_contiguous and there.dtype == method.result:
            method.finish(cells, counts, where, there.reshape(-1))
            return
        made = np.empty(len(counts) * prod(kept), method.result)
        method.finish(cells, counts, where, made)
        if sizes is not None:
            made = np.moveaxis(made.reshape(-1, *kept), 0, sum(d < plan.axes[0] for d in plan.kept))
        out[place] = made.reshape(tuple(span.stop - span.start for span in place))

    pieces = ((patch, unit, k) for patch in plan.patches() for k, unit in enumerate(patch.units or [[]]))
    current: tuple[Patch, Cells] | None = None
    made = _in_order(lambda piece: work.make(piece[0], piece[1]), pieces, _worker_count(planned))
    with closing(made):
        for (patch, unit, k), cells in made:
            if k == 0:
                if current is not None:
                    finish(*current)
                current = patch, method.begin(cells)
            elif current is not None:
                method.join(current[1], cells)
            done += sum(prod(span.stop - span.start for span in box) for box in unit)
            if progress is not None:
                progress(done, max(done, total))
        if current is not None:
            finish(*current)


def _in_order(work: Callable[[Any], R], pieces: Iterable[Any], threads: int) -> Generator[tuple[Any, R]]:
    """Each piece and what the work makes of it, in order; as many are made at once as there are threads."""
    if threads == 1:
        yield from ((piece, work(piece)) for piece in pieces)
        return
    waiting: deque[tuple[Any, Future[R]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for piece in pieces:
                if len(waiting) == threads:
                    first, coming = waiting.popleft()
                    yield first, coming.result()
                waiting.append((piece, pool.submit(work, piece)))
            while waiting:
                first, coming = waiting.popleft()
                yield first, coming.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

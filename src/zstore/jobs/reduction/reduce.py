"""Reductions of stored arrays (sum, mean, ...) along dimensions: one pass over the chunks, on all cores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any, Unpack

import numpy as np

from zstore.base.boxes import axes_of
from zstore.errors import (
    MetadataError,
    NotFoundError,
    ReadingWarning,
    StoreError,
    UnsupportedError,
    ZstoreError,
    leave_out,
)
from zstore.jobs.chunks import Location, as_array, source_of
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.jobs.plan import current_part
from zstore.jobs.reduction.methods import make_method
from zstore.jobs.reduction.plan import make_course, make_groups, make_rolling_course, spread
from zstore.jobs.reduction.rolling import Rolling, RollingWindows, check_windows
from zstore.jobs.reduction.run import Reduction, most_units, run_reduction
from zstore.jobs.reduction.stored import Outline, StoredReduction
from zstore.jobs.runner import Runner
from zstore.jobs.source import Source
from zstore.model.packing import Packing, is_circular
from zstore.nodes import above as higher
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.node import Missing
from zstore.nodes.open import StoreLike, open_array, open_view
from zstore.nodes.open import open as open_node
from zstore.storage.url import open_store, with_storage_options


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def reduce(
    source: Array | Group | Source | StoreLike,
    method: str,
    axis: Any = None,
    *,
    every: str | None = None,
    by: str | None = None,
    groups: Any = None,
    weights: Any = None,
    rolling: Mapping[str | int, int] | None = None,
    min_periods: int | None = None,
    center: bool = False,
    nodata: Any = None,
    unpack: bool | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    ddof: int = 0,
    out: Any = None,
    missing: Missing | None = None,
    storage_options: Mapping[str, Any] | None = None,
    above: bool = False,
    **words: Unpack[HowWords],
) -> Any:
    """The sum, mean, minimum, ... of items along `axis`, without whole arrays in memory.

    source    an array, its path or URL, or any other `Source`; or a group, of which all arrays of data are
              reduced that have these dimensions, and a data type that the method has a meaning for
    method    sum, mean, min, max, count (of valid items), std, var, any, all, argmin or argmax
    axis      a dimension by its number or name, or several; None: all, of periods the dimension of time
    every     one result for each "month", "season", "year", "day", "hour", or several of them: "10D", "6h",
              "3 months". The moments are those of the coordinate of time, in any order and calendar
    by        one result for each "month", "season", "dayofyear" or "hour" of all years (a climatology)
    groups    labels of the items along `axis`: an array that broadcasts to those dimensions. The result has
              a dimension of the distinct labels, sorted as by `numpy.unique`, where the first of these
              was; items whose label is NaN, NaT or masked are left out
    weights   of sums and means: "latitude" (the cosine of it), "area" (of cells: by the array in
              `cell_measures`, else by longitudes and latitudes), the name of an array in the group, or
              an array that broadcasts to the dimensions of `axis`
    rolling   one result for each item: of a window of so many items along a dimension, `{"time": 30}`, that
              ends with it. sum, mean, min, max, count, std and var are floats, NaN where items are missing
    min_periods   how many items of a rolling window must be there and valid; None: all
    center    whether rolling windows lie around their items: of 4, two before it and one after it
    nodata    the value that is left out. None: NaN of floats, NaT of times, else none. "none": every item
              counts, and the result is NaN where an item is; so it is where another value than NaN is nodata.
              Cells of the result without a valid item are NaN; nodata for `min` and `max`, -1 for `argmin`
              and `argmax`, 0 for sums and counts
    unpack    apply `scale_factor` and `add_offset` to stored values, and leave out nodata of the attributes
              and NaN, as xarray does. None: of groups and periods, whose coordinates are read as CF says
    dtype     of the result; None: numpy's for the method, and float64 (complex128) for scaled values
    ddof      `var` and `std` divide by the number of items less this
    out       an array of numpy or in a store to write to, or the path or URL of a new one, or of a new group:
              of periods and groups, a group of the results and their coordinates is made. None: the array is
              returned
    missing   whether a chunk that is not stored is an error; None: as the array was opened
    storage_options   how to reach buckets and web servers that `source` and `out` name by URL
    above     whether groups above a path of an array are read, whose georeference the array has

    The mean of directions and phases (angles by their units, along a whole circle by their standard name or
    `valid_range`) is that of their unit vectors: of 350 and 10 degrees it is 0, and NaN where they cancel.

    A new array has the attributes that still hold: georeference, units, names, and `cell_methods`. In a new
    group, times are the beginnings of periods, with CF's bounds (`time_bnds`, `climatology_bnds`); periods
    without a moment are left out, incomplete ones are not. Other coordinates are kept, arrays of data without
    the dimensions too; groups below are left out.

    Integers are summed exactly. Floats are summed in float64 with compensation, in the order of the chunks,
    so that the result does not depend on the number of threads.

    Raises
        UnsupportedError: the method has no meaning for the data type, or for weights.
        OverflowError: a sum that the result's type cannot hold.
        ValueError: unfit axes, groups, weights, nodata or `out`; the minimum or maximum of no items.
        StoreError: something is at `out` already, or unfinished work (unless `overwrite`, or `resume` of it).
        MetadataError: `resume`, and what was interrupted there is something else; no such period, weights or
            dimension, no coordinate of time, or one that is no dates.
        ChangedError: the source was written to since the reduction into a new array began.
        CodecError, NotFoundError, StoreError: a chunk cannot be read.
    Warns
        ReadingWarning: numbers are added, and are directions by their standard name; an array of a group is
            left out, such as one of text.
    """
    how = How(**words)
    node = _opened(source, storage_options, above=above)
    outline: Outline | None = None
    windows = None
    if rolling is not None:
        windows = Rolling.parse(rolling, min_periods, center=center)
        asked = {"axis": axis, "every": every, "by": by, "groups": groups, "weights": weights}
        beside = [word for word, value in asked.items() if value is not None] + ["keepdims"] * keepdims
        if beside:
            raise ValueError(f"{beside[0]} does not go with rolling; expected one of them")
        axis = windows.dim
    elif min_periods is not None or center:
        raise ValueError("min_periods and center go with rolling windows; expected rolling={'time': 30}")
    if isinstance(node, Group) or every is not None or by is not None or isinstance(weights, str):
        if groups is not None:
            raise ValueError("groups go with an array, and with no periods; expected every, by or groups")
        node, group = _in_group(source, node, storage_options)
        outline = higher.outline(node, group, axis, every=every, by=by, weights=weights, rolling=windows)
    ways: dict[str, Any] = {"nodata": nodata, "dtype": dtype, "ddof": ddof, "missing": missing}
    ways["rolling"] = windows
    makes_group = isinstance(node, Group) or every is not None or by is not None
    ways["unpack"] = makes_group if unpack is None else unpack
    if makes_group and keepdims:
        raise ValueError("keepdims goes with an array, and with no periods; expected none of it")
    if outline is None:
        assert isinstance(node, Array), "the arrays of groups are outlined"
        if weights is not None:
            order = axes_of(range(node.ndim) if axis is None else axis, node.ndim, node.dims)
            weights = spread(np.asarray(weights, np.float64), node.shape, order, "weights", "numbers")
        planned = plan_reduction(
            node, method, axis, groups=groups, weights=weights, keepdims=keepdims, **ways
        )  # fmt: skip
        plans, arrays = {"": planned}, {"": node}
    else:
        plans = _planned(outline, method, keepdims=keepdims, **ways)
        arrays = {**outline.arrays}
    if out is not None and not isinstance(out, np.ndarray | Array):
        target = open_store(out)
        for planned in plans.values():
            planned.source.check_apart(target, "", "reduce")
        if not makes_group:
            plans, arrays, outline = {"": _only(plans)}, {"": _only(arrays)}, None
        return StoredReduction(plans, Location(target, ""), how, arrays, outline).carry_out()
    if isinstance(node, Group):
        raise ValueError(
            "a group is there, expected a target for the new group, or an array, such as "
            f"{next(iter(arrays))!r} in it"
        )
    planned = _only(plans)
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
    with Runner(how.executor, None, most_units(planned, how)) as runner:
        run_reduction(runner, fitting, made, how.progress)
    return made if out is not None or planned.shape else made[()]


def _planned(outline: Outline, method: str, **ways: Any) -> dict[str, Reduction]:
    """The plans of the reductions of a group's arrays, by name.

    Arrays of types that the method has no meaning for are removed from the outline.

    Raises
        UnsupportedError: it has none for any of them.
    Warns
        ReadingWarning: of each that is left out.
    """
    plans, refused = dict[str, Reduction](), dict[str, ZstoreError]()
    for name, array in outline.arrays.items():
        labels, weights = outline.labels(name), outline.weights(name)
        try:
            plans[name] = plan_reduction(
                array, method, outline.axes(name), groups=labels, weights=weights, **ways
            )
        except UnsupportedError as error:
            refused[name] = error.locate(path=f"{outline.url}/{name}")
    for name, refusal in refused.items():
        if not plans:
            raise refusal
        del outline.arrays[name]
        leave_out(name, refusal, is_asked=False)
    return plans


def _only(by_name: Mapping[str, Any]) -> Any:
    """The only value of a mapping."""
    [one] = by_name.values()
    return one


def _opened(
    source: Array | Group | Source | StoreLike, options: Mapping[str, Any] | None, *, above: bool
) -> Array | Group:
    """The array or group that a source is."""
    view = open_view(source, None, options)
    source = source if view is None else view
    if isinstance(source, Source):
        return as_array(source)
    if isinstance(source, Array | Group):
        return source
    return open_node(source, mode="r", storage_options=options, above=above)


def _in_group(
    source: Any, node: Array | Group, options: Mapping[str, Any] | None
) -> tuple[Array | Group, Group | None]:
    """(the array or group, opened from its outermost group; the array's group, or the group itself)."""
    if isinstance(node, Group):
        return node, node
    above: Array | Group | None = None
    with suppress(MetadataError, NotFoundError, StoreError):
        if not node.path and isinstance(source, str | os.PathLike):
            node = open_array(source, mode="r", storage_options=options, above=True)
        if node.path:
            above = open_node(node.store, node.path.rpartition("/")[0], mode="r")
    return node, above if isinstance(above, Group) else None


def plan_reduction(
    array: Array,
    method: str,
    axis: Any = None,
    *,
    groups: Any = None,
    weights: Any = None,
    nodata: Any = None,
    unpack: bool = False,
    keepdims: bool = False,
    dtype: Any = None,
    ddof: int = 0,
    missing: Missing | None = None,
    rolling: Rolling | None = None,
) -> Reduction:
    """The plan of a reduction, by the arguments of `reduce`; raises what `reduce` raises before it reads.

    weights  as of `Reduction`
    """
    circle = higher.circle_of_array(array) if method == "mean" and "units" in array.attrs else None
    is_plain = method in ("sum", "std", "var") or (method == "mean" and circle is None)
    if is_plain and is_circular(name := array.attrs.get("standard_name")):
        text = f"standard_name is {name!r}: {method} takes directions for numbers, not for a circle"
        warnings.warn(ReadingWarning(text), stacklevel=3)
    order = axes_of(range(array.ndim) if axis is None else axis, array.ndim, array.dims)
    axes = tuple(sorted(order))
    labelled = None if groups is None else make_groups(groups, array.shape, axes, order)
    if labelled is not None and not axes:
        raise ValueError("groups of an array without dimensions to reduce; expected an axis")
    packing = _packing(array, nodata) if unpack else {"nodata": nodata}
    others = packing.pop("others", ())
    dims = array.dims
    most = prod(array.shape[axis] for axis in axes) if rolling is None else rolling.length
    is_weighted = weights is not None
    if is_weighted and not np.isfinite(weights).all():
        raise ValueError(f"a weight is {weights[~np.isfinite(weights)][0]}; expected finite numbers")
    made = make_method(
        method, array.dtype, most, result=dtype, ddof=ddof, is_weighted=is_weighted, circle=circle, **packing
    )  # fmt: skip
    source = source_of(array, missing)
    item_size = max(1, array.dtype.itemsize)
    if rolling is not None:
        made = check_windows(made, is_asked=dtype is not None)
        counting = make_method("count", array.dtype, most, **packing)
        windows = RollingWindows(rolling, axes[0], counting)
        course = make_rolling_course(
            array.shape, source.pieces, item_size, made.result.itemsize, axes[0], rolling.length
        )
        return Reduction(source, made, course, array.shape, dims, None, None, others, windows)
    course = make_course(array.shape, axes, source.pieces, item_size, made.cell_size, labelled)
    shape, kept = [], []
    for d, length in enumerate(array.shape):
        is_first = bool(axes) and d == axes[0] and labelled is not None
        if d not in axes or is_first or keepdims:
            of_groups = labelled.count if is_first and labelled is not None else 1
            shape.append(length if d not in axes else of_groups)
            kept.append(None if dims is None else dims[order[0] if is_first else d])
    names = None if dims is None else tuple(kept)
    labels = None if labelled is None else labelled.names
    return Reduction(source, made, course, tuple(shape), names, labels, weights, others)


def _packing(array: Array, nodata: Any) -> dict[str, Any]:
    """nodata, scale and offset of the array's attributes, as arguments of `make_method`."""
    if "_Unsigned" in array.attrs:
        raise UnsupportedError("attribute _Unsigned cannot be undone while reducing; expected unpack=False")
    try:
        packing = Packing.parse(array.attrs, array.dtype, array.fill_value, array.zarr_format)
    except MetadataError as error:
        raise MetadataError(f"cannot unpack: {error.message}", path=array.store.url) from error
    if nodata is not None:
        return {**packing._asdict(), "nodata": nodata, "others": ()}
    return {**packing._asdict(), "skip_nan": True}

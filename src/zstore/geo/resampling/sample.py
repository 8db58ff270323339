"""Sampling of an array at any positions, with gdalwarp's arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from zstore._ext.resample import warp as kernels
from zstore.geo.resampling.methods import NONE, PLAIN, SKIP_NAN, Array, describe_cells, view_raw

SAMPLINGS = tuple(kernels.METHODS)
# Those that look at the area of a cell of the result, by the places of its corners.
AREAS = ("average", "mode")
# Those that give cells of the source as they are.
PICKING = ("nearest", "mode")
# How many cells a kernel reaches to each side where it is not stretched.
REACHES = {"nearest": 1, "bilinear": 1, "cubic": 2, "average": 1, "mode": 1}
FINE = 0.95


def reach_of(sampling: str, scale: float) -> int:
    """The number of cells read around a position; `scale` is in cells of the result per source cell."""
    return int(np.ceil(REACHES[sampling] / (1 if scale >= FINE else scale))) + 1


def sample(
    source: Array,
    columns: Array,
    rows: Array,
    sampling: str,
    *,
    nodata: Any = None,
    valid: Array | None = None,
    empty: Any = 0,
    scale: tuple[float, float] = (1.0, 1.0),
    corner: tuple[int, int] = (0, 0),
    threads: int = 1,
) -> Array:
    """`source` at the positions (`columns`, `rows`), counted in its cells from the first one's outer corner.

    `nearest` gives the cell that a place lies in, nodata or not; `bilinear` and `cubic` weigh the valid
    cells around it, as gdalwarp does; `average` gives the mean of the valid cells in the box between an
    area's first corner and the one across, each as much as lies in it; `mode` the value of most of them, each
    counted whole, and of several the one whose count, row by row, is there first. A place outside the source,
    in a cell that is not valid, or not finite, gives nodata, or `empty` where there is none. A cubic that
    lacks one of its cells becomes bilinear, unless stretched. Of floats without nodata, NaN is left out, as
    `downsample` does: a place that has a value stays as it is.

    valid  which cells count, beside those that are nodata
    scale  (y, x) cells of the result per cell of the source; below 0.95, kernels are stretched by it
    corner (row, column) of the source's outer corner, where places are counted from elsewhere

    Shapes
        source (..., h, w); columns and rows (H, W), of areas those of the corners, (H + 1, W + 1);
        result (..., H, W).
    Units
        unchanged, type too. Integers round half up and stop at the type's bounds; all goes through float64,
        `nearest` and `mode` excepted.
    Raises
        TypeError: the sampling does not take that data type.
        ValueError: nodata the type cannot hold, places that do not fit.
    """
    picks, more = sampling in PICKING, 1 if sampling in AREAS else 0
    method, hole = "mode" if picks else "bilinear", NONE if nodata is None else nodata
    cells = describe_cells(source.dtype, method, hole)
    layers = int(np.prod(source.shape[:-2], dtype=np.int64))
    shape = (layers, rows.shape[0] - more, rows.shape[1] - more)
    native = source.dtype.newbyteorder("=")
    stack = np.ascontiguousarray(source, native).reshape(layers, *source.shape[-2:])
    holes = None if sampling == "nearest" and valid is None else _valid(stack, cells.skip, nodata, valid)
    if not picks:
        stack = stack.astype(np.float64)
    made, found = np.empty(shape, stack.dtype), np.empty(shape, np.uint8)
    kernels.sample(
        view_raw(stack),
        holes,
        np.ascontiguousarray(columns, np.float64),
        np.ascontiguousarray(rows, np.float64),
        view_raw(made),
        found,
        method=kernels.METHODS[sampling],
        left=corner[1],
        top=corner[0],
        x_scale=scale[1],
        y_scale=scale[0],
        limits=_limits(native) if not picks and native.kind in "iu" else None,
        threads=threads,
    )
    missing = found == 0
    has_missing = bool(missing.any())
    if picks:
        result = made
    else:
        if has_missing:
            made[missing] = 0
        with np.errstate(over="ignore"):
            result = made.astype(native)
    if cells.skip != PLAIN and not picks:
        # A valid cell that happens to come out as nodata becomes the one next to it.
        substitute = np.frombuffer(cells.substitute, cells.type_name)[0]
        if cells.skip != SKIP_NAN:
            result[result == np.asarray(nodata).astype(native)] = substitute
    if has_missing:
        result[missing] = empty if cells.skip == PLAIN else nodata
    result = result.reshape(*source.shape[:-2], *shape[1:])
    if nodata is None and native.kind == "f" and sampling != "nearest" and (lost := np.isnan(result)).any():
        numbers = sample(
            source, columns, rows, sampling, nodata=np.nan, valid=valid, empty=empty, scale=scale,
            corner=corner, threads=threads,
        )  # fmt: skip
        np.copyto(result, numbers, where=lost)
    return result


def _valid(stack: Array, skip: int, nodata: Any, valid: Array | None) -> Array | None:
    """1 for each valid cell, 0 for others; None if all are valid."""
    kept = None if valid is None else np.broadcast_to(valid, stack.shape).astype(np.uint8)
    if skip != PLAIN:
        found = ~np.isnan(stack) if skip == SKIP_NAN else stack != np.asarray(nodata).astype(stack.dtype)
        kept = found.astype(np.uint8) if kept is None else kept & found
    return None if kept is None or kept.all() else np.ascontiguousarray(kept)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the greatest float64 within the type."""
    limits = np.iinfo(dtype)
    # The bounds of eight bytes themselves round up beyond the type.
    most = float(limits.max) if dtype.itemsize < 8 else float(np.nextafter(float(limits.max), 0))
    return float(limits.min), most

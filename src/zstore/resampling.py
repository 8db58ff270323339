"""Smaller versions of an array: each cell made of a window of input cells, with GDAL's arithmetic."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zstore._ext import resample as kernels

__all__ = ["METHODS", "downsample"]

_QUARTERS = {"q1": 1, "med": 2, "q3": 3}
METHODS = (*(name for name in kernels.METHODS if name != "quantile"), *_QUARTERS)

# In the order of the kernels' table.
_CELL_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")
_PLAIN, _SKIP_VALUE, _SKIP_NAN = 0, 1, 2
_THREADING_SIZE = 1 << 20

Array = np.ndarray[Any, np.dtype[Any]]


def downsample(
    array: Any,
    factors: Sequence[int],
    method: str = "average",
    *,
    nodata: Any = None,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """`array` made smaller by a whole factor per dimension, as gdaladdo and gdalwarp would.

    Of the valid cells of each window (those that are not nodata), `average` gives the mean, `rms` the root
    mean square, `sum` the sum, `max` and `min` the extremes, `mode` the most frequent value (among equals
    the first to reach the top count, row by row), `med`, `q1` and `q3` the cell at position ceil(q n) in
    ascending order. `nearest` gives the first cell, nodata or not. A window without a valid cell gives
    nodata; a computed value that happens to equal nodata becomes the next one above (below, at the type's
    maximum). NaN wins unless it is nodata (`mode` counts it like any value).

    Shapes
        array (*n); result ceil(n / factor) per dimension; windows at the far edges use the cells there are.
        Without `out`, the result keeps the memory layout of `array` where no order of cells shows in it.
    Units
        unchanged, type too. Averages of uint8 and uint16 round half up, of other integers half away from
        zero; those of 64-bit integers are exact. Sums stop at the type's bounds. float16 is computed as
        float32.
    Raises
        TypeError: the method does not take that data type (average of bool, text, dates, ...).
        ValueError: unknown method, bad factors or threads, nodata the type cannot hold, unfit `out`.
    Spec
        GeoZarr "resampling_method"; gdaladdo -r on the array padded with nodata (nearest, average, rms,
        mode), gdalwarp -r (sum, max, min, med, q1, q3).
    """
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("cannot downsample a masked array: fill it and name the fill value as nodata")
    source: Array = np.asarray(array)
    if method not in METHODS:
        raise ValueError(f"unknown resampling method {method!r}, expected one of {', '.join(METHODS)}")
    steps = _check_factors(factors, source.shape)
    shape = tuple(-(-size // step) for size, step in zip(source.shape, steps, strict=True))
    thread_count = _count_threads(threads, source.nbytes)
    cells = _describe_cells(source.dtype, method, nodata)
    any_order = method == "nearest" or (method != "mode" and source.dtype.kind in "iu")
    if out is None:
        # Only what a byte order means something for in a kernel: text and records stay as they are.
        dtype = source.dtype.newbyteorder("=") if source.dtype.kind in "iufcmM" else source.dtype
        result: Array = np.empty_like(
            source, dtype, order="K" if any_order else "C", subok=False, shape=shape
        )
    else:
        _check_out(out, shape, source.dtype)
        result = np.empty(shape, source.dtype) if np.may_share_memory(out, source) else out
    if result.size and result.dtype.itemsize:
        if method != "rms" and all(step == 1 for step in steps):
            method = "nearest"
        source_cells, result_cells = source, result
        if source.dtype.kind == "c":
            source_cells, result_cells = _split_complex(source), _split_complex(result)
            steps = (*steps, 1)
        kernels.downsample(
            _view_raw(source_cells),
            _view_raw(result_cells),
            steps,
            method=kernels.METHODS["quantile" if method in _QUARTERS else method],
            quarters=_QUARTERS.get(method, 0),
            cell_type=cells.type_code,
            is_half=source.dtype.char == "e" and method != "nearest",
            source_swapped=_is_swapped(source.dtype),
            out_swapped=_is_swapped(result.dtype),
            skip=cells.skip,
            nodata=cells.nodata,
            substitute=cells.substitute,
            any_order=any_order,
            threads=thread_count,
        )
    if out is not None and result is not out:
        out[...] = result
    return result if out is None else out


class _Cells(NamedTuple):
    """What the kernels need to know about a data type and its nodata."""

    type_code: int
    skip: int = _PLAIN
    nodata: bytes = b""
    substitute: bytes = b""


def _describe_cells(dtype: np.dtype[Any], method: str, nodata: Any) -> _Cells:
    if dtype.hasobject:
        raise TypeError(f"cannot downsample data type {dtype}: its cells are Python objects")
    if method == "nearest":
        return _Cells(0)
    kinds = {"mode": "iufbmM", "average": "iufc", "sum": "iufc"}.get(method, "iuf")
    computed = {"b": "uint8", "m": "int64", "M": "int64"}.get(dtype.kind, dtype.name)
    if dtype.kind == "c":
        computed = {8: "float32", 16: "float64"}.get(dtype.itemsize, dtype.name)
    elif dtype.kind == "f" and dtype.itemsize == 2:
        computed = "float32"
    if dtype.kind not in kinds or computed not in _CELL_TYPES:
        raise TypeError(f"resampling method {method!r} does not take data type {dtype}")
    type_code = _CELL_TYPES.index(computed)
    if nodata is None:
        return _Cells(type_code)
    if dtype.kind == "c":
        raise TypeError(
            f"resampling method {method!r} takes no nodata with data type {dtype}, got {nodata!r}"
        )
    hole = _check_nodata(nodata, dtype)
    if dtype.kind == "f":
        hole = hole.astype(computed)
    skip = _SKIP_NAN if dtype.kind == "f" and np.isnan(hole) else _SKIP_VALUE
    return _Cells(type_code, skip, hole.tobytes(), _substitute(hole, dtype).tobytes())


def _check_nodata(nodata: Any, dtype: np.dtype[Any]) -> Array:
    """Nodata as a 0-d native array of that type; floats are rounded to it, everything else must be in it."""
    native = dtype.newbyteorder("=")
    given = np.asarray(nodata)
    if given.ndim == 0 and (given.dtype.kind in "iufb" or given.dtype.kind == dtype.kind):
        with np.errstate(all="ignore"):
            hole = given.astype(native)
        if dtype.kind == "f":
            fits = bool(np.isfinite(hole) == np.isfinite(given))
        elif dtype.kind in "mM":
            fits = given.dtype.kind == dtype.kind
        else:
            fits = given.item() == hole.item()
        if fits:
            return hole
    raise ValueError(f"nodata {nodata!r} is not a value of data type {dtype}")


def _substitute(hole: Array, dtype: np.dtype[Any]) -> Array:
    """The value next to nodata, which a valid result that equals nodata becomes."""
    if dtype.kind in "iu":
        step = -1 if hole == np.iinfo(hole.dtype).max else 1
        return np.array(int(hole) + step, hole.dtype)
    if dtype.kind != "f":
        return hole
    # Next in the stored type: a float16 that only moved as a float32 would round back.
    value = hole.astype(dtype.newbyteorder("="))
    towards = -np.inf if value >= np.finfo(value.dtype).max else np.inf
    with np.errstate(all="ignore"):
        return np.asarray(np.nextafter(value, value.dtype.type(towards))).astype(hole.dtype)


def _check_factors(factors: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        steps = tuple(operator.index(factor) for factor in factors)
    except TypeError:
        raise ValueError(f"factors {factors!r}: expected one integer per dimension") from None
    if len(steps) != len(shape) or any(step < 1 for step in steps):
        raise ValueError(
            f"factors {factors!r}: expected {len(shape)} integers of at least 1, for shape {shape}"
        )
    return tuple(min(step, max(size, 1)) for step, size in zip(steps, shape, strict=True))


def _count_threads(threads: int | None, size: int) -> int:
    if threads is not None:
        if operator.index(threads) < 1:
            raise ValueError(f"threads {threads!r}: expected at least 1")
        return threads
    if size < _THREADING_SIZE:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_out(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if (
        out.shape != shape
        or out.dtype.newbyteorder("=") != dtype.newbyteorder("=")
        or not out.flags.writeable
    ):
        found = f"{'writable' if out.flags.writeable else 'read-only'} {out.dtype} of shape {out.shape}"
        raise ValueError(f"out is a {found}, expected a writable {dtype} of shape {shape}")


def _is_swapped(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iufcmM" and not dtype.isnative


def _split_complex(array: Array) -> Array:
    """Real and imaginary parts along one more, innermost dimension."""
    part = np.dtype(f"{array.dtype.byteorder}f{array.dtype.itemsize // 2}")
    return np.lib.stride_tricks.as_strided(
        array.view(np.dtype({"names": ["part"], "formats": [part], "itemsize": array.dtype.itemsize}))[
            "part"
        ],
        (*array.shape, 2),
        (*array.strides, part.itemsize),
    )


def _view_raw(array: Array) -> Array:
    """The same cells under a type that every buffer can carry."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")

"""Smaller versions of an array: each cell made of a window of input cells, with GDAL's arithmetic."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zstore.errors import ExtensionError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.geo.resampling.cells import Array, check_out, count_threads, describe_cells
from zstore.geo.resampling.grid import GRIDS, WEIGHTED, Span, result_slice, source_slice
from zstore.geo.resampling.run import Run, gauss_sizes

__all__ = ["METHODS", "Part", "Resampler", "downsample", "plan_part", "trace_box"]


class Part(NamedTuple):
    """A box of a result, and the box of the input it is made of: what lets a result be made piece by piece.

    `shape` is that of the whole input. `plan_part` makes one.
    """

    shape: tuple[int, ...]
    source: tuple[slice, ...]
    result: tuple[slice, ...]


def downsample(
    array: Any,
    factors: Sequence[int],
    method: str = "average",
    *,
    nodata: Any = None,
    out: Array | None = None,
    threads: int | None = None,
    grid: str = "aligned",
    part: Part | None = None,
) -> Array:
    """`array` made smaller by a whole factor per dimension, as gdaladdo and gdalwarp would.

    Of the valid cells of each window (those that are not nodata), `average` gives the mean, `rms` the root
    mean square, `sum` the sum, `max` and `min` the extremes, `mode` the most frequent value (among equals
    the first to reach the top count, row by row), `med`, `q1` and `q3` the cell at position ceil(q n) in
    ascending order. `nearest` gives the first cell, nodata or not. `gauss`, `bilinear`, `cubic`,
    `cubic_spline` and `lanczos` weigh the valid cells of wider windows, which overlap; at the edges of the
    input, they are cut. `cubic` and `lanczos` give nodata where fewer than half the cells of a window
    are valid side by side. A window without a valid cell gives nodata; a computed value that happens to
    equal nodata becomes the next one above (below, at the type's maximum). A plugin's method is known by the
    name it is offered under.

    nodata  the value that means nothing is there. None: of floats NaN, and of other types none; cells of the
            result whose windows hold no NaN are those of "none". "none": every cell counts, and NaN wins
            (`mode` counts it like any value), as with GDAL where a raster has no nodata. It also wins where
            another value is nodata
    grid    "aligned": a cell covers `factor` cells, the last one of a row those that are left. "gdal": the
            result covers the input's extent, each cell size / result size cells; where the factor divides
            the size, that is the same
    part    which part of a larger input `array` is, and which part of the result is wanted (`plan_part`);
            the numbers are those that the whole would give

    Shapes
        array (*n); result ceil(n / factor) per dimension, or that of `part.result`.
        Without `out`, the result keeps the memory layout of `array` where no order of cells shows in it.
    Units
        unchanged, type too. Averages of uint8 and uint16 round half up, of other integers half away from
        zero; those of 64-bit integers are exact on whole windows, all else goes through float64. Sums and
        filters stop at the type's bounds. float16 is computed as float32.
    Raises
        TypeError: the method does not take that data type (average of bool, text, dates, ...).
        ValueError: bad factors, grid, part or threads, nodata the type cannot hold, unfit `out`.
        UnknownExtensionError: nobody offers the method.
        UnsupportedError: a plugin's method, with a grid, a part or threads.
    Spec
        GeoZarr "resampling_method"; gdaladdo -r (on the array padded with nodata, where the grid is
        "aligned": nearest, average, rms, mode, gauss, bilinear, cubic, cubic_spline, lanczos), gdalwarp -r
        (sum, max, min, med, q1, q3).
    """
    resampler: Any = resamplers.resolve(method)()
    if isinstance(resampler, Resampler):
        return resampler(array, factors, nodata=nodata, out=out, threads=threads, grid=grid, part=part)
    options = {"threads": threads, "grid": None if grid == "aligned" else grid, "part": part}
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(
                f"resampling method {method!r} is a plugin's, which takes no {name} ({value!r})"
            )
    source = np.asarray(array)
    shape = _result_shape(source.shape, _check_factors(factors, source.shape))
    result = np.asarray(resampler(source, factors, nodata=nodata, out=out))
    if result.shape != shape:
        raise ExtensionError(
            f"resampling method {method!r} gave shape {result.shape} for {source.shape} by {factors!r}, "
            f"expected {shape}"
        )
    return result


def plan_part(
    shape: Sequence[int],
    factors: Sequence[int],
    method: str,
    result: Sequence[slice],
    *,
    grid: str = "aligned",
) -> Part:
    """The part of an array of that `shape` that the box `result` of its smaller version is made of.

    Windows of the filters reach over the box's edges, so that neighbouring parts share cells.

    Raises
        ValueError: bad factors or grid, or a box that is not in the result.
        UnsupportedError: a plugin's method, which does not say what it looks at.
    """
    resampler = _built_in(method)
    whole = tuple(operator.index(n) for n in shape)
    spans = _spans(whole, _check_factors(factors, whole), grid, tuple(result))
    gauss = gauss_sizes(spans)
    boxes = (source_slice(span, resampler.method, size) for span, size in zip(spans, gauss, strict=True))
    return Part(whole, tuple(boxes), tuple(slice(span.begin, span.end) for span in spans))


def trace_box(
    shape: Sequence[int],
    factors: Sequence[int],
    method: str,
    source: Sequence[slice],
    *,
    grid: str = "aligned",
) -> tuple[slice, ...]:
    """The box of the result that depends on the box `source` of an array of that `shape`.

    Raises
        ValueError: bad factors or grid, or a box that is not in the array.
        UnsupportedError: a plugin's method, which does not say what it looks at.
    """
    resampler = _built_in(method)
    whole = tuple(operator.index(n) for n in shape)
    _check_box(source, whole, f"array of shape {whole}")
    spans = _spans(whole, _check_factors(factors, whole), grid, None)
    return tuple(
        result_slice(span, resampler.method, gauss, box.start, box.stop)
        for span, gauss, box in zip(spans, gauss_sizes(spans), source, strict=True)
    )


def _built_in(method: str) -> type[Resampler]:
    resampler = resamplers.resolve(method)
    if isinstance(resampler, type) and issubclass(resampler, Resampler):
        return resampler
    raise UnsupportedError(f"resampling method {method!r} is a plugin's, which cannot be made in parts")


class Resampler:
    """A built-in method. A plugin's is any class whose instances can be called with these arguments.

    Of a plugin, only `nodata` and `out` are asked for.
    """

    method: ClassVar[str]

    def __call__(
        self,
        array: Any,
        factors: Sequence[int],
        *,
        nodata: Any = None,
        out: Array | None = None,
        threads: int | None = None,
        grid: str = "aligned",
        part: Part | None = None,
    ) -> Array:
        """`array` made smaller by `factors`, as `downsample` does."""
        # Nobody has a masked array before numpy.ma is loaded, which takes as long as to resample 100 MiB.
        if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
            raise TypeError("cannot downsample a masked array: fill it and name the fill value as nodata")
        source: Array = np.asarray(array)
        method, steps = self.method, _check_factors(factors, source.shape if part is None else part.shape)
        if part is not None:
            _check_part(part, source.shape, factors, method, grid)
        spans = _spans(source.shape if part is None else part.shape, steps, grid, part and part.result)
        shape = tuple(span.end - span.begin for span in spans)
        if grid != "aligned" and all(span.size % span.factor == 0 for span in spans):
            spans = [span._replace(grid="aligned") for span in spans]
        thread_count = count_threads(threads, source, shape, method)
        cells = describe_cells(source.dtype, method, nodata)
        is_regular = method not in WEIGHTED and all(span.grid == "aligned" for span in spans)
        any_order = is_regular and (method == "nearest" or (method != "mode" and source.dtype.kind in "iu"))
        result = _make_result(source, shape, out, any_order=any_order)
        if result.size and result.dtype.itemsize:
            offsets = [0] * len(spans) if part is None else [box.start for box in part.source]
            run = Run(method, spans, offsets, cells, thread_count, any_order)
            run.fill(source, result)
        if out is not None and result is not out:
            out[...] = result
        return result if out is None else out


def _make_result(source: Array, shape: tuple[int, ...], out: Array | None, *, any_order: bool) -> Array:
    if out is not None:
        check_out(out, shape, source.dtype)
        return np.empty(shape, source.dtype) if np.may_share_memory(out, source) else out
    # Only what a byte order means something for in a kernel: text and records stay as they are.
    dtype = source.dtype.newbyteorder("=") if source.dtype.kind in "iufcmM" else source.dtype
    return np.empty_like(source, dtype, order="K" if any_order else "C", subok=False, shape=shape)


def _check_factors(factors: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        steps = tuple(operator.index(factor) for factor in factors)
    except TypeError:
        raise ValueError(f"factors {factors!r}: expected one integer per dimension") from None
    if len(steps) != len(shape) or any(step < 1 for step in steps):
        raise ValueError(
            f"factors {factors!r}: expected {len(shape)} integers of at least 1, for shape {shape}"
        )
    return steps


def _result_shape(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-size // step) for size, step in zip(shape, steps, strict=True))


def _spans(
    shape: tuple[int, ...], steps: tuple[int, ...], grid: str, wanted: tuple[slice, ...] | None
) -> list[Span]:
    if grid not in GRIDS:
        raise ValueError(f"unknown grid {grid!r}, expected one of {', '.join(GRIDS)}")
    if wanted is None:
        return [Span(n, f, grid, 0, -(-n // f)) for n, f in zip(shape, steps, strict=True)]
    whole = _result_shape(shape, steps)
    _check_box(wanted, whole, f"result of shape {whole}")
    return [Span(n, f, grid, box.start, box.stop) for n, f, box in zip(shape, steps, wanted, strict=True)]


def _check_box(boxes: Sequence[slice], whole: tuple[int, ...], what: str) -> None:
    is_inside = len(boxes) == len(whole) and all(
        box.step in (None, 1)
        and isinstance(box.start, int)
        and isinstance(box.stop, int)
        and 0 <= box.start <= box.stop <= size
        for box, size in zip(boxes, whole, strict=True)
    )
    if not is_inside:
        raise ValueError(f"box {tuple(boxes)!r}: expected slices inside the {what}")


def _check_part(part: Part, shape: tuple[int, ...], factors: Sequence[int], method: str, grid: str) -> None:
    expected = plan_part(part.shape, factors, method, part.result, grid=grid)
    found = tuple(box.stop - box.start for box in expected.source)
    if part.source != expected.source or found != shape:
        raise ValueError(
            f"part {part.source} of shape {shape} does not make {part.result}: expected {expected.source}"
        )


def _offered(method: str, what: str) -> type[Resampler]:
    name = method.title().replace("_", "")
    return type(name, (Resampler,), {"method": method, "__doc__": what, "__module__": __name__})


Nearest = _offered("nearest", "The first cell of each window.")
Average = _offered("average", "The mean of the valid cells.")
Bilinear = _offered("bilinear", "Valid cells weighed by a triangle.")
Cubic = _offered("cubic", "Valid cells weighed by Catmull and Rom's cubic.")
CubicSpline = _offered("cubic_spline", "Valid cells weighed by the cubic B-spline.")
Lanczos = _offered("lanczos", "Valid cells weighed by Lanczos's windowed sinc of three lobes.")
Mode = _offered("mode", "The most frequent valid value.")
Max = _offered("max", "The greatest valid value.")
Min = _offered("min", "The least valid value.")
Med = _offered("med", "The lower median of the valid cells.")
Sum = _offered("sum", "The sum of the valid cells.")
Q1 = _offered("q1", "The first quartile of the valid cells.")
Q3 = _offered("q3", "The third quartile of the valid cells.")
Rms = _offered("rms", "The root mean square of the valid cells.")
Gauss = _offered("gauss", "Valid cells weighed by a binomial kernel.")

METHODS = tuple(offered.method for offered in Resampler.__subclasses__())

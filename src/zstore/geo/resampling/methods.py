"""Smaller versions of an array: each cell made of a window of input cells, with GDAL's arithmetic.

There are two grids. On "aligned", a cell of the result covers `factor` cells, and the last one those that are
left. On "gdal", the result covers the extent of the input, so that a cell covers size / result size cells.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zstore._ext.resample import blocks as kernels
from zstore.base.system import processor_count
from zstore.errors import ExtensionError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.model.packing import Circle

# Windows along one dimension, and the weights of their cells

GRIDS = ("aligned", "gdal")

Array = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Span(NamedTuple):
    """One dimension: `size` cells made smaller by `factor`; of the result, `begin` to `end` are wanted."""

    size: int
    factor: int
    grid: str
    begin: int
    end: int

    @property
    def result_size(self) -> int:
        """The number of cells of the whole result."""
        return -(-self.size // self.factor)

    @property
    def ratio(self) -> float:
        """The number of input cells per cell of the result."""
        return self.size / self.result_size if self.grid == "gdal" else float(self.factor)

    @property
    def outputs(self) -> Array:
        """The indices of the wanted cells."""
        return np.arange(self.begin, self.end)


class Weights(NamedTuple):
    """Windows with weights, in the kernels' form: one item per wanted output.

    Between `alike_begin` and `alike_end` windows have equal weights and lie `step` cells apart.
    """

    starts: Array
    lengths: Array
    reach: Array
    weights: Floats
    total: Floats
    taps: int
    alike_begin: int
    alike_end: int
    step: int


def _bilinear(x: Floats) -> Floats:
    return np.where(np.abs(x) < 1, 1 - np.abs(x), 0)


def _cubic(x: Floats) -> Floats:
    x = np.abs(x)
    near, far = x * x * (1.5 * x - 2.5) + 1, x * (x * (2.5 - 0.5 * x) - 4) + 2
    return np.where(x <= 1, near, np.where(x <= 2, far, 0))


def _cubic_spline(x: Floats) -> Floats:
    x = np.abs(x)
    # What rounding leaves at the rim is no weight: it would make a window of holes a valid one.
    near, far = 2 / 3 + x * x * (0.5 * x - 1), np.where(x < 2 - 1e-5, (2 - x) ** 3 / 6, 0)
    return np.where(x <= 1, near, far)


def _lanczos(x: Floats) -> Floats:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


# Each filter as a function of the distance in cells of the result, and the distance at which it ends.
FILTERS: dict[str, tuple[Callable[[Floats], Floats], int]] = {
    "bilinear": (_bilinear, 1),
    "cubic": (_cubic, 2),
    "cubic_spline": (_cubic_spline, 2),
    "lanczos": (_lanczos, 3),
}
# No window reaches further from its cell of the result than this, in cells of the result.
MARGIN = 8
# Methods whose windows have weights even where a window is a whole number of cells.
WEIGHTED = (*FILTERS, "gauss")


def gauss_size(ratio: float) -> int:
    """The length of the binomial kernel, in cells."""
    rounded = int(0.5 + ratio)
    return 3 if rounded <= 2 else 5 if rounded <= 4 else 7


def source_slice(span: Span, method: str, gauss: int) -> slice:
    """The cells from which the wanted part of the result is made."""
    if span.begin >= span.end or span.size == 0:
        return slice(0, 0)
    if span.factor == 1:
        return slice(span.begin, span.end)
    first, last = (
        _extent(span._replace(begin=i, end=i + 1), method, gauss) for i in (span.begin, span.end - 1)
    )
    return slice(int(first[0][0]), int(last[1][0]))


def result_slice(span: Span, method: str, gauss: int, begin: int, end: int) -> slice:
    """The cells of the result whose windows contain any of the cells from `begin` to `end`."""
    if begin >= end:
        return slice(0, 0)
    if span.factor == 1:
        return slice(begin, end)
    # Windows follow one another: only those around the two ends need be looked at, however many there are.
    near, far = (_around(span, cell) for cell in (begin, end))
    touched = np.flatnonzero(_extent(near, method, gauss)[1] > begin) + near.begin
    reached = np.flatnonzero(_extent(far, method, gauss)[0] < end) + far.begin
    if not touched.size or not reached.size or touched[0] > reached[-1]:
        return slice(0, 0)
    return slice(int(touched[0]), int(reached[-1]) + 1)


def _around(span: Span, cell: int) -> Span:
    """The wanted outputs whose windows may begin or end near a cell."""
    middle = int(cell / span.ratio)
    begin = max(0, min(middle, span.result_size - 1) - MARGIN)
    return span._replace(begin=begin, end=min(middle + MARGIN, span.result_size))


def _extent(span: Span, method: str, gauss: int) -> tuple[Array, Array]:
    """(first cell, cell after the last) per wanted output."""
    outputs, ratio, size = span.outputs, span.ratio, span.size
    if method in FILTERS:
        return _filter_extent(span, FILTERS[method][1])[:2]
    if method == "gauss":
        return _gauss_extent(span, gauss)[:2]
    if span.grid == "aligned":
        begin = outputs * min(span.factor, size)
        return begin, np.minimum(begin + min(span.factor, size), size)
    if method == "nearest":
        begin = np.minimum((0.5 + outputs * ratio).astype(np.int64), size - 1)
        return begin, begin + 1
    begin = (outputs * ratio + 1e-8).astype(np.int64)
    end = np.ceil((outputs + 1) * ratio - 1e-8).astype(np.int64)
    return begin, np.minimum(np.maximum(end, begin + 1), size)


def place_windows(span: Span, method: str, offset: int) -> tuple[Array, Array]:
    """(first cell, cell count) of every wanted window, cells counted from `offset`."""
    begin, end = _extent(span, method, 0)
    return begin - offset, end - begin


def _filter_extent(span: Span, radius: int) -> tuple[Array, Array, Array]:
    """Begin and end of the windows, and their length in cells for an input of whole windows."""
    # A division by the scale, not a product with the ratio: as in GDAL, where the last bit may add a cell.
    centre, reach = (span.outputs + 0.5) * span.ratio, radius / (1 / span.ratio)
    begin = np.maximum(np.floor(centre - reach + 0.5), 0)
    end = np.floor(centre + reach + 0.5)
    padded = float(span.result_size * span.factor if span.grid == "aligned" else span.size)
    asked = np.minimum(np.minimum(end, padded) - begin, 2.0**62)
    return begin.astype(np.int64), np.minimum(end, span.size).astype(np.int64), asked.astype(np.int64)


def weigh_filter(span: Span, method: str, offset: int) -> Weights:
    """Windows of a filter that is stretched by the ratio, cut at the edges and made to sum to one."""
    kernel, radius = FILTERS[method]
    begin, end, asked = _filter_extent(span, radius)
    count, centre = end - begin, (span.outputs + 0.5) * span.ratio
    cells = begin[:, None] + np.arange(int(count.max()))
    weights = kernel((cells - centre[:, None] + 0.5) * (1 / span.ratio))
    weights[cells >= end[:, None]] = 0
    weights /= weights.sum(1, keepdims=True)
    reach = radius * span.ratio
    whole = (centre - reach >= -0.5) & (np.floor(centre + reach + 0.5) <= span.size)
    return _weights(span, begin - offset, count, asked, weights, whole)


def _gauss_extent(span: Span, length: int) -> tuple[Array, Array, Array]:
    """Begin and end of the windows, and their first item in the binomial kernel."""
    begin = np.floor(0.5 + span.outputs * span.ratio)
    size = np.floor(0.5 + (span.outputs + 1) * span.ratio) + 1 - begin
    begin += np.floor(size / 2) - length // 2
    shift = np.maximum(-begin, 0)
    # A narrow window at the far edge may end before the kernel begins: then its last cell stands for it.
    late = begin >= span.size
    begin = np.where(late, span.size - 1, np.maximum(begin, 0)).astype(np.int64)
    end = np.minimum(begin + length - shift.astype(np.int64), span.size)
    return begin, end, np.where(late, 0, shift).astype(np.int64)


def weigh_gauss(span: Span, length: int, offset: int) -> Weights:
    """Windows of a binomial kernel; its weights stay whole numbers."""
    binomial = np.array({3: [1, 2, 1], 5: [1, 4, 6, 4, 1], 7: [1, 6, 15, 20, 15, 6, 1]}[length], float)
    begin, end, shift = _gauss_extent(span, length)
    count, taps = end - begin, np.arange(length)
    weights = np.where(taps < count[:, None], binomial[np.minimum(shift[:, None] + taps, length - 1)], 0)
    return _weights(span, begin - offset, count, count, weights, count == length)


def weigh_fractions(span: Span, offset: int) -> Weights:
    """Windows of size / result size cells: the first and last cell weigh by their share inside."""
    begin, end = _extent(span, "average", 0)
    count, ratio = end - begin, span.ratio
    left = np.where(count == 1, 1.0, 1 - (span.outputs * ratio - begin))
    right = 1 - (end - (span.outputs + 1) * ratio)
    taps = np.arange(int(count.max()))
    weights = (taps < count[:, None]).astype(float)
    weights[:, 0] = left
    last = np.flatnonzero(count > 1)
    weights[last, count[last] - 1] = right[last]
    # In this order, for the same last bit as GDAL's.
    total = np.where(count > 1, (left + (count - 2)) + right, left)
    return _weights(span, begin - offset, count, count, weights, np.ones(len(begin), bool))._replace(
        total=total
    )


def _weights(span: Span, first: Array, count: Array, reach: Array, weights: Floats, whole: Array) -> Weights:
    ratio, alike = span.ratio, np.flatnonzero(whole)
    is_regular = ratio.is_integer() and len(alike) > 0 and bool((count[alike] == count[alike[0]]).all())
    return Weights(
        np.ascontiguousarray(first, np.int64),
        np.ascontiguousarray(count, np.int64),
        np.ascontiguousarray(reach, np.int64),
        np.ascontiguousarray(weights),
        weights.sum(1),
        weights.shape[1],
        int(alike[0]) if is_regular else 0,
        int(alike[-1]) + 1 if is_regular else 0,
        int(ratio) if is_regular else 1,
    )


def are_pairs(weights: Sequence[Weights]) -> bool:
    """Whether all windows along the last dimension are two cells side by side."""
    last = weights[-1]
    return bool((last.lengths == 2).all()) and bool((np.diff(last.starts) == 2).all())


# Data types, nodata and memory in the form that the kernels take

# In the order of the kernels' table.
CELL_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")
NONE = "none"  # nodata, of an array in which NaN is a value too
QUICK = ("average", "sum", "max", "min")  # no slower than memory
THREADING_SIZE = 1 << 20  # bytes of input from which a second thread pays
# What kernels leave out: nothing, one value, NaN, or NaN where no nodata is known.
PLAIN, SKIP_VALUE, SKIP_NAN, SKIP_STRAY_NAN = 0, 1, 2, 3
NAN_BYTES = {name: np.array(np.nan, name).tobytes() for name in ("float32", "float64")}
RAW_TYPES = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
# The kinds of data types that a method takes; integers and floats where none are listed.
KINDS = {"mode": "iufbmM", "average": "iufc", "rms": "iufc", "sum": "iufc"}


class Cells(NamedTuple):
    """A data type and its nodata, in the kernels' form."""

    type_code: int
    skip: int = PLAIN
    nodata: bytes = b""
    substitute: bytes = b""

    @property
    def type_name(self) -> str:
        """The type of the computation."""
        return CELL_TYPES[self.type_code]


def describe_cells(dtype: np.dtype[Any], method: str, nodata: Any) -> Cells:
    """`dtype` and `nodata` in the form for the kernels of `method`.

    With nodata None, NaN is left out; with "none", nothing is.

    Raises
        TypeError: the method does not take that type, or none with nodata.
        ValueError: nodata is no value of that type.
    """
    plain = _describe_plain(dtype, method)
    if method == "nearest" or (isinstance(nodata, str) and nodata == NONE):
        return plain
    if nodata is None:
        # Filters and the mode come out the same where they could leave NaN out and there is none. All others
        # give NaN for a window that holds one, which tells where to leave it out.
        skip = SKIP_NAN if method == "mode" or method in FILTERS else SKIP_STRAY_NAN
        missing = NAN_BYTES[plain.type_name] if dtype.kind == "f" else b""
        return Cells(plain.type_code, skip, missing, missing) if missing else plain
    if dtype.kind == "c":
        raise TypeError(
            f"resampling method {method!r} takes no nodata with data type {dtype}, got {nodata!r}"
        )
    hole = _check_nodata(nodata, dtype)
    if dtype.kind == "f":
        hole = hole.astype(plain.type_name)
    skip = SKIP_NAN if dtype.kind == "f" and np.isnan(hole) else SKIP_VALUE
    return Cells(plain.type_code, skip, hole.tobytes(), _substitute(hole, dtype).tobytes())


@functools.lru_cache(256)
def _describe_plain(dtype: np.dtype[Any], method: str) -> Cells:
    if dtype.hasobject:
        raise TypeError(f"cannot downsample data type {dtype}: its cells are Python objects")
    if method == "nearest":
        return Cells(0)
    computed = {"b": "uint8", "m": "int64", "M": "int64"}.get(dtype.kind, dtype.name)
    if dtype.kind == "c":
        computed = {8: "float32", 16: "float64"}.get(dtype.itemsize, dtype.name)
    elif dtype.kind == "f" and dtype.itemsize == 2:
        computed = "float32"
    if dtype.kind not in KINDS.get(method, "iuf") or computed not in CELL_TYPES:
        raise TypeError(f"resampling method {method!r} does not take data type {dtype}")
    return Cells(CELL_TYPES.index(computed))


def _check_nodata(nodata: Any, dtype: np.dtype[Any]) -> Array:
    """Nodata as a 0-d native array of that type; floats are rounded to it, others must be in range."""
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
    """The value next to nodata, to which a valid result that equals nodata is changed."""
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


def count_threads(threads: int | None, source: Array, shape: tuple[int, ...], method: str) -> int:
    """The number of threads to use: the requested one, else as many as pay.

    Raises
        ValueError: fewer than one were asked for.
    """
    if threads is not None:
        if operator.index(threads) < 1:
            raise ValueError(f"threads {threads!r}: expected at least 1")
        return threads
    # nearest only moves memory, and touches little of the input: a quarter of what it writes counts; the
    # quick methods are done with a few MiB before another thread comes
    size = source.itemsize * math.prod(shape) // 4 if method == "nearest" else source.nbytes
    if method in QUICK and source.itemsize <= 4:
        size //= 8
    if size < THREADING_SIZE:
        return 1
    return processor_count()


def check_out(out: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check that `out` can take a result of that shape and type, whatever its byte order.

    Raises
        ValueError: it cannot.
    """
    if (
        out.shape != shape
        or out.dtype.newbyteorder("=") != dtype.newbyteorder("=")
        or not out.flags.writeable
    ):
        found = f"{'writable' if out.flags.writeable else 'read-only'} {out.dtype} of shape {out.shape}"
        raise ValueError(f"out is a {found}, expected a writable {dtype} of shape {shape}")


def is_swapped(dtype: np.dtype[Any]) -> bool:
    """Whether cells of `dtype` are stored in the other byte order."""
    return dtype.kind in "iufcmM" and not dtype.isnative


def split_complex(array: Array) -> Array:
    """Real and imaginary parts along one more, innermost dimension."""
    part = np.dtype(f"{array.dtype.byteorder}f{array.dtype.itemsize // 2}")
    return np.lib.stride_tricks.as_strided(
        array.view(np.dtype({"names": ["part"], "formats": [part], "itemsize": array.dtype.itemsize}))[
            "part"
        ],
        (*array.shape, 2),
        (*array.strides, part.itemsize),
    )


def view_raw(array: Array) -> Array:
    """The same cells under a type that every buffer can carry."""
    size = array.dtype.itemsize
    return array.view(RAW_TYPES.get(size, f"V{size}"))


# One call of a kernel

_QUARTERS = {"q1": 1, "med": 2, "q3": 3}
_PURPOSES = {"average": "mean", "gauss": "mean", "rms": "root mean", "sum": "sum"}


class Run(NamedTuple):
    """One call of a method: the windows along each dimension, the kind of cells, the threads.

    offsets    where the source begins in the whole input, per dimension
    any_order  whether the order of cells in memory does not show in the result
    """

    method: str
    spans: list[Span]
    offsets: list[int]
    cells: Cells
    threads: int
    any_order: bool

    def fill(self, source: Array, result: Array) -> None:
        """Compute `result` from `source`."""
        method, is_aligned = self.method, all(span.grid == "aligned" for span in self.spans)
        if all(span.factor == 1 for span in self.spans) and method != "rms":
            result[...] = source
        elif method == "nearest":
            self._pick(source, result)
        elif method in WEIGHTED or (not is_aligned and method in _PURPOSES):
            self._weigh(source, result)
        else:
            self._combine(source, result, None if is_aligned else self._windows())

    def _pick(self, source: Array, result: Array) -> None:
        """Compute the result from the first cell of each window."""
        if all(span.grid == "aligned" for span in self.spans):
            # There a vector holds several cells of the result; beyond, both this and numpy wait for memory.
            size, factor = source.dtype.itemsize, self.spans[-1].factor
            if source.strides[-1] == size and (size, factor) in {(1, 2), (2, 2), (4, 2), (2, 4), (4, 4)}:
                self._combine(source, result, None)
            else:
                result[...] = source[
                    tuple(slice(None, None, min(span.factor, span.size)) for span in self.spans)
                ]
            return
        for axis, (span, offset) in enumerate(zip(self.spans, self.offsets, strict=True)):
            if span.factor > 1:
                source = source.take(place_windows(span, "nearest", offset)[0], axis)
        result[...] = source

    def _windows(self) -> list[tuple[Array, Array] | None]:
        """(first cells, cell counts) of the windows per dimension; None along unchanged ones."""
        return [
            None if span.factor == 1 else place_windows(span, self.method, offset)
            for span, offset in zip(self.spans, self.offsets, strict=True)
        ]

    def _combine(
        self, source: Array, result: Array, windows: list[tuple[Array, Array] | None] | None
    ) -> None:
        """Fill `result`, each cell from its own window; `windows` is None where all have the same size."""
        steps = [min(span.factor, max(span.size, 1)) for span in self.spans]
        if windows is not None:
            steps = [1 if window is None else int(window[1].max()) for window in windows]
        steps += [1] if source.dtype.kind == "c" else []
        cells, result_cells, options = self._describe(source, result)
        kernels.downsample(
            cells,
            result_cells,
            tuple(steps),
            method=kernels.METHODS["quantile" if self.method in _QUARTERS else self.method],
            quarters=_QUARTERS.get(self.method, 0),
            any_order=self.any_order,
            windows=windows,
            **options,
        )

    def _describe(self, source: Array, result: Array) -> tuple[Array, Array, dict[str, Any]]:
        """(`source` and `result` in the kernels' form, the arguments that describe their cells)."""
        options = {
            "cell_type": self.cells.type_code,
            "is_half": source.dtype.char == "e" and self.method != "nearest",
            "source_swapped": is_swapped(source.dtype),
            "out_swapped": is_swapped(result.dtype),
            "skip": self.cells.skip,
            "nodata": self.cells.nodata,
            "substitute": self.cells.substitute,
            "threads": self.threads,
        }
        if source.dtype.kind == "c":
            source, result = split_complex(source), split_complex(result)
        return view_raw(source), view_raw(result), options

    def _weigh(self, source: Array, result: Array) -> None:
        """Make every cell from a window of weighted cells."""
        tables = self._tables() + ([None] if source.dtype.kind == "c" else [])
        cells, result_cells, options = self._describe(source, result)
        computed = np.dtype(self.cells.type_name)
        is_filter = self.method in FILTERS
        small = ("uint8", "int8", "uint16", "int16", "float32") if is_filter else ("int8", "int16")
        kernels.weigh(
            cells,
            result_cells,
            tables,
            purpose=kernels.PURPOSES["filter" if is_filter else _PURPOSES[self.method]],
            through_float=computed.name in small and self.method not in ("gauss", "sum"),
            nearest_square=computed.name in ("uint8", "uint16"),
            needs_runs=self.method in ("cubic", "lanczos"),
            **options,
        )

    def _tables(self) -> list[Weights | None]:
        """The windows and weights per dimension; None along unchanged ones."""
        gauss = gauss_sizes(self.spans)
        tables: list[Weights | None] = []
        for span, offset, length in zip(self.spans, self.offsets, gauss, strict=True):
            if span.factor == 1:
                tables.append(None)
            elif self.method in FILTERS:
                tables.append(weigh_filter(span, self.method, offset))
            elif self.method == "gauss":
                tables.append(weigh_gauss(span, length, offset))
            else:
                tables.append(weigh_fractions(span, offset))
        weighted = [table for table in tables if table is not None]
        if (
            self.method in ("average", "rms")
            and self.cells.skip in (PLAIN, SKIP_STRAY_NAN)
            and len(weighted) == 2
            and are_pairs(weighted)
        ):
            # GDAL takes a short cut there, and with it all four cells of a 2 x 2 window for whole ones
            rows = weighted[0]
            pairs = rows.lengths == 2
            rows.weights[pairs, :2] = 1
            rows.total[pairs] = 2
        return tables


def gauss_sizes(spans: Sequence[Span]) -> list[int]:
    """The length of the gauss kernel per dimension; as in GDAL, columns use that of the rows."""
    resampled = [span for span in spans if span.factor > 1]
    rows = resampled[-2:-1] or resampled
    return [gauss_size(rows[0].ratio if span.grid == "gdal" and rows else span.ratio) for span in spans]


# Methods


class Piece(NamedTuple):
    """A box of a result, and the box of its input, by which a result can be made piece by piece.

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
    part: Piece | None = None,
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
) -> Piece:
    """The part of an array of that `shape` from which the box `result` of its smaller version is made.

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
    return Piece(whole, tuple(boxes), tuple(slice(span.begin, span.end) for span in spans))


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


def on_circle(
    resample: Callable[..., Array],
    circle: Circle,
    array: Array,
    factors: Sequence[int],
    *,
    nodata: Any = None,
    **options: Any,
) -> Array:
    """Directions or phases made smaller by the resampling of their unit vectors; the same type.

    Where vectors cancel each other out there is nodata; integers without it have the first direction then.
    """
    vectors = circle.vectors(array)
    if nodata is not None:
        vectors[array == nodata] = complex(np.nan, np.nan)
    x, y = (
        resample(np.ascontiguousarray(side), factors, nodata=np.nan, **options)
        for side in (vectors.real, vectors.imag)
    )
    numbers, dtype = circle.numbers(x + 1j * y), array.dtype.newbyteorder("=")
    lost, end = np.isnan(numbers), circle.first + circle.turn
    if dtype.kind == "f":
        made = numbers.astype(dtype)
        made[made >= end] = circle.first
        hole, beside = (np.nan, 0) if nodata is None else (nodata, np.nextafter(dtype.type(nodata), np.inf))
    else:
        numbers = np.floor(np.where(lost, circle.first, numbers) + 0.5)
        made = np.where(numbers >= end, numbers - circle.turn, numbers).astype(dtype)
        hole, beside = nodata, 0 if nodata is None else nodata + (1 if nodata + 1 < end else -1)
    if nodata is not None:
        made[made == nodata] = beside
    if hole is None:
        options = {name: value for name, value in options.items() if name != "threads"}
        hole = downsample(array, factors, "nearest", **options)[lost] if lost.any() else 0
    made[lost] = hole
    return made


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
        part: Piece | None = None,
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


def _check_part(part: Piece, shape: tuple[int, ...], factors: Sequence[int], method: str, grid: str) -> None:
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

"""One resampling call: the choice of its kernel, and the kernel's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zstore._ext.resample import blocks as kernels
from zstore.geo.resampling.cells import (
    PLAIN,
    SKIP_STRAY_NAN,
    Array,
    Cells,
    is_swapped,
    split_complex,
    view_raw,
)
from zstore.geo.resampling.grid import (
    FILTERS,
    WEIGHTED,
    Span,
    Weights,
    are_pairs,
    gauss_size,
    place_windows,
    weigh_filter,
    weigh_fractions,
    weigh_gauss,
)

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
        """Take the first cell of each window."""
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
        """(first cells, cell counts) of the windows per dimension; None along those that stay as they are."""
        return [
            None if span.factor == 1 else place_windows(span, self.method, offset)
            for span, offset in zip(self.spans, self.offsets, strict=True)
        ]

    def _combine(
        self, source: Array, result: Array, windows: list[tuple[Array, Array] | None] | None
    ) -> None:
        """Make every cell of one window; `windows` are their places where they are no whole factors."""
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
        """(`source` and `result` as kernels take them, the arguments that describe their cells)."""
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
        """Make every cell of a window whose cells have weights."""
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
        """The windows and weights per dimension; None along those that stay as they are."""
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
    """The length of the gauss kernel per dimension; GDAL has that of the rows for the columns too."""
    resampled = [span for span in spans if span.factor > 1]
    rows = resampled[-2:-1] or resampled
    return [gauss_size(rows[0].ratio if span.grid == "gdal" and rows else span.ratio) for span in spans]

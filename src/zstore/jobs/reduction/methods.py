"""Methods of reduction: the state of a cell, joining items and other states to it, and the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zstore._ext.reduce import fold as kernels
from zstore.base.system import map_zeros
from zstore.errors import UnsupportedError
from zstore.extensions.builtin import REDUCTIONS
from zstore.model.packing import Circle

Items = np.ndarray[Any, Any]

# The data types of the kernels, in the order of their table.
ITEM_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")
# The methods for complex numbers (part by part), and for times and durations.
OF_COMPLEX = ("sum", "mean", "count")
OF_TIMES = ("min", "max", "count", "argmin", "argmax")
NONE = "none"
# The methods of weighted items: (the weighted item, its weight) is summed as a complex number is.
OF_WEIGHTED = ("sum", "mean")
# How many cells are joined or finished at a time.
STRETCH = 1 << 15
# From so many bytes on, the zeros of new cells are memory of their own.
MAPPED_SIZE = 1 << 20
# From so many items on, a sum of 32-bit items, or of the squares of 16-bit ones, may not fit 64 bits.
MANY = 1 << 31

FOLDS = {
    "sum": "sum",
    "mean": "sum",
    "min": "least",
    "max": "greatest",
    "count": "counts",
    "any": "counts",
    "all": "counts",
    "argmin": "first_least",
    "argmax": "first_greatest",
}
TURNED = {"min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin"}
WIDE = np.dtype([("low", np.uint64), ("high", np.int64)])


@dataclass(frozen=True)
class CellStates:
    """The state of each cell of a result: up to two numbers, whose meaning is the method's, and a count.

    b       None where the method keeps one number
    count   of valid items; None where no items are left out
    """

    a: Items
    b: Items | None
    count: Items | None

    @property
    def planes(self) -> list[Items]:
        """The arrays of the states: numbers and counts, without those that the method lacks."""
        return [plane for plane in (self.a, self.b, self.count) if plane is not None]

    def part(self, cells: slice) -> CellStates:
        """The state of some cells."""
        b, count = (None if plane is None else plane[cells] for plane in (self.b, self.count))
        return CellStates(self.a[cells], b, count)

    def copy(self) -> CellStates:
        """The same state in memory of its own."""
        b, count = (None if plane is None else plane.copy() for plane in (self.b, self.count))
        return CellStates(self.a.copy(), b, count)


@dataclass(frozen=True)
class Method:
    """A method for items of one data type.

    name        in `REDUCTIONS`
    dtype       of the items, in native byte order
    folded      the type of the items for the kernels: `dtype`, or one that represents it
    lanes       numbers per item: 2 for complex and for weighted items, else 1
    fold        the name of the kernel's operation
    skip        which items are left out: "none", "value" or "nan"
    nodata      the item that is left out, as `folded`
    fill        the item that is left out beside NaN, as `folded`; None where there is none
    is_weighted whether each item has a weight; `nodata` and `fill` are of `dtype` then
    circle      of directions, whose weighted unit vectors are folded
    result      the data type of the result
    many        whether a cell may get more items than 32 bits can count
    scale, offset  of packed values
    ddof        subtracted from the count of items, for `var` and `std`
    """

    name: str
    dtype: np.dtype[Any]
    folded: np.dtype[Any]
    lanes: int
    fold: str
    skip: str
    nodata: Items
    result: np.dtype[Any]
    many: bool
    scale: float = 1.0
    offset: float = 0.0
    ddof: int = 0
    fill: Items | None = None
    is_weighted: bool = False
    circle: Circle | None = None

    @property
    def _planes(self) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        is_float = self.folded.kind == "f"
        whole = WIDE if self.folded.itemsize == 8 else np.dtype(np.int64)
        planes: dict[str, tuple[Any, Any]] = {
            "sum": (np.float64, np.float64) if is_float else (whole, None),
            "wide_sum": (WIDE, None),
            "narrow_sum": (np.dtype(f"{self.folded.kind}4"), None),
            "least": (self.folded, None),
            "greatest": (self.folded, None),
            "counts": (np.uint32, None),
            "moments": (np.int64, np.int64),
            "spread": (np.float64, np.float64),
            "first_least": (self.folded, np.int64),
            "first_greatest": (self.folded, np.int64),
        }
        a, b = planes[self.fold]
        return np.dtype(a), None if b is None else np.dtype(b)

    @property
    def _has_count(self) -> bool:
        has_extremes = self.fold in ("least", "greatest", "first_least", "first_greatest")
        return self.fold == "spread" or (self.skip != NONE and not has_extremes and not self.is_weighted)

    @property
    def has_numbers(self) -> bool:
        """Whether the result is the number of an item."""
        return self.name in ("argmin", "argmax")

    @property
    def cell_size(self) -> int:
        """Bytes of the state of a cell."""
        a, b = self._planes
        size = a.itemsize + (0 if b is None else b.itemsize) + (4 if self._has_count else 0)
        return size * self.lanes

    def make(self, count: int) -> CellStates:
        """The state of `count` cells without items."""
        a, b = self._planes
        count *= self.lanes
        first = _zeros(count, a)
        if self.fold in ("least", "greatest"):
            first[...] = self.nodata if self.skip != NONE else _bound(a, is_least=self.fold == "greatest")
        second = None if b is None else _zeros(count, b)
        if second is not None and self.has_numbers:
            second[...] = -1
        return CellStates(first, second, _zeros(count, np.dtype(np.uint32)) if self._has_count else None)

    def put(
        self,
        cells: CellStates,
        items: Items,
        cell_steps: tuple[int, ...],
        labels: Items | None,
        label_steps: tuple[int, ...],
        number_steps: tuple[int, ...],
        *,
        weights: Items | None = None,
        groups: int,
        group_step: int,
        first_number: int,
    ) -> None:
        """Reduce a box of items into their cells; strides and labels are explained in `fold.h`.

        weights  of the items, which broadcast to them
        """
        shape, lanes, skip, nodata = items.shape, self.lanes, self.skip, self.nodata
        if self.fill is not None:
            items[items == self.fill] = np.nan
        if self.circle is not None and weights is None:
            weights = np.ones(())
        if weights is not None:
            items, skip, nodata = self._weigh(items, weights), NONE, np.zeros((), np.float64)
        if lanes > 1:
            if self.skip == "nan" and weights is None:
                # A complex number with one NaN part is left out as a whole.
                items[np.isnan(items)] = complex(np.nan, np.nan)
            shape = (*shape, lanes)
            cell_steps = (*(step * lanes for step in cell_steps), 1)
            label_steps, number_steps = (*label_steps, 0), (*number_steps, 0)
        if items.dtype.kind in "bmMc":
            items = items.reshape(-1).view(self.folded)
        elif items.dtype != self.folded:
            items = items.astype(self.folded)
        kernels.fold(
            items,
            shape,
            cells.a,
            cells.b,
            cells.count,
            labels,
            method=kernels.FOLDS[self.fold],
            item_type=ITEM_TYPES.index(self.folded.name),
            skip=kernels.SKIPS[skip],
            nodata=nodata.tobytes(),
            cell_steps=cell_steps,
            label_steps=label_steps,
            number_steps=number_steps,
            groups=groups,
            group_step=group_step * lanes,
            first_number=first_number,
        )

    def _weigh(self, items: Items, weights: Items) -> Items:
        """(the item, or its unit vector, times its weight; the weight) of each; 0 of those left out."""
        made = np.empty((*items.shape, self.lanes))
        made[..., -1] = weights
        if self.circle is None:
            np.multiply(items, weights, out=made[..., 0])
        else:
            made[..., :2] = (self.circle.vectors(items) * weights).view("f8").reshape(*items.shape, 2)
        if self.skip != NONE:
            made[np.isnan(items) if self.skip == "nan" else items == self.nodata] = 0
        return made.reshape(-1)

    def narrow(self, most: int) -> Method:
        """The method, with smaller cells if they hold `most` items each before they are joined."""
        is_small = self.fold == "sum" and self.folded.kind in "iu" and self.folded.itemsize <= 2
        fits = is_small and most <= 1 << (32 - 8 * self.folded.itemsize)
        return replace(self, fold="narrow_sum") if fits else self

    def begin(self, cells: CellStates) -> CellStates:
        """The cells, in types wide enough for all items that will be joined to them."""
        is_narrow = self.fold == "sum" and cells.a.itemsize == 4
        a = cells.a.astype(np.int64) if is_narrow or (self.many and self.fold == "counts") else cells.a
        count = cells.count
        return CellStates(a, cells.b, count.astype(np.int64) if self.many and count is not None else count)

    def join(self, cells: CellStates, others: CellStates) -> None:
        """Join the state of later items to that of the cells."""
        for first in range(0, len(cells.a), STRETCH):
            some = slice(first, first + STRETCH)
            self._join(cells.part(some), others.part(some))

    def _join(self, cells: CellStates, others: CellStates) -> None:
        a, b, count = cells.a, cells.b, cells.count
        c, d, more = others.a, others.b, others.count
        if self.fold in ("least", "greatest"):
            self._join_extremes(a, c)
        elif self.has_numbers and b is not None and d is not None:
            self._join_firsts(a, b, c, d)
        elif a.dtype == WIDE:
            low = a["low"] + c["low"]
            a["high"] += c["high"] + (low < c["low"])
            a["low"] = low
        elif self.fold == "spread" and b is not None and count is not None and more is not None:
            # Chan, Golub and LeVeque's formula for the means and squared deviations of two samples.
            old, new = count.astype(np.float64), more.astype(np.float64)
            with np.errstate(all="ignore"):
                way, share = c - a, new / np.maximum(old + new, 1)
                joined = b + (d + way * way * (old * share))
                mean = a + way * share
            b[...] = np.where(new == 0, b, np.where(old == 0, d, joined))
            a[...] = np.where(new == 0, a, np.where(old == 0, c, mean))
        elif self.folded.kind == "f" and self.fold == "sum" and b is not None:
            with np.errstate(all="ignore"):
                total = a + c
                back = total - a
                b += d + ((a - (total - back)) + (c - back))
            a[...] = total
        else:
            a += c
            if b is not None:
                b += d
        if count is not None:
            count += more

    def _join_extremes(self, a: Items, c: Items) -> None:
        choose: Any = np.minimum if self.fold == "least" else np.maximum
        if self.skip == "nan":
            choose = np.fmin if self.fold == "least" else np.fmax
        best = choose(a, c)
        if self.skip == "value":
            best = np.where(c == self.nodata, a, np.where(a == self.nodata, c, best))
        a[...] = best

    def _join_firsts(self, a: Items, b: Items, c: Items, d: Items) -> None:
        is_better = c < a if self.fold == "first_least" else c > a
        is_same = c == a
        if a.dtype.kind == "f":
            is_better |= np.isnan(c) & ~np.isnan(a)
            is_same |= np.isnan(c) & np.isnan(a)
        takes = (d >= 0) & ((b < 0) | is_better | (is_same & (d < b)))
        np.copyto(a, c, where=takes)
        np.copyto(b, d, where=takes)

    def finish(self, cells: CellStates, sizes: Items, where: str, out: Items) -> None:
        """Write the result of every cell to `out`.

        sizes  how many items, valid or not, a cell of each group got; groups follow one another in `out`
        where  the array, for errors

        Raises
            OverflowError: a sum that the result's type cannot hold.
            ValueError: the minimum or maximum of no items.
        """
        each = max(1, len(out) // max(1, len(sizes)))
        for first in range(0, len(out), STRETCH):
            last = min(first + STRETCH, len(out))
            with np.errstate(all="ignore"):
                here = sizes[np.arange(first, last) // each] if len(sizes) > 1 else sizes
                made = self._finish(cells.part(slice(first * self.lanes, last * self.lanes)), here, where)
                out[first:last] = self._fit(made, where)

    def _fit(self, made: Items, where: str) -> Items:
        to = self.result
        if to.kind in "iu" and made.dtype.kind in "iuf" and made.dtype != to:
            limits = np.iinfo(to)
            if made.dtype.kind == "f":
                is_held = (made >= float(limits.min)) & (made < float(limits.max) + 1)
            else:
                is_held = (made >= limits.min) & (made <= limits.max)
            if not is_held.all():
                raise OverflowError(f"{self.name} {made[~is_held][0]!r} of {where} does not fit {to}")
        return made.astype(to, copy=False)

    def _finish(self, cells: CellStates, sizes: Items, where: str) -> Items:
        total: Items
        a, b, count = cells.a, cells.b, cells.count
        valid = sizes if count is None else count[:: self.lanes]
        name, lanes = self.name, self.lanes
        if self.is_weighted and b is not None:
            *totals, valid = np.where(np.isfinite(a), a + b, a).reshape(-1, lanes).T
            total = totals[0] if self.circle is None else totals[0] + 1j * totals[1]
            if name == "mean":
                total = np.where(valid == 0, np.nan, total / valid)
                total = total if self.circle is None else self.circle.numbers(total)
                return total * self.scale + self.offset
            return total * self.scale + self.offset * valid
        if name == "count":
            return valid
        if name in ("any", "all"):
            return a > 0 if name == "any" else a == valid
        if name in ("argmin", "argmax") and b is not None:
            return b
        if name in ("min", "max"):
            return self._finish_extremes(a, sizes, where)
        if name in ("var", "std"):
            return self._finish_deviations(cells, valid)
        if b is not None:  # sums of floats
            total = np.where(np.isfinite(a), a + b, a)
            if lanes > 1:
                total = total.view(np.complex128)
        elif a.dtype == WIDE:
            total = self._whole(a, where)
        else:
            total = a
        if name == "mean":
            total = total / valid
            return total * self.scale + self.offset if self._is_packed else total
        return total * self.scale + self.offset * valid if self._is_packed else total

    @property
    def _is_packed(self) -> bool:
        return self.scale != 1 or self.offset != 0

    def _whole(self, a: Items, where: str) -> Items:
        """Sums of 128 bits as 64-bit integers if the result has integers, else as floats."""
        low, high = a["low"], a["high"]
        if self.name == "sum" and self.result.kind in "iu" and not self._is_packed:
            wanted = low.view(np.int64) if self.result.kind == "i" else low
            is_held = high == (wanted >> 63 if self.result.kind == "i" else 0)
            if not is_held.all():
                at = int(np.flatnonzero(~is_held)[0])
                value = (int(high[at]) << 64) + int(low[at])
                raise OverflowError(f"sum {value} of {where} does not fit {self.result}")
            return wanted
        is_negative = high < 0
        least = np.where(is_negative, ~low + np.uint64(1), low)
        most = np.where(is_negative, ~high + (low == 0), high)
        size = most * 2.0**64 + least.astype(np.float64)
        return np.where(is_negative, -size, size)

    def _finish_extremes(self, a: Items, sizes: Items, where: str) -> Items:
        if self.skip == NONE and (sizes == 0).any():
            raise ValueError(f"{self.name} of no items of {where}; expected one at least, or nodata")
        made = a.view(self.dtype) if self.dtype.kind in "bmM" else a
        if not self._is_packed:
            made = made if self.fill is None else np.where(np.isnan(made), self.fill, made)
            return made.astype(self.dtype, copy=False)
        values = made.astype(np.float64) * self.scale + self.offset
        if self.skip == "value":
            values = np.where(a == self.nodata, np.nan, values)
        return values

    def _finish_deviations(self, cells: CellStates, valid: Items) -> Items:
        a, b = cells.a, cells.b
        if self.fold == "moments" and b is not None:
            # With deviations from an integer near the mean, all but the last step is exact in 64 bits.
            n = valid.astype(np.int64)
            middle = np.rint(a / np.maximum(n, 1)).astype(np.int64)
            rest = a - n * middle
            square = (b - 2 * middle * a + n * middle * middle).astype(np.float64)
            deviations = square - rest.astype(np.float64) ** 2 / n
        else:
            deviations = b if b is not None else a
        variance = deviations / np.maximum(valid.astype(np.float64) - self.ddof, 0)
        made: Items = variance * self.scale**2 if self._is_packed else variance
        return made if self.name == "var" else np.sqrt(made)


def _zeros(count: int, dtype: np.dtype[Any]) -> Items:
    """Zeros; if they are many, in memory that `malloc` returns to the system with them."""
    if count * dtype.itemsize < MAPPED_SIZE:
        return np.zeros(count, dtype)
    return np.frombuffer(map_zeros(count * dtype.itemsize), dtype)


def _bound(dtype: np.dtype[Any], *, is_least: bool) -> Any:
    if dtype.kind == "f":
        return -np.inf if is_least else np.inf
    return np.iinfo(dtype).min if is_least else np.iinfo(dtype).max


def make_method(
    name: str,
    dtype: np.dtype[Any],
    most: int,
    *,
    nodata: Any = None,
    scale: float = 1.0,
    offset: float = 0.0,
    result: Any = None,
    ddof: int = 0,
    skip_nan: bool = False,
    is_weighted: bool = False,
    circle: Circle | None = None,
) -> Method:
    """The method `name` for items of a data type, of which a cell gets at most `most`.

    skip_nan     whether NaN is left out beside nodata
    is_weighted  whether each item has a weight
    circle       of directions, of which the mean is that of their unit vectors; no other method has one

    Raises
        ValueError: there is no such method, or nodata is no value of the type.
        UnsupportedError: the method has no meaning for the type, or for packed values.
    """
    if name not in REDUCTIONS:
        raise ValueError(f"method {name!r}, expected one of {', '.join(REDUCTIONS)}")
    _check_type(name, dtype)
    dtype = dtype.newbyteorder("=")
    is_packed = scale != 1 or offset != 0
    if is_packed and name in ("any", "all"):
        raise UnsupportedError(
            f"{name} of packed values has no meaning that zstore knows; expected unpack=False"
        )
    if is_packed and dtype.kind in "mM":
        raise UnsupportedError(f"scale and offset of data type {dtype} have no meaning that zstore knows")
    if circle is not None:
        is_weighted = True
    if is_weighted and (name not in OF_WEIGHTED or dtype.kind == "c"):
        raise UnsupportedError(
            f"{name} of weighted {dtype} has no meaning that zstore knows; expected "
            f"{' or '.join(OF_WEIGHTED)} of real numbers"
        )
    made = _result("mean" if is_weighted else name, dtype, is_packed=is_packed)
    if result is not None:
        made = _wanted(name, made, np.dtype(result))
    folded = np.dtype(
        {"?": "u1", "m": "i8", "M": "i8", "e": "f4", "F": "f4", "D": "f8"}.get(dtype.char, dtype)
    )
    if is_weighted:
        folded = np.dtype(np.float64)
    asked = TURNED.get(name, name) if scale < 0 else name
    if name in ("var", "std"):
        is_small = folded.kind in "iu" and folded.itemsize <= 2
        if is_small and most >= MANY:
            folded, is_small = np.dtype(f"{folded.kind}4"), False
        kernel = "moments" if is_small else "spread"
    else:
        kernel = FOLDS[asked]
    if kernel == "sum" and folded.kind in "iu" and folded.itemsize == 4 and most >= MANY:
        kernel = "wide_sum"
    held = dtype if is_weighted else folded
    skip, hole = _nodata(nodata, dtype, held)
    fill = None
    if skip_nan and skip == "value" and dtype.kind == "f":
        fill, (skip, hole) = hole, _nodata(None, dtype, held)
    return Method(
        name,
        dtype,
        folded,
        3 if circle is not None else 2 if is_weighted or dtype.kind == "c" else 1,
        kernel,
        skip,
        hole,
        made,
        most >= 1 << 32,
        scale,
        offset,
        ddof,
        fill,
        is_weighted,
        circle,
    )


def _check_type(name: str, dtype: np.dtype[Any]) -> None:
    fits = {**dict.fromkeys("biuf", REDUCTIONS), "c": OF_COMPLEX, **dict.fromkeys("mM", OF_TIMES)}
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    if name not in fits.get(dtype.kind, ()) or size > 8:
        raise UnsupportedError(f"{name} of data type {dtype} has no meaning that zstore knows")


def _result(name: str, dtype: np.dtype[Any], *, is_packed: bool) -> np.dtype[Any]:
    """The data type of numpy's result; float64 for packed values."""
    if name in ("count", "argmin", "argmax"):
        return np.dtype(np.int64)
    if name in ("any", "all"):
        return np.dtype(np.bool_)
    if is_packed:
        return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
    if name in ("min", "max"):
        return dtype
    if name == "sum" and dtype.kind in "biu":
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype if dtype.kind in "fc" else np.dtype(np.float64)


def _wanted(name: str, made: np.dtype[Any], wanted: np.dtype[Any]) -> np.dtype[Any]:
    """The requested data type of the result; UnsupportedError if it cannot represent the result."""
    is_time = made.kind in "mM"
    if wanted.kind != made.kind if is_time else wanted.kind not in ("c" if made.kind == "c" else "biufc"):
        raise UnsupportedError(f"{name} of data type {made} has no meaning as {wanted} that zstore knows")
    return wanted


def _nodata(nodata: Any, dtype: np.dtype[Any], folded: np.dtype[Any]) -> tuple[str, Items]:
    """(the items to skip: "none", "value" or "nan"; the value)."""
    hole = np.zeros((), folded)
    if dtype.kind in "mM":
        if nodata is not None:
            raise UnsupportedError(f"nodata {nodata!r} of times; expected None, which leaves out NaT")
        return "value", np.full((), np.iinfo(np.int64).min, folded)
    if isinstance(nodata, str) and nodata == NONE:
        return NONE, hole
    if nodata is None or (dtype.kind in "fc" and np.asarray(nodata).dtype.kind == "f" and np.isnan(nodata)):
        return ("nan", np.full((), np.nan, folded)) if dtype.kind in "fc" else (NONE, hole)
    value = np.asarray(nodata)
    if value.ndim == 0 and dtype.kind != "c" and value.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            held = value.astype(dtype)
        if dtype.kind == "f" and np.isfinite(held) == np.isfinite(value):
            return "value", held.astype(folded)
        if dtype.kind != "f" and held.item() == value.item():
            return "value", held.astype(folded)
    raise ValueError(f"nodata {nodata!r} is not a value of data type {dtype}")

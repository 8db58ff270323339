"""Data types, nodata and memory in the form that the resampling kernels take."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, NamedTuple

import numpy as np

from zstore.base.settings import processor_count
from zstore.geo.resampling.grid import FILTERS

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

Array = np.ndarray[Any, np.dtype[Any]]


class Cells(NamedTuple):
    """A data type and its nodata, as the kernels know them."""

    type_code: int
    skip: int = PLAIN
    nodata: bytes = b""
    substitute: bytes = b""

    @property
    def type_name(self) -> str:
        """The type that is computed with."""
        return CELL_TYPES[self.type_code]


def describe_cells(dtype: np.dtype[Any], method: str, nodata: Any) -> Cells:
    """`dtype` and `nodata` as the kernels of `method` take them.

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


def count_threads(threads: int | None, source: Array, shape: tuple[int, ...], method: str) -> int:
    """The number of threads to use: as asked for, else as many as pay.

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
    """Whether cells of `dtype` lie in the other byte order."""
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

"""NetCDF classic files (CDF-1, CDF-2 and CDF-5), read by the NetCDF library where their length is right.

The library alone gives zeros for what a file that was cut short no longer holds, opens one that ends in its
header as a file without variables, takes the mark for a count of records that was never written for that
count, and does not survive every damaged header. It does not tell where values lie. So the header is gone
through here first, for nothing but where each variable ends.

Spec
    NetCDF User's Guide, appendix B, "File Format Specifications": classic, 64-bit offset and 64-bit data.
"""

from __future__ import annotations

import os
import threading
import warnings
from dataclasses import dataclass
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from zstore.errors import StoreError, UnsupportedError
from zstore.extensions.extras import optional
from zstore.model.json_attributes import AttributeWarning

SIGNATURES = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
# By the number of the type, from 1.
ITEM_SIZES = (0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8)
ALIGNMENT = 4
# A dimension of this length is the one along which records are added.
UNLIMITED = 0

# The library is not made for several threads.
_library = threading.Lock()


@dataclass(frozen=True)
class ClassicVariable:
    """One variable of a file: its shape, dimensions, dtype and attributes, and its stored items by window."""

    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any]
    stored: Any
    chunks = None

    def __getitem__(self, window: Any) -> np.ndarray[Any, Any]:
        with _library:
            found: np.ndarray[Any, Any] = np.asarray(self.stored[window])
        return found


class ClassicFile:
    """A file, opened; `variables` and `attrs` by name. It has no groups.

    Raises
        StoreError: the file is damaged or cut short.
        UnsupportedError: netCDF4 is missing, or the file is of a version that it has not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with optional("NetCDF classic files can be read only with netCDF4", "netcdf"):
            import netCDF4
        self.path = os.fspath(path)
        self.groups: dict[str, Any] = {}
        self.layout = measure(self.path)
        with _library:
            try:
                self._file = netCDF4.Dataset(self.path)
                self._file.set_auto_maskandscale(False)
                self._file.set_auto_chartostring(False)
                self.attrs = self._attributes(self._file, "/")
                stored = self._file.variables.items()
                self.variables = {
                    name: self._variable(found, self.layout.record_count) for name, found in stored
                }
            except (OSError, RuntimeError, AttributeError, ValueError) as error:
                raise StoreError(f"header is damaged: {error}", path=self.path) from error
        self._check()

    def _check(self) -> None:
        """Raise StoreError where names do not tell variables apart, as the library believes."""
        sizes = [size for _, size, _ in self.layout.places]
        found = [
            prod(variable.shape[is_record:]) * variable.dtype.itemsize
            for variable, (_, _, is_record) in zip(self.variables.values(), self.layout.places, strict=False)
        ]
        if found != sizes:
            what = f"header is damaged: two of {len(sizes)} variables have one name"
            raise StoreError(what, path=self.path)

    def __enter__(self) -> ClassicFile:
        return self

    def __exit__(self, *_: object) -> None:
        with _library:
            self._file.close()

    def _variable(self, stored: Any, record_count: int) -> ClassicVariable:
        attrs = self._attributes(stored, stored.name)
        if stored.dtype.kind == "S" and isinstance(attrs.get("_FillValue"), str):
            attrs["_FillValue"] = attrs["_FillValue"].encode("latin-1")
        shape = tuple(record_count if d.isunlimited() else d.size for d in stored.get_dims())
        return ClassicVariable(shape, stored.dimensions, stored.dtype, attrs, stored)

    def _attributes(self, holder: Any, where: str) -> dict[str, Any]:
        # What is taken for ISO 8859-1 is byte for byte what is stored.
        found = {name: holder.getncattr(name, encoding="latin-1") for name in holder.ncattrs()}
        for name, value in found.items():
            if isinstance(value, str):
                try:
                    found[name] = value.encode("latin-1").decode()
                except UnicodeDecodeError:
                    what = f"{where}: attribute {name!r} of {self.path!r}"
                    warnings.warn(AttributeWarning(f"{what} is no UTF-8; read as ISO 8859-1"), stacklevel=2)
        return found


@dataclass(frozen=True)
class Layout:
    """The places of a file's values.

    record_count, record_step  how many records there are, and how many bytes lie from one to the next
    places                     of each variable, in the file's order: where its items begin, the bytes of all
                               or of one record's, and whether there are records
    end                        bytes up to the end of the last item
    header_size                bytes up to the end of the header
    """

    record_count: int
    record_step: int
    places: tuple[tuple[int, int, bool], ...]
    end: int
    header_size: int


def measure(path: str) -> Layout:
    """The layout of a file, which is checked to hold all that its header announces.

    Raises
        StoreError: the file is cut short, or its header damaged.
        UnsupportedError: it is of another version.
    """
    with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        size, header = len(data), _Header(data)
        if data[: header.at] not in SIGNATURES:
            expected = f"expected one of {list(SIGNATURES)}"
            raise UnsupportedError(f"file begins with {data[: header.at]!r}; {expected}", path=path)
        try:
            layout = header.measure()
        except (ValueError, IndexError):
            what = f"file of {size} bytes is cut short, or its header damaged before byte {header.at}"
            raise StoreError(what, path=path) from None
    if layout.end > size:
        what = f"file is cut short: its values end at byte {layout.end}, the file at {size}"
        raise StoreError(what, path=path)
    return layout


class _Header:
    """The header of a file, read as far as it says where values lie; the library checks all else.

    Raises
        ValueError, IndexError: it ends too early, or says what no header can.
    """

    def __init__(self, data: mmap) -> None:
        self.data = data
        self.at = len(SIGNATURES[0])
        self.version = data[self.at - 1]

    def measure(self) -> Layout:
        record_count = self._count()
        lengths = []
        for _ in self._list():
            self._skip()
            lengths.append(self._count())
        self._skip_attributes()
        variables = [self._variable(lengths) for _ in self._list()]
        sizes = [size for _, size, is_record in variables if is_record]
        # One variable alone is not aligned.
        step = sizes[0] if len(sizes) == 1 else sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
        if record_count == (1 << (64 if self.version == 5 else 32)) - 1:
            # A writer that could not go back has left the count to be found out.
            begin = min((begin for begin, _, is_record in variables if is_record), default=len(self.data))
            record_count = max(0, len(self.data) - begin) // step if step else 0
        ends = [
            begin + size + (step * (record_count - 1) if is_record else 0)
            for begin, size, is_record in variables
            if size and (record_count or not is_record)
        ]
        return Layout(record_count, step, tuple(variables), max(ends, default=0), self.at)

    def _variable(self, lengths: list[int]) -> tuple[int, int, bool]:
        """(where the items begin, bytes of all of them or of one record's, whether there are records)."""
        self._skip()
        shape = [lengths[self._count()] for _ in range(self._count())]
        self._skip_attributes()
        item_size = ITEM_SIZES[self._number(4)]
        self._count()  # the size, which is of no use for large variables
        begin = self._number(4 if self.version == 1 else 8)
        is_record = shape[:1] == [UNLIMITED]
        return begin, prod(shape[is_record:]) * item_size, is_record

    def _skip_attributes(self) -> None:
        for _ in self._list():
            self._skip()
            self._skip(ITEM_SIZES[self._number(4)])

    def _list(self) -> range:
        self._number(4)  # what is listed
        return range(self._count())

    def _skip(self, item_size: int = 1) -> None:
        """Skip a count, and as many items."""
        size = self._count() * item_size
        self.at += -(-size // ALIGNMENT) * ALIGNMENT

    def _count(self) -> int:
        return self._number(8 if self.version == 5 else 4)

    def _number(self, size: int) -> int:
        data = self.data[self.at : self.at + size]
        if len(data) < size:
            raise ValueError("the file ends there")
        self.at += size
        return int.from_bytes(data)

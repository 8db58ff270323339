"""NetCDF classic files (CDF-1, CDF-2 and CDF-5), read as they are stored, by the format's own document.

What is read here is checked against the size of the file: the NetCDF library gives zeros for what a file that
was cut short no longer holds, and leaves out variables without a word where its header is cut.

Spec
    NetCDF User's Guide, appendix B, "File Format Specifications": classic, 64-bit offset and 64-bit data.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zstore.errors import StoreError, UnsupportedError
from zstore.integrations.spelling import SpellingWarning

__all__ = ["SIGNATURES", "ClassicFile", "ClassicVariable"]

SIGNATURES = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
TYPES = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
CLASSIC_TYPE_COUNT = 6  # the others came with CDF-5
DIMENSIONS, VARIABLES, ATTRIBUTES = 10, 11, 12
ALIGNMENT = 4
# A dimension of this length is the one along which records are added.
UNLIMITED = 0


class ClassicVariable:
    """One variable: what the header says of it, and its items by window, as numpy holds them."""

    chunks = None

    def __init__(
        self, file: ClassicFile, name: str, dimensions: tuple[str, ...], attrs: dict[str, Any], dtype: str
    ) -> None:
        self.name, self.dimensions, self.attrs = name, dimensions, attrs
        self.stored = np.dtype(dtype)
        self.dtype = self.stored.newbyteorder("=")
        self.shape: tuple[int, ...] = ()
        self.begin = 0
        # From one record to the next; 0 where there are none.
        self.step = 0
        self._file = file

    @property
    def record_shape(self) -> tuple[int, ...]:
        """The items that lie together: all of them, or those of one record."""
        return self.shape[1:] if self.step else self.shape

    @property
    def record_size(self) -> int:
        """Their bytes, without what is added to align the next variable."""
        return prod(self.record_shape) * self.stored.itemsize

    @property
    def end(self) -> int:
        """Where in the file the last item ends."""
        if not prod(self.shape):
            return 0
        return self.begin + (self.step * (self.shape[0] - 1) if self.step else 0) + self.record_size

    def __getitem__(self, window: Any) -> np.ndarray[Any, Any]:
        parts = window if isinstance(window, tuple) else (window,)
        if Ellipsis in parts:
            parts = ()
        ranges = [range(n)[part] for n, part in zip(self.shape, parts, strict=False)]
        ranges += [range(n) for n in self.shape[len(ranges) :]]
        items = np.empty([len(part) for part in ranges], self.stored)
        if items.size:
            self._fill(items, ranges)
        return items.astype(self.dtype, copy=False)

    def _fill(self, items: np.ndarray[Any, Any], ranges: list[range]) -> None:
        """Read the stretches that lie together, each into its place."""
        # Dimensions after `axis` are whole, so that a part of `axis` is one stretch.
        axis = max((a for a, part in enumerate(ranges) if len(part) < self.shape[a]), default=0)
        if self.step != self.record_size and self.step:
            axis = max(axis, 1)
        outer, inner = ranges[:axis], ranges[axis:]
        steps = self._steps()
        start = self.begin + (inner[0].start * steps[axis] if inner else 0)
        flat = items.reshape(prod(map(len, outer)), -1)
        for row, places in zip(flat, product(*outer), strict=True):
            offset = start + sum(place * step for place, step in zip(places, steps, strict=False))
            self._file.read_into(row, offset)

    def _steps(self) -> list[int]:
        """Bytes from one item to the next, by dimension."""
        steps = [prod(self.shape[axis + 1 :]) * self.stored.itemsize for axis in range(len(self.shape))]
        if self.step:
            steps[0] = self.step
        return steps


class ClassicFile:
    """A file, opened; `variables` and `attrs` by name. It has no groups.

    Raises
        StoreError: the file is damaged or cut short.
        UnsupportedError: a version or a type that the format does not have.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.groups: Mapping[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.variables: dict[str, ClassicVariable] = {}
        self._raw: BinaryIO = Path(path).open("rb", buffering=0)  # noqa: SIM115
        try:
            self.size = os.fstat(self._raw.fileno()).st_size
            _Header(self).read()
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> ClassicFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def read_into(self, items: np.ndarray[Any, Any], offset: int) -> None:
        """Fill an array with the bytes at a place of the file."""
        left = items.view(np.uint8).reshape(-1).data
        while left:
            count = os.preadv(self._raw.fileno(), [left], offset)
            if not count:
                raise StoreError(f"file is cut short: {len(left)} bytes are missing", path=self.path)
            left, offset = left[count:], offset + count


class _Header:
    """What the beginning of a file says."""

    def __init__(self, file: ClassicFile) -> None:
        self.file = file
        self.offset = 0
        self.version = 0
        self.dimensions: list[tuple[str, int]] = []

    def read(self) -> None:
        """Fill the file's members."""
        magic = self._take(len(SIGNATURES[0]))
        if magic not in SIGNATURES:
            raise UnsupportedError(
                f"file begins with {magic!r}; expected one of {list(SIGNATURES)}", path=self.file.path
            )
        self.version = magic[3]
        record_count = self._count()
        self.dimensions = list(self._list(DIMENSIONS, lambda: (self._name(), self._count())))
        if len({name for name, _ in self.dimensions}) < len(self.dimensions):
            raise self._damage("two dimensions have one name")
        if sum(length == UNLIMITED for _, length in self.dimensions) > 1:
            raise self._damage("two dimensions are unlimited")
        self.file.attrs = self._attributes("/")
        found = list(self._list(VARIABLES, self._variable))
        self.file.variables = {variable.name: variable for variable in found}
        if len(self.file.variables) < len(found):
            raise self._damage("two variables have one name")
        self._place_records(found, record_count)
        for variable in found:
            if variable.end > self.file.size:
                raise StoreError(
                    f"file is cut short: variable {variable.name!r} ends at byte {variable.end}, "
                    f"the file has {self.file.size}",
                    path=self.file.path,
                )

    def _place_records(self, found: list[ClassicVariable], record_count: int) -> None:
        lengths = dict(self.dimensions)
        records = [v for v in found if v.dimensions and lengths[v.dimensions[0]] == UNLIMITED]
        for variable in found:
            variable.shape = tuple(lengths[name] for name in variable.dimensions)
            if UNLIMITED in variable.shape[1:]:
                raise self._damage(f"records of {variable.name!r} are not its first dimension")
        sizes = [prod(v.shape[1:]) * v.stored.itemsize for v in records]
        # One variable alone is not aligned.
        step = sizes[0] if len(sizes) == 1 else sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
        if record_count == (1 << (64 if self.version == 5 else 32)) - 1:
            # A writer that could not go back has left the count to be found out.
            begin = min((v.begin for v in records), default=self.file.size)
            record_count = max(0, self.file.size - begin) // step if step else 0
        for variable in records:
            variable.shape, variable.step = (record_count, *variable.shape[1:]), step

    def _variable(self) -> ClassicVariable:
        name = self._name()
        numbers = [self._count() for _ in self._counted()]
        if any(number >= len(self.dimensions) for number in numbers):
            raise self._damage(f"variable {name!r} has the dimensions {numbers} of {len(self.dimensions)}")
        attrs = self._attributes(name)
        dtype = self._type()
        self._count()  # the size, which is of no use for large variables
        variable = ClassicVariable(
            self.file, name, tuple(self.dimensions[number][0] for number in numbers), attrs, dtype
        )
        if variable.stored.kind == "S" and isinstance(attrs.get("_FillValue"), str):
            attrs["_FillValue"] = attrs["_FillValue"].encode("latin-1")
        variable.begin = self._number(">u4" if self.version == 1 else ">u8")
        return variable

    def _attributes(self, where: str) -> dict[str, Any]:
        return dict(self._list(ATTRIBUTES, lambda: self._attribute(where)))

    def _attribute(self, where: str) -> tuple[str, Any]:
        name, dtype = self._name(), np.dtype(self._type())
        count = self._count()
        data = self._padded(count * dtype.itemsize)
        if dtype.kind == "S":
            return name, self._text(data.rstrip(b"\0"), f"{where}: attribute {name!r}")
        return name, np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))

    def _text(self, data: bytes, what: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            text = f"{what} of {self.file.path!r} is no UTF-8; read as ISO 8859-1"
            warnings.warn(SpellingWarning(text), stacklevel=2)
            return data.decode("latin-1")

    def _list(self, tag: int, read: Callable[[], Any]) -> Iterator[Any]:
        found = self._number(">u4")
        counted = self._counted()
        if found != tag and (found or len(counted)):
            raise self._damage(f"tag {found} stands where {tag} or 0 should")
        return (read() for _ in counted)

    def _counted(self) -> range:
        count = self._count()
        # Each of what is counted has four bytes or more.
        if count * ALIGNMENT > self.file.size - self.offset:
            raise self._damage(f"{count} items are announced")
        return range(count)

    def _name(self) -> str:
        stated = self._padded(self._count())
        name = stated.decode(errors="replace")
        if not name or any(sign in name for sign in "/\0\ufffd") or name in (".", ".."):
            raise self._damage(f"something is named {stated!r}")
        return name

    def _type(self) -> str:
        number = self._number(">u4")
        if not 1 <= number <= (len(TYPES) if self.version == 5 else CLASSIC_TYPE_COUNT):
            raise UnsupportedError(
                f"type {number} is none of CDF-{self.version} (at byte {self.offset})", path=self.file.path
            )
        return TYPES[number - 1]

    def _count(self) -> int:
        return self._number(">u8" if self.version == 5 else ">u4")

    def _number(self, dtype: str) -> int:
        return int(np.frombuffer(self._take(np.dtype(dtype).itemsize), dtype)[0])

    def _padded(self, size: int) -> bytes:
        return self._take(-(-size // ALIGNMENT) * ALIGNMENT)[:size]

    def _take(self, size: int) -> bytes:
        if size > self.file.size - self.offset:
            raise StoreError(
                f"file is cut short: its header needs {size} bytes from {self.offset} on, the file has "
                f"{self.file.size}",
                path=self.file.path,
            )
        data = np.empty(size, np.uint8)
        self.file.read_into(data, self.offset)
        self.offset += size
        return data.tobytes()

    def _damage(self, what: str) -> StoreError:
        return StoreError(f"header is damaged: {what} (at byte {self.offset})", path=self.file.path)

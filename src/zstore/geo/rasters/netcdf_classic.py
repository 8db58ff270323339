"""NetCDF classic files (CDF-1, CDF-2 and CDF-5), read by the NetCDF library if their length is right.

A file is refused where it does not have all the bytes that its header announces: the NetCDF library gives
zeros for those that are missing.

Spec
    NetCDF User's Guide, appendix B, "File Format Specifications": classic, 64-bit offset and 64-bit data.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from zstore.base.boxes import Box, lengths, volume, whole
from zstore.errors import StoreError, UnsupportedError
from zstore.model.json_attributes import AttributeWarning
from zstore.storage.kinds import CLASSIC

# By the number of the type, from 1; the first six are those of CDF-1 and CDF-2.
TYPES = (None, "i1", "S1", "i2", "i4", "f4", "f8", "u1", "u2", "u4", "i8", "u8")
TEXT = 2
ALIGNMENT = 4
# What lists begin with; 0 where they are empty.
DIMENSIONS, VARIABLES, ATTRIBUTES = 10, 11, 12
# A dimension of this length is the one along which records are added.
UNLIMITED = 0
# Stretches of a file up to this length are read whole, where a window takes only some of their items.
STRETCH_SIZE = 1 << 20
# No record has so many bytes.
MOST_SIZE = 1 << 62

T = TypeVar("T")


@dataclass(frozen=True)
class ClassicVariable:
    """One variable of a file, whose items are read by windows.

    shape      the first length is the count of records where `is_record`
    begin      the byte of the file where its first item is
    strides    bytes from an item to the next one along each dimension
    is_record  whether it has records, between which lie those of other variables
    """

    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any]
    file: BinaryIO
    begin: int
    strides: tuple[int, ...]
    is_record: bool
    chunks = None

    @property
    def size(self) -> int:
        """The bytes of all items, or of those of one record."""
        return prod(self.shape[self.is_record :]) * self.dtype.itemsize

    def __getitem__(self, window: Any) -> np.ndarray[Any, Any]:
        box = whole(self.shape) if window is ... else window
        items = np.empty(lengths(box), self.dtype)
        if items.size:
            self._read(box, items)
        return items

    def _read(self, box: Box, items: np.ndarray[Any, Any]) -> None:
        """Read a box that is not empty; in two halves if it takes only a few items of a long stretch."""
        last = sum((n - 1) * stride for n, stride in zip(lengths(box), self.strides, strict=True))
        size = last + self.dtype.itemsize
        if size > max(STRETCH_SIZE, volume(box) * self.dtype.itemsize):
            axis = next(axis for axis, n in enumerate(lengths(box)) if n > 1)
            side, before = box[axis], (slice(None),) * axis
            half = (side.stop - side.start) // 2
            for part in (slice(0, half), slice(half, side.stop - side.start)):
                moved = slice(side.start + part.start, side.start + part.stop)
                self._read((*box[:axis], moved, *box[axis + 1 :]), items[(*before, part)])
            return
        self.file.seek(self.begin + sum(s.start * n for s, n in zip(box, self.strides, strict=True)))
        data = self.file.read(size)
        if len(data) < size:
            raise StoreError("file was cut short while it was read", path=os.fspath(self.file.name))
        items[...] = np.ndarray(items.shape, self.dtype.newbyteorder(">"), data, 0, self.strides)


class ClassicFile:
    """A file, opened; `variables` and `attrs` by name. It has no groups.

    record_count, record_step  how many records there are, and how many bytes lie from one to the next
    header_size, end           bytes up to the end of the header, and of the last item

    Raises
        StoreError: the file is damaged or cut short.
        UnsupportedError: it is of another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.groups: dict[str, Any] = {}
        self._file = Path(self.path).open("rb")  # noqa: SIM115 - closed with this object
        try:
            self._parse(_Header(self._file, self.path))
        except BaseException:
            self._file.close()
            raise

    def _parse(self, header: _Header) -> None:
        if header.signature not in CLASSIC:
            expected = f"expected one of {list(CLASSIC)}"
            raise UnsupportedError(f"file begins with {header.signature!r}; {expected}", path=self.path)
        try:
            record_count = header.count()
            dimensions = [*header.named(DIMENSIONS, header.count).items()]
            self.attrs = header.attributes("/")
            variables = header.named(VARIABLES, lambda: header.variable(dimensions))
        except (ValueError, IndexError) as error:
            what = f"file of {header.size} bytes is cut short, or its header is damaged"
            raise StoreError(f"{what} before byte {header.at}: {error}", path=self.path) from error
        self.header_size = header.at
        self._check_order(variables)
        records = [variable for variable in variables.values() if variable.is_record]
        self.record_step = sum(-(-variable.size // ALIGNMENT) * ALIGNMENT for variable in records)
        if len(records) == 1:
            # One alone is not aligned.
            self.record_step = records[0].size
        if record_count == header.uncounted:
            # A writer that could not go back has left the count to be found out.
            begin = min((variable.begin for variable in records), default=header.size)
            record_count = max(0, header.size - begin) // self.record_step if self.record_step else 0
        self.record_count = record_count
        self.variables = {
            name: self._with_records(variable) if variable.is_record else variable
            for name, variable in variables.items()
        }
        ends = [
            variable.begin + variable.size + variable.is_record * self.record_step * (record_count - 1)
            for variable in self.variables.values()
            if prod(variable.shape)
        ]
        self.end = max(ends, default=0)
        if self.end > header.size:
            what = f"file is cut short: its values end at byte {self.end}, the file at {header.size}"
            raise StoreError(what, path=self.path)

    def _check_order(self, variables: dict[str, ClassicVariable]) -> None:
        """Check that variables lie one behind the other, those with records last, as all writers put them."""
        end = self.header_size
        for name, one in sorted(variables.items(), key=lambda item: item[1].is_record):
            if one.begin < end:
                what = f"the header is damaged: {name!r} begins at byte {one.begin}, before {end}"
                raise StoreError(f"{what}, where the one before it ends", path=self.path, key=name)
            end = one.begin + one.size

    def _with_records(self, variable: ClassicVariable) -> ClassicVariable:
        shape, strides = variable.shape[1:], variable.strides[1:]
        return replace(variable, shape=(self.record_count, *shape), strides=(self.record_step, *strides))

    @property
    def growing(self) -> list[str]:
        """The name of the dimension that can grow, if there is one."""
        return [one.dimensions[0] for one in self.variables.values() if one.is_record][:1]

    def __enter__(self) -> ClassicFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Header:
    """The header of a file, parsed from its beginning on.

    at    the byte up to which it is parsed
    name  the one that was parsed last

    Raises
        ValueError, IndexError: it ends too early, or says what no header can.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.file, self.path, self.name = file, path, "/"
        self.size, self.at = os.fstat(file.fileno()).st_size, 0
        self.signature = file.read(len(CLASSIC[0]))
        self.at = len(self.signature)
        self.version = self.signature[-1] if self.signature else 0

    @property
    def uncounted(self) -> int:
        """The value that stands for a count that was never written."""
        return (1 << (64 if self.version == 5 else 32)) - 1

    def named(self, tag: int, parse: Callable[[], T]) -> dict[str, T]:
        """The named entries of a list with a tag, each read by `parse`."""
        listed, count = self.number(4), self.count()
        if listed != tag and (listed or count):
            raise ValueError(f"a list of {count} with the tag {listed}, expected {tag}")
        parsed = dict[str, T]()
        for _ in range(count):
            name = self.name = self.bytes(self.count()).decode()
            if name in parsed or not name or "/" in name or "\0" in name:
                raise ValueError(f"a second {name!r}" if name in parsed else f"the name {name!r}")
            parsed[name] = parse()
        return parsed

    def variable(self, dimensions: list[tuple[str, int]]) -> ClassicVariable:
        """A variable, whose records are not counted yet."""
        along = [dimensions[self.count()] for _ in range(self.count())]
        shape = tuple(length for _, length in along)
        attrs = self.attributes(self.name)
        dtype = self.dtype(self.number(4))
        self.count()  # the size, which is of no use for large variables
        begin = self.number(4 if self.version == 1 else 8)
        if UNLIMITED in shape[1:] or prod(shape[1:]) * dtype.itemsize >= MOST_SIZE:
            raise ValueError(f"a variable cannot have the shape {shape}")
        strides = tuple(dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape)))
        names, is_record = tuple(name for name, _ in along), shape[:1] == (UNLIMITED,)
        return ClassicVariable(shape, names, dtype, attrs, self.file, begin, strides, is_record)

    def attributes(self, where: str) -> dict[str, Any]:
        """The attributes of the file or a variable: text, numbers and arrays of them."""
        return self.named(ATTRIBUTES, lambda: self._attribute(where))

    def _attribute(self, where: str) -> Any:
        number, name = self.number(4), self.name
        dtype, count = self.dtype(number), self.count()
        data = self.bytes(count * dtype.itemsize)
        if number != TEXT:
            values = np.frombuffer(data, dtype.newbyteorder(">")).astype(dtype)
            return values[0] if len(values) == 1 else values
        if name == "_FillValue":
            return data
        text = data.replace(b"\0", b"")
        try:
            return text.decode()
        except UnicodeDecodeError:
            what = f"{where}: attribute {name!r} of {self.path!r} is no UTF-8; read as ISO 8859-1"
            warnings.warn(AttributeWarning(what), stacklevel=2)
            return text.decode("latin-1")

    def dtype(self, number: int) -> np.dtype[Any]:
        """The numpy dtype for the number of a type in the file's header."""
        if not 0 < number < (len(TYPES) if self.version == 5 else 7):
            raise ValueError(f"there is no type {number}")
        return np.dtype(TYPES[number])

    def count(self) -> int:
        """A count, which is longer in CDF-5."""
        return self.number(8 if self.version == 5 else 4)

    def number(self, size: int) -> int:
        """A number without a sign."""
        return int.from_bytes(self.bytes(size))

    def bytes(self, size: int) -> bytes:
        """The next `size` bytes, without the padding after them."""
        aligned = -(-size // ALIGNMENT) * ALIGNMENT
        data = self.file.read(aligned) if aligned <= self.size - self.at else b""
        if len(data) < aligned:
            raise ValueError("the file ends there")
        self.at += aligned
        return data[:size]

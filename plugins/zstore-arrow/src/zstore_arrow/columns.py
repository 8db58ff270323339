"""Columns of a table: an array read by boxes, spread over the cells of all dimensions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zstore import Array
from zstore.plugin.jobs import is_shown, source_of
from zstore_arrow.types import Conversion

__all__ = ["CellColumn", "Column", "IndexColumn", "SideColumn", "ValueColumn"]

Box = tuple[slice, ...]
Shape = tuple[int, ...]

# Attributes of arrays that their columns keep.
SHOWN = ("units", "calendar", "standard_name", "long_name")


class Column(ABC):
    """A column of a table; it has a row for each cell of a box, in C order.

    field       its name and type, with the units and names of its array
    value_type  the type of its values, without their encoding
    """

    def __init__(self, name: str, kind: pa.DataType, attributes: Any = None) -> None:
        said = {key: str(attributes[key]) for key in SHOWN if key in (attributes or {})}
        self.name, self.value_type = name, kind
        self.field = pa.field(name, kind, metadata=said or None)

    @abstractmethod
    def read(self, box: Box) -> pa.Array:
        """The rows of the cells of a box."""


class CellColumn(Column):
    """The items of an array, repeated along the dimensions that it does not have.

    axes  the table's dimension that each of the array's is
    """

    def __init__(self, name: str, array: Array, axes: Sequence[int], conversion: Conversion) -> None:
        super().__init__(name, conversion.type, array.attrs)
        self._items: Any = source_of(array) if is_shown(array) else array
        self._axes, self._convert = axes, conversion.convert

    def read(self, box: Box) -> pa.Array:
        items = np.asarray(self._items.read(tuple(box[axis] for axis in self._axes)))
        order = np.argsort(self._axes)
        lengths = [side.stop - side.start if axis in self._axes else 1 for axis, side in enumerate(box)]
        aligned = items.transpose(order).reshape(lengths)
        return self._convert(np.broadcast_to(aligned, lengths_of(box)).reshape(-1))


class SideColumn(Column):
    """One value for each item along a dimension; texts are a dictionary of those of a box.

    Rows that are the same in the next box, as the latitudes of one hour and of the next, are made once. Other
    encodings than texts' would keep filters from the chunks: DataFusion compares no dictionaries of numbers,
    and Polars reads no run ends.

    axis   of the dimension in the table; None: one value for all rows
    """

    def __init__(self, name: str, axis: int | None, kind: pa.DataType, attributes: Any = None) -> None:
        self._is_text = pa.types.is_string(kind)
        super().__init__(name, pa.dictionary(pa.int32(), kind) if self._is_text else kind, attributes)
        self.axis, self.value_type = axis, kind
        self._spread = lru_cache(4)(self._spread)  # type: ignore[method-assign]

    @abstractmethod
    def values(self, side: slice) -> pa.Array:
        """The values of some items along the dimension."""

    def read(self, box: Box) -> pa.Array:
        side = slice(0, 1) if self.axis is None else box[self.axis]
        return self._spread(side.start, side.stop, lengths_of(box))

    def _spread(self, start: int, stop: int, shape: Shape) -> pa.Array:
        values, numbers = self.values(slice(start, stop)), numbers_along(shape, self.axis)
        if not self._is_text:
            return values.take(numbers)
        if values.null_count:
            numbers = pc.if_else(values.is_valid().take(numbers), numbers, pa.scalar(None, pa.int32()))
        return pa.DictionaryArray.from_arrays(numbers, values)

    def within(self, side: slice) -> pc.Expression:
        """What is true of all rows whose items along the dimension lie there."""
        field, values, kind = pc.field(self.name), self.values(side), self.value_type
        if pa.types.is_nested(kind) or pa.types.is_float16(kind):  # which pyarrow does not compare
            return pc.scalar(True)
        ends = pc.min_max(values.cast(pa.int64()) if pa.types.is_duration(kind) else values)
        if not ends["min"].is_valid:
            return field.is_null()
        made = (field >= ends["min"].cast(kind)) & (field <= ends["max"].cast(kind))
        return made | field.is_null() if values.null_count else made


class ValueColumn(SideColumn):
    """The values of a coordinate, which are in memory."""

    def __init__(self, name: str, array: Array, axis: int | None, conversion: Conversion) -> None:
        super().__init__(name, axis, conversion.type, array.attrs)
        self._values = conversion.convert(np.asarray(array[...]).reshape(-1))

    def values(self, side: slice) -> pa.Array:
        return self._values[side.start : side.stop]


class IndexColumn(SideColumn):
    """The indices along a dimension that has no coordinate, from 0."""

    def __init__(self, name: str, axis: int) -> None:
        super().__init__(name, axis, pa.int64())

    def values(self, side: slice) -> pa.Array:
        return pa.array(np.arange(side.start, side.stop, dtype=np.int64))


def lengths_of(box: Box) -> Shape:
    """The shape of a box."""
    return tuple(side.stop - side.start for side in box)


@lru_cache(16)
def numbers_along(shape: Shape, axis: int | None) -> pa.Array:
    """For each cell of a box, the number of its item along an axis (int32); 0 without one."""
    numbers = np.zeros((), np.int32)
    if axis is not None:
        numbers = np.arange(shape[axis], dtype=np.int32).reshape(-1, *[1] * (len(shape) - axis - 1))
    return pa.array(np.broadcast_to(numbers, shape).reshape(-1))

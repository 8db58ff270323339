"""Tables of the cells of arrays, read chunk by chunk as somebody asks for their rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import zstore
from zstore import Array, Group
from zstore.errors import MetadataError, UnsupportedError
from zstore.plugin.conventions import read_roles
from zstore.plugin.jobs import Source, SourceStore
from zstore_arrow.columns import CellColumn, Column, IndexColumn, Shape, ValueColumn
from zstore_arrow.scan import Scan, schema_of
from zstore_arrow.types import conversion_of

__all__ = ["ArrayTable", "open_table"]

# Rows of a batch: chunks are read together up to so many, and in parts beyond.
LEAST_ROWS, MOST_ROWS = 1 << 18, 1 << 22


def open_table(
    source: Array | Group | Source | str | os.PathLike[str] | Any,
    values: Mapping[str, Any] | None = None,
    *,
    bbox: Sequence[float] | None = None,
    arrays: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ArrayTable:
    """The cells of a group's arrays as the rows of an Arrow table; they are read when somebody asks for them.

    There is a column for each array, with physical numbers and null for nodata, and for each coordinate; a
    dimension without one has its indices. Rows go along all dimensions; arrays that lack some are repeated.

    values, bbox, arrays  the part of it, as for `zstore.select`

    Raises
        NotFoundError: there is no such source, value or array.
        MetadataError: there are no arrays, or some have dimensions that do not go together.
        UnsupportedError: Arrow has no such data type.
    """
    node = _open(source, values, bbox, arrays, storage_options)
    if isinstance(node, Array):
        return ArrayTable({node.basename or "data": node}, {}, node.store.url)
    roles, place = read_roles(node), f"{node.store.url}/{node.path}".rstrip("/")
    coordinates = {**roles.coordinates, **roles.auxiliary}
    if not (roles.data or coordinates):
        groups = ", ".join(map(repr, node.group_keys())) or "none"
        raise MetadataError(
            f"the group has no arrays; expected one with some, of its groups {groups}", path=place
        )
    return ArrayTable(roles.data or coordinates, coordinates if roles.data else {}, place)


def _open(source: Any, values: Any, bbox: Any, arrays: Any, options: Any) -> Array | Group:
    """The group that is asked for, or an array that lies in none."""
    node = source
    if not isinstance(node, Array | Group | Source):
        node = zstore.open(source, mode="r", storage_options=options)
        if isinstance(node, Array):  # its coordinates lie beside it
            node = zstore.open(source, mode="r", storage_options=options, above=True)
    if isinstance(node, Source):  # a view
        node = zstore.open(SourceStore.of(node), mode="r")
    is_whole = not values and bbox is None and arrays is None
    if is_whole and (isinstance(node, Group) or not node.path):
        return node
    part: Array | Group = zstore.select(node, values, bbox=bbox, arrays=arrays)
    return zstore.open_group(part.store, mode="r") if isinstance(part, Array) else part


class ArrayTable(ds.Dataset):  # type: ignore[misc]
    """The cells of arrays as an Arrow dataset: engines ask it for some columns and rows, and it reads these.

    It has pyarrow's `scanner`, `to_batches`, `to_table`, `head`, `take` and `count_rows`, and
    `__arrow_c_stream__`. Where a `filter` and the coordinates exclude all rows of a chunk, it is not read;
    of other chunks, the columns that the filter needs are read first.

    data         arrays by name; the longest list of dimensions among them is the table's
    coordinates  arrays by name; those with other dimensions than the table's are left out
    dims, shape  the dimensions whose cells the rows are, and their lengths

    Raises
        as `open_table`.
    """

    def __init__(self, data: Mapping[str, Array], coordinates: Mapping[str, Array], url: str) -> None:
        whole = max(data.values(), key=lambda array: array.ndim)
        self.url, self.dims = url, _dims_of(whole)
        self.shape: Shape = whole.shape
        for name, array in {**data, **coordinates}.items():
            if name in data or name in self.dims:
                self._check(name, array)
        spread = [self._chunks(one) for one in data.values() if one.ndim == len(self.dims)]
        self._sides = _sides_of(self.shape, spread)
        self._columns: dict[str, Column] = {dim: IndexColumn(dim, axis) for axis, dim in enumerate(self.dims)}
        for name, array in coordinates.items():
            if self._has(array):
                self._columns[name] = self._coordinate(name, array)
        for name, array in data.items():
            self._columns[name] = CellColumn(name, array, self._axes(array), conversion_of(name, array))

    def _check(self, name: str, array: Array) -> None:
        if not self._has(array):
            own = dict(zip(_dims_of(array), array.shape, strict=True))
            others = dict(zip(self.dims, self.shape, strict=True))
            raise MetadataError(
                f"{name!r} has the dimensions {own}, and other arrays {others}; expected arrays=[...] along "
                "the same dimensions, as a table has one row for each cell of all of them",
                path=self.url,
            )

    def _has(self, array: Array) -> bool:
        """Whether the array's dimensions are some of the table's, of the same lengths."""
        own = dict(zip(_dims_of(array), array.shape, strict=True))
        return len(own) == array.ndim and own.items() <= dict(zip(self.dims, self.shape, strict=True)).items()

    def _axes(self, array: Array) -> list[int]:
        return [self.dims.index(dim) for dim in _dims_of(array)]

    def _chunks(self, array: Array) -> Shape:
        """The shape of an array's chunks, with the table's order of dimensions."""
        return tuple(length for _, length in sorted(zip(self._axes(array), array.chunks, strict=True)))

    def _coordinate(self, name: str, array: Array) -> Column:
        axes, conversion = self._axes(array), conversion_of(name, array, is_coordinate=name in self.dims)
        if array.ndim > 1 or array.ndim == len(self.dims):
            return CellColumn(name, array, axes, conversion)
        return ValueColumn(name, array, axes[0] if axes else None, conversion)

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types; units and names are in the metadata of fields."""
        return schema_of(self._columns)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """The number of rows, or of those for which `filter` is true."""
        return prod(self.shape) if filter is None else self.scanner([], filter).count_rows()

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> Scan:
        """The scan of some columns, or of expressions by name, and of rows for which `filter` is true.

        options  of pyarrow's scanners, which say nothing to this one
        """
        return Scan(self._columns, self._sides, columns, filter)

    def get_fragments(self, filter: pc.Expression | None = None) -> list[Any]:
        """The table as its only part, for engines that scan part by part."""
        return [_Whole(self)]

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scanner().to_reader().__arrow_c_stream__(requested_schema)

    def _refuse(self, *arguments: Any, **options: Any) -> Any:
        raise UnsupportedError("an ArrayTable is only scanned; expected to_table(...) first", path=self.url)

    # Pyarrow's own take a dataset of C++ to be there.
    filter = join = join_asof = replace_schema = sort_by = _refuse
    partition_expression = property(_refuse)


class _Whole:
    """A table in the form of a part of a dataset."""

    def __init__(self, table: ArrayTable) -> None:
        self._table = table

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> Scan:
        """The scan of the table."""
        return self._table.scanner(**options)


def _dims_of(array: Array) -> tuple[str, ...]:
    """The names of an array's dimensions, made up for those that have none."""
    names = array.dims or [None] * array.ndim
    return tuple(str(name or f"dim_{axis}").rpartition("/")[2] for axis, name in enumerate(names))


def _sides_of(shape: Shape, chunks: Sequence[Shape]) -> list[list[slice]]:
    """The sides of batches along each dimension: of the largest chunks, of several of them, or of parts."""
    largest = map(max, zip(*chunks, strict=True))
    lengths = [max(1, min(pair)) for pair in zip(shape, largest, strict=True)]
    for axis in reversed(range(len(shape))):
        more = ceil(LEAST_ROWS / prod(lengths))
        lengths[axis] = max(1, min(shape[axis], lengths[axis] * more))
    for axis in range(len(shape)):
        lengths[axis] = max(1, lengths[axis] // ceil(prod(lengths) / MOST_ROWS))
    return [
        [slice(start, min(start + length, size)) for start in range(0, size, length)]
        for size, length in zip(shape, lengths, strict=True)
    ]

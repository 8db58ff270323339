"""Scans: some columns and rows of a table, read box by box and ahead, and no more than these."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from itertools import product
from math import ceil
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions
from pyarrow.fs import LocalFileSystem

from zstore.plugin.jobs import units_at_once
from zstore_arrow.columns import Box, Column, SideColumn

__all__ = ["Scan", "schema_of"]

BATCH_ROWS = 1 << 16
# Into so many runs the sides of boxes are divided, in which a filter is looked for.
SPLITS = 64


class Scan:
    """Some columns and rows of a table, with the methods of pyarrow's `Scanner`; each call reads them anew.

    Where the filter and the coordinates exclude all rows of a chunk, it is not read; of other chunks, the
    columns that the filter needs are read first. Whoever asks for a batch waits for it; some are read ahead.

    columns  all columns of the table
    sides    the sides of boxes along each dimension; a batch has the rows of a box
    wanted   names, or expressions by name
    filter   true for the rows that are wanted; None: all
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        sides: Sequence[Sequence[slice]],
        wanted: Sequence[str] | Mapping[str, pc.Expression] | None,
        filter: pc.Expression | None,
    ) -> None:
        self._columns, self._sides, self._filter = columns, sides, filter
        self.dataset_schema = schema_of(columns)
        by_cost = sorted(columns, key=lambda name: not isinstance(columns[name], SideColumn))
        names = [*columns] if wanted is None else wanted
        self._made = dict(names) if names and isinstance(names, Mapping) else None
        self._names = [*names] if self._made is None else self._needed(self._made)
        tested = [] if filter is None else self._needed({"": filter})
        # Of a row without columns, one that costs least is read, so that the rows are counted.
        self._first = tested or (by_cost[:1] if filter is not None or not self._names else [])
        nothing = self.dataset_schema.empty_table()
        #: The columns that the scan gives.
        self.projected_schema: pa.Schema = (
            nothing.select(self._names) if self._made is None else project(nothing, self._made)
        ).schema

    def _needed(self, expressions: Mapping[str, pc.Expression]) -> list[str]:
        """The columns without which these expressions cannot be computed."""
        needed, schema = [], self.dataset_schema
        project(schema.empty_table(), expressions)  # raises for what is no column
        for at, name in enumerate(schema.names):
            try:
                project(schema.remove(at).empty_table(), expressions)
            except pa.ArrowInvalid:
                needed.append(name)
        return needed

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the batches, which are made when it is asked for them."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows, in memory."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; no more boxes are read than they need, and those ahead."""
        batches, left = list[pa.RecordBatch](), num_rows
        for batch in self.to_batches():
            batches.append(batch[:left])
            left -= batch.num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """The rows of these numbers, from 0."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows box by box, in batches that engines work on within a processor's cache."""
        for batch in self._read_ahead():
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)

    def _read_ahead(self) -> Iterator[pa.RecordBatch]:
        waiting, ahead = deque[Future[pa.RecordBatch | None]](), units_at_once()
        with ThreadPoolExecutor(ahead, "zstore-arrow") as pool:
            try:
                for box in self._boxes():
                    waiting.append(pool.submit(self._batch, box))
                    if len(waiting) > ahead and (batch := waiting.popleft().result()) is not None:
                        yield batch
                while waiting:
                    if (batch := waiting.popleft().result()) is not None:
                        yield batch
            finally:
                pool.shutdown(cancel_futures=True)

    def _batch(self, box: Box) -> pa.RecordBatch | None:
        """The wanted rows of a box; None without any."""
        rows, mask = self._read(self._first, box), None
        if self._filter is not None:
            mask = project(pa.table(rows), {"": self._filter}).column(0)
            if not pc.any(mask).as_py():
                return None
        rows |= self._read([name for name in self._names if name not in rows], box)
        table = pa.table(rows)
        if mask is not None and not pc.all(mask, skip_nulls=False).as_py():
            table = table.filter(mask)
        if self._made is not None:
            table = project(table, self._made)
        arrays = [table.column(name).combine_chunks() for name in self.projected_schema.names]
        if not arrays:
            return rows_alone(table.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self.projected_schema)

    def _read(self, names: Sequence[str], box: Box) -> dict[str, pa.Array]:
        return {name: self._columns[name].read(box) for name in names}

    def _boxes(self) -> Iterator[Box]:
        """The boxes in C order, without those along a dimension that the filter excludes."""
        return product(*(self._admitted(axis, sides) for axis, sides in enumerate(self._sides)))

    def _admitted(self, axis: int, sides: Sequence[slice]) -> Sequence[slice]:
        """The sides in which the filter may be true of some values of the coordinates along an axis."""
        along = [one for one in self._columns.values() if isinstance(one, SideColumn) and one.axis == axis]
        if self._filter is None or not along or not sides:
            return sides
        runs, count = [sides], len(sides)
        while True:  # runs of sides, then shorter ones within these
            count = ceil(count / SPLITS)
            pieces = [run[at : at + count] for run in runs for at in range(0, len(run), count)]
            ends = [slice(piece[0].start, piece[-1].stop) for piece in pieces]
            facts = [reduce(and_, [column.within(side) for column in along]) for side in ends]
            runs = [pieces[number] for number in self._compatible(facts)]
            if count == 1:
                return [side for run in runs for side in run]

    def _compatible(self, facts: Sequence[pc.Expression]) -> list[int]:
        """The numbers of those facts about rows that do not exclude the filter."""
        schema = pa.schema([(column.name, column.value_type) for column in self._columns.values()])
        # No file is opened: pyarrow compares the filter with what is said of each.
        numbered = ds.FileSystemDataset.from_paths(
            [str(number) for number in range(len(facts))],
            schema=schema,
            format=ds.IpcFileFormat(),
            filesystem=LocalFileSystem(),
            partitions=[*facts],
        )
        return [int(one.path) for one in numbered.get_fragments(self._filter)]


def schema_of(columns: Mapping[str, Column]) -> pa.Schema:
    """The columns' names and types; units and names in full are the metadata of fields."""
    return pa.schema([column.field for column in columns.values()])


def project(table: pa.Table, expressions: Mapping[str, pc.Expression]) -> pa.Table:
    """The values of expressions, row by row."""
    source = Declaration("table_source", TableSourceNodeOptions(table))
    made = ProjectNodeOptions([*expressions.values()], [*expressions])
    return Declaration.from_sequence([source, Declaration("project", made)]).to_table(use_threads=False)


def rows_alone(count: int) -> pa.RecordBatch:
    """Rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))

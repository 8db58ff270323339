"""Lists of many objects in JSON as tables: each member is a column, whose equal values are there once.

A table has the objects that have the same members, and those of their members that are objects themselves
the same. A column is [values] with one value for all rows or one for each; [values, numbers], where rows have
values by their numbers; or [integers, ends], where rows have lists of integers from 0 on.

Example: [{"url": "a", "chunks": [2]}, {"url": "b", "chunks": [2]}] is
    {"tables": [{"count": 2, "columns": {"url": [["a", "b"]], "chunks": [[[2]]]}}], "order": [0, 0]}
with "order", which says the table of each object, as items.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import inf
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.views.items import Json, parse_items, parse_number, render_items

Numbers = np.ndarray[Any, np.dtype[np.integer[Any]]]


# Written


def render_tables(members: Sequence[Json]) -> Json:
    """Objects as tables."""
    rows: dict[Any, list[int]] = {}
    for number, member in enumerate(members):
        rows.setdefault(_form(member), []).append(number)
    order = np.zeros(len(members), np.int64)
    tables = []
    for table, own in enumerate(rows.values()):
        order[own] = table
        tables.append({"count": len(own), "columns": _render_columns([members[number] for number in own])})
    return {"tables": tables, "order": _render_numbers(order)}


def _form(value: Any) -> Any:
    """The names of an object's members, and of those of their members that are objects; else None."""
    return tuple((name, _form(one)) for name, one in value.items()) if isinstance(value, dict) else None


def _render_columns(rows: Sequence[Json]) -> Json:
    return {name: _render_column([row[name] for row in rows]) for name in rows[0]}


def _render_column(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return _render_columns(values)
    if len(values) > 1 and values[0] != values[1] and all(map(_is_list_of_numbers, values)):
        return [
            _render_numbers(np.array([*chain.from_iterable(values)], np.int64)),
            _render_numbers(np.array([*accumulate(map(len, values))], np.int64)),
        ]
    numbers: dict[str, int] = {}
    which = [numbers.setdefault(json.dumps(value), len(numbers)) for value in values]
    if len(numbers) > len(values) // 2:
        return [values]
    kinds = [json.loads(text) for text in numbers]
    return [kinds] if len(kinds) == 1 else [kinds, _render_numbers(np.array(which))]


def _is_list_of_numbers(value: Any) -> bool:
    is_list = type(value) is list and len(value) > 0
    return is_list and all(type(one) is int and 0 <= one < 1 << 63 for one in value)


def _render_numbers(numbers: Numbers) -> Json:
    """Numbers from 0 on as items of the smallest type that has them."""
    return render_items(numbers.astype(np.min_scalar_type(numbers.max(initial=0)).newbyteorder("<")), inf)


# Read


@dataclass(frozen=True)
class Column:
    """The values of rows: each of some, by its number."""

    values: list[Any]
    numbers: Numbers

    def take(self, rows: Numbers) -> list[Any]:
        """The values of some rows."""
        return [self.values[number] for number in self.numbers[rows].tolist()]


@dataclass(frozen=True)
class ListColumn:
    """Lists of integers, one behind the other."""

    integers: Numbers
    ends: Numbers

    def take(self, rows: Numbers) -> list[Any]:
        """The lists of some rows."""
        begins = np.where(rows > 0, self.ends[rows - 1], 0)
        return [
            self.integers[begin:end].tolist()
            for begin, end in zip(begins.tolist(), self.ends[rows].tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Members:
    """The columns of objects that have the same members."""

    columns: dict[str, Column | ListColumn | Members]

    def take(self, rows: Numbers) -> list[Any]:
        """The objects of some rows."""
        taken = [column.take(rows) for column in self.columns.values()]
        values: Iterable[Any] = zip(*taken, strict=True) if taken else [()] * len(rows)
        return [dict(zip(self.columns, row, strict=True)) for row in values]


class Tables(Sequence[Json]):
    """JSON objects that are stored as tables; each is made when it is asked for.

    Raises
        MetadataError, ValueError, LookupError, TypeError: the tables are damaged.
    """

    def __init__(self, said: Json) -> None:
        order = _parse_numbers(said["order"], len(said["tables"]))
        counts = [parse_number(table["count"], len(order) + 1) for table in said["tables"]]
        if np.bincount(order, minlength=len(counts)).tolist() != counts:
            raise MetadataError(f"tables have {counts} objects; expected as many as 'order' says")
        self._tables = [
            _parse_columns(one["columns"], count) for one, count in zip(said["tables"], counts, strict=True)
        ]
        self._order = order
        # The row that each object has in its table: in the order of tables, they count from 0 on.
        rows, firsts = np.empty(len(order), np.int32), np.cumsum([0, *counts])
        by_table = np.argsort(order, kind="stable")
        rows[by_table] = np.arange(len(order)) - np.repeat(firsts[:-1], counts)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, number: Any) -> Any:
        return self._tables[self._order[number]].take(self._rows[number : number + 1])[0]

    def many(self, numbers: Numbers, name: str) -> list[Any]:
        """A member of some objects; None where one has none of that name."""
        made: list[Any] = [None] * len(numbers)
        order, rows = self._order[numbers], self._rows[numbers]
        for table in np.unique(order):
            column, own = self._tables[table].columns.get(name), np.flatnonzero(order == table)
            if column is not None:
                for at, value in zip(own.tolist(), column.take(rows[own]), strict=True):
                    made[at] = value
        return made


def _parse_columns(said: Json, count: int) -> Members:
    return Members({name: _parse_column(one, count) for name, one in said.items()})


def _parse_column(said: Any, count: int) -> Column | ListColumn | Members:
    if isinstance(said, dict):
        return _parse_columns(said, count)
    values = said[0]
    if isinstance(values, dict):
        integers = _parse_numbers(values, None)
        ends = _parse_numbers(said[1], len(integers) + 1).astype(np.int64)
        if len(ends) != count or (np.diff(ends) < 0).any():
            raise MetadataError(f"{len(ends)} lists; expected {count}, one behind the other")
        return ListColumn(integers, ends)
    if not isinstance(values, list):
        raise MetadataError(f"values are {values!r}; expected a list")
    if len(said) == 2:
        numbers = _parse_numbers(said[1], len(values))
    else:
        numbers = np.arange(count, dtype=np.int32) if len(values) == count else np.zeros(count, np.uint8)
    if len(numbers) != count or (len(said) != 2 and len(values) not in (1, count)):
        raise MetadataError(f"{len(values)} values; expected one, or {count}, or numbers for each")
    return Column(values, numbers)


def _parse_numbers(said: Json, stop: int | None) -> Numbers:
    numbers = parse_items(said)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise MetadataError(f"{numbers.dtype} of {numbers.ndim} axes; expected a list of integers")
    if stop is not None and numbers.size and not 0 <= numbers.min() <= numbers.max() < stop:
        raise MetadataError(f"numbers from {numbers.min()} to {numbers.max()}; expected 0 to before {stop}")
    return numbers

"""A manifest: the documents of a hierarchy, and where each chunk of its arrays lies in other files.

It is kept in numpy arrays, 16 to 28 bytes for each reference, whatever form it was read from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zstore.errors import MetadataError
from zstore.storage.base import join_key

__all__ = ["ABSENT", "INLINE", "Chunks", "Manifest", "Source"]

# In the place of a source's number: there is no such chunk; its bytes are in the manifest itself.
ABSENT = -1
INLINE = -2
# The key of a chunk: "0.1", "0/1", "c/0/1", "c".
CELL = re.compile(r"(c(?:[./](?=\d)|$))?((?:0|[1-9]\d{0,18})(?:[./](?:0|[1-9]\d{0,18}))*)?", re.ASCII)
MOST_DIMENSIONS = 32
MOST_CHUNKS = 1 << 62


class Source(NamedTuple):
    """A file that references lead to, and what it was when they were made, as far as that is known.

    address   a path or a URL
    size      in bytes
    modified  when it was last changed, in nanoseconds since 1970
    tag       its entity tag, as an object store or a web server says it
    """

    address: str
    size: int | None = None
    modified: int | None = None
    tag: str | None = None


@dataclass
class Chunks:
    """Where the chunks of one array lie: for each a source, an offset and a size.

    grid       how many chunks there are along each dimension
    source     int32: the number of a source in the manifest, ABSENT, or INLINE
    offset     int64: where in the source, or in `inline`, the chunk begins
    size       int64: how many bytes it has
    numbers    int64, ascending: the places of the chunks in the grid, in order C; None: one after the other, all
    inline     the bytes of the chunks that are in the manifest itself, one after the other
    has_c      whether keys begin with "c", as those of Zarr v3 do
    separator  what stands between the numbers of a key
    """

    grid: tuple[int, ...]
    source: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    numbers: NDArray[np.int64] | None = None
    inline: bytes = b""
    has_c: bool = False
    separator: str = "."

    def __post_init__(self) -> None:
        self.grid = tuple(int(count) for count in self.grid)
        if len(self.grid) > MOST_DIMENSIONS or any(c < 0 for c in self.grid) or prod(self.grid) > MOST_CHUNKS:
            raise MetadataError(
                f"a grid of {self.grid} chunks; expected at most 32 dimensions and 2^62 chunks"
            )
        self.source = np.ascontiguousarray(self.source, np.int32).reshape(-1)
        self.offset = np.ascontiguousarray(self.offset, np.int64).reshape(-1)
        self.size = np.ascontiguousarray(self.size, np.int64).reshape(-1)
        count = prod(self.grid)
        if self.numbers is not None:
            self.numbers = np.ascontiguousarray(self.numbers, np.int64).reshape(-1)
            steps = np.diff(self.numbers)
            is_ascending = not len(steps) or steps.min() > 0
            if not is_ascending or (
                len(self.numbers) and not 0 <= self.numbers[0] <= self.numbers[-1] < count
            ):
                raise MetadataError(f"chunks are not in ascending order below {count}, each once")
            count = len(self.numbers)
        if not len(self.source) == len(self.offset) == len(self.size) == count:
            lengths = len(self.source), len(self.offset), len(self.size)
            raise MetadataError(f"{lengths} sources, offsets and sizes given, expected {count} of each")
        there = self.source != ABSENT
        if bool(
            np.any(there & ((self.offset < 0) | (self.size < 0) | (self.offset > MOST_CHUNKS - self.size)))
        ):
            raise MetadataError("a reference has a negative offset or size, or reaches beyond 2^62 bytes")
        is_inline = self.source == INLINE
        if bool(np.any(is_inline & (self.offset + self.size > len(self.inline)))):
            raise MetadataError("a chunk lies outside of the bytes that are in the manifest")

    @classmethod
    def of_cells(
        cls,
        grid: Sequence[int],
        cells: ArrayLike,
        source: ArrayLike,
        offset: ArrayLike,
        size: ArrayLike,
        **options: Any,
    ) -> Chunks:
        """The chunks at these cells of the grid, (count, dimensions), in any order; others are not there.

        Raises
            MetadataError: a cell is named twice or lies outside the grid.
        """
        grid = tuple(int(count) for count in grid)
        if prod(grid) > MOST_CHUNKS:
            raise MetadataError(f"a grid of {grid} chunks; expected at most 2^62")
        places = np.asarray(cells, np.int64).reshape(-1, len(grid))
        if bool(np.any((places < 0) | (places >= np.asarray(grid, np.int64)))):
            raise MetadataError(f"a chunk lies outside of the grid of {grid} chunks")
        numbers = np.zeros(len(places), np.int64)
        for d, count in enumerate(grid):
            numbers *= count
            numbers += places[:, d]
        source, offset, size = np.asarray(source), np.asarray(offset), np.asarray(size)
        if len(numbers) > 1 and np.diff(numbers).min() <= 0:
            order = np.argsort(numbers, kind="stable")
            numbers, source, offset, size = numbers[order], source[order], offset[order], size[order]
        is_all = len(numbers) == prod(grid)
        if is_all and len(numbers) and bool(np.any(np.diff(numbers) != 1)):
            is_all = False
        return cls(grid, source, offset, size, None if is_all else numbers, **options)

    def row(self, name: str) -> int | None:
        """Where in the arrays the chunk of this key (without the array's path) is; None: not there."""
        cell = parse_cell(name, self.has_c, self.separator)
        if cell is None or len(cell) != len(self.grid):
            # A chunk of no dimensions is "0" in v2, "c" in v3.
            if self.grid or self.has_c or name != "0":
                return None
            cell = ()
        number = 0
        for at, count in zip(cell, self.grid, strict=True):
            if at >= count:
                return None
            number = number * count + at
        if self.numbers is not None:
            row = int(np.searchsorted(self.numbers, number))
            if row == len(self.numbers) or self.numbers[row] != number:
                return None
            number = row
        return None if self.source[number] == ABSENT else number

    def name(self, row: int) -> str:
        """The key of a chunk, without the array's path."""
        number = row if self.numbers is None else int(self.numbers[row])
        cell = []
        for count in reversed(self.grid):
            number, at = divmod(number, count)
            cell.append(str(at))
        parts = [*(["c"] if self.has_c else []), *reversed(cell)]
        return self.separator.join(parts) or "0"


def parse_cell(name: str, has_c: bool, separator: str) -> tuple[int, ...] | None:
    """The numbers of a chunk's key; None where that is no such key."""
    found = CELL.fullmatch(name)
    if found is None or not name or bool(found[1]) != has_c:
        return None
    if (found[1] or separator)[-1:] not in (separator, "c") or ("/." if separator == "." else "./")[
        0
    ] in name:
        return None
    return tuple(int(at) for at in found[2].split(separator)) if found[2] else ()


@dataclass
class Manifest:
    """Documents by key, chunks by the path of their array ("" for one at the root), and the sources of all."""

    documents: dict[str, bytes] = field(default_factory=dict)
    chunks: dict[str, Chunks] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = {source.address: number for number, source in enumerate(self.sources)}

    def add_source(
        self, address: str, *, size: int | None = None, modified: int | None = None, tag: str | None = None
    ) -> int:
        """The number of the source at `address`, which is kept once however often it is added."""
        if address not in self._numbers:
            self._numbers[address] = len(self.sources)
            self.sources.append(Source(address, size, modified, tag))
        return self._numbers[address]

    def find(self, key: str) -> tuple[Chunks, int] | None:
        """The chunks and the row of a chunk's key; None: no such chunk."""
        for path, name in _splits(key):
            chunks = self.chunks.get(path)
            if chunks is not None:
                row = chunks.row(name)
                return None if row is None else (chunks, row)
        return None

    @property
    def count(self) -> int:
        """How many references there are."""
        return sum(int(np.count_nonzero(chunks.source != ABSENT)) for chunks in self.chunks.values())


def _splits(key: str) -> list[tuple[str, str]]:
    """An array's path and the rest of the key, the longest path first."""
    parts = key.split("/")
    return [(join_key(*parts[:n]), "/".join(parts[n:])) for n in range(len(parts) - 1, -1, -1)]


def describe(source: Source) -> Mapping[str, Any]:
    """What is known of a source, in the words of JSON."""
    return {
        name: value for name, value in source._asdict().items() if value is not None and name != "address"
    }

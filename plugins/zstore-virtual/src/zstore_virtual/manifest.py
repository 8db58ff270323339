"""A manifest: the documents of a hierarchy, and for each chunk of its arrays a byte range of another file.

References are kept in numpy arrays, whatever form they were read from: 20 bytes each, or 28 where some
chunks of the array are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zstore.errors import MetadataError
from zstore.plugin.nodes import ChunkKeys

__all__ = [
    "ABSENT",
    "INLINE",
    "WHOLE",
    "Chunks",
    "Manifest",
    "Reference",
    "Source",
    "join_blocks",
]

# These stand where a source's number would: the chunk is not stored; its bytes are in the manifest itself.
ABSENT = -1
INLINE = -2
# Stands where a size would: everything from the offset to the end of the source.
WHOLE = -1
KEYS_V2 = ChunkKeys("v2", ".")
MOST_DIMENSIONS = 32
MOST_CHUNKS = 1 << 62
# Rows are checked this many at a time, so that checking takes little memory.
CHECKED_ROWS = 1 << 16


class Source(NamedTuple):
    """A file that references lead to, with what is known of it from the time when they were made.

    address   a path or a URL
    size      in bytes
    modified  when it was last changed, in nanoseconds since 1970
    tag       its entity tag, as an object store or a web server sends it
    """

    address: str
    size: int | None = None
    modified: int | None = None
    tag: str | None = None


class Reference(NamedTuple):
    """A byte range of a source, given by its number; a `size` of WHOLE reaches to the end of the source."""

    source: int
    offset: int
    size: int


@dataclass
class Chunks:
    """The references of one array: a row with source, offset and size for each chunk.

    grid       how many chunks there are along each dimension
    source     int32 per row: the number of a source in the manifest, ABSENT, or INLINE
    offset     int64 per row: where in the source, or in `inline`, the chunk begins
    size       int64 per row: how many bytes it has; WHOLE: everything from the offset on
    numbers    int64, ascending: the chunk of each row, counted in C order through the grid; None: all chunks
    inline     the bytes of the chunks that are in the manifest itself, one after the other
    keys       the encoding of chunk keys
    """

    grid: tuple[int, ...]
    source: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    numbers: NDArray[np.int64] | None = None
    inline: bytes = b""
    keys: ChunkKeys = KEYS_V2

    def __post_init__(self) -> None:
        self.grid = _checked_grid(self.grid)
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
                raise MetadataError(f"chunk numbers are not ascending and below {count}, each once")
            count = len(self.numbers)
        if not len(self.source) == len(self.offset) == len(self.size) == count:
            lengths = len(self.source), len(self.offset), len(self.size)
            raise MetadataError(f"{lengths} sources, offsets and sizes are given; expected {count} of each")
        for first in range(0, count, CHECKED_ROWS):
            self._check(slice(first, first + CHECKED_ROWS))

    def _check(self, rows: slice) -> None:
        """Check the byte ranges of some rows, and set those of chunks that are not stored to 0.

        Raises
            MetadataError: a byte range cannot be, or inline bytes are not in the manifest.
        """
        source, offset, size = self.source[rows], self.offset[rows], self.size[rows]
        absent = source == ABSENT
        if bool(np.any(absent & ((offset < 0) | (size < 0)))):
            # In new arrays: these may be the caller's.
            self.offset = np.where(self.source == ABSENT, 0, self.offset)
            self.size = np.where(self.source == ABSENT, 0, self.size)
            offset, size = self.offset[rows], self.size[rows]
        known = np.where(size == WHOLE, 0, size)
        if bool(np.any(~absent & ((offset < 0) | (known < 0) | (offset > MOST_CHUNKS - known)))):
            raise MetadataError("a reference has a negative offset or size, or reaches beyond 2^62 bytes")
        is_outside = (size < 0) | (offset + size > len(self.inline))
        if bool(np.any((source == INLINE) & is_outside)) or bool(np.any(source < INLINE)):
            raise MetadataError("a chunk lies outside the manifest's own bytes, or its source is below -2")

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
        """A table of the chunks at `cells`, (count, dimensions), in any order; no other chunks are stored.

        Raises
            MetadataError: a cell is named twice or lies outside the grid.
        """
        grid = _checked_grid(grid)
        places = np.asarray(cells, np.int64).reshape(np.size(source), len(grid))
        if bool(np.any((places < 0) | (places >= np.asarray(grid, np.int64)))):
            raise MetadataError(f"a chunk lies outside the grid of {grid} chunks")
        numbers = np.zeros(len(places), np.int64)
        for d, count in enumerate(grid):
            numbers *= count
            numbers += places[:, d]
        return cls.of_numbers(
            grid, numbers, np.asarray(source), np.asarray(offset), np.asarray(size), **options
        )

    @classmethod
    def of_numbers(
        cls,
        grid: tuple[int, ...],
        numbers: NDArray[np.int64],
        source: NDArray[Any],
        offset: NDArray[Any],
        size: NDArray[Any],
        **options: Any,
    ) -> Chunks:
        """A table of the chunks with these numbers (C order), in any order; no other chunks are stored."""
        if len(numbers) > 1 and bool(np.any(numbers[1:] <= numbers[:-1])):
            order = np.argsort(numbers, kind="stable")
            numbers, source, offset, size = numbers[order], source[order], offset[order], size[order]
        count = prod(grid)
        is_all = len(numbers) == count and not (count and numbers[-1] != count - 1)
        is_all = is_all and not bool(np.any(numbers[1:] <= numbers[:-1]))
        return cls(grid, source, offset, size, None if is_all else numbers, **options)

    def row(self, name: str) -> int | None:
        """The row of the chunk under a key without the array's path; None where it is not stored."""
        number = self.keys.number(name, self.grid)
        if number is None:
            return None
        if self.numbers is not None:
            row = int(np.searchsorted(self.numbers, number))
            if row == len(self.numbers) or self.numbers[row] != number:
                return None
            number = row
        return None if self.source[number] == ABSENT else number

    def name(self, row: int) -> str:
        """The key of the chunk in a row, without the array's path."""
        number = row if self.numbers is None else int(self.numbers[row])
        cell = []
        for count in reversed(self.grid):
            number, at = divmod(number, count)
            cell.append(at)
        return self.keys.key(reversed(cell))

    def names(self) -> Iterator[str]:
        """The keys of all stored chunks, without the array's path."""
        return (self.name(int(row)) for row in np.flatnonzero(self.source != ABSENT))


def join_blocks(blocks: list[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    """The columns of a table that is given in blocks of rows; the blocks are emptied.

    Columns are joined one by one, so that only one of them is in memory twice.
    """
    columns = [np.concatenate([block.pop() for block in blocks]) for _ in range(len(blocks[0]))]
    return columns[::-1]


def _checked_grid(grid: Iterable[int]) -> tuple[int, ...]:
    counts = tuple(int(count) for count in grid)
    if len(counts) > MOST_DIMENSIONS or any(count < 0 for count in counts) or prod(counts) > MOST_CHUNKS:
        raise MetadataError(f"a grid of {counts} chunks; expected at most 32 dimensions and 2^62 chunks")
    return counts


@dataclass
class Manifest:
    """The documents of a hierarchy, and references to its chunks.

    documents  by key, with every other value that is no chunk of an array
    chunks     references by the path of their array, "" for one at the root
    sources    the files that references lead to, each once
    address    the path or URL that it was read from, None where it was made in memory; relative addresses
               of sources begin in the directory of that file
    """

    documents: dict[str, bytes | Reference] = field(default_factory=dict)
    chunks: MutableMapping[str, Chunks] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    address: str | None = None

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

    def load(self) -> None:
        """Load all references, and with them all sources, if that was left until they are needed."""
        self.chunks = dict(self.chunks)

    def near(self, path: str, name: str) -> Chunks | None:
        """References of an array, those of the chunk `name` among them if it is stored."""
        return self.chunks.get(path)

    def table(self, path: str, is_local: Callable[[str], bool]) -> Chunks | None:
        """All references of an array; None where they should not be loaded at once, as `is_local` tells."""
        return self.chunks.get(path)

    def find(self, key: str) -> bytes | memoryview | Reference | None:
        """The bytes of a key, or the reference to them; None where there is no such key."""
        found = self.documents.get(key)
        if found is not None:
            return found
        # A key that cannot be a chunk's must not make references load.
        if not key[-1:].isdigit() and key.rpartition("/")[2] != "c":
            return None
        parts = key.split("/")
        for n in range(len(parts) - 1, -1, -1):
            name = "/".join(parts[n:])
            chunks = self.near("/".join(parts[:n]), name)
            row = None if chunks is None else chunks.row(name)
            if chunks is None or row is None:
                continue
            source, offset, size = int(chunks.source[row]), int(chunks.offset[row]), int(chunks.size[row])
            if source == INLINE:
                return memoryview(chunks.inline)[offset : offset + size]
            return Reference(source, offset, size)
        return None

    def list_keys(self, prefix: str = "") -> Iterator[str]:
        """Every key below a prefix."""
        start = prefix and f"{prefix}/"
        yield from [key for key in self.documents if key.startswith(start)]
        for path, chunks in [*self.chunks.items()]:
            below = path and f"{path}/"
            if below.startswith(start):
                yield from (below + name for name in chunks.names())
            elif start.startswith(below):
                yield from (key for name in chunks.names() if (key := below + name).startswith(start))

    def children(self, prefix: str = "") -> list[str]:
        """The sorted names right below a prefix; arrays are known by their documents."""
        start = prefix and f"{prefix}/"
        found = {key[len(start) :].partition("/")[0] for key in self.documents if key.startswith(start)}
        parts = prefix.split("/") if prefix else []
        for n in range(len(parts) + 1):
            path = "/".join(parts[:n])
            chunks = self.chunks.get(path)
            if chunks is not None:
                below = path and f"{path}/"
                names = (below + name for name in chunks.names())
                found |= {key[len(start) :].partition("/")[0] for key in names if key.startswith(start)}
        return sorted(found)

    @property
    def count(self) -> int:
        """How many references to chunks there are."""
        return sum(int(np.count_nonzero(chunks.source != ABSENT)) for chunks in self.chunks.values())

"""Collects references key by key, in any order, into the tables of a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zstore.errors import MetadataError
from zstore.plugin.nodes import ChunkKeys, parse_json
from zstore_virtual.manifest import (
    ABSENT,
    INLINE,
    MOST_CHUNKS,
    MOST_DIMENSIONS,
    Chunks,
    Manifest,
    Reference,
    join_blocks,
)

__all__ = ["Collector", "Grid", "Rows", "grid_of", "paths_of"]

# How many values a manifest may have that are not chunks: each is an object of its own.
MOST_VALUES = 4_000_000
# How many rows an array's first block has, and the largest.
FIRST_ROWS, MOST_ROWS = 64, 1 << 16
ARRAY_DOCUMENTS = ("/.zarray", "/zarr.json")
Ints = NDArray[np.int64]
# How many chunks an array has along each dimension, and the encoding of their keys.
Grid = tuple[tuple[int, ...], ChunkKeys]


class Collector:
    """Takes inline values and references by key, and gives the manifest of all of them.

    grids  the presumed grids of arrays, by path: keys of their chunks become rows of numpy arrays, other keys
           are kept as they are. `finish` compares each grid with the array's document, which decides.
    """

    def __init__(self, grids: Mapping[str, Grid | None]) -> None:
        self.manifest = Manifest()
        self._grids = grids
        self._above = {above for path in grids for above in _above(path)}
        self._rows: dict[str, Rows] = {}

    def rows(self, key: str) -> tuple[Rows | None, str]:
        """The rows of the array that a key is below, if it has a grid, and the rest of the key."""
        parts = key.split("/")
        for n in range(len(parts) - 1, -1, -1):
            path = "/".join(parts[:n])
            if path not in self._grids:
                continue
            found, grid = self._rows.get(path), self._grids[path]
            if found is None and grid is not None:
                may_nest = path in self._above and grid[1].separator == "/"
                found = self._rows[path] = Rows(*grid, is_alone=not may_nest)
            return found, "/".join(parts[n:])
        return None, key

    def put(self, key: str, value: bytes) -> None:
        """Add a value that is in the manifest itself."""
        rows, name = self.rows(key)
        number = None if rows is None else rows.number(name)
        if rows is None or number is None:
            self._keep(key, value)
        else:
            rows.put(number, INLINE, len(rows.inline), len(value))
            rows.inline += value

    def refer(self, key: str, source: int, offset: int, size: int) -> None:
        """Add a reference to a value in a source."""
        rows, name = self.rows(key)
        number = None if rows is None else rows.number(name)
        if rows is None or number is None:
            self._keep(key, Reference(source, offset, size))
        else:
            rows.put(number, source, offset, size)

    def finish(self, number_of: Ints | None = None) -> Manifest:
        """The manifest; `number_of` has the manifest's number for each source number that was given here."""
        manifest = self.manifest
        for path in [*self._rows]:
            rows = self._rows.pop(path)
            if grid_of(manifest.documents, path) != (rows.grid, rows.keys):
                for name, value in rows.values():
                    self._keep(f"{path}/{name}" if path else name, value)
            elif rows:
                manifest.chunks[path] = rows.chunks(number_of)
        if number_of is not None:
            for key, kept in manifest.documents.items():
                if isinstance(kept, Reference):
                    manifest.documents[key] = kept._replace(source=int(number_of[kept.source]))
        return manifest

    def _keep(self, key: str, value: bytes | Reference) -> None:
        self.manifest.documents[key] = value
        if len(self.manifest.documents) > MOST_VALUES:
            raise MetadataError(f"more than {MOST_VALUES} values that are not chunks of an array")


class Rows:
    """The references of one array so far, in blocks of columns: chunk number, source, offset, size.

    is_alone  whether every key below the array's path that looks like a chunk of it is one; below arrays with
              keys such as "1/2" there may be another array, named by a number
    """

    def __init__(self, grid: tuple[int, ...], keys: ChunkKeys, *, is_alone: bool) -> None:
        self.grid, self.keys = grid, keys
        self.is_alone = is_alone and bool(grid)
        self.inline = bytearray()
        self._blocks: list[list[NDArray[Any]]] = []
        self._count = 0

    def __len__(self) -> int:
        return sum(len(block[0]) for block in self._blocks[:-1]) + self._count

    def number(self, name: str) -> int | None:
        """The number of the chunk under a key without the array's path; None if it is no chunk."""
        # VirtualiZarr (2.8) leaves the name of a scalar's chunk empty: "path/".
        return 0 if not name and not self.grid else self.keys.number(name, self.grid)

    def room(self) -> tuple[list[NDArray[Any]], int]:
        """The columns of a block that has room, and its first free row."""
        size = len(self._blocks[-1][0]) if self._blocks else 0
        if self._count == size:
            size = min(max(2 * size, FIRST_ROWS), MOST_ROWS)
            self._blocks.append([np.empty(size, kind) for kind in (np.int64, np.int32, np.int64, np.int64)])
            self._count = 0
        return self._blocks[-1], self._count

    def fill(self, count: int) -> None:
        """State that the block given by `room` is now filled up to row `count`."""
        self._count = count

    def put(self, *values: int) -> None:
        """Add a row: chunk number, source, offset and size."""
        columns, row = self.room()
        for column, value in zip(columns, values, strict=True):
            column[row] = value
        self._count = row + 1

    def chunks(self, number_of: Ints | None) -> Chunks:
        """The table of all rows, which are emptied for it."""
        blocks, self._blocks = self._blocks, []
        blocks[-1] = [column[: self._count] for column in blocks[-1]]
        number, source, offset, size = join_blocks(blocks)
        if number_of is not None and len(number_of):
            # INLINE (-2) and ABSENT (-1) index the last two items.
            source = np.append(number_of.astype(np.int32), (INLINE, ABSENT)).astype(np.int32)[source]
        inline = bytes(self.inline)
        return Chunks.of_numbers(self.grid, number, source, offset, size, inline=inline, keys=self.keys)

    def values(self) -> Iterator[tuple[str, bytes | Reference]]:
        """Each row's key without the array's path, with its bytes or reference."""
        for block in self._blocks:
            count = self._count if block is self._blocks[-1] else None
            for number, source, offset, size in zip(
                *(column[:count].tolist() for column in block), strict=True
            ):
                cell = np.unravel_index(number, self.grid) if self.grid else ()
                name = self.keys.key(int(at) for at in cell)
                if source == INLINE:
                    yield name, bytes(self.inline[offset : offset + size])
                else:
                    yield name, Reference(source, offset, size)


def grid_of(documents: Mapping[str, bytes | Reference], path: str) -> Grid | None:
    """The grid of the array at `path` and the encoding of its chunk keys, by its document.

    None where there is no array with a regular grid, or the grid is too large for a table.
    """
    start = path and f"{path}/"
    for name in (".zarray", "zarr.json"):
        document = documents.get(start + name)
        if isinstance(document, bytes):
            try:
                return _parse_grid(parse_json(document, path=path, key=start + name), name == ".zarray")
            except (MetadataError, TypeError, ValueError, KeyError, AttributeError):
                return None  # opening the array reports what is wrong with its document
    return None


def _parse_grid(document: Mapping[str, Any], is_v2: bool) -> Grid | None:
    if is_v2:
        chunks, keys = document["chunks"], ChunkKeys("v2", document.get("dimension_separator", "."))
    else:
        if document.get("node_type") != "array" or document["chunk_grid"]["name"] != "regular":
            return None
        chunks = document["chunk_grid"]["configuration"]["chunk_shape"]
        encoding = document["chunk_key_encoding"]
        name = encoding["name"]
        separator = encoding.get("configuration", {}).get("separator", "/" if name == "default" else ".")
        keys = ChunkKeys(name, separator)
    shape = document["shape"]
    if keys.name not in ("default", "v2") or keys.separator not in ("/", "."):
        return None
    if len(shape) != len(chunks) or not all(type(n) is int and n > 0 for n in chunks):
        return None
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > MOST_DIMENSIONS:
        return None
    grid = tuple(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))
    return None if prod(grid) > MOST_CHUNKS else (grid, keys)


def _above(path: str) -> Iterator[str]:
    """The paths of all groups above a path."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def paths_of(keys: Iterator[str]) -> set[str]:
    """The paths of the nodes that have array documents (or a zarr.json) among the keys."""
    documents = (f"/{key}" for key in keys if f"/{key}".endswith(ARRAY_DOCUMENTS))
    return {document.rpartition("/")[0].removeprefix("/") for document in documents}

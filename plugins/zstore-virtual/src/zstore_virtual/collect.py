"""References by key, as they come, made into the chunks of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zstore.errors import MetadataError
from zstore.model.document import parse_json
from zstore.model.keys import ChunkKeys
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

__all__ = ["Collector", "Form", "Rows", "grid_of", "paths_of"]

# How many values that are no chunks may be told of, each by its own object.
MOST_VALUES = 4_000_000
# Rows of a block: the first of an array, and at most.
FIRST_ROWS, MOST_ROWS = 64, 1 << 16
ENDS = ("/.zarray", "/zarr.json")
Ints = NDArray[np.int64]
# How many chunks an array has along each dimension, and how they are named.
Form = tuple[tuple[int, ...], ChunkKeys]


class Collector:
    """Takes references to values by key and gives the manifest of all of them.

    forms  what the grids of arrays seem to be, by path: chunks of these are kept in numpy arrays, any other
           value by its key. At the end it is the documents that say which are chunks.
    """

    def __init__(self, forms: Mapping[str, Form | None]) -> None:
        self.manifest = Manifest()
        self._forms = forms
        self._above = {above for path in self._forms for above in _above(path)}
        self._rows: dict[str, Rows] = {}

    def rows(self, key: str) -> tuple[Rows | None, str]:
        """The chunks of the array that a key is below, if it has a grid, and the rest of the key."""
        parts = key.split("/")
        for n in range(len(parts) - 1, -1, -1):
            path = "/".join(parts[:n])
            if path not in self._forms:
                continue
            found, form = self._rows.get(path), self._forms[path]
            if found is None and form is not None:
                is_top = path in self._above and form[1].separator == "/"
                found = self._rows[path] = Rows(*form, is_alone=not is_top)
            return found, "/".join(parts[n:])
        return None, key

    def put(self, key: str, value: bytes) -> None:
        """A value that is given itself."""
        rows, name = self.rows(key)
        number = None if rows is None else rows.number(name)
        if rows is None or number is None:
            self._keep(key, value)
        else:
            rows.put(number, INLINE, len(rows.inline), len(value))
            rows.inline += value

    def refer(self, key: str, source: int, offset: int, size: int) -> None:
        """A value that lies in a source."""
        rows, name = self.rows(key)
        number = None if rows is None else rows.number(name)
        if rows is None or number is None:
            self._keep(key, Reference(source, offset, size))
        else:
            rows.put(number, source, offset, size)

    def finish(self, number_of: Ints | None = None) -> Manifest:
        """The manifest; `number_of` gives the number in it of each source as they were numbered here."""
        manifest = self.manifest
        for path in [*self._rows]:
            rows = self._rows.pop(path)
            if grid_of(manifest.documents, path) != rows.form:
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
            raise MetadataError(f"more than {MOST_VALUES} values that are no chunks of an array")


class Rows:
    """The chunks of one array so far, in blocks of columns: place in the grid, source, offset, size.

    is_alone  whether no key that looks like one of its chunks may be another array's
    """

    def __init__(self, grid: tuple[int, ...], keys: ChunkKeys, *, is_alone: bool) -> None:
        self.form = grid, keys
        self.is_alone = is_alone and bool(grid)
        self.inline = bytearray()
        self._blocks: list[list[NDArray[Any]]] = []
        self._count = 0

    def __len__(self) -> int:
        return sum(len(block[0]) for block in self._blocks[:-1]) + self._count

    def number(self, name: str) -> int | None:
        """The place in the grid of the chunk of this name, which has no path; None: it is no chunk."""
        grid, keys = self.form
        return keys.number(name, grid)

    def room(self) -> tuple[list[NDArray[Any]], int]:
        """Columns with a row that is free, and which."""
        size = len(self._blocks[-1][0]) if self._blocks else 0
        if self._count == size:
            size = min(max(2 * size, FIRST_ROWS), MOST_ROWS)
            self._blocks.append([np.empty(size, kind) for kind in (np.int64, np.int32, np.int64, np.int64)])
            self._count = 0
        return self._blocks[-1], self._count

    def fill(self, count: int) -> None:
        """Take the rows of the columns that `room` gave last, up to that number."""
        self._count = count

    def put(self, *values: int) -> None:
        """A row."""
        columns, row = self.room()
        for column, value in zip(columns, values, strict=True):
            column[row] = value
        self._count = row + 1

    def chunks(self, number_of: Ints | None) -> Chunks:
        """All of them; the rows are given up for it."""
        grid, keys = self.form
        blocks, self._blocks = self._blocks, []
        blocks[-1] = [column[: self._count] for column in blocks[-1]]
        number, source, offset, size = join_blocks(blocks)
        if number_of is not None and len(number_of):
            # From the end: what has no source.
            source = np.append(number_of.astype(np.int32), (INLINE, ABSENT)).astype(np.int32)[source]
        options = {"inline": bytes(self.inline), "has_c": bool(keys.prefix), "separator": keys.separator}
        return Chunks.of_numbers(grid, number, source, offset, size, **options)

    def values(self) -> Iterator[tuple[str, bytes | Reference]]:
        """All of them by name."""
        grid, keys = self.form
        for block in self._blocks:
            count = self._count if block is self._blocks[-1] else None
            for number, source, offset, size in zip(
                *(column[:count].tolist() for column in block), strict=True
            ):
                name = keys.key(int(at) for at in np.unravel_index(number, grid)) if grid else keys.key(())
                if source == INLINE:
                    yield name, bytes(self.inline[offset : offset + size])
                else:
                    yield name, Reference(source, offset, size)


def grid_of(documents: Mapping[str, bytes | Reference], path: str) -> Form | None:
    """How many chunks an array has along each dimension, and how they are named, by its document.

    None where it is no array of one grid, or where that is too large for a table.
    """
    start = path and f"{path}/"
    for name in (".zarray", "zarr.json"):
        document = documents.get(start + name)
        if isinstance(document, bytes):
            try:
                said = parse_json(document, path=path, key=start + name)
                return _grid(said, name == ".zarray")
            except (MetadataError, TypeError, ValueError, KeyError, AttributeError):
                return None  # what is wrong with it, opening the array says
    return None


def _grid(said: Mapping[str, Any], is_v2: bool) -> Form | None:
    if is_v2:
        chunks, keys = said["chunks"], ChunkKeys("v2", said.get("dimension_separator", "."))
    else:
        if said.get("node_type") != "array" or said["chunk_grid"]["name"] != "regular":
            return None
        chunks = said["chunk_grid"]["configuration"]["chunk_shape"]
        encoding = said["chunk_key_encoding"]
        name = encoding["name"]
        separator = encoding.get("configuration", {}).get("separator", "/" if name == "default" else ".")
        keys = ChunkKeys(name, separator)
    shape = said["shape"]
    if keys.name not in ("default", "v2") or keys.separator not in ("/", "."):
        return None
    if len(shape) != len(chunks) or not all(type(n) is int and n > 0 for n in chunks):
        return None
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > MOST_DIMENSIONS:
        return None
    grid = tuple(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))
    return None if prod(grid) > MOST_CHUNKS else (grid, keys)


def _above(path: str) -> Iterator[str]:
    """All that a path is below."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def paths_of(keys: Iterator[str]) -> set[str]:
    """The paths of nodes, by the keys of their documents."""
    return {f"/{key}".rpartition("/")[0].removeprefix("/") for key in keys if f"/{key}".endswith(ENDS)}

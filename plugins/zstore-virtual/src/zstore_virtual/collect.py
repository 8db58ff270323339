"""References by key, as they come, made into the chunks of arrays."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zstore.errors import MetadataError
from zstore.model.document import parse_json
from zstore.model.keys import ChunkKeys
from zstore_virtual.manifest import INLINE, MOST_CHUNKS, MOST_DIMENSIONS, Chunks, Manifest, Reference

__all__ = ["Collector", "grid_of"]

# How many values that are no chunks may be told of, each by its own object.
MOST_VALUES = 4_000_000
# So many chunks that came one by one are put together.
SINGLES = 8192
# What chunks are named with.
NAME = re.compile(r"[c0-9./]+")
ENDS = ("/.zarray", "/zarr.json")
Ints = NDArray[np.int64]


class Collector:
    """Takes references to values by key and gives the manifest of all of them.

    paths   of what may be arrays: their chunks are kept in numpy arrays, any other value by its key
    """

    def __init__(self, paths: set[str]) -> None:
        self.manifest = Manifest()
        self._paths = paths
        self._upper = {above for path in paths for above in _above(path)}
        self._rows: dict[str, _Rows] = {}

    def put(self, key: str, value: bytes) -> None:
        """A value that is given itself."""
        path, name = self._split(key)
        if path is not None and NAME.fullmatch(name):
            rows = self._of(path)
            rows.put_one(name, INLINE, len(rows.inline), len(value))
            rows.inline += value
        else:
            self._keep(key, value)

    def refer(self, key: str, source: int, offset: int, size: int) -> None:
        """A value that lies in a source."""
        path, name = self._split(key)
        if path is not None and NAME.fullmatch(name):
            self._of(path).put_one(name, source, offset, size)
        else:
            self._keep(key, Reference(source, offset, size))

    def refer_all(self, keys: Sequence[str], sources: Sequence[int], offsets: Ints, sizes: Ints) -> None:
        """`refer`, for many; those of one array that follow each other cost least."""
        text, at, row = "\n".join(keys) + "\n", 0, 0
        while row < len(keys):
            path, name = self._split(keys[row])
            count = 1
            if path is not None and NAME.fullmatch(name) and path not in self._upper:
                start = path and f"{path}/"
                run = re.compile(rf"(?:{re.escape(start)}[c0-9./]+\n)*+").match(text, at)
                assert run is not None
                block = text[at : run.end()]
                count = block.count("\n")
                if count:
                    names = block.replace(f"\n{start}", "\n").removeprefix(start) if start else block
                    rows = slice(row, row + count)
                    self._of(path).put(names, sources[rows], offsets[rows], sizes[rows])
                    at, row = run.end(), row + count
                    continue
                count = 1
            self.refer(keys[row], sources[row], int(offsets[row]), int(sizes[row]))
            at += len(keys[row]) + 1
            row += count

    def finish(self, number_of: Ints | None = None) -> Manifest:
        """The manifest; `number_of` gives the number in it of each source as they were numbered here."""
        manifest = self.manifest
        if number_of is not None:
            for key, value in manifest.documents.items():
                if isinstance(value, Reference):
                    manifest.documents[key] = value._replace(source=int(number_of[value.source]))
        for path, rows in self._rows.items():
            rows.finish(path, manifest, number_of)
        self._rows.clear()
        return manifest

    def _keep(self, key: str, value: bytes | Reference) -> None:
        self.manifest.documents[key] = value
        if len(self.manifest.documents) > MOST_VALUES:
            raise MetadataError(f"more than {MOST_VALUES} values that are no chunks of an array")

    def _of(self, path: str) -> _Rows:
        found = self._rows.get(path)
        if found is None:
            found = self._rows[path] = _Rows()
        return found

    def _split(self, key: str) -> tuple[str | None, str]:
        """The longest path of an array that a key is below, and the rest of it."""
        parts = key.split("/")
        for n in range(len(parts) - 1, -1, -1):
            path = "/".join(parts[:n])
            if path in self._paths:
                return path, "/".join(parts[n:])
        return None, key


class _Rows:
    """The chunks of one array so far."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.inline = bytearray()
        self._rows: list[tuple[Any, Any, Any]] = []
        # Those that came one by one: name, source, offset, size.
        self._single_names: list[str] = []
        self._singles = array("q")

    def put(self, names: str, source: Any, offset: Any, size: Any) -> None:
        self._settle()
        self.names.append(names)
        self._rows.append(
            (np.asarray(source, np.int32), np.asarray(offset, np.int64), np.asarray(size, np.int64))
        )

    def put_one(self, name: str, source: int, offset: int, size: int) -> None:
        self._single_names.append(f"{name}\n")
        self._singles.extend((source, offset, size))
        if len(self._single_names) == SINGLES:
            self._settle()

    def _settle(self) -> None:
        if self._single_names:
            self.names.append("".join(self._single_names))
            singles = np.frombuffer(self._singles, np.int64).reshape(-1, 3)
            self._rows.append((singles[:, 0].astype(np.int32), singles[:, 1].copy(), singles[:, 2].copy()))
            self._single_names, self._singles = [], array("q")

    def finish(self, path: str, manifest: Manifest, number_of: Ints | None) -> None:
        self._settle()
        text = "".join(self.names)
        source, offset, size = (np.concatenate(part) for part in zip(*self._rows, strict=True))
        if number_of is not None and len(number_of):
            source = np.where(source < 0, source, number_of[np.maximum(source, 0)]).astype(np.int32)
        self.names, self._rows = [], []
        found = grid_of(manifest.documents, path)
        inline = bytes(self.inline)
        if found is None:
            taken = np.zeros(len(source), bool)
        else:
            grid, keys = found
            cells, taken = _cells(text, len(source), grid, keys)
            rest = [part[taken] if not taken.all() else part for part in (source, offset, size)]
            manifest.chunks[path] = Chunks.of_cells(
                grid, cells, *rest, inline=inline, has_c=bool(keys.prefix), separator=keys.separator
            )
        if not taken.all():
            count = len(manifest.documents) + int(np.count_nonzero(~taken))
            if count > MOST_VALUES:
                raise MetadataError(
                    f"{count} values that are no chunks of an array, expected {MOST_VALUES} at most"
                )
            names = text.splitlines()
            for row in np.flatnonzero(~taken):
                key = f"{path}/{names[row]}" if path else names[row]
                at, length = int(offset[row]), int(size[row])
                value = (
                    inline[at : at + length]
                    if source[row] == INLINE
                    else Reference(int(source[row]), at, length)
                )
                manifest.documents[key] = value


def grid_of(
    documents: Mapping[str, bytes | Reference], path: str
) -> tuple[tuple[int, ...], ChunkKeys] | None:
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


def _grid(said: Mapping[str, Any], is_v2: bool) -> tuple[tuple[int, ...], ChunkKeys] | None:
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


def _cells(text: str, count: int, grid: tuple[int, ...], keys: ChunkKeys) -> tuple[Ints, NDArray[np.bool_]]:
    """The cells of chunks by their names, one a line, and which of the names are such."""
    cells = _plain_cells(text, count, len(grid), keys)
    if cells is None:
        named = [keys.cell(name, len(grid)) for name in text.splitlines()]
        taken = np.array([cell is not None and _is_inside(cell, grid) for cell in named], bool)
        inside = [cell for cell in named if cell is not None and _is_inside(cell, grid)]
        return np.array(inside, np.int64).reshape(len(inside), len(grid)), taken
    taken = np.all(cells < np.asarray(grid, np.int64), axis=1)
    return (cells if taken.all() else cells[taken]), taken


def _plain_cells(text: str, count: int, ndim: int, keys: ChunkKeys) -> Ints | None:
    """The cells, if every name is one as `keys` makes it."""
    other = "." if keys.separator == "/" else "/"
    start = f"c{keys.separator}" if keys.prefix else ""
    if not ndim or other in text:
        return None
    if start:
        if not text.startswith(start) or text.count(f"\n{start}") != count - 1:
            return None
        text = text.replace(f"\n{start}", "\n").removeprefix(start)
    if "c" in text or text.count(keys.separator) != count * (ndim - 1):
        return None
    if any(f"{keys.separator}{end}" in text for end in (keys.separator, "\n")):
        return None
    numbers = np.fromstring(text.replace(keys.separator, " "), np.int64, sep=" ")
    if len(numbers) != count * ndim or bool(np.any(numbers < 0)):
        return None
    # A number that is written with more digits than it has is in somebody else's name.
    digits = len(numbers) + sum(int(np.count_nonzero(numbers >= 10**k)) for k in range(1, 19))
    return numbers.reshape(count, ndim) if digits + count * ndim == len(text) else None


def _is_inside(cell: Sequence[int], grid: Sequence[int]) -> bool:
    return all(at < count for at, count in zip(cell, grid, strict=True))


def _above(path: str) -> Iterator[str]:
    """All that a path is below."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def paths_of(keys: Iterator[str]) -> set[str]:
    """The paths of nodes, by the keys of their documents."""
    return {f"/{key}".rpartition("/")[0].removeprefix("/") for key in keys if f"/{key}".endswith(ENDS)}

"""Kerchunk's references as Parquet files: a directory with `.zmetadata`, and each array's rows in parts.

Row n of an array is its chunk n in order C. Arrays are loaded when they are first asked for.

Spec
    fsspec `LazyReferenceMapper`. The member "zstore" of `.zmetadata` is our own: what the sources were.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from zstore.base.limits import current_limits
from zstore.errors import MetadataError, StoreError, UnsupportedError
from zstore.model.document import parse_json
from zstore.storage.base import Store, join_key
from zstore_virtual.collect import grid_of, paths_of
from zstore_virtual.kerchunk import sources_of, tell_sources
from zstore_virtual.manifest import (
    ABSENT,
    INLINE,
    WHOLE,
    Chunks,
    Manifest,
    Reference,
    Source,
    join_blocks,
)

__all__ = ["read_parquet", "write_parquet"]

DOCUMENT = ".zmetadata"
MOST_ROWS = 1 << 24
PART = 100_000
# References that are held of arrays of which single parts are loaded; and of an array that is loaded whole.
MOST_HELD, MOST_TABLE = 1 << 21, 1 << 22


def read_parquet(store: Store, *, path: str) -> Manifest:
    """The manifest whose files are in `store`.

    Raises
        MetadataError: it is none. UnsupportedError: pyarrow is not installed.
    """
    data = store.get(DOCUMENT)
    if data is None:
        raise MetadataError(f"expected references: a directory with {DOCUMENT!r}", path=path)
    said = parse_json(data, path=path, key=DOCUMENT)
    documents, size = said.get("metadata"), said.get("record_size")
    if not isinstance(documents, dict) or type(size) is not int or not 0 < size <= MOST_ROWS:
        raise MetadataError(
            f"expected 'metadata', and a 'record_size' of 1 to {MOST_ROWS}, got {size!r}",
            path=path,
            key=DOCUMENT,
        )
    manifest = _Manifest({key: _document(value) for key, value in documents.items()})
    manifest.chunks = _Lazy(store, manifest, size, sources_of(said.get("zstore") or {}), path)
    return manifest


def _document(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


class _Manifest(Manifest):
    """A manifest of which parts are loaded for single chunks, as long as an array is not wanted whole."""

    def near(self, path: str, name: str) -> Chunks | None:
        """The part of an array that the chunk of that name is in."""
        return self.chunks.near(path, name) if isinstance(self.chunks, _Lazy) else self.chunks.get(path)

    def table(self, path: str, is_local: Callable[[str], bool]) -> Chunks | None:
        """All chunks of an array at once, unless they are more than `MOST_TABLE`, or not local."""
        if isinstance(self.chunks, _Lazy) and not self.chunks.is_table(path, is_local):
            return None
        return self.chunks.get(path)


class _Lazy(dict[str, Chunks]):
    """The chunks of arrays, loaded when they are asked for; parts are held, `MOST_HELD` rows at most."""

    def __init__(
        self, store: Store, manifest: Manifest, part_size: int, known: Mapping[str, Source], path: str
    ) -> None:
        super().__init__()
        self._store, self._manifest, self._part_size = store, manifest, part_size
        self._known, self._path = known, path
        self._lock = threading.RLock()
        grids = {
            path: grid_of(manifest.documents, path) for path in sorted(paths_of(iter(manifest.documents)))
        }
        self._forms = {path: found for path, found in grids.items() if found is not None}
        # Those used last are the last.
        self._held: dict[tuple[str, int], Chunks] = {}

    def get(self, path: str, default: Any = None) -> Any:
        """The chunks of an array, loaded now if they were not."""
        if self._is_left(path):
            with self._lock:
                if self._is_left(path):
                    self[path] = self._load(path)
                    for place in [place for place in self._held if place[0] == path]:
                        del self._held[place]
        return super().get(path, default)

    def _is_left(self, path: object) -> bool:
        return path in self._forms and not super().__contains__(path)

    def __missing__(self, path: str) -> Chunks:
        found: Chunks | None = self.get(path)
        if found is None:
            raise KeyError(path)
        return found

    def __contains__(self, path: object) -> bool:
        return path in self._forms or super().__contains__(path)

    def __iter__(self) -> Iterator[str]:
        return iter([*super().__iter__(), *filter(self._is_left, self._forms)])

    def __len__(self) -> int:
        return len([*self])

    def keys(self) -> Any:
        """All arrays, loaded."""
        self.items()
        return super().keys()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.items()),)

    def items(self) -> Any:
        """All arrays, loaded."""
        for path in self._forms:
            self.get(path)
        return super().items()

    def values(self) -> Any:
        """All arrays, loaded."""
        self.items()
        return super().values()

    def near(self, path: str, name: str) -> Chunks | None:
        """The part of an array that the chunk of that name is in; all of them where they are loaded."""
        if not self._is_left(path):
            return super().get(path)
        grid, keys = self._forms[path]
        number = keys.number(name, grid)
        return None if number is None else self._part(path, number // self._part_size)

    def is_table(self, path: str, is_local: Callable[[str], bool]) -> bool:
        """Whether an array is to be loaded whole: it is local, of `MOST_TABLE` references at most."""
        if not self._is_left(path):
            return True
        parts = self._parts(path)
        if len(parts) * self._part_size > max(MOST_TABLE, self._part_size):
            return False
        first = [self._part(path, part) for part in parts[:1]]
        sources = {int(number) for chunks in first for number in np.unique(chunks.source)}
        return all(is_local(self._manifest.sources[number].address) for number in sources if number >= 0)

    def _part(self, path: str, part: int) -> Chunks:
        with self._lock:
            found = self._held.pop((path, part), None)
            if found is None:
                inline = bytearray()
                found = self._chunks(path, [[*self._columns_of(path, part, inline)]], inline)
                count = len(found.source) + sum(len(chunks.source) for chunks in self._held.values())
                while count > MOST_HELD and self._held:
                    count -= len(self._held.pop(next(iter(self._held))).source)
            self._held[path, part] = found
            return found

    def _load(self, path: str) -> Chunks:
        inline = bytearray()
        blocks = [[*self._columns_of(path, part, inline)] for part in self._parts(path)]
        return self._chunks(path, blocks, inline)

    def _chunks(self, path: str, blocks: list[list[Any]], inline: bytearray) -> Chunks:
        grid, keys = self._forms[path]
        number, source, offset, size = join_blocks(blocks or [[np.empty(0, np.int64)] * 4])
        options = {"inline": bytes(inline), "has_c": bool(keys.prefix), "separator": keys.separator}
        return Chunks.of_numbers(grid, number, source, offset, size, **options)

    def _columns_of(self, path: str, part: int, inline: bytearray) -> Iterator[Any]:
        """Place in the grid, source, offset and size of what a part says is there."""
        grid, first = self._forms[path][0], part * self._part_size
        data = self._store.get(join_key(path, f"refs.{part}.parq"))
        columns = [np.empty(0, np.int64)] * 3
        if data is not None:
            columns = self._rows(data, path, part, min(self._part_size, prod(grid) - first), inline)
        there = np.flatnonzero(columns[0] != ABSENT)
        yield there + first
        for column in columns:
            yield column[there]

    def _parts(self, path: str) -> list[int]:
        """The parts that are there: a grid may have far more than anybody wrote."""
        count = -(-prod(self._forms[path][0]) // self._part_size)
        try:
            names = self._store.list_children(path)
        except OSError:  # a web server does not list
            if count > 100_000:
                raise
            return [*range(count)]
        found = [
            n.split(".")[1]
            for n in names
            if n.startswith("refs.") and n.endswith(".parq") and n.count(".") == 2
        ]
        return sorted(
            {int(n) for n in found if n.isascii() and n.isdigit() and len(n) < 19 and int(n) < count}
        )

    def _rows(self, data: Any, path: str, part: int, most: int, inline: bytearray) -> Any:
        arrow, parquet = _arrow()
        key = join_key(path, f"refs.{part}.parq")
        try:
            file = parquet.ParquetFile(arrow.BufferReader(arrow.py_buffer(data)), read_dictionary=["path"])
            if file.metadata.num_rows > self._part_size:
                raise MetadataError(
                    f"{file.metadata.num_rows} references; expected {self._part_size} at most"
                )
            names = {*file.schema_arrow.names}
            if not {"path", "offset", "size"} <= names:
                raise MetadataError(f"columns {sorted(names)}; expected path, offset, size")
            held = sum(
                file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)
            )
            if held > current_limits().value_size:
                raise MetadataError(
                    f"{held} bytes in memory, more than the limit value_size (zstore.set_limits)"
                )
            table = file.read(
                columns=[n for n in ("path", "offset", "size", "raw") if n in names], use_threads=False
            )[:most]
            return self._columns(arrow, table, inline)
        except MetadataError as error:
            raise error.locate(path=self._path, key=key) from None
        except (arrow.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError) as error:
            raise MetadataError(f"the references are not valid: {error}", path=self._path, key=key) from error

    def _columns(self, arrow: Any, table: Any, inline: bytearray) -> Any:
        # By numpy: pyarrow's own functions take 35 MiB as soon as the first of them is called.
        offset, size = (_integers(table[name].combine_chunks()) for name in ("offset", "size"))
        if bool(np.any((offset < 0) | (size < 0))):
            raise MetadataError("a reference has a negative offset or size")
        column = table["path"].combine_chunks()
        if not arrow.types.is_dictionary(column.type):
            column = column.cast("string").dictionary_encode()
        addresses = column.dictionary.to_pylist()
        known = [self._number(address) if address else ABSENT for address in addresses]
        source = np.array([*known, ABSENT], np.int32)[_integers(column.indices, len(known))]
        # All of a file has neither offset nor size.
        size[(source != ABSENT) & (offset == 0) & (size == 0)] = WHOLE
        if "raw" in table.column_names:
            raw = table["raw"].combine_chunks()
            for row in np.flatnonzero(_is_there(raw)).tolist():
                value = raw[row].as_py()
                value = value.encode() if isinstance(value, str) else value
                source[row], offset[row], size[row] = INLINE, len(inline), len(value)
                inline += value
        return source, offset, size

    def _number(self, said: str | bytes) -> int:
        address = said.decode() if isinstance(said, bytes) else said
        facts = self._known.get(address, Source(address))
        return self._manifest.add_source(address, size=facts.size, modified=facts.modified, tag=facts.tag)


def _is_there(array: Any) -> Any:
    """Which items of an array of pyarrow are not null."""
    bits, first = array.buffers()[0], array.offset
    if array.null_count == len(array) or bits is None:
        return np.full(len(array), array.null_count == 0)
    every = np.unpackbits(np.frombuffer(bits, np.uint8), count=first + len(array), bitorder="little")
    return every[first:].astype(bool)


def _integers(array: Any, other: int = 0) -> Any:
    """The numbers of an array of pyarrow as int64, `other` in the place of nulls.

    Raises
        MetadataError: they are no whole numbers.
    """
    there = _is_there(array)
    if not there.any():
        return np.full(len(array), other, np.int64)
    kind = np.dtype(array.type.to_pandas_dtype())
    if kind.kind not in "iuf":
        raise MetadataError(f"a column of {array.type}; expected whole numbers")
    first = array.offset
    items = np.where(there, np.frombuffer(array.buffers()[1], kind, first + len(array))[first:], other)
    with np.errstate(invalid="ignore"):
        whole = items.astype(np.int64)
    if bool(np.any(whole != items)):
        raise MetadataError(f"a column of {array.type} has other numbers than whole ones below 2^63")
    return whole


def write_parquet(manifest: Manifest, store: Store, *, part_size: int = PART) -> None:
    """Put a manifest into `store` as fsspec's `LazyReferenceMapper` reads it.

    Raises
        UnsupportedError: values that are neither documents nor chunks of an array; pyarrow is not installed.
    """
    arrow, parquet = _arrow()
    documents = {}
    for key, value in manifest.documents.items():
        if isinstance(value, Reference):
            raise UnsupportedError(
                "a document that lies in another file; Parquet has room for its bytes", key=key
            )
        documents[key] = json.loads(value)
    if any(store.size(name) is not None for name in (".zgroup", ".zarray", "zarr.json")):
        raise StoreError("a Zarr store is there; expected another place for references", path=store.url)
    tables = manifest.chunks.items()
    for chunks in manifest.chunks.values():
        _check_sayable(chunks)
    # Parts of what was there before are none of the new: until all are right, nothing is to be read.
    store.delete(DOCUMENT)
    for path, chunks in tables:
        written = {f"refs.{part}.parq" for part in _written_parts(chunks, part_size)}
        for name in store.list_children(path):
            if name not in written and re.fullmatch(r"refs\.\d+\.parq", name):
                store.delete(join_key(path, name))
        addresses = arrow.array([source.address for source in manifest.sources], "string")
        for part in _written_parts(chunks, part_size):
            source, offset, size, raw = _part_of(chunks, part, part_size)
            codes = arrow.array(np.maximum(source, 0), "int32", mask=source < 0)
            column = arrow.DictionaryArray.from_arrays(codes, addresses).cast("string")
            table = arrow.table(
                {"path": column, "offset": offset, "size": size, "raw": arrow.array(raw, "binary")}
            )
            file = io.BytesIO()
            parquet.write_table(table, file, compression="zstd")
            store.put(join_key(path, f"refs.{part}.parq"), file.getvalue())
    said = {"metadata": documents, "record_size": part_size, "zstore": tell_sources(manifest)}
    store.put(DOCUMENT, json.dumps(said).encode())


def _check_sayable(chunks: Chunks) -> None:
    is_there = chunks.source >= 0
    if bool(np.any(is_there & (chunks.size == 0) & (chunks.offset == 0))):
        raise UnsupportedError(
            "a chunk of no bytes at the beginning of a file, which Parquet takes for all of it"
        )
    if bool(np.any(is_there & (chunks.size == WHOLE) & (chunks.offset != 0))):
        raise UnsupportedError("a chunk that is the rest of a file, for which Parquet has no word")


def _written_parts(chunks: Chunks, part_size: int) -> Iterator[int]:
    if chunks.numbers is None:
        yield from range(-(-len(chunks.source) // part_size))
    else:
        yield from np.unique(chunks.numbers // part_size).tolist()


def _part_of(chunks: Chunks, part: int, part_size: int) -> tuple[Any, Any, Any, list[bytes | None]]:
    first, last = part * part_size, min((part + 1) * part_size, prod(chunks.grid))
    if chunks.numbers is None:
        rows = slice(first, last)
        source, offset, size = chunks.source[rows], chunks.offset[rows].copy(), chunks.size[rows].copy()
    else:
        low, high = np.searchsorted(chunks.numbers, [first, last])
        places = chunks.numbers[low:high] - first
        source = np.full(last - first, ABSENT, np.int32)
        offset, size = np.zeros(last - first, np.int64), np.zeros(last - first, np.int64)
        source[places], offset[places], size[places] = (
            chunks.source[low:high],
            chunks.offset[low:high],
            chunks.size[low:high],
        )
    raw: list[bytes | None] = [None] * len(source)
    for row in np.flatnonzero(source == INLINE).tolist():
        raw[row] = chunks.inline[offset[row] : offset[row] + size[row]]
    size[(size == WHOLE) | (source < 0)] = 0
    offset[source < 0] = 0
    return source, offset, size, raw


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise UnsupportedError("pyarrow is not installed; expected: pip install pyarrow") from error

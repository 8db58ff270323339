"""Reads and writes kerchunk's references in Parquet: a directory with `.zmetadata`, each array in parts.

Row n of an array is its chunk n in C order. References are loaded when they are first needed.

Spec
    fsspec `LazyReferenceMapper`. The member "zstore" of `.zmetadata` is zstore's own, as in JSON.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from math import prod
from typing import Any

import numpy as np

from zstore.errors import MetadataError, StoreError, UnsupportedError
from zstore.plugin.nodes import parse_json
from zstore.plugin.stores import Store, current_limits, join_key
from zstore_virtual.collect import grid_of, paths_of
from zstore_virtual.kerchunk import parse_sources, render_sources
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
# The most rows that a part may have, and how many a written one has.
MOST_ROWS, PART_SIZE = 1 << 24, 100_000
# How many references are held of arrays that are loaded part by part, and the most that one array may have to
# be loaded whole.
MOST_HELD, MOST_TABLE = 1 << 21, 1 << 22


def read_parquet(store: Store, *, path: str) -> Manifest:
    """The manifest whose files are in `store`; `path` is what messages call it.

    Raises
        MetadataError: there is no `.zmetadata`, or not a right one.
    """
    data = store.get(DOCUMENT)
    if data is None:
        raise MetadataError(f"no references in Parquet there; expected {DOCUMENT!r}", path=path)
    document = parse_json(data, path=path, key=DOCUMENT)
    documents, size = document.get("metadata"), document.get("record_size")
    if not isinstance(documents, dict) or type(size) is not int or not 0 < size <= MOST_ROWS:
        raise MetadataError(
            f"record_size is {size!r}; expected 1 to {MOST_ROWS}, beside an object 'metadata'",
            path=path,
            key=DOCUMENT,
        )
    manifest = _Manifest({key: _document(value) for key, value in documents.items()})
    manifest.chunks = _Lazy(store, manifest, size, parse_sources(document.get("zstore") or {}), path)
    return manifest


def _document(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


class _Manifest(Manifest):
    """A manifest that loads single parts of an array's references, unless all are wanted at once."""

    def near(self, path: str, name: str) -> Chunks | None:
        """The part of an array's references that the chunk `name` is in."""
        return self.chunks.near(path, name) if isinstance(self.chunks, _Lazy) else self.chunks.get(path)

    def table(self, path: str, is_local: Callable[[str], bool]) -> Chunks | None:
        """All references of an array, unless they are more than `MOST_TABLE`, or lead to remote sources."""
        if isinstance(self.chunks, _Lazy) and not self.chunks.is_table(path, is_local):
            return None
        return self.chunks.get(path)


class _Lazy(MutableMapping[str, Chunks]):
    """References by the path of their array, loaded when they are asked for.

    Of arrays that are not loaded whole, parts are held: `MOST_HELD` references of all together.
    """

    def __init__(
        self, store: Store, manifest: Manifest, part_size: int, known: Mapping[str, Source], path: str
    ) -> None:
        self._store, self._manifest, self._part_size = store, manifest, part_size
        self._known, self._path = known, path
        self._lock = threading.RLock()
        grids = {
            path: grid_of(manifest.documents, path) for path in sorted(paths_of(iter(manifest.documents)))
        }
        self._grids = {path: found for path, found in grids.items() if found is not None}
        self._loaded: dict[str, Chunks] = {}
        # In order of use: what was used last comes last.
        self._held: dict[tuple[str, int], Chunks] = {}

    def __getitem__(self, path: str) -> Chunks:
        if self._is_unloaded(path):
            with self._lock:
                if self._is_unloaded(path):
                    self._loaded[path] = self._load(path)
                    for place in [place for place in self._held if place[0] == path]:
                        del self._held[place]
        return self._loaded[path]

    def __setitem__(self, path: str, chunks: Chunks) -> None:
        self._loaded[path] = chunks

    def __delitem__(self, path: str) -> None:
        if self._grids.pop(path, None) is None or path in self._loaded:
            del self._loaded[path]

    def __contains__(self, path: object) -> bool:
        return path in self._grids or path in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter({**self._loaded, **self._grids})

    def __len__(self) -> int:
        return len({**self._loaded, **self._grids})

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def _is_unloaded(self, path: str) -> bool:
        return path in self._grids and path not in self._loaded

    def near(self, path: str, name: str) -> Chunks | None:
        """The part that the chunk `name` is in; all references of the array where they are loaded."""
        if not self._is_unloaded(path):
            return self.get(path)
        grid, keys = self._grids[path]
        number = keys.number(name, grid)
        return None if number is None else self._part(path, number // self._part_size)

    def is_table(self, path: str, is_local: Callable[[str], bool]) -> bool:
        """Whether all references of an array may be loaded at once: local ones, `MOST_TABLE` at most."""
        if not self._is_unloaded(path):
            return True
        parts = self._parts(path)
        if len(parts) * self._part_size > max(MOST_TABLE, self._part_size):
            return False
        first = [self._part(path, part) for part in parts[:1]]
        sources = {int(number) for chunks in first for number in np.unique(chunks.source)}
        return all(is_local(self._manifest.sources[number].address) for number in sources if number >= 0)

    def _part(self, path: str, part: int) -> Chunks:
        """The references in one part; those used longest ago are dropped for it."""
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
        grid, keys = self._grids[path]
        number, source, offset, size = join_blocks(blocks or [[np.empty(0, np.int64)] * 4])
        return Chunks.of_numbers(grid, number, source, offset, size, inline=bytes(inline), keys=keys)

    def _columns_of(self, path: str, part: int, inline: bytearray) -> Iterator[Any]:
        """The columns of a part, of the stored chunks: number, source, offset and size."""
        grid, first = self._grids[path][0], part * self._part_size
        data = self._store.get(join_key(path, f"refs.{part}.parq"))
        columns = [np.empty(0, np.int64)] * 3
        if data is not None:
            columns = self._rows(data, path, part, min(self._part_size, prod(grid) - first), inline)
        there = np.flatnonzero(columns[0] != ABSENT)
        yield there + first
        for column in columns:
            yield column[there]

    def _parts(self, path: str) -> list[int]:
        """The numbers of the parts that exist: a grid may be far larger than what was ever written."""
        count = -(-prod(self._grids[path][0]) // self._part_size)
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
        """Source, offset and size of the first `most` rows of a part; inline bytes are added to `inline`."""
        arrow, parquet = _arrow()
        key = join_key(path, f"refs.{part}.parq")
        try:
            stream = arrow.BufferReader(arrow.py_buffer(data))
            names = {*parquet.read_schema(stream).names}
            # Where all are inline, kerchunk 0.1.2 wrote no other column.
            is_inline = names == {"raw"}
            if not is_inline and not {"path", "offset", "size"} <= names:
                raise MetadataError(f"the part has the columns {sorted(names)}; expected path, offset, size")
            file = parquet.ParquetFile(stream, read_dictionary=[] if is_inline else ["path"])
            if file.metadata.num_rows > self._part_size:
                raise MetadataError(
                    f"the part has {file.metadata.num_rows} references; expected {self._part_size} at most"
                )
            held = sum(
                file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)
            )
            if held > current_limits().value_size:
                raise MetadataError(
                    f"the part takes {held} bytes in memory, over the limit value_size (zstore.set_limits)"
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
        # With numpy: the first call of any of pyarrow's compute functions takes 35 MiB.
        if "path" not in table.column_names:
            count = len(table)
            columns = np.full(count, ABSENT, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int64)
            return self._with_inline(table, columns, inline)
        offset, size = (_integers(table[name].combine_chunks()) for name in ("offset", "size"))
        if bool(np.any((offset < 0) | (size < 0))):
            raise MetadataError("a reference has a negative offset or size")
        column = table["path"].combine_chunks()
        if not arrow.types.is_dictionary(column.type):
            column = column.cast("string").dictionary_encode()
        addresses = column.dictionary.to_pylist()
        known = [self._number(address) if address else ABSENT for address in addresses]
        source = np.array([*known, ABSENT], np.int32)[_integers(column.indices, len(known))]
        # An address with neither offset nor size stands for the whole file.
        size[(source != ABSENT) & (offset == 0) & (size == 0)] = WHOLE
        return self._with_inline(table, (source, offset, size), inline)

    @staticmethod
    def _with_inline(table: Any, columns: Any, inline: bytearray) -> Any:
        """Source, offset and size with those of inline bytes, which are added to `inline`."""
        source, offset, size = columns
        if "raw" in table.column_names:
            raw = table["raw"].combine_chunks()
            for row in np.flatnonzero(_is_there(raw)).tolist():
                value = raw[row].as_py()
                value = value.encode() if isinstance(value, str) else value
                source[row], offset[row], size[row] = INLINE, len(inline), len(value)
                inline += value
        return source, offset, size

    def _number(self, address: str | bytes) -> int:
        """The manifest's number of a source."""
        text = address.decode() if isinstance(address, bytes) else address
        return self._manifest.add_source(**self._known.get(text, Source(text))._asdict())


def _is_there(array: Any) -> Any:
    """Which items of a pyarrow array are not null."""
    bits, first = array.buffers()[0], array.offset
    if array.null_count == len(array) or bits is None:
        return np.full(len(array), array.null_count == 0)
    every = np.unpackbits(np.frombuffer(bits, np.uint8), count=first + len(array), bitorder="little")
    return every[first:].astype(bool)


def _integers(array: Any, other: int = 0) -> Any:
    """The numbers of a pyarrow array as int64, `other` in place of nulls.

    Raises
        MetadataError: they are not whole numbers.
    """
    there = _is_there(array)
    if not there.any():
        return np.full(len(array), other, np.int64)
    kind = np.dtype(array.type.to_pandas_dtype())
    if kind.kind not in "iuf":
        raise MetadataError(f"the part has a column of {array.type}; expected whole numbers")
    first = array.offset
    items = np.where(there, np.frombuffer(array.buffers()[1], kind, first + len(array))[first:], other)
    with np.errstate(invalid="ignore"):
        whole = items.astype(np.int64)
    if bool(np.any(whole != items)):
        raise MetadataError(f"the part has a column of {array.type} with fractions or numbers beyond 2^63")
    return whole


def write_parquet(manifest: Manifest, store: Store, *, part_size: int = PART_SIZE) -> None:
    """Put a manifest into `store`, in the form that fsspec's `LazyReferenceMapper` reads.

    Raises
        UnsupportedError: Parquet has no place for a value or a reference; or pyarrow is not installed.
    """
    arrow, parquet = _arrow()
    documents = {}
    for key, value in manifest.documents.items():
        if isinstance(value, Reference):
            raise UnsupportedError(
                "the document lies in another file; in Parquet, expected its bytes", key=key
            )
        documents[key] = json.loads(value)
    if any(store.size(name) is not None for name in (".zgroup", ".zarray", "zarr.json")):
        raise StoreError("a Zarr store is there; expected another place for references", path=store.url)
    for chunks in manifest.chunks.values():
        _check_expressible(chunks)
    # Nobody is to read the old parts among the new: without this document there are no references.
    store.delete(DOCUMENT)
    addresses = arrow.array([source.address for source in manifest.sources], "string")
    for path, chunks in manifest.chunks.items():
        parts = {f"refs.{part}.parq": part for part in _written_parts(chunks, part_size)}
        for name in store.list_children(path):
            if name not in parts and re.fullmatch(r"refs\.\d+\.parq", name):
                store.delete(join_key(path, name))
        for name, part in parts.items():
            source, offset, size, raw = _part_of(chunks, part, part_size)
            codes = arrow.array(np.maximum(source, 0), "int32", mask=source < 0)
            column = arrow.DictionaryArray.from_arrays(codes, addresses).cast("string")
            table = arrow.table(
                {"path": column, "offset": offset, "size": size, "raw": arrow.array(raw, "binary")}
            )
            file = io.BytesIO()
            parquet.write_table(table, file, compression="zstd")
            store.put(join_key(path, name), file.getvalue())
    document = {"metadata": documents, "record_size": part_size, "zstore": render_sources(manifest)}
    store.put(DOCUMENT, json.dumps(document).encode())


def _check_expressible(chunks: Chunks) -> None:
    """Raise UnsupportedError where a reference would mean another byte range in Parquet."""
    is_reference = chunks.source >= 0
    if bool(np.any(is_reference & (chunks.size == 0) & (chunks.offset == 0))):
        raise UnsupportedError(
            "a chunk has no bytes at the beginning of a file, which means the whole file in Parquet"
        )
    if bool(np.any(is_reference & (chunks.size == WHOLE) & (chunks.offset != 0))):
        raise UnsupportedError("a reference from within a file to its end has no size; expected one")


def _written_parts(chunks: Chunks, part_size: int) -> Iterator[int]:
    """The numbers of the parts that have chunks."""
    if chunks.numbers is None:
        yield from range(-(-len(chunks.source) // part_size))
    else:
        yield from np.unique(chunks.numbers // part_size).tolist()


def _part_of(chunks: Chunks, part: int, part_size: int) -> tuple[Any, Any, Any, list[bytes | None]]:
    """The columns of a part, a row for each chunk of it: source, offset, size and inline bytes."""
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

"""Sources shown as a store, so that whatever opens stored arrays opens them, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import prod
from typing import Any

from zstore.base.byterange import ByteRange
from zstore.engine.documents import ancestors, publish_nodes, read_node
from zstore.engine.schedulers import map_threads
from zstore.jobs.chunks import StoredArray
from zstore.jobs.source import Cell, Source
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import check_attributes
from zstore.model.dtype import is_same_type
from zstore.model.grid import RegularGrid
from zstore.nodes.array import Array
from zstore.nodes.create import ArrayRequest
from zstore.nodes.node import Access, Missing
from zstore.storage.base import Entry, Request, Store, Values, join_key
from zstore.storage.memory import MemoryStore

# The name of a key below any node.
DOCUMENT = "zarr.json"


class SourceStore(Store):
    """A hierarchy whose arrays have the items of sources; its chunks are made when somebody gets them.

    The documents of these arrays name no compressor. Jobs read the sources themselves (`source_of`), by boxes
    that suit these.

    documents  what is stored: the documents of all nodes, and arrays that are of no source
    sources    by the paths of their arrays
    """

    read_only = True

    def __init__(self, url: str, documents: MemoryStore, sources: Mapping[str, Source]) -> None:
        self._url, self._documents, self.sources = url, documents, sources
        self.request_count = max((one.request_count for one in sources.values()), default=1)

    @classmethod
    def of(cls, source: Source, path: str = "", zarr_format: ZarrFormat = 3) -> SourceStore:
        """A store with one array, which describes the source."""
        documents = MemoryStore()
        publish_nodes(documents, "", {path: model_of(source, zarr_format)})
        return cls(source.url, documents, {path: source})

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        value = self._documents.get(key)
        if value is None:
            value = self._chunk(key)
        if value is None or byte_range is None:
            return value
        begin, end = byte_range.resolve(len(value))
        return memoryview(value)[begin:end]

    def get_many(self, requests: Sequence[Request]) -> Values:
        return [*map_threads(lambda request: self.get(*request), requests)]

    def _chunk(self, key: str) -> bytes | memoryview | None:
        """The encoded chunk of a source; None where the key is that of no chunk."""
        path, cell = self._cell(key)
        if cell is None:
            return None
        array = self._array(path)
        box = array.box(cell)
        array.write(box, self.sources[path].read(box).astype(array.dtype, copy=False))
        return array.store.get(key)

    def _cell(self, key: str) -> tuple[str, Cell | None]:
        """(the path of the source, the coordinates) of the chunk under a key; None for other keys."""
        path = next((path for path in ancestors(key) if path in self.sources), None)
        if path is None:
            return "", None
        array = self._array(path)
        cell = array.model.keys.cell(key[len(path) + 1 if path else 0 :], array.model.ndim)
        return path, cell if cell is not None and array.holds(cell) else None

    def _array(self, path: str) -> StoredArray:
        """The array at the path of a source, without a chunk."""
        model = read_node(self._documents, path)
        assert isinstance(model, ArrayModel), "each source has the document of an array"
        return StoredArray(MemoryStore(), path, model, allow_pickle=True)

    def entry(self, key: str) -> Entry | None:
        """The size of a value and, as its version, a hash of it; of a chunk, the version of its source."""
        value = self._documents.get(key)
        if value is not None:
            return Entry(key, len(value), sha256(value).hexdigest()[:16])
        path, cell = self._cell(key)
        if cell is None:
            return None
        array = self._array(path)
        grid, item_size = array.grid, array.dtype.itemsize
        size = prod(grid.start(d, at + 1) - grid.start(d, at) for d, at in enumerate(cell)) * item_size
        if array.dtype.kind in "OT":
            size = len(self._chunk(key) or b"")
        return Entry(key, size, self.sources[path].version() or None)

    def size(self, key: str) -> int | None:
        entry = self.entry(key)
        return None if entry is None else entry.size

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.check_writable(key)

    def delete(self, key: str) -> None:
        self.check_writable(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        yield from self._documents.list(prefix)
        start = f"{prefix}/" if prefix else ""
        for path in self.sources:
            below = f"{path}/" if path else ""
            if below.startswith(start) or start.startswith(below):
                array = self._array(path)
                yield from (key for key in map(array.key, array.all_cells()) if key.startswith(start))

    def close(self) -> None:
        for source in self.sources.values():
            source.close()

    def __reduce__(self) -> tuple[Any, ...]:
        values = {key: bytes(self._documents.get(key) or b"") for key in self._documents.list()}
        return _restored, (self._url, values, self.sources)


def _restored(url: str, values: Mapping[str, bytes], sources: Mapping[str, Source]) -> SourceStore:
    documents = MemoryStore()
    for key, value in values.items():
        documents.put(key, value)
    return SourceStore(url, documents, sources)


def model_of(source: Source, zarr_format: ZarrFormat) -> ArrayModel:
    """The model of an array with a source's items, chunks, names of dimensions and attributes.

    Raises
        MetadataError, UnsupportedError: the format cannot express one of these.
    """
    fill = source.fill_value
    chunks: Any = source.grid.chunk_shape
    if not isinstance(source.grid, RegularGrid):
        chunks = [source.grid.lengths(d, length) for d, length in enumerate(source.shape)]
    model = ArrayRequest(
        shape=source.shape,
        dtype=source.data_type,
        chunks=chunks,
        compressors=None,
        zarr_format=zarr_format,
        attributes=check_attributes(source.attributes, path=source.url),
        dimension_names=source.dimension_names,
    ).model()
    return model if fill is None else replace(model, fill_value=fill)


def as_array(source: Source) -> Array:
    """An array that shows a source: its items, names of dimensions and attributes.

    Raises
        as `model_of`.
    """
    path = source.name.rpartition("/")[2] or "data"
    store = SourceStore.of(source, path)
    return Array(store, path, model_of(source, 3), Access(read_only=True))


def source_of(array: Array, missing: Missing | None = None) -> Source:
    """The items of an array as a source: the one that its store shows, if it is such a store.

    missing  whether a chunk that is not stored is an error; None: as the array was opened
    """
    shown = shown_source(array.store, array.path)
    # An array that is viewed as another type reads the chunks that the store makes.
    is_viewed = shown is not None and not is_same_type(array.dtype, shown.dtype)
    return StoredArray.of(array, missing) if shown is None or is_viewed else shown


def is_shown(array: Array) -> bool:
    """Whether a source shows as the array, of which no chunk is stored."""
    return shown_source(array.store, array.path) is not None


def shown_source(store: Store, path: str) -> Source | None:
    """The source that a store shows as the array at a path; None if its chunks are stored."""
    holder, key = store.holder(join_key(path, DOCUMENT))
    return holder.sources.get(key[: -len(DOCUMENT)].rstrip("/")) if isinstance(holder, SourceStore) else None

"""Stored arrays as sources and targets of jobs, and any sources shown as a store of arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from hashlib import sha256
from itertools import chain, compress, islice
from math import prod
from operator import not_
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from zstore.base.boxes import Box, Shape, inside, places
from zstore.base.byterange import ByteRange
from zstore.base.once import once
from zstore.base.sizes import format_size
from zstore.codecs.base import Chain, ChunkSpec
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import Chunks, RegularChunks, open_chunks
from zstore.engine.documents import (
    ModelStore,
    ancestors,
    check_path,
    document_keys,
    encode_nodes,
    place,
    publish_nodes,
    read_node,
    render_node,
)
from zstore.engine.making import delete_keys
from zstore.engine.schedulers import map_threads, thread_count
from zstore.engine.walk import listed_cell, walk_nodes
from zstore.errors import NotFoundError, StoreError, ZstoreError, is_loss
from zstore.indexing.select import plan_basic
from zstore.jobs.plan import current_part, free_size, name_job
from zstore.jobs.source import (
    MARK_COUNT,
    Cell,
    ChunkSet,
    ModelSource,
    Rows,
    Source,
    Sources,
    StoredChunks,
    Versions,
)
from zstore.jobs.target import check_apart
from zstore.model import v3
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import check_attributes, render_json, spelled
from zstore.model.dtype import is_same_type
from zstore.model.grid import RegularGrid
from zstore.model.group import GroupModel
from zstore.nodes.array import Array
from zstore.nodes.create import ArrayRequest
from zstore.nodes.node import Access, Missing, StoredNode, is_fault
from zstore.nodes.open import StoreLike
from zstore.nodes.open import open as open_node
from zstore.storage.base import Entry, Found, Names, Request, Store, Values, join_key, join_url, key_below
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_by_content, open_store

# Decoded bytes that a job holds at once, and requests that it sends at once.
MEMORY_SIZE = 256 << 20
REQUEST_COUNT = 32
# Entries of a listing that are dealt with at a time.
PAGE_COUNT = 4096
# An odd number with irregular bits, as hash functions multiply by.
MIXING = np.uint64(0x9E3779B97F4A7C15)
# The name of a key below any node.
DOCUMENT = "zarr.json"

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Page(NamedTuple):
    """Some stored chunks: coordinates (a row for each), sizes in bytes (int64) and versions (str).

    documents  those of the array that were listed with them
    """

    cells: Rows
    sizes: np.ndarray[Any, Any]
    versions: np.ndarray[Any, Any]
    documents: Sequence[Entry] = ()

    def where(self, mask: np.ndarray[Any, Any]) -> Page:
        """The chunks for which a mask is true."""
        if mask.all():
            return self
        return Page(self.cells[mask], self.sizes[mask], self.versions[mask], self.documents)


class Unreachable(NamedTuple):
    """The error of chunks out of reach, and their first coordinates; None: all chunks that are not listed."""

    error: StoreError
    leading: Cell | None

    def has(self, cell: Cell) -> bool:
        """Whether a chunk that is not listed is out of reach."""
        return self.leading is None or cell[: len(self.leading)] == self.leading


def of_files_by_content(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose first argument may be the URL of a file that only its first bytes tell.

    They are asked for where the function has found nothing.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (NotFoundError, StoreError):
            options: Any = kwargs.get("storage_options")
            file = open_by_content(args[0], options) if args else None
            if file is None:
                raise
        call_again: Any = function
        again: R = call_again(open_node(*file, mode="r"), *args[1:], **{**kwargs, "storage_options": None})
        return again

    return call


class Location(NamedTuple):
    """A node, or keys that belong to none, and everything below: a store, and a path in it."""

    store: Store
    path: str

    @classmethod
    def open(
        cls, target: StoredNode[Any] | StoreLike, path: str | None, options: Mapping[str, Any] | None, *,
        read_only: bool,
    ) -> Location:  # fmt: skip
        """The location of a node, store, path or URL, or at `path` below it."""
        if isinstance(target, StoredNode):
            return cls(target.store, check_path(f"{target.path}/{path or ''}"))
        return cls(open_store(target, read_only=read_only, storage_options=options), check_path(path))

    def key(self, below: str) -> str:
        """The store's key for a key below the path."""
        return join_key(self.path, below)

    def below(self, key: str) -> str:
        """The key below the path for one of the store's keys."""
        return key_below(self.path, key)

    def get(self, below: str) -> bytes | None:
        """The value of a key below the path."""
        value = self.store.get(self.key(below))
        return None if value is None else bytes(value)

    def url(self, below: str = "") -> str:
        """The URL of the node at a path below, for messages."""
        return join_url(self.store.url, self.key(below))

    def node(self, below: str) -> ArrayModel | GroupModel | None:
        """The node at a path below, without consolidated metadata; None where there is none."""
        node = read_node(self.store, self.key(below))
        return replace(node, consolidated=None) if isinstance(node, GroupModel) else node

    def versions(self, paths: Iterable[str], *, has_attributes: bool = True) -> Versions:
        """The versions of the nodes at paths below: of documents and chunks; of nothing, none.

        has_attributes  whether attributes count; consolidated metadata do not
        """
        versions = {}
        for below in paths:
            node = self.node(below)
            if node is None and next(self.store.list(self.key(below)), None) is None:
                continue
            chunks = ""
            if isinstance(node, ArrayModel):
                array = StoredArray(self.store, self.key(below), node, allow_pickle=True)
                chunks = array.listing(has_documents=False).version or "?"
            if node is not None and not has_attributes:
                node = node.with_attributes({})
            versions[below] = f"{name_job(None if node is None else render_node(node))} {chunks}"
        return versions

    def sources(
        self,
        arrays: Mapping[str, Source],
        versions: Mapping[str, str] | None = None,
        nodes: Iterable[tuple[str, ArrayModel | GroupModel | ZstoreError]] | None = None,
    ) -> Sources:
        """The versions that a job reads here and below: of documents, and of the chunks of `arrays`.

        arrays  by their paths below
        versions, nodes
                of the arrays, and of all nodes, where they were listed and walked already
        """

        def find(
            versions: Mapping[str, str] | None = None,
            nodes: Iterable[tuple[str, ArrayModel | GroupModel | ZstoreError]] | None = None,
        ) -> Mapping[str, str]:
            try:
                if versions is None:
                    versions = {below: array.version() for below, array in arrays.items()}
                documents = dict[str, Any]()
                # The listing of a single array has its document.
                if not versions.get(""):
                    for path, model in walk_nodes(*self) if nodes is None else nodes:
                        node = None if isinstance(model, ZstoreError) else render_node(model)
                        documents[self.below(path)] = name_job(node)
            except NotFoundError:
                return {}
            marks = {below: version or "?" for below, version in versions.items()}
            return {below: f"{documents.get(below)} {marks.get(below)}" for below in {**documents, **marks}}

        return Sources(find, self.url, find(versions, nodes))

    def check_room(self, size: float, expect: Callable[[], float], what: str) -> None:
        """Refuse a directory whose disk has too little room for the bytes that a job will store there.

        size    decoded bytes; where so many are free, nothing is measured
        expect  gives bytes that will be stored at least
        what    is stored, in words

        Raises
            StoreError: there is no room.
        """
        directory, part = self.store.local_path(self.path), current_part()
        if directory is None or (part is not None and part.is_begun) or size <= free_size(directory):
            return
        # What an interrupted job has stored is not made again, and what is replaced goes first.
        room = free_size(directory) + sum(entry.size for entry in self.store.entries(self.path))
        if size <= room:
            return
        expected = expect()
        if expected > room:
            free, least = format_size(room), format_size(expected)
            if free == least:
                free, least = f"{room:.0f} bytes", f"{expected:.0f} bytes"
            raise StoreError(
                f"the disk of {os.fspath(directory)!r} has {free} free; expected {least} at least for {what}",
                path=self.url(),
            )


class StoredArray(ModelSource):
    """An array by its store, path and model, whose chunks are listed, read and written.

    caches            whether decoded chunks are kept, for a next box that overlaps them and comes soon
    missing_is_fault  whether reading a chunk that is not stored is an error

    Raises
        UnknownExtensionError: nobody offers one of the codecs.
        MetadataError: the codecs do not fit together, or do not fit the chunks.
        UnsupportedError: chunks are pickled, and `allow_pickle` is false.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        model: ArrayModel,
        *,
        allow_pickle: bool = False,
        caches: bool = True,
        missing_is_fault: bool = False,
    ) -> None:
        self.store = store
        self.path = path
        self.model = model
        self.missing_is_fault = missing_is_fault
        self._allow_pickle = allow_pickle
        self._caches = caches
        self._anew: Callable[..., StoredArray] = partial(
            StoredArray, allow_pickle=allow_pickle, caches=caches, missing_is_fault=missing_is_fault
        )
        self._chunks = self._open()
        self._chains: dict[tuple[int, ...], Chain] = {}
        self._document_keys = set(document_keys(path, model.zarr_format))

    @classmethod
    def of(cls, array: Array, missing: Missing | None = None) -> StoredArray:
        """An array as it was opened, or with another way to read chunks that are not stored (`missing`)."""
        access = array.access
        is_missing_fault = is_fault(access.missing if missing is None else missing)
        return cls(
            array.store,
            array.path,
            array.model,
            allow_pickle=access.allow_pickle,
            missing_is_fault=is_missing_fault,
        )

    @property
    def url(self) -> str:
        return place(self.store, self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def request_count(self) -> int:
        return self.store.request_count

    def version(self) -> str:
        return self.listing().version

    def has_lost(self, error: Exception) -> bool:
        if not isinstance(error, ZstoreError) or not is_loss(error):
            return False
        is_here = (error.path or "").rstrip("/") in (self.url, place(self.store, "").rstrip("/"))
        return is_here and (error.key is None or f"{error.key}/".startswith(f"{self.path}/"))

    def watched(self) -> Sources:
        return Location(self.store, self.path).sources({"": self})

    def check_apart(self, target: Store, base: str, work: str) -> None:
        check_apart(self.store, self.path, target, base, work)

    def describe(self) -> dict[str, str]:
        return {"source": self.url, "version": name_job(render_node(self.model))}

    def frame(self) -> str:
        """A hash of `frame_of` the model."""
        return name_job(frame_of(self.model))

    def elsewhere(self, store: Store) -> StoredArray:
        """The same array, to be stored in another store."""
        return self._anew(store, self.path, self.model)

    @once
    def filled(self) -> StoredArray:
        """The same array, with the fill value for chunks that are not stored."""
        return self._anew(self.store, self.path, self.model, missing_is_fault=False)

    @once
    def uncached(self) -> StoredArray:
        """The same array, of which no decoded chunks are kept."""
        return self._anew(self.store, self.path, self.model, caches=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._anew, (self.store, self.path, self.model)

    def key(self, cell: Cell) -> str:
        """The store key of a chunk."""
        return join_key(self.path, self.model.keys.key(cell))

    def stored(self, unreachable: list[Unreachable] | None = None) -> Iterator[Cell] | None:
        """The stored chunks, strays included; None if the store cannot list.

        unreachable  takes what keeps chunks out of reach, which else is raised
        """
        keys = _listed(lambda: self.store.list(self.path))
        return None if keys is None else self._stored(keys, unreachable)

    def _stored(self, keys: Iterator[str], unreachable: list[Unreachable] | None) -> Iterator[Cell]:
        try:
            for key in keys:
                try:
                    cell = self._cell(key)
                except StoreError as error:
                    if unreachable is None:
                        raise
                    leading = self.model.keys.leading(key_below(self.path, key), self.model.ndim)
                    unreachable.append(Unreachable(error, leading))
                else:
                    if cell is not None:
                        yield cell
        except StoreError as error:
            if unreachable is None:
                raise
            unreachable.append(Unreachable(error, None))

    def pages(self) -> Iterator[Page] | None:
        """The stored chunks without strays, many at a time; None if the store cannot list."""
        entries = _listed(lambda: self.store.entries(self.path))
        pages = iter(lambda: [*islice(entries or (), PAGE_COUNT)], [])
        return None if entries is None else map(self._page, pages)

    def _page(self, entries: Sequence[Entry]) -> Page:
        documents = [entry for entry in entries if entry.key in self._document_keys]
        if documents:
            entries = [entry for entry in entries if entry.key not in self._document_keys]
        cells = self.model.keys.cells([entry.key for entry in entries], self.model.ndim, self.path)
        if cells is None:
            pairs = [(cell, entry) for entry in entries if (cell := self._cell(entry.key)) is not None]
            entries = [entry for cell, entry in pairs if self.holds(cell)]
            rows = [cell for cell, _ in pairs if self.holds(cell)]
            cells = np.array(rows, np.int64).reshape(len(rows), self.model.ndim)
        sizes = np.fromiter((entry.size for entry in entries), np.int64, len(entries))
        page = Page(cells, sizes, np.array([entry.version or "" for entry in entries], np.str_), documents)
        return page.where((cells < self.counts).all(1))

    def _cell(self, key: str) -> Cell | None:
        return listed_cell(self.store, self.path, self.model, key)

    def holds(self, cell: Cell) -> bool:
        """Whether a chunk lies in the array."""
        return all(at < count for at, count in zip(cell, self.counts, strict=True))

    def remove_outside(self) -> None:
        """Remove the chunks that a shape which has shrunk cuts off, once the document says that shape."""
        outside = [cell for cell in self.stored() or () if not self.holds(cell)]
        delete_keys(self.store, [*map(self.key, outside)])

    def all_cells(self) -> Iterator[Cell]:
        """Every chunk of the grid, stored or not."""
        return places(self.counts)

    @property
    def piece_shape(self) -> Shape | None:
        chunks = self._chunks
        return chunks.bound.inner.spec.shape if isinstance(chunks, RegularChunks) else None

    @property
    def codecs(self) -> tuple[str, ...] | None:
        chunks = self._chunks
        if isinstance(chunks, RegularChunks) and chunks.bound.is_native:
            return chunks.bound.step_names
        return None

    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        # The cache of decoded chunks belongs to the object that reads files.
        chunks = self._chunks if self._caches or not self._is_in_files else self._chunks.emptied()
        plan = plan_basic(chunks.layout, box)
        if out is None:
            out = np.empty(plan.shape, self.dtype)
        chunks.read(plan, out, missing_is_fault=self.missing_is_fault)
        return out

    @once
    def _is_in_files(self) -> bool:
        return self.store.local_path(self.path) is not None

    def listing(
        self, *, keeps_marks: bool = False, least: int = 0, has_documents: bool = True
    ) -> StoredChunks:
        """The stored chunks that have `least` bytes or more, and their version.

        has_documents  whether documents of the array count for the version
        """
        pages = self.pages()
        if pages is None:
            return StoredChunks(ChunkSet(self.counts, None), 0, "")
        size = total = 0
        is_certain = True
        marks = np.zeros(self.counts, np.uint64) if keeps_marks and prod(self.counts) <= MARK_COUNT else None

        def rows() -> Iterator[Rows]:
            nonlocal size, total, is_certain
            for page in pages:
                page = page.where(page.sizes >= least)
                # A sum does not depend on the order in which a store lists.
                numbers = _mark(page)
                total += int(numbers.sum(dtype=np.uint64))
                if marks is not None and len(numbers):
                    marks[tuple(page.cells.T)] = numbers if self.counts else numbers[0]
                size += int(page.sizes.sum())
                is_certain &= bool((page.versions != "").all())
                for entry in page.documents if has_documents else ():
                    total += int.from_bytes(sha256(repr(entry).encode()).digest()[:8], "little")
                yield page.cells

        cells = ChunkSet(self.counts, rows())
        version = f"{total % (1 << 64):016x}{'' if is_certain else '?'}"
        return StoredChunks(cells, size, version, marks, is_listed=True)

    def write(self, box: Box, items: np.ndarray[Any, Any]) -> None:
        """Store the items of a box of whole chunks, cut at the array's edge; its document is stored later."""
        self._write(box, items, skip_empty=False)

    def write_filled(self, box: Box, items: np.ndarray[Any, Any]) -> list[bool]:
        """As `write`, without chunks of the fill value alone; returns for each whether it was left out."""
        self._write(box, items, skip_empty=True)
        fill, first = self.model.effective_fill_value, (slice(0, 1),) * self.model.ndim
        empty = []
        for cell in self.cells(box):
            part = np.asarray(items[inside(self.box(cell), box)])
            # In most chunks the first item already is not the fill value.
            empty.append(is_filled(part[first], fill) and is_filled(part, fill))
        return empty

    def is_written(self, box: Box, empty: Sequence[bool]) -> bool:
        """Whether all chunks of a box are stored, except those that `write_filled` left out (`empty`)."""
        wanted = compress(self.cells(box), map(not_, empty))
        return all(self.store.get_many([(self.key(cell), ByteRange(0, 1)) for cell in wanted]))

    def _write(self, box: Box, items: np.ndarray[Any, Any], *, skip_empty: bool) -> None:
        self._chunks.is_published, self._chunks.skip_empty = False, skip_empty
        self._chunks.write(plan_basic(self._chunks.write_layout, box), items)

    def _open(self) -> Chunks:
        return open_chunks(self.store, self.path, self.model, allow_pickle=self._allow_pickle)

    def chain(self, cell: Cell) -> Chain:
        """The codecs, bound to the shape of a chunk."""
        grid = self.model.grid
        return self._bind(tuple(grid.start(d, p + 1) - grid.start(d, p) for d, p in enumerate(cell)))

    def bind(self) -> None:
        """Raise MetadataError if the codecs do not fit one of the shapes that chunks of the array have."""
        for shape in self.model.grid.shapes():
            self._bind(shape)

    def _bind(self, shape: tuple[int, ...]) -> Chain:
        bound = self._chains.get(shape)
        if bound is None:
            spec = ChunkSpec(shape, self.dtype, self.fill_value, self._allow_pickle)
            bound = self._chains[shape] = Chain.bind(self.model.codecs, spec)
        return bound


def frame_of(model: ArrayModel | GroupModel) -> list[dict[str, Any]]:
    """The documents without shape and attributes, which must stay for chunks to be made again alone."""
    documents = render_node(model.with_attributes({})).values()
    return [{name: value for name, value in one.items() if name != "shape"} for one in documents]


def thread_count_for(size: int, shares: int, *stores: Store, memory: int = MEMORY_SIZE) -> int:
    """The number of threads that work on values of `size` bytes at a time, in one share of the memory."""
    wanted = max(thread_count(), *(min(REQUEST_COUNT, store.request_count) for store in stores))
    return max(1, min(wanted, memory // shares // max(1, size)))


def _listed(find: Callable[[], Iterator[T]]) -> Iterator[T] | None:
    """The iterator of `find`; None if the store has no lists, or none for this user."""
    try:
        each = find()
        first = next(each, None)
    except StoreError as error:
        return None if error.is_no_list else _failing(error)
    return iter(()) if first is None else chain((first,), each)


def _failing(error: StoreError) -> Iterator[Any]:
    """The iterator of a list that fails before its first item."""
    raise error
    yield


def _mark(page: Page) -> Any:
    """A hash (uint64) of each chunk's coordinates, size and version."""
    width = page.versions.itemsize // 4
    letters = page.versions.view(np.uint32).reshape(len(page.sizes), width).astype(np.uint64)
    # Padding counts nothing, so a hash does not depend on the length of other versions.
    factors = np.multiply.accumulate(np.full(width, MIXING, np.uint64))
    marks = letters @ factors
    for column in (page.sizes, *page.cells.T):
        marks = (marks ^ (marks >> np.uint64(32)) ^ column.astype(np.uint64)) * MIXING
    return marks ^ (marks >> np.uint64(29))


def same_items(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether items are the same, bit for bit, in any byte orders."""
    if one.dtype.kind not in "OT":
        if not is_same_type(one.dtype, other.dtype):
            return False
        return one.tobytes() == other.astype(one.dtype, copy=False).tobytes()
    pairs = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
    return all(_same_object(a, b) for a, b in pairs)


def _same_object(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return same_items(np.asarray(a), np.asarray(b)) and np.shape(a) == np.shape(b)
    return bool(a == b) or (a != a and b != b)


# Sources as a store, so that whatever opens stored arrays opens them, too


class SourceStore(ModelStore):
    """A hierarchy whose arrays have the items of sources; its chunks are made when somebody gets them.

    The documents of these arrays name no compressor. Jobs read the sources themselves (`source_of`), by boxes
    that suit these.

    documents    what is stored: the documents of all nodes, and arrays that are of no source; None: nothing
    models       of all nodes by path, whose documents are made when one is asked for; None: these are there
    sources      by the paths of their arrays
    has_address  whether the URL opens the same store again: that of a class which a scheme opens, as a rule
    """

    read_only = True
    has_address = True

    def __init__(
        self,
        url: str,
        documents: MemoryStore | None,
        sources: Mapping[str, Source],
        models: Mapping[str, ArrayModel | GroupModel | ZstoreError] | None = None,
    ) -> None:
        self._url, self._stored, self.sources, self.models = url, documents, sources, models
        self.request_count = max((one.request_count for one in sources.values()), default=1)
        if type(self) is SourceStore:
            self.has_address = False

    @once
    def documents(self) -> MemoryStore:
        documents = MemoryStore() if self._stored is None else self._stored
        models = self.models or {}
        faults = {path: model for path, model in models.items() if isinstance(model, ZstoreError)}
        readable = {path: model for path, model in models.items() if not isinstance(model, ZstoreError)}
        for path, encoded in encode_nodes(readable):  # nobody else has the store
            for name, value in encoded.items():
                documents.put(join_key(path, name), value)
        for path, fault in faults.items():
            # Whoever copies or walks through documents learns that there is something, too.
            said = {"zarr_format": 3, "node_type": "array", "unreadable": fault.message}
            documents.put(join_key(path, v3.KEY), render_json(said))
        return documents

    @classmethod
    def of(cls, source: Source, path: str = "", zarr_format: ZarrFormat = 3) -> SourceStore:
        """A store with one array, at `path` in a group, or with the group of the source's own documents."""
        own = source.documents(zarr_format)
        if own is not None:
            return cls(source.url, own[0], {own[1]: source})
        documents = MemoryStore()
        group: dict[str, ArrayModel | GroupModel] = {"": GroupModel(zarr_format)} if path else {}
        publish_nodes(documents, "", {**group, path: model_of(source, zarr_format)})
        return cls(source.url, documents, {path: source})

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        value = self.documents.get(key)
        if value is None:
            value = self._chunk(key)
        if value is None or byte_range is None:
            return value
        begin, end = byte_range.resolve(len(value))
        return value if end - begin == len(value) else memoryview(value)[begin:end]

    def get_many(self, requests: Sequence[Request]) -> Values:
        if all(self.documents.size(key) is not None or self._cell(key)[1] is None for key, _ in requests):
            return [self.get(*request) for request in requests]
        return [*map_threads(lambda request: self.get(*request), requests)]

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As `Store.get_first`: no document is made of a source."""
        return self.documents.get_first(prefixes, choices)

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
        cell = array.model.keys.cell(key_below(path, key), array.model.ndim)
        return path, cell if cell is not None and array.holds(cell) else None

    def _array(self, path: str) -> StoredArray:
        """The array at the path of a source, without a chunk."""
        return StoredArray(MemoryStore(), path, self.model(path), allow_pickle=True)

    def model(self, path: str) -> ArrayModel:
        """The model of the array at the path of a source."""
        model = read_node(self.documents, path) if self.models is None else self.models[path]
        assert isinstance(model, ArrayModel), "each source has the document of an array"
        return model

    def entry(self, key: str) -> Entry | None:
        """The size and version of a value: a document's version is its hash, a chunk's that of its source."""
        value = self.documents.get(key)
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
        yield from self.documents.list(prefix)
        start = f"{prefix}/" if prefix else ""
        for path in self.sources:
            below = f"{path}/" if path else ""
            if below.startswith(start) or start.startswith(below):
                array = self._array(path)
                yield from (key for key in map(array.key, array.all_cells()) if key.startswith(start))

    def list_children(self, prefix: str = "") -> Names:
        if any(not path or f"{prefix}/".startswith(f"{path}/") for path in self.sources):
            return super().list_children(prefix)
        # Above the arrays of sources there are documents only, which each of these has.
        return self.documents.list_children(prefix)

    def close(self) -> None:
        for source in self.sources.values():
            source.close()

    def __reduce__(self) -> tuple[Any, ...]:
        values = {key: bytes(self.documents.get(key) or b"") for key in self.documents.list()}
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
        attributes=check_attributes(spelled(source.attributes), path=source.url),
        dimension_names=source.dimension_names,
    ).model()
    return model if fill is None else replace(model, fill_value=fill)


def as_array(source: Source) -> Array:
    """An array that shows a source: its items, names of dimensions and attributes.

    Raises
        as `model_of`.
    """
    store = SourceStore.of(source, source.name.rpartition("/")[2] or "data")
    [path] = store.sources
    return Array(store, path, store.model(path), Access(read_only=True))


def source_of(array: Array, missing: Missing | None = None) -> Source:
    """The items of an array as a source: the one that its store shows, if it is such a store.

    missing  whether a chunk that is not stored is an error; None: as the array was opened
    """
    shown = shown_source(array.store, array.path)
    # An array that is viewed as another type reads the chunks that the store makes.
    is_viewed = shown is not None and not is_same_type(array.dtype, shown.dtype)
    return StoredArray.of(array, missing) if shown is None or is_viewed else shown


def is_shown(array: Array) -> bool:
    """Whether the array only shows a source, and has no stored chunks."""
    return shown_source(array.store, array.path) is not None


def shown_source(store: Store, path: str) -> Source | None:
    """The source that a store shows as the array at a path; None if its chunks are stored."""
    holder, key = store.holder(join_key(path, DOCUMENT))
    return holder.sources.get(key[: -len(DOCUMENT)].rstrip("/")) if isinstance(holder, SourceStore) else None

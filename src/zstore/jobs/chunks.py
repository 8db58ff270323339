"""Arrays as sources and targets of jobs: their stored chunks listed, read and written, and sets of chunks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, compress, islice, product
from math import prod
from operator import not_
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import Chunks, RegularChunks, open_chunks
from zstore.engine.documents import KEYS, check_path, render_node
from zstore.engine.schedulers import thread_count
from zstore.engine.walk import listed_cell, walk_nodes
from zstore.errors import ChangedError, NotFoundError, StoreError, ZstoreError
from zstore.indexing.select import plan_basic
from zstore.jobs.plan import Unit
from zstore.model.array import ArrayModel
from zstore.model.dtype import is_same_type
from zstore.model.grid import Grid, RegularGrid
from zstore.model.group import GroupModel
from zstore.nodes.node import Node
from zstore.nodes.open import StoreLike
from zstore.storage.base import Entry, Store, join_key, join_url
from zstore.storage.url import open_store

# Decoded bytes that a job holds at once, and requests that it sends at once.
MEMORY_SIZE = 256 << 20
REQUEST_COUNT = 32
# Entries of a listing that are dealt with at a time.
PAGE_COUNT = 4096
# The assumed size, in bytes, of an item of any length.
OBJECT_SIZE = 64
# Up to this many chunks in a grid, a set has a byte for each of them; beyond, it holds their coordinates.
MASK_SIZE = 1 << 27
ROWS_COUNT = 1 << 16
# An odd number with irregular bits, as hash functions multiply by.
MIXING = np.uint64(0x9E3779B97F4A7C15)

Shape = tuple[int, ...]
Cell = tuple[int, ...]
Box = tuple[slice, ...]
Rows = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
T = TypeVar("T")


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


class Location(NamedTuple):
    """A node, or keys that belong to none, and everything below: a store, and a path there."""

    store: Store
    path: str

    @classmethod
    def open(
        cls, target: Node[Any] | StoreLike, path: str | None, options: Mapping[str, Any] | None, *,
        read_only: bool,
    ) -> Location:  # fmt: skip
        """The location of a node, store, path or URL, or at `path` below it."""
        if isinstance(target, Node):
            return cls(target.store, check_path(f"{target.path}/{path or ''}"))
        return cls(open_store(target, read_only=read_only, storage_options=options), check_path(path))

    def key(self, below: str) -> str:
        """The store's key for a key below the path."""
        return join_key(self.path, below)

    def below(self, key: str) -> str:
        """The key below the path for one of the store's keys."""
        return key[len(self.path) + 1 if self.path else 0 :]

    def get(self, below: str) -> bytes | None:
        """The value of a key below the path."""
        value = self.store.get(self.key(below))
        return None if value is None else bytes(value)

    def url(self, below: str = "") -> str:
        """The URL of the node at a path below, for messages."""
        return join_url(self.store.url, self.key(below))


class StoredArray:
    """An array by its store, path and model, whose chunks are listed, read and written.

    Raises
        UnknownExtensionError: nobody offers one of the codecs.
        MetadataError: the codecs do not fit together, or do not fit the chunks.
        UnsupportedError: chunks are pickled, and `allow_pickle` is false.
    """

    def __init__(self, store: Store, path: str, model: ArrayModel, *, allow_pickle: bool = False) -> None:
        self.store = store
        self.path = path
        self.model = model
        self.counts = model.grid.count(model.shape)
        self.item_size = OBJECT_SIZE if model.data_type.is_object else model.dtype.itemsize
        # Decoded bytes of the largest chunk.
        self.chunk_size = max(1, prod(model.grid.chunk_shape) * self.item_size)
        self._allow_pickle = allow_pickle
        self._chunks = self._open()
        self._chains: dict[tuple[int, ...], Chain] = {}
        self._document_keys = {join_key(path, name) for name in KEYS[model.zarr_format]}

    def elsewhere(self, store: Store) -> StoredArray:
        """The same array, to be stored in another store."""
        return StoredArray(store, self.path, self.model, allow_pickle=self._allow_pickle)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(StoredArray, allow_pickle=self._allow_pickle), (self.store, self.path, self.model)

    def key(self, cell: Cell) -> str:
        """The store key of a chunk."""
        return join_key(self.path, self.model.keys.key(cell))

    def stored(self, unreachable: list[StoreError] | None = None) -> Iterator[Cell] | None:
        """The stored chunks, strays too; None where the store cannot list.

        unreachable  takes the errors of keys that keep chunks out of reach, which else are raised
        """
        keys = _listed(lambda: self.store.list(self.path))
        return None if keys is None else self._stored(keys, unreachable)

    def _stored(self, keys: Iterator[str], unreachable: list[StoreError] | None) -> Iterator[Cell]:
        for key in keys:
            try:
                cell = self._cell(key)
            except StoreError as error:
                if unreachable is None:
                    raise
                unreachable.append(error)
            else:
                if cell is not None:
                    yield cell

    def pages(self) -> Iterator[Page] | None:
        """The stored chunks without strays, many at a time; None where the store cannot list."""
        entries = _listed(lambda: self.store.entries(self.path))
        pages = iter(lambda: [*islice(entries or (), PAGE_COUNT)], [])
        return None if entries is None else map(self._page, pages)

    def _page(self, entries: Sequence[Entry]) -> Page:
        cells = self.model.keys.cells([entry.key for entry in entries], self.model.ndim, self.path)
        documents: Sequence[Entry] = ()
        if cells is None:
            documents = [entry for entry in entries if entry.key in self._document_keys]
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

    def all_cells(self) -> Iterator[Cell]:
        """Every chunk of the grid, stored or not."""
        return product(*map(range, self.counts))

    def box(self, cell: Cell) -> Box:
        """The items that a chunk holds, as far as the array reaches."""
        grid, shape = self.model.grid, self.model.shape
        return tuple(
            slice(grid.start(d, at), min(grid.start(d, at + 1), shape[d])) for d, at in enumerate(cell)
        )

    @property
    def piece_shape(self) -> tuple[int, ...] | None:
        """The shape of what is decoded at once: inner chunks, or chunks; None where they differ in shape."""
        chunks = self._chunks
        return chunks.bound.inner.spec.shape if isinstance(chunks, RegularChunks) else None

    @property
    def codecs(self) -> tuple[str, ...] | None:
        """The names of the codecs that kernels run on pieces (`piece_shape`); None where Python does."""
        chunks = self._chunks
        if isinstance(chunks, RegularChunks) and chunks.bound.is_native:
            return chunks.bound.step_names
        return None

    def read(
        self, box: Box, out: np.ndarray[Any, Any] | None = None, *, caches: bool = True, **options: Any
    ) -> np.ndarray[Any, Any]:
        """The items of a box, in `out` or new memory; options are those of the engine's `read`.

        caches  whether decoded chunks are kept, for a next box that overlaps them and comes soon
        """
        # The cache of decoded chunks belongs to the object that reads files.
        is_file = self.store.local_path(self.path) is not None
        chunks = self._chunks if caches or not is_file else self._open()
        plan = plan_basic(chunks.layout, box)
        if out is None:
            out = np.empty(plan.shape, self.model.dtype)
        chunks.read(plan, out, **options)
        return out

    def write(self, box: Box, items: np.ndarray[Any, Any]) -> None:
        """Store the items of a box of whole chunks, cut at the array's edge; its document is stored later."""
        self._write(box, items, skip_empty=False)

    def write_filled(self, box: Box, items: np.ndarray[Any, Any]) -> list[bool]:
        """As `write`, but chunks with the fill value only are left out; gives for each whether it was."""
        self._write(box, items, skip_empty=True)
        fill, first = self.model.effective_fill_value, (slice(0, 1),) * self.model.ndim
        empty = []
        for cell in self.cells(box):
            sides = zip(self.box(cell), box, strict=True)
            part = np.asarray(items[tuple(slice(s.start - b.start, s.stop - b.start) for s, b in sides)])
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

    def cells(self, box: Box) -> Iterator[Cell]:
        """The chunks that overlap a box, in order."""
        return product(*(self._overlap(axis, side) for axis, side in enumerate(box)))

    def count(self, box: Box) -> int:
        """How many chunks overlap a box."""
        return prod(len(self._overlap(axis, side)) for axis, side in enumerate(box))

    def _overlap(self, axis: int, side: slice) -> range:
        """The coordinates along an axis of the chunks that overlap a side of a box."""
        every, start = range(self.counts[axis]), self.model.grid.start
        first = bisect_right(every, side.start, key=lambda number: start(axis, number)) - 1
        return range(first, bisect_left(every, side.stop, key=lambda number: start(axis, number)))

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
            spec = ChunkSpec(shape, self.model.dtype, self.model.effective_fill_value, self._allow_pickle)
            bound = self._chains[shape] = Chain.bind(self.model.codecs, spec)
        return bound


def thread_count_for(size: int, shares: int, *stores: Store, memory: int = MEMORY_SIZE) -> int:
    """How many threads work on values of `size` bytes at a time, in one of so many shares of the memory."""
    wanted = max(thread_count(), *(min(REQUEST_COUNT, store.request_count) for store in stores))
    return max(1, min(wanted, memory // shares // max(1, size)))


def _listed(find: Callable[[], Iterator[T]]) -> Iterator[T] | None:
    """The iterator that `find` gives; None where the store cannot list."""
    try:
        each = find()
        first = next(each, None)
    except StoreError:
        return None
    return iter(()) if first is None else chain((first,), each)


def edges(grid: Grid, axis: int, length: int) -> Any:
    """The edges of chunks along an axis of a length: where each begins, and where the last one ends."""
    count = grid.count((length,) * len(grid.chunk_shape))[axis]
    if isinstance(grid, RegularGrid):
        ends = np.arange(count + 1, dtype=np.int64) * grid.chunk_shape[axis]
    else:
        runs = [(step, min(n, count)) for step, n in grid.edges[axis].runs]
        lengths = np.repeat(*np.array(runs, np.int64).T)[:count]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.minimum(ends, length)


class ChunkSet:
    """A set of chunks of an array, by their coordinates, which come many at a time; None: all chunks."""

    def __init__(self, counts: Shape, cells: Iterable[Sequence[Cell] | Rows] | None) -> None:
        self.counts = counts
        self._is_all = cells is None
        self._mask: Mask | None = None
        self._set = set[Cell]()
        if cells is not None and prod(counts) > MASK_SIZE:
            self._set.update(*(map(tuple, np.asarray(some).tolist()) for some in cells))
        elif cells is not None:
            self._mask = np.zeros(counts, bool)
            for some in filter(len, cells):
                self._mask[tuple(np.asarray(some).T)] = True
            if self._mask.all():
                self._is_all, self._mask = True, None

    def __iter__(self) -> Iterator[Cell]:
        if self._is_all:
            yield from product(*map(range, self.counts))
        elif self._mask is None:
            yield from sorted(self._set)
        else:
            yield from _rows(self._mask)

    def __len__(self) -> int:
        if self._is_all:
            return prod(self.counts)
        return len(self._set) if self._mask is None else int(np.count_nonzero(self._mask))

    def __or__(self, other: ChunkSet) -> ChunkSet:
        if self._is_all or other._is_all:
            return ChunkSet(self.counts, None)
        made = ChunkSet(self.counts, ())
        made._set = self._set | other._set
        if self._mask is not None and other._mask is not None:
            made._mask = self._mask | other._mask
        return made

    def __sub__(self, other: ChunkSet) -> ChunkSet:
        made = ChunkSet(self.counts, ())
        if made._mask is None:
            made._set = set() if other._is_all else {cell for cell in self if cell not in other._set}
        elif not other._is_all:
            mine = np.ones(self.counts, bool) if self._mask is None else self._mask
            made._mask = mine & ~other._mask  # type: ignore[operator]
        return made

    def spread(self, array: StoredArray, other: StoredArray) -> ChunkSet:
        """The chunks of another array that overlap these chunks of `array`."""
        if array.model.grid == other.model.grid:
            return self
        if self._is_all:
            return ChunkSet(other.counts, None)
        made = ChunkSet(other.counts, ())
        if self._mask is None or made._mask is None:
            return ChunkSet(other.counts, (list(other.cells(array.box(cell))) for cell in self))
        mask = self._mask
        for axis in range(mask.ndim):
            mask = _reduce(mask, axis, _spans(array, other, axis))
        made._mask = mask
        return made

    def units(self, counts: Shape, left: ChunkSet) -> Iterator[Unit]:
        """The units, of `counts` chunks along each axis, that have some of these chunks, in order.

        The last number of each unit has a bit for each of its chunks that is in `left`, for `cells_of`;
        -1: all are.
        """
        for at in self._units(counts):
            yield *at, left._bits(at, counts)

    def _units(self, counts: Shape) -> Iterator[Cell]:
        if self._is_all:
            yield from product(*(range(-(-most // n)) for most, n in zip(self.counts, counts, strict=True)))
        elif self._mask is None:
            yield from sorted({tuple(p // n for p, n in zip(cell, counts, strict=True)) for cell in self})
        else:
            mask = self._mask
            for axis, count in enumerate(counts):
                if mask.size:
                    mask = np.logical_or.reduceat(mask, np.arange(0, mask.shape[axis], count), axis=axis)
            yield from _rows(mask)

    def _bits(self, at: Cell, counts: Shape) -> int:
        if self._is_all:
            return -1
        sides = _sides(at, counts, self.counts)
        if self._mask is None:
            mask = np.array([cell in self._set for cell in product(*sides)])
        else:
            mask = self._mask[tuple(slice(side.start, side.stop) for side in sides)].reshape(-1)
        return -1 if mask.all() else int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _sides(at: Cell, counts: Shape, most: Shape) -> list[range]:
    """The chunks of a unit, as a range along each axis."""
    return [range(p * n, min(p * n + n, end)) for p, n, end in zip(at, counts, most, strict=True)]


def cells_of(unit: Unit, counts: Shape, most: Shape) -> list[Cell]:
    """The chunks that are left of a unit of `counts` chunks along each axis, on a grid of `most`."""
    *at, bits = unit
    sides = _sides(tuple(at), counts, most)
    every, length = product(*sides), prod(map(len, sides))
    if bits < 0:
        return list(every)
    packed = np.frombuffer(bits.to_bytes(-(-length // 8), "little"), np.uint8)
    return list(compress(every, np.unpackbits(packed, count=length, bitorder="little").tolist()))


class StoredChunks(NamedTuple):
    """The stored chunks of an array, as one listing has them.

    cells    the chunks; all, where the store cannot list
    size     their bytes
    version  a hash of the chunks' coordinates, and of sizes and versions of the chunks and the array's
             documents; "" where the store cannot list
    """

    cells: ChunkSet
    size: int
    version: str

    @classmethod
    def of(cls, array: StoredArray, *, least: int = 0, has_documents: bool = True) -> StoredChunks:
        """The listing of an array's chunks that have `least` bytes or more.

        has_documents  whether documents of the array count for the version
        """
        pages = array.pages()
        if pages is None:
            return cls(ChunkSet(array.counts, None), 0, "")
        size = marks = 0

        def rows() -> Iterator[Rows]:
            nonlocal size, marks
            for page in pages:
                page = page.where(page.sizes >= least)
                # A sum does not depend on the order in which a store lists.
                marks += int(_mark(page).sum(dtype=np.uint64))
                size += int(page.sizes.sum())
                for entry in page.documents if has_documents else ():
                    marks += int.from_bytes(sha256(repr(entry).encode()).digest()[:8], "little")
                yield page.cells

        cells = ChunkSet(array.counts, rows())
        return cls(cells, size, f"{marks % (1 << 64):016x}")


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


def _rows(mask: Mask) -> Iterator[Cell]:
    """The coordinates where a mask is true, in order."""
    rows = np.argwhere(mask)
    for first in range(0, len(rows), ROWS_COUNT):
        yield from map(tuple, rows[first : first + ROWS_COUNT].tolist())


def _spans(array: StoredArray, other: StoredArray, axis: int) -> Any:
    """(first, last + 1) of the chunks of `array` that each chunk of `other` overlaps along an axis."""
    length = array.model.shape[axis]
    old, new = (edges(one.model.grid, axis, length) for one in (array, other))
    first = np.searchsorted(old, new[:-1], side="right") - 1
    return np.stack([first, np.searchsorted(old, new[1:], side="left")], 1)


def _reduce(mask: Mask, axis: int, spans: Any) -> Mask:
    """Whether a mask is true anywhere in each of the spans along an axis."""
    if not mask.size or not len(spans):
        return np.zeros((*mask.shape[:axis], len(spans), *mask.shape[axis + 1 :]), bool)
    # reduceat takes the stretch from each place to the next, of which every second is a span. A span may end
    # past the last chunk, so there is one more.
    room = np.zeros((*mask.shape[:axis], 1, *mask.shape[axis + 1 :]), bool)
    padded = np.concatenate([mask, room], axis)
    made = np.logical_or.reduceat(padded, spans.reshape(-1), axis=axis)
    return made[(slice(None),) * axis + (slice(None, None, 2),)]


def same_items(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether items are the same, bit for bit, whatever their byte orders are."""
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


@dataclass(frozen=True)
class Sources:
    """Nodes that a job reads, by paths below a location, as they were when it began.

    documents  those of all nodes, except where a single array can be listed
    arrays     those whose chunks are read
    versions   of the documents and chunks of each; "" where the store cannot list
    """

    at: Location
    documents: Mapping[str, Any]
    arrays: Mapping[str, StoredArray]
    versions: Mapping[str, str]

    @classmethod
    def of(
        cls,
        at: Location,
        arrays: Mapping[str, StoredArray],
        versions: Mapping[str, str] | None = None,
        nodes: Iterable[tuple[str, ArrayModel | GroupModel | ZstoreError]] | None = None,
    ) -> Sources:
        """The nodes at and below a location; versions and nodes that are not passed are read."""
        if versions is None:
            versions = {below: StoredChunks.of(array).version for below, array in arrays.items()}
        documents = dict[str, Any]()
        if not versions.get(""):
            for path, model in walk_nodes(*at) if nodes is None else nodes:
                documents[at.below(path)] = None if isinstance(model, ZstoreError) else render_node(model)
        return cls(at, documents, arrays, versions)

    def check_unchanged(self) -> None:
        """Compare with what is stored now.

        Raises
            ChangedError: a document or a chunk was written, is new or is gone.
        """
        try:
            now = Sources.of(self.at, self.arrays)
        except NotFoundError:
            now = Sources(self.at, {}, {}, {})
        for before, after in ((self.documents, now.documents), (self.versions, now.versions)):
            for below in {**before, **after}:
                if before.get(below) != after.get(below):
                    raise ChangedError(
                        "the source changed while it was read; expected nobody to write to it",
                        path=self.at.url(below),
                    )

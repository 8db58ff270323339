"""The stored chunks of one array: listing, reading and writing them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, islice, product
from math import prod
from operator import not_
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import Chunks
from zstore.engine.documents import check_path
from zstore.engine.pool import map_threads, thread_count
from zstore.engine.rectilinear import open_chunks
from zstore.engine.regular import RegularChunks
from zstore.errors import CodecError, StoreError
from zstore.indexing.plans import plan_basic
from zstore.model.array import ArrayModel
from zstore.model.order import is_same_type
from zstore.nodes.node import Node
from zstore.nodes.open import StoreLike
from zstore.storage.base import Entry, Store, join_key
from zstore.storage.url import open_store

# How many decoded bytes are held at once, and how many pieces of work threads are given at a time.
MEMORY_SIZE = 256 << 20
WINDOW_COUNT = 256
REQUEST_COUNT = 32
# Entries of a listing that are dealt with at a time.
PAGE_COUNT = 4096
# The assumed size, in bytes, of an item of any length.
OBJECT_SIZE = 64

Cell = tuple[int, ...]
Box = tuple[slice, ...]
Progress = Callable[[int, int], None]
T = TypeVar("T")
R = TypeVar("R")


class Page(NamedTuple):
    """Some stored chunks: places (int64, a row for each), sizes in bytes (int64) and versions (str)."""

    cells: np.ndarray[Any, Any]
    sizes: np.ndarray[Any, Any]
    versions: np.ndarray[Any, Any]

    def where(self, mask: np.ndarray[Any, Any]) -> Page:
        """The chunks for which a mask is true."""
        return self if mask.all() else Page(*(column[mask] for column in self))


def open_place(
    target: Node[Any] | StoreLike, path: str | None, options: Mapping[str, Any] | None, *, read_only: bool
) -> tuple[Store, str]:
    """The store of a node, path or URL, and the path in that store."""
    if isinstance(target, Node):
        return target.store, check_path(f"{target.path}/{path or ''}")
    return open_store(target, read_only=read_only, storage_options=options), check_path(path)


class StoredArray:
    """One array by its store, path and model, whose chunks are listed, read and written.

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

    def elsewhere(self, store: Store) -> StoredArray:
        """The same array, to be stored in another store."""
        return StoredArray(store, self.path, self.model, allow_pickle=self._allow_pickle)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(StoredArray, allow_pickle=self._allow_pickle), (self.store, self.path, self.model)

    def key(self, cell: Cell) -> str:
        """The store key of a chunk."""
        return join_key(self.path, self.model.keys.key(cell))

    def stored(self) -> Iterator[Cell] | None:
        """The stored chunks, strays too; None where the store cannot list."""
        keys = _listed(lambda: self.store.list(self.path))
        return None if keys is None else (cell for key in keys if (cell := self._cell(key)) is not None)

    def pages(self) -> Iterator[Page] | None:
        """The stored chunks without strays, many at a time; None where the store cannot list."""
        entries = _listed(lambda: self.store.entries(self.path))
        pages = iter(lambda: [*islice(entries or (), PAGE_COUNT)], [])
        return None if entries is None else map(self._page, pages)

    def _page(self, entries: Sequence[Entry]) -> Page:
        cells = self.model.keys.cells([entry.key for entry in entries], self.model.ndim, self.path)
        if cells is None:
            found = [(self._cell(entry.key), entry) for entry in entries]
            entries = [entry for cell, entry in found if cell is not None and self.holds(cell)]
            places = [cell for cell, _ in found if cell is not None and self.holds(cell)]
            cells = np.array(places, np.int64).reshape(len(places), self.model.ndim)
        sizes = np.fromiter((entry.size for entry in entries), np.int64, len(entries))
        page = Page(cells, sizes, np.array([entry.version or "" for entry in entries], np.str_))
        return page.where((cells < self.counts).all(1))

    def _cell(self, key: str) -> Cell | None:
        return self.model.keys.cell(key[len(self.path) + 1 if self.path else 0 :], self.model.ndim)

    def holds(self, cell: Cell) -> bool:
        """Whether a chunk lies in the array."""
        return all(place < count for place, count in zip(cell, self.counts, strict=True))

    def all_cells(self) -> Iterator[Cell]:
        """Every chunk of the grid, stored or not."""
        return product(*map(range, self.counts))

    def box(self, cell: Cell) -> Box:
        """The items that a chunk holds, as far as the array reaches."""
        grid, shape = self.model.grid, self.model.shape
        return tuple(
            slice(grid.start(d, place), min(grid.start(d, place + 1), shape[d]))
            for d, place in enumerate(cell)
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

    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None, **options: Any) -> np.ndarray[Any, Any]:
        """The items of a box, in `out` if that is given; options are those of the engine's `read`."""
        return self._read(self._chunks, box, out, options)

    def read_once(
        self, box: Box, out: np.ndarray[Any, Any] | None = None, **options: Any
    ) -> np.ndarray[Any, Any]:
        """As `read`, but no decoded chunk is kept, for the next box that overlaps it comes much later."""
        # The cache of decoded chunks belongs to the object that reads files.
        is_file = self.store.local_path(self.path) is not None
        return self._read(self._open() if is_file else self._chunks, box, out, options)

    def _read(
        self, chunks: Chunks, box: Box, out: np.ndarray[Any, Any] | None, options: Mapping[str, Any]
    ) -> np.ndarray[Any, Any]:
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
        return product(*(overlap(self, axis, side) for axis, side in enumerate(box)))

    def count(self, box: Box) -> int:
        """How many chunks overlap a box."""
        return prod(len(overlap(self, axis, side)) for axis, side in enumerate(box))

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


def _listed(find: Callable[[], Iterator[T]]) -> Iterator[T] | None:
    """What `find` finds; None where the store cannot list."""
    try:
        found = find()
        first = next(found, None)
    except StoreError:
        return None
    return iter(()) if first is None else chain((first,), found)


def overlap(array: StoredArray, axis: int, part: slice) -> range:
    """The places along an axis of the chunks that overlap a part of it."""
    places, start = range(array.counts[axis]), array.model.grid.start
    first = bisect_right(places, part.start, key=lambda place: start(axis, place)) - 1
    return range(first, bisect_left(places, part.stop, key=lambda place: start(axis, place)))


def run(
    work: Callable[[T], R], pieces: Iterator[T], size: Callable[[T], int], *stores: Store
) -> Iterator[list[R]]:
    """The results of the work on pieces, window by window, on as many threads as memory and latency allow.

    size  gives the bytes that the work on a piece holds
    """
    remote = max(min(REQUEST_COUNT, store.request_count) for store in stores)
    wanted = max(thread_count(), remote)
    while window := list(islice(pieces, WINDOW_COUNT)):
        threads = max(1, min(wanted, MEMORY_SIZE // max(map(size, window))))
        yield map_threads(work, window, waiting_count=threads)


def keeps_bytes(source: StoredArray, target: StoredArray) -> bool:
    """Whether the first stored chunk decodes to the same items with the codecs of both arrays.

    That checks a plan to keep the bytes of chunks. True where no chunk is stored, or that chunk is damaged.
    """
    stored = source.stored()
    cell = next(source.all_cells() if stored is None else filter(source.holds, stored), None)
    data = None if cell is None else source.store.get(source.key(cell))
    if cell is None or data is None:
        return True
    try:
        old = source.chain(cell).decode(data)
    except CodecError:
        return True
    try:
        return same_items(old, target.chain(cell).decode(data))
    except CodecError:
        return False


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

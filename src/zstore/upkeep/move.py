"""The chunks of one array, put into another: as they are, or decoded and encoded anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, product
from math import prod
from typing import Any

import numpy as np

from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.engine.objects import single
from zstore.engine.pool import map_threads, thread_count
from zstore.engine.rectilinear import open_chunks
from zstore.errors import CodecError, StoreError, ZstoreError
from zstore.indexing.plans import plan_basic
from zstore.model.array import ArrayModel
from zstore.model.grid import RectilinearGrid
from zstore.storage.base import Store, join_key

__all__ = ["Side", "bind_target", "compare", "copy_chunks", "keeps_bytes", "recode_chunks", "touched_cells"]

# Decoded bytes that are held at once, and pieces of work that threads are given at a time.
MEMORY_SIZE = 256 << 20
WINDOW_COUNT = 256
REQUEST_COUNT = 32
# What an item of any length is taken for.
OBJECT_SIZE = 64

Cell = tuple[int, ...]
Box = tuple[slice, ...]


class Side:
    """One array of the two: where it is, what it is, and how its items are read."""

    def __init__(self, store: Store, path: str, model: ArrayModel, *, allow_pickle: bool = False) -> None:
        self.store = store
        self.path = path
        self.model = model
        self.allow_pickle = allow_pickle
        self.counts = model.grid.count(model.shape)
        self._chunks: Any = None

    def key(self, cell: Cell) -> str:
        """The store key of a chunk."""
        return join_key(self.path, self.model.keys.key(cell))

    def cells(self) -> Iterator[Cell]:
        """The stored chunks that lie in the array; all, where the store cannot list."""
        skip = len(self.path) + 1 if self.path else 0
        try:
            keys = self.store.list(self.path)
            first = next(keys, None)
        except StoreError:
            yield from product(*map(range, self.counts))
            return
        for key in chain([] if first is None else [first], keys):
            cell = self.model.keys.cell(key[skip:], self.model.ndim)
            if cell is not None and all(a < b for a, b in zip(cell, self.counts, strict=True)):
                yield cell

    def box(self, cell: Cell) -> Box:
        """The items that a chunk holds, as far as the array reaches."""
        grid, shape = self.model.grid, self.model.shape
        return tuple(
            slice(grid.start(d, place), min(grid.start(d, place + 1), shape[d]))
            for d, place in enumerate(cell)
        )

    def read(self, box: Box) -> np.ndarray[Any, Any]:
        """The items of a box."""
        if self._chunks is None:
            self._chunks = open_chunks(self.store, self.path, self.model, allow_pickle=self.allow_pickle)
        plan = plan_basic(self._chunks.layout, box)
        out = np.empty(plan.shape, self.model.dtype)
        self._chunks.read(plan, out)
        return out

    @property
    def chunk_size(self) -> int:
        """Bytes of a decoded chunk, the largest."""
        item_size = OBJECT_SIZE if self.model.data_type.is_object else self.model.dtype.itemsize
        return max(1, prod(self.model.grid.chunk_shape) * item_size)


def bind_target(target: Side) -> None:
    """Raise where the codecs of the target do not exist, or do not fit each other or the array."""
    for shape in target.model.grid.shapes():
        _bind(target, shape)


def _bind(target: Side, shape: tuple[int, ...]) -> Chain:
    model = target.model
    fill: Any = model.fill_value
    if fill is None:
        fill = model.data_type.default_fill() if model.data_type.is_object else np.zeros((), model.dtype)[()]
    return Chain.bind(model.codecs, ChunkSpec(shape, model.dtype, fill, target.allow_pickle))


def keeps_bytes(source: Side, target: Side) -> bool:
    """Whether the first stored chunk decodes to the same by the codecs of both; true where none is stored.

    The plan says so already: this holds it to what is there. A damaged chunk says nothing.
    """
    cell = next(source.cells(), None)
    data = None if cell is None else source.store.get(source.key(cell))
    if cell is None or data is None:
        return True
    shape = _chunk_shape(source, cell)
    try:
        old = _bind(source, shape).decode(data)
    except CodecError:
        return True
    try:
        return _same_items(old, _bind(target, shape).decode(data))
    except CodecError:
        return False


def _chunk_shape(side: Side, cell: Cell) -> tuple[int, ...]:
    grid = side.model.grid
    if isinstance(grid, RectilinearGrid):
        return tuple(grid.start(d, place + 1) - grid.start(d, place) for d, place in enumerate(cell))
    return grid.chunk_shape


def touched_cells(source: Side, target: Side) -> Iterator[Cell]:
    """The chunks of the target that hold something of a stored chunk of the source, each once."""
    if _same_grid(source, target):
        yield from source.cells()
        return
    seen: set[Cell] = set()
    for cell in source.cells():
        ranges = [_overlap(target, d, part) for d, part in enumerate(source.box(cell))]
        for other in product(*ranges):
            if other not in seen:
                seen.add(other)
                yield other


def _same_grid(source: Side, target: Side) -> bool:
    return source.model.grid == target.model.grid


def _overlap(target: Side, axis: int, part: slice) -> range:
    """The places along an axis whose chunks hold something of that part."""
    grid, count = target.model.grid, target.counts[axis]
    low, high = 0, count
    while low < high:  # the last chunk that begins at or before the part
        middle = (low + high) // 2
        low, high = (middle + 1, high) if grid.start(axis, middle) <= part.start else (low, middle)
    first = end = low - 1
    while end < count and grid.start(axis, end) < part.stop:
        end += 1
    return range(first, end)


def copy_chunks(source: Side, target: Side, done: Callable[[int], None]) -> None:
    """Put every stored chunk under its new key, byte for byte.

    Raises
        StoreError: one of the stores failed.
    """

    def copy(cell: Cell) -> None:
        data = source.store.get(source.key(cell))
        if data is not None:
            target.store.put(target.key(cell), data)

    _run(copy, source.cells(), source.chunk_size, (source, target), done)


def recode_chunks(source: Side, target: Side, done: Callable[[int], None]) -> None:
    """Encode every chunk of the target that holds something that is stored.

    Raises
        CodecError: a chunk of the source is damaged, or one cannot be encoded.
        StoreError: one of the stores failed.
    """
    chains: dict[tuple[int, ...], Chain] = {}

    def recode(cell: Cell) -> None:
        box = target.box(cell)
        shape = _chunk_shape(target, cell)
        bound = chains.get(shape)
        if bound is None:
            bound = chains[shape] = _bind(target, shape)
        items = source.read(box)
        if items.shape != shape:
            whole = np.empty(shape, items.dtype)
            whole[...] = single(bound.spec.fill_value, items.dtype)
            whole[tuple(slice(0, length) for length in items.shape)] = items
            items = whole
        key = target.key(cell)
        try:
            data = bound.encode(items)
        except ZstoreError as error:
            raise error.locate(path=target.store.url, key=key) from error
        target.store.put(key, data)

    _run(recode, touched_cells(source, target), _both(source, target), (source, target), done)


def compare(source: Side, target: Side, done: Callable[[int], None]) -> None:
    """Read both and raise where an item differs, bit for bit.

    Raises
        CodecError: a chunk of the target says something else than the source.
    """

    def check(cell: Cell) -> None:
        box = target.box(cell)
        if not _same_items(source.read(box), target.read(box)):
            raise CodecError(
                f"chunk differs from {join_key(source.store.url, source.path)!r}, which it was made from",
                path=target.store.url,
                key=target.key(cell),
            )

    # Chunks that are stored on one side only must read as the other side's fill value.
    stored = (cell for cell in target.cells())
    touched = touched_cells(source, target)
    _run(check, _each_once(chain(touched, stored)), _both(source, target), (source, target), done)


def _each_once(cells: Iterable[Cell]) -> Iterator[Cell]:
    seen: set[Cell] = set()
    for cell in cells:
        if cell not in seen:
            seen.add(cell)
            yield cell


def _same_items(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype.kind not in "OT":
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    pairs = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
    return all(_same_object(a, b) for a, b in pairs)


def _same_object(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _same_items(np.asarray(a), np.asarray(b)) and np.shape(a) == np.shape(b)
    return bool(a == b) or (a != a and b != b)


def _both(source: Side, target: Side) -> int:
    """Decoded bytes that one chunk of the target takes, with those of the source it is made from."""
    return 2 * target.chunk_size + source.chunk_size


def _run(
    work: Callable[[Cell], None],
    cells: Iterator[Cell],
    size: int,
    sides: tuple[Side, Side],
    done: Callable[[int], None],
) -> None:
    """Do the work for every cell on as many threads as memory and latency allow."""
    remote = max(min(REQUEST_COUNT, side.store.request_count) for side in sides)
    threads = max(1, min(max(thread_count(), remote), MEMORY_SIZE // size))
    while window := list(islice(cells, WINDOW_COUNT)):
        map_threads(work, window, waiting_count=threads)
        done(len(window))

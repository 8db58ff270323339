"""The chunks of one array, put into another: as they are, or decoded and encoded anew."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, product
from math import lcm, prod
from typing import Any

import numpy as np

from zstore.engine.objects import single
from zstore.engine.pool import map_threads
from zstore.errors import CodecError, ZstoreError
from zstore.model.grid import RegularGrid
from zstore.model.order import is_same_type
from zstore.storage.base import join_key
from zstore.upkeep.chunks import MEMORY_SIZE, REQUEST_COUNT, Box, Cell, StoredArray, run
from zstore.upkeep.spool import Spool

# Decoded bytes of the chunks that are made together: a quarter of what is held at once, so that a few threads
# have work.
BLOCK_SIZE = MEMORY_SIZE // 4

# Takes how many more chunks are done.
Done = Callable[[int], None]


def keeps_bytes(source: StoredArray, target: StoredArray) -> bool:
    """Whether the first stored chunk decodes to the same by the codecs of both; true where none is stored.

    The plan says so already: this holds it to what is there. A damaged chunk says nothing.
    """
    cell = next(source.cells(), None)
    data = None if cell is None else source.store.get(source.key(cell))
    if cell is None or data is None:
        return True
    try:
        old = source.chain(cell).decode(data)
    except CodecError:
        return True
    try:
        return _same_items(old, target.chain(cell).decode(data))
    except CodecError:
        return False


def touched_cells(source: StoredArray, target: StoredArray) -> Iterator[Cell]:
    """The chunks of the target that hold something of a stored chunk of the source, each once."""
    if source.model.grid == target.model.grid:
        return source.cells()
    return chain.from_iterable(_blocks(source, target, _touched(source, target)))


def _touched(source: StoredArray, target: StoredArray) -> Iterator[Cell]:
    """As `touched_cells`, each as often as chunks of the source touch it."""
    for box in map(source.box, source.cells()):
        yield from product(*(_overlap(target, d, part) for d, part in enumerate(box)))


def _overlap(target: StoredArray, axis: int, part: slice) -> range:
    """The places along an axis whose chunks hold something of that part."""
    places, start = range(target.counts[axis]), target.model.grid.start
    first = bisect_right(places, part.start, key=lambda place: start(axis, place)) - 1
    return range(first, bisect_left(places, part.stop, key=lambda place: start(axis, place)))


def copy_chunks(source: StoredArray, target: StoredArray, done: Done, *, keeps: bool = False) -> None:
    """Put every stored chunk under its new key, byte for byte; `keeps` leaves those that are there.

    Raises
        StoreError: one of the stores failed.
    """

    def copy(cell: Cell) -> None:
        if keeps and target.store.size(target.key(cell)):
            return
        data = source.store.get(source.key(cell))
        if data is not None:
            target.store.put(target.key(cell), data)

    for made in run(copy, source.cells(), lambda _: source.chunk_size, source.store, target.store):
        done(len(made))


def recode_chunks(source: StoredArray, target: StoredArray, done: Done, *, keeps: bool = False) -> None:
    """Encode every chunk of the target that holds something that is stored; `keeps` leaves those there are.

    Chunks of the target that share chunks of the source are made together, as many as BLOCK_SIZE allows: each
    chunk of the source is read once where the least common multiple of both grids fits in that, along its
    edges twice where larger chunks do not, and else as often as chunks of the target touch it.

    Raises
        CodecError: a chunk of the source is damaged, or one cannot be encoded.
        StoreError: one of the stores failed.
    """

    def recode(cells: list[Cell]) -> int:
        left = [cell for cell in cells if not (keeps and target.store.size(target.key(cell)))]
        if left:
            whole, parts = _around(target, left)
            items = source.read(whole)

            def put(piece: tuple[Cell, Box]) -> None:
                _encode(target, piece[0], items[piece[1]])

            most = min(REQUEST_COUNT, target.store.request_count)
            map_threads(put, zip(left, parts, strict=True), waiting_count=most if most > 1 else None)
        return len(cells)

    blocks, size = _blocks(source, target, _touched(source, target)), _block_size(source, target)
    for made in run(recode, blocks, lambda _: size, source.store, target.store):
        done(sum(made))


def _blocks(source: StoredArray, target: StoredArray, cells: Iterable[Cell]) -> Iterator[list[Cell]]:
    """These chunks of the target, each once, by what is made together.

    They come in any order and may be more than memory holds: they are sorted by the numbers of their blocks.
    """
    counts, shape = target.counts, _block_shape(source, target)
    lengths = [-(-count // length) for count, length in zip(counts, shape, strict=True)]
    size = prod(shape)

    def number(cell: Cell) -> bytes:
        block = inside = 0
        for place, length, count in zip(cell, shape, lengths, strict=True):
            block, inside = block * count + place // length, inside * length + place % length
        # A grid of any size: so many digits as its largest number has.
        return b"%0*x" % (digits, block * size + inside)

    def cell_of(line: bytes) -> Cell:
        block, inside = divmod(int(line, 16), size)
        cell = []
        for length, count in zip(reversed(shape), reversed(lengths), strict=True):
            block, above = divmod(block, count)
            inside, place = divmod(inside, length)
            cell.append(above * length + place)
        return tuple(reversed(cell))

    digits = len(f"{prod(lengths) * size:x}")
    lines = iter(Spool(map(number, cells)))
    for _, block in groupby(lines, key=lambda line: int(line, 16) // size):
        yield [*map(cell_of, block)]


def _block_size(source: StoredArray, target: StoredArray) -> int:
    """The decoded bytes that one block takes at most."""
    return _both(source, target) + 2 * prod(_block_shape(source, target)) * target.chunk_size


def _around(target: StoredArray, cells: Sequence[Cell]) -> tuple[Box, list[Box]]:
    """The box around these chunks, and where in it each of them lies."""
    boxes = [target.box(cell) for cell in cells]
    whole = tuple(
        slice(min(part.start for part in parts), max(part.stop for part in parts))
        for parts in zip(*boxes, strict=True)
    )
    inside = [
        tuple(slice(p.start - w.start, p.stop - w.start) for p, w in zip(box, whole, strict=True))
        for box in boxes
    ]
    return whole, inside


def _block_shape(source: StoredArray, target: StoredArray) -> tuple[int, ...]:
    """How many chunks of the target are made together, by axis."""
    grids = (source.model.grid, target.model.grid)
    if not all(isinstance(grid, RegularGrid) for grid in grids):
        return (1,) * target.model.ndim
    # Of shards that are too large, the inner chunks can be read by themselves.
    inner = source.model.inner_chunk_shape if source.chunk_size > BLOCK_SIZE else None
    pairs = [*zip(inner or source.model.grid.chunk_shape, target.model.grid.chunk_shape, strict=True)]
    most = target.counts
    # From the most that helps along every axis to the least: whole multiples of both, then of one, then one.
    once = [min(lcm(old, new) // new, count) for (old, new), count in zip(pairs, most, strict=True)]
    twice = [min(-(-old // new), count) for (old, new), count in zip(pairs, most, strict=True)]
    chosen = [1] * len(pairs)
    for wanted in (twice, once):
        # The axes on which chunks would be read again most often come first.
        for axis in sorted(range(len(pairs)), key=lambda axis: -wanted[axis]):
            larger = [*chosen[:axis], wanted[axis], *chosen[axis + 1 :]]
            if wanted[axis] > chosen[axis] and prod(larger) * target.chunk_size <= BLOCK_SIZE:
                chosen = larger
    return tuple(chosen)


def _encode(target: StoredArray, cell: Cell, items: np.ndarray[Any, Any]) -> None:
    """Put a chunk of the target, from its items as far as the array reaches."""
    key, bound = target.key(cell), target.chain(cell)
    if items.dtype.kind not in "OT":  # v2 has items in the stored byte order
        items = items.astype(bound.spec.dtype, copy=False)
    if items.shape != bound.spec.shape:
        whole = np.empty(bound.spec.shape, items.dtype)
        whole[...] = single(bound.spec.fill_value, items.dtype)
        whole[tuple(slice(0, length) for length in items.shape)] = items
        items = whole
    try:
        data = bound.encode(np.ascontiguousarray(items))
    except ZstoreError as error:
        raise error.locate(path=target.store.url, key=key) from error
    target.store.put(key, data)


def compare(source: StoredArray, target: StoredArray, done: Done) -> None:
    """Read both and raise where an item differs, bit for bit.

    Raises
        CodecError: a chunk of the target says something else than the source.
    """

    def check(cells: list[Cell]) -> int:
        whole, parts = _around(target, cells)
        old, new = source.read(whole), target.read(whole)
        for cell, part in zip(cells, parts, strict=True):
            if not _same_items(old[part], new[part]):
                raise CodecError(
                    f"chunk differs from {join_key(source.store.url, source.path)!r}, which it was made from",
                    path=target.store.url,
                    key=target.key(cell),
                )
        return len(cells)

    # Chunks that are stored on one side only must read as the other side's fill value.
    blocks = _blocks(source, target, chain(_touched(source, target), target.cells()))
    size = _block_size(source, target)
    for made in run(check, blocks, lambda _: size, source.store, target.store):
        done(sum(made))


def _same_items(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype.kind not in "OT":
        if not is_same_type(one.dtype, other.dtype):
            return False
        return one.tobytes() == other.astype(one.dtype, copy=False).tobytes()
    pairs = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
    return all(_same_object(a, b) for a, b in pairs)


def _same_object(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _same_items(np.asarray(a), np.asarray(b)) and np.shape(a) == np.shape(b)
    return bool(a == b) or (a != a and b != b)


def _both(source: StoredArray, target: StoredArray) -> int:
    """Decoded bytes that one chunk of the target takes, with those of the source it is made from."""
    return 2 * target.chunk_size + source.chunk_size

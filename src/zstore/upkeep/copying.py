"""The chunks of one array, put into another: as they are, or decoded and encoded anew."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from zstore.engine.objects import single
from zstore.errors import CodecError, ZstoreError
from zstore.model.order import is_same_type
from zstore.storage.base import join_key
from zstore.upkeep.chunks import Cell, StoredArray, run

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
    boxes = map(source.box, source.cells())
    return _each_once(
        cell for box in boxes for cell in product(*(_overlap(target, d, part) for d, part in enumerate(box)))
    )


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

    Raises
        CodecError: a chunk of the source is damaged, or one cannot be encoded.
        StoreError: one of the stores failed.
    """

    def recode(cell: Cell) -> None:
        key = target.key(cell)
        if keeps and target.store.size(key):
            return
        bound = target.chain(cell)
        items = source.read(target.box(cell))
        if items.dtype.kind not in "OT":  # v2 has items in the stored byte order
            items = items.astype(bound.spec.dtype, copy=False)
        if items.shape != bound.spec.shape:
            whole = np.empty(bound.spec.shape, items.dtype)
            whole[...] = single(bound.spec.fill_value, items.dtype)
            whole[tuple(slice(0, length) for length in items.shape)] = items
            items = whole
        try:
            data = bound.encode(items)
        except ZstoreError as error:
            raise error.locate(path=target.store.url, key=key) from error
        target.store.put(key, data)

    size = _both(source, target)
    for made in run(recode, touched_cells(source, target), lambda _: size, source.store, target.store):
        done(len(made))


def compare(source: StoredArray, target: StoredArray, done: Done) -> None:
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
    cells = _each_once(chain(touched_cells(source, target), target.cells()))
    size = _both(source, target)
    for made in run(check, cells, lambda _: size, source.store, target.store):
        done(len(made))


def _each_once(cells: Iterable[Cell]) -> Iterator[Cell]:
    seen: set[Cell] = set()
    for cell in cells:
        if cell not in seen:
            seen.add(cell)
            yield cell


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

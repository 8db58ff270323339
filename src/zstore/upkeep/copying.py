"""The chunks of one array, put into another as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zstore.errors import CodecError
from zstore.model.order import is_same_type
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
        return same_items(old, target.chain(cell).decode(data))
    except CodecError:
        return False


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


def same_items(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether items are the same, bit for bit, in whatever byte order."""
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

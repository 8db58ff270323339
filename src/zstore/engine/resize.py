"""Changing an array's shape so that at any moment a reader finds the old array or the new one.

Before the metadata document has the new shape, everything that becomes visible is put right: appended items
are stored, and old content beyond the former shape is removed. What is no longer visible is removed after the
document has changed. Chunks may thus hold anything beyond the shape, and no reader sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import WRITTEN_COUNT, Chunks, open_chunks
from zstore.engine.documents import ARRAY_KEYS, read_node, write_node
from zstore.engine.intents import shape_held
from zstore.engine.making import delete_keys
from zstore.engine.objects import single
from zstore.engine.schedulers import map_threads
from zstore.engine.walk import stored_cells
from zstore.errors import CodecError, NotFoundError
from zstore.indexing.select import plan_basic
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key

Shape = tuple[int, ...]

# Up to PROBED_COUNT chunks are looked up by key, PROBED_AT_ONCE at a time; for more, the store is listed.
PROBED_COUNT = 4096
PROBED_AT_ONCE = 256
# Of so many chunks at a time the keys are held while they are deleted.
DELETED_COUNT = 64_000


def resize(
    store: Store,
    path: str,
    zarr_format: int,
    new_shape: Callable[[Shape], Shape],
    tell: Callable[[ArrayModel], None],
    *,
    write: Callable[[ArrayModel, ArrayModel], None] | None = None,
    allow_pickle: bool = False,
) -> None:
    """Set the shape of the array at `path` to `new_shape` of its present shape in the store.

    `write`, called with the old and the new model, stores every item that the new shape adds; without it they
    become the fill value. One caller at a time changes a shape, as far as the store's locks reach; other
    writers wait only while the document is replaced. `tell` is called with the new model once it is stored.

    Raises
        NotFoundError: the array is gone.
        StoreError: a job at the array is unfinished, or somebody else's change of its shape does not end.
        CodecError: a chunk that old and new items share is damaged (with `write` only).
        ReadOnlyError, StoreError: the store refused.
    """
    document = join_key(path, ARRAY_KEYS[zarr_format])
    store.check_writable(document)
    with shape_held(store, path):
        while True:
            old = _read(store, path, zarr_format)
            new = old.with_shape(new_shape(old.shape))
            if any(a > b for a, b in zip(new.shape, old.shape, strict=True)):
                if write is not None:
                    write(old, new)
                else:
                    _clear_between(open_chunks(store, path, new, allow_pickle=allow_pickle), old)
            published = _publish(store, path, old, new)
            if published is not None:
                break
        tell(published)
        shrinks = any(a < b for a, b in zip(new.shape, old.shape, strict=True))
        # Resizing to the same shape again removes what an interrupted change left outside.
        if shrinks or (new.shape == old.shape and write is None):
            _clear_outside(open_chunks(store, path, old, allow_pickle=allow_pickle), new)


def _read(store: Store, path: str, zarr_format: int) -> ArrayModel:
    model = read_node(store, path, zarr_format)
    if isinstance(model, ArrayModel):
        return model
    raise NotFoundError("array is gone", path=store.url, key=join_key(path, ARRAY_KEYS[zarr_format]))


def _publish(store: Store, path: str, old: ArrayModel, new: ArrayModel) -> ArrayModel | None:
    """Write the new shape into the document, and return its model; None if it was changed meanwhile."""
    published: ArrayModel | None = None

    def put() -> None:
        nonlocal published
        stored = _read(store, path, old.zarr_format)
        if (stored.shape, stored.grid) == (old.shape, old.grid):
            changed = replace(stored, shape=new.shape, grid=new.grid)
            write_node(store, path, changed, previous=stored)
            published = changed

    store.update(join_key(path, ARRAY_KEYS[old.zarr_format]), put)
    return published


def _clear_between(chunks: Chunks, old: ArrayModel) -> None:
    """Remove stored items beyond the shape of `old` that would become visible in the larger `chunks`."""
    new = chunks.model
    start = new.grid.start
    growing = [d for d, length in enumerate(old.shape) if new.shape[d] > length]
    shared: list[Shape] = []

    def beyond() -> Iterator[str]:
        for cell in _stored_between(chunks, old, growing):
            if any(start(d, place) >= old.shape[d] for d, place in enumerate(cell)):
                yield chunks.key(cell)
            else:
                shared.append(cell)

    _delete_all(chunks.store, beyond())

    def clear(cell: Shape) -> None:
        box = [slice(start(d, c), min(start(d, c + 1), new.shape[d])) for d, c in enumerate(cell)]
        fill: Any = single(chunks.fill_value, new.dtype)
        for d in growing:
            if box[d].stop > old.shape[d]:
                region = (*box[:d], slice(old.shape[d], box[d].stop), *box[d + 1 :])
                plan = plan_basic(chunks.layout, region)
                items = np.empty(plan.shape, new.dtype)
                try:
                    chunks.read(plan, items)
                except CodecError:
                    continue  # reading a damaged chunk is an error, so nothing becomes visible
                if not is_filled(items, fill[()]):
                    chunks.write(plan_basic(chunks.write_layout, region), np.broadcast_to(fill, plan.shape))

    map_threads(clear, shared, waiting_count=_waiting_count(chunks))


def _stored_between(chunks: Chunks, old: ArrayModel, growing: Sequence[int]) -> Iterator[Shape]:
    """The cells of stored chunks with items beyond the shape of `old` and inside that of `chunks`."""
    new = chunks.model
    counts = new.grid.count(new.shape)
    # Along each dimension, the number of chunks that hold old items only.
    inside = list(counts)
    for d in growing:
        last = new.grid.count(old.shape)[d]
        inside[d] = last - (last > 0 and new.grid.start(d, last) > old.shape[d])
    if prod(counts) - prod(inside) > PROBED_COUNT:
        for _, cell in stored_cells(chunks.store, chunks.path, new):
            is_inside = all(place < count for place, count in zip(cell, counts, strict=True))
            if is_inside and any(cell[d] >= inside[d] for d in growing):
                yield cell
        return
    cells = (
        cell
        for at, d in enumerate(growing)
        for cell in product(
            *(
                range(inside[d], n) if axis == d else range(inside[axis] if axis in growing[:at] else n)
                for axis, n in enumerate(counts)
            )
        )
    )
    while window := list(islice(cells, PROBED_AT_ONCE)):
        found = chunks.store.get_many([(chunks.key(cell), ByteRange(0, 1)) for cell in window])
        yield from (cell for cell, value in zip(window, found, strict=True) if value is not None)


def _clear_outside(chunks: Chunks, new: ArrayModel) -> None:
    """Delete the chunks outside the shape of `new`, and clear the items of edge chunks beyond it."""
    old = chunks.model
    start = old.grid.start
    counts = old.grid.count(new.shape)
    edges: list[Shape] = []

    def end(cell: Shape, d: int) -> int:
        return min(start(d, cell[d] + 1), old.shape[d])

    def outside() -> Iterator[str]:
        for key, cell in stored_cells(chunks.store, chunks.path, old):
            if any(place >= count for place, count in zip(cell, counts, strict=True)):
                yield key
            elif any(end(cell, d) > length for d, length in enumerate(new.shape)):
                edges.append(cell)

    _delete_all(chunks.store, outside())

    def clear(cell: Shape) -> None:
        fill = single(chunks.fill_value, old.dtype)
        for d, length in enumerate(new.shape):
            if end(cell, d) > length:
                region = [slice(start(axis, c), start(axis, c + 1)) for axis, c in enumerate(cell)]
                region[d] = slice(length, end(cell, d))
                plan = plan_basic(chunks.write_layout, tuple(region))
                chunks.write(plan, np.broadcast_to(fill, plan.shape))

    map_threads(clear, edges, waiting_count=_waiting_count(chunks))


def _delete_all(store: Store, keys: Iterator[str]) -> None:
    """Delete keys while they are listed, some at a time; of a store whose requests take no time, after it."""
    most = DELETED_COUNT if store.request_count > 1 else None
    while window := [*islice(keys, most)]:
        delete_keys(store, window)


def _waiting_count(chunks: Chunks) -> int | None:
    """The number of chunks to change at once: one after another where requests take no time."""
    return min(WRITTEN_COUNT, chunks.store.request_count) if chunks.store.request_count > 1 else 1

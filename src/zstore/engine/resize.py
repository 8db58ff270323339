"""Changing an array's shape: at any moment a reader finds the old array or the new one.

What the new shape will show is put right before the document says it: appended items are stored, and what
somebody left beyond the old shape goes. What the new shape no longer shows goes after the document has said
so. So chunks may hold anything beyond the shape, at any time, and no reader sees it.
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
from zstore.engine.chunks import Chunks
from zstore.engine.documents import ARRAY_KEYS, read_node, write_node
from zstore.engine.objects import single
from zstore.engine.rectilinear import open_chunks
from zstore.errors import CodecError, NotFoundError
from zstore.indexing.plans import plan_basic
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key
from zstore.storage.locking import SHAPE_LOCK

Shape = tuple[int, ...]

# So many chunks are looked for one by one, some at a time; where more may be there, the store lists them.
PROBED_COUNT = 4096
PROBED_AT_ONCE = 256


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
    """Set the shape of the array at `path` to what `new_shape` makes of the one it has in the store now.

    `write`, given the array as it is and as it will be, stores every item that the new shape adds; without
    it they become the fill value. One caller at a time changes a shape, as far as the store's locks reach;
    the document alone is locked while it is replaced. `tell` is given the new array as soon as it is one.

    Raises
        NotFoundError: the array is gone.
        CodecError: a chunk that old and new items share is damaged (with `write` only).
        ReadOnlyError, StoreError: the store refused.
    """
    document = join_key(path, ARRAY_KEYS[zarr_format])
    store.check_writable(document)
    with store.hold(join_key(path, SHAPE_LOCK)):
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
        # The same shape again takes away what an interrupted change left outside.
        if shrinks or (new.shape == old.shape and write is None):
            _clear_outside(open_chunks(store, path, old, allow_pickle=allow_pickle), new)


def _read(store: Store, path: str, zarr_format: int) -> ArrayModel:
    model = read_node(store, path, zarr_format)
    if isinstance(model, ArrayModel):
        return model
    raise NotFoundError("array is gone", path=store.url, key=join_key(path, ARRAY_KEYS[zarr_format]))


def _publish(store: Store, path: str, old: ArrayModel, new: ArrayModel) -> ArrayModel | None:
    """Let the document say the new shape, and give what it says; None where others changed the old one."""
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
    """Remove what is stored beyond `old` and inside the larger array of `chunks`, which would show it."""
    store, new = chunks.store, chunks.model
    start = new.grid.start
    fill: Any = single(chunks.fill_value, new.dtype)
    growing = [d for d, length in enumerate(old.shape) if new.shape[d] > length]
    for cell in list(_stored_between(chunks, old, growing)):
        if any(start(d, place) >= old.shape[d] for d, place in enumerate(cell)):
            with store.lock(chunks.key(cell)):
                store.delete(chunks.key(cell))
            continue
        box = [slice(start(d, c), min(start(d, c + 1), new.shape[d])) for d, c in enumerate(cell)]
        for d in growing:
            if box[d].stop > old.shape[d]:
                region = (*box[:d], slice(old.shape[d], box[d].stop), *box[d + 1 :])
                plan = plan_basic(chunks.layout, region)
                items = np.empty(plan.shape, new.dtype)
                try:
                    chunks.read(plan, items)
                except CodecError:
                    continue  # nobody reads a damaged chunk as data
                if not is_filled(items, fill[()]):
                    chunks.write(plan_basic(chunks.write_layout, region), np.broadcast_to(fill, plan.shape))


def _stored_between(chunks: Chunks, old: ArrayModel, growing: Sequence[int]) -> Iterator[Shape]:
    """The places of the chunks that exist and hold items beyond `old` and inside the array of `chunks`."""
    new = chunks.model
    counts = new.grid.count(new.shape)
    # How many chunks along each dimension hold old items only.
    inside = list(counts)
    for d in growing:
        last = new.grid.count(old.shape)[d]
        inside[d] = last - (last > 0 and new.grid.start(d, last) > old.shape[d])
    if prod(counts) - prod(inside) > PROBED_COUNT:
        for _, cell in _stored_cells(chunks.store, chunks.path, new):
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


def _stored_cells(store: Store, path: str, model: ArrayModel) -> Iterator[tuple[str, Shape]]:
    """The keys of the chunks that exist, and their places in the grid."""
    skip = len(path) + 1 if path else 0
    for key in store.list(path):
        cell = model.keys.cell(key[skip:], model.ndim)
        if cell is not None:
            yield key, cell


def _clear_outside(chunks: Chunks, new: ArrayModel) -> None:
    """Delete the chunks that lie outside `new`, and empty what edge chunks hold beyond it."""
    store, path, old = chunks.store, chunks.path, chunks.model
    start = old.grid.start
    counts = old.grid.count(new.shape)
    for key, cell in list(_stored_cells(store, path, old)):
        if any(place >= count for place, count in zip(cell, counts, strict=True)):
            with store.lock(key):
                store.delete(key)
            continue
        for d, place in enumerate(cell):
            end = min(start(d, place + 1), old.shape[d])
            if new.shape[d] >= end:
                continue
            region = [slice(start(axis, c), start(axis, c + 1)) for axis, c in enumerate(cell)]
            region[d] = slice(new.shape[d], end)
            plan = plan_basic(chunks.write_layout, tuple(region))
            fill = single(chunks.fill_value, old.dtype)
            chunks.write(plan, np.broadcast_to(fill, plan.shape))

"""Changing an array's shape: what lies outside goes first, then the document changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from zstore.engine.chunks import Chunks
from zstore.engine.documents import ARRAY_KEYS, read_node, write_node
from zstore.engine.objects import single
from zstore.engine.rectilinear import open_chunks
from zstore.errors import NotFoundError
from zstore.indexing.plans import plan_basic
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key

__all__ = ["resize"]

Shape = tuple[int, ...]


def resize(
    store: Store,
    path: str,
    zarr_format: int,
    new_shape: Callable[[Shape], Shape],
    *,
    allow_pickle: bool = False,
) -> ArrayModel:
    """Set the shape of the array at `path` to what `new_shape` makes of the one it has in the store now.

    The document changes under its lock, so that two writers that grow an array get places of their own. Where
    the array shrinks, chunks outside it are deleted and those at its edge emptied beyond it while it still
    has its old shape: whatever interrupts that, growing never brings old values back.

    Raises
        NotFoundError: the array is gone.
        ReadOnlyError, StoreError: the store refused.
    """
    document = join_key(path, ARRAY_KEYS[zarr_format])
    store.check_writable(document)
    cleared: Shape | None = None
    while True:
        with store.lock(document):
            old = read_node(store, path, zarr_format)
            if not isinstance(old, ArrayModel):
                raise NotFoundError("array is gone", path=store.url, key=document)
            new = old.with_shape(new_shape(old.shape))
            shrinks = any(a < b for a, b in zip(new.shape, old.shape, strict=True))
            if not shrinks or old.shape == cleared:
                write_node(store, path, new, previous=old)
                return new
        # Not under the document's lock, for which every chunk's would have to wait.
        _clear_outside(open_chunks(store, path, old, allow_pickle=allow_pickle), new)
        cleared = old.shape


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

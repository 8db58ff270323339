"""Changing an array's shape so that at any moment a reader finds the old array or the new one.

Before the metadata document has the new shape, everything that becomes visible is put right: appended items
are stored, and old content beyond the former shape is removed. What is no longer visible is removed after the
document has changed. Chunks may thus hold anything beyond the shape, and no reader sees it.

An append of whole chunks to a bucket is two rounds of requests (docs/design/0028-appends.md).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import compress, islice, product
from math import prod
from operator import ge, lt
from typing import Any, NamedTuple

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.codecs.sharding import is_filled
from zstore.engine.chunks import WRITTEN_COUNT, Chunks, open_chunks
from zstore.engine.documents import (
    ARRAY_KEYS,
    Model,
    ancestors,
    change_node,
    forget,
    forget_consolidated,
    keep_model,
    parse_node,
    place,
    read_node,
    render_node,
)
from zstore.engine.intents import FIRST_PAUSE, INTENT, RESIZE, parse_intent, shape_held
from zstore.engine.making import NewChunks, delete_keys
from zstore.engine.objects import single
from zstore.engine.schedulers import beside, map_threads
from zstore.engine.walk import stored_cells
from zstore.errors import ChangedError, CodecError, NotFoundError, StoreError
from zstore.indexing.select import plan_basic
from zstore.model import v3
from zstore.model.array import ArrayModel
from zstore.model.document import render_json
from zstore.storage.base import Store, hold_name, join_key, key_below

Shape = tuple[int, ...]
Write = Callable[[Store, ArrayModel, ArrayModel], None]

# Up to PROBED_COUNT chunks are looked up by key, PROBED_AT_ONCE at a time; for more, the store is listed.
PROBED_COUNT = 4096
PROBED_AT_ONCE = 256
# Of so many chunks at a time the keys are held while they are deleted.
DELETED_COUNT = 64_000
# Who finds others appending tries again after pauses up to this (seconds), and then gets in line.
LONGEST_PAUSE = 0.32


def resize(
    store: Store,
    path: str,
    zarr_format: int,
    new_shape: Callable[[Shape], Shape],
    tell: Callable[[ArrayModel], None],
    *,
    write: Write | None = None,
    allow_pickle: bool = False,
) -> None:
    """Set the shape of the array at `path` to `new_shape` of its present shape in the store.

    `write`, called with a store and the old and new model, stores every item that the new shape adds; without
    it they become the fill value. One caller at a time changes a shape, as far as the store's locks reach;
    other writers wait only while the document is replaced. `tell` is called with the new model once it is
    stored.

    Raises
        NotFoundError: the array is gone.
        StoreError: a job at the array is unfinished, or somebody else's change of its shape does not end.
        CodecError: a chunk that old and new items share is damaged (with `write` only).
        ReadOnlyError, StoreError: the store refused.
    """
    store.check_writable(join_key(path, ARRAY_KEYS[zarr_format]))
    published = None if write is None else _append_beside(store, path, zarr_format, new_shape, write)
    if published is not None:
        tell(published)
        return
    with shape_held(store, path):
        stored = _stored(store, path, zarr_format)
        while True:
            old = _read(store, path, zarr_format) if stored is None else stored.model
            new = old.with_shape(new_shape(old.shape))
            published = _change(store, path, old, new, stored, write, allow_pickle=allow_pickle)
            if published is not None:
                break
            stored = stored and _stored(store, path, zarr_format, again=True)
        tell(published)
        shrinks = any(a < b for a, b in zip(new.shape, old.shape, strict=True))
        # Resizing to the same shape again removes what an interrupted change left outside.
        if shrinks or (new.shape == old.shape and write is None):
            chunks = open_chunks(store, path, old, allow_pickle=allow_pickle)
            _clear_beyond(chunks, new.shape, stored_cells(store, path, old), looks_first=False)


def _change(
    store: Store,
    path: str,
    old: ArrayModel,
    new: ArrayModel,
    stored: _Stored | None,
    write: Write | None,
    *,
    allow_pickle: bool,
) -> ArrayModel | None:
    """Clear items that become visible, and write the document; None if others changed it meanwhile.

    stored  the document to replace, where the store replaces on condition
    """
    grows = any(a > b for a, b in zip(new.shape, old.shape, strict=True))
    if stored is not None and (grows or new.shape == old.shape):
        stored = _hold_document(store, path, stored)
        if stored is None:
            return None
    if grows and write is not None:
        write(store, old, new)
    elif grows:
        chunks = open_chunks(store, path, new, allow_pickle=allow_pickle)
        _clear_beyond(chunks, old.shape, _stored_between(chunks, old), looks_first=True)
    return _publish(store, path, old, new, stored)


def _read(store: Store, path: str, zarr_format: int) -> ArrayModel:
    return _checked(store, path, read_node(store, path, zarr_format), zarr_format)


def _checked(store: Store, path: str, model: Model | None, zarr_format: int) -> ArrayModel:
    if isinstance(model, ArrayModel):
        return model
    raise NotFoundError("array is gone", path=store.url, key=join_key(path, ARRAY_KEYS[zarr_format]))


def _publish(
    store: Store, path: str, old: ArrayModel, new: ArrayModel, stored: _Stored | None
) -> ArrayModel | None:
    """Write the new shape into the document, and return its model; None if it was changed meanwhile."""
    if stored is not None:
        forget_consolidated(store, path, new.zarr_format)
        return new if new == old or _put_document(store, path, stored, _encoded(new)) else None
    published: ArrayModel | None = None

    def change(found: Model | None) -> ArrayModel | None:
        nonlocal published
        stored = _checked(store, path, found, old.zarr_format)
        is_same = (stored.shape, stored.grid) == (old.shape, old.grid)
        published = replace(stored, shape=new.shape, grid=new.grid) if is_same else None
        return published

    key = join_key(path, ARRAY_KEYS[old.zarr_format])
    store.update(key, partial(change_node, store, path, old.zarr_format, change))
    return published


# Documents that are replaced on condition (docs/design/0028-appends.md)


class _Stored(NamedTuple):
    """An array's document in a store that replaces on condition: its model, its bytes and their version."""

    model: ArrayModel
    data: bytes
    version: str


def _stored(store: Store, path: str, zarr_format: int, *, again: bool = False) -> _Stored | None:
    """The document as it was last seen, or as it is now; None if it is several, or cannot be replaced so."""
    if zarr_format != 3:
        return None
    key = join_key(path, v3.KEY)
    part = None if again else store.seen(key)
    part = part or store.seen(key, again=True)
    if part is None or part.version is None:
        return None
    data = bytes(part.data)
    model = parse_node({v3.KEY: data}, place(store, path))
    return _Stored(model, data, part.version) if isinstance(model, ArrayModel) else None


def _encoded(model: ArrayModel) -> bytes:
    return render_json(render_node(model)[v3.KEY])


def _put_document(
    store: Store, path: str, stored: _Stored, data: bytes, chunks: _AppendedChunks | None = None
) -> str | None:
    """Replace a document, and return the new version; None if it was changed meanwhile.

    chunks  that were put for it

    Raises
        StoreError: whether it was replaced is not known; the chunks are still there.
    """
    try:
        return store.put_over(join_key(path, v3.KEY), data, stored.version)
    except ChangedError as error:
        if chunks is None or error.is_sure:
            return None
        # Who brings the shape over chunks that are not his replaces or removes them before.
        now, wanted = _stored(store, path, 3, again=True), parse_node({v3.KEY: data}, path)
        if now is None or not isinstance(wanted, ArrayModel) or any(map(lt, now.model.shape, wanted.shape)):
            return None
        if not chunks.are_there():
            return None
        raise StoreError(
            "the answer to an append was lost, and others have changed the array since, so that it is not"
            " known whether its items were appended before that; expected them to be looked for, and to be"
            " appended again where they are not there",
            path=place(store, path),
        ) from error


def _hold_document(store: Store, path: str, stored: _Stored) -> _Stored | None:
    """Replace a document by one that says the same, so that no append under way can replace it any more.

    What lies beyond the shape is nobody's then. None if the document was changed meanwhile.
    """
    data = stored.data + b"\n"
    version = _put_document(store, path, stored, data)
    return None if version is None else _Stored(stored.model, data, version)


class _AppendedChunks(NewChunks):
    """A view of a store that keeps conditions, by which its own chunks are replaced only."""

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.versions[key] = self.store.put_over(key, value, self.versions.pop(key, None))

    def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[bytes | bytearray | memoryview],
        versions: Sequence[str | None] | None = None,
    ) -> Sequence[str | ChangedError | None] | None:
        found = self.store.put_many(keys, values, [*map(self.versions.get, keys)])
        taken: list[ChangedError] = []
        for key, one in zip(keys, found or (), strict=False):
            if isinstance(one, ChangedError):
                taken.append(one)
                self.versions.pop(key, None)
            else:
                self.versions[key] = one
        if taken:
            raise taken[0]
        return found

    def delete(self, key: str) -> None:
        raise self._taken(key)

    def delete_many(self, keys: Sequence[str]) -> bool:
        return False

    def are_there(self) -> bool:
        """Whether all of them are as they were put: others remove or replace what lies beyond the shape."""
        try:
            for key, version in self.versions.items():
                self.store.check_version(key, version)
        except ChangedError:
            return False
        return True

    def update(self, key: str, act: Callable[[], object]) -> None:
        act()


def _append_beside(
    store: Store,
    path: str,
    zarr_format: int,
    new_shape: Callable[[Shape], Shape],
    write: Write,
) -> ArrayModel | None:
    """Append chunks of their own in two rounds of requests; None if that is not possible, or not in time.

    The first round puts chunks where there are none, and looks for intents; the second one replaces the
    document on condition that it is the one which was seen before. Whoever else appends has other chunks, or
    another document.

    Raises
        StoreError: the store failed.
    """
    chunks, pause = _AppendedChunks(store), FIRST_PAUSE
    with hold_name((store.url, path, "append")):
        stored = _stored(store, path, zarr_format)
        while stored is not None and pause <= LONGEST_PAUSE:
            old = stored.model
            new = old.with_shape(new_shape(old.shape))
            if new.shape == old.shape or not _has_own_chunks(old, new):
                break
            is_put = _put_chunks(chunks, path, old, new, write)
            if is_put is None:
                break
            # No other way of writing it ends so: nobody takes another's document for the answer to his own.
            data = _encoded(new) + b"\n"
            if is_put and _put_document(store, path, stored, data, chunks):
                keep_model(data, new)  # whoever has appended mostly goes on
                return new
            time.sleep(random.uniform(0, pause))
            pause = 2 * pause
            stored = _stored(store, path, zarr_format, again=True)
            _take_back(chunks, path, stored)
    return None


def _has_own_chunks(old: ArrayModel, new: ArrayModel) -> bool:
    """Whether no chunk has items of both shapes, or of the old one and beyond."""
    counts = old.grid.count(old.shape)
    growing = [d for d, length in enumerate(old.shape) if new.shape[d] > length]
    return all(new.grid.start(d, counts[d]) == old.shape[d] for d in growing)


def _put_chunks(
    chunks: _AppendedChunks, path: str, old: ArrayModel, new: ArrayModel, write: Write
) -> bool | None:
    """Put the new chunks, and look for intents and consolidated metadata at the same time.

    True if all chunks are there; False if others change the shape; None if other work keeps this one out.

    Raises
        StoreError: the store failed.
    """
    store = chunks.store

    def put() -> bool:
        try:
            write(chunks, old, new)
        except ChangedError:
            return False
        return True

    def look() -> bool | None:
        above = [join_key(parent, v3.KEY) for parent in ancestors(path)]
        intent, *documents = store.get_many([(key, None) for key in (join_key(path, INTENT), *above)])
        forget(store, above, documents)
        return intent is None or (False if parse_intent(intent).work == RESIZE else None)

    is_free, is_put = beside(look, put)
    return is_free and is_put


def _take_back(chunks: _AppendedChunks, path: str, stored: _Stored | None) -> None:
    """Remove chunks of an array that is gone, or that are in a larger shape which others made without them.

    They could lie there only for the moment: whoever appends finds them, and whoever resizes removes them.
    """
    if stored is None:
        taken = [] if chunks.store.size(join_key(path, v3.KEY)) is not None else [*chunks.versions]
    else:
        model = stored.model
        cells = [(key, model.keys.cell(key_below(path, key), model.ndim)) for key in chunks.versions]
        counts = model.grid.count(model.shape)
        taken = [key for key, cell in cells if cell is not None and all(map(lt, cell, counts))]
    for key in taken:
        with suppress(ChangedError):
            chunks.store.delete_over(key, chunks.versions.pop(key))


def _clear_beyond(
    chunks: Chunks, shape: Shape, stored: Iterable[tuple[str, Shape]], *, looks_first: bool
) -> None:
    """Delete stored chunks beyond a smaller shape, and set the items of others beyond it to the fill value.

    stored       key and cell of each chunk that may have such items
    looks_first  whether items are read before, and not written where they cannot be, or have that value
    """
    grid, whole = chunks.model.grid, chunks.model.shape
    start, counts = grid.start, grid.count(shape)
    fill: Any = single(chunks.fill_value, chunks.model.dtype)
    edges: list[list[slice]] = []

    def beyond() -> Iterator[str]:
        for key, cell in stored:
            if any(map(ge, cell, counts)):
                yield key
                continue
            box = [slice(start(d, at), min(start(d, at + 1), whole[d])) for d, at in enumerate(cell)]
            if any(side.stop > length for side, length in zip(box, shape, strict=True)):
                edges.append(box)

    _delete_all(chunks.store, beyond())

    def clear(box: list[slice]) -> None:
        for d, length in enumerate(shape):
            if box[d].stop > length:
                region = (*box[:d], slice(length, box[d].stop), *box[d + 1 :])
                if not looks_first or _has_items(chunks, region, fill):
                    plan = plan_basic(chunks.write_layout, region)
                    chunks.write(plan, np.broadcast_to(fill, plan.shape))

    map_threads(clear, edges, waiting_count=_waiting_count(chunks))


def _has_items(chunks: Chunks, region: tuple[slice, ...], fill: Any) -> bool:
    """Whether a region has other items than the fill value; not if it cannot be read: nothing is visible."""
    plan = plan_basic(chunks.layout, region)
    items = np.empty(plan.shape, chunks.model.dtype)
    try:
        chunks.read(plan, items)
    except CodecError:
        return False
    return not is_filled(items, fill[()])


def _stored_between(chunks: Chunks, old: ArrayModel) -> Iterator[tuple[str, Shape]]:
    """Key and cell of stored chunks with items beyond the shape of `old` and inside that of `chunks`."""
    new = chunks.model
    counts = new.grid.count(new.shape)
    growing = [d for d, length in enumerate(old.shape) if new.shape[d] > length]
    # Along each dimension, the number of chunks that hold old items only.
    inside = list(counts)
    for d in growing:
        last = new.grid.count(old.shape)[d]
        inside[d] = last - (last > 0 and new.grid.start(d, last) > old.shape[d])
    if prod(counts) - prod(inside) > PROBED_COUNT:
        for key, cell in stored_cells(chunks.store, chunks.path, new):
            if all(map(lt, cell, counts)) and any(cell[d] >= inside[d] for d in growing):
                yield key, cell
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
        keys = [*map(chunks.key, window)]
        found = chunks.store.get_many([(key, ByteRange(0, 1)) for key in keys])
        yield from compress(zip(keys, window, strict=True), (value is not None for value in found))


def _delete_all(store: Store, keys: Iterator[str]) -> None:
    """Delete keys while they are listed, some at a time; of a store whose requests take no time, after it."""
    most = DELETED_COUNT if store.request_count > 1 else None
    while window := [*islice(keys, most)]:
        delete_keys(store, window)


def _waiting_count(chunks: Chunks) -> int | None:
    """The number of chunks to change at once: one after another where requests take no time."""
    return min(WRITTEN_COUNT, chunks.store.request_count) if chunks.store.request_count > 1 else 1

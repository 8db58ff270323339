"""Whether every chunk of a hierarchy can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, product
from math import prod
from typing import Any

import numpy as np

from zstore.engine.chunks import Chunks
from zstore.engine.documents import check_path
from zstore.engine.pool import map_threads, thread_count
from zstore.engine.rectilinear import open_chunks
from zstore.engine.walk import walk_nodes
from zstore.errors import NotFoundError, StoreError, ZstoreError
from zstore.indexing.plans import plan_basic
from zstore.model.array import ArrayModel
from zstore.nodes.node import Node
from zstore.nodes.open import StoreLike
from zstore.storage.base import Store

__all__ = ["Damage", "Verification", "verify"]

# Decoded bytes that are held at once; a larger chunk is looked at in stretches.
MEMORY_SIZE = 256 << 20
# Chunks that threads are given at a time, and how much damage is described; the rest is counted.
WINDOW_COUNT = 256
REQUEST_COUNT = 32
DAMAGE_LIMIT = 10_000
# What an item of any length is taken for, as numpy holds it.
HANDLE_SIZE = 16

Cell = tuple[int, ...]
Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """One chunk or document that cannot be read, or a chunk that is missing.

    path   of the array or group, below the store's root
    key    in the store; None where the whole node cannot be read
    cause  in words
    kind   "chunk", "document" or "missing"
    """

    path: str
    key: str | None
    cause: str
    kind: str


@dataclass(slots=True)
class Verification:
    """What `verify` found.

    array_count    arrays that were looked at
    chunk_count    stored chunks (shards, where there are) that were looked at
    missing_count  chunks of the grid that are not stored, and so read as the fill value
    stray_count    stored chunks outside their array, which a larger shape would bring back
    damage_count   how much was found; `damages` describes the first ten thousand
    """

    array_count: int = 0
    chunk_count: int = 0
    missing_count: int = 0
    stray_count: int = 0
    damage_count: int = 0
    damages: list[Damage] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether everything can be read (and nothing is missing, where that was asked)."""
        return not self.damage_count

    def add(self, damage: Damage) -> None:
        """Count one more, and describe it while there is room."""
        self.damage_count += 1
        if len(self.damages) < DAMAGE_LIMIT:
            self.damages.append(damage)


def verify(
    target: Node[Any] | StoreLike,
    path: str | None = None,
    *,
    missing: str = "fill",
    progress: Callable[[int, int], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> Verification:
    """Read every chunk of the array or hierarchy at `path`, on all cores, and say what is damaged.

    With missing="error", chunks (and inner chunks) that are not stored are damage too. `progress` is called
    with the chunks done and all there are.

    Raises
        NotFoundError: there is nothing to look at.
        StoreError: the store cannot list what it holds.
        ValueError: `missing` is neither "fill" nor "error".
    """
    if missing not in ("fill", "error"):
        raise ValueError(f"missing={missing!r}, expected 'fill' or 'error'")
    store, base = _open(target, path, storage_options)
    found = Verification()
    arrays: list[_Checked] = []
    done = 0
    for where, model in walk_nodes(store, base):
        if isinstance(model, ZstoreError):
            found.add(Damage(where, model.key, model.message, "document"))
        elif isinstance(model, ArrayModel):
            found.array_count += 1
            try:
                chunks = open_chunks(store, where, model, allow_pickle=allow_pickle)
            except ZstoreError as error:
                found.add(Damage(where, None, error.message, "document"))
            else:
                arrays.append(_Checked(chunks, is_complete=missing == "error"))
    total = sum(array.count() for array in arrays) if progress is not None else 0
    pieces = ((array, cell) for array in arrays for cell in array.cells(found))
    while window := list(islice(pieces, WINDOW_COUNT)):
        size = max(array.size for array, _ in window)
        wanted = max(thread_count(), min(REQUEST_COUNT, store.request_count))
        threads = max(1, min(wanted, MEMORY_SIZE // size))
        checked = map_threads(lambda piece: piece[0].check(piece[1]), window, waiting_count=threads)
        for is_stored, damages in checked:
            found.chunk_count += is_stored
            found.missing_count += not is_stored
            for damage in damages:
                found.add(damage)
        done += len(window)
        if progress is not None:
            progress(done, max(total, done))
    return found


def _open(
    target: Node[Any] | StoreLike, path: str | None, storage_options: Mapping[str, Any] | None
) -> tuple[Store, str]:
    if isinstance(target, Node):
        return target.store, check_path(f"{target.path}/{path or ''}")
    from zstore.storage.url import open_store

    return open_store(target, read_only=True, storage_options=storage_options), check_path(path)


class _Checked:
    """One array whose chunks are looked at.

    size  decoded bytes that looking at one chunk takes
    """

    def __init__(self, chunks: Chunks, *, is_complete: bool) -> None:
        self._chunks = chunks
        self._model = model = chunks.model
        self._is_complete = is_complete
        self._counts = model.grid.count(model.shape)
        self._item_size = HANDLE_SIZE if model.data_type.is_object else model.dtype.itemsize
        # Shards within other codecs are decoded whole.
        self._inner = model.inner_chunk_shape if len(model.codecs) == 1 else None
        self._step = self._stretch()
        self.size = prod(self._step) * self._item_size

    def _stretch(self) -> tuple[int, ...]:
        """The shape of what is read at once: a whole chunk, or whole inner chunks of a large shard."""
        step = list(self._model.grid.chunk_shape)
        for axis, length in enumerate(self._inner or ()):
            fitting = MEMORY_SIZE // max(1, prod(step) // step[axis] * self._item_size)
            step[axis] = min(step[axis], max(length, fitting // length * length))
        return tuple(step)

    def count(self) -> int:
        """How many chunks there are to look at."""
        if self._is_complete:
            return prod(self._counts)
        try:
            return sum(1 for _ in self._stored(None))
        except StoreError:
            return prod(self._counts)

    def cells(self, found: Verification) -> Iterator[Cell]:
        """The chunks to look at; those that are not stored are counted where the store tells so."""
        if not self._is_complete:
            try:
                cells = self._stored(found)
                first = next(cells, None)
            except StoreError:
                pass  # a store that cannot list is asked for every chunk
            else:
                stored = 0
                for stored, cell in enumerate(chain([] if first is None else [first], cells), 1):  # noqa: B007
                    yield cell
                found.missing_count += prod(self._counts) - stored
                return
        yield from product(*map(range, self._counts))

    def _stored(self, found: Verification | None) -> Iterator[Cell]:
        path, model = self._chunks.path, self._model
        skip = len(path) + 1 if path else 0
        for key in self._chunks.store.list(path):
            cell = model.keys.cell(key[skip:], model.ndim)
            if cell is None:
                continue
            if all(place < count for place, count in zip(cell, self._counts, strict=True)):
                yield cell
            elif found is not None:
                found.stray_count += 1

    def check(self, cell: Cell) -> tuple[bool, list[Damage]]:
        """Whether the chunk is stored, and what is wrong with it."""
        key = self._chunks.key(cell)
        damages: list[Damage] = []
        try:
            is_missing = self._chunks.store.size(key) is None
        except ZstoreError as error:
            return True, [self._damage(key, error.message, "chunk")]
        if is_missing and self._is_complete:
            damages.append(self._damage(key, "chunk is missing", "missing"))
        if is_missing:
            return False, damages
        for box in self._boxes(self._whole(cell), self._step):
            damages += self._check_box(key, box)
        return True, damages

    def _check_box(self, key: str, box: Box) -> list[Damage]:
        if self._read(box) is None:
            return []
        boxes = [box] if self._inner is None else self._boxes(box, self._inner)
        causes: dict[str, str] = {}
        for one in boxes:
            error = self._read(one)
            if error is None:
                continue
            if error[0] in causes and len(causes) == 1:
                break  # the index: nothing behind it can be read
            causes[error[0]] = error[1]
        return [self._damage(key, cause, kind) for cause, kind in causes.items()]

    def _damage(self, key: str, cause: str, kind: str) -> Damage:
        return Damage(self._chunks.path, key, cause, kind)

    def _read(self, box: Box) -> tuple[str, str] | None:
        """(cause, kind) of what is wrong with the items of a box."""
        try:
            plan = plan_basic(self._chunks.layout, box)
            out = np.empty(plan.shape, self._model.dtype)
            try:
                self._chunks.read(plan, out, missing_is_fault=self._is_complete)
            except NotFoundError as error:
                self._chunks.read(plan, out)
                return error.message, "missing"
        except ZstoreError as error:
            return error.message, "chunk"
        except MemoryError:
            return f"no memory for {self.size} bytes", "chunk"
        return None

    def _whole(self, cell: Cell) -> Box:
        """The items of the array that a chunk holds."""
        grid, shape = self._model.grid, self._model.shape
        return tuple(
            slice(grid.start(d, place), min(grid.start(d, place + 1), shape[d]))
            for d, place in enumerate(cell)
        )

    @staticmethod
    def _boxes(box: Box, step: tuple[int, ...]) -> Iterator[Box]:
        axes = [
            [slice(at, min(at + length, part.stop)) for at in range(part.start, part.stop, length)]
            for part, length in zip(box, step, strict=True)
        ]
        return product(*axes)

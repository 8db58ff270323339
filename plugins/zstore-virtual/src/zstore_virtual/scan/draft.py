"""A manifest in the making: documents that zstore writes for new arrays, and references to their chunks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from zstore import Array
from zstore.errors import StoreError
from zstore.plugin.nodes import ArrayModel, NewNodes
from zstore.plugin.stores import MemoryStore
from zstore_virtual.manifest import ABSENT, INLINE, Chunks, Manifest
from zstore_virtual.scan.origin import Origin

__all__ = ["DOCUMENT", "Draft", "cut_contiguous", "refer_contiguous"]

DOCUMENT = "zarr.json"
# Contiguous items are cut into chunks of this size at most.
CHUNK_SIZE = 16 << 20


class Draft(NewNodes):
    """The groups and arrays of one hierarchy in Zarr v3, with their references, until `finish`.

    store     holds documents, and the chunks that become inline chunks of the manifest
    manifest  takes the sources and the references
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        super().__init__(self.store, "", 3)
        self.arrays: dict[str, Array] = {}
        self.manifest = Manifest()

    def add_source(self, origin: Origin) -> int:
        """Add the file that is scanned, with its size, time and entity tag; gives its number."""
        facts = {"size": origin.size, "modified": origin.modified, "tag": origin.tag}
        return self.manifest.add_source(origin.address, **facts)

    def add_array(self, path: str, **options: Any) -> Array:
        """Add an array; options are those of `create_array`.

        If `refer` is not called for it, what is written to it becomes inline chunks of the manifest.
        """
        self.arrays[path] = super().add_array(path, **options)
        return self.arrays[path]

    def refer(
        self,
        path: str,
        array: Array,
        source: Any,
        offset: Any,
        size: Any,
        cells: Any = None,
        inline: bytes = b"",
    ) -> None:
        """Set the references to the chunks of an array: all chunks in C order, or those at `cells`."""
        grid = array.model.grid.count(array.shape)
        sources = np.broadcast_to(np.asarray(source, np.int32), prod(grid) if cells is None else len(cells))
        options: dict[str, Any] = {"inline": inline, "keys": array.model.keys}
        if cells is None:
            chunks = Chunks(grid, sources, offset, size, **options)
        else:
            chunks = Chunks.of_cells(grid, cells, sources, offset, size, **options)
        self.manifest.chunks[path] = chunks

    def finish(self) -> Manifest:
        """The manifest, with inline chunks for the arrays that were given no references."""
        self.publish()
        for key in self.store.list():
            if key == DOCUMENT or key.endswith(f"/{DOCUMENT}"):
                self.manifest.documents[key] = bytes(self.store.get(key) or b"")
        for path, array in self.arrays.items():
            if path not in self.manifest.chunks:
                self.manifest.chunks[path] = _inline_chunks(self.store, path, array.model)
        return self.manifest


def _inline_chunks(store: MemoryStore, path: str, model: ArrayModel) -> Chunks:
    """The chunks of an array in memory, as inline chunks of a manifest."""
    cells, values = [], []
    for key in store.list(path):
        cell = model.keys.cell(key[len(path) :].lstrip("/"), len(model.shape))
        if cell is not None:
            cells.append(cell)
            values.append(bytes(store.get(key) or b""))
    sizes = np.array([len(value) for value in values], np.int64)
    return Chunks.of_cells(
        model.grid.count(model.shape),
        np.array(cells, np.int64).reshape(len(cells), len(model.shape)),
        np.full(len(cells), INLINE, np.int32),
        np.cumsum(sizes) - sizes,
        sizes,
        inline=b"".join(values),
        keys=model.keys,
    )


def cut_contiguous(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """The shape of contiguous chunks, up to `CHUNK_SIZE`, that divide contiguous items evenly."""
    chunk = [max(length, 1) for length in shape]
    for axis, length in enumerate(chunk):
        if prod(chunk) * item_size <= CHUNK_SIZE:
            break
        row_size = prod(chunk[axis + 1 :]) * item_size
        longest = max(1, CHUNK_SIZE // max(row_size, 1))
        chunk[axis] = max(n for n in range(1, min(longest, length) + 1) if length % n == 0)
    return tuple(chunk)


def refer_contiguous(draft: Draft, path: str, array: Array, source: int, begin: int | None) -> None:
    """Set the references of an array whose items are contiguous in a source, from byte `begin` on.

    begin  None: the items are not stored

    Raises
        StoreError: the items would end beyond the end of the file.
    """
    if begin is None:
        draft.refer(path, array, ABSENT, [], [], np.empty((0, array.ndim)))
        return
    count = prod(array.model.grid.count(array.shape))
    size = prod(array.chunks) * array.dtype.itemsize
    file = draft.manifest.sources[source]
    if file.size is not None and begin + count * size > file.size:
        raise StoreError(
            f"{array.shape} items of {path!r} end at byte {begin + count * size}; expected at most "
            f"{file.size}, the size of the file",
            path=file.address,
        )
    offset = np.arange(count, dtype=np.int64) * size + begin
    draft.refer(path, array, source, offset, np.full(count, size))

"""A manifest in the making: documents written by the core, references beside them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from zstore.errors import StoreError
from zstore.model.array import ArrayModel
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.storage.memory import MemoryStore
from zstore_virtual.manifest import ABSENT, INLINE, Chunks, Manifest
from zstore_virtual.scan.origin import Origin

__all__ = ["DOCUMENT", "Draft", "cut_contiguous", "refer_stretch"]

DOCUMENT = "zarr.json"
# What lies in one stretch is cut where it is larger than that.
STRETCH_SIZE = 16 << 20


class Draft(NewNodes):
    """Groups and arrays of one hierarchy in Zarr v3, gathered until `finish`.

    store     where documents, and the chunks that the manifest itself will hold, are kept meanwhile
    manifest  takes the sources and the references
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        super().__init__(self.store, "", 3)
        self.arrays: dict[str, Array] = {}
        self.manifest = Manifest()

    def add_source(self, origin: Origin) -> int:
        """The number of the file that is scanned, with what tells it from others."""
        facts = {"size": origin.size, "modified": origin.modified, "tag": origin.tag}
        return self.manifest.add_source(origin.address, **facts)

    def add_array(self, path: str, **options: Any) -> Array:
        """An array, its references to be given by `refer`; options are those of `create_array`.

        Of one that gets none, the manifest will hold what is written to it.
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
        """Where the chunks of an array lie: all of them in order C, or those at `cells`."""
        grid = array.model.grid.count(array.shape)
        sources = np.broadcast_to(np.asarray(source, np.int32), prod(grid) if cells is None else len(cells))
        if cells is None:
            chunks = Chunks(grid, sources, offset, size, inline=inline, has_c=True, separator="/")
        else:
            options: dict[str, Any] = {"inline": inline, "has_c": True, "separator": "/"}
            chunks = Chunks.of_cells(grid, cells, sources, offset, size, **options)
        self.manifest.chunks[path] = chunks

    def finish(self) -> Manifest:
        """The manifest with all documents, and the chunks of the arrays that were given no references."""
        self.publish()
        for key in self.store.list():
            if key == DOCUMENT or key.endswith(f"/{DOCUMENT}"):
                self.manifest.documents[key] = bytes(self.store.get(key) or b"")
        for path, array in self.arrays.items():
            if path not in self.manifest.chunks:
                self.manifest.chunks[path] = _hold(self.store, path, array.model)
        return self.manifest


def _hold(store: MemoryStore, path: str, model: ArrayModel) -> Chunks:
    """The chunks of an array in memory, for a manifest that holds them itself."""
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
        has_c=True,
        separator="/",
    )


def cut_contiguous(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Chunks that lie one behind the other as items do: of equal lengths, of 16 MiB where that can be."""
    chunk = [max(length, 1) for length in shape]
    for axis, length in enumerate(chunk):
        if prod(chunk) * item_size <= STRETCH_SIZE:
            break
        row_size = prod(chunk[axis + 1 :]) * item_size
        longest = max(1, STRETCH_SIZE // max(row_size, 1))
        chunk[axis] = max(n for n in range(1, min(longest, length) + 1) if length % n == 0)
    return tuple(chunk)


def refer_stretch(draft: Draft, path: str, array: Array, source: int, begin: int | None) -> None:
    """The references of an array whose items lie one behind the other from `begin` on; None: nowhere.

    Raises
        StoreError: they would lie beyond the end of the file.
    """
    if begin is None:
        draft.refer(path, array, ABSENT, [], [], np.empty((0, array.ndim)))
        return
    count = prod(array.model.grid.count(array.shape))
    size = prod(array.chunks) * array.dtype.itemsize
    file = draft.manifest.sources[source]
    if file.size is not None and begin + count * size > file.size:
        message = (
            f"{array.shape} items of {path!r} end at {begin + count * size}; expected at most {file.size}"
        )
        raise StoreError(f"{message}, the size of the file", path=file.address)
    offset = np.arange(count, dtype=np.int64) * size + begin
    draft.refer(path, array, source, offset, np.full(count, size))

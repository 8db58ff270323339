"""Zarr itself: every chunk is a whole file, and documents are said in Zarr v3 over the same chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from zstore.engine.walk import walk_nodes
from zstore.errors import NotFoundError, UnsupportedError
from zstore.model.array import ArrayModel
from zstore.model.document import parse_json, render_json
from zstore.storage.base import join_key
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store
from zstore.upkeep.convert import convert_metadata
from zstore_virtual.manifest import Chunks, Manifest
from zstore_virtual.scan.draft import DOCUMENT, keep_source

__all__ = ["scan_zarr"]

DOCUMENTS = frozenset((DOCUMENT, ".zarray", ".zgroup", ".zattrs"))


def scan_zarr(url: str, drop: frozenset[str] = frozenset()) -> Manifest:
    """The manifest of a Zarr hierarchy in a directory of this machine.

    Raises
        NotFoundError: there is none.
        UnsupportedError: another kind of store; Zarr v1; keys that are not one file each.
    """
    store = open_store(url)
    if not isinstance(store, LocalStore):
        raise UnsupportedError(f"store is {type(store).__name__}; expected a directory", path=url)
    kept = MemoryStore()
    old = dict(walk_nodes(store, ""))
    if not old:
        raise NotFoundError("no Zarr hierarchy there", path=url)
    left_out = {path for path in old if path in drop or path.rpartition("/")[2] in drop}
    for path in old.keys() - left_out:
        for name in DOCUMENTS:
            value = store.get(join_key(path, name))
            if value is not None:
                kept.put(join_key(path, name), bytes(value))
    convert_metadata(kept, remove_old=True)
    manifest = Manifest()
    for path, model in walk_nodes(kept, ""):
        key = join_key(path, DOCUMENT)
        document = parse_json(kept.get(key) or b"", path=url, key=key)
        document.pop("consolidated_metadata", None)
        if isinstance(model, ArrayModel):
            document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
            manifest.chunks[path] = _refer(store, path, old[path], manifest)
        manifest.documents[join_key(path, DOCUMENT)] = render_json(document)
    return manifest


def _refer(store: LocalStore, path: str, model: Any, manifest: Manifest) -> Chunks:
    """Where the chunks of an array lie: one file each."""
    root = store.local_path()
    cells, sources, sizes = [], [], []
    for key in store.list(path):
        cell = model.keys.cell(key[len(path) :].lstrip("/"), len(model.shape))
        if cell is None:
            continue
        number = keep_source(manifest, root / key)
        cells.append(cell)
        sources.append(number)
        sizes.append(manifest.sources[number].size)
    return Chunks.of_cells(
        model.grid.count(model.shape),
        np.array(cells, np.int64).reshape(len(cells), len(model.shape)),
        np.array(sources, np.int32),
        np.zeros(len(cells), np.int64),
        np.array(sizes, np.int64),
        has_c=True,
        separator="/",
    )

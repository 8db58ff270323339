"""Zarr itself: every chunk is a whole file, and documents are said in Zarr v3 over the same chunks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zstore.engine.walk import walk_nodes
from zstore.errors import NotFoundError
from zstore.model.array import ArrayModel
from zstore.model.document import parse_json, render_json
from zstore.storage.base import Entry, Store, join_key
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.upkeep.convert import convert_metadata
from zstore_virtual.forms import plain_address
from zstore_virtual.manifest import Chunks, Manifest
from zstore_virtual.places import settle_address
from zstore_virtual.scan.draft import DOCUMENT
from zstore_virtual.scan.origin import is_remote, open_folder, place_of

__all__ = ["scan_zarr"]

DOCUMENTS = frozenset((DOCUMENT, ".zarray", ".zgroup", ".zattrs"))


def scan_zarr(
    url: str, drop: frozenset[str] = frozenset(), storage_options: Mapping[str, Any] | None = None
) -> Manifest:
    """The manifest of a Zarr hierarchy in a directory of this machine, or below the prefix of a bucket.

    Raises
        NotFoundError: there is none.
        UnsupportedError: another kind of store; Zarr v1; keys that are not one file each.
    """
    if url.startswith("file://"):
        url = plain_address(url)
    if not is_remote(url):
        return _scan(LocalStore(url, read_only=True), place_of(url), drop)
    with open_folder(settle_address(url), storage_options) as store:
        return _scan(store, settle_address(url), drop)


def _scan(store: Store, url: str, drop: frozenset[str]) -> Manifest:
    kept = MemoryStore()
    old = dict(walk_nodes(store, ""))
    if not old:
        raise NotFoundError("no Zarr hierarchy there", path=url)
    left_out = {path for path in old if path in drop or path.rpartition("/")[2] in drop}
    keys = [join_key(path, name) for path in old.keys() - left_out for name in DOCUMENTS]
    for key, value in zip(keys, store.get_many([(key, None) for key in keys]), strict=True):
        if value is not None:
            kept.put(key, bytes(value))
    convert_metadata(kept, remove_old=True)
    manifest = Manifest()
    for path, model in walk_nodes(kept, ""):
        key = join_key(path, DOCUMENT)
        document = parse_json(kept.get(key) or b"", path=url, key=key)
        document.pop("consolidated_metadata", None)
        if isinstance(model, ArrayModel):
            document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
            manifest.chunks[path] = _refer(store, url, path, old[path], manifest)
        manifest.documents[join_key(path, DOCUMENT)] = render_json(document)
    return manifest


def _refer(store: Store, url: str, path: str, model: Any, manifest: Manifest) -> Chunks:
    """Where the chunks of an array lie: one file each."""
    root = store.local_path()
    cells, sources, sizes = [], [], []
    found = store.entries(path) if root is None else (Entry(key, 0) for key in store.list(path))
    for key, size, tag in sorted(found):
        cell = model.keys.cell(key[len(path) :].lstrip("/"), len(model.shape))
        if cell is None:
            continue
        address, modified = f"{url.rstrip('/')}/{key}", None
        if root is not None:
            facts = Path(address).stat()
            size, modified = facts.st_size, facts.st_mtime_ns
        cells.append(cell)
        sources.append(manifest.add_source(address, size=size, modified=modified, tag=tag))
        sizes.append(size)
    return Chunks.of_cells(
        model.grid.count(model.shape),
        np.array(cells, np.int64).reshape(len(cells), len(model.shape)),
        np.array(sources, np.int32),
        np.zeros(len(cells), np.int64),
        np.array(sizes, np.int64),
        has_c=True,
        separator="/",
    )

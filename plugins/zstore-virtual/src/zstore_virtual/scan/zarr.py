"""Scans Zarr hierarchies: each chunk is a whole file, and documents are converted to Zarr v3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zstore import convert_metadata
from zstore.errors import NotFoundError
from zstore.plugin.nodes import ArrayModel, ChunkKeys, parse_json, render_json, walk_nodes
from zstore.plugin.stores import Entry, LocalStore, MemoryStore, Store, join_key
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
    """The manifest of a Zarr hierarchy in a local directory, or below a prefix of a bucket.

    Raises
        NotFoundError: there is none.
        UnsupportedError: it is in Zarr v1, or v3 cannot express something in it.
    """
    if url.startswith("file://"):
        url = plain_address(url)
    if not is_remote(url):
        return _scan(LocalStore(url, read_only=True), place_of(url), drop)
    with open_folder(settle_address(url), storage_options) as store:
        return _scan(store, settle_address(url), drop)


def _scan(store: Store, url: str, drop: frozenset[str]) -> Manifest:
    models = dict(walk_nodes(store, ""))
    if not models:
        raise NotFoundError("no Zarr hierarchy there", path=url)
    dropped = {path for path in models if path in drop or path.rpartition("/")[2] in drop}
    keys = [join_key(path, name) for path in models.keys() - dropped for name in DOCUMENTS]
    copies = MemoryStore()
    for key, value in zip(keys, store.get_many([(key, None) for key in keys]), strict=True):
        if value is not None:
            copies.put(key, bytes(value))
    convert_metadata(copies, remove_old=True)
    manifest = Manifest()
    for path, model in walk_nodes(copies, ""):
        key = join_key(path, DOCUMENT)
        document = parse_json(copies.get(key) or b"", path=url, key=key)
        document.pop("consolidated_metadata", None)
        if isinstance(model, ArrayModel):
            document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
            manifest.chunks[path] = _references(store, url, path, models[path], manifest)
        manifest.documents[key] = render_json(document)
    return manifest


def _references(store: Store, url: str, path: str, model: Any, manifest: Manifest) -> Chunks:
    """The references of an array: each chunk is a source of its own, which is added to the manifest."""
    is_local = store.local_path() is not None
    cells, sources, sizes = [], [], []
    found = (Entry(key, 0) for key in store.list(path)) if is_local else store.entries(path)
    for key, size, tag in sorted(found):
        cell = model.keys.cell(key[len(path) :].lstrip("/"), len(model.shape))
        if cell is None:
            continue
        address, modified = f"{url.rstrip('/')}/{key}", None
        if is_local:
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
        keys=ChunkKeys(),
    )

"""Scans Zarr hierarchies: each chunk is a whole file, and documents are converted to Zarr v3."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zstore import convert_metadata
from zstore.errors import NotFoundError, ZstoreError
from zstore.plugin.jobs import StoredArray
from zstore.plugin.nodes import ArrayModel, ChunkKeys, parse_json, render_json, walk_nodes
from zstore.plugin.stores import Entry, LocalStore, MemoryStore, Store, failing, join_key
from zstore_virtual.forms import plain_address
from zstore_virtual.manifest import Chunks, Manifest
from zstore_virtual.places import settle_address
from zstore_virtual.scan.draft import DOCUMENT
from zstore_virtual.scan.origin import is_remote, open_folder, place_of

__all__ = ["scan_zarr"]

DOCUMENTS = frozenset((DOCUMENT, ".zarray", ".zgroup", ".zattrs"))


def scan_zarr(
    url: str,
    drop: frozenset[str] = frozenset(),
    storage_options: Mapping[str, Any] | None = None,
    unreadable: MutableMapping[str, ZstoreError] | None = None,
) -> Manifest:
    """The manifest of a Zarr hierarchy in a local directory, or below a prefix of a bucket.

    The error of a member that cannot be read is put into `unreadable`, by its path, else raised.

    Raises
        NotFoundError: there is none.
        UnsupportedError: it is in Zarr v1, or v3 cannot express something in it.
    """
    if url.startswith("file://"):
        url = plain_address(url)
    if not is_remote(url):
        return _scan(LocalStore(url, read_only=True), place_of(url), drop, unreadable)
    with open_folder(settle_address(url), storage_options) as store:
        return _scan(store, settle_address(url), drop, unreadable)


def _scan(
    store: Store, url: str, drop: frozenset[str], unreadable: MutableMapping[str, ZstoreError] | None
) -> Manifest:
    models = dict(walk_nodes(store, ""))
    if not models:
        raise NotFoundError("no Zarr hierarchy there", path=url)
    found = dict[str, list[_FoundChunk]]()
    for path, model in models.items():
        if path in drop or path.rpartition("/")[2] in drop:
            continue
        try:
            found[path] = _find_chunks(store, url, path, model)
        except ZstoreError as error:
            if unreadable is None or not path:
                raise
            unreadable[path] = error.locate(path=f"{url.rstrip('/')}/{path}")
    keys = [join_key(path, name) for path in found for name in DOCUMENTS]
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
            manifest.chunks[path] = _references(found[path], models[path], manifest)
        manifest.documents[key] = render_json(document)
    return manifest


class _FoundChunk(NamedTuple):
    """A chunk of an array: where it lies in the grid, and the facts of its file or object."""

    cell: tuple[int, ...]
    address: str
    size: int
    modified: int | None
    tag: str | None


def _find_chunks(store: Store, url: str, path: str, model: Any) -> list[_FoundChunk]:
    """The chunks of an array; none of a group.

    Raises
        ZstoreError: its document, its codecs or one of its chunks cannot be read.
    """
    if isinstance(model, ZstoreError):
        raise model
    if not isinstance(model, ArrayModel):
        return []
    StoredArray(store, path, model).bind()
    is_local, chunks = store.local_path() is not None, []
    listed = (Entry(key, 0) for key in store.list(path)) if is_local else store.entries(path)
    for key, size, tag in sorted(listed):
        cell = model.keys.cell(key[len(path) :].lstrip("/"), len(model.shape))
        if cell is None:
            continue
        address, modified = f"{url.rstrip('/')}/{key}", None
        if is_local:
            with failing("read", store.url, key):
                facts = Path(address).stat()
            size, modified = facts.st_size, facts.st_mtime_ns
        chunks.append(_FoundChunk(cell, address, size, modified, tag))
    return chunks


def _references(found: Sequence[_FoundChunk], model: ArrayModel, manifest: Manifest) -> Chunks:
    """The references of an array: each chunk is a source of its own, which is added to the manifest."""
    sources = [
        manifest.add_source(one.address, size=one.size, modified=one.modified, tag=one.tag) for one in found
    ]
    return Chunks.of_cells(
        model.grid.count(model.shape),
        np.array([one.cell for one in found], np.int64).reshape(len(found), len(model.shape)),
        np.array(sources, np.int32),
        np.zeros(len(found), np.int64),
        np.array([one.size for one in found], np.int64),
        keys=ChunkKeys(),
    )

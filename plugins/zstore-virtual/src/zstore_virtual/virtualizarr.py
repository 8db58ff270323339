"""Manifests of VirtualiZarr's objects: their arrays are taken over whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np

from zstore.errors import UnsupportedError
from zstore_virtual.collect import grid_of
from zstore_virtual.manifest import ABSENT, Chunks, Manifest

__all__ = ["manifest_of", "stores_of"]


def manifest_of(target: Any) -> Manifest:
    """The manifest of a `ManifestStore`, a `ManifestGroup` or a `ManifestArray` (at the root).

    Raises
        UnsupportedError: an array has no regular grid, or one that is too large.
    """
    manifest = Manifest()
    _add_nodes(getattr(target, "_group", target), "", manifest)
    return manifest


def _add_nodes(node: Any, path: str, manifest: Manifest) -> None:
    """Add a group or an array, and all nodes below it."""
    from zarr.core.buffer import default_buffer_prototype

    start = path and f"{path}/"
    document = node.metadata.to_buffer_dict(prototype=default_buffer_prototype())["zarr.json"]
    manifest.documents[f"{start}zarr.json"] = document.to_bytes()
    if hasattr(node, "manifest"):
        manifest.chunks[path] = _chunks(node.manifest, path, manifest)
        return
    for name, member in node.items():
        _add_nodes(member, start + name, manifest)


def _chunks(table: Any, path: str, manifest: Manifest) -> Chunks:
    """The references of an array, of which VirtualiZarr has the `table`."""
    found = grid_of(manifest.documents, path)
    if found is None:
        raise UnsupportedError("array has no regular grid, or one too large for a table", path=path)
    grid, keys = found
    addresses = table._paths.ravel().tolist()
    numbers = {"": ABSENT}
    for address in dict.fromkeys(addresses):
        if address:
            # VirtualiZarr makes plain paths file URLs, with special characters escaped.
            plain = unquote(address) if address.startswith("file://") else address
            numbers[address] = manifest.add_source(plain)
    source = np.fromiter(map(numbers.__getitem__, addresses), np.int32, len(addresses))
    offset, size = (part.ravel().astype(np.int64) for part in (table._offsets, table._lengths))
    if tuple(table._paths.shape) == grid:
        return Chunks(grid, source, offset, size, keys=keys)
    # The table has fewer or more chunks than the array: those inside the array's grid count.
    cells = np.stack(np.unravel_index(np.arange(len(addresses)), table._paths.shape), axis=-1)
    inside = np.all(cells < np.asarray(grid), axis=1)
    rows = (column[inside] for column in (cells, source, offset, size))
    return Chunks.of_cells(grid, *rows, keys=keys)


def stores_of(target: Any) -> Mapping[str, Any]:
    """The stores in the registry of a `ManifestStore`, by the URL that each is for."""
    return {url: store for key, entry in target._registry.map.items() for url, store in _entries(key, entry)}


def _entries(key: Any, entry: Any) -> Iterator[tuple[str, Any]]:
    """The URL and store of an entry in the registry, and of all entries below it."""
    todo = [(f"{key.scheme}://{key.netloc}", entry)]
    while todo:
        url, entry = todo.pop()
        if entry.store is not None:
            # A store's names begin behind its own prefix, whatever URL it is registered for.
            prefix = str(getattr(entry.store, "prefix", None) or "").strip("/")
            top = f"{key.scheme}://{key.netloc}" + (f"/{prefix}" if prefix else "")
            yield getattr(entry.store, "url", None) or top, entry.store
        todo += [(f"{url}/{name}", child) for name, child in entry.children.items()]

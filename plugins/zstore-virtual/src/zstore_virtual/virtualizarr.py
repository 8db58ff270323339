"""VirtualiZarr's manifests, taken as the arrays that they are."""

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
        UnsupportedError: an array of a grid that has no table.
    """
    manifest = Manifest()
    _take(getattr(target, "_group", target), "", manifest)
    return manifest


def _take(node: Any, path: str, manifest: Manifest) -> None:
    start = path and f"{path}/"
    from zarr.core.buffer import default_buffer_prototype

    document = node.metadata.to_buffer_dict(prototype=default_buffer_prototype())["zarr.json"]
    manifest.documents[f"{start}zarr.json"] = document.to_bytes()
    if hasattr(node, "manifest"):
        manifest.chunks[path] = _chunks(node.manifest, path, manifest)
        return
    for name, member in node.items():
        _take(member, start + name, manifest)


def _chunks(table: Any, path: str, manifest: Manifest) -> Chunks:
    found = grid_of(manifest.documents, path)
    if found is None:
        raise UnsupportedError(
            "an array without a regular grid, or of a grid too large for a table", path=path
        )
    grid, keys = found
    addresses = table._paths.ravel().tolist()
    numbers = {"": ABSENT}
    for address in dict.fromkeys(addresses):
        if address:
            # Plain paths become URIs there, with special characters escaped.
            meant = unquote(address) if address.startswith("file://") else address
            numbers[address] = manifest.add_source(meant)
    source = np.fromiter(map(numbers.__getitem__, addresses), np.int32, len(addresses))
    offset, size = (part.ravel().astype(np.int64) for part in (table._offsets, table._lengths))
    if tuple(table._paths.shape) != grid:
        # Fewer or more chunks than the array has: those that it has count.
        cells = np.stack(np.unravel_index(np.arange(len(addresses)), table._paths.shape), axis=-1)
        inside = np.all(cells < np.asarray(grid), axis=1)
        return Chunks.of_cells(
            grid,
            cells[inside],
            source[inside],
            offset[inside],
            size[inside],
            has_c=bool(keys.prefix),
            separator=keys.separator,
        )
    return Chunks(grid, source, offset, size, has_c=bool(keys.prefix), separator=keys.separator)


def stores_of(target: Any) -> Mapping[str, Any]:
    """The stores that a `ManifestStore` may ask, by the URLs of what they hold."""
    return {url: store for key, entry in target._registry.map.items() for url, store in _entries(key, entry)}


def _entries(key: Any, entry: Any) -> Iterator[tuple[str, Any]]:
    todo = [(f"{key.scheme}://{key.netloc}", entry)]
    while todo:
        url, entry = todo.pop()
        if entry.store is not None:
            # Its names begin where its own prefix ends, whatever it is registered for.
            prefix = str(getattr(entry.store, "prefix", None) or "").strip("/")
            top = f"{key.scheme}://{key.netloc}" + (f"/{prefix}" if prefix else "")
            yield getattr(entry.store, "url", None) or top, entry.store
        todo += [(f"{url}/{name}", child) for name, child in entry.children.items()]

"""Arrays of a manifest, read into memory with their encoded chunks: coordinates, to be compared and joined."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from zstore.errors import NotFoundError, StoreError
from zstore.nodes.array import Array
from zstore.nodes.open import open_array
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore
from zstore_virtual.manifest import ABSENT, INLINE, Manifest
from zstore_virtual.scan.draft import DOCUMENT

__all__ = ["load_array"]


def load_array(manifest: Manifest, path: str) -> Array:
    """The array at `path`, its chunks read from where they lie.

    Raises
        NotFoundError, StoreError: a source is not there, or is shorter than a reference says.
    """
    store = MemoryStore()
    fill(store, manifest, [path])
    return open_array(store, path)


def fill(store: MemoryStore, manifest: Manifest, paths: Iterable[str]) -> None:
    """Put the documents and chunks of arrays into a store."""
    files: dict[int, BinaryIO] = {}
    try:
        for path in paths:
            key = join_key(path, DOCUMENT)
            store.put(key, manifest.documents[key])
            chunks = manifest.chunks.get(path)
            for row in range(0 if chunks is None else len(chunks.source)):
                assert chunks is not None
                source, begin, size = (int(n[row]) for n in (chunks.source, chunks.offset, chunks.size))
                if source == ABSENT:
                    continue
                if source == INLINE:
                    value = chunks.inline[begin : begin + size]
                else:
                    address = manifest.sources[source].address
                    if source not in files:
                        files[source] = _open(address)
                    files[source].seek(begin)
                    value = files[source].read(size)
                    if len(value) < size:
                        raise StoreError(
                            f"source has {len(value)} of {size} bytes at {begin}; expected all", path=address
                        )
                store.put(join_key(path, chunks.name(row)), value)
    finally:
        for file in files.values():
            file.close()


def _open(address: str) -> BinaryIO:
    try:
        return Path(address).open("rb")
    except OSError as error:
        raise NotFoundError(f"source cannot be opened: {error}", path=address) from error

"""How much memory the chunks that arrays keep decoded may have."""

from __future__ import annotations

import os

from zstore._ext.engine.transfer import Folder, limit_chunks

__all__ = ["open_folder", "set_cache_size"]

DEFAULT_SIZE = 128 << 20


def set_cache_size(size: int | None) -> None:
    """Keep at most `size` bytes of decoded chunks, of all arrays of this process together; None: the default.

    A chunk is kept when it was read in part for the second time, for native codecs and chunks in a
    directory, and used again only while its file is the same (device, inode, size and times). What is kept
    goes when others are used more, and with its array. The default is ZSTORE_CACHE_SIZE, else 128 MiB; 0
    keeps none.

    Raises
        ValueError: fewer than none.
    """
    if size is None:
        size = int(os.environ.get("ZSTORE_CACHE_SIZE") or DEFAULT_SIZE)
    if size < 0:
        raise ValueError(f"cache size {size}, expected 0 or more bytes")
    limit_chunks(size)


def open_folder(path: str, own_size: int = 0) -> Folder:
    """The directory of an array, opened for the kernels; with `own_size` it keeps every chunk by itself."""
    return Folder(path, cache_size=own_size, keeps_chunks=True) if own_size else Folder(path)


set_cache_size(None)

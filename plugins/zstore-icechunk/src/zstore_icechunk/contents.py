"""Asks icechunk for what a session holds: documents, chunks, keys, and where chunks lie."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from zstore.errors import StoreError
from zstore.plugin.stores import ByteRange, Names
from zstore_icechunk.table import Table

__all__ = ["CHUNK", "DOCUMENT", "Contents", "document_key"]

# The keys that icechunk keeps: documents of Zarr v3, and chunks whose coordinates have 32 bits.
DOCUMENT = re.compile(r"(?:(.*)/)?zarr\.json", re.DOTALL)
CHUNK = re.compile(r"(?:(.*?)/)?c(?:/(?:0|[1-9]\d{0,8}))*", re.DOTALL)
# What `array_chunk_iterator` calls a virtual chunk.
VIRTUAL = 2


class Contents:
    """What a session holds, asked of icechunk's own asynchronous `store`; errors are icechunk's."""

    def __init__(self, store: Any) -> None:
        self.store = store

    async def document(self, path: str) -> bytes | None:
        """The document of a node; None where there is no node."""
        from zarr.core.buffer import default_buffer_prototype

        found = await self.store.get(document_key(path), default_buffer_prototype())
        if found is not None:
            return bytes(found.to_bytes())
        # icechunk 1 also finds nothing in a snapshot that cannot be read.
        if await self.store.exists(document_key(path)):
            raise StoreError("icechunk says both that a document exists and that it does not")
        return None

    async def node_type(self, path: str) -> str | None:
        """ "array" or "group"; None where there is no node."""
        found = await self.document(path)
        return None if found is None else json.loads(found).get("node_type")

    async def chunk(self, key: str, path: str, byte_range: ByteRange | None) -> memoryview | None:
        """The bytes of a chunk of the array at `path`; None where it is not stored or there is no array."""
        from zarr.abc.store import RangeByteRequest
        from zarr.core.buffer import default_buffer_prototype

        wanted = None
        if byte_range is not None:
            # icechunk refuses a range that reaches beyond the end.
            size = await self.chunk_size(key, path)
            if size is None:
                return None
            begin, end = byte_range.resolve(size)
            if begin >= end:
                return memoryview(b"")
            wanted = RangeByteRequest(begin, end)
        try:
            found = await self.store.get(key, default_buffer_prototype(), wanted)
        except Exception:
            # Only the words of the error tell that there is no array.
            if await self.node_type(path) != "array":
                return None
            raise
        return None if found is None else memoryview(found.as_numpy_array()).cast("B").toreadonly()

    async def chunk_size(self, key: str, path: str) -> int | None:
        """The size of a chunk of the array at `path`; None where it is not stored or there is no array."""
        try:
            size = int(await self.store.getsize(key))
            # Of a chunk that is not stored, icechunk gives the size 0.
            return size if size or await self.store.exists(key) else None
        except Exception:
            if await self.node_type(path) != "array":
                return None
            raise

    async def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Put a document or a chunk."""
        from zarr.core.buffer import default_buffer_prototype

        await self.store.set(key, default_buffer_prototype().buffer.from_bytes(bytes(value)))

    async def list(self, prefix: str) -> Names:
        """Every key below a prefix, sorted."""
        start, above = prefix and f"{prefix}/", prefix
        while True:
            try:
                found = self.store.list_prefix(above and f"{above}/")
                return sorted([key async for key in found if key.startswith(start)])
            except Exception:
                # icechunk lists below nodes only; an error of another kind comes at the root, too.
                if not above:
                    raise
                above = above.rpartition("/")[0]

    async def table(self, path: str, most: int | None = None) -> Table | None:
        """Where the chunks of an array lie.

        None where there is no array, or it has virtual chunks, or more chunks than `most`.
        """
        if await self.node_type(path) != "array":
            return None
        batches, count = [], 0
        async for batch in self.store.array_chunk_iterator(path or "/"):
            batches.append(batch)
            count += len(batch[1])
            if (most is not None and count > most) or bool(np.any(batch[1] == VIRTUAL)):
                return None
        return Table.of(batches, path)


def document_key(path: str) -> str:
    """The key of a node's document."""
    return f"{path}/zarr.json" if path else "zarr.json"

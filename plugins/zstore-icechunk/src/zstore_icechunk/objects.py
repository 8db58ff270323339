"""Reads chunks from the objects of a repository in a bucket or on a web server, by zstore's own requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from zstore.errors import StoreError
from zstore.plugin.stores import ByteRange, Part, Request, Store, open_store
from zstore_icechunk.contents import CHUNK, Contents
from zstore_icechunk.opening import Opener
from zstore_icechunk.table import Table

__all__ = ["ChunkObjects"]

# Once so many chunks of an array were wanted, icechunk is asked where all of its chunks lie, which may be so
# many at most.
FEW, MOST_ROWS = 8, 1 << 22


class ChunkObjects:
    """Reads the chunks of arrays of which many are wanted; tables tell where they lie."""

    def __init__(self, opener: Opener, contents: Contents) -> None:
        self._opener, self._contents = opener, contents
        self._store: Store | None = None
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self.tables: dict[str, Table | None] = {}

    async def get_parts(self, requests: Sequence[Request]) -> dict[int, Part | None]:
        """The parts of those requests that can be answered, by their index."""
        chunks = [CHUNK.fullmatch(key) for key, _ in requests]
        paths = [None if chunk is None else chunk[1] or "" for chunk in chunks]
        for path, count in Counter(paths).items():
            if path is not None:
                await self._count(path, count)
        parts: dict[int, Part | None] = {}
        wanted: list[tuple[int, str, ByteRange, int]] = []
        for index, ((key, byte_range), path) in enumerate(zip(requests, paths, strict=True)):
            table = None if path is None else self.tables.get(path)
            if table is None:
                continue
            row = table.row(key.removeprefix(path and f"{path}/"))
            if row is None:
                parts[index] = None
                continue
            file, offset, size = int(table.file[row]), int(table.offset[row]), int(table.size[row])
            begin, end = (byte_range or ByteRange(0)).resolve(size)
            if file < 0:
                parts[index] = Part(memoryview(table.data)[offset + begin : offset + end], size)
            else:
                wanted.append((index, table.names[file], ByteRange(offset + begin, end - begin), size))
        found = await self._open().get_parts_async([(name, part) for _, name, part, _ in wanted])
        for (index, name, part, size), answer in zip(wanted, found, strict=True):
            count = 0 if answer is None else len(answer.data)
            if answer is None or count != part.size:
                what = "is not there" if answer is None else f"gave {count} bytes, expected {part.size}"
                raise StoreError(f"the object chunks/{name} {what}", key=requests[index][0])
            parts[index] = Part(answer.data, size)
        return parts

    async def _count(self, path: str, count: int) -> None:
        """Count chunks of an array that are wanted, and ask where all lie once that is worth it."""
        self._counts[path] = self._counts.get(path, 0) + count
        if path not in self.tables and self._counts[path] >= FEW:
            self.tables[path] = await self._contents.table(path, MOST_ROWS)

    def _open(self) -> Store:
        with self._lock:
            if self._store is None:
                url = f"{self._opener.place.url}/chunks"
                options = self._opener.bucket_options or None
                self._store = open_store(url, read_only=True, storage_options=options)
            return self._store

    def close(self) -> None:
        """Close the store of the objects; the next use opens it again."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

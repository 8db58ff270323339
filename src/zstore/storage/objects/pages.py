"""Lists of a bucket, page by page."""

from __future__ import annotations

from typing import Any

from zstore.storage.objects.bucket import Bucket, Listing, next_of
from zstore.storage.objects.library import forks


class Pages:
    """A listing, asked for page by page: where one fails, those before it are not asked for again."""

    def __init__(self, bucket: Bucket, prefix: str, size: int) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._size = size
        self._stream: Any = None
        self._made_at = -1
        self._last: Listing = []
        self.has_more = True

    async def next(self) -> Listing:
        """The next page; an empty one at the end."""
        page: Listing = await self._bucket.listed(self._prefix, self._ask)
        self.has_more = len(page) == self._size
        self._last = page
        return page

    async def _ask(self) -> Listing:
        if self._stream is None or self._made_at != forks():
            self._stream, self._made_at = self._begin(), forks()
        stream = self._stream
        try:
            return [*(next(stream, ()) if self._bucket.is_direct else await next_of(stream))]
        except BaseException:
            self._stream = None
            raise

    def _begin(self) -> Any:
        bucket, paths = self._bucket, [meta["path"] for meta in self._last]
        if paths != sorted(paths):
            raise OSError("the list broke off, and is in no order by which to go on")
        last = paths[-1] if paths else None
        return bucket.client.list(bucket.path(self._prefix) or None, offset=last, chunk_size=self._size)

"""A store on anything that fsspec reaches: HTTP, S3, Google and Azure storage, SFTP, archives and more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import quote

from zstore.byterange import ByteRange, merge_ranges
from zstore.errors import StoreError
from zstore.storage.base import Names, Store, Values, check_key, check_prefix, join_key
from zstore.storage.locking import hold_name

__all__ = ["FsspecStore"]

# What says that there is nothing under a key; any other exception is trouble.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
DELETE_BATCH = 64


class FsspecStore(Store):
    """The objects below a URL, reached through an fsspec filesystem.

    fsspec keeps its filesystems for reuse, so this store closes none, and neither one that it was given.
    HTTP is for reading, has no listing (what a server shows as an index differs from one to the next), and a
    server that ignores ranges is recognised rather than believed. `lock` excludes the threads of this process
    only: object storage has no locks.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        read_only: bool = False,
        filesystem: Any = None,
    ) -> None:
        self._url = url
        self._options = dict(storage_options or {})
        with _telling("open", url, None):
            if filesystem is None:
                from fsspec.core import url_to_fs

                filesystem, path = url_to_fs(url, **self._options)
            else:
                path = filesystem._strip_protocol(url)
        self._filesystem = filesystem
        protocol = filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_http = bool(protocols & {"http", "https"})
        # Signed links carry their signature after a "?", which belongs behind the key.
        self._root, mark, query = path.partition("?") if self._is_http else (path, "", "")
        self._root = self._root.rstrip("/")
        self._query = mark + query
        self._keeps_ranges: bool | None = None if self._is_http else True
        self.read_only = read_only or self._is_http

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at `url`; storage options are the filesystem's."""
        return cls(url, storage_options, read_only=read_only)

    @property
    def url(self) -> str:
        """The URL it was opened with."""
        return self._url

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it; None when there is no such key."""
        return self.get_many([(key, byte_range)])[0]

    def get_many(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """`get` for many keys at once; neighbouring ranges of one key become one request."""
        values: Values = [None] * len(requests)
        wishes: dict[str, list[int]] = {}
        fetches: list[tuple[str, int | None, int | None, tuple[int, ...]]] = []
        for index, (key, byte_range) in enumerate(requests):
            check_key(key)
            if byte_range is not None and byte_range.size == 0:
                values[index] = None if self.size(key) is None else b""
            elif byte_range is None or (byte_range.start == 0 and byte_range.size is None):
                fetches.append((key, None, None, (index,)))
            elif byte_range.start < 0 or byte_range.size is None:
                fetches.append((key, byte_range.start, None, (index,)))
            else:
                wishes.setdefault(key, []).append(index)
        for key, indexes in wishes.items():
            ranges = [(requests[index][1] or (0, 0))[:2] for index in indexes]
            for merged in merge_ranges([(start, size or 0) for start, size in ranges]):
                members = tuple(indexes[member] for member in merged.members)
                fetches.append((key, merged.start, merged.start + merged.size, members))
        for fetch, data in zip(fetches, self._fetch(fetches), strict=True):
            self._hand_out(requests, fetch, data, values)
        return values

    def _hand_out(
        self,
        requests: Sequence[tuple[str, ByteRange | None]],
        fetch: tuple[str, int | None, int | None, tuple[int, ...]],
        data: bytes | None,
        values: Values,
    ) -> None:
        _, begin, _, members = fetch
        if data is None or begin is None:
            values[members[0]] = data
            return
        for index in members:
            wanted = requests[index][1]
            assert wanted is not None
            start = 0 if begin < 0 else wanted.start - begin
            stop = len(data) if wanted.size is None else start + wanted.size
            whole = start == 0 and stop >= len(data)
            values[index] = data if whole else memoryview(data)[start:stop]

    def _fetch(
        self, fetches: Sequence[tuple[str, int | None, int | None, tuple[int, ...]]]
    ) -> list[bytes | None]:
        if not fetches:
            return []
        whole = self._keeps_ranges is False
        paths = [self._path(key) for key, *_ in fetches]
        starts = [None if whole else start for _, start, _, _ in fetches]
        ends = [None if whole else end for _, _, end, _ in fetches]
        answers = self._cat(paths, starts, ends)
        return [
            self._checked(key, start, end, answer)
            for (key, start, end, _), answer in zip(fetches, answers, strict=True)
        ]

    def _cat(self, paths: Names, starts: list[int | None], ends: list[int | None]) -> list[Any]:
        if len(paths) > 1 and self._filesystem.async_impl:
            with _telling("read", self.url, None):
                answers: list[Any] = self._filesystem.cat_ranges(paths, starts, ends, on_error="return")
            return answers
        return [self._cat_one(*request) for request in zip(paths, starts, ends, strict=True)]

    def _cat_one(self, path: str, start: int | None, end: int | None) -> Any:
        try:
            return self._filesystem.cat_file(path, start=start, end=end)
        except Exception as error:  # sorted out in _checked, as those that cat_ranges hands back
            return error

    def _checked(self, key: str, start: int | None, end: int | None, answer: Any) -> bytes | None:
        """The bytes that were asked for, out of what came: an exception, or maybe more than was asked for."""
        if isinstance(answer, MISSING):
            return None
        if isinstance(answer, BaseException):
            if start is not None:
                # Servers refuse a range that begins at or after the end; here it gives the nothing there is.
                size = self.size(key)
                if size is not None and ByteRange(start).resolve(size)[0] >= size:
                    return b""
            raise _failed("read", self.url, key, answer) from answer
        data = bytes(answer)
        if start is None:
            return data
        if self._keeps_ranges is False:
            return data[start:end]
        if self._keeps_ranges is None or (end is not None and len(data) > end - start):
            return self._compared(key, start, end, data)
        return data

    def _compared(self, key: str, start: int, end: int | None, data: bytes) -> bytes:
        """The range, out of `data`, which is all of the value where the server ignores ranges."""
        size = self.size(key)
        if size is None:
            raise StoreError(
                "cannot read a range: the server does not say how long the value is", path=self.url, key=key
            )
        begin, stop = ByteRange(start, None if end is None else end - start).resolve(size)
        if stop - begin != size and len(data) in (stop - begin, size):
            self._keeps_ranges = len(data) != size
        if len(data) == stop - begin:
            return data
        if len(data) == size:
            return data[begin:stop]
        raise StoreError(
            f"asked for bytes {begin} to {stop} of {size}, got {len(data)} bytes", path=self.url, key=key
        )

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Write the object; whether readers can see half of it is the filesystem's affair."""
        check_key(key)
        self.check_writable(key)
        path, data = self._path(key), bytes(value)
        with _telling("write", self.url, key):
            try:
                self._filesystem.pipe_file(path, data)
            except FileNotFoundError:
                # A filesystem with real directories.
                self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._filesystem.pipe_file(path, data)

    def delete(self, key: str) -> None:
        """Remove the object, if it is there."""
        check_key(key)
        self.check_writable(key)
        path, filesystem = self._path(key), self._filesystem
        with _telling("delete", self.url, key):
            try:
                # Where there are real directories, rm_file may take one, or say that it is not permitted.
                if filesystem.async_impl or filesystem.isfile(path):
                    filesystem.rm_file(path)
            except MISSING:
                return

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below `prefix`, many at a time where the filesystem can."""
        self.check_writable(prefix)
        paths = [self._path(key) for key in self.list(prefix)]
        filesystem = self._filesystem
        with _telling("delete", self.url, prefix or None):
            if not filesystem.async_impl:
                for path in paths:
                    filesystem.rm_file(path)
                return
            from fsspec.asyn import sync

            for start in range(0, len(paths), DELETE_BATCH):
                sync(filesystem.loop, _delete_all, filesystem._rm_file, paths[start : start + DELETE_BATCH])

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, as the filesystem lists them now."""
        check_prefix(prefix)
        top = self._path(prefix)
        found = self._listing(prefix, lambda: self._filesystem.find(top))
        skip = len(self._root) + 1
        # Names that end in "/" are the empty objects by which some tools mark a directory.
        return iter([name[skip:] for name in found if name.startswith(f"{top}/") and name[-1] != "/"])

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        check_prefix(prefix)
        top = self._path(prefix)
        found = self._listing(prefix, lambda: self._filesystem.ls(top, detail=False))
        skip = len(top) + 1
        return sorted({name[skip:].strip("/") for name in found if name.startswith(f"{top}/")} - {""})

    def _listing(self, prefix: str, ask: Callable[[], Any]) -> Names:
        if self._is_http:
            raise StoreError(
                "HTTP has no listing; expected consolidated metadata, or the name of the array",
                path=self.url,
                key=prefix or None,
            )
        with _telling("list", self.url, prefix or None):
            try:
                self._filesystem.invalidate_cache()
                return [str(name) for name in ask()]
            except MISSING:
                return []

    def size(self, key: str) -> int | None:
        """How many bytes the object has; None when there is no such key."""
        path = self._path(check_key(key))
        with _telling("read", self.url, key):
            try:
                found = self._filesystem.info(path)
            except MISSING as error:
                # Of HTTP, fsspec says "not found" whatever the server answered; its answer is the cause.
                cause = error.__cause__
                if cause is not None and not isinstance(cause, MISSING) and _status(cause) != 404:
                    raise _failed("read", self.url, key, cause) from error
                return None
        if found.get("type") == "directory":
            return None
        if found.get("size") is None:
            # A server that does not say: the value itself will.
            value = self.get(key)
            return None if value is None else len(value)
        return int(found["size"])

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude the other threads of this process that lock the same key."""
        self.check_writable(key)
        return hold_name((self.url, check_key(key)))

    def as_read_only(self) -> FsspecStore:
        """The same objects, refusing writes."""
        view = FsspecStore.__new__(FsspecStore)
        view.__dict__.update(self.__dict__, read_only=True)
        return view

    def _path(self, key: str) -> str:
        if self._is_http:
            return join_key(self._root, quote(key)) + self._query
        return f"{self._root}/{key}" if key else self._root


def _status(error: BaseException) -> int | None:
    return getattr(error, "status", None)


async def _delete_all(remove: Any, paths: Names) -> None:
    async def one(path: str) -> None:
        try:
            await remove(path)
        except MISSING:
            return

    await asyncio.gather(*map(one, paths))


@contextmanager
def _telling(action: str, url: str, key: str | None) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # each filesystem has its own; every one goes on as the cause
        raise _failed(action, url, key, error) from error


def _failed(action: str, url: str, key: str | None, error: BaseException) -> StoreError:
    return StoreError(f"cannot {action}: {type(error).__name__}: {error}", path=url, key=key)

"""A store on any filesystem of fsspec: HTTP, S3, Google and Azure storage, SFTP, archives and more."""

from __future__ import annotations

import errno
import gc
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from urllib.parse import quote

from zstore.base.byterange import ByteRange
from zstore.base.limits import current_limits
from zstore.errors import StoreError
from zstore.storage.base import (
    BatchStore,
    Entry,
    Fetch,
    Names,
    Part,
    Parts,
    Request,
    Store,
    Values,
    check_key,
    check_prefix,
    failing,
    failure,
    hold_name,
    join_key,
    merge_requests,
)
from zstore.storage.local import LocalStore
from zstore.storage.objects.failures import HIDDEN, no_listing
from zstore.storage.objects.options import as_flag, fsspec_options, kind_of
from zstore.storage.range_requests import (
    MISSING,
    Response,
    choose_send,
    is_s3,
    make_timeout,
    protocols_of,
    send_all,
)
from zstore.storage.references import guard_references
from zstore.storage.remote import is_directory, strong_tag

# Protocols whose outermost directories are buckets, which are never made by writing to them.
BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}

# Put before a URL's scheme, it asks for fsspec where obstore is the default.
SCHEME = "fsspec+"

# Filesystems of the parent process, kept alive after a fork.
_parents: list[object] = []

# (bytes, size of the value, its version)
Read = tuple[bytes | memoryview, int | None, str | None]


class FsspecStore(BatchStore):
    """The objects below a URL, reached through an fsspec filesystem.

    Filesystems are not closed: fsspec keeps them for reuse. kerchunk's references may lead to files beside
    the reference document, below the addresses in the storage option `targets`, or with the protocol in
    `remote_protocol`. HTTP is read-only and cannot be listed, as every server shows its own kind of index; a
    server that ignores ranges is recognised. `lock` excludes the threads of this process only, as object
    storage has no locks.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        read_only: bool = False,
        filesystem: Any = None,
    ) -> None:
        self._url, address = url, url.removeprefix(SCHEME)
        self._options = dict(storage_options or {})
        self._targets = self._options.pop("targets", None)
        self._hides_missing = as_flag(self._options.pop("hides_missing", False))
        with failing("open", url, None, Exception, self._failed):
            if filesystem is None:
                from fsspec.core import url_to_fs

                filesystem, path = url_to_fs(address, **self._filesystem_options(address))
            else:
                path = _path_of(address)
        guard_references(filesystem, self._options, self._targets)
        self._opened, self._process = filesystem, os.getpid()
        protocols = protocols_of(filesystem)
        self.durable = self._has_buckets = bool(protocols & BUCKETS)
        self._is_http = bool(protocols & {"http", "https"})
        # The query of a signed link, which goes behind the key.
        self._root, mark, query = path.partition("?") if self._is_http else (path, "", "")
        # The beginning of every path; empty where the filesystem itself is the root ("reference://").
        self._start = self._root and f"{self._root.rstrip('/')}/"
        self._root = self._root.rstrip("/")
        self._query = mark + query
        self._keeps_ranges = True
        self.is_bounded = not self._is_http
        limits = current_limits()
        at_once = limits.bucket_request_count if self._has_buckets else limits.request_count
        self.request_count = at_once if filesystem.async_impl else 1
        self.read_only = read_only or self._is_http

    def _filesystem_options(self, address: str) -> dict[str, Any]:
        """The storage options; for HTTP and S3 with the limits' times, unless they have their own."""
        scheme, limits = address.partition("://")[0].lower(), current_limits()
        if scheme in ("http", "https"):
            name, times = "client_kwargs", {"timeout": make_timeout()}
        elif scheme in ("s3", "s3a"):
            name = "config_kwargs"
            times = {"connect_timeout": limits.connect_time, "read_timeout": limits.read_time}
        else:
            return self._options
        return {**self._options, name: {**times, **(self._options.get(name) or {})}}

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at `url`; storage options are the filesystem's, or for buckets obstore's."""
        scheme = url.removeprefix(SCHEME).partition("://")[0].lower()
        given = storage_options or {}
        options = fsspec_options(kind_of(scheme), given, url)
        options["hides_missing"] = given.get("hides_missing", False)
        return cls(url, options, read_only=read_only)

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> Store:
        """The store around fsspec's mapping of a filesystem (`fsspec.get_mapper`); a directory is its own."""
        url = target.fs.unstrip_protocol(target.root)
        if protocols_of(target.fs) & {"file", "local"}:
            return LocalStore(target.root, read_only=read_only)
        return cls(url, target.fs.storage_options, read_only=read_only, filesystem=target.fs)

    @property
    def _filesystem(self) -> Any:
        """The filesystem; in a forked process a new one like it, as threads do not survive a fork."""
        if self._process != os.getpid():
            if self._opened.async_impl:
                # Freeing the parent's filesystems would close their connections and remove them from the
                # epoll descriptor that the parent's event loop waits on, which would then wait for ever.
                _parents.append([each for each in gc.get_objects() if _is_filesystem(each)])
                with failing("open again after a fork", self.url, None, Exception, self._failed):
                    self._opened = pickle.loads(pickle.dumps(self._opened))
                    guard_references(self._opened, self._options, self._targets)
            self._process = os.getpid()
        return self._opened

    @property
    def url(self) -> str:
        return self._url

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` for many keys at once; neighbouring ranges of one key become one request."""
        return [None if part is None else part[0] for part in self._get(requests)]

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with sizes and versions, which HTTP and S3 put into the same responses."""
        found = self._get(requests)
        unknown = {key for (key, _), part in zip(requests, found, strict=True) if part and part[1] is None}
        sizes = self._sizes(sorted(unknown))
        parts: Parts = []
        for (key, _), part in zip(requests, found, strict=True):
            size = part and (sizes[key] if part[1] is None else part[1])
            parts.append(None if part is None or size is None else Part(part[0], size, part[2]))
        return parts

    def _get(self, requests: Sequence[Request]) -> list[Read | None]:
        found: list[Read | None] = [None] * len(requests)
        fetches = merge_requests(requests, has_ranges=self._keeps_ranges)
        for fetch, response in zip(fetches, self._fetch(fetches), strict=True):
            if response is None:
                continue
            for index in fetch.members:
                found[index] = _cut(response, requests[index][1]), response.total_size, response.version
        return found

    def _fetch(self, fetches: Sequence[Fetch]) -> list[Response | None]:
        filesystem = self._filesystem
        send = choose_send(filesystem)
        requests = [fetch._replace(key=self._path(fetch.key)) for fetch in fetches]
        if send is not None:
            responses = self._at_once(send, [(filesystem, request) for request in requests])
        else:
            responses = self._each(partial(self._cat, filesystem), requests)
        return [self._checked(fetch, response) for fetch, response in zip(fetches, responses, strict=True)]

    def _at_once(self, send: Any, items: Sequence[tuple[Any, ...]]) -> list[Any]:
        from fsspec.asyn import sync

        with failing("read", self.url, None, Exception, self._failed):
            responses: list[Any] = sync(self._filesystem.loop, send_all, send, items, self.request_count)
        return responses

    def _each(self, ask: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """The result of `ask` for each item, or its exception; `request_count` of them at once."""

        def one(item: Any) -> Any:
            try:
                return ask(item)
            except Exception as error:  # handled by the caller, who knows what each item is
                return error

        if self.request_count == 1 or len(items) < 2:
            return [one(item) for item in items]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self.request_count, len(items))) as pool:
            return [*pool.map(one, items)]

    @staticmethod
    def _cat(filesystem: Any, request: Fetch) -> Any:
        path, start, end, _ = request
        try:
            return filesystem.cat_file(path, start=start, end=None if start is None else end)
        except NotImplementedError:
            # obstore's filesystem has only ranges of which both ends are known.
            size = filesystem.info(path)["size"]
            first, last = ByteRange(start or 0).resolve(size)
            return filesystem.cat_file(path, start=first, end=last) if first < last else b""

    def _checked(self, fetch: Fetch, found: Any) -> Response | None:
        """The response to a request; `found` is an exception, or bytes: the requested ones, more or fewer."""
        key, start, end, _ = fetch
        if isinstance(found, MISSING) or self._is_hidden(found):
            return None
        if isinstance(found, BaseException):
            # Servers refuse a range that begins at or after the end; stores give no bytes for it.
            size = None if start is None or not isinstance(found, Exception) else self.size(key)
            if start is not None and size is not None and ByteRange(start).resolve(size)[0] >= size:
                return Response(b"", size, size)
            raise self._failed("read", key, found) from found
        response = found if isinstance(found, Response) else Response(bytes(found))
        if start is None:
            return response._replace(begin=0, total_size=len(response.data))
        wanted = -start if end is None else end - start
        if response.begin is None or response.total_size is None:
            if len(response.data) == wanted or (end is None and start >= 0):
                return response._replace(begin=None if start < 0 else start)
            response = response._replace(begin=None, total_size=self.size(key))
        return self._narrowed(fetch, response)

    def _narrowed(self, fetch: Fetch, response: Response) -> Response:
        """The response cut to the requested range; it is an error if the server has sent less."""
        key, start, end, _ = fetch
        data, begin, size, version = response
        if start is None or size is None:
            raise StoreError(
                "cannot read a range: the server does not say how long the value is", path=self.url, key=key
            )
        first, last = ByteRange(start, None if end is None else end - start).resolve(size)
        if begin is None:
            # Either the whole value, or just the range.
            begin = 0 if len(data) == size else first if len(data) == last - first else last
        if begin > first or begin + len(data) < last:
            raise StoreError(
                f"asked for bytes {first} to {last} of {size}, got {len(data)} bytes", path=self.url, key=key
            )
        if begin != first or begin + len(data) != last:
            # It ignores ranges: from now on, a value is requested once for all ranges of a key.
            self._keeps_ranges = False
            data = data[first - begin : last - begin]
        return Response(data, first, size, version)

    def _sizes(self, keys: Names) -> dict[str, int | None]:
        found = self._each(self._filesystem.info, [self._path(key) for key in keys])
        return {key: self._size_of(key, info) for key, info in zip(keys, found, strict=True)}

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Write the object; whether that is atomic depends on the filesystem."""
        check_key(key)
        self.check_writable(key)
        path, data = self._path(key), bytes(value)
        with failing("write", self.url, key, Exception, self._failed):
            try:
                self._filesystem.pipe_file(path, data)
            except FileNotFoundError:
                # The filesystem has real directories; in object storage this would make a bucket.
                if self._has_buckets:
                    raise
                self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._filesystem.pipe_file(path, data)

    def delete(self, key: str) -> None:
        check_key(key)
        self.check_writable(key)
        path, filesystem = self._path(key), self._filesystem
        with failing("delete", self.url, key, Exception, self._failed):
            try:
                # Filesystems with real directories may remove one by rm_file, or raise PermissionError.
                if filesystem.async_impl or filesystem.info(path)["type"] != "directory":
                    filesystem.rm_file(path)
            except MISSING:
                return

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below `prefix`, concurrently where the filesystem can."""
        self.check_writable(prefix)
        paths = [self._path(key) for key in self.list(prefix)]
        for path, error in zip(paths, self._each(self._filesystem.rm_file, paths), strict=True):
            if isinstance(error, BaseException) and not isinstance(error, MISSING):
                raise self._failed("delete", path[len(self._start) :], error) from error

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix` at this moment."""
        check_prefix(prefix)
        top = self._path(prefix)
        found = self._listing(prefix, lambda: self._find(top))
        start, skip = prefix and f"{prefix}/", len(self._start)
        # Names that end in "/" are the empty objects by which some tools mark a directory.
        return iter([n[skip:] for n in found if n.startswith(self._start + start) and n[-1] != "/"])

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all objects below `prefix`; S3's lists have the sizes and versions."""
        if not is_s3(self._filesystem):
            return super().entries(prefix)
        known, skip = dict[str, Any](), len(self._start)

        def find() -> Names:
            known.update(self._filesystem.find(self._path(check_prefix(prefix)), detail=True))
            return [*known]

        start = self._start + (prefix and f"{prefix}/")
        names = [n for n in self._listing(prefix, find) if n.startswith(start) and n[-1] != "/"]
        return (Entry(n[skip:], int(known[n]["size"]), strong_tag(known[n].get("ETag"))) for n in names)

    def _find(self, top: str) -> Names:
        """Every file below `top`; a directory that cannot be listed is an error, unlike with `find`."""
        if self._filesystem.async_impl:
            return [*self._filesystem.find(top)]
        names: Names = []
        directories = [top]
        for path in directories:
            try:
                entries = self._filesystem.ls(path, detail=True)
            except MISSING:
                if path == top:
                    raise
                continue
            for entry in entries:
                name = entry["name"].rstrip("/")
                is_below = entry["type"] == "directory" and name != path.rstrip("/")
                (directories if is_below else names).append(name if is_below else entry["name"])
        return names

    def list_children(self, prefix: str = "") -> Names:
        check_prefix(prefix)
        top = self._path(prefix)
        found = self._listing(prefix, lambda: self._filesystem.ls(top, detail=False))
        start = self._start + (prefix and f"{prefix}/")
        return sorted({n[len(start) :].strip("/") for n in found if n.startswith(start)} - {""})

    def _listing(self, prefix: str, ask: Callable[[], Any]) -> Names:
        if self._is_http:
            raise no_listing(self.url, prefix)
        with failing("list", self.url, prefix or None, Exception, self._failed):
            try:
                self._filesystem.invalidate_cache()
                return [str(name) for name in ask()]
            except MISSING:
                return []
            finally:
                # Else fsspec would use this list later, whatever others have written since.
                self._filesystem.invalidate_cache()

    def size(self, key: str) -> int | None:
        return self._sizes([check_key(key)])[key]

    def _is_hidden(self, found: Any) -> bool:
        """Whether a response is a refusal that the caller takes for a missing value."""
        return self._hides_missing and isinstance(found, BaseException) and _is_denied(found)

    def _size_of(self, key: str, found: Any) -> int | None:
        if self._is_hidden(getattr(found, "__cause__", None)) or self._is_hidden(found):
            return None
        if isinstance(found, MISSING):
            # For HTTP, fsspec raises "not found" whatever the status was; the response is the cause.
            cause = found.__cause__
            if is_directory(getattr(getattr(cause, "request_info", None), "url", "")):
                return None
            if cause is not None and not isinstance(cause, MISSING) and getattr(cause, "status", None) != 404:
                raise self._failed("read", key, cause) from found
            return None
        if isinstance(found, BaseException):
            raise self._failed("read", key, found) from found
        if found.get("type") == "directory" or (self._is_http and is_directory(found.get("url", ""))):
            return None
        if found.get("size") is None:
            # The server does not say the size.
            value = self.get(key)
            return None if value is None else len(value)
        return int(found["size"])

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude the other threads of this process that lock the same key."""
        self.check_writable(key)
        return hold_name((self.url, check_key(key)))

    def _failed(self, action: str, key: str | None, error: BaseException) -> StoreError:
        own = error.__cause__
        reason = own.message if isinstance(own, StoreError) else f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            reason += "; expected the extra 'cloud': pip install 'zstore[cloud]'"
        is_denied = _is_denied(error)
        if action == "read" and is_denied:
            reason += HIDDEN
        failed = failure(action, self.url, key, error, reason)
        failed.errno = errno.EACCES if is_denied else failed.errno
        return failed

    def as_read_only(self) -> FsspecStore:
        return self._with(read_only=True)

    def _path(self, key: str) -> str:
        if self._is_http:
            return join_key(self._root, quote(key)) + self._query
        return self._start + key if key else self._root


def _path_of(address: str) -> str:
    """The path of an address in the filesystems of its protocol."""
    from fsspec.core import strip_protocol

    try:
        return str(strip_protocol(address))
    except (ImportError, ValueError):  # no such filesystem is installed beside the one in use
        return address.partition("://")[2]


def _is_filesystem(each: object) -> bool:
    from fsspec import AbstractFileSystem

    return issubclass(type(each), AbstractFileSystem)


def _cut(response: Response, byte_range: ByteRange | None) -> bytes | memoryview:
    data, begin, size, _ = response
    if byte_range is None:
        return data
    if begin is None:
        first = 0  # the end of the value, exactly as requested
    elif byte_range.start < 0 and size is not None:
        first = byte_range.resolve(size)[0] - begin
    else:
        first = byte_range.start - begin
    last = len(data) if byte_range.size is None else first + byte_range.size
    return data if first == 0 and last >= len(data) else memoryview(data)[first:last]


def _is_denied(error: BaseException) -> bool:
    return isinstance(error, PermissionError) or getattr(error, "status", None) == 403

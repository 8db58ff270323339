"""A store on anything that obstore reaches, with writes that notice what others wrote meanwhile."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from zstore.errors import StoreError
from zstore.storage.base import (
    ByteRange,
    Fetch,
    Names,
    Part,
    Parts,
    Store,
    Values,
    check_key,
    check_prefix,
    hold_file,
    hold_name,
    merge_requests,
)
from zstore.storage.claims import hold_claim
from zstore_obstore.failures import changed, failed, first_line, is_unsupported, telling
from zstore_obstore.fetches import Found, Version, version_of
from zstore_obstore.library import forks, library
from zstore_obstore.opening import SCHEME, find_place, make_store, place_of

__all__ = ["ObstoreStore"]

# Requests under way at once; each holds a thread that waits.
REQUESTS = 32
# What says that somebody else wrote the value, by name: a forked process has classes of its own.
CHANGED = {"PreconditionError", "AlreadyExistsError"}
# A value that was not read yet under the lock that is held.
UNREAD: Any = object()
# obstore's `delete` of S3 takes a thousand paths in one request.
PAGE = 1000

_pool: tuple[int, ThreadPoolExecutor] | None = None


class ObstoreStore(Store):
    """The objects below a prefix of a bucket, a directory, a web server or memory.

    Every `put` is whole or absent. `lock` excludes the threads of this process, and where the store is a
    directory every process that locks by zstore's protocol. Elsewhere what was read under the lock is written
    only if nobody wrote it since, else ChangedError is raised and the value stays as the other left it;
    arrays read it again then, and change that.
    """

    request_count = REQUESTS

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        check_versions: bool = True,
        **options: Any,
    ) -> None:
        self._url = url
        self._options = options
        self._place = find_place(url)
        with telling("open", url, None):
            self._opened = make_store(self._place, options, read_only=read_only)
        self._set_up(read_only, check_versions)

    def _set_up(self, read_only: bool, check_versions: bool) -> None:
        self._is_http = self._place.kind in ("http", "https")
        # What an object store has confirmed is kept.
        self.durable = self._place.kind not in ("http", "https", "file", "memory")
        self._forks = forks()
        self._versions = threading.local()
        self._has_ranges = True
        self._has_versions = check_versions and self._place.kind != "file"
        self.read_only = read_only or self._is_http

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> ObstoreStore:
        """The store at such a URL; storage options are `check_versions` and obstore's own."""
        try:
            return cls(url, read_only=read_only, **(storage_options or {}))
        except TypeError as error:
            raise StoreError(f"cannot open: {error}", path=url) from error

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> ObstoreStore:
        """The store around one of obstore's own, whose settings are pickled with it; its `url` lacks them."""
        store = cls.__new__(cls)
        store._place = place_of(target)
        store._url = f"{SCHEME}{store._place.url}"
        store._options = {}
        store._opened = store._object = target
        store._set_up(read_only, check_versions=True)
        return store

    # The object that `from_object` was given.
    _object: Any = None

    @property
    def _store(self) -> Any:
        """obstore's store; in a forked process another one like it."""
        if self._forks != forks() and self._place.kind != "memory":
            with telling("open again after a fork", self._url, None):
                if self._object is None:
                    self._opened = make_store(self._place, self._options, read_only=True)
                else:
                    arguments, options = self._object.__getnewargs_ex__()
                    kind = getattr(library().store, type(self._object).__name__)
                    self._opened = self._object = kind(*arguments, **options)
        self._forks = forks()
        return self._opened

    @property
    def url(self) -> str:
        """The URL it was opened with."""
        return self._url

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it; None when there is no such key."""
        return self.get_many([(key, byte_range)])[0]

    def get_many(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """`get` for many keys at once; neighbouring ranges of one key become one request."""
        return [None if part is None else part.data for part in self.get_parts(requests)]

    def get_parts(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Parts:
        """`get_many`, with sizes and versions, which come in the same answers."""
        parts: Parts = [None] * len(requests)
        fetches = merge_requests(requests, has_ranges=self._has_ranges)
        for fetch, found in zip(fetches, self._at_once(self._fetch, fetches), strict=True):
            self._note_read(fetch.key, None if found is None else found.version)
            if found is None:
                continue
            for index in fetch.members:
                begin, end = (requests[index][1] or ByteRange(0)).resolve(found.total_size)
                data = found.data[max(0, begin - found.begin) : max(0, end - found.begin)]
                if data.nbytes != end - begin:
                    raise StoreError(
                        f"asked for bytes {begin} to {end} of {found.total_size}, got {data.nbytes} bytes",
                        path=self._url,
                        key=fetch.key,
                    )
                parts[index] = Part(data, found.total_size, found.version.get("e_tag"))
        return parts

    def _fetch(self, fetch: Fetch) -> Found | None:
        key, start, end, _ = fetch
        wanted: Any = None
        if start is not None:
            wanted = {"suffix": -start} if start < 0 else {"offset": start} if end is None else (start, end)
        try:
            return self._ask(key, wanted)
        except FileNotFoundError:
            return None
        except Exception as error:  # sorted out here: a range that holds nothing is refused by every server
            size, version = self._head(key) if start is not None else (None, {})
            if start is not None and size is None:
                return None
            if start is None or size is None:
                if self._is_nothing(key):
                    return None
                raise failed("read", self._url, key, error) from error
            first, last = ByteRange(start, None if end is None else end - start).resolve(size)
            if first >= last:
                return Found(memoryview(b""), first, size, version)
            if is_unsupported(error):
                # Azure has no ranges that count from the end, some web servers have none at all.
                if start < 0:
                    return self._fetch(fetch._replace(start=first, end=last))
                self._has_ranges = False
                with telling("read", self._url, key):
                    return self._ask(key, None)
            raise failed("read", self._url, key, error) from error

    def _at_once(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Any]:
        if len(items) < 2:
            return [function(item) for item in items]
        return [*_threads().map(function, items)]

    def _ask(self, key: str, wanted: Any) -> Found:
        answer = self._store.get(self._path(key), options=None if wanted is None else {"range": wanted})
        data = memoryview(answer.bytes())
        return Found(data, answer.range[0], answer.meta["size"], version_of(answer.meta))

    def _head(self, key: str) -> tuple[int | None, Version]:
        try:
            meta = self._store.head(self._path(key))
        except Exception as error:  # obstore's have no base but this; all but a missing value are trouble
            if isinstance(error, FileNotFoundError) or self._is_nothing(key):
                return None, {}
            raise failed("read", self._url, key, error) from error
        return int(meta["size"]), version_of(meta)

    def _is_nothing(self, key: str) -> bool:
        """Whether there is no file of that name, for which obstore has other words below a file."""
        if self._place.kind != "file":
            return False
        mode = self._mode(key)
        return mode is None or stat.S_ISDIR(mode)

    def _mode(self, key: str) -> int | None:
        try:
            return Path(self._file(key)).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise failed("read", self._url, key, error) from error

    def size(self, key: str) -> int | None:
        """How many bytes the object has; None when there is no such key."""
        check_key(key)
        return self._head(key)[0]

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Write the object, whole or not at all.

        Raises
            ChangedError: the value was read under the lock that this thread holds, and is another one now.
        """
        check_key(key)
        self.check_writable(key)
        mode = self._condition(key)
        # A condition is checked for a value that is sent in one piece only.
        multipart = None if mode == "overwrite" else False
        try:
            result = self._store.put(self._path(key), bytes(value), mode=mode, use_multipart=multipart)
        except Exception as error:  # obstore's have no base but this
            if type(error).__name__ in CHANGED:
                raise changed(self._url, key) from error
            if mode != "overwrite" and is_unsupported(error):
                raise StoreError(
                    "cannot write on condition that nobody else did; expected a server that can, or the"
                    f" storage option check_versions=False: {first_line(error)}",
                    path=self._url,
                    key=key,
                ) from error
            raise failed("write", self._url, key, error) from error
        self._note(key, version_of(result))

    def delete(self, key: str) -> None:
        """Remove the object, if it is there.

        Raises
            ChangedError: as `put`; somebody who writes in the very moment of deletion is not noticed.
        """
        check_key(key)
        self.check_writable(key)
        mode = self._condition(key)
        if mode != "overwrite":
            found, version = self._head(key)
            if (None if found is None else version) != (None if mode == "create" else mode):
                raise changed(self._url, key)
        self._delete(self._path(key))
        self._note(key, None)

    def _delete(self, path: str | Names) -> None:
        try:
            self._store.delete(path)
        except FileNotFoundError:
            return
        except Exception as error:  # obstore's have no base but this
            key = path[len(self._path("")) :].lstrip("/") if isinstance(path, str) else None
            if not key or not self._is_nothing(key):
                raise failed("delete", self._url, key, error) from error

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below `prefix`, many at a time."""
        check_prefix(prefix)
        self.check_writable(prefix)
        paths = [self._path(key) for key in self.list(prefix)]
        if self._place.kind in ("file", "memory"):
            self._at_once(self._delete, paths)
        else:
            self._at_once(self._delete, [paths[at : at + PAGE] for at in range(0, len(paths), PAGE)])

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, as it is now."""
        top = self._top(prefix)
        if self._is_no_directory(prefix):
            return iter(())
        with telling("list", self._url, prefix or None):
            found = [meta for page in self._store.list(top or None) for meta in page]
        # Some tools mark a directory by an empty object, whose name ends in the "/" that obstore takes away.
        above = {meta["path"].rpartition("/")[0] for meta in found}
        skip = len(self._path("")) + 1 if self._path("") else 0
        return iter(
            [
                meta["path"][skip:]
                for meta in found
                if (not top or meta["path"].startswith(f"{top}/"))
                and (meta["size"] or meta["path"] not in above)
            ]
        )

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        top = self._top(prefix)
        if self._is_no_directory(prefix):
            return []
        with telling("list", self._url, prefix or None):
            found = self._store.list_with_delimiter(top or None)
        names = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        skip = len(top) + 1 if top else 0
        return sorted(
            {name[skip:].strip("/") for name in names if not top or name.startswith(f"{top}/")} - {""}
        )

    def _is_no_directory(self, prefix: str) -> bool:
        return self._place.kind == "file" and not stat.S_ISDIR(self._mode(prefix) or 0)

    def _top(self, prefix: str) -> str:
        check_prefix(prefix)
        if self._is_http:
            raise StoreError(
                "HTTP has no listing; expected consolidated metadata, or the name of the array",
                path=self._url,
                key=prefix or None,
            )
        return self._path(prefix)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude this process's other threads, in a directory everybody; else `put` notices others."""
        check_key(key)
        self.check_writable(key)
        if self._place.kind == "file":
            with ExitStack() as stack:
                with telling("lock", self._url, key):
                    stack.enter_context(hold_file(key, self._open_file))
                yield
            return
        with hold_name((self._url, key)):
            held = self._versions.__dict__.setdefault("held", {})
            held[key] = UNREAD
            try:
                yield
            finally:
                del held[key]

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """As `lock`; outside of directories, others are kept out by a value at `key`."""
        if not self._has_versions:
            with self.lock(key):
                yield
            return
        with hold_name((self._url, key, "held")), hold_claim(self, key):
            yield

    def _note_read(self, key: str, version: Version | None) -> None:
        """As `_note`, for the first of several reads: what is written may be made of that one."""
        if self._versions.__dict__.get("held", {}).get(key) is UNREAD:
            self._note(key, version)

    def _note(self, key: str, version: Version | None) -> None:
        """Keep which version of a value this thread knows, while it holds the value's lock."""
        held = self._versions.__dict__.get("held", {})
        if key in held:
            held[key] = version

    def _condition(self, key: str) -> Any:
        """On what a change of the value depends, as obstore has it."""
        version = self._versions.__dict__.get("held", {}).get(key, UNREAD)
        if not self._has_versions or version is UNREAD:
            return "overwrite"
        if version is None:
            return "create"
        return version or "overwrite"

    def as_read_only(self) -> ObstoreStore:
        """The same objects, refusing writes."""
        view = ObstoreStore.__new__(ObstoreStore)
        view.__dict__.update(self.__dict__, read_only=True)
        return view

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_opened", "_versions")}
        if self._object is not None:
            kept["_object"] = None if self._place.kind == "memory" else self._store
        return {**kept, "_forks": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _forks=forks(), _versions=threading.local())
        with telling("open again", self._url, None):
            self._opened = self._object
            if self._opened is None:
                self._opened = make_store(self._place, self._options, read_only=True, must_exist=True)

    def _path(self, key: str) -> str:
        prefix = self._place.prefix
        return f"{prefix}/{key}" if prefix and key else prefix or key

    def _file(self, key: str) -> str:
        return os.path.join(self._place.bucket, key) if key else self._place.bucket  # noqa: PTH118

    def _open_file(self, path: str, flags: int) -> int:
        return os.open(self._file(path), flags | os.O_CLOEXEC)


def _threads() -> ThreadPoolExecutor:
    """The threads that wait for answers; a forked process has its own."""
    global _pool
    if _pool is None or _pool[0] != forks():
        _pool = (forks(), ThreadPoolExecutor(REQUESTS, "zstore-obstore"))
    return _pool[1]

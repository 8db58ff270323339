"""A store on anything that obstore reaches, with conditional writes that notice changes by others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from zstore.base.byterange import AtMost, ByteRange
from zstore.errors import ChangedError, StoreError
from zstore.storage.base import (
    BatchStore,
    Entry,
    Fetch,
    Found,
    Names,
    Part,
    Parts,
    Request,
    Store,
    check_key,
    check_prefix,
    choose_documents,
    document_keys,
    document_range,
    each_request,
    hold_name,
    in_thread,
    key_below,
    merge_requests,
)
from zstore.storage.fsspec import FsspecStore
from zstore.storage.local import LocalStore
from zstore.storage.objects.backend import Backend, Pages, Reply, Tried, Version
from zstore.storage.objects.bucket import Bucket
from zstore.storage.objects.clients import SCHEME, address_of, find_address
from zstore.storage.objects.curl import Untried
from zstore.storage.objects.failures import Elsewhere, changed, no_listing
from zstore.storage.objects.library import ask_all, change_soon, changed_in_turn, is_installed, wait_for
from zstore.storage.objects.listings import Listing, ListPage
from zstore.storage.objects.memory import MemoryBackend
from zstore.storage.objects.options import is_for_fsspec, kind_of
from zstore.storage.objects.server import Server, has_aiohttp
from zstore.storage.objects.together import Together
from zstore.storage.remote import strong_tag

T = TypeVar("T")

# Stands for the version of a value that was not read yet under the lock.
UNREAD: Any = object()
Versions = dict[str, Version | None]
_Locks = list[Versions]
BACKENDS: dict[str, type[Backend]] = {"http": Server, "memory": MemoryBackend}
# `delete` of S3 takes a thousand paths in one request.
PAGE = 1000
# Of so many keys at a time the names are held while they are deleted.
DELETED_COUNT = 64 * PAGE
# Documents of Zarr v3 are remembered as they were last seen: so many, of at most so many bytes each.
DOCUMENT = "zarr.json"
SEEN_COUNT = 1024
SEEN_SIZE = 16 << 10


# Large values that are asked for at once at the beginning: those that wait take no memory.
FIRST_COUNT = 80


class ObjectStore(BatchStore):
    """The objects below a prefix of a bucket, a web server or memory, through obstore.

    Every `put` is whole or absent. `lock` excludes the threads of this process. What was read under a lock,
    whatever its key, is written only if nobody wrote it since, else ChangedError is raised and the value
    stays as the other left it; `update` reads it again then, and changes that. A server that does not keep
    such conditions is found out before the first, and refused unless `check_versions=False` says that nobody
    else writes. Directories, by obstore's URLs and objects too, are those of `LocalStore`.
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        target: Any = None,
    ) -> None:
        address = find_address(url) if target is None else address_of(target)[0]
        self._url = url
        make: type[Backend] = BACKENDS.get(address.kind, Bucket)
        self._backend = make(address, url, storage_options or {}, read_only=read_only, target=target)
        self._is_http = self._backend.is_http
        self.durable = self._backend.is_durable
        self.is_bounded = not self._is_http
        self.request_count = self._backend.request_count
        self.under_way_size = self._backend.under_way_size
        self.notices_changes = self._backend.has_versions
        self.lists_versions = self.notices_changes and self.durable
        self.read_only = read_only or self._is_http
        self._versions = threading.local()
        self._seen: dict[str, Part] = {}
        self._together = Together(self._backend.fetch)
        # What `Elsewhere` asks for: fsspec's store of the same address.
        self._spare: Store | None = None

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at a URL; with a plain scheme fsspec's, if obstore is missing or lacks an option."""
        scheme, options = url.partition("://")[0].lower(), storage_options or {}
        if not scheme.startswith(SCHEME):
            kind = kind_of(scheme)
            if not is_installed() or (kind == "http" and ("?" in url or is_for_fsspec(options))):
                return FsspecStore.from_url(url, read_only=read_only, storage_options=options)
        address = find_address(url)
        if address.kind == "file":
            if read_only and not os.path.isdir(address.bucket):  # noqa: PTH112
                raise StoreError("cannot open: there is no such directory", path=address.bucket)
            return LocalStore.from_path(address.bucket, read_only=read_only, storage_options=options)
        return cls(url, read_only=read_only, storage_options=options)

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> Store:
        """A store around one of obstore's own, whose settings are pickled with it; its `url` lacks them."""
        address, url = address_of(target)
        if address.kind == "file":
            return LocalStore(address.bucket, read_only=read_only)
        return cls(url, read_only=read_only, target=target)

    @property
    def url(self) -> str:
        """The URL by which the store was opened."""
        return self._url

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with sizes and versions, which come in the same responses."""
        return self._parts(requests) if self._spare is None else self._spare.get_parts(requests)

    def _parts(self, requests: Sequence[Request], denied: dict[str, StoreError] | None = None) -> Parts:
        """`get_parts`.

        denied  takes by key the errors of values that may not be read, which are None then
        """
        if not requests:
            return []
        fetches = merge_requests(requests, has_ranges=self._backend.has_ranges)
        tried = self._tried(fetches)
        if tried is None and denied is not None:
            tried = [(fetch, Untried()) for fetch in fetches]
        if tried is None or _has_failed(tried):
            is_single = len(requests) == 1 and not self._is_http and not self._backend.needs_loop
            parts, versions = wait_for(self._get_parts(requests, tried, denied), is_single=is_single)
        else:
            parts, versions = self._divided(requests, tried)
        for key, version in versions.items():
            self._note_read(key, version)
        for (key, _), part in zip(requests, parts, strict=True):
            if key.endswith(DOCUMENT) and part is not None and part.total_size == len(part.data):
                self._remember(key, part.data, versions.get(key))
        return parts

    def get_each(
        self, requests: Sequence[Request], value_size: int, share: int
    ) -> Iterator[Sequence[tuple[int, Part | None]]] | None:
        """As `Store.get_each`, where libcurl can ask; what fails is asked for again at the end."""
        if self._spare is not None:
            return None
        has_ranges = self._backend.has_ranges
        fetches = each_request(requests) if has_ranges else merge_requests(requests, has_ranges=False)
        count = max(1, max(FIRST_COUNT, self.under_way_size // value_size) // share)
        found = self._backend.tried_each(fetches, count, share)
        return None if found is None else self._each(requests, found, count)

    def _each(
        self, requests: Sequence[Request], found: Iterable[Sequence[tuple[Fetch, Tried]]], count: int
    ) -> Iterator[Sequence[tuple[int, Part | None]]]:
        """The values of requests as they come; those that have failed later, so many at a time."""
        failed: list[tuple[Fetch, Tried]] = []
        for some in found:
            failed += [one for one in some if isinstance(one[1], Exception)]
            yield self._parts_of(requests, [one for one in some if not isinstance(one[1], Exception)])
            del some  # so that no bodies are held while others are waited for
        for first in range(0, len(failed), count):
            some = failed[first : first + count]
            numbers = [at for fetch, _ in some for at in fetch.members]
            places = {at: place for place, at in enumerate(numbers)}
            tries = [
                (fetch._replace(members=tuple(places[at] for at in fetch.members)), tried)
                for fetch, tried in some
            ]
            parts, versions = wait_for(self._get_parts([requests[at] for at in numbers], tries))
            for key, version in versions.items():
                self._note_read(key, version)
            yield [*zip(numbers, parts, strict=True)]

    def _parts_of(
        self, requests: Sequence[Request], replies: Sequence[tuple[Fetch, Any]]
    ) -> list[tuple[int, Part | None]]:
        """The parts that responses have of requests, with their numbers."""
        found: list[tuple[int, Part | None]] = []
        for fetch, reply in replies:
            self._note_read(fetch.key, None if reply is None else reply.version)
            found += [
                (at, None if reply is None else self._cut(fetch.key, reply, requests[at][1]))
                for at in fetch.members
            ]
        return found

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As `Store.get_first`, in one round of requests."""
        denied: dict[str, StoreError] = {}
        try:
            wish = document_range()
            parts = self._parts([(key, wish) for key in document_keys(prefixes, choices)], denied)
        except StoreError as error:
            if self._spare is None or not error.is_denied:
                raise
            return super().get_first(prefixes, choices)
        return choose_documents(prefixes, choices, [part and part.data for part in parts], denied)

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        """`get_parts`, in the caller's own loop."""
        return (await self._get_parts(requests))[0]

    def _tried(self, fetches: Sequence[Fetch]) -> list[tuple[Fetch, Tried]] | None:
        """Requests with the results of their first attempts, where this thread can make them."""
        tried = None if self._spare is not None else self._backend.tried(fetches)
        return None if tried is None else [*zip(fetches, tried, strict=True)]

    async def _get_parts(
        self,
        requests: Sequence[Request],
        tried: Sequence[tuple[Fetch, Tried]] | None = None,
        denied: dict[str, StoreError] | None = None,
    ) -> tuple[Parts, Versions]:
        """(the parts, the version of each key); `tried` are the first attempts, where they were made."""
        if self._spare is None:
            try:
                if tried is None:
                    has_ranges = self._backend.has_ranges
                    return self._divided(requests, await self._together.ask(requests, has_ranges=has_ranges))
                return self._divided(requests, await ask_all(partial(self._complete, denied), tried))
            except Elsewhere as error:
                self._go_elsewhere(error)
        assert self._spare is not None
        return await in_thread(self._spare.get_parts, requests), {}

    async def _complete(
        self, denied: dict[str, StoreError] | None, one: tuple[Fetch, Tried]
    ) -> tuple[Fetch, Reply | None]:
        """A request with its response, asked again where the first attempt has failed."""
        fetch, tried = one
        try:
            return fetch, await self._backend.fetch(fetch, tried) if isinstance(tried, Exception) else tried
        except StoreError as error:
            if denied is None or not error.is_denied:
                raise
            denied[fetch.key] = error
            return fetch, None

    def _divided(
        self, requests: Sequence[Request], replies: Sequence[tuple[Fetch, Any]]
    ) -> tuple[Parts, Versions]:
        """(the parts that responses have of requests, the version of each key)."""
        parts: Parts = [None] * len(requests)
        versions: Versions = {}
        for fetch, reply in replies:
            versions.setdefault(fetch.key, None if reply is None else reply.version)
            if reply is None:
                continue
            for index in fetch.members:
                parts[index] = self._cut(fetch.key, reply, requests[index][1])
        return parts, versions

    def _cut(self, key: str, reply: Reply, wish: ByteRange | None) -> Part:
        data, total_size = reply.data, reply.total_size
        begin, end = (0, total_size) if wish is None else wish.resolve(total_size)
        if begin != reply.begin or end - begin != data.nbytes:
            data = data[max(0, begin - reply.begin) : max(0, end - reply.begin)]
        if data.nbytes != end - begin:
            raise StoreError(
                f"asked for bytes {begin} to {end} of {total_size}, got {data.nbytes} bytes",
                path=self._url,
                key=key,
            )
        return Part(data, total_size, reply.version.strong)

    def _go_elsewhere(self, error: Elsewhere) -> None:
        if not has_aiohttp():
            raise StoreError(
                f"cannot read: {error}; expected aiohttp, which can: pip install 'zstore[http]'",
                path=self._url,
            ) from error
        options = {name: value for name, value in self._backend.options.items() if name != "retry_config"}
        self._spare = FsspecStore.from_url(self._url.removeprefix(SCHEME), storage_options=options)

    def _wait(self, request: Coroutine[Any, Any, T]) -> T:
        """The result of a single request."""
        return wait_for(request, is_single=not self._backend.needs_loop)

    @property
    def _bucket(self) -> tuple[str, str]:
        return self._backend.address.kind, self._backend.address.bucket

    def _change(self, change: Callable[[], Coroutine[Any, Any, T]], *keys: str, is_single: bool = True) -> T:
        """The result of a request that changes the bucket, or of several, where it is not `is_single`.

        It comes after those that nobody waits for.
        """
        places = [(self._bucket, self._backend.path(key)) for key in keys]
        changed = changed_in_turn(change, self._bucket, places)
        return self._wait(changed) if is_single else wait_for(changed)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Write the object, whole or not at all.

        Raises
            ChangedError: the value was read under the lock that this thread holds, and is another one now.
        """
        _only(self.put_many([key], [value]))

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> str | None:
        """Write a new object, and return its version.

        Raises
            ChangedError: it is there; a server that keeps no conditions overwrites it.
        """
        found = self.put_new_many([key], [bytes(value)])
        return super().put_new(key, value) if found is None else _only(found)

    def put_new_many(
        self, keys: Sequence[str], values: Sequence[bytes]
    ) -> Sequence[str | ChangedError | None] | None:
        """As `Store.put_new_many`, all at once; None without versions."""
        if not self._backend.has_versions:
            return None

        async def put(item: tuple[str, bytes, Any], failure: Exception | None) -> Version:
            return await self._backend.put_new(*item[:2], failure)

        found = self._put_all([(key, value, "create") for key, value in zip(keys, values, strict=True)], put)
        return [one if isinstance(one, ChangedError) else one.strong for one in found]

    def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[bytes | bytearray | memoryview],
        versions: Sequence[str | None] | None = None,
    ) -> Sequence[str | ChangedError | None]:
        """As `Store.put_many`; without `versions` on the conditions that `put` has."""
        if versions is None:
            modes = [*map(self._condition, keys)]
        else:
            modes = ["create" if version is None else Version.of(version).mode for version in versions]
        items = [(key, bytes(value), mode) for key, value, mode in zip(keys, values, modes, strict=True)]
        if conditional := [key for key, _, mode in items if mode != "overwrite"]:
            self._backend.check_conditions(conditional[0])

        async def put(item: tuple[str, bytes, Any], failure: Exception | None) -> Version:
            is_unique = versions is None or item[2] != "create"
            return await self._backend.put(*item, failure, is_unique=is_unique)

        return [one if isinstance(one, ChangedError) else one.text for one in self._put_all(items, put)]

    def _put_all(
        self,
        items: Sequence[tuple[str, bytes, Any]],
        put: Callable[[tuple[str, bytes, Any], Exception | None], Coroutine[Any, Any, Version]],
    ) -> list[Version | ChangedError]:
        """Put values, all at once, and return the new version of each, or its ChangedError.

        items  key, value and the condition of each
        put    for one that is left after the first attempt, with what came of that
        """
        for key, _, _ in items:
            check_key(key)
            self.check_writable(key)

        async def put_left(number: int) -> Version | StoreError:
            tried = tries[number]
            if isinstance(tried, Version):
                return tried
            try:
                return await put(items[number], tried)
            except StoreError as error:  # the others come to their end
                return error

        tries = self._backend.put_tried(items) if items else []
        found: Sequence[Version | StoreError] = [one for one in tries if isinstance(one, Version)]
        if len(found) < len(tries):
            keys = [key for key, _, _ in items]
            put_all = partial(ask_all, put_left, range(len(items)))
            found = self._change(put_all, *keys, is_single=len(items) == 1)
        made: list[Version | ChangedError] = []
        failures = []
        for (key, value, _), one in zip(items, found, strict=True):
            if isinstance(one, Version):
                self._note(key, one, value)
            elif not isinstance(one, ChangedError):
                failures.append(one)
                continue
            made.append(one)
        if failures:
            raise failures[0]
        return made

    def seen(self, key: str, *, again: bool = False) -> Part | None:
        """As `Store.seen`, for documents of Zarr v3 that are not very long."""
        if again and self.notices_changes:
            self._seen.pop(check_key(key), None)
            self.get(key, document_range())
        return self._seen.get(key) if self.notices_changes else None

    def put_over(self, key: str, value: bytes | bytearray | memoryview, version: str | None) -> str | None:
        """Write the object on condition of the version that it has now.

        Raises
            ChangedError: it has another one, or one that may be another writer's of the same bytes.
            StoreError: the server does not keep such conditions.
        """
        return _only(self.put_many([key], [value], [version]))

    def check_version(self, key: str, version: str | None) -> None:
        """As `Store.check_version`, by HEAD."""
        if self._wait(self._backend.head(check_key(key)))[1].text != version:
            raise changed(self._url, key)

    def delete_over(self, key: str, version: str | None) -> None:
        """Remove the object of that version; a change in the very moment of deletion is not noticed."""
        check_key(key)
        self.check_writable(key)
        self.check_version(key, version)
        self._change(partial(self._backend.delete, key))
        self._note(key, None)

    def delete(self, key: str) -> None:
        """Remove the object, if it exists.

        Raises
            ChangedError: as `put`; somebody who writes in the very moment of deletion is not noticed.
        """
        check_key(key)
        self.check_writable(key)
        mode = self._condition(key)
        if mode != "overwrite":
            found, version = self._wait(self._backend.head(key))
            if (None if found is None else version.mode) != (None if mode == "create" else mode):
                raise changed(self._url, key)
        self._change(partial(self._backend.delete, key))
        self._note(key, None)

    def delete_soon(self, key: str) -> None:
        """Remove the object, if it exists, while the caller goes on; a server that refuses keeps it."""
        check_key(key)
        self.check_writable(key)
        change_soon(partial(self._backend.delete, key), (self._bucket, self._backend.path(key)))
        self._note(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below `prefix`, many at a time."""
        check_prefix(prefix)
        self.check_writable(prefix)
        keys = self.list(prefix)
        while found := [*islice(keys, DELETED_COUNT if self.durable else None)]:
            if not self.delete_many(found):
                self._change(partial(ask_all, self._backend.delete, found), is_single=False)

    def delete_many(self, keys: Sequence[str]) -> bool:
        """Remove these objects of a bucket, a thousand by each request."""
        pages = [[*map(check_key, keys[at : at + PAGE])] for at in range(0, len(keys), PAGE)]
        if self.durable and pages:
            self.check_writable(keys[0])
            self._change(partial(ask_all, self._backend.delete, pages), is_single=len(pages) == 1)
        return self.durable

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, page by page."""
        return (entry.key for entry in self.entries(prefix))

    def entry(self, key: str) -> Entry | None:
        """The object's size and version, by HEAD; of a web server, which may show directories, by GET."""
        check_key(key)
        if self._is_http:
            [part] = self.get_parts([(key, AtMost(1))])
            return None if part is None else Entry(key, part.total_size, part.version)
        size, version = self._wait(self._backend.head(key))
        self._note_read(key, None if size is None else version)
        return None if size is None else Entry(key, size, version.strong)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all objects below `prefix`, page by page; the first page is requested at once."""
        self._check_listing(prefix)
        pages = Pages(self._backend, prefix, PAGE)
        first = pages.take()

        def each() -> Iterator[Listing]:
            yield first
            while pages.has_more:
                yield pages.take()

        return self._as_entries(prefix, each())

    def few_entries(self, prefix: str, most: int) -> Sequence[Entry] | None:
        """The entries, by one page of a listing; None if there are more than `most`."""
        self._check_listing(prefix)
        if not self.durable:
            return None
        # A page that is full ends what is asked for.
        pages = Pages(self._backend, prefix, most + 1)
        found = pages.take()
        return None if len(found) > most or pages.has_more else [*self._as_entries(prefix, [found])]

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        """Have the server copy an object of the same bucket."""
        source, source_key = source.holder(source_key)
        if not isinstance(source, ObjectStore) or not self._backend.is_beside(source._backend):
            return False
        self.check_writable(check_key(key))
        path = source._backend.path(check_key(source_key))
        return self._change(partial(self._backend.copy, key, path))

    def _as_entries(self, prefix: str, pages: Iterable[Listing]) -> Iterator[Entry]:
        # Some tools mark a directory by an empty object, whose name ends in the "/" that obstore takes away.
        above: set[str] = set()
        empty: dict[str, Entry] = {}
        top, root = self._backend.path(prefix), self._backend.path("")
        skip = len(root) + 1 if root else 0

        start = f"{top}/" if top else ""
        for page in pages:
            found = [
                Entry(meta["path"], meta["size"], meta.get("e_tag"))
                for meta in page
                if meta["path"].startswith(start)
            ]
            above.update([path.rpartition("/")[0] for path, _, _ in found])
            empty.update((one.key, one) for one in found if not one.size)
            yield from [Entry(path[skip:], size, strong_tag(tag)) for path, size, tag in found if size]
        for path, one in empty.items():
            if path not in above:
                yield Entry(path[skip:], 0, strong_tag(one.version))

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        self._check_listing(prefix)
        names, top = self._children(prefix), self._backend.path(prefix)
        found = [name for name in names if not top or name.startswith(f"{top}/")]
        return sorted({key_below(top, name).strip("/") for name in found} - {""})

    def _children(self, prefix: str) -> Names:
        """The whole paths right below `prefix`."""
        names: list[str] = []
        tokens = set[str]()
        page = self._backend.page_tried(prefix, PAGE, delimiter="/")
        while isinstance(page, ListPage):
            names += [*page.prefixes, *(meta["path"] for meta in page.objects)]
            if page.token is None:
                return names
            if page.token in tokens:
                message = f"cannot list: the server gave the continuation token {page.token!r} twice"
                raise StoreError(f"{message}; expected the next page's", path=self._url, key=prefix or None)
            tokens.add(page.token)
            page = self._backend.page_tried(prefix, PAGE, delimiter="/", token=page.token)
        return wait_for(self._backend.list_children(prefix, page))

    def _check_listing(self, prefix: str) -> None:
        check_prefix(prefix)
        if self._is_http:
            raise no_listing(self._url, prefix)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude other threads; of other processes, `put` notices the changes."""
        check_key(key)
        self.check_writable(key)
        with hold_name((self._url, key)):
            read: dict[str, Version | None] = {key: UNREAD}
            self._locks.append(read)
            try:
                yield
            finally:
                self._locks[:] = [other for other in self._locks if other is not read]

    @property
    def _locks(self) -> _Locks:
        """For each lock of this thread, the innermost last: versions by key, as read under the lock."""
        locks: _Locks = self._versions.__dict__.setdefault("locks", [])
        return locks

    def _note_read(self, key: str, version: Version | None) -> None:
        """Keep the version of a value's first read under a lock, which later writes may depend on."""
        for read in self._locks:
            if read.get(key, UNREAD) is UNREAD and (key in read or read is self._locks[-1]):
                read[key] = version

    def _note(self, key: str, version: Version | None, value: Any = None) -> None:
        """Keep the version of a value that this thread has written."""
        for read in self._locks:
            if key in read:
                read[key] = version
        self._remember(key, value, version)

    def _remember(self, key: str, data: Any, version: Version | None) -> None:
        """Keep a document for `seen`, if all of it was read or written."""
        if not key.endswith(DOCUMENT):
            return
        self._seen.pop(key, None)
        if data is not None and version is not None and version.text and len(data) <= SEEN_SIZE:
            if len(self._seen) >= SEEN_COUNT:
                self._seen.clear()
            self._seen[key] = Part(bytes(data), len(data), version.text)

    def _condition(self, key: str) -> Any:
        """The condition of a write, as a mode of obstore."""
        version = next((read[key] for read in reversed(self._locks) if key in read), UNREAD)
        if not self._backend.has_versions or version is UNREAD:
            return "overwrite"
        if version is None:
            return "create"
        return version.mode or "overwrite"

    def as_read_only(self) -> ObjectStore:
        """The same objects, refusing writes."""
        return self._with(read_only=True)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_versions", "_together", "_spare", "_seen")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _versions=threading.local(), _spare=None, _seen={})
        self._together = Together(self._backend.fetch)


def _only(found: Sequence[str | ChangedError | None]) -> str | None:
    """The version of the only value that was put.

    Raises
        ChangedError: another one is there.
    """
    [one] = found
    if isinstance(one, ChangedError):
        raise one
    return one


def _has_failed(tried: Sequence[tuple[Fetch, Tried]]) -> bool:
    return any(isinstance(one, Exception) for _, one in tried)

"""A store in an icechunk repository: one version of it for reading, or a session that is committed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

from zstore.errors import ChangedError, ReadOnlyError, StoreError
from zstore.plugin.stores import (
    STAGE,
    ByteRange,
    Names,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    Stretches,
    check_key,
    check_prefix,
    current_limits,
    hold_name,
)
from zstore_icechunk.contents import CHUNK, DOCUMENT, Contents, document_key
from zstore_icechunk.objects import ChunkObjects
from zstore_icechunk.opening import Opener
from zstore_icechunk.places import (
    Place,
    Version,
    find_place,
    library,
    message_of,
    read_version,
    split_url,
    translate_errors,
)

__all__ = ["IcechunkStore", "open_session"]

T = TypeVar("T")

# Keys of zstore's own about work under way. Nobody else sees a session, so they stay in its memory.
NOTE = re.compile(r"(?:.*/)?\.zstore-.*", re.DOTALL)
# The largest length along a dimension: an array of chunks of one item that has it holds any chunk.
MOST = (1 << 32) - 1
# How often `commit` tries to put changes on top of what others committed meanwhile.
TRIES = 100


class IcechunkStore(Store):
    """The contents of an icechunk session: a version of a repository, for reading, or a branch, for changing.

    Chunks in local files are read there by the engine, and in buckets by zstore's own requests; icechunk is
    asked for others, many at once. What is put is seen by nobody else before `commit`.

    icechunk accepts chunks only of arrays that it knows, but zstore stores the chunks of a new array before
    its document. They are put into a placeholder array, which is hidden, and which the document replaces.
    """

    def __init__(
        self,
        session: Any,
        *,
        url: str = "icechunk:",
        read_only: bool = False,
        opener: Opener | None = None,
    ) -> None:
        self._url = url
        self._opener = opener
        self._lock = threading.Lock()
        self._notes: dict[str, bytes] = {}
        # The paths of arrays that are known to exist, and of those that are placeholders.
        self._arrays: set[str] = set()
        self._placeholders: set[str] = set()
        self._use(session)
        self.read_only = read_only or session.read_only
        self._directory = None if opener is None else opener.place.directory
        is_remote = opener is not None and self._directory is None
        self._objects = ChunkObjects(opener, self._contents) if is_remote and self._has_places else None
        self.request_count = 1 if self._directory is not None else current_limits().request_count

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> IcechunkStore:
        """The store of "icechunk://PATH" or "icechunk+s3://BUCKET/PREFIX", for reading.

        Raises
            NotFoundError: there is no such repository, branch, tag or snapshot, or no state at that time.
        """
        version, _ = read_version(url, "", storage_options or {})
        return _open(Opener(find_place(url, split_url(url)), storage_options or {}), version)

    @classmethod
    def from_adapter(
        cls,
        root: str,
        given: str,
        *,
        read_only: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Store:
        """The store of "ROOT|icechunk:@branch.NAME/PATH", for reading."""
        url = f"{root}|icechunk:{given}"
        version, path = read_version(url, given, storage_options or {})
        store = _open(Opener(find_place(url, root), storage_options or {}), version)
        return PrefixStore(store, path) if path else store

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> IcechunkStore:
        """The store around icechunk's own store object, in the session of that."""
        session = target.session
        is_writable = session.branch is not None and not session.read_only
        version = f"@branch.{session.branch}" if is_writable else f"@{session.snapshot_id}"
        return cls(session, url=f"icechunk:{version}", read_only=read_only or target.read_only)

    @property
    def url(self) -> str:
        """The URL pipeline that leads to the version that was opened."""
        return self._url

    @property
    def snapshot(self) -> str:
        """The snapshot that is read, or that changes are based on."""
        return str(self._session.snapshot_id)

    @property
    def session(self) -> Any:
        """icechunk's session, for what only that can: statuses, virtual references, moving nodes."""
        return self._session

    # Reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> memoryview | None:
        """The value, or those bytes of it; None when there is no such key."""
        check_key(key)
        return self._ask(lambda: self._get(key, byte_range), "read", key)

    def get_many(self, requests: Sequence[Request]) -> list[bytes | memoryview | None]:
        """`get` for many keys, many at once."""
        return self._ask(lambda: self._get_many(requests), "read")

    async def get_many_async(self, requests: Sequence[Request]) -> list[bytes | memoryview | None]:
        """`get_many`, in the caller's own loop."""
        with self._translated("read"):
            return await self._get_many(requests)

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the sizes of the values."""
        return self._ask(lambda: self._get_parts(requests), "read")

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        """`get_parts`, in the caller's own loop."""
        with self._translated("read"):
            return await self._get_parts(requests)

    def size(self, key: str) -> int | None:
        """How many bytes the value has; None when there is no such key."""
        check_key(key)
        return self._ask(lambda: self._size(key), "read", key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`."""
        start = f"{prefix}/" if check_prefix(prefix) else ""
        notes = [key for key in [*self._notes] if key.startswith(start)]
        return iter([*notes, *self._ask(lambda: self._list(prefix), "list", prefix)])

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        start = f"{prefix}/" if check_prefix(prefix) else ""

        async def collect() -> Names:
            return [name async for name in self._contents.store.list_dir(prefix)]

        notes = {key[len(start) :].partition("/")[0] for key in [*self._notes] if key.startswith(start)}
        hidden = {"", "zarr.json"} if prefix in self._placeholders else {""}
        return sorted(({*self._ask(collect, "list", prefix)} - hidden) | notes)

    def stretches(self, prefix: str) -> Stretches | None:
        """Where the chunks of an array lie, if all are in local files or in icechunk's manifest.

        None, too, for virtual chunks, as icechunk alone knows when their sources were changed; and before
        icechunk 2, which does not say where chunks lie.
        """
        if self._directory is None or not self._has_places:
            return None
        table = self._ask(lambda: self._contents.table(prefix), "read", prefix)
        if table is None or not len(table.number):
            return None
        return Stretches(
            table.grid,
            has_c=True,
            separator="/",
            number=table.number,
            file=table.file,
            offset=table.offset,
            size=table.size,
            data=table.data,
            places=[f"{self._directory}/chunks"] if table.names else [],
            files=[(0, name, -1, -1) for name in table.names],
        )

    @property
    def _has_places(self) -> bool:
        """Whether icechunk says where chunks lie, and they stay there: in versions for reading."""
        return self._session.read_only and hasattr(self._contents.store, "array_chunk_iterator")

    def close(self) -> None:
        """Close what chunks are read from; the next use opens it again."""
        if self._objects is not None:
            self._objects.close()

    # Writing

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` in the session.

        Raises
            StoreError: the key is neither of a document of Zarr v3 nor of a chunk.
        """
        self.check_writable(check_key(key))
        document, chunk = DOCUMENT.fullmatch(key), CHUNK.fullmatch(key)
        if NOTE.fullmatch(key):
            self._notes[key] = bytes(value)
        elif document:
            with self._lock:
                self._ask(lambda: self._put_document(document[1] or "", bytes(value)), "write", key)
        elif chunk:
            path = chunk[1] or ""
            if path not in self._arrays:
                with self._lock:
                    self._ask(lambda: self._make_placeholder(path, key), "write", key)
            self._ask(lambda: self._contents.put(key, value), "write", key)
        else:
            raise StoreError(
                "icechunk keeps zarr.json and chunks below 'c/' only; expected a hierarchy of Zarr v3 with "
                "the default chunk key encoding",
                path=self.url,
                key=key,
            )

    def delete(self, key: str) -> None:
        """Remove the key, if it is there; a document takes everything in its array or group with it."""
        self.check_writable(check_key(key))
        if self._notes.pop(key, None) is not None:
            return

        async def remove() -> None:
            if await self._size(key) is not None:
                await self._contents.store.delete(key)

        document, chunk = DOCUMENT.fullmatch(key), CHUNK.fullmatch(key)
        if chunk and (chunk[1] or "") in self._arrays:
            self._ask(remove, "delete", key)
            return
        # No other thread may make the chunk's array while the chunk is looked for.
        with self._lock:
            if document:
                self._arrays = _outside(document[1] or "", self._arrays)
            self._ask(remove, "delete", key)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`."""
        self.check_writable(check_prefix(prefix))

        async def remove() -> None:
            if not prefix:
                await self._contents.store.clear()
            elif await self._list(prefix):
                await self._contents.store.delete_dir(prefix)

        start = prefix and f"{prefix}/"
        with self._lock:
            for note in [note for note in self._notes if note.startswith(start)]:
                del self._notes[note]
            self._arrays = _outside(prefix, self._arrays)
            self._ask(remove, "delete", prefix)
            self._placeholders = _outside(prefix, self._placeholders)

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude other threads that change the same key in this session; nobody else sees it."""
        self.check_writable(check_key(key))
        return hold_name((id(self), key))

    def check_writable(self, key: str) -> None:
        """Raise ReadOnlyError when this is a version for reading."""
        if self.read_only:
            raise ReadOnlyError(
                "a version of an icechunk repository is for reading only; expected "
                "zstore_icechunk.open_session(URL) to change a branch",
                path=self.url,
                key=key,
            )

    @property
    def has_changes(self) -> bool:
        """Whether something was put or deleted since the last commit."""
        return bool(self._session.has_uncommitted_changes)

    def commit(self, message: str, *, metadata: Mapping[str, Any] | None = None, rebase: bool = False) -> str:
        """Make all changes the newest state of the branch, at once; gives the snapshot.

        With `rebase`, they are first put on top of what others committed meanwhile, as by `rebase`. Later
        changes are for the next commit.

        Raises
            ChangedError: others committed meanwhile (with `rebase`: changes of the same); nothing is lost.
            StoreError: there is nothing to commit, or work is unfinished.
        """
        self.check_writable("")
        self._check_finished()
        icechunk = library()
        solver = {"rebase_with": icechunk.ConflictDetector(), "rebase_tries": TRIES} if rebase else {}
        if not self._session.has_uncommitted_changes:
            raise StoreError("there is nothing to commit: nothing was changed", path=self.url)
        branch = self._session.branch
        with self._translated("commit"), self._alone():
            snapshot = str(self._session.commit(message, dict(metadata) if metadata else None, **solver))
        if self._opener is None or self._opener.repository is None:
            self.read_only = True
        else:
            with self._translated("go on after the commit"):
                self._use(self._opener.repository.writable_session(branch))
        return snapshot

    def rebase(self) -> None:
        """Put the changes on top of what others committed to the branch meanwhile.

        Raises
            ChangedError: they changed the same chunk or document, which is named; nothing is lost.
        """
        self.check_writable("")
        with self._translated("rebase"):
            self._session.rebase(library().ConflictDetector())

    def discard(self) -> None:
        """Forget all changes since the last commit."""
        self.check_writable("")
        self._session.discard_changes()
        self._notes.clear()
        self._placeholders.clear()
        self._arrays.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._session.read_only:
            raise StoreError(
                "a session for writing stays in its process; expected its changes to be committed first",
                path=self.url,
            )
        if self._opener is None:
            return _adopt_again, (self._contents.store, self._url)
        return _open_again, (self._opener.place, self._opener.options, self.snapshot, self._url)

    def _check_finished(self) -> None:
        """Raise StoreError where work is unfinished; remove placeholder arrays that have no chunks."""
        for path in sorted(self._placeholders):
            if any(CHUNK.fullmatch(key) for key in self.list(path)):
                message = "there are chunks without their array; expected its document, too"
                raise StoreError(message, path=self.url, key=path)
            self._arrays.discard(path)
            self._ask(partial(self._contents.store.delete, document_key(path)), "delete", path)
            self._placeholders.discard(path)
        if self._notes:
            raise StoreError(
                "cannot commit: work is under way, or was interrupted; expected it finished, or discard()",
                path=self.url,
                key=min(self._notes),
            )

    # Asking icechunk

    def _use(self, session: Any) -> None:
        self._session, self._contents = session, Contents(session.store)
        self._arrays.clear()

    def _ask(self, make: Callable[[], Coroutine[Any, Any, T]], action: str, key: str = "") -> T:
        """Run a coroutine on zarr-python's event loop, and give its result."""
        from zarr.core.sync import sync

        library()
        with self._translated(action, key):
            return sync(make())

    @contextmanager
    def _translated(self, action: str, key: str = "") -> Iterator[None]:
        """A context whose errors of icechunk become errors of zstore at this store and key."""
        icechunk = library()
        secrets = [] if self._opener is None else self._opener.secrets
        try:
            with translate_errors(action, self.url, secrets):
                try:
                    yield
                except icechunk.RebaseFailedError as error:
                    raise ChangedError(_conflicts(error), path=self.url) from error
                except icechunk.ConflictError as error:
                    raise ChangedError(
                        "others committed to the branch meanwhile; expected rebase(), and to commit again",
                        path=self.url,
                    ) from error
        except StoreError as error:
            if "irtual chunk" in error.message and "authorize" in error.message:
                error.message += "; expected the storage option 'allow' to name that place"
            error.locate(path=self.url, key=key or None)
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude other processes from committing to the same directory: one of two commits would be lost."""
        if self._directory is None:
            yield
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    async def _get(self, key: str, byte_range: ByteRange | None) -> memoryview | None:
        chunk = CHUNK.fullmatch(key)
        if chunk is not None:
            return await self._contents.chunk(key, chunk[1] or "", byte_range)
        return _part(await self._own_or_document(key), byte_range)

    async def _size(self, key: str) -> int | None:
        chunk = CHUNK.fullmatch(key)
        if chunk is not None:
            return await self._contents.chunk_size(key, chunk[1] or "")
        value = await self._own_or_document(key)
        return None if value is None else len(value)

    async def _own_or_document(self, key: str) -> bytes | None:
        """A note, or a document that is not a placeholder's."""
        document = DOCUMENT.fullmatch(key)
        if document is None:
            return self._notes.get(key)
        path = document[1] or ""
        return None if path in self._placeholders else await self._contents.document(path)

    async def _put_document(self, path: str, value: bytes) -> None:
        try:
            await self._contents.put(document_key(path), value)
        except Exception:
            # icechunk refuses a group in place of an array, be it a placeholder.
            if path not in self._placeholders:
                raise
            await self._contents.store.delete(document_key(path))
            await self._contents.put(document_key(path), value)
        self._placeholders.discard(path)

    async def _make_placeholder(self, path: str, key: str) -> None:
        """Make an array that the chunk under a key, and any other, fits into, unless there is a node."""
        if await self._contents.node_type(path) is not None:
            self._arrays.add(path)
            return
        ndim = key.removeprefix(path and f"{path}/").count("/")
        document = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [MOST] * ndim,
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * ndim}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
            "attributes": {},
        }
        self._placeholders.add(path)
        await self._contents.put(document_key(path), json.dumps(document).encode())
        self._arrays.add(path)

    async def _get_many(self, requests: Sequence[Request]) -> list[bytes | memoryview | None]:
        parts, values = await self._get_all(requests)
        values |= {index: None if part is None else part.data for index, part in parts.items()}
        return [values[index] for index in range(len(requests))]

    async def _get_parts(self, requests: Sequence[Request]) -> Parts:
        parts, values = await self._get_all(requests)
        keys = [*dict.fromkeys(requests[index][0] for index in values)]
        sizes = dict(zip(keys, await _gather([partial(self._size, key) for key in keys]), strict=True))
        for index, value in values.items():
            size = sizes[requests[index][0]]
            parts[index] = None if value is None or size is None else Part(value, size)
        return [parts[index] for index in range(len(requests))]

    async def _get_all(self, requests: Sequence[Request]) -> tuple[dict[int, Part | None], dict[int, Any]]:
        """The parts read from objects, and the values that icechunk gives, by the index of the request."""
        for key, _ in requests:
            check_key(key)
        parts = {} if self._objects is None else await self._objects.get_parts(requests)
        rest = [index for index in range(len(requests)) if index not in parts]
        values = await _gather([partial(self._get, *requests[index]) for index in rest])
        return parts, dict(zip(rest, values, strict=True))

    async def _list(self, prefix: str) -> Names:
        hidden = {*map(document_key, self._placeholders)}
        return [key for key in await self._contents.list(prefix) if key not in hidden]


def _outside(prefix: str, paths: set[str]) -> set[str]:
    """The paths that are neither `prefix` nor below it."""
    start = prefix and f"{prefix}/"
    return {path for path in paths if path != prefix and not path.startswith(start)}


def _part(value: bytes | memoryview | None, byte_range: ByteRange | None) -> memoryview | None:
    if value is None:
        return None
    view = memoryview(value).toreadonly()
    begin, end = (byte_range or ByteRange(0)).resolve(len(view))
    return view[begin:end]


async def _gather(asked: Sequence[Callable[[], Coroutine[Any, Any, Any]]]) -> Any:
    """The results of coroutines, of which as many run at once as the limit `request_count` allows."""
    turn = asyncio.Semaphore(max(1, current_limits().request_count))

    async def one(ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async with turn:
            return await ask()

    return await asyncio.gather(*map(one, asked))


def _conflicts(error: Any) -> str:
    """The message for what two writers have both changed."""
    found = []
    for conflict in getattr(error, "conflicts", ()):
        kind = str(getattr(conflict.conflict_type, "name", conflict.conflict_type)).rpartition(".")[2]
        cells = getattr(conflict, "conflicted_chunks", None)
        found.append(f"{conflict.path} ({kind}{f' {[*map(tuple, cells)]}' if cells else ''})")
    what = ", ".join(found) or message_of(error)
    return (
        f"others committed changes of the same meanwhile: {what}; expected to begin again from their version"
    )


def _open(opener: Opener, version: Version, url: str | None = None) -> IcechunkStore:
    session, found = opener.session(version)
    return IcechunkStore(session, url=url or found, opener=opener)


def _open_again(place: Place, options: Mapping[str, Any], snapshot: str, url: str) -> IcechunkStore:
    return _open(Opener(place, options), Version(snapshot=snapshot), url)


def _adopt_again(store: Any, url: str) -> IcechunkStore:
    return IcechunkStore(store.session, url=url)


def open_session(
    url: str | os.PathLike[str],
    *,
    branch: str | None = None,
    create: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> IcechunkStore:
    """A store for changing a branch of a repository; nobody sees the changes before they are committed.

    url     a path, or a URL that `zstore.open` takes
    branch  "main" where neither this nor the URL says another
    create  whether to make the repository if there is none

    Raises
        NotFoundError: there is no such repository or branch.
        StoreError: the URL names a tag, a snapshot or a node.
    """
    text, given = os.fspath(url), ""
    root, *stages = STAGE.split(text)
    if stages:
        if len(stages) != 2 or stages[0] != "icechunk":
            raise StoreError("expected PATH, or URL|icechunk:@branch.NAME/", path=text)
        given = stages[1]
    elif text.startswith(("icechunk:", "icechunk+")):
        root = split_url(text)
    options = {**(storage_options or {}), **({"branch": branch} if branch is not None else {})}
    version, path = read_version(text, given, options)
    if version.branch is None or version.as_of is not None or path:
        raise StoreError("a session is of a branch; expected no tag, snapshot, time or node", path=text)
    options.pop("branch", None)
    opener = Opener(find_place(text, root), options)
    repository = opener.open(create=create)
    shown = f"{opener.place.url}|icechunk:{version.text}"
    with translate_errors("open", shown, opener.secrets):
        try:
            session = repository.writable_session(version.branch)
        except library().IcechunkError:
            opener.check(version, shown)
            raise
    return IcechunkStore(session, url=shown, opener=opener)

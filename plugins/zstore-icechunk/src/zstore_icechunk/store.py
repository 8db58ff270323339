"""A store in an icechunk repository: one version of it for reading, or a session that is committed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import numpy as np

from zstore.base.limits import current_limits
from zstore.errors import ChangedError, ReadOnlyError, StoreError
from zstore.storage.base import (
    ByteRange,
    Names,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    Stretches,
    Values,
    check_key,
    check_prefix,
    hold_name,
)
from zstore.storage.url import STAGE, open_store
from zstore_icechunk.opening import Opened
from zstore_icechunk.places import (
    Place,
    Version,
    find_place,
    library,
    read_version,
    said,
    split_url,
    telling,
)
from zstore_icechunk.table import Table

__all__ = ["IcechunkStore", "open_session"]

T = TypeVar("T")

# What icechunk keeps: documents of Zarr v3, and chunks whose numbers have 32 bits.
DOCUMENT = re.compile(r"(?:(.*)/)?zarr\.json", re.DOTALL)
CHUNK = re.compile(r"(?:(.*?)/)?c(?:/(?:0|[1-9]\d{0,8}))*", re.DOTALL)
# Notes of zstore's about work that is under way: nobody else sees a session, so they stay in its memory.
NOTE = re.compile(r"(?:.*/)?\.zstore-.*", re.DOTALL)
# The greatest shape, in chunks of one item: any chunk has its place in it.
MOST = (1 << 32) - 1
# How often a commit is done again on top of what others committed meanwhile.
TRIES = 100
VIRTUAL = 2
# Chunks of an array for which icechunk is asked, before it is asked where all are; and so many at most.
FEW, MOST_ROWS = 8, 1 << 22


class IcechunkStore(Store):
    """What an icechunk session holds: a version of a repository, for reading, or a branch, to be committed.

    Chunks that lie in local files are read there by the engine; icechunk is asked for others, many at once.
    What is put is seen by nobody else before `commit`.

    icechunk takes chunks of an array that it knows only. Those that come before their document, as zstore
    stores them so that nobody sees half of an array, are put into an array that stands in for theirs, which
    nobody is shown, and which the document makes what it says.
    """

    def __init__(
        self,
        session: Any,
        *,
        url: str = "icechunk:",
        read_only: bool = False,
        opened: Opened | None = None,
    ) -> None:
        self._session = session
        self._values = session.store
        self._url = url
        self._opened = opened
        self._lock = threading.Lock()
        self._notes: dict[str, bytes] = {}
        # Of a repository in a bucket: what its chunks are read from; by array, where these are, and how many
        # were asked for.
        self._objects: Store | None = None
        self._tables: dict[str, Table | None] = {}
        self._asked: dict[str, int] = {}
        # Arrays that are known to be there, and those of them that only stand in.
        self._arrays: set[str] = set()
        self._early: set[str] = set()
        self.read_only = read_only or session.read_only
        is_near = opened is not None and opened.place.directory is not None
        self.request_count = 1 if is_near else current_limits().request_count

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> IcechunkStore:
        """The store of "icechunk://PATH" or "icechunk+s3://BUCKET/PREFIX", for reading.

        Raises
            NotFoundError: there is no such repository, branch, tag or snapshot, or none at that time yet.
        """
        version, _ = read_version(url, "", storage_options or {})
        return _open(Opened(find_place(url, split_url(url)), storage_options or {}), version)

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
        store = _open(Opened(find_place(url, root), storage_options or {}), version)
        return PrefixStore(store, path) if path else store

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> IcechunkStore:
        """The store around icechunk's own, in the session that this has."""
        session = target.session
        is_on = session.branch is not None and not session.read_only
        version = f"@branch.{session.branch}" if is_on else f"@{session.snapshot_id}"
        return cls(session, url=f"icechunk:{version}", read_only=read_only or target.read_only)

    @property
    def url(self) -> str:
        """The URL pipeline that leads to the version that was opened."""
        return self._url

    @property
    def snapshot(self) -> str:
        """The snapshot that is read, or on which changes are made."""
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

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` for many keys, many at once."""
        for key, _ in requests:
            check_key(key)
        return self._ask(lambda: self._get_many(requests), "read")

    async def get_many_async(self, requests: Sequence[Request]) -> Values:
        """`get_many`, in the caller's own loop."""
        for key, _ in requests:
            check_key(key)
        with self._telling("read"):
            return await self._get_many(requests)

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the sizes of the values."""
        for key, _ in requests:
            check_key(key)
        return self._ask(lambda: self._get_parts(requests), "read")

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        """`get_parts`, in the caller's own loop."""
        for key, _ in requests:
            check_key(key)
        with self._telling("read"):
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
        check_prefix(prefix)

        async def collect() -> Names:
            return [name async for name in self._values.list_dir(prefix)]

        skip = len(prefix) + 1 if prefix else 0
        notes = {
            key[skip:].partition("/")[0] for key in [*self._notes] if key.startswith(prefix and f"{prefix}/")
        }
        hidden = {"", "zarr.json"} if prefix in self._early else {""}
        return sorted(({*self._ask(collect, "list", prefix)} - hidden) | notes)

    def stretches(self, prefix: str) -> Stretches | None:
        """Where the chunks of an array lie, if all are in local files or in the manifest itself.

        None, too, where icechunk does not say it (before version 2), and of virtual chunks: when theirs were
        changed is known to icechunk only.
        """
        place = self._opened.place.directory if self._opened is not None else None
        if place is None or not self._is_told:
            return None
        table = self._ask(lambda: self._table(prefix), "read", prefix)
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
            places=[f"{place}/chunks"] if table.names else [],
            files=[(0, name, -1, -1) for name in table.names],
        )

    @property
    def _is_told(self) -> bool:
        """Whether icechunk says where chunks lie, and they stay there: in versions for reading."""
        return self._session.read_only and hasattr(self._values, "array_chunk_iterator")

    def close(self) -> None:
        """Close what chunks are read from; the next use opens it again."""
        with self._lock:
            objects, self._objects = self._objects, None
        if objects is not None:
            objects.close()

    # Writing

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Keep a copy of `value` in the session.

        Raises
            StoreError: icechunk keeps documents of Zarr v3 and chunks of their arrays, and no others.
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
                    self._ask(lambda: self._stand_in(path, key), "write", key)
            self._ask(lambda: self._set(key, value), "write", key)
        else:
            raise StoreError(
                "icechunk keeps zarr.json and chunks below 'c/' only; expected a hierarchy of Zarr v3 with "
                "the default chunk key encoding",
                path=self.url,
                key=key,
            )

    def delete(self, key: str) -> None:
        """Remove the key, if it is there; with its document goes all that an array or group has."""
        self.check_writable(check_key(key))

        if self._notes.pop(key, None) is not None:
            return

        async def act() -> None:
            if await self._size(key) is not None:
                await self._values.delete(key)

        document, chunk = DOCUMENT.fullmatch(key), CHUNK.fullmatch(key)
        if chunk and (chunk[1] or "") in self._arrays:
            self._ask(act, "delete", key)
            return
        # While it is looked for, no other thread makes its array.
        with self._lock:
            if document:
                self._forget_arrays(document[1] or "")
            self._ask(act, "delete", key)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`."""
        self.check_writable(check_prefix(prefix))

        async def act() -> None:
            if not prefix:
                await self._values.clear()
            elif await self._list(prefix):
                await self._values.delete_dir(prefix)

        start = prefix and f"{prefix}/"
        with self._lock:
            for note in [note for note in self._notes if note.startswith(start)]:
                del self._notes[note]
            self._forget_arrays(prefix)
            self._ask(act, "delete", prefix)
            self._early = {path for path in self._early if path != prefix and not path.startswith(start)}

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude the other threads that change the same key in this session, which nobody else sees."""
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
        """Make the changes the newest state of the branch, all at once; gives the snapshot.

        With `rebase`, they are put on top of what others committed meanwhile, as `rebase` does. What is put
        from here on is for the next commit.

        Raises
            ChangedError: others committed meanwhile (with `rebase`: and changed the same); nothing is lost.
            StoreError: there is nothing to commit.
        """
        self.check_writable("")
        self._check_whole()
        icechunk = library()
        solver = {"rebase_with": icechunk.ConflictDetector(), "rebase_tries": TRIES} if rebase else {}
        if not self._session.has_uncommitted_changes:
            raise StoreError("there is nothing to commit: nothing was changed", path=self.url)
        branch = self._session.branch
        with self._telling("commit"), self._alone():
            snapshot = str(self._session.commit(message, dict(metadata) if metadata else None, **solver))
        if self._opened is None or self._opened.repository is None:
            self.read_only = True
        else:
            with self._telling("go on after the commit"):
                self._use(self._opened.repository.writable_session(branch))
        return snapshot

    def rebase(self) -> None:
        """Put the changes on top of what others committed to the branch meanwhile.

        Raises
            ChangedError: they changed the same chunk or document, which is named; nothing is lost.
        """
        self.check_writable("")
        with self._telling("rebase"):
            self._session.rebase(library().ConflictDetector())

    def discard(self) -> None:
        """Forget all changes since the last commit."""
        self.check_writable("")
        self._session.discard_changes()
        self._notes.clear()
        self._early.clear()
        self._arrays.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._session.read_only:
            raise StoreError(
                "a session for writing stays in its process; expected its changes to be committed first",
                path=self.url,
            )
        if self._opened is None:
            return _adopt_again, (self._values, self._url)
        return _open_again, (self._opened.place, self._opened.options, self.snapshot, self._url)

    def _check_whole(self) -> None:
        """Raise StoreError where work is under way; take away what stood in for arrays that never came."""
        for path in sorted(self._early):
            if any(CHUNK.fullmatch(key) for key in self.list(path)):
                raise StoreError(
                    "there are chunks without their array; expected it to be whole", path=self.url, key=path
                )
            self._arrays.discard(path)
            self._ask(lambda path=path: self._values.delete(_document(path)), "delete", path)
            self._early.discard(path)
        if self._notes:
            raise StoreError(
                "cannot commit: work is under way, or was interrupted; expected it finished, or discard()",
                path=self.url,
                key=min(self._notes),
            )

    def _forget_arrays(self, prefix: str) -> None:
        start = prefix and f"{prefix}/"
        self._arrays = {path for path in self._arrays if path != prefix and not path.startswith(start)}

    # Asking icechunk

    def _use(self, session: Any) -> None:
        self._session, self._values = session, session.store
        self._arrays.clear()

    def _ask(self, make: Callable[[], Coroutine[Any, Any, T]], action: str, key: str = "") -> T:
        """What a coroutine gives that runs on zarr-python's loop."""
        from zarr.core.sync import sync

        library()
        with self._telling(action, key):
            return sync(make())

    @contextmanager
    def _telling(self, action: str, key: str = "") -> Iterator[None]:
        icechunk = library()
        secrets = self._opened.secrets if self._opened is not None else []
        try:
            with telling(action, self.url, secrets):
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
        """Exclude other processes that commit to the same directory, where two at once would lose one."""
        directory = self._opened.place.directory if self._opened is not None else None
        if directory is None:
            yield
            return
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    async def _get(self, key: str, byte_range: ByteRange | None) -> memoryview | None:
        from zarr.abc.store import RangeByteRequest
        from zarr.core.buffer import default_buffer_prototype

        document, chunk = DOCUMENT.fullmatch(key), CHUNK.fullmatch(key)
        if document is None and chunk is None:
            return _part(self._notes.get(key), byte_range)
        if document is not None:
            is_hidden = (document[1] or "") in self._early
            return None if is_hidden else _part(await self._document(document[1] or ""), byte_range)
        wanted = None
        if byte_range is not None:
            # A range that reaches beyond the end is an error there.
            size = await self._size(key)
            if size is None:
                return None
            begin, end = byte_range.resolve(size)
            if begin >= end:
                return memoryview(b"")
            wanted = RangeByteRequest(begin, end)
        try:
            found = await self._values.get(key, default_buffer_prototype(), wanted)
        except Exception:
            if chunk is not None and not await self._is_array(chunk[1] or ""):
                return None
            raise
        return None if found is None else memoryview(found.as_numpy_array()).cast("B").toreadonly()

    async def _size(self, key: str) -> int | None:
        if DOCUMENT.fullmatch(key):
            value = await self._get(key, None)
            return None if value is None else len(value)
        chunk = CHUNK.fullmatch(key)
        if chunk is None:
            return len(self._notes[key]) if key in self._notes else None
        try:
            size = int(await self._values.getsize(key))
            # Of a chunk that is not there it says 0.
            return size if size or await self._values.exists(key) else None
        except Exception:
            if not await self._is_array(chunk[1] or ""):
                return None
            raise

    async def _is_array(self, path: str) -> bool:
        """Whether an array is there, of which a chunk was asked for: icechunk says it only in words."""
        return await self._node_type(path) == "array"

    async def _node_type(self, path: str) -> str | None:
        found = await self._document(path)
        return None if found is None else json.loads(found).get("node_type")

    async def _document(self, path: str) -> bytes | None:
        """The document of a node, one that stands in too; None where there is no node."""
        from zarr.core.buffer import default_buffer_prototype

        found = await self._values.get(_document(path), default_buffer_prototype())
        if found is not None:
            return bytes(found.to_bytes())
        # Of a snapshot that cannot be read icechunk 1 says here that nothing is there.
        if await self._values.exists(_document(path)):
            raise StoreError(
                "icechunk says of a document that it is there, and that it is not", path=self.url
            )
        return None

    async def _set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        from zarr.core.buffer import default_buffer_prototype

        await self._values.set(key, default_buffer_prototype().buffer.from_bytes(bytes(value)))

    async def _put_document(self, path: str, value: bytes) -> None:
        try:
            await self._set(_document(path), value)
        except Exception:
            # No group takes the place of an array, not even of one that only stands in.
            if path not in self._early:
                raise
            await self._values.delete(_document(path))
            await self._set(_document(path), value)
        self._early.discard(path)

    async def _stand_in(self, path: str, key: str) -> None:
        """Make an array that any chunk fits into, where there is no node."""
        if await self._node_type(path) is not None:
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
        self._early.add(path)
        await self._set(_document(path), json.dumps(document).encode())
        self._arrays.add(path)

    async def _get_many(self, requests: Sequence[Request]) -> Values:
        near = await self._get_objects(requests)
        rest = [number for number in range(len(requests)) if number not in near]
        asked = await _gather([lambda one=requests[number]: self._get(*one) for number in rest])
        found = {number: None if part is None else part.data for number, part in near.items()}
        found.update(zip(rest, asked, strict=True))
        return [found[number] for number in range(len(requests))]

    async def _get_parts(self, requests: Sequence[Request]) -> Parts:
        parts = await self._get_objects(requests)
        rest = [number for number in range(len(requests)) if number not in parts]
        keys = [*dict.fromkeys(requests[number][0] for number in rest)]
        sizes = dict(zip(keys, await _gather([lambda key=key: self._size(key) for key in keys]), strict=True))
        values = await _gather([lambda one=requests[number]: self._get(*one) for number in rest])
        for number, value in zip(rest, values, strict=True):
            size = sizes[requests[number][0]]
            parts[number] = None if value is None or size is None else Part(value, size)
        return [parts[number] for number in range(len(requests))]

    async def _get_objects(self, requests: Sequence[Request]) -> dict[int, Part | None]:
        """Chunks of a repository in a bucket or on a web server, by the numbers of their requests."""
        parts: dict[int, Part | None] = {}
        if not self._is_told or self._opened is None or self._opened.place.directory is not None:
            return parts
        chunks = [CHUNK.fullmatch(key) for key, _ in requests]
        paths = [None if chunk is None else chunk[1] or "" for chunk in chunks]
        tables = {
            path: await self._table_of_many(path, n) for path, n in Counter(paths).items() if path is not None
        }
        wanted: list[tuple[int, str, ByteRange, int]] = []
        for number, ((key, byte_range), path) in enumerate(zip(requests, paths, strict=True)):
            table = None if path is None else tables[path]
            if table is None:
                continue
            row = table.row(key.removeprefix(path and f"{path}/"))
            if row is None:
                parts[number] = None
                continue
            file, offset, size = int(table.file[row]), int(table.offset[row]), int(table.size[row])
            begin, end = (byte_range or ByteRange(0)).resolve(size)
            if file < 0:
                parts[number] = Part(memoryview(table.data)[offset + begin : offset + end], size)
            else:
                wanted.append((number, table.names[file], ByteRange(offset + begin, end - begin), size))
        found = await self._open_objects().get_parts_async([(name, part) for _, name, part, _ in wanted])
        for (number, name, part, size), answer in zip(wanted, found, strict=True):
            count = 0 if answer is None else len(answer.data)
            if answer is None or count != part.size:
                said = "is not there" if answer is None else f"gave {count} bytes, expected {part.size}"
                raise StoreError(f"the object chunks/{name} {said}", path=self.url, key=requests[number][0])
            parts[number] = Part(answer.data, size)
        return parts

    def _open_objects(self) -> Store:
        assert self._opened is not None
        with self._lock:
            if self._objects is None:
                options = self._opened.bucket_options or None
                url = f"{self._opened.place.url}/chunks"
                self._objects = open_store(url, read_only=True, storage_options=options)
            return self._objects

    async def _table_of_many(self, path: str, count: int) -> Table | None:
        """Where the chunks of an array lie, once so many were asked for that it is worth to ask for all."""
        self._asked[path] = self._asked.get(path, 0) + count
        if path not in self._tables and self._asked[path] >= FEW:
            self._tables[path] = await self._table(path, MOST_ROWS)
        return self._tables.get(path)

    async def _table(self, path: str, most: int | None = None) -> Table | None:
        """Where the chunks of an array lie; None of virtual ones, of more than `most`, of no array."""
        if not await self._is_array(path):
            return None
        found: Any = self._values.array_chunk_iterator(path or "/")
        batches, count = [], 0
        async for batch in found:
            batches.append(batch)
            count += len(batch[1])
            if (most is not None and count > most) or bool(np.any(batch[1] == VIRTUAL)):
                return None
        return Table.of(batches, self.url, path)

    async def _list(self, prefix: str) -> Names:
        start, above = prefix and f"{prefix}/", prefix
        while True:
            try:
                found = self._values.list_prefix(above and f"{above}/")
                hidden = {*map(_document, self._early)}
                return sorted([key async for key in found if key.startswith(start) and key not in hidden])
            except Exception:
                # It lists below arrays and groups only; what fails for another reason fails there, too.
                if not above:
                    raise
                above = above.rpartition("/")[0]


def _document(path: str) -> str:
    return f"{path}/zarr.json" if path else "zarr.json"


def _part(value: bytes | memoryview | None, byte_range: ByteRange | None) -> memoryview | None:
    if value is None:
        return None
    view = memoryview(value).toreadonly()
    begin, end = (byte_range or ByteRange(0)).resolve(len(view))
    return view[begin:end]


async def _gather(asked: Sequence[Callable[[], Coroutine[Any, Any, Any]]]) -> Any:
    turn = asyncio.Semaphore(max(1, current_limits().request_count))

    async def one(ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async with turn:
            return await ask()

    return await asyncio.gather(*map(one, asked))


def _conflicts(error: Any) -> str:
    """What two writers changed both."""
    found = []
    for conflict in getattr(error, "conflicts", ()):
        kind = str(getattr(conflict.conflict_type, "name", conflict.conflict_type)).rpartition(".")[2]
        cells = getattr(conflict, "conflicted_chunks", None)
        found.append(f"{conflict.path} ({kind}{f' {[*map(tuple, cells)]}' if cells else ''})")
    what = ", ".join(found) or said(error)
    return f"others committed changes of the same meanwhile: {what}; expected to begin again with theirs"


def _open(opened: Opened, version: Version, url: str | None = None) -> IcechunkStore:
    session, found = opened.session(version)
    return IcechunkStore(session, url=url or found, opened=opened)


def _open_again(place: Place, options: Mapping[str, Any], snapshot: str, url: str) -> IcechunkStore:
    return _open(Opened(place, options), Version(snapshot=snapshot), url)


def _adopt_again(values: Any, url: str) -> IcechunkStore:
    return IcechunkStore(values.session, url=url)


def open_session(
    url: str | os.PathLike[str],
    *,
    branch: str | None = None,
    create: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> IcechunkStore:
    """A store for changing a branch of a repository: nobody sees the changes before they are committed.

    `url` is a path, or what `zstore.open` takes; `branch` is "main" where neither says another. With
    `create`, a repository that is not there is made.

    Raises
        NotFoundError: there is no such repository or branch.
        StoreError: the URL says a tag, a snapshot or a node.
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
    opened = Opened(find_place(text, root), options)
    repository = opened.open(create=create)
    shown = f"{opened.place.url}|icechunk:{version.text}"
    with telling("open", shown, opened.secrets):
        try:
            session = repository.writable_session(version.branch)
        except library().IcechunkError:
            opened.check(version, shown)
            raise
    return IcechunkStore(session, url=shown, opened=opened)

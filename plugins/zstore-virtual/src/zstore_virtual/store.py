"""A store whose values are byte ranges of other files, as a manifest says."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from zstore.errors import ReadOnlyError, StoreError
from zstore.plugin.kernels import Tree
from zstore.plugin.stores import (
    BatchStore,
    ByteRange,
    Names,
    Part,
    Parts,
    Request,
    Store,
    Stretches,
    check_key,
    check_prefix,
    current_limits,
    current_storage_options,
    open_store,
)
from zstore_virtual.forms import open_manifest, plain_address
from zstore_virtual.manifest import WHOLE, Manifest, Reference, Source
from zstore_virtual.places import Place, Places, folder_of, open_place
from zstore_virtual.virtualizarr import manifest_of, stores_of

__all__ = ["VirtualStore"]

OPTIONS = ("allow", "remote_options", "target_options")
FLAGS = os.O_RDONLY | os.O_NONBLOCK


class _Read(NamedTuple):
    """A byte range to read from a source.

    request  index of the request that it answers
    source   number of the source
    name     of the source below its place
    wanted   the byte range
    size     of the whole value; None: the value is the whole source
    """

    request: int
    source: int
    name: str
    wanted: ByteRange
    size: int | None


# Defined out here because in the class `list` is the method.
Reads = dict[Place, list[_Read]]


class VirtualStore(BatchStore):
    """The documents of a manifest and the values that it refers to, for reading only.

    allow           directories and URLs that references may lead to, with everything below them; by default
                    the directory or prefix that the manifest's file is in
    stores          open stores of places, by URL
    remote_options  storage options of sources that are not local files; None: those of the call that opens
                    the store, which other threads do not see
    target_options  storage options of the manifest's own file

    A source whose size, modification time or entity tag is not what the manifest says is an error. Where the
    manifest says no tag, every answer must have the tag of the first.
    """

    is_bounded = False
    read_only = True

    def __init__(
        self,
        manifest: Manifest,
        *,
        url: str | None = None,
        allow: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        remote_options: Mapping[str, Any] | None = None,
        target_options: Mapping[str, Any] | None = None,
        stores: Mapping[str, Store] | None = None,
    ) -> None:
        self.manifest = manifest
        self._address = url
        if remote_options is None:
            said = current_storage_options() or {}
            remote_options = {name: value for name, value in said.items() if name != "allow"} or None
        self._remote_options, self._target_options = remote_options, target_options
        base = None if url is None else folder_of(url)
        if allow is None:
            allow = [*(stores or {})] if base is None else [base]
        elif isinstance(allow, str | os.PathLike):
            allow = [allow]
        self._allow = [os.fspath(place) for place in allow]
        self._places = Places(self._allow, base)
        self._found: dict[int, tuple[Place, str]] = {}
        self._given = dict(stores or {})
        self._stores: dict[Place, Store] = {}
        self._seen: dict[int, tuple[int, str | None]] = {}
        self._lock = threading.Lock()
        self.request_count = 1 if self._places.are_local else current_limits().request_count

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> VirtualStore:
        """The store of the manifest at "virtual://PATH" or "virtual::URL"."""
        options = dict(storage_options or {})
        unknown = sorted(options.keys() - {*OPTIONS})
        if unknown:
            raise StoreError(f"unknown storage options {unknown}; expected {', '.join(OPTIONS)}", path=url)
        address = url.partition("::")[2] if url.startswith("virtual::") else url.partition("://")[2]
        if not address:
            raise StoreError("expected virtual://PATH or virtual::URL", path=url)
        address = plain_address(address)
        manifest = open_manifest(address, storage_options=options.get("target_options"))
        return cls(manifest, url=address, **options)

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> VirtualStore:
        """The store around VirtualiZarr's `ManifestStore`; the places in its registry are allowed."""
        stores = stores_of(target)
        remote = {
            url.rstrip("/"): open_store(store) for url, store in stores.items() if not url.startswith("file:")
        }
        local = [url.removeprefix("file://") or "/" for url in stores if url.startswith("file:")]
        return cls(manifest_of(target), allow=[*local, *remote], stores=remote)

    @property
    def url(self) -> str:
        """ "virtual://" and the path of the manifest, or "virtual::" and its URL."""
        address = self._address or "(memory)"
        return f"virtual::{address}" if "://" in address else f"virtual://{address}"

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the sizes of the values."""
        parts, planned = self._plan(requests)
        for place, reads in planned.items():
            if place.is_local:
                self._read_local(place, reads, parts)
            else:
                found = self._store(place).get_parts([(read.name, read.wanted) for read in reads])
                self._take(reads, found, parts)
        return parts

    async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
        """`get_parts`, in the caller's own loop."""
        parts, planned = self._plan(requests)
        for place, reads in planned.items():
            if place.is_local:
                self._read_local(place, reads, parts)
            else:
                found = await self._store(place).get_parts_async([(read.name, read.wanted) for read in reads])
                self._take(reads, found, parts)
        return parts

    def size(self, key: str) -> int | None:
        """How many bytes the value has; None when there is no such key."""
        found = self.manifest.find(check_key(key))
        if not isinstance(found, Reference):
            return None if found is None else len(found)
        if found.size != WHOLE:
            return found.size
        [part] = self.get_parts([(key, ByteRange(0, 0))])
        return None if part is None else part.total_size

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`."""
        return self.manifest.list_keys(check_prefix(prefix))

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`."""
        return self.manifest.children(check_prefix(prefix))

    def put(self, key: str, value: bytes | bytearray | memoryview) -> NoReturn:
        """Refused: the values are those of other files."""
        check_key(key)
        raise ReadOnlyError("a manifest of other files is for reading only", path=self.url, key=key)

    def delete(self, key: str) -> NoReturn:
        """Refused, as `put` is."""
        self.put(key, b"")

    def as_read_only(self) -> VirtualStore:
        """This store, which is for reading anyway."""
        return self

    def origin(self, key: str) -> str | None:
        """The byte range and source of a value, in words; None where it is in the manifest itself."""
        found = self.manifest.find(key)
        return self._describe(found) if isinstance(found, Reference) else None

    def stretches(self, prefix: str) -> Stretches | None:
        """Where the chunks of an array lie, if all its sources are local files."""
        chunks = self.manifest.table(prefix, self._places.is_local)
        if chunks is None:
            return None
        used = np.unique(chunks.source)
        used = used[used >= 0]
        places: dict[str, int] = {}
        files = []
        for number in used.tolist():
            place, name = self._find(number)
            if not place.is_local:
                return None
            source = self.manifest.sources[number]
            size, modified = (-1 if fact is None else fact for fact in (source.size, source.modified))
            files.append((places.setdefault(place.address, len(places)), name, size, modified))
        file = chunks.source
        if len(used) != len(self.manifest.sources):
            file = np.where(file < 0, file, np.searchsorted(used, file)).astype(np.int32)
        for path in places:
            if not os.path.isdir(path):  # noqa: PTH112
                raise StoreError(f"there is no directory {path!r}, to which references lead", path=self.url)
        return Stretches(
            chunks.grid,
            bool(chunks.keys.prefix),
            chunks.keys.separator,
            chunks.numbers,
            file,
            chunks.offset,
            chunks.size,
            chunks.inline,
            [*places],
            files,
        )

    def close(self) -> None:
        """Close the stores of the sources; the next use opens them again."""
        with self._lock:
            stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        options = {
            "url": self._address,
            "allow": self._allow,
            "remote_options": self._remote_options,
            "target_options": self._target_options,
            "stores": self._given,
        }
        return partial(type(self), **options), (self.manifest,)

    def _find(self, number: int) -> tuple[Place, str]:
        """The place of a source, and its name there."""
        found = self._found.get(number)
        if found is None:
            if not 0 <= number < len(self.manifest.sources):
                raise StoreError(
                    f"a reference names source {number} of {len(self.manifest.sources)}", path=self.url
                )
            try:
                found = self._found[number] = self._places.find(self.manifest.sources[number].address)
            except StoreError as error:
                raise error.locate(path=self.url) from None
        return found

    def _store(self, place: Place) -> Store:
        with self._lock:
            store = self._stores.get(place)
            if store is None:
                given = self._given.get(place.address)
                store = open_place(place, self._remote_options) if given is None else given
                self._stores[place] = store
        return store

    def _plan(self, requests: Sequence[Request]) -> tuple[Parts, Reads]:
        """The parts that are in the manifest itself, and what to read from each place for the others."""
        parts: Parts = [None] * len(requests)
        planned: Reads = {}
        for index, (key, byte_range) in enumerate(requests):
            found = self.manifest.find(check_key(key))
            if found is None:
                continue
            if not isinstance(found, Reference):
                begin, end = (byte_range or ByteRange(0)).resolve(len(found))
                whole = begin == 0 and end == len(found)
                parts[index] = Part(found if whole else memoryview(found)[begin:end], len(found))
                continue
            place, name = self._find(found.source)
            if found.size != WHOLE:
                begin, end = (byte_range or ByteRange(0)).resolve(found.size)
                wanted, size = ByteRange(found.offset + begin, end - begin), found.size
            elif found.offset == 0:
                wanted, size = byte_range or ByteRange(0), None
            else:
                raise StoreError(
                    "a reference from within a file to its end has no size; expected one",
                    path=self.url,
                    key=key,
                )
            planned.setdefault(place, []).append(_Read(index, found.source, name, wanted, size))
        return parts, planned

    def _read_local(self, place: Place, reads: Sequence[_Read], parts: Parts) -> None:
        """Read byte ranges of files in a directory; a file stays open as long as reads of it follow."""
        tree, file, opened = None, -1, None
        try:
            for read in reads:
                try:
                    tree = tree or Tree(place.address)
                    if opened != read.source:
                        if file >= 0:
                            os.close(file)
                            file = -1
                        file, opened = tree.open(read.name, FLAGS), read.source
                    parts[read.request] = self._read_file(file, read)
                except OSError as error:
                    if isinstance(error, StoreError) or error.errno is None:
                        raise
                    raise self._failed(read, f"cannot read: {error.strerror}", error.errno) from error
        finally:
            if file >= 0:
                os.close(file)

    def _read_file(self, file: int, read: _Read) -> Part:
        """Read a byte range of an open file."""
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise self._failed(read, "cannot read: expected a plain file")
        self._check(read, status.st_size, status.st_mtime_ns, None)
        begin, end = read.wanted.resolve(status.st_size)
        data = os.pread(file, end - begin, begin) if end > begin else b""
        while len(data) < end - begin and (
            more := os.pread(file, end - begin - len(data), begin + len(data))
        ):
            data += more
        return self._part(read, data, status.st_size)

    def _take(self, reads: Sequence[_Read], found: Parts, parts: Parts) -> None:
        """Put what a remote place has answered into `parts`, once each source is checked."""
        for read, part in zip(reads, found, strict=True):
            if part is None:
                raise self._failed(read, "cannot read: it is not there")
            self._check(read, part.total_size, None, part.version)
            parts[read.request] = self._part(read, part.data, part.total_size)

    def _part(self, read: _Read, data: bytes | memoryview, total: int) -> Part:
        if read.size is None:
            return Part(data, total)
        if len(data) != read.wanted.size:
            raise self._failed(read, f"it gave {len(data)} bytes, expected {read.wanted.size}")
        return Part(data, read.size)

    def _check(self, read: _Read, total: int, modified: int | None, tag: str | None) -> None:
        """Raise StoreError where a source is not what it was, or ends before the byte range does."""
        source: Source = self.manifest.sources[read.source]
        end = read.wanted.start + (read.wanted.size or 0)
        if read.size is not None and end > total:
            raise self._failed(read, f"it has {total} bytes; expected {end} at least")
        if source.size is not None and source.size != total:
            raise self._failed(read, f"it has changed: it has {total} bytes, expected {source.size}")
        if modified is not None:
            if source.modified is not None and source.modified != modified:
                raise self._failed(read, "it has changed: it was modified at another time")
            return
        known = self._seen.setdefault(read.source, (total, source.tag if source.tag is not None else tag))
        if known[0] != total or (known[1] is not None and tag is not None and known[1] != tag):
            raise self._failed(read, f"it has changed: its entity tag is {tag!r}, expected {known[1]!r}")

    def _failed(self, read: _Read, reason: str, number: int | None = None) -> StoreError:
        source = self.manifest.sources[read.source].address
        error = StoreError(f"a reference leads to {source!r}: {reason}", path=self.url)
        error.errno = number
        return error

    def _describe(self, found: Reference) -> str:
        address = self.manifest.sources[found.source].address
        if found.size == WHOLE:
            return (
                f"the whole of {address!r}" if not found.offset else f"{address!r} from byte {found.offset}"
            )
        return f"bytes {found.offset} to {found.offset + found.size} of {address!r}"

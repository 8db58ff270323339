"""A zip file on disk that is being changed: values are appended beside it, and replace it when flushed."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import threading
import weakref
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from zstore._ext.engine.files import SCRATCH
from zstore.errors import StoreError
from zstore.storage.locking import NO_LOCKS
from zstore.storage.zip.directory import (
    DEFLATED,
    STORED,
    Member,
    parse_directory,
    render_directory,
    render_local,
)
from zstore.storage.zip.members import Entry, locate
from zstore.storage.zip.sources import FileSource, Source

__all__ = ["Archive", "open_archive"]

COPY_SIZE = 8 << 20
Identity = tuple[int, int, int, int]
ANOTHER: Identity = (-1, -1, -1, -1)


class Archive:
    """The members of one zip file, those not flushed yet among them; all stores of this process share it.

    Values that are put go to a file beside the zip file, `.zstore-tmp.` before its name. Its flock makes this
    process the only writer; a file that can be locked has lost its writer, and is overwritten by the next.
    `flush` completes it, or copies what still counts together with the old members, and renames the result to
    the zip file's name: nobody sees half a zip file, and no member is in it twice.
    """

    _scratch: _Scratch | None = None

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.comment = b""
        self._identity: Identity | None = None
        self._guard = threading.RLock()
        self._names: list[str] | None = None
        self.refresh()

    @classmethod
    def of_source(cls, source: Source) -> Archive:
        """The members of a zip file that is not a file on disk; these never change."""
        archive = cls.__new__(cls)
        archive.path = source.url
        archive._identity, archive._guard, archive._names = None, threading.RLock(), None
        members, archive.comment = parse_directory(source)
        archive.entries = {name: Entry(source, member) for name, member in members.items()}
        return archive

    def refresh(self) -> None:
        """Read the directory again where others have replaced the file, unless values wait to be flushed."""
        with self._guard, self._telling("open"):
            identity = self._identify()
            if self._scratch is not None or (identity == self._identity and identity is not None):
                return
            if identity is None:
                self.entries, self.comment = {}, b""
            else:
                source = FileSource(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC), self.path)
                identity = _identity(os.fstat(source.descriptor))
                members, self.comment = parse_directory(source)
                self.entries = {name: Entry(source, member) for name, member in members.items()}
            self._identity, self._names = identity, None

    def names(self) -> list[str]:
        """Every key, sorted; not to be changed."""
        with self._guard:
            if self._names is None:
                self._names = sorted(self.entries)
            return self._names

    def names_below(self, prefix: str) -> list[str]:
        """The keys below `prefix`, sorted."""
        names = self.names()
        if not prefix:
            return names[:]
        # "0" is the character after "/".
        return names[bisect_left(names, f"{prefix}/") : bisect_left(names, f"{prefix}0")]

    def children(self, prefix: str) -> list[str]:
        """The names right below `prefix`, found without looking at what lies below them."""
        names = self.names()
        skip = len(prefix) + 1 if prefix else 0
        end = bisect_left(names, f"{prefix}0") if prefix else len(names)
        place = bisect_left(names, f"{prefix}/") if prefix else 0
        found = set()
        while place < end:
            name, slash, _ = names[place][skip:].partition("/")
            found.add(name)
            place = bisect_left(names, f"{names[place][:skip]}{name}0", place) if slash else place + 1
        return sorted(found)

    def begin(self) -> None:
        """Become the only writer of the file, until the next flush."""
        with self._guard:
            if self._scratch is None:
                with self._telling("write"):
                    scratch = _Scratch(self.path)
                try:
                    self.refresh()
                except BaseException:
                    scratch.leave()
                    raise
                self._scratch = scratch

    def put(self, name: str, value: memoryview, *, deflate: bool) -> None:
        """Append `value` beside the zip file; `flush` makes it a part of it."""
        self.begin()
        crc, size = zlib.crc32(value), value.nbytes
        method, data = STORED, value
        if deflate:
            pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            method, data = DEFLATED, memoryview(pack.compress(value) + pack.flush())
        member = Member(name, method, crc, data.nbytes, size, 0, len(name.encode()))
        with self._guard, self._telling("write", name):
            self.begin()  # again, as somebody may have flushed meanwhile
            scratch = self._writing()
            old = self.entries.get(name)
            entry = scratch.append(member, data)
            self.entries[name] = entry
            scratch.is_changed = True
            scratch.has_waste |= old is not None and old.source is scratch.source
            if old is None:
                self._names = None

    def delete(self, names: list[str]) -> None:
        """Leave these members out."""
        with self._guard:
            if not any(name in self.entries for name in names):
                return
            self.begin()
            scratch = self._writing()
            for name in names:
                old = self.entries.pop(name, None)
                scratch.is_changed |= old is not None
                scratch.has_waste |= old is not None and old.source is scratch.source
            self._names = None

    def _writing(self) -> _Scratch:
        assert self._scratch is not None
        return self._scratch

    def flush(self) -> None:
        """Replace the zip file by one with every change so far; does nothing where nothing was changed."""
        with self._guard:
            scratch = self._scratch
            if scratch is None:
                return
            if scratch.is_changed:
                with self._telling("write"):
                    self._replace(scratch)
            scratch.leave()
            self._scratch = None

    def _replace(self, scratch: _Scratch) -> None:
        found = self._identify()
        if found != self._identity:
            raise StoreError(
                "cannot write: others changed the zip file while changes of this process were waiting, which "
                "are kept beside it; expected no other writer",
                path=self.path,
            )
        is_own = all(entry.source is scratch.source for entry in self.entries.values())
        if is_own and not scratch.has_waste:
            source = scratch.source
            scratch.finish([entry.member for entry in self.entries.values()], self.comment, self.path)
        else:
            source, copies = scratch.rewrite([*self.entries.values()], self.comment, self.path)
            self.entries = {copy.member.name: copy for copy in copies}
        # Not what has the name by now, which may be another writer's already.
        self._identity = _identity(os.fstat(source.descriptor))

    def _identify(self) -> Identity | None:
        try:
            return _identity(os.stat(self.path))  # noqa: PTH116
        except FileNotFoundError:
            return None

    def after_fork(self) -> None:
        """In a child process: what the parent is about to write is the parent's."""
        self._guard = threading.RLock()
        if self._scratch is not None:
            self._scratch.share()
            # Its values can be read until this process writes, which is when they are gone or flushed.
            self._scratch, self._identity = None, ANOTHER

    def __del__(self) -> None:
        if self._scratch is not None:
            self.flush()

    @contextmanager
    def _telling(self, action: str, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            failure = StoreError(f"cannot {action}: {error.strerror or error}", path=self.path, key=key)
            failure.errno = error.errno
            raise failure from error


class _Scratch:
    """The file beside the zip file, locked for this process, and where in it the next member goes."""

    def __init__(self, path: str) -> None:
        above, name = os.path.split(path)
        self.path = os.path.join(above, f"{SCRATCH}.{name}")  # noqa: PTH118
        os.makedirs(above, exist_ok=True)  # noqa: PTH103
        descriptor = self._own(path)
        os.ftruncate(descriptor, 0)
        self.source = FileSource(descriptor, path)
        self.end = 0
        self.is_changed = False
        self.has_waste = False

    def _own(self, path: str) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise StoreError(
                    "cannot write: another process is writing the zip file; expected one writer at a time",
                    path=path,
                ) from error
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    os.close(descriptor)
                    raise
            # Its last owner may have renamed or removed it just now.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):  # noqa: PTH116
                    return descriptor
            os.close(descriptor)

    def append(self, member: Member, data: memoryview) -> Entry:
        """Write a member behind the others."""
        member = member._replace(offset=self.end)
        header = render_local(member)
        _write(self.source.descriptor, self.end, header)
        _write(self.source.descriptor, self.end + len(header), data)
        begin = self.end + len(header)
        self.end = self.source.size = begin + data.nbytes
        return Entry(self.source, member, begin)

    def finish(self, members: list[Member], comment: bytes, path: str) -> None:
        """Write the directory behind the members, and give the file the zip file's name."""
        table = render_directory(members, self.end, comment)
        _write(self.source.descriptor, self.end, table)
        os.ftruncate(self.source.descriptor, self.end + len(table))
        self._enter(self.source.descriptor, self.path, path)

    def rewrite(self, entries: list[Entry], comment: bytes, path: str) -> tuple[FileSource, list[Entry]]:
        """Copy what counts, of the old file and of this one, into a third, and give that the name."""
        place = f"{self.path}.new"
        # Nobody but the holder of this file's lock makes that one.
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        target = FileSource(descriptor, path)
        try:
            copies = _copy(entries, target)
            table = render_directory([copy.member for copy in copies], target.size, comment)
            _write(descriptor, target.size, table)
            self._enter(descriptor, place, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(place)  # noqa: PTH108
            raise
        return target, copies

    def _enter(self, descriptor: int, name: str, path: str) -> None:
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, os.stat(path).st_mode & 0o7777)  # noqa: PTH116
        # A zip file is replaced as a whole: what a power cut may take is all of it.
        os.fsync(descriptor)
        os.replace(name, path)  # noqa: PTH105

    def share(self) -> None:
        """In a forked child: keep the file for reading, and leave its lock to the parent alone."""
        # Where there is no /proc, the child has a part in the lock until it ends.
        with suppress(FileNotFoundError):
            fresh = os.open(f"/proc/self/fd/{self.source.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(fresh, self.source.descriptor, inheritable=False)
            os.close(fresh)

    def leave(self) -> None:
        """Let the next writer in."""
        descriptor = self.source.descriptor
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):  # noqa: PTH116
                os.unlink(self.path)  # noqa: PTH108
        # Closing alone would leave the lock with a child process that was forked meanwhile.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _copy(entries: list[Entry], target: FileSource) -> list[Entry]:
    copies = []
    end = 0
    for entry in entries:
        begin = locate(entry)
        member = entry.member._replace(offset=end, name_size=len(entry.member.name.encode()))
        header = render_local(member)
        _write(target.descriptor, end, header)
        end += len(header)
        copies.append(Entry(target, member, end))
        for place in range(0, member.packed_size, COPY_SIZE):
            size = min(COPY_SIZE, member.packed_size - place)
            _write(target.descriptor, end + place, entry.source.read(begin + place, size))
        end += member.packed_size
    target.size = end
    return copies


def _write(descriptor: int, place: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view.nbytes:
        count = os.pwrite(descriptor, view, place)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, place = view[count:], place + count


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_archives: weakref.WeakValueDictionary[str, Archive] = weakref.WeakValueDictionary()
_archives_guard = threading.Lock()


def open_archive(path: str) -> Archive:
    """The archive of the zip file at `path`: the one that this process has open already, or another."""
    place = os.path.realpath(path)
    with _archives_guard:
        archive = _archives.get(place)
        if archive is None:
            archive = _archives[place] = Archive(place)
        else:
            archive.refresh()
    return archive


def _flush_all() -> None:
    with ExitStack() as stack:
        for archive in [*_archives.values()]:
            stack.callback(archive.flush)


def _after_fork() -> None:
    global _archives_guard
    _archives_guard = threading.Lock()
    for archive in [*_archives.values()]:
        archive.after_fork()


atexit.register(_flush_all)
os.register_at_fork(after_in_child=_after_fork)

"""Changing a zip file on disk: values are appended to a file beside it, which replaces it on flushing."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import threading
import weakref
import zlib
from contextlib import ExitStack, suppress
from tempfile import TemporaryFile
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED

from zstore._ext.engine.files import SCRATCH
from zstore.base.system import reopen
from zstore.errors import StoreError
from zstore.storage.base import NO_LOCKS, Changes, failing
from zstore.storage.local import confirm_directory, steady
from zstore.storage.zip.members import Directory, Member, is_value, locate, render_directory
from zstore.storage.zip.sources import Bytes, FileSource

COPY_SIZE = 8 << 20
# Documents, and what work leaves beside them (".zstore-job"): mostly put again, or removed, before the flush.
PASSING = re.compile(r"(^|/)\.|\.json$")
Identity = tuple[int, int, int, int]
Members = dict[str, Member]
ANOTHER: Identity = (-1, -1, -1, -1)


class Archive(Directory):
    """The members of one zip file, flushed or not, which all stores of this process share.

    Values that are put go to a draft: a file beside the zip file, with ".zstore-tmp." before its name. A lock
    (flock) on it makes this process the only writer; a draft without a lock has lost its writer and is
    overwritten. `flush` completes the draft by the members that are elsewhere, or copies all to a new file
    where some of the draft's were put again or removed, and renames the result to the zip file's name, so
    that it is replaced as a whole and has no member twice.
    """

    _draft: _Draft | None = None
    durable = False
    """Whether the name is flushed to disk, too, when the zip file is replaced."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._identity: Identity | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the directory again if others have replaced the file, unless there are values to flush."""
        with self._guard, failing("open", self.path):
            identity = self._identify()
            if self._draft is not None or (identity == self._identity and identity is not None):
                return
            if identity is None:
                self.members, self.comment, self._names = {}, b"", None
            else:
                source = FileSource(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC), self.path)
                identity = _identity(os.fstat(source.descriptor))
                self.parse(source)
            self._identity = identity

    def begin(self) -> _Draft:
        """Become the only writer of the file, until the next flush."""
        with self._guard:
            draft = self._draft
            if draft is None:
                with failing("write", self.path):
                    draft = _Draft(self.path)
                try:
                    self.refresh()
                except BaseException:
                    draft.release()
                    raise
                self._draft = draft
            return draft

    def put(self, name: str, value: bytes | bytearray | memoryview, *, deflate: bool) -> None:
        """Append a value to the draft."""
        self.begin()
        packed = _Packed.of(value, deflate=deflate)
        with self._guard, failing("write", self.path, name):
            self._put(name, packed)

    def _put(self, name: str, packed: _Packed) -> None:
        draft = self.begin()  # again, as another thread may have flushed meanwhile
        source = draft.aside() if PASSING.search(name) else draft.source
        member = Member(source, name, packed.method, packed.crc, packed.data.nbytes, packed.size, source.size)
        _append(member, source, packed.data)
        if name not in self.members:
            self._names = None
        draft.record(self.members.get(name))
        self.members[name] = member

    def swap(self, changes: Changes, *, deflate: bool) -> bool:
        """As `Store.swap`."""
        packed = {
            name: None if new is None else _Packed.of(new, deflate=deflate)
            for name, (_, new) in changes.items()
            if new is not ...
        }
        with self._guard, failing("write", self.path):
            self.begin()  # so that the members are those of the file as others have left it
            for name, (old, _) in changes.items():
                if old is not ... and not is_value(self.members.get(name), old):
                    return False
            for name, one in packed.items():
                if one is None:
                    self.delete([name])
                else:
                    self._put(name, one)
            return True

    def delete(self, names: list[str]) -> None:
        """Remove these members."""
        with self._guard:
            if any(name in self.members for name in names):
                draft = self.begin()
                for name in names:
                    if name in self.members:
                        draft.record(self.members.pop(name))
                self._names = None

    def delete_below(self, prefix: str) -> None:
        """Remove the members below a prefix in one step."""
        with self._guard:
            self.delete(self.names_below(prefix))

    def flush(self) -> None:
        """Replace the zip file by one with all changes so far, if there are any."""
        with self._guard:
            draft = self._draft
            if draft is None:
                return
            if draft.is_changed:
                with failing("write", self.path):
                    self._replace(draft)
            self._draft = None  # whatever fails from here on: its file may be the zip file now
            draft.release()

    def _replace(self, draft: _Draft) -> None:
        if self._identify() != self._identity:
            raise StoreError(
                "cannot write: others changed the zip file while changes of this process were waiting, which "
                "are kept beside it; expected no other writer",
                path=self.path,
            )
        replace = draft.rewrite if draft.has_waste else draft.finish
        self.members, self._identity = replace([*self.members.values()], self.comment, self.path)
        if self.durable:
            confirm_directory(os.path.dirname(self.path))  # noqa: PTH120

    def _identify(self) -> Identity | None:
        try:
            return _identity(os.stat(self.path))  # noqa: PTH116
        except FileNotFoundError:
            return None

    def after_fork(self) -> None:
        """In a child process: leave the draft to the parent."""
        self._guard = threading.RLock()
        if self._draft is not None:
            self._draft.share()
            # Its values can be read until this process writes; the parent has then flushed or lost them.
            self._draft, self._identity = None, ANOTHER


class _Packed(NamedTuple):
    """A value as a member has it."""

    method: int
    data: memoryview
    crc: int
    size: int

    @classmethod
    def of(cls, value: bytes | bytearray | memoryview, *, deflate: bool) -> _Packed:
        """Pack a value, deflated or as it is."""
        view = memoryview(value)
        view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
        method, data = ZIP_STORED, view
        if deflate:
            pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            method, data = ZIP_DEFLATED, memoryview(pack.compress(view) + pack.flush())
        return cls(method, data, zlib.crc32(view), view.nbytes)


class _Draft:
    """The file to which members are appended, locked for this process."""

    def __init__(self, path: str) -> None:
        above, name = os.path.split(path)
        self.path = os.path.join(above, f"{SCRATCH}.{name}")  # noqa: PTH118
        # Only the process that has the draft's lock makes this file.
        self.copy_path = os.path.join(above, f"{SCRATCH}-new.{name}")  # noqa: PTH118
        os.makedirs(above, exist_ok=True)  # noqa: PTH103
        descriptor = self._own(path)
        try:
            os.ftruncate(descriptor, 0)
            with suppress(FileNotFoundError):
                os.unlink(self.copy_path)  # noqa: PTH108 - of a writer that was killed
        except BaseException:
            os.close(descriptor)  # and with it the lock
            raise
        self.source = FileSource(descriptor, path)
        self._aside: FileSource | None = None
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
            if self._is_mine(descriptor):
                return descriptor
            os.close(descriptor)

    def _is_mine(self, descriptor: int) -> bool:
        """Whether the draft's name is still that of the open file."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))  # noqa: PTH116
        return False

    def record(self, old: Member | None) -> None:
        """Record that a member was put or deleted; `old` is the previous one of that name."""
        self.is_changed = True
        self.has_waste |= old is not None and old.source is self.source

    def aside(self) -> FileSource:
        """The file for values that pass, which has no name and goes with this process."""
        if self._aside is None:
            with TemporaryFile(dir=os.path.dirname(self.path)) as file:  # noqa: PTH120
                self._aside = FileSource(os.dup(file.fileno()), self.source.url)
        return self._aside

    def finish(self, members: list[Member], comment: bytes, path: str) -> tuple[Members, Identity]:
        """Copy the members that are elsewhere, write the directory, and rename the draft to the zip file."""
        source, end = self.source, self.source.size
        try:
            copies = [member if member.source is source else _copy(member, source) for member in members]
            size = source.size
            source.append(render_directory(copies, size, comment))
            os.ftruncate(source.descriptor, source.size)
            made = {member.name: member for member in copies}
            identity = self._publish(source.descriptor, self.path, path)
        except BaseException:
            source.size = end
            raise
        source.size = size
        return made, identity

    def rewrite(self, members: list[Member], comment: bytes, path: str) -> tuple[Members, Identity]:
        """Copy the current members to a new file, and rename that to the zip file."""
        descriptor = os.open(self.copy_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        target = FileSource(descriptor, path)
        try:
            made = {member.name: _copy(member, target) for member in members}
            target.append(render_directory([*made.values()], target.size, comment))
            return made, self._publish(descriptor, self.copy_path, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(self.copy_path)  # noqa: PTH108
            raise

    def _publish(self, descriptor: int, name: str, path: str) -> Identity:
        """Rename a file to the zip file; returns its identity, as nothing may fail behind that."""
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, os.stat(path).st_mode & 0o7777)  # noqa: PTH116
        # Always flushed to disk: as the zip file is replaced, a power cut could lose all of it.
        os.fsync(descriptor)
        # Not of the name, which may be another writer's file in a moment.
        identity = _identity(os.fstat(descriptor))
        steady(os.replace, name, path)
        return identity

    def share(self) -> None:
        """In a forked child: reopen the file for reading, so that its lock is the parent's alone."""
        fresh = reopen(self.source.descriptor, os.O_RDONLY)
        if fresh is not None:  # else the child shares the lock until it ends
            os.dup2(fresh, self.source.descriptor, inheritable=False)
            os.close(fresh)

    def release(self) -> None:
        """Remove the draft and its lock, so that others can write."""
        # If it cannot be removed, the next writer takes it over.
        with suppress(OSError):
            if self._is_mine(self.source.descriptor):
                steady(os.unlink, self.path)
        # Closing alone would leave the lock to a child process that was forked meanwhile.
        with suppress(OSError):
            fcntl.flock(self.source.descriptor, fcntl.LOCK_UN)


def _append(member: Member, target: FileSource, data: Bytes) -> None:
    """Write a member's header and data at the end."""
    header = member.render().FileHeader()
    target.append(header, data)
    target.begins[member.offset] = member.offset + len(header)


def _copy(old: Member, target: FileSource) -> Member:
    begin, copy = locate(old), old._replace(source=target, offset=target.size)
    end = begin + old.packed_size
    _append(copy, target, old.source.read(begin, min(COPY_SIZE, old.packed_size)))
    for place in range(begin + COPY_SIZE, end, COPY_SIZE):
        target.append(old.source.read(place, min(COPY_SIZE, end - place)))
    return copy


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class OpenArchive:
    """The archive that stores have open: when the last of them is collected, it is flushed.

    Until then the archive and its files are not the collector's, which would free them in any order.
    """

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        weakref.finalize(self, _leave, archive).atexit = False


_archives: dict[str, Archive] = {}
_open: weakref.WeakValueDictionary[str, OpenArchive] = weakref.WeakValueDictionary()
# Whoever holds it may come to `_leave`, where he frees something.
_archives_guard = threading.RLock()


def open_archive(path: str, *, durable: bool = False) -> OpenArchive:
    """The archive of the zip file at `path`: the one that is open in this process, or a new one.

    It stays `durable` once it is.
    """
    place = os.path.realpath(path)
    with _archives_guard:
        archive = _archives.get(place)
        if archive is None:
            archive = Archive(place)
        else:
            archive.refresh()
        opened = _open.get(place)
        if opened is None or opened.archive is not archive:
            opened = _open[place] = OpenArchive(archive)
        _archives[place] = archive
    archive.durable |= durable
    return opened


def _leave(archive: Archive) -> None:
    try:
        archive.flush()
    finally:
        with _archives_guard:
            if archive.path not in _open:
                _archives.pop(archive.path, None)


def _flush_all() -> None:
    with ExitStack() as stack:
        for archive in [*_archives.values()]:
            stack.callback(archive.flush)


def _after_fork() -> None:
    global _archives_guard
    _archives_guard = threading.RLock()
    for archive in [*_archives.values()]:
        archive.after_fork()


atexit.register(_flush_all)
os.register_at_fork(after_in_child=_after_fork)

"""Locks on keys, held between reading a value and the write that depends on it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from zstore._ext.engine.files import WAIT_FOR_LOCK, lock_offset, lock_range
from zstore.base.locks import Lock

# The errors of file systems that have no locks.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}

# The metadata documents that a lock is taken on, in the order they are looked for.
DOCUMENTS = ("zarr.json", ".zarray", "meta")

# The lock of an array's shape, as a name below the array's. Whoever changes the shape holds it while storing
# chunks and replacing the document.
SHAPE_LOCK = ".zstore-shape"


_thread = threading.local()
_guard = Lock()
# An entry lasts as long as somebody holds the lock or waits for it.
_names: WeakValueDictionary[Hashable, Lock] = WeakValueDictionary()


@contextmanager
def hold_name(name: Hashable) -> Iterator[None]:
    """Exclude all other threads of this process that use the same name."""
    with _guard:
        lock = _names.setdefault(name, Lock())
    with lock:
        yield


def key_offset(key: str) -> int:
    """The offset of a key's lock in its lock file: the low 62 bits of the FNV-1a hash of its UTF-8 bytes."""
    return lock_offset(key.encode("utf-8", "surrogateescape"))


@contextmanager
def hold_file(key: str, open_file: Callable[[str, int], int]) -> Iterator[None]:
    """Exclude every other thread and process that locks `key` in the same directory tree.

    The protocol, for whoever wants to take part in it from another language:

    1. The lock file is the nearest metadata document above the key: for each directory from the key's own up
       to the store's root, `zarr.json`, then `.zarray`, then `meta`. It is opened for reading and writing.
    2. On it, an open-file-description write lock (F_OFD_SETLKW) on one byte, whose offset is `key_offset` of
       the key relative to the document's directory (so stores opened at different levels agree). Where the
       key is that very document, the lock covers the whole file instead (start 0, length 0): replacing a
       document waits for everyone who holds a chunk below it.
    3. Where there is no document at all, flock(LOCK_EX) on the root directory.
    4. Once the lock is held, step 1 is repeated. If it now finds another file (a document was replaced by
       renaming, or a nearer one was made), the lock is let go and everything starts again.

    Locks of this kind belong to the open file, so they exclude the threads of one process too, and end with
    the process. A document's lock is taken before, never while, a key below it is held, but for one: whoever
    holds SHAPE_LOCK beside the document widens that lock to the whole file, and back again. Where there is no
    document, one lock is all that a thread can hold. A thread that breaks this rule gets EDEADLK.

    `open_file(path, flags)` opens a path relative to the root ("" is the root itself).
    """
    while True:
        descriptor, offset, length = _open_nearest(key, open_file)
        try:
            mine = _shape_lock(descriptor) if length == 0 else None
            held = _locked(descriptor, offset, length) if mine is None else _document_locked(mine)
            with held:
                if _is_nearest(descriptor, key, open_file):
                    yield
                    return
        finally:
            os.close(descriptor)


@contextmanager
def _locked(descriptor: int, offset: int, length: int | None) -> Iterator[None]:
    """Lock those bytes; EDEADLK where this thread would wait for itself, which the system does not notice."""
    status = os.fstat(descriptor)
    mine = _thread_locks()
    for _, device, inode, held_offset, held_length in mine:
        is_same_file = (device, inode) == (status.st_dev, status.st_ino)
        if is_same_file and (held_offset == offset or not length or not held_length):
            raise OSError(errno.EDEADLK, "this thread holds a lock already that excludes this one")
    note = (descriptor, status.st_dev, status.st_ino, offset, length)
    mine.append(note)
    try:
        with hold_bytes(descriptor, offset, length):
            yield
    finally:
        mine.remove(note)


def _thread_locks() -> list[tuple[int, int, int, int, int | None]]:
    """The locks of this thread: descriptor, device, inode, offset and length of each."""
    held: list[tuple[int, int, int, int, int | None]] = _thread.__dict__.setdefault("held", [])
    return held


def _shape_lock(document: int) -> int | None:
    """The descriptor by which this thread holds the lock of the array's shape on that document."""
    status, offset = os.fstat(document), key_offset(SHAPE_LOCK)
    for descriptor, device, inode, held_offset, length in _thread_locks():
        if (device, inode, held_offset, length) == (status.st_dev, status.st_ino, offset, 1):
            return descriptor
    return None


@contextmanager
def _document_locked(descriptor: int) -> Iterator[None]:
    """Lock the whole of a document on which this thread has the lock of the array's shape."""
    offset = key_offset(SHAPE_LOCK)
    # No deadlock: whoever has the lock of a chunk waits for no other, and nobody else has this one.
    _set_lock(descriptor, True, 0, 0)
    try:
        yield
    finally:
        _set_lock(descriptor, False, 0, offset)
        _set_lock(descriptor, False, offset + 1, 0)


@contextmanager
def hold_bytes(descriptor: int, offset: int, length: int | None) -> Iterator[None]:
    """Lock `length` bytes of an open file against whoever opened it elsewhere; None: all of it, by flock."""
    if length is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    else:
        _set_lock(descriptor, True, offset, length)
    try:
        yield
    finally:
        # Closing alone would leave the lock to a child process that was forked meanwhile.
        if length is None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            _set_lock(descriptor, False, offset, length)


def _set_lock(descriptor: int, is_held: bool, offset: int, length: int) -> None:
    if WAIT_FOR_LOCK < 0:
        raise OSError(errno.ENOLCK, "this system has no locks that belong to an open file")
    fcntl.fcntl(descriptor, WAIT_FOR_LOCK, lock_range(is_held, offset, length))


def _open_nearest(
    key: str, open_file: Callable[[str, int], int], flags: int = os.O_RDWR
) -> tuple[int, int, int | None]:
    """The open lock file, and the offset and length to lock in it; no length for the root directory."""
    directory = key
    while directory:
        directory = directory.rpartition("/")[0]
        below = key[len(directory) + 1 :] if directory else key
        for document in DOCUMENTS:
            path = f"{directory}/{document}" if directory else document
            try:
                descriptor = open_file(path, flags)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            return (descriptor, 0, 0) if below == document else (descriptor, key_offset(below), 1)
    return open_file("", os.O_RDONLY | os.O_DIRECTORY), 0, None


def _is_nearest(descriptor: int, key: str, open_file: Callable[[str, int], int]) -> bool:
    other, _, _ = _open_nearest(key, open_file, os.O_RDONLY)
    try:
        return os.path.samestat(os.fstat(descriptor), os.fstat(other))
    finally:
        os.close(other)

"""A directory tree, open at its root: paths are relative to it and cannot leave it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

from zstore.storage.beneath import OutsideError, open_beneath
from zstore.storage.scratch import ATTEMPTS, SCRATCH

__all__ = ["MISSING", "PLACE", "Listed", "Tree", "read_stretch"]

# What says that there is nothing under a path; any other error is trouble.
MISSING = (FileNotFoundError, NotADirectoryError)

PLACE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
READABLE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Listed(NamedTuple):
    """What is in a directory: who the directory is, the directories in it, and the files."""

    identity: tuple[int, int]
    directories: list[str]
    files: list[str]


class Tree:
    """The directory `root`; `durable` has the disk confirm every change of a directory."""

    def __init__(self, root: str, *, durable: bool = False) -> None:
        self.root = root
        self.durable = durable
        self.descriptor = os.open(root, PLACE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)

    def open(self, path: str, flags: int) -> int:
        """A descriptor of an existing file or directory; "" is the root."""
        return open_beneath(self.descriptor, self.root, path or ".", flags)

    @contextmanager
    def directory(self, path: str, flags: int = PLACE) -> Iterator[int]:
        """A descriptor of a directory while the block runs."""
        if not path and flags == PLACE and not self.durable:
            yield self.descriptor
            return
        descriptor = self.open(path, READABLE if self.durable else flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def synchronize(self, directory: int) -> None:
        """Have the disk confirm what was changed in a directory, where that was asked for."""
        if self.durable:
            os.fsync(directory)

    def enter(self, directory: int, name: str, path: str) -> None:
        """Rename the file `name` of `directory` to `path`, making the directories that it needs."""
        above, _, leaf = path.rpartition("/")
        for _ in range(ATTEMPTS):
            try:
                with self.directory(above) as parent:
                    os.rename(name, leaf, src_dir_fd=directory, dst_dir_fd=parent)
                    self.synchronize(parent)
                return
            except FileNotFoundError:
                # Not made yet, or removed by whoever deleted the last other value in it.
                os.stat(name, dir_fd=directory, follow_symlinks=False)
                self.make_directories(above)
        raise FileNotFoundError(errno.ENOENT, "a directory is removed as often as it is made", above)

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it; what is removed again meanwhile is left to the caller."""
        missing: list[str] = []
        while path and not self._make(path):
            missing.append(path)
            path = path.rpartition("/")[0]
        for path in reversed(missing):
            self._make(path)

    def _make(self, path: str) -> bool:
        """Make one directory, unless it is there; False where the one above is not."""
        above, _, leaf = path.rpartition("/")
        try:
            with self.directory(above) as parent:
                os.mkdir(leaf, dir_fd=parent)
                self.synchronize(parent)
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        return True

    def has(self, directory: int, name: str) -> bool:
        """Whether an open directory has an entry of that name, be it a link that leads nowhere."""
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def unlink(self, path: str) -> None:
        """Remove a file or a link."""
        above, _, leaf = path.rpartition("/")
        with self.directory(above) as parent:
            os.unlink(leaf, dir_fd=parent)
            self.synchronize(parent)

    def prune(self, path: str) -> None:
        """Remove the directories above `path` that are empty."""
        # An empty directory is no data: whatever stands in the way of removing one ends this quietly.
        with suppress(OSError):
            while path := path.rpartition("/")[0]:
                above, _, leaf = path.rpartition("/")
                with self.directory(above) as parent:
                    os.rmdir(leaf, dir_fd=parent)
                    self.synchronize(parent)

    def entries(self, path: str) -> Listed:
        """What is in a directory, the names of temporaries left out.

        A link that leads out of the tree counts as a file, so that reading it tells what is wrong.
        """
        listed = Listed((0, 0), [], [])
        with self.directory(path, READABLE) as directory, os.scandir(directory) as found:
            status = os.fstat(directory)
            for entry in found:
                if entry.name.startswith(SCRATCH):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    listed.directories.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    listed.files.append(entry.name)
                elif entry.is_symlink():
                    self._sort_link(listed, f"{path}/{entry.name}" if path else entry.name, entry.name)
        return listed._replace(identity=(status.st_dev, status.st_ino))

    def _sort_link(self, listed: Listed, path: str, name: str) -> None:
        try:
            descriptor = self.open(path, os.O_PATH)
        except OutsideError:
            listed.files.append(name)
            return
        except MISSING:
            return
        try:
            mode = os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)
        if stat.S_ISDIR(mode):
            listed.directories.append(name)
        elif stat.S_ISREG(mode):
            listed.files.append(name)


def read_stretch(descriptor: int, begin: int, size: int) -> bytes:
    """`size` bytes of an open file from `begin`, fewer where it ends before."""
    data = os.pread(descriptor, size, begin)
    if len(data) == size:
        return data
    # Linux reads less than 2 GiB at a time.
    parts = [data]
    while data and (rest := size - sum(map(len, parts))):
        data = os.pread(descriptor, rest, begin + size - rest)
        parts.append(data)
    return b"".join(parts)

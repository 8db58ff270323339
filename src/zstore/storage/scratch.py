"""Temporary files of a directory store: where they lie, who owns them, and what becomes of orphans.

They lie in `.zstore-tmp` below the store's root, which exists only while somebody writes. Whoever writes a
file holds flock on it, so a file that can be locked has lost its writer and may go. Directories there are
trees that were moved out of sight to be deleted; nobody needs them, so anybody may finish the job.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

__all__ = [
    "ATTEMPTS",
    "SCRATCH",
    "create_file",
    "leave_scratch",
    "new_name",
    "open_scratch",
    "purge",
    "remove_tree",
]

SCRATCH = ".zstore-tmp"
# How often somebody else may remove a directory that was just made, before that is no longer a coincidence.
ATTEMPTS = 1000

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
MAY_NOT = {errno.EACCES, errno.EPERM, errno.EROFS}


def new_name() -> str:
    """A name that no other writer uses, on this machine or another."""
    return os.urandom(12).hex()


def open_scratch(root: int) -> int:
    """A descriptor of the directory for temporaries below `root`, made where it is missing."""
    for _ in range(ATTEMPTS):
        with suppress(FileExistsError):
            os.mkdir(SCRATCH, dir_fd=root)
        try:
            return os.open(SCRATCH, DIRECTORY, dir_fd=root)
        except FileNotFoundError:
            continue  # its last user has just removed it
    raise FileNotFoundError(
        errno.ENOENT, "directory for temporary files is removed as often as it is made", SCRATCH
    )


def leave_scratch(root: int) -> None:
    """Remove the directory for temporaries, unless somebody else has files in it."""
    try:
        os.rmdir(SCRATCH, dir_fd=root)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def create_file(directory: int, prefix: str = "") -> tuple[str, int]:
    """A new file in `directory`, locked as its writer's: its name and descriptor.

    Raises
        FileNotFoundError: the directory itself was removed meanwhile.
    """
    while True:
        name = prefix + new_name()
        descriptor = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=directory
        )
        # Between its creation and its lock somebody who purges may have taken the file for an orphan.
        if _lock(descriptor) and os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # A file system without locks: nobody can purge there, so nothing needs protecting either.
        if error.errno not in NO_LOCKS:
            raise
    return True


def purge(root: int) -> None:
    """Remove what dead writers left; the files of living ones stay."""
    try:
        scratch = os.open(SCRATCH, DIRECTORY, dir_fd=root)
    except FileNotFoundError:
        return
    try:
        with os.scandir(scratch) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in names:
            if is_directory:
                remove_tree(scratch, name)
            else:
                _purge_file(scratch, name)
    except OSError as error:
        # Left-overs are in nobody's way; whoever may not write here will be told so by `put`.
        if error.errno not in MAY_NOT:
            raise
        return
    finally:
        os.close(scratch)
    leave_scratch(root)


def _purge_file(scratch: int, name: str) -> None:
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=scratch)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if not isinstance(error, BlockingIOError) and error.errno not in NO_LOCKS:
            raise
    else:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=scratch)
    finally:
        os.close(descriptor)


def remove_tree(parent: int, name: str) -> None:
    """Remove the directory `name` and all below it; links are not followed, others may be removing it too."""
    try:
        directory = os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return
    try:
        with os.scandir(directory) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_directory in names:
            if is_directory:
                remove_tree(directory, child)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(child, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # A writer that had the directory open before it was moved away has put a last file into it.
        remove_tree(parent, name)

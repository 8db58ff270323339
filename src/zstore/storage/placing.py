"""Putting a value into a directory tree: whole, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from zstore.storage.beneath import OutsideError
from zstore.storage.scratch import ATTEMPTS, SCRATCH, create_file, leave_scratch, open_scratch
from zstore.storage.tree import Tree

__all__ = ["place_value"]

NAMELESS = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
# What a file system without nameless files says to making one, and a taken key to linking it.
NOT_NAMELESS = {errno.EEXIST, errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.EPERM}


def place_value(tree: Tree, key: str, view: memoryview) -> None:
    """Write `view` to a file that nobody sees, then give it the name `key`.

    Raises
        OSError: as the file system says; what was there before is there still.
    """
    try:
        if not _put_new(tree, key, view):
            _put_through_scratch(tree, key, view)
    except OSError as error:
        if error.errno != errno.EXDEV or isinstance(error, OutsideError):
            raise
        # The key's directory is on another file system than the root: nothing can be renamed into it.
        with tree.directory(key.rpartition("/")[0]) as parent:
            name, descriptor = create_file(parent, f"{SCRATCH}.")
            _fill(tree, parent, name, descriptor, view, lambda: tree.enter(parent, name, key))


def _put_new(tree: Tree, key: str, view: memoryview) -> bool:
    """Link a file that had no name until it was whole; False where the key is taken or this cannot be."""
    above, _, leaf = key.rpartition("/")
    is_made = False
    for _ in range(ATTEMPTS):
        try:
            with tree.directory(above) as parent:
                # Asked first, so that nothing is written for nothing; of a directory just made, in vain.
                if not is_made and tree.has(parent, leaf):
                    return False
                _link(parent, leaf, view, tree.durable)
                tree.synchronize(parent)
            return True
        except FileNotFoundError:
            # Not made yet, or removed by whoever deleted the last other value in it.
            tree.make_directories(above)
            is_made = True
        except OSError as error:
            if error.errno not in NOT_NAMELESS:
                raise
            return False
    return False


def _link(parent: int, leaf: str, view: memoryview, durable: bool) -> None:
    descriptor = os.open(".", NAMELESS, 0o666, dir_fd=parent)
    try:
        _write(descriptor, view, durable)
        os.link(f"/proc/self/fd/{descriptor}", leaf, dst_dir_fd=parent, follow_symlinks=True)
    finally:
        os.close(descriptor)


def _write(descriptor: int, view: memoryview, durable: bool) -> None:
    while view.nbytes:
        view = view[os.write(descriptor, view) :]
    if durable:
        os.fsync(descriptor)


def _put_through_scratch(tree: Tree, key: str, view: memoryview) -> None:
    try:
        for _ in range(ATTEMPTS):
            scratch = open_scratch(tree.descriptor)
            try:
                name, descriptor = create_file(scratch)
            except FileNotFoundError:
                continue  # its last user has just removed the directory
            else:
                _fill(tree, scratch, name, descriptor, view, lambda: tree.enter(scratch, name, key))  # noqa: B023
                return
            finally:
                os.close(scratch)
        raise FileNotFoundError(errno.ENOENT, "directory is removed as often as it is made", SCRATCH)
    finally:
        leave_scratch(tree.descriptor)


def _fill(
    tree: Tree, directory: int, name: str, descriptor: int, view: memoryview, enter: Callable[[], None]
) -> None:
    try:
        _write(descriptor, view, tree.durable)
        enter()
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        raise
    finally:
        # Not before the renaming: the descriptor's lock says that this file has a writer.
        os.close(descriptor)

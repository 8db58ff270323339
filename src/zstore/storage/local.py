"""A store in a directory: each value is a file named by its key.

The kernel (`_ext/engine/files.pyx`) reads and replaces values and keeps paths inside the directory. This
module has what concerns many files: lists, the deletion of prefixes, and the removal of dead writers'
temporary files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from zstore._ext.engine.files import O_PATH, SCRATCH, Tree, file_mode, pread
from zstore.base.byterange import ByteRange
from zstore.base.limits import is_durable
from zstore.base.once import once
from zstore.errors import ChangedError, NotFoundError, StoreError
from zstore.storage.base import (
    NO_LOCKS,
    Changes,
    Entry,
    Found,
    Names,
    Request,
    Store,
    Values,
    check_key,
    check_prefix,
    document_range,
    failing,
    failure,
    first_below,
    hold_file,
)
from zstore.storage.kinds import say_file

# The errors that mean that there is nothing at a path.
MISSING = (FileNotFoundError, NotADirectoryError)
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# A file's name, or its key, and its status where that was asked for.
File = tuple[str, os.stat_result | None]
# One directory, or several.
Places = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

# How often to make a directory again that others remove, before giving up.
ATTEMPTS = 1000

PLACE = O_PATH | os.O_DIRECTORY
# Up to this size, reading and writing a value is faster than having the system copy it.
SMALL_SIZE = 128 << 10
READABLE = os.O_RDONLY | os.O_DIRECTORY
OWN_DIRECTORY = READABLE | os.O_NOFOLLOW | os.O_CLOEXEC

# Symbolic links that lead out of the store, to nothing or back; they count as files that cannot be read.
LED_ASTRAY = {errno.EXDEV, errno.ENOLINK, errno.ELOOP}

REASONS = {
    errno.ENOLINK: "a symbolic link leads to nothing; expected its target, mounted, or no link",
    errno.ELOOP: "a symbolic link leads back to a directory above, or to itself",
    errno.EISDIR: "expected a value there or nothing, found a directory",
    errno.ENOTDIR: "expected a directory where a part of the path is a file",
    errno.EXDEV: "a symbolic link leads out of the store; expected one opened at a directory above both, or "
    "the storage option allow=DIRECTORY, which names where links may lead",
}


class _OfThread(threading.local):
    """The documents and directories that a thread holds.

    documents  that it has locked, as root and key: put only where nobody removes them
    trees      the directories that it holds open, by root; None until one is opened
    """

    def __init__(self) -> None:
        self.documents: set[tuple[str, str]] = set()
        self.trees: dict[str, Tree | None] = {}


_thread = _OfThread()


@contextmanager
def _there(root: str, key: str) -> Iterator[None]:
    _thread.documents.add((root, key))
    try:
        yield
    finally:
        _thread.documents.discard((root, key))


class _HeldOpen:
    """A context in which this thread opens a directory once."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __enter__(self) -> None:
        self._is_first = self._root not in _thread.trees
        if self._is_first:
            _thread.trees[self._root] = None

    def __exit__(self, *error: object) -> None:
        if self._is_first:
            del _thread.trees[self._root]


class LocalStore(Store):
    """The files below `root`, a directory that is made by the first `put`.

    A value is written to a temporary file that is then renamed, so that readers see the old value or the new
    one, also after a crash. `durable=True` waits until each change is on the disk, which takes milliseconds;
    it then survives a power cut. The default is that of `zstore.set_durable`. Names that begin with
    ".zstore-tmp" are reserved: refused as keys and left out of lists. `delete` and `delete_prefix` also
    remove directories that become empty, up to `root`; empty directories that others made count as prefixes
    in `list_children`.

    Symbolic links are followed as long as they stay below `root`, or lead into one of the directories in
    `allow`. A key is missing where the directory that it belongs in does not have its name. Links that lead
    elsewhere, to nothing or back, files in the place of directories, special files, and whatever may not be
    read are errors: a value may be there.

    allow  directories elsewhere that links may lead into, with everything below them: one or several
    """

    removes_whole = True
    locks_below = True
    is_bounded = False
    _was_purged = False

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        read_only: bool = False,
        durable: bool | None = None,
        allow: Places = (),
    ) -> None:
        # Not resolve(), which would follow links in the root's own path now; and not a Path, which takes
        # longer to make than opening an array.
        self._root = os.path.abspath(root)  # noqa: PTH100
        self.read_only = read_only
        self.durable = is_durable() if durable is None else durable
        if allow:
            places = [allow] if isinstance(allow, str | os.PathLike) else allow
            self.links_into = b"".join(os.fsencode(os.path.realpath(place)) + b"\0" for place in places)
        self.purge("")
        self._was_purged = True

    @property
    def root(self) -> Path:
        """The absolute path of the directory."""
        return Path(self._root)

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at "file:///path"; storage options as for `from_path`."""
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
            raise StoreError("expected file:///path, with '?' and '#' written as %3F and %23", path=url)
        path = os.fsdecode(unquote_to_bytes(parts.path))
        return cls.from_path(path, read_only=read_only, storage_options=storage_options)

    @classmethod
    def from_path(
        cls, path: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> LocalStore:
        """The store in a directory; storage options are `durable` and `allow`."""
        if not storage_options:
            return cls(path, read_only=read_only)
        options = dict(storage_options)
        durable, allow = options.pop("durable", None), options.pop("allow", ())
        if options:
            expected = "expected 'durable' or 'allow' for a directory; a target's own are target_options"
            raise StoreError(f"unknown storage options {sorted(options)}; {expected}", path=path)
        return cls(path, read_only=read_only, durable=durable, allow=allow)

    @once
    def url(self) -> str:
        """ "file:///path", with special characters escaped."""
        return f"file://{quote_from_bytes(os.fsencode(self._root))}"

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        self._check(key)
        return self._ask("read", key, lambda tree: tree.get(key, byte_range), None)

    def get_many(self, requests: Sequence[Request]) -> Values:
        """`get` for many keys; for successive keys in one directory, it is opened only once."""
        for key, _ in requests:
            self._check(key)
        try:
            tree = self._tree()
            return [tree.get(key, byte_range) for key, byte_range in requests]
        except MISSING:
            return [None] * len(requests)
        except OSError as error:
            raise self._failed("read", error.filename, error) from error

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As `Store.get_first`, without opening files that are not needed."""
        for prefix in prefixes:
            self._check(prefix, check_prefix)
        most = document_range()
        try:
            tree = self._tree()
            return [first_below(tree.get, prefix, choices, most) for prefix in prefixes]
        except MISSING:
            return [{} for _ in prefixes]
        except OSError as error:
            raise self._failed("read", error.filename, error) from error

    def size(self, key: str) -> int | None:
        self._check(key)
        return self._ask("read", key, lambda tree: tree.size(key), None)

    def entry(self, key: str) -> Entry | None:
        """The file's size and, as its version, its inode and times.

        A link that is not followed, or leads to nothing, has neither; reading it is an error.
        """
        self._check(key)
        with self._failing("read", key), suppress(*MISSING):
            try:
                with _opened(self._tree(), key, O_PATH) as descriptor:
                    status = os.fstat(descriptor)
            except OSError as error:
                if error.errno not in LED_ASTRAY:
                    raise
                return Entry(key, 0, None)
            if stat.S_ISDIR(status.st_mode):
                return None
            return _entry(key, status)
        return None

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """The entries of all keys below `prefix`; as for `list`."""
        self._check(prefix, check_prefix)
        walked = self._walk(prefix, keeps_status=True)
        found = (self.entry(key) if status is None else _entry(key, status) for key, status in walked)
        return (entry for entry in found if entry is not None)

    def check_missing(self, keys: Sequence[str]) -> None:
        """Check that the store's directory exists, and that no file stands where a key has a directory."""
        try:
            tree = self._tree()
        except OSError as error:
            raise self._failed("read", keys[0], error) from error
        for key in keys:
            with self._failing("read", key), suppress(FileNotFoundError):
                os.close(tree.open(key, O_PATH))

    def put_file(self, key: str, file: int, size: int) -> None:
        """As `put`; the system copies the bytes, if it can."""
        self._check(key)
        self.check_writable(key)
        with self._failing("write", key):
            self._made_tree().put_file(key, file, size)

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        """Copy a file of another `LocalStore`; on file systems that can, both share their blocks."""
        source, source_key = source.holder(source_key)
        if not isinstance(source, LocalStore):
            return False
        source._check(source_key)
        with source._failing("read", source_key):
            try:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                file = source._tree().open(source_key, flags)
            except MISSING:
                raise NotFoundError("there is no such value", path=source.url, key=source_key) from None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return False
            if status.st_size > SMALL_SIZE:
                self.put_file(key, file, status.st_size)
            else:
                self.put(key, pread(file, 0, status.st_size))
        finally:
            os.close(file)
        return True

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Write `value` to a temporary file, then rename it to `key`."""
        self._put(key, value)

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """`put` of a file that does not exist yet.

        Raises
            ChangedError: it is there, and stays.
        """
        try:
            self._put(key, value, is_new=True)
        except StoreError as error:
            if error.errno != errno.EEXIST:
                raise
            if self.size(key) is not None:
                raise self._taken(key) from error
            self.put(key, value)  # says what is there that is no value

    def _put(self, key: str, value: bytes | bytearray | memoryview, *, is_new: bool = False) -> None:
        self._check(key)
        self.check_writable(key)
        view = memoryview(value)
        data = view if view.c_contiguous else view.tobytes()
        is_there = (self._root, key) in _thread.documents
        try:
            # No name for the tree: an error would keep it, and with it the directory of temporary files.
            (self._tree(durable=self.durable) if is_there else self._made_tree()).put(
                key, data, is_new=is_new, is_there=is_there
            )
        except OSError as error:
            if is_there and error.errno == errno.ENOENT:
                message = "somebody else has just removed the value; nothing was written"
                raise ChangedError(message, path=self.url, key=key) from error
            raise self._failed("write", key, error) from error

    def swap(self, changes: Changes) -> bool:
        """As `Store.swap`, under the caller's locks, in the directory of all these that is there at first.

        Where somebody removes that meanwhile, nothing comes back.
        """
        for key in changes:
            self._check(key)
            self.check_writable(key)
        if not changes:
            return True
        place = os.path.commonpath([f"/{key.rpartition('/')[0]}" for key in changes])[1:]
        skip = len(place) + bool(place)
        first = next(iter(changes))
        with self._failing("write", first):
            if place:  # whose temporary files are in the directory itself
                self.purge(place)
            try:
                tree = Tree(self._root, durable=self.durable, allowed=self.links_into, path=place)
            except MISSING:
                if any(old is not ... and old is not None for old, _ in changes.values()):
                    return False
                tree, skip = self._made_tree(), 0
            for key, (old, _) in changes.items():
                if old is not ... and tree.get(key[skip:]) != old:
                    return False
            for key, (_, new) in changes.items():
                if new is None:
                    tree.delete(key[skip:])
                elif new is not ...:
                    view = memoryview(new)
                    try:
                        tree.put(key[skip:], view if view.c_contiguous else view.tobytes())
                    except FileNotFoundError:
                        return False  # somebody has removed the directory meanwhile
        return True

    def delete(self, key: str) -> None:
        """Remove the file, if it exists, and directories that become empty."""
        self._check(key)
        self.check_writable(key)
        self._ask("delete", key, lambda tree: tree.delete(key), None, durable=self.durable)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, perhaps with keys that are put or deleted meanwhile.

        Links that are not followed, and special files, are keys too: reading them is an error.

        Raises
            StoreError: a directory cannot be listed; all keys that can be have been given before.
        """
        self._check(prefix, check_prefix)
        return (key for key, _ in self._walk(prefix))

    def _walk(self, prefix: str, *, keeps_status: bool = False) -> Iterator[File]:
        pending: Names = [prefix]
        above: dict[str, frozenset[tuple[int, int]]] = {prefix: frozenset()}
        failure: StoreError | None = None
        try:
            tree = self._tree()
        except MISSING:
            return
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        while pending:
            path = pending.pop()
            passed = above.pop(path)
            try:
                found = _entries(tree, path, keeps_status=keeps_status)
            except OSError as error:
                failure = failure or self._failed("list", path, error)
                continue
            if found is None:
                continue
            identity, directories, files = found
            if identity in passed:
                raise StoreError(
                    "cannot list: a symbolic link leads back to a directory above", path=self.url, key=path
                )
            start = path and f"{path}/"
            for name in directories:
                pending.append(start + name)
                above[start + name] = passed | {identity}
            for name, status in files:
                yield start + name, status
        if failure is not None:
            raise failure

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names of the files and directories directly below `prefix`."""
        self._check(prefix, check_prefix)
        found = self._ask("list", prefix, lambda tree: _entries(tree, prefix), None)
        return [] if found is None else sorted([*found[1], *(name for name, _ in found[2])])

    def delete_prefix(self, prefix: str) -> None:
        """Rename the directory to a temporary name, then remove it: readers see all of it or nothing."""
        self._check(prefix, check_prefix)
        self.check_writable(prefix)
        with self._failing("delete", prefix), suppress(*MISSING):
            tree = self._tree(durable=self.durable)
            if prefix:
                self._remove_directory(tree, prefix)
                return
            _, directories, files = _entries(tree, "") or (None, [], [])
            for name, _ in files:
                tree.delete(name)
            for name in directories:
                with suppress(*MISSING):
                    self._remove_directory(tree, name)

    def _remove_directory(self, tree: Tree, prefix: str) -> None:
        above, _, leaf = prefix.rpartition("/")
        with _opened(tree, above, READABLE if self.durable else PLACE) as parent:
            mode = steady(os.lstat, leaf, dir_fd=parent).st_mode
            if stat.S_ISLNK(mode):
                # Only the link is removed; what it leads to stays.
                with _opened(tree, prefix, PLACE):
                    tree.delete(prefix)
                return
            if not stat.S_ISDIR(mode):
                return
            _move_away(tree.directory, parent, leaf)
            if self.durable:
                os.fsync(parent)
        tree.prune(prefix)

    def purge(self, prefix: str) -> None:
        if not prefix and self._was_purged:
            # By whoever opened the store for the array at its root.
            self._was_purged = False
            return
        path = f"{self._root}/{prefix}" if prefix else self._root
        try:
            if file_mode(f"{path}/{SCRATCH}") and not self.read_only:
                with _opened(self._tree(), prefix, PLACE) as directory:
                    _purge(directory)
        except FileNotFoundError:
            return  # it was removed meanwhile
        except OSError as error:
            raise self._failed("open", prefix, error) from error

    def local_path(self, prefix: str = "") -> Path:
        """The directory, which may not exist yet."""
        self._check(prefix, check_prefix)
        with self._failing("open", prefix), suppress(*MISSING):
            os.close(self._tree().open(prefix, O_PATH))
        return self.root / prefix

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude every other thread and process that locks the same key (by `hold_file`)."""
        self._check(key)
        self.check_writable(key)
        with ExitStack() as stack:
            with self._failing("lock", key):
                is_there = stack.enter_context(hold_file(key, self._made_tree().find))
            if is_there:
                stack.enter_context(_there(self._root, key))
            yield

    def as_read_only(self) -> LocalStore:
        return self._with(read_only=True)

    def as_durable(self) -> LocalStore:
        return self._with(durable=True)

    def _ask(
        self, action: str, key: str | None, act: Callable[[Tree], T], nothing: T, *, durable: bool = False
    ) -> T:
        """The result of `act` on the directory; `nothing` if the directory or a file is missing."""
        try:
            return act(self._tree(durable=durable))
        except MISSING:
            return nothing
        except OSError as error:
            raise self._failed(action, error.filename if key is None else key, error) from error

    def held_open(self) -> AbstractContextManager[None]:
        return _HeldOpen(self._root)

    def _tree(self, *, durable: bool = False, make: bool = False) -> Tree:
        trees = _thread.trees
        held = trees.get(self._root)
        tree = Tree(self._root, durable=durable, allowed=self.links_into, held=held, make=make)
        if held is None and self._root in trees:
            trees[self._root] = tree
        return tree

    def _made_tree(self) -> Tree:
        try:
            return self._tree(durable=self.durable, make=True)
        except FileNotFoundError:
            make_directory(self._root, durable=self.durable)
            return self._tree(durable=self.durable)

    def _check(self, name: str, check: Callable[[str], str] = check_key) -> None:
        check(name)
        if SCRATCH in name and any(part.startswith(SCRATCH) for part in name.split("/")):
            raise StoreError(
                f"names that begin with {SCRATCH!r} are the store's own", path=self.url, key=name
            )
        if not name.isascii():
            try:
                os.fsencode(name)
            except UnicodeEncodeError as error:
                raise StoreError(f"key cannot be a file name: {error}", path=self.url, key=name) from error

    def _failing(self, action: str, key: str | None) -> AbstractContextManager[None]:
        return failing(action, self.url, key, make=self._failed)

    def _failed(self, action: str, key: str | None, error: OSError) -> StoreError:
        if error.errno is None:  # raised by a signal handler, not by the system
            raise error
        reason = REASONS.get(error.errno)
        if error.errno == errno.EXDEV:
            place = os.path.realpath(f"{self._root}/{key}")
            reason = REASONS[errno.EXDEV].replace("of the store", f"of the store, to {place!r}")
        elif error.errno == errno.ENOTDIR:
            with suppress(OSError):
                found = say_file(Path(self._root))
                reason = f"expected a directory{found}" if found else reason
        return failure(action, self.url, key, error, reason)


@contextmanager
def _opened(tree: Tree, path: str, flags: int) -> Iterator[int]:
    descriptor = tree.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _entry(key: str, status: os.stat_result) -> Entry:
    written = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}"
    return Entry(key, status.st_size, written)


def _entries(
    tree: Tree, path: str, *, keeps_status: bool = False
) -> tuple[tuple[int, int], list[str], list[File]] | None:
    """(device and inode of a directory, names of the directories in it, names of the files in it).

    None where there is no such directory.

    Temporary files are left out. A link that is not followed, or leads to nothing, counts as a file, as
    special files do; reading one is an error.

    keeps_status  whether files come with their status, but for links
    """
    directories: list[str] = []
    files: list[File] = []
    if (directory := tree.find(path, READABLE)) < 0:
        return None
    try:
        status = os.fstat(directory)
        with os.scandir(directory) as found:
            for entry in found:
                if entry.name.startswith(SCRATCH):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif not entry.is_symlink():
                    try:
                        files.append(
                            (entry.name, entry.stat(follow_symlinks=False) if keeps_status else None)
                        )
                    except FileNotFoundError:
                        continue  # it was removed meanwhile
                elif mode := _mode_of_link(tree, f"{path}/{entry.name}" if path else entry.name):
                    if stat.S_ISDIR(mode):
                        directories.append(entry.name)
                    else:
                        files.append((entry.name, None))
    finally:
        os.close(directory)
    return (status.st_dev, status.st_ino), directories, files


def _mode_of_link(tree: Tree, path: str) -> int:
    try:
        with _opened(tree, path, O_PATH) as descriptor:
            return os.fstat(descriptor).st_mode
    except FileNotFoundError:
        return 0
    except OSError as error:
        if error.errno in LED_ASTRAY or error.errno in FORBIDDEN or error.errno == errno.ENOTDIR:
            return stat.S_IFREG
        raise


# Temporary files, see _ext/engine/put.h. Directories among them were renamed to be deleted; any process may
# remove what is left of them.


def _move_away(root: int, parent: int, leaf: str) -> None:
    """Remove the directory `leaf` of `parent`, which is renamed first."""
    doomed = os.urandom(12).hex()
    for _ in range(ATTEMPTS):
        scratch = _open_scratch(root)
        try:
            steady(os.rename, leaf, doomed, src_dir_fd=parent, dst_dir_fd=scratch)
            # It has no name any more; whoever opens the store next removes the rest.
            with suppress(OSError):
                _remove_tree(scratch, doomed)
            return
        except FileNotFoundError:
            # Either the directory is gone, or the other one, which its last user has removed meanwhile.
            steady(os.lstat, leaf, dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # The directory is on another file system than the root.
            doomed = f"{SCRATCH}.{doomed}"
            steady(os.rename, leaf, doomed, src_dir_fd=parent, dst_dir_fd=parent)
            with suppress(OSError):
                _remove_tree(parent, doomed)
            return
        finally:
            os.close(scratch)
            _leave_scratch(root)
    raise OSError(errno.EBUSY, "directory for temporary files is removed as often as it is made", SCRATCH)


def _open_scratch(root: int) -> int:
    """A descriptor of the directory for temporary files below `root`, made if it is missing."""
    for _ in range(ATTEMPTS):
        with suppress(FileExistsError):
            steady(os.mkdir, SCRATCH, dir_fd=root)
        try:
            return os.open(SCRATCH, OWN_DIRECTORY, dir_fd=root)
        except FileNotFoundError:
            continue  # its last user has removed it meanwhile
    raise FileNotFoundError(errno.ENOENT, "directory is removed as often as it is made", SCRATCH)


def _leave_scratch(root: int) -> None:
    """Remove the directory for temporary files, unless others have files in it; failing does no harm."""
    with suppress(OSError):
        steady(os.rmdir, SCRATCH, dir_fd=root)


def _purge(root: int) -> None:
    """Remove temporary files of dead writers; those of living ones stay."""
    try:
        scratch = os.open(SCRATCH, OWN_DIRECTORY, dir_fd=root)
    except FileNotFoundError:
        return
    try:
        for name, is_directory in _names(scratch):
            if is_directory:
                _remove_tree(scratch, name)
            else:
                _purge_file(scratch, name)
    except OSError as error:
        # They do no harm; whoever may not write here gets the error from `put`.
        if error.errno not in FORBIDDEN:
            raise
        return
    finally:
        os.close(scratch)
    _leave_scratch(root)


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
            steady(os.unlink, name, dir_fd=scratch)
    finally:
        os.close(descriptor)


def _remove_tree(parent: int, name: str) -> None:
    """Remove the directory `name` and all below it, without following links; others may do so too."""
    try:
        directory = os.open(name, OWN_DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return
    try:
        for child, is_directory in _names(directory):
            if is_directory:
                _remove_tree(directory, child)
            else:
                with suppress(FileNotFoundError):
                    steady(os.unlink, child, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        steady(os.rmdir, name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # A writer that opened the directory before it was renamed has put another file into it.
        _remove_tree(parent, name)


def _names(directory: int) -> list[tuple[str, bool]]:
    """(name, whether it is a directory) of every entry of an open directory."""
    with os.scandir(directory) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


# Directories, for stores and for files beside them


def steady(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, again as often as a signal interrupts it; for `os.rename` and the like."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue


def make_directory(path: str, *, durable: bool) -> None:
    """Make a directory and its missing parents; `durable` waits until they are on the disk (fsync)."""
    try:
        is_new = _make(path)
    except FileNotFoundError:
        # The parent is missing; or another process has made it since, or it takes none, like "/proc".
        above = os.path.dirname(path)  # noqa: PTH120 - stores keep strings
        if not os.path.isdir(above):  # noqa: PTH112
            make_directory(above, durable=durable)
        is_new = _make(path)
    if is_new and durable:
        confirm_directory(os.path.dirname(path))  # noqa: PTH120


def _make(path: str) -> bool:
    """Make one directory; False if it existed already."""
    try:
        steady(os.mkdir, path)
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
        return False
    return True


def confirm_directory(path: str) -> None:
    """Wait until the names in a directory are on the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def confirm_files(path: str) -> None:
    """Wait until a file, or all files below a directory, and their names are on the disk (fsync)."""
    for folder, _, names in os.walk(path):
        for name in names:
            confirm_files(f"{folder}/{name}")
        confirm_directory(folder)
    if not os.path.isdir(path):  # noqa: PTH112
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

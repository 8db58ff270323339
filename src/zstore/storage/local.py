"""A store in a directory: each value is the file of that name."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from zstore.base.byterange import ByteRange
from zstore.base.once import once
from zstore.errors import StoreError
from zstore.storage.base import Found, Names, Store, Values, check_key, check_prefix
from zstore.storage.locking import hold_file
from zstore.storage.placing import place_value
from zstore.storage.scratch import (
    SCRATCH,
    leave_scratch,
    new_name,
    open_scratch,
    purge,
    remove_tree,
)
from zstore.storage.tree import MISSING, PLACE, Tree, read_stretch

__all__ = ["LocalStore"]

# Without O_NONBLOCK, opening a pipe would wait for somebody to write to it.
VALUE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class LocalStore(Store):
    """The files below `root`, a directory that is made by the first `put`.

    A value is written to a temporary file and renamed: readers and crashes see the old value or the new one.
    `durable=True` also has the disk confirm each change, which survives a power cut and costs milliseconds.
    Names that begin with ".zstore-tmp" are the store's own: refused as keys and left out of lists. Symbolic
    links are followed as long as they stay below `root`; to read one that leads out of it is an error.
    `delete` and `delete_prefix` also remove the directories that they leave empty, up to `root`; directories
    that somebody else made count as prefixes in `list_children`, even while empty.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, read_only: bool = False, durable: bool = False
    ) -> None:
        # Not resolve(), which would follow the root's own links once and for all; and a Path takes longer to
        # make than to open the array for which it is made.
        self._root = os.path.abspath(root)  # noqa: PTH100
        self.read_only = read_only
        self.durable = durable
        self.purge("")

    @property
    def root(self) -> Path:
        """The directory, absolute."""
        return Path(self._root)

    def purge(self, prefix: str) -> None:
        """Remove the temporaries that writers who died left in the directory `prefix`."""
        path = f"{self._root}/{prefix}" if prefix else self._root
        try:
            os.stat(f"{path}/{SCRATCH}")  # noqa: PTH116 - a Path takes longer to make than this
            if not self.read_only:
                with self._tree() as tree, tree.directory(prefix) as directory:
                    purge(directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("open", prefix, error) from error

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at "file:///path"; the one storage option is `durable`."""
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
            raise StoreError("expected file:///path, with '?' and '#' written as %3F and %23", path=url)
        path = os.fsdecode(unquote_to_bytes(parts.path))
        return cls.from_path(path, read_only=read_only, storage_options=storage_options)

    @classmethod
    def from_path(
        cls, path: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> LocalStore:
        """The store in a directory; the one storage option is `durable`."""
        options = dict(storage_options or {})
        durable = bool(options.pop("durable", False))
        if options:
            raise StoreError(f"unknown storage options {sorted(options)}; expected 'durable'", path=path)
        return cls(path, read_only=read_only, durable=durable)

    @once
    def url(self) -> str:
        """ "file:///path", with special characters escaped."""
        return self.root.as_uri()

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """The value, or those bytes of it; None when there is no such file."""
        self._check(key)
        descriptor = self._opened("read", key, VALUE)
        return None if descriptor is None else self._read(descriptor, key, byte_range)

    def get_many(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """Several values; those of one directory that stand in a row need it to be opened only once."""
        if len(requests) < 2:
            return [self.get(*request) for request in requests]
        values: Values = []
        try:
            with Tree(self._root) as tree:
                for above, run in groupby(requests, _above):
                    values += self._get_run(tree, above, [*run])
        except MISSING:
            return [None] * len(requests)
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("read", requests[len(values)][0], error) from error
        return values

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As `Store.get_first`; every directory is opened once, and no file that need not be."""
        found: Found = []
        prefix = ""
        try:
            with Tree(self._root) as tree:
                for prefix in prefixes:
                    found.append(self._first_below(tree, prefix, choices))
        except MISSING:
            return [{} for _ in prefixes]
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("read", prefix, error) from error
        return found

    def _first_below(
        self, tree: Tree, prefix: str, choices: Sequence[Sequence[str]]
    ) -> dict[str, bytes | memoryview]:
        self._check(prefix, check_prefix)
        try:
            directory = tree.open(prefix, PLACE) if prefix else tree.descriptor
        except MISSING:
            return {}
        start = prefix and f"{prefix}/"
        try:
            for first, *others in choices:
                value = self._get_in(directory, start + first)
                if value is not None:
                    found: dict[str, bytes | memoryview] = {first: value}
                    for name in others:
                        value = self._get_in(directory, start + name)
                        if value is not None:
                            found[name] = value
                    return found
        finally:
            if prefix:
                os.close(directory)
        return {}

    def _get_run(self, tree: Tree, above: str, run: Sequence[tuple[str, ByteRange | None]]) -> Values:
        for key, _ in run:
            self._check(key)
        try:
            directory = tree.open(above, PLACE)
        except MISSING:
            return [None] * len(run)
        try:
            return [self._get_in(directory, *request) for request in run]
        finally:
            os.close(directory)

    def _get_in(self, directory: int, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        try:
            descriptor = os.open(key.rpartition("/")[2], VALUE | os.O_NOFOLLOW, dir_fd=directory)
        except MISSING:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self.get(key, byte_range)  # a link, which is to be followed with care
            raise self._failed("read", key, error) from error
        return self._read(descriptor, key, byte_range)

    def _read(self, descriptor: int, key: str, byte_range: ByteRange | None) -> bytes | None:
        """The bytes of an open file, which is closed; None where it is a directory."""
        try:
            status = os.fstat(descriptor)
            if self._is_value(status, key):
                begin, end = byte_range.resolve(status.st_size) if byte_range else (0, status.st_size)
                return read_stretch(descriptor, begin, end - begin)
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("read", key, error) from error
        finally:
            os.close(descriptor)
        return None

    def size(self, key: str) -> int | None:
        """How many bytes the file has; None when there is no such file."""
        self._check(key)
        descriptor = self._opened("read", key, os.O_PATH)
        if descriptor is None:
            return None
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return status.st_size if self._is_value(status, key) else None

    def _opened(self, action: str, key: str, flags: int) -> int | None:
        try:
            with Tree(self._root) as tree:
                return tree.open(key, flags)
        except MISSING:
            return None
        except OSError as error:
            raise self._failed(action, key, error) from error

    def _is_value(self, status: os.stat_result, key: str) -> bool:
        if stat.S_ISREG(status.st_mode):
            return True
        if stat.S_ISDIR(status.st_mode):
            return False
        raise StoreError("cannot read: expected a plain file, found a special one", path=self.url, key=key)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Write `value` to a temporary file, then rename it to `key`."""
        self._check(key)
        self.check_writable(key)
        view = memoryview(value)
        view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
        try:
            with self._made_tree() as tree:
                place_value(tree, key, view)
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("write", key, error) from error

    def delete(self, key: str) -> None:
        """Remove the file, if it is there, and the directories that are empty without it."""
        self._check(key)
        self.check_writable(key)
        with self._telling("delete", key), suppress(*MISSING, IsADirectoryError), self._tree() as tree:
            tree.unlink(key)
            tree.prune(key)

    def delete_prefix(self, prefix: str) -> None:
        """Move the directory out of sight, then remove it: nobody sees half of it. "" empties the store."""
        self._check(prefix, check_prefix)
        self.check_writable(prefix)
        with self._telling("delete", prefix), suppress(*MISSING), self._tree() as tree:
            if prefix:
                self._remove_directory(tree, prefix)
                tree.prune(prefix)
                return
            children = tree.entries("")
            for name in children.files:
                with suppress(FileNotFoundError):
                    tree.unlink(name)
            for name in children.directories:
                with suppress(*MISSING):
                    self._remove_directory(tree, name)

    def _remove_directory(self, tree: Tree, prefix: str) -> None:
        above, _, leaf = prefix.rpartition("/")
        with tree.directory(prefix), tree.directory(above) as parent:
            if stat.S_ISLNK(os.lstat(leaf, dir_fd=parent).st_mode):
                # What the link leads to has a path of its own, under which it stays.
                os.unlink(leaf, dir_fd=parent)
            else:
                self._move_away(tree, parent, leaf)
            tree.synchronize(parent)

    def _move_away(self, tree: Tree, parent: int, leaf: str) -> None:
        doomed = new_name()
        scratch = open_scratch(tree.descriptor)
        try:
            os.rename(leaf, doomed, src_dir_fd=parent, dst_dir_fd=scratch)
            remove_tree(scratch, doomed)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            doomed = f"{SCRATCH}.{doomed}"
            os.rename(leaf, doomed, src_dir_fd=parent, dst_dir_fd=parent)
            remove_tree(parent, doomed)
        finally:
            os.close(scratch)
            leave_scratch(tree.descriptor)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`; one that is put or deleted meanwhile may or may not be among them."""
        self._check(prefix, check_prefix)
        return self._walk(prefix)

    def _walk(self, prefix: str) -> Iterator[str]:
        pending: Names = [prefix]
        above: dict[str, frozenset[tuple[int, int]]] = {prefix: frozenset()}
        while pending:
            path = pending.pop()
            passed = above.pop(path)
            with self._telling("list", path):
                try:
                    with self._tree() as tree:
                        found = tree.entries(path)
                except MISSING:
                    continue
            if found.identity in passed:
                raise StoreError(
                    "cannot list: a symbolic link leads back to a directory above", path=self.url, key=path
                )
            start = path and f"{path}/"
            for name in found.directories:
                pending.append(start + name)
                above[start + name] = passed | {found.identity}
            for name in found.files:
                yield start + name

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names of the files and directories right below `prefix`."""
        self._check(prefix, check_prefix)
        with self._telling("list", prefix), suppress(*MISSING), self._tree() as tree:
            found = tree.entries(prefix)
            return sorted(found.directories + found.files)
        return []

    def local_path(self, prefix: str = "") -> Path:
        """The directory `root`/`prefix`, which may not exist yet."""
        self._check(prefix, check_prefix)
        with self._telling("open", prefix), suppress(*MISSING), self._tree() as tree:
            os.close(tree.open(prefix, os.O_PATH))
        return self.root / prefix

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude every thread and process that locks the same key, see `locking.hold_file`."""
        self._check(key)
        self.check_writable(key)
        with ExitStack() as stack:
            with self._telling("lock", key):
                tree = stack.enter_context(self._made_tree())
                stack.enter_context(hold_file(key, tree.open))
            yield

    def as_read_only(self) -> LocalStore:
        """The same directory, refusing writes."""
        return LocalStore(self.root, read_only=True)

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

    def _tree(self) -> Tree:
        return Tree(self._root, durable=self.durable)

    def _made_tree(self) -> Tree:
        try:
            return self._tree()
        except FileNotFoundError:
            os.makedirs(self._root, exist_ok=True)  # noqa: PTH103
            return self._tree()

    @contextmanager
    def _telling(self, action: str, key: str | None) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            raise self._failed(action, key, error) from error

    def _failed(self, action: str, key: str | None, error: OSError) -> StoreError:
        reasons: dict[type[OSError], str] = {
            IsADirectoryError: "expected a value there or nothing, found a directory",
            NotADirectoryError: "expected a directory where a part of the path is a file",
        }
        reason = reasons.get(type(error), error.strerror or str(error))
        failure = StoreError(f"cannot {action}: {reason}", path=self.url, key=key)
        failure.errno = error.errno
        return failure


def _above(request: tuple[str, ByteRange | None]) -> str:
    return request[0].rpartition("/")[0]

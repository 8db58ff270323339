"""One new file, made by a job beside its place: it appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zstore.errors import StoreError
from zstore.jobs.how import How
from zstore.storage.kinds import FileKind, check_target, local_path
from zstore.storage.local import confirm_directory, confirm_files


def check_new_file(target: str | os.PathLike[str], kind: FileKind, how: How) -> Path:
    """The path of a file that can be made.

    Raises
        StoreError: a file is there (unless `overwrite`), it is a URL, there is no directory for it, or it has
            another ending than its kind's.
    """
    path = local_path(target)
    check_target(path.name, kind)
    if path.exists() and not how.overwrite:
        raise StoreError("a file is there already; expected none, or overwrite", path=str(path))
    if not path.parent.is_dir():
        raise StoreError("no directory to write a file to", path=str(path.parent))
    return path


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A directory beside a file that is being made, on the same disk; removed at the end.

    Raises
        StoreError: there can be none.
    """
    try:
        scratch = tempfile.TemporaryDirectory(dir=target.parent, prefix=".zstore-")
    except OSError as error:
        raise StoreError(f"file cannot be written: {error.strerror}", path=str(target)) from error
    with scratch as path:
        yield Path(path)


def confirm_written(how: How, *files: Path) -> None:
    """With `durable`, wait until files of one directory are on the disk, as far as they are there."""
    if how.durable:
        for path in files:
            if path.exists():
                confirm_files(str(path))
        confirm_directory(str(files[0].parent))

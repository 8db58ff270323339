"""Requests to a directory, through obstore's store of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from zstore.errors import StoreError
from zstore.storage.objects.backend import Backend
from zstore.storage.objects.failures import telling
from zstore.storage.objects.library import library


class FileBackend(Backend):
    """A directory, whose files have no versions on which a write could depend."""

    has_versions = False

    def _open(self, *, read_only: bool, must_exist: bool) -> None:
        self.take_no_options("a directory")
        path = self.address.bucket
        with telling("open", self.url, None):
            if read_only and not os.path.isdir(path):  # noqa: PTH112
                raise StoreError("cannot open: there is no such directory", path=path)
            self._client = library().store.LocalStore(path, automatic_cleanup=True, mkdir=not read_only)

    def is_nothing(self, key: str) -> bool:
        """Whether the file is missing; below a file, obstore reports that by another error."""
        mode = self.mode(key)
        return mode is None or stat.S_ISDIR(mode)

    def file(self, key: str) -> str:
        """The path in the file system of a key."""
        return os.path.join(self.address.bucket, key) if key else self.address.bucket  # noqa: PTH118

    def open_file(self, key: str, flags: int) -> int:
        """The descriptor of a key's file."""
        return os.open(self.file(key), flags | os.O_CLOEXEC)

    def mode(self, key: str) -> int | None:
        """The mode of a file; None if it is missing."""
        try:
            return Path(self.file(key)).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self.failed("read", key, error) from error

"""Requests to the memory of this process, through obstore's store of it."""

from __future__ import annotations

from typing import Any

from zstore.errors import StoreError
from zstore.storage.objects.backend import Backend
from zstore.storage.objects.clients import open_memory
from zstore.storage.objects.failures import telling


class MemoryBackend(Backend):
    """Values in memory, which a fork copies. They need none of obstore's threads, which a child lacks."""

    def _open(self, *, read_only: bool, must_exist: bool) -> None:
        options = dict(self.options)
        self.has_versions = bool(options.pop("check_versions", True))
        if options:
            raise StoreError(f"memory takes no storage options, got {sorted(options)}", path=self.url)
        with telling("open", self.url, None):
            self._client = open_memory(self.address.bucket, must_exist=must_exist)

    def _open_after_fork(self) -> None:
        """Continue with the copy that the fork has made."""

    @property
    def is_direct(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "target": None}

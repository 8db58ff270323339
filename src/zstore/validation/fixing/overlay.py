"""A store with changes laid over it, which stays as it is until they are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from zstore.base.byterange import ByteRange
from zstore.storage.base import Names, Store, check_key
from zstore.storage.memory import MemoryStore

__all__ = ["OverlayStore"]


class OverlayStore(Store):
    """What is put and deleted here shows here only; `base` is read where nothing was changed.

    `version` counts the changes.
    """

    def __init__(self, base: Store) -> None:
        self.base = base
        self.version = 0
        self._put = MemoryStore()
        self._deleted: set[str] = set()

    @property
    def url(self) -> str:
        return self.base.url

    def changes(self) -> dict[str, bytes | None]:
        """By key, the value put, or None where the key was deleted; what is as before is left out."""
        changed: dict[str, bytes | None] = {}
        for key in self._put.list():
            value = bytes(self._put.get(key) or b"")
            before = self.base.get(key)
            if before is None or bytes(before) != value:
                changed[key] = value
        for key in self._deleted:
            if self.base.get(key) is not None:
                changed[key] = None
        return dict(sorted(changed.items()))

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        if key in self._deleted:
            return None
        value = self._put.get(key, byte_range)
        return self.base.get(key, byte_range) if value is None else value

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.version += 1
        self._put.put(check_key(key), value)
        self._deleted.discard(key)

    def delete(self, key: str) -> None:
        self.version += 1
        self._put.delete(key)
        self._deleted.add(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        here = set(self._put.list(prefix))
        yield from here
        for key in self.base.list(prefix):
            if key not in here and key not in self._deleted:
                yield key

    def list_children(self, prefix: str = "") -> Names:
        skip = len(prefix) + 1 if prefix else 0
        names = {key[skip:].partition("/")[0] for key in self._put.list(prefix)}
        touched = {key[skip:].partition("/")[0] for key in self._deleted if key.startswith(prefix)}
        for name in self.base.list_children(prefix):
            # Only where something was deleted must the store be asked whether anything is left.
            whole = f"{prefix}/{name}" if prefix else name
            if name not in touched or self.get(whole) is not None or next(self.list(whole), None) is not None:
                names.add(name)
        return sorted(names)

    def lock(self, key: str) -> AbstractContextManager[None]:
        return nullcontext()

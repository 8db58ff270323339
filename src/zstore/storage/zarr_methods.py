"""Methods of zarr-python's stores that are awaited, made of those of a store of zstore's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from zstore.base.byterange import ByteRange
from zstore.storage.base import Store

T = TypeVar("T")


class StoreMethods:
    """The methods that need no buffers of zarr-python's; `held` is the store of zstore's."""

    held: Store

    @abstractmethod
    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        """The result of a function that blocks, on a thread."""

    async def exists(self, key: str) -> bool:
        """Whether the key has a value."""
        return await self._run(self.held.size, key) is not None

    async def getsize(self, key: str) -> int:
        """The bytes of the value.

        Raises
            FileNotFoundError: there is no such key.
        """
        size = await self._run(self.held.size, key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def delete_dir(self, prefix: str) -> None:
        """Remove every key below a prefix."""
        await self._run(self.held.delete_prefix, prefix.strip("/"))

    async def clear(self) -> None:
        """Remove every key."""
        await self.delete_dir("")

    async def is_empty(self, prefix: str = "") -> bool:
        """Whether no key lies below a prefix."""
        return await self._run(lambda: next(iter(self.held.list(prefix.strip("/"))), None) is None)

    async def list(self) -> AsyncIterator[str]:
        """Every key."""
        for key in await self._run(lambda: [*self.held.list()]):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key that begins with a prefix, which may end within a name."""
        above = prefix.rpartition("/")[0]
        for key in await self._run(lambda: [*self.held.list(above)]):
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names directly below a prefix."""
        for name in await self._run(self.held.list_children, prefix.strip("/")):
            yield name


def range_of(request: Any) -> ByteRange | None:
    """A range of bytes as zarr-python asks for it: by start and end, an offset, or a suffix.

    Raises
        TypeError: it is none of these.
    """
    if request is None or isinstance(request, ByteRange):
        return request
    if hasattr(request, "suffix"):
        return ByteRange(-request.suffix) if request.suffix else ByteRange(0, 0)
    if hasattr(request, "offset"):
        return ByteRange(request.offset)
    if hasattr(request, "end"):
        return ByteRange(request.start, request.end - request.start)
    raise TypeError(f"Unexpected byte_range, got {request}.")

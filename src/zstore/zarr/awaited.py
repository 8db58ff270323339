"""`AsyncArray` and `AsyncGroup`: arrays and groups whose methods are awaited, on zstore's threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, ClassVar

from zstore.storage.base import in_thread

__all__ = ["AsyncArray", "AsyncGroup", "as_awaited", "awaited"]


def as_awaited(value: Any) -> Any:
    """An array or group as one whose methods are awaited, also within a pair; anything else as it is."""
    if isinstance(value, tuple) and value and hasattr(value[-1], "node"):
        return (*value[:-1], as_awaited(value[-1]))
    if not hasattr(value, "node"):
        return value
    return AsyncArray(value) if hasattr(value, "shape") else AsyncGroup(value)


def as_blocking(value: Any) -> Any:
    """The array or group behind one whose methods are awaited; anything else as it is."""
    return getattr(value, "array", getattr(value, "group", value)) if isinstance(value, _Awaited) else value


def awaited(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The function on a thread, awaited; arrays and groups that it takes and gives are awaited ones."""

    @wraps(function)
    async def call(*args: Any, **options: Any) -> Any:
        given = [as_blocking(value) for value in args]
        named = {name: as_blocking(value) for name, value in options.items()}
        return as_awaited(await in_thread(lambda: function(*given, **named)))

    return call


class _Awaited:
    """The part of both: attributes are those of the blocking node, its methods are awaited."""

    # The class of the blocking node, which is made later.
    blocking: ClassVar[Any]

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    @classmethod
    async def open(cls, store: Any, zarr_format: Any = None, **options: Any) -> Any:
        """The node at a store's root, or at a `StorePath`."""
        return await awaited(cls.blocking.open)(store, zarr_format=zarr_format, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "_blocking" or name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._blocking, name)
        return awaited(found) if callable(found) and not hasattr(found, "__getitem__") else found

    def __repr__(self) -> str:
        return repr(self._blocking).replace("<", "<Async", 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Awaited) and bool(self._blocking == other._blocking)

    __hash__ = None  # type: ignore[assignment]


class AsyncArray(_Awaited):
    """An array whose methods are awaited: `await array.getitem(selection)`."""

    @property
    def array(self) -> Any:
        """The array whose methods block."""
        return self._blocking

    async def getitem(self, selection: Any, *, prototype: Any = None) -> Any:
        """Read a selection."""
        return await in_thread(self.array.get_basic_selection, selection)

    async def setitem(self, selection: Any, value: Any, prototype: Any = None) -> None:
        """Write a selection."""
        await in_thread(self.array.__setitem__, selection, value)

    def with_config(self, config: Any) -> AsyncArray:
        """The array under another configuration, as `Array.with_config`."""
        return AsyncArray(self.array.with_config(config))

    async def nchunks_initialized(self) -> int:
        """The number of stored chunks."""
        return await in_thread(lambda: self.array.nchunks_initialized)

    async def _nshards_initialized(self) -> int:
        return await in_thread(lambda: self.array.nshards_initialized)

    @property
    def oindex(self) -> AwaitedIndex:
        """Selections of each dimension independently."""
        return AwaitedIndex(self.array.oindex)

    @property
    def vindex(self) -> AwaitedIndex:
        """Selections of points."""
        return AwaitedIndex(self.array.vindex)


class AwaitedIndex:
    """Another kind of selection, awaited."""

    def __init__(self, indexed: Any) -> None:
        self._indexed = indexed

    async def getitem(self, selection: Any) -> Any:
        """Read a selection."""
        return await in_thread(self._indexed.__getitem__, selection)


class AsyncGroup(_Awaited):
    """A group whose methods are awaited: `await group.getitem(name)`."""

    @property
    def group(self) -> Any:
        """The group whose methods block."""
        return self._blocking

    @classmethod
    async def from_store(cls, store: Any, **options: Any) -> Any:
        """Create a group at a store's root, or at a `StorePath`."""
        return await awaited(cls.blocking.from_store)(store, **options)

    async def getitem(self, key: str) -> Any:
        """The member of that name."""
        return as_awaited(await in_thread(self.group.__getitem__, key))

    async def setitem(self, key: str, value: Any) -> None:
        """Create an array with these items."""
        await in_thread(self.group.__setitem__, key, value)

    async def delitem(self, key: str) -> None:
        """Remove the member of that name."""
        await in_thread(self.group.__delitem__, key)

    async def contains(self, member: str) -> bool:
        """Whether there is a member of that name."""
        return await in_thread(self.group.__contains__, member)


def _iterated(name: str) -> Callable[..., AsyncIterator[Any]]:
    async def walk(self: AsyncGroup, *args: Any, **options: Any) -> AsyncIterator[Any]:
        found: Iterable[Any] = await in_thread(lambda: [*getattr(self.group, name)(*args, **options)])
        for value in found:
            yield as_awaited(value)

    walk.__doc__ = f"`Group.{name}`, one after the other."
    return walk


def _called(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(self: _Awaited, *args: Any, **options: Any) -> Any:
        return await awaited(getattr(self._blocking, name))(*args, **options)

    call.__doc__ = f"`{name}` of the blocking node, awaited."
    return call


for _name in (
    *("resize", "append", "info_complete", "nbytes_stored", "update_attributes"),
    *("get_orthogonal_selection", "get_coordinate_selection", "get_mask_selection"),
):
    setattr(AsyncArray, _name, _called(_name))
for _name in (
    *("create_array", "create_group", "require_array", "require_group", "require_groups", "get", "tree"),
    *("get_array", "get_group", "nmembers", "update_attributes", "info_complete", "move", "empty", "zeros"),
    *("ones", "full", "empty_like", "zeros_like", "ones_like", "full_like"),
):
    setattr(AsyncGroup, _name, _called(_name))
for _name in (
    *("members", "keys", "arrays", "groups", "array_keys", "group_keys", "array_values", "group_values"),
    "create_hierarchy",
):
    setattr(AsyncGroup, _name, _iterated(_name))

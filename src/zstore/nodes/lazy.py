"""Views of an array: `oindex`, `vindex` and `blocks`, and lazy selections of selections."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from math import prod
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from zstore.engine.documents import place
from zstore.engine.schedulers import BLOCKING, Scheduler, drive
from zstore.errors import SelectionError
from zstore.nodes.node import Missing
from zstore.storage.base import Store

Items: TypeAlias = npt.NDArray[Any]


def async_scheduler() -> Scheduler:
    """The scheduler for event loops."""
    # Imported here because blocking calls never need asyncio.
    from zstore.engine.awaiting import ASYNC

    return ASYNC


class Indexer:
    """Reads and writes an array by another kind of selection than numpy's own."""

    __slots__ = ("_read", "_write")

    def __init__(
        self,
        read: Callable[..., Coroutine[Any, Any, Items]],
        write: Callable[[Scheduler, Any, Any], Coroutine[Any, Any, None]],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, selection: Any) -> Items:
        return drive(self._read(BLOCKING, selection))

    def read(self, selection: Any, *, out: Items | None = None) -> Items:
        """Read the selected items, into `out` if it is not None; see `Array.read`."""
        return drive(self._read(BLOCKING, selection, out=out))

    def __setitem__(self, selection: Any, value: Any) -> None:
        drive(self._write(BLOCKING, selection, value))

    async def read_async(self, selection: Any) -> Items:
        """Read the selected items without blocking the event loop; see `Array.read_async`."""
        return await self._read(async_scheduler(), selection)

    async def write_async(self, selection: Any, value: Any) -> None:
        """Store `value` in the selected items without blocking the event loop; see `Array.write_async`."""
        await self._write(async_scheduler(), selection, value)


# Lazy views


class Viewed(Protocol):
    """The interface of an array that can have lazy views."""

    @property
    def store(self) -> Store: ...
    @property
    def path(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def read(
        self, selection: Any, *, out: npt.NDArray[Any] | None, missing: Missing | None
    ) -> npt.NDArray[Any]: ...
    def __setitem__(self, selection: Any, value: Any) -> None: ...
    def __dask_tokenize__(self) -> tuple[Any, ...]: ...


A = TypeVar("A", bound=Viewed)


class LazyArray(Generic[A]):
    """A part of an array that is not read yet: `array.lazy[10:20][:, ::-1]`.

    Selecting from it by integers, slices with any step, ellipsis and new axes gives another view, as in
    numpy. `numpy.asarray(view)` or `view.read()` reads its items, `view[...] = value` writes them.
    """

    __slots__ = ("_array", "_axes", "_places")

    def __init__(
        self,
        array: A,
        places: tuple[int | range, ...] | None = None,
        axes: tuple[int | None, ...] | None = None,
    ) -> None:
        self._array = array
        # The item or items of each dimension of the array; the dimension of each axis of the view.
        self._places = tuple(map(range, array.shape)) if places is None else places
        self._axes = tuple(range(len(array.shape))) if axes is None else axes

    def __reduce__(self) -> tuple[Any, ...]:
        return (LazyArray, (self._array, self._places, self._axes))

    @property
    def array(self) -> A:
        """The array that this is a view of."""
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return tuple(1 if d is None else len(self._range(d)) for d in self._axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the items in memory."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._axes)

    @property
    def size(self) -> int:
        """The number of items."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that all items take in memory."""
        return self.size * self.dtype.itemsize

    @property
    def selection(self) -> tuple[Any, ...]:
        """The basic selection of the array that gives the same items."""
        return tuple(self._selectors())

    def _selectors(self) -> Iterator[Any]:
        done = 0
        for axis in self._axes:
            if axis is None:
                yield None
                continue
            yield from self._places[done:axis]
            yield _as_slice(self._range(axis))
            done = axis + 1
        yield from self._places[done:]

    def _range(self, dimension: int) -> range:
        place = self._places[dimension]
        assert isinstance(place, range), "an axis of a view is a dimension with several items"
        return place

    def __len__(self) -> int:
        if not self._axes:
            raise TypeError("len() of a 0-d view")
        return self.shape[0]

    def __getitem__(self, selection: Any) -> LazyArray[A]:
        places = list(self._places)
        axes: list[int | None] = []
        left = list(self._axes)
        for item in self._expand(selection):
            if item is None:
                axes.append(None)
                continue
            axis, length = left.pop(0), self.shape[self.ndim - len(left) - 1]
            taken = self._take(range(length) if axis is None else self._range(axis), item)
            if axis is not None:
                places[axis] = taken
            elif isinstance(taken, range) and len(taken) != 1:
                raise self._refusal(f"{item!r} empties a new axis; expected a part of the array to be empty")
            if isinstance(taken, range):
                axes.append(axis)
        return LazyArray(self._array, tuple(places), (*axes, *left))

    def _expand(self, selection: Any) -> list[Any]:
        """One selector for each axis that is selected from, and None for each new axis."""
        items = list(selection) if isinstance(selection, tuple) else [selection]
        places = [place for place, item in enumerate(items) if item is Ellipsis]
        count = sum(item is not None and item is not Ellipsis for item in items)
        if len(places) > 1 or count > self.ndim:
            raise self._refusal(f"{selection!r} does not fit {self.ndim} axes")
        if places:
            items[places[0] : places[0] + 1] = [slice(None)] * (self.ndim - count)
        return items

    def _take(self, items: range, selector: Any) -> int | range:
        if isinstance(selector, slice):
            return items[selector]
        if isinstance(selector, bool | np.bool_) or not hasattr(selector, "__index__") or np.ndim(selector):
            raise self._refusal(
                f"{selector!r} is no integer, slice, ellipsis or new axis; read the view to select by arrays"
            )
        try:
            place: int = items[selector]
            return place
        except IndexError:
            raise self._refusal(f"index {selector} is out of bounds for {len(items)} items") from None

    def _refusal(self, reason: str) -> SelectionError:
        where = place(self._array.store, self._array.path)
        return SelectionError(f"lazy selection {reason}", path=where)

    def read(
        self, *, out: npt.NDArray[Any] | None = None, missing: Missing | None = None
    ) -> npt.NDArray[Any]:
        """Read the items, into `out` if it is not None; see `Array.read`."""
        return self._array.read(self.selection, out=out, missing=missing)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("an array in a store cannot be had without a copy")
        items = self.read()
        return items if dtype is None else items.astype(dtype, copy=False)

    def __setitem__(self, selection: Any, value: Any) -> None:
        view = self[selection]
        view._array[view.selection] = value

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("zstore.LazyArray", self._array.__dask_tokenize__(), repr(self.selection))

    def __repr__(self) -> str:
        return f"<LazyArray shape={self.shape} dtype={self.dtype} of {self._array!r}>"


def _as_slice(items: range) -> slice:
    if not items:
        return slice(0, 0)
    # There is no index before the first item: a slice that runs down to it has no stop.
    stop = items[-1] + (1 if items.step > 0 else -1)
    return slice(items[0], None if stop < 0 else stop, items.step)

"""An array in a store: read and written by numpy's selections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from types import EllipsisType
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from zstore.engine.chunks import Chunks
from zstore.engine.documents import read_node
from zstore.engine.doors import CALLING, Door, drive
from zstore.engine.objects import as_items
from zstore.engine.rectilinear import open_chunks
from zstore.engine.resize import resize
from zstore.errors import NotFoundError, SelectionError, located, without_secrets
from zstore.indexing.fields import Fields, pack_fields, split_fields, take_fields
from zstore.indexing.plans import AnyLayout, Plan, plan_basic
from zstore.indexing.select import Selected, select, select_blocks, select_orthogonal, select_points
from zstore.model.array import ArrayModel
from zstore.model.fill import in_words
from zstore.model.grid import RegularGrid
from zstore.model.order import is_same_type
from zstore.nodes import above
from zstore.nodes.indexers import Indexer, awaited_door
from zstore.nodes.lazy import LazyArray
from zstore.nodes.node import Access, Missing, is_fault
from zstore.nodes.zarr_names import ArrayNames, innermost_codecs
from zstore.storage.base import Store
from zstore.storage.locking import hold_name

__all__ = ["Array"]

Items: TypeAlias = npt.NDArray[Any]
Selector = Callable[[AnyLayout, tuple[int, ...], Any], Selected]

# Selections that give an array whatever the number of dimensions; others may give a single item.
_Several: TypeAlias = slice | EllipsisType | list[int] | list[bool] | npt.NDArray[Any] | None
Several: TypeAlias = _Several | tuple[_Several, ...]


class Array(ArrayNames):
    """Chunked items of one dtype; `array[selection]` reads and `array[selection] = value` writes.

    Selections mean what they mean to numpy, and results equal numpy's: integers, slices with any step,
    ellipsis, new axes, masks, index arrays, and all of them together. `oindex` takes every dimension by
    itself, `vindex` goes point by point, `blocks` by whole chunks. Safe to use from many threads at once.
    """

    def __init__(self, store: Store, path: str, model: ArrayModel, access: Access = Access()) -> None:  # noqa: B008
        super().__init__(store, path, model, access)
        if not self.read_only:
            store.purge(path)
        self._made: Chunks | None = None
        self._missing_is_fault = is_fault(access.missing)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Array, (self._store, self._path, self._model, self._access))

    @property
    def _chunks(self) -> Chunks:
        chunks = self._made
        if chunks is None or chunks.model is not self._model:
            chunks = self._made = self._make_chunks(self._model)
        return chunks

    def _make_chunks(self, model: ArrayModel) -> Chunks:
        access = self._access
        with located(self._where()):
            chunks = open_chunks(
                self._store,
                self._path,
                model,
                cache_size=access.cache_size,
                allow_pickle=access.allow_pickle,
            )
        chunks.is_published = access.is_published
        return chunks

    def __repr__(self) -> str:
        return f"<Array {without_secrets(self._where())} shape={self.shape} dtype={self.dtype}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self._store.url, self._path, self._model) == (other._store.url, other._path, other._model)

    __hash__ = None  # type: ignore[assignment]

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Items per dimension."""
        return self._model.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the items in memory: always in native byte order."""
        return self._model.dtype

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return len(self._model.shape)

    @property
    def size(self) -> int:
        """How many items."""
        return prod(self._model.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all items in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of what is encoded on its own: of inner chunks where there are shards.

        Of the largest one where chunks differ in shape; `write_chunk_sizes` has them all.
        """
        with located(self._where()):
            inner = self._model.inner_chunk_shape
        return self._model.grid.chunk_shape if inner is None else inner

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of the shards, None where chunks are stored one by one."""
        is_sharded = any(codec.name == "sharding_indexed" for codec in self._model.codecs)
        return self._model.grid.chunk_shape if is_sharded else None

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """How much of each dimension every stored chunk (shard, where there are) along it holds."""
        return tuple(self._model.grid.lengths(d, length) for d, length in enumerate(self.shape))

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """As `write_chunk_sizes`, of inner chunks where there are shards."""
        if self.shards is None:
            return self.write_chunk_sizes
        # Shards are whole multiples of their inner chunks, so these are cut as if there were no shards.
        inner = RegularGrid(self.chunks)
        return tuple(inner.lengths(d, length) for d, length in enumerate(self.shape))

    @property
    def fill_value(self) -> Any:
        """What items are where nothing was written; None where the metadata leaves it open (then zeros)."""
        return self._model.fill_value

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """The names of the dimensions, where they have names."""
        return self._model.dimension_names

    @property
    def info(self) -> str:
        """What it is, line by line."""
        lines = {
            "Name": self.name,
            "Zarr format": self.zarr_format,
            "Data type": self.dtype,
            "Shape": self.shape,
            "Chunks": self.chunks,
            "Shards": self.shards,
            "Dimensions": self.dims,
            "Fill value": None if self.fill_value is None else in_words(self.fill_value, str),
            "Codecs": ", ".join(codec.name for codec in self._model.codecs),
            "Inner codecs": ", ".join(c.name for c in innermost_codecs(self._model)) if self.shards else None,
            "Store": without_secrets(self._store.url),
            "Read-only": self.read_only,
            "Bytes": f"{self.nbytes:,}",
        }
        width = max(map(len, lines))
        return "\n".join(f"{label:<{width}} : {value}" for label, value in lines.items() if value is not None)

    def viewed_as(self, dtype: npt.DTypeLike) -> Array:
        """The same array, its items taken for those of another type as long; no codec may know their type."""
        return Array(self._store, self._path, self._model.viewed_as(dtype), self._access)

    # Reading

    @overload
    def __getitem__(self, selection: Several) -> Items: ...
    @overload
    def __getitem__(self, selection: Any) -> Any: ...
    def __getitem__(self, selection: Any) -> Any:
        chunks = self._made
        if chunks is None or chunks.model is not self._model:
            chunks = self._chunks
        try:
            plan = chunks.plan(selection)
        except IndexError as error:
            raise SelectionError(str(error), path=self._where()) from None
        if plan is None:
            selected, fields, selection = self._select(chunks, selection)
            out = drive(self._read_selected(CALLING, chunks, selected, fields))
        else:
            out = np.empty(plan.shape, chunks.dtype)
            chunks.read_box(plan, out, self._missing_is_fault)
        return out if out.shape or _has_ellipsis(selection) else out[()]

    def read(
        self, selection: Any = Ellipsis, *, out: Items | None = None, missing: Missing | None = None
    ) -> Items:
        """What `array[selection]` gives, into `out` where that is given (any strides, same shape and dtype;
        items are converted where it has the other byte order).

        Of structured items, a name (or a list of names) anywhere in the selection gives those fields alone.

        `missing` is "fill" (chunks that were never written read as the fill value) or "error"; None is
        what the array was opened with.

        Raises
            SelectionError: the selection does not fit the array.
            NotFoundError: a chunk is missing and `missing` is "error".
            CodecError: a chunk is damaged.
            ValueError: `out` has another shape or dtype.
        """
        return drive(self._read(CALLING, selection, out=out, missing=missing))

    async def read_async(
        self, selection: Any = Ellipsis, *, out: Items | None = None, missing: Missing | None = None
    ) -> Items:
        """What `read` gives, while the event loop goes on: of any loop, in any thread, many at once.

        Stores are asked on the loop or beside it, and chunks are decoded on the engine's threads. All awaited
        reads of the process hold at most 1,024 windows and 256 MiB that are not decoded yet; others wait for
        their turn. When the task is cancelled, nothing more is asked for, and a window that is being decoded
        ends first; what `out` holds is undefined then.

        Raises what `read` raises.
        """
        return await self._read(awaited_door(), selection, out=out, missing=missing)

    def read_many(
        self,
        selections: Iterable[Any],
        *,
        out: Sequence[Items] | None = None,
        missing: Missing | None = None,
    ) -> list[Any]:
        """`[array[selection] for selection in selections]`, read together.

        A chunk that several of them touch is fetched and decoded once. `out` has one array for each
        selection, as `read` takes it; none of them may overlap. Raises what `read` raises; then what the
        arrays hold is undefined.
        """
        return drive(self._read_many(CALLING, selections, out, missing))

    async def read_many_async(
        self,
        selections: Iterable[Any],
        *,
        out: Sequence[Items] | None = None,
        missing: Missing | None = None,
    ) -> list[Any]:
        """What `read_many` gives, while the event loop goes on; see `read_async`."""
        return await self._read_many(awaited_door(), selections, out, missing)

    async def _read_many(
        self,
        door: Door,
        selections: Iterable[Any],
        out: Sequence[Items] | None,
        missing: Missing | None,
    ) -> list[Any]:
        missing_is_fault = self._is_fault(missing)
        wanted = list(selections)
        if out is not None and len(out) != len(wanted):
            raise ValueError(f"out has {len(out)} arrays, expected {len(wanted)}, one for each selection")

        def plan() -> tuple[Chunks, list[Any], list[tuple[Items, Callable[[], Items]]]]:
            chunks = self._chunks
            plans, outputs = [], []
            for k, selection in enumerate(wanted):
                selected, fields, _ = self._select(chunks, selection)
                plans.append(selected.plan)
                outputs.append(_output(selected, chunks.dtype, None if out is None else out[k], fields))
            return chunks, plans, outputs

        chunks, plans, outputs = await door.run(plan)
        await chunks.read_many_by(door, plans, [memory for memory, _ in outputs], missing_is_fault)
        results = await door.run(lambda: [result() for _, result in outputs])
        if out is not None:
            return results
        pairs = zip(results, wanted, strict=True)
        return [items if items.shape or _has_ellipsis(selection) else items[()] for items, selection in pairs]

    def _is_fault(self, missing: str | None) -> bool:
        return self._missing_is_fault if missing is None else is_fault(missing)

    def _select(
        self, chunks: Chunks, selection: Any, selector: Selector = select, *, to_write: bool = False
    ) -> tuple[Selected, Fields, Any]:
        """What is selected, the fields that are named, and the selection without their names."""
        try:
            fields, rest = split_fields(selection, chunks.dtype)
            layout = chunks.layout
            if to_write:
                layout = chunks.write_layout if fields is None else chunks.field_layout
            return selector(layout, chunks.model.shape, rest), fields, rest
        except SelectionError as error:
            raise error.locate(path=self._where()) from None

    async def _read(
        self,
        door: Door,
        selection: Any,
        selector: Selector = select,
        out: Items | None = None,
        missing: Missing | None = None,
    ) -> Items:
        missing_is_fault = self._is_fault(missing)

        def plan() -> tuple[Chunks, Selected, Fields]:
            chunks = self._chunks
            selected, fields, _ = self._select(chunks, selection, selector)
            return chunks, selected, fields

        # What is planned in microseconds need not go to another thread.
        is_short = door is CALLING or (self._made is not None and _is_basic(selection))
        chunks, selected, fields = plan() if is_short else await door.run(plan)
        return await self._read_selected(door, chunks, selected, fields, out, missing_is_fault)

    async def _read_selected(
        self,
        door: Door,
        chunks: Chunks,
        selected: Selected,
        fields: Fields = None,
        out: Items | None = None,
        missing_is_fault: bool | None = None,
    ) -> Items:
        memory, result = _output(selected, chunks.dtype, out, fields)
        if missing_is_fault is None:
            missing_is_fault = self._missing_is_fault
        await chunks.read_by(door, selected.plan, memory, missing_is_fault)
        is_ready = selected.from_plan is None and fields is None and (out is None or out is memory)
        return result() if is_ready else await door.run(result)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Items:
        if copy is False:
            raise ValueError("an array in a store cannot be had without a copy")
        items = self[...]
        return items if dtype is None else items.astype(dtype, copy=False)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Stores in memory can share a name, or have none.
        held = id(self._store) if self._store.in_memory else None
        return ("zstore.Array", self._store.url, held, self._path, repr(self._model))

    def reduce(self, method: str, axis: Any = None, **options: Any) -> Any:
        """What numpy's reduction gives of the array, or of dimensions by number or name, in one pass over the
        chunks and without the whole array in memory: `array.reduce("mean", axis="time")`.

        See `zstore.reduce` for the methods and options.
        """
        return above.reduce(self, method, axis, **options)

    # Writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        drive(self._write(CALLING, selection, value))

    async def write_async(self, selection: Any, value: Any) -> None:
        """What `array[selection] = value` does, while the event loop goes on.

        Each chunk is read, changed and put by one thread, under its lock and the store's conditions, as it is
        by those who call; 32 threads are there for all awaited writes of the process. `value` must not change
        until the write has ended. When the task is cancelled, chunks that are being written end first, and no
        others begin: each is as it was or as it is to be.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            SelectionError: the selection does not fit the array, or the value does not fit the selection.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        await self._write(awaited_door(), selection, value)

    async def _write(self, door: Door, selection: Any, value: Any, selector: Selector = select) -> None:
        chunks, plan, items, has_fields = await door.run(partial(self._to_write, selection, value, selector))
        if items.size:
            await chunks.write_by(door, plan, items, has_fields)
        else:
            self._store.check_writable(self._path)

    def _to_write(self, selection: Any, value: Any, selector: Selector) -> tuple[Chunks, Plan, Items, bool]:
        """The chunks, a plan for them, the items that it takes, and whether they are some fields only."""
        chunks = self._chunks
        selected, fields, _ = self._select(chunks, selection, selector, to_write=True)
        shape = selected.shape
        items = self._as_items(value, shape) if fields is None else value
        try:
            if fields is None:
                while items.ndim > len(shape) and items.shape[0] == 1:
                    items = items[0]
                items = np.broadcast_to(items, shape)
            else:
                items = pack_fields(value, self.dtype, fields, shape)
        except ValueError as error:
            raise SelectionError(
                f"could not broadcast input array from shape {np.shape(items)} into shape {shape}: {error}",
                path=self._where(),
            ) from None
        if selected.to_plan is not None and items.size:
            items = selected.to_plan(items)
        return chunks, selected.plan, items, fields is not None

    def _as_items(self, value: Any, shape: tuple[int, ...] | None = None) -> Items:
        """`value` as numpy would assign it to an array of this dtype, to a place of that shape."""
        if self._model.data_type.is_object:
            with located(self._where()):
                return as_items(value, self._model.data_type, shape)
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(value).astype(self.dtype, copy=False)
        return np.asarray(value, self.dtype)

    def cached(self, size: int) -> Array:
        """This array, keeping decoded chunks of at most `size` bytes for the next read that needs them.

        For reads that come back to the same chunks: windows that overlap, rows one by one. A chunk that
        anybody replaces is read anew. Chunks in a directory and of native codecs only; elsewhere nothing is
        kept.
        """
        return Array(self._store, self._path, self._model, replace(self._access, cache_size=size))

    # Other ways to select

    @property
    def oindex(self) -> Indexer:
        """Every dimension by itself: `array.oindex[[0, 5], :, mask]`."""
        return self._indexer(select_orthogonal)

    @property
    def vindex(self) -> Indexer:
        """Point by point: `array.vindex[[0, 5], [7, 9]]` has 2 items."""
        return self._indexer(select_points)

    @property
    def blocks(self) -> Indexer:
        """By whole chunks (shards, where there are): `array.blocks[0, 1:3]`."""
        grid = self._model.grid
        return self._indexer(lambda layout, shape, key: select_blocks(layout, shape, grid, key))

    def _indexer(self, selector: Selector) -> Indexer:
        return Indexer(partial(self._read, selector=selector), partial(self._write, selector=selector))

    @property
    def lazy(self) -> LazyArray[Array]:
        """A view that reads when its items are wanted: `array.lazy[10:20][:, ::-1].read()`."""
        return LazyArray(self)

    # Changing the shape

    def resize(self, shape: int | tuple[int, ...]) -> None:
        """Change the shape in place; what lies outside it is gone, what is new reads as the fill value.

        Readers find the old array or the new one at any moment, after any failure too; the same call again
        finishes what failed. Growing takes a look at the chunks that the new shape adds, however large the
        array. Shrinking changes the shape, then removes the chunks outside and clears what those at the new
        edge hold beyond it: whoever opened the array before finds the fill value there.

        Raises
            NotFoundError: the array is gone.
            ReadOnlyError, StoreError: the store refused.
        """
        wanted = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)

        def resized(old: tuple[int, ...]) -> tuple[int, ...]:
            if len(wanted) != len(old) or any(length < 0 for length in wanted):
                raise ValueError(f"cannot resize {old} to {wanted}: expected {len(old)} lengths of 0 or more")
            return wanted

        self._resize(resized)

    def _resize(
        self,
        new_shape: Callable[[tuple[int, ...]], tuple[int, ...]],
        write: Callable[[ArrayModel, ArrayModel], None] | None = None,
    ) -> tuple[int, ...]:
        with hold_name(("resize", id(self))):
            resize(
                self._store,
                self._path,
                self.zarr_format,
                new_shape,
                self._set_model,
                write=write,
                allow_pickle=self._access.allow_pickle,
            )
            return self.shape

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Put `data` behind what is there along `axis`; gives the new shape.

        The items are stored before the array says that it has them: readers find all of them or none, after
        any failure too. Several writers can append at once without meeting, as far as the store's locks
        reach; one waits for the other.

        Raises
            ValueError: the other dimensions of `data` are not the array's.
            CodecError: the chunk that the new items share with old ones is damaged.
            StoreError: the store failed; nothing was appended.
        """
        is_list = isinstance(data, list | tuple)
        items = self._as_items(data, (len(data),) if is_list and self.ndim == 1 else None)

        def grown(old: tuple[int, ...]) -> tuple[int, ...]:
            if (
                not 0 <= axis < len(old)
                or items.ndim != len(old)
                or any(a != b for d, (a, b) in enumerate(zip(items.shape, old, strict=True)) if d != axis)
            ):
                raise ValueError(f"cannot append shape {items.shape} to {old} along axis {axis}")
            return (*old[:axis], old[axis] + items.shape[axis], *old[axis + 1 :])

        def write(old: ArrayModel, new: ArrayModel) -> None:
            region = [slice(0, length) for length in new.shape]
            region[axis] = slice(old.shape[axis], new.shape[axis])
            # As part of a larger array: what chunks at the end hold beyond this one stays as it is.
            chunks = self._make_chunks(new.with_shape(new.grid.beyond(new.shape)))
            chunks.write(plan_basic(chunks.write_layout, tuple(region)), items)

        grown(self.shape)
        return self._resize(grown, write)

    def refresh(self) -> Array:
        """Read the metadata again, e.g. after somebody else has resized the array."""
        model = read_node(self._store, self._path, self.zarr_format)
        if not isinstance(model, ArrayModel):
            raise NotFoundError("array is gone", path=self._where())
        self._set_model(model)
        return self


def _is_basic(selection: Any) -> bool:
    """Whether it is made of integers, slices, ellipsis and new axes."""
    items = selection if isinstance(selection, tuple) else (selection,)
    return all(item is None or isinstance(item, int | slice | EllipsisType) for item in items)


def _has_ellipsis(selection: Any) -> bool:
    # Not `in`, which compares index arrays item by item.
    items = selection if isinstance(selection, tuple) else (selection,)
    for item in items:  # noqa: SIM110 - twice as fast as any()
        if item is Ellipsis:
            return True
    return False


def _output(
    selected: Selected, dtype: np.dtype[Any], out: Items | None = None, fields: Fields = None
) -> tuple[Items, Callable[[], Items]]:
    """The memory to read items of `dtype` into, and what then makes the result of it.

    That memory is `out`, as far as its strides allow.

    Raises
        ValueError: `out` has another shape or dtype than the result.
    """
    from_plan = selected.from_plan
    if out is not None and fields is None:
        _check_out(out, selected.shape, dtype)
    if out is not None and fields is None and out.dtype == dtype:
        view = out if selected.to_plan is None else selected.to_plan(out)
        if from_plan is None or np.may_share_memory(view, out):
            return view, lambda: out
    memory: Items = np.empty(selected.plan.shape, dtype)

    def result() -> Items:
        items = take_fields(memory if from_plan is None else from_plan(memory), fields)
        if out is None:
            return items
        _check_out(out, items.shape, items.dtype)
        out[...] = items
        return out

    return memory, result


def _check_out(out: Items, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if out.shape != shape or not is_same_type(out.dtype, dtype):
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, expected {shape} and {dtype}")

"""Arrays in a store, read and written by numpy's selections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from types import EllipsisType
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from zstore.base import tracing
from zstore.base.boxes import axes_of
from zstore.codecs.base import has_checksum
from zstore.engine.chunks import Chunks, Join, open_chunks
from zstore.engine.documents import read_node
from zstore.engine.explain import Explanation, explain
from zstore.engine.objects import as_items
from zstore.engine.resize import resize
from zstore.engine.schedulers import BLOCKING, InFlight, Scheduler
from zstore.errors import (
    ChangedError,
    NotFoundError,
    SelectionError,
    located,
    printable,
    without_secrets,
)
from zstore.indexing.select import (
    AnyLayout,
    Fields,
    Selected,
    SelectionPlan,
    is_basic,
    pack_fields,
    plan_basic,
    select,
    select_blocks,
    select_orthogonal,
    select_points,
    split_fields,
    take_fields,
)
from zstore.indexing.transform import IndexTransform
from zstore.model.array import ArrayModel
from zstore.model.dtype import in_words, is_same_type
from zstore.model.grid import LIMIT, RegularGrid, parse_integers
from zstore.nodes import above
from zstore.nodes.indexers import Indexer, async_scheduler
from zstore.nodes.node import Access, Missing, is_fault
from zstore.nodes.zarr_names import ArrayNames, innermost_codecs
from zstore.storage.base import Store, drive, hold_name

Items: TypeAlias = npt.NDArray[Any]
Selector = Callable[[AnyLayout, tuple[int, ...], Any], Selected]

# For type checkers: selections that always give an array; any other may give a single item.
_Several: TypeAlias = slice | EllipsisType | list[int] | list[bool] | npt.NDArray[Any] | None
Several: TypeAlias = _Several | tuple[_Several, ...]


class Array(ArrayNames):
    """A chunked array in a store; `array[selection]` reads and `array[selection] = value` writes.

    Selections and results are numpy's: integers, slices with any step, ellipsis, new axes, masks, index
    arrays, and combinations of them. `oindex` indexes each dimension independently, `vindex` selects points,
    `blocks` whole chunks. Safe to use from many threads at once.
    """

    def __init__(self, store: Store, path: str, model: ArrayModel, access: Access = Access()) -> None:  # noqa: B008
        super().__init__(store, path, model, access)
        if not self.read_only:
            store.purge(path)
        self._made: Chunks | None = None
        self._binding: InFlight = {}
        self._missing_is_fault = is_fault(access.missing)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Array, (self._store, self._path, self._model, self._access))

    @property
    def _chunks(self) -> Chunks:
        chunks = self._made
        if chunks is None or chunks.model is not self._model:
            chunks = self._made = self._make_chunks(self._model)
        return chunks

    def _make_chunks(self, model: ArrayModel, store: Store | None = None) -> Chunks:
        access = self._access
        with located(self._where()):
            chunks = open_chunks(
                store or self._store,
                self._path,
                model,
                cache_size=access.cache_size,
                allow_pickle=access.allow_pickle,
            )
        chunks.is_published, chunks.skip_empty = access.is_published, not access.keeps_empty
        chunks.is_guarded = access.is_published and not access.is_viewed
        return chunks

    def __repr__(self) -> str:
        return f"<Array {printable(without_secrets(self._where()))} shape={self.shape} dtype={self.dtype}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self._store.url, self._path, self._model) == (other._store.url, other._path, other._model)

    __hash__ = None  # type: ignore[assignment]

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._model.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the items in memory."""
        return self._model.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._model.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return prod(self._model.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that all items take in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return map(self.__getitem__, range(self.shape[0]))

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of the chunks, which are encoded one by one; in shards, that of the inner chunks.

        Where chunks differ in shape, it is that of the largest; `write_chunk_sizes` has all of them.
        """
        with located(self._where()):
            inner = self._model.inner_chunk_shape
        return self._model.grid.chunk_shape if inner is None else inner

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of the shards, None if the array has none."""
        is_sharded = any(codec.name == "sharding_indexed" for codec in self._model.codecs)
        return self._model.grid.chunk_shape if is_sharded else None

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The lengths of the stored chunks (or shards) along each dimension, cut at the array's end."""
        return tuple(self._model.grid.lengths(d, length) for d, length in enumerate(self.shape))

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The same as `write_chunk_sizes`, but of inner chunks if the array has shards."""
        if self.shards is None:
            return self.write_chunk_sizes
        # Shards are whole multiples of their inner chunks, so the grid of these ignores the shards.
        inner = RegularGrid(self.chunks)
        return tuple(inner.lengths(d, length) for d, length in enumerate(self.shape))

    @property
    def has_checksum(self) -> bool:
        """Whether chunks are stored with a checksum, so that a changed byte is an error and never an item."""
        with located(self._where()):
            codecs = innermost_codecs(self._model)
        return has_checksum((*self._model.codecs, *codecs))

    @property
    def fill_value(self) -> Any:
        """The value of items that were never written; None if the metadata has none (they read as zeros)."""
        return self._model.fill_value

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """The names of the dimensions (None for one without a name), or None if the array has none."""
        return self._model.dimension_names

    @property
    def info(self) -> str:
        """A summary of the array, one property per line."""
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
        """The same array, its items reinterpreted as by numpy's `view`; no codec may depend on their type."""
        access = replace(self._access, is_viewed=True)
        return Array(self._store, self._path, self._model.viewed_as(dtype), access)

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
            out = drive(self._read_selected(BLOCKING, chunks, selected, fields))
        else:
            out = np.empty(plan.shape, chunks.dtype)
            if tracing.is_on:
                chunks.read_traced(plan, out, self._missing_is_fault)
            else:
                chunks.read_box(plan, out, self._missing_is_fault)
        return out if out.shape or _has_ellipsis(selection) else out[()]

    def read(
        self, selection: Any = Ellipsis, *, out: Items | None = None, missing: Missing | None = None
    ) -> Items:
        """Read the items of `array[selection]`, into `out` if it is not None.

        out      an array of the result's shape and dtype, with any strides and either byte order
        missing  "fill": chunks that were never written read as the fill value; "error": they are an error;
                 None: as the array was opened

        In an array of structured items, a field's name (or a list of names) anywhere in the selection reads
        only those fields.

        Raises
            SelectionError: the selection does not fit the array.
            NotFoundError: a chunk is missing and `missing` is "error".
            CodecError: a chunk is damaged.
            ValueError: `out` has another shape or dtype.
        """
        return drive(self._read(BLOCKING, selection, out=out, missing=missing))

    async def read_async(
        self, selection: Any = Ellipsis, *, out: Items | None = None, missing: Missing | None = None
    ) -> Items:
        """`read`, without blocking the event loop; any number of loops and tasks at once.

        Requests are awaited, and chunks are decoded on the engine's threads. All awaited reads of the process
        together hold at most 1,024 windows and 256 MiB that are not decoded yet; further ones wait. When the
        task is cancelled, no more requests are made, and the window that is being decoded is finished first;
        the content of `out` is undefined then. Raises what `read` raises.
        """
        return await self._read(async_scheduler(), selection, out=out, missing=missing)

    def read_many(
        self,
        selections: Iterable[Any],
        *,
        out: Sequence[Items] | None = None,
        missing: Missing | None = None,
    ) -> list[Any]:
        """Read several selections together: `[array[selection] for selection in selections]`.

        A chunk that several of them touch is fetched and decoded once. `out` has one array for each
        selection, as `read` takes it; they must not overlap. Raises what `read` raises; the content of the
        arrays is undefined then.
        """
        return drive(self.read_many_with(BLOCKING, selections, out, missing))

    async def read_many_async(
        self,
        selections: Iterable[Any],
        *,
        out: Sequence[Items] | None = None,
        missing: Missing | None = None,
    ) -> list[Any]:
        """`read_many`, without blocking the event loop; see `read_async`."""
        return await self.read_many_with(async_scheduler(), selections, out, missing)

    async def read_many_with(
        self,
        scheduler: Scheduler,
        selections: Iterable[Any],
        out: Sequence[Items] | None,
        missing: Missing | None,
        selector: Selector = select,
    ) -> list[Any]:
        """`read_many`, with any scheduler and any kind of selection."""
        missing_is_fault = self._is_fault(missing)
        wanted = list(selections)
        if out is not None and len(out) != len(wanted):
            raise ValueError(f"out has {len(out)} arrays, expected {len(wanted)}, one for each selection")

        def plan() -> tuple[Chunks, list[Any], list[tuple[Items, Callable[[], Items]]]]:
            chunks = self._chunks
            plans, outputs = [], []
            for k, selection in enumerate(wanted):
                selected, fields, _ = self._select(chunks, selection, selector)
                plans.append(selected.plan)
                outputs.append(_output(selected, chunks.dtype, None if out is None else out[k], fields))
            return chunks, plans, outputs

        chunks, plans, outputs = await scheduler.run(plan)
        memory = [items for items, _ in outputs]
        if len(plans) == 1:
            await chunks.read_with(scheduler, plans[0], memory[0], missing_is_fault)
        else:
            await chunks.read_many_with(scheduler, plans, memory, missing_is_fault)
        results = await scheduler.run(lambda: [result() for _, result in outputs])
        if out is not None:
            return results
        pairs = zip(results, wanted, strict=True)
        return [items if items.shape or _has_ellipsis(selection) else items[()] for items, selection in pairs]

    def explain(self, selection: Any = Ellipsis) -> Explanation:
        """The cost of `array[selection]`, told from its plan: chunks to fetch and to decode; nothing is read.

        Chunks that are not stored count as the others do.

        Raises
            SelectionError: the selection does not fit the array.
        """
        chunks = self._chunks
        return explain(chunks, self._select(chunks, selection)[0].plan)

    def _is_fault(self, missing: str | None) -> bool:
        return self._missing_is_fault if missing is None else is_fault(missing)

    def _select(
        self, chunks: Chunks, selection: Any, selector: Selector = select, *, to_write: bool = False
    ) -> tuple[Selected, Fields, Any]:
        """The plan of a selection, the fields that it names, and the selection without their names."""
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
        scheduler: Scheduler,
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

        if scheduler is not BLOCKING and (self._made is None or self._binding):
            # Whoever comes while the codecs are being bound goes on in one turn with the others.
            with await scheduler.single_flight(self._binding, lambda: {self._path}):
                if self._made is None:
                    await scheduler.run(lambda: self._chunks)
        # Planning a basic selection takes microseconds, less than switching threads.
        is_short = scheduler is BLOCKING or (self._made is not None and is_basic(selection))
        chunks, selected, fields = plan() if is_short else await scheduler.run(plan)
        return await self._read_selected(scheduler, chunks, selected, fields, out, missing_is_fault)

    async def _read_selected(
        self,
        scheduler: Scheduler,
        chunks: Chunks,
        selected: Selected,
        fields: Fields = None,
        out: Items | None = None,
        missing_is_fault: bool | None = None,
    ) -> Items:
        memory, result = _output(selected, chunks.dtype, out, fields)
        if missing_is_fault is None:
            missing_is_fault = self._missing_is_fault
        await chunks.read_with(scheduler, selected.plan, memory, missing_is_fault)
        is_ready = selected.from_plan is None and fields is None and (out is None or out is memory)
        return result() if is_ready else await scheduler.run(result)

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
        """Reduce the array, or some of its dimensions, as numpy does: `array.reduce("mean", axis="time")`.

        Reads each chunk once, and never holds the whole array in memory. `axis` takes numbers and names of
        dimensions; `zstore.reduce` has the methods and options.
        """
        return above.reduce(self, method, axis, **options)

    def batches(self, **options: Any) -> Any:
        """Batches of samples, for a loop that trains on them: `array.batches(sample={"time": 2})`.

        `zstore.batches` has the options. Each chunk is read and decoded once in an epoch.
        """
        return above.batches(self, **options)

    # Writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        drive(self.write_with(BLOCKING, selection, value))

    async def write_async(self, selection: Any, value: Any) -> None:
        """`array[selection] = value`, without blocking the event loop.

        Each chunk is read, changed and stored by one thread under the chunk's lock, as in a blocking write;
        all awaited writes of the process share 32 threads. `value` must not change until the write has ended.
        When the task is cancelled, the chunks that are being written are finished, and no others are begun.

        Raises
            CodecError: a chunk that is covered in part is damaged, or cannot be encoded.
            SelectionError: the selection does not fit the array, or the value does not fit the selection.
            StoreError: the store failed; ReadOnlyError: it is open for reading only.
        """
        await self.write_with(async_scheduler(), selection, value)

    async def write_with(
        self, scheduler: Scheduler, selection: Any, value: Any, selector: Selector = select
    ) -> None:
        """`array[selection] = value`, with any scheduler and any kind of selection."""
        chunks, plan, items, has_fields = await scheduler.run(
            partial(self._to_write, selection, value, selector)
        )
        if items.size:
            await chunks.write_with(scheduler, plan, items, has_fields)
        else:
            self._store.check_writable(self._path)

    def _to_write(
        self, selection: Any, value: Any, selector: Selector
    ) -> tuple[Chunks, SelectionPlan, Items, bool]:
        """A write's chunks, its plan for them, its items, and whether these are single fields."""
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
            reason = "" if fields is None else f": {error}"
            raise SelectionError(
                f"could not broadcast input array from shape {np.shape(items)} into shape {shape}{reason}",
                path=self._where(),
            ) from None
        if selected.to_plan is not None and items.size:
            items = selected.to_plan(items)
        return chunks, selected.plan, items, fields is not None

    def _as_items(self, value: Any, shape: tuple[int, ...] | None = None) -> Items:
        """`value` as an array of this dtype, as numpy converts it for a selection of that shape."""
        if self._model.data_type.is_object:
            with located(self._where()):
                return as_items(value, self._model.data_type, shape)
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(value).astype(self.dtype, copy=False)
        return np.asarray(value, self.dtype)

    def cached(self, size: int, *, fresh_for: float = 0) -> Array:
        """The same array with a cache of its own in memory, of at most `size` bytes.

        For reads that return to the same chunks: overlapping windows, single rows. Of arrays in a directory,
        decoded chunks are kept, those of native codecs and of none; elsewhere the bytes of chunks and shards
        as they are stored. What has changed in the store is read again: files are looked at, unless somebody
        writes to them through a memory map; of other chunks, one byte is asked for, unless that was done in
        the last `fresh_for` seconds. `math.inf` says that nothing changes. Arrays in memory need no cache.

        Raises
            StoreError: the store does not tell whether values have changed; expected `fresh_for=math.inf`.
        """
        if isinstance(size, str) or not size >= 0:
            raise ValueError(f"size is {size!r}; expected bytes, 0 or more")
        is_in_folder = getattr(self._chunks, "folder", None) is not None
        store = self._store if is_in_folder else self._kept_store(size, fresh_for)
        return Array(store, self._path, self._model, replace(self._access, cache_size=size))

    # Other ways to select

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing, each dimension independently: `array.oindex[[0, 5], :, mask]`."""
        return self._indexer(select_orthogonal)

    @property
    def vindex(self) -> Indexer:
        """Selection of points by their coordinates: `array.vindex[[0, 5], [7, 9]]` has 2 items."""
        return self._indexer(select_points)

    @property
    def blocks(self) -> Indexer:
        """Selection of whole chunks (or shards) by their index in the grid: `array.blocks[0, 1:3]`."""
        return self._indexer(partial(select_blocks, self._model.grid))

    def _indexer(self, selector: Selector) -> Indexer:
        return Indexer(partial(self._read, selector=selector), partial(self.write_with, selector=selector))

    @property
    def lazy(self) -> Any:
        """A view that reads nothing until its items are needed: `array.lazy[10:20][:, ::-1].read()`.

        It is the `zstore.View` that `zstore.view(array)` makes.
        """
        return above.view(self)

    # Changing the shape

    def resize(self, shape: int | tuple[int, ...], *others: int) -> None:
        """Change the shape in place; items outside it are removed, new ones read as the fill value.

        At any moment, and after any failure, readers find the old array or the new one; repeating the call
        finishes what failed. Growing checks only the chunks that the new shape adds, however large the array.
        Shrinking changes the shape first, then deletes the chunks outside it and clears the rest of those at
        the new edge: readers that still have the old shape find the fill value there.

        Raises
            MetadataError: `shape` is no integer and no sequence of integers.
            TypeError: lengths one by one in place of a shape; says what to type.
            ValueError: its lengths are no shape of the array's dimensions.
            NotFoundError: the array is gone.
            ReadOnlyError, StoreError: the store refused.
        """
        if others:
            raise TypeError(f"resize takes one shape; use array.resize({(shape, *others)})")
        wanted = parse_integers(shape, "shape")

        def resized(old: tuple[int, ...]) -> tuple[int, ...]:
            if len(wanted) != len(old) or any(one is None or not 0 <= one <= LIMIT for one in wanted):
                raise ValueError(
                    f"cannot resize {old} to {wanted}: expected {len(old)} lengths from 0 to 2^63-1"
                )
            return tuple(map(int, wanted))

        self._resize(resized)

    def _resize(
        self,
        new_shape: Callable[[tuple[int, ...]], tuple[int, ...]],
        write: Callable[[Store, ArrayModel, ArrayModel], None] | None = None,
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

    def append(self, data: Any, axis: int | str = 0) -> tuple[int, ...]:
        """Append `data` along `axis`, the number or name of a dimension; returns the new shape.

        The items are stored before the shape is changed, so that readers find all of them or none, even after
        a failure. Concurrent appends wait for each other, as far as the store's locks reach.

        Raises
            ValueError: there is no such dimension; the others of `data` are not the array's.
            CodecError: the chunk that the new items share with old ones is damaged.
            StoreError: the store failed; nothing was appended.
        """
        is_list = isinstance(data, list | tuple)
        items = self._as_items(data, (len(data),) if is_list and self.ndim == 1 else None)
        (axis,) = axes_of((axis,), self.ndim, self.dims)

        def grown(old: tuple[int, ...]) -> tuple[int, ...]:
            if (
                axis >= len(old)
                or items.ndim != len(old)
                or any(a != b for d, (a, b) in enumerate(zip(items.shape, old, strict=True)) if d != axis)
            ):
                wanted = ", ".join("n" if d == axis else str(length) for d, length in enumerate(old))
                raise ValueError(
                    f"cannot append shape {items.shape} to {old} along axis {axis}; expected ({wanted})"
                )
            return (*old[:axis], old[axis] + items.shape[axis], *old[axis + 1 :])

        dtype = self.dtype

        def write(store: Store, old: ArrayModel, new: ArrayModel) -> None:
            if new.dtype != dtype:
                raise ChangedError(
                    f"cannot append: somebody else has replaced the array by one of {new.dtype}; expected "
                    f"{dtype}, as it was when it was opened",
                    path=self._where(),
                )
            region = [slice(0, length) for length in new.shape]
            region[axis] = slice(old.shape[axis], new.shape[axis])
            # Written as part of a larger array, so that edge chunks keep what they hold beyond this one.
            chunks = self._make_chunks(new.with_shape(new.grid.beyond(new.shape)), store)
            # Where no lock keeps others out, what is stored does.
            chunks.skip_empty &= not store.notices_changes
            chunks.write(plan_basic(chunks.write_layout, tuple(region)), items)

        grown(self.shape)
        return self._resize(grown, write)

    def refresh(self) -> Array:
        """Read the metadata again, e.g. after another process has resized the array.

        Raises
            NotFoundError: the array is gone.
        """
        model = read_node(self._store, self._path, self.zarr_format)
        if not isinstance(model, ArrayModel):
            raise NotFoundError("array is gone", path=self._where())
        self._set_model(model)
        return self


def join_array(
    join: Join, array: Array, transform: IndexTransform, out: Items, missing: Missing | None
) -> bool:
    """Add a selection of an array to those of others, to be read together; False: it must be read alone.

    Raises
        SelectionError: the selection does not fit the array.
    """
    chunks = array._made
    if chunks is None or chunks.model is not array._model:
        chunks = array._chunks
    try:
        return join.add(chunks, transform, out, array._is_fault(missing))
    except SelectionError as error:
        raise error.locate(path=array._where()) from None


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
    """The memory to read items of `dtype` into, and a function that makes the result from it afterwards.

    The memory is `out` itself if its strides allow.

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
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}, expected an array of {shape} and {dtype}")
    if out.shape != shape or not is_same_type(out.dtype, dtype):
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, expected {shape} and {dtype}")

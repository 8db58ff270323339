"""An array in a store: read and written by numpy's selections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from zstore.engine.chunks import Chunks
from zstore.engine.documents import read_node
from zstore.engine.objects import as_items
from zstore.engine.rectilinear import RectilinearChunks, open_chunks
from zstore.engine.runs import read_runs
from zstore.errors import CodecError, NotFoundError, SelectionError, ZstoreError
from zstore.indexing.fields import Fields, pack_fields, split_fields
from zstore.indexing.plans import AnyLayout, plan_basic
from zstore.indexing.runs import Runs
from zstore.indexing.select import Selected, select, select_blocks, select_orthogonal, select_points
from zstore.model.array import ArrayModel
from zstore.nodes.indexers import Indexer, Selector
from zstore.nodes.info import ArrayInfo, check_missing
from zstore.nodes.lazy import LazyArray
from zstore.nodes.output import land
from zstore.storage.base import Store, join_key
from zstore.storage.locking import hold_name

__all__ = ["Array"]


class Array(ArrayInfo):
    """Chunked items of one dtype; `array[selection]` reads and `array[selection] = value` writes.

    Selections mean what they mean to numpy, and results equal numpy's: integers, slices with any step,
    ellipsis, new axes, masks, index arrays, and all of them together. `oindex` takes every dimension by
    itself, `vindex` goes point by point, `blocks` by whole chunks. Safe to use from many threads at once.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        model: ArrayModel,
        *,
        read_only: bool = False,
        allow_pickle: bool = False,
        missing: str = "fill",
    ) -> None:
        super().__init__(store, path, model, read_only=read_only)
        if not self._read_only:
            store.purge(path)
        self._made: Chunks | RectilinearChunks | None = None
        self._cache_size = 0
        self._allow_pickle = allow_pickle
        self._when_missing = check_missing(missing)

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            Array,
            read_only=self._read_only,
            allow_pickle=self._allow_pickle,
            missing=self._when_missing,
        )
        return (make, (self._store, self._path, self._model))

    @property
    def _chunks(self) -> Any:
        chunks = self._made
        if chunks is None or chunks.model is not self._model:
            chunks = self._made = self._make_chunks(self._model)
        return chunks

    def _make_chunks(self, model: ArrayModel) -> Any:
        try:
            return open_chunks(
                self._store,
                self._path,
                model,
                cache_size=self._cache_size,
                allow_pickle=self._allow_pickle,
            )
        except ZstoreError as error:
            error.locate(path=join_key(self._store.url, self._path))
            raise

    def __repr__(self) -> str:
        where = join_key(self._store.url, self._path)
        return f"<Array {where} shape={self.shape} dtype={self.dtype}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self._store.url, self._path, self._model) == (other._store.url, other._path, other._model)

    __hash__ = None  # type: ignore[assignment]

    # Reading

    def __getitem__(self, selection: Any) -> Any:
        chunks = self._made
        if chunks is None or chunks.model is not self._model:
            chunks = self._chunks
        try:
            plan = chunks.plan(selection)
        except IndexError as error:
            raise SelectionError(str(error), path=join_key(self._store.url, self._path)) from None
        if plan is None:
            fields, rest = self._split_fields(selection)
            out = self._read(self._select(rest), fields=fields)
            selection = rest
        else:
            out = np.empty(plan.shape, chunks.dtype)
            chunks.read(plan, out, missing_is_fault=self._when_missing == "error")
        return out if out.shape or _has_ellipsis(selection) else out[()]

    def read(
        self,
        selection: Any = Ellipsis,
        *,
        out: np.ndarray[Any, Any] | None = None,
        missing: str | None = None,
    ) -> Any:
        """What `array[selection]` gives, into `out` where that is given (any strides, same shape and dtype).

        Of structured items, a name (or a list of names) anywhere in the selection gives those fields alone.

        `missing` is "fill" (chunks that were never written read as the fill value) or "error"; None is
        what the array was opened with.

        Raises
            SelectionError: the selection does not fit the array.
            NotFoundError: a chunk is missing and `missing` is "error".
            CodecError: a chunk is damaged.
            ValueError: `out` has another shape or dtype.
        """
        missing_is_fault = self._is_fault(missing)
        fields, rest = self._split_fields(selection)
        return self._read(self._select(rest), out, fields, missing_is_fault=missing_is_fault)

    def read_many(
        self,
        selections: Iterable[Any],
        *,
        out: Sequence[np.ndarray[Any, Any]] | None = None,
        missing: str | None = None,
    ) -> list[Any]:
        """`[array[selection] for selection in selections]`, read together.

        A chunk that several of them touch is fetched and decoded once. `out` has one array for each
        selection, as `read` takes it; none of them may overlap. Raises what `read` raises; then what the
        arrays hold is undefined.
        """
        missing_is_fault = self._is_fault(missing)
        wanted = list(selections)
        if out is not None and len(out) != len(wanted):
            raise ValueError(f"out has {len(out)} arrays, expected {len(wanted)}, one for each selection")
        chunks = self._chunks
        landings = []
        for k, selection in enumerate(wanted):
            fields, rest = self._split_fields(selection)
            selected = self._select(rest, chunks=chunks)
            landings.append(land(selected, chunks.model.dtype, None if out is None else out[k], fields))
        boxes = [one for one in landings if not isinstance(one.plan, Runs)]
        plans, memory = [one.plan for one in boxes], [one.memory for one in boxes]
        chunks.read_many(plans, memory, missing_is_fault=missing_is_fault)
        for one in landings:
            if isinstance(one.plan, Runs):
                read_runs(chunks, one.plan, one.memory, missing_is_fault=missing_is_fault)
        results = [one.result() for one in landings]
        if out is not None:
            return results
        pairs = zip(results, wanted, strict=True)
        return [items if items.shape or _has_ellipsis(selection) else items[()] for items, selection in pairs]

    def _is_fault(self, missing: str | None) -> bool:
        return (self._when_missing if missing is None else check_missing(missing)) == "error"

    def _split_fields(self, selection: Any) -> tuple[Fields, Any]:
        try:
            return split_fields(selection, self.dtype)
        except SelectionError as error:
            raise error.locate(path=join_key(self._store.url, self._path)) from None

    def _select(
        self, selection: Any, selector: Selector = select, layout: AnyLayout | None = None, chunks: Any = None
    ) -> Selected:
        chunks = chunks or self._chunks
        try:
            return selector(layout or chunks.layout, chunks.model.shape, selection)
        except SelectionError as error:
            raise error.locate(path=join_key(self._store.url, self._path)) from None

    def _read(
        self,
        selected: Selected,
        out: np.ndarray[Any, Any] | None = None,
        fields: Fields = None,
        *,
        missing_is_fault: bool | None = None,
    ) -> Any:
        landing = land(selected, self.dtype, out, fields)
        is_fault = self._is_fault(None) if missing_is_fault is None else missing_is_fault
        if isinstance(landing.plan, Runs):
            read_runs(self._chunks, landing.plan, landing.memory, missing_is_fault=is_fault)
        else:
            self._chunks.read(landing.plan, landing.memory, missing_is_fault=is_fault)
        return landing.result()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array in a store cannot be had without a copy")
        items: np.ndarray[Any, Any] = self[...]
        return items if dtype is None else items.astype(dtype, copy=False)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Stores in memory can share a name, or have none.
        held = id(self._store) if self._store.in_memory else None
        return ("zstore.Array", self._store.url, held, self._path, repr(self._model))

    # Writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._write(selection, value)

    def _write(self, selection: Any, value: Any, selector: Selector = select) -> None:
        chunks = self._chunks
        fields, rest = self._split_fields(selection)
        layout = chunks.write_layout if fields is None else chunks.handle_layout
        selected = self._select(rest, selector, layout)
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
                path=join_key(self._store.url, self._path),
            ) from None
        if items.size == 0:
            self._store.check_writable(self._path)
            return
        if selected.to_plan is not None:
            items = selected.to_plan(items)
        plan = selected.plan
        if isinstance(plan, Runs):
            plan, items = plan.by_items(), items.reshape(-1)
        chunks.write(plan, items, has_fields=fields is not None)

    def _as_items(self, value: Any, shape: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
        """`value` as numpy would assign it to an array of this dtype, to a place of that shape."""
        if self._model.data_type.is_object:
            try:
                return as_items(value, self._model.data_type, shape)
            except CodecError as error:
                error.locate(path=join_key(self._store.url, self._path))
                raise
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(value).astype(self.dtype, copy=False)
        return np.asarray(value, self.dtype)

    def cached(self, size: int) -> Array:
        """This array, keeping decoded chunks of at most `size` bytes for the next read that needs them.

        For reads that come back to the same chunks: windows that overlap, rows one by one. A chunk that
        anybody replaces is read anew. Chunks in a directory and of native codecs only; elsewhere nothing is
        kept.
        """
        array = Array(
            self._store,
            self._path,
            self._model,
            read_only=self._read_only,
            allow_pickle=self._allow_pickle,
            missing=self._when_missing,
        )
        array._cache_size = size
        return array

    # Other ways to select

    @property
    def oindex(self) -> Indexer:
        """Every dimension by itself: `array.oindex[[0, 5], :, mask]`."""
        return Indexer(self, select_orthogonal)

    @property
    def vindex(self) -> Indexer:
        """Point by point: `array.vindex[[0, 5], [7, 9]]` has 2 items."""
        return Indexer(self, select_points)

    @property
    def blocks(self) -> Indexer:
        """By whole chunks (shards, where there are): `array.blocks[0, 1:3]`."""
        grid = self._model.grid
        return Indexer(self, lambda layout, shape, key: select_blocks(layout, shape, grid, key))

    @property
    def lazy(self) -> LazyArray:
        """A view that reads when its items are wanted: `array.lazy[10:20][:, ::-1].read()`."""
        return LazyArray(self)

    # Changing the shape

    def resize(self, shape: int | tuple[int, ...]) -> None:
        """Change the shape in place; what lies outside it is gone, what is new reads as the fill value.

        Growing costs the same however large the array. Shrinking removes the chunks outside and clears what
        the chunks at the new edge held beyond it, so that growing again never brings old values back.
        """
        from zstore.engine.resize import resize

        wanted = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)
        with hold_name(("resize", id(self))):
            self._set_model(
                resize(
                    self._store,
                    self._path,
                    self.zarr_format,
                    lambda old: self._new_shape(old, wanted),
                    allow_pickle=self._allow_pickle,
                )
            )

    def _new_shape(self, old: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
        if len(wanted) != len(old) or any(length < 0 for length in wanted):
            raise ValueError(f"cannot resize {old} to {wanted}: expected {len(old)} lengths of 0 or more")
        return wanted

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Put `data` behind what is there along `axis`; gives the new shape.

        The space is reserved first, so that several writers can append at once without meeting.

        Raises
            ValueError: the other dimensions of `data` are not the array's.
        """
        from zstore.engine.resize import resize

        is_list = isinstance(data, list | tuple)
        items = self._as_items(data, (len(data),) if is_list and self.ndim == 1 else None)
        if (
            not 0 <= axis < self.ndim
            or items.ndim != self.ndim
            or any(a != b for d, (a, b) in enumerate(zip(items.shape, self.shape, strict=True)) if d != axis)
        ):
            raise ValueError(f"cannot append shape {items.shape} to {self.shape} along axis {axis}")
        begin = 0

        def grown(old: tuple[int, ...]) -> tuple[int, ...]:
            nonlocal begin
            begin = old[axis]
            return (*old[:axis], begin + items.shape[axis], *old[axis + 1 :])

        with hold_name(("resize", id(self))):
            model = resize(self._store, self._path, self.zarr_format, grown)
            self._set_model(model)
        region = [slice(0, length) for length in model.shape]
        region[axis] = slice(begin, begin + items.shape[axis])
        # As part of a larger array: the chunks at the end may hold what others have appended meanwhile, and
        # are not to be replaced as if they ended with this array.
        larger = model.grid.beyond(model.shape)
        chunks = self._make_chunks(model.with_shape(larger))
        chunks.write(plan_basic(chunks.write_layout, tuple(region)), items)
        return model.shape

    def refresh(self) -> Array:
        """Read the metadata again, e.g. after somebody else has resized the array."""
        model = read_node(self._store, self._path, self.zarr_format)
        if not isinstance(model, ArrayModel):
            raise NotFoundError("array is gone", path=join_key(self._store.url, self._path))
        self._set_model(model)
        return self


def _has_ellipsis(selection: Any) -> bool:
    # Not `in`, which compares index arrays item by item.
    items = selection if isinstance(selection, tuple) else (selection,)
    for item in items:  # noqa: SIM110 - twice as fast as any()
        if item is Ellipsis:
            return True
    return False

"""An array in a store: read and written by numpy's selections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from zstore._ext.select import Layout, plan_basic
from zstore.engine.chunks import Chunks
from zstore.engine.documents import read_node
from zstore.errors import NotFoundError, SelectionError
from zstore.indexing import Selected, select, select_blocks, select_orthogonal, select_points
from zstore.model.array import ArrayModel
from zstore.node import Node
from zstore.storage.base import Store, join_key

__all__ = ["Array"]

Selector = Callable[[Layout, tuple[int, ...], Any], Selected]


class Array(Node[ArrayModel]):
    """Chunked items of one dtype; `array[selection]` reads and `array[selection] = value` writes.

    Selections mean what they mean to numpy, and results equal numpy's: integers, slices with any step,
    ellipsis, new axes, masks, index arrays, and all of them together. `oindex` takes every dimension by
    itself, `vindex` goes point by point, `blocks` by whole chunks. Safe to use from many threads at once.
    """

    def __init__(self, store: Store, path: str, model: ArrayModel, *, read_only: bool = False) -> None:
        super().__init__(store, path, model, read_only=read_only)
        if not self._read_only:
            store.purge(path)
        self._made: Chunks | None = None
        self._cache_size = 0
        self._resizing = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(Array, read_only=self._read_only), (self._store, self._path, self._model))

    @property
    def _chunks(self) -> Chunks:
        chunks = self._made
        if chunks is None or chunks.model is not self._model:
            chunks = self._made = Chunks(self._store, self._path, self._model, cache_size=self._cache_size)
        return chunks

    # What the array is

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
        """The shape of what is encoded on its own: of inner chunks where there are shards."""
        for codec in self._model.codecs:
            if codec.name == "sharding_indexed":
                return tuple(codec.configuration["chunk_shape"])
        return self._model.grid.chunk_shape

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of the shards, None where chunks are stored one by one."""
        is_sharded = any(codec.name == "sharding_indexed" for codec in self._model.codecs)
        return self._model.grid.chunk_shape if is_sharded else None

    @property
    def fill_value(self) -> np.generic | None:
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
            "Fill value": self.fill_value,
            "Codecs": ", ".join(codec.name for codec in self._model.codecs),
            "Store": self._store.url,
            "Read-only": self.read_only,
            "Bytes": f"{self.nbytes:,}",
        }
        width = max(map(len, lines))
        return "\n".join(f"{label:<{width}} : {value}" for label, value in lines.items() if value is not None)

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
        chunks = self._chunks
        try:
            plan = plan_basic(chunks.layout, selection)
        except IndexError as error:
            raise SelectionError(str(error), path=join_key(self._store.url, self._path)) from None
        if plan is None:
            out = self._read(self._select(selection))
        else:
            out = np.empty(plan.shape, chunks.model.dtype)
            chunks.read(plan, out)
        return out if out.shape or _has_ellipsis(selection) else out[()]

    def read(
        self, selection: Any = Ellipsis, *, out: np.ndarray[Any, Any] | None = None, missing: str = "fill"
    ) -> Any:
        """What `array[selection]` gives, into `out` where that is given (any strides, same shape and dtype).

        `missing` is "fill" (chunks that were never written read as the fill value) or "error".

        Raises
            SelectionError: the selection does not fit the array.
            NotFoundError: a chunk is missing and `missing` is "error".
            CodecError: a chunk is damaged.
            ValueError: `out` has another shape or dtype.
        """
        if missing not in ("fill", "error"):
            raise ValueError(f"missing={missing!r}, expected 'fill' or 'error'")
        return self._read(self._select(selection), out, missing_is_fault=missing == "error")

    def _select(self, selection: Any, selector: Selector = select, *, to_write: bool = False) -> Selected:
        chunks = self._chunks
        layout = chunks.write_layout if to_write else chunks.layout
        try:
            return selector(layout, chunks.model.shape, selection)
        except SelectionError as error:
            raise error.locate(path=join_key(self._store.url, self._path)) from None

    def _read(
        self, selected: Selected, out: np.ndarray[Any, Any] | None = None, *, missing_is_fault: bool = False
    ) -> Any:
        plan = selected.plan
        if out is None:
            memory = np.empty(plan.shape, self.dtype)
            self._chunks.read(plan, memory, missing_is_fault=missing_is_fault)
            return memory if selected.from_plan is None else selected.from_plan(memory)
        if out.shape != selected.shape or out.dtype != self.dtype:
            raise ValueError(
                f"out has shape {out.shape} and dtype {out.dtype}, expected {selected.shape} and {self.dtype}"
            )
        view = out if selected.to_plan is None else selected.to_plan(out)
        if selected.from_plan is None or np.may_share_memory(view, out):
            self._chunks.read(plan, view, missing_is_fault=missing_is_fault)
        else:
            memory = np.empty(plan.shape, self.dtype)
            self._chunks.read(plan, memory, missing_is_fault=missing_is_fault)
            out[...] = selected.from_plan(memory)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array in a store cannot be had without a copy")
        items: np.ndarray[Any, Any] = self[...]
        return items if dtype is None else items.astype(dtype, copy=False)

    # Writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._write(self._select(selection, to_write=True), value)

    def _write(self, selected: Selected, value: Any) -> None:
        items = self._as_items(value)
        shape = selected.shape
        while items.ndim > len(shape) and items.shape[0] == 1:
            items = items[0]
        try:
            items = np.broadcast_to(items, shape)
        except ValueError:
            raise SelectionError(
                f"could not broadcast input array from shape {items.shape} into shape {shape}",
                path=join_key(self._store.url, self._path),
            ) from None
        if items.size == 0:
            self._store.check_writable(self._path)
            return
        if selected.to_plan is not None:
            items = selected.to_plan(items)
        self._chunks.write(selected.plan, items)

    def _as_items(self, value: Any) -> np.ndarray[Any, Any]:
        """`value` as numpy would assign it to an array of this dtype."""
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(value).astype(self.dtype, copy=False)
        return np.asarray(value, self.dtype)

    def cached(self, size: int) -> Array:
        """This array, keeping decoded chunks of at most `size` bytes for the next read that needs them.

        For reads that come back to the same chunks: windows that overlap, rows one by one. A chunk that
        anybody replaces is read anew. Chunks in a directory and of native codecs only; elsewhere nothing is
        kept.
        """
        array = Array(self._store, self._path, self._model, read_only=self._read_only)
        array._cache_size = size
        return array

    # Other ways to select

    @property
    def oindex(self) -> _Door:
        """Every dimension by itself: `array.oindex[[0, 5], :, mask]`."""
        return _Door(self, select_orthogonal)

    @property
    def vindex(self) -> _Door:
        """Point by point: `array.vindex[[0, 5], [7, 9]]` has 2 items."""
        return _Door(self, select_points)

    @property
    def blocks(self) -> _Door:
        """By whole chunks (shards, where there are): `array.blocks[0, 1:3]`."""
        outer = self._model.grid.chunk_shape
        return _Door(self, lambda layout, shape, key: select_blocks(layout, shape, outer, key))

    # Changing the shape

    def resize(self, shape: int | tuple[int, ...]) -> None:
        """Change the shape in place; what lies outside it is gone, what is new reads as the fill value.

        Growing costs the same however large the array. Shrinking removes the chunks outside and clears what
        the chunks at the new edge held beyond it, so that growing again never brings old values back.
        """
        from zstore.engine.resize import resize

        wanted = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)
        with self._resizing:
            self._set_model(
                resize(self._store, self._path, self.zarr_format, lambda old: self._new_shape(old, wanted))
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

        items = self._as_items(data)
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

        with self._resizing:
            model = resize(self._store, self._path, self.zarr_format, grown)
            self._set_model(model)
        region = [slice(0, length) for length in model.shape]
        region[axis] = slice(begin, begin + items.shape[axis])
        # As part of a larger array: the chunks at the end may hold what others have appended meanwhile, and
        # are not to be replaced as if they ended with this array.
        larger = tuple(n + c for n, c in zip(model.shape, model.grid.chunk_shape, strict=True))
        chunks = Chunks(self._store, self._path, model.with_shape(larger))
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
    return any(item is Ellipsis for item in items)


class _Door:
    """One way to select: reading and writing by it."""

    def __init__(self, array: Array, selector: Selector) -> None:
        self._array = array
        self._selector = selector

    def __getitem__(self, selection: Any) -> Any:
        return self._array._read(self._array._select(selection, self._selector))

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._array._write(self._array._select(selection, self._selector, to_write=True), value)

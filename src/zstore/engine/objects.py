"""Handles: numbers that the kernels move in place of strings, Python objects and single fields.

A handle is a uint64 that stands for one item as long as its table exists; 0 is the fill value. The reasons
and the alternatives: docs/design/0005-handles.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from zstore.base.locks import Lock
from zstore.codecs.base import Chain, ChunkSpec
from zstore.codecs.reshape import Reshape
from zstore.codecs.transpose import Transpose
from zstore.codecs.vlen import Vlen, VlenBytes, VlenUtf8
from zstore.model.dtype import DataType

HANDLE = np.dtype(np.uint64)

Items = np.ndarray[Any, Any]
Handles = np.ndarray[Any, np.dtype[np.uint64]]


class Table(ABC):
    """The items that handles stand for, during one read or while one chunk is written.

    `keeps_old` says that a chunk's old content is needed even if all of its items are written.
    """

    keeps_old = False

    @abstractmethod
    def take_in(self, items: Items) -> Handles:
        """Add items to the table; return their handles, in the same shape."""

    def decode(self, chain: Chain, data: Any) -> Handles:
        """Add the items of an encoded chunk to the table; return their handles.

        Raises
            CodecError: the chunk is damaged.
        """
        return self.take_in(chain.decode(data))

    @abstractmethod
    def items(self, handles: Handles) -> Items:
        """The items that these handles stand for."""

    def put(self, handles: Handles, out: Items) -> None:
        """Store the items that these handles stand for in `out`, which has their shape."""
        out[...] = self.items(handles)

    @abstractmethod
    def fork(self) -> Self:
        """A copy in which the same handles stand for the same items, to add others to."""

    def take_in_broadcast(self, items: Items) -> Handles:
        """`take_in`, adding each item that is repeated by a stride of 0 only once."""
        narrow = (slice(0, 1) if stride == 0 else slice(None) for stride in items.strides)
        return np.broadcast_to(self.take_in(items[(*narrow, ...)]), items.shape)


class SpanTable(Table):
    """Strings and bytes: a handle is an item's address in the bytes of a chunk, which the table keeps."""

    def __init__(self, codec: Vlen, kept: tuple[Any, ...] = ()) -> None:
        self._codec = codec
        self._kept = list(kept)

    def _for_shape(self, shape: tuple[int, ...]) -> Vlen:
        return self._codec.bind(self._codec.spec._replace(shape=shape))

    def take_in(self, items: Items) -> Handles:
        codec = self._for_shape(items.shape)
        return self._handles(codec, codec.encode(items))

    def _handles(self, codec: Vlen, data: Any) -> Handles:
        self._kept.append(data)
        return codec.handles(memoryview(data))

    def decode(self, chain: Chain, data: Any) -> Handles:
        codecs = chain.array_codecs
        if not isinstance(chain.serializer, Vlen) or not all(
            isinstance(codec, Transpose | Reshape) for codec in codecs
        ):
            return super().decode(chain, data)
        handles = self._handles(chain.serializer, chain.decode_bytes(data))
        for codec in reversed(codecs):
            handles = codec.decode(handles)
        return handles

    def items(self, handles: Handles) -> Items:
        return self._codec.items(np.asarray(handles, order="C"))

    def put(self, handles: Handles, out: Items) -> None:
        if out.flags.c_contiguous:
            self._codec.items(handles, out)
        else:
            super().put(handles, out)

    def fork(self) -> Self:
        return type(self)(self._codec, tuple(self._kept))


class ObjectTable(Table):
    """Other objects: a handle is an item's position among all items that were added."""

    def __init__(self, fill_value: Any, parts: tuple[Items, ...] = ()) -> None:
        self._fill_value = fill_value
        self._parts = list(parts) or [single(fill_value).reshape(1)]
        self._count = sum(map(len, self._parts))
        self._lock = Lock()

    def take_in(self, items: Items) -> Handles:
        flat = items.reshape(-1)
        with self._lock:
            first = self._count
            self._count += len(flat)
            self._parts.append(flat)
        handles = np.arange(first, first + len(flat), dtype=HANDLE)
        handles[self._is_filled(flat)] = 0
        return handles.reshape(items.shape)

    def _is_filled(self, flat: Items) -> Any:
        # Only types whose == is safe here: 0.0 equals -0.0, and arrays compare item by item.
        fill, kind = self._fill_value, type(self._fill_value)
        if kind not in (str, bytes, int, bool, type(None)):
            return np.zeros(len(flat), bool)
        return np.fromiter((type(item) is kind and item == fill for item in flat), bool, len(flat))

    def items(self, handles: Handles) -> Items:
        flat = handles.reshape(-1)
        made: Items = np.empty(len(flat), object)
        # Three parts at most (fill value, new and old items) are searched one by one; more are joined first.
        parts = self._parts if len(self._parts) <= 3 else [np.concatenate(self._parts)]
        first = 0
        for part in parts:
            chosen = (flat >= first) & (flat < first + len(part))
            made[chosen] = part[(flat[chosen] - np.uint64(first)).astype(np.intp)]
            first += len(part)
        return made.reshape(handles.shape)

    def fork(self) -> Self:
        return type(self)(self._fill_value, tuple(self._parts))


class FieldTable(Table):
    """Single fields: a handle is a position among the items that are written; 0 leaves an item as it is.

    `values` has only the fields that are written.
    """

    keeps_old = True

    def __init__(self, spec: ChunkSpec, values: Items, old: Items | None = None) -> None:
        self._spec = spec
        self._values = values
        self._old = old

    def handles(self) -> Handles:
        """The handles of the written items, in their shape."""
        return np.arange(1, self._values.size + 1, dtype=HANDLE).reshape(self._values.shape)

    def take_in(self, items: Items) -> Handles:
        self._old = items
        return np.zeros(items.shape, HANDLE)

    def items(self, handles: Handles) -> Items:
        spec = self._spec
        if self._old is None:
            made: Items = np.empty(spec.shape, spec.dtype)
            made[...] = spec.fill_value
        else:
            made = self._old.copy()
        chosen = handles > 0
        written = self._values.reshape(-1)[(handles[chosen] - np.uint64(1)).astype(np.intp)]
        for name in written.dtype.names or ():
            made[name][chosen] = written[name]
        return made

    def fork(self) -> Self:
        return type(self)(self._spec, self._values, self._old)


def table_to_read(chain: Chain) -> Table:
    """An empty table for reading chunks that `chain` encodes."""
    if isinstance(chain.serializer, Vlen) and chain.serializer.spec is not None:
        return SpanTable(chain.serializer)
    return table_to_write(chain)


def table_to_write(chain: Chain) -> Table:
    """An empty table for writing chunks that `chain` encodes."""
    if chain.spec.dtype.kind == "T":
        return SpanTable(VlenUtf8(chain.spec))
    return ObjectTable(chain.spec.fill_value)


def single(item: Any, dtype: Any = object) -> Items:
    """A 0-d array that holds one item, even an item that numpy would take for a sequence."""
    made: Items = np.empty(1, dtype)
    made[0] = item
    return made.reshape(())


def as_items(value: Any, data_type: DataType, shape: tuple[int, ...] | None = None) -> Items:
    """`value` as items of a data type of strings, bytes or objects, ready to be broadcast to `shape`.

    Raises
        CodecError: an item is not of that type.
    """
    codec = {"string": VlenUtf8, "bytes": VlenBytes}.get(data_type.name)
    if codec is None:
        return _as_objects(value, shape)
    if isinstance(value, np.ndarray | np.generic) and data_type.name == "string":
        given = np.asarray(value)
        if given.dtype.kind == "U" or given.dtype == data_type.numpy != np.dtype(object):
            return given.astype(data_type.numpy, copy=False)
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    objects = np.asarray(value, object)
    checked = codec(ChunkSpec(objects.shape, data_type.numpy, data_type.default_fill()))
    encoded = checked.encode(objects)
    return checked.decode(memoryview(encoded)) if data_type.numpy.kind == "T" else objects


def _as_objects(value: Any, shape: tuple[int, ...] | None) -> Items:
    """An array of objects that may be sequences themselves: `shape` tells how many items `value` is."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return value
    if shape == ():
        return single(value)
    if isinstance(value, list | tuple) and shape is not None and shape == (len(value),):
        made: Items = np.empty(len(value), object)
        for i, item in enumerate(value):
            made[i] = item
        return made
    return np.asarray(value, object)

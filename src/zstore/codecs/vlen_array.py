"""Ragged arrays, 1-d arrays of any length as items: a count, then the size in bytes and the data of each.

Spec     numcodecs' documentation, "VLenArray"
v3 name  numcodecs.vlen-array
v2 id    vlen-array (a filter of "|O" arrays)
Example  {"name": "numcodecs.vlen-array", "configuration": {"dtype": "<i4"}}
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from zstore._ext.codecs import vlen
from zstore.codecs.base import UNBOUND, ChunkSpec, Option, Serializer, item_type, refuse_option
from zstore.codecs.vlen import scan_items
from zstore.errors import CodecError


class VlenArray(Serializer):
    """The serializer of ragged arrays of `dtype`, which are decoded in native byte order.

    An item that was never written has the array's fill value, or is empty if that is no array.
    """

    name: ClassVar[str] = "numcodecs.vlen-array"
    options: ClassVar[tuple[Option, ...]] = (item_type("dtype"),)

    def __init__(self, dtype: np.dtype[Any], spec: ChunkSpec = UNBOUND) -> None:
        if dtype.hasobject or dtype.kind == "T" or not dtype.itemsize:
            raise refuse_option(self.name, "dtype", dtype.str, "one of items of a fixed size")
        self.dtype = dtype
        self.spec = spec

    def bind(self, spec: ChunkSpec) -> Self:
        if spec.dtype.kind != "O":
            raise self.refuse(f"is for items that are arrays, the array's are {spec.dtype}")
        return type(self)(self.dtype, spec)

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        scanned = scan_items(self.name, data, self.spec.shape, is_text=False, fill=b"").reshape(-1)
        raw = np.frombuffer(data, np.uint8)
        native = self.dtype.newbyteorder("=")
        offsets = np.where(scanned, scanned - np.uint64(raw.ctypes.data), 0).tolist()
        chunk = np.empty(self.spec.shape, object)
        flat = chunk.reshape(-1)
        for i, offset in enumerate(offsets):
            size = int.from_bytes(data[offset : offset + 4], "little") if offset else 0
            if size % self.dtype.itemsize:
                raise self.fail(f"item {i} has {size} bytes, expected a multiple of {self.dtype.itemsize}")
            part = raw[offset + 4 : offset + 4 + size] if size else raw[:0]
            flat[i] = np.frombuffer(part.tobytes(), self.dtype).astype(native)
        return chunk

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        packed = np.empty(chunk.shape, object)
        for place in np.ndindex(chunk.shape):
            packed[place] = self._encode_item(chunk[place], place)
        encoded = vlen.pack_objects(packed, is_text=False)
        if isinstance(encoded, tuple):
            raise self.fail(f"an item has {encoded[2]} bytes, at most {2**32 - 1} are possible")
        return encoded

    def _encode_item(self, item: Any, place: tuple[int, ...]) -> bytes:
        is_list = isinstance(item, list | tuple)
        if not is_list and not isinstance(item, np.ndarray):
            # The fill value stands for an item that was never written.
            if self.spec is not None and item == self.spec.fill_value:
                return b""
            raise self._misfit(item, place)
        try:
            array = np.asarray(item, self.dtype if is_list and not item else None)
            stored = array.astype(self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._misfit(item, place) from error
        # Floats may be rounded, as numpy does; no other value may change.
        is_rounded = array.dtype.kind == self.dtype.kind == "f"
        if stored.ndim != 1 or not (is_rounded or np.array_equal(array, stored)):
            raise self._misfit(item, place)
        return stored.tobytes()

    def _misfit(self, item: Any, place: tuple[int, ...]) -> CodecError:
        what = f"{item.dtype} of shape {item.shape}" if isinstance(item, np.ndarray) else repr(item)
        return self.fail(
            f"item {place} is {what}, expected an array of one dimension"
            f" whose items {self.dtype.str} can hold"
        )

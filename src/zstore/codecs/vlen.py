"""Strings and bytes of variable length: a count, then the size and the bytes of each item.

Spec     zarr-extensions codecs "vlen-utf8" and "vlen-bytes"; numcodecs' documentation
v3 name  vlen-utf8, vlen-bytes; numcodecs.vlen-utf8, numcodecs.vlen-bytes
v2 id    vlen-utf8, vlen-bytes (filters of "|O" arrays)
Example  {"name": "vlen-utf8", "configuration": {}}

The kernel checks that the count is the chunk's, sizes stay within the data, strings are UTF-8, and nothing
follows the last item, so that a damaged chunk never allocates more memory than a good one.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore._ext.codecs import vlen
from zstore.codecs.base import UNBOUND, ChunkSpec, Serializer, failure
from zstore.errors import CodecError

Handles = np.ndarray[Any, np.dtype[np.uint64]]


def scan_items(name: str, data: memoryview, shape: tuple[int, ...], *, is_text: bool, fill: bytes) -> Handles:
    """Check an encoded chunk, and return the handles of its items: 0 for `fill`, else addresses in `data`.

    Raises
        CodecError: the bytes are not those of one chunk of that shape.
    """
    count = prod(shape)
    if len(data) < 4 + 4 * count:  # before anything is made for that many items
        held = int.from_bytes(data[:4], "little") if len(data) >= 4 else None
        expected = f"expected at least {4 + 4 * count} bytes and a count of {count}"
        raise failure(name, f"chunk has {len(data)} bytes and a count of {held}, {expected}")
    handles = np.empty(shape, np.uint64)
    fault = vlen.scan(data, handles, is_text=is_text, fill=fill)
    if fault is None:
        return handles
    what, item, got = fault
    reason = {
        "count": f"chunk has a count of {got}, expected {count}",
        "beyond": f"item {item} has a size of {got}, which is more than is left of the chunk",
        "text": f"item {item}, of {got} bytes, is not UTF-8",
        "junk": f"{got} bytes follow the last item",
    }
    raise failure(name, reason[what])


def _refuse(name: str, chunk: np.ndarray[Any, Any], fault: tuple[str, int, int], expected: str) -> CodecError:
    what, flat, size = fault
    place = tuple(map(int, np.unravel_index(flat, chunk.shape)))
    if what == "long":
        return failure(name, f"item {place} has {size} bytes, at most {2**32 - 1} are possible")
    value = None if what == "null" else chunk[place]
    return failure(name, f"item {place} is {value!r}, expected {expected}")


class Vlen(Serializer):
    """The serializer of items of variable length; `handles` and `items` are the two steps of `decode`."""

    is_text: ClassVar[bool]
    expected: ClassVar[str]

    def __init__(self, spec: ChunkSpec = UNBOUND) -> None:
        self.spec = spec
        fill = None if spec is None else spec.fill_value
        self.fill: bytes = fill.encode() if isinstance(fill, str) else bytes(fill or b"")

    def bind(self, spec: ChunkSpec) -> Self:
        is_held = spec.dtype.kind in ("TO" if self.is_text else "O")
        if not is_held or not isinstance(spec.fill_value, str if self.is_text else bytes):
            raise self.refuse(
                f"is for items that are {self.expected}, the array's are {spec.dtype}"
                f" with the fill value {spec.fill_value!r}"
            )
        return type(self)(spec)

    def handles(self, data: memoryview) -> Handles:
        """The handles of a chunk's items, valid as long as `data` exists.

        Raises
            CodecError: as `decode`.
        """
        return scan_items(self.name, data, self.spec.shape, is_text=self.is_text, fill=self.fill)

    def items(self, handles: Handles, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The items of handles, in `out` if it is not None; both must be contiguous."""
        made = np.empty(handles.shape, self.spec.dtype) if out is None else out
        if made.dtype.kind == "T":
            vlen.take_strings(handles, made, fill=self.fill)
        else:
            vlen.take_objects(handles, made, is_text=self.is_text, fill=self.spec.fill_value)
        return made

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        return self.items(self.handles(data))

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        flat = np.asarray(chunk, order="C")
        if chunk.dtype.kind == "T":
            encoded = vlen.pack_strings(flat)
        else:
            encoded = vlen.pack_objects(flat, is_text=self.is_text)
        if isinstance(encoded, tuple):
            raise _refuse(self.name, flat, encoded, self.expected)
        return encoded


class VlenUtf8(Vlen):
    """Strings, held as numpy's StringDType or as objects of type `str`."""

    name: ClassVar[str] = "vlen-utf8"
    is_text: ClassVar[bool] = True
    expected: ClassVar[str] = "a string that UTF-8 can hold"


class VlenBytes(Vlen):
    """Bytes, held as objects of type `bytes`."""

    name: ClassVar[str] = "vlen-bytes"
    is_text: ClassVar[bool] = False
    expected: ClassVar[str] = "bytes"


class NumcodecsVlenUtf8(VlenUtf8):
    """The codec of strings under numcodecs' name."""

    name: ClassVar[str] = "numcodecs.vlen-utf8"


class NumcodecsVlenBytes(VlenBytes):
    """The codec of bytes under numcodecs' name."""

    name: ClassVar[str] = "numcodecs.vlen-bytes"

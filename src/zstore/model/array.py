"""The model of an array: its metadata as frozen data, the same for every Zarr format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from sys import byteorder
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from zstore.model.dtype import ORDER_CODECS, DataType, Order, stored_dtype
from zstore.model.grid import ChunkKeys, Grid, parse_chunk_shape, parse_shape

ZarrFormat: TypeAlias = Literal[1, 2, 3]
ORDER_NAMES = frozenset(ORDER_CODECS.values())


@dataclass(frozen=True, slots=True)
class CodecModel:
    """The name and configuration of a codec; the codec itself is made of it in `zstore.codecs`.

    Zarr v2 filters and compressors have the name "numcodecs.<id>" and their v2 configuration without `id`.

    must_understand  False if a v3 document lets readers ignore the codec
    role             "filter" or "compressor", as a v2 document has it; ignored in comparisons
    """

    name: str
    configuration: Mapping[str, Any] = field(default_factory=dict)
    must_understand: bool = True
    role: str = field(default="", compare=False, repr=False)

    def describe(self) -> dict[str, Any]:
        """The codec's entry in a v3 document."""
        document: dict[str, Any] = {"name": self.name}
        # zarr-python requires a configuration for numcodecs' codecs, even an empty one.
        if self.configuration or self.name.startswith("numcodecs."):
            document["configuration"] = dict(self.configuration)
        if not self.must_understand:
            document["must_understand"] = False
        return document

    def is_reversal(self, ndim: int) -> bool:
        """Whether it reverses the dimensions of chunks, and so stores items in the order "F"."""
        reverse = [*range(ndim - 1, -1, -1)]
        return self.name == "transpose" and list(self.configuration.get("order") or ()) == reverse


def order_codecs(order: str, ndim: int) -> tuple[CodecModel, ...]:
    """The codecs that store the items of chunks in an order: none for "C"; "F" is a transposition."""
    return () if order == "C" else (CodecModel("transpose", {"order": [*range(ndim - 1, -1, -1)]}),)


def bytes_codec(endian: Order) -> CodecModel:
    """The codec that makes bytes of items in a byte order, which may differ by field."""
    return CodecModel(ORDER_CODECS[type(endian)], {"endian": endian} if endian else {})


def byte_order(codecs: Iterable[CodecModel]) -> Order:
    """The byte order that a chain stores items in; None where it has none."""
    return next((codec.configuration.get("endian") for codec in codecs if codec.name in ORDER_NAMES), None)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayModel:
    """The metadata of one array.

    shape            the length of each dimension; () for a 0-d array
    data_type        name, configuration and the numpy dtype (in native byte order; the stored byte order is
                     that of the `bytes` codec)
    grid             the chunk grid (of shards, if `codecs` has "sharding_indexed")
    keys             the chunk-key encoding
    codecs           the chain in encoding order; v2's `order: F` is a leading "transpose", its byte order a
                     "bytes" codec, its filters and compressor "numcodecs.<id>" codecs
    fill_value       a numpy scalar of the dtype, bit for bit as stored (a Python object if items are
                     objects); None for null. It is compared by its bits
    attributes       the user's attributes
    dimension_names  v3's `dimension_names`, or v2's attribute `_ARRAY_DIMENSIONS` (not in `attributes`)
    extra            members of the document that zstore does not know and may ignore; written back unchanged
    """

    zarr_format: ZarrFormat
    shape: tuple[int, ...]
    data_type: DataType
    grid: Grid
    keys: ChunkKeys
    codecs: tuple[CodecModel, ...]
    fill_value: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def viewed_as(self, dtype: Any) -> ArrayModel:
        """The same array, its items and fill value reinterpreted as another dtype of the same size.

        Raises
            ValueError: the dtype is of another size.
        """
        if np.dtype(dtype).itemsize != self.dtype.itemsize:
            expected = f"expected a dtype of {self.dtype.itemsize} bytes"
            raise ValueError(f"items of {self.dtype} cannot be viewed as {dtype}; {expected}")
        fill_value = (
            None if self.fill_value is None else np.asarray(self.fill_value, self.dtype).view(dtype)[()]
        )
        return replace(self, data_type=DataType.from_numpy(dtype), fill_value=fill_value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayModel):
            return NotImplemented
        return self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> list[Any]:
        """The members by which arrays are compared; the fill value as its bits, because NaN != NaN."""
        parts = {item.name: getattr(self, item.name) for item in fields(self)}
        return [*{**parts, "fill_value": self.data_type.fill_bits(self.fill_value)}.values()]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the items in memory: in v1 and v2 in the stored byte order, in v3 in native."""
        if self.zarr_format != 3:
            order = byte_order(self.codecs)
            if order not in (None, byteorder):
                # By way of an array, because numpy makes times without a unit native in any case.
                made: np.dtype[Any] = np.empty(0, stored_dtype(self.data_type.numpy, order)).dtype
                return made
        return self.data_type.numpy

    @property
    def effective_fill_value(self) -> Any:
        """The value of items that were never written; null means zeros, for objects their type's default."""
        if self.fill_value is not None:
            return self.fill_value
        return self.data_type.default_fill() if self.data_type.is_object else np.zeros((), self.dtype)[()]

    def other_chunks(self, other: ArrayModel) -> str:
        """Say how the chunks of another array differ in form, but for codecs; "" where they do not.

        Shapes may differ, as those of one array do that was resized.
        """
        if self is other:
            return ""
        one, two = self.data_type, other.data_type
        # Data types of two names may be the same bytes, as r32 and raw_bytes of 4 are.
        if one != two and (one.is_object or two.is_object or one.numpy != two.numpy):
            return f"of {other.dtype}, expected {self.dtype}"
        if not self.grid.agrees(other.grid):
            return f"one in chunks {other.grid.chunk_shape}, expected {self.grid.chunk_shape}"
        if self.keys != other.keys:
            return f"one with the chunk keys {other.keys}, expected {self.keys}"
        fill, expected = other.effective_fill_value, self.effective_fill_value
        is_same = other.data_type.fill_bits(fill) == self.data_type.fill_bits(expected)
        # One NaN is as good as another.
        is_same = is_same or bool(np.all(fill != fill) and np.all(expected != expected))
        return "" if is_same else f"one with the fill value {fill}, expected {expected}"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def inner_chunk_shape(self) -> tuple[int, ...] | None:
        """The shape of the (outermost) inner chunks, None if the array has no shards.

        Raises
            MetadataError: the configuration of the codec "sharding_indexed" is malformed.
        """
        for codec in self.codecs:
            if codec.name == "sharding_indexed":
                where = "chunk_shape of codec 'sharding_indexed'"
                shape = codec.configuration.get("chunk_shape")
                shape = parse_shape(list(shape) if isinstance(shape, tuple) else shape, where)
                return parse_chunk_shape(list(shape), shape, where)
        return None

    @property
    def is_of_n5(self) -> bool:
        """Whether chunks are blocks of N5, which few read as Zarr: new arrays are encoded otherwise."""
        return any(codec.name == "n5_default" for codec in self.codecs)

    def with_shape(self, shape: tuple[int, ...]) -> ArrayModel:
        """The same array with another shape."""
        return replace(self, shape=shape, grid=self.grid.grown(shape))

    def with_attributes(self, attributes: Mapping[str, Any]) -> ArrayModel:
        """The same array with other attributes."""
        return replace(self, attributes=dict(attributes))


class Parts(NamedTuple):
    """The metadata of an array but its attributes and unknown members; many arrays share it."""

    shape: tuple[int, ...]
    data_type: DataType
    grid: Grid
    keys: ChunkKeys
    codecs: tuple[CodecModel, ...]
    fill_value: Any
    dimension_names: tuple[str | None, ...] | None = None

    def make(
        self, zarr_format: ZarrFormat, attributes: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> ArrayModel:
        """Make the model of an array from these parts, attributes and unknown members."""
        return ArrayModel(zarr_format, *self[:6], attributes, self.dimension_names, extra)

    def may_be_shared(self) -> bool:
        """Whether several models may share these parts: not if the fill value is a mutable object."""
        return may_be_shared(self.fill_value)


def may_be_shared(fill_value: Any) -> bool:
    """Whether a fill value is no mutable object."""
    if isinstance(fill_value, np.generic):
        return not isinstance(fill_value, np.void)
    return fill_value is None or isinstance(fill_value, str | bytes)

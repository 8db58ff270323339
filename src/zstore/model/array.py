"""What an array is: frozen data, the same for every Zarr format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zstore.model.dtype import DataType
from zstore.model.grid import RegularGrid
from zstore.model.keys import ChunkKeys

__all__ = ["ArrayModel", "CodecModel"]


@dataclass(frozen=True, slots=True)
class CodecModel:
    """A codec by name and configuration, never the codec itself.

    Zarr v2 filters and compressors carry the name "numcodecs.<id>" and their v2 configuration without `id`.

    must_understand  False where a v3 document lets readers ignore this codec
    role             "filter" or "compressor" where a v2 document says which; no part of what the codec is
    """

    name: str
    configuration: Mapping[str, Any] = field(default_factory=dict)
    must_understand: bool = True
    role: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ArrayModel:
    """One array: its shape, its type, how it is cut, keyed and encoded.

    shape            items per dimension; () for a 0-d array
    data_type        name, configuration and the numpy dtype (native byte order; the stored order is the
                     `bytes` codec's)
    grid             how the array is cut into chunks (shards where `codecs` holds "sharding_indexed")
    keys             how a chunk's place becomes its store key
    codecs           the chain in encoding order; v2's `order: F` is a leading "transpose", its byte order a
                     "bytes" codec, its filters and compressor "numcodecs.<id>" entries
    fill_value       a numpy scalar of the dtype, bit for bit as stored; None where the document says null
    attributes       the user's attributes
    dimension_names  v3 `dimension_names`, or v2's `_ARRAY_DIMENSIONS` attribute (kept out of `attributes`)
    extra            members of the document that zstore does not know and may ignore; written back unchanged
    """

    zarr_format: int
    shape: tuple[int, ...]
    data_type: DataType
    grid: RegularGrid
    keys: ChunkKeys
    codecs: tuple[CodecModel, ...]
    fill_value: np.generic | None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the items in memory."""
        return self.data_type.numpy

    @property
    def ndim(self) -> int:
        """How many dimensions the array has."""
        return len(self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> ArrayModel:
        """The same array, resized."""
        return replace(self, shape=shape)

    def with_attributes(self, attributes: Mapping[str, Any]) -> ArrayModel:
        """The same array with other attributes."""
        return replace(self, attributes=dict(attributes))

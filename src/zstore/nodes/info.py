"""What an array is, as its metadata says."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.model.array import ArrayModel
from zstore.model.grid import RegularGrid
from zstore.nodes.node import Node
from zstore.storage.base import join_key

__all__ = ["ArrayInfo", "check_missing"]


def check_missing(value: str) -> str:
    """`value`, where it says what chunks that are not stored are: "fill" values, or an "error".

    Raises
        ValueError: it is neither.
    """
    if value in ("fill", "error"):
        return value
    raise ValueError(f"missing={value!r}, expected 'fill' or 'error'")


class ArrayInfo(Node[ArrayModel]):
    """The part of an array that needs no chunk."""

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
        try:
            inner = self._model.inner_chunk_shape
        except MetadataError as error:
            raise error.locate(path=join_key(self._store.url, self._path)) from error
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
            "Fill value": self.fill_value,
            "Codecs": ", ".join(codec.name for codec in self._model.codecs),
            "Store": self._store.url,
            "Read-only": self.read_only,
            "Bytes": f"{self.nbytes:,}",
        }
        width = max(map(len, lines))
        return "\n".join(f"{label:<{width}} : {value}" for label, value in lines.items() if value is not None)

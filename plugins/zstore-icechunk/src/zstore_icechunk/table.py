"""The table of where the chunks of an array lie in a repository, made of what icechunk lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zstore.errors import StoreError
from zstore.plugin.nodes import ChunkKeys

__all__ = ["Table"]

NAME = re.compile(r"[0-9A-Z]{20}")
KEYS = ChunkKeys("default", "/")


@dataclass(frozen=True)
class Table:
    """A row for each stored chunk, with columns as those of `Stretches`.

    grid    how many chunks are described along each dimension; chunks beyond are not stored
    number  int64, ascending: the chunk of each row, counted in C order through the grid
    file    int32 per row: an index into `names`; -2: the bytes are in `data`
    offset  int64 per row: where in the object, or in `data`, the chunk begins
    size    int64 per row: how many bytes it has
    names   of the repository's objects, below "chunks/"
    data    bytes of the chunks that are in icechunk's manifest itself
    """

    grid: tuple[int, ...]
    number: NDArray[np.int64]
    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    names: list[str]
    data: bytes

    @classmethod
    def of(cls, batches: Sequence[Any], path: str) -> Table | None:
        """The table of the batches that icechunk's `array_chunk_iterator` gives; None for too large a grid.

        Raises
            StoreError: an object has a name that icechunk does not make.
        """
        batches = [batch for batch in batches if len(batch[1])]
        if not batches:
            empty = np.empty(0, np.int64)
            return cls((), empty, empty.astype(np.int32), empty, empty, [], b"")
        cells = np.concatenate([batch[0] for batch in batches]).astype(np.int64)
        grid = tuple(int(last) + 1 for last in cells.max(axis=0)) if cells.shape[1] else ()
        if prod(grid) >= 1 << 62:
            return None
        number = np.ravel_multi_index(tuple(cells.T), grid) if grid else np.zeros(len(cells), np.int64)
        order = np.argsort(number, kind="stable")
        names: dict[str, int] = {}
        file = [names.setdefault(name, len(names)) if name else -2 for batch in batches for name in batch[2]]
        if not all(map(NAME.fullmatch, names)):
            raise StoreError("the manifest names objects that cannot be chunks", key=path)
        offset = np.concatenate([batch[3] for batch in batches]).astype(np.int64)
        size = np.concatenate([batch[4] for batch in batches]).astype(np.int64)
        data, first = bytearray(), 0
        for batch in batches:
            for row, value in batch[5].items():
                offset[first + row] = len(data)
                data += value
            first += len(batch[1])
        return cls(
            grid,
            np.ascontiguousarray(number[order], np.int64),
            np.asarray(file, np.int32)[order],
            offset[order],
            size[order],
            [*names],
            bytes(data),
        )

    def row(self, name: str) -> int | None:
        """The row of the chunk under a key such as "c/1/2"; None where it is not stored."""
        number = KEYS.number(name, self.grid) if len(self.number) else None
        if number is None:
            return None
        row = int(np.searchsorted(self.number, number))
        return row if row < len(self.number) and self.number[row] == number else None

"""Writing some fields of a structured array: what the other fields hold stays, under the chunk's lock."""

from __future__ import annotations

from typing import Self

import numpy as np

from zstore.codecs.base import ChunkSpec
from zstore.engine.objects import HANDLE, Handles, Items, Table

__all__ = ["FieldTable"]


class FieldTable(Table):
    """A handle is a place among the items that are written; 0 leaves the item as it was.

    `values` has the fields to be written, and no others.
    """

    keeps_old = True

    def __init__(self, spec: ChunkSpec, values: Items, old: Items | None = None) -> None:
        self._spec = spec
        self._values = values
        self._old = old

    def handles(self) -> Handles:
        """Those of the items that are written, in their shape."""
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

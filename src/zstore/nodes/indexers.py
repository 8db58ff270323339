"""The other ways to select from an array: `oindex`, `vindex`, `blocks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zstore.indexing.plans import AnyLayout
from zstore.indexing.select import Selected

if TYPE_CHECKING:
    from zstore.nodes.array import Array

__all__ = ["Indexer", "Selector"]

Selector = Callable[[AnyLayout, tuple[int, ...], Any], Selected]


class Indexer:
    """One way to select: reading and writing by it."""

    def __init__(self, array: Array, selector: Selector) -> None:
        self._array = array
        self._selector = selector

    def __getitem__(self, selection: Any) -> Any:
        array = self._array
        fields, rest = array._split_fields(selection)
        return array._read(array._select(rest, self._selector), fields=fields)

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._array._write(selection, value, self._selector)

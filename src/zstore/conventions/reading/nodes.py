"""Nodes that are listed and read once, however many conventions and arrays ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from zstore.conventions.base import ArrayNode, Finding, GroupNode, is_array
from zstore.errors import ZstoreError

__all__ = ["CachedArray", "CachedGroup", "read_values"]


def read_values(coordinate: ArrayNode, findings: list[Finding]) -> np.ndarray[Any, Any] | None:
    """All values of a coordinate; None, with a finding, where they are damaged or gone."""
    try:
        return np.asarray(coordinate[...])
    except ZstoreError as error:
        name = coordinate.path.rpartition("/")[2]
        message = f"coordinate {name!r} cannot be read, and is not used: {error}"
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None


class CachedArray:
    """An array whose values are read once."""

    def __init__(self, node: ArrayNode) -> None:
        self._node = node
        self._values: Any = None
        self.attrs: Mapping[str, Any] = node.attrs
        self.path, self.zarr_format = node.path, node.zarr_format
        self.shape, self.dtype = node.shape, node.dtype
        self.fill_value, self.dims = node.fill_value, node.dims

    def __getitem__(self, selection: Any) -> Any:
        if selection is not Ellipsis:
            return self._node[selection]
        if self._values is None:
            self._values = self._node[...]
        return self._values


class CachedGroup:
    """A group whose members are listed once, in the order of their names."""

    def __init__(self, node: GroupNode) -> None:
        self._node = node
        self._arrays: dict[str, CachedArray] = {}
        self._groups: dict[str, CachedGroup] = {}
        self._is_listed = False
        self.attrs: Mapping[str, Any] = node.attrs
        self.path, self.zarr_format = node.path, node.zarr_format

    @property
    def arrays(self) -> Mapping[str, CachedArray]:
        """The direct child arrays by name."""
        self._list()
        return self._arrays

    @property
    def groups(self) -> Mapping[str, CachedGroup]:
        """The direct child groups by name."""
        self._list()
        return self._groups

    def members(self) -> Iterable[tuple[str, CachedArray | CachedGroup]]:
        """The direct children by name."""
        self._list()
        return sorted([*self._arrays.items(), *self._groups.items()], key=lambda member: member[0])

    def _list(self) -> None:
        if self._is_listed:
            return
        for name, node in sorted(self._node.members(), key=lambda member: member[0]):
            if is_array(node):
                self._arrays[name] = CachedArray(node)
            else:
                self._groups[name] = CachedGroup(node)
        self._is_listed = True

"""Nodes for the tests: made of plain values, or of a store that zarr-python opens."""

from __future__ import annotations

from typing import Any

import numpy as np


class FakeArray:
    def __init__(self, path, values, dims, attrs=None, fill_value=None, zarr_format=3) -> None:
        self.path, self.values, self.dims, self.attrs = path, np.asarray(values), dims, attrs or {}
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.fill_value, self.zarr_format = fill_value, zarr_format

    def __getitem__(self, selection: Any) -> Any:
        return self.values[selection]


class FakeGroup:
    def __init__(self, path="", attrs=None, children=None, zarr_format=3) -> None:
        self.path, self.attrs, self.zarr_format = path, attrs or {}, zarr_format
        self.children = children or {}

    def members(self) -> Any:
        yield from self.children.items()


class ZarrNode:
    """An array or a group of zarr-python's."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.path = node.path
        self.zarr_format = node.metadata.zarr_format
        self.attrs = dict(node.attrs)
        self.is_array = hasattr(node, "shape")


class ZarrArray(ZarrNode):
    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.shape, self.dtype, self.fill_value = node.shape, node.dtype, node.metadata.fill_value
        if self.zarr_format == 2:
            names = self.attrs.pop("_ARRAY_DIMENSIONS", None)
        else:
            names = node.metadata.dimension_names
        self.dims = None if names is None else tuple(names)

    def __getitem__(self, selection: Any) -> Any:
        return self.node[selection]


class ZarrGroup(ZarrNode):
    def members(self) -> Any:
        for name, node in self.node.members():
            yield name, wrap(node)

    def __getitem__(self, path: str) -> Any:
        return wrap(self.node[path])


def wrap(node: Any) -> Any:
    return ZarrArray(node) if hasattr(node, "shape") else ZarrGroup(node)

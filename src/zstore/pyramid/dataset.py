"""What a pyramid is made from: the arrays of one grid, what lies beside them, and where on the ground."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from zstore.conventions.model import GeoModel
from zstore.conventions.read import read_geo
from zstore.conventions.zarr_conventions import DECLARED
from zstore.errors import NotFoundError
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open as open_node
from zstore.nodes.open import open_group
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store

__all__ = [
    "Dataset",
    "PlaceLike",
    "free_extras",
    "group_above",
    "join_attributes",
    "open_dataset",
    "open_level",
    "place_of",
    "read_levels",
]

PlaceLike: TypeAlias = str | os.PathLike[str] | Store

# Attributes of groups that the conventions render anew, and those of a single grid that they replace.
RENDERED = frozenset(("Conventions", "grid_mapping", "multiscales", "_ARRAY_DIMENSIONS"))
RENDERED_PREFIXES = ("proj:", "spatial:")
OWN_CONVENTIONS = frozenset(uuid for uuid, _ in DECLARED.values())


@dataclass(frozen=True)
class Dataset:
    """Arrays of data on one grid, and what lies beside them.

    place        the URL of the group, or of the single array
    geo          where the grid lies; its `variables` are the arrays' names
    arrays       the arrays of data
    extras       other arrays of the group: coordinates of other dimensions, bounds, arrays on other grids
    attributes   the group's own, without its geography
    is_group     whether it is a group of arrays; else a single array
    root, level  the pyramid that the dataset is the finest level of, and its name there
    """

    place: str
    geo: GeoModel
    arrays: Mapping[str, Array]
    extras: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_group: bool = True
    root: Group | None = None
    level: str = ""

    @property
    def band_names(self) -> list[str]:
        """The arrays in the order that the group's attribute `bands` gives them, else by name."""
        order = self.attributes.get("bands")
        is_whole = isinstance(order, list) and bool(order) and set(order) <= set(self.arrays)
        return list(order if is_whole and order is not None else self.arrays)

    def axes(self, name: str) -> tuple[int, int]:
        """Which dimensions of the array are y and x."""
        array = self.arrays[name]
        dims = array.dims or ()
        if set(self.geo.dimensions) <= set(dims):
            return dims.index(self.geo.dimensions[0]), dims.index(self.geo.dimensions[1])
        return array.ndim - 2, array.ndim - 1

    def dimensions(self, name: str) -> tuple[str, ...]:
        """The names of the array's dimensions, with one for those that have none."""
        array = self.arrays[name]
        names = [d or f"dim_{i}" for i, d in enumerate(array.dims or [None] * array.ndim)]
        for axis, dimension in zip(self.axes(name), self.geo.dimensions, strict=True):
            names[axis] = dimension
        return tuple(names)


def place_of(node: Array | Group | PlaceLike) -> str:
    """The URL of an array or group, or of what will be at a path; one of its own for a nameless store."""
    store, path = (node.store, node.path) if isinstance(node, Array | Group) else (open_store(node), "")
    url = f"{store.url}{id(store):x}" if store.url.endswith("://") else store.url.rstrip("/")
    return join_key(url, path)


def open_dataset(source: Array | Group | PlaceLike) -> Dataset:
    """The dataset at `source`: an array, a group of arrays, or the finest level of a pyramid.

    Raises
        NotFoundError: there is nothing.
        MetadataError: nothing there is a grid of two dimensions.
    """
    node = source if isinstance(source, Array | Group) else open_node(source, mode="r")
    if isinstance(node, Array):
        return _array_dataset(node, group_above(node))
    if "multiscales" not in node.attrs and not any(array.ndim > 1 for _, array in node.arrays()):
        # A pyramid that is being built has a finest level, and says nothing yet.
        first = node.get("0")
        if isinstance(first, Group):
            return replace(open_dataset(first), root=node, level="0")
    geo, _ = read_geo(node)
    if not geo.levels:
        return _group_dataset(node, geo)
    level = geo.levels[0].path
    finest = node[level]
    geo = replace(geo, levels=())
    if isinstance(finest, Array):
        return _array_dataset(finest, node)
    return replace(_group_dataset(finest, geo), root=node, level=level)


def open_level(source: Array | Group | PlaceLike, level: int, pyramid: GeoModel | None = None) -> Dataset:
    """The dataset at one level of a pyramid, 0 for the finest; a plain dataset has level 0 only.

    `pyramid` is what `read_levels` gives of the source, where that is known already.

    Raises
        NotFoundError: there is no such level, or nothing at all.
        MetadataError: nothing there is a grid of two dimensions.
    """
    node, geo = read_levels(source) if pyramid is None else (_node(source), pyramid)
    count = max(1, len(geo.levels))
    if not 0 <= level < count:
        raise NotFoundError(f"no level {level}; there are {count}, the finest is 0", path=place_of(node))
    if not geo.levels or not isinstance(node, Group):
        return open_dataset(node)
    found = open_dataset(node[geo.levels[level].path])
    here = replace(found.geo, crs=found.geo.crs or geo.crs, affine=geo.levels[level].affine)
    return replace(found, geo=here)


def free_extras(dataset: Dataset) -> dict[str, Array]:
    """What lies beside the data and does not lie on their grid."""
    return {
        name: array
        for name, array in dataset.extras.items()
        if array.ndim == 0 or (array.dims is not None and not set(dataset.geo.dimensions) & set(array.dims))
    }


def read_levels(source: Array | Group | PlaceLike) -> tuple[Array | Group, GeoModel]:
    """The node at `source`, and the model of a pyramid that says its levels."""
    node = _node(source)
    if isinstance(node, Group) and "multiscales" in node.attrs:
        return node, read_geo(node)[0]
    return node, GeoModel(None, None, (0, 0))


def _node(source: Array | Group | PlaceLike) -> Array | Group:
    return source if isinstance(source, Array | Group) else open_node(source, mode="r")


def _name_of(array: Array) -> str:
    return array.basename or place_of(array).rpartition("/")[2] or "data"


def group_above(node: Array | Group) -> Group | None:
    """The group that holds an array or a group, where there is one."""
    try:
        if node.path:
            above = open_node(node.store, node.path.rpartition("/")[0], mode="r")
            return above if isinstance(above, Group) else None
        scheme, _, rest = node.store.url.rstrip("/").partition("://")
        above_place = rest.rpartition("/")[0]
        # "memory://name" and "s3://bucket" have nothing above them.
        return open_group(f"{scheme}://{above_place}", mode="r") if above_place else None
    except NotFoundError:
        return None


def _array_dataset(array: Array, group: Group | None) -> Dataset:
    geo, _ = read_geo(array, group)
    name = _name_of(array)
    geo = replace(geo, variables={name: next(iter(geo.variables.values()))})
    extras = {}
    for dim in array.dims or ():
        beside = None if group is None or dim is None or dim in geo.dimensions else group.get(dim)
        if isinstance(beside, Array):
            extras[str(dim)] = beside
    return Dataset(place_of(array), geo, {name: array}, extras, is_group=False)


def _group_dataset(group: Group, geo: GeoModel) -> Dataset:
    arrays = dict(group.arrays())
    data = {name: arrays.pop(name) for name in geo.variables}
    if geo.affine is not None and not geo.affine.is_rotated:
        for name in geo.dimensions:
            arrays.pop(name, None)
    if geo.crs is not None:
        for array in data.values():
            stated = array.attrs.get("grid_mapping")
            if isinstance(stated, str) and stated:
                arrays.pop(stated.split()[0].rstrip(":"), None)
        arrays.pop("spatial_ref", None)
    return Dataset(place_of(group), geo, data, arrays, join_attributes(group.attrs, {}))


def join_attributes(held: Mapping[str, Any], rendered: Mapping[str, Any]) -> dict[str, Any]:
    """A group's attributes with its geography rendered anew; what others put there and declared stays."""
    kept = {
        name: value
        for name, value in held.items()
        if name not in RENDERED and not name.startswith(RENDERED_PREFIXES)
    }
    joined = {**kept, **rendered}
    stated = held.get("zarr_conventions")
    if isinstance(stated, list):
        declared = rendered.get("zarr_conventions", [])
        known = {*OWN_CONVENTIONS, *(entry["uuid"] for entry in declared)}
        others = [e for e in stated if not (isinstance(e, Mapping) and e.get("uuid") in known)]
        joined["zarr_conventions"] = [*declared, *others]
        if not joined["zarr_conventions"]:
            del joined["zarr_conventions"]
    return joined

"""The source of a pyramid: its arrays on one grid, their masks, and the record of how levels were built."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np

from zstore.base.boxes import Box, Items, volume, with_sides
from zstore.errors import MetadataError, NotFoundError, ReadingWarning, UnsupportedError, ZstoreError
from zstore.geo.conventions.base import GeoModel, HeldArray, HeldGroup, Variable, plain_name, warn_of
from zstore.geo.conventions.cf import CRS_VARIABLE, mapping_names
from zstore.geo.conventions.levels import LevelPlace, is_image
from zstore.geo.conventions.meaning import Meaning
from zstore.geo.conventions.write import RENDERED, RENDERED_PREFIXES, RENDERED_UUIDS, render_geo
from zstore.jobs.chunks import SourceStore, StoredArray, as_array, source_of
from zstore.jobs.source import Source
from zstore.model.document import spelled
from zstore.model.packing import meant_fills, meant_type
from zstore.nodes.array import Array
from zstore.nodes.group import Group, is_decodable
from zstore.nodes.open import find_outermost
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store, join_url
from zstore.storage.url import open_store
from zstore.views.made import origin_of
from zstore.views.view import View

PlaceLike: TypeAlias = str | os.PathLike[str] | Store | list[Any] | tuple[Any, ...]
# Attributes, beside the members of a Variable, whose values are stored integers.
STORED = frozenset(("missing_value", "valid_min", "valid_max"))


@dataclass(frozen=True)
class Dataset:
    """Arrays of data on one grid, and the other arrays beside them.

    place        the URL of the group, or of the single array
    geo          where the grid lies; its `variables` are the arrays' names
    arrays       the arrays of data
    extras       other arrays of the group: coordinates of other dimensions, bounds, arrays on other grids
    places       arrays that say where the grid lies: coordinates of y and x, their bounds, the variable of
                 the CRS
    attributes   the group's own, without its geography
    is_group     whether it is a group of arrays; else a single array
    is_image     whether it is an image of OME-Zarr without a place: its first row is its upper edge
    root, level  the pyramid that the dataset is the finest level of, and its name there
    others       of a level, how many of the finest's items make one, by dimension beside y and x: several
    unreadable   the names of arrays that are left out, as their documents or codecs cannot be read
    """

    place: str
    geo: GeoModel
    arrays: Mapping[str, Array]
    extras: Mapping[str, Array] = field(default_factory=dict)
    places: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_group: bool = True
    is_image: bool = False
    root: Group | None = None
    level: str = ""
    others: Mapping[str, int] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()

    @property
    def band_names(self) -> list[str]:
        """The arrays in the order of the group's attribute `bands`, else by name."""
        order = self.attributes.get("bands")
        is_whole = isinstance(order, list) and bool(order) and set(order) <= set(self.arrays)
        return list(order if is_whole and order is not None else self.arrays)

    @property
    def only_name(self) -> str:
        """The name of the only array, beside a mask.

        Raises
            MetadataError: there are several.
        """
        mask = find_mask(self)
        names = [name for name in self.arrays if name != mask] or [*self.arrays]
        if len(names) != 1:
            raise MetadataError(
                f"there are the arrays {', '.join(sorted(names))}; expected one: its address, or the array",
                path=self.place,
            )
        return names[0]

    def axes(self, name: str) -> tuple[int, int]:
        """The indices of the array's y and x dimension."""
        array = self.arrays[name]
        dims = [plain_name(dim or "") for dim in array.dims or ()]
        if set(self.geo.dimensions) <= set(dims):
            return dims.index(self.geo.dimensions[0]), dims.index(self.geo.dimensions[1])
        return array.ndim - 2, array.ndim - 1

    def read(
        self, name: str, window: tuple[slice, slice], step: int = 1, items: Mapping[str, int] | None = None
    ) -> np.ndarray[Any, Any]:
        """Every `step`-th cell of a (y, x) window of an array, at one item of each of its other dimensions.

        items  indices of the finest level by dimension; the first item of a dimension that it does not name

        Shapes
            result (y, x), whichever of them comes first in the array.
        """
        array, axes = self.arrays[name], self.axes(name)
        sides: list[Any] = [slice(side.start, side.stop, step) for side in window]
        chosen = [self.item(dim, (items or {}).get(dim, 0)) for dim in self.dimensions(name)]
        cells: np.ndarray[Any, Any] = array[with_sides(chosen, axes, sides)]
        return cells if axes[0] < axes[1] else cells.T

    def item(self, dimension: str, index: int) -> int:
        """The index, along a dimension beside y and x, of the item in which one of the finest level lies."""
        return index // self.others.get(dimension, 1)

    def dimensions(self, name: str) -> tuple[str, ...]:
        """The names of the array's dimensions, made up for those that have none."""
        array = self.arrays[name]
        names = [plain_name(d or f"dim_{i}") for i, d in enumerate(array.dims or [None] * array.ndim)]
        for axis, dimension in zip(self.axes(name), self.geo.dimensions, strict=True):
            names[axis] = dimension
        return tuple(names)

    def other_sizes(self, name: str) -> dict[str, int]:
        """The lengths of the array's dimensions beside y and x, by name."""
        sizes = zip(self.dimensions(name), self.arrays[name].shape, strict=True)
        return {dimension: size for dimension, size in sizes if dimension not in self.geo.dimensions}


def place_of(node: Array | Group | PlaceLike) -> str:
    """The URL of an array, a group or a target; stores without a name get a unique one."""
    store, path = (node.store, node.path) if isinstance(node, Array | Group) else (open_store(node), "")
    url = f"{store.url}{id(store):x}" if store.url.endswith("://") else store.url.rstrip("/")
    return join_url(url, path)


def real_place(place: str) -> str:
    """A URL with the symbolic links of a path on this machine resolved; others stay as they are."""
    scheme, mark, path = place.rpartition("file://")
    return f"{mark}{os.path.realpath(unquote(path))}" if mark and not scheme else place


def node_within(store: Store, address: str) -> Array | Group | None:
    """The node of a store at an address in its own documents; None if that lies anywhere else.

    Such an address is another's word: what lies outside of the store is for the caller to name.

    Raises
        NotFoundError: there is nothing at that place of the store.
        StoreError: the address leads back out of the store.
    """
    root = place_of(store)
    if address != root and not address.startswith(f"{root}/"):
        return None
    return open_node(store, address[len(root) :], mode="r")


def node_of(source: Array | Group | Source | PlaceLike) -> Array | Group:
    """The node at an address; of a view or another `Source`, the array that shows it."""
    node: Any = source if isinstance(source, Array | Group | Source) else open_node(source, mode="r")
    return open_node(SourceStore.of(node), mode="r") if isinstance(node, Source) else node


def open_dataset(source: Array | Group | Source | PlaceLike, expected: Container[str] = ()) -> Dataset:
    """The dataset at `source`: an array, a group of arrays, the finest level of a pyramid, or any `Source`.

    `expected` are rules whose findings the caller deals with.

    Raises
        NotFoundError: there is nothing.
        MetadataError: nothing there is a grid of two dimensions.
        UnsupportedError: `_Unsigned` means another integer type than the items of a `Source` are of.
    Warns
        ReadingWarning: what its documents say wrongly of it.
    """
    if not isinstance(source, Source):
        return open_levels(source, expected)[0]
    if isinstance(source, StoredArray):
        return open_levels(Array(source.store, source.path, source.model), expected)[0]
    # What has coordinates is a group with them.
    is_alone = source.documents(3) is None
    node = as_array(source) if is_alone else open_node(SourceStore.of(source), mode="r")
    return replace(open_levels(node, expected)[0], place=source.url)


def open_only_array(source: Array | Group | Source | PlaceLike, asking: str, *, above: bool = False) -> Array:
    """An array, the only one of a group, or any `Source` as an array.

    asking  the function that asks for it
    above   whether groups above an address are read

    Raises
        MetadataError: there are several.
        UnsupportedError: there is a mask beside it.
    """
    node: Any = source
    if not isinstance(source, Array | Group | Source):
        node = open_node(source, mode="r", above=above)
    if isinstance(node, Source):
        return as_array(node)
    if isinstance(node, Array):
        return node
    dataset = open_dataset(node)
    if find_mask(dataset) not in (None, dataset.only_name):
        raise UnsupportedError(
            f"the group has a mask, which {asking} does not read; expected the array alone",
            path=dataset.place,
        )
    return dataset.arrays[dataset.only_name]


def pick_level(levels: Sequence[Dataset], level: int) -> Dataset:
    """The level with this number, 0 for the finest.

    Raises
        NotFoundError: there is none of that number.
    """
    if not 0 <= level < len(levels):
        place = place_of(levels[0].root) if levels[0].root is not None else levels[0].place
        raise NotFoundError(f"no level {level}; there are {len(levels)}, the finest is 0", path=place)
    return levels[level]


def sources_of(levels: Sequence[Dataset]) -> dict[str, list[Source]]:
    """The sources of each array at some levels, by the array's name at the first of them."""
    first, *others = levels
    return {
        name: [source_of(one.arrays[name]) for one in (first, *others) if name in one.arrays]
        for name in first.band_names
    }


def open_levels(
    source: Array | Group | Source | PlaceLike, expected: Container[str] = (), *, arrays: Sequence[Any] = ()
) -> list[Dataset]:
    """The levels of a pyramid, the finest first; the one dataset if there is no pyramid.

    arrays  names; of a group whose arrays lie on several grids, the dataset with one of these is opened

    Raises, warns
        as `open_dataset`.
    """
    if not isinstance(source, Array | Group | Source):
        opened = open_node(source, mode="r")
        levels = open_levels(opened, expected, arrays=arrays)
        warn_of_above(opened, levels[0])
        return levels
    if isinstance(source, Source):
        return [open_dataset(source, expected)]
    node = source
    meaning = Meaning()
    held = meaning.hold(node)
    reading = meaning.read(held)
    warn_of([finding for finding in reading.findings if finding.rule not in expected], stacklevel=3)
    geo = reading.geo
    if isinstance(held, HeldArray) and geo is not None:
        return [_array_dataset(held, geo)]
    pyramid = None if isinstance(held, HeldArray) else meaning.pyramid(held)
    if isinstance(held, HeldGroup) and pyramid is None and (geo is None or not geo.variables):
        # A pyramid that is being built has a finest level, and says nothing yet.
        first = held.groups.get("0")
        if first is not None:
            return [replace(open_dataset(first.node, expected), root=held.node, level="0")]
    if geo is None:
        raise reading.trouble or MetadataError("there is no grid", path=place_of(node))
    if pyramid is None or not geo.levels:
        if not geo.variables.keys() & {*arrays}:
            others = grids_of(meaning, held) if arrays else ()
            geo = next((other for other in others if other.variables.keys() & {*arrays}), geo)
        return [_group_dataset(held, geo)]
    return [_level_dataset(level, geo, node) for level in pyramid.levels]


def warn_of_above(node: Array | Group | Source, dataset: Dataset) -> None:
    """Warn of groups above an opened store that say where the cells of its node lie, if nothing else does.

    Warns
        ReadingWarning: there are such groups.
    """
    missing = [name for name in ("crs", "affine") if getattr(dataset.geo, name) is None]
    if not missing or not isinstance(node, Array | Group):
        return
    place = None
    with suppress(ZstoreError):
        outer, path = find_outermost(node.store, node.path)
        if outer is not node.store:
            place = Meaning().read(open_node(outer, path, mode="r")).geo
    if any(getattr(place, name, None) is not None for name in missing):
        said = "lies in groups that say where its cells are, and are read with above=True (--above) only"
        warnings.warn(ReadingWarning(f"{place_of(node)!r} {said}"), stacklevel=4)


def other_grids(group: Group, first: Dataset) -> list[Dataset]:
    """The datasets of a group, beside the one that `open_levels` opens, whose arrays lie on other grids.

    There are none in a pyramid.
    """
    meaning = Meaning()
    held = meaning.hold(group)
    grids = [geo for geo in grids_of(meaning, held) if not geo.variables.keys() & first.arrays.keys()]
    return [_group_dataset(held, geo) for geo in grids]


def grids_of(meaning: Meaning, held: Any) -> list[GeoModel]:
    """The grids of a group's arrays, each with the arrays on it, the largest first; none of a pyramid."""
    if not isinstance(held, HeldGroup) or meaning.is_pyramid(held):
        return []
    found: dict[Any, GeoModel] = {}
    for grid in meaning.grids(held).values():
        geo = meaning.read(grid.node).geo
        if geo is not None:
            same = (geo.shape, geo.dimensions, geo.affine, geo.crs)
            first = found.get(same, geo)
            found[same] = replace(first, variables={**first.variables, **geo.variables})
    return sorted(found.values(), key=lambda geo: -geo.shape[0] * geo.shape[1])


def free_extras(dataset: Dataset, dimensions: Iterable[str] = ()) -> dict[str, Array]:
    """The extras that are not on the grid of the data, nor along any of these dimensions, by name."""
    held = {*dataset.geo.dimensions, *dimensions}
    return {
        name: array
        for name, array in dataset.extras.items()
        if array.ndim == 0 or (array.dims is not None and not held & set(array.dims))
    }


def _level_dataset(level: LevelPlace, pyramid: GeoModel, root: Any) -> Dataset:
    geo = replace(level.geo or pyramid, plugins=pyramid.plugins, axes=pyramid.axes)
    if isinstance(level.node, HeldArray):
        is_bare = geo.crs is None and is_image(root)
        return replace(_array_dataset(level.node, geo), is_image=is_bare, others=level.others)
    return replace(_group_dataset(level.node, geo), root=root, level=level.path, others=level.others)


def _array_dataset(array: HeldArray, geo: GeoModel) -> Dataset:
    node: Any = array.node
    name = node.basename or place_of(node).rpartition("/")[2] or "data"
    beside = {} if array.parent is None else array.parent.arrays
    dims = [str(dim) for dim in array.dims or () if dim in beside and dim not in geo.dimensions]
    extras = {dim: beside[dim].node for dim in dims}
    node, variable = _meant(node, next(iter(geo.variables.values())))
    geo = replace(geo, variables={name: variable})
    return Dataset(place_of(node), geo, {name: node}, extras, is_group=False)


def _group_dataset(group: Any, geo: GeoModel) -> Dataset:
    arrays = {name: array.node for name, array in group.arrays.items() if is_decodable(array.node)}
    unreadable = frozenset(name for name, one in group.children.items() if isinstance(one, ZstoreError)) | (
        group.arrays.keys() - arrays.keys()
    )
    known = {name: variable for name, variable in geo.variables.items() if name in arrays}
    pairs = {name: _meant(arrays.pop(name), variable) for name, variable in known.items()}
    data = {name: array for name, (array, _) in pairs.items()}
    geo = replace(geo, variables={name: variable for name, (_, variable) in pairs.items()})
    placing = list[str]()
    if geo.affine is not None and not geo.affine.is_rotated:
        for dimension in geo.dimensions:
            bounds = bounds_of(arrays.get(dimension), arrays)
            placing += [dimension, *([] if bounds is None else [bounds.basename])]
    if geo.crs is not None:
        for array in data.values():
            placing += (*mapping_names(array.attrs.get("grid_mapping"))[:1], CRS_VARIABLE)
    places = {name: arrays.pop(name) for name in dict.fromkeys(placing) if name in arrays}
    attributes = join_attributes(_without_plugins(group, geo), {})
    return Dataset(place_of(group.node), geo, data, arrays, places, attributes, unreadable=unreadable)


def bounds_of(coordinate: Array | None, arrays: Mapping[str, Array]) -> Array | None:
    """The bounds of a coordinate among arrays: two edges of every cell; None without."""
    name = None if coordinate is None else coordinate.attrs.get("bounds")
    found = arrays.get(name) if isinstance(name, str) else None
    if found is None or coordinate is None or 0 in found.shape or found.dtype.kind not in "iuf":
        return None
    return found if found.shape == (*coordinate.shape, 2) else None


def _without_plugins(group: Any, geo: GeoModel) -> dict[str, Any]:
    """A group's attributes, apart from those that conventions of plugins render anew for each level."""
    rendered = render_geo(geo, group.zarr_format, geo.plugins)[0].values() if geo.plugins else ()
    own = {
        name for document in rendered if document.get("kind") != "array" for name in document["attributes"]
    }
    return {name: value for name, value in group.attrs.items() if name not in own}


def _meant(array: Array, variable: Variable) -> tuple[Array, Variable]:
    """The array and its variable, with its items in the integer type that `_Unsigned` means.

    Raises
        UnsupportedError: they are stored by a codec that knows them as what they are not.
    """
    dtype = array.dtype
    meant = meant_type(dtype, array.attrs)
    if meant is dtype:
        return array, variable
    codecs = [codec.name for codec in (*array.filters, array.serializer) if codec is not None]
    knowing = [name for name in codecs if name not in ("transpose", "bytes")]
    if knowing:
        raise UnsupportedError(
            f"_Unsigned is {array.attrs['_Unsigned']!r}; codec {knowing[0]!r} knows items of {dtype.name}, "
            f"and they cannot be taken for {meant.name}",
            path=place_of(array),
        )
    holes = list(dict.fromkeys(meant_fills(dtype, array.attrs)))
    if not holes and variable.nodata is not None:
        holes = [np.array(variable.nodata, dtype).view(meant).item()]

    def taken(said: Any) -> Any:
        """Stored integers in the integer type of `_Unsigned`."""
        if isinstance(said, (list, tuple)):
            return type(said)(map(taken, said))
        size, low = 1 << 8 * meant.itemsize, int(np.iinfo(meant).min)
        return (said - low) % size + low if isinstance(said, int) and not isinstance(said, bool) else said

    attributes = {name: value for name, value in variable.attributes.items() if name != "_Unsigned"}
    for name in STORED.intersection(attributes):
        attributes[name] = taken(attributes[name])
    said = replace(
        variable, dtype=meant, nodata=next(iter(holes), None), other_nodata=tuple(holes[1:]),
        attributes=attributes, valid_range=taken(variable.valid_range),
        flag_values=taken(variable.flag_values), flag_masks=taken(variable.flag_masks),
    )  # fmt: skip
    return array.viewed_as(meant), said


def join_attributes(held: Mapping[str, Any], rendered: Mapping[str, Any]) -> dict[str, Any]:
    """A group's attributes with its georeference rendered again; attributes of others stay."""
    kept = {
        name: spelled(value)
        for name, value in held.items()
        if name not in RENDERED and not name.startswith(RENDERED_PREFIXES)
    }
    joined = {**kept, **rendered}
    conventions = held.get("zarr_conventions")
    if isinstance(conventions, list):
        declared = rendered.get("zarr_conventions", [])
        uuids = {*RENDERED_UUIDS, *(entry["uuid"] for entry in declared)}
        others = [e for e in conventions if not (isinstance(e, Mapping) and e.get("uuid") in uuids)]
        joined["zarr_conventions"] = [*declared, *others]
        if not joined["zarr_conventions"]:
            del joined["zarr_conventions"]
    return joined


# Masks

# The flags of the array that a raster's mask becomes.
MASK_VALUES = (0, 255)
MASK_MEANINGS = ("invalid", "valid")

# Types with integers of twice the size, which hold all their values and one more, and round alike.
WIDENED = frozenset(("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32"))


@dataclass(frozen=True)
class Mask:
    """The mask of an array of data, which is valid where the mask is not 0.

    axes    the dimensions of the data that are the mask's
    origin  what a document names for the mask
    """

    array: Source
    axes: tuple[int, ...]
    origin: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, shown: View, axes: tuple[int, ...]) -> Mask:
        """The mask that a view is."""
        return cls(shown, axes, shown)

    def read(self, box: tuple[slice, ...]) -> Items:
        """Whether the cells of a box of the data are valid; to be broadcast over its other dimensions."""
        valid: Items = self.array.read(tuple(box[axis] for axis in self.axes)) != 0
        missing = tuple(axis for axis in range(len(box)) if axis not in self.axes)
        return np.expand_dims(valid, missing)


class Masking:
    """Hides invalid cells as nodata, or without one as a value that the data cannot have.

    nodata  what resampling is to leave out
    """

    @staticmethod
    def is_possible(dtype: np.dtype[Any], nodata: Any) -> bool:
        """Whether some value can mark hidden cells: integers of 64 bits without nodata have none."""
        return nodata is not None or dtype.kind == "f" or dtype.name in WIDENED

    def __init__(self, dtype: np.dtype[Any], nodata: Any, *, is_needed: bool) -> None:
        self._dtype = self._wide = dtype
        self.nodata = nodata
        if is_needed and nodata is None:
            if dtype.kind == "f":
                self.nodata = np.nan
            else:
                self._wide = np.dtype(f"i{2 * dtype.itemsize}")
                self.nodata = int(np.iinfo(self._wide).min)

    def hide(self, cells: Items, valid: Items) -> Items:
        """The cells, with nodata in place of invalid ones."""
        hidden = cells.astype(self._wide)
        np.copyto(hidden, self.nodata, where=~valid)
        return hidden

    def bound(self, cells: Items) -> Items:
        """The cells within the limits of the data's type; invalid ones stay nodata (see `hide`)."""
        if self._wide == self._dtype or self._dtype.kind == "b":
            return cells
        limits = np.iinfo(self._dtype)
        bounded = np.clip(cells, limits.min, limits.max)
        np.copyto(bounded, self.nodata, where=cells == self.nodata)
        return bounded

    def reveal(self, cells: Items) -> Items:
        """Cells in the data's type; those that `hide` has made nodata are that, or 0 without a nodata."""
        if self._wide == self._dtype:
            return cells
        if self._dtype.kind == "b":
            return cells > 0
        shown = self.bound(cells)
        shown[cells == self.nodata] = 0
        return shown.astype(self._dtype)


def read_window(source: Source, box: Box) -> Items:
    """The items of a box; where it is no smaller than a quarter of a chunk, none is kept decoded.

    Its neighbours decode a chunk again a few times at most, and a mosaic has windows of hundreds of arrays,
    whose chunks take much memory together.
    """
    if isinstance(source, StoredArray):
        piece = source.piece_shape or source.grid.chunk_shape
        source = source.uncached if 4 * volume(box) >= prod(piece) else source
    return source.read(box)


def find_mask(dataset: Dataset) -> str | None:
    """The name of the array that is the mask of all others, a raster's mask or its alpha; None without."""
    for name, variable in dataset.geo.variables.items():
        is_mask = (variable.flag_values, variable.flag_meanings) == (MASK_VALUES, MASK_MEANINGS)
        if dataset.arrays[name].ndim == 2 and (is_mask or is_alpha(variable)):
            return name
    return None


def is_alpha(variable: Variable) -> bool:
    """Whether a variable is an alpha band: the opacity of each cell."""
    return variable.attributes.get("color_interpretation") == "alpha"


def make_mask(array: Array, data: Array, axes: tuple[int, int], nodata: Any, where: str) -> Mask:
    """The mask `array` of `data`, whose (y, x) are `axes`: on those two, or on all its dimensions.

    Raises
        MetadataError: the mask is on another grid.
        UnsupportedError: nothing is left to hide cells as.
    """
    if array.shape == data.shape:
        axes = tuple(range(data.ndim))  # type: ignore[assignment]
    elif array.shape != tuple(data.shape[axis] for axis in axes):
        expected = f"expected {data.shape}, or (y, x) of it"
        raise MetadataError(f"mask of {data.basename!r} has the shape {array.shape}; {expected}", path=where)
    if array.dtype.kind not in "biu":
        raise MetadataError(f"mask is of data type {array.dtype}; expected bool or integers", path=where)
    if not Masking.is_possible(data.dtype, nodata):
        raise UnsupportedError(
            f"{data.basename!r} of data type {data.dtype} has no nodata to hide masked cells as",
            path=where,
        )
    return Mask(source_of(array), axes, origin_of(array))


# Records

# The attribute of a pyramid's group, and of its levels' groups, that is zstore's own.
MEMBER = "zstore"
# Members of a record that may be None.
OPTIONAL = ("finest", "profile", "resampling", "affine")

Record = dict[str, Any]


def read_record(group: Group) -> Record | None:
    """The record of how a pyramid was built; None if it has none.

    Raises
        MetadataError: there is something else in its place.
    """
    held = group.attrs.get(MEMBER)
    record = held.get("pyramid") if isinstance(held, Mapping) else None
    if record is None:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("variables"), dict):
        raise MetadataError(
            f"attribute {MEMBER!r} holds {record!r}; expected a pyramid's record", path=place_of(group)
        )
    variables = {name: {"nodata": None, **entry} for name, entry in record["variables"].items()}
    return {**dict.fromkeys(OPTIONAL), **record, "variables": variables}


def _without_nulls(record: Mapping[str, Any]) -> Record:
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in record.items()
        if value is not None
    }


def join_member(held: Any, added: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute's value with `added` in it; members that are None are left out."""
    return {**(held if isinstance(held, Mapping) else {}), **_without_nulls(added)}


def mark_levels(group: Group, levels: Sequence[str], build: str, state: str | None) -> None:
    """Write the name of the build into every level, and `state` until that build is complete."""
    for level in levels:
        attributes = group[level].attrs
        held = attributes.get(MEMBER)
        kept = {k: v for k, v in held.items() if k != "state"} if isinstance(held, Mapping) else {}
        attributes.update({MEMBER: join_member(kept, {"build": build, "state": state})})


def name_build(plan: Any, former: str = "") -> str:
    """The name of a build, or of an update of the build `former`: the same for the same plan."""
    text = json.dumps([plan, former], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def number_of(value: Any) -> Any:
    """A number in a form that JSON can hold."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return str(plain) if isinstance(plain, float) and not isfinite(plain) else plain


def number_from(value: Any) -> Any:
    """The number that `number_of` put into this form."""
    return float(value) if isinstance(value, str) else value

"""Several hierarchies shown as one: their arrays joined along the dimension that differs.

Members of a list, or of what a pattern such as "era5_*.nc" matches, are files or Zarrs of one structure.
Items are read when they are used, but for coordinates, and arrays that have no place along that dimension.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from zstore.base.boxes import whole
from zstore.base.once import once
from zstore.engine.documents import ancestors, publish_nodes
from zstore.engine.schedulers import map_threads
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.geo.conventions.base import dimensions_of
from zstore.geo.conventions.timeaxis import TimeAxis, is_of_time
from zstore.geo.conventions.write import RENDERED_PREFIXES
from zstore.geo.pyramid.dataset import node_of, place_of
from zstore.geo.rasters.files import FileArray, OpenFiles
from zstore.geo.rasters.netcdf import UNLIMITED
from zstore.jobs.chunks import SourceStore, is_shown, source_of
from zstore.jobs.source import Source
from zstore.model.array import ArrayModel
from zstore.model.grid import RegularGrid
from zstore.model.group import GroupModel
from zstore.model.packing import PACKING
from zstore.nodes.array import Array
from zstore.nodes.create import ArrayRequest
from zstore.nodes.group import Group, readable_members
from zstore.storage.base import PrefixStore, Store
from zstore.storage.memory import MemoryStore
from zstore.storage.patterns import matches
from zstore.storage.url import current_storage_options, is_remote, use_storage_options
from zstore.views.view import View, concat, unpack, view

Items = np.ndarray[Any, Any]

# How many names a message shows.
SHOWN_COUNT = 3
# How many members are asked at the same time that lie on servers.
FAR_COUNT = 32
# Attributes of the whole grid, of which a member has its own.
OF_GRIDS = ("GeoTransform", "multiscales", *RENDERED_PREFIXES)
# Attributes that give numbers another meaning where they differ.
MEANING = ("units", "calendar", "flag_values", "flag_masks", "flag_meanings")
# Attributes that name the bounds of a coordinate, which have its units.
BOUNDS = ("bounds", "climatology")
# Calendars that CF has two names for.
SECOND_NAMES = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
# Units of time, the largest first, and their microseconds.
UNITS = {"days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000, "seconds": 1_000_000}


class JoinedStore(SourceStore):
    """The hierarchy that several others make together, where they differ along one dimension.

    Members lie in the order of their coordinates along it, or, without these, in the order in which they are
    given. Arrays without the dimension are those of the first member; whose items differ between members get
    it. Counts of time are in the units of one of them, numbers with different packing are unpacked, and
    attributes stay that all members have alike.

    opened  the stores that were opened for it, and the files of those that only show files
    """

    opened: Sequence[Store | OpenFiles] = ()

    def close(self) -> None:
        for store in self.opened:
            store.close()

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The joined store of the members that "joined::PATTERN" matches; of a single member, its own store.

        Raises
            NotFoundError: there are none.
            MetadataError, UnsupportedError: they make no hierarchy together, which says how they differ.
        """
        pattern = url.partition("::")[2]
        with use_storage_options(storage_options):
            return join(matches(pattern), url)

    @classmethod
    def from_object(cls, target: Any, *, read_only: bool = False) -> Store:
        """The members of a list.

        Raises
            as `from_url`.
        """
        return join([*target], "")


def join(members: Sequence[Any], url: str) -> Store:
    """The store of members, which are paths, URLs, stores or nodes; without a URL, it has no address.

    Raises
        as `JoinedStore.from_url`.
    """
    if not members:
        raise NotFoundError(
            "a list without members; expected paths, URLs, stores or groups", path=url or None
        )
    options = current_storage_options()

    def opened(member: Any) -> Array | Group:
        with use_storage_options(options):
            return node_of(member)

    nodes = map_threads(opened, members, waiting_count=_waiting_count(members))
    if len(nodes) == 1:
        [node] = nodes
        return PrefixStore(node.store, node.path) if node.path else node.store
    groups = [node for node in nodes if isinstance(node, Group)]
    if len(groups) < len(nodes):
        alone = next(node for node in nodes if isinstance(node, Array))
        said = "an array alone has no coordinates to join by; expected groups, or zstore.concat of the arrays"
        raise UnsupportedError(said, path=place_of(alone))
    joining = _Joining(groups)
    store = MemoryStore()
    models, sources = joining.made()
    publish_nodes(store, "", models)
    shown = JoinedStore(url or joining.said, store, sources)
    shown.has_address = bool(url)
    own = [
        node.store
        for node, member in zip(nodes, members, strict=True)
        if isinstance(member, str | os.PathLike)
    ]
    # What is read of thousands of files needs no documents of each.
    shown.opened = [joining.files, *(store for store in own if not _file_arrays(store))]
    return shown


def _file_arrays(store: Store) -> list[FileArray]:
    """The variables of files that a store shows."""
    holder = store.holder("")[0]
    sources = holder.sources.values() if isinstance(holder, SourceStore) else ()
    return [source for source in sources if isinstance(source, FileArray)]


def _waiting_count(members: Sequence[Any]) -> int | None:
    """The members to ask at the same time, where one waits for a server; else None."""
    stores = [one.store if isinstance(one, Array | Group) else one for one in members]
    counts = [one.request_count if isinstance(one, Store) else FAR_COUNT * is_remote(one) for one in stores]
    return min(max(counts), FAR_COUNT) if max(counts) > 1 else None


@dataclass(frozen=True, eq=False)
class _Joining:
    """Groups of one structure, and how they are joined."""

    groups: Sequence[Group]

    @once
    def files(self) -> OpenFiles:
        """The files of all members, of which a few stay open."""
        return OpenFiles(len(self.groups))

    @once
    def members(self) -> Sequence[Mapping[str, Array | Group]]:
        """The nodes of each group, by their paths, which are the same in all.

        One that cannot be read in a group is left out of all.
        """
        lost = set[str]()

        def walked(group: Group) -> dict[str, Array | Group]:
            return {"": group, **dict(readable_members(group, None, is_decoded=True, lost=lost))}

        told = map_threads(walked, self.groups, waiting_count=_waiting_count(self.groups) or 1)
        told = [
            {path: node for path, node in nodes.items() if lost.isdisjoint(ancestors(f"{path}/"))}
            for nodes in told
        ]
        for group, nodes in zip(self.groups, told, strict=True):
            for source in _file_arrays(group.store):
                source.files = self.files
            first = told[0]
            missing = [path for path in {**first, **nodes} if (path in first) != (path in nodes)]
            if missing:
                there, gone = (first, nodes) if missing[0] in first else (nodes, first)
                said = f"no {missing[0]!r}, which {_name(there)} has; expected the same arrays in all members"
                raise MetadataError(said, path=_name(gone))
            for path, node in nodes.items():
                if isinstance(node, Array) and self._dimensions(node) != self._dimensions(first[path]):
                    said = f"{path!r} has dimensions {self._dimensions(node)}; expected "
                    said += f"{self._dimensions(first[path])} as in {_name(first)}"
                    raise MetadataError(said, path=_name(nodes))
            if group.zarr_format != self.groups[0].zarr_format:
                said = f"Zarr v{group.zarr_format} beside v{self.groups[0].zarr_format}; expected one format"
                raise UnsupportedError(said, path=_name(nodes))
        return told

    @staticmethod
    def _dimensions(node: Array | Group) -> tuple[str, ...]:
        return () if isinstance(node, Group) else dimensions_of(node)

    @property
    def said(self) -> str:
        """A short text that names the members."""
        names = [_name(nodes) for nodes in self.members]
        shown = names if len(names) <= SHOWN_COUNT else [*names[:2], "...", names[-1]]
        return f"[{', '.join(shown)}]"

    def _arrays(self) -> Iterator[tuple[str, Sequence[Array], tuple[str, ...]]]:
        """(path, the array of each member, the names of its dimensions)."""
        for path, node in self.members[0].items():
            if isinstance(node, Array):
                yield path, [nodes[path] for nodes in self.members], self._dimensions(node)  # type: ignore[misc]

    @once
    def read(self) -> Sequence[Mapping[str, Items]]:
        """Of each member, the stored items of coordinates and single values, by their paths.

        Of items that are alike, all members have the same array.
        """
        known = dict[str, Items]()

        def of(nodes: Mapping[str, Array | Group]) -> Mapping[str, Items]:
            made = dict[str, Items]()
            for path, node in nodes.items():
                if isinstance(node, Array) and self._dimensions(node) in ((), (path.rpartition("/")[2],)):
                    items = _items(node)
                    first = known.setdefault(path, items)
                    made[path] = first if first.dtype == items.dtype and _is_same(first, items) else items
            return made

        return map_threads(of, self.members, waiting_count=_waiting_count(self.groups))

    @once
    def coordinates(self) -> Mapping[str, Sequence[Items]]:
        """By dimension, the values of each member's coordinate, times counted in one unit."""
        told: dict[str, Sequence[Items]] = {}
        for path, arrays, dimensions in self._arrays():
            name = path.rpartition("/")[2]
            if dimensions == (name,) and name not in told:
                parts = self._numbers(path, arrays)
                items = {id(one): np.asarray(one.read()) for one in {id(one): one for one in parts}.values()}
                told[name] = [items[id(one)] for one in parts]
        return told

    @once
    def dimension(self) -> str:
        """The one dimension along which members differ."""
        lengths: dict[str, set[int]] = {}
        for _, arrays, dimensions in self._arrays():
            for axis, name in enumerate(dimensions):
                lengths.setdefault(name, set()).update(array.shape[axis] for array in arrays)
        differ = [name for name, several in lengths.items() if len(several) > 1]
        differ += [
            name
            for name, values in self.coordinates.items()
            if name not in differ and not all(_is_same(one, values[0]) for one in values[1:])
        ]
        if not differ:
            # Files of records are continued along the dimension of records.
            said = [dict.fromkeys(group.attrs.get(UNLIMITED, ())) for group in self.groups]
            differ = [name for name in said[0] if all(name in one for one in said) and name in lengths]
        if len(differ) == 1 and differ[0]:
            return differ[0]
        places = f"{_name(self.members[0])} and {len(self.groups) - 1} more"
        if "" in differ:
            raise MetadataError(
                f"lengths differ along a dimension without a name in {places}; expected names"
            )
        if differ:
            named = ", ".join(map(repr, differ))
            how = "join the others first" + (", or `zstore mosaic` for rasters" if len(differ) == 2 else "")
            raise MetadataError(f"{places} differ along {named}; expected one dimension: {how}")
        raise MetadataError(
            f"{places} differ along no dimension that has a coordinate; expected one, or for rasters "
            "`zstore convert --stack time`, `--stack bands`, or zstore.rasters_to_zarr"
        )

    @once
    def order(self) -> Sequence[int]:
        """The numbers of the members in the order in which they follow each other."""
        numbers = [*range(len(self.groups))]
        values = self.coordinates.get(self.dimension)
        if values is None:
            return numbers
        filled = [at for at in numbers if values[at].size]
        empty = [at for at in numbers if not values[at].size]
        if values[0].dtype.kind not in "iufM":
            texts: dict[Any, int] = {}
            for at in filled:
                for text in values[at].tolist():
                    if texts.setdefault(text, at) != at:
                        raise self._overlap(texts[text], at, repr(text))
            return numbers
        falls = any(bool(values[at][0] > values[at][-1]) for at in filled)
        ends = {at: (values[at][0], values[at][-1]) for at in filled}
        for at in filled:
            if ends[at][0] < ends[at][1] and falls:
                said = f"{self.dimension!r} rises, and falls in others; expected one direction"
                raise MetadataError(said, path=_name(self.members[at]))
        ordered = sorted(filled, key=lambda at: ends[at][0], reverse=falls)
        for one, other in pairwise(ordered):
            before, after = ends[one][1], ends[other][0]
            if not (before > after if falls else before < after):
                raise self._overlap(one, other, f"{after} comes behind {before}")
        return ordered + empty

    def _overlap(self, one: int, other: int, said: str) -> MetadataError:
        first, second = (_name(self.members[at]) for at in (one, other))
        message = f"{self.dimension!r} of it and of {first} overlap: {said}; expected one behind the other"
        return MetadataError(message, path=second)

    def made(self) -> tuple[dict[str, ArrayModel | GroupModel], dict[str, Source]]:
        """The models of all nodes, and the arrays' items."""
        models, sources = dict[str, Any](), dict[str, Source]()
        grids = self._grid_dimensions()
        for path, node in self.members[0].items():
            if isinstance(node, Group):
                attributes = self._attributes(path, is_moved=self.dimension in grids)
                models[path] = GroupModel(node.zarr_format, attributes, None, node.model.extra)
        for path, arrays, dimensions in self._arrays():
            models[path], sources[path] = self._array(path, arrays, dimensions, self.dimension in grids)
        return models, sources

    def _grid_dimensions(self) -> set[str]:
        """The last two dimensions of arrays that have a grid's attributes, or a variable of it."""
        said = [
            dimensions[-2:]
            for _, (first, *_), dimensions in self._arrays()
            if len(dimensions) > 1 and ("grid_mapping" in first.attrs or _has_grid(first.attrs))
        ]
        own = [self._dimensions(one)[-2:] for one in self.members[0].values()]
        has_grid = any(_has_grid(one.attrs) for one in self.members[0].values())
        return {name for names in (said or own if has_grid else said) for name in names}

    def _attributes(self, path: str, *, is_moved: bool) -> dict[str, Any]:
        """The attributes that the node has in all members alike."""
        first, *others = [_said(nodes[path]) for nodes in self.members]
        told = {name: _text(value) for name, value in first.items()}
        return {
            name: deepcopy(value)
            for name, value in first.items()
            if all(name in other and _text(other[name]) == told[name] for other in others)
            and not (is_moved and name.startswith(OF_GRIDS))
        }

    def _array(
        self, path: str, arrays: Sequence[Array], dimensions: tuple[str, ...], is_moved: bool
    ) -> tuple[ArrayModel, Source]:
        """The model and the items of an array."""
        first, name = arrays[0], self.dimension
        parts = self._numbers(path, arrays)
        if name not in dimensions:
            if all(self._is_static(one, parts[0]) for one in parts[1:]):
                return replace(first.model, attributes=dict(first.attrs)), view(first)
            dimensions = (name, *dimensions)
            counts = [self._length(nodes) for nodes in self.members]
            parts = [one[None][[0] * n] for one, n in zip(parts, counts, strict=True)]
        axis = dimensions.index(name)
        for number, one in enumerate(parts):
            if one.dtype != parts[0].dtype and not _fits(one.dtype, parts):
                said = f"{path!r} is of {one.dtype}, and of {parts[0].dtype} in {_name(self.members[0])}"
                raise MetadataError(f"{said}; expected one data type", path=_name(self.members[number]))
        joined = concat([parts[at] for at in self.order], axis)
        attributes = self._attributes(path, is_moved=is_moved)
        attributes |= {key: value for key, value in self._counted(path, arrays).items() if value}
        if self._unpacked(arrays):
            attributes = {key: value for key, value in attributes.items() if key not in PACKING}
        cut = [1, *first.chunks] if joined.ndim > first.ndim else [*first.chunks]
        cut = [max(1, min(n, length)) for n, length in zip(cut, joined.shape, strict=True)]
        if joined.dtype != first.dtype or joined.ndim != first.ndim:
            model = ArrayRequest(
                shape=joined.shape,
                dtype=joined.dtype if joined.dtype != first.dtype else first.model.data_type,
                chunks=tuple(cut),
                compressors=None,
                zarr_format=first.zarr_format,
                attributes=attributes,
                dimension_names=dimensions,
            ).model()
            return model, joined
        grid = first.model.grid
        if first.shards is None or not isinstance(grid, RegularGrid):
            grid = RegularGrid(tuple(cut))
        return replace(first.model, shape=joined.shape, grid=grid, attributes=attributes), joined

    def _length(self, nodes: Mapping[str, Array | Group]) -> int:
        """The length of a member along the dimension that differs."""
        return next(
            node.shape[self._dimensions(node).index(self.dimension)]
            for node in nodes.values()
            if isinstance(node, Array) and self.dimension in self._dimensions(node)
        )

    @staticmethod
    def _is_static(one: View, first: View) -> bool:
        return one is first or (
            one.shape == first.shape and _is_same(np.asarray(one.read()), np.asarray(first.read()))
        )

    def _numbers(self, path: str, arrays: Sequence[Array]) -> list[View]:
        """The items of an array in each member, in one unit of time and one packing."""
        units = [self._units(path, nodes) for nodes in self.members]
        if any(one != units[0] for one in units):
            return self._times(path, arrays, units)
        for name in MEANING:
            other = _said(arrays[0]).get(name)
            told, may_differ = _text(other), is_of_time(other) or name == "calendar"
            for array, nodes in () if may_differ else zip(arrays, self.members, strict=True):
                own = _said(array).get(name)
                if _text(own) != told:
                    said = f"{name} of {path!r} are {own!r}, and {other!r} in {_name(self.members[0])}"
                    raise MetadataError(f"{said}; expected the same", path=_name(nodes))
        if self._unpacked(arrays):
            is_packed = any(name in _said(one) for one in arrays for name in PACKING)
            return [_physical(one) if is_packed else unpack(one) for one in arrays]
        items = [
            read[path] if path in read else _shown(array)
            for array, read in zip(arrays, self.read, strict=True)
        ]
        # One view of what is one array.
        views = {id(one): view(one) for one in {id(one): one for one in items}.values()}
        return [views[id(one)] for one in items]

    @staticmethod
    def _unpacked(arrays: Sequence[Array]) -> bool:
        """Whether members differ in how an array is packed."""
        said = {tuple(_text(_said(one).get(name)) for name in PACKING) for one in arrays}
        fills = {repr(one.fill_value) for one in arrays if one.zarr_format == 2}
        return len(said) > 1 or len(fills) > 1

    def _units(self, path: str, nodes: Mapping[str, Array | Group]) -> tuple[str, str] | None:
        """(units, calendar) of an array of times in a member, of bounds those of the coordinate."""
        above, _, name = path.rpartition("/")
        for at, node in nodes.items():
            is_its = at == path or (
                at.rpartition("/")[0] == above and name in [_said(node).get(word) for word in BOUNDS]
            )
            units = _said(node).get("units") if is_its else None
            if is_of_time(units):
                calendar = str(_said(node).get("calendar", "standard"))
                return str(units), SECOND_NAMES.get(calendar, calendar)
        return None

    def _counted(self, path: str, arrays: Sequence[Array]) -> dict[str, Any]:
        """The units and calendar that times of all members are counted in, if they differ; else {}."""
        units = [self._units(path, nodes) for nodes in self.members]
        if units[0] is None or "units" not in arrays[0].attrs:
            return {}
        if all(one == units[0] for one in units):
            calendars = {_said(one).get("calendar", "standard") for one in arrays}
            return {"calendar": units[0][1]} if len(calendars) > 1 else {}
        made, calendar, *_ = self._recount(path, units)
        return {"units": made, "calendar": calendar}

    def _times(self, path: str, arrays: Sequence[Array], units: Sequence[Any]) -> list[View]:
        """Counts of time in one unit: whole numbers where all are, else floats."""
        *_, rules = self._recount(path, units)
        is_plain = all(
            one.dtype.kind in "iu" and not any(name in one.attrs for name in PACKING) for one in arrays
        )
        told = []
        for array, (factor, shift) in zip(arrays, rules, strict=True):
            counts = view(array).astype("i8") if is_plain else unpack(array).astype("f8")
            told.append(counts * factor + shift)
        return told

    def _recount(self, path: str, units: Sequence[Any]) -> tuple[str, str, list[tuple[int, int]]]:
        """(units, calendar, the factor and the shift of each member) by which times are counted alike."""
        where = _name(self.members[0])
        if None in units or len({calendar for _, calendar in units}) > 1:
            number = next(at for at, one in enumerate(units) if one is None or one[1] != units[0][1])
            said = f"{path!r} is counted in {units[number]}, and in {units[0]} in {where}"
            raise MetadataError(f"{said}; expected times of one calendar", path=_name(self.members[number]))
        spans = [_span(one, units[0], path) for one in units]
        sizes = {size for size, _ in spans} | {abs(shift) for _, shift in spans}
        fitting = [(name, n) for name, n in UNITS.items() if not any(size % n for size in sizes)]
        unit, step = fitting[0] if fitting else ("microseconds", 1)
        own, since = units[0][0].split(" since ", 1)
        if not any(size % spans[0][0] for size in sizes):
            unit, step = own, spans[0][0]
        rules = [(size // step, shift // step) for size, shift in spans]
        return f"{unit} since {since}", units[0][1], rules


def _span(units: tuple[str, str], first: tuple[str, str], path: str) -> tuple[int, int]:
    """(microseconds in a unit, microseconds from the moment of the first units to that of these)."""
    zero, one = (
        TimeAxis(path, np.array([count], "i8"), units[0], units[1]).recount(
            f"microseconds since {first[0].split(' since ', 1)[1]}"
        )[0]
        for count in (0, 1)
    )
    return int(one - zero), int(zero)


def _shown(array: Array) -> Array | Source:
    """The array, or the variable of a file that it shows, which is read at once where it is one chunk."""
    source = source_of(array)
    return source if isinstance(source, FileArray) and prod(source.counts) == 1 else array


def _items(array: Array) -> Items:
    """All items of an array, of a file in one read."""
    source = source_of(array)
    return source.read(whole(array.shape)) if is_shown(array) else np.asarray(array[...])


def _name(nodes: Mapping[str, Array | Group]) -> str:
    """The path or URL of a member, as short as possible."""
    place = place_of(nodes[""]).rpartition("://")[2]
    near = os.path.relpath(place) if os.path.isabs(place) else place  # noqa: PTH117
    return place if near.startswith("..") else near


def _physical(array: Array) -> View:
    """The unpacked numbers of an array, floats also where it has nothing to unpack by, as others have."""
    is_plain = not any(name in array.attrs for name in PACKING)
    is_exact = array.dtype.kind == "f" or (array.dtype.kind in "iub" and array.dtype.itemsize < 8)
    return view(array).scale(1.0) if is_plain and is_exact else unpack(array)


def _has_grid(attributes: Mapping[str, Any]) -> bool:
    return any(name.startswith(OF_GRIDS) for name in attributes)


def _said(node: Array | Group) -> Mapping[str, Any]:
    """The attributes of a node, not to be changed: thousands of members are asked for theirs."""
    return node.model.attributes


def _text(value: Any) -> str:
    """A text that differs where values do."""
    if value is None:
        return "null"
    # No text of anything else begins with a quotation mark.
    return f'"{value}' if type(value) is str else json.dumps(value, sort_keys=True, default=repr)


def _is_same(one: Items, other: Items) -> bool:
    """Whether all items are equal, NaN those that are NaN."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM"))


def _fits(dtype: np.dtype[Any], parts: Sequence[View]) -> bool:
    """Whether one data type holds the numbers of all members without loss."""
    if any(one.dtype.kind not in "iuf" for one in parts):
        return False
    wanted = np.result_type(*{one.dtype for one in parts})
    return all(np.can_cast(one.dtype, wanted, "safe") and not _rounds(one.dtype, wanted) for one in parts)


def _rounds(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a float type rounds some integers of another type."""
    return dtype.kind in "iu" and wanted.kind == "f" and dtype.itemsize * 8 > np.finfo(wanted).nmant + 1

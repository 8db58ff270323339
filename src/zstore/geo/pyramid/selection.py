"""Parts of groups and arrays, by the values of their coordinates: dates, numbers, names, places.

A part is a group or an array like any other, whose items are views of the stored ones, so that whatever
reads stored ones reads it; its documents are those of the whole, with other lengths and another corner.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil, floor, pi
from typing import Any, TypeAlias

import numpy as np

from zstore.base.once import once
from zstore.engine.documents import publish_nodes
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.geo.conventions.base import Affine, GeoModel, dimensions_of, group_above
from zstore.geo.conventions.cf import mapping_names
from zstore.geo.conventions.timeaxis import TimeAxis, is_of_time
from zstore.geo.conventions.write import RENDERED, RENDERED_PREFIXES, render_geo
from zstore.geo.pyramid.dataset import Dataset, PlaceLike, node_of, open_levels, other_grids, place_of
from zstore.jobs.chunks import SourceStore
from zstore.jobs.source import Source
from zstore.model.array import ArrayModel
from zstore.model.grid import RegularGrid
from zstore.model.group import GroupModel
from zstore.model.packing import decode
from zstore.nodes.array import Array
from zstore.nodes.group import Group, readable_members
from zstore.nodes.open import open as open_node
from zstore.nodes.open import open_group
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore
from zstore.storage.url import with_storage_options
from zstore.views.view import View, view

# Along a dimension: a run of items, or items one by one.
Items: TypeAlias = "slice | np.ndarray[Any, np.dtype[np.int64]]"

# A date, or the beginning of one: a year, a month, a day, an hour and so on.
DATE = re.compile(r"(-?\d{4,})((?:-\d\d(?:-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)?)?)?)")
# Numbers that differ by less, relative to their size, are one value: float32 rounds in the eighth digit.
ROUNDING = 1e-6
# How many values an error shows.
SHOWN_COUNT = 5
# Between the ends of a range, as in ISO 8601; an end that is left open.
BETWEEN, OPEN = "/", ("", "..")
# Attributes that name other arrays which belong to one.
NAMING = ("coordinates", "bounds", "climatology", "ancillary_variables", "cell_measures", "grid_mapping")
# Rules of what is supposed where nothing says it: which dimensions are rows and columns, that numbers are no
# times, that degrees have a CRS. Who selects items by a coordinate, and not by a place, asks for none of it.
SUPPOSED = ("GZ-43", "MS-09", "OC-09")


@with_storage_options
def select(
    source: Array | Group | Source | PlaceLike,
    values: Mapping[str, Any] | None = None,
    *,
    bbox: Sequence[float] | None = None,
    arrays: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Array | Group:
    """The part of a group or an array at values of its coordinates; items are read when they are used.

    All dimensions stay, and all coordinates along them. `zstore.convert`, `reduce`, `build_pyramid` and the
    like take it as they take what is stored. Of a pyramid, a part on the ground is one of the finest level.

    values  by dimension, a value of its coordinate, a range of values with both ends, or a list of values:
            {"time": "2020-06", "level": 700, "lat": slice(35, 70), "run": ["r1", "r2"]}. The smaller end is
            first, also where a coordinate descends; items stay in their order. Dates are ISO 8601
            texts in any calendar, of which the beginning will do; a text "2020-06/2020-08" is a range too
    bbox    (xmin, ymin, xmax, ymax) in the CRS of the grid; cells that it touches are selected. Longitudes
            may be whole turns from those of the grid, and xmin above xmax: then it crosses 180 degrees
    arrays  names; coordinates and whatever else belongs to them stay, other arrays are left out

    Raises
        NotFoundError: there is no such source, dimension, array or value.
        UnsupportedError: `bbox` crosses the meridian at which the columns of the grid begin and end.
        MetadataError: a dimension has no coordinate, one whose values cannot be compared, or values that do
            not lie in one row along a grid; there is no grid for `bbox`.
    """
    node = node_of(source)
    if isinstance(node, Group):
        return _Part.of(node, values or {}, bbox, arrays).group
    above, name = group_above(node), node.basename
    if not node.path and isinstance(source, str | os.PathLike):
        place, _, name = os.fspath(source).rstrip("/").rpartition("/")
        with suppress(MetadataError, NotFoundError, StoreError):
            above = open_group(place or ".", mode="r")
    if above is None:
        said = "an array alone has no coordinates; expected the group of the array and its coordinates"
        raise MetadataError(said, path=place_of(node))
    part = _Part.of(above, values or {}, bbox, [name, *(arrays or ())]).group[name]
    assert isinstance(part, Array), "an array was selected"
    return part


@dataclass(frozen=True)
class _Part:
    """A group and the selection of a part of it, which groups below take as far as they have the dimensions.

    grids, found  the grids of groups and the items along their dimensions, as far as somebody has asked
    """

    whole: Group
    values: Mapping[str, Any]
    bbox: Sequence[float] | None
    arrays: Sequence[str] | None
    grids: dict[str, Sequence[Dataset]] = field(default_factory=dict)
    found: dict[str, Items] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        group: Group,
        values: Mapping[str, Any],
        bbox: Sequence[float] | None,
        arrays: Sequence[str] | None,
    ) -> _Part:
        if bbox is not None:
            box = list(bbox)
            finest = open_levels(group)[0]
            is_turned = finest.geo.crs is not None and finest.geo.crs.is_geographic
            is_box = len(box) == 4 and box[1] < box[3]
            if not is_box or not (box[0] < box[2] or (is_turned and box[0] > box[2])):
                raise MetadataError(f"bbox is {tuple(box)}; expected (xmin, ymin, xmax, ymax)")
            if finest.level and isinstance(group.get(finest.level), Group):
                return cls(group[finest.level], values, bbox, arrays)  # type: ignore[arg-type]
        return cls(group, values, bbox, arrays)

    @once
    def members(self) -> Mapping[str, Array | Group]:
        """The group and all below it that stay, by their paths."""
        every = {"": self.whole, **dict(readable_members(self.whole, None, is_decoded=True))}
        if self.arrays is None:
            return every
        kept = {path: self._kept(path, every) for path, node in every.items() if isinstance(node, Group)}
        missing = [name for name in self.arrays if not any(name in names for names in kept.values())]
        if missing:
            there = dict.fromkeys(n.basename for n in every.values() if isinstance(n, Array))
            raise NotFoundError(
                f"no array {missing[0]!r}; there are {listed(there)}", path=place_of(self.whole)
            )
        return {
            path: node
            for path, node in every.items()
            if isinstance(node, Group) or path.rpartition("/")[2] in kept[path.rpartition("/")[0]]
        }

    def _kept(self, path: str, every: Mapping[str, Array | Group]) -> set[str]:
        """The names of the arrays of a group that are wanted or belong to those that are."""
        own = {name: every[at] for name in self._names(path, every) if (at := join_key(path, name))}
        return belonging(own, {name for name in self.arrays or () if name in own})

    @staticmethod
    def _names(path: str, every: Mapping[str, Array | Group]) -> Iterator[str]:
        for at, node in every.items():
            above, _, name = at.rpartition("/")
            if at and above == path and isinstance(node, Array):
                yield name

    @once
    def dimensions(self) -> Mapping[str, tuple[str, ...]]:
        """The names of each array's dimensions."""
        return {path: dimensions_of(one) for path, one in self.members.items() if isinstance(one, Array)}

    @property
    def group(self) -> Group:
        """The part as a group."""
        there = dict.fromkeys(filter(None, chain.from_iterable(self.dimensions.values())))
        for name in self.values:
            if name not in there:
                raise NotFoundError(
                    f"no dimension {name!r}; there are {listed(there)}", path=place_of(self.whole)
                )
        models, sources = dict[str, Any](), dict[str, Source]()
        for path, node in self.members.items():
            if isinstance(node, Group):
                models[path] = GroupModel(
                    node.zarr_format, self._bands(dict(node.attrs)), None, node.model.extra
                )
                continue
            part = self._view(path, node)
            grid = node.model.grid
            cut = grid.chunk_shape
            if node.shards is None:
                cut = tuple(max(1, min(chunk, n)) for chunk, n in zip(cut, part.shape, strict=True))
            if cut != grid.chunk_shape or not isinstance(grid, RegularGrid):
                grid = RegularGrid(cut)
            models[path], sources[path] = replace(node.model, shape=part.shape, grid=grid), part
        for path in [path for path, node in self.members.items() if isinstance(node, Group)]:
            self._move(path, models)
        store = MemoryStore()
        publish_nodes(store, "", models)
        said = [f"{name}={_words(value)}" for name, value in self.values.items()]
        said += [] if self.bbox is None else [f"bbox={','.join(map(str, self.bbox))}"]
        said += [] if self.arrays is None else [f"arrays={','.join(self.arrays)}"]
        shown = SourceStore(f"{place_of(self.whole)}[{';'.join(said)}]", store, sources)
        made = open_node(shown, mode="r")
        assert isinstance(made, Group), "the part of a group is one"
        return made

    def _bands(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """A group's attributes, with the selected arrays as its list of bands."""
        bands = attributes.get("bands")
        if self.arrays is not None and isinstance(bands, list) and set(self.arrays) <= set(map(str, bands)):
            attributes["bands"] = [*self.arrays]
        return attributes

    def _view(self, path: str, array: Array) -> View:
        """The items of an array that are selected."""
        above = path.rpartition("/")[0]
        sides = [self._items(above, dim) for dim in self.dimensions[path]]
        runs = tuple(side if isinstance(side, slice) else slice(None) for side in sides)
        part = view(array)[runs]
        if any(not isinstance(side, slice) for side in sides):
            part = part.oindex[tuple(slice(None) if isinstance(side, slice) else side for side in sides)]
        return part

    def _items(self, path: str, dimension: str) -> Items:
        """The items along a dimension of the arrays of a group."""
        where = join_key(path, dimension)
        if where not in self.found:
            self.found[where] = self._find(path, dimension)
        return self.found[where]

    def _find(self, path: str, dimension: str) -> Items:
        geo = self._grid(path, dimension) if self.bbox is not None or dimension in self.values else None
        axis = None if geo is None else geo.dimensions.index(dimension)
        window = None if geo is None or axis is None or self.bbox is None else self._window(geo)[axis]
        if geo is not None and geo.affine is None:
            axis = None  # cells of no place lie in no row
        if dimension not in self.values:
            return window or slice(None)
        stored, said = self._coordinate(path, dimension, geo)
        items = find_items(dimension, stored, said, self.values[dimension], place_of(self.whole))
        run = _as_run(items)
        if axis is None:
            return items if run is None else run
        if run is None:
            raise MetadataError(
                f"{dimension} selects items {listed(items)}, between which others lie; expected a value or a "
                "range of values, as cells of a grid lie in one row",
                path=place_of(self.whole),
            )
        if window is None:
            return run
        both = slice(max(window.start, run.start), min(window.stop, run.stop))
        if both.start >= both.stop:
            raise NotFoundError(f"no item of {dimension!r} is in bbox too", path=place_of(self.whole))
        return both

    def _coordinate(self, path: str, dimension: str, geo: GeoModel | None) -> tuple[Any, Mapping[str, Any]]:
        """(the stored values of the coordinate of a dimension, their attributes).

        It is in the group or one above it; along a grid without one, the centres of cells are it.
        """
        for at in dict.fromkeys([path, *(path.rsplit("/", n)[0] for n in range(1, path.count("/") + 1)), ""]):
            one = self.members.get(join_key(at, dimension))
            if isinstance(one, Array) and one.ndim == 1:
                return np.asarray(one[...]), one.attrs
        centres = None if geo is None or geo.affine is None else geo.affine.coordinates(geo.shape)
        if geo is None or centres is None or dimension not in geo.dimensions:
            said = f"dimension {dimension!r} has no coordinate; expected an array {dimension!r} of its values"
            raise MetadataError(said, path=place_of(self.whole))
        return centres[geo.dimensions.index(dimension)], {}

    def _grids(self, path: str) -> Sequence[Dataset]:
        """The grids of the arrays of a group, the main one first."""
        if path not in self.grids:
            self.grids[path] = ()
            node = self.members[path]
            assert isinstance(node, Group), "grids are those of groups"
            with suppress(MetadataError):
                first = open_levels(node, SUPPOSED)[0]
                # Of a group that only holds a pyramid, the levels have grids.
                self.grids[path] = () if first.level else (first, *other_grids(node, first))
        return self.grids[path]

    def _grid(self, path: str, dimension: str) -> GeoModel | None:
        """The grid of a group that has a dimension; None without one."""
        found = (one.geo for one in self._grids(path) if dimension in one.geo.dimensions)
        return next(found, None)

    def _window(self, geo: GeoModel) -> tuple[slice, slice]:
        """The (y, x) cells of a grid that the box touches."""
        if geo.affine is None:
            raise MetadataError(
                "the grid has no affine, by which cells in bbox could be found; select values of "
                f"{geo.dimensions[0]!r} and {geo.dimensions[1]!r}",
                path=place_of(self.whole),
            )
        west, south, east, north = self._box(geo, geo.affine)
        columns, rows = geo.affine.cell_at(
            np.array([west, east, west, east]), np.array([south, south, north, north])
        )
        sides = []
        for places, length in zip((rows, columns), geo.shape, strict=True):
            start, stop = floor(min(places) + ROUNDING), ceil(max(places) - ROUNDING)
            sides.append(slice(max(0, start), min(length, stop)))
        if any(side.start >= side.stop for side in sides):
            code = "" if geo.crs is None or geo.crs.code is None else f" ({geo.crs.code or 'its CRS'})"
            bounds, box = (
                ", ".join(f"{value:g}" for value in values)
                for values in (geo.affine.bounds(geo.shape), self.bbox or ())
            )
            said = f"bbox is {box}, where there is no cell"
            raise NotFoundError(f"{said}; there are {bounds}{code}", path=place_of(self.whole))
        return sides[0], sides[1]

    def _box(self, geo: GeoModel, affine: Affine) -> tuple[float, float, float, float]:
        """The (west, south, east, north) of the box, in degrees moved by whole turns to the grid.

        Raises
            UnsupportedError: both its western and its eastern part lie on the grid, at the other's side.
        """
        west, south, east, north = map(float, self.bbox or ())
        if geo.crs is None or not geo.crs.is_geographic:
            return west, south, east, north
        turn = 2 * pi / geo.crs.radians_per_unit
        east += turn if east < west else 0.0
        left, _, right, _ = affine.bounds(geo.shape)
        first = ceil((left - east) / turn + ROUNDING)
        places = [n * turn for n in range(first, first + 3) if west + n * turn < right - ROUNDING * turn]
        if east - west >= turn * (1 - ROUNDING):
            return left, south, right, north
        if len(places) > 1:
            middle, end = right - places[1], left - places[0]
            parts = f"{west:g},{south:g},{middle:g},{north:g} and {end:g},{south:g},{east:g},{north:g}"
            raise UnsupportedError(
                f"bbox crosses the meridian at which the grid begins and ends, from {left:g} to {right:g}; "
                f"expected one of its parts, {parts}",
                path=place_of(self.whole),
            )
        moved = places[0] if places else 0.0
        return west + moved, south, east + moved, north

    def _move(self, path: str, models: dict[str, ArrayModel | GroupModel]) -> None:
        """Write the part's position into the documents of a group and its arrays, where they state one."""
        grids = self._grids(path) if self.bbox is not None or self.values else ()
        for number, dataset in enumerate(grids):
            geo = dataset.geo
            if geo.affine is None:
                continue
            y, x = (self._items(path, name) for name in geo.dimensions)
            assert isinstance(y, slice) and isinstance(x, slice), "cells are selected in runs"
            rows, columns = (range(*side.indices(n)) for side, n in zip((y, x), geo.shape, strict=True))
            if (len(rows), len(columns)) == geo.shape:
                continue
            affine = geo.affine.moved(columns.start, rows.start)
            moved = replace(geo, affine=affine, shape=(len(rows), len(columns)), levels=())
            rendered = render_geo(moved, self.whole.zarr_format)[0]
            others = dict.fromkeys(chain.from_iterable(one.arrays for one in grids if one is not dataset))
            for at in [path, *(join_key(path, name) for name in self._names(path, self.members))]:
                name, model = at[len(path) :].lstrip("/"), models[at]
                if name in others or (number and name not in dataset.arrays):
                    continue
                own = {**rendered[""]["attributes"], **rendered.get(name, {"attributes": {}})["attributes"]}
                models[at] = model.with_attributes(_moved(model.attributes, own))


def belonging(arrays: Mapping[str, Any], wanted: Iterable[str]) -> set[str]:
    """The names of wanted arrays of a group and of all that belong to them: coordinates, bounds, mappings."""
    kept, new = set[str](), {*wanted}
    while new:
        kept |= new
        related = set[str]()
        for array in map(arrays.__getitem__, new):
            related.update(dimensions_of(array))
            related |= {name for key in NAMING for name in named_in(array, key)}
        new = {name for name in related if name in arrays} - kept
    return kept


def named_in(array: Array, key: str) -> list[str]:
    """The names of other arrays in an attribute."""
    said = array.attrs.get(key)
    if key == "grid_mapping":
        return mapping_names(said)
    return [word.rstrip(":") for word in said.split()] if isinstance(said, str) else []


def _moved(held: Mapping[str, Any], rendered: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, with the new position in those that state one."""
    made = dict(held)
    for name in held:
        if name == "GeoTransform" or name.startswith(RENDERED_PREFIXES) or name in ("multiscales",):
            if name in rendered:
                made[name] = rendered[name]
            elif name in RENDERED or name.startswith("spatial:"):
                del made[name]
    return made


def _words(value: Any) -> str:
    if isinstance(value, slice):
        return f"{_words(value.start)}{BETWEEN}{_words(value.stop)}"
    return (
        "|".join(map(str, value))
        if isinstance(value, list | tuple)
        else OPEN[1]
        if value is None
        else str(value)
    )


def _as_run(items: np.ndarray[Any, np.dtype[np.int64]]) -> slice | None:
    """Items that follow each other as a slice; None for others."""
    first, last = int(items[0]), int(items[-1])
    is_run = last - first + 1 == len(items) and bool((np.diff(items) == 1).all())
    return slice(first, last + 1) if is_run else None


def find_items(
    dimension: str, stored: Any, attributes: Mapping[str, Any], wanted: Any, where: str
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The indices of the items of a coordinate with a value, in a range, or with one of several values.

    Raises
        NotFoundError: no item has it.
        MetadataError: the value cannot be compared with the coordinate's.
    """
    kind = _values_of(dimension, stored, attributes)
    chosen = np.zeros(len(stored), bool)
    is_one = isinstance(wanted, str | bytes | slice) or not np.ndim(wanted)
    for one in [wanted] if is_one else list(wanted):
        begin, end, is_range = one, one, isinstance(one, slice)
        if isinstance(one, slice):
            if one.step is not None:
                said = f"{dimension} has a range with step {one.step!r}; expected one of two ends"
                raise MetadataError(said, path=where)
            begin, end = one.start, one.stop
        elif isinstance(one, str) and BETWEEN in one and not isinstance(kind, _NameValues):
            (begin, _, end), is_range = one.partition(BETWEEN), True
        if is_range and not isinstance(kind, _NameValues):
            begin, end = (None if edge in OPEN else edge for edge in (begin, end))
        try:
            some = kind.between(begin, end)
        except MetadataError as error:
            raise error.locate(path=where) from None
        if not some.any():
            said = f"is {one!r}" if begin is end else f"lies in {_words(one)}"
            if begin is not end and None not in (begin, end) and kind.between(end, begin).any():
                said += f" (some lie in {_words(slice(end, begin))})"
            shown = listed(kind.shown())
            raise NotFoundError(f"no item of {dimension!r} {said}; there are {shown}", path=where)
        chosen |= some
    if not chosen.any():
        raise NotFoundError(f"no item of {dimension!r} is in {wanted!r}", path=where)
    return np.flatnonzero(chosen)


def shown_values(coordinate: Array) -> list[str]:
    """The values of a coordinate as texts."""
    return [*map(str, _values_of(coordinate.basename, np.asarray(coordinate[...]), coordinate.attrs).shown())]


def _values_of(dimension: str, stored: Any, attributes: Mapping[str, Any]) -> _CoordinateValues:
    """The values of a coordinate, in the form in which they are compared."""
    units = attributes.get("units")
    if stored.dtype.kind == "M" or is_of_time(units):
        return _DateValues.of(dimension, stored, attributes)
    if stored.dtype.kind in "iuf":
        return _NumberValues(dimension, decode(stored, attributes))
    texts = [one.decode() if isinstance(one, bytes) else str(one) for one in stored.tolist()]
    return _NameValues(dimension, np.array(texts, object))


@dataclass(frozen=True)
class _CoordinateValues(ABC):
    """The values of a coordinate along a dimension."""

    dimension: str
    values: Any

    def shown(self) -> list[Any]:
        """The values as a caller may name them."""
        return list(self.values.tolist())

    @abstractmethod
    def between(self, begin: Any, end: Any) -> Any:
        """Whether each value lies between two, or from or to one, if the other is None."""


class _NameValues(_CoordinateValues):
    """Names."""

    def between(self, begin: Any, end: Any) -> Any:
        if begin is end and begin is not None:
            return self.values == str(begin)
        # Names have the order in which they lie.
        places = [
            0 if begin is None else self._place(begin),
            len(self.values) - 1 if end is None else self._place(end),
        ]
        at = np.arange(len(self.values))
        return (at >= places[0]) & (at <= places[1])

    def _place(self, name: Any) -> int:
        found = np.flatnonzero(self.values == str(name))
        if not len(found):
            raise MetadataError(f"{self.dimension} is {name!r}; expected one of {listed(self.shown())}")
        return int(found[0])


class _NumberValues(_CoordinateValues):
    """Numbers, without packing."""

    def between(self, begin: Any, end: Any) -> Any:
        low, high = (None if edge is None else self._number(edge) for edge in (begin, end))
        values = self.values
        chosen = np.ones(len(values), bool)
        if low is not None:
            chosen &= (values >= low) | np.isclose(values, low, rtol=ROUNDING, atol=0.0)
        if high is not None:
            chosen &= (values <= high) | np.isclose(values, high, rtol=ROUNDING, atol=0.0)
        return chosen

    def _number(self, said: Any) -> float:
        try:
            return float(said)
        except (TypeError, ValueError):
            known = self.values.tolist() or [1, 2]
            expected = f"a number such as {known[0]}, or a range like {min(known)}/{max(known)}"
            raise MetadataError(f"{self.dimension} is {said!r}; expected {expected}") from None


class _DateValues(_CoordinateValues):
    """Dates, as texts; "" for a missing one."""

    @classmethod
    def of(cls, dimension: str, stored: Any, attributes: Mapping[str, Any]) -> _DateValues:
        dates = TimeAxis.stored(dimension, stored, attributes).dates()
        return cls(dimension, np.array([*map(_date_text, dates)], object))

    def shown(self) -> list[Any]:
        return [text.removesuffix(".000000").removesuffix("T00:00:00") for text in self.values]

    def between(self, begin: Any, end: Any) -> Any:
        low, high = (None if edge is None else self._parse(edge) for edge in (begin, end))
        chosen = []
        for text in self.values:
            match = DATE.fullmatch(text)
            is_in = match is not None
            if match is not None:
                year, rest = int(match[1]), match[2]
                is_in = (low is None or (year, rest[: len(low[1])]) >= low) and (
                    high is None or (year, rest[: len(high[1])]) <= high
                )
            chosen.append(is_in)
        return np.array(chosen, bool)

    def _parse(self, said: Any) -> tuple[int, str]:
        match = DATE.fullmatch(str(said))
        if match is None:
            expected = "expected a date such as 2020-06 or 2020-06-01T12"
            raise MetadataError(f"{self.dimension} is {said!r}; {expected}")
        return int(match[1]), match[2].replace(" ", "T")


def _date_text(date: Any) -> str:
    if date is None or str(date) == "NaT":
        return ""
    if isinstance(date, np.datetime64):
        return str(date).replace(" ", "T")
    return str(date.isoformat(timespec="microseconds"))


def listed(values: Iterable[Any]) -> str:
    """The values in words for an error; of many, the first and the last."""
    texts = [str(value) for value in values]
    if len(texts) > SHOWN_COUNT:
        return f"{', '.join(texts[: SHOWN_COUNT - 1])}, ... {texts[-1]}"
    return ", ".join(texts) or "none"

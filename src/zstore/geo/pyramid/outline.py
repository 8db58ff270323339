"""The group that a reduction of a group makes: coordinates, bounds and attributes around the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.base.once import once
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.geo.conventions.base import dimensions_of, plain_name
from zstore.geo.conventions.cf import DEGREES, NAMES
from zstore.geo.conventions.content import render_variable
from zstore.geo.conventions.periods import Periods, interval_of, periods_of
from zstore.geo.conventions.timeaxis import TimeAxis, is_of_time
from zstore.geo.pyramid.carried import CELL_METHODS, Meant, carried_of
from zstore.geo.pyramid.dataset import join_attributes, open_dataset, place_of
from zstore.geo.pyramid.selection import NAMING, belonging, listed, named_in
from zstore.model.packing import FILLS, SCALING, decode
from zstore.nodes.array import Array
from zstore.nodes.group import Group, readable_members

Items = np.ndarray[Any, Any]

# Attributes whose names are those of arrays that belong to data, and are no data themselves.
BESIDE = tuple(name for name in NAMING if name != "ancillary_variables")
# Attributes of a coordinate of time that say how its numbers are meant, and are written anew.
COUNTED = frozenset((
    "units", "calendar", "bounds", "climatology", *FILLS, *SCALING,
    "valid_min", "valid_max", "valid_range", "actual_range", "_ARRAY_DIMENSIONS",
))  # fmt: skip


def outline_of(
    node: Array | Group,
    group: Group | None,
    axis: Any,
    *,
    every: str | None,
    by: str | None,
    weights: Any,
    rolling: Any = None,
) -> _Outline:
    """The outline of the reduction of a group, or of an array with its coordinates.

    group    of the array; None: it has none
    axis     the names (of an array, also numbers) of the dimensions that are reduced; None: of periods the
             dimension of time, else all
    every, by, weights
             as of `zstore.reduce`
    rolling  the windows (`zstore.jobs.reduction.rolling`) along `axis`, which is not reduced

    Raises
        MetadataError: no such dimension or period, no coordinate of time, no weights; it is a pyramid.
        UnsupportedError: cftime is not installed, and the calendar needs it.
    """
    if group is None:
        said = "an array opened alone has no coordinates; expected its address, its group, or above=True"
        raise MetadataError(said, path=place_of(node))
    if isinstance(node, Group) and "multiscales" in node.attrs:
        finest = open_dataset(node).level
        said = f"a pyramid is not reduced as a whole; expected one of its levels, {finest!r} for the finest"
        raise UnsupportedError(said, path=place_of(node))
    if every is not None and by is not None:
        raise MetadataError(f"every is {every!r} and by is {by!r}; expected one of them")
    if isinstance(node, Group) and not (weights is None or isinstance(weights, str)):
        raise MetadataError("weights of a group are an array; expected latitude, area, or an array's name")
    members = [*readable_members(group, is_decoded=True)]
    own = {path: one for path, one in members if isinstance(one, Array)}
    if isinstance(node, Array):
        own[node.basename] = node
        own = {name: own[name] for name in sorted(belonging(own, {node.basename}))}
    beside = {name for one in own.values() for key in BESIDE for name in named_in(one, key)}
    beside |= {name for name, one in own.items() if name in dimensions_of(one) or not one.ndim}
    data = [node.basename] if isinstance(node, Array) else [name for name in own if name not in beside]
    has_periods = every is not None or by is not None
    names = list(dict.fromkeys(dim for name in data for dim in dimensions_of(own[name])))
    if axis is not None:
        names = [_dim(one, node, names) for one in (axis if isinstance(axis, list | tuple) else [axis])]
    periods = None
    if has_periods:
        times = [dim for dim in names if dim in own and is_time(own[dim])]
        if len(times) != 1:
            said = f"there are {len(times)} coordinates of time along {listed(names)}; expected one"
            raise MetadataError(said, path=place_of(group))
        periods = periods_of(time_axis(own[times[0]]), every, by)
        names = times + ([] if axis is None else [dim for dim in names if dim not in times])
    made = _Outline(group, own, tuple(data), tuple(names), periods, weights, rolling)
    if not data:
        groups = [path for path, one in members if isinstance(one, Group)]
        there = f"; expected a group that does, such as {groups[0]!r} in it" if groups else ""
        raise NotFoundError(f"group holds no arrays of data to reduce{there}", path=place_of(group))
    if not made.arrays:
        there = listed(f"{name}({', '.join(dimensions_of(own[name]))})" for name in data)
        said = f"no array has a dimension of {listed(names)}; there are {there}"
        raise NotFoundError(said, path=place_of(group))
    return made


@dataclass(frozen=True)
class _Outline:
    """The arrays of a group that are reduced, and all that is around the results.

    whole    the group
    own      its arrays by name, without those that nobody asks for
    data     the names of arrays that are no coordinates and do not belong to others
    reduced  the names of the dimensions; of periods, that of time is first
    rolling  windows along the only one of them, which the results have
    """

    whole: Group
    own: Mapping[str, Array]
    data: tuple[str, ...]
    reduced: tuple[str, ...]
    periods: Periods | None
    weighing: Any
    rolling: Any

    @property
    def url(self) -> str:
        return place_of(self.whole)

    @once
    def arrays(self) -> dict[str, Array]:
        return {name: self.own[name] for name in self.data if self.axes(name)}

    @once
    def kept(self) -> dict[str, Array]:
        dropped = {*self.arrays, *self.new}
        if self._loses_ground:
            dropped |= {name for one in self.own.values() for name in named_in(one, "grid_mapping")}
        return {
            name: one
            for name, one in self.own.items()
            if name not in dropped and (self.rolling or not {*dimensions_of(one)}.intersection(self.reduced))
        }

    @once
    def new(self) -> dict[str, dict[str, Any]]:
        periods = self.periods
        if self.rolling is not None:
            return self._rolled_coordinate()
        if periods is None:
            return {}
        name = periods.axis.name
        numbers, units, calendar = periods.axis.counted(periods.bounds)
        counted = {"units": units, "calendar": calendar}
        word = "bounds" if periods.by is None else "climatology"
        edges = f"{name}_bnds" if periods.by is None else "climatology_bnds"
        kept = {key: value for key, value in self.own[name].attrs.items() if key not in COUNTED}
        begins = {"standard_name": "time", "axis": "T", **kept, **counted, word: edges}
        made = {
            name: {"data": numbers[:, 0], "attributes": begins, "dimension_names": [name]},
            edges: {"data": numbers, "attributes": counted, "dimension_names": [name, self._two]},
        }
        if periods.by is not None and periods.labels is not None and periods.by not in self.own:
            labels, said = periods.labels, {"long_name": f"{periods.by} of all years"}
            made[periods.by] = {"data": labels, "attributes": said, "dimension_names": [name]}
        return made

    @property
    def _two(self) -> str:
        """A name for the dimension of bounds, which no array has with another length."""
        sizes = {
            dim: n for one in self.own.values() for dim, n in zip(dimensions_of(one), one.shape, strict=True)
        }
        return next(name for name in ("bnds", "nv", "bounds_of_time") if sizes.get(name, 2) == 2)

    def _rolled_coordinate(self) -> dict[str, dict[str, Any]]:
        """The coordinate that windows lie along, with bounds that say where each begins and ends.

        Of a coordinate without bounds these are its own values: windows go from item to item.
        """
        [name] = self.reduced
        own = self.own.get(name)
        if own is None or own.ndim != 1 or own.dtype.kind not in "iufM" or "climatology" in own.attrs:
            return {}
        values = np.asarray(own[...])
        low = high = values
        [edges] = named_in(own, "bounds")[:1] or [f"{name}_bnds"]
        bounds = self.own.get(edges)
        if bounds is not None and bounds.shape == (len(values), 2) and not {*SCALING}.intersection(own.attrs):
            low, high = np.asarray(bounds[...]).T
        choose: Any = (np.min, np.max) if len(values) < 2 or values[0] <= values[-1] else (np.max, np.min)
        spans = [*zip(*self.rolling.spans(len(values)), strict=True)]
        sides = [[pick(side[a:b]) for a, b in spans] for pick, side in zip(choose, (low, high), strict=True)]
        pairs = np.array(sides, low.dtype).reshape(2, -1).T
        said = {key: value for key, value in own.attrs.items() if key != "_ARRAY_DIMENSIONS"}
        counted = {key: said[key] for key in ("units", "calendar", *SCALING) if key in said}
        return {
            name: {"data": values, "attributes": {**said, "bounds": edges}, "dimension_names": [name]},
            edges: {"data": pairs, "attributes": counted, "dimension_names": [name, self._two]},
        }

    @once
    def attributes(self) -> Mapping[str, Any]:
        held = dict(self.whole.attrs)
        return join_attributes(held, {}) if self._loses_ground else held

    @once
    def _meant(self) -> dict[str, Meant]:
        return {name: carried_of(one) for name, one in self.arrays.items()}

    @once
    def _loses_ground(self) -> bool:
        """Whether a dimension of a grid is reduced, so that results have no position on the ground."""
        if self.rolling is not None:
            return False
        grounds = ((one, one.ground) for one in self._meant.values())
        axes = {one.named[axis] for one, ground in grounds if ground is not None for axis in ground.axes}
        # The rows of a section of time and latitude are moments.
        return any(dim in axes and not (dim in self.own and is_time(self.own[dim])) for dim in self.reduced)

    def axes(self, name: str) -> list[int]:
        dims = dimensions_of(self.own[name])
        return [dims.index(dim) for dim in self.reduced if dim in dims]

    def labels(self, name: str) -> Items | None:
        if self.periods is None or self.periods.axis.name not in dimensions_of(self.own[name]):
            return None
        codes = self.periods.codes.reshape(-1, *[1] * (len(self.axes(name)) - 1))
        return np.ma.masked_array(codes, codes < 0)

    def weights(self, name: str) -> Items | None:
        if self.weighing is None:
            return None
        dims = dimensions_of(self.own[name])
        if not isinstance(self.weighing, str):
            items, axes = np.asarray(self.weighing, np.float64), self.axes(name)
            along: Sequence[str] = [dims[axis] for axis in axes[len(axes) - items.ndim :]]
        else:
            items, along = self._weights(name)
        lengths = [n for dim, n in zip(dims, self.own[name].shape, strict=True) if dim in along]
        order = sorted(range(len(along)), key=lambda at: dims.index(along[at]) if along[at] in dims else -1)
        items = items.transpose(order) if len(order) == items.ndim else items
        if list(items.shape) != lengths:
            said = f"weights of {name!r} have the shape {items.shape} along {listed(along)}"
            raise MetadataError(f"{said}; expected {tuple(lengths)} along its dimensions", path=self.url)
        return items.reshape(
            [n if dim in along else 1 for dim, n in zip(dims, self.own[name].shape, strict=True)]
        )

    def _weights(self, name: str) -> tuple[Items, Sequence[str]]:
        """(the weights of an array's items, the names of their dimensions)."""
        if self.weighing == "latitude":
            degrees, along = self._latitudes(name)
            return np.maximum(np.cos(np.radians(degrees)), 0), along
        if self.weighing == "area":
            return self._areas(name)
        return self._named(self.weighing)

    def _named(self, name: str) -> tuple[Items, Sequence[str]]:
        there = self.whole.get(name)
        if not isinstance(there, Array) or there.dtype.kind not in "biuf":
            said = f"weights are {name!r}; expected latitude, area, or the name of an array of numbers"
            raise MetadataError(said, path=self.url)
        return decode(np.asarray(there[...]), there.attrs).astype(np.float64), dimensions_of(there)

    def _latitudes(self, name: str) -> tuple[Items, Sequence[str]]:
        """(the latitudes of an array's items in degrees, the names of their dimensions)."""
        words = [*dimensions_of(self.own[name]), *named_in(self.own[name], "coordinates")]
        for word in words:
            one = self.own.get(word)
            if one is not None and _is_degrees(word, one, "Y"):
                return self._named(word)
        edges = self._edges(name)
        if edges is None:
            said = f"{name!r} has no coordinate of latitude; expected one, or the name of an array of weights"
            raise MetadataError(said, path=self.url)
        rows, along = edges
        return (rows[:-1] + rows[1:]) / 2, [along]

    def _areas(self, name: str) -> tuple[Items, Sequence[str]]:
        """(areas of the cells of an array, the names of their dimensions), in any unit."""
        measures = named_in(self.own[name], "cell_measures")
        pairs = dict(zip(measures[::2], measures[1::2], strict=False))
        if "area" in pairs:
            return self._named(pairs["area"])
        by_dim = {dim: self._bounds(dim) for dim in dimensions_of(self.own[name])}
        y, x = (
            next((dim for dim in by_dim if dim in self.own and _is_degrees(dim, self.own[dim], axis)), "")
            for axis in "YX"
        )
        if y and x and by_dim[y] is not None and by_dim[x] is not None:
            sines, degrees = np.sin(np.radians(by_dim[y])), by_dim[x]
            areas = np.abs(np.outer(sines[:, 1] - sines[:, 0], degrees[:, 1] - degrees[:, 0]))
            dims = dimensions_of(self.own[name])
            return (areas, [y, x]) if dims.index(y) < dims.index(x) else (areas.T, [x, y])
        edges = self._edges(name)
        if edges is None:
            said = (
                f"the area of cells of {name!r} is not known; expected cell_measures, bounds of longitudes "
                "and latitudes, an even grid of them, or the name of an array of weights"
            )
            raise MetadataError(said, path=self.url)
        sines = np.sin(np.radians(np.clip(edges[0], -90, 90)))
        return np.abs(np.diff(sines)), [edges[1]]

    def _bounds(self, dim: str) -> Any:
        """The bounds of the coordinate of a dimension; None without."""
        names = named_in(self.own[dim], "bounds") if dim in self.own else []
        return self._named(names[0])[0] if names and names[0] in self.own else None

    def _edges(self, name: str) -> tuple[Items, str] | None:
        """(edges of rows in degrees, the name of their dimension) on a grid of longitudes and latitudes."""
        meant = self._meant[name]
        ground = meant.ground
        if ground is None or ground.affine is None or ground.affine.is_rotated:
            return None
        if ground.crs is not None and not ground.crs.is_geographic:
            return None
        y, _ = ground.axes
        rows = ground.affine.f + ground.affine.e * np.arange(meant.shape[y] + 1)
        turn = 1.0 if ground.crs is None else np.degrees(ground.crs.radians_per_unit)
        return rows * turn, meant.named[y]

    def attributes_of(self, name: str, *, is_kept: bool, **facts: Any) -> dict[str, Any]:
        held = dict(self.own[name].attrs)
        if is_kept:
            attributes = {key: value for key, value in held.items() if key != "_ARRAY_DIMENSIONS"}
        else:
            attributes = self._reduced(name, **facts)
            if "grid_mapping" in held:
                attributes["grid_mapping"] = held["grid_mapping"]
        there = {*self.kept, *self.new, *self.arrays}
        for key in (*NAMING, "grid_mapping"):
            names = named_in(self.own[name], key)
            if (
                key in attributes
                and not there.issuperset(names)
                and key not in ("cell_measures", "coordinates")
            ):
                del attributes[key]
        words = [word for word in named_in(self.own[name], "coordinates") if word in there]
        periods = self.periods
        if not is_kept and periods is not None and periods.by in self.new and self.labels(name) is not None:
            words.append(str(periods.by))
        attributes.pop("coordinates", None)
        return {**attributes, **({"coordinates": " ".join(words)} if words else {})}

    def _reduced(
        self, name: str, *, left: Sequence[int], method: str, dtype: Any, windows: Any, **facts: Any
    ) -> Any:
        """The attributes of a result, apart from names of other arrays."""
        words, periods, dim = None, self.periods, self.reduced[0]
        if self.rolling is not None and method in CELL_METHODS:
            own = self.own.get(dim)
            step = None if own is None or not is_time(own) else interval_of(time_axis(own))
            words = self.rolling.words(dim, CELL_METHODS[method], step)
        if periods is not None and self.labels(name) is not None and method in CELL_METHODS:
            others = [dim for dim in self.reduced[1:] if dim in dimensions_of(self.own[name])]
            along = [f"{' '.join(f'{dim}:' for dim in others)} {CELL_METHODS[method]}"] if others else []
            words = " ".join([*along, f"{periods.axis.name}: {periods.method(CELL_METHODS[method])}"])
        variable = self._meant[name].reduced_variable(
            self.axes(name), method, dtype, words=words, **facts
        )  # fmt: skip
        return dict(render_variable(variable, 3))


def _dim(said: Any, node: Array | Group, names: Sequence[str]) -> str:
    """The name of a dimension, of an array also by its number."""
    if isinstance(said, int) and isinstance(node, Array) and -node.ndim <= said < node.ndim:
        said = dimensions_of(node)[said]
    if said not in names or not said:
        raise MetadataError(f"axis {said!r}; expected one of {listed(names)}", path=place_of(node))
    return str(said)


def is_time(array: Array) -> bool:
    """Whether an array is a coordinate of time."""
    return array.ndim == 1 and (array.dtype.kind == "M" or is_of_time(array.attrs.get("units")))


def time_axis(array: Array) -> TimeAxis:
    """The moments of a coordinate of time."""
    return TimeAxis.stored(plain_name(array.basename), np.asarray(array[...]), array.attrs)


def _is_degrees(name: str, array: Array, axis: str) -> bool:
    """Whether an array is a coordinate of latitude ("Y") or longitude ("X"), by attributes, else by name."""
    standard_name, units = array.attrs.get("standard_name"), array.attrs.get("units")
    if standard_name is not None:
        return bool(standard_name == {"Y": "latitude", "X": "longitude"}[axis])
    return units in DEGREES[axis] or (units in (None, "degrees", "degree") and name.lower() in NAMES[axis])

"""The meaning that views carry: georeference, nodata, packing, units, bands, and coordinates.

A fact that does not hold for the result of a step is left out, and never made up. Grids move with
selections; where the cells of a result lie on no grid, its coordinates still say where each one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from zstore.base.once import once
from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, Band, GeoModel, Variable, dimensions_of, group_above
from zstore.geo.conventions.cf import CRS_VARIABLE, coordinate_attributes, mapping_names
from zstore.geo.conventions.content import BAND_NAMES, parse_variable, render_fill, render_variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.timeaxis import GREGORIAN, TimeAxis, is_of_time
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.dataset import open_dataset
from zstore.geo.pyramid.levels import add_auxiliaries
from zstore.indexing.transform import IndexTransform
from zstore.jobs.chunks import as_array
from zstore.jobs.source import Source
from zstore.model.array import ZarrFormat
from zstore.model.document import check_attributes, spelled
from zstore.model.grid import RegularGrid
from zstore.model.packing import decode
from zstore.nodes.array import Array
from zstore.nodes.open import create_group
from zstore.storage.memory import MemoryStore
from zstore.views.carried import Carried
from zstore.views.functions import ACROSS
from zstore.views.view import View, concat, view

Shape = tuple[int, ...]

# In cells: how far corners may lie from each other and be those of one grid.
SLACK = 1e-6
# Attributes that name arrays which are not carried.
NAMING = frozenset(("coordinates", "bounds", "climatology", "ancillary_variables", "cell_measures"))
# Functions whose results have the units that all of their inputs have, and no packing.
SAME_UNITS = frozenset((
    "absolute", "add", "ceil", "clip", "fabs", "floor", "fmax", "fmin", "maximum", "minimum", "nan_to_num",
    "negative", "positive", "rint", "round", "subtract", "trunc",
))  # fmt: skip


@dataclass(frozen=True)
class Ground:
    """The grid of the Earth that two axes of the items are.

    axes  the axis of rows, and that of columns
    """

    crs: Crs | None
    affine: Affine | None
    axes: tuple[int, int]

    def moved(self, transform: IndexTransform) -> Ground | None:
        """The grid of a selection; None where its cells are on no grid."""
        starts, steps, axes = list[float](), list[int](), list[int]()
        for axis in self.axes:
            place = transform.positions[axis]
            if not isinstance(place, range):
                return None
            step = place.step if len(place) > 1 else 1
            # A cell of the selection has the centre of the cell that it is.
            starts.append(place.start + 0.5 - step / 2)
            steps.append(step)
            axes += transform.axes[axis]
        affine = self.affine
        if affine is not None:
            affine = affine.moved(starts[1], starts[0]).scaled((steps[0], steps[1]))
        return Ground(self.crs, affine, (axes[0], axes[1])) if axes[0] != axes[1] else None

    def shifted(self, offset: Sequence[int]) -> Ground:
        """The same cells, counted from a position among them."""
        y, x = (offset[axis] for axis in self.axes)
        return self if self.affine is None else replace(self, affine=self.affine.moved(x, y))

    def is_same(self, other: Ground | None, shape: Shape) -> bool:
        """Whether another grid has the same cells, as far as an array of this shape reaches."""
        if other is None or self.axes != other.axes or (self.crs is None) != (other.crs is None):
            return False
        if self.crs is not None and other.crs is not None and not self.crs.is_same(other.crs):
            return False
        if self.affine is None or other.affine is None:
            return self.affine is other.affine
        rows, columns = (shape[axis] for axis in self.axes)
        places = np.array([0, columns, 0, columns]), np.array([0, 0, rows, rows])
        found = self.affine.cell_at(*other.affine.at(*places))
        return all(float(np.abs(a - b).max()) <= SLACK for a, b in zip(found, places, strict=True))


@dataclass(frozen=True)
class Coordinate:
    """Items that say where those of a view are, along some of its axes; none for a single moment or place."""

    items: View
    axes: tuple[int, ...]
    attributes: Mapping[str, Any]

    def moved(self, transform: IndexTransform) -> Coordinate:
        """The coordinate of a selection."""
        own = [transform.axes[axis] for axis in self.axes]
        axes = tuple(sorted({*chain.from_iterable(own)}))
        moved = IndexTransform(
            tuple(transform.shape[axis] for axis in axes),
            tuple(tuple(axes.index(axis) for axis in one) for one in own),
            tuple(transform.positions[axis] for axis in self.axes),
        )
        return replace(self, items=self.items.selected(moved), axes=axes)

    def is_same(self, other: Coordinate | None) -> bool:
        """Whether another coordinate has the same items, in the same units."""
        if other is None or (self.axes, self.items.shape) != (other.axes, other.items.shape):
            return False
        if dict(self.attributes) != dict(other.attributes):
            return False
        one, two = self.items, other.items
        return one.url == two.url or np.array_equal(one.read(), two.read(), equal_nan=one.dtype.kind in "fc")


@dataclass(frozen=True)
class Meant(Carried):
    """The meaning of items: a variable, the grid that it lies on, and its coordinates.

    shape       of the items
    dimensions  the names of all axes; "" for one without
    variable    nodata, packing, units, bands and attributes; its `dimensions` do not count
    is_bare     whether nothing describes the items, which then are whatever they are joined to
    """

    name: str
    shape: Shape
    dimensions: tuple[str, ...]
    variable: Variable
    ground: Ground | None = None
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    is_bare: bool = False

    # As an array alone, and in a group

    @property
    def dimension_names(self) -> Sequence[str | None] | None:
        if self.ground is not None or self.coordinates:
            return self.named
        return [name or None for name in self.dimensions] if any(self.dimensions) else None

    @property
    def fill_value(self) -> Any:
        nodata = self.variable.nodata
        return None if nodata is None else render_fill(self.variable, 3)

    @once
    def attributes(self) -> Mapping[str, Any]:
        documents = self._documents(3)
        # An array alone has no coordinates and no variable of the CRS beside it.
        beside = ("grid_mapping", "coordinates")
        own = {key: value for key, value in documents[self.name]["attributes"].items() if key not in beside}
        return {**documents.get("", {}).get("attributes", {}), **own}

    @once
    def named(self) -> tuple[str, ...]:
        """A name for each axis, made up for those that have none."""
        return tuple(name or f"dim_{axis}" for axis, name in enumerate(self.dimensions))

    def model(self) -> GeoModel | None:
        """The model of the items as a raster; None where they lie on no grid."""
        if self.ground is None:
            return None
        y, x = self.ground.axes
        return GeoModel(
            self.ground.crs,
            self.ground.affine,
            (self.shape[y], self.shape[x]),
            (self.named[y], self.named[x]),
            variables={self.name: replace(self.variable, dimensions=self.named)},
        )

    def _documents(self, zarr_format: int) -> Any:
        model = self.model()
        if model is not None:
            return render_geo(model, zarr_format)[0]
        attributes = render_variable(self.variable, zarr_format)
        return {self.name: {"attributes": attributes}}

    def documents(self, view: Any, zarr_format: ZarrFormat) -> tuple[MemoryStore, str] | None:
        if (self.ground is None and not self.coordinates) or zarr_format == 1:
            return None
        store, documents = MemoryStore(), self._documents(zarr_format)
        attributes = documents.get("", {}).get("attributes", {})
        group: Any = create_group(store, attributes=attributes, zarr_format=zarr_format)
        if self.ground is not None:
            add_auxiliaries(group, documents, "")
        single = []
        for name, one in self.coordinates.items():
            if name in group or name == self.name:
                continue
            group.create_array(
                name,
                data=one.items.read(),
                attributes=check_attributes(spelled(one.attributes), path=view.url),
                dimension_names=[self.named[axis] for axis in one.axes],
            )
            if one.axes != (self.dimensions.index(name) if name in self.dimensions else -1,):
                single.append(name)
        own = dict(documents[self.name]["attributes"])
        if single:
            own["coordinates"] = " ".join([*own.get("coordinates", "").split(), *single])
        group.create_array(
            self.name,
            shape=self.shape,
            dtype=view.data_type,
            chunks=view.chunks if isinstance(view.grid, RegularGrid) else view.write_chunk_sizes,
            compressors=None,
            attributes=check_attributes(own, path=view.url),
            dimension_names=self.named,
            fill_value="auto" if self.fill_value is None else self.fill_value,
        )
        return store, self.name

    # Through steps

    def selected(self, transform: IndexTransform) -> Meant:
        ground = None if self.ground is None else self.ground.moved(transform)
        held = self if self.ground is None or ground is not None else self.without_ground()
        coordinates = {name: one.moved(transform) for name, one in held.coordinates.items()}
        # An axis of points runs along several dimensions, and has the name of none.
        along = list(chain.from_iterable(axes for axes in transform.axes if len(axes) == 1))
        names = [""] * len(transform.shape)
        for axes, name in zip(transform.axes, held.dimensions, strict=True):
            if len(axes) == 1 and along.count(axes[0]) == 1:
                names[axes[0]] = name
        variable = replace(self.variable, bands=self._bands_of(transform))
        return replace(
            self, shape=transform.shape, dimensions=tuple(names), variable=variable, ground=ground,
            coordinates=_nameable(coordinates, names),
        )  # fmt: skip

    def reduced(
        self,
        axes: Sequence[int],
        left: Sequence[int],
        method: str,
        dtype: np.dtype[Any],
        *,
        nodata: Any,
        is_unpacked: bool,
        windows: Any = None,
    ) -> Mapping[str, Any]:
        words = None
        if windows is not None:
            words = windows.rolling.words(self.named[windows.axis], CELL_METHODS.get(method), None)
        variable = self.reduced_variable(
            axes, method, dtype, nodata=nodata, is_unpacked=is_unpacked, words=words
        )  # fmt: skip
        coordinates = {
            name: one for name, one in self.coordinates.items() if not {*one.axes}.intersection(axes)
        }
        whole = replace(self, variable=variable, coordinates=coordinates)
        if self.ground is not None and {*self.ground.axes}.intersection(axes):
            whole = replace(whole, ground=None)
        order = {axis: number for number, axis in enumerate(left)}
        places = [
            ((order[axis],), range(n)) if axis in order else ((), 0) for axis, n in enumerate(self.shape)
        ]
        shape = tuple(self.shape[axis] for axis in left)
        transform = IndexTransform(shape, tuple(a for a, _ in places), tuple(p for _, p in places))
        made = replace(whole, variable=replace(variable, bands=())).selected(transform)
        return replace(made, variable=variable).attributes

    def reduced_variable(
        self,
        axes: Sequence[int],
        method: str,
        dtype: np.dtype[Any],
        *,
        nodata: Any,
        is_unpacked: bool,
        words: str | None = None,
    ) -> Variable:
        """The facts that hold for the results of a reduction, by the arguments of `reduced`.

        words  of `cell_methods`, in place of those for the method along all axes
        """
        own = self.variable
        packed = not is_unpacked and (own.scale_factor, own.add_offset) != (None, None)
        is_like = method in OF_ITEMS or (method in CELL_METHODS and not packed)
        names = [self.named[axis] for axis in axes]
        kept: dict[str, Any] = {}
        if is_like:
            kept = {
                "units": None if method == "var" else own.units,
                "long_name": own.long_name,
                "standard_name": None if method == "var" else own.standard_name,
                "scale_factor": own.scale_factor if packed else None,
                "add_offset": own.add_offset if packed else None,
                "bands": own.bands if self.band_axis not in axes else (),
            }
        if method in CELL_METHODS and (words or names):
            said = own.attributes.get("cell_methods")
            words = words or " ".join([*(f"{name}:" for name in names), CELL_METHODS[method]])
            kept["attributes"] = {
                "cell_methods": " ".join([*([said] if isinstance(said, str) else []), words])
            }
        hole = float("nan") if dtype.kind == "f" else nodata if method in ("min", "max") else None
        return Variable(dtype, nodata=hole, **kept)

    def without_ground(self) -> Meant:
        """The same meaning, with coordinates in place of the grid."""
        ground, coordinates = self.ground, dict(self.coordinates)
        if ground is None:
            return self
        centres = None
        if ground.affine is not None:
            centres = ground.affine.coordinates(tuple(self.shape[axis] for axis in ground.axes))  # type: ignore[arg-type]
        for axis, values, letter in zip(ground.axes, centres or (), "YX", strict=False):
            attributes = {**coordinate_attributes(ground.crs, letter)}
            coordinates.setdefault(self.named[axis], Coordinate(view(values), (axis,), attributes))
        return replace(self, ground=None, coordinates=coordinates, dimensions=self.named)

    def _bands_of(self, transform: IndexTransform) -> tuple[Band, ...]:
        bands, axis = self.variable.bands, self.band_axis
        if len(bands) < 2 or axis is None:
            return bands
        place = transform.positions[axis]
        if isinstance(place, int):
            return (bands[place],)
        is_along = len(transform.axes[axis]) == 1
        return tuple(bands[int(at)] for at in place) if is_along else ()

    def labels(self, axis: int) -> Sequence[Any]:
        """The name of each item along an axis: its date, its coordinate, its band, or else its number."""
        one = self.coordinates.get(self.dimensions[axis])
        if one is not None and one.axes == (axis,):
            if is_of_time(one.attributes.get("units")):
                dates = _times(one).dates()
                if dates.dtype.kind == "M":
                    texts = map(str, np.datetime_as_string(dates, unit="auto"))
                    return [None if text == "NaT" else text for text in texts]
                return [None if date is None else date.isoformat() for date in dates]
            values = decode(one.items.read(), one.attributes).tolist()
            return [value.decode() if isinstance(value, bytes) else value for value in values]
        bands = self.variable.bands if axis == self.band_axis else ()
        is_named = len(bands) == self.shape[axis] and all(band.name for band in bands)
        return [band.name for band in bands] if is_named else range(self.shape[axis])

    @once
    def band_axis(self) -> int | None:
        """The axis of bands."""
        for axis, name in enumerate(self.dimensions):
            if name.lower() in BAND_NAMES:
                return axis
        return 0 if len(self.shape) == 3 and len(self.variable.bands) == self.shape[0] else None

    def concatenated(self, inputs: Sequence[Meant], axis: int) -> Meant:
        shape = list(self.shape)
        shape[axis] = sum(one.shape[axis] for one in inputs)
        told, starts, at = list[Meant](), list[list[int]](), 0
        for one in inputs:
            if not one.is_bare:
                told.append(one)
                starts.append([at if number == axis else 0 for number in range(len(shape))])
            at += one.shape[axis]
        if not told:
            return replace(self, shape=tuple(shape))
        told = _on_one_ground(told, starts)
        first, is_whole = told[0], len(told) == len(inputs)
        coordinates = dict[str, Coordinate]()
        for name, own in first.coordinates.items():
            others = [one.coordinates.get(name) for one in told[1:]]
            if axis not in own.axes:
                if all(own.is_same(other) for other in others):
                    coordinates[name] = own
            elif is_whole and all(other is not None and other.axes == own.axes for other in others):
                joined = _joined([own, *others], own.axes.index(axis))  # type: ignore[list-item]
                if joined is not None:
                    coordinates[name] = joined
        variable = _common(told)
        bands = [one.variable.bands for one in told]
        # One band at several moments is no axis of bands.
        is_series = len(bands) > 1 and all(own == bands[0] and len(own) == 1 for own in bands)
        is_named = first.dimensions[axis].lower() in BAND_NAMES
        if first.band_axis == axis and is_whole and (is_named or not is_series):
            is_each = all(len(own) == one.shape[axis] for own, one in zip(bands, told, strict=True))
            variable = replace(variable, bands=tuple(chain.from_iterable(bands)) if is_each else ())
        return replace(
            first, shape=tuple(shape), variable=variable, coordinates=coordinates,
            name=_one([one.name for one in told], "data"), dimensions=_names(told),
            ground=None if first.ground is None else first.ground.shifted([-n for n in starts[0]]),
        )  # fmt: skip

    def overlaid(self, inputs: Sequence[Meant], starts: Any, shape: Shape, nodata: Any) -> Meant:
        # What has no items lies nowhere, unless nothing has any.
        pairs = [pair for pair in zip(inputs, starts.tolist(), strict=True) if not pair[0].is_bare]
        pairs = [pair for pair in pairs if 0 not in pair[0].shape] or pairs[:1]
        if not pairs:
            return replace(self, shape=shape)
        told = _on_one_ground([one for one, _ in pairs], [start for _, start in pairs])
        first = told[0]
        whole = {
            axis
            for axis in range(len(shape))
            if all(not start[axis] and one.shape[axis] == shape[axis] for one, start in pairs)
        }
        coordinates = {
            name: own
            for name, own in first.coordinates.items()
            if whole.issuperset(own.axes) and all(own.is_same(one.coordinates.get(name)) for one in told[1:])
        }
        variable = _common(told, has_nodata=nodata is None)
        if nodata is not None:
            variable = replace(variable, nodata=_number(nodata))
        if variable.bands and first.band_axis not in whole and len(variable.bands) > 1:
            variable = replace(variable, bands=())
        ground = None if first.ground is None else first.ground.shifted([-n for n in pairs[0][1]])
        return replace(
            first, shape=shape, variable=variable, coordinates=coordinates, ground=ground,
            name=_one([one.name for one in told], "data"), dimensions=_names(told),
        )  # fmt: skip

    def computed(
        self, inputs: Sequence[Meant], values: Sequence[Meant], function: str, dtype: np.dtype[Any]
    ) -> Meant:
        told = [one for one in inputs if not one.is_bare]
        if not told:
            return replace(self, variable=Variable(dtype))
        told = _on_one_ground(told, [[0] * len(self.shape)] * len(told))
        first, said = told[0], [one for one in values if not one.is_bare]
        coordinates = {
            name: own
            for one in told
            for name, own in one.coordinates.items()
            if all(name not in other.coordinates or own.is_same(other.coordinates[name]) for other in told)
        }
        return replace(
            first, shape=self.shape, variable=_result(said, function, dtype), coordinates=coordinates,
            name=_one([one.name for one in said], "data"), dimensions=_names(told),
            ground=next((one.ground for one in told if one.ground is not None), None),
        )  # fmt: skip


# Methods of reductions by CF's names, and those whose results are stored numbers as the items are.
CELL_METHODS = {
    "sum": "sum", "mean": "mean", "min": "minimum", "max": "maximum", "std": "standard_deviation",
    "var": "variance",
}  # fmt: skip
OF_ITEMS = frozenset(("mean", "min", "max"))


def carried_of(source: Any) -> Meant:
    """The meaning of a source of views: of an array by its documents and those beside it."""
    if isinstance(source, Array):
        return _of_array(source)
    made = getattr(source, "meant", None)
    if isinstance(made, Meant):
        return made
    if isinstance(source, Source):
        return _of_array(as_array(source))
    shape, dtype = tuple(map(int, source.shape)), np.dtype(source.dtype)
    return Meant("data", shape, ("",) * len(shape), Variable(dtype), is_bare=True)


def _of_array(array: Array) -> Meant:
    parent = group_above(array)
    name = (array.basename or array.store.url.rstrip("/").rpartition("/")[2]).partition(".")[0] or "data"
    variable, _ = parse_variable(array, next(iter(mapping_names(array.attrs.get("grid_mapping"))), None))
    dimensions = dimensions_of(array)
    ground = None
    if array.ndim > 1 and array.size and (array.attrs or parent is not None):
        dataset = open_dataset(array, expected=("GZ-43",))  # most arrays have no rows and columns
        geo, [own] = dataset.geo, dataset.arrays
        if geo.crs is not None or geo.affine is not None:
            ground = Ground(geo.crs, geo.affine, dataset.axes(own))
            dimensions = dataset.dimensions(own)
        variable = replace(variable, bands=geo.variables[own].bands)
    listed = array.attrs.get("coordinates")
    words = listed.split() if isinstance(listed, str) else []
    coordinates = dict[str, Coordinate]()
    on_grid = () if ground is None or ground.affine is None else [dimensions[axis] for axis in ground.axes]
    for word in dict.fromkeys([*filter(None, dimensions), *words]) if parent is not None else ():
        one = None if word in on_grid or word == name else parent.get(word)  # type: ignore[union-attr]
        if isinstance(one, Array) and one.dtype.kind not in "OV" and "grid_mapping_name" not in one.attrs:
            dims = [word] if one.dims is None and one.ndim == 1 else dimensions_of(one)
            axes = tuple(dimensions.index(dim) for dim in dims if dim and dim in dimensions)
            if one.shape == tuple(array.shape[axis] for axis in axes) and word != CRS_VARIABLE:
                said = {key: value for key, value in one.attrs.items() if key not in NAMING}
                coordinates[word] = Coordinate(view(one), axes, said)
    if name in {*dimensions, *coordinates, CRS_VARIABLE}:
        name = "data"
    kept = {key: value for key, value in variable.attributes.items() if key not in NAMING}
    is_bare = not (array.attrs or ground or coordinates or any(dimensions))
    variable = replace(variable, attributes=kept)
    return Meant(name, array.shape, dimensions, variable, ground, coordinates, is_bare)


# Several inputs


def check_alike(first: Variable, other: Variable, path: str, *, has_nodata: bool = True) -> None:
    """Check that other items have the nodata, packing and units of the first ones.

    Raises
        MetadataError: they differ, so that equal numbers do not mean the same.
    """
    names = ("nodata", "other_nodata", "scale_factor", "add_offset", "units")
    for name in names if has_nodata else names[1:]:
        a, b = getattr(first, name), getattr(other, name)
        if a != b and not (a != a and b != b):
            raise MetadataError(f"{name} is {b!r}; expected {a!r}, as the first source has it", path=path)


def _common(told: Sequence[Meant], *, has_nodata: bool = True) -> Variable:
    """The facts that hold for the items of all inputs, which nothing computes with.

    Raises
        MetadataError: as `check_alike`.
    """
    first = told[0].variable
    for one in told[1:]:
        check_alike(first, one.variable, one.name, has_nodata=has_nodata)
    return _agreed([one.variable for one in told])


def _agreed(said: Sequence[Variable]) -> Variable:
    """The facts that all variables state alike."""
    first, facts = said[0], dict[str, Any]()
    for name, value in vars(first).items():
        others = [getattr(one, name) for one in said[1:]]
        if name == "attributes":
            facts[name] = {k: v for k, v in value.items() if all(one.get(k) == v for one in others)}
        elif all(other == value or (value != value and other != other) for other in others):
            facts[name] = value
    return Variable(**{**facts, "dtype": first.dtype})


def _result(said: Sequence[Meant], function: str, dtype: np.dtype[Any]) -> Variable:
    """The facts that hold for a function's results, of those for the inputs whose items they may be."""
    if not said:
        return Variable(dtype)
    agreed = _agreed([one.variable for one in said])
    if function == "unpack":
        none: dict[str, Any] = dict.fromkeys(
            ("scale_factor", "add_offset", "valid_range", "flag_values", "flag_masks", "flag_meanings")
        )
        attributes = {key: value for key, value in agreed.attributes.items() if key != "_Unsigned"}
        none |= {"nodata": float("nan"), "other_nodata": ()}
        return replace(agreed, **none, dtype=dtype, attributes=attributes)
    if function in ("astype", "where"):
        flags: dict[str, Any] = {}
        if dtype.kind not in "iu":
            flags = dict.fromkeys(("flag_values", "flag_masks", "flag_meanings"))
        holes = [_cast(hole, agreed.dtype, dtype) for hole in (agreed.nodata, *agreed.other_nodata)]
        others = tuple(hole for hole in holes[1:] if hole is not None)
        return replace(agreed, **flags, dtype=dtype, nodata=holes[0], other_nodata=others)
    if function in ACROSS:
        # NaN alone was left out: of any other nodata, which numpy takes for a number, nothing is known.
        hole = agreed.nodata if agreed.nodata != agreed.nodata else None
        none = dict.fromkeys(("flag_values", "flag_masks", "flag_meanings"))
        return replace(agreed, **none, dtype=dtype, nodata=hole, other_nodata=())
    packed = any((one.variable.scale_factor, one.variable.add_offset) != (None, None) for one in said)
    keeps_units = function in SAME_UNITS and not packed
    return Variable(dtype, units=agreed.units if keeps_units else None)


def _cast(nodata: Any, own: np.dtype[Any] | None, dtype: np.dtype[Any]) -> Any:
    """Nodata of the type `own` in another data type; None where the cast of it is not defined."""
    if nodata is None or own is None or dtype.kind not in "iuf":
        return None
    with np.errstate(all="ignore"):
        made = np.array(nodata, own).astype(dtype)
        is_whole = own.kind != "f" or dtype.kind == "f" or float(made) == nodata
    return _number(made) if is_whole else None


def _number(value: Any) -> Any:
    return np.asarray(value).item()


def _on_one_ground(told: Sequence[Meant], starts: Sequence[Sequence[int]]) -> list[Meant]:
    """The inputs, which start at positions in the result; without grids unless these form one grid."""
    placed = [(one, start) for one, start in zip(told, starts, strict=True) if one.ground is not None]
    if placed:
        (first, origin), *others = placed
        begin = first.ground.shifted([-n for n in origin])  # type: ignore[union-attr]
        if all(
            begin.is_same(one.ground.shifted([-n for n in start]), one.shape)  # type: ignore[union-attr]
            for one, start in others
        ):
            return [*told]
    return [one.without_ground() for one in told]


def _joined(own: Sequence[Coordinate], axis: int) -> Coordinate | None:
    """The coordinates, concatenated; counts of time in the units of the first."""
    first = own[0]
    if all(one.attributes == first.attributes for one in own):
        return replace(first, items=concat([one.items for one in own], axis))
    units = first.attributes.get("units")
    if len(first.axes) != 1 or not isinstance(units, str):
        return None
    with suppress(MetadataError):
        times = [_times(one) for one in own]
        calendars = {one.calendar for one in times}
        if len(calendars) == 1:
            with suppress(MetadataError):
                return replace(first, items=view(np.concatenate([one.recount(units) for one in times])))
        if calendars <= GREGORIAN:
            made = TimeAxis.from_dates(np.concatenate([one.dates() for one in times]))
            values, said = made.values, {"units": made.units, "calendar": made.calendar}
        elif len(calendars) == 1:
            ticks, missing = map(np.concatenate, zip(*(one.ticks() for one in times), strict=True))
            if missing.any():
                return None
            values, *kind = times[0].counted(ticks)
            said = dict(zip(("units", "calendar"), kind, strict=True))
        else:
            # A date of one calendar is no date of another, or another moment.
            return None
        attributes = {"standard_name": "time", "axis": "T", **said}
        return replace(first, items=view(values), attributes=attributes)
    return None


def _times(one: Coordinate) -> TimeAxis:
    """The moments of a coordinate of time."""
    return TimeAxis.stored("time", one.items.read(), one.attributes)


def _names(told: Sequence[Meant]) -> tuple[str, ...]:
    """The name of each axis: the one that inputs have for it, "" where they have several."""
    made = list[str]()
    for names in zip(*(one.dimensions for one in told), strict=True):
        name = _one([name for name in names if name], "")
        made.append(name if name not in made else "")
    return tuple(made)


def _one(names: Iterable[str], otherwise: str) -> str:
    """The only name; `otherwise` where there are none or several."""
    found = {*names}
    return found.pop() if len(found) == 1 else otherwise


def _nameable(coordinates: Mapping[str, Coordinate], names: Sequence[str]) -> dict[str, Coordinate]:
    """The coordinates, without those that would be taken for the index of another axis."""
    return {
        name: one
        for name, one in coordinates.items()
        if name not in names or one.axes == (names.index(name),)
    }

"""Grids whose cells lie on the ground one by one, shown on grids of longitudes and latitudes.

Curvilinear grids state longitudes and latitudes as arrays of two dimensions, HEALPix the numbers of cells.
Each cell of the regular grid gets the value of the one that lies under its centre; nothing is mixed.

Spec: CF 1.13, 5.2 (two-dimensional coordinates) and appendix F (HEALPix); zarr-conventions `dggs`.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

import zstore
from zstore.errors import UnsupportedError
from zstore.plugin.conventions import Affine, Crs, GeoModel, TimeAxis, Variable, parse_variable
from zstore.plugin.jobs import Source, as_array, source_of
from zstore.plugin.nodes import RegularGrid, decode
from zstore.plugin.pyramids import Dataset, GeoGrid
from zstore.plugin.stores import once

__all__ = ["open_meshes", "unstructured"]

Floats = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Window = tuple[slice, slice]

log = logging.getLogger("zstore_serve")

CRS84 = Crs.from_user("OGC:CRS84")
NAMES = {
    "longitude": ("lon", "longitude", "nav_lon", "clon", "xlong"),
    "latitude": ("lat", "latitude", "nav_lat", "clat", "xlat"),
}
UNITS = {"longitude": "degrees?_?e(ast)?", "latitude": "degrees?_?n(orth)?"}
# The most cells of a curvilinear grid: their places are kept in memory, 24 bytes each.
MOST_CELLS = 1 << 24
BLOCK = 256
# Levels of the regular grid are halved until one is so long.
COARSEST = 512
MOST_ROWS = 1 << 20
# Of squared widths of a cell: less than this share of the other one is none.
FLAT = 1e-12
# A cell of its own width is drawn with so many of the regular grid, for its outline is no rectangle.
FINER = 2


class Cells(Protocol):
    """Cells that lie on the ground one by one."""

    def find(self, lon: Floats, lat: Floats) -> tuple[tuple[Counts, ...], Mask]:
        """(index of the cell at each place, along each of the array's dimensions of cells; where one is)."""

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(west, south, east, north) in degrees, east above 180 across the antimeridian."""

    @property
    def width(self) -> float:
        """The width of small cells, in degrees."""


def open_meshes(group: zstore.Group) -> list[list[Dataset]]:
    """The levels of each grid of a group whose cells lie on the ground one by one, the finest first.

    Raises
        UnsupportedError: the package that looks for cells is not installed, or there are too many.
    """
    arrays = dict(group.arrays())
    pairs = _pairs_of_dimensions(arrays)
    found: dict[tuple[str, ...], list[str]] = {}
    for name, array in arrays.items():
        for axes in (*pairs, _healpix_dimensions(arrays, array)):
            if axes and set(axes) <= set(array.dims or ()) and array.dtype.kind in "iufb":
                found.setdefault(axes, []).append(name)
                break
    placing = {name for name, array in arrays.items() if _kind_of(name, array)}
    placing |= {str(array.attrs.get("bounds")) for array in arrays.values()}
    made = []
    for axes, names in found.items():
        data = [name for name in names if name not in placing]
        if data and _is_drawn(axes):
            cells = Curvilinear.of(arrays, axes) if len(axes) == 2 else Healpix.of(arrays, data[0], axes[0])
            made.append(list(_levels(group, arrays, data, axes, cells)))
    return made


def _is_drawn(axes: Sequence[str]) -> bool:
    """Whether the package that looks for cells is there; rows and columns can do without a place.

    Raises
        UnsupportedError: it is missing, and cells of HEALPix are no rows and columns.
    """
    package = "healpix" if len(axes) == 1 else "scipy"
    if find_spec(package) is not None:
        return True
    what = (
        f"cells along {', '.join(axes)} are found by {package}, which is not installed (zstore-serve[meshes])"
    )
    if len(axes) == 1:
        raise UnsupportedError(what)
    log.warning("%s; they are shown without a place", what)
    return False


def unstructured(group: zstore.Group) -> str:
    """What an unstructured grid in a group is, for an error; "" where there is none."""
    for array in dict(group.arrays()).values():
        if array.attrs.get("cf_role") == "mesh_topology":
            return f"{array.path!r} describes an unstructured mesh (UGRID)"
    places = {name: a for name, a in group.arrays() if _kind_of(name, a) and a.ndim == 1}
    for name, array in places.items():
        (dimension,) = array.dims or (None,)
        others = [other for other, a in places.items() if other != name and a.dims == array.dims]
        if dimension not in (None, name) and others:
            cells = f"the {array.size} cells along {dimension!r}"
            return f"{cells} have longitudes and latitudes of their own ({name!r}, {others[0]!r})"
    return ""


def _kind_of(name: str, array: Any) -> str:
    """ "longitude" or "latitude", as attributes or else the name of an array say; "" for all others."""
    stated, units = array.attrs.get("standard_name"), str(array.attrs.get("units", ""))
    for kind, names in NAMES.items():
        is_named = stated is None and name.lower() in names
        if stated == kind or is_named or re.fullmatch(UNITS[kind], units, re.IGNORECASE):
            return kind
    return ""


def _pairs_of_dimensions(arrays: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The dimensions of all pairs of longitudes and latitudes that have the same two."""
    found: dict[str, set[tuple[str, ...]]] = {"": set(), "longitude": set(), "latitude": set()}
    for name, array in arrays.items():
        if array.ndim == 2 and None not in (array.dims or (None,)):
            found[_kind_of(name, array)].add(tuple(array.dims))
    return sorted(found["longitude"] & found["latitude"])


def _healpix(arrays: Mapping[str, Any], array: Any) -> Mapping[str, Any]:
    """What is stated of the HEALPix grid of an array; {} of other arrays."""
    mapping = arrays.get(str(array.attrs.get("grid_mapping", "")))
    if mapping is not None and mapping.attrs.get("grid_mapping_name") == "healpix":
        return dict(mapping.attrs)
    dggs = array.attrs.get("dggs")
    return dggs if isinstance(dggs, Mapping) and dggs.get("name") == "healpix" else {}


def _healpix_dimensions(arrays: Mapping[str, Any], array: Any) -> tuple[str, ...]:
    """The one dimension of HEALPix's cells; () of other arrays."""
    stated = _healpix(arrays, array)
    if not stated or not array.dims:
        return ()
    return (str(stated.get("spatial_dimension", array.dims[-1])),)


@dataclass(frozen=True)
class Curvilinear:
    """Cells in rows and columns, of which each centre has a longitude and a latitude.

    lon, lat  (rows, columns), in degrees; NaN where a cell has no place
    """

    lon: Floats
    lat: Floats

    @classmethod
    def of(cls, arrays: Mapping[str, Any], axes: Sequence[str]) -> Curvilinear:
        """The cells along two dimensions of arrays."""
        places = {_kind_of(n, a): a for n, a in [*arrays.items()][::-1] if tuple(a.dims or ()) == (*axes,)}
        lon, lat = (places[kind] for kind in NAMES)
        if lon.size > MOST_CELLS:
            what = f"{lon.size} cells of a curvilinear grid; expected {MOST_CELLS} at most"
            raise UnsupportedError(what, path=lon.path)
        x, y = (decode(np.asarray(one[...]), one.attrs).astype(np.float64) for one in (lon, lat))
        is_known = np.isfinite(x) & np.isfinite(y) & (np.abs(y) <= 90) & (np.abs(x) <= 720)
        if not is_known.any():
            raise UnsupportedError("no cell has a longitude and a latitude", path=lon.path)
        return cls(np.where(is_known, x, np.nan), np.where(is_known, y, np.nan))

    @once
    def vectors(self) -> Floats:
        """The centres (rows, columns, 3) on the unit sphere."""
        return _vectors(self.lon, self.lat)

    @once
    def tree(self) -> Any:
        """(the tree of the centres that are known, their places in the flat array)."""
        from scipy.spatial import KDTree

        known = np.flatnonzero(np.isfinite(self.lon))
        return KDTree(self.vectors.reshape(-1, 3)[known]), known

    def find(self, lon: Floats, lat: Floats) -> tuple[tuple[Counts, ...], Mask]:
        """See `Cells`."""
        tree, known = self.tree
        places = _vectors(lon, lat)
        row, column = np.divmod(known[tree.query(places)[1]], self.lon.shape[1])
        return (row, column), self._is_within(places, row, column)

    def _is_within(self, places: Floats, row: Counts, column: Counts) -> Mask:
        """Whether places lie in their nearest cells: no farther off than half way to the next centre.

        Beyond an outer edge a cell is as wide as its neighbour is far.
        """
        off = places - self.vectors[row, column]
        along = [self._steps(row, column, axis) for axis in (0, 1)]
        (a, b), (c, d) = ([np.einsum("...i,...i", one, two) for two in along] for one in along)
        p, q = (np.einsum("...i,...i", off, one) for one in along)
        with np.errstate(invalid="ignore", divide="ignore"):
            # At corners of skew cells the nearest centre may be a neighbour's: a little more is allowed.
            parts = (p * d - q * b) / (a * d - b * c), (q * a - p * c) / (a * d - b * c)
            most = (0.5 + 0.25 * inner[row, column] for inner in self._inner)
            within: Mask = np.logical_and(*(np.abs(one) <= at for one, at in zip(parts, most, strict=True)))
        # Where the neighbours along an axis are at the same place, as at a pole, or missing, a cell is round.
        is_round = np.minimum(a, d) <= FLAT * np.maximum(a, d)
        return within | (is_round & (4 * np.einsum("...i,...i", off, off) <= np.maximum(a, d)))

    def _steps(self, row: Counts, column: Counts, axis: int) -> Floats:
        """The way from one centre to the next along an axis; of cells at an edge, to their one neighbour."""
        ends = []
        for step in (-1, 1):
            index = [row, column]
            index[axis] = np.clip(index[axis] + step, 0, self.lon.shape[axis] - 1)
            ends.append(self.vectors[index[0], index[1]])
        here, (before, after) = self.vectors[row, column], ends
        ways = np.stack([here - before, after - here])
        ways[(ways == 0).all(axis=-1)] = np.nan
        count = np.isfinite(ways).sum(axis=0)
        made: Floats = np.nansum(ways, axis=0) / np.maximum(count, 1)
        return made

    @once
    def _inner(self) -> tuple[Mask, Mask]:
        """Which cells have neighbours on both sides, along each axis."""
        known = np.pad(np.isfinite(self.lon), 1)
        return known[:-2, 1:-1] & known[2:, 1:-1], known[1:-1, :-2] & known[1:-1, 2:]

    @once
    def _spacings(self) -> Floats:
        """The angles between neighbours, in degrees."""
        found = []
        for axis in (0, 1):
            chord = np.linalg.norm(np.diff(self.vectors, axis=axis), axis=-1)
            found.append(chord[np.isfinite(chord) & (chord > 0)])
        made: Floats = np.degrees(2 * np.arcsin(np.minimum(np.concatenate(found) / 2, 1)))
        return made if made.size else np.ones(1)

    @property
    def width(self) -> float:
        """See `Cells`."""
        return float(np.percentile(self._spacings, 5))

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """See `Cells`."""
        reach = float(np.percentile(self._spacings, 99))
        known = np.isfinite(self.lon)
        south, north = float(self.lat[known].min()) - reach, float(self.lat[known].max()) + reach
        found = np.unique(np.round(self.lon[known] % 360, 6))
        gaps = np.diff(np.append(found, found[0] + 360))
        at = int(gaps.argmax())
        reach /= max(0.05, math.cos(math.radians(max(abs(south), abs(north)))))
        if gaps[at] <= 3 * reach or max(abs(south), abs(north)) >= 90:
            return -180.0, max(-90.0, south), 180.0, min(90.0, north)
        west = float(found[(at + 1) % len(found)])
        east = west + 360 - float(gaps[at])
        turn = 360 if west >= 180 else 0
        return west - turn - reach, max(-90.0, south), east - turn + reach, min(90.0, north)


@dataclass(frozen=True)
class Healpix:
    """Cells of HEALPix.

    sides   of each of the twelve basic cells, in cells
    nested  whether they are numbered in quarters; else in rings from the north
    order   the numbers of the cells in order, and the place of each in the array; None: the array has all
    """

    sides: int
    nested: bool
    order: tuple[Counts, Counts] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, arrays: Mapping[str, Any], name: str, dimension: str) -> Healpix:
        """The cells along a dimension of an array.

        Raises
            UnsupportedError: what is stated of them is not enough, or contradicts their count.
        """
        array, stated = arrays[name], _healpix(arrays, arrays[name])
        level, sides = stated.get("refinement_level"), stated.get("healpix_nside")
        scheme = str(stated.get("indexing_scheme", stated.get("healpix_order", "nested")))
        if sides is None and isinstance(level, int) and 0 <= level <= 29:
            sides = 1 << level
        if not isinstance(sides, int) or not 0 < sides <= 1 << 29 or scheme not in ("nested", "nest", "ring"):
            what = f"HEALPix of refinement_level {level!r} and indexing_scheme {scheme!r}"
            raise UnsupportedError(f"{what}; expected 0 to 29, and nested or ring", path=array.path)
        if scheme != "ring" and sides & (sides - 1):
            what = f"nested HEALPix of healpix_nside {sides}; expected a power of two"
            raise UnsupportedError(what, path=array.path)
        length = array.shape[list(array.dims).index(dimension)]
        stated_name = str(stated.get("coordinate", dimension))
        numbers = next(
            (
                a
                for a in arrays.values()
                if a.dims == (dimension,) and a.attrs.get("standard_name") == "healpix_index"
            ),
            arrays.get(stated_name),
        )
        if not length:
            raise UnsupportedError("HEALPix without cells; expected at least one", path=array.path)
        order = None
        if numbers is not None and numbers.shape == (length,) and numbers.dtype.kind in "iu":
            listed = np.asarray(numbers[...]).astype(np.int64)
            at = np.argsort(listed, kind="stable")
            order = listed[at], at
        elif length != 12 * sides**2:
            what = (
                f"{length} cells of HEALPix along {dimension!r}; expected {12 * sides**2}, or their numbers"
            )
            raise UnsupportedError(what, path=array.path)
        return cls(sides, scheme != "ring", order)

    def find(self, lon: Floats, lat: Floats) -> tuple[tuple[Counts, ...], Mask]:
        """See `Cells`."""
        import healpix

        found = np.asarray(healpix.ang2pix(self.sides, lon, lat, nest=self.nested, lonlat=True), np.int64)
        if self.order is None:
            return (found,), np.ones(found.shape, bool)
        listed, places = self.order
        at = np.minimum(np.searchsorted(listed, found), len(listed) - 1)
        return (places[at],), listed[at] == found

    @property
    def width(self) -> float:
        """See `Cells`."""
        return math.degrees(math.sqrt(math.pi / 3) / self.sides)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """See `Cells`."""
        return -180.0, -90.0, 180.0, 90.0


def _vectors(lon: Floats, lat: Floats) -> Floats:
    x, y = np.radians(lon), np.radians(lat)
    made: Floats = np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=-1)
    return made


class Ground:
    """A regular grid over cells: which of them lies under each of its own, found once for each window."""

    def __init__(self, cells: Cells, grid: GeoGrid) -> None:
        self.cells, self.grid = cells, grid
        self.under = lru_cache(64)(self._under)

    def _under(self, top: int, bottom: int, left: int, right: int) -> tuple[tuple[Counts, ...], Mask]:
        x, y = self.grid.affine.at(*np.meshgrid(np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5))
        return self.cells.find(x, y)


@dataclass(frozen=True, repr=False)
class Gathered(Source):
    """An array of cells on a regular grid: each cell there has the value of the cell under its centre.

    axes   the dimensions of cells in the array
    kind   the data type of the items
    empty  the value where there is no cell
    """

    array: Any
    axes: tuple[int, ...]
    ground: Ground
    kind: np.dtype[Any]
    empty: Any
    names: tuple[str, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kind

    @property
    def dimension_names(self) -> Sequence[str | None]:
        return self.names

    @property
    def others(self) -> list[int]:
        """The dimensions of the array beside those of cells."""
        return [axis for axis in range(self.array.ndim) if axis not in self.axes]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*(self.array.shape[axis] for axis in self.others), *self.ground.grid.shape)

    @property
    def grid(self) -> RegularGrid:
        return RegularGrid((*(1 for _ in self.others), BLOCK, BLOCK))

    @property
    def url(self) -> str:
        return f"gathered:{source_of(self.array).url}#{[*self.ground.grid.affine]}"

    def version(self) -> str:
        return source_of(self.array).version()

    def read(self, box: Any, out: Any = None) -> Any:
        """The items of a box, of which the cells under it are read."""
        *chosen, rows, columns = box
        made = np.empty([side.stop - side.start for side in box], self.dtype) if out is None else out
        made[...] = self.empty
        index, valid = self.ground.under(rows.start, rows.stop, columns.start, columns.stop)
        if not made.size or not valid.any():
            return made
        region: list[Any] = [slice(None)] * self.array.ndim
        for axis, side in zip(self.others, chosen, strict=True):
            region[axis] = side
        index = tuple(one[valid] for one in index)
        if len(self.axes) == 1:
            region[self.axes[0]], at = np.unique(index[0], return_inverse=True)
            places = (at,)
            held = np.moveaxis(self.array.oindex[tuple(region)], self.axes, (-1,))
        else:
            for axis, one in zip(self.axes, index, strict=True):
                region[axis] = slice(int(one.min()), int(one.max()) + 1)
            places = tuple(one - one.min() for one in index)
            held = np.moveaxis(self.array[tuple(region)], self.axes, (-2, -1))
        made[..., valid] = held[..., *places]
        return made


def _levels(
    group: zstore.Group, arrays: Mapping[str, Any], names: Sequence[str], axes: tuple[str, ...], cells: Cells
) -> Iterator[Dataset]:
    """The levels of arrays of these cells, on ever coarser regular grids."""
    west, south, east, north = cells.bounds
    size = max(cells.width / FINER, (north - south) / MOST_ROWS, (east - west) / MOST_ROWS)
    extras = {name: array for name, array in arrays.items() if name not in names}
    number = 0
    while True:
        cell = size * 2**number
        shape = max(1, math.ceil((north - south) / cell)), max(1, math.ceil((east - west) / cell))
        grid = GeoGrid(CRS84, Affine(cell, 0.0, west, 0.0, -cell, north), shape)
        ground = Ground(cells, grid)
        pairs = {name: _gathered(arrays[name], axes, ground) for name in names}
        geo = GeoModel(
            CRS84, grid.affine, shape, ("lat", "lon"), time=_time(arrays, names),
            variables={name: variable for name, (_, variable) in pairs.items()},
        )  # fmt: skip
        shown = {name: array for name, (array, _) in pairs.items()}
        yield Dataset(f"{group.store.url}/{group.path}", geo, shown, extras, level=str(number))
        if max(shape) <= COARSEST:
            return
        number += 1


def _gathered(array: Any, axes: tuple[str, ...], ground: Ground) -> tuple[zstore.Array, Variable]:
    """(an array on a regular grid, what it means)."""
    variable, _ = parse_variable(array, None)
    dtype, empty = array.dtype.newbyteorder("="), variable.nodata
    if empty is None:
        # Where there is no cell there is no value, which whole numbers cannot say without nodata.
        dtype, empty = np.promote_types(dtype, np.float32), math.nan
    dims = [str(name) for name in array.dims]
    names = (*(name for name in dims if name not in axes), "lat", "lon")
    made = Gathered(array, tuple(map(dims.index, axes)), ground, dtype, empty, names)
    nodata = None if isinstance(empty, float) and math.isnan(empty) else empty
    variable = Variable(**{**vars(variable), "dtype": dtype, "dimensions": names, "nodata": nodata})
    return as_array(made), variable


def _time(arrays: Mapping[str, Any], names: Sequence[str]) -> TimeAxis | None:
    """The times along a dimension of arrays."""
    for dimension in dict.fromkeys(dim for name in names for dim in arrays[name].dims or ()):
        held = arrays.get(str(dimension))
        units = None if held is None else held.attrs.get("units")
        if held is not None and held.dims == (dimension,) and isinstance(units, str) and " since " in units:
            calendar = str(held.attrs.get("calendar", "standard"))
            return TimeAxis(str(dimension), np.asarray(held[...]), units, calendar)
    return None

"""What the nodes of a hierarchy are to each other: data, coordinates, grid mappings, levels of pyramids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zstore.conventions.base import Convention, Facts, Finding
from zstore.conventions.cf import Cf
from zstore.conventions.crs import Crs
from zstore.conventions.gdal import Gdal
from zstore.conventions.geozarr import Geozarr
from zstore.conventions.model import Affine, GeoModel
from zstore.conventions.read import CONVENTIONS, read_geo
from zstore.conventions.write import load_conventions
from zstore.errors import MetadataError
from zstore.validation.view import ArrayView, GroupView, Hierarchy, NodeView

__all__ = [
    "Grid",
    "LevelPlace",
    "Pyramid",
    "Roles",
    "coordinate_of",
    "grids",
    "grids_of",
    "mapping_of",
    "pyramids",
    "readings",
    "roles",
    "words",
]

LINKS = ("coordinates", "bounds", "climatology")


@dataclass(frozen=True)
class Roles:
    """What the arrays of one group are, by name; `dims` are all names of dimensions in use."""

    coordinates: Mapping[str, ArrayView]
    mappings: Mapping[str, ArrayView]
    auxiliary: Mapping[str, ArrayView]
    data: Mapping[str, ArrayView]
    dims: frozenset[str]


@dataclass(frozen=True)
class Grid:
    """An array of data that lies on the ground, its y and x dimension, and what each dialect says of it."""

    view: ArrayView
    y: int
    x: int
    cf: Facts
    gdal: Facts
    geozarr: Facts

    @property
    def shape(self) -> tuple[int, int]:
        """(y, x) lengths."""
        return self.view.shape[self.y], self.view.shape[self.x]

    @property
    def dimensions(self) -> tuple[str, str]:
        """Names of the y and the x dimension."""
        names = self.view.dims or ()
        return (names[self.y] or "", names[self.x] or "") if names else ("", "")

    @property
    def tile(self) -> tuple[int, int]:
        """(y, x) lengths of what is read at once: a chunk, or an inner chunk of a shard."""
        return self.view.array.chunks[self.y], self.view.array.chunks[self.x]

    @property
    def stated_crs(self) -> list[tuple[str, Crs]]:
        """Every CRS that is stated for the array itself or handed down by its group."""
        return [*self.cf.crs, *self.gdal.crs, *self.geozarr.crs]

    @property
    def crs(self) -> Crs | None:
        """The CRS that counts."""
        return next((crs for _, crs in self.stated_crs), None)


@dataclass
class LevelPlace:
    """One level of a pyramid: where it is, and the grids it holds."""

    path: str
    node: NodeView | None
    grids: dict[str, Grid]
    affine: Affine | None = None
    factors: tuple[float, float] = (1.0, 1.0)

    @property
    def shape(self) -> tuple[int, int] | None:
        """(y, x) of the largest grid."""
        shapes = [grid.shape for grid in self.grids.values()]
        return max(shapes, key=lambda shape: shape[0] * shape[1], default=None)


@dataclass
class Pyramid:
    """A multiscale group: what it states, and its levels as they are there, the finest first."""

    group: GroupView
    stated: Any
    geo: GeoModel | None
    findings: list[Finding]
    levels: list[LevelPlace] = field(default_factory=list)

    @property
    def tile_matrix_set(self) -> Any:
        """What `tile_matrix_set` holds, None without."""
        return self.stated.get("tile_matrix_set") if isinstance(self.stated, Mapping) else None

    @property
    def matrices(self) -> dict[str, Mapping[str, Any]]:
        """The tile matrices of an inline set by their id."""
        found = self.tile_matrix_set
        found = found.get("tileMatrices", found.get("tile_matrices")) if isinstance(found, Mapping) else None
        return {
            str(matrix["id"]): matrix
            for matrix in (found if isinstance(found, list) else ())
            if isinstance(matrix, Mapping) and isinstance(matrix.get("id"), (str, int))
        }

    @property
    def is_object(self) -> bool:
        """Whether `multiscales` is an object, as GeoZarr has it, and not a list."""
        return isinstance(self.stated, Mapping)


def words(value: Any) -> list[str]:
    """The words of a string; [] for anything else."""
    return value.split() if isinstance(value, str) else []


def roles(group: GroupView) -> Roles:
    """What the arrays of a group are."""
    found: Roles | None = group.cache.get("roles")
    if found is None:
        found = group.cache["roles"] = _roles(group)
    return found


def _roles(group: GroupView) -> Roles:
    arrays = group.arrays
    dims = frozenset(name for array in arrays.values() for name in array.dims or () if name is not None)
    linked = {name for array in arrays.values() for link in LINKS for name in words(array.attrs.get(link))}
    mapped = {
        w.rstrip(":") for a in (group, *arrays.values()) for w in words(a.attrs.get("grid_mapping"))[:1]
    }
    parts: dict[str, dict[str, ArrayView]] = {"c": {}, "m": {}, "a": {}, "d": {}}
    for name, array in arrays.items():
        is_mapping = "grid_mapping_name" in array.attrs or "crs_wkt" in array.attrs
        if name in dims:
            kind = "c"
        elif is_mapping or (name in mapped | {"spatial_ref", "crs"} and array.shape == ()):
            kind = "m"
        elif name in linked or array.attrs.get("standard_name") in ("latitude", "longitude"):
            kind = "a"
        else:
            kind = "d"
        parts[kind][name] = array
    return Roles(parts["c"], parts["m"], parts["a"], parts["d"], dims)


def mapping_of(array: ArrayView) -> tuple[str | None, ArrayView | None]:
    """(the name in `grid_mapping`, the array of that name beside it or in a group above)."""
    stated = array.attrs.get("grid_mapping")
    if stated is None and array.parent is not None:
        stated = array.parent.attrs.get("grid_mapping")
    name = words(stated)[0].rstrip(":") if words(stated) else None
    if name is None:
        return None, None
    for above in array.ancestors():
        if name in above.arrays:
            return name, above.arrays[name]
    return name, None


def coordinate_of(array: ArrayView, dimension: str | None) -> ArrayView | None:
    """The coordinate variable of a dimension: the array of its name beside this one."""
    if dimension is None or array.parent is None:
        return None
    return array.parent.arrays.get(dimension)


def grids(hierarchy: Hierarchy) -> dict[str, Grid]:
    """Every array of data that has a y and an x dimension, by its path."""
    found: dict[str, Grid] | None = hierarchy.cache.get("grids")
    if found is None:
        found = hierarchy.cache["grids"] = {}
        for group in hierarchy.groups:
            for array in roles(group).data.values():
                grid = _grid(array, group)
                if grid is not None:
                    found[array.path] = grid
        if isinstance(hierarchy.root, ArrayView):
            grid = _grid(hierarchy.root, None)
            if grid is not None:
                found[hierarchy.root.path] = grid
    return found


def grids_of(hierarchy: Hierarchy, group: GroupView) -> dict[str, Grid]:
    """The grids that are direct children of a group, by name."""
    held: dict[int, dict[str, Grid]] | None = hierarchy.cache.get("grids_of")
    if held is None:
        held = hierarchy.cache["grids_of"] = {}
        for grid in grids(hierarchy).values():
            held.setdefault(id(grid.view.parent), {})[grid.view.name] = grid
    return held.get(id(group), {})


def _grid(array: ArrayView, group: GroupView | None) -> Grid | None:
    if len(array.shape) < 2:
        return None
    facts = [_facts(convention(), array, group) for convention in (Cf, Gdal, Geozarr)]
    names = array.dims or ()
    above = [node.attrs.get("spatial:dimensions") for node in array.ancestors()]
    for dimensions in [facts[2].dimensions, facts[0].dimensions, *above]:
        if isinstance(dimensions, (list, tuple)) and len(dimensions) == 2 and set(dimensions) <= set(names):
            y, x = names.index(dimensions[0]), names.index(dimensions[1])
            return Grid(array, y, x, *facts)
    return None


def _facts(convention: Convention, array: ArrayView, group: GroupView | None) -> Facts:
    try:
        return convention.parse(array, group)
    except MetadataError:
        # Coordinates that cannot be read: the values' own finding says so.
        return Facts()


def pyramids(hierarchy: Hierarchy) -> list[Pyramid]:
    """Every multiscale group."""
    found: list[Pyramid] | None = hierarchy.cache.get("pyramids")
    if found is None:
        found = hierarchy.cache["pyramids"] = []
        for group in hierarchy.groups:
            ome = group.attrs.get("ome")
            if "multiscales" in group.attrs:
                found.append(_pyramid(hierarchy, group, group.attrs["multiscales"]))
            elif isinstance(ome, Mapping) and "multiscales" in ome:
                found.append(_pyramid(hierarchy, group, None))
    return found


def _pyramid(hierarchy: Hierarchy, group: GroupView, stated: Any) -> Pyramid:
    try:
        geo, findings = read_geo(group, group.parent)
    except MetadataError:
        geo, findings = None, []
    pyramid = Pyramid(group, stated, geo, findings)
    if geo is not None and geo.levels:
        for level in geo.levels:
            place = _level(hierarchy, group, level.path)
            place.affine, place.factors = level.affine, level.factors
            pyramid.levels.append(place)
        return pyramid
    stated_levels = [
        convention.parse(group, group.parent).levels for convention in load_conventions(CONVENTIONS)
    ]
    entries = next((levels for levels in stated_levels if levels), ())
    pyramid.levels = [_level(hierarchy, group, entry.path) for entry in entries]
    pyramid.levels.sort(key=lambda level: -(level.shape or (0, 0))[0] * (level.shape or (0, 0))[1])
    return pyramid


def _level(hierarchy: Hierarchy, group: GroupView, path: str) -> LevelPlace:
    node = group.below(path)
    if isinstance(node, GroupView):
        return LevelPlace(path, node, grids_of(hierarchy, node))
    grid = None if node is None else grids(hierarchy).get(node.path)
    # Levels that are arrays hold one variable, whatever each of them is called.
    return LevelPlace(path, node, {} if grid is None else {"": grid})


def readings(hierarchy: Hierarchy) -> Iterator[Finding]:
    """What reading the georeference and the conventions' own checks find, node by node."""
    loaded = load_conventions(CONVENTIONS)
    levels = {level.node.path for p in pyramids(hierarchy) for level in p.levels if level.node is not None}
    tops: list[tuple[NodeView, GeoModel | None]] = []
    for pyramid in pyramids(hierarchy):
        yield from pyramid.findings
        tops.append((pyramid.group, pyramid.geo))
    multiscale = {id(pyramid.group) for pyramid in pyramids(hierarchy)}
    for node in hierarchy.nodes:
        is_top = node is hierarchy.root and isinstance(node, ArrayView) and node.path in grids(hierarchy)
        has_grids = isinstance(node, GroupView) and bool(grids_of(hierarchy, node))
        if node.path in levels or id(node) in multiscale or not (is_top or isinstance(node, GroupView)):
            continue
        geo = None
        if is_top or has_grids:
            try:
                geo, findings = read_geo(node, node.parent)
            except MetadataError:
                continue
            yield from findings
        tops.append((node, geo))
    for node, geo in tops:
        # Of a group without a grid, what its attributes say is checked all the same.
        geo = geo or GeoModel(None, None, (1, 1))
        for convention in loaded:
            for checked, parent in _checked(hierarchy, node):
                yield from convention.check(checked, geo, parent)


def _checked(hierarchy: Hierarchy, node: NodeView) -> Iterator[tuple[Any, GroupView | None]]:
    """The node itself, and every grid of it and of its levels, each with the group that holds it."""
    yield node, node.parent
    held = next((p for p in pyramids(hierarchy) if p.group is node), None)
    if held is None:
        places = [node] if isinstance(node, GroupView) else []
    else:
        places = [level.node for level in held.levels if isinstance(level.node, GroupView)]
    for place in places:
        if place is not node:
            yield place, place.parent
        for grid in grids_of(hierarchy, place).values():
            yield grid.view, place

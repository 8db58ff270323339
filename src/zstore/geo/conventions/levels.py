"""Grids and the levels of a pyramid: their affines, their order, and findings about contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import (
    Affine,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GeoModel,
    GroupNode,
    ImageAxis,
    Level,
    LevelEntry,
    Node,
    Severity,
    Variable,
    Witness,
    is_group,
    parse_crs,
)
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import asset_path, member_of, name_method, objects, parse_numbers
from zstore.model.dtype import is_same_type

LAYOUT, COORDINATES, TILES = "layout", "coordinates", "tile_matrix_set"
TRANSFORMATIONS, BOX = "coordinateTransformations", "spatial:bbox"
# The exact statements first; a coordinate is rounded, and says nothing of a grid with one row or column.
EXACT = ("spatial:transform", LAYOUT, "GeoTransform", "proj:transform")
DERIVED = (COORDINATES, TILES, TRANSFORMATIONS, BOX)
# In cells: float32 coordinates of metres are off by a twentieth of a 10 m cell.
TOLERANCE = 0.1


class Statement(NamedTuple):
    """The statement of one attribute about the affine of a grid.

    source      the attribute, or one of the words above
    convention  the name of the convention by which it says so
    is_point    whether it may give the centre of the first cell, as GDAL's does where the cells are points
    """

    source: str
    convention: str
    affine: Affine
    is_point: bool = False

    @property
    def rank(self) -> int:
        """The number of the statement in the order in which statements count, 0 for the first."""
        if self.source in DERIVED:
            return len(EXACT) + 1 + DERIVED.index(self.source)
        return next((place for place, name in enumerate(EXACT) if self.source.endswith(name)), len(EXACT))

    @property
    def witness(self) -> Witness:
        """The attribute with its six numbers, for findings."""
        return Witness(self.source, list(self.affine))


def statements_of(
    facts: Sequence[Facts], entry: LevelEntry | None, shape: tuple[int, int]
) -> list[Statement]:
    """All statements of the affine of a grid, in the order in which they count.

    `entry` is its level in the pyramid's list, if it is one.
    """
    is_point = any(f.variable is not None and f.variable.area_or_point == "Point" for f in facts)
    said: list[Statement] = []
    for found in facts:
        for name, affine in found.affines:
            may_be_centre = is_point and name.endswith("GeoTransform")
            said.append(Statement(name, found.convention, affine, may_be_centre))
        if found.coordinate_affine is not None:
            said.append(Statement(COORDINATES, found.convention, found.coordinate_affine))
        if found.bbox is not None:
            xmin, ymin, xmax, ymax = found.bbox
            affine = Affine((xmax - xmin) / shape[1], 0.0, xmin, 0.0, (ymin - ymax) / shape[0], ymax)
            said.append(Statement(BOX, found.convention, affine))
    if entry is not None and entry.affine is not None:
        said.append(Statement(LAYOUT, "zarr_conventions", entry.affine))
    if entry is not None and entry.fallback_affine is not None:
        # Tile matrices alone have an extent.
        source, convention = (TRANSFORMATIONS, "ome") if entry.extent is None else (TILES, "geozarr")
        said.append(Statement(source, convention, entry.fallback_affine))
    return sorted(said, key=lambda statement: statement.rank)


def choose_affine(
    said: Sequence[Statement],
    entry: LevelEntry | None,
    shape: tuple[int, int],
    path: str,
    findings: list[Finding],
) -> Statement | None:
    """The statement that counts: the first one in documents that coordinates confirm, else the coordinates'.

    Half a cell between the two is the usual mistake of taking edges for centres: the stated one counts then
    (except that `AREA_OR_POINT: Point` allows it of `GeoTransform`). Anything else is a transform that was
    left behind when the grid was cut or coarsened: the coordinates count. With neither, what a tile matrix
    or OME's scale come to, if the array fits it; then the bounding box divided by the shape.
    """
    exact = [statement for statement in said if statement.source not in DERIVED]
    held = next((statement for statement in said if statement.source == COORDINATES), None)
    for position, stated in enumerate(exact, 1):
        if held is None or _is_confirmed(stated, held, shape, path, findings):
            for other in exact[position:]:
                _compare(other, stated, shape, path, findings)
            return stated
    for statement in said[len(exact) :]:
        if statement.source == BOX:
            message = "the affine is the bounding box divided by the shape"
            findings.append(Finding("ZC-05", "note", path, message))
        elif statement.source != COORDINATES and entry is not None:
            if not _fits(entry, shape, path, findings):
                continue
            message = "the affine is the tile matrix's or OME's; nothing else says one"
            findings.append(Finding("MS-28", "note", path, message))
        return statement
    return None


def compare_boxes(
    facts: Sequence[Facts], chosen: Statement, shape: tuple[int, int], path: str
) -> Iterator[Finding]:
    """Find bounding boxes that are not the outer edges of the grid."""
    bounds, (height, width) = chosen.affine.bounds(shape), chosen.affine.cell
    small = [TOLERANCE * length for length in (width, height, width, height)]
    for bbox in dict.fromkeys(found.bbox for found in facts if found.bbox is not None):
        if any(abs(a - b) > least for a, b, least in zip(bbox, bounds, small, strict=True)):
            message = f"the bounding box is {list(bbox)}; the grid's outer edges are {list(bounds)}"
            said = (Witness(chosen.source, list(bounds)), Witness(BOX, list(bbox)))
            yield Finding("ZC-05", "error", path, message, list(bounds), list(bbox), said)


def _is_confirmed(
    stated: Statement, held: Statement, shape: tuple[int, int], path: str, findings: list[Finding]
) -> bool:
    """Whether an affine of documents counts beside the coordinates'; a finding describes the difference."""
    source, shifts = stated.source, _shifts(stated.affine, held.affine, shape)
    largest = max(abs(shift) for pair in shifts for shift in pair)
    if largest <= TOLERANCE:
        return True
    is_constant = all(abs(one - other) <= TOLERANCE for one, other in zip(*shifts, strict=True))
    is_half = all(min(abs(abs(shift) - 0.5), abs(shift)) <= TOLERANCE for pair in shifts for shift in pair)
    if is_constant and is_half:
        if stated.is_point:
            message = f"{source} gives the first point, as AREA_OR_POINT allows; the coordinates count"
            findings.append(_contradiction("GZ-29", "note", path, message, held, stated))
            return False
        message = f"coordinates are half a cell off {source}: edges taken for centres; {source} counts"
        findings.append(_contradiction("GZ-29", "error", path, message, stated, held))
        return True
    message = f"{source} is up to {largest:.4g} cells off the coordinates; the coordinates count"
    findings.append(_contradiction("MS-28", "error", path, message, held, stated))
    return False


def _contradiction(
    rule: str, severity: Severity, path: str, message: str, chosen: Statement, other: Statement
) -> Finding:
    """The finding that two attributes state different affines, the chosen one first."""
    said = (chosen.witness, other.witness)
    return Finding(rule, severity, path, message, said[0].value, said[1].value, said)


def _shifts(affine: Affine, other: Affine, shape: tuple[int, int]) -> list[tuple[float, float]]:
    """(right, down) distances of another affine in cells, at the centres of the first and the last cell."""
    height, width = affine.cell
    shifts = []
    for column, row in ((0.5, 0.5), (shape[1] - 0.5, shape[0] - 0.5)):
        (x, y), (other_x, other_y) = affine.at(column, row), other.at(column, row)
        shifts.append(((other_x - x) / width, (other_y - y) / height))
    return shifts


def _compare(
    other: Statement, chosen: Statement, shape: tuple[int, int], path: str, findings: list[Finding]
) -> None:
    """Report that another affine of the documents differs from the chosen one."""
    largest = max(abs(shift) for pair in _shifts(chosen.affine, other.affine, shape) for shift in pair)
    if largest > (0.5 + TOLERANCE if other.is_point else TOLERANCE):
        message = f"{other.source} is up to {largest:.4g} cells off {chosen.source}, which counts"
        rule = "ZC-06" if other.source == LAYOUT else "MS-28"
        findings.append(_contradiction(rule, "error", path, message, chosen, other))


class Line(NamedTuple):
    """The cells along one axis: the outer edge of the first one, and the step from one to the next."""

    first: float
    step: float

    def scaled(self, factor: float) -> Line:
        """The line with its cells scaled by a factor, from the same edge."""
        return Line(self.first, self.step * factor)

    def moved(self, cells: float) -> Line:
        """The line that begins so many cells later."""
        return Line(self.first + cells * self.step, self.step)

    def is_at(self, other: Line, count: int, tolerance: float = TOLERANCE) -> bool:
        """Whether the centres of `count` cells are the other line's, within a tolerance in cells."""
        small = tolerance * abs(self.step)
        ends = (0.5, count - 0.5)
        return all(abs(self.first + self.step * n - other.first - other.step * n) <= small for n in ends)

    def is_turned(self, other: Line, count: int) -> bool:
        """Whether the other line has the same cells in the other order."""
        return self.is_at(Line(other.first + other.step * count, -other.step), count)


def _fits(entry: LevelEntry, shape: tuple[int, int], path: str, findings: list[Finding]) -> bool:
    """Whether an array of that shape can be the whole of the tile matrix that its level names."""
    if entry.extent is None:
        return True
    tiles = entry.tile_shape or (1, 1)
    if all(0 <= extent - size < tile for extent, size, tile in zip(entry.extent, shape, tiles, strict=True)):
        return True
    if all(extent == size * tile for extent, size, tile in zip(entry.extent, shape, tiles, strict=True)):
        expected = tuple(-(-size // tile) for size, tile in zip(shape, tiles, strict=True))
        message = f"the tile matrix counts cells, not tiles: {shape}; expected {expected}"
        findings.append(Finding("GZ-44", "error", path, message, expected, shape))
        return True
    message = f"the tile matrix covers {entry.extent} cells, the array {shape}; where it begins is not known"
    findings.append(Finding("GZ-44", "warning", path, message, shape, entry.extent))
    return False


T = TypeVar("T")
# What must be said alike of a variable at every level.
SHARED = (
    "units", "standard_name", "scale_factor", "add_offset", "nodata", "flag_values", "flag_masks",
    "flag_meanings", "valid_range",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Grid:
    """An array of data on the ground: its y and x dimension, and the facts about it by convention, in order.

    is_known   whether anything tells which dimensions are y and x; else they are the last two
    """

    node: Any
    facts: tuple[Facts, ...]
    y: int
    x: int
    is_known: bool

    @property
    def shape(self) -> tuple[int, int]:
        """The lengths along y and x."""
        return self.node.shape[self.y], self.node.shape[self.x]

    @property
    def dimensions(self) -> tuple[str, str]:
        """The names of the y and the x dimension; "" for one without a name."""
        names = self.node.dims or ()
        return (names[self.y] or "", names[self.x] or "") if names else ("", "")

    @property
    def others(self) -> list[int]:
        """The lengths of the other dimensions."""
        return [n for axis, n in enumerate(self.node.shape) if axis not in (self.y, self.x)]

    @property
    def tile(self) -> tuple[int, int]:
        """The lengths along y and x of the smallest readable block: a chunk, or an inner chunk of a shard."""
        return self.node.chunks[self.y], self.node.chunks[self.x]

    @property
    def stated_crs(self) -> list[tuple[str, Crs]]:
        """(source, CRS) of each CRS in the array's documents or inherited from its group."""
        return [pair for facts in self.facts for pair in facts.crs]

    @property
    def crs(self) -> Crs | None:
        """The CRS that counts: the first one in the documents."""
        return next((crs for _, crs in self.stated_crs), None)

    @property
    def stated_affines(self) -> list[tuple[str, Affine]]:
        """(source, affine) of each affine in the documents; that of the coordinates is not among them."""
        return [pair for facts in self.facts for pair in facts.affines]

    @property
    def variable(self) -> Variable:
        """The meaning of the values: for each member, the first value in any convention."""
        said = [facts.variable for facts in self.facts if facts.variable is not None]
        return first_of(Variable, said)


@dataclass
class LevelPlace:
    """One level of a pyramid: its path, its grids by name, and its own model, if it has one.

    A level that is an array holds one grid, whose name is "".
    """

    path: str
    node: Any
    grids: dict[str, Grid]
    geo: GeoModel | None = None
    affine: Affine | None = None
    factors: tuple[float, float] = (1.0, 1.0)
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int] | None:
        """(y, x) of the largest grid."""
        shapes = [grid.shape for grid in self.grids.values()]
        return max(shapes, key=lambda shape: shape[0] * shape[1], default=None)


def find_others(levels: Sequence[LevelPlace]) -> None:
    """Set each level's factors along dimensions other than y and x, by the shapes of its arrays."""
    finest, steps = levels[0], dict[str, int]()
    for before, level in pairwise(levels):
        name = next((one for one in level.grids if one in finest.grids and one in before.grids), None)
        grids = [place.grids[name] for place in (finest, before, level)] if name is not None else []
        if not grids or any(grid.node.dims != grids[0].node.dims for grid in grids):
            continue
        # From level to level they are mostly the same.
        ratio = level.factors[0] / before.factors[0]
        for axis, dimension in enumerate(grids[0].node.dims or ()):
            whole, near, own = (grid.node.shape[axis] for grid in grids)
            if own == whole or axis in (grids[0].y, grids[0].x) or not is_deep(dimension or ""):
                continue
            step = next(iter(factors_along(near, own, [steps.get(str(dimension), 0), ratio])), 0)
            likely = step * before.others.get(str(dimension), 1)
            factor = next(iter(factors_along(whole, own, [likely])), None)
            if factor is not None:
                steps[str(dimension)] = step
                level.others = {**level.others, str(dimension): factor}


def first_of(kind: type[T], stated: Sequence[T]) -> T:
    """One object of a kind: each member is the first of `stated` that is not empty."""
    merged: dict[str, Any] = {}
    for said in stated:
        for member in fields(kind):  # type: ignore[arg-type]
            value = getattr(said, member.name)
            is_empty = value is None or (isinstance(value, (Mapping, tuple)) and not value)
            if not is_empty:
                merged.setdefault(member.name, value)
    return kind(**merged)


def join_levels(tried: Iterable[Sequence[LevelEntry]]) -> tuple[LevelEntry, ...]:
    """The levels that the first dialect lists, their missing members filled in from later dialects."""
    found = [entries for entries in tried if entries]
    named: dict[str, list[LevelEntry]] = {entry.path: [] for entry in (found[0] if found else ())}
    for entry in (entry for entries in found for entry in entries if entry.path in named):
        named[entry.path].append(entry)
    return tuple(first_of(LevelEntry, entries) for entries in named.values())


def cell_count(shape: tuple[int, int] | None) -> int:
    """The number of cells of a grid of that shape; 0 if the shape is unknown."""
    return 0 if shape is None else shape[0] * shape[1]


def rank_level(entry: LevelEntry, geo: GeoModel) -> tuple[float, int]:
    """The key that sorts levels from the finest on: the area of a cell, then the number of cells."""
    if geo.affine is not None:
        height, width = geo.affine.cell
        return (height * width, -cell_count(geo.shape))
    # Without an affine the level with the most cells is the finest.
    return (entry.cell[0] * entry.cell[1] if entry.cell is not None else 0.0, -cell_count(geo.shape))


def make_level(
    entry: LevelEntry,
    geo: GeoModel,
    base: GeoModel,
    base_entry: LevelEntry,
    path: str,
    findings: list[Finding],
) -> Level:
    """The model of one level of a pyramid, with its factors to the finest level."""
    scale = entry.scale
    if scale is not None and base_entry.scale is not None:
        scale = (scale[0] / base_entry.scale[0], scale[1] / base_entry.scale[1])
    factors = _choose_factors((base.shape, base.affine), (geo.shape, geo.affine), scale)
    affine = geo.affine
    if factors is None:
        message = f"nothing says how large the cells of level {entry.path!r} are"
        findings.append(Finding("ZC-06", "error", path, message))
        factors = (base.shape[0] / geo.shape[0], base.shape[1] / geo.shape[1])
    elif affine is None and base.affine is not None:
        affine = base.affine.scaled(factors)
    elif affine is not None and base.affine is not None:
        findings += _compare_ways(entry.path, affine, base.affine, path)
    if scale is not None and not np.allclose(scale, factors, rtol=1e-6):
        message = (
            f"transform.scale of level {entry.path!r} comes to {scale} of the finest, its cells to {factors}"
        )
        findings.append(Finding("ZC-06", "warning", path, message, factors, scale))
    return Level(entry.path, geo.shape, affine, factors, entry.tile_shape)


def _compare_ways(name: str, affine: Affine, base: Affine, path: str) -> Iterator[Finding]:
    """Find that rows or columns of a level run the other way than those of the finest one."""
    ways = {"rows": affine.e * base.e, "columns": affine.a * base.a}
    turned = " and ".join(word for word, product in ways.items() if product < 0)
    if turned and not affine.is_rotated and not base.is_rotated:
        message = f"the {turned} of level {name!r} run the other way than the finest level's"
        yield Finding("ZC-06", "error", path, message, list(base), list(affine))


def _choose_factors(
    base: tuple[tuple[int, int], Affine | None],
    level: tuple[tuple[int, int], Affine | None],
    scale: tuple[float, float] | None,
) -> tuple[float, float] | None:
    """(y, x) size of a level's cells in the finest level's: by the affines, the stated scale, the shapes.

    By the shapes only where one integer makes the one out of the other; None where nothing says the factors.
    """
    (base_shape, base_affine), (shape, affine) = base, level
    if base_affine is not None and affine is not None:
        y, x = (mine / finest for mine, finest in zip(affine.cell, base_affine.cell, strict=True))
        return (_snapped(y), _snapped(x))
    if scale is not None:
        return (_snapped(scale[0]), _snapped(scale[1]))
    rows, columns = (whole_factor(n, m) for n, m in zip(base_shape, shape, strict=True))
    # Where cells are left out at the end, the others may as well be larger.
    if rows and columns and shape == (-(-base_shape[0] // rows), -(-base_shape[1] // columns)):
        return (rows, columns)
    return None


def whole_factor(length: int, coarser: int) -> int | None:
    """The whole number of cells along an axis that one cell of a coarser axis covers; None without.

    The last cell of the coarser axis may cover fewer, or be left out.
    """
    factor = round(length / coarser) if coarser else 0
    return factor if factor >= 1 and coarser in (length // factor, -(-length // factor)) else None


def _snapped(factor: float) -> float:
    nearest = round(factor)
    return nearest if abs(factor - nearest) <= 1e-9 * factor else factor


def compare_levels(base: LevelPlace, level: LevelPlace, group: str, findings: list[Finding]) -> None:
    """Report differences of a level from the finest one: in CRS, arrays, or their meaning."""
    finest, own = base.geo, level.geo
    if finest and own and finest.crs and own.crs and not own.crs.is_same(finest.crs):
        message = f"level {level.path!r} has another CRS than the finest"
        findings.append(Finding("GZ-40", "error", group, message, finest.crs.wkt, own.crs.wkt))
    # An array that is there and is no grid, or cannot be read, has a finding of its own.
    for one, other in ((base, level), (level, base)):
        missing = sorted(set(one.grids) - set(other.grids) - set(getattr(other.node, "children", ())) - {""})
        if missing:
            message = f"level {other.path!r} lacks {missing}"
            path = other.node.path
            findings.append(Finding("GZ-32", "error", path, message, sorted(one.grids), sorted(other.grids)))
    for name in [name for name in level.grids if name in base.grids]:
        findings += _compare_grids(base.grids[name], level.grids[name])


def _compare_grids(finest: Grid, grid: Grid) -> Iterable[Finding]:
    node, wanted, found = grid.node, finest.variable, grid.variable
    one, other = found.dtype, wanted.dtype
    if one != other and (one is None or other is None or not is_same_type(one, other)):
        types = str(wanted.dtype), str(found.dtype)
        yield Finding(
            "GZ-33", "error", node.path, f"dtype is {types[1]}, the finest level's {types[0]}", *types
        )
    if node.dims != finest.node.dims:
        message = f"dimensions are {node.dims}, the finest level's {finest.node.dims}"
        yield Finding("GZ-33", "error", node.path, message, finest.node.dims, node.dims)
    elif not _is_as_long(finest, grid):
        message = f"lengths beside y and x are {grid.others}, the finest level's {finest.others}"
        yield Finding("GZ-33", "error", node.path, message, finest.others, grid.others)
    stated = {n: (getattr(wanted, n), getattr(found, n)) for n in SHARED}
    differing = {
        n: pair for n, pair in stated.items() if repr(pair[0]) != repr(pair[1]) and pair[0] != pair[1]
    }
    if differing:
        message = f"{', '.join(differing)} differ from the finest level's"
        expected, own = ({n: pair[i] for n, pair in differing.items()} for i in (0, 1))
        yield Finding("GZ-22", "error", node.path, message, expected, own)


def factors_along(length: int, coarser: int, likely: Iterable[float] = ()) -> list[int]:
    """The whole factors by which a length becomes a coarser one; last one that leaves out items at the end.

    likely  of these, the first that fits is the only one
    """
    if not 0 < coarser <= length:
        return []
    least = -(-length // coarser)
    # One cell covers all, however many it could.
    most = least if coarser == 1 else (length - 1) // (coarser - 1)
    found = [factor for factor in range(least, most + 1) if -(-length // factor) == coarser]
    floor = length // coarser
    found += [floor] if floor < least and length // floor == coarser else []
    return next(([round(factor)] for factor in likely if round(factor) in found), found)


def is_deep(dimension: str) -> bool:
    """Whether levels may have fewer items of a dimension than the finest: not of times and bands."""
    return TYPES.get(dimension.lower(), "space") == "space"


def _is_as_long(finest: Grid, grid: Grid) -> bool:
    """Whether a level's other dimensions are as long as the finest's, or shorter by a whole factor."""
    names = finest.node.dims or ("",) * len(finest.node.shape)
    return all(
        axis in (finest.y, finest.x) or n == m or (is_deep(name or "") and factors_along(n, m))
        for axis, (name, n, m) in enumerate(zip(names, finest.node.shape, grid.node.shape, strict=True))
    )


ARRAYS_VERSION = "0.1"
# Of these, datasets are paths alone.
FORMER_VERSIONS = ("0.1", "0.2", "0.3")
OME_VERSION = "0.5"
OME_06 = "0.6"
# The system that the datasets of an image lead to.
INTRINSIC = "intrinsic"
MOST_AXES = 5
TYPES = {
    **dict.fromkeys(("time", "t"), "time"),
    **dict.fromkeys(("band", "bands", "channel", "c"), "channel"),
    **dict.fromkeys(("z", "depth", "height", "altitude"), "space"),
}
# OME-Zarr's names of units, by those of CRSs and of CF.
UNITS = {"metre": "meter", "kilometre": "kilometer", "foot": "foot"}
LENGTHS = {
    **UNITS,
    "m": "meter",
    "km": "kilometer",
    "cm": "centimeter",
    "mm": "millimeter",
    "nm": "nanometer",
    **dict.fromkeys(("um", "µm", "micron"), "micrometer"),
}
# (steps, first centre), each (y, x).
Scaling = tuple[tuple[float, float], tuple[float, float]]


class Multiscales(Convention):
    """Multiscale Arrays 0.1."""

    name = "multiscales"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels, CRS and resampling of a list of datasets, in whatever order it has them."""
        if not is_group(node):
            return Facts()
        stated = node.attrs.get("multiscales")
        if isinstance(stated, Mapping) and "datasets" in stated and "layout" not in stated:
            stated = [stated]
        if not isinstance(stated, (list, tuple)) or is_ome(stated):
            return Facts()
        findings: list[Finding] = []
        levels = _parse_datasets(stated, node, findings)
        first = stated[0] if stated and isinstance(stated[0], Mapping) else {}
        return Facts(
            crs=_parse_crs(first, node, findings),
            levels=tuple(levels),
            resampling=name_method(first.get("type")),
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The list, with one entry per array of data, the finest level first."""
        if not geo.levels:
            return {}
        items: list[dict[str, Any]] = []
        for name in _variables(geo):
            item: dict[str, Any] = {"version": ARRAYS_VERSION, "name": name}
            item["datasets"] = [
                _render_dataset(path, level, geo)
                for path, level in zip(_paths(geo, name), geo.levels, strict=True)
            ]
            if geo.resampling is not None:
                factors = [[float(factor) for factor in level.factors] for level in geo.levels]
                item["type"] = geo.resampling
                item["metadata"] = {"method": geo.resampling, "args": [], "kwargs": {"factors": factors}}
            items.append(item)
        return {"": Document(kind="group", attributes={"multiscales": items})}

    def dialects(self, node: Node) -> Iterator[str]:
        """The dialect that lists the levels."""
        stated = node.attrs.get("multiscales")
        if is_group(node) and isinstance(stated, (list, tuple)) and not is_ome(stated):
            yield "Multiscale Arrays"


def _render_dataset(path: str, level: Level, geo: GeoModel) -> dict[str, Any]:
    dataset: dict[str, Any] = {"path": path}
    if level.tile_shape is not None and level.tile_shape[0] == level.tile_shape[1]:
        dataset["pixels_per_tile"] = level.tile_shape[0]
    if geo.crs is not None and geo.crs.code is not None:
        dataset["crs"] = geo.crs.code
    return dataset


def _parse_crs(first: Mapping[str, Any], node: Node, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    stated = first.get("crs")
    if stated is None:
        stated = next((d["crs"] for d in objects(first.get("datasets")) if "crs" in d), None)
    if stated is None:
        return ()
    return tuple(parse_crs("multiscales.crs", stated, "OC-10", node.path, findings))


class Ome(Convention):
    """OME-Zarr.

    What is written counts from the raster's own corner, rows downwards and columns to the right, in the CRS's
    unit: readers of OME-Zarr want positive steps. `translation` is the centre of the first cell.
    """

    name = "ome"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The levels of `ome`, else of OME-Zarr's former list, with the affines of their transformations."""
        if not is_group(node):
            return Facts()
        findings: list[Finding] = []
        ome, former = node.attrs.get("ome"), node.attrs.get("multiscales")
        stated = ome.get("multiscales") if isinstance(ome, Mapping) else former if is_ome(former) else None
        if not isinstance(stated, (list, tuple)):
            return Facts() if stated is None else Facts(levels=())
        levels, axes = tuple(_parse_datasets(stated, node, findings)), _parse_axes(stated)
        return Facts(levels=levels, axes=axes, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`ome`, with one image per array of data; arrays that OME-Zarr has no axes for are not listed.

        Raises
            MetadataError: Zarr v2, or no array that OME-Zarr has axes for.
        """
        if not geo.levels:
            return {}
        if zarr_format != 3:
            raise MetadataError(f"OME-Zarr {OME_VERSION} is written as Zarr v3; zarr_format is {zarr_format}")
        images = []
        for name, variable in _variables(geo).items():
            axes = _axes(variable, geo)
            if axes is not None:
                datasets = [
                    _image_dataset(path, level, [axis["name"] for axis in axes], geo)
                    for path, level in zip(_paths(geo, name), geo.levels, strict=True)
                ]
                image = {"name": name, "axes": axes, "datasets": datasets}
                images.append(image if geo.resampling is None else {**image, "type": geo.resampling})
        if not images:
            raise MetadataError(
                f"OME-Zarr {OME_VERSION} wants two to five axes, time before bands before {geo.dimensions}; "
                f"none of {sorted(geo.variables)} is like that"
            )
        ome = {"version": OME_VERSION, "multiscales": images}
        return {"": Document(kind="group", attributes={"ome": ome})}

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Findings about images without a list of datasets, or whose levels' cells or corners disagree."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        affines = {level.path: level.affine for level in geo.levels}
        base = next((entry.fallback_affine for entry in facts.levels or () if entry.fallback_affine), None)
        for entry in facts.levels or ():
            expected, found = affines.get(entry.path), entry.fallback_affine
            if found is None and not has_paths_alone(node.attrs.get("multiscales")):
                message = f"coordinateTransformations of {entry.path!r} have no scale for every axis"
                findings.append(Finding("OME", "error", node.path, message))
            if expected is None or found is None or base is None:
                continue
            if not np.allclose(found.cell, expected.cell, rtol=1e-6):
                message = f"scale of {entry.path!r} comes to cells of {found.cell}; expected {expected.cell}"
                findings.append(Finding("OME", "error", node.path, message, expected.cell, found.cell))
            shift = max(abs(found.c - base.c) / base.cell[1], abs(found.f - base.f) / base.cell[0])
            if shift > TOLERANCE:
                message = f"translation of {entry.path!r} puts its corner {shift:.4g} cells off the finest's"
                findings.append(Finding("OME", "warning", node.path, message, base[2::3], found[2::3]))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """OME-Zarr in its version."""
        former, ome = node.attrs.get("multiscales"), node.attrs.get("ome")
        stated = [former[0]] if isinstance(former, (list, tuple)) and is_ome(former) else []
        for found in [*stated, *([ome] if isinstance(ome, Mapping) else [])] if is_group(node) else ():
            yield f"OME-Zarr {found.get('version', '') if isinstance(found, Mapping) else ''}"


def to_06(ome: Mapping[str, Any]) -> dict[str, Any]:
    """`ome` of version 0.5 in the form of 0.6: one coordinate system, to which every dataset leads."""
    return {"version": OME_06, "multiscales": [_to_06(image) for image in ome["multiscales"]]}


def _to_06(image: Mapping[str, Any]) -> dict[str, Any]:
    datasets = [
        {
            "path": dataset["path"],
            "coordinateTransformations": [
                {
                    "type": "sequence",
                    "input": {"path": dataset["path"]},
                    "output": {"name": INTRINSIC},
                    "transformations": dataset["coordinateTransformations"],
                }
            ],
        }
        for dataset in image["datasets"]
    ]
    systems = [{"name": INTRINSIC, "axes": image["axes"]}]
    made = {"name": image["name"], "coordinateSystems": systems, "datasets": datasets}
    method = image.get("type")
    return made if method is None else {**made, "type": method, "metadata": {"method": method}}


def _axes(variable: Variable, geo: GeoModel) -> list[dict[str, Any]] | None:
    names = variable.dimensions or geo.dimensions
    if not 2 <= len(names) <= MOST_AXES or tuple(names[-2:]) != geo.dimensions:
        return None
    axes: list[dict[str, Any]] = []
    for name in names[:-2]:
        known = geo.axes.get(name, ImageAxis())
        has_fewer = any(name in level.others for level in geo.levels)
        kind = known.type or ("space" if has_fewer else axis_type(name, geo))
        said = {"name": name, "type": kind, "unit": known.unit}
        axes.append({key: value for key, value in said.items() if value is not None})
    kinds = [axis.get("type", "channel") for axis in axes]
    if kinds != [kind for kind in ("time", "channel", "space") if kind in kinds]:
        return None
    unit = None if geo.crs is None or geo.affine is None else UNITS.get(geo.crs.unit_name)
    for name in geo.dimensions:
        own = unit or geo.axes.get(name, ImageAxis()).unit
        axes.append({"name": name, "type": "space"} | ({} if own is None else {"unit": own}))
    return axes


def axis_type(name: str, geo: GeoModel) -> str | None:
    """The type of a dimension beside y and x, as OME-Zarr calls it: time, channel or space; None: unknown."""
    is_time = geo.time is not None and name == geo.time.name
    return "time" if is_time else geo.axes.get(name, ImageAxis()).type or TYPES.get(name.lower())


def _image_dataset(path: str, level: Level, names: Sequence[str], geo: GeoModel) -> dict[str, Any]:
    # Without an affine, cells are counted in the finest level's, as the items of other dimensions are.
    cell = level.factors if level.affine is None else level.affine.cell
    scale, translation = [float(length) for length in cell], [length / 2 for length in cell]
    for name in reversed(names[:-2]):
        axis = geo.axes.get(name, ImageAxis()).coarser(level.others.get(name, 1))
        scale.insert(0, axis.step)
        translation.insert(0, axis.first)
    return {
        "path": path,
        "coordinateTransformations": [
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": translation},
        ],
    }


def is_ome(items: Any) -> bool:
    """Whether a list under `multiscales` is OME-Zarr's: it has axes, transformations or the version 0.2."""
    images = objects(items)
    datasets = (dataset for image in images for dataset in objects(image.get("datasets")))
    has_axes = any("axes" in image or image.get("version") == "0.2" for image in images)
    return has_axes or any("coordinateTransformations" in dataset for dataset in datasets)


def former_version(image: Mapping[str, Any]) -> str | None:
    """The version of an image that is older than transformations; None for a later one."""
    stated, axes = image.get("version"), image.get("axes")
    if stated is not None:
        return stated if stated in FORMER_VERSIONS else None
    if any("coordinateTransformations" in dataset for dataset in objects(image.get("datasets"))):
        return None
    is_of_names = isinstance(axes, list) and all(isinstance(axis, str) for axis in axes)
    return "0.3" if is_of_names else "0.1" if axes is None and "coordinateSystems" not in image else None


def has_paths_alone(items: Any) -> bool:
    """Whether images are of a version of OME-Zarr before transformations: shapes tell how levels lie."""
    return any(former_version(image) is not None for image in objects(items))


def is_image(group: Any) -> bool:
    """Whether a group is an image of OME-Zarr, in any version."""
    return isinstance(group.attrs.get("ome"), Mapping) or is_ome(group.attrs.get("multiscales"))


def _variables(geo: GeoModel) -> dict[str, Variable]:
    """The model's arrays by name, in the order of their names, in which they are listed."""
    return dict(sorted(geo.variables.items()))


def _paths(geo: GeoModel, name: str) -> list[str]:
    """The paths of the levels of one array."""
    return [f"{level.path}/{name}" for level in geo.levels]


def _parse_datasets(items: Sequence[Any], node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    """The levels: groups where every item lists one array in each of them, else those of the first item."""
    images: list[list[LevelEntry]] = []
    if not items:
        message = "multiscales is an empty list; its levels are not known"
        findings.append(Finding("OC-10", "error", node.path, message))
    for item in items:
        entries = _parse_item(item, node, findings)
        if entries:
            images.append(entries)
    if not images:
        return []
    levels = [_levels_of(entries) for entries in images]
    if levels[0] is not None and all(level == levels[0] for level in levels):
        return [replace(entry, path=path) for path, entry in zip(levels[0], images[0], strict=True)]
    if len(images) > 1:
        message = f"multiscales lists {len(images)} images with levels of their own; the first one is read"
        findings.append(Finding("OC-10", "note", node.path, message))
    return images[0]


def _levels_of(entries: list[LevelEntry]) -> list[str] | None:
    """The groups that contain one array of the same name each; None for other paths."""
    split = [entry.path.rpartition("/") for entry in entries]
    above = [parts[0] for parts in split]
    is_one_array = len({parts[2] for parts in split}) == 1
    return above if is_one_array and all(above) and len(set(above)) == len(above) else None


def _parse_item(item: Any, node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    datasets = member_of(item, "datasets")
    if not isinstance(datasets, (list, tuple)):
        message = "multiscales has no list of datasets; its levels are not known"
        findings.append(Finding("OC-10", "error", node.path, message))
        return []
    axes = _axes_of(item)
    names, places = _axis_names(axes), _axis_places(axes)
    # From 0.6 on, datasets lead to the image's own system, and what follows to others.
    has_systems = "coordinateSystems" in item
    outer = None if has_systems else _scaling(item.get("coordinateTransformations"), places)
    entries = []
    for dataset in datasets:
        path = asset_path(dataset)
        if path is None:
            findings.append(Finding("OC-10", "error", node.path, f"dataset {dataset!r} has no relative path"))
            continue
        affine = _affine(_scaling(_steps(dataset, axes), places), outer)
        tile = dataset.get("pixels_per_tile")
        is_length = isinstance(tile, int) and not isinstance(tile, bool) and tile > 0
        cell = None if affine is None else affine.cell
        tile_shape = (tile, tile) if is_length else None
        entries.append(
            LevelEntry(
                path,
                fallback_affine=affine,
                cell=cell,
                tile_shape=tile_shape,
                names_axes=names[-2:] == ["y", "x"],
            )
        )
    return entries


def _axes_of(item: Mapping[str, Any]) -> Any:
    """The axes of an image: all of them in 0.2, from 0.6 on those of the system that its datasets lead to."""
    systems = item.get("coordinateSystems")
    if not isinstance(systems, (list, tuple)):
        return [*"tczyx"] if item.get("version") == "0.2" else item.get("axes")
    known = objects(systems)
    name = next((name for dataset in item.get("datasets") or () if (name := _output(dataset))), None)
    return next((system for system in known if system.get("name") == name), (known or [{}])[0]).get("axes")


def _output(dataset: Any) -> Any:
    """The name of the coordinate system that the first transformation of a dataset leads to."""
    return member_of(member_of(_first(dataset), "output"), "name")


def _first(dataset: Any) -> Any:
    """The first transformation of a dataset; None without a list of them."""
    stated = member_of(dataset, "coordinateTransformations")
    return stated[0] if isinstance(stated, (list, tuple)) and stated else None


def _steps(dataset: Mapping[str, Any], axes: Any) -> Any:
    """The scale and the translation of a dataset, from their sequence, or from the identity."""
    stated, first = dataset.get("coordinateTransformations"), _first(dataset)
    if not isinstance(first, Mapping):
        return stated
    if first.get("type") == "sequence":
        return first.get("transformations")
    if first.get("type") == "identity" and isinstance(axes, (list, tuple)):
        return [{"type": "scale", "scale": [1.0] * len(axes)}]
    return stated


def _axis_names(axes: Any) -> list[Any]:
    """The names of axes, which are names alone in OME-Zarr 0.3."""
    named = axes if isinstance(axes, (list, tuple)) else ()
    return [axis.get("name") if isinstance(axis, Mapping) else axis for axis in named]


def _parse_axes(items: Sequence[Any]) -> dict[str, ImageAxis]:
    """The axes of the first image by name, with the steps of its first dataset, the finest."""
    item = next(iter(objects(items)), {})
    if not isinstance(item.get("datasets"), (list, tuple)):
        return {}
    stated, found = _axes_of(item), dict[str, ImageAxis]()
    dataset = next(iter(objects(item.get("datasets"))), {})
    lines = [_steps(dataset, stated)]
    lines += [] if "coordinateSystems" in item else [item.get("coordinateTransformations")]
    for place, axis in enumerate(stated if isinstance(stated, (list, tuple)) else ()):
        axis = axis if isinstance(axis, Mapping) else {"name": axis}
        name, *words = (axis.get(key) for key in ("name", "type", "unit"))
        step, first = 1.0, 0.0
        for line in lines:
            if (scaling := _scaling(line, (place, place))) is not None:
                (factor, _), (shift, _) = scaling
                step, first = step * factor, first * factor + shift
        if isinstance(name, str):
            kind, unit = (word if isinstance(word, str) else None for word in words)
            found[name] = ImageAxis(kind, unit, step, first)
    return found


def _axis_places(axes: Any) -> tuple[int, int]:
    """The indices of y and x among the numbers of a transformation."""
    names = _axis_names(axes)
    if "y" in names and "x" in names:
        return names.index("y"), names.index("x")
    # The order of the axes puts those of space last, y before x.
    return (len(names) - 2, len(names) - 1) if len(names) >= 2 else (-2, -1)


def _scaling(transformations: Any, places: tuple[int, int]) -> Scaling | None:
    if not isinstance(transformations, (list, tuple)):
        return None
    found = {
        item.get("type"): item.get(item.get("type"))
        for item in transformations
        if isinstance(item, Mapping) and item.get("type") in ("scale", "translation")
    }
    scale = found.get("scale")
    if not isinstance(scale, (list, tuple)) or len(scale) < 2 or max(places) >= len(scale):
        return None
    steps = parse_numbers([scale[place] for place in places], 2)
    translation = found.get("translation")
    if not isinstance(translation, (list, tuple)) or len(translation) != len(scale):
        translation = [0.0] * len(scale)
    centres = parse_numbers([translation[place] for place in places], 2)
    if steps is None or centres is None or 0 in steps:
        return None
    return (steps[0], steps[1]), (centres[0], centres[1])


def _affine(line: Scaling | None, outer: Scaling | None) -> Affine | None:
    if line is None:
        return None
    (y_step, x_step), (y, x) = line
    if outer is not None:
        # The image's own transformation comes after its datasets'.
        (y_factor, x_factor), (y_shift, x_shift) = outer
        y_step, x_step = y_step * y_factor, x_step * x_factor
        y, x = y * y_factor + y_shift, x * x_factor + x_shift
    # OME counts from the centre of the first cell.
    return Affine(float(x_step), 0.0, x - x_step / 2, 0.0, float(y_step), y - y_step / 2)

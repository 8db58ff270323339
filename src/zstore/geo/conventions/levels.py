"""Grids and the levels of a pyramid: their affines, their order, and findings where statements disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from zstore.geo.conventions.base import Facts, Finding, LevelEntry
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.model import Affine, GeoModel, Level, Variable
from zstore.model.order import is_same_type

# The exact statements first; a coordinate is rounded, and says nothing of a grid with one row or column.
ORDER = ("spatial:transform", "layout", "GeoTransform", "proj:transform")
# In cells: float32 coordinates of metres are off by a twentieth of a 10 m cell.
TOLERANCE = 0.1


def choose_affine(
    facts: Sequence[Facts],
    entry: LevelEntry | None,
    shape: tuple[int, int],
    path: str,
    findings: list[Finding],
) -> Affine | None:
    """The affine of a grid: the first stated one that its coordinates confirm, else that of the coordinates.

    Half a cell between the two is the usual mistake of taking edges for centres: the stated one counts then
    (except that `AREA_OR_POINT: Point` allows it of `GeoTransform`). Anything else is a transform that was
    left behind when the grid was cut or coarsened: the coordinates count. With neither, what a tile matrix
    or OME's scale come to, if the array fits it; then the bounding box divided by the shape.
    """
    stated = [pair for found in facts for pair in found.affines]
    if entry is not None and entry.affine is not None:
        stated.append(("layout", entry.affine))
    stated.sort(key=lambda pair: _rank(pair[0]))
    coordinates = next((f.coordinate_affine for f in facts if f.coordinate_affine is not None), None)
    is_point = any(f.variable is not None and f.variable.area_or_point == "Point" for f in facts)
    for position, (source, affine) in enumerate(stated, 1):
        if coordinates is None or _is_confirmed(source, affine, coordinates, shape, is_point, path, findings):
            for other in stated[position:]:
                _compare(other, (source, affine), shape, is_point, path, findings)
            return affine
    if coordinates is not None:
        return coordinates
    if entry is not None and entry.fallback_affine is not None and _fits(entry, shape, path, findings):
        findings.append(
            Finding("MS-28", "note", path, "the affine is the tile matrix's or OME's; nothing else says one")
        )
        return entry.fallback_affine
    bbox = next((f.bbox for f in facts if f.bbox is not None), None)
    if bbox is None:
        return None
    findings.append(Finding("ZC-05", "note", path, "the affine is the bounding box divided by the shape"))
    xmin, ymin, xmax, ymax = bbox
    return Affine((xmax - xmin) / shape[1], 0.0, xmin, 0.0, (ymin - ymax) / shape[0], ymax)


def _rank(source: str) -> int:
    return next((place for place, name in enumerate(ORDER) if source.endswith(name)), len(ORDER))


def _is_confirmed(
    source: str,
    affine: Affine,
    coordinates: Affine,
    shape: tuple[int, int],
    is_point: bool,
    path: str,
    findings: list[Finding],
) -> bool:
    """Whether the stated affine counts beside the coordinates'; a finding tells how the two differ."""
    shifts = _shifts(affine, coordinates, shape)
    largest = max(abs(shift) for pair in shifts for shift in pair)
    if largest <= TOLERANCE:
        return True
    is_constant = all(abs(one - other) <= TOLERANCE for one, other in zip(*shifts, strict=True))
    is_half = all(min(abs(abs(shift) - 0.5), abs(shift)) <= TOLERANCE for pair in shifts for shift in pair)
    if is_constant and is_half:
        if is_point and source.endswith("GeoTransform"):
            message = f"{source} gives the first point, as AREA_OR_POINT allows; the coordinates count"
            findings.append(Finding("GZ-29", "note", path, message, list(coordinates), list(affine)))
            return False
        message = f"coordinates are half a cell off {source}: edges taken for centres; {source} counts"
        findings.append(Finding("GZ-29", "error", path, message, list(affine), list(coordinates)))
        return True
    message = f"{source} is up to {largest:.4g} cells off the coordinates; the coordinates count"
    findings.append(Finding("MS-28", "error", path, message, list(coordinates), list(affine)))
    return False


def _shifts(affine: Affine, other: Affine, shape: tuple[int, int]) -> list[tuple[float, float]]:
    """(right, down) distances of another affine in cells, at the centres of the first and the last cell."""
    height, width = affine.cell
    shifts = []
    for column, row in ((0.5, 0.5), (shape[1] - 0.5, shape[0] - 0.5)):
        (x, y), (other_x, other_y) = affine.at(column, row), other.at(column, row)
        shifts.append(((other_x - x) / width, (other_y - y) / height))
    return shifts


def _compare(
    other: tuple[str, Affine],
    chosen: tuple[str, Affine],
    shape: tuple[int, int],
    is_point: bool,
    path: str,
    findings: list[Finding],
) -> None:
    """Find that another stated affine differs from the chosen one."""
    if other[0] == "layout":
        # What a layout says of its levels has a rule of its own.
        return
    largest = max(abs(shift) for pair in _shifts(chosen[1], other[1], shape) for shift in pair)
    may_be_half = is_point and other[0].endswith("GeoTransform")
    if largest > (0.5 + TOLERANCE if may_be_half else TOLERANCE):
        message = f"{other[0]} is up to {largest:.4g} cells off {chosen[0]}, which counts"
        findings.append(Finding("MS-28", "error", path, message, list(chosen[1]), list(other[1])))


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
    """An array of data on the ground: its y and x dimension, and each convention's facts about it, in order.

    is_known   whether anything tells which dimensions are y and x; else they are the last two
    """

    node: Any
    facts: tuple[Facts, ...]
    y: int
    x: int
    is_known: bool

    @property
    def shape(self) -> tuple[int, int]:
        """(y, x) lengths."""
        return self.node.shape[self.y], self.node.shape[self.x]

    @property
    def dimensions(self) -> tuple[str, str]:
        """Names of the y and the x dimension; "" for one that has none."""
        names = self.node.dims or ()
        return (names[self.y] or "", names[self.x] or "") if names else ("", "")

    @property
    def others(self) -> list[int]:
        """Lengths of the other dimensions."""
        return [n for axis, n in enumerate(self.node.shape) if axis not in (self.y, self.x)]

    @property
    def tile(self) -> tuple[int, int]:
        """(y, x) lengths of the smallest readable block: a chunk, or an inner chunk of a shard."""
        return self.node.chunks[self.y], self.node.chunks[self.x]

    @property
    def stated_crs(self) -> list[tuple[str, Crs]]:
        """(source, CRS) of each CRS that is stated for the array or inherited from its group."""
        return [pair for facts in self.facts for pair in facts.crs]

    @property
    def crs(self) -> Crs | None:
        """The CRS that counts: the first stated one."""
        return next((crs for _, crs in self.stated_crs), None)

    @property
    def stated_affines(self) -> list[tuple[str, Affine]]:
        """(source, affine) of each affine that is stated; that of the coordinates is not among them."""
        return [pair for facts in self.facts for pair in facts.affines]

    @property
    def variable(self) -> Variable:
        """What the values mean: of each member, the first value that a convention states."""
        said = [facts.variable for facts in self.facts if facts.variable is not None]
        return first_of(Variable, said)


@dataclass
class LevelPlace:
    """One level of a pyramid: where it is, the grids it holds by name, and its own model, if it has one.

    A level that is an array holds one grid, whose name is "".
    """

    path: str
    node: Any
    grids: dict[str, Grid]
    geo: GeoModel | None = None
    affine: Affine | None = None
    factors: tuple[float, float] = (1.0, 1.0)

    @property
    def shape(self) -> tuple[int, int] | None:
        """(y, x) of the largest grid."""
        shapes = [grid.shape for grid in self.grids.values()]
        return max(shapes, key=lambda shape: shape[0] * shape[1], default=None)


def first_of(kind: type[T], stated: Sequence[T]) -> T:
    """One object of a kind: each of its members is the first value of `stated` that is not empty."""
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
    """The number of cells of a grid of that shape; 0 where the shape is not known."""
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
    if scale is not None and not np.allclose(scale, factors, rtol=1e-6):
        message = (
            f"transform.scale of level {entry.path!r} comes to {scale} of the finest, its cells to {factors}"
        )
        findings.append(Finding("ZC-06", "warning", path, message, factors, scale))
    return Level(entry.path, geo.shape, affine, factors, entry.tile_shape)


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
    factors = [round(finest / mine) for finest, mine in zip(base_shape, shape, strict=True)]
    if all(f >= 1 and -(-n // f) == m for f, n, m in zip(factors, base_shape, shape, strict=True)):
        return (factors[0], factors[1])
    return None


def _snapped(factor: float) -> float:
    nearest = round(factor)
    return nearest if abs(factor - nearest) <= 1e-9 * factor else factor


def compare_levels(base: LevelPlace, level: LevelPlace, group: str, findings: list[Finding]) -> None:
    """Find where a level differs from the finest one: in its CRS, its arrays, or their meaning."""
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
    elif finest.others != grid.others:
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

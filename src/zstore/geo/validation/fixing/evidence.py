"""The CRS and position of grids whose attributes contradict each other: by the user's word, else by majority.

Every axis of a grid is judged by itself. Coordinates, transforms, the layout, tile matrices and bounding
boxes of all levels of a pyramid are statements about one line: the edge of the finest level's first cell, and
its step. The line that explains most of them counts where it explains three times as many as it contradicts.
Where the user says which attribute or convention to trust, its statements alone are heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, Facts, LevelEntry
from zstore.geo.conventions.content import rounding_of
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.levels import COORDINATES, TOLERANCE, Grid, LevelPlace, cell_count
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.validation.rules.values import compare_pixels
from zstore.geo.validation.view import ArrayView, Hierarchy, coordinate_of
from zstore.model.packing import quantum

# How many statements must stand against one.
WEIGHT = 3
LAYOUT, TILES = ("layout", "zarr_conventions"), ("tile_matrix_set", "geozarr")


def outweighs(supporting: int, contrary: int) -> bool:
    """Whether one number of statements outweighs a number of contradicting ones."""
    return contrary == 0 or supporting >= WEIGHT * contrary


class Line(NamedTuple):
    """The cells along one axis: the outer edge of the first one, and the step from one to the next."""

    first: float
    step: float

    def scaled(self, factor: float) -> Line:
        """The line with its cells scaled by a factor, from the same edge."""
        return Line(self.first, self.step * factor)

    def is_at(self, other: Line, count: int, tolerance: float = TOLERANCE) -> bool:
        """Whether the centres of `count` cells are the other line's, within a tolerance in cells."""
        small = tolerance * abs(self.step)
        ends = (0.5, count - 0.5)
        return all(abs(self.first + self.step * n - other.first - other.step * n) <= small for n in ends)

    def is_turned(self, other: Line, count: int) -> bool:
        """Whether the other line has the same cells in the other order."""
        return self.is_at(Line(other.first + other.step * count, -other.step), count)


def is_named(word: str, source: str, convention: str) -> bool:
    """Whether a word names an attribute, the object or array that has it, or its convention."""
    return word in (source, convention, *source.split("."))


@dataclass(frozen=True)
class Statement:
    """A statement of one attribute about an axis of one level.

    lines   the ways to read it, the usual one first
    is_box  whether it is a bounding box, which does not tell which way the cells run
    holder  the node that has the attribute
    """

    level: int
    source: str
    convention: str
    lines: tuple[Line, ...]
    is_box: bool = False
    holder: str = ""

    def says(self, line: Line, count: int) -> bool:
        """Whether the statement agrees with a line of its level."""
        if self.is_box:
            return any(line.is_at(own, count) or line.is_turned(own, count) for own in self.lines)
        return any(line.is_at(own, count) for own in self.lines)


class CrsStatement(NamedTuple):
    """A statement of one attribute about the CRS; statements of one `holder` count as one."""

    holder: str
    source: str
    convention: str
    crs: Crs


Told = TypeVar("Told", Statement, CrsStatement)


def parse_text_crs(value: Any) -> Crs | None:
    """The CRS of a value; None if it is no CRS."""
    try:
        return None if value is None else Crs.from_user(value)
    except MetadataError:
        return None


@dataclass(frozen=True)
class Settled:
    """The affine of a grid; None with the reason, if statements disagree and nothing decides.

    is_told  whether the user's word decides
    """

    affine: Affine | None
    trouble: str | None = None
    is_told: bool = False


@dataclass
class Evidence:
    """The affines and CRSs of grids by all statements in a hierarchy, each decided once.

    trust   the attributes and conventions to believe where statements disagree, the most trusted first
    """

    hierarchy: Hierarchy
    trust: Sequence[str] = ()
    _places: dict[str, Settled] = field(default_factory=dict)
    _pyramids: dict[str, dict[str, Settled]] = field(default_factory=dict)

    def pyramid_of(self, grid: Grid) -> tuple[Pyramid, LevelPlace] | None:
        """The pyramid of a grid, and the grid's level in it."""
        for pyramid in self.hierarchy.pyramids:
            for level in pyramid.levels:
                if any(held.node is grid.node for held in level.grids.values()):
                    return pyramid, level
        return None

    def settle(self, grid: Grid) -> Settled:
        """The affine of a grid by all statements about it, and those about its pyramid."""
        path = grid.node.path
        if path not in self._places:
            self._places[path] = self._settle(grid)
        return self._places[path]

    def settle_finest(self, grid: Grid) -> Settled:
        """The affine of the finest level's grid; by its own statements if levels disagree."""
        settled = self.settle(grid)
        if settled.trouble is None or min(len(list(self.own(grid, 0, axis))) for axis in (0, 1)) < 2:
            return settled
        read = self.hierarchy.meaning.read(grid.node).geo
        return self._settle_alone(grid, None if read is None else read.affine)

    def _settle(self, grid: Grid) -> Settled:
        place = self.pyramid_of(grid)
        read = self.hierarchy.meaning.read(grid.node).geo
        if place is None:
            return self._settle_alone(grid, None if read is None else read.affine)
        pyramid, level = place
        if grid.shape != level.shape:
            return Settled(None if read is None else read.affine)
        if pyramid.group.path not in self._pyramids:
            self._pyramids[pyramid.group.path] = self._settle_pyramid(pyramid)
        return self._pyramids[pyramid.group.path].get(level.path, Settled(level.affine))

    def settle_crs(self, grid: Grid) -> tuple[Crs | None, list[CrsStatement]]:
        """(the CRS of a grid, None without; the statements that disagree about it, where nothing decides).

        Those about the array itself and its group count; where there is none, those of the groups above and
        of the tile matrix set. Of a pyramid, where they disagree, the CRS that outweighs all others.
        """
        stated, place = self._crs_of(grid.facts), self.pyramid_of(grid)
        if not stated:
            above = (self.hierarchy.meaning.facts(group) for group in grid.node.ancestors())
            stated = [found for facts in above for found in self._crs_of(facts)]
        of_all = [] if place is None else self._pyramid_crs(place[0])
        heard = self.heard([*stated, *of_all])
        if heard:
            stated, of_all = heard, []
        text = grid.node.attrs.get("_CRS")
        if not stated and isinstance(text, str):
            # GDAL takes no text there; what it says is plain all the same.
            return parse_text_crs(text), []
        votes: list[tuple[Crs, set[str]]] = []
        for found in of_all:
            held = next((holders for known, holders in votes if known.is_same(found.crs)), None)
            if held is None:
                votes.append((found.crs, {found.holder}))
            else:
                held.add(found.holder)
        votes.sort(key=lambda vote: -len(vote[1]))
        if len(votes) > 1 and outweighs(len(votes[0][1]), sum(len(holders) for _, holders in votes[1:])):
            return votes[0][0], []
        if any(not found.crs.is_same(stated[0].crs) for found in stated):
            return None, stated
        return (stated[0].crs if stated else None), []

    def is_told(self, grid: Grid) -> bool:
        """Whether the user's word decides the CRS of a grid."""
        return bool(self.heard(self._crs_of(grid.facts)))

    def sources(self) -> Iterator[tuple[str, str]]:
        """(attribute, convention) of every statement of a CRS or a position."""
        meaning, pyramids = self.hierarchy.meaning, self.hierarchy.pyramids
        nodes = [*(pyramid.group for pyramid in pyramids), *(g.node for g in self.hierarchy.grids.values())]
        yield from (pair for _ in pyramids for pair in (LAYOUT, TILES))
        for node in nodes:
            for convention, facts in zip(meaning.conventions, meaning.facts(node), strict=True):
                yield from ((source, convention.name) for source, _ in (*facts.crs, *facts.affines))
                if facts.coordinate_dimensions is not None:
                    yield COORDINATES, convention.name

    def heard(self, statements: Sequence[Told]) -> list[Told]:
        """The statements of the first trusted attribute or convention that has any; [] without."""
        found = ([s for s in statements if is_named(word, s.source, s.convention)] for word in self.trust)
        return next((trusted for trusted in found if trusted), [])

    def _crs_of(self, facts: Sequence[Facts], holder: Callable[[str], str] = str) -> list[CrsStatement]:
        said = zip(self.hierarchy.meaning.conventions, facts, strict=True)
        return [
            CrsStatement(holder(source), source, convention.name, crs)
            for convention, found in said
            for source, crs in found.crs
        ]

    def _pyramid_crs(self, pyramid: Pyramid) -> list[CrsStatement]:
        """The statements of a CRS about a pyramid and its levels, each with the holder that counts once."""
        stated: list[CrsStatement] = []
        for level in pyramid.levels:
            for grid in level.grids.values():
                path = grid.node.path

                def holder(source: str, level: str = level.path, path: str = path) -> str:
                    if source.startswith("_CRS"):
                        return f"{path} _CRS"
                    return f"{level} {source if source.startswith('proj:') else source.partition('.')[0]}"

                stated += self._crs_of(grid.facts, holder)
        return [*stated, *self._crs_of(self.hierarchy.meaning.facts(pyramid.group))]

    def own(self, grid: Grid, level: int, axis: int) -> Iterator[Statement]:
        """The statements of coordinates, transforms and bounding boxes about an axis of one grid."""
        lines = _coordinate_lines(grid, axis)
        if lines:
            yield Statement(level, COORDINATES, "cf", lines, holder=f"level {level}")
        yield from self._said(grid, grid.facts, level, axis, f"level {level}")

    def _said(
        self, grid: Grid, facts: Sequence[Facts], level: int, axis: int, holder: str
    ) -> Iterator[Statement]:
        """The statements of transforms and bounding boxes about an axis of a grid."""
        is_point = grid.node.attrs.get("AREA_OR_POINT") == "Point"
        for convention, found in zip(self.hierarchy.meaning.conventions, facts, strict=True):
            for source, affine in found.affines:
                plain = _unrotated(affine)
                # A GeoTransform may give the first point's centre where the cells are points.
                if plain is not None and not (is_point and source.endswith("GeoTransform")):
                    lines = (_line_of(plain, axis),)
                    yield Statement(level, source, convention.name, lines, holder=holder)
            if found.bbox is not None:
                lines = (_box_line(found.bbox, axis, grid.shape[axis]),)
                yield Statement(level, "spatial:bbox", convention.name, lines, True, holder)

    def _settle_axes(self, axes: Sequence[Axis], read: Affine | None) -> tuple[list[Line], str | None, bool]:
        """(the line of each axis, the reason where one has none, whether the user's word decides)."""
        lines: list[Line] = []
        is_told = False
        for number, axis in enumerate(axes):
            heard = self.heard([s for s in axis.statements if not s.is_box])
            is_told = is_told or bool(heard)
            own = None if read is None else _line_of(read, number)
            line, trouble = axis._replace(statements=heard or axis.statements).settle(own)
            if line is None:
                return lines, trouble or "nothing says where the levels lie", is_told
            lines.append(line)
        return lines, None, is_told

    def _settle_alone(self, grid: Grid, read: Affine | None) -> Settled:
        """The affine of a raster without levels, unless its rows or columns may run either way.

        Coordinates that contradict transforms count, as those of a raster that was cut do: the transforms
        were left behind. Rows that run the other way do not come from cutting, and nothing but the cells' own
        content tells which is right.
        """
        rotated = (affine for _, affine in grid.stated_affines if _unrotated(affine) is None)
        if read is None or read.is_rotated or any(rotated):
            return Settled(read)
        said = [Axis(list(self.own(grid, 0, n)), [grid.shape[n]], [(1.0,)]) for n in (0, 1)]
        lines, trouble, is_told = self._settle_axes(said, read)
        for axis in (0, 1) if trouble is None and not is_told else ():
            # What is wrong about one axis is no witness for the other, where it is the only one.
            borne_out, wrong = (
                {s.source for s in said[n].statements if said[n].supports(lines[n], s) is is_right}
                for n, is_right in ((axis, True), (1 - axis, False))
            )
            if borne_out and borne_out <= wrong:
                only = f"{', '.join(sorted(borne_out))} alone says where {'columns' if axis else 'rows'} lie"
                trouble = f"{only}, and is wrong about the {'rows' if axis else 'columns'}"
                break
        return Settled(None, trouble) if trouble else Settled(_affine_of(*lines), is_told=is_told)

    def _settle_pyramid(self, pyramid: Pyramid) -> dict[str, Settled]:
        """The affine of each level of a pyramid, by path."""
        levels = [level for level in pyramid.levels if level.shape is not None and 0 not in level.shape]
        # Their cells may be told wrongly; how many there are is a fact.
        levels.sort(key=lambda level: -cell_count(level.shape))
        grids = [next(g for g in level.grids.values() if g.shape == level.shape) for level in levels]
        affines = [affine for grid in grids for _, affine in grid.stated_affines]
        affines += [level.affine for level in levels if level.affine is not None]
        if not levels or any(affine.is_rotated for affine in affines):
            return {}
        said = [self._axis(pyramid, levels, grids, axis) for axis in (0, 1)]
        lines, trouble, is_told = self._settle_axes(said, levels[0].affine)
        if trouble is not None:
            is_stated = bool(said[len(lines)].statements)
            return {level.path: Settled(None, trouble) for level in levels} if is_stated else {}
        factors = [[said[n].factor(lines[n], level) for level in range(len(levels))] for n in (0, 1)]
        rewritten = {
            s.level
            for axis, line in zip(said, lines, strict=True)
            for s in axis.statements
            if not s.is_box and not axis.supports(line, s)
        }
        result: dict[str, Settled] = {}
        for number, level in enumerate(levels):
            trouble = _pixels_against(pyramid, number, levels, rewritten, factors) if rewritten else None
            own = (line.scaled(found[number]) for line, found in zip(lines, factors, strict=True))
            result[level.path] = Settled(None if trouble else _affine_of(*own), trouble, is_told)
        return result

    def _axis(self, pyramid: Pyramid, levels: Sequence[LevelPlace], grids: Sequence[Grid], axis: int) -> Axis:
        """All statements about an axis: of the levels, the layout, the tile matrices and the group."""
        meaning, stated = self.hierarchy.meaning, list[Statement]()
        said = {entry.path: entry for entry in meaning.said(pyramid.group).levels or ()}
        for n, (level, grid) in enumerate(zip(levels, grids, strict=True)):
            stated += self.own(grid, n, axis)
            entry = said.get(level.path, LevelEntry(level.path))
            if entry.affine is not None and not entry.affine.is_rotated:
                stated.append(Statement(n, *LAYOUT, (_line_of(entry.affine, axis),), holder=f"level {n}"))
            tiles, beyond = entry.fallback_affine, -1
            if entry.extent is not None and entry.tile_shape is not None:
                beyond = entry.extent[axis] - grid.shape[axis]
            if tiles is not None and 0 <= beyond < (entry.tile_shape or (0, 0))[axis]:
                stated.append(Statement(n, *TILES, (_line_of(tiles, axis),), holder=f"level {n}"))
        if pyramid.group.attrs.get("spatial:shape") in (None, list(grids[0].shape)):
            stated += self._said(grids[0], meaning.facts(pyramid.group), 0, axis, "the group")
        factors = [_factors(levels[0], level, axis, said.get(level.path)) for level in levels]
        return Axis(stated, [grid.shape[axis] for grid in grids], factors)


def _affine_of(y: Line, x: Line) -> Affine:
    return Affine(x.step, 0.0, x.first, 0.0, y.step, y.first)


def fit_line(coordinate: ArrayView, values: np.ndarray[Any, Any] | None) -> Line | None:
    """The line whose centres are a coordinate's decoded values; None if they are not regular."""
    if values is None or values.ndim != 1 or len(values) < 2 or values.dtype.kind not in "iuf":
        return None
    centres = values.astype(np.float64)
    if not np.isfinite(centres).all() or centres[-1] == centres[0]:
        return None
    step = float(centres[-1] - centres[0]) / (len(centres) - 1)
    rounding = rounding_of(coordinate, centres)
    rounding += min(quantum(coordinate.attrs, coordinate.dtype), TOLERANCE * abs(step))
    if np.abs(centres - (centres[0] + step * np.arange(len(centres)))).max() > 1e-3 * abs(step) + rounding:
        return None
    return Line(float(centres[0]) - step / 2, step)


def _line_of(affine: Affine, axis: int) -> Line:
    return Line(affine.f, affine.e) if axis == 0 else Line(affine.c, affine.a)


def _coordinate_lines(grid: Grid, axis: int) -> tuple[Line, ...]:
    """The lines of an axis by its coordinates: decoded, then by their bare numbers."""
    read = next((f.coordinate_affine for f in grid.facts if f.coordinate_affine is not None), None)
    coordinate = coordinate_of(grid.node, grid.dimensions[axis])
    lines = [] if read is None else [_line_of(read, axis)]
    if coordinate is not None and coordinate.shape == (grid.shape[axis],):
        plain = fit_line(coordinate, coordinate.values())
        if plain is not None and not (lines and lines[0].is_at(plain, grid.shape[axis], 1e-6)):
            lines.append(plain)
    return tuple(lines)


def _unrotated(affine: Affine) -> Affine | None:
    """The affine, or its six numbers in the other order in use; None if either is rotated."""
    if not affine.is_rotated:
        return affine
    try:
        other = Affine.from_user(affine.geotransform)
    except MetadataError:
        return None
    return None if other.is_rotated else other


def _box_line(bbox: tuple[float, float, float, float], axis: int, count: int) -> Line:
    low, high = (bbox[1], bbox[3]) if axis == 0 else (bbox[0], bbox[2])
    return Line(low, (high - low) / count)


class Axis(NamedTuple):
    """One axis of a pyramid, or of a raster as its only level: all statements about it.

    counts, factors  of every level: how many cells it has along the axis, and how many of the finest's one of
                     them may be
    """

    statements: Sequence[Statement]
    counts: Sequence[int]
    factors: Sequence[Sequence[float]]

    def settle(self, read: Line | None) -> tuple[Line | None, str | None]:
        """(the finest level's line, None), or (None, the reason); `read` is the line chosen by reading."""
        known: list[Line] = []
        for statement in sorted(self.statements, key=lambda s: s.level):
            for line in () if statement.is_box else statement.lines:
                for factor in self.factors[statement.level]:
                    base = line.scaled(1 / factor)
                    if not any(base.is_at(other, self.counts[0]) for other in known):
                        known.append(base)
        if not known:
            return read, None
        held = [statement for statement in self.statements if statement.source == COORDINATES]
        # Coordinates that are the numbers of rows or columns say no place.
        counted = [s for s in held if any(n.step == 1 and n.first in (-0.5, 0.0, 0.5) for n in s.lines)]
        indices = counted if len(known) > 1 else []
        others = [s for s in self.statements if s not in indices]
        best = max(known, key=lambda line: sum(self.supports(line, s) for s in others))
        if read is not None and all(self.supports(read, statement) for statement in self.statements):
            return read, None
        contrary = [s for s in others if not self.supports(best, s)]
        weight = len(others) - len(contrary)
        held = [s for s in held if s not in indices]
        agreed = next((line for line in known if held and all(self.supports(line, s) for s in held)), None)
        if agreed is None or best is agreed:
            is_cut = agreed is not None and not self._is_turned(best, contrary)
            if outweighs(weight, len(contrary)) or is_cut:
                return self._exact(best, read), None
            return None, self._disagreement(others, best)
        if any(self._is_half_off(best, s) for s in held):
            # Edges that were taken for centres.
            return (self._exact(best, read), None) if outweighs(weight, len(held)) else (read, None)
        if self._is_turned(best, held):
            return None, self._disagreement(others, best)
        return self._exact(agreed, read), None

    def supports(self, line: Line, statement: Statement) -> bool:
        """Whether a statement agrees with a line of the finest level."""
        count = self.counts[statement.level]
        return any(statement.says(own, count) for own in self._scaled(line, statement))

    def factor(self, line: Line, level: int) -> float:
        """The factor of a level that most statements about it support."""
        own, count = [s for s in self.statements if s.level == level], self.counts[level]
        return max(self.factors[level], key=lambda f: sum(s.says(line.scaled(f), count) for s in own))

    def _scaled(self, line: Line, statement: Statement) -> list[Line]:
        """The lines that a statement's level may have, if the finest level has that one."""
        return [line.scaled(factor) for factor in self.factors[statement.level]]

    def _exact(self, line: Line, read: Line | None) -> Line:
        """The line in the documents, if it agrees: coordinates may be rounded, transforms are not."""
        return read if read is not None and read.is_at(line, self.counts[0]) else line

    def _is_turned(self, line: Line, statements: Sequence[Statement]) -> bool:
        """Whether one of the statements has the cells of a line in the other order."""
        return any(
            own.is_turned(found, self.counts[s.level])
            for s in statements
            for own in ([] if s.is_box else self._scaled(line, s))
            for found in s.lines
        )

    def _is_half_off(self, line: Line, statement: Statement) -> bool:
        """Whether a statement is half a cell off a line."""
        lines = self._scaled(line, statement)
        shifted = [own._replace(first=own.first + n * own.step) for own in lines for n in (-0.5, 0.5)]
        return any(own.is_at(s, self.counts[statement.level]) for own in shifted for s in statement.lines)

    def _disagreement(self, statements: Sequence[Statement], best: Line) -> str:
        """The statements for and against a line, in words."""
        sides: dict[bool, dict[str, None]] = {True: {}, False: {}}
        for s in statements:
            sides[self.supports(best, s)][f"{s.source} of {s.holder}"] = None
        words = [", ".join(list(side)[:3]) + (", ..." if len(side) > 3 else "") for side in sides.values()]
        return f"{words[0]} against {words[1]}: what is right cannot be told; expected --trust"


def _factors(base: LevelPlace, level: LevelPlace, axis: int, entry: LevelEntry | None) -> tuple[float, ...]:
    """The lengths, in cells of the finest level, that a cell of a level may have along an axis."""
    if base.shape is None or level.shape is None or not level.shape[axis]:
        return ()
    n, m = base.shape[axis], level.shape[axis]
    whole = round(n / m)
    found: dict[float, None] = {}
    if whole >= 1 and m in (n // whole, -(-n // whole)):
        found[float(whole)] = None
    found[n / m] = None
    scale = None if entry is None or entry.scale is None else entry.scale[axis]
    if scale is not None and scale > 0 and abs(n / m - scale) < scale / max(m, 1) * 2:
        found[float(scale)] = None
    return tuple(found)


def _pixels_against(
    pyramid: Pyramid,
    number: int,
    levels: Sequence[LevelPlace],
    rewritten: set[int],
    factors: Sequence[Sequence[float]],
) -> str | None:
    """The reason why a level's cells contradict its affine: they are the finest's reordered; else None."""
    if number == 0 or not rewritten & {0, number}:
        return None
    found = compare_pixels(pyramid, levels[number], levels[0], (factors[0][number], factors[1][number]))
    if found is not None and found != (False, False):
        ways = [name for name, is_turned in zip(("rows", "columns"), found, strict=True) if is_turned]
        return f"the {' and '.join(ways)} of level {levels[number].path!r} are stored the other way round"
    return None

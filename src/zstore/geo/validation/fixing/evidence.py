"""The CRS and position of grids whose attributes contradict each other: by the user's word, else by majority.

Every axis of a grid is judged by itself. Coordinates, transforms, the layout, tile matrices and bounding
boxes of all levels of a pyramid are statements about one line: the edge of the finest level's first cell, and
its step. The line that explains most of them counts where it explains three times as many as it contradicts.
Where the user says which attribute or convention to trust, its statements alone are heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from zstore.base.once import once
from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, Facts, LevelEntry
from zstore.geo.conventions.content import fit_line
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import member_of
from zstore.geo.conventions.levels import (
    BOX,
    COORDINATES,
    LAYOUT,
    TILES,
    TRANSFORMATIONS,
    Grid,
    LevelPlace,
    Line,
    Statement,
    cell_count,
    statements_of,
    whole_factor,
)
from zstore.geo.conventions.meaning import Pyramid, holder_of
from zstore.geo.validation.rules.values import compare_pixels
from zstore.geo.validation.view import Hierarchy, coordinate_of

# How many statements must stand against one.
WEIGHT = 3
# In cells: nearer to where picked cells are, coordinates are not there by chance.
NEAR = 0.02
PICKED = "coordinates are every so many of the finest level's, as picking cells would have it"


def outweighs(supporting: int, contrary: int) -> bool:
    """Whether one number of statements outweighs a number of contradicting ones."""
    return contrary == 0 or supporting >= WEIGHT * contrary


def is_named(word: str, source: str, convention: str) -> bool:
    """Whether a word names an attribute, the object or array that has it, or its convention."""
    return word in (source, convention, *source.split("."))


class AxisStatement(NamedTuple):
    """The statement of one attribute about an axis of one level.

    lines   the ways to read it, the usual one first
    holder  the level, or the group, that has the attribute
    """

    level: int
    source: str
    convention: str
    lines: tuple[Line, ...]
    holder: str

    @property
    def is_box(self) -> bool:
        """Whether it is a bounding box, which does not tell which way the cells run."""
        return self.source == BOX

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


Told = TypeVar("Told", AxisStatement, CrsStatement)


def parse_text_crs(value: Any) -> Crs | None:
    """The CRS of a value; None if it is no CRS."""
    try:
        return None if value is None else Crs.from_user(value)
    except MetadataError:
        return None


@dataclass(frozen=True)
class Settled:
    """The affine of a grid; None with the reason, if statements disagree and nothing decides.

    rule  that the reason belongs to
    """

    affine: Affine | None
    trouble: str | None = None
    rule: str = "MS-28"


@dataclass
class Evidence:
    """The affines and CRSs of grids by all statements in a hierarchy, each decided once.

    trust   the attributes and conventions to believe where statements disagree, the most trusted first
    """

    hierarchy: Hierarchy
    trust: Sequence[str] = ()
    _settled: dict[str, Settled] = field(default_factory=dict)
    _crss: dict[str, tuple[Crs | None, list[CrsStatement]]] = field(default_factory=dict)

    @once
    def _levels(self) -> dict[str, tuple[Pyramid, LevelPlace]]:
        """By path of an array, the first pyramid of which it is a level, and that level."""
        found: dict[str, tuple[Pyramid, LevelPlace]] = {}
        for pyramid in self.hierarchy.pyramids:
            for level in pyramid.levels:
                for grid in level.grids.values():
                    found.setdefault(grid.node.path, (pyramid, level))
        return found

    def pyramid_of(self, grid: Grid) -> tuple[Pyramid, LevelPlace] | None:
        """The pyramid of a grid, and the grid's level in it."""
        return self._levels.get(grid.node.path)

    def settle(self, grid: Grid) -> Settled:
        """The affine of a grid by all statements about it, and those about its pyramid."""
        path, place = grid.node.path, self.pyramid_of(grid)
        if path not in self._settled:
            if place is not None and grid.shape == place[1].shape:
                self._settle(place[0], [level for level in place[0].levels if level.grids])
            else:
                geo = self.hierarchy.meaning.read(grid.node).geo
                alone = LevelPlace("", grid.node, {"": grid}, affine=None if geo is None else geo.affine)
                self._settled[path] = Settled(alone.affine)
                if place is None and alone.affine is not None:
                    self._settle(None, [alone])
        return self._settled[path]

    def settle_crs(self, grid: Grid) -> tuple[Crs | None, list[CrsStatement]]:
        """(the CRS of a grid, None without; the statements that disagree about it, where nothing decides).

        Those about the array itself and its group count; where there is none, those of the groups above and
        of the tile matrix set. Of a pyramid, where they disagree, the CRS that outweighs all others.
        """
        path = grid.node.path
        if path not in self._crss:
            self._crss[path] = self._settle_crs(grid)
        return self._crss[path]

    def _settle_crs(self, grid: Grid) -> tuple[Crs | None, list[CrsStatement]]:
        node, facts, place = grid.node, self.hierarchy.meaning.facts, self.pyramid_of(grid)
        stated = _crs_of(node, grid.facts)
        if not stated:
            stated = [found for group in node.ancestors() for found in _crs_of(node, facts(group))]
        of_all: list[CrsStatement] = []
        if place is not None:
            held = (held for level in place[0].levels for held in level.grids.values())
            of_all = [found for other in held for found in _crs_of(other.node, other.facts)]
            of_all += _crs_of(place[0].group, facts(place[0].group))
        heard = self.heard([*stated, *of_all])
        if heard:
            stated, of_all = heard, []
        text = node.attrs.get("_CRS")
        if not stated and isinstance(text, str):
            # GDAL takes no text there; what it says is plain all the same.
            return parse_text_crs(text), []
        votes: dict[Crs, set[str]] = {}
        for said in of_all:
            known = next((crs for crs in votes if crs.is_same(said.crs)), said.crs)
            votes.setdefault(known, set()).add(said.holder)
        ranked = sorted(votes, key=lambda crs: -len(votes[crs]))
        counts = [len(votes[crs]) for crs in ranked]
        if len(ranked) > 1 and outweighs(counts[0], sum(counts[1:])):
            return ranked[0], []
        if any(not found.crs.is_same(stated[0].crs) for found in stated):
            return None, stated
        return (stated[0].crs if stated else None), []

    def is_told(self, grid: Grid) -> bool:
        """Whether the user's word decides the CRS of a grid."""
        return bool(self.heard(_crs_of(grid.node, grid.facts)))

    def sources(self) -> Iterator[tuple[str, str]]:
        """(attribute, convention) of every statement of a CRS or a position."""
        pyramids, grids = self.hierarchy.pyramids, self.hierarchy.grids.values()
        yield from (pair for _ in pyramids for pair in ((LAYOUT, "zarr_conventions"), (TILES, "geozarr")))
        said = [self.hierarchy.meaning.facts(pyramid.group) for pyramid in pyramids]
        for facts in (facts for found in (*said, *(grid.facts for grid in grids)) for facts in found):
            yield from ((source, facts.convention) for source, _ in (*facts.crs, *facts.affines))
            if facts.coordinate_dimensions is not None:
                yield COORDINATES, facts.convention

    def heard(self, statements: Sequence[Told]) -> list[Told]:
        """The statements of the first trusted attribute or convention that has any; [] without."""
        found = ([s for s in statements if is_named(word, s.source, s.convention)] for word in self.trust)
        return next((trusted for trusted in found if trusted), [])

    def _settle(self, pyramid: Pyramid | None, levels: list[LevelPlace]) -> None:
        """Settle the affines of the levels of a pyramid, or of a raster without levels.

        Coordinates that contradict transforms count, as those of a raster that was cut do: the transforms
        were left behind. Rows that run the other way do not come from cutting, and nothing but the cells' own
        content tells which is right.
        """
        # Their cells may be told wrongly; how many there are is a fact.
        levels.sort(key=lambda level: -cell_count(level.shape))
        grids = [next(g for g in level.grids.values() if g.shape == level.shape) for level in levels]
        for level in levels:
            self._keep(level, Settled(level.affine))
        stated = [affine for grid in grids for _, affine in grid.stated_affines]
        is_rotated = any(level.affine is not None and level.affine.is_rotated for level in levels)
        if not levels or is_rotated or any(_unrotated(affine) is None for affine in stated):
            return
        said = [self._axis(pyramid, levels, grids, axis) for axis in (0, 1)]
        read = None if levels[0].affine is None else lines_of(levels[0].affine)
        lines, is_told = list[Line](), False
        for number, axis in enumerate(said):
            heard = self.heard([s for s in axis.statements if not s.is_box])
            is_told = is_told or bool(heard)
            weighed = axis._replace(statements=heard or axis.statements)
            line, trouble = weighed.settle(None if read is None else read[number])
            if line is None:
                trouble = trouble or "nothing says where the levels lie"
                for level in levels if axis.statements else ():
                    self._keep(level, Settled(None, trouble))
                return
            lines.append(line)
        only = None if pyramid is not None or is_told else _sole_witness(said, lines)
        factors = [
            [axis.factor(line, n) for n in range(len(levels))] for axis, line in zip(said, lines, strict=True)
        ]
        against = [
            s for axis, line in zip(said, lines, strict=True) for s in axis.contrary(line) if not s.is_box
        ]
        method = None if pyramid is None else member_of(pyramid.stated, "resampling_method")
        for n, level in enumerate(levels):
            trouble = only or _pixels_against(pyramid, n, levels, {s.level for s in against}, factors)
            own = [line.scaled(found[n]) for line, found in zip(lines, factors, strict=True)]
            picked = [axis.is_picked(line, n) for axis, line in zip(said, lines, strict=True)]
            if trouble is not None:
                self._keep(level, Settled(None, trouble))
            elif n and not is_told and method in (None, "nearest") and None not in picked and any(picked):
                self._keep(level, Settled(None, PICKED, "MS-14"))
            else:
                self._keep(level, Settled(_affine_of(*own)))

    def _keep(self, level: LevelPlace, settled: Settled) -> None:
        """Keep the affine of a level for its grids."""
        paths = [held.node.path for held in level.grids.values() if held.shape == level.shape]
        self._settled |= dict.fromkeys(paths, settled)

    def _axis(
        self, pyramid: Pyramid | None, levels: Sequence[LevelPlace], grids: Sequence[Grid], axis: int
    ) -> Axis:
        """All statements about an axis: of the levels, the layout, the tile matrices and the group."""
        group, stated = None if pyramid is None else pyramid.group, list[AxisStatement]()
        entries = {} if pyramid is None else pyramid.entries
        for n, (level, grid) in enumerate(zip(levels, grids, strict=True)):
            stated += _said_of(grid, n, axis, entries.get(level.path))
        if group is not None and group.attrs.get("spatial:shape") in (None, list(grids[0].shape)):
            facts = self.hierarchy.meaning.facts(group)
            stated += _on_axis(grids[0], statements_of(facts, None, grids[0].shape), 0, axis, "the group")
        factors = [_factors(levels[0], level, axis, entries.get(level.path)) for level in levels]
        return Axis(stated, [grid.shape[axis] for grid in grids], factors)


def _sole_witness(axes: Sequence[Axis], lines: Sequence[Line]) -> str | None:
    """The reason to doubt one axis, if all statements about it are wrong about the other axis; else None."""
    for n, word, other in ((0, "rows", "columns"), (1, "columns", "rows")):
        against = {s.source for s in axes[1 - n].contrary(lines[1 - n])}
        wrong = {s.source for s in axes[n].contrary(lines[n])}
        borne_out = {s.source for s in axes[n].statements} - wrong
        if borne_out and borne_out <= against:
            only = ", ".join(sorted(borne_out))
            return f"{only} alone says where {word} lie, and is wrong about the {other}"
    return None


def _crs_of(node: Any, facts: Sequence[Facts]) -> list[CrsStatement]:
    """The statements of a CRS about a node; members of one attribute of one node are one witness."""
    return [
        CrsStatement(f"{holder_of(node, source)} {source.partition('.')[0]}", source, found.convention, crs)
        for found in facts
        for source, crs in found.crs
    ]


def _said_of(grid: Grid, level: int, axis: int, entry: LevelEntry | None = None) -> Iterator[AxisStatement]:
    """The statements of coordinates, transforms, lists of levels and boxes about an axis of one grid."""
    lines, holder = _coordinate_lines(grid, axis), f"level {level}"
    if lines:
        yield AxisStatement(level, COORDINATES, "cf", lines, holder)
    beyond = -1
    if entry is not None and entry.extent is not None:
        beyond = entry.extent[axis] - grid.shape[axis]
    for found in _on_axis(grid, statements_of(grid.facts, entry, grid.shape), level, axis, holder):
        # A tile matrix tells the place of a level that fills it.
        if found.source != TILES or (entry and 0 <= beyond < (entry.tile_shape or (0, 0))[axis]):
            yield found


def _on_axis(
    grid: Grid, said: Sequence[Statement], level: int, axis: int, holder: str
) -> Iterator[AxisStatement]:
    """The statements of documents about one axis of a grid."""
    for found in said:
        plain = _unrotated(found.affine)
        if plain is not None and not found.is_point and found.source not in (COORDINATES, TRANSFORMATIONS):
            yield AxisStatement(level, found.source, found.convention, (lines_of(plain)[axis],), holder)


def _affine_of(y: Line, x: Line) -> Affine:
    return Affine(x.step, 0.0, x.first, 0.0, y.step, y.first)


def lines_of(affine: Affine) -> tuple[Line, Line]:
    """The lines of the rows and of the columns of an affine that is not rotated."""
    return Line(affine.f, affine.e), Line(affine.c, affine.a)


def _coordinate_lines(grid: Grid, axis: int) -> tuple[Line, ...]:
    """The lines of an axis by its coordinates: decoded, then by their bare numbers."""
    read = next((f.coordinate_affine for f in grid.facts if f.coordinate_affine is not None), None)
    coordinate = coordinate_of(grid.node, grid.dimensions[axis])
    lines = [] if read is None else [lines_of(read)[axis]]
    if coordinate is not None and coordinate.shape == (grid.shape[axis],):
        plain = fit_line(coordinate)
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


class Axis(NamedTuple):
    """One axis of a pyramid, or of a raster as its only level: all statements about it.

    counts, factors  of every level: how many cells it has along the axis, and how many of the finest's one of
                     them may be
    """

    statements: Sequence[AxisStatement]
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
        # Coordinates of coarser levels that are off by a mistake often made are no witnesses against it.
        rest = [s for s in contrary if not (s.level and s.source == COORDINATES and self._is_off(best, s))]
        if contrary and not rest:
            # The finest level has the corner of all.
            return self._exact(best, read), None
        weight = len(others) - len(contrary)
        held = [s for s in held if s not in indices]
        agreed = next((line for line in known if held and all(self.supports(line, s) for s in held)), None)
        if agreed is None or best is agreed:
            is_cut = agreed is not None and not self._is_turned(best, contrary)
            if outweighs(weight, len(rest)) or is_cut:
                return self._exact(best, read), None
            return None, self._disagreement(others, best)
        if any(self._is_off(best, s) for s in held):
            # Edges that were taken for centres.
            return (self._exact(best, read), None) if outweighs(weight, len(held)) else (read, None)
        if self._is_turned(best, held):
            return None, self._disagreement(others, best)
        return self._exact(agreed, read), None

    def supports(self, line: Line, statement: AxisStatement) -> bool:
        """Whether a statement agrees with a line of the finest level."""
        count = self.counts[statement.level]
        return any(statement.says(own, count) for own in self._scaled(line, statement))

    def contrary(self, line: Line) -> list[AxisStatement]:
        """The statements that contradict a line of the finest level."""
        return [statement for statement in self.statements if not self.supports(line, statement)]

    def factor(self, line: Line, level: int) -> float:
        """The factor of a level that most statements about it support.

        The whole one where its coordinates are edges of cells that fill the finest's extent: its odd last
        cells were left out, and the steps stretched.
        """
        own, count = [s for s in self.statements if s.level == level], self.counts[level]
        whole, *others = self.factors[level]
        edges = [line.scaled(factor).moved(-0.5) for factor in others if whole.is_integer()]
        held = [found for s in own if s.source == COORDINATES for found in s.lines]
        if any(edge.is_at(found, count) for edge in edges for found in held):
            return whole
        return max(self.factors[level], key=lambda f: sum(s.says(line.scaled(f), count) for s in own))

    def _scaled(self, line: Line, statement: AxisStatement) -> list[Line]:
        """The possible lines of a statement's level, if the finest level has this line."""
        return [line.scaled(factor) for factor in self.factors[statement.level]]

    def _exact(self, line: Line, read: Line | None) -> Line:
        """The line of the documents if it agrees with this one, which may be rounded; else this one."""
        return read if read is not None and read.is_at(line, self.counts[0]) else line

    def _is_turned(self, line: Line, statements: Sequence[AxisStatement]) -> bool:
        """Whether one of the statements has the cells of a line in the other order."""
        return any(
            own.is_turned(found, self.counts[s.level])
            for s in statements
            for own in ([] if s.is_box else self._scaled(line, s))
            for found in s.lines
        )

    def _is_off(self, line: Line, statement: AxisStatement) -> bool:
        """Whether a statement is off a line by a mistake that is made often: half a cell, or picked cells."""
        count, shifted = self.counts[statement.level], list[Line]()
        for factor in self.factors[statement.level]:
            shifted += [line.scaled(factor).moved(cells) for cells in (-0.5, 0.5, 0.5 / factor - 0.5)]
        is_near = any(made.is_at(found, count) for made in shifted for found in statement.lines)
        return is_near and not self.supports(line, statement)

    def is_picked(self, line: Line, level: int) -> bool | None:
        """Whether a level's coordinates are every so many of the finest's, not the middles of its own cells.

        None if they are neither, or there are none.
        """
        factor, count = self.factor(line, level), self.counts[level]
        held = [s for s in self.statements if s.level == level and s.source == COORDINATES]
        for is_picked, cells in ((False, 0.0), (True, 0.5 / factor - 0.5)):
            wanted = line.scaled(factor).moved(cells)
            if any(wanted.is_at(found, count, NEAR) for s in held for found in s.lines):
                return is_picked
        return None

    def _disagreement(self, statements: Sequence[AxisStatement], best: Line) -> str:
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
    found: dict[float, None] = {}
    if (whole := whole_factor(n, m)) is not None:
        found[float(whole)] = None
    found[n / m] = None
    scale = None if entry is None or entry.scale is None else entry.scale[axis]
    if scale is not None and scale > 0 and abs(n / m - scale) < scale / max(m, 1) * 2:
        found[float(scale)] = None
    return tuple(found)


def _pixels_against(
    pyramid: Pyramid | None,
    number: int,
    levels: Sequence[LevelPlace],
    rewritten: set[int],
    factors: Sequence[Sequence[float]],
) -> str | None:
    """The reason why a level's cells contradict its affine: they run the other way; else None."""
    if pyramid is None or number == 0 or not rewritten & {0, number}:
        return None
    found = compare_pixels(pyramid, levels[number], levels[0], (factors[0][number], factors[1][number]))
    if found is not None and found != (False, False):
        ways = [name for name, is_turned in zip(("rows", "columns"), found, strict=True) if is_turned]
        return f"the {' and '.join(ways)} of level {levels[number].path!r} are stored the other way round"
    return None

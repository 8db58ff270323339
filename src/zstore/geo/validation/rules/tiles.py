"""Rules about the tile matrix set: its numbers, and whether levels lie and are chunked as it states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from zstore.geo.conventions.base import Finding
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import (
    LIMITS,
    known_set,
    parse_limits,
    parse_tile_matrices,
    parse_tile_matrix_crs,
)
from zstore.geo.conventions.levels import Grid
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.profiles import DRAFT, MINI
from zstore.geo.conventions.zarr_conventions import is_number, member_of, parse_numbers
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.view import Hierarchy, mapping_of

MATRIX_MEMBERS = (
    "id", "scaleDenominator", "cellSize", "pointOfOrigin", "tileWidth", "tileHeight",
    "matrixWidth", "matrixHeight",
)  # fmt: skip


def _check_crs(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        stated, found = pyramid.tile_matrix_set, []
        if isinstance(stated, Mapping):
            for member in ("crs", "supportedCRS"):
                troubles: list[Finding] = []
                crs = parse_tile_matrix_crs({member: stated.get(member)}, pyramid.group.path, troubles)
                yield from (Found(pyramid.group, trouble.message) for trouble in troubles)
                found += [] if crs is None else [(member, crs)]
        elif isinstance(stated, str):
            known = known_set(stated)
            found = [] if known is None else [(stated, Crs.from_user(known.crs))]
        for source, crs in found:
            grids = (grid for level in pyramid.levels for grid in level.grids.values())
            other = next((g for g in grids if g.crs is not None and not g.crs.is_same(crs)), None)
            if other is not None and other.crs is not None:
                stated_crs, own = crs.label, other.crs.label
                message = (
                    f"{source} of the tile matrix set is {stated_crs}, the CRS of {other.node.path!r} {own}"
                )
                yield Found(pyramid.group, message, own, stated_crs)


Rule("GZ-40", "error", "overviews", "draft 8.2.3",
     "The CRS of the tile matrix set is that of the data's grid mapping.",
     "correct the CRS of the set (zstore fix does)")(_check_crs)  # fmt: skip
Rule("MS-24", "error", "overviews", "mini spec, Custom Coordinate Reference Systems",
     "The grid mapping is consistent with the CRS of the tile matrix set.", "correct the CRS of the set",
     profiles=(MINI,), same_as="GZ-40")(_check_crs)  # fmt: skip


def _placed(pyramid: Pyramid) -> Iterator[tuple[str, Mapping[str, Any], Grid, Any]]:
    """(level, tile matrix, largest grid, the matrix's own affine) of every level that has a tile matrix."""
    stated = pyramid.tile_matrix_set
    if not isinstance(stated, Mapping):
        return
    crs = parse_tile_matrix_crs(stated, "", [])
    entries = {entry.path: entry for entry in parse_tile_matrices(stated, crs, pyramid.group, [])}
    for level in pyramid.levels:
        held = [grid for grid in level.grids.values() if grid.shape == level.shape]
        if level.path in pyramid.matrices and level.path in entries and held:
            yield level.path, pyramid.matrices[level.path], held[0], entries[level.path].fallback_affine


def tile_offset(pyramid: Pyramid, path: str) -> tuple[float, float] | None:
    """(columns, rows) of tiles from a tile matrix's corner to that of its level; None if not known."""
    for name, matrix, grid, affine in _placed(pyramid):
        level = next(level for level in pyramid.levels if level.path == name)
        sizes = parse_numbers([matrix.get("tileWidth"), matrix.get("tileHeight")], 2)
        if name != path or affine is None or level.affine is None or sizes is None or level.affine.is_rotated:
            continue
        y = level.affine.f
        if affine.e * level.affine.e < 0:
            # Rows are counted the other way round: the other edge is the first.
            y += level.affine.e * grid.shape[0]
        columns = (level.affine.c - affine.c) / affine.a / sizes[0]
        return columns, (y - affine.f) / affine.e / sizes[1]
    return None


@Rule("GZ-41", "error", "overviews", "draft 8.2.4",
      "Levels lie on the tile matrix: cells of its size, corners where tiles meet.",
      "correct cellSize and pointOfOrigin (zstore fix does)", each="pyramids")  # fmt: skip
def check_alignment(pyramid: Pyramid) -> Iterator[Found]:
    affines = {level.path: level.affine for level in pyramid.levels}
    for path, matrix, _, _ in _placed(pyramid):
        affine, cell = affines[path], matrix.get("cellSize")
        if affine is None or not is_number(cell) or not cell:
            continue
        width = affine.cell[1]
        if abs(cell - width) > 1e-9 * width:
            message = f"cellSize of tile matrix {path!r} is {cell!r}, the level's cells are {width!r}"
            yield Found(pyramid.group, message, width, cell)
            continue
        offset = tile_offset(pyramid, path)
        if offset is not None and any(abs(tiles - round(tiles)) > 1e-6 for tiles in offset):
            message = f"level {path!r} begins {offset} tiles (columns, rows) from pointOfOrigin"
            yield Found(pyramid.group, message, "whole tiles", offset)


def _tile_of(matrix: Mapping[str, Any]) -> tuple[int, int] | None:
    found = matrix.get("tileHeight"), matrix.get("tileWidth")
    if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in found):
        return found  # type: ignore[return-value]
    return None


@Rule("GZ-42", "error", "overviews", "draft 8.2.4",
      "Chunks (inner ones where sharded) are the matrix's tiles.",
      "write the level anew in chunks of tileHeight by tileWidth, or state the tiles that are there",
      general="warning", profiles=(DRAFT,), each="pyramids")  # fmt: skip
def check_tiles(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        tile = _tile_of(pyramid.matrices.get(level.path, {}))
        for grid in level.grids.values():
            if tile is not None and not _fits(grid, tile):
                yield Found(grid.node, f"chunks are {grid.tile}, tiles {tile}", tile, grid.tile)


def _fits(grid: Grid, tile: tuple[int, int]) -> bool:
    return all(c == t or (n <= c and n <= t) for c, t, n in zip(grid.tile, tile, grid.shape, strict=True))


@Rule("MS-21", "warning", "overviews", "mini spec, Chunking Requirements",
      "Chunks are tiles, or a whole number of one makes the other.", "write the level anew", profiles=(MINI,),
      same_as="GZ-42", each="pyramids")  # fmt: skip
def check_divisible(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        tile = _tile_of(pyramid.matrices.get(level.path, {}))
        for grid in level.grids.values():
            if tile is None or _fits(grid, tile):
                continue
            if any(c % t and t % c for c, t in zip(grid.tile, tile, strict=True)):
                yield Found(grid.node, f"chunks are {grid.tile}, tiles {tile}", tile, grid.tile)


@Rule("GZ-43", "error", "overviews", "draft 8.2.4",
      "Data have exactly one y and one x dimension, known as such.",
      "name the dimensions y and x, or give their coordinates an axis")  # fmt: skip
def check_axes(hierarchy: Hierarchy) -> Iterator[Found]:
    placed = {level.node.path for p in hierarchy.pyramids for level in p.levels if level.node is not None}
    known = hierarchy.grids
    for array in hierarchy.arrays:
        group = array.parent
        if len(array.shape) < 2 or array.path in known:
            continue
        if group is not None and (
            array.name not in hierarchy.meaning.roles(group).data
            or any(other.is_damaged for other in group.arrays.values())
        ):
            continue
        has_crs = "_CRS" in array.attrs or mapping_of(array)[1] is not None
        is_level = array.path in placed or (group is not None and group.path in placed)
        if array.dims is not None and None not in array.dims and (is_level or has_crs):
            yield Found(array, f"none of the dimensions {list(array.dims)} is known for y or x", "y, x")


@Rule("GZ-44", "error", "overviews", "derived from draft 8.2.3, TMS 2.0",
      "The matrix has as many tiles as the level needs: its cells divided by the tile's, rounded up.",
      "correct matrixWidth and matrixHeight: they count tiles, not cells (zstore fix does)",
      each="pyramids")  # fmt: skip
def check_extent(pyramid: Pyramid) -> Iterator[Found]:
    for path, matrix, grid, _ in _placed(pyramid):
        tile = _tile_of(matrix)
        offset = tile_offset(pyramid, path) or (0.0, 0.0)
        if tile is None:
            continue
        sizes = (("matrixWidth", 1, offset[0]), ("matrixHeight", 0, offset[1]))
        for member, axis, before in sizes:
            found: Any = matrix.get(member)
            needed = -(-grid.shape[axis] // tile[axis])
            if not is_number(found):
                continue
            first = round(before)
            if found != needed if first == 0 else first < 0 or found < first + needed:
                message = f"{member} of tile matrix {path!r} is {found!r}; the level has {needed} tiles"
                yield Found(pyramid.group, message, needed, found)


Rule("GZ-45", "error", "overviews", "derived from TMS 2.0 6",
     "scaleDenominator is cellSize times the metres of a unit, over 0.00028.",
     "correct scaleDenominator (zstore fix does)", is_read=True)  # fmt: skip


def _check_limits(pyramid: Pyramid, member: str) -> Iterator[Found]:
    group = pyramid.group
    stated = member_of(pyramid.stated, member)
    if stated is None:
        return
    if not isinstance(stated, Mapping):
        yield Found(group, f"{member} is {stated!r}", "an object, by level", stated)
        return
    for path, limits in stated.items():
        matrix = pyramid.matrices.get(path)
        if pyramid.matrices and matrix is None:
            message = f"{member} has {path!r}, which no tile matrix is"
            yield Found(group, message, sorted(pyramid.matrices), path)
            continue
        found = parse_limits(pyramid.stated, member, path)
        if found is None:
            message = f"{member} of {path!r} are {limits!r}"
            yield Found(group, message, f"whole numbers {LIMITS[member]}", limits)
            continue
        most: list[Any] = [(matrix or {}).get(name) for name in ("matrixHeight", "matrixWidth")]
        for low, high, size in ((found[0], found[1], most[0]), (found[2], found[3], most[1])):
            if not 0 <= low <= high or (is_number(size) and high >= size):
                message = f"{member} of {path!r} are {low} to {high}, of {size} tiles"
                yield Found(group, message, size, [low, high])


Rule("GZ-46", "error", "overviews", "draft 8.2.5",
     "tile_matrix_set_limits has, by level, whole min_tile_col, max_tile_col, min_tile_row, max_tile_row "
     "within the matrix.", "correct the limits (zstore fix does)",
     each="pyramids")(partial(_check_limits, member="tile_matrix_set_limits"))  # fmt: skip


@Rule("MS-18", "error", "overviews", "mini spec, TileMatrixLimit",
      "tile_matrix_limits has, by level, tileMatrix, minTileCol, minTileRow, maxTileCol, maxTileRow, and "
      "says what tile_matrix_set_limits says.", "correct the limits (zstore fix does)",
      each="pyramids")  # fmt: skip
def check_mini_limits(pyramid: Pyramid) -> Iterator[Found]:
    yield from _check_limits(pyramid, "tile_matrix_limits")
    stated = member_of(pyramid.stated, "tile_matrix_limits")
    for path, limits in stated.items() if isinstance(stated, Mapping) else ():
        if isinstance(limits, Mapping) and limits.get("tileMatrix") != path:
            message = f"tileMatrix of {path!r} is {limits.get('tileMatrix')!r}"
            yield Found(pyramid.group, message, path, limits.get("tileMatrix"))
        other, mine = (parse_limits(pyramid.stated, member, path) for member in LIMITS)
        if other is not None and mine is not None and mine != other:
            message = f"limits of {path!r} are {mine} here, {other} in tile_matrix_set_limits"
            yield Found(pyramid.group, message, other, mine)


@Rule("MS-25", "error", "overviews", "mini spec, TileMatrix", "A tile matrix has all its eight members.",
      "add the members (zstore fix does)", each="pyramids")  # fmt: skip
def check_matrix_members(pyramid: Pyramid) -> Iterator[Found]:
    matrices = member_of(pyramid.tile_matrix_set, "tileMatrices")
    for matrix in matrices if isinstance(matrices, list) else ():
        if not isinstance(matrix, Mapping):
            yield Found(pyramid.group, f"tile matrix is {matrix!r}", "an object", matrix)
            continue
        wrong = [name for name in MATRIX_MEMBERS if not _is_right(name, matrix.get(name))]
        if wrong:
            message = f"tile matrix {matrix.get('id')!r} lacks {', '.join(wrong)}, or has another type there"
            yield Found(pyramid.group, message, MATRIX_MEMBERS, {name: matrix.get(name) for name in wrong})


def _is_right(name: str, value: Any) -> bool:
    if name == "id":
        return isinstance(value, str)
    if name == "pointOfOrigin":
        return parse_numbers(value, 2) is not None
    return is_number(value) and (value > 0) and (name[-2:] in ("or", "ze") or isinstance(value, int))


@Rule("MS-26", "error", "overviews", "mini spec, TileMatrixSet",
      "A tile matrix set has an id and tile matrices.",
      "add them", each="pyramids")  # fmt: skip
def check_set_members(pyramid: Pyramid) -> Iterator[Found]:
    stated = pyramid.tile_matrix_set
    if isinstance(stated, Mapping):
        if not isinstance(stated.get("id"), str):
            yield Found(pyramid.group, "the tile matrix set has no id", "a string", stated.get("id"))
        if stated.get("tileMatrices") == []:
            yield Found(pyramid.group, "tileMatrices is empty", "one tile matrix per level", [])


@Rule("MS-27", "warning", "overviews", "mini spec, Custom Decimation Factors",
      "Cells of a tile matrix are a whole number of times those of the next finer one.",
      "make the levels with whole factors", each="pyramids")  # fmt: skip
def check_decimation(pyramid: Pyramid) -> Iterator[Found]:
    cells = sorted(m["cellSize"] for m in pyramid.matrices.values() if is_number(m.get("cellSize")))
    for finer, coarser in pairwise(cells):
        ratio = coarser / finer if finer > 0 else 0.0
        if ratio < 1.5 or abs(ratio - round(ratio)) > 1e-6 * ratio:
            message = f"cells are {finer!r} and {coarser!r}: {ratio:.6g} times"
            yield Found(pyramid.group, message, "a whole number", ratio)

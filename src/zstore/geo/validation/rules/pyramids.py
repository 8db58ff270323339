"""Rules about pyramids: `multiscales`, tile matrices, declared conventions, lists; and embedded STAC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from zstore.geo.conventions.base import Mend, Severity
from zstore.geo.conventions.geozarr import (
    CRS_MEMBERS,
    LIMITS,
    UUIDS,
    are_ordered_axes,
    asset_path,
    declare,
    declared,
    is_number,
    known_set,
    layout_items,
    member_of,
    objects,
    parse_limits,
    parse_numbers,
    uses,
)
from zstore.geo.conventions.levels import Grid, LevelPlace, is_ome
from zstore.geo.conventions.meaning import Pyramid, cells_of
from zstore.geo.conventions.write import ARRAYS, DRAFT, MINI
from zstore.geo.validation.view import ArrayView, Found, GroupView, Hierarchy, NodeView, Rule, mapping_of


def _level_names(pyramid: Pyramid) -> set[str]:
    """The names of a group's children that are levels, in the layout or by their content."""
    assets = [item.get("asset") for item in layout_items(pyramid.stated)]
    paths = [asset.strip("/") for asset in assets if isinstance(asset, str)]
    return {path.partition("/")[0] for path in [*paths, *(level.path for level in pyramid.levels)]}


@Rule("GZ-30", "error", "overviews", "draft 8.2.1",
      "Every tile matrix in use is a group right below, of the same name.",
      "name the groups as the tile matrices' ids")  # fmt: skip
def check_level_groups(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        for name in pyramid.matrices:
            node = pyramid.group.children.get(name)
            if isinstance(node, ArrayView):
                yield Found(pyramid.group, f"level {name!r} is an array", "a group", "an array")
        wanted = set(pyramid.matrices)
        found = sorted(n for n, inner in pyramid.group.groups.items() if hierarchy.meaning.grids(inner))
        if wanted and found and not wanted & set(pyramid.group.children):
            message = f"none of the tile matrices {sorted(wanted)} is there; the groups are {found}"
            yield Found(pyramid.group, message, sorted(wanted), found)


@Rule("GZ-31", "error", "overviews", "draft 8.2.1",
      "The levels are right below the group that has `multiscales`.", "move `multiscales`, or the levels",
      profiles=(DRAFT, MINI), general="warning", each="pyramids")  # fmt: skip
def check_level_places(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        if "/" in level.path and isinstance(level.node, GroupView):
            message = f"level {level.path!r} is not right below the group"
            yield Found(pyramid.group, message, level.path.rpartition("/")[2], level.path)
    missing = set(pyramid.matrices) - set(pyramid.group.children)
    for name, group in pyramid.group.groups.items():
        below = sorted(missing & set(group.groups))
        if below and name not in pyramid.matrices:
            message = f"levels {below} are below {name!r}"
            yield Found(pyramid.group, message, below, [f"{name}/{level}" for level in below])


@Rule("GZ-34", "error", "overviews", "draft 8.2.1", "Levels are cut into chunks along x and y.",
      "write the level anew, in chunks of the tile's size", general="warning",
      profiles=(DRAFT, MINI), each="pyramids")  # fmt: skip
def check_is_cut(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        matrix = pyramid.matrices.get(level.path, {})
        sizes = [matrix.get(name) for name in ("tileHeight", "tileWidth")]
        limits = [size if isinstance(size, int) and size > 0 else 1024 for size in sizes]
        for grid in level.grids.values():
            whole = grid.tile[0] >= grid.shape[0] and grid.tile[1] >= grid.shape[1]
            if whole and any(n > m for n, m in zip(grid.shape, limits, strict=True)):
                yield Found(grid.node, f"one chunk holds all of {grid.shape}", limits, grid.tile)


@Rule("GZ-35", "warning", "overviews", "draft 8.2.1", "Chunks are 256 or 512 cells wide and high.",
      "write the levels anew, in chunks of 256 or 512", general="note",
      profiles=(DRAFT,), each="pyramids")  # fmt: skip
def check_chunk_lengths(pyramid: Pyramid) -> Iterator[Found]:
    for level in pyramid.levels:
        for grid in level.grids.values():
            if any(t not in (256, 512) and t < n for t, n in zip(grid.tile, grid.shape, strict=True)):
                yield Found(grid.node, f"chunks are {grid.tile}", "256 or 512", grid.tile)


@Rule("GZ-36", "error", "overviews", "draft 8.2.2", "`multiscales` is an attribute of the multiscale group.",
      "move it to the group that holds the levels")  # fmt: skip
def check_multiscales_place(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        if "multiscales" in array.attrs:
            yield Found(array, "multiscales is on an array", "on the group", None)
    inner = {id(level.node) for p in hierarchy.pyramids for level in p.levels if level.path}
    for pyramid in hierarchy.pyramids:
        has_levels = any(level.node is not None for level in pyramid.levels) or pyramid.group.groups
        if id(pyramid.group) in inner and _is_itself(pyramid.stated):
            # ndpyramid's levels are pyramids of one level each.
            continue
        if id(pyramid.group) in inner or not has_levels:
            yield Found(pyramid.group, "multiscales is on a level", "on the group above", None)


def _is_itself(stated: Any) -> bool:
    """Whether a list of datasets names only the group that contains it."""
    paths = [dataset.get("path") for item in objects(stated) for dataset in objects(item.get("datasets"))]
    return bool(paths) and set(paths) == {"."}


@Rule("GZ-37", "error", "overviews", "draft 8.2.2",
      "`multiscales` is an object with tile_matrix_set and resampling_method.",
      "write the members (zstore fix --profile geozarr-draft converts the list of other dialects)",
      profiles=(DRAFT,))  # fmt: skip
def check_multiscales(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        stated, is_asked = pyramid.stated, hierarchy.profile is not None
        if isinstance(stated, list) or stated is None:
            if is_asked:
                yield Found(pyramid.group, "multiscales is a list: another dialect", "an object", "a list")
        elif not isinstance(stated, Mapping):
            continue
        elif "layout" in stated and not is_asked:
            if "tile_matrix_set" in stated and "resampling_method" not in stated:
                message = "multiscales has a tile_matrix_set, and no resampling_method"
                yield Found(pyramid.group, message, "resampling_method", sorted(stated), "note")
        elif "datasets" not in stated or is_asked:
            for name in ("tile_matrix_set", "resampling_method"):
                if name not in stated:
                    yield Found(pyramid.group, f"multiscales has no {name}", name, sorted(stated))


@Rule("MS-15", "error", "overviews", "mini spec, Multiscale Dataset",
      "A group of levels says so in `multiscales`, and lists all of them.", "add multiscales",
      general="warning", profiles=(MINI,))  # fmt: skip
def check_unnamed(hierarchy: Hierarchy) -> Iterator[Found]:
    for group, names in find_unnamed_levels(hierarchy):
        message = f"groups {names} are levels of one another; there is no multiscales"
        yield Found(group, message, "multiscales")
    for pyramid in hierarchy.pyramids:
        base = pyramid.levels[0].node if pyramid.levels else None
        listed = _level_names(pyramid)
        if not isinstance(base, GroupView) or pyramid.matrices:
            # Of tile matrices, another rule compares the names.
            continue
        for name, inner in pyramid.group.groups.items():
            if name not in listed and _are_levels(hierarchy, [base, inner]):
                message = f"group {name!r} is a level of the others, and multiscales does not list it"
                yield Found(pyramid.group, message, name, sorted(listed))


def find_unnamed_levels(hierarchy: Hierarchy) -> Iterator[tuple[GroupView, list[str]]]:
    """(group, names) of groups whose groups are levels of one another, by number or by their extent."""
    known = {id(pyramid.group) for pyramid in hierarchy.pyramids}
    for group in hierarchy.groups:
        numbered = {n: g for n, g in group.groups.items() if n.isdecimal()} or group.groups
        if id(group) not in known and _are_levels(hierarchy, list(numbered.values())):
            yield group, sorted(numbered)


def _are_levels(hierarchy: Hierarchy, groups: Sequence[GroupView]) -> bool:
    """Whether groups of the same variables, in different sizes, are levels by their numbers or extents."""
    held = [hierarchy.meaning.grids(group) for group in groups]
    shapes = {tuple(sorted((n, g.shape) for n, g in inner.items())) for inner in held}
    is_alike = len({frozenset(inner) for inner in held}) == 1 and len(shapes) == len(held)
    if len(held) < 2 or not held[0] or not is_alike:
        return False
    read = [hierarchy.meaning.read(group).geo for group in groups]
    placed = [geo for geo in read if geo is not None and geo.bounds is not None]
    if len(placed) < len(groups):
        return all(group.name.isdecimal() for group in groups)
    size = max(length for geo in placed for length in geo.cell_size or ())
    edges = zip(*(geo.bounds or () for geo in placed), strict=True)
    is_one_place = all(max(edge) - min(edge) <= size for edge in edges)
    return is_one_place or all(group.name.isdecimal() for group in groups)


Rule("GZ-38", "error", "overviews", "draft 8.2.3",
     "tile_matrix_set is a known name, a URI, or a tile matrix set of OGC's version 2.",
     "write the set itself, with tileMatrices, or spell the name right")  # fmt: skip


@Rule("MS-17", "error", "overviews", "mini spec, MultiscaleMetadata",
      "tile_matrix_set is an object, or a known name; no URI.", "write the set itself", profiles=(MINI,),
      same_as="GZ-38", each="pyramids")  # fmt: skip
def check_mini_set(pyramid: Pyramid) -> Iterator[Found]:
    found = pyramid.tile_matrix_set
    if isinstance(found, str) and "://" in found:
        yield Found(pyramid.group, f"tile_matrix_set is the URI {found!r}", "a name, or the set", found)
    elif found is None and pyramid.is_object:
        yield Found(pyramid.group, "multiscales has no tile_matrix_set", "tile_matrix_set")


def _check_ids(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        group, known = pyramid.group, known_set(pyramid.tile_matrix_set)
        limits = member_of(pyramid.stated, "tile_matrix_set_limits")
        wanted = (
            set(limits) if isinstance(limits, Mapping) and not pyramid.matrices else set(pyramid.matrices)
        )
        present = {name for name, inner in group.groups.items() if hierarchy.meaning.grids(inner)}
        if known is not None:
            levels = sorted(wanted or present)
            odd = [name for name in levels if name not in known.tile_matrices]
            if odd:
                yield Found(
                    group, f"levels {odd} are no tile matrices of {known.id}", list(known.tile_matrices), odd
                )
            places = sorted(list(known.tile_matrices).index(name) for name in levels if name not in odd)
            if places and places[-1] - places[0] + 1 != len(places):
                yield Found(group, f"levels {levels} leave some of {known.id} out", severity="warning")
        missing, more = sorted(wanted - set(group.children)), sorted(present - wanted - _level_names(pyramid))
        if missing and wanted & set(group.children):
            yield Found(group, f"there are no groups {missing}", sorted(wanted), sorted(group.groups))
        if wanted and more and wanted & set(group.children):
            yield Found(group, f"no tile matrix has the id of {more}", sorted(wanted), more)


Rule("GZ-39", "error", "overviews", "draft 8.2.3", "Levels and tile matrices have the same names.",
     "rename the groups, or the ids")(_check_ids)  # fmt: skip
Rule("MS-20", "error", "overviews", "mini spec, Multiscale Dataset, members",
     "The levels are named by the ids of tileMatrices.", "rename the groups, or the ids", profiles=(MINI,),
     same_as="GZ-39")(_check_ids)  # fmt: skip


Rule("GZ-47", "error", "overviews", "draft 8.2.6", "resampling_method is one of the fifteen names.",
     "spell it as the draft does (zstore fix does)")  # fmt: skip
Rule("MS-16", "error", "overviews", "mini spec, MultiscaleMetadata",
     "resampling_method is there, and one of the fifteen names.", "spell it as the draft does",
     profiles=(MINI,), same_as="GZ-47")  # fmt: skip


Rule("GZ-48", "error", "overviews", "draft 8.2.6", "All levels are made by the same method.",
     "make the levels anew, or state what was done")  # fmt: skip


@Rule("MS-23", "warning", "overviews", "mini spec, Extra members",
      "A multiscale group holds its levels and nothing else.", "move the other members elsewhere",
      general="note", profiles=(MINI,), each="pyramids")  # fmt: skip
def check_extra_members(pyramid: Pyramid) -> Iterator[Found]:
    names = _level_names(pyramid) | set(pyramid.matrices)
    extra = sorted(set(pyramid.group.children) - names)
    if extra and names and "" not in names:
        yield Found(pyramid.group, f"{extra} are no levels", sorted(names), extra)


MATRIX_MEMBERS = (
    "id", "scaleDenominator", "cellSize", "pointOfOrigin", "tileWidth", "tileHeight",
    "matrixWidth", "matrixHeight",
)  # fmt: skip


Rule("GZ-40", "error", "overviews", "draft 8.2.3",
     "The CRS of the tile matrix set is that of the data's grid mapping.",
     "correct the CRS of the set (zstore fix does)")  # fmt: skip
Rule("MS-24", "error", "overviews", "mini spec, Custom Coordinate Reference Systems",
     "The grid mapping is consistent with the CRS of the tile matrix set.", "correct the CRS of the set",
     profiles=(MINI,), same_as="GZ-40")  # fmt: skip


def _placed(pyramid: Pyramid) -> Iterator[tuple[LevelPlace, Mapping[str, Any], Grid, Any]]:
    """(level, tile matrix, largest grid, the matrix's own affine) of every level that has a tile matrix."""
    for level in pyramid.levels:
        held = [grid for grid in level.grids.values() if grid.shape == level.shape]
        if level.path in pyramid.matrices and held:
            entry = pyramid.entries[level.path]
            # OME's transformations have no extent.
            affine = None if entry.extent is None else entry.fallback_affine
            yield level, pyramid.matrices[level.path], held[0], affine


def tile_offset(pyramid: Pyramid, path: str) -> tuple[float, float] | None:
    """(columns, rows) of tiles from a tile matrix's corner to that of its level; None if unknown."""
    for level, matrix, grid, affine in _placed(pyramid):
        own, sizes = level.affine, parse_numbers([matrix.get("tileWidth"), matrix.get("tileHeight")], 2)
        if level.path != path or affine is None or own is None or sizes is None or own.is_rotated:
            continue
        # Where rows are counted the other way round, the other edge is the first.
        y = own.f + (own.e * grid.shape[0] if affine.e * own.e < 0 else 0.0)
        return (own.c - affine.c) / affine.a / sizes[0], (y - affine.f) / affine.e / sizes[1]
    return None


@Rule("GZ-41", "error", "overviews", "draft 8.2.4",
      "Levels lie on the tile matrix: cells of its size, corners where tiles meet.",
      "correct cellSize and pointOfOrigin (zstore fix does)", each="pyramids")  # fmt: skip
def check_alignment(pyramid: Pyramid) -> Iterator[Found]:
    for level, matrix, _, _ in _placed(pyramid):
        cell = matrix.get("cellSize")
        if level.affine is None or not is_number(cell) or not cell:
            continue
        width = level.affine.cell[1]
        if abs(cell - width) > 1e-9 * width:
            message = f"cellSize of tile matrix {level.path!r} is {cell!r}, the level's cells are {width!r}"
            yield Found(pyramid.group, message, width, cell)
            continue
        offset = tile_offset(pyramid, level.path)
        if offset is not None and any(abs(tiles - round(tiles)) > 1e-6 for tiles in offset):
            message = f"level {level.path!r} begins {offset} tiles (columns, rows) from pointOfOrigin"
            yield Found(pyramid.group, message, "whole tiles", offset)


def _tile_of(matrix: Mapping[str, Any]) -> tuple[int, int] | None:
    found = matrix.get("tileHeight"), matrix.get("tileWidth")
    if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in found):
        return found  # type: ignore[return-value]
    return None


def _check_tiles(pyramid: Pyramid, *, can_divide: bool) -> Iterator[Found]:
    for level in pyramid.levels:
        tile = _tile_of(pyramid.matrices.get(level.path, {}))
        for grid in level.grids.values():
            if tile is None or _fits(grid, tile):
                continue
            if not can_divide or any(c % t and t % c for c, t in zip(grid.tile, tile, strict=True)):
                yield Found(grid.node, f"chunks are {grid.tile}, tiles {tile}", tile, grid.tile)


def _fits(grid: Grid, tile: tuple[int, int]) -> bool:
    return all(c == t or (n <= c and n <= t) for c, t, n in zip(grid.tile, tile, grid.shape, strict=True))


Rule("GZ-42", "error", "overviews", "draft 8.2.4",
     "Chunks (inner ones where sharded) are the matrix's tiles.",
     "write the level anew in chunks of tileHeight by tileWidth, or state the tiles that are there",
     general="warning", profiles=(DRAFT,),
     each="pyramids")(partial(_check_tiles, can_divide=False))  # fmt: skip

Rule("MS-21", "warning", "overviews", "mini spec, Chunking Requirements",
     "Chunks are tiles, or a whole number of one makes the other.", "write the level anew", profiles=(MINI,),
     same_as="GZ-42", each="pyramids")(partial(_check_tiles, can_divide=True))  # fmt: skip


@Rule("GZ-43", "error", "overviews", "draft 8.2.4",
      "Data have exactly one y and one x dimension, known as such.",
      "name the dimensions y and x, or give their coordinates an axis")  # fmt: skip
def check_axes(hierarchy: Hierarchy) -> Iterator[Found]:
    placed = {level.node.path for p in hierarchy.pyramids for level in p.levels if level.node is not None}
    known = hierarchy.grids
    for array in hierarchy.arrays:
        group = array.parent
        if len(array.shape) < 2 or array.path in known or hierarchy.is_read("GZ-43", array.path, "error"):
            continue
        if group is not None and (
            array.name not in hierarchy.meaning.roles(group).data
            or any(hierarchy.is_read("ZS-03", other.path, "error") for other in group.arrays.values())
        ):
            continue
        has_crs = "_CRS" in array.attrs or mapping_of(array)[1] is not None
        is_level = array.path in placed or (group is not None and group.path in placed)
        if cells_of(array, group) is not None:
            continue
        if array.dims is not None and None not in array.dims and (is_level or has_crs):
            yield Found(array, f"none of the dimensions {list(array.dims)} is known for y or x", "y, x")


@Rule("GZ-44", "error", "overviews", "derived from draft 8.2.3, TMS 2.0",
      "The matrix has as many tiles as the level needs: its cells divided by the tile's, rounded up.",
      "correct matrixWidth and matrixHeight: they count tiles, not cells (zstore fix does)",
      each="pyramids")  # fmt: skip
def check_extent(pyramid: Pyramid) -> Iterator[Found]:
    for level, matrix, grid, _ in _placed(pyramid):
        tile = _tile_of(matrix)
        offset = tile_offset(pyramid, level.path) or (0.0, 0.0)
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
                message = f"{member} of tile matrix {level.path!r} is {found!r}; the level has {needed} tiles"
                yield Found(pyramid.group, message, needed, found)


Rule("GZ-45", "error", "overviews", "derived from TMS 2.0 6",
     "scaleDenominator is cellSize times the metres of a unit, over 0.00028.",
     "correct scaleDenominator (zstore fix does)")  # fmt: skip


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
    missing = sorted({level.path for level in pyramid.levels} & set(pyramid.matrices) - set(stated))
    if missing:
        yield Found(group, f"{member} lacks {missing}", sorted(pyramid.matrices), sorted(stated))


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
    if stated is None and pyramid.matrices:
        message = "there are no tile_matrix_limits, without which OpenLayers opens no tile matrix set"
        yield Found(pyramid.group, message, "tile_matrix_limits", None, "note")
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
      "A tile matrix set has an id, a CRS and tile matrices; its two ordered axes are one of x and one of y.",
      "add them", each="pyramids")  # fmt: skip
def check_set_members(pyramid: Pyramid) -> Iterator[Found]:
    stated = pyramid.tile_matrix_set
    if isinstance(stated, Mapping):
        if not isinstance(stated.get("id"), str):
            yield Found(pyramid.group, "the tile matrix set has no id", "a string", stated.get("id"))
        if not {"crs", "supportedCRS"} & set(stated):
            yield Found(pyramid.group, "the tile matrix set has no crs", "a URI, or WKT", None)
        axes = stated.get("orderedAxes")
        if axes is not None and not are_ordered_axes(axes):
            yield Found(pyramid.group, f"orderedAxes are {axes!r}", "such as ['E', 'N']", axes, "warning")
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


IDENTIFIERS = ("uuid", "schema_url", "spec_url")
DECLARED = ("multiscales", "proj", "spatial")


@Rule("ZC-01", "error", "core", "zarr-conventions",
      "zarr_conventions is a list of objects with a uuid or a URL.",
      "add the uuid (zstore fix does, for proj, spatial and multiscales)", each="nodes")  # fmt: skip
def check_declarations(node: NodeView) -> Iterator[Found]:
    stated = node.attrs.get("zarr_conventions")
    if stated is not None and not isinstance(stated, list):
        message = f"zarr_conventions is {stated!r}"
        yield Found(node, message, "a list", stated, mend=Mend(message))
        return
    entries = stated or []
    mend = _mend_declarations(node, entries)
    bare = [entry for entry in entries if not any(member_of(entry, name) for name in IDENTIFIERS)]
    for entry in bare:
        yield Found(node, f"entry {entry!r} has no identifier", IDENTIFIERS, entry, mend=mend)
    for name, entry in _unlike(entry for entry in entries if entry not in bare):
        message = f"{name} is declared without its UUID, by which readers know it"
        yield Found(node, message, UUIDS[name], entry.get("uuid"), "warning", mend)
    for name in ("multiscales", "spatial"):
        if name in declared(node) and not any(key.partition(":")[0] == name for key in node.attrs):
            yield Found(node, f"{name} is declared, and nothing of it is there", name, None, "warning")
    # STAC has proj: attributes too; these three are the convention's only.
    names = (*CRS_MEMBERS, *(name for name in node.attrs if name.startswith("spatial:")))
    used = sorted({name.partition(":")[0] for name in names if name in node.attrs})
    is_handed = node.parent is not None and "zarr_conventions" in node.parent.attrs
    if used and stated is None and not is_handed:
        message = f"{', '.join(used)} are used, and not declared"
        yield Found(node, message, "zarr_conventions", None, "warning", mend)
    elif missing := _undeclared(node) if isinstance(node, GroupView) else []:
        message = f"not everything in use is declared: {', '.join(missing)}"
        yield Found(node, message, missing, stated, "warning" if stated else "note", mend)


def _undeclared(node: NodeView) -> list[str]:
    """The three conventions that a node uses, and declares neither by UUID nor by name."""
    return [name for name in DECLARED if uses(node, name) and name not in declared(node)]


def _unlike(entries: Iterable[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of one of the three conventions that have no UUID or another one, with its name."""
    for entry in entries:
        name = _known_name(entry)
        if name and entry.get("uuid") != UUIDS[name]:
            yield name, entry


def _mend_declarations(node: NodeView, stated: list[Any]) -> Mend | None:
    """The mend of a group's `zarr_conventions`: identifiers for known names, else the missing entries."""
    if not isinstance(node, GroupView):
        return None
    entries = [_identified(entry) for entry in stated]
    if entries != stated:
        return Mend("conventions declared with their UUID", {"zarr_conventions": entries})
    missing = _undeclared(node)
    message = f"{', '.join(missing)} declared"
    return Mend(message, {"zarr_conventions": [*stated, *declare(missing)]}) if missing else None


def _identified(entry: Any) -> Any:
    """An entry of `zarr_conventions`, written out if it is one of the three and has no UUID."""
    name = _known_name(entry)
    return declare([name])[0] if name and not member_of(entry, "uuid") else entry


def _known_name(entry: Any) -> str | None:
    """The one of the three conventions that an entry of `zarr_conventions` names; None without one."""
    name = str(member_of(entry, "name")).rstrip(":")
    urls = [str(member_of(entry, member)) for member in ("schema_url", "spec_url")]
    by_url = [known for known in DECLARED if any(f"/zarr-conventions/{known}/" in url for url in urls)]
    return name if name in DECLARED else next(iter(by_url), None)


Rule("ZC-02", "error", "overviews", "zarr-conventions/multiscales 0.1",
     "layout is a list of levels, each with a relative asset, and with a transform where it is derived.",
     "write the path of the level relative to the group (zstore fix does)")  # fmt: skip


@Rule("ZC-03", "error", "overviews", "zarr-conventions/multiscales 0.1",
      "Every asset and derived_from is a node below the group.",
      "correct the path, or make the level", each="pyramids")  # fmt: skip
def check_assets(pyramid: Pyramid) -> Iterator[Found]:
    for item in layout_items(pyramid.stated):
        path = item.get("derived_from")
        if asset_path({"asset": path}) and pyramid.group.below(path) is None:
            yield Found(pyramid.group, f"derived_from {path!r} is not there", "a node", path)
    for name in unlisted_levels(pyramid):
        message = f"layout leaves out level {name!r}, which has a tile matrix"
        yield Found(pyramid.group, message, name, None, "warning")


def unlisted_levels(pyramid: Pyramid) -> list[str]:
    """The groups that are levels in the tile matrix set, and missing in the layout."""
    listed = {asset_path(item) for item in layout_items(pyramid.stated)}
    return [
        name for name in pyramid.matrices if listed and name in pyramid.group.groups and name not in listed
    ]


@Rule("ZC-04", "warning", "overviews", "GDAL 3.13, Zarr driver",
      "Levels are such that GDAL, rio-tiler and OpenLayers take them: the finest first, same rank and type as"
      " the finest, translation 0, all with spatial:transform and spatial:shape or none of them, and with an"
      " explicit spatial:registration one scale per dimension.",
      "write the finest level first, and leave spatial:registration out: pixel is the default",
      each="pyramids")  # fmt: skip
def check_gdal_levels(pyramid: Pyramid) -> Iterator[Found]:
    is_explicit = pyramid.group.attrs.get("spatial:registration") == "pixel"
    base = pyramid.levels[0].grids if pyramid.levels else {}
    listed = [asset_path(item) for item in layout_items(pyramid.stated)]
    order = [listed.index(level.path) for level in pyramid.levels if level.path in listed]
    if order != sorted(order):
        message = f"layout lists {listed}: the first is not the finest"
        yield Found(pyramid.group, message, [level.path for level in pyramid.levels], listed)
    for member in ("spatial:transform", "spatial:shape"):
        bare = [asset_path(item) for item in layout_items(pyramid.stated) if member not in item]
        if bare and len(bare) < len(listed):
            yield Found(pyramid.group, f"layout has no {member} of {bare}, and of others it has", member)
    for item in layout_items(pyramid.stated):
        transform = item.get("transform")
        level = next((p for p in pyramid.levels if p.path == item.get("asset")), None)
        if not isinstance(transform, Mapping) or level is None:
            continue
        translation = transform.get("translation")
        if isinstance(translation, list) and any(translation):
            yield Found(pyramid.group, f"translation of {level.path!r} is {translation}", 0, translation)
        scale = transform.get("scale")
        ranks = {len(grid.node.shape) for grid in level.grids.values()}
        if is_explicit and isinstance(scale, list) and ranks - {len(scale)}:
            message = (
                f"scale of {level.path!r} has {len(scale)} numbers, its arrays {sorted(ranks)} dimensions"
            )
            yield Found(pyramid.group, message, sorted(ranks), len(scale))
    for level in pyramid.levels[1:]:
        for name, grid in level.grids.items():
            if name in base and len(base[name].node.shape) != len(grid.node.shape):
                ranks = {len(base[name].node.shape)}
                yield Found(grid.node, "it has another rank than the finest level", ranks, grid.node.shape)


@Rule("ZC-05", "error", "geotransform", "zarr-conventions/spatial 0.1",
      "spatial: attributes are dimensions [y, x], transform a b c d e f, shape [height, width], bbox "
      "[xmin, ymin, xmax, ymax], registration pixel or node.", "correct the attribute (zstore fix does)",
      each="nodes")  # fmt: skip
def check_spatial(node: NodeView) -> Iterator[Found]:
    used = [name for name in node.attrs if name.startswith("spatial:")]
    if not used:
        return
    numbers = parse_numbers(node.attrs.get("spatial:transform"), 6)
    if numbers is not None and numbers[0] and numbers[1] and not numbers[2] and not numbers[4]:
        message = f"spatial:transform is {list(numbers)}, which is in GDAL's order"
        expected = [numbers[1], numbers[2], numbers[0], numbers[4], numbers[5], numbers[3]]
        yield Found(node, message, expected, list(numbers))
    registration = node.attrs.get("spatial:registration", "pixel")
    if registration not in ("pixel", "node"):
        yield Found(node, f"spatial:registration is {registration!r}", "pixel or node", registration)
    yield from _check_place(node)
    is_extent = isinstance(node, GroupView) and used == ["spatial:bbox"]
    if is_extent and "spatial" not in declared(node):
        # What a group covers needs no grid; arrays alone must name their dimensions.
        return
    near = [node, *([node.parent] if node.parent is not None else [])]
    if not any("spatial:dimensions" in place.attrs for place in near):
        severity: Severity | None = "note" if is_extent else None
        yield Found(node, f"{', '.join(used)} without spatial:dimensions", ["y", "x"], None, severity)


def _check_place(node: NodeView) -> Iterator[Found]:
    """Missing attributes by which readers locate the arrays of a group that is no level."""
    is_level = node.parent is not None and "multiscales" in node.parent.attrs
    if is_level or not isinstance(node, GroupView) or "spatial:dimensions" not in node.attrs:
        return
    held = [array for array in node.arrays.values() if len(array.shape) > 1]
    for name, reader in (("spatial:transform", "rio-tiler"), ("spatial:bbox", "OpenLayers")):
        if any(name not in array.attrs for array in held) and name not in node.attrs:
            yield Found(node, f"there is no {name}, by which {reader} places the arrays", name, None, "note")


@Rule("ZC-06", "error", "overviews", "zarr-conventions/spatial 0.1",
      "spatial:shape is the array's, and all levels start at one corner.",
      "write each level's own shape and transform (zstore fix does)")  # fmt: skip
def check_level_shapes(hierarchy: Hierarchy) -> Iterator[Found]:
    unreadable = [node for node in hierarchy.nodes if not isinstance(node, ArrayView | GroupView)]
    unknown = [a for a in hierarchy.arrays if len(a.shape) > 1 and a.path not in hierarchy.grids]
    for group in hierarchy.groups:
        stated = parse_numbers(group.attrs.get("spatial:shape"), 2)
        inside = f"{group.path}/" if group.path else ""
        if stated is None or any(node.path.startswith(inside) for node in [*unreadable, *unknown]):
            continue
        below = [grid for path, grid in hierarchy.grids.items() if path.startswith(inside)]
        held = list(hierarchy.meaning.grids(group).values()) or below
        shapes = {grid.shape for grid in held}
        if shapes and tuple(stated) not in shapes:
            message = f"spatial:shape is {list(stated)}; the grids are {sorted(shapes)}"
            yield Found(group, message, None, stated)
    for pyramid in hierarchy.pyramids:
        corners = [
            (item.get("asset"), numbers)
            for item in layout_items(pyramid.stated)
            if (numbers := parse_numbers(item.get("spatial:transform"), 6))
        ]
        for asset, numbers in corners[1:]:
            first = corners[0][1]
            cell = max(abs(numbers[0]), abs(numbers[4]))
            if any(abs(numbers[i] - first[i]) > 0.1 * cell for i in (2, 5)):
                starts = [(found[2], found[5]) for found in (numbers, first)]
                message = f"level {asset!r} starts at {starts[0]}, the first at {starts[1]}"
                yield Found(pyramid.group, message, list(first), list(numbers))


@Rule("ZC-07", "error", "crs", "zarr-conventions/proj 0.1",
      "A node that declares proj has proj:code, proj:wkt2 or proj:projjson; they reach direct children only.",
      "repeat proj: on every level's group (zstore fix does)")  # fmt: skip
def check_proj(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        if "proj" in declared(node) and not any(name in node.attrs for name in CRS_MEMBERS):
            yield Found(node, "proj is declared, and no CRS is there", CRS_MEMBERS, None)
    for pyramid in hierarchy.pyramids:
        if not any(name in pyramid.group.attrs for name in CRS_MEMBERS):
            continue
        for level in pyramid.levels:
            if not isinstance(level.node, GroupView) or level.node is pyramid.group:
                continue
            for grid in level.grids.values():
                if not grid.stated_crs and mapping_of(grid.node)[1] is None:
                    message = f"level {level.path!r} has no CRS: that of the group above does not reach it"
                    yield Found(level.node, message, "proj:code", None)
                    break


@Rule("ZC-08", "error", "stac", "zarr-conventions/stac",
      "stac: attributes are an item or a collection, embedded or linked, with assets below the group.",
      "keep one of stac:item and stac:collection, and paths relative to the group",
      each="nodes")  # fmt: skip
def check_stac(node: NodeView) -> Iterator[Found]:
    if "stac" in declared(node) and not any(name.startswith("stac:") for name in node.attrs):
        yield Found(node, "stac is declared, and no stac: attribute is there", "stac:item", None)


@Rule("ZC-09", "warning", "core", "zarr-conventions/CF",
      "Where CF is declared, its attributes have no prefix.",
      "write standard_name, not cf:standard_name", each="nodes")  # fmt: skip
def check_cf_prefix(node: NodeView) -> Iterator[Found]:
    for name in node.attrs:
        if name.lower().startswith("cf:"):
            yield Found(node, f"attribute {name!r} has a prefix", name[3:], name)


@Rule("OC-10", "error", "overviews", "OGC Zarr 2.0 4.5; Multiscale Arrays 0.1",
      "A list `multiscales` has version 0.1 and datasets: paths of arrays, the finest first.",
      "correct the paths and their order", general="warning", profiles=(ARRAYS,))  # fmt: skip
def check_list(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        if not isinstance(pyramid.stated, list):
            if hierarchy.profile is not None:
                yield Found(pyramid.group, "multiscales is no list", "a list", pyramid.stated)
            continue
        for item in pyramid.stated:
            datasets = member_of(item, "datasets")
            if datasets == []:
                yield Found(pyramid.group, "datasets are []", "a list of paths", datasets)
            if not isinstance(datasets, list) or not datasets:
                continue
            if not is_ome(pyramid.stated) and item.get("version") != "0.1":
                yield Found(pyramid.group, f"version is {item.get('version')!r}", "0.1", item.get("version"))
            yield from _check_datasets(pyramid, datasets)


def _check_datasets(pyramid: Pyramid, datasets: Any) -> Iterator[Found]:
    for item in datasets if isinstance(datasets, list) else ():
        path = member_of(item, "path")
        if isinstance(path, str) and isinstance(pyramid.group.below(path), GroupView):
            yield Found(pyramid.group, f"dataset {path!r} is a group", "an array", "a group", "warning")
    found = [path for item in datasets if isinstance(path := member_of(item, "path"), str)]
    ranks = {level.path: rank for rank, level in enumerate(pyramid.levels)}
    order = [
        rank for path in found if (rank := ranks.get(path, ranks.get(path.rpartition("/")[0]))) is not None
    ]
    if order != sorted(order):
        message = f"datasets are in the order {found}: the finest is not first"
        yield Found(pyramid.group, message, list(ranks), found)


Rule("BANDS", "warning", "bands", "STAC 1.1, bands; draft 2, class bands",
     "Bands are a list of objects, one for each item of the dimension of bands.",
     "list one object per band in `bands`")  # fmt: skip

"""Rules about `multiscales`: where it is, what it names, and whether those levels are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zstore.geo.conventions.geozarr import known_set
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.profiles import DRAFT, MINI
from zstore.geo.conventions.zarr_conventions import layout_items, member_of, objects
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.view import ArrayView, GroupView, Hierarchy


def _level_names(pyramid: Pyramid) -> set[str]:
    """The names right below the group that the layout lists, or that hold a level."""
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
    """Whether a list of datasets names nothing but the group that has it."""
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
            yield Found(pyramid.group, f"multiscales is {stated!r}", "an object", stated)
        elif "layout" in stated and not is_asked:
            continue
        elif "datasets" not in stated or is_asked:
            for name in ("tile_matrix_set", "resampling_method"):
                if name not in stated:
                    yield Found(pyramid.group, f"multiscales has no {name}", name, sorted(stated))


@Rule("MS-15", "error", "overviews", "mini spec, Multiscale Dataset",
      "A group of levels says so in `multiscales`.", "add multiscales", general="warning",
      profiles=(MINI,))  # fmt: skip
def check_unnamed(hierarchy: Hierarchy) -> Iterator[Found]:
    for group, names in find_unnamed_levels(hierarchy):
        message = f"groups {names} are levels of one another; there is no multiscales"
        yield Found(group, message, "multiscales")


def find_unnamed_levels(hierarchy: Hierarchy) -> Iterator[tuple[GroupView, list[str]]]:
    """(group, names) of groups whose numbered groups hold the same variables in different sizes."""
    known = {id(pyramid.group) for pyramid in hierarchy.pyramids}
    for group in hierarchy.groups:
        numbered = {n: g for n, g in group.groups.items() if n.isdecimal()}
        held = [hierarchy.meaning.grids(inner) for inner in numbered.values()]
        if id(group) in known or len(held) < 2 or not held[0]:
            continue
        shapes = {tuple(sorted((n, g.shape) for n, g in inner.items())) for inner in held}
        if len({frozenset(inner) for inner in held}) == 1 and len(shapes) == len(held):
            yield group, sorted(numbered)


Rule("GZ-38", "error", "overviews", "draft 8.2.3",
     "tile_matrix_set is a known name, a URI, or a tile matrix set of OGC's version 2.",
     "write the set itself, with tileMatrices, or spell the name right",
     is_read=True)  # fmt: skip


@Rule("MS-17", "error", "overviews", "mini spec, MultiscaleMetadata",
      "tile_matrix_set is an object, or a known name; no URI.", "write the set itself", profiles=(MINI,),
      same_as="GZ-38", is_read=True)  # fmt: skip
def check_mini_set(hierarchy: Hierarchy) -> Iterator[Found]:
    for pyramid in hierarchy.pyramids:
        if isinstance(pyramid.tile_matrix_set, str) and "://" in pyramid.tile_matrix_set:
            found = pyramid.tile_matrix_set
            yield Found(pyramid.group, f"tile_matrix_set is the URI {found!r}", "a name, or the set", found)
    for pyramid in hierarchy.pyramids:
        if pyramid.tile_matrix_set is None and pyramid.is_object:
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
     "spell it as the draft does (zstore fix does)", is_read=True)  # fmt: skip
Rule("MS-16", "error", "overviews", "mini spec, MultiscaleMetadata",
     "resampling_method is there, and one of the fifteen names.", "spell it as the draft does",
     profiles=(MINI,), same_as="GZ-47", is_read=True)  # fmt: skip


@Rule("GZ-48", "error", "overviews", "draft 8.2.6", "All levels are made by the same method.",
      "make the levels anew, or state what was done", general="warning", each="pyramids")  # fmt: skip
def check_one_method(pyramid: Pyramid) -> Iterator[Found]:
    top = member_of(pyramid.stated, "resampling_method")
    items = layout_items(pyramid.stated)
    methods = [item["resampling_method"] for item in items if "resampling_method" in item]
    wanted = top if top is not None else methods[0] if methods else None
    for item in items:
        found = item.get("resampling_method", wanted)
        if found != wanted:
            message = f"level {item.get('asset')!r} is made by {found!r}, the others by {wanted!r}"
            yield Found(pyramid.group, message, wanted, found)


@Rule("MS-23", "warning", "overviews", "mini spec, Extra members",
      "A multiscale group holds its levels and nothing else.", "move the other members elsewhere",
      general="note", profiles=(MINI,), each="pyramids")  # fmt: skip
def check_extra_members(pyramid: Pyramid) -> Iterator[Found]:
    names = _level_names(pyramid) | set(pyramid.matrices)
    extra = sorted(set(pyramid.group.children) - names)
    if extra and names and "" not in names:
        yield Found(pyramid.group, f"{extra} are no levels", sorted(names), extra)

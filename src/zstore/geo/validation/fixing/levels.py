"""Fixes of `multiscales`: tile matrices, limits, the layout, and lists of other dialects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Convention
from zstore.geo.conventions.geozarr import (
    LIMITS,
    Geozarr,
    asset_path,
    is_number,
    member_of,
    parse_limits,
    parse_numbers,
    parse_tile_matrix_crs,
    render_layout,
    render_limits,
    render_tiles,
    why_no_tiles,
)
from zstore.geo.conventions.levels import LevelPlace
from zstore.geo.conventions.lists import Multiscales
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.model import GeoModel, Level
from zstore.geo.validation.fixing.crs import crs_of
from zstore.geo.validation.fixing.places import affine_of, is_near
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.pyramids import find_unnamed_levels, tile_offset, unlisted_levels
from zstore.geo.validation.view import GroupView

# The rule and the message of a pyramid that is written in another convention.
CONVERSIONS = {
    "geozarr": ("GZ-37", "multiscales written as GeoZarr's object"),
    "multiscales": ("OC-10", "multiscales written as a list"),
    "zarr_conventions": ("ZC-02", "multiscales written as a layout"),
    "ome": ("OME", "ome added"),
}


def fix_levels(draft: Draft) -> None:
    """Fix every `multiscales` object, or write what the profile has in its place."""
    for group, names in find_unnamed_levels(draft.hierarchy):
        draft.refuse(
            "MS-15", group, f"nothing says how the levels {names} were made; expected `zstore pyramid`"
        )
    for pyramid in draft.hierarchy.pyramids:
        geo = _model(draft, pyramid)
        if geo is None:
            draft.refuse("GZ-37", pyramid.group, "where the levels lie is not known")
        elif draft.levels_in is not None and not _is_in(draft.levels_in, pyramid):
            _convert(draft, pyramid, geo, draft.levels_in)
        elif pyramid.is_object:
            _fix_object(draft, pyramid, geo)


def _model(draft: Draft, pyramid: Pyramid) -> GeoModel | None:
    """The model of a pyramid as fixed: each level's own affine and tiles, and one CRS."""
    geo, levels = pyramid.geo, []
    if geo is None or not pyramid.levels:
        return None
    for place in pyramid.levels:
        grid = next((g for g in place.grids.values() if g.shape == place.shape), None)
        if grid is None:
            return None
        tiles = {held.tile for held in place.grids.values() if held.shape == place.shape}
        affine = affine_of(draft, grid)
        levels.append(
            Level(place.path, grid.shape, affine, place.factors, tiles.pop() if len(tiles) == 1 else None)
        )
    first = next(iter(pyramid.levels[0].grids.values()))
    base = levels[0]
    for position, level in enumerate(levels[1:], 1):
        if level.affine is not None and base.affine is not None:
            cells = [round(a / b, 9) for a, b in zip(level.affine.cell, base.affine.cell, strict=True)]
            levels[position] = replace(level, factors=(cells[0], cells[1]))
    method = geo.resampling or draft.method
    crs = crs_of(draft, first)
    return replace(geo, crs=crs, affine=base.affine, levels=tuple(levels), resampling=method)


def _is_in(convention: Convention, pyramid: Pyramid) -> bool:
    """Whether a pyramid's levels are written in a convention already; no list is made another list."""
    is_listed = isinstance(pyramid.stated, list) and isinstance(convention, Multiscales)
    return is_listed or bool(convention.parse(pyramid.group, pyramid.group.parent).levels)


def _convert(draft: Draft, pyramid: Pyramid, geo: GeoModel, convention: Convention) -> None:
    rule, message = CONVERSIONS[convention.name]
    trouble = _why_no_object(pyramid, geo) if isinstance(convention, Geozarr) else None
    try:
        rendered = convention.render(geo, pyramid.group.zarr_format)
    except MetadataError as error:
        trouble = trouble or error.message
    if trouble is not None:
        draft.refuse(rule, pyramid.group, trouble)
        return
    attributes = draft.attributes(pyramid.group)
    wanted, stated = rendered[""]["attributes"], attributes.get("zarr_conventions", [])
    if isinstance(attributes.get("multiscales"), dict) and isinstance(wanted.get("multiscales"), dict):
        wanted["multiscales"] = attributes["multiscales"] | wanted["multiscales"]
    if isinstance(stated, list) and "zarr_conventions" in wanted:
        known = [entry for entry in wanted["zarr_conventions"] if entry not in stated]
        wanted["zarr_conventions"] = [*stated, *known]
    draft.update(rule, pyramid.group, message, wanted)


def _why_no_object(pyramid: Pyramid, geo: GeoModel) -> str | None:
    """Why a pyramid cannot be written as GeoZarr's object; None where it can."""
    reason = why_no_tiles(geo)
    if geo.resampling is None:
        return "nothing says how the levels were made; expected --method"
    if reason is not None:
        return f"there can be no tile matrix set: {reason}"
    if any("/" in level.path or not isinstance(level.node, GroupView) for level in pyramid.levels):
        return "the levels are no groups right below: the data would have to move"
    return None


def _fix_object(draft: Draft, pyramid: Pyramid, geo: GeoModel) -> None:
    stated = draft.attributes(pyramid.group)["multiscales"]
    changed = dict(stated)
    if "layout" in stated:
        changed["layout"] = _fix_layout(stated["layout"], pyramid, geo)
    if isinstance(stated.get("tile_matrix_set"), dict):
        reason = why_no_tiles(geo)
        if reason is None:
            changed |= _fix_tiles(pyramid, geo, stated)
        elif any(finding.rule in ("GZ-44", "GZ-45") for finding in pyramid.reading.findings):
            draft.refuse("GZ-44", pyramid.group, f"the tile matrices cannot be worked out: {reason}")
    draft.update("GZ-44", pyramid.group, "multiscales says what the levels are", {"multiscales": changed})


def _fix_layout(layout: Any, pyramid: Pyramid, geo: GeoModel) -> Any:
    """The layout with an item for each level, the finest first, each with its level's own numbers."""
    rendered = {item["asset"]: item for item in render_layout(geo)["layout"]}
    if not isinstance(layout, list) or not layout:
        return list(rendered.values())
    items = _with_unlisted([_with_asset(item, pyramid) for item in layout], pyramid, geo)
    ranks = {level.path: rank for rank, level in enumerate(geo.levels)}
    known = [ranks[path] for item in items if (path := asset_path(item)) in ranks]
    if known != sorted(known):
        # Readers take the first for the finest.
        items.sort(key=lambda item: ranks.get(asset_path(item) or "", len(ranks)))
    return [_fix_item(item, geo) for item in items]


def _with_asset(item: Any, pyramid: Pyramid) -> Any:
    asset = member_of(item, "asset")
    if isinstance(asset, str) and asset.startswith("/") and pyramid.group.below(asset.strip("/")) is not None:
        return {**item, "asset": asset.strip("/")}
    return item


def _with_unlisted(items: list[Any], pyramid: Pyramid, geo: GeoModel) -> list[Any]:
    """The items, and one for each level that has a tile matrix and is not listed.

    Its other members are added in the next round, when it is read as a level.
    """
    listed = {asset_path(item) for item in items}
    unlisted = [name for name in unlisted_levels(pyramid) if name not in listed]
    for number, item in enumerate(items):
        path = asset_path(item)
        if not path or pyramid.group.below(path) is not None or len(unlisted) != 1:
            continue
        spatial = pyramid.group.groups[unlisted[0]].attrs
        if item.get("spatial:shape") == spatial.get("spatial:shape") is not None:
            items[number] = {**item, "asset": unlisted.pop()}
    if not geo.levels:
        return items
    more = [{"asset": name, "derived_from": geo.levels[0].path, "transform": {}} for name in unlisted]
    if geo.resampling is not None:
        more = [{**item, "resampling_method": geo.resampling} for item in more]
    return items + more


def _fix_item(item: Any, geo: GeoModel) -> Any:
    if not isinstance(item, dict):
        return item
    changed = dict(item)
    level = next((level for level in geo.levels if level.path == changed.get("asset")), None)
    if level is None:
        return changed
    if "spatial:shape" in item and item["spatial:shape"] != list(level.shape):
        changed["spatial:shape"] = list(level.shape)
    affine, stated = level.affine, parse_numbers(item.get("spatial:transform"), 6)
    if "spatial:transform" in item and affine is not None and not is_near(stated, affine, affine):
        changed["spatial:transform"] = list(affine)
    source = next((s for s in geo.levels if s.path == str(item.get("derived_from", "")).strip("/")), None)
    if "derived_from" in item and (source is None or source is level):
        source = geo.levels[0]
        changed["derived_from"] = source.path
    return changed | _fix_scale(item, level, source or geo.levels[0], "derived_from" in item)


def _fix_scale(item: dict[str, Any], level: Level, source: Level, is_derived: bool) -> dict[str, Any]:
    """The corrected `transform` of an item of a layout, which leads from the source to the level."""
    transform = item.get("transform")
    wanted = [mine / theirs for mine, theirs in zip(level.factors, source.factors, strict=True)]
    if not isinstance(transform, dict):
        made = {"scale": [float(f) for f in wanted], "translation": [0.0, 0.0]}
        return {"transform": made} if is_derived else {}
    changed = dict(transform) or {"scale": [0.0, 0.0], "translation": [0.0, 0.0]}
    scale, translation = changed.get("scale"), changed.get("translation")
    if isinstance(scale, list) and len(scale) >= 2:
        found = parse_numbers(scale[-2:], 2)
        if found is None or any(abs(a - b) > 1e-6 * b for a, b in zip(found, wanted, strict=True)):
            changed["scale"] = [*scale[:-2], *(float(f) for f in wanted)]
    if isinstance(translation, list) and any(translation):
        # All levels share their corner: the offset of the first centre is none.
        changed["translation"] = [0.0] * len(translation)
    return {"transform": changed}


def _fix_tiles(pyramid: Pyramid, geo: GeoModel, stated: dict[str, Any]) -> dict[str, Any]:
    """The members of `multiscales` about tiles, with what is wrong in them replaced."""
    rendered = render_tiles(geo)
    wanted_set = rendered["tile_matrix_set"]
    found_set = dict(stated["tile_matrix_set"])
    wanted = {matrix["id"]: matrix for matrix in wanted_set["tileMatrices"]}
    matrices = found_set.pop("tile_matrices", found_set.get("tileMatrices"))
    places = {level.path: level for level in pyramid.levels}
    matrices_now = [
        _fix_matrix(matrix, wanted[str(matrix["id"])], pyramid, places[str(matrix["id"])])
        if isinstance(matrix, dict) and str(matrix.get("id")) in wanted
        else matrix
        for matrix in (matrices if isinstance(matrices, list) else ())
    ]
    known = {str(matrix.get("id")) for matrix in matrices_now if isinstance(matrix, dict)}
    matrices_now += [matrix for name, matrix in wanted.items() if name not in known]
    result = {**found_set, "tileMatrices": matrices_now}
    result.setdefault("id", wanted_set["id"])
    if _is_other_crs(pyramid, geo):
        result |= {"crs": wanted_set["crs"], "orderedAxes": wanted_set["orderedAxes"]}
        if "supportedCRS" in result:
            result["supportedCRS"] = wanted_set["crs"]
    changed: dict[str, Any] = {"tile_matrix_set": result}
    by_id = {str(matrix.get("id")): matrix for matrix in matrices_now if isinstance(matrix, dict)}
    limits = _fix_limits(stated, by_id)
    for member in LIMITS:
        if isinstance(stated.get(member), dict):
            changed[member] = {name: limits[member][name] for name in stated[member] if name in by_id}
    return changed


def _is_other_crs(pyramid: Pyramid, geo: GeoModel) -> bool:
    for member in ("crs", "supportedCRS"):
        if member in pyramid.tile_matrix_set:
            found = parse_tile_matrix_crs({member: pyramid.tile_matrix_set[member]}, "", [])
            if found is None or geo.crs is None or not found.is_same(geo.crs):
                return True
    return not any(member in pyramid.tile_matrix_set for member in ("crs", "supportedCRS"))


def _fix_matrix(
    matrix: dict[str, Any], wanted: dict[str, Any], pyramid: Pyramid, place: LevelPlace
) -> dict[str, Any]:
    changed = {**matrix, "id": str(matrix["id"])}
    for name in ("cellSize", "scaleDenominator"):
        if not is_number(matrix.get(name)) or abs(matrix[name] - wanted[name]) > 1e-9 * abs(wanted[name]):
            changed[name] = wanted[name]
    for name in ("tileWidth", "tileHeight"):
        if matrix.get(name) != wanted[name] and not _holds_all(matrix, place):
            changed[name] = wanted[name]
    is_same_cut = all(
        changed.get(name) == matrix.get(name) for name in ("cellSize", "tileWidth", "tileHeight")
    )
    offset = tile_offset(pyramid, place.path) if is_same_cut else None
    first = [round(tiles) for tiles in offset] if offset is not None else [0, 0]
    is_aligned = offset is not None and all(
        abs(tiles - near) < 1e-6 and near >= 0 for tiles, near in zip(offset, first, strict=True)
    )
    if not is_aligned:
        first = [0, 0]
        changed["pointOfOrigin"] = wanted["pointOfOrigin"]
        if wanted["cornerOfOrigin"] != matrix.get("cornerOfOrigin", "topLeft"):
            changed["cornerOfOrigin"] = wanted["cornerOfOrigin"]
    for name, before in (("matrixWidth", first[0]), ("matrixHeight", first[1])):
        found, needed = matrix.get(name), wanted[name] + before
        is_right = found == needed if before == 0 else is_number(found) and found >= needed
        if not is_right:
            changed[name] = needed
    return changed


def _holds_all(matrix: dict[str, Any], place: LevelPlace) -> bool:
    """Whether one tile holds the whole level, which then needs no chunk of its size."""
    shape = place.shape or (0, 0)
    sizes: tuple[Any, Any] = (matrix.get("tileHeight"), matrix.get("tileWidth"))
    chunks = [grid.tile for grid in place.grids.values()]
    return all(
        is_number(size) and n <= size and all(n <= tile[axis] for tile in chunks)
        for axis, (size, n) in enumerate(zip(sizes, shape, strict=True))
    )


def _fix_limits(stated: dict[str, Any], matrices: Mapping[str, Any]) -> dict[str, Any]:
    """Both objects of limits: the stated ones where they are valid, else the whole tile matrix."""
    made = {}
    for name, matrix in matrices.items():
        rows, columns = matrix.get("matrixHeight", 1), matrix.get("matrixWidth", 1)
        found = [parse_limits(stated, member, name) for member in LIMITS]
        possible = {n for n in found if n and 0 <= n[0] <= n[1] < rows and 0 <= n[2] <= n[3] < columns}
        made[name] = possible.pop() if len(possible) == 1 else (0, rows - 1, 0, columns - 1)
    return render_limits(made)

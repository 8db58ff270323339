"""Fixes of the georeference in every dialect that a store uses: CRS, coordinates, transforms, levels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, Convention, Document, Documents, GeoModel, Level, Variable
from zstore.geo.conventions.cf import (
    CRS_VARIABLE,
    mapping_names,
    parse_geotransform,
    render_coordinates,
    render_geotransform,
    unwrap,
)
from zstore.geo.conventions.content import angle_of, fit_line, rounding_of
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import (
    CRS_MEMBERS,
    LIMITS,
    Geozarr,
    asset_path,
    declared,
    is_number,
    member_of,
    parse_limits,
    parse_numbers,
    parse_tile_matrix_crs,
    render_crs,
    render_layout,
    render_limits,
    render_tiles,
    why_no_tiles,
)
from zstore.geo.conventions.levels import Grid, LevelPlace, Multiscales
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.write import render_geo
from zstore.geo.validation.fixing.documents import Draft, implied_nodata
from zstore.geo.validation.fixing.evidence import parse_text_crs
from zstore.geo.validation.rules.georeference import is_length, is_synonym
from zstore.geo.validation.rules.pyramids import (
    find_unnamed_levels,
    tile_offset,
    unlisted_levels,
)
from zstore.geo.validation.units import dimension_of
from zstore.geo.validation.view import ArrayView, GroupView, NodeView, coordinate_of, mapping_of
from zstore.model.packing import decode, encode, quantum, render_nodata
from zstore.nodes.open import create_array, open_array
from zstore.storage.base import join_key


def crs_of(draft: Draft, grid: Grid, refuses: bool = False) -> Crs | None:
    """The CRS of a grid: the user's, else the one that its statements settle on; None without."""
    if draft.crs is not None:
        return draft.crs
    crs, disagreeing = draft.evidence.settle_crs(grid)
    if disagreeing and refuses:
        names = " and ".join(sorted({found.crs.label for found in disagreeing}))
        sources = ", ".join(sorted({found.source for found in disagreeing}))
        message = f"the array's CRS is stated as {names}; expected --crs, or --trust with one of {sources}"
        draft.refuse("OC-08", grid.node, message)
    return crs


class MemberRule(NamedTuple):
    """The rule by which the rendered value of an attribute replaces the stored one.

    rule      that a change is noted for
    is_right  (stored, rendered, the model) -> whether the stored value stays
    is_added  whether the rendered value is stored where there is none
    """

    rule: str
    is_right: Callable[[Any, Any, GeoModel], bool]
    is_added: bool = False


def _is_equal(stored: Any, rendered: Any, geo: GeoModel) -> bool:
    return bool(stored == rendered)


def _is_any(stored: Any, rendered: Any, geo: GeoModel) -> bool:
    return True


def _is_crs(stored: Any, rendered: Any, geo: GeoModel) -> bool:
    is_bare = isinstance(stored, str) and re.fullmatch(r"[\w ]*", stored) is not None
    return not is_bare and _states(stored, geo.crs)


def _is_place(stored: Any, rendered: Any, geo: GeoModel) -> bool:
    """Whether numbers, or a text of numbers, are the rendered ones within a millionth of a cell."""
    if isinstance(rendered, str):
        try:
            stored, rendered = list(parse_geotransform(stored)), list(parse_geotransform(rendered))
        except MetadataError:
            return False
    numbers, small = parse_numbers(stored, len(rendered)), 1e-6 * min(geo.cell_size or (0.0,))
    return numbers is not None and all(abs(a - b) <= small for a, b in zip(numbers, rendered, strict=True))


def _is_number(stored: Any, rendered: Any, geo: GeoModel) -> bool:
    """Whether a number is the rendered one; texts have several spellings, each of which stays."""
    if not isinstance(rendered, int | float):
        return stored is not None and rendered is not None
    return is_number(stored) and abs(stored - rendered) <= 1e-9 * abs(rendered) + 1e-12


def _is_scale(stored: Any, rendered: Any, geo: GeoModel) -> bool:
    """Whether a layout's transform scales the last two dimensions as rendered, and moves nothing."""
    scale, moves = member_of(stored, "scale"), member_of(stored, "translation")
    if (
        not stored
        or not isinstance(stored, dict)
        or (moves and any(moves if isinstance(moves, list) else [1]))
    ):
        return False
    numbers = parse_numbers(scale[-2:], 2) if isinstance(scale, list) else None
    return (
        scale is None
        if numbers is None
        else all(abs(a - b) <= 1e-6 * b for a, b in zip(numbers, rendered["scale"][-2:], strict=True))
    )


TILES = ("tileWidth", "tileHeight", "matrixWidth", "matrixHeight", "pointOfOrigin", "cornerOfOrigin")
# Attributes that are not here stay as they are, and are not added.
MEMBERS = {
    **dict.fromkeys(
        ("grid_mapping", "coordinates", "_FillValue", "missing_value"), MemberRule("MS-05", _is_equal, True)
    ),
    "_CRS": MemberRule("OC-06", _is_equal, True),
    **dict.fromkeys(("crs_wkt", "spatial_ref"), MemberRule("OC-05", _is_crs, True)),
    "grid_mapping_name": MemberRule("OC-05", _is_equal, True),
    **dict.fromkeys(CRS_MEMBERS, MemberRule("ZC-07", _is_crs)),
    **dict.fromkeys(("spatial:transform", "spatial:bbox"), MemberRule("ZC-05", _is_place)),
    "spatial:shape": MemberRule("ZC-05", _is_equal),
    "spatial:dimensions": MemberRule("ZC-05", _is_any),
    **dict.fromkeys(("standard_name", "units", "axis"), MemberRule("GZ-14", _is_any, True)),
    "transform": MemberRule("GZ-44", _is_scale),
    "GeoTransform": MemberRule("MS-28", _is_place),
    **dict.fromkeys(("cellSize", "scaleDenominator"), MemberRule("GZ-44", _is_number, True)),
    **dict.fromkeys(TILES, MemberRule("GZ-44", _is_equal, True)),
}
WORDS = {
    "MS-05": "written for the variable that holds the CRS",
    "GZ-14": "added",
    **dict.fromkeys(("MS-28", "ZC-05"), "written for the grid's own place"),
}
PARAMETER = MemberRule("OC-05", _is_number, True)


def render_grid(grid: Grid, crs: Crs | None, affine: Affine | None) -> tuple[GeoModel, Documents]:
    """(model, documents) of one grid by itself: of its group "", the array "data", and `spatial_ref`."""
    geo = GeoModel(crs, affine, grid.shape, variables={"data": Variable()})
    return geo, render_geo(geo, grid.node.zarr_format)[0]


def repairs(stored: Mapping[str, Any], rendered: Mapping[str, Any], geo: GeoModel) -> dict[str, Any]:
    """The values to store in place of wrong and missing ones; None for those to remove."""
    gone = [name for name, wanted in rendered.items() if wanted is None]
    known = dict.fromkeys([*gone, *(geo.crs.cf if geo.crs else ())], PARAMETER) | MEMBERS
    changes: dict[str, Any] = {}
    for name in [name for name in rendered if name in known]:
        member, wanted = known[name], rendered[name]
        is_missing = name not in stored and member.is_added and wanted is not None
        if is_missing or (name in stored and not member.is_right(stored[name], wanted, geo)):
            changes[name] = wanted
    return changes


def put(draft: Draft, node: NodeView, changes: Mapping[str, Any]) -> None:
    """Set attributes, and remove those that are None, each under its rule."""
    rules = {name: MEMBERS.get(name, PARAMETER).rule for name in changes}
    for rule in dict.fromkeys(rules.values()):
        own = {name: value for name, value in changes.items() if rules[name] == rule}
        draft.update(rule, node, f"{', '.join(own)} {WORDS.get(rule, 'written for the CRS')}", own)


def _states(value: Any, crs: Crs | None) -> bool:
    """Whether a value of an attribute states this CRS."""
    found = parse_text_crs(value)
    return crs is not None and found is not None and found.is_same(crs)


def fix_crs(draft: Draft) -> None:
    """Fix every grid's grid mapping variable and `_CRS`, and `proj:` of the groups that have it."""
    for grid in draft.hierarchy.grids.values():
        crs = crs_of(draft, grid, refuses=True)
        if crs is None:
            continue
        geo, documents = render_grid(grid, crs, None)
        stored = draft.attributes(grid.node)
        whole = documents["data"]["attributes"]["_CRS"]
        rendered: dict[str, Any] = {"_CRS": _gdals(stored.get("_CRS"), whole, geo)}
        name = _fix_mapping(draft, grid, geo, documents[CRS_VARIABLE])
        if name is not None:
            # Without it among the coordinates, xarray reads the variable as data, and rioxarray finds no CRS.
            listed = str(stored.get("coordinates") or "").split()
            names = " ".join(listed if name in listed else [name, *listed])
            spelt = stored.get("grid_mapping")
            is_named = mapping_names(spelt)[:1] == [name]
            rendered |= {"grid_mapping": spelt if is_named else name, "coordinates": names}
            if (nodata := implied_nodata(grid.node)) is not None:
                # With a grid mapping, the array is no longer GDAL's alone, nor its fill value nodata.
                rendered |= render_nodata(nodata, grid.node.dtype, 3)
        put(draft, grid.node, repairs(stored, rendered, geo))
    _fix_groups(draft)


def _gdals(stored: Any, rendered: dict[str, Any], geo: GeoModel) -> dict[str, Any]:
    """`_CRS` with its stored members, each corrected; with the WKT if none is stored."""
    if not isinstance(stored, dict) or not stored:
        return rendered
    members = {n: rendered.get(n) for n in ("url", "wkt", "projjson") if n in stored}
    right = {n: stored[n] if _states(stored[n], geo.crs) else v for n, v in members.items()}
    right = {n: v for n, v in right.items() if v is not None} or {"wkt": rendered["wkt"]}
    return {n: v for n, v in stored.items() if n not in members} | right


def _fix_mapping(draft: Draft, grid: Grid, geo: GeoModel, document: Document) -> str | None:
    """Fix or create a grid's grid mapping variable; returns its name, None if the grid should have none."""
    group = grid.node.parent
    is_wanted = draft.has_mapping or grid.node.attrs.get("grid_mapping") is not None
    stated, mapping = mapping_of(grid.node)
    # A mapping that is no view lies above all that is looked at.
    if not isinstance(group, GroupView) or not is_wanted or not isinstance(mapping, ArrayView | None):
        return None
    # Of a name that no node of the group can have, nothing is made.
    name = stated if stated and "/" not in stated and stated.strip(".") else CRS_VARIABLE
    if mapping is None and (there := _mapping_there(draft, group, geo.crs)) is not None:
        name, mapping = there.name, there
    if mapping is not None and mapping.attrs.keys() and mapping.name in (grid.node.dims or ()):
        # A coordinate that is named for the CRS is not the place for one.
        name, mapping = CRS_VARIABLE, None
    if mapping is None:
        existing = group.arrays.get(name)
        mapping = existing if existing is not None and existing.shape == () else None
        if mapping is None and name in group.children:
            draft.refuse("MS-05", grid.node, f"{name!r} is there, and is no grid mapping variable")
            return None
    if mapping is None:
        is_there = _create(draft, "MS-04", group, name, document, "the grid mapping variable is written")
        return name if is_there else None
    stored = draft.attributes(mapping)
    # Parameters of the CRS that was stated before, which this one has not.
    former = None if _states(stored.get("crs_wkt"), geo.crs) else parse_text_crs(stored.get("crs_wkt"))
    put(
        draft,
        mapping,
        repairs(stored, dict.fromkeys(former.cf if former else ()) | document["attributes"], geo),
    )
    return name


def _mapping_there(draft: Draft, group: GroupView, crs: Crs | None) -> ArrayView | None:
    """The group's one grid mapping variable, if it is of that CRS."""
    mappings: list[ArrayView] = list(draft.hierarchy.meaning.roles(group).mappings.values())
    stated = [mappings[0].attrs.get(n) for n in ("crs_wkt", "spatial_ref")] if len(mappings) == 1 else []
    return mappings[0] if any(_states(value, crs) for value in stated) else None


def _create(
    draft: Draft, rule: str, group: GroupView, name: str, document: Document, message: str, **options: Any
) -> bool:
    """Create a coordinate or a grid mapping variable; False if values lie there without a node."""
    path = join_key(group.path, name)
    key = join_key(path, "zarr.json" if group.zarr_format == 3 else ".zarray")
    is_there = draft.store.get(key) is not None
    if not options and (is_there or draft.is_occupied(rule, path)):
        return is_there
    create_array(
        draft.store,
        path,
        data=document["data"],
        chunks=-1 if document["data"].shape else (),
        compressors=None,
        fill_value=document["fill_value"],
        zarr_format=group.zarr_format,
        dimension_names=document["dimension_names"],
        attributes=document["attributes"],
        **options,
    )
    draft.note(rule, path, message)
    return True


def _fix_groups(draft: Draft) -> None:
    """Fix `proj:` of every group whose grids have one CRS, and of multiscale groups."""
    held: dict[Any, list[Crs | None]] = {}
    for grid in draft.hierarchy.grids.values():
        held.setdefault(grid.node.parent, []).append(crs_of(draft, grid))
    # What a multiscale group says of its CRS its levels say again, which inherit nothing from it.
    repeated: set[Any] = set()
    for pyramid in draft.hierarchy.pyramids:
        levels = [grid for level in pyramid.levels for grid in level.grids.values()]
        held.setdefault(pyramid.group, [crs_of(draft, grid) for grid in levels])
        if any(name in pyramid.group.attrs for name in CRS_MEMBERS):
            repeated |= {level.node for level in pyramid.levels}
    for group, found in held.items():
        known = [crs for crs in found if crs is not None]
        if isinstance(group, GroupView) and known and all(crs.is_same(known[0]) for crs in known):
            stored, rendered = draft.attributes(group), render_crs(known[0])
            wanted = dict.fromkeys(CRS_MEMBERS) | rendered
            changes = repairs(stored, wanted, GeoModel(known[0], None, (1, 1)))
            is_said = any(name in stored and changes.get(name, True) is not None for name in CRS_MEMBERS)
            if not is_said and (changes or group in repeated or "proj" in declared(group)):
                changes |= rendered
            put(draft, group, changes)


# Of a cell: what is nearer is right, but for how numbers are rounded.
CLOSE = 1e-3


def affine_of(draft: Draft, grid: Grid) -> Affine | None:
    """The affine that most statements about a grid support; None, with the reason noted, if none wins."""
    settled = draft.evidence.settle(grid)
    if settled.affine is None and settled.trouble is not None:
        draft.refuse(settled.rule, grid.node, settled.trouble)
    return settled.affine


def fix_places(draft: Draft) -> None:
    """Fix the coordinates of every grid, and the transforms in its documents."""
    done: set[str] = set()
    for grid in draft.hierarchy.grids.values():
        affine = affine_of(draft, grid)
        if affine is None:
            continue
        group, crs = grid.node.parent, None if crs_of(draft, grid) is None else grid.crs
        geo = GeoModel(crs, affine, grid.shape, grid.dimensions)
        documents = render_coordinates(geo, geo.grids[0]) if isinstance(group, GroupView) else {}
        for name, document in documents.items():
            path = join_key(group.path, name)
            if name and path not in done:
                done.add(path)
                _fix_coordinate(draft, grid, geo, name, document)
        if grid.node.attrs.get("AREA_OR_POINT") != "Point":
            _fix_transforms(draft, grid, affine)


def _fix_coordinate(draft: Draft, grid: Grid, geo: GeoModel, name: str, document: Document) -> None:
    group, centres = grid.node.parent, document["data"]
    wanted = {n: value for n, value in document["attributes"].items() if n != "long_name"}
    coordinate = coordinate_of(grid.node, name)
    if coordinate is None:
        if name not in group.children and not name.startswith("/"):
            _create(draft, "MS-11", group, name, document, "coordinates written")
        return
    missing = repairs(coordinate.attrs, wanted, geo)
    name_there = coordinate.attrs.get("standard_name", wanted.get("standard_name"))
    if "units" not in missing or name_there == wanted.get("standard_name"):
        put(draft, coordinate, missing)
    if len(coordinate.shape) == 1 and coordinate.shape != centres.shape:
        _fix_length(draft, grid, coordinate, document)
        return
    _fix_description(draft, grid, coordinate, centres, wanted)
    _fix_values(draft, coordinate, centres, wanted)


def _fix_length(draft: Draft, grid: Grid, coordinate: ArrayView, document: Document) -> None:
    """Rewrite coordinates of another length, if the grid's own length is confirmed."""
    is_level = draft.evidence.pyramid_of(grid) is not None
    shapes = [coordinate.parent.attrs.get("spatial:shape")] if coordinate.parent is not None else []
    if not is_level and list(grid.shape) not in shapes:
        message = f"coordinates are {coordinate.shape[0]} long, the dimension {len(document['data'])}"
        draft.refuse("MS-11", coordinate, f"{message}; expected spatial:shape to say which is right")
        return
    attributes = {n: value for n, value in draft.attributes(coordinate).items() if n not in OF_NUMBERS}
    attributes |= {n: value for n, value in document["attributes"].items() if n in OF_NUMBERS}
    message = f"as many coordinates as cells written: {len(document['data'])}"
    document = Document({**document, "attributes": attributes})
    _create(draft, "MS-11", grid.node.parent, coordinate.name, document, message, overwrite=True)


# The attributes that say how the numbers of a coordinate are meant: new numbers bring their own.
OF_NUMBERS = {"_ARRAY_DIMENSIONS", "units", "scale_factor", "add_offset", "_FillValue", "missing_value"}
DEGREES = re.compile(r"degrees?(_[a-z]+|[ENSW])?", re.IGNORECASE)
FULL_CIRCLE = 361.0


def _fix_description(
    draft: Draft, grid: Grid, coordinate: ArrayView, centres: np.ndarray[Any, Any], wanted: Mapping[str, Any]
) -> None:
    """Correct `standard_name`, `units` and `axis` of another CRS, if the numbers are this one's."""
    attributes = draft.attributes(coordinate)
    found = {name: attributes.get(name) for name in ("standard_name", "units", "axis")}
    wrong = {
        name: wanted[name]
        for name in found
        if name in wanted and found[name] is not None and not is_synonym(found[name], wanted[name])
    }
    values = coordinate.numbers()
    is_confirmed = values is not None and _are_centres(coordinate, values, centres)
    projection = None if grid.crs is None else grid.crs.cf.get("grid_mapping_name")
    is_view = projection == "geostationary" and angle_of(str(found["units"])) is not None
    if not is_confirmed and (is_view or is_length(found["units"], str(wanted.get("units")))):
        # Readers convert them.
        wrong.pop("units", None)
    if not wrong:
        return
    if is_confirmed and not grid.stated_affines and draft.evidence.pyramid_of(grid) is None:
        # The numbers are all there is: they may be in the units that are stated.
        is_confirmed = dimension_of(str(found["units"])) in (None, dimension_of(str(wanted.get("units"))))
    rule = "MS-08" if "units" in wrong else "MS-07"
    if draft.evidence.is_told(grid):
        is_confirmed = True
    elif (
        values is not None and {"standard_name", "units"} <= set(wrong) and not _is_impossible(found, values)
    ):
        # Both say another kind of CRS, and the numbers allow it.
        message = f"standard_name {found['standard_name']!r} and units {found['units']!r} are another CRS's"
        draft.refuse(rule, coordinate, f"{message}; expected --trust, or the attributes corrected")
        return
    if is_confirmed or (values is not None and _is_impossible(found, values)) or rule == "MS-07":
        draft.update(rule, coordinate, f"{', '.join(sorted(wrong))} are the CRS's", wrong)
    else:
        draft.refuse(rule, coordinate, f"units are {found['units']!r}, and no transform confirms the numbers")


def _is_impossible(found: Mapping[str, Any], values: np.ndarray[Any, Any]) -> bool:
    """Whether the attributes claim degrees for numbers that are too large to be degrees."""
    is_angle = isinstance(found["units"], str) and DEGREES.fullmatch(found["units"])
    is_named = found["standard_name"] in ("longitude", "latitude")
    return bool(is_angle or is_named) and bool(np.nanmax(np.abs(values), initial=0.0) > FULL_CIRCLE)


def _are_centres(coordinate: ArrayView, values: np.ndarray[Any, Any], centres: np.ndarray[Any, Any]) -> bool:
    """Whether a coordinate's values are the centres, as far as it can store them."""
    if values.shape != centres.shape:
        return False
    values = unwrap(coordinate, values)
    step = abs(float(centres[-1] - centres[0])) / max(len(centres) - 1, 1) or 1.0
    packed = min(quantum(coordinate.attrs, coordinate.dtype), CLOSE * step)
    rounding = rounding_of(coordinate, centres) + packed
    return bool(np.abs(values - centres).max(initial=0.0) <= CLOSE * step + rounding)


def _fix_values(
    draft: Draft, coordinate: ArrayView, centres: np.ndarray[Any, Any], wanted: Mapping[str, Any]
) -> None:
    values = coordinate.numbers()
    if values is None or values.shape != centres.shape or _are_centres(coordinate, values, centres):
        return
    units = draft.attributes(coordinate).get("units", wanted.get("units"))
    if not is_synonym(units, wanted.get("units")):
        # Written in other units than the CRS's, the numbers say something else.
        return
    steps = np.diff(values)
    is_ordered = bool(np.all(steps > 0) or np.all(steps < 0))
    if is_ordered and fit_line(coordinate) is None:
        message = "coordinates are in order, and not regularly spaced: no transform can say where they are"
        draft.refuse("GZ-29", coordinate, message)
        return
    step = abs(float(centres[-1] - centres[0])) / max(len(centres) - 1, 1) or 1.0
    fitting = encode(centres, coordinate.attrs, coordinate.dtype)
    held = decode(fitting, coordinate.attrs).astype(np.float64)
    if coordinate.dtype.kind in "iu" and not np.allclose(held, centres, rtol=0, atol=CLOSE * step):
        stored = f"{coordinate.dtype}{' with packing' if quantum(coordinate.attrs, coordinate.dtype) else ''}"
        draft.refuse("GZ-29", coordinate, f"centres are no numbers that {stored} holds")
        return
    open_array(draft.store, coordinate.path, mode="r+")[...] = fitting
    off = np.nanmax(np.abs(values - centres), initial=0.0) / step
    draft.note("GZ-29", coordinate, f"centres of the cells written; they were up to {off:.3g} cells off")


def _fix_transforms(draft: Draft, grid: Grid, affine: Affine) -> None:
    geo, documents = render_grid(grid, None, affine)
    # Without a CRS no grid mapping variable is rendered, and yet one may have the transform.
    transform = {"GeoTransform": render_geotransform(affine)}
    spatial = {**documents[""]["attributes"], "spatial:dimensions": list(grid.dimensions)}
    group, mapping = grid.node.parent, mapping_of(grid.node)[1]
    placed: list[tuple[Any, dict[str, Any]]] = [(grid.node, transform | spatial), (group, spatial)]
    found = draft.evidence.pyramid_of(grid)
    if found is not None and found[0].group is not group:
        # A multiscale group repeats the finest level's, if that is what it has the shape of.
        is_its_own = found[0].group.attrs.get("spatial:shape") == list(grid.shape)
        placed += [(found[0].group, spatial)] if is_its_own else []
    if mapping is not None and mapping.parent is group:
        # What one in a group above says is not this grid's alone.
        placed.insert(1, (mapping, transform))
    for node, rendered in placed if isinstance(group, GroupView) else placed[:1]:
        stored = draft.attributes(node)
        is_pixel = stored.get("spatial:registration") in (None, "pixel")
        wanted = {n: v for n, v in rendered.items() if is_pixel or not n.startswith("spatial:")}
        is_placed = "spatial:shape" in wanted and any(name.startswith("spatial:") for name in stored)
        if not is_placed and not ("GeoTransform" in stored and "GeoTransform" in wanted):
            continue
        if _is_alone(draft, grid, node):
            changes = repairs(stored, wanted, geo)
            if is_placed and "spatial:dimensions" not in {**getattr(node.parent, "attrs", {}), **stored}:
                changes["spatial:dimensions"] = wanted["spatial:dimensions"]
            put(draft, node, changes)


def _is_alone(draft: Draft, grid: Grid, node: NodeView) -> bool:
    """Whether the attributes of `node` describe this grid only."""
    others = [g for g in draft.hierarchy.grids.values() if g.node.parent is grid.node.parent]
    if {other.shape for other in others} == {grid.shape} or node is grid.node:
        return True
    draft.refuse("MS-28", node, "its grids have several shapes: one transform cannot be all theirs")
    return False


# The rule and the message of a pyramid that is written in another convention.
CONVERSIONS = {
    "geozarr": ("GZ-37", "multiscales written as GeoZarr's object"),
    "multiscales": ("OC-10", "multiscales written as a list"),
    "zarr_conventions": ("ZC-02", "multiscales written as a layout"),
    "ome": ("OME", "ome added"),
}


def fix_levels(draft: Draft) -> None:
    """Fix every `multiscales` object, or replace it by the profile's."""
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
            Level(
                place.path,
                grid.shape,
                affine,
                place.factors,
                tiles.pop() if len(tiles) == 1 else None,
                place.others,
            )
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
    """Whether a convention already lists a pyramid's levels; for Multiscales, any list does."""
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
    """The reason why a pyramid cannot be written as GeoZarr's object; None if it can."""
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
    said = {name for item in items if isinstance(item, dict) for name in item if name.startswith("spatial:")}
    fixed = []
    for item in items:
        own = rendered.get(str(member_of(item, "asset")), {})
        # What is said of one level is said of all: a reader takes the transforms of all levels or gives up.
        shared = {name: value for name, value in own.items() if name in said}
        fixed.append(_fix_item({**shared, **item} if isinstance(item, dict) else item, own, geo))
    return fixed


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


def _fix_item(item: Any, rendered: Mapping[str, Any], geo: GeoModel) -> Any:
    """An item of a layout, corrected by the rendered one; its scale is that from its own source level."""
    levels = {level.path: level for level in geo.levels}
    level = levels.get(str(member_of(item, "asset")))
    if level is None:
        return item
    source = levels.get(str(item.get("derived_from", "")).strip("/"))
    if "derived_from" in item:
        # A level without a transform gets one, where it is derived.
        item = {**item, "transform": item.get("transform")}
        if source is None or source is level:
            source = geo.levels[0]
            item["derived_from"] = source.path
    # What is said of dimensions beside y and x stays, as do other members.
    transform, stated = item.get("transform"), member_of(item.get("transform"), "scale")
    sizes = zip(level.factors, (source or geo.levels[0]).factors, strict=True)
    scale = [*(stated[:-2] if isinstance(stated, list) else ()), *(float(a / b) for a, b in sizes)]
    others = transform if isinstance(transform, dict) else {}
    transform = {**others, "scale": scale, "translation": [0.0] * len(scale)}
    changes = repairs(item, {**rendered, "transform": transform}, replace(geo, affine=level.affine))
    return item | changes


def _fix_tiles(pyramid: Pyramid, geo: GeoModel, stated: dict[str, Any]) -> dict[str, Any]:
    """The members of `multiscales` about tiles, with wrong values replaced."""
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
            levels = {level.path for level in geo.levels}
            changed[member] = {
                name: limits[member][name] for name in by_id if name in levels | set(stated[member])
            }
    return changed


def _is_other_crs(pyramid: Pyramid, geo: GeoModel) -> bool:
    stated = [member for member in ("crs", "supportedCRS") if member in pyramid.tile_matrix_set]
    found = parse_tile_matrix_crs(pyramid.tile_matrix_set, "", [])
    is_same = geo.crs is not None and all(crs.is_same(geo.crs) for _, crs in found)
    return not stated or len(found) < len(stated) or not is_same


def _fix_matrix(
    matrix: dict[str, Any], rendered: dict[str, Any], pyramid: Pyramid, place: LevelPlace
) -> dict[str, Any]:
    """A tile matrix, corrected by the rendered one; it may begin any number of tiles before its level."""
    wanted, geo = dict(rendered), GeoModel(None, None, (1, 1))
    if _holds_all(matrix, place):
        wanted |= {name: matrix[name] for name in ("tileWidth", "tileHeight")}
    is_same_cut = not {"cellSize", "tileWidth", "tileHeight"} & set(repairs(matrix, wanted, geo))
    offset = tile_offset(pyramid, place.path) if is_same_cut else None
    first = [round(tiles) for tiles in offset or ()]
    if offset and all(abs(tiles - n) < 1e-6 and n >= 0 for tiles, n in zip(offset, first, strict=True)):
        for name, before in zip(("matrixWidth", "matrixHeight"), first, strict=True):
            # Beyond the level's last tile, such a matrix may have more.
            most = matrix[name] if before and is_number(matrix.get(name)) else 0
            wanted[name] = max(wanted[name] + before, most)
        wanted |= {name: matrix.get(name) for name in ("pointOfOrigin", "cornerOfOrigin")}
    elif wanted["cornerOfOrigin"] == matrix.get("cornerOfOrigin", "topLeft"):
        del wanted["cornerOfOrigin"]
    return {**matrix, "id": str(matrix["id"]), **repairs(matrix, wanted, geo)}


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
    """Both objects of limits: the stored ones if they are valid, else the whole tile matrix."""
    made = {}
    for name, matrix in matrices.items():
        rows, columns = matrix.get("matrixHeight", 1), matrix.get("matrixWidth", 1)
        found = [parse_limits(stated, member, name) for member in LIMITS]
        possible = {n for n in found if n and 0 <= n[0] <= n[1] < rows and 0 <= n[2] <= n[3] < columns}
        made[name] = possible.pop() if len(possible) == 1 else (0, rows - 1, 0, columns - 1)
    return render_limits(made)

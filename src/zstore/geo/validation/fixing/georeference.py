"""Fixes of the georeference in every dialect that a store uses: CRS, coordinates, transforms, levels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Convention
from zstore.geo.conventions.cf import coordinate_attributes
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.decoding import angle_of, rounding_of
from zstore.geo.conventions.gdal import CRS_VARIABLE, parse_geotransform, render_geotransform
from zstore.geo.conventions.geozarr import (
    CRS_MEMBERS,
    LIMITS,
    Geozarr,
    asset_path,
    declare,
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
from zstore.geo.conventions.levels import Grid, LevelPlace
from zstore.geo.conventions.lists import Multiscales
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.model import Affine, GeoModel, Level
from zstore.geo.validation.fixing.documents import implied_nodata
from zstore.geo.validation.fixing.evidence import fit_line
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.georeference import SYNONYMS, TIME_UNITS, coordinate_corner, is_length
from zstore.geo.validation.rules.pyramids import (
    IDENTIFIERS,
    find_unnamed_levels,
    tile_offset,
    unlisted_levels,
)
from zstore.geo.validation.units import dimension_of
from zstore.geo.validation.view import ArrayView, GroupView, NodeView, coordinate_of, mapping_of
from zstore.model.array import ZarrFormat
from zstore.model.packing import decode, encode, quantum, render_nodata
from zstore.nodes.open import create_array, open_array
from zstore.storage.base import join_key


def crs_of(draft: Draft, grid: Grid, refuses: bool = False) -> Crs | None:
    """The CRS of a grid: the user's, else the one that all statements agree on; None without.

    Those of the array itself and of its group first; where there is none, those of the groups above and of
    the tile matrix set. Of a pyramid, where they disagree, the one that outweighs all others at all levels.
    """
    if draft.crs is not None:
        return draft.crs
    handed = (facts for group in grid.node.ancestors() for facts in draft.hierarchy.meaning.facts(group))
    stated = [crs for _, crs in grid.stated_crs] or [crs for facts in handed for _, crs in facts.crs]
    text = grid.node.attrs.get("_CRS")
    if not stated and isinstance(text, str):
        # GDAL takes no text there; what it says is plain all the same.
        return _parsed(text)
    place = draft.evidence.pyramid_of(grid)
    if place is not None:
        weightiest, known = draft.evidence.settle_crs(place[0])
        if weightiest is not None and len(known) > 1:
            return weightiest
    if any(not crs.is_same(stated[0]) for crs in stated[1:]):
        if refuses:
            names = sorted({crs.label for crs in stated})
            message = f"the array's CRS is stated as {' and '.join(names)}; expected --crs"
            draft.refuse("OC-08", grid.node, message)
        return None
    return stated[0] if stated else None


def _parsed(value: Any) -> Crs | None:
    """The CRS that a value states; None where it states none."""
    try:
        return None if value is None else Crs.from_user(value)
    except MetadataError:
        return None


def fix_crs(draft: Draft) -> None:
    """Fix every grid's grid mapping variable and `_CRS`, and `proj:` of the groups that have it."""
    for grid in draft.hierarchy.grids.values():
        crs = crs_of(draft, grid, refuses=True)
        if crs is None:
            continue
        if isinstance(grid.node.parent, GroupView):
            _fix_mapping(draft, grid, grid.node.parent, crs)
        _fix_gdal(draft, grid, crs)
    _fix_groups(draft)


def _fix_mapping(draft: Draft, grid: Grid, group: GroupView, crs: Crs) -> None:
    if not draft.has_mapping and grid.node.attrs.get("grid_mapping") is None:
        return
    stated, mapping = mapping_of(grid.node)
    if mapping is not None and not isinstance(mapping, ArrayView):
        # It lies above all that is looked at.
        return
    # Of a name that no node of the group can have, nothing is made.
    name = stated if stated and "/" not in stated and stated.strip(".") else CRS_VARIABLE
    if mapping is None and (there := _mapping_there(draft, group, crs)) is not None:
        name, mapping = there.name, there
    if mapping is None or (mapping.attrs.keys() and mapping.name in (grid.node.dims or ())):
        if mapping is not None:
            # A coordinate that is named for the CRS is not the place for one.
            name, mapping = CRS_VARIABLE, None
        existing = group.arrays.get(name)
        mapping = existing if existing is not None and existing.shape == () else None
        if mapping is None and name in group.children:
            draft.refuse("MS-05", grid.node, f"{name!r} is there, and is no grid mapping variable")
            return
    attributes = {
        **crs.cf,
        "long_name": "coordinate reference system",
        "crs_wkt": crs.wkt,
        "spatial_ref": crs.wkt,
    }
    if mapping is None:
        if not _create_mapping(draft, group, name, attributes):
            return
    else:
        _fix_parameters(draft, mapping, crs)
    listed = str(grid.node.attrs.get("coordinates", "")).split()
    changes: dict[str, Any] = {"grid_mapping": name}
    if name not in listed:
        # Without this, xarray reads the variable as data, and rioxarray finds no CRS.
        changes["coordinates"] = " ".join([name, *listed])
    nodata = implied_nodata(grid.node)
    if nodata is not None:
        # With a grid mapping, the array is no longer GDAL's alone, and its fill value no longer nodata.
        changes |= render_nodata(nodata, grid.node.dtype, 3)
    draft.update("MS-05", grid.node, f"{', '.join(changes)}: {name!r} holds the CRS", changes)


def _mapping_there(draft: Draft, group: GroupView, crs: Crs) -> ArrayView | None:
    """The group's one grid mapping variable, if it states that CRS."""
    mappings: list[ArrayView] = list(draft.hierarchy.meaning.roles(group).mappings.values())
    says = len(mappings) == 1 and any(
        _states(mappings[0].attrs.get(n), crs) for n in ("crs_wkt", "spatial_ref")
    )
    return mappings[0] if says else None


def _create_mapping(draft: Draft, group: GroupView, name: str, attributes: Mapping[str, Any]) -> bool:
    path = join_key(group.path, name)
    if draft.store.get(join_key(path, "zarr.json" if group.zarr_format == 3 else ".zarray")) is not None:
        return True
    if draft.is_occupied("MS-04", path):
        return False
    create_array(
        draft.store,
        path,
        shape=(),
        dtype=np.int32,
        chunks=(),
        compressors=None,
        fill_value=0,
        zarr_format=group.zarr_format,
        dimension_names=(),
        attributes=attributes,
    )
    draft.note("MS-04", path, "the grid mapping variable is written")
    return True


def _fix_parameters(draft: Draft, mapping: ArrayView, crs: Crs) -> None:
    stated = draft.attributes(mapping)
    changes: dict[str, Any] = {}
    for member in ("crs_wkt", "spatial_ref"):
        if not _states(stated.get(member), crs):
            changes[member] = crs.wkt
    for name, expected in crs.cf.items():
        found = stated.get(name)
        if isinstance(expected, int | float) and isinstance(found, int | float):
            if np.isclose(found, expected, rtol=1e-9, atol=1e-9):
                continue
        elif isinstance(expected, list) and isinstance(found, list) and np.allclose(found, expected):
            continue
        if found is None or isinstance(expected, int | float) or name == "grid_mapping_name":
            changes[name] = expected
    others = {name: value for name, value in changes.items() if stated.get(name) != value}
    # Parameters of the CRS that was stated before, which this one has not.
    former = _parsed(stated.get("crs_wkt"))
    gone = [name for name in (former.cf if former else ()) if name in stated and name not in crs.cf]
    if gone and "crs_wkt" in others:
        draft.set_attributes(mapping, {name: value for name, value in stated.items() if name not in gone})
    draft.update("OC-05", mapping, f"{', '.join(sorted(others))} say the CRS", others)


def _states(value: Any, crs: Crs) -> bool:
    """Whether a value states that CRS."""
    found = _parsed(value)
    return found is not None and found.is_same(crs)


def _fix_gdal(draft: Draft, grid: Grid, crs: Crs) -> None:
    stated = draft.attributes(grid.node).get("_CRS")
    members = {"url": crs.url, "wkt": crs.wkt, "projjson": dict(crs.projjson)}
    wanted = {name: value for name, value in members.items() if value is not None}
    if isinstance(stated, dict) and stated:
        kept = {name: value for name, value in stated.items() if name not in members or _states(value, crs)}
        wanted = {**kept, **{n: wanted[n] for n in stated if n in wanted and n not in kept}}
        if not set(wanted) & set(members):
            wanted = {"wkt": crs.wkt, **wanted}
    draft.update("OC-06", grid.node, "_CRS says the CRS", {"_CRS": wanted})


def _fix_groups(draft: Draft) -> None:
    held: dict[str, tuple[GroupView, list[Crs]]] = {}
    for grid in draft.hierarchy.grids.values():
        crs = crs_of(draft, grid)
        group = grid.node.parent
        if crs is not None and isinstance(group, GroupView):
            held.setdefault(group.path, (group, []))[1].append(crs)
    for pyramid in draft.hierarchy.pyramids:
        found = [
            crs for level in pyramid.levels for grid in level.grids.values() if (crs := crs_of(draft, grid))
        ]
        if found and pyramid.group.path not in held:
            held[pyramid.group.path] = (pyramid.group, found)
        _repeat(draft, pyramid, held)
    for group, found in held.values():
        if all(crs.is_same(found[0]) for crs in found):
            _fix_proj(draft, group, found[0])
    for group in draft.hierarchy.groups:
        _declare(draft, group)


def _repeat(draft: Draft, pyramid: Pyramid, held: Mapping[str, tuple[GroupView, list[Crs]]]) -> None:
    """Repeat `proj:` of a multiscale group on its levels, which inherit nothing from it."""
    if not any(name in pyramid.group.attrs for name in CRS_MEMBERS):
        return
    for level in pyramid.levels:
        node = level.node
        if (
            isinstance(node, GroupView)
            and node.path in held
            and not any(name in node.attrs for name in CRS_MEMBERS)
        ):
            crs = held[node.path][1][0]
            draft.update("ZC-07", node, "proj: repeated, as it reaches direct children only", render_crs(crs))


def _fix_proj(draft: Draft, group: GroupView, crs: Crs) -> None:
    attributes = draft.attributes(group)
    wrong = [name for name in CRS_MEMBERS if name in attributes and not _states(attributes[name], crs)]
    if isinstance(attributes.get("proj:code"), str) and ":" not in attributes["proj:code"]:
        wrong.append("proj:code")
    is_empty = "proj" in declared(group) and not any(name in attributes for name in CRS_MEMBERS)
    if not wrong and not is_empty:
        return
    kept = {name: value for name, value in attributes.items() if name not in wrong}
    if not any(name in kept for name in CRS_MEMBERS):
        kept |= render_crs(crs)
    draft.set_attributes(group, kept)
    draft.note("ZC-07", group, "proj: says the CRS")


def _is_nameless(entry: Any) -> bool:
    """Whether an entry of `zarr_conventions` has one of the three names, and no identifier."""
    if not isinstance(entry, dict) or any(name in entry for name in IDENTIFIERS):
        return False
    return str(entry.get("name", "")).rstrip(":") in ("multiscales", "proj", "spatial")


def _declare(draft: Draft, group: GroupView) -> None:
    attributes = draft.attributes(group)
    stated = attributes.get("zarr_conventions", [])
    if not isinstance(stated, list):
        draft.refuse("ZC-01", group, f"zarr_conventions is {stated!r}")
        return
    nameless = [n for n, entry in enumerate(stated) if _is_nameless(entry)]
    if nameless:
        # Known by name, and by nothing that readers look for.
        known = [declare([e["name"].rstrip(":")])[0] if _is_nameless(e) else e for e in stated]
        draft.update("ZC-01", group, "conventions declared with their UUID", {"zarr_conventions": known})
        return
    used = {name.partition(":")[0] for name in attributes if ":" in name} & {"proj", "spatial"}
    multiscales = attributes.get("multiscales")
    if isinstance(multiscales, dict) and "layout" in multiscales:
        used.add("multiscales")
    missing = [name for name in ("multiscales", "proj", "spatial") if name in used - declared(group)]
    if missing:
        changes = {"zarr_conventions": [*stated, *declare(missing)]}
        draft.update("ZC-01", group, f"{', '.join(missing)} declared", changes)


# Of a cell: what is nearer is right, but for how numbers are rounded.
CLOSE = 1e-3
NEAR = 0.02


def affine_of(draft: Draft, grid: Grid) -> Affine | None:
    """The affine that most statements about a grid support; None, with the reason noted, where none wins."""
    place = draft.evidence.pyramid_of(grid)
    settled = draft.evidence.settle(grid)
    if place is None or place[1] is place[0].levels[0] or grid.shape != place[1].shape:
        found = settled.affine
    else:
        found = _level_affine(draft, *place, grid, settled.affine)
    if found is None and settled.trouble is not None:
        draft.refuse("MS-28", grid.node, settled.trouble)
    return found


def _level_affine(
    draft: Draft, pyramid: Pyramid, level: LevelPlace, grid: Grid, found: Affine | None
) -> Affine | None:
    """The affine of a coarser level, also where its coordinates are edges or a selection of the finest's."""
    base = pyramid.levels[0]
    base_grid = next((held for held in base.grids.values() if held.shape == base.shape), None)
    settled = None if base_grid is None else draft.evidence.settle_finest(base_grid)
    if settled is None or settled.trouble is not None:
        # Nothing is made to agree with a place that cannot be told.
        return found
    affine = settled.affine or base.affine
    if affine is None or base.shape is None or affine.is_rotated or (found is None and level.affine is None):
        return found
    factors = [
        round(finer / coarser) if coarser else 0
        for finer, coarser in zip(base.shape, grid.shape, strict=True)
    ]
    whole = all(
        f >= 1 and m in (n // f, -(-n // f)) for f, n, m in zip(factors, base.shape, grid.shape, strict=True)
    )
    place = coordinate_corner(grid)
    if not whole or place is None:
        return found
    expected = affine.scaled((factors[0], factors[1]))
    kinds = []
    for axis, (corner, step) in enumerate(((expected.f, expected.e), (expected.c, expected.a))):
        stretch = place[1][axis] / step - 1
        shift = (place[0][axis] + place[1][axis] / 2 - corner) / step - 0.5
        length, factor = grid.shape[axis], factors[axis]
        kinds.append(_kind(shift, stretch, length, factor))
    if set(kinds) <= {"right", "edges"} and "edges" in kinds:
        return expected
    if set(kinds) <= {"right", "every"} and "every" in kinds:
        method = member_of(pyramid.stated, "resampling_method")
        if method in (None, "nearest"):
            message = "coordinates are every so many of the finest level's, as picking cells would have it"
            draft.refuse("MS-14", grid.node, message)
            return None
        return expected
    return found


def _kind(shift: float, stretch: float, length: int, factor: int) -> str:
    """What is wrong with an axis: "right", "every", "edges" or "other".

    It begins `shift` cells off, and its steps are `stretch` of a cell too long.
    """
    if abs(stretch) < 1e-6 and abs(shift) < NEAR:
        return "right"
    if abs(stretch) < 1e-6 and abs(shift + 0.5 - 0.5 / factor) < NEAR:
        return "every"
    # Odd trailing cells that were dropped while the extent was kept stretch the steps.
    return "edges" if abs(shift + 0.5) < NEAR and abs(stretch) * length < 1.5 else "other"


def fix_time(draft: Draft) -> None:
    """Add the attributes that CF asks of time coordinates, where their units show that they are such."""
    for group in draft.hierarchy.groups:
        for coordinate in draft.hierarchy.meaning.roles(group).coordinates.values():
            units = coordinate.attrs.get("units")
            if not isinstance(units, str) or not TIME_UNITS.fullmatch(units):
                continue
            # Without a calendar, CF has it for the standard one.
            wanted = {"standard_name": "time", "axis": "T", "calendar": "standard"}
            missing = {name: value for name, value in wanted.items() if name not in coordinate.attrs}
            draft.update("MS-09", coordinate, f"{', '.join(sorted(missing))} added", missing)


def fix_places(draft: Draft) -> None:
    """Fix the coordinates of every grid, and the transforms that are stated of it."""
    done: set[tuple[str, str]] = set()
    for grid in draft.hierarchy.grids.values():
        affine = affine_of(draft, grid)
        if affine is None:
            continue
        centres = affine.coordinates(grid.shape)
        for axis in (0, 1) if centres is not None else ():
            dimension = grid.dimensions[axis]
            parent = grid.node.parent
            if (
                centres is None
                or not isinstance(parent, GroupView)
                or not dimension
                or (parent.path, dimension) in done
            ):
                continue
            done.add((parent.path, dimension))
            _fix_coordinate(draft, grid, parent, axis, centres[axis])
        if grid.node.attrs.get("AREA_OR_POINT") != "Point":
            _fix_transforms(draft, grid, affine)


def _fix_coordinate(
    draft: Draft, grid: Grid, group: GroupView, axis: int, centres: np.ndarray[Any, Any]
) -> None:
    dimension = grid.dimensions[axis]
    wanted = _axis_attributes(draft, grid, axis)
    coordinate = coordinate_of(grid.node, dimension)
    if coordinate is None:
        if dimension in group.children or dimension.startswith("/"):
            return
        path = join_key(group.path, dimension)
        if draft.is_occupied("MS-11", path):
            return
        _create_coordinate(draft, path, group.zarr_format, dimension, centres, wanted)
        draft.note("MS-11", path, "coordinates written")
        return
    missing = {name: value for name, value in wanted.items() if name not in coordinate.attrs}
    if "units" in missing and coordinate.attrs.get(
        "standard_name", wanted.get("standard_name")
    ) != wanted.get("standard_name"):
        missing = {}
    draft.update("GZ-14", coordinate, f"{', '.join(sorted(missing))} added", missing)
    if len(coordinate.shape) == 1 and coordinate.shape != centres.shape:
        _fix_length(draft, grid, coordinate, centres)
        return
    _fix_description(draft, grid, coordinate, centres, wanted)
    _fix_values(draft, coordinate, centres, wanted)


def _create_coordinate(
    draft: Draft,
    path: str,
    zarr_format: ZarrFormat,
    dimension: str,
    centres: np.ndarray[Any, Any],
    attributes: Mapping[str, Any],
    **options: Any,
) -> None:
    create_array(
        draft.store,
        path,
        data=centres,
        chunks=-1,
        compressors=None,
        fill_value=float("nan"),
        zarr_format=zarr_format,
        dimension_names=(dimension,),
        attributes=attributes,
        **options,
    )


def _fix_length(draft: Draft, grid: Grid, coordinate: ArrayView, centres: np.ndarray[Any, Any]) -> None:
    """Write coordinates of another length anew, where the grid's own length is confirmed."""
    is_level = draft.evidence.pyramid_of(grid) is not None
    shapes = [coordinate.parent.attrs.get("spatial:shape")] if coordinate.parent is not None else []
    if not is_level and list(grid.shape) not in shapes:
        message = f"coordinates are {coordinate.shape[0]} long, the dimension {len(centres)}"
        draft.refuse("MS-11", coordinate, f"{message}; expected spatial:shape to say which is right")
        return
    attributes = {**draft.attributes(coordinate)}
    attributes.pop("_ARRAY_DIMENSIONS", None)
    _create_coordinate(
        draft, coordinate.path, coordinate.zarr_format, coordinate.name, centres, attributes, overwrite=True
    )
    draft.note("MS-11", coordinate, f"as many coordinates as cells written: {len(centres)}")


DEGREES = re.compile(r"degrees?(_[a-z]+|[ENSW])?", re.IGNORECASE)
FULL_CIRCLE = 361.0


def _fix_description(
    draft: Draft, grid: Grid, coordinate: ArrayView, centres: np.ndarray[Any, Any], wanted: Mapping[str, Any]
) -> None:
    """Correct `standard_name`, `units` and `axis` of another CRS, where the numbers are this one's."""
    attributes = draft.attributes(coordinate)
    found = {name: attributes.get(name) for name in ("standard_name", "units", "axis")}
    wrong = {
        name: wanted[name]
        for name in found
        if name in wanted and found[name] is not None and not _is_right(name, found[name], wanted[name])
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
    if values is not None and {"standard_name", "units"} <= set(wrong) and not _is_impossible(found, values):
        # Both say another kind of CRS, and the numbers allow it.
        message = f"standard_name {found['standard_name']!r} and units {found['units']!r} are another CRS's"
        draft.refuse(rule, coordinate, f"{message}; expected --crs, or the attributes corrected")
    elif is_confirmed or (values is not None and _is_impossible(found, values)) or rule == "MS-07":
        draft.update(rule, coordinate, f"{', '.join(sorted(wrong))} are the CRS's", wrong)
    else:
        draft.refuse(rule, coordinate, f"units are {found['units']!r}, and no transform confirms the numbers")


def _is_right(name: str, found: Any, wanted: str) -> bool:
    """Whether an attribute of a coordinate equals `wanted`, in any of the forms in use."""
    if name == "units":
        return found in SYNONYMS.get(wanted, (wanted,))
    return found in (wanted, wanted.replace("_coordinate", "_angular_coordinate"))


def _is_impossible(found: Mapping[str, Any], values: np.ndarray[Any, Any]) -> bool:
    """Whether the attributes claim degrees for numbers that are too large to be degrees."""
    is_angle = isinstance(found["units"], str) and DEGREES.fullmatch(found["units"])
    is_named = found["standard_name"] in ("longitude", "latitude")
    return bool(is_angle or is_named) and bool(np.nanmax(np.abs(values), initial=0.0) > FULL_CIRCLE)


def _axis_attributes(draft: Draft, grid: Grid, axis: int) -> dict[str, Any]:
    """The attributes that the coordinate of an axis should have under the grid's CRS."""
    letter = "YX"[axis]
    stated = coordinate_attributes(grid.crs if crs_of(draft, grid) is not None else None, letter)
    return {name: value for name, value in stated.items() if name != "long_name"}


def _are_centres(coordinate: ArrayView, values: np.ndarray[Any, Any], centres: np.ndarray[Any, Any]) -> bool:
    """Whether a coordinate's values are the centres, as far as it can store them."""
    if values.shape != centres.shape:
        return False
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
    if units not in SYNONYMS.get(str(wanted.get("units")), (wanted.get("units"),)):
        # Written in other units than the CRS's, the numbers say something else.
        return
    steps = np.diff(values)
    is_ordered = bool(np.all(steps > 0) or np.all(steps < 0))
    if is_ordered and fit_line(coordinate, values) is None:
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
    mapping = mapping_of(grid.node)[1]
    # What one in a group above says is not this grid's alone.
    is_beside = mapping is not None and mapping.parent is grid.node.parent
    stating: list[NodeView] = [grid.node, mapping] if is_beside else [grid.node]
    for node in stating:
        stated = draft.attributes(node).get("GeoTransform")
        if stated is None or not _is_alone(draft, grid, node):
            continue
        try:
            numbers: Any = list(parse_geotransform(stated))
        except MetadataError:
            numbers = None
        if not is_near(numbers, affine, affine):
            value = render_geotransform(affine)
            draft.update("MS-28", node, "GeoTransform is the grid's own", {"GeoTransform": value})
    group = grid.node.parent
    placed: list[NodeView] = [grid.node, group] if isinstance(group, GroupView) else [grid.node]
    for node in placed:
        if any(name.startswith("spatial:") for name in node.attrs) and _is_alone(draft, grid, node):
            _fix_spatial(draft, grid, node, affine)


def _is_alone(draft: Draft, grid: Grid, node: NodeView) -> bool:
    """Whether the attributes of `node` describe this grid only."""
    others = [g for g in draft.hierarchy.grids.values() if g.node.parent is grid.node.parent]
    if {other.shape for other in others} == {grid.shape} or node is grid.node:
        return True
    draft.refuse("MS-28", node, "its grids have several shapes: one transform cannot be all theirs")
    return False


def is_near(numbers: Sequence[float] | None, wanted: Sequence[float], affine: Affine) -> bool:
    """Whether stated numbers are those that are wanted, within a millionth of a cell."""
    small = 1e-6 * min(affine.cell)
    return numbers is not None and all(abs(a - b) <= small for a, b in zip(numbers, wanted, strict=True))


def _fix_spatial(draft: Draft, grid: Grid, node: NodeView, affine: Affine) -> None:
    attributes = draft.attributes(node)
    changes: dict[str, Any] = {}
    if attributes.get("spatial:registration") not in (None, "pixel"):
        return
    if "spatial:dimensions" not in attributes and "spatial:dimensions" not in getattr(
        node.parent, "attrs", {}
    ):
        changes["spatial:dimensions"] = list(grid.dimensions)
    stated = parse_numbers(attributes.get("spatial:transform"), 6)
    if "spatial:transform" in attributes and not is_near(stated, affine, affine):
        changes["spatial:transform"] = list(affine)
    if "spatial:shape" in attributes and attributes["spatial:shape"] != list(grid.shape):
        changes["spatial:shape"] = list(grid.shape)
    if "spatial:bbox" in attributes:
        bounds = affine.bounds(grid.shape)
        if not is_near(parse_numbers(attributes["spatial:bbox"], 4), bounds, affine):
            changes["spatial:bbox"] = list(bounds)
    draft.update("ZC-05", node, f"{', '.join(changes)} are the grid's own", changes)


# The rule and the message of a pyramid that is written in another convention.
CONVERSIONS = {
    "geozarr": ("GZ-37", "multiscales written as GeoZarr's object"),
    "multiscales": ("OC-10", "multiscales written as a list"),
    "zarr_conventions": ("ZC-02", "multiscales written as a layout"),
    "ome": ("OME", "ome added"),
}


def fix_levels(draft: Draft) -> None:
    """Fix every `multiscales` object, or replace it by the one that the profile has."""
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

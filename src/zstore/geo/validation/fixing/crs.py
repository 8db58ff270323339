"""Fixes of the CRS in each dialect: the grid mapping variable, `_CRS`, and `proj:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.gdal import CRS_VARIABLE
from zstore.geo.conventions.geozarr import CRS_MEMBERS, declare, declared, render_crs
from zstore.geo.conventions.levels import Grid
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.validation.fixing.documents import implied_nodata
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.pyramids import IDENTIFIERS
from zstore.geo.validation.view import ArrayView, GroupView, mapping_of
from zstore.model.packing import render_nodata
from zstore.nodes.open import create_array
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

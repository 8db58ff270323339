"""Fixes that need no georeference: the form of documents, attributes, fill values, names of methods."""

from __future__ import annotations

import json
from typing import Any

from zstore.errors import MetadataError
from zstore.geo.conventions.geozarr import METHOD_NAMES, layout_items, member_of
from zstore.geo.conventions.model import RESAMPLING_METHODS
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.documents import (
    check_conventions,
    has_no_fill,
    implicit_groups,
    is_unreadable_fill,
    misplaced_members,
)
from zstore.geo.validation.view import ArrayView
from zstore.model import v2, v3
from zstore.model.document import render_json
from zstore.model.packing import decode_fill, fit_nodata, render_nodata
from zstore.storage.base import join_key


def fix_documents(draft: Draft) -> None:
    """Write missing groups, move users' members into `attributes`, and correct `Conventions`."""
    for group, name in implicit_groups(draft.hierarchy):
        path = join_key(group.path, name)
        if group.zarr_format == 3:
            document = {"zarr_format": 3, "node_type": "group", "attributes": {}}
            draft.store.put(join_key(path, v3.KEY), render_json(document))
        else:
            draft.store.put(join_key(path, v2.GROUP_KEY), render_json({"zarr_format": 2}))
        draft.note("GZ-04", path, "a group is written where there was none")
    for node in draft.hierarchy.nodes:
        misplaced = misplaced_members(node)
        if not misplaced:
            continue
        key = join_key(node.path, v3.KEY)
        document = json.loads(bytes(draft.store.get(key) or b"{}"))
        attributes = document.setdefault("attributes", {})
        taken = [name for name in misplaced if name in attributes and attributes[name] != document[name]]
        if taken:
            draft.refuse("GZ-07", node, f"{taken} are among the attributes too, and differ")
            continue
        for name in misplaced:
            attributes[name] = document.pop(name)
        draft.store.put(key, render_json(document))
        draft.note("GZ-07", node, f"{', '.join(misplaced)} moved into attributes")
    for broken in check_conventions(draft.hierarchy):
        if broken.found is None or isinstance(broken.found, float):
            changes = {"Conventions": "CF-1.11" if broken.found is None else f"CF-{broken.found}"}
            draft.update("GZ-17", broken.node, "Conventions names the version of CF", changes)


def fix_methods(draft: Draft) -> None:
    """Spell the names of resampling methods as the draft does."""
    for pyramid in draft.hierarchy.pyramids:
        attributes = draft.attributes(pyramid.group)
        stated = attributes.get("multiscales")
        if not isinstance(stated, dict):
            continue
        layout = stated.get("layout")
        changed = dict(stated)
        if isinstance(layout, list):
            changed["layout"] = [_with_method(item) for item in layout]
        changed = _with_method(changed)
        if draft.method is not None and changed.get("resampling_method") not in RESAMPLING_METHODS:
            changed["resampling_method"] = draft.method
        elif "resampling_method" not in changed and len(methods := _layout_methods(changed)) == 1:
            changed["resampling_method"] = methods.pop()
        elif "resampling_method" not in changed and "tile_matrix_set" in changed:
            message = "nothing says how the levels were made; expected --method"
            draft.refuse("GZ-37", pyramid.group, message)
        draft.update(
            "GZ-47", pyramid.group, "resampling_method spelt as the draft has it", {"multiscales": changed}
        )


def _layout_methods(stated: dict[str, Any]) -> set[str]:
    """The methods that the levels of a layout are said to be made by."""
    found = {item.get("resampling_method") for item in layout_items(stated) if "derived_from" in item}
    return {method for method in found if method in RESAMPLING_METHODS} if None not in found else set()


def _with_method(item: Any) -> Any:
    found = member_of(item, "resampling_method")
    if not isinstance(found, str) or found in RESAMPLING_METHODS:
        return item
    plain = found.lower().replace("-", "_").replace(" ", "_")
    right = plain if plain in RESAMPLING_METHODS else METHOD_NAMES.get(plain)
    return item if right is None else {**item, "resampling_method": right}


def implied_nodata(array: ArrayView) -> int | float | None:
    """The nodata of a Zarr v3 array that GDAL alone described: its fill value, which nobody else reads so."""
    stated = ("_FillValue", "missing_value", "grid_mapping")
    if array.zarr_format != 3 or "_CRS" not in array.attrs or array.dtype.kind not in "iuf":
        return None
    if array.fill_value is None or any(array.attrs.get(name) is not None for name in stated):
        return None
    return fit_nodata(array.fill_value, array.dtype)


def fix_fill_values(draft: Draft) -> None:
    """Write `_FillValue` as xarray reads it, and a fill value where Zarr v3 has none."""
    for array in draft.hierarchy.arrays:
        if has_no_fill(array):
            _fix_no_fill(draft, array)
        stated: Any = array.attrs.get("_FillValue")
        if stated is None or array.dtype.kind not in "iuf":
            continue
        is_list = isinstance(stated, list)
        is_text_in_v2 = isinstance(stated, str) and (array.zarr_format == 2 or array.dtype.kind != "f")
        if not (is_unreadable_fill(array) or is_list or is_text_in_v2):
            continue
        try:
            nodata = decode_fill(_number_of(stated), array.dtype)
        except MetadataError as error:
            draft.refuse("GZ-16", array, error.message)
            continue
        changes = render_nodata(nodata, array.dtype, array.zarr_format)
        if not changes:
            draft.refuse("GZ-16", array, f"_FillValue {stated!r} has no other spelling")
            continue
        message = f"_FillValue {stated!r} written as {changes['_FillValue']!r}"
        draft.update("GZ-16", array, message, changes)


def _number_of(stated: Any) -> Any:
    """A number that is written as text; anything else as it is."""
    for kind in (int, float) if isinstance(stated, str) else ():
        try:
            return kind(stated)
        except ValueError:
            continue
    return stated


def _fix_no_fill(draft: Draft, array: ArrayView) -> None:
    value: Any = draft.fill_value
    for name in ("missing_value", "_FillValue"):
        if array.attrs.get(name) is not None:
            value = array.attrs[name]
    if value is None:
        message = "nothing says what the array holds where no chunk is; expected --fill-value"
        draft.refuse("ZS-08", array, f"{message}, which GDAL takes for nodata")
        return
    try:
        fitted = decode_fill(value, array.dtype)
    except MetadataError as error:
        draft.refuse("ZS-08", array, error.message)
        return
    rendered = array.node.model.data_type.render_fill(array.dtype.type(fitted), 3)
    draft.edit(array, {"fill_value": rendered})
    draft.note("ZS-08", array, f"fill_value is {rendered}")

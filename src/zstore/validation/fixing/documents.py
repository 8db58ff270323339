"""Fixing documents that no georeference is needed for: their form, and how attributes are written."""

from __future__ import annotations

import json
from typing import Any

from zstore.conventions.model import RESAMPLING_METHODS
from zstore.model import v2, v3
from zstore.model.document import render_json
from zstore.storage.base import join_key
from zstore.validation.fixing.plan import Draft
from zstore.validation.rules.attributes import check_conventions
from zstore.validation.rules.documents import implicit_groups, misplaced_members

__all__ = ["fix_documents", "fix_methods"]

# What other tools call the methods; "near" and "cubicspline" are GDAL's.
METHOD_NAMES = {
    "mean": "average", "avg": "average", "near": "nearest", "nearest_neighbour": "nearest",
    "nearest_neighbor": "nearest", "cubicspline": "cubic_spline", "median": "med", "maximum": "max",
    "minimum": "min",
}  # fmt: skip


def fix_documents(draft: Draft) -> None:
    """Groups where there are none, members of users among those of the format, and `Conventions`."""
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
        if broken.found is None:
            changes = {"Conventions": "CF-1.11"}
            draft.update("GZ-17", broken.node, "Conventions added", changes)


def fix_methods(draft: Draft) -> None:
    """Names of resampling methods as the draft spells them."""
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
        elif "resampling_method" not in changed and "tile_matrix_set" in changed:
            message = "nothing says how the levels were made; expected --method"
            draft.refuse("GZ-37", pyramid.group, message)
        draft.update(
            "GZ-47", pyramid.group, "resampling_method spelt as the draft has it", {"multiscales": changed}
        )


def _with_method(item: Any) -> Any:
    found = item.get("resampling_method") if isinstance(item, dict) else None
    if not isinstance(found, str) or found in RESAMPLING_METHODS:
        return item
    plain = found.lower().replace("-", "_").replace(" ", "_")
    right = plain if plain in RESAMPLING_METHODS else METHOD_NAMES.get(plain)
    return item if right is None else {**item, "resampling_method": right}

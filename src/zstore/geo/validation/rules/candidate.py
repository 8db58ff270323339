"""Rules of GeoZarr 1.0's release candidate, about each convention that it pins to a version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from zstore.geo.conventions.profiles import CANDIDATE
from zstore.geo.conventions.zarr_conventions import (
    declare,
    declared,
    is_declared,
    layout_items,
    objects,
    parse_numbers,
    uses,
)
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.view import ArrayView, GroupView, Hierarchy, NodeView

PINNED = ("proj", "spatial", "multiscales")
CODE = re.compile(r"[^:]+:[^:]+")
FEWEST = 2


@Rule("GC-01", "error", "core", "GeoZarr 1.0 rc, core",
      "The root declares at least one of the conventions proj, spatial and multiscales.",
      "declare them in zarr_conventions (zstore fix does, where they are used)",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_root(hierarchy: Hierarchy) -> Iterator[Found]:
    if not declared(hierarchy.root) & set(PINNED):
        stated = hierarchy.root.attrs.get("zarr_conventions")
        yield Found(hierarchy.root, "the root declares none of the conventions", list(PINNED), stated)


def _is_pinned(node: NodeView, name: str) -> bool:
    """Whether a node has the convention's entry exactly as version 0.1's schema pins it."""
    wanted = declare([name])[0]
    entries = [e for e in objects(node.attrs.get("zarr_conventions")) if e.get("uuid") == wanted["uuid"]]
    return any(all(wanted.get(key) == value for key, value in entry.items()) for entry in entries)


def _undeclared(hierarchy: Hierarchy, name: str) -> Iterator[Found]:
    """Nodes that use a convention which neither they nor their group declare."""
    for node in hierarchy.nodes:
        if not uses(node, name):
            continue
        # A declaration of a group is one of its direct child arrays, too.
        near = [node] if isinstance(node, GroupView) or node.parent is None else [node, node.parent]
        if not any(is_declared(place, name) for place in near):
            yield Found(node, f"{name} is used, and not declared by its UUID", declare([name])[0], None)
        elif is_declared(node, name) and not _is_pinned(node, name):
            message = f"the entry of {name} is not that of version 0.1"
            yield Found(node, message, declare([name])[0], node.attrs.get("zarr_conventions"), "warning")


@Rule("GC-02", "error", "crs", "GeoZarr 1.0 rc, proj; zarr-conventions/proj 0.1",
      "What uses proj declares it, and a proj:code is an authority and a code.",
      "declare proj (zstore fix does), and write EPSG:32632",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_proj(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _undeclared(hierarchy, "proj")
    for node in hierarchy.nodes:
        code = node.attrs.get("proj:code")
        if code is not None and not (isinstance(code, str) and CODE.fullmatch(code)):
            yield Found(node, f"proj:code is {code!r}", "AUTHORITY:CODE", code)


@Rule("GC-03", "error", "geotransform", "GeoZarr 1.0 rc, spatial; zarr-conventions/spatial 0.1",
      "What uses spatial declares it, and says a transform of a known type.",
      "declare spatial (zstore fix does), and write spatial:transform",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_spatial(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _undeclared(hierarchy, "spatial")
    for node in hierarchy.nodes:
        kind = node.attrs.get("spatial:transform_type", "affine")
        if not isinstance(kind, str):
            yield Found(node, f"spatial:transform_type is {kind!r}", "affine", kind)
        found = node.attrs.get("spatial:transform")
        if kind == "affine" and found is not None and parse_numbers(found, 6) is None:
            yield Found(node, f"spatial:transform is {found!r}", "six numbers", found)


@Rule("GC-04", "error", "overviews", "GeoZarr 1.0 rc, multiscales; zarr-conventions/multiscales 0.1",
      "What has a layout declares multiscales, and lists two levels at least, each one's shape with it.",
      "declare multiscales (zstore fix does), and write spatial:shape of every level",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_layout(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _undeclared(hierarchy, "multiscales")
    for pyramid in hierarchy.pyramids:
        items = layout_items(pyramid.stated)
        if not pyramid.is_object or (not items and "layout" not in pyramid.stated):
            yield Found(pyramid.group, "the levels are said in another dialect", "multiscales.layout", None)
            continue
        if len(items) < FEWEST:
            yield Found(pyramid.group, f"layout lists {len(items)} levels", FEWEST, len(items))
        for item in items:
            for name in ("spatial:shape", "spatial:transform"):
                if uses(pyramid.group, "spatial") and name not in item and _is_alone(pyramid, item, name):
                    message = f"level {item.get('asset')!r} has no {name} in the layout"
                    yield Found(pyramid.group, message, name, sorted(item), "warning")


def _is_alone(pyramid: Any, item: Any, name: str) -> bool:
    """Whether the level does not say it either."""
    node = pyramid.group.below(str(item.get("asset", "")).strip("/"))
    return isinstance(node, ArrayView | GroupView) and name not in node.attrs

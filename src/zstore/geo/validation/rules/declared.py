"""Rules about zarr-conventions and their declarations, Multiscale Arrays' lists, and embedded STAC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod
from typing import Any

from zstore.geo.conventions.lists import is_ome
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.profiles import ARRAYS, OME, OME_06
from zstore.geo.conventions.zarr_conventions import (
    CRS_MEMBERS,
    asset_path,
    declared,
    layout_items,
    member_of,
    parse_numbers,
)
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.view import ArrayView, GroupView, Hierarchy, NodeView, mapping_of

IDENTIFIERS = ("uuid", "schema_url", "spec_url")


@Rule("ZC-01", "error", "core", "zarr-conventions",
      "zarr_conventions is a list of objects with a uuid or a URL.",
      "add the uuid (zstore fix does, for proj, spatial and multiscales)", each="nodes")  # fmt: skip
def check_declarations(node: NodeView) -> Iterator[Found]:
    stated = node.attrs.get("zarr_conventions")
    if stated is None:
        # STAC has proj: attributes too; these three are the convention's only.
        names = (*CRS_MEMBERS, *(name for name in node.attrs if name.startswith("spatial:")))
        used = sorted({name.partition(":")[0] for name in names if name in node.attrs})
        is_handed = node.parent is not None and "zarr_conventions" in node.parent.attrs
        if used and not is_handed:
            message = f"{', '.join(used)} are used, and not declared"
            yield Found(node, message, "zarr_conventions", None, "warning")
    elif not isinstance(stated, list):
        yield Found(node, f"zarr_conventions is {stated!r}", "a list", stated)
    else:
        for entry in stated:
            if not isinstance(entry, Mapping) or not any(name in entry for name in IDENTIFIERS):
                yield Found(node, f"entry {entry!r} has no identifier", IDENTIFIERS, entry)


Rule("ZC-02", "error", "overviews", "zarr-conventions/multiscales 0.1",
     "layout is a list of levels, each with a relative asset, and with a transform where it is derived.",
     "write the path of the level relative to the group", is_read=True)  # fmt: skip


@Rule("ZC-03", "error", "overviews", "zarr-conventions/multiscales 0.1",
      "Every asset and derived_from is a node below the group.",
      "correct the path, or make the level", each="pyramids")  # fmt: skip
def check_assets(pyramid: Pyramid) -> Iterator[Found]:
    for item in layout_items(pyramid.stated):
        for member in ("asset", "derived_from"):
            path = item.get(member)
            if asset_path({"asset": path}) and pyramid.group.below(path) is None:
                yield Found(pyramid.group, f"{member} {path!r} is not there", "a node", path)
    for name in unlisted_levels(pyramid):
        message = f"layout leaves out level {name!r}, which has a tile matrix"
        yield Found(pyramid.group, message, name, None, "warning")


def unlisted_levels(pyramid: Pyramid) -> list[str]:
    """The groups that the tile matrix set has for levels, and the layout leaves out."""
    listed = {asset_path(item) for item in layout_items(pyramid.stated)}
    return [
        name for name in pyramid.matrices if listed and name in pyramid.group.groups and name not in listed
    ]


@Rule("ZC-04", "warning", "overviews", "GDAL 3.13, Zarr driver",
      "Levels are such that GDAL and rio-tiler take them: the finest first, same rank and type as the finest,"
      " translation 0, and with an explicit spatial:registration one scale per dimension.",
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
      is_read=True, each="nodes")  # fmt: skip
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
    if isinstance(node, GroupView) and used == ["spatial:bbox"]:
        # What a group covers needs no grid; arrays alone must name their dimensions.
        return
    near = [node, *([node.parent] if node.parent is not None else [])]
    if not any("spatial:dimensions" in place.attrs for place in near):
        yield Found(node, f"{', '.join(used)} without spatial:dimensions", ["y", "x"], None)


@Rule("ZC-06", "error", "overviews", "zarr-conventions/spatial 0.1",
      "spatial:shape is the array's, and all levels start at one corner.",
      "write each level's own shape and transform (zstore fix does)", is_read=True)  # fmt: skip
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
      "repeat proj: on every level's group (zstore fix does)", is_read=True)  # fmt: skip
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
      "keep one of stac:item and stac:collection, and paths relative to the group", is_read=True,
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
        if not pyramid.stated:
            yield Found(pyramid.group, "multiscales is an empty list", "an object with datasets", [])
        for item in pyramid.stated:
            datasets = member_of(item, "datasets")
            if not isinstance(datasets, list) or not datasets:
                yield Found(pyramid.group, f"datasets are {datasets!r}", "a list of paths", datasets)
                continue
            if not is_ome(pyramid.stated) and item.get("version") != "0.1":
                yield Found(pyramid.group, f"version is {item.get('version')!r}", "0.1", item.get("version"))
            yield from _check_datasets(hierarchy, pyramid, datasets)


def _check_datasets(hierarchy: Hierarchy, pyramid: Pyramid, datasets: Any) -> Iterator[Found]:
    sizes: list[tuple[str, int]] = []
    for item in datasets if isinstance(datasets, list) else ():
        path = member_of(item, "path")
        node = pyramid.group.below(path) if isinstance(path, str) else None
        if node is None:
            yield Found(pyramid.group, f"dataset {path!r} is not there", "an array", path)
            continue
        if isinstance(node, GroupView):
            held = hierarchy.meaning.grids(node)
            yield Found(pyramid.group, f"dataset {path!r} is a group", "an array", "a group", "warning")
            sizes += [(str(path), max(g.shape[0] * g.shape[1] for g in held.values()))] if held else []
        elif hasattr(node, "shape"):
            sizes.append((str(path), prod(node.shape)))
    if any(one[1] < other[1] for one, other in pairwise(sizes)):
        found = [path for path, _ in sizes]
        message = f"datasets are in the order {found}: the finest is not first"
        yield Found(pyramid.group, message, sorted(sizes, key=lambda s: -s[1]), found)


Rule("OME", "error", "overviews", "OME-NGFF 0.5, 0.6",
     "Images list their datasets, and transformations say where the cells are.",
     "correct coordinateTransformations", profiles=(OME, OME_06), general="warning",
     is_read=True)  # fmt: skip
Rule("BANDS", "warning", "bands", "STAC 1.1, bands; draft 2, class bands",
     "Bands are a list of objects, one for each item of the dimension of bands.",
     "list one object per band in `bands`", is_read=True)  # fmt: skip

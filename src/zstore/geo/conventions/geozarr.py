"""GeoZarr and zarr-conventions: `proj`, `spatial`, `multiscales` with a layout or tile matrices.

Spec: zarr-conventions/proj, /spatial and /multiscales v0.1; GeoZarr draft 8.2.3 to 8.2.6 and its clause 7
of October 2025; GeoZarr mini spec, "Multiscale Dataset", TileMatrix, TileMatrixLimit; OGC 17-083r4
(TileMatrixSet 2.0) §6; STAC's `proj:epsg` and `proj:transform`.
Example: {"proj:code": "EPSG:32632", "spatial:transform": [10, 0, 300000, 0, -10, 5000040]}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from sys import float_info
from typing import Any

from zstore.errors import MetadataError, NotFoundError
from zstore.geo.conventions.base import (
    RESAMPLING_METHODS,
    Affine,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GeoModel,
    GroupNode,
    Level,
    LevelEntry,
    Node,
    Severity,
    is_array,
    is_group,
    parse_crs,
    unused_attribute,
)
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.tilesets.registry import (
    Y_FIRST_AXES,
    TileMatrix,
    TileMatrixSet,
    list_tile_matrix_sets,
    load_tile_matrix_set,
)

LARGEST = float_info.max
CRS_MEMBERS = ("proj:code", "proj:wkt2", "proj:projjson")
# What readers know a convention by.
UUIDS = {
    "multiscales": "d35379db-88df-4056-af3a-620245f8e347",
    "proj": "f17cb550-5864-4468-aeb7-f3180cfb622f",
    "spatial": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
    "stac": "b3703368-7e7e-4e8e-9e0e-6d0f0d5e8e8e",
    "CF": "77c308c7-4db2-4774-8b2d-aa37e9997db6",
}
# What other tools call the methods; "near" and "cubicspline" are GDAL's.
METHOD_NAMES = {
    "mean": "average", "avg": "average", "near": "nearest", "nearest_neighbour": "nearest",
    "nearest_neighbor": "nearest", "cubicspline": "cubic_spline", "median": "med", "maximum": "max",
    "minimum": "min",
}  # fmt: skip
# What all versions take for a code; "OGC:CRS84" is one in v0.1 only.
CODE = re.compile(r"[A-Z]+:[0-9]+")
# The schemas pin every member of an entry.
DESCRIPTIONS = {
    "multiscales": "Multiscale layout of zarr datasets",
    "proj": "Coordinate reference system information for geospatial data",
    "spatial": "Spatial coordinate information",
    "stac": "STAC convention for embedding or referencing STAC objects in Zarr group metadata",
}


def declare(names: Iterable[str]) -> list[dict[str, str]]:
    """The `zarr_conventions` entries of these conventions."""
    return [
        {
            "schema_url": f"https://raw.githubusercontent.com/zarr-conventions/{name}/refs/tags/v0.1/schema.json",
            "spec_url": f"https://github.com/zarr-conventions/{name}/blob/v0.1/README.md",
            "uuid": UUIDS[name],
            "name": "stac:" if name == "stac" else name,
            "description": DESCRIPTIONS[name],
        }
        for name in names
    ]


def declared(node: Node) -> set[str]:
    """The conventions that a node declares: by their UUID, or by their name with or without a colon."""
    entries = objects(node.attrs.get("zarr_conventions"))
    named = {str(entry.get("name", "")).rstrip(":") for entry in entries} & set(UUIDS)
    return named | {name for name in UUIDS if is_declared(node, name)}


def is_declared(node: Node, name: str) -> bool:
    """Whether `zarr_conventions` has an entry with the UUID of the convention of this name."""
    return any(entry.get("uuid") == UUIDS[name] for entry in objects(node.attrs.get("zarr_conventions")))


def uses(node: Node, name: str) -> bool:
    """Whether a node has attributes of the convention of this name: `proj`, `spatial` or `multiscales`."""
    if name == "multiscales":
        return bool(layout_items(node.attrs.get("multiscales")))
    if name == "proj":
        # STAC has proj: attributes too; these three are the convention's only.
        return any(member in node.attrs for member in CRS_MEMBERS)
    return any(key.startswith(f"{name}:") for key in node.attrs)


def member_of(value: Any, name: str) -> Any:
    """A member of an object of a document; None if it is missing, or the value is no object."""
    return value.get(name) if isinstance(value, Mapping) else None


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list of a document; none if the value is no list."""
    items = value if isinstance(value, (list, tuple)) else ()
    return [item for item in items if isinstance(item, Mapping)]


def layout_items(stated: Any) -> list[Mapping[str, Any]]:
    """The objects in the `layout` of a `multiscales` attribute."""
    return objects(member_of(stated, "layout"))


class ZarrConventions(Convention):
    """The conventions `multiscales`, `proj` and `spatial`, and nothing else."""

    name = "zarr_conventions"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """`proj:` and `spatial:` of any node; the `layout` and the resampling of a multiscale group."""
        facts = _parse_place(node)
        stated = node.attrs.get("multiscales") if is_group(node) else None
        if not isinstance(stated, Mapping) or not ("layout" in stated or "multiscales" in declared(node)):
            return facts
        findings = list(facts.findings)
        levels = parse_layout(stated.get("layout"), node.path, findings)
        resampling = parse_resampling(stated, node.path, findings)
        return replace(facts, levels=tuple(levels), resampling=resampling, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`zarr_conventions`, `proj:` and `spatial:` of every group, and the `layout` of a pyramid's."""
        return render_groups(geo, render_layout(geo) if geo.levels else None)

    def dialects(self, node: Node) -> Iterator[str]:
        """The conventions in use; a bare colon marks words that are older, or STAC's."""
        for name in ("proj", "spatial"):
            if any(key.startswith(f"{name}:") for key in node.attrs):
                yield f"zarr-conventions {name}" if is_declared(node, name) else f"{name}:"
        stated = node.attrs.get("multiscales")
        if is_group(node) and isinstance(stated, Mapping) and "layout" in stated:
            yield "zarr-conventions multiscales" if is_declared(node, "multiscales") else "layout"


def render_groups(geo: GeoModel, multiscales: Mapping[str, Any] | None) -> Documents:
    """The documents of all groups with their `proj:` and `spatial:`, the outermost with `multiscales`."""
    place = ["spatial"] if geo.crs is None else ["proj", "spatial"]
    attributes: dict[str, Any] = {"zarr_conventions": declare(place), **_render_place(geo, geo.grids[0])}
    if multiscales is not None:
        attributes["zarr_conventions"] = declare(["multiscales", *place])
        attributes["multiscales"] = dict(multiscales)
    documents: Documents = {"": Document(kind="group", attributes=attributes)}
    for level in geo.levels:
        # `proj` and `spatial` reach direct children only, so that every level says them again.
        attributes = {"zarr_conventions": declare(place), **_render_place(geo, level)}
        documents[level.path] = Document(kind="group", attributes=attributes)
    return documents


def render_layout(geo: GeoModel) -> dict[str, Any]:
    """The `multiscales` object of a pyramid, in the form of zarr-conventions.

    Raises
        MetadataError: the resampling method has no name there.
    """
    if geo.resampling is not None and geo.resampling not in RESAMPLING_METHODS:
        raise MetadataError(
            f"resampling method is {geo.resampling!r}; expected one of {', '.join(RESAMPLING_METHODS)}"
        )
    multiscales: dict[str, Any] = {}
    if geo.resampling is not None:
        multiscales["resampling_method"] = geo.resampling
    base = geo.levels[0]
    multiscales["layout"] = [_render_level(level, base, geo.resampling) for level in geo.levels]
    return multiscales


def _render_level(level: Level, base: Level, resampling: str | None) -> dict[str, Any]:
    item: dict[str, Any] = {"asset": level.path}
    if level is not base:
        # Every level refers to the finest: readers that take `scale` for absolute then read the same.
        item["derived_from"] = base.path
        if resampling is not None:
            item["resampling_method"] = resampling
    scale = [float(factor) for factor in level.factors]
    item["transform"] = {"scale": scale, "translation": [0.0, 0.0]}
    item["spatial:shape"] = list(level.shape)
    if level.affine is not None:
        item["spatial:transform"] = list(level.affine)
    return item


def name_method(stated: Any) -> str | None:
    """The one of the fifteen names that a resampling method in any spelling has; None for other values."""
    plain = stated.lower().replace("-", "_").replace(" ", "_") if isinstance(stated, str) else ""
    return plain if plain in RESAMPLING_METHODS else METHOD_NAMES.get(plain)


def parse_resampling(stated: Mapping[str, Any], path: str, findings: list[Finding]) -> str | None:
    """The `resampling_method` of a `multiscales` object."""
    resampling = stated.get("resampling_method")
    known = name_method(resampling)
    if resampling is None or resampling == known:
        return known
    message = f"resampling_method is {resampling!r}; expected one of {', '.join(RESAMPLING_METHODS)}"
    # A layout may call its method anything; the draft's fifteen names come with the tile matrix set.
    severity: Severity = "error" if "layout" not in stated or "tile_matrix_set" in stated else "note"
    findings.append(Finding("GZ-47", severity, path, message, known or RESAMPLING_METHODS, resampling))
    return known


def parse_layout(layout: Any, path: str, findings: list[Finding]) -> list[LevelEntry]:
    """The levels of a `layout`, in its order; `path` is the group's, for the findings."""
    if not isinstance(layout, list) or not layout:
        message = f"multiscales.layout is {layout!r}; expected a list of levels"
        findings.append(Finding("ZC-02", "error", path, message))
        return []
    entries: dict[str, LevelEntry] = {}
    scales = _scales([item for item in layout if asset_path(item) is not None])
    for item in layout:
        asset = asset_path(item)
        if asset is None:
            message = f"layout item {item!r} has no relative path as its asset; it is left out"
            findings.append(Finding("ZC-02", "error", path, message))
            continue
        if asset in entries:
            message = f"level {asset!r} is there more than once"
            findings.append(Finding("ZC-02", "warning", path, message, "one item for a level", asset))
        if "derived_from" in item and not isinstance(item.get("transform"), Mapping):
            message = f"level {asset!r} is derived and has no transform"
            findings.append(Finding("ZC-02", "error", path, message, "transform"))
        stated = member_of(item.get("transform"), "scale")
        if stated is not None and not (isinstance(stated, list) and parse_numbers(stated, len(stated))):
            message = f"scale of level {asset!r} is {stated!r}; expected a number for each dimension"
            findings.append(Finding("ZC-02", "error", path, message, None, stated))
        entries[asset] = _parse_item(item, asset, scales.get(asset), path, findings)
    return list(entries.values())


def _parse_item(
    item: Mapping[str, Any],
    asset: str,
    scale: tuple[float, float] | None,
    path: str,
    findings: list[Finding],
) -> LevelEntry:
    affine = None
    if "spatial:transform" in item:
        try:
            affine = Affine.from_user(item["spatial:transform"])
        except (MetadataError, TypeError) as error:
            message = f"spatial:transform of level {asset!r}: {error}"
            findings.append(Finding("ZC-05", "error", path, message))
    shape = parse_numbers(item.get("spatial:shape"), 2)
    cell = item.get("cell_size")
    cells = parse_numbers(cell, 2) or parse_numbers([cell, cell], 2)
    method = item.get("resampling_method")
    return LevelEntry(
        asset,
        affine=affine,
        shape=None if shape is None else (int(shape[0]), int(shape[1])),
        cell=None if cells is None else (float(cells[0]), float(cells[1])),
        scale=scale,
        resampling=name_method(method) or (method if isinstance(method, str) else None),
    )


def asset_path(item: Any) -> str | None:
    """The path of a level in an item of a layout or a list of datasets; None outside of the group."""
    if not isinstance(item, Mapping):
        return None
    path = item.get("asset", item.get("path", item.get("id")))
    if not isinstance(path, str) or path.startswith("/") or ".." in path.split("/"):
        return None
    return path.strip("/") if path != "." else ""


def _scales(items: list[Mapping[str, Any]]) -> dict[str, tuple[float, float] | None]:
    """By asset, the (y, x) size of its cells in cells of the first level that is derived from none."""
    by_asset = {asset: item for item in reversed(items) if (asset := asset_path(item)) is not None}
    first = next((item for item in items if "derived_from" not in item), items[0] if items else None)
    found: dict[str, tuple[float, float] | None] = {}
    for asset in by_asset:
        chain: dict[str, None] = {}
        while asset in by_asset and asset not in found and asset not in chain:
            chain[asset] = None
            asset = str(by_asset[asset].get("derived_from", "")).strip("/")
        source = found.get(asset)
        for asset in reversed(chain):
            item = by_asset[asset]
            source = found[asset] = (1, 1) if item is first else _scale(item, source)
    return found


def _scale(item: Mapping[str, Any], source: tuple[float, float] | None) -> tuple[float, float] | None:
    """The (y, x) scale of a level, from that of its source; None if it is unknown."""
    transform = item.get("transform")
    stated = transform.get("scale") if isinstance(transform, Mapping) else item.get("factors")
    # The last two dimensions are the spatial ones where an array has more.
    own = parse_numbers(stated[-2:], 2) if isinstance(stated, list) and len(stated) >= 2 else None
    if own is None or (transform is not None and source is None):
        return None
    return (own[0] * source[0], own[1] * source[1]) if source is not None else (own[0], own[1])


def render_crs(crs: Crs) -> dict[str, str]:
    """The one `proj:` attribute of a CRS: a code that every version takes, else the WKT."""
    is_code = crs.code is not None and CODE.fullmatch(crs.code) is not None
    return {"proj:code": str(crs.code)} if is_code else {"proj:wkt2": crs.wkt}


def _render_place(geo: GeoModel, grid: Level) -> dict[str, Any]:
    """The `proj:` and `spatial:` attributes of the group of `grid`.

    `spatial:registration` is left out: "pixel" is its default, and readers that see it stated ask more of
    every level's `transform` than a group of arrays of several ranks can give.
    """
    attributes: dict[str, Any] = {} if geo.crs is None else {**render_crs(geo.crs)}
    attributes["spatial:dimensions"] = list(geo.dimensions)
    attributes["spatial:shape"] = list(grid.shape)
    if grid.affine is not None:
        attributes["spatial:transform_type"] = "affine"
        attributes["spatial:transform"] = list(grid.affine)
        attributes["spatial:bbox"] = list(grid.affine.bounds(grid.shape))
    return attributes


def _parse_place(node: Node) -> Facts:
    """The facts of `proj:` and `spatial:` of a node."""
    attributes = node.attrs
    findings: list[Finding] = []
    dimensions = attributes.get("spatial:dimensions")
    if dimensions is not None and not _is_names(dimensions):
        findings.append(unused_attribute(node, "ZC-05", "spatial:dimensions", "two names"))
        dimensions = None
    elif dimensions is not None and is_array(node) and not set(dimensions) <= set(node.dims or ()):
        findings.append(unused_attribute(node, "ZC-05", "spatial:dimensions", f"two of {node.dims!r}"))
        dimensions = None
    shape = parse_numbers(attributes.get("spatial:shape"), 2)
    if "spatial:shape" in attributes and (shape is None or any(n < 1 or n != int(n) for n in shape)):
        findings.append(unused_attribute(node, "ZC-05", "spatial:shape", "two positive integers"))
        shape = None
    bbox = parse_numbers(attributes.get("spatial:bbox"), 4)
    if "spatial:bbox" in attributes and (bbox is None or bbox[0] >= bbox[2] or bbox[1] >= bbox[3]):
        findings.append(unused_attribute(node, "ZC-05", "spatial:bbox", "[xmin, ymin, xmax, ymax]"))
        bbox = None
    bbox = bbox or parse_numbers(node.attrs.get("proj:bbox"), 4)
    affines = _parse_transform(node, findings)
    if affines and attributes.get("spatial:registration") == "node":
        # Of points, tools disagree on whether it ends at the centres or at the edges.
        bbox = None
    return Facts(
        crs=_parse_crs(node, findings),
        affines=affines,
        dimensions=None if dimensions is None else (dimensions[0], dimensions[1]),
        shape=None if shape is None else (int(shape[0]), int(shape[1])),
        bbox=None if bbox is None else (bbox[0], bbox[1], bbox[2], bbox[3]),
        findings=tuple(findings),
    )


def _parse_crs(node: Node, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    found: list[tuple[str, Crs]] = []
    for name in ("proj:code", "proj:wkt2", "proj:projjson", "proj:epsg"):
        stated = node.attrs.get(name)
        if stated is None:
            continue
        kind = {"proj:projjson": Mapping, "proj:epsg": int}.get(name, str)
        if isinstance(stated, kind):
            found += parse_crs(name, stated, "ZC-07", node.path, findings)
            if name == "proj:code" and ":" not in str(stated):
                message = f"proj:code is {stated!r}; expected an authority and a code"
                findings.append(Finding("ZC-07", "warning", node.path, message, "EPSG:32632", stated))
        else:
            findings.append(Finding("ZC-07", "error", node.path, f"{name}: it is {stated!r}", None, stated))
    return tuple(found)


def _parse_transform(node: Node, findings: list[Finding]) -> tuple[tuple[str, Affine], ...]:
    found: list[tuple[str, Affine]] = []
    kind = node.attrs.get("spatial:transform_type", "affine")
    if kind != "affine":
        message = f"spatial:transform_type is {kind!r}, which zstore does not know; the transform is not used"
        findings.append(Finding("ZC-05", "warning", node.path, message, "affine", kind))
    for name in ("spatial:transform", "proj:transform"):
        stated = node.attrs.get(name)
        if stated is None or (name == "spatial:transform" and kind != "affine"):
            continue
        if name == "proj:transform" and not _is_of_this_shape(node, findings):
            continue
        try:
            if not isinstance(stated, (list, tuple)):
                raise MetadataError(f"it is {stated!r}; expected six numbers")
            affine = Affine.from_user(stated)
        except MetadataError as error:
            findings.append(Finding("ZC-05", "error", node.path, f"{name}: {error.message}", None, stated))
            continue
        if name == "spatial:transform" and node.attrs.get("spatial:registration") == "node":
            # The origin is the centre of the first cell then.
            affine = affine.moved(-0.5, -0.5)
        found.append((name, affine))
    return tuple(found)


def _is_of_this_shape(node: Node, findings: list[Finding]) -> bool:
    """Whether STAC's `proj:shape` fits the array or is missing; levels may inherit the finest level's."""
    shape = parse_numbers(node.attrs.get("proj:shape"), 2)
    if shape is None or not is_array(node) or set(shape) <= set(node.shape):
        return True
    message = f"proj:shape is {shape}, the array's shape {node.shape}; proj:transform is another grid's"
    findings.append(Finding("ZC-06", "error", node.path, message, node.shape, shape))
    return False


def parse_numbers(value: Any, count: int) -> tuple[float, ...] | None:
    """`count` finite numbers out of a JSON list; None for anything else."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        return None
    return tuple(value) if all(is_number(number) for number in value) else None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number that float64 can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(name, str) for name in value)
        and value[0] != value[1]
    )


# (first row, last row, first column, last column) of the tiles that hold data.
Limits = tuple[int, int, int, int]
# The draft's and the mini spec's words for that.
LIMITS = {
    "tile_matrix_set_limits": ("min_tile_row", "max_tile_row", "min_tile_col", "max_tile_col"),
    "tile_matrix_limits": ("minTileRow", "maxTileRow", "minTileCol", "maxTileCol"),
}
# The standard's rendering pixel, in metres.
PIXEL = 0.00028
X_FIRST_AXES = {"e", "lon", "long", "x", "easting", "longitude"}


class Geozarr(Convention):
    """GeoZarr: parses the tile matrix set alone; renders it and the three zarr-conventions."""

    name = "geozarr"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels, CRS and resampling of a multiscale group by its tile matrix set.

        What zarr-conventions have of it (`layout`, `proj:`, `spatial:`) is theirs to read.
        """
        stated = node.attrs.get("multiscales") if is_group(node) else None
        if not is_group(node) or stated is None or isinstance(stated, (list, tuple)):
            return Facts()
        findings: list[Finding] = []
        if not isinstance(stated, Mapping):
            message = f"multiscales is {stated!r}; expected an object or a list"
            findings.append(Finding("GZ-37", "error", node.path, message, "object", stated))
            return Facts(levels=(), findings=tuple(findings))
        if not {"layout", "tile_matrix_set", "datasets"} & set(stated):
            message = f"multiscales has the members {sorted(stated)}; expected layout or tile_matrix_set"
            findings.append(Finding("GZ-37", "error", node.path, message))
        levels, crs = list[LevelEntry](), list[tuple[str, Crs]]()
        if "tile_matrix_set" in stated:
            levels, crs = parse_tile_matrix_set(stated, node, findings)
        return Facts(
            crs=tuple(crs),
            levels=tuple(levels),
            resampling=parse_resampling(stated, node.path, findings),
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`zarr_conventions`, `proj:` and `spatial:` of every group, and `multiscales` of a pyramid's."""
        return render_groups(geo, render_layout(geo) | render_tiles(geo) if geo.levels else None)

    def dialects(self, node: Node) -> Iterator[str]:
        """The tile matrix set."""
        stated = node.attrs.get("multiscales")
        if is_group(node) and isinstance(stated, Mapping) and "tile_matrix_set" in stated:
            yield "GeoZarr tile matrix set"


def why_no_tiles(geo: GeoModel) -> str | None:
    """The reason why a pyramid's levels are no tile matrix set; None if they are one."""
    if geo.crs is None:
        return "there is no CRS"
    for level in geo.levels:
        affine = level.affine
        if affine is None or level.tile_shape is None:
            return f"level {level.path!r} has no {'affine' if affine is None else 'tile shape'}"
        if affine.is_rotated:
            return f"the grid of level {level.path!r} is rotated"
        if affine.a < 0:
            return f"the columns of level {level.path!r} run towards smaller x"
        if abs(affine.a - abs(affine.e)) > 1e-9 * affine.a:
            return f"the cells of level {level.path!r} are not square ({affine.a!r} by {abs(affine.e)!r})"
    return None


def render_tiles(geo: GeoModel) -> dict[str, Any]:
    """The members of `multiscales` that readers of tiles want: the tile matrix set and both limits objects.

    South-up grids count their rows from the bottom left. {} where `why_no_tiles` says why.
    """
    if geo.crs is None or why_no_tiles(geo) is not None:
        return {}
    counts = {level.path: _tile_counts(level) for level in geo.levels}
    limits = {path: (0, rows - 1, 0, columns - 1) for path, (columns, rows) in counts.items()}
    tile_matrix_set = {
        "id": _set_id(geo.crs, geo.levels[0]),
        "title": "native grid",
        "crs": geo.crs.url or {"wkt": dict(geo.crs.projjson)},
        "orderedAxes": _ordered_axes(geo.crs),
        "tileMatrices": [_matrix(level, geo.crs) for level in reversed(geo.levels)],
    }
    return {"tile_matrix_set": tile_matrix_set, **render_limits(limits)}


def render_limits(limits: Mapping[str, Limits]) -> dict[str, dict[str, Any]]:
    """The members of `multiscales` with limits by level, in the draft's and in the mini spec's words."""
    made: dict[str, dict[str, Any]] = {
        member: {path: dict(zip(names, found, strict=True)) for path, found in limits.items()}
        for member, names in LIMITS.items()
    }
    for path, found in made["tile_matrix_limits"].items():
        made["tile_matrix_limits"][path] = {"tileMatrix": path, **found}
    return made


def parse_limits(stated: Any, member: str, path: str) -> Limits | None:
    """The limits of a level in that member of `multiscales`; None if they are no whole numbers."""
    found = member_of(member_of(stated, member), path)
    numbers = [found.get(name) for name in LIMITS[member]] if isinstance(found, Mapping) else []
    whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    return (whole[0], whole[1], whole[2], whole[3]) if len(whole) == 4 else None


def _matrix(level: Level, crs: Crs) -> dict[str, Any]:
    if level.affine is None or level.tile_shape is None:
        raise MetadataError(f"level {level.path!r} has no affine or no tile shape; expected both")
    columns, rows = _tile_counts(level)
    origin = [level.affine.c, level.affine.f]
    return {
        "id": level.path,
        "scaleDenominator": level.affine.a * crs.metres_per_unit / PIXEL,
        "cellSize": level.affine.a,
        "cornerOfOrigin": "topLeft" if level.affine.e < 0 else "bottomLeft",
        "pointOfOrigin": origin[::-1] if crs.is_y_first else origin,
        "tileWidth": level.tile_shape[1],
        "tileHeight": level.tile_shape[0],
        "matrixWidth": columns,
        "matrixHeight": rows,
    }


def _tile_counts(level: Level) -> tuple[int, int]:
    height, width = level.tile_shape or level.shape
    return -(-level.shape[1] // width), -(-level.shape[0] // height)


def _ordered_axes(crs: Crs) -> list[str]:
    axes = ["Lon", "Lat"] if crs.is_geographic else ["E", "N"]
    return axes[::-1] if crs.is_y_first else axes


def _set_id(crs: Crs, level: Level) -> str:
    cell = 0.0 if level.affine is None else level.affine.a
    unit = {"metre": "m", "degree": "deg"}.get(crs.unit_name, crs.unit_name.replace(" ", "_"))
    # morecantile takes letters, digits, "_" and "-" only.
    return re.sub(r"[^\w-]", "_", f"{(crs.code or 'native').replace(':', '')}_{cell:g}{unit}", flags=re.ASCII)


def parse_tile_matrix_set(
    stated: Mapping[str, Any], node: GroupNode, findings: list[Finding]
) -> tuple[list[LevelEntry], list[tuple[str, Crs]]]:
    """(levels, (source, CRS) pairs) of the `tile_matrix_set` of a `multiscales` object.

    A set may have more matrices than the pyramid has levels: those that are there count.
    """
    tile_matrix_set = stated["tile_matrix_set"]
    if isinstance(tile_matrix_set, Mapping):
        crs = parse_tile_matrix_crs(tile_matrix_set, node.path, findings)
        entries = parse_tile_matrices(tile_matrix_set, crs[0][1] if crs else None, node, findings)
        present = {name for name, _ in node.members()}
        return [entry for entry in entries if entry.path in present], crs
    if isinstance(tile_matrix_set, str):
        return _well_known(tile_matrix_set, stated, node, findings)
    message = f"tile_matrix_set is {tile_matrix_set!r}; expected an object or a name"
    findings.append(Finding("GZ-38", "error", node.path, message))
    return [], []


def _well_known(
    name: str, stated: Mapping[str, Any], node: GroupNode, findings: list[Finding]
) -> tuple[list[LevelEntry], list[tuple[str, Crs]]]:
    limits = stated.get("tile_matrix_set_limits", stated.get("tile_matrix_limits"))
    names = [child for child, found in node.members() if is_group(found)]
    paths = [path for path in limits if path in names] if isinstance(limits, Mapping) else []
    known = _resolve(name, node, findings)
    if known is None:
        return [LevelEntry(path) for path in paths or [p for p in names if p.isdecimal()]], []
    entries = []
    for path in paths or [path for path in names if path in known.tile_matrices]:
        matrix = known.tile_matrices.get(path)
        if matrix is None:
            message = f"level {path!r} is no tile matrix of {known.id}"
            findings.append(Finding("GZ-39", "error", node.path, message, sorted(known.tile_matrices), path))
            entries.append(LevelEntry(path))
            continue
        cell = (matrix.cell_size, matrix.cell_size)
        entries.append(
            LevelEntry(
                path,
                fallback_affine=matrix.affine,
                extent=matrix.shape,
                cell=cell,
                tile_shape=matrix.tile_shape,
            )
        )
    return entries, [(f"tile_matrix_set {known.id}", Crs.from_user(known.crs))]


def _resolve(name: str, node: Node, findings: list[Finding]) -> TileMatrixSet | None:
    found, names = known_set(name), list_tile_matrix_sets()
    if found is not None:
        return found
    for known in names:
        if known.lower() == name.lower():
            message = f"tile_matrix_set is {name!r}; it is taken for {known!r}"
            findings.append(Finding("GZ-38", "error", node.path, message, known, name))
            return load_tile_matrix_set(known)
    message = f"tile_matrix_set {name!r} is not one zstore knows; the levels' own georeference counts"
    # A URI may lead somewhere, for those who have a network.
    severity: Severity = "warning" if "://" in name else "error"
    findings.append(Finding("GZ-38", severity, node.path, message, names, name))
    return None


def parse_tile_matrix_crs(
    tile_matrix_set: Mapping[str, Any], path: str, findings: list[Finding]
) -> list[tuple[str, Crs]]:
    """(source, CRS) of the statements of a tile matrix set: `crs`, then TMS 1.0's `supportedCRS`."""
    found: list[tuple[str, Crs]] = []
    for member in ("crs", "supportedCRS"):
        stated = tile_matrix_set.get(member)
        if isinstance(stated, Mapping):
            stated = stated.get("uri", stated.get("wkt", stated))
        if stated is not None:
            found += parse_crs(f"tile_matrix_set.{member}", stated, "GZ-40", path, findings)
    return found


def _listed(tile_matrix_set: Mapping[str, Any]) -> list[Any] | None:
    found = tile_matrix_set.get("tileMatrices", tile_matrix_set.get("tile_matrices"))
    return found if isinstance(found, list) else None


def tile_matrices(stated: Any) -> dict[str, Mapping[str, Any]]:
    """The tile matrices, by id, that a `multiscales` object lists in full; {} if it names a set."""
    found = member_of(stated, "tile_matrix_set")
    return {
        str(matrix["id"]): matrix
        for matrix in (_listed(found) or () if isinstance(found, Mapping) else ())
        if isinstance(matrix, Mapping) and isinstance(matrix.get("id"), (str, int))
    }


def known_set(name: Any) -> TileMatrixSet | None:
    """The tile matrix set of that name; None if zstore has none."""
    try:
        return load_tile_matrix_set(name) if isinstance(name, str) else None
    except NotFoundError:
        return None


def parse_tile_matrices(
    tile_matrix_set: Mapping[str, Any], crs: Crs | None, node: Node, findings: list[Finding]
) -> list[LevelEntry]:
    """One entry per tile matrix, with the affine of its origin and cell size."""
    matrices = _listed(tile_matrix_set)
    if matrices is None or "tileMatrices" not in tile_matrix_set:
        message = f"tile_matrix_set has no list tileMatrices; it has {sorted(map(str, tile_matrix_set))}"
        findings.append(Finding("GZ-38", "error", node.path, message, "tileMatrices"))
    if matrices is None:
        return []
    is_y_first = _is_y_first(tile_matrix_set.get("orderedAxes"), crs)
    entries = []
    for matrix in matrices:
        if not isinstance(matrix, Mapping) or not isinstance(matrix.get("id"), (str, int)):
            message = f"tile matrix {matrix!r} has no id; it is left out"
            findings.append(Finding("MS-25", "error", node.path, message))
            continue
        entries.append(_entry(matrix, crs, is_y_first, node, findings))
    return entries


def _entry(
    matrix: Mapping[str, Any], crs: Crs | None, is_y_first: bool, node: Node, findings: list[Finding]
) -> LevelEntry:
    path = str(matrix["id"])
    cell = _positive(matrix.get("cellSize"))
    tile = (_positive(matrix.get("tileHeight")), _positive(matrix.get("tileWidth")))
    denominator = _positive(matrix.get("scaleDenominator"))
    if cell is not None and denominator is not None and crs is not None:
        expected = cell * crs.metres_per_unit / PIXEL
        if abs(denominator - expected) > 1e-6 * expected:
            message = (
                f"scaleDenominator of tile matrix {path!r} is {denominator!r}; its cellSize says {expected!r}"
            )
            findings.append(Finding("GZ-45", "error", node.path, message, expected, denominator))
    origin = parse_numbers(matrix.get("pointOfOrigin"), 2)
    affine = None
    if cell is not None and origin is not None:
        x, y = origin[::-1] if is_y_first else origin
        is_south_up = matrix.get("cornerOfOrigin") == "bottomLeft"
        affine = Affine(cell, 0.0, float(x), 0.0, cell if is_south_up else -cell, float(y))
    tile_shape = (int(tile[0]), int(tile[1])) if tile[0] is not None and tile[1] is not None else None
    counts = (_positive(matrix.get("matrixHeight")), _positive(matrix.get("matrixWidth")))
    extent = None
    # Cells without a place are no extent: another dialect may say where the level lies.
    if affine is not None and tile_shape is not None and counts[0] is not None and counts[1] is not None:
        extent = (int(counts[0]) * tile_shape[0], int(counts[1]) * tile_shape[1])
    return LevelEntry(
        path,
        fallback_affine=affine if extent is not None else None,
        extent=extent,
        cell=None if cell is None else (cell, cell),
        tile_shape=tile_shape,
    )


def _positive(value: Any) -> float | None:
    return value if is_number(value) and value > 0 else None


def _is_y_first(axes: Any, crs: Crs | None) -> bool:
    if isinstance(axes, (list, tuple)) and len(axes) == 2:
        first = str(axes[0]).lower()
        if first in Y_FIRST_AXES | X_FIRST_AXES:
            return first in Y_FIRST_AXES
    return crs is not None and crs.is_y_first


def are_ordered_axes(axes: Any) -> bool:
    """Whether these are the words of an x and of a y axis, in either order."""
    if not isinstance(axes, (list, tuple)) or len(axes) != 2:
        return False
    names = {str(axis).lower() for axis in axes}
    return len(names) == 2 and bool(names & X_FIRST_AXES) and bool(names & Y_FIRST_AXES)


def enlarge_tiles(matrix: TileMatrix, times: int) -> TileMatrix:
    """A tile matrix of the same tiles, each `times` as many cells wide and high."""
    height, width = matrix.tile_shape
    return replace(
        matrix,
        scale_denominator=matrix.scale_denominator / times,
        cell_size=matrix.cell_size / times,
        tile_shape=(height * times, width * times),
    )


def name_set(
    multiscales: Mapping[str, Any], known: TileMatrixSet, times: int, limits: Mapping[str, Limits]
) -> dict[str, Any]:
    """The `multiscales` object of a pyramid on the grids of `known`: with the set's name and these limits.

    The set is written out, with the matrices that there are: some readers take no bare name, and all of them
    know the set by its `id`. `times` is how often its tiles are enlarged; the set is another one then.

    Raises
        MetadataError: there is no tile matrix set in `multiscales`, or it has other levels.
    """
    stated = multiscales.get("tile_matrix_set")
    if not isinstance(stated, Mapping):
        raise MetadataError(f"multiscales has the members {sorted(multiscales)}; expected tile_matrix_set")
    names = [matrix["id"] for matrix in stated["tileMatrices"]]
    if set(names) != set(limits):
        raise MetadataError(f"limits are given for {sorted(limits)}; expected the levels {sorted(names)}")
    is_own = times > 1
    naming = {"id": f"{known.id}_{times}x" if is_own else known.id, "title": known.title}
    if is_own:
        naming["title"] = f"{known.title}, tiles {times} times as wide and high"
    elif "uri" in known.document:
        naming["uri"] = known.document["uri"]
    rendered = render_limits({name: limits[name] for name in multiscales["tile_matrix_set_limits"]})
    return {**multiscales, "tile_matrix_set": {**stated, **naming}, **rendered}

"""Where a pyramid's levels are, in every dialect of `multiscales` in use.

A `layout` (zarr-conventions, and GeoZarr's own of October 2025), a `tile_matrix_set` (GeoZarr's draft and
mini spec), a list with `datasets` (Multiscale Arrays, ndpyramid, OME-Zarr to 0.4), and OME-Zarr 0.5's `ome`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zstore.conventions.base import Finding, GroupNode, LevelEntry
from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine
from zstore.conventions.tiles import parse_tile_matrices, parse_tile_matrix_crs
from zstore.conventions.zarr_conventions import parse_numbers
from zstore.errors import MetadataError

__all__ = ["parse_levels"]

# Cells of zoom 0 by the sets' own definitions; the levels' own georeference counts before it.
WELL_KNOWN_SETS = {
    "WebMercatorQuad": ("EPSG:3857", 156543.03392804097, (-20037508.342789244, 20037508.342789244)),
    "WorldMercatorWGS84Quad": ("EPSG:3395", 156543.03392804097, (-20037508.342789244, 20037508.342789244)),
    "WorldCRS84Quad": ("OGC:CRS84", 0.703125, (-180.0, 90.0)),
}


def parse_levels(node: GroupNode, findings: list[Finding]) -> tuple[tuple[LevelEntry, ...], Crs | None]:
    """The levels in the order of the document, and the CRS of its tile matrix set.

    The first dialect that names any: `layout`, then `tile_matrix_set`, then `datasets`, then OME. What a
    later one knows of a level of the same path (its tile shape, say) is added.
    """
    stated = node.attrs.get("multiscales")
    ome = node.attrs.get("ome")
    tile_crs: Crs | None = None
    tried: list[list[LevelEntry]] = []
    if isinstance(stated, Mapping):
        if "layout" in stated:
            tried.append(_parse_layout(stated["layout"], node, findings))
        if "tile_matrix_set" in stated:
            entries, tile_crs = _parse_tile_matrix_set(stated, node, findings)
            tried.append(entries)
        if "datasets" in stated:
            tried.append(_parse_datasets([stated], node, findings))
        if not tried:
            message = f"multiscales has the members {sorted(stated)}; expected layout or tile_matrix_set"
            findings.append(Finding("GZ-37", "error", node.path, message))
    elif isinstance(stated, (list, tuple)):
        tried.append(_parse_datasets(stated, node, findings))
    elif stated is not None:
        message = f"multiscales is {stated!r}; expected an object or a list"
        findings.append(Finding("GZ-37", "error", node.path, message, "object", stated))
    if isinstance(ome, Mapping) and isinstance(ome.get("multiscales"), (list, tuple)):
        tried.append(_parse_datasets(ome["multiscales"], node, findings))
    return _joined([entries for entries in tried if entries]), tile_crs


def _joined(tried: list[list[LevelEntry]]) -> tuple[LevelEntry, ...]:
    if not tried:
        return ()
    joined = []
    for entry in tried[0]:
        same = [other for entries in tried[1:] for other in entries if other.path == entry.path]
        members = {
            name: next((getattr(e, name) for e in (entry, *same) if getattr(e, name) is not None), None)
            for name in (
                "affine",
                "fallback_affine",
                "extent",
                "shape",
                "cell",
                "scale",
                "tile_shape",
                "resampling",
            )
        }
        joined.append(LevelEntry(entry.path, **members))
    return tuple(joined)


def _parse_layout(layout: Any, node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    if not isinstance(layout, list) or not layout:
        message = f"multiscales.layout is {layout!r}; expected a list of levels"
        findings.append(Finding("ZC-02", "error", node.path, message))
        return []
    entries: dict[str, LevelEntry] = {}
    for item in layout:
        path = _asset(item)
        if path is None:
            message = f"layout item {item!r} has no relative path as its asset; it is left out"
            findings.append(Finding("ZC-02", "error", node.path, message))
            continue
        affine = None
        if "spatial:transform" in item:
            try:
                affine = Affine.from_user(item["spatial:transform"])
            except (MetadataError, TypeError) as error:
                message = f"spatial:transform of level {path!r}: {error}"
                findings.append(Finding("ZC-05", "error", node.path, message))
        shape = parse_numbers(item.get("spatial:shape"), 2)
        cell = item.get("cell_size")
        cells = parse_numbers(cell, 2) or parse_numbers([cell, cell], 2)
        entries[path] = LevelEntry(
            path,
            affine=affine,
            shape=None if shape is None else (int(shape[0]), int(shape[1])),
            cell=None if cells is None else (float(cells[0]), float(cells[1])),
            scale=_scale(item, entries),
            resampling=item["resampling_method"] if isinstance(item.get("resampling_method"), str) else None,
        )
    return list(entries.values())


def _asset(item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return None
    path = item.get("asset", item.get("path", item.get("id")))
    if not isinstance(path, str) or path.startswith("/") or ".." in path.split("/"):
        return None
    return path.strip("/") if path != "." else ""


def _scale(item: Mapping[str, Any], entries: Mapping[str, LevelEntry]) -> tuple[float, float] | None:
    if not entries:
        return (1, 1)
    factors = item.get("factors")
    transform = item.get("transform")
    stated = transform.get("scale") if isinstance(transform, Mapping) else factors
    if not isinstance(stated, (list, tuple)) or len(stated) < 2:
        return None
    # The last two dimensions are the spatial ones where an array has more.
    found = parse_numbers(list(stated[-2:]), 2)
    source = entries.get(str(item.get("derived_from", "")).strip("/"))
    if found is None or (transform is not None and (source is None or source.scale is None)):
        return None
    base = source.scale if source is not None and source.scale is not None else (1, 1)
    return (found[0] * base[0], found[1] * base[1])


def _parse_tile_matrix_set(
    stated: Mapping[str, Any], node: GroupNode, findings: list[Finding]
) -> tuple[list[LevelEntry], Crs | None]:
    tile_matrix_set = stated["tile_matrix_set"]
    if isinstance(tile_matrix_set, Mapping):
        crs = parse_tile_matrix_crs(tile_matrix_set, node.path, findings)
        entries = parse_tile_matrices(tile_matrix_set, crs, node, findings)
        present = {name for name, _ in node.members()}
        # A set may have more matrices than the pyramid has levels: those that are there count.
        return [entry for entry in entries if entry.path in present], crs
    if isinstance(tile_matrix_set, str):
        return _well_known(tile_matrix_set, stated, node, findings)
    message = f"tile_matrix_set is {tile_matrix_set!r}; expected an object or a name"
    findings.append(Finding("GZ-38", "error", node.path, message))
    return [], None


def _well_known(
    name: str, stated: Mapping[str, Any], node: GroupNode, findings: list[Finding]
) -> tuple[list[LevelEntry], Crs | None]:
    limits = stated.get("tile_matrix_set_limits", stated.get("tile_matrix_limits"))
    names = [child for child, found in node.members() if hasattr(found, "members")]
    paths = [path for path in limits if path in names] if isinstance(limits, Mapping) else []
    paths = paths or [path for path in names if _is_zoom(path)]
    known = WELL_KNOWN_SETS.get(name.rstrip("/").rpartition("/")[2])
    if known is None:
        message = f"tile_matrix_set {name!r} is not one zstore knows; the levels' own georeference counts"
        findings.append(Finding("GZ-38", "warning", node.path, message, sorted(WELL_KNOWN_SETS), name))
        return [LevelEntry(path) for path in paths], None
    code, cell, (x, y) = known
    entries = []
    for path in paths:
        size = cell / 2 ** int(path) if _is_zoom(path) else None
        affine = None if size is None else Affine(size, 0.0, x, 0.0, -size, y)
        extent = None if size is None else _well_known_extent(name, int(path))
        entries.append(LevelEntry(path, fallback_affine=affine, extent=extent, cell=affine and affine.cell))
    return entries, Crs.from_user(code)


def _is_zoom(name: str) -> bool:
    return len(name) <= 2 and name.isascii() and name.isdecimal()


def _well_known_extent(name: str, zoom: int) -> tuple[int, int]:
    side = 256 * 2**zoom
    return (side, side * 2) if name.endswith("WorldCRS84Quad") else (side, side)


def _parse_datasets(stated: Any, node: GroupNode, findings: list[Finding]) -> list[LevelEntry]:
    first = stated[0] if stated else None
    datasets = first.get("datasets") if isinstance(first, Mapping) else None
    if not isinstance(datasets, (list, tuple)):
        message = "multiscales has no list of datasets; its levels are not known"
        findings.append(Finding("OC-10", "error", node.path, message))
        return []
    axes = first.get("axes") if isinstance(first, Mapping) else None
    entries = []
    for item in datasets:
        path = _asset(item)
        if path is None:
            findings.append(Finding("OC-10", "error", node.path, f"dataset {item!r} has no relative path"))
            continue
        affine = _ome_affine(item.get("coordinateTransformations"), axes)
        tile = item.get("pixels_per_tile")
        tile_shape = (
            (tile, tile) if isinstance(tile, int) and not isinstance(tile, bool) and tile > 0 else None
        )
        cell = None if affine is None else affine.cell
        entries.append(LevelEntry(path, fallback_affine=affine, cell=cell, tile_shape=tile_shape))
    return entries


def _ome_affine(transformations: Any, axes: Any) -> Affine | None:
    if not isinstance(transformations, (list, tuple)):
        return None
    found = {
        item.get("type"): item.get(item.get("type"))
        for item in transformations
        if isinstance(item, Mapping) and item.get("type") in ("scale", "translation")
    }
    scale = found.get("scale")
    if not isinstance(scale, (list, tuple)) or len(scale) < 2:
        return None
    names = [
        axis.get("name") if isinstance(axis, Mapping) else axis
        for axis in (axes if isinstance(axes, list) else ())
    ]
    y, x = (names.index(name) if name in names else place for name, place in (("y", -2), ("x", -1)))
    if max(y, x) >= len(scale):
        return None
    steps = parse_numbers([scale[y], scale[x]], 2)
    translation = found.get("translation")
    if not isinstance(translation, (list, tuple)) or len(translation) != len(scale):
        translation = [0.0] * len(scale)
    centres = parse_numbers([translation[y], translation[x]], 2)
    if steps is None or centres is None or 0 in steps:
        return None
    # OME counts from the centre of the first cell.
    return Affine(steps[1], 0.0, centres[1] - steps[1] / 2, 0.0, steps[0], centres[0] - steps[0] / 2)

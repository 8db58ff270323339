"""Where a raster or a pyramid lies and what its values mean, whichever dialects say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from zstore.conventions.base import (
    Convention,
    Facts,
    Finding,
    GroupNode,
    LevelEntry,
    Node,
    is_array,
    is_group,
)
from zstore.conventions.model import GeoModel, Level
from zstore.conventions.reading.affines import choose_factors
from zstore.conventions.reading.grids import read_array, read_dataset
from zstore.conventions.reading.levels import join_levels
from zstore.conventions.reading.nodes import CachedArray, CachedGroup
from zstore.conventions.write import load_conventions
from zstore.errors import MetadataError

__all__ = ["CONVENTIONS", "read_geo"]

CONVENTIONS = ("cf", "gdal", "geozarr", "multiscales", "ome", "time", "bands", "stac")
# What an array means must not change from level to level.
COMPARED = (
    ("GZ-33", "dtype"),
    ("GZ-22", "scale_factor"),
    ("GZ-22", "add_offset"),
    ("GZ-22", "units"),
    ("GZ-22", "nodata"),
)


def read_geo(
    node: Node, parent: Node | None = None, conventions: Sequence[str] = CONVENTIONS
) -> tuple[GeoModel, list[Finding]]:
    """What an array, a group of arrays, or a multiscale group is on the ground, and what is wrong with it.

    Every fact comes from the first place that has it; one that is broken or contradicted gives a finding and
    falls through to the next.

    CRS         the grid mapping variable (`crs_wkt`, `spatial_ref`, CF parameters), `_CRS` (url, wkt,
                projjson), the array's `proj:` (code, wkt2, projjson, epsg), its group's, the multiscale
                group's, the tile matrix set's
    affine      `spatial:transform` of the array, its group, the multiscale layout; `GeoTransform` of the grid
                mapping variable, of the array; `proj:transform`; coordinate variables; the tile matrix or
                OME's scale; `spatial:bbox`. One that the coordinates contradict is passed over
    levels      `layout`, `tile_matrix_set`, a list of `datasets`, `ome`; ordered by the size of their cells,
                never by their names
    dimensions  `spatial:dimensions`; coordinates' `axis` or `standard_name`; names in use; the last two
    nodata      `_FillValue`, `missing_value`, the fill value as far as it means nodata (`parse_variable`)
    time        the coordinate of a dimension, else a single moment beside the arrays
    bands       the array's `bands`, `eo:bands`, its group's, wavelengths along a dimension
    STAC        the outermost group's item or collection, or the link to it

    `parent` is the group that holds `node`, for facts that an array inherits or has beside it.

    Raises
        MetadataError: there is no grid of two dimensions.
    """
    loaded = load_conventions(conventions)
    above = CachedGroup(parent) if parent is not None and is_group(parent) else None
    if is_array(node):
        name = node.path.rpartition("/")[2]
        geo, findings = read_array(name, CachedArray(node), above, loaded, None, None)
        return geo, _unique(findings)
    group = CachedGroup(cast("GroupNode", node))
    parsed = [convention.parse(group, above) for convention in loaded]
    root = _merged(parsed)
    if root.levels:
        geo, findings = _read_pyramid(group, root, loaded)
    else:
        geo, findings = read_dataset(group, loaded, None, root)
    geo = replace(geo, stac=root.stac)
    return geo, _unique([*root.findings, *findings])


def _unique(findings: Iterable[Finding]) -> list[Finding]:
    # A coordinate or a grid mapping that several arrays share is parsed with each of them.
    kept: dict[str, Finding] = {}
    for finding in findings:
        kept.setdefault(repr(finding), finding)
    return list(kept.values())


def _merged(parsed: Sequence[Facts]) -> Facts:
    def first(name: str) -> Any:
        return next((getattr(f, name) for f in parsed if getattr(f, name)), None)

    return Facts(
        crs=tuple(pair for facts in parsed for pair in facts.crs),
        affines=tuple(pair for facts in parsed for pair in facts.affines),
        dimensions=first("dimensions"),
        shape=first("shape"),
        bbox=first("bbox"),
        levels=join_levels(facts.levels for facts in parsed),
        resampling=first("resampling"),
        stac=first("stac"),
        findings=tuple(finding for facts in parsed for finding in facts.findings),
    )


def _read_pyramid(
    group: CachedGroup, root: Facts, conventions: Sequence[Convention]
) -> tuple[GeoModel, list[Finding]]:
    findings: list[Finding] = []
    read: list[tuple[LevelEntry, GeoModel]] = []
    for entry in root.levels:
        found = _read_level(group, entry, root, conventions, findings)
        if found is not None:
            read.append((entry, found))
    if not read:
        geo, found_here = read_dataset(group, conventions, None, root)
        return geo, [*findings, *found_here]
    read.sort(key=lambda pair: _cell_area(*pair))
    base = read[0][1]
    levels = [_level(entry, geo, base, read[0][0], group.path, findings) for entry, geo in read]
    for entry, geo in read[1:]:
        findings += _compare(entry.path, geo, base, group)
    for entry, _ in read:
        if (
            entry.resampling is not None
            and root.resampling is not None
            and entry.resampling != root.resampling
        ):
            message = f"level {entry.path!r} is resampled by {entry.resampling!r}, not {root.resampling!r}"
            findings.append(
                Finding("GZ-48", "warning", group.path, message, root.resampling, entry.resampling)
            )
    return replace(base, levels=tuple(levels), resampling=root.resampling), findings


def _read_level(
    group: CachedGroup,
    entry: LevelEntry,
    root: Facts,
    conventions: Sequence[Convention],
    findings: list[Finding],
) -> GeoModel | None:
    above, _, name = entry.path.rpartition("/")
    holder = _child_group(group, above)
    array = None if holder is None else holder.arrays.get(name)
    level = None if array is not None else _child_group(group, entry.path)
    try:
        if holder is not None and array is not None:
            geo, found = read_array(name, array, holder, conventions, entry, root)
        elif level is not None:
            geo, found = read_dataset(level, conventions, entry, root)
        else:
            message = f"level {entry.path!r} is not there; it is left out"
            findings.append(Finding("ZC-03", "error", group.path, message, entry.path))
            return None
    except MetadataError as error:
        findings.append(Finding("MS-19", "error", group.path, f"level {entry.path!r}: {error}"))
        return None
    findings += found
    return geo


def _child_group(group: CachedGroup, path: str) -> CachedGroup | None:
    found: CachedGroup | None = group
    for part in filter(None, path.split("/")):
        found = None if found is None else found.groups.get(part)
    return found


def _cell_area(entry: LevelEntry, geo: GeoModel) -> tuple[float, int]:
    cells = geo.shape[0] * geo.shape[1]
    if geo.affine is not None:
        height, width = geo.affine.cell
        return (height * width, -cells)
    # Without an affine the level with the most cells is the finest.
    return (entry.cell[0] * entry.cell[1] if entry.cell is not None else 0.0, -cells)


def _level(
    entry: LevelEntry,
    geo: GeoModel,
    base: GeoModel,
    base_entry: LevelEntry,
    path: str,
    findings: list[Finding],
) -> Level:
    scale = entry.scale
    if scale is not None and base_entry.scale is not None:
        scale = (scale[0] / base_entry.scale[0], scale[1] / base_entry.scale[1])
    factors = choose_factors((base.shape, base.affine), (geo.shape, geo.affine), scale)
    affine = geo.affine
    if factors is None:
        message = f"nothing says how large the cells of level {entry.path!r} are"
        findings.append(Finding("ZC-06", "error", path, message))
        factors = (base.shape[0] / geo.shape[0], base.shape[1] / geo.shape[1])
    elif affine is None and base.affine is not None:
        affine = base.affine.scaled(factors)
    if scale is not None and not np.allclose(scale, factors, rtol=1e-6):
        message = (
            f"transform.scale of level {entry.path!r} comes to {scale} of the finest, its cells to {factors}"
        )
        findings.append(Finding("ZC-06", "warning", path, message, factors, scale))
    return Level(entry.path, geo.shape, affine, factors, entry.tile_shape)


def _compare(level: str, geo: GeoModel, base: GeoModel, group: CachedGroup) -> list[Finding]:
    findings, path = [], group.path
    if base.crs is not None and geo.crs is not None and not geo.crs.is_same(base.crs):
        message = f"level {level!r} has another CRS than the finest"
        findings.append(Finding("GZ-40", "error", path, message, base.crs.wkt, geo.crs.wkt))
    pairs = {
        name: (base.variables[name], geo.variables[name])
        for name in sorted(base.variables)
        if name in geo.variables
    }
    if _child_group(group, level) is None:
        # Levels that are arrays have names of their own.
        if len(base.variables) == len(geo.variables) == 1:
            (finest,), (variable,) = base.variables.values(), geo.variables.values()
            pairs = {level: (finest, variable)}
    elif set(geo.variables) != set(base.variables):
        message = f"level {level!r} holds {sorted(geo.variables)}, the finest {sorted(base.variables)}"
        findings.append(
            Finding("GZ-32", "error", path, message, sorted(base.variables), sorted(geo.variables))
        )
    for name, (finest, variable) in pairs.items():
        for rule, member in COMPARED:
            expected, found = getattr(finest, member), getattr(variable, member)
            if repr(expected) != repr(found):
                message = f"{member} of {name!r} is {found!r} at level {level!r}, {expected!r} at the finest"
                findings.append(Finding(rule, "error", path, message, expected, found))
    return findings

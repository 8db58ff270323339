"""Where a raster or a pyramid lies and what its values mean, whichever dialects say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from zstore.conventions.affines import choose_affine, choose_factors
from zstore.conventions.axes import AXIS_NAMES
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
from zstore.conventions.crs import Crs
from zstore.conventions.model import GeoModel, Level, Variable
from zstore.conventions.nodes import CachedArray, CachedGroup
from zstore.conventions.write import load_conventions
from zstore.errors import MetadataError

__all__ = ["CONVENTIONS", "read_geo"]

CONVENTIONS = ("cf", "gdal", "geozarr")


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

    `parent` is the group that holds `node`, for facts that an array inherits or has beside it.

    Raises
        MetadataError: there is no grid of two dimensions.
    """
    loaded = load_conventions(conventions)
    above = CachedGroup(parent) if parent is not None and is_group(parent) else None
    if is_array(node):
        name = node.path.rpartition("/")[2]
        geo, findings = _read_array(name, CachedArray(node), above, loaded, None, None)
        return geo, _unique(findings)
    group = CachedGroup(cast("GroupNode", node))
    parsed = [convention.parse(group, above) for convention in loaded]
    root = _merged(parsed)
    if root.levels:
        geo, findings = _read_pyramid(group, root, loaded)
    else:
        geo, findings = _read_dataset(group, loaded, None, root)
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
        levels=first("levels") or (),
        resampling=first("resampling"),
        findings=tuple(finding for facts in parsed for finding in facts.findings),
    )


def _read_array(
    name: str,
    node: CachedArray,
    parent: CachedGroup | None,
    conventions: Sequence[Convention],
    entry: LevelEntry | None,
    root: Facts | None,
) -> tuple[GeoModel, list[Finding]]:
    parsed = [convention.parse(node, parent) for convention in conventions]
    findings = [finding for facts in parsed for finding in facts.findings]
    places = _places(node, parsed, root, findings)
    shape = (node.shape[places[0]], node.shape[places[1]])
    if 0 in shape:
        raise MetadataError(f"grid of the array is {shape}; expected one cell at least", path=node.path)
    names = node.dims or ()
    dimensions = (names[places[0]] or "y", names[places[1]] or "x") if names else ("y", "x")
    if root is not None:
        # What the multiscale group says of its own grid is the finest level's, told by its shape.
        is_its_own = root.shape in (None, shape)
        parsed.append(
            replace(
                root,
                affines=root.affines if root.shape == shape else (),
                bbox=root.bbox if is_its_own else None,
            )
        )
    if entry is not None and entry.shape not in (None, shape):
        message = f"spatial:shape of the layout is {entry.shape}; expected the array's {shape}"
        findings.append(Finding("ZC-06", "error", node.path, message, shape, entry.shape))
    crs = _choose_crs([pair for facts in parsed for pair in facts.crs], node.path, findings)
    affine = choose_affine(parsed, entry, shape, node.path, findings)
    variable = _merged_variable([facts.variable for facts in parsed if facts.variable is not None])
    return GeoModel(crs, affine, shape, dimensions, variables={name: variable}), findings


def _places(
    node: CachedArray, parsed: Sequence[Facts], root: Facts | None, findings: list[Finding]
) -> tuple[int, int]:
    if len(node.shape) < 2:
        raise MetadataError(
            f"array has {len(node.shape)} dimensions; expected a grid of two or more", path=node.path
        )
    names = node.dims or ()
    stated = [facts for facts in parsed if facts.dimensions is not None]
    # `spatial:dimensions` is a statement; what CF gives is found out.
    for facts in [f for f in stated if f.variable is None] + [f for f in stated if f.variable is not None]:
        y, x = facts.dimensions or ("", "")
        if y in names and x in names:
            return names.index(y), names.index(x)
    if root is not None and root.dimensions is not None and set(root.dimensions) <= set(names):
        return names.index(root.dimensions[0]), names.index(root.dimensions[1])
    message = f"dimensions are {node.dims!r}: none is known for y or x; the last two are taken"
    findings.append(Finding("GZ-43", "warning", node.path, message))
    return len(node.shape) - 2, len(node.shape) - 1


def _choose_crs(stated: Sequence[tuple[str, Crs]], path: str, findings: list[Finding]) -> Crs | None:
    if not stated:
        return None
    source, crs = stated[0]
    for other_source, other in stated[1:]:
        if not crs.is_same(other):
            message = f"{source} and {other_source} are different CRSs; {source} counts"
            findings.append(Finding("OC-08", "error", path, message, crs.wkt, other.wkt))
    return crs


def _merged_variable(variables: Sequence[Variable]) -> Variable:
    merged: dict[str, Any] = {}
    for variable in variables:
        for member in fields(Variable):
            value = getattr(variable, member.name)
            is_empty = value is None or (isinstance(value, (Mapping, tuple)) and not value)
            if not is_empty:
                merged.setdefault(member.name, value)
    return Variable(**merged)


def _read_dataset(
    group: CachedGroup, conventions: Sequence[Convention], entry: LevelEntry | None, root: Facts | None
) -> tuple[GeoModel, list[Finding]]:
    arrays = group.arrays
    auxiliary = {name for node in arrays.values() for name in _named_by(node)}
    grids: dict[tuple[tuple[int, int], tuple[str, str]], dict[str, tuple[GeoModel, list[Finding]]]] = {}
    for name, node in arrays.items():
        if len(node.shape) < 2 or name in auxiliary or not _is_grid(node, arrays, root):
            continue
        geo, found = _read_array(name, node, group, conventions, entry, root)
        grids.setdefault((geo.shape, geo.dimensions), {})[name] = (geo, found)
    if not grids:
        return _read_bare(group, root)
    shape, dimensions = max(grids, key=lambda grid: grid[0][0] * grid[0][1])
    chosen = grids.pop((shape, dimensions))
    findings = [finding for _, found in chosen.values() for finding in found]
    for others in grids.values():
        for name in others:
            message = f"array {name!r} is on another grid than {shape} {dimensions}; it is not in the model"
            findings.append(Finding("GZ-11", "note", group.path, message, shape, others[name][0].shape))
    models = [geo for geo, _ in chosen.values()]
    first = next((geo for geo in models if geo.crs is not None and geo.affine is not None), models[0])
    for name, (geo, _) in chosen.items():
        if first.crs is not None and geo.crs is not None and not geo.crs.is_same(first.crs):
            message = f"array {name!r} has another CRS than the others"
            findings.append(Finding("GZ-22", "error", group.path, message, first.crs.wkt, geo.crs.wkt))
    variables = {name: geo.variables[name] for name, (geo, _) in chosen.items()}
    return replace(first, variables=variables), findings


def _named_by(node: CachedArray) -> list[str]:
    named = [node.attrs.get("coordinates"), node.attrs.get("bounds"), node.attrs.get("grid_mapping")]
    return [name for text in named if isinstance(text, str) for name in text.split()]


def _is_grid(node: CachedArray, arrays: Mapping[str, Any], root: Facts | None) -> bool:
    """Whether an array of a group is data on the ground, not a table of bounds or the like."""
    if 0 in node.shape[-2:] or node.attrs.get("standard_name") in ("latitude", "longitude"):
        return False
    if node.dims is None or None in node.dims:
        return True
    if root is not None and root.dimensions is not None:
        return set(root.dimensions) <= set(node.dims)
    last = str(node.dims[-1])
    is_bounds = len(node.shape) == 2 and node.shape[1] in (2, 4) and last not in arrays
    return not is_bounds or last.lower() in AXIS_NAMES


def _read_bare(group: CachedGroup, root: Facts | None) -> tuple[GeoModel, list[Finding]]:
    if root is None or root.shape is None:
        raise MetadataError(
            "group holds no grid: no array of two or more dimensions, no spatial:shape", path=group.path
        )
    findings: list[Finding] = []
    crs = _choose_crs(root.crs, group.path, findings)
    affine = choose_affine([root], None, root.shape, group.path, findings)
    return GeoModel(crs, affine, root.shape, root.dimensions or ("y", "x")), findings


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
        geo, found_here = _read_dataset(group, conventions, None, root)
        return geo, [*findings, *found_here]
    read.sort(key=lambda pair: _cell_area(*pair))
    base = read[0][1]
    levels = [_level(entry, geo, base, read[0][0], group.path, findings) for entry, geo in read]
    for entry, geo in read[1:]:
        findings += _compare(entry.path, geo, base, group.path)
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
            geo, found = _read_array(name, array, holder, conventions, entry, root)
        elif level is not None:
            geo, found = _read_dataset(level, conventions, entry, root)
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


def _compare(level: str, geo: GeoModel, base: GeoModel, path: str) -> list[Finding]:
    findings = []
    if base.crs is not None and geo.crs is not None and not geo.crs.is_same(base.crs):
        message = f"level {level!r} has another CRS than the finest"
        findings.append(Finding("GZ-40", "error", path, message, base.crs.wkt, geo.crs.wkt))
    if "/" not in level and set(geo.variables) != set(base.variables):
        message = f"level {level!r} holds {sorted(geo.variables)}, the finest {sorted(base.variables)}"
        findings.append(
            Finding("GZ-32", "error", path, message, sorted(base.variables), sorted(geo.variables))
        )
    for name in sorted(set(geo.variables) & set(base.variables)):
        for rule, member in (
            ("GZ-33", "dtype"),
            ("GZ-22", "scale_factor"),
            ("GZ-22", "add_offset"),
            ("GZ-22", "units"),
            ("GZ-22", "nodata"),
        ):
            expected, found = getattr(base.variables[name], member), getattr(geo.variables[name], member)
            if repr(expected) != repr(found):
                message = f"{member} of {name!r} is {found!r} at level {level!r}, {expected!r} at the finest"
                findings.append(Finding(rule, "error", path, message, expected, found))
    return findings

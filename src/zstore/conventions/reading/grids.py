"""One grid: an array, or the arrays of a group that share theirs, on the ground."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from zstore.conventions.base import Convention, Facts, Finding, LevelEntry
from zstore.conventions.content.timeaxis import TimeAxis
from zstore.conventions.crs import Crs
from zstore.conventions.model import GeoModel, Variable
from zstore.conventions.reading.affines import choose_affine
from zstore.conventions.reading.axes import AXIS_NAMES
from zstore.conventions.reading.nodes import CachedArray, CachedGroup
from zstore.errors import MetadataError

__all__ = ["read_array", "read_dataset"]


def read_array(
    name: str,
    node: CachedArray,
    parent: CachedGroup | None,
    conventions: Sequence[Convention],
    entry: LevelEntry | None,
    root: Facts | None,
) -> tuple[GeoModel, list[Finding]]:
    """The model of one array, and what is wrong with it; `entry` and `root` are its pyramid's, if any.

    Raises
        MetadataError: it has no two dimensions with cells.
    """
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
    time = next((facts.time for facts in parsed if facts.time is not None), None)
    return GeoModel(crs, affine, shape, dimensions, variables={name: variable}, time=time), findings


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


def read_dataset(
    group: CachedGroup, conventions: Sequence[Convention], entry: LevelEntry | None, root: Facts | None
) -> tuple[GeoModel, list[Finding]]:
    """The model of the group's arrays that share the largest grid.

    Raises
        MetadataError: there is no grid, nor the word of one.
    """
    arrays = group.arrays
    auxiliary = {name for node in arrays.values() for name in _named_by(node)}
    grids: dict[tuple[tuple[int, int], tuple[str, str]], dict[str, tuple[GeoModel, list[Finding]]]] = {}
    for name, node in arrays.items():
        if len(node.shape) < 2 or name in auxiliary or not _is_grid(node, arrays, root):
            continue
        geo, found = read_array(name, node, group, conventions, entry, root)
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
    time, found_times = _choose_time({name: geo for name, (geo, _) in chosen.items()}, group.path)
    return replace(first, variables=variables, time=time), [*findings, *found_times]


def _choose_time(models: Mapping[str, GeoModel], path: str) -> tuple[TimeAxis | None, list[Finding]]:
    stated = {name: geo.time for name, geo in models.items() if geo.time is not None}
    # A dimension says more than a moment that all arrays have beside them.
    chosen = max(stated.values(), key=lambda axis: axis.values.ndim, default=None)
    others = sorted(
        {axis.name for axis in stated.values() if chosen is not None and axis.name != chosen.name}
    )
    if chosen is None or not others:
        return chosen, []
    message = f"time is {chosen.name!r} here; {', '.join(map(repr, others))} are not in the model"
    return chosen, [Finding("MS-09", "note", path, message, chosen.name, others)]


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

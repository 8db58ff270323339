"""zarr-conventions as they are: `proj`, `spatial`, and the `layout` of a pyramid.

Spec: zarr-conventions/multiscales v0.1; GeoZarr's clause 7 of October 2025, whose `layout` it grew from.
Example: {"multiscales": {"layout": [{"asset": "0"}, {"asset": "1", "derived_from": "0"}]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zstore.conventions.base import (
    Document,
    Documents,
    Facts,
    Finding,
    GroupNode,
    LevelEntry,
    Node,
    check_crs,
    is_group,
)
from zstore.conventions.model import RESAMPLING_METHODS, Affine, GeoModel, Level
from zstore.conventions.zarr_conventions import declare, parse_numbers, parse_place, render_place
from zstore.errors import MetadataError

__all__ = [
    "ZarrConventions",
    "asset_path",
    "parse_layout",
    "parse_resampling",
    "render_groups",
    "render_layout",
]


class ZarrConventions:
    """The conventions `multiscales`, `proj` and `spatial`, and nothing else."""

    name = "zarr_conventions"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """`proj:` and `spatial:` of any node; the `layout` and the resampling of a multiscale group."""
        facts = parse_place(node, parent)
        stated = node.attrs.get("multiscales") if is_group(node) else None
        if not isinstance(stated, Mapping) or "layout" not in stated:
            return facts
        findings = list(facts.findings)
        levels = parse_layout(stated["layout"], node.path, findings)
        resampling = parse_resampling(stated, node.path, findings)
        return replace(facts, levels=tuple(levels), resampling=resampling, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`zarr_conventions`, `proj:` and `spatial:` of every group, and the `layout` of a pyramid's."""
        return render_groups(geo, render_layout(geo) if geo.levels else None)

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where `proj:`, `spatial:` or the `layout` are malformed or contradict `geo`."""
        facts = self.parse(node, parent)
        return [*facts.findings, *check_crs(facts, node, geo, "OC-08")]


def render_groups(geo: GeoModel, multiscales: Mapping[str, Any] | None) -> Documents:
    """The groups with what `proj` and `spatial` say of them, the outermost with `multiscales`."""
    place = ["spatial"] if geo.crs is None else ["proj", "spatial"]
    attributes: dict[str, Any] = {"zarr_conventions": declare(place), **render_place(geo, geo.grids[0])}
    if multiscales is not None:
        attributes["zarr_conventions"] = declare(["multiscales", *place])
        attributes["multiscales"] = dict(multiscales)
    documents: Documents = {"": Document(kind="group", attributes=attributes)}
    for level in geo.levels:
        # `proj` and `spatial` reach direct children only, so that every level says them again.
        attributes = {"zarr_conventions": declare(place), **render_place(geo, level)}
        documents[level.path] = Document(kind="group", attributes=attributes)
    return documents


def render_layout(geo: GeoModel) -> dict[str, Any]:
    """The `multiscales` object of a pyramid, as zarr-conventions has it.

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


def parse_resampling(stated: Mapping[str, Any], path: str, findings: list[Finding]) -> str | None:
    """The `resampling_method` of a `multiscales` object."""
    resampling = stated.get("resampling_method")
    if resampling is None:
        return None
    if isinstance(resampling, str) and resampling in RESAMPLING_METHODS:
        return resampling
    message = f"resampling_method is {resampling!r}; expected one of {', '.join(RESAMPLING_METHODS)}"
    findings.append(Finding("GZ-47", "error", path, message, RESAMPLING_METHODS, resampling))
    return None


def parse_layout(layout: Any, path: str, findings: list[Finding]) -> list[LevelEntry]:
    """The levels of a `layout`, in its order; `path` is the group's, for the findings."""
    if not isinstance(layout, list) or not layout:
        message = f"multiscales.layout is {layout!r}; expected a list of levels"
        findings.append(Finding("ZC-02", "error", path, message))
        return []
    entries: dict[str, LevelEntry] = {}
    for item in layout:
        asset = asset_path(item)
        if asset is None:
            message = f"layout item {item!r} has no relative path as its asset; it is left out"
            findings.append(Finding("ZC-02", "error", path, message))
            continue
        entries[asset] = _parse_item(item, asset, entries, path, findings)
    return list(entries.values())


def _parse_item(
    item: Mapping[str, Any],
    asset: str,
    entries: Mapping[str, LevelEntry],
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
    return LevelEntry(
        asset,
        affine=affine,
        shape=None if shape is None else (int(shape[0]), int(shape[1])),
        cell=None if cells is None else (float(cells[0]), float(cells[1])),
        scale=_scale(item, entries),
        resampling=item["resampling_method"] if isinstance(item.get("resampling_method"), str) else None,
    )


def asset_path(item: Any) -> str | None:
    """Where an item of a layout or a list of datasets is; None where it is no path below the group."""
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

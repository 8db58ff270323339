"""GeoZarr: one `multiscales` object that is the draft's, the mini spec's and zarr-conventions' at once.

Spec: GeoZarr draft 8.2; GeoZarr mini spec, "Multiscale Dataset"; zarr-conventions/multiscales v0.1.
Example: {"multiscales": {"layout": [{"asset": "0"}], "resampling_method": "average"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zstore.conventions.base import Document, Documents, Facts, Finding, GroupNode, Node, is_group
from zstore.conventions.levels import parse_levels
from zstore.conventions.model import RESAMPLING_METHODS, GeoModel, Level
from zstore.conventions.tiles import render_tiles
from zstore.conventions.zarr_conventions import declare, parse_place, render_place
from zstore.errors import MetadataError

__all__ = ["Geozarr"]


class Geozarr:
    """GeoZarr and the three zarr-conventions that it is made of now."""

    name = "geozarr"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels and resampling of a multiscale group; `proj:` and `spatial:` of any node."""
        facts = parse_place(node, parent)
        if not is_group(node):
            return facts
        findings = list(facts.findings)
        entries, tile_crs = parse_levels(node, findings)
        stated = node.attrs.get("multiscales")
        resampling = stated.get("resampling_method") if isinstance(stated, Mapping) else None
        if resampling is not None and resampling not in RESAMPLING_METHODS:
            message = f"resampling_method is {resampling!r}; expected one of {', '.join(RESAMPLING_METHODS)}"
            findings.append(Finding("GZ-47", "error", node.path, message, RESAMPLING_METHODS, resampling))
            resampling = None
        crs = facts.crs
        if tile_crs is not None:
            crs = (*crs, ("tile_matrix_set.crs", tile_crs))
        return replace(facts, crs=crs, levels=entries, resampling=resampling, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`zarr_conventions`, `proj:` and `spatial:` of every group, and `multiscales` of a pyramid's."""
        place = ["spatial"] if geo.crs is None else ["proj", "spatial"]
        base = geo.grids[0]
        attributes: dict[str, Any] = {"zarr_conventions": declare(place), **render_place(geo, base)}
        if not geo.levels:
            return {"": Document(kind="group", attributes=attributes)}
        attributes["zarr_conventions"] = declare(["multiscales", *place])
        attributes["multiscales"] = _render_multiscales(geo)
        documents: Documents = {"": Document(kind="group", attributes=attributes)}
        for level in geo.levels:
            # `proj` and `spatial` reach direct children only, so that every level says them again.
            attributes = {"zarr_conventions": declare(place), **render_place(geo, level)}
            documents[level.path] = Document(kind="group", attributes=attributes)
        return documents

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where `proj:`, `spatial:` or `multiscales` are malformed or contradict `geo`."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        for source, crs in facts.crs:
            if geo.crs is not None and not crs.is_same(geo.crs):
                message = f"{source} is {crs.code or crs.wkt[:60]!r}, the model's CRS another"
                findings.append(Finding("GZ-40", "error", node.path, message, geo.crs.wkt, crs.wkt))
        if not facts.levels or not is_group(node):
            return findings
        stated = node.attrs.get("multiscales")
        if isinstance(stated, Mapping):
            findings += _check_multiscales(stated, geo, node)
        return findings


def _render_multiscales(geo: GeoModel) -> dict[str, Any]:
    if geo.resampling is not None and geo.resampling not in RESAMPLING_METHODS:
        raise MetadataError(
            f"resampling method is {geo.resampling!r}; expected one of {', '.join(RESAMPLING_METHODS)}"
        )
    multiscales: dict[str, Any] = {}
    if geo.resampling is not None:
        multiscales["resampling_method"] = geo.resampling
    base = geo.levels[0]
    multiscales["layout"] = [_render_level(level, base, geo.resampling) for level in geo.levels]
    return multiscales | render_tiles(geo)


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


def _check_multiscales(stated: Mapping[str, Any], geo: GeoModel, node: Node) -> list[Finding]:
    findings = []
    if "resampling_method" not in stated:
        findings.append(Finding("GZ-37", "error", node.path, "multiscales has no resampling_method"))
    expected = render_tiles(geo)
    tile_matrix_set = stated.get("tile_matrix_set")
    if expected and isinstance(tile_matrix_set, Mapping):
        wanted = {matrix["id"]: matrix for matrix in expected["tile_matrix_set"]["tileMatrices"]}
        matrices = tile_matrix_set.get("tileMatrices")
        for matrix in matrices if isinstance(matrices, list) else ():
            if isinstance(matrix, Mapping) and matrix.get("id") in wanted:
                findings += _check_matrix(matrix, wanted[matrix["id"]], node)
    for rule, member in (("GZ-46", "tile_matrix_set_limits"), ("MS-18", "tile_matrix_limits")):
        found = stated.get(member)
        for path, limits in found.items() if isinstance(found, Mapping) else ():
            most = expected.get(member, {}).get(path)
            if most is not None and limits != most:
                message = f"{member} of level {path!r} are {limits!r}; its tiles are {most!r}"
                findings.append(Finding(rule, "error", node.path, message, most, limits))
    return findings


def _check_matrix(matrix: Mapping[str, Any], wanted: Mapping[str, Any], node: Node) -> list[Finding]:
    findings = []
    for rule, member in (
        ("GZ-44", "matrixWidth"),
        ("GZ-44", "matrixHeight"),
        ("GZ-41", "cellSize"),
        ("GZ-41", "pointOfOrigin"),
    ):
        found = matrix.get(member)
        if found != wanted[member]:
            message = f"{member} of tile matrix {matrix['id']!r} is {found!r}; expected {wanted[member]!r}"
            findings.append(Finding(rule, "error", node.path, message, wanted[member], found))
    return findings

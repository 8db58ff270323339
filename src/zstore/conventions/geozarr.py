"""GeoZarr: one `multiscales` object that is the draft's, the mini spec's and zarr-conventions' at once.

Spec: GeoZarr draft 8.2; GeoZarr mini spec, "Multiscale Dataset"; zarr-conventions/multiscales v0.1.
Example: {"multiscales": {"layout": [{"asset": "0"}], "resampling_method": "average"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from zstore.conventions.base import Documents, Facts, Finding, GroupNode, Node, check_crs, is_group
from zstore.conventions.layout import parse_layout, parse_resampling, render_groups, render_layout
from zstore.conventions.model import GeoModel
from zstore.conventions.reading.levels import join_levels
from zstore.conventions.tiles import parse_tile_matrix_set, render_tiles
from zstore.conventions.zarr_conventions import parse_place

__all__ = ["Geozarr"]


class Geozarr:
    """GeoZarr and the three zarr-conventions that it is made of now."""

    name = "geozarr"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels and resampling of a multiscale group; `proj:` and `spatial:` of any node."""
        facts = parse_place(node, parent)
        stated = node.attrs.get("multiscales") if is_group(node) else None
        if not is_group(node) or stated is None or isinstance(stated, (list, tuple)):
            return facts
        findings, crs = list(facts.findings), facts.crs
        if not isinstance(stated, Mapping):
            message = f"multiscales is {stated!r}; expected an object or a list"
            findings.append(Finding("GZ-37", "error", node.path, message, "object", stated))
            return replace(facts, findings=tuple(findings))
        if not {"layout", "tile_matrix_set", "datasets"} & set(stated):
            message = f"multiscales has the members {sorted(stated)}; expected layout or tile_matrix_set"
            findings.append(Finding("GZ-37", "error", node.path, message))
        tried = []
        if "layout" in stated:
            tried.append(parse_layout(stated["layout"], node.path, findings))
        if "tile_matrix_set" in stated:
            entries, tile_crs = parse_tile_matrix_set(stated, node, findings)
            tried.append(entries)
            crs = crs if tile_crs is None else (*crs, ("tile_matrix_set.crs", tile_crs))
        resampling = parse_resampling(stated, node.path, findings)
        levels = join_levels(tried)
        return replace(facts, crs=crs, levels=levels, resampling=resampling, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`zarr_conventions`, `proj:` and `spatial:` of every group, and `multiscales` of a pyramid's."""
        return render_groups(geo, render_layout(geo) | render_tiles(geo) if geo.levels else None)

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where `proj:`, `spatial:` or `multiscales` are malformed or contradict `geo`."""
        facts = self.parse(node, parent)
        return [*facts.findings, *check_crs(facts, node, geo, "GZ-40")]

"""Multiscale Arrays: a pyramid as a list of arrays, and ndpyramid's list of groups.

Spec: OGC Zarr 2.0 §4.5; Multiscale Arrays 0.1 (zarr-developers/zarr-specs#50); carbonplan's `pixels_per_tile`
and `crs` of a dataset.
Example: {"multiscales": [{"version": "0.1", "name": "b02", "datasets": [{"path": "0/b02"}]}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zstore.conventions.base import Document, Documents, Facts, Finding, GroupNode, Node, is_group
from zstore.conventions.crs import Crs
from zstore.conventions.lists.datasets import dataset_paths, is_ome, list_variables, parse_datasets
from zstore.conventions.model import RESAMPLING_METHODS, GeoModel, Level
from zstore.errors import MetadataError

__all__ = ["Multiscales"]

VERSION = "0.1"


class Multiscales:
    """Multiscale Arrays 0.1."""

    name = "multiscales"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels, CRS and resampling of a list of datasets, in whatever order it has them."""
        if not is_group(node):
            return Facts()
        stated = node.attrs.get("multiscales")
        if isinstance(stated, Mapping) and "datasets" in stated and "layout" not in stated:
            stated = [stated]
        if not isinstance(stated, (list, tuple)) or is_ome(stated):
            return Facts()
        findings: list[Finding] = []
        levels = parse_datasets(stated, node, findings)
        first = stated[0] if stated and isinstance(stated[0], Mapping) else {}
        resampling = first.get("type")
        is_known = isinstance(resampling, str) and resampling in RESAMPLING_METHODS
        return Facts(
            crs=_parse_crs(first, node, findings),
            levels=tuple(levels),
            resampling=resampling if is_known else None,
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The list, with one entry per array of data, the finest level first."""
        if not geo.levels:
            return {}
        items: list[dict[str, Any]] = []
        for name in list_variables(geo):
            item: dict[str, Any] = {"version": VERSION, "name": name}
            item["datasets"] = [
                _render_dataset(path, level, geo)
                for path, level in zip(dataset_paths(geo, name), geo.levels, strict=True)
            ]
            if geo.resampling is not None:
                factors = [[float(factor) for factor in level.factors] for level in geo.levels]
                item["type"] = geo.resampling
                item["metadata"] = {"method": geo.resampling, "args": [], "kwargs": {"factors": factors}}
            items.append(item)
        return {"": Document(kind="group", attributes={"multiscales": items})}

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where the list is malformed, or runs from the coarsest level to the finest."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        order = [level.path for level in geo.levels]
        stated = [entry.path for entry in facts.levels if entry.path in order]
        if stated != [path for path in order if path in stated]:
            message = f"datasets are {stated}; expected the finest first: {order}"
            findings.append(Finding("OC-10", "warning", node.path, message, order, stated))
        return findings


def _render_dataset(path: str, level: Level, geo: GeoModel) -> dict[str, Any]:
    dataset: dict[str, Any] = {"path": path}
    if level.tile_shape is not None and level.tile_shape[0] == level.tile_shape[1]:
        dataset["pixels_per_tile"] = level.tile_shape[0]
    if geo.crs is not None and geo.crs.code is not None:
        dataset["crs"] = geo.crs.code
    return dataset


def _parse_crs(first: Mapping[str, Any], node: Node, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    datasets = first.get("datasets")
    stated = first.get("crs")
    if stated is None and isinstance(datasets, (list, tuple)):
        stated = next((d["crs"] for d in datasets if isinstance(d, Mapping) and "crs" in d), None)
    if stated is None:
        return ()
    try:
        return (("multiscales.crs", Crs.from_user(stated)),)
    except MetadataError as error:
        findings.append(
            Finding("OC-10", "error", node.path, f"crs of a dataset: {error.message}", None, stated)
        )
        return ()

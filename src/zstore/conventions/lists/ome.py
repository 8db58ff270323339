"""OME-Zarr: a pyramid as images with axes and transformations.

Spec: OME-NGFF 0.5 ("multiscales" metadata, under `ome`); read as well: 0.4 and before, at the top level.
What is written counts from the raster's own corner, rows downwards and columns to the right, in the CRS's
unit: readers of OME-Zarr want positive steps. `translation` is the centre of the first cell.
Example: {"ome": {"version": "0.5", "multiscales": [{"name": "b02", "axes": [], "datasets": []}]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.conventions.base import Document, Documents, Facts, Finding, GroupNode, Node, is_group
from zstore.conventions.lists.datasets import dataset_paths, is_ome, list_variables, parse_datasets
from zstore.conventions.model import GeoModel, Level, Variable
from zstore.errors import MetadataError

__all__ = ["Ome"]

VERSION = "0.5"
MOST_AXES = 5
# In cells of the finest level.
TOLERANCE = 0.1
TYPES = {
    "time": "time",
    "t": "time",
    "band": "channel",
    "bands": "channel",
    "channel": "channel",
    "c": "channel",
}
UNITS = {"metre": "meter", "kilometre": "kilometer", "foot": "foot"}


class Ome:
    """OME-Zarr."""

    name = "ome"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The levels of `ome`, else of OME-Zarr's former list, with what their transformations come to."""
        if not is_group(node):
            return Facts()
        findings: list[Finding] = []
        ome, former = node.attrs.get("ome"), node.attrs.get("multiscales")
        stated = ome.get("multiscales") if isinstance(ome, Mapping) else former if is_ome(former) else None
        if not isinstance(stated, (list, tuple)):
            return Facts()
        return Facts(levels=tuple(parse_datasets(stated, node, findings)), findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`ome`, with one image per array of data; arrays that OME-Zarr has no axes for are not listed.

        Raises
            MetadataError: Zarr v2, or no array that OME-Zarr has axes for.
        """
        if not geo.levels:
            return {}
        if zarr_format != 3:
            raise MetadataError(f"OME-Zarr {VERSION} is written as Zarr v3; zarr_format is {zarr_format}")
        images = []
        for name, variable in list_variables(geo).items():
            axes = _axes(variable, geo)
            if axes is not None:
                datasets = [
                    _dataset(path, level, len(axes))
                    for path, level in zip(dataset_paths(geo, name), geo.levels, strict=True)
                ]
                image = {"name": name, "axes": axes, "datasets": datasets}
                images.append(image if geo.resampling is None else {**image, "type": geo.resampling})
        if not images:
            raise MetadataError(
                f"OME-Zarr {VERSION} wants two to five axes, time before bands before {geo.dimensions}; "
                f"none of {sorted(geo.variables)} is like that"
            )
        return {"": Document(kind="group", attributes={"ome": {"version": VERSION, "multiscales": images}})}

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where images have no list of datasets, or levels whose cells or corners do not agree."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        affines = {level.path: level.affine for level in geo.levels}
        base = next((entry.fallback_affine for entry in facts.levels if entry.fallback_affine), None)
        for entry in facts.levels:
            expected, found = affines.get(entry.path), entry.fallback_affine
            if expected is None or found is None or base is None:
                continue
            if not np.allclose(found.cell, expected.cell, rtol=1e-6):
                message = f"scale of {entry.path!r} comes to cells of {found.cell}; expected {expected.cell}"
                findings.append(Finding("OME", "error", node.path, message, expected.cell, found.cell))
            shift = max(abs(found.c - base.c) / base.cell[1], abs(found.f - base.f) / base.cell[0])
            if shift > TOLERANCE:
                message = f"translation of {entry.path!r} puts its corner {shift:.4g} cells off the finest's"
                findings.append(Finding("OME", "warning", node.path, message, base[2::3], found[2::3]))
        return findings


def _axes(variable: Variable, geo: GeoModel) -> list[dict[str, Any]] | None:
    names = variable.dimensions or geo.dimensions
    if not 2 <= len(names) <= MOST_AXES or tuple(names[-2:]) != geo.dimensions:
        return None
    axes: list[dict[str, Any]] = []
    for name in names[:-2]:
        is_time = geo.time is not None and name == geo.time.name
        kind = "time" if is_time else TYPES.get(name.lower())
        axes.append({"name": name} if kind is None else {"name": name, "type": kind})
    kinds = [axis.get("type", "channel") for axis in axes]
    if kinds not in ([], ["time"], ["channel"], ["time", "channel"]):
        return None
    unit = None if geo.crs is None or geo.affine is None else UNITS.get(geo.crs.unit_name)
    for name in geo.dimensions:
        axes.append({"name": name, "type": "space"} | ({} if unit is None else {"unit": unit}))
    return axes


def _dataset(path: str, level: Level, count: int) -> dict[str, Any]:
    # Without an affine, cells are counted in the finest level's.
    cell = level.factors if level.affine is None else level.affine.cell
    others = count - 2
    scale = [1.0] * others + [float(length) for length in cell]
    translation = [0.0] * others + [length / 2 for length in cell]
    return {
        "path": path,
        "coordinateTransformations": [
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": translation},
        ],
    }

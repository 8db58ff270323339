"""CF: coordinate variables, the grid mapping variable, and what the values of an array mean.

Spec: CF 1.11 §2.5 (missing data), §3.5 (flags), §4 (coordinates), §5.6 (grid mappings), §8.1 (packing).
Example: {"standard_name": "air_temperature", "units": "K", "grid_mapping": "spatial_ref"}
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zstore.conventions.base import (
    ArrayNode,
    Document,
    Documents,
    Facts,
    Finding,
    GroupNode,
    Node,
    check_crs,
    is_array,
)
from zstore.conventions.crs import Crs
from zstore.conventions.gdal import CRS_VARIABLE, parse_geotransform
from zstore.conventions.model import Affine, GeoModel, Level
from zstore.conventions.reading.axes import Axis, parse_axes
from zstore.conventions.variables import parse_variable, render_fill, render_variable
from zstore.errors import MetadataError

__all__ = ["CF_VERSION", "Cf"]

CF_VERSION = "CF-1.11"
# Longer rows and columns have no coordinate variables: the affine says the same in six numbers.
COORDINATE_LIMIT = 1 << 22


class Cf:
    """The Climate and Forecast conventions."""

    name = "cf"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """CRS of the grid mapping variable, affine of the coordinates, and the array's own attributes.

        Of the grid mapping: `crs_wkt`, then `spatial_ref`, then the parameters; and its `GeoTransform`.
        """
        if not is_array(node):
            return Facts()
        siblings = (
            {} if parent is None else {name: child for name, child in parent.members() if is_array(child)}
        )
        mapping_name, findings = _mapping_name(node, parent, siblings)
        variable, found = parse_variable(node, mapping_name)
        findings += found
        crs: list[tuple[str, Crs]] = []
        affines: list[tuple[str, Affine]] = []
        if mapping_name is not None:
            mapping = siblings[mapping_name]
            crs = _parse_mapping(mapping, findings)
            if "GeoTransform" in mapping.attrs:
                try:
                    affine = parse_geotransform(mapping.attrs["GeoTransform"])
                    affines.append((f"{mapping_name}.GeoTransform", affine))
                except MetadataError as error:
                    findings.append(Finding("GZ-28", "error", mapping.path, error.message))
        axes = parse_axes(node, siblings, crs[0][1] if crs else None, findings)
        dimensions = None if axes is None else (axes[0].name, axes[1].name)
        return Facts(
            crs=tuple(crs),
            affines=tuple(affines),
            coordinate_affine=None if axes is None else _coordinate_affine(*axes),
            dimensions=dimensions,
            variable=variable,
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`Conventions`, every array's attributes, and for every grid its coordinates and `spatial_ref`."""
        documents: Documents = {"": Document(kind="group", attributes={"Conventions": CF_VERSION})}
        for grid in geo.grids:
            prefix = f"{grid.path}/" if grid.path else ""
            documents[grid.path] = Document(kind="group", attributes={"Conventions": CF_VERSION})
            for name, variable in geo.variables.items():
                attributes = render_variable(variable, zarr_format)
                if geo.crs is not None:
                    # Without this, xarray reads `spatial_ref` as data, and rioxarray finds no CRS.
                    listed = [CRS_VARIABLE, *str(attributes.get("coordinates", "")).split()]
                    attributes |= {"grid_mapping": CRS_VARIABLE, "coordinates": " ".join(listed)}
                documents[prefix + name] = Document(
                    kind="array",
                    attributes=attributes,
                    dimension_names=variable.dimensions or geo.dimensions,
                    fill_value=render_fill(variable, zarr_format),
                )
            documents |= {prefix + name: made for name, made in _render_coordinates(geo, grid).items()}
            if geo.crs is not None:
                attributes = {"long_name": "coordinate reference system", "crs_wkt": geo.crs.wkt}
                documents[prefix + CRS_VARIABLE] = Document(
                    kind="array",
                    attributes={**geo.crs.cf, **attributes},
                    dimension_names=(),
                    data=np.zeros((), np.int32),
                    fill_value=None if zarr_format == 2 else 0,
                )
        return documents

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where an array has no grid mapping, or its CRS or coordinates are not those of `geo`."""
        if not is_array(node):
            return []
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        if geo.crs is not None and not facts.crs and len(node.shape) >= 2:
            findings.append(Finding("MS-05", "error", node.path, "no grid_mapping that gives a CRS"))
        findings += check_crs(facts, node, geo, "OC-08")
        if parent is not None and facts.dimensions is not None:
            children = dict(parent.members())
            for name, axis in zip(facts.dimensions, ("Y", "X"), strict=True):
                if is_array(children.get(name)):
                    findings += _check_coordinate(children[name], _coordinate_attributes(geo.crs, axis))
        return findings


def _check_coordinate(node: ArrayNode, expected: dict[str, str]) -> list[Finding]:
    findings = []
    for rule, name in (("MS-07", "standard_name"), ("MS-08", "units")):
        found = node.attrs.get(name)
        if name in expected and found != expected[name]:
            message = f"{name} is {found!r}; expected {expected[name]!r} under this CRS"
            findings.append(Finding(rule, "warning", node.path, message, expected[name], found))
    return findings


def _coordinate_attributes(crs: Crs | None, axis: str) -> dict[str, str]:
    is_x = axis == "X"
    if crs is None:
        return {"long_name": f"{axis.lower()} coordinate", "axis": axis}
    if crs.cf.get("grid_mapping_name") == "rotated_latitude_longitude":
        name = "grid_longitude" if is_x else "grid_latitude"
        return {"standard_name": name, "long_name": name.replace("_", " "), "units": "degrees", "axis": axis}
    if crs.is_geographic:
        name, units = ("longitude", "degrees_east") if is_x else ("latitude", "degrees_north")
        units = units if crs.unit_name == "degree" else crs.units
        return {"standard_name": name, "long_name": name, "units": units, "axis": axis}
    return {
        "standard_name": f"projection_{axis.lower()}_coordinate",
        "long_name": f"{axis.lower()} coordinate of projection",
        "units": crs.units,
        "axis": axis,
    }


def _render_coordinates(geo: GeoModel, grid: Level) -> Documents:
    if grid.affine is None or max(grid.shape) > COORDINATE_LIMIT:
        return {}
    centres = grid.affine.coordinates(grid.shape)
    if centres is None:
        return {}
    return {
        name: Document(
            kind="array",
            attributes=dict(_coordinate_attributes(geo.crs, axis)),
            dimension_names=(name,),
            data=values,
            fill_value=float("nan"),
        )
        for name, axis, values in zip(geo.dimensions, ("Y", "X"), centres, strict=True)
    }


def _coordinate_affine(y: Axis, x: Axis) -> Affine | None:
    if y.step is None or x.step is None or y.first is None or x.first is None:
        return None
    return Affine(x.step, 0.0, x.first - x.step / 2, 0.0, y.step, y.first - y.step / 2)


def _mapping_name(
    node: ArrayNode, parent: GroupNode | None, siblings: dict[str, Any]
) -> tuple[str | None, list[Finding]]:
    stated = node.attrs.get("grid_mapping")
    if stated is None and parent is not None:
        stated = parent.attrs.get("grid_mapping")
    if isinstance(stated, str) and stated.split():
        # CF's longer form names the coordinates too: "crs: x y other: lat lon".
        name = stated.split()[0].rstrip(":")
        if name in siblings:
            return name, []
        message = f"grid_mapping is {stated!r}; expected the name of an array beside this one"
        return None, [Finding("GZ-15", "error", node.path, message, sorted(siblings), stated)]
    if stated is not None:
        message = f"grid_mapping is {stated!r}; expected the name of an array"
        return None, [Finding("GZ-15", "error", node.path, message, "a name", stated)]
    for name in (CRS_VARIABLE, "crs"):
        if name in siblings and siblings[name].shape == () and len(node.shape) >= 2:
            message = f"no grid_mapping; the array {name!r} beside this one is taken for it"
            return name, [Finding("MS-05", "warning", node.path, message, name, None)]
    return None, []


def _parse_mapping(mapping: ArrayNode, findings: list[Finding]) -> list[tuple[str, Crs]]:
    name = mapping.path.rpartition("/")[2]
    found: list[tuple[str, Crs]] = []
    for member in ("crs_wkt", "spatial_ref"):
        if member in mapping.attrs:
            try:
                found.append((f"{name}.{member}", Crs.from_user(mapping.attrs[member])))
            except MetadataError as error:
                findings.append(Finding("OC-05", "error", mapping.path, f"{member}: {error.message}"))
    parameters = {key: value for key, value in mapping.attrs.items() if key not in ("crs_wkt", "spatial_ref")}
    if "grid_mapping_name" in parameters and not found:
        try:
            found.append((f"{name}.grid_mapping_name", Crs.from_cf(parameters)))
        except MetadataError as error:
            findings.append(Finding("OC-05", "error", mapping.path, f"parameters: {error.message}"))
    if found:
        findings += _check_parameters(mapping, found[0][1])
    return found


def _check_parameters(mapping: ArrayNode, crs: Crs) -> list[Finding]:
    findings = []
    for key, expected in crs.cf.items():
        stated = mapping.attrs.get(key)
        if not isinstance(expected, (int, float)) or not isinstance(stated, (int, float)):
            continue
        if not np.isclose(stated, expected, rtol=1e-9, atol=1e-9):
            message = f"{key} is {stated!r}, but the CRS's WKT says {expected!r}; the WKT counts"
            findings.append(Finding("OC-05", "error", mapping.path, message, expected, stated))
    return findings

"""GDAL's own attributes: `_CRS` and `AREA_OR_POINT`; `GeoTransform` and `spatial_ref` on the CRS's variable.

Spec: OGC Zarr 2.0 §4.4.2; GDAL's Zarr driver, "SRS encoding"; GDAL's netCDF driver, "Georeference".
Example: {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32632"}, "AREA_OR_POINT": "Area"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zstore.errors import MetadataError
from zstore.geo.conventions.base import (
    Affine,
    ArrayNode,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GeoModel,
    GroupNode,
    Node,
    Variable,
    is_array,
    parse_crs,
)
from zstore.geo.conventions.crs import Crs
from zstore.storage.base import join_key

CRS_VARIABLE = "spatial_ref"


def parse_geotransform(value: Any) -> Affine:
    """The affine of a `GeoTransform` attribute: six numbers, or a string of them, in GDAL's order.

    Raises
        MetadataError: it is not that.
    """
    numbers = value
    if isinstance(value, str):
        try:
            numbers = [float(word) for word in value.replace(",", " ").split()]
        except ValueError as error:
            raise MetadataError(f"GeoTransform is {value!r}; expected six numbers") from error
    if not isinstance(numbers, (list, tuple)):
        raise MetadataError(f"GeoTransform is {value!r}; expected six numbers")
    return Affine.from_geotransform(numbers)


def stated_geotransform(node: Node, prefix: str, findings: list[Finding]) -> tuple[tuple[str, Affine], ...]:
    """((source, affine),) of a node's `GeoTransform`; () without, and with a finding where it is none."""
    if "GeoTransform" in node.attrs:
        try:
            return ((f"{prefix}GeoTransform", parse_geotransform(node.attrs["GeoTransform"])),)
        except MetadataError as error:
            findings.append(Finding("GZ-28", "error", node.path, error.message))
    return ()


def render_geotransform(affine: Affine) -> str:
    """The `GeoTransform` attribute of an affine: six numbers in GDAL's order, with all their digits."""
    return " ".join(repr(float(number)) for number in affine.geotransform)


def is_fill_nodata(variable: Variable, zarr_format: int) -> bool:
    """Whether GDAL takes an array's fill value for nodata, although the array has none.

    Zarr v3 wants a fill value of every array, and nothing tells GDAL that it means no more than that.
    """
    is_number = variable.dtype is not None and variable.dtype.kind in "iufc"
    return zarr_format == 3 and variable.nodata is None and is_number


class Gdal(Convention):
    """GDAL's own attributes of arrays and of their CRS variable."""

    name = "gdal"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """CRS of `_CRS` (url, then wkt, then projjson), then of `spatial_ref`; `GeoTransform`."""
        findings: list[Finding] = []
        if not is_array(node):
            if "_CRS" in node.attrs:
                message = "_CRS is on a group, where GDAL does not look; expected it on the arrays"
                findings.append(Finding("OC-06", "warning", node.path, message))
            return Facts(findings=tuple(findings))
        crs = _parse_crs(node, findings)
        affines = stated_geotransform(node, "", findings)
        area_or_point = node.attrs.get("AREA_OR_POINT")
        if area_or_point not in (None, "Area", "Point"):
            message = f"AREA_OR_POINT is {area_or_point!r}; expected 'Area' or 'Point'; it is not used"
            findings.append(Finding("GZ-28", "error", node.path, message, "Area or Point", area_or_point))
            area_or_point = None
        variable = Variable(area_or_point=area_or_point)
        return Facts(crs=crs, affines=affines, variable=variable, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`_CRS` and `AREA_OR_POINT` of every array of data, `GeoTransform` of every level's CRS variable."""
        documents: Documents = {}
        for grid in geo.grids:
            for name, variable in geo.variables.items():
                attributes: dict[str, Any] = {}
                if geo.crs is not None:
                    attributes["_CRS"] = _render_crs(geo.crs)
                if variable.area_or_point is not None:
                    attributes["AREA_OR_POINT"] = variable.area_or_point
                documents[join_key(grid.path, name)] = Document(attributes=attributes)
            if geo.crs is not None:
                mapping = {"spatial_ref": geo.crs.wkt}
                if grid.affine is not None:
                    mapping["GeoTransform"] = render_geotransform(grid.affine)
                documents[join_key(grid.path, CRS_VARIABLE)] = Document(attributes=dict(mapping))
        return documents

    def dialects(self, node: Node) -> Iterator[str]:
        """The attributes of an array that only GDAL has."""
        if is_array(node):
            yield from (f"GDAL {name}" for name in ("_CRS", "GeoTransform") if name in node.attrs)


def _render_crs(crs: Crs) -> dict[str, Any]:
    document: dict[str, Any] = {"wkt": crs.wkt, "projjson": dict(crs.projjson)}
    return {"url": crs.url, **document} if crs.url else document


def _parse_crs(node: ArrayNode, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    found: list[tuple[str, Crs]] = []
    stated = node.attrs.get("_CRS")
    if isinstance(stated, Mapping):
        if not {"url", "wkt", "projjson"} & set(stated):
            message = f"_CRS has the members {sorted(stated)}; expected url, wkt or projjson"
            findings.append(Finding("OC-06", "error", node.path, message))
        for member in ("url", "wkt", "projjson"):
            if stated.get(member) is not None:
                found += parse_crs(f"_CRS.{member}", stated[member], "OC-07", node.path, findings)
    elif stated is not None:
        message = f"_CRS is {stated!r}; expected an object with url, wkt or projjson; it is not used"
        findings.append(Finding("OC-06", "error", node.path, message, "object", stated))
    if "spatial_ref" in node.attrs:
        found += parse_crs("spatial_ref", node.attrs["spatial_ref"], "GZ-28", node.path, findings)
    return tuple(found)

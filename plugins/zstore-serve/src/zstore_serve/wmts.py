"""What a WMTS says of itself: its layers, their times and other dimensions, and how tiles are asked for.

Spec: OGC Web Map Tile Service 1.0.0 (07-057r7), by resources (REST) and by keys and values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from zstore.integrations.rasters.classes import UNSPEAKABLE
from zstore_serve.drawing import FORMATS
from zstore_serve.scenes import Scene
from zstore_serve.tilings import WEB, set_names, tile_set

__all__ = ["PICTURES", "STYLE", "capabilities"]

SPACES = {
    "": "http://www.opengis.net/wmts/1.0", "ows": "http://www.opengis.net/ows/1.1",
    "xlink": "http://www.w3.org/1999/xlink",
}  # fmt: skip
PICTURES = ("png", "jpg", "webp")
# The one style; parameters of the address draw otherwise.
STYLE = "default"
# So many items of a dimension are named one by one.
MOST_VALUES = 500


def capabilities(base: str, scenes: Mapping[str, Scene]) -> bytes:
    """The capabilities of what is served at `base`, but for scenes without a place on the ground."""
    root = ElementTree.Element(_name("Capabilities"), {"version": "1.0.0"})
    about = _add(root, "ows:ServiceIdentification")
    for name, text in (
        ("Title", "zstore serve"),
        ("ServiceType", "OGC WMTS"),
        ("ServiceTypeVersion", "1.0.0"),
    ):
        _add(about, f"ows:{name}", text)
    operations = _add(root, "ows:OperationsMetadata")
    for operation in ("GetCapabilities", "GetTile"):
        one = _add(operations, "ows:Operation", name=operation)
        got = _add(_add(_add(one, "ows:DCP"), "ows:HTTP"), "ows:Get", **{"xlink:href": f"{base}/wmts?"})
        values = _add(_add(got, "ows:Constraint", name="GetEncoding"), "ows:AllowedValues")
        _add(values, "ows:Value", "KVP")
    contents = _add(root, "Contents")
    names = sorted(set_names(), key=lambda name: (name != WEB, name))
    for scene in scenes.values():
        box = scene.longitudes()
        if box is not None:
            _add_layer(contents, base, scene, box, names)
    for name in names:
        _add_set(contents, name)
    _add(root, "ServiceMetadataURL", **{"xlink:href": f"{base}/wmts/1.0.0/WMTSCapabilities.xml"})
    for prefix, uri in SPACES.items():
        ElementTree.register_namespace(prefix, uri)
    found: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return found


def _add_layer(
    contents: ElementTree.Element, base: str, scene: Scene, box: tuple[float, ...], names: list[str]
) -> None:
    layer = _add(contents, "Layer")
    _add(layer, "ows:Title", scene.title)
    west, south, east, north = box if box[2] <= 180 else (-180.0, box[1], 180.0, box[3])
    bounds = _add(layer, "ows:WGS84BoundingBox")
    _add(bounds, "ows:LowerCorner", f"{west!r} {south!r}")
    _add(bounds, "ows:UpperCorner", f"{east!r} {north!r}")
    _add(layer, "ows:Identifier", scene.id)
    _add(_add(layer, "Style", isDefault="true"), "ows:Identifier", STYLE)
    for format in PICTURES:
        _add(layer, "Format", FORMATS[format])
    template = (
        f"{base}/wmts/1.0.0/{scene.id}/{STYLE}/{{TileMatrixSet}}/{{TileMatrix}}/{{TileRow}}/{{TileCol}}"
    )
    shown = next(iter(scene.bands.values()))
    asked = []
    for axis in scene.axes_of(shown):
        if not axis.size or not re.fullmatch(r"[A-Za-z0-9_.-]+", axis.name):
            continue
        are_names = len(set(axis.labels)) == axis.size and all(label == _said(label) for label in axis.labels)
        values = axis.labels if are_names else [f"@{n}" for n in range(axis.size)]
        one = _add(layer, "Dimension")
        _add(one, "ows:Identifier", axis.name)
        _add(one, "Default", values[0])
        for value in values[:MOST_VALUES]:
            _add(one, "Value", value)
        asked.append(f"{axis.name}={{{axis.name}}}")
    for name in names:
        _add(_add(layer, "TileMatrixSetLink"), "TileMatrixSet", name)
    query = f"?{'&'.join(asked)}" if asked else ""
    for format in PICTURES:
        words = {"format": FORMATS[format], "resourceType": "tile", "template": f"{template}.{format}{query}"}
        _add(layer, "ResourceURL", **words)


def _add_set(contents: ElementTree.Element, name: str) -> None:
    known = tile_set(name)
    corners = {matrix["id"]: matrix["pointOfOrigin"] for matrix in known.document["tileMatrices"]}
    one = _add(contents, "TileMatrixSet")
    _add(one, "ows:Identifier", name)
    _add(one, "ows:SupportedCRS", _urn(known.crs))
    if name == WEB:
        _add(one, "WellKnownScaleSet", "urn:ogc:def:wkss:OGC:1.0:GoogleMapsCompatible")
    for id, matrix in known.tile_matrices.items():
        (rows, columns), (height, width) = matrix.matrix_shape, matrix.tile_shape
        line = _add(one, "TileMatrix")
        _add(line, "ows:Identifier", id)
        # In the order of the CRS's axes, as the set's own document has it.
        _add(line, "ScaleDenominator", repr(float(matrix.scale_denominator)))
        _add(line, "TopLeftCorner", " ".join(repr(float(number)) for number in corners[id]))
        for word, number in (
            ("TileWidth", width), ("TileHeight", height), ("MatrixWidth", columns), ("MatrixHeight", rows),
        ):  # fmt: skip
            _add(line, word, str(number))


def _urn(crs: str) -> str:
    found = re.fullmatch(r"https?://www\.opengis\.net/def/crs/([^/]+)/([^/]+)/([^/]+)", str(crs))
    if found is None:
        return str(crs)
    authority, version, code = found.groups()
    return f"urn:ogc:def:crs:{authority}:{'' if version == '0' else version}:{code}"


def _name(name: str) -> str:
    prefix, _, local = name.rpartition(":")
    return f"{{{SPACES[prefix]}}}{local}"


def _add(parent: ElementTree.Element, name: str, text: str = "", /, **attributes: str) -> ElementTree.Element:
    named = {_name(key) if ":" in key else key: value for key, value in attributes.items()}
    made = ElementTree.SubElement(parent, _name(name), named)
    made.text = _said(text) or None
    return made


def _said(text: str) -> str:
    """A text with a mark for each character that XML has no place for."""
    return UNSPEAKABLE.sub("\ufffd", text)

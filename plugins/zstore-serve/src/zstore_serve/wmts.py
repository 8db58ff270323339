"""The capabilities document of the WMTS: its layers, their dimensions, and the addresses of tiles.

Spec: OGC Web Map Tile Service 1.0.0 (07-057r7), by resources (REST) and by keys and values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from zstore_serve.drawing import FORMATS
from zstore_serve.scenes import Scene
from zstore_serve.tilings import WEB, load_set, set_names

__all__ = ["PICTURES", "STYLE", "render_capabilities"]

# The characters that XML cannot hold.
UNSPEAKABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NAMESPACES = {
    "": "http://www.opengis.net/wmts/1.0", "ows": "http://www.opengis.net/ows/1.1",
    "xlink": "http://www.w3.org/1999/xlink",
}  # fmt: skip
PICTURES = ("png", "jpg", "webp")
# The only style; parameters of the address change how a tile is drawn.
STYLE = "default"
# The most items of a dimension that are listed.
MOST_VALUES = 500


def render_capabilities(base: str, scenes: Mapping[str, Scene]) -> bytes:
    """The capabilities of a service at `base`; scenes without a place on the ground are left out."""
    root = ElementTree.Element(_qualified_name("Capabilities"), {"version": "1.0.0"})
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
        box = scene.geographic_bounds()
        if box is not None:
            _add_layer(contents, base, scene, box, names)
    for name in names:
        _add_set(contents, name)
    _add(root, "ServiceMetadataURL", **{"xlink:href": f"{base}/wmts/1.0.0/WMTSCapabilities.xml"})
    for prefix, uri in NAMESPACES.items():
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
    for axis in scene.dimensions_of(shown):
        if not axis.size or not re.fullmatch(r"[A-Za-z0-9_.-]+", axis.name):
            continue
        are_names = len(set(axis.labels)) == axis.size and all(
            label == _xml_text(label) for label in axis.labels
        )
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
    known = load_set(name)
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
        # Corners have the order of the CRS's axes, as in the set's own document.
        _add(line, "ScaleDenominator", repr(float(matrix.scale_denominator)))
        _add(line, "TopLeftCorner", " ".join(repr(float(number)) for number in corners[id]))
        for word, number in (
            ("TileWidth", width), ("TileHeight", height), ("MatrixWidth", columns), ("MatrixHeight", rows),
        ):  # fmt: skip
            _add(line, word, str(number))


def _urn(crs: str) -> str:
    """A CRS's web address as the URN that WMTS has for it."""
    found = re.fullmatch(r"https?://www\.opengis\.net/def/crs/([^/]+)/([^/]+)/([^/]+)", str(crs))
    if found is None:
        return str(crs)
    authority, version, code = found.groups()
    return f"urn:ogc:def:crs:{authority}:{'' if version == '0' else version}:{code}"


def _qualified_name(name: str) -> str:
    prefix, _, local = name.rpartition(":")
    return f"{{{NAMESPACES[prefix]}}}{local}"


def _add(parent: ElementTree.Element, name: str, text: str = "", /, **attributes: str) -> ElementTree.Element:
    named = {_qualified_name(key) if ":" in key else key: value for key, value in attributes.items()}
    made = ElementTree.SubElement(parent, _qualified_name(name), named)
    made.text = _xml_text(text) or None
    return made


def _xml_text(text: str) -> str:
    """A text with U+FFFD for each character that XML does not allow."""
    return UNSPEAKABLE.sub("\ufffd", text)

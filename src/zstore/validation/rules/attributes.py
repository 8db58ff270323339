"""Rules about attributes as such: their text, their types, what they link to."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from zstore.conventions.meaning import Roles
from zstore.model import v2
from zstore.validation.rule import Found, rule
from zstore.validation.view import Hierarchy, NodeView

__all__ = ["walk"]

# RFC 3986: unreserved, reserved, and "%" only before two hexadecimal digits.
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")
LINK_NAMES = ("href", "uri", "url", "crs", "schema_url", "spec_url")
STANDARD_SPELLINGS = {
    name.lower().replace("_", ""): name
    for name in (
        "_FillValue", "missing_value", "scale_factor", "add_offset", "standard_name", "long_name", "units",
        "grid_mapping", "GeoTransform", "spatial_ref", "crs_wkt", "AREA_OR_POINT", "_CRS", "Conventions",
        "multiscales", "zarr_conventions", "coordinates", "calendar", "valid_range", "flag_values",
        "flag_meanings", "flag_masks", "axis",
    )
}  # fmt: skip
NAMED_BASE64 = ("_FillValue", "missing_value")
CONVENTIONS = re.compile(r"CF-\d+\.\d+")


def walk(value: Any, place: str = "") -> Iterator[tuple[str, str, Any]]:
    """(place, name, value) of everything in a JSON value, itself first; not deeper than Python goes."""
    waiting = [(place, place.rpartition(".")[2], value)]
    while waiting:
        where, name, found = waiting.pop()
        yield where, name, found
        if isinstance(found, dict):
            waiting += [(f"{where}.{key}" if where else key, key, item) for key, item in found.items()]
        elif isinstance(found, list):
            waiting += [(f"{where}[{place}]", name, item) for place, item in enumerate(found)]


def _attributes(hierarchy: Hierarchy) -> Iterator[tuple[NodeView, str, str, Any]]:
    for node in hierarchy.nodes:
        for place, name, value in walk(dict(node.stored)):
            yield node, place, name, value


def _links(hierarchy: Hierarchy) -> Iterator[tuple[NodeView, str, str]]:
    for node, place, name, value in _attributes(hierarchy):
        is_set = name == "tile_matrix_set" or (name == "crs" and "tile_matrix_set" in place)
        if isinstance(value, str) and (name in LINK_NAMES or is_set) and "://" in value:
            yield node, place, value


@rule("GZ-02", "error", "core", "draft 5.4", "URIs are those of RFC 3986, reserved characters escaped.",
      "escape the characters (a blank is %20)")  # fmt: skip
def check_uris(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, link in _links(hierarchy):
        if not URI.fullmatch(link):
            yield Found(node, f"{place} is {link!r}, which is no URI", "RFC 3986", link)


@rule("GZ-03", "warning", "core", "draft 5.4", "URIs are persistent, and lead everybody to the same place.",
      "use a URI of http://www.opengis.net/def/, or another public one")  # fmt: skip
def check_persistent_uris(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, link in _links(hierarchy):
        scheme, _, rest = link.partition("://")
        host = rest.partition("/")[0].partition(":")[0]
        if scheme.lower() not in ("http", "https") or host in ("localhost", "127.0.0.1", ""):
            yield Found(node, f"{place} is {link!r}", "a public http or https URI", link)


@rule("GZ-17", "error", "core", "draft 8.1.5, table 6",
      "A group of data names the version of CF it follows in `Conventions`.",
      'set Conventions to "CF-1.11"')  # fmt: skip
def check_conventions(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = group.attrs.get("Conventions")
        if found is None:
            if _is_described(hierarchy.roles(group)):
                yield Found(group, "there is no Conventions", "CF-1.11", None, "warning")
        elif not isinstance(found, str):
            yield Found(group, f"Conventions is {found!r}", "a string such as CF-1.11", found)
        elif not CONVENTIONS.search(found):
            message = f"Conventions is {found!r}, which names no version of CF"
            yield Found(group, message, "CF-1.11", found, "warning")


def _is_described(found: Roles) -> bool:
    """Whether the arrays use CF at all."""
    used = ("standard_name", "grid_mapping", "units", "coordinates")
    arrays = [*found.data.values(), *found.coordinates.values()]
    return bool(found.data) and any(name in array.attrs for array in arrays for name in used)


@rule("GZ-20", "error", "core", "draft 8.1.6", "Documents are UTF-8, without halves of characters.",
      "encode the document as UTF-8")  # fmt: skip
def check_text(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        for key, data in node.raw.items():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                yield Found(node, f"{key}: byte {error.start} is not UTF-8", "UTF-8")
    for node, place, name, value in _attributes(hierarchy):
        for text in (name, value):
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                yield Found(node, f"{place!a} has half of a surrogate pair", None, ascii(text))
                break


@rule("GZ-21", "error", "core", "draft 8.1.6",
      "Attributes are JSON: strings, finite numbers, booleans, arrays, objects.",
      'leave the attribute out, or write "NaN" as a string')  # fmt: skip
def check_json(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        for key, document in node.documents.items():
            if key == v2.CONSOLIDATED_KEY or not isinstance(document, dict):
                continue
            own = {name: value for name, value in document.items() if name != "consolidated_metadata"}
            for place, _, value in walk(own):
                if isinstance(value, float) and not math.isfinite(value):
                    message = f"{place} is {value}, which JSON has no number for"
                    yield Found(node, message, None, str(value))
    for node, place, _, value in _attributes(hierarchy):
        if value is None:
            yield Found(node, f"{place} is null", "no attribute", None, "warning")


@rule("GZ-23", "warning", "core", "draft 8.1.6", "Attributes are spelt as the conventions spell them.",
      "rename the attribute")  # fmt: skip
def check_spelling(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        for name in node.stored:
            right = STANDARD_SPELLINGS.get(name.lower().replace("_", ""))
            if right is not None and name != right:
                yield Found(node, f"attribute {name!r} is spelt unlike {right!r}", right, name)


@rule("GZ-24", "warning", "core", "draft 8.1.6",
      "Structured metadata are objects, not JSON text in a string.", "write the object itself")  # fmt: skip
def check_json_text(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, _, value in _attributes(hierarchy):
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") and _is_json(value):
            yield Found(node, f"{place} is JSON in a string", "an object or an array", value[:80])


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


@rule("GZ-25", "error", "core", "draft 8.1.6", "Serialised blocks are text that its name or form identifies.",
      "write the block as text or as an object", general="warning")  # fmt: skip
def check_blocks(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, name, value in _attributes(hierarchy):
        if name not in NAMED_BASE64 and isinstance(value, str) and _is_blob(value):
            yield Found(node, f"{place} is base64 of {len(value)} characters", "text", value[:40])


def _is_blob(text: str) -> bool:
    # Words, hashes and identifiers of that length lack one of these kinds of characters.
    kinds = (str.islower, str.isupper, str.isdigit)
    if len(text) < 40 or len(text) % 4 or not all(any(map(kind, text)) for kind in kinds):
        return False
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


@rule("GZ-27", "note", "core", "draft 8.1.7", "Dimensions grow by resizing; no attribute is needed.",
      "leave `resizeable` out: nothing reads it")  # fmt: skip
def check_resizeable(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        if "resizeable" in node.stored:
            yield Found(node, "resizeable is set, which no reader knows", None, node.stored["resizeable"])

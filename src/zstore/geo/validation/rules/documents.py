"""Rules about documents and attributes as such: their text, types and links; and about unfinished work."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from zstore.engine.layout import bind_layout
from zstore.errors import ExtensionError, ZstoreError
from zstore.geo.conventions.meaning import Roles
from zstore.geo.validation.rule import Found, Rule
from zstore.geo.validation.view import ArrayView, GroupView, Hierarchy, NodeView, consolidated_documents
from zstore.model import v2, v3
from zstore.storage.base import join_key

V3_MEMBERS = {"group": v3.GROUP_MEMBERS, "array": v3.ARRAY_MEMBERS}
V2_MEMBERS = {v2.ARRAY_KEY: v2.ARRAY_MEMBERS, v2.GROUP_KEY: frozenset(("zarr_format",))}
NCZARR_KEYS = (".nczarray", ".nczattr", ".nczgroup", ".nczvar", ".nczar")
MOST_LOOKUPS = 500


def implicit_groups(hierarchy: Hierarchy) -> Iterator[tuple[GroupView, str]]:
    """(a group, a name in it) of every directory that holds nodes but is none; "" is the group itself."""
    root = hierarchy.root
    if root.zarr_format == 1:
        return
    if isinstance(root, GroupView) and not root.raw and root.children:
        yield root, ""
    for group in hierarchy.groups:
        for name in group.strays:
            if _holds_nodes(group, join_key(group.path, name), 3):
                yield group, name


def _holds_nodes(group: GroupView, path: str, depth: int) -> bool:
    names = set(group.store.list_children(path)) if not path.rpartition("/")[2].startswith(".") else set()
    if names & {v3.KEY, v2.ARRAY_KEY, v2.GROUP_KEY}:
        return True
    below = sorted(name for name in names if not name.startswith("."))[:20]
    return depth > 0 and any(_holds_nodes(group, join_key(path, name), depth - 1) for name in below)


@Rule("GZ-04", "error", "core", "draft 8.1.1", "The root is a group, and so is everything that holds a node.",
      "write a group document there", general="warning")  # fmt: skip
def check_groups(hierarchy: Hierarchy) -> Iterator[Found]:
    for group, name in implicit_groups(hierarchy):
        message = f"{name or '/'!r} holds arrays or groups but is no group itself"
        yield Found(group, message, v3.KEY if group.zarr_format == 3 else v2.GROUP_KEY, None)
    if isinstance(hierarchy.root, GroupView) and hierarchy.root.zarr_format == 1:
        message = "arrays of Zarr v1, which has no groups: zstore convert makes them members of one"
        yield Found(hierarchy.root, message, "a group", None, "note")
    if isinstance(hierarchy.root, ArrayView) and not hierarchy.root.path:
        yield Found(hierarchy.root, "the root is an array", "a group", "an array", "note")


@Rule("GZ-05", "error", "core", "draft 8.1.1, table 2", "Attributes of Zarr v2 are a JSON object in .zattrs.",
      "make .zattrs a JSON object", each="nodes")  # fmt: skip
def check_v2_attributes(node: NodeView) -> Iterator[Found]:
    found = node.documents.get(v2.ATTRIBUTES_KEY, {}) if node.zarr_format == 2 else {}
    if not isinstance(found, dict):
        yield Found(node, f".zattrs holds a {type(found).__name__}", "an object", found)


@Rule("GZ-06", "error", "core", "draft 8.1.1",
      "A Zarr v3 node says zarr_format 3 and node_type group or array.",
      "correct the two members", each="nodes")  # fmt: skip
def check_v3_head(node: NodeView) -> Iterator[Found]:
    if v3.KEY not in node.documents:
        return
    for name, expected in (("zarr_format", (3,)), ("node_type", ("group", "array"))):
        found = node.document.get(name)
        if type(found) is bool or found not in expected:
            yield Found(node, f"{name} is {found!r}", " or ".join(map(str, expected)), found)


def misplaced_members(node: NodeView) -> list[str]:
    """Members of a v3 document that belong into `attributes`, or nowhere."""
    known = V3_MEMBERS.get(str(node.document.get("node_type")))
    if v3.KEY not in node.documents or known is None:
        return []
    return [
        name
        for name, value in node.document.items()
        if name not in known and not (isinstance(value, dict) and value.get("must_understand") is False)
    ]


@Rule("GZ-07", "error", "core", "draft 8.1.1", "Metadata of users is in `attributes` (Zarr v3).",
      "move the member into attributes", each="nodes")  # fmt: skip
def check_v3_members(node: NodeView) -> Iterator[Found]:
    for name in misplaced_members(node):
        yield Found(node, f"{name!r} is beside attributes, not in them", "in attributes", name)


def _is_explained(node: NodeView) -> bool:
    """Whether another rule says why the node cannot be read."""
    if any(not _is_text(data) for data in node.raw.values()):
        return True
    if node.zarr_format == 2:
        return not isinstance(node.documents.get(v2.ATTRIBUTES_KEY, {}), dict)
    head = (node.document.get("zarr_format"), node.document.get("node_type"))
    is_headless = v3.KEY in node.documents and not (head[0] == 3 and head[1] in ("group", "array"))
    return is_headless or bool(misplaced_members(node))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@Rule("OC-02", "warning", "core", "OGC Zarr 2.0 4.1",
      "Zarr v2 documents have the members of the format only.",
      "move the member into .zattrs", each="nodes")  # fmt: skip
def check_v2_members(node: NodeView) -> Iterator[Found]:
    for key, known in V2_MEMBERS.items():
        document = node.documents.get(key)
        for name in document if isinstance(document, dict) and node.zarr_format == 2 else ():
            if name not in known and not name.lower().startswith("_nczarr"):
                yield Found(node, f"{key} has the member {name!r}", sorted(known), name)


@Rule("OC-03", "warning", "core", "OGC Zarr 2.0 4.2",
      "Arrays have types that NetCDF has: no structures, no opaque bytes.",
      "store one array per field", each="arrays")  # fmt: skip
def check_types(array: ArrayView) -> Iterator[Found]:
    if array.dtype.kind == "V":
        yield Found(array, f"dtype is {array.dtype}, which NetCDF has no type for", None, str(array.dtype))


@Rule("OC-04", "warning", "core", "OGC Zarr 2.0 4.3", "NCZarr's own documents are no part of the standard.",
      "write pure Zarr: mode=zarr in netCDF-C", general="note")  # fmt: skip
def check_nczarr(hierarchy: Hierarchy) -> Iterator[Found]:
    twos = [node for node in hierarchy.nodes if node.zarr_format == 2]
    asked = [(node, join_key(node.path, key)) for node in twos[:MOST_LOOKUPS] for key in NCZARR_KEYS]
    values = hierarchy.store.get_many([(key, None) for _, key in asked])
    for (node, key), value in zip(asked, values, strict=True):
        if value is not None:
            yield Found(node, f"{key.rpartition('/')[2]} is there", None, key)
    for node in hierarchy.nodes:
        for name in sorted({name for document in node.documents.values() for name in _names(document)}):
            if name.lower().startswith("_nczarr"):
                yield Found(node, f"{name!r} is NCZarr's", None, name)


def _names(document: Any) -> list[str]:
    if not isinstance(document, dict):
        return []
    attributes = document.get("attributes")
    return [*document, *(attributes if isinstance(attributes, dict) else ())]


@Rule("ZS-01", "error", "core", "Zarr v2, v3", "Every document can be read.", "write the document anew",
      each="nodes")  # fmt: skip
def check_readable(node: NodeView) -> Iterator[Found]:
    is_array = isinstance(node, ArrayView)
    for name, reason in node.troubles if is_array or not _is_explained(node) else ():
        if not (is_array and name == "values"):
            yield Found(node, f"{name}: {reason}", "a document of the format")


@Rule("ZS-02", "error", "core", "Zarr v3, consolidated metadata; zarr-python",
      "Consolidated metadata says what the documents say.",
      "consolidate anew (zstore consolidate)")  # fmt: skip
def check_consolidated(hierarchy: Hierarchy) -> Iterator[Found]:
    by_path = {node.path: node for node in hierarchy.nodes}
    for group in hierarchy.groups:
        known = consolidated_documents(group)
        if not known:
            continue
        inside = {path: documents for path, documents in known.items() if path}
        prefix = f"{group.path}/" if group.path else ""
        for path, documents in inside.items():
            node = by_path.get(prefix + path)
            if node is None:
                yield Found(group, f"consolidated metadata has {path!r}, which is not there")
                continue
            for key, document in documents.items():
                if _differs(node.documents.get(key), document):
                    yield Found(group, f"consolidated metadata of {path!r} differs from its {key}")
        has_listing = not any(name == "listing" for name, _ in group.troubles)
        for path in by_path if has_listing else ():
            if path.startswith(prefix) and path != group.path and path[len(prefix) :] not in inside:
                yield Found(group, f"consolidated metadata lacks {path[len(prefix) :]!r}")


def _differs(stored: Any, consolidated: Any) -> bool:
    def plain(document: Any) -> str:
        if isinstance(document, dict):
            document = {
                name: value
                for name, value in document.items()
                if name != "consolidated_metadata" and not (name == "attributes" and not value)
            }
        return json.dumps(document, sort_keys=True)

    return plain({} if stored is None else stored) != plain({} if consolidated is None else consolidated)


@Rule("ZS-03", "error", "core", "Zarr v2, v3", "Values of coordinates can be read.", "write the chunk anew",
      each="arrays")  # fmt: skip
def check_values(node: ArrayView) -> Iterator[Found]:
    for name, reason in node.troubles:
        if name == "values":
            yield Found(node, reason)


# Without a check: what a class comes to is known when every rule was looked at (`check_hierarchy`).
Rule("GZ-01", "note", "core", "draft 2",
     "Classes that a hierarchy claims in conformsTo are met, and core with them.",
     "fix what the class finds, or drop the claim")  # fmt: skip


@Rule("ZS-04", "error", "core", "Zarr v2, v3", "Every codec is known, and fits its array.",
      "install the plugin that has the codec, or write the array anew", each="arrays")  # fmt: skip
def check_codecs(array: ArrayView) -> Iterator[Found]:
    try:
        bind_layout(array.node.model)
    except ExtensionError as error:
        yield Found(array, str(error), severity="warning")
    except ZstoreError as error:
        yield Found(array, str(error))
    except Exception as error:
        # Whatever it is, the other arrays are checked.
        yield Found(array, f"{type(error).__name__}: {error}")


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


def _walk(value: Any) -> Iterator[tuple[str, str, Any]]:
    """(place, name, value) of everything in a JSON value, itself first, however deep."""
    waiting = [("", "", value)]
    while waiting:
        where, name, found = waiting.pop()
        yield where, name, found
        if isinstance(found, dict):
            waiting += [(f"{where}.{key}" if where else key, key, item) for key, item in found.items()]
        elif isinstance(found, list):
            waiting += [(f"{where}[{index}]", name, item) for index, item in enumerate(found)]


def _attributes(hierarchy: Hierarchy) -> Iterator[tuple[NodeView, str, str, Any]]:
    for node in hierarchy.nodes:
        for place, name, value in _walk(dict(node.stored)):
            yield node, place, name, value


def _links(hierarchy: Hierarchy) -> Iterator[tuple[NodeView, str, str]]:
    for node, place, name, value in _attributes(hierarchy):
        is_set = name == "tile_matrix_set" or (name == "crs" and "tile_matrix_set" in place)
        if isinstance(value, str) and (name in LINK_NAMES or is_set) and "://" in value:
            yield node, place, value


@Rule("GZ-02", "error", "core", "draft 5.4", "URIs are those of RFC 3986, reserved characters escaped.",
      "escape the characters (a blank is %20)")  # fmt: skip
def check_uris(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, link in _links(hierarchy):
        if not URI.fullmatch(link):
            yield Found(node, f"{place} is {link!r}, which is no URI", "RFC 3986", link)


@Rule("GZ-03", "warning", "core", "draft 5.4", "URIs are persistent, and lead everybody to the same place.",
      "use a URI of http://www.opengis.net/def/, or another public one")  # fmt: skip
def check_persistent_uris(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, link in _links(hierarchy):
        scheme, _, rest = link.partition("://")
        host = rest.partition("/")[0].partition(":")[0]
        if scheme.lower() not in ("http", "https") or host in ("localhost", "127.0.0.1", ""):
            yield Found(node, f"{place} is {link!r}", "a public http or https URI", link)


@Rule("GZ-17", "error", "core", "draft 8.1.5, table 6",
      "A group of data names the version of CF it follows in `Conventions`.",
      'set Conventions to "CF-1.11"')  # fmt: skip
def check_conventions(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = group.attrs.get("Conventions")
        if found is None:
            if _is_described(hierarchy.meaning.roles(group)):
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


@Rule("GZ-20", "error", "core", "draft 8.1.6", "Documents are UTF-8, without halves of characters.",
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


@Rule("GZ-21", "error", "core", "draft 8.1.6",
      "Attributes are JSON: strings, finite numbers, booleans, arrays, objects.",
      'leave the attribute out, or write "NaN" as a string')  # fmt: skip
def check_json(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        for key, document in node.documents.items():
            if key == v2.CONSOLIDATED_KEY or not isinstance(document, dict):
                continue
            own = {name: value for name, value in document.items() if name != "consolidated_metadata"}
            for place, _, value in _walk(own):
                if isinstance(value, float) and not math.isfinite(value):
                    message = f"{place} is {value}, which JSON has no number for"
                    # netCDF writes those as they are, and Python reads them; browsers do not.
                    is_fill = place.rpartition(".")[2] in NAMED_BASE64
                    yield Found(node, message, None, str(value), "warning" if is_fill else None)
    for node, place, _, value in _attributes(hierarchy):
        if value is None:
            yield Found(node, f"{place} is null", "no attribute", None, "warning")


@Rule("GZ-23", "warning", "core", "draft 8.1.6", "Attributes are spelt as the conventions spell them.",
      "rename the attribute", each="nodes")  # fmt: skip
def check_spelling(node: NodeView) -> Iterator[Found]:
    for name in node.stored:
        right = STANDARD_SPELLINGS.get(name.lower().replace("_", ""))
        if right is not None and name != right:
            yield Found(node, f"attribute {name!r} is spelt unlike {right!r}", right, name)


@Rule("GZ-24", "warning", "core", "draft 8.1.6",
      "Structured metadata are objects, not JSON text in a string.", "write the object itself")  # fmt: skip
def check_json_text(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, _, value in _attributes(hierarchy):
        if parse_text(value) is not None:
            yield Found(node, f"{place} is JSON in a string", "an object or an array", value[:80])


def parse_text(value: Any) -> Any:
    """The object or list that a text is as JSON; None for anything else."""
    try:
        is_likely = isinstance(value, str) and value.lstrip()[:1] in ("{", "[")
        return json.loads(value) if is_likely else None
    except (ValueError, RecursionError):
        return None


@Rule("GZ-25", "error", "core", "draft 8.1.6", "Serialised blocks are text that its name or form identifies.",
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


@Rule("GZ-27", "note", "core", "draft 8.1.7", "Dimensions grow by resizing; no attribute is needed.",
      "leave `resizeable` out: nothing reads it", each="nodes")  # fmt: skip
def check_resizeable(node: NodeView) -> Iterator[Found]:
    if "resizeable" in node.stored:
        yield Found(node, "resizeable is set, which no reader knows", None, node.stored["resizeable"])


@Rule("ZS-09", "error", "core", "zstore, interrupted work", "No work is unfinished.",
      "go on with it as the finding says, or wait where it is under way")  # fmt: skip
def check_unfinished(hierarchy: Hierarchy) -> Iterator[Found]:
    """Work that is unfinished at or below the root; what is expected says how it goes on."""
    by_path = {node.path: node for node in hierarchy.nodes}
    for work in hierarchy.unfinished:
        node = by_path.get(work.path, hierarchy.root)
        message = f"{work.what} is unfinished" + ("" if node.path == work.path else f" at {work.path!r}")
        yield Found(node, message, work.again, "unfinished")

"""Rules about documents, attributes and arrays: text, types, dimensions, links; and unfinished work."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from zstore.engine.layout import bind_layout
from zstore.errors import ExtensionError, MetadataError, ZstoreError
from zstore.geo.conventions.base import Mend
from zstore.geo.conventions.geozarr import (
    declare,
    declared,
    is_declared,
    layout_items,
    objects,
    parse_numbers,
    uses,
)
from zstore.geo.conventions.levels import has_paths_alone, is_ome
from zstore.geo.conventions.meaning import Roles, is_nzug, unread
from zstore.geo.conventions.write import ARRAYS, CANDIDATE, DRAFT, GDAL, MINI, OME, OME_06
from zstore.geo.validation.standard_names import MODIFIERS, load_standard_names
from zstore.geo.validation.view import (
    ArrayView,
    Found,
    GroupView,
    Hierarchy,
    NodeView,
    Rule,
    consolidated_documents,
    walk,
)
from zstore.model import v2, v3
from zstore.model.packing import FILLS, SCALING, decode_fill, render_nodata
from zstore.model.slips import find_slips
from zstore.storage.base import join_key

V3_MEMBERS = {"group": v3.GROUP_MEMBERS, "array": v3.ARRAY_MEMBERS}
V2_MEMBERS = {v2.ARRAY_KEY: v2.ARRAY_MEMBERS, v2.GROUP_KEY: frozenset(("zarr_format",))}
NCZARR_KEYS = (".nczarray", ".nczattr", ".nczgroup", ".nczvar", ".nczar")
MOST_LOOKUPS = 500


def implicit_groups(hierarchy: Hierarchy) -> Iterator[tuple[GroupView, str]]:
    """(a group, a name in it) of every directory that contains nodes but is none; "" is the group itself."""
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
      "write a group document there (zstore fix does)", general="warning")  # fmt: skip
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
      "move the member into attributes (zstore fix does)", each="nodes")  # fmt: skip
def check_v3_members(node: NodeView) -> Iterator[Found]:
    for name in misplaced_members(node):
        value = node.document[name]
        mend = Mend(f"{name} moved into attributes", {name: value}, {name: None})
        if node.stored.get(name, value) != value:
            mend = Mend(f"{name} is among the attributes too, and differs")
        yield Found(node, f"{name!r} is beside attributes, not in them", "in attributes", name, mend=mend)


def _is_explained(node: NodeView) -> bool:
    """Whether another rule already reports why the node cannot be read."""
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
    for name, reason in node.troubles if isinstance(node, ArrayView) or not _is_explained(node) else ():
        yield Found(node, f"{name}: {reason}", "a document of the format")


@Rule("ZS-02", "error", "core", "Zarr v3, consolidated metadata; zarr-python",
      "Consolidated metadata says what the documents say.",
      "consolidate anew (zstore consolidate, or zstore fix, does)")  # fmt: skip
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


Rule("ZS-03", "error", "core", "Zarr v2, v3", "Values of coordinates can be read.",
     "write the chunk anew")  # fmt: skip
# Of this, what a class comes to is known when every rule was looked at (`check_hierarchy`).
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
        *FILLS, *SCALING, "standard_name", "long_name", "units",
        "grid_mapping", "GeoTransform", "spatial_ref", "crs_wkt", "AREA_OR_POINT", "_CRS", "Conventions",
        "multiscales", "zarr_conventions", "coordinates", "calendar", "valid_range", "flag_values",
        "flag_meanings", "flag_masks", "axis",
    )
}  # fmt: skip
CONVENTIONS = re.compile(r"CF-\d+\.\d+")


def _links(hierarchy: Hierarchy) -> Iterator[tuple[NodeView, str, str]]:
    for node, place, name, value in hierarchy.values:
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
      'set Conventions to "CF-1.11" (zstore fix does, where it names another version)')  # fmt: skip
def check_conventions(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        found = group.attrs.get("Conventions")
        if found is None:
            if _is_described(hierarchy.meaning.roles(group)):
                mend = Mend("Conventions names the version of CF", {"Conventions": "CF-1.11"})
                yield Found(group, "there is no Conventions", "CF-1.11", None, "warning", mend)
        elif not isinstance(found, str):
            expected, said = "a string such as CF-1.11", {"Conventions": f"CF-{found}"}
            named = Mend("Conventions names the version of CF", said) if isinstance(found, float) else None
            yield Found(group, f"Conventions is {found!r}", expected, found, mend=named)
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
    for node, place, name, value in hierarchy.values:
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
            for place, _, value in walk(own):
                if isinstance(value, float) and not math.isfinite(value):
                    message = f"{place} is {value}, which JSON has no number for"
                    # netCDF writes those as they are, and Python reads them; browsers do not.
                    is_fill = place.rpartition(".")[2] in FILLS
                    yield Found(node, message, None, str(value), "warning" if is_fill else None)
    for node, place, _, value in hierarchy.values:
        if value is None:
            yield Found(node, f"{place} is null", "no attribute", None, "warning")


@Rule("GZ-23", "warning", "core", "draft 8.1.6", "Attributes are spelt as the conventions spell them.",
      "rename the attribute (zstore fix does)", each="nodes")  # fmt: skip
def check_spelling(node: NodeView) -> Iterator[Found]:
    spelt = {name: STANDARD_SPELLINGS.get(name.lower().replace("_", ""), name) for name in node.stored}
    for name, right in spelt.items():
        # NZUG has "conventions".
        if name != right and not (name == "conventions" and is_nzug(node)):
            is_only = list(spelt.values()).count(right) == 1
            mend = Mend(f"{name!r} is spelt {right!r}", {name: None, right: node.stored[name]})
            message = f"attribute {name!r} is spelt unlike {right!r}"
            yield Found(node, message, right, name, mend=mend if is_only else None)


@Rule("GZ-24", "warning", "core", "draft 8.1.6",
      "Structured metadata are objects, not JSON text in a string.",
      "write the object itself (zstore fix does)")  # fmt: skip
def check_json_text(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, _, value in hierarchy.values:
        parsed = parse_text(value)
        if parsed is not None:
            mend = Mend(f"{place} written as what its text is", {place: parsed})
            mended = mend if place in STRUCTURED else None
            yield Found(
                node, f"{place} is JSON in a string", "an object or an array", value[:80], mend=mended
            )


# What is an object in every dialect; other text may be meant as text.
STRUCTURED = ("multiscales", "zarr_conventions", "ome", "_CRS", "proj:projjson")


def parse_text(value: Any) -> Any:
    """The object or list in a text of JSON; None for anything else."""
    try:
        is_likely = isinstance(value, str) and value.lstrip()[:1] in ("{", "[")
        return json.loads(value) if is_likely else None
    except (ValueError, RecursionError):
        return None


@Rule("GZ-25", "error", "core", "draft 8.1.6", "Serialised blocks are text that its name or form identifies.",
      "write the block as text or as an object", general="warning")  # fmt: skip
def check_blocks(hierarchy: Hierarchy) -> Iterator[Found]:
    for node, place, name, value in hierarchy.values:
        if name not in FILLS and isinstance(value, str) and _is_blob(value):
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
    """Unfinished work at or below the root, with the call that continues it."""
    by_path = {node.path: node for node in hierarchy.nodes}
    for work in hierarchy.unfinished:
        node = by_path.get(work.path, hierarchy.root)
        message = f"{work.what} is unfinished" + ("" if node.path == work.path else f" at {work.path!r}")
        again = f"{work.again}, or {work.undo}" if work.undo else work.again
        yield Found(node, message, again, "unfinished")


@Rule("ZS-11", "note", "core", "CF 1.13; zarr-conventions",
      "What standards say beyond what zstore reads is not looked at.",
      "nothing: other programs read it")  # fmt: skip
def check_unread(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes if hierarchy.meaning.reads_own else ():
        yield from (Found(node, f"not looked at: {part}") for part in unread(node))


DIMENSIONS = "_ARRAY_DIMENSIONS"


def dimension_trouble(array: ArrayView) -> tuple[str, Any] | None:
    """(trouble with the names of the dimensions, the stored names)."""
    if array.zarr_format == 3:
        found, place = array.document.get("dimension_names"), "dimension_names"
    else:
        found, place = array.stored.get(DIMENSIONS), DIMENSIONS
    if found is None:
        instead = f"; only {DIMENSIONS} is" if array.zarr_format == 3 and DIMENSIONS in array.stored else ""
        is_needed = array.shape or array.zarr_format == 2
        return (f"{place} is not there{instead}", None) if is_needed else None
    if not isinstance(found, list) or len(found) != len(array.shape):
        return f"{place} is {found!r}; expected {len(array.shape)} names", found
    if not all(isinstance(name, str) and name for name in found):
        return f"{place} is {found!r}; expected a name for every dimension", found
    return None


def _check_dimensions(hierarchy: Hierarchy, zarr_format: int | None) -> Iterator[Found]:
    # The axes of an image of OME-Zarr have names, and Zarr v2 no place for them but those.
    named_elsewhere = _images_of_v2(hierarchy)
    for array in hierarchy.arrays:
        trouble = dimension_trouble(array)
        # A scalar as netCDF writes it in Zarr v2: of one cell, without dimensions.
        is_scalar = array.shape == (1,) and array.stored.get(DIMENSIONS) == []
        if trouble is not None and (array.path in named_elsewhere or is_scalar):
            continue
        if trouble is not None and zarr_format in (None, array.zarr_format):
            # An array that nothing describes is plain Zarr, which needs no names.
            is_plain = hierarchy.profile is None and trouble[1] is None and _is_plain(array)
            yield Found(array, trouble[0], len(array.shape), trouble[1], "note" if is_plain else None)


def _images_of_v2(hierarchy: Hierarchy) -> set[str]:
    """The paths of the arrays of Zarr v2 that are levels of an image of OME-Zarr, whose axes name dimensions.

    Until 0.2 these are t, c, z, y and x of every image.
    """
    found = set[str]()
    for pyramid in hierarchy.pyramids:
        stated = pyramid.group.attrs.get("multiscales")
        for node in (level.node for level in pyramid.levels):
            if isinstance(node, ArrayView) and node.zarr_format == 2:
                is_of_five = len(node.shape) == 5 and has_paths_alone(stated)
                found |= {node.path} if is_of_five or is_ome(stated) else set()
    return found


def _is_plain(array: ArrayView) -> bool:
    neighbours = array.parent.arrays.values() if array.parent is not None else [array]
    return not any(node.attrs or getattr(node, "dims", None) for node in [*neighbours, *array.ancestors()])


Rule("GZ-10", "error", "core", "draft 8.1.2, table 3",
     "Every dimension has a name: in dimension_names (v3), in _ARRAY_DIMENSIONS (v2, of scalars too).",
     "name the dimensions (zstore fix does, where levels, neighbours or lengths tell)",
     profiles=(DRAFT, OME, OME_06))(partial(_check_dimensions, zarr_format=None))  # fmt: skip
Rule("MS-01", "error", "core", "mini spec, DataArray, Zarr V2",
     "Arrays of Zarr v2 have _ARRAY_DIMENSIONS, one string per dimension.", "name the dimensions",
     profiles=(MINI,), same_as="GZ-10")(partial(_check_dimensions, zarr_format=2))  # fmt: skip
Rule("OC-01", "warning", "core", "OGC Zarr 2.0 4.1", "Arrays of Zarr v2 have _ARRAY_DIMENSIONS.",
     "name the dimensions", profiles=(ARRAYS, GDAL),
     same_as="GZ-10")(partial(_check_dimensions, zarr_format=2))  # fmt: skip


@Rule("MS-12", "error", "core", "mini spec, Dataset, CF compliance",
      "Arrays of Zarr v2 have _ARRAY_DIMENSIONS; those of v3 need none.", "name the dimensions",
      profiles=(MINI,), same_as="GZ-10", each="arrays")  # fmt: skip
def check_mini_compatibility(array: ArrayView) -> Iterator[Found]:
    stated = array.stored.get(DIMENSIONS)
    if array.zarr_format == 2 and stated is None:
        yield Found(array, f"{DIMENSIONS} is not there", len(array.shape))
    elif array.zarr_format == 3 and stated is not None and stated != list(array.dims or ()):
        yield Found(array, f"{DIMENSIONS} is not what dimension_names is", list(array.dims or ()), stated)


@Rule("MS-03", "error", "core", "mini spec, DataArray, Zarr V3",
      "dimension_names of Zarr v3 are set, strings, and unique.", "name every dimension differently",
      profiles=(MINI,), same_as="GZ-10")  # fmt: skip
def check_mini_v3_dimensions(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _check_dimensions(hierarchy, 3)
    for array in hierarchy.arrays:
        names = array.dims or ()
        if array.zarr_format == 3 and len(set(names)) != len(names) and None not in names:
            yield Found(array, f"dimension_names are {list(names)}, one of them twice", None, list(names))


@Rule("GZ-11", "error", "core", "draft 8.1.2",
      "Within a group, a dimension's name means one length, and an array has it once.",
      "give dimensions of other lengths other names")  # fmt: skip
def check_lengths(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        names = [name for name in array.dims or () if name is not None]
        if len(set(names)) != len(names):
            yield Found(array, f"dimensions are {names}, one of them twice", None, names)
    # Levels that are arrays of one group differ in their lengths, and in nothing else.
    coarser = {id(level.node) for pyramid in hierarchy.pyramids for level in pyramid.levels[1:]}
    for group in hierarchy.groups:
        found = hierarchy.meaning.roles(group)
        first: dict[str, tuple[int, str]] = {}
        for name, array in {**found.data, **found.auxiliary}.items():
            if id(array) in coarser:
                continue
            for dimension, length in zip(array.dims or (), array.shape, strict=False):
                known = first.setdefault(str(dimension), (length, name))
                if dimension is not None and known[0] != length:
                    message = f"dimension {dimension!r} is {length} long, in {known[1]!r} {known[0]}"
                    yield Found(array, message, known[0], length)


@Rule("GZ-12", "error", "core", "draft 8.1.2",
      "A dimension's name that begins with / is that of a 1-D array of its length in a group above.",
      "use plain names: no tool follows the others", each="arrays")  # fmt: skip
def check_outer_dimensions(array: ArrayView) -> Iterator[Found]:
    for dimension, length in zip(array.dims or (), array.shape, strict=False):
        if dimension is None or not dimension.startswith("/"):
            continue
        above = (group.arrays.get(dimension[1:]) for group in array.ancestors())
        found = next((coordinate for coordinate in above if coordinate is not None), None)
        if found is None or found.shape != (length,):
            shape = "nowhere" if found is None else f"of the shape {found.shape}"
            yield Found(array, f"dimension {dimension!r}: {dimension[1:]!r} is {shape}", (length,))
        else:
            message = f"dimension {dimension!r} is one that no tool follows"
            yield Found(array, message, dimension[1:], dimension, "note")


Rule("GZ-15", "error", "crs", "draft 8.1.3", "grid_mapping names an array beside it, or in a group above.",
     "name the array that carries the CRS, or make it")  # fmt: skip


@Rule("GZ-16", "error", "core", "draft 8.1.4",
      "scale_factor, add_offset, _FillValue, flags and names have the types that CF gives them.",
      "write numbers as numbers, and a fill value that the type holds (zstore fix does)",
      each="arrays")  # fmt: skip
def check_fill(array: ArrayView) -> Iterator[Found]:
    if is_unreadable_fill(array):
        message = f"_FillValue is {array.attrs['_FillValue']!r}, which xarray does not read"
        expected = "a number, or on a Zarr v3 float array base64 of the little-endian float64"
        yield Found(array, message, expected, None, "warning", _readable_fill(array))


def _readable_fill(array: ArrayView) -> Mend:
    """The mend of a `_FillValue` that xarray does not read: the same value in xarray's form."""
    stated: Any = array.attrs["_FillValue"]
    number = stated
    for kind in (float, int) if isinstance(stated, str) else ():
        with suppress(ValueError):
            number = kind(stated)
    try:
        nodata = decode_fill(number, array.dtype)
    except MetadataError as error:
        return Mend(error.message)
    written = render_nodata(nodata, array.dtype, array.zarr_format)
    if not written:
        return Mend(f"_FillValue {stated!r} has no other spelling")
    return Mend(f"_FillValue {stated!r} written as {written['_FillValue']!r}", written)


def is_unreadable_fill(array: ArrayView) -> bool:
    """Whether `_FillValue` is a list, text of a number, or a plain number where xarray needs base64."""
    found: Any = array.attrs.get("_FillValue")
    is_base64 = array.zarr_format == 3 and array.dtype.kind == "f"
    if isinstance(found, list) or (isinstance(found, str) and not is_base64):
        return array.dtype.kind in "iuf"
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return is_number and is_base64 and bool(np.isfinite(found))


def has_no_fill(array: ArrayView) -> bool:
    """Whether `fill_value` is null in Zarr v3."""
    return array.zarr_format == 3 and array.document.get("fill_value", 0) is None


@Rule("ZS-08", "error", "core", "Zarr v3, fill_value", "A Zarr v3 array has a fill value.",
      "write one (zstore fix --fill-value does); GDAL takes it for nodata", general="warning",
      each="arrays")  # fmt: skip
def check_fill_is_there(array: ArrayView) -> Iterator[Found]:
    if has_no_fill(array):
        message = "fill_value is null, for which zarr-python refuses the array; GDAL writes it"
        yield Found(array, message, "a value of the array's type", None)


@Rule("ZS-10", "note", "core", "Zarr v2, v3",
      "Documents of arrays are free of slips that some readers refuse (docs/formats.md).",
      "write the members as the finding says (zstore fix does)", each="arrays")  # fmt: skip
def check_slips(array: ArrayView) -> Iterator[Found]:
    for slip, members in find_slips(array.document, array.zarr_format):
        found = {name: array.document.get(name) for name in members}
        mend = Mend(f"{' and '.join(members)} as Zarr v{array.zarr_format} has it", {}, members)
        yield Found(array, f"{slip.says}; written by {slip.writers}", members, found, mend=mend)


@Rule("MS-02", "error", "core", "mini spec, DataArray",
      "Arrays have a dimension, but for those that grid_mapping or coordinates name.",
      "give the value a dimension, or make it an attribute", general="note", profiles=(MINI,))  # fmt: skip
def check_scalars(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        if array.shape == () and _is_data(hierarchy, array):
            yield Found(array, "the array has no dimension, and nothing refers to it", 1, 0)


@Rule("MS-06", "error", "core", "mini spec, Dataset, CF compliance",
      "Data variables have a standard_name that CF's table has.",
      "take a name from cfconventions.org; leave it out where there is none", general="warning",
      profiles=(MINI,))  # fmt: skip
def check_standard_names(hierarchy: Hierarchy) -> Iterator[Found]:
    for array in hierarchy.arrays:
        found = array.attrs.get("standard_name")
        if isinstance(found, str):
            yield from _check_name(array, found)
        elif found is None and hierarchy.profile is not None and array.shape and _is_data(hierarchy, array):
            yield Found(array, "there is no standard_name", "a name of CF's table")


def _is_data(hierarchy: Hierarchy, array: ArrayView) -> bool:
    return array.parent is not None and array.name in hierarchy.meaning.roles(array.parent).data


def _check_name(array: ArrayView, found: str) -> Iterator[Found]:
    table = load_standard_names()
    name, _, modifier = found.partition(" ")
    if modifier and modifier not in MODIFIERS:
        message = f"standard_name is {found!r}; {modifier!r} is no modifier"
        yield Found(array, message, sorted(MODIFIERS), modifier)
    if name in table.aliases:
        now = " or ".join(table.aliases[name])
        yield Found(array, f"standard_name {name!r} is an old name of {now!r}", now, name, "warning")
    elif name not in table.units:
        yield Found(array, f"standard_name {name!r} is not in the {table.version}", None, name)


PINNED = ("proj", "spatial", "multiscales")
CODE = re.compile(r"[^:]+:[^:]+")
FEWEST = 2


@Rule("GC-01", "error", "core", "GeoZarr 1.0 rc, core",
      "The root declares at least one of the conventions proj, spatial and multiscales.",
      "declare them in zarr_conventions (zstore fix does, where they are used)",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_root(hierarchy: Hierarchy) -> Iterator[Found]:
    if not declared(hierarchy.root) & set(PINNED):
        stated = hierarchy.root.attrs.get("zarr_conventions")
        yield Found(hierarchy.root, "the root declares none of the conventions", list(PINNED), stated)


def _is_pinned(node: NodeView, name: str) -> bool:
    """Whether a node has the convention's entry exactly as version 0.1's schema pins it."""
    wanted = declare([name])[0]
    entries = [e for e in objects(node.attrs.get("zarr_conventions")) if e.get("uuid") == wanted["uuid"]]
    return any(all(wanted.get(key) == value for key, value in entry.items()) for entry in entries)


def _undeclared(hierarchy: Hierarchy, name: str) -> Iterator[Found]:
    """Nodes that use a convention which neither they nor their group declare."""
    for node in hierarchy.nodes:
        if not uses(node, name):
            continue
        # A declaration of a group is one of its direct child arrays, too.
        near = [node] if isinstance(node, GroupView) or node.parent is None else [node, node.parent]
        if not any(is_declared(place, name) for place in near):
            yield Found(node, f"{name} is used, and not declared by its UUID", declare([name])[0], None)
        elif is_declared(node, name) and not _is_pinned(node, name):
            message = f"the entry of {name} is not that of version 0.1"
            yield Found(node, message, declare([name])[0], node.attrs.get("zarr_conventions"), "warning")


@Rule("GC-02", "error", "crs", "GeoZarr 1.0 rc, proj; zarr-conventions/proj 0.1",
      "What uses proj declares it, and a proj:code is an authority and a code.",
      "declare proj (zstore fix does), and write EPSG:32632",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_proj(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _undeclared(hierarchy, "proj")
    for node in hierarchy.nodes:
        code = node.attrs.get("proj:code")
        if code is not None and not (isinstance(code, str) and CODE.fullmatch(code)):
            yield Found(node, f"proj:code is {code!r}", "AUTHORITY:CODE", code)


@Rule("GC-03", "error", "geotransform", "GeoZarr 1.0 rc, spatial; zarr-conventions/spatial 0.1",
      "What uses spatial declares it, and says a transform of a known type.",
      "declare spatial (zstore fix does), and write spatial:transform",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_spatial(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _undeclared(hierarchy, "spatial")
    for node in hierarchy.nodes:
        kind = node.attrs.get("spatial:transform_type", "affine")
        if not isinstance(kind, str):
            yield Found(node, f"spatial:transform_type is {kind!r}", "affine", kind)
        found = node.attrs.get("spatial:transform")
        if kind == "affine" and found is not None and parse_numbers(found, 6) is None:
            yield Found(node, f"spatial:transform is {found!r}", "six numbers", found)


@Rule("GC-04", "error", "overviews", "GeoZarr 1.0 rc, multiscales; zarr-conventions/multiscales 0.1",
      "What has a layout declares multiscales, and lists two levels at least, each one's shape with it.",
      "declare multiscales (zstore fix does), and write spatial:shape of every level",
      profiles=(CANDIDATE,), is_general=False)  # fmt: skip
def check_layout(hierarchy: Hierarchy) -> Iterator[Found]:
    yield from _undeclared(hierarchy, "multiscales")
    for pyramid in hierarchy.pyramids:
        items = layout_items(pyramid.stated)
        if not pyramid.is_object or (not items and "layout" not in pyramid.stated):
            yield Found(pyramid.group, "the levels are said in another dialect", "multiscales.layout", None)
            continue
        if len(items) < FEWEST:
            yield Found(pyramid.group, f"layout lists {len(items)} levels", FEWEST, len(items))
        for item in items:
            for name in ("spatial:shape", "spatial:transform"):
                if uses(pyramid.group, "spatial") and name not in item and _is_alone(pyramid, item, name):
                    message = f"level {item.get('asset')!r} has no {name} in the layout"
                    yield Found(pyramid.group, message, name, sorted(item), "warning")


def _is_alone(pyramid: Any, item: Any, name: str) -> bool:
    """Whether the level does not state it either."""
    node = pyramid.group.below(str(item.get("asset", "")).strip("/"))
    return isinstance(node, ArrayView | GroupView) and name not in node.attrs

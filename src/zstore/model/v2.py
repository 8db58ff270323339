"""Zarr v2: `.zarray`, `.zgroup`, `.zattrs` and `.zmetadata` documents to models and back.

An array's `order: F` becomes a leading "transpose", its byte order the "bytes" codec (for "|O", the object
codec among its filters takes that place), its filters and compressor "numcodecs.<id>" codecs after that.
xarray's attribute `_ARRAY_DIMENSIONS` becomes the dimension names if it fits the shape, and else stays an
attribute.

Spec
    Zarr v2; xarray's "Zarr Encoding Specification" (`_ARRAY_DIMENSIONS`); zarr-python's `.zmetadata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zstore.base.once import ByContent
from zstore.errors import MetadataError, UnsupportedError, ZstoreError
from zstore.model.array import ArrayModel, CodecModel, Parts, bytes_codec, order_codecs
from zstore.model.document import check_format, refuse_format, require
from zstore.model.dtype import ORDER_CODECS, DataType, Order
from zstore.model.grid import (
    ChunkKeys,
    RectilinearGrid,
    RegularGrid,
    check_chunk_size,
    parse_chunk_shape,
    parse_shape,
)
from zstore.model.group import Consolidated, GroupModel, check_node_path
from zstore.model.slips import correct
from zstore.model.typestr import OBJECT_CODECS

ARRAY_KEY = ".zarray"
GROUP_KEY = ".zgroup"
ATTRIBUTES_KEY = ".zattrs"
CONSOLIDATED_KEY = ".zmetadata"
DIMENSIONS = "_ARRAY_DIMENSIONS"
PREFIX = "numcodecs."
ARRAY_MEMBERS = frozenset((
    "zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters",
    "dimension_separator",
))  # fmt: skip
# The last codec of a chain that does not come from a v2 document is its compressor, if it is one of these.
COMPRESSORS = frozenset(("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"))
# Parsed documents, by their content.
_known: ByContent[Parts] = ByContent()


def parse_node(documents: Mapping[str, Any], path: str) -> ArrayModel | GroupModel:
    """Parse the documents of an array or group.

    Raises
        MetadataError, UnsupportedError: as `parse_array` and `parse_group`; there is neither document.
    """
    if ARRAY_KEY in documents:
        return parse_array(documents, path=path)
    if GROUP_KEY in documents:
        return parse_group(documents, path=path)
    raise MetadataError(f"documents are {sorted(documents)}; expected {ARRAY_KEY} or {GROUP_KEY}", path=path)


def parse_array(documents: Mapping[str, Any], *, path: str) -> ArrayModel:
    """Parse the documents of an array, {".zarray": …, ".zattrs": …}; ".zattrs" may be missing.

    Raises
        MetadataError: a member is missing, malformed or contradicts another.
        UnsupportedError: a dtype that zstore does not have.
    """
    attributes = _parse_attributes(documents, path)
    try:
        return _parse_array(documents[ARRAY_KEY], attributes)
    except ZstoreError as error:
        error.locate(path=path, key=ARRAY_KEY)
        raise


def _parse_array(document: Mapping[str, Any], attributes: Mapping[str, Any]) -> ArrayModel:
    check_format(document, 2)
    parts = _known.get(document, _parse_parts, Parts.may_be_shared)
    dimension_names, attributes = _split_dimensions(attributes, parts.shape)
    extra: dict[str, Any] = {}
    if not document.keys() <= ARRAY_MEMBERS:
        extra = {name: value for name, value in correct(document, 2).items() if name not in ARRAY_MEMBERS}
    return parts._replace(dimension_names=dimension_names).make(2, attributes, extra)


def _parse_parts(document: Mapping[str, Any]) -> Parts:
    document = correct(document, 2)
    shape = parse_shape(require(document, "shape"))
    chunks = parse_chunk_shape(require(document, "chunks"), shape, "chunks")
    data_type, endian = DataType.from_typestr(require(document, "dtype"), _find_object_codec(document))
    check_chunk_size(chunks, data_type.numpy.itemsize)
    fill_value = data_type.parse_fill(require(document, "fill_value"), 2, endian)
    separator = document.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise MetadataError(f"dimension_separator is {separator!r}; expected '.' or '/'")
    codecs = _parse_chain(document, len(shape), endian, has_objects=data_type.is_object)
    return Parts(shape, data_type, RegularGrid(chunks), ChunkKeys("v2", separator), codecs, fill_value)


def _find_object_codec(document: Mapping[str, Any]) -> str | None:
    """The id of the filter that encodes objects: the first known object codec, else the first filter."""
    filters = document.get("filters")
    items = filters if isinstance(filters, list) else []
    ids = [item["id"] for item in items if isinstance(item, dict) and isinstance(item.get("id"), str)]
    return next((name for name in ids if name in OBJECT_CODECS), ids[0] if ids else None)


def _parse_chain(
    document: Mapping[str, Any], ndim: int, endian: Order, *, has_objects: bool
) -> tuple[CodecModel, ...]:
    order = require(document, "order")
    if order not in ("C", "F"):
        raise MetadataError(f"order is {order!r}; expected 'C' or 'F'")
    codecs = [*order_codecs(order, ndim)]
    if not has_objects:
        codecs.append(bytes_codec(endian))
    filters = document.get("filters")
    if filters is not None:
        if not isinstance(filters, list):
            raise MetadataError(f"filters is {filters!r}; expected null or a list of codecs")
        codecs += [_parse_codec(item, "filter") for item in filters]
    compressor = require(document, "compressor")
    if compressor is not None:
        codecs.append(_parse_codec(compressor, "compressor"))
    return tuple(codecs)


def _parse_codec(value: Any, role: str) -> CodecModel:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not value["id"]:
        raise MetadataError(f"{role} is {value!r}; expected an object with an id")
    configuration = {name: item for name, item in value.items() if name != "id"}
    return CodecModel(PREFIX + value["id"], configuration, role=role)


def _split_dimensions(
    attributes: Mapping[str, Any], shape: tuple[int, ...]
) -> tuple[tuple[str | None, ...] | None, Mapping[str, Any]]:
    """(dimension names, the other attributes); malformed names stay among the attributes."""
    names = attributes.get(DIMENSIONS)
    if not isinstance(names, list) or len(names) != len(shape):
        return None, attributes
    if not all(isinstance(name, str) for name in names):
        return None, attributes
    return tuple(names), {name: value for name, value in attributes.items() if name != DIMENSIONS}


def parse_group(documents: Mapping[str, Any], *, path: str) -> GroupModel:
    """Parse the documents of a group; of ".zgroup", ".zattrs" and ".zmetadata" only the first is required.

    The group's own attributes are those of ".zattrs", never the copy in ".zmetadata".

    Raises
        MetadataError: a document is malformed, or ".zmetadata" names a path that is not below the group.
    """
    attributes = _parse_attributes(documents, path)
    key = GROUP_KEY
    try:
        document = documents[GROUP_KEY]
        check_format(document, 2)
        extra = {name: document[name] for name in document if name != "zarr_format"}
        key = CONSOLIDATED_KEY
        consolidated = _parse_consolidated(documents.get(CONSOLIDATED_KEY), path)
        return GroupModel(2, attributes, consolidated, extra)
    except ZstoreError as error:
        error.locate(path=path, key=key)
        raise


def _parse_consolidated(value: Any, path: str) -> Consolidated | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("zarr_consolidated_format") != 1:
        raise MetadataError("consolidated metadata is malformed; expected zarr_consolidated_format 1")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise MetadataError(f"metadata is {metadata!r}; expected an object")
    nodes: dict[str, dict[str, Any]] = {}
    orphans: dict[str, Any] = {}
    for key, document in metadata.items():
        node, _, name = key.rpartition("/")
        if name not in (ARRAY_KEY, GROUP_KEY, ATTRIBUTES_KEY):
            raise MetadataError(
                f"metadata has the key {key!r}; expected a path ending in .zarray, .zgroup or .zattrs"
            )
        if not node:
            if key.startswith("/"):
                check_node_path(node, where=path)
            continue
        if name == ATTRIBUTES_KEY and node not in nodes:
            orphans[check_node_path(node, where=path)] = document
        else:
            nodes.setdefault(check_node_path(node, where=path), {})[name] = document
    for node, document in orphans.items():
        # Attributes without an array or group are ignored.
        if node in nodes:
            nodes[node][ATTRIBUTES_KEY] = document
    return Consolidated(nodes, parse_node, base=path)


def _parse_attributes(documents: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    attributes = documents.get(ATTRIBUTES_KEY)
    if attributes is None:
        return {}
    if isinstance(attributes, dict):
        return attributes
    raise MetadataError(f"attributes are {attributes!r}; expected an object", path=path, key=ATTRIBUTES_KEY)


def render_array(model: ArrayModel) -> dict[str, dict[str, Any]]:
    """Render the documents of an array: the inverse of `parse_array`; ".zattrs" only if there are attributes.

    Raises
        UnsupportedError: Zarr v2 cannot represent the array.
    """
    if model.keys.name != "v2":
        raise refuse_format(f"chunk keys {model.keys.name!r}", 2, "'v2' only")
    if isinstance(model.grid, RectilinearGrid) and not model.grid.is_even:
        raise refuse_format(f"chunks {model.grid.render()}", 2, "chunks of one shape only")
    order, endian, filters, compressor = _render_chain(model)
    document: dict[str, Any] = {
        "zarr_format": 2,
        "shape": list(model.shape),
        "chunks": list(model.grid.chunk_shape),
        "dtype": model.data_type.typestr(endian),
        "compressor": compressor,
        "fill_value": model.data_type.render_fill(model.fill_value, 2, endian),
        "order": order,
        "filters": filters or None,
        "dimension_separator": model.keys.separator,
    }
    document.update(model.extra)
    documents = {ARRAY_KEY: document}
    attributes = _join_dimensions(model)
    if attributes:
        documents[ATTRIBUTES_KEY] = attributes
    return documents


def _render_chain(model: ArrayModel) -> tuple[str, Order, list[dict[str, Any]], dict[str, Any] | None]:
    """(order, endian, filters, compressor) of the codecs."""
    codecs = list(model.codecs)
    order = "C"
    if codecs and codecs[0].name == "transpose":
        transpose = codecs.pop(0)
        if not transpose.is_reversal(model.ndim):
            permutation, reverse = transpose.configuration.get("order"), [*reversed(range(model.ndim))]
            raise refuse_format(f"transpose with order {permutation!r}", 2, f"{reverse} only")
        order = "F"
    endian: Order = None
    if not model.data_type.is_object:
        if not codecs or codecs[0].name not in ORDER_CODECS.values():
            name = codecs[0].name if codecs else None
            raise refuse_format(f"codec {name!r}", 2, "'bytes' there")
        endian = codecs.pop(0).configuration.get("endian")
    compressor = None
    if codecs:
        is_known = codecs[-1].name.removeprefix(PREFIX) in COMPRESSORS
        if (codecs[-1].role or ("compressor" if is_known else "filter")) == "compressor":
            compressor = _render_codec(codecs.pop())
    return order, endian, [_render_codec(codec) for codec in codecs], compressor


def _render_codec(codec: CodecModel) -> dict[str, Any]:
    if not codec.name.startswith(PREFIX):
        raise refuse_format(f"codec {codec.name!r}", 2, "numcodecs' codecs only")
    return {"id": codec.name.removeprefix(PREFIX), **codec.configuration}


def _join_dimensions(model: ArrayModel) -> dict[str, Any]:
    attributes = dict(model.attributes)
    names = model.dimension_names
    if names is None:
        return attributes
    if None in names:
        raise UnsupportedError(
            f"dimension_names {list(names)} cannot be said in Zarr v2; every dimension needs a name"
        )
    if attributes.setdefault(DIMENSIONS, list(names)) != list(names):
        raise MetadataError(
            f"attribute {DIMENSIONS!r} is {attributes[DIMENSIONS]!r}; "
            f"expected the dimension names {list(names)}"
        )
    return attributes


def render_group(model: GroupModel) -> dict[str, dict[str, Any]]:
    """Render the documents of a group: the inverse of `parse_group`.

    ".zattrs" only if there are attributes, ".zmetadata" only if the model has consolidated metadata.
    """
    documents: dict[str, dict[str, Any]] = {GROUP_KEY: {"zarr_format": 2, **model.extra}}
    if model.attributes:
        documents[ATTRIBUTES_KEY] = dict(model.attributes)
    if model.consolidated is not None:
        metadata: dict[str, Any] = dict(documents)
        below = Consolidated.documents_of(model.consolidated, render_array, render_group)
        for path, child in below.items():
            metadata.update({f"{path}/{name}": value for name, value in child.items()})
        documents[CONSOLIDATED_KEY] = {"zarr_consolidated_format": 1, "metadata": metadata}
    return documents

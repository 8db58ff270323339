"""Zarr v3: `zarr.json` documents to models and back.

Where the specification allows several forms, documents are written in the one that v3.0 readers know: objects
rather than short-hand names, always with the chunk-key separator and `attributes`.

Spec
    Zarr v3 core, "Metadata" and "Extension definition".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zstore.base.once import ByContent
from zstore.errors import MetadataError, UnsupportedError, ZstoreError
from zstore.model.array import ArrayModel, CodecModel, Parts
from zstore.model.document import check_format, require
from zstore.model.dtype import DataType, Order
from zstore.model.grid import (
    ChunkKeys,
    Grid,
    RectilinearGrid,
    RegularGrid,
    check_chunk_size,
    parse_chunk_shape,
    parse_shape,
)
from zstore.model.group import Consolidated, GroupModel, check_node_path
from zstore.model.slips import correct

KEY = "zarr.json"
PARTS = ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "dimension_names")
ARRAY_MEMBERS = frozenset((*PARTS, "zarr_format", "node_type", "attributes", "storage_transformers"))
GROUP_MEMBERS = frozenset(("zarr_format", "node_type", "attributes", "consolidated_metadata"))
SEPARATORS = {"default": "/", "v2": "."}
# Parsed documents, by their content.
_known: ByContent[Parts] = ByContent()


def parse_node(documents: Mapping[str, Any], path: str) -> ArrayModel | GroupModel:
    """Parse the document of an array or group, {"zarr.json": document}.

    Raises
        MetadataError, UnsupportedError: as `parse_array` and `parse_group`; a node_type that is neither.
    """
    document = documents[KEY]
    node_type = document.get("node_type") if isinstance(document, dict) else None
    if node_type == "array":
        return parse_array(documents, path=path)
    if node_type == "group":
        return parse_group(documents, path=path)
    if not isinstance(document, dict):
        raise MetadataError(f"document is {document!r}; expected an object", path=path, key=KEY)
    raise MetadataError(f"node_type is {node_type!r}; expected 'array' or 'group'", path=path, key=KEY)


def parse_array(documents: Mapping[str, Any], *, path: str) -> ArrayModel:
    """Parse the document of an array, {"zarr.json": document}.

    Raises
        MetadataError: a member is missing, malformed or contradicts another.
        UnsupportedError: a data type, chunk grid, chunk-key encoding, storage transformer or unknown member
            that zstore does not have and must not ignore.
    """
    try:
        return _parse_array(documents[KEY])
    except ZstoreError as error:
        error.locate(path=path, key=KEY)
        raise


def _parse_array(document: Mapping[str, Any]) -> ArrayModel:
    get = document.get
    _check_head(document, "array")
    parts = _known.get(
        {name: document[name] for name in PARTS if name in document}, _parse_parts, Parts.may_be_shared
    )
    transformers = get("storage_transformers")
    if transformers:
        _refuse_transformers(transformers)
    attributes = _parse_attributes(get("attributes", {}))
    return parts.make(3, attributes, _parse_extra(document, ARRAY_MEMBERS))


def _parse_parts(members: Mapping[str, Any]) -> Parts:
    members = correct(members, 3)
    shape = parse_shape(require(members, "shape"))
    data_type = DataType.from_name(require(members, "data_type"))
    grid = _parse_grid(require(members, "chunk_grid"), shape)
    check_chunk_size(grid.chunk_shape, data_type.numpy.itemsize)
    keys = _parse_keys(require(members, "chunk_key_encoding"))
    codecs = _parse_codecs(require(members, "codecs"))
    fill_value = data_type.parse_fill(require(members, "fill_value"), 3, _find_order(codecs))
    names = _parse_dimension_names(members.get("dimension_names"), shape)
    return Parts(shape, data_type, grid, keys, codecs, fill_value, names)


def parse_group(documents: Mapping[str, Any], *, path: str) -> GroupModel:
    """Parse the document of a group, {"zarr.json": document}.

    Raises
        MetadataError: a member is malformed, or consolidated metadata names a path outside the group.
        UnsupportedError: an unknown member that must not be ignored.
    """
    try:
        document = documents[KEY]
        _check_head(document, "group")
        return GroupModel(
            3,
            _parse_attributes(document.get("attributes", {})),
            _parse_consolidated(document.get("consolidated_metadata"), path),
            _parse_extra(document, GROUP_MEMBERS),
        )
    except ZstoreError as error:
        error.locate(path=path, key=KEY)
        raise


def _check_head(document: Any, node_type: str) -> None:
    check_format(document, 3)
    if require(document, "node_type") != node_type:
        raise MetadataError(f"node_type is {document['node_type']!r}; expected {node_type!r}")


def _parse_extension(value: Any, what: str) -> tuple[str, Mapping[str, Any], bool]:
    """(name, configuration, must_understand) of an extension object or its short-hand name."""
    if isinstance(value, str) and value:
        return value, {}, True
    if not isinstance(value, dict):
        raise MetadataError(f"{what} is {value!r}; expected a name or an object with a name")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise MetadataError(f"{what} has the name {name!r}; expected a string")
    configuration = value.get("configuration", {})
    if not isinstance(configuration, dict):
        raise MetadataError(f"configuration of {what} {name!r} is {configuration!r}; expected an object")
    must_understand = value.get("must_understand", True)
    if not isinstance(must_understand, bool):
        raise MetadataError(
            f"must_understand of {what} {name!r} is {must_understand!r}; expected true or false"
        )
    if len(value) > 1:
        unknown = value.keys() - {"name", "configuration", "must_understand"}
        if unknown:
            raise MetadataError(
                f"{what} {name!r} has the member {min(unknown)!r}; "
                f"expected name, configuration, must_understand"
            )
    return name, configuration, must_understand


def _parse_point(value: Any, what: str) -> tuple[str, Mapping[str, Any]]:
    """(name, configuration) of an extension that no reader may ignore."""
    name, configuration, must_understand = _parse_extension(value, what)
    if not must_understand:
        raise MetadataError(f"{what} {name!r} has must_understand false; no reader can do without it")
    return name, configuration


def _parse_grid(value: Any, shape: tuple[int, ...]) -> Grid:
    name, configuration = _parse_point(value, "chunk_grid")
    if name == "rectilinear":
        if configuration.keys() != {"kind", "chunk_shapes"} or configuration["kind"] != "inline":
            raise MetadataError(
                f"configuration of chunk_grid 'rectilinear' is {configuration!r}; "
                "expected chunk_shapes and the kind 'inline' only"
            )
        return RectilinearGrid.parse(configuration["chunk_shapes"], shape)
    if name != "regular":
        raise UnsupportedError(
            f"chunk_grid {name!r} is not supported; zstore has 'regular' and 'rectilinear'"
        )
    if configuration.keys() != {"chunk_shape"}:
        raise MetadataError(
            f"configuration of chunk_grid 'regular' is {configuration!r}; expected chunk_shape only"
        )
    return RegularGrid(parse_chunk_shape(configuration["chunk_shape"], shape))


def _parse_keys(value: Any) -> ChunkKeys:
    name, configuration = _parse_point(value, "chunk_key_encoding")
    if name not in SEPARATORS:
        raise UnsupportedError(f"chunk_key_encoding {name!r} is not supported; zstore has 'default' and 'v2'")
    separator = configuration.get("separator", SEPARATORS[name])
    if separator not in ("/", "."):
        raise MetadataError(f"separator of chunk_key_encoding {name!r} is {separator!r}; expected '/' or '.'")
    if configuration.keys() - {"separator"}:
        raise MetadataError(
            f"configuration of chunk_key_encoding {name!r} is {configuration!r}; expected separator only"
        )
    return ChunkKeys(name, separator)


def _parse_codecs(value: Any) -> tuple[CodecModel, ...]:
    if not isinstance(value, list) or not value:
        raise MetadataError(f"codecs is {value!r}; expected a list of at least one codec")
    return tuple(CodecModel(*_parse_extension(item, "codec")) for item in value)


def _find_order(codecs: Iterable[CodecModel]) -> Order:
    """The byte order of the items, also that of fill values in Base64; little if the codecs have none."""
    for codec in codecs:
        if codec.name == "bytes":
            return "big" if codec.configuration.get("endian") == "big" else "little"
        if codec.name == "sharding_indexed" and isinstance(codec.configuration.get("codecs"), list):
            inner = codec.configuration["codecs"]
            return _find_order(CodecModel(*_parse_extension(item, "codec")) for item in inner)
    return "little"


def _refuse_transformers(value: Any) -> None:
    if not isinstance(value, list):
        raise MetadataError(f"storage_transformers is {value!r}; expected a list")
    names = ", ".join(repr(_parse_extension(item, "storage transformer")[0]) for item in value)
    raise UnsupportedError(f"storage transformer {names} is not supported; zstore has none")


def _parse_attributes(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise MetadataError(f"attributes is {value!r}; expected an object")


def _parse_dimension_names(value: Any, shape: tuple[int, ...]) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(name is None or isinstance(name, str) for name in value):
        raise MetadataError(f"dimension_names is {value!r}; expected a list of strings and nulls")
    if len(value) != len(shape):
        raise MetadataError(
            f"dimension_names is {value!r}; expected {len(shape)} names as in shape {list(shape)}"
        )
    return tuple(value)


def _parse_extra(document: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The unknown members that a reader may ignore."""
    names = document.keys() - known
    if not names:
        return {}
    extra = {}
    for name in document:
        if name not in names:
            continue
        value = document[name]
        if not isinstance(value, dict) or value.get("must_understand") is not False:
            raise UnsupportedError(
                f"member {name!r} is not supported, and does not say must_understand false"
            )
        extra[name] = value
    return extra


def _parse_consolidated(value: Any, path: str) -> Consolidated | None:
    # Some releases of zarr-python write null for no consolidated metadata.
    if value is None:
        return None
    if (
        not isinstance(value, dict)
        or value.get("kind") != "inline"
        or value.get("must_understand") is not False
    ):
        raise MetadataError(
            "consolidated_metadata is malformed; expected kind 'inline' and must_understand false"
        )
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise MetadataError(f"metadata in consolidated_metadata is {metadata!r}; expected an object")
    documents = {check_node_path(name, where=path): {KEY: document} for name, document in metadata.items()}
    return Consolidated(documents, parse_node, base=path)


def render_array(model: ArrayModel) -> dict[str, dict[str, Any]]:
    """Render the document of an array, {"zarr.json": document}: the inverse of `parse_array`."""
    document: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(model.shape),
        "data_type": model.data_type.render_name(),
        "chunk_grid": _render_grid(model.grid),
        "chunk_key_encoding": {"name": model.keys.name, "configuration": {"separator": model.keys.separator}},
        "fill_value": model.data_type.render_fill(model.fill_value, 3, _find_order(model.codecs)),
        "codecs": [_render_codec(codec) for codec in model.codecs],
        "attributes": dict(model.attributes),
    }
    if model.dimension_names is not None:
        document["dimension_names"] = list(model.dimension_names)
    document.update(model.extra)
    return {KEY: document}


def _render_grid(grid: Grid) -> dict[str, Any]:
    if isinstance(grid, RegularGrid):
        return {"name": "regular", "configuration": {"chunk_shape": list(grid.chunk_shape)}}
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": grid.render()}}


def _render_codec(codec: CodecModel) -> dict[str, Any]:
    if codec.name == "zstore.bytes_by_field":
        raise UnsupportedError(
            "fields of different byte orders cannot be said in Zarr v3; expected one for all"
        )
    return codec.describe()


def render_group(model: GroupModel) -> dict[str, dict[str, Any]]:
    """Render the document of a group, {"zarr.json": document}: the inverse of `parse_group`."""
    document: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": dict(model.attributes)}
    document.update(model.extra)
    if model.consolidated is not None:
        below = Consolidated.documents_of(model.consolidated, render_array, render_group)
        document["consolidated_metadata"] = {
            "kind": "inline",
            "must_understand": False,
            "metadata": {path: documents[KEY] for path, documents in below.items()},
        }
    return {KEY: document}

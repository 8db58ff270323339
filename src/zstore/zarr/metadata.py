"""Metadata of arrays and groups as zarr-python shows them, made of zstore's models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zstore.codecs.numcodecs import numcodecs_object
from zstore.engine.documents import render_node
from zstore.model import v2, v3
from zstore.model.array import ArrayModel, byte_order
from zstore.model.grid import RegularGrid
from zstore.model.group import GroupModel
from zstore.zarr.codecs import as_codec
from zstore.zarr.dtype import ZDType, of_model

__all__ = [
    "ArrayV2Metadata",
    "ArrayV3Metadata",
    "ConsolidatedMetadata",
    "DefaultChunkKeyEncoding",
    "GroupMetadata",
    "RectilinearChunkGridMetadata",
    "RegularChunkGridMetadata",
    "V2ChunkKeyEncoding",
]


@dataclass(frozen=True)
class RegularChunkGridMetadata:
    """A grid of chunks of one shape."""

    chunk_shape: tuple[int, ...]


@dataclass(frozen=True)
class RectilinearChunkGridMetadata:
    """A grid with a list of chunk lengths for each dimension."""

    chunk_shapes: tuple[Any, ...]


@dataclass(frozen=True)
class DefaultChunkKeyEncoding:
    """Keys of chunks that begin with "c"."""

    separator: str = "/"
    name: ClassVar[str] = "default"


@dataclass(frozen=True)
class V2ChunkKeyEncoding(DefaultChunkKeyEncoding):
    """Keys of chunks as Zarr v2 has them."""

    separator: str = "."
    name: ClassVar[str] = "v2"


class _ArrayMetadata:
    """The part that metadata of both formats have."""

    document: dict[str, Any]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """The document, attributes included; lists are tuples, as zarr-python has them."""
        return _as_tuples(self.document)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class ArrayV3Metadata(_ArrayMetadata):
    """The metadata of a v3 array."""

    shape: tuple[int, ...]
    data_type: ZDType
    chunk_grid: Any
    chunk_key_encoding: DefaultChunkKeyEncoding
    fill_value: Any
    codecs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    zarr_format: int = 3
    node_type: str = "array"
    storage_transformers: tuple[Any, ...] = ()
    extra_fields: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(repr=False, compare=False)

    @property
    def dtype(self) -> ZDType:
        """The data type."""
        return self.data_type

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of the chunks, or of shards."""
        return self.chunk_grid.chunk_shape  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArrayV3Metadata:
        """The metadata of a document.

        Raises
            MetadataError: it is malformed.
        """
        return of_array(model_of({**data, "zarr_format": 3}))  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class ArrayV2Metadata(_ArrayMetadata):
    """The metadata of a v2 array."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: ZDType
    fill_value: Any
    order: str = "C"
    filters: tuple[Any, ...] | None = None
    dimension_separator: str = "."
    compressor: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: int = 2
    document: dict[str, Any] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """As `_ArrayMetadata.to_dict`, but for the filters, which are a list in zarr-python, too."""
        made = super().to_dict()
        return {**made, "filters": list(made["filters"])} if made.get("filters") else made

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArrayV2Metadata:
        """The metadata of a document that has the attributes, too.

        Raises
            MetadataError: it is malformed.
        """
        return of_array(model_of({**data, "zarr_format": 2}))  # type: ignore[return-value]


@dataclass(frozen=True)
class ConsolidatedMetadata:
    """The metadata of all nodes below a group, each in that of the group it is in."""

    metadata: dict[str, Any]
    kind: str = "inline"
    must_understand: bool = False

    @property
    def flattened_metadata(self) -> dict[str, Any]:
        """The metadata by path, "a/b" for a node in a group."""
        flat: dict[str, Any] = {}
        for name, one in self.metadata.items():
            below = getattr(one, "consolidated_metadata", None)
            flat[name] = GroupMetadata(one.attributes, one.zarr_format) if below is not None else one
            if below is not None:
                flat |= {f"{name}/{path}": node for path, node in below.flattened_metadata.items()}
        return flat

    def to_dict(self) -> dict[str, Any]:
        """The member of a v3 document."""
        metadata = {path: one.to_dict() for path, one in self.flattened_metadata.items()}
        return {"kind": self.kind, "must_understand": self.must_understand, "metadata": metadata}


@dataclass(frozen=True)
class GroupMetadata:
    """The metadata of a group."""

    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: int = 3
    consolidated_metadata: ConsolidatedMetadata | None = None
    node_type: str = "group"
    extra_fields: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The document, attributes included."""
        document: dict[str, Any] = {"attributes": dict(self.attributes), "zarr_format": self.zarr_format}
        if self.consolidated_metadata is not None:
            document["consolidated_metadata"] = self.consolidated_metadata.to_dict()
        return {**document, "node_type": self.node_type}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GroupMetadata:
        """The metadata of a document.

        Raises
            MetadataError: it is malformed.
        """
        return of_group(v3.parse_group({v3.KEY: {"node_type": "group", **_as_lists(data)}}, path=""))


def model_of(data: Mapping[str, Any]) -> ArrayModel:
    """zstore's model of an array's document; that of Zarr v2 has the attributes, too.

    Raises
        MetadataError, UnsupportedError: it is malformed, or has something that zstore does not know.
    """
    document = _as_lists(data)
    if document["zarr_format"] == 3:
        return v3.parse_array({v3.KEY: document}, path="")
    attributes = document.pop("attributes", {})
    return v2.parse_array({v2.ARRAY_KEY: document, v2.ATTRIBUTES_KEY: attributes}, path="")


def of_node(model: ArrayModel | GroupModel) -> Any:
    """The metadata of a node, by zstore's model of it."""
    return of_array(model) if isinstance(model, ArrayModel) else of_group(model)


def of_array(model: ArrayModel) -> ArrayV2Metadata | ArrayV3Metadata:
    """The metadata of an array, by zstore's model of it."""
    documents = render_node(model)
    if model.zarr_format != 3:
        return _of_v2(model, documents)
    document = {**documents[v3.KEY], "storage_transformers": []}
    grid = model.grid
    keys = DefaultChunkKeyEncoding if model.keys.name == "default" else V2ChunkKeyEncoding
    return ArrayV3Metadata(
        shape=model.shape,
        data_type=of_model(model.data_type, byte_order(model.codecs)),
        chunk_grid=RegularChunkGridMetadata(grid.chunk_shape)
        if isinstance(grid, RegularGrid)
        else RectilinearChunkGridMetadata(_as_tuples(grid.render())),
        chunk_key_encoding=keys(model.keys.separator),
        fill_value=model.fill_value,
        codecs=tuple(map(as_codec, model.codecs)),
        attributes=dict(model.attributes),
        dimension_names=model.dimension_names,
        extra_fields=dict(model.extra),
        document=document,
    )


def _of_v2(model: ArrayModel, documents: Mapping[str, Any]) -> ArrayV2Metadata:
    document = dict(documents.get(v2.ARRAY_KEY) or next(iter(documents.values())))
    attributes = dict(documents.get(v2.ATTRIBUTES_KEY, {}))
    made = [*map(numcodecs_object, document.get("filters") or ())]
    compressor = document.get("compressor")
    return ArrayV2Metadata(
        shape=model.shape,
        chunks=model.grid.chunk_shape,
        dtype=of_model(model.data_type, byte_order(model.codecs)),
        fill_value=model.fill_value,
        order=document.get("order", "C"),
        filters=tuple(made) or None,
        dimension_separator=model.keys.separator,
        compressor=None if compressor is None else numcodecs_object(compressor),
        attributes=attributes,
        document={**document, "attributes": attributes},
    )


def of_group(model: GroupModel) -> GroupMetadata:
    """The metadata of a group, by zstore's model of it."""
    below = model.consolidated
    consolidated = None if below is None else ConsolidatedMetadata(_nested(below))
    return GroupMetadata(
        dict(model.attributes), model.zarr_format, consolidated, extra_fields=dict(model.extra)
    )


def _nested(below: Mapping[str, ArrayModel | GroupModel]) -> dict[str, Any]:
    """The metadata of the children of a group, each group's children within it."""
    made = dict[str, Any]()
    for name in sorted(path for path in below if "/" not in path):
        model = below[name]
        if isinstance(model, GroupModel):
            inner = {
                path.removeprefix(f"{name}/"): below[path] for path in below if path.startswith(f"{name}/")
            }
            made[name] = GroupMetadata(
                dict(model.attributes), model.zarr_format, ConsolidatedMetadata(_nested(inner))
            )
        else:
            made[name] = of_array(model)
    return made


def _each(value: Any, listed: Callable[[Iterable[Any]], Any]) -> Any:
    if isinstance(value, Mapping):
        return {name: item if name == "attributes" else _each(item, listed) for name, item in value.items()}
    return listed(_each(item, listed) for item in value) if isinstance(value, list | tuple) else value


def _as_tuples(value: Any) -> Any:
    return _each(value, tuple)


def _as_lists(value: Any) -> Any:
    return _each(value, list)

"""Creating arrays and hierarchies in a store, after checking that their metadata and codecs are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from zstore.base.once import ByContent, ByIdentity
from zstore.codecs.base import Chain, ChunkSpec
from zstore.codecs.forms import MEANT, complete_chain, complete_v2, read_codecs
from zstore.engine.documents import check_own, check_path, place, publish_nodes
from zstore.engine.making import create_node
from zstore.errors import MetadataError, UnsupportedError, ZstoreError, located
from zstore.model import v1, v2, v3
from zstore.model.array import ArrayModel, CodecModel, ZarrFormat, bytes_codec, order_codecs
from zstore.model.document import check_attributes, parse_json, render_json, spelled
from zstore.model.dtype import DataType, Order, order_of, refuse, stored_dtype
from zstore.model.grid import (
    ChunkKeys,
    check_chunk_size,
    choose_grid,
    lengths_by_name,
    parse_integers,
    parse_shape,
)
from zstore.model.group import GroupModel
from zstore.model.translate import to_v2
from zstore.model.typestr import OBJECT_CODECS
from zstore.nodes.advice import OPTION_ADVICE
from zstore.nodes.array import Array
from zstore.nodes.node import Access
from zstore.storage.base import Store, join_key

Codecs: TypeAlias = tuple[CodecModel, ...]
ZSTD = CodecModel("zstd", MEANT["zstd"])
NUMCODECS_ZSTD = CodecModel("numcodecs.zstd", MEANT["numcodecs.zstd"])
CRC32C = CodecModel("crc32c")
# The default of Zarr v1's own writer; its readers do not know zstd.
V1_COMPRESSOR = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayRequest:
    """The arguments of `zstore.create_array` that describe the array."""

    shape: Any = None
    dtype: Any = None
    data: Any = None
    chunks: Any = "auto"
    shards: Any = None
    filters: Any = "auto"
    compressors: Any = "auto"
    serializer: Any = "auto"
    checksum: bool = False
    fill_value: Any = "auto"
    order: str = "C"
    zarr_format: ZarrFormat = 3
    attributes: Mapping[str, Any] | None = None
    chunk_key_encoding: Any = None
    dimension_names: Iterable[str | None] | None = None

    def complete(self) -> ArrayRequest:
        """The request with `data` as a numpy array, and with its shape and dtype.

        Raises
            MetadataError: a shape that is not the data's was given as well, or no shape or dtype and no data.
        """
        shape, dtype = self.shape, self.dtype
        if self.data is None:
            if shape is None or dtype is None:
                raise MetadataError(f"shape is {shape!r} and dtype is {dtype!r}; expected both, or data")
            return self
        data = np.asarray(self.data)
        if shape is not None and (tuple(shape) if isinstance(shape, Iterable) else (shape,)) != data.shape:
            raise MetadataError(f"shape is {shape!r}; expected {data.shape} as the data has")
        return replace(self, data=data, shape=data.shape, dtype=data.dtype if dtype is None else dtype)

    def model(self) -> ArrayModel:
        """The model of the new array; attributes are not checked.

        Raises
            MetadataError: arguments that are malformed or contradict each other.
            UnsupportedError: a dtype or combination that the format or zstore does not have.
        """
        if self.zarr_format not in (1, 2, 3):
            raise UnsupportedError(f"zarr_format is {self.zarr_format!r}; zstore writes 1, 2 and 3")
        if self.zarr_format == 1:
            if self.checksum:
                raise UnsupportedError(
                    "checksum=True cannot be said in Zarr v1, which has no filters; "
                    "expected Zarr v2 or v3, or zlib, which has a checksum of its own"
                )
            # v1 is a subset of v2; its renderer refuses what v1 does not have.
            with v1.as_v1():
                return self._model(2)
        return self._model(self.zarr_format)

    def _model(self, zarr_format: ZarrFormat) -> ArrayModel:
        """The model, made as for that format."""
        shape = parse_shape([int(n) for n in parse_integers(self.shape, "shape")])
        data_type, endian = _data_type(self.dtype, _codec_names(self.filters, self.serializer), zarr_format)
        item_size = data_type.numpy.itemsize
        if self.order not in ("C", "F"):
            raise MetadataError(f"order is {self.order!r}; expected 'C' or 'F'")
        names = _dimension_names(self.dimension_names, shape)
        whole = tuple(max(1, n) for n in shape)
        chunks = lengths_by_name(self.chunks, names, shape, whole, item_size)
        beside = chunks if isinstance(chunks, tuple) else whole
        shards = lengths_by_name(self.shards, names, shape, beside, item_size)
        grid, chunk_shape = choose_grid(chunks, shards, shape, item_size, zarr_format)
        check_chunk_size(grid.chunk_shape, item_size)
        fill_value = _fill_value(self.fill_value, data_type, zarr_format)
        spec = ChunkSpec(chunk_shape or grid.chunk_shape, data_type.numpy, fill_value)
        make_chain = _v2_chain if zarr_format == 2 else _v3_chain
        chain = make_chain(self, endian, data_type, spec)
        if chunk_shape is not None:
            chain = (_sharding(chunk_shape, chain),)
        return ArrayModel(
            self.zarr_format,
            shape,
            data_type,
            grid,
            _chunk_keys(self.chunk_key_encoding, zarr_format),
            chain,
            fill_value,
            {} if self.attributes is None else self.attributes,
            names,
        )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _read(value: Any, default: tuple[CodecModel, ...], zarr_format: int) -> tuple[CodecModel, ...]:
    return default if _is_auto(value) else read_codecs(value, zarr_format)


def _codec_names(*arguments: Any) -> Iterator[str]:
    """The names of all codecs in these arguments."""
    return (codec.name for value in arguments for codec in _read(value, (), 3))


def _sharding(chunk_shape: tuple[int, ...], chain: tuple[CodecModel, ...]) -> CodecModel:
    return CodecModel(
        "sharding_indexed",
        {
            "chunk_shape": list(chunk_shape),
            "codecs": [codec.describe() for codec in chain],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        },
    )


def _v3_chain(request: ArrayRequest, endian: Order, data_type: DataType, spec: ChunkSpec) -> Codecs:
    default = CodecModel(_object_codec(data_type)) if data_type.is_object else bytes_codec(endian)
    chain = order_codecs(request.order, len(spec.shape)) + _read(request.filters, (), 3)
    chain += _read(request.serializer, (default,), 3) + _read(request.compressors, (ZSTD,), 3)
    if request.checksum and not _has_crc32c(chain):
        chain += (CRC32C,)
    given = (request.filters, request.serializer, request.compressors)
    # Codecs from documents, and the defaults here, already have all options.
    return chain if all(map(_is_complete, given)) else complete_chain(chain, spec)


def _is_complete(value: Any) -> bool:
    listed = value if isinstance(value, list | tuple) else [value]
    return value is None or _is_auto(value) or all(isinstance(codec, CodecModel) for codec in listed)


def _has_crc32c(chain: Codecs) -> bool:
    return any(codec.name.removeprefix("numcodecs.") == CRC32C.name for codec in chain)


def _v2_chain(request: ArrayRequest, endian: Order, data_type: DataType, spec: ChunkSpec) -> Codecs:
    """The chain of a v2 array, which has only numcodecs' codecs, and at most one compressor."""
    serializer, compressors = request.serializer, request.compressors
    if not isinstance(serializer, str) or serializer not in ("auto", "bytes"):
        raise UnsupportedError(f"serializer {serializer!r} cannot be said in Zarr v2; it has 'bytes' only")
    if request.zarr_format == 1 and isinstance(compressors, str) and compressors == "auto":
        compressors = V1_COMPRESSOR
    compressor = _read(compressors, (NUMCODECS_ZSTD,), 2)
    if len(compressor) > 1:
        names = [codec.name for codec in compressor]
        raise UnsupportedError(
            f"compressors {names} cannot be said in Zarr v2; it has one only, the others are filters"
        )
    filter_codecs = _read(request.filters, (), 2)
    if not _is_complete(request.filters):
        filter_codecs = complete_v2(filter_codecs, stored_dtype(spec.dtype, endian))
    if not _is_complete(compressors):
        compressor = complete_v2(compressor, np.dtype("u1"))
    chain = order_codecs(request.order, len(spec.shape))
    chain += () if data_type.is_object else (bytes_codec(endian),)
    if data_type.is_object and not any(
        codec.name.removeprefix("numcodecs.") in OBJECT_CODECS for codec in filter_codecs
    ):
        filter_codecs = (CodecModel("numcodecs." + _object_codec(data_type)), *filter_codecs)
    if request.checksum and not _has_crc32c((*filter_codecs, *compressor)):
        filter_codecs += (to_v2(CRC32C),)
    chain += tuple(replace(codec, role="filter") for codec in filter_codecs)
    return chain + tuple(replace(codec, role="compressor") for codec in compressor)


def _object_codec(data_type: DataType) -> str:
    """The default codec for objects of a data type: only strings and bytes have one."""
    for codec, name in OBJECT_CODECS.items():
        if name == data_type.name != "object":
            return codec
    raise UnsupportedError(
        f"data type {data_type.name!r} needs a codec for objects: {', '.join(OBJECT_CODECS)}"
    )


def _chunk_keys(value: Any, zarr_format: int) -> ChunkKeys:
    if isinstance(value, ChunkKeys):
        return value
    default = "v2" if zarr_format == 2 else "default"
    if value is None:
        name, separator = default, None
    elif isinstance(value, str):
        name, separator = (default, value) if value in ("/", ".") else (value, None)
    elif isinstance(value, tuple) and len(value) == 2:
        name, separator = value
    elif isinstance(value, Mapping):
        configuration = value.get("configuration", value)
        name, separator = value.get("name", default), configuration.get("separator")
    else:
        raise MetadataError(
            f"chunk_key_encoding is {value!r}; expected a name, (name, separator) or an object"
        )
    if name not in ("default", "v2") or (zarr_format == 2 and name != "v2"):
        expected = "'v2'" if zarr_format == 2 else "'default' or 'v2'"
        raise UnsupportedError(
            f"chunk_key_encoding {name!r} is not one of Zarr v{zarr_format}; expected {expected}"
        )
    if separator is None:
        separator = "/" if name == "default" else "."
    if separator not in ("/", "."):
        raise MetadataError(f"separator of chunk_key_encoding is {separator!r}; expected '/' or '.'")
    return ChunkKeys(name, separator)


def _dimension_names(
    value: Iterable[str | None] | None, shape: tuple[int, ...]
) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    if len(names) != len(shape) or not all(name is None or isinstance(name, str) for name in names):
        raise MetadataError(f"dimension_names is {value!r}; expected {len(shape)} names as in shape {shape}")
    return names


def _data_type(dtype: Any, codecs: Iterable[str], zarr_format: int) -> tuple[DataType, Order]:
    """The data type that `dtype` names, and the byte order to store it in.

    `str` and `bytes` (numpy's "U" and "S" without a length) are strings and bytes of any length; `object` is
    the type that the object codec among the names in `codecs` encodes. Any name that numpy does not know is
    taken for one of Zarr v3.

    Raises
        MetadataError: None, which numpy takes for float64.
        UnsupportedError: no dtype that zstore has, or objects without a codec for them.
    """
    if dtype is None:
        raise MetadataError("dtype is None; expected a dtype, which numpy would otherwise take for float64")
    if isinstance(dtype, DataType):
        return dtype, _stored_order(dtype, "little")
    if isinstance(dtype, Mapping) and "name" in dtype:
        named = DataType.from_name(dtype)
        return named, _stored_order(named, "little")
    try:
        given = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        if not isinstance(dtype, str):
            raise UnsupportedError(f"dtype {dtype!r} is not supported: {error}") from None
        named = DataType.from_name(dtype)
        return named, _stored_order(named, "little")
    if given.kind == "O":
        return _object_type(codecs), None
    if given.kind in "SU" and not given.itemsize:
        return DataType.from_name("string" if given.kind == "U" else "bytes"), None
    order = order_of(given)
    data_type = DataType.from_numpy(given)
    # Zarr v3 has one order for all fields.
    return data_type, "little" if isinstance(order, list) and zarr_format == 3 else order


def _stored_order(data_type: DataType, order: str) -> Order:
    return None if data_type.is_object or order_of(data_type.numpy) is None else order


def _object_type(codecs: Iterable[str]) -> DataType:
    for name in codecs:
        known = OBJECT_CODECS.get(name.removeprefix("numcodecs."))
        if known is not None:
            return DataType.restore(known)
    raise UnsupportedError(
        "dtype object does not say what its items are; expected str, bytes, "
        f"or a codec for objects: {', '.join(OBJECT_CODECS)}"
    )


def _fill_value(value: Any, data_type: DataType, zarr_format: int) -> Any:
    """A caller's fill value as a scalar of the data type; "auto" is the default of the type.

    Raises
        MetadataError: not a value of the type, or one that would be changed on the way.
    """
    if _is_auto(value):
        return data_type.default_fill()
    if value is None:
        return None if zarr_format == 2 else data_type.default_fill()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if data_type.is_object:
        return _make_object(value, data_type)
    dtype = data_type.numpy
    if isinstance(value, np.generic) and value.dtype == dtype:
        return value
    if dtype.kind in "Mm":
        return _make_time(value, data_type, zarr_format)
    if dtype.names is not None and isinstance(value, tuple | Mapping | np.void):
        return _make_struct(value, dtype)
    if isinstance(value, np.generic) and value.dtype.kind not in "VMm":
        value = value.item()
    if dtype.kind == "S" or dtype.type is np.void:
        return _make_bytes(value, data_type, zarr_format)
    if dtype.kind == "b" and not isinstance(value, bool) and value in (0, 1):
        value = bool(value)
    elif dtype.kind in "cW" and isinstance(value, int | float | complex):
        value = [complex(value).real, complex(value).imag]
    elif dtype.kind == "U" and isinstance(value, int) and value == 0:
        value = ""
    return data_type.parse_fill(value, zarr_format)


def _refusal(value: Any, data_type: DataType, expected: str) -> MetadataError:
    return refuse(value, data_type.name, expected)


def _make_object(value: Any, data_type: DataType) -> Any:
    if data_type.name == "string":
        return data_type.parse_fill("" if type(value) is int and value == 0 else value, 3)
    if data_type.name == "bytes":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise _refusal(value, data_type, "bytes")
    return value


def _make_bytes(value: Any, data_type: DataType, zarr_format: int) -> Any:
    """A fill value of bytes or structured items: bytes, ASCII text (for "S"), or a document's form of it."""
    if data_type.numpy.kind == "S" and isinstance(value, str) and value.isascii():
        value = value.encode()
    if isinstance(value, np.void):
        value = value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        value = list(bytes(value))
        if data_type.numpy.names is not None:
            if len(value) != data_type.numpy.itemsize:
                raise _refusal(bytes(value), data_type, f"{data_type.numpy.itemsize} bytes")
            return np.frombuffer(bytes(value), data_type.numpy)[0]
    elif type(value) is int and value == 0:
        return np.zeros(1, data_type.numpy)[0]
    return data_type.parse_fill(value, zarr_format)


def _make_time(value: Any, data_type: DataType, zarr_format: int) -> Any:
    dtype = data_type.numpy
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    # Handled here because newer releases of numpy deprecate times without a unit.
    if isinstance(value, str) and value.lower() in ("nat", ""):
        return data_type.parse_fill("NaT", zarr_format)
    is_count = isinstance(value, np.integer) and not isinstance(value, np.timedelta64)
    if dtype.kind == "m":
        is_count |= isinstance(value, bool) or (isinstance(value, str) and value.lstrip("+-").isdecimal())
    if is_count:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return data_type.parse_fill(value, zarr_format)
    if isinstance(value, list | tuple | np.ndarray):
        raise _refusal(value, data_type, "a time")
    try:
        given = np.asarray(value, None if isinstance(value, np.generic) else dtype.kind + "8")
    except (TypeError, ValueError) as error:
        raise _refusal(value, data_type, f"a time ({error})") from None
    if given.dtype.kind != dtype.kind:
        raise _refusal(value, data_type, "a time")
    made = given.astype(dtype)
    if not np.isnat(given) and (np.isnat(made) or made.astype(given.dtype) != given):
        raise _refusal(value, data_type, f"a whole number of the unit of {dtype}")
    return made[()]


def _make_struct(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, np.void) and value.dtype.names != dtype.names:
        raise MetadataError(f"fill_value has the fields {value.dtype.names}; expected {dtype.names}")
    try:
        if isinstance(value, np.void):
            return np.asarray(value).astype(dtype)[()]
        return np.array([_as_tuple(value, dtype)], dtype)[0]
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise refuse(value, dtype, f"a value for each field ({error})") from None


def _as_tuple(value: Any, dtype: np.dtype[Any]) -> Any:
    """A structured value with its mappings (by field name) turned into tuples, in nested fields too."""
    if not isinstance(value, Mapping) or dtype.names is None:
        return value
    if value.keys() != set(dtype.names):
        raise KeyError(f"fields {sorted(value)}")
    assert dtype.fields is not None
    return tuple(_as_tuple(value[name], dtype.fields[name][0]) for name in dtype.names)


Model = ArrayModel | GroupModel

# Members of a document that may be null, which means the same as leaving them out.
MERGED = ("consolidated_metadata", "dimension_names", "storage_transformers")

_bound: ByContent[bool] = ByContent()
# Models that were checked, by whether codecs may run code.
_bindable: dict[bool, ByIdentity[ArrayModel, None]] = {False: ByIdentity(), True: ByIdentity()}

# The types of values that mean what their bytes say; those of others may mean less.
PLAIN = {int, float, str, bool, type(None)}


def make_array(store: Store, path: str, request: ArrayRequest, access: Access, *, overwrite: bool) -> Array:
    """Store a new array's data, then its metadata; returns the array, opened with `access`.

    Codecs are checked before anything is written, so that an array that cannot work replaces nothing.

    Raises
        as `draft_array`; StoreError: as `create_node`.
    """
    request, model = _settle(store, path, request, access)
    fill: Callable[[Store], None] | None = None
    if request.data is not None:
        hidden, data = replace(access, is_published=False), request.data

        def fill(chunks: Store) -> None:
            Array(chunks, path, model, hidden)[...] = data

    create_node(store, path, model, overwrite=overwrite, fill=fill)
    return Array(store, path, model, access)


def draft_array(store: Store, path: str, request: ArrayRequest, access: Access) -> Array:
    """Store a new array's data without its metadata document: until that is written, no reader finds it.

    Raises
        MetadataError, UnsupportedError: what is asked for makes no array.
        MetadataError, UnknownExtensionError: codecs that do not exist, or do not fit together or the array.
        UnsupportedError: chunks would be pickled, and the caller does not allow that.
        StoreError: the store failed.
    """
    request, model = _settle(store, path, request, access)
    array = Array(store, path, model, replace(access, is_published=False))
    if request.data is not None:
        array[...] = request.data
    return array


def make_models(
    store: Store, base: str, nodes: Mapping[str, Any], zarr_format: ZarrFormat | None, access: Access
) -> dict[str, Model]:
    """The models of new nodes, by their paths in the store.

    `nodes` has each by its path below `base`: as a model, as a stored document (with "zarr_format" in it), as
    an object whose `to_dict` gives one (zarr-python's metadata), or as the options of `create_array` (of
    `create_group`, if there is no shape).

    Raises
        MetadataError, UnsupportedError: what is asked for makes no node.
        UnknownExtensionError: codecs that do not exist.
    """
    models: dict[str, Model] = {}
    alike: ByContent[Model] = ByContent()
    for below, wanted in nodes.items():
        path = join_key(base, check_path(below))
        if path in models:
            raise MetadataError(f"two nodes have the path {path!r}; expected one", path=place(store, path))
        models[path] = _make_model(store, path, wanted, zarr_format, access, alike)
    return models


def _make_model(
    store: Store,
    path: str,
    wanted: Any,
    zarr_format: ZarrFormat | None,
    access: Access,
    alike: ByContent[Model],
) -> Model:
    """The model of a new node; those of nodes `alike` are one, where they have no attributes."""
    where = place(store, path)
    if hasattr(wanted, "to_dict"):
        wanted = wanted.to_dict()
    if isinstance(wanted, Mapping) and "zarr_format" in wanted:
        wanted = _parse_document(wanted, where)
    if isinstance(wanted, GroupModel):
        return replace(wanted, consolidated=None)
    if isinstance(wanted, ArrayModel):
        with located(where):
            check_codecs(wanted, allow_pickle=access.allow_pickle)
        return wanted
    if not isinstance(wanted, Mapping) or "data" in wanted:
        raise MetadataError(
            f"node is {type(wanted).__name__}; expected metadata, or options of create_array without data",
            path=where,
        )
    options = dict(wanted)
    if "shape" in options:
        for name in options.keys() - {item.name for item in fields(ArrayRequest)}:
            expected = f"expected {OPTION_ADVICE.get(name, 'options of create_array')}"
            raise TypeError(f"an array has no option {name!r}; {expected} (at {where!r})")

        def settle(options: Mapping[str, Any]) -> Model:
            request = ArrayRequest(zarr_format=zarr_format or 3, **options)
            return _settle(store, path, request, access)[1]

        # Attributes are each array's own.
        return (
            settle(options)
            if "attributes" in options or not _is_plain(options)
            else alike.get(options, settle)
        )
    attributes = options.pop("attributes", None) or {}
    if options:
        raise MetadataError(f"a group has no {min(options)!r}; expected a shape, or attributes", path=where)
    return GroupModel(zarr_format or 3, check_attributes(attributes, path=where))


def _is_plain(value: Any) -> bool:
    """Whether a value is one of JSON's, or made of those."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return type(value) in PLAIN or (isinstance(value, tuple | list) and all(map(_is_plain, value)))


def _parse_document(document: Mapping[str, Any], where: str) -> Model:
    """The model of a node's document; it has the attributes in it, even for formats that store them apart."""
    # Through JSON, because zarr-python's documents have tuples for lists, and to refuse what JSON cannot say.
    document = parse_json(render_json(document), path=where, key="zarr.json")
    if document["zarr_format"] == 3:
        return v3.parse_node({v3.KEY: {k: v for k, v in document.items() if k not in MERGED or v}}, where)
    key = v2.ARRAY_KEY if "shape" in document else v2.GROUP_KEY
    own = {
        name: value for name, value in document.items() if name not in ("attributes", "node_type", *MERGED)
    }
    return v2.parse_node({key: own, v2.ATTRIBUTES_KEY: document.get("attributes") or {}}, where)


class NewNodes:
    """New nodes at and below a path, which readers cannot see until `publish` writes their documents.

    Paths are relative to it; "" is the node at that path itself.

    models  of the nodes, by their paths
    """

    def __init__(self, store: Store, base: str, zarr_format: ZarrFormat) -> None:
        self._store = store
        self._base = base
        self.zarr_format = zarr_format
        self.models: dict[str, ArrayModel | GroupModel] = {}

    def __contains__(self, path: str) -> bool:
        return path in self.models

    def add_group(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Add a group, but none of the groups above it.

        Raises
            MetadataError: attributes that JSON cannot represent.
        """
        where = place(self._store, join_key(self._base, path))
        self.models[path] = GroupModel(self.zarr_format, check_attributes(spelled(attributes), path=where))

    def add_array(self, path: str, **options: Any) -> Array:
        """Add an array and store its data, if any; returns the array. Options as of `create_array`.

        Raises
            as `draft_array`.
        """
        request = ArrayRequest(zarr_format=self.zarr_format, **options)
        request = replace(request, attributes=spelled(request.attributes))
        array = draft_array(self._store, join_key(self._base, path), request, Access())
        self.models[path] = array.model
        return array

    def check_own(self) -> None:
        """Check that nobody else has made nodes at these paths while the work was interrupted.

        Raises
            StoreError: somebody has.
        """
        check_own(self._store, self._base, self.models)

    def publish(self) -> None:
        """Write all documents: first those of arrays, then those of groups, from the deepest up.

        Raises
            StoreError: somebody else has made another node there meanwhile.
            ReadOnlyError, StoreError: the store refused.
        """
        publish_nodes(self._store, self._base, self.models)


def _settle(
    store: Store, path: str, request: ArrayRequest, access: Access
) -> tuple[ArrayRequest, ArrayModel]:
    """Complete a request (shape, dtype and attributes), and make the model of the array."""
    try:
        request = request.complete()
        if request.attributes:
            request = replace(
                request, attributes=check_attributes(request.attributes, path=place(store, path))
            )
        model = request.model()
        _check_codecs(model, allow_pickle=access.allow_pickle)
    except ZstoreError as error:
        error.locate(path=place(store, path))
        raise
    return request, model


def check_codecs(model: ArrayModel, *, allow_pickle: bool) -> None:
    """Check that the codecs can be bound to chunks of every shape; results are cached."""
    _bindable[bool(allow_pickle)].get(model, partial(_check_codecs, allow_pickle=allow_pickle))


def _check_codecs(model: ArrayModel, *, allow_pickle: bool) -> None:
    fill_value = model.effective_fill_value
    shapes = tuple(model.grid.shapes())
    names = [(codec.name, codec.configuration, codec.must_understand) for codec in model.codecs]

    def bind(_: Any) -> bool:
        for shape in shapes:
            Chain.bind(model.codecs, ChunkSpec(shape, model.dtype, fill_value, allow_pickle))
        return True

    if model.data_type.is_object or len(shapes) > 1:
        bind(None)
    else:
        fill = model.data_type.fill_bits(fill_value)
        # Much faster than `repr`, which only structured dtypes need.
        dtype = model.dtype.str if model.dtype.names is None else repr(model.dtype)
        _bound.get((names, shapes, dtype, fill, allow_pickle), bind)

"""The model of a new array, from the arguments of `create_array`: chunk shapes, codecs, fill value, keys.

Codecs may be named in any of the forms that people have at hand: a name, a v3 object {"name": …,
"configuration": …}, a v2 object {"id": …}, or a codec object of zstore, numcodecs or zarr-python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.array import ArrayModel, CodecModel
from zstore.model.dtype import DataType
from zstore.model.grid import RegularGrid
from zstore.model.keys import ChunkKeys
from zstore.model.shapes import check_chunk_size, parse_shape

__all__ = ["make_array_model"]

TARGET_SIZE = 1 << 20
# What a bare name means. zarr-python's default is zstd's own default level, which is 3. The checksum costs a
# few per cent, and without it a chunk with flipped bits can decode to wrong values; v2's zstd has none.
DEFAULTS: dict[str, dict[str, Any]] = {
    "zstd": {"level": 3, "checksum": True},
    "gzip": {"level": 5},
    "blosc": {"cname": "zstd", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
    "numcodecs.zstd": {"level": 3},
    "numcodecs.gzip": {"level": 5},
    "numcodecs.zlib": {"level": 1},
    "numcodecs.blosc": {"cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 0},
}
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


def make_array_model(
    *,
    shape: Any,
    dtype: Any,
    chunks: Any = "auto",
    shards: Any = None,
    filters: Any = "auto",
    compressors: Any = "auto",
    serializer: Any = "auto",
    fill_value: Any = "auto",
    order: str = "C",
    zarr_format: int = 3,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Iterable[str | None] | None = None,
) -> ArrayModel:
    """The array that these arguments describe; `attributes` are taken as they are.

    Raises
        MetadataError: arguments that are malformed or contradict each other.
        UnsupportedError: a dtype or combination that the format or zstore does not have.
    """
    if zarr_format not in (2, 3):
        raise UnsupportedError(f"zarr_format is {zarr_format!r}; zstore writes 2 and 3")
    shape = parse_shape([int(n) for n in _integers(shape, "shape")])
    data_type, endian = _parse_dtype(dtype)
    item_size = data_type.numpy.itemsize
    if order not in ("C", "F"):
        raise MetadataError(f"order is {order!r}; expected 'C' or 'F'")
    if shards is None:
        chunk_shape = grid_shape = _chunk_shape(chunks, shape, item_size)
    else:
        grid_shape, chunk_shape = _shard_shapes(shards, chunks, shape, item_size, zarr_format)
    check_chunk_size(grid_shape, item_size)
    if zarr_format == 2:
        chain = _v2_chain(filters, serializer, compressors, order, len(shape), endian, item_size)
    else:
        chain = _v3_chain(filters, serializer, compressors, order, len(shape), endian, item_size)
    if shards is not None:
        chain = (_sharding(chunk_shape, chain),)
    return ArrayModel(
        zarr_format,
        shape,
        data_type,
        RegularGrid(grid_shape),
        _chunk_keys(chunk_key_encoding, zarr_format),
        chain,
        _fill_value(fill_value, data_type, zarr_format),
        {} if attributes is None else attributes,
        _dimension_names(dimension_names, shape),
    )


def _integers(value: Any, name: str) -> tuple[Any, ...]:
    """`value` as a tuple of whole numbers (and None), a single one wrapped."""
    items = (value,) if isinstance(value, int | np.integer) else value
    if isinstance(items, Iterable) and not isinstance(items, str | bytes):
        items = tuple(items)
        if all(item is None or _is_integer(item) for item in items):
            return items
    raise MetadataError(f"{name} is {value!r}; expected an integer or a sequence of integers")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _parse_dtype(dtype: Any) -> tuple[DataType, str]:
    """(data type, byte order to store it in)."""
    if isinstance(dtype, DataType):
        return dtype, "little"
    if dtype is None:
        raise MetadataError("dtype is None; expected a dtype, which numpy would otherwise take for float64")
    try:
        given = np.dtype(dtype)
    except TypeError as error:
        raise UnsupportedError(f"dtype {dtype!r} is not supported: {error}") from None
    return DataType.from_numpy(given), "big" if given.str[0] == ">" else "little"


def _chunk_shape(chunks: Any, shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    if isinstance(chunks, str) and chunks == "auto":
        return _guess_chunk_shape(shape, item_size)
    lengths = _integers(chunks, "chunks")
    if isinstance(chunks, int | np.integer):
        lengths *= len(shape)
    if len(lengths) != len(shape):
        raise MetadataError(f"chunks is {chunks!r}; expected {len(shape)} lengths as in shape {shape}")
    whole = [max(1, n) if c is None or c == -1 else int(c) for c, n in zip(lengths, shape, strict=True)]
    if any(length < 1 for length in whole):
        raise MetadataError(
            f"chunks is {chunks!r}; expected lengths of at least 1 (or -1 for the whole dimension)"
        )
    return tuple(whole)


def _guess_chunk_shape(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Chunks of half to one MiB, as near to a cube as the array lets them be."""
    lengths = [max(1, n) for n in shape]
    while prod(lengths) * item_size > TARGET_SIZE:
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        if lengths[longest] == 1:
            break
        lengths[longest] = (lengths[longest] + 1) // 2
    return tuple(lengths)


def _shard_shapes(
    shards: Any, chunks: Any, shape: tuple[int, ...], item_size: int, zarr_format: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shard shape, inner chunk shape)."""
    if zarr_format != 3:
        raise UnsupportedError(
            f"shards {shards!r} cannot be had in Zarr v{zarr_format}; only v3 has sharding"
        )
    shard_shape = _chunk_shape(shards, shape, item_size)
    if isinstance(chunks, str) and chunks == "auto":
        return shard_shape, _guess_inner_shape(shard_shape, item_size)
    chunk_shape = _chunk_shape(chunks, shape, item_size)
    if any(shard % chunk for shard, chunk in zip(shard_shape, chunk_shape, strict=True)):
        raise MetadataError(
            f"shards {shard_shape} are not a multiple of chunks {chunk_shape} in every dimension"
        )
    return shard_shape, chunk_shape


def _guess_inner_shape(shard_shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Inner chunks of at most one MiB where even halves of the shard get there."""
    lengths = list(shard_shape)
    while prod(lengths) * item_size > TARGET_SIZE:
        even = [index for index, length in enumerate(lengths) if length % 2 == 0]
        if not even:
            break
        lengths[max(even, key=lengths.__getitem__)] //= 2
    return tuple(lengths)


def _sharding(chunk_shape: tuple[int, ...], chain: tuple[CodecModel, ...]) -> CodecModel:
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    return CodecModel(
        "sharding_indexed",
        {
            "chunk_shape": list(chunk_shape),
            "codecs": [
                {
                    "name": codec.name,
                    **({"configuration": dict(codec.configuration)} if codec.configuration else {}),
                }
                for codec in chain
            ],
            "index_codecs": [little, {"name": "crc32c"}],
            "index_location": "end",
        },
    )


def _v3_chain(
    filters: Any, serializer: Any, compressors: Any, order: str, ndim: int, endian: str, item_size: int
) -> tuple[CodecModel, ...]:
    chain = _order_codecs(order, ndim) + _codecs(filters, (), item_size, 3)
    chain += _codecs(serializer, (_bytes_codec(endian, item_size),), item_size, 3)
    return chain + _codecs(compressors, (CodecModel("zstd", DEFAULTS["zstd"]),), item_size, 3)


def _v2_chain(
    filters: Any, serializer: Any, compressors: Any, order: str, ndim: int, endian: str, item_size: int
) -> tuple[CodecModel, ...]:
    if not isinstance(serializer, str) or serializer not in ("auto", "bytes"):
        raise UnsupportedError(f"serializer {serializer!r} cannot be said in Zarr v2; it has 'bytes' only")
    zstd = CodecModel("numcodecs.zstd", DEFAULTS["numcodecs.zstd"])
    compressor = _codecs(compressors, (zstd,), item_size, 2)
    if len(compressor) > 1:
        names = [codec.name for codec in compressor]
        raise UnsupportedError(
            f"compressors {names} cannot be said in Zarr v2; it has one only, the others are filters"
        )
    chain = (*_order_codecs(order, ndim), _bytes_codec(endian, item_size))
    chain += tuple(_with_role(codec, "filter") for codec in _codecs(filters, (), item_size, 2))
    return chain + tuple(_with_role(codec, "compressor") for codec in compressor)


def _with_role(codec: CodecModel, role: str) -> CodecModel:
    return CodecModel(codec.name, codec.configuration, codec.must_understand, role)


def _order_codecs(order: str, ndim: int) -> tuple[CodecModel, ...]:
    if order == "C":
        return ()
    return (CodecModel("transpose", {"order": list(range(ndim - 1, -1, -1))}),)


def _bytes_codec(endian: str, item_size: int) -> CodecModel:
    return CodecModel("bytes", {"endian": endian} if item_size > 1 else {})


def _codecs(
    value: Any, default: tuple[CodecModel, ...], item_size: int, zarr_format: int
) -> tuple[CodecModel, ...]:
    if value is None:
        return ()
    if isinstance(value, str) and value == "auto":
        return default
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(_codec(item, item_size, zarr_format) for item in items)


def _codec(value: Any, item_size: int, zarr_format: int) -> CodecModel:
    if isinstance(value, CodecModel):
        codec = value
    elif isinstance(value, str):
        prefix = "numcodecs." if zarr_format == 2 and not value.startswith("numcodecs.") else ""
        codec = CodecModel(prefix + value, DEFAULTS.get(prefix + value, {}))
    else:
        codec = _describe_codec(value)
    if zarr_format == 2:
        return _v2_codec(codec)
    if codec.name == "blosc" and codec.configuration.get("typesize") is None:
        return CodecModel("blosc", {**codec.configuration, "typesize": item_size})
    return codec


def _describe_codec(value: Any) -> CodecModel:
    """Name and configuration of a codec object or of its metadata."""
    if hasattr(value, "to_configuration"):
        return CodecModel(value.name, value.to_configuration())
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif hasattr(value, "get_config"):
        value = value.get_config()
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and isinstance(value.get("configuration", {}), Mapping):
            return CodecModel(value["name"], value.get("configuration", {}))
        if isinstance(value.get("id"), str):
            configuration = {name: item for name, item in value.items() if name != "id"}
            return CodecModel("numcodecs." + value["id"], configuration)
    raise MetadataError(
        f"codec is {value!r}; expected a name, an object with a name or an id, "
        f"or a codec of zstore, numcodecs or zarr"
    )


def _v2_codec(codec: CodecModel) -> CodecModel:
    """A v3 codec in the words of v2, where it has some."""
    if codec.name in ("zstd", "gzip"):
        return CodecModel("numcodecs." + codec.name, codec.configuration)
    if codec.name == "blosc":
        configuration = {name: item for name, item in codec.configuration.items() if name != "typesize"}
        shuffle = configuration.get("shuffle", "noshuffle")
        return CodecModel("numcodecs.blosc", {**configuration, "shuffle": SHUFFLES.get(shuffle, shuffle)})
    if codec.name.startswith("numcodecs."):
        return codec
    raise UnsupportedError(f"codec {codec.name!r} cannot be said in Zarr v2; it has numcodecs' codecs only")


def _fill_value(value: Any, data_type: DataType, zarr_format: int) -> np.generic | None:
    if isinstance(value, str) and value == "auto":
        return data_type.default_fill()
    if value is None:
        return None if zarr_format == 2 else data_type.default_fill()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        if value.dtype == data_type.numpy:
            return value
        value = value.item()
    kind = data_type.numpy.kind
    if kind == "b" and not isinstance(value, bool) and value in (0, 1):
        value = bool(value)
    elif kind == "c" and isinstance(value, int | float | complex):
        value = [complex(value).real, complex(value).imag]
    return data_type.parse_fill(value, zarr_format)


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

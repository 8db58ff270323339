"""Translating codecs between Zarr formats, as far as chunks keep their bytes.

In v2 a typed filter (numcodecs' delta and the like) comes after the byte order and works on stored items; in
v3 it comes before the "bytes" codec. For little-endian items both are the same.

Spec
    Zarr v2 "filters" and "compressor"; Zarr v3 codecs blosc, gzip, zstd, crc32c, vlen-utf8, vlen-bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from zstore.errors import UnsupportedError
from zstore.model.array import CodecModel
from zstore.model.document import refuse_format
from zstore.model.dtype import DataType

PREFIX = "numcodecs."
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
SHUFFLE_NAMES = {number: name for name, number in SHUFFLES.items()}
# Codecs of numcodecs' that work on items rather than bytes.
TYPED_FILTERS = frozenset(
    PREFIX + name
    for name in ("astype", "bitround", "categorize", "delta", "fixedscaleoffset", "packbits", "quantize")
)
# Those whose v2 configuration always has the items' dtype.
WITH_DTYPE = frozenset(PREFIX + name for name in ("delta", "fixedscaleoffset", "quantize"))
OBJECTS = ("vlen-utf8", "vlen-bytes")


def codecs_to_v3(codecs: Iterable[CodecModel], data_type: DataType) -> tuple[CodecModel, ...]:
    """Translate the chain of a v1 or v2 array to v3.

    Raises
        UnsupportedError: the bytes of chunks would change.
    """
    chain = list(codecs)
    made: list[CodecModel] = []
    if chain and chain[0].name == "transpose":
        made.append(chain.pop(0))
    if chain and chain[0].name == "zstore.bytes_by_field":
        raise UnsupportedError("fields of different byte orders cannot be said in Zarr v3")
    if chain and chain[0].name == "bytes":
        serializer = chain.pop(0)
        filters = []
        while chain and chain[0].name in TYPED_FILTERS:
            filters.append(chain.pop(0))
        if filters:
            serializer = _little(serializer, filters)
        made += [*filters, serializer]
    for codec in chain:
        if codec.name in TYPED_FILTERS and not data_type.is_object:
            raise UnsupportedError(f"codec {codec.name!r} behind others cannot be said in Zarr v3")
    item_size = 1 if data_type.is_object else data_type.numpy.itemsize
    return tuple(made + [_to_v3(codec, item_size) for codec in chain])


def _little(serializer: CodecModel, filters: list[CodecModel]) -> CodecModel:
    """The "bytes" codec that follows typed filters in v3, which must work on little-endian items."""
    endian = serializer.configuration.get("endian", "little")
    dtypes = [str(value) for codec in filters for value in codec.configuration.values()]
    if endian != "little" or any(dtype.startswith(">") for dtype in dtypes):
        raise UnsupportedError(f"codec {filters[0].name!r} of big-endian items cannot be moved")
    return CodecModel("bytes", {"endian": "little"})


def _to_v3(codec: CodecModel, item_size: int) -> CodecModel:
    options = codec.configuration
    name = codec.name.removeprefix(PREFIX)
    if name in OBJECTS:
        return CodecModel(name)
    if name == "zstd":
        return CodecModel(
            name, {"level": options.get("level", 0), "checksum": bool(options.get("checksum", False))}
        )
    if name == "gzip":
        return CodecModel(name, {"level": options.get("level", 1)})
    if name == "crc32c" and options.get("location") == "end":
        return CodecModel(name)
    if name == "blosc":
        return CodecModel(name, _blosc_to_v3(options, item_size))
    return CodecModel(codec.name, options, codec.must_understand)


def _blosc_to_v3(options: Any, item_size: int) -> dict[str, Any]:
    shuffle = options.get("shuffle", 1)
    if shuffle == -1:  # depends on the item size
        shuffle = 2 if item_size == 1 else 1
    return {
        "cname": options.get("cname", "lz4"),
        "clevel": options.get("clevel", 5),
        "shuffle": SHUFFLE_NAMES.get(shuffle, shuffle),
        "typesize": min(item_size, 255),
        "blocksize": options.get("blocksize", 0),
    }


def codecs_to_v2(codecs: Iterable[CodecModel], data_type: DataType) -> tuple[CodecModel, ...]:
    """Translate the chain of a v3 array to v2 (and v1).

    Raises
        UnsupportedError: a codec that v2 does not have, or the bytes of chunks would change.
    """
    chain = list(codecs)
    made: list[CodecModel] = []
    if chain and chain[0].name == "transpose":
        made.append(chain.pop(0))
    filters: list[CodecModel] = []
    while chain and chain[0].name in TYPED_FILTERS:
        filters.append(_with_dtype(chain.pop(0), data_type.numpy))
    if filters and chain and chain[0].name == "bytes":
        endian = chain.pop(0).configuration.get("endian", "little")
        if endian != "little":
            raise UnsupportedError(f"codec {filters[0].name!r} of big-endian items cannot be moved")
        made += [CodecModel("bytes", {"endian": "little"} if data_type.numpy.itemsize > 1 else {}), *filters]
    elif chain and chain[0].name == "bytes":
        made.append(chain.pop(0))
    elif filters:
        raise UnsupportedError(f"codec {filters[0].name!r} before another than 'bytes' cannot be said")
    return tuple(made + [to_v2(codec) for codec in chain])


def _with_dtype(codec: CodecModel, dtype: np.dtype[Any]) -> CodecModel:
    if codec.name not in WITH_DTYPE or "dtype" in codec.configuration:
        return codec
    return CodecModel(codec.name, {"dtype": dtype.newbyteorder("<").str, **codec.configuration})


def to_v2(codec: CodecModel) -> CodecModel:
    """Translate a v3 codec to v2.

    Raises
        UnsupportedError: v2 does not have it.
    """
    if codec.name in ("zstd", "gzip", *OBJECTS):
        return CodecModel(PREFIX + codec.name, codec.configuration)
    if codec.name == "crc32c":
        return CodecModel(PREFIX + codec.name, {"location": "end"})
    if codec.name == "blosc":
        configuration = {name: item for name, item in codec.configuration.items() if name != "typesize"}
        shuffle = configuration.get("shuffle")
        number = -1 if shuffle is None else SHUFFLES.get(shuffle, shuffle)  # -1: by the item size
        return CodecModel(PREFIX + "blosc", {**configuration, "shuffle": number})
    if codec.name.startswith(PREFIX):
        return codec
    raise refuse_format(f"codec {codec.name!r}", 2, "numcodecs' codecs only")

"""What xarray keeps beside a variable's values, from an array's metadata and back: `encoding`, `_FillValue`.

Spec
    xarray, "Zarr Encoding Specification": dimension names, `_ARRAY_DIMENSIONS`, NCZarr's `dimrefs`; in
    Zarr v3 an attribute `_FillValue` holds floats as the base64 of their little-endian float64.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.codecs.base import ArrayCodec, BytesCodec, Serializer
from zstore.codecs.chain import make_codec
from zstore.errors import MetadataError
from zstore.model import v2
from zstore.model.array import CodecModel
from zstore.nodes.array import Array
from zstore.storage.base import join_key

__all__ = [
    "StatedCodec",
    "decode_fill_attribute",
    "describe_encoding",
    "encode_fill_attribute",
    "preferred_chunks",
    "split_attributes",
]

BASE64_SIZE = 12  # of eight bytes
NCZARR_ARRAY = ("_nczarr_array", "_NCZARR_ARRAY")


class StatedCodec(dict[str, Any]):
    """A codec as the metadata states it: {"name": …, "configuration": …}, in Zarr v2 {"id": …}.

    Equal to the codec objects of zarr-python and numcodecs that say the same, and taken by both as it is.
    """

    def get_config(self) -> dict[str, Any]:
        """As a plain dictionary, which is also what numcodecs' codecs compare."""
        return dict(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return dict.__eq__(self, dict(other))
        # Made by the other's own class, so that what the document leaves to its defaults counts too.
        kind: Any = type(other)
        if hasattr(other, "to_dict") and "name" in self:
            return other.to_dict() in (dict(self), kind.from_dict(dict(self)).to_dict())
        if hasattr(other, "get_config") and self.get("id") == other.get_config().get("id"):
            options = {name: value for name, value in self.items() if name != "id"}
            return bool(kind.from_config(options).get_config() == other.get_config())
        return False

    __hash__ = None


def split_attributes(array: Array) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the array's dimensions, and its attributes as far as they are the user's.

    Raises
        MetadataError: a dimension has no name.
    """
    attributes = array.attrs.asdict()
    names = array.dims
    if names is None and array.zarr_format == 2:
        names = _nczarr_dimensions(array, attributes)
    if names is None and not array.shape:
        names = ()
    if names is None or any(name is None for name in names):
        stated = "no dimension names" if names is None else f"the dimension names {names!r}"
        raise MetadataError(
            f"array has {stated}; xarray needs a name for each of {array.ndim} (leave it out with "
            f"drop_variables={array.basename!r}, or open it with zstore.open)",
            path=join_key(array.store.url, array.path),
        )
    if array.zarr_format == 2:
        attributes = {
            name: value
            for name, value in attributes.items()
            if not name.lower().startswith("_nc") and name != v2.DIMENSIONS
        }
    return tuple(str(name) for name in names), attributes


def _nczarr_dimensions(array: Array, attributes: Mapping[str, Any]) -> tuple[str, ...] | None:
    """NCZarr refers to dimensions by their paths, in `.zarray` or, of late, in the attributes."""
    for name in NCZARR_ARRAY:
        stated = attributes.get(name, array.model.extra.get(name))
        if isinstance(stated, Mapping):
            found = stated.get("dimrefs", stated.get("dimension_references"))
            if isinstance(found, list) and len(found) == array.ndim:
                return tuple(str(path).rpartition("/")[2] for path in found)
    return None


def describe_encoding(array: Array) -> dict[str, Any]:
    """How the array is stored, under the names that xarray's Zarr backend uses."""
    encoding: dict[str, Any] = {"chunks": _compact(array.read_chunk_sizes, array.chunks)}
    encoding["shards"] = None if array.shards is None else _compact(array.write_chunk_sizes, array.shards)
    if array.dtype.kind == "T":
        encoding["dtype"] = array.dtype
    if array.zarr_format == 2:
        document = v2.render_array(array.model)[v2.ARRAY_KEY]
        stored = document["compressor"]
        encoding["compressors"] = () if stored is None else (StatedCodec(stored),)
        encoding["filters"] = tuple(StatedCodec(item) for item in document["filters"] or ())
        if isinstance(document["dtype"], str) and document["dtype"].startswith(">"):
            encoding["dtype"] = np.dtype(document["dtype"])
        return encoding
    return {**encoding, **_describe_chain(array)}


def _describe_chain(array: Array) -> dict[str, Any]:
    """Filters, serializer and compressors: of inner chunks where there are shards."""
    models = list(array.model.codecs)
    for model in array.model.codecs:
        if model.name == "sharding_indexed":
            models = [_codec_model(item) for item in model.configuration["codecs"]]
    parts: dict[str, Any] = {"filters": (), "serializer": None, "compressors": ()}
    for model in models:
        stated: dict[str, Any] = {"name": model.name}
        if model.configuration:
            stated["configuration"] = dict(model.configuration)
        codec = make_codec(model)
        if isinstance(codec, Serializer) and parts["serializer"] is None:
            parts["serializer"] = StatedCodec(stated)
        elif isinstance(codec, ArrayCodec) and parts["serializer"] is None:
            parts["filters"] += (StatedCodec(stated),)
        elif isinstance(codec, BytesCodec):
            parts["compressors"] += (StatedCodec(stated),)
    return parts


def _codec_model(stated: Any) -> CodecModel:
    return (
        CodecModel(stated)
        if isinstance(stated, str)
        else CodecModel(stated["name"], stated.get("configuration", {}))
    )


def _compact(sizes: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """One length per dimension that is cut evenly, all lengths of one that is not."""
    return tuple(
        length if all(part == length for part in parts[:-1]) and (not parts or parts[-1] <= length) else parts
        for parts, length in zip(sizes, shape, strict=True)
    )


def preferred_chunks(array: Array, dimensions: tuple[str, ...]) -> dict[str, Any]:
    """What `chunks={}` cuts by: the stored objects, so that every one is fetched and written once."""
    sizes = _compact(array.write_chunk_sizes, array.model.grid.chunk_shape)
    return dict(zip(dimensions, sizes, strict=True))


def decode_fill_attribute(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """The value that the attribute `_FillValue` of a Zarr v3 array states.

    Beside xarray's spelling, plain numbers and "NaN" as other writers leave them.

    Raises
        MetadataError: it is no value of the dtype.
    """
    try:
        if dtype.kind == "f":
            return _decode_float(value)
        if dtype.kind == "c":
            return complex(_decode_float(value[0]), _decode_float(value[1]))
        if dtype.kind == "b":
            return bool(value)
        if dtype.kind in "iu" and not isinstance(value, str):
            return int(value)
        if dtype.kind in "UT" and isinstance(value, str):
            return value
        if dtype.kind in "SO" and isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, IndexError, binascii.Error, struct.error) as error:
        raise MetadataError(f"_FillValue is {value!r}; expected a {dtype}: {error}", path=where) from None
    raise MetadataError(f"_FillValue is {value!r}; expected a {dtype}", path=where)


def _decode_float(value: Any) -> float:
    if isinstance(value, str) and len(value) == BASE64_SIZE:
        return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    return float(value)


def encode_fill_attribute(value: Any, dtype: np.dtype[Any], name: str) -> Any:
    """The inverse of `decode_fill_attribute`, as xarray spells it.

    Raises
        MetadataError: it is no value of the dtype, or the dtype has no spelling.
    """
    try:
        if dtype.kind == "f":
            return _encode_float(value)
        if dtype.kind == "c":
            return [_encode_float(value.real), _encode_float(value.imag)]
        if dtype.kind == "b":
            return bool(value)
        if dtype.kind in "iu":
            return int(value)
        if dtype.kind in "UT" and isinstance(value, str):
            return str(value)
        if dtype.kind in "SO" and isinstance(value, bytes):
            return base64.standard_b64encode(value).decode("ascii")
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"_FillValue of {name!r} is {value!r}; expected a {dtype}: {error}") from None
    raise MetadataError(f"_FillValue of {name!r} is {value!r}; expected a {dtype}")


def _encode_float(value: Any) -> str:
    return base64.standard_b64encode(struct.pack("<d", float(value))).decode("ascii")

"""`zarr.codecs`: codec objects under zarr-python's names, as arguments and as what arrays show."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import Any, ClassVar, Literal, get_args

from zstore.codecs.base import make_codec
from zstore.codecs.forms import read_codecs
from zstore.model.array import CodecModel
from zstore.zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec

__all__ = [
    "BloscCname",
    "BloscCodec",
    "BloscShuffle",
    "BytesCodec",
    "CastValue",
    "Crc32cCodec",
    "Endian",
    "GzipCodec",
    "ScaleOffset",
    "ShardingCodec",
    "ShardingCodecIndexLocation",
    "SubchunkWriteOrder",
    "TransposeCodec",
    "VLenBytesCodec",
    "VLenUTF8Codec",
    "ZstdCodec",
]


class Endian(Enum):
    """Byte orders."""

    big = "big"
    little = "little"


class ShardingCodecIndexLocation(Enum):
    """The places of a shard's index."""

    start = "start"
    end = "end"


# The orders of inner chunks in a shard that zarr-python can write.
SubchunkWriteOrder = Literal["morton", "unordered", "lexicographic", "colexicographic"]


class BloscShuffle(Enum):
    """Blosc's orders of bytes or bits before it compresses them."""

    noshuffle = "noshuffle"
    shuffle = "shuffle"
    bitshuffle = "bitshuffle"

    @classmethod
    def from_int(cls, num: int) -> BloscShuffle:
        """The member of numcodecs' number."""
        members: list[BloscShuffle] = [*cls]
        return members[num]


class BloscCname(Enum):
    """Codecs within Blosc."""

    lz4 = "lz4"
    lz4hc = "lz4hc"
    blosclz = "blosclz"
    snappy = "snappy"
    zlib = "zlib"
    zstd = "zstd"


class _Checked:
    """The rules of codecs here: enumerations become their values, and zstore has to take the options."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Enum):
                object.__setattr__(self, name, value.value)
        self._check()

    def _check(self) -> None:
        make_codec(read_codecs(self, 3)[0])


@dataclass(frozen=True, kw_only=True)
class BytesCodec(_Checked, ArrayBytesCodec):
    """Items as they are in memory, in a byte order."""

    codec_name: ClassVar[str] = "bytes"
    endian: Any = sys.byteorder

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() if self.endian else {"name": self.codec_name}


@dataclass(frozen=True, kw_only=True)
class ZstdCodec(_Checked, BytesBytesCodec):
    """Zstandard."""

    codec_name: ClassVar[str] = "zstd"
    level: int = 0
    checksum: bool = False


@dataclass(frozen=True, kw_only=True)
class GzipCodec(_Checked, BytesBytesCodec):
    """Gzip."""

    codec_name: ClassVar[str] = "gzip"
    level: int = 5


@dataclass(frozen=True, kw_only=True)
class BloscCodec(_Checked, BytesBytesCodec):
    """Blosc; `typesize` and `shuffle` follow from the items, where they are not given."""

    codec_name: ClassVar[str] = "blosc"
    _tunable_attrs: set[str] = field(default_factory=set, init=False, compare=False)
    typesize: Any = None
    cname: Any = "zstd"
    clevel: int = 5
    shuffle: Any = None
    blocksize: int = 0

    def __post_init__(self) -> None:
        for name, usual in (("typesize", 1), ("shuffle", "bitshuffle")):
            if getattr(self, name) is None:
                self._tunable_attrs.add(name)
                object.__setattr__(self, name, usual)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Crc32cCodec(_Checked, BytesBytesCodec):
    """A checksum."""

    codec_name: ClassVar[str] = "crc32c"


@dataclass(frozen=True, kw_only=True)
class TransposeCodec(_Checked, ArrayArrayCodec):
    """The dimensions in another order."""

    codec_name: ClassVar[str] = "transpose"
    order: Iterable[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", tuple(self.order))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class ScaleOffset(_Checked, ArrayArrayCodec):
    """Items minus `offset`, times `scale`."""

    codec_name: ClassVar[str] = "scale_offset"
    offset: Any = 0
    scale: Any = 1


@dataclass(frozen=True, kw_only=True)
class CastValue(_Checked, ArrayArrayCodec):
    """Items as another data type."""

    codec_name: ClassVar[str] = "cast_value"
    data_type: Any
    rounding: str = "nearest-even"
    out_of_range: str | None = None
    scalar_map: Any = None

    def to_dict(self) -> dict[str, Any]:
        said = {
            name: value for name, value in super().to_dict()["configuration"].items() if value is not None
        }
        if hasattr(self.data_type, "to_json"):
            said["data_type"] = self.data_type.to_json(zarr_format=3)
        return {"name": self.codec_name, "configuration": said}


@dataclass(frozen=True, kw_only=True)
class VLenUTF8Codec(_Checked, ArrayBytesCodec):
    """Strings of any length."""

    codec_name: ClassVar[str] = "vlen-utf8"


@dataclass(frozen=True, kw_only=True)
class VLenBytesCodec(_Checked, ArrayBytesCodec):
    """Bytes of any length."""

    codec_name: ClassVar[str] = "vlen-bytes"


@dataclass(frozen=True, kw_only=True)
class ShardingCodec(ArrayBytesCodec):
    """Inner chunks, and an index of where in the shard each lies.

    subchunk_write_order  no reader needs it, and zstore writes them in an order of its own
    """

    codec_name: ClassVar[str] = "sharding_indexed"
    chunk_shape: Any
    codecs: Any = (BytesCodec(endian="little"),)
    index_codecs: Any = (BytesCodec(endian="little"), Crc32cCodec())
    index_location: Any = "end"
    subchunk_write_order: Any = "morton"

    def __post_init__(self) -> None:
        if self.subchunk_write_order not in get_args(SubchunkWriteOrder):
            expected = ", ".join(get_args(SubchunkWriteOrder))
            raise ValueError(
                f"subchunk_write_order is {self.subchunk_write_order!r}; expected one of {expected}"
            )
        shape = (self.chunk_shape,) if isinstance(self.chunk_shape, int) else self.chunk_shape
        object.__setattr__(self, "chunk_shape", tuple(shape))
        for name in ("codecs", "index_codecs"):
            object.__setattr__(self, name, tuple(map(as_codec, getattr(self, name))))
        object.__setattr__(self, "index_location", getattr(self.index_location, "value", self.index_location))

    def to_dict(self) -> dict[str, Any]:
        document = super().to_dict()
        del document["configuration"]["subchunk_write_order"]
        for name in ("codecs", "index_codecs"):
            document["configuration"][name] = tuple(codec.to_dict() for codec in getattr(self, name))
        return document


KINDS: dict[str, type[Codec]] = {
    kind.codec_name: kind
    for kind in (
        *(BytesCodec, ZstdCodec, GzipCodec, BloscCodec, Crc32cCodec, TransposeCodec, ScaleOffset, CastValue),
        *(VLenUTF8Codec, VLenBytesCodec, ShardingCodec),
    )
}


def as_codec(given: Any) -> Any:
    """The codec object of an entry in a v3 document, of a model, or the object itself."""
    if isinstance(given, CodecModel):
        given = given.describe()
    if not isinstance(given, dict):
        return given
    name = given.get("name", "")
    if name in KINDS:
        return KINDS[name].from_dict(given)
    return _numcodecs().named(name, given.get("configuration") or {})


def _numcodecs() -> Any:
    # Not `from zstore.zarr.codecs import numcodecs`, which asks this module for it.
    return import_module("zstore.zarr.codecs.numcodecs")


def __getattr__(name: str) -> Any:
    return getattr(_numcodecs(), name)

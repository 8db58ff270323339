"""`zarr.abc.codec`: what codec objects are, which name a codec of zstore's and its configuration.

They are arguments, and what arrays show. Codecs of one's own are plugins: `zstore.plugin.codecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

__all__ = ["ArrayArrayCodec", "ArrayBytesCodec", "BaseCodec", "BytesBytesCodec", "Codec"]


@dataclass(frozen=True, kw_only=True)
class Codec:
    """A codec's name and its configuration, which are the fields of the class."""

    codec_name: ClassVar[str] = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The codec of an entry in a v3 document.

        Raises
            ValueError: it has another name, or options that the codec does not take.
        """
        if data.get("name") != cls.codec_name:
            raise ValueError(f"codec is {data!r}; expected the name {cls.codec_name!r}")
        try:
            return cls(**(data.get("configuration") or {}))
        except TypeError as error:
            raise ValueError(f"codec {cls.codec_name!r} does not take {data!r}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The codec's entry in a v3 document."""
        options = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}
        return {"name": self.codec_name, "configuration": options} if options else {"name": self.codec_name}


class ArrayArrayCodec(Codec):
    """A filter: a chunk of items becomes another chunk of items."""


class ArrayBytesCodec(Codec):
    """A serializer: a chunk of items becomes bytes."""


class BytesBytesCodec(Codec):
    """A compressor, or a checksum: bytes become other bytes."""


BaseCodec = Codec

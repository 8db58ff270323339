"""`zarr.codecs.numcodecs`: the codecs of numcodecs as v3 documents name them, "numcodecs.<id>"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zstore.codecs.numcodecs import numcodecs_object
from zstore.errors import missing_name
from zstore.zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec

FILTERS = {"AsType", "BitRound", "Delta", "FixedScaleOffset", "PackBits", "Quantize"}
NAMES = {
    name: name.lower().replace("jenkinslookup3", "jenkins_lookup3")
    for name in (
        *("Adler32", "AsType", "BZ2", "BitRound", "Blosc", "CRC32", "CRC32C", "Delta", "FixedScaleOffset"),
        *("Fletcher32", "GZip", "JenkinsLookup3", "LZ4", "LZMA", "PCodec", "PackBits", "Quantize", "Shuffle"),
        *("ZFPY", "Zlib", "Zstd"),
    )
}
__all__ = [*NAMES]


class OfNumcodecs(Codec):
    """A codec of numcodecs', with any options that it takes."""

    codec_config: dict[str, Any]

    def __init__(self, **codec_config: Any) -> None:
        codec_config.pop("id", None)
        numcodecs_object({"id": self.codec_name.removeprefix("numcodecs."), **codec_config})
        object.__setattr__(self, "codec_config", codec_config)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.codec_name, "configuration": dict(self.codec_config)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codec) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(codec_name={self.codec_name!r}, codec_config={self.codec_config!r})"


def _make(name: str, codec_id: str) -> type[Any]:
    base = ArrayArrayCodec if name in FILTERS else BytesBytesCodec
    members = {"__doc__": f'The codec "{codec_id}" of numcodecs.', "codec_name": f"numcodecs.{codec_id}"}
    return type(name, (OfNumcodecs, base), {**members, "__module__": __name__})


_made = {name: _make(name, codec_id) for name, codec_id in NAMES.items()}
globals().update(_made)


def named(name: str, configuration: Mapping[str, Any]) -> Codec:
    """The codec object of a name in a v3 document."""
    kind = next((kind for kind in _made.values() if kind.codec_name == name), None)
    if kind is None:
        kind = type(name.rpartition(".")[2], (OfNumcodecs, BytesBytesCodec), {"codec_name": name})
    made: Any = object.__new__(kind)
    object.__setattr__(made, "codec_config", dict(configuration))
    return made  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    raise missing_name("module 'zarr.codecs'", name, f"one of {', '.join(NAMES)}")

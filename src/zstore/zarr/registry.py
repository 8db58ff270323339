"""`zarr.registry`: the classes of codecs by name; codecs of one's own are plugins of zstore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zstore.codecs.numcodecs import numcodecs_object
from zstore.errors import UnsupportedError
from zstore.zarr import codecs
from zstore.zarr.buffer import Buffer, NDBuffer
from zstore.zarr.errors import UnknownCodecError

__all__ = ["get_buffer_class", "get_codec_class", "get_ndbuffer_class", "get_numcodec", "register_codec"]


def get_codec_class(key: str, reload_config: bool = False) -> type[Any]:
    """The class of codec objects of a name in v3 documents.

    Raises
        UnknownCodecError: there is none.
    """
    if key in codecs.KINDS:
        return codecs.KINDS[key]
    if key.startswith("numcodecs."):
        return type(codecs.as_codec({"name": key}))
    raise UnknownCodecError(f"no codec {key!r}; expected one of {', '.join(codecs.KINDS)}")


def get_numcodec(data: Mapping[str, Any]) -> Any:
    """numcodecs' own codec object of an entry in a v2 document."""
    return numcodecs_object(data)


def get_buffer_class(reload_config: bool = False) -> type[Buffer]:
    """The class of stored values."""
    return Buffer


def get_ndbuffer_class(reload_config: bool = False) -> type[NDBuffer]:
    """The class of items in memory."""
    return NDBuffer


def register_codec(key: str, codec_cls: type[Any], *, qualname: str | None = None) -> None:
    """Nothing: classes of zarr-python's codecs are not called.

    Raises
        UnsupportedError: always; the message has the way to do it.
    """
    raise UnsupportedError(f"codec {key!r} would not be called; expected a plugin (`zstore.plugin.codecs`)")


register_pipeline = register_ndbuffer = register_buffer = register_chunk_key_encoding = register_codec

"""Codecs: the classes to inherit from, and how configurations are declared and checked."""

from __future__ import annotations

from zstore.codecs.base import (
    ArrayCodec,
    BytesCodec,
    ChunkSpec,
    NativeCodec,
    Option,
    Serializer,
    choice,
    integer,
    parse_options,
    refuse_unknown,
)
from zstore.extensions.extras import optional

__all__ = [
    "ArrayCodec",
    "BytesCodec",
    "ChunkSpec",
    "NativeCodec",
    "Option",
    "Serializer",
    "choice",
    "integer",
    "optional",
    "parse_options",
    "refuse_unknown",
]

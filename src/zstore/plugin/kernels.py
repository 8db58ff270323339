"""Kernels: compiled codecs, trees of files and references, for packages released with zstore."""

from __future__ import annotations

from zstore._ext.codecs import native
from zstore._ext.codecs.native import DISTANCE_LIMIT
from zstore._ext.engine.files import Tree
from zstore._ext.engine.references import References
from zstore.codecs.zfpy import ITEM_TYPES, decode_stream, encode_stream, zfpy

__all__ = [
    "DISTANCE_LIMIT",
    "ITEM_TYPES",
    "References",
    "Tree",
    "decode_stream",
    "encode_stream",
    "native",
    "zfpy",
]

"""Kernels: compiled codecs, files, references and zfp's streams, for packages released with zstore."""

from __future__ import annotations

from zstore._ext.codecs import native
from zstore._ext.engine.files import Tree
from zstore._ext.engine.references import References
from zstore.codecs import zfpy

__all__ = [
    "References",
    "Tree",
    "native",
    "zfpy",
]

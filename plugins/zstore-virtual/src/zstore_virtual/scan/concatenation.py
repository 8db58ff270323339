"""Concatenates the references of arrays along an axis, and makes the chunk grid of the whole.

Spec     zarr-extensions chunk grid "rectilinear", where chunks differ in length; else plain Zarr v3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd, prod
from typing import Any

import numpy as np

from zstore.errors import UnsupportedError
from zstore.plugin.nodes import ChunkKeys
from zstore_virtual.manifest import ABSENT, INLINE, Chunks, Manifest
from zstore_virtual.scan.parts import Document, ScannedNode, common_attributes, load_array, renumber

__all__ = ["concatenate"]

# Uncompressed chunks are cut into pieces of at least this size, unless only smaller ones can be joined.
LEAST_SIZE = 4 << 10


def concatenate(nodes: Sequence[ScannedNode], axis: int, manifest: Manifest) -> Document:
    """The document of arrays that are joined along an axis; their references are added to the manifest.

    Raises
        MetadataError: the arrays differ in codecs or chunks.
        UnsupportedError: chunks of an array reach past its end, so that the next one cannot follow.
    """
    first = nodes[0]
    _check_codecs_and_chunks(nodes, axis)
    lengths = [node.shape[axis] for node in nodes]
    edges = [_edges(node, axis) for node in nodes]
    tables = [_Table.of(node, manifest) for node in nodes]
    is_even = len({edge for of_node in edges for edge in of_node}) <= 1
    is_whole = [sum(of_node) == length for of_node, length in zip(edges, lengths, strict=True)]
    if not is_even or not all(is_whole[:-1]):
        step = _common_step(first, axis, edges, lengths, is_needed=not all(is_whole))
        if step is not None:
            tables = [
                table.cut(axis, of_node, length, step)
                for table, of_node, length in zip(tables, edges, lengths, strict=True)
            ]
            edges = [[step] * (length // step) for length in lengths]
        elif not all(is_whole[:-1]):
            odd = is_whole.index(False)
            name = nodes[odd].part.name
            raise UnsupportedError(
                f"chunks of {first.path!r} are {edges[odd][0]} long along dimension {axis} and reach past "
                f"the end of {name!r}, which has {lengths[odd]}; expected whole chunks wherever another file "
                "follows",
                path=name,
            )
    manifest.chunks[first.path] = _join_tables(tables, axis)
    shape = list(first.shape)
    shape[axis] = sum(lengths)
    document = {**first.document, "shape": shape, "attributes": common_attributes(nodes)}
    all_edges = [edge for of_node in edges for edge in of_node]
    if all_edges:
        document["chunk_grid"] = _chunk_grid(first, axis, all_edges)
    return document


def _check_codecs_and_chunks(nodes: Sequence[ScannedNode], axis: int) -> None:
    """Raise MetadataError where arrays are decoded differently, or cut differently along other dimensions."""
    first = nodes[0]
    others = [d for d in range(len(first.shape)) if d != axis]
    codecs = [_decoding(codec) for codec in first.document["codecs"]]
    edges = {d: _edges(first, d) for d in others}
    for node in nodes[1:]:
        if [_decoding(codec) for codec in node.document["codecs"]] != codecs:
            raise node.differs(first, "codecs", node.document["codecs"], first.document["codecs"])
        for d in others:
            if _edges(node, d) != edges[d]:
                raise node.differs(first, f"chunks along dimension {d}", _edges(node, d)[:1], edges[d][:1])


def _decoding(codec: Document) -> Document:
    """A codec without the options that only say how hard to compress: chunks decode the same without them."""
    configuration = {k: v for k, v in codec.get("configuration", {}).items() if k not in ("level", "clevel")}
    return {"name": codec["name"], "configuration": configuration}


def _edges(node: ScannedNode, axis: int) -> list[int]:
    """The lengths of the chunks along an axis, as they are stored."""
    grid, length = node.document["chunk_grid"], node.shape[axis]
    key = "chunk_shape" if grid["name"] == "regular" else "chunk_shapes"
    stated = grid["configuration"][key][axis]
    if isinstance(stated, int):
        return [stated] * -(-length // stated)
    edges: list[int] = []
    for item in stated:
        edges += [item] if isinstance(item, int) else [item[0]] * item[1]
    return edges


def _chunk_grid(node: ScannedNode, axis: int, edges: Sequence[int]) -> Document:
    """The chunk grid of an array, with chunks of these lengths along an axis."""
    grid = node.document["chunk_grid"]
    lengths: list[Any] = list(
        grid["configuration"]["chunk_shape" if grid["name"] == "regular" else "chunk_shapes"]
    )
    runs = [(length, len([*run])) for length, run in groupby(edges)]
    if len(runs) == 1:
        lengths[axis] = edges[0]
    else:
        lengths[axis] = [length if count == 1 else [length, count] for length, count in runs]
    if all(isinstance(length, int) for length in lengths):
        return {"name": "regular", "configuration": {"chunk_shape": lengths}}
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": lengths}}


def _common_step(
    first: ScannedNode, axis: int, edges: Sequence[Sequence[int]], lengths: Sequence[int], *, is_needed: bool
) -> int | None:
    """The length into which the chunks of all arrays can be cut; None if they cannot, or should not, be cut.

    is_needed  whether to cut into pieces smaller than `LEAST_SIZE`, too
    """
    others = {d: max(_edges(first, d), default=1) for d in range(len(first.shape)) if d != axis}
    has_no_compressor = [codec["name"] for codec in first.document["codecs"]] == ["bytes"]
    if not has_no_compressor or any(set(_edges(first, d)) != {1} for d in range(axis)):
        return None
    item_size = load_array(Manifest(first.part.manifest.documents), first.path, ()).dtype.itemsize
    step = gcd(*(edge for of_node in edges for edge in of_node), *lengths)
    size = step * item_size * prod(others.values())
    return step if step and (size >= LEAST_SIZE or is_needed) else None


@dataclass
class _Table:
    """The references of an array, each column in the shape of the chunk grid."""

    source: np.ndarray[Any, Any]
    offset: np.ndarray[Any, Any]
    size: np.ndarray[Any, Any]
    inline: bytes

    @classmethod
    def of(cls, node: ScannedNode, manifest: Manifest) -> _Table:
        """The references of an array, their sources numbered as in `manifest`."""
        grid = tuple(len(_edges(node, d)) for d in range(len(node.shape)))
        source = np.full(prod(grid), ABSENT, np.int32)
        offset, size = np.zeros((2, prod(grid)), np.int64)
        inline = b""
        if node.path in node.part.manifest.chunks:
            chunks = renumber(node.part.manifest, node.path, manifest)
            rows = slice(None) if chunks.numbers is None else chunks.numbers
            source[rows], offset[rows], size[rows] = chunks.source, chunks.offset, chunks.size
            inline = chunks.inline
        return cls(source.reshape(grid), offset.reshape(grid), size.reshape(grid), inline)

    def cut(self, axis: int, edges: Sequence[int], length: int, step: int) -> _Table:
        """The references to pieces of chunks, `step` long; pieces past the end of the array are left out."""
        counts = np.array([edge // step for edge in edges], np.int64)
        pieces = np.concatenate([np.arange(count) for count in counts]) if len(counts) else counts
        shape = [1] * self.source.ndim
        shape[axis] = len(pieces)
        source, offset, size = (
            np.repeat(column, counts, axis) for column in (self.source, self.offset, self.size)
        )
        size //= np.repeat(counts, counts).reshape(shape)
        offset += pieces.reshape(shape) * size
        kept = [slice(None)] * source.ndim
        kept[axis] = slice(0, length // step)
        inside = tuple(kept)
        return _Table(source[inside], offset[inside], size[inside], self.inline)


def _join_tables(tables: Sequence[_Table], axis: int) -> Chunks:
    """The references of all tables, one behind the other along the axis."""
    inline = b""
    for table in tables:
        table.offset[table.source == INLINE] += len(inline)
        inline += table.inline
    source, offset, size = (
        np.concatenate([getattr(table, name) for table in tables], axis)
        for name in ("source", "offset", "size")
    )
    return Chunks(source.shape, source, offset, size, inline=inline, keys=ChunkKeys())

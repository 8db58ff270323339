"""Causes of slow reading, told from the documents of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from zstore.base.sizes import format_size
from zstore.engine.documents import place
from zstore.engine.layout import bind_layout
from zstore.errors import ZstoreError, without_secrets
from zstore.model.array import ArrayModel
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.zarr_names import innermost_codecs

# Decoded bytes of a chunk below which asking for it takes longer than its bytes do: of a file, and of a value
# that is requested over a network. Arrays of few chunks are read at once whatever their size.
LEAST_SIZE = 32 << 10
LEAST_REMOTE_SIZE = 256 << 10
FEW_CHUNKS = 64
# Bytes of a chunk that is decoded whole, however little of it is wanted.
MOST_SIZE = 256 << 20
# Members of a group whose documents are requested one by one.
FEW_MEMBERS = 8


def slow_reasons(node: Array | Group, members: Sequence[tuple[str, Array | Group]]) -> Iterator[str]:
    """One sentence for each cause of slow reading in a node and its members, with what to do about it."""
    is_many = len(members) > FEW_MEMBERS and node.store.request_count > 1
    if is_many and isinstance(node, Group) and node.model.consolidated is None:
        yield (
            f"{_where(node)}: {len(members)} members without consolidated metadata, each a request; "
            "`zstore consolidate` makes it one for all"
        )
    for _, member in members:
        if isinstance(member, Array):
            yield from (f"{_where(member)}: {reason}" for reason in _reasons(member))


def _where(node: Array | Group) -> str:
    return without_secrets(place(node.store, node.path))


def _reasons(array: Array) -> Iterator[str]:
    model, is_remote = array.model, array.store.request_count > 1
    size = prod(array.chunks) * array.dtype.itemsize
    least = LEAST_REMOTE_SIZE if is_remote else LEAST_SIZE
    count = array.nchunks if array.shards is None else 0
    if size < least and count > FEW_CHUNKS:
        each = "a request" if is_remote else "a file"
        yield (
            f"{count} chunks of {format_size(size)}, each {each}; "
            "`zstore convert --shards` joins them, `--chunks` makes larger ones"
        )
    if size > MOST_SIZE:
        yield (
            f"chunks of {format_size(size)}, decoded whole for any item; "
            "`zstore convert --chunks` makes smaller ones"
        )
    if array.dtype.hasobject or _is_native(model):
        return
    codecs = ", ".join(codec.name for codec in innermost_codecs(model))
    yield (
        f"{codecs}: decoded in Python, not by the kernels; "
        "`zstore convert --compressor zstd` makes it quicker to read"
    )


def _is_native(model: ArrayModel) -> bool:
    try:
        return bind_layout(model).is_native
    except ZstoreError:
        return True  # it cannot be read at all, which others say

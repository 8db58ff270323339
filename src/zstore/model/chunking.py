"""The chunk grid of a new array, from the arguments `chunks` and `shards`.

Both can be a length for each dimension, a single length for all, -1 or None for a whole dimension, or "auto".
For a rectilinear grid, a dimension can have a list of the lengths of its chunks, one by one or as runs
[length, count].
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.grid import Grid, RectilinearGrid, RegularGrid

TARGET_SIZE = 1 << 20
# Most shapes are tuples of plain integers, and need no further checks.
PLAIN = {int}


def choose_grid(
    chunks: Any, shards: Any, shape: tuple[int, ...], item_size: int, zarr_format: int
) -> tuple[Grid, tuple[int, ...] | None]:
    """The grid of a new array, and the shape of inner chunks (None without shards).

    Raises
        MetadataError: arguments that are malformed or contradict each other or the shape.
        UnsupportedError: a grid that the format does not have.
    """
    is_uneven = _is_nested(chunks) or _is_nested(shards)
    if zarr_format != 3 and shards is not None:
        raise UnsupportedError(
            f"shards {shards!r} cannot be had in Zarr v{zarr_format}; only v3 has sharding"
        )
    if zarr_format != 3 and is_uneven:
        raise UnsupportedError(
            f"chunks {chunks!r} cannot be had in Zarr v{zarr_format}; only v3 has chunks of several shapes"
        )
    if shards is None:
        if is_uneven:
            return _rectilinear(chunks, shape, "chunks"), None
        return RegularGrid(_chunk_shape(chunks, shape, item_size)), None
    if not is_uneven:
        shard_shape, chunk_shape = _shard_shapes(shards, chunks, shape, item_size)
        return RegularGrid(shard_shape), chunk_shape
    if _is_nested(chunks):
        raise MetadataError(f"chunks is {chunks!r}; expected one shape for all chunks within shards")
    grid = _rectilinear(shards, shape, "shards")
    if isinstance(chunks, str) and chunks == "auto":
        raise MetadataError(
            f"chunks is 'auto' and shards is {shards!r}; expected a shape that divides each shard"
        )
    chunk_shape = _chunk_shape(chunks, shape, item_size)
    for edge, chunk in zip(grid.edges, chunk_shape, strict=True):
        if any(length % chunk for length in edge.distinct()):
            raise MetadataError(f"shards {shards!r} are not all multiples of chunks {chunk_shape}")
    return grid, chunk_shape


def _is_nested(value: Any) -> bool:
    if value is None or isinstance(value, str | int):
        return False
    if isinstance(value, np.ndarray):
        return value.ndim > 1
    nested = (list, tuple, np.ndarray)
    return isinstance(value, list | tuple) and any(isinstance(item, nested) for item in value)


def _rectilinear(value: Any, shape: tuple[int, ...], name: str) -> RectilinearGrid:
    entries = _plain(value)
    if len(entries) == len(shape):
        entries = [
            max(1, n) if item is None or item == -1 else item for item, n in zip(entries, shape, strict=True)
        ]
    return RectilinearGrid.parse(entries, shape, name)


def _plain(value: Any) -> Any:
    """A value with numpy's arrays and integers converted to lists and Python's integers."""
    if isinstance(value, np.ndarray | np.integer):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def parse_integers(value: Any, name: str) -> tuple[Any, ...]:
    """A value as a tuple of integers and None; a single integer becomes a tuple of one.

    Raises
        MetadataError: it is something else.
    """
    if type(value) is tuple and set(map(type, value)) <= PLAIN:
        return value
    items = (value,) if isinstance(value, int | np.integer) else value
    if isinstance(items, Iterable) and not isinstance(items, str | bytes):
        items = tuple(items)
        whole = (int, np.integer)
        if all(item is None or (isinstance(item, whole) and not isinstance(item, bool)) for item in items):
            return items
    raise MetadataError(f"{name} is {value!r}; expected an integer or a sequence of integers")


def _chunk_shape(chunks: Any, shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    if isinstance(chunks, str) and chunks == "auto":
        return _guess_chunk_shape(shape, item_size)
    lengths = parse_integers(chunks, "chunks")
    if isinstance(chunks, int | np.integer):
        lengths *= len(shape)
    if len(lengths) != len(shape):
        raise MetadataError(f"chunks is {chunks!r}; expected {len(shape)} lengths as in shape {shape}")
    whole = [max(1, n) if c is None or c == -1 else int(c) for c, n in zip(lengths, shape, strict=True)]
    if min(whole, default=1) < 1:
        raise MetadataError(
            f"chunks is {chunks!r}; expected lengths of at least 1 (or -1 for the whole dimension)"
        )
    return tuple(whole)


def _guess_chunk_shape(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Guess a chunk shape of half to one MiB, as close to a cube as the array's shape allows."""
    lengths = [max(1, n) for n in shape]
    while prod(lengths) * item_size > TARGET_SIZE:
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        if lengths[longest] == 1:
            break
        lengths[longest] = (lengths[longest] + 1) // 2
    return tuple(lengths)


def _shard_shapes(
    shards: Any, chunks: Any, shape: tuple[int, ...], item_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shard shape, inner chunk shape)."""
    if isinstance(chunks, str) and chunks == "auto":
        shard_shape = _chunk_shape(shards, shape, item_size)
        return shard_shape, _guess_inner_shape(shard_shape, item_size)
    chunk_shape = _chunk_shape(chunks, shape, item_size)
    if isinstance(shards, str) and shards == "auto":
        # A number of whole chunks.
        counts = tuple(-(-n // chunk) for n, chunk in zip(shape, chunk_shape, strict=True))
        guessed = _guess_chunk_shape(counts, item_size * prod(chunk_shape))
        return tuple(n * chunk for n, chunk in zip(guessed, chunk_shape, strict=True)), chunk_shape
    shard_shape = _chunk_shape(shards, shape, item_size)
    if any(shard % chunk for shard, chunk in zip(shard_shape, chunk_shape, strict=True)):
        raise MetadataError(
            f"shards {shard_shape} are not a multiple of chunks {chunk_shape} in every dimension"
        )
    return shard_shape, chunk_shape


def _guess_inner_shape(shard_shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Guess a shape of inner chunks of at most one MiB, by halving even lengths of the shard."""
    lengths = list(shard_shape)
    while prod(lengths) * item_size > TARGET_SIZE:
        even = [index for index, length in enumerate(lengths) if length % 2 == 0]
        if not even:
            break
        lengths[max(even, key=lengths.__getitem__)] //= 2
    return tuple(lengths)

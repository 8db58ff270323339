"""Where inner chunks lie in shards of a store that the kernels cannot open: by reading the shards' indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zstore.byterange import ByteRange
from zstore.codecs.sharding import ShardIndex, ShardingIndexed
from zstore.errors import CodecError, ZstoreError
from zstore.storage.base import Store

__all__ = ["locate_pieces"]

Request = tuple[str, ByteRange | None]


def locate_pieces(
    store: Store,
    shards: Sequence[ShardingIndexed],
    keys: Sequence[str],
    cells: Sequence[Sequence[tuple[int, ...]]],
    *,
    path: str,
) -> list[Any]:
    """For every shard `keys[i]` and every inner chunk `cells[i][j]` of it: what to ask the store for, or None.

    `cells` are grid coordinates of innermost chunks in the array. Gives one flat list, shard after shard.

    Raises
        CodecError: an index is damaged, or says that an inner chunk lies where it cannot.
    """
    # Each entry: the key, and the stretch (offset, size) in which the remaining levels lie.
    places: list[tuple[str, int, int] | None] = []
    sizes = [store.size(key) for key in keys]
    for key, size, inner in zip(keys, sizes, cells, strict=True):
        places.extend([None if size is None else (key, 0, size)] * len(inner))
    flat = [cell for inner in cells for cell in inner]
    for level, shard in enumerate(shards):
        deeper = _scale(shards[level + 1 :], len(shard.counts))
        indexes = _read_indexes(store, shard, {place for place in places if place is not None}, path)
        for number, place in enumerate(places):
            if place is None:
                continue
            slot = 0
            for coordinate, count, scale in zip(flat[number], shard.counts, deeper, strict=True):
                slot = slot * count + coordinate // scale % count
            where = indexes[place].get(slot)
            places[number] = None if where is None else (place[0], place[1] + where[0], where[1])
    return [None if place is None else (place[0], ByteRange(place[1], place[2])) for place in places]


def _scale(shards: Sequence[ShardingIndexed], ndim: int) -> list[int]:
    """How many innermost chunks one chunk of the level above `shards` spans, per dimension."""
    scale = [1] * ndim
    for shard in shards:
        scale = [s * count for s, count in zip(scale, shard.counts, strict=True)]
    return scale


def _read_indexes(
    store: Store, shard: ShardingIndexed, places: set[tuple[str, int, int]], path: str
) -> dict[tuple[str, int, int], ShardIndex]:
    wanted = sorted(places)
    size = shard.index_size
    requests = []
    for key, offset, length in wanted:
        if length < size:
            raise CodecError(
                f"shard has {length} bytes, its index alone takes {size}",
                path=path,
                key=key,
                codec=shard.name,
            )
        requests.append(
            (key, ByteRange(offset if shard.index_location == "start" else offset + length - size, size))
        )
    indexes = {}
    for place, data in zip(wanted, store.get_many(requests), strict=True):
        if data is None:
            raise CodecError("shard vanished while it was read", path=path, key=place[0], codec=shard.name)
        try:
            indexes[place] = shard.decode_index(data, place[2])
        except ZstoreError as error:
            raise error.locate(path=path, key=place[0]) from error
    return indexes

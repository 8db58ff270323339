"""Finding inner chunks in the shards of remote stores, by the indexes of the shards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.base.locks import Lock
from zstore.codecs.sharding import EMPTY, ShardIndex, ShardingIndexed
from zstore.errors import CodecError, StoreError, ZstoreError
from zstore.storage.base import Part, Parts, Request

MISSING = [EMPTY, EMPTY]
# Up to this many slots, a loop in Python is faster than numpy.
FEW_COUNT = 16

GetParts = Callable[[Sequence[Request]], Coroutine[Any, Any, Parts]]

# (how deep the shard is nested, where it begins in the stored object, its size)
Place = tuple[int, int, int]


class ShardReplacedError(StoreError):
    """Other writers replaced some shards, `keys`, between reading their indexes and their inner chunks."""

    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, keys: Sequence[str], path: str) -> ShardReplacedError:
        """The error for shards under these keys of the array or store at `path`."""
        error = cls("shard was replaced while it was read", path=path, key=keys[0])
        error.keys = tuple(keys)
        return error


@dataclass
class Shard:
    """A stored shard: its size and version when it was first read, and the indexes found in it."""

    size: int
    version: str | None
    indexes: dict[Place, ShardIndex] = field(default_factory=dict)

    @property
    def memory_size(self) -> int:
        """Bytes that the indexes take in memory."""
        return 512 + sum(index.entries.nbytes for index in list(self.indexes.values()))

    def is_source_of(self, part: Part) -> bool:
        """Whether the part is from the same value as the indexes, as far as the store can tell."""
        return part.version == self.version and part.total_size == self.size


class Located(NamedTuple):
    """The stretches (offset, size) of inner chunks in one stored shard, None for those that it does not hold.

    `shard` is None if nothing is stored under `key`.
    """

    key: str
    stretches: list[tuple[int, int] | None]
    shard: Shard | None


class ShardIndexes:
    """A least-recently-used cache of one array's shard indexes, for stores that give values a version."""

    def __init__(self, limit_size: int = 32 << 20) -> None:
        self._limit_size = limit_size
        self._size = 0
        self._kept: OrderedDict[str, tuple[Shard, int]] = OrderedDict()
        self._lock = Lock()
        self._are_kept = True

    def unknown(self, keys: Sequence[str]) -> set[str]:
        """The `keys` that would be in the cache once they are read; none for a store without versions."""
        with self._lock:
            return {key for key in keys if key not in self._kept} if self._are_kept else set()

    def get(self, key: str) -> Shard | None:
        """The cached indexes of the shard under `key`."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: str, shard: Shard) -> None:
        """Add a shard that has a version; the least recently used ones make room for it."""
        if shard.version is None:
            self._are_kept = False
            return
        size = shard.memory_size
        with self._lock:
            self._size += size - self._kept.pop(key, (shard, 0))[1]
            self._kept[key] = shard, size
            while self._kept and self._size > self._limit_size:
                self._size -= self._kept.popitem(last=False)[1][1]

    def drop(self, key: str) -> None:
        """Remove a shard that was written, or found changed."""
        with self._lock:
            _, size = self._kept.pop(key, (None, 0))
            self._size -= size


async def locate(
    get_parts: GetParts,
    shards: Sequence[ShardingIndexed],
    keys: Sequence[str],
    cells: Sequence[Sequence[tuple[int, ...]]],
    *,
    path: str,
    known: ShardIndexes | None = None,
) -> list[Located]:
    """Where the inner chunks `cells[i]` lie in the shard under `keys[i]`: one round trip per level of shards.

    `cells` are grid coordinates of innermost chunks in the array. An index in the cache `known` is not read
    again, unless it says that none of the wanted chunks exists: no later read would show that it is outdated.

    Raises
        CodecError: an index is damaged, or says that an inner chunk lies where it cannot.
        ShardReplacedError: an object was replaced between two levels.
        StoreError: the store failed.
    """
    found = {key: shard for key in keys if known is not None and (shard := known.get(key)) is not None}
    remembered = set(found)
    located = await _descend(get_parts, shards, keys, cells, found, path)
    doubtful = [
        index for index, one in enumerate(located) if one.key in remembered and not any(one.stretches)
    ]
    if doubtful:
        for index in doubtful:
            found.pop(keys[index], None)
        again = await _descend(
            get_parts, shards, [keys[i] for i in doubtful], [cells[i] for i in doubtful], found, path
        )
        for index, one in zip(doubtful, again, strict=True):
            located[index] = one
    if known is not None:
        for one in located:
            if one.shard is not None:
                known.keep(one.key, one.shard)
    return located


async def _descend(
    get_parts: GetParts,
    shards: Sequence[ShardingIndexed],
    keys: Sequence[str],
    cells: Sequence[Sequence[tuple[int, ...]]],
    found: dict[str, Shard],
    path: str,
) -> list[Located]:
    await _read_outermost(get_parts, shards[0], keys, found, path)
    starts = [*accumulate(map(len, cells), initial=0)]
    flat = [cell for inner in cells for cell in inner]
    stretches: list[tuple[int, int] | None] = []
    slots = _slots(flat, shards, 0)
    for key, (first, last) in zip(keys, pairwise(starts), strict=True):
        shard = found.get(key)
        if shard is None:
            stretches.extend([None] * (last - first))
        else:
            index = shard.indexes[0, 0, shard.size]
            if last - first <= FEW_COUNT:
                stretches.extend(map(index.get, slots[first:last]))
                continue
            entries = index.entries[np.array(slots[first:last], np.intp)].tolist()
            stretches.extend([None if entry == MISSING else (entry[0], entry[1]) for entry in entries])
    owners = [key for key, inner in zip(keys, cells, strict=True) for _ in inner]
    for level in range(1, len(shards)):
        places = [None if stretch is None else (level, *stretch) for stretch in stretches]
        await _read_nested(get_parts, shards[level], owners, places, found, path)
        slots = _slots(flat, shards, level)
        for number, place in enumerate(places):
            if place is None:
                continue
            where = found[owners[number]].indexes[place].get(slots[number])
            stretches[number] = None if where is None else (place[1] + where[0], where[1])
    return [
        Located(key, stretches[first:last], found.get(key))
        for key, (first, last) in zip(keys, pairwise(starts), strict=True)
    ]


def _slots(cells: Sequence[tuple[int, ...]], shards: Sequence[ShardingIndexed], level: int) -> list[int]:
    """For each cell, the number of its entry in its shard's index at that level."""
    counts = shards[level].counts
    scales = [prod(below) for below in zip(*(shard.counts for shard in shards[level + 1 :]), strict=True)]
    steps = [*zip(counts, scales or [1] * len(counts), strict=True)]
    if len(cells) > FEW_COUNT:
        slots = np.zeros(len(cells), np.int64)
        for (count, scale), along in zip(steps, np.array(cells, np.int64).T, strict=True):
            slots = slots * count + along // scale % count
        found: list[int] = slots.tolist()
        return found
    found = []
    for cell in cells:
        slot = 0
        for (count, scale), at in zip(steps, cell, strict=True):
            slot = slot * count + at // scale % count
        found.append(slot)
    return found


async def _read_outermost(
    get_parts: GetParts, shard: ShardingIndexed, keys: Sequence[str], found: dict[str, Shard], path: str
) -> None:
    wanted = [key for key in dict.fromkeys(keys) if key not in found]
    size = shard.index_size
    where = ByteRange(0, size) if shard.index_location == "start" else ByteRange(-size)
    parts = await get_parts([(key, where) for key in wanted])
    for key, part in zip(wanted, parts, strict=True):
        if part is None:
            continue
        if part.total_size < size:
            raise CodecError(
                f"shard has {part.total_size} bytes, its index alone takes {size}",
                path=path,
                key=key,
                codec=shard.name,
            )
        found[key] = Shard(part.total_size, part.version)
        place = (0, 0, part.total_size)
        found[key].indexes[place] = _decode(shard, part, place, key, path)


async def _read_nested(
    get_parts: GetParts,
    shard: ShardingIndexed,
    owners: Sequence[str],
    places: Sequence[Place | None],
    found: dict[str, Shard],
    path: str,
) -> None:
    size = shard.index_size
    wanted = {
        (owner, place)
        for owner, place in zip(owners, places, strict=True)
        if place is not None and place not in found[owner].indexes
    }
    requests: list[Request] = []
    ordered = sorted(wanted)
    for key, (_, offset, length) in ordered:
        if length < size:
            raise CodecError(
                f"shard has {length} bytes, its index alone takes {size}",
                path=path,
                key=key,
                codec=shard.name,
            )
        begin = offset if shard.index_location == "start" else offset + length - size
        requests.append((key, ByteRange(begin, size)))
    parts = await get_parts(requests)
    replaced = [
        key
        for (key, _), part in zip(ordered, parts, strict=True)
        if part is None or not found[key].is_source_of(part)
    ]
    if replaced:
        raise ShardReplacedError.of(replaced, path)
    for (key, place), part in zip(ordered, parts, strict=True):
        assert part is not None, "looked at above"
        found[key].indexes[place] = _decode(shard, part, place, key, path)


def _decode(shard: ShardingIndexed, part: Part, place: Place, key: str, path: str) -> ShardIndex:
    if len(part.data) != shard.index_size:
        raise StoreError(
            f"asked for an index of {shard.index_size} bytes, got {len(part.data)}", path=path, key=key
        )
    try:
        return shard.decode_index(part.data, place[2])
    except ZstoreError as error:
        raise error.locate(path=path, key=key) from error

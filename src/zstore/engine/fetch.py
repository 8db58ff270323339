"""Inner chunks of shards in remote stores: located by the shards' indexes, fetched in few requests."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore._ext.engine.select import Plan
from zstore._ext.engine.transfer import Bundle, covers_outer
from zstore.base.byterange import GAP_SIZE, ByteRange, MergedRange, choose_gap, merge_ranges
from zstore.base.locks import Lock
from zstore.base.tracing import span
from zstore.codecs.sharding import EMPTY, ShardIndex, ShardingIndexed
from zstore.engine.layout import BoundLayout
from zstore.engine.schedulers import BLOCKING, Act, InFlight, Scheduler, as_they_come, proven
from zstore.errors import CodecError, StoreError, ZstoreError
from zstore.model.array import ArrayModel
from zstore.storage.base import Part, Parts, Request, Store, drive

# Shards and their indexes

MISSING = [EMPTY, EMPTY]
# Up to this many slots, a loop in Python is faster than numpy.
FEW_COUNT = 16

GetParts = Callable[[Sequence[Request]], Coroutine[Any, Any, Parts]]

# (how deep the shard is nested, where it begins in the stored object, its size; None: it is all of it)
Place = tuple[int, int, int | None]
WHOLE: Place = (0, 0, None)


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
    """A stored shard: its size and version when it was first read, and its indexes read so far."""

    size: int
    version: str | None
    indexes: dict[Place, ShardIndex] = field(default_factory=dict)

    @property
    def memory_size(self) -> int:
        """The bytes of memory that the indexes take."""
        return 512 + sum(index.entries.nbytes for index in list(self.indexes.values()))

    def is_source_of(self, part: Part) -> bool:
        """Whether some bytes are of the same value as the indexes, as far as the store can tell."""
        return part.version == self.version and part.total_size == self.size


class Located(NamedTuple):
    """The stretches (offset, size) of inner chunks in one stored shard, None for missing ones.

    `shard` is None if nothing is stored under `key`.
    """

    key: str
    stretches: list[tuple[int, int] | None]
    shard: Shard | None


class ShardIndexes:
    """A least-recently-used cache of one array's shard indexes, for stores with versions of values."""

    def __init__(self, limit_size: int = 32 << 20) -> None:
        self._limit_size = limit_size
        self._size = 0
        self._kept: OrderedDict[str, tuple[Shard, int]] = OrderedDict()
        self._lock = Lock()
        self._are_kept = True

    def unknown(self, keys: Sequence[str]) -> set[str]:
        """The `keys` whose shards the cache lacks and could keep; none in a store without versions."""
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
        """Remove a shard that was written, or has turned out to be changed."""
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
    """The stretches of the inner chunks `cells[i]` in the shard under `keys[i]`: one round trip per level.

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
    outermost = [(key, WHOLE) for key in dict.fromkeys(keys) if key not in found]
    await _read_indexes(get_parts, shards[0], outermost, found, path)
    starts = [*accumulate(map(len, cells), initial=0)]
    flat = [cell for inner in cells for cell in inner]
    stretches: list[tuple[int, int] | None] = []
    slots = _slots(flat, shards, 0)
    for key, (first, last) in zip(keys, pairwise(starts), strict=True):
        shard = found.get(key)
        if shard is None:
            stretches.extend([None] * (last - first))
        else:
            index = shard.indexes[WHOLE]
            if last - first <= FEW_COUNT:
                stretches.extend(map(index.get, slots[first:last]))
                continue
            entries = index.entries[np.array(slots[first:last], np.intp)].tolist()
            stretches.extend([None if entry == MISSING else (entry[0], entry[1]) for entry in entries])
    owners = [key for key, inner in zip(keys, cells, strict=True) for _ in inner]
    for level in range(1, len(shards)):
        places: list[Place | None] = [None if s is None else (level, *s) for s in stretches]
        wanted = {
            (owner, place)
            for owner, place in zip(owners, places, strict=True)
            if place is not None and place not in found[owner].indexes
        }
        await _read_indexes(get_parts, shards[level], sorted(wanted), found, path)
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


async def _read_indexes(
    get_parts: GetParts,
    shard: ShardingIndexed,
    wanted: Sequence[tuple[str, Place]],
    found: dict[str, Shard],
    path: str,
) -> None:
    """Add the indexes of these shards to `found`, by one round of requests."""
    size, is_first = shard.index_size, shard.index_location == "start"
    requests: list[Request] = []
    for key, (_, offset, length) in wanted:
        if length is None:
            requests.append((key, ByteRange(0, size) if is_first else ByteRange(-size)))
        else:
            _check_size(shard, length, key, path)
            requests.append((key, ByteRange(offset if is_first else offset + length - size, size)))
    parts = await get_parts(requests)
    replaced = [
        key
        for (key, place), part in zip(wanted, parts, strict=True)
        if place != WHOLE and (part is None or not found[key].is_source_of(part))
    ]
    if replaced:
        raise ShardReplacedError.of(replaced, path)
    for (key, place), part in zip(wanted, parts, strict=True):
        if part is None:
            continue  # no shard is stored there
        if place == WHOLE:
            _check_size(shard, part.total_size, key, path)
            found[key] = Shard(part.total_size, part.version)
        if len(part.data) != size:
            raise StoreError(f"asked for an index of {size} bytes, got {len(part.data)}", path=path, key=key)
        try:
            index = shard.decode_index(part.data, part.total_size if place[2] is None else place[2])
        except ZstoreError as error:
            raise error.locate(path=path, key=key) from error
        found[key].indexes[place] = index


def _check_size(shard: ShardingIndexed, length: int, key: str, path: str) -> None:
    if length < shard.index_size:
        reason = f"shard has {length} bytes, its index alone takes {shard.index_size}"
        raise CodecError(reason, path=path, key=key, codec=shard.name)


# Requests

# A key and a stretch (offset, size) of its value, None for all of it; and the fetched bytes by such names.
Name = tuple[str, tuple[int, int] | None]
Values = dict[Name, Any]

# The most outer chunks of one window, and its most bytes unless a single chunk has more. From a store with
# latency, WINDOWS_AT_ONCE are in memory at a time, some being fetched and some decoded: 24 MiB in flight are
# 800 MB/s at 30 ms. Of chunks larger than a window, two are.
WINDOW_COUNT = 1024
WINDOW_SIZE = 6 << 20
WINDOWS_AT_ONCE = 4
# A whole outer chunk of at least LARGE_SIZE bytes is a window of its own; of these as many are under way as
# have the store's `under_way_size` when they are decoded, and LARGE_COUNT at most.
LARGE_SIZE = 512 << 10
LARGE_COUNT = 64
# Where a store gives chunks as they come, each of the engine's threads asks for its own, and decodes them
# while they are in the processor's cache: those of STREAMED_SIZE and more, if all have STREAMED_SUM, and
# more than a window has.
STREAM_COUNT = 8
STREAMED_SIZE = 32 << 10
STREAMED_SUM = 1 << 20
# So many bytes of inner chunks, at least and at most, are received by one thread, and decoded shard by shard.
COMING_SIZES = LARGE_SIZE, 2 * WINDOW_SIZE

# A shard is fetched whole, which saves the round trip for its index, when at least half of it is needed and
# the rest is no more than SPARE_SIZE (a millisecond at 64 MB/s) or a sixteenth of what is needed.
SPARE_SIZE = 64 << 10
SPARE_SHARE = 16


class Window(NamedTuple):
    """Fetched bytes of neighbouring outer chunks: `first` to `last` of the plan with number `plan`.

    outer       the bytes of each outer chunk, where they were fetched whole
    inner       else the bytes of each inner chunk that the plan needs, and `names` the key each came from
    is_certain  no shard can have been replaced between the reads of its index and of its inner chunks
    """

    plan: int
    first: int
    last: int
    outer: list[Any] | None = None
    inner: list[Any] | None = None
    names: list[str] | None = None
    is_certain: bool = True


@dataclass
class ShardSource:
    """One array as `ShardFetch` needs it, with the shard indexes that were read already."""

    store: Store
    model: ArrayModel
    bound: BoundLayout
    key: Callable[[tuple[int, ...]], str]
    indexes: ShardIndexes = field(default_factory=ShardIndexes)
    in_flight: InFlight = field(default_factory=dict)

    @property
    def outer_size(self) -> int:
        """Decoded bytes of an outer chunk."""
        return max(1, prod(self.model.grid.chunk_shape) * self.model.dtype.itemsize)


def stored_size(values: Iterable[bytes | memoryview | None]) -> int:
    """The bytes of values that were fetched."""
    return sum(len(value) for value in values if value is not None)


def windows_at_once(store: Store, outer_count: int | None, outer_size: int) -> int:
    """The number of windows in memory at a time.

    outer_count  outer chunks to read in all, None where that is not known
    outer_size   decoded bytes of one of them
    """
    if store.request_count == 1 or outer_count == 1:
        return 1
    return WINDOWS_AT_ONCE if outer_size <= WINDOW_SIZE else 2


def windows(store: Store, outer_count: int, outer_size: int) -> tuple[int, int]:
    """(whole outer chunks per window, windows in memory at a time)."""
    at_once = windows_at_once(store, outer_count, outer_size)
    count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // outer_size))
    if at_once == WINDOWS_AT_ONCE and outer_size >= LARGE_SIZE:
        # One chunk each: in a window of several, the next request would wait for the slowest of them.
        return 1, min(store.under_way_size // outer_size, LARGE_COUNT)
    return count, at_once


class ShardFetch:
    """Fetches the bytes that plans need from the shards of one array, each stretch once.

    The outer chunks of all plans are numbered consecutively; `o` is such a number.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: ShardSource,
        plans: Sequence[Plan | Bundle],
        is_awaited: Callable[[int], bool] | None = None,
    ) -> None:
        """`is_awaited` says whether a plan's reader still waits; each plan gets its windows early then."""
        self._scheduler = scheduler
        self._is_awaited = is_awaited
        self._source = source
        self._store = source.store
        self._plans = plans
        self._firsts = [0]
        # For each outer chunk: the number of its plan, its cell in the grid, and its tasks in the plan.
        self._outers: list[tuple[int, tuple[int, ...], range]] = []
        for number, plan in enumerate(plans):
            for cell, (first, last) in zip(plan.outer_cells(), pairwise(plan.outer_tasks()), strict=True):
                self._outers.append((number, cell, range(first, last)))
            self._firsts.append(len(self._outers))
        self._keys = [source.key(cell) for _, cell, _ in self._outers]

    async def each_window(self, use: Act[Window]) -> None:
        """Fetch everything, window by window, and await `use` of each.

        Raises
            CodecError: the index of a shard is damaged.
            StoreError: the store failed, or other writers keep replacing a shard.
        """
        total = len(self._keys)
        count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // 4 // self._source.bound.shards[0].index_size))
        ranges = [range(first, min(first + count, total)) for first in range(0, total, count)]
        at_once = windows_at_once(self._store, total, self._source.outer_size)
        if len(ranges) == 1:
            await self._each_of(use, at_once, ranges[0])
            return
        await self._scheduler.each(partial(self._each_of, use, 1), ranges, at_once)

    async def _each_of(self, use: Act[Window], at_once: int, numbers: Sequence[int]) -> None:
        """`each_window`, for outer chunks whose indexes are read in one round of requests."""
        keys = {self._keys[o] for o in numbers if self._is_whole(o)}
        whole = {o for o in numbers if self._keys[o] in keys}
        located = await self._locate([o for o in numbers if o not in whole])
        if len(self._plans) > 1:  # so that one portion has all that several plans need of a shard
            numbers = sorted(numbers, key=self._keys.__getitem__)

        async def fetch(portion: tuple[list[int], int]) -> None:
            part, size = portion
            with await self._scheduler.reserve(size):
                if self._is_awaited is not None:
                    part = [o for o in part if self._is_awaited(self._outers[o][0])]
                    if not part:
                        return
                with span("fetch", chunks=len(part)) as noted:
                    values = await self._values(part, whole, located)
                    noted.note(bytes=stored_size(values.values()))
                for window in self._windows(part, whole, located, values):
                    await use(window)

        count, large_at_once = windows(self._store, len(numbers), self._source.outer_size)
        is_large = not located and count == 1 and self._is_awaited is None
        if is_large:
            same = groupby(numbers, self._keys.__getitem__)
            portions = [([*members], self._source.outer_size) for _, members in same]
            # Beside others that do the same, it may have its share.
            at_once = large_at_once if at_once > 1 else max(1, large_at_once // WINDOWS_AT_ONCE)
        elif await self._each_as_it_comes(use, numbers, whole, located):
            return
        else:
            portions = [*self._portions(numbers, located)]
        if self._is_awaited is not None:
            at_once = max(at_once, self._store.request_count)
        if len(portions) == 1:
            await fetch(portions[0])
            return
        await self._scheduler.each(fetch, portions, at_once)

    async def _each_as_it_comes(
        self, use: Act[Window], numbers: Sequence[int], whole: set[int], located: dict[int, Located]
    ) -> bool:
        """Await `use` of each outer chunk when it has come; False where they are to come in portions."""
        wanted = {o: None if o in whole else _stretches(located[o]) for o in numbers}
        asked = self._asked_at_once(wanted)
        if asked is None:
            return False
        found = self._as_they_come(asked)
        if found is None:
            return False
        stale: list[int] = []
        for window in self._come(found, asked, wanted, whole, located, stale):
            await use(window)
        if stale:
            for o in stale:
                self._source.indexes.drop(self._keys[o])
            located.update(await self._locate(stale))
            again = await self._values(stale, whole, located)
            for window in self._windows(stale, whole, located, again):
                await use(window)
        return True

    def _come(
        self,
        found: Iterator[Sequence[tuple[int, Part | None]]],
        asked: Sequence[tuple[int, MergedRange | None]],
        wanted: Mapping[int, list[tuple[int, int]] | None],
        whole: set[int],
        located: Mapping[int, Located],
        stale: list[int],
    ) -> Iterator[Window]:
        """The windows of outer chunks of which all has come; `stale` gets those that were replaced."""
        left = Counter(o for o, _ in asked)
        values: dict[int, Values] = {o: {} for o in wanted}
        ready, is_last = [o for o in wanted if not left[o]], False
        while not is_last:
            complete = [o for o in ready if o in values]
            stale += [o for o in ready if o not in values]
            here = {name: data for o in complete for name, data in values.pop(o).items()}
            yield from self._windows(complete, whole, located, here)
            del here  # so that nothing is held while more is waited for
            with span("fetch") as noted:
                answers = next(found, None)
                is_last, some = answers is None, answers or ()
                noted.note(bytes=stored_size([part and part.data for _, part in some]))
            for number, part in some:
                o, merged = asked[number]
                left[o] -= 1
                stretches = wanted[o]
                if merged is None or stretches is None:
                    values[o][self._keys[o], None] = part and part.data
                elif part is None or len(part.data) != merged.size or _is_replaced(part, located[o].shard):
                    values.pop(o, None)
                elif o in values:
                    for member in merged.members:
                        begin = stretches[member][0] - merged.start
                        piece = part.data[begin : begin + stretches[member][1]]
                        values[o][self._keys[o], stretches[member]] = piece
            ready = sorted(o for o in {asked[number][0] for number, _ in some} if not left[o])

    def _asked_at_once(
        self, wanted: Mapping[int, list[tuple[int, int]] | None]
    ) -> list[tuple[int, MergedRange | None]] | None:
        """The requests for stretches of outer chunks, None for a whole one; None where there are better ways.

        Those are for few or many bytes, for what is awaited, and for gaps chosen by all that is asked.
        """
        parts = [stretches for stretches in wanted.values() if stretches is not None]
        size = self._source.outer_size * (len(wanted) - len(parts)) + sum(
            size for some in parts for _, size in some
        )
        least, most = COMING_SIZES
        if self._scheduler is not BLOCKING or len(self._plans) > 1 or not least <= size <= most:
            return None
        gap_size = choose_gap(parts)
        if gap_size > GAP_SIZE:
            return None
        return [
            (o, merged)
            for o, stretches in wanted.items()
            for merged in ([None] if stretches is None else merge_ranges(stretches, gap_size=gap_size))
        ]

    def _as_they_come(
        self, asked: Sequence[tuple[int, MergedRange | None]]
    ) -> Iterator[Sequence[tuple[int, Part | None]]] | None:
        """The answers to requests as they come, some at a time; None of stores that give nothing so."""
        requests = [
            (self._keys[o], None if merged is None else ByteRange(merged.start, merged.size))
            for o, merged in asked
        ]
        sizes = [self._source.outer_size if merged is None else merged.size for _, merged in asked]
        found = self._store.get_each(requests, max(1, sum(sizes) // len(sizes)), 1) if sizes else None
        if found is None:
            return None

        def each() -> Iterator[Sequence[tuple[int, Part | None]]]:
            for some in as_they_come(found):
                proven(self._store, [requests[at] for at, _ in some], [part for _, part in some])
                yield some

        return each()

    async def again(self, window: Window) -> Window:
        """Fetch a window and its shard indexes again: the first answer may mix two versions."""
        begin = self._firsts[window.plan]
        numbers = list(range(begin + window.first, begin + window.last))
        for o in numbers:
            self._source.indexes.drop(self._keys[o])
        located = await self._locate(numbers)
        values = await self._values(numbers, set(), located)
        return next(self._windows(numbers, set(), located, values))

    def _windows(
        self, numbers: list[int], whole: set[int], located: Mapping[int, Located], values: Values
    ) -> Iterator[Window]:
        """The windows of these outer chunks: one per run of neighbours fetched in the same way."""
        places = {o: place for place, o in enumerate(numbers)}
        for (plan, is_whole, _), run in groupby(
            numbers, lambda o: (self._outers[o][0], o in whole, o - places[o])
        ):
            members = list(run)
            begin = self._firsts[plan]
            window = Window(plan, members[0] - begin, members[-1] + 1 - begin)
            if is_whole and self._source.bound.is_native:
                yield window._replace(outer=[values[self._keys[o], None] for o in members])
                continue
            found = self._open(members, values) if is_whole else [located[o] for o in members]
            pieces = [(one.key, stretch) for one in found for stretch in one.stretches]
            inner = [
                None if stretch is None else _piece(values, key, stretch, is_whole) for key, stretch in pieces
            ]
            is_certain = is_whole or all(one.shard is None or one.shard.version is not None for one in found)
            yield window._replace(inner=inner, names=[key for key, _ in pieces], is_certain=is_certain)

    def _portions(
        self, numbers: Sequence[int], located: Mapping[int, Located]
    ) -> Iterator[tuple[list[int], int]]:
        """The outer chunks in portions of about WINDOW_SIZE bytes to fetch, each with its number of bytes."""
        portion: list[int] = []
        weight = 0
        counted: set[tuple[str, tuple[int, int]]] = set()
        for o in numbers:
            stretches = located[o].stretches if o in located else [(0, self._source.outer_size)]
            names = {(self._keys[o], stretch) for stretch in stretches if stretch is not None}
            size = sum(stretch[1] for _, stretch in names - counted)
            is_other = portion and self._keys[o] != self._keys[portion[-1]]
            # Readers who are many wait for what lies in the same shard, not for the slowest of all requests.
            if is_other and (self._is_awaited is not None or weight + size > WINDOW_SIZE):
                yield portion, weight
                portion, weight = [], 0
                counted.clear()
                size = sum(stretch[1] for _, stretch in names)
            portion.append(o)
            counted |= names
            weight += size
        if portion:
            yield portion, weight

    def _is_whole(self, o: int) -> bool:
        """Whether to fetch the shard whole, rather than its index first."""
        number, cell, tasks = self._outers[o]
        plan = self._plans[number]
        if isinstance(plan, Plan) and covers_outer(plan, cell):
            return True
        model, spec = self._source.model, self._source.bound.inner.spec
        lengths = zip(cell, model.grid.chunk_shape, model.shape, spec.shape, strict=True)
        there = prod(
            -(-(min((c + 1) * outer, length) - c * outer) // inner) for c, outer, length, inner in lengths
        )
        if 2 * len(tasks) < there:
            return False
        wanted = len({plan.inner_cell(task) for task in tasks})
        size = prod(spec.shape) * spec.dtype.itemsize
        spare = (there - wanted) * size
        return 2 * wanted >= there and spare <= max(SPARE_SIZE, wanted * size // SPARE_SHARE)

    async def _locate(self, numbers: Sequence[int]) -> dict[int, Located]:
        """The stretches of these shards' inner chunks; tried twice, in case a shard is replaced meanwhile."""
        if not numbers:
            return {}
        source = self._source
        keys = [self._keys[o] for o in numbers]
        cells = [self._inner_cells(o) for o in numbers]
        for is_last in (False, True):
            try:
                with await self._scheduler.single_flight(
                    source.in_flight, partial(source.indexes.unknown, keys)
                ):
                    found = await locate(
                        partial(self._scheduler.get_parts, self._store),
                        source.bound.shards,
                        keys,
                        cells,
                        path=self._store.url,
                        known=source.indexes,
                    )
            except ShardReplacedError as error:
                if is_last:
                    raise
                for key in error.keys:
                    source.indexes.drop(key)
            else:
                break
        return dict(zip(numbers, found, strict=True))

    async def _values(self, numbers: Sequence[int], whole: set[int], located: dict[int, Located]) -> Values:
        """Fetch the bytes that these outer chunks need, by key and stretch (None for the whole value).

        `located` is brought up to date for shards that were replaced since their index was read.
        """
        values: Values = {}
        names: list[Name] = list(dict.fromkeys((self._keys[o], None) for o in numbers if o in whole))
        in_parts = [o for o in numbers if o in located]
        names += _names(located[o] for o in in_parts)
        stale = await self._get(names, {one.key: one.shard for one in located.values()}, values)
        if not stale:
            return values
        for key in stale:
            self._source.indexes.drop(key)
        located.update(await self._locate([o for o in in_parts if self._keys[o] in stale]))
        names = _names(located[o] for o in in_parts if self._keys[o] in stale)
        stale = await self._get(names, {one.key: one.shard for one in located.values()}, values)
        if stale:
            await self._fetch_whole([o for o in in_parts if self._keys[o] in stale], located, values)
        return values

    async def _fetch_whole(self, numbers: list[int], located: dict[int, Located], values: Values) -> None:
        """Fetch shards that others replace all the time by one request each, which is of one moment."""
        names: list[Name] = list(dict.fromkeys((self._keys[o], None) for o in numbers))
        await self._get(names, {}, values)
        for o, one in zip(numbers, self._open(numbers, values), strict=True):
            located[o] = one
            for name in _names([one]):
                values[name] = _piece(values, one.key, name[1] or (0, 0), True)
        for key, _ in names:
            self._source.indexes.drop(key)

    async def _get(
        self, names: Sequence[Name], shards: Mapping[str, Shard | None], values: Values
    ) -> set[str]:
        """Fetch into `values`; return the keys of shards that were replaced since their index was read."""
        requests = [(key, None if stretch is None else ByteRange(*stretch)) for key, stretch in names]
        stale = set()
        if not any(shard is not None and shard.version is not None for shard in shards.values()):
            values.update(zip(names, await self._scheduler.get_many(self._store, requests), strict=True))
        else:
            parts = await self._scheduler.get_parts(self._store, requests)
            for name, part in zip(names, parts, strict=True):
                values[name] = None if part is None else part.data
                if name[1] is not None and _is_replaced(part, shards.get(name[0])):
                    stale.add(name[0])
        return stale | {name[0] for name in names if _is_short(name, values[name])}

    def _open(self, numbers: Sequence[int], values: Values) -> list[Located]:
        """The stretches of inner chunks in shards that were fetched whole."""

        async def get_parts(requests: Sequence[Request]) -> Parts:
            parts: Parts = []
            for key, byte_range in requests:
                data = values[key, None]
                begin, end = (byte_range or ByteRange(0)).resolve(0 if data is None else len(data))
                parts.append(None if data is None else Part(memoryview(data)[begin:end], len(data)))
            return parts

        shards = self._source.bound.shards
        cells = [self._inner_cells(o) for o in numbers]
        keys = [self._keys[o] for o in numbers]
        return drive(locate(get_parts, shards, keys, cells, path=self._store.url))

    def _inner_cells(self, o: int) -> list[tuple[int, ...]]:
        """The cells of the inner chunks that the plan needs from an outer chunk."""
        number, _, tasks = self._outers[o]
        plan = self._plans[number]
        return [plan.inner_cell(task) for task in tasks]


def _is_replaced(part: Part | None, shard: Shard | None) -> bool:
    """Whether a stretch is of another value than the index that says where it lies."""
    return part is not None and shard is not None and not shard.is_source_of(part)


def _is_short(name: Name, value: Any) -> bool:
    """Whether a value is not the stretch that was asked for."""
    return name[1] is not None and (value is None or len(value) != name[1][1])


def _names(located: Iterable[Located]) -> list[Name]:
    """The stretches to request, each once; an inner chunk of no bytes needs no request."""
    return list(dict.fromkeys((one.key, stretch) for one in located for stretch in _stretches(one)))


def _stretches(located: Located) -> list[tuple[int, int]]:
    """The stretches that hold bytes, each once."""
    return list(dict.fromkeys(stretch for stretch in located.stretches if stretch is not None and stretch[1]))


def _piece(values: Values, key: str, stretch: tuple[int, int], is_whole: bool) -> Any:
    offset, size = stretch
    if is_whole:
        return memoryview(values[key, None])[offset : offset + size]
    return values[key, stretch] if size else b""

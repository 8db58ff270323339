"""Fetching the inner chunks that plans need from shards in remote stores, in as few requests as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from math import prod
from typing import Any, NamedTuple

from zstore._ext.engine.select import Plan
from zstore._ext.engine.transfer import covers_outer
from zstore.base.byterange import ByteRange
from zstore.engine.layout import BoundLayout
from zstore.engine.locate import Located, Shard, ShardIndexes, ShardReplacedError, locate
from zstore.engine.schedulers import Act, InFlight, Scheduler, drive
from zstore.model.array import ArrayModel
from zstore.storage.base import Part, Parts, Request, Store

# A key and a stretch (offset, size) of its value, None for all of it; and the fetched bytes by such names.
Name = tuple[str, tuple[int, int] | None]
Values = dict[Name, Any]

# The most outer chunks of one window, and its most bytes unless a single chunk has more. From a store with
# latency, WINDOWS_AT_ONCE are in memory at a time, some being fetched and some decoded: 24 MiB in flight are
# 800 MB/s at 30 ms. Of chunks larger than a window, two are.
WINDOW_COUNT = 1024
WINDOW_SIZE = 6 << 20
WINDOWS_AT_ONCE = 4
# A plain outer chunk of at least this many bytes is a window of its own.
LARGE_SIZE = 512 << 10

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
class Source:
    """One array as `Fetch` needs it, with the shard indexes that were read already."""

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


def windows_at_once(store: Store, outer_count: int | None, outer_size: int) -> int:
    """How many windows to have in memory at a time.

    outer_count  outer chunks to read in all, None where that is not known
    outer_size   decoded bytes of one of them
    """
    if store.request_count == 1 or outer_count == 1:
        return 1
    return WINDOWS_AT_ONCE if outer_size <= WINDOW_SIZE else 2


def windows(store: Store, outer_count: int, outer_size: int) -> tuple[int, int]:
    """How many whole outer chunks make a window, and how many windows to have in memory."""
    at_once = windows_at_once(store, outer_count, outer_size)
    count = min(WINDOW_COUNT, max(1, WINDOW_SIZE // outer_size))
    if at_once == WINDOWS_AT_ONCE and outer_size >= LARGE_SIZE:
        # One chunk each: in a window of several, the next request would wait for the slowest of them.
        return 1, at_once * count
    return count, at_once


class Fetch:
    """Fetches what plans need from the shards of one array, each stretch of bytes once.

    The outer chunks of all plans are numbered consecutively; `o` is such a number.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: Source,
        plans: Sequence[Plan],
        is_awaited: Callable[[int], bool] | None = None,
    ) -> None:
        """`is_awaited` says whether a plan's reader still waits; each is given its windows early then."""
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
        """Do what `each_window` does, for outer chunks whose indexes are read in one round of requests."""
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
                values = await self._values(part, whole, located)
                for window in self._windows(part, whole, located, values):
                    await use(window)

        portions = [*self._portions(numbers, located)]
        if self._is_awaited is not None:
            at_once = max(at_once, self._store.request_count)
        if len(portions) == 1:
            await fetch(portions[0])
            return
        await self._scheduler.each(fetch, portions, at_once)

    async def again(self, window: Window) -> Window:
        """Fetch a window again, together with the shard indexes: the first answer may mix two versions."""
        begin = self._firsts[window.plan]
        numbers = list(range(begin + window.first, begin + window.last))
        for o in numbers:
            self._source.indexes.drop(self._keys[o])
        located = await self._locate(numbers)
        values = await self._values(numbers, set(), located)
        return next(self._windows(numbers, set(), located, values))

    def _windows(
        self, numbers: list[int], whole: set[int], located: dict[int, Located], values: Values
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
        if covers_outer(plan, cell):
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
        """Where the inner chunks of these shards lie; tried twice, in case a shard is replaced meanwhile."""
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
            raise ShardReplacedError.of(sorted(stale), self._store.url)
        return values

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
                shard = shards.get(name[0])
                if name[1] is not None and part is not None and shard and not shard.is_source_of(part):
                    stale.add(name[0])
        for key, stretch in names:
            value = values[key, stretch]
            if stretch is not None and (value is None or len(value) != stretch[1]):
                stale.add(key)
        return stale

    def _open(self, numbers: Sequence[int], values: Values) -> list[Located]:
        """Where the inner chunks lie in shards that were fetched whole."""

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


def _names(located: Iterable[Located]) -> list[Name]:
    """The stretches to request, each once; an inner chunk of no bytes needs no request."""
    wanted = ((one.key, stretch) for one in located for stretch in one.stretches)
    return list(dict.fromkeys(name for name in wanted if name[1] is not None and name[1][1]))


def _piece(values: Values, key: str, stretch: tuple[int, int], is_whole: bool) -> Any:
    offset, size = stretch
    if is_whole:
        return memoryview(values[key, None])[offset : offset + size]
    return values[key, stretch] if size else b""

"""Passes: coarser levels and a copy from one reading of an array, in units that fit in a memory budget."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import groupby, product
from math import lcm, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore.base.boxes import Box, Items, Shape, hull, inside, lengths, meet, volume, whole
from zstore.base.once import once
from zstore.engine.schedulers import thread_count
from zstore.engine.walk import chunk_keys, is_stored
from zstore.errors import MetadataError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.geo.pyramid.dataset import Mask, Masking
from zstore.geo.resampling.methods import WEIGHTED, Piece, Resampler, on_circle, plan_part, trace_box
from zstore.jobs.chunks import StoredArray
from zstore.jobs.plan import Plan, name_job
from zstore.jobs.runner import Runner, units_at_once
from zstore.jobs.source import Source
from zstore.model.packing import Circle, with_one_nodata
from zstore.nodes.array import Array

# Passes and their units

# Methods whose results lie between the least and the greatest cell, even rounded.
BETWEEN = frozenset(("average", "mode", "med", "q1", "q3", "max", "min"))
# The most bytes that a thread keeps, to read its next tile into.
KEPT_SIZE = 8 << 20
# Bytes of the hash of the versions of what a unit has written.
VERSIONS_SIZE = 16
_memory = threading.local()

# What is offered as a resampler: (array, factors, *, nodata=None, out=None) gives the array made smaller,
# each cell of it from its own window alone. Built-in methods that look further say so through `plan_part`.
Resample: TypeAlias = Callable[..., Items]


@dataclass(frozen=True)
class Recipe:
    """The way in which coarser levels are made from an array.

    factors     from each level to the next, per dimension
    nodata      what resampling leaves out
    others      further values of nodata in the source, which levels have `nodata` for
    grid        how windows lie: "aligned" or "gdal"
    is_chained  whether a level is made from the one before; else `depth` levels at a time are from one source
    mask        where the source is valid, in the source's cells
    circle      of directions, whose unit vectors are resampled
    """

    source: Source
    factors: Shape
    method: str
    nodata: Any = None
    others: tuple[int | float, ...] = ()
    grid: str = "aligned"
    is_chained: bool = True
    depth: int = 64
    mask: Mask | None = None
    circle: Circle | None = None


class Share(NamedTuple):
    """The part `box` of an array that one unit owns, if other units own parts of the same chunks.

    limits  the box of the array that is written at all
    """

    array: Array
    limits: Box
    box: Box


class LevelPlan(Plan[list[Items]]):
    """A plan that makes cells of levels: a `Pass`, or the reprojection of a finest level.

    A unit writes the chunks that it owns whole, and returns its shares of all others.
    """

    most: int | None

    @property
    def unit(self) -> Shape:
        """The lengths of a unit."""
        raise NotImplementedError

    @property
    def arrays(self) -> Sequence[Array]:
        """The arrays to write."""
        raise NotImplementedError

    def written(self, unit: Shape) -> list[tuple[Array, Box]]:
        """The arrays, and the box of each, that the unit writes itself."""
        raise NotImplementedError

    def cell_count(self, unit: Shape) -> int:
        """The number of cells that progress counts for a unit."""
        raise NotImplementedError

    def total_count(self) -> int:
        """The number of these cells in all units."""
        return sum(map(self.cell_count, self.units()))

    def shared(self, unit: Shape) -> list[Share]:
        """The shares that a unit returns: its parts of chunks that several units own."""
        return []

    def unpack(self, unit: Shape, data: bytes) -> list[Items]:
        return super().unpack(unit, data) or []

    def holds(self, unit: Shape, result: list[Items]) -> bool:
        """Whether all chunks that the unit owns are stored; others are all fill value, or were lost."""
        own = self.written(unit)
        return all(is_stored(array.store, array.path, array.model, box) for array, box in own)


@dataclass(frozen=True)
class Pass(LevelPlan):
    """One reading of a recipe's source, and its results: a copy, and levels.

    The source is divided into units. A unit owns a part of every level: the cells whose place times the
    factors lies in it, so that every cell has one owner. It reads all that those cells are made of, also
    beyond its own cells where windows reach further. So it can be made without other units, anywhere, twice.

    copy    an array to copy the source to
    levels  arrays ceil(n / factors ** i) long, i = 1, 2, ...
    boxes   the boxes of the copy and of each level that are written
    unit    lengths of a unit in cells of the source
    tile    lengths of the part of a unit that is read, and made into cells of every level, at a time
    most    how many units memory holds at a time; None: as many as keep the threads busy
    """

    recipe: Recipe
    copy: Array | None
    levels: tuple[Array, ...]
    boxes: tuple[Box, ...]
    unit: Shape = ()
    tile: Shape = ()
    most: int | None = None

    @property
    def source(self) -> Source:
        """The array that is read."""
        return self.recipe.source

    def shape(self, level: int) -> Shape:
        """The shape of the source (level 0) or of a level."""
        return self.levels[level - 1].shape if level else self.source.shape

    @property
    def arrays(self) -> Sequence[Array]:
        return self.levels if self.copy is None else (self.copy, *self.levels)

    def targets(self) -> list[int]:
        """The levels to write, 0 for the copy."""
        return list(range(0 if self.copy is not None else 1, len(self.levels) + 1))

    def scale(self, level: int) -> Shape:
        """The number of cells of the source, per dimension, that make one of that level."""
        return tuple(factor**level for factor in self.recipe.factors)

    # Units

    def own(self, unit: Shape, level: int) -> Box:
        """The box of a level that the unit beginning at `unit` owns, as far as it is written."""
        sides = []
        sizes = zip(self.unit, self.source.shape, self.scale(level), self.shape(level), strict=True)
        for begin, box, (length, size, factor, cells) in zip(unit, self.boxes[level], sizes, strict=True):
            first = max(-(-begin // factor), box.start)
            last = cells if begin + length >= size else -(-(begin + length) // factor)
            sides.append(slice(first, max(first, min(last, box.stop))))
        return tuple(sides)

    def units(self) -> Iterator[Shape]:
        """The first cells of the units, ordered so that few shared chunks are open at a time."""
        for unit in self._nested(self._ranges(), range(len(self.levels), self.whole_count, -1)):
            if any(volume(self.own(unit, level)) for level in self.targets()):
                yield unit

    def _ranges(self) -> list[range]:
        """The first cells of the units, per dimension, as far as anything is written."""
        ranges = []
        for axis, (size, length) in enumerate(zip(self.source.shape, self.unit, strict=True)):
            sides = [(self.boxes[level][axis], self.scale(level)[axis]) for level in self.targets()]
            begin = min((side.start * factor for side, factor in sides), default=0) // length * length
            end = min(size, max((side.stop * factor for side, factor in sides), default=0))
            ranges.append(range(begin, end, length))
        return ranges

    def _nested(self, ranges: Sequence[Sequence[int]], levels: range) -> Iterator[Shape]:
        """The units that begin in `ranges`, by shared chunk, those of the coarsest level outermost."""
        if not levels:
            yield from product(*ranges)
            return
        scale, chunks = self.scale(levels[0]), outer_chunks(self.levels[levels[0] - 1])
        sizes = [factor * length for factor, length in zip(scale, chunks, strict=True)]
        parts = [_group_by_length(begins, size) for begins, size in zip(ranges, sizes, strict=True)]
        for chosen in product(*parts):
            yield from self._nested(chosen, levels[1:])

    def total_count(self) -> int:
        """The number of cells of the source in all units."""
        first = self.targets()[0] if self.targets() else 0
        is_all = self.boxes[first] == whole(self.shape(first))
        if is_all and not any(n % f for n, f in zip(self.unit, self.scale(first), strict=True)):
            # Each of them owns something, and together they are the source.
            return prod(self.source.shape)
        return super().total_count()

    def cell_count(self, unit: Shape) -> int:
        """The number of cells of the source in a unit."""
        sides = zip(unit, self.unit, self.source.shape, strict=True)
        return prod(min(length, size - begin) for begin, length, size in sides)

    @once
    def unit_count(self) -> int:
        """The number of units that the whole source is divided into."""
        return prod(-(-n // u) for n, u in zip(self.source.shape, self.unit, strict=True))

    @once
    def is_apart(self) -> bool:
        """Whether windows do not overlap; those of plugins' methods never do."""
        if not is_built_in(self.recipe.method):
            return True
        # The method may be named by an alias.
        is_weighted = resamplers.resolve(self.recipe.method).method in WEIGHTED
        return self.recipe.grid == "aligned" and not is_weighted

    @once
    def whole_count(self) -> int:
        """The number of levels, from the first on, without a chunk (or shard) shared by two units."""
        count = 0
        for level, array in enumerate(self.levels, 1):
            sides = zip(self.unit, self.source.shape, self.scale(level), outer_chunks(array), strict=True)
            if any(length < size and length % (factor * chunk) for length, size, factor, chunk in sides):
                break
            count = level
        return count

    def shared(self, unit: Shape) -> list[Share]:
        """The shares that a unit returns, level by level: its parts of chunks that several units own."""
        levels = range(self.whole_count + 1, len(self.levels) + 1)
        owned = [Share(self.levels[n - 1], self.boxes[n], self.own(unit, n)) for n in levels]
        return [share for share in owned if volume(share.box)]

    def pack(self, result: list[Items]) -> bytes:
        return b"".join(np.ascontiguousarray(part).tobytes() for part in result)

    def unpack(self, unit: Shape, data: bytes) -> list[Items]:
        boxes = [share.box for share in self.shared(unit)]
        size = sum(map(volume, boxes)) * self.source.dtype.itemsize
        if len(data) != size:
            raise ValueError(f"unit {unit} gives back {size} bytes; found {len(data)}")
        ends = np.cumsum([volume(box) for box in boxes])
        parts = np.split(np.frombuffer(data, self.source.dtype), ends)[:-1]
        return [part.reshape(lengths(box)) for part, box in zip(parts, boxes, strict=True)]

    def written(self, unit: Shape) -> list[tuple[Array, Box]]:
        own = [(array, self.own(unit, n)) for n, array in enumerate(self.levels[: self.whole_count], 1)]
        own += [(self.copy, self.own(unit, 0))] if self.copy is not None else []
        return [(array, box) for array, box in own if volume(box)]

    # What a unit is made of

    def needs(self, unit: Shape) -> list[Box]:
        """The boxes of the source to read, and of each level to make, for everything that the unit owns."""
        boxes = [self.own(unit, level) for level in range(len(self.levels) + 1)]
        if self.copy is None:
            boxes[0] = tuple(slice(0, 0) for _ in unit)
        for level in range(len(self.levels), 0, -1):
            below = level - 1 if self.recipe.is_chained else 0
            boxes[below] = hull([boxes[below], self._part(boxes[level], level).source])
        return boxes

    def _part(self, box: Box, level: int) -> Piece:
        """The part of the level before, or of the source, from which the box of a level is made."""
        shape, steps = self.shape(level - 1 if self.recipe.is_chained else 0), self._steps(level)
        if not self.is_apart:
            return plan_part(shape, steps, self.recipe.method, box, grid=self.recipe.grid)
        sides = zip(box, steps, shape, strict=True)
        return Piece(shape, tuple(slice(min(s.start * f, n), min(s.stop * f, n)) for s, f, n in sides), box)

    def _steps(self, level: int) -> Shape:
        return self.recipe.factors if self.recipe.is_chained else self.scale(level)

    # Making one

    def make(self, unit: Shape) -> list[Items]:
        """Make everything that the unit owns: whole chunks are written, the rest is returned.

        Tile by tile, so that what is read is still in the processor's caches when levels are made of it.
        """
        held, copied = self._copy(unit)
        owned = [self.own(unit, level) for level in range(1, len(self.levels) + 1)]
        made = [np.empty(lengths(box), self.source.dtype) for box in owned]
        resample: Resample = resamplers.resolve(self.recipe.method)()
        if is_built_in(self.recipe.method) and self.unit_count >= thread_count():
            # Units run side by side; only where they are too few for that, the kernels share their work out.
            resample = partial(resample, threads=1)
        if self.recipe.circle is not None:
            resample = partial(on_circle, resample, self.recipe.circle)
        by_tile = replace(self, unit=self.tile)
        for tile in self._tiles(unit):
            needs = by_tile.needs(tile)
            if any(volume(box) for box in needs[1:]):
                cells = _read(self.source, needs[0]) if copied is None else copied[inside(needs[0], held)]
                by_tile._make_tile(resample, tile, needs, cells, owned, made)
        given_back = []
        for level, (array, box, cells) in enumerate(zip(self.levels, owned, made, strict=True), 1):
            if volume(box) and level <= self.whole_count:
                array[box] = cells
            elif volume(box):
                given_back.append(cells)
        return given_back

    def _copy(self, unit: Shape) -> tuple[Box, Items | None]:
        """Copy the unit, if there is a copy; returns (the box that was read for it, its cells)."""
        if self.copy is None:
            return (), None
        held, box = self.needs(unit)[0], self.own(unit, 0)
        cells = self.source.read(held)
        if volume(box):
            self.copy[box] = cells[inside(box, held)]
        return held, cells

    def _tiles(self, unit: Shape) -> Iterator[Shape]:
        """The first cells of the tiles of a unit."""
        sides = zip(unit, self.unit, self.source.shape, self.tile, strict=True)
        return product(*(range(o, min(o + u, n), length) for o, u, n, length in sides))

    def _make_tile(
        self,
        resample: Resample,
        tile: Shape,
        needs: list[Box],
        cells: Items,
        owned: list[Box],
        made: list[Items],
    ) -> None:
        """Put the cells of every level that the tile owns into `made`, the arrays of the boxes `owned`.

        `cells` are those of the source in the box `needs[0]`.
        """
        recipe = self.recipe
        is_plain = recipe.mask is None and recipe.circle is None and is_built_in(recipe.method)
        masking = Masking(self.source.dtype, recipe.nodata, is_needed=recipe.mask is not None)
        cells = with_one_nodata(cells, recipe.nodata, recipe.others)
        if recipe.mask is not None:
            cells = masking.hide(cells, recipe.mask.read(needs[0]))
        nodata = None if is_plain and self._has_no_nodata(cells) else masking.nodata
        for level in range(1, len(self.levels) + 1):
            if not volume(needs[level]):
                continue
            part = self._part(needs[level], level)
            held = needs[level - 1 if recipe.is_chained else 0]
            window, box = cells[inside(part.source, held)], self.own(tile, level)
            into = made[level - 1][inside(box, owned[level - 1])]
            is_direct = is_plain and box == needs[level]
            options: dict[str, Any] = {} if self.is_apart else {"grid": recipe.grid, "part": part}
            if is_direct:
                options["out"] = into
            result = resample(window, self._steps(level), nodata=nodata, **options)
            if not is_direct and volume(box):
                into[...] = masking.reveal(result[inside(box, needs[level])])
            if recipe.is_chained:
                cells = masking.bound(result)

    def _has_no_nodata(self, cells: Items) -> bool:
        """Whether neither the cells nor results from them can be nodata: then kernels need not test each."""
        dtype, nodata = self.source.dtype, self.recipe.nodata
        is_between = self.recipe.method in BETWEEN and dtype.kind in "iu" and dtype.itemsize <= 4
        if nodata is None or not is_between or not cells.size:
            return False
        limits = np.iinfo(dtype)
        if nodata == limits.min:
            return bool(cells.min() != limits.min)
        return bool(nodata == limits.max and cells.max() != limits.max)


def _group_by_length(begins: Sequence[int], size: int) -> list[list[int]]:
    """The first cells of units, grouped by the stretch of that length in which they lie."""
    return [[*part] for _, part in groupby(begins, key=size.__rfloordiv__)]


def is_built_in(method: str) -> bool:
    """Whether a method is zstore's own, and no plugin's."""
    resampler = resamplers.resolve(method)
    return isinstance(resampler, type) and issubclass(resampler, Resampler)


def outer_chunks(array: Array) -> Shape:
    """The shape of an array's stored objects: shards, or chunks without shards."""
    return array.shards or array.chunks


def pieces_of(source: Source) -> Shape:
    """The shape of the parts of a source that can be read alone: inner chunks, or chunks."""
    return source.piece_shape or source.grid.chunk_shape


def _read(source: Source, box: Box) -> Items:
    """A box of the source, in memory that this thread uses again for the next one."""
    size = volume(box) * source.dtype.itemsize
    if source.dtype.kind not in "iufcb" or size > KEPT_SIZE:
        return source.read(box)
    if not hasattr(_memory, "held"):
        _memory.held = np.empty(KEPT_SIZE, np.uint8)
    into = _memory.held[:size].view(source.dtype).reshape(lengths(box))
    return source.read(box, into)


# Units run


@dataclass(frozen=True)
class _Replacing(Plan[list[Items]]):
    """A plan whose units replace older chunks: its journal keeps the versions of the new ones.

    An older chunk looks like a new one, and a power cut may bring it back after the journal was written. So
    a unit gives back, behind its parts, a hash of the versions, which its chunks are to have still.
    """

    plan: LevelPlan

    def units(self) -> Iterable[Shape]:
        return self.plan.units()

    def make(self, unit: Shape) -> list[Items]:
        return [*self.plan.make(unit), self._versions(unit)]

    def holds(self, unit: Shape, result: list[Items]) -> bool:
        return np.array_equal(result[-1], self._versions(unit))

    def pack(self, result: list[Items]) -> bytes:
        return self.plan.pack(result[:-1]) + result[-1].tobytes()

    def unpack(self, unit: Shape, data: bytes) -> list[Items]:
        return [
            *self.plan.unpack(unit, data[:-VERSIONS_SIZE]),
            np.frombuffer(data[-VERSIONS_SIZE:], np.uint8),
        ]

    def _versions(self, unit: Shape) -> Items:
        """A hash of the versions of a unit's chunks; random bytes if the store knows no versions."""
        hashed = blake2b(digest_size=VERSIONS_SIZE)
        for array, box in self.plan.written(unit):
            for key in chunk_keys(array.path, array.model, box):
                entry = array.store.entry(key)
                if entry is not None and entry.version is None:
                    return np.frombuffer(os.urandom(VERSIONS_SIZE), np.uint8)
                hashed.update(f"{entry}\n".encode())
        return np.frombuffer(hashed.digest(), np.uint8)


class Step(NamedTuple):
    """A plan, and a function that tells which of its units read only nodata, and are skipped."""

    plan: LevelPlan
    is_blank: Callable[[Shape], bool] | None = None


def run_step(
    runner: Runner,
    step: Step,
    label: str,
    tick: Callable[[int], None] | None = None,
    *,
    is_replacing: bool = False,
) -> None:
    """Make a step's cells: units write the chunks that they own whole, those of several are written here.

    So every chunk is written once, and no two workers touch the same one.

    label         the step's name in the journal, which no other step has
    tick          called with the number of cells of each unit that is done
    is_replacing  whether older chunks are there, which a power cut may bring back
    """
    plan, is_blank = step
    store = store_shares(plan)

    def take(unit: Shape, parts: list[Items]) -> None:
        store(unit, parts)
        if tick is not None:
            tick(plan.cell_count(unit))

    def known(unit: Shape) -> list[Items] | None:
        if is_blank is None or not is_blank(unit):
            return None
        return [np.full(lengths(box), array.fill_value, array.dtype) for array, _, box in plan.shared(unit)]

    # Units of other sizes, or that write other levels, are other units.
    own = name_job([plan.unit, [array.path for array in plan.arrays]])
    runner.run(_Replacing(plan) if is_replacing else plan, f"{label}-{own}", take, known, plan.most)


def store_shares(plan: LevelPlan) -> Callable[[Shape, list[Items]], None]:
    """A function that takes what units give back, and writes each chunk that they share when it is whole."""
    shared = _SharedChunks()

    def take(unit: Shape, parts: list[Items]) -> None:
        for share, cells in zip(plan.shared(unit), parts, strict=False):  # the last part may be versions
            shared.add(share, cells)

    return take


class _SharedChunks:
    """Chunks of which several units own parts, each kept until it is whole."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[str, Shape], tuple[Items, list[int]]] = {}

    def add(self, share: Share, cells: Items) -> None:
        """Put cells into the chunks they belong to, and write those that they complete."""
        array, limits, box = share
        steps = outer_chunks(array)
        sides = zip(box, steps, strict=True)
        for place in product(*(range(s.start // n, -(-s.stop // n)) for s, n in sides)):
            chunk = meet(tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, steps, strict=True)), limits)
            part, key = meet(chunk, box), (array.path, place)
            if key not in self._chunks:
                self._chunks[key] = (np.empty(lengths(chunk), cells.dtype), [volume(chunk)])
            made, missing = self._chunks[key]
            made[inside(part, chunk)] = cells[inside(part, box)]
            missing[0] -= volume(part)
            if missing[0] == 0:
                del self._chunks[key]
                array[chunk] = made


# Passes divided into units of whole chunks, as large as the budget allows

# Larger units gain nothing, and with so few as this, threads would run out of them before the end.
UNIT_SIZE = 8 << 20
UNITS_PER_THREAD = 8
# What is read at a time, to be still in a processor's caches when the last level is made of it.
TILE_SIZE = 4 << 20
# Memory per thread, unless asked otherwise: units grow to the first, and take the second for whole shards.
THREAD_SIZE = 40 << 20
SHARDS_SIZE = 96 << 20
# The most that the cells of one window, with the chunks it lies in, should come to.
WINDOW_SIZE = 64 << 20
# What units may read beyond themselves, before levels are made in several passes.
REREAD = 1.5


@dataclass(frozen=True)
class Budget:
    """The most bytes of memory for a build.

    size     what units grow to
    limit    what they may take where less would cut chunks or shards into parts
    is_firm  whether the caller set the limit, so that it is never exceeded
    """

    size: int
    limit: int
    is_firm: bool

    @classmethod
    def of(cls, memory: int | None) -> Budget:
        """The budget for a number of bytes; None: the default."""
        if memory is None:
            return cls(THREAD_SIZE * thread_count(), SHARDS_SIZE * thread_count(), False)
        return cls(memory, memory, True)


def direct_depth(source: Source, factors: Shape) -> int:
    """The number of levels that can be made from one finer level before windows outgrow memory."""
    depth = 1
    while True:
        lengths = zip(factors, source.shape, pieces_of(source), strict=True)
        cells = prod(min(n, f ** (depth + 1) if f > 1 else c) for f, n, c in lengths)
        is_whole = all(f == 1 or f**depth >= n for f, n in zip(factors, source.shape, strict=True))
        if is_whole or cells * source.dtype.itemsize > WINDOW_SIZE:
            return 64 if is_whole else depth
        depth += 1


def _trace(recipe: Recipe, levels: Sequence[Array], box: Box) -> tuple[Box, ...]:
    """The box of the recipe's source, and for each level the box that depends on it."""
    boxes, factors = [box], recipe.factors
    for number, level in enumerate(levels):
        finer = number if recipe.is_chained else number // recipe.depth * recipe.depth
        below = recipe.source.shape if finer == 0 else levels[finer - 1].shape
        steps = tuple(factor ** (number + 1 - finer) for factor in factors)
        if is_built_in(recipe.method):
            boxes.append(trace_box(below, steps, recipe.method, boxes[finer], grid=recipe.grid))
            continue
        sides = zip(boxes[finer], steps, level.shape, strict=True)
        boxes.append(tuple(slice(s.start // f, min(n, -(-s.stop // f))) for s, f, n in sides))
    return tuple(boxes)


def plan_passes(
    recipe: Recipe,
    copy: Array | None,
    levels: Sequence[Array],
    budget: Budget,
    box: Box | None = None,
    masks: Sequence[Array] = (),
) -> list[Pass]:
    """The passes for all that depends on `box` of a recipe's source, in `copy` and `levels`; None: all.

    Each makes its levels from the last one of the pass before. Where there is no nodata, that needs the
    levels of the mask, `masks`.

    Raises
        MetadataError: the caller's memory does not hold one unit.
        UnsupportedError: a mask without nodata or levels, where several passes are needed.
    """
    boxes = _trace(recipe, levels, whole(recipe.source.shape) if box is None else box)
    passes: list[Pass] = []
    begin, depth = 0, recipe.depth
    while begin < len(levels) or (copy is not None and not passes):
        source = recipe
        if begin:
            mask = recipe.mask
            if mask is not None and masks:
                mask = replace(mask, array=StoredArray.of(masks[begin - 1]))
            mask = mask if recipe.nodata is None else None
            source = replace(recipe, source=StoredArray.of(levels[begin - 1]), mask=mask)
        made, parts = tuple(levels[begin : begin + depth]), boxes[begin : begin + depth + 1]
        whole_pass = Pass(source, None if begin else copy, made, parts)
        work = _cut(whole_pass, budget, can_split=recipe.is_chained)
        while work is None or (recipe.is_chained and len(work.levels) > 1 and _reads(work) > REREAD):
            count = (len(whole_pass.levels) + 1) // 2
            whole_pass = replace(whole_pass, levels=made[:count], boxes=parts[: count + 1])
            work = _cut(whole_pass, budget, can_split=count > 1)
        passes.append(work)
        begin += max(1, len(work.levels))
    if recipe.mask is not None and recipe.nodata is None and len(passes) > 1 and not masks:
        raise UnsupportedError(
            f"{recipe.source.url!r} has a mask and no nodata, and {len(levels)} levels by "
            f"{recipe.method!r} take several passes; expected nodata, a mask beside it, or fewer levels"
        )
    return passes


def _cut(work: Pass, budget: Budget, *, can_split: bool) -> Pass | None:
    """The pass with units as large as the budget allows; None if fewer levels could do."""
    choices = [_tiled(replace(work, unit=unit)) for unit in _candidates(work)]
    costs = [_cost(choice) for choice in choices]
    fitting = [choice for choice, cost in zip(choices, costs, strict=True) if cost <= budget.limit]
    if not fitting:
        if can_split and len(work.levels) > 1:
            return None
        if budget.is_firm:
            for count in range(units_at_once() - 1, 0, -1):
                slow = [replace(choice, most=count) for choice in choices]
                costs = [_cost(choice) for choice in slow]
                if min(costs) <= budget.limit:
                    return slow[costs.index(min(costs))]
            raise MetadataError(
                f"memory is {budget.limit} bytes; expected at least {min(costs)}, for units of whole chunks "
                f"and windows of {'the level before' if work.recipe.is_chained else 'the finest level'}",
                path=work.source.url,
            )
        return choices[costs.index(min(costs))]
    best = fitting[0]
    while True:
        unit = best.unit
        short = [axis for axis, size in enumerate(best.source.shape) if unit[axis] < size]
        # The dimensions that shrink come first: their chunks feed the next level.
        short = [axis for axis in short if best.recipe.factors[axis] > 1] or short
        if not short:
            return best
        axis = min(short, key=unit.__getitem__)
        longer = tuple(n * 2 if i == axis else n for i, n in enumerate(unit))
        grown = _tiled(replace(best, unit=longer))
        size = prod(longer) * best.source.dtype.itemsize
        # Where windows overlap, more of them lie in a larger unit.
        is_enough = size > UNIT_SIZE or grown.unit_count < UNITS_PER_THREAD * thread_count()
        if (work.is_apart and is_enough) or _cost(grown) > budget.size:
            return best
        best = grown


def _tiled(work: Pass) -> Pass:
    """The pass with tiles of whole chunks and windows that fit in caches; else its units are its tiles.

    Windows that overlap would be read again with every tile.
    """
    deepest = work.scale(len(work.levels))
    lengths = [lcm(*pair) for pair in zip(pieces_of(work.source), deepest, strict=True)]
    if not work.is_apart or any(u % n for u, n in zip(work.unit, lengths, strict=True)):
        return replace(work, tile=work.unit)
    size = prod(lengths) * work.source.dtype.itemsize
    while size * 2 <= TILE_SIZE:
        short = [axis for axis, (u, n) in enumerate(zip(work.unit, lengths, strict=True)) if u % (2 * n) == 0]
        if not short:
            break
        # Rows before columns: what lies side by side in memory is read fastest.
        lengths[min(short, key=lambda axis: (lengths[axis], -axis))] *= 2
        size *= 2
    return replace(work, tile=tuple(lengths))


def _candidates(work: Pass) -> list[Shape]:
    """Units to choose from, the best first: those that read nothing twice and share no chunk with others."""
    none = tuple(1 for _ in work.recipe.factors)
    copied = none if work.copy is None else outer_chunks(work.copy)
    made = none
    if work.levels:
        written = zip(outer_chunks(work.levels[0]), work.recipe.factors, strict=True)
        made = tuple(chunk * factor for chunk, factor in written)
    deepest = work.scale(len(work.levels))
    shards, chunks = work.source.grid.chunk_shape, pieces_of(work.source)
    # A unit of one object of the source is the least; it may share chunks of the first level with others.
    groups = [
        (copied, made, shards, deepest),
        (copied, made, chunks, deepest),
        (copied, made, shards),
        (copied, made, chunks),
        (copied, shards, deepest),
        (copied, chunks, deepest),
        (copied, made),
        (copied, chunks),
    ]
    units = [tuple(lcm(*lengths) for lengths in zip(none, *group, strict=True)) for group in groups]
    return list(dict.fromkeys(units))


def _reads(work: Pass) -> float:
    """The number of cells that a unit reads for each cell it owns."""
    own = prod(min(n, u) for n, u in zip(work.source.shape, work.unit, strict=True))
    return volume(_most_needs(work)[0]) / max(own, 1)


def _cost(work: Pass) -> int:
    """The bytes that a build in these units needs at once."""
    needs = _most_needs(work)
    cells = sum(volume(need) for need in needs[1:])
    read = tile = volume(needs[0])
    if work.tile != work.unit:
        tile = volume(_most_needs(replace(work, unit=work.tile), work.unit)[0])
        read = read if work.copy is not None else tile
    cells += read + (3 * tile if work.recipe.mask is not None else 0)
    shared = sum(2 * prod(outer_chunks(array)) for array in work.levels[work.whole_count :])
    item_size = work.source.dtype.itemsize
    return item_size * ((work.most or units_at_once()) * cells + shared)


def _most_needs(work: Pass, steps: Shape | None = None) -> list[Box]:
    """The boxes that a unit near the middle needs, all levels being made; units begin each `steps`.

    It is one in which a cell of the last level begins: that cell's window may be larger than a unit.
    """
    boxes = tuple(whole(work.shape(level)) for level in range(len(work.levels) + 1))
    sides = zip(work.source.shape, steps or work.unit, work.scale(len(work.levels)), strict=True)
    middle = tuple(max(0, n - 1) // 2 // lcm(u, f) * lcm(u, f) for n, u, f in sides)
    return replace(work, boxes=boxes).needs(middle)

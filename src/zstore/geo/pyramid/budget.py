"""Passes divided into units that fit in a memory budget, of whole chunks and as large as it allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from zstore.engine.pool import thread_count
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.pyramid.boxes import Box, Shape, volume, whole
from zstore.geo.pyramid.passes import Pass, Recipe, is_built_in, outer_chunks
from zstore.geo.resampling.methods import trace_box
from zstore.jobs.runner import units_at_once
from zstore.nodes.array import Array

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
    """The bytes of memory that a build may hold at once.

    size     what units grow to
    limit    what they may take where less would cut chunks or shards into parts
    is_firm  whether the caller set the limit, so that it is never exceeded
    """

    size: int
    limit: int
    is_firm: bool

    @classmethod
    def of(cls, memory: int | None) -> Budget:
        """The budget of so many bytes; None: the default.

        Raises
            MetadataError: no such number of bytes.
        """
        if memory is None:
            return cls(THREAD_SIZE * thread_count(), SHARDS_SIZE * thread_count(), False)
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
            raise MetadataError(f"memory is {memory!r}; expected a number of bytes")
        return cls(memory, memory, True)


def direct_depth(source: Array, factors: Shape) -> int:
    """The number of levels that can be made from one finer level before windows outgrow memory."""
    depth = 1
    while True:
        lengths = zip(factors, source.shape, source.chunks, strict=True)
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
    """The passes that make what depends on `box` of a recipe's source, in `copy` and `levels`; None: all.

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
            mask = replace(recipe.mask, array=masks[begin - 1]) if recipe.mask is not None and masks else None
            mask = mask if recipe.nodata is None else None
            source = replace(recipe, source=levels[begin - 1], mask=mask)
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
            f"{recipe.source.basename!r} has a mask and no nodata, and {len(levels)} levels by "
            f"{recipe.method!r} take several passes; expected nodata, a mask beside it, or fewer levels"
        )
    return passes


def _cut(work: Pass, budget: Budget, *, can_split: bool) -> Pass | None:
    """The pass with units as large as the budget allows; None where fewer levels could do."""
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
                path=work.source.path,
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
    lengths = [lcm(*pair) for pair in zip(work.source.chunks, deepest, strict=True)]
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
    shards, chunks = outer_chunks(work.source), work.source.chunks
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
    found = [tuple(lcm(*lengths) for lengths in zip(none, *group, strict=True)) for group in groups]
    return list(dict.fromkeys(found))


def _reads(work: Pass) -> float:
    """The number of cells that a unit reads for each cell it owns."""
    own = prod(min(n, u) for n, u in zip(work.source.shape, work.unit, strict=True))
    return volume(_most_needs(work)[0]) / max(own, 1)


def _cost(work: Pass) -> int:
    """The bytes that a build in these units holds at once."""
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
    boxes = tuple(whole(array.shape) for array in (work.source, *work.levels))
    sides = zip(work.source.shape, steps or work.unit, work.scale(len(work.levels)), strict=True)
    middle = tuple(max(0, n - 1) // 2 // lcm(u, f) * lcm(u, f) for n, u, f in sides)
    return replace(work, boxes=boxes).needs(middle)

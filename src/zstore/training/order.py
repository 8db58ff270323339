"""The order of samples: shuffled within a window of blocks that moves over the array, in full, or not at all.

An epoch is a sequence of rounds. When blocks are shuffled, a round comes when a few more blocks are in
memory, and has the samples that chance has put there: those of a block go to the rounds in which it is in
memory. All of it is computed from the seed and the numbers of blocks and samples, so that any round can be
made without those before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from zstore.training.samples import BlockPlan, Blocks, Index, Samples, draw

Shuffle = Literal["blocks", "full", False]

# Samples of a round where blocks do not decide.
ROUND_SIZE = 1024
# Of the blocks of an epoch, the share that may be read twice so that samples come from more places at once.
SEAM_SHARE = 0.03


class Round(NamedTuple):
    """The samples of a round, in order."""

    number: int
    samples: Index


def permutation(key: int, count: int) -> Index:
    """A random order of numbers below `count`, the same for the same key."""
    return np.argsort(draw(key, np.arange(count, dtype=np.int64)), kind="stable")


def share(count: int, rank: int, world: int) -> tuple[int, int]:
    """The first sample of a rank, and the end of its samples; ranks differ by one sample at most."""
    return rank * count // world, (rank + 1) * count // world


class PlainOrder:
    """The samples by their numbers, or shuffled in full."""

    def __init__(self, samples: Samples, shuffle: bool, epoch: int, rank: int, world: int) -> None:
        self._first, self._end = share(samples.count, rank, world)
        self._order = permutation(samples.key(epoch, "samples"), samples.count) if shuffle else None

    def rounds(self, first: int = 0) -> Iterator[Round]:
        """The rounds of the epoch, from one of them on."""
        for number in range(first, ceil((self._end - self._first) / ROUND_SIZE)):
            begin = self._first + number * ROUND_SIZE
            numbers = np.arange(begin, min(begin + ROUND_SIZE, self._end), dtype=np.int64)
            yield Round(number, numbers if self._order is None else self._order[numbers])


class BlockOrder:
    """The samples shuffled within a window of blocks.

    The blocks are in random order, where no sample reaches from one into the next. Otherwise they are in
    streams, each in the order of the array, from several places of it at the same time.

    window  the number of blocks that samples are drawn from
    step    the number of blocks that come into memory with a round
    """

    def __init__(
        self, samples: Samples, blocks: Blocks, plan: BlockPlan, epoch: int, rank: int, world: int
    ) -> None:
        self._samples, self._blocks = samples, blocks
        self._key = samples.key(epoch, "samples")
        self.step = max(1, plan.capacity // 8)
        # The rest is for blocks that are no longer needed after this round, and for those of the next ones.
        room = max(1, plan.capacity - self.step - plan.ahead + 1)
        sequence, self._reach = self._sequence(samples.key(epoch, "blocks"), room)
        counts = blocks.counts(sequence)
        sequence, counts = sequence[counts > 0], counts[counts > 0]
        ends = np.cumsum(counts)
        first, end = share(samples.count, rank, world)
        begin, stop = (
            int(np.searchsorted(ends, first, "right")),
            int(np.searchsorted(ends, end, "left")) + (end > first),
        )
        self._places = sequence[begin:stop]
        # Of its first and last block, a rank has some of the samples.
        before = ends[begin - 1] if begin else 0
        self._cut = (first - int(before), end - int(ends[stop - 2] if stop > 1 else 0))
        count = len(self._places)
        self._position = np.full(blocks.count, -1, np.int64)
        self._position[self._places] = np.arange(count)
        self.window = max(1, min(room - self._reach, count))
        # The first samples come when half of the window is in memory, or all of it where that is all.
        self._ramp = count if self.window == count else max(1, self.window // 2)

    def _sequence(self, key: int, room: int) -> tuple[Index, int]:
        """The blocks in order, and how far apart in it those of a sample are, at most."""
        blocks, dimensions = self._blocks, self._samples.dimensions
        ids = np.arange(blocks.count, dtype=np.int64)
        spans = self._spans()
        lanes = [d for d, span in enumerate(spans) if span]
        if not lanes or blocks.count <= room:
            return ids[permutation(key, blocks.count)], 0
        others = [d for d in range(len(dimensions)) if d not in lanes]
        # Samples reach from block to block along lanes; between two lanes, none does.
        table = ids.reshape(blocks.shape).transpose(others + lanes)
        length = int(np.prod([blocks.shape[d] for d in lanes]))
        table = table.reshape(-1, length)
        apart, stride = 0, 1
        for d in reversed(lanes):
            apart, stride = apart + spans[d] * stride, stride * blocks.shape[d]
        most = int(SEAM_SHARE * blocks.count / apart) if len(table) == 1 else len(table)
        streams = max(1, min(room // (2 * apart), most))
        portions = ceil(streams / len(table))
        if portions > 1 or len(table) == 1:  # each epoch begins somewhere else
            table = np.roll(table, -(key % length), axis=1)
        run = ceil(length / portions)
        padded = np.full((len(table), run * portions), -1, np.int64)
        padded[:, :length] = table
        runs = padded.reshape(-1, run)
        runs = runs[permutation(key, len(runs))]
        rows = np.full((ceil(len(runs) / streams) * streams, run), -1, np.int64)
        rows[: len(runs)] = runs
        order = rows.reshape(-1, streams, run).transpose(0, 2, 1).reshape(-1)
        return order[order >= 0], streams * apart

    def _spans(self) -> list[int]:
        """For each dimension the number of borders of blocks that a sample lies across, at most."""
        samples, blocks = self._samples, self._blocks
        made = []
        for d, one in enumerate(samples.dimensions):
            borders = blocks.borders[d]
            if one.is_random or len(borders) <= 2:
                made.append(0)
                continue
            if samples.at is not None:
                last = samples.at[:, d]
            else:  # the last sample that begins before each border
                last = np.minimum((borders[1:-1] - 1) // one.stride, one.count - 1) * one.stride
            ends = np.searchsorted(borders, last + one.extent - 1, "right")
            crossed = ends - np.searchsorted(borders, last, "right")
            made.append(int(crossed.max(initial=0)))
        return made

    def rounds(self, first: int = 0) -> Iterator[Round]:
        """The rounds of the epoch, from one of them on."""
        count, step = len(self._places), self.step
        # Rounds are drawn together where they have few samples, and such as are needed for the first one.
        few = ROUND_SIZE * self._blocks.count // max(1, step * self._samples.count)
        at_once = max(1, few, self._ramp // step)
        earliest = max(0, first - ceil((self.window + self._reach) / step))
        drawn: list[Any] = [*self._draw(0, 0)]
        for begin in range(earliest, ceil((count + self.window) / step), at_once):
            more = self._draw(begin * step, min(count, (begin + at_once) * step))
            drawn = [*map(np.concatenate, zip(drawn, more, strict=True))]
            order = np.lexsort((drawn[2], drawn[0]))
            rounds, samples, _ = drawn = [one[order] for one in drawn]
            edges = rounds.searchsorted(np.arange(begin, begin + at_once + 1)).tolist()
            for number, (low, high) in enumerate(pairwise(edges), begin):
                if number >= first and high > low:
                    yield Round(number, samples[low:high])
            drawn = [one[edges[-1] :] for one in drawn]

    def _draw(self, begin: int, stop: int) -> tuple[Index, Index, npt.NDArray[np.uint64]]:
        """The samples that begin in some blocks: their rounds, their numbers, and bits to order them by."""
        samples, ready = self._ready(begin, stop)
        count, window, ramp = len(self._places), self.window, self._ramp
        bits = draw(self._key, samples)
        low = np.maximum(ready, ramp - 1)
        high = np.maximum(low + 1, np.minimum(ready + window, count + window - ramp))
        chance = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        rounds = (low + (chance * (high - low)).astype(np.int64)) // self.step
        return rounds, samples, bits * np.uint64(0xD1342543DE82EF95)

    def _ready(self, begin: int, stop: int) -> tuple[Index, Index]:
        """The samples that begin in some blocks, and the positions at which they can be copied."""
        blocks = self._blocks
        samples, owners = blocks.members(self._places[begin:stop])
        ready = begin + owners
        first, end = self._cut
        is_own = np.ones(len(samples), bool)
        if begin == 0:
            is_own[:first] = False
        if begin < stop == len(self._places):
            is_own[owners.searchsorted(stop - 1 - begin) + end :] = False
        samples, ready = samples[is_own], ready[is_own]
        if self._reach and len(samples):
            extents = np.asarray([one.extent for one in self._samples.dimensions], np.int64)
            cells = blocks.cells(blocks.starts(samples) + extents - 1)
            positions = self._position[np.ravel_multi_index(tuple(cells.T), blocks.shape)]
            is_near = (positions > ready) & (positions <= ready + self._reach)
            ready[is_near] = positions[is_near]
        return samples, ready


def measure_mixing(order: Index, count: int) -> float:
    """The mixing of an order: the mean distance of neighbours' numbers, divided by that of a full shuffle.

    A full shuffle has about 1, samples one after the other 3 / `count`.
    """
    if len(order) < 2:
        return 1.0
    return float(np.abs(np.diff(order)).mean() / ((count + 1) / 3))


Order = Any  # with `rounds`

"""Samples of aligned sources: the items of each, and the blocks of chunks that samples are drawn from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from zstore.jobs.source import Source

Items = npt.NDArray[Any]
Index = npt.NDArray[np.int64]
Name = str | int
Lengths = Mapping[Name, int]

# Blocks of small chunks hold several of them, up to these sizes in bytes; far ones make requests.
NEAR_SIZE = 1 << 20
FAR_SIZE = 8 << 20
# Requests in flight to a store with latency, and the bytes of one.
REQUEST_COUNT = 32
REQUEST_SIZE = 1 << 20
# Of a window of more blocks than these, each block has more chunks.
BLOCK_COUNT = 64
# The bytes that the planner needs for each sample of a block.
NUMBER_SIZE = 16


def name_key(*words: Any) -> int:
    """The key of a stream of random numbers with this name; the same everywhere and at all times."""
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "little")


def draw(key: int, numbers: Index) -> npt.NDArray[np.uint64]:
    """64 random bits for each number, the same for the same key and number (SplitMix64)."""
    bits = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True)
class Dimension:
    """A dimension along which samples are taken.

    length     of the dimension
    window     the number of items of a sample
    extent     the number of items from a sample's first to its last, those at its leads among them
    stride     the number of items between the beginnings of two samples
    is_random  whether samples begin anywhere
    """

    name: Name
    length: int
    window: int
    extent: int
    stride: int = 1
    is_random: bool = False

    @property
    def count(self) -> int:
        """The number of places at which a sample begins."""
        return max(0, (self.length - self.extent) // self.stride + 1)


class SampleRun(NamedTuple):
    """A stretch of a sample along a dimension.

    begin   of it, in the sample
    length  of it
    at      of its first item in the part
    """

    begin: int
    length: int
    at: int


@dataclass(frozen=True)
class SampleArray:
    """One of the arrays of a sample: the window of a source, or its items at the leads.

    source  the number of the source
    shape   of the part
    axis    the axis of the source that has several runs; None: none has
    runs    the runs along that axis
    """

    source: int
    shape: tuple[int, ...]
    axis: int | None
    runs: tuple[SampleRun, ...]


class SampledSource:
    """A source of samples, with the names of its dimensions.

    axes  for each axis of the source the number of the sampled dimension that it is; -1: it is none
    """

    def __init__(self, source: Source, names: Sequence[Name]) -> None:
        self.source = source
        self.names = tuple(names)
        self.shape: tuple[int, ...] = tuple(source.shape)
        self.dtype: np.dtype[Any] = source.dtype
        self.item_size = source.item_size
        self.axes: tuple[int, ...] = (-1,) * len(self.shape)

    def box(self, blocks: Blocks, cells: Mapping[int, int]) -> tuple[slice, ...]:
        """The box of the source that a block is, which has a cell along each of its sampled dimensions."""
        sides = []
        for length, d in zip(self.shape, self.axes, strict=True):
            if d < 0:
                sides.append(slice(0, length))
            else:
                borders = blocks.borders[d]
                sides.append(slice(borders.item(cells[d]), borders.item(cells[d] + 1)))
        return tuple(sides)

    def edges(self, d: int) -> Index:
        """The edges of chunks along a sampled dimension."""
        axis = self.axes.index(d)
        return self.source.pieces.borders(axis, self.shape[axis])


def name_dimensions(source: Source, given: Sequence[str] | None) -> tuple[Name, ...]:
    """The names of a source's dimensions; those without a name have their number.

    Raises
        ValueError: other names were given than the source has dimensions.
    """
    ndim = len(source.shape)
    if given is not None:
        if len(given) != ndim:
            raise ValueError(
                f"dims {tuple(given)} are {len(given)} names; expected {ndim}, of {source.shape}"
            )
        return tuple(given)
    named = source.dimension_names or (None,) * ndim
    return tuple(n if name is None else name for n, name in enumerate(named))


class Blocks:
    """The blocks of an epoch: a grid over the sampled dimensions, of which each cell is read at once.

    epoch    of crops; 0 where all epochs have the same blocks
    borders  of the blocks, along each dimension
    shape    the number of blocks along each dimension
    firsts   for crops: the number of the first one in each cell of the cropped dimensions, and their end
    """

    def __init__(self, samples: Samples, borders: Sequence[Index], epoch: int) -> None:
        self.samples = samples
        self.epoch = epoch if samples.random else 0
        self.borders = tuple(borders)
        self.shape = tuple(len(one) - 1 for one in borders)
        self.count = prod(self.shape)
        self._key = samples.key(epoch, "crop")
        random = samples.random
        areas = np.ones(1)
        for d in random:
            areas = np.multiply.outer(areas, np.diff(self.borders[d]))
        shares = np.concatenate([[0.0], np.cumsum(areas.reshape(-1))])
        self.firsts = (
            np.floor(shares / shares[-1] * samples.crop_count + 0.5).astype(np.int64)
            if shares[-1]
            else np.zeros(len(shares), np.int64)
        )
        self._cells = tuple(self.shape[d] for d in random)
        if samples.at is not None:
            cells = self.cells(samples.at)
            ids = np.ravel_multi_index(tuple(cells.T), self.shape)
            self._by_block = np.argsort(ids, kind="stable")
            self._ids = ids[self._by_block]

    def cells(self, positions: Index, dims: Sequence[int] | None = None) -> Index:
        """The cell of each position, (n, dimensions), along all dimensions or some of them."""
        borders = self.borders if dims is None else [self.borders[d] for d in dims]
        found = np.empty(positions.shape, np.int64)
        for d, along in enumerate(borders):
            found[:, d] = along.searchsorted(positions[:, d], "right")
        return found - 1

    def _digits(self, blocks: Index) -> list[tuple[Index, Index, int]]:
        """The digits of samples' numbers: of each its base, and in each block the first and how many."""
        samples = self.samples
        if samples.at is not None:
            begins, ends = (self._ids.searchsorted(blocks, side) for side in ("left", "right"))
            return [(begins, ends - begins, len(self._ids))]
        cells = np.unravel_index(blocks, self.shape) if self.shape else ()
        made = []
        for d, one in enumerate(samples.dimensions):
            if not one.is_random:
                borders = self.borders[d]
                first = np.minimum(-(-borders[cells[d]] // one.stride), one.count)
                end = np.minimum(-(-borders[cells[d] + 1] // one.stride), one.count)
                made.append((first, end - first, one.count))
        if self._cells:
            joint = np.ravel_multi_index(tuple(cells[d] for d in samples.random), self._cells)
            first = self.firsts[joint]
            made.append((first, self.firsts[joint + 1] - first, samples.crop_count))
        return made

    def counts(self, blocks: Index) -> Index:
        """The number of samples that begin in each block."""
        made = np.ones(len(blocks), np.int64)
        for _, many, _ in self._digits(blocks):
            made *= many
        return made

    def members(self, blocks: Index) -> tuple[Index, Index]:
        """The numbers of the samples that begin in blocks, one by one, and for each which of the blocks."""
        counts = self.counts(blocks)
        ends = counts.cumsum()
        owners = np.arange(len(blocks)).repeat(counts)
        left = np.arange(len(owners)) - (ends - counts).repeat(counts)
        numbers, base = np.zeros(len(owners), np.int64), 1
        for first, many, whole in reversed(self._digits(blocks)):
            left, digit = np.divmod(left, many[owners])
            numbers += (first[owners] + digit) * base
            base *= whole
        return numbers if self.samples.at is None else self._by_block[numbers], owners

    def starts(self, numbers: Index, attempt: int = 0) -> Index:
        """The first position of each sample, (n, dimensions); of crops, another one at each `attempt`."""
        samples = self.samples
        if samples.at is not None:
            return samples.at[numbers]
        made = np.zeros((len(numbers), len(samples.dimensions)), np.int64)
        left = numbers
        if self._cells:
            left, crops = np.divmod(numbers, samples.crop_count)
            cells = np.unravel_index(np.searchsorted(self.firsts, crops, "right") - 1, self._cells)
            for d, cell in zip(samples.random, cells, strict=True):
                first = self.borders[d][cell]
                room = self.borders[d][cell + 1] - first - samples.dimensions[d].extent + 1
                bits = draw(self._key + 64 * attempt + d, numbers) >> np.uint64(11)
                made[:, d] = first + (bits.astype(np.float64) * 2.0**-53 * room).astype(np.int64)
        for d in reversed(range(len(samples.dimensions))):
            one = samples.dimensions[d]
            if not one.is_random:
                left, place = np.divmod(left, one.count)
                made[:, d] = place * one.stride
        return made


@dataclass
class Samples:
    """All samples of some sources.

    members     the sources
    dimensions  along which samples are taken
    parts       the arrays of a sample
    at          the positions at which samples begin, (n, dimensions); None: by windows and crops
    seed        of crops
    """

    members: Sequence[SampledSource]
    dimensions: Sequence[Dimension]
    parts: Sequence[SampleArray]
    at: Index | None
    seed: int
    random: tuple[int, ...] = field(init=False)
    crop_count: int = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.random = tuple(d for d, one in enumerate(self.dimensions) if one.is_random)
        cropped = [self.dimensions[d] for d in self.random]
        self.crop_count = (
            ceil(prod(one.length for one in cropped) / prod(one.extent for one in cropped)) if cropped else 1
        )
        if self.at is not None:
            self.count = len(self.at)
        else:
            self.count = self.crop_count * prod(one.count for one in self.dimensions if not one.is_random)

    def key(self, epoch: int, purpose: str) -> int:
        """The key of random numbers for a purpose in an epoch."""
        return name_key(self.seed, epoch, purpose)

    @property
    def size(self) -> int:
        """The bytes of a sample, as it is stored."""
        return sum(prod(part.shape) * self.members[part.source].item_size for part in self.parts)

    @property
    def is_far(self) -> bool:
        """Whether a source waits for a server."""
        return any(member.source.request_count > 1 for member in self.members)


class BlockPlan:
    """The choice of blocks for some memory: of whole chunks, several of small ones.

    is_direct  whether no blocks fit, so that each sample is read by itself
    size       the bytes of a block of all sources
    capacity   the number of blocks that are in memory at once
    ahead      how many of them are on their way, or there already for the next round
    """

    def __init__(self, samples: Samples, memory: int) -> None:
        self.samples = samples
        dimensions = samples.dimensions
        own = [[m.edges(d) for m in samples.members if d in m.axes] for d in range(len(dimensions))]
        self._edges = [reduce(np.intersect1d, edges) for edges in own]
        self._groups = [1] * len(dimensions)
        fixed = sum(self._size(member) for member in samples.members if not self._is_cut(member))
        left = max(0, memory - fixed)
        if 4 * self.size > left:
            # Chunks of the sources have few borders in common: some of them are read in part.
            self._edges = [min(edges, key=len) for edges in own]
        for needed in (2, 1):
            self._groups = [
                ceil((needed if one.is_random else needed - 1) * one.extent / max(1, self._length(d))) or 1
                for d, one in enumerate(dimensions)
            ]
            if 4 * self.size <= left:
                break
        self.is_direct = 2 * self.size > left
        most = FAR_SIZE if samples.is_far else NEAR_SIZE
        while 2 * self.size <= min(most, left // BLOCK_COUNT):
            short = [d for d, edges in enumerate(self._edges) if self._groups[d] < len(edges) - 1]
            if not short:
                break
            d = min(short, key=lambda d: self._groups[d] * self._length(d))
            self._groups[d] *= 2
        if samples.random:  # blocks of crops differ in size, at the edges of the array
            left = left * 3 // 4
        self.capacity = 0 if self.is_direct else max(2, left // max(1, self.size))
        self.ahead = max(1, self.capacity // 8)
        if samples.is_far:  # A block makes as many requests as it has chunks, more or less of 1 MiB.
            at_once = ceil(REQUEST_COUNT * REQUEST_SIZE / max(REQUEST_SIZE, self.size))
            self.ahead = max(self.ahead, min(at_once, self.capacity // 2))

    def _length(self, d: int) -> int:
        """The length of the longest chunk along a dimension."""
        edges = self._edges[d]
        return int(np.diff(edges).max()) if len(edges) > 1 else 0

    @staticmethod
    def _is_cut(member: SampledSource) -> bool:
        return any(d >= 0 for d in member.axes)

    def _size(self, member: SampledSource) -> int:
        lengths = (
            length if d < 0 else min(length, self._groups[d] * self._length(d))
            for length, d in zip(member.shape, member.axes, strict=True)
        )
        return prod(lengths) * member.item_size

    @property
    def shape(self) -> dict[Name, int]:
        """The length of a block along each sampled dimension."""
        return {
            one.name: min(one.length, self._groups[d] * self._length(d))
            for d, one in enumerate(self.samples.dimensions)
        }

    @property
    def size(self) -> int:
        samples = self.samples
        numbers = NUMBER_SIZE * prod(
            ceil(length / (one.extent if one.is_random else one.stride))
            for length, one in zip(self.shape.values(), samples.dimensions, strict=True)
        )
        return numbers + sum(self._size(member) for member in samples.members if self._is_cut(member))

    def blocks(self, epoch: int) -> Blocks:
        """The blocks of an epoch; of crops, other blocks in each epoch, so that crops begin anywhere."""
        borders = []
        for d, one in enumerate(self.samples.dimensions):
            edges, group = self._edges[d], self._groups[d]
            if one.is_random and self.is_direct:
                borders.append(edges[[0, -1]])
            elif one.is_random:
                phase = name_key(self.samples.seed, epoch, "grid", d) % group
                borders.append(_spaced(edges, edges[phase::group], one.extent))
            else:
                borders.append(np.unique(np.append(edges[::group], edges[-1])))
        return Blocks(self.samples, borders, epoch)


def _spaced(edges: Index, wanted: Index, least: int) -> Index:
    """The wanted borders that leave no block shorter than a length, with both ends."""
    made, end = [int(edges[0])], int(edges[-1])
    for border in wanted.tolist():
        if border - made[-1] >= least and end - border >= least:
            made.append(border)
    return np.asarray([*made, end], np.int64)

"""Plans of rechunking within a budget of memory: the passes, their units, and what they cost.

A pass reads one array and writes another. Its units are boxes of whole chunks of the array that is written,
so no two units write the same chunk. Where a unit's box ends within a chunk of the array that is read, its
neighbour decodes that chunk again. One pass will do where few chunks are cut so, or codecs can decode parts.
Otherwise all chunks are decoded once into a scratch array with other chunks, uncompressed, of which parts are
read cheaply; a second pass makes the target of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, lcm, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import MetadataError
from zstore.model.grid import Grid, RegularGrid

Shape = tuple[int, ...]

# Assumed costs in nanoseconds. Decoding a byte, by codec; OTHER_DECODING for all others.
DECODING = {"": 0.15, "blosc": 0.6, "lz4": 0.5, "numcodecs.blosc": 0.6, "numcodecs.lz4": 0.5, "zstd": 1.2}
DECODING |= {"numcodecs.zstd": 1.2}
OTHER_DECODING = 4.0
# Writing a byte of a scratch array, a byte of new memory; reading a stretch of a file, opening a file.
SCRATCH_WRITING = 0.6
NEW_MEMORY = 2.0
STRETCH = 2_000.0
FILE = 30_000.0
# A stored byte from a store with latency, and a request to one.
DISTANCE = 10.0
REQUEST = 3_000_000.0
# Compressing a byte with lz4 for a scratch array; and how much larger it gets than with the source's codecs.
QUICK_ENCODING = 1.5
QUICK_RATIO = 1.5
# A unit in addition to its bytes, and encoding a byte.
UNIT = 500_000.0
ENCODING = 2.0
# The most ways to cut an array into units, and the most scratch arrays, that are compared.
WAYS = 200_000
SCRATCHES = 24
# The assumed stored size of a chunk, as a share of its decoded size.
STORED = 0.5
# Bytes that a unit holds beside its items where a store has latency: windows of encoded chunks.
WINDOWS_SIZE = 24 << 20


class Side(NamedTuple):
    """What the cost of reading or writing an array depends on.

    grid      the grid of its chunks, or of its shards
    pieces    the grid of what is decoded at once: chunks or inner chunks
    codec     the name of its compressing codecs; "" where chunks are not compressed
    is_near   whether its chunks are files, or in memory
    is_native whether kernels decode and encode its chunks, without memory of their own
    ratio     stored bytes for each decoded byte
    """

    shape: Shape
    grid: Grid
    pieces: Grid
    item_size: int
    codec: str = ""
    is_near: bool = True
    is_native: bool = True
    ratio: float = STORED

    @property
    def counts(self) -> Shape:
        """How many chunks there are along each axis."""
        return self.grid.count(self.shape)

    @property
    def chunk_size(self) -> int:
        """Decoded bytes of the largest chunk, cut at the array's edge."""
        return _size(self.grid, self.shape) * self.item_size

    @property
    def piece_size(self) -> int:
        """Decoded bytes of the largest piece."""
        return prod(self.pieces.chunk_shape) * self.item_size


@dataclass(frozen=True)
class Pass:
    """A pass: all of one array is read, and all of another written.

    counts      how many chunks a unit writes along each axis
    length      how many items the largest unit has
    unit_count  how many units there are
    memory      bytes that one unit holds
    decoded_size  bytes that all units decode
    read_count, write_count  how many pieces all units read, and how many chunks they write
    cost        the estimated cost, in nanoseconds
    """

    counts: Shape
    length: int
    unit_count: int
    memory: int
    decoded_size: int
    read_count: int
    write_count: int
    cost: float


class Room(NamedTuple):
    """Where a scratch array may lie: how many bytes fit there, and whether it is a disk of this machine."""

    size: float
    is_near: bool = True


@dataclass(frozen=True)
class Passes:
    """The passes that make one array of another.

    steps         the passes, in order
    scratches     the chunk shapes of the scratch arrays between them
    scratch_size  bytes of the scratch arrays; estimated where they are compressed
    room          the number of the room that they lie in
    codec         "lz4" where they are compressed, else ""
    """

    steps: tuple[Pass, ...]
    scratches: tuple[Shape, ...] = ()
    scratch_size: int = 0
    room: int = 0
    codec: str = ""

    @property
    def memory(self) -> int:
        """Bytes that one unit of the largest pass holds."""
        return max(step.memory for step in self.steps)

    @property
    def decoded_size(self) -> int:
        """Bytes that all passes decode."""
        return sum(step.decoded_size for step in self.steps)


def default_memory() -> int:
    """An eighth of the memory of the machine, or of the control group that this process is in."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        said = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        said = ""
    return (min(size, int(said)) if said.isdecimal() else size) // 8


def check_memory(memory: Any) -> int:
    """A number of bytes; `default_memory` for None.

    Raises
        MetadataError: it is no positive number of bytes.
    """
    if memory is None:
        return default_memory()
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer) or memory < 1:
        raise MetadataError(f"memory is {memory!r}; expected a number of bytes")
    return int(memory)


def plan_passes(
    source: Side,
    target: Side,
    memory: int,
    *,
    is_firm: bool,
    threads: int,
    rooms: Sequence[Room] = (),
    ratio: float = 1.0,
    copies: int = 1,
) -> Passes:
    """The cheapest way to write the items of one array into another.

    is_firm       whether `memory` that does not hold one chunk is an error, rather than exceeded
    rooms         where a scratch array may lie; the first with enough room is taken
    ratio         stored bytes for each decoded byte of the source
    copies        how many times the items of a unit are held in memory

    Raises
        MetadataError: `is_firm`, and one chunk of the target with one of the source takes more memory.
    """
    whole = prod(target.shape) * target.item_size
    direct = _choose(source, target, memory, threads, copies)
    if direct.memory > memory and is_firm:
        raise MetadataError(
            f"memory is {memory} bytes; expected at least {direct.memory}, which chunks of "
            f"{target.grid.chunk_shape} made of chunks of {source.pieces.chunk_shape} take"
        )
    best, cost = Passes((direct,)), direct.cost
    found = _choose_room(rooms, whole, min(1.0, QUICK_RATIO * ratio))
    if found is None or direct.read_count <= prod(source.grid.count(source.shape)):
        return best
    room, codec, left = found
    is_near, kept = rooms[room].is_near, ceil(whole * left)
    # The cost of writing a byte there; uncompressed files are written straight from memory.
    writing = SCRATCH_WRITING if is_near else left * DISTANCE
    writing += QUICK_ENCODING if codec else 0
    for shape in _scratches(source, target, memory):
        grid = RegularGrid(shape)
        share = left if codec or not is_near else STORED
        between = Side(source.shape, grid, grid, source.item_size, codec, is_near, ratio=share)
        steps = (
            _choose(source, between, memory, threads, copies),
            _choose(between, target, memory, threads, copies),
        )
        said = sum(step.cost for step in steps) + whole * writing
        said += steps[0].write_count * (FILE if is_near else REQUEST)
        if said < cost and all(step.memory <= max(memory, direct.memory) for step in steps):
            best, cost = Passes(steps, (shape,), kept, room, codec and "lz4"), said
    return best


def _choose_room(rooms: Sequence[Room], whole: int, ratio: float) -> tuple[int, str, float] | None:
    """(number of the first room with space for `whole` bytes, codec there, stored share of the bytes).

    A disk gets a compressed array only if it would not fit otherwise; a bucket, if that saves time.
    """
    for number, room in enumerate(rooms):
        saved = 0.0 if room.is_near else 2 * (1 - ratio) * DISTANCE
        is_worth = saved > QUICK_ENCODING + DECODING["blosc"]
        if 0 < whole <= room.size and not is_worth:
            return number, "", 1.0
        if 0 < whole * ratio <= room.size and ratio < 1:
            return number, "blosc", ratio
    return None


def _size(grid: Grid, shape: Shape) -> int:
    """Items of the largest chunk, cut at the array's edge."""
    return prod(min(c, n) for c, n in zip(grid.chunk_shape, shape, strict=True)) if all(shape) else 0


def edges(grid: Grid, axis: int, length: int) -> Any:
    """The edges of chunks along an axis of a length: where each begins, and where the last one ends."""
    count = grid.count((length,) * len(grid.chunk_shape))[axis]
    if isinstance(grid, RegularGrid):
        found = np.arange(count + 1, dtype=np.int64) * grid.chunk_shape[axis]
    else:
        runs = [(step, min(n, count)) for step, n in grid.edges[axis].runs]
        lengths = np.repeat(*np.array(runs, np.int64).T)[:count]
        found = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.minimum(found, length)


def _extent(grid: Grid, axis: int, length: int, count: int) -> int:
    """The most items that `count` neighbouring chunks have along an axis."""
    if isinstance(grid, RegularGrid):
        return min(grid.chunk_shape[axis] * count, length)
    found = edges(grid, axis, length)
    return int(np.diff(np.append(found[:-1:count], found[-1])).max(initial=0))


def _visits(pieces: Grid, grid: Grid, axis: int, length: int, count: int) -> float:
    """How many units of `count` chunks read the same piece along an axis, on average."""
    if not length:
        return 1.0
    if isinstance(pieces, RegularGrid) and isinstance(grid, RegularGrid):
        piece, unit = pieces.chunk_shape[axis], grid.chunk_shape[axis] * count
        cut = (length - 1) // unit - (length - 1) // lcm(piece, unit)
        return 1 + cut / ceil(length / piece)
    old, new = edges(pieces, axis, length), edges(grid, axis, length)
    ends = new[count:-1:count]
    return 1 + (len(ends) - int(np.isin(ends, old).sum())) / (len(old) - 1)


def _counts(pieces: Grid, grid: Grid, axis: int, length: int, most: int) -> list[int]:
    """Numbers of chunks per unit along an axis that are compared: most of the small ones, few large ones."""
    count = grid.count((length,) * len(grid.chunk_shape))[axis] if length else 1
    found, n = {1, count}, 1.0
    step = max(1.1, count ** (1 / max(1, most - 2))) if count > 1 else 2.0
    while n < count:
        found.add(int(n))
        n = max(n + 1, n * step)
    if isinstance(pieces, RegularGrid) and isinstance(grid, RegularGrid):
        unit = lcm(pieces.chunk_shape[axis], grid.chunk_shape[axis]) // grid.chunk_shape[axis]
        while unit < count:
            found.add(unit)
            unit *= 2
    return sorted(found)


def _choose(source: Side, target: Side, memory: int, threads: int, copies: int) -> Pass:
    """The cheapest pass whose units fit into memory; if none do, the one that takes the least memory."""
    shape, ndim = source.shape, len(source.shape)
    free = [d for d in range(ndim) if target.counts[d] > 1]
    most = max(3, int(WAYS ** (1 / max(1, len(free)))) // 2)
    ways = [_counts(source.pieces, target.grid, d, shape[d], most) for d in range(ndim)]
    extents, visits = [], []
    for d, counts in enumerate(ways):
        line = [1] * ndim
        line[d] = len(counts)
        extents.append(np.array([_extent(target.grid, d, shape[d], n) for n in counts], float).reshape(line))
        visits.append(
            np.array([_visits(source.pieces, target.grid, d, shape[d], n) for n in counts]).reshape(line)
        )
    size = _product(extents) * target.item_size
    cells = _product([np.array(n, float).reshape(e.shape) for n, e in zip(ways, extents, strict=True)])
    decoded = _decoded(source, visits) * float(prod(shape) * source.item_size)
    touches = _product(visits) * float(prod(source.pieces.count(shape)))
    units = _product(
        [
            np.array([ceil(c / n) for n in w]).reshape(e.shape)
            for c, w, e in zip(target.counts, ways, extents, strict=True)
        ]
    )
    piece, chunk = source.piece_size, target.chunk_size
    held = size * (copies if source.is_near and target.is_near else copies + 2)
    held = held * (1 if source.is_native and target.is_native else 2) + 2 * threads * piece
    held = held + 2 * np.minimum(cells, threads) * chunk
    held = held + (0 if source.is_near and target.is_near else WINDOWS_SIZE)
    cost = decoded * DECODING.get(source.codec, OTHER_DECODING) + units * UNIT + size * NEW_MEMORY
    cost = cost + touches * piece * source.ratio * (0.1 if source.is_near else DISTANCE)
    cost = (
        cost
        + touches * (FILE if source.is_near else REQUEST)
        + (0 if source.codec else _stretches(source, visits))
    )
    idle = np.maximum(0, 1 - cells / threads) if target.pieces == target.grid else 0
    cost = cost + idle * prod(shape) * target.item_size * ENCODING
    fits = held <= memory
    ranked = np.where(fits, cost, np.inf) if fits.any() else held + 0 * cost
    place = np.unravel_index(int(np.argmin(np.broadcast_to(ranked, cost.shape))), cost.shape)

    def at(values: Any) -> Any:
        return np.broadcast_to(values, cost.shape)[place]

    return Pass(
        counts=tuple(w[p] for w, p in zip(ways, place, strict=True)),
        length=int(at(size)) // target.item_size,
        unit_count=int(at(units)),
        memory=int(at(held)),
        decoded_size=int(at(decoded)),
        read_count=round(float(at(_product(visits))) * prod(source.pieces.count(shape))),
        write_count=prod(target.counts),
        cost=float(at(cost)),
    )


def _product(factors: Sequence[Any]) -> Any:
    made: Any = np.ones((1,) * len(factors))
    for factor in factors:
        made = made * factor
    return made


def _decoded(source: Side, visits: Sequence[Any]) -> Any:
    """How many times a byte of the source is decoded, on average."""
    long = [d for d, n in enumerate(source.pieces.chunk_shape) if n > 1]
    # A part along the longest strides is one stretch of a piece. Blosc decodes only the blocks of a stretch;
    # of uncompressed pieces, parts along a second axis are read alone as well.
    spared = {"": long[:2], "blosc": long[:1], "numcodecs.blosc": long[:1]}.get(source.codec, [])
    if not source.is_native:
        spared = []
    return _product([v * 0 + 1 if d in spared else v for d, v in enumerate(visits)])


def _stretches(source: Side, visits: Sequence[Any]) -> Any:
    """The cost of reading parts of uncompressed chunks, which are several stretches each."""
    runs: Any = _product([v * 0 + 1 for v in visits])
    outer: Any = runs
    for n, v in zip(source.pieces.chunk_shape, visits, strict=True):
        runs = np.where(v > 1, outer, runs)
        outer = outer * np.maximum(1, n / v)
    touches = _product(visits) * float(prod(source.pieces.count(source.shape)))
    return touches * runs * STRETCH


def _scratches(source: Side, target: Side, memory: int) -> Iterator[Shape]:
    """Chunk shapes of scratch arrays that are compared, each of them once."""
    old = tuple(min(c, n) for c, n in zip(source.pieces.chunk_shape, source.shape, strict=True))
    new = tuple(min(c, n) for c, n in zip(target.grid.chunk_shape, target.shape, strict=True))
    seen = set[Shape]()
    for part in (2, 4, 8, 16, 32):
        most = max(1, memory // part // source.item_size)
        read, written = _grown(old, new, source.shape, most), _grown(new, old, source.shape, most)
        shared = tuple(map(min, read, written))
        for shape in (read, shared, _grown(old, new, source.shape, max(1, most // 8))):
            if shape not in seen and len(seen) < SCRATCHES:
                seen.add(shape)
                yield shape


def _grown(shape: Shape, towards: Shape, limits: Shape, most: int) -> Shape:
    """A box of whole chunks, doubled along axes where other chunks are longer, of at most `most` items."""
    grown = list(shape)
    while True:
        order = sorted(range(len(grown)), key=lambda d: grown[d] / max(1, towards[d]))
        for d in order:
            longer = min(2 * grown[d], limits[d])
            if grown[d] < towards[d] and longer > grown[d] and prod(grown) // grown[d] * longer <= most:
                grown[d] = longer
                break
        else:
            return tuple(grown)

"""Sources of jobs: items that are read by boxes, sets of their chunks, and the versions that tell of changes.

What a job reads has the versions at its end that it had at its beginning, or no document is written. A call
with `resume` keeps the versions of sources and target beside the target, so that the same call tells later
whether anything has changed, and what.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import compress, product
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zstore.base.boxes import Box, Shape, places
from zstore.base.once import once
from zstore.engine.documents import place
from zstore.errors import ChangedError, ZstoreError, leave_out, without_secrets
from zstore.jobs.plan import Unit, current_part, name_job
from zstore.jobs.target import check_outside
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.dtype import DataType
from zstore.model.grid import Grid, RegularGrid
from zstore.storage.base import Store, join_key
from zstore.storage.memory import MemoryStore

# The assumed size, in bytes, of an item of any length.
OBJECT_SIZE = 64
# Up to this many chunks in a grid, a set has a byte for each of them; beyond, it holds their coordinates.
MASK_SIZE = 1 << 27
ROWS_COUNT = 1 << 16

R = TypeVar("R")
Cell = tuple[int, ...]
Rows = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

# Below this prefix at the path of a target, fingerprints of finished jobs are kept by name.
MADE = ".zstore-made"
LITTLE = np.dtype("<u8")

# By name, a text that changes whenever the source or target does. One that ends in "?" may stay.
Versions = Mapping[str, str]
# A number for each chunk of a grid, or for each key, that changes with it; 0 where no chunk is stored.
Marks = np.ndarray[Any, np.dtype[np.uint64]]
# More marks than these are neither kept nor read: 1 GiB.
MARK_COUNT = 1 << 27
# The mark of a chunk that is being made again.
UNKNOWN = np.uint64(2**64 - 1)


class Source(ABC):
    """Items that are read by boxes: a stored array, windows of a raster, a view of other sources.

    Jobs ask no more than this of what they read. It goes to the workers of executors, so it can be pickled.
    `shape`, `dtype`, `grid`, `url`, `version` and `read` are its author's. All else has defaults that hold
    for any source; a source that knows better overrides them. `name`, `dimension_names` and `attributes` say
    of the items what the document of an array does, nodata and georeference among it.
    """

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The length of each dimension."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the items in memory."""

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid of chunks; boxes of whole chunks cost least to read."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The address, for messages and for telling one source from another."""

    @abstractmethod
    def version(self) -> str:
        """A text that changes whenever an item is written; "" if that is unknown.

        One that ends in "?" may stay although an item was written.
        """

    @abstractmethod
    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The items of a box, in `out` (C-contiguous, of the box's shape) or in new memory."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {without_secrets(self.url)} shape={self.shape} dtype={self.dtype}>"

    @property
    def name(self) -> str:
        """The name of an array with these items; "" where nothing names it."""
        return ""

    @property
    def dimension_names(self) -> Sequence[str | None] | None:
        """The name of each dimension; None: no dimension has one."""
        return None

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of an array with these items, by any convention."""
        return {}

    def documents(self, zarr_format: ZarrFormat) -> tuple[MemoryStore, str] | None:
        """The documents of a group in which the source is an array, with its coordinates; the array's path.

        None where an array alone says all.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most sources keep nothing open
        """Let go of open files; the next `read` opens them again."""

    def has_lost(self, error: Exception) -> bool:
        """Whether an error is of some of these items alone, which are damaged or out of reach."""
        return False

    def watched(self) -> Sources:
        """The source as the only one of a job, with its version now."""
        return Sources(lambda: {"": self.version() or "?"}, lambda _: self.url)

    def check_apart(self, target: Store, base: str, work: str) -> None:
        """Refuse a target that is or contains what holds these items, so that it would be overwritten.

        Raises
            StoreError: the target is not apart from what is read.
        """
        check_outside([self.url], target, base, work)

    def describe(self) -> dict[str, str]:
        """The source in JSON, for a job's record: its address, and its documents where it has some."""
        return {"source": self.url}

    @property
    def data_type(self) -> Any:
        """The data type, in a form for `create_array`."""
        return self.dtype

    @property
    def fill_value(self) -> Any:
        """The value of items in chunks that `listing` leaves out; None if it leaves out none."""
        return None

    @property
    def request_count(self) -> int:
        """The number of boxes worth reading at once; more than 1 if each waits for a server."""
        return 1

    @property
    def piece_shape(self) -> Shape | None:
        """The shape of the parts of a chunk that can be read alone at no cost for others; None: unknown."""
        return None

    @property
    def pieces(self) -> Grid:
        """The grid of the smallest parts that can be read alone: of `piece_shape`, else whole chunks."""
        return self.grid if self.piece_shape is None else RegularGrid(self.piece_shape)

    @property
    def codecs(self) -> tuple[str, ...] | None:
        """The names of the codecs that kernels decode piece by piece (`piece_shape`); None for Python's."""
        return None

    def listing(self, *, keeps_marks: bool = False) -> StoredChunks:
        """The stored chunks, and their version.

        keeps_marks  whether a mark of each chunk is given too, where there are marks
        """
        return StoredChunks(ChunkSet(self.counts, None), 0, self.version())

    @once
    def counts(self) -> Shape:
        """The number of chunks along each dimension."""
        return self.grid.count(self.shape)

    @property
    def item_size(self) -> int:
        """The bytes of an item in memory; for items of variable length, an estimate."""
        return OBJECT_SIZE if self.dtype.kind in "OT" else self.dtype.itemsize

    @property
    def chunk_size(self) -> int:
        """Decoded bytes of the largest chunk, at least 1."""
        return max(1, prod(self.grid.chunk_shape) * self.item_size)

    def box(self, cell: Cell) -> Box:
        """The box of a chunk's items, cut at the end of the shape."""
        grid, shape = self.grid, self.shape
        return tuple(
            slice(grid.start(d, at), min(grid.start(d, at + 1), shape[d])) for d, at in enumerate(cell)
        )

    def cells(self, box: Box) -> Iterator[Cell]:
        """The chunks that overlap a box, in order."""
        return product(*(self._overlap(axis, side) for axis, side in enumerate(box)))

    def count(self, box: Box) -> int:
        """The number of chunks that overlap a box."""
        return prod(len(self._overlap(axis, side)) for axis, side in enumerate(box))

    def _overlap(self, axis: int, side: slice) -> range:
        """The coordinates along an axis of the chunks that overlap a side of a box."""
        every, start = range(self.counts[axis]), self.grid.start
        first = bisect_right(every, side.start, key=lambda number: start(axis, number)) - 1
        return range(first, bisect_left(every, side.stop, key=lambda number: start(axis, number)))


class ModelSource(Source):
    """A source that the model of an array describes.

    model  of an array with these items
    """

    model: ArrayModel

    @property
    def shape(self) -> Shape:
        return self.model.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.model.dtype

    @property
    def data_type(self) -> DataType:
        return self.model.data_type

    @property
    def grid(self) -> Grid:
        return self.model.grid

    @property
    def fill_value(self) -> Any:
        return self.model.effective_fill_value

    @property
    def dimension_names(self) -> Sequence[str | None] | None:
        return self.model.dimension_names

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.model.attributes


class Lost(dict[str, ZstoreError]):
    """By name, the errors of sources whose items cannot be read: a call goes on without them.

    names  of all sources; where none is left, the error is raised at once, as in a part of a job
    """

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._names = {*names}

    @contextmanager
    def apart(self, name: str, *sources: Source) -> Iterator[None]:
        """Context of reading these sources; their name is left out where they cannot be read."""
        try:
            yield
        except ZstoreError as error:
            is_last = self._names <= {*self, name}
            if is_last or current_part() is not None or not any(one.has_lost(error) for one in sources):
                raise
            self[name] = error
            leave_out(name, error)


def all_but_lost(sources: Mapping[str, Sequence[Source]], make: Callable[[Sequence[str]], R]) -> R:
    """The result of `make` for these names, or for the others, where the items of some cannot be read.

    It is called again for each of those.

    sources  by name what is read of it
    """
    lost = Lost(sources)
    while True:
        left = [name for name in sources if name not in lost]
        with ExitStack() as apart:
            for name in left:
                apart.enter_context(lost.apart(name, *sources[name]))
            return make(left)


class StoredChunks(NamedTuple):
    """The stored chunks of a source, from one listing.

    cells      the chunks; all, where they cannot be listed
    size       their stored bytes
    version    as of `Source.version`
    marks      a number for each chunk of the grid that changes with the chunk; 0 where none is stored
    is_listed  whether they were listed, so that each of them is there
    """

    cells: ChunkSet
    size: int
    version: str
    marks: Marks | None = None
    is_listed: bool = False


class ChunkSet:
    """A set of chunks of an array, by their coordinates, in many pages; None: all chunks."""

    def __init__(self, counts: Shape, cells: Iterable[Sequence[Cell] | Rows] | None) -> None:
        self.counts = counts
        self._is_all = cells is None
        self._mask: Mask | None = None
        self._set = set[Cell]()
        if cells is not None and prod(counts) > MASK_SIZE:
            self._set.update(*(map(tuple, np.asarray(some).tolist()) for some in cells))
        elif cells is not None:
            self._mask = np.zeros(counts, bool)
            for some in filter(len, cells):
                self._mask[tuple(np.asarray(some).T)] = True
            if self._mask.all():
                self._is_all, self._mask = True, None

    def __iter__(self) -> Iterator[Cell]:
        if self._is_all:
            yield from places(self.counts)
        elif self._mask is None:
            yield from sorted(self._set)
        else:
            yield from _rows(self._mask)

    def __len__(self) -> int:
        if self._is_all:
            return prod(self.counts)
        return len(self._set) if self._mask is None else int(np.count_nonzero(self._mask))

    def __or__(self, other: ChunkSet) -> ChunkSet:
        if self._is_all or other._is_all:
            return ChunkSet(self.counts, None)
        made = ChunkSet(self.counts, ())
        made._set = self._set | other._set
        if self._mask is not None and other._mask is not None:
            made._mask = self._mask | other._mask
        return made

    def __sub__(self, other: ChunkSet) -> ChunkSet:
        made = ChunkSet(self.counts, ())
        if made._mask is None:
            made._set = set() if other._is_all else {cell for cell in self if cell not in other._set}
        elif not other._is_all:
            mine = np.ones(self.counts, bool) if self._mask is None else self._mask
            made._mask = mine & ~other._mask  # type: ignore[operator]
        return made

    def spread(self, array: Source, other: Source) -> ChunkSet:
        """The chunks of another source that overlap these chunks of `array`."""
        if array.grid == other.grid:
            return self
        if self._is_all:
            return ChunkSet(other.counts, None)
        made = ChunkSet(other.counts, ())
        if self._mask is None or made._mask is None:
            return ChunkSet(other.counts, (list(other.cells(array.box(cell))) for cell in self))
        mask = self._mask
        for axis in range(mask.ndim):
            mask = _reduce(mask, axis, _spans(array, other, axis))
        made._mask = mask
        return made

    def units(self, counts: Shape, left: ChunkSet) -> Iterator[Unit]:
        """The units, of `counts` chunks along each axis, that have some of these chunks, in order.

        The last number of each unit has a bit for each of its chunks that is in `left`, for `cells_of`;
        -1: all are.
        """
        for at in self._units(counts):
            yield *at, left._bits(at, counts)

    def _units(self, counts: Shape) -> Iterator[Cell]:
        if self._is_all:
            yield from places(tuple(-(-most // n) for most, n in zip(self.counts, counts, strict=True)))
        elif self._mask is None:
            yield from sorted({tuple(p // n for p, n in zip(cell, counts, strict=True)) for cell in self})
        else:
            mask = self._mask
            for axis, count in enumerate(counts):
                if mask.size:
                    mask = np.logical_or.reduceat(mask, np.arange(0, mask.shape[axis], count), axis=axis)
            yield from _rows(mask)

    def _bits(self, at: Cell, counts: Shape) -> int:
        if self._is_all:
            return -1
        sides = _sides(at, counts, self.counts)
        if self._mask is None:
            mask = np.array([cell in self._set for cell in product(*sides)])
        else:
            mask = self._mask[tuple(slice(side.start, side.stop) for side in sides)].reshape(-1)
        return -1 if mask.all() else int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _sides(at: Cell, counts: Shape, most: Shape) -> list[range]:
    """The chunks of a unit, as a range along each axis."""
    return [range(p * n, min(p * n + n, end)) for p, n, end in zip(at, counts, most, strict=True)]


def cells_of(unit: Unit, counts: Shape, most: Shape) -> list[Cell]:
    """The remaining chunks of a unit of `counts` chunks along each axis, on a grid of `most`."""
    *at, bits = unit
    sides = _sides(tuple(at), counts, most)
    every, length = product(*sides), prod(map(len, sides))
    if bits < 0:
        return list(every)
    packed = np.frombuffer(bits.to_bytes(-(-length // 8), "little"), np.uint8)
    return list(compress(every, np.unpackbits(packed, count=length, bitorder="little").tolist()))


def _rows(mask: Mask) -> Iterator[Cell]:
    """The coordinates at which a mask is true, in order."""
    rows = np.argwhere(mask)
    for first in range(0, len(rows), ROWS_COUNT):
        yield from map(tuple, rows[first : first + ROWS_COUNT].tolist())


def _spans(array: Source, other: Source, axis: int) -> Any:
    """(first, last + 1) of the chunks of `array` that each chunk of `other` overlaps along an axis."""
    length = array.shape[axis]
    old, new = (one.grid.borders(axis, length) for one in (array, other))
    first = np.searchsorted(old, new[:-1], side="right") - 1
    return np.stack([first, np.searchsorted(old, new[1:], side="left")], 1)


def _reduce(mask: Mask, axis: int, spans: Any) -> Mask:
    """Whether a mask is true anywhere in each of the spans along an axis."""
    if not mask.size or not len(spans):
        return np.zeros((*mask.shape[:axis], len(spans), *mask.shape[axis + 1 :]), bool)
    # reduceat takes the stretch from each place to the next, of which every second is a span. A span may end
    # past the last chunk, so there is one more.
    room = np.zeros((*mask.shape[:axis], 1, *mask.shape[axis + 1 :]), bool)
    padded = np.concatenate([mask, room], axis)
    made = np.logical_or.reduceat(padded, spans.reshape(-1), axis=axis)
    return made[(slice(None),) * axis + (slice(None, None, 2),)]


# Versions of what is read and made


class Sources:
    """The sources of a job by name, with their versions at its start.

    find   gives the versions as they are now
    place  gives the address of a source, by its name, for errors
    """

    def __init__(
        self, find: Callable[[], Versions], place: Callable[[str], str], versions: Versions | None = None
    ) -> None:
        self._find = find
        self.place = place
        self.versions = find() if versions is None else versions

    def check_unchanged(self) -> None:
        """Compare with the present versions.

        Raises
            ChangedError: a source was written, is new or is gone.
        """
        changed = differing(self.versions, self._find())
        if changed is not None:
            raise ChangedError(
                "the source changed while it was read; expected nobody to write to it",
                path=self.place(changed),
            )


def differing(one: Versions, other: Versions) -> str | None:
    """The first name that has not the same version in both; None where all have."""
    return next((name for name in {**one, **other} if one.get(name) != other.get(name)), None)


@dataclass(frozen=True)
class Made:
    """The fingerprint of a finished job: the versions of its sources and of its target.

    call     what identifies the call: the same sources and arguments; of it, only a hash is kept
    sources  the versions of what it was made of, by hashes of their names; none while what has changed is
             made again
    target   the versions of what was made
    frames   by name of a source: what must stay for its changed chunks to be made again alone
    marks    by name of a source: a number for each of its chunks or keys
    """

    call: Any
    sources: Versions = field(default_factory=dict)
    target: Versions = field(default_factory=dict)
    frames: Versions = field(default_factory=dict)
    marks: Mapping[str, Marks] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store, base: str, call: Any) -> Made | None:
        """The fingerprint that a job of this call has left at a path; None where there is none."""
        data = bytes(store.get(join_key(base, MADE, name_job(call))) or b"")
        checksum, data = data[:4], data[4:]
        if len(checksum) < 4 or zlib.crc32(data) != int.from_bytes(checksum, "little"):
            return None
        head, _, rest = data.partition(b"\n")
        with suppress(ValueError, KeyError, TypeError, zlib.error):
            said, marks = json.loads(head), dict[str, Marks]()
            for name, shape, size in said.pop("marks"):
                if not 0 <= prod(shape) <= MARK_COUNT:
                    return None
                # What the file says it holds, and no more, however far it could be expanded.
                expanded = zlib.decompressobj().decompress(rest[:size], prod(shape) * LITTLE.itemsize or 1)
                numbers = np.frombuffer(expanded, LITTLE)
                marks[name], rest = numbers.astype(np.uint64).reshape(shape), rest[size:]
            return cls(call, **said, marks=marks)
        return None

    def put(self, store: Store, base: str) -> None:
        """Keep the fingerprint at a path."""
        blobs = [zlib.compress(marks.astype(LITTLE).tobytes(), 1) for marks in self.marks.values()]
        said = [
            [name, marks.shape, len(blob)]
            for (name, marks), blob in zip(self.marks.items(), blobs, strict=True)
        ]
        kept = {"sources": self.sources, "target": self.target, "frames": self.frames, "marks": said}
        data = json.dumps(kept).encode() + b"\n" + b"".join(blobs)
        key = join_key(base, MADE, name_job(self.call))
        store.put(key, zlib.crc32(data).to_bytes(4, "little") + data)

    @classmethod
    def of(
        cls,
        call: Any,
        sources: Sources,
        target: Versions,
        frames: Versions | None = None,
        marks: Mapping[str, Marks] | None = None,
    ) -> Made:
        """The fingerprint of a job that ends."""
        return cls(call, _hashed(sources.versions), target, frames or {}, marks or {})

    def meanwhile(self, marks: Mapping[str, Marks]) -> Made:
        """The fingerprint while chunks are made again, whose marks are unknown; it fits no sources."""
        return replace(self, sources={}, marks=marks)

    def changed(self, name: str, now: Marks | None) -> Mask | None:
        """Whether each chunk of a source is new, gone or written since; None where that is not known."""
        before = self.marks.get(name)
        if now is None or before is None or before.ndim != now.ndim:
            return None
        changed: Mask = held_marks(before, now) != now
        return changed

    def check_target(self, target: Versions, store: Store, base: str) -> None:
        """Check that nobody has written to the target since.

        Raises
            ChangedError: somebody has written to it.
        """
        changed = differing(self.target, target)
        if changed is not None:
            raise ChangedError(
                "what was made was written to since; expected it as it was left, or overwrite=True (of a "
                "copy: if_exists='overwrite') without resume, which makes it anew",
                path=place(store, join_key(base, changed)),
            )

    def changed_sources(self, sources: Sources) -> list[str]:
        """The names of the sources that are new, gone or written since; of those that are gone, a hash."""
        names = {name_job(name): name for name in sources.versions}
        now = _hashed(sources.versions)
        differ = [name for name in {**self.sources, **now} if self.sources.get(name) != now.get(name)]
        return [names.get(name, name) for name in differ]

    def is_current(self, sources: Sources) -> bool:
        """Whether all of the target is made of the sources as they are now."""
        return not self.changed_sources(sources)

    def check_current(self, sources: Sources) -> None:
        """Check that no source has changed, for jobs that can only make the whole target again.

        Raises
            ChangedError: a source was written to since the target was made of it.
        """
        if changed := self.changed_sources(sources):
            raise ChangedError(
                "the source was written to since the target was made of it; expected overwrite=True without "
                "resume, which makes the target anew",
                path=sources.place(changed[0]) if changed[0] in sources.versions else None,
            )


def _hashed(versions: Versions) -> Versions:
    """The versions by hashes of their names: addresses may have signatures, which nobody else is to read."""
    return {name_job(name): version for name, version in versions.items()}


def is_certain(versions: Versions) -> bool:
    """Whether every change shows in the versions."""
    return not any(version.endswith("?") for version in versions.values())


def held_marks(before: Marks, after: Marks) -> Marks:
    """The marks of before on the grid of `after`, which may have grown or shrunk."""
    held = np.zeros(after.shape, np.uint64)
    common = tuple(slice(0, min(sides)) for sides in zip(before.shape, after.shape, strict=True))
    held[common] = before[common]
    return held

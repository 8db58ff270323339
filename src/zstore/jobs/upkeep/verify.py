"""`verify`: checks that every chunk of a hierarchy can be read, and that a store is as its manifest says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Unpack

from zstore.base.boxes import Box, cut
from zstore.codecs.base import make_codec
from zstore.engine.intents import Unfinished, find_unfinished
from zstore.engine.walk import Found, walk_nodes
from zstore.errors import NotFoundError, StoreError, ZstoreError
from zstore.jobs.chunks import MEMORY_SIZE, Location, StoredArray, Unreachable, of_files_by_content
from zstore.jobs.how import READS_ONLY, How, HowWords, long_call
from zstore.jobs.plan import Progress
from zstore.jobs.record import BegunJob, begin
from zstore.jobs.runner import counter
from zstore.jobs.source import Cell
from zstore.jobs.target import check_apart
from zstore.jobs.upkeep.manifest import Comparing, Manifest, key_within, pair_keys
from zstore.jobs.upkeep.spool import Spool
from zstore.jobs.upkeep.windows import Fault, Outcome, Piece, check_all
from zstore.model.array import ArrayModel
from zstore.nodes.node import Missing, StoredNode, is_fault
from zstore.nodes.open import StoreLike
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store

# The most damages that are described; more are only counted.
DAMAGE_LIMIT = 10_000
# Where the index of a shard takes more bytes than this, the shard's size is asked for before it is read.
SMALL_INDEX_SIZE = 64 << 10
# What is wrong with a chunk: (cause, kind).
Cause = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Damage:
    """A chunk or document that is missing or cannot be read, or a key that is not as a manifest says.

    path   the array or group, below the store's root
    key    the key in the store; None where the whole node cannot be read
    cause  what is wrong, in words
    kind   "chunk" or "document": damaged; "unreachable": a value may be there, which the store cannot give;
           "missing": never written. With a manifest "changed", "missing", "new" or "unreadable"
    """

    path: str
    key: str | None
    cause: str
    kind: str


@dataclass(slots=True)
class Verification:
    """Counts of what `verify` has read, and descriptions of damage.

    array_count    how many arrays were checked
    chunk_count    how many stored chunks (or shards) were checked
    missing_count  how many chunks were never written, so that they read as the fill value
    stray_count    how many stored chunks lie outside of their array; a larger shape would bring them back
    damage_count   how many damages there are; `damages` describes the first ten thousand
    kind_counts    how many damages there are of each kind
    key_count      how many keys were compared with a manifest
    unfinished     jobs that are under way or were interrupted there, and how to go on with them
    """

    array_count: int = 0
    chunk_count: int = 0
    missing_count: int = 0
    stray_count: int = 0
    damage_count: int = 0
    kind_counts: dict[str, int] = field(default_factory=dict)
    key_count: int = 0
    damages: list[Damage] = field(default_factory=list)
    unfinished: list[Unfinished] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage, and no unfinished job."""
        return not self.damage_count and not self.unfinished

    def count(self, kind: str) -> None:
        """Count a damage of a kind."""
        self.damage_count += 1
        self.kind_counts[kind] = self.kind_counts.get(kind, 0) + 1

    def add(self, damage: Damage) -> None:
        """Count a damage, and describe it unless too many are described."""
        self.count(damage.kind)
        if len(self.damages) < DAMAGE_LIMIT:
            self.damages.append(damage)


@long_call(**READS_ONLY, resume="it goes on by the journal that it is given: pass journal")
@of_files_by_content
def verify(
    target: StoredNode[Any] | StoreLike,
    path: str | None = None,
    *,
    expect_complete: bool = False,
    missing: Missing = "fill",
    manifest: str | os.PathLike[str] | None = None,
    journal: StoreLike | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    **words: Unpack[HowWords],
) -> Verification:
    """Read every chunk of the array or hierarchy at `path`, on all cores; report damage and unfinished jobs.

    A chunk that cannot be reached (a link out of the store, a disk that is not mounted, a refusal) is damage
    of the kind "unreachable", never counted as missing. With `expect_complete`, chunks (and inner chunks)
    that were never written are damage of the kind "missing"; missing="error" says the same in the word of
    reads. `progress` is called with the number of chunks that are done, and of all.

    With `manifest`, a file that `zstore.manifest` or `sha256sum` made, nothing is decoded: the values of all
    keys are compared with it, and `progress` is called with bytes. Keys that are "changed", "missing", "new"
    or "unreadable" are damage of that kind.

    journal   an empty store elsewhere, where results are kept until the end: after an interruption the same
              call goes on from there. It does not notice changes to chunks that are checked already

    Raises
        NotFoundError: there is nothing at `path`, or no manifest.
        MetadataError: the manifest is malformed or was changed; or `journal` holds another interrupted job.
        StoreError: the store cannot list what it holds.
        ValueError: `missing` is neither "fill" nor "error".
    """
    how = How(**words)
    is_complete = is_fault(missing) or expect_complete
    at = Location.open(target, path, storage_options, read_only=True)
    expected = None if manifest is None else Manifest.read(manifest)
    arguments = {
        "source": at.url(),
        "missing": "error" if is_complete else "fill",
        "manifest": None if expected is None else expected.root,
    }

    def start() -> BegunJob | None:
        if journal is None:
            return None
        kept = open_store(journal)
        check_apart(*at, kept, "", "verify")
        return begin(kept, "", "verify", arguments, resume=True)

    if expected is None:
        return _verify_chunks(
            at, start, how, in_order=journal is not None, is_complete=is_complete, allow_pickle=allow_pickle
        )
    # The values of all keys are compared with the manifest.
    total, pairs = pair_keys(at, expected, key_within(at, manifest))
    result = _Tally(Verification(), how.progress, total)

    def take(_: int, size: int, faults: list[tuple[Piece, Fault]]) -> None:
        result.take(
            size,
            [(p[0] or p[1], (at.path, at.key(key or ""), *words)) for p, (key, *words) in faults],
        )

    result.made.key_count, job = check_all(Comparing(at), pairs, take, how, start, total)
    return result.end(job)


def _verify_chunks(
    at: Location, start: Callable[[], BegunJob | None], how: How, *, in_order: bool, is_complete: bool,
    allow_pickle: bool,
) -> Verification:  # fmt: skip
    """Parse all documents, and read all chunks."""
    made = Verification(unfinished=find_unfinished(*at))
    arrays: list[_Checked] = []
    for path, model in _nodes(at, made):
        if isinstance(model, ZstoreError):
            # Errors of documents name them below their node.
            key = model.key if isinstance(model, StoreError) else join_key(path, model.key or "")
            made.add(Damage(path, key, model.message, _kind(model, "document")))
        elif isinstance(model, ArrayModel):
            made.array_count += 1
            try:
                array = StoredArray(
                    at.store, path, model, allow_pickle=allow_pickle, missing_is_fault=is_complete
                )
                arrays.append(_Checked(array, how.memory or MEMORY_SIZE, is_complete=is_complete))
            except Exception as error:
                # Whatever fails in one array, the others are to be checked.
                made.add(Damage(path, None, _words(error), "document"))
    total = sum(checked.count() for checked in arrays) if how.progress is not None else 0
    result = _Tally(made, how.progress, total)
    pieces = (
        (number, cell, is_stored)
        for number, checked in enumerate(arrays)
        for cell, is_stored in checked.cells(made, in_order=in_order)
    )

    def take(count: int, stored_count: int, faults: list[tuple[Piece, Fault]]) -> None:
        made.chunk_count += stored_count
        made.missing_count += count - stored_count
        result.take(count, [(piece[:2], fault) for piece, fault in faults])

    size = sum(checked.count() * checked.chunk_size for checked in arrays) if how.dry_run else None
    _, job = check_all(_Checking(at.store, tuple(arrays)), pieces, take, how, start, size)
    return result.end(job)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, ZstoreError) else f"{type(error).__name__}: {error}"


def _kind(error: Exception, kind: str) -> str:
    """The kind of damage for an error: "unreachable" if it is the store's, else `kind`."""
    return "unreachable" if isinstance(error, StoreError) else kind


def _nodes(at: Location, made: Verification) -> Iterator[Found]:
    """Every node; none if only an unfinished job is there."""
    try:
        yield from walk_nodes(*at)
    except NotFoundError:
        if not made.unfinished:
            raise


class _Tally:
    """A verification under way: collects faults, which may come in any order, and sorts them by key."""

    def __init__(self, made: Verification, progress: Progress | None, total: int) -> None:
        self.made = made
        self._faults: list[tuple[Any, Fault]] = []
        self._tick = counter(total, None if progress is None else lambda n, _: progress(n, max(n, total)))

    def take(self, count: int, faults: list[tuple[Any, Fault]]) -> None:
        """Add faults with their sort keys, and report progress."""
        room = max(0, DAMAGE_LIMIT - len(self._faults))
        self._faults += faults[:room]
        for _, fault in faults[room:]:
            self.made.count(str(fault[-1]))
        self._tick(count)

    def end(self, job: BegunJob | None) -> Verification:
        """The verification with all faults, sorted; ends the job."""
        for _, fault in sorted(self._faults, key=lambda each: each[0]):
            self.made.add(Damage(*fault))  # type: ignore[arg-type]
        if job is not None:
            job.end()
        return self.made


@dataclass(frozen=True)
class _Checking:
    """Checks chunks; pieces are (number of an array, chunk, whether it is stored, or None if unknown)."""

    store: Store
    arrays: tuple[_Checked, ...]

    def size(self, piece: Piece) -> int:
        """The decoded bytes in memory for the check of a piece."""
        return self.arrays[piece[0]].size

    @property
    def most_size(self) -> int:
        """The most decoded bytes in memory for the check of any chunk."""
        return max((array.size for array in self.arrays), default=0)

    def check(self, piece: Piece) -> Outcome:
        """(1 if the chunk is stored, its faults)."""
        number, cell, is_stored = piece
        array = self.arrays[number]
        is_stored, faults = array.check(cell, is_stored)
        return int(is_stored), [(array.path, array.key(cell), *fault) for fault in faults]


class _Checked:
    """An array whose chunks are checked.

    size  decoded bytes that the check of one chunk holds
    """

    def __init__(self, array: StoredArray, memory: int, *, is_complete: bool) -> None:
        self._array = array
        self.chunk_size = array.chunk_size
        self.path, self.key = array.path, array.key
        self._is_complete = is_complete
        # Shards within other codecs are decoded whole.
        self._inner = array.model.inner_chunk_shape if len(array.model.codecs) == 1 else None
        # The least size of a shard's index, 16 bytes for each inner chunk; 0 without shards.
        self._index_size = 0
        if self._inner is not None:
            shard: Any = make_codec(array.model.codecs[0])
            sides = zip(array.model.grid.chunk_shape, shard.chunk_shape, strict=True)
            self._index_size = 16 * prod(-(-length // inner) for length, inner in sides)
        # The shape that is read at once: a chunk, or as many inner chunks of a shard as memory holds.
        self._step = [*array.model.grid.chunk_shape]
        for axis, length in enumerate(self._inner or ()):
            fitting = memory // max(1, prod(self._step) // self._step[axis] * array.item_size)
            self._step[axis] = min(self._step[axis], max(length, fitting // length * length))
        self.size = prod(self._step) * array.item_size

    def count(self) -> int:
        """The number of chunks to check."""
        stored = None if self._is_complete else self._array.stored([])
        if stored is None:
            return prod(self._array.counts)
        return sum(map(self._array.holds, stored))

    def cells(self, made: Verification, *, in_order: bool) -> Iterator[tuple[Cell, bool | None]]:
        """The chunks to check, and whether each is stored; counts strays and missing chunks in `made`."""
        unreachable: list[Unreachable] = []
        stored = self._array.stored(unreachable)
        if stored is not None and in_order:
            lines = Spool(" ".join(map(str, cell)).encode() for cell in stored)
            stored = (tuple(map(int, line.split())) for line in lines)
        if stored is None:
            yield from ((cell, None) for cell in self._array.all_cells())
            return
        held, listed = set(), 0
        for cell in stored:
            if not self._array.holds(cell):
                made.stray_count += 1
            elif self._is_complete:
                held.add(cell)
            else:
                listed += 1
                yield cell, True
        for error, _ in unreachable:
            made.add(Damage(self._array.path, error.key, error.message, "unreachable"))
        if self._is_complete:
            for cell in self._array.all_cells():
                if cell in held or not any(each.has(cell) for each in unreachable):
                    yield cell, cell in held
        else:
            made.missing_count += self._missing_count(listed, unreachable)

    def _missing_count(self, listed: int, unreachable: Sequence[Unreachable]) -> int:
        """The number of chunks never written: those neither listed nor out of reach."""
        counts = self._array.counts
        for _, leading in unreachable:
            if leading is None:
                return 0
            if all(at < count for at, count in zip(leading, counts, strict=False)):
                listed += prod(counts[len(leading) :])
        return prod(counts) - listed

    def check(self, cell: Cell, is_stored: bool | None) -> tuple[bool, list[Cause]]:
        """(whether a chunk is stored, its faults)."""
        box = self._array.box(cell)
        if is_stored is None or self._index_size > SMALL_INDEX_SIZE:
            try:
                size = self._array.store.size(self.key(cell))
            except ZstoreError as error:
                return True, [(error.message, _kind(error, "chunk"))]
            is_stored = size is not None
            if size is not None and size < self._index_size:
                # The index is cut off, so that reading any item gives the error.
                fault = self._read(_first_item(box))
                return True, [] if fault is None else [fault]
        if not is_stored:
            return False, [("chunk is missing", "missing")] if self._is_complete else []
        return True, [fault for each in cut(box, self._step) for fault in self._faults(each)]

    def _faults(self, box: Box) -> list[Cause]:
        """Every fault in a box, located by halving it if reading it fails."""
        error = self._read(box)
        if error is None:
            return []
        last_item = tuple(slice(side.stop - 1, side.stop) for side in box)
        if self._read(_first_item(box)) == error == self._read(last_item):
            # The box is one inner chunk, or the fault is in the index, without which nothing can be read.
            return [error]
        return [fault for half in self._halves(box) for fault in self._faults(half)] or [error]

    def _halves(self, box: Box) -> list[Box]:
        """The two halves of a box, cut between inner chunks; none of a box with one inner chunk."""
        counts = [-(-(side.stop - side.start) // n) for side, n in zip(box, self._inner or (), strict=False)]
        if not counts or max(counts) == 1:
            return []
        axis = counts.index(max(counts))
        middle = box[axis].start + counts[axis] // 2 * (self._inner or ())[axis]
        sides = (slice(box[axis].start, middle), slice(middle, box[axis].stop))
        return [(*box[:axis], side, *box[axis + 1 :]) for side in sides]

    def _read(self, box: Box) -> Cause | None:
        """The fault of the items of a box; None if all can be read."""
        try:
            try:
                self._array.read(box)
            except NotFoundError as error:
                self._array.filled.read(box)
                return error.message, "missing"
        except MemoryError:
            return f"no memory for {self.size} bytes", "chunk"
        except Exception as error:
            return _words(error), _kind(error, "chunk")
        return None


def _first_item(box: Box) -> Box:
    return tuple(slice(side.start, side.start + 1) for side in box)

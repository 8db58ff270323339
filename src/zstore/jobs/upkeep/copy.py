"""`copy`: all keys of a store in another store, byte for byte, which readers see when the copy is complete.

Documents are copied last, the topmost at the very end. Documents in the target that would describe the new
chunks wrongly are removed before the first chunk is copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.base.locks import Lock
from zstore.base.once import once
from zstore.engine.documents import METADATA_NAMES, ancestors, consolidate_node, forget_consolidated
from zstore.engine.intents import FORMER, FORMER_SHAPE, INTENT, JOB, parse_intent, read_intent
from zstore.engine.making import delete_keys, makes_node
from zstore.engine.schedulers import map_threads, thread_count
from zstore.errors import (
    ChangedError,
    ChecksumError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    is_loss,
    leave_out,
)
from zstore.jobs.chunks import MEMORY_SIZE, REQUEST_COUNT, Location, of_files_by_content
from zstore.jobs.how import How, HowWords, long_call
from zstore.jobs.plan import Estimate, Plan, check_free, current_part
from zstore.jobs.record import BegunJob, begin, check_begun
from zstore.jobs.runner import counter
from zstore.jobs.source import Made, Marks
from zstore.jobs.target import check_apart
from zstore.jobs.upkeep.manifest import (
    PART_SIZE,
    ListedKeys,
    Manifest,
    digest_of,
    key_within,
    list_keys,
    mark_lines,
    marks_of,
    parse_entry,
    parse_name,
    read_parts,
    render_name,
    version_of,
)
from zstore.jobs.upkeep.spool import Spool, align, name_of, split_lines
from zstore.model import v1, v2, v3
from zstore.model.document import parse_json, render_json
from zstore.model.grid import parse_digits
from zstore.nodes.node import StoredNode
from zstore.nodes.open import StoreLike
from zstore.storage.base import Entry, join_key
from zstore.storage.url import file_of
from zstore.storage.zip.store import ZipStore

CHOICES = ("error", "skip", "overwrite", "changed")
# A unit of the copy has so many keys or bytes at most; and how many units are made at a time.
UNIT_COUNT = 256
UNIT_SIZE = 32 << 20
UNITS_AT_ONCE = 3
DELETED_AT_ONCE = 1000
DIGEST_SIZE = 32
# Bytes that a member of a zip file takes beside its value: two headers with the name, and the copy's journal.
MEMBER_SIZE = 512
NO_DIGEST = bytes(DIGEST_SIZE)
FINGERPRINT_SIZE = 16
# A key named like a document of v1 may be something else; to copy it last does no harm.
DOCUMENTS = METADATA_NAMES | {v1.ARRAY_KEY, v1.ATTRIBUTES_KEY}
# The documents that make a node, which come last among those of one path.
MAKING = (v2.ARRAY_KEY, v2.GROUP_KEY, v3.KEY, v1.ARRAY_KEY)

# The lines of some steps, as one text.
Unit: TypeAlias = tuple[Any, ...]

COPY, COMPARE, KEEP = b"copy", b"compare", b"keep"
# In a unit's result, in the place of whether a key was copied: it is out of reach.
LOST = b"\2"


@dataclass
class Copied:
    """Counts of the keys that `copy` copied, kept and removed, or with `dry_run` would.

    key_count       how many keys were copied
    size            the bytes of their values
    kept_count      how many keys of the target were kept as they were
    compared_count  with `dry_run`: how many keys have the same size, and are copied if they differ
    deleted_count   how many keys were removed from the target
    root            the root hash of the manifest, where one was made
    """

    key_count: int = 0
    size: int = 0
    kept_count: int = 0
    compared_count: int = 0
    deleted_count: int = 0
    root: str | None = None


@dataclass(frozen=True, kw_only=True)
class CopyEstimate(Estimate):
    """The expected cost of `copy`, with the counts of `Copied`; `deleted_count` keys would be removed."""

    key_count: int
    size: int
    kept_count: int
    compared_count: int
    deleted_count: int
    root: str | None = None


class _Pace:
    """Slows a copy down to `bandwidth` bytes per second; called with a part's size before it is read.

    alone  a context that lets one thread at a time hold a large value in memory, if memory is limited
    """

    def __init__(self, bandwidth: float | None, memory: int | None = None) -> None:
        self._bandwidth, self._memory = bandwidth, memory
        self.is_bound = bandwidth is not None
        self.alone: AbstractContextManager[object] = nullcontext() if memory is None else Lock()
        self._guard = Lock()
        self._free = time.monotonic()
        most = PART_SIZE if memory is None else min(PART_SIZE, memory)
        self.part_size = most if bandwidth is None else int(min(most, max(bandwidth, 64 << 10)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Pace, (self._bandwidth, self._memory)

    def __call__(self, size: int) -> None:
        if self._bandwidth is None:
            return
        with self._guard:
            now = time.monotonic()
            begin = max(now, self._free)
            self._free = begin + size / self._bandwidth
        time.sleep(begin - now)


@long_call(overwrite="it asks of each key: pass if_exists='overwrite'")
@of_files_by_content
def copy(
    source: StoredNode[Any] | StoreLike,
    target: StoreLike,
    path: str | None = None,
    *,
    target_path: str | None = None,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    delete: bool = False,
    check: bool = False,
    manifest: str | os.PathLike[str] | None = None,
    bandwidth: float | None = None,
    request_count: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Copied:
    """Copy everything at and below `path` of `source` to `target`, byte for byte, nodes or not.

    Between directories the operating system copies, within a bucket the server; with `check`, `manifest` or
    `bandwidth` this process reads every value of the source, once.

    include, exclude
                   patterns of keys below `path`, in which "*" stands for any characters and "?" for one, "/"
                   too. A key is copied if it matches a pattern of `include` (or there are none) and none of
                   `exclude`
    delete         remove keys of the target that the source does not have, as far as the patterns take them
    check          read every value back from the target, and compare hashes
    manifest       a file to which a manifest of the copy is written
    bandwidth      the most bytes per second
    request_count  the most keys that are copied at a time

    Raises
        NotFoundError: there is nothing to copy.
        ChangedError: somebody wrote to the source meanwhile; no document was copied, and `resume` goes on.
        ChecksumError: with `check`, the target gives back other bytes.
        StoreError: the target has one of the keys, chunks that would show in a copied array, unfinished work,
            or too little room; the source has unfinished work; or one of the stores failed. Where chunks of
            an array are out of reach, all others are copied before, and `resume` copies that array.
    """
    how = How(**words)
    if how.if_exists not in CHOICES:
        raise ValueError(f"if_exists={how.if_exists!r}, expected one of {', '.join(map(repr, CHOICES))}")
    if (bandwidth is not None and not bandwidth > 0) or (request_count is not None and request_count < 1):
        raise ValueError("bandwidth and request_count are larger than 0")
    if bandwidth is not None and how.executor is not None:
        raise UnsupportedError("bandwidth is that of this process; expected no executor with it")
    here = Location.open(source, path, storage_options, read_only=True)
    there = Location.open(target, target_path, target_options, read_only=False)
    there = there._replace(store=how.opened(there.store))
    there.store.check_writable(there.key(JOB))
    check_apart(*here, *there, "copy")
    check_begun(*there, "copy")
    patterns = {"include": _words(include), "exclude": _words(exclude)}
    arguments = {"source": here.url(), "if_exists": how.if_exists, "delete": delete, **patterns}

    def start(*, is_empty: bool = False) -> BegunJob:
        replaces = how.if_exists == "overwrite" and not how.resume
        return begin(*there, "copy", arguments, resume=how.resume, replace=replaces, is_empty=is_empty)

    former = read_intent(*there)
    if former is not None and not how.resume and how.if_exists != "overwrite":
        start()  # says what is unfinished there
    # Other choices ask of each key, whether the copy is finished or not.
    keeps = how.resume and how.if_exists == "error" and current_part() is None
    call = {"work": "copy", **arguments}
    made = Made.read(*there, call) if keeps else None
    own = [key for at in (here, there) if (key := key_within(at, manifest)) is not None]
    planner = Planner(
        here,
        there,
        _accept(own, **patterns),
        None if include or exclude else own,
        how.if_exists,
        delete=delete,
        is_resumed=how.resume and former is not None,
        own_name="" if former is None else former.name,
        made=made,
    )
    plan = planner.plan(_known(manifest) if how.if_exists == "changed" else None)
    pace = _Pace(bandwidth, how.memory)
    most = request_count or max(
        thread_count(), *(min(REQUEST_COUNT, at.store.request_count) for at in (here, there))
    )
    copying = _CopyKeys(planner, plan, pace, most, how, hashes=check or manifest is not None, checks=check)
    how.stop_if_dry(copying.estimate)
    if made is not None and former is None and made.is_current(planner.listed) and manifest is None:
        return Copied(kept_count=len(planner.listed.lines))
    _check_room(there, plan)
    planner.check_own(plan)
    job = start(is_empty=former is None and planner.is_bare)
    if planner.is_resumed and not job.is_resumed:
        job.end()
        message = "the copy that was to go on has just ended; expected it unfinished"
        raise ChangedError(message, path=there.url())
    planner.own_name = job.name
    new = plan.new_nodes()
    # A node in place of one of another format is not new: the record is there, where makers look.
    job.hold(() if "" in new and planner.has_node else new)
    if made is not None:
        made.meanwhile({"": planner.unchanged()}).put(*there)
    sums = Manifest(copying.carry_out(job, how))
    if copying.left_out:
        return copying.done  # the record stays, and the call ends with the error
    if manifest is not None:
        sums.write(manifest)
        copying.done.root = sums.root
    if keeps:
        copied, marks = {"": version_of(planner.list_target())}, np.sort(marks_of(planner.listed.lines))
        nodes = dict.fromkeys(sorted(planner.nodes), "")
        job.keep(Made.of(call, planner.listed, copied, nodes, {"": marks}))
    job.end()
    return copying.done


def _words(patterns: str | Sequence[str] | None) -> list[str]:
    return [patterns] if isinstance(patterns, str) else [*(patterns or ())]


def _accept(own: Sequence[str], include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """A function that tells whether a key is copied; a manifest's own file (`own`) never is."""

    def accept(key: str) -> bool:
        if key in own or any(fnmatchcase(key, pattern) for pattern in exclude):
            return False
        return not include or any(fnmatchcase(key, pattern) for pattern in include)

    return accept


def _known(manifest: Any) -> Manifest | None:
    return None if manifest is None or not Path(manifest).exists() else Manifest.read(manifest)


def _check_room(there: Location, plan: CopyPlan) -> None:
    """Raise StoreError if the target's disk has too little room for the plan."""
    file, size = file_of(there.store), plan.needed_size
    where = there.store.local_path(there.path) or file
    if file is not None and isinstance(there.store.holder("a")[0], ZipStore):
        # The new file, with the members that stay, is written beside the old one.
        size = plan.counts.size + plan.counts.key_count * MEMBER_SIZE
        size += file.stat().st_size if file.exists() else 0
    check_free(where, size, "the copy", there.url())


class _CopyKeys(Plan[bytes]):
    """The plan of a copy: a unit is the lines of some steps; its result has counts and hashes."""

    def __init__(
        self,
        planner: Planner,
        plan: CopyPlan,
        pace: _Pace,
        most: int,
        how: How,
        *,
        hashes: bool,
        checks: bool,
    ) -> None:
        self.planner, self.here, self.there = planner, planner.here, planner.there
        self.plan, self.pace, self.most = plan, pace, most
        self.memory = how.memory or MEMORY_SIZE
        self.unit_count = how.at_once(pace.part_size, min(UNITS_AT_ONCE, most)) or 1
        self.hashes, self.checks = hashes, checks
        self.done = Copied(deleted_count=len(plan.deletions))
        self.left_out = set[str]()

    def __getstate__(self) -> dict[str, Any]:
        """The state for workers, who need no lists of keys."""
        return {**vars(self), "planner": None, "plan": None}

    def estimate(self) -> CopyEstimate:
        """The estimate of the copy."""
        counts = self.plan.counts
        return CopyEstimate(
            unit_count=sum(1 for _ in self.units()),
            read_size=counts.size,
            write_size=counts.size,
            request_count=2 * counts.key_count + counts.deleted_count,
            memory_size=self.memory,
            **asdict(counts),
        )

    def carry_out(self, job: BegunJob, how: How) -> Spool:
        """Copy and delete as planned; returns the lines of a manifest."""
        plan, tick, sums = self.plan, counter(self.plan.total_size, how.progress), Spool()
        self._remove_documents()
        self._delete()

        lost = list[CopyStep]()

        def take(steps: Iterable[CopyStep], result: bytes) -> None:
            size = 0
            for step, (is_copied, digest) in zip(steps, _results(result), strict=True):
                if is_copied is None:
                    lost.append(step)
                    continue
                self.done.key_count += is_copied
                self.done.kept_count += not is_copied
                self.done.size += int(step.size) if is_copied else 0
                size += int(step.size) if step.action != KEEP else 0
                sums.add(b"\0".join((step.name, digest.hex().encode(), step.size, step.version)))
            tick(size)

        with job.runner(how.executor) as runner:
            runner.run(
                self,
                "keys",
                lambda unit, result: take(self._steps(unit), result[FINGERPRINT_SIZE:]),
                most=self.unit_count if how.executor is None else None,
            )
        for step in lost:
            self._leave_out(step)
        self.planner.listed.check_unchanged()
        if self.there.path and plan.documents:
            forget_consolidated(*self.there, None)
        for step in plan.documents:
            if step.entry.key.rpartition("/")[0] in self.left_out:
                continue
            made = self._copy_document(step)
            if made:
                take([step], made)
        for step in filter(self._is_rewritten, plan.documents):
            take([step], self._consolidate(step.entry.key))
        return sums

    def _leave_out(self, step: CopyStep) -> None:
        """Leave out the array that a key out of reach belongs to, so that it gets no document."""
        key = self.here.key(step.entry.key)
        array = self.planner.array_of(step.entry.key)
        self.left_out.add(step.entry.key if array is None else array)
        self.planner.leaves_documents = True
        try:
            self.here.store.get(key, ByteRange(0, 1))
        except StoreError as error:
            leave_out(step.entry.key if array is None else array, error)
        else:
            raise ChangedError("a value was out of reach for a time", path=self.here.store.url, key=key)

    def _remove_documents(self) -> None:
        """Remove the target's documents that would describe the new chunks wrongly, the topmost first."""
        for step in reversed(self.plan.documents):
            key = step.entry.key
            if step.action == KEEP or not step.there:
                continue
            then, now = self.there.get(key), self.here.get(key)
            if then != now and (is_array(key, lambda: then) or is_consolidated(key, then)):  # noqa: B023
                self.there.store.delete(self.there.key(key))

    def _delete(self) -> None:
        """Delete the keys that only the target has, documents before chunks."""
        for are_documents in (True, False):
            names = (parse_name(line) for line in self.plan.deletions)
            keys = (self.there.key(name) for name in names if makes_node(name) == are_documents)
            while window := list(islice(keys, DELETED_AT_ONCE)):
                delete_keys(self.there.store, window, self.most)

    def units(self) -> Iterator[Unit]:
        """The lines of the steps, up to UNIT_COUNT of them at a time, or of about UNIT_SIZE bytes to copy."""
        for span in self._spans():
            yield (b"".join(self.plan.steps.texts(*span)),)

    def _spans(self) -> Iterator[tuple[int, int]]:
        """The offsets of each unit's lines."""
        start = offset = count = size = 0
        for text in self.plan.steps.texts():
            data = np.frombuffer(text, np.uint8)
            ends, marks = np.flatnonzero(data == ord("\n")) + 1, np.flatnonzero(data == 0)
            # The size stands between the first two marks of a line.
            first = np.searchsorted(marks, np.append(0, ends[:-1]))
            sizes = parse_digits(data, marks[first] + 1, marks[first + 1])
            # Sums of the values' sizes up to each line.
            sums, at = np.cumsum(sizes).tolist(), 0
            while True:
                last = min(at + UNIT_COUNT - count - 1, bisect_left(sums, UNIT_SIZE - size, at))
                if last >= len(sums):
                    break
                yield start, offset + int(ends[last])
                start, at, count, size = offset + int(ends[last]), last + 1, 0, -sums[last]
            count, size, offset = count + len(sums) - at, size + sums[-1], offset + len(text)
        if count:
            yield start, offset

    def _steps(self, unit: Unit) -> list[CopyStep]:
        return [CopyStep(*line.split(b"\0")) for line in split_lines(unit[0])]

    def make(self, unit: Unit) -> bytes:
        """Copy the keys of a unit; returns their fingerprint, and whether each was copied, with its hash."""
        steps = self._steps(unit)
        held = max(min(int(step.size), self.pace.part_size) for step in steps)
        most = max(1, min(self.most // self.unit_count, self.memory // self.unit_count // max(1, held)))
        return _fingerprint(steps) + b"".join(map_threads(self._try, steps, waiting_count=most))

    def pack(self, result: bytes) -> bytes:
        return result

    def unpack(self, unit: Unit, data: bytes) -> bytes:
        steps = self._steps(unit)
        size = FINGERPRINT_SIZE + len(steps) * (1 + DIGEST_SIZE)
        if len(data) != size or not data.startswith(_fingerprint(steps)):
            raise ValueError("these were other keys")
        if any(is_copied is None for is_copied, _ in _results(data[FINGERPRINT_SIZE:])):
            raise ValueError("keys were out of reach then")
        if self.hashes and any(digest == NO_DIGEST for _, digest in _results(data[FINGERPRINT_SIZE:])):
            raise ValueError("no hashes were asked for then")
        return data

    def holds(self, unit: Unit, result: bytes) -> bool:
        return all(step.there == step.size for step in self._steps(unit))

    def _try(self, step: CopyStep) -> bytes:
        """As `_do`; LOST and zeros for a key of the source that is out of reach."""
        try:
            return self._do(step)
        except StoreError as error:
            if error.path != self.here.store.url or not is_loss(error):
                raise
            return LOST + NO_DIGEST

    def _do(self, step: CopyStep, put: Callable[[str, Any], object] | None = None) -> bytes:
        """Copy one key; returns a byte that tells whether it was copied, and its hash or zeros.

        put  how a small value is put, where another writer's may have come; by default over what is there
        """
        entry, store = step.entry, self.there.store
        key = self.there.key(entry.key)
        if step.action == KEEP:
            if not self.hashes or step.digest:
                return b"\0" + (bytes.fromhex(step.digest.decode()) or NO_DIGEST)
            return b"\0" + self._digest_there(key)
        if step.action == COMPARE:
            digest = self._read(entry, None, store.put)
            if digest == self._digest_there(key):
                return b"\0" + digest
        is_unread = put is None and not self.hashes and not self.pace.is_bound and step.action == COPY
        if is_unread:
            # A value that is gone is named as such when it is read.
            with suppress(NotFoundError):
                if store.copy_from(key, self.here.store, self.here.key(entry.key)):
                    return b"\1" + NO_DIGEST
        digest = self._read(entry, key, put or store.put)
        if self.checks and self._digest_there(key) != digest:
            raise ChecksumError("the target gives back other bytes than were copied", path=store.url, key=key)
        return b"\1" + digest

    def _read(self, entry: Entry, key: str | None, put: Callable[[str, Any], object]) -> bytes:
        """The SHA-256 of a value of the source, which is put under `key` of the target on the way."""
        whole, store = hashlib.sha256(), self.there.store
        parts = read_parts(self.here, entry, self.pace.part_size, self.pace)
        if key is None or entry.size <= self.pace.part_size:
            for part in parts:
                whole.update(part)
                if key is not None:
                    put(key, part)
            return whole.digest()
        # A large value goes through a file without a name, on the target's disk if it has one.
        with TemporaryFile(dir=store.local_path()) as file:
            for part in parts:
                whole.update(part)
                file.write(part)
            file.flush()
            with self.pace.alone if store.local_path() is None else nullcontext():
                store.put_file(key, file.fileno(), entry.size)
        return whole.digest()

    def _digest_there(self, key: str) -> bytes:
        store = self.there.store
        entry = store.entry(key)
        if entry is None:
            return hashlib.sha256().digest()
        return digest_of(Location(store, ""), entry, self.pace.part_size)

    def _copy_document(self, step: CopyStep) -> bytes:
        """As `_do`, for a document; b"" for one that `_consolidate` makes anew afterwards.

        Raises
            ChangedError: the document was written meanwhile, or somebody else has put it into the target.
        """
        entry = self.here.store.entry(self.here.key(step.entry.key))
        if entry is None or entry[1:] != step.entry[1:]:
            raise ChangedError(
                "a document changed while it was copied",
                path=self.here.store.url,
                key=self.here.key(step.entry.key),
            )
        put = self.there.store.put if step.there else self.there.store.put_new
        if not self._is_rewritten(step):
            return self._do(step, put)
        key = step.entry.key
        if key.endswith(v3.KEY):
            document = parse_json(self.here.get(key) or b"", path=self.here.store.url, key=key)
            document.pop("consolidated_metadata", None)
            put(self.there.key(key), render_json(document))
        return b""

    def _is_rewritten(self, step: CopyStep) -> bool:
        """Whether a document is consolidated metadata that may name nodes which were not copied."""
        key = step.entry.key
        is_copied = self.planner.leaves_documents and step.action != KEEP
        return is_copied and is_consolidated(key, self.here.get(key))

    def _consolidate(self, key: str) -> bytes:
        """Consolidate the metadata in the target; returns the same as `_do`."""
        path = self.there.key(key.rpartition("/")[0])
        consolidate_node(self.there.store, path, 3 if key.endswith(v3.KEY) else 2)
        return b"\1" + self._digest_there(self.there.key(key))


def _results(data: bytes) -> Iterator[tuple[bool | None, bytes]]:
    """(whether it was copied, None if it is out of reach; its hash) for each key of a unit's result."""
    for at in range(0, len(data), 1 + DIGEST_SIZE):
        is_lost = data[at : at + 1] == LOST
        yield None if is_lost else bool(data[at]), data[at + 1 : at + 1 + DIGEST_SIZE]


def _fingerprint(steps: Sequence[CopyStep]) -> bytes:
    """A hash of the names, sizes and versions that some keys of the source have."""
    return hashlib.sha256(b"\n".join(step.source for step in steps)).digest()[:FINGERPRINT_SIZE]


# The action for each key


class CopyStep(NamedTuple):
    """The action for one key; a line of a spool has these fields, divided by NUL.

    A line of `list_keys` is a step, too: the key is copied, and the target does not have it.
    """

    name: bytes
    size: bytes
    version: bytes
    action: bytes = COPY
    there: bytes = b""
    digest: bytes = b""

    @property
    def entry(self) -> Entry:
        """The entry of the source in the listing."""
        return Entry(parse_name(self.name), int(self.size), parse_name(self.version) or None)

    @property
    def source(self) -> bytes:
        """The name, size and version of the key in the source."""
        return b"\0".join(self[:3])


@dataclass
class CopyPlan:
    """All steps of a copy, and their totals.

    needed_size  bytes by which the target grows: deletions come first
    """

    steps: Spool = field(default_factory=Spool)
    documents: list[CopyStep] = field(default_factory=list)
    deletions: Spool = field(default_factory=Spool)
    total_size: int = 0
    needed_size: int = 0
    counts: Copied = field(default_factory=Copied)

    def new_nodes(self) -> set[str]:
        """The paths of the nodes that the target does not have."""
        keys = [step.entry.key.rpartition("/") for step in self.documents if not step.there]
        return {path for path, _, name in keys if name in MAKING}


@dataclass(eq=False)
class Planner:
    """Lists source and target, and plans an action for each key.

    doubtful           texts of keys that `list_keys` has to ask about, beside zstore's own; None: it asks
                       about all keys
    leaves_documents   whether the patterns leave out a document
    is_bare, has_node  whether no list of the target had a key; whether one had a document at the top
    """

    here: Location
    there: Location
    accept: Callable[[str], bool]
    doubtful: Sequence[str] | None
    if_exists: str
    delete: bool
    is_resumed: bool
    own_name: str = ""
    made: Made | None = None
    leaves_documents: bool = False
    is_bare: bool = True
    has_node: bool = False
    _documents: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.doubtful is not None:
            self.doubtful = [FORMER, FORMER_SHAPE, JOB, *DOCUMENTS, *self.doubtful]

    def plan(self, known: Manifest | None) -> CopyPlan:
        """The plan for all keys of the source and of the target; `known` is the manifest of the last copy.

        Raises
            NotFoundError, StoreError: what `copy` raises before it begins.
        """
        listed, size = self.listed.lines, self.listed.size
        if not len(listed):
            raise NotFoundError("there is nothing to copy", path=self.here.url())
        # Counts as if all keys were copied; each key that is not copied is subtracted later.
        plan = CopyPlan(total_size=size, needed_size=size, counts=Copied(len(listed), size))
        there = self.list_target()
        if self.made is not None and not self.is_resumed:
            self.made.check_target({"": version_of(there)}, *self.there)
        blocks = listed.blocks() if known is None else _stamped(listed, known)
        for mine, others in align(blocks, there.blocks()):
            self._plan_block(plan, mine, others, is_stamped=known is not None)
        plan.documents.sort(key=lambda step: rank(step.entry.key))
        return plan

    def list_target(self) -> Spool:
        """The keys of the target that belong to the copy or are in its way."""
        return list_keys(self.there, self._is_in_the_way, self.doubtful)[0]

    @once
    def listed(self) -> ListedKeys:
        """The keys of the source, as they were when the copy was planned."""
        return ListedKeys(self.here, self.is_copied, self.doubtful)

    def unchanged(self) -> Marks:
        """The marks of the keys that have not changed since a finished copy, in order."""
        marks = marks_of(self.listed.lines)
        return np.sort(marks[self._is_known(marks)])

    def _is_known(self, marks: Marks) -> np.ndarray[Any, np.dtype[np.bool_]]:
        known = np.empty(0, np.uint64) if self.made is None else self.made.marks[""]
        at = np.minimum(np.searchsorted(known, marks), max(0, len(known) - 1))
        return known[at] == marks if len(known) else np.zeros(len(marks), np.bool_)

    def is_copied(self, key: str) -> bool:
        name = key.rpartition("/")[2]
        if not self.accept(key):
            self.leaves_documents |= name in METADATA_NAMES
            return False
        if name in (FORMER, FORMER_SHAPE) or _is_job(key):
            above = self.here.key(join_key(_path_of(key), INTENT)).removesuffix(INTENT).rstrip("/")
            if _is_job(key) and read_intent(self.here.store, above) is None:
                return False  # the rest of a creation which has made its node, or of a job that was ended
            raise StoreError(
                "there is unfinished work in what is to be copied; expected it to be ended or deleted, or "
                f"left out by exclude={_left_out(key)!r}",
                path=self.here.store.url,
                key=self.here.key(key),
            )
        if name in DOCUMENTS:
            self._documents.add(key)
        return True

    def _is_in_the_way(self, key: str) -> bool:
        self.is_bare = False
        self.has_node |= key in MAKING
        if _is_job(key) and not key.startswith(f"{JOB}/") and not self._is_own(key):
            raise StoreError(
                "there is unfinished work in the target; expected it to be ended",
                path=self.there.store.url,
                key=self.there.key(key),
            )
        return not _is_job(key) and self.accept(key)

    @once
    def nodes(self) -> set[str]:
        """The paths of the nodes that are copied."""
        keys = [key.rpartition("/") for key in self._documents]
        return {path for path, _, name in keys if name in MAKING}

    def check_own(self, plan: CopyPlan) -> None:
        """Check that nodes new in the source are not somebody else's in the target.

        Those of an interrupted refresh have its intent, or are equal.

        Raises
            StoreError: somebody has made another node there.
        """
        if self.made is None or not self.made.frames:
            return
        for key in [step.entry.key for step in plan.documents if step.there]:
            path, _, name = key.rpartition("/")
            if name not in MAKING or path in self.made.frames:
                continue
            intents = [f"{above}/{INTENT}" for above in (*ancestors(path), path) if above]
            if not any(map(self._is_own, intents)) and self.here.get(key) != self.there.get(key):
                raise StoreError(
                    "somebody else has made a node where the source has a new one; expected it to be moved "
                    "or deleted, or the copy to be begun anew with if_exists='overwrite'",
                    path=self.there.url(path),
                )

    def _is_own(self, key: str) -> bool:
        """Whether a key holds the intent of this copy for one of its new nodes."""
        intent = parse_intent(self.there.get(key) or b"") if key.endswith(INTENT) else None
        return intent is not None and intent.is_part and intent.name == self.own_name

    @once
    def _document_names(self) -> Sequence[bytes]:
        """The documents that are copied, in order."""
        return sorted(map(render_name, self._documents))

    def array_of(self, key: str) -> str | None:
        """The path of the array that is copied and that a key belongs to; None without one."""
        return next((path for path in ancestors(key) if path in self._arrays), None)

    @once
    def _arrays(self) -> set[str]:
        """The paths of the arrays that are copied."""
        made = (key for key in self._documents if key.rpartition("/")[2] in MAKING)
        return {key.rpartition("/")[0] for key in made if is_array(key, partial(self.here.get, key))}

    def _plan_other(self, plan: CopyPlan, entry: Entry) -> None:
        """Plan the action for a key that only the target has."""
        is_ours = self.is_resumed and self.if_exists == "error"
        above = self.array_of(entry.key)
        if self.made is not None and not self.delete:
            self._check_lost(self.made, entry.key)
        if self.delete or (above is not None and (is_ours or self.made is not None)):
            plan.deletions.add(render_name(entry.key))
            plan.needed_size -= entry.size
            plan.counts.deleted_count += 1
        elif above is not None:
            raise StoreError(
                f"the target has a key that the array {self.here.key(above)!r} has not, and that could show"
                " as data of the copy; expected an empty place, or delete=True",
                path=self.there.store.url,
                key=self.there.key(entry.key),
            )

    def _check_lost(self, made: Made, key: str) -> None:
        """Refuse to go on where the source has lost a node that was copied."""
        lost = next((path for path in ancestors(key) if path in made.frames and path not in self.nodes), None)
        if lost is not None:
            raise ChangedError(
                f"the source has lost the node {self.here.key(lost)!r} since it was copied; expected it, or "
                "if_exists='changed' and delete=True without resume, which delete it from the target, too",
                path=self.there.url(lost),
            )

    def _plan_block(
        self, plan: CopyPlan, mine: Sequence[bytes], others: Sequence[bytes], *, is_stamped: bool
    ) -> None:
        """Plan the actions for a stretch of names, by the lines of the source and those of the target."""
        ours, theirs = ({line.partition(b"\0")[0]: line for line in lines} for lines in (mine, others))
        known = set[bytes]()
        if self.made is not None and mine:
            known = {name_of(mine[at]) for at in np.flatnonzero(self._is_known(mark_lines(mine))).tolist()}
        documents = {*self._documents_between(name_of(mine[0]), mine[-1])} if mine else set[bytes]()
        steps, sizes = list[bytes](), dict[bytes, list[int]]({COPY: [], COMPARE: [], KEEP: []})
        for name, line in ours.items():
            # A manifest's hash is of use where the key is there, too.
            step = b"\0".join(line.split(b"\0")[:3]) if is_stamped else line
            if name in theirs:
                _, own, version, *digest = line.split(b"\0")
                size = theirs[name].split(b"\0", 2)[1]
                action = self._act(name, is_same_size=size == own, is_known=bool(digest) or name in known)
                sizes[action].append(int(size if action == COPY else own))
                step = b"\0".join((name, own, version, action, size, *(digest if action == KEEP else ())))
            if name in documents:
                document = CopyStep(*step.split(b"\0"))
                self._check_kept(document)
                plan.documents.append(document)
            else:
                steps.append(step)
        plan.steps.add_text(b"".join([step + b"\n" for step in steps]))
        for name in sorted(theirs.keys() - ours.keys()):
            self._plan_other(plan, parse_entry(theirs[name]))
        replaced, compared, kept = (sum(sizes[action]) for action in (COPY, COMPARE, KEEP))
        plan.needed_size -= replaced + compared + kept
        plan.total_size -= kept
        counts = plan.counts
        counts.size -= compared + kept
        counts.key_count -= len(sizes[COMPARE]) + len(sizes[KEEP])
        counts.compared_count += len(sizes[COMPARE])
        counts.kept_count += len(sizes[KEEP])

    def _act(self, name: bytes, *, is_same_size: bool, is_known: bool) -> bytes:
        """The action for a key in both stores; `is_known`: a manifest or a finished copy has this version."""
        if self.made is not None:
            return KEEP if is_known else COPY
        if self.if_exists == "skip":
            return KEEP
        if self.if_exists == "changed" and is_same_size:
            return KEEP if is_known else COMPARE
        if self.if_exists == "error" and not self.is_resumed:
            raise StoreError(
                "the key is there already; expected nothing, or if_exists='skip', if_exists='overwrite' or "
                "if_exists='changed'",
                path=self.there.store.url,
                key=self.there.key(parse_name(name)),
            )
        return COPY

    def _documents_between(self, first: bytes, last: bytes) -> Sequence[bytes]:
        """The documents among the keys from a name to a line."""
        # A name stands before its line, and behind the lines of all names before it.
        names = self._document_names
        return names[bisect_left(names, first) : bisect_left(names, last)]

    def _check_kept(self, step: CopyStep) -> None:
        """Refuse to keep a document that would describe the copied chunks wrongly."""
        key = step.entry.key
        if step.action != KEEP or self.if_exists != "skip":
            return
        here, there = self.here.get(key), self.there.get(key)
        if here != there and (is_array(key, lambda: here) or is_array(key, lambda: there)):
            raise StoreError(
                "the array that is there has another document; expected the same, or if_exists='changed'",
                path=self.there.store.url,
                key=self.there.key(key),
            )


def _left_out(key: str) -> str:
    """The pattern of all keys of the interrupted work that a key belongs to."""
    above = _path_of(key)
    return f"{above}/*" if above else "*.zstore-*"


def _path_of(key: str) -> str:
    """The path of the interrupted work that a key belongs to."""
    return f"/{key}".partition("/.zstore-")[0].lstrip("/")


def _is_job(key: str) -> bool:
    return JOB in key and JOB in key.split("/")


def _stamped(listed: Spool, known: Manifest) -> Iterator[list[bytes]]:
    """The lines of the source, with the hash from a manifest if it is of the very same version."""
    for mine, theirs in align(listed.blocks(), known.blocks()):
        stamped = dict[bytes, bytes]()
        for line in theirs:
            name, digest, size, version = line.split(b"\0")
            if version:
                stamped[b"\0".join((name, size, version))] = digest
        if mine:
            yield [b"%s\0%s" % (line, stamped[line]) if line in stamped else line for line in mine]


def rank(key: str) -> tuple[int, str, bool, str]:
    """A sort key for documents: the deepest first, and the document that makes a node last of its path."""
    above, _, name = key.rpartition("/")
    return -key.count("/"), above, name in MAKING, name


def is_array(key: str, get: Callable[[], bytes | None]) -> bool:
    """Whether a document makes an array; one that cannot be parsed does not."""
    name = key.rpartition("/")[2]
    if name == v3.KEY:
        return _parsed(get()).get("node_type") == "array"
    return name == v2.ARRAY_KEY or (name == v1.ARRAY_KEY and "compression" in _parsed(get()))


def is_consolidated(key: str, data: bytes | None) -> bool:
    """Whether a document is, or has, consolidated metadata."""
    return key.endswith(v2.CONSOLIDATED_KEY) or "consolidated_metadata" in _parsed(data)


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}

"""Conversion of arrays and hierarchies to another Zarr format: written elsewhere, or described in place.

Elsewhere the documents of an array are written after its chunks, those of a group after its members, and the
topmost last: what an interruption leaves is no array and no group, and the job's record tells what it is.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from zstore.base.once import once
from zstore.engine.documents import (
    KEYS,
    ancestors,
    check_above,
    check_own,
    consolidate_node,
    node_kind,
    publish_nodes,
    read_documents,
    read_node,
    render_node,
)
from zstore.engine.intents import JOB, Intent, read_intent
from zstore.engine.making import create_node, delete_keys
from zstore.engine.walk import Found, walk_nodes
from zstore.errors import StoreError, UnsupportedError, ZstoreError, is_loss, leave_out
from zstore.jobs.chunks import (
    Location,
    SourceStore,
    StoredArray,
    frame_of,
    of_files_by_content,
    shown_source,
)
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.jobs.plan import Estimate, current_part, free_size, name_job, without_defaults
from zstore.jobs.record import BegunJob, begin, resumable
from zstore.jobs.runner import Executor, counter
from zstore.jobs.source import ChunkSet, Made, Marks, Source, Sources, Versions
from zstore.jobs.target import check_apart
from zstore.jobs.task import Task
from zstore.jobs.upkeep.plan import (
    SAME,
    ConvertOptions,
    describe_in_place,
    keeps_bytes,
    plan_array,
    plan_group,
)
from zstore.jobs.upkeep.rechunk import Room, Transfer, default_memory
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes.node import Access, StoredNode
from zstore.nodes.open import StoreLike
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store, join_key
from zstore.storage.local import LocalStore
from zstore.storage.url import open_store

if TYPE_CHECKING:
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

Model = ArrayModel | GroupModel


class _Change(NamedTuple):
    """A node, by its path below the source, in both formats.

    is_copy     whether its chunks keep their bytes
    is_implied  whether the source has no document of it, as v1 has no groups
    """

    below: str
    old: Model
    new: Model
    is_copy: bool = True
    is_implied: bool = False


@dataclass(frozen=True)
class _Hierarchy:
    """The nodes at and below a location, as the source of a conversion.

    left_out  those that cannot be read, once `nodes` has given all others
    """

    at: Location
    allow_pickle: bool
    left_out: list[Found] = field(default_factory=list)

    def url(self, below: str = "") -> str:
        """The address of a node, by its path below the location."""
        return self.at.url(below)

    def nodes(self, *, is_whole: bool = False) -> Iterator[tuple[str, Model]]:
        """The nodes with their paths, groups before their members; those that cannot be read are left out.

        is_whole  whether a node that cannot be read is an error, as is the topmost in any case
        """
        for path, found in walk_nodes(*self.at):
            below = self.at.below(path)
            try:
                if isinstance(found, ZstoreError):
                    raise found
                array = self.array(below, found) if isinstance(found, ArrayModel) else None
                if isinstance(array, StoredArray):
                    array.bind()
            except ZstoreError as error:
                if is_whole or not below:
                    raise error.locate(path=self.url(below)) from None
                self.leave_out(below, found, error)
            else:
                yield below, found

    def leave_out(self, below: str, found: Model | ZstoreError, error: ZstoreError) -> None:
        """Leave out a node; its error is raised at the end of the call."""
        self.left_out.append((self.at.key(below), found))
        leave_out(below, error)

    def array(self, below: str, model: ArrayModel) -> Source:
        """The items of an array."""
        shown = shown_source(self.at.store, self.at.key(below))
        return _array(self.at, below, model, self.allow_pickle) if shown is None else shown

    def check_apart(self, there: Location, changes: Sequence[_Change]) -> None:
        """Refuse a target in which the sources lie that are shown as arrays, or that lies in one of them."""
        for change in changes:
            shown = shown_source(self.at.store, self.at.key(change.below))
            if shown is not None:
                shown.check_apart(*there, "convert")

    def watched(self, changes: Sequence[_Change], transfers: Mapping[str, Transfer]) -> Sources:
        """The documents and chunks as they were when the conversion was planned."""
        return self.at.sources(
            {below: one.source for below, one in transfers.items()},
            {below: one.stored.version for below, one in transfers.items()},
            [
                *self.left_out,
                *((self.at.key(change.below), change.old) for change in changes if not change.is_implied),
            ],
        )


@long_call(if_exists=NOT_BY_KEYS)
@of_files_by_content
def convert(
    source: StoredNode[Any] | Source | StoreLike,
    target: StoreLike,
    path: str | None = None,
    *,
    target_path: str | None = None,
    zarr_format: ZarrFormat = 3,
    chunks: Any = SAME,
    shards: Any = SAME,
    filters: Any = SAME,
    serializer: Any = SAME,
    compressors: Any = SAME,
    checksum: bool = False,
    chunk_key_encoding: Any = None,
    check: bool = False,
    scratch: str | PathLike[str] | Store | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    **words: Unpack[HowWords],
) -> Array | Group:
    """Write the array or hierarchy at `path` of `source`, or a `Source`, to `target`, in Zarr `zarr_format`.

    Values, fill values, attributes and names of dimensions stay as they are, bit for bit; groups whose
    metadata was consolidated are consolidated. Chunks keep their bytes where the format can express them and
    no other chunks or codecs are asked for: they are not decoded, so that one that is damaged is copied as it
    is, which `check` finds. Otherwise they are decoded and encoded, in boxes that `memory`
    holds; where many boxes would decode the same chunk, all chunks are first decoded once into a scratch
    array of which parts are read cheaply.

    chunks, shards, filters, serializer, compressors, checksum
                as for `create_array`, for every array; "same" keeps what an array has. A tuple of fewer
                lengths than an array has dimensions is for its last dimensions; beside an array that has
                so many dimensions, those with fewer (coordinates and their bounds) keep what they have, and
                so they do where lengths are by name ({"time": 240, "y": "auto"})
    check       read source and target afterwards, and raise where an item differs
    scratch     where scratch arrays are kept: a directory, a URL (opened with `target_options`) or a store.
                None: beside the target where that is a directory, or a bucket that workers of an executor
                write to; else on the disk of temporary files, or in the bucket where that disk is full

    Raises
        UnsupportedError: the format cannot express something; nothing was written.
        NotFoundError: there is nothing to convert.
        ChangedError: the source was written to since the conversion began; no document was written.
        StoreError: the target exists already, its disk has too little room, or one of the stores failed.
        MetadataError: `resume`, and another job was interrupted at the target; or `memory` holds no chunk.
        The error of a member of `source` that cannot be read, at the end: all others are written, and
            `resume` adds it when it can be. (Where a store fails itself, all stops there, to be resumed.)
        CodecError: a chunk that is decoded is damaged, or (with `check`) any is, or differs from the source.
    """
    if isinstance(source, Source):
        source = SourceStore.of(source, zarr_format=zarr_format)
    here = _Hierarchy(Location.open(source, path, storage_options, read_only=True), allow_pickle)
    options = ConvertOptions(
        zarr_format,
        chunks,
        shards,
        filters,
        serializer,
        compressors,
        chunk_key_encoding,
        allow_pickle,
        checksum,
    )
    there = Location.open(target, target_path, target_options, read_only=False)
    how = How(**words)
    find_rooms = partial(_list_rooms, there, scratch, target_options, how.executor)
    return _Conversion(here, there, options, how, find_rooms, check=check).carry_out()


class _Conversion(Task["Array | Group"]):
    """The conversion of all nodes of a source, whose documents are written last.

    changes     the nodes in both formats
    find_rooms  gives the stores for scratch arrays, where such a conversion was interrupted
    check       whether source and target are compared afterwards
    failed      the paths of arrays that are left out, as their chunks cannot be read
    """

    work = "convert"

    def __init__(
        self,
        here: _Hierarchy,
        there: Location,
        options: ConvertOptions,
        how: How,
        find_rooms: Callable[[Intent | None], list[Room]],
        *,
        check: bool,
    ) -> None:
        super().__init__(there, how)
        check_apart(*here.at, *self.there, "convert")
        self.here, self.options, self.find_rooms, self.check = here, options, find_rooms, check
        self.zarr_format = options.zarr_format
        self.changes = _plan(here, self.there, options)
        if how.overwrite:
            here.check_apart(self.there, self.changes)
        self.failed = set[str]()

    def call(self) -> Any:
        return {"work": "convert", "source": self.here.url(), **_describe_options(self.options)}

    def describe(self) -> Any:
        said = {name: value for name, value in self.call().items() if name != "work"}
        return {**said, "documents": _name_documents(self.changes)}

    @once
    def rooms(self) -> list[Room]:
        """The stores for scratch arrays; none for a refresh."""
        return [] if self.left is not None else self.find_rooms(self.former)

    @once
    def transfers(self) -> dict[str, Transfer]:
        """The work on each array, by its path below the source."""
        size, transfers = self.how.memory or default_memory(), dict[str, Transfer]()
        ways = {"is_shared": self.how.executor is not None, "keeps_marks": self.keeps}
        for below, old, new, is_copy, _ in self.changes:
            if not isinstance(old, ArrayModel) or not isinstance(new, ArrayModel):
                continue
            one = self.here.array(below, old)
            other = _array(self.there, below, new, self.options.allow_pickle)
            # What is beside the target has the room that the target leaves.
            needed = prod(new.shape) * other.item_size
            left = [room._replace(size=room.size - needed * room.is_target) for room in self.rooms]
            is_firm = self.how.memory is not None
            with self.readable(below, one):
                if is_copy:
                    transfers[below] = Transfer.copying(one, other, **ways)
                    continue
                try:
                    transfers[below] = Transfer.recoding(
                        one, other, size, is_firm=is_firm, rooms=left, **ways
                    )
                except ZstoreError as error:
                    raise error.locate(path=self.here.url(below)) from error
        return transfers

    def sources(self) -> Sources:
        return self.here.watched(self.changes, self.transfers)

    def estimate(self) -> Estimate:
        return Estimate.of({below: one.estimate() for below, one in self.transfers.items()})

    def check_room(self) -> None:
        transfers = self.transfers.values()
        passes = [one.passes for one in transfers if one.passes is not None and one.scratches]
        beside = sum(each.scratch_size for each in passes if self.rooms[each.room].is_target)
        whole = beside + sum(one.whole_size for one in transfers)
        self.there.check_room(whole, lambda: beside + sum(one.least_size() for one in transfers), "chunks")

    def make(self, job: BegunJob) -> None:
        transfers, there, how = self.transfers, self.there, self.how
        total = sum(one.chunk_count + self.check * len(one.wanted) for one in transfers.values())
        tick = counter(total, how.progress)
        has_scratch = any(one.scratches for one in transfers.values())
        between = [_open_room(room, there, job) for room in self.rooms] if has_scratch else []
        with job.runner(how.executor) as runner:
            for number, (below, one) in enumerate(transfers.items()):
                room = between[one.passes.room] if one.passes and one.scratches else there
                spot = room._replace(path=room.key(str(number)))
                with runner.apart(), self.readable(below, one.source):
                    one.run(runner, f"convert-{number}", spot, tick, keeps=job.is_resumed)
                    if self.check and not runner.is_part:
                        one.compare(how.memory or default_memory(), how.executor, tick)
        for room in between:
            room.store.delete_prefix(room.path)
        self.clear_failed()

    def clear_failed(self) -> None:
        """Remove the chunks that were written of arrays that are left out."""
        for below in self.failed:
            self.there.store.delete_prefix(self.there.key(below))

    @contextmanager
    def readable(self, below: str, source: Source) -> Iterator[None]:
        """Context that reads an array; one that is new and damaged, or out of reach, is left out."""
        try:
            yield
        except ZstoreError as error:
            is_new = current_part() is None and (self.left is None or below not in self.left.frames)
            if not (below and is_new and source.has_lost(error)):
                raise
            self.failed.add(below)
            leave_out(below, error)

    def models(self) -> dict[str, Model]:
        return {change.below: change.new for change in self.changes if change.below not in self.failed}

    def publish(self) -> None:
        parent = self.there.path.rpartition("/")[0]
        if parent and self.zarr_format != 1 and read_node(self.there.store, parent) is None:
            create_node(self.there.store, parent, GroupModel(self.options.zarr_format))
        super().publish()
        self.consolidate()

    def consolidate(self) -> None:
        """Consolidate the metadata of groups that had them consolidated in the source."""
        groups = (change.below for change in self.changes if _is_consolidated(change.old))
        _consolidate(self.there, groups, self.options.zarr_format)

    def versions(self) -> Versions:
        # Nodes that the source has lost since are as they were made, too.
        made = () if self.left is None else self.left.target
        return self.there.versions(dict.fromkeys([*made, *(change.below for change in self.changes)]))

    def fingerprint(self, sources: Sources, versions: Versions) -> Made:
        listed = {below: one.stored.marks for below, one in self.transfers.items()}
        lost = self.failed
        marks = {below: marks for below, marks in listed.items() if marks is not None and below not in lost}
        frames = _frames([change for change in self.changes if change.below not in lost])
        made = Made.of(self.call(), sources, versions, frames, marks)
        return replace(made, sources={}) if lost else made

    def refreshed(self, made: Made, sources: Sources) -> Task[Array | Group]:
        frames, parts = _frames(self.changes), dict[str, _Renewed]()
        try:
            if any(frame != frames.get(below) for below, frame in made.frames.items()):
                raise ValueError("chunks or codecs are others")
            for below, one in self.transfers.items():
                none = np.zeros(one.source.counts, np.uint64)
                parts[below] = _Renewed(*one.of_changed(made.marks.get(below, none)))
        except ValueError:
            made.check_current(sources)
        return _Refresh(self, made, parts)

    def result(self) -> Array | Group:
        zarr_format, allow_pickle = self.options.zarr_format, self.options.allow_pickle
        made = self.published(Access(allow_pickle=allow_pickle))
        if made is not None:
            return made
        return open_node(*self.there, zarr_format=zarr_format, allow_pickle=allow_pickle)


class _Renewed(NamedTuple):
    """The chunks of an array that are made again, the marks meanwhile, and chunks that the target loses."""

    transfer: Transfer
    marks: Marks
    lost: ChunkSet


class _Refresh(_Conversion):
    """The conversion again of all that has changed in the source since the target was made of it.

    Chunks are replaced one by one, so that readers find old and new ones until the end; the record tells.
    """

    def __init__(self, whole: _Conversion, made: Made, parts: Mapping[str, _Renewed]) -> None:
        vars(self).update(vars(whole))
        self.was, self.parts = made, parts

    def describe(self) -> Any:
        return {**self.was.call, "documents": None}

    def estimate(self) -> Estimate:
        return Estimate.of({below: part.transfer.estimate() for below, part in self.parts.items()})

    def check_room(self) -> None:
        pass  # what is replaced has had room

    def begin(self, sources: Sources) -> BegunJob:
        plan, former = self.describe(), self.former
        is_same = former is not None and former.plan == plan
        new = {below: model for below, model in self.models().items() if below not in self.was.frames}
        missing = [below for below in new if self.there.node(below) is None]
        check_own(*self.there, new)
        job = begin(*self.there, self.work, plan, resume=True, replace=is_same, sources=sources)
        job.hold(missing)
        marks = {below: part.marks for below, part in self.parts.items()}
        self.was.meanwhile(marks).put(*self.there)
        return job

    def make(self, job: BegunJob) -> None:
        parts, store, how = self.parts, self.there.store, self.how
        whole = sum(len(self.transfers[below].wanted) for below in parts) if self.check else 0
        tick = counter(whole + sum(part.transfer.chunk_count for part in parts.values()), how.progress)
        with job.runner(how.executor) as runner:
            for number, (below, (one, _, lost)) in enumerate(parts.items()):
                with self.readable(below, one.source):
                    one.run(runner, f"refresh-{number}", self.there, tick, keeps=False)
                    delete_keys(store, [*map(one.target.key, lost)])
                    if self.check:
                        self.transfers[below].compare(how.memory or default_memory(), how.executor, tick)
        self.clear_failed()

    def publish(self) -> None:
        there = self.there
        stored = {below: there.node(below) for below in self.models()}
        other = {
            below: model
            for below, model in self.models().items()
            if (node := stored[below]) is None or render_node(node) != render_node(model)
        }
        publish_nodes(*there, other, replaces=True)
        for one in self.transfers.values():
            one.target.remove_outside()
        if other:
            self.consolidate()


def _frames(changes: Sequence[_Change]) -> dict[str, str]:
    """By path, a hash of the documents that must stay for chunks to be converted alone (`frame_of`)."""
    return {
        change.below: name_job([frame_of(change.old), frame_of(change.new)])
        if isinstance(change.old, ArrayModel)
        else "group"
        for change in changes
    }


def estimate_conversion(*args: Any, **words: Any) -> Mapping[str, Estimate]:
    """The estimate for each array, by its path, of `convert` with these arguments; nothing is written.

    Raises what `convert` raises before it begins, except for a target that exists.
    """
    estimate: Any = convert(*args, **words, dry_run=True)
    return estimate.parts  # type: ignore[no-any-return]


def _array(at: Location, below: str, model: ArrayModel, allow_pickle: bool) -> StoredArray:
    return StoredArray(at.store, at.key(below), model, allow_pickle=allow_pickle, caches=False)


def _list_rooms(
    there: Location,
    scratch: str | PathLike[str] | Store | None,
    options: Mapping[str, Any] | None,
    executor: Executor | None,
    former: Intent | None,
) -> list[Room]:
    """The stores for scratch arrays, the best first.

    The scratch arrays of an interrupted conversion (`former`) count as free, so that resuming it plans the
    same.
    """
    directory = there.store.local_path(there.path)
    if scratch is not None:
        is_url = isinstance(scratch, str) and "://" in scratch
        store = open_store(scratch, storage_options=options if is_url else None)
        rooms = [Room(free_size(store.local_path()), store.request_count == 1, store)]
    elif directory is not None:
        rooms = [Room(free_size(directory), store=there.store, is_target=True)]
    else:
        own = Path(tempfile.gettempdir(), f"zstore-{os.getuid()}")
        rooms = [Room(free_size(own), store=LocalStore(own), is_own=True)]
        if there.store.request_count > 1:
            # A bucket does not get full, and every worker reaches it.
            bucket = Room(inf, is_near=False, store=there.store, is_target=True)
            is_shared = executor is not None or current_part() is not None
            rooms = [bucket] if is_shared else [*rooms, bucket]
    if former is None:
        return rooms
    held = [there if room.is_target else _scratch_of(room, there, former.name) for room in rooms]
    return [
        room._replace(size=room.size + (sum(entry.size for entry in at.store.entries(at.path))))
        if room.size < inf
        else room
        for room, at in zip(rooms, held, strict=True)
    ]


def _scratch_of(room: Room, there: Location, name: str) -> Location:
    """The location of a job's scratch arrays: beside its journal, or below a name of its own."""
    store = there.store if room.store is None else room.store
    if room.is_target:
        return Location(store, there.key(f"{JOB}/{name}/scratch"))
    # Different stores in memory may have the same name.
    own = [os.getpid(), id(there.store)] if there.store.in_memory else []
    return Location(store, name_job([name, there.url(), *own]))


def _open_room(room: Room, there: Location, job: BegunJob) -> Location:
    """As `_scratch_of`, but emptied unless the job is resumed.

    Raises
        StoreError: the directory belongs to another user.
    """
    made = _scratch_of(room, there, job.name)
    if room.is_own:
        directory = Path(made.store.local_path() or "")
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
            raise StoreError("expected a directory of this user's own", path=str(directory))
    if not room.is_target and not job.is_resumed:
        made.store.delete_prefix(made.path)
    return made


@resumable
def convert_metadata(
    target: StoredNode[Any] | StoreLike,
    path: str | None = None,
    *,
    zarr_format: ZarrFormat = 3,
    remove_old: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> Array | Group:
    """Describe the array or hierarchy at `path` in another Zarr format, in place: no chunk is touched.

    The old documents stay for readers of the old format, unless `remove_old`. A change of attributes or shape
    in one of the formats does not change the other.

    Raises
        UnsupportedError: a chunk would need other bytes or another key, the format cannot express something,
            or the old documents would hide the new ones; nothing was written.
        NotFoundError: there is nothing.
    """
    here = Location.open(target, path, storage_options, read_only=False)
    store, base = here
    check_above(store, base, zarr_format)
    options = ConvertOptions(zarr_format, allow_pickle=allow_pickle)
    changes = _plan(_Hierarchy(here, allow_pickle), here, options, in_place=True)
    if changes and changes[0].below and zarr_format != 1:
        raise UnsupportedError(
            "arrays that lie in no group cannot be described in place; expected the path of one",
            path=here.url(),
        )
    for below, old, *_ in changes:
        if old.zarr_format > zarr_format and not remove_old:
            raise UnsupportedError(
                f"documents of Zarr v{old.zarr_format} go before those of v{zarr_format}; "
                f"expected to remove the old ones",
                path=here.url(below),
            )
        store.check_writable(here.key(below))
    left = read_intent(store, base)
    plan = {"zarr_format": zarr_format, "remove_old": remove_old}
    is_left = left is not None and left.work == "convert_metadata"
    job = begin(store, base, "convert_metadata", plan, replace=is_left)
    # After an interruption, the old documents still tell which groups were consolidated.
    groups = [path for path, model in walk_nodes(store, base) if isinstance(model, GroupModel)]
    consolidated = [change.below for change in changes if _is_consolidated(change.old)]
    if zarr_format == 3:
        told = (path for path in groups if store.size(join_key(path, v2.CONSOLIDATED_KEY)))
        consolidated = [*dict.fromkeys([*consolidated, *map(here.below, told)])]
    # The topmost last: until it is there, readers follow the old documents.
    publish_nodes(store, base, {change.below: change.new for change in changes}, replaces=True)
    _consolidate(here, consolidated, zarr_format)
    if remove_old:
        # The topmost first: from then on, readers follow the new documents.
        _remove_old(store, base, zarr_format)
        for where, _ in walk_nodes(store, base):
            _remove_old(store, where, zarr_format)
    job.end()
    return open_node(store, base, zarr_format=zarr_format, allow_pickle=allow_pickle)


def _plan(
    here: _Hierarchy, there: Location, options: ConvertOptions, *, in_place: bool = False
) -> list[_Change]:
    """The changes of all nodes, groups before their members; in place, only of nodes in another format."""
    changes = []
    nodes = [*here.nodes(is_whole=in_place)]
    models = [old for _, old in nodes if isinstance(old, ArrayModel)]
    most = max((old.ndim for old in models), default=0)
    options.check_names(models)
    for below, old in nodes:
        if in_place and old.zarr_format == options.zarr_format:
            continue
        new: Model
        is_copy = True
        try:
            if isinstance(old, GroupModel):
                new = plan_group(old, options.zarr_format)
            else:
                source = here.array(below, old)
                is_stored = isinstance(source, StoredArray)
                asked = options.for_array(old, most)
                if in_place:
                    new = describe_in_place(old, options.zarr_format)
                else:
                    wanted = asked if is_stored and not old.is_of_n5 else asked.for_source(old)
                    new, is_copy = plan_array(old, wanted, may_copy=is_stored)
                made = _array(there, below, new, options.allow_pickle)
                made.bind()
                if is_copy and isinstance(source, StoredArray) and not keeps_bytes(source, made):
                    if in_place:
                        raise UnsupportedError("the chunks must be encoded anew")
                    new, is_copy = plan_array(old, asked, may_copy=False)
                    _array(there, below, new, options.allow_pickle).bind()
            render_node(new)
        except ZstoreError as error:
            if below and not in_place and is_loss(error):
                here.leave_out(below, old, error)
                continue
            raise error.locate(path=here.url(below)) from error
        changes.append(_Change(below, old, new, is_copy))
    if not in_place:
        # Arrays of v1 lie in no groups; from v2 on, the nodes above them are groups.
        known = {change.below for change in changes}
        bare = GroupModel(options.zarr_format)
        for above in {above for below in known for above in ancestors(below)} - known:
            changes.append(_Change(above, bare, plan_group(bare, options.zarr_format), is_implied=True))
    return changes


def _describe_options(options: ConvertOptions) -> dict[str, Any]:
    """The arguments of a conversion, by which it is told from others."""
    # The repr of a codec object may show its address in memory, which differs in each process.
    asked = {name: re.sub(" at 0x[0-9a-f]+", "", repr(value)) for name, value in vars(options).items()}
    return without_defaults({**asked, "zarr_format": options.zarr_format}, {"checksum": "False"})


def _name_documents(changes: Sequence[_Change]) -> str:
    """A hash of the documents that a conversion reads and makes."""
    return name_job(
        [[below, is_copy, render_node(old), render_node(new)] for below, old, new, is_copy, _ in changes]
    )


def _remove_old(store: Store, path: str, zarr_format: ZarrFormat) -> None:
    """Remove the documents of other formats from a node that has documents of this one."""
    if node_kind(read_documents(store, [path], zarr_format)[0]) is None:
        return
    is_first = zarr_format != 1 and node_kind(read_documents(store, [path], 1)[0]) == "v1"
    for old in (1, 2, 3) if is_first else (2, 3):
        names = () if old == zarr_format else (*KEYS[old], *((v2.CONSOLIDATED_KEY,) if old == 2 else ()))
        for name in names:
            store.delete(join_key(path, name))


def _is_consolidated(model: Model) -> bool:
    return isinstance(model, GroupModel) and model.consolidated is not None


def _consolidate(there: Location, groups: Iterable[str], zarr_format: ZarrFormat) -> None:
    """Consolidate groups, the deepest first."""
    for below in sorted(groups, key=lambda below: (not below, -below.count("/"), below)):
        consolidate_node(there.store, there.key(below), zarr_format)

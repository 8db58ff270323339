"""Conversion of arrays and hierarchies to another Zarr format: written elsewhere, or described in place.

Elsewhere the documents of an array are written after its chunks, those of a group after its members, and the
topmost last: what an interruption leaves is no array and no group, and the job's record tells what it is.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from zstore.engine.consolidate import consolidate_node
from zstore.engine.documents import (
    KEYS,
    ancestors,
    check_above,
    node_kind,
    place,
    publish_nodes,
    read_documents,
    read_node,
    render_node,
)
from zstore.engine.making import create_node
from zstore.engine.walk import walk_nodes
from zstore.errors import StoreError, UnsupportedError, ZstoreError
from zstore.jobs.parts import current_part
from zstore.jobs.plan import Estimate
from zstore.jobs.record import JOB, Job, Record, begin, begin_new, name_job, read_record, resumable
from zstore.jobs.room import check_room, expect_size, free_size
from zstore.jobs.runner import Executor, counter
from zstore.jobs.target import check_apart
from zstore.jobs.upkeep.cells import Stored
from zstore.jobs.upkeep.chunks import Progress, StoredArray, keeps_bytes, open_place
from zstore.jobs.upkeep.plan import SAME, Request, plan_array, plan_group, say_in_place
from zstore.jobs.upkeep.rechunk import COPIES_AT_ONCE, Copying, Rechunking, carry_out, compare, plan_rechunk
from zstore.jobs.upkeep.rechunk_plan import Room, check_memory
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes.node import Node
from zstore.nodes.open import StoreLike
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store, join_key
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

if TYPE_CHECKING:
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

__all__ = ["convert", "convert_metadata", "estimate_conversion"]

# A chunk that is made of more chunks of the source than this is not made to learn what it takes.
SAMPLED_COUNT = 64

Model = ArrayModel | GroupModel
Work = Copying | Rechunking


class _Place(NamedTuple):
    """A node and all below it, by store and path."""

    store: Store
    base: str

    def array(self, below: str, model: ArrayModel, request: Request) -> StoredArray:
        return StoredArray(self.store, join_key(self.base, below), model, allow_pickle=request.allow_pickle)


class _Change(NamedTuple):
    """One node, by its path below the place: its models, old and new, and whether chunks keep their bytes."""

    below: str
    old: Model
    new: Model
    is_copy: bool = True


@resumable
def convert(
    source: Node[Any] | StoreLike,
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
    chunk_key_encoding: Any = None,
    overwrite: bool = False,
    resume: bool = False,
    check: bool = False,
    durable: bool = False,
    memory: int | None = None,
    scratch: str | PathLike[str] | Store | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> Array | Group:
    """Write the array or hierarchy at `path` of `source` to `target`, in Zarr `zarr_format`.

    Values, fill values, attributes and names of dimensions stay as they are, bit for bit; groups whose
    metadata was consolidated are consolidated. Chunks keep their bytes where the format can express them and
    no other chunks or codecs are asked for. Otherwise they are decoded and encoded, in boxes that `memory`
    holds; where many boxes would decode the same chunk, all chunks are first decoded once into a scratch
    array of which parts are read cheaply.

    chunks, shards, filters, serializer, compressors
                as for `create_array`, for every array; "same" keeps what an array has. A tuple of fewer
                lengths than an array has dimensions is for its last dimensions
    check       read source and target afterwards, and raise where an item differs
    durable     the target survives a power cut from the moment that this returns; refused where it cannot
    overwrite   replace the node at the target, or what an interrupted conversion left, and nothing else
    resume      go on with an interrupted conversion of the same arguments, or begin it; chunks that are
                stored are not made again
    memory      the most bytes that the conversion may hold at once, in each worker of an executor; by
                default an eighth of the machine's memory
    scratch     where scratch arrays are kept: a directory, a URL (opened with `target_options`) or a store.
                None: beside the target where that is a directory, or a bucket that workers of an executor
                write to; else on the disk of temporary files, or in the bucket where that disk is full
    executor    makes the units elsewhere, e.g. a process pool or a `dask.distributed.Client`; None: threads

    Raises
        UnsupportedError: the format cannot express something; nothing was written.
        NotFoundError: there is nothing to convert.
        ChangedError: `resume`, and chunks of the source were written since.
        StoreError: the target exists already, its disk has too little room, or one of the stores failed.
        MetadataError: `resume`, and another job was interrupted at the target; or `memory` holds no chunk.
        CodecError: a chunk is damaged, or (with `check`) differs from the source.
    """
    here = _Place(*open_place(source, path, storage_options, read_only=True))
    there = _Place(*open_place(target, target_path, target_options, read_only=False))
    plain = there.store
    if durable:
        there = there._replace(store=there.store.as_durable())
    check_apart(*here, *there, "convert")
    request = Request(
        zarr_format, chunks, shards, filters, serializer, compressors, chunk_key_encoding, allow_pickle
    )
    changes = _plan(here, there, request)
    said = {"source": place(*here), **_say(request, changes)}
    former = read_record(*there)
    if resume and former is None and _is_there(there, changes):
        return open_node(*there, zarr_format=zarr_format, allow_pickle=allow_pickle)
    rooms = _find_rooms(there._replace(store=plain), former, scratch, target_options, executor)
    work = _plan_work(here, there, request, changes, memory, rooms, executor)
    _check_room(there, work.values(), rooms)
    job = begin_new(*there, zarr_format, "convert", said, overwrite=overwrite, resume=resume)
    job.check_versions(
        {name: one.stored.version for name, one in work.items()},
        lambda below: place(here.store, join_key(here.base, below)),
    )
    total = sum(one.chunk_count + check * _compared(one) for one in work.values())
    tick = counter(total, progress)
    between = [room.place(there, job) for room in rooms] if any(map(_has_scratch, work.values())) else []
    with job.runner(executor) as runner:
        for number, one in enumerate(work.values()):
            store, path = between[one.passes.room] if _has_scratch(one) else there
            spot = store, join_key(path, str(number))
            with runner.apart():
                carry_out(one, spot, runner, f"convert-{number}", tick, keeps=job.is_resumed)
                if check and not runner.is_part:
                    compare(one.source, one.target, check_memory(memory), executor, tick)
    for store, path in between:
        store.delete_prefix(path)
    parent = there.base.rpartition("/")[0]
    if parent and zarr_format != 1 and read_node(there.store, parent) is None:
        create_node(there.store, parent, GroupModel(zarr_format))
    publish_nodes(*there, {change.below: change.new for change in changes})
    _consolidate(there, (c.below for c in changes if _is_consolidated(c.old)), zarr_format)
    job.end()
    return open_node(*there, zarr_format=zarr_format, allow_pickle=allow_pickle)


def estimate_conversion(
    source: Node[Any] | StoreLike,
    target: StoreLike,
    path: str | None = None,
    *,
    target_path: str | None = None,
    memory: int | None = None,
    scratch: str | PathLike[str] | Store | None = None,
    executor: Executor | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    **asked: Any,
) -> dict[str, Estimate]:
    """What `convert` with these arguments would take, for each array by its path; nothing is written.

    Raises what `convert` raises before it begins, except for a target that exists.
    """
    here = _Place(*open_place(source, path, storage_options, read_only=True))
    there = _Place(*open_place(target, target_path, target_options, read_only=False))
    request = Request(**{"zarr_format": 3, **asked})
    changes = _plan(here, there, request)
    rooms = _find_rooms(there, read_record(*there), scratch, target_options, executor)
    work = _plan_work(here, there, request, changes, memory, rooms, executor)
    return {name: one.estimate() for name, one in work.items()}


def _plan_work(
    here: _Place,
    there: _Place,
    request: Request,
    changes: list[_Change],
    memory: int | None,
    rooms: Sequence[_Room],
    executor: Executor | None,
) -> dict[str, Work]:
    """The work for each array, by its path below the place."""
    size, work = check_memory(memory), dict[str, Work]()
    for below, old, new, is_copy in changes:
        if not isinstance(old, ArrayModel) or not isinstance(new, ArrayModel):
            continue
        pair = here.array(below, old, request), there.array(below, new, request)
        if is_copy:
            work[below] = Copying(*pair, Stored.find(pair[0]), COPIES_AT_ONCE if executor is None else None)
            continue
        try:
            work[below] = plan_rechunk(
                *pair,
                size,
                is_firm=memory is not None,
                rooms=[room.beside(pair[1]) for room in rooms],
                is_shared=executor is not None,
            )
        except ZstoreError as error:
            raise error.locate(path=place(here.store, join_key(here.base, below))) from error
    return work


def _has_scratch(one: Work) -> TypeGuard[Rechunking]:
    return isinstance(one, Rechunking) and bool(one.passes.scratches)


def _compared(one: Work) -> int:
    """How many chunks `check` compares."""
    return len(one.touched) if isinstance(one, Rechunking) else one.chunk_count


class _Room(NamedTuple):
    """A store for scratch arrays, and the bytes that are free in it.

    is_target  whether it is the target's own store
    is_own     whether it is this user's directory for temporary files
    """

    store: Store
    free: float
    is_target: bool = False
    is_own: bool = False

    def beside(self, target: StoredArray) -> Room:
        """The room that is left beside the target, where both lie in one store."""
        needed = prod(target.model.shape) * target.item_size if self.is_target else 0
        return Room(self.free - needed, is_near=self.store.request_count == 1)

    def place(self, there: _Place, job: Job) -> _Place:
        """Where scratch arrays of a job lie: beside its journal, or below a name that no other target has.

        Unless the job is resumed, what lies there is removed.

        Raises
            StoreError: the directory belongs to another user.
        """
        made = _Place(self.store, self._base(there, job.name))
        if self.is_target:
            return made
        if self.is_own:
            directory = Path(self.store.local_path() or "")
            directory.mkdir(mode=0o700, exist_ok=True)
            found = directory.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                raise StoreError("expected a directory of this user's own", path=str(directory))
        if not job.is_resumed:
            made.store.delete_prefix(made.base)
        return made

    def _base(self, there: _Place, name: str) -> str:
        if self.is_target:
            return join_key(there.base, JOB, name, "scratch")
        # Different stores in memory may have the same name.
        own = [os.getpid(), id(there.store)] if there.store.in_memory else []
        return name_job([name, place(*there), *own])

    def with_held(self, there: _Place, name: str) -> _Room:
        """The room that there was before the job of that name began, so that resuming plans the same."""
        if self.free == inf:
            return self
        held = self.store.entries(there.base if self.is_target else self._base(there, name))
        return self._replace(free=self.free + sum(entry.size for entry in held))


def _find_rooms(
    there: _Place,
    former: Record | None,
    scratch: str | PathLike[str] | Store | None,
    options: Mapping[str, Any] | None,
    executor: Executor | None,
) -> list[_Room]:
    """Where scratch arrays may lie, the best first; what a `former` conversion left there counts as free."""
    rooms = _list_rooms(there, scratch, options, executor)
    return rooms if former is None else [room.with_held(there, former.name) for room in rooms]


def _list_rooms(
    there: _Place,
    scratch: str | PathLike[str] | Store | None,
    options: Mapping[str, Any] | None,
    executor: Executor | None,
) -> list[_Room]:
    if scratch is not None:
        is_url = isinstance(scratch, str) and "://" in scratch
        store = open_store(scratch, storage_options=options if is_url else None)
        return [_Room(store, free_size(store.local_path()))]
    directory = there.store.local_path(there.base)
    if directory is not None:
        return [_Room(there.store, free_size(directory), is_target=True)]
    own = Path(tempfile.gettempdir(), f"zstore-{os.getuid()}")
    rooms = [_Room(LocalStore(own), free_size(own), is_own=True)]
    # A bucket does not get full, and every worker reaches it.
    afar = [_Room(there.store, inf, is_target=True)] if there.store.request_count > 1 else []
    is_shared = executor is not None or current_part() is not None
    return afar if is_shared and afar else rooms + afar


def _check_room(there: _Place, work: Iterable[Work], rooms: Sequence[_Room]) -> None:
    """Refuse a disk that is too full for the chunks, and for the scratch arrays that lie there too.

    Raises
        StoreError: it is.
    """
    works, scratch = [*work], 0
    for one in works:
        if _has_scratch(one) and rooms[one.passes.room].is_target:
            scratch += one.passes.scratch_size

    def expect() -> float:
        return scratch + sum(one.raw_size or _expect_encoded(one) for one in works)

    check_room(*there, scratch + sum(one.whole_size for one in works), expect, "chunks")


def _expect_encoded(one: Work) -> float:
    """Bytes that the encoded chunks of an array take at least."""
    if isinstance(one, Copying):
        return 0
    box = one.target.box((0,) * one.target.model.ndim)
    if one.source.count(box) > SAMPLED_COUNT:
        return 0
    store = MemoryStore()
    return expect_size(one.chunk_by_chunk(one.target.elsewhere(store)), store)


@resumable
def convert_metadata(
    target: Node[Any] | StoreLike,
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
    here = _Place(*open_place(target, path, storage_options, read_only=False))
    store, base = here
    check_above(store, base, zarr_format)
    changes = _plan(here, here, Request(zarr_format, allow_pickle=allow_pickle), in_place=True)
    if changes and changes[0].below and zarr_format != 1:
        raise UnsupportedError(
            "arrays that lie in no group cannot be described in place; expected the path of one",
            path=place(store, base),
        )
    for below, old, _, _ in changes:
        where = join_key(base, below)
        if old.zarr_format > zarr_format and not remove_old:
            raise UnsupportedError(
                f"documents of Zarr v{old.zarr_format} go before those of v{zarr_format}; "
                f"expected to remove the old ones",
                path=place(store, where),
            )
        store.check_writable(where)
    left = read_record(store, base)
    said = {"zarr_format": zarr_format, "remove_old": remove_old}
    is_left = left is not None and left.work == "convert_metadata"
    job = begin(store, base, "convert_metadata", said, name=name_job(said), replace=is_left)
    # After an interruption, the old documents still tell which groups were consolidated.
    groups = [path for path, model in walk_nodes(store, base) if isinstance(model, GroupModel)]
    consolidated = [change.below for change in changes if _is_consolidated(change.old)]
    if zarr_format == 3:
        told = (path for path in groups if store.size(join_key(path, v2.CONSOLIDATED_KEY)))
        consolidated = [*dict.fromkeys([*consolidated, *(path[len(base) :].lstrip("/") for path in told)])]
    # The topmost last: until it is there, readers follow the old documents.
    publish_nodes(store, base, {below: new for below, _, new, _ in changes})
    _consolidate(here, consolidated, zarr_format)
    if remove_old:
        # The topmost first: from then on, readers follow the new documents.
        _remove_old(store, base, zarr_format)
        for where, _ in walk_nodes(store, base):
            _remove_old(store, where, zarr_format)
    job.end()
    return open_node(store, base, zarr_format=zarr_format, allow_pickle=allow_pickle)


def _plan(here: _Place, there: _Place, request: Request, *, in_place: bool = False) -> list[_Change]:
    """The changes of all nodes, groups before their members; in place, only of nodes in another format."""
    changes = []
    for path, old in walk_nodes(*here):
        if isinstance(old, ZstoreError):
            raise old
        if in_place and old.zarr_format == request.zarr_format:
            continue
        below = path[len(here.base) :].lstrip("/")
        new: Model
        is_copy = True
        try:
            if isinstance(old, GroupModel):
                new = plan_group(old, request.zarr_format)
            else:
                new, is_copy = (
                    (say_in_place(old, request.zarr_format), True) if in_place else plan_array(old, request)
                )
                made = there.array(below, new, request)
                made.bind()
                if is_copy and not keeps_bytes(here.array(below, old, request), made):
                    if in_place:
                        raise UnsupportedError("the chunks must be encoded anew")
                    new, is_copy = plan_array(old, request, may_copy=False)
                    there.array(below, new, request).bind()
            render_node(new)
        except ZstoreError as error:
            raise error.locate(path=place(here.store, path)) from error
        changes.append(_Change(below, old, new, is_copy))
    if not in_place:
        # Arrays of v1 lie in no groups; from v2 on, the nodes above them are groups.
        known = {change.below for change in changes}
        bare = GroupModel(request.zarr_format)
        for above in {above for below in known for above in ancestors(below)} - known:
            changes.append(_Change(above, bare, plan_group(bare, request.zarr_format)))
    return changes


def _say(request: Request, changes: list[_Change]) -> dict[str, Any]:
    """What tells a conversion from others: its arguments, and the documents that it makes."""
    # The repr of a codec object may show its address in memory, which differs in each process.
    asked = {name: re.sub(" at 0x[0-9a-f]+", "", repr(value)) for name, value in vars(request).items()}
    made = [[below, is_copy, render_node(old), render_node(new)] for below, old, new, is_copy in changes]
    return {**asked, "zarr_format": request.zarr_format, "documents": name_job(made)}


def _remove_old(store: Store, path: str, zarr_format: ZarrFormat) -> None:
    """Remove the documents of other formats from a node that has documents of this one."""
    if node_kind(read_documents(store, [path], zarr_format)[0]) is None:
        return
    is_first = zarr_format != 1 and node_kind(read_documents(store, [path], 1)[0]) == "v1"
    for old in (1, 2, 3) if is_first else (2, 3):
        names = () if old == zarr_format else (*KEYS[old], *((v2.CONSOLIDATED_KEY,) if old == 2 else ()))
        for name in names:
            store.delete(join_key(path, name))


def _is_there(there: _Place, changes: list[_Change]) -> bool:
    """Whether every node is as a finished conversion leaves it."""
    for below, _, new, _ in changes:
        found = read_node(there.store, join_key(there.base, below))
        if isinstance(found, GroupModel):
            found = replace(found, consolidated=None)
        if found is None or render_node(found) != render_node(new):
            return False
    return True


def _is_consolidated(model: Model) -> bool:
    return isinstance(model, GroupModel) and model.consolidated is not None


def _consolidate(there: _Place, groups: Iterable[str], zarr_format: ZarrFormat) -> None:
    """Consolidate groups, the deepest first."""
    for below in sorted(groups, key=lambda below: (not below, -below.count("/"), below)):
        consolidate_node(there.store, join_key(there.base, below), zarr_format)

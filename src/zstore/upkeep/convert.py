"""A hierarchy or array in another Zarr format: written anew elsewhere, or described anew where it is.

Elsewhere the documents of an array are written after its chunks, those of groups after what they hold, the
topmost last: what an interruption leaves is no array and no group, and is named as what it is by its record.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zstore.engine.consolidate import consolidate_node
from zstore.engine.documents import (
    KEYS,
    ancestors,
    check_above,
    node_kind,
    place,
    read_documents,
    read_node,
    render_node,
)
from zstore.engine.making import create_node
from zstore.engine.publish import publish_nodes
from zstore.engine.walk import walk_nodes
from zstore.errors import StoreError, UnsupportedError, ZstoreError
from zstore.jobs.plan import Estimate
from zstore.jobs.record import JOB, Job, begin, begin_new, name_job, read_record, resumable
from zstore.jobs.runner import counter
from zstore.jobs.target import check_apart
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes.node import Node
from zstore.nodes.open import StoreLike
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store, join_key
from zstore.storage.local import LocalStore
from zstore.upkeep.chunks import Progress, StoredArray, copy_chunks, keeps_bytes, open_place
from zstore.upkeep.plan import SAME, Request, plan_array, plan_group, say_in_place
from zstore.upkeep.rechunk import Rechunking, compare, plan_rechunk, rechunk
from zstore.upkeep.rechunk_plan import check_memory

if TYPE_CHECKING:
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

__all__ = ["convert", "convert_metadata", "estimate_conversion"]

Model = ArrayModel | GroupModel


class _Place(NamedTuple):
    """A node and what is below it."""

    store: Store
    base: str

    def array(self, below: str, model: ArrayModel, request: Request) -> StoredArray:
        return StoredArray(self.store, join_key(self.base, below), model, allow_pickle=request.allow_pickle)


class _Change(NamedTuple):
    """One node by its path below the place: what it is, what it becomes, whether chunks keep their bytes."""

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
    scratch: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> Array | Group:
    """Write the array or hierarchy at `path` of `source` to `target`, in Zarr `zarr_format`.

    Values, fill values, attributes and names of dimensions stay as they are, bit for bit; groups whose
    metadata was consolidated are consolidated. Chunks keep their bytes where the format can say them and
    nothing else is asked for; otherwise they are decoded and encoded, in boxes that `memory` holds. Where
    these would cut chunks of the source too often, all are decoded once into an array that is cut cheaply.

    chunks, shards, filters, serializer, compressors
                as for `create_array`, for every array; "same" keeps what it has. A tuple with fewer lengths
                than an array has dimensions is for the last ones
    check       read both afterwards, and raise where an item differs
    durable     the target survives a power cut from the moment that this returns; refused where it cannot
    overwrite   replace the node there, or what an interrupted conversion left, and nothing else
    resume      go on with a conversion of the same arguments that was interrupted, or begin it: chunks that
                it has stored are not made again
    memory      bytes that may be held at once, beside what the process holds anyway; by default an eighth of
                the machine's
    scratch     a directory for what lies between source and target; beside the target where that is a
                directory, else in the system's directory for temporary files

    Raises
        UnsupportedError: something that the format cannot say; nothing was written.
        NotFoundError: there is nothing to convert.
        StoreError: there is something at the target already, its disk is too full for what comes there, or
            one of the stores failed.
        MetadataError: `resume`, and what was interrupted there is something else; or `memory` holds no chunk.
        CodecError: a chunk is damaged, or (with `check`) differs from what it was made from.
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
    if resume and read_record(*there) is None and _is_there(there, changes):
        return open_node(*there, zarr_format=zarr_format, allow_pickle=allow_pickle)
    work = _plan_work(here, there, request, changes, memory, scratch)
    _check_room(there, work)
    job = begin_new(*there, zarr_format, "convert", said, overwrite=overwrite, resume=resume)
    between = _between(plain, there.base, job, scratch) if any(map(_has_scratch, work)) else None
    total = 0 if progress is None else sum(_count(one, check=check) for one in work)
    tick = counter(total, progress)
    with job.runner() as runner:
        for number, one in enumerate(work):
            old, new = one[:2]
            if isinstance(one, Rechunking):
                rechunk(one, between, runner, f"convert-{number}", tick, keeps=job.is_resumed)
            else:
                copy_chunks(old, new, tick, keeps=job.is_resumed)
            if check:
                compare(old, new, check_memory(memory), tick)
    if between is not None:
        between[0].delete_prefix(between[1])
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
    scratch: str | PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    **asked: Any,
) -> dict[str, Estimate]:
    """What `convert` with these arguments takes for each array, by its path; nothing is written.

    Raises what `convert` raises before it begins, but for what is at the target already.
    """
    here = _Place(*open_place(source, path, storage_options, read_only=True))
    there = _Place(*open_place(target, target_path, target_options, read_only=False))
    request = Request(**{"zarr_format": 3, **asked})
    changes = _plan(here, there, request)
    work = _plan_work(here, there, request, changes, memory, scratch)
    names = [change.below for change in changes if isinstance(change.old, ArrayModel)]
    return {name: _estimate(one) for name, one in zip(names, work, strict=True)}


class _Copying(NamedTuple):
    """An array whose chunks keep their bytes: from, to."""

    source: StoredArray
    target: StoredArray


_Work = _Copying | Rechunking


def _plan_work(
    here: _Place,
    there: _Place,
    request: Request,
    changes: list[_Change],
    memory: int | None,
    scratch: str | PathLike[str] | None,
) -> list[_Work]:
    """What is to be done for each array."""
    size, work = check_memory(memory), list[_Work]()
    for below, old, new, is_copy in changes:
        if not isinstance(old, ArrayModel) or not isinstance(new, ArrayModel):
            continue
        pair = here.array(below, old, request), there.array(below, new, request)
        if is_copy:
            work.append(_Copying(*pair))
            continue
        try:
            room = _room(there, scratch) - prod(new.shape) * pair[1].item_size
            work.append(plan_rechunk(*pair, size, is_firm=memory is not None, scratch_size=max(0, room)))
        except ZstoreError as error:
            raise error.locate(path=place(here.store, join_key(here.base, below))) from error
    return work


def _has_scratch(one: _Work) -> bool:
    return isinstance(one, Rechunking) and bool(one.passes.scratches)


def _count(one: _Work, *, check: bool) -> int:
    """How many chunks are told as done."""
    if isinstance(one, Rechunking):
        return one.chunk_count + check * len(one.touched)
    return (1 + check) * sum(1 for _ in one.source.cells())


def _estimate(one: _Work) -> Estimate:
    if isinstance(one, Rechunking):
        return one.estimate()
    count = sum(1 for _ in one.source.cells())
    return Estimate(unit_count=count, read_size=0, request_count=2 * count)


def _room(there: _Place, scratch: str | PathLike[str] | None) -> int:
    """Free bytes where scratch arrays go."""
    directory = Path(scratch) if scratch is not None else there.store.local_path(there.base)
    return _free(directory or Path(tempfile.gettempdir()))


def _free(directory: Path) -> int:
    return shutil.disk_usage(
        next(above for above in (directory, *directory.absolute().parents) if above.exists())
    ).free


def _check_room(there: _Place, work: list[_Work]) -> None:
    """Refuse a disk that is too full for what is stored as it is; what codecs leave of others is not known.

    Raises
        StoreError: it does not.
    """
    directory = there.store.local_path(there.base)
    needed = sum(one.raw_size for one in work if isinstance(one, Rechunking))
    if directory is None or needed <= _free(directory):
        return
    # What an interrupted conversion has stored is not made again, and what is replaced goes first.
    room = _free(directory) + sum(entry.size for entry in there.store.entries(there.base))
    if needed > room:
        raise StoreError(f"chunks of {needed} bytes do not fit into {room} that are free", path=place(*there))


def _between(store: Store, base: str, job: Job, scratch: str | PathLike[str] | None) -> tuple[Store, str]:
    """Where scratch arrays of a job are: beside its journal, or in a directory of this machine.

    There, each target has a place of its own, and what others than the resumed job have left in it is gone.

    Raises
        StoreError: that directory is somebody else's.
    """
    if scratch is None and store.local_path(base) is not None:
        return store, join_key(base, JOB, job.name, "scratch")
    directory = Path(tempfile.gettempdir(), f"zstore-{os.getuid()}") if scratch is None else Path(scratch)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if scratch is None and (found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode)):
        raise StoreError("expected a directory of this user's own", path=str(directory))
    # Stores in memory may have only the name in common.
    own = [os.getpid(), id(store)] if store.in_memory else []
    between = LocalStore(directory), name_job([job.name, place(store, base), *own])
    if not job.is_resumed:
        between[0].delete_prefix(between[1])
    return between


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

    The old documents stay for readers of the old format, unless `remove_old`. Writing through one of the two
    does not change the other's attributes and shape.

    Raises
        UnsupportedError: a chunk would need other bytes or another key, the format cannot say something, or
            the old documents would hide the new ones; nothing was written.
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
    # Where this was interrupted, the old documents still tell what was consolidated.
    groups = [path for path, model in walk_nodes(store, base) if isinstance(model, GroupModel)]
    consolidated = [change.below for change in changes if _is_consolidated(change.old)]
    if zarr_format == 3:
        told = (path for path in groups if store.size(join_key(path, v2.CONSOLIDATED_KEY)))
        consolidated = [*dict.fromkeys([*consolidated, *(path[len(base) :].lstrip("/") for path in told)])]
    # The topmost last: until it is there, readers follow the old documents.
    publish_nodes(store, base, {below: new for below, _, new, _ in changes})
    _consolidate(here, consolidated, zarr_format)
    if remove_old:
        # The topmost first: from then on, readers follow the new ones.
        _remove_old(store, base, zarr_format)
        for where, _ in walk_nodes(store, base):
            _remove_old(store, where, zarr_format)
    job.end()
    return open_node(store, base, zarr_format=zarr_format, allow_pickle=allow_pickle)


def _plan(here: _Place, there: _Place, request: Request, *, in_place: bool = False) -> list[_Change]:
    """What becomes of each node, groups before what they hold; in place, of those of another format only."""
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
        # Arrays of v1 lie in no groups; what holds them is one from v2 on.
        known = {change.below for change in changes}
        bare = GroupModel(request.zarr_format)
        for above in {above for below in known for above in ancestors(below)} - known:
            changes.append(_Change(above, bare, plan_group(bare, request.zarr_format)))
    return changes


def _say(request: Request, changes: list[_Change]) -> dict[str, Any]:
    """What a conversion is told from others by: what was asked for, and the documents that come of it."""
    # An object that a codec is given as shows where it lies in memory, which says nothing.
    asked = {name: re.sub(" at 0x[0-9a-f]+", "", repr(value)) for name, value in vars(request).items()}
    made = [[below, is_copy, render_node(old), render_node(new)] for below, old, new, is_copy in changes]
    return {**asked, "zarr_format": request.zarr_format, "documents": name_job(made)}


def _remove_old(store: Store, path: str, zarr_format: ZarrFormat) -> None:
    """Remove the documents of other formats from a node that has those of this one."""
    if node_kind(read_documents(store, [path], zarr_format)[0]) is None:
        return
    is_first = zarr_format != 1 and node_kind(read_documents(store, [path], 1)[0]) == "v1"
    for old in (1, 2, 3) if is_first else (2, 3):
        names = () if old == zarr_format else (*KEYS[old], *((v2.CONSOLIDATED_KEY,) if old == 2 else ()))
        for name in names:
            store.delete(join_key(path, name))


def _is_there(there: _Place, changes: list[_Change]) -> bool:
    """Whether every node is there, as a conversion that has ended leaves it."""
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
    """Consolidate groups, from the deepest up."""
    for below in sorted(groups, key=lambda below: (not below, -below.count("/"), below)):
        consolidate_node(there.store, join_key(there.base, below), zarr_format)

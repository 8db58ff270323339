"""A hierarchy or array in another Zarr format: written anew elsewhere, or described anew where it is.

Elsewhere the documents of an array are written after its chunks, those of groups after what they hold, the
topmost last: what an interruption leaves is no array and no group, and is named as what it is by its record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

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
from zstore.jobs.record import JOB, begin, begin_new, name_job, read_record, resumable
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes.node import Node
from zstore.nodes.open import StoreLike
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store, join_key
from zstore.upkeep.chunks import Progress, StoredArray, open_place
from zstore.upkeep.copying import compare, copy_chunks, keeps_bytes, recode_chunks, touched_cells
from zstore.upkeep.plan import SAME, Request, plan_array, plan_group, say_in_place

if TYPE_CHECKING:
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

__all__ = ["convert", "convert_metadata"]

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
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> Array | Group:
    """Write the array or hierarchy at `path` of `source` to `target`, in Zarr `zarr_format`.

    Values, fill values, attributes and names of dimensions stay as they are, bit for bit; groups whose
    metadata was consolidated are consolidated. Chunks keep their bytes where the format can say them and
    nothing else is asked for; otherwise they are decoded and encoded chunk by chunk (shard by shard).

    chunks, shards, filters, serializer, compressors
                as for `create_array`, for every array; "same" keeps what it has. A tuple with fewer lengths
                than an array has dimensions is for the last ones
    check       read both afterwards, and raise where an item differs
    durable     the target survives a power cut from the moment that this returns; refused where it cannot
    overwrite   replace the node there, or what an interrupted conversion left, and nothing else
    resume      go on with a conversion of the same arguments that was interrupted, or begin it: chunks that
                it has stored are not made again

    Raises
        UnsupportedError: something that the format cannot say; nothing was written.
        NotFoundError: there is nothing to convert.
        StoreError: there is something at the target already, or one of the stores failed.
        MetadataError: `resume`, and what was interrupted there is something else.
        CodecError: a chunk is damaged, or (with `check`) differs from what it was made from.
    """
    here = _Place(*open_place(source, path, storage_options, read_only=True))
    there = _Place(*open_place(target, target_path, target_options, read_only=False))
    if durable:
        there = there._replace(store=there.store.as_durable())
    _check_apart(*here, *there)
    request = Request(
        zarr_format, chunks, shards, filters, serializer, compressors, chunk_key_encoding, allow_pickle
    )
    changes = _plan(here, there, request)
    said = {"source": place(*here), **_say(request, changes)}
    if resume and read_record(*there) is None and _is_there(there, changes):
        return open_node(*there, zarr_format=zarr_format, allow_pickle=allow_pickle)
    job = begin_new(*there, zarr_format, "convert", said, overwrite=overwrite, resume=resume)
    jobs = [
        (here.array(below, old, request), there.array(below, new, request), is_copy)
        for below, old, new, is_copy in changes
        if isinstance(old, ArrayModel) and isinstance(new, ArrayModel)
    ]
    done = total = 0
    if progress is not None:
        for old, new, is_copy in jobs:
            cells = old.cells() if is_copy else touched_cells(old, new)
            total += (2 if check else 1) * sum(1 for _ in cells)

    def tell(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, max(total, done))

    for old, new, is_copy in jobs:
        (copy_chunks if is_copy else recode_chunks)(old, new, tell, keeps=job.is_resumed)
        if check:
            compare(old, new, tell)
    parent = there.base.rpartition("/")[0]
    if parent and zarr_format != 1 and read_node(there.store, parent) is None:
        create_node(there.store, parent, GroupModel(zarr_format))
    publish_nodes(*there, {change.below: change.new for change in changes})
    _consolidate(there, (c.below for c in changes if _is_consolidated(c.old)), zarr_format)
    job.end()
    return open_node(*there, zarr_format=zarr_format, allow_pickle=allow_pickle)


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


def _check_apart(store: Store, base: str, to_store: Store, to_base: str) -> None:
    """Refuse to write into what is read, or around it."""
    here, there = (s.local_path(path) for s, path in ((store, base), (to_store, to_base)))
    if here is not None and there is not None:
        parts, others = here.resolve().parts, there.resolve().parts
    elif store.url == to_store.url and _is_one(store, to_store, to_base):
        parts, others = tuple(filter(None, base.split("/"))), tuple(filter(None, to_base.split("/")))
    else:
        return
    shorter = min(len(parts), len(others))
    if parts[:shorter] == others[:shorter]:
        raise StoreError(
            f"cannot convert {place(store, base)!r} into itself; expected a target elsewhere",
            path=place(to_store, to_base),
        )


def _is_one(store: Store, to_store: Store, to_base: str) -> bool:
    """Whether two stores of one URL are the same: those in memory may have only the name in common."""
    key = join_key(to_base, JOB, "sign")
    to_store.check_writable(key)
    sign = uuid4().bytes
    to_store.put(key, sign)
    try:
        found = store.get(key)
        return found is not None and bytes(found) == sign
    finally:
        to_store.delete(key)


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

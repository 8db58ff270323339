"""A hierarchy or array written anew in another Zarr format, or cut and encoded otherwise.

The documents of an array are written after its chunks, those of groups after what they hold, the topmost
last: what an interruption leaves is no array and no group, and is named as what it is by a key of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from zstore.engine.consolidate import consolidate_node
from zstore.engine.documents import (
    ancestors,
    check_above,
    check_path,
    create_node,
    delete_node,
    place,
    read_node,
    render_node,
)
from zstore.engine.walk import walk_nodes
from zstore.errors import StoreError, ZstoreError
from zstore.model.array import ArrayModel
from zstore.model.document import render_json
from zstore.model.group import GroupModel
from zstore.nodes.group import node
from zstore.nodes.node import Access, Node
from zstore.nodes.open import StoreLike
from zstore.storage.base import Store, join_key
from zstore.upkeep.move import (
    Side,
    bind_target,
    compare,
    copy_chunks,
    keeps_bytes,
    recode_chunks,
    touched_cells,
)
from zstore.upkeep.plan import SAME, Wishes, plan_array, plan_group

if TYPE_CHECKING:
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

__all__ = ["MARK", "convert", "open_side"]

# There while a conversion is under way, and after one that was interrupted.
MARK = ".zstore-converting"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Job:
    """One array to be made."""

    source: Side
    target: Side
    is_copy: bool


def convert(
    source: Node[Any] | StoreLike,
    target: StoreLike,
    path: str | None = None,
    *,
    target_path: str | None = None,
    zarr_format: int = 3,
    chunks: Any = SAME,
    shards: Any = SAME,
    filters: Any = SAME,
    serializer: Any = SAME,
    compressors: Any = SAME,
    chunk_key_encoding: Any = None,
    overwrite: bool = False,
    check: bool = False,
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
    overwrite   replace the node there, or what an interrupted conversion left, and nothing else

    Raises
        UnsupportedError: something that the format cannot say; nothing was written.
        NotFoundError: there is nothing to convert.
        StoreError: there is something at the target already, or one of the stores failed.
        CodecError: a chunk is damaged, or (with `check`) differs from what it was made from.
    """
    store, base = open_side(source, path, storage_options, read_only=True)
    to_store, to_base = open_side(target, target_path, target_options, read_only=False)
    _check_apart(store, base, to_store, to_base)
    wishes = Wishes(zarr_format, chunks, shards, filters, serializer, compressors, chunk_key_encoding)
    jobs, groups, consolidated = _plan(store, base, to_store, to_base, wishes, allow_pickle)
    _make_room(to_store, to_base, zarr_format, overwrite=overwrite)
    mark = join_key(to_base, MARK)
    to_store.put(mark, f"from {place(store, base)}\n".encode())
    report = _Counter(jobs, progress, rounds=2 if check else 1)
    for job in jobs:
        move = copy_chunks if job.is_copy else recode_chunks
        move(job.source, job.target, report.add)
        if check:
            compare(job.source, job.target, report.add)
    _write_documents(to_store, to_base, jobs, groups)
    for below in consolidated:
        consolidate_node(to_store, join_key(to_base, below), zarr_format)
    to_store.delete(mark)
    to_store.flush()
    made = read_node(to_store, to_base, zarr_format)
    assert made is not None, "just written"
    return node(to_store, to_base, made, Access(allow_pickle=allow_pickle))


def open_side(
    target: Node[Any] | StoreLike, path: str | None, options: Mapping[str, Any] | None, *, read_only: bool
) -> tuple[Store, str]:
    """The store, and the path in it."""
    if isinstance(target, Node):
        return target.store, check_path(f"{target.path}/{path or ''}")
    from zstore.storage.url import open_store

    return open_store(target, read_only=read_only, storage_options=options), check_path(path)


def _plan(
    store: Store, base: str, to_store: Store, to_base: str, wishes: Wishes, allow_pickle: bool
) -> tuple[list[_Job], dict[str, GroupModel], list[str]]:
    """(arrays to make, groups to make by path below the target, those to consolidate); nothing is written."""
    jobs: list[_Job] = []
    groups: dict[str, GroupModel] = {}
    consolidated: list[str] = []
    for path, model in walk_nodes(store, base):
        below = path[len(base) :].lstrip("/")
        where = join_key(to_base, below)
        if isinstance(model, ZstoreError):
            raise model
        try:
            if isinstance(model, GroupModel):
                groups[below] = plan_group(model, wishes.zarr_format)
                if model.consolidated is not None:
                    consolidated.insert(0, below)
                continue
            made, is_copy = plan_array(model, wishes)
            source = Side(store, path, model, allow_pickle=allow_pickle)
            job = _Job(source, Side(to_store, where, made, allow_pickle=allow_pickle), is_copy)
            bind_target(job.target)
            if is_copy and not keeps_bytes(source, job.target):
                made, _ = plan_array(model, wishes, may_copy=False)
                job = _Job(source, Side(to_store, where, made, allow_pickle=allow_pickle), False)
                bind_target(job.target)
            render_node(made)
        except ZstoreError as error:
            raise error.locate(path=place(store, path)) from error
        jobs.append(job)
    # Arrays of v1 lie in no groups; what holds them is one from v2 on.
    for job in jobs:
        for above in ancestors(job.target.path[len(to_base) :].lstrip("/")):
            groups.setdefault(above, plan_group(GroupModel(wishes.zarr_format), wishes.zarr_format))
    return jobs, groups, consolidated


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
    key = join_key(to_base, MARK)
    to_store.check_writable(key)
    before = to_store.get(key)
    sign = uuid4().bytes
    to_store.put(key, sign)
    try:
        found = store.get(key)
        return found is not None and bytes(found) == sign
    finally:
        if before is None:
            to_store.delete(key)


def _make_room(store: Store, path: str, zarr_format: int, *, overwrite: bool) -> None:
    """See that nothing is at the target, so that nothing there can be taken for a part of what is made."""
    store.check_writable(join_key(path, MARK))
    check_above(store, path, zarr_format)
    if next(iter(store.list(path)), None) is None:
        return
    is_left_over = store.get(join_key(path, MARK)) is not None
    if not is_left_over and read_node(store, path) is None:
        raise StoreError(
            "cannot convert: there is something that is no array and no group; expected nothing",
            path=place(store, path),
        )
    if not overwrite:
        what = "an interrupted conversion" if is_left_over else "an array or group"
        raise StoreError(
            f"cannot convert: {what} is there already; pass overwrite=True to replace it",
            path=place(store, path),
        )
    delete_node(store, path)
    store.delete_prefix(path)


def _write_documents(store: Store, base: str, jobs: list[_Job], groups: dict[str, GroupModel]) -> None:
    """Arrays, then groups from the deepest up; the topmost node makes all of it visible."""
    top: ArrayModel | GroupModel | None = groups.get("")
    for job in jobs:
        if job.target.path == base:
            top = job.target.model
        else:
            _put(store, job.target.path, job.target.model)
    for below in sorted(groups, key=lambda path: (path.count("/"), path), reverse=True):
        if below:
            _put(store, join_key(base, below), groups[below])
    if top is not None:
        create_node(store, base, top)


def _put(store: Store, path: str, model: ArrayModel | GroupModel) -> None:
    for name, document in render_node(model).items():
        store.put(join_key(path, name), render_json(document))


class _Counter:
    """Chunks done, of all there are."""

    def __init__(self, jobs: list[_Job], progress: Progress | None, *, rounds: int) -> None:
        self._progress = progress
        self._done = self._total = 0
        if progress is not None:
            for job in jobs:
                cells = job.source.cells() if job.is_copy else touched_cells(job.source, job.target)
                self._total += rounds * sum(1 for _ in cells)

    def add(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))

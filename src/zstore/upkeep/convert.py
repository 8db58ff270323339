"""A hierarchy or array in another Zarr format: written anew elsewhere, or described anew where it is.

Elsewhere the documents of an array are written after its chunks, those of groups after what they hold, the
topmost last: what an interruption leaves is no array and no group, and is named as what it is by a key of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from zstore.engine.consolidate import consolidate_node
from zstore.engine.documents import (
    KEYS,
    ancestors,
    check_above,
    create_node,
    delete_node,
    place,
    read_node,
    render_node,
)
from zstore.engine.walk import walk_nodes
from zstore.errors import StoreError, UnsupportedError, ZstoreError
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import render_json
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

__all__ = ["MARK", "convert", "convert_metadata"]

# There while a conversion is under way, and after one that was interrupted.
MARK = ".zstore-converting"

Model = ArrayModel | GroupModel


class _Place(NamedTuple):
    """A node and what is below it."""

    store: Store
    base: str

    def array(self, below: str, model: ArrayModel, request: Request) -> StoredArray:
        return StoredArray(self.store, join_key(self.base, below), model, allow_pickle=request.allow_pickle)

    def put(self, below: str, model: Model) -> None:
        """Write the documents of a node over those that are there."""
        for name, document in render_node(model).items():
            self.store.put(join_key(join_key(self.base, below), name), render_json(document))


class _Change(NamedTuple):
    """One node by its path below the place: what it is, what it becomes, whether chunks keep their bytes."""

    below: str
    old: Model
    new: Model
    is_copy: bool = True


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
    here = _Place(*open_place(source, path, storage_options, read_only=True))
    there = _Place(*open_place(target, target_path, target_options, read_only=False))
    _check_apart(*here, *there)
    request = Request(
        zarr_format, chunks, shards, filters, serializer, compressors, chunk_key_encoding, allow_pickle
    )
    changes = _plan(here, there, request)
    _make_room(*there, zarr_format, overwrite=overwrite)
    mark = join_key(there.base, MARK)
    there.store.put(mark, f"from {place(*here)}\n".encode())
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
        (copy_chunks if is_copy else recode_chunks)(old, new, tell)
        if check:
            compare(old, new, tell)
    _write_documents(there, changes)
    _consolidate(there, changes, zarr_format)
    there.store.delete(mark)
    there.store.flush()
    return open_node(*there, zarr_format=zarr_format, allow_pickle=allow_pickle)


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
    # The topmost last: until it is there, readers follow the old documents.
    for below, _, new, _ in reversed(changes):
        here.put(below, new)
    _consolidate(here, changes, zarr_format)
    for below, old, _, _ in changes if remove_old else ():
        for name in (*KEYS[old.zarr_format], v2.CONSOLIDATED_KEY):
            if name not in KEYS[zarr_format] and (name != v2.CONSOLIDATED_KEY or zarr_format != 2):
                store.delete(join_key(join_key(base, below), name))
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


def _make_room(store: Store, path: str, zarr_format: ZarrFormat, *, overwrite: bool) -> None:
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


def _write_documents(there: _Place, changes: list[_Change]) -> None:
    """Arrays, then groups from the deepest up; the topmost node makes all of it visible."""

    def order(change: _Change) -> tuple[bool, int, str]:
        return isinstance(change.new, GroupModel), -change.below.count("/"), change.below

    for below, _, new, _ in sorted(changes, key=order):
        if below:
            there.put(below, new)
    create_node(*there, next(change.new for change in changes if not change.below))


def _consolidate(there: _Place, changes: list[_Change], zarr_format: ZarrFormat) -> None:
    """Consolidate the groups that were consolidated, from the deepest up."""
    for below, old, _, _ in reversed(changes):
        if isinstance(old, GroupModel) and old.consolidated is not None:
            consolidate_node(there.store, join_key(there.base, below), zarr_format)

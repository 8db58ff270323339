"""Walking all nodes below a path of a store, by stored documents rather than consolidated metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product

from zstore.base.byterange import ByteRange
from zstore.engine.documents import (
    Documents,
    list_below,
    list_nodes,
    node_kind,
    parse_stored,
    place,
    read_node,
)
from zstore.errors import MetadataError, NotFoundError, StoreError, ZstoreError
from zstore.model.array import ArrayModel
from zstore.model.group import GroupModel
from zstore.storage.base import Store, join_key, key_below

# The deepest nesting of groups to follow, in case a store's listing never ends.
DEPTH_LIMIT = 100

Model = ArrayModel | GroupModel
Found = tuple[str, Model | ZstoreError]


def walk_nodes(store: Store, path: str) -> Iterator[Found]:
    """(path, model) of the node at `path` and of all below it by name, groups before their members.

    For a node that cannot be read, the error takes the place of its model, and the walk goes on. If `path` is
    no node itself, the nodes below it are found nevertheless (arrays of Zarr v1 have no groups above them).

    Raises
        NotFoundError: there is no node at `path`, nor below.
        StoreError: the store failed, or cannot list what it holds.
    """
    try:
        model = read_node(store, path)
    except MetadataError as error:
        yield path, error
        return
    if model is not None:
        yield path, model
        if isinstance(model, GroupModel):
            yield from _below(store, path, model, None, 0)
        return
    found = False
    for entry in _below(store, path, None, None, 0):
        found = True
        yield entry
    if not found:
        raise NotFoundError("no array or group there, nor below", path=place(store, path))


def _below(
    store: Store,
    path: str,
    group: GroupModel | None,
    members: Iterable[tuple[str, Documents]] | None,
    depth: int,
) -> Iterator[Found]:
    """The nodes below a group, or below a path without a node; `members` are its children if already read."""
    if depth == DEPTH_LIMIT:
        yield path, MetadataError(f"groups are nested more than {DEPTH_LIMIT} deep", path=place(store, path))
        return
    zarr_format = None if group is None else group.zarr_format
    try:
        members = list_nodes(store, path, zarr_format) if members is None else members
    except ZstoreError:
        # A store that cannot be listed may still have consolidated metadata.
        if group is None or group.consolidated is None:
            raise
        for name in group.consolidated:
            yield _load(join_key(path, name), partial(group.consolidated.__getitem__, name))
        return
    entries: list[tuple[str, Model | ZstoreError | None]] = []
    for name, documents in members:
        child = join_key(path, name)
        if node_kind(documents) is not None:
            entries.append(_load(child, partial(parse_stored, store, child, documents)))
        elif group is None:
            entries.append((child, None))
    holders = [child for child, model in entries if model is None or isinstance(model, GroupModel)]
    known = dict(zip(holders, list_below(store, holders, zarr_format), strict=True))
    for child, model in entries:
        if model is not None:
            yield child, model
        if model is None or isinstance(model, GroupModel):
            yield from _below(store, child, model, known.pop(child), depth + 1)


def _load(path: str, load: Callable[[], ArrayModel | GroupModel | None]) -> Found:
    try:
        model = load()
    except ZstoreError as error:
        return path, error
    except MemoryError:
        raise  # which says nothing of the document
    except Exception as error:
        # No document, however malformed, may keep the nodes beside it from being found.
        return path, MetadataError(f"document cannot be read: {type(error).__name__}: {error}", path=path)
    assert model is not None, "looked at above"
    return path, model


def listed_cell(store: Store, path: str, model: ArrayModel, key: str) -> tuple[int, ...] | None:
    """The grid coordinates of the chunk under a key that was listed below the array at `path`.

    None for keys of no chunk: documents, and what others have put there.

    Raises
        StoreError: the key stands where a directory of chunks belongs, and leads out of the store or to
            nothing, or is a file: chunks below it can neither be listed nor read.
    """
    below = key_below(path, key)
    cell = model.keys.cell(below, model.ndim)
    is_above = cell is None and model.keys.leading(below, model.ndim) is not None
    # Buckets may have such a key beside the chunks below it; links are an error of `get`.
    if is_above and store.get(key, ByteRange(0, 1)) is not None:
        try:
            store.check_missing([f"{key}/0"])
        except StoreError as error:
            error.key = key
            raise
    return cell


def stored_cells(store: Store, path: str, model: ArrayModel) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(key, coordinates) of every stored chunk of the array at `path`, also outside of its shape.

    Raises
        StoreError: as `listed_cell`, or the store cannot list.
    """
    key = None
    for key in store.list(path):
        cell = listed_cell(store, path, model, key)
        if cell is not None:
            yield key, cell
    if key is None:
        # Not even the array's document: the store itself may be gone.
        store.check_missing([join_key(path, "zarr.json")])


def chunk_keys(path: str, model: ArrayModel, box: tuple[slice, ...]) -> Iterator[str]:
    """The keys of the chunks (or shards) of a box, in an array on a regular grid."""
    sides = zip(box, model.grid.chunk_shape, strict=True)
    places = product(*(range(side.start // n, -(-side.stop // n)) for side, n in sides))
    return (join_key(path, model.keys.key(place)) for place in places)


def is_stored(store: Store, path: str, model: ArrayModel, box: tuple[slice, ...]) -> bool:
    """Whether every chunk (or shard) of a box is stored, in an array on a regular grid."""
    return all(map(store.size, chunk_keys(path, model, box)))

"""Every node below a place in a store, as it is stored, whatever consolidated metadata says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from zstore.engine.documents import list_nodes, node_kind, parse_node, place, read_node
from zstore.errors import MetadataError, NotFoundError, ZstoreError
from zstore.model.array import ArrayModel
from zstore.model.group import GroupModel
from zstore.storage.base import Store, join_key

__all__ = ["Found", "walk_nodes"]

# Groups within groups; a store whose listing never ends must not be followed for ever.
DEPTH_LIMIT = 100

Found = tuple[str, ArrayModel | GroupModel | ZstoreError]


def walk_nodes(store: Store, path: str) -> Iterator[Found]:
    """(path, model) of the node at `path` and of all below it, groups before what they hold, by name.

    A node that cannot be read comes with the error, and spoils no other. Where `path` is no node but nodes
    lie below, as arrays of Zarr v1 do, they are found.

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
            yield from _below(store, path, model, model.zarr_format, 0)
        return
    found = False
    for entry in _below(store, path, None, None, 0):
        found = True
        yield entry
    if not found:
        raise NotFoundError("no array or group there, nor below", path=place(store, path))


def _below(
    store: Store, path: str, group: GroupModel | None, zarr_format: int | None, depth: int
) -> Iterator[Found]:
    if depth == DEPTH_LIMIT:
        yield path, MetadataError(f"groups are nested more than {DEPTH_LIMIT} deep", path=place(store, path))
        return
    try:
        members = list_nodes(store, path, zarr_format)
    except ZstoreError:
        # A server that cannot list still has what was gathered for it.
        if group is None or group.consolidated is None:
            raise
        for name in group.consolidated:
            yield _load(join_key(path, name), partial(group.consolidated.__getitem__, name))
        return
    for name, documents in members:
        child = join_key(path, name)
        if node_kind(documents) is None:
            if group is None:
                yield from _below(store, child, None, None, depth + 1)
            continue
        entry = _load(child, partial(parse_node, documents, place(store, child)))
        yield entry
        if isinstance(entry[1], GroupModel):
            yield from _below(store, child, entry[1], entry[1].zarr_format, depth + 1)


def _load(path: str, load: Callable[[], ArrayModel | GroupModel | None]) -> Found:
    try:
        model = load()
    except ZstoreError as error:
        return path, error
    except Exception as error:
        # Whatever a document makes fail: the nodes beside it are to be found.
        return path, MetadataError(f"document cannot be read: {type(error).__name__}: {error}", path=path)
    assert model is not None, "looked at above"
    return path, model

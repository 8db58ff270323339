"""Documents of another Zarr format over the chunks that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zstore.engine.consolidate import consolidate_node
from zstore.engine.documents import KEYS, check_above, place, read_node, render_node
from zstore.engine.walk import walk_nodes
from zstore.errors import UnsupportedError, ZstoreError
from zstore.model import v2
from zstore.model.array import ArrayModel
from zstore.model.document import render_json
from zstore.model.group import GroupModel
from zstore.nodes.group import node
from zstore.nodes.node import Access, Node
from zstore.nodes.open import StoreLike
from zstore.storage.base import Store, join_key
from zstore.upkeep.convert import open_side
from zstore.upkeep.move import Side, bind_target, keeps_bytes
from zstore.upkeep.plan import plan_group, say_in_place

if TYPE_CHECKING:
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

__all__ = ["convert_metadata"]

Made = tuple[str, ArrayModel | GroupModel, ArrayModel | GroupModel]


def convert_metadata(
    target: Node[Any] | StoreLike,
    path: str | None = None,
    *,
    zarr_format: int = 3,
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
    store, base = open_side(target, path, storage_options, read_only=False)
    check_above(store, base, zarr_format)
    made, consolidated = _plan(store, base, zarr_format, allow_pickle=allow_pickle)
    for where, old, _ in made:
        if old.zarr_format > zarr_format and not remove_old:
            raise UnsupportedError(
                f"documents of Zarr v{old.zarr_format} go before those of v{zarr_format}; "
                f"expected to remove the old ones",
                path=place(store, where),
            )
        store.check_writable(where)
    # The topmost last: until it is there, readers follow the old documents.
    for where, _, new in reversed(made):
        for name, document in render_node(new).items():
            store.put(join_key(where, name), render_json(document))
    for where in consolidated:
        consolidate_node(store, where, zarr_format)
    if remove_old:
        for where, old, _ in made:
            for name in (*KEYS[old.zarr_format], v2.CONSOLIDATED_KEY):
                if name not in KEYS[zarr_format] and (name != v2.CONSOLIDATED_KEY or zarr_format != 2):
                    store.delete(join_key(where, name))
    model = read_node(store, base, zarr_format)
    assert model is not None, "just written"
    return node(store, base, model, Access(allow_pickle=allow_pickle))


def _plan(store: Store, base: str, zarr_format: int, *, allow_pickle: bool) -> tuple[list[Made], list[str]]:
    """(path, what is there, what is to be there) of every node of another format, and what to consolidate."""
    made: list[Made] = []
    consolidated: list[str] = []
    for path, model in walk_nodes(store, base):
        if isinstance(model, ZstoreError):
            raise model
        if model.zarr_format == zarr_format:
            continue
        try:
            new: ArrayModel | GroupModel
            if isinstance(model, GroupModel):
                new = plan_group(model, zarr_format)
                if model.consolidated is not None:
                    consolidated.insert(0, path)
            else:
                new = say_in_place(model, zarr_format)
                source = Side(store, path, model, allow_pickle=allow_pickle)
                target = Side(store, path, new, allow_pickle=allow_pickle)
                bind_target(target)
                if not keeps_bytes(source, target):
                    raise UnsupportedError("the chunks must be encoded anew")
            render_node(new)
        except ZstoreError as error:
            raise error.locate(path=place(store, path)) from error
        made.append((path, model, new))
    if made and made[0][0] != base and zarr_format != 1:
        raise UnsupportedError(
            "arrays that lie in no group cannot be described in place; expected the path of one",
            path=place(store, base),
        )
    return made, consolidated

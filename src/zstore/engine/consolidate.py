"""Consolidated metadata: the documents of everything below a group, copied into the group's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zstore.engine.documents import list_nodes, node_kind, place, read_node, render_node
from zstore.errors import NotFoundError
from zstore.model import v2, v3
from zstore.model.consolidated import Consolidated
from zstore.model.document import parse_json, render_json
from zstore.model.group import GroupModel
from zstore.storage.base import Store, join_key


def consolidate_node(store: Store, path: str, zarr_format: int) -> GroupModel:
    """Write the documents of everything below the group at `path` into its own, and return its model.

    Documents are copied as they are: a node that zstore cannot read is consolidated like the others.

    Raises
        NotFoundError: there is no such group.
        MetadataError: a document is no JSON object.
        ReadOnlyError, StoreError: the store refused.
    """
    key = join_key(path, v3.KEY if zarr_format == 3 else v2.GROUP_KEY)
    store.check_writable(key)
    made: GroupModel | None = None

    def gather() -> None:
        nonlocal made
        model = read_node(store, path, zarr_format)
        if not isinstance(model, GroupModel):
            raise NotFoundError("there is no group to consolidate", path=place(store, path), key=key)
        parse = v3.parse_node if zarr_format == 3 else v2.parse_node
        nodes: dict[str, dict[str, Any]] = {}
        _gather(store, path, "", zarr_format, nodes)
        model = replace(model, consolidated=Consolidated(nodes, parse, base=place(store, path)))
        name = v3.KEY if zarr_format == 3 else v2.CONSOLIDATED_KEY
        store.put(join_key(path, name), render_json(render_node(model)[name]))
        made = model

    store.update(key, gather)
    assert made is not None
    return made


def _gather(store: Store, base: str, below: str, zarr_format: int, nodes: dict[str, dict[str, Any]]) -> None:
    for name, documents in list_nodes(store, join_key(base, below), zarr_format):
        if node_kind(documents) is None:
            continue
        path = join_key(below, name)
        where = place(store, join_key(base, path))
        parsed = {name: parse_json(data, path=where, key=name) for name, data in documents.items()}
        for document in parsed.values():
            if zarr_format == 3 and document.get("node_type") == "group":
                document.pop("consolidated_metadata", None)
        nodes[path] = parsed
        if v2.GROUP_KEY in parsed or (v3.KEY in parsed and parsed[v3.KEY].get("node_type") == "group"):
            _gather(store, base, path, zarr_format, nodes)

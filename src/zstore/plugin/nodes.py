"""Arrays and groups as data: models, documents, keys of chunks, and all nodes of a store."""

from __future__ import annotations

from zstore.engine.documents import document_keys
from zstore.engine.walk import walk_nodes
from zstore.model.array import ArrayModel
from zstore.model.document import parse_json, render_json
from zstore.model.grid import ChunkKeys, RectilinearGrid, RegularGrid
from zstore.model.packing import decode
from zstore.nodes.create import NewNodes
from zstore.nodes.open import open_ahead

__all__ = [
    "ArrayModel",
    "ChunkKeys",
    "NewNodes",
    "RectilinearGrid",
    "RegularGrid",
    "decode",
    "document_keys",
    "open_ahead",
    "parse_json",
    "render_json",
    "walk_nodes",
]

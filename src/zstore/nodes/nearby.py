"""The ends of error messages: the nodes near a path without one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from zstore.engine.documents import METADATA_NAMES, ancestors, find_documents, node_kind, parse_node
from zstore.errors import ZstoreError
from zstore.model.array import ArrayModel
from zstore.storage.base import Store, join_key
from zstore.storage.kinds import ending_of, kind_by_name, say_file
from zstore.storage.local import LocalStore

# The most names of a directory that are compared, and the most that a message mentions.
MOST_NAMES = 1000
MOST_SAID = 3


def say_near(store: Store, path: str) -> str:
    """The end of an error message: nodes and files at, above, below and beside the path.

    Empty for stores where every look is a request over a network, and for those that cannot be listed.
    """
    if store.request_count > 1:
        return ""
    folder = store.local_path()
    if folder is not None:
        if (folder / path).is_file():
            return say_file(folder / path)
        # Directories above the store's own may have the node, so the search covers the whole file system.
        full = folder / path
        store, path = LocalStore(full.anchor, read_only=True), str(full.relative_to(full.anchor))
    try:
        return "".join(f"; {hint}" for hint in _hints(store, path, folder))
    except (ZstoreError, OSError):
        return ""


def say_names(name: str, names: list[str]) -> str:
    """The end of an error message: of some names those like a missing one, or the first ones."""
    close = get_close_matches(name, names, MOST_SAID)
    return f"; near it: {listed(close)}" if close else f"; there are: {listed(names)}" if names else ""


def _hints(store: Store, path: str, folder: Path | None) -> Iterator[str]:
    above = [*ancestors(path)]
    for at, documents in reversed([*zip(above, find_documents(store, above), strict=True)]):
        kind = node_kind(documents)
        if kind is not None and isinstance(parse_node(documents, _named(at, folder)), ArrayModel):
            yield f"{_named(at, folder)} is an array, which has no nodes below it"
            return
        if kind is not None:
            break
    below = _nodes(store, path)
    below_it = store.local_path(path)
    files = None if below or below_it is None else _pattern(below_it)
    if files:
        yield f"there are files below it; {files!r} opens them as one"
        return
    if below:
        yield f"there are nodes below it: {listed(below)}"
        return
    parent, _, name = path.rpartition("/")
    names = [n for n in _names(store, parent) if n != name and n not in METADATA_NAMES]
    if close := get_close_matches(name, names, MOST_SAID):
        yield f"near it: {listed(close)}"
    elif beside := _nodes(store, parent):
        yield f"there are: {listed(beside)}"


def _pattern(folder: Path) -> str | None:
    """The pattern of the files in a directory that open, most of one ending; None where there are none."""
    kinds = {name: kind_by_name(name) for name in _listing(folder)}
    endings = Counter(ending_of(name) for name, kind in kinds.items() if kind is not None and kind.scheme)
    return f"{folder}/*{endings.most_common(1)[0][0]}" if endings else None


def _nodes(store: Store, path: str) -> list[str]:
    names = _names(store, path)[: 4 * MOST_SAID]
    documents = find_documents(store, [join_key(path, name) for name in names])
    return [name for name, stored in zip(names, documents, strict=True) if node_kind(stored) is not None]


def _names(store: Store, path: str) -> list[str]:
    """The names of the children of a path, at most MOST_NAMES."""
    folder = store.local_path(path)
    if folder is None:
        return store.list_children(path)[:MOST_NAMES]
    return _listing(folder)


def _listing(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, MOST_NAMES))


def _named(path: str, folder: Path | None) -> str:
    return repr(path if folder is None else f"/{path}")


def listed(names: list[str]) -> str:
    """The first of some names, as a message has them."""
    return ", ".join(repr(name) for name in names[:MOST_SAID])

"""Hints for error messages: zarr-python's names and options, and nodes near a path without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from zstore.engine.documents import METADATA_NAMES, ancestors, find_documents, node_kind
from zstore.errors import ZstoreError
from zstore.storage.base import Store, join_key
from zstore.storage.local import LocalStore

P = ParamSpec("P")
T = TypeVar("T")

MODULE_ADVICE = {
    "AsyncArray": "zstore.aio, or `await array.read_async(selection)` of any array",
    "AsyncGroup": "zstore.aio",
    "config": "zstore.set_threads, set_cache_size, set_limits and set_durable",
    "copy_all": "zstore.copy(source, target)",
    "copy_store": "zstore.copy(source, target)",
    "open_like": "zstore.zeros_like(array, store=..., path=...), or zstore.open_array",
    "print_debug_info": "`zstore doctor` on the command line",
    "consolidate_metadata": "zstore.consolidate(store, path)",
    "from_array": "zstore.create_array(store, data=array), or zstore.convert(array, target)",
    "tune": "zstore_tune.tune of the package zstore-tune",
    "save_array": "zstore.save(store, array)",
    "save_group": "zstore.save(store, name=array, ...)",
}
ARRAY_ADVICE = {
    "async_array": "`await array.read_async(selection)` and `await array.write_async(selection, value)`",
    "compressor": "array.compressors, which has all of them",
    "config": "the arguments of zstore.open_array",
    "create": "zstore.create_array",
    "from_dict": "zstore.create_hierarchy(store, {path: document})",
    "open": "zstore.open_array",
    "store_path": "array.store and array.path",
    "with_config": "array.cached(size), or zstore.open_array with other arguments",
    "synchronizer": "nothing in its place: writers lock the chunks that they write",
}
GROUP_ADVICE = {
    "array": "group.create_array(name, data=...)",
    "create": "group.create_array",
    "create_dataset": "group.create_array(name, ...)",
    "from_store": "zstore.create_group",
    "get_array": "group[name], or group.get(name)",
    "get_group": "group[name], or group.get(name)",
    "move": "zstore.convert(group[old], group.store, target_path=new), then `del group[old]`",
    "open": "zstore.open_group",
    "require_dataset": "group.require_array(name, shape=..., dtype=...)",
    "store_path": "group.store and group.path",
    "synchronizer": "nothing in its place: writers lock the documents that they write",
    "update_attributes_async": "group.update_attributes(attributes)",
}
OPTION_ADVICE = {
    "cache_attrs": "nothing in its place: attributes are kept as long as their node",
    "cache_metadata": "nothing in its place: metadata are kept as long as their array",
    "chunk_shape": "chunks",
    "chunk_store": "one store for documents and chunks",
    "codecs": "filters, serializer and compressors",
    "compressor": "compressors",
    "config": "nothing in its place: chunks of fill value alone are never stored, and results are in C order",
    "dimension_separator": "chunk_key_encoding",
    "meta_array": "nothing in its place: what is read is in numpy's arrays",
    "object_codec": "filters, or serializer in Zarr v3",
    "read_only": "mode='r'",
    "synchronizer": "nothing in its place: writers lock what they write",
    "use_consolidated": "zstore.open_consolidated, or another mode than 'r', which alone believes it",
    "write_data": "shape and dtype in place of data, where nothing is to be written",
    "write_empty_chunks": "nothing in its place: chunks of fill value alone are never stored",
    "zarr_version": "zarr_format",
}


def advise_options(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose error for an option of zarr-python's says what to type.

    Raises
        TypeError: there is such an option.
    """

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        if not OPTION_ADVICE.keys().isdisjoint(options):
            name = next(name for name in options if name in OPTION_ADVICE)
            said = f"{function.__name__} takes no {name}={options[name]!r}, which zarr-python has"
            raise TypeError(f"{said}; use {OPTION_ADVICE[name]}")
        return function(*args, **options)

    return call


# Paths without a node

# The most names of a directory that are compared, and the most that a message mentions.
MOST_NAMES = 1000
MOST_SAID = 3

CONVERT = "`zstore convert {path} NAME.zarr` makes a Zarr of it"
# Files of other kinds: their first bytes, what they are, and what to do with them.
FILES = (
    (b"PK\3\4", "a zip file", "open it as 'zip::{path}'"),
    (b"PK\5\6", "an empty zip file", "open it as 'zip::{path}'"),
    (b"SQLite format 3\0", "an SQLite file", "open it as 'sqlite://{path}' (plugin zstore-sqlite)"),
    (b"II", "a TIFF file", CONVERT),
    (b"MM\0", "a TIFF file", CONVERT),
    (b"\x89PNG", "a PNG file", CONVERT),
    (b"\xff\xd8\xff", "a JPEG file", CONVERT),
    (b"GRIB", "a GRIB file", CONVERT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", CONVERT),
    (b"CDF", "a NetCDF file", CONVERT),
    (b"", "a file", "it is no store; a Zarr is a directory, a .zip file or a URL"),
)


def say_near(store: Store, path: str) -> str:
    """The end of an error message: what exists at, above, below and beside the path.

    Empty for stores where every look is a request over a network, and for those that cannot be listed.
    """
    if store.request_count > 1:
        return ""
    folder = store.local_path()
    if folder is not None:
        if (folder / path).is_file():
            return say_file((folder / path).as_uri())
        # Directories above the store's own may have the node, so the search covers the whole file system.
        full = folder / path
        store, path = LocalStore(full.anchor, read_only=True), str(full.relative_to(full.anchor))
    try:
        return "".join(f"; {hint}" for hint in _hints(store, path, folder))
    except (ZstoreError, OSError):
        return ""


def say_file(url: str) -> str:
    """The end of an error message: the file at or above a "file://" URL where a directory was expected."""
    place = Path(os.fsdecode(unquote_to_bytes(urlsplit(url).path)))
    found = next((path for path in (place, *place.parents) if path.is_file()), None)
    if found is None:
        return ""
    with found.open("rb") as file:
        begin = file.read(16)
    what, advice = next((what, advice) for mark, what, advice in FILES if begin.startswith(mark))
    return f", found {what} at {str(found)!r}: {advice.format(path=found)}"


def _hints(store: Store, path: str, folder: Path | None) -> Iterator[str]:
    above = [*ancestors(path)]
    for place, documents in reversed([*zip(above, find_documents(store, above), strict=True)]):
        kind = node_kind(documents)
        if kind in ("array", "v1") or (kind == "v3" and b'"array"' in bytes(documents["zarr.json"])):
            yield f"{_named(place, folder)} is an array, which has no nodes below it"
            return
        if kind is not None:
            break
    below = _nodes(store, path)
    if below:
        yield f"there are nodes below it: {_listed(below)}"
        return
    parent, _, name = path.rpartition("/")
    names = [n for n in _names(store, parent) if n != name and n not in METADATA_NAMES]
    if close := get_close_matches(name, names, MOST_SAID):
        yield f"near it: {_listed(close)}"


def _nodes(store: Store, path: str) -> list[str]:
    names = _names(store, path)[: 4 * MOST_SAID]
    documents = find_documents(store, [join_key(path, name) for name in names])
    return [name for name, found in zip(names, documents, strict=True) if node_kind(found) is not None]


def _names(store: Store, path: str) -> list[str]:
    """The names of the children of a path, at most MOST_NAMES."""
    folder = store.local_path(path)
    if folder is None:
        return store.list_children(path)[:MOST_NAMES]
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, MOST_NAMES))


def _named(path: str, folder: Path | None) -> str:
    return repr(path if folder is None else f"/{path}")


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:MOST_SAID])

"""Opening and making arrays and groups in a store, by path, URL or Store.

Modes, as in zarr-python: "r" must exist, read-only; "r+" must exist; "a" made where missing; "w" replaces the
node at that path (and nothing else); "w-" made, an error where it exists. Without a mode, what is there is
opened, for writing unless the store is read-only, and nothing is ever made.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

from zstore._ext.engine.transfer import OPEN, NearSpan
from zstore.base import tracing
from zstore.base.tracing import NOTHING, AnySpan, note_near, span
from zstore.engine.ahead import look_ahead
from zstore.engine.documents import (
    check_path,
    place,
    read_node,
)
from zstore.errors import (
    MetadataError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    without_secrets,
)
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes import above as higher
from zstore.nodes.array import Array
from zstore.nodes.create import ArrayRequest, make_array
from zstore.nodes.group import Group, make_group, make_hierarchy, node
from zstore.nodes.nearby import MOST_SAID, listed, say_near
from zstore.nodes.node import Access, Missing, advise_options
from zstore.storage.base import Store, join_key
from zstore.storage.kinds import VIEW
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_by_content, open_store

StoreLike: TypeAlias = str | os.PathLike[str] | Store | list[Any] | tuple[Any, ...]
Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]
MODES = ("r", "r+", "a", "w", "w-")
LOOKED_FOR = {
    1: "meta",
    2: ".zarray, .zgroup",
    3: "zarr.json",
    None: "zarr.json, .zarray, .zgroup, meta (v1)",
}


@advise_options
def open(
    store: StoreLike,
    path: str | None = None,
    mode: Mode | None = None,
    zarr_format: ZarrFormat | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: Missing = "fill",
    durable: bool = False,
    above: bool = False,
    **options: Any,
) -> Array | Group:
    """The array or group at `path` of the store.

    `mode` is "r+" by default ("r" for a store that is read-only). What is missing is made by "a", "w" and
    "w-" only: an array where `shape` or `data` is among the `options` (of `create_array`), else a group.
    `allow_pickle` lets an array's chunks be unpickled, which runs code that they hold: for stores you trust.
    With missing="error", to read a chunk that is not stored is an error, in all arrays of a group; by default
    it reads as the fill value. With `durable`, what is changed survives a power cut from the moment that the
    call returns; stores that cannot promise that are refused. A name that ends in ".view.json" is that of a
    view, which is read as an array is; it leads to arrays below its directory, and below the places that the
    storage option `allow` names. With `above`, the outermost group that holds the node is opened as its
    store, so that what the node inherits or refers to there is read: nothing above the root of an opened
    store is.

    Raises
        NotFoundError: there is nothing, and the mode makes nothing; says what lies near.
        MetadataError, UnsupportedError: what is there cannot be read.
    """
    _check_options(options)
    view: Array | None = open_view(store, path, storage_options) if mode in (None, "r") else None
    if view is not None:
        return view
    if above:
        store, path = find_outermost(store, path, storage_options=storage_options)
    at = _look(store, path, mode, zarr_format, storage_options, durable, "array or group")
    access = Access(at.mode == "r", allow_pickle, missing)
    if at.model is not None:
        return node(at.store, at.path, at.model, access)
    options = {**options, "zarr_format": zarr_format, "overwrite": at.mode == "w", "missing": missing}
    with _advised(at.mode):
        if not _makes_array(options):
            return Group(at.store, at.path, create_group(at.store, at.path, **options).model, access)
        return create_array(at.store, at.path, allow_pickle=allow_pickle, **options)


def open_view(
    source: Any, path: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Any | None:
    """The view in a file, whose name ends in ".view.json"; None where `source` is anything else.

    Raises
        MetadataError: a path, where a view has no nodes; the file is no view.
    """
    is_path = isinstance(source, str | os.PathLike)
    if not is_path or not os.fspath(source).rstrip("/").lower().endswith(VIEW.endings):
        return None
    if path:
        raise MetadataError(f"a view has no nodes below it; expected no path, got {path!r}", path=str(source))
    return higher.open_view(source, storage_options)


def find_outermost(
    store: StoreLike, path: str | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> tuple[StoreLike, str]:
    """(the address of the outermost group above a store, the path in it of a node of the store).

    The store and the path themselves where no group lies above, or where the store has no address of its own.
    """
    inner = check_path(path)
    held = open_store(store, read_only=True, storage_options=storage_options)
    scheme, mark, rest = held.url.rstrip("/").partition("://")
    names, top = rest.split("/"), None
    is_named = held.local_path() is not None or not isinstance(store, Store)
    for count in range(len(names) - 1, 0, -1) if is_named else ():
        below = "/".join(map(unquote, names[count:]))
        address = f"{scheme}{mark}{'/'.join(names[:count])}"
        try:
            outer = open_store(address, read_only=True, storage_options=storage_options)
            is_above = isinstance(read_node(outer, ""), GroupModel) and read_node(outer, below) is not None
        except (MetadataError, NotFoundError, StoreError):
            break
        if not is_above:
            break
        top = address, join_key(below, inner)
    return (store, inner) if top is None else top


@contextmanager
def open_ahead(
    store: StoreLike, *, storage_options: Mapping[str, Any] | None = None, above: bool = False
) -> Iterator[Array | Group]:
    """The root of a store for reading, a snapshot of the store as it was then, until the context ends.

    That takes few rounds of requests, whatever is asked of groups and coordinates meanwhile. `above` as for
    `open`.

    Raises
        As `open`.
    """
    path = ""
    if above:
        store, path = find_outermost(store, storage_options=storage_options)
    opened = _open_store(store, "r", storage_options, False, "array or group")
    with look_ahead(opened) as ahead:
        is_there = path or read_node(ahead, "") is not None
        file = None if is_there else open_by_content(store, storage_options)
        yield open(ahead, path, mode="r") if file is None else open(*file, mode="r")


@advise_options
def open_array(
    store: StoreLike,
    path: str | None = None,
    mode: Mode | None = None,
    zarr_format: ZarrFormat | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: Missing = "fill",
    durable: bool = False,
    above: bool = False,
    **options: Any,
) -> Array:
    """The array at `path` of the store; modes as for `open`, `options` are those of `create_array`.

    `allow_pickle` lets its chunks be unpickled, which runs code that they hold: for stores you trust. With
    missing="error", to read a chunk that is not stored is an error; by default it reads as the fill value.
    `durable` and `above` as for `open`.

    Raises
        NotFoundError: there is nothing, and the mode (or the lack of a `shape`) makes nothing; says what lies
            near.
        MetadataError: a group is there, or the metadata cannot be read.
    """
    _check_options(options)
    if above:
        store, path = find_outermost(store, path, storage_options=storage_options)
    at = _look(store, path, mode, zarr_format, storage_options, durable, "array")
    if isinstance(at.model, ArrayModel):
        return Array(at.store, at.path, at.model, Access(at.mode == "r", allow_pickle, missing))
    if at.model is not None:
        arrays = [*islice(Group(at.store, at.path, at.model, Access(at.mode == "r")).array_keys(), MOST_SAID)]
        named = f", such as {listed(arrays)} in it" if arrays else ""
        raise MetadataError(f"a group is there, expected an array{named}", path=place(at.store, at.path))
    if at.mode == "a" and not _makes_array(options):
        raise _nothing(at.store, at.path, zarr_format, "array")
    options = {**options, "zarr_format": zarr_format, "overwrite": at.mode == "w", "missing": missing}
    with _advised(at.mode):
        return create_array(at.store, at.path, allow_pickle=allow_pickle, **options)


@advise_options
def open_group(
    store: StoreLike,
    path: str | None = None,
    mode: Mode | None = None,
    zarr_format: ZarrFormat | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    missing: Missing = "fill",
    durable: bool = False,
    above: bool = False,
) -> Group:
    """The group at `path` of the store; `attributes` are for a new one, the rest is as for `open`.

    Raises
        NotFoundError: there is nothing, and the mode makes nothing; says what lies near.
        MetadataError: an array is there, or the metadata cannot be read.
    """
    if above:
        store, path = find_outermost(store, path, storage_options=storage_options)
    at = _look(store, path, mode, zarr_format, storage_options, durable, "group")
    access = Access(at.mode == "r", missing=missing)
    if isinstance(at.model, GroupModel):
        return Group(at.store, at.path, at.model, access)
    if at.model is not None:
        said = "an array is there, expected a group; zstore.open_array opens it"
        raise MetadataError(said, path=place(at.store, at.path))
    is_replaced = at.mode == "w"
    with _advised(at.mode):
        return make_group(
            at.store, at.path, zarr_format or 3, access, attributes=attributes, overwrite=is_replaced
        )


@advise_options
def create_array(
    store: StoreLike,
    name: str | None = None,
    *,
    shape: Any = None,
    dtype: Any = None,
    data: Any = None,
    chunks: Any = "auto",
    shards: Any = None,
    filters: Any = "auto",
    compressors: Any = "auto",
    serializer: Any = "auto",
    checksum: bool = False,
    fill_value: Any = "auto",
    order: Literal["C", "F"] = "C",
    zarr_format: ZarrFormat | None = 3,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Iterable[str | None] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: Missing = "fill",
    durable: bool = False,
) -> Array:
    """Make an array at `name` of the store (its root by default), and the missing groups above it.

    chunks       lengths per dimension, one length for all, -1 or None for a whole dimension; "auto": to 1 MiB
                 {"time": 240, "y": "auto"}: lengths by the names of dimensions, whole ones along others
    shards       the shape of the stored objects, a multiple of `chunks`, which are then the inner ones (v3);
                 "auto": whole chunks, to 1 MiB
    filters, serializer, compressors
                 codecs by name, as v3 or v2 objects, or as codec objects; one, a list, None or "auto": no
                 filters, bytes in the dtype's byte order, zstd
    checksum     store a CRC-32C with every chunk or inner chunk, behind the compressors (v3) or as the last
                 filter (v2): changed bytes are an error and never items; the default zstd of v3 has its own
    dtype        whatever numpy takes, or a v3 name such as "bfloat16"; `str` and `bytes` are of any length,
                 `object` needs a codec for objects among `filters` (v2) or as `serializer` (v3)
    fill_value   a value of the dtype; "auto" is zero, of times "not a time"; None is null in v2, "auto" in v3
    order        "F" stores each chunk's first dimension fastest
    allow_pickle that the codec "pickle" may be used; reading such an array takes the same argument
    missing      "error": to read a chunk that is not stored is an error; no part of what is stored
    durable      the array, and what is written through it, survives a power cut; as for `open`

    The data are stored before the array is there: what fails leaves no array.

    Raises
        StoreError: there is a node already (unless `overwrite`, which replaces it and nothing else).
        MetadataError, UnsupportedError: arguments that make no array, or none of that format.
    """
    access = Access(allow_pickle=allow_pickle, missing=missing)
    request = ArrayRequest(
        shape=shape,
        dtype=dtype,
        data=data,
        chunks=chunks,
        shards=shards,
        filters=filters,
        compressors=compressors,
        serializer=serializer,
        checksum=checksum,
        fill_value=fill_value,
        order=order,
        zarr_format=zarr_format or 3,
        attributes=attributes,
        chunk_key_encoding=chunk_key_encoding,
        dimension_names=dimension_names,
    )
    opened = open_store(store, storage_options=storage_options, durable=durable)
    return make_array(opened, check_path(name), request, access, overwrite=overwrite)


def rehearse(zarr_format: ZarrFormat, options: Mapping[str, Any]) -> Array:
    """An array of those options in memory, to raise their errors before work begins.

    Raises
        MetadataError, UnsupportedError: they make no array.
        UnknownExtensionError: nobody offers one of its codecs.
    """
    array = create_array(MemoryStore(), zarr_format=zarr_format, **options)
    # The codecs are looked for when the first item is.
    array[(slice(0, 0),) * array.ndim]
    return array


@advise_options
def create_group(
    store: StoreLike,
    path: str | None = None,
    *,
    zarr_format: ZarrFormat | None = 3,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    missing: Missing = "fill",
    durable: bool = False,
) -> Group:
    """Make a group at `path` of the store (its root by default), and the missing groups above it.

    `missing` is for the arrays that are reached through the group, `durable` for all of it, as for `open`.

    Raises
        StoreError: there is a node already (unless `overwrite`, which replaces it and nothing else).
    """
    access = Access(missing=missing)
    opened = open_store(store, storage_options=storage_options, durable=durable)
    return make_group(
        opened, check_path(path), zarr_format or 3, access, attributes=attributes, overwrite=overwrite
    )


def create_hierarchy(
    store: StoreLike,
    nodes: Mapping[str, Any],
    *,
    zarr_format: ZarrFormat | None = 3,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: Missing = "fill",
    durable: bool = False,
) -> Iterator[tuple[str, Array | Group]]:
    """Make many arrays and groups at once, by path in the store; returns (path, node) of each.

    Each node is the options of `create_array` but `data` (those of a group have no `shape`), a document as it
    is stored, or metadata of zarr-python's; `zarr_format` is for those that do not say theirs. Groups on the
    way are made where there are none.

    >>> grid = {"shape": (180, 360), "dtype": "f4"}
    >>> made = dict(create_hierarchy("memory://", {"": {"attributes": {"a": 1}}, "t2m": grid, "u/10": grid}))
    >>> made["u/10"].shape
    (180, 360)

    All is there when the call returns. A new group is seen when all that lies below it is there; until then a
    key says that it is being made, so that the same call clears away what was interrupted. In a group
    that is there already, each node comes by itself. Over a network that takes two rounds of requests, the
    new places being listed and the documents put; a new group takes one more, for its own document. Its
    key is put while the places are listed; nobody waits for its removal.

    Raises
        StoreError: there is a node already (unless `overwrite`, which replaces it and what is below it).
        MetadataError, UnsupportedError: something makes no node, or an array is to hold nodes.
    """
    access = Access(allow_pickle=allow_pickle, missing=missing)
    opened = open_store(store, storage_options=storage_options, durable=durable)
    return make_hierarchy(opened, "", nodes, zarr_format, access, overwrite=overwrite)


def consolidate(
    target: Group | StoreLike,
    path: str | None = None,
    *,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Write the metadata of everything below a group into the group's own document; returns the group.

    Readers then open every array below with one read. Any change that zstore makes below the group removes it
    again; consolidate when the writing is done. `durable` as for `open`.

    Raises
        NotFoundError: there is no group.
        MetadataError: a document below is no JSON object.
    """
    if isinstance(target, Group):
        group = target if not path else target[path]
        if not isinstance(group, Group):
            raise MetadataError("an array is there, expected a group", path=place(target.store, group.path))
        group = group.as_durable() if durable else group
    else:
        group = open_group(target, path, "r+", durable=durable, storage_options=storage_options)
    return group.consolidate()


class _Found(NamedTuple):
    """The result of looking for a node: store, path, mode and model; None if the mode replaces the node."""

    store: Store
    path: str
    mode: Mode
    model: ArrayModel | GroupModel | None


def _look(
    store: StoreLike,
    path: str | None,
    mode: Mode | None,
    zarr_format: ZarrFormat | None,
    storage_options: Mapping[str, Any] | None,
    durable: bool,
    what: str,
) -> _Found:
    if mode is not None and mode not in MODES:
        raise MetadataError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
    path, asked = check_path(path), mode
    with _span(store) if tracing.is_on else NOTHING as noted:
        opened = _open_store(store, mode or "r+", storage_options, durable, what)
        if mode is None:
            mode = "r" if opened.read_only else "r+"
        elif mode != "r" and opened.read_only:
            try:
                opened.check_writable(path)
            except ReadOnlyError as error:
                message = f"{error.message}; expected mode='r', not {mode!r}"
                raise ReadOnlyError(message, path=place(opened, path)) from None
        model = read_node(opened, path, zarr_format) if mode in ("r", "r+", "a") else None
        if model is None and mode in ("r", "r+"):
            file = open_by_content(store, storage_options)
            if file is None:
                raise _nothing(opened, path, zarr_format, what)
            return _look(file[0], join_key(file[1], path), asked, zarr_format, None, durable, what)
        if tracing.is_on:
            noted.note_later(_shown, opened, path)
    return _Found(opened, path, mode, model)


def _span(store: StoreLike) -> AnySpan | NearSpan:
    """The span of an open, which on this machine may be brief: no requests lie below it."""
    is_near = ":" not in store if isinstance(store, str) else isinstance(store, os.PathLike | LocalStore)
    return NearSpan(OPEN, tracing.brief, note_near) if is_near else span("open")


def _shown(store: Store, path: str) -> dict[str, Any]:
    return {"node": without_secrets(place(store, path))}


def _open_store(
    store: StoreLike, mode: Mode, storage_options: Mapping[str, Any] | None, durable: bool, what: str
) -> Store:
    try:
        return open_store(
            store,
            read_only=mode == "r",
            storage_options=storage_options,
            durable=durable,
            is_new=mode not in ("r", "r+"),
        )
    except StoreError as error:
        if error.errno != errno.ENOTDIR or mode in ("w", "w-"):
            raise
        message = f"no {what} there; {error.message.removeprefix('cannot open: ')}"
        raise NotFoundError(message, path=error.path) from error


@contextmanager
def _advised(mode: Mode) -> Iterator[None]:
    """A context whose errors advise mode 'w', if the mode was 'w-'."""
    try:
        yield
    except StoreError as error:
        if mode == "w-":
            error.message = error.message.replace("pass overwrite=True", "pass mode='w'")
        raise


def _check_options(options: Mapping[str, Any]) -> None:
    if "overwrite" in options:
        message = f"overwrite is {options['overwrite']!r}; expected mode='w', which replaces what is there"
        raise MetadataError(message)


def _makes_array(options: Mapping[str, Any]) -> bool:
    return options.get("shape") is not None or options.get("data") is not None


def _nothing(store: Store, path: str, zarr_format: ZarrFormat | None, what: str) -> NotFoundError:
    looked_for = LOOKED_FOR.get(zarr_format)
    return NotFoundError(
        f"no {what} there; looked for {looked_for}",
        path=place(store, path),
        hint=partial(say_near, store, path),
    )

"""Opening and making arrays and groups in a store, by path, URL or Store.

Modes, as in zarr-python: "r" must exist, read-only; "r+" must exist; "a" made where missing; "w" replaces the
node at that path (and nothing else); "w-" made, an error where it exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from zstore.engine.documents import (
    check_path,
    create_node,
    place,
    read_node,
)
from zstore.errors import MetadataError, NotFoundError
from zstore.model.array import ArrayModel
from zstore.model.create import make_array_model
from zstore.model.document import check_attributes
from zstore.model.group import GroupModel
from zstore.nodes.create import describe_data, put_array
from zstore.nodes.group import Group, node
from zstore.nodes.info import check_missing
from zstore.storage.base import Store

if TYPE_CHECKING:
    from zstore.nodes.array import Array

__all__ = [
    "consolidate",
    "create_array",
    "create_group",
    "open",
    "open_array",
    "open_group",
]

StoreLike: TypeAlias = str | os.PathLike[str] | Store
MODES = ("r", "r+", "a", "w", "w-")
LOOKED_FOR = {
    1: "meta",
    2: ".zarray, .zgroup",
    3: "zarr.json",
    None: "zarr.json, .zarray, .zgroup, meta (v1)",
}


def open(
    store: StoreLike,
    path: str | None = None,
    mode: str | None = None,
    zarr_format: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: str = "fill",
    **options: Any,
) -> Array | Group:
    """The array or group at `path` of the store.

    `mode` is "a" by default ("r" for a store that is read-only). What is missing is made where the mode says
    so: an array where `shape` is among the `options` (those of `create_array`), a group otherwise.
    `allow_pickle` lets an array's chunks be unpickled, which runs code that they hold: for stores you trust.
    With missing="error", to read a chunk that is not stored is an error, in all arrays of a group; by default
    it reads as the fill value.

    Raises
        NotFoundError: there is nothing, and the mode makes nothing.
        MetadataError, UnsupportedError: what is there cannot be read.
    """
    mode = _default_mode(store, mode)
    opened = _open_store(store, mode, storage_options)
    path = check_path(path)
    if mode in ("r", "r+", "a"):
        model = read_node(opened, path, zarr_format)
        if model is not None:
            return node(
                opened, path, model, read_only=mode == "r", allow_pickle=allow_pickle, missing=missing
            )
        if mode != "a":
            raise _nothing(opened, path, zarr_format, "array or group")
    options = {**options, "zarr_format": zarr_format or 3, "overwrite": mode == "w"}
    if options.get("shape") is None and options.get("data") is None:
        return create_group(opened, path, missing=missing, **options)
    return create_array(opened, path, allow_pickle=allow_pickle, missing=missing, **options)


def open_array(
    store: StoreLike,
    path: str | None = None,
    mode: str | None = None,
    zarr_format: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: str = "fill",
    **options: Any,
) -> Array:
    """The array at `path` of the store; `mode` is "a" by default, `options` are those of `create_array`.

    `allow_pickle` lets its chunks be unpickled, which runs code that they hold: for stores you trust. With
    missing="error", to read a chunk that is not stored is an error; by default it reads as the fill value.

    Raises
        NotFoundError: there is nothing, and the mode (or the lack of a `shape`) makes nothing.
        MetadataError: a group is there, or the metadata cannot be read.
    """
    from zstore.nodes.array import Array

    mode = _default_mode(store, mode)
    opened = _open_store(store, mode, storage_options)
    path = check_path(path)
    if mode in ("r", "r+", "a"):
        model = read_node(opened, path, zarr_format)
        if isinstance(model, ArrayModel):
            return Array(
                opened, path, model, read_only=mode == "r", allow_pickle=allow_pickle, missing=missing
            )
        if model is not None:
            raise MetadataError("a group is there, expected an array", path=place(opened, path))
        if mode != "a" or (options.get("shape") is None and options.get("data") is None):
            raise _nothing(opened, path, zarr_format, "array")
    options = {**options, "zarr_format": zarr_format or 3, "overwrite": mode == "w"}
    return create_array(opened, path, allow_pickle=allow_pickle, missing=missing, **options)


def open_group(
    store: StoreLike,
    path: str | None = None,
    mode: str = "a",
    zarr_format: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    missing: str = "fill",
) -> Group:
    """The group at `path` of the store; `attributes` are for a group that is made, `missing` as for `open`.

    Raises
        NotFoundError: there is nothing, and the mode makes nothing.
        MetadataError: an array is there, or the metadata cannot be read.
    """
    mode = _default_mode(store, mode)
    opened = _open_store(store, mode, storage_options)
    path = check_path(path)
    if mode in ("r", "r+", "a"):
        model = read_node(opened, path, zarr_format)
        if isinstance(model, GroupModel):
            return Group(opened, path, model, read_only=mode == "r", missing=missing)
        if model is not None:
            raise MetadataError("an array is there, expected a group", path=place(opened, path))
        if mode != "a":
            raise _nothing(opened, path, zarr_format, "group")
    return create_group(
        opened,
        path,
        zarr_format=zarr_format or 3,
        attributes=attributes,
        overwrite=mode == "w",
        missing=missing,
    )


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
    fill_value: Any = "auto",
    order: str = "C",
    zarr_format: int | None = 3,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Iterable[str | None] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    missing: str = "fill",
) -> Array:
    """Make an array at `name` of the store (its root by default), and groups above it where there are none.

    chunks       lengths per dimension, one length for all, -1 or None for a whole dimension; "auto": to 1 MiB
    shards       the shape of the stored objects, a multiple of `chunks`, which are then the inner chunks (v3)
    filters, serializer, compressors
                 codecs by name, as v3 or v2 objects, or as codec objects; one, a list, None or "auto": no
                 filters, bytes in the dtype's byte order, zstd
    dtype        whatever numpy takes, or a v3 name such as "bfloat16"; `str` and `bytes` are of any length,
                 `object` needs a codec for objects among `filters` (v2) or as `serializer` (v3)
    fill_value   a value of the dtype; "auto" is zero, of times "not a time"; None is null in v2, "auto" in v3
    order        "F" stores each chunk's first dimension fastest
    allow_pickle that the codec "pickle" may be used; reading such an array takes the same argument
    missing      "error": to read a chunk that is not stored is an error; no part of what is stored

    Raises
        StoreError: there is a node already (unless `overwrite`, which replaces it and nothing else).
        MetadataError, UnsupportedError: arguments that make no array, or none of that format.
    """
    check_missing(missing)
    opened = _open_store(store, "a", storage_options)
    path = check_path(name)
    if data is not None:
        data, shape, dtype = describe_data(data, shape, dtype)
    if shape is None or dtype is None:
        raise MetadataError(
            f"shape is {shape!r} and dtype is {dtype!r}; expected both, or data", path=place(opened, path)
        )
    model = make_array_model(
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        shards=shards,
        filters=filters,
        compressors=compressors,
        serializer=serializer,
        fill_value=fill_value,
        order=order,
        zarr_format=zarr_format or 3,
        attributes=check_attributes(attributes, path=place(opened, path)) if attributes else {},
        chunk_key_encoding=chunk_key_encoding,
        dimension_names=dimension_names,
    )
    return put_array(
        opened, path, model, data=data, overwrite=overwrite, allow_pickle=allow_pickle, missing=missing
    )


def create_group(
    store: StoreLike,
    path: str | None = None,
    *,
    zarr_format: int | None = 3,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    missing: str = "fill",
) -> Group:
    """Make a group at `path` of the store (its root by default), and groups above it where there are none.

    `missing` is for the arrays that are reached through the group, as for `open`.

    Raises
        StoreError: there is a node already (unless `overwrite`, which replaces it and nothing else).
    """
    check_missing(missing)
    opened = _open_store(store, "a", storage_options)
    path = check_path(path)
    plain = check_attributes(attributes, path=place(opened, path)) if attributes else {}
    model = GroupModel(zarr_format or 3, plain)
    create_node(opened, path, model, overwrite=overwrite)
    return Group(opened, path, model, read_only=False, missing=missing)


def consolidate(
    target: Group | StoreLike, path: str | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> Group:
    """Write the metadata of everything below a group into the group's own, and give the group.

    Readers then open every array below with one read. Any change that zstore makes below the group removes it
    again; consolidate when the writing is done.

    Raises
        NotFoundError: there is no group.
        MetadataError: a document below is no JSON object.
    """
    if isinstance(target, Group):
        group = target if not path else target[path]
        if not isinstance(group, Group):
            raise MetadataError("an array is there, expected a group", path=place(target.store, group.path))
    else:
        group = open_group(target, path, "r+", storage_options=storage_options)
    return group.consolidate()


def _default_mode(store: StoreLike, mode: str | None) -> str:
    if mode is None:
        return "r" if isinstance(store, Store) and store.read_only else "a"
    if mode in MODES:
        return mode
    raise MetadataError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")


def _open_store(store: StoreLike, mode: str, storage_options: Mapping[str, Any] | None) -> Store:
    from zstore.storage.url import open_store

    return open_store(store, read_only=mode == "r", storage_options=storage_options)


def _nothing(store: Store, path: str, zarr_format: int | None, what: str) -> NotFoundError:
    return NotFoundError(
        f"no {what} there; looked for {LOOKED_FOR.get(zarr_format)}", path=place(store, path)
    )

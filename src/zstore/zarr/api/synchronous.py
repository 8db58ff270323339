"""`zarr.api.synchronous`: zarr-python's functions, which open, make, save and load."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from zstore.errors import MetadataError, NotFoundError
from zstore.nodes import open as opening
from zstore.nodes.group import Group as StoredGroup
from zstore.zarr.config import ArrayConfig
from zstore.zarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    NodeTypeValidationError,
    ZarrUserWarning,
    raising,
)
from zstore.zarr.info import NodeTree
from zstore.zarr.nodes import Array, Group, make_array, wrap
from zstore.zarr.requests import default_format, legacy_options, like, with_groups, without_ignored
from zstore.zarr.storage import StorePath, find_store

__all__ = [
    "array",
    "consolidate_metadata",
    "copy",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "empty",
    "empty_like",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "save",
    "save_array",
    "save_group",
    "tree",
    "zeros",
    "zeros_like",
]

MODES = ("r", "r+", "a", "w", "w-")


def _find(store: Any, path: str | None, mode: str | None, options: Any, *, is_new: bool = True) -> StorePath:
    """The store and path of a call, read-only in mode "r".

    Raises
        ValueError: a mode that is none.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
    is_new = is_new and mode not in ("r", "r+")
    return find_store(store, path, read_only=mode == "r", is_new=is_new, storage_options=options)


@raising
def open(
    store: Any = None,
    *,
    mode: str | None = None,
    zarr_format: Any = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    config: Any = None,
    **options: Any,
) -> Any:
    """The array or group at a path of a store; in modes "a" (the default), "w" and "w-" made where missing.

    A `shape` among the options makes an array, otherwise a group is made. A read-only store is opened in "r".
    """
    at = _find(store, path, mode, storage_options)
    mode = mode or ("r" if at.read_only else "a")
    if mode in ("r", "r+", "a"):
        try:
            found = opening.open(at.store.held, at.path, _reading(at, mode), zarr_format)
            settings = None if config is None else ArrayConfig.of(config)
            if isinstance(found, StoredGroup):
                _check_group_options(**options)
            return wrap(_unconsolidated(found, mode, options.get("use_consolidated")), at.store, settings)
        except NotFoundError:
            if mode != "a":
                raise
    if "shape" in options or "data" in options:
        return open_array(at, mode=mode, zarr_format=zarr_format, config=config, **options)
    return open_group(at, mode=mode, zarr_format=zarr_format, **options)


def _reading(at: StorePath, mode: str | None) -> Any:
    return "r" if at.read_only or mode == "r" else "r+"


@raising
def open_array(
    store: Any = None,
    *,
    zarr_format: Any = None,
    path: str = "",
    storage_options: Mapping[str, Any] | None = None,
    config: Any = None,
    mode: str | None = None,
    **options: Any,
) -> Array:
    """The array at a path of a store; in modes "a", "w" and "w-" made with these options, where missing.

    Raises
        ArrayNotFoundError: there is none, and the mode makes none.
        NodeTypeValidationError: there is a group.
    """
    at = _find(store, path, mode, storage_options, is_new=mode is not None)
    if mode not in ("w", "w-"):
        try:
            found = opening.open_array(at.store.held, at.path, _reading(at, mode), zarr_format)
            return Array(found, at.store, ArrayConfig.of(config))
        except NotFoundError as error:
            if at.read_only or mode != "a" or "shape" not in options:
                raise ArrayNotFoundError(error.message, path=error.path) from None
        except MetadataError as error:
            is_group = "a group is there" in error.message
            raise NodeTypeValidationError(error.message, path=error.path) if is_group else error from None
    options = {**options, "zarr_format": zarr_format, "overwrite": mode == "w", "config": config}
    return make_array(at, legacy_options(**options))


@raising
def open_group(
    store: Any = None,
    *,
    mode: str = "a",
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    zarr_format: Any = None,
    attributes: Mapping[str, Any] | None = None,
    use_consolidated: bool | str | None = None,
    zarr_version: Any = None,
    **others: Any,
) -> Group:
    """The group at a path of a store; in modes "a" (the default), "w" and "w-" made where missing.

    Consolidated metadata are used where they are there, unless `use_consolidated` is false.

    Raises
        GroupNotFoundError: there is none, and the mode makes none.
        ContainsArrayError: there is an array.
        TypeError: an option that it does not take.
    """
    _check_group_options(**others)
    zarr_format = zarr_format or zarr_version
    at = _find(store, path, mode, storage_options)
    if mode in ("r", "r+", "a"):
        try:
            found = opening.open_group(at.store.held, at.path, _reading(at, mode), zarr_format)
            return Group(_unconsolidated(found, mode, use_consolidated), at.store)
        except NotFoundError:
            if mode != "a" or at.read_only:
                raise
        except MetadataError as error:
            is_array = "an array is there" in error.message
            raise ContainsArrayError(error.message, path=error.path) if is_array else error from None
    return create_group(at, zarr_format=zarr_format, attributes=attributes, overwrite=mode == "w")


def _check_group_options(
    *, attributes: Any = None, use_consolidated: Any = None, zarr_version: Any = None, **others: Any
) -> None:
    """
    Raises
        TypeError: an option that groups do not take.
    """
    for name, value in without_ignored(others).items():
        takes = "mode, path, storage_options, zarr_format, attributes and use_consolidated"
        raise TypeError(f"groups take no {name}={value!r}; expected {takes}")


def _unconsolidated(found: Any, mode: str, use_consolidated: bool | str | None) -> Any:
    """A group without its consolidated metadata, where they are not wanted.

    Raises
        ValueError: they are wanted, and the group has none.
    """
    if not isinstance(found, StoredGroup):
        return found
    if use_consolidated and found.model.consolidated is None:
        raise ValueError("use_consolidated is true; expected a group with consolidated metadata")
    if use_consolidated is not False or found.model.consolidated is None:
        return found
    return StoredGroup(found.store, found.path, replace(found.model, consolidated=None), found.access)


def open_consolidated(*args: Any, use_consolidated: bool = True, **options: Any) -> Group:
    """The group at a path of a store, by its consolidated metadata.

    Raises
        ValueError: it has none.
    """
    if use_consolidated is not True:
        raise TypeError(f"use_consolidated is {use_consolidated!r}; expected True, or `open_group`")
    return open_group(*args, use_consolidated=True, **options)


@raising
def create_array(
    store: Any,
    *,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    zarr_format: Any = 3,
    **options: Any,
) -> Array:
    """Make an array at `name` of a store, its root by default; the arguments are those of zarr-python.

    shape, dtype or data   what it holds; with write_data=False, data give shape and dtype alone
    chunks, shards         lengths, or "auto" (zarr-python's choice); lists of lengths for chunks that differ
    filters, serializer, compressors
                           codecs, as `zarr.codecs` has them or by zstore's names; "auto": zarr-python's
    fill_value, order, zarr_format, attributes, chunk_key_encoding, dimension_names, overwrite, config
                           as in zarr-python

    Raises
        ContainsArrayError: there is a node already, and `overwrite` is false.
        ValueError, TypeError: arguments that make no array.
    """
    return make_array(_find(store, name, None, storage_options), {**options, "zarr_format": zarr_format})


@raising
def create(
    shape: Any,
    *,
    store: Any = None,
    path: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    data: Any = None,
    **options: Any,
) -> Array:
    """Make an array, in memory without a store, of float64 without a dtype; also by zarr-python 2's names."""
    at = _find(store, path, mode, storage_options)
    made = make_array(at, {**legacy_options(shape, **options), "overwrite": overwrite or mode == "w"})
    if data is not None:
        made[...] = data
    return made


def empty(shape: Any, **options: Any) -> Array:
    """Make an array without writing any items; see `create`."""
    return create(shape, **options)


def zeros(shape: Any, **options: Any) -> Array:
    """Make an array whose items are 0 until they are written; see `create`."""
    return create(shape, **{"fill_value": 0, **options})


def ones(shape: Any, **options: Any) -> Array:
    """Make an array whose items are 1 until they are written; see `create`."""
    return create(shape, **{"fill_value": 1, **options})


def full(shape: Any, fill_value: Any, **options: Any) -> Array:
    """Make an array whose items are `fill_value` until they are written; see `create`."""
    return create(shape, fill_value=fill_value, **options)


@raising
def empty_like(a: Any, *, zarr_format: Any = None, **options: Any) -> Array:
    """Make an array of the shape, dtype, chunks and codecs of `a`, without writing any items."""
    given = like(a, zarr_format)
    place = [options.pop(name, None) for name in ("store", "path", "storage_options")]
    at = _find(place[0], place[1], None, place[2])
    wanted = {**given, "zarr_format": zarr_format or given.get("zarr_format")}
    return make_array(at, wanted | _modern(options))


def _modern(options: dict[str, Any]) -> dict[str, Any]:
    """Options of `create` as those of `create_array`, without what `create` fills in."""
    made = legacy_options(**{"shape": None, **options})
    kept = {*options, *(("filters", "serializer", "compressors") if options.get("codecs") else ())}
    renamed = {
        "chunk_shape": "chunks",
        "dimension_separator": "chunk_key_encoding",
        "write_empty_chunks": "config",
    }
    return {name: made[name] for name in {renamed.get(name, name) for name in kept} if name in made}


def zeros_like(a: Any, **options: Any) -> Array:
    """Make an array like `a`, whose items are 0 until they are written."""
    return empty_like(a, **{"fill_value": 0, **options})


def ones_like(a: Any, **options: Any) -> Array:
    """Make an array like `a`, whose items are 1 until they are written."""
    return empty_like(a, **{"fill_value": 1, **options})


def full_like(a: Any, **options: Any) -> Array:
    """Make an array like `a`, whose items are `fill_value` until they are written."""
    return empty_like(a, **options)


def array(data: Any, **options: Any) -> Array:
    """Make an array with these items; a copy of an array has its chunks and codecs."""
    if isinstance(data, Array):
        return from_array(options.pop("store", None), data=data, name=options.pop("path", None), **options)
    items = data if hasattr(data, "shape") and hasattr(data, "dtype") else np.asanyarray(data)
    made = create(**{"dtype": items.dtype, **options, "shape": items.shape})
    made[...] = np.asarray(items)
    return made


@raising
def from_array(
    store: Any,
    *,
    data: Any,
    write_data: bool = True,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    zarr_format: Any = None,
    **options: Any,
) -> Array:
    """Make an array like `data` with its items, copied chunk by chunk; "keep", the default, keeps its own."""
    given = {
        name: value for name, value in options.items() if not (isinstance(value, str) and value == "keep")
    }
    kept = like(data, zarr_format)
    if isinstance(data, Array):
        kept |= {"attributes": data.attrs.asdict(), "dimension_names": data.node.dims}
        if kept.get("zarr_format") == 2:
            kept["order"] = data.order
    if "chunks" in given and "shards" not in given:
        kept.pop("shards", None)
    wanted = {**kept, "zarr_format": zarr_format or kept.get("zarr_format"), **given}
    made = make_array(_find(store, name, None, storage_options), wanted)
    if write_data:
        items = data if hasattr(data, "shape") else np.asarray(data)
        for box in _boxes(made):
            made[box] = items[box]
    return made


def _boxes(array: Array) -> Iterator[Any]:
    """The selections of the stored objects of an array, one after the other."""
    grid = array.node.model.grid
    borders = (grid.borders(axis, length).tolist() for axis, length in enumerate(array.shape))
    sides = [[slice(*pair) for pair in pairwise(along)] for along in borders]
    return product(*sides) if sides else iter([...])


@raising
def create_group(
    store: Any,
    *,
    path: str | None = None,
    zarr_format: Any = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Make a group at a path of a store, and the groups above it that do not exist.

    Raises
        ContainsGroupError: there is a node already, and `overwrite` is false.
    """
    at = _find(store, path, None, storage_options)
    wanted: Any = zarr_format or default_format()
    made = opening.create_group(
        at.store.held,
        at.path,
        zarr_format=wanted,
        attributes=attributes,
        overwrite=overwrite,
    )
    return Group(made, at.store)


def group(
    store: Any = None,
    *,
    overwrite: bool = False,
    path: str | None = None,
    zarr_format: Any = None,
    attributes: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Group:
    """The group at a path of a store, in memory without one; made where it is missing."""
    options = {"path": path, "zarr_format": zarr_format, "attributes": attributes, **others}
    return open_group(store, mode="w" if overwrite else "a", storage_options=storage_options, **options)


@raising
def create_hierarchy(
    *, store: Any, nodes: Mapping[str, Any], overwrite: bool = False
) -> Iterator[tuple[str, Any]]:
    """Make many arrays and groups by their metadata, and the groups between them; (path, node) of each."""
    at = _find(store, None, None, None)
    wanted = with_groups(nodes, has_root=True)
    made = opening.create_hierarchy(at.store.held, wanted, overwrite=overwrite)
    return ((path, wrap(node, at.store)) for path, node in made)


def save_array(
    store: Any,
    arr: Any,
    *,
    zarr_format: Any = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    mode: str = "a",
    **options: Any,
) -> None:
    """Save one array.

    Raises
        TypeError: it is none.
        ContainsArrayError: there is a node already, and neither `overwrite` nor mode "w" is given.
    """
    if not hasattr(arr, "shape") or not hasattr(arr, "dtype"):
        raise TypeError(f"arr is {type(arr).__name__}; expected an array")
    chunks = options.pop("chunks", getattr(arr, "chunks", None))
    create(
        arr.shape,
        dtype=arr.dtype,
        chunks=chunks,
        data=np.asarray(arr),
        store=store,
        path=path,
        zarr_format=zarr_format,
        storage_options=storage_options,
        mode=mode,
        **options,
    )


@raising
def save_group(
    store: Any,
    *args: Any,
    zarr_format: Any = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **named: Any,
) -> None:
    """Save arrays in a new group in the place of any node, under their names or as arr_0, arr_1, ..."""
    if not args and not named:
        raise ValueError("there is nothing to save; expected at least one array")
    several = {**{f"arr_{k}": data for k, data in enumerate(args)}, **named}
    for name, data in several.items():
        if not hasattr(data, "dtype"):
            raise TypeError(f"{name} is {type(data).__name__}; expected an array")
    at = _find(store, path, "w", storage_options)
    made = create_group(at, zarr_format=zarr_format, overwrite=True)
    for name, data in several.items():
        save_array(made.store_path, data, zarr_format=made.zarr_format, path=name)


def save(store: Any, *args: Any, **options: Any) -> None:
    """Save one array, or several in a group."""
    named = {name for name in options if name not in ("zarr_format", "path", "storage_options")}
    if not args and not named:
        raise ValueError("there is nothing to save; expected at least one array")
    (save_array if len(args) == 1 and not named else save_group)(store, *args, **options)


@raising
def load(store: Any, path: str | None = None, zarr_format: Any = None) -> Any:
    """Load the array at a path into memory, or a dictionary of all arrays directly in the group there."""
    found = open(store, path=path, mode="r", zarr_format=zarr_format)
    return found[...] if isinstance(found, Array) else {name: one[...] for name, one in found.arrays()}


@raising
def consolidate_metadata(store: Any, path: str | None = None, zarr_format: Any = None) -> Group:
    """Write the metadata of everything below a group into the group's own document; returns the group.

    Warns
        ZarrUserWarning: no specification of Zarr v3 has consolidated metadata.
    """
    at = _find(store, path, "r+", None)
    found = opening.open_group(at.store.held, at.path, "r+", zarr_format)
    if found.zarr_format == 3:
        said = "consolidated metadata are not part of the specification of Zarr v3"
        warnings.warn(said, ZarrUserWarning, stacklevel=3)
    return Group(found.consolidate(), at.store)


def open_like(a: Any, path: str, *, store: Any = None, **options: Any) -> Array:
    """The array at a path, made like `a` where it is missing."""
    return open_array(
        store, path=path, **{"mode": "a", **{k: v for k, v in like(a).items() if k in KEPT}, **options}
    )


KEPT = ("shape", "dtype", "chunks", "fill_value")


def tree(grp: Group, expand: bool | None = None, level: int | None = None) -> NodeTree:
    """A drawing of a group and the nodes below it."""
    return grp.tree(expand, level)


def copy(*args: Any, **options: Any) -> Any:
    """Nothing, as in zarr-python 3.

    Raises
        NotImplementedError: always; the message has the way to do it.
    """
    raise NotImplementedError("expected zstore.copy(source, target), for stores, groups and arrays")


copy_all = copy_store = copy

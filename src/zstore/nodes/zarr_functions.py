"""Functions under the names of zarr-python's: each creates, opens, saves or loads in one call."""

from __future__ import annotations

from typing import Any

from zstore.engine.documents import place
from zstore.errors import MetadataError, NotFoundError
from zstore.nodes.array import Array
from zstore.nodes.group import Group, Tree
from zstore.nodes.open import StoreLike, create_array, open_group
from zstore.nodes.open import open as open_node
from zstore.nodes.zarr_names import like
from zstore.storage.memory import MemoryStore


def create(shape: Any, *, store: StoreLike | None = None, path: str | None = None, **options: Any) -> Array:
    """Create an array: in memory without a store, of float64 without a dtype.

    `options` are those of `zstore.create_array`.

    Raises
        TypeError: an option of zarr-python's; the message has the one that replaces it.
        otherwise as `zstore.create_array`.
    """
    return _create(store, path, {"shape": shape, "dtype": "f8", **options})


def _create(store: StoreLike | None, path: str | None, options: dict[str, Any]) -> Array:
    return create_array(MemoryStore() if store is None else store, path, **options)


def empty(shape: Any, **options: Any) -> Array:
    """Create an array without writing any items; see `zstore.create`."""
    return create(shape, **options)


def zeros(shape: Any, **options: Any) -> Array:
    """Create an array whose items are 0 until they are written; see `zstore.create`."""
    return create(shape, **options)


def ones(shape: Any, **options: Any) -> Array:
    """Create an array whose items are 1 until they are written; see `zstore.create`."""
    return create(shape, **{"fill_value": 1, **options})


def full(shape: Any, fill_value: Any, **options: Any) -> Array:
    """Create an array whose items are `fill_value` until they are written; see `zstore.create`."""
    return create(shape, fill_value=fill_value, **options)


def array(data: Any, *, store: StoreLike | None = None, path: str | None = None, **options: Any) -> Array:
    """Create an array with these items; a copy of an array of zstore's has its chunks, codecs and names.

    Without a store it is in memory; `options` are those of `zstore.create_array`.
    """
    return _create(store, path, {**(like(data) if isinstance(data, Array) else {}), "data": data, **options})


def empty_like(
    data: Any, *, store: StoreLike | None = None, path: str | None = None, **options: Any
) -> Array:
    """Create an array of the shape, dtype, chunks and codecs of `data`, without writing any items."""
    kept = like(data)
    if isinstance(data, Array):
        kept["zarr_format"] = data.zarr_format
    return _create(store, path, {**kept, **options})


def zeros_like(data: Any, **options: Any) -> Array:
    """Create an array like `data`, whose items are 0 until they are written; see `empty_like`."""
    return empty_like(data, **options)


def ones_like(data: Any, **options: Any) -> Array:
    """Create an array like `data`, whose items are 1 until they are written; see `empty_like`."""
    return empty_like(data, **{"fill_value": 1, **options})


def full_like(data: Any, fill_value: Any, **options: Any) -> Array:
    """Create an array like `data`, whose items are `fill_value` until they are written; see `empty_like`."""
    return empty_like(data, fill_value=fill_value, **options)


def group(
    store: StoreLike | None = None, *, path: str | None = None, overwrite: bool = False, **options: Any
) -> Group:
    """Open the group at `path`, or create it if there is none; `overwrite` replaces any node there.

    `options` are those of `zstore.open_group`.
    """
    return open_group(MemoryStore() if store is None else store, path, "w" if overwrite else "a", **options)


def open_consolidated(store: StoreLike, path: str | None = None, **options: Any) -> Group:
    """Open the group at `path` by its consolidated metadata, read-only; `options` as for `open_group`.

    Raises
        NotFoundError: there is no group, or it has no consolidated metadata.
    """
    opened = open_group(store, path, options.pop("mode", "r"), **options)
    if opened.model.consolidated is None:
        where = place(opened.store, opened.path)
        raise NotFoundError("group has no consolidated metadata; zstore.consolidate makes it", path=where)
    return opened


def save(store: StoreLike, *arrays: Any, path: str | None = None, zarr_format: Any = 3, **named: Any) -> None:
    """Save one array at `path`, or several in a group there, under their names or as arr_0, arr_1, ...

    Raises
        StoreError: there is a node of that name already.
    """
    if not arrays and not named:
        raise MetadataError("there is nothing to save; expected at least one array")
    if len(arrays) == 1 and not named:
        create_array(store, path, data=arrays[0], zarr_format=zarr_format)
        return
    made = open_group(store, path, "a", zarr_format)
    for name, data in {**{f"arr_{k}": data for k, data in enumerate(arrays)}, **named}.items():
        made.create_array(name, data=data)


def load(store: StoreLike, path: str | None = None, zarr_format: Any = None) -> Any:
    """Load the array at `path` into memory, or a dictionary of all arrays directly in the group there."""
    node = open_node(store, path, "r", zarr_format)
    if isinstance(node, Array):
        return node[...]
    return {name: member[...] for name, member in node.arrays()}


def tree(group: Group | StoreLike, level: int | None = None, *, storage_options: Any = None) -> Tree:
    """A drawing of the group, or of the one at a URL, and the nodes below it: `group.tree(level)`.

    Raises
        TypeError: it is an array.
        otherwise as `zstore.open_group`.
    """
    if isinstance(group, Array):
        raise TypeError(f"there is no tree of {group!r}; expected a group, or where one is")
    if not isinstance(group, Group):
        group = open_group(group, mode="r", storage_options=storage_options)
    return group.tree(level)

"""`zarr.Array` and `zarr.Group`: zstore's arrays and groups (`node`) under zarr-python's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from zstore.errors import NotFoundError, ZstoreError, missing_name
from zstore.model.v2 import DIMENSIONS
from zstore.nodes import array as arrays
from zstore.nodes import group as groups
from zstore.nodes.open import create_array, create_group, open_array, open_group
from zstore.nodes.zarr_names import MemberNames, SelectionNames
from zstore.storage.base import in_thread
from zstore.zarr.awaited import AsyncArray, AsyncGroup
from zstore.zarr.buffer import NDBuffer
from zstore.zarr.codecs import as_codec
from zstore.zarr.config import ArrayConfig
from zstore.zarr.dtype import strings
from zstore.zarr.errors import (
    ContainsArrayError,
    ContainsGroupError,
    NodeNotFoundError,
    RequestError,
    as_zarr,
    raising,
)
from zstore.zarr.info import Info, NodeTree, array_info, group_info
from zstore.zarr.metadata import model_of, of_node
from zstore.zarr.requests import array_options, like, with_groups
from zstore.zarr.storage import Store, StorePath, find_store

__all__ = ["Array", "Group", "make_array", "wrap"]

Items = npt.NDArray[Any]


def wrap(node: arrays.Array | groups.Group, store: Store, config: ArrayConfig | None = None) -> Any:
    """The array or group of zarr-python's that shows one of zstore's."""
    if isinstance(node, arrays.Array):
        return Array(node, store, config or ArrayConfig.of())
    return Group(node, store)


class _Node:
    """The part of arrays and groups: the node of zstore's, and the store as the program knows it."""

    def __init__(self, node: Any, store: Store) -> None:
        self.node = node
        self._store = store.with_read_only(True) if node.read_only else store

    def __getattr__(self, name: str) -> Any:
        if name in ("node", "_store") or name.startswith("__"):
            raise missing_name(type(self).__name__, name, None)
        found = getattr(self.node, name)
        return raising(found) if callable(found) else found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.node)})

    @property
    def store(self) -> Store:
        """The store that holds the node."""
        return self._store

    @property
    def store_path(self) -> StorePath:
        """The store, and the path in it."""
        return StorePath(self._store, self.node.path)

    @property
    def attrs(self) -> Attributes:
        """The attributes; every change is stored at once."""
        return Attributes(self)

    @property
    def metadata(self) -> Any:
        """The metadata, as zarr-python shows them."""
        return of_node(self.node.model)

    @property
    def name(self) -> str:
        """The path with a leading slash."""
        return f"/{self.node.path}"

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Self:
        """Set several attributes with one write; returns the node."""
        _raising(self.node.update_attributes, new_attributes)
        return self

    def _repr_html_(self) -> str | None:
        return self.node._repr_html_()  # type: ignore[no-any-return]


def _raising(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return raising(function)(*args, **options)


class Attributes(MutableMapping[str, Any]):
    """The attributes of an array or group; every change is stored at once.

    In Zarr v2 the names of dimensions are among them, as zarr-python has them.
    """

    def __init__(self, obj: Any) -> None:
        self._held: Any = obj.node.attrs
        names = getattr(obj.node, "dims", None) if obj.node.zarr_format != 3 else None
        self._beside = {} if names is None else {DIMENSIONS: list(names)}

    def __getitem__(self, key: str) -> Any:
        return self._beside[key] if key in self._beside else self._held[key]

    def __setitem__(self, key: str, value: Any) -> None:
        _raising(self._held.__setitem__, key, value)

    def __delitem__(self, key: str) -> None:
        _raising(self._held.__delitem__, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.asdict())

    def __len__(self) -> int:
        return len(self.asdict())

    def update(self, *args: Any, **named: Any) -> None:
        """Set several attributes with one write."""
        _raising(self._held.update, *args, **named)

    def put(self, d: Mapping[str, Any]) -> None:
        """Replace all attributes with one write."""
        _raising(self._held.put, d)

    def asdict(self) -> dict[str, Any]:
        """A copy as a plain dict."""
        return {**self._held.asdict(), **self._beside}

    def __repr__(self) -> str:
        return f"Attributes({self.asdict()!r})"


class Array(_Node, SelectionNames):
    """A chunked array: `array[selection]` reads, `array[selection] = value` writes.

    `node` is zstore's array, for zstore's functions; its other methods are here, too.
    """

    node: arrays.Array

    def __init__(self, node: Any, store: Store | None = None, config: ArrayConfig | None = None) -> None:
        if store is None:  # made of an AsyncArray
            node, store, config = node.array.node, node.array.store, node.array.config
        self.config = ArrayConfig.of() if config is None else config
        missing = "fill" if self.config.read_missing_chunks else "error"
        access = replace(node.access, keeps_empty=self.config.write_empty_chunks, missing=missing)
        if access != node.access:
            node = arrays.Array(node.store, node.path, node.model, access)
        super().__init__(node, store)

    @classmethod
    def open(cls, store: Any, *, zarr_format: Any = None, config: Any = None) -> Array:
        """The array at a store's root, or at a `StorePath`."""
        at = find_store(store)
        mode: Any = "r" if at.read_only else "r+"
        return cls(
            _raising(open_array, at.store.held, at.path, mode, zarr_format), at.store, ArrayConfig.of(config)
        )

    @classmethod
    def from_dict(cls, store_path: StorePath, data: Mapping[str, Any]) -> Array:
        """An array by its document, which is not written."""
        model = _raising(model_of, data)
        return cls(arrays.Array(store_path.store.held, store_path.path, model), store_path.store)

    def __repr__(self) -> str:
        return f"<Array {self.store_path} shape={self.shape} dtype={self.dtype}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        is_same = (self.path, self.node.model) == (other.path, other.node.model)
        return is_same and self.store == other.store

    __hash__ = None  # type: ignore[assignment]

    @property
    def async_array(self) -> Any:
        """The same array, with methods that are awaited."""
        return AsyncArray(self)

    _async_array = async_array

    def with_config(self, config: Any) -> Array:
        """The same array with another `config`; settings that it leaves out stay."""
        given = config if isinstance(config, ArrayConfig) else replace(self.config, **config)
        return Array(self.node, self.store, given)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the items in memory."""
        return strings() if self._has_strings else self.node.dtype

    @property
    def _has_strings(self) -> bool:
        return self.node.model.data_type.name == "string"

    @property
    def order(self) -> str:
        """The order of results in memory; in Zarr v2, of stored chunks."""
        return self.node.order if self.node.zarr_format == 2 else self.config.order

    @property
    def filters(self) -> tuple[Any, ...]:
        """The array-to-array codecs; in Zarr v2, numcodecs' filters."""
        if self.node.zarr_format != 3:
            return self.metadata.filters or ()
        return tuple(map(as_codec, self.node.filters))

    @property
    def serializer(self) -> Any:
        """The array-to-bytes codec; None in Zarr v2."""
        return self.node.serializer and as_codec(self.node.serializer)

    @property
    def compressors(self) -> tuple[Any, ...]:
        """The bytes-to-bytes codecs; in Zarr v2, numcodecs' compressor."""
        if self.node.zarr_format == 3:
            return tuple(map(as_codec, self.node.compressors))
        return () if self.metadata.compressor is None else (self.metadata.compressor,)

    @property
    def compressor(self) -> Any:
        """The compressor of a Zarr v2 array, or None.

        Raises
            TypeError: the array is of Zarr v3, which may have several.
        """
        if self.node.zarr_format == 3:
            raise TypeError("`compressor` is of Zarr v2; expected `compressors` for an array of Zarr v3")
        return next(iter(self.compressors), None)

    @property
    def nshards_initialized(self) -> int:
        """The number of stored shards, or of chunks where there are no shards."""
        inner = np.prod(np.floor_divide(self.shards, self.chunks)) if self.shards else 1
        return int(self.node.nchunks_initialized // inner)

    _nshards_initialized = nshards_initialized

    @property
    def info(self) -> Info:
        """The summary."""
        return array_info(self)

    def info_complete(self) -> Info:
        """The summary with the stored bytes and chunks, for which the array's keys are listed."""
        return array_info(self, is_complete=True)

    # Reading and writing

    def __getitem__(self, selection: Any) -> Any:
        kind = self.node.oindex if _is_orthogonal(selection, self.ndim) else self.node
        items = self._given(_raising(kind.__getitem__, selection))
        is_scalar = not self.ndim or selection is Ellipsis or _is_point(selection)
        return items if is_scalar else np.asarray(items)

    def __setitem__(self, selection: Any, value: Any) -> None:
        kind = self.node.oindex if _is_orthogonal(selection, self.ndim) else self.node
        _raising(kind.__setitem__, selection, self._taken(value))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Items:
        if copy is False:
            raise ValueError("an array in a store cannot be had without a copy")
        items = np.asarray(self[...])
        return items if dtype is None else items.astype(dtype, copy=False)

    def __len__(self) -> int:
        return len(self.node)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def _given(self, items: Any) -> Any:
        """Items as the program wants them: of numpy's strings, in its order, a single one as a scalar."""
        if self._has_strings:
            items = np.asarray(items, strings())
        if self.order == "F" and np.ndim(items) > 1:
            items = np.asfortranarray(items)
        return items[()] if isinstance(items, np.ndarray) and not items.shape else items

    def _taken(self, value: Any) -> Any:
        value = value.as_ndarray_like() if isinstance(value, NDBuffer) else value
        is_strings = isinstance(value, np.ndarray) and value.dtype.kind == "T"
        return value.astype(object) if is_strings else value

    def _get(self, kind: str, selection: Any, out: Any, fields: Any, prototype: Any) -> Any:
        memory = out.as_ndarray_like() if isinstance(out, NDBuffer) else out
        read = getattr(self.node, f"get_{kind}_selection")
        items = _raising(read, selection, out=memory, fields=fields)
        return items if out is not None else self._given(items)

    def _set(self, kind: str, selection: Any, value: Any, fields: Any, prototype: Any) -> None:
        write = getattr(self.node, f"set_{kind}_selection")
        _raising(write, selection, self._taken(value), fields=fields)

    @property
    def oindex(self) -> Indexed:
        """Selections of each dimension independently."""
        return Indexed(self.get_orthogonal_selection, self.set_orthogonal_selection)

    @property
    def vindex(self) -> Indexed:
        """Selections of points."""
        return Indexed(self.get_coordinate_selection, self.set_coordinate_selection)

    @property
    def blocks(self) -> Indexed:
        """Selections of whole chunks."""
        return Indexed(self.get_block_selection, self.set_block_selection)

    def resize(self, new_shape: int | tuple[int, ...]) -> None:
        """Change the shape in place; see `zstore.Array.resize`."""
        _raising(self.node.resize, new_shape)

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Append `data` along `axis`; returns the new shape."""
        return _raising(self.node.append, self._taken(np.asanyarray(data)), axis)  # type: ignore[no-any-return]


class Indexed:
    """Another kind of selection, by square brackets."""

    def __init__(self, read: Callable[[Any], Any], write: Callable[[Any, Any], None]) -> None:
        self._read, self._write = read, write

    def __getitem__(self, selection: Any) -> Any:
        return np.asarray(self._read(selection))

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._write(selection, value)


def _is_orthogonal(selection: Any, ndim: int) -> bool:
    """Whether zarr-python takes `array[selection]` for one of `array.oindex`, which numpy does not."""
    if not isinstance(selection, tuple):
        return False
    listed = [np.asarray(item) for item in selection if isinstance(item, list | np.ndarray)]
    if not listed or any(items.ndim != 1 for items in listed):
        return False
    if len(listed) == len(selection) == ndim:
        return any(items.dtype == bool for items in listed)
    return len(listed) == 1 and all(
        isinstance(i, int | np.integer | slice | list | np.ndarray) for i in selection
    )


def _is_root(path: Any) -> TypeGuard[str]:
    """Whether a path below a group names the group itself, as "/" does in zarr-python."""
    return isinstance(path, str) and not path.strip("/")


def _is_point(selection: Any) -> bool:
    """Whether zarr-python takes integers for a point, whose item is a scalar: one of them is numpy's."""
    items = selection if isinstance(selection, tuple) else (selection,)
    is_numpys = any(isinstance(item, np.integer) for item in items)
    return is_numpys and all(isinstance(item, int | np.integer) for item in items)


def make_array(at: StorePath, options: Mapping[str, Any]) -> Array:
    """Create an array at a path of a store; `options` are those of zarr-python's `create_array`.

    Raises
        ContainsArrayError: there is a node already, and `overwrite` is false.
    """
    try:
        config, wanted = array_options(**options)
        return Array(create_array(at.store.held, at.path, **wanted), at.store, config)
    except ZstoreError as error:
        raise as_zarr(error) from error.__cause__


class Group(_Node, MemberNames[Array]):
    """A group: a mapping of names to arrays and groups; `node` is zstore's."""

    node: groups.Group

    def __init__(self, node: Any, store: Store | None = None) -> None:
        if store is None:  # made of an AsyncGroup
            node, store = node.group.node, node.group.store
        super().__init__(node, store)

    @classmethod
    def open(cls, store: Any, zarr_format: Any = None, use_consolidated: Any = None) -> Group:
        """The group at a store's root, or at a `StorePath`."""
        at = find_store(store)
        mode: Any = "r" if at.read_only else "r+"
        return cls(_raising(open_group, at.store.held, at.path, mode, zarr_format), at.store)

    @classmethod
    def from_store(
        cls, store: Any, *, attributes: Any = None, zarr_format: Any = 3, overwrite: bool = False
    ) -> Group:
        """Create a group at a store's root, or at a `StorePath`."""
        at, options = find_store(store), {"attributes": attributes, "overwrite": overwrite}
        made = _raising(create_group, at.store.held, at.path, zarr_format=zarr_format, **options)
        return cls(made, at.store)

    def __repr__(self) -> str:
        return f"<Group {self.store_path}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return (self.path, self.zarr_format) == (other.path, other.zarr_format) and self.store == other.store

    __hash__ = None  # type: ignore[assignment]

    @property
    def _async_group(self) -> Any:
        return AsyncGroup(self)

    @property
    def info(self) -> Info:
        """The summary."""
        return group_info(self)

    def info_complete(self) -> Info:
        """The summary with the numbers of nodes below."""
        return group_info(self, is_complete=True)

    synchronizer = None

    # Members

    def _wrapped(self, node: Any) -> Any:
        return wrap(node, self._store)

    def __getitem__(self, path: str) -> Any:
        return self._wrapped(_raising(self._again if _is_root(path) else self.node.__getitem__, path))

    def _again(self, _: str) -> groups.Group:
        """The group itself, as the store has it now."""
        try:
            return open_group(self.node.store, self.path, "r" if self.read_only else "r+", self.zarr_format)
        except NotFoundError as error:
            raise groups.MemberNotFoundError(error.message, path=error.path) from None

    def get(self, path: str, default: Any = None) -> Any:
        """The member of that name, or `default` if there is none."""
        try:
            found = self._again(path) if _is_root(path) else self.node.get(path)
        except groups.MemberNotFoundError:
            return default
        return default if found is None else self._wrapped(found)

    def get_array(self, path: str) -> Array:
        """The array of that name.

        Raises
            ArrayNotFoundError: there is none.
            ContainsGroupError: there is a group.
        """
        found: Array = self._of_kind(path, Array, ContainsGroupError, "a group")
        return found

    def get_group(self, path: str) -> Group:
        """The group of that name.

        Raises
            GroupNotFoundError: there is none.
            ContainsArrayError: there is an array.
        """
        found: Group = self._of_kind(path, Group, ContainsArrayError, "an array")
        return found

    def _of_kind(self, path: str, kind: type, error: type[ZstoreError], what: str) -> Any:
        try:
            found = self[path]
        except groups.MemberNotFoundError as missing:
            raise NodeNotFoundError(missing.message, path=missing.path) from None
        if not isinstance(found, kind):
            raise error(f"there is {what}", path=str(found.store_path))
        return found

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None if _is_root(name) else name in self.node

    def __iter__(self) -> Iterator[str]:
        return iter(self.node)

    def __len__(self) -> int:
        return len(self.node)

    def __delitem__(self, name: str) -> None:
        if name in self.node:
            _raising(self.node.__delitem__, name)

    def __setitem__(self, name: str, value: Any) -> None:
        _raising(self.node.__setitem__, name, np.asanyarray(value))

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> tuple[tuple[str, Any], ...]:
        """(path, member) of the direct members, and of those `max_depth` levels further down (None: all)."""
        if max_depth is not None and max_depth < 0:
            raise RequestError(f"max_depth is {max_depth}; expected 0 or more, or None for all")
        return tuple((path, self._wrapped(one)) for path, one in _raising(self.node.members, max_depth))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """(name, array) of the arrays among the direct members."""
        return ((name, self._wrapped(array)) for name, array in self.node.arrays())

    def groups(self) -> Iterator[tuple[str, Group]]:
        """(name, group) of the groups among the direct members."""
        return ((name, self._wrapped(group)) for name, group in self.node.groups())

    def tree(
        self,
        expand: bool | None = None,
        level: int | None = None,
        *,
        max_nodes: int = 500,
        plain: bool = False,
    ) -> NodeTree:
        """A drawing of the group and at most `max_nodes` nodes, to `level` levels below its members."""
        if expand is not None:
            raise NotImplementedError("'expand' draws nothing in zarr-python 3 either; expected a level")
        drawing = str(self.node.tree(None if level is None else level + 1))
        return NodeTree(drawing, max_nodes, plain=plain)

    # Making

    def create_array(self, name: str, **options: Any) -> Array:
        """Create an array below this group; `options` are those of `zstore.zarr.create_array`."""
        options.pop("storage_options", None)
        if options.setdefault("zarr_format", self.zarr_format) not in (None, self.zarr_format):
            given = options["zarr_format"]
            raise RequestError(
                f"zarr_format is {given} in a group of Zarr v{self.zarr_format}; expected none"
            )
        return make_array(self.store_path / name, {**options, "zarr_format": self.zarr_format})

    create = create_array

    def create_group(self, name: str, *, overwrite: bool = False, attributes: Any = None) -> Group:
        """Create a group below this one."""
        make: Any = partial(self.node.create_group, name)
        if _is_root(name):
            make = partial(create_group, self.node.store, self.path, zarr_format=self.zarr_format)
        made = _raising(make, attributes=attributes, overwrite=overwrite)
        return self._wrapped(made)  # type: ignore[no-any-return]

    def create_hierarchy(
        self, nodes: Mapping[str, Any], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Any]]:
        """Create many nodes below this group, and the groups between them."""
        if itself := [path for path in nodes if _is_root(path)]:
            raise RequestError(f"node {itself[0]!r} is the group itself; expected names of nodes below it")
        made = _raising(self.node.create_hierarchy, with_groups(nodes), overwrite=overwrite)
        return ((path, self._wrapped(node)) for path, node in made)

    def require_group(self, name: str, *, overwrite: bool = False) -> Group:
        """The group of that name, created if there is none.

        Raises
            TypeError: there is an array of that name.
        """
        found = None if overwrite else self.get(name)
        if found is None:
            return self.create_group(name, overwrite=overwrite)
        if not isinstance(found, Group):
            raise TypeError(f"{name!r} is an array; expected a group")
        return found

    def require_array(
        self,
        name: str,
        *,
        shape: Any,
        dtype: Any = None,
        exact: bool = False,
        config: Any = None,
        **options: Any,
    ) -> Array:
        """The array of that name, created if there is none.

        Raises
            TypeError: there is a group, or an array of another shape or dtype.
        """
        found = self.get(name)
        if found is None:
            return self.create_array(name, shape=shape, dtype=dtype, config=config, **options)
        wanted = (shape,) if isinstance(shape, int) else tuple(shape)
        if not isinstance(found, Array) or found.shape != wanted:
            raise TypeError(f"{name!r} is {found!r}; expected an array of shape {wanted}")
        named = dtype.to_native_dtype() if hasattr(dtype, "to_native_dtype") else dtype
        given = found.dtype if named is None else np.dtype(named)
        if given != found.dtype and (exact or not np.can_cast(found.dtype, given)):
            raise TypeError(f"{name!r} has the dtype {found.dtype}; expected {given}")
        return found if config is None else Array(found.node, found.store, ArrayConfig.of(config))

    def _like(self, data: Any) -> dict[str, Any]:
        return like(data, self.zarr_format)

    def zeros_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array like `data`, whose items are 0 until they are written."""
        return self.empty_like(name=name, data=data, **{**options, "fill_value": 0})

    full_like = MemberNames.empty_like

    async def update_attributes_async(self, new_attributes: Mapping[str, Any]) -> Group:
        """`update_attributes`, awaited."""
        return await in_thread(self.update_attributes, new_attributes)

    def move(self, source: str, dest: str) -> None:
        """Nothing, as in zarr-python 3.

        Raises
            NotImplementedError: always; the message has the way to do it.
        """
        raise NotImplementedError(
            f"expected `zstore.convert(group.node[{source!r}], group.node.store, target_path={dest!r})`, "
            f"then `del group[{source!r}]`"
        )


AsyncArray.blocking, AsyncGroup.blocking = Array, Group

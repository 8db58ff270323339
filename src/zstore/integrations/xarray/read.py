"""What xarray reads: arrays as lazy variables, groups as its data stores."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import AbstractDataStore, BackendArray
from xarray.core import indexing

from zstore.errors import MetadataError, NotFoundError
from zstore.integrations.encoding import (
    decode_fill_attribute,
    describe_encoding,
    preferred_chunks,
    split_attributes,
)
from zstore.model.consolidated import Consolidated
from zstore.model.group import GroupModel
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import open_group
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store

__all__ = ["DatasetNotFoundError", "GroupDataStore", "find_group", "open_variable"]


class DatasetNotFoundError(NotFoundError, FileNotFoundError):
    """There is no group to open; xarray's engines raise FileNotFoundError then."""


class LazyArray(BackendArray):
    """An array that xarray reads from when values are needed; selections go down to the chunks."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: Any) -> Any:
        read: Callable[[Any], Any] = self._array.read
        if isinstance(key, indexing.OuterIndexer):
            read = self._array.oindex.__getitem__
        elif isinstance(key, indexing.VectorizedIndexer):
            read = self._array.vindex.__getitem__
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.VECTORIZED, lambda parts: self._values(read(parts))
        )

    async def async_getitem(self, key: Any) -> Any:
        """The same, while the event loop goes on."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _values(self, found: Any) -> np.ndarray[Any, Any]:
        return found if isinstance(found, np.ndarray) else np.asarray(found, self.dtype)


def open_variable(array: Array, *, masks_fill: bool) -> xr.Variable:
    """The array as a variable, not decoded yet.

    `masks_fill` takes the array's fill value for CF's `_FillValue`, as is the custom in Zarr v2.

    Raises
        MetadataError: a dimension has no name, or `_FillValue` is no value of the dtype.
    """
    dimensions, attributes = split_attributes(array)
    encoding = {**describe_encoding(array), "preferred_chunks": preferred_chunks(array, dimensions)}
    if masks_fill:
        if array.fill_value is not None:
            attributes["_FillValue"] = array.fill_value
    elif array.zarr_format == 3:
        encoding["fill_value"] = array.fill_value
        if "_FillValue" in attributes:
            where = join_key(array.store.url, array.path)
            attributes["_FillValue"] = decode_fill_attribute(attributes["_FillValue"], array.dtype, where)
    data = indexing.LazilyIndexedArray(LazyArray(array))
    return xr.Variable(dimensions, data, attributes, encoding)


class GroupDataStore(AbstractDataStore):
    """One group's arrays as variables, for xarray to decode."""

    def __init__(
        self,
        group: Group,
        *,
        drop_variables: str | Iterable[str] | None = None,
        masks_fill: bool | None = None,
        owned: Store | None = None,
    ) -> None:
        self.group = group
        self.dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        self.masks_fill = group.zarr_format == 2 if masks_fill is None else masks_fill
        self.owned = owned

    def get_variables(self) -> dict[str, xr.Variable]:
        """The group's arrays; what is dropped is not even looked at."""
        names = [name for name in self.group.array_keys() if name not in self.dropped]
        found = {}
        for name in names:
            array = self.group[name]
            assert isinstance(array, Array)
            found[name] = open_variable(array, masks_fill=self.masks_fill)
        return found

    def get_attrs(self) -> dict[str, Any]:
        """The group's attributes, without NCZarr's own."""
        found = self.group.attrs.asdict()
        return {name: value for name, value in found.items() if not name.lower().startswith("_nc")}

    def close(self) -> None:
        """Close the store where it was opened for this dataset."""
        if self.owned is not None:
            self.owned.close()


def find_group(
    target: Any,
    group: str | None,
    consolidated: bool | None,
    storage_options: Mapping[str, Any] | None,
    zarr_format: int | None,
) -> tuple[Group, Store | None]:
    """The group to read, and the store if it was opened here."""
    path = (group or "").strip("/")
    owned: Store | None = None
    if isinstance(target, Group):
        store, base = target.store, target.path
    else:
        store, base = open_store(target, read_only=True, storage_options=storage_options), ""
        owned = store if isinstance(target, str | os.PathLike) else None
    try:
        return _find_group(store, base, path, consolidated, zarr_format), owned
    except NotFoundError as error:
        _close(owned)
        raise DatasetNotFoundError(error.message, path=error.path) from error
    except BaseException:
        _close(owned)
        raise


def _close(store: Store | None) -> None:
    if store is not None:
        store.close()


def _find_group(
    store: Store, base: str, path: str, consolidated: bool | None, zarr_format: int | None
) -> Group:
    """The group below `base`, through the consolidated metadata of either, as far as they may be used."""
    if consolidated is False:
        found = open_group(store, join_key(base, path), "r", zarr_format)
        plain = GroupModel(found.zarr_format, found.model.attributes, None, found.model.extra)
        return Group(store, found.path, plain, Access(read_only=True))
    try:
        root = open_group(store, base, "r", zarr_format)
    except NotFoundError:
        # A group may stand in a directory that is none itself.
        if not path:
            raise
        root = open_group(store, join_key(base, path), "r", zarr_format)
        path = ""
    if path and isinstance(root.model.consolidated, Consolidated):
        member = root[path]
        if not isinstance(member, Group):
            raise MetadataError("an array is there, expected a group", path=join_key(store.url, base, path))
    else:
        member = open_group(store, join_key(base, path), "r", zarr_format) if path else root
    if consolidated and not isinstance(member.model.consolidated, Consolidated):
        raise MetadataError("there is no consolidated metadata", path=join_key(store.url, base, path))
    return member

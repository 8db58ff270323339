"""xarray's engine "zstore": datasets and trees of them, opened lazily; `ds.zstore` writes them.

    xr.open_dataset("era5.zarr", engine="zstore", chunks={})

What is opened equals what xarray's own engine "zarr" opens: values, attributes, coordinates and encodings.
Only `preferred_chunks` are the stored objects (shards, where there are), which are best fetched whole.

Spec
    xarray, "How to add a new backend"; its "Zarr Encoding Specification".
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint
from xarray.core import indexing

from zstore.array import Array
from zstore.errors import MetadataError, NotFoundError
from zstore.group import Group
from zstore.integrations.xarray_encoding import (
    decode_fill_attribute,
    describe_encoding,
    preferred_chunks,
    split_attributes,
)
from zstore.model.consolidated import Consolidated
from zstore.model.group import GroupModel
from zstore.opening import open_group
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store

__all__ = ["DatasetNotFoundError", "ZstoreBackendEntrypoint", "open_variable"]

ZARR_MARKS = ("zarr.json", ".zgroup", ".zmetadata")
ENDINGS = (".zarr", ".zarr.zip")


class DatasetNotFoundError(NotFoundError, FileNotFoundError):
    """There is no group to open; xarray's engines raise FileNotFoundError then."""


class LazyArray(BackendArray):
    """An array that xarray reads from when values are needed; selections go down to the chunks."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: Any) -> Any:
        read: Callable[[Any], Any] = self.array.read
        if isinstance(key, indexing.OuterIndexer):
            read = self.array.oindex.__getitem__
        elif isinstance(key, indexing.VectorizedIndexer):
            read = self.array.vindex.__getitem__
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


class ZstoreBackendEntrypoint(BackendEntrypoint):
    """Opens Zarr of every format, in any store that zstore has."""

    description = "Open Zarr (v1, v2, v3, sharded) from any store using zstore"
    url = "https://docs.xarray.dev/en/stable/internals/how-to-add-new-backend.html"
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is called .zarr, is a directory that holds Zarr, or is one of zstore's objects."""
        if isinstance(filename_or_obj, Group | Store):
            return True
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        text = os.fspath(filename_or_obj)
        if not isinstance(text, str):
            return False
        if text.rstrip("/").lower().endswith(ENDINGS):
            return True
        return "://" not in text and any((Path(text) / mark).is_file() for mark in ZARR_MARKS)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: int | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
    ) -> xr.Dataset:
        """The group's arrays as a dataset, decoded by xarray.

        consolidated  True: consolidated metadata must be there; False: it is not used; None: used where it is
        use_zarr_fill_value_as_mask
                      whether an array's fill value means missing values; None: in Zarr v2 only

        Raises
            DatasetNotFoundError: there is no such group.
            MetadataError: an array without dimension names, or no consolidated metadata where it must be.
        """
        opened, owned = _open_group(filename_or_obj, group, consolidated, storage_options, zarr_format)
        source = GroupDataStore(
            opened, drop_variables=drop_variables, masks_fill=use_zarr_fill_value_as_mask, owned=owned
        )
        try:
            return StoreBackendEntrypoint().open_dataset(
                source,
                mask_and_scale=mask_and_scale,
                decode_times=decode_times,
                concat_characters=concat_characters,
                decode_coords=decode_coords,
                drop_variables=drop_variables,
                use_cftime=use_cftime,
                decode_timedelta=decode_timedelta,
            )
        except BaseException:
            source.close()
            raise

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: int | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
    ) -> dict[str, xr.Dataset]:
        """The group and all groups below it as datasets, by path; "/" is the group itself."""
        opened, owned = _open_group(filename_or_obj, group, consolidated, storage_options, zarr_format)
        try:
            groups = {"/": opened}
            groups |= {f"/{p}": g for p, g in opened.members(None) if isinstance(g, Group)}
            return {
                path: StoreBackendEntrypoint().open_dataset(
                    GroupDataStore(
                        member,
                        drop_variables=drop_variables,
                        masks_fill=use_zarr_fill_value_as_mask,
                        owned=owned if path == "/" else None,
                    ),
                    mask_and_scale=mask_and_scale,
                    decode_times=decode_times,
                    concat_characters=concat_characters,
                    decode_coords=decode_coords,
                    drop_variables=drop_variables,
                    use_cftime=use_cftime,
                    decode_timedelta=decode_timedelta,
                )
                for path, member in groups.items()
            }
        except BaseException:
            if owned is not None:
                owned.close()
            raise

    def open_datatree(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: int | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
    ) -> xr.DataTree:
        """The group and all groups below it as a tree."""
        datasets = self.open_groups_as_dict(
            filename_or_obj,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
            group=group,
            consolidated=consolidated,
            storage_options=storage_options,
            zarr_format=zarr_format,
            use_zarr_fill_value_as_mask=use_zarr_fill_value_as_mask,
        )
        try:
            tree = xr.DataTree.from_dict(datasets)
        except BaseException:
            datasets["/"].close()
            raise
        tree.set_close(datasets["/"].close)
        return tree


def _open_group(
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
        return Group(store, found.path, plain, read_only=True)
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

"""xarray's engine "zstore": datasets and trees of them, opened lazily; `ds.zstore` writes them.

    xr.open_dataset("era5.zarr", engine="zstore", chunks={})

What is opened equals what xarray's own engine "zarr" opens: values, attributes, coordinates and encodings.
Only `preferred_chunks` are the stored objects (shards, where there are), which are best fetched whole.

Spec
    xarray, "How to add a new backend"; its "Zarr Encoding Specification".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint, StoreBackendEntrypoint

from zstore.integrations.xarray.accessor import to_geozarr, to_zarr
from zstore.integrations.xarray.read import DatasetNotFoundError, GroupDataStore, find_group
from zstore.nodes.group import Group
from zstore.storage.base import Store

__all__ = ["DatasetNotFoundError", "ZstoreBackendEntrypoint", "to_geozarr", "to_zarr"]

ZARR_MARKS = ("zarr.json", ".zgroup", ".zmetadata")
ENDINGS = (".zarr", ".zarr.zip")


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
        opened, owned = find_group(filename_or_obj, group, consolidated, storage_options, zarr_format)
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
        opened, owned = find_group(filename_or_obj, group, consolidated, storage_options, zarr_format)
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

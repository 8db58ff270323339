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

from zstore.conventions.packing import Packing
from zstore.errors import MetadataError
from zstore.integrations.xarray.read import DatasetNotFoundError, GroupDataStore, find_group
from zstore.model.array import ZarrFormat
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
    # Said here because xarray finds no names behind `**`.
    open_dataset_parameters = (
        "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables",
        "use_cftime", "decode_timedelta", "group", "consolidated", "storage_options", "zarr_format",
        "use_zarr_fill_value_as_mask",
    )  # fmt: skip

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether the source is called .zarr, is a directory that holds Zarr, or an object of zstore."""
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

    def open_dataset(self, filename_or_obj: Any, **options: Any) -> xr.Dataset:
        """The group's arrays as a dataset, decoded by xarray, whose own options are as for its other engines.

        group         the group's path in the store
        consolidated  True: consolidated metadata must be there; False: it is not used; None: used where it is
        storage_options, zarr_format
                      as for `zstore.open_group`
        use_zarr_fill_value_as_mask
                      whether an array's fill value means missing values; None: in Zarr v2 only

        Raises
            DatasetNotFoundError: there is no such group.
            MetadataError: an array without dimension names, or no consolidated metadata where it must be.
        """
        return _open(filename_or_obj, has_below=False, **options)["/"]

    def open_groups_as_dict(self, filename_or_obj: Any, **options: Any) -> dict[str, xr.Dataset]:
        """The group and all groups below it as datasets, by path; "/" is the group itself."""
        return _open(filename_or_obj, has_below=True, **options)

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """The group and all groups below it as a tree."""
        datasets = _open(filename_or_obj, has_below=True, **options)
        try:
            tree = xr.DataTree.from_dict(datasets)
        except BaseException:
            datasets["/"].close()
            raise
        tree.set_close(datasets["/"].close)
        return tree


def _open(
    source: Any,
    *,
    has_below: bool,
    drop_variables: str | Iterable[str] | None = None,
    group: str | None = None,
    consolidated: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    zarr_format: ZarrFormat | None = None,
    use_zarr_fill_value_as_mask: bool | None = None,
    **decoding: Any,
) -> dict[str, xr.Dataset]:
    """The group and those below it as datasets by path; the first one closes a store that was opened here."""
    opened, owned = find_group(source, group, consolidated, storage_options, zarr_format)
    try:
        groups = {"/": opened}
        if has_below:
            groups |= {f"/{path}": g for path, g in opened.members(None) if isinstance(g, Group)}
        return {
            path: StoreBackendEntrypoint().open_dataset(
                GroupDataStore(
                    member,
                    drop_variables=drop_variables,
                    masks_fill=use_zarr_fill_value_as_mask,
                    owned=owned if path == "/" else None,
                ),
                drop_variables=drop_variables,
                **decoding,
            )
            for path, member in groups.items()
        }
    except BaseException:
        if owned is not None:
            owned.close()
        raise


def to_zarr(
    data: xr.Dataset | xr.DataArray | xr.DataTree,
    store: Any,
    *,
    group: str | None = None,
    zarr_format: ZarrFormat | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Write a dataset, a data array or a tree to a store: path, URL, `Store` or `Group`.

    Gives the `Group`, or with compute=False what dask computes. Of a tree every node goes to the group of its
    name, and all nodes are checked before the first is written.

    mode          "w-" makes the group (the default), "w" replaces it, "a" adds variables and replaces those
                  there are, "a-" leaves those without `append_dim` alone, "r+" writes values only
    encoding      per variable: `chunks`, `shards`, `compressors`, `filters`, `serializer`, `fill_value`,
                  `chunk_key_encoding`, and what CF has: `dtype`, `scale_factor`, `_FillValue`, `units`, ...;
                  of a tree, all this per path of a node ("/a/b")
    consolidated  whether the root's metadata is consolidated at the end; None: where metadata was written
    append_dim    the dimension along which the dataset goes behind what there is
    region        slices by dimension, or "auto" for those that the coordinates tell: "auto" alone for all
    safe_chunks   refuse dask chunks that meet within a stored object (a shard, where there are)
    align_chunks  cut dask's chunks along the stored objects instead
    compute       False: values that dask has are left to what is given back
    write_inherited_coords
                  of a tree: write coordinates that nodes inherit at each of them

    Raises
        StoreError: the group is there already (mode "w-").
        NotFoundError: it is not (mode "r+").
        MetadataError: what is given contradicts itself or what is there; nothing was written then.
    """
    from zstore.integrations.xarray.write import Options, open_place, write_dataset, write_tree

    with open_place(store, group, zarr_format, storage_options) as place:
        if isinstance(data, xr.DataTree):
            return write_tree(data, place, **options)
        return write_dataset(_as_dataset(data), place, Options(**options))


def to_geozarr(
    data: xr.Dataset | xr.DataArray,
    store: Any,
    *,
    levels: int | None = 0,
    method: str = "average",
    profile: str | None = None,
    packing: Packing = "attributes",
    group: str | None = None,
    zarr_format: ZarrFormat | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Write a dataset as GeoZarr, which says where on the ground it lies in every dialect that readers know.

    CRS and grid come from what the dataset says by CF or GDAL's words: a grid mapping variable such as
    rioxarray's `spatial_ref`, coordinates of the dimensions, `GeoTransform`.

    levels    0: a plain group; a number or None: a pyramid, with the dataset as level "0" (`build_pyramid`)
    method    how coarser levels are made
    profile   one of `zstore.conventions.profiles.PROFILES`
    packing   "codecs": variables with `scale_factor` or `add_offset` are stored as floats that codecs pack
              (`scale_offset` and `cast_value`, Zarr v3), in place of attributes
    options   those of `to_zarr`; a pyramid takes the modes "w" and "w-" and is written at once

    What can be known beforehand is checked before the store is touched: where something is refused, mode "w"
    leaves what was there.

    Raises
        MetadataError: nothing in the dataset is a grid of two dimensions, or what `to_zarr` refuses.
        UnsupportedError: the method does not take a data type of the dataset.
        UnknownExtensionError: nobody offers the method.
    Warns
        GeoWarning: the dataset says nothing of a CRS, or of a grid; none is made up.
    """
    from zstore.integrations.xarray.geo import pack_dataset, write_flat, write_pyramid
    from zstore.integrations.xarray.write import Options, open_place

    with open_place(store, group, zarr_format, storage_options) as place:
        dataset, chosen = _as_dataset(data), Options(**options)
        if packing != "attributes":
            dataset, chosen = pack_dataset(dataset, chosen, packing, place.zarr_format or 3)
        if levels == 0:
            return write_flat(dataset, place, chosen, profile)
        return write_pyramid(dataset, place, chosen, levels=levels, method=method, profile=profile)


def _as_dataset(data: Any) -> xr.Dataset:
    if isinstance(data, xr.Dataset):
        return data
    if not isinstance(data, xr.DataArray):
        raise MetadataError(f"data is a {type(data).__name__}; expected a dataset or a data array")
    if data.name is None or data.name in data.coords:
        raise MetadataError(f"data array is named {data.name!r}; expected a name that no coordinate has")
    return data.to_dataset()


class _Accessor:
    """The accessor `zstore` of xarray's objects: methods that write them."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def to_zarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.integrations.xarray.to_zarr`."""
        return to_zarr(self._data, store, **options)

    def to_geozarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.integrations.xarray.to_geozarr`; a tree is written group by group."""
        return to_geozarr(self._data, store, **options)


_registers: Any = (
    xr.register_dataset_accessor,
    xr.register_dataarray_accessor,
    xr.register_datatree_accessor,
)
for _register in _registers:
    _register("zstore")(_Accessor)

"""`ds.zstore`: datasets, data arrays and trees written by zstore, as Zarr or as GeoZarr."""

from __future__ import annotations

from typing import Any

import xarray as xr

from zstore.errors import MetadataError

__all__ = ["to_geozarr", "to_zarr"]


def to_zarr(data: xr.Dataset | xr.DataArray | xr.DataTree, store: Any, **options: Any) -> Any:
    """Write a dataset, a data array or a tree to a store: path, URL, `Store` or `Group`.

    For the options see `zstore.integrations.xarray.write.write_dataset` and `write_tree`: mode, group,
    encoding, zarr_format, consolidated, append_dim, region, safe_chunks, align_chunks, compute,
    storage_options.

    Raises
        MetadataError: an argument contradicts another or what is there; nothing was written then.
        StoreError: something is there already.
    """
    from zstore.integrations.xarray.write import write_dataset, write_tree

    if isinstance(data, xr.DataTree):
        return write_tree(data, store, **options)
    return write_dataset(_as_dataset(data), store, **options)


def to_geozarr(
    data: xr.Dataset | xr.DataArray,
    store: Any,
    *,
    levels: int | None = 0,
    method: str = "average",
    profile: str | None = None,
    **options: Any,
) -> Any:
    """Write a dataset as GeoZarr, which says where on the ground it lies in every dialect that readers know.

    CRS and grid come from what the dataset says by CF or GDAL's words: a grid mapping variable such as
    rioxarray's `spatial_ref`, coordinates of the dimensions, `GeoTransform`.

    levels    0: a plain group; a number or None: a pyramid, with the dataset as level "0" (`build_pyramid`)
    method    how coarser levels are made
    profile   one of `zstore.conventions.profiles.PROFILES`
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
    from zstore.integrations.xarray.geo import write_geo

    return write_geo(_as_dataset(data), store, levels=levels, method=method, profile=profile, **options)


def _as_dataset(data: xr.Dataset | xr.DataArray) -> xr.Dataset:
    if isinstance(data, xr.Dataset):
        return data
    if data.name is None or data.name in data.coords:
        raise MetadataError(f"data array is named {data.name!r}; expected a name that no coordinate has")
    return data.to_dataset()


class _Accessor:
    """Writing, as a method of xarray's objects."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def to_zarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.integrations.xarray.to_zarr`."""
        return to_zarr(self._data, store, **options)

    def to_geozarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.integrations.xarray.to_geozarr`."""
        return to_geozarr(self._data, store, **options)


class _TreeAccessor:
    """Writing, as a method of xarray's trees."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def to_zarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.integrations.xarray.to_zarr`."""
        return to_zarr(self._tree, store, **options)


def _register(register: Any, accessor: type) -> None:
    register("zstore")(accessor)


_register(xr.register_dataset_accessor, _Accessor)
_register(xr.register_dataarray_accessor, _Accessor)
_register(xr.register_datatree_accessor, _TreeAccessor)

"""xarray's engine "zstore": datasets and trees of them, opened lazily; `ds.zstore` writes them.

    xr.open_dataset("era5.zarr", engine="zstore", chunks={})

Datasets are equal to those of xarray's own engine "zarr": values, attributes, coordinates and encodings. Only
`preferred_chunks` differ: they are the stored objects (shards, where there are), which are best fetched
whole.

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

from zstore.errors import ZstoreError
from zstore.geo.conventions.crs import Crs
from zstore.geo.pyramid.warp import GeoGrid
from zstore.guests.xarray.read import DatasetNotFoundError, GroupDataStore, find_group
from zstore.jobs.source import Source
from zstore.model.array import ZarrFormat
from zstore.model.codec_packing import Packing
from zstore.nodes.group import Group
from zstore.storage.base import Store
from zstore.storage.kinds import ZIP, kind_of_file

__all__ = ["DatasetNotFoundError", "ZstoreBackendEntrypoint", "to_geozarr", "to_zarr"]

ZARR_MARKS = ("zarr.json", ".zgroup", ".zmetadata")
ENDINGS = (".zarr", ".zarr.zip", ".n5")
# A coordinate of more values may be one that nobody makes an index of.
MOST_VALUES = 1 << 24


class ZstoreBackendEntrypoint(BackendEntrypoint):
    """Opens Zarr of every format in any store of zstore, and files that zstore opens as one."""

    description = "Open Zarr (v1, v2, v3, sharded) from any store, NetCDF, HDF5, rasters and references"
    url = "https://docs.xarray.dev/en/stable/internals/how-to-add-new-backend.html"
    supports_groups = True
    # xarray cannot find the names of arguments that go through `**`.
    open_dataset_parameters = (
        "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables",
        "use_cftime", "decode_timedelta", "group", "consolidated", "storage_options", "zarr_format",
        "use_zarr_fill_value_as_mask",
    )  # fmt: skip

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether the source is named .zarr or .n5, is a directory with Zarr metadata, or zstore's object."""
        if isinstance(filename_or_obj, Group | Store | Source):
            return True
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        text = os.fspath(filename_or_obj)
        if not isinstance(text, str):
            return False
        if text.rstrip("/").lower().endswith(ENDINGS):
            # A plain file of such a name is of another engine.
            return not Path(text).is_file() or kind_of_file(text) is ZIP
        return "://" not in text and any((Path(text) / mark).is_file() for mark in ZARR_MARKS)

    def open_dataset(self, filename_or_obj: Any, **options: Any) -> xr.Dataset:
        """The group's arrays as a dataset, decoded by xarray with the options that all engines have.

        group         the group's path in the store
        consolidated  True: consolidated metadata must exist; False: it is not used; None: used if it exists
        storage_options, zarr_format
                      as for `zstore.open_group`
        use_zarr_fill_value_as_mask
                      whether an array's fill value means missing values; None: in Zarr v2 only

        Raises
            DatasetNotFoundError: there is no such group.
            MetadataError: an array without dimension names; no consolidated metadata where it must exist.
        Warns
            ReadingWarning: a member of the group cannot be read; it is left out.
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
    """The group and those below it as datasets by path; closing the first closes a store opened here."""
    opened, owned = find_group(source, group, consolidated, storage_options, zarr_format)
    try:
        groups = {"/": opened}
        if has_below:
            below = opened.members(None, unreadable={})
            groups |= {f"/{path}": member for path, member in below if isinstance(member, Group)}
        dropped = {drop_variables} if isinstance(drop_variables, str) else {*(drop_variables or ())}
        return {
            path: _decode(
                GroupDataStore(
                    member,
                    dropped=dropped,
                    masks_fill=use_zarr_fill_value_as_mask,
                    owned=owned if path == "/" else None,
                ),
                decoding,
            )
            for path, member in groups.items()
        }
    except BaseException:
        if owned is not None:
            owned.close()
        raise


def _decode(data: GroupDataStore, decoding: Mapping[str, Any]) -> xr.Dataset:
    """The dataset that xarray makes of the variables; coordinates without readable values are left out."""
    try:
        dataset = StoreBackendEntrypoint().open_dataset(data, drop_variables=data.dropped, **decoding)
        for name, size in dataset.sizes.items():
            # xarray makes an index of these, which reads them where no error of them could be caught.
            if name in dataset.variables and size <= MOST_VALUES:
                dataset.variables[name].load()
    except ZstoreError:
        if not data.leave_out_coordinates():
            raise
        return _decode(data, decoding)
    return dataset


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

    Gives the `Group`, or with compute=False a dask object that writes the values when it is computed. Every
    node of a tree goes to the group of its name; all nodes are checked before the first is written.

    mode          "w-" makes the group (the default), "w" replaces it, "a" adds variables and overwrites
                  existing ones, "a-" does not overwrite those without `append_dim`, "r+" writes values only
    encoding      per variable: `chunks`, `shards`, `compressors`, `filters`, `serializer`, `fill_value`,
                  `chunk_key_encoding`, and CF's `dtype`, `scale_factor`, `_FillValue`, `units`, ...; for a
                  tree, such a dictionary per path of a node ("/a/b")
    consolidated  whether the root's metadata is consolidated at the end; None: where metadata was written
    append_dim    the dimension along which the dataset is appended
    region        slices by dimension, "auto" in place of a slice that coordinates tell; "auto" alone: all
    safe_chunks   refuse dask chunks with an edge inside a stored object (a shard, where there are)
    align_chunks  rechunk dask arrays along the edges of stored objects instead
    compute       False: values of dask arrays are written later, by the object that is returned
    write_inherited_coords
                  for a tree: write inherited coordinates to every node

    Raises
        StoreError: the group is there already (mode "w-").
        NotFoundError: there is no group (mode "r+").
        MetadataError: arguments contradict each other or what is stored; nothing is written then.
    """
    from zstore.guests.xarray.write import Options, as_dataset, open_place, write_dataset, write_tree

    with open_place(store, group, zarr_format, storage_options) as place:
        if isinstance(data, xr.DataTree):
            return write_tree(data, place, **options)
        return write_dataset(as_dataset(data), place, Options.of(options))


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
    """Write a dataset as GeoZarr, with its CRS and grid in every convention that readers know.

    CRS and grid are read from the dataset by the conventions of CF and GDAL: a grid mapping variable such as
    rioxarray's `spatial_ref`, coordinate variables, `GeoTransform`.

    levels    0: a plain group; a number or None: a pyramid, with the dataset as level "0" (`build_pyramid`)
    method    the resampling method of coarser levels
    profile   one of `zstore.geo.conventions.write.PROFILES`
    packing   "codecs": variables with `scale_factor` or `add_offset` are stored as floats that codecs pack
              (`scale_offset` and `cast_value`, Zarr v3), instead of by attributes
    options   those of `to_zarr`; a pyramid takes the modes "w" and "w-" and is written at once

    Arguments are checked before the store is changed: where they are refused, mode "w" removes nothing.

    Raises
        MetadataError: the dataset has no grid of two dimensions; as `to_zarr`.
        UnsupportedError: the method does not take a data type of the dataset.
        UnknownExtensionError: there is no such method.
    Warns
        GeoWarning: the dataset does not state a CRS or an affine; none is written.
    """
    from zstore.guests.xarray.geo import pack_dataset, write_flat, write_pyramid
    from zstore.guests.xarray.write import Options, as_dataset, open_place

    with open_place(store, group, zarr_format, storage_options) as place:
        dataset, chosen = as_dataset(data), Options.of(options)
        if packing != "attributes":
            dataset, chosen = pack_dataset(dataset, chosen, packing, place.zarr_format or 3)
        if levels == 0:
            return write_flat(dataset, place, chosen, profile)
        return write_pyramid(dataset, place, chosen, levels=levels, method=method, profile=profile)


class _Accessor:
    """The accessor `zstore` of datasets, data arrays and trees; trees are only written by `to_zarr`."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def to_zarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.guests.xarray.to_zarr`."""
        return to_zarr(self._data, store, **options)

    def to_geozarr(self, store: Any, **options: Any) -> Any:
        """See `zstore.guests.xarray.to_geozarr`."""
        return to_geozarr(self._data, store, **options)

    @property
    def grid(self) -> GeoGrid:
        """The cells on Earth: CRS, affine and shape (`zstore.GeoGrid`).

        Raises
            MetadataError: there are none, or they have no CRS or no affine.
        """
        from zstore.guests.xarray.shown import grid_of

        return grid_of(self._data)

    @property
    def crs(self) -> Crs:
        """The coordinate reference system of the grid."""
        return self.grid.crs

    def reproject(
        self, grid: Any, *, resolution: Any = None, resampling: str = "nearest", nodata: Any = None
    ) -> Any:
        """The data on another grid of the Earth, read when they are needed; see `zstore.reproject`.

        grid        a `zstore.GeoGrid`, a dataset or data array that has one, or a CRS
        resolution  of cells in that CRS, in its unit; None: of data in this CRS their own
        """
        from zstore.guests.xarray.shown import reproject_data

        options = {"resampling": resampling, "nodata": nodata}
        return reproject_data(self._data, grid, resolution=resolution, **options)

    def clip(self, zones: Any, *, cells: str = "centre", nodata: Any = None, crs: Any = None) -> Any:
        """The part of the data in polygons, read when it is needed; see `zstore.clip`."""
        from zstore.guests.xarray.shown import clip_data

        return clip_data(self._data, zones, cells=cells, nodata=nodata, crs=crs)

    def zonal_statistics(self, zones: Any, statistics: Any = None, **options: Any) -> xr.Dataset:
        """Statistics of a data array's cells in each of some polygons; see `zstore.zonal_statistics`.

        The dimension "zone" has the ids of the features, or their numbers, and their properties; one
        whose name is taken is zone_NAME.
        """
        from zstore.guests.xarray.shown import zonal_data

        return zonal_data(self._data, zones, statistics, **options)


_registers: Any = (
    xr.register_dataset_accessor,
    xr.register_dataarray_accessor,
    xr.register_datatree_accessor,
)
for _register in _registers:
    _register("zstore")(_Accessor)

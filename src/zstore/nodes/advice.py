"""Hints for error messages: the names and options to type instead of zarr-python's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

MODULE_ADVICE = {
    "Blosc": "compressors=['blosc'], or a codec object of numcodecs or zarr-python",
    "AsyncArray": "zstore.aio, or `await array.read_async(selection)` of any array",
    "AsyncGroup": "zstore.aio",
    "config": "zstore.set_threads, set_cache_size, set_limits and set_durable",
    "copy_all": "zstore.copy(source, target)",
    "copy_store": "zstore.copy(source, target)",
    "open_dataset": "xarray.open_dataset(path, engine='zstore'), or zstore.open_group(path)",
    "open_like": "zstore.zeros_like(array, store=..., path=...), or zstore.open_array",
    "open_zarr": "xarray.open_dataset(path, engine='zstore'), or zstore.open(path)",
    "print_debug_info": "`zstore doctor` on the command line",
    "rechunk": "zstore.convert(source, target, chunks=...)",
    "consolidate_metadata": "zstore.consolidate(store, path)",
    "from_array": "zstore.create_array(store, data=array), or zstore.convert(array, target)",
    "open_mfdataset": "xarray.open_dataset('*.nc', engine='zstore', chunks={}), or zstore.open('*.nc')",
    "to_zarr": "dataset.zstore.to_zarr(path), or zstore.save(path, array)",
    **dict.fromkeys(
        ("DirectoryStore", "NestedDirectoryStore", "FSStore", "ZipStore"), "a path or a URL in its place"
    ),
    "tune": "zstore_tune.tune of the package zstore-tune",
    "save_array": "zstore.save(store, array)",
    "save_group": "zstore.save(store, name=array, ...)",
}
METHODS = ("sum", "mean", "min", "max", "std", "var", "any", "all", "count", "argmin", "argmax")
ARRAY_ADVICE = {
    **{name: f"array.reduce({name!r}, axis)" for name in METHODS},
    **dict.fromkeys(("load", "compute", "to_numpy"), "array[...]"),
    "groupby": "array.reduce('mean', by='month'), or groups=labels",
    "resample": "array.reduce('mean', every='month')",
    "rolling": "array.reduce('mean', rolling={'time': 30})",
    "async_array": "`await array.read_async(selection)` and `await array.write_async(selection, value)`",
    "compressor": "array.compressors, which has all of them",
    "config": "the arguments of zstore.open_array",
    "create": "zstore.create_array",
    "dimension_names": "array.dims",
    "dimensions": "array.dims",
    "from_dict": "zstore.create_hierarchy(store, {path: document})",
    "isel": "array[5, :, 3:7], or array.oindex",
    "open": "zstore.open_array",
    "sel": "zstore.select(array, {dimension: value})",
    **dict.fromkeys(("plot", "rio"), "xarray.open_dataset(path, engine='zstore')[name]"),
    "chunk": "zstore.to_dask(array)",
    "to_zarr": "zstore.convert(array, 'NAME.zarr')",
    "store_path": "array.store and array.path",
    "T": "zstore.view(array).T",
    "astype": "zstore.view(array).astype(dtype)",
    "transpose": "zstore.view(array).transpose(axes)",
    "with_config": "array.cached(size), or zstore.open_array with other arguments",
    "synchronizer": "nothing in its place: writers lock the chunks that they write",
    "values": "array[...]",
}
# Views have T, astype, transpose and reduce themselves.
VIEW_ADVICE = {
    **{name: f"view.reduce({name!r}, axis)" for name in METHODS},
    **dict.fromkeys(("load", "compute", "to_numpy", "values"), "view.read()"),
    "attrs": "view.attributes",
    "chunk": "zstore.to_dask(view)",
    "dims": "view.dimension_names",
    "groupby": "view.reduce('mean', by='month')",
    "resample": "view.reduce('mean', every='month')",
    "sel": "zstore.select(view, {dimension: value})",
    "to_zarr": "zstore.convert(view, 'NAME.zarr')",
}
GROUP_ADVICE = {
    **{name: f"zstore.reduce(group, {name!r}, axis, out=...)" for name in METHODS},
    **{name: f"group[name].{name}, of an array" for name in ("shape", "dtype", "chunks", "ndim", "dims")},
    **dict.fromkeys(("coords", "data_vars", "variables"), "xarray.open_dataset(path, engine='zstore')"),
    "groupby": "zstore.reduce(group, 'mean', by='month', out=...)",
    "isel": "group[name][5, :, 3:7], or zstore.select(group, {dimension: value}) by coordinates",
    "resample": "zstore.reduce(group, 'mean', every='month', out=...)",
    "rolling": "zstore.reduce(group, 'mean', rolling={'time': 30}, out=...)",
    "to_netcdf": "zstore.zarr_to_netcdf(group, 'NAME.nc')",
    "to_zarr": "zstore.convert(group, 'NAME.zarr')",
    "array": "group.create_array(name, data=...)",
    "create": "group.create_array",
    "create_dataset": "group.create_array(name, ...)",
    "from_store": "zstore.create_group",
    "get_array": "group[name], or group.get(name)",
    "get_group": "group[name], or group.get(name)",
    "move": "zstore.convert(group[old], group.store, target_path=new), then `del group[old]`",
    "open": "zstore.open_group",
    "sel": "zstore.select(group, {dimension: value})",
    "require_dataset": "group.require_array(name, shape=..., dtype=...)",
    "store_path": "group.store and group.path",
    "synchronizer": "nothing in its place: writers lock the documents that they write",
    "update_attributes_async": "group.update_attributes(attributes)",
}
OPTION_ADVICE = {
    "compression": "compressors",
    "compression_opts": "compressors=[{'name': 'zstd', 'configuration': {'level': 5}}]",
    "dims": "dimension_names",
    "maxshape": "nothing in its place: every array can be resized",
    "cache_attrs": "nothing in its place: attributes are kept as long as their node",
    "cache_metadata": "nothing in its place: metadata are kept as long as their array",
    "chunk_shape": "chunks",
    "chunk_store": "one store for documents and chunks",
    "codecs": "filters, serializer and compressors",
    "compressor": "compressors",
    "config": "nothing in its place: chunks of fill value alone are never stored, and results are in C order",
    "dimension_separator": "chunk_key_encoding",
    "meta_array": "nothing in its place: what is read is in numpy's arrays",
    "object_codec": "filters, or serializer in Zarr v3",
    "read_only": "mode='r'",
    "strict": "validate(path).is_valid(strict=True)",
    "synchronizer": "nothing in its place: writers lock what they write",
    "use_consolidated": "zstore.open_consolidated, or another mode than 'r', which alone believes it",
    "write_data": "shape and dtype in place of data, where nothing is to be written",
    "write_empty_chunks": "nothing in its place: chunks of fill value alone are never stored",
    "zarr_version": "zarr_format",
}
# The same for calls that take many arguments, in xarray's and dask's words.
WORD_ADVICE = {"dim": "axis", "dims": "axis", "freq": "every", "skipna": "nodata", "window": "rolling"}


class Told(str):
    """The text of the property `info`; to call it is an error that says what to type."""

    __slots__ = ()

    def __call__(self) -> str:
        raise TypeError("info is a property; use node.info, without the brackets")


class _Listing(partial[Any]):
    """A bound method that lists members; to ask it for one by name is an error that says what to type."""

    def __getitem__(self, name: object) -> Any:
        said = f"group.{self.func.__name__} is a method, which lists members; use group[{name!r}]"
        raise TypeError(said)


class _ListingMethod:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.__func__ = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object | None, owner: type) -> Any:
        return self.__func__ if instance is None else _Listing(self.__func__, instance)


def lists_members(function: F) -> F:
    """The method, whose error says what to type to who asks it for a member by name."""
    return cast(F, _ListingMethod(function))

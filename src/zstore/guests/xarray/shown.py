"""Datasets shown as groups, so that they are reprojected, clipped and summed over zones as stored groups are.

No value is copied: the group has the documents that `to_zarr` would write, and reading a box of it reads this
box of the dataset, encoded by xarray.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import xarray as xr

from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.pyramid.dataset import open_levels, other_grids
from zstore.geo.pyramid.warp import GeoGrid, reproject
from zstore.geo.pyramid.zonal import clip, zonal_statistics
from zstore.guests.xarray.geo import rehearse_dataset
from zstore.guests.xarray.read import GroupDataStore
from zstore.guests.xarray.variables import MEANT, STORED, TIMES
from zstore.guests.xarray.write import Destination, Options, as_dataset, prepare
from zstore.jobs.chunks import SourceStore
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.storage.memory import MemoryStore
from zstore.views.view import View, view

# xarray's units of moments by numpy's, and the count that is none of them.
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
NAT = np.iinfo(np.int64).min
MAPPING = "grid_mapping"
# The name of a data array without one, while it is shown.
UNNAMED = "values"


def grid_of(data: Any) -> GeoGrid:
    """The grid of a dataset or of a data array.

    Raises
        MetadataError: there is none, or it has no CRS or affine.
    """
    return GeoGrid.of(show(as_dataset(data, UNNAMED)))


def reproject_data(data: Any, grid: Any, *, resolution: Any = None, nodata: Any = None, **how: Any) -> Any:
    """The data on another grid, as `ds.zstore.reproject` describes it."""
    if isinstance(grid, xr.Dataset | xr.DataArray):
        onto = grid_of(grid)
    elif isinstance(grid, str | Integral) or hasattr(grid, "to_wkt"):
        onto = GeoGrid.around([show(as_dataset(data, UNNAMED))], crs=grid, resolution=resolution)
    else:
        onto = grid
    return _each(data, lambda array, nodata: reproject(array, onto, nodata=nodata, **how), nodata)


def clip_data(data: Any, zones: Any, *, nodata: Any = None, **options: Any) -> Any:
    """The rows and columns of the data under polygons, without data beside them."""
    return _each(data, lambda array, nodata: clip(array, zones, nodata=nodata, **options), nodata)


def zonal_data(data: Any, zones: Any, statistics: Any = None, **options: Any) -> xr.Dataset:
    """The statistics of a data array by zone, with what GeoJSON says of each zone.

    Raises
        MetadataError: it is a dataset; as `zstore.zonal_statistics`.
    """
    if not isinstance(data, xr.DataArray):
        raise MetadataError(f"zonal_statistics of a {type(data).__name__}; expected one of its data arrays")
    if data.dtype.kind in "mM":
        raise UnsupportedError(
            f"statistics of {data.dtype}; expected numbers, as of data / np.timedelta64(1, 'h')"
        )
    if "zone" in data.dims:
        raise MetadataError(
            "a dimension is named 'zone', as that of the statistics is; expected another name"
        )
    asked = () if statistics is None else ([statistics] if isinstance(statistics, str) else statistics,)
    found = zonal_statistics(_shown_array(data), zones, *asked, **options)
    others = [dimension for dimension in data.dims if dimension in found.labels]
    others.insert(found.axis, "zone")
    made = xr.Dataset({name: (others, numbers) for name, numbers in found.items()})
    kept = {name: one.variable for name, one in data.coords.items() if one.dims and {*one.dims} <= {*others}}
    ids = [feature.get("id", number) for number, feature in enumerate(found.features)]
    made = made.assign_coords({**kept, "zone": ids})
    return made.assign_coords(_properties(found.features, {*made.variables, *made.dims}))


def _properties(features: Sequence[Mapping[str, Any]], taken: Container[Any]) -> dict[str, Any]:
    """The properties of zones as coordinates; of a name that is taken, as zone_NAME."""
    said = [feature.get("properties") or {} for feature in features]
    names = dict.fromkeys(name for one in said for name in one)
    return {
        f"zone_{name}" if name in taken else name: ("zone", [one.get(name) for one in said]) for name in names
    }


def _name_of(data: xr.DataArray) -> Any:
    return UNNAMED if data.name is None or data.name in data.coords else data.name


def _shown_array(data: xr.DataArray) -> Array:
    array = show(as_dataset(data, UNNAMED))[_name_of(data)]
    assert isinstance(array, Array), "data arrays are shown as arrays"
    return array


def show(dataset: xr.Dataset) -> Group:
    """A group that shows a dataset.

    Raises
        MetadataError: a variable that `to_zarr` refuses.
    """
    memory = MemoryStore()
    prepared = prepare(_without_storage(dataset), Destination(memory, "", 3), Options(safe_chunks=False))
    rehearse_dataset(prepared, memory, "")
    sources = {plan.name: view(plan.variable) for plan in prepared.plans if plan.variable.ndim > 1}
    return open_group(SourceStore("xarray:", memory, sources), mode="r")


def _without_storage(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset without what its encodings say of storage and packing, so that its own values are shown.

    Chunks of dask's may have any lengths.
    """
    plain = dataset.copy()
    for variable in plain.variables.values():
        left = {*STORED, *MEANT} - {*TIMES}
        variable.encoding = {key: value for key, value in variable.encoding.items() if key not in left}
        if variable.dtype.kind in "mM" and variable.ndim > 1:
            variable.encoding = _as_counts(variable.dtype)
        if variable.chunks is not None:
            variable.encoding["chunks"] = tuple(max(lengths) for lengths in variable.chunks)
    return plain


def _as_counts(dtype: np.dtype[Any]) -> dict[str, Any]:
    """The encoding by which moments or durations lose nothing, and have NaT for cells beside them."""
    start = " since 1970-01-01" if dtype.kind == "M" else ""
    return {"units": f"{UNITS[np.datetime_data(dtype)[0]]}{start}", "dtype": "int64", "_FillValue": NAT}


def _each(data: Any, make: Callable[[Array, Any], View], nodata: Any) -> Any:
    """The data with a view in the place of each array on the grid, and all without rows and columns as it is.

    make    makes the view of an array, with the nodata that it is to have where it has none
    nodata  of a data array, or of those variables of a dataset that have none
    """
    dataset = as_dataset(data, UNNAMED)
    shown = show(dataset)
    laid = open_levels(shown)[0]
    missing = {
        name: nodata if isinstance(data, xr.DataArray) or one.nodata is None else None
        for name, one in laid.geo.variables.items()
    }
    others = dataset.drop_dims(laid.geo.dimensions, errors="ignore").drop_vars(laid.places, errors="ignore")
    grids = [one.arrays for one in other_grids(shown, laid) if one.geo.affine is not None]
    mapped = [name for name, one in others.items() if one.ndim > 1 and MAPPING in one.attrs | one.encoding]
    if grids or mapped:  # they would stay where they are, under the new grid's CRS
        beside = sorted(map(str, set(mapped).union(*grids)))
        raise MetadataError(
            f"{beside} lie on other grids than {[*laid.arrays]}; expected variables of one grid, as ds[[...]]"
        )
    layers = {name: _opened(make(array, missing[name]), name) for name, array in laid.arrays.items()}
    others = others.drop_vars(layers, errors="ignore")
    made = xr.merge([others, *layers.values()], join="exact", compat="override", combine_attrs="override")
    if isinstance(data, xr.DataArray):
        return made[_name_of(data)].rename(data.name)
    made = made[[name for name in dataset.data_vars if name in made.data_vars]]
    made.attrs = {**laid.attributes, **next(iter(layers.values())).attrs}
    return made


def _opened(made: View, name: str) -> xr.Dataset:
    """The dataset of one variable that a view of an array is, with its coordinates.

    Its grid is said in CF's words alone: no NetCDF file can hold GeoZarr's and GDAL's, and no crop keeps them
    right.
    """
    opened = xr.open_dataset(GroupDataStore(open_group(SourceStore.of(made), mode="r")), engine="store")
    assert name in opened.data_vars, f"the view of {name!r} has its name"
    opened.attrs = {key: text for key, text in opened.attrs.items() if key == "Conventions"}
    opened[name].attrs.pop("_CRS", None)
    return opened

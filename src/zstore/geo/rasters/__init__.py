"""Rasters and NetCDF files, into Zarr and out of it.

    from zstore.geo.rasters import netcdf_to_zarr, raster_to_zarr, zarr_to_netcdf, zarr_to_raster

rasterio, h5py and h5netcdf are imported when a function that needs one is called.
"""

from zstore.geo.rasters.geotiff import zarr_to_raster
from zstore.geo.rasters.netcdf import netcdf_sources, netcdf_to_zarr
from zstore.geo.rasters.netcdf_target import zarr_to_netcdf
from zstore.geo.rasters.raster import raster_sources, raster_to_zarr
from zstore.geo.rasters.stack import rasters_to_zarr, stack_sources

__all__ = [
    "netcdf_sources",
    "netcdf_to_zarr",
    "raster_sources",
    "raster_to_zarr",
    "rasters_to_zarr",
    "stack_sources",
    "zarr_to_netcdf",
    "zarr_to_raster",
]

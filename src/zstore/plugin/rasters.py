"""Rasters and NetCDF files: their variables, attributes and bands, as zstore stores them."""

from __future__ import annotations

from zstore.geo.rasters import (
    gdal_version,
    is_netcdf,
    netcdf_to_zarr,
    raster_to_zarr,
    rasters_to_zarr,
    zarr_to_raster,
)
from zstore.geo.rasters.netcdf import file_number, open_netcdf, plan_variable, stored_attributes, walk_groups
from zstore.geo.rasters.netcdf_classic import ClassicFile
from zstore.geo.rasters.raster import RasterWarning, describe_raster, open_raster

__all__ = [
    "ClassicFile",
    "RasterWarning",
    "describe_raster",
    "file_number",
    "gdal_version",
    "is_netcdf",
    "netcdf_to_zarr",
    "open_netcdf",
    "open_raster",
    "plan_variable",
    "raster_to_zarr",
    "rasters_to_zarr",
    "stored_attributes",
    "walk_groups",
    "zarr_to_raster",
]

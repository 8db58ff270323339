"""Rasters and NetCDF files: their variables, attributes and bands, as zstore stores them."""

from __future__ import annotations

from zstore.geo.rasters.netcdf import group_attributes, open_netcdf, plan_variable, walk_groups
from zstore.geo.rasters.netcdf_classic import ClassicFile
from zstore.geo.rasters.netcdf_hdf5 import file_number
from zstore.geo.rasters.raster import describe_raster, open_raster

__all__ = [
    "ClassicFile",
    "describe_raster",
    "file_number",
    "group_attributes",
    "open_netcdf",
    "open_raster",
    "plan_variable",
    "walk_groups",
]

"""Rasters and NetCDF files, into stores and out of them."""

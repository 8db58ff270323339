"""Hierarchies looked after: converted to another Zarr format, cut and encoded anew, verified."""

"""Hierarchies of one Zarr format made into another."""

"""The experimental part of zarr-python: its cache in another store."""

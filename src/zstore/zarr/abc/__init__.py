"""The interfaces that zarr-python names in `zarr.abc`."""

from zstore.zarr.abc import codec, store

__all__ = ["codec", "store"]

"""The functions that zarr-python has in `zarr.api`, blocking and awaited."""

from zstore.zarr.api import asynchronous, synchronous

__all__ = ["asynchronous", "synchronous"]

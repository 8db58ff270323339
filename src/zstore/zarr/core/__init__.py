"""Names that zarr-python's programs import from `zarr.core`."""

from zstore.zarr.core import array, buffer, group, metadata, sync

__all__ = ["array", "buffer", "group", "metadata", "sync"]

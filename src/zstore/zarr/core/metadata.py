"""`zarr.core.metadata`: the metadata of arrays."""

from zstore.zarr.metadata import ArrayV2Metadata, ArrayV3Metadata

__all__ = ["ArrayV2Metadata", "ArrayV3Metadata"]

"""`zarr.core.array`: arrays, and the metadata of arrays."""

from zstore.zarr.api.asynchronous import create_array, from_array
from zstore.zarr.awaited import AsyncArray
from zstore.zarr.metadata import ArrayV2Metadata, ArrayV3Metadata
from zstore.zarr.nodes import Array

__all__ = ["Array", "ArrayV2Metadata", "ArrayV3Metadata", "AsyncArray", "create_array", "from_array"]

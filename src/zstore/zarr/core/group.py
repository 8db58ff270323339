"""`zarr.core.group`: groups, and the metadata of groups."""

from zstore.zarr.awaited import AsyncGroup
from zstore.zarr.metadata import ConsolidatedMetadata, GroupMetadata
from zstore.zarr.nodes import Group

__all__ = ["AsyncGroup", "ConsolidatedMetadata", "Group", "GroupMetadata"]

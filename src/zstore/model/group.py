"""The model of a group: its metadata as frozen data, the same for every Zarr format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zstore.model.array import ArrayModel, ZarrFormat


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The metadata of one group, with those of the nodes below if its document is consolidated.

    consolidated     path relative to this group ("a/b") -> model of that array or group; None if the
                     document has no consolidated metadata
    extra            members of the document that zstore does not know and may ignore; written back unchanged
    """

    zarr_format: ZarrFormat
    attributes: Mapping[str, Any] = field(default_factory=dict)
    consolidated: Mapping[str, ArrayModel | GroupModel] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def with_attributes(self, attributes: Mapping[str, Any]) -> GroupModel:
        """The same group with other attributes."""
        return replace(self, attributes=dict(attributes))

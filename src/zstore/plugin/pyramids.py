"""Pyramids: levels opened with their georeference, masks, and windows between grids."""

from __future__ import annotations

from zstore.geo.pyramid.build import build_pyramid
from zstore.geo.pyramid.dataset import (
    Dataset,
    Masking,
    find_mask,
    join_attributes,
    open_dataset,
    open_levels,
)
from zstore.geo.pyramid.levels import create_auxiliaries, draft_auxiliaries
from zstore.geo.pyramid.quicklook import encode_png, preview, quicklook
from zstore.geo.pyramid.tile_grid import GridTransform

__all__ = [
    "Dataset",
    "GridTransform",
    "Masking",
    "build_pyramid",
    "create_auxiliaries",
    "draft_auxiliaries",
    "encode_png",
    "find_mask",
    "join_attributes",
    "open_dataset",
    "open_levels",
    "preview",
    "quicklook",
]

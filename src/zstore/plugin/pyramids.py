"""Pyramids: levels opened with their georeference, masks, and windows between grids."""

from __future__ import annotations

from zstore.geo.pyramid.build import build_pyramid
from zstore.geo.pyramid.dataset import (
    Dataset,
    Masking,
    find_mask,
    join_attributes,
    open_levels,
    other_grids,
)
from zstore.geo.pyramid.levels import add_auxiliaries
from zstore.geo.pyramid.tile_grid import GridTransform

__all__ = [
    "Dataset",
    "GridTransform",
    "Masking",
    "add_auxiliaries",
    "build_pyramid",
    "find_mask",
    "join_attributes",
    "open_levels",
    "other_grids",
]

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
from zstore.geo.pyramid.warp import GeoGrid, reproject
from zstore.geo.pyramid.zonal import clip, zonal_statistics
from zstore.geo.pyramid.zones import Zones, hull_of

__all__ = [
    "Dataset",
    "GeoGrid",
    "GridTransform",
    "Masking",
    "Zones",
    "add_auxiliaries",
    "build_pyramid",
    "clip",
    "find_mask",
    "hull_of",
    "join_attributes",
    "open_levels",
    "other_grids",
    "reproject",
    "zonal_statistics",
]

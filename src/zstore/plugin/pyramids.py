"""Pyramids: levels opened with their georeference, masks, and windows between grids."""

from __future__ import annotations

from zstore.geo.pyramid.boxes import Items
from zstore.geo.pyramid.dataset import Dataset, join_attributes, open_levels
from zstore.geo.pyramid.levels import draft_auxiliaries
from zstore.geo.pyramid.masks import WIDENED, Masking, find_mask
from zstore.geo.pyramid.quicklook import encode_png
from zstore.geo.pyramid.transform import GridTransform

__all__ = [
    "WIDENED",
    "Dataset",
    "GridTransform",
    "Items",
    "Masking",
    "draft_auxiliaries",
    "encode_png",
    "find_mask",
    "join_attributes",
    "open_levels",
]

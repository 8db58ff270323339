"""Pictures: bands, colours by meaning, a quick look at a raster, PNG files."""

from __future__ import annotations

from zstore.geo.pictures.bands import PictureBand, bands_of, find_band, find_rgb_bands
from zstore.geo.pictures.colours import colour_map
from zstore.geo.pictures.looks import Look, categories_of, look_of
from zstore.geo.pictures.png import encode_png
from zstore.geo.pictures.quicklook import draw_picture
from zstore.geo.pictures.relief import ground_cell, hillshade, light

__all__ = [
    "Look",
    "PictureBand",
    "bands_of",
    "categories_of",
    "colour_map",
    "draw_picture",
    "encode_png",
    "find_band",
    "find_rgb_bands",
    "ground_cell",
    "hillshade",
    "light",
    "look_of",
]

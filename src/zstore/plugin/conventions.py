"""Conventions: the meaning of nodes on Earth, read from documents and rendered into them."""

from __future__ import annotations

from zstore.geo.conventions.base import (
    Affine,
    Band,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GeoModel,
    Level,
    LevelEntry,
    Mend,
    Node,
    Stac,
    Variable,
    Witness,
    is_array,
    is_group,
    load_conventions,
)
from zstore.geo.conventions.content import parse_variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo, read_roles
from zstore.geo.conventions.tilesets.registry import TileMatrix, list_tile_matrix_sets, load_tile_matrix_set
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.geo.conventions.write import render_geo

__all__ = [
    "Affine",
    "Band",
    "Convention",
    "Crs",
    "Document",
    "Documents",
    "Facts",
    "Finding",
    "GeoModel",
    "Level",
    "LevelEntry",
    "Mend",
    "Node",
    "Stac",
    "TileMatrix",
    "TimeAxis",
    "Variable",
    "Witness",
    "is_array",
    "is_group",
    "list_tile_matrix_sets",
    "load_conventions",
    "load_tile_matrix_set",
    "parse_variable",
    "read_geo",
    "read_roles",
    "render_geo",
]

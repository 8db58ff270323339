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
    Node,
    ReadableGroup,
    ReadingWarning,
    Stac,
    Variable,
    is_array,
    is_group,
    load_conventions,
    use_conventions,
)
from zstore.geo.conventions.cf import is_fill_nodata
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import is_declared
from zstore.geo.conventions.levels import is_ome
from zstore.geo.conventions.meaning import Meaning
from zstore.geo.conventions.packing import Packing, check_packing_kind, pack_by_codecs
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.tilesets.registry import TileMatrix, list_tile_matrix_sets, load_tile_matrix_set
from zstore.geo.conventions.timeaxis import GREGORIAN, TimeAxis, parse_units
from zstore.geo.conventions.write import AUTO, PROFILES, RULED, render_geo

__all__ = [
    "AUTO",
    "GREGORIAN",
    "PROFILES",
    "RULED",
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
    "Meaning",
    "Node",
    "Packing",
    "ReadableGroup",
    "ReadingWarning",
    "Stac",
    "TileMatrix",
    "TimeAxis",
    "Variable",
    "check_packing_kind",
    "is_array",
    "is_declared",
    "is_fill_nodata",
    "is_group",
    "is_ome",
    "list_tile_matrix_sets",
    "load_conventions",
    "load_tile_matrix_set",
    "pack_by_codecs",
    "parse_units",
    "read_geo",
    "render_geo",
    "use_conventions",
]

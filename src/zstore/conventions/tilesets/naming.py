"""A pyramid on a known tile matrix set: which of the set's matrices it has, and which tiles of them.

Spec: GeoZarr draft 8.2.3 and 8.2.5; GeoZarr mini spec, TileMatrixLimit; OGC 17-083r4 (TileMatrixSet 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zstore.conventions.tilesets.registry import TileMatrix, TileMatrixSet
from zstore.errors import MetadataError

__all__ = ["Limits", "enlarge_tiles", "name_set"]

# (first row, last row, first column, last column) of the tiles that hold data.
Limits = tuple[int, int, int, int]


def enlarge_tiles(matrix: TileMatrix, times: int) -> TileMatrix:
    """The same tiles, made of so many times as many cells each way."""
    height, width = matrix.tile_shape
    return replace(
        matrix,
        scale_denominator=matrix.scale_denominator / times,
        cell_size=matrix.cell_size / times,
        tile_shape=(height * times, width * times),
    )


def name_set(
    multiscales: Mapping[str, Any], known: TileMatrixSet, times: int, limits: Mapping[str, Limits]
) -> dict[str, Any]:
    """`multiscales` of a pyramid on the grids of `known`, with the set's name and both limits objects.

    The set is written out, with the matrices that there are: some readers take no bare name, and all of them
    know the set by its `id`. `times` is how often its tiles are enlarged; the set is another one then.

    Raises
        MetadataError: there is no tile matrix set in `multiscales`, or it has other levels.
    """
    stated = multiscales.get("tile_matrix_set")
    if not isinstance(stated, Mapping):
        raise MetadataError(f"multiscales has the members {sorted(multiscales)}; expected tile_matrix_set")
    names = [matrix["id"] for matrix in stated["tileMatrices"]]
    if set(names) != set(limits):
        raise MetadataError(f"limits are given for {sorted(limits)}; expected the levels {sorted(names)}")
    is_own = times > 1
    naming = {"id": f"{known.id}_{times}x" if is_own else known.id, "title": known.title}
    if is_own:
        naming["title"] = f"{known.title}, tiles {times} times as wide and high"
    elif "uri" in known.document:
        naming["uri"] = known.document["uri"]
    snake, camel = {}, {}
    for name in multiscales["tile_matrix_set_limits"]:
        first_row, last_row, first_column, last_column = limits[name]
        snake[name] = {
            "min_tile_col": first_column,
            "max_tile_col": last_column,
            "min_tile_row": first_row,
            "max_tile_row": last_row,
        }
        camel[name] = {
            "tileMatrix": name,
            "minTileCol": first_column,
            "maxTileCol": last_column,
            "minTileRow": first_row,
            "maxTileRow": last_row,
        }
    return {
        **multiscales,
        "tile_matrix_set": {**stated, **naming},
        "tile_matrix_set_limits": snake,
        "tile_matrix_limits": camel,
    }

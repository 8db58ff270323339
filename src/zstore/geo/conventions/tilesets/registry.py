"""The tile matrix sets of OGC's registry, by name.

Spec: OGC 17-083r4 (TileMatrixSet 2.0), annex D.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from zstore.errors import NotFoundError
from zstore.geo.conventions.base import Affine

Y_FIRST_AXES = frozenset(("y", "n", "lat", "northing", "latitude"))


@dataclass(frozen=True)
class TileMatrix:
    """One grid of tiles.

    origin        (x, y) of the outer corner of the first cell, top left
    cell_size     height and width of a cell, in the CRS's unit
    tile_shape    (height, width) of a tile in cells
    matrix_shape  (rows, columns) of tiles
    coalesced     (how many tiles of a row are one, first row, last row); () where rows are all alike
    """

    id: str
    scale_denominator: float
    cell_size: float
    origin: tuple[float, float]
    tile_shape: tuple[int, int]
    matrix_shape: tuple[int, int]
    coalesced: tuple[tuple[int, int, int], ...] = ()

    @property
    def affine(self) -> Affine:
        """From (column, row) of the cells to (x, y); rows run towards smaller y."""
        return Affine(self.cell_size, 0.0, self.origin[0], 0.0, -self.cell_size, self.origin[1])

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of cells that all tiles have together."""
        rows, columns = self.matrix_shape
        return rows * self.tile_shape[0], columns * self.tile_shape[1]

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(xmin, ymin, xmax, ymax) of all tiles."""
        return self.affine.bounds(self.shape)


@dataclass(frozen=True)
class TileMatrixSet:
    """Grids of tiles, the coarsest first.

    crs            as the registry names it: a URL or a URN
    is_y_first     whether documents put northing or latitude first in an origin
    tile_matrices  by id, in the registry's order
    """

    id: str
    title: str
    crs: str
    is_y_first: bool
    tile_matrices: Mapping[str, TileMatrix]
    document: Mapping[str, Any]

    def __getitem__(self, name: str) -> TileMatrix:
        """The tile matrix of that id.

        Raises
            NotFoundError: there is none.
        """
        if name not in self.tile_matrices:
            known = list(self.tile_matrices)
            raise NotFoundError(
                f"tile matrix set {self.id} has no tile matrix {name!r}; it has {known[0]} to {known[-1]}"
            )
        return self.tile_matrices[name]


def list_tile_matrix_sets() -> list[str]:
    """The names of the sets that come with zstore."""
    return sorted(_registry())


def load_tile_matrix_set(name: str) -> TileMatrixSet:
    """The set of that name, or of a URI that ends in it.

    `document` is the set as TileMatrixSet 2.0 writes it, to be put into metadata.

    Raises
        NotFoundError: it is none that comes with zstore.
    """
    short = name.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    if short not in _registry():
        known = ", ".join(list_tile_matrix_sets())
        from difflib import get_close_matches

        near = get_close_matches(short, list_tile_matrix_sets(), 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"no tile matrix set {name!r}{meant}; known without the network are {known}")
    return _loaded(short)


@lru_cache(maxsize=1)
def _registry() -> dict[str, Any]:
    text = (files("zstore.geo.conventions.tilesets") / "well_known.json").read_text("utf-8")
    sets: dict[str, Any] = json.loads(text)["sets"]
    return sets


@lru_cache(maxsize=32)
def _loaded(name: str) -> TileMatrixSet:
    stated = _registry()[name]
    is_y_first = stated["orderedAxes"][0].lower() in Y_FIRST_AXES
    first, second = stated["pointOfOrigin"]
    origin = (float(second), float(first)) if is_y_first else (float(first), float(second))
    matrices = {row[0]: _matrix(row, origin) for row in stated["tileMatrices"]}
    document = {
        "id": name,
        **{
            key: stated[key]
            for key in ("title", "uri", "crs", "orderedAxes", "wellKnownScaleSet")
            if key in stated
        },
        "tileMatrices": [_document(matrix, stated["pointOfOrigin"]) for matrix in matrices.values()],
    }
    return TileMatrixSet(name, stated["title"], stated["crs"], is_y_first, matrices, document)


def _matrix(row: list[Any], origin: tuple[float, float]) -> TileMatrix:
    name, denominator, cell, width, height, columns, rows, *variable = row
    coalesced = tuple((count, low, high) for count, low, high in (variable[0] if variable else ()))
    return TileMatrix(name, denominator, float(cell), origin, (height, width), (rows, columns), coalesced)


def _document(matrix: TileMatrix, origin: list[float]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": matrix.id,
        "scaleDenominator": matrix.scale_denominator,
        "cellSize": matrix.cell_size,
        "cornerOfOrigin": "topLeft",
        "pointOfOrigin": list(origin),
        "tileWidth": matrix.tile_shape[1],
        "tileHeight": matrix.tile_shape[0],
        "matrixWidth": matrix.matrix_shape[1],
        "matrixHeight": matrix.matrix_shape[0],
    }
    if matrix.coalesced:
        document["variableMatrixWidths"] = [
            {"coalesce": count, "minTileRow": low, "maxTileRow": high}
            for count, low, high in matrix.coalesced
        ]
    return document

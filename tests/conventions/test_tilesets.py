"""The well-known tile matrix sets, against the standard's arithmetic and against morecantile's copy."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.errors import NotFoundError
from zstore.geo.conventions.tilesets.registry import list_tile_matrix_sets, load_tile_matrix_set

NAMES = list_tile_matrix_sets()
PIXEL = 0.00028
# This one counts with a screen of 96 dots per inch.
PIXELS = {"CanadianNAD83_LCC": 0.0254 / 96}


def test_the_sets_that_come_along() -> None:
    assert {
        "CDB1GlobalGrid", "CanadianNAD83_LCC", "EuropeanETRS89_LAEAQuad", "GNOSISGlobalGrid",
        "UPSAntarcticWGS84Quad", "UPSArcticWGS84Quad", "UTM31WGS84Quad", "WGS1984Quad", "WebMercatorQuad",
        "WorldCRS84Quad", "WorldMercatorWGS84Quad",
    } <= set(NAMES)  # fmt: skip


def test_web_mercator_by_the_numbers() -> None:
    found = load_tile_matrix_set("WebMercatorQuad")
    side = 20037508.342789244
    for zoom in (0, 3, 24):
        matrix = found[str(zoom)]
        assert matrix.matrix_shape == (2**zoom, 2**zoom)
        np.testing.assert_allclose(matrix.bounds, (-side, -side, side, side), rtol=1e-12)
    assert load_tile_matrix_set("http://www.opengis.net/def/tilematrixset/OGC/1.0/WebMercatorQuad") is found
    with pytest.raises(NotFoundError, match="WebMercatorQuad"):
        load_tile_matrix_set("webmercatorquad")
    with pytest.raises(NotFoundError, match="0 to 24"):
        found["25"]


@pytest.mark.parametrize("name", NAMES)
def test_every_set_is_consistent(name) -> None:
    pytest.importorskip("pyproj", reason="the CRS's unit is pyproj's (extra 'geo')")
    from zstore.geo.conventions.crs import Crs

    found = load_tile_matrix_set(name)
    crs = Crs.from_user(found.crs)
    assert found.is_y_first is crs.is_y_first or name.startswith("UPS") or name == "CDB1GlobalGrid"
    cells = [matrix.cell_size for matrix in found.tile_matrices.values()]
    assert cells == sorted(cells, reverse=True)
    for matrix in found.tile_matrices.values():
        # The registry rounds its numbers, some to a few digits.
        expected = matrix.cell_size * crs.metres_per_unit / PIXELS.get(name, PIXEL)
        np.testing.assert_allclose(matrix.scale_denominator, expected, rtol=3e-4)
        assert min(*matrix.matrix_shape, *matrix.tile_shape) >= 1
        for count, low, high in matrix.coalesced:
            assert count > 1 and 0 <= low <= high < matrix.matrix_shape[0]
    xmin, ymin, xmax, ymax = next(iter(found.tile_matrices.values())).bounds
    assert xmin < xmax and ymin < ymax


@pytest.mark.parametrize("name", NAMES)
def test_every_set_is_morecantiles(name) -> None:
    morecantile = pytest.importorskip("morecantile", reason="its copy of the registry is compared with")
    if name not in morecantile.tms.list():
        pytest.skip(f"morecantile {morecantile.__version__} has no {name}")
    theirs, ours = morecantile.tms.get(name), load_tile_matrix_set(name)
    assert list(ours.tile_matrices) == [matrix.id for matrix in theirs.tileMatrices]
    for matrix in theirs.tileMatrices:
        mine = ours[matrix.id]
        origin = tuple(map(float, matrix.pointOfOrigin))
        assert mine.origin == (origin[::-1] if ours.is_y_first else origin)
        assert (mine.scale_denominator, mine.cell_size) == (matrix.scaleDenominator, matrix.cellSize)
        assert mine.tile_shape == (matrix.tileHeight, matrix.tileWidth)
        assert mine.matrix_shape == (matrix.matrixHeight, matrix.matrixWidth)
        variable = matrix.variableMatrixWidths or []
        assert list(mine.coalesced) == [(v.coalesce, v.minTileRow, v.maxTileRow) for v in variable]
    # The document is one that morecantile takes.
    assert morecantile.TileMatrixSet.model_validate(dict(ours.document)).id == name

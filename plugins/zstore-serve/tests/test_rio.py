"""The reader for rio-tiler beside rio-tiler's own of the same cells, and titiler's tiles by it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

if not entry_points(group="zstore", name="serve"):
    pytest.skip("zstore-serve is not installed, so it has no entry point", allow_module_level=True)
pytest.importorskip("rio_tiler", reason="rio-tiler is not installed (extra 'rio-tiler')")

import rasterio
from rasterio.crs import CRS
from rio_tiler.errors import PointOutsideBounds, RioTilerError, TileOutsideBounds
from rio_tiler.io import Reader as RasterReader
from zstore_serve.rio import Reader

import zstore
from zstore.geo.rasters import raster_to_zarr

SHAPE = (300, 420)
# Of the package affine, at lines of rasterio and rio-tiler.
pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same two bands as a GeoTIFF and as a pyramid; a corner is nodata."""
    folder = tmp_path_factory.mktemp("rio")
    cells = np.random.default_rng(3).integers(1, 4000, (2, *SHAPE)).astype("u2")
    cells[:, :40, :60] = 0
    profile = {
        "driver": "GTiff", "height": SHAPE[0], "width": SHAPE[1], "count": 2, "dtype": "uint16", "nodata": 0,
        "crs": "EPSG:32632", "transform": rasterio.Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0),
    }  # fmt: skip
    with rasterio.open(folder / "a.tif", "w", **profile) as raster:
        raster.write(cells)
    raster_to_zarr(folder / "a.tif", folder / "a.zarr", levels=3, chunks=64)
    return folder / "a.tif", folder / "a.zarr"


def test_tiles_are_rio_tilers(places: tuple[Path, Path]) -> None:
    """At most 2 % of nearest cells come from beside the place: both approximate places."""
    with RasterReader(str(places[0])) as theirs, Reader(places[1]) as ours:
        assert ours.bounds == tuple(theirs.bounds) and ours.crs == theirs.crs
        assert (ours.minzoom, ours.maxzoom) == (theirs.minzoom, theirs.maxzoom)
        tiles = list(ours.tms.tiles(*ours.get_geographic_bounds(CRS.from_epsg(4326)), [13]))
        compared = 0
        for tile in tiles:
            if not theirs.tile_exists(*tile):
                continue
            a, b = (reader.tile(*tile, indexes=(2, 1)) for reader in (theirs, ours))
            assert b.bounds == a.bounds and b.crs == a.crs and b.array.shape == a.array.shape
            assert (a.array.mask != b.array.mask).mean() < 0.01
            both = ~a.array.mask & ~b.array.mask
            assert (a.array.data != b.array.data)[both].mean() < 0.02 if both.any() else True
            compared += int(both.sum())
        assert compared > 50_000
        with pytest.raises(TileOutsideBounds):
            ours.tile(0, 0, 13)


def test_windows_points_and_statistics(places: tuple[Path, Path]) -> None:
    with RasterReader(str(places[0])) as theirs, Reader(places[1]) as ours:
        box = (483000.0, 5494000.0, 486000.0, 5497000.0)
        a, b = (reader.part(box, dst_crs=theirs.crs, bounds_crs=theirs.crs) for reader in (theirs, ours))
        assert np.array_equal(a.array, b.array) and a.band_names == b.band_names == ["b1", "b2"]
        assert ours.preview(max_size=None).array.shape == (2, *SHAPE)
        assert max(ours.preview(max_size=128).array.shape) == 128
        lon, lat = 8.78, 49.63
        assert np.array_equal(theirs.point(lon, lat).array, ours.point(lon, lat).array)
        assert ours.point(lon, lat, expression="b1*2").array[0] == 2 * ours.point(lon, lat).array[0]
        with pytest.raises(PointOutsideBounds):
            ours.point(20, 20)
        info = ours.info()
        assert info.dtype == "uint16" and info.nodata_type == "Nodata" and info.count == 2
        assert ours.statistics(max_size=512)["b1"].max == theirs.statistics(max_size=512)["b1"].max
        corners = ((483000, 5494000), (486000, 5494000), (483000, 5497000), (483000, 5494000))
        shape = {"type": "Polygon", "coordinates": [corners]}
        a, b = (r.feature(shape, dst_crs=theirs.crs, shape_crs=theirs.crs) for r in (theirs, ours))
        assert abs(int(a.array.mask.sum()) - int(b.array.mask.sum())) < 0.02 * a.array.size
        for words, said in (({"indexes": 3}, "from 1 to 2"), ({"resampling_method": "mode"}, "nearest")):
            with pytest.raises(RioTilerError, match=said):
                ours.preview(**words)
        for box, said in (
            ((9, 49, 9, 49), "bbox is"),
            ((9, 50, 8, 51), "bbox is"),
            ((0, 0, 60, 80), "pixels"),
        ):
            with pytest.raises(RioTilerError, match=said):
                ours.part(box)


def test_items_of_other_dimensions_are_chosen(tmp_path: Path, places: tuple[Path, Path]) -> None:
    with pytest.raises(RioTilerError, match="no place on the ground"):
        Reader(zstore.create_array(tmp_path / "p.zarr", data=np.ones((4, 4))))
    with pytest.raises(RioTilerError, match="no collection 'b'"):
        Reader(places[1], collection="b")


def test_titiler_serves_by_it(places: tuple[Path, Path]) -> None:
    factory = pytest.importorskip(
        "titiler.core.factory", reason="titiler.core is not installed (PyPI has it)"
    )
    fastapi = pytest.importorskip("fastapi", reason="titiler.core is not installed (PyPI has it)")
    pytest.importorskip("httpx", reason="titiler.core is not installed (PyPI has it)")
    from starlette.testclient import TestClient

    application = fastapi.FastAPI()
    application.include_router(factory.TilerFactory(reader=Reader).router)
    client = TestClient(application)
    url = {"url": str(places[1])}
    assert client.get("/info", params=url).json()["count"] == 2
    document = client.get("/WebMercatorQuad/tilejson.json", params=url).json()
    assert document["maxzoom"] == 12
    with Reader(places[1]) as ours:
        tile = ours.tms.tile(8.78, 49.63, 12)
        expected = ours.tile(*tile, indexes=1)
    path = f"/tiles/WebMercatorQuad/{tile.z}/{tile.x}/{tile.y}.npy"
    answer = client.get(path, params={**url, "bidx": 1, "tilesize": 256})
    assert answer.status_code == 200, answer.text
    import io

    cells = np.load(io.BytesIO(answer.content))
    assert np.array_equal(cells[0], expected.array[0].data)

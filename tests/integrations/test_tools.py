"""The example raster as a pyramid, opened by the tools that people have."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from zstore.geo.rasters import raster_to_zarr

rasterio = pytest.importorskip("rasterio", reason="rasters are read with rasterio")
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

RASTER = Path(__file__).parent.parent.parent / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
AFFINE = (30.0, 0.0, 612825.0, 0.0, -30.0, 6852675.0)
LEVELS = ((1093, 1310), (547, 655), (274, 328), (137, 164))
NODATA = 65535


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def pyramid(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, int, list]:
    """(path, format, the levels' cells): the raster with a nodata value, and nodata in a corner."""
    path = tmp_path_factory.mktemp("tools")
    with rasterio.open(RASTER) as raster:
        pixels, profile = raster.read(1), raster.profile
    pixels[:100, :77] = NODATA
    with rasterio.open(path / "source.tif", "w", **profile | {"nodata": NODATA}) as raster:
        raster.write(pixels, 1)
    options = {"shards": 512} if request.param == 3 else {"compressors": "blosc"}
    made = raster_to_zarr(
        path / "source.tif", path / "p.zarr", zarr_format=request.param, levels=None, **options
    )
    levels = [made[f"{level}/band_1"][...] for level in range(4)]
    np.testing.assert_array_equal(levels[0], pixels)
    assert tuple(level.shape for level in levels) == LEVELS
    return str(path / "p.zarr"), request.param, levels


def test_zarr_python(pyramid: tuple[str, int, list]) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the pyramid")
    path, zarr_format, levels = pyramid
    with warnings.catch_warnings():
        # zarr-python calls consolidated metadata of Zarr v3 experimental.
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        for consolidated in (True, False):
            group = zarr.open_group(path, mode="r", zarr_format=zarr_format, use_consolidated=consolidated)
            for number, level in enumerate(levels):
                np.testing.assert_array_equal(group[f"{number}/band_1"][...], level)


def test_tensorstore(pyramid: tuple[str, int, list]) -> None:
    tensorstore = pytest.importorskip("tensorstore", reason="tensorstore opens the pyramid")
    path, zarr_format, levels = pyramid
    for number, level in enumerate(levels):
        spec = {"driver": {2: "zarr", 3: "zarr3"}[zarr_format], "kvstore": f"file://{path}/{number}/band_1/"}
        np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), level)


# rioxarray multiplies affines in a way that affine 3.1 advises against.
@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
def test_xarray_and_rioxarray_with_their_defaults(pyramid: tuple[str, int, list]) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray opens the pyramid")
    pytest.importorskip("rioxarray", reason="rioxarray reads the CRS")
    path, _, levels = pyramid
    for number, level in enumerate(levels):
        with xarray.open_zarr(path, group=str(number)) as opened:
            assert set(opened.data_vars) == {"band_1"}
            assert opened.rio.crs.to_epsg() == 32622
            step = 30.0 * 2**number
            assert tuple(opened.rio.transform())[:6] == (step, 0, AFFINE[2], 0, -step, AFFINE[5])
            assert opened.band_1.rio.encoded_nodata == NODATA
            values = opened.band_1.values
            np.testing.assert_array_equal(np.isnan(values), level == NODATA)
            np.testing.assert_array_equal(values[level != NODATA], level[level != NODATA])
            assert float(opened.x[0]) == AFFINE[2] + step / 2
    with xarray.open_datatree(path, engine="zarr") as tree:
        assert list(tree.children) == ["0", "1", "2", "3"]


def test_gdal(pyramid: tuple[str, int, list]) -> None:
    path, zarr_format, levels = pyramid
    try:
        rasterio.open(f'ZARR:"{path}":/0/band_1').close()
    except rasterio.errors.RasterioIOError as error:
        if zarr_format == 2:
            raise
        pytest.skip(f"GDAL {rasterio.__gdal_version__} cannot open this Zarr v3: {error}")
    for number, level in enumerate(levels):
        with rasterio.open(f'ZARR:"{path}":/{number}/band_1') as raster:
            step = 30.0 * 2**number
            assert raster.crs.to_epsg() == 32622 and raster.nodata == NODATA
            np.testing.assert_allclose(
                raster.transform[:6], (step, 0, AFFINE[2], 0, -step, AFFINE[5]), rtol=1e-12
            )
            np.testing.assert_array_equal(raster.read(1), level)

"""Stores of every kind, opened by every reader that is here: one CRS, transform, nodata, and set of levels.

Readers that are not installed skip with their name. `make readers` installs those that are no test
dependencies, and runs these tests a second time on a newer Python, where rasterio has a newer GDAL.
ZSTORE_OPENLAYERS names the node_modules that OpenLayers is in.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs

from .written import (
    CASES,
    SHAPE,
    TILE,
    Written,
    each_store,
    expected_levels,
    gdal_cannot_open,
    gdal_name,
    in_openlayers,
    serving,
)

HERE = Path(__file__).parent / "readers"


@each_store
def test_zstore(stores, name, zarr_format) -> None:
    written = stores(name, zarr_format)
    case, geo = written.case, written.geo
    assert (geo.crs.code, geo.affine, geo.dimensions) == (case.crs, case.affine, case.dimensions)
    assert [level.path for level in geo.levels] == ["0", "1", "2"]
    assert [level.factors for level in geo.levels] == [(1, 1), (2, 2), (4, 4)]
    assert geo.time == case.time
    for variable_name, variable in case.variables.items():
        found = geo.variables[variable_name]
        assert replace(found, dimensions=variable.dimensions) == variable


# rioxarray multiplies affines in a way that affine 3.1 advises against.
@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
@each_store
def test_xarray_and_rioxarray(stores, name, zarr_format) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is the reader")
    pytest.importorskip("rioxarray", reason="rioxarray is the reader")
    written = stores(name, zarr_format)
    case = written.case
    for path, affine, shape in expected_levels(written):
        with xarray.open_zarr(written.path, group=path) as opened:
            assert set(opened.data_vars) == set(case.variables)
            data = opened[case.name]
            assert opened.rio.crs.to_epsg() == int(case.crs.partition(":")[2])
            np.testing.assert_allclose(tuple(opened.rio.transform())[:6], affine, rtol=1e-12, atol=1e-9)
            assert (data.rio.height, data.rio.width) == shape
            assert data.rio.encoded_nodata == case.variable.nodata
            stored = written.values(path)
            expected = stored.astype("f8") * (case.variable.scale_factor or 1) + (
                case.variable.add_offset or 0
            )
            expected[stored == case.variable.nodata] = np.nan
            np.testing.assert_allclose(data.values, expected, rtol=1e-6)
            if case.time is not None:
                np.testing.assert_array_equal(opened["time"].values.astype("M8[us]"), case.time.dates())


@each_store
def test_xarrays_datatree(stores, name, zarr_format) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is the reader")
    written = stores(name, zarr_format)
    with xarray.open_datatree(written.path, engine="zarr") as tree:
        assert list(tree.children) == ["0", "1", "2"]
        for path, _, shape in expected_levels(written):
            assert tree[path][written.case.name].shape[-2:] == shape


def check_gdal(written: Written, path: str, affine: Affine, shape, found: dict) -> None:
    variable, stored = written.case.variable, written.values(path)
    assert found["epsg"] == int(written.case.crs.partition(":")[2])
    np.testing.assert_allclose(found["transform"], affine, rtol=1e-12, atol=1e-9)
    assert (found["nodata"], found["shape"]) == (repr(float(variable.nodata)), list(shape))
    assert found["scale"] == (variable.scale_factor or 1.0)
    first = stored[0] if stored.ndim == 3 else stored
    assert found["sum"] == first.astype("f8").sum()


@each_store
def test_gdal(stores, name, zarr_format) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio's GDAL is the reader")
    written = stores(name, zarr_format)
    reason = gdal_cannot_open(written, tuple(map(int, rasterio.__gdal_version__.split(".")[:2])))
    if reason is not None:
        pytest.skip(f"GDAL {rasterio.__gdal_version__} {reason}")
    for path, affine, shape in expected_levels(written):
        with rasterio.open(gdal_name(written, path)) as raster:
            found = {
                "epsg": raster.crs.to_epsg(), "transform": list(raster.transform[:6]),
                "nodata": repr(float(raster.nodata)), "scale": raster.scales[0], "shape": list(raster.shape),
                "sum": float(raster.read(1).astype("f8").sum()),
            }  # fmt: skip
        check_gdal(written, path, affine, shape, found)


@each_store
def test_gdalinfo(stores, name, zarr_format) -> None:
    """Debian's package `gdal-bin`, or whatever has the word on PATH."""
    gdalinfo = shutil.which("gdalinfo")
    if gdalinfo is None:
        pytest.skip("gdalinfo is not on PATH (Debian's package gdal-bin has it)")
    version = subprocess.run([gdalinfo, "--version"], capture_output=True, text=True, check=True).stdout
    number = version.split()[1].rstrip(",")
    written = stores(name, zarr_format)
    reason = gdal_cannot_open(written, tuple(map(int, number.split(".")[:2])))
    if reason is not None:
        pytest.skip(f"GDAL {number} {reason}")
    for path, affine, shape in expected_levels(written):
        result = subprocess.run(
            [gdalinfo, "-json", "-checksum", gdal_name(written, path)], capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        found = json.loads(result.stdout)
        np.testing.assert_allclose(found["geoTransform"], affine.geotransform, rtol=1e-12, atol=1e-9)
        assert found["size"] == list(reversed(shape))
        assert Crs.from_user(found["coordinateSystem"]["wkt"]).is_same(written.geo.crs)
        band = found["bands"][0]
        assert float(band["noDataValue"]) == written.case.variable.nodata
        assert band.get("scale", 1.0) == (written.case.variable.scale_factor or 1.0)


@each_store
def test_morecantile(stores, name, zarr_format) -> None:
    morecantile = pytest.importorskip("morecantile", reason="morecantile is the reader")
    written = stores(name, zarr_format)
    stated = zstore.open_group(written.path, mode="r").attrs["multiscales"]["tile_matrix_set"]
    found = morecantile.TileMatrixSet.model_validate(stated)
    assert found.crs.to_epsg() == int(written.case.crs.partition(":")[2])
    # It sorts the matrices by their ids.
    matrices = {matrix.id: matrix for matrix in found.tileMatrices}
    assert set(matrices) == {level.path for level in written.geo.levels}
    for level in written.geo.levels:
        matrix = matrices[level.path]
        metres = level.affine.a * written.geo.crs.metres_per_unit
        np.testing.assert_allclose(
            (matrix.cellSize, matrix.scaleDenominator), (level.affine.a, metres / 0.00028)
        )
        assert (matrix.matrixHeight, matrix.matrixWidth) == tuple(-(-n // TILE) for n in level.shape)


def test_openlayers(stores) -> None:
    # OpenLayers knows the projections of the web only; others would need proj4.
    names = [name for name, case in CASES.items() if case.crs == "EPSG:4326"] + ["projected"]
    rows = [stores(name, version) for name in names for version in (2, 3)]
    with serving(Path(rows[0].path).parent) as url:
        answers = in_openlayers([f"{url}/{Path(row.path).name}#{row.case.name}" for row in rows])
    for written, found in zip(rows, answers, strict=True):
        assert "error" not in found, found
        assert found["crs"] == written.case.crs
        # The extent of the finest level's tiles, which reach beyond its cells.
        tiles = tuple(-(-length // TILE) * TILE for length in SHAPE)
        np.testing.assert_allclose(found["extent"], written.geo.affine.bounds(tiles))
        cells = [level.affine.a for level in reversed(written.geo.levels)]
        np.testing.assert_allclose(found["resolutions"], cells)
        assert found["matrices"] == [level.path for level in reversed(written.geo.levels)]

"""Pyramids written by the documents alone, opened by the tools that have to find their way in them."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pytest

from zstore.geo.conventions.base import Affine, Variable
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import render_geo

from .nodes import wrap
from .test_template import BAND, pyramid

pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
zarr = pytest.importorskip("zarr", reason="zarr-python writes and opens the stores of this test")

HEIGHT = Variable(np.dtype("float32"), nodata=-9999.0, units="m", long_name="height", area_or_point="Area")
PLACES = {
    "utm": ("EPSG:32632", Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)),
    "degrees": ("EPSG:4326", Affine(0.001, 0.0, 10.0, 0.0, -0.001, 50.0)),
    "northing first": ("EPSG:2193", Affine(10.0, 0.0, 1500000.0, 0.0, -10.0, 5400000.0)),
    "polar": ("EPSG:3031", Affine(10.0, 0.0, -300000.0, 0.0, -10.0, 500000.0)),
}
HAS_ARRAYS = importlib.util.find_spec("zstore.nodes.array") is not None


def values(shape, dtype) -> np.ndarray:
    return (np.arange(shape[0] * shape[1]) % 251).reshape(shape).astype(dtype)


def write_with_zarr_python(path: str, geo, zarr_format: int) -> None:
    documents, findings = render_geo(geo, zarr_format)
    assert findings == []
    root = zarr.create_group(path, zarr_format=zarr_format, attributes=documents.pop("")["attributes"])
    for name, document in documents.items():
        attributes = document["attributes"]
        if document["kind"] == "group":
            root.create_group(name, attributes=attributes)
            continue
        data, chunks = content(geo, name, document)
        dimensions = {}
        if zarr_format == 3:
            dimensions["dimension_names"] = document["dimension_names"]
        else:
            attributes = attributes | {"_ARRAY_DIMENSIONS": list(document["dimension_names"])}
        array = root.create_array(
            name,
            shape=data.shape,
            dtype=data.dtype,
            chunks=chunks,
            fill_value=document["fill_value"],
            attributes=attributes,
            **dimensions,
        )
        array[...] = data
    zarr.consolidate_metadata(path, zarr_format=zarr_format)


def write_with_zstore(path: str, geo, zarr_format: int) -> None:
    from zstore.nodes.open import create_group

    documents, findings = render_geo(geo, zarr_format)
    assert findings == []
    root = create_group(path, zarr_format=zarr_format, attributes=documents.pop("")["attributes"])
    for name, document in documents.items():
        if document["kind"] == "group":
            root.create_group(name, attributes=document["attributes"])
            continue
        data, chunks = content(geo, name, document)
        root.create_array(
            name,
            data=data,
            chunks=chunks,
            fill_value=document["fill_value"],
            attributes=document["attributes"],
            dimension_names=document["dimension_names"],
        )
    root.consolidate()


def content(geo, name: str, document) -> tuple:
    if "data" in document:
        return document["data"], document["data"].shape
    above, _, variable = name.rpartition("/")
    level = next(level for level in geo.levels if level.path == above)
    return values(level.shape, geo.variables[variable].dtype), level.tile_shape


WRITERS = [
    pytest.param(write_with_zarr_python, id="by zarr-python"),
    pytest.param(
        write_with_zstore,
        id="by zstore",
        marks=pytest.mark.skipif(not HAS_ARRAYS, reason="zstore.nodes.array is not there"),
    ),
]


@pytest.fixture(scope="module", params=WRITERS)
def writer(request):
    return request.param


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def zarr_format(request):
    return request.param


@pytest.fixture(scope="module", params=PLACES.values(), ids=PLACES.keys())
def written(request, writer, zarr_format, tmp_path_factory):
    crs, affine = request.param
    geo = pyramid(crs, affine, {"b02": BAND, "h": HEIGHT}, shape=(100, 87), tile=(32, 32))
    path = str(tmp_path_factory.mktemp("store") / "pyramid.zarr")
    with warnings.catch_warnings():
        # zarr-python calls consolidated metadata of Zarr v3 experimental.
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        writer(path, geo, zarr_format)
    return path, geo, zarr_format


def test_zarr_python(written) -> None:
    path, geo, _ = written
    found, findings = read_geo(wrap(zarr.open_group(path, mode="r")))
    assert (found.crs, found.affine, found.levels, found.resampling) == (
        geo.crs,
        geo.affine,
        geo.levels,
        "average",
    )
    assert found.variables["h"].nodata == -9999.0
    assert findings == []


@pytest.mark.skipif(not HAS_ARRAYS, reason="zstore.nodes.array is not there")
def test_zstore(written) -> None:
    from zstore.nodes.open import open_group

    path, geo, _ = written
    found, findings = read_geo(open_group(path, mode="r"))
    assert (found.crs, found.affine, found.levels, found.resampling) == (
        geo.crs,
        geo.affine,
        geo.levels,
        "average",
    )
    assert (found.variables["b02"].nodata, found.variables["b02"].scale_factor) == (0, 0.0001)
    assert findings == []


# rioxarray multiplies affines in a way that affine 3.1 advises against.
@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
def test_xarray_and_rioxarray_with_their_defaults(written) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray opens the store in this test")
    pytest.importorskip("rioxarray", reason="rioxarray reads the CRS in this test")
    path, geo, _ = written
    for level in geo.levels:
        with xarray.open_zarr(path, group=level.path) as opened:
            assert opened.rio.crs.to_wkt() and opened.rio.crs.to_epsg() == int(geo.crs.code.partition(":")[2])
            assert tuple(opened.rio.transform())[:6] == level.affine
            assert (opened.b02.rio.encoded_nodata, opened.h.rio.encoded_nodata) == (0, -9999.0)
            masked = opened.b02.values
            assert np.isnan(masked[0, 0])
            np.testing.assert_allclose(masked[0, 1:], values(level.shape, "f8")[0, 1:] * 0.0001)
            assert set(opened.data_vars) == {"b02", "h"}
    with xarray.open_datatree(path, engine="zarr") as tree:
        assert list(tree.children) == ["0", "1"]


def test_gdal(written) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio brings the GDAL of this test")
    path, geo, zarr_format = written
    version = tuple(map(int, rasterio.__gdal_version__.split(".")[:2]))
    if zarr_format == 3 and version < (3, 12):
        pytest.skip(f"GDAL {rasterio.__gdal_version__} does not know Zarr v3's codec 'bytes'")
    for level in geo.levels:
        for name, nodata, scale in (("b02", 0.0, 0.0001), ("h", -9999.0, 1.0)):
            with rasterio.open(f'ZARR:"{path}":/{level.path}/{name}') as raster:
                assert raster.crs.to_epsg() == int(geo.crs.code.partition(":")[2])
                np.testing.assert_allclose(raster.transform[:6], level.affine, rtol=1e-12, atol=1e-9)
                assert (raster.nodata, raster.scales) == (nodata, (scale,))
                np.testing.assert_array_equal(raster.read(1), values(level.shape, geo.variables[name].dtype))

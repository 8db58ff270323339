"""The same stores in tools that know the conventions: tilers, eopf-geozarr's own models, readers of OME-Zarr.

Each is asked for what it has a notion of: the CRS, transform, nodata, values and levels.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import zstore

from .written import CASES, each_store, expected_levels

# Zarr v2's consolidated metadata, these tools' own deprecations, what their dependencies say of each other.
pytestmark = pytest.mark.filterwarnings("ignore")
KINDS = ("scale", "translation")


@each_store
def test_rio_tiler(stores, name, zarr_format) -> None:
    reader = pytest.importorskip(
        "rio_tiler.experimental.zarr", reason="rio-tiler's GroupReader is the reader"
    )
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the store for rio-tiler")
    written = stores(name, zarr_format)
    case = written.case
    opened = reader.GroupReader(input=zarr.open_group(written.path, mode="r"))
    assert opened.crs.to_epsg() == int(case.crs.partition(":")[2])
    np.testing.assert_allclose(opened.bounds, written.geo.bounds)
    assert {row["name"] for row in opened.list_variables()} == set(case.variables)
    arrays = opened.get_group_metadata()["arrays"][case.name]
    for array, (_, affine, shape) in zip(arrays, expected_levels(written), strict=True):
        assert (array["height"], array["width"]) == shape
        np.testing.assert_allclose(tuple(array["transform"])[:6], affine, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_ome_zarr_models(stores, name) -> None:
    models = pytest.importorskip("ome_zarr_models.v05.image", reason="ome-zarr-models is the reader")
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the store for ome-zarr-models")
    written = stores(name, 3, "ome")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = models.Image.from_zarr(zarr.open_group(written.path, mode="r"))
    for scale, listed in zip(image.attributes.ome.multiscales, sorted(written.case.variables), strict=True):
        paths = [dataset.path for dataset in scale.datasets]
        assert paths == [f"{level.path}/{listed}" for level in written.geo.levels]
        for dataset, level in zip(scale.datasets, written.geo.levels, strict=True):
            steps, centre = dataset.coordinateTransformations
            assert tuple(steps.scale[-2:]) == level.affine.cell
            assert tuple(centre.translation[-2:]) == tuple(length / 2 for length in level.affine.cell)


@pytest.mark.parametrize("factors", [(2, 2, 2), (3, 2, 1)])
def test_ome_zarr_models_of_volumes(tmp_path, factors) -> None:
    models = pytest.importorskip("ome_zarr_models.v05.image", reason="ome-zarr-models is the reader")
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the store for ome-zarr-models")
    group = zstore.create_group(tmp_path / "source")
    group.create_array("a", data=np.ones((12, 40, 44), "u2"), dimension_names=("z", "y", "x"))
    zstore.build_pyramid(group, tmp_path / "image", factors=factors, levels=2, profile="ome")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = models.Image.from_zarr(zarr.open_group(tmp_path / "image", mode="r"))
    (scale,) = image.attributes.ome.multiscales
    assert [axis.type for axis in scale.axes] == ["space"] * 3
    for step, dataset in enumerate(scale.datasets):
        assert dataset.coordinateTransformations[0].scale == [float(f**step) for f in factors]


@each_store
def test_titiler_xarray(stores, name, zarr_format) -> None:
    reader = pytest.importorskip("titiler.xarray.io", reason="titiler-xarray is the reader")
    pytest.importorskip("obstore", reason="titiler-xarray opens stores with obstore")
    written = stores(name, zarr_format)
    case = written.case
    for level, affine, shape in expected_levels(written):
        with reader.Reader(src_path=written.path, variable=case.name, group=level) as opened:
            assert opened.crs.to_epsg() == int(case.crs.partition(":")[2])
            np.testing.assert_allclose(opened.bounds, affine.bounds(shape))
            np.testing.assert_allclose(tuple(opened.input.rio.transform())[:6], affine, rtol=1e-12, atol=1e-9)
            assert opened.input.rio.encoded_nodata == case.variable.nodata
            image = opened.preview(max_size=None).array
        stored = np.atleast_3d(written.values(level).T).T
        # Images are north-up, whichever way the rows run.
        stored = stored[:, ::-1] if affine.e > 0 else stored
        assert image.shape == stored.shape
        np.testing.assert_array_equal(np.ma.getmaskarray(image), stored == case.variable.nodata)
        expected = stored.astype("f8") * (case.variable.scale_factor or 1) + (case.variable.add_offset or 0)
        np.testing.assert_allclose(image.compressed(), expected[stored != case.variable.nodata], rtol=1e-6)


@pytest.fixture
def opened_by_zarr() -> Any:
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the store for eopf-geozarr")
    return lambda written: zarr.open_group(written.path, mode="r")


@each_store
def test_eopf_geozarrs_models(stores, opened_by_zarr, name, zarr_format) -> None:
    models = pytest.importorskip(
        f"eopf_geozarr.data_api.geozarr.v{zarr_format}", reason="eopf-geozarr's models are the reader"
    )
    written = stores(name, zarr_format)
    group = opened_by_zarr(written)
    stated = models.MultiscaleGroup.from_zarr(group).attributes.multiscales
    for item, (level, affine, shape) in zip(stated.layout, expected_levels(written), strict=True):
        assert item.asset == level
        dataset = models.Dataset.from_zarr(group[level])
        array = dataset.members[written.case.name]
        assert array.shape[-2:] == shape
        assert tuple(array.array_dimensions)[-2:] == written.case.dimensions
        attributes = group[level].attrs.asdict()
        np.testing.assert_allclose(attributes["spatial:transform"], affine)
    matrices = {matrix.id: matrix for matrix in stated.tile_matrix_set.tileMatrices}
    assert {name: matrix.cellSize for name, matrix in matrices.items()} == {
        level.path: level.affine.a for level in written.geo.levels
    }


@pytest.mark.parametrize("name", CASES)
def test_eopf_geozarrs_own_validation(stores, opened_by_zarr, name) -> None:
    validation = pytest.importorskip(
        "eopf_geozarr.data_api.geozarr.validation",
        reason="eopf-geozarr validates from 0.9 on, which needs Python 3.12",
    )
    report = validation.validate_store(opened_by_zarr(stores(name, 3)))
    assert report.compliant, [str(issue) for issue in report.issues]
    roles = {path: set(found) for path, found in report.roles.items()}
    assert roles["/"] == {"store-root", "multiscale-dataset"}
    assert {path for path, found in roles.items() if "dataset" in found} == {"/0", "/1", "/2"}


@pytest.mark.parametrize("name", CASES)
def test_ome_zarr(stores, name) -> None:
    io = pytest.importorskip("ome_zarr.io", reason="ome-zarr is the reader")
    from ome_zarr.reader import Reader

    written = stores(name, 3, "ome")
    node = next(iter(Reader(io.parse_url(written.path, mode="r"))()))
    assert [level.shape[-2:] for level in node.data] == [level.shape for level in written.geo.levels]
    assert [axis["name"] for axis in node.metadata["axes"]][-2:] == list(written.case.dimensions)
    transforms = node.metadata["coordinateTransformations"]
    for data, steps, level in zip(node.data, transforms, written.geo.levels, strict=True):
        scale, translation = (next(s[kind] for s in steps if s["type"] == kind) for kind in KINDS)
        assert tuple(scale[-2:]) == level.affine.cell
        assert tuple(translation[-2:]) == tuple(length / 2 for length in level.affine.cell)
        np.testing.assert_array_equal(np.asarray(data), written.values(level.path))

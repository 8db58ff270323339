"""Stores that other tools write: read as they are meant, and once fixed, opened right by every reader."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.read import read_geo
from zstore.geo.validation.fixing.fix import fix, plan_fix
from zstore.geo.validation.run import validate

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
# What these tools and their dependencies say of each other.
pytestmark = pytest.mark.filterwarnings("ignore")

UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
SHAPE = (215, 173)
# Neither the type of a level nor what its cells are worth is fixed: that would take other chunks.
CHUNKS = {"GZ-22", "GZ-33"}


@dataclass(frozen=True)
class Theirs:
    """What was written, and what is known of it.

    levels    where the arrays are, and the factors of each, the finest first
    findings  the rules that have errors before fixing
    stays     errors that fixing must leave
    fill_value  what the user says that arrays hold where no chunk is
    """

    path: Path
    levels: dict[str, int]
    findings: set[str]
    stays: set[str]
    group: str = ""
    fill_value: int | None = None


def cells(shape: tuple[int, int] = SHAPE) -> np.ndarray:
    return np.random.default_rng(3).integers(1, 5000, shape).astype("u2")


def dataset(names: tuple[str, ...], shape: tuple[int, int], attributes: dict[str, Any]) -> Any:
    xarray = pytest.importorskip("xarray", reason="the tool takes xarray's datasets")
    y, x = UTM.coordinates(shape)
    data = {name: (("y", "x"), cells(shape), dict(attributes)) for name in names}
    return xarray.Dataset(data, coords={"y": y, "x": x})


def by_eopf(place: Path, _: int) -> Theirs:
    """eopf-geozarr's converter of Sentinel-2's products, on one of two bands."""
    converter = pytest.importorskip("eopf_geozarr.conversion.geozarr", reason="eopf-geozarr is the writer")
    xarray = pytest.importorskip("xarray", reason="eopf-geozarr takes xarray's trees")
    bands = dataset(("b02", "b03"), SHAPE, {"proj:epsg": 32632})
    tree = xarray.DataTree.from_dict({"/measurements/r10m": bands})
    tree.attrs = {"other_metadata": {"horizontal_CRS_code": "EPSG:32632"}}
    group = "measurements/r10m"
    path = place / "eopf.zarr"
    converter.create_geozarr_dataset(tree, [f"/{group}"], str(path), spatial_chunk=64, min_dimension=64)
    made = zstore.open_group(path, group, mode="r")
    # Edges for centres; another type and no packing in the coarser level; to 0.8, a tile matrix set as well,
    # with scale denominators of no unit, and the finest level in a group of its own.
    findings = {"GZ-22", "GZ-29", "GZ-33"}
    if "0" in made:
        return Theirs(path, {"0/b02": 1, "1/b02": 2}, findings | {"GZ-45"}, CHUNKS, group)
    return Theirs(path, {"b02": 1, "r2/b02": 2}, findings, CHUNKS, group)


def by_ndpyramid(place: Path, zarr_format: int) -> Theirs:
    ndpyramid = pytest.importorskip("ndpyramid", reason="ndpyramid is the writer")
    pytest.importorskip("rioxarray", reason="rioxarray writes the CRS for ndpyramid")
    raster = dataset(("b02",), (128, 128), {}).rio.write_crs(32632).rio.write_transform()
    tree = ndpyramid.pyramid_coarsen(raster, factors=[4, 2, 1], dims=["y", "x"], boundary="trim")
    path = place / "ndpyramid.zarr"
    tree.to_zarr(path, zarr_format=zarr_format)
    # Every level has the finest's GeoTransform.
    return Theirs(path, {"2/b02": 1, "1/b02": 2, "0/b02": 4}, {"MS-28"}, set())


def by_gdal(place: Path, zarr_format: int) -> Theirs:
    rasterio = pytest.importorskip("rasterio", reason="GDAL is the writer")
    if zarr_format == 3 and gdal_version() < (3, 11):
        pytest.skip(f"GDAL {rasterio.__gdal_version__} writes an early draft of Zarr v3")
    path = place / "gdal.zarr"
    options: dict[str, Any] = {"FORMAT": f"ZARR_V{zarr_format}", "BLOCKSIZE": "64,64", "ARRAY_NAME": "b02"}
    options |= {"crs": "EPSG:32632", "transform": rasterio.Affine(*UTM)}
    with rasterio.open(path, "w", "Zarr", SHAPE[1], SHAPE[0], 1, dtype="uint16", **options) as raster:
        raster.write(cells(), 1)
    # In v3 it writes no fill value where there is no nodata, and zarr-python refuses that.
    return Theirs(path, {"b02": 1}, set(), set(), fill_value=65535 if zarr_format == 3 else None)


def gdal_version() -> tuple[int, ...]:
    rasterio = pytest.importorskip("rasterio", reason="rasterio has GDAL")
    return tuple(map(int, rasterio.__gdal_version__.split(".")[:2]))


WRITERS = [
    pytest.param(by_eopf, 3, id="eopf-geozarr"),
    pytest.param(by_ndpyramid, 2, id="ndpyramid, v2"),
    pytest.param(by_ndpyramid, 3, id="ndpyramid, v3"),
    pytest.param(by_gdal, 2, id="GDAL, v2"),
    pytest.param(by_gdal, 3, id="GDAL, v3"),
]


def gdal_sees(theirs: Theirs, path: str, zarr_format: int) -> tuple[int, tuple[float, ...], int] | None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio's GDAL is a reader")
    if zarr_format == 3 and gdal_version() < (3, 11):
        return None
    with rasterio.open(f'ZARR:"{theirs.path}":/{path}') as raster:
        return raster.crs.to_epsg(), tuple(raster.transform[:6]), int(raster.read(1).astype("f8").sum())


@pytest.mark.parametrize("write, zarr_format", WRITERS)
def test_a_fixed_store_opens_right(
    write: Callable[[Path, int], Theirs], zarr_format: int, tmp_path: Path
) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is a reader")
    pytest.importorskip("rioxarray", reason="rioxarray is a reader")
    theirs = write(tmp_path, zarr_format)
    group = zstore.open_group(theirs.path, theirs.group or None, mode="r")
    before = {path: group[path][...] for path in theirs.levels}
    found = {finding.rule for finding in validate(theirs.path).findings if finding.severity == "error"}
    assert found == theirs.findings
    assert [level.affine.a for level in read_geo(group)[0].levels][1:] in (
        [],
        [pytest.approx(10.0 * factor, rel=0.02) for factor in list(theirs.levels.values())[1:]],
    )
    fix(theirs.path, backup=tmp_path / "backup", fill_value=theirs.fill_value)
    left = {finding.rule for finding in validate(theirs.path).findings if finding.severity == "error"}
    assert left <= theirs.stays
    assert plan_fix(theirs.path).changes == {}
    for path, factor in theirs.levels.items():
        node = "/".join(filter(None, (theirs.group, path)))
        np.testing.assert_array_equal(zstore.open_array(theirs.path, node, mode="r")[...], before[path])
        expected = UTM.scaled((factor, factor))
        seen = gdal_sees(theirs, node, zarr_format)
        if seen is not None:
            assert seen[0] == 32632 and seen[2] == int(before[path].astype("f8").sum())
            np.testing.assert_allclose(seen[1], expected, rtol=1e-9)
        with xarray.open_zarr(theirs.path, group=node.rpartition("/")[0] or None) as opened:
            assert opened[node.rpartition("/")[2]].rio.crs.to_epsg() == 32632
            np.testing.assert_allclose(tuple(opened.rio.transform(recalc=True))[:6], expected, rtol=1e-9)


def test_eopf_geozarr_takes_back_what_was_fixed(tmp_path: Path) -> None:
    validation = pytest.importorskip(
        "eopf_geozarr.data_api.geozarr.validation",
        reason="eopf-geozarr validates from 0.9 on, which needs Python 3.12",
    )
    theirs = by_eopf(tmp_path, 3)
    assert validation.validate_store(str(theirs.path)).compliant
    fix(theirs.path, backup=tmp_path / "backup")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = validation.validate_store(str(theirs.path))
    assert report.compliant, [str(issue) for issue in report.issues]

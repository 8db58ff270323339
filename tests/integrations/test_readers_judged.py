"""What other tools' validators make of what is written here, and zstore's of what these tools write."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.build import build_pyramid, build_tile_pyramid
from zstore.geo.pyramid.levels import add_auxiliaries
from zstore.geo.validation.run import validate

from .written import CASES

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
# What these tools and their dependencies say of each other.
pytestmark = pytest.mark.filterwarnings("ignore")

UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
DEGREES = Affine(0.01, 0.0, 10.0, 0.0, -0.01, 50.0)
SHAPE = (256, 256)


def cells() -> np.ndarray:
    return np.random.default_rng(3).integers(1, 5000, SHAPE).astype("f4")


def raster(crs: str, affine: Affine) -> zstore.Group:
    """A raster in memory."""
    geo = GeoModel(Crs.from_user(crs), affine, SHAPE, variables={"b02": Variable(np.dtype("f4"))})
    documents, _ = render_geo(geo, 3)
    group = zstore.create_group("memory://", attributes=documents[""]["attributes"])
    add_auxiliaries(group, documents, "")
    stated = documents["b02"]["attributes"]
    group.create_array("b02", data=cells(), chunks=64, dimension_names=("y", "x"), attributes=stated)
    return group


def groups_of(path: Any) -> Iterator[tuple[str, Any]]:
    """Every group of a store, as zarr-python opens it."""
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the store for the validator")
    root = zarr.open_group(path, mode="r")
    yield "", root
    for name, node in root.members(max_depth=None):
        if isinstance(node, zarr.Group):
            yield name, node


def judge_by_toolkit(path: Any) -> None:
    toolkit = pytest.importorskip("geozarr_toolkit", reason="geozarr-toolkit is the validator")
    for name, group in groups_of(path):
        found = toolkit.validate_group(group)
        assert not any(found.values()), (name, found)


def judge_by_eopf(path: Any) -> None:
    validation = pytest.importorskip(
        "eopf_geozarr.data_api.geozarr.validation",
        reason="eopf-geozarr validates from 0.9 on, which needs Python 3.12",
    )
    _, root = next(groups_of(path))
    report = validation.validate_store(root)
    assert report.compliant, [str(issue) for issue in report.issues]


@pytest.mark.parametrize("name", CASES)
def test_geozarr_toolkit_takes_all_that_is_written(stores: Any, name: str) -> None:
    judge_by_toolkit(stores(name, 3).path)


@pytest.mark.parametrize("judge", [judge_by_toolkit, judge_by_eopf])
@pytest.mark.parametrize("profile", [None, "geozarr-1.0", "geozarr-mini"])
@pytest.mark.parametrize("crs", ["OGC:CRS84", "EPSG:4326", "EPSG:32632"])
def test_a_pyramid_is_judged(
    judge: Callable[[Any], None], profile: str | None, crs: str, tmp_path: Path
) -> None:
    """Codes of other authorities than numbers have, too."""
    source = raster(crs, UTM if crs == "EPSG:32632" else DEGREES)
    build_pyramid(source, tmp_path / "a.zarr", levels=2, profile=profile)
    judge(tmp_path / "a.zarr")


@pytest.mark.parametrize("judge", [judge_by_toolkit, judge_by_eopf])
def test_a_pyramid_on_web_tiles_is_judged(judge: Callable[[Any], None], tmp_path: Path) -> None:
    """With the coordinates of every level, however long: the mini spec wants them."""
    build_tile_pyramid(
        raster("EPSG:32632", UTM), tmp_path / "web.zarr", min_zoom=7, max_zoom=9, profile="geozarr-mini"
    )
    judge(tmp_path / "web.zarr")


@pytest.mark.parametrize("profile, version", [("ome", "v05"), ("ome-0.6", "v06")])
def test_an_image_is_judged(profile: str, version: str, tmp_path: Path) -> None:
    models = pytest.importorskip(f"ome_zarr_models.{version}", reason="ome-zarr-models is the validator")
    build_pyramid(raster("EPSG:32632", UTM), tmp_path / "image.zarr", levels=2, profile=profile)
    _, root = next(groups_of(tmp_path / "image.zarr"))
    image = models.Image.from_zarr(root)
    assert len(image.attributes.ome.multiscales[0].datasets) == 3


def dataset() -> Any:
    xarray = pytest.importorskip("xarray", reason="the tool takes xarray's datasets")
    y, x = UTM.coordinates(SHAPE) or ((), ())
    return xarray.Dataset({"b02": (("y", "x"), cells())}, coords={"y": y, "x": x})


def by_ome(version: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        writer = pytest.importorskip("ome_zarr.writer", reason="ome-zarr is the writer")
        zarr = pytest.importorskip("zarr", reason="ome-zarr writes with zarr-python")
        from ome_zarr import format as formats

        zarr_format = 2 if version == "V04" else 3
        root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
        image = cells().astype("u2")[None]
        writer.write_image(image, root, axes="zyx", fmt=getattr(formats, f"Format{version}")())

    return write


def by_ndpyramid(path: Path) -> None:
    ndpyramid = pytest.importorskip("ndpyramid", reason="ndpyramid is the writer")
    pytest.importorskip("rioxarray", reason="rioxarray writes the CRS for ndpyramid")
    placed = dataset().rio.write_crs(32632).rio.write_transform()
    ndpyramid.pyramid_reproject(placed, levels=2).to_zarr(path, zarr_format=3)


def by_topozarr(path: Path) -> None:
    topozarr = pytest.importorskip("topozarr", reason="topozarr is the writer")
    pytest.importorskip("xproj", reason="xproj says the CRS to topozarr")
    placed = dataset().proj.assign_crs(spatial_ref="EPSG:32632")
    topozarr.create_pyramid(placed, levels=2, x_dim="x", y_dim="y").write(path)


def by_netcdf(path: Path) -> None:
    """As the library of netCDF writes Zarr, where it was built to."""
    netcdf = pytest.importorskip("netCDF4", reason="netCDF-C is the writer")
    try:
        made = netcdf.Dataset(f"file://{path}#mode=nczarr,file", "w")
    except (OSError, ValueError):
        pytest.skip("the NetCDF library was built without NCZarr")
    with made:
        made.Conventions = "CF-1.8"
        for name, unit, axis in (("lat", "degrees_north", "Y"), ("lon", "degrees_east", "X")):
            made.createDimension(name, 64)
            described = made.createVariable(name, "f8", (name,))
            described.units, described.axis = unit, axis
            described.standard_name = {"lat": "latitude", "lon": "longitude"}[name]
            described[:] = 10.0 + 0.25 * np.arange(64)
        values = made.createVariable("t2m", "i2", ("lat", "lon"), fill_value=-32767)
        values.standard_name, values.units, values.grid_mapping = "air_temperature", "K", "crs"
        values[:] = 280
        made.createVariable("crs", "i4", ()).grid_mapping_name = "latitude_longitude"


@pytest.mark.parametrize(
    "write, profile",
    [
        pytest.param(by_ome("V04"), "ome", id="ome-zarr, 0.4"),
        pytest.param(by_ome("V05"), "ome", id="ome-zarr, 0.5"),
        pytest.param(by_ndpyramid, None, id="ndpyramid"),
        pytest.param(by_topozarr, "geozarr-1.0", id="topozarr"),
        pytest.param(by_netcdf, None, id="NCZarr"),
    ],
)
def test_others_stores_have_no_false_errors(
    write: Callable[[Path], None], profile: str | None, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(tmp_path / "theirs.zarr")
    for asked in (None, "auto"):
        verdict = validate(tmp_path / "theirs.zarr", asked)
        assert [found for found in verdict.findings if found.severity == "error"] == []
        assert verdict.profile == (profile if asked else None)

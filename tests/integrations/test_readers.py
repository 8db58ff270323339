"""Stores of every kind, opened by every reader that is here: one CRS, transform, nodata, and set of levels.

Readers that are not installed skip with their name. `make readers` installs those that need more than the
test dependencies: OpenLayers (ZSTORE_OPENLAYERS names its node_modules), and a newer GDAL where
ZSTORE_READERS_PYTHON names a Python whose rasterio has it.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.conventions.content.timeaxis import TimeAxis
from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine, Band, GeoModel, Variable
from zstore.conventions.read import read_geo
from zstore.conventions.write import render_geo

pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

HERE = Path(__file__).parent / "readers"
LEVELS = 3
SHAPE = (200, 173)
TILE = 64
UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
DEGREES = Affine(0.01, 0.0, 10.0, 0.0, -0.01, 50.0)
U2 = Variable(np.dtype("u2"), nodata=0, long_name="digital number", area_or_point="Area")
F4 = Variable(np.dtype("f4"), nodata=-9999.0, units="K", standard_name="air_temperature")
PACKED = Variable(np.dtype("i2"), nodata=-32768, scale_factor=0.01, add_offset=273.15, units="K")
CLASSES = Variable(
    np.dtype("u1"), nodata=255, flag_values=(1, 2, 3), flag_meanings=("water", "land", "cloud"),
    long_name="class",
)  # fmt: skip
RED, NIR = Band("B04", common_name="red", wavelength=0.665), Band("B08", common_name="nir", wavelength=0.842)
TIME = TimeAxis.from_dates(["2024-02-28", "2024-02-29", "2024-03-01"])


@dataclass(frozen=True)
class Case:
    """One store: where it is, and what its arrays hold."""

    crs: str
    affine: Affine
    variables: dict[str, Variable]
    time: TimeAxis | None = None
    dimensions: tuple[str, str] = ("y", "x")

    @property
    def name(self) -> str:
        """The array that the readers are asked for."""
        return next(iter(self.variables))

    @property
    def variable(self) -> Variable:
        return self.variables[self.name]


CASES = {
    "projected": Case("EPSG:32632", UTM, {"dn": U2}),
    "geographic": Case("EPSG:4326", DEGREES, {"t2m": F4}, dimensions=("lat", "lon")),
    "northing first": Case("EPSG:2193", UTM._replace(c=1500000.0), {"dn": U2}),
    "south-up": Case("EPSG:32632", Affine(10.0, 0.0, 300000.0, 0.0, 10.0, 4990000.0), {"dn": U2}),
    "time": Case(
        "EPSG:4326", DEGREES, {"t2m": replace(F4, dimensions=("time", "y", "x"))}, TIME
    ),
    "bands": Case("EPSG:32632", UTM, {"B04": replace(U2, bands=(RED,)), "B08": replace(U2, bands=(NIR,))}),
    "packed": Case("EPSG:32632", UTM, {"sst": PACKED}),
    "categorical": Case("EPSG:32632", UTM, {"scl": CLASSES}),
}  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A store on disk, and what zstore itself says that is there."""

    case: Case
    path: str
    zarr_format: int
    geo: GeoModel

    def values(self, level: str) -> np.ndarray:
        array = zstore.open_array(self.path, f"{level}/{self.case.name}", mode="r")
        return array[...]


def fill(variable: Variable, shape: tuple[int, ...]) -> np.ndarray:
    values = (np.arange(np.prod(shape)).reshape(shape) * 7 % 3 + 1).astype(variable.dtype)
    values[..., :9, :13] = variable.nodata
    return values


def write(case: Case, path: Path, zarr_format: int, profile: str | None = None) -> Written:
    geo = GeoModel(
        Crs.from_user(case.crs), case.affine, SHAPE, case.dimensions, variables=case.variables, time=case.time
    )
    documents, notices = render_geo(geo, zarr_format, profile=profile)
    assert notices == [] or profile in ("ome", "multiscale-arrays")
    root = zstore.create_group(path, zarr_format=zarr_format)
    base = root.create_group("0", attributes=documents.pop("")["attributes"])
    codec = "zlib" if zarr_format == 2 else "gzip"
    for name, document in documents.items():
        variable = case.variables.get(name)
        dims = document["dimension_names"]
        sizes = {"time": 0 if case.time is None else case.time.values.size}
        sizes |= dict(zip(case.dimensions, SHAPE, strict=True))
        data = document.get("data")
        data = fill(variable, tuple(sizes[dim] for dim in dims)) if variable is not None else data
        chunks = [TILE if dim in case.dimensions and len(dims) > 1 else sizes.get(dim) for dim in dims]
        base.create_array(
            name,
            data=data,
            chunks=tuple(chunks) or "auto",
            compressors=codec,
            fill_value=document["fill_value"],
            attributes=document["attributes"],
            dimension_names=dims,
        )
    zstore.build_pyramid(base, root, levels=LEVELS - 1, profile=profile)
    found, findings = read_geo(zstore.open_group(path, mode="r"))
    assert [finding for finding in findings if finding.severity != "note"] == []
    return Written(case, str(path), zarr_format, found)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A store of a case, made once."""
    place = tmp_path_factory.mktemp("readers")

    @functools.cache
    def made(name: str, zarr_format: int, profile: str | None = None) -> Written:
        path = place / f"{name.replace(' ', '-')}-{profile}-v{zarr_format}.zarr"
        return write(CASES[name], path, zarr_format, profile)

    return made


EVERY_STORE = [pytest.param(name, version, id=f"{name}, v{version}") for name in CASES for version in (2, 3)]
each_store = pytest.mark.parametrize(("name", "zarr_format"), EVERY_STORE)


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


def expected_levels(written: Written) -> Iterator[tuple[str, Affine, tuple[int, int]]]:
    for level in written.geo.levels:
        yield level.path, level.affine, level.shape


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


def gdal_name(written: Written, path: str) -> str:
    """One raster; of a cube, the first moment."""
    return f'ZARR:"{written.path}":/{path}/{written.case.name}' + (
        ":0" if written.case.time is not None else ""
    )


@each_store
def test_gdal(stores, name, zarr_format) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio's GDAL is the reader")
    if zarr_format == 3 and tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 11):
        pytest.skip(f"GDAL {rasterio.__gdal_version__} cannot open Zarr v3 as it is now")
    written = stores(name, zarr_format)
    for path, affine, shape in expected_levels(written):
        with rasterio.open(gdal_name(written, path)) as raster:
            found = {
                "epsg": raster.crs.to_epsg(), "transform": list(raster.transform[:6]),
                "nodata": repr(float(raster.nodata)), "scale": raster.scales[0], "shape": list(raster.shape),
                "sum": float(raster.read(1).astype("f8").sum()),
            }  # fmt: skip
        check_gdal(written, path, affine, shape, found)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_newer_gdal(stores, zarr_format) -> None:
    python = os.environ.get("ZSTORE_READERS_PYTHON")
    if not python:
        pytest.skip("ZSTORE_READERS_PYTHON names no Python with a newer rasterio")
    rows = [
        (stores(name, zarr_format), *level)
        for name in CASES
        for level in expected_levels(stores(name, zarr_format))
    ]
    names = [gdal_name(written, path) for written, path, _, _ in rows]
    result = subprocess.run(
        [python, HERE / "gdal.py", *names], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr
    _, *found = map(json.loads, result.stdout.splitlines())
    for (written, path, affine, shape), one in zip(rows, found, strict=True):
        check_gdal(written, path, affine, shape, one)


@each_store
def test_gdalinfo(stores, name, zarr_format) -> None:
    gdalinfo = shutil.which("gdalinfo")
    if gdalinfo is None:
        pytest.skip("gdalinfo is not on PATH")
    written = stores(name, zarr_format)
    result = subprocess.run(
        [gdalinfo, "-json", gdal_name(written, "0")], capture_output=True, text=True, check=False
    )
    if result.returncode and zarr_format == 3:
        pytest.skip(f"this GDAL cannot open this Zarr v3: {result.stderr.strip()}")
    found = json.loads(result.stdout)
    np.testing.assert_allclose(found["geoTransform"], written.geo.affine.geotransform, rtol=1e-12)


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


# Zarr v2's consolidated metadata, its own deprecations, and what its dependencies say of each other.
@pytest.mark.filterwarnings("ignore")
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


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(stores) -> Iterator[str]:
    """The URL of the folder of stores, on loopback."""
    place = Path(stores("projected", 3).path).parent
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(place)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_openlayers(stores, served) -> None:
    modules, node = os.environ.get("ZSTORE_OPENLAYERS"), shutil.which("node")
    if not modules or node is None:
        pytest.skip("ZSTORE_OPENLAYERS names no node_modules with OpenLayers, or there is no node")
    # OpenLayers knows the projections of the web only; others would need proj4.
    names = [name for name, case in CASES.items() if case.crs == "EPSG:4326"] + ["projected"]
    rows = [stores(name, version) for name in names for version in (2, 3)]
    urls = [f"{served}/{Path(written.path).name}#{written.case.name}" for written in rows]
    result = subprocess.run(
        [node, HERE / "openlayers.mjs", Path(modules).resolve(), *urls],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for written, line in zip(rows, result.stdout.splitlines(), strict=True):
        found = json.loads(line)
        assert "error" not in found, found
        assert found["crs"] == written.case.crs
        # The extent of the finest level's tiles, which reach beyond its cells.
        tiles = tuple(-(-length // TILE) * TILE for length in SHAPE)
        np.testing.assert_allclose(found["extent"], written.geo.affine.bounds(tiles))
        cells = [level.affine.a for level in reversed(written.geo.levels)]
        np.testing.assert_allclose(found["resolutions"], cells)
        assert found["matrices"] == [level.path for level in reversed(written.geo.levels)]

"""Files as models, satellites and radars have them keep values and masks in all that is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.storage.memory import MemoryStore

from . import shaped
from .compared import compare_files, compare_stores

xr = pytest.importorskip("xarray", reason="xarray says what is right")
netCDF4 = pytest.importorskip("netCDF4", reason="xarray writes by netCDF-C")
pytest.importorskip("h5netcdf", reason="xarray writes by h5netcdf")
pytest.importorskip("zarr", reason="xarray writes by zarr-python")

# Each says what is assumed: a CRS of longitudes, kilometres, the last two dimensions of a swath.
pytestmark = [
    pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning"),
    pytest.mark.filterwarnings("ignore:saving variable None:xarray.SerializationWarning"),
]


def opened(path: Path) -> Any:
    kind = {"engine": "zarr", "consolidated": False} if path.suffix == ".zarr" else {}
    with xr.open_dataset(path, decode_times=False, **kind) as found:
        return found.load()


def read(path: Path | str) -> Any:
    return xr.open_dataset(path, engine="zstore", decode_times=False).load()


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    found, expected = np.asarray(found, "f8"), np.asarray(expected, "f8")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def assert_valid(path: Path) -> None:
    assert [str(one) for one in zstore.validate(path).findings if one.severity == "error"] == []


def check(name: str, seed: int, folder: Path) -> None:
    """Converted, reduced, as a pyramid and as tiles, the file has xarray's values and no errors."""
    path, variable, (y, x), time = shaped.write(name, seed, folder)
    expected = opened(path)[variable]
    fine = 1e-5 * max(abs(float(expected.max())), abs(float(expected.min())), 1.0)
    made, pyramid, tiles = (folder / f"{word}-{name}-{seed}.zarr" for word in ("made", "pyramid", "tiles"))

    zstore.convert(path, made)
    assert_close(read(made)[variable], expected, 0)
    assert_valid(made)
    comes_back(path, made, folder)
    for axis in (None, time) if time else (None,):
        assert_close(
            zstore.reduce(f"{made}/{variable}", "mean", axis=axis, unpack=True), expected.mean(axis), fine
        )

    zstore.build_pyramid(made, pyramid, levels=2)
    half = 0.5001 * abs(expected.encoding.get("scale_factor", 0.0))
    for level in (1, 2):
        mean = expected.astype("f8").coarsen({y: 2**level, x: 2**level}, boundary="pad").mean()
        assert_close(read(f"{pyramid}/{level}")[variable], mean, fine + half)
    assert_valid(pyramid)

    if name not in ("swath", "radar"):  # those lie on no grid
        zstore.build_tile_pyramid(made, tiles)
        assert_valid(tiles)


def comes_back(path: Path, made: Path, folder: Path) -> None:
    """What was converted goes into a file and out of it, and is what the writer wrote."""
    back = zstore.zarr_to_netcdf(made, folder / f"back-{made.stem}.nc")
    if path.suffix == ".nc":
        with netCDF4.Dataset(path) as expected, netCDF4.Dataset(back) as found:
            compare_files(found, expected)
    compare_stores(zstore.netcdf_to_zarr(back, MemoryStore()), zstore.open_group(made, mode="r"))


@pytest.mark.parametrize("name", ["CMIP6", "GOES", "OSI SAF"])
def test_files_of_some_shapes(name, tmp_path):
    check(name, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("name", [*shaped.SHAPES, "satpy"])
def test_many_files_of_every_shape(name, seed, tmp_path):
    check(name, seed, tmp_path)


@pytest.mark.filterwarnings("ignore:.*multiple fill values:xarray.SerializationWarning")
@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("i2", {"_FillValue": -9, "missing_value": [7, 8]}),
        ("u1", {"missing_value": [255, 254]}),
        ("f4", {"_FillValue": "AAAAAAAA+H8=", "missing_value": [1e20, -9.0]}),
        ("f8", {"_FillValue": "AAAAAAAAIsA=", "scale_factor": 0.5, "add_offset": 3.0}),
    ],
)
def test_every_value_of_nodata_is_missing_in_all_that_is_made(tmp_path: Path, dtype: str, said: Any) -> None:
    rng = np.random.default_rng(3)
    holes = [np.nan, -9.0, 1e20] if dtype[0] == "f" else [-9 if dtype == "i2" else 255, 8, 7, 254]
    holes = [hole for hole in holes if dtype[0] == "f" or np.iinfo(dtype).min <= hole <= np.iinfo(dtype).max]
    stored = rng.integers(20, 99, (16, 16)).astype(dtype)
    stored[rng.random((16, 16)) < 0.3] = holes[0]
    stored[rng.random((16, 16)) < 0.2] = holes[1]
    stored[:4, :4] = holes[1]
    source = tmp_path / "s.zarr"
    place = {
        "proj:code": "EPSG:32633",
        "spatial:dimensions": ["y", "x"],
        "spatial:transform": [10, 0, 5e5, 0, -10, 5e6],
    }
    group = zstore.create_group(source, attributes=place)
    group.create_array("a", data=stored, chunks=(8, 8), dimension_names=("y", "x"), attributes=said)
    expected = xr.open_zarr(source, consolidated=False)["a"].load()
    assert_close(read(source)["a"], expected, 0)
    for zarr_format in (2, 3):
        zstore.convert(source, tmp_path / f"v{zarr_format}", zarr_format=zarr_format)
        assert_close(read(tmp_path / f"v{zarr_format}")["a"], expected, 0)
    for packing in ("attributes", "codecs"):
        read(source).zstore.to_geozarr(tmp_path / packing, packing=packing)
        assert_close(read(tmp_path / packing)["a"], expected, 1e-4)
    tolerance = 0.51 if dtype[0] != "f" else 1e-4
    mean = zstore.reduce(f"{source}/a", "mean", axis="y", unpack=True)
    assert_close(mean, expected.mean("y"), 1e-4)
    coarser = expected.coarsen(y=2, x=2).mean()
    zstore.build_pyramid(source, tmp_path / "p", levels=1)
    assert_close(read(tmp_path / "p" / "0")["a"], expected, 0)
    assert_close(read(tmp_path / "p" / "1")["a"], coarser, tolerance)
    assert_valid(tmp_path / "p")
    views = {"coarse": zstore.coarsen(source, 2), "near": zstore.reproject(source, source)}
    for name, view in views.items():
        zstore.convert(view, tmp_path / name)
        found = read(tmp_path / name)
        assert_close(found[next(iter(found.data_vars))], coarser if name == "coarse" else expected, tolerance)
    assert_close(zstore.calculate("a + 0", {"a": group["a"]}).read(), expected, 1e-4)

"""NaN without nodata: left out, where that shows in nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.geo.resampling.methods import METHODS, downsample, plan_part
from zstore.geo.resampling.sample import sample

CASES = [((37, 53), (2, 2)), ((8, 9000), (2, 3)), ((3, 40, 41), (1, 2, 5)), ((20, 22, 3), (2, 4, 1))]
ROUGH = ("average", "rms", "sum", "max", "min", "med", "q1", "q3", "gauss", "bilinear", "cubic", "lanczos")


def image(dtype: str, shape: tuple[int, ...], share: float) -> np.ndarray:
    rng = np.random.default_rng(len(shape) * 10 + int(share * 100))
    array = (rng.random(shape) * 100 - 30).astype(dtype)
    array[rng.random(shape) < 0.02] = -0.0
    array[rng.random(shape) < 0.005] = np.inf
    array[rng.random(shape) < 0.005] = -np.inf
    array[rng.random(shape) < share] = np.nan
    return array


def bits(array: np.ndarray) -> bytes:
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes()


@pytest.mark.parametrize("grid", ["aligned", "gdal"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_window_without_nan_comes_out_as_it_would_without_any(method: str, grid: str) -> None:
    for dtype in ("f2", "f4", ">f4", "f8"):
        for shape, factors in CASES:
            for share in (0, 0.01, 0.4, 1):
                array = image(dtype, shape, share)
                found = downsample(array, factors, method, grid=grid, threads=2)
                plain = downsample(array, factors, method, grid=grid, nodata="none")
                numbers = downsample(array, factors, method, grid=grid, nodata=np.nan)
                if method != "nearest":
                    # the mode counts NaN as a value, which does not show in what it gives
                    plain = np.where(np.isnan(plain) | (method == "mode"), numbers, plain)
                assert bits(found) == bits(plain)


@pytest.mark.parametrize("method", ROUGH)
def test_without_nan_nothing_changes(method: str) -> None:
    array = np.random.default_rng(0).random((60, 70)).astype("f4")
    assert bits(downsample(array, (2, 2), method)) == bits(downsample(array, (2, 2), method, nodata="none"))


def test_the_same_as_xarrays_coarsen() -> None:
    xarray = pytest.importorskip("xarray", reason="compares with xarray")
    array = np.random.default_rng(5).random((24, 36))
    array[np.random.default_rng(6).random(array.shape) < 0.3] = np.nan
    array[4:8, 8:16] = np.nan
    windows = xarray.DataArray(array, dims=("y", "x")).coarsen(y=4, x=2)
    for method, name in {"average": "mean", "max": "max", "min": "min"}.items():
        np.testing.assert_allclose(downsample(array, (4, 2), method), getattr(windows, name)(), rtol=1e-12)


def test_other_types_have_no_nan_to_leave_out() -> None:
    for dtype in ("?", "u1", "i8", "M8[s]"):
        array = np.zeros(4, dtype)
        assert downsample(array, (2,), "mode").dtype == downsample(array, (2,), "mode", nodata="none").dtype
    pair = np.array([1 + 1j, complex(np.nan, 3)], "c8")
    found = downsample(pair, (2,))
    assert np.isnan(found.real).all() and (found.imag == 2).all()


@pytest.mark.parametrize("grid", ["aligned", "gdal"])
@pytest.mark.parametrize("method", METHODS)
def test_parts_are_the_whole(method: str, grid: str) -> None:
    array = image("f4", (61, 75), 0.05)
    whole = downsample(array, (3, 2), method, grid=grid)
    for rows, columns in ((slice(0, 7), slice(20, 38)), (slice(7, 21), slice(0, 38))):
        part = plan_part(array.shape, (3, 2), method, (rows, columns), grid=grid)
        made = downsample(array[part.source], (3, 2), method, grid=grid, part=part)
        assert bits(made) == bits(whole[rows, columns])


@pytest.mark.parametrize("sampling", ["bilinear", "cubic", "average"])
def test_samples_leave_nan_out_too(sampling: str) -> None:
    source = np.random.default_rng(7).random((30, 30)).astype("f4")
    source[10:14, 10:14] = np.nan
    corners = 1 if sampling == "average" else 0
    columns, rows = np.meshgrid(np.linspace(-2, 31, 40 + corners), np.linspace(-2, 31, 40 + corners))
    made = sample(source, columns, rows, sampling, empty=-7)
    plain = sample(source, columns, rows, sampling, nodata="none", empty=-7)
    numbers = sample(source, columns, rows, sampling, nodata=np.nan)
    assert bits(made) == bits(np.where(np.isnan(plain), numbers, plain))
    assert (made == -7).any() and 0 < np.isnan(made).sum() < np.isnan(plain).sum()


def test_pyramids_leave_nan_out_too(tmp_path: Path) -> None:
    array = image("f4", (64, 96), 0.05)
    stored = zstore.create_array(
        tmp_path / "a", shape=array.shape, chunks=(32, 32), dtype="f4", dimension_names=("y", "x")
    )
    stored[...] = array
    levels = zstore.build_pyramid(tmp_path / "a", tmp_path / "p", levels=2, method="average", chunks=32)
    for level, factor in (("1", 2), ("2", 4)):
        found = next(item for path, item in levels.members() if path == level)
        made = found if isinstance(found, zstore.Array) else next(iter(found.arrays()))[1]
        np.testing.assert_allclose(made[...], downsample(array, (factor, factor)), rtol=1e-6)

"""The same numbers as GDAL: `gdaladdo` and `gdalwarp` through rasterio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zstore.geo.resampling.methods import downsample

rasterio = pytest.importorskip("rasterio", reason="compares with GDAL through rasterio")
pytest.importorskip("rasterio.warp", reason="compares with GDAL through rasterio")
pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    # rasterio multiplies its transforms the way affine 3 no longer likes
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

DTYPES = ("u1", "u2", "i2", "i4", "f4", "f8")
GDAL = tuple(map(int, rasterio.__gdal_version__.split(".")[:2]))


def overview(path: Path, array: np.ndarray, factor: int, method: str, nodata: Any = None) -> np.ndarray:
    height, width = array.shape
    profile = {"driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": array.dtype.name}
    with rasterio.open(path / "level.tif", "w", nodata=nodata, **profile) as dataset:
        dataset.write(array, 1)
    with rasterio.open(path / "level.tif", "r+") as dataset:
        dataset.build_overviews([factor], rasterio.enums.Resampling[method])
    with rasterio.open(path / "level.tif", overview_level=0) as dataset:
        return np.asarray(dataset.read(1))


def warped(array: np.ndarray, factor: int, method: str, nodata: Any = None) -> np.ndarray:
    """`array` warped onto a grid of `factor` times larger cells: it has statistics that overviews lack."""
    height, width = array.shape
    out = np.zeros((height // factor, width // factor), array.dtype)
    rasterio.warp.reproject(
        array,
        out,
        src_transform=rasterio.Affine(1, 0, 0, 0, -1, height),
        dst_transform=rasterio.Affine(factor, 0, 0, 0, -factor, height),
        src_crs="EPSG:32632",
        dst_crs="EPSG:32632",
        src_nodata=nodata,
        dst_nodata=nodata,
        resampling=rasterio.enums.Resampling[method],
    )
    return out


def raster(dtype: str, shape: tuple[int, int], nodata: Any = None, *, few: bool = False) -> np.ndarray:
    rng = np.random.default_rng(shape[0] * 1000 + shape[1])
    if few:
        array = rng.integers(0, 6, shape).astype(dtype)
    elif dtype[0] == "f":
        array = (rng.random(shape) * 4000 - 1000).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        array = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if nodata is not None:
        array[rng.random(shape) < 0.3] = nodata
        array[: shape[0] // 3, : shape[1] // 4] = nodata
    return array


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_means_of_complex_numbers_are_of_each_part(tmp_path: Path, dtype: str, factor: int) -> None:
    """GDAL goes through complex64, and its mode of them is the first cell, so that ours is refused."""
    array = (raster("f8", (24, 36)) + 1j * raster("f8", (36, 24)).T).astype(dtype)
    for method in ("average", "rms"):
        expected = overview(tmp_path, array, factor, method)
        found = downsample(array, (factor, factor), method)
        np.testing.assert_allclose(found, expected, rtol=2e-6)
        if dtype == "c8" and method == "rms":
            np.testing.assert_array_equal(found, expected)
    with pytest.raises(TypeError, match="'mode' does not take data type complex"):
        downsample(array, (factor, factor), "mode")


def rounding(found: np.ndarray, source: np.ndarray, factor: int) -> np.ndarray:
    """How far apart two means of the same items may be, each added in an order and scale of its own."""
    count = factor * factor
    items = np.abs(source.astype("f8")).reshape(found.shape[0], factor, found.shape[1], factor)
    # In either mean, each of count additions and three scalings rounds by half an epsilon of the items.
    bound = (count + 3) * np.finfo("f8").eps * items.mean(axis=(1, 3))
    return bound if found.dtype == "f8" else bound + np.spacing(np.abs(found))


def assert_same(
    found: np.ndarray, gdal: np.ndarray, source: np.ndarray, nodata: Any, factor: int, method: str
) -> None:
    """Bit for bit, but for three things GDAL does: they are named, and all outside them is compared."""
    ignored = np.zeros(gdal.shape, bool)
    is_float_mean = method == "average" and nodata is None and source.dtype.kind == "f"
    if is_float_mean and GDAL >= (3, 12) and (factor != 2 or source.dtype.name == "float64"):
        # From 3.12, GDAL scales items by 1 / count before it adds them, so that no sum overflows, and the
        # total back; of pairs of float64 it adds columns first. Before, it added all and divided, as we do.
        assert (np.abs(found - gdal) <= rounding(found, source, factor)).all()
        return
    if method == "average" and nodata is not None and source.dtype.name in ("int16", "int32"):
        # GDAL compares with nodata before it rounds, so that some valid means do become nodata.
        ignored |= (gdal == nodata) & (found == nodata + 1)
    if is_float_mean and factor == 2 and source.dtype.name == "float32":
        # GDAL adds in another order in the last columns of a row, those that do not fill a vector.
        ignored[:, -(gdal.shape[1] % 8) or gdal.shape[1] :] = True
        np.testing.assert_allclose(found, gdal, rtol=1e-6, atol=1e-3)
    np.testing.assert_array_equal(found[~ignored], gdal[~ignored])
    assert ignored.mean() < 0.5


@pytest.mark.parametrize("factor", [2, 3, 5, 7])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["nearest", "average", "mode"])
def test_same_as_gdaladdo(tmp_path: Path, dtype: str, factor: int, method: str) -> None:
    for shape in [(8 * factor, 33 * factor), (9 * factor, 40 * factor)]:
        for nodata in (None, 0, 3):
            for few in (False, True):
                array = raster(dtype, shape, nodata, few=few)
                found = downsample(array, (factor, factor), method, nodata=nodata)
                gdal = overview(tmp_path, array, factor, method, nodata)
                assert_same(found, gdal, array, nodata, factor, method)


@pytest.mark.parametrize("dtype", ["i1", "u4"])
def test_same_as_gdaladdo_in_the_rarer_types(tmp_path: Path, dtype: str) -> None:
    # So large because GDAL 3.12 leaves an overview empty whose size the next power of two gives as well.
    for method in ("nearest", "average", "mode"):
        array = raster(dtype, (480, 510))
        for factor in (2, 3, 30):
            found = downsample(array, (factor, factor), method)
            np.testing.assert_array_equal(found, overview(tmp_path, array, factor, method))


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2"])
def test_roots_of_squares_are_gdals_but_for_signed_ties(tmp_path: Path, dtype: str) -> None:
    """Half-way between two integers of int16, GDAL takes now this one, now that; here it is the greater."""
    info, random = np.iinfo(dtype), np.random.default_rng(1)
    array = random.integers(max(info.min, -300), min(info.max, 300), (640, 600)).astype(dtype)
    found, gdal = downsample(array, (2, 2), "rms"), overview(tmp_path, array, 2, "rms")
    # The root of a mean of four squares is half-way where their sum is the square of an odd number.
    sums = (array.astype("i8").reshape(320, 2, 300, 2) ** 2).sum(axis=(1, 3))
    odd = np.rint(np.sqrt(sums)).astype("i8")
    is_tie = (odd * odd == sums) & (odd % 2 == 1) & (info.min < 0)
    np.testing.assert_array_equal(found[~is_tie], gdal[~is_tie])
    np.testing.assert_array_equal(found[is_tie], (odd[is_tie] + 1) // 2)
    assert is_tie.sum() < 100 and (np.abs(found.astype(int) - gdal)[is_tie] <= 1).all()


def test_nan_as_nodata(tmp_path: Path) -> None:
    for dtype in ("f4", "f8"):
        array = raster(dtype, (40, 60), np.nan)
        for method in ("average", "mode"):
            for factor in (2, 5):
                found = downsample(array, (factor, factor), method, nodata=np.nan)
                gdal = overview(tmp_path, array, factor, method, np.nan)
                if method == "mode":  # here GDAL 3.10 makes up a 0 where it has no value
                    assert (gdal[np.isnan(found)] == 0).all() or np.isnan(gdal[np.isnan(found)]).all()
                    gdal[np.isnan(found)] = np.nan
                np.testing.assert_array_equal(found, gdal)


@pytest.mark.parametrize(
    "method", ["nearest", "average", "rms", "mode", "gauss", "bilinear", "cubic", "lanczos"]
)
def test_nan_where_nothing_is_nodata(tmp_path: Path, method: str) -> None:
    # GDAL takes NaN for a value then, and says so in every cell that it shows in.
    for dtype in ("f4", "f8"):
        array = raster(dtype, (40, 64))
        array[np.random.default_rng(1).random(array.shape) < 0.02] = np.nan
        for factor in (2, 4):
            gdal = overview(tmp_path, array, factor, method)
            found = downsample(array, (factor, factor), method, nodata="none")
            np.testing.assert_allclose(found, gdal, rtol=1e-6, atol=1e-3)
            default = downsample(array, (factor, factor), method)
            same = np.isfinite(gdal)
            np.testing.assert_allclose(default[same], gdal[same], rtol=1e-6, atol=1e-3)
            assert method == "nearest" or np.isnan(default).sum() < np.isnan(gdal).sum() or method == "mode"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [2, 3, 5])
def test_edges_are_those_of_the_array_padded_with_nodata(tmp_path: Path, dtype: str, factor: int) -> None:
    for method in ("average", "mode"):
        array = raster(dtype, (7 * factor + 1, 11 * factor - 1), 3)
        rows, columns = (-(-n // factor) * factor for n in array.shape)
        padded = np.full((rows, columns), 3, dtype)
        padded[: array.shape[0], : array.shape[1]] = array
        found = downsample(array, (factor, factor), method, nodata=3)
        assert_same(found, overview(tmp_path, padded, factor, method, 3), array, 3, factor, method)


@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4"])
def test_a_valid_mean_beside_nodata(tmp_path: Path, dtype: str) -> None:
    for nodata in (0, 5):
        array = np.full((4, 4), nodata, dtype)
        array[:2, :2] = [[4, 6], [4, 6]] if nodata else [[0, 0], [0, 0]]
        found = downsample(array, (2, 2), nodata=nodata)
        np.testing.assert_array_equal(found, overview(tmp_path, array, 2, "average", nodata))


@pytest.mark.parametrize("method", ["rms", "sum", "max", "min", "med", "q1", "q3"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "i4", "f4"])
def test_statistics_same_as_gdal(tmp_path: Path, dtype: str, method: str) -> None:
    for factor in (2, 3, 5):
        for nodata in (None, 0):
            for few in (False, True):
                array = raster(dtype, (9 * factor, 17 * factor), nodata, few=few)
                if few and nodata is not None:
                    array += array != nodata  # sums of few stay clear of nodata
                found = downsample(array, (factor, factor), method, nodata=nodata)
                if method == "rms":
                    gdal = overview(tmp_path, array, factor, method, nodata)
                else:
                    gdal = warped(array, factor, method, nodata)
                if dtype == "f4" and method in ("rms", "sum"):
                    np.testing.assert_allclose(found, gdal, rtol=1e-6, atol=1e-3)
                else:
                    np.testing.assert_array_equal(found, gdal)


def stretched(array: np.ndarray, factor: int, method: str, nodata: Any) -> np.ndarray:
    """`array` warped onto the same extent in ceil(n / factor) cells."""
    height, width = array.shape
    out = np.zeros((-(-height // factor), -(-width // factor)), array.dtype)
    rasterio.warp.reproject(
        array,
        out,
        src_transform=rasterio.Affine(1, 0, 0, 0, -1, height),
        dst_transform=rasterio.Affine(width / out.shape[1], 0, 0, 0, -height / out.shape[0], height),
        src_crs="EPSG:32632",
        dst_crs="EPSG:32632",
        src_nodata=nodata,
        dst_nodata=nodata,
        resampling=rasterio.enums.Resampling[method],
    )
    return out


def assert_same_weighted(found: np.ndarray, gdal: np.ndarray, nodata: Any, method: str) -> None:
    """Bit for bit, but for two things: they are named, and everything outside them is compared."""
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, gdal, rtol=1e-6, atol=1e-3)
        return
    ignored = np.zeros(gdal.shape, bool)
    avoids = method in ("bilinear", "cubic", "cubic_spline", "lanczos") or (
        method in ("average", "rms") and found.dtype.name in ("uint8", "uint16")
    )
    if nodata is not None and not avoids:
        # GDAL does not look, or looks before it rounds, so that some valid values do become nodata.
        ignored |= (gdal == nodata) & (found == nodata + 1)
    if found.dtype.itemsize == 4 and method in ("bilinear", "cubic_spline"):
        # Nothing but float64 between sums and cells there: a tie may fall to either side.
        ignored |= np.abs(found.astype("i8") - gdal.astype("i8")) == 1
        if nodata is not None:  # one side of which may be nodata, and be stepped aside from
            ignored |= (np.abs(found.astype("i8") - gdal.astype("i8")) == 2) & (
                abs(gdal.astype("i8") - nodata) == 1
            )
        assert ignored.sum() <= 2
    np.testing.assert_array_equal(found[~ignored], gdal[~ignored])
    assert ignored.mean() < 0.75


FILTERED = ("gauss", "bilinear", "cubic", "cubic_spline", "lanczos")


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("dtype", (*DTYPES, "i1", "u4"))
@pytest.mark.parametrize("method", FILTERED)
def test_filters_same_as_gdaladdo(tmp_path: Path, dtype: str, factor: int, method: str) -> None:
    for shape in [(8 * factor, 33 * factor), (9 * factor, 40 * factor)]:
        for nodata in (None, 0, 3):
            array = raster(dtype, shape, nodata, few=nodata == 0)
            found = downsample(array, (factor, factor), method, nodata=nodata)
            assert_same_weighted(found, overview(tmp_path, array, factor, method, nodata), nodata, method)


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "i4", "f4"])
@pytest.mark.parametrize("method", ["nearest", "average", "rms", "mode", *FILTERED])
def test_stretched_grid_same_as_gdaladdo(tmp_path: Path, dtype: str, factor: int, method: str) -> None:
    for shape in [(8 * factor + 1, 33 * factor), (8 * factor, 33 * factor + 1), (61, 83)]:
        for nodata in (None, 0, 3):
            array = raster(dtype, shape, nodata, few=nodata == 0)
            found = downsample(array, (factor, factor), method, nodata=nodata, grid="gdal")
            assert_same_weighted(found, overview(tmp_path, array, factor, method, nodata), nodata, method)


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["max", "min", "med", "q1", "q3"])
def test_stretched_statistics_same_as_gdalwarp(dtype: str, factor: int, method: str) -> None:
    for shape in [(8 * factor + 1, 33 * factor), (7 * factor - 1, 20 * factor + 1), (61, 83)]:
        for nodata in (None, 0, 3):
            array = raster(dtype, shape, nodata, few=nodata == 0)
            found = downsample(array, (factor, factor), method, nodata=nodata, grid="gdal")
            np.testing.assert_array_equal(found, stretched(array, factor, method, nodata))


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2", "i4"])
def test_stretched_sums_same_as_gdalwarp(dtype: str, factor: int) -> None:
    for shape in [(8 * factor + 1, 33 * factor), (7 * factor - 1, 20 * factor + 1), (61, 83)]:
        for nodata in (None, -9999 if dtype != "u1" else 255):
            array = raster(dtype, shape, nodata, few=True)
            found = downsample(array, (factor, factor), "sum", nodata=nodata, grid="gdal")
            gdal = stretched(array, factor, "sum", nodata)
            if dtype[0] == "f":
                np.testing.assert_allclose(found, gdal, rtol=1e-6, atol=1e-4)
                continue
            # gdalwarp finds its windows through coordinates: a fraction of one half may come out a little off
            exact = downsample(array.astype("f8"), (factor, factor), "sum", nodata=nodata, grid="gdal")
            tie = np.abs(exact % 1 - 0.5) < 1e-6
            np.testing.assert_array_equal(found[~tie], gdal[~tie])
            assert tie.mean() < 0.1 and (np.abs(found.astype("i8") - gdal) <= 1).all()


@pytest.mark.parametrize("method", ["average", *FILTERED])
def test_nan_as_nodata_under_weights(tmp_path: Path, method: str) -> None:
    # GDAL lets NaN through the filters even where it is nodata: it is shown a number instead.
    for dtype in ("f4", "f8"):
        array = raster(dtype, (41, 63), -9999)
        found = downsample(
            np.where(array == -9999, np.nan, array).astype(dtype), (2, 2), method, nodata=np.nan, grid="gdal"
        )
        gdal = overview(tmp_path, array, 2, method, -9999)
        np.testing.assert_allclose(np.where(np.isnan(found), -9999, found), gdal, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("method", FILTERED)
def test_filters_at_edges_see_the_array_padded_with_nodata(tmp_path: Path, factor: int, method: str) -> None:
    for dtype in ("u1", "i2", "f4"):
        array = raster(dtype, (7 * factor + 1, 11 * factor - 1), 3)
        padded = np.full([-(-n // factor) * factor for n in array.shape], 3, dtype)
        padded[: array.shape[0], : array.shape[1]] = array
        found = downsample(array, (factor, factor), method, nodata=3)
        assert_same_weighted(found, overview(tmp_path, padded, factor, method, 3), 3, method)

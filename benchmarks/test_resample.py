"""Is down-sampling worth a kernel? Each method beside numpy, a bare copy, and what peers are installed."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zstore.geo.resampling.methods import downsample

SIDE = 2040  # a multiple of 2, 3, 4 and 5


def blocks(array: np.ndarray, factor: int) -> list[np.ndarray]:
    return [array[i::factor, j::factor] for i in range(factor) for j in range(factor)]


def numpy_average(array: np.ndarray, factor: int) -> np.ndarray:
    wide = {"uint8": "u2", "uint16": "u4", "float32": "f4"}[array.dtype.name]
    total = np.zeros((SIDE // factor, SIDE // factor), wide)
    for block in blocks(array, factor):
        total += block
    cells = factor * factor
    mean = total / np.float32(cells) if wide == "f4" else (total + cells // 2) // cells
    return mean.astype(array.dtype)


def numpy_valid_average(array: np.ndarray, factor: int) -> np.ndarray:
    total = np.zeros((SIDE // factor, SIDE // factor), "f4")
    count = np.zeros_like(total)
    for block in blocks(array, factor):
        total += block
        count += block != 0
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return (mean + np.float32(0.5) if array.dtype.kind == "u" else mean).astype(array.dtype)


def numpy_mode(array: np.ndarray, factor: int) -> np.ndarray:
    cells = blocks(array, factor)
    best, top = cells[0].copy(), np.ones(cells[0].shape, "u1")
    for i in range(1, len(cells)):
        count = sum(((cells[k] == cells[i]).astype("u1") for k in range(i)), np.ones(best.shape, "u1"))
        wins = count > top
        best[wins] = cells[i][wins]
        top[wins] = count[wins]
    return best


def numpy_nearest(array: np.ndarray, factor: int) -> np.ndarray:
    return np.ascontiguousarray(array[::factor, ::factor])


def numpy_extreme(array: np.ndarray, factor: int) -> np.ndarray:
    return np.asarray(functools.reduce(np.maximum, blocks(array, factor)))


def numpy_lower_median(array: np.ndarray, factor: int) -> np.ndarray:
    rank = (factor * factor - 1) // 2
    return np.asarray(np.partition(np.stack(blocks(array, factor)), rank, axis=0)[rank])


NUMPY: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "average": numpy_average,
    "average nodata": numpy_valid_average,
    "mode": numpy_mode,
    "nearest": numpy_nearest,
    "max": numpy_extreme,
    "med": numpy_lower_median,
}


def image(dtype: str, kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "mode":
        return np.kron(rng.integers(0, 12, (SIDE // 8, SIDE // 8)), np.ones((8, 8))).astype(dtype)
    array = rng.integers(1, 200, (SIDE, SIDE)).astype(dtype)
    if kind == "average nodata":
        array[rng.random(array.shape) < 0.1] = 0
    return array


def peer(who: str, array: np.ndarray, factor: int, method: str) -> Callable[[], Any]:
    """The call of a peer that makes the same; skipped by name where it is missing, or has no such method."""
    module = {"opencv": "cv2", "scikit-image": "skimage.measure", "gdal": "rasterio"}.get(who, who)
    library = pytest.importorskip(module, reason=f"{who} is not installed")
    call = {
        "opencv": opencv,
        "tinybrain": by_tinybrain,
        "tensorstore": by_tensorstore,
        "scikit-image": by_skimage,
        "xarray": by_xarray,
        "gdal": by_gdal,
    }[who](library, array, factor, method)
    if call is None:
        pytest.skip(f"{who} has no {method} of {array.dtype} by {factor}")
    return call


Call = Callable[[], Any] | None


def opencv(cv2: Any, array: np.ndarray, factor: int, method: str) -> Call:
    how = {"average": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST}.get(method)
    if how is None:
        return None
    return lambda: cv2.resize(array, (SIDE // factor, SIDE // factor), interpolation=how)


def by_tinybrain(tinybrain: Any, array: np.ndarray, factor: int, method: str) -> Call:
    if factor != 2 or method not in ("average", "mode") or (method == "mode") != (array.dtype.kind == "u"):
        return None
    image = np.asfortranarray(array.T[..., None, None])
    how = tinybrain.downsample_segmentation if method == "mode" else tinybrain.downsample_with_averaging
    return lambda: how(image, factor=(2, 2, 1), num_mips=1)


def by_tensorstore(ts: Any, array: np.ndarray, factor: int, method: str) -> Call:
    if method.endswith("nodata"):
        return None
    how = {"average": "mean", "nearest": "stride", "med": "median"}.get(method, method)
    view = ts.downsample(ts.array(array), [factor, factor], how)
    return lambda: view.read().result()


def by_skimage(measure: Any, array: np.ndarray, factor: int, method: str) -> Call:
    how = {"average": np.mean, "max": np.max, "med": np.median}.get(method)
    return how and (lambda: measure.block_reduce(array, (factor, factor), how))


def by_xarray(xarray: Any, array: np.ndarray, factor: int, method: str) -> Call:
    name = {"average": "mean", "max": "max", "med": "median"}.get(method)
    windows = xarray.DataArray(array, dims=("y", "x")).coarsen(y=factor, x=factor)
    return name and (lambda: getattr(windows, name)())


def by_gdal(rasterio: Any, array: np.ndarray, factor: int, method: str) -> Call:
    names = {"average nodata": "average"}
    how = rasterio.enums.Resampling[names.get(method, method)]
    if method in ("max", "med"):
        return None
    profile = {"driver": "GTiff", "height": SIDE, "width": SIDE, "count": 1, "dtype": array.dtype.name}
    profile |= {"nodata": 0 if method.endswith("nodata") else None}
    memory = rasterio.MemoryFile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with memory.open(**profile) as raster:
            raster.write(array, 1)
        raster = memory.open()
    shape = (SIDE // factor, SIDE // factor)
    return lambda: raster.read(1, out_shape=shape, resampling=how)


PEERS = ("opencv", "tinybrain", "tensorstore", "scikit-image", "xarray", "gdal")


@pytest.mark.parametrize("who", ["zstore", "zstore 1 thread", "numpy", *PEERS, "copy"])
@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize("method", NUMPY)
def test_downsample(benchmark: Any, method: str, dtype: str, factor: int, who: str) -> None:
    benchmark.group = f"{method} {factor}x{factor} {dtype}"
    array = image(dtype, method)
    name, nodata = method.split()[0], 0 if method.endswith("nodata") else None
    call: Callable[[], Any] = {
        "zstore": lambda: downsample(array, (factor, factor), name, nodata=nodata),
        "zstore 1 thread": lambda: downsample(array, (factor, factor), name, nodata=nodata, threads=1),
        "numpy": lambda: NUMPY[method](array, factor),
        "copy": lambda: np.copyto(scratch, array),
    }.get(who) or peer(who, array, factor, method)
    scratch = np.ones_like(array)
    result = benchmark(call)
    if who.startswith("zstore"):
        # float32 means of many cells may differ in the last place from a float32 sum
        np.testing.assert_allclose(result, NUMPY[method](array, factor), rtol=1e-6 if dtype == "f4" else 0)

"""Is down-sampling worth a kernel? Each method beside numpy, a bare copy and, if installed, OpenCV."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zstore.resampling.methods import downsample

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


def opencv(array: np.ndarray, factor: int, method: str) -> Callable[[], Any]:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    how = {"average": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST}.get(method)
    if how is None:
        pytest.skip(f"OpenCV has no {method}")
    return lambda: cv2.resize(array, (SIDE // factor, SIDE // factor), interpolation=how)


@pytest.mark.parametrize("who", ["zstore", "zstore 1 thread", "numpy", "opencv", "copy"])
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
    }.get(who) or opencv(array, factor, method)
    scratch = np.ones_like(array)
    result = benchmark(call)
    if who.startswith("zstore"):
        # float32 means of many cells may differ in the last place from a float32 sum
        np.testing.assert_allclose(result, NUMPY[method](array, factor), rtol=1e-6 if dtype == "f4" else 0)

"""How long does a small part of an array take: one chunk, one row, one item, every tenth, points?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.engines import Opened

PARTS = {
    "inner-chunk": (slice(256, 384), slice(128, 256)),
    "window": (slice(300, 556), slice(700, 956)),
    "row": (slice(5, 6), slice(None)),
    "column": (slice(None), slice(5, 6)),
    "item": (slice(7, 8), slice(9, 10)),
    "every-tenth": (slice(None, None, 10), slice(None, None, 10)),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layout", ["shards-blosc", "1MiB-blosc"])
def test_part(benchmark: Any, opened: Opened, layout: str, part: str, data: np.ndarray[Any, Any]) -> None:
    benchmark.group = f"{part} {layout}"
    assert np.array_equal(benchmark(opened.read, PARTS[part]), data[PARTS[part]])


@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "random"])
@pytest.mark.parametrize("layout", ["1MiB-blosc"])
def test_points(
    benchmark: Any, opened: Opened, layout: str, is_sorted: bool, data: np.ndarray[Any, Any]
) -> None:
    rng = np.random.default_rng(3)
    flat = rng.integers(0, data.size, 100_000)
    rows, columns = np.unravel_index(np.sort(flat) if is_sorted else flat, data.shape)
    benchmark.group = f"100,000 points {'sorted' if is_sorted else 'random'}"
    assert np.array_equal(benchmark(opened.points, rows, columns), data[rows, columns])

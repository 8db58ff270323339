"""How long do many selections take that are asked for together: windows that share chunks, inner chunks?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore

ENGINES = ("zstore", "one by one", "tensorstore")
COUNT = 300


def selections(layout: str, edge: int) -> list[tuple[slice, slice]]:
    """Windows of 256² anywhere, or inner chunks of 128² of shards."""
    rng = np.random.default_rng(5)
    if layout.startswith("shards"):
        corners, size = rng.integers(0, edge // 128, (COUNT, 2)) * 128, 128
    else:
        corners, size = rng.integers(0, edge - 256, (COUNT, 2)), 256
    return [(slice(y, y + size), slice(x, x + size)) for y, x in corners.tolist()]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", ["1MiB-raw", "1MiB-blosc", "1MiB-zstd", "shards-blosc"])
def test_many(
    benchmark: Any, paths: dict[str, Path], layout: str, engine: str, data: np.ndarray[Any, Any]
) -> None:
    wanted = selections(layout, len(data))
    benchmark.group = f"{COUNT} selections {layout}"
    if engine == "tensorstore":
        tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed")
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(paths[layout])}}
        peer = tensorstore.open(spec, open=True).result()

        def read() -> list[Any]:
            with tensorstore.Batch() as batch:
                coming = [peer[selection].read(batch=batch) for selection in wanted]
            return [one.result() for one in coming]
    else:
        array = zstore.open_array(str(paths[layout]), mode="r")

        def read() -> list[Any]:
            if engine == "zstore":
                return array.read_many(wanted)
            return [array[selection] for selection in wanted]

    for items, selection in zip(benchmark(read), wanted, strict=True):
        assert np.array_equal(items, data[selection])

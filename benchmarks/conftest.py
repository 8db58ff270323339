"""What every benchmark shares: the data, and arrays cut and encoded in a few ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.engines import ENGINES, Opened, create, field

BLOSC = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0},
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "1MiB-raw": {"chunks": (512, 512), "compressors": None},
    "1MiB-blosc": {"chunks": (512, 512), "compressors": BLOSC},
    "1MiB-zstd": {"chunks": (512, 512), "compressors": "zstd"},
    "16KiB-raw": {"chunks": (64, 64), "compressors": None},
    "16KiB-blosc": {"chunks": (64, 64), "compressors": BLOSC},
    "shards-blosc": {"chunks": (128, 128), "shards": (1024, 1024), "compressors": BLOSC},
    "F-order-blosc": {"chunks": (512, 512), "compressors": BLOSC, "order": "F", "zarr_format": 2},
}


@pytest.fixture(scope="session")
def data() -> np.ndarray[Any, Any]:
    """16 MiB of float32."""
    return field()


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory, data: np.ndarray[Any, Any]) -> dict[str, Path]:
    """One store per layout, written once."""
    root = tmp_path_factory.mktemp("stores")
    for name, options in LAYOUTS.items():
        if options.get("zarr_format") == 2:
            options = {**options, "compressors": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}}
        create(root / name, data, **options)
    return {name: root / name for name in LAYOUTS}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    return str(request.param)


@pytest.fixture
def opened(engine: str, paths: dict[str, Path], request: pytest.FixtureRequest) -> Opened:
    """The array of the layout that the test is parametrised with, opened by the engine."""
    return Opened(engine, paths[request.getfixturevalue("layout")])

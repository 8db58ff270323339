"""How long does it take to read, and to write, a whole array?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.conftest import LAYOUTS
from benchmarks.engines import Opened

WHOLE = (slice(None), slice(None))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read(benchmark: Any, opened: Opened, layout: str, data: np.ndarray[Any, Any]) -> None:
    benchmark.group = f"read {layout}"
    assert np.array_equal(benchmark(opened.read, WHOLE), data)


@pytest.mark.parametrize("layout", ["1MiB-blosc", "16KiB-blosc", "shards-blosc"])
def test_write(
    benchmark: Any,
    engine: str,
    layout: str,
    paths: dict[str, Path],
    tmp_path: Path,
    data: np.ndarray[Any, Any],
) -> None:
    benchmark.group = f"write {layout}"

    def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        (tmp_path / "copy").mkdir()
        for document in ("zarr.json", ".zarray"):
            if (paths[layout] / document).exists():
                shutil.copy(paths[layout] / document, tmp_path / "copy" / document)
        return (WHOLE, data), {}

    fresh()
    opened = Opened(engine, tmp_path / "copy")
    benchmark.pedantic(opened.write, setup=fresh, rounds=5)
    assert np.array_equal(opened.read(WHOLE), data)

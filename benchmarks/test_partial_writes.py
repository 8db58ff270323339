"""How long does it take to change a part of a chunk, or one inner chunk of a shard?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.engines import Opened

PARTS = {
    ("window", "1MiB-blosc"): (slice(300, 500), slice(700, 900)),
    ("window", "1MiB-raw"): (slice(300, 500), slice(700, 900)),
    ("inner-chunk", "shards-blosc"): (slice(256, 384), slice(128, 256)),
}


@pytest.mark.parametrize(("part", "layout"), PARTS)
def test_partial_write(
    benchmark: Any, engine: str, part: str, layout: str, paths: dict[str, Path], tmp_path: Path
) -> None:
    benchmark.group = f"write {part} {layout}"
    shutil.copytree(paths[layout], tmp_path / "copy")
    opened = Opened(engine, tmp_path / "copy")
    region = PARTS[part, layout]
    value = np.arange(200 * 200, dtype="f4").reshape(200, 200)
    value = value[: region[0].stop - region[0].start, : region[1].stop - region[1].start]
    benchmark(opened.write, region, value)
    assert np.array_equal(opened.read(region), value)

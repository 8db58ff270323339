"""How fast is zarr-python with zstore's codec pipeline, beside its own pipelines and zarrs'?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")

EDGE = 1024
PIPELINES = {
    "zarr-python": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarr-python-fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
    "zstore": "zstore.guests.zarr_python.ZstoreCodecPipeline",
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "16KiB-zstd": {"chunks": (64, 64)},
    "4KiB-raw": {"chunks": (32, 32), "compressors": None},
    "1MiB-zstd": {"chunks": (512, 512)},
    "256KiB-blosc": {
        "chunks": (256, 256),
        "compressors": {"name": "blosc", "configuration": {"cname": "lz4"}},
    },
    "shards": {"chunks": (32, 32), "shards": (512, 512)},
    "v2-F-order": {"chunks": (64, 64), "zarr_format": 2, "order": "F"},
    "v2-big-endian": {"chunks": (64, 64), "zarr_format": 2, "dtype": ">f4"},
    "strings": {"chunks": (64, 64), "dtype": str},
    "missing": {"chunks": (64, 64)},
}
SORTED = np.sort(np.random.default_rng(1).choice(EDGE, 64, replace=False))
READS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda array: array[...],
    "row": lambda array: array[500],
    "item": lambda array: array[3, 4],
    "window": lambda array: array[100:300, 200:400],
    "rows-by-list": lambda array: array.oindex[SORTED],
}


@pytest.fixture(params=PIPELINES)
def pipeline(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each pipeline that is installed, chosen for the test."""
    path = PIPELINES[request.param]
    module, _, name = path.rpartition(".")
    if find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not installed")
    if not hasattr(__import__(module, fromlist=[name]), name):
        pytest.skip(f"this zarr-python has no {name}")
    with zarr.config.set({"codec_pipeline.path": path}):
        yield request.param


def items(layout: str, dtype: Any) -> np.ndarray[Any, Any]:
    if layout == "missing":
        return np.zeros((EDGE, EDGE), dtype)
    numbers = np.cumsum(np.random.default_rng(0).integers(-3, 4, (EDGE, EDGE)), axis=1)
    return numbers.astype(np.dtypes.StringDType()) if dtype is str else numbers.astype(dtype)


def make(place: Path, layout: str) -> tuple[Any, np.ndarray[Any, Any]]:
    """The array, stored once by zarr-python's own pipeline and opened with the one that is chosen."""
    options = {"dtype": "f4", **LAYOUTS[layout]}
    data = items(layout, options["dtype"])
    with zarr.config.set({"codec_pipeline.path": PIPELINES["zarr-python"]}):
        zarr.create_array(str(place), shape=data.shape, **options)[...] = data
    return zarr.open_array(str(place), mode="r+"), data


def stored(place: Path) -> Any:
    """What zarr-python's own pipeline, which reads everything, finds there."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES["zarr-python"]}):
        return zarr.open_array(str(place), mode="r")[...]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", READS)
def test_read(benchmark: Any, tmp_path: Path, pipeline: str, layout: str, part: str) -> None:
    array, data = make(tmp_path / "a", layout)
    read = READS[part]
    expected = read(data) if part != "rows-by-list" else data[SORTED]
    benchmark.group = f"read {part} {layout}"
    try:
        found = benchmark.pedantic(read, (array,), rounds=7, warmup_rounds=1)
    except RuntimeError as error:
        pytest.skip(f"{pipeline} refuses: {error}")
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_write(benchmark: Any, tmp_path: Path, pipeline: str, layout: str) -> None:
    array, data = make(tmp_path / "a", layout)
    benchmark.group = f"write {layout}"
    try:
        benchmark.pedantic(array.__setitem__, (Ellipsis, data), rounds=5, warmup_rounds=1)
    except RuntimeError as error:
        pytest.skip(f"{pipeline} refuses: {error}")
    assert np.array_equal(stored(tmp_path / "a"), data)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_write(benchmark: Any, tmp_path: Path, pipeline: str, layout: str) -> None:
    """Chunks that were not there, where replacing files, which is the file system's work, plays no part."""
    options = {"dtype": "f4", **LAYOUTS[layout]}
    data = items(layout, options["dtype"])
    places = count()
    benchmark.group = f"first write {layout}"

    def create() -> tuple[tuple[Any, ...], dict[str, Any]]:
        array = zarr.create_array(str(tmp_path / str(next(places))), shape=data.shape, **options)
        return (array, Ellipsis, data), {}

    benchmark.pedantic(lambda array, *write: array.__setitem__(*write), setup=create, rounds=5)
    assert np.array_equal(stored(tmp_path / "0"), data)

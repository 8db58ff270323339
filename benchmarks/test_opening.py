"""How long does it take to open one array, to visit all arrays of a group, and to create one?"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import zstore

COUNT = 200


@pytest.fixture(scope="module")
def group_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A group of many small arrays."""
    path = tmp_path_factory.mktemp("groups") / "group"
    group = zstore.create_group(str(path))
    for number in range(COUNT):
        group.create_array(f"a{number}", shape=(100, 100), chunks=(10, 10), dtype="f4")
    return path


def opener(library: str) -> Any:
    """The library's module, with zarr-python's functions."""
    if library == "zstore":
        return zstore
    return pytest.importorskip("zarr", reason="zarr-python is not installed")


@pytest.mark.parametrize("library", ["zstore", "zarr-python"])
def test_open_array(benchmark: Any, library: str, group_path: Path) -> None:
    benchmark.group = "open one array"
    array = benchmark(opener(library).open_array, str(group_path / "a7"), mode="r")
    assert array.shape == (100, 100)


@pytest.mark.parametrize("library", ["zstore", "zarr-python"])
def test_visit_group(benchmark: Any, library: str, group_path: Path) -> None:
    benchmark.group = f"visit {COUNT} arrays"

    def visit() -> int:
        return sum(
            array.shape == (100, 100)
            for _, array in opener(library).open_group(str(group_path), mode="r").arrays()
        )

    assert benchmark(visit) == COUNT


@pytest.mark.parametrize("library", ["zstore", "zarr-python"])
def test_create_array(benchmark: Any, library: str, tmp_path: Path) -> None:
    benchmark.group = "create one array"
    number = itertools.count()
    module = opener(library)

    def create() -> Any:
        path = tmp_path / str(next(number))
        return module.create_array(str(path), shape=(100, 100), chunks=(10, 10), dtype="f4")

    assert benchmark(create).shape == (100, 100)

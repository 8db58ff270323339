"""Nested directories: chunks of Zarr v2 arrays whose keys are joined by "/", in a directory and elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.storage.base import Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.store import ZipStore

VALUES = np.arange(1, 7 * 9 + 1).reshape(7, 9)


@pytest.fixture(params=[LocalStore, MemoryStore, ZipStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    kind = request.param
    return kind() if kind is MemoryStore else kind(tmp_path / "nested.zip")


def nested(store: Store, name: str = "a") -> zstore.Array:
    group = zstore.open_group(store, mode="a", zarr_format=2)
    return group.create_array(name, data=VALUES, chunks=(4, 4), chunk_key_encoding="/")


def test_chunks_lie_in_directories(store: Store) -> None:
    array = nested(store)
    assert sorted(store.list("a")) == ["a/.zarray", *(f"a/{i}/{j}" for i in range(2) for j in range(3))]
    assert np.array_equal(array[:], VALUES)
    again = zstore.open_array(store, "a", mode="r+")
    again[3:5, 3:5] = 0
    assert again[3, 3] == 0
    assert again[5, 5] == VALUES[5, 5]


def test_directories_of_chunks_are_no_children(store: Store) -> None:
    nested(store)
    nested(store, "b")
    assert sorted(zstore.open_group(store, mode="r")) == ["a", "b"]


def test_resizing_leaves_no_chunk_behind(store: Store) -> None:
    array = nested(store)
    array.resize((4, 9))
    assert sorted(store.list("a")) == ["a/.zarray", "a/0/0", "a/0/1", "a/0/2"]
    assert store.list_children("a") == [".zarray", "0"]
    array.resize((7, 9))
    assert (array[4:] == 0).all()
    assert np.array_equal(array[:4], VALUES[:4])


def test_an_array_of_no_dimensions(store: Store) -> None:
    group = zstore.open_group(store, mode="a", zarr_format=2)
    array = group.create_array("s", data=np.array(5), chunk_key_encoding="/")
    assert sorted(store.list("s")) == ["s/.zarray", "s/0"]
    assert array[()] == 5


def test_zarr_python_reads_and_writes_the_same(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    nested(LocalStore(tmp_path / "ours"))
    assert np.array_equal(zarr.open_array(tmp_path / "ours", path="a", mode="r")[:], VALUES)
    theirs = zarr.create_array(
        tmp_path / "theirs",
        data=VALUES,
        chunks=(4, 4),
        zarr_format=2,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    assert (tmp_path / "theirs/1/2").is_file()
    array = zstore.open_array(tmp_path / "theirs", mode="r+")
    assert np.array_equal(array[:], VALUES)
    array[0, 0] = 100
    assert theirs[0, 0] == 100

"""Files in buckets and on web servers opened as they are: no manifest, and headers by ranges only."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

import zstore
from zstore.errors import StoreError

_place = Path(__file__).parents[3] / "tests" / "storage" / "bucket_server.py"
_spec = importlib.util.spec_from_file_location("bucket_server", _place)
assert _spec is not None and _spec.loader is not None
bucket_server = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bucket_server)

ITEMS = np.random.default_rng(5).integers(0, 1 << 15, (512, 512)).astype("i4")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file.create_dataset("g/a", data=ITEMS, chunks=(64, 64), compression="gzip", shuffle=True)
    with bucket_server.BucketServer() as served:
        served.values["/bucket/in/x.nc"] = (tmp_path / "x.nc").read_bytes()
        yield served


@pytest.mark.parametrize("scheme", ["http", "s3"])
@pytest.mark.parametrize("inside", ["", "/g/a", "#/g/a"])
def test_a_remote_file_opens_and_a_node_inside(server: Any, scheme: str, inside: str) -> None:
    top = f"{server.url}/bucket/in" if scheme == "http" else "s3://bucket/in"
    options = server.options() if scheme == "s3" else None
    node = zstore.open(f"{top}/x.nc{inside}", storage_options=options)
    array: Any = node["g/a"] if isinstance(node, zstore.Group) else node
    size = sum(len(value) for value in server.values.values())
    assert len(server.requests) <= 8
    np.testing.assert_array_equal(array[:64, :64], ITEMS[:64, :64])
    np.testing.assert_array_equal(array[...], ITEMS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array.store)).url, array.store.url)
    assert size > 0 and array.store.read_only


def test_a_new_store_has_no_such_name(server: Any) -> None:
    with pytest.raises(StoreError, match="is the ending of a NetCDF file"):
        zstore.create_group("s3://bucket/in/new.nc", storage_options=server.options())
    assert [path for _, path in server.requests] == []

"""S3 as s3fs and a server that speaks it have it: moto's, started on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import NotFoundError, StoreError
from zstore.storage.fsspec import FsspecStore
from zstore.storage.url import open_store
from zstore.storage.zip.store import ZipStore
from zstore.testing.stores import StoreContract

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
moto = pytest.importorskip("moto.server", reason="moto's server is not installed")

numbers = count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str) -> str:
    name = f"bucket-{next(numbers)}"
    s3fs.S3FileSystem().mkdir(name)
    return name


class TestS3(StoreContract):
    excludes_processes = False
    many = 30  # a put takes this server long

    @pytest.fixture(autouse=True)
    def serving(self, bucket: str) -> None:
        self.bucket = bucket

    def make_store(self, place: Path) -> FsspecStore:
        return FsspecStore(f"s3://{self.bucket}/{place.name}/a b.zarr")


def test_an_array(bucket: str) -> None:
    url = f"s3://{bucket}/deep/x.zarr"
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    group = zstore.create_group(url)
    group.create_array("a", data=values, chunks=(10, 10), shards=(30, 40))
    array = zstore.open_array(url, "a", mode="r")
    assert np.array_equal(array[:], values)
    assert np.array_equal(array[5:35, 33::3], values[5:35, 33::3])
    assert [*zstore.open_group(url, mode="r")] == ["a"]
    zstore.open_array(url, "a", mode="r+")[0:3] = 7
    assert (zstore.open_array(url, "a", mode="r")[0:3] == 7).all()


def test_a_zip_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    with ZipStore(tmp_path / "x.zip") as store:
        zstore.create_array(store, "a", data=values, chunks=(10, 10), shards=(30, 40))
    FsspecStore(f"s3://{bucket}").put("deep/x.zip", (tmp_path / "x.zip").read_bytes())
    url = f"zip::s3://{bucket}/deep/x.zip"
    assert np.array_equal(zstore.open_array(url, "a", mode="r")[5:35, 33::3], values[5:35, 33::3])
    with pytest.raises(NotFoundError):
        open_store(f"zip::s3://{bucket}/deep/y.zip")


def test_parts_say_which_version_they_are_from(bucket: str) -> None:
    store = FsspecStore(f"s3://{bucket}/x")
    store.put("a", b"0123456789")
    [first] = store.get_parts([("a", ByteRange(-4))])
    [second] = store.get_parts([("a", ByteRange(0, 2))])
    store.put("a", b"9876543210")
    [third] = store.get_parts([("a", ByteRange(-4))])
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.version == second.version != third.version
    assert bytes(third.data) == b"3210"


def test_a_marker_of_a_directory_is_no_key(bucket: str) -> None:
    filesystem: Any = s3fs.S3FileSystem()
    filesystem.call_s3("put_object", Bucket=bucket, Key="x/a/", Body=b"")
    store = FsspecStore(f"s3://{bucket}/x")
    store.put("a/b", b"1")
    assert [*store.list()] == ["a/b"]
    assert store.list_children() == ["a"]
    assert store.get("a") is None


def test_a_bucket_that_is_not_there(endpoint: str) -> None:
    store = FsspecStore("s3://no-such-bucket/x")
    with pytest.raises(StoreError):
        store.put("a", b"1")
    with pytest.raises(NotFoundError):
        zstore.open(store, mode="r")


def test_a_server_that_is_gone_is_no_missing_value() -> None:
    options = {
        "key": "test",
        "secret": "test",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"},
        "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1},
    }
    store = FsspecStore("s3://bucket/x", options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "retries", 1)
        for act in (store.get, store.size, store.list, lambda key: store.get(key, ByteRange(-4))):
            with pytest.raises(StoreError):
                act("a")  # type: ignore[operator]

"""How the fsspec store speaks with object storage, against a filesystem that stands in for s3fs'."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import StoreError
from zstore.storage import remote
from zstore.storage.base import Part
from zstore.storage.fsspec import FsspecStore


class BrokenOff(Exception):
    pass


class Body:
    def __init__(self, data: bytes, fails: bool) -> None:
        self.data, self.fails = data, fails

    async def read(self) -> bytes:
        if self.fails:
            raise BrokenOff
        return self.data

    def close(self) -> None:
        pass


class Bucket(AsyncFileSystem):
    """What of s3fs' filesystem is used, over a dictionary."""

    protocol = ("s3", "s3a")
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}
        self.calls: list[dict[str, Any]] = []
        self.failures = 0
        self.made: list[str] = []
        self.req_kw: dict[str, Any] = {"RequestPayer": "requester", "Unknown": 1}
        self.s3_additional_kwargs: dict[str, Any] = {}
        members = types.SimpleNamespace(members={"RequestPayer": None})
        model = types.SimpleNamespace(operation_model=lambda name: types.SimpleNamespace(input_shape=members))
        self.meta = types.SimpleNamespace(service_model=model)

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = self._strip_protocol(path).partition("/")
        return bucket, key, None

    async def set_session(self) -> None:
        pass

    async def get_s3(self, bucket: str) -> Bucket:
        return self

    async def get_object(self, **options: Any) -> dict[str, Any]:
        self.calls.append(options)
        value = self.values.get(f"{options['Bucket']}/{options['Key']}")
        if value is None:
            raise FileNotFoundError(options["Key"])
        reply: dict[str, Any] = {"ETag": f'"{hash(value)}"'}
        if "Range" in options:
            first, _, last = options["Range"].removeprefix("bytes=").partition("-")
            begin = int(first) if first else max(0, len(value) - int(last))
            end = min(len(value), int(last) + 1) if first and last else len(value)
            if begin >= end:
                raise OSError(22, "The requested range is not satisfiable")
            reply["ContentRange"] = f"bytes {begin}-{end - 1}/{len(value)}"
            value = value[begin:end]
        self.failures -= 1
        return {**reply, "ContentLength": len(value), "Body": Body(value, self.failures >= 0)}

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        if path not in self.values:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.values[path]), "type": "file"}

    async def _pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        raise FileNotFoundError("The specified bucket does not exist")

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.made.append(path)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    core = types.ModuleType("s3fs.core")
    core.S3_RETRYABLE_ERRORS = (BrokenOff,)  # type: ignore[attr-defined]
    errors = types.ModuleType("s3fs.errors")
    errors.translate_boto_error = lambda error: error  # type: ignore[attr-defined]
    for module in (core, errors):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)
    bucket = Bucket()
    bucket.values["bucket/store/a"] = bytes(range(100))
    return bucket


def test_an_object_is_one_request_whatever_its_size(bucket: Bucket) -> None:
    store = FsspecStore("s3://bucket/store", filesystem=bucket)
    tag = f'"{hash(bytes(range(100)))}"'
    wanted = [None, ByteRange(-10), ByteRange(90, 50)]
    for byte_range in wanted:
        begin, end = (byte_range or ByteRange(0)).resolve(100)
        assert store.get_parts([("a", byte_range)]) == [Part(bytes(range(begin, end)), 100, tag)]
    assert {call["RequestPayer"] for call in bucket.calls} == {"requester"}
    assert "Unknown" not in bucket.calls[0]
    assert [call.get("Range") for call in bucket.calls] == [None, "bytes=-10", "bytes=90-139"]
    assert store.get("a", ByteRange(100, 3)) == b""
    assert store.get("b") is None


def test_a_body_that_breaks_off_is_asked_for_again_and_then_an_error(bucket: Bucket) -> None:
    store = FsspecStore("s3://bucket/store", filesystem=bucket)
    bucket.failures = 2
    assert store.get("a") == bytes(range(100))
    assert len(bucket.calls) == 3
    bucket.failures = 100
    with pytest.raises(StoreError, match="BrokenOff") as caught:
        store.get("a")
    assert caught.value.key == "a"


def test_a_bucket_that_is_not_there_is_not_made(bucket: Bucket) -> None:
    store = FsspecStore("s3://bucket/store", filesystem=bucket)
    with pytest.raises(StoreError, match="bucket does not exist"):
        store.put("a", b"1")
    assert bucket.made == []


def test_obstores_filesystem_is_one_like_others() -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    from obstore.fsspec import FsspecStore as Filesystem

    filesystem = Filesystem("memory")
    store = FsspecStore("memory:///store", filesystem=filesystem)
    store.put("a", bytes(range(100)))
    for byte_range in (None, ByteRange(-10), ByteRange(90, 50), ByteRange(20)):
        begin, end = (byte_range or ByteRange(0)).resolve(100)
        [part] = store.get_parts([("a", byte_range)])
        assert part is not None
        assert bytes(part.data) == bytes(range(begin, end))
        assert part.total_size == 100
    assert store.get("a", ByteRange(200, 3)) == b""
    assert store.get("b") is None


def test_a_mapping_of_fsspecs_opens(tmp_path):
    import fsspec

    items = np.arange(12.0)
    for target in (fsspec.get_mapper("memory://mapped/a.zarr"), fsspec.get_mapper(str(tmp_path / "a.zarr"))):
        zstore.create_array(target, data=items, chunks=(5,))
        assert zstore.open(target, mode="r")[...].tolist() == items.tolist()
        zstore.open(target)[0] = 7
        assert zstore.open_array(target)[0] == 7
    assert (tmp_path / "a.zarr" / "zarr.json").is_file()
    fsspec.filesystem("memory").rm("/mapped", recursive=True)

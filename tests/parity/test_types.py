"""Types beyond the core: what zstore writes is read equal by its peers, and what they write by zstore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import zstore

zarr = pytest.importorskip("zarr", reason="the peer of these tests")
tensorstore = pytest.importorskip("tensorstore", reason="the peer of these tests")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
    pytest.mark.filterwarnings("ignore:.*not.*part of the Zarr V3 specification"),
]

SHAPE, CHUNKS = (9, 7), (4, 3)
FIELDS = [("a", "<i4"), ("b", "S3"), ("x", "<f8")]
BIG = [("a", ">i4"), ("b", "S3"), ("x", ">f8")]
# One order per field: the codec "zstore.bytes_by_field".
MIXED = [("a", "<i4"), ("b", ">f8"), ("x", "u1"), ("y", ">c8")]
ZARR = {
    2: ["<M8[25us]", ">M8[ns]", "<m8[D]", "S5", "<U3", ">U3", "V3", FIELDS, BIG, MIXED],
    3: ["<M8[25us]", ">M8[ns]", "<m8[D]", "S5", "<U3", ">U3"],
}
# zarr-python 3.1 has no fields within fields in v2, and cannot store times in fields.
# What zarr-python 3.1 has no word for, or other words than zarr-extensions.
ZARR_LACKS = {
    "r24": "zarr-python says raw_bytes",
    "struct": "zarr-python before 3.2 says structured",
}
SMALL = [
    "bfloat16",
    "int2",
    "int4",
    "float4_e2m1fn",
    "float8_e3m4",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
]
TENSORSTORE_LACKS = ["uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3", "complex_bfloat16"]


def items_of(dtype: Any) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(5).integers(0, 120, 63 * dtype.itemsize, dtype="u1")
    if dtype.kind == "U":
        raw = np.where(np.arange(len(raw)) % 4 == 0, raw, 0).astype("u1")
    items: np.ndarray[Any, Any] = raw.view(dtype.newbyteorder("=") if dtype.names is None else native(dtype))
    items = items.reshape(SHAPE)
    items[:4, :3] = np.zeros((), items.dtype)  # a chunk that may not be stored
    return items


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return zstore.model.dtype.DataType.from_numpy(dtype).numpy


def same(found: Any, items: np.ndarray[Any, Any]) -> None:
    assert found.shape == items.shape
    assert np.asarray(found).astype(items.dtype).tobytes() == items.tobytes()


CASES = [(zarr_format, dtype) for zarr_format, dtypes in ZARR.items() for dtype in dtypes]


@pytest.mark.parametrize(("zarr_format", "dtype"), CASES, ids=str)
def test_zarr_python_reads_what_zstore_writes(tmp_path, zarr_format, dtype):
    array = zstore.create_array(tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format)
    items = items_of(dtype)
    array[...] = items
    same(zarr.open_array(tmp_path, mode="r")[...], items)


@pytest.mark.parametrize(("zarr_format", "dtype"), [*CASES, (3, "V3"), (3, FIELDS)], ids=str)
def test_zstore_reads_and_changes_what_zarr_python_writes(tmp_path, zarr_format, dtype):
    array = zarr.create_array(
        tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=np.dtype(dtype), zarr_format=zarr_format
    )
    items = items_of(dtype)
    array[...] = items.astype(np.dtype(dtype))
    ours = zstore.open_array(tmp_path, mode="r+")
    same(ours[...], items)
    changed = items.copy()
    changed[2:6, 1:5] = items[5:9, 3:7]
    ours[2:6, 1:5] = items[5:9, 3:7]
    ours.resize((12, 7))
    theirs = zarr.open_array(tmp_path, mode="r")
    same(theirs[:9], changed)
    same(ours[9:], np.asarray(theirs[9:]).astype(items.dtype))


@pytest.mark.parametrize("name", ZARR_LACKS)
def test_what_zarr_python_lacks_it_still_lacks(tmp_path, name):
    dtype = {"r24": "V3", "struct": FIELDS}[name]
    array = zstore.create_array(tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=dtype)
    if name == "struct" and tuple(map(int, zarr.__version__.split(".")[:2])) >= (3, 2):
        array[...] = items_of(dtype)
        same(zarr.open_array(tmp_path, mode="r")[...], items_of(dtype))
        return
    with pytest.raises((ValueError, TypeError)):
        zarr.open_array(tmp_path, mode="r")


def open_by_tensorstore(directory: Path, **options: Any) -> Any:
    driver = "zarr3" if (directory / "zarr.json").exists() or options else "zarr"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(directory)}}
    return tensorstore.open({**spec, **options}, open=True, create=bool(options)).result()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shards", [None, (8, 6)])
def test_tensorstore_reads_what_zstore_writes_and_the_reverse(tmp_path, name, shards):
    dtype = np.dtype(getattr(ml_dtypes, name))
    limits = ml_dtypes.iinfo if "int" in name else ml_dtypes.finfo
    raw = np.random.default_rng(2).integers(0, 256, 63 * dtype.itemsize, dtype="u1")
    items = raw.view(dtype).reshape(SHAPE)
    if limits(dtype).bits < 8:
        items = items.astype("f4").astype(dtype)  # without bits that mean nothing
    array = zstore.create_array(tmp_path / "ours", shape=SHAPE, chunks=CHUNKS, shards=shards, dtype=name)
    array[...] = items
    found = open_by_tensorstore(tmp_path / "ours").read().result()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype("f4"), items.astype("f4"))
    theirs = open_by_tensorstore(
        tmp_path / "theirs",
        metadata={"shape": list(SHAPE), "data_type": name, "fill_value": 1},
    )
    theirs[1:8].write(items[1:8]).result()
    expected = items.copy()
    expected[[0, 8]] = np.array(1, dtype)
    ours = zstore.open_array(tmp_path / "theirs")[...]
    np.testing.assert_array_equal(ours.astype("f4"), expected.astype("f4"))


@pytest.mark.parametrize("name", TENSORSTORE_LACKS)
def test_what_tensorstore_lacks_it_still_lacks(tmp_path, name):
    zstore.create_array(tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=name)
    with pytest.raises(ValueError, match="is not one of the supported data types"):
        open_by_tensorstore(tmp_path)

"""Stores in the N5 format, shown as Zarr v3."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.engine.n5 import N5Store
from zstore.errors import MetadataError, ReadOnlyError, StoreError, ZstoreError
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

ITEMS = np.arange(5 * 6 * 7, dtype="i4").reshape(5, 6, 7)
ARRAY: dict[str, Any] = {
    "dimensions": [4, 3], "blockSize": [3, 2], "dataType": "int16", "compression": {"type": "raw"},
}  # fmt: skip


def block(items: np.ndarray[Any, Any], pack: Any = bytes) -> bytes:
    """Items of a block, the slowest dimension first, as N5 stores them."""
    head = struct.pack(f">HH{items.ndim}I", 0, items.ndim, *items.shape[::-1])
    return head + pack(items.astype(items.dtype.newbyteorder(">")).tobytes())


def store_of(**nodes: Any) -> N5Store:
    """A store with attributes and blocks by key; "__" stands for "/"."""
    inner = MemoryStore()
    for name, value in nodes.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        inner.put(name.replace("__", "/") + ("" if isinstance(value, bytes) else "/attributes.json"), data)
    return N5Store(inner)


def rows() -> N5Store:
    """An array (3, 4) in a group without attributes; its far blocks are cut off, and one is missing."""
    items = np.arange(12, dtype="i2").reshape(3, 4)
    return store_of(
        g__c__rows={**ARRAY, "unit": "m", "axes": ["x", "y"]},
        g__c__rows__0__0=block(items[:2, :3]),
        g__c__rows__1__0=block(items[:2, 3:]),
        g__c__rows__0__1=block(items[2:, :3]),
    )


@pytest.mark.parametrize(
    "compression",
    [
        {"type": "raw"}, {"type": "gzip"}, {"type": "gzip", "useZlib": True, "level": 1}, {"type": "bzip2"},
        {"type": "xz"}, {"type": "zstd"}, {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
        {"type": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 2},
    ],
)  # fmt: skip
def test_tensorstores_arrays_have_their_dimensions_in_reverse(tmp_path, compression):
    tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is the writer")
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{tmp_path}/a.n5/deep/x/"}}
    metadata = {
        "dimensions": [5, 6, 7], "blockSize": [2, 4, 3], "dataType": "int32", "compression": compression,
        "axes": ["x", "y", ""], "units": ["nm", "nm", "s"], "resolution": [4, 4, 1],
    }  # fmt: skip
    written = tensorstore.open({**spec, "metadata": metadata}, create=True).result()
    written[...] = ITEMS
    array = zstore.open_group(tmp_path / "a.n5")["deep/x"]
    np.testing.assert_array_equal(array[...].T, ITEMS)
    np.testing.assert_array_equal(array[3:5, ::2, 1], ITEMS.T[3:5, ::2, 1])
    assert (array.dims, array.chunks) == (("", "y", "x"), (3, 4, 2))
    assert array.attrs.asdict() == {"units": ["nm", "nm", "s"], "resolution": [4.0, 4.0, 1.0]}


@pytest.mark.parametrize(
    "name", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "float32", "float64"]
)
def test_types(name):
    items = np.array([[1, 2, 100]], name)
    store = store_of(
        a={**ARRAY, "dimensions": [3, 1], "blockSize": [3, 1], "dataType": name}, a__0__0=block(items)
    )
    np.testing.assert_array_equal(zstore.open_array(store, "a")[...], items, strict=True)


def test_blocks_that_are_cut_off_or_missing():
    group = zstore.open_group(rows())
    array = group["g/c/rows"]
    np.testing.assert_array_equal(array[...], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 0]])
    assert array.dims == ("y", "x") and array.attrs.asdict() == {"unit": "m"}
    assert [path for path, _ in group.members(max_depth=None)] == ["g", "g/c", "g/c/rows"]


def test_keys():
    store = rows()
    chunks = ["g/c/rows/c/0/0", "g/c/rows/c/0/1", "g/c/rows/c/1/0"]
    everything = [*chunks, *(f"{path}zarr.json" for path in ("", "g/", "g/c/", "g/c/rows/"))]
    assert sorted(store.list()) == sorted(everything)
    assert sorted(store.list("g/c/rows/c/0")) == chunks[:2]
    assert store.list_children("g/c/rows/c/0") == ["0", "1"]
    assert [store.list_children(path) for path in ("", "g/c/rows", "nothing")] == [
        ["g", "zarr.json"], ["c", "zarr.json"], [],
    ]  # fmt: skip
    for entry in store.entries():
        assert entry == store.entry(entry.key) and entry.size == len(store.get(entry.key) or b"")
    assert store.get("g/c/rows/c/0/1") == store.store.get("g/c/rows/1/0")
    assert [store.get(key) for key in ("zarr", "g/c/rows/0/0", "g/c/rows/0/zarr.json", "a/zarr.json")] == [
        None
    ] * 4
    document = store.get("g/zarr.json") or b""
    assert store.get("g/zarr.json", ByteRange(2, 5)) == document[2:7]


@pytest.mark.parametrize(
    ("attributes", "error", "complaint"),
    [
        ({"compression": {"type": "jpeg"}}, ZstoreError, "n5.jpeg"),
        ({"compression": None}, ZstoreError, "n5.None"),
        ({"dataType": "string"}, ZstoreError, "data type string"),
        ({"dataType": "object"}, ZstoreError, "object"),
        ({"dimensions": 3}, MetadataError, "shape"),
        ({"dimensions": [4, -1]}, MetadataError, "shape"),
        ({"blockSize": [3]}, MetadataError, "chunk_shape"),
        ({"blockSize": [0, 2]}, MetadataError, "chunk_shape"),
        (b"{", MetadataError, "not valid"),
    ],
)
def test_what_is_wrong_is_said_and_hides_no_neighbour(attributes, error, complaint):
    store = rows()
    data = attributes if isinstance(attributes, bytes) else json.dumps({**ARRAY, **attributes}).encode()
    store.store.put("g/bad/attributes.json", data)
    with pytest.raises(error, match=complaint):
        zstore.open_array(store, "g/bad")[...]
    assert zstore.open_array(store, "g/c/rows")[0, 0] == 0
    assert "g/bad/zarr.json" in [*store.list()]


def test_the_form_of_compression_before_n5_2():
    store = store_of(
        a={"dimensions": [2], "blockSize": [2], "dataType": "uint8", "compressionType": "gzip"},
        a__0=block(np.array([7, 8], "u1"), gzip.compress),
    )
    assert zstore.open_array(store, "a")[...].tolist() == [7, 8]


def test_lz4_in_the_frames_of_java_is_an_error():
    store = store_of(
        a={**ARRAY, "compression": {"type": "lz4", "blockSize": 65536}},
        a__0__0=block(np.zeros((2, 3), "i2"), lambda data: b"LZ4Block\x15" + bytes(12) + data),
    )
    with pytest.raises(ZstoreError, match="lz4"):
        zstore.open_array(store, "a")[...]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A directory with the store of `rows`, whose name has the ending."""
    store = rows().store
    for key in store.list():
        place = tmp_path / "a.n5" / key
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(store.get(key))
    return tmp_path / "a.n5"


def test_addresses(folder):
    (folder.parent / "plain").symlink_to(folder)
    archive = shutil.make_archive(str(folder.parent / "archive"), "zip", folder)
    url = open_store(folder, read_only=True).url
    assert url == f"n5://{folder}"
    for address in (
        folder, f"{folder}/", f"file://{folder}", url, f"n5::{folder}", f"n5::file://{folder}",
        f"n5://{folder.parent}/plain", f"file://{folder.parent}/plain|n5:",
        f"n5::zip::{archive}", f"n5::zip://{archive}", f"file://{archive}|zip:|n5:",
    ):  # fmt: skip
        assert zstore.open_group(address)["g/c/rows"][1, 1] == 5, address
    for address in (f"{folder}/g/c/rows", f"{folder}#/g/c/rows", f"file://{folder}|n5:g/c/rows",
                    f"n5::file://{folder}/g/c/rows"):  # fmt: skip
        assert zstore.open_array(address)[1, 1] == 5, address
    memory = open_store("memory://n5/b.n5")
    for key in (plain := rows().store).list():
        memory.put(key, plain.get(key))
    assert zstore.open_array("n5::memory://n5/b.n5", "g/c/rows")[1, 1] == 5
    for address in ("n5://", "n5::", "n5::s3://"):
        with pytest.raises(StoreError, match="expected n5://PATH"):
            open_store(address)


def test_a_zarr_of_that_name_is_one(tmp_path):
    zstore.create_array(tmp_path / "a", data=ITEMS)
    (tmp_path / "a").rename(tmp_path / "a.n5")
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "a.n5")[...], ITEMS)


def test_nothing_is_written(folder):
    with pytest.raises(StoreError, match="nothing here writes N5"):
        zstore.create_array(folder.parent / "new.n5", shape=(1,), dtype="i4")
    with pytest.raises(ReadOnlyError):
        zstore.create_array(folder, "g/new", shape=(1,), dtype="i4")
    with pytest.raises(ReadOnlyError):
        zstore.open_group(folder)["g/c/rows"][...] = 1

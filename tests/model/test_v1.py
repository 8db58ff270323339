"""Zarr v1: documents to models and back, the specification's own example, and arrays that are used."""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import (
    MetadataError,
    NotFoundError,
    SelectionError,
    StoreError,
    UnsupportedError,
    ZstoreError,
)
from zstore.model import v1
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

EXAMPLE: dict[str, Any] = {
    "chunks": [1000, 1000],
    "compression": "blosc",
    "compression_opts": {"clevel": 5, "cname": "lz4", "shuffle": 1},
    "dtype": "<f8",
    "fill_value": None,
    "order": "C",
    "shape": [10000, 10000],
    "zarr_format": 1,
}
ATTRS = {"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]}
SMALL = {**EXAMPLE, "shape": [20, 20], "chunks": [10, 10]}


def parse(document: Any = EXAMPLE, **changes: Any):
    return v1.parse_array({"meta": {**document, **changes}}, path="there")


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    return LocalStore(tmp_path / "store") if request.param == "local" else MemoryStore()


def test_the_specifications_documents_parse_and_render_to_the_same():
    model = v1.parse_array({"meta": EXAMPLE, "attrs": ATTRS}, path="")
    assert (model.zarr_format, model.shape, model.grid.chunk_shape) == (1, (10000, 10000), (1000, 1000))
    assert (model.dtype, model.fill_value, model.attributes) == (np.dtype("f8"), None, ATTRS)
    assert [codec.name for codec in model.codecs] == ["bytes", "numcodecs.blosc"]
    assert model.keys.key((2, 4)) == "2.4"
    assert v1.render_array(model) == {"meta": EXAMPLE, "attrs": ATTRS}
    assert v1.parse_array(v1.render_array(model), path="") == model


def test_the_specifications_walk_through(store):
    """The array of the specification's last section, made, filled, and its bytes decoded by hand."""
    array = zstore.create_array(
        store,
        shape=(20, 20),
        chunks=(10, 10),
        dtype="<i4",
        fill_value=42,
        compressors={"id": "zlib", "level": 1},
        zarr_format=1,
    )
    assert sorted(store.list("")) == ["attrs", "meta"]
    assert json.loads(bytes(store.get("meta"))) == {
        **EXAMPLE,
        "chunks": [10, 10],
        "compression": "zlib",
        "compression_opts": 1,
        "dtype": "<i4",
        "fill_value": 42,
        "shape": [20, 20],
    }
    assert json.loads(bytes(store.get("attrs"))) == {}
    array[0:10, 0:10] = 1
    assert sorted(store.list("")) == ["0.0", "attrs", "meta"]
    assert (array[:, 10:] == 42).all()
    array[0:10, 10:20] = 2
    array[10:20, :] = 3
    assert sorted(store.list("")) == ["0.0", "0.1", "1.0", "1.1", "attrs", "meta"]
    decoded = np.frombuffer(zlib.decompress(bytes(store.get("0.0"))), "<i4")
    np.testing.assert_array_equal(decoded, np.ones(100, "i4"))
    array.attrs.update(ATTRS)
    assert json.loads(bytes(store.get("attrs"))) == ATTRS
    again = zstore.open(store, mode="r")
    assert (again.zarr_format, again.attrs.asdict()) == (1, ATTRS)
    np.testing.assert_array_equal(again[::10, ::10], [[1, 2], [3, 3]])


@pytest.mark.parametrize(
    ("compression", "options", "encode"),
    [
        (None, None, bytes),
        ("none", None, bytes),
        ("zlib", 9, zlib.compress),
        ("zlib", None, zlib.compress),
        ("bz2", 1, bz2.compress),
        ("lzma", None, lzma.compress),
        ("lzma", {"format": 1, "check": -1, "preset": None, "filters": None}, lzma.compress),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i4", ">f8", "|S3", "<U2", [["r", "|u1"], ["g", ">u2"]], "|b1", "<M8[s]"])
def test_bytes_that_others_wrote(compression, options, encode, order, dtype):
    stored = np.dtype([tuple(field) for field in dtype] if isinstance(dtype, list) else dtype)
    raw = bytes(range(6)) * stored.itemsize if stored.kind not in "bSU" else b"\1\0\0\0" * stored.itemsize * 2
    items = np.frombuffer(raw, stored)[:6].reshape((2, 3), order=order)
    store = MemoryStore()
    changes = {"compression": compression, "compression_opts": options, "dtype": dtype, "order": order}
    document = {**EXAMPLE, "shape": [2, 5], "chunks": [2, 3], **changes}
    store.put("meta", json.dumps(document).encode())
    store.put("attrs", b"{}")
    store.put("0.0", encode(items.tobytes(order)))
    array = zstore.open_array(store, mode="r+")
    np.testing.assert_array_equal(array[:, :3], items.astype(array.dtype))
    assert (array[:, 3:] == np.zeros((), array.dtype)).all()
    array[:, 3:] = array[:, :2]
    np.testing.assert_array_equal(zstore.open_array(store, mode="r")[:, 3:], items[:, :2].astype(array.dtype))


@pytest.mark.parametrize(
    ("dtype", "written", "expected"),
    [
        ("<f4", float("nan"), np.float32("nan")),
        ("<f4", "NaN", np.float32("nan")),
        ("|S4", "abc", np.bytes_(b"abc")),
        ("<U4", "é", np.str_("é")),
        ("|b1", True, np.True_),
        (">i2", -5, np.int16(-5)),
        ("<M8[s]", 7, np.datetime64(7, "s")),
        ([["r", "|u1"]], 0, np.zeros((), [("r", "u1")])[()]),
    ],
)
def test_fill_values(dtype, written, expected):
    model = parse(dtype=dtype, fill_value=written)
    np.testing.assert_equal(model.fill_value, expected)
    rendered = v1.render_array(model)["meta"]["fill_value"]
    assert rendered == written or rendered == "NaN"
    assert v1.parse_array(v1.render_array(model), path="") == model


def test_members_that_are_not_known_are_kept_and_change_nothing():
    model = parse(filters=[{"id": "delta"}], compressor={"id": "gzip"}, dimension_separator="/", note=1)
    assert [codec.name for codec in model.codecs] == ["bytes", "numcodecs.blosc"]
    assert model.keys.separator == "."
    assert v1.render_array(model)["meta"] == {
        **EXAMPLE,
        "filters": [{"id": "delta"}],
        "compressor": {"id": "gzip"},
        "dimension_separator": "/",
        "note": 1,
    }


BAD: list[tuple[dict[str, Any], type[ZstoreError]]] = [
    ({"zarr_format": 2}, MetadataError),
    ({"zarr_format": True}, MetadataError),
    ({"shape": [-1, 2]}, MetadataError),
    ({"shape": []}, MetadataError),
    ({"shape": [], "chunks": []}, UnsupportedError),
    ({"chunks": [0, 1]}, MetadataError),
    ({"chunks": [1]}, MetadataError),
    ({"dtype": "|O"}, MetadataError),
    ({"dtype": "f8"}, MetadataError),
    ({"order": "A"}, MetadataError),
    ({"compression": 5}, MetadataError),
    ({"compression": "snappy"}, UnsupportedError),
    ({"compression_opts": 3}, MetadataError),
    ({"compression": "zlib", "compression_opts": "fast"}, MetadataError),
    ({"compression": "zlib", "compression_opts": True}, MetadataError),
    ({"fill_value": "x"}, MetadataError),
    ({"dtype": "|S2", "fill_value": "é"}, MetadataError),
    ({"dtype": "|S2", "fill_value": "abc"}, MetadataError),
]


@pytest.mark.parametrize(("changes", "kind"), BAD, ids=[str(changes) for changes, _ in BAD])
def test_what_is_malformed_is_refused_with_its_place(changes, kind):
    with pytest.raises(kind) as caught:
        parse(**changes)
    assert (caught.value.path, caught.value.key) == ("there", "meta")
    assert "v2" not in str(caught.value)
    if isinstance(value := changes.get("fill_value"), str):
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", EXAMPLE)
def test_every_member_is_needed(name):
    with pytest.raises(MetadataError, match=f"'{name}' is missing"):
        v1.parse_array({"meta": {key: value for key, value in EXAMPLE.items() if key != name}}, path="there")


def test_attributes_that_are_no_object_are_refused():
    with pytest.raises(MetadataError) as caught:
        v1.parse_array({"meta": EXAMPLE, "attrs": [1]}, path="there")
    assert caught.value.key == "attrs"


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": str},
        {"shape": ()},
        {"filters": [{"id": "delta", "dtype": "<i4"}]},
        {"compressors": "zstd"},
        {"chunk_key_encoding": "/"},
        {"dtype": "S2", "fill_value": b"\xff"},
        {"dtype": [("r", "u1")], "fill_value": (7,)},
        {"dtype": "int4"},
        {"compressors": ["blosc", "zlib"]},
        {"filters": [{"name": "transpose", "configuration": {"order": [0]}}]},
        {"serializer": "vlen-utf8"},
        {"chunks": [[1, 3]]},
        {"chunk_key_encoding": "default"},
        {"dimension_names": (None,)},
        {"dtype": "f4", "fill_value": np.uint32(0x7FC00001).view("f4")},
    ],
    ids=str,
)
def test_what_v1_cannot_say_is_refused_before_anything_is_written(options):
    store = MemoryStore()
    with pytest.raises(UnsupportedError, match="Zarr v1"):
        zstore.create_array(store, **{"shape": (4,), "dtype": "i4", "zarr_format": 1, **options})
    with pytest.raises(ZstoreError, match="Zarr v1"):
        zstore.create_array(store, shape=(4,), dtype="i4", shards=(4,), chunks=(2,), zarr_format=1)
    with pytest.raises(UnsupportedError, match="no groups"):
        zstore.create_group(store, zarr_format=1)
    assert list(store.list("")) == []


def test_an_array_beside_others_is_opened_by_its_path(store):
    one = zstore.create_array(store, "deep/one", data=np.arange(9), chunks=(4,), zarr_format=1)
    zstore.create_array(store, "deep/two", data=np.arange(3), zarr_format=1)
    assert sorted(store.list_children("deep")) == ["one", "two"]
    assert sorted(store.list_children("deep/one")) == ["0", "1", "2", "attrs", "meta"]
    np.testing.assert_array_equal(zstore.open(store, "deep/two")[...], np.arange(3))
    with pytest.raises(NotFoundError):
        zstore.open(store, "deep", mode="r")
    with pytest.raises(StoreError, match="Zarr v1 array is there already"):
        zstore.create_array(store, "deep/one", shape=(9,), dtype="i4", zarr_format=2)
    with pytest.raises(MetadataError, match="below a Zarr v1 one"):
        zstore.create_array(store, "deep/one/below", shape=(9,), dtype="i4", zarr_format=2)
    one.append(np.arange(9, 12))
    one.resize(10)
    one.resize(12)
    np.testing.assert_array_equal(one[...], [*range(10), 0, 0])
    with pytest.raises(SelectionError):
        one[12]
    replaced = zstore.create_array(store, "deep/one", shape=(9,), dtype="i4", zarr_format=1, overwrite=True)
    assert (replaced[...] == 0).all()
    np.testing.assert_array_equal(zstore.open(store, "deep/two")[...], np.arange(3))


def test_a_file_of_the_same_name_is_no_array(store):
    store.put("here/meta", b"about this data")
    with pytest.raises(NotFoundError):
        zstore.open(store, "here", mode="r")
    made = zstore.create_array(store, "here/a", shape=(4,), dtype="i4")
    made[...] = 3
    assert bytes(store.get("here/meta")) == b"about this data"
    np.testing.assert_array_equal(zstore.open_group(store, mode="r")["here/a"][...], [3] * 4)
    named = zstore.create_array(store, "here/meta2", shape=(4,), dtype="i4", zarr_format=3)
    assert named.zarr_format == 3


def test_a_damaged_document_is_named(store):
    store.put("meta", json.dumps(SMALL).encode()[:-1])
    with pytest.raises(MetadataError) as caught:
        zstore.open(store, mode="r")
    assert caught.value.key == "meta"
    for zarr_format in (2, 3):
        with pytest.raises(NotFoundError):
            zstore.open(store, mode="r", zarr_format=zarr_format)


def test_dimension_names_are_xarrays_attribute(store):
    array = zstore.create_array(store, shape=(4, 5), dtype="i4", dimension_names=("y", "x"), zarr_format=1)
    assert json.loads(bytes(store.get("attrs"))) == {"_ARRAY_DIMENSIONS": ["y", "x"]}
    array.attrs["unit"] = "m"
    again = zstore.open(store)
    assert (again.model.dimension_names, again.attrs.asdict()) == (("y", "x"), {"unit": "m"})
    again.attrs["_ARRAY_DIMENSIONS"] = ["a", "b"]
    assert zstore.open(store).model.dimension_names == ("a", "b")
    assert zstore.open(store).zarr_format == 1

"""`zstore.convert`: what comes out equals what went in, whatever the formats, or nothing is written."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.engine.intents import JOB, find_unfinished
from zstore.errors import (
    ChangedError,
    CodecError,
    MetadataError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    ZstoreError,
)
from zstore.model.dtype import is_same_type
from zstore.model.packing import decode_fill
from zstore.storage.base import Part, PrefixStore
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

VALUES = np.arange(7 * 9).reshape(7, 9)


def make(store: Any, zarr_format: int, **options: Any) -> zstore.Array:
    options = {"dtype": "i4", "chunks": (3, 4), "zarr_format": zarr_format, **options}
    data = options.pop("data", None)
    data = VALUES.astype(options["dtype"]) if data is None else data
    return zstore.create_array(store, data=data, **options)


def chunks_of(store: Any, array: zstore.Array) -> list[bytes]:
    """The stored chunks in the order of their places."""
    cells = [array.model.keys.cell(key, array.ndim) for key in store.list("")]
    return [
        bytes(store.get(array.model.keys.key(cell))) for cell in sorted(c for c in cells if c is not None)
    ]


def assert_same(one: zstore.Array, other: zstore.Array) -> None:
    np.testing.assert_array_equal(one[...], other[...])
    assert (one.shape, one.dims) == (other.shape, other.dims)
    assert is_same_type(one.dtype, other.dtype)
    assert told(one) == told(other)


def told(array: zstore.Array) -> tuple[dict[str, Any], Any]:
    """The attributes, and nodata as xarray has it: v2's fill value, v3's attribute."""
    attributes = array.attrs.asdict()
    stated = attributes.pop("_FillValue", None)
    if array.dims is None or array.dtype.kind not in "iuf":
        return attributes, stated
    if array.zarr_format != 3:
        return attributes, stated if array.fill_value is None else array.fill_value
    return attributes, None if stated is None else decode_fill(stated, array.dtype)


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8"])
@pytest.mark.parametrize("fill", [None, 0, -9])
@pytest.mark.parametrize("stated", [None, 0, -9, 7])
def test_nodata_is_the_same_for_xarray_in_every_format(dtype, fill, stated):
    """v2's fill value is nodata there, v3's is not: the attribute `_FillValue` is."""
    xr = pytest.importorskip("xarray", reason="xarray says what is missing")
    store = zstore.create_group(MemoryStore(), zarr_format=2).store
    named = {} if stated is None else {"attributes": {"_FillValue": stated}}
    made = zstore.create_array(
        store, "a", data=np.array([[0, -9, 7]], dtype), dimension_names=("y", "x"), zarr_format=2,
        fill_value=fill, **named,
    )  # fmt: skip
    if None not in (fill, stated) and fill != stated:
        return  # the two contradict each other: no conversion decides
    places = [store, MemoryStore(), MemoryStore(), MemoryStore()]
    for place, (target, zarr_format) in enumerate(zip(places[1:], (3, 2, 3), strict=True)):
        zstore.convert(places[place], target, zarr_format=zarr_format)
    seen = [xr.open_dataset(place, engine="zstore").a.values.tolist() for place in places]
    nodata = stated if fill is None else fill
    expected = [[float("nan") if nodata == value else value for value in (0, -9, 7)]]
    assert {repr(np.array(values, "f8").tolist()) for values in seen} == {
        repr(np.array(expected, "f8").tolist())
    }
    again = zstore.open_array(places[2], path="a")
    assert told(again) == told(made)
    assert zstore.open(places[3])["a"].attrs.asdict() == zstore.open(places[1])["a"].attrs.asdict()


@pytest.mark.parametrize(
    ("items", "fill"),
    [
        ([True, False], False), ([1j, 0], 0), (["a", ""], ""), ([b"ab", b""], b""),
        (np.array(["a", ""], np.dtypes.StringDType()), ""),
    ],
)  # fmt: skip
def test_zeros_and_empty_texts_are_no_nodata_in_v2(items, fill):
    """xarray takes v2's fill value for missing values of every type."""
    xr = pytest.importorskip("xarray", reason="xarray says what is missing")
    store, made, again = zstore.create_group(MemoryStore()).store, MemoryStore(), MemoryStore()
    array = zstore.create_array(
        store, "a", data=np.array(items), fill_value=fill, dimension_names=["x"], zarr_format=3
    )
    zstore.convert(store, made, zarr_format=2, check=True)
    zstore.convert(made, again, zarr_format=3, check=True)
    for place in (store, made, again):
        assert xr.open_dataset(place, engine="zstore").a.values.tolist() == array[...].tolist()
    assert zstore.open_array(made, "a").fill_value is None
    assert zstore.open_array(again, "a").fill_value == array.fill_value == fill


CHAINS: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "zlib": {"compressors": {"id": "zlib", "level": 3}},
    "blosc": {"compressors": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}},
    "blosc, chosen shuffle": {
        "compressors": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": -1, "blocksize": 0}
    },
    "bz2": {"compressors": {"id": "bz2", "level": 1}},
    "lzma": {"compressors": {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None}},
    "order F": {"order": "F"},
    "big-endian": {"dtype": ">f8"},
    "order F, big-endian": {"dtype": ">u2", "order": "F", "compressors": {"id": "gzip", "level": 1}},
    "zstd": {"compressors": {"id": "zstd", "level": 1}},
    "lz4": {"compressors": {"id": "lz4", "acceleration": 1}},
    "delta": {"filters": [{"id": "delta", "dtype": "<i4"}]},
    "delta to bytes": {"filters": [{"id": "delta", "dtype": "<i4", "astype": "<i2"}], "order": "F"},
    "scaled": {
        "dtype": "<f8",
        "filters": [{"id": "fixedscaleoffset", "scale": 2, "offset": 0, "dtype": "<f8", "astype": "<u2"}],
    },
    "shuffled": {"filters": [{"id": "shuffle", "elementsize": 4}]},
    "checked": {"filters": [{"id": "delta", "dtype": "<i4"}, {"id": "crc32", "location": "start"}]},
    "keys with /": {"chunk_key_encoding": "/"},
}


@pytest.mark.parametrize("name", CHAINS)
def test_chunks_of_v2_keep_their_bytes_in_v3_and_back(name):
    source, middle, back = MemoryStore(), MemoryStore(), MemoryStore()
    made = make(source, 2, attributes={"a": [1]}, dimension_names=("y", "x"), **CHAINS[name])
    newer = zstore.convert(source, middle, check=True)
    assert newer.zarr_format == 3
    assert_same(made, newer)
    assert chunks_of(source, made) == chunks_of(middle, newer)
    assert "c/0/0" in set(middle.list(""))
    older = zstore.convert(middle, back, zarr_format=2, check=True)
    assert_same(made, older)
    assert chunks_of(source, made) == chunks_of(back, older)
    assert "_ARRAY_DIMENSIONS" in json.loads(bytes(back.get(".zattrs")))


@pytest.mark.parametrize("name", ["raw", "zlib", "blosc", "bz2", "lzma", "order F", "big-endian"])
def test_v1_becomes_v2_and_v3_and_comes_back(name):
    stores = [MemoryStore() for _ in range(5)]
    made = make(stores[0], 1, attributes={"a": 1}, **CHAINS[name])
    second = zstore.convert(stores[0], stores[1], zarr_format=2, check=True)
    third = zstore.convert(second, stores[2], check=True)
    again = zstore.convert(third, stores[3], zarr_format=1, check=True)
    back = zstore.convert(second, stores[4], zarr_format=1, check=True)
    for store, array in zip(stores[1:], (second, third, again, back), strict=True):
        assert_same(made, array)
        assert chunks_of(store, array) == chunks_of(stores[0], made)
    assert {key for key in stores[3].list("") if key[0].isalpha()} == {"meta", "attrs"}
    assert again.model.dimension_names is None


STRUCT = np.dtype([("r", ">u2"), ("g", "<f4"), ("b", "u1")])
TYPES: dict[str, tuple[Any, Any]] = {
    "bool": ("?", VALUES % 2),
    "complex": ("<c8", VALUES + 1j),
    "dates": (">M8[D]", VALUES),
    "durations": ("<m8[s]", VALUES),
    "text": ("<U3", VALUES.astype("U3")),
    "bytes": ("|S3", VALUES.astype("S3")),
    "raw": ("V3", VALUES.astype("S3").view("V3").reshape(7, 9)),
    "fields of two orders": (STRUCT, np.rec.fromarrays([VALUES, VALUES / 2, VALUES], dtype=STRUCT)),
    "strings": (str, VALUES.astype(str).astype(np.dtypes.StringDType())),
    "byte strings": (bytes, VALUES.astype("S3").astype(object)),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_and_fill_values(name):
    dtype, values = TYPES[name]
    source, target, back = MemoryStore(), MemoryStore(), MemoryStore()
    data = values if isinstance(dtype, type) else np.asarray(values).astype(dtype)
    array = make(source, 2, dtype=dtype, data=data)
    array.resize((12, 9))
    newer = zstore.convert(source, target, check=True)
    older = zstore.convert(target, back, zarr_format=2, check=True)
    for made in (newer, older):
        assert_same(array, made)
        fill = array.model.data_type.fill_bits(array.fill_value)
        assert made.model.data_type.fill_bits(made.fill_value) == fill
    is_copy = chunks_of(source, array) == chunks_of(target, newer)
    assert is_copy == (name != "fields of two orders")


def test_the_bits_of_fill_values():
    payload = np.array([0x7FC12345], "u4").view("f4")[0]
    for value in (np.float32(-0.0), np.float32("nan"), np.float32(1e-42), payload):
        store, target = MemoryStore(), MemoryStore()
        zstore.create_array(store, shape=(4,), dtype="f4", fill_value=value)
        if value is payload:
            with pytest.raises(UnsupportedError, match="0x7fc12345"):
                zstore.convert(store, target, zarr_format=2)
            assert list(target.list("")) == []
            continue
        made = zstore.convert(store, target, zarr_format=2)
        assert np.asarray(made.fill_value).tobytes() == np.asarray(value).tobytes()


def test_null_is_what_it_reads_as():
    store = MemoryStore()
    zstore.create_array(store, shape=(4,), dtype="M8[s]", fill_value=None, zarr_format=2)
    made = zstore.convert(store, MemoryStore(), check=True)
    assert made.fill_value == np.datetime64(0, "s")
    old = zstore.convert(store, MemoryStore(), zarr_format=1, compressors="zlib")
    assert old.fill_value is None


def shard(store: Any, **options: Any) -> zstore.Array:
    return make(store, 3, **{"chunks": (2, 3), "shards": (4, 6), **options})


def test_shards_become_their_inner_chunks_before_v3():
    store = MemoryStore()
    made = shard(store, compressors=["zstd"])
    older = zstore.convert(store, MemoryStore(), zarr_format=2, check=True)
    assert (older.chunks, older.shards) == ((2, 3), None)
    assert_same(made, older)


@pytest.mark.parametrize(
    ("options", "chunks", "shards"),
    [
        ({"chunks": (2, 2)}, (2, 2), (4, 6)),
        ({"chunks": (5, 5)}, (5, 5), None),
        ({"chunks": (4,)}, (2, 4), None),
        ({"shards": None}, (2, 3), None),
        ({"shards": (8, 9)}, (2, 3), (8, 9)),
        ({"chunks": 7, "shards": None}, (7, 7), None),
        ({"compressors": "gzip"}, (2, 3), (4, 6)),
        ({"compressors": None, "filters": [{"id": "delta", "dtype": "<i4"}]}, (2, 3), (4, 6)),
        ({"serializer": {"name": "bytes", "configuration": {"endian": "big"}}}, (2, 3), (4, 6)),
        ({}, (2, 3), (4, 6)),
    ],
    ids=str,
)
def test_cut_and_encoded_anew(options, chunks, shards, tmp_path):
    store = MemoryStore()
    made = shard(store, fill_value=9, attributes={"a": 1}, dimension_names=("y", None))
    made.resize((30, 9))
    newer = zstore.convert(store, tmp_path / "to", check=True, **options)
    assert (newer.chunks, newer.shards) == (chunks, shards)
    assert_same(made, newer)
    assert len(list((tmp_path / "to").rglob("c/*/*"))) <= 12, "nothing is stored for what was not"


def test_uneven_chunks():
    store = MemoryStore()
    made = make(store, 3, chunks=[[2, 5], [4, 5]])
    same = zstore.convert(store, MemoryStore(), check=True, chunk_key_encoding="v2")
    assert same.write_chunk_sizes == made.write_chunk_sizes
    assert_same(made, same)
    with pytest.raises(UnsupportedError):
        zstore.convert(store, MemoryStore(), zarr_format=2)
    assert_same(made, zstore.convert(store, MemoryStore(), zarr_format=2, chunks=(3, 3), check=True))
    even = MemoryStore()
    make(even, 3)
    assert_same(made, zstore.convert(even, MemoryStore(), chunks=[[1, 6], [9]], check=True))


def hierarchy(store: Any, zarr_format: int) -> zstore.Group:
    group = zstore.create_group(store, zarr_format=zarr_format, attributes={"title": "all"})
    group.create_group("deep/er", attributes={"level": 2})
    group.create_array("deep/er/a", data=VALUES, chunks=(4, 4), dimension_names=("y", "x"))
    group.create_array("b", data=np.arange(5), compressors=None)
    group.create_array("none", shape=(3, 0), dtype="u1")
    group.create_array("scalar", data=np.float32(2.5))
    return group


@pytest.mark.parametrize("formats", [(2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("is_consolidated", [True, False])
def test_hierarchies(formats, is_consolidated, tmp_path):
    group = hierarchy(tmp_path / "from", formats[0])
    if is_consolidated:
        group.consolidate()
    seen: list[tuple[int, int]] = []
    made = zstore.convert(
        tmp_path / "from",
        tmp_path / "to",
        zarr_format=formats[1],
        check=True,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (16, 16)
    assert [name for name, _ in made.members(None)] == [name for name, _ in group.members(None)]
    assert (made.attrs["title"], made["deep/er"].attrs["level"]) == ("all", 2)
    for name in ("deep/er/a", "b", "none", "scalar"):
        assert_same(group[name], made[name])
    assert (made.model.consolidated is not None) == is_consolidated
    assert not (tmp_path / "to" / JOB).exists()
    part = zstore.convert(group, tmp_path / "to", "deep/er", target_path="copy", zarr_format=formats[1])
    assert_same(group["deep/er/a"], part["a"])
    assert "copy" in zstore.open_group(tmp_path / "to", mode="r+")


def test_arrays_of_v1_lie_in_groups_from_v2_on(tmp_path):
    for name in ("a", "deep/b"):
        make(tmp_path / "from", 1, name=name)
    made = zstore.convert(tmp_path / "from", tmp_path / "to", zarr_format=2, check=True)
    assert [name for name, _ in made.members(None)] == ["a", "deep", "deep/b"]
    with pytest.raises(UnsupportedError, match="arrays only"):
        zstore.convert(tmp_path / "from", tmp_path / "one", zarr_format=1)
    one = zstore.convert(tmp_path / "from", tmp_path / "one", "deep/b", zarr_format=1, check=True)
    np.testing.assert_array_equal(one[...], VALUES)


def refusals() -> dict[str, tuple[Any, dict[str, Any], str]]:
    def three(**options: Any) -> MemoryStore:
        store = MemoryStore()
        zstore.create_array(store, **{"shape": (4,), "dtype": "f4", "chunks": (2,), **options})
        return store

    unknown = three(zarr_format=2)
    unknown.put(".zarray", bytes(unknown.get(".zarray")).replace(b'"order"', b'"mine": 1, "order"'))
    json2 = three(zarr_format=2, dtype=object, filters=[{"id": "json2"}])
    group = MemoryStore()
    zstore.create_group(group)
    return {
        "a codec": (three(filters=[{"name": "bitround", "configuration": {"keepbits": 3}}]), {}, "bitround"),
        "a type": (three(dtype="bfloat16"), {}, "bfloat16"),
        "a name": (three(dimension_names=[None]), {}, "dimension_names"),
        "objects": (json2, {"zarr_format": 3}, "object"),
        "a member": (unknown, {"zarr_format": 3}, "mine"),
        "groups": (group, {"zarr_format": 1}, "group"),
        "a compressor": (three(), {"zarr_format": 1}, "numcodecs.zstd"),
        "a codec that is not there": (three(), {"compressors": "nobody.has.it"}, "nobody.has.it"),
        "shards": (three(), {"shards": (4,)}, "shards"),
        "keys": (three(), {"chunk_key_encoding": "default"}, "default"),
    }


@pytest.mark.parametrize("name", refusals())
def test_what_cannot_be_said_is_refused_with_its_name_before_anything_is_written(name):
    store, options, expected = refusals()[name]
    target = MemoryStore()
    with pytest.raises(ZstoreError, match=expected):
        zstore.convert(store, target, **{"zarr_format": 2, **options})
    assert list(target.list("")) == []


def test_codecs_named_anew_take_the_place_of_those_that_cannot_be_said():
    store = MemoryStore()
    array = make(store, 3, dtype="f4", filters=[{"name": "bitround", "configuration": {"keepbits": 3}}])
    made = zstore.convert(store, MemoryStore(), zarr_format=2, filters=None, compressors="zlib", check=True)
    assert_same(array, made)


def test_only_nothing_or_a_node_is_replaced(tmp_path):
    make(tmp_path / "from", 2)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "thesis.txt").write_text("all of it")
    for overwrite in (False, True):
        with pytest.raises(StoreError, match="no array and no group"):
            zstore.convert(tmp_path / "from", tmp_path / "to", overwrite=overwrite)
    assert (tmp_path / "to" / "thesis.txt").read_text() == "all of it"
    hierarchy(tmp_path / "old", 3)
    with pytest.raises(StoreError, match="overwrite=True"):
        zstore.convert(tmp_path / "from", tmp_path / "old")
    zstore.convert(tmp_path / "from", tmp_path / "old", overwrite=True)
    assert not (tmp_path / "old" / "deep").exists()
    with pytest.raises(UnsupportedError, match="zarr_format is 9"):
        zstore.convert(tmp_path / "from", tmp_path / "nine", zarr_format=9)
    with pytest.raises(MetadataError, match="v3"):
        hierarchy(tmp_path / "two", 2)
        zstore.convert(tmp_path / "from", tmp_path / "two", target_path="in")


@pytest.mark.parametrize("paths", [("", ""), ("deep", ""), ("", "deep/new"), ("deep", "deep")], ids=str)
def test_nothing_is_converted_into_itself(paths, tmp_path):
    hierarchy(tmp_path, 2)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="into itself"):
        zstore.convert(tmp_path, LocalStore(tmp_path), paths[0], target_path=paths[1], overwrite=True)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    with pytest.raises(NotFoundError):
        zstore.convert(tmp_path / "nothing", tmp_path / "to")


def version_of(path: Path) -> tuple[int, int, int]:
    """What changes when a file is replaced or written."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class Interrupted(MemoryStore):
    """A store whose n-th change fails, and every one after it."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self.left = changes

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("the power is gone", path=self.url)

    def put(self, key: str, value: Any) -> None:
        self._count()
        super().put(key, value)

    def delete(self, key: str) -> None:
        self._count()
        super().delete(key)


@pytest.mark.parametrize("options", [{}, {"chunks": (5, 5)}], ids=str)
def test_an_interruption_leaves_nothing_that_reads_as_whole(options):
    source = MemoryStore()
    zstore.create_group(source, zarr_format=2)
    make(source, 2, name="deep/a")
    make(source, 2, name="b")
    options = {**options, "chunks": options.get("chunks", "same")}
    for changes in itertools.count():
        target = Interrupted(changes)
        try:
            zstore.convert(source, target, **options)
            break
        except StoreError:
            target.left = 1 << 30
        if any(not key.startswith(JOB) for key in target.list("")):
            for name in ("deep/a", "b"):
                try:
                    array = zstore.open_array(target, name, mode="r")
                except NotFoundError:
                    continue
                np.testing.assert_array_equal(array[...], VALUES)
            if changes < 10:
                with pytest.raises(NotFoundError):
                    zstore.open(target, mode="r")
        again = {"overwrite": True}
        if find_unfinished(target, ""):
            with pytest.raises(StoreError, match=r"a conversion is unfinished; go on with: zstore\.convert"):
                zstore.convert(source, target, **options)
            again = {"resume": True} if changes % 3 else again
        zstore.convert(source, target, **again, check=True, **options)
        assert not find_unfinished(target, "") and not [key for key in target.list("") if JOB in key]
    assert changes > 15


def test_what_was_left_over_never_shows_through():
    """Chunks of an interrupted conversion that the next one does not write are gone."""
    source = MemoryStore()
    array = zstore.create_array(source, shape=(8,), chunks=(2,), dtype="u1", zarr_format=2)
    array[...] = 5
    target = Interrupted(3)
    with pytest.raises(StoreError):
        zstore.convert(source, target)
    target.left = 1 << 30
    array[...] = 0
    assert (zstore.convert(source, target, overwrite=True)[...] == 0).all()


@pytest.mark.parametrize("options", [{}, {"chunks": (5, 5)}], ids=["copied", "recoded"])
def test_a_source_that_changed_since_is_not_gone_on_with(options, tmp_path):
    """A chunk that was written in place, removed, or is new: what was made of it is of another version."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    def write(array: zstore.Array, path: Path) -> None:
        array[:3, :4] = 77

    def remove(array: zstore.Array, path: Path) -> None:
        (path / "0.0").unlink()

    for change in (None, write, remove):
        source, target = tmp_path / f"from {change}", tmp_path / f"to {change}"
        array = make(source, 2)
        with pytest.raises(KeyboardInterrupt):
            zstore.convert(source, target, progress=stop, **options)
        if change is None:
            assert_same(array, zstore.convert(source, target, resume=True, **options))
            continue
        change(array, source)
        before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
        with pytest.raises(ChangedError, match="what is read was written since the job began"):
            zstore.convert(source, target, resume=True, **options)
        assert before == {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
        assert_same(array, zstore.convert(source, target, overwrite=True, **options))


CHANGES = {
    "a chunk is written": lambda store: zstore.open_array(store, "a").__setitem__(slice(0, 2), 77),
    "a chunk is new": lambda store: store.put("a/2.2", store.get("a/0.0")),
    "a document is written": lambda store: zstore.open_array(store, "a").attrs.update(late=1),
    "chunks are removed": lambda store: [store.delete(k) for k in [*store.list("a")] if k[-1] in "012"],
    "an array is new": lambda store: zstore.create_array(
        store, "late", shape=(1,), dtype="u1", zarr_format=2
    ),
}


@pytest.mark.parametrize("options", [{}, {"chunks": (5, 5)}], ids=["copied", "recoded"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_late", [False, True], ids=["midway", "at the end"])
def test_a_source_that_changes_under_the_conversion_makes_no_target(options, change, is_late, tmp_path):
    """What is made of two states of the source is never published, nor gone on with."""
    for number, store in enumerate((MemoryStore(), LocalStore(tmp_path / "from"))):
        zstore.create_group(store, zarr_format=2)
        kind = {"dtype": "f4", "fill_value": np.nan, "zarr_format": 2}
        array = zstore.create_array(store, "a", shape=(9, 12), chunks=(3, 4), **kind)
        array[:, :8] = 1
        target, moments = tmp_path / f"to {number}", list[int]()

        def write(done: int, total: int, store: Any = store, moments: list[int] = moments) -> None:
            if not moments and (done == total or not is_late):
                moments.append(done)
                CHANGES[change](store)

        with pytest.raises(ChangedError, match=r"while it was read|removed meanwhile"):
            zstore.convert(store, target, progress=write, **options)
        assert moments and not list(target.rglob("zarr.json")) and find_unfinished(LocalStore(target), "")
        with pytest.raises((ChangedError, MetadataError)):
            zstore.convert(store, target, resume=True, **options)
        made = zstore.convert(store, target, overwrite=True, **options)
        np.testing.assert_array_equal(made["a"][...], array[...])


def test_a_chunk_that_goes_away_under_the_conversion_is_no_fill_value(monkeypatch):
    source = MemoryStore()
    make(source, 2)
    get = MemoryStore.get

    def lose(self: MemoryStore, key: str, part: Any = None) -> Any:
        return None if key == "1.1" else get(self, key, part)

    monkeypatch.setattr(MemoryStore, "get", lose)
    with pytest.raises(ChangedError, match="removed meanwhile"):
        zstore.convert(source, MemoryStore())


def test_a_target_in_use_and_a_full_disk_are_refused_before_the_first_byte(tmp_path, monkeypatch):
    make(tmp_path / "from", 2)
    make(tmp_path / "other", 2, data=VALUES + 1)
    refused = list[str]()

    def meanwhile(done: int, total: int) -> None:
        # In a thread, as from elsewhere: nothing tells it that this conversion is the caller's own.
        for options in ({}, {"resume": True}):
            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(zstore.convert, tmp_path / "other", tmp_path / "to", **options)
                refused.append(str(call.exception()))

    made = zstore.convert(tmp_path / "from", tmp_path / "to", progress=meanwhile)
    np.testing.assert_array_equal(made[...], VALUES)
    assert "a conversion is unfinished" in refused[0] and "other arguments was interrupted" in refused[1]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=1, free=100))
    for options in ({}, {"chunks": (7, 9), "compressors": None}):
        with pytest.raises(StoreError, match=r"has 100 B free; expected .* at least for chunks"):
            zstore.convert(tmp_path / "from", tmp_path / "full", **options)
    assert not (tmp_path / "full").exists()


def test_damage_is_found_where_it_is_decoded_or_checked():
    source = MemoryStore()
    make(source, 2, compressors={"id": "zlib", "level": 1})
    whole = bytes(source.get("1.1"))
    source.put("1.1", whole[:-6])
    with pytest.raises(CodecError) as caught:
        zstore.convert(source, MemoryStore(), chunks=(5, 5))
    assert caught.value.key == "1.1"
    zstore.convert(source, MemoryStore())  # the bytes are the same
    with pytest.raises(CodecError):
        zstore.convert(source, MemoryStore(), check=True)


def test_checking_finds_a_difference(monkeypatch):
    source, target = MemoryStore(), MemoryStore()
    make(source, 2, compressors=None)
    real = MemoryStore.put

    def put(self, key, value):
        real(self, key, bytes(36) + bytes(value)[36:] if self is target and key == "c/1/1" else value)

    monkeypatch.setattr(MemoryStore, "put", put)
    with pytest.raises(CodecError, match="differs") as caught:
        zstore.convert(source, target, check=True)
    assert caught.value.key == "c/1/1"
    with pytest.raises(NotFoundError):
        zstore.open(target, mode="r")


class TestInPlace:
    """`zstore.convert_metadata`."""

    @pytest.mark.parametrize("remove_old", [True, False])
    def test_v2_becomes_v3_over_the_same_chunks(self, remove_old, tmp_path):
        group = hierarchy(tmp_path, 2)
        group.consolidate()
        chunk = version_of(tmp_path / "deep/er/a/0.0")
        made = zstore.convert_metadata(tmp_path, remove_old=remove_old)
        assert (made.zarr_format, made["deep/er/a"].zarr_format) == (3, 3)
        assert made.model.consolidated is not None
        np.testing.assert_array_equal(made["deep/er/a"][...], VALUES)
        assert version_of(tmp_path / "deep/er/a/0.0") == chunk
        assert made["deep/er"].attrs["level"] == 2
        left = {path.name for path in tmp_path.rglob(".z*")}
        assert left == (set() if remove_old else {".zarray", ".zattrs", ".zgroup", ".zmetadata"})
        if not remove_old:
            old = zstore.open_group(tmp_path, mode="r", zarr_format=2)
            np.testing.assert_array_equal(old["deep/er/a"][...], VALUES)
        again = zstore.convert_metadata(tmp_path)
        assert again.zarr_format == 3

    def test_there_and_back(self):
        store = MemoryStore()
        hierarchy(store, 2)
        before = {key: bytes(store.get(key)) for key in store.list("")}
        zstore.convert_metadata(store, remove_old=True)
        with pytest.raises(UnsupportedError, match="go before"):
            zstore.convert_metadata(store, zarr_format=2)
        zstore.convert_metadata(store, zarr_format=2, remove_old=True)
        after = {key: bytes(store.get(key)) for key in store.list("")}
        assert after.keys() == before.keys()
        assert {key: after[key] for key in before if ".z" not in key} == {
            key: before[key] for key in before if ".z" not in key
        }

    def test_v1(self):
        store = MemoryStore()
        make(store, 1, order="F", dtype=">i2")
        for zarr_format in (2, 3):
            made = zstore.convert_metadata(store, zarr_format=zarr_format)
            assert made.zarr_format == zarr_format == zstore.open(store).zarr_format
            np.testing.assert_array_equal(made[...], VALUES)
        make(other := MemoryStore(), 1, name="deep")
        with pytest.raises(UnsupportedError, match="no group"):
            zstore.convert_metadata(other)
        assert zstore.convert_metadata(other, "deep").zarr_format == 3

    @pytest.mark.parametrize(
        ("options", "zarr_format", "expected"),
        [
            ({"dtype": STRUCT, "data": np.zeros((7, 9), STRUCT), "zarr_format": 2}, 3, "byte orders"),
            ({"dtype": ">i4", "filters": [{"id": "delta", "dtype": ">i4"}], "zarr_format": 2}, 3, "delta"),
            ({"zarr_format": 3}, 2, "'default'"),
            ({"zarr_format": 3, "shards": (6, 8), "chunk_key_encoding": "v2"}, 2, "sharding_indexed"),
        ],
        ids=str,
    )
    def test_what_would_change_a_chunk_is_refused(self, options, zarr_format, expected):
        store = MemoryStore()
        made = make(store, **options)
        before = sorted(store.list(""))
        with pytest.raises(UnsupportedError, match=expected):
            zstore.convert_metadata(store, zarr_format=zarr_format, remove_old=True)
        assert sorted(store.list("")) == before
        if expected != "'default'":
            # Encoded anew it can be said.
            assert_same(made, zstore.convert(store, MemoryStore(), zarr_format=zarr_format, check=True))

    def test_a_part_of_a_hierarchy_keeps_its_format(self):
        store = MemoryStore()
        hierarchy(store, 2)
        with pytest.raises(MetadataError, match="below"):
            zstore.convert_metadata(store, "deep")


def test_a_chunk_that_would_decode_otherwise_is_encoded_anew(monkeypatch):
    """Were a plan wrong about the bytes, what is stored has the last word."""
    from zstore.jobs.upkeep import plan
    from zstore.model.array import CodecModel

    store = MemoryStore()
    made = make(store, 2, dtype=">i4", compressors=None)
    real = plan.codecs_to_v3
    little = CodecModel("bytes", {"endian": "little"})
    monkeypatch.setattr(
        plan, "codecs_to_v3", lambda codecs, data_type: (little, *real(codecs, data_type)[1:])
    )
    assert_same(made, zstore.convert(store, MemoryStore(), check=True))


class TestCommand:
    """`zstore convert`, from Zarr to Zarr."""

    @pytest.fixture
    def run(self):
        testing = pytest.importorskip("click.testing", reason="the command line is made with click")
        pytest.importorskip("rich", reason="the command line draws with rich")
        from zstore.cli.root import zstore as command

        def run(*words: Any, code: int = 0) -> str:
            result = testing.CliRunner().invoke(command, ["convert", *map(str, words)])
            assert result.exit_code == code, result.output
            return result.output

        return run

    def test_to_another_format_and_back(self, run, tmp_path):
        group = hierarchy(tmp_path / "from", 2)
        assert "deep" in run(tmp_path / "from", tmp_path / "to", "--check")
        made = zstore.open_group(tmp_path / "to", mode="r")
        assert made.zarr_format == 3
        assert_same(group["deep/er/a"], made["deep/er/a"])
        run(tmp_path / "from", tmp_path / "to", code=1)
        words = ["--format", 3, "--chunks", "2,3", "--shards", 6, "--codec", "gzip", "--overwrite"]
        run(tmp_path / "to", tmp_path / "sharded.zip", *words)
        array = zstore.open_array(tmp_path / "sharded.zip", "deep/er/a", "r")
        assert (array.chunks, array.shards, array.model.codecs[0].name) == (
            (2, 3),
            (6, 6),
            "sharding_indexed",
        )
        assert_same(group["deep/er/a"], array)
        run(tmp_path / "sharded.zip", tmp_path / "back", "--format", 2, "--codec", "none", "--check")
        assert_same(group["b"], zstore.open_array(tmp_path / "back", "b", "r"))

    def test_v1(self, run, tmp_path):
        make(tmp_path / "from/in", 1)
        run(tmp_path / "from", tmp_path / "to")
        assert zstore.open(tmp_path / "to", "in", "r").zarr_format == 3
        assert "(7, 9) int64" in run(tmp_path / "from/in", tmp_path / "one", "--format", 2).replace(
            "32", "64"
        )
        run(tmp_path / "from", tmp_path / "old", "--format", 1, code=1)

    def test_metadata_only(self, run, tmp_path):
        hierarchy(tmp_path, 2)
        run(tmp_path, "--metadata-only", "--remove-old")
        assert list(tmp_path.rglob(".z*")) == []
        np.testing.assert_array_equal(zstore.open(tmp_path, "deep/er/a", "r")[...], VALUES)

    @pytest.mark.parametrize(
        "words",
        [
            ["to", "--metadata-only"],
            ["--metadata-only", "--codec", "zstd"],
            [],
            ["to", "--remove-old"],
            ["to", "--pyramid"],
            ["to", "--method", "nearest"],
            ["to", "--profile", "gdal"],
            ["to.tif", "--check"],
        ],
        ids=str,
    )
    def test_options_that_do_not_go_together(self, run, words, tmp_path):
        make(tmp_path / "from", 2)
        assert "Error" in run(tmp_path / "from", *[tmp_path / w if w[0] == "t" else w for w in words], code=2)
        assert [path.name for path in tmp_path.iterdir()] == ["from"]


class Counted(MemoryStore):
    """A store in memory that notes which values are read, and for which sizes are asked."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.sized: list[str] = []

    def get_many(self, requests):
        self.read += [key for key, _ in requests]
        return super().get_many(requests)

    def get_parts(self, requests):
        self.read += [key for key, _ in requests]
        values = MemoryStore.get_many(self, [(key, None) for key, _ in requests])
        return [
            None
            if value is None
            else Part(value[slice(*(part or ByteRange(0)).resolve(len(value)))], len(value))
            for value, (_, part) in zip(values, requests, strict=True)
        ]

    def size(self, key):
        self.sized.append(key)
        return super().size(key)

    def as_read_only(self):
        return PrefixStore(self, "", read_only=True)

    def take(self) -> dict[str, int]:
        """How often each chunk was read since the last time."""
        taken, self.read = Counter(key for key in self.read if key.startswith("c/")), []
        return taken


def test_each_chunk_of_the_source_is_read_once():
    source = Counted()
    array = make(source, 3, chunks=(4, 5))
    for chunks in ((3, 2), (7, 9), (1, 9)):
        target = MemoryStore()
        source.take()
        assert_same(array, zstore.convert(source, target, chunks=chunks, check=True))
        assert set(source.take().values()) == {3}  # to convert, to check, and here


def test_verifying_asks_for_no_sizes():
    store = Counted()
    array = make(store, 3)
    make(store, 3, chunks=(2, 2), shards=(4, 4), overwrite=True)
    for missing in ("fill", "error"):
        store.sized.clear()
        assert zstore.verify(store, missing=missing).chunk_count == 6
        assert not [key for key in store.sized if "c/" in key]
    assert array.shape == (7, 9)


@pytest.mark.parametrize("target_format", [2, 3])
@pytest.mark.parametrize("source_format", [1, 2, 3])
def test_conversions_add_a_checksum_once(tmp_path, source_format, target_format):
    items = np.arange(64.0).reshape(8, 8)
    options = (
        {"compressors": {"id": "blosc"}} if source_format < 3 else {"shards": (4, 4), "compressors": None}
    )
    zstore.create_array(tmp_path / "0", data=items, chunks=(2, 2), zarr_format=source_format, **options)
    for n in range(2):
        source, target = tmp_path / str(n), tmp_path / str(n + 1)
        zstore.convert(source, target, checksum=True, zarr_format=target_format, check=True)
        made = zstore.open_array(target, mode="r")
        names = [codec.name.removeprefix("numcodecs.") for codec in (*made.filters, *made.compressors)]
        assert names.count("crc32c") == 1 and made.has_checksum
        np.testing.assert_array_equal(made[...], items)


def test_lengths_of_chunks_are_for_arrays_with_so_many_dimensions():
    """Coordinates and bounds keep their own; an array that has no others beside it is cut."""
    group = zstore.create_group(MemoryStore())
    for name, dims in {"t2m": ("time", "y", "x"), "time": ("time",), "time_bnds": ("time", "two")}.items():
        shape = tuple({"time": 40, "y": 20, "x": 30, "two": 2}[one] for one in dims)
        group.create_array(name, data=np.ones(shape, "f4"), chunks=shape, dimension_names=dims)
    made = zstore.convert(group.store, MemoryStore(), chunks=(10, 7, 8), shards=(20, 14, 16))
    assert {name: (made[name].chunks, made[name].shards) for name in made} == {
        "t2m": ((10, 7, 8), (20, 14, 16)),
        "time": ((40,), None),
        "time_bnds": ((40, 2), None),
    }
    one = zstore.convert(group["time"].store, MemoryStore(), path="time", chunks=(10, 7))
    assert one.chunks == (7,)


def test_lengths_by_name_are_for_arrays_along_those_dimensions():
    group = zstore.create_group(MemoryStore())
    for name, shape, along in (
        ("t", (100, 50, 60), ("time", "y", "x")),
        ("mask", (50, 60), ("y", "x")),
        ("time", (100,), ("time",)),
        ("bounds", (100, 2), ("time", "nv")),
    ):
        group.create_array(name, data=np.zeros(shape), chunks=shape, dimension_names=along)
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        ({"time": 20}, "same", {"t": ((20, 50, 60), None)}),
        ({"time": 80, "y": "auto"}, "same", {"t": ((80, 25, 60), None)}),
        ({"y": 10, "x": -1}, "same", {"t": ((100, 10, 60), None), "mask": ((10, 60), None)}),
        ({"time": 20, "y": 10}, {"time": 40, "y": 50}, {"t": ((20, 10, 60), (40, 50, 60))}),
    ]
    for chunks, shards, changed in cases:
        made = zstore.convert(group, MemoryStore(), chunks=chunks, shards=shards)
        whole = {name: (array.shape, None) for name, array in group.arrays()}
        assert {name: (one.chunks, one.shards) for name, one in made.arrays()} == {**whole, **changed}
    for wrong, said in {
        "lat": "no dimension 'lat' to cut; expected one of",
        "time": "is 0; expected a",
    }.items():
        with pytest.raises(MetadataError, match=said):
            zstore.convert(group, MemoryStore(), chunks={wrong: 0})
    names = ("time", "y", "x")
    made = zstore.create_array(
        MemoryStore(), shape=(100, 500, 600), dtype="f8", chunks={"time": 2, "y": "auto"},
        shards={"time": 10}, dimension_names=names,
    )  # fmt: skip
    assert (made.chunks, made.shards) == ((2, 63, 600), (10, 63, 600))
    with pytest.raises(MetadataError, match="no dimension 'time' to cut; expected one of none"):
        zstore.create_array(MemoryStore(), shape=3, dtype="f8", chunks={"time": 2})

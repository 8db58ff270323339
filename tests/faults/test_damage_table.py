"""Every damage against every codec and type, on every way to read: an error that names chunk and array."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError, MetadataError, NotFoundError, StoreError, UnsupportedError, ZstoreError
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

SHAPE, CHUNKS = (12, 8), (6, 8)
NUMBERS = (np.arange(96).reshape(SHAPE) % 7 + 1).astype("<i4")
TEXT = NUMBERS.astype(str).astype(np.dtypes.StringDType())
FIELDS = np.rec.fromarrays([NUMBERS, NUMBERS / 2], dtype=[("r", "<u2"), ("g", "<f4")])
BLOSC = {"clevel": 5, "blocksize": 0, "typesize": 4}


def numcodec(name: str, **options: Any) -> dict[str, Any]:
    return {"compressors": [{"name": f"numcodecs.{name}", "configuration": options}]}


def blosc(cname: str, shuffle: str) -> dict[str, Any]:
    return {
        "compressors": [{"name": "blosc", "configuration": {**BLOSC, "cname": cname, "shuffle": shuffle}}]
    }


ARRAYS: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "raw, order F": {"compressors": None, "order": "F"},
    "big-endian": {"compressors": None, "dtype": ">i4"},
    "zstd": {"compressors": "zstd"},
    "gzip": {"compressors": "gzip"},
    "blosc lz4": blosc("lz4", "shuffle"),
    "blosc zstd": blosc("zstd", "bitshuffle"),
    "blosc blosclz": blosc("blosclz", "noshuffle"),
    "crc32c": {"compressors": "crc32c"},
    "zlib": numcodec("zlib", level=1),
    "lz4": numcodec("lz4", acceleration=1),
    "bz2": numcodec("bz2", level=1),
    "lzma": numcodec("lzma", format=1, check=-1, preset=None, filters=None),
    "shuffle": numcodec("shuffle", elementsize=4),
    "fletcher32": numcodec("fletcher32"),
    "crc32": numcodec("crc32"),
    "delta": {"compressors": None, "filters": [{"id": "delta", "dtype": "<i4"}]},
    "packbits": {"data": NUMBERS % 2 == 0, "compressors": None, "serializer": {"name": "packbits"}},
    "strings": {"data": TEXT, "dtype": str, "compressors": None},
    "strings, zstd": {"data": TEXT, "dtype": str, "compressors": "zstd"},
    "byte strings": {"data": NUMBERS.astype("S2").astype(object), "dtype": bytes, "compressors": None},
    "fields": {"data": FIELDS, "compressors": None},
    "fields, zstd": {"data": FIELDS, "compressors": "zstd"},
    "dates": {"data": NUMBERS.astype("M8[D]"), "compressors": "gzip"},
    "characters": {"data": NUMBERS.astype("U2"), "compressors": None},
    "shards": {"chunks": (3, 4), "shards": CHUNKS, "compressors": None},
    "shards, zstd": {"chunks": (3, 4), "shards": CHUNKS, "compressors": "zstd"},
    "shards, bz2": {"chunks": (3, 4), "shards": CHUNKS, **numcodec("bz2", level=1)},
    "shards of strings": {
        "chunks": (3, 4),
        "shards": CHUNKS,
        "data": TEXT,
        "dtype": str,
        "compressors": "zstd",
    },
    "uneven": {"chunks": [[6, 4, 2], [8]], "compressors": "zstd"},
    "v2": {"zarr_format": 2},
    "v2, filters": {
        "zarr_format": 2,
        "filters": [{"id": "delta", "dtype": "<i4"}],
        "compressors": {"id": "zlib", "level": 1},
    },
    "v2, strings": {"zarr_format": 2, "data": TEXT, "dtype": str},
    "v2, JSON": {"zarr_format": 2, "data": NUMBERS.astype(object), "filters": [{"id": "json2"}]},
    "v1": {"zarr_format": 1},
    "v1, zlib": {"zarr_format": 1, "compressors": "zlib"},
}
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no bytes": lambda whole: b"",
    "one byte": lambda whole: whole[:1],
    "half": lambda whole: whole[: len(whole) // 2],
    "one byte less": lambda whole: whole[:-1],
    "one byte more": lambda whole: whole + b"\0",
    "twice": lambda whole: whole + whole,
    "noise": lambda whole: bytes(range(1, 256)) * 2,
    "ones": lambda whole: b"\xff" * len(whole),
}
# What is valid all the same. Any bytes of that length are items; the checksum that fletcher32 has of ones is
# ones; a shard whose index comes last may hold bytes that nothing points to.
SHARDS = {"shards", "shards, zstd", "shards, bz2", "shards of strings"}
VALID = {
    "ones": {
        *("raw", "raw, order F", "big-endian", "shuffle", "delta", "fields", "packbits", "characters"),
        "fletcher32",
    },
    "twice": SHARDS,
}
SELECTIONS: list[Any] = [..., (0, 0), (slice(0, 3), slice(0, 4)), ([5, 0], [7, 0]), (slice(1, 6, 2), 3)]


@pytest.fixture(params=["local", "memory", "fsspec"])
def store(request, tmp_path):
    if request.param == "local":
        return LocalStore(tmp_path / "store")
    if request.param == "memory":
        return MemoryStore()
    import fsspec

    from zstore.storage.fsspec import FsspecStore

    filesystem = fsspec.filesystem("memory", skip_instance_cache=True)
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    return FsspecStore("memory://root", filesystem=filesystem)


def make(store: Any, name: str) -> tuple[zstore.Array, str]:
    """The array, and the key of its first chunk."""
    options = {"data": NUMBERS, "chunks": CHUNKS, **ARRAYS[name]}
    array = zstore.create_array(store, "a", **options)
    return array, f"a/{array.model.keys.key((0, 0))}"


@pytest.mark.parametrize("name", ARRAYS)
def test_damaged_chunks(store, name):
    array, key = make(store, name)
    whole = bytes(store.get(key))
    before = array[6:]
    for what, damage in DAMAGES.items():
        if name in VALID.get(what, ()):
            continue
        store.put(key, damage(whole))
        for selection in SELECTIONS:
            for handle in (array, zstore.open_array(store, "a", "r")):
                try:
                    got = handle[selection]
                except CodecError as error:
                    assert (error.key, error.path) == (key, store.url), (what, selection)
                    assert key in str(error)
                    continue
                raise AssertionError(f"{what}, {selection}: read as {got!r}")
        np.testing.assert_array_equal(array[6:], before)
    store.put(key, whole)
    np.testing.assert_array_equal(array[6:], before)


def changed_bytes(name: str, step: int, *, checksum: bool) -> tuple[int, int, int]:
    """Of all changes of one byte, every `step`th byte: (errors, the same items, other items)."""
    y, x = np.mgrid[:32, :32]
    noise = np.random.default_rng(0).normal(0, 0.5, (32, 32))
    items = np.round(280 + 15 * np.sin(x / 9) * np.cos(y / 7) + noise, 1).astype("<f4")
    store, options = MemoryStore(), {"chunks": (32, 32), **CHANGED[name], "checksum": checksum}
    array = zstore.create_array(store, "a", data=items, **options)
    key = f"a/{array.model.keys.key((0, 0))}"
    whole, chance, counts = bytes(store.get(key)), np.random.default_rng(1), [0, 0, 0]
    np.testing.assert_array_equal(array[...], items)
    for at in range(0, len(whole), step):
        changed = bytearray(whole)
        changed[at] ^= int(chance.integers(1, 256))
        store.put(key, bytes(changed))
        try:
            counts[1 if array[...].tobytes() == items.tobytes() else 2] += 1
        except ZstoreError:
            counts[0] += 1
    if array.has_checksum:
        assert counts[2] == 0, f"{name}: {counts[2]} changed bytes were read as other items"
    elif step == 1:
        assert counts[2] > 0, f"{name} notices every changed byte; expected that `has_checksum` says so"
    return counts[0], counts[1], counts[2]


CHANGED: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "zstd": {"compressors": "zstd"},
    "zstd without its checksum": {
        "compressors": {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
    },
    "gzip": {"compressors": "gzip"},
    **{f"blosc {cname}": blosc(cname, "shuffle") for cname in ("lz4", "lz4hc", "zstd", "blosclz")},
    "blosc lz4, bits shuffled": blosc("lz4", "bitshuffle"),
    "lz4": numcodec("lz4", acceleration=1),
    "zlib": numcodec("zlib", level=1),
    "bz2": numcodec("bz2", level=1),
    "lzma": numcodec("lzma", format=1, check=-1, preset=None, filters=None),
    "pcodec": {"serializer": "numcodecs.pcodec", "compressors": None},
    "zfpy": {"serializer": "numcodecs.zfpy", "compressors": None},
    "fletcher32": numcodec("fletcher32"),
    "crc32": numcodec("crc32"),
    "adler32": numcodec("adler32"),
    "jenkins_lookup3": numcodec("jenkins_lookup3"),
    "shards, none": {"chunks": (16, 16), "shards": (32, 32), "compressors": None},
    "shards, blosc lz4": {"chunks": (16, 16), "shards": (32, 32), **blosc("lz4", "shuffle")},
    "v2, zstd": {"zarr_format": 2},
    "v2, blosc": {"zarr_format": 2, "compressors": {"id": "blosc"}},
}


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CHANGED)
def test_one_changed_byte(name, step):
    before = changed_bytes(name, step, checksum=False)
    after = changed_bytes(name, step, checksum=True)
    assert after[2] == 0
    print(f"| {name} | {' | '.join(map(str, before))} | {' | '.join(map(str, after))} |")


HUGE = "[" * 100_000
GOOD: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}


def grid(*lengths: Any) -> dict[str, Any]:
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(lengths)}}}


DOCUMENTS: dict[str, tuple[Any, type[ZstoreError]]] = {
    "no bytes": (b"", MetadataError),
    "no JSON": (b"{", MetadataError),
    "no UTF-8": (b'{"\xff": 1}', MetadataError),
    "deep": (HUGE.encode(), MetadataError),
    "deep in an object": (b'{"attributes": ' + HUGE.encode(), MetadataError),
    "a long number": (b'{"zarr_format": ' + b"9" * 10_000 + b"}", MetadataError),
    "a list": (b"[]", MetadataError),
    "chunks of 0": (grid(0), MetadataError),
    "chunks below 0": (grid(-1), MetadataError),
    "chunks of other dimensions": (grid(2, 2), MetadataError),
    "chunks that are no integers": (grid(1.5), MetadataError),
    "chunks larger than any": (grid(2**62), MetadataError),
    "chunks past 64 bits": (grid(2**64), MetadataError),
    "a shape below 0": ({"shape": [-1]}, MetadataError),
    "a shape past 63 bits": ({"shape": [2**63]}, MetadataError),
    "chunks whose product overflows": ({"shape": [4] * 3, **grid(*[2**31] * 3)}, MetadataError),
    "an unknown type": ({"data_type": "int33"}, UnsupportedError),
    "a type of endless items": ({"data_type": "r99999999999999999992"}, ZstoreError),
    "an unknown codec": ({"codecs": [{"name": "nobody.has.it"}]}, ZstoreError),
    "no codecs": ({"codecs": []}, MetadataError),
    "an unknown grid": ({"chunk_grid": {"name": "hexagonal"}}, UnsupportedError),
    "an unknown member": ({"mine": 1}, UnsupportedError),
    "unknown keys": ({"chunk_key_encoding": {"name": "mine"}}, UnsupportedError),
    "a separator that climbs out": (
        {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}},
        MetadataError,
    ),
    "a storage transformer": ({"storage_transformers": [{"name": "mine"}]}, UnsupportedError),
    "a fill value out of range": ({"fill_value": 2**31}, MetadataError),
    "shards of more chunks than can be numbered": (
        {
            "shape": [2**60],
            **grid(2**60),
            "codecs": [
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [1],
                        "codecs": GOOD["codecs"],
                        "index_codecs": GOOD["codecs"],
                    },
                }
            ],
        },
        MetadataError,
    ),
    "shards that inner chunks do not fit": (
        {
            "codecs": [
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [3],
                        "codecs": GOOD["codecs"],
                        "index_codecs": GOOD["codecs"],
                    },
                }
            ]
        },
        MetadataError,
    ),
    "shards of nothing known": ({"codecs": [{"name": "sharding_indexed"}]}, MetadataError),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_damaged_documents(store, name):
    damage, kind = DOCUMENTS[name]
    data = damage if isinstance(damage, bytes) else json.dumps({**GOOD, **damage}).encode()
    store.put("a/zarr.json", data)
    with pytest.raises(kind) as caught:
        array = zstore.open_array(store, "a", "r")
        assert array.chunks
        array[...]
    assert caught.value.path is not None
    assert caught.value.path.startswith(store.url)


@pytest.mark.parametrize("path", ["../out", "a/../../out", "a/./b", "..", "a\0b"])
def test_paths_that_climb_out(store, path):
    zstore.create_group(store, "a")
    for act in (
        lambda: zstore.open(store, path, mode="r"),
        lambda: zstore.create_array(store, path, shape=(2,), dtype="i4"),
        lambda: zstore.open_group(store, "a", "r+")[path],
    ):
        with pytest.raises(StoreError):
            act()


@pytest.mark.parametrize("key", ["../out/zarr.json", "/out/zarr.json", "a/../../out/.zarray", "a//b/.zarray"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_paths_that_climb_out(store, zarr_format, key):
    zstore.create_group(store, zarr_format=zarr_format).consolidate()
    name = "zarr.json" if zarr_format == 3 else ".zmetadata"
    document = json.loads(bytes(store.get(name)))
    metadata = document["consolidated_metadata"]["metadata"] if zarr_format == 3 else document["metadata"]
    metadata[key.rpartition("/")[0] if zarr_format == 3 else key.replace("zarr.json", ".zarray")] = GOOD
    store.put(name, json.dumps(document).encode())
    with pytest.raises(ZstoreError):
        list(zstore.open_group(store, mode="r").members(None))


def test_missing_is_an_error_where_it_was_opened_so(store):
    group = zstore.create_group(store)
    array = group.create_array("deep/a", shape=(4, 4), chunks=(2, 2), dtype="i4")
    array[:2] = 1
    strict = zstore.open(store, mode="r", missing="error")
    for found in (
        strict["deep/a"],
        strict["deep"]["a"],
        next(a for _, a in strict["deep"].arrays()),
        dict(strict.members(None))["deep/a"],
        zstore.open_array(store, "deep/a", "r", missing="error"),
        zstore.open_group(store, "deep", "r", missing="error")["a"],
    ):
        np.testing.assert_array_equal(found[:2], 1)
        for read in (
            lambda a: a[...],
            lambda a: a[3, 3],
            lambda a: a.oindex[[3], :],
            lambda a: a.vindex[[3], [3]],
            lambda a: a.blocks[1, 1],
            lambda a: a.read(),
        ):
            with pytest.raises(NotFoundError) as caught:
                read(found)
            assert caught.value.key in ("deep/a/c/1/0", "deep/a/c/1/1")
        assert (found.read(missing="fill")[2:] == 0).all()
    assert (zstore.open(store, "deep/a", "r")[2:] == 0).all()
    for wrong in (zstore.open, zstore.open_array):
        with pytest.raises(ValueError, match="missing='zero'"):
            wrong(store, "deep/a", "r", missing="zero")

"""What zstore writes is read equal by zarr-python, zarrs and tensorstore, and what they write by zstore."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import zstore
from zstore.storage.local import LocalStore

from ..properties.recipes import assert_same, random_items, recipes

zarr = pytest.importorskip("zarr", reason="the peer of these tests")
tensorstore = pytest.importorskip("tensorstore", reason="the peer of these tests")
pytest.importorskip("zarrs", reason="the peer of these tests")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore:.*disables partial reads"),
]

# What a peer does not do: a pattern of the metadata, and the reason; everything else it must read.
TENSORSTORE_LACKS = {
    r'"filters"': "tensorstore has no v2 filters",
    r'"numcodecs\.': "tensorstore has no numcodecs.* codecs in v3",
    r'"id": "lzma"': "tensorstore has no lzma",
    r'"id": "lz4"': "tensorstore has no lz4",
    r'"index_location": "\w+"\}, "name": "sharding_indexed"\}, \{': "tensorstore has no codecs around shards",
}
ZARR_LACKS = {
    r'"numcodecs.delta"\}, \{"configuration": \{"endian": "big"': "zarr-python misreads its own",
}
ZARRS_LACKS = {
    r'"dtype": ">': "zarrs refuses v2's big-endian items",
    r'"order": "F"': "zarrs refuses v2's order F",
    r'"data_type": "complex.*"endian": "big"': "zarrs exchanges the parts of big-endian complex numbers",
    r'"endian": "big".*"data_type": "complex': "zarrs exchanges the parts of big-endian complex numbers",
}


def document(directory: Path) -> str:
    """The metadata on one line, members in one order, v2's null filters left out."""
    path = directory / "zarr.json"
    found = json.loads((path if path.exists() else directory / ".zarray").read_text())
    return json.dumps({name: value for name, value in found.items() if value is not None}, sort_keys=True)


def lacking(directory: Path, lacks: dict[str, str]) -> str | None:
    text = document(directory)
    return next((why for pattern, why in lacks.items() if re.search(pattern, text)), None)


def read_by_zarr(directory: Path) -> Any:
    return np.asarray(zarr.open_array(directory, mode="r")[...])


def open_by_tensorstore(directory: Path, **options: Any) -> Any:
    driver = "zarr3" if (directory / "zarr.json").exists() else "zarr"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(directory)}}
    return tensorstore.open({**spec, **options}, open=True).result()


def read_by_tensorstore(directory: Path) -> Any:
    return np.asarray(open_by_tensorstore(directory).read().result())


def read_by_zarrs(directory: Path) -> Any:
    # Strict: what zarrs itself cannot do is not to be done by zarr-python in its stead.
    options = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    with zarr.config.set(options):
        return read_by_zarr(directory)


PEERS = {
    "zarr-python": (read_by_zarr, ZARR_LACKS),
    "zarrs": (read_by_zarrs, ZARRS_LACKS),
    "tensorstore": (read_by_tensorstore, TENSORSTORE_LACKS),
}

DTYPES = ["?", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"]
CHAINS: dict[str, dict[str, Any]] = {
    "v3 none": {"compressors": None},
    "v3 zstd": {"compressors": "zstd"},
    "v3 zstd with a checksum": {
        "compressors": {"name": "zstd", "configuration": {"level": 5, "checksum": True}}
    },
    "v3 gzip": {"compressors": "gzip"},
    "v3 blosc": {"compressors": "blosc"},
    "v3 blosc lz4 bitshuffle": {
        "compressors": {
            "name": "blosc",
            "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "blocksize": 0},
        }
    },
    "v3 crc32c": {"compressors": ["gzip", "crc32c"]},
    "v3 F": {"order": "F"},
    "v3 shards": {"shards": (8, 12)},
    "v3 shards of none": {"shards": (8, 12), "compressors": None},
    "v3 keys with dots": {"chunk_key_encoding": ("default", ".")},
    "v3 keys of v2": {"chunk_key_encoding": ("v2", "/")},
    "v2 none": {"zarr_format": 2, "compressors": None},
    "v2 zlib": {"zarr_format": 2, "compressors": {"id": "zlib", "level": 1}},
    "v2 gzip": {"zarr_format": 2, "compressors": {"id": "gzip", "level": 1}},
    "v2 bz2": {"zarr_format": 2, "compressors": {"id": "bz2", "level": 1}},
    "v2 zstd": {"zarr_format": 2, "compressors": {"id": "zstd", "level": 1}},
    "v2 blosc": {
        "zarr_format": 2,
        "compressors": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    },
    "v2 F": {"zarr_format": 2, "order": "F", "chunk_key_encoding": ("v2", "/")},
}
SHAPE, CHUNKS = (13, 17), (4, 6)


def items_of(dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    items = random_items(np.random.default_rng(seed), SHAPE, np.dtype(dtype).newbyteorder("="))
    items[4:8, 6:12] = 0  # a chunk that is not stored
    return items


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_peers_read_what_zstore_writes(tmp_path, dtype, chain, peer):
    array = zstore.create_array(tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=dtype, **CHAINS[chain])
    items = items_of(dtype)
    array[...] = items
    read, lacks = PEERS[peer]
    why = lacking(tmp_path, lacks)
    if why is not None:
        pytest.skip(why)
    assert_same(np.asarray(read(tmp_path)).astype(items.dtype), items)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (8, 12))])
def test_zstore_reads_and_changes_what_zarr_python_writes(tmp_path, dtype, shards, order, zarr_format):
    if zarr_format == 3 and order == "F":
        options: dict[str, Any] = {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]}
    else:
        options = {"order": order} if zarr_format == 2 else {}
    theirs = zarr.create_array(
        tmp_path, shape=SHAPE, chunks=CHUNKS, shards=shards, dtype=dtype, zarr_format=zarr_format, **options
    )
    array = zstore.open_array(tmp_path)
    assert array.dtype == zarr.open_array(tmp_path).dtype
    items = items_of(dtype).astype(array.dtype)
    theirs[...] = items
    assert_same(array[...], items)
    assert_same(array[3:9, ::-5], items[3:9, ::-5])
    changed = items_of(dtype, 1)
    array[2:11, 5:] = items[2:11, 5:] = changed[2:11, 5:]
    assert_same(array[...], items)
    assert_same(np.asarray(zarr.open_array(tmp_path, mode="r")[...]).astype(items.dtype), items)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "float64", "complex64"])
def test_zstore_reads_and_changes_what_tensorstore_writes(tmp_path, dtype, location, order):
    little = {"name": "bytes", "configuration": {"endian": "big" if location == "start" else "little"}}
    shard = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": list(CHUNKS),
            "codecs": [
                {"name": "transpose", "configuration": {"order": list(order)}},
                little,
                {"name": "zstd", "configuration": {"level": 1}},
            ],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": location,
        },
    }
    metadata = {
        "shape": list(SHAPE),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 12]}},
        "codecs": [shard],
    }
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}, "metadata": metadata}
    theirs = tensorstore.open(spec, create=True).result()
    items = items_of(dtype)
    theirs.write(items).result()
    array = zstore.open_array(tmp_path)
    assert_same(array[...], items)
    array[1:12, 3:7] = items[1:12, 3:7] = items_of(dtype, 2)[1:12, 3:7]
    assert_same(np.asarray(theirs.read().result()), items)


MORE = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@MORE
@given(st.data(), st.integers(0, 999))
def test_any_array_is_read_by_whoever_can(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes(max_ndim=4))
    with TemporaryDirectory() as directory:
        place = Path(directory) / "a"
        array = zstore.create_array(
            LocalStore(place),
            shape=recipe.shape,
            dtype=recipe.dtype,
            fill_value=recipe.fill_value,
            **recipe.options,
        )
        items = np.full(recipe.shape, recipe.fill)
        some = random_items(np.random.default_rng(seed), recipe.shape, recipe.numpy)
        region = tuple(slice(0, data.draw(st.integers(0, n))) for n in recipe.shape)
        array[region] = items[region] = some[region]
        # zarrs lacks too many codecs and nestings to be asked for any array; it is asked one by one above.
        for peer in ("zarr-python", "tensorstore"):
            read, lacks = PEERS[peer]
            if lacking(place, lacks) is None:
                assert_same(np.asarray(read(place)).astype(items.dtype), items)


@pytest.mark.parametrize("where", ["chunks", "shards"])
@pytest.mark.parametrize("word", ["C", "F"])
def test_transposes_that_name_their_order_are_read(tmp_path, word, where):
    """As v3 first allowed it, and GDAL wrote it; an array that is changed gets the permutation."""
    items = np.arange(24, dtype="<u2").reshape(2, 3, 4)
    axes = [0, 1, 2] if word == "C" else [2, 1, 0]
    order = {"name": "transpose", "configuration": {"order": axes}}
    shape = {"chunks": (2, 3, 2)} if where == "chunks" else {"chunks": (2, 3, 2), "shards": (2, 3, 4)}
    zstore.create_array(tmp_path, data=items, filters=[order], **shape)
    document = tmp_path / "zarr.json"
    explicit = document.read_text()
    named = json.dumps(json.loads(explicit)).replace(json.dumps(axes), f'"{word}"')
    assert f'"{word}"' in named
    document.write_text(named)
    np.testing.assert_array_equal(read_by_tensorstore(tmp_path), items)
    array = zstore.open_array(tmp_path)
    np.testing.assert_array_equal(array[...], items)
    array.attrs["a"] = 1
    del array.attrs["a"]
    assert json.loads(document.read_text()) == json.loads(explicit)


@pytest.mark.parametrize(
    ("members", "chunk", "expected"),
    [
        (
            '"fill_value":"ü","filters":[{"id":"vlen-utf8"}],"dtype":"<U2"',
            "03000000010000006104000000c39fc3bc00000000",
            ["a", "ßü", "", "ü"],
        ),
        (
            '"fill_value":"YWI=","filters":[{"id":"vlen-bytes"}],"dtype":"|S2"',
            "03000000020000006162010000006300000000",
            [b"ab", b"c", b"", b"ab"],
        ),
        (
            '"fill_value":"2000-01-02T03:04:05","filters":null,"dtype":"<M8[s]"',
            "00e10b5e0000000000000000000000800100000000000000",
            [
                *np.array(
                    ["2020-01-01", "NaT", "1970-01-01T00:00:01", "2000-01-02T03:04:05"], "M8[s]"
                ).tolist()
            ],
        ),
    ],
    ids=["text", "bytes", "times"],
)
def test_texts_and_dates_of_zarr_python_3_0_are_read(tmp_path, members, chunk, expected):
    """Documents and chunks as 3.0.10 writes them in v2; 3.1 and later refuse them."""
    rest = '"shape":[4],"chunks":[3],"order":"C","dimension_separator":".","compressor":null,"zarr_format":2'
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.zarray").write_text(f"{{{members},{rest}}}", "utf-8")
    (tmp_path / "a/0").write_bytes(bytes.fromhex(chunk))
    assert zstore.open_array(tmp_path / "a")[...].tolist() == expected
    for zarr_format in (2, 3):
        target = tmp_path / f"v{zarr_format}"
        zstore.convert(tmp_path / "a", target, zarr_format=zarr_format)
        assert zstore.open_array(target)[...].tolist() == expected
        assert zarr.open_array(str(target), mode="r")[...].tolist() == expected


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_of_no_length_along_empty_dimensions_are_read(tmp_path, zarr_format):
    """zarr-python 2.18.7 to 3.3 wrote them; an array that grows has chunks of length 1 there."""
    shape = {"shape": (0, 4), "chunks": (1, 2), "dtype": "<i4", "zarr_format": zarr_format}
    zarr.create(store=str(tmp_path), **shape)
    document = tmp_path / ("zarr.json" if zarr_format == 3 else ".zarray")
    strict = json.loads(document.read_text())
    for empty in (0, False):
        changed = json.loads(json.dumps(strict))
        grid = changed if zarr_format == 2 else changed["chunk_grid"]["configuration"]
        grid["chunks" if zarr_format == 2 else "chunk_shape"][0] = empty
        document.write_text(json.dumps(changed))
        array = zstore.open_array(tmp_path)
        assert array.chunks == (1, 2) and array[...].shape == (0, 4)
    array.append(np.arange(8, dtype="i4").reshape(2, 4))
    assert array[...].tolist() == zarr.open_array(str(tmp_path))[...].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    # Where there are items, there is no chunk without length.
    document.write_text(json.dumps(changed).replace("[0, 4]", "[5, 4]"))
    with pytest.raises(zstore.errors.MetadataError, match="chunk"):
        zstore.open_array(tmp_path)

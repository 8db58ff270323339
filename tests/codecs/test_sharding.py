"""The codec "sharding_indexed": its bytes, its options, and that Python and the kernels agree on both."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.codecs.base import ChunkSpec
from zstore.codecs.sharding import EMPTY, ShardingIndexed, is_filled
from zstore.errors import ChecksumError, CodecError, MetadataError
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.testing.chunk_codecs import SerializerContract

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
CRC = {"name": "crc32c"}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
SPEC = ChunkSpec((4, 4), np.dtype("u2"), np.uint16(9))
CHUNK = np.arange(16, dtype="u2").reshape(4, 4)


def configuration(**options: Any) -> dict[str, Any]:
    return {"chunk_shape": [2, 2], "codecs": [LITTLE], "index_codecs": [LITTLE], **options}


def bound(**options: Any) -> ShardingIndexed:
    return ShardingIndexed.from_configuration(configuration(**options)).bind(SPEC)


class TestShardingIndexed(SerializerContract):
    specs = (SPEC, SPEC._replace(fill_value=np.uint16(0)), ChunkSpec((6, 2), np.dtype("f8"), np.float64(0)))

    def make(self):
        return ShardingIndexed.from_configuration(
            configuration(codecs=[BIG, ZSTD], index_codecs=[LITTLE, CRC])
        )


def test_the_bytes_of_a_shard():
    chunk = CHUNK.copy()
    chunk[:2, 2:] = 9  # an inner chunk of the fill value
    pieces = [chunk[:2, :2], chunk[2:, :2], chunk[2:, 2:]]
    body = b"".join(piece.astype("<u2").tobytes() for piece in pieces)
    for location, start in (("end", 0), ("start", 64)):
        index = struct.pack("<8Q", start, 8, EMPTY, EMPTY, start + 8, 8, start + 16, 8)
        expected = index + body if location == "start" else body + index
        codec = bound(index_location=location)
        assert codec.encode(chunk) == expected
        np.testing.assert_array_equal(codec.decode(memoryview(expected)), chunk, strict=True)


OPTIONS = {
    "plain": {},
    "zstd": {"codecs": [LITTLE, ZSTD]},
    "start": {"index_location": "start"},
    "checksum": {"index_codecs": [LITTLE, CRC]},
    "big index": {"index_codecs": [BIG, CRC], "index_location": "start"},
    "big items": {"codecs": [BIG, CRC]},
    "nested": {
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {"chunk_shape": [1, 2], "codecs": [BIG], "index_codecs": [BIG]},
            }
        ]
    },
    "transposed": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, BIG]},
    "compressed index of one size": {
        "index_codecs": [{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, LITTLE]
    },
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_the_engine_and_the_codec_write_and_read_the_same(tmp_path, kind, name):
    options = {
        "serializer": {"name": "sharding_indexed", "configuration": configuration(**OPTIONS[name])},
        "compressors": None,
    }
    store = LocalStore(tmp_path) if kind == "local" else MemoryStore()
    array = zstore.create_array(store, shape=(4, 4), chunks=(4, 4), dtype="u2", fill_value=9, **options)
    array[...] = CHUNK
    codec = bound(**OPTIONS[name])
    np.testing.assert_array_equal(codec.decode(memoryview(bytes(store.get("c/0/0")))), CHUNK, strict=True)
    store.put("c/0/0", codec.encode(CHUNK[::-1]))
    np.testing.assert_array_equal(array[...], CHUNK[::-1])
    assert array[1, 2] == CHUNK[2, 2]
    array[1, 2] = 77  # what is untouched keeps its bytes
    changed = CHUNK[::-1].copy()
    changed[1, 2] = 77
    np.testing.assert_array_equal(codec.decode(memoryview(bytes(store.get("c/0/0")))), changed, strict=True)
    array[...] = 9
    assert store.get("c/0/0") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_shape": [3, 2]},
        {"chunk_shape": [2]},
        {"chunk_shape": [0, 2]},
        {"chunk_shape": [-2, 2]},
        {"chunk_shape": "22"},
        {"chunk_shape": [2.0, 2]},
        {"chunk_shape": [True, 2]},
        {"chunk_shape": None},
        {"codecs": []},
        {"codecs": None},
        {"codecs": [{}]},
        {"codecs": [{"name": 3}]},
        {"index_codecs": []},
        {"index_codecs": [LITTLE, ZSTD]},
        {"index_location": "middle"},
        {"index_location": None},
        {"index_locations": "end"},
        {"codecs": [ZSTD]},
    ],
)
def test_configurations_that_mean_nothing(wrong):
    with pytest.raises(MetadataError):
        bound(**wrong)


def test_configurations_come_back():
    given = configuration(index_location="start")
    made = ShardingIndexed.from_configuration(given).to_configuration()
    assert ShardingIndexed.from_configuration(made) == ShardingIndexed.from_configuration(given)


def test_damage_is_told():
    codec = bound(index_codecs=[LITTLE, CRC])
    data = codec.encode(CHUNK)
    for size in (0, 10, 67):
        with pytest.raises(CodecError, match="index alone takes 68"):
            codec.decode(memoryview(data[:size]))
    with pytest.raises(ChecksumError):
        codec.decode(memoryview(data[:-1] + bytes([data[-1] ^ 1])))
    with pytest.raises(CodecError, match="inner chunk 0"):
        bound().decode(memoryview(bound().encode(CHUNK)[:-64] + struct.pack("<8Q", 96, 8, *[EMPTY] * 6)))


def test_fill_values_are_compared_bit_by_bit():
    nan = np.array([np.nan, np.nan], "f4")
    assert is_filled(nan, np.float32(np.nan))
    assert not is_filled(np.array([0.0, -0.0], "f4"), np.float32(0))
    assert not is_filled(nan, None)
    assert is_filled(np.array(5, "i8"), np.int64(5))
    other = nan.view("u4") | 1
    assert not is_filled(other.view("f4"), np.float32(np.nan))

"""The codec "conditional"."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import zstore
from zstore.codecs.conditional import Conditional
from zstore.errors import ChecksumError, CodecError, MetadataError, UnknownExtensionError
from zstore.storage.memory import MemoryStore
from zstore.testing.codecs import CodecContract

ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 1}}
CRC = {"name": "crc32c"}


def make(*codecs, **options) -> Conditional:
    return Conditional.from_configuration({"codecs": list(codecs), **options})


class TestConditional(CodecContract):
    damage_count = 60

    def make(self):
        return Conditional.from_configuration({"codecs": [ZLIB, CRC], "header_bits": 16})


def test_bytes_that_do_not_shrink_are_kept_as_they_are():
    codec = make(ZLIB)
    smooth, noise = bytes(1000), np.random.default_rng(0).bytes(1000)
    encoded = codec.encode(memoryview(smooth))
    assert encoded[0] == 1
    assert zlib.decompress(encoded[1:]) == smooth
    assert codec.encode(memoryview(noise)) == b"\0" + noise


def test_what_others_chose_is_read():
    codec = make(ZLIB, CRC)
    data = bytes(range(200))
    packed = zlib.compress(data)
    plain = make(CRC).bound[0].encode(memoryview(data))
    both = make(CRC).bound[0].encode(memoryview(packed))
    for mask, encoded in enumerate([data, packed, plain, both]):
        assert bytes(codec.decode(memoryview(bytes([mask]) + bytes(encoded)), 200)) == data
        with pytest.raises(CodecError):
            codec.decode(memoryview(bytes([mask]) + bytes(encoded)), 199)
    with pytest.raises(ChecksumError):
        codec.decode(memoryview(b"\3" + bytes(both[:-1]) + b"?"), 200)


def test_headers_that_mean_nothing():
    codec = make(ZLIB, header_bits=16)
    with pytest.raises(CodecError, match="has 1 bytes, its header takes 2"):
        codec.decode(memoryview(b"\0"), 10)
    with pytest.raises(CodecError, match="names more than 1 codecs"):
        codec.decode(memoryview(b"\1\1abc"), 10)


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"codecs": []},
        {"codecs": [{"name": "transpose", "configuration": {"order": [0]}}]},
        {"codecs": [CRC], "header_bits": 7},
        {"codecs": [CRC], "header_bits": 0},
        {"codecs": [CRC] * 9, "header_bits": 8},
        {"codecs": [CRC], "mask": 1},
    ],
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="codec 'conditional'"):
        Conditional.from_configuration(configuration)


def test_a_codec_that_nobody_has():
    with pytest.raises(UnknownExtensionError, match="shuffle9"):
        make({"name": "shuffle9"})


@pytest.mark.parametrize("shards", [None, (8, 12)])
def test_in_an_array(shards):
    items = np.random.default_rng(0).integers(0, 5, (13, 17), dtype="i4")
    compressors = [{"name": "conditional", "configuration": {"codecs": [ZLIB, CRC]}}]
    store = MemoryStore()
    array = zstore.create_array(
        store, shape=(13, 17), chunks=(4, 6), shards=shards, dtype="i4", compressors=compressors
    )
    array[...] = items
    np.testing.assert_array_equal(zstore.open_array(store)[::-2, 3:], items[::-2, 3:])

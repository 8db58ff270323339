"""CRC-32C: known values, both ways of computing it, both places to put it; the checksum of HDF5."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore._ext.codecs import native
from zstore.codecs.crc32c import Crc32c, NumcodecsCrc32c
from zstore.errors import ChecksumError, CodecError, MetadataError, UnsupportedError, ZstoreError
from zstore.storage.memory import MemoryStore
from zstore.testing.codecs import NativeCodecContract


class TestCrc32c(NativeCodecContract):
    def make(self):
        return Crc32c()


class TestNumcodecsCrc32cAtStart(NativeCodecContract):
    def make(self):
        return NumcodecsCrc32c("start")


# RFC 3720, B.4.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), KNOWN)
@pytest.mark.parametrize("portable", [False, True])
def test_known_values(data, expected, portable):
    assert native.checksum_crc32c(data, portable=portable) == expected


def test_lookup3():
    """Values that lookup3.c itself tells."""
    assert native.checksum_lookup3(b"") == 0xDEADBEEF
    assert native.checksum_lookup3(b"Four score and seven years ago") == 0x17770551
    with pytest.raises(TypeError):
        native.checksum_lookup3(None)


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_every_short_length_and_offset():
    data = np.random.default_rng(0).bytes(900)
    for size in [*range(40), 255, 256, 257, 767, 768, 769, 850]:
        for start in (0, 1, 7):
            part = memoryview(data)[start : start + size]
            expected = bit_by_bit(part)
            assert native.checksum_crc32c(part) == expected, (size, start)
            assert native.checksum_crc32c(part, portable=True) == expected, (size, start)


def test_long_data_gives_the_same_both_ways_and_in_pieces():
    data = np.random.default_rng(1).bytes(100_003)
    for size in (12287, 12288, 12289, 24576, 100_003):
        whole = native.checksum_crc32c(data[:size])
        assert whole == native.checksum_crc32c(data[:size], portable=True)
        assert whole == native.checksum_crc32c(data[5000:size], native.checksum_crc32c(data[:5000]))


def test_the_example_configuration():
    codec = Crc32c.from_configuration({})
    assert codec.to_configuration() == {}
    assert codec.encode(b"123456789") == b"123456789" + bytes.fromhex("839206e3")


def test_the_checksum_stands_where_location_says():
    assert NumcodecsCrc32c.from_configuration({}).encode(b"123456789")[-4:] == bytes.fromhex("839206e3")
    assert NumcodecsCrc32c.from_configuration({"location": "start"}).encode(b"123456789")[
        :4
    ] == bytes.fromhex("839206e3")


def test_every_flipped_bit_is_found():
    encoded = Crc32c().encode(b"some bytes to keep")
    for bit in range(8 * len(encoded)):
        changed = bytearray(encoded)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ChecksumError, match="codec 'crc32c' failed: the stored checksum"):
            Crc32c().decode(changed, 100)


def test_too_short_for_a_checksum():
    with pytest.raises(CodecError, match="damaged"):
        Crc32c().decode(b"abc", 10)


def test_it_has_no_options():
    with pytest.raises(MetadataError, match="unknown options: 'location'"):
        Crc32c.from_configuration({"location": "end"})
    with pytest.raises(MetadataError, match="location 'middle'"):
        NumcodecsCrc32c.from_configuration({"location": "middle"})


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codec", [None, "blosc", "zstd", "crc32c"])
@pytest.mark.parametrize("kind", ["numbers", "text", "shards", "empty", "0-d"])
def test_a_checksum_asked_for_by_one_word(zarr_format, codec, kind):
    zarr = pytest.importorskip("zarr", reason="what is stored is read by zarr-python")
    items = np.arange(64, dtype=">i4" if zarr_format == 2 else "i4").reshape(8, 8)
    options: dict = {"data": items, "compressors": codec, "checksum": True}
    if kind == "text":
        options |= {"data": items.astype(str).astype(object), "dtype": str}
    elif kind == "shards":
        if zarr_format == 2:
            return
        options |= {"chunks": (2, 4), "shards": (4, 8)}
    elif kind == "empty":
        options["data"] = items[:0]
    elif kind == "0-d":
        options["data"] = items[3, 3]
    store = MemoryStore()
    array = zstore.create_group(store, zarr_format=zarr_format).create_array("a", **options)
    names = [codec.name.removeprefix("numcodecs.") for codec in (*array.filters, *array.compressors)]
    assert names.count("crc32c") == 1 and array.has_checksum
    assert names[-1] == "crc32c" or zarr_format == 2
    np.testing.assert_array_equal(array[...], options["data"])
    held = {key: bytes(store.get(key)) for key in store.list()}
    if kind != "text" or zarr_format == 3:
        buffers = {key: zarr.core.buffer.cpu.Buffer.from_bytes(value) for key, value in held.items()}
        theirs = zarr.open_array(zarr.storage.MemoryStore(buffers), path="a", mode="r")
        np.testing.assert_array_equal(theirs[...], options["data"])
    for key in held.keys() - {"zarr.json", "a/zarr.json", ".zgroup", ".zattrs", "a/.zarray", "a/.zattrs"}:
        store.put(key, held[key][:-5] + bytes([held[key][-5] ^ 1]) + held[key][-4:])
        with pytest.raises(ZstoreError):
            array[...]


def test_what_has_no_checksum_says_so():
    store = MemoryStore()
    for codecs, has_one in ((None, False), ("zstd", True), ("blosc", False), (["blosc", "crc32c"], True)):
        for shards in (None, (4, 4)):
            made = zstore.create_array(
                store,
                "a",
                shape=8,
                dtype="i4",
                chunks=2,
                compressors=codecs,
                shards=shards and 4,
                overwrite=True,
            )
            assert made.has_checksum == has_one
    assert not zstore.create_array(MemoryStore(), shape=8, dtype="i4", zarr_format=2).has_checksum
    with pytest.raises(UnsupportedError, match=r"checksum=True cannot be said in Zarr v1.*expected Zarr v2"):
        zstore.create_array(MemoryStore(), shape=8, dtype="i4", zarr_format=1, checksum=True)

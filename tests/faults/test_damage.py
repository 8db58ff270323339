"""Damaged chunks: an error that names chunk and array, whichever part is read; never items, never a crash."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ChecksumError, CodecError
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

CODECS: dict[str, Any] = {
    "raw": None,
    "zstd": ["zstd"],
    "gzip": ["gzip"],
    "blosc": [
        {
            "name": "blosc",
            "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
        }
    ],
    "lz4": [{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}],
    "crc32c": ["crc32c"],
    "zstd+crc32c": ["zstd", "crc32c"],
    "bz2": [{"name": "numcodecs.bz2", "configuration": {"level": 1}}],
}
SELECTIONS: list[Any] = [
    ...,
    (slice(0, 16), slice(0, 16)),
    (3, 5),
    (slice(2, 9, 3), slice(None, None, -1)),
    ([1, 2, 15], [0, 15, 7]),
    ([1, 2, 15], slice(None)),
]
ITEMS = (np.arange(32 * 16).reshape(32, 16) % 251).astype("<u4")


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    return LocalStore(tmp_path / "store") if request.param == "local" else MemoryStore()


def make(store, compressors, **options) -> zstore.Array:
    array = zstore.create_array(
        store, "a", shape=(32, 16), dtype="u4", compressors=compressors, **{"chunks": (16, 16), **options}
    )
    array[...] = ITEMS
    return array


def assert_refused(array: zstore.Array, key: str, selections=SELECTIONS, kind=CodecError) -> None:
    """Every read that touches the damaged chunk raises, through an old handle and a new one; others go on."""
    for handle in (array, zstore.open_array(array.store, "a", "r")):
        for selection in selections:
            with pytest.raises(kind) as caught:
                handle[selection]
            assert caught.value.key == key
            assert caught.value.path == array.store.url
            assert key in str(caught.value)
            assert array.store.url in str(caught.value)
        with pytest.raises(kind):
            handle.read(out=np.empty((32, 16), "u4"))
        np.testing.assert_array_equal(handle[16:], ITEMS[16:])
    if not array.read_only:
        with pytest.raises(kind):  # a partial write must read what is there, and leaves it as it is
            array[3, 2] = 1


@pytest.mark.parametrize("name", CODECS)
def test_wrong_length(store, name):
    array = make(store, CODECS[name])
    key = "a/c/0/0"
    whole = bytes(store.get(key))
    for size in {0, 1, 3, 8, len(whole) // 2, len(whole) - 9, len(whole) - 4, len(whole) - 1}:
        store.put(key, whole[:size])
        assert_refused(array, key)
    for junk in (b"\0", b"\xff" * 5, whole):
        store.put(key, whole + junk)
        assert_refused(array, key)
    store.put(key, whole)
    np.testing.assert_array_equal(array[...], ITEMS)


@pytest.mark.parametrize("name", ["crc32c", "zstd+crc32c"])
def test_a_flipped_bit_never_passes_a_checksum(store, name):
    array = make(store, CODECS[name])
    key = "a/c/0/0"
    whole = bytes(store.get(key))
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        for bit in (1, 128):
            store.put(key, whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            assert_refused(array, key, SELECTIONS[::3], ChecksumError)


@pytest.mark.parametrize("name", [name for name in CODECS if "crc32c" not in name])
def test_flipped_bytes_are_refused_or_of_the_right_shape(store, name):
    array = make(store, CODECS[name])
    key = "a/c/0/0"
    whole = bytes(store.get(key))
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        store.put(key, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        for selection in SELECTIONS:
            try:
                assert array[selection].shape == ITEMS[selection].shape
            except CodecError as error:
                assert error.key == key
        np.testing.assert_array_equal(array[16:], ITEMS[16:])


def shard(
    location: str = "end", *, checksum: bool = True, codecs: Any = None, chunk=(4, 4)
) -> dict[str, Any]:
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    return {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": list(chunk),
            "codecs": codecs or [little],
            "index_codecs": [little, {"name": "crc32c"}] if checksum else [little],
            "index_location": location,
        },
    }


class Shard:
    """A shard's bytes, with entries that can be changed; the checksum follows."""

    def __init__(self, data: bytes, location: str, checksum: bool) -> None:
        self.size = 16 * 16 + (4 if checksum else 0)
        self.location, self.checksum = location, checksum
        index = data[: self.size] if location == "start" else data[-self.size :]
        self.body = data[self.size :] if location == "start" else data[: -self.size]
        self.entries = [list(pair) for pair in struct.iter_unpack("<QQ", index[:256])]

    def bytes(self) -> bytes:
        index = b"".join(struct.pack("<QQ", *pair) for pair in self.entries)
        if self.checksum:
            index += struct.pack("<I", crc32c(index))
        return index + self.body if self.location == "start" else self.body + index


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, bit by bit."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


EMPTY = 2**64 - 1
BAD_ENTRIES = {
    "outside": lambda size, length: (size + 1, 64),
    "at the end": lambda size, length: (size, 64),
    "reaching out": lambda size, length: (size - 32, 64),
    "overflowing": lambda size, length: (EMPTY - 1, 64),
    "overflowing together": lambda size, length: (64, EMPTY - 32),
    "signed overflow": lambda size, length: (2**63, 2**63),
    "half missing, offset": lambda size, length: (EMPTY, 64),
    "half missing, size": lambda size, length: (64, EMPTY),
    "too short": lambda size, length: (64, 63),
    "empty": lambda size, length: (64, 0),
    "too long": lambda size, length: (64, 65),
    "the whole shard": lambda size, length: (0, size),
}


@pytest.mark.parametrize("location", ["end", "start"])
@pytest.mark.parametrize("checksum", [True, False], ids=["crc", "no crc"])
def test_index_entries_that_cannot_be(store, location, checksum):
    array = make(store, None, chunks=(16, 16), serializer=shard(location, checksum=checksum))
    key = "a/c/0/0"
    whole = bytes(store.get(key))
    touched = [..., (slice(0, 4), slice(0, 4)), (3, 2), ([0, 3], [0, 3])]
    for name, entry in BAD_ENTRIES.items():
        damaged = Shard(whole, location, checksum)
        assert damaged.bytes() == whole
        damaged.entries[0] = list(entry(len(whole), 64))
        store.put(key, damaged.bytes())
        try:
            assert_refused(array, key, touched)
        except BaseException as error:
            raise AssertionError(f"entry {name}: {error}") from error
    # An entry that points into the index itself is no chunk either.
    damaged = Shard(whole, location, checksum)
    damaged.entries[0] = [0 if location == "start" else len(whole) - damaged.size, 64]
    store.put(key, damaged.bytes())
    assert_refused(array, key, touched)


@pytest.mark.parametrize("location", ["end", "start"])
@pytest.mark.parametrize("name", ["raw", "zstd"])
def test_damaged_shards(store, location, name):
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    zstd = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
    array = make(
        store, None, serializer=shard(location, codecs=[little, zstd] if name == "zstd" else [little])
    )
    key = "a/c/0/0"
    whole = bytes(store.get(key))
    for size in (0, 1, 100, 259, 260, len(whole) // 2, len(whole) - 1):
        store.put(key, whole[:size])
        # Where the index comes first, a cut takes only the inner chunks behind it.
        assert_refused(array, key, [...])
    index = 0 if location == "start" else len(whole) - 260
    for at in range(index, index + 260, 7):
        store.put(key, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert_refused(array, key, SELECTIONS, ChecksumError)
    store.put(key, whole + b"junk" if location == "end" else whole)
    if location == "end":
        assert_refused(array, key, SELECTIONS, ChecksumError)
    store.put(key, whole)
    np.testing.assert_array_equal(array[...], ITEMS)


def test_a_shard_without_inner_chunks_is_empty(store):
    array = make(store, None, serializer=shard())
    damaged = Shard(bytes(store.get("a/c/0/0")), "end", True)
    damaged.entries = [[EMPTY, EMPTY]] * 16
    damaged.body = b""
    store.put("a/c/0/0", damaged.bytes())
    np.testing.assert_array_equal(array[:16], np.zeros((16, 16), "u4"))


def test_nested_shards_check_every_index(store):
    inner = shard(codecs=None, chunk=(4, 4))
    outer = shard(codecs=[inner], chunk=(8, 8))
    array = make(store, None, serializer=outer)
    np.testing.assert_array_equal(array[...], ITEMS)
    key = "a/c/0/0"
    whole = bytes(store.get(key))
    assert_places = {len(whole) - 10: "the outer index", 4 * 64 + 10: "the first inner index"}
    for at in assert_places:
        store.put(key, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert_refused(array, key, [..., (3, 2), (slice(0, 2), slice(0, 2))], ChecksumError)


def test_missing_chunks_are_fill_values_or_an_error_as_asked(store):
    array = make(store, ["zstd"])
    store.delete("a/c/0/0")
    np.testing.assert_array_equal(array[:16], np.zeros((16, 16), "u4"))
    with pytest.raises(zstore.errors.NotFoundError) as caught:
        array.read(missing="error")
    assert caught.value.key == "a/c/0/0"
    np.testing.assert_array_equal(array.read(slice(16, None), missing="error"), ITEMS[16:])


def test_a_failed_partial_write_leaves_everything_as_it_was(store):
    for serializer in (None, shard()):
        options = {} if serializer is None else {"serializer": serializer}
        array = make(store, ["crc32c"] if serializer is None else None, overwrite=True, **options)
        whole = bytes(store.get("a/c/0/0"))
        damaged = whole[:10] + bytes([whole[10] ^ 1]) + whole[11:]
        if serializer is not None:
            damaged = whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]
        store.put("a/c/0/0", damaged)
        with pytest.raises(ChecksumError):
            array[1:9, 1:9] = 7
        assert bytes(store.get("a/c/0/0")) == damaged
        array[:16] = 7  # replacing all of it needs nothing of what was there
        assert (array[:16] == 7).all()

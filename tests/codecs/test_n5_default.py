"""The codec "n5_default"."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

import zstore
from zstore.codecs.base import ChunkSpec
from zstore.codecs.n5_default import N5Default
from zstore.errors import CodecError, MetadataError
from zstore.storage.memory import MemoryStore
from zstore.testing.chunk_codecs import SerializerContract

TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
SPEC = ChunkSpec((3, 4), np.dtype("i2"), np.int16(-1))


def bound(*codecs, spec=SPEC) -> N5Default:
    return N5Default.from_configuration({"codecs": list(codecs)}).bind(spec)


class TestN5(SerializerContract):
    specs = (SPEC, ChunkSpec((2, 5), np.dtype("f8"), None), ChunkSpec((4, 4), np.dtype("u1"), np.uint8(3)))

    def make(self):
        return N5Default.from_configuration({"codecs": [TRANSPOSE, BIG, GZIP]})


def block(items: np.ndarray, mode: int = 0) -> bytes:
    """As N5 writes it: header, then the items with the first dimension running fastest."""
    head = struct.pack(f">HH{items.ndim}I", mode, items.ndim, *items.shape)
    return head + gzip.compress(items.astype(items.dtype.newbyteorder(">")).tobytes(order="F"), mtime=0)


def test_blocks_are_n5s():
    items = np.arange(12, dtype="i2").reshape(3, 4)
    codec = bound(TRANSPOSE, BIG, GZIP)
    encoded = bytes(codec.encode(items))
    assert encoded[:12] == block(items)[:12]
    assert gzip.decompress(encoded[12:]) == gzip.decompress(block(items)[12:])
    np.testing.assert_array_equal(codec.decode(memoryview(block(items))), items, strict=True)


@pytest.mark.parametrize("shape", [(2, 4), (3, 1), (1, 1), (5, 2), (4, 6)])
def test_blocks_of_another_shape_are_cut_and_filled_up(shape):
    items = np.arange(np.prod(shape), dtype="i2").reshape(shape)
    expected = np.full((3, 4), -1, "i2")
    expected[: shape[0], : shape[1]] = items[:3, :4]
    codec = bound(TRANSPOSE, BIG, GZIP)
    np.testing.assert_array_equal(codec.decode(memoryview(block(items))), expected, strict=True)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\0\0", "its header takes 12"),
        (block(np.zeros((3, 4), "i2"), mode=1), "mode 1, expected 0"),
        (block(np.zeros((3, 4, 1), "i2")), "3 dimensions, expected 2"),
        (struct.pack(">HHII", 0, 2, 1 << 31, 1 << 31), "expected about"),
        (struct.pack(">HHII", 0, 2, 3, 4) + gzip.compress(bytes(23), mtime=0), "has 23 bytes, expected 24"),
        (struct.pack(">HHII", 0, 2, 3, 3) + gzip.compress(bytes(1 << 20), mtime=0), "gzip"),
    ],
)
def test_damage(data, complaint):
    with pytest.raises(CodecError, match=complaint):
        bound(TRANSPOSE, BIG, GZIP).decode(memoryview(data))


@pytest.mark.parametrize(
    "codecs",
    [
        [BIG],
        [TRANSPOSE],
        [{"name": "transpose", "configuration": {"order": [0, 1]}}, BIG],
        [TRANSPOSE, {"name": "bytes", "configuration": {"endian": "little"}}],
        [TRANSPOSE, BIG, GZIP, GZIP],
        [TRANSPOSE, TRANSPOSE, BIG],
    ],
)
def test_chains_that_are_not_n5s(codecs):
    with pytest.raises(MetadataError):
        bound(*codecs)


@pytest.mark.parametrize("dtype", ["?", "f2", "c8", "S3"])
def test_types_that_n5_lacks(dtype):
    with pytest.raises(MetadataError, match="n5_default"):
        bound(TRANSPOSE, BIG, spec=ChunkSpec((3, 4), np.dtype(dtype), None))


def test_in_an_array():
    items = np.arange(70, dtype="f4").reshape(7, 10)
    store = MemoryStore()
    serializer = {"name": "n5_default", "configuration": {"codecs": [TRANSPOSE, BIG, GZIP]}}
    array = zstore.create_array(
        store,
        data=items,
        chunks=(3, 4),
        serializer=serializer,
        compressors=None,
        chunk_key_encoding=("v2", "/"),
    )
    np.testing.assert_array_equal(array[1:, ::3], items[1:, ::3])
    store.put("2/2", block(items[6:, 8:]))
    np.testing.assert_array_equal(zstore.open_array(store)[...], items)

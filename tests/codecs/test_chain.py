"""Chains: which codecs may follow which, and what is checked on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zstore.codecs.base import Chain, ChunkSpec
from zstore.errors import CodecError, MetadataError, UnknownExtensionError
from zstore.model.array import CodecModel

SPEC = ChunkSpec((4, 6), np.dtype("i4"), np.int32(0))
BYTES = CodecModel("bytes", {"endian": "little"})
TURN = CodecModel("transpose", {"order": [1, 0]})
ZSTD = CodecModel("zstd", {"level": 1, "checksum": False})
CRC = CodecModel("crc32c", {})
BZ2 = CodecModel("numcodecs.bz2", {"level": 1})
CHUNK = np.arange(24, dtype="i4").reshape(4, 6)


@pytest.mark.parametrize(
    "models", [[BYTES], [TURN, BYTES], [TURN, TURN, BYTES, ZSTD], [BYTES, CRC, ZSTD, CRC], [BYTES, BZ2, CRC]]
)
def test_chunks_come_back(models):
    chain = Chain.bind(models, SPEC)
    data = bytes(chain.encode(CHUNK))
    np.testing.assert_array_equal(chain.decode(data), CHUNK, strict=True)
    for damaged in (b"", data[:-1], data + b"\0"):
        with pytest.raises(CodecError):
            chain.decode(damaged)


@pytest.mark.parametrize(
    "models",
    [
        [],
        [ZSTD],
        [TURN],
        [BYTES, BYTES],
        [BYTES, TURN],
        [ZSTD, BYTES],
        [TURN, ZSTD, BYTES],
        [BYTES, ZSTD, TURN],
    ],
)
def test_orders_that_cannot_be(models):
    with pytest.raises(MetadataError):
        Chain.bind(models, SPEC)


def test_an_unknown_codec_is_named():
    with pytest.raises(UnknownExtensionError, match="'zzz'"):
        Chain.bind([BYTES, CodecModel("zzz")], SPEC)


def test_sizes_that_are_known():
    sizes: list[tuple[list[Any], int | None]] = [
        ([BYTES], 96),
        ([TURN, BYTES, CRC], 100),
        ([BYTES, CRC, CRC], 104),
        ([BYTES, ZSTD], None),
    ]
    for models, size in sizes:
        chain = Chain.bind(models, SPEC)
        assert chain.encoded_size() == size
        if size is not None:
            assert len(chain.encode(CHUNK)) == size


def test_nothing_decodes_to_more_than_a_chunk():
    large = Chain.bind([BYTES, ZSTD], ChunkSpec((4_000_000,), np.dtype("i4"), np.int32(0)))
    bomb = bytes(large.encode(np.zeros(4_000_000, "i4")))
    with pytest.raises(CodecError):
        Chain.bind([BYTES, ZSTD], SPEC).decode(bomb)

"""LZ4 in numcodecs' wrapping."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from zstore.codecs.lz4 import NumcodecsLz4
from zstore.errors import CodecError, MetadataError
from zstore.testing.codecs import NativeCodecContract

SAMPLE = np.arange(5000, dtype="<i4").tobytes()


class TestNumcodecsLz4(NativeCodecContract):
    def make(self):
        return NumcodecsLz4()


def test_the_example_configuration():
    codec = NumcodecsLz4.from_configuration({"acceleration": 1})
    assert codec.to_configuration() == {"acceleration": 1}


@pytest.mark.parametrize("acceleration", [-1, 0, 1, 100, 100_000])
def test_numcodecs_reads_ours_and_we_read_numcodecs(acceleration):
    peer = numcodecs.LZ4(acceleration)
    codec = NumcodecsLz4(acceleration)
    assert bytes(peer.decode(codec.encode(SAMPLE))) == SAMPLE
    assert codec.decode(peer.encode(SAMPLE), len(SAMPLE)) == SAMPLE


def test_a_size_that_lies_is_refused():
    encoded = bytearray(NumcodecsLz4().encode(SAMPLE))
    for size in (0, 1, len(SAMPLE) - 1, len(SAMPLE) + 1, 0x7FFFFFFF, 0xFFFFFFFF):
        encoded[:4] = size.to_bytes(4, "little")
        with pytest.raises(CodecError):
            NumcodecsLz4().decode(encoded, 1 << 20)


def test_every_truncation_is_refused():
    encoded = NumcodecsLz4().encode(SAMPLE[:1500])
    for size in range(len(encoded)):
        with pytest.raises(CodecError, match="damaged"):
            NumcodecsLz4().decode(encoded[:size], 1500)


def test_bad_configurations_are_refused():
    with pytest.raises(MetadataError, match=r"acceleration 1\.5"):
        NumcodecsLz4.from_configuration({"acceleration": 1.5})

"""Zstandard: other writers' frames, odd frames, damaged frames."""

from __future__ import annotations

import struct

import numcodecs
import numpy as np
import pytest
import zstandard

import zstore
from zstore.codecs.zstd import NumcodecsZstd, Zstd
from zstore.errors import ChecksumError, CodecError, MetadataError
from zstore.testing.codecs import NativeCodecContract

SAMPLE = np.arange(5000, dtype="<i4").tobytes()


class TestZstd(NativeCodecContract):
    def make(self):
        return Zstd(3, checksum=False)


class TestZstdWithChecksum(NativeCodecContract):
    def make(self):
        return Zstd(-5, checksum=True)


class TestNumcodecsZstd(NativeCodecContract):
    def make(self):
        return NumcodecsZstd(1)


def test_the_example_configuration():
    codec = Zstd.from_configuration({"level": 3, "checksum": False})
    assert codec.to_configuration() == {"level": 3, "checksum": False}
    assert codec.decode(codec.encode(SAMPLE), len(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("level", [-131072, -1, 0, 1, 9, 19, 22])
@pytest.mark.parametrize("checksum", [False, True])
def test_numcodecs_reads_ours_and_we_read_numcodecs(level, checksum):
    codec = Zstd(level, checksum)
    peer = numcodecs.Zstd(level, checksum)
    assert bytes(peer.decode(codec.encode(SAMPLE))) == SAMPLE
    assert codec.decode(peer.encode(SAMPLE), len(SAMPLE)) == SAMPLE


def test_content_size_is_written():
    assert zstandard.frame_content_size(Zstd(3).encode(SAMPLE)) == len(SAMPLE)


def test_a_frame_without_content_size_decodes():
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(SAMPLE)
    assert Zstd().decode(frame, len(SAMPLE)) == SAMPLE
    with pytest.raises(CodecError, match="more than the 19999 bytes allowed"):
        Zstd().decode(frame, len(SAMPLE) - 1)


def test_frames_in_a_row_and_skippable_frames_decode():
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"aside"
    frames = skippable + Zstd().encode(SAMPLE) + skippable + Zstd().encode(b"tail") + skippable
    assert Zstd().decode(frames, 1 << 20) == SAMPLE + b"tail"
    with pytest.raises(CodecError, match="claim to hold 20004 bytes, at most 20003 allowed"):
        Zstd().decode(frames, len(SAMPLE) + 3)


@pytest.mark.parametrize("junk", [b"\0", b"\0" * 8, b"junk after the frame", b"\x28\xb5\x2f\xfd"])
def test_junk_behind_the_frame_is_refused(junk):
    with pytest.raises(CodecError, match="damaged"):
        Zstd().decode(Zstd().encode(SAMPLE) + junk, 1 << 20)


def test_nothing_is_not_a_frame():
    with pytest.raises(CodecError, match="damaged"):
        Zstd().decode(b"", 10)


def test_a_frame_of_a_format_before_1_0_is_refused():
    with pytest.raises(CodecError, match="damaged"):
        Zstd().decode(bytes.fromhex("24b52ffd") + bytes(40), 1 << 20)


def test_a_header_that_promises_much_allocates_nothing():
    # Single segment, 8-byte content size of 2**60.
    frame = bytes.fromhex("28b52ffd" + "e0") + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(CodecError, match=r"claim to hold 1152921504606846976 bytes, at most 1048576 allowed"):
        Zstd().decode(frame, 1 << 20)


def test_every_truncation_is_refused():
    frame = Zstd(3, checksum=True).encode(SAMPLE[:2000])
    for size in range(len(frame)):
        with pytest.raises(CodecError):
            Zstd().decode(frame[:size], 2000)


def test_a_wrong_checksum_is_a_checksum_error():
    frame = bytearray(Zstd(3, checksum=True).encode(SAMPLE))
    frame[-1] ^= 1
    with pytest.raises(ChecksumError, match="codec 'zstd' failed: the stored checksum does not match"):
        Zstd().decode(frame, len(SAMPLE))


def test_a_level_22_chunk_leaves_later_ones_alone():
    large = np.random.default_rng(0).integers(0, 50, 3 << 20, dtype="u1").tobytes()
    first = Zstd(1).encode(SAMPLE)
    assert Zstd(22).decode(Zstd(22).encode(large[: 1 << 18]), len(large)) == large[: 1 << 18]
    assert Zstd(1).encode(SAMPLE) == first


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"level": 23, "checksum": False}, "level 23, expected an integer from -131072 to 22"),
        ({"level": True, "checksum": False}, "level True"),
        ({"level": "3", "checksum": False}, "level '3'"),
        ({"level": 3, "checksum": 1}, "checksum 1, expected true or false"),
        ({"level": 3, "checksum": False, "speed": 1}, "unknown options: 'speed'"),
    ],
)
def test_bad_configurations_are_refused(configuration, message):
    with pytest.raises(MetadataError, match=message):
        Zstd.from_configuration(configuration)


def test_numcodecs_configurations_come_back_as_they_were():
    for configuration in ({"level": 100}, {"level": 3, "checksum": True}, {"level": 3, "checksum": False}):
        codec = NumcodecsZstd.from_configuration(configuration)
        assert codec.to_configuration() == configuration
        assert codec.decode(codec.encode(SAMPLE[:100]), 100) == SAMPLE[:100]


def test_frames_of_a_large_chunk_are_read_block_by_block(tmp_path):
    """Chunks that an interrupt may end in the midst: several frames, those that are skipped, damage."""
    data = np.random.default_rng(0).integers(0, 9, 17 << 20, "u1")
    array = zstore.create_array(
        tmp_path, shape=data.shape, dtype="u1", chunks=data.shape, compressors=[Zstd(1)]
    )
    array[...] = data
    path = tmp_path / "c" / "0"
    whole = path.read_bytes()
    assert whole == Zstd(1).encode(data)
    codec = Zstd(1, checksum=True)
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    frames = [codec.encode(data[:40]), skipped, codec.encode(data[40:]), struct.pack("<II", 0x184D2A50, 0)]
    path.write_bytes(b"".join(frames))
    np.testing.assert_array_equal(array[...], data)
    path.write_bytes(b"".join(frames)[:-9])
    with pytest.raises(CodecError, match="damaged"):
        array[...]
    frames[2] = frames[2][:-4] + bytes(4)
    path.write_bytes(b"".join(frames))
    with pytest.raises(ChecksumError):
        array[...]
    for at in (9, 500, len(frames[2]) // 2):
        path.write_bytes(
            b"".join([*frames[:2], frames[2][:at], bytes([frames[2][at] ^ 0x55]), frames[2][at + 1 :]])
        )
        with pytest.raises(CodecError):
            array[...]

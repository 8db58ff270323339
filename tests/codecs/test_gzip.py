"""gzip and zlib: other writers' streams, several members, damaged streams."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from zstore.codecs.gzip import Gzip, NumcodecsGzip, NumcodecsZlib
from zstore.errors import ChecksumError, CodecError, MetadataError
from zstore.testing.codecs import NativeCodecContract

SAMPLE = np.arange(5000, dtype="<i4").tobytes()


class TestGzip(NativeCodecContract):
    def make(self):
        return Gzip(5)


class TestNumcodecsGzip(NativeCodecContract):
    def make(self):
        return NumcodecsGzip(1)


class TestNumcodecsZlib(NativeCodecContract):
    def make(self):
        return NumcodecsZlib(9)


def test_the_example_configuration():
    codec = Gzip.from_configuration({"level": 5})
    assert codec.to_configuration() == {"level": 5}
    assert codec.decode(codec.encode(SAMPLE), len(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("level", range(10))
def test_the_standard_library_reads_ours_and_we_read_it(level):
    assert gzip.decompress(Gzip(level).encode(SAMPLE)) == SAMPLE
    assert zlib.decompress(NumcodecsZlib(level).encode(SAMPLE)) == SAMPLE
    assert Gzip(level).decode(gzip.compress(SAMPLE, level), len(SAMPLE)) == SAMPLE
    assert NumcodecsZlib(level).decode(zlib.compress(SAMPLE, level), len(SAMPLE)) == SAMPLE


def _samples() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    words = [bytes(random.integers(97, 123, length).astype("u1")) for length in random.integers(2, 10, 2000)]
    text = b" ".join(words[k] for k in random.integers(0, 2000, 40_000))
    classes = random.integers(0, 6, (64, 64)).astype("u1").repeat(8, 0).repeat(8, 1)
    return {
        "rough": (np.cumsum(random.normal(size=1 << 16)) * 10).astype("<i2").tobytes(),
        "counting": np.arange(1 << 15, dtype="<i4").tobytes(),
        "text": text,
        "names": np.array([f"station {k}" for k in random.integers(0, 500, 5000)]).tobytes(),
        "classes": classes.tobytes(),
        "every 256": text[:256] * 800,
        "every 32,000": text[:32_000] * 8,
        "noise": random.bytes(1 << 17),
    }


@pytest.mark.parametrize("level", range(1, 10))
@pytest.mark.parametrize("sample", _samples().items(), ids=lambda sample: sample[0])
def test_no_level_takes_more_room_than_in_zlib(level: int, sample: tuple[str, bytes]) -> None:
    data = sample[1]
    size = len(NumcodecsZlib(level).encode(data))
    assert size <= (1.03 if level > 3 else 1.1) * len(zlib.compress(data, level)) + 16


@pytest.mark.parametrize("level", [4, 5, 6, -1])
def test_a_large_smooth_field_takes_less_room_than_in_zlib(level: int) -> None:
    """Where matches of three bytes save nothing, the way without them is taken, which is smaller."""
    rows, columns = np.indices((512, 512))
    noise = np.random.default_rng(0).normal(0, 0.15, rows.shape)
    smooth = 290 + 15 * np.sin(columns / 311) + 9 * np.cos(rows / 207)
    field = np.round((smooth + noise) * 64).astype("<f4") / 64
    data = field.tobytes()
    encoded = NumcodecsZlib(level).encode(data)
    assert len(encoded) < 0.96 * len(zlib.compress(data, level))
    assert zlib.decompress(encoded) == data


def test_no_time_stamp_is_written():
    encoded = Gzip(5).encode(SAMPLE)
    assert encoded[4:8] == bytes(4)
    assert Gzip(5).encode(SAMPLE) == encoded


def test_members_in_a_row_decode():
    members = gzip.compress(SAMPLE) + gzip.compress(b"") + Gzip(1).encode(b"tail")
    assert Gzip().decode(members, 1 << 20) == SAMPLE + b"tail"
    assert Gzip().decode(members, len(SAMPLE) + 4) == SAMPLE + b"tail"
    with pytest.raises(CodecError, match="more than the 20003 bytes allowed"):
        Gzip().decode(members, len(SAMPLE) + 3)


def test_a_member_with_name_and_comment_decodes():
    body = Gzip(5).encode(SAMPLE)
    named = body[:3] + b"\x18" + body[4:10] + b"name\0comment\0" + body[10:]
    assert Gzip().decode(named, len(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("junk", [b"\0", b"junk", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x08\0"])
@pytest.mark.parametrize("codec", [Gzip(), NumcodecsZlib()])
def test_junk_behind_the_stream_is_refused(codec, junk):
    with pytest.raises(CodecError, match="damaged"):
        codec.decode(codec.encode(SAMPLE) + junk, 1 << 20)


@pytest.mark.parametrize("codec", [Gzip(), NumcodecsZlib()])
def test_every_truncation_is_refused(codec):
    encoded = codec.encode(SAMPLE[:1500])
    for size in range(len(encoded)):
        for limit in (1500, 1501, 1 << 20):
            with pytest.raises(CodecError, match="damaged"):
                codec.decode(encoded[:size], limit)


@pytest.mark.parametrize("codec", [Gzip(), NumcodecsZlib()])
def test_an_expansion_bomb_stops_at_the_limit(codec):
    encoded = codec.encode(bytes(50 << 20))
    assert len(encoded) < 100_000
    with pytest.raises(CodecError, match="decodes to more than the 1048576 bytes allowed"):
        codec.decode(encoded, 1 << 20)
    assert len(codec.decode(encoded, 1 << 40)) == 50 << 20


def test_more_than_the_first_room_decodes():
    encoded = NumcodecsZlib(1).encode(bytes(150 << 20))
    assert NumcodecsZlib().decode(encoded, 1 << 40) == bytes(150 << 20)


def test_wrong_checksums_are_checksum_errors():
    for codec, place in ((Gzip(), -8), (NumcodecsZlib(), -1)):
        encoded = bytearray(codec.encode(SAMPLE))
        encoded[place] ^= 1
        with pytest.raises(ChecksumError, match=f"codec '{codec.name}' failed: the stored checksum"):
            codec.decode(encoded, len(SAMPLE))


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({}, "lacks the option 'level'"),
        ({"level": 10}, "level 10, expected an integer from 0 to 9"),
        ({"level": -1}, "level -1"),
        ({"level": 5, "mtime": 0}, "unknown options: 'mtime'"),
    ],
)
def test_bad_configurations_are_refused(configuration, message):
    with pytest.raises(MetadataError, match=message):
        Gzip.from_configuration(configuration)
